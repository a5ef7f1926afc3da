"""Episodes: random lifecycles of volumes on the real kernel, next to agents that may unmap.

A volume is provisioned, staged, published and written to. Then its pod is deleted. The cleanup by
kubelet and the driver fails in one of many ways. Some of them leave the mapping behind, and
something may keep the device busy. The agents may unmap after a few seconds, and are killed
repeatedly. From time to time a node loses its network. In every case: no byte is lost, no running
pod sees an error, no device that is in use is unmapped, and every orphan is gone at the end.

A few episodes share a pod, as volumes do: they start and end together, each in its own way. Most
episodes have no pod. They are mapped and mounted by hand, as a failed rollback leaves them, and
cost an emulated processor a tenth.
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
from tests.lab.vm import LOG_DIR
from tests.lab.workloads import pod as pod_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.lab import Lab
    from tests.lab.vm import Vm

NODES: Final = ("worker-1", "worker-2")
TOGETHER: Final = 4
_WAIT_S: Final = 300.0
_GRACE_S: Final = 5.0
"""The grace period of the agents that may unmap."""
_CUT_S: Final = (2.0, 6.0)
_PEACE_S: Final = (20.0, 50.0)

_FAULTS: Final[dict[str, tuple[tuple[str, str] | None, int]]] = {
    "nothing": (None, 40),
    "unmap is left out": (("NodeUnstage.unmap", "skip"), 30),
    "unmap is refused": (("NodeUnstage.unmap", "error"), 6),
    "umount is refused": (("NodeUnstage.umount", "error"), 14),
    "the plugin crashes": (("NodeUnstage.unmap", "crash"), 10),
}
"""What fails when a volume is unstaged: the driver's step and fault, and how often."""

