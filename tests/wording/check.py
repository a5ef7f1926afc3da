"""Find words that the project does not use: in output, documentation, docstrings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS: Final = Path(__file__).with_name("words.toml")
_TEXTS: Final = {tokenize.COMMENT, tokenize.STRING}
_HAS_DOCSTRING: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Rule(NamedTuple):
    """A pattern that must not match, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


class Match(NamedTuple):
    """A place where a rule matches."""

    line: int
    text: str
    instead: str


class Rules(NamedTuple):
    """The content of ``words.toml``."""

    words: tuple[Rule, ...]
    first_words: Rule
    """For the beginning of a docstring."""


def load(path: Path = WORDS) -> Rules:
    """Read the rules from a TOML file."""
    data = tomllib.loads(path.read_text())
    first = data["first_words"]
    return Rules(
        words=tuple(Rule(_across_lines(word["pattern"]), word["write"]) for word in data["word"]),
        first_words=Rule(re.compile(rf"({'|'.join(first['words'])})\b"), first["write"]),
    )


def _across_lines(pattern: str) -> re.Pattern[str]:
    """Return a pattern that also matches where a space of it is a line break of the text."""
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)


def matches_in(name: str, text: str, rules: Rules) -> Iterator[Match]:
    """Yield each place of a file where a rule matches.

    Args:
        name: the file's name; of Python only comments, strings and docstrings are read.
        text: its content.
        rules: what must not match.
    """
    if not name.endswith(".py"):
        yield from _in_text(text, 1, rules)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TEXTS:
            yield from _in_text(token.string, token.start[0], rules)
    for line, docstring in _docstrings(text):
        if rules.first_words.pattern.match(docstring):
            yield Match(line, docstring.partition("\n")[0], rules.first_words.instead)


def _in_text(text: str, first_line: int, rules: Rules) -> Iterator[Match]:
    for rule in rules.words:
        for found in rule.pattern.finditer(text):
            before = text[: found.start()]
            start = before.rfind("\n") + 1
            line = text[start:].partition("\n")[0].strip()
            yield Match(first_line + before.count("\n"), f"{found[0]}: {line}", rule.instead)


def _docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _HAS_DOCSTRING) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring
