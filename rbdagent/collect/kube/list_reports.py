"""What the agents of all nodes published: their RBDNodes, and the Leases that they renew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.client import Api, StatusError
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import (
    APPLY_RESOURCES,
    NOT_FOUND,
    RBD_NODES,
    found_object,
    lease_list,
    listed,
    objects,
)
from rbdagent.errors import SourceError
from rbdagent.model import Lease, NotObserved, PublishedNode
from rbdagent.parse import kubernetes as read
from rbdagent.parse.times import age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rbdagent.collect.kube.client import Listing
    from rbdagent.collect.kube.kubeconfig import KubeAccess

_REPORTS_AT_ONCE: Final = 100
"""Page size for RBDNodes; an RBDNode with fifty mappings has 27 KiB."""


def published_nodes(access: KubeAccess) -> Iterator[PublishedNode]:
    """Yield the RBDNodes of all nodes in the order of their names; one page is in memory.

    Raises:
        SourceError: a request failed. If the API has no such resource, the hint shows how to
            install it.
    """
    api = Api(credentials(access), timeout_s=access.timeout_s)
    try:
        yield from _reports(api, api.list(RBD_NODES, limit=_REPORTS_AT_ONCE), ahead=False)
    except StatusError as error:
        if error.status != NOT_FOUND:
            raise
        raise SourceError(
            f"{api.server} has no resource rbdnodes.rbdagent.dev: no agent publishes here",
            hint=f"{APPLY_RESOURCES}, and run rbdagent agent",
        ) from error


def published_or_gap(
    access: KubeAccess, reduced: Callable[[PublishedNode], PublishedNode]
) -> tuple[PublishedNode, ...] | NotObserved:
    """Return the RBDNodes of all nodes; each one is reduced when it is read.

    RBDNodes of a thousand nodes with fifty mappings each are 27 MB of JSON. The parts about other
    volumes are dropped page by page.
    """
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
    except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
        return not_observed(error, RBD_NODES)
    return begin_reports(api, reduced)()


def begin_reports(
    api: Api, reduced: Callable[[PublishedNode], PublishedNode] = lambda report: report
) -> Callable[[], tuple[PublishedNode, ...] | NotObserved]:
    """Request all RBDNodes; return a function that waits for them.

    Without the resource there is no agent, and the result is empty.
    """
    listing = api.list(RBD_NODES, limit=_REPORTS_AT_ONCE)

    def wait() -> tuple[PublishedNode, ...] | NotObserved:
        try:
            return tuple(reduced(report) for report in _reports(api, listing))
        except StatusError as error:
            return () if error.status == NOT_FOUND else not_observed(error, RBD_NODES)
        except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
            return not_observed(error, RBD_NODES)

    return wait


def rbd_nodes_named(
    access: KubeAccess, names: Iterable[str]
) -> dict[str, PublishedNode | NotObserved | None]:
    """Return the RBDNodes of the named nodes, with two requests each; None without an agent."""
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
    except Exception as error:  # noqa: BLE001 - as above
        return dict.fromkeys(names, not_observed(error, RBD_NODES))
    asked = {name: api.ask(f"{RBD_NODES}/{quote(name)}") for name in names}
    found = {name: found_object(request, read.rbd_node) for name, request in asked.items()}
    leases = {
        name: api.ask(f"{lease_list(report.lease_namespace)}/{quote(name)}")
        for name, report in found.items()
        if isinstance(report, PublishedNode) and report.lease_namespace is not None
    }
    for name, request in leases.items():
        report = found[name]
        assert isinstance(report, PublishedNode)  # noqa: S101 - these have a namespace
        found[name] = _renewed(report, found_object(request, read.lease))
    return found


def _reports(api: Api, listing: Listing, *, ahead: bool = True) -> Iterator[PublishedNode]:
    """Yield the RBDNodes of a list, each with the time at which its agent renewed its Lease."""
    leases = _Leases(api)
    for report in objects(listing, read.rbd_node, what="RBDNode", ahead=ahead):
        yield leases.renewed(report)


class _Leases:
    """The Leases of the namespaces that RBDNodes name; each namespace is listed once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, dict[str, Lease] | NotObserved] = {}

    def renewed(self, report: PublishedNode) -> PublishedNode:
        """Return a report with the time of its agent's Lease."""
        namespace = report.lease_namespace
        if namespace is None:
            return report
        if namespace not in self._known:
            self._known[namespace] = self._listed(namespace)
        known = self._known[namespace]
        lease = known if isinstance(known, NotObserved) else known.get(report.name)
        return _renewed(report, lease)

    def _listed(self, namespace: str) -> dict[str, Lease] | NotObserved:
        found = listed(self._api, lease_list(namespace), read.lease)()
        return found if isinstance(found, NotObserved) else {lease.name: lease for lease in found}


def _renewed(report: PublishedNode, lease: Lease | NotObserved | None) -> PublishedNode:
    """Return a report that its agent confirmed when it renewed its Lease.

    A Lease without a time that can be read confirms nothing: the report is as old as its last
    write.
    """
    if isinstance(lease, NotObserved):
        return replace(report, lease=lease)
    if lease is None:
        missing = f"the agent has no Lease in namespace {report.lease_namespace}"
        return replace(report, lease=NotObserved(reason=missing))
    # The API server writes every MicroTime in UTC, with six digits.
    renewed_at = f"{(lease.renewed_at or '').partition('.')[0].removesuffix('Z')}Z"
    later = age(report.observed_at, renewed_at)
    if later is None:
        return replace(report, lease=NotObserved(reason="the time of the Lease cannot be read"))
    # A renewal is before the last write if the agent wrote a change since then.
    return replace(report, observed_at=renewed_at) if later.total_seconds() > 0 else report
