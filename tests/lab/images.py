"""Container images without a registry: an OCI archive with the pods' image and the sandboxes'."""

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
"""Busybox with all its commands; idles unless told otherwise."""
PAUSE = "docker.io/lab/pause:1"
"""What holds a pod's namespaces: the same files, and one very long sleep."""

_OCI = "application/vnd.oci.image"
# PID 1 has no default action for TERM, so a sleep as such would ignore it.
_IDLE = ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")
_COMMANDS: Mapping[str, Sequence[str]] = {BOX: _IDLE, PAUSE: ("/bin/sleep", "2147483647")}


def image_archive() -> bytes:
    """Give an OCI image layout, as tar, with both images; they share their one layer."""
    layer = _layer()
    blobs = {_digest(layer): layer}
    manifests = []
    for name, command in _COMMANDS.items():
        config = _json(_config(layer, command))
        manifest = _json(_manifest(config, layer))
        blobs |= {_digest(config): config, _digest(manifest): manifest}
        annotations = {"io.containerd.image.name": name}
        described = _descriptor("manifest.v1+json", manifest)
        manifests.append({**described, "annotations": annotations})
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": manifests}),
        **{f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()},
    }
    return _tar(files)


def _config(layer: bytes, command: Sequence[str]) -> dict[str, object]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(command), "Env": ["PATH=/bin"], "WorkingDir": "/"},
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
    """Give a tar archive that depends on nothing but its arguments: its digest is its name."""
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
