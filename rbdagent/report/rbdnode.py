"""What an agent publishes about its node: the custom resource RBDNode.

It is a summary: each mapping has an RBDMapping (:mod:`rbdagent.report.rbdmapping`), to which the
labels lead (:mod:`rbdagent.parse.labels`). The object is small because each change writes it again,
and a list can contain five thousand.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from rbdagent.correlate.image_identity import are_mappings_observed
from rbdagent.model import NotObserved, Verdict
from rbdagent.parse import labels
from rbdagent.parse.shown import in_all_texts, shown
from rbdagent.report.public import public_text
from rbdagent.report.rbdmapping import without_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Diagnosis, Mapping, Snapshot, UnmapRecord

Json = dict[str, Any]

_MOST_ACTS: Final = 10
_LONGEST_TEXT: Final = 4096
HEALTHY: Final = frozenset({Verdict.IN_USE, Verdict.STAGED, Verdict.SHARED, Verdict.FOREIGN})
"""The verdicts on a mapping that are no problem."""


def rbdnode_object(
    status: Json, mappings: Sequence[Json] | None, used: frozenset[str] = frozenset()
) -> Json:
    """Return the labels and the status of an RBDNode.

    Args:
        status: of the node.
        mappings: the status of each of its RBDMappings; None if its devices were not observed.
        used: the keys of the volumes that the node may use without a mapping, see
            :func:`rbdagent.verdicts.volume_traces.keys_of_traces`.
    """
    given = {} if mappings is None else _labels(mappings, used)
    counted = None if mappings is None else len(labels.image_keys_in(given))
    return {"metadata": {"labels": given}, "status": status | {"imageLabels": counted}}


def _labels(mappings: Sequence[Json], used: frozenset[str]) -> dict[str, str]:
    devices: defaultdict[str, set[str]] = defaultdict(set)
    devices.update((labels.image_label(key), set()) for key in used)
    clients = {}
    for mapping in mappings:
        for key in _keys(mapping):
            devices[labels.image_label(key)].add(mapping["device"])
        if (client := mapping.get("clientID")) is not None:
            # Any mapping of a client shows its node.
            clients[labels.client_label(client)] = labels.devices_value([mapping["device"]])
    named = {label: labels.devices_value(mapped) for label, mapped in devices.items()}
    return dict(sorted((named | clients).items()))


def _keys(mapping: Json) -> frozenset[str]:
    """Return the keys of a mapping; a device whose image is unknown may map any image."""
    image = mapping.get("image") or {}
    return labels.mapping_keys(image.get("name"), image.get("id"), mapping.get("persistentVolume"))


def rbdnode_status(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    acts: Sequence[UnmapRecord] | NotObserved,
) -> Json:
    """Return the status of one node's RBDNode.

    ``mapped`` and ``clients`` are null if the node's devices were not observed, and ``clients``
    also if one of them is unknown. ``acts`` is null if the record was not observed. An empty list
    was observed.
    """
    node = snapshot.node
    held = [
        (holder_verdict, mapping, diagnosis)
        for diagnosis in diagnoses
        for holder_verdict, mapping in diagnosis.mapped
    ]
    seen = are_mappings_observed(node)
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
        "clients": _clients([mapping for _, mapping, _ in held]) if seen else None,
        "sources": {
            name: {"state": str(source.state), "reason": _short(public_text(source.reason))}
            for name, source in snapshot.sources.named
        },
        "acts": None
        if isinstance(acts, NotObserved)
        else [in_all_texts(_act(act), _short_shown) for act in acts[-_MOST_ACTS:]],
    }


def _short_shown(text: str) -> str:
    return _short(shown(text))


def _short(text: str) -> str:
    """Return a text with at most as many characters as the schema of RBDNode allows."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _clients(mappings: Sequence[Mapping]) -> list[str] | None:
    """Return the addresses of the clients of all mappings; None if one of them is unknown."""
    addresses = {mapping.client_address for mapping in mappings}
    return None if None in addresses else sorted(map(str, addresses))


def _act(act: UnmapRecord) -> Json:
    """Return an act; its record contains no command line either (``rbdagent.unmap.executor``)."""
    return without_none(
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
