"""The /proc, /sys and kubelet directories of a node as plain files, as far as a test needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.collect.node.observer import observe_node
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.model import DeviceNumber, NotObserved

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.collect.node.procfs import Turns
    from rbdagent.model import Gap, Mapping, NodeView, Source

MOUNTS: Final = "mounts in other mount namespaces"
FILES: Final = "open files and working directories of other users' processes"
POD: Final = "9eb33a05-ca49-4781-8d19-597499b70291"
OTHER_POD: Final = "22222222-ca49-4781-8d19-597499b70291"
KUBELET: Final = "/var/lib/kubelet"
ROOT_MOUNT: Final = "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"


class Tree:
    """One node with pid 1 and the mount namespace of the host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.roots = NodeRoots(procfs=root / "proc", sysfs=root / "sys", host_root=root / "host")
        for directory in ("sys/kernel", "sys/bus/rbd/devices", "host/dev"):
            (root / directory).mkdir(parents=True)
        self.namespace("host", ROOT_MOUNT)
        self.process(1, "init", parent=0)

    def write(self, path: str, content: bytes | str) -> None:
        """Write a file below the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def device(self, number: int) -> None:
        """Map an image as ``/dev/rbdN``, 252:16N."""
        attributes = {"pool": "k8s", "name": f"image-{number}", "major": "252"}
        for name, value in (attributes | {"minor": str(16 * number)}).items():
            self.write(f"sys/bus/rbd/devices/{number}/{name}", f"{value}\n")
        self.write(f"sys/block/rbd{number}/dev", f"252:{16 * number}\n")
        self.write(f"host/dev/rbd{number}", "")

    def number(self, number: int) -> DeviceNumber:
        """Return the number of ``/dev/rbdN``."""
        return DeviceNumber(major=252, minor=16 * number)

    def namespace(self, name: str, *lines: str | bytes) -> None:
        """Create a mount namespace, or replace its lines."""
        raw = [line.encode() if isinstance(line, str) else line for line in lines]
        self.write(f"namespaces/{name}", b"".join(line + b"\n" for line in raw))

    def process(
        self,
        pid: int,
        *arguments: str,
        namespace: str = "host",
        pod: str | None = None,
        uid: int = 0,
        ticks: int = 1000,
        parent: int = 1,
    ) -> None:
        """Add a process; its mount namespace must exist."""
        directory = f"proc/{pid}"
        name = arguments[0].rpartition("/")[2][:15]
        rest = f"S {parent} 1 1 0 -1 0 {'0 ' * 10}1 0 {ticks} 0"
        self.write(f"{directory}/stat", f"{pid} ({name}) {rest}\n")
        self.write(f"{directory}/cmdline", "".join(f"{word}\0" for word in arguments))
        self.write(f"{directory}/cgroup", f"0::/kubepods/pod{pod}\n" if pod else "0::/system\n")
        self.write(f"{directory}/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.write(f"{directory}/maps", "")
        shown = self.root / "namespaces" / namespace
        (self.root / directory / "ns").mkdir()
        for link in ("mountinfo", "ns/mnt"):
            (self.root / directory / link).hardlink_to(shown)

    def open_files(self, pid: int, *paths: str) -> None:
        """Add open files to a process."""
        directory = self.root / "proc" / str(pid) / "fd"
        directory.mkdir()
        for number, path in enumerate(paths):
            (directory / str(number)).symlink_to(path)

    def observe(self, turns: Turns | None = None) -> tuple[NodeView, Source]:
        """Observe the node."""
        view, source = observe_node(self.roots, node_name="n1", turns=turns)
        assert view is not None, source.reason
        return view, source

    def mappings(self) -> tuple[Mapping, ...]:
        """Observe the node and return its mappings."""
        view, _ = self.observe()
        assert not isinstance(view.mappings, NotObserved)
        return view.mappings


def gap_of(source: Source, fact: str) -> Gap:
    """Return the gap of a source for a fact."""
    (found,) = (gap for gap in source.gaps if gap.fact == fact)
    return found


def volume_path(pod: str, volume: str) -> str:
    """Return the path at which kubelet mounts a volume for a pod."""
    return f"{KUBELET}/pods/{pod}/volumes/kubernetes.io~csi/{volume}/mount"
