"""A fake API server on loopback, with the recorded lists of one cluster."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

from rbdagent.collect.kube.kubeconfig import KubeAccess

if TYPE_CHECKING:
    from collections.abc import Callable


Json = dict[str, Any]
RECORDED = Path(__file__).parents[1] / "fixtures" / "kubernetes" / "12-pinned.json"
VOLUME = "pvc-7d6d4e77-8106-4cb4-948f-997d0d5f6de1"
TOKEN = "a-token-that-must-not-be-printed"  # noqa: S105 - of the fake


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """With the default of 5, the kernel drops some of the connections that a client opens at once,
    and the client tries again after a second."""


class FakeApi:
    """Serves the recorded lists; ``broken`` maps a path to a handler that answers instead."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Json]] = json.loads(RECORDED.read_text())
        self.broken: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.denied: set[tuple[str, str]] = set()
        """Verbs and resources for which the user has no right."""
        self.requests: list[str] = []
        self.writes: list[tuple[str, str, Json]] = []
        self.review: Callable[[Json], Json] = lambda _: {"status": {"allowed": True}}
        self.page = 0
        self.stores = False
        """Whether writes change the lists, as those of a real API server do."""
        self.revision = 100
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def runs_on_this_machine(self, node_name: str) -> None:
        """Write the boot id of this machine to a Node."""
        for node in self.lists["nodes"]:
            if node["metadata"]["name"] == node_name:
                boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
                node["status"]["nodeInfo"]["bootID"] = boot_id

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlparse(self.path)
                fake.requests.append(self.path)
                if (broken := fake.broken.get(url.path)) is not None:
                    broken(self)
                    return
                if (asked := right_of(url.path)) in fake.denied:
                    answer(self, 403, _forbidden(*asked))
                    return
                answer(self, *fake.answer(url.path, parse_qs(url.query)))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("selfsubjectaccessreviews"):
                    answer(self, 201, fake.review(body))
                    return
                fake.writes.append((self.command, self.path, body))
                if (broken := fake.broken.get(f"{self.command} {self.path}")) is not None:
                    broken(self)
                    return
                answer(
                    self,
                    *(
                        fake.store(self.command, self.path, body)
                        if fake.stores
                        else (201, dated(body))
                    ),
                )

            do_PATCH = do_DELETE = do_POST  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Json]:
        kinds = path.split("/")
        for kind, items in self.lists.items():
            if kinds[-1] == kind:
                wanted = _selected(items, kinds, query)
                return 200, self._paged([dated(item) for item in wanted], query)
            if kinds[-2] == kind:
                for item in items:
                    if item["metadata"]["name"] == kinds[-1]:
                        return 200, dated(item)
                return 404, {"message": f'{kind} "{kinds[-1]}" not found'}
        return 200, {"items": [], "metadata": {}}

    def store(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        """Apply a write to the lists; return the status and the object."""
        *_, kind, name = path.split("/") if method != "POST" else [*path.split("/"), ""]
        items = self.lists.setdefault(kind, [])
        name = name or body["metadata"]["name"]
        found = next((item for item in items if item["metadata"]["name"] == name), None)
        if found is None and method != "POST":
            return 404, {"message": f'{kind} "{name}" not found'}
        if found is not None and method == "POST":
            return 409, {"message": f'{kind} "{name}" already exists'}
        if found is not None:
            items.remove(found)
        if method == "DELETE":
            return 200, {}
        self.revision += 1
        written: Json = merged(found or {"metadata": {"uid": f"uid-{self.revision}"}}, body)
        written["metadata"] |= {"resourceVersion": str(self.revision)}
        if "namespaces" in path:
            written["metadata"]["namespace"] = path.split("/")[-2 if method == "POST" else -3]
        items.append(written)
        return 200, dated(written)

    def _paged(self, items: list[Json], query: dict[str, list[str]]) -> Json:
        if not self.page:
            return {"items": items, "metadata": {}}
        start = int(query.get("continue", ["0"])[0])
        more = str(start + self.page) if start + self.page < len(items) else ""
        return {"items": items[start : start + self.page], "metadata": {"continue": more}}


def dated(item: Json) -> Json:
    """Return an object with the time at which it was stored, where a test gives none.

    Of an RBDNode, an API server shows when it stored the time of the observation: here, at once.
    """
    metadata: Json = item.get("metadata") or {}
    at = (item.get("status") or {}).get("observedAt")
    entries: list[Json] = metadata.get("managedFields") or [
        {"fieldsV1": {"f:status": {"f:observedAt": {}}}}
    ]
    if at is None or "node" in item["status"] or all("time" in entry for entry in entries):
        return item
    stored = [{"time": at} | entry for entry in entries]
    return item | {"metadata": metadata | {"managedFields": stored}}


def _selected(items: list[Json], kinds: list[str], query: dict[str, list[str]]) -> list[Json]:
    field, _, value = query.get("fieldSelector", [""])[0].partition("=")
    found = items
    if "namespaces" in kinds:
        space = kinds[kinds.index("namespaces") + 1]
        found = [item for item in found if item["metadata"]["namespace"] == space]
    if field == "spec.nodeName":
        found = [item for item in found if item["spec"].get("nodeName") == value]
    if field == "metadata.name":
        found = [item for item in found if item["metadata"]["name"] == value]
    if labels := query.get("labelSelector", [""])[0]:
        matches = selector(labels)
        found = [item for item in found if matches(item["metadata"].get("labels") or {})]
    if field == "involvedObject.name":
        found = [item for item in found if item["involvedObject"]["name"] == value]
    return found


_REQUIREMENT = re.compile(r"([\w./-]+)(?: in \(([^)]*)\)|(!?=)([^,]*))")


def selector(text: str) -> Callable[[Json], bool]:
    """Return a function that matches labels.

    Requirements are ``key``, ``key=value``, ``key!=value`` and ``key in (a,b)``.
    """
    if text and not _REQUIREMENT.search(text):
        return lambda labels: text in labels
    wanted = [
        (key, (values or value).split(","), sign != "!=")
        for key, values, sign, value in _REQUIREMENT.findall(text)
    ]
    return lambda labels: all((labels.get(key) in values) is is_in for key, values, is_in in wanted)


def merged(given: Json, patch: Json) -> Json:
    """Return an object after a merge patch (RFC 7386)."""
    found = {key: value for key, value in given.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            before = given.get(key)
            found[key] = merged(before if isinstance(before, dict) else {}, value)
        elif value is not None:
            found[key] = value
    return found


def answer(handler: BaseHTTPRequestHandler, status: int, body: object) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def right_of(path: str) -> tuple[str, str]:
    """Return the verb and the resource that a GET needs: ``get`` of an object, ``list`` of more."""
    _, _, rest = path.strip("/").partition("/v1")
    parts = rest.removeprefix("alpha1").strip("/").split("/")
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return ("get" if len(parts) > 1 else "list"), parts[0]


def _forbidden(verb: str, resource: str) -> Json:
    """Return the message of the API server (k8s.io/apiserver, responsewriters/errors.go)."""
    who = 'User "u" cannot'
    return {"message": f'{resource} is forbidden: {who} {verb} resource "{resource}" in API group'}


def refuse(status: int, message: str = "is forbidden") -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: answer(handler, status, {"message": message})


def kubeconfig(url: str, **user: str) -> Json:
    return {
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user or {"token": TOKEN}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    }


def access_to(fake: FakeApi, directory: Path, *, timeout_s: float = 30) -> KubeAccess:
    """Return the access to a fake API by a kubeconfig in a directory."""
    path = directory / "kubeconfig"
    path.write_text(json.dumps(kubeconfig(fake.url)))
    return KubeAccess(kubeconfig=path, context=None, timeout_s=timeout_s)
