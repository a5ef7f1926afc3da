"""The documents of a file in YAML or JSON, read within bounds.

Errors quote nothing of the file, which may be any file that root can read.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final

from rbdagent.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import yaml

MOST_BYTES: Final = 16 << 20
"""Of one file: 4,000 PVs with their claims, as kubectl prints them. YAML takes a second per MiB."""
_MOST_DEPTH: Final = 100
"""Of nested lists and mappings; an object of Kubernetes has a tenth of that."""
_MOST_ALIASED: Final = 100_000
"""Of the nodes that aliases add to a file. Twenty lines of nested aliases mean 10^9 of them."""
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_SPACE: Final = re.compile(r"\s*")


def parse_documents(text: str, *, file: str) -> list[object]:
    """Return the documents of a file; JSON values may follow each other, as in Go's decoder.

    Args:
        text: of the file.
        file: its name, for errors.

    Raises:
        ParseError: it is neither YAML nor JSON, or it is larger, nested deeper, or means more by
            its aliases than is read.
    """
    if len(text) > MOST_BYTES:
        raise _unreadable(file, f"at most {MOST_BYTES >> 20} MiB in a file")
    found = _json_documents(text) if text.lstrip()[:1] in {"{", "["} else None
    return _yaml_documents(text, file) if found is None else found


def _unreadable(file: str, expected: str) -> ParseError:
    return ParseError(what="manifests", where=file, text=None, expected=expected)


def _json_documents(text: str) -> list[object] | None:
    """Return JSON values that follow each other; None if the text is not JSON."""
    decoder, found, end = json.JSONDecoder(), [], _behind_space(text, 0)
    try:
        while end < len(text):
            document, end = decoder.raw_decode(text, end)
            found.append(document)
            end = _behind_space(text, end)
    except (ValueError, RecursionError):
        return None
    return found


def _behind_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return start if found is None else found.end()


def _yaml_documents(text: str, file: str) -> list[object]:
    import yaml

    try:
        _Bounds(file).check(yaml.parse(text, Loader=_loader()))
        return [*yaml.load_all(text, Loader=_loader())]
    except (
        yaml.YAMLError, RecursionError, ArithmeticError, AttributeError, LookupError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        # PyYAML raises the others for a scalar or a key that its tag or its place does not allow.
        # Drop the cause: it quotes the file, and --debug would print it.
        raise _unreadable(file, f"YAML or JSON{_position(error)}") from None


def _position(error: Exception) -> str:
    """Return the place of an error of PyYAML, and its message if that quotes nothing."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    why = f", {problem}" if problem and not {"'", '"'} & {*problem} else ""
    return "" if mark is None else f"; line {mark.line + 1}, column {mark.column + 1}{why}"


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """Return PyYAML's safe loader, without its dates: the API has them as texts."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        """Reads dates as texts."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    return Loader


class _Bounds:
    """Checks the nesting of a file, and what its aliases mean, before anything of it is built."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._sizes: dict[str, int] = {}
        """The nodes of each anchor that is complete."""
        self._opened: list[tuple[str | None, int]] = []
        """The anchors of the lists and mappings around an event, and their nodes so far."""
        self._aliased = 0

    def check(self, events: Iterable[yaml.Event]) -> None:
        """Read the events of a file.

        Raises:
            ParseError: an alias names nothing that precedes it, the aliases mean too much in
                total, or lists and mappings are nested too deeply.
        """
        for event in events:
            added = self._added(event)
            if len(self._opened) > _MOST_DEPTH:
                raise self._refused(event, f"lists and mappings nested at most {_MOST_DEPTH} deep")
            if self._aliased > _MOST_ALIASED:
                expected = f"aliases that mean at most {_MOST_ALIASED} nodes in total"
                raise self._refused(event, f"{expected}, each of what precedes it")
            if added and self._opened:
                anchor, size = self._opened[-1]
                self._opened[-1] = (anchor, size + added)

    def _added(self, event: yaml.Event) -> int:
        """Return how many nodes an event adds to the list or mapping around it."""
        import yaml

        match event:
            case yaml.AliasEvent():
                # An alias inside of what it names has no size yet.
                size = self._sizes.get(event.anchor or "", _MOST_ALIASED + 1)
                self._aliased += size
                return size
            case yaml.CollectionStartEvent():
                self._opened.append((event.anchor, 1))
                self._sizes.pop(event.anchor or "", None)
                return 0
            case yaml.CollectionEndEvent():
                anchor, size = self._opened.pop()
            case yaml.ScalarEvent():
                anchor, size = event.anchor, 1
            case _:
                return 0
        if anchor is not None:
            self._sizes[anchor] = size
        return size

    def _refused(self, event: yaml.Event, expected: str) -> ParseError:
        mark = event.start_mark
        line = "" if mark is None else f"; line {mark.line + 1}"
        return _unreadable(self._file, expected + line)
