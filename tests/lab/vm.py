"""A node VM: a real kernel with the real rbd module, on QEMU without hardware acceleration.

The guest sees the file system of a Debian suite below its own layer in memory, and in it the
checkout, the cache and the virtual environment at their usual paths. The guest may see changes of
the machine after the boot late or partly (9p with ``cache=loose``): use ``put``, ``put_tree`` or
``refresh``.

The guest runs busybox's init, or systemd: then the layer is on a disk, and installed packages stay.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.errors import LabError
from tests.lab.initramfs import File, initramfs
from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.processes import patience, wait_until
from tests.lab.tsc import tsc_khz
from tests.lab.uml import UmlKernel
from tests.lab.venvs import venv_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.install_node import NodeTree
    from tests.lab.kernels import Kernel
    from tests.lab.network import Network
    from tests.lab.processes import Process, Processes

LOG_DIR = "/var/log/lab"
"""Where a service's output goes in the guest; on the disk, where the guest has one."""

WARM = "/run/lab/warm"
WARM_PROGRAM = "rbdagent, warm"
"""guest/warm.py's socket, and the program name that guest/control.py replaces by it."""

_SETTINGS = "/etc/lab"
_SERVICES = f"{_SETTINGS}/services"
_GUEST = Path(__file__).parent / "guest"
_CONTROL_GUEST = "10.0.2.15"  # QEMU's user network gives the guest this address
_CONTROL_HOST = "10.0.2.2"
_CONTROL_PORT = 2222
_READY_S = 90.0
_GRACE_S = 15.0
_CONNECT_S = 2.0
_DISK_MIB = 4096

# An emulated processor gains nothing from mitigations; without them system calls are cheaper.
# It may get no time while the kernel counts ten ticks to see whether its timer works, and panics.
# With random addresses, QEMU 7.2 translates every program again at each start: a start takes three
# times as long. Debian's kernel clears every page twice (init_on_alloc).
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 mitigations=off apparmor=0 audit=0 nokaslr tsc=reliable"
    " no_timer_check norandmaps init_on_alloc=0"
    # Each interrupt, context switch and system call costs TCG several times more than a processor:
    # without these, a node at rest takes 8 % of a processor in place of 5 %, and its start 26 s of
    # processor time in place of 20 s.
    " highres=off preempt=none psi=0 nowatchdog randomize_kstack_offset=off hardened_usercopy=off"
)
# Without ERMS and FSRM, with which the kernel and glibc copy by `rep movsb`: TCG emulates that byte
# by byte, and a program starts a fifth slower. QEMU 10 has both. With SMAP, TCG keeps a table of
# addresses more, and changes between the two at each copy from a program's memory.
# Without CX16: QEMU 7.2's cmpxchg16b leaves an operand of an earlier instruction in the flags
# (helper_cmpxchg16b_unlocked computes them from a cc_op that was not stored). The kernel allocates
# each object with it. An interrupt right after it saved EFLAGS 0x0acee74a, with the trap flag, and
# the node panicked (double fault in kmem_cache_alloc_lru_noprof+0xc8, Linux 6.12.117).
_CPU = "max,la57=off,-erms,-fsrm,-smap,-smep,-cx16"
_EXPORT = "mount_tag=host,security_model=none,readonly=on,multidevs=remap"
_SYSTEMD_ARGUMENTS = (
    " lab.systemd systemd.unit=multi-user.target systemd.firstboot=off systemd.show_status=off"
)

