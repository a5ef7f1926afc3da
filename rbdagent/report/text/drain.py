"""The output of ``drain-check``: what blocks a drain of a node, or what a drain has left."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from rbdagent.commands import sentence_of
from rbdagent.lifecycle.drain import next_commands
from rbdagent.model import NotObserved
from rbdagent.model.drain import DrainState, DrainStep
from rbdagent.report.text.findings import command_lines, next_text
from rbdagent.report.text.footer import footer
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    NOT_OBSERVED,
    RED,
    YELLOW,
    Layout,
    aligned,
    counted,
    cut,
    headed,
    limited,
    painted,
    sentences,
    shortened,
    with_escaped_texts,
    wrapped,
)
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rbdagent.model import Command, Gap, Snapshot
    from rbdagent.model.drain import DrainCheck, DrainItem, DrainMove

HEADINGS: Final = {
    DrainStep.DATA_AT_RISK: "Data at risk: do not drain before this is resolved",
    DrainStep.PINNED: "Kept open by what a drain does not end",
    DrainStep.HANGING_CALL: "Calls that hang or fail",
    DrainStep.LOST_CLIENT: "Clients that are blocklisted, or have lost their watch",
    DrainStep.HANGING_REQUEST: "Requests to Ceph without an answer",
    DrainStep.NODE_SERVICE_DOWN: "kubelet or the CSI driver is down",
    DrainStep.UNUSED_MAPPING: "Mapped and used by no pod: it survives the drain",
    DrainStep.OUTSIDE_CLIENT: "Held by a client outside of the cluster",
    DrainStep.REFUSED_POD: "Pods that a drain does not evict",
    DrainStep.MAPPED: "Mapped",
    DrainStep.WATCHED: "Watched",
}
_MOST: Final = 5
"""Things of one kind; -v shows all."""
_MOST_LINES: Final = 3
_MOST_GAPS: Final = 8
_MOST_MOVES: Final = 10
_MOST_OF_NAME: Final = 28
"""Characters of a PV's name; -v shows the whole name."""
_INDENT: Final = " " * 3
_WORDS: Final = {
    (False, DrainState.BLOCKED): ("BLOCKED", BOLD + RED),
    (False, DrainState.UNKNOWN): ("UNKNOWN", BOLD + YELLOW),
    (False, DrainState.CLEAR): ("CLEAR", BOLD + GREEN),
    (True, DrainState.BLOCKED): ("NOT CLEAN", BOLD + RED),
    (True, DrainState.UNKNOWN): ("UNKNOWN", BOLD + YELLOW),
    (True, DrainState.CLEAR): ("CLEAN", BOLD + GREEN),
}


def drain_text(check: DrainCheck, snapshot: Snapshot, layout: Layout) -> str:
    """Return the output of ``drain-check``; its commands are not escaped."""
    commands = tuple(item.commands for item in check.items)
    return _answer(check, snapshot, layout, commands, next_commands(check))


@with_escaped_texts
def _answer(
    check: DrainCheck,
    snapshot: Snapshot,
    layout: Layout,
    commands: Sequence[tuple[Command, ...]],
    following: Sequence[Command],
) -> str:
    word, paint = _WORDS[check.is_after, check.state]
    parts = [headed(word, paint, [*_first_lines(check, snapshot)], layout)]
    parts += _sections(list(zip(check.items, commands, strict=True)), layout)
    if not check.is_after and not isinstance(check.moves, NotObserved) and check.moves:
        parts.append(_moves(check.moves, layout))
    if check.unobserved:
        parts.append(_gaps(check.unobserved, layout))
    if following:
        parts.append(next_text(following, layout))
    parts.append(footer(None, snapshot, layout))
    return "\n\n".join(parts) + "\n"


def _first_lines(check: DrainCheck, snapshot: Snapshot) -> Iterator[str]:
    yield _after(check) if check.is_after else _before(check)
    if check.is_after:
        yield _boot(check)
    if check.reported_at is not None:
        seen = age_text(age(check.reported_at, snapshot.observed_at))
        yield f"The mappings are those that the agent on {check.node} reported {seen} ago."


def _before(check: DrainCheck) -> str:
    count = len(check.items)
    match check.state:
        case DrainState.BLOCKED:
            least = "At least " if check.unobserved else ""
            things = "1 thing" if count == 1 else f"{count} things"
            verbs = (
                "blocks a drain, or survives it" if count == 1 else "block a drain, or survive it"
            )
            order = "" if count == 1 else " Deal with them in this order."
            return f"{least}{things} on {check.node} {verbs}.{order}"
        case DrainState.UNKNOWN:
            return (
                f"Whether anything on {check.node} blocks a drain was not observed completely: "
                "nothing that was observed does."
            )
        case DrainState.CLEAR:
            mapped = 0 if isinstance(check.mappings, NotObserved) else len(check.mappings)
            has = (
                "No RBD device is mapped there."
                if not mapped
                else f"It has {counted(mapped, 'RBD mapping')}, which kubelet unmaps when the pods "
                "are gone."
            )
            return f"Nothing on {check.node} blocks a drain. {has}"


