"""The result of a pass over /proc: what was found, and why the rest was not observed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.files import ARGUMENTS
from rbdagent.collect.node.processes import lacks_rights, named
from rbdagent.model import InFlight, NotObserved
from rbdagent.parse.command_line import base_name, is_worker
from rbdagent.parse.rbd_nbd import is_server
from rbdagent.parse.secrets import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rbdagent.collect.node.mounts import Namespace
    from rbdagent.collect.node.processes import ProcessEntry
    from rbdagent.model import OpenFile

MOST_NAMED: Final = 3
"""Limit of processes that are named in one reason."""
SKIPPED: Final = "not read, because other processes of its pod do not answer"
_MOST_COMMANDS: Final = 16
"""Limit of the processes of one pod whose command lines are shown because they have open files."""


class ProcessScan(Struct, kw_only=True):
    """The result of the pass."""

    entries: list[ProcessEntry]
    namespaces: list[Namespace]
    openers: list[OpenFile]
    unknown: list[str]
    """The processes that were not observed at all, with the reason."""
    denied_mounts: list[str]
    """The processes with denied access to their mounts."""
    denied_files: list[str]
    """The processes with denied access to their descriptors, cwd, root or mappings."""
    unread_mounts: list[str]
    """The processes whose mount namespace was not observed, with the reason."""
    hung_files: list[str]
    """The processes whose files do not answer, with the reason."""
    beyond_files: list[str]
    """The processes whose files exceed the limits, with the reason."""
    unread_files: list[str]
    """The processes whose files were not all observed for another reason, with the reason."""
    unread_commands: list[str]
    """The processes whose command line was not read in time, with the reason."""


def scan_of(
    entries: Sequence[ProcessEntry],
    namespaces: list[Namespace],
    *,
    hidden: Iterable[int],
    unknown: list[str],
) -> ProcessScan:
    """Return the result of a pass.

    Args:
        entries: the processes, in the order of the pids.
        namespaces: their mount namespaces.
        hidden: the processes whose state cannot be read.
        unknown: the other processes that were not observed at all, with the reason.
    """
    unseen = [f"process {pid}" for pid in sorted(hidden)]
    return ProcessScan(
        entries=list(entries),
        namespaces=namespaces,
        openers=[opener for entry in _with_few_commands(entries) for opener in _openers_of(entry)],
        unknown=[f"the state of {process} cannot be read" for process in unseen] + unknown,
        denied_mounts=unseen + _named_some(entries, lambda entry: entry.has_denied_mounts),
        denied_files=unseen + _named_some(entries, lambda entry: entry.has_denied_files),
        unread_mounts=unknown
        + _reasons(
            entries,
            lambda entry: (
                ""
                if entry.namespaces
                else entry.hung or _skipped(entry) or entry.beyond or entry.unread
            ),
        ),
        hung_files=_reasons(entries, lambda entry: entry.hung)
        + _reasons(entries, lambda entry: "" if entry.hung else _skipped(entry)),
        beyond_files=_reasons(entries, lambda entry: entry.beyond),
        unread_files=unknown + _reasons(entries, lambda entry: entry.unread),
        unread_commands=_reasons(entries, lambda entry: entry.no_command),
    )


def _with_few_commands(entries: Iterable[ProcessEntry]) -> Iterator[ProcessEntry]:
    """Yield the processes, of each pod only the first ones with their command lines.

    To mask the secrets of a command line takes 1 ms per KiB, and a pod may have any number of
    processes with open files. The others are shown with their names.
    """
    commands: Counter[str] = Counter()
    for entry in entries:
        pod = entry.process.pod_uid
        if pod is not None and entry.openers:
            commands[pod] += 1
            if commands[pod] > _MOST_COMMANDS:
                entry.command_line = ()
        yield entry


def _openers_of(entry: ProcessEntry) -> Iterator[OpenFile]:
    """Yield the open files of a process, with its command line, which was read after them."""
    for opener in entry.openers:
        yield replace(opener, process=entry.ref)


def _reasons(
    entries: Iterable[ProcessEntry], reason_of: Callable[[ProcessEntry], str]
) -> list[str]:
    """Return the processes that have a reason, with it, as `_named_some` does."""
    reasons = {entry.process.pid: why for entry in entries if (why := reason_of(entry))}
    names = _named_some(entries, lambda entry: entry.process.pid in reasons)
    return [f"{name}: {why}" for name, why in zip(names, reasons.values(), strict=True)]


def _named_some(
    entries: Iterable[ProcessEntry], is_meant: Callable[[ProcessEntry], bool]
) -> list[str]:
    """Return the processes for which a function is true: the first ones with program and pod.

    To name a process, secrets in its command line are masked. That takes longer than its read.
    """
    meant = [entry for entry in entries if is_meant(entry)]
    return [named(entry.ref) for entry in meant[:MOST_NAMED]] + [
        f"process {entry.process.pid}" for entry in meant[MOST_NAMED:]
    ]


def _skipped(entry: ProcessEntry) -> str:
    return SKIPPED if entry.is_skipped else ""


def in_flight_of(procfs: Path, scan: ProcessScan) -> tuple[InFlight, ...] | NotObserved:
    """Return the processes that map, unmap, format, check, mount or unlock, in any state."""
    if scan.unknown:
        return NotObserved(reason=scan.unknown[0])
    found = []
    opening = {opener.process.pid for opener in scan.openers}
    for entry in scan.entries:
        # A process that ends has no command line for a moment, and still has its files open:
        # do_exit() calls exit_mm() before exit_files() (kernel/exit.c).
        is_known_by_name = entry.is_cut or entry.process.pid in opening
        name = entry.name if is_known_by_name else ""
        program = base_name(entry.arguments[0]) if entry.arguments else name
        if not is_worker(program) or is_server(entry.arguments) or lacks_rights(procfs, entry):
            continue
        if entry.is_cut:
            if entry.is_command_read:
                why = f"its command line is larger than {ARGUMENTS >> 10} KiB"
            else:
                why = entry.no_command or entry.unread or "its command line was not read"
            return NotObserved(reason=f"{named(entry.ref)}: {why}")
        names = (word for word in entry.arguments[1:] if "/" in word or "rbd" in word)
        found.append(
            InFlight(
                process=entry.ref,
                program=program,
                names=tuple(without_secrets(word) for word in names if "key" not in word.lower()),
            )
        )
    return tuple(found)


def thread_traces(entries: Iterable[ProcessEntry]) -> Iterator[tuple[str, str]]:
    """Yield device and name of the kernel threads of active file systems: ``[jbd2/rbd0-8]``.

    Names are cut to 15 characters, so that those of xfs lack the device's number. sysfs shows the
    file systems of type xfs.
    """
    for entry in entries:
        if entry.is_kernel_thread and "/" in entry.name:
            device = entry.name.partition("/")[2]
            for name in {device, device.rpartition("-")[0]}:
                yield name, f"[{entry.name}]"
