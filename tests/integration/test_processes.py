"""Real processes that keep a volume although their own /proc directory does not show it.

A tmpfs represents a volume: its holders are found by device number, like those of an image.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node.mounts import Wanted, mounts_of
from rbdagent.collect.node.procfs import ProcessPass
from rbdagent.model import DeviceNumber, OpenKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.collect.node.process_scan import ProcessScan

_PROLOGUE: Final = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def ok(result):
    if result != 0: raise OSError(ctypes.get_errno(), "no")
def mount():
    ok(libc.unshare(0x00020000))  # CLONE_NEWNS, and with it CLONE_FS
    ok(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None))  # MS_REC, MS_PRIVATE
    ok(libc.mount(b"volume", sys.argv[1].encode(), b"tmpfs", 0, None))
def stay():
    print(os.stat(sys.argv[1]).st_dev, flush=True)
    sys.stdin.read()
"""
_THREAD: Final = f"""{_PROLOGUE}
def keep():
    mount()
    stay()
threading.Thread(target=keep).start()
"""
_OWN: Final = f"""{_PROLOGUE}
ok(libc.unshare(0x00020000))
ok(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None))
ok(libc.mount(b"volume", sys.argv[1].encode(), b"tmpfs", 0, None))
ready = threading.Event()
def keep():
    {{act}}
    ready.set()
    sys.stdin.read()
threading.Thread(target=keep).start()
ready.wait()
print(os.stat(sys.argv[1]).st_dev, flush=True)
"""
_OWN_FILES: Final = _OWN.format(
    act="ok(libc.unshare(0x400)); kept = open(sys.argv[1] + '/file', 'w')"
)
_OWN_DIRECTORY: Final = _OWN.format(act="ok(libc.unshare(0x200)); os.chdir(sys.argv[1])")
_LEADER_GONE: Final = f"""{_PROLOGUE}
mount()
os.chdir(sys.argv[1])
def outlive():
    while ") Z " not in open(f"/proc/{{os.getpid()}}/stat").read(): os.sched_yield()
    stay()
threading.Thread(target=outlive).start()
libc.syscall(60, 0)  # exit(2) of x86-64: of this thread alone
"""


def only(pid: int, directory: Path) -> Path:
    """Return a /proc with only one process."""
    procfs = directory.with_name("proc")
    procfs.mkdir()
    (procfs / str(pid)).symlink_to(f"/proc/{pid}")
    return procfs


class Keeper:
    """A process that keeps a file system and prints its device number."""

    def __init__(self, script: str, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        device = int(self.process.stdout.readline())
        number = DeviceNumber(major=os.major(device), minor=os.minor(device))
        self.wanted = Wanted.of([number])
        self.procfs = only(self.process.pid, directory)

    def passed(self) -> ProcessPass:
        return ProcessPass(self.procfs, self.wanted)

    def keeps(self, scan: ProcessScan) -> bool:
        """Return whether its mount was found, and for no other process."""
        found = mounts_of(scan.namespaces, self.wanted)
        return {process.namespace.process.pid for process in found} == {self.process.pid}

    def opens(self, scan: ProcessScan) -> bool:
        """Return whether the scan found a file that it has open there, and no other opener."""
        return {opener.process.pid for opener in scan.openers} == {self.process.pid}


@pytest.fixture
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    directory = tmp_path / "volume"
    directory.mkdir()
    made = Keeper(request.param, directory)
    yield made
    made.process.communicate("")


@pytest.mark.parametrize("keeper", [_THREAD], indirect=True)
def test_a_thread_in_a_separate_mount_namespace_is_found(
    keeper: Keeper,
) -> None:
    passed = keeper.passed()
    assert not keeper.keeps(passed.scan())
    scan = passed.scan_threads()
    assert scan is not None
    assert keeper.keeps(scan)


@pytest.mark.parametrize("has_kcmp", [True, False])
@pytest.mark.parametrize(
    ("keeper", "kind"),
    [(_OWN_FILES, OpenKind.DESCRIPTOR), (_OWN_DIRECTORY, OpenKind.CWD)],
    indirect=["keeper"],
)
def test_what_only_a_thread_has_open_is_found(
    keeper: Keeper, kind: OpenKind, *, has_kcmp: bool
) -> None:
    """unshare(CLONE_FILES) and unshare(CLONE_FS), in a container without hostPID and elsewhere."""
    if has_kcmp:
        (keeper.procfs / "1" / "ns").mkdir(parents=True)
        (keeper.procfs / "1" / "ns" / "pid").symlink_to("/proc/self/ns/pid")
    passed = keeper.passed()
    assert passed.scan().openers == []
    scan = passed.scan_threads()
    assert scan is not None
    assert keeper.opens(scan)
    assert [opener.kind for opener in scan.openers] == [kind]


@pytest.mark.parametrize("keeper", [_LEADER_GONE], indirect=True)
def test_a_process_is_read_by_another_thread_if_the_first_ended(
    keeper: Keeper,
) -> None:
    scan = keeper.passed().scan()
    assert keeper.keeps(scan)
    assert keeper.opens(scan)
    (entry,) = scan.entries
    assert entry.arguments[0] == sys.executable


def test_a_zombie_process_hides_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wanted = Wanted.of([DeviceNumber(major=252, minor=0)])
        scan = ProcessPass(only(process.pid, tmp_path / "none"), wanted).scan()
        (entry,) = scan.entries
        assert entry.is_over
        assert (scan.denied_mounts, scan.denied_files) == ([], [])
