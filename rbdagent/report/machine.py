"""Output as JSON and YAML: plain data, stable and additive, with a published JSON Schema.

A list that was not observed is null, and ``notObserved`` of the same object has the reason. An
empty list was observed; null was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbdagent.commands import text_of
from rbdagent.model import API_VERSION, Command, NotObserved
from rbdagent.rules.entry import runbook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rbdagent.model import (
        CheckResult,
        ClusterReport,
        Condition,
        Diagnosis,
        Finding,
        Holder,
        HolderVerdict,
        ImageIdentity,
        Keeper,
        Lifecycle,
        ProcessRef,
        PublishedMapping,
        PublishedNode,
        Recovery,
        Snapshot,
        Source,
        Step,
        StepStatus,
        UnmapPlan,
        UnmapRefusal,
        UnmapResult,
    )
    from rbdagent.rules.entry import Entry

Json = dict[str, Any]


def holder_report(diagnosis: Diagnosis, snapshot: Snapshot) -> Json:
    """Return the output of ``who-holds -o json``."""
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
        "holders": [_holder(judged, names) for judged in diagnosis.holders],
        "findings": [_finding(finding) for finding in diagnosis.findings],
    }


def life_report(life: Lifecycle, snapshot: Snapshot) -> Json:
    """Return the output of ``diagnose TARGET -o json``: that of ``who-holds`` and the lifecycle."""
    return {**_life(life, snapshot, pod_names(snapshot)), "sources": sources(snapshot)}


def life_list(found: ClusterReport, snapshot: Snapshot) -> Json:
    """Return the output of ``diagnose -A -o json``: root causes and stuck items, the worst first.

    An item is the output of ``diagnose TARGET`` without the sources, which are listed once.
    """
    names = pod_names(snapshot)
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterReport",
        "observedAt": snapshot.observed_at,
        "lookedAt": {
            "claims": found.claims,
            "persistentVolumes": found.volumes,
            "pods": found.pods,
            "leftOut": found.others,
        },
        "causes": [
            {
                **_finding(cause.finding),
                "affected": [one.life.diagnosis.use.target.given for one in cause.affected],
            }
            for cause in found.causes
        ],
        "items": [
            {**_life(stuck.life, snapshot, names), "since": stuck.since} for stuck in found.stuck
        ],
        "findings": [_finding(finding) for finding in found.findings],
        "sources": sources(snapshot),
    }


def _life(life: Lifecycle, snapshot: Snapshot, names: Mapping[str, str]) -> Json:
    pod, first = life.pod, life.first_failed
    return {
        "apiVersion": API_VERSION,
        "kind": "LifecycleReport",
        "observedAt": snapshot.observed_at,
        **_diagnosis(life.diagnosis, names),
        "next": [_command(given) for given in life.diagnosis.next_commands],
        "pod": None
        if pod is None
        else {"namespace": pod.ref.namespace, "name": pod.ref.name, "phase": pod.phase},
        "there": [_stage(stage) for stage in life.there],
        "back": [
            {"node": way.node, "steps": [_stage(stage) for stage in way.stages]}
            for way in life.back
        ],
        "firstBroken": None if first is None else _finding(first),
    }


def _stage(stage: StepStatus) -> Json:
    return {
        "step": str(stage.step),
        "state": str(stage.state),
        "said": stage.said,
        "codes": list(stage.codes),
    }


def mapping_list(diagnoses: Sequence[Diagnosis], snapshot: Snapshot) -> Json:
    """Return the output of ``list -o json``: this node's holder objects, each with its image."""
    names = pod_names(snapshot)
    items = [
        {
            "image": image_object(diagnosis.use.image),
            "persistentVolume": volume.name
            if (volume := diagnosis.use.persistent_volume)
            else None,
            **_holder(judged, names),
        }
        for diagnosis in diagnoses
        for judged in diagnosis.local
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "MappingList",
        "observedAt": snapshot.observed_at,
        "items": items,
        "findings": [
            _finding(finding) for diagnosis in diagnoses for finding in diagnosis.findings
        ],
        "sources": sources(snapshot),
    }


def published_list(nodes: Sequence[PublishedNode]) -> Json:
    """Return the output of ``list -A -o json``: the mappings that the agent of each node published.

    ``mappings`` is null if an agent has not observed its node's devices.
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
                else [_published(mapping) for mapping in node.mappings],
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
        "reasons": list(mapping.reasons),
        "findings": list(mapping.findings),
        "since": mapping.since,
        "pods": list(mapping.pods),
    }


def unmap_plan(plan: UnmapPlan) -> Json:
    """Return the plan that ``unmap -o json`` prints; all its conditions are met."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UnmapPlan",
        **_mapping_of(plan),
        "steps": [_step(step) for step in plan.steps],
        "conditions": [_condition(condition) for condition in plan.conditions],
        "expects": list(plan.expects),
    }


def unmap_refusal(refusal: UnmapRefusal) -> Json:
    """Return the refusal that ``unmap -o json`` prints: each condition with its evidence."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UnmapRefusal",
        **_mapping_of(refusal),
        "codes": list(refusal.codes),
        "keeper": None if refusal.keeper is None else _keeper(refusal.keeper),
        "conditions": [_condition(condition) for condition in refusal.conditions],
    }


def _keeper(keeper: Keeper) -> Json:
    return {
        "kind": keeper.kind,
        "namespace": keeper.namespace or None,
        "name": keeper.name,
        "pid": keeper.pid,
    }


def unmap_result(result: UnmapResult) -> Json:
    """Return the output of ``unmap --yes -o json``, also after a plan that was executed in part."""
    return {
        "apiVersion": API_VERSION,
        "kind": "UnmapResult",
        **_mapping_of(result.plan),
        "outcome": str(result.outcome),
        "message": result.message,
        "done": [_step(step) for step in result.done],
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
        "requirement": condition.requirement,
        "met": condition.met,
        "pending": condition.pending,
        "observed": list(condition.observed),
        "runbook": runbook(condition.code),
    }


def check_report(results: Sequence[CheckResult]) -> Json:
    """Return the output of ``check -o json``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "CheckReport",
        "checks": [
            {
                "source": result.source,
                "sentence": result.sentence,
                "state": str(result.state),
                "detail": result.detail,
                "hint": result.hint,
            }
            for result in results
        ],
    }


