"""The verdict on each image of whole pools: which ones no object of this cluster refers to.

Unclaimed is the last verdict: every fact that could forbid it was observed, and none does. It is no
advice to delete: PVs of other Kubernetes clusters are invisible here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.correlate.image_references import (
    MOST_FACTS,
    Found,
    ImageReferences,
    Observed,
    listed_images,
    place_of,
)
from rbdagent.model import NotObserved, first_unobserved, observed_of
from rbdagent.model.inventory import (
    ImageFacts,
    ImageReport,
    ImageVerdict,
    JudgedImage,
    Origin,
    TrashSource,
)
from rbdagent.parse.csi_image_name import (
    has_name_of_ceph_csi,
    has_name_of_in_tree,
    is_of_snapshot,
    is_temporary,
    journal_uuid,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.times import age

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import ImageSpec, Watcher
    from rbdagent.model.inventory import JournalEntry, ListedImage, References

CLUSTER_NAME: Final = "csi.ceph.com/cluster/name"
_VOLUME: Final = "csi.storage.k8s.io/pv/name"
_CONTENT: Final = "csi.storage.k8s.io/volumesnapshotcontent/name"
_NOT_READ: Final = NotObserved(
    reason=f"the facts of at most {MOST_FACTS} images are read",
    hint="name one pool, or POOL/NAMESPACE, to read those of fewer images",
)
_NOT_NEEDED: Final = NotObserved(reason="not requested: an object of this cluster refers to it")
_MOST_NAMED: Final = 3
_NEW: Final = timedelta(minutes=10)


def judge_images(observed: Observed, *, observed_at: str) -> ImageReport:
    """Return the verdict on each image of a listing."""
    known = ImageReferences(observed.references)
    images = [
        image
        for image in listed_images(observed.listing)
        if observed.facts.get(place_of(image), _NOT_READ) is not None
    ]
    own = _own_names(images, known, observed)
    present = frozenset(image.spec for image in images if image.trash is None)
    unread = _unread_names(images, known, observed)
    case = _Case(observed, known, own, unread, observed_at, present)
    judged = tuple(_judge(image, case) for image in images)
    renamed = {found.reference for found in observed.renamed.values()}
    lost = (volume.name for volume in known.lost(observed.listing))
    return ImageReport(
        observed_at=observed_at,
        images=tuple(sorted(judged, key=lambda one: (one.image.cluster, one.image.spec))),
        pools=observed.listing.pools,
        own_names=own,
        missing=_missing_references(observed.references),
        lost=tuple(name for name in lost if f"pv/{name}" not in renamed),
        gaps=observed.listing.gaps,
    )


class _Case(NamedTuple):
    """What the verdicts on all images share."""

    observed: Observed
    known: ImageReferences
    own_names: tuple[str, ...]
    unread_names: int
    """Images that objects of this cluster refer to, and whose metadata was not observed."""
    observed_at: str
    present: frozenset[ImageSpec]
    """The images that are not in the trash."""


def _missing_references(references: References) -> NotObserved | None:
    """Return why no volume's image can be unclaimed; None if everything was observed."""
    return first_unobserved(
        (references.volumes, references.claims, references.inline, references.snapshots)
    )


def _own_names(
    images: list[ListedImage], known: ImageReferences, observed: Observed
) -> tuple[str, ...]:
    """Return the cluster names in the metadata of images that objects of this cluster refer to."""
    found = set()
    for image in images:
        facts = observed.facts.get(place_of(image))
        if isinstance(facts, ImageFacts) and known.of(image):
            found.add(dict(observed_of(facts.metadata)).get(CLUSTER_NAME, ""))
    return tuple(sorted(found - {""}))


def _unread_names(images: list[ListedImage], known: ImageReferences, observed: Observed) -> int:
    """Return of how many images that this cluster refers to the cluster name was not observed."""
    found = (observed.facts.get(place_of(image)) for image in _present_and_referred(images, known))
    return sum(
        not isinstance(facts, ImageFacts) or isinstance(facts.metadata, NotObserved)
        for facts in found
    )


