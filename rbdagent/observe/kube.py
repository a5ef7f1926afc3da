"""The Kubernetes API: only what belongs to the target, in as few requests as that takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from rbdagent.commands import kubectl, line_of
from rbdagent.errors import NotFoundError, ParseError, SourceError
from rbdagent.model import (
    Also,
    Attachment,
    Claim,
    CsiSource,
    Gap,
    ImageIdentity,
    ImageSpec,
    KubeEvent,
    KubeView,
    NotObserved,
    PersistentVolume,
    Pod,
    PublishedNode,
    Source,
    SourceState,
    Target,
    TargetKind,
    observed_of,
)
from rbdagent.observe.api import Api, StatusError
from rbdagent.observe.asking import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    NODES,
    NOT_FOUND,
    PODS,
    RBD_NODES,
    VOLUMES,
    Json,
    all_observed,
    claim_path,
    found_object,
    listed,
)
from rbdagent.observe.failure import not_observed
from rbdagent.observe.kubeconfig import KubeAccess, credentials
from rbdagent.observe.life import Meant, ask_life, gap, gaps_of_life, with_life
from rbdagent.parse import kubernetes as read
from rbdagent.parse.handle import attachment_name
from rbdagent.parse.volume import image_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rbdagent.observe.api import Asked, Listing

_T = TypeVar("_T")

_PAGE: Final = 500
_REPORTS_AT_ONCE: Final = 100
"""Of RBDNodes, which hold 27 KiB each where fifty images are mapped."""
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CLOSE: Final = 0.5
_MOST_EVENT_SUBJECTS: Final = 8

_NAMESPACES: Final = "/api/v1/namespaces"
_NOT_ASKED: Final = NotObserved(reason="not asked: nobody wants to act")


def observe_kube(
    access: KubeAccess,
    target: Target,
    *,
    node_name: str,
    images: Sequence[ImageIdentity] = (),
    also: Also = Also.NOTHING,
) -> tuple[KubeView | None, Source]:
    """Ask the API for what belongs to the target.

    Args:
        access: where and as whom.
        target: what the user named; for an image, handle or device every PV is listed.
        node_name: this node, for its pods and its attachments.
        images: what the node's devices are, when the target is a device.
        also: the annotations of namespaces (SWITCHES); classes, drivers, and the controllers of
            its pods (LIFE).

    Returns:
        The view, or None with the reason why there is none. A kind that alone was refused is
        NotObserved in the view and a gap of the source.

    Raises:
        NotFoundError: the API answered, and the object that the target names is not there.
    """
    del images  # PVs are matched by the pure core; the list is the same for every image.
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
        view, gaps = _Look(api, node_name).view(target, also)
    except NotFoundError:
        raise
    except (SourceError, ParseError) as error:
        return None, Source(state=SourceState.FAILED, reason=str(error), cure=error.hint)
    of_life = gaps_of_life(view) if Also.LIFE in also else ()
    return view, Source(state=SourceState.OBSERVED, gaps=(*gaps_of(view), *gaps, *of_life))


class _Look:
    """One look at the API: what is found leads to what is asked next.

    Requests are sent as early as can be, and are under way together; a call of what such a method
    gave waits for the answer.
    """

    def __init__(self, api: Api, node_name: str) -> None:
        self._api = api
        self._node_name = node_name

    def view(self, target: Target, also: Also) -> tuple[KubeView, tuple[Gap, ...]]:
        # Another PV may lead to the same image, whatever the target is.
        every = functools.cache(self._list(VOLUMES, read.persistent_volume))
        start = self._start(target, every)
        ask_further = ask_life(self._api) if Also.LIFE in also else None
        frozen = self._frozen_namespaces() if Also.SWITCHES in also else None
        attachments = self._list(ATTACHMENTS, read.attachment)
        nodes = self._list(NODES, read.node)
        csi_nodes = self._list(CSI_NODES, read.csi_node)
        own_pods = self._list(PODS, read.pod, fieldSelector=f"spec.nodeName={self._node_name}")
        volumes, claims, pods = start()
        meant = _meant(target, observed_of(volumes))
        is_unclaimed = bool(meant) and not _namespaces(meant, claims, pods)
        naming = self._claims_naming(meant) if is_unclaimed else None
        claims = claims if naming is None else naming
        namespaces = _namespaces(meant, claims, pods)
        listed = [
            self._list(f"/api/v1/namespaces/{quote(each)}/pods", read.pod) for each in namespaces
        ]
        everywhere = naming == ()
        if everywhere:
            # No claim leads to its pods: an inline volume, in whichever namespace, may.
            listed.append(self._list(PODS, read.pod))
        more_claims = self._claims_of_volumes(meant, observed_of(claims))
        subjects = _subjects(meant, claims)
        early = self._events(subjects)
        scopes = [f"node/{self._node_name}", *(f"namespace/{each}" for each in namespaces)]
        scopes += ["cluster"] if everywhere else []
        found_pods, scope = _joined(pods, [own_pods(), *(each() for each in listed)], scopes)
        using = _using_pods(target, meant, claims, found_pods)
        # A claim and its pod may share a name: the events of both came with the first.
        late = self._events([each for each in using if each not in subjects])
        all_attachments = attachments()
        found_attachments = self._attachments(all_attachments, volumes, found_pods)
        names = _node_names(self._node_name, found_pods, found_attachments)
        all_nodes, further = nodes(), more_claims()
        if isinstance(claims, tuple):
            claims = further if isinstance(further, NotObserved) else claims + further
        every_volume = every()
        view = KubeView(
            server=self._api.server,
            persistent_volumes=_joined_volumes(every_volume, volumes),
            volumes_complete=isinstance(every_volume, tuple),
            claims=claims,
            pods=found_pods,
            nodes=self._named(all_nodes, NODES, names, read.node),
            csi_nodes=self._named(csi_nodes(), CSI_NODES, names, read.csi_node),
            attachments=found_attachments,
            events=_some_or_why([*early(), *late()]),
            attachments_complete=isinstance(all_attachments, tuple),
            nodes_complete=isinstance(all_nodes, tuple),
            pods_scope=scope,
            # Every list and object was asked for without a resourceVersion: a quorum read.
            consistent=True,
            frozen_namespaces=_NOT_ASKED if frozen is None else frozen(),
        )
        gaps = (
            () if isinstance(volumes, NotObserved) else gap("all PersistentVolumes", every_volume)
        )
        if ask_further is None:
            return view, gaps
        mine = [
            each for each in observed_of(found_pods) if (each.ref.namespace, each.ref.name) in using
        ]
        return with_life(view, ask_further(Meant(tuple(mine), observed_of(claims), meant))), gaps

    def _frozen_namespaces(self) -> Callable[[], tuple[str, ...] | NotObserved]:
        listed = self._list(_NAMESPACES, _name_if_frozen)
        return lambda: (
            found
            if isinstance(found := listed(), NotObserved)
            else tuple(each for each in found if each)
        )

    def _list(
        self, path: str, reader: Callable[[Json], _T], **query: str
    ) -> Callable[[], tuple[_T, ...] | NotObserved]:
        return listed(self._api, path, reader, **query)

    def _find_all(
        self, paths: Iterable[str], reader: Callable[[Json], _T]
    ) -> Callable[[], list[_T | NotObserved | None]]:
        asked = [self._api.ask(each) for each in paths]
        return lambda: [found_object(each, reader) for each in asked]

    # The objects that the target names ------------------------------------------------------------

    def _start(self, target: Target, every: _Volumes) -> Callable[[], _Start]:
        """Send what can be sent at once, and give what waits for the rest."""
        match target.kind:
            case TargetKind.PERSISTENT_VOLUME:
                asked = self._api.ask(f"{VOLUMES}/{quote(target.name)}")
                return lambda: ((self._must(asked, target, read.persistent_volume),), (), ())
            case TargetKind.CLAIM:
                asked = self._api.ask(claim_path(target.namespace, target.name))
                return lambda: self._from_claim(self._must(asked, target, read.claim))
            case TargetKind.POD:
                namespace = quote(target.namespace)
                asked = self._api.ask(f"/api/v1/namespaces/{namespace}/pods/{quote(target.name)}")
                return lambda: self._from_pod(self._must(asked, target, read.pod))
            case _:
                return lambda: (every(), (), ())

    def _from_claim(self, claim: Claim) -> _Start:
        return self._volumes_of((claim,)), (claim,), ()

    def _from_pod(self, pod: Pod) -> _Start:
        paths = [claim_path(pod.ref.namespace, name) for name in pod.claims]
        claims = all_observed(self._find_all(paths, read.claim)())
        volumes = claims if isinstance(claims, NotObserved) else self._volumes_of(claims)
        return volumes, claims, (pod,)

    def _must(self, asked: Asked, target: Target, reader: Callable[[Json], _T]) -> _T:
        try:
            return read.parse_object(reader, asked.answer(), what=asked.path)
        except StatusError as error:
            if error.status != NOT_FOUND:
                raise
            near = near_names(self._api, target)
            raise NotFoundError(
                f"{target.given}: {self._api.server} has no such {_KIND_WORDS[target.kind]}",
                hint=_did_you_mean(target, near),
                near=near,
            ) from error

    def _volumes_of(self, claims: Iterable[Claim]) -> tuple[PersistentVolume, ...] | NotObserved:
        names = dict.fromkeys(each.volume_name for each in claims if each.volume_name)
        paths = [f"{VOLUMES}/{quote(name)}" for name in names]
        return all_observed(self._find_all(paths, read.persistent_volume)())

    def _claims_of_volumes(
        self, volumes: tuple[PersistentVolume, ...], known: tuple[Claim, ...]
    ) -> Callable[[], tuple[Claim, ...] | NotObserved]:
        """Ask for the claims that the target's PVs refer to and that are not known yet."""
        have = {(each.ref.namespace, each.ref.name) for each in known}
        wanted = {
            (each.claim.namespace, each.claim.name) for each in volumes if each.claim is not None
        }
        found = self._find_all([claim_path(*each) for each in sorted(wanted - have)], read.claim)
        return lambda: all_observed(found())

    def _claims_naming(self, volumes: tuple[PersistentVolume, ...]) -> tuple[Claim, ...] | None:
        """Return the claims that name PVs which name no claim; None where these were not observed.

        A PV whose claimRef was taken away is still used by the pods that run: their claim names it.
        """
        names = {volume.name for volume in volumes}
        found = self._list(CLAIMS, read.claim)()
        if isinstance(found, NotObserved):
            return None
        return tuple(claim for claim in found if claim.volume_name in names)

    # What belongs to them -------------------------------------------------------------------------

    def _attachments(
        self,
        listed: tuple[Attachment, ...] | NotObserved,
        volumes: tuple[PersistentVolume, ...] | NotObserved,
        pods: tuple[Pod, ...] | NotObserved,
    ) -> tuple[Attachment, ...] | NotObserved:
        """Where the list is forbidden, ask by name for this node's and the pods' nodes'."""
        if not isinstance(listed, NotObserved) or isinstance(volumes, NotObserved):
            return listed
        if len(volumes) > _MOST_EVENT_SUBJECTS:
            return listed
        nodes = _node_names(self._node_name, pods, ())
        names = [
            attachment_name(each.source.volume_handle, each.source.driver, node)
            for each in volumes
            if isinstance(each.source, CsiSource)
            for node in nodes
        ]
        found = self._find_all([f"{ATTACHMENTS}/{name}" for name in names], read.attachment)
        some = tuple(each for each in found() if isinstance(each, Attachment))
        # Absent by name on some nodes says nothing about the others.
        return some or listed

    def _named(
        self,
        listed: tuple[_T, ...] | NotObserved,
        path: str,
        names: Iterable[str],
        reader: Callable[[Json], _T],
    ) -> tuple[_T, ...] | NotObserved:
        """Where the list is forbidden, ask for those that are known by name."""
        if not isinstance(listed, NotObserved):
            return listed
        found = all_observed(self._find_all([f"{path}/{quote(name)}" for name in names], reader)())
        return listed if isinstance(found, NotObserved) else found

    def _events(
        self, subjects: Iterable[tuple[str, str]]
    ) -> Callable[[], list[tuple[KubeEvent, ...] | NotObserved]]:
        asked = [
            self._list(
                f"/api/v1/namespaces/{quote(namespace)}/events",
                read.event,
                fieldSelector=f"involvedObject.name={name}",
            )
            for namespace, name in [*dict.fromkeys(subjects)][:_MOST_EVENT_SUBJECTS]
        ]
        return lambda: [each() for each in asked]


