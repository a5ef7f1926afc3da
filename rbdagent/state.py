"""What rbdagent keeps on its node over restarts: small files, each replaced as a whole.

The history is what the agent remembers of every mapping; the acts are what was done, by whom, and
how it ended. Either the old file stands or the new one, at every instant.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.errors import ParseError, RbdagentError
from rbdagent.model import API_VERSION, Act, History, NotObserved, UnmapOutcome
from rbdagent.report.snapshot import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_S = TypeVar("_S", bound=Struct)
_HISTORY: Final = "history.json"
_ACTS: Final = "acts.json"
_KEPT_ACTS: Final = 50
_KEPT_S: Final = 3600.0
"""Acts of the last hour stay, however many they are: their number is limited by the hour."""
_KEPT_REFUSALS: Final = 20
"""Beside the acts: however often something is refused, no act is forgotten for it. They count."""
_READ_RECORD: Final = "run as a user who may read it"
_MOVE_RECORD: Final = "move it away an hour after the last unmap: mv {path} {path}.unreadable"
"""Until then it may hold as many unmaps as an hour may have."""


class _Acts(Struct, frozen=True, kw_only=True):
    """The file of acts, the last of them last."""

    acts: tuple[Act, ...] = ()
    forgotten: tuple[tuple[str, int], ...] = ()
    """How many that are kept no longer had ended in which way."""


class StateDir:
    """The state directory; it need not exist before the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], _Acts] | None = None
        """The acts that were read last, and the file that they stood in."""

    def history(self) -> tuple[History | None, str]:
        """Read what was remembered.

        Returns:
            The history, or None where there is none; and what is to be told, if anything: a file
            that cannot be read is set aside, never overwritten, and counts as no memory at all.
        """
        return self._load(History, _HISTORY)

    def save_history(self, history: History) -> None:
        """Write what is remembered.

        Raises:
            OSError: it cannot be written; what stood there still does.
        """
        self._save(history, _HISTORY)

    def acts(self) -> tuple[Act, ...] | NotObserved:
        """Read what was done on this node, the last act last.

        Returns:
            The acts, none before the first record. A record that cannot be read stays where it is,
            and is not observed: it may hold the acts that the limit an hour counts.
        """
        found = self._load_acts()
        return found if isinstance(found, NotObserved) else found.acts

    def ended(self) -> dict[str, int] | NotObserved:
        """Count the acts and refusals of this node by how they ended, the forgotten ones too."""
        found = self._load_acts()
        return found if isinstance(found, NotObserved) else dict(_counted(found))

    def save_act(self, act: Act) -> None:
        """Add an act, or what has become of one that was written down when it began.

        Raises:
            OSError: it cannot be written; what stood there still does.
            RbdagentError: the record cannot be read, and is not written over.
        """
        with self._alone(".acts"):
            known = self._load_acts()
            if isinstance(known, NotObserved):
                raise RbdagentError(known.reason, hint=known.cure)
            acts = tuple({each.key: each for each in (*known.acts, act)}.values())
            kept = _kept(acts)
            still = {each.key for each in kept}
            gone = _Acts(
                acts=tuple(each for each in acts if each.key not in still),
                forgotten=known.forgotten,
            )
            self._save(_Acts(acts=kept, forgotten=tuple(sorted(_counted(gone).items()))), _ACTS)

    @contextlib.contextmanager
    def only_agent(self) -> Iterator[None]:
        """Be the one agent of this node.

        Raises:
            RbdagentError: another one is.
        """
        try:
            with self._alone("agent", wait=False):
                yield
        except BlockingIOError:
            raise RbdagentError(
                f"another agent runs on this node: it holds {self.path / 'agent.lock'}",
                hint="one agent a node; fuser -v names its process",
            ) from None

    @contextlib.contextmanager
    def only_one_on(self, image: str) -> Iterator[None]:
        """Be the one rbdagent that is at work on an image.

        Raises:
            RbdagentError: another one is.
        """
        try:
            with self._alone(f"image-{image}", wait=False, stays=False):
                yield
        except BlockingIOError:
            raise RbdagentError(
                f"another rbdagent is at work on {image}",
                hint="wait for it, then look again with rbdagent who-holds",
            ) from None

    @contextlib.contextmanager
    def _alone(self, name: str, *, wait: bool = True, stays: bool = True) -> Iterator[None]:
        """Hold an advisory lock; it goes with the process, however that ends.

        Args:
            name: what it is for.
            wait: for whoever holds it.
            stays: whether its file does: there are as many images as there are volumes.
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
        """Read the acts, where they have changed: several ask in each cycle, and few ever act."""
        path = self.path / _ACTS
        try:
            there = os.stat(path)
            # Every change is a new file.
            file = (there.st_ino, there.st_mtime_ns, there.st_size)
            if self._read is None or self._read[0] != file:
                self._read = (file, _parse(_Acts, path.read_text(encoding="utf-8"), str(path)))
        except FileNotFoundError:
            return _Acts()
        except OSError as error:
            return NotObserved(reason=f"{path}: {error.strerror}", cure=_READ_RECORD)
        except UnicodeDecodeError as error:
            return NotObserved(reason=f"{path}: {error}", cure=_MOVE_RECORD.format(path=path))
        except ParseError as error:
            return NotObserved(reason=str(error), cure=_MOVE_RECORD.format(path=path))
        return self._read[1]

    def _load(self, kind: type[_S], name: str) -> tuple[_S | None, str]:
        path = self.path / name
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None, ""
        except PermissionError as error:
            return None, f"{path}: {error.strerror}; nothing is remembered"
        except (OSError, UnicodeDecodeError) as error:
            return None, _set_aside(path, str(error))
        try:
            return _parse(kind, text, str(path)), ""
        except ParseError as error:
            return None, _set_aside(path, str(error))

    def _save(self, value: Struct, name: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        body = cast("dict[str, Any]", encode(value))
        text = json.dumps(_head(type(value)) | body)
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


def _locked(path: Path, how: int) -> int:
    """Open and lock a file that has its name still: whoever held it may have taken that away."""
    while True:
        # To read is enough for flock(2): the file may be another user's, root's on the command line
        # beside an agent that is nobody in particular.
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


def _kept(acts: tuple[Act, ...]) -> tuple[Act, ...]:
    """Give the latest acts and the latest refusals, in their order."""
    refused = [each for each in acts if each.outcome is UnmapOutcome.REFUSED]
    others = [each for each in acts if each.outcome is not UnmapOutcome.REFUSED]
    counts = [each for each in others if _is_within(_KEPT_S, each, others[-1])]
    latest = {each.key for each in (*refused[-_KEPT_REFUSALS:], *others[-_KEPT_ACTS:], *counts)}
    return tuple(each for each in acts if each.key in latest)


def _is_within(seconds: float, act: Act, last: Act) -> bool:
    return act.boot_id == last.boot_id and last.begun.uptime_s - act.begun.uptime_s < seconds


def _counted(acts: _Acts) -> Counter[str]:
    found = Counter(str(each.outcome) for each in acts.acts if each.outcome is not None)
    return found + Counter(dict(acts.forgotten))


def unmaps_of(acts: Iterable[Act] | NotObserved, history: History) -> History:
    """Give a history the unmaps of its boot: what was begun counts, whatever came of it."""
    if isinstance(acts, NotObserved):
        return replace(history, unmaps=acts)
    return replace(
        history,
        unmaps=tuple(
            each.begun
            for each in acts
            if each.boot_id == history.boot_id and each.outcome is not UnmapOutcome.REFUSED
        ),
    )


def _head(kind: type[Struct]) -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": kind.__name__.removeprefix("_")}


def _parse(kind: type[_S], text: str, where: str) -> _S:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ParseError(
            what="the agent's memory", where=where, text=text[-60:], expected="whole JSON"
        ) from error
    head = _head(kind)
    found = {key: data.get(key) for key in head} if isinstance(data, dict) else None
    if found != head:
        raise ParseError(
            what="the agent's memory",
            where=where,
            text=str(found),
            expected=f"apiVersion {head['apiVersion']}, kind {head['kind']}",
        )
    body = {key: value for key, value in data.items() if key not in head}
    return decode(kind, body, where=where, path=head["kind"])


def _set_aside(path: Path, why: str) -> str:
    aside = path.with_name(f"{path.name}.unreadable")
    try:
        path.replace(aside)
    except OSError as error:
        return f"{why}; it could not be set aside either: {error}"
    return f"{why}; it was set aside as {aside}, and everything is remembered anew"


def _sync(directory: Path) -> None:
    """Make the new name last: a rename is on disk only when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
