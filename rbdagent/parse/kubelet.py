"""kubelet's ``vol_data.json`` and ceph-csi's stash ``image-meta.json``."""

from __future__ import annotations

import msgspec

from rbdagent.errors import ParseError
from rbdagent.model import ImageSpec, Stash, VolumeData


def parse_volume_data(raw: bytes, *, where: str) -> VolumeData:
    """Read ``vol_data.json``: the staging one holds driver and handle, a pod's one the PV too.

    Raises:
        ParseError: it is no JSON object of texts.
    """
    data = _object(raw, where=where, what="kubelet's vol_data.json")
    return VolumeData(
        driver=data.get("driverName"),
        volume_handle=data.get("volumeHandle"),
        persistent_volume=data.get("specVolID"),
        attachment=data.get("attachmentID"),
        node_name=data.get("nodeName"),
    )


def parse_stash(raw: bytes, *, where: str) -> Stash:
    """Read ``image-meta.json``, version 3; the device is empty unless the volume is encrypted.

    Raises:
        ParseError: it is no JSON object, or names no pool and image.
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
    return Stash(
        spec=ImageSpec(pool=pool, namespace=data.get("radosNamespace") or "", name=image),
        encrypted=data.get("encrypted") == "true",
        device=data.get("device") or None,
    )


def _object(raw: bytes, *, where: str, what: str) -> dict[str, str]:
    """Read a JSON object; true and false become texts, so that every value is one."""
    text = raw.decode(errors="replace")
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
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
