from pathlib import Path

import pytest
from recovery_report.words import from_here

HERE = Path("/srv/deep/clone")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("report /srv/deep/clone/results/report.html", "report results/report.html"),
        ("`/srv/deep/clone/a`, /srv/deep/clone/b", "`a`, b"),
        ("/mnt/srv/deep/clone/a", "/mnt/srv/deep/clone/a"),
        ("/srv/deep/clone-2/a", "/srv/deep/clone-2/a"),
        ("in /srv/deep/clone/", "in /srv/deep/clone/"),
        ("in /srv/deep/clone", "in /srv/deep/clone"),
    ],
)
def test_only_paths_below_the_folder_get_shorter(text, shown):
    assert from_here(text, HERE) == shown


def test_at_the_root_a_path_stays_a_path():
    assert from_here("/etc/hosts", Path("/")) == "/etc/hosts"
