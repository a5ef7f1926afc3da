"""A node in namespaces of this machine's kernel, and what an unprivileged pod on it can try.

A pid namespace is the node: its first process is the host's, a process called kubelet runs next to
it, and rbdagent observes the namespace. A tmpfs replaces a volume: its users are found by its
device number, as an image's are. A tenant's processes have uid 65534, no capability, a cgroup of
their pod and a separate mount namespace; most attempts begin with a user namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rbdagent.model import DeviceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MEASURED: Final = """
import os, sys
pid = os.fork()
if pid == 0:
    os.close(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
os.write(int(sys.argv[1]), str(usage.ru_maxrss).encode())
os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
"""
"""Runs a command, and writes the peak of its memory in KiB to a descriptor.

The peak of a program includes that of the process that executed it (exec_mmap() in fs/exec.c): the
tests' own process would count, which has more than rbdagent.
"""

VICTIM_POD: Final = "11111111-1111-4111-8111-111111111111"
TENANT_POD: Final = "22222222-2222-4222-8222-222222222222"
TENANT_PODS: Final = TENANT_POD[:-2]
"""The uids of all pods of the tenant begin so."""
BYSTANDERS_POD: Final = "33333333-3333-4333-8333-333333333333"
VICTIM_PV: Final = "pvc-11111111"
TENANT_PV: Final = "pvc-22222222"
VICTIM: Final = 0
"""Number of the mapping whose pods do no harm; the tenant's own volume has the next number."""
TENANT: Final = 1
_BYSTANDERS: Final = 20
_PYTHON: Final = "/usr/bin/python3"
"""Debian's own: a tenant's user cannot reach a virtual environment below /root."""

_PROLOGUE: Final = r"""
import ctypes, mmap, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def ok(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def mount(source, target, kind, flags=0, data=None):
    ok(libc.mount(*(word and os.fsencode(word) for word in (source, target, kind)), flags, data))
def private_root():
    mount("none", "/", None, 0x4000 | 0x40000)  # MS_REC, MS_PRIVATE
def own_namespaces():
    uid, gid = os.getuid(), os.getgid()
    ok(libc.unshare(0x10000000 | 0x20000))  # CLONE_NEWUSER, CLONE_NEWNS
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    private_root()
    mount("tmpfs", "/tmp", "tmpfs")
BIND = 0x1000
def show_as_command_line(begin, size):
    stat = open("/proc/self/stat").read().rpartition(")")[2].split()
    code, data, stack = stat[23:25], stat[42:44], stat[25]
    libc.sbrk.restype = ctypes.c_void_p
    fields = [*code, *data, stat[44], libc.sbrk(0), stack, begin, begin + size, *stat[47:49], 0]
    given = struct.pack("=12QIi", *map(int, fields), 0, -1)  # struct prctl_mm_map
    ok(libc.prctl(35, 14, given, len(given), 0))  # PR_SET_MM, PR_SET_MM_MAP
def stay(children=()):
    print(os.getpid(), flush=True)
    sys.stdin.read()
    for child in children:
        os.kill(child, 9)
"""

_INIT: Final = f"""{_PROLOGUE}
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what has ended is never waited for
private_root()
for volume in sys.argv[1:]:
    mount("volume", volume, "tmpfs")
    os.chmod(volume, 0o1777)
    print(os.stat(volume).st_dev)
stay()
"""

# As kubelet and a runtime do: a cgroup, a mount namespace, the volume, and no rights.
_CONTAINER: Final = f"""{_PROLOGUE}
import json
given = json.loads(sys.argv[1])
with open(given["cgroup"] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
ok(libc.unshare(0x20000))
private_root()
mount("tmpfs", "/opt", "tmpfs")
mount(given["volume"], "/mnt", None, BIND)
for path in given["paths"]:
    os.makedirs("/opt" + path)
    mount(given["volume"], "/opt" + path, None, BIND)
for volume in given["volumes"]:
    ok(libc.umount2(os.fsencode(volume), 2))  # MNT_DETACH: a container does not see the host's
os.mknod("/opt/fuse", 0o600 | 0o20000, os.makedev(10, 229))
os.chmod("/opt/fuse", 0o666)
ok(libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execv({_PYTHON!r}, given["argv"])
"""

# Opening a file of a FUSE server that reads no request never ends, and a signal ends the wait.
_UNANSWERED: Final = f"""{_PROLOGUE}
server = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={{server}},rootmode=100444,user_id=0,group_id=0".encode()
of_first = []
for first in sys.argv[1:]:
    with open(f"/proc/{{first}}/task/{{first}}/children") as children:
        of_first += [first, *children.read().split()]
hung, *others = [f"/proc/{{pid}}/cmdline" for pid in of_first]
mount("hung", hung, "fuse", 0, options)
for other in others:
    mount(hung, other, None, BIND)
stay()
"""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A program of a tenant."""

    name: str
    script: str = "stay()"
    program: str = "app"
    """Its first argument: a process chooses its name."""
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Where its containers mount its own volume; the author of a pod chooses the paths."""
    pods: int = 1
    """How many pods of the tenant run it."""
    unanswered: bool = False
    """Reads of the command lines of its processes never end. The node plays this, not the tenant:
    what makes the kernel wait there is no part of the test."""


class Node:
    """The node; `stop` ends everything that runs on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubelet_root = directory / "kubelet"
        self.agent_log = directory / "agent.log"
        self.volumes = [
            self._volume(VICTIM_POD, VICTIM_PV),
            self._volume(TENANT_POD, TENANT_PV),
        ]
        self._running: list[subprocess.Popen[bytes]] = []
        self._cgroups: list[Path] = []
        self._of_tenant: list[Path] = []
        unshare = (
            *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("--propagation", "private", _PYTHON, "-c", _INIT),
        )
        self._init = subprocess.Popen(
            [*unshare, *map(str, self.volumes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            self.numbers = [_device_number(_line(self._init)) for _ in self.volumes]
            _line(self._init)
            children = f"/proc/{self._init.pid}/task/{self._init.pid}/children"
            self._first = Path(children).read_text().split()[0]
            for number, device in enumerate(self.numbers):
                self._map(number, device)
            self.kubelet = self.start_kubelet()
            cgroup = self._cgroup(f"pod{BYSTANDERS_POD}")
            self.bystanders = [
                self._contained(cgroup, Attempt(name="bystander", script=_BYSTANDER), VICTIM)
                for _ in range(_BYSTANDERS)
            ]
        except BaseException:
            self.stop()
            raise

    def _volume(self, pod: str, name: str) -> Path:
        path = self.kubelet_root / "pods" / pod / "volumes" / "kubernetes.io~csi" / name / "mount"
        path.mkdir(parents=True)
        return path

    def _map(self, number: int, device: DeviceNumber) -> None:
        attributes = {
            "pool": "k8s",
            "pool_id": "2",
            "name": f"csi-vol-{number}",
            "image_id": f"10{number:010x}",
            "client_id": f"client{4000 + number}",
            "client_addr": f"10.0.0.1:0/{100 + number}",
            "cluster_fsid": "1f0c3b8e-6d2a-4a7e-9b8e-5a1c2d3e4f50",
            "current_snap": "-",
            "size": "1073741824",
            "major": str(device.major),
            "minor": str(device.minor),
        }
        mapped = self.directory / "sys/bus/rbd/devices" / str(number)
        mapped.mkdir(parents=True)
        for name, value in attributes.items():
            (mapped / name).write_text(f"{value}\n")
        block = self.directory / "sys/block" / f"rbd{number}"
        block.mkdir(parents=True)
        (block / "dev").write_text(f"{device.major}:{device.minor}\n")
        (self.directory / "sys/kernel").mkdir(exist_ok=True)

    def _cgroup(self, name: str) -> Path:
        """Create a cgroup, as that of a pod's container, in the hierarchy of version 2."""
        mounted = next(
            line.split()[1]
            for line in Path("/proc/mounts").read_text().splitlines()
            if line.split()[2] == "cgroup2"
        )
        pods = Path(mounted) / f"rbdagent-test-{self._first}"
        path = pods / name / f"{len(self._cgroups):064x}"
        path.mkdir(parents=True)
        self._cgroups.append(path)
        return path

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", "--target", self._first, "--pid", "--mount", "--", *argv]

    def _begin(self, argv: Sequence[str]) -> int:
        """Start a long-running process on the node; return its pid there."""
        process = subprocess.Popen(
            self._inside(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._running.append(process)
        return int(_line(process))

    def start_kubelet(self) -> int:
        """Start a process named kubelet of the host."""
        launch = f"import os; os.execv({_PYTHON!r}, ['kubelet', *os.sys.argv[1:]])"
        root = f"--root-dir={self.kubelet_root}"
        return self._begin([_PYTHON, "-c", launch, "-c", f"{_PROLOGUE}stay()", root])

    def restart_kubelet(self) -> None:
        """Stop kubelet and start it again: its pid is the highest then."""
        running = self._running.pop(0)
        running.communicate(b"")
        self.kubelet = self.start_kubelet()
        self._running.insert(0, self._running.pop())

    def _contained(self, cgroup: Path, attempt: Attempt, volume: int) -> int:
        given = {
            "cgroup": str(cgroup),
            "volume": str(self.volumes[volume]),
            "volumes": [*map(str, self.volumes)],
            "paths": attempt.paths,
            "argv": [attempt.program, "-c", _PROLOGUE + attempt.script, *attempt.arguments],
        }
        return self._begin([_PYTHON, "-c", _CONTAINER, json.dumps(given)])

    @contextlib.contextmanager
    def trying(self, *attempts: Attempt, where: str = f"pod{TENANT_POD}") -> Iterator[list[int]]:
        """Start the attempts of a tenant; yield the pids of the processes on the node.

        Args:
            attempts: each is one process.
            where: the name of their cgroup: that of a pod, or of none.
        """
        first = len(self._running)
        cgroups = [self._cgroup(where)]
        most = max((attempt.pods for attempt in attempts), default=1)
        cgroups += [self._cgroup(f"pod{TENANT_PODS}{number}") for number in range(23, 22 + most)]
        self._of_tenant = cgroups
        try:
            begun = [
                (self._contained(cgroup, attempt, TENANT), attempt.unanswered)
                for attempt in attempts
                for cgroup in cgroups[: attempt.pods]
            ]
            unanswered = [str(pid) for pid, hangs in begun if hangs]
            if unanswered:
                self._begin([_PYTHON, "-c", _UNANSWERED, *unanswered])
            yield [pid for pid, _ in begun]
        finally:
            for process in self._running[first:]:
                process.communicate(b"")
            del self._running[first:]

    def pids_of_tenant(self) -> list[int]:
        """Return the pids, on the node, of all processes in the pods of the tenant."""
        pids = [pid for cgroup in self._of_tenant for pid in _text_of(cgroup / "cgroup.procs")]
        lines = [line for pid in pids for line in _text_of(f"/proc/{pid}/status", "\n")]
        return [int(line.split()[-1]) for line in lines if line.startswith("NSpid:")]

    def run(self, *arguments: str) -> Answer:
        """Run rbdagent on the node, as its administrator does."""
        begun = time.monotonic()
        reading, writing = os.pipe()
        command = self._inside([sys.executable, "-m", "rbdagent", *arguments, *self.flags])
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _MEASURED, str(writing), *command],
            stdout=subprocess.PIPE,
            pass_fds=(writing,),
        )
        os.close(writing)
        assert process.stdout is not None
        with process.stdout as output, os.fdopen(reading) as measured:
            text, peak_kib = output.read(), int(measured.read())
        return Answer(
            text=text,
            exit_code=process.wait(),
            took_s=time.monotonic() - begun,
            peak_mib=peak_kib / 1024,
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of rbdagent there: devices from files, and no other source."""
        sysfs = str(self.directory / "sys")
        return ("--sysfs", sysfs, "--no-ceph", "--no-kube", "--node-name", "n1")

    def unmount(self, volume: int) -> None:
        """Unmount a volume in the host's namespace, as kubelet does."""
        subprocess.run(self._inside(["umount", str(self.volumes[volume])]), check=True)

    def start_agent(self, *flags: str) -> subprocess.Popen[bytes]:
        """Start the agent on the node; it ends with the node."""
        command = (sys.executable, "-m", "rbdagent", "agent", *flags, *self.flags)
        with self.agent_log.open("ab") as log:
            process = subprocess.Popen(
                self._inside(command), stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        self._running.append(process)
        return process

    def stop(self) -> None:
        """End every process of the node by ending its first one."""
        self._init.kill()
        self._init.communicate()
        for process in self._running:
            process.communicate()
        for cgroup in self._cgroups:
            for directory in (cgroup, cgroup.parent, cgroup.parent.parent):
                with contextlib.suppress(OSError):
                    directory.rmdir()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of rbdagent, and its cost."""

    text: bytes
    exit_code: int
    took_s: float
    peak_mib: float
    """The peak of the larger of its processes."""
    json: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Parse the answer if it is JSON."""
        if self.text.startswith((b"{", b"[")):
            object.__setattr__(self, "json", json.loads(self.text))


def _text_of(path: Path | str, separator: str | None = None) -> list[str]:
    """Return the words of a file, or its lines; none if its process has ended."""
    try:
        return Path(path).read_text().split(separator)
    except OSError:
        return []


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    if not line:
        raise AssertionError(f"{process.args!r} ended: exit code {process.wait()}")
    return line


def _device_number(line: str) -> DeviceNumber:
    return DeviceNumber(major=os.major(int(line)), minor=os.minor(int(line)))


_BYSTANDER: Final = r"""
kept = open(f"/mnt/{os.getpid()}", "w")
stay()
"""

# --------------------------------------------------------------------------------------------------
# The attempts of a tenant
# --------------------------------------------------------------------------------------------------

LINE_BREAKS: Final = "\r\v\f"

HOSTILE_PATHS: Final = Attempt(
    name="paths that a shell would run",
    paths=("/x;touch${IFS}PROOF;#", "/$(touch PROOF)", "/`touch PROOF`", "/-rf", "/a b"),
    script='kept = open("/mnt/$(touch PROOF)", "w")\nstay()',
)

FORGED_VOLUME: Final = Attempt(
    name="a root of a mount that reads like another pod's volume",
    script="""
own_namespaces()
path = sys.argv[1]
for base in ("/tmp", "/tmp/var/lib/kubelet"):
    os.makedirs(base + path)
    os.makedirs("/tmp/seen" + base)
    mount(base + path, "/tmp/seen" + base, None, BIND)
stay()
""",
    arguments=(f"/pods/{VICTIM_POD}/volumes/kubernetes.io~csi/{VICTIM_PV}/mount",),
)

# Its output is never written, so that it costs its owner nothing.
HUGE_COMMAND_LINE: Final = Attempt(
    name="a command line of 700 MB",
    script=r"""
size = 700 << 20
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.sbrk.restype = ctypes.c_void_p
begin = libc.mmap(None, size, 1, 0x4022, -1, 0)  # PROT_READ, MAP_PRIVATE|ANONYMOUS|NORESERVE
show_as_command_line(begin, size)
stay()
""",
)

# No value has a closing quote, and nothing follows the last backslash: a pattern that reads quoted
# values searched each value to the end of the argument, and did not match.
SLOW_REDACTION: Final = Attempt(
    name="an argument that made redaction quadratic",
    arguments=('secret=\\"' * 4000 + "\\",),
)

# The server reads no request: every client waits.
HUNG_FILE_SYSTEM: Final = Attempt(
    name="a descriptor on a file system whose server does not answer",
    script=r"""
own_namespaces()
server = os.open("/opt/fuse", os.O_RDWR)
os.mkdir("/tmp/hung")
mount("hung", "/tmp/hung", "fuse", 0, f"fd={server},rootmode=40000,user_id=0,group_id=0".encode())
kept = [os.open("/tmp/hung", os.O_PATH) for _ in range(3)]
stay()
""",
)

FORGED_MOUNTS: Final = Attempt(
    name="line breaks in the paths of mounts",
    script=r"""
own_namespaces()
for character in "\r\v\f":
    forged = f"/tmp/a{character}41 28 {sys.argv[1]} / /forged rw - ext4 /dev/rbd0 rw"
    genuine = f"/tmp/own{character}volume"
    for path, source, kind, flags in (
        (forged, "tmpfs", "tmpfs", 0), (genuine, "/mnt", None, BIND)
    ):
        os.makedirs(path)
        mount(source, path, kind, flags)
stay()
""",
    arguments=("DEVICE",),
)

KUBELET: Final = Attempt(
    name="a process called kubelet", program="kubelet", arguments=("--root-dir=/nonexistent",)
)

TERMINAL: Final = Attempt(
    name="sequences for a terminal",
    program="\x1b]0;title\x07\x1b[2Japp\u202etxt",
    arguments=("\x9b31m", "\x9d0;title\x9c", "\u2066", "\x08\x08"),
    paths=("/\x1b[2J\u202e",),
    script='kept = open("/mnt/\\x1b[31m\\x9b2J\\u202e", "w")\nstay()',
)

NO_TEXT: Final = Attempt(
    name="names that are not UTF-8",
    script=r"""
kept = open(b"/mnt/caf\xe9", "w")
own_namespaces()
os.mkdir(b"/tmp/caf\xe9")
mount("/mnt", b"/tmp/caf\xe9", None, BIND)
stay()
""",
)

MKFS: Final = Attempt(
    name="a process called mkfs that names the device",
    program="mkfs.ext4",
    arguments=("/dev/rbd0",),
)

FORGED_MAPS: Final = Attempt(
    name="a mapped file whose name reads like a line of maps",
    script=r"""
own_namespaces()
major, minor = map(int, sys.argv[1].split(":"))
with open(f"/tmp/h {major:02x}:{minor:02x} 12 x", "w+") as file:
    file.write("x")
    file.flush()
    kept = mmap.mmap(file.fileno(), 1)
stay()
""",
    arguments=("DEVICE",),
)

MANY_MOUNTS: Final = Attempt(
    name="20,000 mounts upon each other",
    script=r"""
own_namespaces()
os.mkdir("/tmp/stack")
for _ in range(20000):
    mount("tmpfs", "/tmp/stack", "tmpfs")
stay()
""",
)

# A process that shares the memory of another one costs its owner nothing. Each runs pause(2) in C.
SHARED_MEMORY: Final = Attempt(
    name="ten pods, each with 100 processes that share 64,000 areas of memory",
    pods=10,
    script=r"""
page, areas, count, stack = 4096, 64000, 100, 16384
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
begin = libc.mmap(None, areas * page, 1, 0x4022, -1, 0)  # PROT_READ, as a large command line
for number in range(0, areas, 2):
    ok(libc.mprotect(begin + number * page, page, 0))
stacks = libc.mmap(None, count * stack, 3, 0x4022, -1, 0)
pause = ctypes.cast(libc.pause, ctypes.c_void_p)
children = []
for number in range(count):
    top = stacks + (number + 1) * stack
    children.append(libc.clone(pause, top, 0x100 | 17, None))  # CLONE_VM, SIGCHLD
    ok(children[-1])
stay(children)
""",
)

# Each thread waits; the process itself has nothing of its volume open.
OWN_TABLES: Final = Attempt(
    name="threads with separate descriptors and directories",
    script=r"""
import threading
ready = threading.Barrier(3)
def keep(flags, act):
    ok(libc.unshare(flags))
    kept = act()
    ready.wait()
    threading.Event().wait()
for flags, act in (
    (0x400, lambda: os.open("/mnt/file", os.O_CREAT | os.O_RDWR)),  # CLONE_FILES
    (0x200, lambda: os.chdir("/mnt")),  # CLONE_FS
):
    threading.Thread(target=keep, args=(flags, act), daemon=True).start()
ready.wait()
stay()
""",
)

# More processes than may begin to hang in one pass.
UNANSWERED: Final = Attempt(
    name="five pods, each with 14 processes whose command lines never answer",
    pods=5,
    unanswered=True,
    script="""
children = []
for _ in range(13):
    children.append(os.fork())
    if not children[-1]:
        while True:
            libc.pause()
stay(children)
""",
)


def given_device(attempt: Attempt, number: DeviceNumber) -> Attempt:
    """Return an attempt that knows another tenant's device."""
    words = [str(number) if word == "DEVICE" else word for word in attempt.arguments]
    return replace(attempt, arguments=tuple(words))


ATTEMPTS: Final = (
    HOSTILE_PATHS,
    FORGED_VOLUME,
    HUGE_COMMAND_LINE,
    SLOW_REDACTION,
    HUNG_FILE_SYSTEM,
    FORGED_MOUNTS,
    KUBELET,
    TERMINAL,
    NO_TEXT,
    MKFS,
    FORGED_MAPS,
    MANY_MOUNTS,
    SHARED_MEMORY,
    OWN_TABLES,
    UNANSWERED,
)
