"""The JSON Schemas (2020-12) of every machine output.

They are additive: a reader must accept unknown fields, so no schema forbids them. Every required
field exists and has the given type.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from rbdagent.errors import NotFoundError
from rbdagent.model import (
    API_VERSION,
    CheckState,
    Confidence,
    HolderKind,
    LifecycleStep,
    Severity,
    SourceState,
    StepKind,
    StepState,
    UnmapOutcome,
    Verdict,
)
from rbdagent.report.snapshot import schema_of_snapshot

if TYPE_CHECKING:
    from enum import Enum

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_TRUTH: Final[Json] = {"type": "boolean"}
_NUMBER: Final[Json] = {"type": "integer"}
_DECIMAL: Final[Json] = {"type": "number"}
_TIME: Final[Json] = {
    "type": "string",
    "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?Z$",
}


def schema(kind: str) -> Json:
    """Return the schema of one kind.

    Raises:
        NotFoundError: no machine output has that kind.
    """
    known = {name.lower(): name for name in KINDS}
    name = known.get(kind.lower())
    if name is None:
        near = [known[name] for name in get_close_matches(kind.lower(), known, n=1)]
        meant = f"did you mean {near[0]}? " if near else ""
        raise NotFoundError(
            f"no output has the kind {kind!r}", hint=f"{meant}kinds: {', '.join(KINDS)}"
        )
    return KINDS[name]


def _maybe(inner: Json) -> Json:
    return {"anyOf": [inner, {"type": "null"}]}


def _list(inner: Json) -> Json:
    return {"type": "array", "items": inner}


def _enum(values: type[Enum]) -> Json:
    return {"enum": [str(member.value) for member in values]}


def _object(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


def _with(known: Json, **further: Json) -> Json:
    """Return the schema of an object with additional fields."""
    properties = {**known["properties"], **further}
    required = [*known["required"], *further]
    return {"type": "object", "required": required, "properties": properties}


def _without(known: Json, name: str) -> Json:
    """Return the schema of an object without a field."""
    properties = {key: value for key, value in known["properties"].items() if key != name}
    return {"type": "object", "required": [*properties], "properties": properties}


def _output(kind: str, **properties: Json) -> Json:
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}
    body = _object(**head, **properties)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://rbdagent.dev/schemas/v1alpha1/{kind}.json",
        "title": kind,
        **body,
    }


_GAP: Final = _object(fact=_TEXT, reason=_TEXT, hint=_TEXT)
_SOURCE: Final = _object(state=_enum(SourceState), reason=_TEXT, hint=_TEXT, gaps=_list(_GAP))
_SOURCES: Final = _object(node=_SOURCE, ceph=_SOURCE, kubernetes=_SOURCE)
_PROCESS: Final = _object(pid=_NUMBER, command=_TEXT, pod=_maybe(_TEXT))
_IMAGE: Final = _object(
    fsid=_maybe(_TEXT), pool=_TEXT, radosNamespace=_TEXT, name=_TEXT, id=_maybe(_TEXT)
)
_RECOVERY: Final = _maybe(
    _object(actor=_TEXT, condition=_TEXT, withinSeconds=_maybe(_DECIMAL), note=_TEXT)
)
_COMMAND: Final = _object(
    argv=_list(_TEXT), command=_maybe(_TEXT), node=_maybe(_TEXT), changes=_TRUTH, note=_TEXT
)
_FINDING: Final = _object(
    code={"type": "string", "pattern": "^RBD[0-9]{3}$"},
    severity=_enum(Severity),
    subject=_TEXT,
    message=_TEXT,
    evidence=_list(_TEXT),
    remedy=_TEXT,
    commands=_list(_COMMAND),
    recovery=_RECOVERY,
    runbook=_TEXT,
)
_HOLDER: Final = _object(
    kind=_enum(HolderKind),
    probably=_maybe(_enum(HolderKind)),
    node=_maybe(_TEXT),
    confidence=_enum(Confidence),
    verdict=_enum(Verdict),
    reasons=_list(_TEXT),
    device=_maybe(_TEXT),
    readOnly=_maybe(_TRUTH),
    clientID=_maybe(_NUMBER),
    clientAddress=_maybe(_TEXT),
    watcher=_maybe(_object(address=_TEXT, client=_NUMBER, cookie=_NUMBER)),
    transient=_TRUTH,
    locks=_list(_object(id=_TEXT, client=_NUMBER, address=_maybe(_TEXT), exclusive=_TRUTH)),
    mounts=_maybe(
        _list(_object(path=_TEXT, kind=_TEXT, readOnly=_TRUTH, mountNamespaceOf=_PROCESS))
    ),
    openedBy=_maybe(
        _list({**_PROCESS, "properties": {**_PROCESS["properties"], "how": _TEXT, "path": _TEXT}})
    ),
    heldBy=_maybe(_list(_object(kind=_TEXT, name=_TEXT, label=_TEXT))),
    pods=_maybe(_list(_object(namespace=_TEXT, name=_TEXT, phase=_TEXT))),
    attachment=_maybe(_object(name=_TEXT, attached=_TRUTH, deleting=_TRUTH)),
    since=_maybe(_TIME),
    notObserved={"type": "object", "additionalProperties": _TEXT},
)
_LISTED: Final = {
    "type": "object",
    "required": ["image", "persistentVolume", *_HOLDER["required"]],
    "properties": {
        "image": _maybe(_IMAGE),
        "persistentVolume": _maybe(_TEXT),
        **_HOLDER["properties"],
    },
}


def _snapshot_schema() -> Json:
    """Return the schema of the model, which ``snapshot`` writes unchanged."""
    head = _output("Snapshot")
    body, types = schema_of_snapshot()
    return {
        **head,
        "required": [*head["required"], *body["required"]],
        "properties": {**head["properties"], **body["properties"]},
        "$defs": types,
    }


_EXPLANATION: Final = _output(
    "Explanation",
    code=_TEXT,
    name=_TEXT,
    severity=_enum(Severity),
    summary=_TEXT,
    cause=_TEXT,
    evidence=_TEXT,
    risk=_TEXT,
    remedy=_TEXT,
    recovery=_RECOVERY,
    step=_maybe(_enum(LifecycleStep)),
)

_STEP: Final = _object(kind=_enum(StepKind), subject=_TEXT)
_CONDITION: Final = _object(
    number=_NUMBER,
    code=_TEXT,
    requirement=_TEXT,
    met=_TRUTH,
    pending=_TRUTH,
    observed=_list(_TEXT),
    runbook=_TEXT,
)
_PLANNED: Final = {
    "node": _TEXT,
    "device": _maybe(_TEXT),
    "persistentVolume": _maybe(_TEXT),
    "image": _maybe(_IMAGE),
    "clientID": _maybe(_NUMBER),
}
_UNMAP_REFUSAL: Final = _output(
    "UnmapRefusal",
    **_PLANNED,
    codes=_list(_TEXT),
    keeper=_maybe(_object(kind=_TEXT, namespace=_maybe(_TEXT), name=_TEXT, pid=_maybe(_NUMBER))),
    conditions=_list(_CONDITION),
)

_REPORT: Final = {
    "observedAt": _TIME,
    "target": _object(
        given=_TEXT,
        persistentVolume=_maybe(_TEXT),
        claim=_maybe(_object(namespace=_TEXT, name=_TEXT)),
    ),
    "image": _maybe(_IMAGE),
    "verdict": _enum(Verdict),
    "holders": _list(_HOLDER),
    "findings": _list(_FINDING),
    "sources": _SOURCES,
    "next": _list(_COMMAND),
}
_STAGES: Final = _list(
    _object(step=_enum(LifecycleStep), state=_enum(StepState), said=_TEXT, codes=_list(_TEXT))
)

_LIFE: Final = _output(
    "LifecycleReport",
    **_REPORT,
    pod=_maybe(_object(namespace=_TEXT, name=_TEXT, phase=_TEXT)),
    there=_STAGES,
    back=_list(_object(node=_TEXT, steps=_STAGES)),
    firstBroken=_maybe(_FINDING),
)

KINDS: Final[dict[str, Json]] = {
    "HolderReport": _output("HolderReport", **_REPORT),
    "LifecycleReport": _LIFE,
    "ClusterReport": _output(
        "ClusterReport",
        observedAt=_TIME,
        lookedAt=_object(
            claims=_maybe(_NUMBER),
            persistentVolumes=_maybe(_NUMBER),
            pods=_maybe(_NUMBER),
            leftOut=_NUMBER,
        ),
        causes=_list(_with(_FINDING, affected=_list(_TEXT))),
        items=_list(_with(_without(_LIFE, "sources"), since=_maybe(_TEXT))),
        findings=_list(_FINDING),
        sources=_SOURCES,
    ),
    "MappingList": _output(
        "MappingList",
        observedAt=_TIME,
        items=_list(_LISTED),
        findings=_list(_FINDING),
        sources=_SOURCES,
    ),
    "PublishedList": _output(
        "PublishedList",
        items=_list(
            _object(
                node=_TEXT,
                observedAt=_TEXT,
                bootID=_maybe(_TEXT),
                mappings=_maybe(
                    _list(
                        _object(
                            device=_TEXT,
                            image=_maybe(_IMAGE),
                            persistentVolume=_maybe(_TEXT),
                            clientID=_maybe(_NUMBER),
                            clientAddress=_maybe(_TEXT),
                            verdict=_enum(Verdict),
                            reasons=_list(_TEXT),
                            findings=_list(_TEXT),
                            since=_maybe(_TEXT),
                            pods=_list(_TEXT),
                        )
                    )
                ),
            )
        ),
    ),
    "UnmapPlan": _output(
        "UnmapPlan",
        **_PLANNED,
        steps=_list(_STEP),
        conditions=_list(_CONDITION),
        expects=_list(_TEXT),
    ),
    "UnmapRefusal": _UNMAP_REFUSAL,
    "UnmapResult": _output(
        "UnmapResult",
        **_PLANNED,
        outcome=_enum(UnmapOutcome),
        message=_TEXT,
        done=_list(_STEP),
        refusal=_maybe(_UNMAP_REFUSAL),
        expects=_list(_TEXT),
    ),
    "CheckReport": _output(
        "CheckReport",
        checks=_list(
            _object(source=_TEXT, sentence=_TEXT, state=_enum(CheckState), detail=_TEXT, hint=_TEXT)
        ),
    ),
    "Explanation": _EXPLANATION,
    "ExplanationList": _output("ExplanationList", items=_list(_EXPLANATION)),
    "Snapshot": _snapshot_schema(),
    "Version": _output("Version", version=_TEXT, python=_TEXT),
}
