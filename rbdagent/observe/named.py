"""The Kubernetes API, of one node, again and again: objects by name, and kept while at rest.

A look at a target lists all PVs, VolumeAttachments and Nodes there are. An agent looks for ever, on
every node: what it asks grows with what its own node maps. A pod leads to its claim, and that to
its PV; kubelet's directories, and the look before, name the PVs of what no pod uses any more; the
name of a VolumeAttachment is computed. PVs are listed only for what is led to by no name.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from rbdagent.correlate.holders import needs_volumes, runs
from rbdagent.correlate.identity import mappings_of, mappings_seen
from rbdagent.correlate.local import directories_of, volumes_on_node
from rbdagent.correlate.use import indexed, names_of_mapping
from rbdagent.model import (
    Claim,
    Gap,
    KubeView,
    Mapping,
    NodeView,
    NotObserved,
    PersistentVolume,
    Snapshot,
    Source,
    Sources,
    SourceState,
    Target,
    TargetKind,
    observed_of,
)
from rbdagent.observe.asking import (
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
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import Pod
    from rbdagent.observe.api import Api

Json = dict[str, Any]

_SEARCHED_S: Final = 3600.0
"""A list of all there is that was searched for something is not searched for it again so long: an
administrator's own map must not list the cluster every five minutes. What that hides is a PV that
was made since, and that no pod of this node uses, for such a pod leads to it at once."""
_TURN_S: Final = 300.0
_TURN: Final = 5
"""So many of the kept objects, the oldest, are asked for anew in that time: a net, should anything
have changed that was held to be at rest. With this node's pods, Node and CSINode, and the heartbeat
of its RBDNode that stays within two requests a minute."""
_UNASKED: Final = Source(state=SourceState.SKIPPED)


class User(NamedTuple):
    """What of a pod tells how it stands to its claims."""

    uid: str | None
    phase: str
    deleting_since: str | None
    runs: bool
    needs: bool


class Answer(NamedTuple):
    """What the API told of an object, and when; None: it has none of that name."""

    value: Any
    at: float


class Known(NamedTuple):
    """What one look leaves to the next."""

    objects: dict[str, Answer]
    """By path."""
    users: dict[str, frozenset[User]]
    """The pods of each claim, by the claim's path."""
    volumes: frozenset[str]
    """The PVs of what is mapped here."""
    searched: dict[str, float]
    """When all there is was searched, and for what; see :attr:`KubeView.searched`."""
    turned_at: float = 0.0


NOTHING: Final = Known(objects={}, users={}, volumes=frozenset(), searched={})


def lately(searched: dict[str, float]) -> dict[str, float]:
    """Give what need not be searched for again yet."""
    since = time.monotonic() - _SEARCHED_S
    return {each: at for each, at in searched.items() if at > since}


