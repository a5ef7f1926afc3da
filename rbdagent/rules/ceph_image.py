"""RBD3xx: rules on the state of the image in Ceph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, line_of, over_ssh
from rbdagent.correlate.holders import cluster_with, daemons_of, entry_hits, same_client
from rbdagent.correlate.image_identity import (
    are_mappings_observed,
    are_watchers_observed,
    mappings_of,
)
from rbdagent.correlate.published_reports import is_fresh
from rbdagent.correlate.views import fsids_of
from rbdagent.model import (
    BlocklistEntry,
    ClusterView,
    Command,
    EntityAddress,
    Finding,
    ImagePresence,
    ImageSpec,
    ImageView,
    LifecycleStep,
    LockHolder,
    Node,
    NotObserved,
    Recovery,
    Severity,
    Subject,
    SubjectKind,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.address import same_ip
from rbdagent.rules.context import Rule, RuleContext, finding, query_again, subject_of
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import handle_of_pv, pool_of_handle
from rbdagent.verdicts.volume_verdict import is_ambiguous, pvs_of, report_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOOK_FOR_IT: Final = "Check the trash (`rbd trash ls`), mirrors and backups."
_UNMAP: Final = "Unmap the remaining mappings of the image, once nothing uses them."

ENTRIES: Final = (
    Entry(
        Code.IMAGE_GONE,
        Severity.ERROR,
        "The image does not exist in the cluster.",
        remedy=f"{_LOOK_FOR_IT} {_UNMAP}",
        recovery=Recovery(note="a deleted image does not come back"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.IMAGE_IN_TRASH,
        Severity.WARNING,
        "The image is in the trash.",
        remedy="Restore it with `rbd trash restore` if it was deleted by mistake.",
        recovery=Recovery(note="the image is removed permanently when its deferment ends"),
        step=LifecycleStep.STAGE,
    ),
    # kubernetes#10563 added the lock, and kubernetes#51608 replaced it by a check of the watchers.
    Entry(
        Code.LEGACY_KUBELET_LOCK,
        Severity.ERROR,
        "An old kubelet's lock is left on the image.",
        remedy="When the node in the lock's name holds nothing, remove the lock with `rbd lock "
        "rm`.",
        recovery=Recovery(note="the client that took the lock is gone"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.LOCK_OF_FORMER_CLIENT,
        Severity.WARNING,
        "A lock belongs to a former client of the same node.",
        remedy="Nothing to do if the old client's mappings are gone. If the old client still has a "
        "mapping, unmap it first.",
        recovery=Recovery(
            actor="the next client that writes", condition="the old client's mapping is gone"
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.WATCH_LINGERS,
        Severity.INFO,
        "A client of this node watches the image, and no mapping here belongs to this client.",
        remedy="Run rbdagent again in 30 seconds. If the watch still exists, it belongs to a "
        "program that uses librbd.",
        recovery=Recovery(actor="Ceph", within_s=30),
    ),
    Entry(
        Code.NODE_ON_BLOCKLIST,
        Severity.WARNING,
        "The blocklist has entries for addresses of this volume's nodes.",
        remedy="Let the entry of a client that has nothing mapped expire. While a client has a "
        "device mapped, do not remove its entry or let it expire: stop its pods and unmap first. "
        "Remove the entry of a host (`ceph osd blocklist rm IP:0/0`) or of a range (`ceph osd "
        "blocklist range rm CIDR`) only when no node that it covers has a mapping left.",
        recovery=Recovery(
            actor="Ceph",
            condition="the entry expires",
            within_s=3600,
            note="from then on, a client that still has a device mapped writes without a watch",
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.AMBIGUOUS_IMAGE,
        Severity.ERROR,
        "Several clusters have an image of this name.",
        remedy="Name the volume by its device on its node, or observe one cluster at a time.",
        recovery=None,
    ),
)

_LEGACY = "kubelet_lock_magic_"


def image_gone(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD301 for an image that was deleted, RBD302 for one in the trash."""
    view, image = context.volume.image_view, context.volume.image
    if view is None or image is None:
        return
    mappings = _remaining_mappings(context)
    if view.presence is ImagePresence.GONE and _is_of_another_pool(context, view):
        yield from _gone_with_its_pool(context, image.spec, view, mappings)
    elif view.presence is ImagePresence.GONE:
        yield finding(
            Code.IMAGE_GONE,
            Subject.of_image(image.spec),
            stated(
                "Image {image} does not exist in cluster {cluster} (any more).{}",
                mappings,
                image=image.spec,
                cluster=view.fsid,
            ),
            evidence=(f"cluster {view.fsid} was queried for {image.spec} and has no such image",),
            remedy="" if mappings else _LOOK_FOR_IT,
            commands=(_trash(image.spec),),
            severity=Severity.INFO if _is_being_removed(context) else None,
        )
    elif view.presence is ImagePresence.TRASH:
        yield _in_trash(context, image.spec, view, mappings)


