"""A connection that fails because of its CephX key: the type of the key, and the hint."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.collect.ceph.access import CephAccess
from rbdagent.collect.ceph.connection import Cluster
from rbdagent.collect.ceph.keys import can_use, client_key_type
from rbdagent.errors import SourceError
from tests.support.snapshots import AES256K_KEY, AES_KEY

if TYPE_CHECKING:
    from pathlib import Path


class RadosError(Exception):
    """``rados.Error``."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(f"[errno {number}] {message}")
        self.errno = number


class Rados:
    """``rados.Rados`` whose connection fails with ``number``."""

    number = 5

    def __init__(self, conffile: str, rados_id: str, conf: dict[str, str]) -> None:
        self.options = {"conffile": conffile, "id": rados_id} | conf

    def conf_get(self, name: str) -> str | None:
        return self.options.get(name)

    def connect(self) -> None:
        raise RadosError("RADOS I/O error (error connecting to the cluster)", self.number)


class Bindings:
    """The module ``rados``."""

    Error = RadosError
    Rados = Rados
    ObjectNotFound = type("ObjectNotFound", (RadosError,), {})
    TimedOut = type("TimedOut", (RadosError,), {})


@pytest.fixture
def access(tmp_path: Path) -> CephAccess:
    conf, keyring = tmp_path / "ceph.conf", tmp_path / "keyring"
    conf.touch()
    keyring.touch()
    return CephAccess(name="east", conf=conf, client_id="rbdagent", keyring=keyring, timeout_s=3.0)


def refused(
    access: CephAccess, monkeypatch: pytest.MonkeyPatch, number: int, version: str | None
) -> SourceError:
    """Return the error of a connection that fails with that number under that librados."""
    monkeypatch.setattr("rbdagent.collect.ceph.connection.rados_module", lambda: Bindings)
    monkeypatch.setattr("rbdagent.collect.ceph.keys.librados_version", lambda: version)
    monkeypatch.setattr(Rados, "number", number)
    with pytest.raises(SourceError) as caught:
        Cluster(access)
    return caught.value


# Measured with monitors of Ceph 20.2.4: errno 5 and 22 come from librados 16.2.15 and 18.2.7, and
# 13 from each of the three versions if the cluster allows only keys of type aes256k.
@pytest.mark.parametrize(
    ("number", "key", "version", "reason", "hint"),
    [
        (
            5,
            AES256K_KEY,
            "16.2.15",
            "type aes256k, which this librados (16.2.15)",
            "--key-type=aes ",
        ),
        (
            22,
            AES256K_KEY,
            "18.2.7",
            "type aes256k, which this librados (18.2.7)",
            "20.2.4 or later",
        ),
        (5, AES256K_KEY, None, "(of unknown version) cannot use", "client.rbdagent-aes mon"),
        (5, AES256K_KEY, "20.2.4", "cannot connect", "monitors can be reached"),
        (5, AES_KEY, "16.2.15", "cannot connect", "monitors can be reached"),
        (5, "garbage", "16.2.15", "cannot connect", "monitors can be reached"),
        (13, AES_KEY, "20.2.4", "does not allow keys of type aes", "auth_allowed_ciphers"),
        (1, AES_KEY, "16.2.15", "does not allow keys of type aes", "ceph mon dump"),
        (13, AES256K_KEY, "20.2.4", "or there is no such user", "ceph auth get-or-create"),
        (13, "", "16.2.15", "or there is no such user", "ceph auth get-or-create"),
    ],
)
def test_refusal_names_the_key_type_that_explains_it(
    access: CephAccess,
    monkeypatch: pytest.MonkeyPatch,
    *,
    number: int,
    key: str,
    version: str | None,
    reason: str,
    hint: str,
) -> None:
    assert access.keyring is not None
    access.keyring.write_text(f"[client.rbdagent]\n\tkey = {key}\n")
    error = refused(access, monkeypatch, number, version)
    assert reason in str(error)
    assert hint in error.hint


@pytest.mark.parametrize("key", [AES256K_KEY, AES_KEY, AES256K_KEY[:-5]])
@pytest.mark.parametrize("number", [1, 5, 22])
def test_refusal_never_holds_the_key(
    access: CephAccess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    key: str,
    number: int,
) -> None:
    assert access.keyring is not None
    access.keyring.write_text(f"[client.rbdagent]\n\tkey = {key}\n")
    with caplog.at_level(logging.DEBUG):
        error = refused(access, monkeypatch, number, "16.2.15")
    said = "".join(traceback.format_exception(error)) + error.hint + caplog.text
    assert key[:12] not in said


def test_key_without_a_keyring_is_passed_to_librados_as_its_file(
    access: CephAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert access.keyring is not None
    access.keyring.write_text(f"{AES256K_KEY}\n")
    alone = replace(access, keyring=None, keyfile=access.keyring)
    assert "is of type aes256k" in str(refused(alone, monkeypatch, 22, "18.2.7"))


def test_unreadable_file_of_a_key_is_named(
    access: CephAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = replace(access, keyring=None, keyfile=access.conf.parent / "none")
    assert f"cannot read {alone.keyfile}" in str(refused(alone, monkeypatch, 5, "18.2.7"))


def test_key_is_searched_in_the_order_of_librados(tmp_path: Path) -> None:
    keyfile, first, second = (tmp_path / name for name in ("keyfile", "first", "second"))
    keyfile.write_text(f"{AES256K_KEY}\n")
    second.write_text(f"[client.a]\nkey = {AES_KEY}\n")
    keyring = {"keyring": f"{first},{second} {tmp_path / 'third'}"}
    options: dict[str, Any] = {}

    def found() -> str | None:
        return client_key_type(lambda name: options.get(name, ""), "client.a")

    assert found() is None
    options |= keyring
    assert found() == "aes"
    # The first file that can be opened is the keyring, even if it has no such key.
    first.write_text("[client.b]\n")
    assert found() is None
    options |= {"keyfile": str(keyfile)}
    assert found() == "aes256k"
    options |= {"key": AES_KEY}
    assert found() == "aes"


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("aes", "16.2.15", True),
        ("aes", None, True),
        ("aes256k", "16.2.15", False),
        ("aes256k", "18.2.7", False),
        ("aes256k", "19.2.5", False),
        ("aes256k", "19.2.6", True),
        ("aes256k", "19.2.6-1", True),
        ("aes256k", "20.2.3", False),
        ("aes256k", "20.2.4", True),
        ("aes256k", "21.1.0", True),
        ("aes256k", "Development", False),
        ("aes256k", None, False),
        ("3", "21.2.0", False),
    ],
)
def test_key_type_needs_a_librados_that_knows_it(
    kind: str, version: str | None, *, expected: bool
) -> None:
    assert can_use(kind, version) is expected
