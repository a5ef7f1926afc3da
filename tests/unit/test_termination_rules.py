"""RBD111 to RBD113, RBD704, RBD719, RBD72x: pods that share one volume or do not release it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.model import (
    ContainerState,
    CSINode,
    CsiSource,
    ObjectRef,
    ProcessRef,
    Severity,
    Snapshot,
    Workload,
)
from tests.support.rule_tables import (
    NOTHING_ELSE,
    Quiet,
    Said,
    attached,
    listing,
    mounting,
    quiet_rows,
    said_rows,
    told,
    trouble,
)
from tests.support.snapshots import (
    ADDRESS,
    DRIVER,
    JUST_NOW,
    LIBRBD_COOKIE,
    PV,
    SPEC,
    UNSEEN,
    claim,
    codes,
    found,
    node,
    opener,
    pod,
    remote_watcher,
    said,
    unmapped,
    volume,
    waiting_pod,
    world,
)

NONE: Final = NOTHING_ELSE
SOON: Final = "2026-11-21T03:00:20Z"
LATELY: Final = "2026-11-21T02:59:30Z"
LONG_SINCE: Final = "2026-11-21T02:40:00Z"
RUNNING: Final = ContainerState(name="app", state="running")
ENDED: Final = ContainerState(name="app", state="terminated")
ONCE: Final = {
    "persistent_volumes": (volume(access_modes=("ReadWriteOncePod",)),),
    "claims": (claim(access_modes=("ReadWriteOncePod",)),),
}
RWX: Final = {
    "persistent_volumes": (volume(access_modes=("ReadWriteMany",), volume_mode="Block"),),
    "claims": (claim(access_modes=("ReadWriteMany",), volume_mode="Block"),),
}
HELD: Final = pod(
    phase="Succeeded",
    deleting_since=LONG_SINCE,
    finalizers=("example.org/hold",),
    containers=(ENDED,),
)
IN_USE_ONCE: Final = (
    f'MountVolume.SetUp failed for volume "{PV}" : volume uses the ReadWriteOncePod access mode '
    "and is already in use by another pod"
)
DOWN: Final = (listing("worker-1", ready=None, ready_changed_at=LONG_SINCE), node("worker-2"))


def waiting(*pods: Any, of_image: Any = None, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot on worker-2: a pod waits, worker-1 has the image attached and watches it."""
    parts = {
        "pods": pods,
        "attachments": attached("worker-1"),
        "nodes": (listing("worker-1"), node("worker-2")),
        **in_kube,
    }
    on_node = {"node_name": "worker-2", "mappings": (), "addresses": ("10.77.0.12",)}
    return world(on_node=on_node, of_image=of_image, in_kube=parts)


