"""A PV whose image was renamed while it was mapped: its device is a holder, and it is not free."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.collector import _with_identified
from rbdagent.commands import sentence_of
from rbdagent.correlate import correlate, correlate_node, images_to_identify
from rbdagent.model import (
    CephView,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    Mapping,
    Mount,
    MountKind,
    PodVolumeDirectory,
    ProcessRef,
    PublishedFinding,
    PublishedMapping,
    Severity,
    Snapshot,
    StepKind,
    Target,
    TargetKind,
    UnmapPlan,
    UnmapRefusal,
    Verdict,
)
from rbdagent.parse.kubelet import volume_of_path
from rbdagent.report.rbdmapping import mapping_statuses
from rbdagent.report.text.holders import answer
from rbdagent.report.text.layout import Layout
from rbdagent.rules import diagnose
from tests.support.snapshots import (
    BY_IMAGE,
    DRIVER,
    FSID,
    HANDLE,
    IMAGE_ID,
    IN_USE_NAME,
    OBSERVED,
    POD_PATH,
    POD_UID,
    PV,
    REMOTE_ADDRESS,
    ROOT,
    SPEC,
    STAGING_PATH,
    UNSEEN,
    attachment,
    cluster,
    codes,
    container,
    diagnosis_of,
    found,
    image_view,
    mapping,
    mount,
    node,
    opener,
    pod,
    pod_directory,
    process,
    remote_watcher,
    reported_by,
    staging,
    target,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)
from tests.support.unmap_plans import LADDER, history, identity, planned, seen

FORMER_ID: Final = "9999"
"""The id of the image that is mapped; IMAGE_ID is that of the image that has its name now."""
RENAMED: Final = replace(SPEC, name="renamed")
BLOCK: Final = f"{ROOT}/plugins/kubernetes.io/csi/volumeDevices"
NEW_VIEW: Final = image_view(watchers=(), metadata=())
FORMER_VIEW: Final = image_view(spec=RENAMED, image_id=FORMER_ID)
NODE_TARGET: Final = target(argument="", kind=TargetKind.NONE, name="")


def bind(path: str) -> Mount:
    return mount(path=path, kind=MountKind.DEVICE_BIND, fs_type="devtmpfs", root="/rbd0")


PATHS: Final = {
    "pod": mount(path=POD_PATH),
    "staging": mount(),
    "staging before Kubernetes 1.24": mount(
        path=f"{ROOT}/plugins/kubernetes.io/csi/pv/{PV}/globalmount/{HANDLE}"
    ),
    "block staging": bind(f"{BLOCK}/staging/{PV}/{HANDLE}"),
    "block publish": bind(f"{BLOCK}/publish/{PV}/{POD_UID}"),
    "block, linked from the pod": bind(f"{BLOCK}/{PV}/dev/{POD_UID}"),
}


def device(*mounts: Mount, **changes: Any) -> Mapping:  # noqa: ANN401 - as the builders
    return mapping(**{"image_id": FORMER_ID, "mounts": mounts, **changes})


def renamed(*mappings: Mapping, former: bool = True, **parts: Any) -> Snapshot:  # noqa: ANN401
    """Build a snapshot of worker-1 in which another image has the name in the PV.

    Args:
        mappings: of worker-1.
        former: whether Ceph was queried for the image that was renamed.
        parts: as of `world`.
    """
    images = (NEW_VIEW, FORMER_VIEW) if former else (NEW_VIEW,)
    parts = {"of_kubelet": {"staging": ()}, "in_ceph": {"images": images}, **parts}
    return world(on_node={"mappings": mappings, **parts.pop("on_node", {})}, **parts)


def verdict_on(snapshot: Snapshot) -> Verdict:
    return diagnosis_of(snapshot).verdict


def test_volume_is_free_if_nothing_is_left() -> None:
    """Assert that the other tests prove something."""
    assert verdict_on(renamed()) is Verdict.FREE


# --------------------------------------------------------------------------------------------------
# The device
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [SPEC, RENAMED], ids=["mapped by its name", "by another name"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_device_at_a_path_of_the_pv_is_a_holder(path: Mount, name: ImageSpec) -> None:
    snapshot = renamed(device(path, spec=name))
    (holder,) = correlate(snapshot).holders
    assert holder.mapping is not None
    assert holder.other_image == ImageIdentity(spec=name, fsid=FSID, image_id=FORMER_ID, pool_id=1)
    assert holder.watcher == watcher(), "its watch is on the renamed image"
    assert verdict_on(snapshot) is not Verdict.FREE


@pytest.mark.parametrize(
    "mapped",
    [
        device(mount(path="/data", namespace=container())),
        device(openers=(opener(process=process(pod_uid=POD_UID), on_device=True),)),
        device(mounts=UNSEEN),
        device(),
    ],
    ids=["only a container", "raw block, open in a container", "mounts not seen", "nothing"],
)
def test_device_that_was_mapped_by_the_name_in_the_pv_is_a_holder(mapped: Mapping) -> None:
    snapshot = renamed(mapped)
    assert [holder.mapping for holder in correlate(snapshot).holders] == [mapped]
    assert verdict_on(snapshot) is not Verdict.FREE


@pytest.mark.parametrize(
    "mapped",
    [
        device(mount(path="/mnt"), spec=RENAMED),
        device(mount(path=POD_PATH, namespace=container()), spec=RENAMED),
        device(mount(path=POD_PATH.replace(PV, "pvc-other")), spec=RENAMED),
    ],
    ids=["at another path", "a path that a container made", "of another PV"],
)
def test_other_device_is_no_holder(mapped: Mapping) -> None:
    assert correlate(renamed(mapped)).holders == ()


def test_pod_lost_by_the_api_still_holds_its_volume() -> None:
    """The reproduction: kubelet stopped, pod force-deleted, VolumeAttachment gone."""
    inside = mount(path="/data", namespace=container())
    diagnosis = diagnosis_of(renamed(device(mount(), mount(path=POD_PATH), inside)))
    assert diagnosis.verdict is Verdict.IN_USE
    assert {"RBD109", "RBD123"} <= {finding.code for finding in diagnosis.findings}


LINKED: Final = pod_directory(
    path=f"{ROOT}/pods/{POD_UID}/volumeDevices/kubernetes.io~csi/{PV}", block=True
)


@pytest.mark.parametrize(
    ("path", "directory"),
    [(PATHS["pod"], pod_directory()), (PATHS["block publish"], LINKED)],
    ids=["file system", "raw block"],
)
def test_directory_of_a_lost_pod_that_uses_the_device_is_no_leftover(
    path: Mount, directory: PodVolumeDirectory
) -> None:
    """As a lab with real kubelets showed it."""
    of_kubelet = {"staging": (), "pod_volumes": (directory,)}
    assert "RBD205" not in codes(renamed(device(path), of_kubelet=of_kubelet))


def test_answer_while_the_pod_runs_names_both_images() -> None:
    inside = mount(path="/data", namespace=container())
    snapshot = renamed(device(mount(), inside), in_kube={"pods": (pod(),)})
    assert verdict_on(snapshot) is Verdict.IN_USE
    assert "RBD416" not in codes(snapshot)
    finding = found(snapshot, "RBD123")
    assert finding.severity is Severity.CRITICAL
    assert f"image {RENAMED} (id {FORMER_ID})" in finding.message
    assert f"{SPEC}, which is another image now (id {IMAGE_ID})" in finding.message
    shown = [given.argv for given in finding.commands]
    assert shown[:2] == [("rbd", "info", str(RENAMED)), ("rbd", "info", str(SPEC))]
    text = " ".join(answer(diagnosis_of(snapshot), snapshot, Layout()).split())
    assert text.startswith("IN USE /dev/rbd0 on worker-1 serves")
    assert f"rbd rename {RENAMED} {SPEC}" in sentence_of(finding.remedy, "rbdagent")


def test_answer_without_the_renamed_image_names_its_id() -> None:
    finding = found(renamed(device(mount(path=POD_PATH)), former=False), "RBD123")
    assert f"is the image with id {FORMER_ID}" in finding.message


def test_unused_device_of_a_former_image_is_no_danger() -> None:
    """A restored image may have the name on purpose."""
    snapshot = renamed(device())
    assert verdict_on(snapshot) is Verdict.ORPHANED
    assert found(snapshot, "RBD123").severity is Severity.WARNING


def test_name_that_leads_to_no_image_is_an_error() -> None:
    gone = replace(NEW_VIEW, presence=ImagePresence.GONE, image_id=None)
    snapshot = renamed(
        device(mount(path=POD_PATH)),
        in_ceph={"images": (gone, FORMER_VIEW)},
        in_kube={"pods": (pod(),)},
    )
    finding = found(snapshot, "RBD123")
    assert finding.severity is Severity.ERROR
    assert "which does not exist" in finding.message


def test_writer_of_the_other_image_is_neither_a_conflict_nor_a_share() -> None:
    both = {"pods": (pod(), waiting_pod(phase="Running"))}
    images = (replace(NEW_VIEW, watchers=(remote_watcher(),)), FORMER_VIEW)
    snapshot = renamed(device(mount()), in_ceph={"images": images}, in_kube=both)
    diagnosis = diagnosis_of(snapshot)
    assert len(diagnosis.holders) == 2
    assert diagnosis.verdict is Verdict.IN_USE


def test_two_writers_of_the_renamed_image_conflict() -> None:
    images = (NEW_VIEW, replace(FORMER_VIEW, watchers=(watcher(), remote_watcher())))
    snapshot = renamed(device(mount()), in_ceph={"images": images}, in_kube={"pods": (pod(),)})
    assert verdict_on(snapshot) is Verdict.CONFLICT


# --------------------------------------------------------------------------------------------------
# What remains of the PV without a device
# --------------------------------------------------------------------------------------------------

CONTAINER: Final = ProcessRef(pid=6790, command="app", pod_uid=POD_UID, container_id="c0ffee")
TRACES: Final[dict[str, dict[str, Any]]] = {
    "pod directory": {"of_kubelet": {"staging": (), "pod_volumes": (pod_directory(),)}},
    "raw block: pod directory": {
        "of_kubelet": {
            "staging": (),
            "pod_volumes": (
                pod_directory(
                    path=f"{ROOT}/pods/{POD_UID}/volumeDevices/kubernetes.io~csi/{PV}", block=True
                ),
            ),
        }
    },
    "staging path": {"of_kubelet": {"staging": (staging(path_present=True),)}},
    "raw block: staging path": {
        "of_kubelet": {
            "staging": (
                staging(
                    path=f"{BLOCK}/staging/{PV}/{HANDLE}",
                    handle_hash=None,
                    persistent_volume=PV,
                    block=True,
                    path_present=True,
                ),
            )
        }
    },
    "volumesInUse": {"in_kube": {"nodes": (node(volumes_in_use=(IN_USE_NAME,)), node("worker-2"))}},
    "container of a finished pod": {
        "on_node": {"processes": (CONTAINER,)},
        "in_kube": {"pods": (pod(phase="Succeeded"),)},
    },
    "pod directories not seen": {"of_kubelet": {"pod_volumes": UNSEEN}},
    "staging directories not seen": {"of_kubelet": {"staging": UNSEEN}},
    "kubelet's directories not seen": {"on_node": {"kubelet": UNSEEN}},
    "a device with unknown mounts": {
        "on_node": {"mappings": (device(mounts=UNSEEN, spec=RENAMED),)}
    },
}


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES.keys())
def test_what_remains_of_the_pv_is_missing_for_free(trace: dict[str, Any]) -> None:
    snapshot = unmapped(**trace)
    assert verdict_on(snapshot) is Verdict.UNDETERMINED
    (finding,) = (one for one in diagnosis_of(snapshot).findings if one.code == "RBD119")
    assert finding.severity is Severity.WARNING


def test_rest_of_a_staging_directory_does_not_count() -> None:
    assert verdict_on(unmapped(of_kubelet={"staging": (staging(),)})) is Verdict.FREE


# --------------------------------------------------------------------------------------------------
# What other agents publish
# --------------------------------------------------------------------------------------------------


def from_elsewhere(*images: object, **changes: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot of worker-1, which has nothing mapped; worker-2 reports a device."""
    reported = PublishedMapping(
        device="/dev/rbd0",
        verdict=Verdict.IN_USE,
        fsid=FSID,
        spec=SPEC,
        image_id=FORMER_ID,
        client_id=4239,
        client_address=REMOTE_ADDRESS,
        read_only=False,
        persistent_volume=PV,
    )
    report = reported_by("worker-2", mappings=(replace(reported, **changes),))
    return renamed(in_ceph={"images": images or (NEW_VIEW,)}, in_kube={"published": (report,)})


