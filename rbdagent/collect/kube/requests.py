"""Requests to the Kubernetes API: an error becomes "not observed", a 404 "does not exist"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.client import StatusError, segment
from rbdagent.model import NotObserved, separated
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rbdagent.collect.kube.client import Api, Listing, PendingRequest

_T = TypeVar("_T")
Json = dict[str, Any]

NOT_FOUND: Final = 404
PODS: Final = "/api/v1/pods"
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"
NODES: Final = "/api/v1/nodes"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
RBD_NODES: Final = "/apis/rbdagent.dev/v1alpha1/rbdnodes"
RBD_MAPPINGS: Final = "/apis/rbdagent.dev/v1alpha1/rbdmappings"


APPLY_RESOURCES: Final = (
    "kubectl apply -f helm/rbdagent/files/rbdnodes.yaml -f helm/rbdagent/files/rbdmappings.yaml"
)
"""The command that creates these two resources, for hints."""


def within(namespace: str | None, plural: str, *, group: str = "/api/v1") -> str:
    """Return the path of a list in a namespace, or in all namespaces if it is None."""
    return (
        f"{group}/{plural}"
        if namespace is None
        else f"{group}/namespaces/{segment(namespace)}/{plural}"
    )


def lease_list(namespace: str) -> str:
    """Return the path of the Leases of a namespace."""
    return within(namespace, "leases", group="/apis/coordination.k8s.io/v1")


def claim_path(namespace: str, name: str) -> str:
    """Return the path of a claim."""
    return f"/api/v1/namespaces/{segment(namespace)}/persistentvolumeclaims/{segment(name)}"


def objects(
    listing: Listing, reader: Callable[[Json], _T], *, what: str, ahead: bool = True
) -> Iterator[_T]:
    """Yield the parsed objects of a list; ``what`` names them in errors.

    Raises:
        SourceError: a request failed.
        ParseError: an object could not be parsed.
    """
    for page in listing.pages(ahead=ahead):
        for found in page:
            yield read.parse_object(reader, found, what=what)


def first_served(
    api: Api, paths: Iterable[str], reader: Callable[[Json], _T]
) -> tuple[_T, ...] | NotObserved:
    """Return the objects of the first path that the API server has; none if it has none of them.

    Args:
        api: the API server.
        paths: of one resource that a cluster may lack, its newest version first.
        reader: reads one object.
    """
    for path in paths:
        try:
            return tuple(objects(api.list(path), reader, what=path))
        except StatusError as error:
            if error.status != NOT_FOUND:
                return not_observed(error, path)
        except Exception as error:  # noqa: BLE001 - a failed list must not hide the others
            return not_observed(error, path)
    return ()


def listed(
    api: Api, path: str, reader: Callable[[Json], _T], **query: str
) -> Callable[[], tuple[_T, ...] | NotObserved]:
    """Request a list; return a function that waits for all its pages."""
    listing = api.list(path, **query)

    def wait() -> tuple[_T, ...] | NotObserved:
        try:
            return tuple(objects(listing, reader, what=path))
        except Exception as error:  # noqa: BLE001 - a failed list must not hide the others
            return not_observed(error, path)

    return wait


def found_object(asked: PendingRequest, reader: Callable[[Json], _T]) -> _T | NotObserved | None:
    """Wait for an object; return None if no object has that name."""
    try:
        return read.parse_object(reader, asked.answer(), what=asked.path)
    except StatusError as error:
        return None if error.status == NOT_FOUND else not_observed(error, asked.path)
    except Exception as error:  # noqa: BLE001 - a failed request must not hide the others
        return not_observed(error, asked.path)


def merged(lists: Iterable[tuple[_T, ...] | NotObserved]) -> tuple[_T, ...] | NotObserved:
    """Return the objects of several lists as one; why it is incomplete if one was not observed."""
    observed, missing = separated(lists)
    return missing[0] if missing else tuple(one for found in observed for one in found)


def all_observed(found: Sequence[_T | NotObserved | None]) -> tuple[_T, ...] | NotObserved:
    """Return the existing objects, or NotObserved if one of them was not observed."""
    observed, missing = separated(found)
    return missing[0] if missing else tuple(item for item in observed if item is not None)
