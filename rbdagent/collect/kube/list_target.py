"""Requests to the Kubernetes API for the objects of a target; as few as possible."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from rbdagent.collect.failure import gaps_in
from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import KubeAccess, credentials
from rbdagent.collect.kube.requests import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    NOT_FOUND,
    PODS,
    VOLUMES,
    Json,
    all_observed,
    claim_path,
    found_object,
    listed,
    objects,
    within,
)
from rbdagent.commands import kubectl, line_of
from rbdagent.errors import NotFoundError, ParseError, SourceError
from rbdagent.model import (
    CollectScope,
    CsiSource,
    Gap,
    ImageIdentity,
    ImageSpec,
    KubeEvent,
    KubeView,
    NotObserved,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Source,
    SourceState,
    Target,
    TargetKind,
    VolumeAttachment,
    derived,
    observed_of,
    separated,
)
from rbdagent.parse import kubernetes as read
from rbdagent.parse.handle import attachment_name
from rbdagent.parse.volume import image_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rbdagent.collect.kube.client import PendingRequest
    from rbdagent.collect.kube.connection import Connection

_T = TypeVar("_T")

_PAGE: Final = 500
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CLOSE: Final = 0.5
_MOST_EVENT_SUBJECTS: Final = 8

_NAMESPACES: Final = "/api/v1/namespaces"
_NOT_ASKED: Final = NotObserved(reason="not queried: only an unmap needs it")


def observe_kube(
    connection: Connection,
    target: Target,
    *,
    node_name: str,
    images: Sequence[ImageIdentity] = (),
    also: CollectScope = CollectScope.NOTHING,
) -> tuple[KubeView | None, Source]:
    """Return the API objects that belong to the target.

    Args:
        connection: to the API server.
        target: the TARGET argument; for an image, handle or device every PV is listed.
        node_name: this node, for its pods and its attachments.
        images: the images of the node's devices, when the target is a device.
        also: the requests in addition to those for the holders.

    Returns:
        The view, or None with the reason why there is none. If the API refused only one kind, that
        kind is NotObserved in the view and a gap of the source.

    Raises:
        NotFoundError: the API answered, and the target's object does not exist.
    """
    del images  # The correlation matches PVs; the list is the same for every image.
    try:
        api = connection.api()
        view, gaps = _TargetReader(api, node_name).view(target, also)
    except NotFoundError:
        raise
    except (SourceError, ParseError) as error:
        return None, Source(state=SourceState.FAILED, reason=str(error), hint=error.hint)
    gaps = (*gaps_of(view), *gaps)
    if CollectScope.LIFECYCLE & also:
        from rbdagent.collect.kube.list_provisioning import lifecycle_gaps

        gaps = (*gaps, *lifecycle_gaps(view))
    return view, Source(state=SourceState.OBSERVED, gaps=gaps)


class _TargetReader:
    """A series of requests to the API: each answer leads to the next requests.

    Requests are sent in parallel and as early as possible. A method that sends a request returns a
    function that waits for the answer.
    """

    def __init__(self, api: Api, node_name: str) -> None:
        self._api = api
        self._node_name = node_name

    def view(self, target: Target, also: CollectScope) -> tuple[KubeView, tuple[Gap, ...]]:
        # For every kind of target, another PV may lead to the same image.
        every = functools.cache(self._list(VOLUMES, read.persistent_volume))
        start = self._start(target, every)
        with_lifecycle = self._lifecycle(also) if CollectScope.LIFECYCLE & also else None
        frozen = self._frozen_namespaces() if CollectScope.UNMAP_GUARDS in also else None
        attachments = self._list(ATTACHMENTS, read.attachment)
        nodes = self._list(NODES, read.node)
        csi_nodes = self._list(CSI_NODES, read.csi_node)
        own_pods = self._list(PODS, read.pod, fieldSelector=f"spec.nodeName={self._node_name}")
        volumes, claims, pods = start()
        meant = _target_volumes(target, observed_of(volumes))
        is_unclaimed = bool(meant) and not _namespaces(meant, claims, pods)
        naming = self._claims_naming(meant) if is_unclaimed else None
        claims = claims if naming is None else naming
        namespaces = _namespaces(meant, claims, pods)
        # Without a claim, only an inline volume can lead to the pods, in any namespace.
        listed = self._pods(namespaces, everywhere=naming == ())
        more_claims = self._claims_of_volumes(meant, observed_of(claims))
        subjects = _subjects(meant, claims)
        early = self._events(subjects)
        found_pods, scope = _joined(pods, {f"node/{self._node_name}": own_pods()} | listed())
        using = _using_pods(target, meant, claims, found_pods)
        # A claim and its pod may have the same name: the first request returned events of both.
        late = self._events([subject for subject in using if subject not in subjects])
        all_attachments = attachments()
        found_attachments = self._attachments(all_attachments, volumes, found_pods)
        names = _node_names(self._node_name, found_pods, found_attachments)
        all_nodes, all_csi_nodes, further = nodes(), csi_nodes(), more_claims()
        claims = derived(claims, lambda known: derived(further, lambda more: known + more))
        every_volume = every()
        view = KubeView(
            server=self._api.server,
            persistent_volumes=_merged_volumes(every_volume, volumes),
            volumes_complete=isinstance(every_volume, tuple),
            claims=claims,
            pods=found_pods,
            nodes=self._named(all_nodes, NODES, names, read.node),
            csi_nodes=self._named(all_csi_nodes, CSI_NODES, names, read.csi_node),
            attachments=found_attachments,
            events=_all_events([*early(), *late()]),
            attachments_complete=isinstance(all_attachments, tuple),
            nodes_complete=isinstance(all_nodes, tuple),
            csi_nodes_complete=isinstance(all_csi_nodes, tuple),
            pods_scope=scope,
            # All requests were sent without a resourceVersion: quorum reads.
            consistent=True,
            frozen_namespaces=_NOT_ASKED if frozen is None else frozen(),
        )
        # What was requested by name after a refused list is no proof that there is no more.
        gaps = gaps_in(
            (f"all {kind}", every)
            for kind, every, found in (
                ("PersistentVolumes", every_volume, volumes),
                ("VolumeAttachments", all_attachments, found_attachments),
                ("Nodes", all_nodes, view.nodes),
                ("CSINodes", all_csi_nodes, view.csi_nodes),
            )
            if not isinstance(found, NotObserved)
        )
        if with_lifecycle is None:
            return view, gaps
        using_pods = tuple(
            pod for pod in observed_of(found_pods) if (pod.ref.namespace, pod.ref.name) in using
        )
        return with_lifecycle(view, using_pods, observed_of(claims), meant), gaps

    def _lifecycle(self, also: CollectScope) -> _WithLifecycle:
        """Send requests for the lifecycle; return a function that adds their answers to a view."""
        from rbdagent.collect.kube.list_provisioning import (
            TargetObjects,
            request_lifecycle,
            with_lifecycle,
        )

        wait = request_lifecycle(self._api, also)

        def with_answers(
            view: KubeView,
            pods: tuple[Pod, ...],
            claims: tuple[PersistentVolumeClaim, ...],
            volumes: tuple[PersistentVolume, ...],
        ) -> KubeView:
            attachments = _attachments_of(view, volumes)
            meant = TargetObjects(pods, claims, volumes, attachments)
            return with_lifecycle(view, wait(meant))

        return with_answers

    def _frozen_namespaces(self) -> Callable[[], tuple[str, ...] | NotObserved]:
        listed = self._list(_NAMESPACES, _name_if_frozen)
        return lambda: derived(listed(), lambda names: tuple(name for name in names if name))

    def _list(
        self, path: str, reader: Callable[[Json], _T], **query: str
    ) -> Callable[[], tuple[_T, ...] | NotObserved]:
        return listed(self._api, path, reader, **query)

    def _find_all(
        self, paths: Iterable[str], reader: Callable[[Json], _T]
    ) -> Callable[[], list[_T | NotObserved | None]]:
        asked = [self._api.ask(path) for path in paths]
        return lambda: [found_object(request, reader) for request in asked]

    # The objects that the target names ------------------------------------------------------------

    def _start(self, target: Target, every: _Volumes) -> Callable[[], _Start]:
        """Send the first requests; return a function that sends the next ones and waits."""
        match target.kind:
            case TargetKind.PERSISTENT_VOLUME:
                asked = self._api.ask(f"{VOLUMES}/{segment(target.name)}")
                return lambda: ((self._must(asked, target, read.persistent_volume),), (), ())
            case TargetKind.CLAIM:
                asked = self._api.ask(claim_path(target.namespace, target.name))
                return lambda: self._from_claim(self._must(asked, target, read.claim))
            case TargetKind.POD:
                namespace = segment(target.namespace)
                asked = self._api.ask(f"/api/v1/namespaces/{namespace}/pods/{segment(target.name)}")
                return lambda: self._from_pod(self._must(asked, target, read.pod))
            case _:
                return lambda: (every(), (), ())

    def _from_claim(self, claim: PersistentVolumeClaim) -> _Start:
        return self._volumes_of((claim,)), (claim,), ()

    def _from_pod(self, pod: Pod) -> _Start:
        paths = [claim_path(pod.ref.namespace, name) for name in pod.claims]
        claims = all_observed(self._find_all(paths, read.claim)())
        return derived(claims, self._volumes_of), claims, (pod,)

    def _must(self, asked: PendingRequest, target: Target, reader: Callable[[Json], _T]) -> _T:
        try:
            return read.parse_object(reader, asked.answer(), what=asked.path)
        except StatusError as error:
            if error.status != NOT_FOUND:
                raise
            near = near_names(self._api, target)
            raise NotFoundError(
                f"{target.argument}: {self._api.server} has no such {_KIND_WORDS[target.kind]}",
                hint=_hint(target, near),
                near=near,
            ) from error

    def _volumes_of(
        self, claims: Iterable[PersistentVolumeClaim]
    ) -> tuple[PersistentVolume, ...] | NotObserved:
        names = dict.fromkeys(claim.volume_name for claim in claims if claim.volume_name)
        paths = [f"{VOLUMES}/{segment(name)}" for name in names]
        return all_observed(self._find_all(paths, read.persistent_volume)())

    def _claims_of_volumes(
        self, volumes: tuple[PersistentVolume, ...], known: tuple[PersistentVolumeClaim, ...]
    ) -> Callable[[], tuple[PersistentVolumeClaim, ...] | NotObserved]:
        """Request the claims that the target's PVs refer to, except the known ones."""
        have = {(claim.ref.namespace, claim.ref.name) for claim in known}
        wanted = {
            (volume.claim.namespace, volume.claim.name)
            for volume in volumes
            if volume.claim is not None
        }
        found = self._find_all([claim_path(*name) for name in sorted(wanted - have)], read.claim)
        return lambda: all_observed(found())

    def _claims_naming(
        self, volumes: tuple[PersistentVolume, ...]
    ) -> tuple[PersistentVolumeClaim, ...] | None:
        """Return the claims that name PVs without a claimRef; None if claims were not observed.

        Running pods still use a PV whose claimRef was removed: their claim names the PV.
        """
        names = {volume.name for volume in volumes}
        found = self._list(CLAIMS, read.claim)()
        if isinstance(found, NotObserved):
            return None
        return tuple(claim for claim in found if claim.volume_name in names)

    # The objects that belong to the target's objects ----------------------------------------------

    def _attachments(
        self,
        listed: tuple[VolumeAttachment, ...] | NotObserved,
        volumes: tuple[PersistentVolume, ...] | NotObserved,
        pods: tuple[Pod, ...] | NotObserved,
    ) -> tuple[VolumeAttachment, ...] | NotObserved:
        """Return the attachments; request them by name and node if the list is forbidden."""
        if not isinstance(listed, NotObserved) or isinstance(volumes, NotObserved):
            return listed
        if len(volumes) > _MOST_EVENT_SUBJECTS:
            return listed
        nodes = _node_names(self._node_name, pods, ())
        names = [
            attachment_name(volume.source.volume_handle, volume.source.driver, node)
            for volume in volumes
            if isinstance(volume.source, CsiSource)
            for node in nodes
        ]
        found = self._find_all(
            [f"{ATTACHMENTS}/{segment(name)}" for name in names], read.attachment
        )
        some = tuple(
            attachment for attachment in found() if isinstance(attachment, VolumeAttachment)
        )
        # If these nodes have no attachment, other nodes may still have one.
        return some or listed

    def _named(
        self,
        listed: tuple[_T, ...] | NotObserved,
        path: str,
        names: Iterable[str],
        reader: Callable[[Json], _T],
    ) -> tuple[_T, ...] | NotObserved:
        """Return the objects; request them by name if the list is forbidden."""
        if not isinstance(listed, NotObserved):
            return listed
        found = all_observed(
            self._find_all([f"{path}/{segment(name)}" for name in names], reader)()
        )
        return listed if isinstance(found, NotObserved) else found

    def _pods(
        self, namespaces: Iterable[str], *, everywhere: bool
    ) -> Callable[[], dict[str, tuple[Pod, ...] | NotObserved]]:
        """List the pods of namespaces and, if requested, of all; each list by its scope."""
        paths = {
            f"namespace/{namespace}": f"/api/v1/namespaces/{segment(namespace)}/pods"
            for namespace in namespaces
        }
        paths |= {"cluster": PODS} if everywhere else {}
        asked = {scope: self._list(path, read.pod) for scope, path in paths.items()}
        return lambda: {scope: wait() for scope, wait in asked.items()}

    def _events(
        self, subjects: Iterable[tuple[str, str]]
    ) -> Callable[[], list[tuple[KubeEvent, ...] | NotObserved]]:
        asked = [
            self._list(
                f"/api/v1/namespaces/{segment(namespace)}/events",
                read.event,
                fieldSelector=f"involvedObject.name={name}",
            )
            for namespace, name in [*dict.fromkeys(subjects)][:_MOST_EVENT_SUBJECTS]
        ]
        return lambda: [wait() for wait in asked]


