"""The whole lab: started in parallel, used by tests, the demo and by hand, removed by id.

Everything that the lab makes outside its state directory (the network namespace, processes) has a
name with the lab's id, or is recorded there: the next ``up`` or ``down`` removes everything that a
killed run left.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import functools
import hashlib
import json
import shutil
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.lab.addresses import HOST, NETWORKS
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.commands import output
from tests.lab.controlplane import ControlPlane
from tests.lab.csi import CEPH_CONF, FAULTS, driver_config, driver_objects, node_command
from tests.lab.csi_controller import RADOS_NAMESPACE
from tests.lab.csi_sidecars import start_controllers
from tests.lab.errors import LabError
from tests.lab.install import (
    CHECKOUT,
    CSI_DRIVER,
    bin_dir,
    cache_dir,
    default_state_dir,
    given_cephcsi,
    venv_python,
)
from tests.lab.install_node import NodeTree, node_tree
from tests.lab.kubelet import MEMORY_MIB, node_files
from tests.lab.network import Network
from tests.lab.parts import chosen_parts
from tests.lab.processes import Process, Processes, patience, wait_until
from tests.lab.venvs import inside
from tests.lab.vm import (
    WARM,
    WARM_PROGRAM,
    Completed,
    Vm,
    service_command,
    service_file,
    start_file,
)
from tests.lab.workloads import DRIVER, Workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import TextIO


NODES = ("worker-1", "worker-2")
POOL = "k8s"
CSI_USER = "csi"
RBDAGENT_USER = "rbdagent"
_CSI_CAPS = {"mon": "profile rbd", "osd": "profile rbd", "mgr": "profile rbd"}
_FIRST_NODE = 11
_GRACE_S = 2.0
_DRIVER_S = 60.0
_RBDAGENT_KUBECONFIG = "/etc/rbdagent/kubeconfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The content of ``state_dir/lab.json``: a lab that is up, or was up in a killed run."""

    netns: str
    checkout: str
    kept: bool
    """The lab stays up after the invocation that started it (``./dev lab up``)."""


