"""Random inputs from recorded ones: pieces are changed, moved, repeated and invented."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

LONGEST: Final = 16384
"""Most characters of an input, the same as of a log line (`rbdagent.parse.logs.LONGEST`)."""
_MOST_PIECES: Final = 400
_ODD: Final[tuple[str, ...]] = (
    *("", " ", "  ", "\t", "\n", "\r", "\v", "\f", "\0", "\x1b[31m", "\x7f", "\x85", "\u2028"),
    *("\u202e", "é", "\u017f", "\u0130", "٣", "\U0001f600", "\ufeff", "\udcff", "\udce9\udc80"),
    *("0", "-1", "00", "1_0", "0x", "0b1", "1e9", "1e999", "1e-999", "nan", "inf", "9" * 19),
    *("9" * 40, "9" * 400, "9" * 5000, "Infinity", "null", "true", "None"),
    *"\"'`\\/|;:,.=-+_@#%&*?!~^$<>()[]{}",
    *("--", "==", "://", "\\\\", '\\"', "\\'", "\\n", "\\040", "\\777", "\\u0000", "\\ud800"),
    *("$(", "${IFS}", "''", '""', "[[", "]]", "{{", "}}", "/../", "*/", "%s", "%00", "<<<"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00", "Feb 29 00:00:00", "0229 23:59:60"),
)
_TOKEN: Final = re.compile(r"\w+|\W")


class Texts:
    """Texts that resemble samples."""

    def __init__(self, samples: Sequence[str], pieces: Sequence[str] = ()) -> None:
        tokens: dict[str, None] = {}
        for sample in samples:
            tokens |= dict.fromkeys(_TOKEN.findall(sample))
        self._samples = tuple(samples)
        self._pieces: tuple[str, ...] = (*_ODD, *pieces, *tuple(tokens)[:_MOST_PIECES])

    def draw(self, chance: random.Random) -> str:
        """Return a text, usually short; a long repetition shows a cost that grows too fast."""
        way = chance.random()
        if way < 0.75:
            text = chance.choice(self._samples)
            for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5))):
                text = chance.choice(_CHANGES)(text, self, chance)
        elif way < 0.95:
            text = "".join(self.piece(chance) for _ in range(chance.randrange(1, 30)))
        else:
            text = "".join(self.piece(chance) for _ in range(chance.randrange(1, 4)))
            times = (2 << chance.randrange(14)) // max(len(text), 1) + 1
            text = self.piece(chance) + text * times + self.piece(chance)
        return text[:LONGEST]

    def piece(self, chance: random.Random) -> str:
        """Return a token of a sample or an odd string."""
        return chance.choice(self._pieces)

    def sample(self, chance: random.Random) -> str:
        """Return an unchanged sample."""
        return chance.choice(self._samples)


def _span(text: str, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(text) + 1)
    return begin, min(begin + int(chance.expovariate(0.2)), len(text))


def _remove(text: str, _: Texts, chance: random.Random) -> str:
    begin, end = _span(text, chance)
    return text[:begin] + text[end:]


def _replace(text: str, texts: Texts, chance: random.Random) -> str:
    begin, end = _span(text, chance)
    return text[:begin] + texts.piece(chance) + text[end:]


def _insert(text: str, texts: Texts, chance: random.Random) -> str:
    begin, _ = _span(text, chance)
    return text[:begin] + texts.piece(chance) + text[begin:]


def _repeat(text: str, _: Texts, chance: random.Random) -> str:
    begin, end = _span(text, chance)
    return text[:begin] + text[begin:end] * chance.randrange(2, 9) + text[end:]


def _cut(text: str, _: Texts, chance: random.Random) -> str:
    return text[: chance.randrange(len(text) + 1)]


def _splice(text: str, texts: Texts, chance: random.Random) -> str:
    other = texts.sample(chance)
    return text[: chance.randrange(len(text) + 1)] + other[chance.randrange(len(other) + 1) :]


_CHANGES: Final[tuple[Callable[[str, Texts, random.Random], str], ...]] = (
    _remove,
    _replace,
    _insert,
    _repeat,
    _cut,
    _splice,
)


class Trees:
    """JSON that resembles samples: values, fields and elements change, the text rarely."""

    def __init__(self, samples: Sequence[str]) -> None:
        self._trees = tuple(json.loads(sample) for sample in samples)
        self._texts = Texts(samples)

    def draw(self, chance: random.Random) -> str:
        """Return a JSON text."""
        tree = chance.choice(self._trees)
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            tree = self._changed(tree, chance)
        text = json.dumps(tree, ensure_ascii=False)
        if chance.random() < 0.1:
            text = chance.choice(_CHANGES)(text, self._texts, chance)
        return text

    def _changed(self, tree: Any, chance: random.Random) -> Any:  # noqa: ANN401 - any JSON
        """Return a tree with one change at a random place."""
        if not tree or not isinstance(tree, dict | list) or chance.random() < 0.1:
            return self._value(chance)
        key: Any = chance.choice(list(tree)) if isinstance(tree, dict) else None
        if isinstance(tree, list):
            key = chance.randrange(len(tree))
        way = chance.random()
        changed = tree.copy()
        if way < 0.1:
            del changed[key]
        elif way < 0.15 and isinstance(changed, dict):
            changed[self._texts.piece(chance)] = changed.pop(key)
        elif way < 0.2 and isinstance(changed, list):
            changed *= 2
        else:
            changed[key] = self._changed(tree[key], chance)
        return changed

    def _value(self, chance: random.Random) -> Any:  # noqa: ANN401 - any JSON
        return chance.choice(
            (
                *(None, True, False, 0, -1, 0.5, 1e308, 10**30, 10**400, "", [], {}, [None]),
                *([[]], {"": None}, ["a", 1], self._texts.piece(chance), self._texts.piece(chance)),
                chance.choice(self._trees),
            )
        )


def small(tree: Any, most: int = 2) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON with shortened lists: it is as varied but costs less."""
    if isinstance(tree, dict):
        return {key: small(value, most) for key, value in tree.items()}
    return [small(value, most) for value in tree[:most]] if isinstance(tree, list) else tree
