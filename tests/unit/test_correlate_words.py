"""The names of a volume in logs: which lines name it, and which name another volume."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.correlate.log_names import LogNames, Naming, log_names_in
from rbdagent.model import ImageSpec, StagingDirectory, TargetKind
from rbdagent.parse.handle import staging_hash
from tests.support.snapshots import (
    HANDLE,
    PV,
    SPEC,
    event,
    in_flight,
    luks,
    mapping,
    node_view,
    staging,
    target,
    unmapped,
    waiting_pod,
    world,
)

EVERYTHING = target(argument="", kind=TargetKind.NONE, name="")
OTHER = "0001-000a-lab-ceph-1-0000000000000001-f479515b-16b0-451a-a6c5-f4ab2a7b14aa"


# Names of a volume --------------------------------------------------------------------------------


def test_volume_has_its_kubernetes_names_and_staging_directory() -> None:
    (names,) = log_names_in(world())
    assert names.volume == {PV, HANDLE, str(SPEC), staging_hash(HANDLE)}


def test_volume_has_its_names_on_the_node_without_the_api() -> None:
    by_image = target(argument=str(SPEC), kind=TargetKind.IMAGE, name="", image=SPEC)
    (names,) = log_names_in(world(kubernetes=None, target=by_image))
    assert names.volume == {HANDLE, str(SPEC), staging_hash(HANDLE)}


def test_name_given_by_the_user_is_searched_even_if_unknown() -> None:
    by_handle = target(argument=f"handle/{OTHER}", kind=TargetKind.VOLUME_HANDLE, name=OTHER)
    (names,) = log_names_in(unmapped(kubernetes=None, target=by_handle))
    assert {OTHER, staging_hash(OTHER)} <= names.volume
    (names,) = log_names_in(unmapped(kubernetes=None))
    assert PV in names.volume


def test_kernel_names_are_devices_client_and_processes() -> None:
    flight = in_flight("umount", f"umount /var/lib/{HANDLE}")
    (names,) = log_names_in(world(mapped={"holders": (luks(),)}, on_node={"in_flight": (flight,)}))
    assert names.kernel == {"rbd0", "dm-0", "client4393", "umount:9000"}


NO_KEY = event(
    f"MountVolume.MountDevice failed for volume \"{PV}\" : rbd: failed to add secret 'client.csi' "
    "to kernel\nrbd: map failed: (22) Invalid argument",
    reason="FailedMount",
)


def test_line_of_a_refused_key_belongs_to_volumes_with_its_event() -> None:
    refused = log_names_in(unmapped(in_kube={"pods": (waiting_pod(),), "events": (NO_KEY,)}))
    others = log_names_in(unmapped(in_kube={"pods": (waiting_pod(),)}))
    said = "libceph: secret too big 32"
    assert set(Naming.of((*others, *refused)).in_kernel(said)) == {1}
    assert Naming.of(refused).in_kernel(f"EXT4-fs error: {said}") == {}


def test_each_volume_has_its_own_names_without_a_target() -> None:
    neighbour = mapping(
        device="/dev/rbd1", spec=ImageSpec(pool="k8s", name="csi-vol-other"), image_id="2222"
    )
    left = StagingDirectory(path=f"/x/{OTHER}", driver="rbd.csi.ceph.com", volume_handle=OTHER)
    seen = world(
        target=EVERYTHING,
        on_node={"mappings": (mapping(), neighbour)},
        of_kubelet={"staging": (staging(), left)},
    )
    found = log_names_in(world(target=EVERYTHING, node=seen.node))
    assert [sorted(names.kernel) for names in found] == [
        ["client4393", "rbd0"],
        ["client4393", "rbd1"],
        [],
    ]
    assert found[2].volume == {OTHER, staging_hash(OTHER)}


def test_target_without_a_volume_has_no_names() -> None:
    claim = target(argument="pvc/new", kind=TargetKind.CLAIM, namespace="default", name="new")
    assert log_names_in(unmapped(target=claim, node=node_view(mappings=()))) == ()


# Which lines name it ------------------------------------------------------------------------------

NAMING = Naming.of(
    (
        LogNames(
            volume=frozenset({PV, HANDLE, str(SPEC), staging_hash(HANDLE)}),
            kernel=frozenset({"rbd0", "dm-0", "umount:1331"}),
        ),
        LogNames(volume=frozenset({"data", "static-handle", "rbd/data"})),
    )
)


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        (f'UnmountDevice failed for volume "{PV}" (UniqueName: "x")', 0),
        (f"ID: 113 Req-ID: {HANDLE} GRPC error", 0),
        (f"/globalmount/{HANDLE}: target is busy.", 0),
        (f"kubernetes.io/csi/rbd.csi.ceph.com^{HANDLE} podName", 0),
        (f"[unmap {SPEC} --device-type krbd]", 0),
        (f"/rbd.csi.ceph.com/{staging_hash(HANDLE)}/globalmount", 0),
        ('MountVolume.MountDevice failed for volume "data" : rpc error', 1),
        ('operationExecutor.UnmountDevice started for volume \\"data\\"', 1),
        ("attacher.GetDeviceMountPath for volume(data)", 1),
        ("ID: 1 Req-ID: static-handle GRPC call", 1),
        ('calling NodeUnstageVolume rpc" volID="static-handle"', 1),
        ("an operation with the given Volume ID static-handle already exists", 1),
        ("/pods/uid/volumes/kubernetes.io~csi/data/mount is not mounted", 1),
        ("error mapping rbd/data: exit status 2", 1),
        ("rbd image rbd/data is still being used.", 1),
    ],
)
def test_line_with_a_name_of_a_volume_names_that_volume(text: str, volume: int) -> None:
    assert set(NAMING.in_log(text)) == {volume}


@pytest.mark.parametrize(
    "text",
    [
        f"volume {OTHER}",
        f"{PV}0 and x{PV}",
        f"{HANDLE}-clone",
        f"{SPEC}-temp",
        "loading volume data file [/var/lib/kubelet/x]",
        "no data",
        "/mnt/rbd/data/file",
        "pool rbd/data2",
        "rbd/data.bak",
        'volume "data-2"',
        "static-handle alone",
    ],
)
def test_line_of_another_volume_does_not_name_it(text: str) -> None:
    assert NAMING.in_log(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        "EXT4-fs (rbd0): Remounting filesystem read-only",
        "rbd: rbd0: encountered watch error: -107",
        "Aborting journal on device rbd0-8.",
        "I/O error, dev rbd0p1, sector 2",
        "XFS (dm-0): log I/O error -5",
        "INFO: task jbd2/rbd0-8:1195 blocked for more than 120 seconds.",
        "INFO: task umount:1331 blocked for more than 120 seconds.",
    ],
)
def test_kernel_line_names_a_device_or_a_task(text: str) -> None:
    assert set(NAMING.in_kernel(text)) == {0}


@pytest.mark.parametrize(
    "text", ["rbd: rbd01: x", "rbd: rbd10: x", "XFS (dm-01): x", "task umount:13310 blocked", ""]
)
def test_other_devices_and_tasks_do_not_match(text: str) -> None:
    assert NAMING.in_kernel(text) == {}


NAMES = st.sets(st.text("ab-._/1", min_size=1, max_size=8), max_size=3)


@given(st.text(st.sampled_from("ab-._/1 "), max_size=40), NAMES)
def test_any_name_can_be_searched_in_any_line(text: str, names: set[str]) -> None:
    found = Naming.of((LogNames(volume=frozenset(names), kernel=frozenset(names)),))
    assert set().union(*found.in_log(text).values()) <= {name for name in names if name in text}
    assert set().union(*found.in_kernel(text).values()) <= {name for name in names if name in text}
