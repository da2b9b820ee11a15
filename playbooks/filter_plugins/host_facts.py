"""What a diagnosis and the GPUs' settings say about the place where a benchmark runs."""

from __future__ import annotations

from typing import Any

Mapping = dict[str, Any]


def host_facts(diagnosis: Mapping, gpu_state: Mapping | None = None) -> Mapping:
    """The facts that go into the fingerprint of each cell (roles/bench_run, `bench_run_host_facts`).

    `gpu_state` is the role's `gpu_state_recorded`: UUID -> settings. What nobody could see is None.
    """
    host, node = diagnosis.get("host_evidence") or {}, diagnosis.get("node_evidence") or {}
    cuda = node.get("cuda") or {}
    devices = cuda.get("devices") or []
    container = (host.get("containers") or {}).get(str(diagnosis.get("vmid"))) or {}
    settings = gpu_state or {}
    limits = [settings.get(device.get("uuid"), {}).get("power_limit_w") for device in devices]
    models = sorted({device["name"] for device in devices if device.get("name")})
    version = cuda.get("cuda_version")
    gpus = host.get("gpus") or []
    return {
        "gpu_model": " + ".join(models) or None,
        "gpu_count": cuda.get("device_count"),
        "gpu_uuids": [device.get("uuid") for device in devices] or None,
        "driver_version": (host.get("driver") or {}).get("version"),
        # The driver says 13000 for CUDA 13.0.
        "cuda_version": f"{version // 1000}.{version % 1000 // 10}" if version else None,
        "kernel": host.get("kernel"),
        "power_limit_w": limits if any(limit is not None for limit in limits) else None,
        "pcie_links": [_link(gpu.get("link") or {}) for gpu in gpus] or None,
        "numa": [gpu.get("numa_node") for gpu in gpus] or None,
        "pve_version": (host.get("pve_version") or {}).get("text"),
        "container_config_digest": container.get("config_digest"),
        "container_cpuset": (container.get("live") or {}).get("cpuset"),
        "device_majors": {
            name: major for major, name in host.get("proc_devices") or [] if name.startswith("nvidia")
        },
        "gpu_settings": settings or None,
    }


def _link(link: Mapping) -> str | None:
    """`x16 32.0 GT/s`: the width and speed the link runs at."""
    if link.get("width") is None or link.get("speed_gts") is None:
        return None
    return f"x{link['width']} {link['speed_gts']} GT/s"


class FilterModule:
    """Ansible's way of finding filters."""

    def filters(self) -> dict[str, Any]:
        return {"host_facts": host_facts}
