"""The names of one volume in Kubernetes, and how other objects derive their names from them."""

from __future__ import annotations

from msgspec import Struct

from rbdagent.correlate.image_identity import volume_image
from rbdagent.model import (
    CsiSource,
    ImageIdentity,
    InTreeRbdSource,
    ObjectRef,
    PersistentVolume,
    VolumeSource,
)
from rbdagent.parse.handle import attachment_name, in_use_name, migrated_handle, staging_hash
from rbdagent.parse.volume import DRIVER_SUFFIX


class VolumeNames(Struct, frozen=True, kw_only=True):
    """The names of one volume; ``volumes[0]`` is the PV that the output names."""

    image: ImageIdentity | None
    volumes: tuple[PersistentVolume, ...] = ()
    claims: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of every claim that is bound to a PV of it, or may be bound to one."""
    former_claims: frozenset[tuple[str, str]] = frozenset()
    """Lost claims that name a PV of it that now belongs to another claim: a pod that ran with such
    a claim may still have the volume mounted."""
    monitors: frozenset[str] = frozenset()
    """IP addresses of the monitors of its cluster; empty if they are unknown."""
    handles: frozenset[tuple[str, str]] = frozenset()
    """(driver, volume handle); the driver is empty if only the handle is known."""
    former_volumes: frozenset[str] = frozenset()
    """The names of PVs that the API does not have: of the target, or of kubelet's directories."""
    volumes_seen: bool = True
    """Whether the API returned its PVs, or has none; if not, the owner of the image is unknown."""
    may_be_of: tuple[str, ...] = ()
    """The static PVs that name it if their clusterID leads to its RADOS namespace."""

    @property
    def persistent_volumes(self) -> frozenset[str]:
        """The names of the PVs."""
        return frozenset(volume.name for volume in self.volumes) | self.former_volumes

    @property
    def volume_handles(self) -> frozenset[str]:
        """The handles without their drivers."""
        return frozenset(handle for _, handle in self.handles)

    @property
    def handle_hashes(self) -> frozenset[str]:
        """The names of the staging directories of the handles."""
        return frozenset(staging_hash(handle) for handle in self.volume_handles)

    @property
    def image_names(self) -> frozenset[str]:
        """The names of the images in the PVs."""
        images = (volume_image(volume) for volume in self.volumes)
        return frozenset(image.spec.name for image in images if image is not None)

    @property
    def in_use_names(self) -> frozenset[str]:
        """The names under which ``node.status.volumesInUse`` lists it."""
        found = {in_use_name(driver, handle) for driver, handle in self.handles}
        found |= {
            f"kubernetes.io/rbd/{volume.source.spec.pool}:{volume.source.spec.name}"
            for volume in self.volumes
            if isinstance(volume.source, InTreeRbdSource)
        }
        return frozenset(found)

    @property
    def attached_handles(self) -> frozenset[tuple[str, str]]:
        """(driver, volume handle) under which it may be attached."""
        return self.handles | {
            (DRIVER_SUFFIX, migrated_handle(source.monitors, source.spec.pool, source.spec.name))
            for source in (volume.source for volume in self.volumes)
            if isinstance(source, InTreeRbdSource)
        }

    def attachment_names(self, node: str) -> frozenset[str]:
        """The names that a VolumeAttachment of it to ``node`` may have."""
        return frozenset(
            attachment_name(handle, driver, node) for driver, handle in self.attached_handles
        )


def names_of_pv(volume: PersistentVolume) -> VolumeNames:
    """Return the names that follow from one PV alone."""
    handle = handle_of(volume.source)
    handles = frozenset(() if handle is None else (handle,))
    return VolumeNames(image=None, volumes=(volume,), handles=handles)


def handle_of(source: VolumeSource) -> tuple[str, str] | None:
    """Return driver and volume handle of a CSI source."""
    return (source.driver, source.volume_handle) if isinstance(source, CsiSource) else None


def key_of(ref: ObjectRef) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return (ref.namespace, ref.name)
