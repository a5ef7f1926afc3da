"""What the agents of all nodes published: RBDMappings, RBDNodes, and the Leases they renew.

An answer about one image does not read the RBDMappings of all nodes: the labels of RBDNodes lead to
those of the image (:mod:`rbdagent.parse.labels`). These RBDNodes are read from the API server's
cache (resourceVersion 0), because a list from etcd would read every object to find a few. Then the
RBDNodes of the holders' nodes, or of all nodes if there is no holder, are read from etcd. They have
the keys of all images that their nodes map, so that a missing mapping is recognised.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import (
    APPLY_RESOURCES,
    NOT_FOUND,
    RBD_MAPPINGS,
    RBD_NODES,
    all_observed,
    found_object,
    lease_list,
    listed,
    objects,
)
from rbdagent.correlate.published_reports import SKEW
from rbdagent.errors import SourceError
from rbdagent.model import Lease, NotObserved, PublishedMapping, PublishedNode, PublishedSummary
from rbdagent.parse import kubernetes as read
from rbdagent.parse import labels
from rbdagent.parse.times import age, later_by

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from rbdagent.collect.kube.client import Listing
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.parse.labels import Lookup

Json = dict[str, Any]

_MOST_LABELS: Final = 8
"""Lists of RBDNodes that are cheaper than one of all RBDMappings."""
_MOST_NAMED: Final = 50
"""RBDMappings that are requested by name. A volume may be mapped on every node."""


class ReadMapping(NamedTuple):
    """An RBDMapping, its node, and when the agent there wrote it."""

    node: str
    observed_at: str
    mapping: PublishedMapping


class FoundMappings(NamedTuple):
    """What a lookup found."""

    mappings: tuple[ReadMapping, ...] = ()
    nodes: frozenset[str] = frozenset()
    """The nodes of the mappings, and those whose RBDNode names a mapping that is missing."""

    def with_more(self, more: FoundMappings) -> FoundMappings:
        """Return both results, each mapping once."""
        found = dict.fromkeys((*self.mappings, *more.mappings))
        return FoundMappings(tuple(found), self.nodes | more.nodes)


_NO_MAPPINGS: Final = FoundMappings()


# All nodes ----------------------------------------------------------------------------------------


def published_nodes(access: KubeAccess) -> Iterator[PublishedNode]:
    """Yield the reports of all nodes in the order of their RBDMappings; one page is in memory.

    Raises:
        SourceError: a request failed. If the API has no such resource, the hint shows how to
            install it.
    """
    api = Api(credentials(access), timeout_s=access.timeout_s)
    try:
        listing = api.list(RBD_MAPPINGS)
        summaries = _by_node(summaries_in(api, api.list(RBD_NODES)), frozenset())
        yield from _joined(
            summaries, objects(listing, read_mapping, what="RBDMapping", ahead=False)
        )
    except StatusError as error:
        if error.status != NOT_FOUND:
            raise
        raise SourceError(
            f"{api.server} has no resource rbdnodes.rbdagent.dev or rbdmappings.rbdagent.dev: no "
            "agent publishes here",
            hint=f"install the agents (docs/install.md); without Helm, first {APPLY_RESOURCES}",
        ) from error


def _joined(
    summaries: dict[str, PublishedSummary], mappings: Iterable[ReadMapping]
) -> Iterator[PublishedNode]:
    """Yield the reports of nodes.

    Nodes without mappings are at the end: whether a node has any is known only there.
    """
    rest = dict(summaries)
    for node, theirs in _grouped(mappings):
        yield node_report(node, rest.pop(node, None), theirs, None)
    for node, summary in rest.items():
        yield node_report(node, summary, [], None)


def _grouped(mappings: Iterable[ReadMapping]) -> Iterator[tuple[str, list[ReadMapping]]]:
    """Yield nodes with their mappings, from a list in order of the names, ``NODE.DEVICE``.

    The mappings of the node ``a.r`` are between those of the node ``a``: ``a.nbd0``, ``a.r.rbd0``,
    ``a.rbd0``.
    """
    begun: dict[str, list[ReadMapping]] = {}
    for one in mappings:
        ended = [node for node in begun if not f"{one.node}.".startswith(f"{node}.")]
        for node in ended:
            yield node, begun.pop(node)
        begun.setdefault(one.node, []).append(one)
    yield from begun.items()


def begin_reports(api: Api) -> Callable[[], tuple[PublishedNode, ...] | NotObserved]:
    """Request everything that agents published; return a function that waits for it.

    Without the resources there is no agent, and the result is empty.
    """
    mappings, nodes = api.list(RBD_MAPPINGS), api.list(RBD_NODES)

    def wait() -> tuple[PublishedNode, ...] | NotObserved:
        try:
            found = list(unless_missing(objects(mappings, read_mapping, what="RBDMapping")))
            summaries = unless_missing(summaries_in(api, nodes))
            return _reports(found, _by_node(summaries), None)
        except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
            return not_observed(error, RBD_MAPPINGS)

    return wait


# One image ----------------------------------------------------------------------------------------


def mappings_with(
    connection: Connection, lookup: Lookup, *, known: FoundMappings = _NO_MAPPINGS
) -> FoundMappings | NotObserved:
    """Return the RBDMappings that a lookup leads to.

    Args:
        connection: to the API server.
        lookup: of images, clients or volumes.
        known: mappings that need not be requested again.
    """
    try:
        api = connection.api()
        if 0 < len(lookup.node_labels) <= _MOST_LABELS:
            names = _names(api, lookup.node_labels)
            if names is not None and len(names) <= _MOST_NAMED:
                return _named(api, names, known)
        found = _selected(api, lookup.selectors)
        return FoundMappings(found, frozenset(one.node for one in found))
    except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
        return not_observed(error, RBD_MAPPINGS)


def reports_of(found: FoundMappings) -> tuple[PublishedNode, ...]:
    """Return the reports that RBDMappings are part of, without their RBDNodes."""
    return _reports(found.mappings, {}, frozenset())


def reports_about(
    connection: Connection,
    found: FoundMappings,
    keys: frozenset[str],
    nodes: Collection[str] | None,
) -> tuple[PublishedNode | NotObserved, ...] | NotObserved:
    """Return the reports of nodes about one image; NotObserved for a node that may map it too.

    Args:
        connection: to the API server.
        found: the RBDMappings of the image and of clients that watch it.
        keys: of the image, as RBDNodes have them.
        nodes: whose RBDNodes are requested by name; None for all nodes, which shows that no other
            node maps the image.
    """
    try:
        api = connection.api()
        summaries: Mapping[str, PublishedSummary | NotObserved | None]
        if nodes is None:
            every = unless_missing(summaries_in(api, api.list(RBD_NODES)))
            summaries = _by_node(every, keys | {labels.UNKNOWN_IMAGE, labels.UNKNOWN_VOLUME})
        else:
            summaries = _summaries_named(api, nodes)
        there = {one.node for one in found.mappings}
        unseen = (
            summary
            for name, summary in summaries.items()
            if isinstance(summary, NotObserved) and name not in there
        )
        return (*_reports(found.mappings, summaries, keys), *unseen)
    except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
        return not_observed(error, RBD_NODES)


def reports_of_nodes(
    access: KubeAccess, names: Sequence[str]
) -> dict[str, PublishedNode | NotObserved | None]:
    """Return the complete reports of the named nodes; None if a node has no agent."""
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
        found = _selected(api, labels.selectors(labels.NODE, names))
    except Exception as error:  # noqa: BLE001 - as above
        return dict.fromkeys(names, not_observed(error, RBD_MAPPINGS))
    summaries = _summaries_named(api, names)
    return {
        name: summary
        if isinstance(summary, NotObserved)
        else node_report(name, summary, theirs, None)
        if (theirs := [one for one in found if one.node == name]) or summary is not None
        else None
        for name, summary in summaries.items()
    }


def _names(api: Api, node_labels: Sequence[str]) -> dict[str, str] | None:
    """Return the names of the RBDMappings that the labels of RBDNodes name, and their nodes.

    None if a label does not name its devices.
    """
    listings = [
        (label, api.list(RBD_NODES, labelSelector=label, resourceVersion="0"))
        for label in node_labels
    ]
    names: dict[str, str] = {}
    for label, listing in listings:
        read_label = partial(_devices, label)
        for node, devices in unless_missing(objects(listing, read_label, what="RBDNode")):
            if devices is None:
                return None
            names |= {labels.mapping_name(node, device): node for device in devices}
    return names


def _devices(label: str, data: Json) -> tuple[str, tuple[str, ...] | None]:
    metadata = data["metadata"]
    return metadata["name"], labels.devices_in(metadata["labels"][label])


def _named(api: Api, names: Mapping[str, str], known: FoundMappings) -> FoundMappings | NotObserved:
    """Return the named RBDMappings, or NotObserved if one of them was not observed."""
    there = {labels.mapping_name(one.node, one.mapping.device) for one in known.mappings}
    asked = [api.ask(f"{RBD_MAPPINGS}/{segment(name)}") for name in names.keys() - there]
    found = all_observed([found_object(request, read_mapping) for request in asked])
    if isinstance(found, NotObserved):
        return found
    return FoundMappings(found, frozenset(names.values()))


def _selected(api: Api, wanted: Sequence[str]) -> tuple[ReadMapping, ...]:
    listings = [
        api.list(RBD_MAPPINGS, labelSelector=selector, resourceVersion="0") for selector in wanted
    ]
    found = (
        one
        for listing in listings
        for one in unless_missing(objects(listing, read_mapping, what="RBDMapping"))
    )
    return tuple({(one.node, one.mapping.device): one for one in found}.values())


def unless_missing(found: Iterator[Any]) -> Iterator[Any]:
    """Yield what was found; nothing if the API has no such resource: then no agent publishes it.

    An RBDNode shows that mappings are missing.
    """
    try:
        yield from found
    except StatusError as error:
        if error.status != NOT_FOUND:
            raise


# Reports ------------------------------------------------------------------------------------------


def read_mapping(data: Json) -> ReadMapping:
    """Parse an RBDMapping."""
    status = data["status"]
    return ReadMapping(status["node"], status["observedAt"], read.rbd_mapping(status))


def _reports(
    found: Sequence[ReadMapping],
    summaries: Mapping[str, PublishedSummary | NotObserved | None],
    keys: frozenset[str] | None,
) -> tuple[PublishedNode, ...]:
    """Return the reports of the nodes that have an RBDNode, or an RBDMapping that was found."""
    by_node: dict[str, list[ReadMapping]] = {
        name: [] for name, summary in summaries.items() if isinstance(summary, PublishedSummary)
    }
    for one in found:
        by_node.setdefault(one.node, []).append(one)
    return tuple(
        node_report(name, summaries.get(name), theirs, keys) for name, theirs in by_node.items()
    )


def node_report(
    name: str,
    summary: PublishedSummary | NotObserved | None,
    found: Sequence[ReadMapping],
    keys: frozenset[str] | None,
) -> PublishedNode:
    """Return the report of a node.

    Args:
        name: of the node.
        summary: its RBDNode; None if it has none.
        found: its RBDMappings; of one image, unless ``keys`` is None.
        keys: of this image; None if all RBDMappings of the node were requested.
    """
    mappings = tuple(one.mapping for one in found)
    if not isinstance(summary, PublishedSummary):
        missing = "the RBDNode of its agent was not found" if summary is None else summary.reason
        return PublishedNode(
            name=name,
            observed_at=min(one.observed_at for one in found),
            lease=NotObserved(reason=missing),
            mappings=mappings,
            incomplete=missing,
            every_client=False,
        )
    incomplete = _incomplete(summary, mappings, keys) or summary.undated
    blind = summary.mapped is None and not mappings
    return PublishedNode(
        name=name,
        observed_at=summary.observed_at,
        lease=summary.lease,
        boot_id=summary.boot_id,
        mappings=NotObserved(reason=incomplete) if blind else mappings,
        incomplete=incomplete,
        every_client=_has_every_client(summary, mappings),
    )


def _has_every_client(summary: PublishedSummary, mappings: Sequence[PublishedMapping]) -> bool:
    """Return whether a mapping of each client of the node was read: krbd shares its clients."""
    if len(mappings) == summary.mapped:
        return True
    there = {str(mapping.client_address) for mapping in mappings}
    return summary.clients is not None and summary.clients <= there


def _incomplete(
    summary: PublishedSummary, mappings: Sequence[PublishedMapping], keys: frozenset[str] | None
) -> str:
    """Return why a mapping may be missing among those that were read; empty if none is."""
    if summary.mapped is None:
        return "its agent has not seen its devices"
    if summary.images is None:
        return "the labels of its RBDNode do not name all its images"
    there = {key for mapping in mappings for key in _keys(mapping)}
    if keys is None:
        few = len(mappings) < summary.mapped
        return "not all of its RBDMappings were found" if few or summary.images - there else ""
    # A renamed image has the same id, and an image that was created again has the same name: one
    # equal key means that the node may map this image.
    wanted = keys | {labels.UNKNOWN_IMAGE}
    if summary.images & wanted - there:
        return "its RBDMapping of this image was not found"
    if labels.UNKNOWN_VOLUME in summary.used:
        return "its agent has not seen all mounts and directories, which show what pods there use"
    return "a pod there may still use the volume" if summary.used & keys else ""


def _keys(mapping: PublishedMapping) -> frozenset[str]:
    name = None if mapping.spec is None else mapping.spec.name
    return labels.mapping_keys(name, mapping.image_id, mapping.persistent_volume)


# RBDNodes and Leases ------------------------------------------------------------------------------


def _by_node(
    summaries: Iterable[PublishedSummary], keys: frozenset[str] | None = None
) -> dict[str, PublishedSummary]:
    """Return RBDNodes by their names, with only these keys: those of all nodes are 50 MB."""
    return {
        summary.name: summary
        if keys is None or summary.images is None
        else replace(summary, images=summary.images & keys, used=summary.used & keys)
        for summary in summaries
    }


def summaries_in(api: Api, listing: Listing) -> Iterator[PublishedSummary]:
    """Yield the RBDNodes of a list, each with the time at which its agent renewed its Lease."""
    leases = _Leases(api)
    for summary in objects(listing, read.rbd_node, what="RBDNode"):
        yield leases.dated(summary)


def _summaries_named(
    api: Api, names: Iterable[str]
) -> dict[str, PublishedSummary | NotObserved | None]:
    """Return the RBDNodes of the named nodes, with two requests each; None without an agent."""
    asked = {name: api.ask(f"{RBD_NODES}/{segment(name)}") for name in names}
    found = {name: found_object(request, read.rbd_node) for name, request in asked.items()}
    leases = {
        name: (summary, api.ask(f"{lease_list(summary.lease_namespace)}/{segment(name)}"))
        for name, summary in found.items()
        if isinstance(summary, PublishedSummary) and summary.lease_namespace is not None
    }
    without = {
        name: dated(summary, None, api.ahead)
        for name, summary in found.items()
        if isinstance(summary, PublishedSummary) and summary.lease_namespace is None
    }
    confirmed = {
        name: dated(summary, found_object(request, read.lease), api.ahead)
        for name, (summary, request) in leases.items()
    }
    return found | without | confirmed


class _Leases:
    """The Leases of the namespaces that RBDNodes name; each namespace is listed once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, dict[str, Lease] | NotObserved] = {}

    def dated(self, summary: PublishedSummary) -> PublishedSummary:
        """Return an RBDNode with the time at which its agent confirmed it."""
        namespace = summary.lease_namespace
        if namespace is None:
            return dated(summary, None, self._api.ahead)
        if namespace not in self._known:
            self._known[namespace] = self._listed(namespace)
        known = self._known[namespace]
        lease = known if isinstance(known, NotObserved) else known.get(summary.name)
        return dated(summary, lease, self._api.ahead)

    def _listed(self, namespace: str) -> dict[str, Lease] | NotObserved:
        found = listed(self._api, lease_list(namespace), read.lease)()
        return found if isinstance(found, NotObserved) else {lease.name: lease for lease in found}


