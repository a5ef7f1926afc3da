"""Joins: what belongs to which image, and what does not."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.correlate import correlate, correlate_node, images_of
from rbdagent.correlate.holders import entry_hits
from rbdagent.correlate.image_identity import same_image
from rbdagent.correlate.volume import further_volumes
from rbdagent.correlate.volume_names import oldest_first
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    Confidence,
    CsiSource,
    DeviceNumber,
    EntityAddress,
    HolderKind,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    ImageView,
    InTreeRbdSource,
    KubeEvent,
    NbdState,
    NotObserved,
    ObjectRef,
    PersistentVolume,
    ServiceAddress,
    Snapshot,
    Target,
    TargetKind,
    Volume,
    VolumeData,
    Watcher,
)
from tests.support.snapshots import (
    ADDRESS,
    COOKIE,
    DRIVER,
    FSID,
    HANDLE,
    IMAGE_ID,
    IN_USE_NAME,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    OTHER_FSID,
    POD_PATH,
    POD_UID,
    PV,
    REMOTE_ADDRESS,
    SPEC,
    STAGING_PATH,
    UNSEEN,
    attachment,
    claim,
    cluster,
    container,
    event,
    image_view,
    in_flight,
    kube,
    kubelet,
    mapping,
    mount,
    nbd_mapping,
    node,
    node_view,
    opener,
    pod,
    pod_directory,
    process,
    snapshot,
    staging,
    target,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

IMAGE: Final = ImageIdentity(spec=SPEC, fsid=None)
INLINE: Final = InTreeRbdSource(spec=ImageSpec(pool="rbd", name="inline"))
OTHER: Final = mapping(
    device="/dev/rbd10",
    device_id=10,
    number=DeviceNumber(major=252, minor=160),
    spec=ImageSpec(pool="k8s", name="csi-vol-other"),
    image_id="2222",
)


# --------------------------------------------------------------------------------------------------
# From a target to images
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        target(),
        target(kind=TargetKind.CLAIM, namespace="default", name="data"),
        target(kind=TargetKind.POD, namespace="default", name="web-0"),
        target(kind=TargetKind.VOLUME_HANDLE, name=HANDLE),
        target(kind=TargetKind.IMAGE, name="", image=SPEC),
        target(kind=TargetKind.DEVICE, name="/dev/rbd0"),
        target(kind=TargetKind.DEVICE, name="rbd0"),
        target(kind=TargetKind.NONE, name=""),
    ],
    ids=lambda asked: f"{asked.kind} {asked.name}",
)
def test_every_form_of_target_leads_to_the_image(asked: Target) -> None:
    found = images_of(asked, node_view(), kube(pods=(pod(),)))
    assert [image.spec for image in found] == [SPEC]


def test_pod_leads_to_all_its_images_and_the_inline_ones() -> None:
    asked = target(kind=TargetKind.POD, namespace="default", name="web-0")
    found = images_of(asked, None, kube(pods=(pod(inline_images=(INLINE,)),)))
    assert [image.spec for image in found] == [SPEC, INLINE.spec]


def test_unbound_claim_leads_to_no_image() -> None:
    asked = target(kind=TargetKind.CLAIM, namespace="default", name="data")
    pending = kube(persistent_volumes=(), claims=(claim(phase="Pending", volume_name=None),))
    assert images_of(asked, node_view(), pending) == ()


def test_claim_leads_to_its_volume_name_and_not_to_another_pv() -> None:
    asked = target(kind=TargetKind.CLAIM, namespace="default", name="data")
    thief = volume(name="thief", source=INLINE)
    found = images_of(asked, None, kube(persistent_volumes=(volume(), thief)))
    assert [image.spec for image in found] == [SPEC]


def test_handle_leads_to_the_stash_without_the_api() -> None:
    asked = target(kind=TargetKind.VOLUME_HANDLE, name=HANDLE)
    assert [image.spec for image in images_of(asked, node_view(), None)] == [SPEC]


def test_handle_alone_leads_to_the_usual_name_and_the_pool_id() -> None:
    asked = target(kind=TargetKind.VOLUME_HANDLE, name=HANDLE)
    (found,) = images_of(asked, None, None)
    assert (found.spec, found.pool_id) == (replace(SPEC, pool=""), 1)


def test_pv_leads_to_its_pod_directory_without_the_api() -> None:
    here = node_view(kubelet=kubelet(pod_volumes=(pod_directory(),)))
    assert [image.spec for image in images_of(target(), here, None)] == [SPEC]


def test_a_pool_id_gets_its_name_from_ceph() -> None:
    by_id = CsiSource(driver=DRIVER, volume_handle=HANDLE)
    seen = world(in_kube={"persistent_volumes": (volume(source=by_id),)})
    use = correlate(seen)
    assert use.image == ImageIdentity(spec=SPEC, fsid=FSID, image_id=IMAGE_ID, pool_id=1)
    assert len(use.holders) == 1


# --------------------------------------------------------------------------------------------------
# Equality of images
# --------------------------------------------------------------------------------------------------

SAME: Final = {
    "equal names, nothing else known": (IMAGE, IMAGE, True),
    "another cluster": (
        replace(IMAGE, fsid=FSID),
        replace(IMAGE, fsid=OTHER_FSID),
        False,
    ),
    "another RADOS namespace": (
        IMAGE,
        replace(IMAGE, spec=replace(SPEC, namespace="t")),
        False,
    ),
    "another pool": (IMAGE, replace(IMAGE, spec=replace(SPEC, pool="p")), False),
    "renamed: equal ids in one cluster": (
        ImageIdentity(spec=SPEC, fsid=FSID, image_id="1"),
        ImageIdentity(spec=replace(SPEC, name="x"), fsid=FSID, image_id="1"),
        True,
    ),
    "equal ids, the cluster of one unknown": (
        ImageIdentity(spec=SPEC, fsid=None, image_id="1"),
        ImageIdentity(spec=replace(SPEC, name="x"), fsid=FSID, image_id="1"),
        False,
    ),
    "made again under its old name": (
        ImageIdentity(spec=SPEC, fsid=FSID, image_id="1"),
        ImageIdentity(spec=SPEC, fsid=FSID, image_id="2"),
        False,
    ),
    "a pool known by its id only": (
        ImageIdentity(spec=replace(SPEC, pool=""), fsid=None, pool_id=1),
        ImageIdentity(spec=SPEC, fsid=FSID, pool_id=1),
        True,
    ),
    "a pool known by its id only, and it is another": (
        ImageIdentity(spec=replace(SPEC, pool=""), fsid=None, pool_id=2),
        ImageIdentity(spec=SPEC, fsid=FSID, pool_id=1),
        False,
    ),
    "a renamed pool": (
        ImageIdentity(spec=SPEC, fsid=FSID, pool_id=1),
        ImageIdentity(spec=replace(SPEC, pool="new"), fsid=FSID, pool_id=1),
        True,
    ),
}


@pytest.mark.parametrize(("one", "other", "same"), SAME.values(), ids=SAME.keys())
def test_two_identities_are_one_image(
    one: ImageIdentity, other: ImageIdentity, *, same: bool
) -> None:
    assert same_image(one, other) is same
    assert same_image(other, one) is same


def test_two_clusters_with_equal_names_are_separate_in_a_list() -> None:
    far = mapping(device="/dev/rbd1", device_id=1, fsid=OTHER_FSID, image_id="77")
    both = CephView(
        clusters=(
            cluster(),
            cluster(
                name="far",
                fsid=OTHER_FSID,
                images=(image_view(fsid=OTHER_FSID, image_id="77", watchers=(), metadata=()),),
            ),
        )
    )
    seen = world(
        on_node={"mappings": (mapping(), far)},
        ceph=both,
        target=Target(argument="", kind=TargetKind.NONE),
    )
    uses = correlate_node(seen)
    assert [use.image.fsid for use in uses if use.image] == [FSID, OTHER_FSID]
    assert [len(use.holders) for use in uses] == [1, 1]
    assert [use.holders[0].watcher for use in uses] == [watcher(), None]


# --------------------------------------------------------------------------------------------------
# Watchers
# --------------------------------------------------------------------------------------------------


def test_watcher_belongs_to_the_mapping_with_its_id_and_nonce() -> None:
    (holder,) = correlate(world()).holders
    assert (holder.watcher, holder.confidence, holder.is_local) == (
        watcher(),
        Confidence.CERTAIN,
        True,
    )


@pytest.mark.parametrize(
    "stray",
    [
        watcher(client=1),
        watcher(address=replace(ADDRESS, nonce=1)),
        watcher(address=replace(ADDRESS, ip="10.77.0.99")),
    ],
    ids=["another client id", "another nonce", "another address"],
)
def test_watcher_that_differs_is_a_separate_holder(stray: object) -> None:
    use = correlate(world(of_image={"watchers": (stray,)}))
    assert [holder.watcher for holder in use.holders] == [None, stray]


TWIN: Final = image_view(metadata=UNSEEN, lockers=UNSEEN)
"""The answer for the same image, which was searched by its name and by the id of its device."""
CHECK: Final = watcher(client=4400, cookie=LIBRBD_COOKIE)
FAILED: Final = image_view(presence=UNSEEN, image_id=None, watchers=UNSEEN)
"""A search by the name alone that got no answer."""


def searched_twice(twin: ImageView, order: int, **first: Any) -> Volume:  # noqa: ANN401 - a view's own
    both = (image_view(**first), twin)[::order]
    return correlate(world(ceph=CephView(clusters=(cluster(images=both),))))


@pytest.mark.parametrize(
    ("twin", "watchers"),
    [
        (TWIN, [watcher()]),
        (replace(TWIN, watchers=UNSEEN, presence=UNSEEN), [watcher()]),
        (replace(TWIN, watchers=()), [watcher()]),
        (replace(TWIN, watchers=(watcher(), CHECK)), [watcher(), CHECK]),
        (replace(TWIN, watchers=(CHECK,)), [watcher(), CHECK]),
        (FAILED, [watcher()]),
    ],
    ids=[
        "equal",
        "one not observed",
        "one before it was mapped",
        "one while another opens it",
        "one client each",
        "one search failed",
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_image_that_was_searched_twice_has_each_watch_once(
    twin: ImageView, watchers: list[Watcher], order: int
) -> None:
    use = searched_twice(twin, order)
    assert use.image_view is not None
    assert use.image_view.metadata == image_view().metadata, "what one of them observed"
    assert {holder.watcher for holder in use.holders} == {*watchers}
    assert use.holders[0].mapping is not None


@pytest.mark.parametrize("order", [1, -1])
def test_watch_for_a_moment_in_one_of_two_answers_is_kept(order: int) -> None:
    use = searched_twice(TWIN, order, transient_watchers=(CHECK,))
    assert [holder.watcher for holder in use.holders if holder.transient] == [CHECK]
    use = searched_twice(
        replace(TWIN, watchers=(watcher(), CHECK)), order, transient_watchers=(CHECK,)
    )
    assert [holder.transient for holder in use.holders] == [False, False]


@pytest.mark.parametrize("order", [1, -1])
def test_deleted_image_is_not_gone_if_one_answer_is_missing(order: int) -> None:
    gone = replace(TWIN, presence=ImagePresence.GONE, watchers=())
    use = searched_twice(gone, order, presence=UNSEEN, watchers=UNSEEN)
    assert use.image_view is not None
    assert (use.image_view.presence, use.image_view.watchers) == (UNSEEN, UNSEEN)


def test_watcher_with_our_nonce_is_ours_at_any_address() -> None:
    overlay = replace(ADDRESS, ip="172.16.9.9")
    seen = world(
        mapped={"client_address": overlay}, of_image={"watchers": (watcher(address=overlay),)}
    )
    (holder,) = correlate(seen).holders
    assert holder.confidence is Confidence.CERTAIN


def test_only_matching_watcher_belongs_to_a_living_nbd() -> None:
    watch = watcher(client=5000, cookie=LIBRBD_COOKIE)
    seen = world(on_node={"mappings": (nbd_mapping(),)}, of_image={"watchers": (watch,)})
    (holder,) = correlate(seen).holders
    assert (holder.kind, holder.watcher) == (HolderKind.NBD, watch)


def test_none_of_two_watchers_is_assigned_to_the_nbd() -> None:
    both = tuple(watcher(client=number, cookie=LIBRBD_COOKIE + number) for number in (1, 2))
    seen = world(on_node={"mappings": (nbd_mapping(),)}, of_image={"watchers": both})
    assert correlate(seen).holders[0].watcher is None


def test_nbd_is_identified_by_its_cookie_alone() -> None:
    device = nbd_mapping(spec=UNSEEN, nbd=NbdState(recorded_pid=1, backend=HANDLE, process=None))
    seen = world(on_node={"mappings": (device,)}, of_image={"watchers": ()})
    assert [holder.mapping for holder in correlate(seen).holders] == [device]


def test_siblings_are_the_devices_of_the_same_client() -> None:
    (holder,) = correlate(world(on_node={"mappings": (mapping(), OTHER)})).holders
    assert holder.sibling_devices == ("/dev/rbd10",)


HITS: Final = {
    "the client itself": (BlocklistEntry(network="10.77.0.11", nonce=ADDRESS.nonce), True),
    "another nonce": (BlocklistEntry(network="10.77.0.11", nonce=1), False),
    "the whole host": (BlocklistEntry(network="10.77.0.11"), True),
    "a daemon's port on that host": (BlocklistEntry(network="10.77.0.11", port=6800), False),
    "a range": (BlocklistEntry(network="10.77.0.0/24"), True),
    "a range of this address alone": (BlocklistEntry(network="10.77.0.11/32"), True),
    "a range with bits behind its prefix": (BlocklistEntry(network="10.77.0.99/24"), True),
    "a range beside it": (BlocklistEntry(network="10.78.0.0/24"), False),
    "an IPv6 range": (BlocklistEntry(network="fd00::/8"), False),
    "no address at all": (BlocklistEntry(network="nonsense/x"), False),
}


IN_SIX: Final = EntityAddress(ip="fd00:1::5", nonce=9)
HITS_OF_SIX: Final = {
    "the client itself": (BlocklistEntry(network="fd00:1::5", nonce=9), True),
    "the client, spelled out": (BlocklistEntry(network="fd00:1:0:0:0:0:0:5", nonce=9), True),
    "the whole host": (BlocklistEntry(network="fd00:1::5"), True),
    "a range of this address alone": (BlocklistEntry(network="fd00:1::5/128"), True),
    "a range": (BlocklistEntry(network="fd00:1::/64"), True),
    "a range with bits behind its prefix": (BlocklistEntry(network="fd00:1::9/64"), True),
    "a range beside it": (BlocklistEntry(network="fd00:2::/64"), False),
    "an IPv4 range": (BlocklistEntry(network="0.0.0.0/1"), False),
}


@pytest.mark.parametrize(("entry", "hits"), HITS_OF_SIX.values(), ids=HITS_OF_SIX.keys())
def test_blocklist_entry_matches_an_ipv6_client(entry: BlocklistEntry, *, hits: bool) -> None:
    assert entry_hits(entry, IN_SIX) is hits


@pytest.mark.parametrize(("entry", "hits"), HITS.values(), ids=HITS.keys())
def test_blocklist_entry_matches_a_client(entry: BlocklistEntry, *, hits: bool) -> None:
    assert entry_hits(entry, ADDRESS) is hits


def test_remote_watcher_is_assigned_to_a_node_by_internal_ip() -> None:
    far = watcher(address=REMOTE_ADDRESS, client=9)
    holder = correlate(world(of_image={"watchers": (watcher(), far)})).holders[1]
    assert (holder.node, holder.confidence, holder.is_local) == (
        "worker-2",
        Confidence.PROBABLE,
        False,
    )


def test_cookie_is_a_hint_for_kernel_or_librbd() -> None:
    stranger = EntityAddress(ip="192.0.2.1", nonce=2)
    both = (
        watcher(address=stranger, cookie=COOKIE, client=1),
        watcher(address=stranger, cookie=LIBRBD_COOKIE, client=2),
    )
    use = correlate(world(on_node={"mappings": ()}, of_image={"watchers": both}))
    assert [holder.kind for holder in use.holders] == [HolderKind.KRBD, HolderKind.LIBRBD]


# --------------------------------------------------------------------------------------------------
# Pods, attachments, directories
# --------------------------------------------------------------------------------------------------


def test_pods_belong_by_claim_and_node() -> None:
    pods = (pod(), pod("far", "worker-2"), pod("none", claims=("other",)), waiting_pod())
    use = correlate(world(in_kube={"pods": pods}))
    assert use.holders[0].pods == (pod(),)
    assert use.waiting_pods == (waiting_pod(),)


def test_pods_of_an_inline_image_belong_to_it() -> None:
    user = pod(claims=(), inline_images=(INLINE,))
    device = mapping(spec=INLINE.spec, image_id=None)
    seen = world(
        on_node={"mappings": (device,)},
        in_kube={"pods": (user,)},
        target=target(kind=TargetKind.IMAGE, name="", image=INLINE.spec),
        in_ceph={"images": ()},
    )
    assert correlate(seen).holders[0].pods == (user,)


OWNER: Final = ObjectRef(namespace="default", name="data", uid="claim-uid")
FOREIGN: Final = ObjectRef(namespace="tenant", name="mine", uid="0a0a")
INTRUDER: Final = pod(
    ref=ObjectRef(namespace="tenant", name="intruder", uid="0b0b"), claims=("mine",)
)


def asking(phase: str, owner: ObjectRef | None = OWNER) -> Snapshot:
    """Return a world where a claim of another namespace names the PV, and a pod names the claim."""
    return world(
        in_kube={
            "claims": (claim(), claim(ref=FOREIGN, phase=phase)),
            "persistent_volumes": (volume(claim=owner),),
            "pods": (replace(INTRUDER, phase="Pending", containers=()),),
        }
    )


@pytest.mark.parametrize("phase", ["Pending", "Lost"])
def test_claim_that_names_the_pv_of_another_claim_makes_no_user(phase: str) -> None:
    use = correlate(asking(phase))
    assert use.holders[0].pods == ()
    assert use.waiting_pods == ()


def test_claim_that_the_controller_has_bound_makes_a_user() -> None:
    assert [user.ref.name for user in correlate(asking("Bound")).pods] == ["intruder"]


def test_claim_that_names_a_free_volume_makes_a_user() -> None:
    free = correlate(asking("Pending", owner=None))
    assert [user.ref.name for user in free.pods] == ["intruder"]


def test_pod_that_ran_with_a_lost_claim_is_a_user() -> None:
    """Assert a user: the mount of the pod outlives the binding of the claim."""
    seen = asking("Lost")
    assert seen.kubernetes is not None
    running = replace(seen.kubernetes, pods=(replace(INTRUDER, phase="Running"),))
    use = correlate(replace(seen, kubernetes=running))
    assert [user.ref.name for user in use.pods] == ["intruder"]


MONITORS: Final = {
    ("10.77.0.1:6789",): True,
    ("10.77.0.1",): True,
    ("192.0.2.7:6789", "10.77.0.1:3300"): True,
    ("mon.example.com:6789",): True,
    (): True,
    ("192.0.2.7:6789",): False,
    ("[2001:db8::7]:6789", "192.0.2.7"): False,
}


@pytest.mark.parametrize(("monitors", "is_user"), MONITORS.items())
def test_inline_volume_counts_if_its_monitors_may_be_the_same(
    monitors: tuple[str, ...], *, is_user: bool
) -> None:
    inline = InTreeRbdSource(spec=SPEC, monitors=monitors)
    user = pod("inline", claims=(), inline_images=(inline,))
    ours = ServiceAddress(kind="mon", name="a", address=replace(ADDRESS, ip="10.77.0.1"))
    seen = world(in_kube={"pods": (user,)}, in_ceph={"monitors": (ours,)})
    assert (correlate(seen).holders[0].pods == (user,)) is is_user


SCOPES: Final = {
    "cluster": True,
    "node/worker-1": True,
    "node/worker-1,namespace/default": True,
    "namespace/default": True,
    "node/worker-2": False,
    "namespace/other": False,
    "": False,
}


@pytest.mark.parametrize(("scope", "covered"), SCOPES.items())
def test_pod_list_counts_only_within_its_scope(scope: str, *, covered: bool) -> None:
    (holder,) = correlate(world(in_kube={"pods_scope": scope})).holders
    assert isinstance(holder.pods, tuple) is covered


def test_pods_are_not_observed_if_volumes_are_not() -> None:
    asked = target(kind=TargetKind.DEVICE, name="/dev/rbd0")
    seen = world(in_kube={"persistent_volumes": UNSEEN, "pods": (pod(),)}, target=asked)
    assert isinstance(correlate(seen).holders[0].pods, NotObserved)


def test_an_attachment_belongs_by_pv_and_node_or_by_its_name() -> None:
    nameless = attachment(persistent_volume=None)
    use = correlate(world(in_kube={"attachments": (nameless, attachment("worker-2"))}))
    assert use.holders[0].attachment == nameless
    assert isinstance(use.attachments, tuple)
    assert len(use.attachments) == 2


def test_volumes_in_use_is_shown() -> None:
    nodes = (node(volumes_in_use=(IN_USE_NAME,)), node("worker-2"))
    assert correlate(world(in_kube={"nodes": nodes})).holders[0].in_volumes_in_use is True


@pytest.mark.parametrize(
    "directory",
    [
        staging(),
        staging(volume_handle=None, volume_data=None, stash=None),
        staging(volume_handle=None, handle_hash=None, persistent_volume=PV, stash=None),
        staging(volume_handle=None, handle_hash=None, volume_data=None),
    ],
    ids=["by handle", "by hash", "by PV", "by stash"],
)
def test_staging_directory_belongs_by_handle_hash_pv_or_stash(directory: object) -> None:
    (holder,) = correlate(world(of_kubelet={"staging": (directory,)})).holders
    assert holder.staging == (directory,)


def test_staging_directory_of_another_handle_does_not_belong() -> None:
    foreign = staging(path="/x", volume_handle="other", handle_hash="00")
    (holder,) = correlate(world(of_kubelet={"staging": (foreign,)})).holders
    assert holder.staging == ()


def test_staging_directory_belongs_if_the_device_is_mounted_there() -> None:
    nameless = staging(volume_handle=None, handle_hash=None, volume_data=None, stash=None)
    seen = world(
        mapped={"mounts": (mount(path=STAGING_PATH),)}, of_kubelet={"staging": (nameless,)}
    )
    assert correlate(seen).holders[0].staging == (nameless,)


def test_pod_of_a_process_that_the_api_lacks_is_lost() -> None:
    seen = world(mapped={"openers": (opener(process=process(pod_uid="gone")),)})
    assert correlate(seen).holders[0].unknown_pod_uids == ("gone",)


def test_no_pod_is_lost_if_not_every_pod_was_listed() -> None:
    seen = world(
        mapped={"mounts": (mount(path="/d", namespace=container()),)},
        in_kube={"pods_scope": "namespace/default"},
    )
    assert correlate(seen).holders[0].unknown_pod_uids == ()


def test_mount_path_identifies_the_pod() -> None:
    seen = world(mapped={"mounts": (mount(path=POD_PATH),)})
    assert correlate(seen).holders[0].unknown_pod_uids == (POD_UID,)


@pytest.mark.parametrize(
    ("command", "belongs"),
    [
        (f"rbd unmap {SPEC}", True),
        (f"rbd map k8s/{SPEC.name}@snap", True),
        ("mkfs.ext4 /dev/rbd0", True),
        ("fsck /dev/rbd0p1", True),
        (f"umount {STAGING_PATH}", True),
        ("mkfs.ext4 /dev/rbd10", False),
        ("rbd map k8s/csi-vol-other", False),
        ("mount /dev/vda1 /mnt", False),
    ],
)
def test_process_in_flight_belongs_by_whole_words(command: str, *, belongs: bool) -> None:
    seen = world(on_node={"in_flight": (in_flight(command.split(maxsplit=1)[0], command),)})
    flights = correlate(seen).holders[0].in_flight
    assert bool(flights) is belongs


@pytest.mark.parametrize(
    ("on_device", "belongs"), [(True, True), (False, False)], ids=["the device", "a file on it"]
)
def test_process_in_flight_belongs_if_it_has_the_device_open(
    *, on_device: bool, belongs: bool
) -> None:
    ends = in_flight("fsck.ext4", "fsck.ext4")
    opened = replace(opener(), process=ends.process, on_device=on_device)
    seen = world(mapped={"openers": (opened,)}, on_node={"in_flight": (ends,)})
    assert bool(correlate(seen).holders[0].in_flight) is belongs


def test_a_leftover_is_a_directory_without_pod_and_mount() -> None:
    directories = {"pod_volumes": (pod_directory(),)}
    assert correlate(world(of_kubelet=directories)).leftovers == (pod_directory(),)
    mounted = world(of_kubelet=directories, mapped={"mounts": (mount(path=POD_PATH),)})
    assert correlate(mounted).leftovers == ()
    living = world(of_kubelet=directories, in_kube={"pods": (pod(),)})
    assert correlate(living).leftovers == ()


def test_handles_come_from_the_node_if_the_pv_is_deleted() -> None:
    asked = target(kind=TargetKind.DEVICE, name="/dev/rbd0")
    seen = world(
        in_kube={"persistent_volumes": (), "attachments": (attachment(persistent_volume=None),)},
        target=asked,
    )
    assert correlate(seen).holders[0].attachment == attachment(persistent_volume=None)


# --------------------------------------------------------------------------------------------------
# Images that Kubernetes made
# --------------------------------------------------------------------------------------------------


def made_by_hand(**parts: object) -> bool:
    """Return whether an image without a provisioner's name counts as made by hand."""
    spec = ImageSpec(pool="k8s", name="by-hand")
    here = node_view(
        mappings=(mapping(spec=spec),),
        kubelet=kubelet(staging=parts.get("staging", ())),
    )
    seen = snapshot(
        node=here,
        ceph=CephView(
            clusters=(cluster(images=(image_view(spec=spec, metadata=parts.get("metadata", ())),)),)
        ),
        target=target(kind=TargetKind.DEVICE, name="/dev/rbd0"),
    )
    return not correlate(seen).holders[0].is_kubernetes_managed


