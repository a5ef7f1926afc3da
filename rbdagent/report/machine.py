"""Answers for programs: plain data, stable and additive, with a published JSON Schema.

Where a list was not observed it is null, and ``notObserved`` of the same object says why: an empty
list is a fact, null is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbdagent.catalog import runbook
from rbdagent.commands import text_of
from rbdagent.model import API_VERSION, Command, NotObserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rbdagent.catalog.entry import Entry
    from rbdagent.model import (
        CheckResult,
        Condition,
        Diagnosis,
        Finding,
        Heals,
        Holder,
        ImageIdentity,
        JudgedHolder,
        Life,
        LifeList,
        LifeStage,
        ProcessRef,
        PublishedMapping,
        PublishedNode,
        Snapshot,
        Source,
        Step,
        UnmapPlan,
        UnmapRefusal,
        UnmapResult,
    )

Json = dict[str, Any]


def holder_report(diagnosis: Diagnosis, snapshot: Snapshot) -> Json:
    """Give the answer of ``who-holds -o json``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "HolderReport",
        "observedAt": snapshot.observed_at,
        **_diagnosis(diagnosis, pod_names(snapshot)),
        "sources": sources(snapshot),
        "next": [_command(given) for given in diagnosis.next_commands],
    }


def _diagnosis(diagnosis: Diagnosis, names: Mapping[str, str]) -> Json:
    use = diagnosis.use
    volume = use.persistent_volume
    return {
        "target": {
            "given": use.target.given,
            "persistentVolume": volume.name if volume else None,
            "claim": {"namespace": use.claim.ref.namespace, "name": use.claim.ref.name}
            if use.claim
            else None,
        },
        "image": image_object(use.image),
        "verdict": str(diagnosis.verdict),
        "holders": [_holder(each, names) for each in diagnosis.holders],
        "findings": [_finding(each) for each in diagnosis.findings],
    }


def life_report(life: Life, snapshot: Snapshot) -> Json:
    """Give the answer of ``diagnose TARGET -o json``: that of ``who-holds``, and the life."""
    return {**_life(life, snapshot, pod_names(snapshot)), "sources": sources(snapshot)}


def life_list(found: LifeList, snapshot: Snapshot) -> Json:
    """Give the answer of ``diagnose -A -o json``: what many wait for, and a life each, worst first.

    An item is what ``diagnose TARGET`` would tell of it, but for the sources, which are told once.
    """
    names = pod_names(snapshot)
    return {
        "apiVersion": API_VERSION,
        "kind": "LifeList",
        "observedAt": snapshot.observed_at,
        "lookedAt": {
            "claims": found.claims,
            "persistentVolumes": found.volumes,
            "pods": found.pods,
            "leftOut": found.others,
        },
        "causes": [
            {
                **_finding(each.finding),
                "victims": [one.life.diagnosis.use.target.given for one in each.victims],
            }
            for each in found.causes
        ],
        "items": [
            {**_life(each.life, snapshot, names), "since": each.since} for each in found.stuck
        ],
        "findings": [_finding(each) for each in found.findings],
        "sources": sources(snapshot),
    }


def _life(life: Life, snapshot: Snapshot, names: Mapping[str, str]) -> Json:
    pod, first = life.pod, life.first_broken
    return {
        "apiVersion": API_VERSION,
        "kind": "LifeReport",
        "observedAt": snapshot.observed_at,
        **_diagnosis(life.diagnosis, names),
        "next": [_command(given) for given in life.diagnosis.next_commands],
        "pod": None
        if pod is None
        else {"namespace": pod.ref.namespace, "name": pod.ref.name, "phase": pod.phase},
        "there": [_stage(each) for each in life.there],
        "back": [
            {"node": way.node, "steps": [_stage(each) for each in way.stages]} for way in life.back
        ],
        "firstBroken": None if first is None else _finding(first),
    }


def _stage(stage: LifeStage) -> Json:
    return {
        "step": str(stage.step),
        "state": str(stage.state),
        "said": stage.said,
        "codes": list(stage.codes),
    }


def mapping_list(diagnoses: Sequence[Diagnosis], snapshot: Snapshot) -> Json:
    """Give the answer of ``list -o json``: the holder objects of this node, each with its image."""
    names = pod_names(snapshot)
    items = [
        {
            "image": image_object(diagnosis.use.image),
            "persistentVolume": volume.name
            if (volume := diagnosis.use.persistent_volume)
            else None,
            **_holder(each, names),
        }
        for diagnosis in diagnoses
        for each in diagnosis.local
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "MappingList",
        "observedAt": snapshot.observed_at,
        "items": items,
        "findings": [_finding(each) for diagnosis in diagnoses for each in diagnosis.findings],
        "sources": sources(snapshot),
    }


