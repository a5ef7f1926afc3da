"""Query a real cluster as rbdagent does, and open images as other clients do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbdagent.collect.ceph.access import NOTHING_MAPPED, CephAccess, MappedHere
from rbdagent.collect.ceph.connection import rados_module
from rbdagent.collect.ceph.images import CephReader
from rbdagent.collect.ceph.keys import librados_version
from rbdagent.model import CephView, ImageIdentity, ImageSpec, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lab.ceph import CephCluster

_OPEN = """
import sys, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1], rados_id="admin", conf={"keyring": sys.argv[2]})
cluster.connect()
pool, name = sys.argv[3].split("/")
image = rbd.Image(cluster.open_ioctx(pool), name)
print(cluster.get_addrs(), cluster.get_instance_id(), flush=True)
sys.stdin.readline()
image.close()
print("closed", flush=True)
sys.stdin.readline()
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
    known: MappedHere = NOTHING_MAPPED,
) -> tuple[CephView | None, Source]:
    look = CephReader(clusters)
    return look.images(images, known=known, deadline=time.monotonic() + deadline_s)


def wanted(
    name: str, *, pool: str = "k8s", namespace: str = "", image_id: str | None = None
) -> ImageIdentity:
    spec = ImageSpec(pool=pool, namespace=namespace, name=name)
    return ImageIdentity(spec=spec, fsid=None, image_id=image_id)


def own_librados() -> str | None:
    """Return the version of the librados that the bindings load into this process."""
    rados_module()
    return librados_version()


def start_client(ceph: CephCluster, image: str) -> subprocess.Popen[str]:
    """Start a client that opens an image read-write and closes it at :func:`close` or its end."""
    return subprocess.Popen(
        [sys.executable, "-c", _OPEN, ceph.conf, ceph.admin_keyring, image],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(client: subprocess.Popen[str]) -> tuple[str, int]:
    """Return the address and the id that a client prints when it has opened the image."""
    assert client.stdout is not None
    address, _, number = client.stdout.readline().rpartition(" ")
    return address.strip(), int(number)


def close(client: subprocess.Popen[str]) -> None:
    """Make a client close its image; return when the image is closed."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write("close\n")
    client.stdin.flush()
    assert client.stdout.readline() == "closed\n"


def asked(
    program: Sequence[str | Path],
    cluster: CephCluster,
    image: str,
    *,
    user: str = "rbdagent",
    keyring: Path | None = None,
) -> Any:  # noqa: ANN401 - JSON
    """Return what ``who-holds IMAGE`` prints as JSON, see :func:`ask_who_holds`."""
    done = ask_who_holds(program, cluster, image, user=user, keyring=keyring)
    return json.loads(done.stdout)


def ask_who_holds(
    program: Sequence[str | Path],
    cluster: CephCluster,
    image: str,
    *,
    user: str = "rbdagent",
    keyring: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``who-holds IMAGE`` with JSON as its output; it queries this cluster, not Kubernetes.

    Args:
        program: the installed rbdagent; it runs with an empty environment.
        cluster: the cluster to query.
        image: ``POOL/NAME``.
        user: without ``client.``.
        keyring: by default the keyring that the cluster made for the user.
    """
    found = keyring or cluster.conf.parent / f"ceph.client.{user}.keyring"
    return subprocess.run(
        [*program, "who-holds", image, "--no-kube", "-o", "json", "--ceph-conf", cluster.conf,
         "--ceph-id", user, "--ceph-keyring", found],
        cwd=Path(__file__).parents[2], env={}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