def test_image_belongs_to_kubernetes_by_stash_or_metadata_only() -> None:
    stash = staging(
        volume_handle=None,
        handle_hash=None,
        volume_data=None,
        path="/s",
        stash=replace(staging().stash, spec=ImageSpec(pool="k8s", name="by-hand")),  # type: ignore[type-var]
    )
    assert made_by_hand()
    assert not made_by_hand(staging=(stash,))
    assert not made_by_hand(metadata=(("csi.storage.k8s.io/pv/name", "pv"),))


# --------------------------------------------------------------------------------------------------
# Holders, volumes and lists
# --------------------------------------------------------------------------------------------------


def test_a_running_pod_without_watch_or_mapping_is_a_holder() -> None:
    use = correlate(unmapped(in_kube={"pods": (pod("far", "worker-2"),)}))
    assert [(holder.node, holder.kind) for holder in use.holders] == [
        ("worker-2", HolderKind.UNKNOWN)
    ]


def test_waiting_pod_is_not_a_holder() -> None:
    assert correlate(unmapped(in_kube={"pods": (waiting_pod(),)})).holders == ()


def test_pvs_of_one_image_or_one_handle_are_named_together() -> None:
    copy = volume(name="copy")
    renamed = volume(
        name="same-handle",
        source=CsiSource(
            driver=DRIVER, volume_handle=HANDLE, attributes=(("imageName", "x"), ("pool", "p"))
        ),
    )
    use = correlate(world(in_kube={"persistent_volumes": (volume(), copy, renamed)}))
    assert [pv.name for pv in use.other_volumes] == ["copy", "same-handle"]