def published_list(nodes: Sequence[PublishedNode]) -> Json:
    """Give the answer of ``list -A -o json``: each node's mappings as its agent published them.

    ``mappings`` is null where an agent has not seen its devices.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "PublishedList",
        "items": [
            {
                "node": node.name,
                "observedAt": node.observed_at,
                "bootID": node.boot_id,
                "mappings": None
                if isinstance(node.mappings, NotObserved)
                else [_published(each) for each in node.mappings],
            }
            for node in nodes
        ],
    }


def _published(mapping: PublishedMapping) -> Json:
    return {
        "device": mapping.device,
        "image": image_object(mapping.image),
        "persistentVolume": mapping.persistent_volume,
        "clientID": mapping.client_id,
        "clientAddress": str(mapping.client_address) if mapping.client_address else None,
        "verdict": str(mapping.verdict),
        "because": list(mapping.because),
        "findings": list(mapping.findings),
        "since": mapping.since,
        "pods": list(mapping.pods),
    }


def unmap_plan(plan: UnmapPlan) -> Json:
    """Give the plan that ``unmap -o json`` prints: every condition holds."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UnmapPlan",
        **_mapping_of(plan),
        "steps": [_step(each) for each in plan.steps],
        "conditions": [_condition(each) for each in plan.conditions],
        "expects": list(plan.expects),
    }


def unmap_refusal(refusal: UnmapRefusal) -> Json:
    """Give the refusal that ``unmap -o json`` prints, every condition with what was seen of it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UnmapRefusal",
        **_mapping_of(refusal),
        "codes": list(refusal.codes),
        "conditions": [_condition(each) for each in refusal.conditions],
    }


def unmap_result(result: UnmapResult) -> Json:
    """Give what ``unmap --yes -o json`` prints when it acted, or was stopped on its way."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UnmapResult",
        **_mapping_of(result.plan),
        "outcome": str(result.outcome),
        "message": result.message,
        "done": [_step(each) for each in result.done],
        "refusal": unmap_refusal(result.refusal) if result.refusal else None,
        "expects": list(result.plan.expects),
    }


def _mapping_of(plan: UnmapPlan | UnmapRefusal) -> Json:
    identity = plan.identity
    return {
        "node": plan.node,
        "device": identity.device if identity else None,
        "persistentVolume": plan.persistent_volume,
        "image": image_object(identity.image) if identity else None,
        "clientID": identity.client_id if identity else None,
    }


def _step(step: Step) -> Json:
    return {"kind": str(step.kind), "subject": step.subject}


def _condition(condition: Condition) -> Json:
    return {
        "number": condition.number,
        "code": condition.code,
        "demands": condition.demands,
        "met": condition.met,
        "passes": condition.passes,
        "observed": list(condition.observed),
        "runbook": runbook(condition.code),
    }


def check_report(results: Sequence[CheckResult]) -> Json:
    """Give the answer of ``check -o json``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "CheckReport",
        "checks": [
            {
                "source": each.source,
                "sentence": each.sentence,
                "state": str(each.state),
                "detail": each.detail,
                "hint": each.hint,
            }
            for each in results
        ],
    }


def explanation(entry: Entry) -> Json:
    """Give the answer of ``explain CODE -o json``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Explanation",
        "code": entry.code,
        "name": entry.name,
        "severity": str(entry.severity),
        "summary": entry.summary,
        "cause": entry.cause,
        "evidence": entry.evidence,
        "risk": entry.risk,
        "remedy": entry.remedy,
        "heals": _heals(entry.heals),
        "step": None if entry.step is None else str(entry.step),
    }


def explanations(entries: Sequence[Entry]) -> Json:
    """Give the answer of ``explain -o json``: every code."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ExplanationList",
        "items": [explanation(each) for each in entries],
    }


def version_info(version: str, python: str) -> Json:
    """Give the answer of ``version -o json``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Version",
        "version": version,
        "python": python,
    }


def pod_names(snapshot: Snapshot) -> Mapping[str, str]:
    """Give ``namespace/name`` of every pod uid that the API knows."""
    kube = snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        return {}
    return {each.ref.uid: str(each.ref) for each in kube.pods if each.ref.uid}


def sources(snapshot: Snapshot) -> Json:
    """Give how the look at each source went."""
    return {name: _source(source) for name, source in snapshot.sources.named}


def _source(source: Source) -> Json:
    return {
        "state": str(source.state),
        "reason": source.reason,
        "cure": source.cure,
        "gaps": [
            {"fact": each.fact, "reason": each.reason, "cure": each.cure} for each in source.gaps
        ],
    }


