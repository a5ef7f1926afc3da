"""A real Ceph cluster of one monitor and one OSD in memory, as plain processes.

The monitor supports both versions of the messenger, as those of real clusters do: kernels before
5.11 know only v1. cephx is on, so caps are enforced. The daemons and the administrator's commands
are those of a Debian suite, whatever this machine runs.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.lab.addresses import bracketed
from tests.lab.errors import LabError
from tests.lab.install import cache_dir
from tests.lab.parts import MONITORS, chosen_parts, suite_of_ceph
from tests.lab.processes import Process, Processes, patience, wait_until
from tests.lab.roots import Root, root_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.parts import Suite

MSGR2_PORT: Final = 3300
"""The port of monitors for version 2 of the messenger, by default."""

READ_ONLY_CAPS: Final = {
    "mon": 'profile rbd-read-only, allow command "mgr dump"',
    "osd": "profile rbd-read-only",
}
"""The caps that rbdagent asks for, and no more."""

_READY_S: Final = 60.0
_COMMAND_S: Final = 60.0


class CephCluster:
    """One cluster; its files and daemons live below ``state_dir``.

    Args:
        processes: starts and stops the daemons.
        state_dir: a directory that nothing else uses.
        address: where the daemons listen, IPv4 or IPv6; VMs must reach it.
        port: of the monitor, messenger v1; the OSD takes any.
        msgr2_port: of the monitor, messenger v2.
        netns: network namespace of the daemons and of every command.
        name: distinguishes two clusters in names of processes.
        fsid: by default a new one.
        ceph: version of the daemons, such as ``18.2``; by default the version of the lab.
        keys: type of the users' keys, ``aes`` or ``aes256k``; by default the type of the lab.
        speaks: versions of the messenger that the monitor supports; by default those of the lab.
    """

    def __init__(  # noqa: PLR0913  (keywords all, and each is a property of a cluster)
        self,
        processes: Processes,
        state_dir: Path,
        *,
        address: str = "127.0.0.1",
        port: int = 6789,
        msgr2_port: int = MSGR2_PORT,
        netns: str | None = None,
        name: str = "ceph",
        fsid: str | None = None,
        ceph: str | None = None,
        keys: str | None = None,
        speaks: tuple[str, ...] | None = None,
    ) -> None:
        self._processes = processes
        self._dir = state_dir
        self._address = address
        self._port = port
        self._msgr2_port = msgr2_port
        self._netns = netns
        self.name = name
        self.fsid = fsid or str(uuid.uuid4())
        self.conf = state_dir / "ceph.conf"
        self.admin_keyring = state_dir / "ceph.client.admin.keyring"
        self._version = ceph
        self._key_type = keys
        self._speaks = speaks or MONITORS[chosen_parts().monitors]

    @property
    def monitor(self) -> str:
        """Address of the monitor as clients write it: of v1 if the monitor supports v1.

        Port 3300 shows a client that the address is one of v2 (MonMap.cc, init_with_hosts).
        """
        return f"{self.host}:{self._port if 'v1' in self._speaks else self._msgr2_port}"

    @property
    def host(self) -> str:
        """Return its address in the form in which a port follows it."""
        return bracketed(self._address)

    @property
    def _is_ipv6(self) -> bool:
        return ":" in self._address

    @property
    def _monitor_addresses(self) -> str:
        """Addresses of the monitor for the versions of the messenger that it supports."""
        ports = {"v2": self._msgr2_port, "v1": self._port}
        found = (f"{version}:{self.host}:{ports[version]}" for version in self._speaks)
        return f"[{','.join(found)}]"

    @functools.cached_property
    def _suite(self) -> Suite:
        return chosen_parts().ceph if self._version is None else suite_of_ceph(self._version)

    @functools.cached_property
    def _root(self) -> Root:
        return root_of(cache_dir(), self._suite)

    # Lifecycle ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Create a new cluster and start its daemons; it is not ready yet."""
        shutil.rmtree(self._dir, ignore_errors=True)
        for part in ("mon", "osd", "run", "log"):
            (self._dir / part).mkdir(parents=True)
        self.conf.write_text(self._conf())
        (self._dir / "osd" / "fsid-of-osd").write_text(str(uuid.uuid4()))
        self._make_keyrings()
        self._make_monitor()
        self._start("mon", "ceph-mon", "-i", "a", "--mon-data", self._dir / "mon")

    def wait_ready(self) -> None:
        """Wait for the monitor, start the OSD, and wait until the cluster has it."""
        mon = self._process("mon")
        wait_until(self._answers, timeout_s=_READY_S, what="the monitor", process=mon)
        self._make_osd()
        osd = self._process("osd")
        wait_until(self._osd_is_up, timeout_s=_READY_S, what="the OSD", process=osd)

    def start_manager(self) -> None:
        """Start a mgr: it runs tasks such as ``rbd task add remove``."""
        directory = self._dir / "mgr"
        directory.mkdir(exist_ok=True)
        keyring = directory / "keyring"
        self.ceph(
            "auth", "get-or-create", "mgr.x", "mon", "allow profile mgr", "osd", "allow *",
            "mds", "allow *", "-o", str(keyring),
        )  # fmt: skip
        self._start("mgr", "ceph-mgr", "-i", "x", "--mgr-data", directory, "--keyring", keyring)

    def mirror_from(self, primary: CephCluster, pool: str, *, direction: str = "rx-only") -> None:
        """Start an rbd-mirror that copies the mirrored images of a pool from another cluster.

        Both have a mgr: without one the daemon cannot register. With the direction ``rx-tx``, each
        daemon reports to both clusters, and the other cluster may start one too.
        """
        for cluster in (primary, self):
            cluster.rbd("mirror", "pool", "enable", pool, "image")
        token = self._dir / "peer"
        token.write_text(
            primary.rbd("mirror", "pool", "peer", "bootstrap", "create", "--site-name=one", pool)
        )
        self.rbd("mirror", "pool", "peer", "bootstrap", "import", "--site-name=two",
                 f"--direction={direction}", pool, str(token))  # fmt: skip
        self.start_mirror()

    def start_mirror(self) -> None:
        """Start an rbd-mirror of this cluster for the peers of its pools."""
        caps = {"mon": "profile rbd-mirror", "osd": "profile rbd", "mgr": "profile rbd"}
        keyring = self.create_user("mirror", caps)
        # Each of its pools has a client that reads the default configuration file.
        environment = {"CEPH_CONF": str(self.conf)}
        self._start(
            "mirror", "rbd-mirror", "-n", "client.mirror", "--keyring", keyring, env=environment
        )

    def stop_mirror(self) -> None:
        """Stop the rbd-mirror of this cluster."""
        self._processes.stop(f"{self.name}-mirror")

    def pause_osd(self) -> None:
        """Stop the OSD with a signal: it keeps its connections and answers nothing.

        On a busy machine its threads still run for a while after the signal.
        """
        osd = self._process("osd")
        os.kill(osd.pid, signal.SIGSTOP)
        what = "every thread of the OSD to stop"
        wait_until(lambda: _is_stopped(osd.pid), timeout_s=_READY_S, what=what, process=osd)

    def resume_osd(self) -> None:
        """Continue the OSD, and have its placement groups peer again.

        A group whose lease expired before a request came is laggy, and the acknowledgement of
        another OSD ends that. Here is no other one: such requests would wait for a new interval
        (Ceph 18.2.7, flag point "waiting for readable").
        """
        os.kill(self._process("osd").pid, signal.SIGCONT)
        # No manager has to notice it: the OSD itself protests, and is up with the next map.
        self.ceph("osd", "down", "0")
        osd = self._process("osd")
        wait_until(self._osd_is_up, timeout_s=_READY_S, what="the OSD to be up again", process=osd)

    # Commands -------------------------------------------------------------------------------------

    def ceph(self, *args: str) -> str:
        """Run ``ceph`` as the administrator and return its output."""
        timeout = f"--connect-timeout={round(10 * patience())}"
        return self._run("ceph", *self._as_admin(), timeout, *args)

    def ceph_json(self, *args: str) -> Any:  # noqa: ANN401 - whatever the command prints
        """Run ``ceph … --format json`` and return what it printed."""
        return json.loads(self.ceph(*args, "--format", "json"))

    def file_of(self, image: str, path: str) -> bytes:
        """Return a file of an image's ext file system, read on this machine without a mount."""
        with tempfile.TemporaryDirectory() as directory:
            copy = f"{directory}/image"
            self.rbd("export", "--no-progress", image, copy)
            command = ["debugfs", "-R", f"cat {path}", copy]
            return subprocess.run(command, check=True, capture_output=True).stdout

    def rbd(self, *args: str) -> str:
        """Run ``rbd`` as the administrator and return its output."""
        return self._run("rbd", *self._as_admin(), *args)

    def rados(self, *args: str) -> str:
        """Run ``rados`` as the administrator and return its output."""
        return self._run("rados", *self._as_admin(), *args)

    def create_pool(self, name: str, *, pg_num: int = 8) -> None:
        """Create a pool and initialise it for RBD."""
        self.ceph("osd", "pool", "create", name, str(pg_num), str(pg_num))
        self.ceph("osd", "pool", "application", "enable", name, "rbd")

    def create_image(
        self,
        spec: str,
        *,
        size: str = "64M",
        features: str = "layering",
        object_size: str = "4M",
    ) -> None:
        """Create an image ``pool[/namespace]/name``."""
        options = ("--size", size, "--image-feature", features, "--object-size", object_size)
        self.rbd("create", spec, *options)

    def create_formatted(self, spec: str, *, size: str = "64M", damage: Sequence[str] = ()) -> None:
        """Create an image with an ext4, made on this machine and damaged there by debugfs."""
        with tempfile.TemporaryDirectory() as directory:
            content = f"{directory}/image"
            subprocess.run(["truncate", "-s", size, content], check=True)
            subprocess.run(["mkfs.ext4", "-q", content], check=True)
            for request in damage:
                subprocess.run(["debugfs", "-w", "-R", request, content], check=True)
            self.rbd("import", "--no-progress", "--image-feature", "layering", content, spec)

    def create_user(self, name: str, caps: Mapping[str, str]) -> Path:
        """Create ``client.NAME`` and return its keyring."""
        keyring = self._dir / f"ceph.client.{name}.keyring"
        words = [word for pair in caps.items() for word in pair]
        self.ceph("auth", "get-or-create", f"client.{name}", *words, "-o", str(keyring))
        return keyring

    def key_of(self, name: str) -> str:
        """Return the key of ``client.NAME``, for the driver's secret."""
        return self.ceph("auth", "get-key", f"client.{name}").strip()

    def files(self, *users: str) -> dict[str, bytes]:
        """Return a machine's files below /etc/ceph to reach the cluster as ``users``."""
        found = {"/etc/ceph/ceph.conf": self.client_conf().encode()}
        for user in users:
            keyring = self._dir / f"ceph.client.{user}.keyring"
            found[f"/etc/ceph/ceph.client.{user}.keyring"] = keyring.read_bytes()
        return found

    def client_conf(self) -> str:
        """Return a ceph.conf without any path of the cluster's own directory."""
        # `rbd map` uses v1 by default (krbd.cc, and "rbd help map").
        mapping = "" if "v1" in self._speaks else "rbd default map options = ms_mode=prefer-crc\n"
        return (
            f"[global]\nfsid = {self.fsid}\nmon host = {self._monitor_addresses}\n"
            f"auth client required = cephx\n{mapping}"
        )

    # Inside ---------------------------------------------------------------------------------------

    def _conf(self) -> str:
        directory = self._dir
        return f"""[global]
fsid = {self.fsid}
mon host = {self._monitor_addresses}
mon initial members = a
public network = {self._address}/{128 if self._is_ipv6 else 32}
public addr = {self._address}
ms bind ipv4 = {not self._is_ipv6}
ms bind ipv6 = {self._is_ipv6}
ms bind msgr1 = {"v1" in self._speaks}
ms bind msgr2 = {"v2" in self._speaks}
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
mon data avail crit = 1
mon data avail warn = 1
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd crush update on start = false
osd objectstore = memstore
memstore device bytes = 4294967296
run dir = {directory}/run
admin socket = {directory}/run/$name.asok
pid file = {directory}/run/$name.pid
log file = {directory}/log/$name.log
crash dir = {directory}/run
keyring = {directory}/ceph.$name.keyring
"""

    def _make_keyrings(self) -> None:
        admin = self._new_key()
        self.admin_keyring.write_text(
            f"[client.admin]\n\tkey = {admin}\n"
            '\tcaps mds = "allow *"\n\tcaps mgr = "allow *"\n'
            '\tcaps mon = "allow *"\n\tcaps osd = "allow *"\n'
        )
        self._dir.joinpath("mon.keyring").write_text(
            f'[mon.]\n\tkey = {self._new_key()}\n\tcaps mon = "allow *"\n'
            + self.admin_keyring.read_text()
        )
        for path in (self.admin_keyring, self._dir / "mon.keyring"):
            path.chmod(0o600)

    def _new_key(self) -> str:
        chosen = ("--key-type", self._keys) if self._has_key_types else ()
        return self._run("ceph-authtool", "--gen-print-key", *chosen).strip()

    @property
    def _keys(self) -> str:
        return self._key_type or chosen_parts().keys

    @property
    def _has_key_types(self) -> bool:
        """Whether this Ceph has an option for the type of new keys."""
        return len(self._suite.keys) > 1

    def _ciphers(self) -> tuple[str, ...]:
        """Return the settings that make new keys of the chosen type, and accept both types."""
        if not self._has_key_types:
            return ()
        wanted = ("--auth-preferred-cipher", self._keys, "--auth-service-cipher", self._keys)
        return (*wanted, "--auth-allowed-ciphers", ",".join(self._suite.keys))

    def _make_monitor(self) -> None:
        monmap = self._dir / "monmap"
        self._run(
            "monmaptool", "--create", "--clobber", "--fsid", self.fsid,
            "--addv", "a", self._monitor_addresses, *self._ciphers(), str(monmap),
        )  # fmt: skip
        self._run(
            "ceph-mon", "-c", str(self.conf), "--mkfs", "-i", "a", "--monmap", str(monmap),
            "--keyring", str(self._dir / "mon.keyring"), "--mon-data", str(self._dir / "mon"),
        )  # fmt: skip

    def _make_osd(self) -> None:
        directory = self._dir / "osd"
        identity = (directory / "fsid-of-osd").read_text()
        self.ceph("osd", "new", identity)
        self.ceph("osd", "crush", "add", "osd.0", "1.0", "root=default", "host=h0")
        keyring = directory / "keyring"
        self.ceph(
            "auth", "get-or-create", "osd.0", "mon", "allow profile osd", "mgr",
            "allow profile osd", "osd", "allow *", "-o", str(keyring),
        )  # fmt: skip
        osd = ("-i", "0", "--osd-data", directory, "--osd-uuid", identity, "--keyring", keyring)
        self._run("ceph-osd", "-c", str(self.conf), "--mkfs", *map(str, osd))
        self._start("osd", "ceph-osd", *osd)

    def _answers(self) -> bool:
        done = self._execute(("ceph", *self._as_admin(), "--connect-timeout=2", "fsid"))
        return done.returncode == 0

    def _osd_is_up(self) -> bool:
        stat = self.ceph_json("osd", "stat")
        return bool(stat.get("num_up_osds"))

    def _as_admin(self) -> tuple[str, ...]:
        return (
            "-c", str(self.conf), "-n", "client.admin", "--keyring", str(self.admin_keyring),
            "--log-file=", "--admin-socket=",
        )  # fmt: skip

    def _start(
        self, part: str, program: str, *args: object, env: Mapping[str, str] | None = None
    ) -> None:
        argv: list[str | Path] = [program, "-f", "-c", self.conf, *(str(arg) for arg in args)]
        command = self._root.command(argv, shared=self._shared)
        self._processes.start(f"{self.name}-{part}", command, netns=self._netns, env=env)

    @property
    def _shared(self) -> tuple[Path, ...]:
        """The files of this machine that the daemons and commands use."""
        cache = cache_dir()
        return (cache,) if self._dir.is_relative_to(cache) else (self._dir,)

    def _process(self, part: str) -> Process:
        process = self._processes.get(f"{self.name}-{part}")
        if process is None:
            raise LabError(f"{self.name}: its {part} was not started")
        return process

    def _run(self, *argv: str) -> str:
        done = self._execute(argv)
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _execute(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        argv = self._root.command(argv, shared=self._shared)
        if self._netns is not None:
            argv = ("nsenter", f"--net=/run/netns/{self._netns}", "--", *argv)
        try:
            return subprocess.run(
                argv,
                capture_output=True,
                text=True,
                check=False,
                timeout=_COMMAND_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{shlex.join(map(str, argv))}: killed after {_COMMAND_S} s") from None


def _is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped all threads of a process (proc_pid_stat(5), state T)."""
    threads = Path("/proc", str(pid), "task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)