def leaving(**of_pod: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build the same snapshot; the old pod is being deleted."""
    parts = {"deleting_since": LONG_SINCE, "containers": (RUNNING,), **of_pod}
    return waiting(waiting_pod(), pod(**parts))


# --------------------------------------------------------------------------------------------------
# Workloads
# --------------------------------------------------------------------------------------------------

OLD, NEW = "ReplicaSet/web-5d4f", "ReplicaSet/web-77aa"


def replica_set(name: str, owner: str = "Deployment/web") -> Workload:
    ref = ObjectRef(namespace="default", name=name.removeprefix("ReplicaSet/"))
    return Workload(kind="ReplicaSet", ref=ref, owners=(owner,))


def deployment(**overrides: Any) -> Workload:  # noqa: ANN401 - as the builders
    parts = {"strategy": "RollingUpdate", "max_surge": "25%", "max_unavailable": "25%"}
    ref = ObjectRef(namespace="default", name="web")
    return Workload(kind="Deployment", ref=ref, **{**parts, **overrides})


def rolling(*workloads: Workload, new: dict[str, Any] | None = None) -> Snapshot:
    """Build a rolling update; without workloads they were not requested, as in who-holds."""
    known = {"workloads": (replica_set(OLD), replica_set(NEW), *workloads)} if workloads else {}
    return waiting(waiting_pod(owners=(NEW,), **(new or {})), pod(owners=(OLD,)), **known)


SAID: Final[Said] = {
    "RBD111": {
        "a Deployment's defaults": (rolling(deployment()), {"RBD401"}),
        "three replicas of one claim": (rolling(deployment(replicas=3)), {"RBD401"}),
        "the workloads were not asked for": (rolling(), {"RBD401"}),
        "figures": (rolling(deployment(max_surge="1", max_unavailable="0")), {"RBD401"}),
    },
    "RBD112": {
        "another workload": (waiting(waiting_pod(), pod()), {"RBD401"}),
        "a rolling update that lets the old pod go": (
            rolling(deployment(max_unavailable="1")),
            {"RBD401"},
        ),
        "the old pod came back, and the new one runs": (
            rolling(deployment(), new={"created_at": "2026-11-19T00:00:00Z"}),
            {"RBD401"},
        ),
    },
    "RBD113": {
        "NotReady": (
            waiting(waiting_pod(), nodes=DOWN),
            {"RBD401"},
        )
    },
    "RBD704": {
        "before it has a node": (
            unmapped(
                in_kube={
                    **ONCE,
                    "pods": (
                        waiting_pod(
                            node=None,
                            unschedulable="0/2 nodes are available: 1 node(s) unavailable due to "
                            "PersistentVolumeClaim with ReadWriteOncePod access mode already "
                            "in-use by another pod",
                        ),
                        pod(node="worker-2"),
                    ),
                },
                of_image={"watchers": (remote_watcher(),)},
            ),
            NONE,
        ),
        "on one node, and kubelet says so": (
            unmapped(
                in_kube={
                    **ONCE,
                    "pods": (waiting_pod(), pod(node="worker-2")),
                    "attachments": attached("worker-2"),
                    "nodes": (node(), listing("worker-2")),
                    "events": (told(IN_USE_ONCE),),
                },
                of_image={"watchers": (remote_watcher(),)},
            ),
            NONE,
        ),
        "kubelet says so, and the other pod is gone": (
            mounting(IN_USE_ONCE, **ONCE),
            NONE,
        ),
    },
    "RBD719": {
        "a StatefulSet with one claim for all": (
            waiting(waiting_pod(owners=("StatefulSet/web",)), pod(owners=("StatefulSet/web",))),
            {"RBD401"},
        ),
        "two replicas of a Deployment": (
            waiting(
                waiting_pod(owners=(OLD,)),
                pod(owners=(OLD,)),
                workloads=(replica_set(OLD), deployment(replicas=2)),
            ),
            {"RBD401"},
        ),
    },
    "RBD721": {
        "within its grace period": (leaving(deleting_since=SOON), NONE),
        "a moment after it": (leaving(deleting_since=LATELY), NONE),
    },
    "RBD722": {"its process hangs": (leaving(), {"RBD401"})},
    "RBD724": {
        "a finalizer holds the pod, and its unmount fails as well (RBD654)": (
            waiting(HELD, attachments=(), nodes=(node(), node("worker-2"))),
            {"RBD654"},
        ),
        "the pod has ended, its mounts have not": (
            leaving(phase="Failed", containers=(ENDED,)),
            {"RBD401"},
        ),
        "the pod is gone": (waiting(waiting_pod()), {"RBD401", "RBD119"}),
    },
    "RBD725": {
        "the node is silent": (
            waiting(
                waiting_pod(),
                pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
                nodes=DOWN,
            ),
            {"RBD113", "RBD401"},
        )
    },
    "RBD726": {
        "a taint on a living node": (
            waiting(pod(), nodes=(listing("worker-1", out_of_service=True), node("worker-2"))),
            NONE,
        )
    },
}


@pytest.mark.parametrize(("code", "seen", "beside"), said_rows(SAID))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.recovery is not None
    assert "None" not in finding.message
    assert trouble(seen) - {code} == beside


QUIET: Final[Quiet] = {
    "RBD111": {
        "Recreate": rolling(deployment(strategy="Recreate", max_surge="", max_unavailable="")),
        "one may be unavailable": rolling(deployment(max_unavailable="1")),
        "four replicas of which a quarter may be": rolling(deployment(replicas=4)),
        "two Deployments": waiting(
            waiting_pod(owners=(NEW,)),
            pod(owners=(OLD,)),
            workloads=(replica_set(OLD, "Deployment/api"), replica_set(NEW), deployment()),
        ),
        "the old pod is ending": waiting(
            waiting_pod(owners=(NEW,)), pod(owners=(OLD,), deleting_since=SOON)
        ),
        "a volume for many": waiting(
            waiting_pod(owners=(NEW,)), pod(owners=(OLD,)), attachments=attached("worker-1"), **RWX
        ),
    },
    "RBD112": {
        "a volume for many": waiting(waiting_pod(), pod(), **RWX),
        "the other is ending": leaving(deleting_since=SOON),
        "it has its volumes, and waits for its image": waiting(
            waiting_pod(
                containers=(ContainerState(name="c", state="waiting", reason="ImagePullBackOff"),)
            ),
            pod(),
        ),
        "it has no node yet": waiting(waiting_pod(node=None), pod()),
    },
    "RBD704": {
        "the other has finished": mounting(
            pods=(waiting_pod(), pod(node="worker-2", phase="Succeeded")), **ONCE
        ),
        "the other is ending in time": mounting(
            pods=(
                waiting_pod(),
                pod(node="worker-2", deleting_since=SOON, containers=(RUNNING,)),
            ),
            **ONCE,
        ),
        "two pods on one node by right": mounting(pods=(waiting_pod(), pod(node="worker-2"))),
        "a moment ago": mounting(
            pods=(waiting_pod(placed_at=LATELY), pod(node="worker-2")), **ONCE
        ),
    },
    "RBD719": {
        "on one node": mounting(
            pods=(
                waiting_pod(owners=("StatefulSet/web",)),
                pod(node="worker-2", owners=("StatefulSet/web",)),
            )
        )
    },
    "RBD722": {
        "in time": leaving(deleting_since=LATELY),
        "its containers have ended": leaving(containers=(ENDED,)),
        "the node is silent (RBD725)": waiting(
            pod(deleting_since=LONG_SINCE, containers=(RUNNING,)), nodes=DOWN
        ),
        "the nodes are unknown": waiting(
            pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
            nodes=(node("worker-2"),),
            nodes_complete=False,
        ),
    },
    "RBD724": {
        "a finalizer alone holds the pod (RBD654)": unmapped(in_kube={"pods": (HELD,)}),
        "a finalizer alone, and another pod there uses the volume": waiting(HELD, pod("web-9")),
        "the driver is down there (RBD201)": waiting(
            waiting_pod(),
            csi_nodes=(
                CSINode(node_name="worker-1"),
                CSINode(node_name="worker-2", drivers=(DRIVER,)),
            ),
        ),
        "what keeps it is known (RBD102)": world(
            mapped={"openers": (opener(),)},
            in_kube={
                "attachments": attached("worker-1"),
                "nodes": (listing("worker-1"), node("worker-2")),
            },
        ),
        "a pod merely waits there": waiting(
            waiting_pod(), attachments=attached("worker-2"), nodes=(node(), listing("worker-2"))
        ),
        "it is being detached": waiting(
            waiting_pod(), attachments=attached("worker-1", deleting_since=JUST_NOW)
        ),
        "pods of other namespaces are unknown": waiting(waiting_pod(), pods_scope="node/worker-2"),
        "a finished pod that nobody deletes": waiting(
            pod(phase="Succeeded"), attachments=(), nodes=(node(), node("worker-2"))
        ),
    },
    "RBD725": {
        "the node is Ready": leaving(),
        "in time": waiting(pod(deleting_since=SOON), nodes=DOWN),
        "the node is gone, and podgc at work": waiting(
            pod(deleting_since=LONG_SINCE, containers=(RUNNING,)), nodes=(node("worker-2"),)
        ),
        "it has no node": waiting(waiting_pod(node=None, deleting_since=LONG_SINCE)),
    },
    "RBD726": {
        "the node is off": waiting(
            pod(), nodes=(node(ready=None, out_of_service=True), node("worker-2"))
        ),
        "another node": waiting(pod(), nodes=(node(), node("worker-9", out_of_service=True))),
        "only a pod that has finished was there": unmapped(
            in_kube={
                "pods": (pod("web-9", "worker-2", phase="Succeeded"),),
                "nodes": (node(), node("worker-2", out_of_service=True)),
            }
        ),
        "it holds what was taken from it (RBD107)": world(
            in_kube={"nodes": (node(out_of_service=True), node("worker-2"))}
        ),
    },
}


@pytest.mark.parametrize(("code", "seen"), quiet_rows(QUIET))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


# --------------------------------------------------------------------------------------------------
# Messages, evidence and recovery
# --------------------------------------------------------------------------------------------------


def test_rolling_update_deadlock_has_a_patch_of_the_deployment() -> None:
    finding = found(rolling(deployment()), "RBD111")
    assert "both belong to one workload, Deployment web" in finding.message
    patch = "kubectl -n default patch deployment web --type merge -p"
    recreate = '{"type":"Recreate","rollingUpdate":null}'
    no_surge = '{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}'
    assert lines_of(finding.commands) == (
        f"""{patch} '{{"spec":{{"strategy":{recreate}}}}}'""",
        f"""{patch} '{{"spec":{{"strategy":{no_surge}}}}}'  # instead, to keep rolling""",
    )
    assert (
        "Deployment/web: RollingUpdate, maxSurge 25%, maxUnavailable 25%, replicas 1"
        in finding.evidence
    )