def _present_and_referred(
    images: list[ListedImage], known: ImageReferences
) -> Iterator[ListedImage]:
    return (image for image in images if image.trash is None and known.of(image))


# --------------------------------------------------------------------------------------------------
# One image
# --------------------------------------------------------------------------------------------------


def _judge(image: ListedImage, case: _Case) -> JudgedImage:
    found = case.known.of(image)
    facts = case.observed.facts.get(place_of(image)) or (_NOT_NEEDED if found else _NOT_READ)
    renamed = case.observed.renamed.get(place_of(image))
    if renamed is not None and not found:
        return _referred(image, facts, (renamed,))
    if found and is_temporary(image.spec.name) and not _is_named(found):
        return _temporary(image, facts, found)
    if found and image.trash is not None and image.spec in case.present:
        reason = (
            f"{found[0].reference} names an image of the pool that has this name now; what is in "
            "the trash may be its earlier data"
        )
        return _judged(image, facts, ImageVerdict.NOT_JUDGED, reason, names=found[0].reference)
    if found:
        return _referred(image, facts, found)
    if isinstance(facts, NotObserved):
        return _judged(image, facts, ImageVerdict.NOT_JUDGED, facts.reason, hint=facts.hint)
    return _unreferred(image, facts, case)


def _is_named(found: tuple[Found, ...]) -> bool:
    """Return whether an object names the image itself, not only the uuid in its name."""
    return any(one.is_by_name for one in found)


def _referred(
    image: ListedImage,
    facts: ImageFacts | NotObserved,
    found: tuple[Found, ...],
) -> JudgedImage:
    in_trash = "; it is in the trash" if image.trash is not None else ""
    return JudgedImage(
        image=image,
        facts=facts,
        verdict=ImageVerdict.REFERRED,
        reason=f"{found[0].reference} {found[0].reason}{in_trash}",
        references=tuple(one.reference for one in found),
    )


def _temporary(
    image: ListedImage, facts: ImageFacts | NotObserved, found: tuple[Found, ...]
) -> JudgedImage:
    clone = image.spec.name.removesuffix("-temp")
    of = f", the volume of {found[0].reference}" if found else ""
    return _judged(
        image,
        facts,
        ImageVerdict.TEMPORARY,
        f"temporary image of the clone {foreign_name(clone)}{of}",
        references=tuple(one.reference for one in found),
    )


def _unreferred(image: ListedImage, facts: ImageFacts, case: _Case) -> JudgedImage:
    """Return the verdict on an image that no object names; the first reason counts."""
    is_provisioned = _by_request(image, facts, case)
    if is_provisioned is not None:
        return is_provisioned
    used = _use(image, facts)
    if used is not None:
        return _judged(image, facts, *used, names=_names(image, facts))
    if is_temporary(image.spec.name):
        return _temporary(image, facts, ())
    missing = _undecided(facts, case)
    if missing is None and not _is_made_by_kubernetes(image, facts):
        return _judged(
            image,
            facts,
            ImageVerdict.NOT_OF_CEPH_CSI,
            "neither its name, its metadata nor a journal is ceph-csi's",
        )
    missing = missing or _contradiction(image, facts, case)
    if missing is not None:
        return _judged(
            image,
            facts,
            ImageVerdict.NOT_JUDGED,
            missing.reason,
            hint=missing.hint,
            names=_names(image, facts),
        )
    origin, reason = _origin(image, facts, case)
    return _judged(
        image, facts, ImageVerdict.UNCLAIMED, reason, names=_names(image, facts), origin=origin
    )


def _judged(
    image: ListedImage,
    facts: ImageFacts | NotObserved,
    verdict: ImageVerdict,
    reason: str,
    **more: object,
) -> JudgedImage:
    return JudgedImage(image=image, facts=facts, verdict=verdict, reason=reason, **more)  # type: ignore[arg-type]


