"""Kubernetes quantities: ``1Gi``, ``500M``, ``1e3``."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

from rbdagent.errors import ParseError
from rbdagent.model import INT64_MAX

_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_QUANTITY: Final = r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d+))"
_LONGEST: Final = 64
_MOST_POWER: Final = 64
"""A power of ten. Beyond it the result is the limit, 0 or 1, and costs memory and time."""


def parse_quantity(text: str) -> int:
    """Parse a quantity of bytes, rounded up and limited to 63 bits as in Kubernetes.

    The form is that of k8s.io/apimachinery/pkg/api/resource (Quantity, ParseQuantity).

    Raises:
        ParseError: the text is not a quantity.
    """
    found = re.fullmatch(_QUANTITY, text) if len(text) <= _LONGEST else None
    if found is None:
        raise ParseError(
            what="a quantity",
            where="the API server's answer",
            text=text[:40],
            expected="a number and a unit, as 1Gi or 500M",
        )
    number, binary, decimal, exponent = found.groups()
    if binary:
        value = Decimal(number) * 1024 ** _BINARY[binary]
    else:
        power = int(exponent) if exponent else _DECIMAL[decimal or ""]
        value = Decimal(number).scaleb(max(-_MOST_POWER, min(power, _MOST_POWER)))
    number_of_bytes = int(value.to_integral_value(rounding=ROUND_CEILING))
    return max(-INT64_MAX, min(number_of_bytes, INT64_MAX))
