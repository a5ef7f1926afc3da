"""The source of the data: an observation, or a snapshot file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
from msgspec.structs import replace

from rbdagent.cli.output import now_utc, progress
from rbdagent.commands import command
from rbdagent.errors import NotFoundError, UsageError
from rbdagent.model import CollectScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rbdagent.collector import KubeAnswer, Workers
    from rbdagent.config import Settings
    from rbdagent.model import Command, Diagnosis, ImageIdentity, NodeView, Snapshot, Target
    from rbdagent.verdicts.momentary import Momentary

_Answer = TypeVar("_Answer")
_MOST_FURTHER: Final = 4
"""Observations after the first one."""


def settled_answer(
    observe: Callable[[], Snapshot],
    judge: Callable[[Snapshot], _Answer],
    diagnoses: Callable[[_Answer], Iterable[Diagnosis]],
    *,
    source: str | None,
) -> tuple[Snapshot, _Answer]:
    """Return a snapshot and the answer from it; of a further one if the last is momentary.

    The steps of kubelet and of the CSI plugin follow each other, so that a second observation may
    meet another momentary state than the first. The same state twice is one that lasts.

    Args:
        observe: returns a snapshot.
        judge: returns the answer from a snapshot.
        diagnoses: returns the diagnoses in an answer.
        source: the file of ``--from``, which is read only once.
    """
    snapshot = observe()
    answer = judge(snapshot)
    # Imported here: the sources start sooner.
    from rbdagent.verdicts.momentary import momentary

    known: frozenset[Momentary] = frozenset()
    for _ in range(0 if source is not None else _MOST_FURTHER):
        found = momentary(diagnoses(answer))
        if not found - known:
            break
        known |= found
        snapshot = observe()
        answer = judge(snapshot)
    return snapshot, answer


def snapshot_of(
    target: Target,
    source: str | None,
    settings: Callable[[], Settings],
    *,
    prepare: Callable[[], None] = lambda: None,
    also: CollectScope = CollectScope.NOTHING,
    own: Callable[[NodeView | None], KubeAnswer] | None = None,
    further_images: Callable[[Snapshot], tuple[ImageIdentity, ...]] = lambda _: (),
    workers: Workers | None = None,
) -> Snapshot:
    """Return the snapshot of a file, or else a new snapshot from the sources.

    Args:
        target: the TARGET of the verb.
        source: the file of ``--from``; None to query the sources.
        settings: how to query them; called only if there is no file.
        prepare: see `Meanwhile`.
        also: what to collect in addition to the target.
        own: see `collect_snapshot`.
        further_images: see `collect_snapshot`.
        workers: worker processes that serve several observations; None to start new ones.
    """
    if source is not None:
        return _loaded(target, source)
    from rbdagent.collector import Meanwhile, collect_snapshot

    started = time.monotonic()
    chosen = settings()
    with progress(chosen.timeout_s) as show:
        found = collect_snapshot(
            target,
            chosen,
            now=now_utc,
            meanwhile=Meanwhile(show, prepare),
            also=also,
            own=own,
            further_images=further_images,
            workers=workers or _started_early(chosen),
        )
    if click.get_current_context().params.get("debug"):
        from rbdagent.log import logger

        logger().debug("observed", seconds=round(time.monotonic() - started, 3))
    return found


def _started_early(settings: Settings) -> Workers | None:
    """Return the process for Ceph that the program started early; only the first call has it."""
    from rbdagent.collector import Workers

    loading = click.get_current_context().obj
    if not loading or settings.clusters is None:
        return None
    return Workers(ceph=loading.pop(), node=None)


_WANTED: Final = (
    "--from needs a file that `",
    command("rbdagent snapshot"),
    "` wrote, or - for stdin",
)
_MOST: Final = 256 << 20
"""Maximum size of a snapshot in bytes; a snapshot with 20,000 pods has a tenth of this size."""


def _loaded(target: Target, source: str) -> Snapshot:
    from rbdagent.correlate.machine import without_other_machine
    from rbdagent.model import TargetKind

    name = file_name(source)
    found = without_other_machine(snapshot_in(source))
    if TargetKind.NONE in {target.kind, found.target.kind}:
        return _of_many(found, target, name, source)
    if (found.target.kind, found.target.name, found.target.namespace, found.target.image) == (
        target.kind,
        target.name,
        target.namespace,
        target.image,
    ):
        return found
    return _retargeted(found, target, name, source)


def snapshot_in(source: str) -> Snapshot:
    """Return the snapshot of a file; - is stdin.

    Raises:
        UsageError: it cannot be read.
        ParseError: it is not a snapshot.
    """
    from rbdagent.report.snapshot import load_snapshot

    # No other reference: the text is freed while it is decoded.
    return load_snapshot(_text(source), where=file_name(source))


def _text(source: str) -> str:
    name = file_name(source)
    try:
        return file_content(source, most=_MOST).decode()
    except FileNotFoundError:
        raise UsageError(f"{source}: no such file", hint=_WANTED) from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}", hint=_WANTED) from error
    except UnicodeDecodeError:
        # Drop the cause: it quotes a byte of the file, and --debug would print it.
        raise UsageError(f"{name}: not a text file, so not a snapshot", hint=_WANTED) from None


def file_name(source: str) -> str:
    """Return the name of a file for an error."""
    return "stdin" if source == "-" else source


def file_content(source: str, *, most: int) -> bytes:
    """Return the content of a file; - is stdin.

    Raises:
        OSError: it cannot be read, or has more than ``most`` bytes.
    """
    from rbdagent.collect.user_files import check_size, read_user_file

    if source != "-":
        return read_user_file(Path(source), most=most)
    content = sys.stdin.buffer.read(most + 1)
    check_size(len(content), most=most)
    return content


def _of_many(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Return the target's part of a snapshot of a node, a namespace or a cluster."""
    from rbdagent.model import TargetKind

    held = found.target
    is_of_all = held.kind is TargetKind.NONE and bool(held.argument)
    if target.kind is not TargetKind.NONE and is_of_all:
        return _part(found, target, name, source)
    if target.kind is held.kind:
        # The list is for the observed node, and a snapshot of a cluster also contains a node.
        is_within = held.namespace in {"", target.namespace} and is_of_all
        if not target.argument or is_within:
            return found
    verb = "diagnose" if is_of_all else "list" if held.kind is TargetKind.NONE else _verb()
    values, options = _words_of(target)
    raise NotFoundError(
        f"{name} is a snapshot of {_content_of(held)}, not of {_content_of(target)}",
        hint=(
            "`",
            _snapshot_command(f"rbdagent {verb}", held, source),
            "` reads it; `",
            command("rbdagent snapshot", *values, options=options),
            "` writes what is needed here",
        ),
    )


