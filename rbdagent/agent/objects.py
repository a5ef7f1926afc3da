"""The API objects of this node's mappings, and of clients on other nodes that watch the images."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from rbdagent.collect.failure import gaps_in, not_observed
from rbdagent.collect.kube.client import Api, segment
from rbdagent.collect.kube.get_by_name import NOTHING, NamedReader, lately
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.list_target import gaps_of
from rbdagent.collect.kube.requests import ATTACHMENTS, NODES, VOLUMES
from rbdagent.correlate import NodeVolumes, volumes_of_node
from rbdagent.correlate.unknown_watchers import watchers_elsewhere
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    KubeView,
    Node,
    NotObserved,
    Source,
    SourceState,
    Volume,
    derived,
    observed_of,
)
from rbdagent.parse import kubernetes as read
from rbdagent.verdicts.neighbours import would_conflict
from rbdagent.verdicts.volume_verdict import pvs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.model import Holder, NodeView, Snapshot

_T = TypeVar("_T")
Json = dict[str, Any]


class OwnObjects:
    """Requests the objects by name, and caches them."""

    def __init__(self, access: KubeAccess, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._known = NOTHING
        self._elsewhere: frozenset[str] = frozenset()
        """API paths of the objects that belong to watchers on other nodes."""

    def observe(self, node: NodeView | None) -> tuple[KubeView | None, Source]:
        """Return the objects that belong to the pods and mappings of this node."""
        try:
            api = self._api()
        except (SourceError, ParseError) as error:
            return None, Source(state=SourceState.FAILED, reason=str(error), hint=error.hint)
        look = NamedReader(
            api, self._node_name, node, before=self._known, elsewhere=self._elsewhere
        )
        view = look.view()
        # Assign once, at the end, so that a request that is abandoned at its deadline changes
        # nothing.
        self._known = look.known()
        return view, Source(state=SourceState.OBSERVED, gaps=(*gaps_of(view), *look.gaps))

    def _api(self) -> Api:
        return Api(credentials(self._access), timeout_s=self._access.timeout_s)

    # Watchers on other nodes ----------------------------------------------------------------------

    def with_strangers(self, uses: NodeVolumes) -> NodeVolumes:
        """Return the uses with the objects of clients on other nodes that watch their images.

        The snapshot shows the addresses of these clients. An address leads to a Node. If no known
        Node has the address, all Nodes are listed. If a second writer would be a conflict, all PVs
        and all VolumeAttachments are also listed: another PV of the image may allow the writer, and
        a VolumeAttachment may name the node of the client.

        Args:
            uses: of a snapshot; returned unchanged if the snapshot has all objects of the API.
        """
        kube = uses.snapshot.kubernetes
        if kube is None or kube.volumes_complete:
            return uses
        pairs = _watchers_elsewhere(uses)
        searched = lately(self._known.searched)
        unknown = {_address(holder) for _, holder in pairs if holder.node is None} - searched.keys()
        suspects = {
            _pair(volume, holder) for volume, holder in pairs if would_conflict(volume)
        } - searched.keys()
        if unknown or suspects:
            uses = volumes_of_node(self._searched(uses.snapshot, kube, unknown, suspects))
            pairs = _watchers_elsewhere(uses)
        self._elsewhere = self._paths_of(pairs)
        return uses

    def _searched(
        self, snapshot: Snapshot, kube: KubeView, unknown: set[str], suspects: set[str]
    ) -> Snapshot:
        """Search the lists; a failed list is a gap, and is requested again in the next cycle."""
        source = snapshot.sources.kubernetes
        for fact, search, wanted in (
            ("all Nodes", self._with_nodes, unknown),
            ("all PersistentVolumes", self._with_volumes, suspects),
        ):
            try:
                kube = search(snapshot, kube, wanted) if wanted else kube
            except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
                gaps = gaps_in([(fact, not_observed(error, fact))])
                source = replace(source, gaps=(*source.gaps, *gaps))
        sources = replace(snapshot.sources, kubernetes=source)
        return replace(snapshot, kubernetes=kube, sources=sources)

    def _with_nodes(self, snapshot: Snapshot, kube: KubeView, unknown: set[str]) -> KubeView:
        """Return the view with the Nodes that have one of the unknown addresses."""
        every = replace(kube, nodes=_all(self._api(), NODES, read.node))
        pairs = _watchers_elsewhere(volumes_of_node(replace(snapshot, kubernetes=every)))
        nodes = {holder.node_object for _, holder in pairs if isinstance(holder.node_object, Node)}
        # A Node that was found is cached by its name. After it is deleted, another Node may get its
        # address.
        still_unknown = unknown & {_address(holder) for _, holder in pairs if holder.node is None}
        self._record(still_unknown)
        return replace(
            kube,
            nodes=(*observed_of(kube.nodes), *nodes.difference(observed_of(kube.nodes))),
            searched=(*kube.searched, *sorted(still_unknown)),
        )

    def _with_volumes(self, snapshot: Snapshot, kube: KubeView, suspects: set[str]) -> KubeView:
        """Return the view with the PVs of the suspect images, and their VolumeAttachments."""
        api = self._api()
        every = replace(
            kube,
            persistent_volumes=_all(api, VOLUMES, read.persistent_volume),
            attachments=_all(api, ATTACHMENTS, read.attachment),
        )
        pairs = _watchers_elsewhere(volumes_of_node(replace(snapshot, kubernetes=every)))
        uses = [volume for volume, holder in pairs if _pair(volume, holder) in suspects]
        volumes = {persistent_volume for volume in uses for persistent_volume in pvs_of(volume)}
        attachments = {
            attachment for volume in uses for attachment in observed_of(volume.attachments)
        }
        found = suspects | {str(volume.image.spec) for volume in uses if volume.image is not None}
        self._record(found, {persistent_volume.name for persistent_volume in volumes})
        return replace(
            kube,
            persistent_volumes=_with(kube.persistent_volumes, volumes),
            attachments=_with(kube.attachments, attachments),
            searched=(*kube.searched, *sorted(found)),
        )

    def _record(self, searched: Iterable[str], volumes: set[str] | None = None) -> None:
        now = dict.fromkeys(searched, time.monotonic())
        self._known = self._known._replace(
            searched=self._known.searched | now,
            volumes=self._known.volumes | (volumes or set()),
        )

    def _paths_of(self, pairs: Iterable[tuple[Volume, Holder]]) -> frozenset[str]:
        paths = set()
        for volume, holder in pairs:
            if holder.node is not None:
                paths.add(f"{NODES}/{segment(holder.node)}")
            paths |= {
                f"{ATTACHMENTS}/{segment(attachment.name)}"
                for attachment in observed_of(volume.attachments)
                if attachment.node_name != self._node_name
            }
        return frozenset(paths)


def _watchers_elsewhere(uses: NodeVolumes) -> list[tuple[Volume, Holder]]:
    """Return each watcher on another node with the use that it watches on this node."""
    return [
        (volume, holder) for volume in uses.all_volumes for holder in watchers_elsewhere(volume)
    ]


def _address(holder: Holder) -> str:
    return "" if holder.watcher is None else str(holder.watcher.address)


def _pair(volume: Volume, holder: Holder) -> str:
    """Return a key for an image and a client, because one client may watch several images."""
    named = volume.target.argument if volume.image is None else volume.image.spec
    return f"{named} {_address(holder)}"


def _all(api: Api, path: str, reader: Callable[[Json], _T]) -> tuple[_T, ...]:
    return tuple(read.parse_object(reader, item, what=path) for item in api.list(path).items())


def _with(found: tuple[_T, ...] | NotObserved, more: set[_T]) -> tuple[_T, ...] | NotObserved:
    return derived(found, lambda known: (*known, *more.difference(known)))
