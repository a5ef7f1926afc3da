"""Mask of the keys of Ceph in messages of controllers and drivers.

The masks of all other secrets (:mod:`rbdagent.parse.secrets`) are for log lines and command lines.
Their import takes 1.6 ms, so what reads only messages does not import them.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "<redacted>"

_KEYS: Final = (
    r"\bA(?:Q[A-Za-z0-9+/]{36}=|g[A-Za-z0-9+/]{57})="
    r"|(?<=\bkey=)[^\s,\]]{1,4096}|(?<=\bsecret=)[^\s,\]]{1,4096}"
)
"""A CephX key, and the value of ``key=`` or ``secret=`` in the arguments of rbd.

A key of type aes has 40 letters and begins with AQ. A key of type aes256k has 60 letters and begins
with Ag: CryptoKey::encode writes type, time, length and secret (ceph src/auth/Crypto.cc; measured
with ceph-authtool 20.2.4).
"""


def without_keys(text: str) -> str:
    """Return a message of a controller or driver without keys; rules parse the rest."""
    return re.sub(_KEYS, MASK, text)