def _after(check: DrainCheck) -> str:
    match check.state:
        case DrainState.BLOCKED:
            count = len(check.items)
            least = "At least " if check.unobserved else ""
            things = "1 thing of RBD is" if count == 1 else f"{count} things of RBD are"
            return f"{least}{things} left on {check.node}."
        case DrainState.UNKNOWN:
            return (
                f"Whether {check.node} is clean was not observed completely: nothing that was "
                "observed is left."
            )
        case DrainState.CLEAR:
            return f"{check.node} has no RBD mapping, and so no mount of one. {_watches(check)}"


def _watches(check: DrainCheck) -> str:
    """Return which images none of its clients watches: only those were queried."""
    if not check.queried_images:
        return "Nothing names an image that one of its clients may still watch."
    images = (
        "the image" if check.queried_images == 1 else f"any of the {check.queried_images} images"
    )
    return f"None of its clients watches {images} that it had, or that the API still names for it."


def _boot(check: DrainCheck) -> str:
    if check.boot_id is None:
        return "Its boot id was not observed."
    match check.is_new_boot:
        case True:
            return (
                f"It is a new boot: {check.boot_id}, and before the drain {check.earlier_boot_id}."
            )
        case False:
            return f"It is the same boot as before the drain: {check.boot_id}."
        case None:
            return (
                f"Its boot id is {check.boot_id}. Whether that is a new boot is not known: "
                "--before compares it with the check before the drain."
            )


def _sections(
    items: Sequence[tuple[DrainItem, tuple[Command, ...]]], layout: Layout
) -> Iterator[str]:
    """Yield one numbered part for each step, in their order."""
    by_step = groupby(items, key=lambda pair: pair[0].step)
    for number, (step, group) in enumerate(by_step, start=1):
        found = list(group)
        shown = found if layout.details else found[:_MOST]
        lines = [painted(f"{number}. {HEADINGS[step]}", BOLD, layout)]
        lines += [_item(item, commands, layout) for item, commands in shown]
        if len(shown) < len(found):
            lines.append(f"{_INDENT}and {len(found) - len(shown)} more (-v)")
        yield "\n".join(lines)


def _item(item: DrainItem, commands: Sequence[Command], layout: Layout) -> str:
    code = f"{item.code}  " if item.code else ""
    if not layout.details:
        text = wrapped(
            f"{code}{sentences(item.statement)[0]}", layout, first=_INDENT, rest=f"{_INDENT}  "
        )
        return limited(text, _MOST_LINES, layout)
    lines = [wrapped(f"{code}{item.statement}", layout, first=_INDENT, rest=f"{_INDENT}  ")]
    lines += [wrapped(line, layout, first="     - ", rest="       ") for line in item.evidence]
    if remedy := sentence_of(item.remedy, layout.program):
        lines.append(wrapped(f"Remedy: {remedy}", layout, first="     ", rest="     "))
    lines += [f"       {line}" for line in command_lines(commands, layout)]
    return "\n".join(lines)


def _moves(moves: Sequence[DrainMove], layout: Layout) -> str:
    shown = moves if layout.details else moves[:_MOST_MOVES]
    cells = [
        [
            str(move.pod),
            move.controller or "-",
            _replicas(move),
            move.persistent_volume
            if layout.details
            else shortened(move.persistent_volume, _MOST_OF_NAME),
        ]
        for move in shown
    ]
    head = ["POD", "CONTROLLER", "REPLICAS", "PERSISTENTVOLUME"]
    title = "Down while they move: no replica can run on another node meanwhile"
    lines = [painted(title, BOLD, layout)]
    lines += [cut(f"   {line}", layout) for line in aligned(head, cells, [""] * len(cells), 0)]
    if len(shown) < len(moves):
        lines.append(f"   and {len(moves) - len(shown)} more (-v)")
    return "\n".join(lines)


def _replicas(move: DrainMove) -> str:
    if not move.controller:
        return "-"
    return NOT_OBSERVED if move.replicas is None else str(move.replicas)


def _gaps(gaps: Iterable[Gap], layout: Layout) -> str:
    known = list(gaps)
    shown = known if layout.details else known[:_MOST_GAPS]
    lines = [painted("Not observed", BOLD, layout)]
    for gap in shown:
        lines.append(wrapped(f"{gap.fact}: {gap.reason}", layout, first=_INDENT, rest="     "))
        if gap.hint:
            # Never wrap this line: users copy it.
            lines.append(f"     -> {gap.hint}")
    if len(shown) < len(known):
        lines.append(f"{_INDENT}and {len(known) - len(shown)} more (-v)")
    return "\n".join(lines)
