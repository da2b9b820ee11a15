import pytest
from recovery_report.timeline import Timeline


def test_a_stage_ends_where_the_next_begins():
    timeline = Timeline()
    timeline.enter("Wait", 0.0)
    timeline.enter("Repair", 2.0)
    timeline.close(5.0)

    assert [(row["stage"], row["seconds"]) for row in timeline.rows(99.0)] == [("Wait", 2.0), ("Repair", 3.0)]


def test_two_plays_of_one_stage_are_one_row():
    timeline = Timeline()
    assert timeline.enter("Wait", 0.0)
    assert not timeline.enter("Wait", 1.0)
    timeline.close(3.0)

    assert [row["seconds"] for row in timeline.rows(3.0)] == [3.0]


def test_a_stage_entered_again_adds_to_its_row():
    timeline = Timeline()
    timeline.enter("Stage", 0.0)
    timeline.enter("Bench", 1.0)
    timeline.enter("Stage", 4.0)
    timeline.close(6.0)

    assert [(row["stage"], row["seconds"]) for row in timeline.rows(6.0)] == [("Stage", 3.0), ("Bench", 3.0)]


def test_hosts_that_wait_side_by_side_count_once():
    timeline = Timeline()
    timeline.enter("Repair", 0.0)
    timeline.waited("task-1", {"boot": 2.0})
    timeline.waited("task-1", {"boot": 3.0})
    timeline.waited("task-2", {"boot": 1.0})
    timeline.close(10.0)

    assert timeline.rows(10.0) == [
        {"stage": "Repair", "seconds": 10.0, "ansible_s": 6.0, "waited_s": {"boot": 4.0}}
    ]


def test_what_is_waited_for_has_a_known_name():
    timeline = Timeline()
    timeline.enter("Repair", 0.0)

    with pytest.raises(ValueError, match="'coffee'; a task can wait for boot, copy, engine_load, measure"):
        timeline.waited("task", {"coffee": 1.0})