def two_volumes(name: str) -> PersistentVolume:
    return volume(
        name=name,
        source=InTreeRbdSource(spec=ImageSpec(pool="rbd", name=name)),
        claim=ObjectRef(namespace="default", name=name),
    )


def test_volume_with_warning_events_is_chosen_for_a_pod() -> None:
    asked = target(kind=TargetKind.POD, namespace="default", name="web-0")
    seen = world(
        in_kube={
            "persistent_volumes": (two_volumes("a"), two_volumes("b")),
            "claims": (),
            "pods": (pod(claims=("a", "b")),),
            "events": (event('Multi-Attach error for volume "b"'),),
        },
        target=asked,
    )
    use = correlate(seen)
    assert use.persistent_volume == two_volumes("b")
    assert further_volumes(use, seen) == (two_volumes("a"),)


DIFFERENCES: Final[dict[str, dict[str, Any]]] = {
    "time": {"last_seen": NOW},
    "no time": {"last_seen": None},
    "kind": {"kind": "PersistentVolumeClaim"},
    "namespace": {"subject": ObjectRef(namespace="shop", name="web-1")},
    "name": {"subject": ObjectRef(namespace="default", name="web-2")},
    "uid": {"subject": ObjectRef(namespace="default", name="web-1", uid="a")},
    "type": {"type": "Normal"},
    "reason": {"reason": "FailedMount"},
    "message": {"message": "no secret"},
    "first time": {"first_seen": LONG_AGO},
    "reporter": {"reporter": "kubelet"},
    "count": {"count": 2},
}
"""The fields in which two events may differ."""


