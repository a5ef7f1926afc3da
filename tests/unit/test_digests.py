"""Hash functions without OpenSSL: they are those of hashlib, and load no OpenSSL."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from rbdagent.parse.digests import blake2b, sha256

_LOADED = """
import sys
from rbdagent.parse import digests
print("_hashlib" in sys.modules)
"""
_WITHOUT = """
import sys
sys.modules["_sha2"] = sys.modules["_sha256"] = None
from rbdagent.parse.digests import blake2b, sha256
print(sha256(b"a").hexdigest(), blake2b(b"a", digest_size=16).hexdigest())
"""


def run(program: str) -> str:
    """Run a program with a new interpreter that imports no package at its start."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {sys.path!r}{program}",
    ]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize("content", [b"", b"a", b"csi-vol" * 1000])
def test_digests_are_those_of_hashlib(content: bytes) -> None:
    assert sha256(content).digest() == hashlib.sha256(content).digest()
    own = blake2b(content, digest_size=16)
    assert own.digest() == hashlib.blake2b(content, digest_size=16).digest()


def test_openssl_is_not_loaded() -> None:
    assert run(_LOADED) == "False\n"


def test_a_python_without_its_own_hash_functions_uses_openssl() -> None:
    expected = hashlib.sha256(b"a").hexdigest(), hashlib.blake2b(b"a", digest_size=16).hexdigest()
    assert run(_WITHOUT).split() == [*expected]
