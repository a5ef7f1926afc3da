"""CephX keys of type aes256k: what librados can do with one, what is said, and what cures it.

Ceph 19.2.6 and 20.2.4 create keys of this type by default (CVE-2025-30156). The commands that the
answers name are typed as they stand. tests/integration/test_lab_vm.py has the same of kernels.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from rbdagent.observe.cephx import can_use
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
    """Run a cluster that creates keys of type aes256k, and allows both types as an upgraded one."""
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
    """Run a command of ``ceph`` as an answer or a document has it, as the administrator."""
    program, *words = shlex.split(command)
    assert program == "ceph"
    return ceph.ceph(*words)


def test_a_user_that_exists_keeps_its_key_whatever_type_is_asked_for(ceph: CephCluster) -> None:
    """Which is why each remedy names a new user."""
    key = ceph.key_of("rbdagent")
    typed(ceph, shlex.join(["ceph", "auth", "get-or-create", "client.rbdagent", *caps(),
                            "--key-type=aes"]))  # fmt: skip
    assert ceph.key_of("rbdagent") == key
    assert key_type(key) == "aes256k"


def test_a_user_of_type_aes256k_is_answered_once_what_is_said_is_typed(
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
    command, creates, _ = said["cure"].partition(" creates a user that it can connect as")
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
    "ceph auth get-or-create client.late mon 'profile rbd-read-only'"
    " osd 'profile rbd-read-only' --key-type=aes"
)


def test_a_cluster_that_allows_aes256k_alone_creates_a_key_of_type_aes_once_it_is_allowed(
    ceph: CephCluster,
) -> None:
    """docs/install.md, Key types: the refusal, the command, and that the monitors take a while."""
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
    """Return what the cluster says instead of creating a user with a key of type aes."""
    typed(ceph, "ceph auth rm client.late")
    try:
        typed(ceph, CREATE)
    except LabError as error:
        return str(error)
    return ""


def test_a_user_of_type_aes_that_the_cluster_no_longer_allows_is_told_so(ceph: CephCluster) -> None:
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
    assert "ceph mon dump shows the key types" in said["cure"]


def caps() -> list[str]:
    """Return rbdagent's caps as words of a command."""
    return [word for pair in READ_ONLY_CAPS.items() for word in pair]
