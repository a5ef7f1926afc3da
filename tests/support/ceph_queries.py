"""Queries of a fake Ceph cluster, and the images in the answer."""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbdagent.collect.ceph.access import CephAccess
from rbdagent.model import CephView, ImageIdentity, ImageSpec, ImageView
from tests.support.ceph_bindings import FakeImage

if TYPE_CHECKING:
    from pathlib import Path


def access(tmp_path: Path, **changes: Any) -> CephAccess:
    """Return the access to a cluster whose files are in a directory."""
    conf = tmp_path / "ceph.conf"
    conf.touch()
    given: dict[str, Any] = {
        "name": "ceph",
        "conf": conf,
        "client_id": "rbdagent",
        "keyring": conf,
        "timeout_s": 2.5,
    }
    return CephAccess(**(given | changes))


def identity(name: str, **changes: Any) -> ImageIdentity:
    """Return the identity under which an image of the pool is queried."""
    given: dict[str, Any] = {"pool_id": 1, "image_id": f"id-{name}", "fsid": None}
    return ImageIdentity(spec=ImageSpec(pool="k8s", name=name), **(given | changes))


def image(name: str, **changes: Any) -> FakeImage:
    """Return an image of the fake cluster; its id follows from its name."""
    return FakeImage(name=name, **({"image_id": f"id-{name}"} | changes))


def views(view: CephView | None) -> tuple[ImageView, ...]:
    """Return the images of the first cluster."""
    assert view is not None
    return view.clusters[0].images
