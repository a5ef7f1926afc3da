"""Container images without a registry: an OCI archive with those of pods, sandboxes and agents."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

from tests.lab.initramfs import BUSYBOX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BOX = "docker.io/lab/box:1"
"""Busybox with all its commands; sleeps by default."""
PAUSE = "docker.io/lab/pause:1"
"""Holds a pod's namespaces: the same files, and one very long sleep."""
AGENT = "localhost/rbdagent:lab"
"""rbdagent's image: its layer is one empty file, over which the node's own files are mounted."""
AGENT_MARK = "of-the-node"
"""The name of that file, which marks the directory in which the layer is kept."""

_OCI = "application/vnd.oci.image"
# PID 1 has no default action for TERM, so a plain sleep would ignore it.
_IDLE = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")
_PAUSE = ("/bin/sleep", "2147483647")


def image_archive(agent_path: str) -> bytes:
    """Return an OCI image layout, as tar, with all images; BOX and PAUSE share their one layer.

    Args:
        agent_path: PATH in AGENT.
    """
    box, agent = _layer(), _tar({AGENT_MARK: b""})
    images = {
        BOX: (box, _config(box, _IDLE, path="/bin")),
        PAUSE: (box, _config(box, _PAUSE, path="/bin")),
        AGENT: (agent, _config(agent, ("rbdagent",), path=agent_path)),
    }
    blobs: dict[str, bytes] = {}
    manifests = []
    for name, (layer, described) in images.items():
        config = _json(described)
        manifest = _json(_manifest(config, layer))
        blobs |= {_digest(blob): blob for blob in (layer, config, manifest)}
        annotations = {"io.containerd.image.name": name}
        descriptor = _descriptor("manifest.v1+json", manifest)
        manifests.append({**descriptor, "annotations": annotations})
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": manifests}),
        **{f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()},
    }
    return _tar(files)


def _config(layer: bytes, command: Sequence[str], *, path: str) -> dict[str, object]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(command), "Env": [f"PATH={path}"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
    }


def _manifest(config: bytes, layer: bytes) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _descriptor("config.v1+json", config),
        "layers": [_descriptor("layer.v1.tar", layer)],
    }


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {
        "mediaType": f"{_OCI}.{kind}",
        "digest": f"sha256:{_digest(blob)}",
        "size": len(blob),
    }


def _layer() -> bytes:
    listed = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    links = {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"}
    return _tar({"bin/busybox": BUSYBOX.read_bytes()}, links=links, directories=("tmp", "etc"))


def _tar(
    files: Mapping[str, bytes],
    *,
    links: Mapping[str, str] | None = None,
    directories: Sequence[str] = (),
) -> bytes:
    """Return a tar archive that depends only on its arguments: its digest is its name."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in directories:
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(member)
    return archive.getvalue()


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()