_Volumes = Callable[[], tuple[PersistentVolume, ...] | NotObserved]
_Start = tuple[
    tuple[PersistentVolume, ...] | NotObserved, tuple[Claim, ...] | NotObserved, tuple[Pod, ...]
]


def _name_if_frozen(namespace: Json) -> str:
    return str(namespace["metadata"]["name"]) if read.is_frozen(namespace) else ""


def _joined_volumes(
    every: tuple[PersistentVolume, ...] | NotObserved,
    named: tuple[PersistentVolume, ...] | NotObserved,
) -> tuple[PersistentVolume, ...] | NotObserved:
    """Put together what was listed and what was then asked for by name; the latter is newer."""
    if isinstance(every, NotObserved):
        return named
    return tuple({each.name: each for each in (*every, *observed_of(named))}.values())


def _some_or_why(
    parts: Sequence[tuple[KubeEvent, ...] | NotObserved],
) -> tuple[KubeEvent, ...] | NotObserved:
    """Give all events; where there is none, and a list was refused, why."""
    found = tuple(event for part in parts for event in observed_of(part))
    missing = next((each for each in parts if isinstance(each, NotObserved)), None)
    return found if found or missing is None else missing


def _subjects(
    meant: tuple[PersistentVolume, ...], claims: tuple[Claim, ...] | NotObserved
) -> list[tuple[str, str]]:
    """Give namespace and name of the volumes and claims; a volume's events are in default."""
    subjects = [("default", each.name) for each in meant]
    return subjects + sorted(_claim_names(meant, claims))


