"""A child with a time limit: a driver that hangs or crashes never takes its caller along."""

import os
import subprocess
import time

import pytest
from ansible.module_utils.gpu_probe.cuda import look_at_cuda, tidy
from ansible.module_utils.gpu_probe.limited import LimitedCall
from ansible.module_utils.gpu_probe.nvml import look_at_nvml

SOURCES = {
    "hang": "int pause(void); int cuInit(unsigned f) { (void)f; for (;;) pause(); }",
    "crash": "int cuInit(unsigned f) { (void)f; return *(volatile int *)0; }",
    "refused": "int cuInit(unsigned f) { (void)f; return 999; }",
    "minimal": "int cuInit(unsigned f) { (void)f; return 0; }",
    "two": """
        #include <string.h>
        int pause(void);
        int cuInit(unsigned f) { (void)f; return 0; }
        int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
        int cuDeviceGetCount(int *n) { *n = 2; return 0; }
        int cuDeviceGet(int *d, int i) { *d = i; return 0; }
        int cuDeviceGetName(char *s, int n, int d) { (void)d; strncpy(s, "NVIDIA X", n); return 0; }
        int cuDeviceGetUuid(char *u, int d) { memset(u, 0x10 + d, 16); return 0; }
        int cuDeviceGetPCIBusId(char *s, int n, int d) { (void)d; strncpy(s, "0000:0A:00.0", n); return 0; }
        int cuDeviceTotalMem_v2(unsigned long *b, int d) { (void)d; *b = 1UL << 40; return 0; }
        int cuCtxCreate_v2(void **c, unsigned f, int d) { while (d) pause(); return 0; }
        int cuMemGetInfo_v2(unsigned long *f, unsigned long *t) { *f = 5; *t = 9; return 0; }
        int cuMemAlloc_v2(unsigned long long *p, unsigned long n) { *p = 7; return n == 1 << 20 ? 0 : 1; }
        int cuMemFree_v2(unsigned long long p) { return p == 7 ? 0 : 1; }
        int cuCtxDestroy_v2(void *c) { (void)c; return 0; }
    """,
    "nvml": """
        struct memory { unsigned long long total, free, used; };
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(8UL + i); return 0; }
        int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { *m = (struct memory){9, 4, 5}; return 0; }
        int nvmlDeviceGetEccMode(void *d, unsigned *now, unsigned *next) { *now = 1; *next = 0; return 0; }
        int nvmlDeviceGetComputeMode(void *d, unsigned *m) { (void)d; *m = 2; return 0; }
    """,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")

    def build(name):
        source, target = folder / f"{name}.c", folder / f"lib{name}.so.580.95.05"
        source.write_text(SOURCES[name])
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-O0", "-o", target, source], check=True)
        return str(target)

    return build


def cuda(path, limit_s=5.0):
    return tidy(
        LimitedCall(lambda report: look_at_cuda(report, allocate=True, library=path), limit_s).result()
    )


def test_what_a_function_reports_comes_back():
    def function(report):
        report("a", 1)
        report("b", {"c": [2]})

    assert LimitedCall(function, 5).result() == {"a": 1, "b": {"c": [2]}, "status": "ok"}


def test_an_exception_is_a_failure_with_its_words():
    def function(report):
        report("a", 1)
        raise ValueError("no")

    assert LimitedCall(function, 5).result() == {"a": 1, "error": "ValueError: no", "status": "failed"}


def test_what_was_found_before_a_hang_is_kept():
    def function(report):
        report("a", 1)
        time.sleep(60)

    began = time.monotonic()
    found = LimitedCall(function, 0.3).result()

    assert found == {"a": 1, "status": "timeout", "limit_s": 0.3}
    assert time.monotonic() - began < 2


def test_the_child_lets_go_of_our_files():
    reading, writing = os.pipe()
    call = LimitedCall(lambda _report: time.sleep(1), 5)
    os.close(writing)

    began = time.monotonic()
    assert os.read(reading, 1) == b""
    assert time.monotonic() - began < 0.9
    os.close(reading)
    call.result()


def test_more_than_a_pipe_holds_comes_back():
    def function(report):
        for number in range(200):
            report(str(number), "x" * 1000)

    assert len(LimitedCall(function, 5).result()) == 201


def test_a_driver_that_hangs_in_cuinit_is_a_timeout(library):
    found = cuda(library("hang"), limit_s=0.5)

    assert (found["status"], found["step"], found["limit_s"]) == ("timeout", "cuInit", 0.5)


def test_a_library_that_crashes_is_named(library):
    found = cuda(library("crash"))

    assert (found["status"], found["signal"], found["step"]) == ("crashed", "SIGSEGV", "cuInit")


def test_a_refusal_and_the_library_version_are_reported(library):
    found = cuda(library("refused"))

    assert (found["status"], found["cu_init"]) == ("ok", 999)
    assert found["library"]["version"] == "580.95.05"


def test_a_library_with_no_other_function_is_enough(library):
    found = cuda(library("minimal"))

    assert (found["status"], found["cu_init"], found["devices"]) == ("ok", 0, [])


def test_a_missing_library_is_not_an_error():
    found = cuda("libdoes-not-exist.so.1")

    assert found["status"] == "no_library"
    assert "cannot open" in found["library_error"]


def test_one_hung_gpu_does_not_hide_the_other(library):
    found = cuda(library("two"), limit_s=1.0)

    assert found["status"] == "timeout"
    assert found["device_count"] == 2
    assert found["devices"] == [
        {
            "index": 0,
            "get_result": 0,
            "name": "NVIDIA X",
            "uuid": "GPU-10101010-1010-1010-1010-101010101010",
            "pci": "0000:0a:00.0",
            "memory_bytes": 1 << 40,
            "context_result": 0,
            "free_bytes": 5,
            "allocation_result": 0,
        }
    ]


def test_nvml_reports_what_the_library_has(library):
    path = library("nvml")
    found = tidy(LimitedCall(lambda report: look_at_nvml(report, library=path), 5).result())

    assert found["status"] == "ok"
    assert found["devices"] == [
        {
            "index": 0,
            "handle_result": 0,
            "memory": {"total_bytes": 9, "free_bytes": 4, "used_bytes": 5},
            "ecc": {"current": True, "pending": False},
            "compute_mode": "prohibited",
        }
    ]
