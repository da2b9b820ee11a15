"""How a server died, by name: the table in signatures.yml over what systemd, its log and the kernel say."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import yaml
from msgspec import Struct

from bench_runner.server.log_lines import batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TABLE = Path(__file__).with_name("signatures.yml")
UNKNOWN = "unknown"
# Where the kernel's log can't be read, nobody can say that the OOM killer wasn't it.
_EXCLUDES_OOM = ", and not by the OOM killer"
_OOM_TASK = re.compile(r"oom-kill:.*task_memcg=(?P<group>[^,]*),.*pid=(?P<pid>\d+)")
_OOM_KILLED = re.compile(r"[Oo]ut of memory.*: Kill(?:ed)? process (?P<pid>\d+)")
_LINE_CHARS = 4000
_UNIT = ("ActiveState", "SubState", "Result", "ExecMainCode", "ExecMainStatus")


class Signature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    look_in: Literal["journal", "kernel", "unit"]
    patterns: list[str]
    sentence: str
    advice: str
    blame: Literal["configuration", "machine", "person", "nobody"] = "configuration"


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    signatures: list[Signature]
    xids: dict[int, str]


class Crash(Struct, frozen=True, kw_only=True):
    """`line` is the one that gave it away; `also` are the names of other signs, most telling first."""

    signature: str
    sentence: str
    advice: str
    blame: str = "nobody"
    found_in: str | None = None
    line: str | None = None
    also: list[str] = msgspec.field(default_factory=list)


@lru_cache(maxsize=1)
def table() -> Table:
    return msgspec.convert(yaml.safe_load(TABLE.read_bytes()), Table, strict=False)


@lru_cache(maxsize=1)
def _compiled() -> list[tuple[Signature, list[re.Pattern[str]]]]:
    return [(each, [re.compile(pattern) for pattern in each.patterns]) for each in table().signatures]


def blames_configuration(name: str) -> bool:
    """Whether a crash of this name tells of the configuration: of all that have the name, each must."""
    blames = {each.blame for each in table().signatures if each.name == name}
    return blames == {"configuration"}


def classify(evidence: Mapping[str, Any]) -> Crash:
    """Of a dead server. Where no sign is known, the sentence says how it ended."""
    texts = {
        "journal": _texts(evidence.get("journal")),
        "kernel": _ours(_texts(evidence.get("kernel")), evidence),
        "unit": [_unit_line(evidence)],
    }
    matches = []
    for signature, patterns in _compiled():
        match = _first(patterns, texts[signature.look_in])
        if match:
            matches.append((signature, *match))
    if not matches:
        return Crash(
            signature=UNKNOWN,
            sentence=f"no known sign in {len(texts['journal'])} log lines; {unit_sentence(evidence)}",
            advice="read the last lines in the cell's evidence, and add the sign to signatures.yml",
        )
    signature, line, found = matches[0]
    sentence = _filled(signature.sentence, found)
    if _EXCLUDES_OOM in sentence and _kernel_is_blind(evidence):
        sentence = sentence.replace(
            _EXCLUDES_OOM, "; the kernel's log can't be read here, so it may have been the OOM killer"
        )
    others = dict.fromkeys(each.name for each, _, _ in matches[1:] if each.name != signature.name)
    return Crash(
        signature=signature.name,
        sentence=sentence,
        advice=signature.advice,
        blame=signature.blame,
        found_in=signature.look_in,
        line=line[:500],
        also=list(others),
    )


def said(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """What goes before the raw evidence in a cell's file: the name, the sentence, the last batch."""
    crash = msgspec.to_builtins(classify(evidence))
    last = batches(_texts(evidence.get("journal")))[-1:]
    return {**crash, **({"last_batch": msgspec.to_builtins(last[0])} if last else {})}


def shows_a_crash(evidence: Mapping[str, Any]) -> bool:
    """Whether the log or the kernel tells of a crash, of a server whose unit still runs."""
    return classify({**evidence, **dict.fromkeys(_UNIT, "")}).found_in in {"journal", "kernel"}


def unit_sentence(evidence: Mapping[str, Any]) -> str:
    return (
        f"unit {evidence.get('ActiveState', 'unknown')}/{evidence.get('SubState', 'unknown')}, "
        f"result {evidence.get('Result', 'unknown')}, "
        f"exit {evidence.get('ExecMainCode', 'unknown')}/{evidence.get('ExecMainStatus', 'unknown')}"
    )


def _first(patterns: Sequence[re.Pattern[str]], lines: Sequence[str]) -> tuple[str, re.Match[str]] | None:
    """The earliest line that one of them matches: what came later mostly follows from it."""
    for line in lines:
        for pattern in patterns:
            found = pattern.search(line)
            if found:
                return line, found
    return None


def _filled(sentence: str, found: re.Match[str]) -> str:
    """The sentence with what was captured; an alternative that wasn't taken leaves nothing."""
    captured = defaultdict(str, {name: (text or "").strip() for name, text in found.groupdict().items()})
    xid = captured.get("xid", "")
    captured["meaning"] = table().xids.get(int(xid), "see NVIDIA's catalogue") if xid.isdigit() else ""
    return sentence.format_map(captured).replace(" ( s)", "").strip()


def _unit_line(evidence: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={evidence.get(name, '')}" for name in _UNIT) + " "


def _ours(kernel: Sequence[str], evidence: Mapping[str, Any]) -> list[str]:
    """The kernel's log is the machine's: an OOM kill counts where it names our unit, or systemd says so."""
    if evidence.get("Result") == "oom-kill":
        return list(kernel)
    unit = str(evidence.get("unit") or "") or "/nothing/"
    tasks = [found for found in map(_OOM_TASK.search, kernel) if found]
    pids = {found["pid"] for found in tasks if unit in found["group"]}
    kept = []
    for line in kernel:
        killed = _OOM_KILLED.search(line)
        if not killed or killed["pid"] in pids:
            kept.append(line)
    return kept


def _kernel_is_blind(evidence: Mapping[str, Any]) -> bool:
    notes = evidence.get("notes")
    return isinstance(notes, list) and any(str(note).startswith("dmesg") for note in notes)


def _texts(lines: object) -> list[str]:
    return [str(line)[:_LINE_CHARS] for line in lines] if isinstance(lines, list) else []
