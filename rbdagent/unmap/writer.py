"""The only package that writes to the node: one step at a time, each after a new snapshot.

A child process runs each operation that may hang in the kernel, and rbdagent waits for it only
until a deadline. A write to sysfs that waits for a hung OSD cannot be interrupted (uninterruptible
sleep), and must not block rbdagent. The same is true for umount (recording 27-osd-hung).
"""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from rbdagent.model import (
    IoCounters,
    NotObserved,
    Step,
    StepKind,
    UnmapOutcome,
    UnmapPlan,
    UnmapRefusal,
    UnmapResult,
)
from rbdagent.unmap import umount_child, writer_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.collect.node.roots import NodeRoots

_STEP_S: Final = 30.0
_GONE_S: Final = 5.0
_WATCH_S: Final = 40.0
"""A watch without its client ends after 30 s (osd_client_watch_timeout); 25.6 s after a power-off
(recording 17-n2-power-off-and-boot)."""
_WATCH_EVERY_S: Final = 2.0
_CHECK_EVERY_S: Final = 0.2


class NodePaths(Struct, frozen=True, kw_only=True):
    """Holds the paths at which the host is visible."""

    sysfs: Path
    procfs: Path
    host_root: Path


def node_paths(roots: NodeRoots) -> NodePaths:
    """Return the paths of a node that was observed below these roots."""
    return NodePaths(sysfs=roots.sysfs, procfs=roots.procfs, host_root=roots.host_root)


class Decide(Protocol):
    """A function that observes every source again, with consistent reads, and plans again."""

    def __call__(self, *, after: Step | None = None) -> UnmapPlan | UnmapRefusal:
        """Return the new decision; ``after`` is the step since the previous decision."""