def explanation(entry: Entry) -> Json:
    """Return the output of ``explain CODE -o json``."""
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
        "recovery": _recovery_of(entry.recovery),
        "step": None if entry.step is None else str(entry.step),
    }


def explanations(entries: Sequence[Entry]) -> Json:
    """Return the output of ``explain -o json``: all codes."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ExplanationList",
        "items": [explanation(entry) for entry in entries],
    }


def version_info(version: str, python: str) -> Json:
    """Return the output of ``version -o json``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Version",
        "version": version,
        "python": python,
    }


def pod_names(snapshot: Snapshot) -> Mapping[str, str]:
    """Return ``namespace/name`` of each pod in the API, by its uid."""
    kube = snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        return {}
    return {pod.ref.uid: str(pod.ref) for pod in kube.pods if pod.ref.uid}


def sources(snapshot: Snapshot) -> Json:
    """Return the state of each source."""
    return {name: _source(source) for name, source in snapshot.sources.named}


def _source(source: Source) -> Json:
    return {
        "state": str(source.state),
        "reason": source.reason,
        "hint": source.hint,
        "gaps": [{"fact": gap.fact, "reason": gap.reason, "hint": gap.hint} for gap in source.gaps],
    }


def image_object(image: ImageIdentity | None) -> Json | None:
    """Return the identity of an image; null if it is unknown."""
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
        "recovery": _recovery_of(finding.recovery),
        "runbook": runbook(finding.code),
    }


def _command(given: Command) -> Json:
    """Return a command as words and as text; null if the text is not printable."""
    return {
        "argv": list(given.argv),
        "command": text_of(given),
        "node": given.node,
        "changes": given.changes,
        "note": given.note,
    }


def _recovery_of(recovery: Recovery | None) -> Json | None:
    """Return the automatic recovery of a finding; null if the finding has none."""
    if recovery is None:
        return None
    return {
        "actor": recovery.actor,
        "condition": recovery.condition,
        "withinSeconds": recovery.within_s,
        "note": recovery.note,
    }


def _holder(judged: HolderVerdict, names: Mapping[str, str]) -> Json:
    holder = judged.holder
    missing: dict[str, str] = {}

    def observed(name: str, value: Any, convert: Callable[[Any], object]) -> object:  # noqa: ANN401
        """Return a converted value, or null and record why it was not observed."""
        if isinstance(value, NotObserved):
            missing[name] = value.reason
            return None
        return convert(value)

    mapping, watcher, published = holder.mapping, holder.watcher, holder.published
    client = mapping.client_id if mapping and mapping.client_id else None
    address = mapping.client_address if mapping else None
    if address is None and watcher is not None:
        address = watcher.address
    report = {
        "kind": str(holder.kind),
        "probably": None if holder.probably is None else str(holder.probably),
        "node": holder.node,
        "confidence": str(holder.confidence),
        "verdict": str(judged.verdict),
        "reasons": list(judged.reasons),
        "device": mapping.device if mapping else published.device if published else None,
        "readOnly": observed("readOnly", mapping.read_only, bool) if mapping else None,
        "clientID": client or (watcher.client if watcher else None),
        "clientAddress": str(address) if address else None,
        "watcher": {
            "address": str(watcher.address),
            "client": watcher.client,
            "cookie": watcher.cookie,
        }
        if watcher
        else None,
        "transient": holder.transient,
        "locks": [
            {
                "id": locker.lock_id,
                "client": locker.client,
                "address": str(locker.address) if locker.address else None,
                "exclusive": locker.exclusive,
            }
            for locker in holder.lockers
        ],
        "mounts": observed(
            "mounts", mapping.mounts if mapping else _unseen(holder), _mounts(names)
        ),
        "openedBy": observed(
            "openedBy", mapping.openers if mapping else _unseen(holder), _openers(names)
        ),
        "heldBy": observed(
            "heldBy",
            mapping.holders if mapping else _unseen(holder),
            lambda held: [
                {"kind": str(block.kind), "name": block.name, "label": block.label}
                for block in held
            ],
        ),
        "pods": observed(
            "pods",
            holder.pods,
            lambda pods: [
                {"namespace": pod.ref.namespace, "name": pod.ref.name, "phase": pod.phase}
                for pod in pods
            ],
        ),
        "attachment": observed("attachment", holder.attachment, _attachment),
        "since": judged.since,
    }
    return report | {"notObserved": missing}


def _unseen(holder: Holder) -> NotObserved:
    where = holder.node or "an unknown machine"
    return NotObserved(reason=f"the client is on {where}, which was not observed")


def _mounts(names: Mapping[str, str]) -> Callable[[Any], object]:
    def convert(mounts: Iterable[Any]) -> object:
        return [
            {
                "path": mount.path,
                "kind": str(mount.kind),
                "readOnly": mount.read_only,
                "mountNamespaceOf": _process(mount.namespace.process, names),
            }
            for mount in mounts
        ]

    return convert


def _openers(names: Mapping[str, str]) -> Callable[[Any], object]:
    def convert(openers: Iterable[Any]) -> object:
        return [
            _process(opener.process, names) | {"how": str(opener.how), "path": opener.path}
            for opener in openers
        ]

    return convert


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
