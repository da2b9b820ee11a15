from recovery_report.closing import MOST_LINES, closing_lines, time_table
from recovery_report.record import Record

ROWS = [
    {"stage": "Wait", "seconds": 4.04, "ansible_s": 1.0, "waited_s": {"boot": 3.04}},
    {"stage": "Bench", "seconds": 60.0, "ansible_s": 2.0, "waited_s": {"engine_load": 8.0, "measure": 50.0}},
]


def test_the_table_shows_only_what_was_waited_for():
    assert time_table(ROWS) == [
        "stage   seconds  ansible  boot  engine load  measure",
        "Wait        4.0      1.0   3.0",
        "Bench      60.0      2.0                8.0     50.0",
        "in all     64.0      3.0   3.0          8.0     50.0",
    ]


def record(*lines):
    kept = Record(started_at="2026-11-30T19:00:00Z", command="")
    for line in lines:
        kept.line(*line)
    return kept


def test_a_node_is_named_once_and_problems_come_first():
    run = record(
        ("Diagnose", "ct200", "uvm moved"), ("Repair", "ct200", "fixed"), ("Collect", "here", "done")
    )
    run.problem("ct201", "Repair", "a task", "locked\nmore")
    run.changed = {"ct200": 2}

    assert closing_lines(run, []) == [
        "ct201: FAILED in Repair: locked",
        "ct200      found     uvm moved",
        "           repaired  fixed",
        "here       tables    done",
        "changed   2 things on ct200",
    ]


def test_many_nodes_still_fit_and_what_is_left_out_is_counted():
    run = record(*[("Diagnose", f"ct{number}", "healthy") for number in range(200, 260)])

    said = closing_lines(run, ROWS)

    assert len(said) == MOST_LINES
    assert "… and 41 lines more, in recovery.json" in said
    assert "changed   nothing" in said


def test_each_node_is_told_in_one_piece_whichever_was_first_in_a_stage():
    run = record(
        ("Diagnose", "ct201", "uvm moved"),
        ("Diagnose", "ct200", "healthy"),
        ("Bench", "ct200", "30 ok"),
        ("Bench", "ct201", "29 ok"),
    )

    assert closing_lines(run, [])[:-1] == [
        "ct200      found     healthy",
        "           measured  30 ok",
        "ct201      found     uvm moved",
        "           measured  29 ok",
    ]


def test_where_the_room_is_short_what_was_found_and_measured_is_kept():
    stages = ("Diagnose", "Repair", "Restore", "Stage", "Deploy", "Bench")
    run = record(*[(stage, f"ct20{number}", stage) for stage in stages for number in range(6)])

    said = closing_lines(run, ROWS)

    assert len(said) <= MOST_LINES
    assert said[:3] == [
        "ct200      found     Diagnose",
        "           repaired  Repair",
        "           measured  Bench",
    ]
    assert said.count("           measured  Bench") == 6
    assert "… and 18 lines more, in recovery.json" in said


def test_what_was_only_foreseen_is_not_said_again():
    run = record(
        ("Validate", "here", "plan sound"),
        ("Wait", "ct200", "pve answers as root"),
        ("Check", "ct200", "would copy 52 GB"),
        ("Stage", "ct200", "52 GB copied"),
    )

    assert closing_lines(run, [])[:-1] == ["ct200      staged    52 GB copied"]
