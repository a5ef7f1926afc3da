"""States of a node and of its Ceph clients, each caused in the way in which it happens."""

from __future__ import annotations

import hashlib
import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.lab.addresses import HOST, bracketed
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER, RETRIED_S, collection

if TYPE_CHECKING:
    from tests.e2e.scene import Scene

_GRACE_MINUTES: Final = 11
_KUBELET: Final = "/var/lib/kubelet"


def staging_of(handle: str) -> str:
    """Return where kubelet stages a volume (csi_attacher.go, makeDeviceMountPath)."""
    digest = hashlib.sha256(handle.encode()).hexdigest()
    return f"{_KUBELET}/plugins/kubernetes.io/csi/{DRIVER}/{digest}"


# --------------------------------------------------------------------------------------------------
# Left on the node
# --------------------------------------------------------------------------------------------------


def test_staging_without_vol_data_json_is_skipped_by_kubelet(scene: Scene) -> None:
    """scenarios.md 6 (kubernetes#101911): kubelet skips NodeUnstage where the file is missing.

    csi_attacher.go, UnmountDevice of Kubernetes 1.36.3.
    """
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    note = f"{staging_of(scene.handle(volume))}/vol_data.json"
    vm = scene.lab.nodes["worker-1"]
    vm.run(["rm", note])
    scene.workloads.delete("Pod", pod)
    scene.wait_detached(volume, "worker-1")

    refused = scene.refused("worker-1", volume)
    assert "mounted at" in refused["RBD502"]
    old = scene.aged("worker-1", volume, minutes=_GRACE_MINUTES)
    holder = old.holder("worker-1")
    assert old.verdict == "Orphaned"
    assert old.codes >= {"RBD110", "RBD206"}
    (mount,) = {mount["path"] for mount in holder["mounts"]}
    typed = [f"umount {mount}", f"rbd unmap {holder['device']}"]
    assert old.next[1:3] == typed
    assert "Never recreate the file" in old.finding("RBD206")["remedy"]
    assert vm.run(["test", "-e", note], check=False).exit_code == 1
    scene.clean_mapping("worker-1", holder)


def test_removed_attachment_finalizer_leaves_an_orphan(scene: Scene) -> None:
    """scenarios.md 10 (ceph-csi#658): NodeUnstage fails, and a user removes the attachment."""
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    name = scene.attachment_of(volume)
    path = f"{collection('VolumeAttachment')}/{name}"
    api = scene.lab.control_plane.api
    api.patch(path, {"metadata": {"finalizers": ["rbdagent.dev/kept"]}})
    step, handle = "NodeUnstage.unmap", scene.handle(volume)
    with scene.lab.fault("worker-1", step, "error", message="exit status 16", volume=handle):
        scene.workloads.delete("Pod", pod)
        scene.workloads.delete("VolumeAttachment", name, wait=False)
        api.patch(path, {"metadata": {"finalizers": None}})
        scene.workloads.wait_gone("VolumeAttachment", name)

        orphan = scene.wait_verdict("worker-1", volume, "Orphaned")
        assert orphan.holder("worker-1")["attachment"] is None
        assert orphan.next[0].startswith(f"rbdagent unmap pv/{volume}")
        message = orphan.finding("RBD101")["message"]
        assert "volumesInUse" in message, "kubelet has not forgotten it: it still retries"
        assert scene.refused("worker-1", volume) == {}, "but for history nothing is missing"


