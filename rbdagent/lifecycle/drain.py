"""The check of a node before a drain, and after it.

It orders and selects what the rules find for the mappings of one node. On another node than the
observed one, what only that node shows is from the report of its agent, or not observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl
from rbdagent.correlate import correlate, correlate_node
from rbdagent.correlate.holders import daemon_of, node_at, published_client, same_client
from rbdagent.correlate.image_identity import (
    are_mappings_observed,
    are_watchers_observed,
    identity_of_mapping,
    same_image,
    volume_image,
)
from rbdagent.correlate.index import ceph_index, kube_index, node_index
from rbdagent.correlate.names import names_of_pv
from rbdagent.correlate.published_reports import is_fresh
from rbdagent.correlate.resolve import about
from rbdagent.correlate.views import views_of, with_pool_names
from rbdagent.correlate.volume_names import node_named
from rbdagent.lifecycle.drain_mappings import (
    observed_gaps,
    observed_items,
    observed_mappings,
    reported_gaps,
    reported_items,
    reported_mappings,
)
from rbdagent.lifecycle.drain_pods import (
    budgets_gap,
    deleted_with_pods,
    moves,
    pods_gap,
    refused_pods,
    volume_gaps,
    volumes_in_use,
)
from rbdagent.lifecycle.drain_requests import unclear_requests, waiting_requests
from rbdagent.model import (
    WEIGHT,
    Diagnosis,
    Gap,
    ImageIdentity,
    ImagePresence,
    ImageView,
    Node,
    NotObserved,
    OtherSource,
    PublishedNode,
    Snapshot,
    SourceState,
    Subject,
    Target,
    TargetKind,
    Watcher,
    observed_of,
)
from rbdagent.model.drain import (
    DrainCheck,
    DrainItem,
    DrainState,
    DrainStep,
    EarlierCheck,
    MappedVolume,
)
from rbdagent.parse.volume import DRIVER_SUFFIX
from rbdagent.rules import FINDINGS, MOST_COMMANDS, diagnose
from rbdagent.rules.context import subject_of
from rbdagent.verdicts.evidence import mount_text
from rbdagent.verdicts.timing import confirmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rbdagent.model import Command, HolderVerdict, NodeView, Pod
    from rbdagent.model import Mapping as RbdMapping

_STEPS = tuple(DrainStep)
_OF_PODS_ALONE = frozenset({DrainStep.REFUSED_POD, DrainStep.OUTSIDE_CLIENT})
"""Steps that ask whether a drain can begin or its pods start elsewhere: not what it has left."""


def is_observed_node(snapshot: Snapshot, node: str) -> bool:
    """Return whether a snapshot observed this node itself."""
    return snapshot.node is not None and snapshot.node.node_name == node


def diagnoses_on(snapshot: Snapshot, node: str) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of all volumes that a node has mapped, or that its pods should use.

    None if the snapshot did not observe the node itself.
    """
    view = snapshot.node
    if view is None or not is_observed_node(snapshot, node):
        return ()
    found = [diagnose(volume, snapshot) for volume in correlate_node(snapshot)]
    known = {
        volume.name
        for diagnosis in found
        for volume in (diagnosis.volume.persistent_volume, *diagnosis.volume.other_volumes)
        if volume is not None
    }
    beside = {mount.persistent_volume for mount in observed_of(view.unbacked)}
    beside |= volumes_in_use(snapshot, node).keys()
    for name in sorted(beside - known):
        target = Target(argument=f"pv/{name}", kind=TargetKind.PERSISTENT_VOLUME, name=name)
        part = about(target, snapshot)
        found.append(diagnose(correlate(part), part))
    return tuple(found)


