"""`python3 -m kernel boot|modprobe|nvidia-modprobe|modinfo …`, in /usr/local/lib/lab on the host."""

import sys

from . import modules


def main(verb: str, *arguments: str) -> int:
    if verb == "boot":
        from .boot import boot  # noqa: PLC0415 (needs nvidia_smi, which the other verbs do without)

        boot()
        return 0
    tools = {
        "modprobe": modules.modprobe,
        "nvidia-modprobe": modules.nvidia_modprobe,
        "modinfo": modules.modinfo,
    }
    return tools[verb](list(arguments))


raise SystemExit(main(*sys.argv[1:]))
