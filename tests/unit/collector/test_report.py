"""The report: one file, no network, hostile text shown as text, every number with its way back."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from collector.recovery import read_recovery
from collector.report import render, write_report
from tests.unit.collector.result_builder import COMPARABILITY, CampaignBuilder
from tests.unit.collector.test_cell_door import schema

HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>'`{{7*7}}"
VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}


class Page(HTMLParser):
    """Tags, attributes and texts, and whether every tag is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _tag, attribute, value in self.attributes if attribute == name]


@pytest.fixture
def page(layout, read):
    return lambda: Page(render(layout, read()))


def recovery(**changes):
    return {
        "schema": "recover-and-bench/recovery",
        "schema_version": 1,
        "started_at": "2026-05-14T00:00:00Z",
        "ended_at": "2026-05-14T00:03:00Z",
        "outcome": "ok",
        "command": "ansible-playbook recover-and-bench.yml",
        "stages": [
            {"stage": "Repair", "seconds": 9.4, "ansible_s": 4.4, "waited_s": {"boot": 5.0}},
            {"stage": "Collect", "seconds": 0.0, "ansible_s": 0.0, "waited_s": {}},
        ],
        "changed": {"ct200": 2},
        "nodes": {
            "ct200": {
                "causes": [
                    {"name": "uvm_major", "severity": "repairable", "sentence": "Major 510 became 508."},
                    {"name": "link", "severity": "needs_person", "sentence": "GPU 3 is at x8."},
                ],
                "steps": [
                    {"step": "fix_config", "changed": True, "seconds": 0.4, "outcome": "major 508 allowed"}
                ],
                "staged": {"tiny": {"seconds": 1.0}},
            }
        },
        "problems": [],
        "lines": [{"stage": "Repair", "node": "ct200", "text": "repaired"}],
        **changes,
    }


def test_the_page_is_whole_and_asks_no_network(campaign, page):
    campaign.run_all(tp1_draft__code__64={"status": "crashed"})
    found = page()
    assert found.open == []
    sources = [*found.values("href"), *found.values("src"), *found.values("xlink:href")]
    assert [source for source in sources if re.match(r"(?i)[a-z]+:|//", source)] == []
    assert not {"link", "iframe", "object", "embed", "base"} & set(found.tags)
    text = "".join(found.words)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|https?:", text)
    assert ("meta", "content") in {(tag, name) for tag, name, _ in found.attributes}
    assert any("default-src 'none'" in value for value in found.values("content"))


def test_every_figure_leads_to_its_cell_file(campaign, layout, page):
    campaign.run_all()
    links = {unquote(link) for link in page().values("href") if not link.startswith("#")}
    assert {
        f"raw/ct200/lab-small/cells/{path.name}" for path in campaign.folder.glob("cells/*.json")
    } == links
    assert all((layout.root / link).is_file() for link in links)


def test_every_anchor_is_there(campaign, page):
    campaign.run_all()
    found = page()
    targets = {link[1:] for link in found.values("href") if link.startswith("#")}
    ids = found.values("id")
    assert targets <= set(ids)
    assert len(ids) == len(set(ids))
    assert set(found.values("aria-labelledby")) <= set(ids)


def test_it_shows_winner_charts_coverage_and_reasons(campaign, page):
    campaign.run_all(
        tp1_draft__context__1024={"status": "crashed", "code": "illegal_instruction", "detail": "CUDA error"}
    )
    found = page()
    text = " ".join(" ".join(found.words).split())
    assert "3.67" in text
    assert "29 of 30 ok" in text
    assert "illegal instruction: CUDA error" in text
    assert found.tags.count("svg") == 6
    assert "tp1-draft, 1,024 prompt tokens: crashed (illegal instruction)" in text
    assert (
        "tp1-draft, 64 output tokens: 96.50 tok/s, 3.67\N{MULTIPLICATION SIGN} the baseline"
        in found.values("aria-label")
    )


def test_hostile_text_is_shown_as_text(campaign, layout, read):
    campaign.comparability = {**COMPARABILITY, "driver_version": HOSTILE, HOSTILE: 1}
    campaign.run_all(tp1_draft__code__64={"status": "crashed", "detail": HOSTILE})
    (campaign.folder / "cells" / "x.json").write_text(json.dumps({"schema": HOSTILE}))
    campaign.status("failed", message=HOSTILE)
    document = recovery(outcome=HOSTILE, command=HOSTILE)
    document["nodes"] = {HOSTILE: document["nodes"]["ct200"]}
    document["nodes"][HOSTILE]["causes"][0] |= {"name": HOSTILE, "sentence": HOSTILE}
    document["problems"] = [{"node": HOSTILE, "stage": HOSTILE, "task": HOSTILE, "message": HOSTILE}]
    layout.recovery.write_text(json.dumps(document))
    found = Page(render(layout, read()))
    assert found.open == []
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    assert not [name for _tag, name, _value in found.attributes if name.startswith("on")]
    assert HOSTILE in " ".join(found.words)
    assert "49" not in {word.strip() for word in found.words}


