"""docs/binding.md and its picture show the current state machine."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rbdagent.binding import EDGES
from tests.documents.binding import DOCUMENT, PICTURE, drawn_today, with_current_text
from tests.support.cli_runner import ROOT, process


def test_picture_shows_the_current_edges() -> None:
    assert PICTURE.read_text() == drawn_today(), "review the change, then run ./dev docs"


def test_picture_is_well_formed_and_has_every_code() -> None:
    root = ET.fromstring(PICTURE.read_text())  # noqa: S314 - the text is this project's
    text = " ".join(root.itertext())
    codes = {code for edge in EDGES for code in (*edge.taken, *edge.stuck)}
    assert {code for code in codes if code not in text} == set()


def test_document_quotes_the_current_text() -> None:
    text = DOCUMENT.read_text()
    assert with_current_text(text) == text, "review the change, then run ./dev docs"
    assert f"]({PICTURE.name})" in text


def test_document_is_linked_from_the_lifecycle() -> None:
    assert f"]({DOCUMENT.name})" in (ROOT / "docs" / "diagnose.md").read_text()


def test_topic_may_be_typed_in_capitals() -> None:
    assert process("explain", "BINDING").stdout == process("explain", "binding").stdout
