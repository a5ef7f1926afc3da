"""The output of ``images``: the images of pools, with what refers to them and what uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from rbdagent import model
from rbdagent.model import NotObserved, inventory
from rbdagent.model.inventory import ImageFacts
from rbdagent.report.json.output import Object, Output, Time
from rbdagent.report.json.sources import Gap
from rbdagent.report.json.volume import Image

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")


class Trash(Object, frozen=True, kw_only=True):
    """The entry of an image in the trash of its pool."""

    source: inventory.TrashSource | None
    since: Time | None
    until: Time | None


class JournalEntry(Object, frozen=True, kw_only=True):
    """What ceph-csi's journal contains about an image; ``present`` is null if not observed."""

    present: bool | None
    object_name: str | None
    request: str | None


class Unobserved(Object, frozen=True, kw_only=True):
    """A fact of an image that was not observed; its field is null."""

    fact: str
    reason: str
    hint: str


class Facts(Object, frozen=True, kw_only=True):
    """The facts of an image; ``notObserved`` has the reason of each null that means unknown.

    ``createdAt`` and ``cloneOf`` are also null if there is no such time or parent.
    """

    size_bytes: int | None
    created_at: Time | None
    watchers: tuple[str, ...] | None
    clone_of: str | None
    snapshots: tuple[str, ...] | None
    clones: tuple[str, ...] | None
    metadata: dict[str, str] | None
    journal: JournalEntry
    mirrored: bool | None
    primary: bool | None
    tasks: tuple[str, ...] | None
    not_observed: tuple[Unobserved, ...]


class PoolImage(Object, frozen=True, kw_only=True):
    """An image of a pool, with its verdict; ``facts`` is null if they were not read."""

    image: Image
    cluster: str
    verdict: inventory.ImageVerdict
    reason: str
    hint: str
    references: tuple[str, ...]
    names: str | None
    """The PV or VolumeSnapshotContent that its metadata or the journal names."""
    origin: inventory.Origin | None
    trash: Trash | None
    facts: Facts | None
    facts_not_read: str | None


class Pool(Object, frozen=True, kw_only=True):
    """A RADOS namespace of a pool, and how many images it has; null if they were not listed."""

    cluster: str
    fsid: str
    pool: str
    rados_namespace: str
    images: int | None


class ImageList(Output, frozen=True, kw_only=True):
    """The output of ``images --unclaimed``.

    Without ``--all``, the items are those that no object of this Kubernetes cluster refers to, and
    that ceph-csi may have made; ``counts`` has the number of images with each verdict.
    """

    kind: Literal["ImageList"] = "ImageList"
    observed_at: Time
    complete: bool
    """Whether every listed image has a verdict, and all images were listed."""
    missing: str | None
    """Why no image can be called unclaimed."""
    own_cluster_names: tuple[str, ...]
    pools: tuple[Pool, ...]
    counts: dict[str, int]
    lost_persistent_volumes: tuple[str, ...]
    items: tuple[PoolImage, ...]
    gaps: tuple[Gap, ...]


def image_list(report: inventory.ImageReport, items: Iterable[inventory.JudgedImage]) -> ImageList:
    """Return the output of ``images -o json``.

    Args:
        report: the verdicts.
        items: the images to list.
    """
    counts = dict.fromkeys(map(str, inventory.ImageVerdict), 0)
    for one in report.images:
        counts[one.verdict] += 1
    return ImageList(
        observed_at=report.observed_at,
        complete=report.is_complete,
        missing=None if report.missing is None else report.missing.reason,
        own_cluster_names=report.own_names,
        pools=tuple(map(_pool, report.pools)),
        counts=counts,
        lost_persistent_volumes=report.lost,
        items=tuple(map(_item, items)),
        gaps=tuple(Gap(fact=gap.fact, reason=gap.reason, hint=gap.hint) for gap in report.gaps),
    )


def _pool(pool: inventory.ListedPool) -> Pool:
    return Pool(
        cluster=pool.cluster,
        fsid=pool.fsid,
        pool=pool.pool,
        rados_namespace=pool.namespace,
        images=None if isinstance(pool.images, NotObserved) else len(pool.images),
    )


def _item(one: inventory.JudgedImage) -> PoolImage:
    image, trash = one.image, one.image.trash
    return PoolImage(
        image=Image(
            fsid=image.fsid,
            pool=image.spec.pool,
            rados_namespace=image.spec.namespace,
            name=image.spec.name,
            id=image.image_id,
        ),
        cluster=image.cluster,
        verdict=one.verdict,
        reason=one.reason,
        hint=one.hint,
        references=one.references,
        names=one.names or None,
        origin=one.origin,
        trash=None
        if trash is None
        else Trash(source=trash.source, since=trash.since, until=trash.until),
        facts=_facts(one.facts) if isinstance(one.facts, ImageFacts) else None,
        facts_not_read=one.facts.reason if isinstance(one.facts, NotObserved) else None,
    )


def _facts(facts: ImageFacts) -> Facts:
    watchers = _value(facts.watchers)
    metadata = _value(facts.metadata)
    journal = facts.journal
    return Facts(
        size_bytes=_value(facts.size_bytes),
        created_at=_value(facts.created_at),
        watchers=None
        if watchers is None
        else tuple(f"client.{watcher.client} {watcher.address}" for watcher in watchers),
        clone_of=_value(facts.parent),
        snapshots=_value(facts.snapshots),
        clones=_value(facts.children),
        metadata=None if metadata is None else dict(metadata),
        journal=JournalEntry(
            present=None if isinstance(journal, NotObserved) else journal is not None,
            object_name=getattr(journal, "object_name", None),
            request=getattr(journal, "request", None),
        ),
        mirrored=_value(facts.mirrored),
        primary=facts.primary,
        tasks=_value(facts.tasks),
        not_observed=tuple(_unobserved(facts)),
    )


def _value(fact: _T | NotObserved | None) -> _T | None:
    return None if isinstance(fact, NotObserved) else fact


def _unobserved(facts: ImageFacts) -> Iterable[Unobserved]:
    named = (
        ("sizeBytes", facts.size_bytes),
        ("createdAt", facts.created_at),
        ("watchers", facts.watchers),
        ("cloneOf", facts.parent),
        ("snapshots", facts.snapshots),
        ("clones", facts.children),
        ("metadata", facts.metadata),
        ("journal", facts.journal),
        ("mirrored", facts.mirrored),
        ("tasks", facts.tasks),
    )
    for name, missing in model.unobserved(named):
        yield Unobserved(fact=name, reason=missing.reason, hint=missing.hint)
