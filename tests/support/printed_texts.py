"""The texts that rbdagent and its plugin can print: their literals, with … in place of a value."""

from __future__ import annotations

import ast
import functools
import re
from typing import TYPE_CHECKING, Final

from release import plugin
from tests.support.cli_runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUE: Final = "…"
_FIELD: Final = re.compile(r"\{\w*(?::and|:;)?\}")
"""A value of ``str.format``, or an argument of a statement."""
_VARIABLE: Final = re.compile(r"\$\([^)]*\)|\$\{[^}]*\}|\$\w+")


@functools.cache
def printed_texts() -> tuple[str, ...]:
    """Return the literals of the program, and the lines of the plugin."""
    sources = sorted((ROOT / "rbdagent").rglob("*.py"))
    of_program = [text for path in sources for text in _literals(ast.parse(path.read_text()))]
    return (*of_program, *_VARIABLE.sub(_VALUE, plugin.whole()).splitlines())


def _literals(tree: ast.AST) -> Iterator[str]:
    """Yield each string of a module, except docstrings."""
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.JoinedStr():
                yield "".join(_part(part) for part in node.values)
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield _FIELD.sub(_VALUE, text)


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else _VALUE
