"""Hash functions of Python without OpenSSL.

``hashlib`` loads OpenSSL, which takes 3 ms of processor time in each of two processes of who-holds.
The modules of CPython that contain its own hash functions are private. The standard library's
``random`` imports one of them for the same reason.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b

        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:
        # A build of Python without them (./configure --with-builtin-hashlib-hashes).
        from hashlib import blake2b, sha256

__all__ = ["blake2b", "sha256"]