def _attachments_of(
    view: KubeView, volumes: tuple[PersistentVolume, ...]
) -> tuple[VolumeAttachment, ...]:
    names = {volume.name for volume in volumes}
    return tuple(one for one in observed_of(view.attachments) if one.persistent_volume in names)


_Volumes = Callable[[], tuple[PersistentVolume, ...] | NotObserved]
_WithLifecycle = Callable[
    [KubeView, tuple[Pod, ...], tuple[PersistentVolumeClaim, ...], tuple[PersistentVolume, ...]],
    KubeView,
]
_Start = tuple[
    tuple[PersistentVolume, ...] | NotObserved,
    tuple[PersistentVolumeClaim, ...] | NotObserved,
    tuple[Pod, ...],
]


def _name_if_frozen(namespace: Json) -> str:
    return str(namespace["metadata"]["name"]) if read.is_frozen(namespace) else ""


def _merged_volumes(
    every: tuple[PersistentVolume, ...] | NotObserved,
    named: tuple[PersistentVolume, ...] | NotObserved,
) -> tuple[PersistentVolume, ...] | NotObserved:
    """Merge the list with the objects requested by name afterwards; the latter are newer."""
    if isinstance(every, NotObserved):
        return named
    return tuple({volume.name: volume for volume in (*every, *observed_of(named))}.values())


def _all_events(
    parts: Sequence[tuple[KubeEvent, ...] | NotObserved],
) -> tuple[KubeEvent, ...] | NotObserved:
    """Return all events, or the reason if there are none and a request failed."""
    observed, missing = separated(parts)
    found = tuple(event for part in observed for event in part)
    return found if found or not missing else missing[0]


def _subjects(
    meant: tuple[PersistentVolume, ...], claims: tuple[PersistentVolumeClaim, ...] | NotObserved
) -> list[tuple[str, str]]:
    """Return namespace and name of the volumes and claims; a volume's events are in default."""
    subjects = [("default", volume.name) for volume in meant]
    return subjects + sorted(_claim_names(meant, claims))


def _claim_names(
    meant: tuple[PersistentVolume, ...], claims: tuple[PersistentVolumeClaim, ...] | NotObserved
) -> set[tuple[str, str]]:
    known = {(claim.ref.namespace, claim.ref.name) for claim in observed_of(claims)}
    return known | {
        (volume.claim.namespace, volume.claim.name) for volume in meant if volume.claim is not None
    }


def _using_pods(
    target: Target,
    meant: tuple[PersistentVolume, ...],
    claims: tuple[PersistentVolumeClaim, ...] | NotObserved,
    pods: tuple[Pod, ...] | NotObserved,
) -> list[tuple[str, str]]:
    """Return namespace and name of the pods whose events belong to the target."""
    wanted = _claim_names(meant, claims)
    return [
        (pod.ref.namespace, pod.ref.name)
        for pod in observed_of(pods)
        if any((pod.ref.namespace, name) in wanted for name in pod.claims)
        or (target.kind is TargetKind.POD and pod.ref.name == target.name)
    ]


_KIND_WORDS: Final = {
    TargetKind.PERSISTENT_VOLUME: "PersistentVolume",
    TargetKind.CLAIM: "PersistentVolumeClaim",
    TargetKind.POD: "Pod",
}


def _namespaces(
    meant: tuple[PersistentVolume, ...],
    claims: tuple[PersistentVolumeClaim, ...] | NotObserved,
    pods: tuple[Pod, ...],
) -> tuple[str, ...]:
    """Return the namespaces in which pods may use the target."""
    found = {volume.claim.namespace for volume in meant if volume.claim is not None}
    found |= {claim.ref.namespace for claim in observed_of(claims)}
    found |= {pod.ref.namespace for pod in pods}
    return tuple(sorted(found))


def _target_volumes(
    target: Target, volumes: tuple[PersistentVolume, ...]
) -> tuple[PersistentVolume, ...]:
    """Return the PVs that the target refers to: those of the image, or with the handle.

    Only the node knows the image of a device. The pods that use the device run on this node, whose
    pods are listed.
    """
    match target.kind:
        case TargetKind.IMAGE:
            return tuple(volume for volume in volumes if _has_image(volume, target.image))
        case TargetKind.VOLUME_HANDLE:
            return tuple(
                volume
                for volume in volumes
                if isinstance(volume.source, CsiSource)
                and volume.source.volume_handle == target.name
            )
        case TargetKind.DEVICE | TargetKind.NONE:
            return ()
        case _:
            return volumes


