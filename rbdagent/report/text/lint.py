"""The output of ``lint``: whether to apply the files, then each problem with its field."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, sentence_of
from rbdagent.lint.pairs import SOLVED
from rbdagent.model import (
    PersistentVolume,
    PersistentVolumeClaim,
    Severity,
    SourceState,
    StorageClass,
)
from rbdagent.model.lint import ContentManifest
from rbdagent.report.text.findings import next_text
from rbdagent.report.text.layout import (
    BOLD,
    GREEN,
    PAINT,
    RED,
    YELLOW,
    Layout,
    counted,
    enumerated,
    headed,
    painted,
    with_escaped_texts,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.model import Command, Gap, Snapshot
    from rbdagent.model.lint import LintReport, Problem

_MOST_OF_CODE: Final = 3
"""Problems with one code that are printed in full: all PVs of a backup may have the same."""
_MOST_BINDINGS: Final = 5
_KINDS: Final = (
    (PersistentVolume, "PV"),
    (PersistentVolumeClaim, "claim"),
    (StorageClass, "storage class"),
    (ContentManifest, "VolumeSnapshotContent"),
)
_SEVERITIES: Final = (Severity.CRITICAL, Severity.ERROR, Severity.WARNING)
_PLURALS: Final = {"storage class": "storage classes"}


def lint_text(found: LintReport, snapshot: Snapshot, layout: Layout, files: Sequence[str]) -> str:
    """Return the output of ``lint``.

    Args:
        found: the problems.
        snapshot: of the cluster.
        layout: the layout; with details, every problem is printed in full.
        files: as they were named.
    """
    return _answer(found, snapshot, layout, _next(found, files))


@with_escaped_texts
def _answer(
    found: LintReport, snapshot: Snapshot, layout: Layout, commands: tuple[Command, ...]
) -> str:
    """Return the output; the words of the commands are not escaped."""
    parts = [_summary(found, layout), *_problems(found, layout)]
    parts += [wrapped(text, layout) for text in (*_bindings(found), _examined(found))]
    if found.not_observed:
        parts.append("\n".join(["Not observed:", *_gaps(found.not_observed, layout)]))
    if found.unread:
        parts.append("\n".join(["Not read:", *_gaps(found.unread, layout)]))
    parts.append(_sources(snapshot))
    if commands:
        parts.append(next_text(commands, layout))
    return "\n\n".join(parts) + "\n"


def _summary(found: LintReport, layout: Layout) -> str:
    """Return the answer: whether to apply the files."""
    counts = Counter(one.severity for one in found.problems)
    bad = counts[Severity.CRITICAL] + counts[Severity.ERROR]
    listed = [_number(counts[one], one) for one in _SEVERITIES if counts[one]]
    limit = "" if not found.not_observed else " Not everything was observed."
    if bad:
        text = (
            f"{enumerated(listed)}: applied as they are, the objects do not become what they were."
        )
        return headed("DO NOT APPLY", BOLD + RED, [text + limit], layout)
    if listed:
        text = f"{enumerated(listed)}: the objects can be applied, and something needs attention."
        return headed("CHECK FIRST", BOLD + YELLOW, [text + limit], layout)
    if found.not_observed:
        text = "nothing speaks against applying the objects, as far as it was observed."
        return headed("NOT FULLY OBSERVED", BOLD + YELLOW, [text], layout)
    text = "Nothing speaks against applying the objects."
    return headed("OK", BOLD + GREEN, [text], layout)


def _number(count: int, severity: Severity) -> str:
    if severity is Severity.CRITICAL:
        return f"{count} critical"
    return counted(count, str(severity))


def _problems(found: LintReport, layout: Layout) -> Iterator[str]:
    """Yield each problem; without details, only the first ones of each code, and no notes."""
    shown: Counter[str] = Counter()
    omitted: dict[str, list[Problem]] = {}
    for one in found.problems:
        if not layout.details and one.severity is Severity.INFO:
            continue
        shown[one.code] += 1
        if layout.details or shown[one.code] <= _MOST_OF_CODE:
            yield _problem(one, layout)
        else:
            omitted.setdefault(one.code, []).append(one)
    lines = [_line(code, ones, layout) for code, ones in omitted.items()]
    if lines:
        yield "\n".join(lines)


def _problem(one: Problem, layout: Layout) -> str:
    paint = PAINT.get(one.severity, "")
    label = painted(f"{one.code} {one.severity}", paint, layout)
    lines = [
        f"{label}  {one.subject}",
        wrapped(f"{one.place}: {one.field}", layout, first="  ", rest="  "),
        wrapped(one.statement, layout, first="  ", rest="  "),
        *(wrapped(line, layout, first="  - ", rest="    ") for line in one.evidence),
        wrapped(
            f"Remedy: {sentence_of(one.remedy, layout.program)}", layout, first="  ", rest="  "
        ),
    ]
    return "\n".join(lines)


def _line(code: str, ones: Sequence[Problem], layout: Layout) -> str:
    names = [str(one.subject) for one in ones[:_MOST_OF_CODE]]
    more = [f"{len(ones) - len(names)} more"] if len(ones) > len(names) else []
    text = f"{code} also: {enumerated([*names, *more])} (-v has all)"
    return wrapped(text, layout, rest="  ")


def _bindings(found: LintReport) -> Iterator[str]:
    if not found.bindings:
        return
    pairs = [f"{claim} to {volume}" for claim, volume in found.bindings[:_MOST_BINDINGS]]
    more = len(found.bindings) - len(pairs)
    yield f"Would bind: {enumerated([*pairs, *([f'{more} more'] if more else [])])}."


def _examined(found: LintReport) -> str:
    counts = []
    for kind, noun in _KINDS:
        count = sum(isinstance(item.object, kind) for item in found.manifests.items)
        plural = _PLURALS.get(noun, f"{noun}s")
        counts += [f"{count} {noun if count == 1 else plural}"] if count else []
    examined = f"Examined {enumerated(counts or ['no object'])}"
    others = [f"{count} {kind}" for kind, count in found.manifests.others]
    return f"{examined}; not examined: {', '.join(others)}." if others else f"{examined}."


def _gaps(gaps: Sequence[Gap], layout: Layout) -> Iterator[str]:
    for gap in gaps:
        yield wrapped(f"{gap.fact}: {gap.reason}", layout, first="  ", rest="    ")
        if gap.hint:
            # Never wrap this line: users copy it.
            yield f"    -> {gap.hint}"


def _sources(snapshot: Snapshot) -> str:
    named = (("ceph", snapshot.sources.ceph), ("kubernetes", snapshot.sources.kubernetes))
    seen = [f"{name} ok" for name, source in named if source.state is SourceState.OBSERVED]
    return f"{', '.join(seen) or 'no source ok'}   observed {snapshot.observed_at}"


def _next(found: LintReport, files: Sequence[str]) -> tuple[Command, ...]:
    """Return the command that prints the clean pairs, if they solve anything, and from a file."""
    is_solved = any(one.code in SOLVED for one in found.problems)
    if not found.pairs or not is_solved or "-" in files:
        return ()
    options = tuple(word for file in files for word in ("-f", file))
    return (command("rbdagent lint", options=(*options, "--print")),)


def manifests_of(found: LintReport) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each manifest of the clean pairs with the text to print above it, without ``#``."""
    for pair in found.pairs:
        yield "\n".join(pair.notes), pair.volume
        yield "", pair.claim
