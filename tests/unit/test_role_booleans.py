"""`-e some_switch=false` arrives as the word "false", which is true to Jinja: each use has to convert it."""

import re
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
MODULES = [*PROJECT.glob("roles/*/library/*.py"), *PROJECT.glob("playbooks/library/*.py")]
DOCUMENTATION = re.compile(r'^DOCUMENTATION = r?"""(.*?)"""', re.DOTALL | re.MULTILINE)


def switches(role):
    """A role's options of type bool."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    options = {
        name: option for spec in specs.values() for name, option in (spec.get("options") or {}).items()
    }
    return [name for name, option in options.items() if option["type"] == "bool"]


def converting_arguments():
    """Arguments of our modules that are declared as bool: Ansible converts what is given to them."""
    found = set()
    for path in MODULES:
        options = yaml.safe_load(DOCUMENTATION.search(path.read_text())[1]).get("options") or {}
        found |= {name for name, option in options.items() if option["type"] == "bool"}
    return found


def uses(name, folder):
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".j2")):
        if path.parent.name in ("meta", "defaults"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(rf"\b{name}\b(?!\s*[:=])", line.partition("#")[0]):
                yield f"{path.relative_to(PROJECT)}:{number}", line.strip()


CONVERTS = converting_arguments()
CASES = [
    pytest.param(name, line, id=f"{where}-{name}")
    for role in sorted((PROJECT / "roles").iterdir())
    for name in switches(role)
    for where, line in (*uses(name, role), *uses(name, PROJECT / "playbooks"))
]


def test_there_are_switches_in_use():
    assert len(CASES) > 10


@pytest.mark.parametrize(("name", "line"), CASES)
def test_a_switch_is_converted_where_it_is_used(name, line):
    argument = re.fullmatch(rf'(\w+): "{{{{ {name} }}}}"', line)
    handed_on = argument and argument[1] in CONVERTS
    default = r"(?: \| default\(\w+\))?"
    assert handed_on or re.search(rf"\b{name}{default} \| bool\b", line), line
