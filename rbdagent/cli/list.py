"""rbdagent list."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from rbdagent.cli.data_source import snapshot_of
from rbdagent.cli.options import observing, reading
from rbdagent.cli.output import data_text, exit_code, layout_of, now_utc, repeat
from rbdagent.errors import ParseError, RbdagentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.config import Settings
    from rbdagent.model import Diagnosis, PersistentVolumeClaim, Snapshot


@click.command("list")
@click.option(
    "--all-nodes",
    "-A",
    is_flag=True,
    help="List the mappings of all nodes, as their agents published them.",
)
@click.option("--namespace", "-n", help="Only volumes whose claim is in this namespace.")
@click.option("--selector", "-l", help="Only volumes whose claim has these labels (-l app=db).")
@reading()
@observing
def command(
    *,
    all_nodes: bool,
    namespace: str | None,
    selector: str | None,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """List the mappings of this node, with verdicts."""
    if all_nodes:
        if namespace or selector or source:
            raise UsageError(
                "list -A lists all that agents published: do not use -n, -l or --from with it"
            )
        return repeat(lambda: (_published(output, settings()), 0), watch=watch)
    from rbdagent.model import Target, TargetKind

    wanted = _wanted(namespace, selector)

    def once() -> tuple[str, int]:
        from rbdagent.correlate import correlate_node
        from rbdagent.correlate.image_identity import are_mappings_observed
        from rbdagent.rules import diagnose

        snapshot = snapshot_of(Target(argument="", kind=TargetKind.NONE), source, settings)
        diagnoses = [diagnose(use, snapshot) for use in correlate_node(snapshot)]
        if wanted:
            diagnoses = _only(wanted, diagnoses, snapshot)
        code = exit_code(diagnoses, fail_on)
        if code == 0 and not are_mappings_observed(snapshot.node):
            code = 1
        return _render_mappings(diagnoses, snapshot, output, wanted), code

    return repeat(once, watch=watch and source is None)


def _published(output: str, settings: Settings) -> str:
    """Return the output for the RBDNodes that the agents of all nodes published."""
    from rbdagent.collect.kube.list_target import published_nodes

    if settings.kube is None:
        raise UsageError(
            "list -A reads what agents published in Kubernetes: do not use --no-kube with it"
        )
    nodes = published_nodes(settings.kube)
    if output in {"json", "yaml"}:
        from rbdagent.report.json.mappings import published_list

        return data_text(published_list(nodes), output)
    from rbdagent.report.text.published import published_names, published_table

    if output == "name":
        return published_names(nodes)
    return published_table(nodes, layout_of(output), now=now_utc())


class _Wanted(NamedTuple):
    """Holds a condition on claims; it is false if every volume is listed."""

    in_words: str
    matches: Callable[[PersistentVolumeClaim], bool]

    def __bool__(self) -> bool:
        return bool(self.in_words)


def _wanted(namespace: str | None, selector: str | None) -> _Wanted:
    from rbdagent.parse.selector import parse_selector, selects

    try:
        requirements = parse_selector(selector or "")
    except ParseError as error:
        raise UsageError(str(error)) from error
    words = [f"of namespace {namespace}"] if namespace is not None else []
    words += [f"with -l {selector}"] if requirements else []
    return _Wanted(
        in_words=" ".join(words),
        matches=lambda claim: (
            namespace in {None, claim.ref.namespace} and selects(requirements, dict(claim.labels))
        ),
    )


def _only(wanted: _Wanted, diagnoses: list[Diagnosis], snapshot: Snapshot) -> list[Diagnosis]:
    """Return the diagnoses whose claim matches.

    Raises:
        RbdagentError: PersistentVolumes or claims were not observed.
    """
    from rbdagent.model import NotObserved

    kube = snapshot.kubernetes
    unseen = "Kubernetes was not observed" if kube is None else ""
    for part in () if kube is None else (kube.persistent_volumes, kube.claims):
        unseen = part.reason if isinstance(part, NotObserved) else unseen
    if unseen:
        raise RbdagentError(
            f"cannot select the mappings {wanted.in_words}: {unseen}",
            hint="rbdagent list without -n and -l shows all; rbdagent check shows what is missing",
        )
    return [
        diagnosis
        for diagnosis in diagnoses
        if diagnosis.use.claim is not None and wanted.matches(diagnosis.use.claim)
    ]


def _render_mappings(
    diagnoses: Sequence[Diagnosis], found: Snapshot, output: str, wanted: _Wanted
) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.json.mappings import mapping_list

        return data_text(mapping_list(diagnoses, found), output)
    from rbdagent.report.text.holders import names
    from rbdagent.report.text.mappings import mapping_table

    if output == "name":
        return names([holder for diagnosis in diagnoses for holder in diagnosis.local])
    return mapping_table(diagnoses, found, layout_of(output), of=wanted.in_words)
