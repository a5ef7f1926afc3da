"""Recordings of real nodes, as file trees to observe, with the data of Ceph and the API then.

Two recorders wrote them: the first a file for each source it read (``n1.rbd-sysfs``), the second a
file for each node (``n1.obs``). Both are read into a `RecordedNode`. It is written below a
temporary directory in the layout that the observers expect: ``proc``, ``sys`` and the files of the
host. Facts that neither recorder wrote are in ``facts.toml`` (see
``tests/fixtures/recordings/README.md``).
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import re
import socket
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import mock

from msgspec.structs import replace

from rbdagent.collect.files import Identity, identity_of
from rbdagent.collect.node import namespaces, openers
from rbdagent.collect.node.observer import observe_node
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.correlate import images_of
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    ClusterView,
    ImagePresence,
    ImageSpec,
    ImageView,
    KubeEvent,
    KubeView,
    LockHolder,
    NodeView,
    NotObserved,
    ObjectRef,
    Snapshot,
    Source,
    Sources,
    SourceState,
    Target,
    TargetKind,
    Watcher,
)
from rbdagent.parse import kubernetes as read
from rbdagent.parse.address import parse_address, parse_blocklist_entry
from tests.support.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
_T = TypeVar("_T")

RECORDINGS: Final = Path(__file__).parents[1] / "fixtures" / "recordings"

_HOST_NAMESPACE: Final = "mnt:[4026531841]"
_KUBELET: Final = "/var/lib/kubelet"
_SOCKETS: Final = (
    f"{_KUBELET}/plugins_registry/rbd.csi.ceph.com-reg.sock",
    f"{_KUBELET}/plugins/rbd.csi.ceph.com/csi.sock",
)
"""The socket of the driver's registrar, and the socket of the driver."""
_BOOT: Final = "2026-11-21T00:00:00Z"
_KERNEL_THREAD: Final = 0x00200000
_POOL, _POOL_ID = "k8s", 1
_RBD_MAJOR, _RBD_SHIFT = 252, 4
_NBD_MAJOR, _NBD_SHIFT = 43, 5
_NOT_RECORDED: Final = NotObserved(reason="not recorded")


@dataclass(frozen=True)
class Link:
    """A link of ``/proc/PID``, and the device numbers of its target."""

    target: str
    device: int
    special: int = 0
    """``st_rdev``; 0 if the target is not a device node."""

    @property
    def identity(self) -> Identity:
        return Identity(
            attributes=0,
            mode=stat.S_IFBLK if self.special else stat.S_IFREG,
            inode=0,
            known=0,
            special_major=os.major(self.special),
            special_minor=os.minor(self.special),
            major=os.major(self.device),
            minor=os.minor(self.device),
        )


@dataclass(kw_only=True)
class Process:
    """The recorded facts about one process."""

    name: str = ""
    command: str = ""
    """Words with single spaces between them; empty for a kernel thread."""
    state: str = "S"
    namespace: str = _HOST_NAMESPACE
    pod: str | None = None
    started_at: str = _BOOT
    links: dict[str, Link] = field(default_factory=dict)


@dataclass(kw_only=True)
class RecordedNode:
    """A node, ready to be written as a file tree, with the absolute paths of the node."""

    name: str
    files: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    dead_sockets: set[str] = field(default_factory=set)
    """Unix sockets that no process listens on any more."""
    processes: dict[int, Process] = field(default_factory=dict)
    namespaces: dict[str, list[str]] = field(default_factory=lambda: {_HOST_NAMESPACE: []})
    """Lines of mountinfo by mount namespace; the key is the target of the namespace's link."""

    def process(self, pid: str | int, command: str = "", name: str = "") -> Process:
        """Return the process with a pid, added if new; the longer command line is the full one."""
        found = self.processes.setdefault(int(pid), Process())
        found.command = max(found.command, command.strip(), key=len)
        found.name = name or found.name or os.path.basename(found.command.partition(" ")[0])
        return found

    def runs(self, program: str) -> bool:
        """Return whether a program runs."""
        return any(process.name == program for process in self.processes.values())

    def add_block_device(self, name: str, number: str, attributes: Json) -> None:
        """Add ``/sys/block/NAME`` and its device node."""
        block = f"/sys/block/{name}"
        self.files[f"/dev/{name}"] = ""
        self.files[f"{block}/dev"] = number
        for attribute in ("ro", "size", "pid", "backend"):
            if attribute in attributes:
                self.files[f"{block}/{attribute}"] = attributes[attribute]
        above = attributes.get("holders", "").strip("[]")
        self.directories |= {f"{block}/holders"} | {f"{block}/holders/{above}" for _ in above[:1]}