@pytest.mark.parametrize("field", DIFFERENCES)
def test_order_of_events_does_not_depend_on_the_reading_order(field: str) -> None:
    one, other = event("no key"), event(**{"message": "no key", **DIFFERENCES[field]})
    assert one != other
    assert oldest_first((one, other)) == oldest_first((other, one))


def test_every_field_of_an_event_orders_it() -> None:
    differing = {name for overrides in DIFFERENCES.values() for name in overrides}
    assert differing == set(KubeEvent.__struct_fields__)


def test_list_has_one_use_per_image_with_its_claim() -> None:
    seen = world(
        on_node={"mappings": (mapping(), OTHER)}, target=Target(argument="", kind=TargetKind.NONE)
    )
    first, second = correlate_node(seen)
    assert first.claim == claim()
    assert first.target.argument == "/dev/rbd0"
    assert second.persistent_volume is None


def test_a_device_without_a_readable_image_is_still_listed() -> None:
    blind = mapping(spec=UNSEEN, image_id=None)
    (use,) = correlate_node(
        world(on_node={"mappings": (blind,)}, target=Target(argument="", kind=TargetKind.NONE))
    )
    assert [holder.mapping for holder in use.holders] == [blind]
    assert use.image is None


def test_vol_data_without_a_handle_joins_nothing() -> None:
    empty = pod_directory(
        persistent_volume="other",
        path="/elsewhere",
        volume_data=VolumeData(driver=None, volume_handle=None),
    )
    (holder,) = correlate(world(of_kubelet={"pod_volumes": (empty,)})).holders
    assert holder.pod_volumes == ()
