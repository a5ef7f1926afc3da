"""The .deb's unit under a real systemd, on a machine that boots with it: looks, hangs, reboots."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.controlplane import ControlPlane
from tests.lab.csi import static_volume
from tests.lab.errors import LabError
from tests.lab.install import bin_dir, cache_dir
from tests.lab.install_node import node_tree
from tests.lab.network import ADDRESS, Network
from tests.lab.processes import Processes, wait_until
from tests.lab.vm import Vm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.api import Api, Json

NODE: Final = "unit"
_RBDNODE: Final = f"/apis/rbdagent.dev/v1alpha1/rbdnodes/{NODE}"
_UNIT: Final = "rbdagent.service"
_MAY: Final = 1 << 19 | 1 << 2
"""CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH."""
_MAY_UNMAP: Final = 1 << 19 | 1 << 21
"""CAP_SYS_PTRACE and CAP_SYS_ADMIN."""
_BOOT_S: Final = 240.0


class Machine(NamedTuple):
    """A machine with the unit, and the API that it publishes to."""

    vm: Vm
    api: Api

    def pid(self) -> int:
        """Give the pid of the unit's main process; 0: it has none."""
        return int(self.shown("MainPID"))

    def shown(self, name: str) -> str:
        """Give a property of the unit."""
        return self.vm.run(["systemctl", "show", "--value", "-p", name, _UNIT]).stdout.strip()

    def journal(self, *flags: str) -> str:
        """Give what systemd and the unit said."""
        command = ["journalctl", "--no-pager", "-o", "cat", "-u", _UNIT, *flags]
        return self.vm.run(command).stdout

    def published(self) -> Json | None:
        """Give the machine's RBDNode."""
        return self.api.find(_RBDNODE)


@pytest.fixture(scope="module")
def machine(deb: Path) -> Iterator[Machine]:
    """Give a machine that booted with systemd, with the .deb and what its manual asks for."""
    # Not below /tmp: the guest has one of its own.
    state = cache_dir() / f"test-unit-{os.getpid()}"
    state.mkdir()
    processes, network = Processes(state), Network(f"rbdagent-unit-{os.getpid()}")
    plane = ControlPlane(processes, network.netns, state / "k8s", bin_dir(), ADDRESS, nodes=(NODE,))
    ceph = CephCluster(processes, state / "ceph", address=ADDRESS, netns=network.netns)
    network.create()
    try:
        vm = Vm(
            name=NODE,
            address="10.77.0.41",
            tree=node_tree(cache_dir()),
            network=network,
            processes=processes,
            state_dir=state,
            systemd=True,
        )
        vm.start()
        plane.start()
        ceph.start()
        plane.wait_ready()
        ceph.wait_ready()
        ceph.create_pool("k8s")
        ceph.create_image("k8s/image", size="32M")
        ceph.create_user("rbdagent", READ_ONLY_CAPS)
        plane.api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        vm.wait_until_ready(_BOOT_S)
        for path, data in {**ceph.files("admin"), **ceph.files("rbdagent")}.items():
            vm.put(path, data, 0o600 if path.endswith("keyring") else 0o644)
        vm.put("/root/rbdagent.deb", deb.read_bytes())
        vm.run("dpkg -i /root/rbdagent.deb", timeout_s=180)
        kubeconfig = plane.kubeconfig("rbdagent").read_bytes()
        vm.put("/etc/rbdagent/kubeconfig", kubeconfig)
        yield Machine(vm, plane.api)
    finally:
        plane.close()
        processes.stop_all(grace_s=2)
        network.remove()
        shutil.rmtree(state)


def _rights(machine: Machine) -> dict[str, int]:
    """Give what the kernel knows of the unit's rights: capabilities as masks."""
    status = machine.vm.get(f"/proc/{machine.pid()}/status").decode()
    return {
        name: int(value, 16 if name.startswith("Cap") else 10)
        for name, value in re.findall(r"(?m)^(Cap\w+|Uid|Seccomp):\t(\S+)", status)
    }


