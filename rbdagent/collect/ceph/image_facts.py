"""The facts that decide whether an image of a pool is in use. Always read-only.

Each fact that a user may not read, or that does not arrive in time, is missing alone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from rbdagent.collect.ceph.connection import name_of, read_managers, silence_cure
from rbdagent.collect.ceph.daemons import mirror_daemons, queued_tasks, tasks_in
from rbdagent.collect.ceph.image import image_error, mirroring, watchers_now
from rbdagent.collect.ceph.omap import omap_values
from rbdagent.collect.ceph.open_image import BY_ID, DIRECTORY, IMAGE_NAME, TRASH
from rbdagent.collect.failure import not_observed
from rbdagent.collect.parallel import all_of, once_for_all_threads
from rbdagent.commands import command, line_of
from rbdagent.errors import SourceError
from rbdagent.model import ImageIdentity, ImageSpec, NotObserved
from rbdagent.model.inventory import ImageFacts, JournalEntry
from rbdagent.parse.csi_image_name import is_temporary, journal_uuid
from rbdagent.parse.rbd_objects import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.collect.ceph.connection import Cluster
    from rbdagent.model import ServiceAddress
    from rbdagent.model.inventory import JournalKey, ListedImage

    Handle = Any  # rados.Ioctx or rbd.Image: the bindings carry no types

_T = TypeVar("_T")

_CREATED: Final = "create_timestamp"
_IMAGE_ID: Final = "csi.imageid"
_JOURNALS: Final = (("csi.volume.", "csi.volname"), ("csi.snap.", "csi.snapname"))
"""Beginnings of the names of journal objects, and the key with the name that the sidecar chose
(internal/journal/voljournal.go@52fcb7b of ceph-csi)."""
METADATA_KEYS: Final = (
    "csi.ceph.com/cluster/name",
    "csi.storage.k8s.io/pv/name",
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
    "csi.storage.k8s.io/volumesnapshot/name",
    "csi.storage.k8s.io/volumesnapshot/namespace",
    "csi.storage.k8s.io/volumesnapshotcontent/name",
)
"""The keys that ceph-csi writes (internal/util/k8s/parameters.go, internal/rbd/rbd_util.go)."""
_MOST_NAMES: Final = 100
"""Maximum of snapshots, and of clones, of an image. One is enough for the verdict."""
_MIGRATING: Final = 1 << 9
"""RBD_FEATURE_MIGRATING (src/include/rbd/features.h)."""


class PoolFacts:
    """What the images of one namespace of a pool share: it is read once, for all threads."""

    def __init__(self, cluster: Cluster, image: ListedImage) -> None:
        """Take the namespace of an image; nothing is read yet."""
        self._cluster = cluster
        self._identity = ImageIdentity(spec=image.spec, fsid=None, pool_id=image.pool_id)
        self.mirror_daemons = once_for_all_threads(
            lambda: mirror_daemons(cluster, image.pool_id, image.spec.namespace)
        )
        self.tasks = once_for_all_threads(lambda: queued_tasks(cluster, self.context()))

    def context(self) -> Handle:
        """Return the opened pool and namespace.

        Raises:
            SourceError: the pool was removed or renamed after it was listed.
        """
        return _context(self._cluster, self._identity)


def _context(cluster: Cluster, identity: ImageIdentity) -> Handle:
    context = cluster.pool(identity)
    if context is None:
        raise SourceError(f"pool {identity.spec.pool}: it was removed or renamed meanwhile")
    return context


def read_facts(
    cluster: Cluster, images: Sequence[ListedImage], deadline: float
) -> list[ImageFacts | NotObserved | None]:
    """Return the facts of images of a cluster, all read in parallel; None for a removed image.

    Args:
        cluster: the connection.
        images: of this cluster.
        deadline: of the monotonic clock.
    """
    managers = cluster.monitor_or_gap("mgr dump", read_managers)
    pools: dict[tuple[int, str], PoolFacts] = {}
    calls = []
    for image in images:
        key = image.pool_id, image.spec.namespace
        pool = pools.setdefault(key, PoolFacts(cluster, image))
        calls.append(functools.partial(_facts_of, cluster, pool, image, managers))
    answers = all_of(calls, deadline)
    return [
        _facts_or_gap(cluster, image, answer) for image, answer in zip(images, answers, strict=True)
    ]


def _facts_or_gap(
    cluster: Cluster,
    image: ListedImage,
    answer: ImageFacts | NotObserved | BaseException | Literal["removed"] | None,
) -> ImageFacts | NotObserved | None:
    if isinstance(answer, (ImageFacts, NotObserved)):
        return answer
    if answer == "removed":
        return None
    if answer is None:
        return NotObserved(
            reason=f"{image.spec}: no answer in time", hint=silence_cure(cluster), timed_out=True
        )
    if isinstance(answer, (cluster.rbd.Error, cluster.rados.Error)):
        answer = image_error(cluster, image.spec, answer)
    return not_observed(answer, str(image.spec))


def _facts_of(
    cluster: Cluster,
    pool: PoolFacts,
    image: ListedImage,
    managers: tuple[ServiceAddress, ...] | NotObserved,
) -> ImageFacts | NotObserved | Literal["removed"]:
    """Open an image by its id, which also works in the trash, and read its facts.

    Raises:
        Error: of a binding; the image cannot be opened.
    """
    try:
        return _opened_facts(cluster, pool, image, managers)
    except cluster.rbd.ImageNotFound:
        context, key = pool.context(), f"{BY_ID}{image.image_id}"
        if not any(omap_values(cluster, context, name, (key,)) for name in (DIRECTORY, TRASH)):
            return "removed"
        return NotObserved(
            reason=f"{image.spec}: the pool lists it, and its header does not exist: its removal "
            "was interrupted, or is in progress",
            hint=f"{line_of(command('rbd info', str(image.spec)))} shows the error",
        )


def _opened_facts(
    cluster: Cluster,
    pool: PoolFacts,
    image: ListedImage,
    managers: tuple[ServiceAddress, ...] | NotObserved,
) -> ImageFacts:
    context = pool.context()
    read = functools.partial(_read, cluster, image.spec)
    with cluster.rbd.Image(context, image_id=image.image_id, read_only=True) as opened:
        mirrored, primary = mirroring(cluster, opened)
        watchers = read(lambda: watchers_now(opened))
        snapshots = read(lambda: _snapshots(opened))
        daemons = managers
        if watchers and mirrored is True and not isinstance(managers, NotObserved):
            of_mirror = pool.mirror_daemons()
            daemons = of_mirror if isinstance(of_mirror, NotObserved) else (*managers, *of_mirror)
        return ImageFacts(
            size_bytes=read(lambda: int(opened.size())),
            created_at=read(lambda: _created_at(cluster, context, image)),
            watchers=watchers,
            daemons=daemons,
            parent=read(lambda: _parent(cluster, opened)),
            snapshots=snapshots,
            # Only a snapshot can have clones.
            children=read(lambda: _children(opened)) if snapshots else snapshots,
            metadata=read(lambda: _metadata(opened)),
            journal=read(lambda: _journal(cluster, context, image)),
            mirrored=mirrored,
            primary=primary,
            migrating=bool(int(opened.features()) & _MIGRATING),
            tasks=tasks_in(pool.tasks(), image.image_id),
        )


def _read(cluster: Cluster, spec: ImageSpec, call: Callable[[], _T]) -> _T | NotObserved:
    """Return a fact, or why it was not read."""
    try:
        return call()
    except UnicodeDecodeError:
        return NotObserved(reason=f"{spec}: a name is not UTF-8, and the binding cannot read it")
    except (cluster.rbd.Error, cluster.rados.Error) as error:
        return not_observed(image_error(cluster, spec, error), str(spec))


def _created_at(cluster: Cluster, context: Handle, image: ListedImage) -> str | None:
    """Return when an image was created.

    ``Image.create_timestamp`` returns a time without a time zone in some releases (rbd.pyx).
    """
    found = omap_values(cluster, context, f"rbd_header.{image.image_id}", (_CREATED,))
    return time_of((found or {}).get(_CREATED, b""))


def _snapshots(opened: Handle) -> tuple[str, ...]:
    found = itertools.islice(opened.list_snaps(), _MOST_NAMES)
    return tuple(sorted(str(snapshot["name"]) for snapshot in found))


def _children(opened: Handle) -> tuple[str, ...]:
    """Return the clones of all snapshots, in all pools that this user may read.

    Clones of the first format are found in an object of each pool (list_descendants() in
    src/librbd/api/Image.cc): if the user may not read one of the pools, librbd returns an error.
    """
    found = itertools.islice(opened.list_children2(), _MOST_NAMES)
    return tuple(sorted(_child(entry) for entry in found))


def _child(entry: dict[str, Any]) -> str:
    parts = entry["pool"], entry.get("pool_namespace"), entry["image"] or entry["id"]
    name = "/".join(str(part) for part in parts if part)
    return f"{name} (in the trash)" if entry["trash"] else name


def _parent(cluster: Cluster, opened: Handle) -> str | None:
    try:
        parent = opened.get_parent_image_spec()
    except cluster.rbd.ImageNotFound:
        return None
    image = parent["image_name"] or opened.parent_id()
    names = parent["pool_name"], parent.get("pool_namespace"), image
    return f"{'/'.join(str(name) for name in names if name)}@{parent['snap_name']}"


def _metadata(opened: Handle) -> tuple[tuple[str, str], ...]:
    """Return ceph-csi's keys, read key by key: metadata_list of 16.2 misaligns on empty values."""
    found = []
    for key in METADATA_KEYS:
        with contextlib.suppress(KeyError):
            found.append((key, name_of(functools.partial(opened.metadata_get, key))))
    return tuple(found)


