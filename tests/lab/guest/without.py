"""rbdagent in a container that lacks one thing, and then another: one container for all of them.

Run with a list of cases in JSON, ``[take, value, command]`` each. For each it forks, takes one
thing away from the fork alone (a mount, the right to write to one, its user, its capabilities), and
runs the command there; to take mounts away takes a privileged container. A line of JSON comes back
for each: what was said, and last how it ended. Imports, which cost an emulated processor most, are
made once.
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
        "rbdagent.cli.agent", "rbdagent.agent.endpoint", "rbdagent.agent.loop",
        "rbdagent.agent.notify", "structlog",
    ),
    "check": (
        "rbdagent.cli.check", "rbdagent.check", "rbdagent.observe.node", "rbdagent.report.text",
    ),
    "unmap": ("rbdagent.cli.unmap", "rbdagent.act", "rbdagent.look", "rbdagent.report.machine"),
}  # fmt: skip
"""What a verb imports when it is run."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC = 1, 32, 4096, 16384
_CAPABILITY_VERSION: Final = 0x20080522
_HOST: Final = "/host"


def main() -> None:
    """Play every case."""
    cases = json.loads(sys.argv[1])
    for verb in {command[1] for _, _, command in cases if command[0] == "rbdagent"}:
        for each in _IMPORTED[verb]:
            importlib.import_module(each)
    for take, value, command in cases:
        output = os.memfd_create("output")
        pid = os.fork()
        if pid == 0:
            _TAKES[take](value)
            _run(command, output)
        _, status = os.waitpid(pid, 0)
        with open(output, encoding="utf-8") as said:
            said.seek(0)
            text = f"{said.read()}exit {os.waitstatus_to_exitcode(status)}"
        print(json.dumps(text), flush=True)


def _run(command: list[str], output: int) -> None:
    """Be that command; rbdagent is here already."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    if command[0] != "rbdagent":
        os.execv(command[0], command)  # noqa: S606 - a fork that is to be the command
    sys.argv = command
    program()


def hide(path: str) -> None:
    """Take a mount away, and the directory below ``/host`` that it was mounted on."""
    _own_mounts()
    if not path.startswith(f"{_HOST}/"):
        # Below it the lab's image has the node's own files, and rbdagent's image has none.
        _mount(b"none", path, b"tmpfs", _MS_RDONLY)
        return
    left = {each: os.open(each, os.O_PATH) for each in _host_mounts() if each != path}
    _mount(b"none", _HOST, b"tmpfs", 0)
    for each, descriptor in left.items():
        os.makedirs(each)
        _mount(f"/proc/self/fd/{descriptor}".encode(), each, None, _MS_BIND | _MS_REC)


def lock(path: str) -> None:
    """Have a mount be read-only."""
    _own_mounts()
    _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)


def be(user: str) -> None:
    """Be another user, whom the kernel leaves no capability."""
    os.setgid(int(user))
    os.setuid(int(user))


def drop(_: str) -> None:
    """Be without the capabilities that are left."""
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
    # Copies, but slaves as those that they are of: what the host unmounts goes here, too.
    _call("unshare", _CLONE_NEWNS)


def _host_mounts() -> list[str]:
    """Give the mounts below /host, without those that lie within another."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    found: list[str] = []
    for path in sorted(line.split()[4] for line in lines):
        if path.startswith(f"{_HOST}/") and not path.startswith(
            tuple(f"{each}/" for each in found)
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
