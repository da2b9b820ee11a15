"""Random container files: real lines, nearly real ones, and noise, put together by a seed."""

import random

LINES = (
    b"arch: amd64",
    b"cores: 32",
    b"memory: 8192",
    b"hostname: ct200",
    b"unprivileged: 1",
    b"unprivileged: 0",
    b"onboot: yes",
    b"rootfs: local-zfs:subvol-200-disk-0,size=200G",
    b"dev0: /dev/nvidia-uvm,mode=0666",
    b"dev0: /dev/nvidia-uvm,mode=666",
    b"dev1: /dev/nvidia0",
    b"dev1: path=/dev/nvidiactl,mode=0660,gid=44",
    b"dev7: /dev/kvm",
    b"dev: x",
    b"gpu: yes",
    b"description: a%3Ab",
    b"snapstate: delete",
    b"delete: dev0",
    b"parent: before",
    b"lxc.cgroup2.devices.allow: c 195:* rwm",
    b"lxc.cgroup2.devices.allow: c 195:0 rw",
    b"lxc.cgroup2.devices.allow: c 195:* r",
    b"lxc.cgroup2.devices.allow: c 509:* rwm",
    b"lxc.cgroup2.devices.allow = c 511:* rwm",
    b"lxc.cgroup2.devices.allow:c 234:* rwm  ",
    b"lxc.cgroup2.devices.allow: c  511:* rwm",
    b"lxc.cgroup2.devices.allow: c 1ff:* rwm",
    b"lxc.cgroup2.devices.allow: c 188:* rw # serial",
    b"lxc.cgroup2.devices.allow: c 10:200 rwm",
    b"lxc.cgroup2.devices.allow: c 240:* rwm",
    b"lxc.cgroup2.devices.allow: a",
    b"lxc.cgroup2.devices.deny: a",
    b"lxc.cgroup2.devices.deny: c 195:* rwm",
    b"lxc.cgroup2.devices.allow: what",
    b"lxc.cgroup.devices.allow: c 511:* rwm",
    b" lxc.cgroup2.devices.allow: c 511:* rwm",
    b"LXC.cgroup2.devices.allow: c 511:* rwm",
    b"lxc.cgroup2.devices.allow : c 511:* rwm",
    b"lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file",
    b"lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file",
    b"lxc.mount.entry: /dev/nvidia1 nvidia1 none bind",
    b"lxc.mount.entry: /dev/dri dev/dri none bind,optional,create=dir",
    b"lxc.mount.entry: /dev dev none bind",
    b"lxc.mount.entry: x",
    b"lxc.hook.mount: /usr/share/lxc/hooks/nvidia",
    b"lxc.idmap: u 0 100000 65536",
    b"lxc.rootfs.path: /x",
    b"lxc.unknown.key: 1",
    b"# a comment: with a colon",
    b"#\xe9\xff not utf-8",
    b"\xef\xbb\xbfarch: amd64",
    b"hostname: \xc3\xbc\xff",
    b"[before]",
    b"[before]  ",
    b"[1bad]",
    b"[pve:pending]",
    b"[PVE:pending]",
    b"",
    b"   ",
    b"\t",
)
ENDS = (b"\n", b"\n", b"\n", b"\n", b"\r\n", b"\n\n")


def random_file(seed: int) -> bytes:
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    pieces = []
    for _ in range(rng.randrange(24)):
        line = rng.choice(LINES)
        if rng.random() < 0.08:
            line = rng.randbytes(rng.randrange(12))
        if rng.random() < 0.05 and line:
            at = rng.randrange(len(line))
            line = line[:at] + rng.randbytes(1) + line[at + 1 :]
        pieces.append(line + rng.choice(ENDS))
    raw = b"".join(pieces)
    return raw.rstrip(b"\n") if rng.random() < 0.2 else raw
