"""The output of ``who-holds``: the verdict with its cause, every holder, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import for_reader
from rbdagent.model import NotObserved, Verdict
from rbdagent.report.pod_names import pod_names_by_uid
from rbdagent.report.text.actions import do_this, remedy_of
from rbdagent.report.text.facts import MOST_LINES, also_lines, volume_line
from rbdagent.report.text.findings import command_lines, finding_text
from rbdagent.report.text.footer import footer
from rbdagent.report.text.headline import (
    culprits_first,
    findings_of,
    first_lines,
    named_in_headline,
    verdict_finding,
    verdict_statement,
    verdict_word,
    waiting_line,
)
from rbdagent.report.text.layout import (
    BOLD,
    COLOURS,
    NONE,
    NOT_OBSERVED,
    RED,
    UNKNOWN,
    Layout,
    aligned,
    cut,
    headed,
    labelled,
    limited,
    verdict_table,
    with_escaped_texts,
    wrapped,
)
from rbdagent.report.text.processes import processes, processes_instead
from rbdagent.rules.context import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rbdagent.model import Diagnosis, Holder, HolderVerdict, Snapshot


@with_escaped_texts
def answer(diagnosis: Diagnosis, snapshot: Snapshot, layout: Layout) -> str:
    """Return the output of ``who-holds``."""
    lead = verdict_finding(diagnosis)
    paragraphs, recovery = (
        ([str(verdict_statement(diagnosis)), *waiting_line(diagnosis, snapshot)], [])
        if lead is None
        else first_lines(lead, diagnosis, snapshot)
    )
    paint = BOLD + COLOURS.get(diagnosis.verdict, RED)
    parts = [headed(verdict_word(diagnosis.verdict), paint, paragraphs, layout)]
    parts.append("\n".join(_facts(diagnosis, snapshot, recovery, layout)))
    findings = findings_of(diagnosis)
    commands = for_reader(diagnosis.next_commands, layout.program)
    remedy = (
        remedy_of(findings[0], commands, layout, is_headline=findings[0] == lead)
        if findings
        else ""
    )
    if remedy or commands:
        parts.append(do_this(remedy, commands, layout))
    if not layout.details:
        parts += processes_instead(diagnosis, layout)
    if layout.details:
        printed = frozenset((*paragraphs, *recovery, remedy, *command_lines(commands, layout)))
        parts += _details(diagnosis, snapshot, printed, layout)
    parts.append(footer(findings[0] if findings else None, snapshot, layout))
    return "\n\n".join(parts) + "\n"


def _facts(
    diagnosis: Diagnosis,
    snapshot: Snapshot,
    recovery: list[str],
    layout: Layout,
) -> Iterator[str]:
    """Yield the labelled lines."""
    named = named_in_headline(verdict_finding(diagnosis), diagnosis)
    yield volume_line(diagnosis.volume, layout)
    holders = culprits_first(diagnosis)
    if len(holders) > 1:
        yield from _holder_lines(holders, snapshot, layout)
    elif holders:
        yield labelled("Holder", _holder(holders[0], snapshot, named), layout)
    yield from _reasons(diagnosis, named, layout)
    for text in recovery:
        yield labelled("Recovery", text, layout)
    yield from also_lines(diagnosis, verdict_finding(diagnosis), layout)


def _holder(found: HolderVerdict, snapshot: Snapshot, named: frozenset[str]) -> str:
    """Return the only holder, with its pods if the headline does not name them."""
    holder = found.holder
    cells = [_place(holder), _client(holder)]
    cells += [] if holder.node is None else [str(holder.confidence)]
    pods = pods_cell(holder, pod_names_by_uid(snapshot))
    is_new = pods != NONE and not any(pods.removeprefix("uid ") in name for name in named)
    return "   ".join([*cells, *([f"pod {pods}"] if is_new else [])])


def _place(holder: Holder) -> str:
    """Return the node, and the device if it is known: another node's is not, without its agent."""
    if holder.node is None:
        return "node unknown"
    device = _device(holder)
    return holder.node if device == UNKNOWN else f"{holder.node} {device}"


def _client(holder: Holder) -> str:
    number = client_id(holder)
    return f"client.{number}" if number else UNKNOWN


def _holder_lines(
    holders: Sequence[HolderVerdict], snapshot: Snapshot, layout: Layout
) -> Iterator[str]:
    """Yield a small table with one line for each holder, cut at the width."""
    names_by_uid = pod_names_by_uid(snapshot)
    rows = [
        [
            found.holder.node or UNKNOWN,
            _device(found.holder),
            str(found.verdict),
            _client(found.holder),
            pods_cell(found.holder, names_by_uid),
        ]
        for found in holders
    ]
    head = ["NODE", "DEVICE", "VERDICT", "CLIENT", "PODS"]
    for line in aligned(head, rows, [""] * len(rows), 2):
        yield cut(f"  {line}", layout)


def _reasons(diagnosis: Diagnosis, named: frozenset[str], layout: Layout) -> Iterator[str]:
    """Yield the evidence for the culprit's verdict that the headline does not have."""
    holders = culprits_first(diagnosis)
    if layout.details or not holders or diagnosis.verdict in _SAID:
        return
    reasons = [reason for reason in holders[0].reasons if reason not in named]
    if reasons:
        label = "Checked" if holders[0].verdict is Verdict.ORPHANED else "Why"
        yield limited(labelled(label, "; ".join(reasons), layout), MOST_LINES, layout)


