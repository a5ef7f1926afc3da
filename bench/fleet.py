"""Measure the memory and time of `list -A` and `diagnose -A` with 5,000 nodes of 50 mappings each.

A separate process makes up the pages as they are requested. The peak memory is that of the
client's process, as the kernel reports it (ru_maxrss, getrusage(2)); it also counts the process
that starts it, so this one stays small.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, urlparse

from rbdagent.parse import labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json = dict[str, Any]

_MOST_MIB: Final = 100
"""The bound of the peak memory."""
_CHECKOUT: Final = Path(__file__).parents[1]
_LIST: Final = ("list", "-A")
_FORMS: Final = {
    "table": _LIST,
    "table, --all": (*_LIST, "--all"),
    "name": (*_LIST, "-o", "name"),
    "json": (*_LIST, "-o", "json"),
    "yaml": (*_LIST, "-o", "yaml"),
    "json, -n shop": (*_LIST, "-o", "json", "-n", "shop"),
    "diagnose": ("diagnose", "-A", "--timeout", "300s", "--kube-timeout", "300s"),
}
_NO_CODES: Final = {0, 3}


class _Cluster(NamedTuple):
    """The size of the cluster."""

    nodes: int
    mappings: int
    has_claims: bool
    """`diagnose` keeps all objects of a cluster; without any, its memory is that of the reports."""


class _Cost(NamedTuple):
    """What one command costs, and the size of its output."""

    seconds: float
    cpu_s: float
    peak_mib: float
    lines: int
    mib: float
    code: int


def main() -> int:
    """Measure, print a row for each format, and return 1 if the bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--mappings", type=int, default=50, help="on each node")
    parser.add_argument("--form", choices=_FORMS, action="append", help="only this format")
    given = parser.parse_args()
    kept = True
    print("format | elapsed s | processor s | peak MiB | lines | output MiB | exit code")
    for form in given.form or _FORMS:
        cluster = _Cluster(given.nodes, given.mappings, has_claims=form != "diagnose")
        with _served(cluster) as kubeconfig:
            cost = _cost([*_FORMS[form], "--kubeconfig", kubeconfig])
            kept = kept and cost.peak_mib <= _MOST_MIB and cost.code in _NO_CODES
            print(
                f"{form} | {cost.seconds:.1f} | {cost.cpu_s:.1f} | {cost.peak_mib:.0f} | "
                f"{cost.lines} | {cost.mib:.1f} | {cost.code}",
                flush=True,
            )
    return int(not kept)


def _cost(flags: Sequence[str]) -> _Cost:
    command = [sys.executable, "-m", "rbdagent", *flags, "--no-node", "--no-ceph"]
    started = time.perf_counter()
    lines = size = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_CHECKOUT) as running:
        assert running.stdout is not None
        while piece := os.read(running.stdout.fileno(), 1 << 16):
            lines += piece.count(b"\n")
            size += len(piece)
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    return _Cost(
        seconds=time.perf_counter() - started,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_mib=used.ru_maxrss / 1024,
        lines=lines,
        mib=size / (1 << 20),
        code=running.returncode,
    )


# --------------------------------------------------------------------------------------------------
# The API server
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _served(cluster: _Cluster) -> Iterator[str]:
    """Start an API server, and yield the path of a kubeconfig for it."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(cluster, writer))
    server.start()
    config = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": reader.recv()}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
    }
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as kubeconfig:
            json.dump(config, kubeconfig)
            kubeconfig.flush()
            yield kubeconfig.name
    finally:
        server.terminate()
        server.join()


def _serve(cluster: _Cluster, writer: Any) -> None:  # noqa: ANN401 - a Connection, private there
    def page(url: str) -> Json:
        parts = urlparse(url)
        query = parse_qs(parts.query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["0"])[0])
        kind = parts.path.rpartition("/")[2]
        counted = {
            "rbdnodes": cluster.nodes,
            "rbdmappings": cluster.nodes * cluster.mappings,
            "persistentvolumeclaims": cluster.nodes * cluster.mappings * cluster.has_claims,
        }
        total = counted.get(kind, 0)
        end = min(start + limit, total)
        of_kind = {"rbdnodes": _rbd_node, "rbdmappings": _rbd_mapping}.get(kind, _claim)
        made = [of_kind(number, cluster.mappings) for number in range(start, end)]
        return {"items": made, "metadata": {"continue": str(end) if end < total else ""}}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = json.dumps(page(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    writer.send(f"http://127.0.0.1:{server.server_address[1]}")
    server.serve_forever()


def _rbd_node(number: int, mappings: int) -> Json:
    """Return an RBDNode with three keys for each mapping, as its agent writes them."""
    first = number * mappings
    return {
        "metadata": {
            "name": f"node-{number:05}",
            "labels": {
                labels.image_label(key): f"rbd{one - first}"
                for one in range(first, first + mappings)
                for key in labels.mapping_keys(_image(one), _image_id(one), _volume(one))
            },
        },
        "status": {
            "observedAt": _now(),
            "bootID": str(_uuid("boot", number)),
            "mapped": mappings,
            "imageLabels": 3 * mappings,
            "clients": [_client_address(number)],
        },
    }


def _rbd_mapping(number: int, mappings: int) -> Json:
    """Return an RBDMapping; the first one of each node is an orphan."""
    node, device = divmod(number, mappings)
    known = {"node": f"node-{node:05}", "observedAt": _now()}
    return {
        "metadata": {"name": f"node-{node:05}.rbd{device}"},
        "status": known | _mapping(number, node, device),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _mapping(number: int, node: int, device: int) -> Json:
    orphaned = {"verdict": "Orphaned", "findings": ["RBD101"]}
    pod = f"shop/web-{_uuid('pod', number).hex[:10]}"
    in_use = {"verdict": "InUse", "findings": [], "pods": [pod]}
    return {
        "device": f"/dev/rbd{device}",
        "image": {
            "fsid": "6f1c1d5e-6d3b-4a6e-9c0f-3d8f6a6d2b11",
            "pool": "k8s",
            "radosNamespace": "",
            "name": _image(number),
            "id": _image_id(number),
        },
        "clientID": 4000 + node,
        "clientAddress": _client_address(node),
        "readOnly": False,
        "persistentVolume": _volume(number),
        "reasons": [
            "pod shop/web uses it, according to kubelet",
            "VolumeAttachment names the node",
        ],
        "since": "2026-01-01T00:00:00Z",
        **(orphaned if not device else in_use),
    }


def _volume(number: int) -> str:
    return f"pvc-{_uuid('volume', number)}"


def _image(number: int) -> str:
    return f"csi-vol-{_uuid('image', number)}"


def _image_id(number: int) -> str:
    return _uuid("id", number).hex[:12]


def _client_address(node: int) -> str:
    """Return the address of the client of a node, which krbd shares between its mappings."""
    return f"10.0.{node >> 8 & 255}.{node & 255}:0/{_uuid('client', node).int & 0x7FFFFFFF}"


def _uuid(of: str, number: int) -> uuid.UUID:
    """Return a UUID that is as hard to compress as a random one."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{of}/{number}")


def _claim(number: int, _: int) -> Json:
    return {
        "metadata": {"name": f"data-{number}", "namespace": "shop", "uid": f"uid-{number}"},
        "spec": {"volumeName": _volume(number)},
        "status": {"phase": "Bound"},
    }


if __name__ == "__main__":
    sys.exit(main())
