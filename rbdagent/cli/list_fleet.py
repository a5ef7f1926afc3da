"""rbdagent list -A: the mappings that the agents of all nodes published."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.cli.options import claims_in_words, label_requirements
from rbdagent.cli.output import (
    FINDINGS,
    complain,
    counting,
    data_parts,
    is_serious,
    layout_of,
    now_utc,
    repeat_parts,
)
from rbdagent.errors import NotFoundError, RbdagentError, SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from msgspec import Struct

    from rbdagent.cli.output import Parts
    from rbdagent.cli.progress import Counter
    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.config import Settings
    from rbdagent.model import PublishedNode
    from rbdagent.report.fleet import Fleet, Row, Selection


_MOST: Final = 200
"""Mappings in a table, except with --all."""
_MACHINE: Final = frozenset({"json", "yaml", "name"})
"""Formats that list all selected mappings: a script must not miss one."""
_MOST_NEAR: Final = 3
_AT_ONCE: Final = 1000
"""Mappings in a part of a table of all: all mappings of a large cluster are never in memory."""


class Request(NamedTuple):
    """The flags of the command."""

    namespace: str | None
    selector: str | None
    output: str
    fail_on: str
    nodes: tuple[str, ...]
    verdicts: tuple[str, ...]
    healthy: bool


def list_fleet(request: Request, settings: Settings, *, watch: bool) -> int:
    """Print the selected mappings; return the exit code.

    It is 3 if a mapping in the list has a serious finding, else 1 if the mappings of a node are
    unknown.
    """
    if settings.kube is None:
        raise UsageError(
            "list -A reads what agents published in Kubernetes: do not use --no-kube with it"
        )
    label_requirements(request.selector)
    access = settings.kube
    unknown: set[str] = set()
    return repeat_parts(lambda: _answer(request, access, unknown), watch=watch)


def _answer(request: Request, access: KubeAccess, unknown: set[str]) -> Parts:
    """Yield the parts of one output; every output selects by the claims that exist at its time.

    Args:
        request: the flags.
        access: to the API server.
        unknown: the nodes that the last output reported as unknown; this output replaces them.
    """
    from rbdagent.report.fleet import Fleet

    fleet = Fleet()
    with counting() as counter:
        wanted = _selection(request, access)
        texts = _texts(request, wanted, _reports(wanted, access, fleet, counter), fleet)
        for text in _stating_incomplete(texts):
            counter.output_begins()
            yield text
    if request.output in _MACHINE:
        _complain_of_unknown(fleet, request, unknown)
    return _exit_code(fleet, request)


def _stating_incomplete(texts: Iterator[str]) -> Iterator[str]:
    """Yield the parts of an output; an error after one of them states that others are missing.

    Raises:
        SourceError: the reports cannot be read to their end, and a part was printed.
        RbdagentError: nothing was printed.
    """
    is_begun = False
    try:
        for text in texts:
            yield text
            is_begun = True
    except RbdagentError as error:
        if not is_begun:
            raise
        raise SourceError(f"the list is incomplete: {error}", hint=error.advice) from error


def _selection(request: Request, access: KubeAccess) -> Selection:
    """Return the selection of mappings; claims are requested to select by them.

    Raises:
        SourceError: the claims cannot be listed.
    """
    from rbdagent.collect.kube.list_target import volumes_of_claims
    from rbdagent.model import Verdict
    from rbdagent.report.fleet import Selection

    by_claim = request.namespace is not None or bool(request.selector)
    return Selection(
        nodes=frozenset(request.nodes),
        verdicts=frozenset(Verdict(verdict) for verdict in request.verdicts),
        volumes=volumes_of_claims(access, request.namespace, request.selector)
        if by_claim
        else None,
        healthy=request.healthy or request.output in _MACHINE,
    )


def _reports(
    wanted: Selection, access: KubeAccess, fleet: Fleet, counter: Counter
) -> Iterator[PublishedNode]:
    """Yield the reports of the selected nodes; a selected node without a report is unknown.

    Raises:
        NotFoundError: no selected node has a report.
        SourceError: the reports cannot be read to their end.
    """
    from rbdagent.collect.kube.list_reports import published_nodes

    missing, names = set(wanted.nodes), []
    for report in published_nodes(access):
        names.append(report.name)
        counter.nodes += 1
        if not wanted.nodes or report.name in wanted.nodes:
            missing.discard(report.name)
            yield report
        if wanted.nodes and not missing:
            return
    if missing == wanted.nodes and (missing or not names):
        raise _nothing_published(sorted(missing), names)
    fleet.unknown += [(name, "no agent has published its mappings") for name in sorted(missing)]


def _nothing_published(nodes: Sequence[str], names: Sequence[str]) -> NotFoundError:
    """Return the error for a list without any report.

    Args:
        nodes: the selected nodes; none if all are selected.
        names: the nodes of the reports that were read.
    """
    import difflib

    from rbdagent.commands import command, kubectl

    on_a_node = ("; on a node, ", command("rbdagent list", node="NODE"), " observes its mappings")
    if not names:
        return NotFoundError(
            "no agent has published any mappings: the Kubernetes API has no RBDNode",
            hint=("each node needs an agent (docs/install.md)", *on_a_node),
        )
    what = f"node {nodes[0]}" if len(nodes) == 1 else f"the nodes {' and '.join(nodes)}"
    near = [found for name in nodes for found in difflib.get_close_matches(name, names, n=2)]
    return NotFoundError(
        f"no agent has published the mappings of {what}; "
        f"RBDNodes of other nodes that were read: {len(names)}",
        hint=(kubectl("get rbdnodes"), " lists the nodes with an agent", *on_a_node),
        near=tuple(dict.fromkeys(near))[:_MOST_NEAR],
    )


def _texts(
    request: Request, wanted: Selection, reports: Iterator[PublishedNode], fleet: Fleet
) -> Iterator[str]:
    now = now_utc()
    if request.output in {"json", "yaml"}:
        return _data(request, wanted, reports, fleet, now)
    rows = _rows(wanted, reports, fleet, now)
    if wanted.healthy:
        return _parts_of_list(request, rows, fleet, now)
    return _summary_and_table(request, rows, fleet, now)


def _rows(
    wanted: Selection, reports: Iterable[PublishedNode], fleet: Fleet, now: str
) -> Iterator[Row]:
    from rbdagent.report.fleet import selected

    for report in reports:
        yield from selected(report, wanted, fleet, now=now)


def _data(
    request: Request, wanted: Selection, reports: Iterable[PublishedNode], fleet: Fleet, now: str
) -> Iterator[str]:
    """Return the parts of the document; one page of reports is in memory."""
    from msgspec.structs import replace

    from rbdagent.model import NotObserved
    from rbdagent.report.fleet import selected
    from rbdagent.report.json.mappings import PublishedList, published_node

    def items() -> Iterator[Struct]:
        for report in reports:
            mappings = tuple(row.mapping for row in selected(report, wanted, fleet, now=now))
            is_observed = not isinstance(report.mappings, NotObserved)
            yield published_node(replace(report, mappings=mappings) if is_observed else report)

    return data_parts(PublishedList(items=(), complete=True), items(), request.output)


def _summary_and_table(
    request: Request, rows: Iterator[Row], fleet: Fleet, now: str
) -> Iterator[str]:
    """Yield the numbers, and a table of the first mappings: the number of rows is limited."""
    from rbdagent.report.text.published import fleet_rest, fleet_summary, fleet_table

    layout = layout_of(request.output)
    first = list(islice(rows, _MOST))
    for _ in rows:  # the others are only counted
        pass
    parts = [
        fleet_summary(fleet, layout, of=_in_words(request)),
        fleet_table(first, layout, now=now) if first else "",
        fleet_rest(fleet, shown=len(first), healthy=bool(request.verdicts)),
    ]
    yield "\n\n".join(part for part in parts if part) + "\n"


def _parts_of_list(request: Request, rows: Iterable[Row], fleet: Fleet, now: str) -> Iterator[str]:
    """Yield the parts of a list of all mappings; the numbers are at the end."""
    from rbdagent.report.text.published import fleet_summary, fleet_table, published_names

    layout = layout_of(request.output)
    for part in _chunks(rows):
        if request.output == "name":
            yield published_names(part)
        else:
            yield f"{fleet_table(part, layout, now=now)}\n"
    if request.output != "name":
        yield f"\n{fleet_summary(fleet, layout, of=_in_words(request))}\n"


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in lists; if they cannot be read to their end, those that were read too."""
    chunk: list[Row] = []
    try:
        for row in rows:
            chunk.append(row)
            if len(chunk) == _AT_ONCE:
                yield chunk
                chunk = []
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _in_words(request: Request) -> str:
    words = claims_in_words(request.namespace, request.selector)
    words += [f"with verdict {' or '.join(request.verdicts)}"] if request.verdicts else []
    words += [f"of {' and '.join(request.nodes)}"] if request.nodes else []
    return " ".join(words)


def _complain_of_unknown(fleet: Fleet, request: Request, known: set[str]) -> None:
    """Print to stderr which nodes are unknown, if one of them is not known to be so.

    A watch would repeat it with every output.
    """
    from rbdagent.report.text.published import unknown_nodes

    unknown = {name for name, _ in fleet.unknown}
    if unknown - known:
        head, *nodes = unknown_nodes(fleet, layout_of(request.output)).splitlines()
        complain(f"rbdagent: {head}")
        for line in nodes:
            complain(line)
    known.clear()
    known |= unknown


def _exit_code(fleet: Fleet, request: Request) -> int:
    from rbdagent.report.fleet import severity

    if is_serious(map(severity, fleet.findings), request.fail_on):
        return FINDINGS
    return int(bool(fleet.unknown))
