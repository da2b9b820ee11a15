"""A node for the control program; systemctl, journalctl and dmesg are stand-ins with a state file."""

import json
import socket
import sys
import threading
from pathlib import Path

SYSTEMCTL = f"""#!{sys.executable}
import json, pathlib, sys, time
here = pathlib.Path(sys.argv[0]).parent
state = json.loads((here / "state.json").read_text())
with (here / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
words = [word for word in sys.argv[1:] if not word.startswith("--")]
verb, unit = words[0], words[1]
known_units = [name for name in state["units"] if name.startswith("model-stage-switch@")]
known = {{}} if verb == "list-units" else state["units"].setdefault(unit, {{"ActiveState": "inactive"}})
if verb == "show":
    asked = next(word for word in sys.argv if word.startswith("--property=")).partition("=")[2].split(",")
    print("\\n".join(f"{{name}}={{known[name]}}" for name in asked if name in known))
elif verb == "start":
    if "refuses" in state:
        known.update(state["refuses"])
        print("Job failed. See journalctl.", file=sys.stderr)
    else:
        known.update(ActiveState="active", SubState="running", MainPID="42", InvocationID="abc")
elif verb == "list-units":
    for name in known_units:
        print(name, "loaded", state["units"][name]["ActiveState"], "start", "Make the models be there")
elif verb == "stop":
    time.sleep(state.get("stop_s", 0))
    known.update(ActiveState="inactive", SubState="dead", MainPID="0")
(here / "state.json").write_text(json.dumps(state))
sys.exit(1 if verb == "start" and "refuses" in state else 0)
"""
JOURNALCTL = f"""#!{sys.executable}
import pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
name = "journal.json" if "--output=json" in sys.argv else "journal"
path = here / name
if "--output=json" in sys.argv and sys.argv[-1] == "--lines=1":
    print('{{"_BOOT_ID": "this boot", "MESSAGE": "of whatever unit"}}')
else:
    sys.stdout.buffer.write(path.read_bytes() if path.exists() else b"-- No entries --\\n")
"""
DMESG = f"""#!{sys.executable}
import pathlib, sys
path = pathlib.Path(sys.argv[0]).parent / "dmesg.out"
if not path.exists():
    sys.exit("dmesg: read kernel buffer failed: Operation not permitted")
sys.stdout.write(path.read_text())
"""


class Machine:
    def __init__(self, control, folder: Path) -> None:
        self.control = control
        self.folder = folder
        (folder / "bin").mkdir()
        for name, program in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL), ("dmesg", DMESG)):
            path = folder / "bin" / name
            path.write_text(program)
            path.chmod(0o755)
        (folder / "descriptions").mkdir()
        for name in ("tp1-auto", "tp1-ngram"):
            self.describe(name)
        (folder / "cgroup/system.slice/inference-tp1-auto.service/worker").mkdir(parents=True)
        (folder / "cgroup/cgroup.procs").write_text("")
        self.system = control.System(
            folder / "descriptions",
            folder / "cgroup",
            f"{folder}/bin/",
            switch_plan=folder / "plan.json",
            switch_state=folder / "switch.json",
        )
        self.write({"units": {}})

    def describe(self, name: str, **more) -> None:
        description = {"configuration": name, "unit": f"inference-{name}.service", **more}
        (self.folder / f"descriptions/{name}.json").write_text(json.dumps(description))

    def write(self, state) -> None:
        (self.folder / "bin/state.json").write_text(json.dumps(state))

    @property
    def calls(self) -> list[str]:
        path = self.folder / "bin/calls"
        return path.read_text().splitlines() if path.exists() else []

    def run_unit(self, name: str, **properties) -> None:
        known = {
            "ActiveState": "active",
            "SubState": "running",
            "Result": "success",
            "MainPID": "42",
            "InvocationID": "abc",
            "NRestarts": "0",
            "TimeoutStopUSec": "1s",
            "ExecMainCode": "0",
            "ExecMainStatus": "0",
            "ExecMainStartTimestampMonotonic": "5000000",
            "ControlGroup": f"/system.slice/inference-{name}.service",
        }
        self.write({"units": {f"inference-{name}.service": known | properties}})

    def processes(self, *pids: int) -> None:
        path = self.folder / "cgroup/system.slice/inference-tp1-auto.service/worker/cgroup.procs"
        path.write_text("".join(f"{pid}\n" for pid in pids))

    def ask(self, request, limit_s: float = 5.0) -> dict:
        """One request through a socket pair, as systemd hands it over."""
        line = request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with here, there:
            server = threading.Thread(target=self.control.handle, args=(there, self.system, limit_s))
            server.start()
            here.sendall(line)
            received = b""
            while not received.endswith(b"\n"):
                received += here.recv(1 << 20)
            server.join()
        assert received.count(b"\n") == 1
        return json.loads(received)
