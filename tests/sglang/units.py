"""What systemd does with a unit's file, as far as a test needs it: command, environment, credentials."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Unit:
    """A rendered unit."""

    command: list[str]
    environment: dict[str, str]
    credentials: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Unit:
        text = path.read_text().replace("\\\n", " ")
        given = [line.partition("=") for line in text.splitlines() if "=" in line and line[0] != "#"]

        def words(key: str) -> list[str]:
            # Inside quotes shlex and systemd agree on what the role writes.
            return [word for name, _, value in given if name == key for word in shlex.split(value)]

        return cls(
            command=[word.replace("%%", "%").replace("$$", "$") for word in words("ExecStart")],
            environment=dict(word.split("=", 1) for word in words("Environment")),
            credentials=dict(word.split(":", 1) for word in words("LoadCredential")),
        )

    def start_command(self, home: Path) -> list[str]:
        """A command that runs the unit's with its environment and credentials, in `home`."""
        loaded = home / "credentials"
        loaded.mkdir(parents=True, exist_ok=True)
        for name, path in self.credentials.items():
            shutil.copyfile(path, loaded / name)
        places = {"%S": str(home), "%C": str(home)}
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "CREDENTIALS_DIRECTORY": str(loaded)}
        for name, value in self.environment.items():
            for place, folder in places.items():
                value = value.replace(place, folder)  # noqa: PLW2901 - one place after the other
            variables[name] = value
        assigned = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "-i", f"--chdir={home}", *assigned, *self.command]
