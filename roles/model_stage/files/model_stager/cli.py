"""The verbs: stage, check, verify, manifest create. Only here is anything printed."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_stager import __version__, room_verbs
from model_stager.arguments import request_of, seconds, wanted_parser, whole, wishes_of
from model_stager.checking import check, refused
from model_stager.errors import BadRequestError, NoRoomError, StagerError
from model_stager.in_place import prove_in_place
from model_stager.inventory import renew
from model_stager.manifest import write_whole
from model_stager.outcome import failure
from model_stager.placing import IN_PLACE, place
from model_stager.staging import Options, stage
from model_stager.text import bytes_text, count_text
from model_stager.trusted import create_manifest, verify_published

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_stager.request import Request

POLL_S = 0.2


def main(argv: list[str] | None = None) -> int:
    os.umask(0o022)  # another user serves what is staged here
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name need not be text
    args = _parser().parse_args(argv)
    work: Callable[[argparse.Namespace], int] = args.work
    try:
        return work(args)
    except StagerError as exc:
        sys.stderr.write(f"model_stager: {exc}\n")
        return exc.exit_code
    except OSError as exc:
        sys.stderr.write(f"model_stager: {_os_error(exc)}\n")
        return 1


def _os_error(exc: OSError) -> str:
    return f"{exc.strerror or exc}{f' ({exc.filename})' if exc.filename else ''}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="model_stager", description="Stage model weights into memory, verified, and prove them later."
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    wanted = wanted_parser()
    verb = verbs.add_parser("stage", parents=[wanted], help="make the model be there, whole and proven")
    verb.add_argument(
        "--threads", type=whole(1), help="default: by the cores, 2 to 4; 8 where a source is on a network"
    )
    verb.add_argument("--wait-s", type=seconds(0), default=1.0, help="how long to wait for another stager")
    verb.add_argument(
        "--run", default=f"{time.time_ns()}-{os.getpid()}", help="an id for progress and result"
    )
    verb.set_defaults(work=_stage)

    verb = verbs.add_parser(
        "check", parents=[wanted], help="say as JSON what `stage` would do; write nothing"
    )
    verb.add_argument(
        "--before-bytes", type=whole(0), default=0, help="what other models will take before this one"
    )
    verb.add_argument(
        "--room-later", action="store_true", help="leave the question of room in memory to `arrange`"
    )
    verb.set_defaults(work=_check)

    room_verbs.add(verbs)

    verb = verbs.add_parser("verify", help="hold a published model against its record")
    verb.add_argument("--name", required=True)
    verb.add_argument("--root", type=Path, default=Path("/dev/shm"), help="default: %(default)s")  # noqa: S108 - the purpose
    verb.add_argument("--deep", action="store_true", help="hash everything")
    verb.set_defaults(work=_verify)

    verb = verbs.add_parser("serve", help="give published models to other nodes, read-only, until SIGTERM")
    verb.add_argument("--root", type=Path, default=Path("/dev/shm"), help="default: %(default)s")  # noqa: S108 - the purpose
    verb.add_argument("--listen", required=True, metavar="ADDRESS:PORT", help="port 0: any free one")
    verb.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="an address or network that may ask (default: this node alone)",
    )
    verb.set_defaults(work=_serve)

    manifests = verbs.add_parser("manifest", help="make a manifest").add_subparsers(
        required=True, metavar="VERB"
    )
    verb = manifests.add_parser("create", help="hash a copy that you trust")
    verb.add_argument("--from", dest="folder", type=Path, required=True)
    verb.add_argument("--name", help="default: the folder's name")
    verb.add_argument("--repo")
    verb.add_argument("--revision")
    verb.add_argument(
        "--output", type=Path, help="default: FOLDER.manifest.json, where a directory source looks"
    )
    verb.set_defaults(work=_create)
    return parser


def _threads(request: Request) -> int:
    """A disk is as fast as the cores can hash; over a network each connection has a speed of its own."""
    local = all(spec.kind in ("hf_cache", "directory", "absent") for spec in request.sources)
    return max(2, min(4, os.cpu_count() or 2)) if local else 8


def _stage(args: argparse.Namespace) -> int:
    request, wishes = request_of(args), wishes_of(args)
    threads = args.threads or _threads(request)
    options = Options(threads, args.wait_s, args.deep, args.run, args.stall_s, args.patience_s)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        placed = place(request, wishes, deep=args.deep)
        request = placed.request
        if placed.place == IN_PLACE:
            outcome = prove_in_place(request, options, stop, placed.plan, wishes.disk(placed.because))
        else:
            outcome = stage(request, options, stop, placed.plan.sources)
            outcome.because = placed.because
            renew(request.proof_path)
    except NoRoomError as exc:
        _keep_result(request, failure(request, args.run, exc.code, str(exc), exc.data()))
        raise
    except StagerError as exc:
        _keep_result(request, failure(request, args.run, exc.code, str(exc)))
        raise
    except OSError as exc:
        _keep_result(request, failure(request, args.run, "failed", f"{request.name}: {_os_error(exc)}"))
        raise
    _keep_result(request, outcome.to_json(request, args.run))
    sys.stdout.write(f"{outcome.sentence(request)}\n")
    return 0


def _keep_result(request: Request, result: dict[str, Any]) -> None:
    """Beside the progress file; without a state folder there was nothing to do, or no way to do it."""
    if request.state.is_dir() and os.access(request.state, os.W_OK):
        # A failure without room for its record is still told by message and exit code.
        with contextlib.nullcontext() if result["ok"] else contextlib.suppress(OSError):
            write_whole(request.state / "result.json", result)


def _check(args: argparse.Namespace) -> int:
    request, wishes = request_of(args), wishes_of(args)
    try:
        answer = check(
            request, wishes, deep=args.deep, before_bytes=args.before_bytes, room_later=args.room_later
        )
    except NoRoomError as exc:
        sys.stdout.write(json.dumps(refused(request, exc)) + "\n")
        raise
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _verify(args: argparse.Namespace) -> int:
    sys.stdout.write(verify_published(args.root, args.name, deep=args.deep) + "\n")
    return 0


def _serve(args: argparse.Namespace) -> int:
    from model_stager.serve import ModelServer  # noqa: PLC0415 - a proof from the disk needs no server

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ModelServer(args.root, args.listen, args.allow) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        thread.start()
        sys.stdout.write(f"the models in {args.root} are served on {server.address}\n")
        sys.stdout.flush()
        stop.wait()
        server.shutdown()
    return 0


def _create(args: argparse.Namespace) -> int:
    folder: Path = args.folder.resolve()
    manifest = create_manifest(folder, args.name or folder.name, args.repo, args.revision)
    output: Path = args.output or folder.with_name(f"{folder.name}.manifest.json")
    try:
        write_whole(output, manifest.to_json())
    except OSError as exc:
        raise BadRequestError(f"the manifest {output} can't be written: {exc.strerror}") from exc
    files = count_text(len(manifest.files), "file")
    sys.stdout.write(f"{output}: {files}, {bytes_text(manifest.total_bytes)}, digest {manifest.digest}\n")
    return 0
