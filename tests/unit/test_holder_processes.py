"""User and parent of the processes that hold a device, from the tests' own processes and files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.collect.node import holder_processes
from rbdagent.collect.node.holder_processes import with_descriptions
from rbdagent.collect.node.mounts import Wanted
from rbdagent.collect.node.procfs import ProcessPass
from rbdagent.model import NOT_REQUESTED, NotObserved, ParentProcess, ProcessRef
from tests.support.node_files import OTHER_POD, ROOT_MOUNT, Tree
from tests.support.snapshots import mapping, opener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.collect.node.process_scan import ProcessScan

PROCFS: Final = Path("/proc")
USERS: Final = "root:x:0:0:root:/root:/bin/bash\nbackup:x:34:34::/:/bin/sh\nagain:x:34:34::/:/x\n"
OPEN: Final = "7f0000000000-7f0000001000 r--p 00000000 fc:00 12                         /data/db\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a node with a device and the host's list of users."""
    made = Tree(tmp_path)
    made.device(0)
    made.write("host/etc/passwd", USERS)
    return made


def hold(tree: Tree, pid: int, *, parent: int = 1, pod: str | None = None, uid: int = 34) -> None:
    """Add a process that has a file on the device open."""
    tree.process(pid, "/bin/app", "--x", pod=pod, uid=uid, parent=parent)
    tree.write(f"proc/{pid}/maps", OPEN)


def holders(tree: Tree) -> dict[int, ProcessRef]:
    """Observe the node, and return the processes that have the device open, by pid."""
    (seen,) = tree.mappings()
    assert not isinstance(seen.openers, NotObserved)
    return {found.process.pid: found.process for found in seen.openers}


def holder(tree: Tree) -> ProcessRef:
    (found,) = holders(tree).values()
    return found


def reason(fact: object) -> str:
    assert isinstance(fact, NotObserved)
    return fact.reason


