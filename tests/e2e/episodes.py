"""Episodes: lives of volumes on the real kernel, drawn at random, beside agents that may unmap.

A volume is provisioned, staged, published and written to; its pod goes in one of many ways, some of
which leave the mapping behind, while something may keep the device busy; agents that are killed
again and again are free to unmap after a few seconds, and now and then a node loses its network.
Whatever happens: no byte is lost, no pod that lives sees an error, nobody's device is taken away,
and every orphan is gone in the end.
"""

from __future__ import annotations

import contextlib
import random
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from tests.e2e.scene import Scene
from tests.lab.errors import LabError
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.lab import Lab

NODES: Final = ("worker-1", "worker-2")
_GONE_S: Final = 300.0
_RUN_S: Final = 300.0
_CUT_S: Final = (2.0, 6.0)
_PEACE_S: Final = (20.0, 50.0)

_LEAVES: Final = {
    "cleanly": 26,
    "by force": 12,
    "with unmap left out": 30,
    "with unmap refused": 8,
    "with umount refused": 14,
    "with the plugin crashed": 10,
}
"""How a pod goes, and how often; kubelet, or nobody, cleans up behind it."""

_PINS: Final = {
    "Filesystem": ("cwd", "bind", "private mount", "open"),
    "Block": ("open", "dm", "loop"),
}
_BEATS: Final = {
    "Filesystem": "dd if=/proc/uptime of=/data/beat conv=fsync",
    "Block": "dd if=/proc/uptime of=/dev/xvda bs=512 seek=9 conv=notrunc,fsync",
}
"""What a living pod does again and again: it opens, writes, flushes and closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What happens in one episode."""

    number: int
    node: str
    mode: str
    """``Filesystem`` or ``Block``."""
    storage_class: str
    stumbles: bool
    """The first stage fails, and leaves its mapping behind."""
    leaves: str
    pin: str | None
    pinned_s: float
    moves: bool
    """Another pod reads it at the end; else it is mapped by hand there."""

    @property
    def other(self) -> str:
        """The node where it is read at the end."""
        return NODES[1 - NODES.index(self.node)]