@pytest.mark.parametrize(
    "changes",
    [{}, {"spec": RENAMED}, {"persistent_volume": None}],
    ids=["by both", "by the PV alone", "by the name alone"],
)
def test_reported_device_of_the_pv_with_another_id_is_a_holder(changes: dict[str, Any]) -> None:
    snapshot = from_elsewhere(**changes)
    diagnosis = diagnosis_of(snapshot)
    assert [holder.holder.node for holder in diagnosis.holders] == ["worker-2"]
    assert diagnosis.verdict is Verdict.IN_USE
    finding = found(snapshot, "RBD123")
    assert "/dev/rbd0 on worker-2" in finding.message
    assert finding.commands[0].argv[:2] == ("ssh", "worker-2")


def test_reported_device_is_named_as_ceph_names_it() -> None:
    theirs = replace(FORMER_VIEW, watchers=(remote_watcher(),))
    snapshot = from_elsewhere(NEW_VIEW, theirs)
    finding = found(snapshot, "RBD123")
    assert f"image {RENAMED} (id {FORMER_ID})" in finding.message
    (holder,) = diagnosis_of(snapshot).holders
    assert (holder.verdict, holder.holder.watcher) == (Verdict.IN_USE, remote_watcher())


def test_mapped_image_that_was_deleted_is_gone_by_its_name_and_by_its_id() -> None:
    by_id = image_view(presence=ImagePresence.GONE, watchers=(), metadata=())
    snapshot = world(
        in_ceph={"images": (replace(by_id, image_id=None), by_id)},
        mapped={"read_only": True, "mounts": ()},
    )
    assert correlate(snapshot).image_view == by_id
    assert "RBD301" in {finding.code for finding in diagnosis_of(snapshot).findings}


