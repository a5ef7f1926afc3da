"""Each condition of an unmap refuses its states with its code; nothing else is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    Condition,
    History,
    MountKind,
    ObservedIo,
    OpenKind,
    Snapshot,
    Source,
    Sources,
    SourceState,
    Step,
    StepKind,
    UnmapPlan,
    UnmapPolicy,
    UnmapRefusal,
    observed_of,
)
from rbdagent.unmap.preconditions import CONDITIONS
from tests.support.orphan_variations import IN_FLIGHT, ON_TOP
from tests.support.rows import each_row
from tests.support.snapshots import (
    FAILED,
    JUST_NOW,
    LONG_AGO,
    NO_IO,
    OBSERVED,
    OTHER_FSID,
    PLUGIN_DOWN,
    POD_PATH,
    SPEC,
    STAGING_PATH,
    UNSEEN,
    attachment,
    container,
    gap,
    in_flight,
    mount,
    nbd_mapping,
    node,
    opener,
    pod,
    pod_directory,
    process,
    staging,
    target,
    volume,
    waiting_pod,
)
from tests.support.unmap_plans import (
    DEVICE,
    DM,
    GRACE_S,
    LADDER,
    LUKS,
    history,
    identity,
    moment,
    planned,
    seen,
)

DEVICE_BIND: Final = mount(path="/dev/x", kind=MountKind.DEVICE_BIND, root="/rbd0")
NBD: Final = nbd_mapping(device=DEVICE)


def refusal(plan: UnmapPlan | UnmapRefusal) -> UnmapRefusal:
    """Return a plan as a refusal; fail if it is not a refusal."""
    assert isinstance(plan, UnmapRefusal), plan
    return plan


def test_orphan_is_unmapped_if_all_conditions_are_met() -> None:
    plan = planned(seen(), remembered=history())
    assert isinstance(plan, UnmapPlan), plan
    assert plan.steps == (Step(kind=StepKind.UNMAP, subject="/dev/rbd0"),)
    assert [condition.number for condition in plan.conditions] == list(range(1, 11))
    assert all(condition.met and condition.observed for condition in plan.conditions)


REFUSED_BY_WHAT_IS_SEEN: Final[tuple[tuple[str, str, Snapshot], ...]] = (
    ("RBD501", "another device has that number now", seen(mapped={"incarnation": "diskseq:8"})),
    ("RBD501", "its client is another", seen(mapped={"client_id": 5000})),
    ("RBD501", "it is in another cluster", seen(mapped={"fsid": OTHER_FSID})),
    ("RBD501", "its number is unknown", seen(mapped={"incarnation": None})),
    ("RBD501", "its image was not observed", seen(mapped={"spec": UNSEEN})),
    ("RBD501", "it is an nbd device", seen(on_node={"mappings": (NBD,)})),
    ("RBD502", "mounted on the host", seen(mapped={"mounts": (mount(path="/mnt"),)})),
    ("RBD502", "staged, and no ladder", seen(mapped={"mounts": (mount(),)})),
    (
        "RBD502",
        "mounted in a private namespace",
        seen(mapped={"mounts": (mount(path="/data", namespace=container("stranger")),)}),
    ),
    ("RBD502", "its node is bound", seen(mapped={"mounts": (DEVICE_BIND,)})),
    ("RBD502", "mounts were not observed", seen(mapped={"mounts": UNSEEN})),
    ("RBD502", "a detached file system", seen(mapped={"kernel_traces": ("/sys/fs/ext4/rbd0",)})),
    ("RBD502", "traces were not observed", seen(mapped={"kernel_traces": UNSEEN})),
    (
        "RBD503",
        "a raw reader",
        seen(mapped={"openers": (opener(kind=OpenKind.DESCRIPTOR, on_device=True),)}),
    ),
    ("RBD503", "a working directory in a detached copy", seen(mapped={"openers": (opener(),)})),
    ("RBD503", "openers were not observed", seen(mapped={"openers": UNSEEN})),
    *(
        (
            "RBD503",
            f"{kind} is stacked on it",
            seen(mapped={"holders": (BlockHolder(kind=kind, name="x", of="rbd0"),)}),
        )
        for kind in BlockHolderKind
    ),
    ("RBD503", "LUKS, and no ladder", seen(mapped={"holders": (LUKS,)})),
    ("RBD503", "holders were not observed", seen(mapped={"holders": UNSEEN})),
    (
        "RBD504",
        "a living pod's directory",
        seen(of_kubelet={"pod_volumes": (pod_directory(),)}, in_kube={"pods": (pod(),)}),
    ),
    (
        "RBD504",
        "its block path is mounted",
        seen(
            of_kubelet={"staging": (staging(block=True),)},
            mapped={"mounts": (replace(DEVICE_BIND, path=STAGING_PATH),)},
        ),
    ),
    ("RBD504", "staging was not observed", seen(of_kubelet={"staging": UNSEEN})),
    ("RBD504", "pod directories were not observed", seen(of_kubelet={"pod_volumes": UNSEEN})),
    ("RBD505", "a pod runs", seen(in_kube={"pods": (pod(),)})),
    ("RBD505", "a pod waits", seen(in_kube={"pods": (waiting_pod("starting", "worker-1"),)})),
    (
        "RBD505",
        "a pod terminates",
        seen(in_kube={"pods": (pod(deleting_since=JUST_NOW),)}),
    ),
    (
        "RBD505",
        "a finished pod is being deleted",
        seen(in_kube={"pods": (pod(phase="Succeeded", deleting_since=JUST_NOW),)}),
    ),
    (
        "RBD505",
        "a container runs whose pod the API has lost",
        seen(mapped={"mounts": (mount(path="/data", namespace=container("lost")),)}),
    ),
    ("RBD505", "pods were not observed", seen(in_kube={"pods": UNSEEN})),
    ("RBD505", "pods of some namespace only", seen(in_kube={"pods_scope": "namespace/default"})),
    ("RBD505", "pods came from a cache", seen(in_kube={"consistent": False})),
    ("RBD505", "PVs were requested by name", seen(in_kube={"volumes_complete": False})),
    (
        "RBD505",
        "the attachment is young",
        seen(in_kube={"attachments": (attachment(created_at=JUST_NOW),)}),
    ),
    (
        "RBD505",
        "the attachment has no creation time",
        seen(in_kube={"attachments": (attachment(created_at=None),)}),
    ),
    (
        "RBD505",
        "a young attachment whose PV was deleted by force",
        seen(
            in_kube={
                "persistent_volumes": (),
                "attachments": (attachment(created_at=JUST_NOW),),
            },
            of_kubelet={"staging": ()},
        ),
    ),
    ("RBD505", "attachments were not observed", seen(in_kube={"attachments": UNSEEN})),
    (
        "RBD505",
        "kubelet has just started",
        seen(of_kubelet={"process": process(command="kubelet", started_at=JUST_NOW)}),
    ),
    ("RBD505", "kubelet does not run", seen(of_kubelet={"process": None})),
    ("RBD505", "kubelet was not observed", seen(on_node={"kubelet": UNSEEN})),
    (
        "RBD506",
        "an administrator mapped it",
        seen(
            mapped={"spec": replace(SPEC, name="backup")},
            of_kubelet={"staging": ()},
            of_image={"spec": replace(SPEC, name="backup"), "metadata": ()},
            in_kube={"persistent_volumes": (), "claims": ()},
        ),
    ),
    (
        "RBD507",
        "mkfs is at work",
        seen(on_node={"in_flight": (in_flight("mkfs.ext4", "mkfs.ext4 /dev/rbd0"),)}),
    ),
    (
        "RBD507",
        "an unmap hangs",
        seen(on_node={"in_flight": (in_flight("rbd", "rbd unmap /dev/rbd0"),)}),
    ),
    ("RBD507", "processes were not observed", seen(on_node={"in_flight": UNSEEN})),
    ("RBD507", "a request hangs", seen(mapped={"hung_requests": ("write rbd_data.1",)})),
    ("RBD508", "the PV is frozen", seen(in_kube={"persistent_volumes": (volume(frozen=True),)})),
    (
        "RBD508",
        "the node is frozen",
        seen(in_kube={"nodes": (node(frozen=True), node("worker-2"))}),
    ),
    ("RBD508", "there is no such Node", seen(in_kube={"nodes": (node("worker-2"),)})),
    ("RBD508", "the namespace is frozen", seen(in_kube={"frozen_namespaces": ("default",)})),
    ("RBD508", "the namespace was not observed", seen(in_kube={"frozen_namespaces": UNSEEN})),
    ("RBD509", "Ceph is unreachable", seen(ceph=None)),
    ("RBD509", "the API is unreachable", seen(kubernetes=None)),
    (
        "RBD509",
        "a gap in what root alone sees",
        seen(
            sources=Sources(
                node=Source(state=SourceState.OBSERVED, gaps=(gap("mounts"),)),
                ceph=OBSERVED,
                kubernetes=OBSERVED,
            )
        ),
    ),
    (
        "RBD509",
        "the node was skipped",
        seen(sources=Sources(node=FAILED, ceph=OBSERVED, kubernetes=OBSERVED)),
    ),
    ("RBD509", "the watchers were not observed", seen(of_image={"watchers": UNSEEN})),
    ("RBD509", "the image was not observed", seen(of_image={"presence": UNSEEN})),
    ("RBD509", "the blocklist was not observed", seen(in_ceph={"blocklist": UNSEEN})),
    ("RBD509", "the node reported no uptime", seen(on_node={"uptime_s": None})),
    ("RBD510", "it was read since", seen(mapped={"io_counters": replace(NO_IO, reads=815)})),
    ("RBD510", "it was written since", seen(mapped={"io_counters": replace(NO_IO, writes=41)})),
    ("RBD510", "it discarded since", seen(mapped={"io_counters": replace(NO_IO, discards=4)})),
    ("RBD510", "it was flushed since", seen(mapped={"io_counters": replace(NO_IO, flushes=6)})),
    ("RBD510", "a request is in flight", seen(mapped={"io_counters": IN_FLIGHT})),
    ("RBD510", "its counters were not observed", seen(mapped={"io_counters": UNSEEN})),
)


@each_row(
    ("code", "look"),
    [pytest.param(code, look, id=f"{code} {why}") for code, why, look in REFUSED_BY_WHAT_IS_SEEN],
)
def test_observed_state_is_refused_with_its_code(code: str, look: Snapshot) -> None:
    assert code in refusal(planned(look, remembered=history())).codes


REFUSED_BY_WHAT_IS_REMEMBERED: Final[tuple[tuple[str, str, History | None], ...]] = (
    ("RBD501", "nothing", None),
    ("RBD501", "first seen too late", history(first_seen=GRACE_S - 1, orphaned_for=GRACE_S - 1)),
    ("RBD501", "another client", history(of=identity(client_id=1))),
    ("RBD501", "another device", history(of=identity(device="/dev/rbd1"))),
    ("RBD501", "another image", history(of=identity(image_id="other"))),
    ("RBD505", "a pod needed it", history(needed_ago=GRACE_S - 1)),
    ("RBD508", "the grace period is not over", history(orphaned_for=GRACE_S - 1)),
    ("RBD508", "the last cycle did not report it as orphaned", history(orphaned_for=None)),
    ("RBD508", "the limit is reached", history(unmaps=6)),
    ("RBD508", "the record was not read", replace(history(), unmaps=UNSEEN)),
    ("RBD510", "I/O was seen within the grace period", history(no_io_for=GRACE_S - 1)),
    ("RBD510", "no observation found its counters equal", history(no_io_for=None)),
    ("RBD510", "other counters", history(io_counters=replace(NO_IO, reads=811))),
    ("RBD510", "no counters", history(io_counters=None)),
)


@pytest.mark.parametrize(
    ("code", "remembered"),
    [
        pytest.param(code, remembered, id=f"{code} {why}")
        for code, why, remembered in REFUSED_BY_WHAT_IS_REMEMBERED
    ],
)
def test_history_is_refused_with_its_code(code: str, remembered: History | None) -> None:
    assert code in refusal(planned(seen(), remembered=remembered)).codes


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("RBD508", {"policy": UnmapPolicy(may_unmap=False)}),
        ("RBD508", {"freeze_file": "/etc/rbdagent/freeze"}),
        ("RBD508", {"freeze_file": UNSEEN}),
        ("RBD509", {"decided_after": 31.0}),
        ("RBD509", {"decided_after": -1.0}),
        ("RBD509", {"decided_after": None}),
    ],
)
def test_setting_or_old_snapshot_is_refused_with_its_code(
    code: str, settings: dict[str, Any]
) -> None:
    assert refusal(planned(seen(), remembered=history(), **settings)).codes == (code,)


def test_mapping_of_another_node_is_refused() -> None:
    look = seen(on_node={"mappings": ()}, target=target())
    assert refusal(planned(look, remembered=history())).codes == ("RBD501",)


@pytest.mark.parametrize(
    ("changes", "expects"),
    [
        ({"deleting_since": JUST_NOW, "created_at": JUST_NOW}, 1),
        ({"created_at": LONG_AGO}, 2),
    ],
)
def test_attachment_is_not_refused_and_leads_to_expectations(
    changes: dict[str, Any], expects: int
) -> None:
    look = seen(in_kube={"attachments": (attachment(**changes),)})
    plan = planned(look, remembered=history())
    assert isinstance(plan, UnmapPlan), plan
    assert len(plan.expects) == expects
    assert "controller" in plan.expects[-1]


def test_pod_that_waits_on_another_node_is_expected_to_start() -> None:
    plan = planned(seen(in_kube={"pods": (waiting_pod(),)}), remembered=history())
    assert isinstance(plan, UnmapPlan), plan
    assert "web-1" in plan.expects[0]


def test_leftover_directory_is_shown_and_not_refused() -> None:
    plan = planned(seen(of_kubelet={"pod_volumes": (pod_directory(),)}), remembered=history())
    assert isinstance(plan, UnmapPlan), plan
    assert POD_PATH in plan.conditions[3].observed[-1]


def test_ladder_unmounts_the_staging_mount_only() -> None:
    look = seen(mapped={"mounts": (mount(),), "kernel_traces": ("/sys/fs/ext4/rbd0",)})
    plan = planned(look, remembered=history(), policy=LADDER)
    assert isinstance(plan, UnmapPlan), plan
    assert [step.kind for step in plan.steps] == [StepKind.UMOUNT, StepKind.UNMAP]
    assert plan.steps[0].subject == STAGING_PATH


def test_ladder_continues_with_luks_after_an_interrupted_umount() -> None:
    look = seen(mapped={"holders": (LUKS,)})
    plan = planned(look, remembered=history(), policy=LADDER)
    assert isinstance(plan, UnmapPlan)
    assert [step.kind for step in plan.steps] == [StepKind.LUKS_CLOSE, StepKind.UNMAP]


def test_ladder_closes_luks_between_umount_and_unmap() -> None:
    look = seen(mapped={"mounts": (mount(device=DM),), "holders": (LUKS,)})
    plan = planned(look, remembered=history(), policy=LADDER)
    assert isinstance(plan, UnmapPlan), plan
    assert [step.kind for step in plan.steps] == [
        StepKind.UMOUNT,
        StepKind.LUKS_CLOSE,
        StepKind.UNMAP,
    ]


@pytest.mark.parametrize(
    "mounts",
    [
        (mount(), mount(path="/mnt")),
        (mount(), mount(path=POD_PATH)),
        (mount(path=POD_PATH),),
        (mount(path="/mnt"),),
        (mount(), mount(path="/data", namespace=container("stranger"))),
        (replace(DEVICE_BIND, path=STAGING_PATH),),
        (mount(covered=True),),
        (mount(), mount()),
    ],
)
def test_ladder_refuses_any_other_mount(mounts: tuple[Any, ...]) -> None:
    plan = planned(seen(mapped={"mounts": mounts}), remembered=history(), policy=LADDER)
    assert "RBD502" in refusal(plan).codes


def test_ladder_refuses_a_staging_path_that_another_volume_shares() -> None:
    """A umount takes the upper mount, whichever that is."""
    look = seen(mapped={"mounts": (mount(),)})
    assert look.node is not None
    mappings = (*observed_of(look.node.mappings), ON_TOP)
    look = replace(look, node=replace(look.node, mappings=mappings))
    assert "RBD502" in refusal(planned(look, remembered=history(), policy=LADDER)).codes


def test_hidden_staging_mount_is_reported_as_hidden() -> None:
    found = refusal(planned(seen(mapped={"mounts": (mount(covered=True),)}), policy=LADDER))
    assert found.reasons["RBD502"].endswith("on the host, and another mount at that path hides it")


def test_no_time_ends_what_waits_for_a_driver_that_is_down() -> None:
    look = seen(mapped={"mounts": (mount(),)}, of_kubelet=PLUGIN_DOWN)
    conditions = refusal(planned(look, remembered=history())).conditions
    words = "the verdict is Staged, and the CSI driver does not respond"
    (found,) = (one for one in conditions if words in one.observed)
    assert not found.pending


BEFORE: Final = replace(NO_IO, reads=809)
SEEN_IO: Final = ObservedIo(since=moment(40), at=moment(30), before=BEFORE, after=NO_IO)


def said_of_io(look: Snapshot, remembered: History) -> Condition:
    """Return condition 10 of a refusal."""
    return refusal(planned(look, remembered=remembered)).conditions[9]


def test_refusal_shows_the_io_that_restarts_the_grace_period() -> None:
    io = said_of_io(seen(), history(no_io_for=30, last_io=SEEN_IO))
    (said,) = io.observed
    assert said.startswith("reads went from 809 to 812 between 40s ago and 30s ago; ")
    assert said.endswith("that I/O, 30s ago, restarts the grace period (10m0s)")
    assert io.pending, "time alone makes it pass where no more I/O comes"


def test_counters_that_changed_since_last_time_are_named() -> None:
    changed = replace(NO_IO, reads=815, flushes=None)
    io = said_of_io(seen(mapped={"io_counters": changed}), history())
    assert "reads went from 812 to 815" in io.observed[0]
    assert "flushes went from 5 to not counted" in io.observed[0]


def test_unobserved_counters_do_not_pass_with_time() -> None:
    io = said_of_io(seen(mapped={"io_counters": UNSEEN}), history())
    assert "I/O counters: not observed" in io.observed[0]
    assert not io.pending


def test_every_condition_has_rows_in_the_table() -> None:
    tested = {code for code, _, _ in REFUSED_BY_WHAT_IS_SEEN}
    assert tested == {code for code, _, _ in CONDITIONS}
