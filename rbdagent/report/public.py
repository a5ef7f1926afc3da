"""Texts that every reader of cluster objects can see: RBDNodes, Events, the unmap record.

The output of the CLI shows command lines in which secrets are masked. These texts show only the pid
and the program of a process: the ClusterRole ``view`` includes RBDNodes, and no mask finds every
secret.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.model import ProcessRef
from rbdagent.parse.brief import brief
from rbdagent.parse.foreign import foreign_at, foreign_name, name_at
from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Snapshot

_PROCESS: Final = re.compile(r"\bprocess (?P<pid>\d+) \(")
"""The form in which sentences name a process; its command line, or its name, and ``)`` follow."""


class PublicText:
    """Removes command lines from sentences about one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Store the snapshot that the sentences describe."""
        self._snapshot = snapshot

    @functools.cached_property
    def _commands(self) -> dict[int, ProcessRef]:
        """The processes of the snapshot, by pid; most sentences name none."""
        return {process.pid: process for process in _processes(self._snapshot.node)}

    def __call__(self, text: str) -> str:
        """Return a sentence without command lines and long quotations, on one line."""
        parts, at = [], 0
        while (named := _PROCESS.search(text, at)) is not None:
            begin = named.end()
            found = foreign_at(text, begin) or name_at(text, begin)
            command, end = found or self._unquoted(text, named)
            program = ProcessRef(pid=0, command=command).program
            parts += [text[at : named.end()], foreign_name(program) if program else ""]
            at = end
        return shown(brief("".join([*parts, text[at:]])))

    def _unquoted(self, text: str, named: re.Match[str]) -> tuple[str, int]:
        end = self._end_of_command(text, named)
        return text[named.end() : end], end

    def _end_of_command(self, text: str, named: re.Match[str]) -> int:
        known = self._commands.get(int(named["pid"]))
        if known is not None and text.startswith(f"{known.command})", named.end()):
            return named.end() + len(known.command)
        # The process is not in the snapshot. Cut at the last parenthesis: a command line may
        # contain parentheses.
        last = text.rfind(")", named.end())
        return last if last != -1 else len(text)


def _processes(value: object) -> Iterator[ProcessRef]:
    """Yield the processes in a value of the model."""
    if isinstance(value, ProcessRef):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _processes(getattr(value, name))
    elif isinstance(value, tuple):
        for part in value:
            yield from _processes(part)
