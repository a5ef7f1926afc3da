"""The RBD image of a PersistentVolume."""

from __future__ import annotations

from typing import Final

from rbdagent.errors import ParseError
from rbdagent.model import (
    CsiSource,
    ImageIdentity,
    ImageSpec,
    InTreeRbdSource,
    NotObserved,
    OtherSource,
    PersistentVolume,
    VolumeSource,
)
from rbdagent.parse.handle import composed_handle, parse_migrated_handle, parse_volume_handle

DRIVER_SUFFIX: Final = "rbd.csi.ceph.com"
"""The RBD driver of ceph-csi; Rook prefixes its namespace."""

NVMEOF_SUFFIX: Final = "nvmeof.csi.ceph.com"
"""The ceph-csi driver for RBD images that an NVMe-oF gateway serves (ceph-csi#6163)."""

_DEFAULT_PREFIX: Final = "csi-vol-"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""What ceph-csi takes for true: it parses attributes with strconv.ParseBool of Go."""


def is_rbd_driver(driver: str, attributes: dict[str, str]) -> bool:
    """Return whether a driver is ceph-csi's RBD driver.

    Under another name, the driver is recognised by the volume attributes that only ceph-csi writes.
    """
    if driver.endswith(NVMEOF_SUFFIX):
        return False
    return driver.endswith(DRIVER_SUFFIX) or (
        "imageFeatures" in attributes and {"clusterID", "pool"} <= attributes.keys()
    )


def image_of(volume: PersistentVolume) -> ImageIdentity | NotObserved | None:
    """Return the image of a PV; None if the PV is not RBD."""
    return image_of_source(volume.source)


def image_of_source(source: VolumeSource) -> ImageIdentity | NotObserved | None:
    """Return the image of a volume source: ceph-csi dynamic, static, migrated, Rook, in-tree."""
    match source:
        case OtherSource():
            return None
        case InTreeRbdSource():
            return ImageIdentity(spec=source.spec, fsid=None)
        case CsiSource():
            return _csi_image(source)


def is_made_by_hand(volume: PersistentVolume) -> bool:
    """Return whether ceph-csi has not made the image: it then neither grows nor clones it.

    These calls get the handle alone, and read the cluster, the pool and the uuid from it
    (GenVolFromVolID in internal/rbd/rbd_util.go@52fcb7b).
    """
    source = volume.source
    if not isinstance(source, CsiSource) or source.volume_handle.startswith("mig_"):
        return False
    return is_static(source) or composed_handle(source.volume_handle) is None


def _csi_image(source: CsiSource) -> ImageIdentity | NotObserved:
    pool = source.attribute("pool") or ""
    namespace = source.attribute("radosNamespace") or ""
    name, pool_id = source.attribute("imageName"), None
    if is_static(source):
        # ceph-csi takes the handle for the image's name, whatever its form and whatever else the
        # PV names (populateRbdVol in internal/rbd/nodeserver.go@52fcb7b).
        return _static_image(source, pool, namespace)
    try:
        handle = parse_volume_handle(source.volume_handle)
    except ParseError as error:
        if source.volume_handle.startswith("mig_"):
            return _migrated_image(source, error)
        if not name:
            return NotObserved(
                reason=f"the image's name: volumeAttributes have no imageName, and {error}",
                hint='a static volume needs staticVolume: "true" in its volumeAttributes',
            )
    else:
        pool_id = handle.pool_id
        name = name or (source.attribute("volumeNamePrefix") or _DEFAULT_PREFIX) + handle.uuid
    if not pool and pool_id is None:
        return NotObserved(
            reason=f"the pool of image {name}: volumeAttributes have none, nor has the handle"
        )
    return ImageIdentity(
        spec=ImageSpec(pool=pool, namespace=namespace, name=name), fsid=None, pool_id=pool_id
    )


def is_static(source: CsiSource) -> bool:
    """Return whether a PV has staticVolume; one that was migrated from in-tree has it, too."""
    is_migrated = source.volume_handle.startswith("mig_") or source.attribute("migration") == "true"
    return is_true(source.attribute("staticVolume")) and not is_migrated


def is_true(value: str | None) -> bool:
    """Return whether ceph-csi takes a volume attribute for true."""
    return value in _TRUE


def _static_image(source: CsiSource, pool: str, namespace: str) -> ImageIdentity | NotObserved:
    name = source.volume_handle
    if not pool:
        return NotObserved(reason=f"the pool of image {name}: volumeAttributes have none")
    # ceph-csi reads the namespace of a static volume from its configuration alone, whatever the
    # volumeAttributes name (genVolFromVolumeOptions in internal/rbd/rbd_util.go, and
    # GetRBDRadosNamespace in internal/util/csiconfig.go@52fcb7b).
    return ImageIdentity(
        spec=ImageSpec(pool=pool, namespace=namespace, name=name),
        fsid=None,
        namespace_by=source.attribute("clusterID") or "",
    )


def _migrated_image(source: CsiSource, error: ParseError) -> ImageIdentity | NotObserved:
    try:
        handle = parse_migrated_handle(source.volume_handle)
    except ParseError:
        return NotObserved(reason=f"the image's name: {error}")
    name = source.attribute("imageName") or handle.image
    return ImageIdentity(spec=ImageSpec(pool=handle.pool, name=name), fsid=None)
