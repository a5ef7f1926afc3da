"""An agent's requests to the Kubernetes API: objects by name, cached while they do not change.

A snapshot of a target lists all PVs, VolumeAttachments and Nodes. Agents run permanently on every
node, so the number of an agent's requests may grow only with the mappings of its node. A pod leads
to its claim, and the claim to its PV. kubelet's directories and the previous cycle name the PVs
that no pod uses any more. The name of a VolumeAttachment is computed. PVs are listed only for
mappings and claims without such a name.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.collect.failure import gaps_in
from rbdagent.collect.kube.client import segment
from rbdagent.collect.kube.requests import (
    ATTACHMENTS,
    CSI_NODES,
    NODES,
    PODS,
    VOLUMES,
    all_observed,
    claim_path,
    found_object,
    listed,
)
from rbdagent.correlate.holders import needs_volumes, runs
from rbdagent.correlate.image_identity import (
    are_mappings_observed,
    identity_of_mapping,
    mappings_of,
)
from rbdagent.correlate.node_usage import volumes_on_node
from rbdagent.correlate.volume import names_of_mapping
from rbdagent.model import (
    Gap,
    KubeView,
    Mapping,
    NodeView,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Snapshot,
    Source,
    Sources,
    SourceState,
    Target,
    TargetKind,
    observed_of,
)
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.collect.kube.client import Api
    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import Pod

Json = dict[str, Any]

_SEARCHED_S: Final = 3600.0
"""Seconds before the lists of all objects are searched again for the same image or client: a
mapping that an administrator made must not cause a list every five minutes. Only a PV that was
created since and that no pod of this node uses is missed: such a pod would lead to it at once."""
_REFRESH_S: Final = 300.0
_REFRESHED: Final = 5
"""Number of the oldest cached objects that are requested again in that time, in case a change was
missed. Together with this node's pods, Node and CSINode, and the renewals of its Lease, an agent
sends at most two requests per minute."""
_NOT_QUERIED: Final = Source(state=SourceState.SKIPPED)


class User(NamedTuple):
    """Holds the fields of a pod that show whether it uses its claims."""

    uid: str | None
    phase: str
    deleting_since: str | None
    runs: bool
    needs: bool


class Answer(NamedTuple):
    """Holds the API's answer about an object, and its time; None if the object does not exist."""

    value: Any
    at: float


class Known(NamedTuple):
    """Holds what one cycle caches for the next."""

    objects: dict[str, Answer]
    """The answers by path."""
    users: dict[str, frozenset[User]]
    """The pods of each claim, by the claim's path."""
    volumes: frozenset[str]
    """The names of the PVs that are mapped on this node."""
    searched: dict[str, float]
    """The subjects of searches in all objects, with their times; see :attr:`KubeView.searched`."""
    turned_at: float = 0.0


NOTHING: Final = Known(objects={}, users={}, volumes=frozenset(), searched={})


def lately(searched: dict[str, float]) -> dict[str, float]:
    """Return the subjects that need no new search yet."""
    since = time.monotonic() - _SEARCHED_S
    return {subject: at for subject, at in searched.items() if at > since}


