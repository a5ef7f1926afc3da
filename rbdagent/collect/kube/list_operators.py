"""The objects of operators that decide a question: KubeVirt's migrations, csi-addons' replications.

They are requested after Ceph has answered, only in the namespaces in which they decide something. A
cluster without the operator has no such resource: then there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rbdagent.collect.failure import gaps_in, not_observed
from rbdagent.collect.kube.requests import Json, first_served, merged, within
from rbdagent.collect.parallel import start
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.machines import namespaces_of_migrations
from rbdagent.correlate.replication import namespaces_of_replications
from rbdagent.model import CollectScope, NotObserved
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.collect.kube.client import Api
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.model import MachineMigration, Snapshot, VolumeReplication

_T = TypeVar("_T")

_MIGRATIONS: Final = ("/apis/kubevirt.io/v1", "/apis/kubevirt.io/v1alpha3")
"""v1 exists since KubeVirt 0.39 (2021)."""
_REPLICATIONS: Final = ("/apis/replication.storage.openshift.io/v1alpha1",)
_LATE: Final = NotObserved(
    reason="the Kubernetes API did not return the objects of operators in time",
    hint="a longer --timeout may help",
)
_MOST_NAMESPACES: Final = 3
"""From more namespaces on, one list of all is cheaper."""


class _Operators(NamedTuple):
    """Holds the objects of operators; None if they were not requested."""

    migrations: tuple[MachineMigration, ...] | NotObserved | None
    replications: tuple[VolumeReplication, ...] | NotObserved | None


def with_operators(
    snapshot: Snapshot, connection: Connection, also: CollectScope, deadline: float
) -> Snapshot:
    """Return a snapshot with the objects of operators that decide something about it.

    The pods show which virtual machines may be migrating, and Ceph which images are mirrored. A
    kind that decides nothing is not requested. One that was refused is a gap.

    Args:
        snapshot: with all other answers.
        connection: to the API server.
        also: which kinds are in the scope.
        deadline: of the monotonic clock.
    """
    kube, sources = snapshot.kubernetes, snapshot.sources
    if kube is None:
        return snapshot
    none: frozenset[str] = frozenset()
    migrating = namespaces_of_migrations(kube_index(kube))
    replicated = namespaces_of_replications(snapshot)
    migrating = migrating if CollectScope.MIGRATIONS in also else none
    replicated = replicated if CollectScope.REPLICATIONS in also else none
    if not migrating and not replicated:
        return snapshot
    (answer,) = start([lambda: _list(connection, migrating, replicated)])(deadline)
    if not isinstance(answer, _Operators):
        unseen = _LATE if answer is None else not_observed(answer, "objects of operators")
        answer = _Operators(unseen if migrating else None, unseen if replicated else None)
    found = {name: value for name, value in answer._asdict().items() if value is not None}
    gaps = gaps_in(
        [
            ("live migrations of virtual machines", answer.migrations),
            ("VolumeReplications", answer.replications),
        ]
    )
    source = sources.kubernetes
    return replace(
        snapshot,
        kubernetes=replace(kube, **found),
        sources=replace(sources, kubernetes=replace(source, gaps=(*source.gaps, *gaps))),
    )


def _list(
    connection: Connection, migrating: frozenset[str], replicated: frozenset[str]
) -> _Operators:
    """Request the objects in their namespaces; a kind without a namespace is not requested."""
    api = connection.api()
    plural = "virtualmachineinstancemigrations"
    return _Operators(
        migrations=_listed(api, _MIGRATIONS, plural, migrating, read.machine_migration),
        replications=_listed(
            api, _REPLICATIONS, "volumereplications", replicated, read.volume_replication
        ),
    )


def _listed(
    api: Api,
    groups: tuple[str, ...],
    plural: str,
    namespaces: frozenset[str],
    reader: Callable[[Json], _T],
) -> tuple[_T, ...] | NotObserved | None:
    if not namespaces:
        return None
    few = len(namespaces) <= _MOST_NAMESPACES
    scopes: list[str | None] = [*sorted(namespaces)] if few else [None]
    return merged([_in_scope(api, groups, plural, scope, reader) for scope in scopes])


def _in_scope(
    api: Api,
    groups: tuple[str, ...],
    plural: str,
    namespace: str | None,
    reader: Callable[[Json], _T],
) -> tuple[_T, ...] | NotObserved:
    """Return the objects of a namespace, or of all; none if no version of the resource exists."""
    paths = [within(namespace, plural, group=group) for group in groups]
    return first_served(api, paths, reader)
