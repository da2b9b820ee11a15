"""Numbers of a cell from its ok requests. METRICS.md beside this file has the definitions."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bench_runner.client.stream import Stream

# The smallest sample a percentile is given for: below it, it would be the maximum under another name.
_MIN_SAMPLE = {50: 1, 90: 10, 99: 100}
_MS = 1e6
# The share of chunks that may share a read with the one before: more, and the gaps' median moves.
MAX_TOGETHER = 0.05
# The share of answers whose tokens must have come apart for a time per token to be given.
MIN_SEEN = 0.8
# A gap is a stall from this on, and this many times the median gap.
_STALL_MS = 100.0
_STALL_TIMES = 10
# The share of the time that a steady state must have lasted.
_MIN_STEADY = 0.25
# Which figures go with a doubted one.
_NEEDS: dict[str, set[str]] = {
    "ttft_ms": {"ttft_ms"},
    "ttft_content_ms": {"ttft_ms"},
    "ttft_due_ms": {"ttft_ms"},
    "tpot_ms": {"tpot_ms"},
    "e2e_ms": {"e2e_ms"},
}


class Distribution(Struct, frozen=True, kw_only=True):
    n: int
    mean: float
    min: float
    max: float
    p50: float
    p90: float | None
    p99: float | None


class Speculation(Struct, frozen=True, kw_only=True):
    """What the engine says of one request. `verify_steps`: decoding steps after the prompt's own."""

    verify_steps: int
    draft_tokens: int | None
    accepted_drafts: int | None


class Metrics(Struct, frozen=True, kw_only=True, omit_defaults=True):
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    chunk_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    output_tps: float
    output_tps_per_user: float
    prompt_tokens: int
    completion_tokens: int
    wall_s: float
    accept_length: float | None
    verify_steps: int | None
    draft_tokens: int | None
    accepted_drafts: int | None
    cached_tokens: int | None
    ttft_content_ms: Distribution | None = None
    ttft_due_ms: Distribution | None = None
    stalls: int | None = None
    output_tps_steady: float | None = None


class Measured(Struct, frozen=True, kw_only=True):
    """One ok request: its stream and what the engine said of speculation (None: not given)."""

    stream: Stream
    speculation: Speculation | None
    due_ns: int | None = None  # in an open loop


def distribution(values: Sequence[float]) -> Distribution | None:
    if not values:
        return None
    ordered = sorted(values)
    return Distribution(
        n=len(ordered),
        mean=sum(ordered) / len(ordered),
        min=ordered[0],
        max=ordered[-1],
        p50=_percentile(ordered, 50) or ordered[0],
        p90=_percentile(ordered, 90),
        p99=_percentile(ordered, 99),
    )


def metrics(measured: Sequence[Measured], *, doubted: Collection[str] = ()) -> Metrics:
    """Of at least one request; each has usage and text, or it wouldn't be ok. What is doubted isn't given.

    Without `output_tps` there are no metrics at all: whoever doubts that has no use for this.
    """
    streams = [one.stream for one in measured]
    completions = [stream.usage.completion_tokens for stream in streams if stream.usage]
    started_ns = min(stream.sent_ns for stream in streams)
    ended_ns = max(stream.chunks_ns[-1] for stream in streams)
    wall_s = (ended_ns - started_ns) / 1e9
    said = [one.speculation for one in measured]
    steps = _sum_if_all(
        [one.verify_steps if one else None for one in said]
    )  # None: not said of every request
    e2e_ns = [stream.chunks_ns[-1] - stream.sent_ns for stream in streams]
    gaps = None if "chunk_gap_ms" in doubted else _gaps_ms(streams)
    found = Metrics(
        ttft_ms=distribution([(s.chunks_ns[0] - s.sent_ns) / _MS for s in streams]),
        tpot_ms=_tpot_ms(streams, completions),
        chunk_gap_ms=distribution(gaps or []),
        e2e_ms=distribution([ns / _MS for ns in e2e_ns]),
        output_tps=sum(completions) / wall_s,
        output_tps_per_user=sum(n / (ns / 1e9) for n, ns in zip(completions, e2e_ns)) / len(completions),
        prompt_tokens=sum(stream.usage.prompt_tokens for stream in streams if stream.usage),
        completion_tokens=sum(completions),
        wall_s=wall_s,
        accept_length=sum(completions) / steps if steps else None,
        verify_steps=steps,
        draft_tokens=_sum_if_all([one.draft_tokens if one else None for one in said]),
        accepted_drafts=_sum_if_all([one.accepted_drafts if one else None for one in said]),
        cached_tokens=_sum_if_all([s.usage.cached_tokens if s.usage else None for s in streams]),
        ttft_content_ms=_ttft_content_ms(streams),
        ttft_due_ms=distribution(
            [(m.stream.chunks_ns[0] - m.due_ns) / _MS for m in measured if m.due_ns is not None]
        ),
        stalls=_stalls(gaps) if gaps else None,
        output_tps_steady=_steady_tps(streams, completions),
    )
    unsure = [name for name, needs in _NEEDS.items() if needs & set(doubted)]
    return msgspec.structs.replace(found, **dict.fromkeys(unsure))