_BOOT = f"/bin/busybox sh {_SETTINGS}/boot.sh"
_CONTROL = (
    f"/bin/sh -c '. {_SETTINGS}/environment;"
    f" exec /usr/bin/python3 -I -S {_SETTINGS}/control.py $LAB_CONTROL_ADDRESS'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended in the guest."""

    exit_code: int
    stdout: str
    stderr: str


class Vm:
    """One virtual machine; made here, started by ``start``, reached by a control channel.

    The channel is a second network card that leads through QEMU to this machine alone: it still
    works when the cluster's network is cut. Methods may be called from several threads.

    Args:
        name: the host name; no two VMs of a network have the same.
        number: distinguishes its addresses and ports from those of other machines of the network.
        tree: the result of ``node_tree``.
        network: exists before the VM starts.
        processes: runs QEMU, as ``vm-NAME``; its log has the guest's console.
        state_dir: takes a directory ``NAME`` with the disk.
        files: path in the guest -> content, at every boot before its first service.
        memory_mib: of the guest; QEMU takes it as the guest uses it.
        disk: keep /var/lib/kubelet, /var/lib/containerd and the logs over a reboot.
        systemd: run systemd as the first program, and keep everything over a reboot.
    """

    def __init__(  # noqa: PLR0913  (keywords all, and each is a part of a machine)
        self,
        *,
        name: str,
        number: int,
        tree: NodeTree,
        network: Network,
        processes: Processes,
        state_dir: Path,
        files: Mapping[str, bytes] | None = None,
        memory_mib: int = 1024,
        disk: bool = False,
        systemd: bool = False,
    ) -> None:
        self.name = name
        self.number = number
        self._tree = tree
        self._network = network
        self._processes = processes
        self._dir = state_dir / name
        self._files = dict(files or {})
        self._memory_mib = memory_mib
        self._disk = self._dir / "disk" if disk or systemd else None
        self._systemd = systemd

    @property
    def address(self) -> str:
        """Return its address on the network's bridge, of the family that Kubernetes uses."""
        return self._network.families[0].machine(self.number)

    # Lifecycle ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Switch the machine on; it is not ready yet."""
        self._dir.mkdir(parents=True, exist_ok=True)
        if self._disk is not None and not self._disk.exists():
            _make_disk(self._disk)
        ramdisk = self._dir / "initramfs"
        given, kernel = self._given(), self._tree.kernel
        if isinstance(kernel, UmlKernel):
            ramdisk.write_bytes(initramfs(None, given))
            command = self._uml_command(kernel, ramdisk)
        else:
            ramdisk.write_bytes(initramfs(kernel.modules, given, disk=self._systemd))
            tap = self._network.add_tap(self.name)
            qemu = self._qemu(kernel, ramdisk, tap)
            command = self._tree.root.exported(qemu, mounted=self._mounted())
        self._processes.start(self._process_name, command, netns=self._netns)

    def wait_until_ready(self, timeout_s: float = _READY_S) -> None:
        """Wait until the guest has finished its boot, services started included.

        Raises:
            LabError: it did not start in time, QEMU ended, or a step failed; with its output.
        """
        wait_until(
            lambda: self._answers,
            timeout_s=timeout_s,
            what=f"{self.name} to answer",
            process=self._process,
        )
        # The guest itself waits: a request costs an emulated processor as much as an answer.
        try:
            self.run(
                "until [ -e /run/lab/ready ] || [ -e /run/lab/failed ]; do sleep 0.2; done;"
                " [ -e /run/lab/ready ]",
                timeout_s=timeout_s,
            )
        except LabError as error:
            # A step that hangs is the last one there, and its processes show where.
            seen = self.run(
                "cat /run/lab/boot.log; ps -eo pid,ppid,stat,wchan:32,args", check=False
            )
            raise LabError(f"{error}\n{seen.stdout}") from error

    @property
    def running(self) -> bool:
        """Whether the machine is switched on."""
        process = self._processes.get(self._process_name)
        return process is not None and process.alive()

    def power_off(self) -> None:
        """Cut the power: nothing is written back, and no program is notified."""
        self._processes.kill(self._process_name)

    def reboot(self) -> None:
        """Cut the power and switch on again; the disk survives, and nothing else."""
        self.power_off()
        self.start()

    def cut(self) -> None:
        """Cut the machine off the cluster's network; commands still reach it."""
        self._network.cut(self.name)

    def mend(self) -> None:
        """Undo ``cut``."""
        self._network.mend(self.name)

    # Commands and files ---------------------------------------------------------------------------

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float = 60,
        stdin: bytes = b"",
        check: bool = True,
    ) -> Completed:
        """Run a command in the guest, as root in ``/``, and wait until it ends.

        A background process does not delay the return, and keeps running.

        Args:
            command: for ``sh -c``, or program and arguments.
            timeout_s: after it, the process group is killed; times :func:`patience`.
            stdin: what the command can read.
            check: an exit code other than 0 is an error.

        Raises:
            LabError: no answer, timeout, or the command failed; with its output.
        """
        argv = (
            ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        )
        timeout_s *= patience()
        code, out, err = self._ask(argv, stdin, timeout_s=timeout_s)
        done = Completed(
            exit_code=-1 if code is None else code,
            stdout=out.decode(errors="surrogateescape"),
            stderr=err.decode(errors="surrogateescape"),
        )
        command_line = f"{self.name}: {shlex.join(argv)}"
        if code is None:
            raise LabError(f"{command_line}: killed after {timeout_s:.0f} s\n{_output(done)}")
        if check and code != 0:
            raise LabError(f"{command_line}: exit {code}\n{_output(done)}")
        return done

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file in the guest, and the directories it needs, atomically."""
        script = (
            'mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" && mv "$1.new" "$1"'
        )
        self.run(["sh", "-c", script, "put", path, f"{mode:o}"], stdin=data)

    def get(self, path: str) -> bytes:
        """Return the content of a file in the guest."""
        return self.run(["cat", path]).stdout.encode(errors="surrogateescape")

    def put_tree(self, source: Path, target: str) -> None:
        """Copy a directory of this machine, as it is now, to ``target`` in the guest."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(source, arcname=".", filter=_without_caches)
        script = 'rm -rf "$1" && mkdir -p "$1" && tar -x -C "$1"'
        self.run(["sh", "-c", script, "put_tree", target], stdin=archive.getvalue())

    def refresh(self) -> None:
        """Drop the guest's cache of this machine's files that are not in use now.

        Twice: the layer's entries hold those of 9p below them.
        """
        self.run("echo 3 >/proc/sys/vm/drop_caches; echo 3 >/proc/sys/vm/drop_caches")

    # Services -------------------------------------------------------------------------------------

    def service(self, name: str) -> Service:
        """Return the service of that name; it must have been defined before it is started."""
        return Service(self, name)

    def define_service(self, name: str, command: str | Sequence[str]) -> Service:
        """Define a long-running program; a reboot removes it, unlike those in ``files``.

        Args:
            name: of the service; its log is ``LOG_DIR/NAME.log``.
            command: as a shell writes it, or program and arguments.
        """
        self.put(*service_file(name, command))
        return self.service(name)

    # Inside ---------------------------------------------------------------------------------------

    @property
    def _process_name(self) -> str:
        return f"vm-{self.name}"

    @property
    def _netns(self) -> str:
        # QEMU opens the tap in its namespace, and forwards the control channel from there.
        return self._network.netns

    @property
    def _process(self) -> Process:
        process = self._processes.get(self._process_name)
        if process is None:
            raise LabError(f"{self.name} is not switched on")
        return process

    @property
    def _is_uml(self) -> bool:
        return isinstance(self._tree.kernel, UmlKernel)

    @property
    def _control(self) -> str:
        """The guest's address on the control channel."""
        return f"10.0.2.{self.number}" if self._is_uml else _CONTROL_GUEST

    @property
    def _channel(self) -> tuple[str, int]:
        """Address and port that lead to the control channel, in the network's namespace."""
        if self._is_uml:
            return self._control, _CONTROL_PORT
        return "127.0.0.1", self._port

    def _uml_command(self, kernel: UmlKernel, ramdisk: Path) -> list[str]:
        cluster = self._network.add_cable(self.name)
        control = self._network.add_cable(self.name, plugged=False)
        self._network.lead_alone(self._control, through=self.name, own=_CONTROL_HOST)
        systemd = _SYSTEMD_ARGUMENTS.split() if self._systemd else []
        arguments = [
            str(kernel.program),
            f"mem={self._memory_mib}M", f"umid={self.name}", f"uml_dir={self._dir}",
            f"initrd={ramdisk}", "lab.uml", *systemd, "seccomp=on",
            "con=null", "con0=null,fd:1", "con1=null", "ssl=null", "panic=-1", "noreboot",
            # With the traces that kernel errors print.
            "loglevel=5",
            *([] if self._disk is None else [f"ubd0={self._disk}"]),
            *(
                f"vec{card}:transport=raw,ifname={name},mac={mac}:{self.number:02x},depth=64,gro=1"
                for card, (name, mac) in enumerate(
                    ((cluster, "52:54:00:4d:00"), (control, "52:54:00:4d:01"))
                )
            ),
        ]  # fmt: skip
        contained = self._tree.root.contained(
            arguments, mounted=self._mounted(), writable=self._dir
        )
        return ["taskset", "--cpu-list", str(self._processor), *contained]

    @property
    def _processor(self) -> int:
        """The number of the processor that a node of User Mode Linux runs on.

        Its kernel and its programs are processes of this machine that wait for each other at each
        system call and page fault. On two processors of a virtual machine, each wait wakes a
        processor that rests: a start of rbdagent took three to four times as long, and twice the
        processor time.
        """
        usable = sorted(os.sched_getaffinity(0))
        # The nodes of a network have consecutive numbers.
        first = zlib.crc32(self._network.netns.encode())
        return usable[(first + self.number) % len(usable)]

    @property
    def _port(self) -> int:
        return 22000 + self.number

    def _qemu(self, kernel: Kernel, ramdisk: Path, tap: str) -> list[str | Path]:
        mac = f"52:54:00:4d:00:{self.number:02x}"
        forward = f"hostfwd=tcp:127.0.0.1:{self._port}-{_CONTROL_GUEST}:{_CONTROL_PORT}"
        disk: tuple[str, ...] = ()
        if self._disk is not None:
            # Unsafe only if this machine crashes. The guest's own power failures are realistic: its
            # unwritten pages are lost.
            disk = ("-drive", f"file={self._disk},if=virtio,format=raw,cache=unsafe")
        arguments = f"{_KERNEL_ARGUMENTS} tsc_early_khz={tsc_khz()}"
        arguments += _SYSTEMD_ARGUMENTS if self._systemd else ""
        return [
            "qemu-system-x86_64",
            # With KVM in a VM without nested virtualisation QEMU hangs instead of failing. Two
            # emulated processors once locked up permanently, each waiting for the other. On two
            # real processors they are no faster.
            *("-accel", "tcg", "-cpu", _CPU, "-smp", "1"),
            *("-m", str(self._memory_mib), "-nodefaults", "-no-user-config", "-no-reboot"),
            *("-display", "none", "-serial", "stdio"),
            *("-kernel", kernel.image, "-initrd", ramdisk, "-append", arguments),
            "-virtfs",
            f"local,path={self._tree.root.path},{_EXPORT}",
            # Without an option ROM: loading one costs seconds.
            *("-netdev", f"tap,id=cluster,ifname={tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=cluster,mac={mac},romfile="),
            *("-netdev", f"user,id=control,restrict=on,{forward}"),
            *("-device", "virtio-net-pci,netdev=control,romfile="),
            *disk,
        ]

    def _mounted(self) -> dict[Path, Path]:
        """Paths in the guest's root -> directories of this machine that are mounted there.

        QEMU's side has the mounts, not the guest: the containers' file systems have the guest's as
        a layer, and a layer shows no mounts.
        """
        cache = cache_dir()
        return {CHECKOUT: CHECKOUT, cache: cache, venv_place(cache): self._tree.venv}

    def _given(self) -> dict[str, File]:
        environment = {
            "LAB_NAME": self.name,
            "LAB_ADDRESSES": " ".join(self._network.addresses(self.number)),
            "LAB_CONTROL_ADDRESS": self._control,
            "LAB_MACHINE": "uml" if self._is_uml else "qemu",
            "LAB_DISK_DEVICE": "/dev/ubda" if self._is_uml else "/dev/vda",
            "LAB_MODULES": str(self._tree.kernel.all_modules),
            "LAB_DISK": "no" if self._disk is None or self._systemd else "yes",
            "LAB_VISIBLE": f"{CHECKOUT} {cache_dir()}",
            "HOME": "/root",
            # kubelet and containerd start faster if Go collects less often; memory is free.
            "GOGC": "400",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{self._tree.runtime}/usr/sbin:{self._tree.runtime}/usr/bin"
            ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        }
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
        given = {
            f"{_SETTINGS}/environment": "".join(lines).encode(),
            **(_units() if self._systemd else _inittab()),
            **{
                f"{_SETTINGS}/{name}": (_GUEST / name).read_bytes()
                for name in ("boot.sh", "control.py", "service.sh")
            },
            **self._files,
        }
        return {path: File(data=data, mode=_mode(path)) for path, data in given.items()}

    @property
    def _answers(self) -> bool:
        self._ask(["true"], b"", timeout_s=1, grace_s=0)
        return True

    def _ask(
        self, argv: Sequence[str], stdin: bytes, *, timeout_s: float, grace_s: float = _GRACE_S
    ) -> tuple[int | None, bytes, bytes]:
        """Make the guest run ``argv``; return its exit code (None: timeout) and its output."""
        request = {"argv": argv, "stdin": len(stdin), "timeout_s": timeout_s}
        try:
            with self._network.connect(*self._channel, timeout_s=_CONNECT_S) as connection:
                # Before the first byte: an emulated machine reads a package slowly, and the timeout
                # is that of all bytes together.
                connection.settimeout(timeout_s + grace_s)
                connection.sendall(json.dumps(request).encode() + b"\n" + stdin)
                with connection.makefile("rb") as stream:
                    # QEMU accepts before the guest listens: an early request ends like this.
                    if not (line := stream.readline()):
                        raise LabError(f"{self.name}: the connection was closed")
                    head = json.loads(line)
                    out, err = stream.read(head["stdout"]), stream.read(head["stderr"])
        except OSError as error:
            raise LabError(f"{self.name}: no answer: {error}") from error
        return head["exit_code"], out, err


