"""Which keys Proxmox VE knows in a container's file, and what it says about the others.

Source: pve-container 6.1, `PVE::LXC::Config` (read, and recorded in tests/data/lxc-conf).
"""

from __future__ import annotations

import re

BOOLEAN_KEYS = frozenset(
    ("console", "debug", "ipmanagehost", "onboot", "protection", "template", "unprivileged")
)
INTEGER_KEYS = frozenset(("cores", "cpuunits", "memory", "snaptime", "swap", "tty"))
NUMBER_KEYS = frozenset(("cpulimit",))
STRING_KEYS = frozenset(
    (
        "arch",
        "cmode",
        "description",
        "entrypoint",
        "env",
        "features",
        "hookscript",
        "hostname",
        "lock",
        "nameserver",
        "ostype",
        "parent",
        "rootfs",
        "searchdomain",
        "startup",
        "tags",
        "timezone",
    )
)
NUMBERED_KEY = re.compile(r"(?:dev|mp|net|unused)\d+", re.ASCII)

_RAW_KEYS = frozenset(
    (
        "lxc.apparmor.allow_incomplete",
        "lxc.apparmor.allow_nesting",
        "lxc.apparmor.profile",
        "lxc.apparmor.raw",
        "lxc.arch",
        "lxc.autodev",
        "lxc.cap.drop",
        "lxc.cap.keep",
        "lxc.console.logfile",
        "lxc.console.path",
        "lxc.devtty.dir",
        "lxc.environment",
        "lxc.environment.hooks",
        "lxc.environment.runtime",
        "lxc.group",
        "lxc.hook.autodev",
        "lxc.hook.clone",
        "lxc.hook.destroy",
        "lxc.hook.mount",
        "lxc.hook.post-stop",
        "lxc.hook.pre-mount",
        "lxc.hook.pre-start",
        "lxc.hook.start",
        "lxc.hook.stop",
        "lxc.hook.version",
        "lxc.idmap",
        "lxc.include",
        "lxc.init.cmd",
        "lxc.init.cwd",
        "lxc.kmsg",
        "lxc.log.file",
        "lxc.log.level",
        "lxc.mount.auto",
        "lxc.mount.entry",
        "lxc.mount.fstab",
        "lxc.pty.max",
        "lxc.rootfs.mount",
        "lxc.seccomp.notify.cookie",
        "lxc.seccomp.notify.proxy",
        "lxc.seccomp.profile",
        "lxc.selinux.context",
        "lxc.signal.halt",
        "lxc.signal.reboot",
        "lxc.signal.stop",
        "lxc.start.auto",
        "lxc.start.delay",
        "lxc.start.order",
        "lxc.sysctl.fs.mqueue",
        "lxc.sysctl.kernel.msgmax",
        "lxc.sysctl.kernel.msgmnb",
        "lxc.sysctl.kernel.msgmni",
        "lxc.sysctl.kernel.sem",
        "lxc.sysctl.kernel.shm_rmid_forced",
        "lxc.sysctl.kernel.shmall",
        "lxc.sysctl.kernel.shmmax",
        "lxc.sysctl.kernel.shmmni",
        "lxc.tty.max",
        "lxc.uts.name",
    )
)
_RAW_PREFIXES = ("lxc.cgroup.", "lxc.cgroup2.", "lxc.net.", "lxc.prlimit.")
_REFUSED = {
    "lxc.rootfs.path": "lxc.rootfs.path is auto generated from rootfs",
    "lxc.rootfs.options": "lxc.rootfs.options is not supported, please use mount point options in the "
    '"rootfs" key',
}
# Names from before LXC 3: still read and kept, with a warning.
_RENAMED = {
    "lxc.aa_allow_incomplete": "lxc.apparmor.allow_incomplete",
    "lxc.aa_profile": "lxc.apparmor.profile",
    "lxc.console": "lxc.console.path",
    "lxc.devttydir": "lxc.tty.dir",
    "lxc.haltsignal": "lxc.signal.halt",
    "lxc.id_map": "lxc.idmap",
    "lxc.init_cmd": "lxc.init.cmd",
    "lxc.logfile": "lxc.log.file",
    "lxc.loglevel": "lxc.log.level",
    "lxc.mount": "lxc.mount.fstab",
    "lxc.network.flags": "lxc.net.INDEX.flags",
    "lxc.network.hwaddr": "lxc.net.INDEX.hwaddr",
    "lxc.network.ipv4": "lxc.net.INDEX.ipv4.address",
    "lxc.network.ipv4.gateway": "lxc.net.INDEX.ipv4.gateway",
    "lxc.network.ipv6": "lxc.net.INDEX.ipv6.address",
    "lxc.network.ipv6.gateway": "lxc.net.INDEX.ipv6.gateway",
    "lxc.network.link": "lxc.net.INDEX.link",
    "lxc.network.mtu": "lxc.net.INDEX.mtu",
    "lxc.network.name": "lxc.net.INDEX.name",
    "lxc.network.script.down": "lxc.net.INDEX.script.down",
    "lxc.network.script.up": "lxc.net.INDEX.script.up",
    "lxc.network.type": "lxc.net.INDEX.type",
    "lxc.pts": "lxc.pty.max",
    "lxc.rebootsignal": "lxc.signal.reboot",
    "lxc.se_context": "lxc.selinux.context",
    "lxc.seccomp": "lxc.seccomp.profile",
    "lxc.stopsignal": "lxc.signal.stop",
    "lxc.tty": "lxc.tty.max",
    "lxc.utsname": "lxc.uts.name",
}


