"""What looks like a secret, masked: snapshots, answers and logs are passed on."""

from __future__ import annotations

import re
from typing import Final

_WORTH_HIDING: Final = r"(?:key|secret|token|password|passphrase|credential|authorization)"
_NAMED_SECRET: Final = re.compile(
    rf"(?P<name>{_WORTH_HIDING}[\w.-]{{0,40}}\\*[\"']?\s{{0,3}}[=:]\s{{0,3}}"
    rf"|--?[\w-]{{0,40}}{_WORTH_HIDING}[\w-]{{0,40}} )"
    r"(?P<value>\\*\"(?:[^\"\\]|\\.)*(?:\"|$)|'[^']*(?:'|$)|[{\[].*"
    r"|(?:Bearer |Basic )?[^\s,;)}\]\"']+)",
    re.IGNORECASE,
)
_SECRETS: Final = (
    # CephX keys, and anything else that is base64 of some length.
    re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{22,}={1,2}"),
    # Tokens of Kubernetes.
    re.compile(r"\beyJ[\w-]{8,2000}\.[\w-]{1,4000}(?:\.[\w-]{0,4000})?"),
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*", re.DOTALL),
    re.compile(r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)"),
    re.compile(r"(?<=\bBearer )\S+|(?<=\bBasic )\S+"),
)
"""Each bounded: a hostile line must not cost more than its length."""

_KEYS: Final = re.compile(
    r"\bA(?:Q[A-Za-z0-9+/]{36}=|g[A-Za-z0-9+/]{57})="
    r"|(?<=\bkey=)[^\s,\]]{1,4096}|(?<=\bsecret=)[^\s,\]]{1,4096}"
)
"""A CephX key, and what rbd's arguments call one.

A key of type aes has 40 letters and begins with AQ, one of type aes256k has 60 and begins with Ag:
CryptoKey::encode writes type, time, length and secret (ceph src/auth/Crypto.cc; measured with
ceph-authtool 20.2.4).
"""


def without_keys(text: str) -> str:
    """Mask keys in what controllers and drivers say: rules read the rest of their words."""
    return _KEYS.sub("<redacted>", text)


def without_secrets(text: str) -> str:
    """Mask what looks like a secret in a line of a log or a command: rather too much than less."""
    text = _NAMED_SECRET.sub(lambda match: match["name"] + "<redacted>", text)
    for each in _SECRETS:
        text = each.sub("<redacted>", text)
    return text