def image_object(image: ImageIdentity | None) -> Json | None:
    """Give the identity of an image; null where it is unknown."""
    if image is None:
        return None
    return {
        "fsid": image.fsid,
        "pool": image.spec.pool,
        "radosNamespace": image.spec.namespace,
        "name": image.spec.name,
        "id": image.image_id,
    }


def _finding(finding: Finding) -> Json:
    return {
        "code": finding.code,
        "severity": str(finding.severity),
        "subject": finding.subject,
        "message": finding.message,
        "evidence": list(finding.evidence),
        "remedy": finding.remedy,
        "commands": [_command(given) for given in finding.commands],
        "heals": _heals(finding.heals),
        "runbook": runbook(finding.code),
    }


def _command(given: Command) -> Json:
    """Return a command as words and as text; null for text that a terminal would not show."""
    return {
        "argv": list(given.argv),
        "command": text_of(given),
        "node": given.node,
        "changes": given.changes,
        "note": given.note,
    }


def _heals(heals: Heals | None) -> Json | None:
    """Give what happens next by itself; null where nothing is broken."""
    if heals is None:
        return None
    return {
        "by": heals.by,
        "once": heals.once,
        "withinSeconds": heals.within_s,
        "note": heals.note,
    }


def _holder(judged: JudgedHolder, names: Mapping[str, str]) -> Json:
    holder = judged.holder
    missing: dict[str, str] = {}

    def told(name: str, value: Any, give: Callable[[Any], object]) -> object:  # noqa: ANN401
        """Give a value, or null and the reason why it was not observed."""
        if isinstance(value, NotObserved):
            missing[name] = value.reason
            return None
        return give(value)

    mapping, watcher, published = holder.mapping, holder.watcher, holder.published
    client = mapping.client_id if mapping and mapping.client_id else None
    address = mapping.client_address if mapping else None
    if address is None and watcher is not None:
        address = watcher.address
    report = {
        "kind": str(holder.kind),
        "node": holder.node,
        "confidence": str(holder.confidence),
        "verdict": str(judged.verdict),
        "because": list(judged.because),
        "device": mapping.device if mapping else published.device if published else None,
        "readOnly": told("readOnly", mapping.read_only, bool) if mapping else None,
        "clientID": client or (watcher.client if watcher else None),
        "clientAddress": str(address) if address else None,
        "watcher": {
            "address": str(watcher.address),
            "client": watcher.client,
            "cookie": watcher.cookie,
        }
        if watcher
        else None,
        "passing": holder.passing,
        "locks": [
            {
                "id": each.lock_id,
                "client": each.client,
                "address": str(each.address) if each.address else None,
                "exclusive": each.exclusive,
            }
            for each in holder.lockers
        ],
        "mounts": told("mounts", mapping.mounts if mapping else _unseen(holder), _mounts(names)),
        "openedBy": told(
            "openedBy", mapping.openers if mapping else _unseen(holder), _openers(names)
        ),
        "heldBy": told(
            "heldBy",
            mapping.holders if mapping else _unseen(holder),
            lambda held: [
                {"kind": str(each.kind), "name": each.name, "label": each.label} for each in held
            ],
        ),
        "pods": told(
            "pods",
            holder.pods,
            lambda pods: [
                {"namespace": each.ref.namespace, "name": each.ref.name, "phase": each.phase}
                for each in pods
            ],
        ),
        "attachment": told("attachment", holder.attachment, _attachment),
        "since": judged.since,
    }
    return report | {"notObserved": missing}


def _unseen(holder: Holder) -> NotObserved:
    where = holder.node or "an unknown machine"
    return NotObserved(reason=f"the client is on {where}, which nobody looked at")


def _mounts(names: Mapping[str, str]) -> Callable[[Any], object]:
    def give(mounts: Iterable[Any]) -> object:
        return [
            {
                "path": each.path,
                "kind": str(each.kind),
                "readOnly": each.read_only,
                "mountNamespaceOf": _process(each.namespace.process, names),
            }
            for each in mounts
        ]

    return give


def _openers(names: Mapping[str, str]) -> Callable[[Any], object]:
    def give(openers: Iterable[Any]) -> object:
        return [
            _process(each.process, names) | {"how": str(each.how), "path": each.path}
            for each in openers
        ]

    return give


def _process(process: ProcessRef, names: Mapping[str, str]) -> Json:
    uid = process.pod_uid
    return {
        "pid": process.pid,
        "command": process.command,
        "pod": names.get(uid, f"uid {uid}") if uid else None,
    }


def _attachment(attachment: Any) -> object:  # noqa: ANN401 - Attachment or None
    if attachment is None:
        return None
    return {
        "name": attachment.name,
        "attached": attachment.attached,
        "deleting": attachment.deleting_since is not None,
    }
