"""What must hold for every file and every plan; used by the tables, by hypothesis and by the fuzz."""

from ansible.module_utils.pve_lxc.conf import as_written_by_pve, encode, parse, split_lines
from ansible.module_utils.pve_lxc.edit import apply
from ansible.module_utils.pve_lxc.errors import Refused
from ansible.module_utils.pve_lxc.plan import wanted
from ansible.module_utils.pve_lxc.situation import Node

PROC_DEVICES = """\
Character devices:
  1 mem
 10 misc
195 nvidia
195 nvidia-modeset
195 nvidiactl
226 drm
240 other
511 nvidia-uvm
508 nvidia-caps

Block devices:
  8 sd
234 not-a-character-device
"""
NODES = (
    Node("/dev/nvidia0", "nvidia", 0),
    Node("/dev/nvidia1", "nvidia", 1),
    Node("/dev/nvidiactl", "nvidia", 255),
    Node("/dev/nvidia-uvm", "nvidia-uvm", 0),
    Node("/dev/nvidia-uvm-tools", "nvidia-uvm", 1),
)
RECORDS = {"509": ["nvidia-uvm"], "240": ["nvidia-caps"]}


def plan_for(text, grant="auto", *, proc_devices=PROC_DEVICES, nodes=NODES, **more):
    return wanted(parse(text), proc_devices, grant, nodes, **{"records": RECORDS, **more})


def edited(text, grant="auto", **more):
    """The file after the plan, or None where the plan is refused. All laws are checked on the way."""
    config = parse(text)
    try:
        plan = plan_for(text, grant, **more)
    except Refused:
        return None
    after = apply(config, plan.edit)
    hold(config, plan.edit, after)
    for later in (after, as_written_by_pve(parse(after))):
        again = plan_for(later, grant, **more)
        assert not again.edit, (text, grant, again.changes)
    return after


def hold(config, edit, after):
    """Every byte that the edit does not name is still there, in its order, and nothing else came."""
    before = split_lines(config.text)
    touched = {*edit.drop_entries, *edit.replace_entries}
    for key in (*edit.drop_keys, *edit.set_keys):
        touched.update(config.main.key_lines.get(key, [])[0 if key in edit.drop_keys else -1 :])
    kept = [line for number, line in enumerate(before, 1) if number not in touched]
    found = split_lines(after)
    rest = iter(found)
    assert all(any(_is_same(line, other) for other in rest) for line in kept), (config.text, after)
    ours = len(edit.replace_entries) + len(edit.set_keys) + len(edit.add_entries)
    assert len(found) == len(kept) + ours, (config.text, after)
    assert encode(after).decode("utf-8", "surrogateescape") == after
    if config.text and not edit.drop_entries and not edit.drop_keys:
        assert after.endswith("\n") == config.text.endswith("\n")


def _is_same(before, after):
    """A last line without an end may have got one, since another line follows it now."""
    return before == after or (not before.endswith("\n") and after in (before + "\n", before + "\r\n"))
