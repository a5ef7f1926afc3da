"""kubelet's paths, its ``vol_data.json``, and ceph-csi's stash ``image-meta.json``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from rbdagent.errors import ParseError
from rbdagent.model import CsiImageMeta, ImageSpec, VolumeData

_POD_UID: Final = r"/pods/([^/]+)/volume(?:s|Devices)/"
"""The directory of a pod below the root directory of kubelet, which may be any path."""
_BLOCK_POD_UID: Final = r"/volumeDevices/(?:publish/[^/]+|[^/]+/dev)/([^/]+)$"
"""Block mode: a bind mount of the device node in ``plugins/kubernetes.io/csi/volumeDevices``."""

_OF_VOLUME: Final = re.compile(
    r".*?(?:"
    r"/pods/[^/]+/volume(?:s|Devices)/kubernetes\.io~(?:csi|rbd)/(?P<pod>[^/]+)(?:/mount)?"
    r"|/plugins/kubernetes\.io/csi/volumeDevices/"
    r"(?:(?:publish|staging)/(?P<block>[^/]+)/[^/]+|(?P<linked>[^/]+)/dev/[^/]+)"
    r"|/plugins/kubernetes\.io/csi/pv/(?P<old>[^/]+)/globalmount(?:/[^/]+)?"
    r"|/plugins/kubernetes\.io/csi/(?P<driver>[^/]+)/(?P<hash>[0-9a-f]{64})/globalmount"
    r"(?:/(?P<handle>[^/]+))?"
    r")",
    re.DOTALL,
)
"""The paths of one volume below kubelet's root: GetPodVolumeDir(), the paths in csi_block.go and
makeDeviceMountPath() in pkg/volume/csi/csi_attacher.go@v1.36.3. ``pv/`` was used before 1.24."""
_MOST_PATHS: Final = 4096


class VolumePath(NamedTuple):
    """The names of a volume in a path; at least one of them is known."""

    persistent_volume: str | None
    handle_hash: str | None
    """Hex sha256 of the volume handle."""
    handle: tuple[str, str] | None
    """(driver, volume handle)"""


@lru_cache(maxsize=_MOST_PATHS)
def volume_of_path(path: str) -> VolumePath | None:
    """Return the volume that a mount path in kubelet's layout names; None for any other path."""
    if "/volume" not in path and "/globalmount" not in path:
        return None
    found = _OF_VOLUME.fullmatch(path)
    if found is None:
        return None
    handle = found["handle"]
    return VolumePath(
        persistent_volume=found["pod"] or found["block"] or found["linked"] or found["old"],
        handle_hash=found["hash"],
        handle=None if handle is None else (found["driver"], handle),
    )


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
