"""rbdagent drain-check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click
from msgspec.structs import replace

from rbdagent.cli.data_source import settled_answer, snapshot_of
from rbdagent.cli.options import COLOR, FILE, OUTPUT, VERBOSE, observing, option
from rbdagent.cli.output import FINDINGS, data_text, layout_of, repeat
from rbdagent.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.collector import KubeAnswer
    from rbdagent.config import Settings
    from rbdagent.model import Diagnosis, ImageIdentity, NodeView, Snapshot
    from rbdagent.model.drain import DrainCheck, EarlierCheck

_MOST_BYTES: Final = 16 << 20
"""Of the file of the check before: a mapping has half a KiB in it."""
_NOT_OBSERVED: Final = 1


class _Asked(NamedTuple):
    """The node, and which of the two checks it is."""

    node: str
    is_after: bool
    earlier: EarlierCheck | None


@click.command("drain-check")
@click.argument("node", metavar="NODE")
@click.option("--after", is_flag=True, help="Check what a drain or a reboot has left on NODE.")
@click.option(
    "--before",
    type=FILE,
    metavar="FILE",
    help="With --after: what -o json printed before the drain; - is stdin.",
)
@OUTPUT
@option(
    "--from",
    "source",
    type=FILE,
    envvar="RBDAGENT_FROM",
    metavar="FILE",
    help="Read a snapshot file instead of observing; - is stdin.",
)
@click.option("--watch", "-w", is_flag=True, help="Repeat until nothing blocks, or NODE is clean.")
@VERBOSE
@COLOR
@observing
def command(
    *,
    node: str,
    after: bool,
    before: str | None,
    output: str,
    source: str | None,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """Show what blocks a drain of NODE, or survives it.

    It is in the order in which to act. Exits with code 0 if nothing does, 3 if something does, and
    1 if a fact that could change the answer was not observed. With --after: 0 if NODE is clean, 3
    if something is left.

    Run it on NODE: another machine has only what the agent on NODE published.
    """
    if before is not None and not after:
        raise UsageError("--before is for the check after a drain: use it with --after")
    if before == "-" and source == "-":
        raise UsageError("--before and --from cannot both read stdin")
    name = node.removeprefix("node/")
    asked = _Asked(name, after, None if before is None else _earlier(before, name))

    def once() -> tuple[str, int]:
        from rbdagent.lifecycle.drain_requests import may_wait

        snapshot, (check, _) = settled_answer(
            lambda: _observed(asked, source, settings),
            lambda snapshot: _judge(snapshot, asked),
            lambda answer: answer[1],
            source=source,
        )
        if source is None and not asked.is_after and may_wait(snapshot.node):
            check, _ = _judge(snapshot, asked, _observed(asked, source, settings).node)
        return _render(check, snapshot, output), _exit_code(check)

    return repeat(once, watch=watch and source is None, until_well=True)


def _earlier(before: str, node: str) -> EarlierCheck:
    """Return the check before the drain, from its file.

    Raises:
        UsageError: the file cannot be read.
        ParseError: it is not such a check of the node.
    """
    from rbdagent.cli.data_source import file_content, file_name
    from rbdagent.report.json.drain import load_earlier

    where = file_name(before)
    try:
        content = file_content(before, most=_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}") from error
    return load_earlier(content, node=node, where=where)


def _observed(asked: _Asked, source: str | None, settings: Callable[[], Settings]) -> Snapshot:
    """Return the snapshot of a file, or a new one: of this machine only if it is the node."""
    from rbdagent.lifecycle.drain import linked_images
    from rbdagent.model import Target, TargetKind

    target = Target(argument="", kind=TargetKind.NONE)
    if source is not None:
        return snapshot_of(target, source, settings)
    chosen = settings()
    is_here = chosen.node_name == asked.node
    if not is_here:
        chosen = replace(chosen, roots=None, node_name=asked.node)

    def further_images(seen: Snapshot) -> tuple[ImageIdentity, ...]:
        return linked_images(seen, asked.node, asked.earlier) if asked.is_after else ()

    snapshot = snapshot_of(
        target,
        None,
        lambda: chosen,
        own=_requests(chosen, asked.node),
        further_images=further_images,
    )
    return snapshot if is_here else _of_other_machine(snapshot, asked.node)


def _requests(settings: Settings, node: str) -> Callable[[NodeView | None], KubeAnswer] | None:
    """Return the requests for the objects of the node; None without the API."""
    access = settings.kube
    if access is None:
        return None
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.collect.kube.list_node import observe_node_objects

    connection = Connection(access)
    return lambda _: observe_node_objects(connection, access, node)


def _of_other_machine(snapshot: Snapshot, node: str) -> Snapshot:
    """Return a snapshot whose source states why this machine shows nothing of the node."""
    sources = snapshot.sources
    reason = f"this machine is not {node}: what only {node} shows is from the report of its agent"
    return replace(snapshot, sources=replace(sources, node=replace(sources.node, reason=reason)))


def _judge(
    snapshot: Snapshot, asked: _Asked, again: NodeView | None = None
) -> tuple[DrainCheck, tuple[Diagnosis, ...]]:
    from rbdagent.lifecycle.drain import check_after, check_before, diagnoses_on

    _check_exists(snapshot, asked.node)
    diagnoses = diagnoses_on(snapshot, asked.node)
    if asked.is_after:
        return check_after(snapshot, asked.node, diagnoses, asked.earlier), diagnoses
    return check_before(snapshot, asked.node, diagnoses, again), diagnoses


def _check_exists(snapshot: Snapshot, node: str) -> None:
    """Raise an error for a name that no source has: a typing error is not a clear node.

    Raises:
        NotFoundError: all Nodes were observed, and none has the name.
    """
    import difflib

    from rbdagent.correlate.volume_names import node_named
    from rbdagent.lifecycle.drain import is_observed_node
    from rbdagent.model import observed_of

    kube = snapshot.kubernetes
    if kube is None or is_observed_node(snapshot, node) or node_named(node, snapshot) is not None:
        return
    if any(report.name == node for report in observed_of(kube.published)):
        return
    names = [known.name for known in observed_of(kube.nodes)]
    raise NotFoundError(
        f"no Node is named {node}",
        hint="kubectl get nodes lists them",
        near=tuple(difflib.get_close_matches(node, names, n=2)),
    )


def _render(check: DrainCheck, snapshot: Snapshot, output: str) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.json.drain import drain_report

        return data_text(drain_report(check, snapshot), output)
    from rbdagent.report.text.drain import drain_text

    return drain_text(check, snapshot, layout_of(output))


def _exit_code(check: DrainCheck) -> int:
    from rbdagent.model.drain import DrainState

    codes = {DrainState.BLOCKED: FINDINGS, DrainState.UNKNOWN: _NOT_OBSERVED, DrainState.CLEAR: 0}
    return codes[check.state]