def test_first_command_ends_the_rolling_update_deadlock() -> None:
    assert "Recreate" in lines_of(said(rolling(deployment())).next_commands)[0]


def test_replicas_are_reported_with_their_deployment() -> None:
    finding = found(SAID["RBD719"]["two replicas of a Deployment"][0], "RBD719")
    assert "replicas of Deployment web" in finding.message
    assert lines_of(finding.commands) == ("kubectl -n default scale deployment web --replicas 1",)


def test_no_command_scales_down_a_stateful_set() -> None:
    seen = SAID["RBD719"]["a StatefulSet with one claim for all"][0]
    finding = found(seen, "RBD719")
    policy = "-o 'jsonpath={.spec.persistentVolumeClaimRetentionPolicy}'"
    assert lines_of(finding.commands) == (f"kubectl -n default get statefulset web {policy}",)
    assert "whenScaled: Delete" in finding.remedy
    assert not any(
        "scale" in line for finding in said(seen).findings for line in lines_of(finding.commands)
    )


def test_rolling_update_with_rwop_deadlocks_on_one_node() -> None:
    seen = mounting(
        pods=(waiting_pod(owners=(NEW,)), pod(node="worker-2", owners=(OLD,))),
        workloads=(replica_set(OLD), replica_set(NEW), deployment()),
        **ONCE,
    )
    finding = found(seen, "RBD704")
    assert "patch deployment web" in lines_of(finding.commands)[0]
    assert str(finding.recovery) == "not automatic: each of the two pods waits for the other"


