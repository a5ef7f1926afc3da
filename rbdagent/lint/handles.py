"""What ceph-csi would do with the objects: their handles, driver, secrets, image and other cluster.

ceph-csi finds a volume by its handle alone: the clusterID leads to the monitors, the pool id to the
pool, the uuid to the entry of its journal (GenVolFromVolID in internal/rbd/rbd_util.go@52fcb7b,
which NodeStageVolume calls, too). volumeAttributes count only for a static volume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.correlate.holders import cluster_with
from rbdagent.correlate.index import ceph_index, kube_index
from rbdagent.correlate.names import handle_of
from rbdagent.lint.context import subject_of
from rbdagent.lint.entries import problem
from rbdagent.model import (
    ClusterView,
    CsiSource,
    NotObserved,
    OtherSource,
    PersistentVolume,
    Severity,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.handle import VolumeHandle, composed_handle
from rbdagent.parse.volume import is_rbd_driver, is_static

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.lint.context import LintContext
    from rbdagent.model import KubeView
    from rbdagent.model.lint import CsiConfig, Manifest, Problem

OF_VOLUME: Final = "spec.csi.volumeHandle"
"""The field of a PV with its handle."""
_MOST_NAMED: Final = 8
_CONFIG: Final = "ceph-csi's config.json (ConfigMap ceph-csi-config or rook-ceph-csi-config)"


class Handle(NamedTuple):
    """A handle that ceph-csi composed, in a manifest."""

    item: Manifest
    field: str
    parsed: VolumeHandle
    attributes: dict[str, str]
    """volumeAttributes; none of a snapshot."""


def handles(context: LintContext) -> Iterator[Handle]:
    """Yield the composed handles of PVs and VolumeSnapshotContents."""
    for item, volume in context.volumes():
        source = volume.source
        if isinstance(source, CsiSource) and not is_static(source):
            parsed = composed_handle(source.volume_handle)
            if parsed is not None:
                yield Handle(item, OF_VOLUME, parsed, dict(source.attributes))
    for item, content in context.contents():
        parsed = composed_handle(content.snapshot_handle or "")
        if parsed is not None and is_rbd_driver(content.driver, {}):
            yield Handle(item, "spec.source.snapshotHandle", parsed, {})


# --------------------------------------------------------------------------------------------------
# clusterID
# --------------------------------------------------------------------------------------------------


def cluster_ids(context: LintContext) -> Iterator[Problem]:
    """Report RBD734, RBD806: a clusterID that is not configured, or that the attributes lack."""
    for handle in handles(context):
        yield from _configured(context, handle.item, handle.field, handle.parsed.cluster_id)
        named = handle.attributes.get("clusterID")
        if named and named != handle.parsed.cluster_id:
            yield problem(
                Code.HANDLE_CONTRADICTS_ATTRIBUTES,
                handle.item,
                handle.field,
                f"The handle of {subject_of(handle.item)} names clusterID "
                f"{foreign_name(handle.parsed.cluster_id)}, and its volumeAttributes name "
                f"{foreign_name(named)}: ceph-csi reads the handle.",
                subject=subject_of(handle.item),
                evidence=(
                    f"handle: clusterID {foreign_name(handle.parsed.cluster_id)}",
                    f"volumeAttributes: clusterID {foreign_name(named)}",
                ),
            )
    for item, volume in context.volumes():
        source = volume.source
        if isinstance(source, CsiSource) and is_static(source):
            cluster_id = source.attribute("clusterID") or ""
            yield from _configured(context, item, "spec.csi.volumeAttributes.clusterID", cluster_id)
    for item, found in context.classes():
        if is_rbd_driver(found.provisioner, {}) and found.cluster_id:
            yield from _configured(context, item, "parameters.clusterID", found.cluster_id)


def _configured(
    context: LintContext, item: Manifest, field: str, cluster_id: str
) -> Iterator[Problem]:
    """Report RBD734 for a clusterID that the configuration of the drivers does not have."""
    config = context.around.csi_config
    name = foreign_name(cluster_id)
    if isinstance(config, NotObserved) or not config.clusters:
        yield from _unusual(context, item, field, cluster_id)
        return
    known = [one for one, _ in config.clusters]
    if cluster_id in known:
        return
    mapped = _mapped_cluster(config, cluster_id)
    also = (
        f" Its cluster-mapping.json maps it to {foreign_name(mapped)}, which ceph-csi uses only if "
        "config.json has an entry for both."
        if mapped
        else ""
    )
    yield problem(
        Code.CLUSTER_NOT_CONFIGURED,
        item,
        field,
        f"{subject_of(item)} needs clusterID {name}, for which ceph-csi has no configuration "
        f"here: ceph-csi can neither mount nor grow nor delete anything of it.{also}",
        subject=subject_of(item),
        evidence=(
            f"clusterIDs of {', '.join(config.places)}: {_listed(known)}",
            f"{field}: clusterID {name}",
        ),
        remedy=f"If the image is in a Ceph cluster that this cluster reaches, add the clusterID "
        f"with its monitors to {_CONFIG}. A handle cannot be changed: a PV for an image in another "
        "cluster or pool has to be created with the handle of that cluster, or as a static volume.",
    )


def _unusual(
    context: LintContext, item: Manifest, field: str, cluster_id: str
) -> Iterator[Problem]:
    """Report RBD734 as a warning if no other object of this cluster has a clusterID.

    It is a sign, and no proof: the configuration of the driver was not observed.
    """
    used = context.cluster_ids_in_use
    if not used or cluster_id in used:
        return
    yield problem(
        Code.CLUSTER_NOT_CONFIGURED,
        item,
        field,
        f"{subject_of(item)} needs clusterID {foreign_name(cluster_id)}, which no PV and no "
        "storage class of this cluster has. ceph-csi's configuration, which decides, was not "
        "observed.",
        subject=subject_of(item),
        evidence=(f"clusterIDs of PVs and storage classes here: {_listed(sorted(used))}",),
        severity=Severity.WARNING,
        remedy=f"Look into {_CONFIG}: it has to contain the clusterID.",
    )


def _mapped_cluster(config: CsiConfig, cluster_id: str) -> str:
    pairs = (pair for mapping in config.mappings for pair in mapping.clusters)
    return next((_partner(pair, cluster_id) for pair in pairs if cluster_id in pair), "")


def _partner(pair: tuple[str, str], one: str) -> str:
    """Return the other one of a pair (GetMappedID in internal/util/cluster_mapping.go@52fcb7b)."""
    return pair[1] if pair[0] == one else pair[0]


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(foreign_name, names[:_MOST_NAMED]))
    more = len(names) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown or "none"


# --------------------------------------------------------------------------------------------------
# Pools
# --------------------------------------------------------------------------------------------------


def pool_ids(context: LintContext) -> Iterator[Problem]:
    """Report RBD737, RBD806: a pool id that the Ceph cluster lacks, or that is another pool."""
    for handle in handles(context):
        cluster = cluster_of(context, handle.parsed.cluster_id)
        if cluster is None or isinstance(cluster.pools, NotObserved):
            continue
        pools = dict(cluster.pools)
        number, wanted = handle.parsed.pool_id, handle.attributes.get("pool")
        if _is_mapped(context, handle.parsed, pools):
            continue
        evidence = (
            f"handle: clusterID {foreign_name(handle.parsed.cluster_id)}, pool id {number}",
            f"pools of {cluster.fsid or cluster.name}: "
            + _listed([f"{one} {name}" for one, name in sorted(pools.items())]),
            *_taken_for(cluster, handle.parsed),
        )
        subject = subject_of(handle.item)
        if number not in pools:
            yield problem(
                Code.POOL_MISSING,
                handle.item,
                handle.field,
                f"The handle of {subject} names pool id {number}, and the Ceph cluster "
                f"{foreign_name(cluster.fsid or cluster.name)} has no such pool: the handle was "
                "made for another cluster, or the pool was created again.",
                subject=subject,
                evidence=evidence,
                remedy="A handle cannot be changed. For an image in another pool or cluster, "
                "create a static PV (staticVolume, with the image's name as volumeHandle), or map "
                "the ids in ceph-csi's cluster-mapping.json.",
            )
        elif wanted and pools[number] != wanted:
            yield problem(
                Code.HANDLE_CONTRADICTS_ATTRIBUTES,
                handle.item,
                handle.field,
                f"The handle of {subject} leads to pool {foreign_name(pools[number])} (id "
                f"{number}), and its volumeAttributes name pool {foreign_name(wanted)}: ceph-csi "
                "reads the handle.",
                subject=subject,
                evidence=(*evidence, f"volumeAttributes: pool {foreign_name(wanted)}"),
            )


def cluster_of(context: LintContext, cluster_id: str) -> ClusterView | None:
    """Return the Ceph cluster that a clusterID means; None if that is unknown.

    A clusterID is an fsid, or a name in ceph-csi's configuration. A name is taken for the only
    cluster that is observed if the configuration has it, and no other cluster; without the
    configuration, if it is that of PVs and storage classes here.
    """
    found = cluster_with(cluster_id, context.after)
    clusters = ceph_index(context.after.ceph).clusters
    if found is not None or len(clusters) != 1:
        return found
    config = context.around.csi_config
    if isinstance(config, NotObserved) or not config.clusters:
        return clusters[0] if cluster_id in context.cluster_ids_in_use else None
    monitors = dict(config.clusters)
    is_only_one = cluster_id in monitors and len(set(monitors.values())) == 1
    return clusters[0] if is_only_one else None


def _taken_for(cluster: ClusterView, handle: VolumeHandle) -> tuple[str, ...]:
    if cluster.fsid == handle.cluster_id:
        return ()
    return ("it is the only Ceph cluster that was observed: the clusterID is taken for it",)


def _is_mapped(context: LintContext, handle: VolumeHandle, pools: dict[int, str]) -> bool:
    """Return whether ceph-csi's mapping leads from the pool id to a pool that exists."""
    config = context.around.csi_config
    if isinstance(config, NotObserved):
        return False
    return any(
        _partner(pair, str(handle.pool_id)) in {str(number) for number in pools}
        for mapping in config.mappings
        if any(handle.cluster_id in clusters for clusters in mapping.clusters)
        for pair in mapping.pools
        if str(handle.pool_id) in pair
    )


