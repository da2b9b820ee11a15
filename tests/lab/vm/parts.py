"""What the VM is made of, built once into the cache: kernel, initial root, driver modules, tree as disk.

The kernel's packages are only unpacked there: installed, they would change what this machine boots.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import drivers, paths, rootfs
from tests.lab.console import complain
from tests.lab.errors import LabError
from tests.lab.vm import cpio

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
NATIVE = HERE / "native"
IMAGE = "linux-image-cloud-amd64"
# Needed before systemd runs, or by it and LXC: all are loaded by the initial root.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "overlay", "bridge", "veth", "fuse", "autofs4")
MINIMUM_FREE_MIB = 1200


@dataclass(frozen=True)
class Parts:
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initial_root(self) -> Path:
        return self.folder / "initrd"

    @property
    def tree_disk(self) -> Path:
        return self.folder / "tree.img"

    @property
    def host_files(self) -> Path:
        """What the host has on its disk because it is a VM: kmod and the driver's modules."""
        return self.folder / "files"


def present() -> Parts:
    parts = Parts(paths.cache_dir() / f"vm-{_digest()}")
    if not parts.folder.is_dir():
        raise LabError(f"{parts.folder} is missing; `python -m tests.lab.vm fetch` builds it (by network)")
    return parts


def fetch() -> Parts:
    """The parts of the present recipe; built first when the cache lacks them, which needs the network."""
    tree = rootfs.ensure_tree()
    folder = paths.cache_dir() / f"vm-{_digest()}"
    if not folder.is_dir():
        free_mib = shutil.disk_usage(folder.parent).free // 2**20
        if free_mib < MINIMUM_FREE_MIB:
            raise LabError(
                f"{folder.parent} has {free_mib} MiB free, building the VM needs {MINIMUM_FREE_MIB}"
            )
        complain(f"building the VM's parts in {folder} (once, 20 to 60 s)")
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.partial-", dir=folder.parent) as scratch:
            partial = Path(scratch) / "parts"
            partial.mkdir()
            _build(Path(scratch), partial, tree)
            partial.rename(folder)
    return Parts(folder)


def _digest() -> str:
    recipe = hashlib.sha256()
    for path in sorted(path for path in (*NATIVE.rglob("*"), Path(__file__)) if path.is_file()):
        recipe.update(path.read_bytes())
    recipe.update(json.dumps([rootfs.recipe_digest(), drivers.DRIVER_VERSION]).encode())
    return recipe.hexdigest()[:16]


def _build(scratch: Path, target: Path, tree: Path) -> None:
    unpacked = scratch / "unpacked"
    version = _unpack_packages(scratch, unpacked)
    shutil.copyfile(unpacked / "boot" / f"vmlinuz-{version}", target / "vmlinuz")
    _build_initial_root(unpacked / "lib/modules" / version, scratch, target / "initrd")
    _build_host_files(unpacked, version, scratch, target / "files")
    make_disk(tree, target / "tree.img", _tree_mib(tree))


def _unpack_packages(scratch: Path, target: Path) -> str:
    """Download the kernel and what its modules are built with, and unpack them; the kernel's version."""
    shown = _run(["apt-cache", "depends", "--important", IMAGE])
    found = re.search(r"Depends: linux-image-(\S+)", shown)
    if not found:
        raise LabError(f"apt knows no {IMAGE}: the VM tier needs Debian on amd64, and `apt-get update`")
    version = found[1]
    release = version.split("-")[0].rpartition(".")[0]
    names = [
        f"linux-image-{version}",
        f"linux-headers-{version}",
        f"linux-kbuild-{release}",
        "kmod",
        "libkmod2",
    ]
    names.append(f"linux-headers-{version.removesuffix('-cloud-amd64')}-common")
    _run(["apt-get", "download", "-qq", *names], folder=scratch)
    for package in scratch.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), str(target)])
    return version


def _build_initial_root(modules: Path, scratch: Path, target: Path) -> None:
    program = scratch / "init"
    _run(["gcc", "-O1", "-static", "-Wall", "-o", str(program), str(NATIVE / "init.c")])
    files = {"init": program.read_bytes()}
    known = {path.stem.replace("-", "_"): path for path in modules.rglob("*.ko")}
    for number, name in enumerate(_in_order(known, BOOT_MODULES)):
        files[f"modules/{number:02}-{name}.ko"] = known[name].read_bytes()
    cpio.write(target, ["dev", "modules"], files)


def _in_order(known: dict[str, Path], wanted: Sequence[str]) -> list[str]:
    """The modules and what they need, each after what it needs; what isn't there is in the kernel itself."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name not in known:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", known[name].read_bytes())
        for need in needs[1].decode().split(",") if needs else ():
            add(need.replace("-", "_"))
        order.append(name)

    for name in wanted:
        add(name)
    return order


def _build_host_files(unpacked: Path, version: str, scratch: Path, target: Path) -> None:
    built = _build_driver(unpacked, version, scratch / "module")
    modules = target / "usr/lib/modules" / version
    (modules / "updates/dkms").mkdir(parents=True)
    for path in built.glob("*.ko"):
        shutil.copyfile(path, modules / "updates/dkms" / path.name)
    for name in ("modules.builtin", "modules.builtin.modinfo"):
        shutil.copyfile(unpacked / "lib/modules" / version / name, modules / name)
    (modules / "modules.order").touch()
    for folder in ("bin", "sbin"):
        (target / "usr" / folder).mkdir()
    shutil.copy2(unpacked / "bin/kmod", target / "usr/bin/kmod")
    for name in ("depmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod"):
        (target / "usr/sbin" / name).symlink_to("../bin/kmod")
    library = unpacked / "usr/lib/x86_64-linux-gnu"
    # kmod is what it is called: here depmod, which tells modprobe what there is.
    _run(
        [
            "env",
            f"LD_LIBRARY_PATH={library}",
            str(target / "usr/sbin/depmod"),
            "-b",
            str(target / "usr"),
            version,
        ]
    )


def _build_driver(unpacked: Path, version: str, folder: Path) -> Path:
    shutil.copytree(NATIVE / "module", folder)
    headers = unpacked / "usr/src" / f"linux-headers-{version}"
    # The one absolute path in the packages: where the common headers will be installed.
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{unpacked}/usr/src/"))
    version_flag = f'-DLAB_DRIVER_VERSION=\\"{drivers.DRIVER_VERSION}\\"'
    _run(["make", "-C", str(headers), f"M={folder}", f"KCPPFLAGS={version_flag}", "modules"])
    return folder


def _tree_mib(tree: Path) -> int:
    used_kib = int(_run(["du", "-sk", str(tree)]).split()[0])
    return used_kib * 5 // 4096 + 64


def make_disk(content: Path, image: Path, size_mib: int) -> None:
    """An ext4 disk image with what is in this folder."""
    _run(
        ["mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", str(content), str(image), f"{size_mib}M"]
    )


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-12:])
        raise LabError(f"`{' '.join(command[:3])} …` failed ({done.returncode}):\n{tail}")
    return done.stdout
