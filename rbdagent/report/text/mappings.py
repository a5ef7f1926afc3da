"""The output of ``list``: the mappings of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.correlate.image_identity import are_mappings_observed, mappings_of
from rbdagent.model import NotObserved, Severity, SourceState
from rbdagent.report.text.findings import OF_SOURCES, finding_text, next_text, source_lines
from rbdagent.report.text.holders import attachment_cell, client_id, pods_cell
from rbdagent.report.text.layout import (
    NONE,
    NOT_OBSERVED,
    UNKNOWN,
    Layout,
    verdict_table,
    with_escaped_texts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Diagnosis, HolderVerdict, Snapshot


@with_escaped_texts
def mapping_table(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    layout: Layout,
    *,
    of: str = "",
) -> str:
    """Return the output of ``list``; ``of`` describes the selection, if there is one."""
    local = [
        (diagnosis, holder_verdict) for diagnosis in diagnoses for holder_verdict in diagnosis.local
    ]
    if local:
        head = ["DEVICE", "IMAGE", "PERSISTENTVOLUME", "CLAIM", "VERDICT", "PODS"]
        head += ["CLIENT", "ADDRESS", "ATTACHMENT"] if layout.details else []
        rows = [
            _mapping_row(diagnosis, holder_verdict, snapshot, layout)
            for diagnosis, holder_verdict in local
        ]
        verdicts = [holder_verdict.verdict for _, holder_verdict in local]
        parts = [verdict_table(head, rows, verdicts, layout)]
    elif snapshot.sources.node.state is SourceState.OBSERVED and are_mappings_observed(
        snapshot.node
    ):
        parts = [_nothing_mapped(snapshot, of)]
    else:
        parts = ["The mappings of this node were not observed."]
    serious = [
        finding
        for diagnosis in diagnoses
        for finding in diagnosis.findings
        if finding.severity is not Severity.INFO and finding.code not in OF_SOURCES
    ]
    parts += [finding_text(finding, layout) for finding in dict.fromkeys(serious)]
    parts.append(source_lines(snapshot, layout))
    commands = tuple(
        dict.fromkeys(suggested for diagnosis in diagnoses for suggested in diagnosis.next_commands)
    )
    if commands:
        parts.append(next_text(commands, layout))
    return "\n\n".join(parts) + "\n"


def _nothing_mapped(snapshot: Snapshot, of: str) -> str:
    mapped = mappings_of(snapshot.node)
    where = snapshot.node.node_name if snapshot.node else "this node"
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
    diagnosis: Diagnosis, holder_verdict: HolderVerdict, snapshot: Snapshot, layout: Layout
) -> list[str]:
    use, holder = diagnosis.use, holder_verdict.holder
    mapping = holder.mapping
    volume, claim = use.persistent_volume, use.claim and use.claim.ref
    if claim is None and volume is not None:
        claim = volume.claim
    absent = _cell_without_volume(snapshot)
    row = [
        mapping.device if mapping else UNKNOWN,
        str(use.image.spec) if use.image else UNKNOWN,
        volume.name if volume else absent,
        str(claim) if claim else absent,
        str(holder_verdict.verdict),
        pods_cell(holder, {}),
    ]
    if layout.details:
        address = mapping.client_address if mapping else None
        row += [
            f"client.{client_id(holder)}" if client_id(holder) else UNKNOWN,
            str(address) if address else UNKNOWN,
            attachment_cell(holder),
        ]
    return row
