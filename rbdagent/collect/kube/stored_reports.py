"""The reports of all agents in memory, compressed, until it is known which of them are needed.

Those of 250,000 mappings are 400 MiB as objects, and 20 MiB compressed. The node of a report and
the state of the volume decide which are needed, and so does the answer of Ceph.
"""

from __future__ import annotations

import zlib
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.kube.list_reports import (
    ReadMapping,
    node_report,
    read_mapping,
    summaries_in,
    unless_missing,
)
from rbdagent.collect.kube.requests import RBD_MAPPINGS, RBD_NODES, objects
from rbdagent.model import NotObserved, PublishedNode, derived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rbdagent.collect.kube.client import Api
    from rbdagent.model import PublishedSummary

_FASTEST: Final = 1
"""Compression level; higher levels save a twentieth."""
_RBD_NODES_A_PAGE: Final = 100
"""An RBDNode with 50 mappings has 12 KiB, and ten times as much when it is decoded."""
_DECODER: Final = msgspec.msgpack.Decoder(list[ReadMapping])


STORED: Final = NotObserved(reason="kept apart until it is known which of them are needed")
"""In a view whose reports are stored; nothing reads it as "none" if they are not added later."""


class StoredReports:
    """Reports that can be read several times; the mappings of one are decompressed at a time."""

    def __init__(self) -> None:
        self._heads: tuple[PublishedNode, ...] = ()
        """The reports without mappings."""
        self._mappings: dict[str, list[bytes]] = {}
        """The mappings by node."""

    def begin(self, api: Api) -> Callable[[], NotObserved]:
        """Request everything that agents published; return a function that waits and stores it.

        The function returns `STORED`, or why the reports were not observed. Without the resources
        there is no agent, and no report.
        """
        mappings, nodes = api.list(RBD_MAPPINGS), api.list(RBD_NODES, limit=_RBD_NODES_A_PAGE)

        def wait() -> NotObserved:
            try:
                found = unless_missing(objects(mappings, read_mapping, what="RBDMapping"))
                for node, theirs in groupby(found, key=lambda one: one.node):
                    self._mappings.setdefault(node, []).append(_packed(list(theirs)))
                summaries = unless_missing(summaries_in(api, nodes))
                self._heads = _heads(self._mappings, summaries)
            except Exception as error:  # noqa: BLE001 - the snapshot keeps what it has already
                return not_observed(error, RBD_MAPPINGS)
            return STORED

        return wait

    def __iter__(self) -> Iterator[PublishedNode]:
        """Yield the complete reports."""
        for head in self._heads:
            if isinstance(head.mappings, NotObserved):
                yield head
            else:
                found = _unpacked(self._mappings, head.name)
                yield replace(head, mappings=tuple(one.mapping for one in found))


def _heads(
    packed: dict[str, list[bytes]], summaries: Iterable[PublishedSummary]
) -> tuple[PublishedNode, ...]:
    """Return the reports of nodes that have an RBDNode or an RBDMapping, without their mappings.

    The keys of all RBDNodes are 50 MB: each is compared with its mappings when it is read.
    """
    heads = {summary.name: _head(summary.name, summary, packed) for summary in summaries}
    without = [node for node in packed if node not in heads]
    heads |= {node: _head(node, None, packed) for node in without}
    return tuple(heads.values())


def _head(
    node: str, summary: PublishedSummary | None, packed: dict[str, list[bytes]]
) -> PublishedNode:
    report = node_report(node, summary, _unpacked(packed, node), None)
    return replace(report, mappings=derived(report.mappings, lambda _: ()))


def _packed(mappings: list[ReadMapping]) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(mappings), _FASTEST)


def _unpacked(packed: dict[str, list[bytes]], node: str) -> list[ReadMapping]:
    parts = packed.get(node, ())
    return [one for part in parts for one in _DECODER.decode(zlib.decompress(part))]
