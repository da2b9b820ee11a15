"""Giving published models to other nodes: what there is to give, and the unit that does it."""

import subprocess
import sys

import pytest
from model_stager.serve import ModelServer

from .conftest import ROLE, Cache
from .playing import load, model

from ansible.module_utils.model_stage import others, serving  # isort: skip - the path is set by `playing`


@pytest.fixture
def staged(play, cache):
    play([model("tiny", cache, revision="main")])


def run(argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def test_a_node_says_what_it_could_give(staged, root):
    def ask(names):
        return serving.holdings(run, str(root), names, sys.executable, str(ROLE / "files"))

    (offer,) = ask(["tiny", "other"])
    need = others.need(model("tiny", Cache(root)), "it is gone")
    (root / "tiny/config.json").write_text("{}")

    assert offer["name"] == "tiny"
    assert load(ROLE / "filter_plugins/model_stage.py").rounds.same(need, offer)
    assert ask(["tiny"]) == [], "what was touched is not whole"


class Systemd:
    """systemctl and systemd-run on a node: what they were asked, and a unit that is up or not."""

    def __init__(self, *, up="", invocation="i1"):
        self.up, self.invocation, self.asked = up, invocation, []

    def __call__(self, argv, **_):
        self.asked.append(argv)
        if argv[:2] == ["systemctl", "show"]:
            state = "active" if self.up else "inactive"
            return 0, f"ActiveState={state}\nInvocationID={self.invocation}\nDescription={self.up}\n", ""
        if argv[0] == "systemd-run":
            self.up = next(word for word in argv if word.startswith("--description="))[14:]
        if argv[:2] == ["systemctl", "stop"]:
            self.up = ""
        return 0, "the port is taken\n" if argv[0] == "journalctl" else "", ""

    def did(self, verb):
        return any(verb in argv[:2] for argv in self.asked)


@pytest.fixture
def port():
    """Where something listens."""
    with ModelServer(ROLE, "127.0.0.1:0", []) as server:
        yield server.server_address[1]


def server(port, *allow):
    return serving.Server("/dev/shm", "127.0.0.1", port, allow or ("10.0.0.2",), "model-stager", 60)


def test_the_server_is_a_unit_that_may_nothing_and_ends_by_itself(port):
    systemd = Systemd()

    assert serving.start(systemd, server(port), "python3", "/opt/x") == "i1"

    (argv,) = (argv for argv in systemd.asked if argv[0] == "systemd-run")
    assert {
        "--unit=model-serve.service",
        "--property=User=model-stager",
        "--property=RuntimeMaxSec=60",
        "--property=CapabilityBoundingSet=",
        "--property=ProtectSystem=strict",
    } <= set(argv)
    assert not [word for word in argv if word.startswith(("--property=Ambient", "--property=ReadWrite"))]
    assert argv[argv.index("serve") :] == [
        "serve", "--root", "/dev/shm", "--listen", f"127.0.0.1:{port}", "--allow", "10.0.0.2",
    ]  # fmt: skip


def test_a_server_for_the_same_nodes_is_kept_and_another_replaced(port):
    """A copy that a lost run has left at work goes on."""
    same, other = Systemd(up=server(port).description), Systemd(up=server(port, "10.0.0.9").description)

    serving.start(same, server(port), "python3", "/opt/x")
    serving.start(other, server(port), "python3", "/opt/x")

    assert not same.did("systemd-run")
    assert not same.did("stop")
    assert other.did("stop")
    assert other.did("systemd-run")


def test_a_server_that_does_not_come_up_says_why():
    class Dead(Systemd):
        def __call__(self, argv, **options):
            answer = super().__call__(argv, **options)
            self.up = ""
            return answer

    with pytest.raises(serving.ServeError, match=r"at http://127\.0\.0\.1:1: the port is taken"):
        serving.start(Dead(), server(1), "python3", "/opt/x")


def test_another_runs_server_is_left_alone():
    ours, theirs = Systemd(up="x"), Systemd(up="x", invocation="i2")

    assert serving.stop(ours, "i1")
    assert not serving.stop(theirs, "i1")
    assert ours.did("stop")
    assert not theirs.did("stop")
