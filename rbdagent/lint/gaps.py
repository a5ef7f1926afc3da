"""What was not observed of the facts that decide about manifests, and what is never read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import command, line_of
from rbdagent.correlate.image_identity import volume_image
from rbdagent.correlate.views import views_of
from rbdagent.lint.handles import (
    OF_VOLUME,
    Handle,
    cluster_of,
    handles,
    unregistered_drivers,
)
from rbdagent.model import Gap, NotObserved, SourceState
from rbdagent.parse.foreign import foreign_name
from rbdagent.rules.scheduling import ties_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.lint.context import LintContext
    from rbdagent.model import Source

_NO_IMAGE: Final = "Ceph was not queried for them"


class Gaps(NamedTuple):
    """The facts that were not observed."""

    facts: tuple[Gap, ...]
    is_complete: bool
    """Whether all of them were left out on request (--no-ceph, --no-kube)."""


def gaps_of(context: LintContext) -> Gaps:
    """Return what was not observed."""
    kube, ceph = context.before.sources.kubernetes, context.before.sources.ceph
    of_kube, of_ceph = [*_of_kube(context)], [*_of_ceph(context)]
    missing = (
        *((kube, gap) for gap in of_kube),
        *((ceph, gap) for gap in of_ceph),
    )
    return Gaps(
        facts=tuple(gap for _, gap in missing),
        is_complete=all(source.state is SourceState.SKIPPED for source, _ in missing),
    )


def _of_kube(context: LintContext) -> Iterator[Gap]:
    view = context.before.kubernetes
    if view is None:
        yield _of_source("the objects of this cluster", context.before.sources.kubernetes)
    else:
        yield from _unseen(
            (
                ("the PersistentVolumes of this cluster", view.persistent_volumes),
                ("the claims of this cluster", view.claims),
                ("the storage classes of this cluster", view.storage_classes),
                ("the CSI drivers of this cluster", view.drivers),
                ("the CSI drivers on the nodes of this cluster", unregistered_drivers(context)),
            )
        )
        if any(ties_of(volume) for _, volume in context.volumes()):
            yield from _unseen((("whether a node has the labels that a PV requires", view.nodes),))
    yield from _of_stored(context)
    if any(handles(context)):
        yield from _unseen((("ceph-csi's configuration here", context.around.csi_config),))
    yield from _by_reason("secrets", "exists", context.around.secrets.values())
    yield from _by_reason("namespaces", "exists", context.around.namespaces.values())
    other = context.around.origin
    if other is not None:
        yield from _unseen(
            (
                (f"the objects of cluster {other.name}", other.view),
                (f"ceph-csi's configuration in cluster {other.name}", other.csi_config),
            )
        )


def _of_stored(context: LintContext) -> Iterator[Gap]:
    """Yield that objects which exist were not read whole: a snapshot lacks some of their fields."""
    reasons = Counter(why for why in context.around.stored.values() if isinstance(why, NotObserved))
    for why, count in reasons.items():
        noun = "object that exists" if count == 1 else "objects that exist"
        fact = f"whether {count} {noun} here differ in secrets, parameters and other fields"
        yield Gap(fact=fact, reason=why.reason, hint=why.hint)


def _of_source(fact: str, source: Source) -> Gap:
    return Gap(fact=fact, reason=source.reason or "not observed", hint=source.hint)


def _unseen(facts: Iterable[tuple[str, object]]) -> Iterator[Gap]:
    for fact, found in facts:
        if isinstance(found, NotObserved):
            yield Gap(fact=fact, reason=found.reason, hint=found.hint)


def _by_reason(noun: str, verb: str, found: Iterable[bool | NotObserved]) -> Iterator[Gap]:
    """Yield one gap for all names that were not observed for the same reason."""
    reasons = Counter(one for one in found if isinstance(one, NotObserved))
    for why, count in reasons.items():
        fact = f"whether {count} {noun} exist" if count > 1 else f"whether one of the {noun} {verb}"
        yield Gap(fact=fact, reason=why.reason, hint=why.hint)


def _of_ceph(context: LintContext) -> Iterator[Gap]:
    source, ceph = context.before.sources.ceph, context.after.ceph
    images = [volume_image(volume) for _, volume in context.volumes()]
    wanted = [image for image in images if image is not None]
    unseen = [image for image in wanted if not views_of(image, ceph)]
    if unseen:
        count = "the image exists" if len(unseen) == 1 else f"{len(unseen)} images exist"
        reason = source.reason or _NO_IMAGE
        yield Gap(
            fact=f"whether {count}, and which clients have them open",
            reason=reason,
            hint=source.hint,
        )
    for image in wanted:
        if image.namespace_by is not None:
            fact = f"whether image {foreign_name(str(image.spec))} exists, and who has it open"
            yield from _unseen((fact, view.presence) for view in views_of(image, ceph))
    if any(_is_pool_unseen(context, handle) for handle in handles(context)):
        yield Gap(
            fact="whether the pool ids in the handles are those of this Ceph cluster",
            reason=source.reason or "it is unknown which Ceph cluster the clusterID means",
            hint=source.hint,
        )


def _is_pool_unseen(context: LintContext, handle: Handle) -> bool:
    cluster = cluster_of(context, handle.parsed.cluster_id)
    return cluster is None or isinstance(cluster.pools, NotObserved)


def unread_facts(context: LintContext) -> tuple[Gap, ...]:
    """Return what rbdagent never reads: ceph-csi's journal, in omap values of the pool.

    Without the entry, GetImageAttributes finds no image, and the volume cannot be mounted
    (internal/journal/voljournal.go@52fcb7b; ceph-csi#2781).
    """
    of_volumes = [one for one in handles(context) if one.field == OF_VOLUME]
    if not of_volumes:
        return ()
    first = of_volumes[0]
    pool, namespace = first.attributes.get("pool"), first.attributes.get("radosNamespace")
    shown = command(
        "rados getomapval",
        f"csi.volume.{first.parsed.uuid}",
        "csi.imagename",
        options=(
            f"--pool={pool or 'POOL'}",
            *((f"--namespace={namespace}",) if namespace else ()),
        ),
    )
    count = len(of_volumes)
    fact = "the volume" if count == 1 else f"{count} volumes"
    return (
        Gap(
            fact=f"whether ceph-csi's journal has an entry for {fact}",
            reason="rbdagent does not read the journal, without which ceph-csi finds no image",
            hint=line_of(shown),
        ),
    )
