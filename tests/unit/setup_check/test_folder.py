from pathlib import Path

from setup_check.folder import folder_problem


def test_a_folder_is_made_only_outside_of_check_mode(tmp_path):
    place = tmp_path / "a/b"

    assert folder_problem(place, create=False) is None
    assert not place.exists()
    assert folder_problem(place, create=True) is None
    assert place.is_dir()


def test_a_file_in_its_place_is_named(tmp_path):
    place = tmp_path / "results"
    place.write_text("")

    for create in (True, False):
        assert str(place) in str(folder_problem(place, create=create))


def test_a_folder_that_takes_no_file_is_refused():
    # The kernel lets nobody, not even root, make a file here.
    problem = folder_problem(Path("/proc/self"), create=True)

    assert problem is not None
    assert problem.startswith("the results folder /proc/self can't be written: ")
