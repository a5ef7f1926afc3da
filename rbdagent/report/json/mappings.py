"""The outputs of ``list``: the mappings of this node, and those that agents published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import asdict

from rbdagent import model
from rbdagent.correlate.device_io import io_rates
from rbdagent.model import NotObserved
from rbdagent.parse.foreign import reported
from rbdagent.report.json.findings import Finding, findings
from rbdagent.report.json.holders import Holder, holder
from rbdagent.report.json.output import Object, Output, Time
from rbdagent.report.json.sources import Sources, sources
from rbdagent.report.json.volume import Image, image, name_of_pv
from rbdagent.report.pod_names import pod_names_by_uid

if TYPE_CHECKING:
    from collections.abc import Mapping as Dict
    from collections.abc import Sequence

    from rbdagent.correlate import device_io

_NO_DEVICE: Final = NotObserved(reason="no device of the holder was observed")


class IoRates(Object, frozen=True, kw_only=True):
    """Completed I/O per second since the previous observation."""

    reads: float
    read_bytes: float
    writes: float
    written_bytes: float


class Mapping(Holder, frozen=True, kw_only=True):
    """A mapping of this node, with its verdict and its volume.

    ``ioRates`` needs an earlier observation, which ``--watch`` has.
    """

    image: Image | None
    persistent_volume: str | None
    io_rates: IoRates | None


class MappingList(Output, frozen=True, kw_only=True):
    """The output of ``list``: the mappings of this node."""

    kind: Literal["MappingList"] = "MappingList"
    observed_at: Time
    items: tuple[Mapping, ...]
    findings: tuple[Finding, ...]
    sources: Sources


class PublishedMapping(Object, frozen=True, kw_only=True):
    """One mapping, as the agent of its node published it."""

    device: str
    image: Image | None
    persistent_volume: str | None
    client_id: int | None
    client_address: str | None
    verdict: model.Verdict
    reasons: tuple[str, ...]
    findings: tuple[str, ...]
    since: str | None
    pods: tuple[str, ...]


class PublishedNode(Object, frozen=True, kw_only=True):
    """What an agent published; its mappings are null if the agent did not observe them.

    ``incomplete`` is the reason why mappings may be missing; null if none is.
    """

    node: str
    observed_at: str
    boot_id: str | None
    mappings: tuple[PublishedMapping, ...] | None
    incomplete: str | None


class PublishedList(Output, frozen=True, kw_only=True):
    """The output of ``list -A``: the mappings of all nodes, as their agents published them."""

    kind: Literal["PublishedList"] = "PublishedList"
    items: tuple[PublishedNode, ...]
    complete: bool
    """Whether the reports of all selected nodes were read: the list is written while it is read."""


def mapping_list(
    diagnoses: Sequence[model.Diagnosis],
    snapshot: model.Snapshot,
    earlier: model.NodeView | None = None,
) -> MappingList:
    """Return the output of ``list -o json``; ``earlier`` is the previous observation, if any."""
    names = pod_names_by_uid(snapshot)
    rates = io_rates(snapshot.node, earlier)
    return MappingList(
        observed_at=snapshot.observed_at,
        items=tuple(
            _mapping(diagnosis, holder_verdict, names, rates)
            for diagnosis in diagnoses
            for holder_verdict in diagnosis.local
        ),
        findings=findings(finding for diagnosis in diagnoses for finding in diagnosis.findings),
        sources=sources(snapshot),
    )


def _mapping(
    diagnosis: model.Diagnosis,
    holder_verdict: model.HolderVerdict,
    names: Dict[str, str],
    rates: Dict[str, device_io.IoRates | NotObserved],
) -> Mapping:
    known = asdict(holder(holder_verdict, names))
    found = rates.get(known["device"], _NO_DEVICE)
    if isinstance(found, NotObserved):
        known["not_observed"] = {**known["not_observed"], "ioRates": found.reason}
    return Mapping(
        **known,
        image=image(diagnosis.volume.image),
        persistent_volume=name_of_pv(diagnosis.volume),
        io_rates=None if isinstance(found, NotObserved) else IoRates(**asdict(found)),
    )


def published_node(node: model.PublishedNode) -> PublishedNode:
    """Return an item of ``list -A -o json``."""
    return PublishedNode(
        node=node.name,
        observed_at=node.observed_at,
        boot_id=node.boot_id,
        mappings=None
        if isinstance(node.mappings, NotObserved)
        else tuple(_published(mapping) for mapping in node.mappings),
        incomplete=node.incomplete or None,
    )


def _published(mapping: model.PublishedMapping) -> PublishedMapping:
    return PublishedMapping(
        device=mapping.device,
        image=image(mapping.image),
        persistent_volume=mapping.persistent_volume,
        client_id=mapping.client_id,
        client_address=str(mapping.client_address) if mapping.client_address else None,
        verdict=mapping.verdict,
        reasons=tuple(map(reported, mapping.reasons)),
        findings=mapping.findings,
        since=mapping.since,
        pods=mapping.pods,
    )