def test_pod_within_its_grace_period_is_shown_with_its_end() -> None:
    finding = found(leaving(deleting_since=SOON), "RBD721")
    assert "Waiting for its volume: default/web-1." in finding.message
    assert str(finding.recovery) == "kubelet, within 1m20s"


def test_process_that_does_not_end_is_named_on_its_node() -> None:
    asleep = ProcessRef(pid=7, command="tar", pod_uid=pod().ref.uid, state="D")
    seen = world(
        on_node={"processes": (asleep,)},
        in_kube={"pods": (pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),)},
    )
    assert "process 7 (tar) is in uninterruptible sleep" in found(seen, "RBD722").evidence


def test_remedy_for_a_down_node_is_ordered_and_not_a_command() -> None:
    seen = SAID["RBD725"]["the node is silent"][0]
    for code in ("RBD113", "RBD725"):
        finding = found(seen, code)
        order = [finding.remedy.index(text) for text in ("watch is alive", "off. 3.", "taint")]
        assert order == sorted(order)
        assert lines_of(finding.commands) == (
            "kubectl describe node worker-1",
            f"rbd status {SPEC}",
        )
    assert "that machine runs and may write" in found(seen, "RBD725").message
    assert "stays attached there indefinitely" in found(seen, "RBD725").message


def test_taint_is_reported_with_a_node_that_still_watches() -> None:
    seen = waiting(
        waiting_pod(), nodes=(listing("worker-1", ready=False, out_of_service=True), node("b"))
    )
    assert "already has the out-of-service taint" in found(seen, "RBD113").message


