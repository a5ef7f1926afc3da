"""The type of a client's CephX key, and whether librados can use it.

Ceph 19.2.6 and 20.2.4 create keys of type aes256k (CVE-2025-30156). An older librados does not
connect with one. It returns errno 5 if the key is in a keyring, and 22 if it is in ``keyfile`` or
``key`` (measured with 16.2.15 and 18.2.7).
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rbdagent.parse.keyring import AES, AES256K, key_type, keyring_key_type

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 1 << 20
"""Maximum of bytes that are read from a keyring."""
_FIRST_WITH_AES256K: Final = {19: (19, 2, 6), 20: (20, 2, 4)}
"""By release (release notes of Ceph 19.2.6 and 20.2.4, CVE-2025-30156); every later release can use
the type."""


def client_key_type(option: Callable[[str], str], entity: str) -> str | None:
    """Return the type of the key that librados uses; None if no key could be read.

    The order is that of librados: ``key``, ``keyfile``, then the first file of ``keyring`` that
    can be opened (KeyRing::from_ceph_context, ceph src/auth/KeyRing.cc).

    Args:
        option: returns the value of a Ceph option, as ``Rados.conf_get`` does.
        entity: ``client.rbdagent``.
    """
    key = option("key")
    if key:
        return key_type(key)
    keyfile = option("keyfile")
    if keyfile:
        return key_type(_read(keyfile) or "")
    texts = (_read(path) for path in re.split(r"[,;\s]+", option("keyring")) if path)
    keyring = next((text for text in texts if text is not None), "")
    return keyring_key_type(keyring, entity)


def _read(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return None


def librados_version() -> str | None:
    """Return the version of the Ceph libraries in this process, ``18.2.7``; None if unknown.

    ``rados.Rados.version`` returns the version of the interface. ``ceph_version_to_str`` is a C++
    function without parameters (ceph src/common/version.h; the symbol is the same in 16.2.15,
    18.2.7 and 20.2.4).
    """
    try:
        version = ctypes.CDLL("libceph-common.so.2")["_Z19ceph_version_to_strv"]
    except (OSError, AttributeError):
        return None
    version.argtypes, version.restype = [], ctypes.c_char_p
    text = version()
    return text.decode(errors="replace") if isinstance(text, bytes) else None


def installed_version() -> str | None:
    """Return the version of the installed Ceph libraries; None if there are none.

    Only librados knows the directory of libceph-common.
    """
    try:
        ctypes.CDLL("librados.so.2")
    except OSError:
        return None
    return librados_version()


def can_use(kind: str, version: str | None) -> bool:
    """Return whether a librados can use a type of key; False if its version is unknown."""
    if kind == AES:
        return True
    numbers = tuple(int(number) for number in re.findall(r"\d{1,9}", version or "")[:3])
    if kind != AES256K or not numbers:
        return False
    first = _FIRST_WITH_AES256K.get(numbers[0])
    return numbers >= first if first is not None else numbers[0] > max(_FIRST_WITH_AES256K)
