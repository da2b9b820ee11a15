"""The role's README shows the table of causes as it is."""

from pathlib import Path

from ansible.module_utils.gpu_probe.causes import TABLE

README = Path(__file__).parents[3] / "roles/gpu_probe/README.md"


WORDS = {"needs_person": "needs a person"}


def row(cause):
    severity = WORDS.get(cause.severity, cause.severity)
    return f"| `{cause.name}` | {severity} | {cause.repair or ''} | {cause.about} |".replace("|  |", "| |")


def test_the_readme_lists_every_cause_in_the_tables_order():
    lines = README.read_text().splitlines()
    listed = [line for line in lines if line.startswith("| `")]

    assert listed == [row(cause) for cause in TABLE], "replace the README's rows by these"