def _by_request(image: ListedImage, facts: ImageFacts, case: _Case) -> JudgedImage | None:
    """Return the verdict on an image that is being made: its PV does not exist yet."""
    requests = [journal.request for journal in _journal(facts)]
    if not _is_snapshot(image, facts):
        requests.append(dict(observed_of(facts.metadata)).get(_VOLUME, ""))
    for request in requests:
        claim = case.known.claim_of_request(request)
        if claim is not None and case.known.volume(request) is None:
            found = Found(f"pvc/{claim.ref}", "is the claim for which ceph-csi made it")
            return _referred(image, facts, (found,))
        content = case.known.content_of_request(request)
        if content is not None and content.handle is None:
            reference = f"volumesnapshotcontent/{content.name}"
            return _referred(
                image, facts, (Found(reference, "is the snapshot for which ceph-csi made it"),)
            )
    return None


def _journal(facts: ImageFacts) -> tuple[JournalEntry, ...]:
    journal = facts.journal
    return () if journal is None or isinstance(journal, NotObserved) else (journal,)


# --------------------------------------------------------------------------------------------------
# Use
# --------------------------------------------------------------------------------------------------


def _use(image: ListedImage, facts: ImageFacts) -> tuple[ImageVerdict, str] | None:
    """Return why an image without a PV is no garbage; None if nothing that was observed uses it."""
    clients = _clients(facts)
    if clients:
        return ImageVerdict.IN_USE, f"in use by {_few(clients)}"
    children = observed_of(facts.children)
    if children:
        noun = "clone" if len(children) == 1 else "clones"
        named = _few(tuple(foreign_name(child) for child in children))
        return ImageVerdict.SOURCE, f"source of {len(children)} {noun}: {named}"
    snapshots = _foreign_snapshots(image, facts)
    if snapshots:
        return ImageVerdict.SOURCE, _of_snapshots(image, snapshots)
    if facts.migrating or (image.trash is not None and image.trash.source is TrashSource.MIGRATION):
        return ImageVerdict.SOURCE, "it is part of a live migration (rbd migration)"
    if facts.mirrored is True and facts.primary is False:
        return (
            ImageVerdict.MIRRORED_COPY,
            "copied by rbd-mirror from another Ceph cluster, whose PV is not visible here",
        )
    return None


def _clients(facts: ImageFacts) -> tuple[str, ...]:
    """Return the clients that watch an image, without the daemons of Ceph."""
    daemons = observed_of(facts.daemons)

    def is_daemon(watcher: Watcher) -> bool:
        return any(
            daemon.address == watcher.address and daemon.client in {None, watcher.client}
            for daemon in daemons
        )

    return tuple(
        f"client.{watcher.client} at {watcher.address}"
        for watcher in observed_of(facts.watchers)
        if not is_daemon(watcher)
    )


def _foreign_snapshots(image: ListedImage, facts: ImageFacts) -> tuple[str, ...]:
    """Return the snapshots that hold data; ceph-csi makes one of each snapshot's image.

    The image of a VolumeSnapshot has a snapshot with its own name, and the temporary image has one
    with the name of the clone (doSnapshotClone in internal/rbd/controllerserver.go and doSnapClone
    in internal/rbd/clone.go of ceph-csi). Restored volumes are its clones.
    """
    name = image.spec.name
    own = {name} if _is_snapshot(image, facts) else set()
    own |= {name.removesuffix("-temp")} if is_temporary(name) else set()
    return tuple(found for found in observed_of(facts.snapshots) if found not in own)


def _of_snapshots(image: ListedImage, snapshots: tuple[str, ...]) -> str:
    noun = "snapshot" if len(snapshots) == 1 else "snapshots"
    named = _few(tuple(foreign_name(name) for name in snapshots))
    verb = "keeps" if len(snapshots) == 1 else "keep"
    stays = f", which {verb} it in the trash" if image.trash is not None else ""
    return f"source of {len(snapshots)} {noun}: {named}{stays}"


