"""The verdict on one holder: a table of snapshots for each verdict that it may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    CephView,
    DeviceNumber,
    NotObserved,
    Snapshot,
    Verdict,
)
from tests.support.rows import each_row
from tests.support.rule_rows.holder_verdicts import BY_DEVICE, EXPECTED
from tests.support.snapshots import (
    ADDRESS,
    COOKIE,
    LONG_AGO,
    POD_PATH,
    REMOTE_ADDRESS,
    UNSEEN,
    attachment,
    cluster,
    diagnosis_of,
    from_worker_2,
    image_view,
    judged,
    kube,
    mapping,
    mount,
    node,
    pod,
    remote_watcher,
    watcher,
    world,
)

if TYPE_CHECKING:
    from tests.support.rule_tables import Table


@each_row(
    ("expected", "seen"),
    [
        pytest.param(expected, seen, id=f"{expected}: {name}")
        for expected, table in EXPECTED
        for name, seen in table.items()
    ],
)
def test_holder_has_the_verdict(expected: Verdict, seen: Snapshot) -> None:
    first = judged(seen)
    assert (first.verdict, first.reasons) == (expected, first.reasons)
    assert first.reasons, "a verdict without evidence is a guess"
    assert first.since == seen.observed_at


MISSING: Final[Table] = {
    "mounts": world(mapped={"mounts": UNSEEN}),
    "openers": world(mapped={"openers": UNSEEN}),
    "holders": world(mapped={"holders": UNSEEN}),
    "kernel traces": world(mapped={"kernel_traces": UNSEEN}),
    "processes in flight": world(on_node={"in_flight": UNSEEN}),
    "kubelet": world(on_node={"kubelet": UNSEEN}),
    "staging directories": world(of_kubelet={"staging": UNSEEN}),
    "pod directories": world(of_kubelet={"pod_volumes": UNSEEN}),
    "Kubernetes": world(kubernetes=None, target=BY_DEVICE),
    "PersistentVolumes": world(in_kube={"persistent_volumes": UNSEEN}, target=BY_DEVICE),
    "pods": world(in_kube={"pods": UNSEEN}),
    "attachments": world(in_kube={"attachments": UNSEEN}),
    "Ceph": world(ceph=None),
    "the blocklist": world(in_ceph={"blocklist": UNSEEN}),
    "watchers": world(of_image={"watchers": UNSEEN}),
    "the image's presence": world(of_image={"presence": UNSEEN}),
    "the image": world(in_ceph={"images": ()}),
    "read-only or not": world(mapped={"read_only": UNSEEN}, of_image={"watchers": ()}),
}


@pytest.mark.parametrize("seen", MISSING.values(), ids=MISSING.keys())
def test_unobserved_fact_is_never_taken_as_absent(seen: Snapshot) -> None:
    assert judged(seen).verdict is Verdict.UNDETERMINED


def test_mounts_that_were_not_observed_are_not_none() -> None:
    """The file system that the kernel has may be mounted in a container that was not seen."""
    traces = {"kernel_traces": ("/sys/fs/ext4/rbd0",)}
    assert diagnosis_of(world(mapped=traces)).verdict is Verdict.PINNED
    unseen = world(mapped=traces | {"mounts": UNSEEN})
    assert diagnosis_of(unseen).verdict is Verdict.UNDETERMINED


def test_two_mappings_of_one_client_share_its_watches_by_cookie() -> None:
    second = mapping(device_id=1, device="/dev/rbd1", number=DeviceNumber(major=252, minor=16))
    seen = world(
        on_node={"mappings": (mapping(), second)},
        of_image={"watchers": (watcher(), watcher(cookie=COOKIE + 1))},
    )
    assert [holder.verdict for holder in diagnosis_of(seen).holders] == [
        Verdict.ORPHANED,
        Verdict.ORPHANED,
    ]


def test_read_only_mapping_does_not_take_the_watch_of_a_writer() -> None:
    reader = mapping(read_only=True)
    writer = mapping(device_id=1, device="/dev/rbd1", number=DeviceNumber(major=252, minor=16))
    seen = world(on_node={"mappings": (reader, writer)})
    watched = {
        holder.holder.mapping: holder.holder.watcher for holder in diagnosis_of(seen).holders
    }
    assert watched == {reader: None, writer: watcher()}


def test_watch_that_just_appears_is_not_missed() -> None:
    seen = world(of_image={"watchers": (), "transient_watchers": (watcher(),)})
    assert judged(seen).verdict is not Verdict.UNWATCHED


def test_holder_is_probable_by_address_and_certain_by_nonce() -> None:
    both = world(of_image={"watchers": (watcher(), remote_watcher())})
    assert [holder.holder.confidence for holder in diagnosis_of(both).holders] == [
        "certain",
        "probable",
    ]


def test_mapping_of_another_cluster_is_not_a_holder() -> None:
    elsewhere = mapping(
        device_id=1, device="/dev/rbd1", fsid="11111111-2222-3333-4444-555555555555"
    )
    seen = world(on_node={"mappings": (mapping(), elsewhere)})
    # The metadata of ceph-csi in the image show the cluster of the PV.
    assert [holder.holder.mapping for holder in diagnosis_of(seen).holders] == [mapping()]


def test_old_attachment_is_read_as_old() -> None:
    old = world(in_kube={"attachments": (attachment(created_at=LONG_AGO),)})
    assert judged(old).verdict is Verdict.ORPHANED


def test_a_failed_cluster_leaves_its_images_undetermined() -> None:
    blind = cluster(images=(image_view(watchers=NotObserved(reason="timed out"), presence=UNSEEN),))
    seen = world(ceph=CephView(clusters=(blind,)))
    assert judged(seen).verdict is Verdict.UNDETERMINED


def test_mount_at_a_pod_with_another_claim_is_in_use() -> None:
    other = pod(claims=("other",))
    seen = world(kubernetes=kube(pods=(other,)), mapped={"mounts": (mount(path=POD_PATH),)})
    # Mounted at the path of a pod that uses another claim: in use, regardless of the API.
    assert judged(seen).verdict is Verdict.IN_USE


def test_addresses_are_compared_regardless_of_their_notation() -> None:
    long, short = "fd00:0:0:0:0:0:0:11", "fd00::11"
    seen = world(
        mapped={"client_address": replace(ADDRESS, ip=long)},
        of_image={"watchers": (watcher(address=replace(ADDRESS, ip=short)),)},
    )
    assert judged(seen).holder.watcher is not None


def test_watcher_at_an_address_of_two_nodes_has_no_node() -> None:
    seen = from_worker_2(
        of_image={"watchers": (watcher(address=REMOTE_ADDRESS),)},
        in_kube={"nodes": (node("worker-1", internal_ips=("10.77.0.12",)), node("worker-2"))},
    )
    assert judged(seen).holder.node is None
