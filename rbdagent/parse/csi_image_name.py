"""The names that ceph-csi and the in-tree provisioner give images."""

from __future__ import annotations

import re
from typing import Final

_UUID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")
_CEPH_CSI: Final = re.compile(rf"csi-(?:vol|snap)-{_UUID.pattern}(?:-temp)?")
"""The default prefixes; volumeNamePrefix and snapshotNamePrefix of a class change them."""
_IN_TREE: Final = re.compile(rf"kubernetes-dynamic-pvc-{_UUID.pattern}")
_TEMPORARY: Final = "-temp"
"""``generateTempClone`` in internal/rbd/clone.go of ceph-csi: the name of the clone, and this."""
_LONGEST: Final = 1024
"""Characters of a name that are searched. librbd has no limit; RADOS allows 2,048 bytes."""


def uuids_in(name: str) -> tuple[str, ...]:
    """Return the uuids in the name of an image, in their order; a volume handle ends in one."""
    return tuple(_UUID.findall(name[:_LONGEST]))


def journal_uuid(name: str) -> str | None:
    """Return the uuid that a name ends in, by which ceph-csi's journal has the image; else None."""
    found = uuids_in(name.removesuffix(_TEMPORARY))
    return found[-1] if found and name.removesuffix(_TEMPORARY).endswith(found[-1]) else None


def has_name_of_ceph_csi(name: str) -> bool:
    """Return whether an image has a name that ceph-csi gives by default."""
    return _CEPH_CSI.fullmatch(name) is not None


def has_name_of_in_tree(name: str) -> bool:
    """Return whether an image has a name that the provisioner in kube-controller-manager gave."""
    return _IN_TREE.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Return whether an image has the name of the temporary image between a volume and its clone.

    ceph-csi keeps it as long as the clone depends on it (docs/design/proposals/rbd-snap-clone.md).
    """
    return name.endswith(_TEMPORARY) and journal_uuid(name) is not None


def is_of_snapshot(name: str) -> bool:
    """Return whether an image has the name of a VolumeSnapshot's image, with the default prefix."""
    return name.startswith("csi-snap-") and has_name_of_ceph_csi(name)