def _claim_names(
    meant: tuple[PersistentVolume, ...], claims: tuple[Claim, ...] | NotObserved
) -> set[tuple[str, str]]:
    known = {(each.ref.namespace, each.ref.name) for each in observed_of(claims)}
    return known | {
        (each.claim.namespace, each.claim.name) for each in meant if each.claim is not None
    }


def _using_pods(
    target: Target,
    meant: tuple[PersistentVolume, ...],
    claims: tuple[Claim, ...] | NotObserved,
    pods: tuple[Pod, ...] | NotObserved,
) -> list[tuple[str, str]]:
    """Give the pods whose events belong to the target."""
    wanted = _claim_names(meant, claims)
    return [
        (each.ref.namespace, each.ref.name)
        for each in observed_of(pods)
        if any((each.ref.namespace, name) in wanted for name in each.claims)
        or (target.kind is TargetKind.POD and each.ref.name == target.name)
    ]


_KIND_WORDS: Final = {
    TargetKind.PERSISTENT_VOLUME: "PersistentVolume",
    TargetKind.CLAIM: "PersistentVolumeClaim",
    TargetKind.POD: "Pod",
}


def _namespaces(
    meant: tuple[PersistentVolume, ...],
    claims: tuple[Claim, ...] | NotObserved,
    pods: tuple[Pod, ...],
) -> tuple[str, ...]:
    """Give the namespaces where users of the target may live."""
    found = {each.claim.namespace for each in meant if each.claim is not None}
    found |= {each.ref.namespace for each in observed_of(claims)}
    found |= {each.ref.namespace for each in pods}
    return tuple(sorted(found))


