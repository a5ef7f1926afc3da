"""What all may read who may look at the cluster's objects: RBDNodes, Events, the record of acts.

Answers show command lines, with what looks like a secret masked; these name a process by its pid
and its program alone. RBDNodes are part of the ClusterRole ``view``, and no mask knows every
secret.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.model import ProcessRef
from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Snapshot

_PROCESS: Final = re.compile(r"\bprocess (?P<pid>\d+) \(")
"""How sentences name a process: what follows is its command line, and a parenthesis."""


class PublicText:
    """Makes sentences about a look fit for them."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Take the look that the sentences come from."""
        self._snapshot = snapshot

    @functools.cached_property
    def _commands(self) -> dict[int, ProcessRef]:
        """The processes of the look, by pid; most sentences name none."""
        return {each.pid: each for each in _processes(self._snapshot.node)}

    def __call__(self, text: str) -> str:
        """Return a sentence without command lines and without what cannot be seen."""
        parts, at = [], 0
        while (named := _PROCESS.search(text, at)) is not None:
            end = self._end_of_command(text, named)
            program = ProcessRef(pid=0, command=text[named.end() : end]).program
            parts += [text[at : named.end()], program]
            at = end
        return shown("".join([*parts, text[at:]]))

    def _end_of_command(self, text: str, named: re.Match[str]) -> int:
        known = self._commands.get(int(named["pid"]))
        if known is not None and text.startswith(f"{known.command})", named.end()):
            return named.end() + len(known.command)
        # Not one of the look: a command line may hold parentheses, so rather too much is cut.
        last = text.rfind(")", named.end())
        return last if last != -1 else len(text)


def _processes(value: object) -> Iterator[ProcessRef]:
    """Iterate over the processes in a value of the model."""
    if isinstance(value, ProcessRef):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _processes(getattr(value, name))
    elif isinstance(value, tuple):
        for part in value:
            yield from _processes(part)