def test_finding_of_both_nodes_begins_alike_and_is_shown_once() -> None:
    message = f"/dev/rbd0 on worker-2 serves {PV} and is image {RENAMED} (id {FORMER_ID})."
    there = PublishedFinding(code="RBD123", severity="critical", message=message)
    theirs = replace(FORMER_VIEW, watchers=(remote_watcher(),))
    for images in ((NEW_VIEW, theirs), (NEW_VIEW,)):
        snapshot = from_elsewhere(*images, finding=there)
        (finding,) = (one for one in diagnosis_of(snapshot).findings if one.code == "RBD123")
        assert finding.message.startswith("/dev/rbd0 on worker-2 serves")
        assert "which is another image now" in finding.message


def test_reported_device_whose_watch_is_gone_is_not_in_use_for_certain() -> None:
    snapshot = from_elsewhere(NEW_VIEW, replace(FORMER_VIEW, watchers=()))
    assert verdict_on(snapshot) is Verdict.UNDETERMINED


def test_client_that_maps_both_images_is_two_holders() -> None:
    """All mappings of a node have one client: its watch of one image is not that of the other."""
    both = replace(NEW_VIEW, watchers=(remote_watcher(),))
    found_holders = correlate(from_elsewhere(both)).holders
    assert [holder.other_image is None for holder in found_holders] == [True, False]


