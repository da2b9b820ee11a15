"""The host's GPUs on PCI, from sysfs: bound driver, link width and speed, and what the slot could do.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reading import Reader

NVIDIA = "0x10de"
DISPLAY_CLASS = "0x03"
UNKNOWN_WIDTH = 255


def gpu_inventory(reader: Reader, root: str) -> list[dict[str, Any]] | None:
    """Every NVIDIA display device; None where PCI can't be seen at all."""
    if not Path(root).is_dir():
        reader.missed(root, "no such folder")
        return None
    found = []
    for address in reader.names(root):
        folder = f"{root}/{address}"
        if _word(reader, folder, "vendor") != NVIDIA:
            continue
        if not (_word(reader, folder, "class") or "").startswith(DISPLAY_CLASS):
            continue
        found.append(_gpu(reader, address, folder))
    return found


def _gpu(reader: Reader, address: str, folder: str) -> dict[str, Any]:
    driver = Path(folder, "driver")
    # Beside the GPU's own capability, the port above it: a x16 card in a x8 slot isn't degraded.
    port = str(Path(folder).resolve().parent)
    gpu: dict[str, Any] = {
        "pci": address,
        "device": _word(reader, folder, "device"),
        "driver": driver.resolve().name if driver.is_symlink() else None,
        "numa_node": reader.number(f"{folder}/numa_node", optional=True),
        "link": _link(reader, folder),
    }
    port_link = _link(reader, port)
    if port_link["max_width"] is not None:
        gpu["port_link"] = port_link
    return gpu


def _link(reader: Reader, folder: str) -> dict[str, Any]:
    return {
        "width": _width(reader, folder, "current_link_width"),
        "max_width": _width(reader, folder, "max_link_width"),
        "speed_gts": _speed(reader, folder, "current_link_speed"),
        "max_speed_gts": _speed(reader, folder, "max_link_speed"),
    }


def _word(reader: Reader, folder: str, name: str) -> str | None:
    text = reader.text(f"{folder}/{name}", optional=True)
    return text.strip() if text is not None else None


def _width(reader: Reader, folder: str, name: str) -> int | None:
    """0 and 255 are how the kernel says that it does not know."""
    text = _word(reader, folder, name)
    return int(text) if text and text.isdigit() and 0 < int(text) < UNKNOWN_WIDTH else None


def _speed(reader: Reader, folder: str, name: str) -> float | None:
    """'16.0 GT/s PCIe' → 16.0; 'Unknown' → None."""
    words = (_word(reader, folder, name) or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None
