"""What the API tells of this node's mappings, and of those who watch them from other nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from rbdagent.correlate import NodeUses, uses_of_node
from rbdagent.correlate.strangers import strangers
from rbdagent.diagnose.neighbours import would_conflict
from rbdagent.diagnose.target import volumes_of_use
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    Gap,
    KubeView,
    Node,
    NotObserved,
    Source,
    SourceState,
    VolumeUse,
    observed_of,
)
from rbdagent.observe.api import Api
from rbdagent.observe.asking import ATTACHMENTS, NODES, VOLUMES
from rbdagent.observe.failure import not_observed
from rbdagent.observe.kube import gaps_of
from rbdagent.observe.kubeconfig import credentials
from rbdagent.observe.named import NOTHING, NamedLook, lately
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.model import Holder, NodeView, Snapshot
    from rbdagent.observe.kubeconfig import KubeAccess

_T = TypeVar("_T")
Json = dict[str, Any]


class OwnObjects:
    """Asks for them by name, and remembers."""

    def __init__(self, access: KubeAccess, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._known = NOTHING
        self._elsewhere: frozenset[str] = frozenset()
        """Paths of what belongs to those who watch from other nodes."""

    def observe(self, node: NodeView | None) -> tuple[KubeView | None, Source]:
        """Ask for what belongs to the pods and mappings that this node has."""
        try:
            api = self._api()
        except (SourceError, ParseError) as error:
            return None, Source(state=SourceState.FAILED, reason=str(error), cure=error.hint)
        look = NamedLook(api, self._node_name, node, before=self._known, elsewhere=self._elsewhere)
        view = look.view()
        # As a whole, and last: a look that came late, and was left behind, breaks nothing.
        self._known = look.known()
        return view, Source(state=SourceState.OBSERVED, gaps=(*gaps_of(view), *look.gaps))

    def _api(self) -> Api:
        return Api(credentials(self._access), timeout_s=self._access.timeout_s)

    # Who watches from elsewhere -------------------------------------------------------------------

    def with_strangers(self, uses: NodeUses) -> NodeUses:
        """Give a look with what must be known of those who watch its images from elsewhere.

        Who they are only the look itself tells. An address leads to a Node: where none that is
        known has it, all are listed. Where a second writer would be one too many, all PVs are, for
        another one of the image may allow it, and all VolumeAttachments, which may tell his node.

        Args:
            uses: of a look; one that has asked for all there is, is given back.
        """
        kube = uses.snapshot.kubernetes
        if kube is None or kube.volumes_complete:
            return uses
        met = _met(uses)
        searched = lately(self._known.searched)
        nameless = {_address(each) for _, each in met if each.node is None} - searched.keys()
        suspects = {_pair(*each) for each in met if would_conflict(each[0])} - searched.keys()
        if nameless or suspects:
            uses = uses_of_node(self._searched(uses.snapshot, kube, nameless, suspects))
            met = _met(uses)
        self._elsewhere = self._paths_of(met)
        return uses

    def _searched(
        self, snapshot: Snapshot, kube: KubeView, nameless: set[str], suspects: set[str]
    ) -> Snapshot:
        """Search the lists; one that fails is a gap, and is made again at the next look."""
        source = snapshot.sources.kubernetes
        for fact, search, wanted in (
            ("all Nodes", self._with_nodes, nameless),
            ("all PersistentVolumes", self._with_volumes, suspects),
        ):
            try:
                kube = search(snapshot, kube, wanted) if wanted else kube
            except Exception as error:  # noqa: BLE001 - what the look has seen already stays
                missing = not_observed(error, fact)
                gap = Gap(fact=fact, reason=missing.reason, cure=missing.cure)
                source = replace(source, gaps=(*source.gaps, gap))
        sources = replace(snapshot.sources, kubernetes=source)
        return replace(snapshot, kubernetes=kube, sources=sources)

    def _with_nodes(self, snapshot: Snapshot, kube: KubeView, nameless: set[str]) -> KubeView:
        """Keep the Nodes that have such an address."""
        every = replace(kube, nodes=_all(self._api(), NODES, read.node))
        met = _met(uses_of_node(replace(snapshot, kubernetes=every)))
        nodes = {each.node_object for _, each in met if isinstance(each.node_object, Node)}
        # One that was found is kept by its name; when that is gone, its address may be another's.
        nowhere = nameless & {_address(each) for _, each in met if each.node is None}
        self._remember(nowhere)
        return replace(
            kube,
            nodes=(*observed_of(kube.nodes), *nodes.difference(observed_of(kube.nodes))),
            searched=(*kube.searched, *sorted(nowhere)),
        )

    def _with_volumes(self, snapshot: Snapshot, kube: KubeView, suspects: set[str]) -> KubeView:
        """Keep the PVs of such an image, and their VolumeAttachments."""
        api = self._api()
        every = replace(
            kube,
            persistent_volumes=_all(api, VOLUMES, read.persistent_volume),
            attachments=_all(api, ATTACHMENTS, read.attachment),
        )
        met = _met(uses_of_node(replace(snapshot, kubernetes=every)))
        uses = [use for use, each in met if _pair(use, each) in suspects]
        volumes = {volume for use in uses for volume in volumes_of_use(use)}
        attachments = {each for use in uses for each in observed_of(use.attachments)}
        found = suspects | {str(use.image.spec) for use in uses if use.image is not None}
        self._remember(found, {each.name for each in volumes})
        return replace(
            kube,
            persistent_volumes=_with(kube.persistent_volumes, volumes),
            attachments=_with(kube.attachments, attachments),
            searched=(*kube.searched, *sorted(found)),
        )

    def _remember(self, searched: Iterable[str], volumes: set[str] | None = None) -> None:
        now = dict.fromkeys(searched, time.monotonic())
        self._known = self._known._replace(
            searched=self._known.searched | now,
            volumes=self._known.volumes | (volumes or set()),
        )

    def _paths_of(self, met: Iterable[tuple[VolumeUse, Holder]]) -> frozenset[str]:
        paths = set()
        for use, holder in met:
            if holder.node is not None:
                paths.add(f"{NODES}/{quote(holder.node)}")
            paths |= {
                f"{ATTACHMENTS}/{quote(each.name)}"
                for each in observed_of(use.attachments)
                if each.node_name != self._node_name
            }
        return frozenset(paths)


def _met(uses: NodeUses) -> list[tuple[VolumeUse, Holder]]:
    """Give every stranger, and the volume that is mapped or waited for here."""
    return [(use, each) for use in uses.every for each in strangers(use)]


def _address(holder: Holder) -> str:
    return "" if holder.watcher is None else str(holder.watcher.address)


def _pair(use: VolumeUse, holder: Holder) -> str:
    """Name the meeting of an image and a client: the same client may come for another image."""
    return f"{use.target.given if use.image is None else use.image.spec} {_address(holder)}"


def _all(api: Api, path: str, reader: Callable[[Json], _T]) -> tuple[_T, ...]:
    return tuple(read.parse_object(reader, each, what=path) for each in api.list(path).items())


def _with(found: tuple[_T, ...] | NotObserved, more: set[_T]) -> tuple[_T, ...] | NotObserved:
    return found if isinstance(found, NotObserved) else (*found, *more.difference(found))
