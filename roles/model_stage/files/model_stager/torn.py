"""Name a file that is not what its name says, by looking at a few kilobytes of it."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from model_stager.errors import SourceUnusableError

if TYPE_CHECKING:
    from pathlib import Path

    from model_stager.manifest import FileEntry

LFS = b"version https://git-lfs.github.com/spec/"
SAMPLE = 4096
MAX_HEADER = 100_000_000  # the limit that the safetensors library itself sets


def require_sound(path: Path, entry: FileEntry) -> None:
    """Raise with the reason when the file can't be the one that the manifest means."""
    try:
        size = path.stat().st_size
        reason = torn_reason(path, entry.name)
    except PermissionError as exc:
        raise SourceUnusableError(
            f"{entry.name} can't be read by uid {os.geteuid()}: {exc.strerror}"
        ) from exc
    except OSError as exc:
        raise SourceUnusableError(f"{entry.name} can't be read: {exc.strerror}") from exc
    if entry.size_bytes is not None and size != entry.size_bytes:
        wrong = f"{entry.name} has {size} bytes, the manifest says {entry.size_bytes}"
        raise SourceUnusableError(f"{wrong}: {reason}" if reason else wrong)
    if reason:
        raise SourceUnusableError(f"{entry.name}: {reason}")


def torn_reason(path: Path, name: str) -> str | None:
    """What the file is instead of what its name says."""
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(SAMPLE)
        middle = _read_at(stream.fileno(), size // 2)
        tail = _read_at(stream.fileno(), max(0, size - SAMPLE))
        return _torn(name, size, (head, middle, tail), stream.fileno())


def _read_at(descriptor: int, offset: int) -> bytes:
    return os.pread(descriptor, SAMPLE, offset)


def _torn(name: str, size: int, samples: tuple[bytes, bytes, bytes], descriptor: int) -> str | None:
    head = samples[0]
    if head.startswith(LFS):
        return "it is a Git LFS pointer, not the file itself"
    if name.endswith((".safetensors", ".gguf", ".bin", ".json", ".model")):
        start = head.lstrip()[:15].lower()
        if start.startswith((b"<!doctype html", b"<html")):
            return "it is an HTML page, most likely an error that was saved as the file"
    if size and not any(any(sample) for sample in samples):
        return "it holds only zeros where it was looked at"
    if name.endswith(".safetensors"):
        return _torn_safetensors(size, head, descriptor)
    if name.endswith(".gguf") and not head.startswith(b"GGUF"):
        return "it does not start as a GGUF file does"
    return None


def _torn_safetensors(size: int, head: bytes, descriptor: int) -> str | None:
    """The header names the last byte that the file must have."""
    length = int.from_bytes(head[:8], "little")
    if size < 8 or length > min(MAX_HEADER, size - 8):  # noqa: PLR2004 - the length's own 8 bytes
        return "it is too short for its safetensors header"
    try:
        header = json.loads(os.pread(descriptor, length, 8))
        ends = [info["data_offsets"][1] for key, info in header.items() if key != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return "its safetensors header can't be read"
    expected = 8 + length + max(ends, default=0)
    if expected != size:
        return f"its safetensors header asks for {expected} bytes, it has {size}"
    return None


def missing_parts(names: set[str], indexes: list[bytes]) -> list[str]:
    """What the model can't be loaded without and its list lacks; an engine would say so after minutes."""
    lacks = set()
    if any(name.endswith(".safetensors") for name in names) and "config.json" not in names:
        lacks.add("config.json")
    for raw in indexes:
        try:
            lacks |= set(json.loads(raw)["weight_map"].values()) - names
        except (ValueError, KeyError, TypeError, AttributeError):  # noqa: PERF203 - one index may be torn
            lacks.add("a *.safetensors.index.json that can be read")
    return sorted(lacks)


TOKENIZERS = re.compile(
    r"tokenizer\.(json|model)|vocab\.(json|txt)|(.*\.)?tiktoken(\.model)?|tekken\.json|spiece\.model|.*\.spm"
)
SPEAKS = ("ForCausalLM", "ForConditionalGeneration")


def without_tokenizer(names: set[str], config: bytes) -> str | None:
    """Not refused: some draft models have none, and are not told apart by their config."""
    try:
        architectures = json.loads(config)["architectures"]
        speaks = any(str(name).endswith(SPEAKS) for name in architectures)
    except (ValueError, KeyError, TypeError):
        return None
    if not speaks or any(TOKENIZERS.fullmatch(name) for name in names):
        return None
    return (
        "no tokenizer is among its files (tokenizer.json, tokenizer.model or the like): only a draft model "
        "can be used without one"
    )
