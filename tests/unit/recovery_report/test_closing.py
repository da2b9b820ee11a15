from recovery_report.closing import MOST_LINES, closing_lines, time_table

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


def test_a_node_is_named_once_and_problems_come_first():
    lines = [
        ("Diagnose", "ct200", "uvm moved"),
        ("Repair", "ct200", "fixed"),
        ("Collect", "localhost", "done"),
    ]
    problems = [{"node": "ct201", "stage": "Repair", "task": "t", "message": "locked\nmore"}]

    assert closing_lines(lines, problems, []) == [
        "ct201: FAILED in Repair: locked",
        "ct200      found     uvm moved",
        "           repaired  fixed",
        "here       tables    done",
    ]


def test_many_nodes_still_fit_and_what_is_left_out_is_counted():
    lines = [("Diagnose", f"ct{number}", "healthy") for number in range(200, 260)]

    said = closing_lines(lines, [], ROWS)

    assert len(said) == MOST_LINES
    assert "… and 40 lines more, in recovery.json" in said
