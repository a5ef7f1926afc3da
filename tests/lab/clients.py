"""Programs outside the cluster that have an image open with librbd, as qemu or a shell has."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.lab import Lab
    from tests.lab.vm import Vm

_OPEN: Final = """
import sys, time, rados, rbd
conf, user, keyring, image, *more = sys.argv[1:]
cluster = rados.Rados(conffile=conf, rados_id=user, conf={"keyring": keyring})
cluster.connect()
pool, name = image.split("/")
context = cluster.open_ioctx(pool)
"""
_STAYING: Final = f"""{_OPEN}
images = [rbd.Image(context, name)]
images += [rbd.Image(context, one.partition("/")[2]) for one in more]
print("open", flush=True)
time.sleep(3600)
"""
_FLASHING: Final = f"""{_OPEN}
while True:
    with rbd.Image(context, name):
        time.sleep(0.3)
    print("open", flush=True)
    time.sleep(0.2)
"""


def _command(program: str, conf: str, user: str, keyring: str) -> list[str]:
    return ["/usr/bin/python3", "-c", program, conf, user, keyring]


@contextlib.contextmanager
def flashing_client(vm: Vm, image: str, name: str, *, key: str) -> Iterator[None]:
    """Make a program on a node open an image read-write repeatedly during the block.

    ceph-csi's own check does so while a stage waits.

    Args:
        vm: the node.
        image: ``POOL/NAME``.
        name: distinguishes it from other programs.
        key: of the CSI driver's user.
    """
    keyring = f"/run/{name}.keyring"
    vm.put(keyring, f"[client.csi]\nkey = {key}\n".encode(), 0o600)
    command = _command(_FLASHING, "/etc/ceph/ceph.conf", "csi", keyring)
    service = vm.define_service(f"librbd-{name}", [*command, image])
    service.start()
    try:
        wait_until(
            lambda: "open" in service.logs(),
            timeout_s=60,
            what="a librbd client to have the image open",
            interval_s=1,
        )
        yield
    finally:
        service.kill()
        vm.run(["rm", keyring])


@contextlib.contextmanager
def librbd_client(
    lab: Lab,
    image: str,
    name: str,
    *more: str,
    netns: str | None = None,
) -> Iterator[None]:
    """Make a program keep an image open read-write during the block.

    Args:
        lab: the lab with the image.
        image: ``POOL/NAME``.
        name: distinguishes it from other programs.
        more: further images of that pool, which it keeps open too.
        netns: the network namespace of a machine of the lab; by default that of Ceph.
    """
    ceph = lab.ceph
    process = lab.processes.start(
        f"librbd-{name}",
        [*_command(_STAYING, str(ceph.conf), "admin", str(ceph.admin_keyring)), image, *more],
        netns=netns or lab.netns,
    )
    try:
        wait_until(
            lambda: "open" in Path(str(process.log)).read_text(),
            timeout_s=20,
            what="a librbd client to have the image open",
            process=process,
        )
        yield
    finally:
        lab.processes.stop(f"librbd-{name}", grace_s=0)
