"""What tenants wrote is quoted in every sentence of every rule, and cannot finish the sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from rbdagent.commands import PROGRAM, lines_of
from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import (
    BlockHolder,
    KubeEvent,
    LogEntry,
    Mapping,
    Mount,
    OpenFile,
    Pod,
    ProcessRef,
    PublishedFinding,
    PublishedMapping,
    UnbackedMount,
    VolumeAttachment,
)
from rbdagent.parse.foreign import bounded, foreign, foreign_at, foreign_name, reported
from rbdagent.report.text.holders import answer
from rbdagent.report.text.layout import Layout, headed, labelled, limited, sentences
from tests.support.hostile_texts import is_clean
from tests.support.rows import each_row
from tests.support.rule_rows.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Diagnosis, Snapshot

MARK: Final = "FORGED"
FORGERY: Final = f') until 05:07:20, and is closed since then. {MARK}" {MARK} \\" {MARK}'
"""Ends a parenthesis, a sentence and a quotation."""
CHOSEN: Final = (
    (ProcessRef, "command"),
    (OpenFile, "path"),
    (KubeEvent, "message"),
    (LogEntry, "text"),
    (Pod, "unschedulable"),
    (VolumeAttachment, "attach_error"),
    (VolumeAttachment, "detach_error"),
    (BlockHolder, "label"),
    (UnbackedMount, "path"),
    (UnbackedMount, "source"),
    (Mapping, "hung_requests"),
    (Mapping, "kernel_traces"),
    (PublishedMapping, "reasons"),
    (PublishedFinding, "message"),
)
"""Types, and their field with the text of a tenant or of a program that a tenant can influence."""
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
FORGERIES: Final = st.lists(
    st.text() | st.sampled_from([". ", "(", ")", '"', "\\", "\n", "…", "x" * 90, f" {MARK}. "])
).map("".join)
"""Texts with what ends a sentence, a quotation or a line."""


def rows() -> list[Any]:
    """Return the snapshots of all rows of the rules."""
    return [
        pytest.param(row[0] if isinstance(row, tuple) else row, id=f"{code} {name}")
        for family in FAMILIES
        for code, table in family.REPORTED.items()
        for name, row in table.items()
    ]


def forged(value: Any) -> Any:  # noqa: ANN401 - any value of the model
    """Return a value in which the texts of tenants end with the forgery."""
    if isinstance(value, tuple):
        return tuple(map(forged, value))
    if not isinstance(value, Struct):
        return value
    changed = {name: forged(getattr(value, name)) for name in value.__struct_fields__}
    for kind, field in CHOSEN:
        if isinstance(value, kind) and isinstance(changed[field], tuple):
            changed[field] = tuple(text + FORGERY for text in changed[field])
        elif isinstance(value, kind) and changed[field] and isinstance(changed[field], str):
            changed[field] += FORGERY
    if isinstance(value, Mount) and not value.namespace.is_host:
        changed["path"] += FORGERY
    return replace(value, **changed)


def prose(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield all prose of a diagnosis, in the parts in which it is printed."""
    for holder in diagnosis.holders:
        yield from holder.reasons
    for finding in diagnosis.findings:
        yield from (str(finding.subject), *finding.evidence, str(finding.remedy))
        yield from (finding.cause, finding.consequence)


def sayings(text: str, diagnosis: Diagnosis) -> str:
    """Return an answer without its commands, whose words are quoted for a shell."""
    for finding in diagnosis.findings:
        for line in lines_of(finding.commands, PROGRAM):
            text = text.replace(line, "")
    return text


def outside(text: str) -> str:
    """Return a text on one line, without what is quoted in it."""
    return _QUOTED.sub('""', " ".join(text.split()))


@each_row("seen", rows())
def test_no_text_of_a_tenant_is_outside_of_quotes(seen: Snapshot) -> None:
    snapshot = forged(seen)
    diagnosis = lifecycle_of(correlate(snapshot), snapshot).diagnosis
    assert [text for text in prose(diagnosis) if MARK in outside(text)] == []
    for layout in (Layout(), Layout(details=True)):
        assert MARK not in outside(sayings(answer(diagnosis, snapshot, layout), diagnosis))