def draw(seed: int, number: int) -> Draw:
    """Give the episode of a number: the same for the same seed."""
    chance = random.Random(f"{seed}/{number}")
    mode = chance.choice(("Filesystem", "Filesystem", "Filesystem", "Block"))
    leaves = chance.choices([*_LEAVES], weights=[*_LEAVES.values()])[0]
    if leaves == "with umount refused":
        mode = "Filesystem"
    luks = mode == "Filesystem" and chance.random() < (0.5 if "umount" in leaves else 0.1)
    return Draw(
        number=number,
        node=NODES[number % 2],
        mode=mode,
        storage_class="rbd-luks" if luks else "rbd",
        stumbles=mode == "Filesystem" and not luks and chance.random() < 0.12,
        leaves=leaves,
        pin=None if luks or chance.random() < 0.5 else chance.choice(_PINS[mode]),
        pinned_s=chance.uniform(1, 12),
        moves=luks or chance.random() < 0.3,
    )


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping as sysfs has it: what comes again under the same name is another."""

    device: str
    client: str
    diskseq: str


class Episode:
    """One volume's life; :meth:`play` raises where a promise is broken."""

    def __init__(self, lab: Lab, drawn: Draw, seed: int) -> None:
        self._lab = lab
        self._drawn = drawn
        self._scene = Scene(lab, f"episode-{seed}-{drawn.number}")
        self._vm = lab.nodes[drawn.node]
        self._patience = threading.Event()
        self._pv = self._image = self._handle = ""

    def play(self) -> None:
        """Play it, and clear the stage whatever happened."""
        try:
            self._play()
        except (LabError, AssertionError) as error:
            raise AssertionError(f"{self._drawn}:\n{error}") from error
        finally:
            self._scene.clear()

    def _play(self) -> None:
        drawn, scene = self._drawn, self._scene
        self._pv = scene.claim(volume_mode=drawn.mode, storage_class=drawn.storage_class)
        self._image, self._handle = scene.image_of(self._pv), scene.handle(self._pv)
        pod = self._arrive()
        mapped = self._mapped()
        assert mapped is not None, "the pod runs, and nothing is mapped"
        digest = self._write(pod, mapped)
        release = self._pin(pod, mapped)
        assert self._mapped() == mapped, "the mapping of a living pod was taken away"
        assert not beats_missed(self._lab, drawn.node, pod), "the living pod saw an error"
        with self._leaving(pod):
            self._patience.wait(drawn.pinned_s if release else 0)
            if release is not None:
                assert self._mapped() == mapped, f"unmapped while it was pinned ({drawn.pin})"
                release()
            self._wait_gone(mapped)
        assert self._read() == digest, "bytes were lost"

    # Coming ---------------------------------------------------------------------------------------

    def _arrive(self) -> str:
        """Have a pod run that writes again and again."""
        drawn, scene = self._drawn, self._scene
        if drawn.stumbles:
            self._stumble()
        pod = start_beating(scene, drawn.node, drawn.mode)
        scene.workloads.wait_running(pod, timeout_s=_RUN_S)
        return pod

    def _stumble(self) -> None:
        """Have the first stage fail, and its mapping stay: it is in the way of the next."""
        drawn, scene = self._drawn, self._scene
        steps = {"NodeStage.mkfs": "error", "NodeStage.rollback-unmap": "skip"}
        for step, action in steps.items():
            self._lab.set_fault(drawn.node, step, action, volume=self._handle)
        pod = start_beating(scene, drawn.node, drawn.mode)
        scene.workloads.wait_event(pod, reason="FailedMount", timeout_s=_RUN_S)
        leaked = self._mapped()
        assert leaked is not None, "the stage failed, and nothing is mapped"
        # Longer than the grace period: a pod needs what lies there, mapped and not mounted.
        self._patience.wait(8)
        assert self._mapped() == leaked, "the mapping of a waiting pod was taken away"
        scene.workloads.delete("Pod", pod)
        for step in steps:
            self._lab.clear_fault(drawn.node, step, volume=self._handle)
        self._wait_gone(leaked)

    # Going ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _leaving(self, pod: str) -> Iterator[None]:
        """Have the pod deleted, and what goes wrong then go wrong until the mapping is gone."""
        workloads, leaves = self._scene.workloads, self._drawn.leaves
        step, action, times = {
            "with unmap left out": ("NodeUnstage.unmap", "skip", 0),
            "with unmap refused": ("NodeUnstage.unmap", "error", 0),
            "with umount refused": ("NodeUnstage.umount", "error", 0),
            "with the plugin crashed": ("NodeUnstage.unmap", "crash", 1),
        }.get(leaves, ("", "", 0))
        if step:
            node = self._drawn.node
            self._lab.set_fault(node, step, action, volume=self._handle, times=times)
        if leaves == "by force":
            workloads.force_delete(pod)
        else:
            workloads.delete("Pod", pod, wait=False)
        if action == "crash":
            plugin = self._vm.service("csi")
            wait_until(
                lambda: plugin.pid() is None or self._mapped() is None,
                timeout_s=_GONE_S,
                what="the plugin to crash",
                interval_s=2,
            )
            if plugin.pid() is None:
                plugin.start()
        try:
            yield
        finally:
            if step:
                self._lab.clear_fault(self._drawn.node, step, volume=self._handle)

    def _pin(self, pod: str, mapped: Mapped) -> Callable[[], object] | None:
        """Keep the device busy; give what lets it go."""
        node, scene = self._drawn.node, self._scene
        path = scene.mount_of(pod, self._pv)
        match self._drawn.pin:
            case "cwd":
                pid = scene.pin_by_cwd(node, path)
            case "bind":
                pid = scene.pin_by_bind(node, path)
            case "private mount":
                pid = scene.private_mount(node, mapped.device)
            case "open":
                pid = scene.hold_open(node, mapped.device)
            case "dm":
                name = f"pin-{self._drawn.number}"
                self._vm.run(f"dmsetup create {name} --table '0 8 linear {mapped.device} 0'")
                return lambda: self._vm.run(["dmsetup", "remove", "--retry", name])
            case "loop":
                loop = self._vm.run(["losetup", "-f", "--show", mapped.device]).stdout.strip()
                return lambda: self._vm.run(["losetup", "-d", loop])
            case _:
                return None
        return lambda: scene.kill(node, pid)

    # Looking --------------------------------------------------------------------------------------

    def _mapped(self) -> Mapped | None:
        return mapped(self._lab, self._drawn.node, self._image)

    def _wait_gone(self, there: Mapped) -> None:
        """Wait in the guest: a question a second costs an emulated processor too much."""
        number = there.device.removeprefix("/dev/rbd")
        script = (
            f"while read now 2>/dev/null </sys/block/rbd{number}/diskseq"
            f" && [ $now = {there.diskseq} ]; do sleep 1; done"
        )
        self._vm.run(script, timeout_s=_GONE_S)

    def _write(self, pod: str, there: Mapped) -> str:
        """Write, flush, and give the checksum."""
        if self._drawn.mode == "Block":
            self._vm.run(
                f"dd if=/dev/urandom of={there.device} bs=4k count=64 seek=1024 oflag=direct"
                " 2>/dev/null"
            )
            return self._digest(self._drawn.node, self._block(there.device))
        path = f"{self._scene.mount_of(pod, self._pv)}/data"
        self._vm.run(f"head -c 300000 /dev/urandom >{path} && sync -f {path}")
        return self._digest(self._drawn.node, f"cat {path}")

    def _read(self) -> str:
        """Give the checksum as the other node has it."""
        drawn, scene = self._drawn, self._scene
        if not drawn.moves:
            return self._read_by_hand()
        # Before that the controller would refuse, and try again later and later.
        scene.wait_detached(self._pv, drawn.node, timeout_s=_GONE_S)
        pod = scene.run_pod(drawn.other, block=drawn.mode == "Block", timeout_s=_RUN_S)
        if drawn.mode == "Block":
            there = mapped(self._lab, drawn.other, self._image)
            assert there is not None
            return self._digest(drawn.other, self._block(there.device))
        return self._digest(drawn.other, f"cat {scene.mount_of(pod, self._pv)}/data")

    def _read_by_hand(self) -> str:
        drawn, scene = self._drawn, self._scene
        device = scene.map_by_hand(drawn.other, self._image, "--read-only")
        if drawn.mode == "Block":
            return self._digest(drawn.other, self._block(device))
        place = f"/run/read-{drawn.number}"
        return self._digest(
            drawn.other,
            f"mkdir -p {place} && mount -o ro {device} {place} && cat {place}/data;"
            f" umount {place} >&2",
        )

    def _block(self, device: str) -> str:
        return f"dd if={device} bs=4k count=64 skip=1024 iflag=direct 2>/dev/null"

    def _digest(self, node: str, command: str) -> str:
        return self._lab.nodes[node].run(f"{{ {command}; }} | sha256sum").stdout.split()[0]