def test_remedy_for_a_returned_node_removes_its_taint() -> None:
    seen = waiting(
        waiting_pod(node="worker-1"),
        nodes=(listing("worker-1", out_of_service=True, ready_changed_at=LATELY), node("worker-2")),
    )
    finding = found(seen, "RBD726")
    assert "kubectl taint node worker-1 node.kubernetes.io/out-of-service-" in finding.remedy


def test_node_that_never_reported_ready_has_an_unknown_time() -> None:
    seen = waiting(
        waiting_pod(),
        pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
        nodes=(node(ready=None), node("worker-2")),
    )
    assert "Ready is Unknown since an unknown time" in str(found(seen, "RBD725").evidence)


def test_ending_pod_may_release_the_image_between_observations() -> None:
    ending = pod("web-9", "worker-1", deleting_since=SOON, containers=(RUNNING,))
    seen = waiting(ending, of_image={"watchers": ()})
    assert found(seen, "RBD416").severity is Severity.INFO
    assert trouble(seen) == set()
    stays = waiting(pod("web-9", "worker-1"), of_image={"watchers": ()})
    assert found(stays, "RBD416").severity is Severity.ERROR


def test_unmount_that_no_pod_waits_for_long_is_info() -> None:
    assert found(waiting(), "RBD724").severity is Severity.INFO
    lately = waiting(waiting_pod(placed_at=JUST_NOW))
    assert found(lately, "RBD724").severity is Severity.INFO


def test_watcher_that_kubelet_may_soon_unmap_is_info() -> None:
    """Assert INFO: each Recreate has this state between pod deletion and detach (recorded)."""
    moved = waiting_pod(placed_at=LATELY)
    for seen in (waiting(), waiting(moved)):
        finding = found(seen, "RBD119")
        assert finding.severity is Severity.INFO
        assert "may be about to unmap it" in finding.message
        assert finding.recovery is not None
        assert trouble(seen) == set()


def test_watcher_of_rbd_nbd_is_info_but_not_of_other_librbd() -> None:
    source = volume().source
    assert isinstance(source, CsiSource)
    by_nbd = replace(source, attributes=(*source.attributes, ("mounter", "rbd-nbd")))
    watched = {"watchers": (remote_watcher(address=ADDRESS, cookie=LIBRBD_COOKIE),)}
    seen = waiting(persistent_volumes=(volume(source=by_nbd),), of_image=watched)
    assert found(seen, "RBD119").severity is Severity.INFO
    assert found(waiting(of_image=watched), "RBD119").severity is Severity.WARNING


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(waiting(waiting_pod()), id="somebody has waited longer than a move takes"),
        pytest.param(waiting(attachments=()), id="nothing ties it to the node"),
        pytest.param(waiting(attachments=UNSEEN), id="attachments were not observed"),
        pytest.param(
            waiting(attachments=attached("worker-1", detach_error="no secret")), id="detach fails"
        ),
        pytest.param(waiting(pods=UNSEEN), id="pods were not observed"),
    ],
)
def test_watcher_that_no_kubelet_will_unmap_is_a_warning(seen: Snapshot) -> None:
    finding = found(seen, "RBD119")
    assert finding.severity is Severity.WARNING
    assert finding.recovery is None


def test_first_command_leads_to_the_node_with_the_volume() -> None:
    finding = found(waiting(waiting_pod()), "RBD724")
    assert lines_of(finding.commands)[0] == f"ssh worker-1 rbdagent who-holds pv/{PV}"


def test_driver_that_is_down_is_an_error_if_a_pod_waits() -> None:
    rest = (CSINode(node_name="worker-1"), CSINode(node_name="worker-2", drivers=(DRIVER,)))
    kept = waiting(waiting_pod(), csi_nodes=rest)
    assert found(kept, "RBD201").severity is Severity.ERROR
    in_use = waiting(waiting_pod(), pod(), csi_nodes=rest)
    assert found(in_use, "RBD201").severity is Severity.WARNING
