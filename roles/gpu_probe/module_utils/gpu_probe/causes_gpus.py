"""The GPUs themselves, as the host's PCI bus and kernel log tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cause import CUDA_RESULTS, NEEDS_PERSON, NOTE, REPAIRABLE, Finding, cause, listed
from .evidence import mapping, number, real, records, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .case import Case

GROUP = "GPU"
DRIVER_RESULTS = frozenset(
    (
        "driver_not_loaded",
        "uvm_module_not_loaded",
        "host_node_missing",
        "gpu_without_driver",
        "module_refused_by_secure_boot",
        "driver_not_built_for_kernel",
    )
)
SICK_RESULTS = CUDA_RESULTS | {"cuda_timeout", "cuda_crashed", "device_open_hangs", "device_open_failed"}
FELL_OFF_BUS = 79
# After these the GPU, or the driver, is unusable until a reset (NVIDIA's Xid catalogue).
FATAL_XIDS = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    61: "internal microcontroller halt",
    62: "internal microcontroller halt",
    64: "row remapping failed",
    74: "NVLink error",
    95: "uncontained ECC error",
    119: "GSP firmware stopped answering",
    120: "GSP firmware error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    154: "GPU recovery action required",
    158: "GPU fatal timeout",
}


@cause(
    "gpu_missing_from_pci",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="no NVIDIA GPU on the host's PCI bus at all",
    explains=SICK_RESULTS | DRIVER_RESULTS,
)
def gpu_missing_from_pci(case: Case) -> Iterator[Finding]:
    if case.pci_gpus is None:
        case.need("host", "gpus")
    elif not case.pci_gpus and not case.cuda_works:
        expected = case.host_gpus or case.expected_gpus
        yield Finding(
            f"{case.host_name} has no NVIDIA GPU on its PCI bus ({expected or 'at least 1'} expected). "
            f"Check power, seating and the BIOS; a cold start (power off, not reboot) may bring it back.",
            {"gpus": [], "expected": expected},
        )


@cause(
    "fewer_gpus_than_expected",
    group=GROUP,
    severity=NEEDS_PERSON,
    about="some, but not all expected GPUs are on the host's PCI bus",
    explains=frozenset(("gpu_missing_in_node",)),
)
def fewer_gpus_than_expected(case: Case) -> Iterator[Finding]:
    expected = case.host_gpus or case.expected_gpus
    if case.pci_gpus and len(case.pci_gpus) < expected:
        there = [text(gpu, "pci") or "?" for gpu in case.pci_gpus]
        yield Finding(
            f"{case.host_name} has {len(there)} of {expected} GPUs on its PCI bus ({', '.join(there)}). "
            f"A cold start may bring the missing one back; else it is hardware.",
            {"gpus": there, "expected": expected},
        )


def _events(case: Case, kind: str) -> list[Mapping[str, Any]]:
    return [line for line in records(case.host, "kernel_log", "lines") if text(line, "kind") == kind]


@cause(
    "gpu_fell_off_bus",
    group=GROUP,
    severity=REPAIRABLE,
    repair="reboot_host",
    about="Xid 79: a GPU has fallen off the bus since the host's boot",
    explains=SICK_RESULTS | {"gpu_fatal_xid", "gsp_firmware_failed"},
)
def gpu_fell_off_bus(case: Case) -> Iterator[Finding]:
    case.need("host", "kernel_log")
    by_xid = [line for line in _events(case, "xid") if number(line, "xid") == FELL_OFF_BUS]
    lines = by_xid or _events(case, "fell_off_bus")
    if lines:
        gpus = sorted({text(line, "pci") or "" for line in lines} - {""})
        outcome = (
            "It works again by now."
            if case.all_gpus_work
            else "Only a reboot of the host brings it back; if it happens again, it is power or hardware."
        )
        yield Finding(
            f"{listed(gpus) or 'A GPU'} of {case.host_name} fell off the PCI bus (Xid 79). {outcome}",
            {"kernel_log": [text(line, "text") for line in lines[:3]], "pci": gpus},
            severity=NOTE if case.all_gpus_work else "",
        )


@cause(
    "gsp_firmware_failed",
    group=GROUP,
    severity=REPAIRABLE,
    repair="reboot_host",
    about="the GPU's GSP firmware did not load or stopped answering (also Xid 119 and 120)",
    explains=SICK_RESULTS | {"driver_not_loaded", "gpu_without_driver"},
)
def gsp_firmware_failed(case: Case) -> Iterator[Finding]:
    lines = _events(case, "gsp") + [
        line for line in _events(case, "xid") if number(line, "xid") in (119, 120)
    ]
    if lines and not case.cuda_works:
        yield Finding(
            f"{case.host_name}: the GPU's GSP firmware failed. A reboot may clear it; if not, the firmware "
            f"files in "
            f"/lib/firmware/nvidia don't fit the driver.",
            {"kernel_log": [text(line, "text") for line in lines[:3]]},
        )


@cause(
    "gpu_fatal_xid",
    group=GROUP,
    severity=REPAIRABLE,
    repair="reboot_host",
    about="another Xid after which the GPU is unusable until a reset: "
    + ", ".join(str(xid) for xid in sorted(FATAL_XIDS) if xid not in (119, 120)),
    explains=SICK_RESULTS,
)
def gpu_fatal_xid(case: Case) -> Iterator[Finding]:
    lines = [
        line
        for line in _events(case, "xid")
        if number(line, "xid") in FATAL_XIDS and number(line, "xid") not in (119, 120)
    ]
    for line in lines:
        xid = number(line, "xid") or 0
        yield Finding(
            f"{case.host_name}: GPU {text(line, 'pci') or '?'} reported Xid {xid} ({FATAL_XIDS[xid]}) "
            f"since the boot.",
            {"kernel_log": [text(line, "text")], "xid": xid, "count": number(line, "count")},
            severity=NOTE if case.all_gpus_work else "",
        )


@cause(
    "gpu_application_xid",
    group=GROUP,
    severity=NOTE,
    about="an Xid that ended a program, not the GPU",
)
def gpu_application_xid(case: Case) -> Iterator[Finding]:
    others = [
        line
        for line in _events(case, "xid")
        if number(line, "xid") not in FATAL_XIDS and number(line, "xid") != FELL_OFF_BUS
    ]
    if others:
        kinds = sorted({number(line, "xid") or 0 for line in others})
        yield Finding(
            f"{case.host_name}'s kernel log has Xid {', '.join(map(str, kinds))} since the boot: a "
            f"program's fault.",
            {"kernel_log": [text(line, "text") for line in others[:3]]},
        )


@cause(
    "pcie_link_degraded",
    group=GROUP,
    severity=NOTE,
    about="a GPU's PCIe link is narrower or slower than GPU and slot could do (speed also drops when idle)",
)
def pcie_link_degraded(case: Case) -> Iterator[Finding]:
    for gpu in case.pci_gpus or []:
        link, port = mapping(gpu, "link"), mapping(gpu, "port_link")
        width, best_width = (
            number(link, "width"),
            _least(number(link, "max_width"), number(port, "max_width")),
        )
        speed, best_speed = (
            real(link, "speed_gts"),
            _least(real(link, "max_speed_gts"), real(port, "max_speed_gts")),
        )
        proof = {"pci": text(gpu, "pci"), "link": dict(link), "port_link": dict(port)}
        if width is not None and best_width is not None and width < best_width:
            yield Finding(
                f"GPU {text(gpu, 'pci')} of {case.host_name} runs at PCIe x{width:g}, it and its slot can do "
                f"x{best_width:g}: reseat it. Results will not compare with earlier ones.",
                proof,
            )
        elif speed is not None and best_speed is not None and speed < best_speed:
            yield Finding(
                f"GPU {text(gpu, 'pci')} of {case.host_name} runs at {speed:g} GT/s, it and its slot can do "
                f"{best_speed:g} GT/s; that is normal while it is idle.",
                proof,
            )


def _least(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None
