"""Engines of a node: a template with the node's own settings put over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .credentials import SHOWN, declared_credentials, handing_over, shown_secret
from .names import Names
from .spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .flags import FlagValue


@dataclass(frozen=True)
class Engine:
    """An engine of this node: its template with the node's own settings put over it."""

    name: str
    template: str
    adapter: str
    command: tuple[str, ...]
    fill: Mapping[str, str | None]
    scale: str | None
    model_is_file: bool
    needs: tuple[str, ...]
    names: Names
    flags: Mapping[str, FlagValue]
    environment: Mapping[str, str]
    gpu: bool
    launcher: str | None = None
    launcher_path: str | None = None
    version_argv: tuple[str, ...] = ()
    package: str | None = None
    requirements: str | None = None
    venv: str | None = None
    # Secret -> its file on the node, and the words between program and arguments that hand them over.
    credentials: Mapping[str, str] = field(default_factory=dict)
    credential_words: tuple[str, ...] = ()
    secret_flags: tuple[str, ...] = ()

    @property
    def served_command(self) -> tuple[str, ...]:
        """The command as the unit runs it; without secrets, as anybody may."""
        return (self.command[0], *self.credential_words, *self.command[1:])


def engine_from(
    name: str, declared: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]], program_dir: str
) -> Engine:
    """Put an engine's settings over its template; ValueError names what is wrong."""
    where = f"engine {name}"
    known = (
        *("template", "command", "venv", "requirements", "environment", "aliases", "flags", "gpu"),
        "credentials",
    )
    for key in declared:
        if key not in known:
            raise ValueError(f"{where}: unknown key {key}{nearest(key, known)}; known: {', '.join(known)}")
    template_name = declared.get("template", name)
    if template_name not in templates:
        raise ValueError(
            f"{where}: no template {template_name}{nearest(str(template_name), list(templates))};"
            f" known: {', '.join(sorted(templates))}"
        )
    template = templates[template_name]
    venv = declared.get("venv")
    if "command" not in declared and not venv:
        raise ValueError(
            f"{where}: say where it is installed: venv (a folder on the node) or command (a list)"
        )
    launcher = template.get("launcher")
    launcher_path = f"{program_dir}/{launcher}" if launcher else None
    places = {"python": f"{venv}/bin/python", "venv": str(venv), "launcher": str(launcher_path)}
    command = declared.get("command", template["command"])
    if not isinstance(command, (list, tuple)) or not command:
        raise ValueError(f"{where}: command must be a list: the program and its first arguments")
    words = tuple(str(word).format(**places) for word in command)
    if not words[0].startswith("/"):
        raise ValueError(
            f"{where}: command must begin with an absolute path, not {words[0]}: systemd needs one"
        )
    ways = template.get("credentials", {})
    credentials = declared_credentials(where, declared.get("credentials") or {}, list(ways))
    environment = {key: str(value) for key, value in declared.get("environment", {}).items()}
    if shown := shown_secret(environment):
        raise ValueError(f"{where}: environment {shown}: {SHOWN}")
    return Engine(
        name=name,
        template=str(template_name),
        adapter=str(template["adapter"]),
        command=words,
        fill=template["fill"],
        scale=template.get("scale"),
        model_is_file=template["model"] == "file",
        needs=tuple(template["needs"]),
        names=Names({**template["aliases"], **declared.get("aliases", {})}, template.get("renames", ())),
        flags={**template["flags"], **declared.get("flags", {})},
        environment=environment,
        gpu=bool(declared.get("gpu", template["gpu"])),
        launcher=launcher,
        launcher_path=launcher_path,
        version_argv=(*words, *template["version"]) if "version" in template else (),
        package=template.get("package"),
        requirements=declared.get("requirements", template.get("requirements")),
        venv=venv,
        credentials=credentials,
        credential_words=handing_over(where, credentials, ways, words, program_dir),
        secret_flags=tuple(template.get("secret_flags", ())),
    )