def check_before(
    snapshot: Snapshot,
    node: str,
    diagnoses: Sequence[Diagnosis],
    again: NodeView | None = None,
) -> DrainCheck:
    """Return what blocks a drain of a node, or survives it, in the order in which to act.

    Args:
        snapshot: of the node, or of its cluster.
        node: the name of the node.
        diagnoses: of all volumes that the node has mapped; none if it was not observed itself.
        again: a further observation of the node; None without one.
    """
    seen = _SeenNode(snapshot, node, diagnoses)
    here = snapshot.node if is_observed_node(snapshot, node) else None
    gaps = (
        pods_gap(snapshot, node),
        budgets_gap(snapshot),
        *volume_gaps(snapshot, node),
        *(() if here is None else unclear_requests(here, again)),
    )
    return DrainCheck(
        node=node,
        is_after=False,
        reported_at=seen.reported_at,
        boot_id=seen.boot_id,
        mappings=seen.mappings,
        items=_in_order(
            (
                *seen.items,
                *(() if here is None else waiting_requests(here, again)),
                *_of_silent_node(seen, snapshot, node),
                *deleted_with_pods(snapshot, node),
                *refused_pods(snapshot, node),
            )
        ),
        moves=moves(snapshot, node),
        unobserved=_distinct((*seen.gaps, *(gap for gap in gaps if gap is not None))),
    )


def check_after(
    snapshot: Snapshot,
    node: str,
    diagnoses: Sequence[Diagnosis],
    earlier: EarlierCheck | None = None,
) -> DrainCheck:
    """Return what a drain has left on a node: mappings with their mounts, and watches.

    Args:
        snapshot: as for :func:`check_before`.
        node: the name of the node.
        diagnoses: as for :func:`check_before`.
        earlier: the check before the drain; None if its file was not given.
    """
    seen = _SeenNode(snapshot, node, diagnoses)
    images = linked_images(snapshot, node, earlier)
    watches = _Watches(snapshot, node, earlier, seen.mappings)
    left = [item for item in seen.items if item.step not in _OF_PODS_ALONE]
    explained = {item.subject for item in left}
    left += [item for item in seen.mapped_items if item.subject not in explained]
    views = [view for image in images for view in views_of(image, snapshot.ceph)]
    return DrainCheck(
        node=node,
        is_after=True,
        reported_at=seen.reported_at,
        boot_id=seen.boot_id,
        earlier_boot_id=None if earlier is None else earlier.boot_id,
        mappings=seen.mappings,
        items=_in_order((*left, *watches.items(views))),
        queried_images=len({(view.fsid, view.spec) for view in views if _is_known(view)}),
        unobserved=_distinct(
            (
                *seen.gaps_of_devices,
                *_gaps_of_links(snapshot, node, earlier),
                *_gaps_of_watches(images, snapshot),
                *watches.gaps(views),
            )
        ),
    )


def _of_silent_node(seen: _SeenNode, snapshot: Snapshot, node: str) -> Iterator[DrainItem]:
    """Yield that kubelet does not report: the API shows it, whichever machine runs this."""
    known = node_named(node, snapshot)
    is_found = any(item.code == Code.KUBELET_DOWN for item in seen.items)
    if isinstance(known, Node) and known.ready is None and not is_found:
        yield DrainItem(
            step=DrainStep.NODE_SERVICE_DOWN,
            subject=Subject.of_node(node),
            statement=f"kubelet on {node} does not report: the Node is Unknown. No pod there ends, "
            "and nothing is unmounted, until it reports again.",
            commands=(kubectl("describe node", node),),
        )


def _in_order(items: Iterable[DrainItem]) -> tuple[DrainItem, ...]:
    return tuple(sorted(items, key=_place))


def _place(item: DrainItem) -> tuple[int, int, str, str]:
    """Return the place of an item: its step, then the weight of its finding."""
    known = FINDINGS.get(item.code)
    weight = len(WEIGHT) if known is None else WEIGHT[known.severity]
    return _STEPS.index(item.step), weight, str(item.subject), item.code


