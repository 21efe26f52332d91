"""A package index and a model hub on 127.0.0.1, as far as pip and huggingface_hub ask, with faults."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit


@dataclass
class Faults:
    """``cut``: file → bytes after which the connection closes; ``status``: file → HTTP status instead of it;
    ``flip``: files whose bytes come out altered. A file name counts, not its folder."""

    cut: dict[str, int] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    flip: set[str] = field(default_factory=set)


class Server:
    """Serves ``repos[name] = {file: bytes}`` as a hub and ``wheels[file] = bytes`` as a package index."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, set[str]] = {}
        self.private: dict[str, str] = {}
        self.gated: set[str] = set()
        self.wheels: dict[str, bytes] = {}
        self.faults = Faults()
        self.got: Counter[str] = Counter()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def commit(self, repo: str) -> str:
        """A commit id that changes with the files."""
        return hashlib.sha1(repr(sorted(self.repos[repo].items())).encode()).hexdigest()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join(60)


class _Handler(BaseHTTPRequestHandler):
    owner: ClassVar[Server]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/simple/"):
            links = "".join(f'<a href="/wheels/{name}">{name}</a>' for name in self.owner.wheels)
            self._send(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
        elif match := re.fullmatch(r"/wheels/([^/]+)", path):
            self._file(match[1], self.owner.wheels.get(match[1]), {})
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            self._api(match[1], match[2], match[3])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[3])
        else:
            self._error(404)

    def _refused(self, repo: str, revision: str | None = None) -> bool:
        owner = self.owner
        token = owner.private.get(repo)
        if repo not in owner.repos or (token and self.headers.get("Authorization") != f"Bearer {token}"):
            self._error(401, "RepoNotFound")
        elif repo in owner.gated:
            self._error(403, "GatedRepo")
        elif revision and revision not in {"main", owner.commit(repo), *owner.branches.get(repo, ())}:
            self._error(404, "RevisionNotFound")
        else:
            return False
        return True

    def _api(self, repo: str, kind: str | None, revision: str | None) -> None:
        if self._refused(repo, revision):
            return
        files = self.owner.repos[repo]
        if kind == "tree":
            body: object = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "oid": _git_id(data),
                    **(
                        {"lfs": {"oid": _sha256(data), "size": len(data), "pointerSize": 1}}
                        if _large(name)
                        else {}
                    ),
                }
                for name, data in files.items()
            ]
        else:
            siblings = [{"rfilename": name} for name in files]
            body = {
                "id": repo,
                "modelId": repo,
                "sha": self.owner.commit(repo),
                "siblings": siblings,
                "tags": [],
            }
        self._send(json.dumps(body).encode(), "application/json")

    def _resolve(self, repo: str, name: str) -> None:
        if self._refused(repo):
            return
        data = self.owner.repos[repo].get(name)
        headers = {"X-Repo-Commit": self.owner.commit(repo)}
        if data is not None and _large(name):
            headers |= {"X-Linked-Etag": f'"{_sha256(data)}"', "X-Linked-Size": str(len(data))}
        elif data is not None:
            headers["ETag"] = f'"{_git_id(data)}"'
        self._file(name, data, headers)

    def _file(self, name: str, data: bytes | None, headers: dict[str, str]) -> None:
        faults = self.owner.faults
        if data is None:
            self._error(404, "EntryNotFound")
            return
        if self.command == "GET":
            self.owner.got[name] += 1
            if name in faults.status:
                self._error(faults.status[name])
                return
            if name in faults.flip:
                data = data[:-1] + bytes([data[-1] ^ 1])
        self._send(data, "application/octet-stream", headers, faults.cut.get(name))

    def _send(
        self, body: bytes, kind: str, headers: dict[str, str] | None = None, cut: int | None = None
    ) -> None:
        self.send_response(200)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if cut is None else body[:cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True

    def _error(self, status: int, code: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
        self.end_headers()


def _large(name: str) -> bool:
    return name.endswith((".gguf", ".safetensors"))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def make_wheel(project: str, version: str, files: dict[str, bytes]) -> tuple[str, bytes]:
    """File name and bytes of a wheel that pip accepts."""
    info = f"{project}-{version}.dist-info"
    extra = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, **extra}.items():
            archive.writestr(name, data)
    return f"{project}-{version}-py3-none-any.whl", packed.getvalue()
