"""The type of a CephX key, parsed without keeping the key."""

from __future__ import annotations

import base64
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.parse.keyring import key_type, keyring_key_type
from tests.support.snapshots import AES256K_KEY, AES_KEY


def key(number: int, secret: bytes) -> str:
    """Return a key in the format of CryptoKey::encode."""
    return base64.b64encode(struct.pack("<HIIH", number, 1, 2, len(secret)) + secret).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AES_KEY, "aes"),
        (AES256K_KEY, "aes256k"),
        (f" {AES256K_KEY}\n", "aes256k"),
        (key(7, b"x" * 64), "7"),
        (key(0, b""), "0"),
        ("", None),
        ("AQBgarbage==", None),
        ("not base64 at all", None),
        (AES256K_KEY[:-4], None),
        (AES_KEY + AES_KEY, None),
        ("A" * 5000, None),
    ],
)
def test_key_type_is_parsed_from_the_head_of_the_key(text: str, expected: str | None) -> None:
    assert key_type(text) == expected


@pytest.mark.parametrize(
    ("keyring", "expected"),
    [
        (f'[client.a]\n\tkey = {AES256K_KEY}\n\tcaps mon = "allow r"\n', "aes256k"),
        (f"[client.b]\nkey={AES_KEY}\n[client.a]\nkey={AES256K_KEY}\n", "aes256k"),
        (f"[client.a]\nkey={AES256K_KEY}\nkey={AES_KEY}\n", "aes"),
        (f'[ client.a ] ; ours\n  key = "{AES_KEY}"   # old\n', "aes"),
        (f"[client.a]\n; key = {AES_KEY}\n", None),
        (f"[client.b]\nkey = {AES_KEY}\n", None),
        (f"key = {AES_KEY}\n", None),
        ("[client.a]\nkey\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_keyring_key_type_is_that_of_the_entity(keyring: str, expected: str | None) -> None:
    assert keyring_key_type(keyring, "client.a") == expected


@given(number=st.sampled_from([1, 2]), secret=st.binary(max_size=200))
def test_key_type_never_holds_the_secret(number: int, secret: bytes) -> None:
    assert key_type(key(number, secret)) == {1: "aes", 2: "aes256k"}[number]


@given(text=st.text(max_size=400) | st.text(alphabet='[]client.a key=\n;#"AQg/+', max_size=400))
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    for found in (key_type(text), keyring_key_type(text, "client.a")):
        assert found is None or re.fullmatch(r"aes|aes256k|\d{1,5}", found)