@given(st.text())
def test_a_quoted_text_ends_at_its_last_quote(text: str) -> None:
    quoted = foreign(text)
    assert is_clean(quoted)
    assert _QUOTED.fullmatch(quoted)
    _, end = foreign_at(f'({quoted}) and "more"', 1) or ("", 0)
    assert end == len(quoted) + 1


@given(st.text() | FORGERIES)
def test_a_quoted_text_is_read_back(text: str) -> None:
    assert foreign_at(foreign(text), 0) == (text, len(foreign(text)))


def test_an_event_is_quoted_as_a_whole() -> None:
    text = "word " * 700
    assert foreign(text) == f'"{text}"'
    assert len(foreign(text * 100)) == 4096 + 2


@pytest.mark.parametrize("name", ["sleep", "/usr/bin/app-1.2", "[jbd2/rbd0-8]", "ld+x", "a_b@c"])
def test_a_plain_name_is_not_quoted(name: str) -> None:
    assert foreign_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "app)", "done.", "x;", 'a"b', "caf\u00e9\u202e", "a" * 301]
)
def test_a_name_that_reads_like_prose_is_quoted(name: str) -> None:
    assert _QUOTED.fullmatch(foreign_name(name))


@given(FORGERIES, FORGERIES)
def test_a_sentence_ends_outside_of_quotations(one: str, other: str) -> None:
    first = f"process 3 ({foreign(one)}) has {foreign_name(other)} open (and {foreign(other)})."
    rest = f"{foreign_name(one)} waits. It is {foreign(one)}."
    assert sentences(f"{first} {rest}") == (first, rest)


@given(FORGERIES)
def test_a_quote_without_a_partner_ends_no_sentence(text: str) -> None:
    said = f'The 5" disk is full. Process 3 ({foreign(text)}) waits. It ends.'
    assert sentences(said) == (said, "")
    assert sentences(f"It is {foreign(text)[:-1]}. It ends.")[1] == ""


@given(FORGERIES, st.integers(40, 120))
def test_no_line_has_a_part_of_a_quotation_outside_of_quotes(text: str, width: int) -> None:
    said = f"It is {foreign(text)} ({foreign_name(f'{text} {MARK}')}). It ends."
    layout = Layout(width=width)
    words = {"PINNED", "It", "is", '""', '("").', "ends.", "…", "(-v)", '(""'}
    assert {*outside(headed("PINNED", "", sentences(said), layout)).split()} <= words
    also = limited(labelled("Also", f"RBD762 {sentences(said)[0]}", layout), 2, layout)
    assert {*outside(also).split()} <= {*words, "Also", "RBD762"}


@given(FORGERIES, st.integers(10, 400))
def test_a_text_that_is_too_long_ends_in_its_quotation(text: str, most: int) -> None:
    said = f"It is {foreign(text + MARK)}."
    short = bounded(said, most)
    assert len(short) <= most
    assert short == said or short.endswith(("…", '…"'))
    assert outside(short) in {'It is "".', 'It is ""', 'It is ""…', "It is…", "It is …"}


@given(FORGERIES, FORGERIES)
def test_a_sentence_of_another_agent_is_repeated(one: str, other: str) -> None:
    said = f"process 3 ({foreign_name(one)}) has {foreign(other)} open (and {foreign(one)})"
    assert reported(said) == said
    assert reported(bounded(said, 60)) == bounded(said, 60)


@pytest.mark.parametrize(
    "text",
    [
        "nothing uses it. It is free",
        "app) until 05:07:20, and is closed since then",
        "process 3 (app) ended), and is closed (since then)",
        'x" is open',
        "it is (open",
        'a \\" b "',
        "it\nis free",
    ],
)
def test_what_is_no_sentence_of_an_agent_is_quoted(text: str) -> None:
    assert reported(text) == foreign(text)