_SAID: Final = frozenset({Verdict.DEAD, Verdict.CONFLICT, Verdict.SHARED})
"""Verdicts whose finding or table repeats the reasons."""


def _details(
    diagnosis: Diagnosis, snapshot: Snapshot, printed: frozenset[str], layout: Layout
) -> Iterator[str]:
    """Yield the holders with their addresses and reasons, then every finding."""
    if diagnosis.holders:
        yield holder_table(diagnosis.holders, snapshot, layout)
    for found in diagnosis.holders:
        if found.reasons:
            yield _all_reasons(found, layout)
        yield from processes(found.holder, layout)
    reasons = frozenset(line for found in diagnosis.holders for line in found.reasons)
    for finding in findings_of(diagnosis):
        yield finding_text(finding, layout, printed | reasons)


@with_escaped_texts
def holder_names(holders: Sequence[HolderVerdict]) -> str:
    """Return the output of ``-o name``: one ``NODE/DEVICE`` per line, such as ``worker-1/rbd0``.

    A holder without a known mapping is ``NODE/client.4154``; the node may be unknown, too.
    """
    return "".join(f"{_name(holder_verdict.holder)}\n" for holder_verdict in holders)


def _name(holder: Holder) -> str:
    mapping = holder.mapping
    device = mapping.device.removeprefix("/dev/") if mapping else f"client.{client_id(holder)}"
    return f"{holder.node}/{device}" if holder.node else device


def _all_reasons(found: HolderVerdict, layout: Layout) -> str:
    lines = [f"{subject_of(found.holder)} is {found.verdict}, because"]
    lines += [wrapped(reason, layout, first="  - ", rest="    ") for reason in found.reasons]
    return "\n".join(lines)


_HOLDER_HEAD: Final = (
    "NODE", "DEVICE", "VERDICT", "CLIENT", "ADDRESS", "PODS", "ATTACHMENT", "CONFIDENCE",
)  # fmt: skip
_HOLDER_HEAD_WIDE: Final = ("KIND", "MODE", "WATCH", "MOUNTS", "OPENERS", "SINCE")


def holder_table(holders: Sequence[HolderVerdict], snapshot: Snapshot, layout: Layout) -> str:
    """Return a table with one row for each holder."""
    names_by_uid = pod_names_by_uid(snapshot)
    head = _HOLDER_HEAD + (_HOLDER_HEAD_WIDE if layout.details else ())
    rows = [
        _holder_row(holder_verdict, names_by_uid, wide=layout.details) for holder_verdict in holders
    ]
    verdicts = [holder_verdict.verdict for holder_verdict in holders]
    return verdict_table(head, rows, verdicts, layout)


def holder_cells(holder_verdict: HolderVerdict, snapshot: Snapshot) -> dict[str, str]:
    """Return a holder's row of the wide table, by column."""
    row = _holder_row(holder_verdict, pod_names_by_uid(snapshot), wide=True)
    return dict(zip(_HOLDER_HEAD + _HOLDER_HEAD_WIDE, row, strict=True))


def _device(holder: Holder) -> str:
    if holder.mapping is not None:
        return holder.mapping.device
    return holder.published.device if holder.published is not None else UNKNOWN


def _holder_row(
    holder_verdict: HolderVerdict, names_by_uid: Mapping[str, str], *, wide: bool
) -> list[str]:
    holder = holder_verdict.holder
    mapping = holder.mapping
    address = mapping.client_address if mapping and mapping.client_address else None
    watcher = holder.watcher
    row = [
        holder.node or UNKNOWN,
        _device(holder),
        str(holder_verdict.verdict),
        _client(holder),
        str(address or (watcher.address if watcher else UNKNOWN)),
        pods_cell(holder, names_by_uid),
        attachment_cell(holder),
        str(holder.confidence),
    ]
    if wide:
        row += [
            str(holder.kind),
            _mode(holder),
            "yes" if watcher else "no",
            _count(mapping.mounts) if mapping else UNKNOWN,
            _count(mapping.openers) if mapping else UNKNOWN,
            holder_verdict.since or UNKNOWN,
        ]
    return row


def client_id(holder: Holder) -> int | None:
    """Return the id of a holder's client; None if it is unknown."""
    if holder.mapping is not None and holder.mapping.client_id is not None:
        return holder.mapping.client_id
    return holder.watcher.client if holder.watcher is not None else None


def pods_cell(holder: Holder, names_by_uid: Mapping[str, str]) -> str:
    """Return the pods of a holder, including uids that the API does not list."""
    if isinstance(holder.pods, NotObserved):
        return NOT_OBSERVED
    found = [str(pod.ref) for pod in holder.pods]
    found += [names_by_uid.get(uid, f"uid {uid}") for uid in holder.unknown_pod_uids]
    return ",".join(found) or NONE


def attachment_cell(holder: Holder) -> str:
    """Return the state of a holder's VolumeAttachment."""
    found = holder.attachment
    if isinstance(found, NotObserved):
        return NOT_OBSERVED
    if found is None:
        return NONE
    if found.deleting_since is not None:
        return "deleting"
    return "attached" if found.attached else "not attached"


def _mode(holder: Holder) -> str:
    if holder.mapping is None or isinstance(holder.mapping.read_only, NotObserved):
        return UNKNOWN
    return "ro" if holder.mapping.read_only else "rw"


def _count(found: tuple[object, ...] | NotObserved) -> str:
    return NOT_OBSERVED if isinstance(found, NotObserved) else str(len(found))
