"""Comments and docstrings that mention a version cite the source of the fact."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(__file__).parents[2] / "rbdagent"
FOLDERS: Final = ("collect", "rules", "unmap", "verdicts")
VERSION: Final = re.compile(r"\b(?:Linux|[Kk]ernel|Kubernetes|Ceph|ceph-csi) v?\d+\.\d+")
CITATION: Final = re.compile(
    r"#\d+|\bcommit [0-9a-f]{8,}|\w\.(?:cc|c|go|hpp|h|pyx|py)\b|\brecording |\btracker |\bCVE-\d+"
)


def _texts(source: str) -> Iterator[str]:
    """Yield each docstring, also those of attributes, and each block of comment lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [
        (token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT
    ]
    blocks = groupby(enumerate(comments), key=lambda entry: entry[1][0] - entry[0])
    for _, block in blocks:
        yield "\n".join(text for _, (_, text) in block)


def _without_source(source: str) -> list[str]:
    return [text for text in _texts(source) if VERSION.search(text) and not CITATION.search(text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_version_in_a_comment_has_a_citation(folder: str) -> None:
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert files
    assert [(file.name, text) for file in files for text in _without_source(file.read_text())] == []


@pytest.mark.parametrize(
    "source",
    ['"""Since Linux 5.5."""', 'x = 1\n"""Since Kubernetes 1.36."""', "# Ceph 17.2\n\n# a.c\n"],
)
def test_version_without_a_citation_is_found(source: str) -> None:
    assert len(_without_source(source)) == 1


def test_citation_in_the_same_comment_is_enough() -> None:
    source = '"""Since Linux 5.5 (commit b9ef2b8858a0)."""\n# Ceph 17.2\n# (src/mon/MonCap.cc).\n'
    assert _without_source(source) == []
