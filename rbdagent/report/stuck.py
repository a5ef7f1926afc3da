"""Everything that is stuck, for people: a table, then what it all waits for, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.catalog import CATALOG
from rbdagent.commands import command
from rbdagent.diagnose import MOST_COMMANDS, unseen
from rbdagent.diagnose.stuck import is_complete, is_empty, unseen_of
from rbdagent.diagnose.times import age, spoken
from rbdagent.model import Command, SourceState, TargetKind
from rbdagent.report.text import (
    BOLD,
    GREEN,
    PAINT,
    aligned,
    finding_text,
    for_people,
    next_text,
    painted,
    source_lines,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.model import Cause, Finding, LifeList, Snapshot, Stuck

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_MOST_ROWS: Final = 5
"""Of one cause: of five hundred that wait for the same, some name it."""
_MOST_CAUSES: Final = 5
_MOST_NAMED: Final = 3


@for_people
def stuck_table(
    found: LifeList, snapshot: Snapshot, *, wide: bool, colour: bool, of: str = ""
) -> str:
    """Give the answer of ``diagnose -A``.

    Args:
        found: what is stuck.
        snapshot: the look that it comes from.
        wide: every row and every cause, and each finding in its own words.
        colour: whether the terminal shows colours.
        of: says in words what was asked for, if not everything.
    """
    parts = [_rows(found, snapshot, wide=wide, colour=colour)] if found.causes else []
    parts.append(painted(_headline(found, snapshot, of), _tone(found), colour=colour))
    parts.append(_looked_at(found, snapshot))
    parts += [finding_text(each, colour=colour) for each in _of_node(found)]
    told = found.causes if wide else found.causes[:_MOST_CAUSES]
    parts += [_cause(each, colour=colour) for each in told]
    if len(told) < len(found.causes):
        parts.append(_rest(found.causes[len(told) :]))
    parts.append(source_lines(snapshot))
    commands = _commands(found)
    if commands:
        parts.append(next_text(commands, colour=colour))
    return "\n\n".join(parts) + "\n"


@for_people
def stuck_names(found: LifeList) -> str:
    """Give ``-o name``: one TARGET a line, as ``diagnose`` takes it."""
    return "".join(f"{_name(each)}\n" for each in found.stuck)


def _name(stuck: Stuck) -> str:
    return stuck.life.diagnosis.use.target.given


# --------------------------------------------------------------------------------------------------
# The table
# --------------------------------------------------------------------------------------------------


def _rows(found: LifeList, snapshot: Snapshot, *, wide: bool, colour: bool) -> str:
    """Give one row each; of many that wait for the same only the first."""
    head = ["NAMESPACE", "CLAIM/POD", "PERSISTENTVOLUME", "STEP", "CODE", "SINCE", "WHAT"]
    shown = [each.victims if wide else each.victims[:_MOST_ROWS] for each in found.causes]
    rows = [_row(each, snapshot, wide=wide) for victims in shown for each in victims]
    paints = [
        PAINT.get(each.finding.severity, "") if colour else ""
        for victims in shown
        for each in victims
    ]
    first, *lines = aligned(head, rows, paints, head.index("CODE"))
    told = [first]
    for cause, victims in zip(found.causes, shown, strict=True):
        told += lines[: len(victims)]
        del lines[: len(victims)]
        left = len(cause.victims) - len(victims)
        if left:
            told.append(f"... and {left} more of the same ({cause.finding.code})")
    return "\n".join(told)


def _row(stuck: Stuck, snapshot: Snapshot, *, wide: bool) -> list[str]:
    use, known = stuck.life.diagnosis.use, CATALOG[stuck.finding.code]
    target, volume = use.target, use.persistent_volume
    namespaced = target.kind in {TargetKind.CLAIM, TargetKind.POD}
    name = f"{target.kind}/{target.name}" if namespaced else _NONE
    if target.kind in {TargetKind.DEVICE, TargetKind.IMAGE}:
        name = target.given
    since = age(stuck.since, snapshot.observed_at)
    return [
        target.namespace or _NONE,
        name,
        volume.name if volume is not None else _NONE,
        str(known.step) if known.step is not None else _NONE,
        stuck.finding.code,
        _UNKNOWN if since is None else spoken(since),
        stuck.finding.message if wide else known.summary.rstrip("."),
    ]


# --------------------------------------------------------------------------------------------------
# What they wait for
# --------------------------------------------------------------------------------------------------


def _headline(found: LifeList, snapshot: Snapshot, of: str) -> str:
    """Say how much is stuck; that nothing is, only where everything was observed."""
    asked = f" {of}" if of else ""
    missing = unseen_of(snapshot)
    if found.causes:
        count, causes = len(found.stuck), len(found.causes)
        more = "" if is_complete(found) else " Not everything was observed: there may be more."
        return f"Stuck{asked}: {count}, for {causes} {'causes' if causes > 1 else 'cause'}.{more}"
    if missing is not None:
        return f"Whether anything{asked} is stuck was not observed: {missing}."
    if is_empty(found):
        return f"There is nothing{asked} to look at: no claim, no PV, no pod with volumes."
    if not is_complete(found):
        return f"Nothing{asked} that was observed is stuck; not everything was, see the sources."
    if snapshot.sources.ceph.state is SourceState.SKIPPED:
        return f"Nothing{asked} is stuck, as far as Kubernetes tells: Ceph was not asked."
    return f"Nothing{asked} is stuck."


def _is_well(found: LifeList) -> bool:
    is_quiet = not found.causes and not _of_node(found)
    return is_quiet and not is_empty(found) and is_complete(found)


def _of_node(found: LifeList) -> tuple[Finding, ...]:
    """Return what is wrong with the node that looked; the sources are told at the end."""
    return tuple(finding for finding in found.findings if finding.code not in unseen.CODES)


def _tone(found: LifeList) -> str:
    return BOLD + GREEN if _is_well(found) else BOLD


def _looked_at(found: LifeList, snapshot: Snapshot) -> str:
    counts = (("claims", found.claims), ("PVs", found.volumes), ("pods with volumes", found.pods))
    seen = [f"{count} {what}" for what, count in counts if count is not None]
    unseen = [what.partition(" ")[0] for what, count in counts if count is None]
    said = [f"Looked at {_listed(seen)}"] if seen else []
    said += [f"{found.others} PVs of other drivers were left out"] if found.others else []
    said += [f"{_listed(unseen)} were not observed"] if unseen else []
    told = f"{_capital('; '.join(said))}."
    if snapshot.ceph is None or not found.volumes:
        return told
    asked = {each.spec for cluster in snapshot.ceph.clusters for each in cluster.images}
    if len(asked) >= found.volumes:
        return told
    return (
        f"{told} Of volumes that look well Ceph was not asked: who else has them, `rbdagent "
        "diagnose TARGET` tells."
    )


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cause(cause: Cause, *, colour: bool) -> str:
    text = finding_text(cause.finding, colour=colour)
    if len(cause.victims) == 1:
        return text
    first, _, rest = text.partition("\n")
    victims = wrapped(f"So of {len(cause.victims)}: {_named(cause)}.", first="  ", rest="  ")
    return f"{first}\n{victims}\n{rest}"


def _named(cause: Cause) -> str:
    names = ", ".join(_name(each) for each in cause.victims[:_MOST_NAMED])
    left = len(cause.victims) - _MOST_NAMED
    return f"{names} and {left} more" if left > 0 else names


def _rest(causes: Sequence[Cause]) -> str:
    """Give the causes that are not told in full, a line each, as many as fit a screen."""
    lines = [f"And {len(causes)} further causes (-o wide tells them in full):"]
    for each in causes[: 4 * _MOST_CAUSES]:
        known = CATALOG[each.finding.code]
        lines.append(f"  {each.finding.code} {known.name}: {_named(each)}")
    left = len(causes) - 4 * _MOST_CAUSES
    return "\n".join([*lines, *([f"  and {left} more"] if left > 0 else [])])


def _commands(found: LifeList) -> tuple[Command, ...]:
    """Give what to type now: what the worst asks for, then a closer look at each of the next."""
    if not found.causes:
        return ()
    worst = found.causes[0].finding.commands[:_MOST_NAMED]
    return tuple(dict.fromkeys((*worst, *_looks(found.causes))))[:MOST_COMMANDS]


def _looks(causes: Sequence[Cause]) -> Iterator[Command]:
    for cause in causes:
        yield command("rbdagent diagnose", _name(cause.victims[0]))