def test_reported_client_of_the_renamed_image_is_one_holder() -> None:
    theirs = replace(FORMER_VIEW, watchers=(watcher(), remote_watcher()))
    elsewhere = from_elsewhere(NEW_VIEW, theirs)
    assert elsewhere.node is not None
    here = replace(elsewhere, node=replace(elsewhere.node, mappings=(device(),)))
    assert [holder.node for holder in correlate(here).holders] == ["worker-1", "worker-2"]


def test_writer_here_and_reported_writer_of_the_renamed_image_conflict() -> None:
    theirs = replace(FORMER_VIEW, watchers=(watcher(), remote_watcher()))
    elsewhere = from_elsewhere(NEW_VIEW, theirs)
    assert elsewhere.node is not None
    here = replace(elsewhere, node=replace(elsewhere.node, mappings=(device(mount()),)))
    assert verdict_on(here) is Verdict.CONFLICT


def test_report_of_another_image_and_pv_does_not_count() -> None:
    assert verdict_on(from_elsewhere(spec=RENAMED, persistent_volume="other")) is Verdict.FREE


# --------------------------------------------------------------------------------------------------
# The agent, and the unmap
# --------------------------------------------------------------------------------------------------


def test_agent_reports_each_device_with_its_own_image() -> None:
    second = mapping(device="/dev/rbd1", device_id=1)
    snapshot = renamed(device(mount(path=POD_PATH)), second, target=NODE_TARGET)
    diagnoses = [diagnose(use, snapshot) for use in correlate_node(snapshot)]
    statuses = mapping_statuses(diagnoses, snapshot, None)
    ids = {status["device"]: status["image"]["id"] for status in statuses}
    assert ids == {"/dev/rbd0": FORMER_ID, "/dev/rbd1": IMAGE_ID}
    assert [status["persistentVolume"] for status in statuses] == [PV, PV]
    (former,) = (status for status in statuses if status["device"] == "/dev/rbd0")
    assert "RBD123" in former["findings"]