def _content_of(target: Target) -> str:
    """Return what a snapshot of a target contains, in words."""
    from rbdagent.model import TargetKind

    if target.kind is not TargetKind.NONE:
        return target.argument
    return f"everything ({target.argument})" if target.argument else "every mapping of a node"


def _snapshot_command(begin: str, held: Target, source: str) -> Command:
    """Return the command that reads a snapshot with the target that it was taken for.

    The plugin passes the reader's file to stdin, so stdin may be a file whose name is unknown.
    """
    values, given = _words_of(held)
    file = "FILE" if source == "-" else source
    return command(begin, *values, options=(*given, "--from", file))


def _words_of(target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a target as it is typed: values, and options."""
    # The target of a snapshot of a cluster is an option, such as -A, not a name.
    if target.argument.startswith("-"):
        return (), tuple(target.argument.split())
    return ((target.argument,) if target.argument else ()), ()


def _part(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Return the part of a snapshot of a namespace or a cluster that is about one target."""
    from rbdagent.correlate.resolve import about, is_known

    if not is_known(target, found):
        raise NotFoundError(
            f"{name} contains nothing about {target.argument}",
            hint=(
                _snapshot_command("rbdagent diagnose", found.target, source),
                " shows what is stuck",
            ),
        )
    return about(target, found)


def _retargeted(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Return a snapshot with another name of its target: the claim of its PV, a pod, the image."""
    from rbdagent.correlate import images_of

    asked = replace(found, target=target)
    held = set(images_of(found.target, found.node, found.kubernetes))
    wanted = set(images_of(target, found.node, found.kubernetes))
    if {image.spec for image in wanted} & {image.spec for image in held}:
        return asked
    raise NotFoundError(
        f"{name} contains nothing about {target.argument}: it is a snapshot of "
        f"{found.target.argument}",
        hint=(_snapshot_command(f"rbdagent {_verb()}", found.target, source),),
        near=(found.target.argument,),
    )


def _verb() -> str:
    """Return the verb for a hint: ``diagnose`` if this verb runs, else ``who-holds``."""
    context = click.get_current_context(silent=True)
    return "diagnose" if context is not None and context.info_name == "diagnose" else "who-holds"