# --------------------------------------------------------------------------------------------------
# Reading a recorded node
# --------------------------------------------------------------------------------------------------


def recorded_nodes() -> list[tuple[str, str]]:
    """Return every recording with each of its nodes."""
    files = (*RECORDINGS.glob("*/n?.obs"), *RECORDINGS.glob("*/n?.rbd-sysfs"))
    return sorted((file.parent.name, file.name.partition(".")[0]) for file in files)


def recorded_claims(recording: str) -> list[str]:
    """Return the claims that the PVs of the recording are for."""
    volumes = _recorded(RECORDINGS / recording, "pv")
    return [str(volume["spec"]["claimRef"]["name"]) for volume in volumes]


def some_claim(recording: str) -> str:
    """Return a claim that a PV of the recording is for."""
    return recorded_claims(recording)[0]


def recorded_node(recording: str, name: str) -> RecordedNode:
    """Read one node of a recording, from the files of either recorder."""
    directory = RECORDINGS / recording
    node = RecordedNode(name=name)
    if (directory / f"{name}.obs").exists():
        _read_observation(node, directory)
    else:
        _read_files(node, directory)
    _complete(node, directory)
    return node


def _sections(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each ``== title`` with its lines."""
    for part in re.split(r"^== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, *lines = part.splitlines()
        yield title.strip(), lines


def _read_files(node: RecordedNode, directory: Path) -> None:
    """Read what the first recorder wrote."""
    for title, lines in _sections(directory / f"{node.name}.rbd-sysfs"):
        if title.startswith("/sys/bus/rbd/devices/"):
            _add_krbd_attributes(node, title, lines)
        elif title == "/dev":
            _add_loops(node, lines)
        elif title == "kernel threads":
            _add_threads(node, [line.replace("[", "").replace("]", "") for line in lines])
    _add_mounts(node, (directory / f"{node.name}.mountinfo-allns-rbd").read_text().splitlines())
    whole = (directory / f"{node.name}.mountinfo-pid1").read_text()
    node.namespaces[_HOST_NAMESPACE] = whole.splitlines()
    for line in (directory / f"{node.name}.kubelet-tree").read_text().splitlines():
        mode, _, _, path = line.split()[:4]
        if mode.startswith("d"):
            node.directories.add(path)
        else:
            node.files[path] = ""
    for title, lines in _sections(directory / f"{node.name}.json-files"):
        node.files[title.split()[0]] = "\n".join(lines)


def _add_krbd_attributes(node: RecordedNode, directory: str, lines: list[str]) -> None:
    """Read ``444 pool: k8s~`` for each attribute, and ``ro: 0 dev: 252:0 …`` of the device."""
    for line in lines:
        if attribute := re.fullmatch(r"\d+ (\w+): (.*)~", line):
            node.files[f"{directory}/{attribute[1]}"] = attribute[2]
        elif line.startswith("ro: "):
            found = dict(re.findall(r"(\w+): (\S*)", line))
            node.add_block_device(f"rbd{os.path.basename(directory)}", found.pop("dev"), found)


def _read_observation(node: RecordedNode, directory: Path) -> None:
    """Read what the second recorder wrote."""
    readers: dict[str, Callable[[RecordedNode, list[str]], None]] = {
        "krbd": _add_krbd,
        "nbd": _add_nbd,
        "dm": _add_mappers,
        "loop": _add_loops,
        "kernel threads": _add_threads,
        "processes in D, or naming the device": _add_processes,
        "mounts, all namespaces": _add_mounts,
        "cwd/root/fd on the image": _add_links,
        "kubelet dir": _add_kubelet_directories,
    }
    for title, lines in _sections(directory / f"{node.name}.obs"):
        if title.startswith("fs in the kernel"):
            node.directories |= set(re.findall(r"'([^']+)'", title))
        else:
            readers[title](node, lines)


def _add_krbd(node: RecordedNode, lines: list[str]) -> None:
    for line in lines:
        path, attributes = _attributes(line)
        name = f"rbd{os.path.basename(path)}"
        minor = int(os.path.basename(path)) << _RBD_SHIFT
        bus = ("pool", "pool_ns", "name", "image_id", "client_id", "client_addr", "current_snap",
               "features", "size")  # fmt: skip
        node.files |= {f"{path}/{attribute}": attributes[attribute] for attribute in bus}
        node.files |= {
            f"{path}/pool_id": str(_POOL_ID),
            f"{path}/major": str(_RBD_MAJOR),
            f"{path}/minor": str(minor),
        }
        sectors = str(int(attributes["size"]) // 512)
        node.add_block_device(name, f"{_RBD_MAJOR}:{minor}", attributes | {"size": sectors})


def _attributes(line: str) -> tuple[str, dict[str, str]]:
    """Read ``PATH name=value …``."""
    return line.split(maxsplit=1)[0], dict(re.findall(r"(\w+)=(\S*)", line))


def _add_nbd(node: RecordedNode, lines: list[str]) -> None:
    """Read connected devices, and their processes with complete command lines."""
    for line in lines:
        if line.startswith("/sys/block/"):
            path, attributes = _attributes(line)
            name = os.path.basename(path)
            minor = int(name.removeprefix("nbd")) << _NBD_SHIFT
            node.add_block_device(name, f"{_NBD_MAJOR}:{minor}", attributes)
        elif found := re.match(r"\S+ pid (\d+) ppid .* mnt=(\S+) cgroup=\S+ cmd: (.*)", line):
            node.process(found[1], found[3]).namespace = found[2]


def _add_mappers(node: RecordedNode, lines: list[str]) -> None:
    for line in lines:
        if line.startswith("/sys/block/"):
            path, attributes = _attributes(line)
            node.files |= {
                f"{path}/dm/{attribute}": attributes[attribute] for attribute in ("name", "uuid")
            }
            node.add_block_device(os.path.basename(path), attributes["dev"], attributes)


def _add_loops(node: RecordedNode, lines: list[str]) -> None:
    for line in lines:
        if found := re.match(r"(/sys/block/(loop\d+))/loop[ /]backing_file:? (.*)", line):
            minor = found[2].removeprefix("loop")
            node.files |= {
                f"{found[1]}/dev": f"7:{minor}",
                f"{found[1]}/loop/backing_file": found[3],
            }


def _add_threads(node: RecordedNode, lines: list[str]) -> None:
    for thread in " | ".join(lines).split(" | "):
        pid, _, name = thread.strip().partition(" ")
        node.process(pid, name=name)


def _add_processes(node: RecordedNode, lines: list[str]) -> None:
    shape = re.compile(r"\s*(\d+) state=(\S) comm=(\S+) mnt=(\S+) wchan=\S* cmd=(.*)")
    for line in lines:
        if found := shape.match(line):
            process = node.process(found[1], found[5], name=found[3])
            process.state, process.namespace = found[2], found[4]


def _add_mounts(node: RecordedNode, lines: list[str]) -> None:
    """Read ``## pid PID COMMAND mnt:[…]`` with the lines of its mountinfo that show a device."""
    namespace = _HOST_NAMESPACE
    for line in lines:
        if found := re.match(r"## pid (\d+) (.*) (mnt:\[\d+\])$", line):
            namespace = found[3]
            node.process(found[1], found[2]).namespace = namespace
            node.namespaces.setdefault(namespace, [])
        else:
            node.namespaces[namespace].append(line)


def _add_links(node: RecordedNode, lines: list[str]) -> None:
    shape = re.compile(r"\s*/proc/(\d+)/(\S+) -> (.*) st_dev (\S+) st_rdev (\S+) (.*)")
    for line in lines:
        if found := shape.match(line):
            link = Link(found[3], _number(found[4]), _number(found[5]))
            node.process(found[1], found[6]).links[found[2]] = link


def _number(text: str) -> int:
    major, _, minor = text.partition(":")
    return os.makedev(int(major), int(minor))


def _add_kubelet_directories(node: RecordedNode, lines: list[str]) -> None:
    """Read ``750 DIRECTORY file(644) …``, each followed by the JSON files in it."""
    directory = ""
    for line in lines:
        if found := re.match(r"   (\S+\.json): (.*)", line):
            node.files[f"{directory}/{found[1]}"] = found[2]
            continue
        _, directory, *entries = line.split()
        node.directories.add(directory)
        for entry in entries:
            if (name := entry.partition("(")[0]) != "[MOUNT]":
                node.files[f"{directory}/{name}"] = ""


def _complete(node: RecordedNode, directory: Path) -> None:
    """Add facts that were not recorded on the node, but come from the API, logs or timeline."""
    facts = _facts(directory.name)
    own = facts[node.name]
    for entry in own.get("processes", ()):
        node.process(entry["pid"], entry["command"]).namespace = entry["namespace"]
        node.namespaces[entry["namespace"]] = entry["mounts"]
    node.namespaces[_HOST_NAMESPACE] += own.get("mounts", ())
    for entry in own.get("links", ()):
        node.process(entry["pid"]).links[entry["name"]] = Link(
            entry["target"], _number(entry["st_dev"])
        )
    for pid, uid in own.get("pods", {}).items():
        node.process(pid).pod = uid
    if kubelet := own.get("kubelet"):
        node.process(kubelet["pid"], "kubelet").started_at = kubelet["started_at"]
    node.process(1).namespace = _HOST_NAMESPACE
    for process in node.processes.values():
        node.namespaces.setdefault(process.namespace, [])
    for line in node.namespaces[_HOST_NAMESPACE]:
        path = line.split()[4]
        if path.startswith(f"{_KUBELET}/") and path not in node.files:
            node.directories.add(path)
    driver_runs = node.runs("cephcsi")
    if driver_runs:
        node.files |= dict.fromkeys(_SOCKETS, "")
    else:
        node.dead_sockets = {path for path in _SOCKETS if node.files.pop(path, None) is not None}
    listening = "".join(
        f"0: 00000002 00000000 00010000 0001 01 1 {path}\n" for path in _SOCKETS if driver_runs
    )
    described = next(
        item for item in _recorded(directory, "nodes") if item["metadata"]["name"] == node.name
    )["status"]
    address = next(
        entry["address"] for entry in described["addresses"] if entry["type"] == "InternalIP"
    )
    boot = int(_moment(_BOOT).timestamp())
    node.files |= own.get("files", {})
    node.files |= {
        "/proc/stat": f"btime {boot}\n",
        "/proc/swaps": "Filename Type Size Used Priority\n",
        "/proc/sys/kernel/hostname": node.name,
        "/proc/sys/kernel/random/boot_id": described["nodeInfo"]["bootID"],
        "/proc/1/net/fib_trie": f"  |-- {address}\n     /32 host LOCAL\n",
        "/proc/1/net/if_inet6": "",
        "/proc/1/net/unix": f"Num RefCount Protocol Flags Type St Inode Path\n{listening}",
    }
    node.directories |= {"/sys/kernel", "/sys/bus/rbd/devices"}
    for path in [path for path in node.files if path.startswith("/sys/bus/rbd/devices/")]:
        node.files[f"{os.path.dirname(path)}/cluster_fsid"] = facts["fsid"]


@functools.cache
def _facts(recording: str) -> Json:
    return tomllib.loads((RECORDINGS / recording / "facts.toml").read_text())


# --------------------------------------------------------------------------------------------------
# Writing a recorded node as a file tree, and observing it
# --------------------------------------------------------------------------------------------------


def observed(
    node: RecordedNode, root: Path, *, is_public: bool = False
) -> tuple[NodeView | None, Source]:
    """Write a node below a directory and observe it.

    Each link of ``/proc/PID`` is written as a symbolic link. Only the kernel can give it the
    recorded device numbers, so a replacement of `identity_of` returns them.
    """
    roots = replace(_plant(node, root), is_public=is_public)
    links = {
        str(roots.procfs / str(pid) / name): link
        for pid, process in node.processes.items()
        for name, link in process.links.items()
    }

    def recorded_identity(path: str) -> Identity:
        return links[path].identity if path in links else identity_of(path)

    with (
        mock.patch.object(namespaces, "identity_of", recorded_identity),
        mock.patch.object(openers, "identity_of", recorded_identity),
    ):
        return observe_node(roots, node_name=node.name)


def _plant(node: RecordedNode, root: Path) -> NodeRoots:
    for path in node.directories:
        _placed(root, path).mkdir(parents=True, exist_ok=True)
    for path, text in node.files.items():
        _write(_placed(root, path), text)
    for path in node.dead_sockets:
        bound_socket(_placed(root, path)).close()
    for name, lines in node.namespaces.items():
        _write(root / "namespaces" / name, "".join(f"{line}\n" for line in lines))
    for pid, process in node.processes.items():
        _plant_process(root, pid, process)
    return NodeRoots(procfs=root / "proc", sysfs=root / "sys", host_root=root / "host")


def _placed(root: Path, path: str) -> Path:
    top = "" if path.startswith(("/proc/", "/sys/")) else "host"
    return root / top / path.removeprefix("/")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def bound_socket(path: Path) -> socket.socket:
    """Return a socket bound to a path, which may be longer than the 107 bytes of a unix address."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH)
    try:
        made.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
    return made


def _plant_process(root: Path, pid: int, process: Process) -> None:
    """Write ``/proc/PID``; as in the kernel, each mount namespace has an inode."""
    directory = root / "proc" / str(pid)
    started = _moment(process.started_at) - _moment(_BOOT)
    ticks = int(started.total_seconds()) * os.sysconf("SC_CLK_TCK")
    flags = 0 if process.command else _KERNEL_THREAD
    rest = f"{process.state} {int(pid > 1)} 1 1 0 -1 {flags} {'0 ' * 12}{ticks} 0"
    _write(directory / "stat", f"{pid} ({process.name}) {rest}\n")
    words = process.command.split(" ") if process.command else []
    _write(directory / "cmdline", "".join(f"{word}\0" for word in words))
    pod = f"kubepods/besteffort/pod{process.pod}" if process.pod else ""
    _write(directory / "cgroup", f"0::/{pod}\n")
    _write(directory / "status", "Name:\t-\nUid:\t0\t0\t0\t0\n")
    shown = root / "namespaces" / process.namespace
    _write(directory / "mountinfo", shown.read_text())
    (directory / "ns").mkdir()
    (directory / "ns" / "mnt").hardlink_to(shown)
    for name, link in process.links.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).symlink_to(link.target)


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


# --------------------------------------------------------------------------------------------------
# The data of the API
# --------------------------------------------------------------------------------------------------


def recorded_volume(recording: str, claim: str) -> str:
    """Return the name of the PV whose claimRef names a claim; the claim may be deleted."""
    return next(
        str(volume["metadata"]["name"])
        for volume in _recorded(RECORDINGS / recording, "pv")
        if volume["spec"]["claimRef"]["name"] == claim
    )


def recorded_kube(recording: str, claim: str, observed_at: str) -> KubeView:
    """Read the recorded lists, and the events of a volume, its claim and its pods."""
    directory = RECORDINGS / recording
    pods = _parsed(directory, "pods", read.pod)
    subjects = {claim, recorded_volume(recording, claim)}
    if not isinstance(pods, NotObserved):
        subjects |= {pod.ref.name for pod in pods if claim in pod.claims}
    events = _events(directory, _moment(observed_at))
    return KubeView(
        server="https://recorded.example:6443",
        persistent_volumes=_parsed(directory, "pv", read.persistent_volume),
        claims=_parsed(directory, "pvc", read.claim),
        pods=pods,
        nodes=_parsed(directory, "nodes", read.node),
        csi_nodes=_parsed(directory, "csinodes", read.csi_node),
        attachments=_parsed(directory, "volumeattachments", read.attachment),
        events=tuple(event for event in events if event.subject.name in subjects),
    )


def _recorded(directory: Path, kind: str) -> list[Json]:
    found: list[Json] = json.loads((directory / f"kube.{kind}.json").read_text())
    return found


def _parsed(
    directory: Path, kind: str, reader: Callable[[Json], _T]
) -> tuple[_T, ...] | NotObserved:
    if not (directory / f"kube.{kind}.json").exists():
        return _NOT_RECORDED
    return tuple(read.parse_object(reader, item, what=kind) for item in _recorded(directory, kind))


_KINDS: Final = {
    "node": "Node",
    "persistentvolume": "PersistentVolume",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "pod": "Pod",
}
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def _events(directory: Path, observed_at: dt.datetime) -> Iterator[KubeEvent]:
    """Read events as JSON, or as ``kubectl get events`` lists them: with ages."""
    if (directory / "kube.events.json").exists():
        yield from (read.event(event) for event in _recorded(directory, "events"))
        return
    shape = re.compile(r"(\S+) +(\S+)(?: \(x(\d+) over \S+\))? +(\S+) +(\S+) +(\w+)/(\S+) +(.*)")
    for line in (directory / "kube.events").read_text().splitlines()[1:]:
        found = shape.fullmatch(line)
        assert found is not None, line
        namespace, age, count, severity, reason, kind, name, message = found.groups()
        since = {_UNITS[unit]: int(number) for number, unit in re.findall(r"(\d+)([dhms])", age)}
        yield KubeEvent(
            kind=_KINDS[kind],
            subject=ObjectRef(namespace=namespace, name=name),
            type=severity,
            reason=reason,
            message=message,
            last_seen=(observed_at - dt.timedelta(**since)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            count=int(count or 1),
        )


# --------------------------------------------------------------------------------------------------
# The data of Ceph
# --------------------------------------------------------------------------------------------------


def recorded_ceph(recording: str, wanted: frozenset[str]) -> CephView:
    """Read ``rbd info``, ``status`` and ``lock ls`` of the wanted images, and the blocklist."""
    fsid = _facts(recording)["fsid"]
    text = (RECORDINGS / recording / "ceph").read_text()
    parts = [part.partition("\n") for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]]
    return CephView(
        clusters=(
            ClusterView(
                name="lab",
                source=Source(state=SourceState.OBSERVED),
                fsid=fsid,
                images=tuple(
                    _image(name, fsid, printed) for name, _, printed in parts if name in wanted
                ),
                blocklist=_blocklist(text),
                services=_NOT_RECORDED,
                pools=((_POOL_ID, _POOL),),
            ),
        )
    )


def _blocklist(text: str) -> tuple[BlocklistEntry, ...]:
    listed = re.findall(r"^(\d\S+:\d+/\d+) (\S+)$", text, flags=re.MULTILINE)
    assert f"listed {len(listed)} entries" in text
    return tuple(
        parse_blocklist_entry(entry, until=until, where="osd blocklist ls")
        for entry, until in listed
    )


def _image(name: str, fsid: str, printed: str) -> ImageView:
    image_id = re.search(r"^\tid: (\w+)$", printed, flags=re.MULTILINE)
    watchers = re.findall(r"watcher=(\S+) client\.(\d+) cookie=(\d+)", printed)
    lockers = re.findall(r"^client\.(\d+) +(.+?)  +(\S+:\d+/\d+)$", printed, flags=re.MULTILINE)
    has_locks = "-- lock ls" in printed
    return ImageView(
        spec=ImageSpec(pool=_POOL, name=name),
        fsid=fsid,
        presence=ImagePresence.PRESENT,
        image_id=image_id[1] if image_id else None,
        pool_id=_POOL_ID,
        watchers=tuple(
            Watcher(
                address=parse_address(address, where="rbd status"),
                client=int(client),
                cookie=int(cookie),
            )
            for address, client, cookie in watchers
        ),
        lockers=tuple(
            LockHolder(
                client=int(client),
                address=parse_address(address, where="rbd lock ls"),
                lock_id=lock_id,
            )
            for client, lock_id, address in lockers
        )
        if has_locks
        else _NOT_RECORDED,
        metadata=tuple(re.findall(r"^(csi\.\S+) +(\S+) *$", printed, flags=re.MULTILINE))
        if has_locks
        else _NOT_RECORDED,
    )


# --------------------------------------------------------------------------------------------------
# The whole snapshot
# --------------------------------------------------------------------------------------------------


def recorded_snapshot(
    recording: str,
    claim: str,
    *,
    node_name: str,
    root: Path,
    later_minutes: int = 0,
    is_public: bool = False,
) -> Snapshot:
    """Return a snapshot of one volume of a recording, taken from one of its nodes.

    Args:
        recording: the name of its directory.
        claim: the claim of the volume.
        node_name: the node that takes the snapshot.
        root: an empty directory for the node's files.
        later_minutes: time from the recording to the snapshot; nothing changes in this time.
        is_public: whether an agent takes the snapshot.
    """
    recorded_at = _facts(recording)["observed_at"]
    target_name = recorded_volume(recording, claim)
    target = Target(
        argument=f"pv/{target_name}", kind=TargetKind.PERSISTENT_VOLUME, name=target_name
    )
    node, node_source = observed(recorded_node(recording, node_name), root, is_public=is_public)
    kube = recorded_kube(recording, claim, recorded_at)
    images = frozenset(image.spec.name for image in images_of(target, node, kube))
    now = _moment(recorded_at) + dt.timedelta(minutes=later_minutes)
    return snapshot(
        observed_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool_version="recorded",
        target=target,
        node=node,
        ceph=recorded_ceph(recording, images),
        kubernetes=kube,
        sources=Sources(
            node=node_source,
            ceph=Source(state=SourceState.OBSERVED),
            kubernetes=Source(state=SourceState.OBSERVED),
        ),
    )
