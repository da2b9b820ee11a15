"""Fetch results from the nodes: one playbook through ansible-runner, one archive a node."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.campaigns import FOLDER_NAME
from collector.errors import FetchError
from collector.formats import one_line, plural, size
from collector.intake import Intake, Listed, known_files, take_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from collector.layout import Layout

# What the operator's shell may say about how nodes are reached. All other ANSIBLE_ settings stay out: when
# the collector is started by a playbook, they are about that run (its callbacks, its check mode, its cache).
PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "VIRTUAL_ENV", "PYTHONUNBUFFERED"),
        *("ANSIBLE_HOME", "ANSIBLE_LOCAL_TEMP", "ANSIBLE_INVENTORY", "ANSIBLE_FORKS", "ANSIBLE_TIMEOUT"),
        *("ANSIBLE_PRIVATE_KEY_FILE", "ANSIBLE_REMOTE_USER", "ANSIBLE_REMOTE_PORT", "ANSIBLE_SSH_ARGS"),
        *("ANSIBLE_SSH_COMMON_ARGS", "ANSIBLE_SSH_EXTRA_ARGS", "ANSIBLE_SSH_CONTROL_PATH_DIR"),
        *("ANSIBLE_SSH_CONTROL_PATH", "ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_VAULT_PASSWORD_FILE"),
        *("ANSIBLE_BECOME", "ANSIBLE_BECOME_METHOD", "ANSIBLE_BECOME_USER"),
    }
)
# What ansible-runner itself needs to see its events.
RUNNER_OWN = frozenset(
    {
        "ANSIBLE_CALLBACK_PLUGINS",
        "ANSIBLE_STDOUT_CALLBACK",
        "ANSIBLE_RETRY_FILES_ENABLED",
        "AWX_ISOLATED_DATA_DIR",
    }
)
PLAYBOOK = "pull.yml"
# How long a cancelled run may take to notice.
POLL_S = 0.5


@dataclass
class NodePull:
    """What came of one node."""

    node: str
    reached: bool = True
    problem: str = ""
    intakes: list[Intake] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.problem and not any(intake.conflicts for intake in self.intakes)


def project_folder() -> Path:
    """Find the checkout that the collector belongs to: its playbooks and its ansible.cfg are used."""
    project = Path(__file__).resolve().parent.parent
    if not (project / "playbooks" / PLAYBOOK).is_file():
        raise FetchError(
            f"{project}: no playbooks/{PLAYBOOK} beside the collector; run it from a checkout of the "
            "project, or take results in with --from DIR"
        )
    return project


def pull(
    layout: Layout,
    *,
    inventories: Sequence[str] = (),
    limit: str = "",
    on_progress: Callable[[str, str], None],
) -> list[NodePull]:
    """Fetch what is new from every node; a node that can't be reached is reported and the rest go on."""
    project = project_folder()
    layout.incoming.mkdir(parents=True, exist_ok=True)
    incoming = Path(tempfile.mkdtemp(dir=layout.incoming))
    # Of its own, readable by this user alone, and gone afterwards: ansible-runner writes the environment
    # and every event there.
    private = Path(tempfile.mkdtemp(prefix="collector-pull-"))
    try:
        _write_known(layout, incoming / "known")
        watch = _Watch(on_progress)
        _run_playbook(project, private, incoming, inventories, limit, watch)
        for archive in sorted(incoming.glob("*.tar")):
            node = watch.node(archive.stem)
            node.intakes = list(_take_archive(layout, node.node, archive, incoming / "files"))
            on_progress(node.node, describe(node))
        return sorted(watch.nodes.values(), key=lambda node: node.node)
    finally:
        shutil.rmtree(private, ignore_errors=True)
        shutil.rmtree(incoming, ignore_errors=True)


def describe(node: NodePull) -> str:
    """What was taken in, in a line."""
    new = sum(intake.new for intake in node.intakes)
    updated = sum(intake.updated for intake in node.intakes)
    same = sum(intake.unchanged for intake in node.intakes)
    if not node.intakes:
        return "no campaigns there"
    campaigns = ", ".join(intake.campaign for intake in node.intakes)
    if not new and not updated:
        return f"{campaigns}: nothing new, {plural(same, 'file')} as before"
    volume = size(sum(intake.new_bytes for intake in node.intakes))
    return f"{campaigns}: {new} new, {updated} updated ({volume}), {same} as before"


