"""CSI volume handles, and the names that Kubernetes derives from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.errors import ParseError
from rbdagent.parse.digests import sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COMPOSED: Final = re.compile(
    r"(?P<version>[0-9a-f]{4})-(?P<length>[0-9a-f]{4})-(?P<rest>.+)", re.DOTALL
)
_TAIL: Final = re.compile(
    r"-(?P<pool>[0-9a-f]{16})-"
    r"(?P<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)
_MIGRATED: Final = r"mig_mons-(?P<md5>[0-9a-f]{32})_image-(?P<image>.+)_(?P<pool>[^_]+)"

# Prefix of the images of the in-tree provisioner. The handle of a migrated volume omits it.
_IN_TREE_PREFIX: Final = "kubernetes-dynamic-pvc-"


class VolumeHandle(Struct, frozen=True, kw_only=True):
    """A handle that ceph-csi composed: ``VVVV-LLLL-<cluster id>-<pool id>-<uuid>``."""

    version: int
    cluster_id: str
    """A name in ceph-csi's configuration, often not the fsid."""
    pool_id: int
    uuid: str
    """The name of the image is ``volumeNamePrefix`` (default ``csi-vol-``) and this uuid."""


class MigratedHandle(Struct, frozen=True, kw_only=True):
    """A handle that csi-translation-lib composed for an in-tree volume."""

    monitors_md5: str
    pool: str
    image: str


def parse_volume_handle(handle: str) -> VolumeHandle:
    """Parse a composed handle; the cluster id may contain ``-``, so its length delimits it.

    Raises:
        ParseError: it is not a composed handle (the handle of a static volume is any text).
    """
    match = _COMPOSED.fullmatch(handle)
    if match is None:
        raise _not_composed(handle, "VVVV-LLLL-<cluster id>-<pool id, 16 hex>-<uuid>")
    # ceph-csi is written in Go: the length is in bytes.
    length, rest = int(match["length"], 16), match["rest"].encode(errors="surrogatepass")
    cluster_id = rest[:length].decode(errors="replace")
    tail = _TAIL.fullmatch(rest[length:].decode(errors="replace"))
    if tail is None or length == 0:
        raise _not_composed(handle, f"a cluster id of {length} bytes, a pool id and a uuid")
    return VolumeHandle(
        version=int(match["version"], 16),
        cluster_id=cluster_id,
        pool_id=int(tail["pool"], 16),
        uuid=tail["uuid"],
    )


def composed_handle(handle: str) -> VolumeHandle | None:
    """Return a composed handle; None for the handle of a static volume, which is any text."""
    try:
        return parse_volume_handle(handle)
    except ParseError:
        return None


def parse_migrated_handle(handle: str) -> MigratedHandle:
    """Parse the handle of a migrated in-tree volume: ``mig_mons-<md5>_image-<uuid>_<hex of pool>``.

    Raises:
        ParseError: it is not the handle of a migrated volume.
    """
    match = re.fullmatch(_MIGRATED, handle)
    expected = "mig_mons-<md5>_image-<uuid>_<pool name in hex>"
    if match is None:
        raise _not_composed(handle, expected)
    try:
        pool = bytes.fromhex(match["pool"]).decode()
    except ValueError as error:
        raise _not_composed(handle, expected) from error
    return MigratedHandle(
        monitors_md5=match["md5"], pool=pool, image=_IN_TREE_PREFIX + match["image"]
    )


def migrated_handle(monitors: tuple[str, ...], pool: str, image: str) -> str:
    """Return the handle that kubelet uses for a migrated in-tree volume."""
    import hashlib

    # csi-translation-lib uses the digest as a name, not for security.
    digest = hashlib.md5(",".join(monitors).encode(), usedforsecurity=False).hexdigest()
    return f"mig_mons-{digest}_image-{image.removeprefix(_IN_TREE_PREFIX)}_{pool.encode().hex()}"


def attachment_name(handle: str, driver: str, node: str) -> str:
    """Return the name of the VolumeAttachment of a CSI volume to a node, as kubelet computes it."""
    return next(attachment_names(handle, driver, (node,)))


def attachment_names(handle: str, driver: str, nodes: Iterable[str]) -> Iterator[str]:
    """Yield the names of the VolumeAttachments of a CSI volume to some nodes."""
    begun = sha256(f"{handle}{driver}".encode())
    for node in nodes:
        digest = begun.copy()
        digest.update(node.encode())
        yield f"csi-{digest.hexdigest()}"


def staging_hash(handle: str) -> str:
    """Return the name of a volume's staging directory below ``…/kubernetes.io/csi/<driver>``."""
    return sha256(handle.encode()).hexdigest()


def in_use_name(driver: str, handle: str) -> str:
    """Return a CSI volume's name in a node's ``volumesInUse`` and ``volumesAttached``."""
    return f"kubernetes.io/csi/{driver}^{handle}"


def lease_names(driver: str) -> tuple[str, ...]:
    """Return the names that the lease of a driver's provisioner may have.

    The first is the name that csi-lib-utils uses, the second is an older form.
    """
    old = driver.replace("/", "-")
    return tuple(dict.fromkeys((re.sub(r"[^A-Za-z0-9-]", "-", old), old)))


def _not_composed(handle: str, expected: str) -> ParseError:
    return ParseError(what="a volume handle", where="volumeHandle", text=handle, expected=expected)


CLIENT_ADDRESS: Final = ".rbd.csi.ceph.com/clientaddress/"
"""How ceph-csi's metadata of an image with the address of a node's client begins: the handle of the
volume and the name of the node follow (since 2025)."""


def node_in_key(key: str) -> tuple[str, str] | None:
    """Return the handle and the node that a key of ceph-csi's metadata names; None without them."""
    if not key.startswith(CLIENT_ADDRESS):
        return None
    handle, _, node = key.removeprefix(CLIENT_ADDRESS).rpartition("/")
    return (handle, node) if handle and node else None
