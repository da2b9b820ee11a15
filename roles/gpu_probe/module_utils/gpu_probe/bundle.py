"""The node probe as one text for `pct exec VMID -- python3 -`, for a node whose own ssh is down.

Runs on hosts: standard library and Python 3.9 only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

# By name, since Ansible sends along only what it finds imported.
from . import cuda, limited, node_facts, node_probe, nvml, reading

if TYPE_CHECKING:
    from types import ModuleType

# Each after those that it imports itself.
MODULES = (reading, limited, cuda, nvml, node_facts, node_probe)

_LOADER = """\
import json, sys, types
package = types.ModuleType("gpu_probe")
package.__path__ = []
sys.modules["gpu_probe"] = package
for name, source in json.loads(SOURCES):
    module = types.ModuleType("gpu_probe." + name)
    module.__package__ = "gpu_probe"
    sys.modules[module.__name__] = module
    exec(compile(source, "gpu_probe/" + name + ".py", "exec"), module.__dict__)
print(json.dumps(sys.modules["gpu_probe.node_probe"].probe_node(json.loads(ASKED))))
"""


def node_program(asked: dict[str, Any]) -> str:
    """A program for any Python 3.9+ that prints the node's evidence as one line of JSON."""
    sources = [(module.__name__.rpartition(".")[2], _source(module)) for module in MODULES]
    return f"SOURCES = {json.dumps(sources)!r}\nASKED = {json.dumps(asked)!r}\n{_LOADER}"


def _source(module: ModuleType) -> str:
    """A module's own text, also out of the zip in which Ansible sends it."""
    loader = module.__spec__.loader if module.__spec__ else None
    text = loader.get_source(module.__name__) if loader and hasattr(loader, "get_source") else None
    if text is None:
        raise RuntimeError(f"no source text for {module.__name__}")
    return str(text)
