"""Programs outside the cluster that have an image open by librbd, as qemu or a shell has."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.lab import Lab

_OPEN: Final = """
import sys, time, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1], rados_id="admin", conf={"keyring": sys.argv[2]})
cluster.connect()
pool, name = sys.argv[3].split("/")
context = cluster.open_ioctx(pool)
"""
_STAYING: Final = f"""{_OPEN}
images = [rbd.Image(context, name)]
images += [rbd.Image(context, each.partition("/")[2]) for each in sys.argv[4:]]
print("open", flush=True)
time.sleep(3600)
"""
_FLASHING: Final = f"""{_OPEN}
while True:
    with rbd.Image(context, name):
        time.sleep(0.15)
    print("open", flush=True)
    time.sleep(0.5)
"""


@contextlib.contextmanager
def librbd_client(
    lab: Lab,
    image: str,
    name: str,
    *more: str,
    flashes: bool = False,
    netns: str | None = None,
) -> Iterator[None]:
    """Have a program open an image read-write while this lasts, for good or in flashes.

    Args:
        lab: where.
        image: ``POOL/NAME``.
        name: tells it from others that run.
        more: further images of that pool, which it has open for good.
        flashes: as ceph-csi's own check does while a stage waits.
        netns: on which machine of the lab; by default it is the one that has Ceph.
    """
    program = _FLASHING if flashes else _STAYING
    ceph = lab.ceph
    process = lab.processes.start(
        f"librbd-{name}",
        ["/usr/bin/python3", "-c", program, str(ceph.conf), str(ceph.admin_keyring), image, *more],
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
