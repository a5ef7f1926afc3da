"""The .deb's unit under a real systemd: it observes, unmaps and starts again after a reboot."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from rbdagent.parse.handle import staging_hash
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.controlplane import ControlPlane
from tests.lab.csi import static_volume
from tests.lab.csi_controller import CLUSTER_ID, PROVISIONED_BY
from tests.lab.errors import LabError
from tests.lab.install import bin_dir, cache_dir
from tests.lab.install_node import node_tree
from tests.lab.network import ADDRESS, Network
from tests.lab.processes import Processes, wait_until
from tests.lab.vm import Vm
from tests.lab.workloads import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.api import Api, Json

NODE: Final = "unit"
_RBDNODE: Final = f"/apis/rbdagent.dev/v1alpha1/rbdnodes/{NODE}"
_RBDMAPPING: Final = f"/apis/rbdagent.dev/v1alpha1/rbdmappings/{NODE}.rbd0"
_UNIT: Final = "rbdagent.service"
_MAY: Final = 1 << 19 | 1 << 2
"""CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH."""
_MAY_UNMAP: Final = 1 << 19 | 1 << 21
"""CAP_SYS_PTRACE and CAP_SYS_ADMIN."""
_MAY_UNMAP_STAGED: Final = _MAY_UNMAP | 1 << 18
"""These two and CAP_SYS_CHROOT."""
_BESIDE: Final = f"/etc/systemd/system/{_UNIT}.d"
_UUID: Final = "0a1b2c3d-4444-4555-8666-777788889999"
_IMAGE: Final = f"image-{_UUID}"
"""With the volumeNamePrefix of a StorageClass: without its PV, it is no image of Kubernetes."""
_HANDLE: Final = f"0001-{len(CLUSTER_ID):04x}-{CLUSTER_ID}-0000000000000001-{_UUID}"
"""Of a provisioned volume: which image a static one means is open without a stash."""
_MAPPER: Final = f"luks-rbd-{_HANDLE}"
_STAGED: Final = f"/var/lib/kubelet/plugins/kubernetes.io/csi/{DRIVER}/{staging_hash(_HANDLE)}"
_BOOT_S: Final = 240.0


class Machine(NamedTuple):
    """A machine with the unit, and the API server that it publishes to."""

    vm: Vm
    api: Api

    def pid(self) -> int:
        """Return the pid of the unit's main process; 0 if it has none."""
        return int(self.shown("MainPID"))

    def shown(self, name: str) -> str:
        """Return a property of the unit."""
        return self.vm.run(["systemctl", "show", "--value", "-p", name, _UNIT]).stdout.strip()

    def journal(self, *flags: str) -> str:
        """Return the log lines of systemd and the unit."""
        command = ["journalctl", "--no-pager", "-o", "cat", "-u", _UNIT, *flags]
        return self.vm.run(command).stdout

    def published(self) -> Json | None:
        """Return the machine's RBDNode."""
        return self.api.find(_RBDNODE)


@pytest.fixture(scope="module")
def machine(deb_of_nodes: Path) -> Iterator[Machine]:
    """Yield a machine that booted with systemd, with the .deb and the files that it needs."""
    # Not below /tmp: the guest has a separate /tmp.
    state = cache_dir() / f"test-unit-{os.getpid()}"
    state.mkdir()
    processes, network = Processes(state), Network(f"rbdagent-unit-{os.getpid()}")
    plane = ControlPlane(processes, network.netns, state / "k8s", bin_dir(), nodes=(NODE,))
    ceph = CephCluster(processes, state / "ceph", address=ADDRESS, netns=network.netns)
    network.create()
    try:
        vm = Vm(
            name=NODE,
            number=41,
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
        ceph.create_image(f"k8s/{_IMAGE}", size="32M")
        ceph.create_user("rbdagent", READ_ONLY_CAPS)
        plane.api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        vm.wait_until_ready(_BOOT_S)
        for path, data in {**ceph.files("admin"), **ceph.files("rbdagent")}.items():
            vm.put(path, data, 0o600 if path.endswith("keyring") else 0o644)
        vm.put("/root/rbdagent.deb", deb_of_nodes.read_bytes())
        # Without fsync of each file: on a busy machine, it takes minutes.
        vm.run("dpkg --force-unsafe-io -i /root/rbdagent.deb", timeout_s=300)
        kubeconfig = plane.kubeconfig("rbdagent").read_bytes()
        vm.put("/etc/rbdagent/kubeconfig", kubeconfig)
        machine = Machine(vm, plane.api)
        _report_boot(machine)
        yield machine
    finally:
        plane.close()
        processes.stop_all(grace_s=2)
        network.remove()
        shutil.rmtree(state)


def _report_boot(machine: Machine) -> None:
    """Report the machine's boot id in its Node, as its kubelet does (`nodeInfo.bootID`)."""
    boot = machine.vm.get("/proc/sys/kernel/random/boot_id").decode().strip()
    status = {"nodeInfo": {"bootID": boot}}
    machine.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})


