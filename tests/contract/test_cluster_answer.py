"""The answers of ``diagnose -A`` as text, over recorded and generated clusters."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from rbdagent.lifecycle.cluster_report import is_complete, report_cluster
from rbdagent.lifecycle.urgency import Urgency, by_urgency
from rbdagent.model import ClusterReport, Snapshot, SourceState, Target, TargetKind
from rbdagent.parse.shown import shown
from rbdagent.report.snapshot import load_snapshot
from rbdagent.report.text.cluster import affected_table, next_commands, node_findings
from rbdagent.report.text.layout import Layout
from tests.lab.many import many
from tests.support.cli_runner import ROOT
from tests.support.hostile_texts import TURNED, is_clean
from tests.support.sample_pages import SCENES, named

WHOLE: Final = Target(argument="-A", kind=TargetKind.NONE)
_FILES: Final = {
    path.stem: path
    for path in (
        *sorted((ROOT / "examples").glob("*.json")),
        *sorted((ROOT / "tests" / "fixtures" / "life").glob("*.json")),
    )
}
_MADE: Final = {
    "healthy": SCENES["in-use"],
    "broken": lambda: many(volumes=60, broken=24, seed=3).snapshot,
    "many-broken": lambda: many(volumes=600, broken=300, seed=3).snapshot,
    "documented": lambda: many(volumes=60, broken=16, seed=3).snapshot,
    "longest-names": lambda: named("n" * 253),
    "hostile-names": lambda: named(f"{TURNED}<script>\n"),
    "without-api": SCENES["without-api"],
}
NAMES: Final = (*_FILES, *_MADE)
_COMMAND: Final = re.compile(r"  (?:-> |rbdagent diagnose )")
"""The beginning of a line to copy, which is never cut."""


@functools.cache
def loaded(name: str) -> tuple[ClusterReport, Snapshot]:
    """Return a recording as the snapshot of a cluster, and what is stuck in it."""
    if name in _FILES:
        snapshot = load_snapshot(Path(_FILES[name]).read_text(), where=name)
    else:
        snapshot = _MADE[name]()
    snapshot = replace(snapshot, target=WHOLE)
    return report_cluster(snapshot), snapshot


def text_of(name: str, width: int = 80, *, details: bool = False) -> str:
    return affected_table(*loaded(name), Layout(width=width, details=details))


every_name = pytest.mark.parametrize("name", NAMES)
every_width = pytest.mark.parametrize("width", [40, 80, 120, 200])


# --------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------


@every_width
@every_name
def test_no_line_is_longer_than_the_width(name: str, width: int) -> None:
    """A word of a reason, such as a path, may be longer: it has a line without other words."""
    long = [line for line in text_of(name, width).splitlines() if len(line) > width]
    assert [line for line in long if not _COMMAND.match(line) and len(line.split()) > 1] == []


@every_name
def test_first_line_is_the_answer(name: str) -> None:
    found, snapshot = loaded(name)
    first = " ".join(text_of(name, 200).partition("\n\n")[0].split())
    if found.causes:
        least = "" if is_complete(found) else "At least "
        assert re.match(rf"{least}{len(found.stuck)} volumes? needs? attention: ", first)
        counts = [*map(int, re.findall(r"\d+", first))]
        assert sum(counts[1:]) == counts[0]
    sources = [source for _, source in snapshot.sources.named]
    is_seen = all(source.state is SourceState.OBSERVED and not source.gaps for source in sources)
    assert not first.startswith("OK") or not found.causes
    assert not first.startswith("OK:") or is_seen


@every_width
@every_name
def test_every_urgent_object_has_a_row(name: str, width: int) -> None:
    found, snapshot = loaded(name)
    groups = by_urgency(found, snapshot.kubernetes)
    text = text_of(name, width)
    assert ("DATA AT RISK" in text) is bool(groups[Urgency.AT_RISK])
    assert ("BLOCKED" in text) is bool(groups[Urgency.BLOCKED])
    for urgency, causes in groups.items():
        for cause in causes:
            codes = {affected.finding.code for affected in cause}
            limit = urgency is Urgency.LEFTOVER or len(found.stuck) > 20
            assert limit or all(f"  {code}\n" in text for code in codes)


@every_name
def test_details_have_every_object_and_message(name: str) -> None:
    found, _ = loaded(name)
    text = text_of(name, details=True)
    words = " ".join(text.split())
    rows = re.findall(r"^  \S.*  (RBD\d{3})$", text, re.MULTILINE)
    codes = [affected.finding.code for affected in found.stuck]
    assert sorted(rows) == sorted([*codes, *(finding.code for finding in node_findings(found))])
    for cause in found.causes:
        assert " ".join(shown(cause.finding.message).split()) in words


@every_name
def test_next_commands_only_read(name: str) -> None:
    found, _ = loaded(name)
    assert not [given for given in next_commands(found) if given.changes]
    assert bool(next_commands(found)) is bool(found.causes)


@every_name
def test_text_has_no_unsafe_characters(name: str) -> None:
    assert is_clean(text_of(name))
    assert is_clean(text_of(name, details=True))


def test_narrow_rows_have_words_and_wide_rows_have_sentences() -> None:
    assert "  Client blocklisted  " in text_of("broken", 80)
    assert "  The node's Ceph client is on the blocklist: the mapping is unusable  " in text_of(
        "broken", 200
    )


def test_document_quotes_the_current_answer() -> None:
    text = text_of("documented", 100)
    assert f"```\n{text}```\n" in (ROOT / "docs" / "diagnose.md").read_text()