def _is_of_another_pool(context: RuleContext, view: ImageView) -> bool:
    """Return whether a cluster was queried for another pool than the PV's handle names by its id.

    A pool that is deleted and created again keeps its name and not its id.
    """
    handle = handle_of_pv(context)
    return handle is not None and view.pool_id not in {None, handle.pool_id}


def _gone_with_its_pool(
    context: RuleContext, spec: ImageSpec, view: ImageView, mappings: Words
) -> Iterator[Finding]:
    """Yield RBD301 for an image whose pool does not exist; nothing if the pool was not queried."""
    pool = pool_of_handle(context)
    if pool is None or pool.name or pool.cluster.fsid != view.fsid:
        return
    number = pool.handle.pool_id
    pools = ", ".join(str(known) for known, _ in observed_of(pool.cluster.pools))
    yield finding(
        Code.IMAGE_GONE,
        Subject(kind=SubjectKind.IMAGE, name=spec.name),
        stated(
            "Image {image} does not exist in cluster {cluster} (any more): the cluster has no "
            "pool {pool}, which the handle of its PV names.{}",
            mappings,
            image=spec.name,
            cluster=view.fsid,
            pool=number,
        ),
        evidence=(f"the ids of the pools of {view.fsid}: {pools}",),
        remedy=f"Make sure that this is the cluster of the volume. {_NO_TRASH}"
        + (f" {_UNMAP}" if mappings else ""),
        commands=(command("ceph osd pool ls detail"),),
        severity=Severity.INFO if _is_being_removed(context) else None,
    )


_NO_TRASH: Final = "The trash of a pool is deleted with it: only mirrors and backups have a copy."


def _in_trash(context: RuleContext, spec: ImageSpec, view: ImageView, mappings: Words) -> Finding:
    """Return RBD302; Ceph's manager removes what was deleted, once nothing needs it any more."""
    evidence = (f"id {view.image_id} in cluster {view.fsid}",)
    is_ending = _is_being_removed(context)
    if _REMOVAL not in observed_of(view.tasks):
        return finding(
            Code.IMAGE_IN_TRASH,
            Subject.of_image(spec),
            stated("Image {image} is in the trash of its pool.{}", mappings, image=spec),
            evidence=evidence,
            commands=(_trash(spec, long=True),),
            severity=Severity.INFO if is_ending else None,
        )
    is_needed = pvs_of(context.volume) != () and not is_ending
    return finding(
        Code.IMAGE_IN_TRASH,
        Subject.of_image(spec),
        stated(
            "Image {image} was deleted and is in the trash of its pool: Ceph's manager removes "
            "it.{}{}{}",
            _NEEDED if is_needed else "",
            _kept_by(view),
            mappings,
            image=spec,
        ),
        evidence=(*evidence, f"rbd_task has the task {_REMOVAL} for it"),
        remedy="If the volume is needed, cancel the task (`ceph rbd task cancel ID`), and then "
        "restore the image (`rbd trash restore`)."
        if is_needed
        else "No action is needed: the image is removed when nothing needs it any more. `ceph rbd "
        "task list` shows the task, and why an attempt failed.",
        commands=(
            *((_list_snapshots(spec, view),) if observed_of(view.snapshots) else ()),
            command("ceph rbd task list"),
        ),
        severity=Severity.ERROR if is_needed else Severity.INFO,
        recovery=Recovery(note="a removed image does not come back")
        if is_needed
        else Recovery(actor="Ceph's manager", condition="nothing needs the image any more"),
    )


_NEEDED: Final = " A PV of it exists: its data is about to be deleted."


