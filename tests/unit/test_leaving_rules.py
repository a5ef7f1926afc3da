"""RBD111 to RBD113, RBD704, RBD719, RBD72x: pods that want one volume, and do not let it go."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.model import (
    ContainerState,
    CsiNode,
    CsiSource,
    ObjectRef,
    ProcessRef,
    Severity,
    Snapshot,
    Workload,
)
from tests.unit.builders import (
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
from tests.unit.tables import (
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
    """Look from worker-2, where a pod waits for what worker-1 has attached and watches."""
    parts = {
        "pods": pods,
        "attachments": attached("worker-1"),
        "nodes": (listing("worker-1"), node("worker-2")),
        **in_kube,
    }
    on_node = {"node_name": "worker-2", "mappings": (), "addresses": ("10.77.0.12",)}
    return world(on_node=on_node, of_image=of_image, in_kube=parts)


def leaving(**of_pod: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Give the same, where the old pod is being deleted."""
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
    """Build a rolling update; without workloads they were not asked for, as in who-holds."""
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
def test_the_code_is_said_and_nothing_else_is_wrong(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.heals is not None
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
                CsiNode(node_name="worker-1"),
                CsiNode(node_name="worker-2", drivers=(DRIVER,)),
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
def test_the_code_is_not_said(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


# --------------------------------------------------------------------------------------------------
# What exactly is said
# --------------------------------------------------------------------------------------------------


def test_the_deadlock_names_the_deployment_and_gives_its_patch() -> None:
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


def test_the_first_thing_to_type_ends_the_deadlock() -> None:
    assert "Recreate" in lines_of(said(rolling(deployment())).next_commands)[0]


def test_the_replicas_are_told_by_their_deployment() -> None:
    finding = found(SAID["RBD719"]["two replicas of a Deployment"][0], "RBD719")
    assert "replicas of Deployment web" in finding.message
    assert lines_of(finding.commands) == ("kubectl -n default scale deployment web --replicas 1",)


def test_a_stateful_set_is_not_told_to_be_scaled_down_as_that_may_delete_claims() -> None:
    seen = SAID["RBD719"]["a StatefulSet with one claim for all"][0]
    finding = found(seen, "RBD719")
    policy = "-o 'jsonpath={.spec.persistentVolumeClaimRetentionPolicy}'"
    assert lines_of(finding.commands) == (f"kubectl -n default get statefulset web {policy}",)
    assert "whenScaled: Delete" in finding.remedy
    assert not any(
        "scale" in each for one in said(seen).findings for each in lines_of(one.commands)
    )


def test_a_rolling_update_waits_for_itself_on_one_node_too_where_one_pod_may_use_it() -> None:
    seen = mounting(
        pods=(waiting_pod(owners=(NEW,)), pod(node="worker-2", owners=(OLD,))),
        workloads=(replica_set(OLD), replica_set(NEW), deployment()),
        **ONCE,
    )
    finding = found(seen, "RBD704")
    assert "patch deployment web" in lines_of(finding.commands)[0]
    assert str(finding.heals) == "never: each of the two pods waits for the other"


def test_a_pod_that_ends_in_time_is_told_by_when() -> None:
    finding = found(leaving(deleting_since=SOON), "RBD721")
    assert "Waiting for its volume: default/web-1." in finding.message
    assert str(finding.heals) == "kubelet, within 1m20s"


def test_the_process_that_does_not_end_is_named_on_its_own_node() -> None:
    asleep = ProcessRef(pid=7, command="tar", pod_uid=pod().ref.uid, state="D")
    seen = world(
        on_node={"processes": (asleep,)},
        in_kube={"pods": (pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),)},
    )
    assert "process 7 (tar) is in uninterruptible sleep" in found(seen, "RBD722").evidence


def test_what_is_safe_for_a_node_that_is_down_is_told_in_order_and_never_to_be_copied_first() -> (
    None
):
    seen = SAID["RBD725"]["the node is silent"][0]
    for code in ("RBD113", "RBD725"):
        finding = found(seen, code)
        order = [finding.remedy.index(each) for each in ("watch is alive", "off. 3.", "taint")]
        assert order == sorted(order)
        assert lines_of(finding.commands) == (
            "kubectl describe node worker-1",
            f"rbd status {SPEC}",
        )
    assert "that machine runs and may write" in found(seen, "RBD725").message
    assert "stays attached there, for ever" in found(seen, "RBD725").message


def test_a_taint_on_a_node_whose_watch_is_alive_is_told_of_with_the_node() -> None:
    seen = waiting(
        waiting_pod(), nodes=(listing("worker-1", ready=False, out_of_service=True), node("b"))
    )
    assert "carries the out-of-service taint already" in found(seen, "RBD113").message


def test_a_node_that_has_just_come_back_with_its_taint_is_no_error_while_nothing_runs_there() -> (
    None
):
    seen = waiting(
        waiting_pod(node="worker-1"),
        nodes=(listing("worker-1", out_of_service=True, ready_changed_at=LATELY), node("worker-2")),
    )
    finding = found(seen, "RBD726")
    assert "kubectl taint node worker-1 node.kubernetes.io/out-of-service-" in finding.remedy


def test_of_a_node_that_never_told_whether_it_is_ready_the_time_is_unknown() -> None:
    seen = waiting(
        waiting_pod(),
        pod(deleting_since=LONG_SINCE, containers=(RUNNING,)),
        nodes=(node(ready=None), node("worker-2")),
    )
    assert "Ready is Unknown since an unknown time" in str(found(seen, "RBD725").evidence)


def test_a_pod_that_is_ending_may_have_let_go_between_the_looks_at_the_api_and_at_ceph() -> None:
    ending = pod("web-9", "worker-1", deleting_since=SOON, containers=(RUNNING,))
    seen = waiting(ending, of_image={"watchers": ()})
    assert found(seen, "RBD416").severity is Severity.INFO
    assert trouble(seen) == set()
    stays = waiting(pod("web-9", "worker-1"), of_image={"watchers": ()})
    assert found(stays, "RBD416").severity is Severity.ERROR


def test_an_unmount_that_nobody_waits_for_is_no_error() -> None:
    assert found(waiting(), "RBD724").severity is Severity.INFO
    lately = waiting(waiting_pod(placed_at=JUST_NOW))
    assert found(lately, "RBD724").severity is Severity.INFO


def test_a_watch_that_its_kubelet_may_be_about_to_let_go_is_no_alarm() -> None:
    """Between the pod's end in the API and its detach, in every Recreate (recorded)."""
    moved = waiting_pod(placed_at=LATELY)
    for seen in (waiting(), waiting(moved)):
        finding = found(seen, "RBD119")
        assert finding.severity is Severity.INFO
        assert "may be about to let it go" in finding.message
        assert finding.heals is not None
        assert trouble(seen) == set()


def test_so_is_that_of_an_rbd_nbd_device_and_no_other_librbd_program() -> None:
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
def test_a_watch_of_which_no_kubelet_will_let_go_stays_an_alarm(seen: Snapshot) -> None:
    finding = found(seen, "RBD119")
    assert finding.severity is Severity.WARNING
    assert finding.heals is None


def test_from_another_node_the_answer_sends_to_the_one_that_does_not_let_go() -> None:
    finding = found(waiting(waiting_pod()), "RBD724")
    assert lines_of(finding.commands)[0] == f"ssh worker-1 rbdagent who-holds pv/{PV}"


def test_a_driver_that_does_not_answer_is_an_error_where_it_keeps_a_pod_waiting() -> None:
    rest = (CsiNode(node_name="worker-1"), CsiNode(node_name="worker-2", drivers=(DRIVER,)))
    kept = waiting(waiting_pod(), csi_nodes=rest)
    assert found(kept, "RBD201").severity is Severity.ERROR
    in_use = waiting(waiting_pod(), pod(), csi_nodes=rest)
    assert found(in_use, "RBD201").severity is Severity.WARNING
