"""rbdagent list."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from rbdagent.cli.data_source import settled_answer, snapshot_of
from rbdagent.cli.options import claims_in_words, label_requirements, observing, reading
from rbdagent.cli.output import data_text, exit_code, layout_of, repeat
from rbdagent.commands import command as command_of
from rbdagent.errors import RbdagentError, UsageError
from rbdagent.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.config import Settings
    from rbdagent.model import Diagnosis, NodeView, PersistentVolumeClaim, Snapshot
    from rbdagent.report.text.io import Rates


class _FleetFlags(NamedTuple):
    """The flags of ``list -A``."""

    all_nodes: bool
    nodes: tuple[str, ...]
    verdicts: tuple[str, ...]
    healthy: bool


_FLEET: Final = (
    click.option("--all-nodes", "-A", is_flag=True,
                 help="List the mappings of all nodes, as their agents published them."),
    click.option("--on-node", "nodes", multiple=True, metavar="NODE",
                 help="With -A: only the mappings of this node; may be repeated."),
    click.option("--verdict", "verdicts", multiple=True, metavar="VERDICT",
                 type=click.Choice([str(verdict) for verdict in Verdict], case_sensitive=False),
                 help="With -A: only mappings with this verdict; may be repeated."),
    click.option("--all", "healthy", is_flag=True,
                 help="With -A: list healthy mappings too, as -o json, yaml and name do."),
)  # fmt: skip


def _of_fleet(command: Callable[..., int]) -> Callable[..., int]:
    """Decorate the command: add the flags of ``list -A``, and pass them as one value."""

    @functools.wraps(command)
    def run(**given: object) -> int:
        flags = {name: given.pop(name) for name in _FleetFlags._fields}
        return command(fleet=_FleetFlags(**flags), **given)  # type: ignore[arg-type]

    return functools.reduce(lambda decorated, add: add(decorated), reversed(_FLEET), run)


@click.command("list")
@click.option("--namespace", "-n", help="Only volumes whose claim is in this namespace.")
@click.option("--selector", "-l", help="Only volumes whose claim has these labels (-l app=db).")
@_of_fleet
@reading()
@observing
def command(
    *,
    fleet: _FleetFlags,
    namespace: str | None,
    selector: str | None,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """List the mappings of this node, with verdicts."""
    if fleet.all_nodes:
        if source:
            raise UsageError("list -A lists what agents published now: do not use --from with it")
        from rbdagent.cli.list_fleet import Request, list_fleet

        request = Request(
            namespace=namespace,
            selector=selector,
            nodes=fleet.nodes,
            verdicts=fleet.verdicts,
            healthy=fleet.healthy,
            output=output,
            fail_on=fail_on,
        )
        return list_fleet(request, settings(), watch=watch)
    if any(fleet):
        raise UsageError("--on-node, --verdict and --all select among the mappings of list -A")
    from rbdagent.model import Target, TargetKind

    wanted = _wanted(namespace, selector)
    repeats = watch and source is None
    earlier: NodeView | None = None

    def once() -> tuple[str, int]:
        nonlocal earlier
        from rbdagent.correlate import correlate_node
        from rbdagent.correlate.device_io import io_rates
        from rbdagent.correlate.image_identity import are_mappings_observed
        from rbdagent.rules import diagnose

        snapshot, diagnoses = settled_answer(
            lambda: snapshot_of(Target(argument="", kind=TargetKind.NONE), source, settings),
            lambda snapshot: [diagnose(volume, snapshot) for volume in correlate_node(snapshot)],
            lambda diagnoses: diagnoses,
            source=source,
        )
        before, earlier = earlier, snapshot.node
        if wanted:
            diagnoses = _only(wanted, diagnoses, snapshot)
        code = exit_code(diagnoses, fail_on)
        if code == 0 and not are_mappings_observed(snapshot.node):
            code = 1
        if output in {"json", "yaml"}:
            from rbdagent.report.json.mappings import mapping_list

            return data_text(mapping_list(diagnoses, snapshot, before), output), code
        rates = io_rates(snapshot.node, before) if repeats else None
        return _render_mappings(diagnoses, snapshot, output, wanted, rates), code

    return repeat(once, watch=repeats, with_io=True)


class _Wanted(NamedTuple):
    """Holds a condition on claims; it is false if every volume is listed."""

    in_words: str
    matches: Callable[[PersistentVolumeClaim], bool]

    def __bool__(self) -> bool:
        return bool(self.in_words)


def _wanted(namespace: str | None, selector: str | None) -> _Wanted:
    from rbdagent.parse.selector import selects

    requirements = label_requirements(selector)
    return _Wanted(
        in_words=" ".join(claims_in_words(namespace, selector if requirements else None)),
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
        node = snapshot.node.node_name if snapshot.node is not None else None
        raise RbdagentError(
            f"cannot select the mappings {wanted.in_words}: {unseen}",
            hint=(
                command_of("rbdagent list", node=node),
                " without -n and -l shows all; ",
                command_of("rbdagent check", node=node),
                " shows what is missing",
            ),
        )
    return [
        diagnosis
        for diagnosis in diagnoses
        if diagnosis.volume.claim is not None and wanted.matches(diagnosis.volume.claim)
    ]


def _render_mappings(
    diagnoses: Sequence[Diagnosis],
    found: Snapshot,
    output: str,
    wanted: _Wanted,
    rates: Rates | None,
) -> str:
    from rbdagent.report.text.holders import holder_names
    from rbdagent.report.text.mappings import mapping_table

    if output == "name":
        return holder_names([holder for diagnosis in diagnoses for holder in diagnosis.local])
    return mapping_table(diagnoses, found, layout_of(output), of=wanted.in_words, rates=rates)
