"""The commands that answers print, for every recorded node and for saved and built snapshots.

They differ mostly in names. A shape is a command without its names: a test can type one command of
each shape.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
from typing import TYPE_CHECKING, Final
from unittest import mock

from rbdagent import commands
from rbdagent.correlate import correlate, correlate_node
from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import UnmapPlan
from rbdagent.report.html.page import page
from rbdagent.report.snapshot import load_snapshot
from rbdagent.report.text.cluster import affected_table
from rbdagent.report.text.holders import answer
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.lifecycle import story
from rbdagent.report.text.mappings import mapping_table
from rbdagent.report.text.runbook import runbook
from rbdagent.report.text.unmap import unmap_refusal
from rbdagent.rules import diagnose
from tests.support.cli_runner import ROOT
from tests.support.printed_texts import printed_texts
from tests.support.recordings import recorded_claims, recorded_nodes, recorded_snapshot
from tests.support.rule_rows.families import FAMILIES
from tests.support.unmap_plans import planned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rbdagent.model import Command, Snapshot

PLUGIN: Final = ("kubectl", "rbdagent")
"""The words that start rbdagent on a user's machine."""
_PART: Final = re.compile(r"[^\s/=@:,|*\"'{}\[\]()]+")
_CODE: Final = re.compile(r"RBD\d+")
_READ: Final = """\
command_not_found_handle() { printf '%s\\036' "$@"; printf '\\035'; }
"""
"""Bash calls this function with the words of a command whose program is not on PATH."""
_SAVED: Final = ("examples", "tests/fixtures/life")


def recorded_snapshots(root: Path) -> Iterator[Snapshot]:
    """Yield a snapshot of every volume of every recording, from each recorded node.

    Args:
        root: an empty directory for the files of the nodes.
    """
    for recording, node in recorded_nodes():
        for claim in recorded_claims(recording):
            place = root / recording / node / claim
            yield recorded_snapshot(recording, claim, node_name=node, root=place)


def saved_snapshots() -> Iterator[Snapshot]:
    """Yield the examples, and the recorded states of clusters."""
    for directory in _SAVED:
        for file in sorted((ROOT / directory).glob("*.json")):
            yield load_snapshot(file.read_text(), where=file.name)


def built_snapshots() -> Iterator[Snapshot]:
    """Yield the snapshots of the tests of rules: at least one for each finding."""
    for family in FAMILIES:
        for rows in family.REPORTED.values():
            for row in rows.values():
                yield row[0] if isinstance(row, tuple) else row


def printed_commands(snapshots: Iterable[Snapshot], program: tuple[str, ...]) -> dict[Command, str]:
    """Return the commands that all answers about the snapshots print, each with its line.

    Args:
        snapshots: what was observed.
        program: the words that start rbdagent where the answers are read.
    """
    layout = Layout(program=program, details=True)
    with _formatted_commands() as found:
        for snapshot in snapshots:
            for text in _answers(snapshot, layout):
                assert text
    return {command: commands.line_of(command) for command in found}


def _answers(snapshot: Snapshot, layout: Layout) -> Iterator[str]:
    """Yield the text of each verb that prints commands."""
    volume = correlate(snapshot)
    diagnosis = diagnose(volume, snapshot)
    yield answer(diagnosis, snapshot, layout)
    yield story(lifecycle_of(volume, snapshot), snapshot, layout)
    yield page(lifecycle_of(volume, snapshot), snapshot, layout.program)
    yield runbook(volume, layout)
    mapped = [diagnose(volume, snapshot) for volume in correlate_node(snapshot)]
    yield mapping_table(mapped, snapshot, layout)
    yield affected_table(report_cluster(snapshot), snapshot, layout)
    if diagnosis.holders:
        for decided_after in (None, 1.0):
            decided = planned(snapshot, decided_after=decided_after)
            if not isinstance(decided, UnmapPlan):
                yield unmap_refusal(decided, layout)


@contextlib.contextmanager
def _formatted_commands() -> Iterator[dict[Command, None]]:
    """Yield a dict that gets every command that is formatted as text during the block."""
    found: dict[Command, None] = {}
    text_of = commands.text_of

    def formatted(given: Command) -> str | None:
        found[given] = None
        return text_of(given)

    with mock.patch.object(commands, "text_of", formatted):
        yield found


def shapes(printed: Iterable[Command]) -> dict[tuple[str, ...], Command]:
    """Return one command of each shape: the words, with ``NAME`` in place of each name."""
    return {_shape(command): command for command in printed}


def _shape(command: Command) -> tuple[str, ...]:
    def known(part: re.Match[str]) -> str:
        is_literal = part[0] in _vocabulary() and not _CODE.fullmatch(part[0])
        return part[0] if is_literal else "NAME"

    return tuple(_PART.sub(known, word) for word in command.argv)


@functools.cache
def _vocabulary() -> frozenset[str]:
    """Return the parts of all literals of the program: a part of a word that is none is a name."""
    return frozenset(part for text in printed_texts() for part in _PART.findall(text))


def words_in_bash(lines: Iterable[str]) -> list[list[str]]:
    """Return the words of each line as bash reads them; no program is run.

    Args:
        lines: without control characters.
    """
    done = subprocess.run(
        ["/bin/bash", "--norc"],
        input="\n".join((_READ, *lines, "")),
        env={"PATH": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [words.split("\x1e")[:-1] for words in done.stdout.split("\x1d")[:-1]]
