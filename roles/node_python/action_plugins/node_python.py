"""Compare a node's venv in one call; only when it differs, fetch wheels here, push them and install."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

WHEELHOUSE = Path(__file__).resolve().parents[1] / "files" / "wheelhouse.py"
SKIPPED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
FIXED_TIME = 1_600_000_000  # in the archive of sources: the same files make the same archive


class ActionModule(ActionBase):  # type: ignore[misc,unused-ignore] # Ansible ships no types
    """The controller's part of `node_python`."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _, wanted = self.validate_argument_spec(
            {
                "name": {"type": "str", "required": True},
                "venv": {"type": "str", "required": True},
                "requirements": {"type": "str", "required": True},
                "packages_src": {"type": "list", "elements": "str", "default": []},
                "cache": {"type": "str", "required": True},
                "interpreter": {"type": "str", "default": ""},
            }
        )
        requirements = Path(wanted["requirements"])
        files = package_files([Path(folder) for folder in wanted["packages_src"]])
        question = {
            "venv": wanted["venv"],
            "interpreter": wanted["interpreter"],
            "requirements_digest": requirements_digest(requirements),
            "packages_digest": packages_digest(files),
        }
        state = self._ask(question, task_vars)
        if state.get("failed"):
            return state
        faults = state["environment_faults"] or state["source_faults"]
        before = [str(pin) for pin in state["pins"]]
        seconds = 0.0
        if faults and not self._task.check_mode:
            started = time.monotonic()
            state = self._install(question, state, files, wanted, task_vars)
            seconds = time.monotonic() - started
            if state.get("failed"):
                return state
        left = state["environment_faults"] or state["source_faults"]
        after = pins_of(requirements)
        return {
            "changed": bool(faults),
            "faults": left,
            "python": state["python"],
            "summary": summary(
                wanted["name"],
                f"{len(after)} packages for Python {state['python']['python']}",
                faults,
                left,
                seconds,
            ),
            "diff": {
                "before": lines(before),
                "after": lines(after),
                "before_header": wanted["venv"],
                "after_header": wanted["venv"],
            },
        }

    def _ask(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module_name="node_python", module_args=arguments, task_vars=task_vars
        )
        return answer

    def _install(
        self,
        question: dict[str, Any],
        state: dict[str, Any],
        files: list[tuple[str, Path]],
        wanted: dict[str, Any],
        task_vars: dict[str, Any],
    ) -> dict[str, Any]:
        """Bring the archives that are needed and let the module install them."""
        arguments: dict[str, Any] = {**question, "apply": True}
        shell = self._connection._shell  # noqa: SLF001 - the only place where Ansible keeps the remote folder
        if shell.tmpdir is None:
            self._make_tmp_path()  # Ansible removes it after the task
        if state["environment_faults"]:
            house = build_wheelhouse(wanted["requirements"], state["python"], wanted["cache"])
            path = self._transfer_file(house["archive"], shell.join_path(shell.tmpdir, "wheelhouse.tar"))
            arguments["wheelhouse"] = {"path": path, "sha256": house["sha256"]}
        if files:
            with tempfile.NamedTemporaryFile(prefix="node-python-", suffix=".tar") as archive:
                archive.write(pack(files))
                archive.flush()
                path = self._transfer_file(archive.name, shell.join_path(shell.tmpdir, "sources.tar"))
                arguments["sources"] = {"path": path, "sha256": file_sha256(Path(archive.name))}
        pushed = [arguments[key]["path"] for key in ("wheelhouse", "sources") if key in arguments]
        self._fixup_perms2([shell.tmpdir, *pushed])
        return self._ask(arguments, task_vars)


def package_files(folders: list[Path]) -> list[tuple[str, Path]]:
    """Every file of the packages, by its path below the folder that holds the package."""
    found: list[tuple[str, Path]] = []
    for folder in folders:
        if not (folder / "__init__.py").is_file():
            raise AnsibleActionFail(
                f"node_python_packages_src: {folder} is no Python package (no __init__.py there)"
            )
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder.parent)
            if path.is_file() and not SKIPPED.intersection(inside.parts) and path.suffix != ".pyc":
                found.append((inside.as_posix(), path))
    return found


def packages_digest(files: list[tuple[str, Path]]) -> str:
    if not files:
        return ""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def pins_of(requirements: Path) -> list[str]:
    """The lines that name packages, in order, without comments and pip's options."""
    try:
        text = requirements.read_text(encoding="utf-8")
    except OSError as exc:
        raise AnsibleActionFail(
            f"node_python_requirements: {requirements} can't be read: {exc.strerror}"
        ) from exc
    found = (
        line.split(" #", 1)[0].split(" --hash", 1)[0].strip()
        for line in text.replace("\\\n", " ").splitlines()
    )
    return sorted(line for line in found if line and not line.startswith(("#", "-")))


def requirements_digest(requirements: Path) -> str:
    return hashlib.sha256("\n".join(pins_of(requirements)).encode()).hexdigest()


def pack(files: list[tuple[str, Path]]) -> bytes:
    """The packages as a tar archive that depends on nothing but names and contents."""
    room = io.BytesIO()
    with tarfile.open(fileobj=room, mode="w") as archive:
        for name, path in files:
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            member.mtime = FIXED_TIME
            member.mode = 0o644
            with path.open("rb") as stream:
                archive.addfile(member, stream)
    return room.getvalue()


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_wheelhouse(requirements: str, python: dict[str, Any], cache: str) -> dict[str, Any]:
    """Run the wheelhouse program; its message becomes the task's."""
    command = [sys.executable, str(WHEELHOUSE), "--requirements", requirements, "--cache", cache]
    command += ["--python", python["python"], "--machine", python["machine"], "--glibc", python["glibc"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as exc:
        raise AnsibleActionFail(f"the wheelhouse could not be built: {done.stderr.strip()[-400:]}") from exc
    if "error" in answer:
        raise AnsibleActionFail(answer["error"])
    return answer


def summary(name: str, what: str, faults: list[str], left: list[str], seconds: float) -> str:
    """One line in an operator's words: what was found and done."""
    what = what.replace("1 packages ", "1 package ") if what.startswith("1 ") else what
    if not faults:
        return f"{name}: {what}, already installed"
    if left:
        return f"{name}: would install {what} ({'; '.join(faults)})"
    return f"{name}: {what}, installed in {seconds:.1f} s ({'; '.join(faults)})"


def lines(items: list[str]) -> str:
    return "".join(f"{item}\n" for item in sorted(items))
