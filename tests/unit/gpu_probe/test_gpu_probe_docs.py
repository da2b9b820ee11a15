"""The role's README shows the table of causes as it is."""

from pathlib import Path

from ansible.module_utils.gpu_probe.causes import TABLE

README = Path(__file__).parents[3] / "roles/gpu_probe/README.md"


def row(cause):
    return (
        f"| `{cause.name}` | {cause.severity.replace('_', ' ')} | {cause.repair or ''} | {cause.about} |"
    ).replace("|  |", "| |")


def test_the_readme_lists_every_cause_in_the_tables_order():
    lines = README.read_text().splitlines()
    listed = [line for line in lines if line.startswith("| `")]

    assert listed == [row(cause) for cause in TABLE], "replace the README's rows by these"
