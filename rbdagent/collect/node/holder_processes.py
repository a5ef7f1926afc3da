"""User and parent of the processes that hold a device.

They are read after the scan, and only of these few processes, by plain reads:
docs/adr/0006-psutil.md. ``/proc/PID/status`` and ``stat`` never wait for the process. ``cmdline``,
``environ`` and ``maps`` do: they take its mmap_lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.collect.files import followed, read_file
from rbdagent.collect.node.processes import named, start_ticks, uids_of
from rbdagent.model import NotObserved, ParentProcess, derived, observed_of

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.collect.node.process_scan import ProcessScan
    from rbdagent.collect.node.processes import ProcessEntry
    from rbdagent.model import Mapping, Mount, OpenFile, ProcessRef

MOST: Final = 256
"""Limit of described processes: two files are read for each, and a pod may have any number."""
_PASSWD: Final = 1 << 20
_BEYOND_LIMIT: Final = NotObserved(
    reason=f"more than {MOST} processes of the node hold devices; this one is not among the first"
)


class _Description(NamedTuple):
    user: str | NotObserved
    parent: ParentProcess | NotObserved | None


def with_descriptions(
    mappings: tuple[Mapping, ...], scan: ProcessScan, procfs: Path, host_root: Path
) -> tuple[Mapping, ...]:
    """Return the mappings with the user and the parent of each process that holds a device.

    Args:
        mappings: all mappings of the node.
        scan: the observation that found their processes.
        procfs: the host's /proc.
        host_root: the path of the host's ``/``.
    """
    holding = _holding(mappings)
    if not holding:
        return mappings
    entries = {entry.process.pid: entry for entry in scan.entries}
    names = _user_names(host_root)
    found = {
        process.pid: _Description(
            _user(entries[process.pid], procfs, names), _parent(entries[process.pid], entries)
        )
        for process in holding[:MOST]
    }
    beyond = _Description(_BEYOND_LIMIT, _BEYOND_LIMIT)
    found |= {process.pid: beyond for process in holding[MOST:]}
    return tuple(_described(mapping, found) for mapping in mappings)


def _holding(mappings: tuple[Mapping, ...]) -> list[ProcessRef]:
    """Return the processes that have a device open, or mounted in a namespace besides the host's.

    Processes without a pod come first: no pod explains them, and no tenant can displace them.
    """
    found = {
        opener.process.pid: opener.process
        for mapping in mappings
        for opener in observed_of(mapping.openers)
    }
    for mapping in mappings:
        for mount in observed_of(mapping.mounts):
            if not mount.namespace.is_host:
                found[mount.namespace.process.pid] = mount.namespace.process
    return sorted(found.values(), key=lambda process: (process.pod_uid is not None, process.pid))


def _user(entry: ProcessEntry, procfs: Path, names: dict[str, str]) -> str | NotObserved:
    """Return the effective user of a process, as ``ps -o user`` and ``fuser -v`` do.

    The host's passwd does not name the users of a container, so the user of a pod is a uid.
    """
    uids = uids_of(procfs, entry)
    if uids is None or start_ticks(procfs, entry.process.pid) != entry.ticks:
        return NotObserved(reason=f"{named(entry.ref)} ended before its user was read")
    if not uids:
        return NotObserved(reason=f"{named(entry.ref)}: its user cannot be read")
    _, effective, *_ = (uid.decode() for uid in uids)
    is_of_host = entry.has_cgroup and entry.process.pod_uid is None
    return names.get(effective, effective) if is_of_host else effective


def _user_names(host_root: Path) -> dict[str, str]:
    """Read the host's passwd(5): names by uid; empty if it is not readable.

    getpwuid(3) reads the file of the container in which rbdagent runs. The first entry of a uid
    counts, as there.
    """
    raw = read_file(f"{host_root}{followed(host_root, '/etc/passwd')}", _PASSWD)
    lines = raw.decode(errors="backslashreplace").split("\n") if isinstance(raw, bytes) else []
    fields = (line.split(":") for line in reversed(lines))
    return {uid: name for name, _, uid, *_ in (entry for entry in fields if len(entry) > 2) if name}


def _parent(
    entry: ProcessEntry, entries: dict[int, ProcessEntry]
) -> ParentProcess | NotObserved | None:
    """Return the parent of a process, which the scan has observed as well."""
    pid = entry.parent_pid
    if not pid:
        return None
    parent = entries.get(pid)
    # An ancestor never starts later. A process that did has the pid of a parent that has ended.
    if parent is None or parent.ticks > entry.ticks:
        reason = f"process {pid}, the parent of process {entry.ref.pid}, was not observed"
        return NotObserved(reason=reason)
    return ParentProcess(pid=pid, program=parent.ref.program)


def _described(mapping: Mapping, found: dict[int, _Description]) -> Mapping:
    def process(known: ProcessRef) -> ProcessRef:
        description = found[known.pid]
        return replace(known, user=description.user, parent=description.parent)

    def opener(known: OpenFile) -> OpenFile:
        return replace(known, process=process(known.process))

    def mount(known: Mount) -> Mount:
        if known.namespace.is_host:
            return known
        namespace = replace(known.namespace, process=process(known.namespace.process))
        return replace(known, namespace=namespace)

    return replace(
        mapping,
        openers=derived(mapping.openers, lambda openers: tuple(map(opener, openers))),
        mounts=derived(mapping.mounts, lambda mounts: tuple(map(mount, mounts))),
    )
