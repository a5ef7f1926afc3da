"""Asks a real cluster as rbdagent does, and opens images as other clients do."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from rbdagent.model import CephView, EntityAddress, ImageIdentity, ImageSpec, Source
from rbdagent.observe.ceph import CephLook
from rbdagent.observe.cluster import CephAccess

if TYPE_CHECKING:
    from tests.lab.ceph import CephCluster

_OPEN = """
import sys, time, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1], rados_id="admin", conf={"keyring": sys.argv[2]})
cluster.connect()
pool, name = sys.argv[3].split("/")
image = rbd.Image(cluster.open_ioctx(pool), name)
print(cluster.get_addrs(), cluster.get_instance_id(), flush=True)
time.sleep(float(sys.argv[4]))
image.close()
time.sleep(60)
"""


def access(cluster: CephCluster, **changes: object) -> CephAccess:
    given: dict[str, object] = {
        "name": cluster.name,
        "conf": cluster.conf,
        "client_id": "rbdagent",
        "keyring": cluster.conf.parent / "ceph.client.rbdagent.keyring",
        "timeout_s": 5.0,
    }
    return CephAccess(**(given | changes))  # type: ignore[arg-type]


def observe_ceph(
    clusters: list[CephAccess],
    images: list[ImageIdentity],
    *,
    deadline_s: float,
    known: frozenset[EntityAddress] = frozenset(),
) -> tuple[CephView | None, Source]:
    look = CephLook(clusters)
    return look.images(images, known=known, deadline=time.monotonic() + deadline_s)


def wanted(
    name: str, *, pool: str = "k8s", namespace: str = "", image_id: str | None = None
) -> ImageIdentity:
    spec = ImageSpec(pool=pool, namespace=namespace, name=name)
    return ImageIdentity(spec=spec, fsid=None, image_id=image_id)


def start_client(ceph: CephCluster, image: str, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _OPEN, ceph.conf, ceph.admin_keyring, image, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def said(client: subprocess.Popen[str]) -> tuple[str, int]:
    """Return address and id, which a client prints when it has opened the image."""
    assert client.stdout is not None
    address, _, number = client.stdout.readline().rpartition(" ")
    return address.strip(), int(number)
