"""The host's driver: bound, built, loaded, and its device nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import access
from .case import UVM, Case
from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause, listed
from .evidence import dig, items, mapping, records, text, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .access import Access

GROUP = "driver"
NOT_LOADED = CUDA_RESULTS | {"driver_not_loaded"}


def _bound_to(case: Case, driver: str) -> list[str]:
    return [text(gpu, "pci") or "?" for gpu in case.pci_gpus or [] if text(gpu, "driver") == driver]


def _log(case: Case, *kinds: str) -> list[str]:
    lines = records(case.host, "kernel_log", "lines")
    return [text(line, "text") or "" for line in lines if text(line, "kind") in kinds][:3]


@cause(
    "nouveau_bound",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the open nouveau driver has the GPU instead of NVIDIA's",
    explains=NOT_LOADED | {"driver_not_built_for_kernel", "module_refused_by_secure_boot"},
)
def nouveau_bound(case: Case) -> Iterator[Finding]:
    gpus = _bound_to(case, "nouveau")
    if gpus:
        yield Finding(
            f"{case.host_name}: nouveau has {', '.join(gpus)}, so NVIDIA's driver can't. Blacklist nouveau, "
            f"`update-initramfs -u`, and reboot the host.",
            {"gpus": gpus, "kernel_log": _log(case, "nouveau")},
        )


@cause(
    "vfio_bound",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="vfio-pci has GPUs that this node needs (they are set aside for virtual machines)",
    explains=NOT_LOADED | {"gpu_missing_in_node"},
)
def vfio_bound(case: Case) -> Iterator[Finding]:
    gpus = _bound_to(case, "vfio-pci")
    free = len(case.pci_gpus or []) - len(gpus)
    if gpus and free < max(1, case.expected_gpus):
        yield Finding(
            f"{case.host_name}: vfio-pci has {', '.join(gpus)} (set aside for virtual machines); "
            f"{case.node} needs "
            f"{max(1, case.expected_gpus)} GPUs and {free} are left. Remove their ids from vfio-pci's "
            f"options and reboot.",
            {"vfio_gpus": gpus, "left": free},
        )


@cause(
    "module_refused_by_secure_boot",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="Secure Boot refuses the driver, since it isn't signed with an enrolled key",
    explains=NOT_LOADED | {"driver_not_built_for_kernel"},
)
def module_refused_by_secure_boot(case: Case) -> Iterator[Finding]:
    if case.loaded("nvidia") is not False:
        return
    lines = _log(case, "refused")
    if lines and truth(case.host, "driver", "secure_boot") is not False:
        yield Finding(
            f"{case.host_name}: Secure Boot refuses the nvidia module. Enrol its signing key (`mokutil "
            f"--import`) or "
            f"turn Secure Boot off.",
            {"secure_boot": truth(case.host, "driver", "secure_boot"), "kernel_log": lines},
        )


@cause(
    "driver_not_built_for_kernel",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="no nvidia module for the running kernel (DKMS did not build it after a kernel update)",
    explains=NOT_LOADED,
)
def driver_not_built_for_kernel(case: Case) -> Iterator[Finding]:
    if case.loaded("nvidia") is not False:
        return
    kernel = text(case.host, "kernel") or "the running kernel"
    unfit = _log(case, "unfit")
    none_there = dig(case.host, "driver", "module_file") == {}
    if none_there or unfit:
        others = [str(one) for one in items(case.host, "driver", "built_for")]
        built = f"; it is built for {', '.join(others)}" if others else ""
        yield Finding(
            f"{case.host_name} runs kernel {kernel}, for which no fitting nvidia module is there{built}. "
            f"`dkms autoinstall -k {kernel}` (needs the kernel's headers), or boot the former kernel.",
            {
                "kernel": kernel,
                "built_for": others,
                "dkms": items(case.host, "driver", "dkms"),
                "kernel_log": unfit,
            },
        )


@cause(
    "driver_not_loaded",
    group=GROUP,
    severity=REPAIRABLE,
    repair="load_modules",
    about="the nvidia module is not loaded, though it is there for this kernel",
    explains=CUDA_RESULTS,
)
def driver_not_loaded(case: Case) -> Iterator[Finding]:
    if case.majors is None:
        case.need("host", "proc_devices")
    if case.loaded("nvidia") is False:
        path = text(case.host, "proc_devices_path") or "/proc/devices"
        yield Finding(
            f"{case.host_name}: the nvidia driver is not loaded ({path} does not list it).",
            {
                "module_file": dig(case.host, "driver", "module_file"),
                "kernel_log": _log(case, "nvrm", "no_gpu"),
            },
        )


@cause(
    "uvm_module_not_loaded",
    group=GROUP,
    severity=REPAIRABLE,
    repair="load_modules",
    about="nvidia-uvm is not loaded: it is loaded at first use, which a container can't trigger",
    explains=CUDA_RESULTS,
)
def uvm_module_not_loaded(case: Case) -> Iterator[Finding]:
    if case.loaded("nvidia") and case.loaded(UVM) is False:
        yield Finding(
            f"{case.host_name}: the nvidia-uvm module is not loaded, so /dev/nvidia-uvm can't be opened "
            f"anywhere.",
            {"modules": sorted(mapping(case.host, "driver", "modules")), "major_now": None},
        )


@cause(
    "gpu_without_driver",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="the driver is loaded, but has not taken this GPU",
    explains=frozenset(("gpu_missing_in_node",)),
)
def gpu_without_driver(case: Case) -> Iterator[Finding]:
    if not case.loaded("nvidia"):
        return
    left = [
        text(gpu, "pci") or "?" for gpu in case.pci_gpus or [] if "driver" in gpu and gpu["driver"] is None
    ]
    if left:
        yield Finding(
            f"{case.host_name}: no driver has taken GPU {', '.join(left)}, though nvidia is loaded. "
            f"The kernel log says why (`journalctl -k -b | grep NVRM`).",
            {"gpus": left, "kernel_log": _log(case, "nvrm", "gsp")},
        )


@cause(
    "driver_update_pending",
    group=GROUP,
    severity=NOTE,
    about="the driver on disk is another version than the loaded one: the next reboot changes it",
)
def driver_update_pending(case: Case) -> Iterator[Finding]:
    loaded = text(case.host, "driver", "version")
    on_disk = text(case.host, "driver", "module_file", "version")
    if loaded and on_disk and loaded != on_disk:
        yield Finding(
            f"{case.host_name} runs driver {loaded}; {on_disk} is installed and will run after the next "
            f"reboot.",
            {"loaded": loaded, "on_disk": on_disk},
        )


@cause(
    "host_node_missing",
    group=GROUP,
    severity=REPAIRABLE,
    repair="make_nodes",
    about="a device node is missing on the host, though its driver is loaded",
    explains=CUDA_RESULTS,
)
def host_node_missing(case: Case) -> Iterator[Finding]:
    if not isinstance(case.host.get("device_nodes"), list):
        case.need("host", "device_nodes")
    missing = access.by_kind(case, access.HOST_MISSING)
    if missing:
        paths = [one.path for one in missing]
        majors = {one.driver: one.major for one in missing}
        yield Finding(
            f"{case.host_name} lacks {listed(paths)}, though the driver is loaded.",
            {"missing": paths, "majors_now": majors},
        )


@cause(
    "host_node_not_a_device",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="a regular file stands where the host's device node should be (left by `optional,create=file`)",
    explains=CUDA_RESULTS,
)
def host_node_not_a_device(case: Case) -> Iterator[Finding]:
    for kind, wrong in _grouped(case, access.HOST_NOT_A_DEVICE, "type").items():
        paths = listed([one.path for one in wrong])
        verb, them, nodes = ("is", "it", "node is") if len(wrong) == 1 else ("are each", "them", "nodes are")
        yield Finding(
            f"On {case.host_name}, {paths} {verb} a {kind}, not a character device. Look at {them}, remove "
            f"{them}, and run again: the {nodes} made then.",
            {"nodes": [one.proof for one in wrong]},
        )


@cause(
    "host_node_wrong_device",
    group=GROUP,
    severity=REPAIRABLE,
    repair="make_nodes",
    about="the host's device node has another major than its driver now, or a GPU's node another GPU's minor",
    explains=CUDA_RESULTS,
)
def host_node_wrong_device(case: Case) -> Iterator[Finding]:
    for major, wrong in _grouped(case, access.HOST_WRONG_DEVICE, "major").items():
        paths = listed([one.path for one in wrong])
        if major == wrong[0].major:
            minors = listed([str(one.minor) for one in wrong])
            said = f"{paths} has minor {minors}, which is another GPU."
        else:
            said = f"{paths} has major {major}, but {wrong[0].driver} has {wrong[0].major} now."
        yield Finding(
            f"On {case.host_name}, {said}",
            {"nodes": [one.proof for one in wrong]},
        )


@cause(
    "host_node_narrow_mode",
    group=GROUP,
    severity=REPAIRABLE,
    repair="make_nodes",
    about="the host's device node can't be read and written by everyone, as the engine's own user needs",
)
def host_node_narrow_mode(case: Case) -> Iterator[Finding]:
    narrow = access.by_kind(case, access.NARROW_MODE, access.NO_PERMISSION)
    narrow = [one for one in narrow if access.host_mode_is_narrow(case, one)]
    if narrow:
        modes = sorted({text(case.host_node(one.path), "mode") or "?" for one in narrow})
        yield Finding(
            f"On {case.host_name}, {listed([one.path for one in narrow])} has mode {listed(modes)}; the "
            f"engine's user "
            f"needs 0666.",
            {"nodes": [one.proof for one in narrow]},
        )


def _grouped(case: Case, kind: str, field: str) -> dict[Any, list[Access]]:
    """Nodes with one fault, by what the host's node has in a field."""
    groups: dict[Any, list[Access]] = {}
    for one in access.by_kind(case, kind):
        groups.setdefault((case.host_node(one.path) or {}).get(field), []).append(one)
    return groups
