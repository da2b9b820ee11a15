"""The kernel's own lines about GPUs since boot, bounded: Xid, GSP, nouveau, Secure Boot.

Runs on hosts: standard library and Python 3.9 only. The reading of a line is pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reading import Reader

MOST_LINES = 60
# The log of a long uptime can be huge, so journalctl itself looks for lines that may matter.
JOURNAL = ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", "5000"]
JOURNAL += ["-g", "NVRM|nvidia|nouveau|odule|Lockdown|PKCS|gsp_"]
XID = re.compile(r"NVRM: (?:GPU at PCI:.*)?Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
KINDS = (
    ("fell_off_bus", re.compile(r"GPU.*has fallen off the bus", re.IGNORECASE)),
    (
        "gsp",
        re.compile(
            r"NVRM:.*(GSP.*(fail|timeout|firmware|error)|RmInitAdapter failed)|gsp_.*\.bin.*fail",
            re.IGNORECASE,
        ),
    ),
    (
        "unfit",
        re.compile(
            r"nvidia\S*: (Unknown symbol|version magic|disagrees about version of symbol)", re.IGNORECASE
        ),
    ),
    (
        "refused",
        re.compile(
            r"Loading of (unsigned )?module is (rejected|restricted)|Loading of unsigned module"
            r"|Lockdown:.*unsigned module|Key was rejected by service"
            r"|PKCS#7 signature not signed with a trusted key",
            re.IGNORECASE,
        ),
    ),
    ("nouveau", re.compile(r"nouveau [0-9a-f:.]+:|NVRM:.*nouveau", re.IGNORECASE)),
    ("no_gpu", re.compile(r"NVRM: No NVIDIA (GPU|graphics adapter|devices)", re.IGNORECASE)),
    ("mismatch", re.compile(r"NVRM: API mismatch", re.IGNORECASE)),
    ("nvrm", re.compile(r"NVRM:.*(fail|error|not supported|conflict)", re.IGNORECASE)),
)


def kernel_log(reader: Reader) -> dict[str, Any] | None:
    """The lines that matter, newest last; None where the log can't be read."""
    for argv in (JOURNAL, ["dmesg"]):
        answer = reader.command(argv)
        # journalctl says 1 when no line matches.
        nothing_found = argv is JOURNAL and answer["rc"] == 1 and not answer["stdout"] + answer["stderr"]
        if answer["rc"] == 0 or nothing_found:
            lines = interesting(answer["stdout"])
            return {
                "source": argv[0],
                "lines": lines[-MOST_LINES:],
                "left_out": max(0, len(lines) - MOST_LINES),
            }
        last = answer["why"] or answer["stderr"].strip() or "no lines"
    reader.missed("kernel log", last)
    return None


def interesting(text: str) -> list[dict[str, Any]]:
    """Each line with a meaning for GPUs; repeats of one Xid on one GPU are counted, not listed."""
    found: list[dict[str, Any]] = []
    seen: dict[tuple[str, str, int], dict[str, Any]] = {}
    for line in text.splitlines():
        event = read_line(line)
        if event is None:
            continue
        key = (event["kind"], event.get("pci", ""), event.get("xid", 0))
        if event["kind"] in ("xid", "nouveau", "nvrm") and key in seen:
            seen[key]["count"] += 1
            continue
        seen[key] = event
        found.append(event)
    return found


def read_line(line: str) -> dict[str, Any] | None:
    xid = XID.search(line)
    text = line.strip()[:300]
    if xid:
        return {
            "kind": "xid",
            "xid": int(xid.group(2)),
            "pci": pci_address(xid.group(1)),
            "text": text,
            "count": 1,
        }
    for kind, pattern in KINDS:
        if pattern.search(line):
            return {"kind": kind, "text": text, "count": 1}
    return None


def pci_address(text: str) -> str:
    """Xid lines leave out the function, and some write the domain with eight digits."""
    address = text.lower()
    domain, _, rest = address.partition(":")
    if ":" in rest:
        address = domain[-4:] + ":" + rest
    return address if "." in address else address + ".0"