def _kept_by(view: ImageView) -> Words:
    """Return what keeps the image in the trash, as a sentence."""
    known = view.snapshots
    if isinstance(known, NotObserved):
        return " Whether it has snapshots, which keep it, was not observed."
    if not known:
        return ""
    count = "a snapshot" if len(known) == 1 else stated("{count} snapshots", count=len(known))
    return stated(" It still has {}: it remains until they are gone.", count)


_REMOVAL: Final = "trash remove"
"""The action of a task of rbd_support, which ceph-csi adds when it deletes a volume. Snapshots of
the image, also those in its trash that a clone needs, and watchers make it fail (39, 16)."""


def _list_snapshots(spec: ImageSpec, view: ImageView) -> Command:
    namespace = (f"--namespace={spec.namespace}",) if spec.namespace else ()
    options = (f"--pool={spec.pool}", *namespace, f"--image-id={view.image_id}")
    return command("rbd snap ls --all", options=options)


def _is_being_removed(context: RuleContext) -> bool:
    """Return whether the PV is about to be deleted with its image, and nothing uses the image.

    The driver deletes the image first, then external-provisioner deletes the PV.
    """
    volume, claim = context.volume.persistent_volume, context.volume.claim
    if volume is None or volume.reclaim_policy != "Delete" or context.holder_verdicts:
        return False
    is_ending = context.kube.coverage.claims if claim is None else claim.deleting_since is not None
    return volume.deleting_since is not None or volume.phase == "Released" or is_ending


def _remaining_mappings(context: RuleContext) -> Words:
    """Return a sentence on the mappings that are left: on this node, or as agents reported them."""
    holders = [holder_verdict.holder for holder_verdict in context.holder_verdicts]
    # Another image may have had the name before.
    view = context.volume.image_view
    here = {None, None if view is None else view.image_id}
    mapped = [found for found in holders if found.mapping and found.mapping.image_id in here]
    if mapped:
        return stated(" {holder} still maps it.", holder=subject_of(mapped[0]))
    reports = [report_of(holder, context.snapshot.observed_at) for holder in holders]
    reported = [report for report in reports if report]
    return stated(" It was mapped: {reports}.", reports=reported) if reported else ""


def _trash(spec: ImageSpec, *, long: bool = False) -> Command:
    """Return the command that lists the trash of an image's pool."""
    namespace = (f"--namespace={spec.namespace}",) if spec.namespace else ()
    begin = "rbd trash ls --all --long" if long else "rbd trash ls --all"
    return command(begin, options=(f"--pool={spec.pool}", *namespace))


def _unlock(spec: ImageSpec, locker: LockHolder) -> Command:
    return command("rbd lock rm", str(spec), locker.lock_id, f"client.{locker.client}")


def _in_order(lockers: Iterable[LockHolder]) -> list[LockHolder]:
    return sorted(lockers, key=lambda locker: (locker.lock_id, locker.client))