def _distinct(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    return tuple(dict.fromkeys(gaps))


def next_commands(check: DrainCheck) -> tuple[Command, ...]:
    """Return the commands to run now: those of the first thing that has any, then the check again.

    If only facts are missing, show why.
    """
    again = command(
        "rbdagent drain-check", check.node, options=("--after",) if check.is_after else ()
    )
    if check.state is DrainState.CLEAR:
        return ()
    if check.state is DrainState.UNKNOWN:
        return (command("rbdagent check", node=check.node), again)
    first = next((item.commands for item in check.items if item.commands), ())
    return tuple(dict.fromkeys((*first[: MOST_COMMANDS - 1], again)))


class _SeenNode:
    """What was observed of a node: here, or by its agent."""

    def __init__(self, snapshot: Snapshot, node: str, diagnoses: Sequence[Diagnosis]) -> None:
        self._snapshot, self._node, self._diagnoses = snapshot, node, diagnoses
        self.reported_at: str | None = None
        self.boot_id: str | None = None
        self.mappings: tuple[MappedVolume, ...] | NotObserved
        if is_observed_node(snapshot, node):
            self._take_observed()
        else:
            self._take_report(trusted_report(snapshot, node))

    def _take_observed(self) -> None:
        snapshot, view = self._snapshot, self._snapshot.node
        assert view is not None  # noqa: S101 - the caller checked it
        self.boot_id = view.boot_id
        self.items = tuple(observed_items(self._diagnoses, snapshot))
        self.gaps = tuple(observed_gaps(self._diagnoses, snapshot, self.items))
        self.mappings = observed_mappings(self._diagnoses)
        self.gaps_of_devices: tuple[Gap, ...] = ()
        self.mapped_items = tuple(
            _mapped_item(held, mapping, diagnosis)
            for diagnosis in self._diagnoses
            for held, mapping in diagnosis.mapped
        )
        if not are_mappings_observed(view):
            reason = view.mappings if isinstance(view.mappings, NotObserved) else None
            self._lack(reason or NotObserved(reason="its devices were not observed"))

    def _take_report(self, report: PublishedNode | NotObserved) -> None:
        known = node_named(self._node, self._snapshot)
        self.boot_id = known.boot_id if isinstance(known, Node) else None
        self.items, self.gaps, self.gaps_of_devices, self.mapped_items = (), (), (), ()
        if isinstance(report, NotObserved):
            self._lack(report)
            return
        self.reported_at = report.observed_at
        self.boot_id = report.boot_id or self.boot_id
        self.items = tuple(reported_items(report))
        self.gaps = (
            *reported_gaps(report),
            *_unmapped_in_use(report, volumes_in_use(self._snapshot, self._node)),
        )
        self.mappings = reported_mappings(report)
        self.mapped_items = tuple(
            DrainItem(
                step=DrainStep.MAPPED,
                subject=Subject.of_device(mapping.device, self._node),
                statement=f"{mapping.device} on {self._node} is mapped, as its agent reports.",
                evidence=(f"verdict {mapping.verdict}",),
            )
            for mapping in observed_of(self.mappings)
        )

    def _lack(self, why: NotObserved) -> None:
        """Take that the mappings of the node were not observed."""
        self.mappings = why
        gap = Gap(fact=f"what is mapped on {self._node}", reason=why.reason, hint=why.hint)
        self.gaps = (*self.gaps, gap)
        self.gaps_of_devices = (gap,)


def _unmapped_in_use(report: PublishedNode, used: Mapping[str, Pod]) -> Iterator[Gap]:
    """Yield the pods whose volume the report does not have: they may write to the node's disk."""
    mapped = {mapping.persistent_volume for mapping in observed_of(report.mappings)}
    for name, pod in sorted(used.items()):
        if name not in mapped:
            yield Gap(
                fact=f"where pod {pod.ref} writes",
                reason=f"the agent on {report.name} reports no mapping of {name}",
                hint=f"run it on {report.name}; kubectl rbdagent does that",
            )


def _mapped_item(held: HolderVerdict, mapping: RbdMapping, diagnosis: Diagnosis) -> DrainItem:
    subject, volume = subject_of(held.holder), diagnosis.volume.persistent_volume
    mounts = tuple(dict.fromkeys(map(mount_text, observed_of(mapping.mounts))))
    paths = "1 path" if len(mounts) == 1 else f"{len(mounts)} paths"
    mounted = f", and mounted at {paths}" if mounts else ""
    shown = (
        command("rbdagent diagnose", mapping.device, node=held.holder.node)
        if volume is None
        else command("rbdagent diagnose", f"pv/{volume.name}")
    )
    return DrainItem(
        step=DrainStep.MAPPED,
        subject=subject,
        statement=f"{subject} is mapped{mounted}: {held.reasons[0]}.",
        evidence=(*held.reasons, *mounts),
        commands=(shown,),
    )


# --------------------------------------------------------------------------------------------------
# The report of the agent
# --------------------------------------------------------------------------------------------------


def trusted_report(snapshot: Snapshot, node: str) -> PublishedNode | NotObserved:
    """Return the report of a node's agent, or why it does not show what is mapped there now.

    After a boot, an agent's report may be a few minutes old and of the boot before: the boot id
    that kubelet has reported meanwhile shows that.
    """
    hint = f"run it on {node}; kubectl rbdagent does that where an agent runs"
    kube, here = snapshot.kubernetes, snapshot.sources.node
    if kube is None:
        reason = snapshot.sources.kubernetes.reason or "the Kubernetes API was not queried"
        why = f"{here.reason}; " if here.reason else ""
        return NotObserved(reason=f"{why}the report of its agent: {reason}", hint=hint)
    if isinstance(kube.published, NotObserved):
        return kube.published
    report = next((one for one in kube.published if one.name == node), None)
    if report is None:
        return NotObserved(reason="no agent has published its mappings", hint=hint)
    if isinstance(report.mappings, NotObserved):
        return report.mappings
    doubt = _doubt(report, snapshot)
    return NotObserved(reason=doubt, hint=hint) if doubt else report


def _doubt(report: PublishedNode, snapshot: Snapshot) -> str:
    """Return why a report does not show the present mappings of its node; empty if it does."""
    if report.incomplete:
        return report.incomplete
    if not is_fresh(report, snapshot.observed_at):
        return f"its agent last {confirmed(report, snapshot.observed_at)}"
    known = node_named(report.name, snapshot)
    boot_id = known.boot_id if isinstance(known, Node) else None
    if boot_id is None or report.boot_id is None:
        return "whether the report of its agent is of the present boot was not observed"
    if report.boot_id != boot_id:
        return (
            f"the report of its agent is of boot {report.boot_id}, and kubelet reports boot "
            f"{boot_id}"
        )
    return ""


# --------------------------------------------------------------------------------------------------
# Watches after a drain
# --------------------------------------------------------------------------------------------------


def linked_images(
    snapshot: Snapshot, node: str, earlier: EarlierCheck | None = None
) -> tuple[ImageIdentity, ...]:
    """Return the images that a client of a node may still watch, as far as anything names them.

    These are the images of its mappings, of its VolumeAttachments, of the volumes that kubelet
    lists and that its pods use, of the report of its agent, and of the check before the drain.
    """
    found: list[ImageIdentity | None] = []
    if is_observed_node(snapshot, node):
        found += [identity_of_mapping(mapping) for mapping in node_index(snapshot.node).mappings]
    found += _images_in_api(snapshot, node)
    if earlier is not None:
        found += [mapping.image for mapping in earlier.mappings]
    distinct: list[ImageIdentity] = []
    for image in found:
        if image is None:
            continue
        named = with_pool_names(image, snapshot.ceph)
        if not any(same_image(named, other) for other in distinct):
            distinct.append(named)
    return tuple(distinct)


def _images_in_api(snapshot: Snapshot, node: str) -> Iterator[ImageIdentity | None]:
    kube = snapshot.kubernetes
    if kube is None:
        return
    index, known = kube_index(kube), node_named(node, snapshot)
    listed = known.names_in_use | known.names_attached if isinstance(known, Node) else frozenset()
    names = {
        attachment.persistent_volume
        for attachment in observed_of(kube.attachments)
        if attachment.node_name == node
    }
    claims = {
        (pod.ref.namespace, claim)
        for pod in index.pods_on_node.get(node, ())
        for claim in pod.claims
    }
    names |= {volume.name for key in claims for volume in index.volumes_of_claim(key)}
    for volume in index.volumes:
        if isinstance(volume.source, OtherSource):
            continue
        if volume.name in names or not names_of_pv(volume).in_use_names.isdisjoint(listed):
            yield volume_image(volume)
    for report in observed_of(kube.published):
        if report.name == node:
            yield from (mapping.image for mapping in observed_of(report.mappings))


class _Watches:
    """The watches of a node's clients: certain by client, probable by address."""

    def __init__(
        self,
        snapshot: Snapshot,
        node: str,
        earlier: EarlierCheck | None,
        mappings: tuple[MappedVolume, ...] | NotObserved,
    ) -> None:
        self._snapshot, self._node = snapshot, node
        self._mapped = observed_of(mappings)
        self._former = () if earlier is None else earlier.mappings

    def items(self, views: Iterable[ImageView]) -> Iterator[DrainItem]:
        """Yield a watch that is not that of a mapping which is reported itself."""
        for watcher, view in self._of_no_mapping(views):
            if self._was_here(watcher):
                yield self._item(watcher, view, f"a client that {self._node} had before")
            elif node_at(watcher.address.ip, self._snapshot) == self._node:
                yield self._item(watcher, view, f"by its address, a client of {self._node}")

    def gaps(self, views: Iterable[ImageView]) -> Iterator[Gap]:
        """Yield the watches that may be of the node: those of a client that leads to no node."""
        for watcher, view in self._of_no_mapping(views):
            publisher, _ = published_client(watcher, view, self._snapshot)
            is_placed = (
                self._was_here(watcher)
                or publisher is not None
                or node_at(watcher.address.ip, self._snapshot) is not None
            )
            if not is_placed:
                yield Gap(
                    fact=f"whose client watches {view.spec}",
                    reason=f"client.{watcher.client} at {watcher.address} leads to no node",
                )

    def _of_no_mapping(self, views: Iterable[ImageView]) -> Iterator[tuple[Watcher, ImageView]]:
        """Yield the watches of neither a daemon of Ceph nor a mapping that the node has."""
        for view in views:
            for watcher in observed_of(view.watchers):
                is_daemon = daemon_of(watcher, view, self._snapshot) is not None
                if not is_daemon and not any(_is_client(watcher, one) for one in self._mapped):
                    yield watcher, view

    def _was_here(self, watcher: Watcher) -> bool:
        return any(_is_client(watcher, mapping) for mapping in self._former)

    def _item(self, watcher: Watcher, view: ImageView, whose: str) -> DrainItem:
        client = f"client.{watcher.client} at {watcher.address}"
        return DrainItem(
            step=DrainStep.WATCHED,
            subject=Subject.of_client(client, self._node),
            statement=f"{client} watches {view.spec}: {whose}. Ceph ends the watch of a client "
            "that is gone after 30 seconds, unless osd_client_watch_timeout is another.",
            evidence=(f"watcher of {view.header or view.spec} in cluster {view.fsid}",),
        )


def _is_client(watcher: Watcher, mapping: MappedVolume) -> bool:
    address = mapping.client_address
    if address is None or not same_client(address, watcher.address):
        return False
    return mapping.client_id in {None, watcher.client}


def _is_known(view: ImageView) -> bool:
    """Return whether the watchers of an image were observed; a deleted image has none."""
    return view.presence is ImagePresence.GONE or are_watchers_observed(view)


def _gaps_of_links(snapshot: Snapshot, node: str, earlier: EarlierCheck | None) -> Iterator[Gap]:
    """Yield why the API does not name the images of a node, or which of its names lead to none.

    The check before the drain names images too, but not those that the node has mapped since.
    """
    kube, source = snapshot.kubernetes, snapshot.sources.kubernetes
    fact = "which images the node may still watch"
    if kube is None:
        reason = source.reason or "the Kubernetes API was not queried"
        yield Gap(fact=fact, reason=reason, hint=source.hint)
        return
    for why in (kube.attachments, kube.persistent_volumes, kube.nodes, kube.pods):
        if isinstance(why, NotObserved):
            yield Gap(fact=fact, reason=why.reason, hint=why.hint)
    yield from _without_image(snapshot, node, earlier)
    known = {volume.name for volume in kube_index(kube).volumes}
    for attachment in observed_of(kube.attachments):
        is_rbd = attachment.attacher.endswith(DRIVER_SUFFIX)
        if is_rbd and attachment.node_name == node and attachment.persistent_volume not in known:
            yield Gap(
                fact=f"which image {attachment.persistent_volume} has",
                reason=f"VolumeAttachment {attachment.name} names this PV, which was not observed",
            )


def _without_image(snapshot: Snapshot, node: str, earlier: EarlierCheck | None) -> Iterator[Gap]:
    """Yield what the node had or should have, and whose image is not known."""
    if any(image is None for image in _images_in_api(snapshot, node)):
        yield Gap(
            fact="which images the node may still watch",
            reason="the image of a PV or a mapping that the API names for it is not known",
        )
    for mapping in () if earlier is None else earlier.mappings:
        if mapping.image is None:
            yield Gap(
                fact=f"which image {mapping.device} had",
                reason="the check before the drain does not have it",
            )
    known = node_named(node, snapshot)
    index = kube_index(snapshot.kubernetes)
    listed = known.names_in_use if isinstance(known, Node) else frozenset()
    named = {name for volume in index.volumes for name in names_of_pv(volume).in_use_names}
    for name in sorted(listed - named):
        # Other drivers have volumes there too: kubernetes.io/csi/DRIVER^HANDLE.
        if not name.partition("^")[0].endswith(DRIVER_SUFFIX):
            continue
        yield Gap(fact=f"which image {name} has", reason=f"{node} lists it, and no PV has it")


def _gaps_of_watches(images: Sequence[ImageIdentity], snapshot: Snapshot) -> Iterator[Gap]:
    """Yield why the watchers of an image were not observed."""
    source = snapshot.sources.ceph
    if not images:
        return
    if snapshot.ceph is None:
        reason = source.reason or "Ceph was not queried"
        yield Gap(fact="the watchers of the images", reason=reason, hint=source.hint)
        return
    clusters = ceph_index(snapshot.ceph).clusters
    if not clusters:
        yield Gap(fact="the watchers of the images", reason="no Ceph cluster is configured")
        return
    unread = [cluster for cluster in clusters if cluster.source.state is not SourceState.OBSERVED]
    for image in images:
        views = views_of(image, snapshot.ceph)
        if (
            image.fsid is None
            and unread
            and all(view.presence is ImagePresence.GONE for view in views)
        ):
            reason = f"cluster {unread[0].name}: {unread[0].source.reason}"
            yield Gap(fact=f"the watchers of {image.spec}", reason=reason)
            continue
        if not views:
            yield Gap(fact=f"the watchers of {image.spec}", reason="Ceph was not queried about it")
        for view in views:
            if _is_known(view):
                continue
            why = view.watchers if isinstance(view.watchers, NotObserved) else view.presence
            known = why if isinstance(why, NotObserved) else NotObserved(reason="not observed")
            yield Gap(fact=f"the watchers of {image.spec}", reason=known.reason, hint=known.hint)
