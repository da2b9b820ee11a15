"""How far a server's start has come, in an operator's words, from what it logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A progress bar as tqdm draws it: "…: 43% Completed | 6/14 [00:05<…" and "…:  43%|####   | 15/35 [00:05<…".
_BAR = r"[^%\n]*?(?P<percent>\d{1,3})%[^|\n]*\|(?:[^|\n]*\|)?\s*(?P<done>\d+)/(?P<all>\d+)"

# The last line that matches one of these tells where the start stands. Of one line, the first pattern counts.
_STEPS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (rf"(?i)loading .*shards:{_BAR}", "loading weights: {percent} % ({done} of {all} shards)"),
        (rf"Capturing .*batches.*?:{_BAR}", "capturing CUDA graphs: {percent} % ({done} of {all})"),
        (
            rf"(?i)(?:DeepGEMM|flashinfer|JIT)[^:]*(?:warmup|tun|compil)[^:]*:{_BAR}",
            "compiling kernels: {percent} %",
        ),
        (r"(?i)capture (?P<which>draft |target )?.*cuda graph begin", "capturing {which}CUDA graphs"),
        (r"(?i)capture .*cuda graph end", "CUDA graphs are captured"),
        (r"Load weight begin", "loading weights"),
        (r"Load weight end", "weights are loaded"),
        (r"KV Cache is allocated|Memory pool end", "the KV cache is allocated"),
        (r"Init torch distributed (?:begin|start)|Init parallel begin", "joining the GPUs"),
        (r"Application startup complete|Uvicorn running on", "listening, warming up"),
        (r"The server is fired up and ready to roll", "ready"),
        (r"load_tensors:|llama_model_loader: loaded meta data", "loading weights"),
        (r"warming up the model", "warming up"),
        (r"server_args=", "starting"),
    )
)


def progress(lines: Sequence[str]) -> str | None:
    """The newest sign of progress; None where the lines hold none."""
    for line in reversed(lines):
        for pattern, words in _STEPS:
            # Bars that lost their carriage returns stand one after the other in a line: the last counts.
            found = _last(pattern.finditer(line))
            if found:
                return words.format(**{name: text or "" for name, text in found.groupdict().items()})
    return None


def _last(matches: Iterable[re.Match[str]]) -> re.Match[str] | None:
    found = None
    for found in matches:  # noqa: B007 - the last one is what is wanted
        pass
    return found
