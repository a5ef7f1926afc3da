"""The files that rbdagent keeps on its node across restarts.

The history contains the facts from earlier snapshots about every mapping. The acts are the unmaps
and refusals, with caller and outcome. Every write replaces a whole file atomically: at any moment
either the old file or the new file exists.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from rbdagent.commands import command
from rbdagent.errors import ParseError, RbdagentError
from rbdagent.model import (
    API_VERSION,
    History,
    Int64,
    NotObserved,
    Stored,
    UnmapOutcome,
    UnmapRecord,
    derived,
)
from rbdagent.report.snapshot import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_S = TypeVar("_S", bound=Stored)
_STATE: Final = "the agent's state"
_HISTORY: Final = "history.json"
_ACTS: Final = "acts.json"
_KEPT_ACTS: Final = 50
_KEPT_S: Final = 3600.0
"""Seconds. All acts of the last hour are kept; the hourly limit bounds their number."""
_KEPT_REFUSALS: Final = 20
"""Refusals to keep in addition to the acts. They must not displace acts, which count for the limit.
"""
_ROOM: Final = 1 << 20
"""Bytes that must be free for an unmap. The largest file, the history, has 0.5 KiB per mapping."""
_FILES: Final = 4
"""Inodes that must be free: two locks, and the new files of two records."""
_READ_RECORD: Final = "run as a user who may read it"
_MOVE_RECORD: Final = "move it away an hour after the last unmap: mv {path} {path}.unreadable"
"""Before that, the file may contain as many unmaps as the hourly limit allows."""


class _Acts(Stored, frozen=True, kw_only=True):
    """The file of acts, oldest first."""

    acts: tuple[UnmapRecord, ...] = ()
    forgotten: tuple[tuple[str, Int64], ...] = ()
    """The number of acts that were dropped from ``acts``, by outcome."""


class StateDir:
    """The state directory; it need not exist before the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], _Acts] | None = None
        """The acts that were read last, and the identity of their file."""

    def history(self) -> tuple[History | None, str]:
        """Read the history.

        Returns:
            The history, or None without one, and a warning, or an empty string. A file that cannot
            be parsed is renamed, never overwritten, and counts as no history.
        """
        return self._load(History, _HISTORY)

    def save_history(self, history: History) -> None:
        """Write the history.

        Raises:
            OSError: it cannot be written; the previous file is unchanged.
        """
        self._save(history, _HISTORY)

    def acts(self) -> tuple[UnmapRecord, ...] | NotObserved:
        """Read the acts of this node, oldest first.

        Returns:
            The acts; empty before the first one. A file that cannot be read stays in place, and its
            content counts as not observed: it may contain acts that count for the hourly limit.
        """
        return derived(self._load_acts(), lambda found: found.acts)

    def ended(self) -> dict[str, int] | NotObserved:
        """Count the acts and refusals of this node by outcome, including the dropped ones."""
        return derived(self._load_acts(), lambda found: dict(_counted(found)))

    def save_act(self, act: UnmapRecord) -> None:
        """Add an act, or update an act that was recorded when it began.

        Raises:
            OSError: it cannot be written; the previous file is unchanged.
            RbdagentError: the file of acts cannot be read, and is not overwritten.
        """
        with self._alone(".acts"):
            known = self._load_acts()
            if isinstance(known, NotObserved):
                raise RbdagentError(known.reason, hint=known.hint)
            acts = tuple({recorded.key: recorded for recorded in (*known.acts, act)}.values())
            kept = _records_to_keep(acts)
            still = {candidate.key for candidate in kept}
            gone = _Acts(
                acts=tuple(candidate for candidate in acts if candidate.key not in still),
                forgotten=known.forgotten,
            )
            self._save(_Acts(acts=kept, forgotten=tuple(sorted(_counted(gone).items()))), _ACTS)

    def unwritable(self) -> str:
        """Return why an unmap cannot be recorded here; empty if nothing speaks against it.

        Nothing is written: a plan must not change the node. The write before the first step decides
        (a quota, for instance, is not visible here).
        """
        path = self.path
        try:
            while not path.exists() and path != path.parent:
                path = path.parent
            room = os.statvfs(path)
        except OSError as error:
            return f"{path}: {error.strerror}"
        if room.f_flag & os.ST_RDONLY:
            return f"{path}: {os.strerror(errno.EROFS)}"
        # Some file systems report no blocks (0 of 0) or no inodes, and can be written.
        is_full = room.f_blocks and room.f_bavail * room.f_frsize < _ROOM
        if is_full or (room.f_files and room.f_favail < _FILES):
            return f"{path}: {os.strerror(errno.ENOSPC)}"
        if not os.access(path, os.W_OK | os.X_OK):
            return f"{path}: {os.strerror(errno.EACCES)}"
        return ""

    @contextlib.contextmanager
    def only_agent(self) -> Iterator[str]:
        """Hold the lock that allows only one agent on this node.

        Yields:
            Why the lock could not be taken, because the directory cannot be written; else an empty
            string. Two agents that only observe publish the same, and without this directory no
            agent unmaps.

        Raises:
            RbdagentError: another agent holds the lock.
        """
        problem = ""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._alone("agent", wait=False))
            except BlockingIOError:
                raise RbdagentError(
                    f"another agent runs on this node: it holds {self.path / 'agent.lock'}",
                    hint="run only one agent on each node; fuser -v shows its process",
                ) from None
            except OSError as error:
                problem = _text_of(error, self.path)
            yield problem

    @contextlib.contextmanager
    def only_one_on(self, image: str) -> Iterator[None]:
        """Hold the lock that allows only one rbdagent to operate on an image.

        Raises:
            RbdagentError: another rbdagent holds the lock, or the directory cannot be written.
        """
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._alone(f"image-{image}", wait=False, stays=False))
            except BlockingIOError:
                raise RbdagentError(
                    f"another rbdagent operates on {image}",
                    hint=(
                        "wait until it has ended, then run ",
                        command("rbdagent who-holds"),
                        " again",
                    ),
                ) from None
            except OSError as error:
                raise self.cannot_record(error) from error
            yield

    def cannot_record(self, error: OSError) -> RbdagentError:
        """Return the error for an unmap that cannot be recorded."""
        return RbdagentError(
            f"{_text_of(error, self.path)}: an unmap must be recorded before it begins",
            hint="set --state-dir to a directory that rbdagent may write to",
        )

    @contextlib.contextmanager
    def _alone(self, name: str, *, wait: bool = True, stays: bool = True) -> Iterator[None]:
        """Hold an advisory lock; the kernel releases it when the process ends.

        Args:
            name: the name of the lock.
            wait: whether to wait until another process has released the lock.
            stays: whether the lock file is kept. The file of an image is removed, because there
                are as many images as volumes.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / f"{name}.lock"
        descriptor = _locked(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            if not stays:
                with contextlib.suppress(OSError):
                    path.unlink()
            os.close(descriptor)

    def _load_acts(self) -> _Acts | NotObserved:
        """Return the acts; read the file only if it has changed, as each cycle needs them often."""
        path = self.path / _ACTS
        try:
            there = os.stat(path)
            # Every write creates a new file.
            file = (there.st_ino, there.st_mtime_ns, there.st_size)
            if self._read is None or self._read[0] != file:
                self._read = (file, _parse(_Acts, path.read_bytes(), str(path)))
        except FileNotFoundError:
            return _Acts()
        except OSError as error:
            return NotObserved(reason=f"{path}: {error.strerror}", hint=_READ_RECORD)
        except ParseError as error:
            return NotObserved(reason=str(error), hint=_MOVE_RECORD.format(path=path))
        return self._read[1]

    def _load(self, kind: type[_S], name: str) -> tuple[_S | None, str]:
        path = self.path / name
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None, ""
        except PermissionError as error:
            return None, f"{path}: {error.strerror}; the agent starts without history"
        except OSError as error:
            return None, _set_aside(path, str(error))
        try:
            return _parse(kind, raw, str(path)), ""
        except ParseError as error:
            return None, _set_aside(path, str(error))

    def _save(self, value: Stored, name: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_head(type(value)) | encode(value))
        new = self.path / f"{name}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path / name)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        _sync(self.path)


def _text_of(error: OSError, path: Path) -> str:
    return f"{error.filename or path}: {error.strerror}"


def _locked(path: Path, how: int) -> int:
    """Open and lock a file that still has its name: the previous holder may have unlinked it."""
    while True:
        # flock(2) needs only read access. The file may belong to another user: root runs the
        # command line, and the agent may run as an unprivileged user.
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _records_to_keep(acts: tuple[UnmapRecord, ...]) -> tuple[UnmapRecord, ...]:
    """Return the latest acts and the latest refusals, in their order."""
    refused = [act for act in acts if act.outcome is UnmapOutcome.REFUSED]
    others = [act for act in acts if act.outcome is not UnmapOutcome.REFUSED]
    counts = [act for act in others if _is_within(_KEPT_S, act, others[-1])]
    latest = {act.key for act in (*refused[-_KEPT_REFUSALS:], *others[-_KEPT_ACTS:], *counts)}
    return tuple(act for act in acts if act.key in latest)


def _is_within(seconds: float, act: UnmapRecord, last: UnmapRecord) -> bool:
    return act.boot_id == last.boot_id and last.begun.uptime_s - act.begun.uptime_s < seconds


def _counted(acts: _Acts) -> Counter[str]:
    found = Counter(str(act.outcome) for act in acts.acts if act.outcome is not None)
    return found + Counter(dict(acts.forgotten))


def unmaps_of(acts: Iterable[UnmapRecord] | NotObserved, history: History) -> History:
    """Return the history with the unmaps since its boot; each unmap that began counts."""
    unmaps = derived(
        acts,
        lambda known: tuple(
            act.begun
            for act in known
            if act.boot_id == history.boot_id and act.outcome is not UnmapOutcome.REFUSED
        ),
    )
    return replace(history, unmaps=unmaps)


def _head(kind: type[Stored]) -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": kind.__name__.removeprefix("_")}


def _parse(kind: type[_S], raw: bytes, where: str) -> _S:
    """Parse a file of the agent. Errors never quote it, because output and metrics contain them.

    Raises:
        ParseError: it is not JSON, has another version, or a field is wrong.
    """
    try:
        data = msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise _no_memory(where, "whole JSON") from error
    head = _head(kind)
    if not isinstance(data, dict) or {key: data.get(key) for key in head} != head:
        raise _no_memory(where, f"apiVersion {head['apiVersion']}, kind {head['kind']}")
    body = {key: value for key, value in data.items() if key not in head}
    return decode(kind, body, what=_STATE, where=where, path=head["kind"])


def _no_memory(where: str, expected: str) -> ParseError:
    return ParseError(what=_STATE, where=where, text=None, expected=expected)


def _set_aside(path: Path, why: str) -> str:
    aside = path.with_name(f"{path.name}.unreadable")
    try:
        path.replace(aside)
    except OSError as error:
        return f"{why}; renaming it failed too: {error}"
    return f"{why}; it was renamed to {aside}, and the agent starts without history"


def _sync(directory: Path) -> None:
    """Sync a directory; a rename is on disk only after its directory is synced."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
