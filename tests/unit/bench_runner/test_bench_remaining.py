from bench_runner.live import remaining_s


def test_nothing_is_known_before_the_first_cell_is_done():
    assert remaining_s(0, 30, measured_s=0.0, elapsed_s=12.0) is None


def test_the_time_left_falls_while_a_cell_runs():
    said = [remaining_s(2, 4, measured_s=20.0, elapsed_s=elapsed_s) for elapsed_s in (20.0, 25.0, 38.0, 90.0)]

    assert said == [20.0, 15.0, 2.0, 0.0]
