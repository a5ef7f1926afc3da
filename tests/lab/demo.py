"""The founding incident: shown from a recording, then reproduced on real parts, then diagnosed."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.errors import LabError
from tests.lab.install import (
    CHECKOUT,
    Narrator,
    cache_dir,
    install_lab,
    minutes_of_building,
    parts_line,
    venv_python,
)
from tests.lab.lab import POOL, Lab, running_lab
from tests.lab.parts import OPTIONS, USERLANDS, chosen_parts, own_suite
from tests.lab.processes import wait_until
from tests.lab.uml import uml_kernel_is_made
from tests.lab.workloads import claim, deployment, pod, pod_spec

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from tests.lab.parts import Suite

_EXAMPLE: Final = CHECKOUT / "examples" / "true-orphan.json"
_CLAIM: Final = "data"
_HOLDER: Final = "worker-1"
_OTHER: Final = "worker-2"
_WORDS: Final = "written on worker-1"
_GRACE: Final = "5s"
_SURGING: Final = "web"
_MINUTES: Final = {"uml": 1, "qemu": 4}
"""How long the incident takes, by the kind of the nodes."""


def main() -> int:
    """Show the demo; exit 0 when every answer names the holder."""
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument(
        "--record", type=Path, metavar="DIR", help="write the snapshots behind the answers there"
    )
    record = parser.parse_args().record
    started = time.monotonic()
    try:
        choose_parts(os.environ, own_suite(), has_kernel=uml_kernel_is_made(cache_dir()))
        _install()
        print(parts_line(), flush=True)
        _headline(
            "The lab starts: real Ceph, a real control plane, two nodes with real kubelet and krbd."
        )
        with running_lab() as lab:
            _Demo(lab, record).show()
    except LabError as error:
        print(f"./dev demo: {error}", file=sys.stderr)
        return 1
    _headline(f"Finished after {time.monotonic() - started:.0f} s. No process is left running.")
    return 0


def choose_parts(environment: MutableMapping[str, str], own: Suite, *, has_kernel: bool) -> None:
    """Choose the parts that answer first, if the user chooses none.

    A kernel of User Mode Linux is faster, but takes 20 minutes to build. Until another command of
    ./dev has built it, the nodes are emulated, with the Debian of this machine, whose packages it
    has.
    """
    if has_kernel or any(environment.get(option.variable) for option in OPTIONS):
        return
    environment["RBDAGENT_LAB_NODE"] = "qemu"
    if own in USERLANDS:
        environment["RBDAGENT_LAB_DEBIAN"] = own.debian


def _install() -> None:
    """Build what is missing; meanwhile show the same incident from a recording."""
    minutes = minutes_of_building()
    print(_forecast(minutes), flush=True)
    if minutes == 0:
        install_lab(Narrator())
        return
    failures: list[LabError] = []

    def work() -> None:
        try:
            install_lab(Narrator(moving=False))
        except LabError as error:
            failures.append(error)

    builder = threading.Thread(target=work)
    builder.start()
    _headline("While the lab is built (once), the same incident from a recorded snapshot:")
    _show_recorded()
    builder.join()
    if failures:
        raise failures[0]


def _forecast(minutes: int) -> str:
    """Return how long the demo takes on two idle cores."""
    shown = _MINUTES[chosen_parts().node]
    if minutes == 0:
        return f"This takes about {'a minute' if shown == 1 else f'{shown} minutes'}."
    return f"This takes about {minutes + shown} minutes: the lab is built first, once."


def _show_recorded() -> None:
    import json

    target = json.loads(_EXAMPLE.read_text())["target"]["argument"]
    words = ["who-holds", target, "--from", str(_EXAMPLE.relative_to(CHECKOUT))]
    print(f"$ rbdagent {shlex.join(words)}", flush=True)
    program = venv_python().parent / "rbdagent"
    subprocess.run([program, *words], cwd=CHECKOUT, check=False)


class _Demo:
    """One run of the demo."""

    def __init__(self, lab: Lab, record: Path | None) -> None:
        self._lab = lab
        self._record = record
        self._workloads = lab.workloads
        self._volume = ""

    def show(self) -> None:
        """Show the incident from the first pod's start to the next pod's, and a refused unmap."""
        self._run_first_pod()
        pin = self._delete_while_unstage_fails()
        self._runbook()
        self._answers(("PINNED", _HOLDER, "/dev/rbd", "client."))
        self._keep("multi-attach.json")
        self._restart_kubelet()
        self._release(pin)
        self._answers(("ORPHANED", _HOLDER, "/dev/rbd", "client.", "rbdagent unmap"))
        self._keep("true-orphan.json")
        self._unmap_by_agent()
        self._refuse_needed_unmap()

    def _run_first_pod(self) -> None:
        _headline(f"A pod on {_HOLDER} uses a volume.")
        self._workloads.apply(claim(_CLAIM), claim(_SURGING))
        # A scheduler waits too: kubelet tries a pod without its volume again only after 10 s.
        self._volume = self._workloads.wait_bound(_CLAIM)
        self._workloads.apply(pod("app-1", node=_HOLDER, claims=[_CLAIM]))
        self._workloads.wait_bound(_SURGING)
        self._roll_out(_HOLDER)
        self._workloads.wait_running("app-1")
        _quote(f"pod app-1 runs on {_HOLDER} with {self._volume}, and writes a file:")
        self._lab.nodes[_HOLDER].run(f"echo '{_WORDS}' >{self._mount('app-1')}/note; sync")
        _quote(_WORDS)

    def _mount(self, pod_name: str) -> str:
        """Return the path of the volume mount that kubelet makes for a pod."""
        found = self._workloads.find("Pod", pod_name)
        uid = found["metadata"]["uid"] if found else ""
        return f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{self._volume}/mount"

    def _delete_while_unstage_fails(self) -> int:
        _headline("The pod is deleted while a process on the node still uses its volume.")
        pin = self._pin()
        self._workloads.delete("Pod", "app-1")
        self._workloads.apply(pod("app-2", node=_OTHER, claims=[_CLAIM]))
        event = self._workloads.wait_multi_attach("app-2")
        _quote(f"pod app-2 hangs on {_OTHER}, {event['source'].get('component', '')} reports:")
        _quote(event["message"])
        return pin

    def _pin(self) -> int:
        """Start a process in a private copy of the mount: no mountinfo shows it."""
        path = self._mount("app-1")
        script = (
            "/usr/bin/unshare -m --propagation private"
            f" sh -c 'cd {path} && exec sleep 100000' >/dev/null 2>&1 </dev/null & echo $!"
        )
        vm = self._lab.nodes[_HOLDER]
        pid = int(vm.run(["/bin/bash", "-c", script]).stdout)
        wait_until(
            lambda: "sleep" in vm.run(f"cat /proc/{pid}/comm", check=False).stdout,
            timeout_s=20,
            what="a process in the volume",
        )
        return pid

    def _restart_kubelet(self) -> None:
        _headline(f"Then kubelet on {_HOLDER} restarts, and has no record of the volume.")
        self._lab.nodes[_HOLDER].service("kubelet").restart()
        event = self._workloads.wait_event(
            "app-2", reason="FailedMount", contains="is still being used"
        )
        _quote("The attachment is removed, app-2 is attached, and its event now reports:")
        _quote(event["message"])

    def _release(self, pin: int) -> None:
        _headline(f"The process ends; rbdagent named it (pid {pin}). The mapping stays.")
        self._lab.nodes[_HOLDER].run(f"kill -KILL {pin}")

    def _unmap_by_agent(self) -> None:
        _headline(f"Is an unmap safe? rbdagent on {_HOLDER} checks ten conditions:")
        self._type(_HOLDER, "unmap", self._volume, "--grace-period", _GRACE)
        flags = ["--mode", "unmap", "--grace-period", _GRACE]
        _headline(
            f"An agent can unmap it: it runs on {_HOLDER}, and observes the grace period first."
        )
        _quote(f"$ rbdagent agent {shlex.join(flags)}")
        program = str(venv_python().parent / "rbdagent")
        agent = self._lab.nodes[_HOLDER].define_service("rbdagent", [program, "agent", *flags])
        agent.start()
        self._workloads.wait_running("app-2")
        for line in agent.logs().splitlines():
            if '"event": "unmap"' in line:
                _quote(line)
        _quote(f"pod app-2 runs on {_OTHER}, and reads the file:")
        read = self._lab.nodes[_OTHER].get(f"{self._mount('app-2')}/note").decode().strip()
        _quote(read)
        if read != _WORDS:
            raise LabError(f"the file has {read!r}, and {_WORDS!r} was written")
        agent.stop()

    def _refuse_needed_unmap(self) -> None:
        _headline(
            "Second part: a rolling update with maxSurge: the new pod starts before the old ends."
        )
        name = self._workloads.wait_pod_of(_SURGING, _HOLDER)
        self._workloads.wait_running(name)
        self._roll_out(_OTHER)
        name = self._workloads.wait_pod_of(_SURGING, _OTHER)
        event = self._workloads.wait_multi_attach(name)
        _quote(event["message"])
        volume = self._workloads.wait_bound(_SURGING)
        answer = self._type(_HOLDER, "unmap", volume, "--grace-period", "1s")
        if "REFUSED" not in answer or "needed by" not in answer:
            raise LabError("rbdagent did not refuse to unmap what a running pod needs")
        if "maxSurge" not in self._type(_HOLDER, "who-holds", volume):
            raise LabError("rbdagent does not report that the update blocks itself")

    def _roll_out(self, node: str) -> None:
        """Apply the deployment with maxSurge, its pods on a node."""
        template = pod_spec(node=node, claims=[_SURGING])
        self._workloads.apply(deployment(_SURGING, template=template, max_surge=1))

    def _type(self, node: str, *words: str) -> str:
        """Run rbdagent on a node as a user would; return its output."""
        answer = self._lab.rbdagent(node, *words)
        print(f"{node}$ rbdagent {shlex.join(words)}", flush=True)
        print(answer.stdout + answer.stderr, flush=True)
        return answer.stdout

    # What the user types --------------------------------------------------------------------------

    def _runbook(self) -> None:
        """Show the manual procedure: six commands whose output the reader must combine."""
        _headline("The manual way: six commands on three machines:")
        kubectl = self._lab.control_plane.kubectl
        volume = self._workloads.find("PersistentVolume", self._volume)
        assert volume is not None
        image = volume["spec"]["csi"]["volumeAttributes"]["imageName"]
        info = self._lab.ceph.rbd("info", f"{POOL}/{image}")
        prefix = next(line for line in info.splitlines() if "block_name_prefix" in line)
        header = prefix.split()[-1].replace("rbd_data.", "rbd_header.")
        node = self._lab.nodes[_HOLDER]
        steps: tuple[tuple[str, Callable[[], str]], ...] = (
            ("kubectl describe pod app-2 | tail -3",
             lambda: "\n".join(kubectl("describe", "pod", "app-2").splitlines()[-3:])),
            (f"kubectl get pv {self._volume}",
             lambda: kubectl("get", "pv", self._volume, "--no-headers")),
            (f"rbd info {POOL}/{image} | grep block_name_prefix", lambda: prefix),
            (f"rados -p {POOL} listwatchers {header}",
             lambda: self._lab.ceph.rados("-p", POOL, "listwatchers", header)),
            (f"ssh {_HOLDER} rbd device list", lambda: node.run("rbd device list").stdout),
            (f"ssh {_HOLDER} findmnt /dev/rbd0   # nothing: is it safe to unmap?",
             lambda: node.run("findmnt /dev/rbd0", check=False).stdout),
        )  # fmt: skip
        with ThreadPoolExecutor() as pool:
            outputs = list(pool.map(lambda step: step[1](), steps))
        for (command, _), output in zip(steps, outputs, strict=True):
            print(f"$ {command}", flush=True)
            if output.strip():
                print("\n".join(f"    {line}" for line in output.rstrip().splitlines()))

    def _answers(self, wanted: Sequence[str]) -> None:
        """Run rbdagent on both nodes at once, and check that the answers name the holder."""
        words = {_HOLDER: wanted, _OTHER: (_HOLDER, "client.")}
        with ThreadPoolExecutor() as pool:
            asked = {
                node: pool.submit(self._lab.rbdagent, node, "who-holds", self._volume)
                for node in words
            }
        for node, future in asked.items():
            answer = future.result()
            _headline(f"rbdagent on {node}:")
            print(f"{node}$ rbdagent who-holds {self._volume}", flush=True)
            print(answer.stdout + answer.stderr, flush=True)
            missing = [word for word in words[node] if word not in answer.stdout]
            if missing:
                raise LabError(f"the answer on {node} lacks {', '.join(missing)}")

    def _keep(self, name: str) -> None:
        if self._record is not None:
            taken = self._lab.rbdagent(_HOLDER, "snapshot", f"pv/{self._volume}")
            (self._record / name).write_text(taken.stdout)


def _headline(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def _quote(text: str) -> None:
    print(f"    {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