def _rights(machine: Machine) -> dict[str, int]:
    """Return the unit's rights according to the kernel; capabilities are masks."""
    status = machine.vm.get(f"/proc/{machine.pid()}/status").decode()
    return {
        name: int(value, 16 if name.startswith("Cap") else 10)
        for name, value in re.findall(r"(?m)^(Cap\w+|Uid|Seccomp):\t(\S+)", status)
    }


def test_the_unit_observes_with_two_rights_and_publishes(machine: Machine) -> None:
    machine.vm.run(f"rbd map -o noudev k8s/{_IMAGE}")
    machine.vm.run(f"systemctl enable --now {_UNIT}", timeout_s=120)

    assert machine.shown("StatusText").startswith("1 mapped: 1 ")
    rights = _rights(machine)
    assert {rights[kind] for kind in ("CapEff", "CapPrm", "CapBnd")} == {_MAY}
    assert (rights["Uid"] != 0, rights["Seccomp"]) == (True, 2)
    limits = {name: machine.shown(name) for name in ("MemoryMax", "TasksMax")}
    assert limits == {"MemoryMax": str(512 << 20), "TasksMax": "256"}
    published = wait_until(machine.published, timeout_s=60, what="its RBDNode")
    states = {source["state"] for source in published["status"]["sources"].values()}
    assert states == {"observed"}, published["status"]["sources"]
    assert published["status"]["mapped"] == 1
    mapping = wait_until(lambda: machine.api.find(_RBDMAPPING), timeout_s=60, what="its RBDMapping")
    assert mapping["status"]["device"] == "/dev/rbd0"


def test_systemd_replaces_an_agent_that_hangs_and_no_other(machine: Machine) -> None:
    chosen = "RBDAGENT_RESYNC=2s RBDAGENT_LOG_LEVEL=debug"
    short = f"[Service]\nWatchdogSec=20\nEnvironment={chosen}\n"
    machine.vm.put(f"/run/systemd/system/{_UNIT}.d/short.conf", short.encode())
    machine.vm.run(f"systemctl daemon-reload && systemctl restart {_UNIT}", timeout_s=120)
    hung = machine.pid()
    # Longer than the watchdog's time: a running loop feeds the watchdog.
    cycles = f'journalctl _PID={hung} -o cat | grep -c \'"event": "cycle"\''
    machine.vm.run(f"until [ $({cycles}) -ge 12 ]; do sleep 1; done", timeout_s=180)
    assert machine.pid() == hung
    machine.vm.run(["kill", "-STOP", str(hung)])
    machine.vm.run(
        f"until n=$(systemctl show --value -p MainPID {_UNIT}); [ $n != 0 ] && [ $n != {hung} ] &&"
        f" systemctl is-active -q {_UNIT}; do sleep 1; done",
        timeout_s=120,
    )
    assert machine.journal().count("Watchdog timeout") == 1
    machine.vm.run(f"rm /run/systemd/system/{_UNIT}.d/short.conf")


@pytest.fixture(scope="module")
def forgetful(machine: Machine) -> Machine:
    """Return the machine with a kubelet process that tracks no volume; a PV has the image."""
    volume = static_volume("provisioned", pool="k8s", image=_IMAGE, handle=_HANDLE)
    volume["metadata"]["annotations"] = {PROVISIONED_BY: DRIVER}
    del volume["spec"]["csi"]["volumeAttributes"]["staticVolume"]
    machine.api.create("/api/v1/persistentvolumes", volume)
    machine.vm.run("mkdir -p /var/lib/kubelet")
    kubelet = ["bash", "-c", "exec -a /usr/bin/kubelet sleep 100000"]
    machine.vm.define_service("kubelet", kubelet).start()
    quick = "[Service]\nEnvironment=RBDAGENT_GRACE_PERIOD=5s RBDAGENT_RESYNC=5s\n"
    machine.vm.put(f"/run/systemd/system/{_UNIT}.d/quick.conf", quick.encode())
    return machine


def _add(machine: Machine, drop_in: str) -> None:
    """Install a drop-in as docs/packages.md describes."""
    machine.vm.run(
        f"install -D -m 0644 /usr/share/rbdagent/systemd/{drop_in} -t {_BESIDE}"
        f" && systemctl daemon-reload && systemctl restart {_UNIT}",
        timeout_s=120,
    )


def _wait_unmapped(machine: Machine, *, acts: int) -> None:
    """Wait until nothing is mapped and every recorded act succeeded at its first attempt.

    A refusal because of I/O in the grace period (RBD510) is not a failed act: the guest's own
    programs may read an orphan, and the grace period then starts again.
    """
    gone = 'until [ -z "$(ls /sys/bus/rbd/devices)" ]; do sleep 1; done'
    try:
        machine.vm.run(gone, timeout_s=180)
    except LabError as error:
        raise LabError(f"{error}\n{machine.journal('-n', '20')}") from error
    on_record: list[Json] = []

    def all_unmapped() -> bool:
        on_record[:] = (machine.published() or {})["status"]["acts"]
        ended = [act for act in on_record if not act["message"].startswith("RBD510: ")]
        return [act["outcome"] for act in ended] == ["unmapped"] * acts

    try:
        wait_until(all_unmapped, timeout_s=60, what=f"{acts} acts in its RBDNode")
    except LabError as error:
        raise LabError(f"{error}\n{json.dumps(on_record, indent=1)}") from error