def run_together(streams: Sequence[Stream]) -> tuple[int, int]:
    """How many chunks came in one read with the chunk before them, and how many chunks there were."""
    chunks = sum(len(stream.chunks_ns) for stream in streams)
    return chunks - sum(len(set(stream.chunks_ns)) for stream in streams), chunks


def in_one_piece(stream: Stream) -> bool:
    """An answer of several tokens that came in one read: when each was made can't be seen here."""
    several = stream.usage is not None and stream.usage.completion_tokens > 1
    return several and stream.chunks_ns[0] == stream.chunks_ns[-1]


def _tpot_ms(streams: Sequence[Stream], completions: Sequence[int]) -> Distribution | None:
    """Of the answers whose tokens could be told apart; not given when too few could."""
    several = [(stream, tokens) for stream, tokens in zip(streams, completions) if tokens > 1]
    seen = [(stream, tokens) for stream, tokens in several if not in_one_piece(stream)]
    if len(seen) < len(several) * MIN_SEEN:
        return None
    return distribution([(s.chunks_ns[-1] - s.chunks_ns[0]) / _MS / (tokens - 1) for s, tokens in seen])


def _gaps_ms(streams: Sequence[Stream]) -> list[float] | None:
    """Not given when too many chunks came in one read: their gaps are the reads', not the server's."""
    together, chunks = run_together(streams)
    if together > chunks * MAX_TOGETHER:
        return None
    return [(b - a) / _MS for s in streams for a, b in zip(s.chunks_ns, s.chunks_ns[1:])]


def _stalls(gaps: Sequence[float]) -> int:
    """Gaps that a reader would notice, and that aren't this cell's usual pace."""
    limit_ms = max(_STALL_MS, _STALL_TIMES * percentile(sorted(gaps), 50))
    return sum(1 for gap in gaps if gap > limit_ms)


def _ttft_content_ms(streams: Sequence[Stream]) -> Distribution | None:
    """Only where it says something else than the first token of any kind: reasoning came before."""
    came = [(s.content_ns, s.sent_ns) for s in streams if s.content_ns is not None]
    if all(s.content_ns == s.chunks_ns[0] for s in streams):
        return None
    return distribution([(content_ns - sent_ns) / _MS for content_ns, sent_ns in came])


def _steady_tps(streams: Sequence[Stream], completions: Sequence[int]) -> float | None:
    """From the first answer's end to the last request's sending, where that is a good part of the time."""
    begin_ns = min(stream.chunks_ns[-1] for stream in streams)
    end_ns = max(stream.sent_ns for stream in streams)
    whole_ns = max(s.chunks_ns[-1] for s in streams) - min(s.sent_ns for s in streams)
    if end_ns - begin_ns < whole_ns * _MIN_STEADY:
        return None
    tokens = sum(
        count * (bisect_right(s.chunks_ns, end_ns) - bisect_right(s.chunks_ns, begin_ns)) / len(s.chunks_ns)
        for s, count in zip(streams, completions)
    )
    return tokens / ((end_ns - begin_ns) / 1e9) or None


def _sum_if_all(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    return percentile(ordered, percent) if len(ordered) >= _MIN_SAMPLE[percent] else None


def percentile(ordered: Sequence[float], percent: int) -> float:
    """By linear interpolation between the two nearest ranks (numpy's default), however few they are."""
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
