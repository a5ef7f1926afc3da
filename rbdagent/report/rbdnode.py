"""What an agent publishes about its node: the status of the custom resource RBDNode.

The object is small because each change writes it again, and a list can contain five thousand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from rbdagent.correlate.image_identity import are_mappings_observed
from rbdagent.model import NotObserved, Severity, Verdict
from rbdagent.parse.shown import in_all_texts, shown
from rbdagent.report.json.volume import image as image_of
from rbdagent.report.pod_names import pod_names
from rbdagent.report.public import PublicText
from rbdagent.rules.context import subject_of

if TYPE_CHECKING:
    from collections.abc import Mapping as Table
    from collections.abc import Sequence

    from rbdagent.model import Diagnosis, History, HolderVerdict, Mapping, Snapshot, UnmapRecord

Json = dict[str, Any]

_MOST: Final = 5
"""Maximum of findings, of mounts, and of pods, of one mapping."""
_MOST_REASONS: Final = 3
_OF_POD: Final = re.compile(r"/pods/([0-9a-f-]{36})/volume(?:s|Devices)/")
_STAGING: Final = re.compile(
    r"/plugins/kubernetes\.io/csi/.*/(?:globalmount(?:/|$)|volumeDevices/|dev/)"
)
_MOST_ACTS: Final = 10
HEALTHY: Final = frozenset({Verdict.IN_USE, Verdict.STAGED, Verdict.SHARED, Verdict.FOREIGN})
"""The verdicts on a mapping that are no problem."""


def rbdnode_status(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    history: History | None,
    acts: Sequence[UnmapRecord] | NotObserved,
) -> Json:
    """Return the status of one node's RBDNode.

    ``mappings`` is null if the node's devices were not observed. ``acts`` is null if the record was
    not observed. An empty list was observed.
    """
    node = snapshot.node
    names, public = pod_names(snapshot), PublicText(snapshot)
    held = [
        (holder_verdict, mapping, diagnosis)
        for diagnosis in diagnoses
        for holder_verdict, mapping in diagnosis.mapped
    ]
    seen = are_mappings_observed(node)
    since = _since(history)
    verdicts = [holder_verdict.verdict for holder_verdict, _, _ in held]
    return {
        "observedAt": snapshot.observed_at,
        "bootID": node.boot_id if node is not None else None,
        "toolVersion": snapshot.tool_version,
        "mapped": len(held) if seen else None,
        "orphaned": verdicts.count(Verdict.ORPHANED),
        "problems": sum(
            holder_verdict.verdict not in HEALTHY or diagnosis.verdict is Verdict.CONFLICT
            for holder_verdict, _, diagnosis in held
        ),
        "mappings": [
            {
                **_identity(mapping, diagnosis),
                **in_all_texts(
                    _description(holder_verdict, mapping, diagnosis, names, since), public
                ),
            }
            for holder_verdict, mapping, diagnosis in held
        ]
        if seen
        else None,
        "sources": {
            name: {"state": str(source.state), "reason": public(source.reason)}
            for name, source in snapshot.sources.named
        },
        "acts": None
        if isinstance(acts, NotObserved)
        else [in_all_texts(_act(act), shown) for act in acts[-_MOST_ACTS:]],
    }


def _since(history: History | None) -> dict[str, str]:
    """Return since when each device is orphaned, or else when it was first observed."""
    known = history.mappings if history is not None else ()
    return {
        mapping.identity.device: (mapping.orphaned_since or mapping.first_seen).at
        for mapping in known
    }


def _identity(mapping: Mapping, diagnosis: Diagnosis) -> Json:
    """Return the fields that agents of other nodes compare with their observations, unescaped."""
    volume = diagnosis.use.persistent_volume
    image = image_of(diagnosis.use.image)
    return _without_none(
        {
            "device": mapping.device,
            "image": image and _without_none(to_builtins(image)),
            "clientID": mapping.client_id,
            "clientAddress": str(mapping.client_address) if mapping.client_address else None,
            "readOnly": mapping.read_only if isinstance(mapping.read_only, bool) else None,
            "persistentVolume": volume.name if volume is not None else None,
        }
    )


def _description(
    holder_verdict: HolderVerdict,
    mapping: Mapping,
    diagnosis: Diagnosis,
    names: Table[str, str],
    since: dict[str, str],
) -> Json:
    """Return the fields of a mapping that only people read."""
    return _without_none(
        {
            "verdict": str(holder_verdict.verdict),
            "reasons": list(holder_verdict.reasons[:_MOST_REASONS]),
            "findings": _findings(holder_verdict, diagnosis),
            "since": since.get(mapping.device),
            "mounts": _few(mapping.mounts, lambda mount: _short(mount.path, names)),
            "heldBy": _few(mapping.holders, lambda block: block.label or block.name),
            "pods": _few(
                holder_verdict.holder.pods, lambda pod: names.get(pod.ref.uid or "", str(pod.ref))
            ),
        }
    )


def _without_none(found: Json) -> Json:
    """Return the observed values only: the schema of the resource has no null."""
    return {key: value for key, value in found.items() if value is not None}


def _findings(holder_verdict: HolderVerdict, diagnosis: Diagnosis) -> list[str]:
    """Return the finding codes of a mapping and of its node, the worst first."""
    about = {subject_of(holder_verdict.holder), f"node {holder_verdict.holder.node}"}
    codes = (
        finding.code
        for finding in diagnosis.findings
        if finding.subject in about and finding.severity is not Severity.INFO
    )
    return list(dict.fromkeys(codes))[:_MOST]


def _short(path: str, names: Table[str, str]) -> str:
    """Return a short name for a mount of kubelet: full paths would be most of the object's size."""
    if found := _OF_POD.search(path):
        return f"pod {names.get(found[1], found[1])}"
    return "staging" if _STAGING.search(path) else path


def _few(found: Any, name: Any) -> list[str] | None:  # noqa: ANN401 - any tuple of the model
    """Return a few names, sorted and unique; null if they were not observed."""
    if isinstance(found, NotObserved):
        return None
    return sorted({str(name(value)) for value in found})[:_MOST]


def _act(act: UnmapRecord) -> Json:
    """Return an act; its record contains no command line either (``rbdagent.unmap.executor``)."""
    return _without_none(
        {
            "at": act.begun.at,
            "by": act.by,
            "device": act.identity.device,
            "image": str(act.identity.spec),
            "persistentVolume": act.persistent_volume,
            "why": act.why,
            "outcome": str(act.outcome) if act.outcome is not None else "under-way",
            "message": act.message,
            "convergence": str(act.convergence) if act.convergence is not None else None,
            "convergenceReasons": "; ".join(act.convergence_reasons) or None,
        }
    )