class Lab:
    """One lab; its parts are attributes.

    Args:
        state_dir: everything that the lab writes; one lab at a time in each.
        nodes: the VMs' names; none if only controllers and Ceph are needed.
    """

    def __init__(self, state_dir: Path | None = None, *, nodes: Sequence[str] = NODES) -> None:
        self._names = tuple(nodes)
        self.state_dir = state_dir or default_state_dir()
        short_id = hashlib.sha256(str(self.state_dir).encode()).hexdigest()[:6]
        self.netns = f"rbdlab-{short_id}"
        self.processes = Processes(self.state_dir)
        families = NETWORKS[chosen_parts().network]
        self.network = Network(self.netns, families=families)
        self.control_plane = ControlPlane(
            self.processes,
            self.netns,
            self.state_dir / "k8s",
            bin_dir(),
            family=families[0],
            nodes=nodes,
        )
        # Two labs may have the same fsid, consecutive invocations must: it is in ceph.conf.
        self.ceph = self._cluster("ceph", port=6789, msgr2_port=3300)
        self.in_use_delay = "100ms"
        """First pause of the driver's in-use check; 1s is ceph-csi's own, and makes 49 s in all."""
        given = given_cephcsi()
        self.cephcsi = None if given is None else self.state_dir / given.name
        """The copy of a given ceph-csi that the nodes see, also where this process joins a lab."""
        self._owner: TextIO | None = None

    @functools.cached_property
    def _tree(self) -> NodeTree:
        return node_tree(cache_dir())

    @functools.cached_property
    def nodes(self) -> dict[str, Vm]:
        """The node VMs by name; the files for their boot exist once the other parts are up."""
        return {
            name: self._node(name, number)
            for number, name in enumerate(self._names, start=_FIRST_NODE)
        }

    @property
    def workloads(self) -> Workloads:
        """Claims, pods and events, as the administrator."""
        return Workloads(self.control_plane.api)

    def up(self, *, keep: bool = False) -> None:
        """Start everything; a failure leaves nothing behind.

        Args:
            keep: it stays up when this process ends, until ``down``.

        Raises:
            LabError: a lab is up in this state directory already, or a part did not start.
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
        """Stop everything and remove what ``up`` made; a lab that is not up is no error."""
        self.control_plane.close()
        self._own()
        self._clean()
        self.close()

    def clean_up_killed(self) -> None:
        """Remove what a killed run left behind; skip a lab that is meant to stay up."""
        record = self._record()
        if record is not None and not record.kept:
            self.down()

    def close(self) -> None:
        """Close the connections without stopping the lab."""
        self.control_plane.close()
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def start_second_cluster(self) -> CephCluster:
        """Start another Ceph cluster with another fsid and the same pool, and return it."""
        second = self._cluster("ceph-2", port=6790, msgr2_port=3301)
        self._start_ceph(second)
        return second

    def stop_cluster(self, cluster: CephCluster) -> None:
        """Stop the daemons of a second cluster."""
        for part in ("osd", "mon"):
            self.processes.stop(f"{cluster.name}-{part}")

    def running(self) -> tuple[Process, ...]:
        """Return the running processes of the lab, in the order of their start."""
        return self.processes.running()

    def _start(self) -> None:
        self.network.create()
        self.network.serve(self.network.families[0].api_service)
        _in_parallel(self._start_control_plane, lambda: self._start_ceph(self.ceph), self._compile)
        self._start_csi()
        if self._names:
            _in_parallel(*(functools.partial(self._start_node, vm) for vm in self.nodes.values()))

    def _compile(self) -> None:
        """Compile rbdagent once: an emulated processor would do it at every call.

        For each Python that runs it: the nodes can have another Python than this machine.
        """
        compileall.compile_dir(str(CHECKOUT / "rbdagent"), quiet=2)
        if not self._names:
            return
        root = self._tree.root
        if not root.is_own:
            output(*inside(root, ("python3", "-m", "compileall", "-qq", CHECKOUT / "rbdagent")))

    def _start_node(self, vm: Vm) -> None:
        vm.start()
        self.network.lead(self.network.families[0].pod_subnet(vm.number), via=vm.address)
        vm.wait_until_ready()
        self.workloads.wait_node_ready(vm.name)
        wait_until(
            lambda: self._has_driver(vm.name),
            timeout_s=_DRIVER_S,
            what=f"the CSI driver to be registered on {vm.name}",
            interval_s=0.5,
        )

    def _has_driver(self, node: str) -> bool:
        found = self.control_plane.api.find(f"/apis/storage.k8s.io/v1/csinodes/{node}")
        drivers = (found or {"spec": {}})["spec"].get("drivers") or ()
        return any(driver["name"] == DRIVER for driver in drivers)

    def _node(self, name: str, number: int) -> Vm:
        return Vm(
            name=name,
            number=number,
            tree=self._tree,
            network=self.network,
            processes=self.processes,
            state_dir=self.state_dir / "vm",
            files=self._node_files(name, number),
            memory_mib=MEMORY_MIB,
            disk=True,
        )

    def _node_files(self, name: str, number: int) -> dict[str, bytes]:
        """Return a node's files for its boot: of Kubernetes, Ceph, the driver and rbdagent."""
        csi = self.plugin_command(name)
        return {
            **node_files(
                name=name,
                number=number,
                families=self.network.families,
                tree=self._tree,
                bin_dir=bin_dir(),
                kubeconfig=self.control_plane.kubeconfig(name),
            ),
            **self.ceph.files(RBDAGENT_USER),
            "/etc/ceph/ceph.conf": f"{self.ceph.client_conf()}{CEPH_CONF}".encode(),
            **driver_config(self.ceph.monitor),
            **dict(
                [service_file("csi", csi), start_file("60-csi", service_command("csi", "start"))]
            ),
            _RBDAGENT_KUBECONFIG: self.control_plane.kubeconfig(RBDAGENT_USER).read_bytes(),
            "/etc/rbdagent/config.toml": _rbdagent_config(name).encode(),
        }

    def plugin_command(self, node: str) -> list[str]:
        """Return the command line of a node's CSI plugin."""
        # By its path: the unshare of busybox does not know "unchanged".
        csi = ["/usr/bin/unshare", "-m", "--propagation", "unchanged"]
        csi += node_command(
            str(bin_dir() / CSI_DRIVER),
            node,
            in_use_delay=self.in_use_delay,
            cephcsi=self.cephcsi,
        )
        return csi

    def rbdagent(
        self, node: str, *args: str, timeout_s: float = 90, stdin: bytes = b""
    ) -> Completed:
        """Run rbdagent on a node and return its output, whatever its exit code."""
        program = str(venv_python().parent / "rbdagent")
        return self.nodes[node].run([program, *args], timeout_s=timeout_s, stdin=stdin, check=False)

    def rbdagent_warm(
        self, node: str, *args: str, timeout_s: float = 90, stdin: bytes = b""
    ) -> Completed:
        """Run rbdagent in a fork of a process that has done the imports: a third of the time."""
        vm = self.nodes[node]
        with (self.state_dir / f"warm-{node}.lock").open("w") as lock:
            # Other processes use this lab as well.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if vm.service("warm").pid() is None:
                vm.define_service("warm", guest_program("warm", WARM)).start()
                # The imports took an emulated processor more than a minute.
                vm.run(f"until [ -S {WARM} ]; do sleep 0.1; done", timeout_s=180)
        return vm.run([WARM_PROGRAM, *args], timeout_s=timeout_s, stdin=stdin, check=False)

    def rbdagent_from_afar(self, *args: str) -> Completed:
        """Run rbdagent as a user with a kubeconfig and a keyring, outside any node."""
        keyring = self.ceph.conf.parent / f"ceph.client.{RBDAGENT_USER}.keyring"
        done = self.control_plane.laptop(RBDAGENT_USER).run(
            *("env", f"PYTHONPATH={CHECKOUT}", str(venv_python()), "-m", "rbdagent", *args),
            # It reads /sys of this machine, on which nothing is mapped.
            *("--node-name=laptop", f"--ceph-conf={self.ceph.conf}", f"--ceph-keyring={keyring}"),
        )
        return Completed(exit_code=done.code, stdout=done.stdout, stderr=done.stderr)

    @contextlib.contextmanager
    def fault(
        self, node: str, step: str, action: str, *, message: str = "", volume: str = ""
    ) -> Iterator[None]:
        """Make the CSI driver of a node fail, hang, crash or skip at a step, during the block."""
        self.set_fault(node, step, action, message=message, volume=volume)
        try:
            yield
        finally:
            self.clear_fault(node, step, volume=volume)

    def set_fault(
        self,
        node: str,
        step: str,
        action: str,
        *,
        message: str = "",
        volume: str = "",
        times: int = 0,
    ) -> None:
        """Make the CSI driver of a node fail, hang, crash or skip at a step from now on."""
        fault = {"action": action, "message": message, "volume": volume, "times": times}
        self.nodes[node].put(_fault_file(step, volume), json.dumps(fault).encode())

    def clear_fault(self, node: str, step: str, *, volume: str = "") -> None:
        """Remove a fault; calls that hang there continue."""
        self.nodes[node].run(["rm", "-f", _fault_file(step, volume)])

    def _start_csi(self) -> None:
        """Create the driver's objects and start its controllers."""
        given = given_cephcsi()
        if given is not None and self.cephcsi is not None:
            if not self.state_dir.is_relative_to(cache_dir()):
                raise LabError(
                    f"with ceph-csi RBDAGENT_LAB must be below {cache_dir()}, which the nodes see; "
                    f"it is {self.state_dir}"
                )
            shutil.copy(given, self.cephcsi)
        self.ceph.rbd("namespace", "create", f"{POOL}/{RADOS_NAMESPACE}")
        self.workloads.apply(*driver_objects(POOL, user=CSI_USER, key=self.ceph.key_of(CSI_USER)))
        if self.cephcsi is not None and self._names:
            start_controllers(
                self.processes,
                netns=self.netns,
                directory=self.state_dir / "csi",
                cephcsi=self.cephcsi,
                ceph=self.ceph,
                kubeconfig=self.control_plane.kubeconfig("csi"),
            )
            return
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

    def _cluster(self, name: str, *, port: int, msgr2_port: int) -> CephCluster:
        directory = self.state_dir / name
        return CephCluster(
            self.processes,
            directory,
            address=self.network.families[-1].machine(HOST),
            port=port,
            msgr2_port=msgr2_port,
            netns=self.netns,
            name=name,
            fsid=str(uuid.uuid5(uuid.NAMESPACE_URL, directory.as_uri())),
        )

    def _own(self) -> None:
        """Reserve the state directory for this process, until it ends or calls ``close``."""
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
            Network(record.netns).remove()
        # The logs stay: they explain a failure.
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
def running_lab(state_dir: Path | None = None, *, nodes: Sequence[str] = NODES) -> Iterator[Lab]:
    """Yield a lab that is up, and remove it in every case."""
    lab = Lab(state_dir, nodes=nodes)
    lab.up()
    try:
        yield lab
    finally:
        lab.down()