class _Stopped(Exception):  # noqa: N818 - that the steps end is not an error
    """A step did not succeed."""

    def __init__(self, outcome: UnmapOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def carry_out(
    plan: UnmapPlan,
    *,
    again: Decide,
    watched: Callable[[], bool | NotObserved],
    paths: NodePaths,
    deadline: float = math.inf,
) -> UnmapResult:
    """Execute a plan, as long as a new plan before each step is unchanged.

    Args:
        plan: the plan.
        again: observes every source again, with consistent reads, and plans again.
        watched: checks whether the client of the mapping still watches the image's header.
        paths: the paths to write to.
        deadline: in seconds of the monotonic clock. After it, no step begins and no wait continues.
            The kernel still finishes a step that has begun.
    """
    done: list[Step] = []

    def ended(
        outcome: UnmapOutcome, message: str, refusal: UnmapRefusal | None = None
    ) -> UnmapResult:
        return UnmapResult(
            plan=plan, outcome=outcome, message=message, done=tuple(done), refusal=refusal
        )

    def is_over() -> bool:
        return time.monotonic() >= deadline

    for expected in plan.steps:
        too_late = f"no time was left before {expected.kind}"
        if is_over():
            return ended(UnmapOutcome.REFUSED, too_late)
        now = again(after=done[-1] if done else None)
        if isinstance(now, UnmapRefusal):
            return ended(UnmapOutcome.REFUSED, f"refused before {expected.kind}", now)
        if now.identity != plan.identity or now.steps[0] != expected:
            return ended(UnmapOutcome.REFUSED, f"the node changed before {expected.kind}")
        if is_over():
            return ended(UnmapOutcome.REFUSED, too_late)
        try:
            _do(expected, now, paths, deadline)
        except _Stopped as stopped:
            return ended(stopped.outcome, str(stopped))
        done.append(expected)
    return ended(*_after(plan, watched, deadline))


def _do(step: Step, plan: UnmapPlan, paths: NodePaths, deadline: float) -> None:
    match step.kind:
        case StepKind.UMOUNT:
            _umount(step, plan, paths, deadline)
        case StepKind.LUKS_CLOSE:
            _run(step, _on_host(paths, "cryptsetup", "luksClose", step.subject), deadline)
        case StepKind.UNMAP:
            _unmap(step, plan, paths, deadline)


def _on_host(paths: NodePaths, *command: str) -> list[str]:
    """Return the command line that runs a program in the host's mount and IPC namespaces.

    cryptsetup waits for udevd on a System V semaphore (the udev cookie of libdevmapper). udevd
    never finds a semaphore in a pod's IPC namespace. If rbdagent is already in the host's IPC
    namespace, it does not enter that namespace; under systemd it could not
    (RestrictNamespaces=mnt).
    """
    host = paths.procfs / "1" / "ns"
    entered = [f"--mount={host / 'mnt'}"]
    if not _is_own(host / "ipc"):
        entered.append(f"--ipc={host / 'ipc'}")
    return ["nsenter", *entered, "--", *command]


def _is_own(namespace: Path) -> bool:
    try:
        return os.path.samefile(namespace, f"/proc/self/ns/{namespace.name}")
    except OSError:
        # A process that may not read the namespace may not enter it; nsenter reports that error.
        return True


def _run(step: Step, command: list[str], deadline: float) -> None:
    code, output = _child(command, deadline)
    if code is None:
        raise _Stopped(UnmapOutcome.IN_PROGRESS, f"{step.kind} {step.subject} does not return")
    if code != 0:
        busy = "busy" in output
        raise _Stopped(
            UnmapOutcome.BUSY if busy else UnmapOutcome.FAILED,
            f"{step.kind} {step.subject}: {output or f'exit {code}'}",
        )


def _umount(step: Step, plan: UnmapPlan, paths: NodePaths, deadline: float) -> None:
    command = [
        *_python(umount_child.__file__),
        str(paths.procfs / "1" / "ns" / "mnt"),
        step.subject,
        str(step.device),
    ]
    code, output = _child(command, deadline)
    what = f"{step.kind} {step.subject}"
    if code is None:
        raise _Stopped(UnmapOutcome.IN_PROGRESS, f"{what} does not return")
    if code == errno.EBUSY:
        raise _Stopped(UnmapOutcome.BUSY, f"{what}: the mount is busy")
    if code == umount_child.NOT_THE_TOP:
        device = plan.identity.device
        raise _Stopped(
            UnmapOutcome.REFUSED, f"{what}: the mount of {device} is not the only one there"
        )
    if code != 0:
        raise _Stopped(UnmapOutcome.FAILED, f"{what}: {_error_text(code, output)}")


def _python(file: str) -> tuple[str, ...]:
    """Return the command that runs a child; without site and rbdagent, it starts without delay."""
    return sys.executable, "-I", "-S", file


def _error_text(code: int, output: str) -> str:
    return os.strerror(code) if code in errno.errorcode else output or f"exit {code}"


def _unmap(step: Step, plan: UnmapPlan, paths: NodePaths, deadline: float) -> None:
    number = step.subject.removeprefix("/dev/rbd")
    code, output = _child(
        [
            *_python(writer_child.__file__),
            str(paths.host_root / "dev" / f"rbd{number}"),
            str(paths.sysfs / "bus" / "rbd"),
            number,
            plan.identity.incarnation or "",
            counts_of(plan.io_counters),
        ],
        deadline,
    )
    if code in {None, errno.EINPROGRESS}:
        raise _Stopped(UnmapOutcome.IN_PROGRESS, f"the kernel is still unmapping {step.subject}")
    if code == errno.EBUSY:
        raise _Stopped(UnmapOutcome.BUSY, f"{step.subject} is open: the kernel did not unmap it")
    if code == writer_child.NOT_THE_SAME:
        raise _Stopped(UnmapOutcome.REFUSED, f"{step.subject} is another device now")
    if code == writer_child.HAS_IO:
        raise _Stopped(
            UnmapOutcome.REFUSED, f"{step.subject} had I/O since the last observation (RBD510)"
        )
    if code != 0:
        raise _Stopped(
            UnmapOutcome.FAILED, f"unmapping {step.subject}: {_error_text(code, output)}"
        )
    device = paths.sysfs / "bus" / "rbd" / "devices" / number
    if not _within(_left(_GONE_S, deadline), lambda: not device.exists()):
        raise _Stopped(UnmapOutcome.FAILED, f"{device} still exists")


def counts_of(counters: IoCounters) -> str:
    """Return counters in the child's format: in the order of sysfs, without missing counters."""
    counts = (
        counters.reads,
        counters.writes,
        counters.in_flight,
        counters.discards,
        counters.flushes,
    )
    return ",".join(str(count) for count in counts if count is not None)


def _left(longest_s: float, deadline: float) -> float:
    """Return the longest permitted wait, in seconds."""
    return max(min(longest_s, deadline - time.monotonic()), 0.0)


def _child(command: list[str], deadline: float) -> tuple[int | None, str]:
    """Run a program; return its exit code, None if it does not return, and its error output.

    Raises:
        _Stopped: the program cannot be started, so nothing was done. For instance, it is missing
            while a package is replaced.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
    except OSError as error:
        raise _Stopped(UnmapOutcome.FAILED, f"{command[0]}: {error.strerror}") from error
    try:
        _, output = process.communicate(timeout=_left(_STEP_S, deadline))
    except subprocess.TimeoutExpired:
        return None, ""
    return process.returncode, output.strip()


def _after(
    plan: UnmapPlan, watched: Callable[[], bool | NotObserved], deadline: float
) -> tuple[UnmapOutcome, str]:
    """Wait until the watch ends; if an OSD hangs, the watch remains after the device is gone."""
    device, seen = plan.identity.device, list[bool | NotObserved]()

    def is_gone() -> bool:
        seen.append(watched())
        return seen[-1] is False

    if _within(_left(_WATCH_S, deadline), is_gone, every_s=_WATCH_EVERY_S):
        return (
            UnmapOutcome.UNMAPPED,
            f"{device} is unmapped, and its client no longer watches the image",
        )
    last = seen[-1]
    reason = f" ({last.reason})" if isinstance(last, NotObserved) else ""
    return (
        UnmapOutcome.WATCH_LINGERS,
        f"{device} is unmapped; the end of its watch was not observed{reason}",
    )


def _within(seconds: float, holds: Callable[[], bool], *, every_s: float = _CHECK_EVERY_S) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(every_s, left))
    return True
