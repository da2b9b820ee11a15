#!/usr/bin/env python3
"""llama.cpp's HTTP server from the xllamacpp wheel, with llama-server's own flag names.

The wheel carries the server as a library and no program. This is the missing program: it accepts only the
flags it really passes on, so that its --help can be used to check a configuration before it is deployed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

# Part of the engine's build name: raise it when a change here could change what is measured.
LAUNCHER_VERSION = 1
PACKAGE = "xllamacpp"

SPEC_TYPES = (
    "none",
    "draft-simple",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
NGRAM_LOOKUPS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")


def log(text: str) -> None:
    sys.stderr.write(f"llama_server: {text}\n")
    sys.stderr.flush()


def refuse(text: str, exit_status: int = 1) -> NoReturn:
    log(f"error: {text}")
    sys.exit(exit_status)


def build_name() -> str:
    """The engine build as results record it; reads package metadata only, so it is fast."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        refuse(f"the package {PACKAGE} is not installed for {sys.executable}", 2)
    return f"llama.cpp {PACKAGE} {version} launcher {LAUNCHER_VERSION}"


class _ShowVersion(argparse.Action):
    """Looks the version up only when asked: --help must work without the package's metadata."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:  # noqa: ANN401 - argparse's own signature
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **kwargs)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(build_name() + "\n")
        parser.exit()


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


# By group: names, kind of value (None: a bare flag), help. Defaults that aren't None are in DEFAULTS.
OPTIONS: dict[str, tuple[tuple[str, str | None, str], ...]] = {
    "server": (
        ("--model -m", "FILE", "GGUF file to serve (required)"),
        ("--alias -a", "NAME", "model name in the API (default: the file's name)"),
        ("--host", "ADDRESS", "address to listen on (default: 127.0.0.1)"),
        ("--port", "N", "port to listen on (default: 8080)"),
        ("--metrics", None, "serve Prometheus counters at /metrics"),
        ("--no-slots", None, "do not serve /slots"),
        ("--no-cache-prompt", None, "do not reuse a slot's prompt cache"),
        ("--no-warmup", None, "skip the empty run after loading"),
        ("--api-key-file", "FILE", "file with API keys, one a line (default: the unit's credential api_key)"),
    ),
    "size": (
        ("--ctx-size -c", "N", "context of all slots together (default: the model's)"),
        ("--parallel -np", "N", "slots: requests served at once (default: 1)"),
        ("--kv-unified", None, "one KV buffer that all slots share"),
        ("--batch-size -b", "N", "logical batch (default: 2048)"),
        ("--ubatch-size -ub", "N", "physical batch (default: 512)"),
        ("--threads -t", "N", "threads that generate (default: one a core)"),
        ("--threads-batch -tb", "N", "threads that read prompts (default: as --threads)"),
        ("--n-gpu-layers -ngl", "COUNT", "layers on a GPU, where there is one"),
    ),
    "speculative decoding": (
        ("--spec-type", "SPEC_TYPE", "where drafts come from (default: none)"),
        ("--model-draft --spec-draft-model -md", "FILE", "GGUF file of the draft model (draft-simple)"),
        ("--spec-draft-n-max --draft-max", "N", "most tokens in a draft (draft-simple)"),
        ("--spec-draft-n-min --draft-min", "COUNT", "fewest tokens in a draft (draft-simple)"),
        ("--spec-draft-p-min --draft-p-min", "P", "lowest probability of a drafted token (draft-simple)"),
        *(
            (f"--spec-{kind}-{name}", "N", f"{meaning} ({kind})")
            for kind in NGRAM_LOOKUPS
            for name, meaning in (
                ("size-n", "tokens to look up"),
                ("size-m", "tokens to draft"),
                ("min-hits", "occurrences needed"),
            )
        ),
        ("--spec-ngram-mod-n-match", "N", "tokens to look up (ngram-mod)"),
        ("--spec-ngram-mod-n-min", "N", "fewest tokens in a draft (ngram-mod)"),
        ("--spec-ngram-mod-n-max", "N", "most tokens in a draft (ngram-mod)"),
    ),
}
DEFAULTS = {
    "host": "127.0.0.1",
    "port": 8080,
    "parallel": 1,
    "batch_size": 2048,
    "ubatch_size": 512,
    "spec_type": "none",
}
TYPES: dict[str, Any] = {"N": positive, "COUNT": int, "P": float}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llama_server.py",
        description="llama.cpp's HTTP server through xllamacpp, with llama-server's flag names.",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=110),
    )
    parser.add_argument("--version", action=_ShowVersion, help="print the engine build and exit")
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for names, kind, meaning in options:
            if kind is None:
                group.add_argument(*names.split(), action="store_true", help=meaning)
            elif kind == "SPEC_TYPE":
                group.add_argument(*names.split(), choices=SPEC_TYPES, help=meaning)
            else:
                required = names.startswith("--model ")
                group.add_argument(
                    *names.split(), metavar=kind, type=TYPES.get(kind, str), required=required, help=meaning
                )
    parser.set_defaults(**DEFAULTS)
    return parser


def check(options: argparse.Namespace) -> None:
    """Refuse what would only fail, or be ignored, deep inside the engine."""
    for flag, path in (
        ("--model", options.model),
        ("--model-draft", options.model_draft),
        ("--api-key-file", options.api_key_file),
    ):
        if path is not None and not Path(path).is_file():
            refuse(f"{flag}: {path} is not a file", 2)
        if path is not None and not os.access(path, os.R_OK):
            refuse(f"{flag}: {path} cannot be read by user id {os.geteuid()}", 2)
    if (options.spec_type == "draft-simple") != (options.model_draft is not None):
        refuse("--spec-type draft-simple and --model-draft belong together: give both or none", 2)
    kinds = {"draft": "draft-simple", "ngram_mod": "ngram-mod"} | {
        kind.replace("-", "_"): kind for kind in NGRAM_LOOKUPS
    }
    for name, value in vars(options).items():
        if value is None or not name.startswith("spec_") or name == "spec_type":
            continue
        # The longest match: ngram_map_k is the beginning of ngram_map_k4v.
        kind = kinds[max((kind for kind in kinds if name.startswith(f"spec_{kind}_")), key=len)]
        if kind != options.spec_type:
            refuse(
                f"--{name.replace('_', '-')} belongs to --spec-type {kind} and has no effect with"
                f" {options.spec_type}",
                2,
            )


def speculative(xllamacpp: Any, params: Any, options: argparse.Namespace) -> None:  # noqa: ANN401 - a C extension without types
    if options.spec_type == "none":
        return
    spec = params.speculative
    kind = options.spec_type.replace("-", "_")
    spec.types = [getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind.upper()}")]
    target = spec.draft if options.spec_type == "draft-simple" else getattr(spec, kind)
    prefix = "spec_draft_" if options.spec_type == "draft-simple" else f"spec_{kind}_"
    for name, value in vars(options).items():
        if name.startswith(prefix) and value is not None:
            setattr(target, name[len(prefix) :], value)
    if options.model_draft:
        spec.draft.mparams.path = options.model_draft
        spec.draft.cpuparams.n_threads = params.cpuparams.n_threads
        spec.draft.cpuparams_batch.n_threads = params.cpuparams_batch.n_threads


def build_params(xllamacpp: Any, options: argparse.Namespace) -> Any:  # noqa: ANN401 - a C extension without types
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias or Path(options.model).stem}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size or 0  # 0: the model's own
    params.n_parallel = options.parallel
    params.kv_unified = options.kv_unified
    params.n_batch = options.batch_size
    params.n_ubatch = options.ubatch_size
    threads = options.threads or len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = options.threads_batch or threads
    if options.n_gpu_layers is not None:
        params.n_gpu_layers = options.n_gpu_layers
    params.endpoint_metrics = options.metrics
    params.endpoint_slots = not options.no_slots
    params.endpoint_props = True
    params.cache_prompt = not options.no_cache_prompt
    params.warmup = not options.no_warmup
    params.ui = False
    if options.api_key_file:
        params.api_keys = Path(options.api_key_file).read_text(encoding="utf-8").split()
    speculative(xllamacpp, params, options)
    return params


def credential(name: str) -> str | None:
    """The file of a secret that systemd loaded for this unit (LoadCredential=)."""
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / name
    return str(path) if path.is_file() else None


def main(argv: Sequence[str] | None = None) -> int:
    options = build_parser().parse_args(argv)
    options.api_key_file = options.api_key_file or credential("api_key")
    check(options)
    log(f"build: {build_name()}")
    given = {
        name: value
        for name, value in sorted(vars(options).items())
        if value is not None and value is not False
    }
    log("settings: " + " ".join(f"{name}={value}" for name, value in given.items()))
    import xllamacpp  # noqa: PLC0415 - --help and --version must not load the engine

    started = time.monotonic()
    log(f"loading {options.model}")
    try:
        server = xllamacpp.Server(build_params(xllamacpp, options))
    except Exception as exc:  # noqa: BLE001 - the extension raises bare exceptions of several types; all end the start
        refuse(f"the server did not start with {options.model} on {options.host}:{options.port}: {exc}")
    # Only now: while the engine loads no Python handler could run, and the default ends the process at once.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log(f"listening on {server.listening_address} after {time.monotonic() - started:.2f} s")
    stop.wait()
    log("stopped by a signal")
    # The extension's threads are still serving; tearing them down can block for as long as a request runs.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