@pytest.mark.alone
def test_map_that_ends_after_its_stage_timed_out_is_an_orphan(scene: Scene) -> None:
    """scenarios.md 8 (kubernetes#75439, ceph-csi#520): the OSD is slow, the device appears later.

    The pod is deleted, and the driver is restarted. The unstage finds nothing to unmap, and
    succeeds. If the pod still existed, kubelet would stage again and wait for a second map.
    """
    volume = scene.claim()
    image, handle = scene.image_of(volume), scene.handle(volume)
    vm, ceph = scene.lab.nodes["worker-1"], scene.lab.ceph
    csi = vm.service("csi")
    hung = "fault at NodeStage.map: hang"
    before = csi.logs().count(hung)

    def is_mapping() -> bool:
        shown = vm.run(f"grep -qz [k]{image[1:]} /proc/*/cmdline", check=False)
        return shown.exit_code == 0

    scene.lab.set_fault("worker-1", "NodeStage.map", "hang", volume=handle)
    pod = scene.start_pod("worker-1")
    # ceph-csi does not log the fault: the process that hangs is the rbd map that ceph-csi started.
    wait_until(
        lambda: csi.logs().count(hung) > before or is_mapping(),
        timeout_s=RETRIED_S,
        what="NodeStage to come to its map",
        interval_s=0.5,
    )
    ceph.pause_osd()
    try:
        scene.lab.clear_fault("worker-1", "NodeStage.map", volume=handle)
        wait_until(is_mapping, timeout_s=60, what=f"rbd map {image} to run")
        scene.workloads.delete("Pod", pod)
        csi.restart()
        scene.wait_detached(volume, "worker-1")
    finally:
        ceph.resume_osd()

    orphan = scene.wait_verdict("worker-1", volume, "Orphaned")
    holder = orphan.holder("worker-1")
    assert (holder["mounts"], holder["openedBy"], holder["attachment"]) == ([], [], None)
    assert "no staging directory and no image-meta.json" in orphan.finding("RBD101")["message"]
    assert orphan.next[0].startswith(f"rbdagent unmap pv/{volume}")
    assert scene.refused("worker-1", volume) == {}, "but for history nothing is missing"
    scene.clean_mapping("worker-1", holder)


_LONG_WATCH_S: Final = 240
"""A boot on an emulated processor takes longer than the 30 s of osd_client_watch_timeout."""


@pytest.mark.alone
def test_power_cut_leaves_a_watch_and_a_pod_directory(scene: Scene) -> None:
    """scenarios.md 11, 35 and 44 (kubernetes#60987, ceph-csi#5068): power cut, force delete, boot.

    kubelet does not sync vol_data.json to the disk: it may be empty after a power cut. Then kubelet
    cannot unmount, and rmdir alone does not clear the directory (kubelet_volumes.go, 1.36.3).
    """
    vm = scene.lab.nodes["worker-1"]
    _set_watch_timeout(scene, _LONG_WATCH_S)
    scene.undo(lambda: _set_watch_timeout(scene, 30))
    volume = scene.claim()
    pod = scene.run_pod("worker-1")
    uid = scene.uid(pod)
    left = scene.mount_of(pod, volume).removesuffix("/mount")
    address = scene.look("worker-1", volume).holder("worker-1")["clientAddress"]
    vm.run(f": >{left}/vol_data.json && sync")
    vm.power_off()
    scene.undo(lambda: scene.workloads.wait_node_ready("worker-1"))
    scene.undo(vm.wait_until_ready)
    scene.undo(vm.start)
    scene.workloads.force_delete(pod)
    vm.start()
    vm.wait_until_ready()

    report = scene.look("worker-1", volume)
    watch = report.holder("worker-1")
    assert (watch["device"], watch["clientAddress"]) == (None, address)
    assert watch["verdict"] == "Undetermined"
    lingers = report.finding("RBD305")
    assert (
        "The watch of a client that ended expires after 30 s: run rbdagent again then."
        in lingers["message"]
    )
    assert lingers["severity"] == "info"
    assert not any("unmap" in command for command in report.next)

    directory = report.finding("RBD205")
    assert directory["evidence"] == [left]
    assert uid in directory["message"]
    assert "rmdir" in directory["remedy"]
    kubelet = vm.service("kubelet")
    orphaned = f'orphaned pod \\"{uid}\\" found, but'
    wait_until(
        lambda: orphaned in kubelet.logs(),
        timeout_s=60,
        what="kubelet to log that it cannot clear the directory",
        interval_s=2,
    )
    listed = vm.run(directory["commands"][0]["command"]).stdout
    assert "vol_data.json" in listed
    vm.run(["rm", f"{left}/vol_data.json"])
    wait_until(
        lambda: vm.run(["test", "-e", f"{_KUBELET}/pods/{uid}"], check=False).exit_code == 1,
        timeout_s=60,
        what="kubelet to clear the pod's directory",
        interval_s=1,
    )


def _set_watch_timeout(scene: Scene, seconds: int) -> None:
    setting = ("osd_client_watch_timeout", str(seconds))
    scene.lab.ceph.ceph("tell", "osd.0", "config", "set", *setting)


def test_mapping_without_its_device_node_is_a_warning(scene: Scene) -> None:
    """scenarios.md 13 (ceph-csi#4050): it is in sysfs, not in /dev. The test runs the remedy."""
    volume = scene.claim()
    device = scene.map_by_hand("worker-1", scene.image_of(volume))
    vm = scene.lab.nodes["worker-1"]
    vm.run(["mv", device, f"{device}-moved"])
    scene.undo(lambda: vm.run(["mv", "-f", f"{device}-moved", device]))
    report = scene.look("worker-1", volume)
    missing = report.finding("RBD204")
    assert missing["severity"] == "warning"
    assert missing["subject"] == f"{device} on worker-1"

    vm.run(missing["commands"][0]["command"])
    assert "RBD204" not in scene.look("worker-1", volume).codes


