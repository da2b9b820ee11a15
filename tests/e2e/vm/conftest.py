import pytest


def pytest_terminal_summary(terminalreporter):
    """The seconds that the tests recorded, for tests/bench/README.md."""
    figures = [
        f"{name}: {value}"
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
    ]
    if figures:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(figures))


@pytest.fixture
def figure(record_property):
    return record_property
