"""What blocks a drain of a node, in which order, and what a drain has left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.errors import ParseError
from rbdagent.lifecycle.drain import (
    check_after,
    check_before,
    diagnoses_on,
    linked_images,
    next_commands,
)
from rbdagent.lifecycle.drain_requests import may_wait
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    BlocklistEntry,
    CephView,
    DisruptionBudget,
    Gap,
    ImagePresence,
    IoCounters,
    NodeView,
    NotObserved,
    ObjectRef,
    PublishedFinding,
    Requirement,
    Snapshot,
    Target,
    TargetKind,
    Verdict,
    Workload,
    observed_of,
)
from rbdagent.model.drain import DrainCheck, DrainState, DrainStep, EarlierCheck
from rbdagent.report.json.drain import drain_report, load_earlier
from rbdagent.report.text.drain import HEADINGS, drain_text
from rbdagent.report.text.layout import Layout
from tests.support.snapshots import (
    ADDRESS,
    CLIENT,
    FAILED,
    HOST,
    IN_USE_NAME,
    LONG_AGO,
    MGR,
    MGR_WATCH,
    PLUGIN_DOWN,
    POD_PATH,
    PV,
    SPEC,
    STRANGER_ADDRESS,
    UNBACKED,
    UNSEEN,
    attachment,
    claim,
    container,
    in_flight,
    in_reverse_order,
    kube,
    mapping,
    mount,
    node,
    opener,
    pod,
    process,
    remote_watcher,
    reported_by,
    reported_mapping,
    snapshot,
    unmapped,
    volume,
    watcher,
    world,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE: Final = "worker-1"
NO_TARGET: Final = Target(argument="", kind=TargetKind.NONE)
OWNED: Final = pod(owners=("StatefulSet/web",))
OF_NODE: Final[dict[str, Any]] = {
    "pods": (OWNED,),
    "budgets": (),
    "workloads": (
        Workload(kind="StatefulSet", ref=ObjectRef(namespace="default", name="web"), replicas=3),
    ),
}
MOUNTS: Final = (mount(), mount(path=POD_PATH))
A_MOMENT_AGO: Final = "2026-11-21T02:59:55Z"
OTHER_UID: Final = "0d6f4c1e-0000-4000-8000-000000000001"


def seen_in_use(
    mapped: Mapping[str, Any] | None = None,
    in_kube: Mapping[str, Any] | None = None,
    **parts: Any,  # noqa: ANN401 - as the builders
) -> Snapshot:
    """Return a snapshot of a node whose only volume is in use by one of three replicas."""
    return world(
        target=NO_TARGET,
        mapped={"mounts": MOUNTS} | dict(mapped or {}),
        in_kube=OF_NODE | dict(in_kube or {}),
        **parts,
    )


def seen_unused(in_kube: Mapping[str, Any] | None = None, **parts: Any) -> Snapshot:  # noqa: ANN401
    """Return a snapshot of a node with a mapping that no pod uses."""
    return world(target=NO_TARGET, in_kube=OF_NODE | {"pods": ()} | dict(in_kube or {}), **parts)


def before(seen: Snapshot, name: str = NODE) -> DrainCheck:
    return check_before(seen, name, diagnoses_on(seen, name))


def after(seen: Snapshot, earlier: EarlierCheck | None = None, name: str = NODE) -> DrainCheck:
    return check_after(seen, name, diagnoses_on(seen, name), earlier)


def with_pods(*pods: Any, **in_kube: Any) -> Snapshot:  # noqa: ANN401
    return seen_in_use(in_kube={"pods": (OWNED, *pods)} | in_kube)


def stranger(**overrides: Any) -> Any:  # noqa: ANN401
    """Return a pod that does not use the volume, whose container has it mounted."""
    ref = ObjectRef(namespace="monitoring", name="exporter-x", uid=OTHER_UID)
    return pod(ref=ref, claims=(), **overrides)


def bare(**overrides: Any) -> Any:  # noqa: ANN401
    ref = ObjectRef(namespace="shop", name="debug", uid=OTHER_UID)
    return pod(**{"ref": ref, "claims": (), **overrides})


IN_FOREIGN_CONTAINER: Final = {
    "mounts": (*MOUNTS, mount(path="/mnt/other", namespace=container(OTHER_UID)))
}


def budget(name: str = "web", **overrides: Any) -> DisruptionBudget:  # noqa: ANN401
    default = DisruptionBudget(
        ref=ObjectRef(namespace="default", name=name), selector=(), healthy=1, wanted=1
    )
    return replace(default, **overrides)


# --------------------------------------------------------------------------------------------------
# Before
# --------------------------------------------------------------------------------------------------

BLOCKED: Final = {
    "a container writes beside its mapped volume": (
        seen_in_use(on_node={"unbacked": (UNBACKED,)}),
        [(DrainStep.DATA_AT_RISK, Code.VOLUME_NOT_BACKED)],
    ),
    "a container writes beside a volume that is not mapped": (
        unmapped(target=NO_TARGET, on_node={"unbacked": (UNBACKED,)}, in_kube=OF_NODE),
        [
            (DrainStep.DATA_AT_RISK, Code.VOLUME_NOT_BACKED),
            (DrainStep.DATA_AT_RISK, Code.RUNNING_WITHOUT_MAPPING),
        ],
    ),
    "a process keeps an unused device open": (
        seen_unused(mapped={"openers": (opener(),)}),
        [(DrainStep.PINNED, Code.MAPPING_PINNED)],
    ),
    "a process beside the pod keeps its device open": (
        seen_in_use({"openers": (opener(),)}),
        [(DrainStep.PINNED, "")],
    ),
    "the device of a pod is mounted elsewhere on the host": (
        seen_in_use({"mounts": (*MOUNTS, mount(path="/mnt/rescue", namespace=HOST))}),
        [(DrainStep.PINNED, "")],
    ),
    "LVM of the node is on the device of a pod": (
        seen_in_use(
            {
                "holders": (
                    BlockHolder(kind=BlockHolderKind.DM, name="dm-3", label="vg-lv", of="rbd0"),
                )
            }
        ),
        [(DrainStep.PINNED, "")],
    ),
    "a container of a DaemonSet has it mounted": (
        seen_in_use(
            IN_FOREIGN_CONTAINER, {"pods": (OWNED, stranger(owners=("DaemonSet/exporter",)))}
        ),
        [(DrainStep.PINNED, "")],
    ),
    "a DaemonSet's own pod uses the volume": (
        seen_in_use(in_kube={"pods": (pod(owners=("DaemonSet/web",)),)}),
        [(DrainStep.PINNED, "")],
    ),
    "a container of a pod that the API does not list": (
        seen_unused(mapped={"mounts": (mount(path="/data", namespace=container(OTHER_UID)),)}),
        [(DrainStep.PINNED, Code.POD_LOST_BY_API)],
    ),
    "a process of a pod that the API does not list": (
        seen_in_use(
            {
                "mounts": (*MOUNTS, mount(path="/data", namespace=container(OTHER_UID))),
                "openers": (opener(process=process(pod_uid=OTHER_UID)),),
            },
            {"pods": ()},
        ),
        [(DrainStep.PINNED, Code.POD_LOST_BY_API)],
    ),
    "an unmount hangs": (
        seen_in_use(
            on_node={
                "in_flight": (
                    in_flight(
                        "umount",
                        f"umount {POD_PATH}",
                        process=process(
                            pid=9, command=f"umount {POD_PATH}", state="D", started_at=LONG_AGO
                        ),
                    ),
                )
            }
        ),
        [(DrainStep.HANGING_CALL, Code.OPERATION_HANGS)],
    ),
    "its client is blocklisted": (
        seen_in_use(
            in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),)}
        ),
        [(DrainStep.LOST_CLIENT, Code.CLIENT_BLOCKLISTED)],
    ),
    "its client has lost its watch": (
        seen_in_use({"watch": False}, of_image={"watchers": ()}),
        [(DrainStep.LOST_CLIENT, Code.MAPPING_UNWATCHED)],
    ),
    "requests have no answer": (
        seen_in_use({"hung_requests": ("write rbd_data.1", "watch-ping rbd_header.1")}),
        [(DrainStep.HANGING_REQUEST, Code.OPERATION_HANGS)],
    ),
    "the driver is down": (
        seen_in_use(of_kubelet=PLUGIN_DOWN),
        [(DrainStep.NODE_SERVICE_DOWN, Code.CSI_DRIVER_DOWN)],
    ),
    "kubelet is down": (
        seen_in_use(of_kubelet={"process": None}),
        [(DrainStep.NODE_SERVICE_DOWN, Code.KUBELET_DOWN)],
    ),
    "the Node is Unknown": (
        seen_in_use(in_kube={"nodes": (node(ready=None), node("worker-2"))}),
        [(DrainStep.NODE_SERVICE_DOWN, "")],
    ),
    "no pod uses it": (seen_unused(), [(DrainStep.UNUSED_MAPPING, Code.MAPPING_ORPHANED)]),
    "only its staging mount is left": (
        seen_unused(mapped={"mounts": (mount(),)}),
        [(DrainStep.UNUSED_MAPPING, Code.STAGING_LEFT_MOUNTED)],
    ),
    "it was mapped by hand": (
        world(
            target=NO_TARGET,
            mapped={"spec": replace(SPEC, name="disk"), "image_id": "9999"},
            of_image={"spec": replace(SPEC, name="disk"), "image_id": "9999", "metadata": ()},
            of_kubelet={"staging": ()},
            in_kube=OF_NODE | {"pods": ()},
        ),
        [(DrainStep.UNUSED_MAPPING, Code.FOREIGN_HOLDER)],
    ),
    "a machine outside of the cluster has it mapped": (
        seen_in_use(of_image={"watchers": (watcher(), remote_watcher(address=STRANGER_ADDRESS))}),
        [(DrainStep.OUTSIDE_CLIENT, Code.TWO_CLUSTERS_WRITE)],
    ),
    "a pod has no controller": (with_pods(bare()), [(DrainStep.REFUSED_POD, "")]),
    "a budget allows no eviction": (
        with_pods(budgets=(budget(),)),
        [(DrainStep.REFUSED_POD, "")],
    ),
    "a pod has two budgets": (
        with_pods(budgets=(budget(allowed=1), budget("all", allowed=1))),
        [(DrainStep.REFUSED_POD, "")],
    ),
}


@pytest.mark.parametrize("state", BLOCKED)
def test_what_blocks_a_drain_is_found_once(state: str) -> None:
    seen, expected = BLOCKED[state]
    found = before(seen)
    assert [(item.step, item.code) for item in found.items] == expected
    assert found.state is DrainState.BLOCKED


CLEAR: Final = {
    "each volume is used by a pod of a controller": seen_in_use(),
    "a process of the pod has a file open": seen_in_use(
        {"openers": (opener(process=process(pod_uid=OWNED.ref.uid)),)}
    ),
    "another pod that is evicted too has it mounted": seen_in_use(
        IN_FOREIGN_CONTAINER, {"pods": (OWNED, stranger(owners=("ReplicaSet/x",)))}
    ),
    "a pod of a DaemonSet": with_pods(bare(owners=("DaemonSet/x",))),
    "the mirror pod of a static pod": with_pods(bare(owners=(f"Node/{NODE}",))),
    "a finished pod without controller": with_pods(bare(phase="Succeeded")),
    "a pod without controller on another node": with_pods(bare(node_name="worker-2")),
    "a budget that allows an eviction": with_pods(budgets=(budget(allowed=1),)),
    "a budget of another namespace": with_pods(
        budgets=(budget(ref=ObjectRef(namespace="shop", name="web")),)
    ),
    "a budget of other labels": with_pods(
        budgets=(budget(selector=(Requirement(key="a", operator="In", values=("b",)),)),)
    ),
    "a budget without a selector": with_pods(budgets=(budget(selector=None),)),
    "a budget of a pod that is being deleted": seen_in_use(
        in_kube={"pods": (replace(OWNED, deleting_since=A_MOMENT_AGO),), "budgets": (budget(),)}
    ),
    "a budget that admits the eviction of pods that are not Ready": seen_in_use(
        in_kube={
            "pods": (replace(OWNED, ready=False),),
            "budgets": (budget(evicts_unhealthy=True),),
        }
    ),
    "a budget with enough other pods, of one that is not Ready": seen_in_use(
        in_kube={"pods": (replace(OWNED, ready=False),), "budgets": (budget(),)}
    ),
    "nothing is mapped": unmapped(target=NO_TARGET, in_kube=OF_NODE | {"pods": ()}),
}


@pytest.mark.parametrize("state", CLEAR)
def test_what_a_drain_ends_does_not_block_it(state: str) -> None:
    found = before(CLEAR[state])
    assert (found.state, found.items, found.unobserved) == (DrainState.CLEAR, (), ())


UNKNOWN: Final = {
    "processes that have a device open": seen_in_use({"openers": UNSEEN}),
    "mounts in all mount namespaces": seen_in_use({"mounts": UNSEEN}),
    "device-mapper, loop and swap on a device": seen_in_use({"holders": UNSEEN}),
    "running map, mount and unmap processes": seen_in_use(on_node={"in_flight": UNSEEN}),
    "requests to Ceph without an answer": seen_in_use({"hung_requests": UNSEEN}),
    "the Ceph blocklist": seen_in_use(in_ceph={"blocklist": UNSEEN}),
    "the watchers of the images": seen_in_use(of_image={"watchers": UNSEEN}),
    "whether kubelet runs": seen_in_use(of_kubelet={"process": UNSEEN}),
    "whether the CSI driver answers": seen_in_use(of_kubelet={"sockets": UNSEEN}),
    "kubelet and the CSI driver": seen_in_use(on_node={"kubelet": UNSEEN}),
    "what is mapped on worker-1": seen_in_use(on_node={"mappings": UNSEEN}),
    "which pods use the volumes": seen_in_use(in_kube={"persistent_volumes": UNSEEN}),
    "the pods on worker-1": seen_in_use(in_kube={"pods": UNSEEN}),
    "whether a container writes beside its volume": seen_in_use(on_node={"unbacked": UNSEEN}),
    "PodDisruptionBudgets": seen_in_use(in_kube={"budgets": UNSEEN}),
}


@pytest.mark.parametrize("fact", UNKNOWN)
def test_a_fact_that_was_not_observed_is_named_and_never_none(fact: str) -> None:
    found = before(UNKNOWN[fact])
    assert (found.state, found.items) == (DrainState.UNKNOWN, ())
    assert fact in {gap.fact for gap in found.unobserved}


@pytest.mark.parametrize("source", ["node", "ceph", "kubernetes"])
def test_without_a_source_no_node_is_clear(source: str) -> None:
    seen = seen_in_use()
    lacking = replace(seen, **{source: None}, sources=replace(seen.sources, **{source: FAILED}))
    assert before(lacking).state is DrainState.UNKNOWN


def test_a_container_of_an_unknown_pod_is_not_said_to_stay() -> None:
    in_container = mount(path="/data", namespace=container())
    found = before(seen_in_use({"mounts": (*MOUNTS, in_container)}, {"pods": UNSEEN}))
    assert (found.state, found.items) == (DrainState.UNKNOWN, ())


def test_the_pods_of_another_node_are_no_proof() -> None:
    found = before(seen_in_use(in_kube={"pods_scope": "node/worker-2"}))
    assert "the pods on worker-1" in {gap.fact for gap in found.unobserved}


def test_a_blocker_is_reported_although_facts_are_missing() -> None:
    found = before(seen_in_use({"openers": (opener(),), "hung_requests": UNSEEN}))
    assert (found.state, bool(found.unobserved)) == (DrainState.BLOCKED, True)
    assert (
        drain_text(found, seen_in_use(), Layout())
        .splitlines()[0]
        .startswith("BLOCKED  At least 1 thing")
    )


# --------------------------------------------------------------------------------------------------
# Requests that the kernel holds
# --------------------------------------------------------------------------------------------------


def node_of(seen: Snapshot) -> NodeView:
    assert seen.node is not None
    return seen.node


def with_requests(in_flight: int = 2, **mapped: Any) -> Snapshot:  # noqa: ANN401
    """Return a node whose device has requests in the block layer, and none at Ceph."""
    counters = mapped.pop("io_counters", IoCounters(reads=7, writes=9, in_flight=in_flight))
    return seen_in_use({"incarnation": "diskseq:3", "io_counters": counters} | mapped)


def twice(seen: Snapshot, again: Snapshot) -> DrainCheck:
    """Return the check of a node that was observed again."""
    return check_before(seen, NODE, diagnoses_on(seen, NODE), again.node)


def test_requests_in_flight_that_ceph_does_not_have_are_not_clear_after_one_observation() -> None:
    seen = with_requests()
    assert may_wait(seen.node)
    found = before(seen)
    assert (found.state, found.items) == (DrainState.UNKNOWN, ())
    (gap,) = found.unobserved
    assert gap.fact == "whether the requests of /dev/rbd0 are completed"
    assert gap.reason.startswith("2 requests are in flight, and its client has none at Ceph: ")


@pytest.mark.parametrize(
    ("hung", "words"),
    [
        ((), "its client has none at Ceph. Most likely they wait in the kernel: "),
        (UNSEEN, "those of its client at Ceph were not observed. Whether they wait in the kernel "),
    ],
    ids=["none at Ceph", "debugfs not read"],
)
def test_device_that_completes_no_request_blocks_a_drain(hung: Any, words: str) -> None:  # noqa: ANN401
    seen = with_requests(hung_requests=hung)
    (item,) = twice(seen, with_requests(1, hung_requests=hung)).items
    assert item.step is DrainStep.HANGING_REQUEST
    assert item.statement.startswith("/dev/rbd0 completes no request: 2 requests are in flight")
    assert words in item.statement


BUSY: Final = {
    "requests were completed in between": with_requests(
        io_counters=IoCounters(reads=7, writes=10, in_flight=2)
    ),
    "none is in flight the second time": with_requests(0),
    "Ceph has them the second time": with_requests(hung_requests=("write rbd_data.1",)),
}


@pytest.mark.parametrize("again", BUSY.values(), ids=BUSY)
def test_busy_device_is_clear(again: Snapshot) -> None:
    assert twice(with_requests(), again).state is DrainState.CLEAR


NOT_COMPARED: Final = {
    "another device of that name": with_requests(incarnation="diskseq:4"),
    "counters that were not read": with_requests(io_counters=UNSEEN),
    "another boot": replace(with_requests(), node=replace(node_of(with_requests()), boot_id="b9")),
}


@pytest.mark.parametrize("again", NOT_COMPARED.values(), ids=NOT_COMPARED)
def test_another_device_shows_nothing_about_the_requests(again: Snapshot) -> None:
    assert twice(with_requests(), again).state is DrainState.UNKNOWN


def test_device_without_requests_is_clear() -> None:
    seen = with_requests(0)
    assert not may_wait(seen.node)
    assert before(seen).state is DrainState.CLEAR


@pytest.mark.parametrize("name", [NODE, "worker-2"])
def test_reports_that_were_not_read_are_not_observed(name: str) -> None:
    """They show mappings without a watch, on other nodes too."""
    seen = seen_in_use(in_kube={"published": UNSEEN})
    found = before(seen, name)
    assert found.state is DrainState.UNKNOWN
    assert UNSEEN.reason in {gap.reason for gap in found.unobserved}


def test_cluster_without_agents_has_no_reports_to_read() -> None:
    assert before(seen_in_use(in_kube={"published": ()})).state is DrainState.CLEAR


@given(st.permutations(sorted(BLOCKED)))
def test_blockers_are_in_the_order_in_which_to_act(states: list[str]) -> None:
    seen = with_pods(
        bare(),
        budgets=(budget(),),
        nodes=(node(ready=None), node("worker-2")),
    )
    first = seen.node
    assert first is not None
    devices = tuple(
        mapping(
            device=f"/dev/rbd{number}",
            device_id=number,
            spec=replace(SPEC, name=f"csi-vol-{number}"),
            image_id=f"{number}",
            openers=(opener(),) if "pins" in name or "process" in name else (),
        )
        for number, name in enumerate(states, start=1)
    )
    seen = replace(seen, node=replace(first, mappings=(*observed_of(first.mappings), *devices)))
    steps = [list(DrainStep).index(item.step) for item in before(seen).items]
    assert steps == sorted(steps)
    assert len(set(steps)) > 2


@pytest.mark.parametrize("state", BLOCKED)
def test_the_order_of_the_facts_changes_nothing(state: str) -> None:
    seen, _ = BLOCKED[state]

    def comparable(check: DrainCheck) -> list[tuple[DrainStep, str, str]]:
        return [(item.step, item.code, str(item.subject)) for item in check.items]

    assert comparable(before(in_reverse_order(seen))) == comparable(before(seen))


def test_a_device_that_kubelet_is_releasing_is_not_clear_yet() -> None:
    finishing = replace(OWNED, phase="Succeeded", ready=False, deleting_since=A_MOMENT_AGO)
    found = before(seen_in_use(in_kube={"pods": (finishing,)}))
    assert found.state is DrainState.UNKNOWN
    assert found.unobserved[0].fact == "whether /dev/rbd0 is about to be unmapped"


# --------------------------------------------------------------------------------------------------
# Down while they move
# --------------------------------------------------------------------------------------------------


def deployed(replicas: int) -> tuple[Workload, ...]:
    one = {"namespace": "default"}
    return (
        Workload(
            kind="ReplicaSet",
            ref=ObjectRef(name="web-1", **one),
            owners=("Deployment/web",),
            replicas=replicas,
        ),
        Workload(kind="Deployment", ref=ObjectRef(name="web", **one), replicas=replicas),
    )


MOVES: Final = {
    "one of several replicas": (seen_in_use(), []),
    "the only replica": (
        seen_in_use(
            in_kube={
                "workloads": (replace(OF_NODE["workloads"][0], replicas=1),),
            }
        ),
        [("StatefulSet/web", 1)],
    ),
    "a Deployment, whose replicas share the claim": (
        seen_in_use(
            in_kube={"pods": (pod(owners=("ReplicaSet/web-1",)),), "workloads": deployed(2)}
        ),
        [("Deployment/web", 2)],
    ),
    "controllers that were not observed": (
        seen_in_use(in_kube={"workloads": UNSEEN}),
        [("StatefulSet/web", None)],
    ),
    "a volume that several nodes may map": (
        seen_in_use(
            in_kube={
                "persistent_volumes": (volume(access_modes=("ReadOnlyMany",)),),
                "workloads": UNSEEN,
            }
        ),
        [],
    ),
    "a pod without a volume": (with_pods(bare(owners=("Job/x",))), []),
}


@pytest.mark.parametrize("state", MOVES)
def test_pods_that_nothing_replaces_are_named(state: str) -> None:
    seen, expected = MOVES[state]
    found = before(seen)
    assert not isinstance(found.moves, NotObserved)
    assert [(move.controller, move.replicas) for move in found.moves] == expected


def test_a_pod_that_moves_blocks_nothing() -> None:
    seen, _ = MOVES["the only replica"]
    assert before(seen).state is DrainState.CLEAR


# --------------------------------------------------------------------------------------------------
# Another node than the observed one
# --------------------------------------------------------------------------------------------------


def from_elsewhere(*reports: Any, **in_kube: Any) -> Snapshot:  # noqa: ANN401
    """Return a snapshot that another machine took about worker-1."""
    seen = snapshot(
        target=NO_TARGET,
        node=None,
        ceph=None,
        kubernetes=kube(**(OF_NODE | {"published": reports} | in_kube)),
    )
    return replace(seen, sources=replace(seen.sources, node=FAILED))


def one_reported(**overrides: Any) -> Any:  # noqa: ANN401
    return reported_by(NODE, boot_id="b001", mappings=(reported_mapping(**overrides),))


def test_an_agent_that_reports_no_mapping_shows_a_clear_node() -> None:
    found = before(from_elsewhere(reported_by(NODE, boot_id="b001"), pods=()))
    assert (found.state, found.reported_at is None) == (DrainState.CLEAR, False)


def test_a_verdict_of_the_agent_is_taken_over() -> None:
    lead = PublishedFinding(
        code="RBD102", severity="error", message="/dev/rbd0 on worker-1 is kept open."
    )
    (item,) = before(
        from_elsewhere(one_reported(verdict=Verdict.PINNED, finding=lead, findings=("RBD102",)))
    ).items
    assert (item.step, item.code, item.statement) == (
        DrainStep.PINNED,
        "RBD102",
        "/dev/rbd0 on worker-1 is kept open.",
    )


@pytest.mark.parametrize(
    ("verdict", "step"),
    [
        (Verdict.PINNED, DrainStep.PINNED),
        (Verdict.DEAD, DrainStep.LOST_CLIENT),
        (Verdict.UNWATCHED, DrainStep.LOST_CLIENT),
        (Verdict.ORPHANED, DrainStep.UNUSED_MAPPING),
        (Verdict.FOREIGN, DrainStep.UNUSED_MAPPING),
    ],
)
def test_a_verdict_without_a_finding_counts(verdict: Verdict, step: DrainStep) -> None:
    (item,) = before(from_elsewhere(one_reported(verdict=verdict))).items
    assert (item.step, item.code) == (step, "")


def test_a_driver_that_is_down_is_reported_once_for_the_node() -> None:
    mappings = tuple(
        reported_mapping(device=f"/dev/rbd{number}", verdict=Verdict.IN_USE, findings=("RBD201",))
        for number in range(3)
    )
    report = reported_by(NODE, boot_id="b001", mappings=mappings)
    (item,) = before(from_elsewhere(report)).items
    assert (item.step, str(item.subject)) == (DrainStep.NODE_SERVICE_DOWN, "node worker-1")


IN_DOUBT: Final = {
    "what keeps a volume in use open besides": (
        one_reported(verdict=Verdict.IN_USE),
        "only worker-1 itself shows them",
    ),
    "no agent": (None, "no agent has published its mappings"),
    "an old report": (
        replace(one_reported(), observed_at=LONG_AGO),
        "its agent last reported",
    ),
    "a report that lacks mappings": (
        replace(one_reported(), incomplete="its RBDMapping was not found"),
        "its RBDMapping was not found",
    ),
    "a report of an earlier boot": (
        replace(one_reported(), boot_id="b000"),
        "is of boot b000, and kubelet reports boot b001",
    ),
    "devices that the agent did not see": (
        replace(one_reported(), mappings=UNSEEN),
        UNSEEN.reason,
    ),
    "a code of a newer agent": (
        one_reported(verdict=Verdict.IN_USE, findings=("RBD199",)),
        "does not know the code",
    ),
    "a pod whose volume is not mapped": (
        reported_by(NODE, boot_id="b001"),
        f"reports no mapping of {PV}",
    ),
    "a mapping between two steps": (
        one_reported(verdict=Verdict.STAGED),
        "between two steps",
    ),
}


@pytest.mark.parametrize("state", IN_DOUBT)
def test_a_doubtful_report_is_no_clear_node(state: str) -> None:
    report, reason = IN_DOUBT[state]
    found = before(from_elsewhere(*(() if report is None else (report,))))
    assert (found.state, found.items) == (DrainState.UNKNOWN, ())
    assert any(reason in gap.reason for gap in found.unobserved)


def test_the_report_of_another_node_is_not_taken() -> None:
    found = before(from_elsewhere(reported_by("worker-2")))
    assert isinstance(found.mappings, NotObserved)


# --------------------------------------------------------------------------------------------------
# After
# --------------------------------------------------------------------------------------------------

EARLIER: Final = EarlierCheck(
    boot_id="b000", mappings=tuple(observed_of(before(seen_in_use()).mappings))
)


def drained(**parts: Any) -> Snapshot:  # noqa: ANN401
    """Return a snapshot of a node whose volume has moved."""
    in_kube = OF_NODE | {"pods": ()} | parts.pop("in_kube", {})
    return unmapped(target=NO_TARGET, in_kube=in_kube, **parts)


def test_a_node_without_mapping_and_watch_is_clean() -> None:
    found = after(drained(), EARLIER)
    assert (found.state, found.items, found.queried_images) == (DrainState.CLEAR, (), 1)


@pytest.mark.parametrize("earlier", [EARLIER, None], ids=["with its file", "without"])
def test_a_mapping_is_left_whatever_uses_it(earlier: EarlierCheck | None) -> None:
    (item,) = after(seen_in_use(), earlier).items
    assert item.step is DrainStep.MAPPED
    assert "used by pod default/web-0" in item.statement


def test_a_mapping_that_a_finding_explains_is_left_once() -> None:
    (item,) = after(seen_unused(), EARLIER).items
    assert (item.step, item.code) == (DrainStep.UNUSED_MAPPING, Code.MAPPING_ORPHANED)


def test_a_watch_of_a_former_client_is_left() -> None:
    (item,) = after(drained(of_image={"watchers": (watcher(),)}), EARLIER).items
    assert item.step is DrainStep.WATCHED
    assert f"client.{CLIENT}" in item.statement
    assert "had before" in item.statement


def test_a_watch_from_an_address_of_the_node_is_probably_its_own() -> None:
    seen = drained(of_image={"watchers": (watcher(),)}, in_kube={"attachments": (attachment(),)})
    (item,) = after(seen).items
    assert "by its address" in item.statement


@pytest.mark.parametrize("watching", [remote_watcher(), MGR_WATCH], ids=["worker-2", "the mgr"])
def test_a_watch_of_another_client_is_none_of_the_node(watching: Any) -> None:  # noqa: ANN401
    seen = drained(of_image={"watchers": (watching,)}, in_ceph={"services": (MGR,)})
    assert after(seen, EARLIER).state is DrainState.CLEAR


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"of_image": {"watchers": UNSEEN}}, f"the watchers of {SPEC}"),
        ({"in_ceph": {"images": ()}}, f"the watchers of {SPEC}"),
        ({"ceph": None}, "the watchers of the images"),
        ({"ceph": CephView(clusters=())}, "the watchers of the images"),
        ({"on_node": {"mappings": UNSEEN}}, "what is mapped on worker-1"),
    ],
)
def test_what_was_not_observed_is_not_clean(changes: dict[str, Any], fact: str) -> None:
    found = after(drained(**changes), EARLIER)
    assert found.state is DrainState.UNKNOWN
    assert fact in {gap.fact for gap in found.unobserved}


def test_without_the_api_nothing_names_the_images() -> None:
    found = after(drained(kubernetes=None))
    assert found.state is DrainState.UNKNOWN


def test_a_deleted_image_has_no_watch() -> None:
    seen = drained(of_image={"presence": ImagePresence.GONE, "watchers": UNSEEN})
    assert after(seen, EARLIER).state is DrainState.CLEAR


@pytest.mark.parametrize(
    ("earlier", "is_new", "words"),
    [
        (EARLIER, True, "It is a new boot: b001"),
        (replace(EARLIER, boot_id="b001"), False, "It is the same boot as before the drain"),
        (replace(EARLIER, boot_id=None), None, "--before compares it"),
        (None, None, "--before compares it"),
    ],
)
def test_boots_are_compared(
    earlier: EarlierCheck | None,
    is_new: bool | None,  # noqa: FBT001 - a row
    words: str,
) -> None:
    seen = drained()
    found = after(seen, earlier)
    assert found.is_new_boot is is_new
    assert words in " ".join(drain_text(found, seen, Layout()).split())


@pytest.mark.parametrize(
    "in_kube",
    [
        {"attachments": (attachment(),)},
        {"pods": (OWNED,)},
        {"nodes": (node(volumes_in_use=(IN_USE_NAME,)),)},
        {"published": (one_reported(),)},
    ],
    ids=["attachment", "pod", "volumesInUse", "report"],
)
def test_every_object_that_names_an_image_leads_to_its_watches(in_kube: dict[str, Any]) -> None:
    (image,) = linked_images(drained(in_kube=in_kube), NODE)
    assert image.spec == SPEC


def test_another_nodes_images_are_not_asked_for() -> None:
    seen = drained(in_kube={"attachments": (attachment("worker-2"),)})
    assert linked_images(seen, NODE) == ()


# --------------------------------------------------------------------------------------------------
# The file of the check before
# --------------------------------------------------------------------------------------------------


def file_of(seen: Snapshot, **changes: Any) -> bytes:  # noqa: ANN401
    written = msgspec.to_builtins(drain_report(before(seen), seen))
    return json.dumps(written | changes).encode()


def test_the_check_before_is_read_as_it_was_written() -> None:
    seen = seen_in_use()
    read = load_earlier(file_of(seen), node=NODE, where="before.json")
    (mapped,) = read.mappings
    assert (read.boot_id, mapped.client_id, mapped.client_address) == ("b001", CLIENT, ADDRESS)
    assert mapped.image is not None
    assert mapped.image.spec == SPEC


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the output of drain-check -o json"),
        (b"\xff", "the output of drain-check -o json"),
        (b"[" * 100_000, "the output of drain-check -o json"),
        (b"{}", "the output of drain-check -o json"),
        (file_of(seen_in_use(), kind="MappingList"), "kind: DrainReport"),
        (file_of(seen_in_use(), node="worker-2"), "it is of another node"),
        (file_of(seen_in_use(), mappings=None), "a check that observed the mappings"),
    ],
    ids=["empty", "no text", "nested", "no check", "another kind", "another node", "unobserved"],
)
def test_another_file_is_refused(content: bytes, expected: str) -> None:
    with pytest.raises(ParseError) as error:
        load_earlier(content, node=NODE, where="before.json")
    assert expected in str(error.value)


# --------------------------------------------------------------------------------------------------
# The text
# --------------------------------------------------------------------------------------------------


def test_each_step_has_a_heading() -> None:
    assert list(HEADINGS) == list(DrainStep)


@pytest.mark.parametrize("state", BLOCKED)
def test_the_text_fits_80_columns_but_for_commands(state: str) -> None:
    seen, _ = BLOCKED[state]
    text, _, _ = drain_text(before(seen), seen, Layout()).partition("\nNext:")
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_many_things_of_one_kind_are_counted() -> None:
    pods = [
        bare(ref=ObjectRef(namespace="shop", name=f"debug-{number}", uid=f"{number}"))
        for number in range(9)
    ]
    seen = with_pods(*pods)
    text = drain_text(before(seen), seen, Layout())
    assert "and 4 more (-v)" in text
    assert "debug-8" in drain_text(before(seen), seen, Layout(details=True))


def test_the_answer_ends_with_the_check_again() -> None:
    assert next_commands(before(seen_unused()))[-1].argv == ("rbdagent", "drain-check", NODE)
    assert next_commands(after(seen_unused()))[-1].argv[-1] == "--after"
    assert next_commands(before(seen_in_use())) == ()


def test_a_gap_keeps_its_advice() -> None:
    found = before(seen_in_use({"openers": UNSEEN}))
    assert (
        Gap(fact="processes that have a device open", reason=UNSEEN.reason, hint=UNSEEN.hint)
        in found.unobserved
    )
    assert f"-> {UNSEEN.hint}" in drain_text(found, seen_in_use(), Layout())


FORBIDDEN: Final = NotObserved(reason="403")
LOST: Final[dict[str, Snapshot]] = {
    "the claim is being deleted": seen_in_use(
        in_kube={"claims": (claim(deleting_since=LONG_AGO),)}
    ),
    "the image is in the trash": seen_in_use(of_image={"presence": ImagePresence.TRASH}),
    "the image was demoted": seen_in_use(of_image={"mirrored": True, "primary": False}),
}


@pytest.mark.parametrize("state", LOST)
def test_data_that_the_drain_would_lose_comes_first(state: str) -> None:
    found = before(LOST[state])
    assert found.state is DrainState.BLOCKED
    assert found.items[0].step is DrainStep.DATA_AT_RISK


def test_pods_whose_volumes_were_not_read_leave_no_clear_node() -> None:
    seen = unmapped(target=NO_TARGET, in_kube=OF_NODE | {"persistent_volumes": FORBIDDEN})
    assert before(seen).state is DrainState.UNKNOWN


def test_report_of_an_unknown_boot_is_no_clear_node() -> None:
    assert before(from_elsewhere(reported_by(NODE), pods=())).state is DrainState.UNKNOWN


DOUBTFUL: Final[dict[str, dict[str, Any]]] = {
    "nodes": {"nodes": FORBIDDEN},
    "pods": {"pods": FORBIDDEN},
    "an attachment of a PV that is gone": {
        "persistent_volumes": (),
        "attachments": (attachment(),),
    },
}


@pytest.mark.parametrize("fact", DOUBTFUL)
def test_what_names_no_image_leaves_no_clean_node(fact: str) -> None:
    assert after(drained(in_kube=DOUBTFUL[fact])).state is DrainState.UNKNOWN


def test_a_check_before_does_not_replace_the_api() -> None:
    earlier = EarlierCheck(boot_id="b000", mappings=())
    assert after(drained(kubernetes=None), earlier).state is DrainState.UNKNOWN


def test_a_watch_that_leads_to_no_node_leaves_no_clean_node() -> None:
    watching = (watcher(address=STRANGER_ADDRESS, client=777),)
    found = after(
        drained(of_image={"watchers": watching}, in_kube={"attachments": (attachment(),)})
    )
    assert found.state is DrainState.UNKNOWN


def test_volumes_of_other_drivers_in_use_leave_a_clean_node() -> None:
    used = node(volumes_in_use=("kubernetes.io/csi/ebs.csi.aws.com^vol-1",))
    assert after(drained(in_kube={"nodes": (used,)})).state is DrainState.CLEAR


def test_rbd_volume_in_use_without_a_pv_leaves_no_clean_node() -> None:
    used = node(volumes_in_use=("kubernetes.io/csi/rook.rbd.csi.ceph.com^0001-x",))
    assert after(drained(in_kube={"nodes": (used,)})).state is DrainState.UNKNOWN