class NamedReader:
    """The requests of one cycle: each answer leads to the next requests."""

    def __init__(
        self,
        api: Api,
        node_name: str,
        node: NodeView | None,
        *,
        before: Known,
        elsewhere: frozenset[str],
    ) -> None:
        """Store the parameters, and drop the oldest cached objects if that is due.

        Args:
            api: the API client.
            node_name: this node.
            node: the observed state of this node.
            before: the cache of the previous cycle.
            elsewhere: paths of further Nodes and VolumeAttachments, of other nodes.
        """
        self._api = api
        self._node_name = node_name
        self._node = node
        self._elsewhere = elsewhere
        self._now = time.monotonic()
        self._before = self._without_oldest(before)
        self._pods: tuple[Pod, ...] | NotObserved = ()
        self._users: dict[str, frozenset[User]] = {}
        self._answers: dict[str, Answer] = {}
        self._searched = lately(before.searched)
        self.gaps: tuple[Gap, ...] = ()
        """The lists that failed."""

    def _without_oldest(self, before: Known) -> Known:
        """Return the cache without its oldest objects, if a refresh is due."""
        if self._now - before.turned_at < _REFRESH_S:
            return before
        by_age = sorted(before.objects, key=lambda path: before.objects[path].at)
        kept = {path: before.objects[path] for path in by_age[_REFRESHED:]}
        return before._replace(objects=kept, turned_at=self._now)

    def view(self) -> KubeView:
        """Send the requests in rounds: each round requests what the previous one names."""
        own = segment(self._node_name)
        others = [path for path in self._elsewhere if path.startswith(NODES)]
        nodes = self._request([f"{NODES}/{own}", *sorted(others)], read.node)
        csi_node = self._request([f"{CSI_NODES}/{own}"], read.csi_node)
        self._pods = listed(
            self._api, PODS, read.pod, fieldSelector=f"spec.nodeName={self._node_name}"
        )()
        nodes()
        csi_node()
        if not isinstance(self._pods, NotObserved):
            self._users = _users_of(self._pods)
            self._ask_claims()
            self._ask_volumes(self._names_of_volumes())
            self._ask_attachments()
            self._ask_volumes(
                attachment.persistent_volume
                for attachment in observed_of(self._view().attachments)
                if attachment.persistent_volume is not None
            )
            self._search()
            self._ask_attachments()
        return self._view()

    def known(self) -> Known:
        """Return the cache for the next cycle."""
        if isinstance(self._pods, NotObserved):
            return self._before
        seen = self._view().persistent_volumes
        found = {volume for names in self._names().values() for volume in names.volumes}
        found |= self._of_lost_claims(observed_of(seen))
        volumes = frozenset(volume.name for volume in found)
        if isinstance(seen, NotObserved) or not are_mappings_observed(self._node):
            # Without an observation, the PVs of the previous cycle stay in the cache.
            volumes |= self._before.volumes
        return Known(
            objects={
                path: kept
                for path, kept in self._answers.items()
                if not isinstance(kept.value, NotObserved)
            },
            users=self._users,
            volumes=volumes,
            searched=self._searched,
            turned_at=self._before.turned_at,
        )

    # Answers --------------------------------------------------------------------------------------

    def _view(self) -> KubeView:
        """Return a view of all answers so far."""
        claims: tuple[PersistentVolumeClaim, ...] | NotObserved = all_observed(
            [self._answers[path].value for path in self._users if path in self._answers]
        )
        volumes: tuple[PersistentVolume, ...] | NotObserved = self._all(VOLUMES)
        attachments = self._all(ATTACHMENTS)
        if isinstance(self._pods, NotObserved):
            # Without the pods, the names of the other objects are unknown.
            claims = attachments = self._pods
        if isinstance(claims, NotObserved):
            # The PV of a claim that was not observed may have any image.
            volumes = claims
        return KubeView(
            server=self._api.server,
            persistent_volumes=volumes,
            claims=claims,
            pods=self._pods,
            nodes=self._all(NODES),
            csi_nodes=self._all(CSI_NODES),
            attachments=attachments,
            pods_scope=f"node/{self._node_name}",
            volumes_complete=False,
            attachments_complete=False,
            nodes_complete=False,
            csi_nodes_complete=False,
            searched=(
                *sorted(self._searched),
                *(
                    path.rpartition("/")[2]
                    for path, kept in self._answers.items()
                    if path.startswith((NODES, ATTACHMENTS))
                    and not isinstance(kept.value, NotObserved)
                ),
            ),
        )

    def _all(self, path: str) -> Any:  # noqa: ANN401 - objects of any kind
        return all_observed(
            [kept.value for key, kept in self._answers.items() if key.startswith(f"{path}/")]
        )

    def _names(self, every: tuple[PersistentVolume, ...] = ()) -> dict[Mapping, VolumeNames]:
        """Return the names of each mapping, from the answers so far and from a list of all PVs."""
        view = self._view()
        if every:
            view = replace(view, persistent_volumes=every)
        snapshot = self._snapshot(view)
        return {mapping: names_of_mapping(mapping, snapshot) for mapping in mappings_of(self._node)}

    def _snapshot(self, view: KubeView) -> Snapshot:
        return Snapshot(
            observed_at="",
            tool_version="",
            target=Target(argument="", kind=TargetKind.NONE),
            node=self._node,
            ceph=None,
            kubernetes=view,
            sources=Sources(node=_NOT_QUERIED, ceph=_NOT_QUERIED, kubernetes=_NOT_QUERIED),
        )

    # Requests -------------------------------------------------------------------------------------

    def _request(
        self,
        paths: Iterable[str],
        reader: Callable[[Json], Any],
        is_unchanged: Callable[[str, Any], bool] = lambda _, __: False,
    ) -> Callable[[], None]:
        """Request objects, or use the cache for unchanged ones; return a function that waits."""
        requests = {}
        for path in paths:
            kept = self._before.objects.get(path)
            if path in self._answers:
                continue
            if kept is not None and is_unchanged(path, kept.value):
                self._answers[path] = kept
            else:
                requests[path] = self._api.ask(path)

        def wait() -> None:
            for path, request in requests.items():
                self._answers[path] = Answer(found_object(request, reader), self._now)

        return wait

    def _is_changed(self, claim: str) -> bool:
        """Return whether a claim's pods have changed since the previous cycle."""
        return self._users.get(claim) != self._before.users.get(claim)

    def _ask_claims(self) -> None:
        def is_unchanged(path: str, claim: Any) -> bool:  # noqa: ANN401 - or None
            # A claim that is not bound yet may become bound without a change of its pods.
            return (
                isinstance(claim, PersistentVolumeClaim)
                and bool(claim.volume_name)
                and not self._is_changed(path)
            )

        self._request(self._users, read.claim, is_unchanged)()

    def _names_of_volumes(self) -> set[str]:
        names = {
            claim.volume_name for claim in observed_of(self._view().claims) if claim.volume_name
        }
        names |= self._before.volumes
        for mapping in mappings_of(self._node):
            names |= volumes_on_node(mapping, self._node)
        return names

    def _ask_volumes(self, names: Iterable[str]) -> None:
        paths = [f"{VOLUMES}/{segment(name)}" for name in sorted(names)]
        self._request(paths, read.persistent_volume, lambda _, volume: self._is_unchanged(volume))()

    def _is_unchanged(self, volume: PersistentVolume | None) -> bool:
        """Return whether no field of a PV that a verdict depends on can have changed.

        A PV that is mapped here counts as unchanged while a pod runs with it and no pod of its
        claim was added, removed or changed. The PV is then in use, whatever the API shows for the
        PV and the VolumeAttachment.
        """
        if volume is None or volume.claim is None:
            return False
        claim = claim_path(volume.claim.namespace, volume.claim.name)
        if claim not in self._users or self._is_changed(claim):
            return False
        is_run = any(user.runs and not user.deleting_since for user in self._users[claim])
        return is_run or volume.name not in self._before.volumes

    def _ask_attachments(self) -> None:
        unchanged: dict[str, bool] = {
            path: False for path in self._elsewhere if path.startswith(ATTACHMENTS)
        }
        for names in self._names().values():
            is_unchanged = bool(names.volumes) and all(
                self._is_unchanged(volume) for volume in names.volumes
            )
            for name in names.attachment_names(self._node_name):
                unchanged[f"{ATTACHMENTS}/{segment(name)}"] = is_unchanged
        self._request(sorted(unchanged), read.attachment, lambda path, _: unchanged[path])()

    # Search in all objects ------------------------------------------------------------------------

    def _search(self) -> None:
        """List all PVs for mappings without a known PV, and for pods whose claims are deleted."""
        if isinstance(self._view().persistent_volumes, NotObserved):
            return
        unmatched = {
            key: mapping
            for mapping, names in self._names().items()
            if not names.volumes and (key := _key_of(mapping)) is not None
        }
        needed = {
            claim for claim in self._lost_claims() if any(user.needs for user in self._users[claim])
        }
        wanted = {*unmatched, *needed} - self._searched.keys()
        if not wanted:
            return
        every = listed(self._api, VOLUMES, read.persistent_volume)()
        if isinstance(every, NotObserved):
            self.gaps += gaps_in([("all PersistentVolumes", every)])
            return
        self._searched |= dict.fromkeys(wanted, self._now)
        names = self._names(every)
        found = {volume for mapping in unmatched.values() for volume in names[mapping].volumes}
        for volume in found | self._of_lost_claims(every):
            self._answers[f"{VOLUMES}/{segment(volume.name)}"] = Answer(volume, self._now)

    def _lost_claims(self) -> set[str]:
        return {path for path in self._users if self._answers[path].value is None}

    def _of_lost_claims(self, volumes: Iterable[PersistentVolume]) -> set[PersistentVolume]:
        lost = self._lost_claims()
        return {
            volume
            for volume in volumes
            if volume.claim is not None
            and claim_path(volume.claim.namespace, volume.claim.name) in lost
        }


def _users_of(pods: Iterable[Pod]) -> dict[str, frozenset[User]]:
    found: dict[str, set[User]] = {}
    for pod in pods:
        user = User(pod.ref.uid, pod.phase, pod.deleting_since, runs(pod), needs_volumes(pod))
        for claim in pod.claims:
            found.setdefault(claim_path(pod.ref.namespace, claim), set()).add(user)
    return {path: frozenset(users) for path, users in found.items()}


def _key_of(mapping: Mapping) -> str | None:
    """Return the search term for all PVs: the image, or the handle of an nbd device's backend."""
    image = identity_of_mapping(mapping)
    if image is not None:
        return str(image.spec)
    return mapping.nbd.backend if mapping.nbd is not None else None