def _meant(target: Target, volumes: tuple[PersistentVolume, ...]) -> tuple[PersistentVolume, ...]:
    """Give the PVs that the target means: of all PVs those of the image, or with the handle.

    Which image a device is only the node knows: its pods are on this node, and these are listed.
    """
    match target.kind:
        case TargetKind.IMAGE:
            return tuple(each for each in volumes if _has_image(each, target.image))
        case TargetKind.VOLUME_HANDLE:
            return tuple(
                each
                for each in volumes
                if isinstance(each.source, CsiSource) and each.source.volume_handle == target.name
            )
        case TargetKind.DEVICE | TargetKind.NONE:
            return ()
        case _:
            return volumes


def _has_image(volume: PersistentVolume, spec: ImageSpec | None) -> bool:
    image = image_of(volume)
    if image is None or spec is None or isinstance(image, NotObserved):
        return False
    # A handle without volumeAttributes tells the pool by its id alone.
    return image.spec.name == spec.name and image.spec.pool in {"", spec.pool}


def _joined(
    known: tuple[Pod, ...], parts: Sequence[tuple[Pod, ...] | NotObserved], scopes: Sequence[str]
) -> tuple[tuple[Pod, ...] | NotObserved, str]:
    """Join lists of pods; the scope names the lists that were observed."""
    observed: list[tuple[tuple[Pod, ...], str]] = []
    for part, scope in zip(parts, scopes, strict=True):
        if not isinstance(part, NotObserved):
            observed.append((part, scope))
    if not observed:
        first = parts[0]
        return (first if isinstance(first, NotObserved) else known), ""
    pods = {(each.ref.namespace, each.ref.name): each for each in known}
    for part, _ in observed:
        pods |= {(each.ref.namespace, each.ref.name): each for each in part}
    return tuple(pods.values()), ",".join(scope for _, scope in observed)


def _node_names(
    own: str,
    pods: tuple[Pod, ...] | NotObserved,
    attachments: tuple[Attachment, ...] | NotObserved,
) -> tuple[str, ...]:
    names = [own, *(each.node_name for each in observed_of(attachments))]
    names += [each.node_name for each in observed_of(pods) if each.node_name]
    return tuple(dict.fromkeys(names))