class _Watch:
    """Turns the playbook's events into what became of each node."""

    def __init__(self, on_progress: Callable[[str, str], None]) -> None:
        self.on_progress = on_progress
        self.nodes: dict[str, NodePull] = {}
        self.lines: list[str] = []
        self.matched = True

    def node(self, name: str) -> NodePull:
        return self.nodes.setdefault(name, NodePull(name))

    def event(self, event: dict[str, Any]) -> bool:
        """Take one event; False means that ansible-runner need not keep it."""
        kind, data = event.get("event"), event.get("event_data") or {}
        host, result = str(data.get("host")), data.get("res") or {}
        if kind == "playbook_on_no_hosts_matched":
            self.matched = False
        elif kind == "runner_on_ok" and "packed" in result:
            self._packed(host, result)
        elif kind == "runner_on_unreachable":
            self._failed(host, f"not reached: {result.get('msg', '')}").reached = False
        elif kind == "runner_on_failed":
            self._failed(host, str(result.get("msg", "failed without a message")))
        elif kind in {"verbose", "error", "warning"} and event.get("stdout"):
            self.lines.append(str(event["stdout"]))
        return False

    def _packed(self, host: str, result: dict[str, Any]) -> None:
        self.node(host)
        if result["packed"]:
            new, volume = plural(result["packed"], "new file"), size(result["packed_bytes"])
            self.on_progress(host, f"fetching {new} of {result['files']} ({volume})")

    def _failed(self, host: str, problem: str) -> NodePull:
        node = self.node(host)
        node.problem = one_line(problem, 300)
        self.on_progress(host, node.problem)
        return node


def _run_playbook(  # noqa: PLR0913, PLR0917 - all that a run needs
    project: Path,
    private: Path,
    incoming: Path,
    inventories: Sequence[str],
    limit: str,
    watch: _Watch,
) -> None:
    import ansible_runner  # noqa: PLC0415 - a tenth of a second that only a pull needs

    cancelled = threading.Event()
    runner = ansible_runner.interface.init_runner(
        private_data_dir=str(private),
        project_dir=str(project),
        playbook=f"playbooks/{PLAYBOOK}",
        inventory=[str(Path(source).resolve()) if Path(source).exists() else source for source in inventories]
        or None,
        limit=limit or None,
        extravars={"pull_incoming": str(incoming), "pull_known": str(incoming / "known")},
        envvars={"ANSIBLE_CALLBACK_PLUGINS": "", "ANSIBLE_STDOUT_CALLBACK": "", "AWX_LIB_DIRECTORY": ""},
        settings={"pexpect_timeout": POLL_S},
        quiet=True,
        suppress_env_files=True,
        event_handler=watch.event,
        cancel_callback=cancelled.is_set,
    )
    runner.config.env = {
        # ansible-runner would turn host key checking off where nobody asked for it.
        "ANSIBLE_CONFIG": str(project / "ansible.cfg"),
        **{key: value for key, value in runner.config.env.items() if key in PASSED_ON | RUNNER_OWN},
        "ANSIBLE_HOST_KEY_CHECKING": os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "True"),
        "PATH": _path_with_ansible(),
    }
    worker = threading.Thread(target=runner.run, name="ansible-runner")
    worker.start()
    try:
        while worker.is_alive():
            worker.join(POLL_S)
    except BaseException:
        cancelled.set()
        worker.join()
        raise
    if not watch.nodes:
        if not watch.matched:
            wanted = f" and limit {limit}" if limit else ""
            raise FetchError(f"no host of the group 'nodes' in this inventory{wanted}: nothing to pull from")
        said = one_line(" ".join(watch.lines[-8:]), 800) or f"ansible-playbook ended with {runner.rc}"
        raise FetchError(f"the playbook {PLAYBOOK} could not run: {said}")


def _path_with_ansible() -> str:
    """PATH with the ansible-playbook of this Python first, whether or not its venv is active."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    if shutil.which("ansible-playbook", path=path) is None:
        raise FetchError("ansible-playbook is neither beside this Python nor in PATH; install the project")
    return path


def _write_known(layout: Layout, folder: Path) -> None:
    """Tell each node what is here already."""
    folder.mkdir()
    (folder / "nothing.json").write_text("{}")
    if layout.raw.is_dir():
        for node in sorted(path for path in layout.raw.iterdir() if path.is_dir()):
            known = {campaign.name: known_files(campaign) for campaign in sorted(node.iterdir())}
            (folder / f"{node.name}.json").write_text(json.dumps(known))


def _take_archive(layout: Layout, node: str, archive: Path, folder: Path) -> Iterator[Intake]:
    """Unpack under names of our own, and take in campaign by campaign."""
    if not FOLDER_NAME.fullmatch(node):
        raise FetchError(f"the node's name {node!r} can't be a folder's name; rename it in the inventory")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sent: dict[str, Path] = {}
    try:
        with tarfile.open(archive, "r:") as members:
            for number, member in enumerate(members):
                source = members.extractfile(member) if member.isreg() else None
                if source is not None:
                    target = folder / str(number)
                    with target.open("wb") as out:
                        shutil.copyfileobj(source, out)
                    sent[member.name] = target
        manifest = json.loads(sent["manifest.json"].read_bytes())
    except (tarfile.TarError, EOFError, KeyError, ValueError) as exc:
        raise FetchError(f"{node}: the archive that came is not whole ({exc}); pull again") from exc
    for campaign, files in sorted(manifest.items()):
        if FOLDER_NAME.fullmatch(campaign):
            listed = {
                path: Listed(file["size"], file["sha256"], sent.get(f"{campaign}/{path}"))
                for path, file in files.items()
            }
            yield take_in(layout, node, campaign, listed)
