"""States with the sign of one cause and another cause: facts of another subject decide nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    BlocklistEntry,
    CephView,
    HealthCheck,
    LogEntry,
    LogExcerpt,
    NodeLogs,
    Severity,
    StorageClass,
    Verdict,
    Workload,
)
from tests.support.claims import recorded_claim
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import GONE_IMAGE, REFUSED, waits
from tests.support.rule_tables import kubelet_event
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    LONG_AGO,
    NOW,
    OTHER_FSID,
    POD_PATH,
    POD_UID,
    PV,
    UNSEEN,
    cluster,
    codes,
    diagnosis_of,
    event,
    found,
    from_worker_2,
    image_view,
    in_flight,
    mount,
    node,
    opener,
    process,
    reported_by,
    reported_mapping,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

WAITING: Final = waiting_pod(node="worker-1")
UID: Final = str(WAITING.ref.uid)
AT_ITS_PATH: Final = (mount(), mount(path=POD_PATH.replace(POD_UID, UID)))
FULL: Final = HealthCheck(name="POOL_FULL", texts=("1 pool(s) full", "pool 'k8s' is full (no)"))


def logged(seen: Snapshot, *kubelet: LogEntry) -> Snapshot:
    """Return a snapshot with lines of kubelet's log."""
    logs = NodeLogs(
        kubelet=LogExcerpt(since=LONG_AGO, lines=kubelet),
        plugin=LogExcerpt(since=LONG_AGO),
        kernel=LogExcerpt(since=LONG_AGO),
    )
    assert seen.node is not None
    return replace(seen, node=replace(seen.node, logs=logs))


def ownership_of(uid: str) -> LogEntry:
    """Return kubelet's line about the files of a pod."""
    path = f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{PV}/mount"
    text = f"Setting volume ownership for {path} and fsGroup set. If the volume has many files"
    return LogEntry(at="2026-11-21T02:05:00Z", text=text, names=(PV,))


# fsGroup ------------------------------------------------------------------------------------------


def test_line_about_a_former_pod_hides_no_step() -> None:
    busy = in_flight("umount", "umount /dev/rbd0", names=("/dev/rbd0",))
    for seen in (world(in_kube={"pods": (WAITING,)}), world(on_node={"in_flight": (busy,)})):
        assert "RBD120" in codes(logged(seen, ownership_of("a-former-pod")))


def test_pod_whose_files_are_changed_is_named() -> None:
    both = (WAITING, waiting_pod("web-2", node="worker-1"))
    seen = logged(world(in_kube={"pods": both}), ownership_of(str(both[1].ref.uid)))
    assert "default/web-2 waits" in found(seen, "RBD763").message


def test_sandbox_that_fails_ends_the_change_of_the_files() -> None:
    late = event(
        "Failed to create pod sandbox: no network",
        reason="FailedCreatePodSandBox",
        reporter="kubelet",
        subject=WAITING.ref,
    )
    seen = world(mapped={"mounts": AT_ITS_PATH}, in_kube={"pods": (WAITING,), "events": (late,)})
    assert "RBD763" not in codes(logged(seen, ownership_of(UID)))


def test_pod_that_waits_for_another_volume_is_no_warning_about_this_one() -> None:
    general = kubelet_event(
        "Unable to attach or mount volumes: unmounted volumes=[other], unattached volumes=[], "
        "failed to process volumes=[]: timed out waiting for the condition",
        subject=WAITING.ref,
        first_seen="2026-11-21T02:10:00Z",
    )
    for mounts, severity in ((AT_ITS_PATH, Severity.INFO), ((mount(),), Severity.WARNING)):
        seen = world(mapped={"mounts": mounts}, in_kube={"pods": (WAITING,), "events": (general,)})
        assert found(seen, "RBD120").severity is severity


# The blocklist ------------------------------------------------------------------------------------

NODES: Final = (node("worker-1"), node("worker-2", internal_ips=("10.77.0.12", "fd00::12")))
HOST: Final = BlocklistEntry(network="10.77.0.12", port=0, nonce=0, until="2026-11-22T00:00:00Z")


