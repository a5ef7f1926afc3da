"""Rows of the rules on claims that were enlarged, by code: reported, or not."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.model import (
    ClaimCondition,
    CsiSource,
    DeviceNumber,
    FileSystemSize,
    KubeEvent,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    Snapshot,
    observed_of,
)
from tests.support.rule_tables import NOTHING_ELSE, NotReported, Reported
from tests.support.snapshots import (
    DRIVER,
    NOW,
    PV,
    SPEC,
    STAGING_PATH,
    UNSEEN,
    claim,
    event,
    luks,
    mount,
    pod,
    volume,
    waiting_pod,
    world,
)

NONE: Final = NOTHING_ELSE
SMALL, LARGE, GROWN = 64 << 20, 128 << 20, 1 << 30
MINUTES_AGO: Final = "2026-11-21T02:50:00Z"
A_DAY_AGO: Final = "2026-11-20T03:00:00Z"
EXPANDING: Final = "waiting for an external controller to expand this PVC"
REFUSED: Final = (
    f'resize volume "{PV}" by resizer "{DRIVER}" failed: rpc error: code = Internal desc = no'
)
NODE_FAILED: Final = (
    f'NodeExpandVolume.NodeExpandVolume failed for volume "{PV}" : Expander.NodeExpand failed to '
    "expand the volume : rpc error: code = Internal desc = resize failed on path /x, error: resize "
    "of device /dev/rbd0 failed: exit status 1. resize2fs output: resize2fs 1.47.0\nresize2fs: {}"
)
MADE_BY_HAND: Final = (
    f'resize volume "{PV}" by resizer "{DRIVER}" failed: rpc error: code = Internal desc = invalid '
    "VolumeID: error decoding volume ID (failed to decode CSI identifier, string underflow) "
    "(my-image)"
)
PANICKED: Final = (
    f'resize volume "{PV}" by resizer "{DRIVER}" failed: rpc error: code = Internal desc = panic '
    "runtime error: invalid memory address or nil pointer dereference"
)
CHECKSUM: Final = "Superblock checksum does not match superblock while trying to open /dev/rbd0"
DENIED: Final = "Permission denied to resize filesystem"
UNREADABLE: Final = "Input/output error while trying to open /dev/rbd0"


def on_claim(message: str, **overrides: Any) -> KubeEvent:  # noqa: ANN401 - as the builders
    """Return an event of the claim."""
    subject = ObjectRef(namespace="default", name="data", uid="claim-uid")
    return event(
        message, **{"kind": "PersistentVolumeClaim", "subject": subject, "last_seen": MINUTES_AGO,
                    "first_seen": MINUTES_AGO, **overrides}
    )  # fmt: skip


def on_pod(message: str, **overrides: Any) -> KubeEvent:  # noqa: ANN401 - as the builders
    """Return an event of the pod that runs."""
    subject = ObjectRef(namespace="default", name="web-0", uid=pod().ref.uid)
    fields = {"subject": subject, "reason": "VolumeResizeFailed", "reporter": "kubelet"}
    return event(message, **{**fields, **overrides})


def expanding(**overrides: Any) -> KubeEvent:  # noqa: ANN401 - as the builders
    """Return the event that the API server's controller writes for an enlarged claim."""
    return on_claim(
        EXPANDING, reason="ExternalExpanding", reporter="volume_expand", type="Normal", **overrides
    )


