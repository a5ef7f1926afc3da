"""kubelet's ``vol_data.json`` and ceph-csi's stash ``image-meta.json``."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from rbdagent.errors import ParseError
from rbdagent.model import CsiImageMeta, ImageSpec, VolumeData

_POD_UID: Final = r"/pods/([^/]+)/volume(?:s|Devices)/"
"""The directory of a pod below the root directory of kubelet, which may be any path."""
_BLOCK_POD_UID: Final = r"/volumeDevices/(?:publish/[^/]+|[^/]+/dev)/([^/]+)$"
"""Block mode: a bind mount of the device node in ``plugins/kubernetes.io/csi/volumeDevices``."""


def pod_uid_of_path(path: str) -> str | None:
    """Return the pod uid in a mount path that has kubelet's layout; None for any other path."""
    found = re.search(_POD_UID, path) or re.search(_BLOCK_POD_UID, path)
    return found.group(1) if found else None


def parse_volume_data(raw: bytes, *, where: str) -> VolumeData:
    """Parse ``vol_data.json``: driver and handle; the file of a pod also names the PV.

    Raises:
        ParseError: it is not a JSON object of texts.
    """
    data = _object(raw, where=where, what="kubelet's vol_data.json")
    return VolumeData(
        driver=data.get("driverName"),
        volume_handle=data.get("volumeHandle"),
        persistent_volume=data.get("specVolID"),
        attachment=data.get("attachmentID"),
        node_name=data.get("nodeName"),
    )


def parse_stash(raw: bytes, *, where: str) -> CsiImageMeta:
    """Parse ``image-meta.json``, version 3; the device is empty unless the volume is encrypted.

    Raises:
        ParseError: it is not a JSON object, or has no pool or no image.
    """
    data = _object(raw, where=where, what="ceph-csi's image-meta.json")
    pool, image = data.get("pool"), data.get("image")
    if not (pool and image):
        raise ParseError(
            what="ceph-csi's image-meta.json",
            where=where,
            text=raw.decode(errors="replace")[:200],
            expected="pool and image",
        )
    return CsiImageMeta(
        spec=ImageSpec(pool=pool, namespace=data.get("radosNamespace") or "", name=image),
        encrypted=data.get("encrypted") == "true",
        device=data.get("device") or None,
    )


def _object(raw: bytes, *, where: str, what: str) -> dict[str, str]:
    """Parse a JSON object; every value becomes a text, and null values are dropped."""
    text = raw.decode(errors="replace")
    try:
        data = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(
            what=what, where=where, text=text[:200], expected=f"a JSON object ({error})"
        ) from error
    if not isinstance(data, dict):
        raise ParseError(what=what, where=where, text=text[:200], expected="a JSON object")
    plain = (str, bool, int, type(None))
    if not all(isinstance(value, plain) for value in data.values()):
        raise ParseError(what=what, where=where, text=text[:200], expected="plain values")
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in data.items()
        if value is not None
    }
