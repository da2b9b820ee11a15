"""Ask a Python interpreter what wheels it can use, and whether it can make a venv."""

from __future__ import annotations

import json
from typing import Any

QUESTION = """
import importlib.util, json, os, platform, sys, sysconfig
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (ValueError, OSError):
    libc = ""
print(json.dumps({
    "python": "%d.%d" % sys.version_info[:2],
    "implementation": sys.implementation.name,
    "machine": platform.machine(),
    "glibc": libc.split()[-1] if libc.startswith("glibc") else "",
    "executable": os.path.realpath(sys.executable),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "can_venv": importlib.util.find_spec("venv") is not None,
}))
"""


def read_answer(path: str, rc: int, out: str, err: str) -> dict[str, Any]:
    """The facts that the interpreter printed; raises ValueError with a sentence when it did not."""
    if rc != 0:
        raise ValueError(f"{path} does not run: {(err or out).strip()[-300:] or f'exit code {rc}'}")
    try:
        facts: dict[str, Any] = json.loads(out)
    except ValueError as exc:
        raise ValueError(f"{path} did not answer as Python does: {out.strip()[:200]}") from exc
    if facts["implementation"] != "cpython" or facts["free_threaded"]:
        kind = "free-threaded CPython" if facts["free_threaded"] else facts["implementation"]
        raise ValueError(
            f"{path} is {kind}; wheels are fetched for plain CPython: set node_python_interpreter"
        )
    if not facts["can_venv"]:
        raise ValueError(
            f"{path} (Python {facts['python']}) has no venv module: install it "
            "(Debian: apt install python3-venv) or name another Python with node_python_interpreter"
        )
    return facts