_OTHER_VERSION: Final = "the Lease of the agent confirms another version of its RBDNode"


class _Stamp(NamedTuple):
    """A time that an agent wrote, and when the API server stored it; ISO 8601 in UTC."""

    written: str
    stored: str | None

    @property
    def at(self) -> str:
        """The earlier of the two."""
        return self.written if self.stored is None else min(self.written, self.stored)

    @property
    def undated(self) -> str:
        """Why the time proves nothing: the clock of the agent is ahead, or may be; else empty."""
        if self.stored is None:
            return "the API server does not show when it stored the report"
        by = age(self.stored, self.written)
        if by is None or by <= SKEW:
            return ""
        return f"its clock is {round(by.total_seconds())}s ahead of the API server's"


def dated(
    summary: PublishedSummary, lease: Lease | NotObserved | None, ahead: timedelta
) -> PublishedSummary:
    """Return an RBDNode with the time at which its agent last confirmed it.

    The agent confirms it when it writes it, and when it renews its Lease. Both have the time of the
    agent's clock, which may be wrong: an agent that has ended must not count as recent when this
    time comes. So a time counts as that at which the API server stored it, if that is earlier, and
    a clock that is ahead makes the report incomplete.

    Args:
        summary: the RBDNode.
        lease: of its agent; None if it does not exist.
        ahead: how far the clock of this machine is ahead of the API server's.
    """
    renewal = _renewal(summary, lease)
    written = _Stamp(summary.observed_at, summary.stored_at)
    stamps = [written, renewal] if isinstance(renewal, _Stamp) else [written]
    confirmed_at = max(stamp.at for stamp in stamps)
    return replace(
        summary,
        observed_at=later_by(confirmed_at, ahead) if ahead else confirmed_at,
        undated=next((stamp.undated for stamp in stamps if stamp.undated), ""),
        lease=renewal if isinstance(renewal, NotObserved) else None,
    )


