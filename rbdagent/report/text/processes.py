"""The processes that hold a device: arguments, user, start and parent of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import for_reader
from rbdagent.model import NOT_REQUESTED, NotObserved
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.report.text.layout import wrapped
from rbdagent.verdicts.evidence import evidence_of, processes_on

if TYPE_CHECKING:
    from rbdagent.model import Diagnosis, Holder, ProcessRef
    from rbdagent.report.text.layout import Layout

_MOST_PROCESSES: Final = 20
"""Maximum of described processes of one holder: a pod may have any number."""


def processes(holder: Holder, layout: Layout) -> list[str]:
    """Return the paragraph that describes the processes of a holder; empty without processes.

    They are those of the evidence: neither the process that serves an rbd-nbd device, nor one whose
    mount namespace has only a copy of the host's mount.
    """
    found = evidence_of(holder)
    others = (mount.namespace.process for mount in found.other_mounts)
    lines = {
        process.pid: _process_line(process, layout)
        for process in (*processes_on(found), *others)
        if process.user != NOT_REQUESTED
    }
    if holder.mapping is None or not lines:
        return []
    listed = [lines[pid] for pid in sorted(lines)[:_MOST_PROCESSES]]
    if len(lines) > _MOST_PROCESSES:
        listed.append(f"  and {len(lines) - _MOST_PROCESSES} more processes: -o json lists all")
    head = f"Processes that hold {holder.mapping.device} on {holder.node or 'an unknown machine'}:"
    return ["\n".join([head, *listed])]


def processes_instead(diagnosis: Diagnosis, layout: Layout) -> list[str]:
    """Return the paragraphs that replace the commands that a reader without a shell cannot run."""
    commands = diagnosis.next_commands
    if len(for_reader(commands, layout.program)) == len(commands):
        return []
    return [text for found in diagnosis.holders for text in processes(found.holder, layout)]


def _process_line(process: ProcessRef, layout: Layout) -> str:
    started = f", started {process.started_at}" if process.started_at else ""
    match process.user:
        case NotObserved(reason=reason):
            user = f", user not observed: {reason}"
        case user_name:
            user = f" of user {user_name}"
    match process.parent:
        case None:
            parent = ""
        case NotObserved():
            parent = ", parent not observed"
        case known:
            parent = f", child of {known.pid} ({foreign_name(known.program)})"
    command = foreign(process.command) if process.command else "no name"
    text = f"process {process.pid} ({command}){user}{started}{parent}"
    return wrapped(text, layout, first="  ", rest="    ")
