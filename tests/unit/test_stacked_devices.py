"""Block devices that LVM or an administrator has put on the device of a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    ContainerState,
    LifecycleStep,
    LogEntry,
    LogExcerpt,
    NodeLogs,
    StepState,
    Verdict,
)
from tests.support.rows import each_row
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    LONG_AGO,
    PV,
    codes,
    diagnosis_of,
    found,
    luks,
    mount,
    node,
    pod,
    remote_watcher,
    unmapped,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

ENDED: Final = ContainerState(name="app", state="terminated")
RUNS: Final = ContainerState(name="app", state="running")
LONG_SINCE: Final = "2026-11-21T02:40:00Z"
TERMINATING: Final = pod(deleting_since=LONG_SINCE, containers=(ENDED,))
KUBELETS: Final = BlockHolder(
    kind=BlockHolderKind.LOOP,
    name="loop3",
    label=f"/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/{PV}/dev/a-pod",
    of="rbd0",
)
VOLUME: Final = BlockHolder(kind=BlockHolderKind.DM, name="dm-2", label="datavg-datalv", of="loop3")
POOL: Final = BlockHolder(kind=BlockHolderKind.DM, name="dm-3", label="datavg-pool", of="rbd0")
THIN: Final = BlockHolder(kind=BlockHolderKind.DM, name="dm-4", label="datavg-thin", of="dm-3")
RAID: Final = BlockHolder(kind=BlockHolderKind.MD, name="md0", of="rbd0")
LISTED: Final = node("worker-1", volumes_in_use=(f"kubernetes.io/csi/{DRIVER}^{HANDLE}",))


def ended(*devices: BlockHolder, pods: Any = (TERMINATING,), **on_node: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return a node with an ended pod whose volume has these devices on it."""
    return world(
        mapped={"holders": devices, "mounts": (mount(),)},
        on_node=on_node,
        in_kube={"pods": pods, "nodes": (LISTED, node("worker-2"))},
    )


KEPT: Final = {
    "LVM on kubelet's loop device": ((KUBELETS, VOLUME), "dm-2 (datavg-datalv) is open on it"),
    "LVM on the volume": ((replace(VOLUME, of="rbd0"),), "dm-2 (datavg-datalv) is open on it"),
    "LVM in an encrypted volume": (
        (luks(), replace(VOLUME, of="dm-0")),
        "because device-mapper device dm-2",
    ),
    "RAID": ((RAID,), "because RAID device md0 is built on it"),
}


@each_row("case", KEPT)
def test_device_on_the_volume_of_an_ended_pod_is_the_cause(case: str) -> None:
    devices, words = KEPT[case]
    finding = found(ended(*devices), "RBD724")
    assert words in finding.message
    assert "force" in str(finding.remedy)
    assert lines_of(finding.commands)[0] == "lsblk /dev/rbd0  # on worker-1"


def test_device_comes_before_what_kubelet_has_logged_or_not() -> None:
    line = LogEntry(
        at=LONG_SINCE,
        text=f'UnmapVolume.UnmapBlockVolume failed for volume "{PV}": target is busy',
        names=(PV,),
    )
    empty = LogExcerpt(since=LONG_AGO)
    for lines in ((), (line,)):
        kubelet = LogExcerpt(since=LONG_AGO, lines=lines)
        logs = NodeLogs(kubelet=kubelet, plugin=empty, kernel=empty)
        finding = found(ended(KUBELETS, VOLUME, logs=logs), "RBD724")
        assert "datavg-datalv" in finding.message
        assert "Restart kubelet" not in str(finding.remedy)


OF_NO_STRANGER: Final = {
    "nothing": ((), (TERMINATING,)),
    "the driver's LUKS": ((luks(),), (TERMINATING,)),
    "kubelet's loop device": ((KUBELETS,), (TERMINATING,)),
    "another pod there may use it": (
        (KUBELETS, VOLUME),
        (TERMINATING, pod("web-9", containers=(RUNS,))),
    ),
}


@each_row("case", OF_NO_STRANGER)
def test_no_device_is_blamed_that_belongs_to_the_volume(case: str) -> None:
    devices, pods = OF_NO_STRANGER[case]
    seen = ended(*devices, pods=pods)
    messages = [one.message for one in diagnosis_of(seen).findings if one.code == "RBD724"]
    assert not any("because" in text for text in messages)


def test_only_the_volume_on_top_is_deactivated() -> None:
    """LVM deactivates the pool of a thin volume with it."""
    remedy = str(found(ended(POOL, THIN), "RBD724").remedy)
    assert "lvchange -an /dev/mapper/datavg-thin," in remedy
    assert "datavg-pool" not in remedy


def test_device_that_is_no_logical_volume_is_not_deactivated() -> None:
    assert "lvchange" not in str(found(ended(RAID), "RBD724").remedy)


def test_pinned_device_has_the_same_remedy() -> None:
    seen = world(mapped={"holders": (replace(VOLUME, of="rbd0"),)})
    assert "lvchange -an /dev/mapper/datavg-datalv" in str(found(seen, "RBD102").remedy)


def test_volume_of_an_ended_pod_is_not_called_used() -> None:
    seen = ended(KUBELETS, VOLUME)
    (holder,) = diagnosis_of(seen).holders
    assert holder.verdict is Verdict.IN_USE
    assert "have ended, and it is not released" in holder.reasons[0]
    assert holder.reasons[1:] == ("device-mapper device dm-2 (datavg-datalv) is open on it",)
    finding = found(seen, "RBD100")
    assert "is not free yet" in finding.message
    assert "Nothing to do" not in str(finding.remedy)


def test_volume_of_an_ended_pod_on_another_node_is_not_called_used() -> None:
    seen = unmapped(
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"pods": (replace(TERMINATING, node_name="worker-2"),)},
    )
    (holder,) = diagnosis_of(seen).holders
    assert "have ended, and it is not released, according to the API" in holder.reasons[0]


def test_pod_without_containers_in_its_status_proves_no_end() -> None:
    (holder,) = diagnosis_of(ended(pods=(replace(TERMINATING, containers=()),))).holders
    assert holder.reasons[0].startswith("used by")


def test_device_on_a_volume_in_use_is_evidence() -> None:
    finding = found(ended(KUBELETS, VOLUME, pods=(pod(containers=(RUNS,)),)), "RBD100")
    assert "device-mapper device dm-2 (datavg-datalv) is open on it" in finding.evidence
    assert "RBD724" not in codes(ended(KUBELETS, VOLUME, pods=(pod(containers=(RUNS,)),)))


def test_publish_step_of_an_ended_pod_does_not_call_it_running() -> None:
    seen = ended(KUBELETS, VOLUME)
    (step,) = (
        step
        for step in lifecycle_of(correlate(seen), seen).attach_path
        if step.step is LifecycleStep.PUBLISH
    )
    assert step.state is StepState.DONE
    assert "have ended" in step.detail
