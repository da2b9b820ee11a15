"""One container as its host sees it: config text, state, lock, HA, live limits; read with `pct` and files.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bundle import node_program
from .reading import age_s

if TYPE_CHECKING:
    from .reading import Reader

NO_SUCH_CONTAINER = re.compile(r"does not exist")


def container_facts(  # noqa: PLR0913 - where things are, by name
    reader: Reader, vmid: int, *, conf_dir: str, pct: str, ha_file: str, cgroup_root: str
) -> dict[str, Any]:
    path = f"{conf_dir}/{vmid}.conf"
    facts: dict[str, Any] = {"vmid": vmid, "config_path": path}
    raw, facts["config_exists"] = read_config(reader, path)
    facts["config_text"] = raw.decode("utf-8", "replace") if raw is not None else None
    facts["config_digest"] = hashlib.sha1(raw).hexdigest() if raw is not None else None  # noqa: S324 - Proxmox's
    if facts["config_exists"] is False:
        facts["elsewhere"] = on_other_hosts(vmid, conf_dir)
    facts["status"] = container_status(reader, vmid, pct)
    facts["ha_managed"] = ha_managed(reader, vmid, ha_file)
    facts["live"] = live_limits(reader, vmid, cgroup_root)
    return facts


def read_config(reader: Reader, path: str) -> tuple[bytes | None, bool | None]:
    """The file's bytes, and whether it exists: None where only root may know.

    Pmxcfs may answer ENOENT for an instant while a file is renamed over: look twice.
    """
    for wait_s in (0.0, 0.1, 0.3):
        time.sleep(wait_s)
        try:
            with Path(path).open("rb") as stream:
                return stream.read(1 << 20), True
        except FileNotFoundError:
            continue
        except OSError as exc:
            reader.missed(path, str(exc.strerror))
            return None, None
    return None, False


def on_other_hosts(vmid: int, conf_dir: str) -> list[str]:
    """Cluster members that own this container: /etc/pve/nodes/<name>/lxc/<vmid>.conf."""
    return sorted(path.parts[-3] for path in Path(conf_dir).parent.glob(f"nodes/*/lxc/{vmid}.conf"))


def container_status(reader: Reader, vmid: int, pct: str) -> dict[str, Any]:
    """What `pct status` prints. Its exit code says nothing reliable, so the printed state decides."""
    answer = reader.command([pct, "status", str(vmid), "--verbose"])
    values = {}
    for line in answer["stdout"].splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() and " " not in key.strip():
            values[key.strip()] = value.strip()
    status: dict[str, Any] = {"state": values.get("status"), "lock": values.get("lock") or None}
    if status["state"] is None:
        status["error"] = answer["why"] or (answer["stderr"] or answer["stdout"]).strip()[:300] or "no answer"
        status["exists"] = False if NO_SUCH_CONTAINER.search(status["error"]) else None
        reader.missed(f"pct status {vmid}", status["error"])
    if values.get("uptime", "").isdigit():
        status["uptime"] = int(values["uptime"])
    elif values.get("pid", "").isdigit():
        status["uptime"] = age_s(reader, int(values["pid"]))
    return status


def ha_managed(reader: Reader, vmid: int, ha_file: str) -> bool | None:
    """Whether the HA manager has the last word about this container's state."""
    if not Path(ha_file).parent.is_dir():
        return False
    text = reader.text(ha_file, optional=True)
    return bool(text and re.search(rf"^ct:\s*{vmid}\s*$", text, re.MULTILINE))


def live_limits(reader: Reader, vmid: int, cgroup_root: str) -> dict[str, Any]:
    """The limits in force now, which may differ from the file's."""
    for name in (f"lxc/{vmid}", f"lxc.payload.{vmid}"):
        folder = f"{cgroup_root}/{name}"
        if not Path(folder).is_dir():
            continue
        cpus = reader.text(f"{folder}/cpuset.cpus.effective", optional=True)
        return {
            "cgroup": folder,
            "memory_max_bytes": reader.number(f"{folder}/memory.max", optional=True),
            "memory_bytes": reader.number(f"{folder}/memory.current", optional=True),
            "cpuset": cpus.strip() if cpus else None,
        }
    return {}


def start_log(reader: Reader, vmid: int) -> list[str]:
    """What came of the last start of this boot, in LXC's and Proxmox's own words."""
    answer = reader.command(
        [
            "journalctl",
            "-b",
            "-q",
            "--no-pager",
            "-o",
            "cat",
            "-n",
            "15",
            "-u",
            f"pve-container@{vmid}.service",
        ]
    )
    lines = [line[:300] for line in answer["stdout"].splitlines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(("Starting ", "Started "))]
    return lines[starts[-1] :] if starts else lines


def guests_still_starting(reader: Reader) -> bool | None:
    """Whether the host is still going through its onboot containers."""
    answer = reader.command(["systemctl", "show", "-P", "ActiveState", "pve-guests.service"])
    state = answer["stdout"].strip()
    return state in ("activating", "reloading") if state else None


def probe_through_host(
    reader: Reader, vmid: int, *, pct: str, asked: dict[str, Any], limit_s: float
) -> dict[str, Any] | None:
    """The node's evidence through `pct exec`; None when that does not work either."""
    answer = reader.command(
        [pct, "exec", str(vmid), "--", "python3", "-"], stdin=node_program(asked), limit_s=limit_s
    )
    for line in reversed(answer["stdout"].splitlines()):
        if line.startswith("{"):
            try:
                evidence: dict[str, Any] = json.loads(line)
            except ValueError:
                break
            return evidence
    why = answer["why"] or answer["stderr"].strip()[-300:] or "no answer"
    reader.missed(f"pct exec {vmid} -- python3", why)
    return None