def legacy_lock(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD303 for a lock that an old kubelet left behind."""
    view, image = context.volume.image_view, context.volume.image
    if view is None or image is None or not are_watchers_observed(view):
        return
    watchers = (*observed_of(view.watchers), *view.transient_watchers)
    watching = {watcher.client for watcher in watchers}
    for locker in _in_order(observed_of(view.lockers)):
        if not locker.lock_id.startswith(_LEGACY) or locker.client in watching:
            continue
        node = locker.lock_id.removeprefix(_LEGACY)
        yield finding(
            Code.LEGACY_KUBELET_LOCK,
            Subject.of_image(image.spec),
            stated(
                "A lock of an old kubelet on node {node} is left on {image}. Its client no longer "
                "watches the image.",
                node=node,
                image=image.spec,
            ),
            evidence=(f"lock {locker.lock_id!r} of client.{locker.client}",),
            remedy=f"When {node} holds nothing, show the lock again and remove exactly that one: "
            f"{line_of(_unlock(image.spec, locker))}. If the lock has changed, this fails, and has "
            "put the client on the blocklist.",
            commands=(command("rbd lock ls", str(image.spec)),),
        )


def lock_of_former_client(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD304 for a lock with this node's address and the nonce of none of its clients."""
    view = context.volume.image_view
    local = [
        holder_verdict.holder
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is not None
    ]
    if view is None or not local:
        return
    own = [holder.mapping.client_address for holder in local if holder.mapping is not None]
    watching = {watcher.client for watcher in observed_of(view.watchers)}
    for locker in _in_order(observed_of(view.lockers)):
        if not _is_former(locker, own) or locker.client in watching:
            continue
        yield finding(
            Code.LOCK_OF_FORMER_CLIENT,
            subject_of(local[0]),
            stated(
                "The exclusive lock belongs to {client}, a former client of {node} itself: "
                "the same address, another nonce.",
                client=f"client.{locker.client}",
                node=context.here,
            ),
            evidence=(f"lock {locker.lock_id!r} of client.{locker.client} {locker.address}",),
        )


def _is_former(locker: LockHolder, own: list[EntityAddress | None]) -> bool:
    address = locker.address
    if address is None or locker.lock_id.startswith(_LEGACY):
        return False
    known = [client for client in own if client is not None]
    if any(same_client(client, address) for client in known):
        return False
    return any(same_ip(client.ip, address.ip) for client in known)


def watch_lingers(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD305 for a watch that Ceph has not ended yet."""
    for holder_verdict in context.holders_with(Verdict.UNDETERMINED):
        holder = holder_verdict.holder
        if not holder.is_local or holder.mapping is not None or holder.watcher is None:
            continue
        if not holder_verdict.is_lingering:
            continue
        yield finding(
            Code.WATCH_LINGERS,
            subject_of(holder),
            stated(
                "{holder} watches the image, and {node} has no such mapping (any more). The watch "
                "of a client that ended expires after 30 s: run rbdagent again then.",
                holder=subject_of(holder),
                node=holder.node,
            ),
            evidence=holder_verdict.reasons,
            pods=holder_verdict.pods,
            commands=(query_again(context),),
        )


def node_on_blocklist(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD306 for entries that match the holders' nodes and are not reported as RBD103."""
    fsid = context.volume.image.fsid if context.volume.image is not None else None
    cluster = cluster_with(fsid, context.snapshot)
    if cluster is None:
        return
    reported = {holder_verdict.holder.blocklisted_by for holder_verdict in context.holder_verdicts}
    entries = observed_of(cluster.blocklist)
    for entry in sorted(entries, key=lambda entry: (entry.network, entry.nonce)):
        node = _node_hit(entry, context)
        if node is None or entry in reported or _is_of_former_daemon(entry, cluster):
            continue
        index = entry.nonce == 0
        devices = None if index else _devices_of_client(entry, node, context)
        daemons = _daemons_hit(entry, cluster)
        hosts = stated(" It also matches {daemons}.", daemons=daemons) if daemons else ""
        ends = stated(" until {until}", until=entry.until) if entry.until else ""
        is_former = devices == ()
        yield finding(
            Code.NODE_ON_BLOCKLIST,
            Subject.of_node(node),
            stated(
                "{node} is on the blocklist{}: {}{entry} matches {}.{}",
                ends,
                "range " if entry.is_range else "",
                _what_is_hit(devices, index=index),
                hosts,
                node=node,
                entry=entry,
            ),
            evidence=(f"{entry} {entry.until}".rstrip(),),
            remedy="" if is_former or index else _KEEP_ENTRY,
            commands=() if is_former else (_list_command(node, context),),
            severity=Severity.WARNING if index or daemons or devices else Severity.INFO,
            recovery=None if is_former else Recovery(note=_ENTRY_ENDS),
        )


_KEEP_ENTRY: Final = (
    "List the node's mappings. While a client still has a device mapped, do not remove its entry, "
    "and do not wait for it to expire: the device is then writable again without a watch, and "
    "another node maps the image too (RBD105). Stop the pods there and unmap, or reboot the node, "
    "before the entry expires."
)
_ENTRY_ENDS: Final = (
    "after the entry expires, devices that its client still has mapped are writable without a watch"
)


def _what_is_hit(devices: tuple[str, ...] | None, *, index: bool) -> Words:
    if index:
        return "every client on it"
    if devices is None:
        return "a client of it. Whether this client has a device mapped was not observed"
    if not devices:
        return "a former client of it, which has nothing mapped"
    return stated(
        "its client of {devices}: writes there fail, and so does every new map", devices=devices
    )


def _list_command(node: str, context: RuleContext) -> Command:
    if node == context.here:
        return command("rbdagent list", node=node)
    return over_ssh(node, command("rbdagent list"))


def _devices_of_client(
    entry: BlocklistEntry, node: str, context: RuleContext
) -> tuple[str, ...] | None:
    """Return what the client of an entry has mapped on its node; None if that is unknown.

    krbd shares one client between a node's mappings of one user. The mapping of this volume may
    belong to another client.
    """
    seen, complete = _mapped_on(node, context)
    hit = tuple(device for device, client in seen if client and entry_hits(entry, client))
    is_every_client_known = complete and all(client is not None for _, client in seen)
    return hit if hit or is_every_client_known else None


def _mapped_on(
    node: str, context: RuleContext
) -> tuple[tuple[tuple[str, EntityAddress | None], ...], bool]:
    """Return a node's devices with their clients, and whether these are all its devices now."""
    local = context.snapshot.node
    if local is not None and node == context.here:
        seen = tuple((mapping.device, mapping.client_address) for mapping in mappings_of(local))
        return seen, are_mappings_observed(local)
    kube = context.snapshot.kubernetes
    published = () if kube is None else observed_of(kube.published)
    theirs = next((agent for agent in published if agent.name == node), None)
    if theirs is None:
        return (), False
    fresh = is_fresh(theirs, context.snapshot.observed_at)
    mappings = tuple(
        (mapping.device, mapping.client_address) for mapping in observed_of(theirs.mappings)
    )
    complete = theirs.every_client and not theirs.incomplete
    return mappings, fresh and complete and not isinstance(theirs.mappings, NotObserved)


def _node_hit(entry: BlocklistEntry, context: RuleContext) -> str | None:
    """Return the node of this volume whose address an entry matches, whatever its nonce."""
    for holder_verdict in context.holder_verdicts:
        holder, node = holder_verdict.holder, holder_verdict.holder.node_object
        addresses = node.internal_ips if isinstance(node, Node) else ()
        if holder.mapping is not None and holder.mapping.client_address is not None:
            addresses = (*addresses, holder.mapping.client_address.ip)
        for ip in addresses:
            client = EntityAddress(ip=ip, port=entry.port, nonce=entry.nonce)
            if entry_hits(entry, client):
                return holder.node
    return None


def _is_of_former_daemon(entry: BlocklistEntry, cluster: ClusterView) -> bool:
    """Return whether an entry is of a former ceph-mgr at the address of a daemon.

    A mgr that is replaced gets an entry for each of its clients and for itself, all with one end
    (MgrMonitor::drop_active). A daemon binds a port; clients of krbd and librbd have port 0.
    """
    hosts = {daemon.address.ip for daemon in daemons_of(cluster)}
    if not entry.until or entry.nonce == 0 or entry.is_range:
        return False
    if not any(same_ip(entry.network, ip) for ip in hosts):
        return False
    return any(
        other.until == entry.until and other.network == entry.network and other.port != 0
        for other in observed_of(cluster.blocklist)
    )


def _daemons_hit(entry: BlocklistEntry, cluster: ClusterView) -> tuple[str, ...]:
    hit = (daemon for daemon in daemons_of(cluster) if entry_hits(entry, daemon.address))
    return tuple(sorted({f"{daemon.kind}.{daemon.name}" for daemon in hit}))


def ambiguous(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD307 for equal image names in several clusters."""
    image = context.volume.image
    if image is None or not is_ambiguous(context.volume, context.snapshot):
        return
    fsids = fsids_of(image, context.snapshot.node, context.snapshot.ceph)
    devices = [
        command(
            "rbdagent who-holds",
            holder_verdict.holder.mapping.device,
            node=holder_verdict.holder.node,
        )
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is not None
    ]
    yield finding(
        Code.AMBIGUOUS_IMAGE,
        Subject.of_image(image.spec),
        stated(
            "{count} clusters have an image {image}. Which of these images is meant is unknown. "
            "The holders of all of them are shown.",
            count=len(fsids),
            image=image.spec,
        ),
        evidence=tuple(f"cluster {fsid}" for fsid in fsids),
        commands=tuple(devices),
    )


RULES: Final = (
    Rule(250, image_gone),
    Rule(260, ambiguous),
    Rule(270, legacy_lock),
    Rule(570, watch_lingers),
    Rule(580, lock_of_former_client),
    Rule(590, node_on_blocklist),
)