# --------------------------------------------------------------------------------------------------
# Drivers, secrets, snapshots
# --------------------------------------------------------------------------------------------------


def drivers(context: LintContext) -> Iterator[Problem]:
    """Report RBD732: no CSIDriver has the name of the driver, and no node has it registered."""
    view = context.view
    if isinstance(view, NotObserved) or isinstance(view.drivers, NotObserved):
        return
    if not context.kube_after.coverage.csi_nodes:
        return
    known = {*view.drivers, *context.kube_after.registered_drivers}
    for item, field, driver in _wanted_drivers(context):
        if driver not in known:
            yield problem(
                Code.DRIVER_NOT_INSTALLED,
                item,
                field,
                f"{subject_of(item)} needs CSI driver {driver}, which is not installed here: it "
                "can be neither attached nor mounted.",
                subject=subject_of(item),
                evidence=(f"CSIDrivers here: {_listed(sorted(known))}",),
                remedy="Install the driver under exactly that name, or restore the PV with the "
                "name of the driver that is installed: the driver of a PV cannot be changed later.",
            )


def unregistered_drivers(context: LintContext) -> NotObserved | None:
    """Return why it is unknown whether a driver is installed; None if it is known of each.

    A driver needs no CSIDriver: without one, only the CSINodes show it.
    """
    view = context.view
    if isinstance(view, NotObserved) or isinstance(view.drivers, NotObserved):
        return None
    if not isinstance(view.csi_nodes, NotObserved):
        return None
    is_unknown = any(driver not in view.drivers for _, _, driver in _wanted_drivers(context))
    return view.csi_nodes if is_unknown else None


