"""Ceph daemons that watch an image for their work: scenarios.md 30 (ceph-csi#1912)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.model import (
    HolderKind,
    ImageIdentity,
    ImageView,
    Severity,
    Sources,
    TargetKind,
    observed_of,
)
from tests.integration.clients import access, ask_who_holds, asked, observe_ceph, wanted
from tests.integration.two_clusters import Pair, two_clusters
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.processes import patience, wait_until
from tests.support.recorded_ceph import record
from tests.support.snapshots import diagnosis_of, found, target, unmapped

if TYPE_CHECKING:
    from tests.lab.processes import Processes

_READY_S: Final = 60.0
_OBJECTS: Final = 262_144
"""So many are copied in about 25 s."""


@pytest.fixture(scope="module")
def pair(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two clusters; rbd-mirror of the secondary copies from the primary."""
    made = two_clusters(processes, tmp_path_factory.mktemp)
    made.secondary.mirror_from(made.primary, "k8s")
    return made


def wait_held(
    cluster: CephCluster, image: str, *, user: str = "rbdagent"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait until an image has a permanent watcher; return the whole answer and that holder."""
    pool, _, name = image.partition("/")

    def held() -> tuple[dict[str, Any], dict[str, Any]] | None:
        if name not in cluster.rbd("ls", pool).split():
            return None
        answer = asked([sys.executable, "-m", "rbdagent"], cluster, image, user=user)
        staying = [holder for holder in answer["holders"] if not holder["transient"]]
        return (answer, staying[0]) if staying else None

    return wait_until(held, timeout_s=_READY_S, what=f"{image} to be watched in {cluster.name}")


def assert_mirrored_by(cluster: CephCluster, image: str, owner: str) -> None:
    answer, holder = wait_held(cluster, image)
    assert (holder["kind"], holder["verdict"]) == ("rbd-mirror", "Foreign"), cluster.name
    assert holder["reasons"] == [f"an rbd-mirror daemon of {owner} cluster"]
    (finding,) = (found for found in answer["findings"] if found["code"] == "RBD116")
    assert (finding["severity"], finding["commands"]) == ("info", [])
    assert "RBD115" not in {found["code"] for found in answer["findings"]}


def test_an_rbd_mirror_of_either_cluster_belongs_to_its_image(pair: Pair) -> None:
    """The service map of the primary cluster does not contain the daemon of its peer."""
    image = "k8s/snapshot"
    pair.primary.create_image(image, features="layering,exclusive-lock")
    pair.primary.rbd("mirror", "image", "enable", image, "snapshot")
    assert_mirrored_by(pair.primary, image, "a peer")
    assert_mirrored_by(pair.secondary, image, "this")


def test_an_rbd_mirror_that_copies_for_a_journal_belongs_to_its_image(pair: Pair) -> None:
    """With a journal, the daemon closes the image of its peer after the first copy.

    Source: rbd_mirror's BootstrapRequest::close_remote_image. It copies each object, also if there
    is none, so that an image of many objects stays open for a while.
    """
    image = "k8s/journal"
    features = "layering,exclusive-lock,journaling"
    pair.primary.create_image(image, size=f"{_OBJECTS * 4}K", features=features, object_size="4K")
    pair.primary.rbd("mirror", "image", "enable", image, "journal")
    assert_mirrored_by(pair.primary, image, "a peer")
    assert_mirrored_by(pair.secondary, image, "this")


def test_rbd_mirror_is_probable_if_librados_lists_no_watches(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, name = pair.primary, "unlisted"
    cluster.create_image(f"k8s/{name}", features="layering,exclusive-lock")
    cluster.rbd("mirror", "image", "enable", f"k8s/{name}", "snapshot")
    wait_held(cluster, f"k8s/{name}")
    monkeypatch.setattr("rbdagent.collect.ceph.list_watchers._library", lambda: None)
    view, source = observe_ceph([access(cluster)], [wanted(name)], deadline_s=20 * patience())
    assert view is not None
    seen = unmapped(
        ceph=view,
        sources=Sources(node=source, ceph=source, kubernetes=source),
        in_kube={"persistent_volumes": (), "claims": ()},
        target=target(
            argument=f"k8s/{name}", kind=TargetKind.IMAGE, name="", image=wanted(name).spec
        ),
    )
    holders = diagnosis_of(seen).holders
    assert {holder.holder.kind for holder in holders} == {HolderKind.LIBRBD}
    assert [holder.holder.probable_kind for holder in holders] == [HolderKind.MIRROR]
    assert found(seen, "RBD116").severity is Severity.INFO


def test_rbd_mirror_is_known_if_many_images_are_queried(pair: Pair) -> None:
    """For many images only the watches are queried, and the daemons once for each pool."""
    cluster, names = pair.primary, [f"many-{number}" for number in range(9)]
    for name in names:
        cluster.create_image(f"k8s/{name}", features="layering,exclusive-lock")
    cluster.rbd("mirror", "image", "enable", f"k8s/{names[0]}", "snapshot")
    wait_held(cluster, f"k8s/{names[0]}")
    opened = images_of(cluster, [wanted(name) for name in names])
    identities = [
        ImageIdentity(
            spec=image.spec, fsid=image.fsid, image_id=image.image_id, pool_id=image.pool_id
        )
        for image in opened
    ]
    for mirrored, *others in (opened, images_of(cluster, identities)):
        clients = {watcher.client for watcher in observed_of(mirrored.watchers)}
        assert clients
        assert clients <= {daemon.client for daemon in observed_of(mirrored.mirror_daemons)}
        assert all(image.watchers == () for image in others)


def images_of(cluster: CephCluster, images: list[ImageIdentity]) -> tuple[ImageView, ...]:
    view, _ = observe_ceph([access(cluster)], images, deadline_s=20 * patience())
    assert view is not None
    return view.clusters[0].images


def test_mgr_with_an_rbd_task_belongs_to_its_image(pair: Pair) -> None:
    """`ceph rbd task add flatten` of a large image takes a while."""
    cluster = pair.primary
    cluster.create_image("k8s/parent", size="1T")
    cluster.rbd("snap", "create", "--no-progress", "k8s/parent@one")
    cluster.rbd("clone", "--rbd-default-clone-format=2", "k8s/parent@one", "k8s/clone")
    cluster.create_user("profile-alone", READ_ONLY_CAPS | {"mon": "profile rbd-read-only"})
    task = json.loads(cluster.ceph("rbd", "task", "add", "flatten", "k8s/clone"))
    try:
        certain = wait_held(cluster, "k8s/clone")
        probable = wait_held(cluster, "k8s/clone", user="profile-alone")
    finally:
        cluster.ceph("rbd", "task", "cancel", task["id"])
    for answer, holder in (certain, probable):
        assert holder["verdict"] == "Foreign"
        (finding,) = (found for found in answer["findings"] if found["code"] == "RBD116")
        assert finding["severity"] == "info"
        assert "RBD115" not in {found["code"] for found in answer["findings"]}
    assert (certain[1]["kind"], certain[1]["probableKind"]) == ("mgr", None)
    assert certain[1]["reasons"] == ["ceph-mgr x (flatten)"]
    assert (probable[1]["kind"], probable[1]["probableKind"]) == ("librbd", "mgr")


def test_image_that_a_clone_keeps_in_the_trash_is_removed_after_a_flatten(pair: Pair) -> None:
    """ceph-csi deletes a volume so: it moves the image to the trash, and the mgr removes it.

    The mgr tries again every 30 s (TASK_RETRY_INTERVAL of rbd_support).
    """
    cluster = pair.primary
    cluster.create_image("k8s/deleted")
    cluster.rbd("snap", "create", "--no-progress", "k8s/deleted@one")
    cluster.rbd("clone", "--rbd-default-clone-format=2", "k8s/deleted@one", "k8s/child")
    number = json.loads(cluster.rbd("info", "k8s/deleted", "--format", "json"))["id"]
    cluster.rbd("trash", "mv", "k8s/deleted")
    cluster.ceph("rbd", "task", "add", "trash", "remove", f"k8s/{number}")
    kept = _of_trash(cluster)
    assert "It still has a snapshot: it remains until they are gone." in kept["message"]
    record("trash-kept-by-a-clone", cluster, "k8s/deleted")
    shown = kept["commands"][0]["argv"]
    assert "one" in cluster.rbd(*shown[1:])

    # A snapshot that a clone needs moves to the trash of the image, and still keeps it.
    cluster.rbd("snap", "rm", "--no-progress", "--pool=k8s", f"--image-id={number}", "--snap=one")
    assert "It still has a snapshot" in _of_trash(cluster)["message"]
    assert "trash (user one)" in " ".join(cluster.rbd(*shown[1:]).split())
    cluster.rbd("flatten", "--no-progress", "k8s/child")
    wait_until(
        lambda: number not in cluster.rbd("trash", "ls", "--all", "k8s"),
        timeout_s=2 * _READY_S,
        what="the mgr to remove the image",
        interval_s=1,
    )
    gone = ask_who_holds([sys.executable, "-m", "rbdagent"], cluster, "k8s/deleted")
    assert not gone.stdout
    assert "child" in cluster.rbd("ls", "k8s").split()


def _of_trash(cluster: CephCluster) -> dict[str, Any]:
    answer = asked([sys.executable, "-m", "rbdagent"], cluster, "k8s/deleted")
    return next(found for found in answer["findings"] if found["code"] == "RBD302")


def test_pool_at_its_quota_is_read_by_its_name(pair: Pair) -> None:
    """The mgr counts, the monitor sets the flag: some ten seconds after the last object."""
    cluster = pair.secondary
    cluster.create_pool("small", pg_num=1)
    cluster.ceph("osd", "pool", "set-quota", "small", "max_objects", "1")
    for name in ("one", "two"):
        cluster.rados("-p", "small", "create", name)

    def full() -> tuple[str, ...] | None:
        view, _ = observe_ceph([access(cluster)], [], deadline_s=10)
        assert view is not None
        checks = {check.name: check.texts for check in observed_of(view.clusters[0].health)}
        return checks.get("POOL_FULL")

    texts = wait_until(full, timeout_s=_READY_S, what="the flag of the pool", interval_s=1)
    assert "pool 'small' is full (running out of quota)" in texts
