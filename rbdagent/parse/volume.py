"""From a PersistentVolume to the image behind it."""

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
from rbdagent.parse.handle import parse_migrated_handle, parse_volume_handle

DRIVER_SUFFIX: Final = "rbd.csi.ceph.com"
"""ceph-csi's driver; Rook puts its namespace before it."""

NVMEOF_SUFFIX: Final = "nvmeof.csi.ceph.com"
"""ceph-csi's driver of volumes that an NVMe-oF gateway serves from RBD images (ceph-csi#6163)."""

_DEFAULT_PREFIX: Final = "csi-vol-"


def is_rbd_driver(driver: str, attributes: dict[str, str]) -> bool:
    """Tell ceph-csi's RBD driver by its name, or under another name by what it alone writes."""
    if driver.endswith(NVMEOF_SUFFIX):
        return False
    return driver.endswith(DRIVER_SUFFIX) or (
        "imageFeatures" in attributes and {"clusterID", "pool"} <= attributes.keys()
    )


def image_of(volume: PersistentVolume) -> ImageIdentity | NotObserved | None:
    """Give the image that a PV stands for; None where it is not RBD."""
    return image_of_source(volume.source)


def image_of_source(source: VolumeSource) -> ImageIdentity | NotObserved | None:
    """Give the image of a volume source: ceph-csi dynamic, static, migrated, Rook, in-tree."""
    match source:
        case OtherSource():
            return None
        case InTreeRbdSource():
            return ImageIdentity(spec=source.spec, fsid=None)
        case CsiSource():
            return _csi_image(source)


def _csi_image(source: CsiSource) -> ImageIdentity | NotObserved:
    pool = source.attribute("pool") or ""
    namespace = source.attribute("radosNamespace") or ""
    name, pool_id = source.attribute("imageName"), None
    try:
        handle = parse_volume_handle(source.volume_handle)
    except ParseError as error:
        if source.volume_handle.startswith("mig_"):
            return _migrated_image(source, error)
        if source.attribute("staticVolume") == "true":
            name = name or source.volume_handle
        if not name:
            return NotObserved(
                reason=f"the image's name: volumeAttributes have no imageName, and {error}",
                cure='a static volume needs staticVolume: "true" in its volumeAttributes',
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


def _migrated_image(source: CsiSource, error: ParseError) -> ImageIdentity | NotObserved:
    try:
        handle = parse_migrated_handle(source.volume_handle)
    except ParseError:
        return NotObserved(reason=f"the image's name: {error}")
    name = source.attribute("imageName") or handle.image
    return ImageIdentity(spec=ImageSpec(pool=handle.pool, name=name), fsid=None)