def judge_raw_key(key: str) -> tuple[bool, str]:
    """(read, warning): whether Proxmox reads an `lxc.*` key, and what it prints about it ("" for nothing)."""
    if key in _REFUSED:
        return False, f"{key}: {_REFUSED[key]}"
    if key.startswith("lxc.limit."):
        return True, f"{key}: lxc.limit.* was renamed to lxc.prlimit.*"
    if key in _RENAMED:
        return True, f"{key} is deprecated and was renamed to {_RENAMED[key]}"
    if key.startswith("lxc.cgroup."):
        return True, f"{key} is deprecated, this will be a hard error in the future!"
    return key in _RAW_KEYS or key.startswith(_RAW_PREFIXES), ""


def read_value(key: str, value: str) -> tuple[str, str]:
    """(the value as Proxmox keeps it, its complaint or ""). A value it complains about is kept as it is."""
    if "\r" in value:
        return value, "property contains a line feed"
    kind = _kind(key)
    if kind == "boolean":
        return _read_boolean(value)
    if kind in _NUMBERS:
        if not re.fullmatch(_NUMBERS[kind], value, re.ASCII):
            return value, f"type check ('{kind}') failed - got '{value}'"
        return str(int(value)) if kind == "integer" else value, ""
    if kind == "device":
        return value, DeviceValue(value).complaint
    return value, "" if kind else f"unknown setting '{key}'"


_NUMBERS = {"integer": r"\d+", "number": r"\d+(\.\d+)?"}


def _kind(key: str) -> str:
    for kind, keys in (
        ("boolean", BOOLEAN_KEYS),
        ("integer", INTEGER_KEYS),
        ("number", NUMBER_KEYS),
        ("string", STRING_KEYS),
    ):
        if key in keys:
            return kind
    if not NUMBERED_KEY.fullmatch(key):
        return ""
    return "device" if key.startswith("dev") else "string"


def _read_boolean(value: str) -> tuple[str, str]:
    if value.lower() in ("1", "on", "yes", "true"):
        return "1", ""
    if value.lower() in ("0", "off", "no", "false"):
        return "0", ""
    return value, f"type check ('boolean') failed - got '{value}'"


class DeviceValue:
    """The value of a `devN` key: `[path=]/dev/x[,mode=0666][,uid=N][,gid=N][,deny-write=0|1]`."""

    _PATTERNS = {  # noqa: RUF012 - a table, never written to
        "path": (r"(?!.*/\.\.?(?:/|$))/dev/.*", "invalid format"),
        "mode": (r"0[0-7]{3}", "value does not match the regex pattern"),
        "uid": (r"\d+", "type check ('integer') failed"),
        "gid": (r"\d+", "type check ('integer') failed"),
        "deny-write": (r"(?i:0|1|on|off|yes|no|true|false)", "type check ('boolean') failed"),
    }

    def __init__(self, value: str) -> None:
        self.options: dict[str, str] = {}
        self.complaint = ""
        for part in value.split(","):
            name, sign, text = part.partition("=")
            if not sign:
                name, text = "path", part
            if name not in self._PATTERNS or name in self.options:
                known = name in self._PATTERNS
                why = "duplicate key in comma-separated list property" if known else "unknown property"
                self.complaint = self.complaint or f"format error\n{name}: {why}"
                continue
            pattern, why = self._PATTERNS[name]
            if not re.fullmatch(pattern, text, re.ASCII):
                self.complaint = self.complaint or f"format error\n{name}: {why}"
            self.options[name] = text
        if not self.path and not self.complaint:
            self.complaint = "format error\npath: Path has to be defined"

    @property
    def path(self) -> str:
        return self.options.get("path", "")

    @property
    def mode(self) -> str:
        return self.options.get("mode", "0660")  # Proxmox's own default

    @property
    def opens_for_all(self) -> bool:
        """Whether every user of the container may read and write the node."""
        denies = self.options.get("deny-write", "0").lower() in ("1", "on", "yes", "true")
        return not self.complaint and not denies and int(self.mode, 8) & 0o666 == 0o666  # noqa: PLR2004