def start_beating(scene: Scene, node: str, mode: str) -> str:
    """Start a pod that writes to its volume every few seconds, and says so where that fails.

    Returns:
        Its name.
    """
    beat = f"while :; do {_BEATS[mode]} 2>/dev/null || echo missed; sleep 4 & wait $!; done"
    command = ("/bin/sh", "-c", f"trap 'exit 0' TERM; {beat}")
    return scene.start_pod(node, block=mode == "Block", command=command)


def beats_missed(lab: Lab, node: str, pod: str) -> bool:
    """Tell whether a pod said that a write failed."""
    script = f"grep -q missed /var/log/pods/default_{pod}_*/box/*.log"
    return lab.nodes[node].run(script, check=False).exit_code == 0


def mapped(lab: Lab, node: str, image: str) -> Mapped | None:
    """Give the mapping of an image on a node."""
    name = image.rpartition("/")[2]
    script = (
        "for d in /sys/bus/rbd/devices/*; do read i <$d/name;"
        f" [ $i = {name} ] || continue; n=${{d##*/}}; read c <$d/client_id;"
        " read s </sys/block/rbd$n/diskseq; echo /dev/rbd$n $c $s; break; done"
    )
    found = lab.nodes[node].run(script, check=False).stdout.split()
    return Mapped(*found) if len(found) == 3 else None


class Disturbance:
    """Cuts one node after another off its network, for a moment each."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab = lab
        self._chance = random.Random(f"{seed}/disturbance")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.cuts = 0

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, with every node on the network."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(*_PEACE_S)):
            vm = self._lab.nodes[self._chance.choice(NODES)]
            vm.cut()
            try:
                self._over.wait(self._chance.uniform(*_CUT_S))
            finally:
                vm.mend()
            self.cuts += 1
