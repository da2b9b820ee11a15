"""Which files are believed, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collector
from collector.door import NotOursError, UnreadableError, judge_file, parse_cell
from collector.records import Event, RequestRecord, Status
from tests.unit.collector.result_builder import CampaignBuilder

SCHEMAS = Path(collector.__file__).parent / "schemas"
DATA = Path(__file__).parents[2] / "data" / "results"


def schema(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


CELL_SCHEMA = schema("cell")


def cell(**changes: Any) -> dict[str, Any]:
    builder = CampaignBuilder(Path("lab-small"))
    return builder.cell("tp1-draft", "concurrency", 4, **changes)


def encode(content: object) -> bytes:
    return json.dumps(content).encode()


def changed(path: str, value: object) -> dict[str, Any]:
    """A good cell with one value replaced, such as metrics.ttft_ms.min."""
    content = cell()
    *parents, last = path.split(".")
    place: Any = content
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    return content


@pytest.mark.parametrize("status", ["ok", "partial", "failed", "crashed", "skipped", "interrupted"])
def test_a_cell_as_the_schema_says_is_read(status):
    content = cell(status=status)
    CELL_SCHEMA.validate(content)
    assert parse_cell(encode(content)).status == status


def test_a_byte_order_mark_is_harmless():
    assert parse_cell(b"\xef\xbb\xbf" + encode(cell())).status == "ok"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("metrics.ttft_ms.min", -3.2, "negative time"),
        ("metrics.ttft_ms.p50", 1e9, "not in order"),
        ("metrics.tpot_ms.mean", 0.001, "outside of min and max"),
        ("metrics.output_tps", 26e6, "is not possible"),
        ("metrics.output_tps", 500.0, "the file says 500"),
        ("metrics.output_tps", 0, "schema"),
        ("metrics.completion_tokens", 0, "schema"),
        ("metrics.completion_tokens", 3, "3 tokens"),
        ("metrics.accepted_drafts", 10_000, "drafts accepted"),
        ("metrics.accept_length", 7.9, "accept length"),
        ("metrics.e2e_ms.n", 99, "99 values of 8 good requests"),
        ("requests.ok", 7, "8 requests planned, but 7 ok and 0 failed"),
        ("requests.ok", 0, "without one good request"),
        ("checks.0.passed", False, "although the check"),
        ("point_unit", "turns", "is in clients"),
        ("cell", "tp1-draft.concurrency.2.r1", "its parts say"),
        ("status", "crashed", "with metrics"),
        ("ended_at", "2020-01-01T00:00:00Z", "the clock stepped back"),
        ("content_hash", "0" * 64, "content_hash"),
        ("attempt", 0, "attempt"),
        ("attempt", True, "attempt"),
        ("configuration", "../etc", "configuration"),
        ("surprise", 1, "surprise"),
    ],
)
def test_a_cell_that_breaks_a_law_is_refused_with_its_reason(path, value, said):
    with pytest.raises(UnreadableError, match=said):
        parse_cell(encode(changed(path, value)))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty file"),
        (b"\0" * 512, "512 zero bytes"),
        (encode(cell())[:900], "cut off: the file ends at byte 900"),
        (encode(cell()) * 2, "more than one JSON document"),
        (encode(cell()).replace(b'"duration_s": 7.0', b'"duration_s": NaN'), "not JSON"),
        (encode(cell()).replace(b'"duration_s": 7.0', b'"duration_s": 1e999'), "out of range"),
        (b"[" * 200_000, "cut off|recursion"),
        (b'{"a": "\xff"}', "not JSON"),
    ],
    ids=["empty", "zeros", "cut", "twice", "nan", "huge", "deep", "no-utf8"],
)
def test_bytes_that_are_no_cell_are_corrupt(data, said):
    with pytest.raises(UnreadableError, match=said):
        parse_cell(data)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2, 3], "a list and no object"),
        ({"hello": "world"}, "names no schema"),
        ({"schema": "vllm"}, "its schema is 'vllm'"),
        ({**cell(), "schema_version": 2}, "version is 2, the newest that this program reads is 1"),
        ({"schema": "recover-and-bench/cell", "version": 99}, "update the collector"),
    ],
)
def test_what_others_wrote_is_foreign(content, said):
    with pytest.raises(NotOursError, match=said):
        parse_cell(encode(content))


def test_every_legacy_file_gets_a_verdict():
    verdicts = json.loads((DATA / "legacy-verdicts.json").read_text())
    judged = {path.name: judge_file(path) for path in sorted((DATA / "legacy").iterdir())}
    assert judged.keys() == verdicts.keys()
    assert all(file.cell is None and file.reason for file in judged.values())
    unreadable = {
        "empty.json",
        "zeros.json",
        "nan.json",
        "two-documents.json",
        "tp1-ddtree-b32-truncated.json",
    }
    assert {name for name, file in judged.items() if file.verdict == "corrupt"} == unreadable
    assert {file.verdict for name, file in judged.items() if name not in unreadable} == {"foreign"}


@pytest.mark.parametrize("name", ["peers/aiperf.json", "peers/guidellm.json", "peers/vllm_bench_serve.json"])
def test_exports_of_other_clients_are_foreign(name):
    assert judge_file(DATA / name).verdict == "foreign"


def test_a_file_in_another_nodes_folder_is_foreign(campaign):
    path = campaign.write(campaign.cell("tp1-auto", "code", 64))
    assert judge_file(path, node="ct200", campaign="lab-small").verdict == "whole"
    judged = judge_file(path, node="ct201", campaign="lab-small")
    assert (judged.verdict, judged.reason) == (
        "foreign",
        "it is of ct200, campaign lab-small, but lies with ct201, campaign lab-small",
    )


def test_a_copy_under_another_name_is_foreign(campaign):
    path = campaign.write(campaign.cell("tp1-auto", "code", 64))
    copy = path.with_name("tp1-auto-copy.json")
    copy.write_bytes(path.read_bytes())
    assert judge_file(copy).verdict == "foreign"


def test_a_cell_without_its_request_records_is_partial(campaign):
    campaign.with_requests = True
    path = campaign.write(campaign.cell("tp1-auto", "code", 64))
    assert judge_file(path).verdict == "whole"
    records = path.with_name("tp1-auto.code.64.r1.requests.jsonl.zst")
    records.write_bytes(b"x" * records.stat().st_size)
    assert "is not the one that was written with it" in judge_file(path).reason
    records.unlink()
    judged = judge_file(path)
    assert (judged.verdict, judged.cell is not None) == ("partial", True)
    assert "is missing" in judged.reason


@pytest.mark.parametrize(
    ("name", "record"), [("journal", Event), ("status", Status), ("request", RequestRecord)]
)
def test_records_have_the_keys_of_their_schema(name, record):
    assert set(schema(name).schema["properties"]) == set(record.__struct_fields__)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@st.composite
def mutated_cells(draw: st.DrawFn) -> dict[str, Any]:
    """A good cell with a few values replaced, removed or scaled."""
    content = cell(status=draw(st.sampled_from(["ok", "ok", "ok", "crashed"])))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(places(content)))
        place: Any = content
        for key in parents:
            place = place[key]
        action = draw(st.sampled_from(["replace", "remove", "scale"]))
        if action == "scale" and isinstance(place[last], int | float):
            place[last] = place[last] * draw(st.sampled_from([-1, 0, 0.5, 1.5, 1e12]))
        elif action == "remove":
            del place[last]
        else:
            place[last] = draw(JSON_VALUES)
    return content


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated_cells())
def test_what_is_read_is_as_the_schema_says(content):
    try:
        read = parse_cell(encode(content))
    except (NotOursError, UnreadableError):
        return
    CELL_SCHEMA.validate(content)
    assert json.loads(msgspec.json.encode(read)) == content


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.builds(lambda at: encode(cell())[:at], st.integers(0, 2000)))
def test_no_bytes_crash_the_door(data):
    with pytest.raises((NotOursError, UnreadableError)):
        parse_cell(data)