# --------------------------------------------------------------------------------------------------
# Clients of Ceph
# --------------------------------------------------------------------------------------------------


class Overlay(NamedTuple):
    """A network namespace on worker-1, and its address."""

    netns: str
    address: str


def make_overlay(scene: Scene) -> Overlay:
    """Create a network namespace on worker-1 with an address in the range of its pods.

    A node plugin without hostNetwork maps from such a namespace.
    """
    vm, name, network = scene.lab.nodes["worker-1"], scene.name, scene.lab.network
    # The kernel removes a link some time after the last client in the namespace ends.
    link = f"overlay-{name[-6:]}"
    family = network.families[-1]
    subnet = ip_network(family.pod_subnet(vm.number))
    host, inside, length = subnet[250], subnet[251], subnet.max_prefixlen
    network.lead(f"{inside}/{length}", via=family.machine(vm.number))
    scene.undo(lambda: vm.run(["ip", "netns", "delete", name]))
    vm.run(
        f"echo 1 >/proc/sys/net/{family.forwarding}"
        f" && ip netns add {name} && ip link add {link} type veth peer name eth0 netns {name}"
        f" && ip addr add {host}/{length - 1} dev {link} nodad && ip link set {link} up"
        f" && ip -n {name} addr add {inside}/{length - 1} dev eth0 nodad"
        f" && ip -n {name} link set eth0 up && ip -n {name} route add default via {host}"
    )
    return Overlay(name, str(inside))


@pytest.mark.alone
def test_client_with_overlay_address_is_matched_by_nonce(scene: Scene) -> None:
    """scenarios.md 18 (rook#11201): `still being used`, no pod, and an address of no Node."""
    volume = scene.claim()
    overlay = make_overlay(scene)
    device = scene.map_by_hand("worker-1", scene.image_of(volume), netns=overlay.netns)
    here = scene.look("worker-1", volume).holder("worker-1")
    assert here["clientAddress"].startswith(f"{bracketed(overlay.address)}:0/")
    assert (here["confidence"], here["verdict"]) == ("certain", "Orphaned")

    unknown = scene.look("worker-2", volume)
    assert unknown.holder(None)["clientAddress"] == here["clientAddress"]
    assert unknown.verdict == "Undetermined"
    assert "no known node has that address" in unknown.finding("RBD119")["message"]

    with scene.agent("worker-1"):
        known = scene.wait_verdict("worker-2", volume, "Orphaned")
    there = known.holder("worker-1")
    assert there["clientAddress"] == here["clientAddress"]
    assert there["confidence"] == "certain"
    message = known.finding("RBD101")["message"]
    assert message.startswith(f"{device} on worker-1 is mapped, and nothing there uses it.")
    assert known.next[0].startswith("ssh worker-1 rbdagent who-holds")


@pytest.mark.alone
def test_plugin_in_its_own_network_is_seen_to_run_and_map(scene: Scene) -> None:
    """ceph-csi's netNamespaceFilePath, or a plugin without hostNetwork.

    Its socket is in no /proc/net/unix of the host, and its client has an address of no Node.
    """
    overlay = make_overlay(scene)
    move_plugin(scene, overlay)
    volume = scene.claim()
    pod = scene.run_pod("worker-1")

    here = scene.look("worker-1", volume)
    assert here.verdict == "InUse"
    assert "RBD201" not in here.codes
    holder = here.holder("worker-1")
    assert holder["clientAddress"].startswith(f"{bracketed(overlay.address)}:0/")
    assert (holder["confidence"], holder["attachment"] is None) == ("certain", False)

    unknown = scene.look("worker-2", volume)
    stranger = unknown.holder(None)
    assert stranger["clientAddress"] == holder["clientAddress"]
    assert (stranger["verdict"], unknown.verdict) == ("Undetermined", "InUse")
    with scene.agent("worker-1"):
        wait_until(
            lambda: scene.look("worker-2", volume).holder("worker-1")["confidence"] == "certain",
            timeout_s=60,
            what="the report of worker-1 to name its client",
            interval_s=1,
        )
        known = scene.look("worker-2", volume)
        assert [there["clientAddress"] for there in known.holders] == [holder["clientAddress"]]

        scene.workloads.delete("Pod", pod)
        scene.wait_detached(volume, "worker-1")
        assert scene.wait_verdict("worker-2", volume, "Free").holders == []


