"""What an agent publishes of its node: the status of the custom resource RBDNode.

Short on purpose: it is rewritten when something changes, and five thousand of them are listed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from rbdagent.correlate.identity import mappings_seen
from rbdagent.diagnose.case import subject_of
from rbdagent.model import NotObserved, Severity, Verdict
from rbdagent.parse.shown import in_all_texts, shown
from rbdagent.report.machine import image_object, pod_names, sources
from rbdagent.report.public import PublicText

if TYPE_CHECKING:
    from collections.abc import Mapping as Table
    from collections.abc import Sequence

    from rbdagent.model import Act, Diagnosis, History, JudgedHolder, Mapping, Snapshot

Json = dict[str, Any]

_MOST: Final = 5
_MOST_REASONS: Final = 3
_OF_POD: Final = re.compile(r"/pods/([0-9a-f-]{36})/volume(?:s|Devices)/")
_STAGING: Final = re.compile(
    r"/plugins/kubernetes\.io/csi/.*/(?:globalmount(?:/|$)|volumeDevices/|dev/)"
)
"""Mounts, pods and reasons of one mapping."""
_MOST_ACTS: Final = 10
_WELL: Final = frozenset({Verdict.IN_USE, Verdict.STAGED, Verdict.SHARED, Verdict.FOREIGN})


def rbdnode_status(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    history: History | None,
    acts: Sequence[Act] | NotObserved,
) -> Json:
    """Give the status of one node's RBDNode.

    ``mappings`` is null where the node's devices were not observed, ``acts`` where the record was
    not: an empty list is a fact.
    """
    node = snapshot.node
    names, public = pod_names(snapshot), PublicText(snapshot)
    held = [
        (each, mapping, diagnosis) for diagnosis in diagnoses for each, mapping in diagnosis.mapped
    ]
    seen = mappings_seen(node)
    since = _since(history)
    verdicts = [each.verdict for each, _, _ in held]
    return {
        "observedAt": snapshot.observed_at,
        "bootID": node.boot_id if node is not None else None,
        "toolVersion": snapshot.tool_version,
        "mapped": len(held) if seen else None,
        "orphaned": verdicts.count(Verdict.ORPHANED),
        "problems": sum(
            each.verdict not in _WELL or diagnosis.verdict is Verdict.CONFLICT
            for each, _, diagnosis in held
        ),
        "mappings": [
            {
                **_identity(mapping, diagnosis),
                **in_all_texts(_description(each, mapping, diagnosis, names, since), public),
            }
            for each, mapping, diagnosis in held
        ]
        if seen
        else None,
        "sources": {
            name: {"state": each["state"], "reason": public(each["reason"])}
            for name, each in sources(snapshot).items()
        },
        "acts": None
        if isinstance(acts, NotObserved)
        else [in_all_texts(_act(each), shown) for each in acts[-_MOST_ACTS:]],
    }


def _since(history: History | None) -> dict[str, str]:
    """Give since when each device is orphaned, or else known at all."""
    known = history.mappings if history is not None else ()
    return {each.identity.device: (each.orphaned_since or each.first_seen).at for each in known}


def _identity(mapping: Mapping, diagnosis: Diagnosis) -> Json:
    """Return what agents of other nodes compare with what they observe, so exactly as it is."""
    volume = diagnosis.use.persistent_volume
    image = image_object(diagnosis.use.image)
    return _seen(
        {
            "device": mapping.device,
            "image": image and _seen(image),
            "clientID": mapping.client_id,
            "clientAddress": str(mapping.client_address) if mapping.client_address else None,
            "readOnly": mapping.read_only if isinstance(mapping.read_only, bool) else None,
            "persistentVolume": volume.name if volume is not None else None,
        }
    )


def _description(
    judged: JudgedHolder,
    mapping: Mapping,
    diagnosis: Diagnosis,
    names: Table[str, str],
    since: dict[str, str],
) -> Json:
    """Return what people read about a mapping."""
    return _seen(
        {
            "verdict": str(judged.verdict),
            "because": list(judged.because[:_MOST_REASONS]),
            "findings": _findings(judged, diagnosis),
            "since": since.get(mapping.device),
            "mounts": _few(mapping.mounts, lambda each: _short(each.path, names)),
            "heldBy": _few(mapping.holders, lambda each: each.label or each.name),
            "pods": _few(
                judged.holder.pods, lambda each: names.get(each.ref.uid or "", str(each.ref))
            ),
        }
    )


def _seen(found: Json) -> Json:
    """Leave out what was not observed: a schema knows no null."""
    return {key: value for key, value in found.items() if value is not None}


def _findings(judged: JudgedHolder, diagnosis: Diagnosis) -> list[str]:
    """Return the codes of what is wrong with a mapping, or with its node, the worst first."""
    about = {subject_of(judged.holder), f"node {judged.holder.node}"}
    codes = (
        finding.code
        for finding in diagnosis.findings
        if finding.subject in about and finding.severity is not Severity.INFO
    )
    return list(dict.fromkeys(codes))[:_MOST]


def _short(path: str, names: Table[str, str]) -> str:
    """Name kubelet's own mounts by what they are: their paths are most of an object's size."""
    if found := _OF_POD.search(path):
        return f"pod {names.get(found[1], found[1])}"
    return "staging" if _STAGING.search(path) else path


def _few(found: Any, name: Any) -> list[str] | None:  # noqa: ANN401 - any tuple of the model
    """Give a few names, sorted, each once; null where nobody looked."""
    if isinstance(found, NotObserved):
        return None
    return sorted({str(name(each)) for each in found})[:_MOST]


def _act(act: Act) -> Json:
    """Return an act; its record names no command line either (``rbdagent.act``)."""
    return _seen(
        {
            "at": act.begun.at,
            "by": act.by,
            "device": act.identity.device,
            "image": str(act.identity.spec),
            "persistentVolume": act.persistent_volume,
            "why": act.why,
            "outcome": str(act.outcome) if act.outcome is not None else "under-way",
            "message": act.message,
            "followed": str(act.followed) if act.followed is not None else None,
            "followedBecause": "; ".join(act.followed_because) or None,
        }
    )
