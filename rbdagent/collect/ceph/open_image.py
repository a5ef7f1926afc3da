"""Opening an image by its name, by that in the journal of ceph-csi, or by its id, in the trash too.

rbdagent opens images read-only, which sets no watch and no lock: a watch would make ceph-csi refuse
to stage the volume.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.collect.ceph.connection import name_of
from rbdagent.collect.ceph.omap import omap_entries, omap_values
from rbdagent.model import ImagePresence
from rbdagent.parse.trash import name_in_trash

if TYPE_CHECKING:
    from rbdagent.collect.ceph.connection import Cluster
    from rbdagent.model import ImageIdentity, ImageSpec

    Handle = Any  # rados.Ioctx or rbd.Image: the bindings carry no types

DIRECTORY: Final = "rbd_directory"
TRASH: Final = "rbd_trash"
BY_ID: Final = "id_"
"""Both objects of a pool have a key ``id_<id>`` for each image (dir_key_for_id, cls_rbd.cc). Names
of images need not be UTF-8, ids are."""
IMAGE_NAME: Final = "csi.imagename"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def open_image(
    cluster: Cluster, context: Handle, image: ImageIdentity
) -> tuple[Handle | None, ImagePresence, ImageSpec]:
    """Open by name, else by id: an image that is in the trash or renamed keeps its id.

    Another image may have the name of a renamed one: an image with another id does not count.
    """
    rbd = cluster.rbd
    spec = replace(image.spec, pool=name_of(context.get_pool_name))
    with contextlib.suppress(rbd.ImageNotFound):
        opened = rbd.Image(context, spec.name, read_only=True)
        if _has_id(opened, image.image_id):
            return opened, ImagePresence.PRESENT, spec
        opened.close()
    name = _journaled_name(cluster, context, image)
    if name is not None:
        with contextlib.suppress(rbd.ImageNotFound):
            opened = rbd.Image(context, name, read_only=True)
            if _has_id(opened, image.image_id):
                written = name.decode(errors="backslashreplace")
                return opened, ImagePresence.PRESENT, replace(spec, name=written)
            opened.close()
    image_id = image.image_id or _id_in_trash(cluster, context, spec.name)
    if image_id is None:
        return None, ImagePresence.GONE, spec
    try:
        opened = rbd.Image(context, image_id=image_id, read_only=True)
    except rbd.ImageNotFound:
        return None, ImagePresence.GONE, spec
    if image.image_id is None or _is_in_trash(cluster, context, image_id):
        return opened, ImagePresence.TRASH, spec
    return opened, ImagePresence.PRESENT, replace(spec, name=name_of(opened.get_name))


def _has_id(opened: Handle, image_id: str | None) -> bool:
    """Return whether an opened image has an id, or none is known; format 1 has no ids."""
    if image_id is None:
        return True
    return not opened.old_format() and str(opened.id()) == image_id


def _is_in_trash(cluster: Cluster, context: Handle, image_id: str) -> bool:
    """Return whether an image is in the trash of a pool.

    The trash is the object ``rbd_trash`` with the keys ``id_<id>`` (cls_rbd.cc). ``RBD.trash_get``
    reads the same. But rbd.pyx converts its times with ``datetime.utcfromtimestamp``, which Python
    3.12 deprecates (python/cpython#103857).
    """
    return bool(omap_values(cluster, context, TRASH, (f"{BY_ID}{image_id}",)))


def _id_in_trash(cluster: Cluster, context: Handle, name: str) -> str | None:
    """Return the id of the only image in the trash of a pool that had a name; else None.

    None as well if the trash cannot be read: that no image has this name any more is known.
    """
    wanted = name.encode(errors="surrogateescape")
    try:
        entries = omap_entries(cluster, context, TRASH, BY_ID)
        found = [key for key, value in entries if name_in_trash(value) == wanted]
    except cluster.rados.Error:
        return None
    return found[0].removeprefix(BY_ID) if len(found) == 1 else None


def _journaled_name(cluster: Cluster, context: Handle, image: ImageIdentity) -> bytes | None:
    """Return the image name in ceph-csi's journal: the prefix of image names is configurable.

    Object ``csi.volume.<uuid>``, omap key ``csi.imagename`` (internal/journal/voljournal.go@52fcb7b
    of ceph-csi). The name may not be UTF-8; rbd.pyx passes on a name of type bytes unchanged
    (``cstr``).
    """
    uuid = _UUID.search(image.spec.name)
    if uuid is None:
        return None
    try:
        entry = omap_values(cluster, context, f"csi.volume.{uuid[0]}", (IMAGE_NAME,))
    except cluster.rados.Error:
        if image.image_id is None:
            # Without an id, only this name leads to the image. If the error was ignored, the image
            # would be reported as deleted.
            raise
        return None
    return (entry or {}).get(IMAGE_NAME)