def move_plugin(scene: Scene, overlay: Overlay) -> None:
    """Restart the node plugin of worker-1 in a network namespace."""
    command = scene.lab.plugin_command("worker-1")

    def restart(*prefix: str) -> None:
        scene.lab.nodes["worker-1"].define_service("csi", [*prefix, *command]).restart()

    scene.undo(restart)
    restart("nsenter", f"--net=/run/netns/{overlay.netns}", "--")


@pytest.mark.alone
def test_node_breaks_the_lock_of_its_former_client(scene: Scene) -> None:
    """scenarios.md 21 and 25 (ceph-csi#5316, #6142): same address, another nonce.

    The former client is fenced, unmapped and no longer fenced. Its lock is left. A read-only map
    leaves the lock alone; a writable one breaks it (rbd_add_acquire_lock of drivers/block/rbd.c),
    and so blocklists the former client again.
    """
    volume = scene.claim(storage_class="rbd-exclusive")
    image, vm, ceph = scene.image_of(volume), scene.lab.nodes["worker-1"], scene.lab.ceph
    unmap = ("rbd", "unmap", "-o", "noudev")
    device = scene.map_and_leave("worker-1", image, "-o", "noshare")
    former = scene.look("worker-1", volume).holder("worker-1")
    address = former["clientAddress"]
    scene.undo(lambda: ceph.ceph("osd", "blocklist", "rm", address))
    ceph.ceph("osd", "blocklist", "add", address)
    scene.wait_verdict("worker-1", volume, "Dead")
    vm.run([*unmap, device])
    ceph.ceph("osd", "blocklist", "rm", address)

    reader = scene.map_and_leave("worker-1", image, "-o", "noshare", "-o", "ro")
    locked = scene.look("worker-1", volume)
    vm.run([*unmap, reader])
    message = locked.finding("RBD304")["message"]
    assert locked.holder("worker-1")["clientAddress"] != address
    assert f"{former['clientID']}, a former client of worker-1 itself" in message

    scene.map_by_hand("worker-1", image, "-o", "noshare")
    assert address in ceph.ceph("osd", "blocklist", "ls")
    broken = scene.look("worker-1", volume)
    assert broken.holder("worker-1")["verdict"] == "Orphaned"
    assert "RBD304" not in broken.codes
    entry = broken.finding("RBD306")
    hit = f"{address} matches a former client of it, which has nothing mapped."
    assert hit in entry["message"]
    assert " is on the blocklist until 20" in entry["message"]
    assert (entry["severity"], entry["commands"]) == ("info", [])
    assert entry["recovery"]["actor"] == "Ceph"


@pytest.mark.alone
def test_fencing_command_names_one_client_not_a_ceph_host(scene: Scene) -> None:
    """scenarios.md 24 (rook#14832, #16480): the node that is down also hosts a monitor.

    The test runs the blocklist command as the evidence shows it: it fences that client, and Ceph
    keeps running.
    """
    volume = scene.claim()
    address = scene.lab.network.families[-1].machine(HOST)
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    addresses = [{"type": "InternalIP", "address": address}]
    status = {"addresses": addresses, "conditions": [ready]}
    node = {"metadata": {"name": scene.name}, "status": status}
    scene.lab.control_plane.api.create(collection("Node"), node)
    scene.undo(lambda: scene.workloads.delete("Node", scene.name))
    with scene.librbd_client(scene.image_of(volume)):
        report = scene.look("worker-1", volume)
        assert report.verdict == "NodeDown"
        evidence = " ".join(report.finding("RBD113")["evidence"])
        exact = report.holder(scene.name)["clientAddress"]
        assert f"fence only this client: {exact}, never the whole address" in evidence
        # A lab with ceph-csi has a mgr on the same host.
        hosted = rf"{re.escape(address)} also hosts (mgr\.x, )?mon\.a: fencing it stops Ceph"
        assert re.search(hosted, evidence), evidence
        assert not any("blocklist" in command for command in report.next), "never a command"

        scene.undo(lambda: scene.lab.ceph.ceph("osd", "blocklist", "rm", exact))
        scene.lab.ceph.ceph("osd", "blocklist", "add", exact)
        wait_until(
            lambda: scene.look("worker-1", volume).verdict != "NodeDown",
            timeout_s=60,
            what="the watch of the fenced client to be gone",
            interval_s=1,
        )
