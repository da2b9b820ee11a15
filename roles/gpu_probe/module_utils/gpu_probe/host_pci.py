"""The host's GPUs on PCI, from sysfs: bound driver, link width and speed, and what the slot could do.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from .reading import Reader

NVIDIA = "0x10de"
DISPLAY_CLASS = "0x03"


def gpu_inventory(reader: Reader, root: str) -> Optional[list[dict[str, Any]]]:
    """Every NVIDIA display device; None where PCI can't be seen at all."""
    if not os.path.isdir(root):
        reader.missed(root, "no such folder")
        return None
    found = []
    for address in reader.names(root):
        folder = os.path.join(root, address)
        if _word(reader, folder, "vendor") != NVIDIA:
            continue
        if not (_word(reader, folder, "class") or "").startswith(DISPLAY_CLASS):
            continue
        found.append(_gpu(reader, address, folder))
    return found


def _gpu(reader: Reader, address: str, folder: str) -> dict[str, Any]:
    driver = os.path.join(folder, "driver")
    # Beside the GPU's own capability, the port above it: a x16 card in a x8 slot isn't degraded.
    port = os.path.dirname(os.path.realpath(folder))
    gpu: dict[str, Any] = {
        "pci": address,
        "device": _word(reader, folder, "device"),
        "driver": os.path.basename(os.path.realpath(driver)) if os.path.islink(driver) else None,
        "numa_node": reader.number(os.path.join(folder, "numa_node"), optional=True),
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


def _word(reader: Reader, folder: str, name: str) -> Optional[str]:
    text = reader.text(os.path.join(folder, name), optional=True)
    return text.strip() if text is not None else None


def _width(reader: Reader, folder: str, name: str) -> Optional[int]:
    """0 and 255 are how the kernel says that it does not know."""
    text = _word(reader, folder, name)
    return int(text) if text and text.isdigit() and 0 < int(text) < 255 else None


def _speed(reader: Reader, folder: str, name: str) -> Optional[float]:
    """'16.0 GT/s PCIe' → 16.0; 'Unknown' → None."""
    words = (_word(reader, folder, name) or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None
