"""rbdagent in a container that lacks one privilege at a time: one container for all cases.

Run with a list of cases in JSON, ``[take, value, command]`` each. For each case it forks, removes
one privilege from the fork alone (a mount, the right to write to a mount, its user, its
capabilities), and runs the command there; removing mounts needs a privileged container. A line of
JSON comes back for each case: the output, and last the exit status. Imports, which cost an emulated
processor most, run once.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rbdagent.__main__ import main as program

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORTED: Final = {
    "agent": (
        "rbdagent.cli.agent", "rbdagent.agent.http", "rbdagent.agent.loop",
        "rbdagent.agent.systemd", "rbdagent.log",
    ),
    "check": (
        "rbdagent.cli.check", "rbdagent.preflight", "rbdagent.collect.node.observer",
        "rbdagent.report.text.check",
    ),
    "unmap": (
        "rbdagent.cli.unmap", "rbdagent.unmap.executor", "rbdagent.collector",
        "rbdagent.report.text.unmap", "rbdagent.report.json.unmap",
    ),
}  # fmt: skip
"""Modules that a verb imports when it runs."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC = 1, 32, 4096, 16384
_CAPABILITY_VERSION: Final = 0x20080522
_HOST: Final = "/host"


def main() -> None:
    """Run every case."""
    cases = json.loads(sys.argv[1])
    for verb in {command[1] for _, _, command in cases if command[0] == "rbdagent"}:
        for name in _IMPORTED[verb]:
            importlib.import_module(name)
    for take, value, command in cases:
        output = os.memfd_create("output")
        pid = os.fork()
        if pid == 0:
            _TAKES[take](value)
            _run(command, output)
        _, status = os.waitpid(pid, 0)
        with open(output, encoding="utf-8") as file:
            file.seek(0)
            text = f"{file.read()}exit {os.waitstatus_to_exitcode(status)}"
        print(json.dumps(text), flush=True)


def _run(command: list[str], output: int) -> None:
    """Run that command in this process, which has imported rbdagent already."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    if command[0] != "rbdagent":
        os.execv(command[0], command)  # noqa: S606 - a fork that is to be the command
    sys.argv = command
    program()


def hide(path: str) -> None:
    """Remove a mount, and the directory below ``/host`` that it was mounted on."""
    _own_mounts()
    if not path.startswith(f"{_HOST}/"):
        # Below it the lab's image has the node's own files, and rbdagent's image has none.
        _mount(b"none", path, b"tmpfs", _MS_RDONLY)
        return
    left = {mount: os.open(mount, os.O_PATH) for mount in _host_mounts() if mount != path}
    _mount(b"none", _HOST, b"tmpfs", 0)
    for mount, descriptor in left.items():
        os.makedirs(mount)
        _mount(f"/proc/self/fd/{descriptor}".encode(), mount, None, _MS_BIND | _MS_REC)


def lock(path: str) -> None:
    """Make a mount read-only."""
    _own_mounts()
    _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)


def be(user: str) -> None:
    """Change to another user, without any capability."""
    os.setgid(int(user))
    os.setuid(int(user))


def drop(_: str) -> None:
    """Drop the capabilities that are left."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


_TAKES: Final[dict[str, Callable[[str], None]]] = {
    "nothing": lambda _: None,
    "hide": hide,
    "lock": lock,
    "be": be,
    "drop": drop,
}


def _own_mounts() -> None:
    # Copies that are slaves of their originals: an unmount on the host propagates to them.
    _call("unshare", _CLONE_NEWNS)


def _host_mounts() -> list[str]:
    """Return the mounts below /host, without those inside another one."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    found: list[str] = []
    for path in sorted(line.split()[4] for line in lines):
        if path.startswith(f"{_HOST}/") and not path.startswith(
            tuple(f"{path}/" for path in found)
        ):
            found.append(path)
    return found


def _mount(source: bytes | None, target: str, kind: bytes | None, flags: int) -> None:
    _call("mount", source, target.encode(), kind, flags, None)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{arguments}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
