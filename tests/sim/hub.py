"""A server shaped like the Hugging Face hub, with a second port in the CDN's place, and faults by name.

huggingface_hub's own client works against it. In a test it is a context manager; as a program,
`python -m tests.sim.hub --folder DIR --repo ORG/NAME`, it serves a folder until SIGTERM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.sim.faulty_http import Fault, FaultyHandler, FaultyServer

COMMIT = "5eed" + "0" * 36
LARGE = (".safetensors", ".gguf", ".bin")  # kept in LFS, so served by the CDN


@dataclass
class Model:
    """One repository with one commit; what a token may do with it."""

    files: dict[str, bytes]
    repo: str = "lab/tiny"
    branches: tuple[str, ...] = ("main",)
    tokens: dict[str, bool] | None = None  # token → whether its account accepted the licence; None: public
    gated: bool = False
    page: int = 1000  # entries of a list in one answer

    def commit(self, revision: str) -> str | None:
        return COMMIT if revision in (*self.branches, COMMIT) else None

    def entry(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": git}
        if name.endswith(LARGE):
            entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
        return entry


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class HubHandler(FaultyHandler):
    server: HubServer

    def route(self, fault: Fault | None) -> None:
        model, path = self.server.model, unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            self.api(model, path.removeprefix("/api/models/"))
            return
        found = re.fullmatch(rf"/{re.escape(model.repo)}/resolve/([^/]+)/(.+)", path)
        if not found:
            self.refuse(404, "RepoNotFound")
        elif self.may_have_files():
            self.resolve(model, found[1], found[2], fault)

    def refuse(self, status: int, code: str = "", **headers: str) -> None:
        extra = {"X-Error-Code": code} if code else {}
        body = json.dumps({"error": code or "Invalid username or password."}).encode()
        self.answer(status, b"" if self.command == "HEAD" else body, {**extra, **headers})

    def json(self, value: object, **headers: str) -> None:
        self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})

    def may_see(self) -> bool:
        """As the hub: a private model is not there for who may not see it."""
        tokens = self.server.model.tokens
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if given and given not in (tokens or {}):
            self.refuse(401)
            return False
        if tokens is not None and not given and not self.server.model.gated:
            self.refuse(401, "RepoNotFound")
            return False
        return True

    def may_have_files(self) -> bool:
        model = self.server.model
        if not self.may_see():
            return False
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if model.gated and not (model.tokens or {}).get(given):
            self.refuse(403 if given else 401, "GatedRepo")
            return False
        return True

    def api(self, model: Model, path: str) -> None:
        if not self.may_see():
            return
        if not re.match(rf"{re.escape(model.repo)}(/|$)", path):
            self.refuse(401 if model.tokens is None else 404, "RepoNotFound")
            return
        verb, _, rest = path.removeprefix(model.repo).lstrip("/").partition("/")
        if verb == "refs":
            refs = ((name, f"refs/heads/{name}") for name in model.branches)
            branches = [{"name": name, "ref": ref, "targetCommit": COMMIT} for name, ref in refs]
            self.json({"branches": branches, "tags": [], "converts": []})
            return
        commit = model.commit(rest.partition("/")[0] or "main")
        if commit is None:
            self.refuse(404, "RevisionNotFound")
        elif verb == "tree":
            self.tree(model)
        else:
            siblings = [{"rfilename": name} for name in model.files]
            self.json({"id": model.repo, "modelId": model.repo, "sha": commit, "private": False,
                       "tags": [], "downloads": 0, "likes": 0, "siblings": siblings})  # fmt: skip

    def tree(self, model: Model) -> None:
        """In pages, with the next one's address in the Link header."""
        names = sorted(model.files)
        at = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        more = {}
        if at + model.page < len(names):
            here = f"{self.server.list_url or self.server.url}{urlsplit(self.path).path}"
            more["Link"] = f'<{here}?recursive=true&cursor={at + model.page}>; rel="next"'
        self.json([model.entry(name) for name in names[at : at + model.page]], **more)

    def resolve(self, model: Model, revision: str, name: str, fault: Fault | None) -> None:
        commit = model.commit(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound")
            return
        if name not in model.files:
            self.refuse(404, "EntryNotFound", **{"X-Repo-Commit": commit})
            return
        content, entry = model.files[name], model.entry(name)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{entry["oid"]}"'}
        if "lfs" in entry:
            more = bool(fault and fault.name == "wrong_total")
            headers["X-Linked-Etag"] = f'"{entry["lfs"]["oid"]}"'
            headers["X-Linked-Size"] = str(len(content) + more)
            headers["Location"] = self.server.cdn.sign(name)
            self.answer(302, b"", headers)
        else:
            self.send_bytes(content, headers, fault)


class CdnHandler(FaultyHandler):
    server: CdnServer

    def route(self, fault: Fault | None) -> None:
        parts = urlsplit(self.path)
        if not self.server.is_signed(parts.query):
            self.answer(403, b"<Error>Request has expired</Error>", {"Content-Type": "application/xml"})
            return
        name = unquote(parts.path).removeprefix("/blobs/")
        self.send_bytes(self.server.model.files[name], {}, fault)


class CdnServer(FaultyServer):
    """Knows whether a location's signature still holds, and nothing of tokens."""

    def __init__(self, model: Model) -> None:
        super().__init__(CdnHandler)
        self.model = model
        self.shown = ""  # its URL, when that is not plain HTTP
        self._signed: set[str] = set()

    def sign(self, name: str) -> str:
        signature = f"Signature=sig{len(self.seen)}x{len(self._signed)}"
        self._signed.add(signature)
        return f"{self.shown or self.url}/blobs/{name}?{signature}"

    def is_signed(self, query: str) -> bool:
        return query in self._signed

    def expire(self) -> None:
        """All locations that were handed out so far are over."""
        self._signed.clear()


class HubServer(FaultyServer):
    """The hub; its CDN comes and goes with it."""

    def __init__(self, model: Model, port: int = 0) -> None:
        super().__init__(HubHandler, port)
        self.model = model
        self.cdn = CdnServer(model)
        self.list_url = ""  # where the next page of a list is said to be, when it is elsewhere

    def __enter__(self) -> Self:
        self.cdn.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.cdn.__exit__()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repo", default="lab/tiny")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", help="the only one that is let in; default: the model is public")
    parser.add_argument("--faults", default="[]", help="JSON list of faults, with `on`: hub or cdn")
    options = parser.parse_args()
    names = [path for path in sorted(options.folder.rglob("*")) if path.is_file()]
    files = {path.relative_to(options.folder).as_posix(): path.read_bytes() for path in names}
    tokens = {options.token: True} if options.token else None
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with HubServer(Model(files, repo=options.repo, tokens=tokens), options.port) as hub:
        for fault in json.loads(options.faults):
            place = hub.cdn if fault.pop("on", "hub") == "cdn" else hub
            place.faults.append(Fault(**fault))
        sys.stdout.write(f"{hub.url}\n")
        sys.stdout.flush()
        stop.wait()


if __name__ == "__main__":
    main()
