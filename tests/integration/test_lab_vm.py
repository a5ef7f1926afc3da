"""A node VM boots the real kernel with real krbd, runs commands, and fails as machines fail."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rbdagent.catalog import entry
from rbdagent.commands import sentence_of
from tests.lab.ceph import CephCluster
from tests.lab.errors import LabError
from tests.lab.initramfs import File, archive, has_module, load_order
from tests.lab.install import cache_dir
from tests.lab.install_node import node_tree
from tests.lab.network import ADDRESS, Network
from tests.lab.parts import SUITES, chosen_parts
from tests.lab.processes import Processes, wait_until
from tests.lab.roots import made_root
from tests.lab.vm import Completed, Vm
from tests.support.rule_tables import mounting, stage
from tests.support.snapshots import found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST_FILE = "seen-by-the-guest"


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    # Not below /tmp: the guest has a separate /tmp.
    directory = cache_dir() / f"test-vm-{os.getpid()}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def processes(state: Path) -> Iterator[Processes]:
    started = Processes(state)
    yield started
    started.stop_all(grace_s=2)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(f"rbdagent-vm-{os.getpid()}")
    made.create()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def ceph(state: Path, processes: Processes, network: Network) -> CephCluster:
    cluster = CephCluster(processes, state / "ceph", address=ADDRESS, netns=network.netns)
    cluster.start()
    return cluster


@pytest.fixture(scope="module")
def vm(state: Path, processes: Processes, network: Network, ceph: CephCluster) -> Vm:
    """Return the machine of all these tests; the last ones reboot it and switch it off."""
    (state / HOST_FILE).write_text("before")
    machine = Vm(
        name="bare",
        number=31,
        tree=node_tree(cache_dir()),
        network=network,
        processes=processes,
        state_dir=state,
        files={"/etc/given/by/the.test": b"given"},
        disk=True,
    )
    machine.start()
    ceph.wait_ready()
    ceph.create_pool("k8s")
    ceph.create_image("k8s/image", size="32M")
    machine.wait_until_ready()
    for path, data in ceph.files("admin").items():
        machine.put(path, data, 0o600)
    return machine


# Without a machine --------------------------------------------------------------------------------


def test_an_archive_lists_a_directory_before_its_members() -> None:
    made = archive({"a/b/one": File(data=b"1"), "a/two": File(data=b"22", mode=0o755)})
    assert [(name, stat.filemode(mode)) for name, mode in _members(made)] == [
        ("a", "drwxr-xr-x"),
        ("a/b", "drwxr-xr-x"),
        ("a/b/one", "-rw-r--r--"),
        ("a/two", "-rwxr-xr-x"),
        ("TRAILER!!!", "?---------"),
    ]


def test_modules_are_loaded_after_their_dependencies(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "net/9pnet_virtio.ko.xz: virtio.ko.xz net/9pnet.ko.xz\n"
        "net/9pnet.ko.xz:\nvirtio.ko.xz: virtio-ring.ko.xz\nvirtio-ring.ko.xz:\n"
    )
    (tmp_path / "modules.builtin").write_text("kernel/fs/overlayfs/overlay.ko\n")
    order = load_order(tmp_path, ("9pnet_virtio", "overlay"))
    assert [path.name for path in order] == [
        "virtio-ring.ko.xz",
        "virtio.ko.xz",
        "9pnet.ko.xz",
        "9pnet_virtio.ko.xz",
    ]
    with pytest.raises(LabError, match="no module rbd"):
        load_order(tmp_path, ("rbd",))


@pytest.mark.parametrize("file", ["crypto/crc32c_generic.ko.xz", "crypto/crc32c-generic.ko"])
def test_a_module_is_found_by_its_file_name(tmp_path: Path, file: str) -> None:
    (tmp_path / "modules.dep").write_text(f"{file}:\nfs/ext4.ko:\n")
    assert has_module(tmp_path, "crc32c_generic")
    (tmp_path / "modules.dep").write_text(f"fs/ext4.ko: {file}x\n")
    assert not has_module(tmp_path, "crc32c_generic")


# The control channel ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -KILL $$", 137),
        (["/no/such/program"], 127),
        (["/etc/hostname"], 126),
    ],
)
def test_exit_codes_are_those_of_the_command(vm: Vm, command: str | list[str], code: int) -> None:
    assert vm.run(command, check=False).exit_code == code


def test_a_failed_command_reports_its_output(vm: Vm) -> None:
    with pytest.raises(LabError, match=r"(?s)bare: .*exit 3\n.*to stdout.*to stderr"):
        vm.run("echo to stdout; echo to stderr >&2; exit 3")


def test_files_are_copied_unchanged_both_ways(vm: Vm) -> None:
    data = bytes(range(256)) * 4096
    vm.put("/srv/new directory/file", data, 0o600)
    assert vm.get("/srv/new directory/file") == data
    assert vm.run(["stat", "-c", "%a", "/srv/new directory/file"]).stdout == "600\n"


def test_a_file_may_take_longer_than_the_connection(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert the timeout of a slow transfer: that of the command, not that of the connection."""
    monkeypatch.setattr("tests.lab.vm._CONNECT_S", 0.05)
    data = bytes(32 << 20)
    vm.put("/run/large", data)
    assert vm.run("stat -c %s /run/large; rm /run/large").stdout == f"{len(data)}\n"


