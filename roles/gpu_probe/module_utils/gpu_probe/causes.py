"""Importing this fills the table of causes, in the order in which an operator should hear of them."""

from . import (  # noqa: I001 - the order of these imports is the table's
    causes_link,
    causes_gpus,
    causes_driver,
    causes_rules,
    causes_nodes,
    causes_config,
    causes_container,
    causes_stale,
    causes_cuda,
    causes_memory,
)
from .cause import TABLE

__all__ = [
    "TABLE",
    "causes_config",
    "causes_container",
    "causes_cuda",
    "causes_driver",
    "causes_gpus",
    "causes_link",
    "causes_memory",
    "causes_nodes",
    "causes_rules",
    "causes_stale",
]
