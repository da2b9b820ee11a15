"""Give published models to other nodes: read-only, whole models only, nothing but their files."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import socket
import stat
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Union
from urllib.parse import unquote, urlsplit

from model_stager import __version__, proof
from model_stager.errors import BadRequestError
from model_stager.manifest import FileEntry, Manifest, read_manifest
from model_stager.request import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

IDLE_S = 60.0  # a connection on which nothing is asked, or which takes nothing, is closed
BLOCK = 8 << 20
MOST = 64  # connections at the same time
RANGE = re.compile(r"^bytes=(\d*)-(\d*)$")
SUFFIX = ".manifest.json"
INSIDE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotServedError(Exception):
    """What was asked for is not given; the status says why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Shelf:
    """The published models below the root, each only while its quick proof holds."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def manifest(self, name: str) -> Manifest:
        """Of a model that is whole now; what is being staged, or was touched, is not there."""
        if not NAME.match(name):
            raise NotServedError(HTTPStatus.NOT_FOUND, "no such model")
        try:
            manifest = read_manifest(self._root / f"{name}{SUFFIX}")
            record = proof.read(self._root / f"{name}.proof.json")
            whole = proof.compare(self._root / name, record, manifest.digest).proven
        except (BadRequestError, OSError):
            whole = False
        if not whole:
            raise NotServedError(HTTPStatus.NOT_FOUND, "no such model, or it is not whole")
        return manifest

    def open(self, name: str, file: str) -> tuple[int, FileEntry]:
        """A descriptor of one file of the manifest; links are not followed, at no step of its path."""
        entry = next((entry for entry in self.manifest(name).files if entry.name == file), None)
        if entry is None:
            raise NotServedError(HTTPStatus.NOT_FOUND, "the model has no such file")
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *folders, last = (name, *Path(file).parts)
            for step in folders:
                inside = os.open(step, INSIDE | os.O_DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = inside
            descriptor = os.open(last, INSIDE, dir_fd=folder)
        except OSError as exc:
            raise NotServedError(HTTPStatus.NOT_FOUND, "the file can't be opened") from exc
        finally:
            os.close(folder)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size != entry.size_bytes:
            os.close(descriptor)
            raise NotServedError(HTTPStatus.NOT_FOUND, "the file was changed")
        return descriptor, entry


class Handler(BaseHTTPRequestHandler):
    """`/NAME.manifest.json` and `/NAME/FILE`, where a source of kind http looks for them."""

    protocol_version = "HTTP/1.1"
    server_version = f"model_stager/{__version__}"
    sys_version = ""
    timeout = IDLE_S
    server: ModelServer

    def do_GET(self) -> None:
        try:
            self._give(unquote(urlsplit(self.path).path).lstrip("/"))
        except NotServedError as exc:
            self._send(exc.status, f"{exc}\n".encode(), {"Content-Type": "text/plain"})
        except (ConnectionError, socket.timeout):  # the other side has gone
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _give(self, path: str) -> None:
        if not self.server.allows(self.client_address[0]):
            raise NotServedError(HTTPStatus.FORBIDDEN, "this address may not ask here (--allow)")
        name, slash, file = path.partition("/")
        if not slash and name.endswith(SUFFIX):
            manifest = self.server.shelf.manifest(name[: -len(SUFFIX)])
            body = (json.dumps(manifest.to_json(), indent=1) + "\n").encode()
            self._send(HTTPStatus.OK, body, {"Content-Type": "application/json"})
            return
        descriptor, entry = self.server.shelf.open(name, file)
        try:
            self._send_file(descriptor, entry)
        finally:
            os.close(descriptor)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()

    def _send_file(self, descriptor: int, entry: FileEntry) -> None:
        size, etag = entry.size_bytes or 0, f'"{entry.sha256}"'
        part = None
        if self.headers.get("If-Range") in (None, etag):
            part = parse_range(self.headers.get("Range") or "", size)
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", "ETag": etag}
        start, end = part or (0, size)
        if part is not None and start >= end:
            headers.update({"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers)
            return
        if part is not None:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        headers["Content-Length"] = str(end - start)
        self._head(HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT, headers)
        if self.command == "HEAD":
            return
        self.wfile.flush()
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            self.connection.sendfile(stream, start, end - start)

    def log_message(self, *_: object) -> None:
        """A campaign's worth of parts would drown the journal."""


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Start and end of one range, the end not included; None for no range, or for several at once."""
    found = RANGE.match(text)
    if not found or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


class ModelServer(ThreadingHTTPServer):
    """A thread a connection, so many at most; ends at once when told to, whatever is being sent."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, root: Path, listen: str, allow: Iterable[str]) -> None:
        if not root.is_dir():
            raise BadRequestError(f"the folder of the models, {root}, does not exist")
        host, port = parse_listen(listen)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.shelf = Shelf(root)
        self._allowed = [parse_network(text) for text in allow] or [
            ipaddress.ip_network("127.0.0.0/8"),
            ipaddress.ip_network("::1/128"),
        ]
        self._places = threading.BoundedSemaphore(MOST)
        try:
            super().__init__((host, port), Handler)
        except OSError as exc:
            raise BadRequestError(f"can't listen on {listen}: {exc.strerror}") from exc

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        shown = host.decode() if isinstance(host, bytes) else str(host)
        return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"

    def allows(self, text: str) -> bool:
        address = ipaddress.ip_address(text.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._allowed)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        with self._places:
            super().process_request_thread(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """A node that goes away in the middle is no fault of this one."""


def parse_listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        if 0 <= int(port) <= 65535:  # noqa: PLR2004 - ports end there
            return host, int(port)
    raise BadRequestError(f"--listen {text!r} is no address and port, as 10.0.0.5:8377 or [fd00::5]:8377")


def parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as exc:
        raise BadRequestError(f"--allow {text!r} is no address or network ({exc})") from exc
