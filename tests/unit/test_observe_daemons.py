"""The Ceph daemons that work on an image, according to its pool."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import Struct

from rbdagent.collect.ceph.access import CephAccess
from rbdagent.collect.ceph.connection import Cluster
from rbdagent.collect.ceph.daemons import mirror_daemons, tasks_of
from rbdagent.model import (
    EntityAddress,
    ImageIdentity,
    ImageSpec,
    NotObserved,
    ServiceAddress,
    Watcher,
)
from tests.support.ceph_bindings import RadosError, ceph

if TYPE_CHECKING:
    from tests.support.ceph_bindings import FakeCeph

Objects = dict[tuple[str, str], "tuple[Watcher, ...] | OSError"]

HERE = Watcher(address=EntityAddress(ip="10.77.0.1", nonce=1), client=4150, cookie=7)
THERE = Watcher(address=EntityAddress(ip="192.0.2.7", nonce=2), client=4152, cookie=7)


class FakeWatches(Struct):
    """Lists the watchers of objects, by namespace and name."""

    objects: Objects

    def of(self, pool_id: int, namespace: str, name: str) -> tuple[Watcher, ...]:
        assert pool_id == 3
        found = self.objects.get((namespace, name), OSError(errno.ENOENT, "none"))
        if isinstance(found, OSError):
            raise OSError(found.errno, os.strerror(found.errno or 0))
        return found


class FakeCluster(Struct):
    watches: FakeWatches | None


def daemons(objects: Objects | None, namespace: str = "") -> Any:  # noqa: ANN401
    watches = None if objects is None else FakeWatches(objects)
    return mirror_daemons(cast("Cluster", FakeCluster(watches)), 3, namespace)


def client(watcher: Watcher, *, of_peer: bool) -> ServiceAddress:
    return ServiceAddress(
        kind="rbd-mirror",
        name="",
        address=watcher.address,
        client=watcher.client,
        of_peer=of_peer,
    )


@pytest.mark.parametrize(
    ("objects", "namespace", "found"),
    [
        pytest.param({}, "", (), id="the pool is not mirrored"),
        pytest.param({("", "rbd_mirroring"): ()}, "", (), id="no daemon runs"),
        pytest.param(
            {("", "rbd_mirroring"): (HERE, THERE), ("", "rbd_mirror_leader"): (HERE,)},
            "",
            (client(HERE, of_peer=False), client(THERE, of_peer=True)),
            id="one of each cluster",
        ),
        pytest.param(
            {("", "rbd_mirroring"): (THERE, Watcher(address=THERE.address, client=4152, cookie=8))},
            "",
            (client(THERE, of_peer=True),),
            id="two watches of one client, and no leader",
        ),
        pytest.param(
            {
                ("", "rbd_mirroring"): (THERE,),
                ("team", "rbd_mirroring"): (HERE,),
                ("", "rbd_mirror_leader"): (HERE,),
            },
            "team",
            (client(HERE, of_peer=False),),
            id="a namespace, whose leader is the pool's",
        ),
    ],
)
def test_watchers_of_the_mirroring_object_are_mirror_daemons(
    objects: Objects, namespace: str, found: tuple[ServiceAddress, ...]
) -> None:
    assert daemons(objects, namespace) == found


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param(None, "this librados cannot list the watches of an object", id="no interface"),
        pytest.param(
            {("", "rbd_mirroring"): OSError(errno.EPERM, "")},
            "rbd_mirroring: [Errno 1] Operation not permitted",
            id="refused",
        ),
        pytest.param(
            {
                ("", "rbd_mirroring"): (HERE,),
                ("", "rbd_mirror_leader"): OSError(errno.ETIMEDOUT, ""),
            },
            "rbd_mirroring: [Errno 110] Connection timed out",
            id="no answer about the leader",
        ),
    ],
)
def test_daemons_that_cannot_be_listed_are_not_observed(
    objects: Objects | None, reason: str
) -> None:
    assert daemons(objects) == NotObserved(reason=reason)


# --------------------------------------------------------------------------------------------------
# Tasks of the mgr
# --------------------------------------------------------------------------------------------------

# Recorded from Ceph 20.2.
FLATTEN = (
    b'{"sequence": 1, "id": "2f363989-b8f6-475b-8eeb-94b49281b621", "message": "Flattening image'
    b' k8s/clone", "refs": {"action": "flatten", "pool_name": "k8s", "pool_namespace": "",'
    b' "image_name": "clone", "image_id": "1104cd7a7e29"}}'
)
TRASH_REMOVE = (
    b'{"sequence": 2, "id": "9ef33771-13b3-430d-be02-38214c3b3e87", "message": "Removing image'
    b' k8s/111abc6f45ca from trash", "refs": {"action": "trash remove", "pool_name": "k8s",'
    b' "pool_namespace": "", "image_id": "111abc6f45ca"}}'
)
BY_NAME = b'{"refs": {"action": "remove", "image_name": "clone"}}'


def asked(cluster: FakeCeph, monkeypatch: pytest.MonkeyPatch, image_id: str) -> object:
    cluster.install(monkeypatch)
    connected = Cluster(CephAccess(name="ceph", conf=Path(os.devnull), client_id="rbdagent",
                                    keyring=None, timeout_s=5.0))  # fmt: skip
    context = connected.pool(ImageIdentity(spec=ImageSpec(pool="k8s", name="x"), fsid=None))
    return tasks_of(connected, context, image_id)


@pytest.mark.parametrize(
    ("queue", "image_id", "found"),
    [
        pytest.param(None, "1104cd7a7e29", (), id="the pool has no queue"),
        pytest.param((), "1104cd7a7e29", (), id="it is empty"),
        pytest.param((TRASH_REMOVE, FLATTEN), "1104cd7a7e29", ("flatten",), id="flatten"),
        pytest.param((FLATTEN, TRASH_REMOVE), "111abc6f45ca", ("trash remove",), id="remove"),
        pytest.param((FLATTEN, BY_NAME), "another", (), id="other images"),
        pytest.param((FLATTEN,) * 1000, "1104cd7a7e29", ("flatten",) * 1000, id="a long one"),
    ],
)
def test_tasks_are_selected_by_image_id(
    queue: tuple[bytes, ...] | None,
    image_id: str,
    found: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(ceph(tasks=queue), monkeypatch, image_id) == found


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        pytest.param((FLATTEN, b"{"), "rbd_task: Input data was truncated", id="no JSON"),
        pytest.param(
            (b'{"refs": {}}',),
            "rbd_task: Object missing required field `action` - at `$.refs`",
            id="no task",
        ),
        pytest.param(RadosError("denied", errno.EPERM), "rbd_task: [errno 1] denied", id="refused"),
        pytest.param(
            (FLATTEN,) * 1001,
            "rbd_task has more than 1000 tasks, and only these were read",
            id="many",
        ),
    ],
)
def test_tasks_that_cannot_be_read_are_not_observed(
    queue: tuple[bytes, ...] | RadosError, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(ceph(tasks=queue), monkeypatch, "another") == NotObserved(reason=reason)
