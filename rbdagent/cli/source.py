"""Where an answer comes from: a look, or a snapshot."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from rbdagent.cli.output import now_utc
from rbdagent.commands import command, line_of
from rbdagent.errors import NotFoundError, UsageError
from rbdagent.model import Also

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings
    from rbdagent.look import KeptCeph
    from rbdagent.model import Snapshot, Target


def snapshot_of(
    target: Target,
    source: str | None,
    settings: Callable[[], Settings],
    *,
    meanwhile: Callable[[], None] = lambda: None,
    also: Also = Also.NOTHING,
    ceph: KeptCeph | None = None,
) -> Snapshot:
    """Load a snapshot, or look.

    ``meanwhile`` is done while the sources answer; ``ceph``: who stays connected.
    """
    if source is not None:
        return _loaded(target, source)
    from rbdagent.look import look

    started = time.monotonic()
    found = look(
        target,
        settings(),
        now=now_utc,
        meanwhile=meanwhile,
        also=also,
        ceph=ceph,
    )
    if click.get_current_context().params.get("debug"):
        from rbdagent.log import debug_log

        debug_log().debug("looked", seconds=round(time.monotonic() - started, 3))
    return found


_WANTED: Final = "--from wants a file that `rbdagent snapshot` wrote, or - for stdin"
_MOST: Final = 256 << 20
"""Bytes of a snapshot: that of 20,000 pods has a tenth of it."""


def _loaded(target: Target, source: str) -> Snapshot:
    from rbdagent.model import TargetKind
    from rbdagent.report.snapshot import load_snapshot

    name = "stdin" if source == "-" else source
    try:
        text = _content(source).decode()
    except FileNotFoundError:
        raise UsageError(f"{source}: no such file", hint=_WANTED) from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}", hint=_WANTED) from error
    except UnicodeDecodeError:
        # Without the cause, which quotes a byte and which --debug would print.
        raise UsageError(f"{name}: not a text file, so no snapshot", hint=_WANTED) from None
    found = load_snapshot(text, where=name)
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


def _content(source: str) -> bytes:
    from rbdagent.observe.user_files import check_size, read_user_file

    if source != "-":
        return read_user_file(Path(source), most=_MOST)
    content = sys.stdin.buffer.read(_MOST + 1)
    check_size(len(content), most=_MOST)
    return content


def _of_many(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Ask a snapshot of a node, or of all there is, for what it holds."""
    from rbdagent.model import TargetKind

    held = found.target
    is_of_all = held.kind is TargetKind.NONE and bool(held.given)
    if target.kind is not TargetKind.NONE and is_of_all:
        return _part(found, target, name, source)
    if target.kind is held.kind:
        # A list is of the node that looked, and that looked for all there is as well.
        is_within = held.namespace in {"", target.namespace} and is_of_all
        if not target.given or is_within:
            return found
    if is_of_all:
        words, hint = f"everything ({held.given})", _asked("rbdagent diagnose", held, source)
    elif held.kind is TargetKind.NONE:
        words, hint = "every mapping of a node", _asked("rbdagent list", held, source)
    else:
        words, hint = held.given, _asked(f"rbdagent {_verb()}", held, source)
    raise NotFoundError(f"{name} was taken for {words}", hint=hint)


def _asked(begin: str, held: Target, source: str) -> str:
    """Return the command that asks a snapshot about what it was taken for."""
    # A snapshot of all there is was taken for options, such as -A, and no name.
    given = held.given.split() if held.given.startswith("-") else []
    values = (held.given,) if held.given and not given else ()
    return line_of(command(begin, *values, options=(*given, "--from", source)))


def _part(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Give what a snapshot of all there is holds of one target."""
    from rbdagent.correlate.parts import is_there, part_of
    from rbdagent.correlate.whole import whole_of

    whole = whole_of(found)
    if not is_there(whole, target):
        raise NotFoundError(
            f"{name} holds nothing about {target.given}",
            hint=f"{_asked('rbdagent diagnose', found.target, source)} shows what is stuck",
        )
    part = part_of(whole, target)
    # The part of a look has no gaps of its own: whoever asks for it alone is told them.
    return replace(part, sources=found.sources)


def _retargeted(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Ask a snapshot about another name of what it holds: its PV's claim, its pod, its image."""
    from rbdagent.correlate import images_of

    asked = replace(found, target=target)
    held = set(images_of(found.target, found.node, found.kubernetes))
    wanted = set(images_of(target, found.node, found.kubernetes))
    if {each.spec for each in wanted} & {each.spec for each in held}:
        return asked
    raise NotFoundError(
        f"{name} holds nothing about {target.given}: it was taken for {found.target.given}",
        hint=_asked(f"rbdagent {_verb()}", found.target, source),
        near=(found.target.given,),
    )


def _verb() -> str:
    """Name the verb to ask about another target with: the one that was typed, if it has one."""
    context = click.get_current_context(silent=True)
    return "diagnose" if context is not None and context.info_name == "diagnose" else "who-holds"
