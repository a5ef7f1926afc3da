"""CephX keys of type aes256k: which librados can use one, what is reported, and which hint works.

Ceph 19.2.6 and 20.2.4 create keys of this type by default (CVE-2025-30156). The tests run the
commands of the answers unchanged. tests/integration/test_lab_vm.py tests the same for kernels.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rbdagent.collect.ceph.keys import can_use
from rbdagent.parse.keyring import key_type, keyring_key_type
from tests.integration.clients import asked, own_librados
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.errors import LabError
from tests.lab.network import free_port
from tests.lab.parts import SUITES
from tests.lab.processes import Processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NEWEST = SUITES[-1].ceph
IMAGE = "k8s/image"


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephCluster]:
    """Run a cluster that creates aes256k keys and allows both types, as after an upgrade."""
    processes = Processes(tmp_path_factory.mktemp("processes"))
    made = CephCluster(
        processes,
        tmp_path_factory.mktemp("ceph"),
        port=free_port(),
        msgr2_port=free_port(),
        name="new-keys",
        ceph=NEWEST,
        keys="aes256k",
    )
    try:
        made.start()
        made.wait_ready()
        made.create_pool("k8s")
        made.create_image(IMAGE)
        made.create_user("rbdagent", READ_ONLY_CAPS)
        yield made
    finally:
        processes.stop_all(grace_s=0)


def asked_of(ceph: CephCluster, user: str = "rbdagent", keyring: Path | None = None) -> Any:  # noqa: ANN401 - JSON
    """Return rbdagent's answer about the image."""
    return asked([sys.executable, "-m", "rbdagent"], ceph, IMAGE, user=user, keyring=keyring)


def typed(ceph: CephCluster, command: str) -> str:
    """Run a ``ceph`` command from an answer or a document, as the administrator."""
    program, *words = shlex.split(command)
    assert program == "ceph"
    return ceph.ceph(*words)


def test_an_existing_user_keeps_its_key(ceph: CephCluster) -> None:
    """Therefore each remedy names a new user."""
    key = ceph.key_of("rbdagent")
    typed(ceph, shlex.join(["ceph", "auth", "get-or-create", "client.rbdagent", *caps(),
                            "--key-type=aes"]))  # fmt: skip
    assert ceph.key_of("rbdagent") == key
    assert key_type(key) == "aes256k"


def test_the_hint_for_an_aes256k_key_works(
    ceph: CephCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    version = own_librados()
    first = asked_of(ceph)
    if can_use("aes256k", version):
        assert first["sources"]["ceph"]["state"] == "observed"
        assert first["image"]["id"]
        record_property("then", "answered with the key of type aes256k")
        return
    said = first["sources"]["ceph"]
    assert said["state"] == "failed"
    assert said["reason"] == (
        "ceph: client.rbdagent: its key is of type aes256k, which this librados"
        f" ({version}) cannot use"
    )
    command, creates, _ = said["hint"].partition(" creates a user with a key that")
    assert creates
    keyring = tmp_path / "keyring"
    keyring.write_text(typed(ceph, command))
    second = asked_of(ceph, "rbdagent-aes", keyring)
    assert second["sources"]["ceph"]["state"] == "observed"
    assert second["image"]["id"]
    record_property("said", said["reason"])
    record_property("typed", command)
    record_property("then", "answered")


ALLOW = "ceph mon set auth_allowed_ciphers aes,aes256k"
CREATE = (
    "ceph auth get-or-create client.late mon 'profile rbd-read-only, allow command \"mgr dump\"'"
    " osd 'profile rbd-read-only' --key-type=aes"
)


def test_an_aes_key_is_created_after_aes_is_allowed(
    ceph: CephCluster,
) -> None:
    """docs/install.md, Key types: the refusal, the command, and the delay of the monitors."""
    typed(ceph, "ceph mon set auth_allowed_ciphers aes256k")
    try:
        wait_until(
            lambda: "insecure key type" in refusal(ceph),
            timeout_s=30,
            what="the monitor to refuse keys of type aes",
        )
        assert refusal(ceph).endswith(
            'Error EINVAL: creating key with insecure key type ("aes") not allowed'
        )
    finally:
        typed(ceph, ALLOW)
    wait_until(
        lambda: refusal(ceph) == "", timeout_s=30, what="the monitor to create a key of type aes"
    )
    assert keyring_key_type(typed(ceph, CREATE), "client.late") == "aes"


def refusal(ceph: CephCluster) -> str:
    """Return the cluster's error for a new user with a key of type aes; empty if it is created."""
    typed(ceph, "ceph auth rm client.late")
    try:
        typed(ceph, CREATE)
    except LabError as error:
        return str(error)
    return ""


def test_an_aes_key_that_is_no_longer_allowed_is_reported(ceph: CephCluster) -> None:
    ceph.ceph("auth", "get-or-create", "client.old", *caps(), "--key-type=aes",
              "-o", str(ceph.conf.parent / "ceph.client.old.keyring"))  # fmt: skip
    assert asked_of(ceph, "old")["sources"]["ceph"]["state"] == "observed"
    typed(ceph, "ceph mon set auth_allowed_ciphers aes256k")
    try:
        wait_until(
            lambda: asked_of(ceph, "old")["sources"]["ceph"]["state"] == "failed",
            timeout_s=30,
            what="the monitor to refuse the user",
        )
        said = asked_of(ceph, "old")["sources"]["ceph"]
    finally:
        typed(ceph, ALLOW)
    assert said["reason"].endswith("or the cluster does not allow keys of type aes")
    assert "ceph mon dump shows the key types" in said["hint"]


def caps() -> list[str]:
    """Return rbdagent's caps as arguments of a command."""
    return [word for pair in READ_ONLY_CAPS.items() for word in pair]