def test_the_unit_looks_with_two_rights_and_publishes(machine: Machine) -> None:
    machine.vm.run("rbd map -o noudev k8s/image")
    machine.vm.run(f"systemctl enable --now {_UNIT}", timeout_s=120)

    assert machine.shown("StatusText").startswith("1 mapped: 1 ")
    rights = _rights(machine)
    assert {rights[each] for each in ("CapEff", "CapPrm", "CapBnd")} == {_MAY}
    assert (rights["Uid"] != 0, rights["Seccomp"]) == (True, 2)
    published = wait_until(machine.published, timeout_s=60, what="its RBDNode")
    states = {each["state"] for each in published["status"]["sources"].values()}
    assert states == {"observed"}, published["status"]["sources"]
    (mapping,) = published["status"]["mappings"]
    assert mapping["device"] == "/dev/rbd0"


def test_systemd_replaces_an_agent_that_hangs(machine: Machine) -> None:
    short = "[Service]\nWatchdogSec=10\n"
    machine.vm.put(f"/run/systemd/system/{_UNIT}.d/short.conf", short.encode())
    machine.vm.run(f"systemctl daemon-reload && systemctl restart {_UNIT}", timeout_s=120)
    hung = machine.pid()
    machine.vm.run(["kill", "-STOP", str(hung)])
    machine.vm.run(
        f"until n=$(systemctl show --value -p MainPID {_UNIT}); [ $n != 0 ] && [ $n != {hung} ] &&"
        f" systemctl is-active -q {_UNIT}; do sleep 1; done",
        timeout_s=120,
    )
    assert "Watchdog timeout" in machine.journal()


def test_with_the_drop_in_it_takes_an_orphan_down_and_has_no_right_more(machine: Machine) -> None:
    """docs/packages.md: nobody uses what is mapped, a PV has its image, and kubelet runs."""
    volume = static_volume("static", pool="k8s", image="image")
    machine.api.create("/api/v1/persistentvolumes", volume)
    machine.vm.run("mkdir -p /var/lib/kubelet")
    kubelet = ["bash", "-c", "exec -a /usr/bin/kubelet sleep 100000"]
    machine.vm.define_service("kubelet", kubelet).start()
    quick = "[Service]\nEnvironment=RBDAGENT_GRACE_PERIOD=5s RBDAGENT_RESYNC=5s\n"
    machine.vm.put(f"/run/systemd/system/{_UNIT}.d/quick.conf", quick.encode())
    machine.vm.run(
        "install -D -m 0644 /usr/share/rbdagent/systemd/rbdagent-unmap.conf"
        f" -t /etc/systemd/system/{_UNIT}.d"
        f" && systemctl daemon-reload && systemctl restart {_UNIT}",
        timeout_s=120,
    )
    assert _rights(machine)["CapBnd"] == _MAY_UNMAP

    gone = 'until [ -z "$(ls /sys/bus/rbd/devices)" ]; do sleep 1; done'
    try:
        machine.vm.run(gone, timeout_s=120)
    except LabError as error:
        raise LabError(f"{error}\n{machine.journal('-n', '20')}") from error
    wait_until(
        lambda: (
            [each["outcome"] for each in (machine.published() or {})["status"]["acts"]]
            == ["unmapped"]
        ),
        timeout_s=60,
        what="the act in its RBDNode",
    )


def test_the_unit_is_back_after_a_reboot(machine: Machine) -> None:
    machine.vm.run("systemctl --no-block reboot")
    wait_until(lambda: not machine.vm.running, timeout_s=_BOOT_S, what="the machine to go down")
    machine.vm.start()
    machine.vm.wait_until_ready(_BOOT_S)
    machine.vm.run(f"until systemctl is-active -q {_UNIT}; do sleep 1; done", timeout_s=120)
    assert machine.shown("StatusText").startswith("0 mapped")
    assert "Stopped" in machine.journal("-b", "-1")