def test_the_drop_in_allows_only_the_unmap_of_an_orphan(forgetful: Machine) -> None:
    """docs/packages.md: no pod uses the mapping, a PV has its image, and kubelet runs."""
    _add(forgetful, "rbdagent-unmap.conf")
    assert _rights(forgetful)["CapBnd"] == _MAY_UNMAP
    _wait_unmapped(forgetful, acts=1)


def _stage_with_luks(machine: Machine) -> None:
    """Do what ceph-csi does to stage an encrypted volume; kubelet does not know it.

    ceph-csi sets ``_netdev``: mount(8) and umount(8) then keep a record in /run/mount, which its
    pod shares with the host.
    """
    data = {"driverName": DRIVER, "volumeHandle": _HANDLE}
    stash = {"Version": 3, "pool": "k8s", "radosNamespace": "", "image": _IMAGE, "encrypted": True}
    machine.vm.put(f"{_STAGED}/vol_data.json", json.dumps(data).encode())
    machine.vm.put(f"{_STAGED}/globalmount/image-meta.json", json.dumps(stash).encode(), 0o600)
    machine.vm.run(f"""set -e
        device=$(rbd map -o noudev k8s/{_IMAGE}) mapper=/dev/mapper/{_MAPPER}
        mount={_STAGED}/globalmount/{_HANDLE}
        printf lab | cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 \
            --pbkdf-force-iterations 1000 $device -d /dev/stdin
        printf lab | cryptsetup luksOpen $device {_MAPPER} --disable-keyring -d /dev/stdin
        mkfs.ext4 -q -m0 -Enodiscard,lazy_itable_init=1,lazy_journal_init=1 $mapper
        mkdir $mount
        # Inode tables that ext4lazyinit writes later would be I/O of the grace period.
        mount -t ext4 -o _netdev,noinit_itable $mapper $mount
        sync""")


def test_the_second_drop_in_allows_a_staged_luks_volume(
    forgetful: Machine,
) -> None:
    """docs/unmap.md: umount2(2), luksClose with the host's own program, then the unmap.

    The record of umount(8) in /run/mount/utab stays; libmount ignores one without a mount.
    """
    # The agent may already unmap: it would unmap the image before it is mounted.
    forgetful.vm.run(f"systemctl stop {_UNIT}")
    _stage_with_luks(forgetful)
    _add(forgetful, "rbdagent-unmap-staged.conf")
    assert _rights(forgetful)["CapBnd"] == _MAY_UNMAP_STAGED
    _wait_unmapped(forgetful, acts=2)

    left = f"grep -s {_STAGED} /proc/1/mountinfo; ls /dev/mapper | grep {_MAPPER}"
    assert not forgetful.vm.run(f"{left}; ls -d /sys/block/dm-*", check=False).stdout


def test_the_unit_keeps_its_rights_after_a_reboot(machine: Machine) -> None:
    machine.vm.run("systemctl --no-block reboot")
    wait_until(lambda: not machine.vm.running, timeout_s=_BOOT_S, what="the machine to go down")
    machine.vm.start()
    machine.vm.wait_until_ready(_BOOT_S)
    _report_boot(machine)
    machine.vm.run(f"until systemctl is-active -q {_UNIT}; do sleep 1; done", timeout_s=120)
    # Its first cycle may have seen the Node's former boot id: then it is another machine.
    wait_until(
        lambda: machine.shown("StatusText").startswith("0 mapped"),
        timeout_s=120,
        what="the agent to recognise its Node",
    )
    assert "Stopped" in machine.journal("-b", "-1")
    assert _rights(machine)["CapBnd"] == _MAY_UNMAP_STAGED
    # The modules of the devices that the unit may open were loaded before it started.
    assert "status=226/NAMESPACE" not in machine.journal("-b", "0")


def test_the_unit_keeps_its_acts_without_the_drop_ins(machine: Machine) -> None:
    """docs/packages.md: the state moves with the user."""
    machine.vm.run(
        f"rm -r {_BESIDE} && systemctl daemon-reload && systemctl restart {_UNIT}", timeout_s=120
    )
    rights = _rights(machine)
    assert (rights["CapBnd"], rights["Uid"] != 0) == (_MAY, True)
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read())"
    metrics = machine.vm.run(["/usr/bin/python3", "-c", ask]).stdout
    assert 'rbdagent_unmaps_total{outcome="unmapped"} 2.0' in metrics
