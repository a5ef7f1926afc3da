"""What an agent publishes about one mapping: the custom resource RBDMapping.

An object is small, at most 1.5 KiB, because a change of its mapping writes it again, and a cluster
has one for each mapping.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rbdagent.codes import Code
from rbdagent.model import (
    NotObserved,
    Severity,
    Subject,
    Verdict,
)
from rbdagent.parse import labels
from rbdagent.parse.foreign import bounded
from rbdagent.parse.shown import in_all_texts
from rbdagent.report.json.volume import image as image_of
from rbdagent.report.pod_names import pod_names_by_uid
from rbdagent.report.public import public_text
from rbdagent.report.text.headline import EXPLAINED_BY
from rbdagent.rules.context import subject_of
from rbdagent.verdicts.volume_verdict import is_left_behind

if TYPE_CHECKING:
    from collections.abc import Mapping as Table
    from collections.abc import Sequence

    from rbdagent.model import Diagnosis, History, HolderVerdict, Mapping, Snapshot

Json = dict[str, Any]

MOST_BYTES: Final = 1536
"""Of the labels and the status of an RBDMapping, as JSON.

With ceph-csi's names of images, names of 30 characters for claim and pod, and its finding, an
object has 1.1 KiB. 1 KiB would leave out the reason, with which the answer on other nodes begins.
"""
_MOST: Final = 5
"""Maximum of findings, of mounts, and of pods, of one mapping."""
_MOST_REASONS: Final = 3
_HANGING: Final = Code.OPERATION_HANGS
"""Of the volume: only the node of the mapping shows which requests hang."""
_LONGEST_SENTENCE: Final = 300
"""Characters; a sentence is longer only if it quotes names of unusual length."""
_SHORTENED: Final = (("mounts", 0), ("heldBy", 0), ("reasons", 1), ("pods", 0), ("reasons", 0))
"""The lists that are shortened, in this order and to this number of items, until the object is
small enough. They explain the verdict; what identifies the mapping and its client stays in any
case. The first reason and the pods explain most."""
_OF_POD: Final = re.compile(r"/pods/([0-9a-f-]{36})/volume(?:s|Devices)/")
_STAGING: Final = re.compile(
    r"/plugins/kubernetes\.io/csi/.*/(?:globalmount(?:/|$)|volumeDevices/|dev/)"
)


def mapping_statuses(
    diagnoses: Sequence[Diagnosis], snapshot: Snapshot, history: History | None
) -> list[Json]:
    """Return what is published about each mapping of the node; unobserved values are absent."""
    names = pod_names_by_uid(snapshot)
    since = _since(history)
    return [
        {
            **_identity(mapping, diagnosis),
            **_with_short_sentence(
                in_all_texts(
                    _description(holder_verdict, mapping, diagnosis, names, since), public_text
                )
            ),
        }
        for diagnosis in diagnoses
        for holder_verdict, mapping in diagnosis.mapped
    ]


def rbdmapping_objects(
    statuses: Sequence[Json], node_name: str, *, observed_at: str
) -> dict[str, Json]:
    """Return the RBDMappings of a node by their names, with labels and status only."""
    return {
        labels.mapping_name(node_name, status["device"]): _object(
            {"node": node_name, "observedAt": observed_at, **status}
        )
        for status in statuses
    }


def _object(status: Json) -> Json:
    labelled = _labels(status)
    found = dict(status)
    for key, least in _SHORTENED:
        while len(found.get(key, ())) > least and _is_large(labelled, found):
            found[key] = found[key][:-1]
        if not found.get(key, True) and _is_large(labelled, found):
            del found[key]
    return _body(labelled, found)


def _body(labelled: Json, status: Json) -> Json:
    return {"metadata": {"labels": labelled}, "status": status}


def _is_large(labelled: Json, status: Json) -> bool:
    return len(msgspec.json.encode(_body(labelled, status))) > MOST_BYTES


def _labels(status: Json) -> dict[str, str]:
    image = status.get("image") or {}
    name = image.get("name")
    found = {
        labels.NODE: status["node"],
        labels.VOLUME: status.get("persistentVolume"),
        labels.IMAGE_ID: image.get("id"),
        labels.CLIENT: str(status["clientID"]) if "clientID" in status else None,
    }
    given = {key: labels.label_value(value) for key, value in found.items() if value}
    return given | {labels.IMAGE: labels.label_value(name) if name else labels.UNKNOWN_IMAGE}


def _since(history: History | None) -> dict[str, str]:
    """Return since when each device is orphaned, or else when it was first observed."""
    known = history.mappings if history is not None else ()
    return {
        mapping.identity.device: (mapping.orphaned_since or mapping.first_seen).at
        for mapping in known
    }


def _identity(mapping: Mapping, diagnosis: Diagnosis) -> Json:
    """Return the fields that agents of other nodes compare with their observations, unescaped."""
    volume = diagnosis.volume.persistent_volume
    image = image_of(diagnosis.volume.image)
    return without_none(
        {
            "device": mapping.device,
            "image": image and without_none(msgspec.to_builtins(image)),
            "clientID": mapping.client_id,
            "clientAddress": str(mapping.client_address) if mapping.client_address else None,
            "readOnly": _read_only(mapping),
            "persistentVolume": volume.name if volume is not None else None,
        }
    )


def _read_only(mapping: Mapping) -> bool | None:
    """Return whether a mapping is read-only, as that of a snapshot is; None if not observed."""
    if mapping.snapshot is not None:
        return True
    return mapping.read_only if isinstance(mapping.read_only, bool) else None


def _description(
    holder_verdict: HolderVerdict,
    mapping: Mapping,
    diagnosis: Diagnosis,
    names: Table[str, str],
    since: dict[str, str],
) -> Json:
    """Return the fields of a mapping that only people read."""
    volume = diagnosis.volume.persistent_volume
    claim = volume.claim if volume is not None else None
    return without_none(
        {
            "claimNamespace": claim.namespace if claim is not None else None,
            "claim": claim.name if claim is not None else None,
            "verdict": str(holder_verdict.verdict),
            "reasons": list(holder_verdict.reasons[:_MOST_REASONS]),
            "leftBehind": is_left_behind(holder_verdict) or None,
            "finding": _finding(holder_verdict, diagnosis),
            "findings": _findings(holder_verdict, diagnosis),
            "since": since.get(mapping.device),
            "mounts": _few(mapping.mounts, lambda mount: _short(mount.path, names)),
            "heldBy": _few(mapping.holders, lambda block: block.label or block.name),
            "pods": _few(
                holder_verdict.holder.pods, lambda pod: names.get(pod.ref.uid or "", str(pod.ref))
            ),
        }
    )


def _finding(holder_verdict: HolderVerdict, diagnosis: Diagnosis) -> Json:
    """Return the finding that explains the verdict, with the first sentence of the answer here.

    Other nodes answer with this sentence: what it is based on is observed only here.
    """
    holder = holder_verdict.holder
    is_not_backed = diagnosis.verdict is Verdict.NOT_BACKED
    verdict = Verdict.NOT_BACKED if is_not_backed else holder_verdict.verdict
    subjects = {subject_of(holder), Subject.of_node(holder.node)}
    about = [found for found in diagnosis.findings if is_not_backed or found.subject in subjects]
    codes = EXPLAINED_BY.get(verdict, ())
    lead = next((found for found in about if found.code in codes), None)
    plain = _PLAIN.get(verdict, Code.HOLDER_UNDETERMINED)
    if lead is None:
        lead = next((found for found in about if found.code == plain), None)
    if lead is None:
        sentence = f"{subject_of(holder)}: {holder_verdict.reasons[0]}."
        return _published(plain, Severity.INFO, sentence)
    return _published(lead.code, lead.severity, lead.cause)


def _published(code: str, severity: Severity, sentence: str) -> Json:
    return {"code": code, "severity": str(severity), "message": sentence}


def _with_short_sentence(described: Json) -> Json:
    """Limit the sentence of the finding, which has no command line any more.

    A command line can only be removed from a sentence that has its end.
    """
    found = described["finding"]
    return {
        **described,
        "finding": {**found, "message": bounded(found["message"], _LONGEST_SENTENCE)},
    }


_PLAIN: Final = {
    Verdict.IN_USE: Code.IN_USE,
    Verdict.STAGED: Code.BETWEEN_STEPS,
    Verdict.FOREIGN: Code.FOREIGN_HOLDER,
}
"""The codes of verdicts whose answer begins with the reason, not with the text of a finding."""


def without_none(found: Json) -> Json:
    """Return the observed values only: the schema of the resources has no null."""
    return {key: value for key, value in found.items() if value is not None}


def _findings(holder_verdict: HolderVerdict, diagnosis: Diagnosis) -> list[str]:
    """Return the finding codes of a mapping and of its node, the worst first."""
    about = {subject_of(holder_verdict.holder), Subject.of_node(holder_verdict.holder.node)}
    codes = (
        finding.code
        for finding in diagnosis.findings
        if (finding.subject in about or finding.code == _HANGING)
        and finding.severity is not Severity.INFO
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
