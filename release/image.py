"""The image without a container engine: a small Debian with the .deb, as an OCI archive.

It is what the Containerfile describes: the same Debian, the same package, and the configuration of
its last stage, which is read from it. The layer is not compressed: a client compresses it for the
registry (OCI image layout, image-spec v1.1).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rbdagent.addresses import REGISTRY
from release.provenance import digest
from tests.lab.commands import output
from tests.lab.roots import image_root, run_in
from tests.lab.venvs import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from release.checkout import Commit
    from tests.lab.parts import Suite

CONTAINERFILE: Final = CHECKOUT / "Containerfile"
LAYOUT: Final = "application/vnd.oci.image"

_REMOVED: Final = (
    *("dev/*", "proc/*", "run/*", "sys/*", "tmp/*", "var/tmp/*"),
    # Of the machine that made the root.
    *("etc/hostname", "etc/resolv.conf", "etc/dpkg/dpkg.cfg.d/rbdagent-lab", "made-from"),
    *("usr/sbin/policy-rc.d", "etc/apt/sources.list.d/*"),
    # They differ at each installation.
    *("etc/machine-id", "var/cache/apt/*", "var/cache/debconf/*-old", "var/lib/apt/lists/*"),
    *("var/cache/ldconfig/aux-cache", "var/lib/dpkg/*-old", "var/log/*", "etc/*-"),
)
"""Patterns below the root."""


class Blob(NamedTuple):
    """A part of an image, as its descriptor names it."""

    kind: str
    digest: str
    size: int

    def descriptor(self) -> dict[str, object]:
        """Return the descriptor (image-spec, descriptor.md)."""
        media = f"{LAYOUT}.{self.kind}"
        return {"mediaType": media, "digest": f"sha256:{self.digest}", "size": self.size}


@contextlib.contextmanager
def installed_root(cache: Path, suite: Suite, deb: Path, *, current: bool) -> Iterator[Path]:
    """Yield the file system of the image; it is removed at the end.

    Args:
        cache: the project's cache directory.
        suite: the Debian of the image.
        deb: the package for this Debian.
        current: use the newest packages of Debian. Without it, an existing base is kept.
    """
    base = image_root(cache, suite, current=current)
    with tempfile.TemporaryDirectory(prefix="image-", dir=cache) as scratch:
        root = Path(scratch) / "root"
        output("cp", "--archive", "--reflink=auto", base, root)
        shutil.copyfile(deb, root / "rbdagent.deb")
        # A random seed would sort the sets in .pyc files.
        run_in(root, ["dpkg", "--install", "/rbdagent.deb"], PYTHONHASHSEED="0")
        (root / "rbdagent.deb").unlink()
        for target, link in links(CONTAINERFILE.read_text()):
            (root / link.lstrip("/")).symlink_to(target)
        # /dev and /proc were mounted in dpkg's mount namespace only: here they are directories.
        clean(root)
        source = f"deb http://deb.debian.org/debian {suite.name} main\n"
        (root / "etc/apt/sources.list").write_text(source)
        yield root


def links(text: str) -> list[tuple[str, str]]:
    """Return target and path of each symbolic link that the Containerfile makes."""
    return re.findall(r"\bln -s (\S+) (\S+)", text)


def clean(root: Path) -> None:
    """Remove what belongs to the machine that made the root, and what differs each time."""
    for pattern in _REMOVED:
        for path in sorted(root.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def write_archive(root: Path, archive: Path, *, version: str, commit: Commit) -> None:
    """Write the image of a file system as a tar archive of an OCI image layout.

    Args:
        root: the file system.
        archive: the file to write; the layer is beside it until then.
        version: of rbdagent: the tag and a label of the image.
        commit: its time is the greatest time of a file.
    """
    layer_file = archive.with_suffix(".layer")
    write_layer(root, layer_file, epoch=commit.epoch)
    layer = Blob("layer.v1.tar", digest(layer_file), layer_file.stat().st_size)
    text = CONTAINERFILE.read_text()
    config, config_blob = _json("config.v1+json", image_config(text, layer, version, commit))
    manifest, manifest_blob = _json(
        "manifest.v1+json",
        {
            "schemaVersion": 2,
            "mediaType": f"{LAYOUT}.manifest.v1+json",
            "config": config_blob.descriptor(),
            "layers": [layer.descriptor()],
        },
    )
    names = {
        "io.containerd.image.name": f"{REGISTRY}/rbdagent:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    index = {
        "schemaVersion": 2,
        "manifests": [{**manifest_blob.descriptor(), "annotations": names}],
    }
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps(index).encode())
        _add(tar, f"blobs/sha256/{config_blob.digest}", config)
        _add(tar, f"blobs/sha256/{manifest_blob.digest}", manifest)
        member = tarfile.TarInfo(f"blobs/sha256/{layer.digest}")
        member.size, member.mode = layer.size, 0o644
        with layer_file.open("rb") as file:
            tar.addfile(member, file)
    layer_file.unlink()


def image_config(text: str, layer: Blob, version: str, commit: Commit) -> dict[str, Any]:
    """Return the configuration of the image (image-spec, config.md).

    Args:
        text: the Containerfile, whose last stage has the entry point, the signal and the labels.
        layer: the only one.
        version: of rbdagent.
        commit: from which it is built.
    """
    created = datetime.fromtimestamp(commit.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (entry_point,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    (signal,) = re.findall(r"^STOPSIGNAL (\S+)$", text, re.MULTILINE)
    return {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": json.loads(entry_point),
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Labels": labels(text, version, commit),
            "StopSignal": signal,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}"]},
        "history": [{"created": created, "created_by": f"./dev release {version}"}],
    }


def labels(text: str, version: str, commit: Commit) -> dict[str, str]:
    """Return the labels of the Containerfile, and the commit; there is no base from a registry."""
    prefix = "org.opencontainers.image."
    found = re.findall(rf'({re.escape(prefix)}(?!base)[\w.]+)="([^"]*)"', text)
    named = {name: value.replace("${VERSION}", version) for name, value in found}
    return {**named, f"{prefix}revision": commit.digest}


def write_layer(root: Path, layer: Path, *, epoch: int) -> None:
    """Write the files below a root, sorted by name, as a layer.

    No time is later than the commit's, so that an installation at another time gives the same
    bytes. A .py file keeps its time, which its package determines and its .pyc file records.
    """

    def same(member: tarfile.TarInfo) -> tarfile.TarInfo:
        later = member.mtime > epoch and not member.name.endswith(".py")
        member.mtime = epoch if later else int(member.mtime)
        member.uname = member.gname = ""
        return member

    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(_paths(root)):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=same)


def _paths(root: Path) -> Iterator[Path]:
    for directory, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(directory, name)


def _json(kind: str, document: object) -> tuple[bytes, Blob]:
    data = json.dumps(document, sort_keys=True).encode()
    return data, Blob(kind, hashlib.sha256(data).hexdigest(), len(data))


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    tar.addfile(member, io.BytesIO(data))