def refused_map(**in_ceph: object) -> Snapshot:
    """Return a snapshot in which a map on worker-2 fails with 108."""
    return world(in_kube={**waits(REFUSED), "nodes": NODES}, in_ceph=in_ceph)


def test_entry_of_the_host_is_named() -> None:
    assert "is on Ceph's blocklist by" in found(refused_map(blocklist=(HOST,)), "RBD308").message


def test_entry_of_another_cluster_fences_no_node() -> None:
    other = cluster(name="other", fsid=OTHER_FSID, images=(), blocklist=(HOST,))
    seen = replace(refused_map(), ceph=CephView(clusters=(cluster(), other)))
    assert "the Ceph client of worker-2 is blocklisted" in found(seen, "RBD308").message


def test_node_that_was_not_observed_may_have_mappings() -> None:
    assert "Evict all pods" in found(refused_map(), "RBD308").message


@each_row("blocklist", [(), UNSEEN])
def test_report_of_a_dead_client_that_watches_is_not_believed(blocklist: object) -> None:
    """Whether its entry is gone may be unknown: a watch is newer than the report."""
    report = reported_mapping(verdict=Verdict.DEAD)
    seen = from_worker_2(
        in_ceph={"images": (image_view(watchers=(watcher(),)),), "blocklist": blocklist},
        in_kube={"published": (reported_by("worker-1", mappings=(report,)),)},
    )
    assert diagnosis_of(seen).verdict is Verdict.UNDETERMINED


# The provisioner ----------------------------------------------------------------------------------


def test_health_of_one_of_two_clusters_decides_nothing() -> None:
    seen = recorded_claim("provisioning-quota")
    assert seen.kubernetes is not None
    made = StorageClass(name="rbd-quota", provisioner=DRIVER, pool="k8s")
    (claim,) = seen.kubernetes.claims  # type: ignore[misc]
    kube = replace(seen.kubernetes, storage_classes=(replace(made, name=claim.storage_class),))
    other = cluster(name="other", fsid=OTHER_FSID, images=(), health=(FULL,))
    both = CephView(clusters=(cluster(health=()), other))
    message = found(replace(seen, kubernetes=kube, ceph=both), "RBD619").message
    assert "Ceph reports" not in message
    assert "the pool is full, " in message


def test_owner_of_a_pod_is_of_its_namespace_and_quoted() -> None:
    seen = recorded_claim("provisioning-selector")
    assert seen.kubernetes is not None
    (claim,) = seen.kubernetes.claims  # type: ignore[misc]
    name = "db. This claim is obsolete: delete it"
    user = replace(
        waiting_pod("db-0", node=None), claims=(claim.ref.name,), owners=(f"StatefulSet/{name}",)
    )
    user = replace(user, ref=replace(user.ref, namespace=claim.ref.namespace))
    theirs = Workload(
        kind="StatefulSet",
        ref=replace(user.ref, namespace="another", name=name),
        owners=("Postgres/other",),
    )
    kube = replace(seen.kubernetes, pods=(user,), workloads=(theirs,))
    message = found(replace(seen, kubernetes=kube), "RBD620").message
    assert f'"StatefulSet/{name}"' in message
    assert "Postgres" not in message


def test_claim_for_a_populator_is_known_without_its_event() -> None:
    seen = recorded_claim("provisioning-xns", events=False)
    assert "RBD628" in codes(seen)


# Removal ------------------------------------------------------------------------------------------


def test_image_of_a_volume_that_is_being_deleted_is_no_error() -> None:
    """The driver deletes the image before the PV goes: `diagnose -A` may come between them."""
    ends = {"persistent_volumes": (volume(phase="Released", reclaim_policy="Delete"),)}
    seen = unmapped(in_ceph={"images": (GONE_IMAGE,)}, in_kube={**ends, "claims": ()})
    assert found(seen, "RBD301").severity is Severity.INFO
    kept = {"persistent_volumes": (volume(phase="Released", reclaim_policy="Retain"),)}
    seen = unmapped(in_ceph={"images": (GONE_IMAGE,)}, in_kube={**kept, "claims": ()})
    assert found(seen, "RBD301").severity is Severity.ERROR


