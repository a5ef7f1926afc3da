"""The statement of a finding: rbdagent's words, and what others named, as data until it is printed.

A sentence with names in it cannot be divided again: a tenant chooses names and the texts of errors,
and may write a full stop into them. So each of them is an argument, and only words end a sentence.
"""

from __future__ import annotations

from itertools import pairwise
from string import Formatter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

AGE: Final = "age"
"""The name of an argument with a time that passes: two statements about the same state differ only
in these."""
_JOINTS: Final = {"": ", ", "and": " and ", ";": "; "}
"""What is between the values of an argument, by the format in its field."""
_DEPTH: Final = {"(": 1, ")": -1}


class Argument(Struct, frozen=True):
    """What others named or wrote, or what was measured, at one place of a statement."""

    name: str
    """What it is: ``pod``, ``claim``, ``error``, ``age``."""
    values: tuple[str, ...]
    """As printed: a text of others is quoted (`rbdagent.parse.foreign`)."""
    joint: str = ", "
    """Between two values."""

    def __str__(self) -> str:
        return self.joint.join(self.values)


class Statement(Struct, frozen=True):
    """One sentence or more, or a phrase of one; the first sentence is the cause."""

    parts: tuple[str | Argument, ...]
    """The words of rbdagent and the arguments, in order; no two texts follow one another."""

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def __bool__(self) -> bool:
        """Return whether it has any part: a phrase may be empty."""
        return bool(self.parts)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments, each of them once, in their order."""
        return tuple(dict.fromkeys(part for part in self.parts if isinstance(part, Argument)))

    @property
    def values(self) -> frozenset[str]:
        """The values of all arguments."""
        return frozenset(value for argument in self.arguments for value in argument.values)

    def names(self, name: str) -> bool:
        """Return whether an argument is this name, alone or behind its kind: ``pod shop/web-1``."""
        for before, part in pairwise(("", *self.parts)):
            if not isinstance(part, Argument):
                continue
            if name in part.values:
                return True
            kind = name.removesuffix(part.values[0])
            if kind != name and isinstance(before, str) and before.endswith(kind):
                return True
        return False

    @property
    def cause(self) -> Statement:
        """The first sentence."""
        return self._divided[0]

    @property
    def rest(self) -> Statement:
        """The sentences behind the first one; empty if there are none."""
        return self._divided[1]

    @property
    def _divided(self) -> tuple[Statement, Statement]:
        """The first sentence, and the others: a full stop in parentheses ends none."""
        depth = 0
        for number, part in enumerate(self.parts):
            if isinstance(part, Argument):
                continue
            for at, character in enumerate(part):
                depth += _DEPTH.get(character, 0)
                if depth == 0 and part.startswith(". ", at):
                    before, behind = part[: at + 1], part[at + 2 :]
                    return (
                        _merged((*self.parts[:number], before)),
                        _merged((behind, *self.parts[number + 1 :])),
                    )
        return self, Statement(())


Words = str | Statement
"""A part of a statement in rbdagent's own words; it may be empty."""


def stated(template: str, /, *words: Words, **arguments: object) -> Statement:
    """Return a statement: its words, and the arguments in its fields.

    Args:
        template: the words. A field without a name takes the next one of ``words``, and a field
            with a name takes that argument. Of an argument with several values, ``{pods}`` puts a
            comma between them, ``{pods:and}`` the word, and ``{pods:;}`` a semicolon.
        words: words of rbdagent, or a phrase that was stated before: its parts are merged.
        arguments: by name, what others named or wrote, or what was measured; a tuple or a list has
            several values.
    """
    return _merged(_parts(template, iter(words), arguments))


def joined(phrases: Iterable[Words], joint: str = " ") -> Statement:
    """Return phrases as one, with words between them."""
    parts: list[str | Argument] = []
    for number, phrase in enumerate(phrases):
        parts += [joint] if number else []
        parts += [phrase] if isinstance(phrase, str) else phrase.parts
    return _merged(parts)


def _parts(
    template: str, words: Iterator[Words], arguments: dict[str, object]
) -> Iterator[str | Argument]:
    for text, name, form, _ in Formatter().parse(template):
        yield text
        if name:
            yield Argument(name, _values(arguments[name]), _JOINTS[form or ""])
        elif name is not None:
            phrase = next(words)
            yield from (phrase,) if isinstance(phrase, str) else phrase.parts


def _values(given: object) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, (tuple, list)) else (str(given),)


def _merged(parts: Iterable[str | Argument]) -> Statement:
    """Return parts as a statement, without empty ones: texts that follow one another are one."""
    merged: list[str | Argument] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, str) and isinstance(last, str):
            merged[-1] = last + part
        elif str(part):
            merged.append(part)
    return Statement(tuple(merged))