def _rbdagent_config(node: str) -> str:
    """Return the configuration of rbdagent on a node."""
    config = f'node-name = "{node}"\nkubeconfig = "{_RBDAGENT_KUBECONFIG}"\n'
    if chosen_parts().node == "qemu":
        # An emulated node may need more than the default of 10 seconds for one call.
        config += f'kube-timeout = "{10 * patience():g}s"\ntimeout = "{30 * patience():g}s"\n'
    return config


def guest_program(name: str, *arguments: str) -> list[str]:
    """Return the command of a program of tests/lab/guest, in the interpreter that has rbdagent."""
    module = f"tests.lab.guest.{name}"
    return ["env", f"PYTHONPATH={CHECKOUT}", str(venv_python()), "-m", module, *arguments]


def _fault_file(step: str, volume: str) -> str:
    """Return the name of a fault's file in a guest: a step may have one for each volume."""
    return f"{FAULTS}/{step}@{volume}" if volume else f"{FAULTS}/{step}"


def _in_parallel(*parts: Callable[[], None]) -> None:
    """Run ``parts`` at the same time; raise the first failure without waiting for the others.

    The others then end when their processes are stopped.
    """
    threads = ThreadPoolExecutor(max_workers=len(parts), thread_name_prefix="lab")
    try:
        done, _ = wait([threads.submit(part) for part in parts], return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
