"""The output of ``who-holds``: every holder of a volume, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import NotObserved, Verdict
from rbdagent.report.pod_names import pod_names
from rbdagent.report.text.findings import OF_SOURCES, finding_text, next_text, source_lines
from rbdagent.report.text.layout import (
    BOLD,
    COLOURS,
    NONE,
    NOT_OBSERVED,
    RED,
    UNKNOWN,
    painted,
    verdict_table,
    with_escaped_texts,
    wrapped,
)
from rbdagent.report.text.verdicts import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rbdagent.model import Diagnosis, Holder, HolderVerdict, Snapshot


@with_escaped_texts
def answer(diagnosis: Diagnosis, snapshot: Snapshot, *, wide: bool, colour: bool) -> str:
    """Return the output of ``who-holds``."""
    parts = []
    if diagnosis.holders:
        parts.append(holder_table(diagnosis.holders, snapshot, wide=wide, colour=colour))
    parts.append(_headline(diagnosis, colour=colour))
    parts += [
        _reasons(holder_verdict) for holder_verdict in diagnosis.holders if holder_verdict.reasons
    ]
    reasons = frozenset(
        line for holder_verdict in diagnosis.holders for line in holder_verdict.reasons
    )
    parts += [
        finding_text(finding, reasons, colour=colour)
        for finding in diagnosis.findings
        if finding.code not in OF_SOURCES
    ]
    parts.append(source_lines(snapshot))
    if diagnosis.next_commands:
        parts.append(next_text(diagnosis.next_commands, colour=colour))
    return "\n\n".join(parts) + "\n"


@with_escaped_texts
def names(holders: Sequence[HolderVerdict]) -> str:
    """Return the output of ``-o name``: one ``node/NAME DEVICE`` per line."""
    lines = []
    for holder_verdict in holders:
        mapping = holder_verdict.holder.mapping
        device = mapping.device if mapping else f"client.{client_id(holder_verdict.holder)}"
        lines.append(f"node/{holder_verdict.holder.node or UNKNOWN} {device}")
    return "".join(f"{line}\n" for line in lines)


def _headline(diagnosis: Diagnosis, *, colour: bool) -> str:
    use = diagnosis.use
    subject = use.target.argument
    if use.persistent_volume is not None:
        subject = f"pv/{use.persistent_volume.name}"
    details = []
    if use.claim is not None:
        details.append(f"claim {use.claim.ref}")
    if use.image is not None:
        details.append(f"image {use.image.spec}")
    if use.image is not None and use.image.fsid:
        details.append(f"cluster {use.image.fsid}")
    about = f" ({', '.join(details)})" if details else ""
    verdict = str(diagnosis.verdict)
    shown = painted(verdict, BOLD + COLOURS.get(diagnosis.verdict, RED), colour=colour)
    words = WORDS[diagnosis.verdict]
    if use.image is None and diagnosis.verdict is Verdict.UNDETERMINED:
        words = "it does not lead to an RBD image that could be queried"
    return f"{shown}: {words}.\n{subject}{about}"


def _reasons(holder_verdict: HolderVerdict) -> str:
    holder = holder_verdict.holder
    where = holder.node or "an unknown machine"
    device = f" {holder.mapping.device}" if holder.mapping else ""
    lines = [f"{where}{device} is {holder_verdict.verdict}, because"]
    lines += [wrapped(reason, first="  - ", rest="    ") for reason in holder_verdict.reasons]
    return "\n".join(lines)


_HOLDER_HEAD: Final = (
    "NODE", "DEVICE", "VERDICT", "CLIENT", "ADDRESS", "PODS", "ATTACHMENT", "CONFIDENCE",
)  # fmt: skip
_HOLDER_HEAD_WIDE: Final = ("KIND", "MODE", "WATCH", "MOUNTS", "OPENERS", "SINCE")


def holder_table(
    holders: Sequence[HolderVerdict], snapshot: Snapshot, *, wide: bool, colour: bool
) -> str:
    """Return a table with one row for each holder."""
    names_by_uid = pod_names(snapshot)
    head = _HOLDER_HEAD + (_HOLDER_HEAD_WIDE if wide else ())
    rows = [_holder_row(holder_verdict, names_by_uid, wide=wide) for holder_verdict in holders]
    verdicts = [holder_verdict.verdict for holder_verdict in holders]
    return verdict_table(head, rows, verdicts if colour else None, head.index("VERDICT"))


def holder_cells(holder_verdict: HolderVerdict, snapshot: Snapshot) -> dict[str, str]:
    """Return a holder's row of the wide table, by column."""
    row = _holder_row(holder_verdict, pod_names(snapshot), wide=True)
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
        f"client.{client_id(holder)}" if client_id(holder) else UNKNOWN,
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
