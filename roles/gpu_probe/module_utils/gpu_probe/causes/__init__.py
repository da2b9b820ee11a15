"""Importing this fills the table of causes, in the order in which an operator should hear of them."""

from . import link, host_gpus, host_driver, rules, nodes, cuda, memory  # noqa: F401, I001 - the order is the table's