def grown(*events: KubeEvent, asked: int = LARGE, has: int = SMALL, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which a pod runs with a volume whose claim was enlarged."""
    parts = {
        "claims": (claim(requested_bytes=asked),),
        "persistent_volumes": (volume(capacity_bytes=has),),
        "pods": (pod(),),
        "events": events,
        **in_kube,
    }
    return world(mapped={"mounts": (mount(),)}, in_kube=parts)


def resizing(
    changed_at: str,
    *more: ClaimCondition,
    **overrides: Any,  # noqa: ANN401 - as the builders
) -> PersistentVolumeClaim:
    """Return a claim that external-resizer has marked."""
    working = ClaimCondition(type="Resizing", changed_at=changed_at)
    fields = {"requested_bytes": LARGE, "growth_conditions": (working, *more)}
    return claim(growth="ControllerResizeInProgress", **fields, **overrides)


def static(handle: str = SPEC.name, **attributes: str) -> PersistentVolume:
    """Return a PV that was made by hand, for the image of the other builders."""
    known = {"clusterID": "lab-ceph-1", "pool": SPEC.pool, **attributes}
    source = CsiSource(driver=DRIVER, volume_handle=handle, attributes=tuple(known.items()))
    return volume(source=source, provisioner=None, capacity_bytes=SMALL, reclaim_policy="Retain")


def static_volume(text: str = PANICKED, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as above
    """Build a snapshot in which ceph-csi does not grow a PV that was made by hand."""
    failed = on_claim(text, reason="VolumeResizeFailed", reporter=f"external-resizer {DRIVER}")
    made = {"persistent_volumes": (static(staticVolume="true"),), **in_kube}
    return grown(expanding(), failed, **made)


def refused(changed_at: str) -> ClaimCondition:
    message = "failed to expand pvc with rpc error: code = Internal desc = no"
    return ClaimCondition(type="ControllerResizeError", changed_at=changed_at, message=message)


def resized(size: int | None, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as above
    """Build a snapshot in which the image has a size, and PV and claim are equal."""
    parts = {
        "claims": (claim(requested_bytes=LARGE, capacity_bytes=LARGE),),
        "persistent_volumes": (volume(capacity_bytes=LARGE),),
        "pods": (pod(),),
        **in_kube,
    }
    mapped = {"mounts": (mount(),), "size_bytes": size}
    return world(mapped=mapped, of_image={"size_bytes": size}, in_kube=parts)


def node_fails(text: str, *more: KubeEvent) -> Snapshot:
    """Build a snapshot in which the PV has grown, and the tool on the node prints a text."""
    return grown(on_pod(NODE_FAILED.format(text)), *more, has=LARGE)


def pending(
    changed_at: str = MINUTES_AGO,
    growth: str = "NodeResizePending",
    **in_kube: Any,  # noqa: ANN401 - as above
) -> Snapshot:
    """Build a snapshot in which the image has grown, and kubelet is to grow the file system."""
    waits = ClaimCondition(type="FileSystemResizePending", changed_at=changed_at)
    grows = claim(
        requested_bytes=LARGE, capacity_bytes=SMALL, growth=growth,
        growth_conditions=(waits,),
    )  # fmt: skip
    return grown(has=LARGE, **{"claims": (grows,), **in_kube})


SMALL_EXT4, LARGE_EXT4 = (56037 << 10, 16384), (117203 << 10, 32768)
"""What statfs(2) reports of an ext4 that fills 64 MiB, and of one that was grown to 128 MiB: its
size and its inodes (recordings 31-grow-claim-done-image-larger-than-device, 31-grow-done)."""


def file_system(
    size: tuple[int, int] = SMALL_EXT4,
    device_bytes: int = LARGE,
    **overrides: Any,  # noqa: ANN401 - as the builders
) -> FileSystemSize:
    """Return the size of the file system that is staged on the mapping of the builders."""
    total, inodes = size
    fields = {
        "path": STAGING_PATH, "fs_type": "ext4", "device": "rbd0", "device_bytes": device_bytes,
        "total_bytes": total, "inodes": inodes,
    }  # fmt: skip
    return FileSystemSize(**{**fields, **overrides})


def settled(
    *,
    image: int | None = LARGE,
    in_kube: dict[str, Any] | None = None,
    in_ceph: dict[str, Any] | None = None,
    **mapped: Any,  # noqa: ANN401 - as the builders
) -> Snapshot:
    """Build a snapshot in which the growth of a claim to 128 MiB is done, with the sizes there."""
    done = claim(requested_bytes=LARGE, capacity_bytes=LARGE, requested_at=MINUTES_AGO)
    parts = {
        "claims": (done,),
        "persistent_volumes": (volume(capacity_bytes=LARGE),),
        "pods": (pod(),),
        **(in_kube or {}),
    }
    on_node = {"mounts": (mount(),), "size_bytes": LARGE, "watch": True, **mapped}
    return world(mapped=on_node, of_image={"size_bytes": image, **(in_ceph or {})}, in_kube=parts)


def on_luks(size: int) -> dict[str, Any]:
    """Return the fields of a mapping with a LUKS device."""
    device = DeviceNumber(major=253, minor=0)
    return {
        "holders": (luks(device=device, size_bytes=size),),
        "mounts": (mount(device=device, source="/dev/mapper/luks-rbd"),),
    }


LUKS_HEADER: Final = 16 << 20


def pending_on_node(size: tuple[int, int] = LARGE_EXT4, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which the status of a claim is behind, with the size on the node."""
    return with_file_system(pending(**in_kube), file_system(size))


def with_file_system(seen: Snapshot, found: FileSystemSize) -> Snapshot:
    """Return a snapshot with the size of the file system of its mapping."""
    assert seen.node is not None
    mapped = tuple(replace(one, file_system=found) for one in observed_of(seen.node.mappings))
    return replace(seen, node=replace(seen.node, mappings=mapped))


REPORTED: Final[Reported] = {
    "RBD775": {
        "nothing followed": (grown(expanding()), NONE),
        "the resizer ended a day ago": (
            grown(claims=(resizing(A_DAY_AGO, requested_at=A_DAY_AGO),)),
            NONE,
        ),
    },
    "RBD776": {
        "by its condition": (grown(claims=(resizing(NOW, refused(NOW)),)), NONE),
        "the driver refuses": (
            grown(
                expanding(),
                on_claim(
                    REFUSED, reason="VolumeResizeFailed", reporter=f"external-resizer {DRIVER}"
                ),
            ),
            NONE,
        ),
        "a static PV": (static_volume(MADE_BY_HAND), NONE),
        "a static PV, and no resizer": (
            grown(expanding(), persistent_volumes=(static(staticVolume="true"),)),
            NONE,
        ),
    },
    "RBD777": {
        "checksum": (node_fails(CHECKSUM), NONE),
        "an error on the file system": (node_fails(DENIED), NONE),
        "the device cannot be read": (node_fails(UNREADABLE), NONE),
        "an unknown error": (node_fails("out of luck"), NONE),
    },
    "RBD778": {
        "no pod": (pending(pods=()), {"RBD110"}),
        "a pod that only reads": (pending(pods=(pod(read_only_claims=("data",)),)), NONE),
        "kubelet does not act": (pending(), NONE),
    },
    "RBD779": {"enlarged by hand": (resized(GROWN), NONE)},
    "RBD780": {
        "the claim is done": (settled(file_system=file_system()), NONE),
        "an XFS": (
            settled(
                mounts=(mount(fs_type="xfs"),),
                file_system=file_system((40 << 20, 1 << 20), fs_type="xfs"),
            ),
            NONE,
        ),
        "the size of the image was not observed": (
            settled(image=None, file_system=file_system()),
            NONE,
        ),
        "on a LUKS device": (
            settled(
                **on_luks(LARGE - LUKS_HEADER),
                file_system=file_system(device="dm-0", device_bytes=LARGE - LUKS_HEADER),
            ),
            NONE,
        ),
        "a static PV": (
            settled(
                in_kube={"persistent_volumes": (volume(capacity_bytes=LARGE, provisioner=None),)},
                file_system=file_system(),
            ),
            NONE,
        ),
    },
    "RBD781": {
        "its watch was lost": (
            settled(
                in_ceph={"watchers": ()},
                size_bytes=SMALL,
                watch=False,
                file_system=file_system(device_bytes=SMALL),
            ),
            {"RBD105"},
        ),
        "a raw block volume": (
            settled(
                size_bytes=SMALL,
                in_kube={
                    "claims": (
                        claim(requested_bytes=LARGE, capacity_bytes=LARGE, volume_mode="Block"),
                    )
                },
            ),
            NONE,
        ),
        "a LUKS device": (settled(**on_luks(SMALL - LUKS_HEADER)), NONE),
    },
    "RBD782": {
        "a pod that only reads": (
            pending_on_node(pods=(pod(read_only_claims=("data",)),)),
            NONE,
        ),
        "kubelet does not act": (pending_on_node(), NONE),
    },
}
NOT_REPORTED: Final[NotReported] = {
    "RBD775": {
        "the resizer retries": grown(expanding(), claims=(resizing(NOW),)),
        "bound to a smaller PV by name": grown(
            claims=(claim(requested_bytes=LARGE, created_at=MINUTES_AGO, requested_at=MINUTES_AGO),)
        ),
        "a moment ago": grown(expanding(first_seen=NOW, last_seen=NOW)),
        "the resizer works": grown(
            expanding(),
            on_claim("External resizer is resizing volume", reason="Resizing",
                     reporter=f"external-resizer {DRIVER}"),
        ),
        "the event has expired": grown(),
        "done": grown(expanding(), has=LARGE),
        "the size was not observed": grown(expanding(), asked=0),
    },
    "RBD776": {
        "its condition is of an earlier growth": grown(
            expanding(first_seen=NOW, last_seen=NOW),
            claims=(resizing(NOW, refused(MINUTES_AGO)),),
        ),
        "a later growth has begun": grown(
            on_claim(REFUSED, reason="VolumeResizeFailed", reporter=f"external-resizer {DRIVER}"),
            expanding(first_seen=NOW, last_seen=NOW),
        ),
        "done": grown(
            on_claim(REFUSED, reason="VolumeResizeFailed", reporter=f"external-resizer {DRIVER}"),
            has=LARGE,
        )
    },
    "RBD777": {
        "kubelet has succeeded since": node_fails(
            CHECKSUM, on_claim("done", reason="FileSystemResizeSuccessful", last_seen=NOW)
        ),
        "a raw block volume": grown(
            on_pod(NODE_FAILED.format(CHECKSUM)),
            has=LARGE,
            claims=(claim(requested_bytes=LARGE, volume_mode="Block"),),
        ),
        "of another volume": grown(
            on_pod(NODE_FAILED.format(CHECKSUM).replace(PV, "pvc-other")), has=LARGE
        ),
        "of the former pod of that name": grown(
            on_pod(
                NODE_FAILED.format(CHECKSUM),
                subject=ObjectRef(namespace="default", name="web-0", uid="former"),
            ),
            has=LARGE,
        ),
        "of another pod": grown(
            on_pod(NODE_FAILED.format(CHECKSUM), subject=ObjectRef(namespace="x", name="y")),
            has=LARGE,
        ),
    },
    "RBD779": {
        "another PV of the image": resized(
            GROWN,
            persistent_volumes=(
                volume(capacity_bytes=LARGE),
                volume(name="pv-copy", uid="copy", capacity_bytes=GROWN, claim=None),
            ),
        ),
        "rounded up": resized(LARGE + (4 << 20)),
        "the size was not observed": resized(None),
        "a static PV": resized(
            GROWN, persistent_volumes=(volume(capacity_bytes=LARGE, provisioner=None),)
        ),
        "a growth is under way": resized(GROWN, claims=(claim(requested_bytes=GROWN),)),
    },
    "RBD778": {
        "kubelet grows it now": pending(growth="NodeResizeInProgress"),
        "its pods were not observed": pending(pods=UNSEEN),
        "its pod ends": pending(pods=(pod(deleting_since=NOW),)),
        "kubelet has two minutes": pending(changed_at=NOW),
        "a pod waits to start": pending(pods=(waiting_pod(),)),
        "done": grown(has=LARGE, claims=(claim(requested_bytes=LARGE, capacity_bytes=LARGE),)),
        "a raw block volume": pending(
            claims=(claim(requested_bytes=LARGE, capacity_bytes=SMALL, volume_mode="Block"),)
        ),
    },
    "RBD780": {
        "the file system fills the device": settled(file_system=file_system(LARGE_EXT4)),
        "a device that is mapped read-only": settled(read_only=True, file_system=file_system()),
        "no pod uses it there": settled(in_kube={"pods": ()}, file_system=file_system()),
        "a small volume": settled(
            in_kube={
                "claims": (claim(requested_bytes=8 << 20, capacity_bytes=8 << 20),),
                "persistent_volumes": (volume(capacity_bytes=8 << 20),),
            },
            image=8 << 20,
            size_bytes=8 << 20,
            file_system=file_system((3746 << 10, 2048), 8 << 20),
        ),
        "an XFS of 300 MiB": settled(
            in_kube={
                "claims": (claim(requested_bytes=300 << 20, capacity_bytes=300 << 20),),
                "persistent_volumes": (volume(capacity_bytes=300 << 20),),
            },
            image=300 << 20,
            size_bytes=300 << 20,
            file_system=file_system((236 << 20, 153600), 300 << 20, fs_type="xfs"),
        ),
        "the header of LUKS": settled(
            **on_luks(LARGE - LUKS_HEADER),
            file_system=file_system(
                (101 << 20, 28672), device="dm-0", device_bytes=LARGE - LUKS_HEADER
            ),
        ),
        "a growth is under way": with_file_system(pending(changed_at=NOW), file_system()),
        "its size was not observed": settled(file_system=UNSEEN),
        "its size was not requested": settled(),
        "a static PV of the former size": settled(
            in_kube={
                "claims": (claim(requested_bytes=SMALL, capacity_bytes=SMALL),),
                "persistent_volumes": (volume(capacity_bytes=SMALL, provisioner=None),),
            },
            file_system=file_system(),
        ),
        "enlarged past Kubernetes": with_file_system(
            resized(GROWN), file_system(LARGE_EXT4, GROWN)
        ),
        "the other side of a mirror": settled(
            in_ceph={"mirrored": True, "primary": False}, file_system=file_system()
        ),
    },
    "RBD781": {
        "the device follows the image": settled(file_system=file_system(LARGE_EXT4)),
        "the header of LUKS": settled(**on_luks(LARGE - LUKS_HEADER)),
        "LUKS that was made by hand": settled(
            holders=(luks(label="backup", size_bytes=SMALL),), mounts=(mount(),)
        ),
        "a moment ago": settled(
            size_bytes=SMALL,
            in_kube={
                "claims": (claim(requested_bytes=LARGE, capacity_bytes=LARGE, requested_at=NOW),)
            },
        ),
        "a growth is under way": pending(changed_at=NOW),
        "the image is being enlarged now": settled(image=GROWN),
        "a snapshot is mapped": settled(size_bytes=SMALL, snapshot="backup"),
        "the size of the image was not observed": settled(image=None, size_bytes=SMALL),
    },
    "RBD782": {
        "the file system was not grown": pending_on_node(
            SMALL_EXT4, pods=(pod(read_only_claims=("data",)),)
        ),
        "its size was not observed": pending(pods=(pod(read_only_claims=("data",)),)),
        "kubelet has two minutes": pending_on_node(changed_at=NOW),
    },
}  # fmt: skip