def _renewal(
    summary: PublishedSummary, lease: Lease | NotObserved | None
) -> _Stamp | NotObserved | None:
    """Return when an agent renewed its Lease, or why that is unknown; None without a renewal.

    A Lease without a time that can be read confirms nothing. The agent does not have to renew it if
    it wrote its RBDNode later.
    """
    if isinstance(lease, NotObserved) or summary.lease_namespace is None:
        return lease if isinstance(lease, NotObserved) else None
    if lease is None:
        return NotObserved(reason=f"the agent has no Lease in namespace {summary.lease_namespace}")
    # The API server writes every MicroTime in UTC, with six digits.
    renewed_at = f"{(lease.renewed_at or '').partition('.')[0].removesuffix('Z')}Z"
    later = age(summary.observed_at, renewed_at)
    if later is None:
        return NotObserved(reason="the time of the Lease cannot be read")
    return _confirmation(summary, lease, renewed_at) if later.total_seconds() > 0 else None


def _confirmation(summary: PublishedSummary, lease: Lease, renewed_at: str) -> _Stamp | NotObserved:
    """Return the time of a renewal, if the Lease confirms this version of the RBDNode."""
    if lease.confirms is None or lease.confirms != summary.version:
        # The agent wrote another one than was read here: etcd was restored from a backup, or
        # another client wrote the RBDNode, or the agent did so a moment ago.
        return NotObserved(reason=_OTHER_VERSION)
    if lease.stored_at is None:
        return NotObserved(reason="the API server does not show when it stored the Lease")
    return _Stamp(renewed_at, lease.stored_at)
