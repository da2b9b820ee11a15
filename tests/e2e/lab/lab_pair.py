"""Two nodes of a lab, and the playbook that stages."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab_room import Room

ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
PORT = 8790


class Pair:
    """ct200 and ct201, and the playbook that stages."""

    def __init__(self, room: Room, results: Path) -> None:
        self.room = room
        self.on = room.on
        settings = "env LC_ALL=C.UTF-8 NO_COLOR=1 RECOVERY_REPORT="
        self.command = f"{settings} {ANSIBLE} -i inventory/lab playbooks/stage.yml -e results_dir={results}"

    def stage(self, arguments: str = "", *, status: int = 0) -> str:
        """What it said, as one line."""
        return " ".join(self.room(f"{self.command} {arguments} 2>&1", status=status).split())

    def forget(self, node: str, *, cache: bool) -> None:
        """As after a reboot; and the disk's copy gone too."""
        self.on(node, "rm -rf /dev/shm/* /dev/shm/.model-stage")
        if cache:
            self.on(node, "rm -rf /var/lib/models/hub/*")

    def sums(self) -> list[str]:
        return [self.on(node, "sha256sum /dev/shm/*/*.gguf").split()[0] for node in ("ct200", "ct201")]

    def serves(self, node: str) -> bool:
        said = self.on(node, f"systemctl is-active model-serve || true; ss -Hltn 'sport = :{PORT}'")
        return said != "inactive"

    def wait_for_bytes(self, *, model: str = "tiny-qwen2", at_least: int = 1) -> None:
        """Until the copy has so many bytes, and not all."""
        deadline = time.monotonic() + 60
        while True:
            text = self.on("ct201", f"cat /dev/shm/.model-stage/{model}/progress.json 2>/dev/null || true")
            now = json.loads(text or "{}")
            if at_least <= now.get("bytes", 0) < now.get("total_bytes", 0):
                return
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
