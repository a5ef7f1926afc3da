"""Measure `rbdagent who-holds PV -o json` against the scripted runbook, in pairs, on the lab.

The runbook is what a user would run instead: kubectl get pv, rbd info, rados listwatchers, grep in
sysfs, kubectl get pods; each is a process. The three settings:

- as the DaemonSet runs it: with the pod's service account, on the processor of this machine, with
  the lab's real API server and cluster and the files of the real node that holds the image. Both
  run in the root of the nodes' Debian: its Python, bindings, rbd and rados;
- the same with a kubeconfig, which has to be parsed as YAML;
- inside the node, where a kernel in user space, or an emulated processor, slows both down.

The first and the last are also measured with the prepared process of an agent (rbdagent/prepared).
"""

from __future__ import annotations

import argparse
import base64
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.lab.install import CHECKOUT, bin_dir, cache_dir, venv_python
from tests.lab.lab import POOL, RBDAGENT_USER, Lab, running_lab
from tests.lab.network import ADDRESS
from tests.lab.parts import Suite, chosen_parts, own_suite
from tests.lab.recorded_tree import record_tree
from tests.lab.roots import Root, root_of
from tests.lab.venvs import inside, venv_of, venv_place
from tests.lab.workloads import claim, pod

_BOUND = 0.7
_WARM_BOUND = 0.4
_MEMORY_MIB = 80.0
_NODE = "worker-1"
_STATE_DIR = "/run/rbdagent-bench"

# Runs both in turn and prints for each the wall seconds and the peak KiB of the largest process.
# With a Python as the second word, the prepared process runs meanwhile.
_MEASURE = """
import json, os, sys, time
if python := sys.argv.pop(2):
    directory = os.environ["RBDAGENT_STATE_DIR"] + "/prepared"
    os.makedirs(directory, mode=0o700)
    lifeline, kept = os.pipe()
    os.set_inheritable(lifeline, True)
    server = [python, "-m", "rbdagent.prepared.server", directory, "600", str(lifeline)]
    os.posix_spawn(python, server, os.environ)
    while not os.path.exists(directory + "/answers.sock"):
        time.sleep(0.1)
answer = []
for _ in range(int(sys.argv[1])):
    pair = []
    for command in sys.argv[2:]:
        start = time.monotonic()
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ, file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        _, status, usage = os.wait4(pid, 0)
        pair.append((time.monotonic() - start, usage.ru_maxrss, os.waitstatus_to_exitcode(status)))
    answer.append(pair)
print(json.dumps(answer))
"""

_BINDINGS = "import rados, rbd; print(rados.__file__, rbd.__file__, sep='\\n')"

# Puts the files of a service account where a pod has them, in a separate mount namespace.
_AS_POD = (
    "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && "
    'cp -r "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"'
)