@dataclass(frozen=True, slots=True)
class Service:
    """A long-running program of a guest, known by its recorded pid and start time.

    Stopping it ends that one process, as systemd's ``KillMode=process`` (kubelet, containerd): the
    containers run on.
    """

    vm: Vm
    name: str

    def start(self) -> None:
        """Start it; raise LabError if it runs already."""
        self._do("start")

    def stop(self) -> None:
        """End it with TERM and wait until it has ended; one that does not run is no error."""
        self._do("stop")

    def kill(self) -> None:
        """End it with KILL, as a crash would."""
        self._do("kill")

    def restart(self) -> None:
        """Stop and start it."""
        self.stop()
        self.start()

    def pid(self) -> int | None:
        """Return its pid in the guest, None when it does not run."""
        done = self.vm.run(service_command(self.name, "status"), check=False)
        return int(done.stdout) if done.exit_code == 0 else None

    def logs(self) -> str:
        """Return its output, over all its starts.

        With a disk over reboots too, but for the last second before the power was cut.
        """
        return self.vm.run(f"cat {LOG_DIR}/{shlex.quote(self.name)}.log").stdout

    def _do(self, verb: str) -> None:
        self.vm.run(service_command(self.name, verb), timeout_s=120)


def service_file(name: str, command: str | Sequence[str]) -> tuple[str, bytes]:
    """Return path and content that define a service, for ``files`` of a VM."""
    line = command if isinstance(command, str) else shlex.join(command)
    return f"{_SERVICES}/{name}", f"exec {line}\n".encode()