def _wanted_drivers(context: LintContext) -> Iterator[tuple[Manifest, str, str]]:
    """Yield each manifest that names a driver, with the field and the driver."""
    for item, volume in context.volumes():
        driver = _driver(volume)
        if driver is not None:
            yield item, "spec.csi.driver", driver
    for item, content in context.contents():
        yield item, "spec.driver", content.driver


def _driver(volume: PersistentVolume) -> str | None:
    match volume.source:
        case CsiSource(driver=driver):
            return driver
        case OtherSource(kind=kind, volume_handle=handle):
            return None if handle is None else kind
        case _:
            return None


def secrets(context: LintContext) -> Iterator[Problem]:
    """Report RBD733: a Secret that a PV names, and that does not exist."""
    for item, _ in context.volumes():
        for reference in item.secrets:
            key = (reference.namespace, reference.name)
            if key in context.manifests.secrets or context.around.secrets.get(key) is not False:
                continue
            name = f"{reference.namespace}/{reference.name}"
            yield problem(
                Code.SECRET_MISSING,
                item,
                reference.field,
                f"{subject_of(item)} refers to secret {name}, which does not exist: ceph-csi "
                "cannot log in to Ceph for it.",
                subject=subject_of(item),
                evidence=(f"secret {name}: not found",),
                remedy="Create the secret, or write the name and namespace of this cluster's "
                "secret into the PV before it is applied: the reference cannot be changed later.",
            )


