"""A stand-in for pmxcfs: /etc/pve with its rules on modes, owners, links and sizes, over a folder on disk.

What it refuses is what the real one was seen to refuse. Not modelled: the cluster, quorum, and the instant
in which a file that is being renamed over cannot be found.
"""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any, NoReturn

from fusepy import FUSE, FuseOSError, Operations  # type: ignore[import-not-found]  # on the host only

MAX_BYTES = 1 << 20
FILE_MODE = 0o640
PRIVATE_MODE = 0o600


def refuse(number: int) -> NoReturn:
    raise FuseOSError(number)


class Pmxcfs(Operations):  # type: ignore[misc]  # fusepy has no types
    def __init__(self, store: Path, node: str) -> None:
        self.store = store
        self.group = grp.getgrnam("www-data").gr_gid
        self.links = {
            "/local": f"nodes/{node}",
            "/lxc": f"nodes/{node}/lxc",
            "/qemu-server": f"nodes/{node}/qemu-server",
        }

    def __call__(self, op: str, *args: Any) -> Any:
        try:
            return super().__call__(op, *args)
        except OSError as exc:
            raise FuseOSError(exc.errno or errno.EIO) from exc

    def place(self, path: str) -> Path:
        return self.store / path.lstrip("/")

    def mode(self, path: str) -> int:
        return PRIVATE_MODE if "/priv/" in path else FILE_MODE

    def init(self, _path: str) -> None:
        """The mount works from here on."""
        address = os.environ.get("NOTIFY_SOCKET")
        if address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.sendto(b"READY=1", address)

    # What is there

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, Any]:
        if path in self.links:
            return {"st_mode": stat.S_IFLNK | 0o755, "st_nlink": 1, "st_uid": 0, "st_gid": self.group}
        found = self.place(path).lstat()
        folder = stat.S_ISDIR(found.st_mode)
        return {
            "st_mode": stat.S_IFDIR | 0o755 if folder else stat.S_IFREG | self.mode(path),
            "st_nlink": 2 if folder else 1,
            "st_uid": 0,
            "st_gid": self.group,
            "st_size": 0 if folder else found.st_size,
            "st_blocks": (found.st_size + 511) // 512,
            "st_atime": found.st_mtime,
            "st_mtime": found.st_mtime,
            "st_ctime": found.st_ctime,
        }

    def readdir(self, path: str, _handle: int) -> list[str]:
        links = [link[1:] for link in self.links] if path == "/" else []
        return [".", "..", *links, *(entry.name for entry in self.place(path).iterdir())]

    def readlink(self, path: str) -> str:
        return self.links.get(path) or refuse(errno.EINVAL)

    def statfs(self, _path: str) -> dict[str, int]:
        blocks = 128 * MAX_BYTES // 4096
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": blocks, "f_bfree": blocks, "f_bavail": blocks}

    # Reading and writing

    def open(self, path: str, flags: int) -> int:
        if path in self.links:
            refuse(errno.ENOENT)
        return os.open(self.place(path), flags & ~(os.O_APPEND | os.O_NOFOLLOW))

    def create(self, path: str, _mode: int, _info: Any = None) -> int:
        """The mode that is asked for does not count: all files have the same."""
        return os.open(self.place(path), os.O_CREAT | os.O_RDWR, FILE_MODE)

    def read(self, _path: str, size: int, offset: int, handle: int) -> bytes:
        return os.pread(handle, size, offset)

    def write(self, _path: str, data: bytes, offset: int, handle: int) -> int:
        if offset + len(data) > MAX_BYTES:
            refuse(errno.EFBIG)
        return os.pwrite(handle, data, offset)

    def truncate(self, path: str, length: int, _handle: int | None = None) -> None:
        if length > MAX_BYTES:
            refuse(errno.EFBIG)
        os.truncate(self.place(path), length)

    def flush(self, _path: str, _handle: int) -> None:
        """Nothing is buffered here."""

    def fsync(self, _path: str, _data_only: int, handle: int) -> None:
        os.fsync(handle)

    def release(self, _path: str, handle: int) -> None:
        os.close(handle)

    def mkdir(self, path: str, _mode: int) -> None:
        self.place(path).mkdir()

    def rmdir(self, path: str) -> None:
        self.place(path).rmdir()

    def unlink(self, path: str) -> None:
        if path in self.links:
            refuse(errno.EPERM)
        self.place(path).unlink()

    def rename(self, old: str, new: str) -> None:
        if old in self.links or new in self.links:
            refuse(errno.EPERM)
        self.place(old).rename(self.place(new))

    def utimens(self, path: str, times: tuple[float, float] | None = None) -> None:
        os.utime(self.place(path), times)

    # What it refuses

    def chmod(self, path: str, mode: int) -> None:
        if mode != stat.S_IFREG | self.mode(path):
            refuse(errno.EPERM)

    def chown(self, _path: str, uid: int, gid: int) -> None:
        unchanged = {-1, 0xFFFFFFFF}
        if uid not in {0, *unchanged} or gid not in {self.group, *unchanged}:
            refuse(errno.EPERM)

    def link(self, _target: str, _source: str) -> None:
        refuse(errno.EPERM)

    def symlink(self, _target: str, _source: str) -> None:
        refuse(errno.EPERM)

    def mknod(self, _path: str, _mode: int, _device: int) -> None:
        refuse(errno.EPERM)

    def setxattr(self, _path: str, _name: str, _value: bytes, _options: int, _position: int = 0) -> None:
        refuse(errno.ENOTSUP)

    def getxattr(self, _path: str, _name: str, _position: int = 0) -> bytes:
        refuse(errno.ENOTSUP)

    def listxattr(self, _path: str) -> list[str]:
        refuse(errno.ENOTSUP)

    def removexattr(self, _path: str, _name: str) -> None:
        refuse(errno.ENOTSUP)


def main(store: str, mount: str) -> None:
    node = socket.gethostname()
    for folder in ("lxc", "qemu-server", "priv"):
        (Path(store) / "nodes" / node / folder).mkdir(parents=True, exist_ok=True)
    FUSE(
        Pmxcfs(Path(store), node),
        mount,
        foreground=True,
        fsname="/dev/fuse",
        subtype="pmxcfs",
        nonempty=True,
        allow_other=True,
        default_permissions=True,
        # No page cache, as on the real one: two nodes see one text; and a shared writable mapping is refused.
        direct_io=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
