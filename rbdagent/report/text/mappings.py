"""The output of ``list``: how many mappings of a node need attention, and each mapping."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rbdagent.commands import command
from rbdagent.correlate.image_identity import are_mappings_observed, mappings_of
from rbdagent.model import NotObserved, Severity, SourceState, Verdict
from rbdagent.report.rbdnode import HEALTHY
from rbdagent.report.text.findings import OF_SOURCES, finding_text, next_text
from rbdagent.report.text.footer import footer
from rbdagent.report.text.holders import attachment_cell, client_id, pods_cell
from rbdagent.report.text.io import io_cells, io_head
from rbdagent.report.text.layout import (
    COLOURS,
    NONE,
    NOT_OBSERVED,
    PAINT,
    RED,
    UNKNOWN,
    Layout,
    aligned,
    cut,
    limited,
    painted,
    shortened,
    with_escaped_texts,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rbdagent.model import Command, Diagnosis, Finding, HolderVerdict, Snapshot
    from rbdagent.report.text.io import Rates

_MOST: Final = 28
"""Characters of a name; -v shows whole names."""
_MOST_LINES: Final = 2
"""Maximum of lines of a finding; the details have the rest."""
_MOST_OF_A_CODE: Final = 5
_MOST_COMMANDS: Final = 3

_Row = tuple["Diagnosis", "HolderVerdict"]


def mapping_table(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    layout: Layout,
    *,
    of: str = "",
    rates: Rates | None = None,
) -> str:
    """Return the output of ``list``.

    Args:
        diagnoses: those of the volumes in the list.
        snapshot: the snapshot.
        layout: the layout; with details, the table has the I/O of each device.
        of: describes the selection, if there is one.
        rates: the rates of the I/O by device; None if the answer is not repeated.
    """
    # Commands are not escaped: a name in them stays the name.
    return _answer(diagnoses, snapshot, layout, of, _commands(_rows(diagnoses)), rates)


@with_escaped_texts
def _answer(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    layout: Layout,
    of: str,
    commands: Sequence[Command],
    rates: Rates | None,
) -> str:
    rows = _rows(diagnoses)
    if rows:
        parts = [_summary(rows, snapshot, layout, of), _table(rows, snapshot, layout, rates)]
    elif snapshot.sources.node.state is SourceState.OBSERVED and are_mappings_observed(
        snapshot.node
    ):
        parts = [_nothing_mapped(snapshot, of)]
    else:
        parts = ["The mappings of this node were not observed."]
    problems = dict.fromkeys(finding for diagnosis in diagnoses for finding in _problems(diagnosis))
    if layout.details:
        parts += [finding_text(finding, layout) for finding in problems]
    elif problems:
        parts.append("\n".join(_brief(problems, layout)))
    if commands:
        parts.append(next_text(commands, layout))
    parts.append(footer(None, snapshot, layout))
    return "\n\n".join(parts) + "\n"


def _rows(diagnoses: Sequence[Diagnosis]) -> list[_Row]:
    return [(diagnosis, held) for diagnosis in diagnoses for held in diagnosis.local]


def _problems(diagnosis: Diagnosis) -> list[Finding]:
    return [
        finding
        for finding in diagnosis.findings
        if finding.severity is not Severity.INFO and finding.code not in OF_SOURCES
    ]


def _needs_attention(row: _Row) -> bool:
    """Return whether the verdict on a mapping, or a finding about its volume, is a problem."""
    diagnosis, held = row
    is_healthy = held.verdict in HEALTHY and diagnosis.verdict is not Verdict.CONFLICT
    return not is_healthy or bool(_problems(diagnosis))


def _summary(rows: Sequence[_Row], snapshot: Snapshot, layout: Layout, of: str) -> str:
    """Return how many mappings need attention, and how many have each of their verdicts."""
    noun = "mapping" if len(rows) == 1 else "mappings"
    selection = f" {of}" if of else ""
    urgent = [row for row in rows if _needs_attention(row)]
    counts = Counter(held.verdict for _, held in urgent or rows).most_common()
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts)
    verb = "needs" if 1 in {len(urgent), len(rows)} else "need"
    text = f"{len(urgent)} of {len(rows)} {noun}{selection} on {_node(snapshot)} {verb} attention"
    is_complete = all(
        source.state is SourceState.OBSERVED and not source.gaps
        for _, source in snapshot.sources.named
    )
    known = "" if urgent or is_complete else ", as far as observed"
    return wrapped(f"{text}{known}: {verdicts}.", layout)


def _table(rows: Sequence[_Row], snapshot: Snapshot, layout: Layout, rates: Rates | None) -> str:
    """Return a row for each mapping, cut at the width; the verdict has its colour."""
    head = ["DEVICE", "VERDICT", "CLAIM", "PODS", "PERSISTENTVOLUME", "IMAGE"]
    head += ["CLIENT", "ADDRESS", "ATTACHMENT", *io_head(rates)] if layout.details else []
    cells = [_mapping_row(*row, snapshot, layout, rates) for row in rows]
    first, *others = aligned(head, cells, [""] * len(cells), 1)
    lines = [cut(first, layout)]
    for (_, held), line in zip(rows, others, strict=True):
        verdict = str(held.verdict)
        shown = painted(verdict, COLOURS.get(held.verdict, RED), layout)
        lines.append(cut(line, layout).replace(verdict, shown, 1))
    return "\n".join(lines)


def _brief(problems: Iterable[Finding], layout: Layout) -> Iterator[str]:
    """Yield a sentence of each finding; of many with the same code, only the first ones.

    A CSI plugin that is down is a problem of each volume of the node.
    """
    shown: Counter[str] = Counter()
    hidden: Counter[str] = Counter()
    lines: dict[str, None] = {}
    for finding in problems:
        line, code = _short(finding, layout), finding.code
        if line in lines:
            continue
        if shown[code] < _MOST_OF_A_CODE or finding.severity is Severity.CRITICAL:
            shown[code] += 1
            lines[line] = None
        else:
            hidden[code] += 1
    yield from lines
    for code, count in hidden.items():
        yield f"{code}: {count} more; -v shows all"


def _short(finding: Finding, layout: Layout) -> str:
    """Return the first sentence of a finding, which may name the subject."""
    label = f"{finding.code} {finding.severity}"
    about = "" if finding.statement.cause.names(str(finding.subject)) else f"{finding.subject}: "
    text = wrapped(f"{label}  {about}{finding.cause}", layout, rest="  ")
    shown = painted(label, PAINT.get(finding.severity, ""), layout)
    return shown + limited(text, _MOST_LINES, layout)[len(label) :]


def _commands(rows: Sequence[_Row]) -> list[Command]:
    """Return the commands that diagnose the first volumes that need attention."""
    urgent = [row for row in rows if _needs_attention(row)]
    commands = dict.fromkeys(_diagnose_command(diagnosis) for diagnosis, _ in urgent)
    return [*commands][:_MOST_COMMANDS]


def _diagnose_command(diagnosis: Diagnosis) -> Command:
    """Return the command that diagnoses a volume: by its device on this node if it has no PV."""
    volume, (held, *_) = diagnosis.volume, diagnosis.local
    if volume.persistent_volume is not None:
        return command("rbdagent diagnose", f"pv/{volume.persistent_volume.name}")
    if held.holder.mapping is None:
        return command("rbdagent diagnose", volume.target.argument)
    return command("rbdagent diagnose", held.holder.mapping.device, node=held.holder.node)


def _node(snapshot: Snapshot) -> str:
    return snapshot.node.node_name if snapshot.node else "this node"


def _nothing_mapped(snapshot: Snapshot, of: str) -> str:
    mapped, where = mappings_of(snapshot.node), _node(snapshot)
    if of and mapped:
        return f"No volume {of} is mapped on {where}; {len(mapped)} others are."
    return f"Nothing is mapped on {where}: no krbd device, no rbd-nbd device."


def _cell_without_volume(snapshot: Snapshot) -> str:
    """Return the cell of a volume that was not found; PersistentVolumes may be unobserved."""
    kube = snapshot.kubernetes
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return NOT_OBSERVED
    return NONE


def _mapping_row(
    diagnosis: Diagnosis,
    held: HolderVerdict,
    snapshot: Snapshot,
    layout: Layout,
    rates: Rates | None,
) -> list[str]:
    volume, holder = diagnosis.volume, held.holder
    mapping = holder.mapping
    persistent_volume, claim = volume.persistent_volume, volume.claim and volume.claim.ref
    if claim is None and persistent_volume is not None:
        claim = persistent_volume.claim
    absent = _cell_without_volume(snapshot)
    names = [
        persistent_volume.name if persistent_volume else absent,
        str(volume.image.spec) if volume.image else UNKNOWN,
    ]
    row = [
        mapping.device if mapping else UNKNOWN,
        str(held.verdict),
        str(claim) if claim else absent,
        pods_cell(holder, {}),
        *(names if layout.details else [shortened(name, _MOST) for name in names]),
    ]
    if layout.details:
        address = mapping.client_address if mapping else None
        row += [
            f"client.{client_id(holder)}" if client_id(holder) else UNKNOWN,
            str(address) if address else UNKNOWN,
            attachment_cell(holder),
            *io_cells(mapping, rates),
        ]
    return row