def start_file(name: str, script: str) -> tuple[str, bytes]:
    """Return path and content of a shell script that runs at boot, in the order of names."""
    return f"{_SETTINGS}/start.d/{name}", script.encode()


def service_command(service: str, verb: str) -> str:
    """Return the guest's shell command for a service: start, stop, kill, status."""
    return shlex.join(["sh", f"{_SETTINGS}/service.sh", service, verb])


def _inittab() -> dict[str, bytes]:
    return {
        "/etc/inittab": f"::once:{_BOOT}\n::respawn:{_CONTROL}\n".encode(),
    }


def _units() -> dict[str, bytes]:
    """Return the units that correspond to the entries of busybox's init."""
    boot = f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={_BOOT}\n"
    # Background processes of a command keep running when this unit is stopped.
    control = f"[Service]\nRestart=always\nKillMode=process\nExecStart={_CONTROL}\n"
    # As what configures a distribution's network. It mounts /tmp too, and systemd would not find
    # the directory that it had made there for a service with PrivateTmp.
    order = "Wants=network.target\nBefore=network.target multi-user.target\n"
    units = {"lab-boot.service": f"[Unit]\n{order}{boot}"}
    units["lab-control.service"] = f"[Unit]\nAfter=lab-boot.service\n{control}"
    wanted = "[Install]\nWantedBy=multi-user.target\n"
    return {f"/etc/systemd/system/{name}": (text + wanted).encode() for name, text in units.items()}


def _mode(path: str) -> int:
    return 0o600 if path.endswith((".keyring", "kubeconfig")) else 0o644


def _make_disk(disk: Path) -> None:
    with disk.open("wb") as stream:
        stream.truncate(_DISK_MIB * 1024 * 1024)
    done = subprocess.run(
        ["mkfs.ext4", "-q", "-F", str(disk)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        disk.unlink()
        raise LabError(f"mkfs.ext4 {disk}: {done.stderr.strip()}")


def _without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith("__pycache__") else member


def _output(done: Completed) -> str:
    text = "\n".join(part.rstrip() for part in (done.stdout, done.stderr) if part.strip())
    return text or "(it printed nothing)"
