"""Measure the watchers of 200 images against `rbd status`, and a large node against `cat`.

Each figure is the median of pairs that run in turn on this machine: rbdagent, then the command that
a user would run instead. Only the ratio is meaningful.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from rbdagent.collect.ceph.access import CephAccess
from rbdagent.collect.ceph.images import CephReader
from rbdagent.collect.node.observer import observe_node
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.model import ImageIdentity, ImageSpec, NotObserved
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.node_tree import write_tree
from tests.lab.processes import Processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.model import ImageView

_ENDED: list[CephReader] = []
_IMAGES = 200
_MAPPINGS, _PROCESSES, _NAMESPACES = 250, 2000, 200
_SPECS = [ImageSpec(pool="k8s", name=f"image-{number}") for number in range(_IMAGES)]

# Opens every image read-write, so that every image has a watcher, and waits.
_HOLD = """
import sys, time, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1], rados_id="admin", conf={"keyring": sys.argv[2]})
cluster.connect()
context = cluster.open_ioctx("k8s")
held = [rbd.Image(context, name) for name in sys.argv[3:]]
print("held", flush=True)
time.sleep(100000)
"""


def main() -> int:
    """Measure, print the ratios, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as directory:
        kept = [_node_scan(Path(directory) / "node", pairs)]
        processes = Processes(Path(directory))
        try:
            kept += _watchers(processes, Path(directory), pairs)
        finally:
            processes.stop_all()
    return int(not all(kept))


def _paired(ours: Callable[[], object], theirs: Callable[[], object], pairs: int) -> list[float]:
    """Return theirs / ours of each pair, sorted; an extra first pair warms the caches."""
    ratios = []
    for _ in range(pairs + 1):
        start = time.perf_counter()
        ours()
        middle = time.perf_counter()
        theirs()
        ratios.append((time.perf_counter() - middle) / (middle - start))
    return sorted(ratios[1:])


# --------------------------------------------------------------------------------------------------
# The node
# --------------------------------------------------------------------------------------------------


def _node_scan(root: Path, pairs: int) -> bool:
    write_tree(root, mappings=_MAPPINGS, processes=_PROCESSES, namespaces=_NAMESPACES)
    roots = NodeRoots(procfs=root / "proc", sysfs=root / "sys", host_root=root / "host")
    files = b"\0".join(str(path).encode() for path in _files_read(root))

    def ours() -> None:
        view, _ = observe_node(roots, node_name="big")
        assert view is not None
        assert not isinstance(view.mappings, NotObserved)
        assert len(view.mappings) == _MAPPINGS

    def theirs() -> None:
        subprocess.run(["xargs", "-0", "cat"], input=files, stdout=subprocess.DEVNULL, check=True)

    ratios = [1 / ratio for ratio in _paired(ours, theirs, pairs)]
    median = statistics.median(ratios)
    print(
        f"node scan / cat of the same files ({_MAPPINGS} mappings, {_PROCESSES} processes, "
        f"{_NAMESPACES} mount namespaces): {median:.2f}"
        f" (from {min(ratios):.2f} to {max(ratios):.2f}; bound 3)"
    )
    return median <= 3


def _files_read(root: Path) -> list[Path]:
    """Return the files that the scan reads: all, but mountinfo only once per mount namespace."""
    found, namespaces = [], set()
    for path in root.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.stat().st_size == 0:
            continue
        if path.name == "mountinfo":
            inode = (path.parent / "ns" / "mnt").stat().st_ino
            if inode in namespaces:
                continue
            namespaces.add(inode)
        found.append(path)
    return found


# --------------------------------------------------------------------------------------------------
# Watchers
# --------------------------------------------------------------------------------------------------


def _watchers(processes: Processes, directory: Path, pairs: int) -> list[bool]:
    ceph = CephCluster(processes, directory / "ceph", port=16789, msgr2_port=13300, name="bench")
    ceph.start()
    ceph.wait_ready()
    ceph.create_pool("k8s")
    ceph.create_user("rbdagent", READ_ONLY_CAPS)
    for spec in _SPECS:
        ceph.create_image(str(spec))
    names = [spec.name for spec in _SPECS]
    holder = processes.start(
        "holder",
        ["/usr/bin/python3", "-c", _HOLD, str(ceph.conf), str(ceph.admin_keyring), *names],
    )
    wait_until(
        lambda: "held" in Path(str(holder.log)).read_text(),
        timeout_s=120,
        what="every image to be watched",
        process=holder,
    )
    keyring = directory / "ceph" / "ceph.client.rbdagent.keyring"
    plain = CephAccess(
        name="bench", conf=ceph.conf, client_id="rbdagent", keyring=keyring, timeout_s=10
    )
    admin = CephAccess(
        name="bench", conf=ceph.conf, client_id="admin", keyring=ceph.admin_keyring, timeout_s=10
    )
    images = _identities(plain)

    def status_loop() -> None:
        for spec in _SPECS:
            subprocess.run(
                ["rbd", "--id", "rbdagent", "-c", ceph.conf, "--keyring", keyring,
                 "status", str(spec)],
                stdout=subprocess.DEVNULL, check=True,
            )  # fmt: skip

    kept = []
    for what, access, bound in (
        ("read-only caps", plain, 20),
        ("dump_watchers (osd caps allow *)", admin, 300),
    ):
        ratios = _paired(lambda access=access: _look(access, images), status_loop, pairs)  # type: ignore[misc]
        median = statistics.median(ratios)
        kept.append(median >= bound)
        print(
            f"watchers of {_IMAGES} images, {what}: {median:.0f} times faster than a loop of"
            f" rbd status (from {ratios[0]:.0f} to {ratios[-1]:.0f}; bound {bound})"
        )
    return kept


def _look(access: CephAccess, images: list[ImageIdentity]) -> tuple[ImageView, ...]:
    """Connect and query the images, as a single command does."""
    look = CephReader([access])
    # A command that queries once does not disconnect: it ends.
    _ENDED.append(look)
    view, _ = look.images(images, deadline=time.monotonic() + 60)
    assert view is not None
    found = view.clusters[0].images
    assert all(not isinstance(image.watchers, NotObserved) and image.watchers for image in found)
    assert len(found) == len(images)
    return found


def _identities(access: CephAccess) -> list[ImageIdentity]:
    """Return the images with the ids that a node's sysfs would show."""
    found = _look(access, [ImageIdentity(spec=spec, fsid=None) for spec in _SPECS])
    return [
        ImageIdentity(
            spec=image.spec, fsid=image.fsid, image_id=image.image_id, pool_id=image.pool_id
        )
        for image in found
    ]


if __name__ == "__main__":
    sys.exit(main())