def _journal(cluster: Cluster, context: Handle, image: ListedImage) -> JournalEntry | None:
    """Return ceph-csi's entry for the uuid in the name of an image.

    The object is in the pool and the namespace of the image, while the directory
    (``csi.volumes.default``) may be in another pool. A temporary image has no entry: its uuid is
    that of the clone.
    """
    uuid = journal_uuid(image.spec.name)
    if uuid is None or is_temporary(image.spec.name):
        return None
    return _journal_entry(cluster, context, uuid)


ABSENT: Final = "absent"


def journal_of(cluster: Cluster, key: JournalKey) -> JournalEntry | NotObserved | Literal["absent"]:
    """Return the entry of a volume; its image may have another name now."""
    spec = ImageSpec(pool=key.pool.pool, namespace=key.pool.namespace, name=key.uuid)
    context = _context(cluster, ImageIdentity(spec=spec, fsid=None, pool_id=key.pool.pool_id))
    found = _read(cluster, spec, lambda: _journal_entry(cluster, context, key.uuid))
    return ABSENT if found is None else found


def _journal_entry(cluster: Cluster, context: Handle, uuid: str) -> JournalEntry | None:
    """Return the entry of a volume or a snapshot in ceph-csi's journal; None without one.

    Raises:
        Error: of the binding.
    """
    for begin, request in _JOURNALS:
        name = f"{begin}{uuid}"
        found = omap_values(cluster, context, name, (request, IMAGE_NAME, _IMAGE_ID))
        if found is not None:
            return JournalEntry(
                object_name=name,
                request=_text(found.get(request)),
                image_name=_text(found.get(IMAGE_NAME)),
                image_id=_text(found.get(_IMAGE_ID)),
            )
    return None


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")