class NamedLook:
    """One look: what is found by name leads to what is asked next."""

    def __init__(
        self,
        api: Api,
        node_name: str,
        node: NodeView | None,
        *,
        before: Known,
        elsewhere: frozenset[str],
    ) -> None:
        """Prepare it.

        Args:
            api: whom to ask.
            node_name: this node.
            node: what it shows.
            before: what the look before left.
            elsewhere: paths of Nodes and VolumeAttachments of others that are asked for as well.
        """
        self._api = api
        self._node_name = node_name
        self._node = node
        self._elsewhere = elsewhere
        self._now = time.monotonic()
        self._before = self._turned(before)
        self._pods: tuple[Pod, ...] | NotObserved = ()
        self._users: dict[str, frozenset[User]] = {}
        self._told: dict[str, Answer] = {}
        self._searched = lately(before.searched)
        self.gaps: tuple[Gap, ...] = ()
        """Lists that failed."""

    def _turned(self, before: Known) -> Known:
        """Forget the objects whose turn it is."""
        if self._now - before.turned_at < _TURN_S:
            return before
        by_age = sorted(before.objects, key=lambda path: before.objects[path].at)
        kept = {path: before.objects[path] for path in by_age[_TURN:]}
        return before._replace(objects=kept, turned_at=self._now)

    def view(self) -> KubeView:
        """Ask round after round, each for what the one before it named."""
        own = quote(self._node_name)
        others = [each for each in self._elsewhere if each.startswith(NODES)]
        nodes = self._asked([f"{NODES}/{own}", *sorted(others)], read.node)
        csi_node = self._asked([f"{CSI_NODES}/{own}"], read.csi_node)
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
                each.persistent_volume
                for each in observed_of(self._view().attachments)
                if each.persistent_volume is not None
            )
            self._search()
            self._ask_attachments()
        return self._view()

    def known(self) -> Known:
        """Give what the next look needs."""
        if isinstance(self._pods, NotObserved):
            return self._before
        seen = self._view().persistent_volumes
        found = {volume for names in self._names().values() for volume in names.volumes}
        found |= self._of_lost_claims(observed_of(seen))
        volumes = frozenset(each.name for each in found)
        if isinstance(seen, NotObserved) or not mappings_seen(self._node):
            # What was not seen is not forgotten.
            volumes |= self._before.volumes
        return Known(
            objects={
                path: kept
                for path, kept in self._told.items()
                if not isinstance(kept.value, NotObserved)
            },
            users=self._users,
            volumes=volumes,
            searched=self._searched,
            turned_at=self._before.turned_at,
        )

    # What was told --------------------------------------------------------------------------------

    def _view(self) -> KubeView:
        """Give all that was told up to now."""
        claims: tuple[Claim, ...] | NotObserved = all_observed(
            [self._told[path].value for path in self._users if path in self._told]
        )
        volumes: tuple[PersistentVolume, ...] | NotObserved = self._all(VOLUMES)
        attachments = self._all(ATTACHMENTS)
        if isinstance(self._pods, NotObserved):
            # Without them nobody knows the names of what to ask for.
            claims = attachments = self._pods
        if isinstance(claims, NotObserved):
            # The PV of a claim that was not seen may be any image's.
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
            searched=(
                *sorted(self._searched),
                *(
                    path.rpartition("/")[2]
                    for path, kept in self._told.items()
                    if path.startswith((NODES, ATTACHMENTS))
                    and not isinstance(kept.value, NotObserved)
                ),
            ),
        )

    def _all(self, path: str) -> Any:  # noqa: ANN401 - objects of any kind
        return all_observed(
            [kept.value for each, kept in self._told.items() if each.startswith(f"{path}/")]
        )

    def _names(self, every: tuple[PersistentVolume, ...] = ()) -> dict[Mapping, VolumeNames]:
        """Give what each mapping is called, by what was told up to now, and by a list of all."""
        view = self._view()
        if every:
            view = replace(view, persistent_volumes=every)
        snapshot = self._snapshot(view)
        look = indexed(snapshot)
        return {each: names_of_mapping(each, look) for each in mappings_of(self._node)}

    def _snapshot(self, view: KubeView) -> Snapshot:
        return Snapshot(
            observed_at="",
            tool_version="",
            target=Target(given="", kind=TargetKind.NONE),
            node=self._node,
            ceph=None,
            kubernetes=view,
            sources=Sources(node=_UNASKED, ceph=_UNASKED, kubernetes=_UNASKED),
        )

    # Asking ---------------------------------------------------------------------------------------

    def _asked(
        self,
        paths: Iterable[str],
        reader: Callable[[Json], Any],
        rests: Callable[[str, Any], bool] = lambda _, __: False,
    ) -> Callable[[], None]:
        """Ask for objects, but for those of which the look before knows all; give what waits."""
        asked = {}
        for path in paths:
            kept = self._before.objects.get(path)
            if path in self._told:
                continue
            if kept is not None and rests(path, kept.value):
                self._told[path] = kept
            else:
                asked[path] = self._api.ask(path)

        def wait() -> None:
            for path, each in asked.items():
                self._told[path] = Answer(found_object(each, reader), self._now)

        return wait

    def _is_changed(self, claim: str) -> bool:
        """Tell whether a claim's pods are not what they were when the look before asked."""
        return self._users.get(claim) != self._before.users.get(claim)

    def _ask_claims(self) -> None:
        def rests(path: str, claim: Any) -> bool:  # noqa: ANN401 - or None
            # One that is not bound yet will be, and no pod tells.
            return (
                isinstance(claim, Claim) and bool(claim.volume_name) and not self._is_changed(path)
            )

        self._asked(self._users, read.claim, rests)()

    def _names_of_volumes(self) -> set[str]:
        directories = directories_of(self._snapshot(self._view()))
        names = {each.volume_name for each in observed_of(self._view().claims) if each.volume_name}
        names |= self._before.volumes
        for mapping in mappings_of(self._node):
            names |= volumes_on_node(mapping, directories)
        return names

    def _ask_volumes(self, names: Iterable[str]) -> None:
        paths = [f"{VOLUMES}/{quote(each)}" for each in sorted(names)]
        self._asked(paths, read.persistent_volume, lambda _, volume: self._rests(volume))()

    def _rests(self, volume: PersistentVolume | None) -> bool:
        """Tell whether nothing of a PV can have changed that a verdict rests on.

        What is mapped here rests while a pod runs with it, and no pod of its claim came, went or
        changed: whatever the API says of PV and attachment, it is in use.
        """
        if volume is None or volume.claim is None:
            return False
        claim = claim_path(volume.claim.namespace, volume.claim.name)
        if claim not in self._users or self._is_changed(claim):
            return False
        is_run = any(each.runs and not each.deleting_since for each in self._users[claim])
        return is_run or volume.name not in self._before.volumes

    def _ask_attachments(self) -> None:
        at_rest: dict[str, bool] = {
            each: False for each in self._elsewhere if each.startswith(ATTACHMENTS)
        }
        for names in self._names().values():
            rest = bool(names.volumes) and all(self._rests(each) for each in names.volumes)
            for name in names.attachment_names(self._node_name):
                at_rest[f"{ATTACHMENTS}/{name}"] = rest
        self._asked(sorted(at_rest), read.attachment, lambda path, _: at_rest[path])()

    # Searching ------------------------------------------------------------------------------------

    def _search(self) -> None:
        """List the PVs for mappings that are led to none, and for claims of pods that are gone."""
        if isinstance(self._view().persistent_volumes, NotObserved):
            return
        unled = {
            key: each
            for each, names in self._names().items()
            if not names.volumes and (key := _key_of(each)) is not None
        }
        needed = {
            each for each in self._lost_claims() if any(user.needs for user in self._users[each])
        }
        wanted = {*unled, *needed} - self._searched.keys()
        if not wanted:
            return
        every = listed(self._api, VOLUMES, read.persistent_volume)()
        if isinstance(every, NotObserved):
            self.gaps += (Gap(fact="all PersistentVolumes", reason=every.reason, cure=every.cure),)
            return
        self._searched |= dict.fromkeys(wanted, self._now)
        names = self._names(every)
        found = {volume for each in unled.values() for volume in names[each].volumes}
        for volume in found | self._of_lost_claims(every):
            self._told[f"{VOLUMES}/{quote(volume.name)}"] = Answer(volume, self._now)

    def _lost_claims(self) -> set[str]:
        return {path for path in self._users if self._told[path].value is None}

    def _of_lost_claims(self, volumes: Iterable[PersistentVolume]) -> set[PersistentVolume]:
        lost = self._lost_claims()
        return {
            each
            for each in volumes
            if each.claim is not None and claim_path(each.claim.namespace, each.claim.name) in lost
        }


def _users_of(pods: Iterable[Pod]) -> dict[str, frozenset[User]]:
    found: dict[str, set[User]] = {}
    for pod in pods:
        user = User(pod.ref.uid, pod.phase, pod.deleting_since, runs(pod), needs_volumes(pod))
        for claim in pod.claims:
            found.setdefault(claim_path(pod.ref.namespace, claim), set()).add(user)
    return {path: frozenset(users) for path, users in found.items()}


def _key_of(mapping: Mapping) -> str | None:
    """Give what all PVs are searched for: the image, or the handle that an nbd device carries."""
    if not isinstance(mapping.spec, NotObserved):
        return str(mapping.spec)
    return mapping.nbd.backend if mapping.nbd is not None else None
