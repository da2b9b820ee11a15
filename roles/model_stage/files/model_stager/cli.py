"""The verbs: stage, check, verify, manifest create. Only here is anything printed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_stager import __version__, lock
from model_stager.errors import BadRequestError, StagerError
from model_stager.manifest import write_whole
from model_stager.outcome import Outcome, failure
from model_stager.plan import Plan, make_plan, require_possible
from model_stager.request import PATIENCE_S, STALL_S, UNNEEDED, Request, parse_source
from model_stager.staging import Options, stage
from model_stager.text import bytes_text, count_text, some_text
from model_stager.trusted import create_manifest, verify_published

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.2


def main(argv: list[str] | None = None) -> int:
    os.umask(0o022)  # another user serves what is staged here
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

    wanted = argparse.ArgumentParser(add_help=False)
    wanted.add_argument("--name", required=True, help="the model's name; it is published as ROOT/NAME/")
    wanted.add_argument("--root", type=Path, default=Path("/dev/shm"), help="default: %(default)s")  # noqa: S108 - the purpose
    wanted.add_argument("--repo", help="organisation/model, for hf_cache and hub")
    wanted.add_argument("--revision", default="main", help="branch, tag or commit (default: %(default)s)")
    wanted.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="KIND=PLACE",
        help="hf_cache=/path, directory=/path, http=URL, hub or hub=URL; tried in order",
    )
    wanted.add_argument("--manifest", type=Path, help="what the model consists of, when no source says it")
    wanted.add_argument(
        "--include", action="append", metavar="PATTERN", help="only these files (default: all)"
    )
    wanted.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="not these (default: documents)"
    )
    wanted.add_argument("--token-file", type=Path, help="with the hub's token; only its owner may read it")
    wanted.add_argument(
        "--stall-s", type=float, default=STALL_S, help="leave a source that gives no byte for so long"
    )
    wanted.add_argument(
        "--patience-s", type=float, default=PATIENCE_S, help="how long a busy source is asked again"
    )
    wanted.add_argument("--reserve-bytes", type=int, default=0, help="memory to be left for the engine")
    wanted.add_argument("--deep", action="store_true", help="hash everything, whatever the quick proof says")

    verb = verbs.add_parser("stage", parents=[wanted], help="make the model be there, whole and proven")
    verb.add_argument("--threads", type=int, default=max(2, min(4, os.cpu_count() or 2)))
    verb.add_argument("--wait-s", type=float, default=1.0, help="how long to wait for another stager")
    verb.add_argument(
        "--run", default=f"{time.time_ns()}-{os.getpid()}", help="an id for progress and result"
    )
    verb.set_defaults(work=_stage)

    verb = verbs.add_parser(
        "check", parents=[wanted], help="say as JSON what `stage` would do; write nothing"
    )
    verb.add_argument(
        "--before-bytes", type=int, default=0, help="what other models will take before this one"
    )
    verb.set_defaults(work=_check)

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


def _request(args: argparse.Namespace) -> Request:
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


def _stage(args: argparse.Namespace) -> int:
    request = _request(args)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        outcome = stage(request, Options(args.threads, args.wait_s, args.deep, args.run), stop)
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
        write_whole(request.state / "result.json", result)


def _check(args: argparse.Namespace) -> int:
    request = _request(args)
    started = time.perf_counter()
    plan = make_plan(request, deep=args.deep)
    seconds = time.perf_counter() - started
    if plan.action == "stage":
        partial = request.root / f"{request.name}.partial-{plan.manifest.digest[:12]}"
        found = require_possible(request, plan, plan.missing, partial, before_bytes=args.before_bytes)
    else:
        found = {}
    size = sum(entry.size_bytes or 0 for entry in plan.missing)
    answer = {
        "model": request.name,
        "path": str(request.published),
        "action": plan.action,
        "changes": plan.action == "stage" or (plan.action == "rehash" and not args.deep),
        "busy": lock.is_held(request.state / "lock"),
        "why": plan.why,
        "digest": plan.manifest.digest,
        "files": len(plan.manifest.files),
        "total_bytes": plan.manifest.total_bytes,
        "copy_files": len(plan.missing),
        "copy_bytes": size,
        "from": sorted(set(found.values())),
        "gone_on": str(plan.reasons),
        "seconds": round(seconds, 5),
        "summary": _would(request, plan, size, sorted(set(found.values())), seconds),
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _would(request: Request, plan: Plan, size: int, sources: list[str], seconds: float) -> str:
    if plan.action == "none":
        return Outcome("none", plan.manifest, [], seconds=seconds).sentence(request)
    reason = some_text(plan.why, 2)
    if plan.action == "rehash":
        files = count_text(len(plan.manifest.files), "file")
        return f"{request.name}: would hash {files} in {request.root} again ({reason})"
    given = some_text(sources) or "what is there already"
    return f"{request.name}: would copy {bytes_text(size)} from {given} into {request.root} ({reason})"


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
