"""A refusal that depends on one object names it: in plan, metric, record and Event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    InTreeRbdSource,
    MountKind,
    ObjectRef,
    PreventingObject,
    Source,
    Sources,
    SourceState,
    UnmapPlan,
    UnmapPolicy,
    UnmapRefusal,
    observed_of,
)
from rbdagent.report.json.unmap import unmap_refusal
from rbdagent.report.text import unmap as unmap_text
from rbdagent.report.text.layout import Layout
from tests.support.agent_loop import cycle_of, rounds, samples
from tests.support.hostile_texts import CLEAR_SCREEN, TURNED, is_clean
from tests.support.snapshots import (
    OBSERVED,
    SPEC,
    UNSEEN,
    attachment,
    container,
    gap,
    in_flight,
    mount,
    node,
    opener,
    pod,
    pod_directory,
    process,
    volume,
)
from tests.support.unmap_plans import LEAVE, history, planned, seen

if TYPE_CHECKING:
    from rbdagent.model import Snapshot
    from tests.support.agent_loop import Stage

TENANT: Final = pod(ref=ObjectRef(namespace="tenant", name="evil", uid="evil-uid"), claims=())
INLINE: Final = replace(TENANT, inline_images=(InTreeRbdSource(spec=SPEC, monitors=()),))
POD: Final = PreventingObject(kind="Pod", namespace="tenant", name="evil")
LOST: Final = PreventingObject(kind="Pod", name="evil-uid")
READER: Final = opener(process=process(pid=70, command="/bin/dd if=/dev/rbd0", pod_uid="evil-uid"))
THERE: Final = {"pods": (TENANT,)}
AT_WORK: Final = in_flight("mkfs.ext4", "mkfs.ext4 /dev/rbd0")
AT_WORK_IN_POD: Final = replace(AT_WORK, process=replace(AT_WORK.process, pod_uid="evil-uid"))
BOUND: Final = mount(
    path="/x", kind=MountKind.DEVICE_BIND, root="/rbd0", namespace=container("evil-uid")
)

KEPT: Final[dict[str, tuple[str, PreventingObject, Snapshot]]] = {
    "a mount in a container": ("RBD502", POD, seen(mapped={"mounts": (BOUND,)}, in_kube=THERE)),
    "with its file system": (
        "RBD502",
        POD,
        seen(mapped={"mounts": (BOUND,), "kernel_traces": ("/sys/fs/ext4/rbd0",)}, in_kube=THERE),
    ),
    "a process of a pod": ("RBD503", POD, seen(mapped={"openers": (READER,)}, in_kube=THERE)),
    "two of its processes": (
        "RBD503",
        POD,
        seen(
            mapped={"openers": (READER, replace(READER, process=replace(READER.process, pid=71)))},
            in_kube=THERE,
        ),
    ),
    "a process of a pod that the API has not": (
        "RBD503",
        LOST,
        seen(mapped={"openers": (READER,)}),
    ),
    "a process of the host": (
        "RBD503",
        PreventingObject(kind="Process", name="sleep", pid=4623),
        seen(mapped={"openers": (opener(),)}),
    ),
    "a pod's directory": (
        "RBD504",
        PreventingObject(kind="Pod", namespace="default", name="web-0"),
        seen(of_kubelet={"pod_volumes": (pod_directory(),)}, in_kube={"pods": (pod(),)}),
    ),
    "an inline volume": ("RBD505", POD, seen(in_kube={"pods": (INLINE,)})),
    "an attachment without an age": (
        "RBD505",
        PreventingObject(kind="VolumeAttachment", name=attachment().name),
        seen(in_kube={"attachments": (attachment(created_at=None),)}),
    ),
    "a process at work": (
        "RBD507",
        PreventingObject(kind="Process", name="mkfs.ext4", pid=9000),
        seen(on_node={"in_flight": (AT_WORK,)}),
    ),
    "a pod's process at work": (
        "RBD507",
        POD,
        seen(on_node={"in_flight": (AT_WORK_IN_POD,)}, in_kube=THERE),
    ),
    "a frozen PV": (
        "RBD508",
        PreventingObject(kind="PersistentVolume", name=volume().name),
        seen(in_kube={"persistent_volumes": (volume(frozen=True),)}),
    ),
    "a frozen node": (
        "RBD508",
        PreventingObject(kind="Node", name="worker-1"),
        seen(in_kube={"nodes": (node(frozen=True),)}),
    ),
    "a frozen namespace": (
        "RBD508",
        PreventingObject(kind="Namespace", name="default"),
        seen(in_kube={"frozen_namespaces": ("default",)}),
    ),
}
GAP: Final = Source(state=SourceState.OBSERVED, gaps=(gap("mounts"),))
NOT_ONE: Final[dict[str, tuple[Snapshot, UnmapPolicy]]] = {
    "two pods": (
        seen(mapped={"openers": (READER, opener())}, in_kube=THERE),
        LEAVE,
    ),
    "two pods that need it": (
        seen(
            in_kube={
                "pods": (
                    INLINE,
                    replace(INLINE, ref=ObjectRef(namespace="tenant", name="more", uid="u")),
                )
            }
        ),
        LEAVE,
    ),
    "something that was not observed as well": (
        seen(mapped={"openers": (READER,), "mounts": UNSEEN}, in_kube=THERE),
        LEAVE,
    ),
    "a gap as well": (
        seen(
            mapped={"openers": (READER,)},
            in_kube=THERE,
            sources=Sources(node=GAP, ceph=OBSERVED, kubernetes=OBSERVED),
        ),
        LEAVE,
    ),
    "the mode as well": (
        seen(mapped={"openers": (READER,)}, in_kube=THERE),
        replace(LEAVE, may_unmap=False),
    ),
    "nothing but the mode": (seen(), replace(LEAVE, may_unmap=False)),
}


def refused(look: Snapshot, policy: UnmapPolicy = LEAVE) -> UnmapRefusal:
    found = planned(look, remembered=history(), policy=policy)
    assert isinstance(found, UnmapRefusal)
    return found


@pytest.mark.parametrize(("code", "keeper", "look"), KEPT.values(), ids=KEPT.keys())
def test_only_object_behind_a_refusal_is_named(
    code: str, keeper: PreventingObject, look: Snapshot
) -> None:
    found = refused(look)
    assert (found.first_code, found.prevented_by) == (code, keeper)
    text = unmap_text.unmap_refusal(found, Layout(width=300))
    assert f"Apart from time, only {keeper} prevents it." in text
    named = unmap_refusal(found).prevented_by
    assert named is not None
    assert named.name == keeper.name


@pytest.mark.parametrize(("look", "policy"), NOT_ONE.values(), ids=NOT_ONE.keys())
def test_refusal_with_more_reasons_names_no_object(look: Snapshot, policy: UnmapPolicy) -> None:
    found = refused(look, policy)
    assert found.prevented_by is None
    assert "prevents it" not in unmap_text.unmap_refusal(found, Layout())
    assert unmap_refusal(found).prevented_by is None


def test_pod_that_keeps_nothing_causes_no_refusal() -> None:
    assert isinstance(planned(seen(in_kube=THERE), remembered=history()), UnmapPlan)


def test_metric_has_one_series_that_names_the_object() -> None:
    look = replace(cycle_of(seen()), refused=(refused(KEPT["a process of a pod"][2]),))
    (sample,) = samples(look, "rbdagent_unmap_refused")
    assert sample.labels == {
        "node": "worker-1",
        "device": "/dev/rbd0",
        "condition": "RBD503",
        "object_kind": "Pod",
        "object_namespace": "tenant",
        "object_name": "evil",
    }


def test_no_label_has_unprintable_text_or_a_pid() -> None:
    ill = opener(process=process(command=f"/x{CLEAR_SCREEN}{TURNED}{'y' * 5000} -z"))
    look = replace(cycle_of(seen()), refused=(refused(seen(mapped={"openers": (ill,)})),))
    (sample,) = samples(look, "rbdagent_unmap_refused")
    assert is_clean("".join(sample.labels.values()))
    assert "4623" not in sample.labels.values()
    assert len(sample.labels["object_name"]) < 400


def test_series_without_one_object_names_only_the_condition() -> None:
    found = refused(*NOT_ONE["two pods"])
    (sample,) = samples(replace(cycle_of(seen()), refused=(found,)), "rbdagent_unmap_refused")
    labels = ("condition", "object_kind", "object_namespace", "object_name")
    assert [sample.labels[label] for label in labels] == [
        "RBD503",
        "",
        "",
        "",
    ]


def test_agent_names_the_object_in_record_event_and_metric(
    acting: Stage,
    unmapped: list[str],
) -> None:
    orphan = seen(in_kube=THERE)
    acting.snapshots = [orphan]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    acting.snapshots = [KEPT["a pod's process at work"][2], orphan]
    rounds(agent, "time")
    assert unmapped == []
    (act,) = observed_of(acting.state.acts())
    assert act.message.endswith(". Apart from time, only Pod tenant/evil prevents it")
    (sample,) = samples(acting.reported[-1], "rbdagent_unmap_refused")
    assert sample.labels["object_name"] == "evil"
    rounds(agent, "time")
    assert unmapped == ["/dev/rbd0"]
    assert samples(acting.reported[-1], "rbdagent_unmap_refused") == []


def test_other_object_behind_the_same_condition_is_reported(
    acting: Stage,
    unmapped: list[str],
) -> None:
    orphan = seen(in_kube=THERE)
    again = replace(AT_WORK, process=replace(AT_WORK.process, pid=9001))
    acting.snapshots = [orphan]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    for work in (AT_WORK_IN_POD, AT_WORK, again):
        acting.snapshots = [seen(on_node={"in_flight": (work,)}, in_kube=THERE), orphan]
        rounds(agent, "time")
        acting.times.uptime_s += 10
    assert [len(cycle.news) for cycle in acting.reported[-3:]] == [1, 1, 0]
    assert unmapped == []
