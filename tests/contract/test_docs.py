"""The commands in the documents exist, and the links lead to files and headings."""

from __future__ import annotations

import functools
import re
import shlex
from typing import TYPE_CHECKING, Final

import click
import pytest

from rbdagent.cli import cli
from tests.documents.site import LINK, slug
from tests.support.cli_runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENTS: Final = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "stories").glob("*.md")),
)
OF_THE_PLUGIN: Final = {"--node", "--agent-namespace", "--context", "--kubeconfig"}

_BLOCK: Final = re.compile(r"^ *```(?:console|sh)?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_SPAN: Final = re.compile(r"`((?:kubectl )?rbdagent [^`]+)`")
_CALL: Final = re.compile(r"(?:^|^\$ |^ *|-- )(kubectl )?rbdagent ((?!\S*=)[a-z].*)$")
_HEADING: Final = re.compile(r"^ *```.*?^ *```$|^#+ (?P<text>[^\n]+)$", re.DOTALL | re.MULTILINE)


def test_links_lead_to_files_and_headings() -> None:
    """In one test, because --quick runs a few rows of a table."""
    folders = (ROOT / "docs", ROOT / "tests")
    documents = {*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))}
    assert {
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in _broken_links(document)
    } == set()


def _broken_links(document: Path) -> Iterator[str]:
    for found in LINK.finditer(document.read_text()):
        target = found["target"]
        if target is None or ":" in target:
            continue
        path, _, anchor = target.partition("#")
        there = document.parent / path if path else document
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            yield target


@functools.cache
def _anchors(document: Path) -> set[str]:
    headings = _HEADING.finditer(document.read_text())
    return {slug(found["text"]) for found in headings if found["text"] is not None}


def test_broken_links_are_found(tmp_path: Path) -> None:
    """A link in code is text; a line with # in a block is no heading."""
    document = tmp_path / "a.md"
    document.write_text(
        "# All of it: `diagnose -A`\n\n```\n# no heading\n[a](b.md)\n```\n"
        "`[a](c.md)` [a](#all-of-it-diagnose--a) [a](a.md) [a](https://example.com/#a)\n"
        '[a](d.md) [`a`](#no-heading) [a](a.md#b) <img src="e.png">\n'
    )
    assert [*_broken_links(document)] == ["d.md", "#no-heading", "a.md#b", "e.png"]


def _commands(block: str) -> list[str]:
    """Return the lines of a block that are commands: with a prompt in it, the others are output."""
    lines = block.splitlines()
    return [line for line in lines if line.lstrip().startswith("$ ")] or lines


def _calls(document: Path) -> Iterator[tuple[bool, list[str]]]:
    """Yield each call of rbdagent in a document: whether kubectl runs it, and its words."""
    text = document.read_text()
    lines = [line for block in _BLOCK.findall(text) for line in _commands(block)]
    for line in (*lines, *_SPAN.findall(text)):
        found = _CALL.search(line)
        if found is not None:
            words = shlex.split(found[2].replace("…", ""), comments=True)
            yield found[1] is not None, words


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documented_verbs_and_flags_exist(document: Path) -> None:
    for by_kubectl, (verb, *words) in _calls(document):
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None, verb
        known = {name for option in command.params for name in option.opts}
        if by_kubectl:
            known |= OF_THE_PLUGIN
        ours = words[: words.index("|")] if "|" in words else words
        flags = {word.partition("=")[0] for word in ours if re.match(r"--?[a-zA-Z]", word)}
        assert flags <= known, (verb, *words)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_pip_installs_into_a_virtual_environment(document: Path) -> None:
    """Outside of one, current distributions refuse pip: PEP 668, externally-managed-environment."""
    for block in _BLOCK.findall(document.read_text()):
        assert list(_pips_without_environment(block.splitlines())) == []


def _pips_without_environment(lines: list[str]) -> Iterator[str]:
    """Yield the calls of pip that come before the block makes or enters an environment."""
    made: set[str] = set()
    entered = False
    for line in lines:
        words = line.partition("#")[0].split()
        if words[1:3] == ["-m", "venv"]:
            made.add(words[-1])
        entered |= words[:1] == ["."] and words[-1].removesuffix("/bin/activate") in made
        program = words[0] if words else ""
        is_known = program.removesuffix("/bin/pip") in made or (program == "pip" and entered)
        if program.endswith("pip") and not is_known:
            yield line


def test_a_pip_outside_of_a_virtual_environment_is_found() -> None:
    makes = "python3 -m venv --system-site-packages .venv"
    assert list(_pips_without_environment(["pip install ."])) == ["pip install ."]
    assert list(_pips_without_environment([makes, "pip install ."])) == ["pip install ."]
    assert list(_pips_without_environment([makes, "other/bin/pip install ."])) != []
    assert list(_pips_without_environment([makes, ".venv/bin/pip install ."])) == []
    assert list(_pips_without_environment([makes, ". .venv/bin/activate", "pip install ."])) == []


def test_there_are_calls_to_check() -> None:
    assert sum(1 for document in DOCUMENTS for _ in _calls(document)) > 30