def test_agent_knows_the_pv_by_the_path_of_a_device() -> None:
    snapshot = renamed(device(mount(), spec=RENAMED), target=NODE_TARGET)
    (use,) = correlate_node(snapshot)
    assert use.persistent_volume == volume()


def test_device_at_the_staging_path_is_not_unmapped_while_a_pod_needs_the_pv() -> None:
    staged = {"image_id": FORMER_ID, "spec": RENAMED, "mounts": (mount(),)}
    images = {"images": (FORMER_VIEW,)}
    unused = seen(mapped=staged, in_ceph=images)
    known = history(of=identity(image_id=FORMER_ID, spec=RENAMED))
    plan = planned(unused, remembered=known, policy=LADDER)
    assert isinstance(plan, UnmapPlan), plan
    assert [step.kind for step in plan.steps] == [StepKind.UMOUNT, StepKind.UNMAP]
    needed = seen(mapped=staged, in_ceph=images, in_kube={"pods": (waiting_pod(node="worker-1"),)})
    refused = planned(needed, remembered=known, policy=LADDER)
    assert isinstance(refused, UnmapRefusal)
    assert "RBD505" in refused.reasons


def test_pv_whose_name_leads_to_another_image_does_not_unmap_the_former_one() -> None:
    snapshot = seen(
        mapped={"image_id": FORMER_ID},
        in_ceph={"images": (NEW_VIEW, FORMER_VIEW)},
        target=target(),
    )
    plan = planned(snapshot, remembered=history(of=identity(image_id=FORMER_ID)))
    assert isinstance(plan, UnmapRefusal)
    assert "name /dev/rbd0" in plan.reasons["RBD501"]


# --------------------------------------------------------------------------------------------------
# The question to Ceph, and the paths
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot", "ids"),
    [
        (renamed(device(), former=False), {FORMER_ID}),
        (renamed(device(mount(), spec=RENAMED), former=False), {FORMER_ID}),
        (from_elsewhere(), {FORMER_ID}),
        (renamed(device()), set()),
        (world(), set()),
        (renamed(device(mount(path="/mnt"), spec=RENAMED), former=False), set()),
        (replace(renamed(device(), former=False), kubernetes=None), set()),
    ],
    ids=["by name", "by path", "reported", "asked before", "equal ids", "another", "no API"],
)
def test_ceph_is_asked_for_images_of_other_ids(snapshot: Snapshot, ids: set[str]) -> None:
    assert {image.image_id for image in images_to_identify(snapshot)} == ids


class CephWorker:
    """Answers each question with the renamed image."""

    def __init__(self) -> None:
        self.asked: list[tuple[ImageIdentity, ...]] = []

    def answer(self, question: Any, _deadline: float, **_: Any) -> Any:  # noqa: ANN401 - as asked
        self.asked.append(question[0])
        return CephView(clusters=(cluster(images=(FORMER_VIEW,)),)), OBSERVED


def identified(snapshot: Snapshot) -> tuple[Snapshot, list[tuple[ImageIdentity, ...]]]:
    """Return the snapshot after a second question to Ceph, and the questions."""
    worker: Any = CephWorker()
    return _with_identified(snapshot, snapshot, worker, math.inf), worker.asked