# --------------------------------------------------------------------------------------------------
# Real processes
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Return a running child process."""
    with subprocess.Popen(["sleep", "600"]) as started:
        yield started
        started.kill()


def scanned(*pids: int) -> ProcessScan:
    """Return the scan of a few real processes."""
    reader = ProcessPass(PROCFS, Wanted.of(()))
    for pid in pids:
        reader._observe(pid)
    return reader._scan()


def described(scan: ProcessScan, pid: int, host_root: Path) -> ProcessRef:
    """Return the description of a real process that has the device open."""
    (process,) = (entry.ref for entry in scan.entries if entry.ref.pid == pid)
    held = mapping(openers=(opener(process=process),))
    (seen,) = with_descriptions((held,), scan, PROCFS, host_root)
    assert not isinstance(seen.openers, NotObserved)
    return seen.openers[0].process


def test_running_process_has_a_user_and_a_parent(
    child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(f"me:x:{os.geteuid()}:0::/:/bin/sh\n")
    scan = scanned(child.pid, os.getpid())
    found = described(scan, child.pid, tmp_path)
    of_test = next(entry.ref for entry in scan.entries if entry.ref.pid == os.getpid())
    expected = str(os.geteuid()) if found.pod_uid else "me"
    assert found.user == expected
    assert found.parent == ParentProcess(pid=os.getpid(), program=of_test.program)
    assert found.started_at is not None


def test_ended_process_has_no_observed_user(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    scan = scanned(child.pid, os.getpid())
    child.kill()
    child.wait()
    found = described(scan, child.pid, tmp_path)
    assert reason(found.user) == f"process {child.pid} (sleep) ended before its user was read"
    assert isinstance(found.parent, ParentProcess)


def test_another_process_with_the_same_pid_is_not_described(
    child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    scan = scanned(child.pid)
    for entry in scan.entries:
        entry.ticks -= 1
    assert "ended before" in reason(described(scan, child.pid, tmp_path).user)


def test_name_of_a_real_process_does_not_set_its_user(tmp_path: Path) -> None:
    """The kernel shows the tabs of a name. psutil 7.2.2 reads the first ``Uid:`` of the file."""
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'Uid:\\t9\\t9\\t9', 0, 0, 0);"
        "print(flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as started:
        assert started.stdout is not None
        started.stdout.readline()
        scan = scanned(started.pid)
        status = (PROCFS / str(started.pid) / "status").read_text()
        found = described(scan, started.pid, tmp_path)
        started.kill()
    assert status.startswith("Name:\tUid:\t9\t9\t9\n")
    assert found.user == str(os.geteuid())


# --------------------------------------------------------------------------------------------------
# Users
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uid", "pod", "user"),
    [
        pytest.param(34, None, "backup", id="the first name of the uid"),
        pytest.param(4711, None, "4711", id="no name"),
        pytest.param(34, OTHER_POD, "34", id="a pod has other names"),
    ],
)
def test_user_is_named_by_the_host(tree: Tree, uid: int, pod: str | None, user: str) -> None:
    hold(tree, 7, uid=uid, pod=pod)
    assert holder(tree).user == user


def test_effective_user_counts(tree: Tree) -> None:
    hold(tree, 7)
    tree.write("proc/7/status", "Name:\tapp\nUid:\t4711\t34\t0\t0\n")
    assert holder(tree).user == "backup"


@pytest.mark.parametrize("content", [b"", b"\xff\n:\n::::\n:x:34:\n", b"x" * ((1 << 20) + 1)])
def test_user_without_a_readable_list_is_a_uid(tree: Tree, content: bytes) -> None:
    hold(tree, 7)
    tree.write("host/etc/passwd", content)
    assert holder(tree).user == "34"


def test_list_of_users_may_be_a_link_on_the_host(tree: Tree) -> None:
    hold(tree, 7)
    list_of_users = tree.root / "host/etc/passwd"
    list_of_users.unlink()
    list_of_users.symlink_to("/usr/lib/passwd")
    tree.write("host/usr/lib/passwd", "dump:x:34:34::/:/bin/sh\n")
    assert holder(tree).user == "dump"


def test_unreadable_status_is_a_reason(tree: Tree) -> None:
    hold(tree, 7)
    tree.write("proc/7/status", "Name:\tapp\n")
    assert reason(holder(tree).user) == "process 7 (app): its user cannot be read"


# --------------------------------------------------------------------------------------------------
# Parents
# --------------------------------------------------------------------------------------------------


def test_parent_is_named_without_arguments(tree: Tree) -> None:
    tree.process(5, "/bin/bash", "-c", "secret", parent=1)
    hold(tree, 7, parent=5)
    assert holder(tree).parent == ParentProcess(pid=5, program="bash")


def test_process_1_has_no_parent(tree: Tree) -> None:
    tree.write("proc/1/maps", OPEN)
    assert holder(tree).parent is None


def test_unknown_parent_is_a_reason(tree: Tree) -> None:
    hold(tree, 7, parent=6)
    assert reason(holder(tree).parent) == "process 6, the parent of process 7, was not observed"


def test_process_that_started_later_is_not_the_parent(tree: Tree) -> None:
    tree.process(5, "/bin/bash", ticks=1001)
    hold(tree, 7, parent=5)
    assert "was not observed" in reason(holder(tree).parent)


# --------------------------------------------------------------------------------------------------
# Which processes are described
# --------------------------------------------------------------------------------------------------


def test_process_that_holds_nothing_is_not_described(tree: Tree) -> None:
    tree.process(7, "/usr/bin/kubelet")
    hold(tree, 8)
    view, _ = tree.observe()
    assert not isinstance(view.kubelet, NotObserved)
    assert isinstance(view.kubelet.process, ProcessRef)
    assert view.kubelet.process.user == NOT_REQUESTED


def test_process_of_another_mount_namespace_is_described(tree: Tree) -> None:
    line = "40 28 252:0 / /data rw - ext4 /dev/rbd0 rw"
    tree.namespace("host", ROOT_MOUNT, line)
    tree.namespace("container", ROOT_MOUNT, line)
    tree.process(7, "/bin/app", namespace="container", uid=34)
    (seen,) = tree.mappings()
    assert not isinstance(seen.mounts, NotObserved)
    users = {mount.namespace.is_host: mount.namespace.process.user for mount in seen.mounts}
    assert users == {True: NOT_REQUESTED, False: "backup"}


def test_processes_beyond_the_limit_have_a_reason(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod cannot displace the host's processes."""
    monkeypatch.setattr(holder_processes, "MOST", 2)
    for pid in (7, 8):
        hold(tree, pid, pod=OTHER_POD)
    hold(tree, 9)
    found = holders(tree)
    assert (found[9].user, found[7].user) == ("backup", "34")
    assert "this one is not among the first" in reason(found[8].user)
    assert "this one is not among the first" in reason(found[8].parent)