def published_nodes(access: KubeAccess) -> tuple[PublishedNode, ...]:
    """Give what the agents of all nodes published.

    Raises:
        SourceError: the API did not tell; where it has no such resource, how to get it.
    """
    api = Api(credentials(access), timeout_s=access.timeout_s)
    try:
        return tuple(_rbd_nodes(api.list(RBD_NODES)))
    except StatusError as error:
        if error.status != NOT_FOUND:
            raise
        raise SourceError(
            f"{api.server} has no resource rbdnodes.rbdagent.dev: no agent publishes here",
            cure="kubectl apply -f helm/rbdagent/files/rbdnodes.yaml, and run rbdagent agent",
        ) from error


def published_or_gap(
    access: KubeAccess, reduced: Callable[[PublishedNode], PublishedNode]
) -> tuple[PublishedNode, ...] | NotObserved:
    """Return what the agents of all nodes published, each report reduced as it comes.

    Reports of a thousand nodes with fifty mappings each are 27 MB of JSON: what concerns other
    volumes is dropped page by page.
    """
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
    except Exception as error:  # noqa: BLE001 - what the look has seen already stays
        return not_observed(error, RBD_NODES)
    return begin_reports(api, reduced)()


def begin_reports(
    api: Api, reduced: Callable[[PublishedNode], PublishedNode] = lambda report: report
) -> Callable[[], tuple[PublishedNode, ...] | NotObserved]:
    """Ask for every RBDNode; return what waits for them. Without the resource there is no agent."""
    listing = api.list(RBD_NODES, limit=_REPORTS_AT_ONCE)

    def wait() -> tuple[PublishedNode, ...] | NotObserved:
        try:
            return tuple(reduced(report) for report in _rbd_nodes(listing))
        except StatusError as error:
            return () if error.status == NOT_FOUND else not_observed(error, RBD_NODES)
        except Exception as error:  # noqa: BLE001 - what the look has seen already stays
            return not_observed(error, RBD_NODES)

    return wait


def rbd_nodes_named(
    access: KubeAccess, names: Iterable[str]
) -> dict[str, PublishedNode | NotObserved | None]:
    """Give what the agents of some nodes published, a request each; None: no agent is there."""
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
    except Exception as error:  # noqa: BLE001 - as above
        return dict.fromkeys(names, not_observed(error, RBD_NODES))
    asked = {name: api.ask(f"{RBD_NODES}/{quote(name)}") for name in names}
    return {name: found_object(each, read.rbd_node) for name, each in asked.items()}


def _rbd_nodes(listing: Listing) -> Iterator[PublishedNode]:
    for page in listing.pages():
        for found in page:
            yield read.parse_object(read.rbd_node, found, what="RBDNode")


def near_names(api: Api, target: Target) -> tuple[str, ...]:
    """Give names of the same kind that come close to a name that is not there."""
    paths = {
        TargetKind.PERSISTENT_VOLUME: VOLUMES,
        TargetKind.CLAIM: f"/api/v1/namespaces/{quote(target.namespace)}/persistentvolumeclaims",
        TargetKind.POD: f"/api/v1/namespaces/{quote(target.namespace)}/pods",
    }
    try:
        page = api.ask(paths[target.kind], {"limit": _PAGE}, accept=_METADATA_ONLY).answer()
        names = [str(each["metadata"]["name"]) for each in page.get("items") or ()]
    except (SourceError, KeyError, TypeError):
        return ()
    import difflib

    close = difflib.get_close_matches(target.name, names, n=3, cutoff=_CLOSE)
    inside = [name for name in names if target.name and target.name in name][:3]
    return tuple(dict.fromkeys([*inside, *close]))[:3]


def _did_you_mean(target: Target, near: tuple[str, ...]) -> str:
    if not near:
        return f"{line_of(kubectl('get', str(target.kind), options=('-A',)))} lists what there is"
    return "did you mean " + " or ".join(f"{target.kind}/{name}" for name in near) + "?"


def gaps_of(view: KubeView) -> tuple[Gap, ...]:
    """Give the kinds that were not observed."""
    return (
        *gap("PersistentVolumes", view.persistent_volumes),
        *gap("PersistentVolumeClaims", view.claims),
        *gap("pods", view.pods),
        *gap("nodes", view.nodes),
        *gap("CSINodes", view.csi_nodes),
        *gap("VolumeAttachments", view.attachments),
        *gap("events", view.events),
    )