def _has_image(volume: PersistentVolume, spec: ImageSpec | None) -> bool:
    image = image_of(volume)
    if image is None or spec is None or isinstance(image, NotObserved):
        return False
    # A handle without volumeAttributes names the pool only by its id.
    return image.spec.name == spec.name and image.spec.pool in {"", spec.pool}


def _joined(
    known: tuple[Pod, ...], parts: Mapping[str, tuple[Pod, ...] | NotObserved]
) -> tuple[tuple[Pod, ...] | NotObserved, str]:
    """Merge lists of pods by their scope; the scope of the result names the observed lists."""
    observed = {scope: part for scope, part in parts.items() if not isinstance(part, NotObserved)}
    if not observed:
        return next(iter(parts.values())), ""
    pods = {
        (pod.ref.namespace, pod.ref.name): pod
        for part in (known, *observed.values())
        for pod in part
    }
    return tuple(pods.values()), ",".join(observed)


def _node_names(
    own: str,
    pods: tuple[Pod, ...] | NotObserved,
    attachments: tuple[VolumeAttachment, ...] | NotObserved,
) -> tuple[str, ...]:
    names = [own, *(attachment.node_name for attachment in observed_of(attachments))]
    names += [pod.node_name for pod in observed_of(pods) if pod.node_name]
    return tuple(dict.fromkeys(names))


def volumes_of_claims(
    access: KubeAccess, namespace: str | None, selector: str | None
) -> frozenset[str]:
    """Return the names of the PersistentVolumes of the claims in a namespace, or with labels.

    Raises:
        SourceError: the request failed.
    """
    api = Api(credentials(access), timeout_s=access.timeout_s)
    query = {"labelSelector": selector} if selector else {}
    listing = api.list(within(namespace, "persistentvolumeclaims"), **query)
    claims = objects(listing, read.claim, what="PersistentVolumeClaim")
    return frozenset(claim.volume_name for claim in claims if claim.volume_name is not None)


def near_names(api: Api, target: Target) -> tuple[str, ...]:
    """Return names of the same kind that are similar to a name that does not exist."""
    paths = {
        TargetKind.PERSISTENT_VOLUME: VOLUMES,
        TargetKind.CLAIM: f"/api/v1/namespaces/{segment(target.namespace)}/persistentvolumeclaims",
        TargetKind.POD: f"/api/v1/namespaces/{segment(target.namespace)}/pods",
    }
    try:
        page = api.ask(paths[target.kind], {"limit": _PAGE}, accept=_METADATA_ONLY).answer()
        names = [str(item["metadata"]["name"]) for item in page.get("items") or ()]
    except (SourceError, KeyError, TypeError):
        return ()
    import difflib

    close = difflib.get_close_matches(target.name, names, n=3, cutoff=_CLOSE)
    inside = [name for name in names if target.name and target.name in name][:3]
    return tuple(dict.fromkeys([*inside, *close]))[:3]


def _hint(target: Target, near: tuple[str, ...]) -> str:
    if not near:
        return (
            f"{line_of(kubectl('get', str(target.kind), options=('-A',)))} lists the existing ones"
        )
    return "did you mean " + " or ".join(f"{target.kind}/{name}" for name in near) + "?"


def gaps_of(view: KubeView) -> tuple[Gap, ...]:
    """Return the kinds of objects that were not observed, as gaps."""
    return gaps_in(
        [
            ("PersistentVolumes", view.persistent_volumes),
            ("PersistentVolumeClaims", view.claims),
            ("pods", view.pods),
            ("nodes", view.nodes),
            ("CSINodes", view.csi_nodes),
            ("VolumeAttachments", view.attachments),
            ("events", view.events),
        ]
    )