def main() -> int:
    """Measure, print the ratios, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=11)
    pairs = parser.parse_args().pairs
    suite = chosen_parts().debian
    root = root_of(cache_dir(), suite)
    program = installed(suite)
    with running_lab() as lab, tempfile.TemporaryDirectory() as directory:
        bench = _Bench(lab, root, program, Path(directory), pairs)
        bounded = _told("as the DaemonSet runs it", bench.as_pod())
        warm = _told("beside an agent, as the DaemonSet runs it", bench.as_pod(beside_agent=True))
        _told("with a kubeconfig", bench.with_kubeconfig())
        _told("inside the node", bench.in_the_node())
        _told("beside an agent, inside the node", bench.in_the_node(beside_agent=True))
    ratio, memory = bounded
    print(
        f"bounds: ratio {_BOUND} as the DaemonSet runs it, {_WARM_BOUND} beside an agent; "
        f"peak memory {_MEMORY_MIB:.0f} MiB"
    )
    return int(ratio > _BOUND or warm[0] > _WARM_BOUND or memory > _MEMORY_MIB)


def _told(setting: str, measured: list[Any]) -> tuple[float, float]:
    ratios = sorted(ours[0] / theirs[0] for ours, theirs in measured)
    ratio = statistics.median(ratios)
    memory = max(ours[1] for ours, _ in measured) / 1024
    print(
        f"who-holds / runbook, {setting}: {ratio:.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f} in "
        f"{len(ratios)} pairs), peak memory {memory:.0f} MiB",
        flush=True,
    )
    return ratio, memory


def installed(suite: Suite | None = None) -> Path:
    """Install rbdagent as a user would, byte-compiled and without development packages.

    The bindings of Ceph are the only packages of the system in it: every Python program pays for
    the ``.pth`` files of the packages that it can import.

    Args:
        suite: the Debian in whose root the program runs; by default that of this machine.
    """
    suite = suite or own_suite()
    root = root_of(cache_dir(), suite)
    venv = cache_dir() / f"bench-venv-{suite.name}"
    python = venv / "bin" / "python"

    def run(*command: str | Path) -> str:
        inside_root = inside(root, command, {cache_dir(): cache_dir(), **_tools(suite)})
        return subprocess.run(inside_root, check=True, stdout=subprocess.PIPE, text=True).stdout

    if not python.exists():
        run("/usr/bin/python3", "-m", "venv", "--without-pip", venv)
        (packages,) = venv.glob("lib/python3.*/site-packages")
        for binding in run("/usr/bin/python3", "-c", _BINDINGS).splitlines():
            (packages / Path(binding).name).symlink_to(binding)
    pip = (venv_python(), "-m", "pip")
    into = (*pip, "--python", python, "install", "--quiet")
    run(*into, "--require-hashes", "--only-binary=:all:", "-r", CHECKOUT / "requirements.txt")
    with tempfile.TemporaryDirectory() as wheels:
        # pip --python runs in the new environment, which has nothing that builds the checkout.
        run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", wheels, CHECKOUT)
        (wheel,) = Path(wheels).glob("*.whl")
        run(*into, "--no-index", "--no-deps", "--force-reinstall", wheel)
    return venv / "bin" / "rbdagent"


def _tools(suite: Suite) -> dict[Path, Path]:
    """Return the mount of the virtual environment that has pip for the Python of a suite."""
    return {venv_place(cache_dir()): venv_of(cache_dir(), suite)}


class _Bench:
    """A claim in use on a node, and the commands that query it."""

    def __init__(self, lab: Lab, root: Root, program: Path, directory: Path, pairs: int) -> None:
        self._lab = lab
        self._root = root
        self._program = program
        self._directory = directory
        self._pairs = pairs
        lab.workloads.apply(claim("bench"), pod("bench", node=_NODE, claims=["bench"]))
        self._volume = lab.workloads.wait_bound("bench")
        lab.workloads.wait_running("bench")
        found = lab.workloads.find("PersistentVolume", self._volume)
        assert found is not None
        self._image = found["spec"]["csi"]["volumeAttributes"]["imageName"]
        info = json.loads(lab.ceph.rbd("info", f"{POOL}/{self._image}", "--format", "json"))
        self._header = info["block_name_prefix"].replace("rbd_data.", "rbd_header.")
        self._tree = directory / "node"
        record_tree(lab.nodes[_NODE], self._tree)

    def as_pod(self, *, beside_agent: bool = False) -> list[Any]:
        """Measure on this machine with the service account."""
        account = self._directory / "account"
        account.mkdir(exist_ok=True)
        kubeconfig = yaml.safe_load(self._kubeconfig.read_bytes())
        (account / "token").write_text(kubeconfig["users"][0]["user"]["token"])
        cluster = kubeconfig["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"])
        (account / "ca.crt").write_bytes(authority)
        port = cluster["server"].rpartition(":")[2]
        there = f"KUBERNETES_SERVICE_HOST={ADDRESS} KUBERNETES_SERVICE_PORT={port}"
        wrapper = ["sh", "-c", _AS_POD, str(account)]
        return self._here(f"{there} {self._ours_here}", wrapper, beside_agent=beside_agent)

    def with_kubeconfig(self) -> list[Any]:
        """Measure on this machine with a kubeconfig."""
        return self._here(f"{self._ours_here} --kubeconfig {self._kubeconfig}", [])

    def in_the_node(self, *, beside_agent: bool = False) -> list[Any]:
        """Measure in the node VM, whose Debian and Python may differ from this machine's."""
        program = venv_python().with_name("rbdagent")
        ours = f"{program} who-holds {self._volume} -o json"
        theirs = self._runbook("/etc/rbdagent/kubeconfig", "", "/sys")
        python = str(venv_python()) if beside_agent else ""
        measure = ["python3", "-c", _MEASURE, str(self._pairs + 1), python, ours, theirs]
        done = self._lab.nodes[_NODE].run(
            ["env", f"RBDAGENT_STATE_DIR={_STATE_DIR}", *measure],
            timeout_s=60 * (self._pairs + 1),
        )
        return _checked(done.stdout)

    def _here(self, ours: str, wrapper: list[str], *, beside_agent: bool = False) -> list[Any]:
        theirs = self._runbook(
            str(self._kubeconfig),
            f"-c {self._lab.ceph.conf} --keyring {self._keyring}",
            str(self._tree / "sys"),
        )
        python = str(self._program.with_name("python")) if beside_agent else ""
        measure = (
            *(*wrapper, "env", f"RBDAGENT_STATE_DIR={self._directory}/state"),
            *("/usr/bin/python3", "-c", _MEASURE, str(self._pairs + 1), python, ours, theirs),
        )
        command = self._root.command(measure, shared=(cache_dir(),))
        netns = f"--net=/run/netns/{self._lab.netns}"
        done = subprocess.run(
            ["nsenter", netns, "--", "unshare", "-m", *command],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return _checked(done.stdout)

    @property
    def _kubeconfig(self) -> Path:
        return self._lab.control_plane.kubeconfig(RBDAGENT_USER)

    @property
    def _keyring(self) -> Path:
        return self._lab.ceph.conf.parent / f"ceph.client.{RBDAGENT_USER}.keyring"

    @property
    def _ours_here(self) -> str:
        tree = shlex.quote(str(self._tree))
        return (
            f"{self._program} who-holds {self._volume} -o json --node-name {_NODE} "
            f"--procfs {tree}/proc --sysfs {tree}/sys --host-root {tree}/host "
            f"--ceph-conf {self._lab.ceph.conf} --ceph-keyring {self._keyring}"
        )

    def _runbook(self, kubeconfig: str, ceph: str, sysfs: str) -> str:
        kubectl = f"{bin_dir() / 'kubectl'} --kubeconfig {kubeconfig}"
        user = f"--id {RBDAGENT_USER} {ceph} --log-file= --admin-socket="
        return " && ".join(
            (
                f"{kubectl} get pv {self._volume} -o json",
                f"rbd {user} info {POOL}/{self._image}",
                f"rados {user} -p {POOL} listwatchers {self._header}",
                f"grep . {sysfs}/bus/rbd/devices/*/name {sysfs}/bus/rbd/devices/*/client_addr",
                f"{kubectl} get pods -A -o json --field-selector spec.nodeName={_NODE}",
            )
        )


def _checked(output: str) -> list[Any]:
    """Return the pairs without the first, which warms the caches; assert that no command failed."""
    pairs: list[Any] = json.loads(output)
    for pair in pairs:
        assert [run[2] for run in pair] == [0, 0], f"a command failed: {pair}"
    return pairs[1:]


if __name__ == "__main__":
    sys.exit(main())
