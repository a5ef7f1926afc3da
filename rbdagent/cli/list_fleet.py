"""rbdagent list -A: the mappings that the agents of all nodes published."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.cli.list import claims_in_words
from rbdagent.cli.options import label_requirements
from rbdagent.cli.output import (
    FINDINGS,
    data_text,
    is_serious,
    layout_of,
    now_utc,
    print_text,
    repeat,
)
from rbdagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.config import Settings
    from rbdagent.model import PublishedNode
    from rbdagent.report.fleet import Fleet, Row, Selection


_MOST: Final = 200
"""Mappings in a table, except with --all."""
_MACHINE: Final = frozenset({"json", "yaml", "name"})
"""Formats that list all selected mappings: a script must not miss one."""
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
    from rbdagent.report.fleet import Fleet

    access = settings.kube
    wanted = _selection(request, access)
    if watch or not wanted.healthy or request.output in {"json", "yaml"}:
        return repeat(lambda: _once(request, wanted, access), watch=watch)
    fleet = Fleet()
    for part in _parts(request, wanted, access, fleet):
        print_text(part)
    return _exit_code(fleet, request)


def _selection(request: Request, access: KubeAccess) -> Selection:
    """Return the selection of mappings; claims are requested to select by them.

    Raises:
        UsageError: the label selector cannot be parsed.
        SourceError: the claims cannot be listed.
    """
    from rbdagent.collect.kube.list_target import volumes_of_claims
    from rbdagent.model import Verdict
    from rbdagent.report.fleet import Selection

    label_requirements(request.selector)
    by_claim = request.namespace is not None or bool(request.selector)
    return Selection(
        nodes=frozenset(request.nodes),
        verdicts=frozenset(Verdict(verdict) for verdict in request.verdicts),
        volumes=frozenset(volumes_of_claims(access, request.namespace, request.selector))
        if by_claim
        else None,
        healthy=request.healthy or request.output in _MACHINE,
    )


def _reports(wanted: Selection, access: KubeAccess) -> Iterator[PublishedNode]:
    """Yield the reports of the selected nodes."""
    from rbdagent.collect.kube.list_reports import published_nodes

    for report in published_nodes(access):
        if not wanted.nodes or report.name in wanted.nodes:
            yield report


def _rows(wanted: Selection, access: KubeAccess, fleet: Fleet, now: str) -> Iterator[Row]:
    from rbdagent.report.fleet import selected

    for report in _reports(wanted, access):
        yield from selected(report, wanted, fleet, now=now)


def _once(request: Request, wanted: Selection, access: KubeAccess) -> tuple[str, int]:
    from rbdagent.report.fleet import Fleet

    fleet = Fleet()
    if request.output in {"json", "yaml"}:
        text = _data(request, wanted, access, fleet)
    elif wanted.healthy:
        text = "".join(_parts(request, wanted, access, fleet))
    else:
        text = _summary_and_table(request, wanted, access, fleet)
    return text, _exit_code(fleet, request)


def _data(request: Request, wanted: Selection, access: KubeAccess, fleet: Fleet) -> str:
    from msgspec.structs import replace

    from rbdagent.model import NotObserved
    from rbdagent.report.fleet import selected
    from rbdagent.report.json.mappings import published_list

    now, found = now_utc(), []
    for report in _reports(wanted, access):
        mappings = tuple(row.mapping for row in selected(report, wanted, fleet, now=now))
        is_observed = not isinstance(report.mappings, NotObserved)
        found.append(replace(report, mappings=mappings) if is_observed else report)
    return data_text(published_list(found), request.output)


def _summary_and_table(
    request: Request, wanted: Selection, access: KubeAccess, fleet: Fleet
) -> str:
    """Return the numbers, and a table of the first mappings: the number of rows is limited."""
    from rbdagent.report.text.published import fleet_rest, fleet_summary, fleet_table

    now, layout = now_utc(), layout_of(request.output)
    rows = _rows(wanted, access, fleet, now)
    first = list(islice(rows, _MOST))
    for _ in rows:  # the others are only counted
        pass
    parts = [
        fleet_summary(fleet, layout, of=_in_words(request)),
        fleet_table(first, layout, now=now) if first else "",
        fleet_rest(fleet, shown=len(first), healthy=bool(wanted.verdicts)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(request: Request, wanted: Selection, access: KubeAccess, fleet: Fleet) -> Iterator[str]:
    """Yield the parts of a list of all mappings; the numbers are at the end."""
    from rbdagent.report.text.published import fleet_summary, fleet_table, published_names

    now, layout = now_utc(), layout_of(request.output)
    rows = _rows(wanted, access, fleet, now)
    for part in _chunks(rows):
        if request.output == "name":
            yield published_names(part)
        else:
            yield f"{fleet_table(part, layout, now=now)}\n"
    if request.output != "name":
        yield f"\n{fleet_summary(fleet, layout, of=_in_words(request))}\n"


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rows = iter(rows)
    for first in rows:
        yield list(chain([first], islice(rows, _AT_ONCE - 1)))


def _in_words(request: Request) -> str:
    words = claims_in_words(request.namespace, request.selector)
    words += [f"that are {' or '.join(request.verdicts)}"] if request.verdicts else []
    words += [f"of {' and '.join(request.nodes)}"] if request.nodes else []
    return " ".join(words)


def _exit_code(fleet: Fleet, request: Request) -> int:
    from rbdagent.report.fleet import severity

    if is_serious(map(severity, fleet.findings), request.fail_on):
        return FINDINGS
    return int(bool(fleet.unknown))
