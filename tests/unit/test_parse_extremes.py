"""Inputs that `./dev fuzz` found: each is parsed in a short time, or is a documented error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.config import parse_config
from rbdagent.errors import ParseError, UsageError
from rbdagent.parse.address import parse_client
from rbdagent.parse.krbd import parse_io_counters
from rbdagent.parse.kubernetes import event, lease, parse_object
from rbdagent.parse.quantity import parse_quantity
from rbdagent.parse.selector import parse_selector

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 2**63 - 1
META: Final = {"namespace": "n", "name": "a"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e333333", MOST),
        ("-1e333333", -MOST),
        ("1e9999999999999999999", MOST),
        ("1e-9999999999999999999", 1),
        ("0e9999999", 0),
        ("9" * 40, MOST),
        ("8Ei", MOST),
    ],
)
def test_quantity_has_63_bits(text: str, value: int) -> None:
    """Assert the limit of ParseQuantity (k8s.io/apimachinery, pkg/api/resource/quantity.go)."""
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_quantity("9" * 5000),
        lambda: parse_client("client" + "9" * 5000, where="here"),
        lambda: parse_io_counters("9" * 5000 + " 0" * 10, where="here"),
        lambda: parse_object(
            lease, {"metadata": META, "spec": {"leaseDurationSeconds": 10**400}}, what="a lease"
        ),
        lambda: parse_object(event, {"metadata": META, "count": float("inf")}, what="an event"),
        # A former pattern backtracked: each comma doubled the number of ways to match the spaces.
        lambda: parse_selector("a in (" + ", " * 5000 + "!)"),
        lambda: parse_selector("a" + "," * 16384),
        lambda: parse_selector("a in (" + " " * 16384 + "x y)"),
    ],
    ids=["quantity", "client", "counters", "lease", "event", "values", "commas", "blanks"],
)
def test_extreme_input_is_a_parse_error(read: Callable[[], object]) -> None:
    with pytest.raises(ParseError):
        read()


def test_configuration_with_a_very_long_key_is_refused() -> None:
    with pytest.raises(UsageError, match="more than 64 dots in a line"):
        parse_config("a." * 30_000 + "a = 1", where="config.toml")
