"""What an operator reads."""

# ruff: noqa: RUF001 - the tables mean the multiplication sign

from __future__ import annotations

import csv
import io
import shutil

import pytest
from rich.console import Console

from collector.headline import headline_chapter, headlines
from collector.publish import write_tables
from collector.sections import sections
from collector.table import escape, to_markdown
from collector.tables import Points, chapters
from collector.terminal import show
from tests.unit.collector.result_builder import PLAN, CampaignBuilder


def content(read):
    merged = read()
    drawn = [Points(section) for section in sections(merged)]
    return merged, [(points.section, [headline_chapter(points), *chapters(points)]) for points in drawn]


def table(read, key: str):
    _merged, drawn = content(read)
    ((_section, found),) = drawn
    return next(table for chapter in found for table in chapter.tables if table.key == key)


def test_throughput_names_speedups_and_holes(campaign, read):
    campaign.run_all(
        tp1_draft__code__256={"status": "crashed", "code": "illegal_instruction"},
        tp1_ngram__code__128={"status": "skipped", "code": "quirk"},
    )
    assert to_markdown(table(read, "throughput-code")) == (
        "### Code: output tokens per second\n"
        "\n"
        "| configuration       | 64 output tokens | 128 output tokens |             256 output tokens |\n"
        "| ------------------- | ---------------: | ----------------: | ----------------------------: |\n"
        "| tp1-auto (baseline) |            26.30 |             26.30 |                         26.30 |\n"
        "| tp1-ngram           |    61.00 (2.32×) |   skipped (quirk) |                 61.00 (2.32×) |\n"
        "| tp1-draft           |    96.50 (3.67×) |     96.50 (3.67×) | crashed (illegal instruction) |\n"
        "\n"
        "The second figure is the speed-up against the baseline. One run each.\n"
    )


def test_no_cell_of_any_table_is_blank_or_a_zero(campaign, read):
    campaign.run_all(
        tp1_auto__code__64={"status": "failed"},
        tp1_draft__concurrency__2={"status": "interrupted"},
        tp1_draft__agentic__4={"status": "partial"},
    )
    _merged, drawn = content(read)
    texts = [
        shown.text
        for _section, found in drawn
        for chapter in found
        for table in chapter.tables
        for row in table.rows
        for shown in row
    ]
    assert len(texts) > 200
    assert not {"", "0", "0.0", "0.00", "0.000", "nan", "None"} & set(texts)


def test_an_open_loop_has_a_curve_by_its_rate(layout, read):
    plan = {**PLAN, "workloads": {"rate": {"points": [1, 4]}}}
    CampaignBuilder(layout.raw / "ct200" / "lab-small", plan=plan).start().run_all()
    assert table(read, "throughput-rate").columns == ("configuration", "1 request/s", "4 requests/s")
    assert "TTFT p50 ms" in table(read, "rate-curve").columns


def test_a_replay_has_a_curve_by_its_speed(layout, read):
    plan = {**PLAN, "workloads": {"replay": {"points": [100, 200]}}}
    CampaignBuilder(layout.raw / "ct200" / "lab-small", plan=plan).start().run_all()
    assert table(read, "throughput-replay").columns == ("configuration", "100 % speed", "200 % speed")
    assert table(read, "replay-curve").title == "Replay"


def test_a_point_without_baseline_says_so(campaign, read):
    campaign.run_all(tp1_auto__code__64={"status": "failed"})
    rows = table(read, "throughput-code").rows
    assert [row[1].plain for row in rows] == [
        "failed (server died)",
        "61.00 (no baseline)",
        "96.50 (no baseline)",
    ]


def test_a_mean_takes_only_good_repeats_and_says_how_many(layout, read):
    campaign = CampaignBuilder(layout.raw / "ct200" / "lab-small", plan={**PLAN, "repeats": 3}).start()
    for repeat, factor in enumerate([1.0, 1.1, 1.2], 1):
        campaign.write(campaign.cell("tp1-auto", "code", 64, repeat, factor=factor))
    for repeat, status in enumerate(["ok", "crashed", "ok"], 1):
        campaign.write(campaign.cell("tp1-draft", "code", 64, repeat, status=status))
    rows = {row[0].text: row[1] for row in table(read, "throughput-code").rows}
    assert rows["tp1-auto"].plain == "28.93 (n=3)"
    assert rows["tp1-draft"].plain == "96.50 (3.34×, n=2 of 3)"
    assert rows["tp1-draft"].detail.startswith("crashed (server died): CUDA error")
    assert rows["tp1-ngram"].text == "not run"