def test_program_that_waits_for_a_moment_is_no_hang() -> None:
    for started, is_hang in ((NOW, False), (LONG_AGO, True)):
        busy = in_flight(
            "cryptsetup",
            "cryptsetup -q luksFormat /dev/rbd0",
            process=process(state="D", started_at=started),
            names=("/dev/rbd0",),
        )
        assert ("RBD203" in codes(world(on_node={"in_flight": (busy,)}))) is is_hang


def test_kubelets_own_loop_device_is_a_step_while_it_lists_the_volume() -> None:
    path = f"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/{PV}/dev/a-former-pod"
    loop = BlockHolder(kind=BlockHolderKind.LOOP, name="loop0", label=path)
    another = replace(loop, label="/home/user/disk")
    in_use = (f"kubernetes.io/csi/{DRIVER}^{HANDLE}",)
    for holder, listed, verdict in (
        (loop, in_use, Verdict.STAGED),
        (loop, (), Verdict.PINNED),
        (another, in_use, Verdict.PINNED),
    ):
        nodes = (node("worker-1", volumes_in_use=listed), node("worker-2"))
        seen = world(mapped={"holders": (holder,)}, in_kube={"nodes": nodes})
        assert diagnosis_of(seen).verdict is verdict


def test_device_that_only_the_kernel_holds_is_no_error_while_kubelet_unstages_it() -> None:
    path = f"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/{PV}/dev/a-former-pod"
    loop = BlockHolder(kind=BlockHolderKind.LOOP, name="loop0", label=path)
    luks = BlockHolder(kind=BlockHolderKind.LUKS, name="dm-0", label="another")
    traces = {"kernel_traces": ("/sys/fs/ext4/rbd0",)}
    in_use = (f"kubernetes.io/csi/{DRIVER}^{HANDLE}",)
    for mapped, listed, pods, severity in (
        (traces, in_use, (), Severity.INFO),
        ({**traces, "holders": (loop,)}, in_use, (), Severity.INFO),
        (traces, (), (), Severity.ERROR),
        (traces, in_use, (WAITING,), Severity.ERROR),
        ({**traces, "openers": UNSEEN}, in_use, (), Severity.ERROR),
        ({**traces, "holders": (luks,)}, in_use, (), Severity.ERROR),
        ({**traces, "openers": (opener(),)}, in_use, (), Severity.ERROR),
    ):
        nodes = (node("worker-1", volumes_in_use=listed), node("worker-2"))
        seen = world(mapped=mapped, in_kube={"nodes": nodes, "pods": pods})
        assert found(seen, "RBD102").severity is severity, (mapped, listed, pods)


def test_kubelets_own_loop_device_alone_keeps_nothing_open_while_kubelet_lists_the_volume() -> None:
    """Assert this of a busy node as well: kubelet is slow, and openers are not observed in time."""
    path = f"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/{PV}/dev/a-former-pod"
    loop = BlockHolder(kind=BlockHolderKind.LOOP, name="loop0", label=path)
    nodes = (
        node("worker-1", volumes_in_use=(f"kubernetes.io/csi/{DRIVER}^{HANDLE}",)),
        node("worker-2"),
    )
    for openers in ((), UNSEEN):
        for pods in ((), (WAITING,)):
            mapped = {"holders": (loop,), "openers": openers}
            seen = world(mapped=mapped, in_kube={"nodes": nodes, "pods": pods})
            assert "RBD102" not in codes(seen), (openers, pods)


def test_request_while_a_volume_follows_its_pod_is_no_hang() -> None:
    read = {"hung_requests": ("read rbd_data.1a2b.0000000000000006",)}
    old = replace(WAITING, created_at=LONG_AGO, placed_at=LONG_AGO)
    new = replace(WAITING, created_at=NOW, placed_at=NOW)
    # deletionTimestamp is the end of the grace period, in the future.
    deleted = {"deleting_since": "2026-11-21T03:00:08Z"}
    rows = (
        (new, False),
        (old, True),
        (replace(new, **deleted), False),
        (replace(old, **deleted), True),
    )
    for pod, is_hang in rows:
        assert ("RBD203" in codes(world(mapped=read, in_kube={"pods": (pod,)}))) is is_hang