def test_a_hostile_plan_names_nothing_into_the_page(campaign, layout, read):
    campaign.run_all()
    plan = campaign.folder / "plan.yml"
    plan.write_text(plan.read_text().replace("tp1-draft", json.dumps(HOSTILE)))
    found = Page(render(layout, read()))
    assert "img" not in found.tags
    assert any(problem.startswith("plan.yml:") for problem in read().campaigns[0].problems)


def test_the_recovery_is_told(campaign, layout, page):
    campaign.run_all()
    schema("recovery").validate(recovery())
    layout.recovery.write_text(json.dumps(recovery()))
    text = " ".join(" ".join(page().words).split())
    assert "Major 510 became 508." in text
    assert "Needs a person." in text
    assert "major 508 allowed" in text
    assert "boot 5.0 s" in text
    assert "outcome: ok" in text


def test_a_run_that_builds_its_own_report_does_not_know_its_outcome_yet(campaign, layout, page):
    campaign.run_all()
    layout.recovery.write_text(json.dumps(recovery(outcome="in_progress")))
    text = " ".join(" ".join(page().words).split())
    assert "up to this report, begun" in text
    assert "outcome" not in text[text.index("up to this report") :][:80]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No record of a recovery run"),
        ("", "empty file"),
        ("[]", "no JSON object"),
        (json.dumps(recovery(schema_version=9)), "newest that this program reads is 1"),
        (json.dumps(recovery(stages=[{"stage": 1}])), "recovery.json can't be read"),
        (json.dumps({"schema": "recover-and-bench/recovery", "schema_version": 1}), "can't be read"),
    ],
)
def test_a_missing_or_broken_record_of_the_recovery_is_said(tmp_path, content, said):
    path = tmp_path / "recovery.json"
    if content is not None:
        path.write_text(content)
    found, note = read_recovery(path)
    assert found is None
    assert said in note


def test_a_report_without_a_recovery_says_so(campaign, page):
    campaign.write(campaign.cell("tp1-auto", "code", 64, status="failed"))
    assert "No record of a recovery run lies beside these results." in page().words


def test_environments_and_nodes_stand_apart(layout, read):
    for node in ("ct200", "ct201"):
        CampaignBuilder(layout.raw / node / "lab-small", node=node).start().run_all()
    other = CampaignBuilder(layout.raw / "ct202" / "lab-small", node="ct202", day=20)
    other.comparability = {**COMPARABILITY, "driver_version": "590.10"}
    other.start().run_all()
    found = Page(render(layout, read()))
    text = " ".join(" ".join(found.words).split())
    assert "Environments kept apart" in text
    assert "lab-small on ct200, ct201, environment A" in text
    assert "lab-small on ct202, environment B" in text
    ids = found.values("id")
    assert len(ids) == len(set(ids))


def test_a_campaign_without_any_good_cell_has_a_report(campaign, page):
    campaign.write(campaign.cell("tp1-auto", "code", 64, status="failed"))
    found = page()
    assert "svg" not in found.tags
    assert "No cell of this campaign is ok yet." in " ".join(found.words)


def test_one_point_a_workload_is_drawn(layout, page):
    plan = {
        "baseline": "tp1-auto",
        "configurations": ["tp1-auto"],
        "repeats": 1,
        "workloads": {"context": {"points": [256]}, "concurrency": {"points": [1]}},
    }
    CampaignBuilder(layout.raw / "ct200" / "lab-small", plan=plan).start().run_all()
    assert page().tags.count("svg") == 4


def test_an_open_loop_has_its_chart(layout, page):
    plan = {
        "baseline": "tp1-auto",
        "configurations": ["tp1-auto"],
        "repeats": 1,
        "workloads": {"rate": {"points": [1, 4]}},
    }
    CampaignBuilder(layout.raw / "ct200" / "lab-small", plan=plan).start().run_all()
    assert page().tags.count("svg") == 1


def test_the_same_files_give_the_same_page(campaign, layout, read):
    campaign.run_all()
    path = write_report(layout, read())
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    write_report(layout, read())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert len(before[0]) < 2 * 1024 * 1024
    assert str(layout.root).encode() not in before[0]