def snapshots(context: LintContext) -> Iterator[Problem]:
    """Report RBD814: a VolumeSnapshotContent without a handle of a snapshot.

    Its status, which had the handle, is not restored, and the sidecar then calls CreateSnapshot
    (syncContent in pkg/sidecar-controller/snapshot_controller.go@afb2f0d of external-snapshotter).
    """
    for item, content in context.contents():
        if content.volume_handle and not content.snapshot_handle:
            yield problem(
                Code.SNAPSHOT_TAKEN_ANEW,
                item,
                "spec.source.volumeHandle",
                f"{content.name} names a volume and no snapshot: external-snapshotter takes a new "
                "snapshot of the volume as it is now, instead of the one that was saved.",
                subject=subject_of(item),
                evidence=("spec.source has volumeHandle and no snapshotHandle",),
            )


# --------------------------------------------------------------------------------------------------
# The cluster that the manifests came from
# --------------------------------------------------------------------------------------------------


def origin(context: LintContext) -> Iterator[Problem]:
    """Report RBD807, RBD815: the other cluster still has the volume, or means another Ceph."""
    other = context.around.origin
    if other is None:
        return
    view = other.view
    if not isinstance(view, NotObserved):
        for item, volume in context.volumes():
            yield from _still_there(item, volume, view, other.name)
    if not isinstance(other.csi_config, NotObserved):
        for handle in handles(context):
            yield from _other_monitors(context, handle, other.csi_config, other.name)


def _still_there(
    item: Manifest, volume: PersistentVolume, view: KubeView, name: str
) -> Iterator[Problem]:
    """Report RBD807: a PV with the same driver and handle in the other cluster."""
    pair = handle_of(volume.source)
    index = kube_index(view)
    for old in () if pair is None else index.volumes_by_handle.get(pair, ()):
        attached = index.attachments_by_volume.get(old.name, ())
        nodes = sorted({attachment.node_name for attachment in attached})
        where = (
            f" It is attached to {', '.join(nodes)} there: two clusters would write to one image."
        )
        deleted = " Its reclaim policy there is Delete: deleting its claim there deletes the image."
        yield problem(
            Code.STILL_IN_ORIGIN,
            item,
            OF_VOLUME,
            f"Cluster {foreign_name(name)} still has {old.name}, with the same handle."
            f"{where if nodes else ''}{deleted if old.reclaim_policy == 'Delete' else ''}",
            subject=subject_of(item),
            evidence=(
                f"{old.name} there: {old.phase or 'no phase'}, claim {old.claim or 'none'}",
                f"reclaim policy there: {old.reclaim_policy or 'unknown'}",
                *(f"VolumeAttachment {one.name}: {one.node_name}" for one in attached),
            ),
            severity=_weight(old, nodes),
        )


def _weight(old: PersistentVolume, nodes: list[str]) -> Severity:
    if nodes:
        return Severity.ERROR
    return Severity.WARNING if old.reclaim_policy == "Delete" else Severity.INFO


def _other_monitors(
    context: LintContext, handle: Handle, there: CsiConfig, name: str
) -> Iterator[Problem]:
    """Report RBD815: Rook names its clusterID after its namespace, in each cluster the same."""
    config = context.around.csi_config
    if isinstance(config, NotObserved):
        return
    cluster_id = handle.parsed.cluster_id
    ours, theirs = dict(config.clusters).get(cluster_id), dict(there.clusters).get(cluster_id)
    if not ours or not theirs or set(ours) & set(theirs):
        return
    yield problem(
        Code.CLUSTER_ID_MEANS_ANOTHER,
        handle.item,
        handle.field,
        f"clusterID {foreign_name(cluster_id)} of {subject_of(handle.item)} has other monitors "
        f"here than in cluster {foreign_name(name)}: it may be another Ceph cluster, in which the "
        "handle leads to another image or to none.",
        subject=subject_of(handle.item),
        evidence=(f"monitors here: {_listed([*ours])}", f"monitors there: {_listed([*theirs])}"),
    )


CHECKS: Final = (
    cluster_ids,
    pool_ids,
    drivers,
    secrets,
    snapshots,
    origin,
)
