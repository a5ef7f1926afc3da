"""The real errno values of failing Ceph calls, and the fault that the table lists for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.collect.ceph.connection import fault_in, rados_module, rbd_module
from rbdagent.parse.faults import Call, Fault
from tests.support.snapshots import AES_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.ceph import CephCluster

NOWHERE: Final = "mon_host = v1:127.0.0.1:1\n"
LIMITS: Final = {
    "client_mount_timeout": "2",
    "admin_socket": "",
    "log_to_stderr": "false",
    "err_to_stderr": "false",
}


def failure(call: Callable[[], object]) -> Exception:
    """Return the error that a call of rados or rbd raises."""
    rados, rbd = rados_module(), rbd_module()
    kinds: tuple[type[Exception], ...] = (rados.Error, rbd.Error)
    with pytest.raises(kinds) as caught:
        call()
    return caught.value


def connected(conf: Path, user: str = "x", **options: str) -> Any:  # noqa: ANN401 - rados.Rados
    rados = rados_module()
    client = rados.Rados(conffile=str(conf), rados_id=user, conf=LIMITS | options)
    client.connect()
    return client


@pytest.mark.parametrize(
    ("text", "options", "fault"),
    [
        ("", {"key": AES_KEY}, Fault.NO_CONFIGURATION),
        (NOWHERE, {"key": "no key"}, Fault.UNUSABLE),
        ("mon_host = no.such.host.invalid\n", {"key": AES_KEY}, Fault.UNUSABLE),
        (NOWHERE, {"keyring": "garbled"}, Fault.UNUSABLE),
        (NOWHERE, {"key": AES_KEY}, Fault.TIMED_OUT),
    ],
    ids=["no monitors", "no key", "no such host", "a garbled keyring", "no server"],
)
def test_a_connection_fails_before_any_monitor_answers(
    tmp_path: Path, text: str, options: dict[str, str], fault: Fault
) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text(f"[global]\n{text}")
    if "keyring" in options:
        garbled = tmp_path / "keyring"
        garbled.write_text("garbage{{{")
        options = {"keyring": str(garbled)}
    assert fault_in(Call.CONNECT, failure(lambda: connected(conf, **options))) is fault


@pytest.mark.parametrize(
    ("user", "options", "fault"),
    [
        ("rbdagent", {"key": AES_KEY}, Fault.DENIED),
        ("missing", {"key": AES_KEY}, Fault.DENIED),
        ("missing", {"keyring": "/none"}, Fault.NO_CONFIGURATION),
    ],
    ids=["another key", "no such user", "no keyring"],
)
def test_a_connection_is_refused_by_the_monitors(
    ceph: CephCluster, user: str, options: dict[str, str], fault: Fault
) -> None:
    error = failure(lambda: connected(ceph.conf, user, **options))
    assert fault_in(Call.CONNECT, error) is fault, error


def test_a_missing_pool_and_a_missing_image(ceph: CephCluster) -> None:
    rbd = rbd_module()
    client = connected(ceph.conf, "admin", keyring=str(ceph.admin_keyring))
    assert fault_in(Call.POOL, failure(lambda: client.open_ioctx("none"))) is Fault.NO_POOL
    pool = client.open_ioctx("k8s")
    opened = failure(lambda: rbd.Image(pool, "none", read_only=True))
    assert fault_in(Call.IMAGE, opened) is Fault.NO_IMAGE


def test_too_small_caps_deny_the_image_and_its_objects(ceph: CephCluster) -> None:
    rbd = rbd_module()
    ceph.create_image("k8s/locked-up")
    keyring = ceph.create_user("capless", {"mon": "allow r", "osd": "allow r pool=other"})
    pool = connected(ceph.conf, "capless", keyring=str(keyring)).open_ioctx("k8s")
    opened = failure(lambda: rbd.Image(pool, "locked-up", read_only=True))
    assert fault_in(Call.IMAGE, opened) is Fault.DENIED
    read = failure(lambda: pool.read("rbd_directory"))
    assert fault_in(Call.POOL, read) is Fault.DENIED