def _few(names: tuple[str, ...]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


# --------------------------------------------------------------------------------------------------
# Claim
# --------------------------------------------------------------------------------------------------


def _undecided(facts: ImageFacts, case: _Case) -> NotObserved | None:
    """Return which deciding fact was not observed; None if all were."""
    references = case.observed.references
    missing = first_unobserved(
        (
            references.volumes,
            references.claims,
            references.inline,
            references.snapshots,
            facts.watchers,
            facts.snapshots,
            facts.children,
            facts.mirrored,
            facts.metadata,
            facts.journal,
            facts.created_at,
        )
    )
    if missing is None and _is_new(facts, case):
        return NotObserved(reason="created less than ten minutes ago: its PV may follow")
    return missing


def _is_new(facts: ImageFacts, case: _Case) -> bool:
    """Return whether an image is so new that its PV may not exist yet.

    A sidecar with another ``--volume-name-prefix``, and the in-tree provisioner, leave no name by
    which the claim is found. The clocks of the client and of this machine may differ a little.
    """
    created = None if isinstance(facts.created_at, NotObserved) else facts.created_at
    since = age(created, case.observed_at)
    return since is not None and since < _NEW


def _is_made_by_kubernetes(image: ListedImage, facts: ImageFacts) -> bool:
    """Return whether ceph-csi or the in-tree provisioner made an image."""
    name = image.spec.name
    return (
        has_name_of_ceph_csi(name)
        or has_name_of_in_tree(name)
        or bool(observed_of(facts.metadata))
        or (journal_uuid(name) is not None and bool(_journal(facts)))
    )


def _contradiction(image: ListedImage, facts: ImageFacts, case: _Case) -> NotObserved | None:
    """Return that an existing PV or content is named, which itself names another image."""
    name = _names(image, facts)
    is_content = name == dict(observed_of(facts.metadata)).get(_CONTENT)
    exists = case.known.content(name) if is_content else case.known.volume(name)
    if not name or exists is None:
        return None
    kind = "volumesnapshotcontent" if is_content else "pv"
    return NotObserved(
        reason=f"its metadata or journal names {kind}/{foreign_name(name)}, which exists here and "
        "names another image"
    )


def _names(image: ListedImage, facts: ImageFacts) -> str:
    """Return the PV or VolumeSnapshotContent that an image names; empty if it names none.

    The request in the journal is the name of the PV, unless external-provisioner has another
    ``--volume-name-prefix``. A snapshot's image is a clone, and librbd copies the metadata of the
    parent to a clone: a PV in it is that of the source.
    """
    metadata = dict(observed_of(facts.metadata))
    named = metadata.get(_CONTENT) if _is_snapshot(image, facts) else metadata.get(_VOLUME)
    return named or next((entry.request for entry in _journal(facts)), "")


def _is_snapshot(image: ListedImage, facts: ImageFacts) -> bool:
    return is_of_snapshot(image.spec.name) or any(
        entry.object_name.startswith("csi.snap.") for entry in _journal(facts)
    )


def _origin(image: ListedImage, facts: ImageFacts, case: _Case) -> tuple[Origin, str]:
    """Return whose an unclaimed image was, and the sentence about it."""
    name = _names(image, facts)
    kind = "snapshot" if _is_snapshot(image, facts) else "PV"
    named = f"names {kind} {foreign_name(name)}" if name else f"names no {kind}"
    cluster = dict(observed_of(facts.metadata)).get(CLUSTER_NAME, "")
    if not cluster:
        whose = f"its {kind} was deleted here, or is another cluster's"
        return Origin.UNKNOWN, f"{named}, and no cluster: {whose}"
    named = f"{named}, and the cluster {foreign_name(cluster)}"
    is_known = cluster in case.own_names
    if case.unread_names and not (is_known and len(case.own_names) > 1):
        # One more name would change the answer.
        has = "have" if is_known else "do not have"
        left = f"{case.unread_names} more were not read"
        return (
            Origin.UNKNOWN,
            f"{named}, which those images of PVs here {has} that were read; {left}",
        )
    if case.own_names == (cluster,):
        gone = f"; there is no such {kind} here" if name else ""
        # A PV that was adopted from another cluster keeps the name of that cluster.
        return Origin.THIS_CLUSTER, f"{named}, which images of PVs here have{gone}"
    if case.own_names and cluster not in case.own_names:
        return Origin.OTHER_CLUSTER, f"{named}: another cluster, not visible here"
    compared = "have several cluster names" if case.own_names else "have no cluster name"
    return Origin.UNKNOWN, f"{named}; images of PVs here {compared}"
