"""The output of ``images``: the images that nothing of this cluster refers to, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from rbdagent.commands import command
from rbdagent.model import NotObserved, observed_of
from rbdagent.model.inventory import ImageFacts, ImageVerdict, Origin
from rbdagent.parse.foreign import foreign_name
from rbdagent.report.sizes import size_text
from rbdagent.report.text.findings import next_text
from rbdagent.report.text.layout import (
    BOLD,
    YELLOW,
    Layout,
    counted,
    enumerated,
    painted,
    with_escaped_texts,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rbdagent.model import Command, Gap
    from rbdagent.model.inventory import ImageReport, JournalEntry, JudgedImage, TrashEntry

_T = TypeVar("_T")
_TITLES: Final = {
    ImageVerdict.UNCLAIMED: "Unclaimed",
    ImageVerdict.NOT_JUDGED: "Not judged",
    ImageVerdict.IN_USE: "In use",
    ImageVerdict.SOURCE: "Source of clones or snapshots",
    ImageVerdict.TEMPORARY: "Temporary image of a clone",
    ImageVerdict.MIRRORED_COPY: "Mirrored copy",
    ImageVerdict.NOT_OF_CEPH_CSI: "Not made by ceph-csi",
    ImageVerdict.REFERRED: "Referred to",
}
"""In the order of the output."""
_ORIGINS: Final = (Origin.THIS_CLUSTER, Origin.UNKNOWN, Origin.OTHER_CLUSTER, None)
"""In the order of the output."""
_OTHERS: Final = frozenset({ImageVerdict.NOT_OF_CEPH_CSI, ImageVerdict.REFERRED})
"""Only counted, without --all."""
_MOST: Final = 20
"""Maximum of images with one verdict; the details and --all have all."""
_MOST_COMMANDS: Final = 3
_MOST_LOST: Final = 3
_MOST_POOLS: Final = 3
_MOST_GAPS: Final = 5
_WHERE: Final = "    "


def is_listed(one: JudgedImage, *, every: bool) -> bool:
    """Return whether an image is in the output; without ``every``, it is only counted.

    The image of a PV in the trash is always listed: there, it may be removed.
    """
    is_lost = one.verdict is ImageVerdict.REFERRED and one.image.trash is not None
    return every or is_lost or one.verdict not in _OTHERS


@with_escaped_texts
def image_list(report: ImageReport, layout: Layout, *, every: bool) -> str:
    """Return the output of ``images --unclaimed``.

    Args:
        report: the verdicts.
        layout: the layout; with details, all facts of each image.
        every: also list the images that an object refers to, and those of other programs.
    """
    parts = ["\n\n".join(_head(report, layout))]
    for verdict in _TITLES:
        images = [one for one in _of(report, verdict) if is_listed(one, every=every)]
        if images:
            parts.append("\n".join(_section(verdict, images, layout, every=every)))
    parts += [
        text for text in (_hidden(report, layout, every=every), _lost(report, layout)) if text
    ]
    if commands := _commands(report):
        parts.append(next_text(commands, layout))
    parts.append("\n".join(_foot(report, layout)))
    return "\n\n".join(parts) + "\n"


def _of(report: ImageReport, verdict: ImageVerdict) -> list[JudgedImage]:
    """Return the images with a verdict, those of this cluster first."""
    found = [one for one in report.images if one.verdict is verdict]
    return sorted(found, key=lambda one: _ORIGINS.index(one.origin))


# --------------------------------------------------------------------------------------------------
# Head
# --------------------------------------------------------------------------------------------------


def _head(report: ImageReport, layout: Layout) -> Iterator[str]:
    if not report.pools:
        yield wrapped(_no_pool(report), layout)
        return
    where = f"{counted(len(report.images), 'image')} in {_pools(report)}"
    if report.missing is not None:
        text = f"No image can be called unclaimed: {report.missing.reason}."
        hint = f"\n  -> {report.missing.hint}" if report.missing.hint else ""
        verb = "was" if len(report.images) == 1 else "were"
        yield wrapped(f"{text} {where} {verb} listed.", layout) + hint
        return
    found = _of(report, ImageVerdict.UNCLAIMED)
    if not found:
        known = "" if report.is_complete else ", as far as observed"
        yield wrapped(f"None of {where} is unclaimed{known}.", layout)
    else:
        verb = "is" if len(found) == 1 else "are"
        known = "" if report.is_complete else " Others may be: not all was observed, see below."
        yield wrapped(
            f"{len(found)} of {where} {verb} unclaimed: nothing in this Kubernetes cluster refers "
            f"to {'it' if len(found) == 1 else 'them'}, and nothing that was observed uses "
            f"{'it' if len(found) == 1 else 'them'}.{_origins(found)}{known}",
            layout,
        )
    yield wrapped(_caveat(report), layout)


def _no_pool(report: ImageReport) -> str:
    if report.gaps:
        return "No pool was listed: see below what was not observed."
    return "No pool has the application rbd: name the pools to list."


def _pools(report: ImageReport) -> str:
    names = list(dict.fromkeys(foreign_name(pool.pool) for pool in report.pools))
    rest = len(names) - _MOST_POOLS
    named = [*names[:_MOST_POOLS], f"{rest} more"] if rest > 0 else names
    return f"{'pool' if len(names) == 1 else 'pools'} {enumerated(named)}"


def _origins(found: Sequence[JudgedImage]) -> str:
    """Return whose the images were, if their metadata shows it."""
    counts = Counter(one.origin for one in found)
    words = {
        Origin.THIS_CLUSTER: "with the name of PVs here",
        Origin.UNKNOWN: "of an unknown one",
        Origin.OTHER_CLUSTER: "of another",
    }
    parts = [f"{counts[origin]} {text}" for origin, text in words.items() if counts[origin]]
    return f" By the cluster name in the metadata: {enumerated(parts)}."


def _caveat(report: ImageReport) -> str:
    names = (
        enumerated([foreign_name(name) for name in report.own_names]) if report.own_names else ""
    )
    compared = (
        f"images of PVs here have {'the name' if len(report.own_names) == 1 else 'the names'} "
        f"{names}"
        if names
        else "no image of a PV here has one, so nothing shows whose an image is"
    )
    return (
        "PVs of other Kubernetes clusters are not visible here: where clusters share a pool, the "
        f"cluster name that ceph-csi writes to the metadata decides; {compared}. A client that "
        "maps an image read-only has no watch: run who-holds before you conclude that no client "
        "uses it."
    )


# --------------------------------------------------------------------------------------------------
# Images
# --------------------------------------------------------------------------------------------------


def _section(
    verdict: ImageVerdict, images: Sequence[JudgedImage], layout: Layout, *, every: bool
) -> Iterator[str]:
    paint = BOLD + YELLOW if verdict is ImageVerdict.UNCLAIMED else BOLD
    yield painted(f"{_TITLES[verdict]} ({len(images)})", paint, layout)
    most = len(images) if layout.details or every else _MOST
    for one in images[:most]:
        yield from _image(one, layout)
    if len(images) > most:
        yield f"  {len(images) - most} more (-o wide or --all)"
    # Never wrap a hint: users copy it.
    yield from dict.fromkeys(f"  -> {one.hint}" for one in images if one.hint)


def _image(one: JudgedImage, layout: Layout) -> Iterator[str]:
    facts = one.facts if isinstance(one.facts, ImageFacts) else None
    name, *short = f"  {one.image.spec}", *_short_facts(facts)
    line = "   ".join([name, *short])
    yield from (
        [line] if len(line) <= layout.width or not short else [name, _WHERE + ", ".join(short)]
    )
    yield wrapped(one.reason, layout, first=_WHERE, rest=_WHERE)
    notes = list(_notes(one, facts))
    if layout.details:
        notes += _details(one, facts)
    for note in notes:
        yield wrapped(note, layout, first=_WHERE, rest=_WHERE + "  ")


def _short_facts(facts: ImageFacts | None) -> Iterator[str]:
    if facts is None:
        return
    if not isinstance(facts.size_bytes, NotObserved):
        yield size_text(facts.size_bytes)
    if isinstance(facts.created_at, str):
        yield facts.created_at[:10]


def _notes(one: JudgedImage, facts: ImageFacts | None) -> Iterator[str]:
    """Yield what makes an image special, apart from its verdict."""
    if one.image.trash is not None:
        yield _trash(one.image.trash)
    if facts is None:
        return
    if facts.mirrored is True and facts.primary is True:
        yield "mirrored, primary here: its PV may be in a cluster of the other site"
    if tasks := observed_of(facts.tasks):
        yield f"Ceph's manager has queued: {', '.join(tasks)}"


def _trash(entry: TrashEntry) -> str:
    until = f", kept until {entry.until}" if entry.until and entry.until != entry.since else ""
    since = f" since {entry.since}" if entry.since else ""
    return f"in the trash{since}{until} (moved by: {entry.source or 'unknown'})"


def _details(one: JudgedImage, facts: ImageFacts | None) -> Iterator[str]:
    """Yield every other fact; one that was not observed is named."""
    yield f"id {one.image.image_id}, Ceph cluster {one.image.cluster}"
    if one.references:
        yield f"referred to by {', '.join(one.references)}"
    if facts is None:
        return
    created = "unknown" if facts.created_at is None else facts.created_at
    watchers = _all_of(
        facts.watchers, lambda watcher: f"client.{watcher.client} at {watcher.address}"
    )
    yield f"created: {_fact(created)}"
    yield f"watchers: {watchers}"
    yield f"clone of: {'nothing' if facts.parent is None else _fact(facts.parent)}"
    yield f"snapshots: {_all_of(facts.snapshots, foreign_name)}"
    yield f"clones: {_all_of(facts.children, foreign_name)}"
    yield f"metadata: {_all_of(facts.metadata, lambda pair: f'{pair[0]}={foreign_name(pair[1])}')}"
    yield f"journal of ceph-csi: {_journal(facts.journal)}"
    yield f"mirrored: {_mirrored(facts)}"
    yield f"tasks: {_all_of(facts.tasks, str)}"


def _fact(fact: str | NotObserved) -> str:
    return f"not observed ({fact.reason})" if isinstance(fact, NotObserved) else fact


def _all_of(facts: tuple[_T, ...] | NotObserved, text: Callable[[_T], str]) -> str:
    if isinstance(facts, NotObserved):
        return _fact(facts)
    return ", ".join(text(fact) for fact in facts) or "none"


def _journal(entry: JournalEntry | NotObserved | None) -> str:
    if entry is None:
        return "absent"
    if isinstance(entry, NotObserved):
        return _fact(entry)
    request = f", requested as {foreign_name(entry.request)}" if entry.request else ""
    return f"present ({entry.object_name}{request})"


def _mirrored(facts: ImageFacts) -> str:
    if isinstance(facts.mirrored, NotObserved):
        return _fact(facts.mirrored)
    if not facts.mirrored:
        return "no"
    return "yes, primary here" if facts.primary else "yes, not primary here"


# --------------------------------------------------------------------------------------------------
# Foot
# --------------------------------------------------------------------------------------------------


def _hidden(report: ImageReport, layout: Layout, *, every: bool) -> str:
    counts = Counter(one.verdict for one in report.images if not is_listed(one, every=every))
    texts = {
        ImageVerdict.REFERRED: "referred to by an object of this cluster",
        ImageVerdict.NOT_OF_CEPH_CSI: "not made by ceph-csi",
    }
    parts = [f"{counts[verdict]} {text}" for verdict, text in texts.items() if counts[verdict]]
    return wrapped(f"Not listed (--all): {', '.join(parts)}.", layout) if parts else ""


def _lost(report: ImageReport, layout: Layout) -> str:
    """Return the PVs without an image; one of the listed images may be theirs, renamed."""
    if not report.lost:
        return ""
    count, most = len(report.lost), len(report.lost) if layout.details else _MOST_LOST
    named = [foreign_name(name) for name in report.lost[:most]]
    more = [f"{count - most} more (-v)"] if count > most else []
    verb, subject = ("names", "PV") if count == 1 else ("name", "PVs")
    text = (
        f"{count} {subject} {verb} an image that is in none of these pools: "
        f"{enumerated([*named, *more])}. The image was removed, or has another name now: then it "
        "may be one of those above."
    )
    return wrapped(text, layout)


def _commands(report: ImageReport) -> list[Command]:
    found = _of(report, ImageVerdict.UNCLAIMED)
    return [command("rbdagent who-holds", str(one.image.spec)) for one in found[:_MOST_COMMANDS]]


def _foot(report: ImageReport, layout: Layout) -> Iterator[str]:
    gaps = report.gaps if layout.details else report.gaps[:_MOST_GAPS]
    for gap in gaps:
        yield from _gap(gap, layout)
    if len(report.gaps) > len(gaps):
        yield f"{len(report.gaps) - len(gaps)} more facts were not observed (-v)"
    yield f"observed {report.observed_at}"


def _gap(gap: Gap, layout: Layout) -> Iterator[str]:
    yield wrapped(f"not observed: {gap.fact}: {gap.reason}", layout, rest="  ")
    if gap.hint:
        # Never wrap this line: users copy it.
        yield f"  -> {gap.hint}"
