"""Label selectors have the same meaning as in kubectl."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.errors import ParseError
from rbdagent.parse.selector import parse_selector, selects

LABELS = {"app": "shop", "tier": "db", "example.com/owner": "", "in": "in"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        (" ", True),
        ("app", True),
        ("! app", False),
        ("!other", True),
        ("app=shop", True),
        ("app == shop", True),
        ("app=sho", False),
        ("app!=shop", False),
        ("other!=shop", True),
        ("app in (shop)", True),
        ("app in (web, shop ),tier=db", True),
        ("app in (web,shop),tier=web", False),
        ("app notin (web)", True),
        ("app notin (web,shop)", False),
        ("other notin (web)", True),
        ("other in (web)", False),
        ("example.com/owner=", True),
        ("example.com/owner in ()", True),
        ("example.com/owner!=", False),
        ("in in (in)", True),
    ],
)
def test_selector_selects_by_labels(text: str, selected: bool) -> None:  # noqa: FBT001
    assert selects(parse_selector(text), LABELS) is selected


@pytest.mark.parametrize(
    "text", ["app=shop,", ",", "=shop", "app=a b", "app in shop", "app in (a", "a/b/c=d", "app>3"]
)
def test_invalid_selector_is_a_parse_error_with_its_text(text: str) -> None:
    with pytest.raises(ParseError, match="KEY=VALUE") as caught:
        parse_selector(text)
    assert caught.value.text == text


@given(st.text())
def test_text_is_a_selector_or_a_parse_error(text: str) -> None:
    try:
        parse_selector(text)
    except ParseError as error:
        assert error.text == text


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.dictionaries(NAMES, NAMES))
def test_object_is_selected_by_all_its_labels(labels: dict[str, str]) -> None:
    assert selects(parse_selector(",".join(f"{key}={labels[key]}" for key in labels)), labels)
    assert selects(parse_selector(",".join(f"!x.y/{key}" for key in labels)), labels)
