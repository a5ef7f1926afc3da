"""The JSON Schemas (2020-12) of every machine output, from the types that write the output.

They are additive: a reader must accept unknown fields, so no schema forbids them. Every required
field exists and has the given type.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import Struct

from rbdagent.addresses import SCHEMAS
from rbdagent.errors import NotFoundError
from rbdagent.model import API_VERSION, Snapshot
from rbdagent.report.json.binding import StateMachine
from rbdagent.report.json.check import CheckReport
from rbdagent.report.json.drain import DrainReport
from rbdagent.report.json.explain import Explanation, ExplanationList
from rbdagent.report.json.holders import HolderReport
from rbdagent.report.json.images import ImageList
from rbdagent.report.json.lifecycle import ClusterReport, LifecycleReport
from rbdagent.report.json.lint import LintReport
from rbdagent.report.json.mappings import MappingList, PublishedList
from rbdagent.report.json.unmap import UnmapPlan, UnmapRefusal, UnmapResult
from rbdagent.report.json.version import Version

Json = dict[str, Any]

KINDS: Final[dict[str, type[Struct]]] = {
    output.__name__: output
    for output in (
        HolderReport,
        LifecycleReport,
        ClusterReport,
        MappingList,
        PublishedList,
        DrainReport,
        ImageList,
        UnmapPlan,
        UnmapRefusal,
        UnmapResult,
        CheckReport,
        LintReport,
        Explanation,
        ExplanationList,
        StateMachine,
        Snapshot,
        Version,
    )
}
"""The type of each kind of output."""


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
    return _snapshot_schema() if KINDS[name] is Snapshot else _output_schema(KINDS[name])


def _output_schema(output: type[Struct]) -> Json:
    """Return the schema of an output; the types that it contains are in ``$defs``."""
    _, components = msgspec.json.schema_components([output], ref_template="#/$defs/{name}")
    definitions = {name: _complete(component) for name, component in components.items()}
    body = definitions.pop(output.__name__)
    return {**_head(output.__name__), **body, "$defs": definitions}


def _complete(component: Json) -> Json:
    """Return the schema of a type whose fields are all written, also those with a default.

    msgspec requires only fields without a default. A default is the only value of its field.
    """
    if "properties" not in component:
        return component
    properties = {
        key: {"const": field["default"]} if "default" in field else field
        for key, field in component["properties"].items()
    }
    return {**component, "required": list(properties), "properties": properties}


def _head(kind: str) -> Json:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMAS}{kind}.json",
        "title": kind,
    }


def _schema_of_snapshot() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of a snapshot without its head, and the types that it refers to."""
    _, types = msgspec.json.schema_components([Snapshot], ref_template="#/$defs/{name}")
    for schema in types.values():
        schema.pop("additionalProperties", None)  # schemas are additive
    return types.pop("Snapshot"), types


def _snapshot_schema() -> Json:
    """Return the schema of the model, which ``snapshot`` writes unchanged."""
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": "Snapshot"}}
    body, types = _schema_of_snapshot()
    return {
        **_head("Snapshot"),
        "type": "object",
        "required": [*head, *body["required"]],
        "properties": {**head, **body["properties"]},
        "$defs": types,
    }
