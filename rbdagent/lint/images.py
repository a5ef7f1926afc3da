"""Several PVs of one image: in the files, or one in the files and others here.

kubelet and external-attacher compare the handles of volumes, and take PVs with different handles
for different volumes: each is attached and mounted as if it were the only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.correlate.image_identity import in_namespace, same_image, volume_image
from rbdagent.correlate.index import by_each
from rbdagent.correlate.names import handle_of
from rbdagent.correlate.views import with_pool_names
from rbdagent.lint.context import subject_of
from rbdagent.lint.entries import problem
from rbdagent.lint.handles import OF_VOLUME, cluster_of
from rbdagent.model import CsiSource, ImageIdentity, PersistentVolume, Severity
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.handle import composed_handle
from rbdagent.parse.volume import is_static

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.lint.context import LintContext
    from rbdagent.model.lint import Manifest, Problem

_IN_TREE: Final = "spec.rbd"


class _Named(NamedTuple):
    """An image as PVs name it."""

    image: ImageIdentity
    """With the fsid and the pool, as far as the clusterID and the pool id lead to them."""
    cluster_id: str
    """Of ceph-csi; empty in a PV of the in-tree plugin."""


Groups = dict[str, dict[_Named, list[PersistentVolume]]]
"""By the name of the image, then by all that is named of it: a PV with each handle."""


def images_named_twice(context: LintContext) -> Iterator[Problem]:
    """Report RBD816 for PVs of one image, and RBD411 for those that no rule judges."""
    files = {volume.name: volume for _, volume in context.volumes()}
    here = {volume.name: volume for volume in context.kube_after.volumes}
    groups = _groups(context, (here | files).values())
    for item, volume in context.volumes():
        named = _named(context, volume)
        if named is None or context.existing(item) is not None:
            continue
        further = _with_another_handle(volume, named, groups)
        if further is not None:
            yield _two_handles(context, item, (volume, named), further)
        elif volume.name in context.surplus:
            yield _one_handle(item, volume)


def _groups(context: LintContext, volumes: Iterable[PersistentVolume]) -> Groups:
    """Return the PVs so that those that name an image alike are compared once."""
    pairs = ((_named(context, volume), volume) for volume in volumes)
    found: Groups = {}
    for named, theirs in by_each(pairs).items():
        if named is not None:
            one_of_each = {handle_of(volume.source): volume for volume in reversed(theirs)}
            found.setdefault(named.image.spec.name, {})[named] = [*one_of_each.values()]
    return found


def _named(context: LintContext, volume: PersistentVolume) -> _Named | None:
    """Return the image of a PV; None if the PV has none, or does not show its name."""
    image = volume_image(volume)
    if image is None:
        return None
    cluster_id = _cluster_id(volume)
    namespace = context.namespace_of(cluster_id)
    if image.namespace_by is not None and namespace is not None:
        image = in_namespace(image, namespace)
    cluster = cluster_of(context, cluster_id) if cluster_id else None
    if cluster is not None:
        image = with_pool_names(replace(image, fsid=cluster.fsid), context.after.ceph)
    return _Named(image, cluster_id)


def _cluster_id(volume: PersistentVolume) -> str:
    """Return the clusterID that ceph-csi reads: that of the handle, unless the PV is static."""
    source = volume.source
    if not isinstance(source, CsiSource):
        return ""
    handle = None if is_static(source) else composed_handle(source.volume_handle)
    return source.attribute("clusterID") or "" if handle is None else handle.cluster_id


def _with_another_handle(
    volume: PersistentVolume, named: _Named, groups: Groups
) -> tuple[PersistentVolume, _Named] | None:
    own = handle_of(volume.source)
    for other, volumes in groups.get(named.image.spec.name, {}).items():
        if _may_be_one(named, other):
            for one in volumes:
                if one.name != volume.name and (own is None or handle_of(one.source) != own):
                    return one, other
    return None


def _may_be_one(one: _Named, other: _Named) -> bool:
    """Return whether two PVs mean one image, as far as their RADOS namespaces are known."""
    if same_image(one.image, other.image):
        return True
    if not _is_namespace_open(one, other):
        return False
    return same_image(in_namespace(one.image, ""), in_namespace(other.image, ""))


def _is_namespace_open(one: _Named, other: _Named) -> bool:
    return any(named.image.namespace_by is not None for named in (one, other))


def _two_handles(
    context: LintContext,
    item: Manifest,
    given: tuple[PersistentVolume, _Named],
    further: tuple[PersistentVolume, _Named],
) -> Problem:
    (volume, named), (other, theirs) = given, further
    # One clusterID leads to one cluster and to one RADOS namespace.
    is_placed = named.cluster_id == theirs.cluster_id != "" or not _is_namespace_open(named, theirs)
    is_certain = is_placed and _is_one_cluster(context, named, theirs)
    image = foreign_name(str(named.image.spec))
    where = "is here" if other.name in context.kube_before.volume_by_name else "is in the files"
    doubt = "" if is_certain else f", if both mean one {_of(is_placed)}, which was not observed"
    return problem(
        Code.IMAGE_OF_TWO_VOLUMES,
        item,
        OF_VOLUME if isinstance(volume.source, CsiSource) else _IN_TREE,
        f"{volume.name} and {other.name}, which {where}, are one image{doubt}: {image}. Their "
        "handles differ, so that kubelet and external-attacher take them for two volumes: two "
        "nodes may write to the image at once, which destroys a file system.",
        subject=subject_of(item),
        evidence=(_evidence(volume, named), _evidence(other, theirs)),
        severity=None if is_certain else Severity.WARNING,
    )


def _of(is_placed: bool) -> str:  # noqa: FBT001 - one word of a sentence
    return "Ceph cluster" if is_placed else "Ceph cluster and one RADOS namespace"


def _evidence(volume: PersistentVolume, named: _Named) -> str:
    handle = handle_of(volume.source)
    text = "in-tree plugin" if handle is None else f"{handle[0]}, {foreign_name(handle[1])}"
    image = foreign_name(str(named.image.spec))
    return (
        f"{volume.name}: {text}, image {image}, clusterID {foreign_name(named.cluster_id)}, claim "
        f"{volume.claim or 'none'}, reclaim policy {volume.reclaim_policy or 'none'}"
    )


def _is_one_cluster(context: LintContext, one: _Named, other: _Named) -> bool:
    """Return whether two PVs mean one Ceph cluster: by the fsid, the clusterID or a monitor."""
    if one.image.fsid and other.image.fsid:
        return True
    if one.cluster_id == other.cluster_id:
        return bool(one.cluster_id)
    monitors = context.monitors
    ours, theirs = monitors.get(one.cluster_id, ()), monitors.get(other.cluster_id, ())
    return not set(ours).isdisjoint(theirs)


def _one_handle(item: Manifest, volume: PersistentVolume) -> Problem:
    """Return RBD411 for one of very many PVs of an image, which the rules leave out."""
    handle = handle_of(volume.source)
    return problem(
        Code.DUPLICATE_HANDLE,
        item,
        OF_VOLUME if handle is not None else _IN_TREE,
        f"{volume.name} and further PVs have the same volume handle: kubelet and external-attacher "
        "treat them as one volume.",
        subject=subject_of(item),
        evidence=() if handle is None else (f"volumeHandle {foreign_name(handle[1])}",),
        remedy="Leave one of the PVs out. They are one image: set Retain on both before any of "
        "them is deleted.",
    )


CHECKS: Final = (images_named_twice,)
