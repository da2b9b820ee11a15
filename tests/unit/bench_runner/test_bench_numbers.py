"""Prompts of an exact length, and metrics that are what their definitions say, or not given."""

from __future__ import annotations

import pytest
from bench_runner.client.stream import Stream, Usage
from bench_runner.errors import ServerError
from bench_runner.metrics import Measured, Speculation, distribution, metrics
from bench_runner.prompts import PromptMaker

from tests.sim.sglang_shaped import count_tokens

MS = 1_000_000


def stream(
    *chunks_ms: float, sent_ms: float = 0, tokens: int | None = None, cached: int | None = 0
) -> Stream:
    details = None if cached is None else {"cached_tokens": cached}
    counted = len(chunks_ms) if tokens is None else tokens
    return Stream(
        sent_ns=int(sent_ms * MS),
        end_ns=int(chunks_ms[-1] * MS),
        chunks_ns=[int(at * MS) for at in chunks_ms],
        usage=Usage(10, counted, 10 + counted, details),
    )


def measured(*streams: Stream, speculation: list[Speculation | None] | None = None):
    said = speculation or [None] * len(streams)
    return metrics([Measured(stream=one, speculation=word) for one, word in zip(streams, said, strict=True)])


@pytest.mark.parametrize("tokens", [12, 16, 48, 255, 256, 1000, 3000])
@pytest.mark.parametrize(
    "count", [count_tokens, lambda text: len(text.encode()) // 4 + 1], ids=["words", "bytes/4"]
)
def test_a_prompt_has_exactly_the_tokens_asked_for(tokens, count):
    maker = PromptMaker(1, count)
    text = maker.prompt("code/64/1/0", tokens)
    assert count(text) == tokens
    assert PromptMaker(1, count).prompt("code/64/1/0", tokens) == text


def test_prompts_of_different_purposes_differ_from_their_first_words_on():
    maker = PromptMaker(1, count_tokens)
    texts = [maker.prompt(f"code/64/1/{number}", 64) for number in range(50)]
    assert len({text[:12] for text in texts}) == 50
    assert PromptMaker(2, count_tokens).prompt("code/64/1/0", 64) != texts[0]


def test_prompts_share_as_much_as_is_asked_for_and_no_more():
    maker = PromptMaker(1, count_tokens)
    one, other = (maker.prompt(f"concurrency/4/1/{number}", 300, shared=200) for number in range(2))
    head = maker.prompt("shared", 200)
    assert count_tokens(one) == count_tokens(other) == 300
    assert one.startswith(head)
    assert other.startswith(head)
    assert one[len(head) :][:12] != other[len(head) :][:12]
    assert count_tokens(maker.prompt("x", 25000, shared=20000)) == 25000
    assert not maker.prompt("concurrency/4/1/0", 300).startswith(head[:20])


def test_a_prompt_costs_few_questions():
    asked = []

    def count(text):
        asked.append(text)
        return count_tokens(text)

    PromptMaker(1, count).prompt("context/25000/1/0", 25000)
    assert len(asked) < 25


def test_texts_are_shared_but_not_trusted_under_another_tokenizer():
    kept = {}
    PromptMaker(1, count_tokens, kept=kept).prompt("x", 100)

    def other(text):
        return len(text)

    assert other(PromptMaker(1, other, kept=kept).prompt("x", 100)) == 100


def test_a_length_that_cannot_be_made_is_said():
    with pytest.raises(ServerError, match="no prompt of exactly 101 tokens"):
        PromptMaker(1, lambda text: len(text) // 2 * 2).prompt("x", 101)


def test_times_are_what_their_definitions_say():
    found = measured(stream(50, 60, 70, 90, tokens=7), stream(150, 170, sent_ms=100))
    assert found.ttft_ms.mean == 50
    assert (found.tpot_ms.min, found.tpot_ms.max) == (40 / 6, 20)
    assert found.chunk_gap_ms.n == 4
    assert found.chunk_gap_ms.max == 20
    assert (found.e2e_ms.min, found.e2e_ms.max) == (70, 90)
    assert found.wall_s == pytest.approx(0.17)
    assert found.output_tps == pytest.approx(9 / 0.17)
    assert found.output_tps_per_user == pytest.approx((7 / 0.09 + 2 / 0.07) / 2)
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (20, 9, 0)


def test_a_percentile_that_its_sample_is_too_small_for_is_not_given():
    assert distribution([]) is None
    nine, ten, hundred = (distribution(list(range(n))) for n in (9, 10, 100))
    assert (nine.p50, nine.p90, nine.p99) == (4, None, None)
    assert (ten.p90, ten.p99) == (pytest.approx(8.1), None)
    assert hundred.p99 == pytest.approx(98.01)


def test_speculation_is_weighted_by_steps_and_given_only_when_said_of_every_request():
    said = [
        Speculation(verify_steps=2, draft_tokens=10, accepted_drafts=6),
        Speculation(verify_steps=6, draft_tokens=10, accepted_drafts=2),
    ]
    streams = [stream(1, 2, tokens=8), stream(1, 2, tokens=8)]
    found = measured(*streams, speculation=said)
    assert (found.accept_length, found.verify_steps) == (2.0, 8)
    assert (found.draft_tokens, found.accepted_drafts) == (20, 8)
    partly = measured(*streams, speculation=[said[0], None])
    assert (partly.accept_length, partly.verify_steps, partly.draft_tokens) == (None, None, None)
    assert measured(*streams).accept_length is None


def test_what_the_server_does_not_say_is_not_zero():
    assert measured(stream(1, 2, cached=None)).cached_tokens is None
    assert measured(stream(1, tokens=1)).tpot_ms is None


def test_reasoning_is_a_token_and_no_answer_yet():
    thinking = stream(50, 60, 70)
    thinking.content_ns = 70 * MS
    found = measured(thinking)
    assert (found.ttft_ms.p50, found.ttft_content_ms.p50) == (50, 70)
    plain = stream(50, 60)
    plain.content_ns = 50 * MS
    assert measured(plain).ttft_content_ms is None


def test_an_open_loop_counts_from_when_a_request_was_due():
    late = Measured(stream=stream(150, 160, sent_ms=100), speculation=None, due_ns=40 * MS)
    found = metrics([late])
    assert (found.ttft_ms.p50, found.ttft_due_ms.p50) == (50, 110)


def test_stalls_are_gaps_far_above_the_usual_pace():
    assert measured(stream(10, 20, 30, 40, 50, 250, 260)).stalls == 1
    assert measured(stream(*range(0, 2000, 150))).stalls == 0


def test_the_steady_state_leaves_out_the_ramp_and_the_drain():
    # Two clients, three requests each of 100 ms and 10 tokens; the first wave comes 100 ms late.
    waves = [
        stream(*(first + 10 * number for number in range(1, 11)), sent_ms=sent)
        for sent, first in ((0, 100), (200, 200), (300, 300))
        for _ in range(2)
    ]
    found = measured(*waves)
    assert found.output_tps == pytest.approx(60 / 0.4)
    assert found.output_tps_steady == pytest.approx(20 / 0.1)
    assert measured(*waves[:2]).output_tps_steady is None


def test_what_the_client_doubts_is_not_given():
    streams = [Measured(stream=stream(50, 60, 70), speculation=None) for _ in range(3)]
    found = metrics(streams, doubted={"ttft_ms", "chunk_gap_ms"})
    assert (found.ttft_ms, found.chunk_gap_ms, found.stalls) == (None, None, None)
    assert found.tpot_ms.p50 == 10
    assert found.e2e_ms.p50 == 70


def test_times_that_the_stamps_cannot_show_are_not_given():
    together = stream(*([5.0] * 9), 6.0)
    assert measured(together).chunk_gap_ms is None
    assert measured(together).tpot_ms.n == 1
    whole = stream(*([5.0] * 10))
    assert measured(whole).tpot_ms is None
    assert measured(whole).ttft_ms.p50 == 5
    apart = [stream(*range(1, 11)) for _ in range(4)]
    assert measured(whole, *apart).tpot_ms.n == 4
