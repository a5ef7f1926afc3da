"""The type of a CephX key, without the secret.

A key is base64 of a little-endian head (type, seconds, nanoseconds, length) and the secret
(CryptoKey::encode, ceph src/auth/Crypto.cc). Only the type leaves this module.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Final

AES: Final = "aes"
AES256K: Final = "aes256k"
_TYPES: Final = {1: AES, 2: AES256K}
"""CEPH_CRYPTO_AES and CEPH_CRYPTO_AES256KRB5 (ceph src/auth/Crypto.cc)."""
_HEAD: Final = struct.Struct("<HIIH")
_LONGEST: Final = 4096
"""Letters of a key; a key of type aes256k has 60."""


def key_type(key: str) -> str | None:
    """Return Ceph's name for the type of a key; None if the text is not a key.

    For a type that this module does not know, return its number.
    """
    if len(key) > _LONGEST:
        return None
    try:
        data = base64.b64decode(key.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(data) < _HEAD.size:
        return None
    number, _, _, length = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + length:
        return None
    return _TYPES.get(number, str(number))


def keyring_key_type(keyring: str, entity: str) -> str | None:
    """Return the type of an entity's key in a keyring file; None if the file has no such key.

    Like librados, use the last key of ``[entity]``.
    """
    section, found = "", None
    for line in keyring.splitlines():
        text = line.strip()
        if text.startswith("["):
            section = text[1:].partition("]")[0].strip()
            continue
        name, _, value = text.partition("=")
        if section == entity and name.strip() == "key":
            found = key_type(value.partition(";")[0].partition("#")[0].strip().strip('"'))
    return found