def test_a_percentile_that_nobody_has_is_left_out_by_name(campaign, read):
    campaign.run_all(tp1_auto__code__64={"requests": 10})
    latency = table(read, "latency-code")
    assert "TTFT p90" in latency.columns
    assert "TTFT p99" not in latency.columns
    assert "Given nowhere, so left out: TTFT p99, TPOT p99" in latency.note
    place = latency.columns.index("TTFT p90")
    assert [row[place].text for row in latency.rows][:2] != ["not given", "not given"]
    assert latency.rows[1][place].text == "not given"


def test_a_row_without_figures_says_its_reason_once(campaign, read):
    campaign.run_all(tp1_draft__context__1024={"status": "crashed", "code": "oom"})
    row = table(read, "context-curve").rows[-1]
    assert [shown.text for shown in row] == ["tp1-draft", "1,024", "crashed (oom)", "crashed", "crashed"]


def test_nodes_are_compared_with_their_own_baseline(layout, read):
    for node, factor in (("ct200", 1.0), ("ct201", 2.0)):
        campaign = CampaignBuilder(layout.raw / node / "lab-small", node=node).start()
        campaign.write(campaign.cell("tp1-auto", "code", 64, factor=factor))
        campaign.write(campaign.cell("tp1-draft", "code", 64, factor=factor))
    rows = {row[0].text: row[1].plain for row in table(read, "throughput-code").rows}
    assert rows["tp1-draft @ ct200"] == "96.50 (3.67×)"
    assert rows["tp1-draft @ ct201"] == "193.0 (3.67×)"


def test_a_winner_by_anothers_crash_says_so(campaign, read):
    campaign.run_all(tp1_draft__code__256={"status": "crashed"})
    ((section,),) = [sections(read())]
    code = next(line for line in headlines(Points(section)) if line.workload == "code")
    assert (code.configuration, code.verdict) == ("tp1-ngram", "2.32× the baseline")
    assert code.basis == "3 of 3 points, one run a point"
    assert code.faster_where_ran == "tp1-draft has 3.67× on 2 of 3"


def test_without_a_good_cell_there_is_no_winner(campaign, read):
    campaign.write(campaign.cell("tp1-auto", "code", 64, status="failed"))
    ((section,),) = [sections(read())]
    assert headlines(Points(section)) == ()


def test_the_csv_has_a_reason_wherever_it_has_no_figure(campaign, layout, read):
    campaign.run_all(tp1_draft__code__64={"status": "crashed"})
    merged, drawn = content(read)
    write_tables(layout, merged, drawn)
    with (layout.tables / "throughput.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert len(rows) == 30
    assert all((row["output_tps"] != "") == (row["n"] != "0") == (row["hole"] == "") for row in rows)


@pytest.mark.parametrize("copies", [1, 2])
def test_the_same_files_give_the_same_bytes_anywhere(campaign, layout, read, tmp_path, copies):
    campaign.run_all(tp1_draft__code__64={"status": "crashed"})
    merged, drawn = content(read)
    paths = write_tables(layout, merged, drawn)
    before = {path.name: path.read_bytes() for path in paths}
    moved = tmp_path / f"elsewhere-{copies}" / "results"
    shutil.copytree(layout.raw, moved / "raw")
    other = type(layout)(moved)
    from collector.campaigns import scan  # noqa: PLC0415 - the other place's own reading
    from collector.merge import merge  # noqa: PLC0415 - as above

    merged, drawn = content(lambda: merge(scan(other)))
    assert {path.name: path.read_bytes() for path in write_tables(other, merged, drawn)} == before


def test_a_table_of_an_earlier_plan_goes(campaign, layout, read):
    campaign.run_all()
    write_tables(layout, *content(read))
    assert (layout.tables / "agentic-curve.md").exists()
    (layout.tables / "mine.md").write_text("kept")
    plan = {**PLAN, "workloads": {"code": PLAN["workloads"]["code"]}}
    shutil.rmtree(campaign.folder)
    CampaignBuilder(campaign.folder, plan=plan).start().run_all()
    write_tables(layout, *content(read))
    assert sorted(path.name for path in layout.tables.glob("*.md")) == [
        "accept-length.md",
        "latency.md",
        "mine.md",
        "summary.md",
        "throughput.md",
    ]


def test_text_of_others_is_shown_and_not_obeyed(campaign, read):
    campaign.run_all(
        tp1_draft__code__64={"status": "crashed", "detail": "[bold red]</x>|\x1b[2J", "code": "odd"}
    )
    _merged, drawn = content(read)
    out = io.StringIO()
    show(Console(file=out, width=100, force_terminal=True, color_system=None), drawn)
    assert "\x1b[2J" not in out.getvalue()
    assert escape("a|b <script> \x1b[2J\n# x") == r"a\|b \<script\> \[2J \# x"
