"""All objects of a cluster that may refer to an RBD image: PVs, claims, pods, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.requests import (
    CLAIMS,
    PODS,
    VOLUMES,
    first_served,
    listed,
)
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import NotObserved, derived
from rbdagent.model.inventory import InlineVolume, References, SnapshotContent
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from rbdagent.collect.kube.client import Api
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.model import Pod

_GROUP: Final = "/apis/snapshot.storage.k8s.io"
CONTENTS: Final = tuple(
    f"{_GROUP}/{version}/volumesnapshotcontents" for version in ("v1", "v1beta1")
)
"""v1 exists since external-snapshotter 4.0, and v1beta1 until 6.0."""


def list_references(connection: Connection) -> References:
    """Return the objects; a kind that was refused is NotObserved.

    They are read from the store of the API server, not from a cache: an object that is missing in
    the answer did not exist at the time of the request.
    """
    try:
        api = connection.api()
    except (SourceError, ParseError) as error:
        return unobserved_references(not_observed(error, "the Kubernetes API"))
    volumes = listed(api, VOLUMES, read.persistent_volume)
    claims = listed(api, CLAIMS, read.claim)
    pods = listed(api, PODS, read.pod)
    return References(
        server=api.server,
        volumes=volumes(),
        claims=claims(),
        inline=derived(pods(), _inline),
        snapshots=_contents(api),
    )


def unobserved_references(missing: NotObserved) -> References:
    """Return the objects of a cluster of which none was observed."""
    return References(volumes=missing, claims=missing, inline=missing, snapshots=missing)


def _inline(pods: tuple[Pod, ...]) -> tuple[InlineVolume, ...]:
    return tuple(
        InlineVolume(pod=pod.ref, source=source) for pod in pods for source in pod.inline_images
    )


def _contents(api: Api) -> tuple[SnapshotContent, ...] | NotObserved:
    """Return the VolumeSnapshotContents; none if the cluster has no such resource."""
    return first_served(api, CONTENTS, read.snapshot_content)
