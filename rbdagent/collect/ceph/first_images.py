"""Reading one image of each pool: whether the osd caps of the user are sufficient.

Connecting and querying the monitors needs no osd caps, so neither shows that they are missing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from rbdagent.errors import ParseError
from rbdagent.model import ImageIdentity, ImageSpec

if TYPE_CHECKING:
    from rbdagent.collect.ceph.connection import Cluster

APPLICATIONS: Final = "osd pool application get"
"""Command of the monitors; without the name of a pool it answers for all."""
_DIRECTORY: Final = "rbd_directory"
_BY_ID: Final = "id_"
"""The directory of a pool has a key ``id_<id>`` for each image (dir_key_for_id, cls_rbd.cc). Names
of images need not be UTF-8, ids are."""


def pools_with_images(values: tuple[object, ...]) -> tuple[str, ...]:
    """Return the names of the pools that have the application rbd.

    Raises:
        ParseError: the answer has another form.
    """
    try:
        (applications,) = msgspec.convert(values, tuple[dict[str, dict[str, object]]])
    except msgspec.ValidationError as error:
        raise ParseError(
            what="the applications",
            where=APPLICATIONS,
            text=str(error),
            expected="pools, each with its applications",
        ) from error
    return tuple(pool for pool, found in applications.items() if "rbd" in found)


def read_first_image(cluster: Cluster, pool_id: int) -> Literal["read"]:
    """Read a pool's directory, and the watchers of the first image in it, as an observation does.

    An OSD checks the caps before it searches the object (PrimaryLogPG::do_op): a missing directory
    or image is no error. Images in RADOS namespaces are not read.

    Raises:
        Exception: an error of one of the two bindings.
    """
    pool = ImageIdentity(spec=ImageSpec(pool="", name=""), fsid=None, pool_id=pool_id)
    context = cluster.pool(pool)
    image_id = _first_id(cluster, context) if context is not None else None
    if image_id is not None:
        with (
            contextlib.suppress(cluster.rbd.ImageNotFound),
            cluster.rbd.Image(context, image_id=image_id, read_only=True) as image,
        ):
            list(image.watchers_list())
    return "read"


def _first_id(cluster: Cluster, context: Any) -> str | None:  # noqa: ANN401 - rados.Ioctx
    with cluster.rados.ReadOpCtx() as operation:
        keys, _ = context.get_omap_vals(operation, "", _BY_ID, 1)
        try:
            context.operate_read_op(operation, _DIRECTORY)
        except cluster.rados.ObjectNotFound:
            return None
        return next((str(key).removeprefix(_BY_ID) for key, _ in keys), None)
