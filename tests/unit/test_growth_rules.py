"""RBD775 to RBD777: claims that were enlarged, and the step that is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.rows import each_row
from tests.support.rule_rows.growth import (
    CHECKSUM,
    DENIED,
    NOT_REPORTED,
    REPORTED,
    UNREADABLE,
    node_fails,
)
from tests.support.rule_tables import not_reported_rows, problem_codes, reported_rows
from tests.support.snapshots import codes, found

if TYPE_CHECKING:
    from rbdagent.model import Snapshot


@each_row(("code", "seen", "beside"), reported_rows(REPORTED))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert "None" not in finding.message
    assert problem_codes(seen) - {code} == beside


@each_row(("code", "seen"), not_reported_rows(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


def test_growth_of_a_static_volume_is_made_by_hand() -> None:
    finding = found(REPORTED["RBD776"]["a static PV"][0], "RBD776")
    assert "the handle my-image of" in finding.message
    assert str(finding.remedy).startswith("Grow the image with `rbd resize`")


@each_row(
    ("text", "words"),
    [
        (CHECKSUM, "The data is not damaged"),
        (DENIED, "Rights are not the cause"),
        (UNREADABLE, "may be on the blocklist"),
        ("out of luck", "out of luck"),
    ],
)
def test_error_of_the_tool_is_translated_or_quoted(text: str, words: str) -> None:
    assert words in found(node_fails(text), "RBD777").message
