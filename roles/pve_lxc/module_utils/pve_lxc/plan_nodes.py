"""How each node gets into the container: by `devN`, a bind mount, or a hook; never by two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import Refused
from .situation import DEVICE_KEY, MOUNT

if TYPE_CHECKING:
    from .situation import Node, Plan, Situation

_DEVICE_LIMIT = 256
_DEVICE_MODE = "mode=0666"  # exactly so: Proxmox refuses `666`


def grant_by_devices(situation: Situation, plan: Plan) -> None:
    pending = (key for key in situation.config.pending.keys if DEVICE_KEY.fullmatch(key))
    taken = {*situation.dev_keys, *pending}
    for node in situation.nodes:
        for mount in situation.mounts:
            if mount.source == node.path and mount.delivers(node.path):
                plan.drop(mount.entry, f"the mount of {node.path}, which devN replaces")
        keys = situation.dev_keys_of(node)
        if keys:
            _mend(situation, plan, node, keys[0])
        elif not node.exists:
            plan.notes.append(
                f"{node.path} doesn't exist on the host; with a devN the container would not start"
            )
        else:
            key = _free_key(taken, node)
            taken.add(key)
            plan.set_key(key, f"{node.path},{_DEVICE_MODE}", f"add {key} for {node.path}")


def grant_by_mounts(situation: Situation, plan: Plan) -> None:
    for node in situation.nodes:
        keys = situation.dev_keys_of(node)
        mounted = situation.mount_of(node)
        if mounted:
            why = f"line {mounted.entry.line_no} mounts {node.path}, and no start succeeds with both"
            for key in keys:
                plan.drop_key(key, why)
        elif keys:
            _mend(situation, plan, node, keys[0])
        elif node.exists and not situation.hook:
            value = f"{node.path} {node.path[1:]} none bind,optional,create=file"
            plan.add(MOUNT, value, f"add a mount of {node.path}")


def _mend(situation: Situation, plan: Plan, node: Node, key: str) -> None:
    value = situation.dev_keys[key]
    if not value.opens_for_all:
        why = "which Proxmox can't read" if value.complaint else "which not every user in it could open"
        owner = "".join(f",{name}={value.options[name]}" for name in ("uid", "gid") if name in value.options)
        kept = "" if value.complaint else owner
        plan.set_key(key, f"{node.path},{_DEVICE_MODE}{kept}", f"rewrite {key} ({node.path}), {why}")
    if not node.exists:
        plan.notes.append(
            f"{key} names {node.path}, which doesn't exist on the host: the container will not start"
        )


def _free_key(taken: set[str], node: Node) -> str:
    for number in range(_DEVICE_LIMIT):
        if f"dev{number}" not in taken:
            return f"dev{number}"
    raise Refused(f"no devN is free for {node.path}: all {_DEVICE_LIMIT} are taken")
