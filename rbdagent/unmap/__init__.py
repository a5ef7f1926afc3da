"""The only package that writes to the node: one step at a time, each after a look of its own.

What may hang in the kernel is done by a child process that nobody waits for longer than is said:
a write to sysfs that waits for a hung OSD cannot be interrupted (uninterruptible sleep), and must
not take rbdagent with it.
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
from rbdagent.unmap import child

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.observe.node import NodeRoots

_STEP_S: Final = 30.0
_GONE_S: Final = 5.0
_WATCH_S: Final = 40.0
"""A watch without its client ends after 30 s (osd_client_watch_timeout)."""
_WATCH_EVERY_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.2


class NodePaths(Struct, frozen=True, kw_only=True):
    """Where the host is seen."""

    sysfs: Path
    procfs: Path
    host_root: Path


def node_paths(roots: NodeRoots) -> NodePaths:
    """Give the paths of a node that was looked at by these roots."""
    return NodePaths(sysfs=roots.sysfs, procfs=roots.procfs, host_root=roots.host_root)


class Decide(Protocol):
    """Observes everything again, with consistent reads, and plans again."""

    def __call__(self, *, after: Step | None = None) -> UnmapPlan | UnmapRefusal:
        """Return what is decided; ``after`` is the step that was done since the last time."""


class _Stopped(Exception):  # noqa: N818 - the end of the ladder is no error
    """A step did not work."""

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
    """Do what a plan says, as long as a new look before each step says the same.

    Args:
        plan: the plan.
        again: looks at everything once more, with consistent reads, and plans anew.
        watched: looks whether the mapping's client still watches the image's header.
        paths: where to write.
        deadline: of the monotonic clock; no step begins after it, and nothing is waited for longer.
            A step that has begun is left to the kernel.
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
            # Never lazy, never forced: what is busy stays.
            _run(step, _on_host(paths, "umount", step.subject), deadline)
        case StepKind.LUKS_CLOSE:
            _run(step, _on_host(paths, "cryptsetup", "luksClose", step.subject), deadline)
        case StepKind.UNMAP:
            _unmap(step, plan, paths, deadline)


def _on_host(paths: NodePaths, *command: str) -> list[str]:
    """Give the command line that runs a program in the host's namespaces of mounts and of IPC.

    cryptsetup waits for udevd on a System V semaphore (libdevmapper's udev cookie): one of a pod's
    own IPC namespace udevd never finds. Where that is the host's own, nothing needs to be entered,
    and under systemd it could not be (RestrictNamespaces=mnt).
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
        # Who may not look may not enter either: nsenter says so of the first.
        return True


def _run(step: Step, command: list[str], deadline: float) -> None:
    code, said = _child(command, deadline)
    if code is None:
        raise _Stopped(UnmapOutcome.IN_PROGRESS, f"{step.kind} {step.subject} does not return")
    if code != 0:
        busy = "busy" in said
        raise _Stopped(
            UnmapOutcome.BUSY if busy else UnmapOutcome.FAILED,
            f"{step.kind} {step.subject}: {said or f'exit {code}'}",
        )


def _unmap(step: Step, plan: UnmapPlan, paths: NodePaths, deadline: float) -> None:
    number = step.subject.removeprefix("/dev/rbd")
    code, said = _child(
        [
            # Neither site nor anything of ours is imported: it shall begin at once.
            *(sys.executable, "-I", "-S", child.__file__),
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
    if code == child.NOT_THE_SAME:
        raise _Stopped(UnmapOutcome.REFUSED, f"{step.subject} is another device now")
    if code == child.HAS_IO:
        raise _Stopped(
            UnmapOutcome.REFUSED, f"{step.subject} had I/O since the last observation (RBD510)"
        )
    if code != 0:
        why = os.strerror(code) if code in errno.errorcode else said
        raise _Stopped(UnmapOutcome.FAILED, f"unmapping {step.subject}: {why}")
    device = paths.sysfs / "bus" / "rbd" / "devices" / number
    if not _within(_left(_GONE_S, deadline), lambda: not device.exists()):
        raise _Stopped(UnmapOutcome.FAILED, f"{device} is still there")


def counts_of(counters: IoCounters) -> str:
    """Return counters as the child compares them: in the order of sysfs, without what is not."""
    counts = (
        counters.reads,
        counters.writes,
        counters.in_flight,
        counters.discards,
        counters.flushes,
    )
    return ",".join(str(count) for count in counts if count is not None)


def _left(longest_s: float, deadline: float) -> float:
    """Return how long may be waited, in seconds."""
    return max(min(longest_s, deadline - time.monotonic()), 0.0)


def _child(command: list[str], deadline: float) -> tuple[int | None, str]:
    """Run a program; return its exit code, None where it does not return, and what it said.

    Raises:
        _Stopped: the program cannot be started, so that nothing was done: one that is missing while
            a package is replaced, for instance.
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
        _, said = process.communicate(timeout=_left(_STEP_S, deadline))
    except subprocess.TimeoutExpired:
        return None, ""
    return process.returncode, said.strip()


def _after(
    plan: UnmapPlan, watched: Callable[[], bool | NotObserved], deadline: float
) -> tuple[UnmapOutcome, str]:
    """Look for the watch: with a hung OSD it stays when the device is gone."""
    device, seen = plan.identity.device, list[bool | NotObserved]()

    def is_gone() -> bool:
        seen.append(watched())
        return seen[-1] is False

    if _within(_left(_WATCH_S, deadline), is_gone, every_s=_WATCH_EVERY_S):
        return UnmapOutcome.UNMAPPED, f"{device} is unmapped, and nobody there watches the image"
    last = seen[-1]
    reason = f" ({last.reason})" if isinstance(last, NotObserved) else ""
    return (
        UnmapOutcome.WATCH_LINGERS,
        f"{device} is unmapped; its watch was not seen to end{reason}",
    )


def _within(seconds: float, holds: Callable[[], bool], *, every_s: float = _LOOK_EVERY_S) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(every_s, left))
    return True