_PINS: Final = {
    "Filesystem": ("cwd", "bind", "private mount", "open"),
    "Block": ("open", "dm", "loop"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Plan for one volume."""

    number: int
    luks: bool
    fault: str
    pin: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Plan for a pod and for each of its volumes."""

    number: int
    mode: str
    """``Filesystem`` or ``Block``."""
    stumbles: bool
    """The first stage of one volume fails and leaves its mapping behind."""
    gives_up: bool
    """Then the pod is deleted; otherwise the next attempt uses the existing mapping."""
    forced: bool
    """The pod is deleted as ``kubectl delete --force`` does."""
    pinned_s: float
    moves: bool
    """Another pod reads at the end; otherwise the images are mapped by hand on the other node."""
    volumes: tuple[Draw, ...]

    @property
    def node(self) -> str:
        """The node on which the pod runs."""
        return NODES[self.number % 2]

    @property
    def other(self) -> str:
        """The node on which its volumes are read at the end."""
        return NODES[1 - self.number % 2]


def draw(seed: int, number: int) -> Life:
    """Return the lifecycle with this number: the same one for the same seed."""
    chance = random.Random(f"{seed}/{number}")
    mode = "Block" if chance.random() < 0.25 else "Filesystem"
    volumes = tuple(_draw(chance, mode, number * TOGETHER + index) for index in range(TOGETHER))
    return Life(
        number=number,
        mode=mode,
        stumbles=mode == "Filesystem" and chance.random() < 0.25,
        forced=chance.random() < 0.25,
        pinned_s=chance.uniform(1, 12),
        # kubelet retries a refused unstage after two minutes: the attachment stays until then.
        moves=chance.random() < 0.5 and not any("refused" in volume.fault for volume in volumes),
        volumes=volumes,
        # Drawn last, so that everything else that a seed draws stays the same.
        gives_up=chance.random() < 0.5,
    )


def _draw(chance: random.Random, mode: str, number: int) -> Draw:
    weights = [often for _, often in _FAULTS.values()]
    fault = chance.choices([*_FAULTS], weights=weights)[0]
    if mode == "Block" and fault == "umount is refused":
        fault = "nothing"
    luks = mode == "Filesystem" and chance.random() < 0.06
    pinned = not luks and chance.random() < 0.4
    pin = chance.choice(_PINS[mode]) if pinned else None
    return Draw(number=number, luks=luks, fault=fault, pin=pin)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping as sysfs shows it: a later mapping with the same name is a different one."""

    device: str
    client: str
    diskseq: str


class Volume:
    """One episode: a volume of a pod, on the pod's node."""

    def __init__(self, scene: Scene, drawn: Draw, life: Life) -> None:
        self.drawn = drawn
        self._scene = scene
        self._life = life
        self._lab = scene.lab
        self._vm = scene.lab.nodes[life.node]
        self._release: Callable[[], object] | None = None
        self._was: Mapped | None = None
        self._digest = ""
        self.claim = f"{scene.name}-{drawn.number}"
        storage_class = "rbd-luks" if drawn.luks else "rbd"
        self.pv = scene.claim(
            f"-{drawn.number}", volume_mode=life.mode, storage_class=storage_class
        )
        self.image, self.handle = scene.image_of(self.pv), scene.handle(self.pv)

    @property
    def pinned(self) -> bool:
        """Return whether something keeps its device busy."""
        return self._release is not None

    def settle(self, pod: str) -> None:
        """Write to the volume, record its mapping, and pin it if the episode draws a pin."""
        there = self.mapped()
        assert there is not None, f"{self.drawn}: the pod runs, and nothing is mapped"
        self._was = there
        if self._life.mode == "Block":
            self._vm.run(
                f"dd if=/dev/urandom of={there.device} bs=4k count=64 seek=1024 oflag=direct"
                " 2>/dev/null"
            )
        else:
            path = self._data(pod)
            self._vm.run(f"head -c 300000 /dev/urandom >{path} && sync -f {path}")
        self._digest = self._read_of(self._life.node, pod, there.device)
        self._release = self._pin(pod, there)

    def check_still_mapped(self, why: str) -> None:
        """Check that the mapping still exists while it is needed or pinned."""
        assert self.mapped() == self._was, f"{self.drawn}: its mapping was removed {why}"

    def let_go(self) -> None:
        """Remove the pin."""
        if self._release is not None:
            self._release()
            self._release = None

    def mapped(self) -> Mapped | None:
        """Return the mapping of the volume on the pod's node."""
        return mapped(self._lab, self._life.node, self.image)

    def wait_gone(self) -> None:
        """Wait until the mapping on the pod's node is gone."""
        there = self._was or self.mapped()
        if there is not None:
            wait_gone(self._vm, there)

    def check_whole(self, pod: str | None) -> None:
        """Check on the other node that the image has every byte, in a pod or mapped by hand."""
        if pod is None:
            found = self._read_by_hand()
        else:
            there = mapped(self._lab, self._life.other, self.image)
            assert there is not None
            found = self._read_of(self._life.other, pod, there.device)
        assert found == self._digest, f"{self.drawn}: bytes were lost"

    # Faults ---------------------------------------------------------------------------------------

    def set_fault(self, step: str, action: str) -> None:
        """Make the driver fail with this fault for this volume."""
        times = 1 if action == "crash" else 0
        self._lab.set_fault(self._life.node, step, action, volume=self.handle, times=times)

    def clear_fault(self, step: str) -> None:
        """Remove the fault."""
        self._lab.clear_fault(self._life.node, step, volume=self.handle)

    def _pin(self, pod: str, there: Mapped) -> Callable[[], object] | None:
        """Keep the device busy; return the function that releases it."""
        node, scene = self._life.node, self._scene
        match self.drawn.pin:
            case "cwd":
                pid = scene.pin_by_cwd(node, scene.mount_of(pod, self.pv))
            case "bind":
                pid = scene.pin_by_bind(node, scene.mount_of(pod, self.pv))
            case "private mount":
                pid = scene.private_mount(node, there.device)
            case "open":
                pid = scene.hold_open(node, there.device)
            case "dm":
                name = f"pin-{self.drawn.number}"
                self._vm.run(f"dmsetup create {name} --table '0 8 linear {there.device} 0'")
                return lambda: self._vm.run(["dmsetup", "remove", "--retry", name])
            case "loop":
                loop = self._vm.run(["losetup", "-f", "--show", there.device]).stdout.strip()
                return lambda: self._vm.run(["losetup", "-d", loop])
            case _:
                return None
        return lambda: scene.kill(node, pid)

    # Bytes ----------------------------------------------------------------------------------------

    def _data(self, pod: str) -> str:
        return f"{self._scene.mount_of(pod, self.pv)}/data"

    def _read_of(self, node: str, pod: str, device: str) -> str:
        if self._life.mode == "Block":
            return self._digest_of(node, _block(device))
        return self._digest_of(node, f"cat {self._data(pod)}")

    def _read_by_hand(self) -> str:
        node = self._life.other
        device = self._scene.map_and_leave(node, self.image, "--read-only")
        try:
            return self._digest_of(node, self._read_from(device))
        finally:
            self._lab.nodes[node].run(["rbd", "unmap", "-o", "noudev", device], check=False)

    def _read_from(self, device: str) -> str:
        if self._life.mode == "Block":
            return _block(device)
        name = f"read-{self.drawn.number}"
        if not self.drawn.luks:
            return _mounted(device, name)
        opened = (
            "printf lab | cryptsetup luksOpen --readonly --disable-keyring -d /dev/stdin"
            f" {device} {name}"
        )
        return f"{opened} && {_mounted(f'/dev/mapper/{name}', name)}; cryptsetup luksClose {name}"

    def _digest_of(self, node: str, command: str) -> str:
        return self._lab.nodes[node].run(f"{{ {command}; }} | sha256sum").stdout.split()[0]


def _mounted(device: str, name: str) -> str:
    place = f"/run/{name}"
    read = f"mkdir -p {place} && mount -o ro {device} {place} && cat {place}/data"
    return f"{read}; umount {place} >&2"


def _block(device: str) -> str:
    return f"dd if={device} bs=4k count=64 skip=1024 iflag=direct 2>/dev/null"


class Episodes:
    """The lifecycle of a pod with its volumes; :meth:`play` raises if an invariant is broken."""

    def __init__(self, lab: Lab, life: Life, seed: int) -> None:
        self._lab = lab
        self._life = life
        self._scene = Scene(lab, f"life-{seed}-{life.number}")
        self._patience = threading.Event()
        self._volumes: list[Volume] = []

    def play(self) -> None:
        """Run the episode, and clear the scene in every case."""
        try:
            self._play()
        except (LabError, AssertionError) as error:
            raise AssertionError(f"{self._life}:\n{error}") from error
        finally:
            for volume in self._volumes:
                with contextlib.suppress(LabError):
                    volume.let_go()
            self._scene.clear()

    def _play(self) -> None:
        life, workloads = self._life, self._scene.workloads
        self._volumes += [Volume(self._scene, drawn, life) for drawn in life.volumes]
        pod = (self._stumble() if life.stumbles else None) or self._start(life.node)
        workloads.wait_running(pod, timeout_s=_WAIT_S)
        for volume in self._volumes:
            volume.settle(pod)
        for volume in self._volumes:
            volume.check_still_mapped("while its pod lived")
        assert not beats_missed(self._lab, life.node, pod), f"{life}: the living pod saw an error"
        with self._faults():
            if life.forced:
                workloads.force_delete(pod)
            else:
                workloads.delete("Pod", pod, wait=False)
            self._release()
            for volume in self._volumes:
                volume.wait_gone()
        self._read()

    def _start(self, node: str) -> str:
        """Start a pod that writes to each volume every few seconds and reports a failed write."""
        claims = [volume.claim for volume in self._volumes]
        return start_beating(self._scene, node, self._life.mode, claims)

    def _stumble(self) -> str | None:
        """Make one volume's first stage fail and leave its mapping; return the pod unless deleted.

        The next attempt on that node uses the mapping: ceph-csi first lists the mappings of its
        node (attachRBDImage, internal/rbd/rbd_attach.go@52fcb7b).
        """
        scene = self._scene
        volume = next((candidate for candidate in self._volumes if not candidate.drawn.luks), None)
        if volume is None:
            return None
        steps = {"NodeStage.mkfs": "error", "NodeStage.rollback-unmap": "skip"}
        for step, action in steps.items():
            volume.set_fault(step, action)
        pod = self._start(self._life.node)
        leaked = wait_until(volume.mapped, timeout_s=_WAIT_S, what="a mapping", interval_s=2)
        scene.workloads.wait_event(pod, reason="FailedMount", timeout_s=_WAIT_S)
        # Longer than the grace period: a pod needs this mapping, which is not mounted.
        self._patience.wait(8)
        assert volume.mapped() == leaked, "the mapping of a waiting pod was removed"
        if self._life.gives_up:
            scene.workloads.delete("Pod", pod)
        for step in steps:
            volume.clear_fault(step)
        if self._life.gives_up:
            volume.wait_gone()
            return None
        scene.workloads.wait_running(pod, timeout_s=_WAIT_S)
        assert volume.mapped() == leaked, "the next try did not use what its node had mapped"
        return pod

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Set the drawn faults until every mapping is gone."""
        faults = [
            (faulty, *fault)
            for faulty in self._volumes
            if (fault := _FAULTS[faulty.drawn.fault][0])
        ]
        for volume, step, action in faults:
            volume.set_fault(step, action)
        try:
            yield
        finally:
            for volume, step, _ in faults:
                volume.clear_fault(step)

    def _release(self) -> None:
        """Remove every pin after a while, and check that its volume is unchanged."""
        pinned = [volume for volume in self._volumes if volume.pinned]
        self._patience.wait(self._life.pinned_s if pinned else 0)
        for volume in pinned:
            volume.check_still_mapped(f"although it was pinned ({volume.drawn.pin})")
            volume.let_go()

    def _read(self) -> None:
        pod = None
        if self._life.moves:
            # Before that the controller would refuse, and retry with growing delays.
            for volume in self._volumes:
                self._scene.wait_detached(volume.pv, self._life.node, timeout_s=_WAIT_S)
            pod = self._start(self._life.other)
            self._scene.workloads.wait_running(pod, timeout_s=_WAIT_S)
        for volume in self._volumes:
            volume.check_whole(pod)


def start_beating(scene: Scene, node: str, mode: str, claims: list[str]) -> str:
    """Start a pod that writes to its volumes every few seconds and reports a failed write.

    Returns:
        Its name.
    """
    if mode == "Block":
        targets = [f"/dev/xvd{chr(ord('a') + index)}" for index in range(len(claims))]
        write = "dd if=/proc/uptime of=$t bs=512 seek=9 conv=notrunc,fsync"
    else:
        targets = [f"/data{index + 1 if index else ''}" for index in range(len(claims))]
        write = "dd if=/proc/uptime of=$t/beat conv=fsync"
    beat = f"for t in {' '.join(targets)}; do {write} 2>/dev/null || echo missed; done"
    command = (
        *("/bin/sh", "-c"),
        f"trap 'exit 0' TERM; while :; do {beat}; sleep 15 & wait $!; done",
    )
    name = f"{scene.name}-{node}"
    scene.add(pod_object(name, node=node, claims=claims, block=mode == "Block", command=command))
    return name


def beats_missed(lab: Lab, node: str, pod: str) -> bool:
    """Return whether a pod reported a failed write."""
    script = f"grep -q missed /var/log/pods/default_{pod}_*/box/*.log"
    return lab.nodes[node].run(script, check=False).exit_code == 0


def mapped(lab: Lab, node: str, image: str) -> Mapped | None:
    """Return the mapping of an image on a node."""
    name = image.rpartition("/")[2]
    command = "read c <$d/client_id; read s </sys/block/rbd$n/diskseq; echo /dev/rbd$n $c $s"
    script = _where_mapped(name, command)
    found = lab.nodes[node].run(script, check=False).stdout.split()
    return Mapped(*found) if len(found) == 3 else None


def _where_mapped(name: str, command: str) -> str:
    """Return a script that runs a command for an image's device: number $n, sysfs directory $d.

    Other mappings appear and disappear meanwhile: an entry that cannot be read must not leave the
    name of the previous entry in the variable.
    """
    return (
        "for d in /sys/bus/rbd/devices/*; do { read i <$d/name; } 2>/dev/null || continue;"
        f" [ $i = {name} ] || continue; n=${{d##*/}}; {command} || exit; break; done"
    )


def wait_gone(vm: Vm, there: Mapped) -> None:
    """Wait in the guest without new programs: requests and programs cost it too much."""
    number = there.device.removeprefix("/dev/rbd")
    script = (
        f"exec 3<> <(:); while read now 2>/dev/null </sys/block/rbd{number}/diskseq"
        f" && [ $now = {there.diskseq} ]; do read -t 2 -u 3; done; :"
    )
    try:
        vm.run(["bash", "-c", script], timeout_s=_WAIT_S)
    except LabError as error:
        log = vm.run(f"tail -n 40 {LOG_DIR}/mortal.log | cut -c 1-500").stdout
        raise LabError(f"{there} is not gone: {error}\n--- its agents:\n{log}") from error


class Bare:
    """One episode without a pod: an in-tree volume that is mapped, mounted and left behind."""

    def __init__(self, lab: Lab, seed: int, number: int) -> None:
        chance = random.Random(f"{seed}/bare/{number}")
        self._node = NODES[number % 2]
        self._pin_by = chance.choice((None, "cwd", "bind", "private mount", "open", "reads"))
        self._mounted_s, self._pinned_s = chance.uniform(0, 9), chance.uniform(1, 9)
        self._data = chance.randbytes(100_000)
        self._lab = lab
        self._vm = lab.nodes[self._node]
        self._scene = Scene(lab, f"bare-{seed}-{number}")
        self._place = f"/run/{self._scene.name}"
        self._patience = threading.Event()

    def play(self) -> None:
        """Run the episode, and clear the scene in every case."""
        try:
            self._play()
        except (LabError, AssertionError) as error:
            what = f"bare on {self._node}, pinned by {self._pin_by}"
            raise AssertionError(f"{what}:\n{error}") from error
        finally:
            self._scene.clear()

    def _play(self) -> None:
        image = self._scene.in_tree_volume(formatted=True)
        self._mount(image)
        there = mapped(self._lab, self._node, image)
        assert there is not None
        self._vm.run(f"cat >{self._place}/data && sync -f {self._place}/data", stdin=self._data)
        # Sometimes longer than the grace period: a mounted mapping is no orphan.
        self._patience.wait(self._mounted_s)
        pid = self._pin(there.device)
        assert mapped(self._lab, self._node, image) == there, "it was unmapped while it was mounted"
        self._vm.run(["umount", "-l", self._place])
        if pid is not None and self._pin_by == "reads":
            self._patience.wait(_GRACE_S + self._pinned_s)
            self._scene.kill(self._node, pid)
            self._check_reader()
        elif pid is not None:
            self._patience.wait(self._pinned_s)
            assert mapped(self._lab, self._node, image) == there, "unmapped while it was pinned"
            self._scene.kill(self._node, pid)
        wait_gone(self._vm, there)
        assert self._lab.ceph.file_of(image, "/data") == self._data, "bytes were lost"

    def _check_reader(self) -> None:
        """Check that no unmap came within a grace period of a read that no observation saw.

        If an emulated processor does not run the reader for longer than that, the reader has no I/O
        in that time.
        """
        ended = self._scene.reader_ended(self._node)
        if ended is not None:
            last, end = ended
            assert end - last > _GRACE_S, f"unmapped {end - last:.1f} s after it was read"

    def _mount(self, image: str) -> None:
        """Map and mount in one command, because the mapping is an orphan in between.

        The script writes what `rbd map` writes to the kernel, without `rbd map`: starting it takes
        most of its time on an emulated processor.
        """
        ceph, (pool, _, name) = self._lab.ceph, image.partition("/")
        mount = f"mount /dev/rbd$n {self._place}"
        script = (
            f"read -r key; mkdir -p {self._place}"
            f" && echo {ceph.monitor} name=csi,secret=$key {pool} {name} -"
            f" >/sys/bus/rbd/add_single_major && {_where_mapped(name, mount)}"
        )
        self._vm.run(script, stdin=f"{ceph.key_of('csi')}\n".encode())

    def _pin(self, device: str) -> int | None:
        match self._pin_by:
            case "cwd":
                return self._scene.pin_by_cwd(self._node, self._place)
            case "bind":
                return self._scene.pin_by_bind(self._node, self._place)
            case "private mount":
                return self._scene.private_mount(self._node, device)
            case "open":
                return self._scene.hold_open(self._node, device)
            case "reads":
                return self._scene.read_now_and_then(self._node, device)
        return None


class Disturbance:
    """Cuts one node after another off its network, and restarts a driver that crashed."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab = lab
        self._chance = random.Random(f"{seed}/disturbance")
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._cut, self._start_again)]
        self.cuts = 0

    def __enter__(self) -> Self:
        """Start the disturbance."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it, with every node on the network."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _cut(self) -> None:
        while not self._over.wait(self._chance.uniform(*_PEACE_S)):
            vm = self._lab.nodes[self._chance.choice(NODES)]
            vm.cut()
            try:
                self._over.wait(self._chance.uniform(*_CUT_S))
            finally:
                vm.mend()
            self.cuts += 1

    def _start_again(self) -> None:
        while not self._over.wait(3):
            for node in NODES:
                driver = self._lab.nodes[node].service("csi")
                with contextlib.suppress(LabError):
                    if driver.pid() is None:
                        driver.start()
