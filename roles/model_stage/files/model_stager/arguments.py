"""What the verbs share on the command line: one model, and what is wished for it."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from model_stager.placing import Wishes
from model_stager.request import PATIENCE_S, STALL_S, UNNEEDED, Request, parse_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHM = Path("/dev/shm")  # noqa: S108 - the purpose


def seconds(least: float) -> Callable[[str], float]:
    """The type of an argument: a number that a clock can count to."""

    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= threading.TIMEOUT_MAX:
            raise argparse.ArgumentTypeError(f"{text} is no number of seconds from {least:g} on")
        return value

    return number


def whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


def wanted_parser() -> argparse.ArgumentParser:
    """The parent of the verbs that are about one model."""
    wanted = argparse.ArgumentParser(add_help=False)
    wanted.add_argument("--name", required=True, help="the model's name; it is published as ROOT/NAME/")
    wanted.add_argument("--root", type=Path, default=SHM, help="default: %(default)s")
    wanted.add_argument("--repo", help="organisation/model, for hf_cache and hub")
    wanted.add_argument("--revision", default="main", help="branch, tag or commit (default: %(default)s)")
    wanted.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="KIND=PLACE",
        help="hf_cache=/path, directory=/path, http=URL, hub or hub=URL; tried in order",
    )
    wanted.add_argument("--manifest", type=Path, help="what the model consists of (default: as sources say)")
    wanted.add_argument(
        "--include", action="append", metavar="PATTERN", help="only these files (default: all)"
    )
    wanted.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="not these (default: documents)"
    )
    wanted.add_argument("--token-file", type=Path, help="with the hub's token; only its owner may read it")
    wanted.add_argument(
        "--stall-s",
        type=seconds(0.001),
        default=STALL_S,
        help="leave a source that is silent for so long",
    )
    wanted.add_argument(
        "--patience-s", type=seconds(0), default=PATIENCE_S, help="how long a busy source is asked again"
    )
    wanted.add_argument("--reserve-bytes", type=whole(0), default=0, help="memory to be left for the engine")
    wanted.add_argument("--deep", action="store_true", help="hash everything, whatever the quick proof says")
    wanted.add_argument(
        "--state-dir", type=Path, help="serve from where it lies what can't be in memory; records go here"
    )
    wanted.add_argument("--disk-root", type=Path, help="stage here what can be neither in memory nor there")
    wanted.add_argument("--not-in-memory", action="store_true", help="serve it from a disk in any case")
    wanted.add_argument("--may-grow", action="store_true", help="the size of the tmpfs is no limit")
    wanted.add_argument("--reader", default="", help="the user who has to be able to read it on the disk")
    return wanted


def request_of(args: argparse.Namespace) -> Request:
    return Request(
        name=args.name,
        root=args.root,
        sources=tuple(parse_source(text) for text in args.source),
        repo=args.repo,
        revision=args.revision,
        manifest=args.manifest,
        include=tuple(args.include or ("*",)),
        exclude=tuple(UNNEEDED if args.exclude is None else filter(None, args.exclude)),
        reserve_bytes=args.reserve_bytes,
        token_file=args.token_file,
        stall_s=args.stall_s,
        patience_s=args.patience_s,
    )


def wishes_of(args: argparse.Namespace) -> Wishes:
    return Wishes(
        in_memory=not args.not_in_memory,
        may_grow=args.may_grow,
        state_dir=args.state_dir,
        disk_root=args.disk_root,
        reader=args.reader,
    )


def parse_wanted(arguments: Sequence[str]) -> argparse.Namespace:
    """From the list that a plan's file keeps of each model."""
    return argparse.ArgumentParser(parents=[wanted_parser()], exit_on_error=False).parse_args(list(arguments))