def test_commands_run_at_the_same_time(vm: Vm) -> None:
    """The first command ends only after the second has run."""
    waiting = threading.Thread(
        target=vm.run, args=("until [ -e /run/second ]; do sleep 0.1; done; touch /run/first",)
    )
    waiting.start()
    vm.run("touch /run/second")
    waiting.join(timeout=30)
    assert vm.run("test -e /run/first", check=False).exit_code == 0


def test_an_endless_command_is_killed_with_its_children(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_LAB_PATIENCE", "1")
    with pytest.raises(LabError, match="killed after 1 s"):
        vm.run("echo $$ >/run/endless; sleep 1000; true", timeout_s=1)
    group = vm.get("/run/endless").decode().strip()
    # They are killed at once but disappear only when init has reaped them.
    wait_until(
        lambda: vm.run(["pgrep", "-g", group], check=False).stdout == "",
        timeout_s=20,
        what="the command and its child to be gone",
    )


def test_a_background_process_does_not_block_a_command(vm: Vm) -> None:
    pid = vm.run("sleep 1000 & echo $!", timeout_s=20).stdout.strip()
    assert vm.run(["kill", pid], check=False).exit_code == 0


def test_boot_files_and_copied_trees_exist(vm: Vm, tmp_path: Path) -> None:
    assert vm.get("/etc/given/by/the.test") == b"given"
    (tmp_path / "package" / "sub").mkdir(parents=True)
    (tmp_path / "package" / "sub" / "module.py").write_text("print('copied')\n")
    vm.put_tree(tmp_path / "package", "/srv/package")
    assert vm.run(["python3", "/srv/package/sub/module.py"]).stdout == "copied\n"


def test_changes_on_this_machine_are_seen_after_a_refresh(vm: Vm, state: Path) -> None:
    assert vm.get(str(state / HOST_FILE)) == b"before"
    (state / HOST_FILE).write_text("and after")
    (state / "new").write_text("new")
    vm.refresh()
    assert vm.get(str(state / HOST_FILE)) == b"and after"
    assert vm.get(str(state / "new")) == b"new"


def test_killing_a_service_leaves_its_children_alone(vm: Vm) -> None:
    service = vm.define_service("waiter", "sh -c 'echo up; sleep 4321 & wait'")
    assert service.pid() is None
    service.start()
    first = service.pid()
    assert first is not None
    with pytest.raises(LabError, match="waiter runs already"):
        service.start()
    service.restart()
    assert service.pid() not in (None, first)
    service.kill()
    assert service.pid() is None
    assert service.logs() == "up\nup\n"
    assert len(vm.run(["pgrep", "-f", "^sleep 4321"]).stdout.split()) == 2
    vm.run(["pkill", "-f", "^sleep 4321"])


# The machine --------------------------------------------------------------------------------------


def test_the_kernel_has_what_the_observers_read(vm: Vm) -> None:
    vm.run("test -d /sys/bus/rbd/devices && test -d /sys/kernel/debug/ceph")
    vm.run("for link in fd stdin stdout stderr; do test -e /dev/$link || exit 1; done")
    assert vm.run(["stat", "-fc", "%T", "/sys/fs/cgroup"]).stdout == "cgroup2fs\n"
    assert "shared:" in vm.run("grep ' / / ' /proc/self/mountinfo").stdout


def test_a_mapping_has_its_watchers_client_and_address(vm: Vm, ceph: CephCluster) -> None:
    device = vm.run("rbd map -o noudev k8s/image").stdout.strip()
    assert device == "/dev/rbd0"
    known = "/sys/bus/rbd/devices/0"
    client, address = vm.run(f"cat {known}/client_id {known}/client_addr").stdout.split()
    [watcher] = _watchers(ceph)
    vm.run(["rbd", "unmap", "-o", "noudev", device])
    assert (f"client{watcher['client']}", watcher["address"]) == (client, address)
    assert address.startswith("10.77.0.31:0/")


# Keys of type aes256k -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def new_keys(state: Path, processes: Processes, network: Network, vm: Vm) -> CephCluster:
    """Run a second cluster with the Ceph release that creates keys of type aes256k by default."""
    cluster = CephCluster(
        processes,
        state / "new-keys",
        address=ADDRESS,
        port=6790,
        msgr2_port=3301,
        netns=network.netns,
        name="new-keys",
        ceph=SUITES[-1].ceph,
        keys="aes256k",
    )
    cluster.start()
    cluster.wait_ready()
    cluster.create_pool("k8s")
    cluster.create_image("k8s/image", size="32M")
    vm.put(f"{NEW_KEYS}/ceph.conf", cluster.client_conf().encode())
    return cluster


NEW_KEYS = "/etc/new-keys"
NODE_USER = "client.csi-rbd-node"
NODE_CAPS = "mon 'profile rbd' osd 'profile rbd'"
AES_USER = f"{NODE_USER}-aes"
FIRST_WITH_MS_MODE = (5, 11)
"""00498b994113, "libceph: introduce connection modes and ms_mode option"."""
FIRST_KERNEL = 7
"""The first kernel that knows keys of type aes256k: b7cc142dbafe, "libceph: add support for \
CEPH_CRYPTO_AES256KRB5"."""


def test_an_aes256k_key_maps_or_is_reported(
    vm: Vm, new_keys: CephCluster, record_property: Callable[[str, object], None]
) -> None:
    user = f"ceph auth get-or-create {NODE_USER} {NODE_CAPS}"
    mapped = _map(vm, new_keys, NODE_USER, user)
    record_property("rbd", _words(mapped))
    release = vm.run("uname -r").stdout.strip()
    if int(release.partition(".")[0]) >= FIRST_KERNEL:
        assert mapped.exit_code == 0, mapped.stderr
        vm.run(["rbd", "unmap", "-o", "noudev", mapped.stdout.strip()])
        return
    kernel = vm.run("dmesg | grep -o 'libceph: .*secret.*' | tail -n 1", check=False).stdout.strip()
    record_property("kernel", kernel or "(nothing)")
    assert mapped.exit_code != 0
    finding = found(mounting(stage(_as_ceph_csi(mapped))), "RBD747")
    record_property("said", f"{finding.code}: {finding.message}")
    assert f"its kernel cannot use the key of {NODE_USER} " in finding.message
    assert finding.remedy == entry("RBD747").remedy
    assert "secret too big" in kernel or "(524)" in finding.message


def test_the_user_of_rbd747s_remedy_can_map(
    vm: Vm, new_keys: CephCluster, record_property: Callable[[str, object], None]
) -> None:
    """The test uses the guest's own rbd: every rbd can read the key."""
    mapped = _map(vm, new_keys, AES_USER, _remedy(), own_rbd=True)
    assert mapped.exit_code == 0, mapped.stderr
    [watcher] = _watchers(new_keys)
    vm.run(["rbd", "unmap", "-o", "noudev", mapped.stdout.strip()])
    assert str(watcher["address"]).startswith("10.77.0.31:0/")
    record_property("typed", _remedy())
    device, version = mapped.stdout.strip(), chosen_parts().debian.ceph
    record_property("then", f"mapped as {device} by rbd of Ceph {version}")


def test_rbd_of_ceph_20_maps_or_its_option_is_reported(
    vm: Vm, new_keys: CephCluster, record_property: Callable[[str, object], None]
) -> None:
    """It passes ms_mode to every kernel (https://tracker.ceph.com/issues/72134)."""
    mapped = _map(vm, new_keys, AES_USER, _remedy())
    record_property("rbd of Ceph 20.2", _words(mapped))
    major, minor = vm.run("uname -r").stdout.split(".")[:2]
    if (int(major), int(minor)) >= FIRST_WITH_MS_MODE:
        assert mapped.exit_code == 0, mapped.stderr
        vm.run(["rbd", "unmap", "-o", "noudev", mapped.stdout.strip()])
        return
    assert "rbd of Ceph 20" in found(mounting(stage(_as_ceph_csi(mapped))), "RBD741").remedy
    assert "Unknown parameter 'ms_mode'" in vm.run("dmesg | grep rbd: | tail -n 1").stdout


def _remedy() -> str:
    """Return the command of RBD747's remedy with a user and its caps filled in."""
    remedy = sentence_of(entry("RBD747").remedy)
    [command] = (quoted[1] for quoted in re.finditer(r"`(ceph auth [^`]+)`", remedy))
    return command.replace("client.USER", NODE_USER).replace("CAPS", NODE_CAPS)


def _map(
    vm: Vm, cluster: CephCluster, user: str, creation: str, *, own_rbd: bool = False
) -> Completed:
    """Create a user with a command and map the image as ceph-csi does.

    Args:
        vm: the machine that maps it.
        cluster: the cluster of the image.
        user: with ``client.``.
        creation: a command of ``ceph``.
        own_rbd: use the guest's own rbd. The default is the cluster's rbd in a separate root: an
            older rbd cannot read a key of type aes256k, so that the kernel never gets it.
    """
    program, *words = shlex.split(creation)
    assert program == "ceph"
    cluster.ceph(*words)
    name = user.removeprefix("client.")
    vm.put(f"{NEW_KEYS}/keyfile", cluster.key_of(name).encode(), 0o600)
    # The root already has this directory: the guest cannot make one if the cache is below /tmp.
    place = NEW_KEYS if own_rbd else "/etc/ceph"
    rbd = ["rbd", f"--conf={place}/ceph.conf", f"--id={name}", f"--keyfile={place}/keyfile",
           "map", "k8s/image", "--device-type", "krbd", "--options", "noudev"]  # fmt: skip
    root = made_root(cache_dir(), SUITES[-1])
    command = rbd if own_rbd else root.command(rbd, mounted={Path(place): Path(NEW_KEYS)})
    # Seconds of the guest's clock, which ran more than twice too fast on a busy machine.
    return vm.run(command, timeout_s=600, check=False)


def _words(mapped: Completed) -> str:
    said = mapped.stderr if mapped.exit_code else mapped.stdout
    return f"exit {mapped.exit_code}: {said.strip()}"


def _as_ceph_csi(mapped: Completed) -> str:
    """Return ceph-csi's error for a failed rbd map (internal/rbd/rbd_attach.go, createPath)."""
    return (
        f"rbd: map failed with error an error (exit status {mapped.exit_code}) occurred while"
        " running rbd args: [--id csi-rbd-node --keyfile=***stripped*** map k8s/image --device-type"
        f" krbd --options noudev], rbd error output: {mapped.stderr.strip()}"
    )


def test_a_cut_cable_keeps_the_control_channel(vm: Vm) -> None:
    reach = ["timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{ADDRESS}/6789"]
    assert vm.run(reach, check=False).exit_code == 0
    vm.cut()
    try:
        assert vm.run(reach, check=False).exit_code != 0
    finally:
        vm.mend()
    wait_until(
        lambda: vm.run(reach, check=False).exit_code == 0,
        timeout_s=30,
        what="the cluster to be reachable again",
    )


def test_a_reboot_keeps_the_disk_and_nothing_else(vm: Vm, ceph: CephCluster) -> None:
    vm.run("rbd map -o noudev k8s/image")
    vm.run("echo kept >/var/lib/kubelet/kept; sync; echo lost >/srv/lost")
    boot = vm.get("/proc/sys/kernel/random/boot_id")
    vm.reboot()
    assert _watchers(ceph), "the watch of a machine without power lives on until its timeout"
    vm.wait_until_ready()
    assert vm.get("/proc/sys/kernel/random/boot_id") != boot
    assert vm.get("/var/lib/kubelet/kept") == b"kept\n"
    assert vm.run("ls /srv/lost /dev/rbd0", check=False).stdout == ""


def test_a_boot_that_hangs_shows_its_step_and_its_processes(vm: Vm) -> None:
    vm.run("rm /run/lab/ready")
    with pytest.raises(LabError, match=r"(?s)\+ hostname bare\n.*/etc/lab/control\.py"):
        vm.wait_until_ready(timeout_s=0.5)


def test_a_machine_without_power_does_not_answer(vm: Vm) -> None:
    vm.power_off()
    assert not vm.running
    with pytest.raises(LabError, match="bare: no answer"):
        vm.run("true", timeout_s=1)


def _watchers(ceph: CephCluster) -> list[dict[str, str | int]]:
    watchers: list[dict[str, str | int]] = json.loads(
        ceph.rbd("status", "k8s/image", "--format", "json")
    )["watchers"]
    return watchers


def _members(made: bytes) -> Iterator[tuple[str, int]]:
    """Yield the name and mode of each member of a newc archive, as the kernel reads them."""
    position = 0
    while position < len(made):
        fields = [int(made[position + 6 + 8 * n : position + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_length = fields[1], fields[6], fields[11]
        name = made[position + 110 : position + 110 + name_length - 1].decode()
        yield name, mode
        position += (110 + name_length + 3) // 4 * 4 + (size + 3) // 4 * 4
