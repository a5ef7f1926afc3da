"""The whole lab: brought up in parallel, used by tests, the demo and by hand, torn down by id.

Everything that the lab makes outside its state directory (the network namespace, processes) has a
name with the lab's id in it, or is recorded there: a run that was killed leaves nothing that the
next ``up`` or ``down`` does not clean up.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.controlplane import ControlPlane
from tests.lab.csi import RADOS_NAMESPACE, driver_objects
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT, bin_dir, cache_dir, venv_python
from tests.lab.processes import Process, Processes
from tests.lab.workloads import Workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

ADDRESS = "10.77.0.1"
NODES = ("worker-1", "worker-2")
POOL = "k8s"
CSI_USER = "csi"
RBDAGENT_USER = "rbdagent"
_CSI_CAPS = {"mon": "profile rbd", "osd": "profile rbd"}
_GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What ``state_dir/lab.json`` says of a lab that is up, or was when its run was killed."""

    netns: str
    checkout: str
    kept: bool
    """It is meant to outlive the invocation that brought it up (``./dev lab up``)."""


def default_state_dir() -> Path:
    """Give RBDAGENT_LAB, else the directory ``lab`` of the cache."""
    given = os.environ.get("RBDAGENT_LAB")
    return Path(given).resolve() if given else cache_dir() / "lab"


class Lab:
    """One lab; its parts are attributes.

    Args:
        state_dir: everything that the lab writes; one lab at a time in each.
    """

    def __init__(self, state_dir: Path | None = None) -> None:
        self.state_dir = state_dir or default_state_dir()
        short_id = hashlib.sha256(str(self.state_dir).encode()).hexdigest()[:6]
        self.netns = f"rbdlab-{short_id}"
        self.processes = Processes(self.state_dir)
        self.control_plane = ControlPlane(
            self.processes, self.netns, self.state_dir / "k8s", bin_dir(), ADDRESS, nodes=NODES
        )
        # Two labs may have the same fsid, one invocation and the next must: it is in ceph.conf.
        self.ceph = self._cluster("ceph", port=6789)
        self._owner: TextIO | None = None

    @property
    def workloads(self) -> Workloads:
        """Claims, pods and events, as the administrator."""
        return Workloads(self.control_plane.api)

    def up(self, *, keep: bool = False) -> None:
        """Bring everything up; on failure nothing is left.

        Args:
            keep: it stays up when this process ends, until ``down``.

        Raises:
            LabError: a lab is up in this state directory already, or a part did not come up.
        """
        self._own()
        record = self._record()
        if record is not None and record.kept and self.processes.running():
            raise LabError(f"a lab of {record.checkout} is up already; ./dev lab down stops it")
        self._clean()
        self._write_record(keep=keep)
        try:
            self._start()
        except BaseException:
            self.down()
            raise
        if keep:
            self.close()

    def down(self) -> None:
        """Stop everything and remove what was made; a lab that is not up is no error."""
        self.control_plane.close()
        self._own()
        self._clean()
        self.close()

    def clean_up_killed(self) -> None:
        """Remove what a killed run left behind; a lab that is meant to stay up is left alone."""
        record = self._record()
        if record is not None and not record.kept:
            self.down()

    def close(self) -> None:
        """Let go of the lab without stopping it."""
        self.control_plane.close()
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def start_second_cluster(self) -> CephCluster:
        """Bring up another Ceph cluster with an fsid of its own and the same pool, and give it."""
        second = self._cluster("ceph-2", port=6790)
        self._start_ceph(second)
        return second

    def running(self) -> tuple[Process, ...]:
        """Give what runs of the lab, in the order it was started."""
        return self.processes.running()

    def _start(self) -> None:
        _make_network(self.netns)
        _in_parallel(self._start_control_plane, lambda: self._start_ceph(self.ceph))
        self._start_csi()

    def _start_csi(self) -> None:
        """Create the driver's objects and start its controllers."""
        self.ceph.rbd("namespace", "create", f"{POOL}/{RADOS_NAMESPACE}")
        self.workloads.apply(*driver_objects(POOL, user=CSI_USER, key=self.ceph.key_of(CSI_USER)))
        self.processes.start(
            "csi-controller",
            [venv_python(), "-m", "tests.lab.csi_controller", self.state_dir],
            cwd=CHECKOUT,
        )

    def _start_control_plane(self) -> None:
        self.control_plane.start()
        self.control_plane.wait_ready()

    def _start_ceph(self, cluster: CephCluster) -> None:
        cluster.start()
        cluster.wait_ready()
        cluster.create_pool(POOL)
        cluster.create_user(CSI_USER, _CSI_CAPS)
        cluster.create_user(RBDAGENT_USER, READ_ONLY_CAPS)

    def _cluster(self, name: str, *, port: int) -> CephCluster:
        directory = self.state_dir / name
        return CephCluster(
            self.processes,
            directory,
            address=ADDRESS,
            port=port,
            netns=self.netns,
            name=name,
            fsid=str(uuid.uuid5(uuid.NAMESPACE_URL, directory.as_uri())),
        )

    def _own(self) -> None:
        """Take the state directory for this process, for as long as it lives or until ``close``."""
        if self._owner is not None:
            return
        self.state_dir.mkdir(parents=True, exist_ok=True)
        owner = (self.state_dir / "owner.lock").open("w")
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner.close()
            raise LabError(f"another run uses the lab in {self.state_dir}; wait for it") from None
        self._owner = owner

    def _clean(self) -> None:
        self.processes.stop_all(grace_s=_GRACE_S)
        record = self._record()
        if record is not None:
            _remove_network(record.netns)
        # The logs stay: they are what is left to read after a failure.
        for path in self.state_dir.iterdir() if self.state_dir.exists() else ():
            if path.name in ("owner.lock", "processes.lock", "log"):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _record(self) -> _Record | None:
        try:
            return _Record(**json.loads((self.state_dir / "lab.json").read_text()))
        except FileNotFoundError:
            return None

    def _write_record(self, *, keep: bool) -> None:
        record = _Record(netns=self.netns, checkout=str(CHECKOUT), kept=keep)
        shutil.rmtree(self.state_dir / "log", ignore_errors=True)
        (self.state_dir / "lab.json").write_text(json.dumps(asdict(record)))


@contextlib.contextmanager
def running_lab(state_dir: Path | None = None) -> Iterator[Lab]:
    """Lend a lab that is up, and tear it down whatever happens."""
    lab = Lab(state_dir)
    lab.up()
    try:
        yield lab
    finally:
        lab.down()


def _in_parallel(*parts: Callable[[], None]) -> None:
    """Run ``parts`` at the same time; the first failure is raised without waiting for the rest.

    What is still waiting then ends by itself, as its process is stopped.
    """
    threads = ThreadPoolExecutor(max_workers=len(parts), thread_name_prefix="lab")
    try:
        done, _ = wait([threads.submit(part) for part in parts], return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _make_network(netns: str) -> None:
    _ip("netns", "add", netns)
    _ip("-n", netns, "link", "set", "lo", "up")
    _ip("-n", netns, "link", "add", "br0", "type", "bridge")
    _ip("-n", netns, "addr", "add", f"{ADDRESS}/24", "dev", "br0")
    _ip("-n", netns, "link", "set", "br0", "up")


def _remove_network(netns: str) -> None:
    if Path(f"/run/netns/{netns}").exists():
        _ip("netns", "delete", netns)


def _ip(*args: str) -> None:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"ip {' '.join(args)}: {done.stderr.strip()}")
