"""A role's defaults and its argument_specs are one description: they must not drift apart."""

from pathlib import Path

import pytest
import yaml

ROLES = sorted(path for path in (Path(__file__).parents[2] / "roles").iterdir() if path.is_dir())


def described(role: Path) -> dict[str, dict]:
    """Every option of every entry point of a role."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return {name: option for spec in specs.values() for name, option in (spec.get("options") or {}).items()}


def defaults(role: Path) -> dict[str, object]:
    return yaml.safe_load((role / "defaults/main.yml").read_text()) or {}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_default_is_described_with_the_same_value(role):
    options = described(role)

    assert set(defaults(role)) <= set(options)
    for name, value in defaults(role).items():
        option = options[name]
        assert not option.get("required"), f"{name} has a default, so it can't be required"
        # A default that is computed by a template is described in words only.
        if "default" in option:
            assert option["default"] == value, name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_option_that_is_not_required_has_a_default(role):
    missing = {
        name
        for name, option in described(role).items()
        if not option.get("required") and name not in defaults(role)
    }

    assert not missing


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_variables_carry_the_name_of_their_role(role):
    for name in {*defaults(role), *described(role)}:
        assert name.startswith(f"{role.name}_")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_is_cut_like_the_others(role):
    for part in (
        "README.md",
        "defaults/main.yml",
        "meta/main.yml",
        "meta/argument_specs.yml",
        "tasks/main.yml",
    ):
        assert (role / part).is_file(), f"{role.name} has no {part}"
    chapters = (role / "tasks/main.yml").read_text().splitlines()
    assert len(chapters) <= 60, "tasks/main.yml is a table of contents"