def test_second_answer_of_ceph_names_the_renamed_image() -> None:
    snapshot, (images,) = identified(renamed(device(mount(path=POD_PATH)), former=False))
    assert [image.image_id for image in images] == [FORMER_ID]
    assert f"image {RENAMED} (id {FORMER_ID})" in found(snapshot, "RBD123").message


def test_ceph_is_not_asked_again_if_the_ids_are_equal() -> None:
    assert identified(world()) == (world(), [])


HASH: Final = "8531d777b0e1a99819838f7fe3c30aebe2e39c9f5a9798ff5cc9021d3e02e587"
VOLUME_PATHS: Final = {
    POD_PATH: (PV, None, None),
    f"{ROOT}/pods/{POD_UID}/volumes/kubernetes.io~rbd/{PV}": (PV, None, None),
    f"{ROOT}/pods/{POD_UID}/volumeDevices/kubernetes.io~csi/{PV}": (PV, None, None),
    f"{BLOCK}/staging/{PV}/{HANDLE}": (PV, None, None),
    f"{BLOCK}/publish/{PV}/{POD_UID}": (PV, None, None),
    f"{BLOCK}/{PV}/dev/{POD_UID}": (PV, None, None),
    f"{ROOT}/plugins/kubernetes.io/csi/pv/{PV}/globalmount": (PV, None, None),
    STAGING_PATH: (None, HASH, (DRIVER, HANDLE)),
    STAGING_PATH.removesuffix(f"/{HANDLE}"): (None, HASH, None),
    "/data/k0s" + STAGING_PATH: (None, HASH, (DRIVER, HANDLE)),
    f"{POD_PATH}/subdirectory": None,
    f"{ROOT}/pods/{POD_UID}/volumes/kubernetes.io~nfs/{PV}": None,
    f"{ROOT}/pods/{POD_UID}/volume-subpaths/{PV}/app/0": None,
    f"{ROOT}/plugins/kubernetes.io/csi/{DRIVER}/short/globalmount/{HANDLE}": None,
    "/": None,
}


@pytest.mark.parametrize(("path", "names"), VOLUME_PATHS.items())
def test_path_names_its_volume(path: str, names: tuple[object, ...] | None) -> None:
    assert volume_of_path(path) == names


# --------------------------------------------------------------------------------------------------
# A PV that was deleted by force
# --------------------------------------------------------------------------------------------------

WITHOUT_PV: Final = {"persistent_volumes": (), "claims": ()}
BY_HANDLE: Final = target(argument=HANDLE, kind=TargetKind.VOLUME_HANDLE, name=HANDLE)
LEFT: Final = {"staging": (staging(path_present=True),), "pod_volumes": (pod_directory(),)}


@pytest.mark.parametrize("asked", [target(), BY_HANDLE, BY_IMAGE], ids=["PV", "handle", "image"])
@pytest.mark.parametrize("spec", [SPEC, RENAMED], ids=["same name", "renamed"])
def test_device_of_a_deleted_pv_holds_the_volume(asked: Target, spec: ImageSpec) -> None:
    """Kubelet's directories name the PV and the handle, which no object of the API has."""
    used = device(mount(), mount(path=POD_PATH), mount(path="/d", namespace=container()), spec=spec)
    seen = renamed(used, of_kubelet=LEFT, in_kube=WITHOUT_PV, target=asked)
    diagnosis = diagnosis_of(seen)
    assert diagnosis.verdict is Verdict.IN_USE
    (judged,) = diagnosis.holders
    assert judged.holder.mapping == used


@pytest.mark.parametrize("asked", [target(), BY_HANDLE, BY_IMAGE], ids=["PV", "handle", "image"])
def test_directories_of_a_deleted_pv_prevent_free(asked: Target) -> None:
    seen = unmapped(of_kubelet=LEFT, in_kube=WITHOUT_PV, target=asked)
    assert diagnosis_of(seen).verdict is Verdict.UNDETERMINED


def test_attachment_to_a_node_with_traces_of_the_volume_is_not_stale() -> None:
    seen = unmapped(of_kubelet=LEFT, in_kube={"attachments": (attachment(),)})
    assert diagnosis_of(seen).verdict is Verdict.UNDETERMINED
    without = unmapped(in_kube={"attachments": (attachment(),)})
    assert diagnosis_of(without).verdict is Verdict.STALE_ATTACHMENT
