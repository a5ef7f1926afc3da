"""``./dev lab``: the lab for manual use."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.lab.errors import LabError
from tests.lab.install import bin_dir, venv_python
from tests.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    verbs: dict[str, Callable[[Lab], int]] = {
        "up": _up,
        "down": _down,
        "shell": _shell,
        "status": _status,
        "clean-up-killed": _clean_up_killed,
    }
    parser = argparse.ArgumentParser(
        prog="./dev lab",
        description="Bring the lab up and leave it running; look; work in it; stop it.",
    )
    parser.add_argument("verb", choices=verbs, metavar="up|down|shell|status")
    given = parser.parse_args(argv)
    try:
        return verbs[given.verb](Lab())
    except LabError as error:
        print(f"./dev lab {given.verb}: {error}", file=sys.stderr)
        return 1


def _up(lab: Lab) -> int:
    started = time.monotonic()
    lab.up(keep=True)
    print(f"the lab is up after {time.monotonic() - started:.0f} s; ./dev lab down stops it")
    return _status(lab)


def _down(lab: Lab) -> int:
    started = time.monotonic()
    count = len(lab.running())
    lab.down()
    print(f"{count} processes stopped in {time.monotonic() - started:.0f} s")
    return 0


def _status(lab: Lab) -> int:
    running = lab.running()
    if not running:
        print("the lab is down")
        return 1
    print(f"{'PART':<24} {'PID':>7}  LOG")
    for process in running:
        print(f"{process.name:<24} {process.pid:>7}  {process.log}")
    print(f"network namespace {lab.netns}; ./dev lab shell works in it")
    return 0


def _clean_up_killed(lab: Lab) -> int:
    lab.clean_up_killed()
    return 0


def _shell(lab: Lab) -> int:
    if not lab.running():
        lab.up(keep=True)
    environment = {
        **os.environ,
        "CEPH_CONF": str(lab.ceph.conf),
        "KUBECONFIG": str(lab.control_plane.kubeconfig("admin")),
        "PATH": f"{venv_python().parent}:{bin_dir()}:{os.environ['PATH']}",
        "PS1": "lab# ",
    }
    print("kubectl, ceph and rbd use the lab; it keeps running when you leave (./dev lab down)")
    shell = ("bash", "--norc") if sys.stdin.isatty() else ("bash",)
    done = subprocess.run(
        ["nsenter", f"--net=/run/netns/{lab.netns}", "--", *shell], env=environment, check=False
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
