"""What tenants wrote is quoted in every sentence of every rule, and cannot finish the sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import KubeEvent, LogEntry, Mount, OpenFile, Pod, ProcessRef
from rbdagent.parse.foreign import foreign, foreign_at, foreign_name
from tests.support.hostile_texts import is_clean
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
)
"""Types, and their field with the text of a tenant or of a program that a tenant can influence."""
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


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
        if isinstance(value, kind) and changed[field]:
            changed[field] += FORGERY
    if isinstance(value, Mount) and not value.namespace.is_host:
        changed["path"] += FORGERY
    return replace(value, **changed)


def sentences(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield all prose of a diagnosis."""
    for holder in diagnosis.holders:
        yield from holder.reasons
    for finding in diagnosis.findings:
        yield from (finding.subject, finding.message, *finding.evidence, str(finding.remedy))


@pytest.mark.parametrize("seen", rows())
def test_no_text_of_a_tenant_is_outside_of_quotes(seen: Snapshot) -> None:
    snapshot = forged(seen)
    diagnosis = lifecycle_of(correlate(snapshot), snapshot).diagnosis
    outside = [text for text in sentences(diagnosis) if MARK in _QUOTED.sub("", text)]
    assert outside == []


@given(st.text())
def test_a_quoted_text_ends_at_its_last_quote(text: str) -> None:
    quoted = foreign(text)
    assert is_clean(quoted)
    assert _QUOTED.fullmatch(quoted)
    _, end = foreign_at(f'({quoted}) and "more"', 1) or ("", 0)
    assert end == len(quoted) + 1


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=299))
def test_a_text_without_invisible_characters_is_read_back(text: str) -> None:
    assert foreign_at(foreign(text), 0) == (text, len(foreign(text)))


@pytest.mark.parametrize("name", ["sleep", "/usr/bin/app-1.2", "[jbd2/rbd0-8]", "ld+x", "a_b@c"])
def test_a_plain_name_is_not_quoted(name: str) -> None:
    assert foreign_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "app)", "done.", "x;", 'a"b', "caf\u00e9\u202e", "a" * 301]
)
def test_a_name_that_reads_like_prose_is_quoted(name: str) -> None:
    assert _QUOTED.fullmatch(foreign_name(name))
