"""Log excerpts of the node: the last errors of kubelet, the CSI node plugin and the kernel.

A failing NodeUnstage appears in no event and no condition (measured), only in logs. All reads are
bounded and change nothing, and only lines that name a requested volume are kept. Each log is read
in a separate thread, so a read that hangs does not delay the others.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.collect.failure import not_observed
from rbdagent.collect.files import followed, names_in
from rbdagent.collect.node.log_sources import (
    GUESSED_UNITS,
    MOST_LINES,
    Tail,
    kubelets_unit,
    read_journal,
    read_ring,
    read_tail,
)
from rbdagent.collect.node.observer import uptime
from rbdagent.collect.node.plugin_pods import plugin_pods
from rbdagent.collect.parallel import start
from rbdagent.commands import kubectl, line_of
from rbdagent.correlate.log_names import OF_CLIENTS, Naming, is_decisive, is_of_clients
from rbdagent.model import KubeletView, LogEntry, LogExcerpt, NodeLogs, NotObserved, ProcessRef
from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.logs import (
    KernelLine,
    Line,
    Message,
    decoded,
    join_cri,
    messages,
    parse_journal,
    parse_syslog,
    zone_of,
)
from rbdagent.parse.secrets import without_secrets
from rbdagent.parse.times import iso_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rbdagent.collect.node.plugin_pods import PluginPods
    from rbdagent.collect.node.roots import NodeRoots
    from rbdagent.correlate.log_names import LogNames
    from rbdagent.model import NodeView

WITHIN_S: Final = 5.0
"""Time limit for all logs: they must not delay the output."""
MOST_WORDS: Final = 3
"""Limit per volume and log."""
_TAIL: Final = 1 << 20
_MOST_CONTAINERS, _MOST_FILES = 3, 2
_AGE_S: Final = 3600.0
_KERNELS_AGE_S: Final = 86400.0
"""A file system that becomes read-only is logged once, and stays read-only until it is mounted
again."""
_CLOCK_SKEW_S: Final = 120.0
"""The clocks are read one after the other. A time further in the future is invalid."""
_PODS: Final = "/var/log/pods"
_NO_LOGS: Final = (
    "on a node, run rbdagent as root; in its pod, mount /var/log (chart value logs.enabled); a "
    "machine without kubelet has no such log"
)


class LogSearch(NamedTuple):
    """The search terms, and the time of the search."""

    roots: NodeRoots
    view: NodeView
    kubelet: ProcessRef | None
    naming: Naming
    calls: tuple[LogNames, ...]
    now: float
    """Seconds since the epoch."""


class _Entry(NamedTuple):
    """A log entry that names a volume."""

    at: float
    text: str
    named: dict[int, frozenset[str]]
    call: str = ""
    unanswered: bool = False
    retry_at: str | None = None


def begin_logs(
    roots: NodeRoots, view: NodeView, calls: tuple[LogNames, ...], *, now: str
) -> Callable[[float], NodeLogs | NotObserved]:
    """Start to read the logs; return a function that waits for the excerpts until a deadline.

    Args:
        roots: the paths of the host's file systems.
        view: the observed state of the node.
        calls: the names of the volumes.
        now: the time, ISO 8601 in UTC.
    """
    if not calls:
        nothing = NotObserved(reason="not read: the target leads to no volume")
        return lambda _: nothing
    process = view.kubelet.process if isinstance(view.kubelet, KubeletView) else None
    search = LogSearch(
        roots=roots,
        view=view,
        kubelet=process if isinstance(process, ProcessRef) else None,
        naming=Naming.of(calls),
        calls=calls,
        now=datetime.fromisoformat(now).timestamp(),
    )
    begun = time.monotonic()
    wait = start([functools.partial(read, search) for read in (of_kubelet, of_plugin, of_kernel)])

    def logs(deadline: float) -> NodeLogs:
        answers = [_answer(answer) for answer in wait(min(deadline, begun + WITHIN_S))]
        return NodeLogs(kubelet=answers[0], plugin=answers[1], kernel=answers[2])

    return logs


def _answer(answer: LogExcerpt | NotObserved | BaseException | None) -> LogExcerpt | NotObserved:
    if answer is None:
        return NotObserved(
            reason=f"not read within {WITHIN_S:g} s", hint="the disk of the log is slow, or hangs"
        )
    if isinstance(answer, OSError):
        return NotObserved(reason=printable(str(answer)))
    if isinstance(answer, BaseException):
        return not_observed(answer, "the log")
    if isinstance(answer, NotObserved):
        # The reason may quote a file name, or the output of a program.
        return replace(answer, reason=printable(answer.reason))
    return answer


# --------------------------------------------------------------------------------------------------
# The CSI node plugin
# --------------------------------------------------------------------------------------------------

_LOG: Final = re.compile(r"(?P<instance>\d+)\.log(?:\.\d{8}-\d{6})?")
"""A container's log, or the newest rotated part of it; older ones are compressed."""
_NUMBERED: Final = re.compile(r"ID: (?P<id>\d+) (?:Req-ID: \S+ )?(?P<text>.*)", re.DOTALL)
_CALL, _RESPONSE, _ERROR = "GRPC call: ", "GRPC response: ", "GRPC error: "
"""Texts of ceph-csi (internal/csi-common/utils.go@52fcb7b), recorded."""
_SLOW: Final = re.compile(
    r"Slow GRPC call (?P<method>\S+) \((?:(?P<h>\d{1,4})h)?"
    r"(?:(?P<m>\d{1,4})m)?(?:(?P<s>\d{1,4})(?:\.\d+)?s)?\)"
)
"""Logged repeatedly while a call is in progress."""
_DESCRIBED: Final = "desc = "


class _File(NamedTuple):
    """One part of a container's log."""

    written_at: float
    is_current: bool
    """Whether the part is not rotated."""
    path: str
    instance: int
    """The number of earlier starts of the container."""


class _ContainerLog(NamedTuple):
    """The log of one container."""

    files: list[_File]
    """The newest first."""
    pod: str
    """``NAMESPACE/NAME``."""
    pod_uid: str
    container: str


def of_plugin(search: LogSearch) -> LogExcerpt | NotObserved:
    """Read the logs of ceph-csi's node plugin, which the container runtime writes for kubelet.

    ``NAMESPACE_POD_UID/CONTAINER/INSTANCE.log`` below /var/log/pods
    (k8s.io/kubernetes/pkg/kubelet/kuberuntime, BuildContainerLogsDirectory).
    """
    named = _containers(search.roots.host_root)
    if isinstance(named, NotObserved):
        return named
    pods = plugin_pods(search.roots, search.view, frozenset(log.pod_uid for log in named))
    if isinstance(pods, NotObserved):
        return replace(pods, reason=f"which pod is the node plugin's is not known: {pods.reason}")
    logs = [log for log in named if log.pod_uid in pods.proved]
    unread = _unread(named, pods) + _beyond_limit(logs[_MOST_CONTAINERS:])
    if not logs:
        return NotObserved(reason="; ".join(unread), hint=_read_log(named[0]))
    since = search.now - _AGE_S
    entries: list[_Entry] = []
    for log in logs[:_MOST_CONTAINERS]:
        part = _container(log.files[:_MOST_FILES], search)
        if isinstance(part, NotObserved):
            return part
        since = max(since, part[0])
        entries += part[1]
    return replace(_excerpt(entries, since, search, _AGE_S), unread=unread)


def _unread(named: list[_ContainerLog], pods: PluginPods) -> tuple[str, ...]:
    """Return why logs of containers with the name of a node plugin are not quoted."""
    others = [log for log in named if log.pod_uid not in pods.proved]
    unknown = [log for log in others if log.pod_uid in pods.unread]
    foreign = [log for log in others if log.pod_uid not in pods.unread]
    reasons = []
    if unknown:
        why = pods.unread[unknown[0].pod_uid]
        reasons.append(f"{_names(unknown)}: its mounts were not read ({why})")
    if foreign:
        reasons.append(
            f"{_names(foreign)}: no running container of that pod has the directory of a CSI "
            "driver mounted, as the node plugin has"
        )
    return tuple(reasons)


def _beyond_limit(logs: list[_ContainerLog]) -> tuple[str, ...]:
    """Return that logs beyond the limit were not read."""
    most = f"only the newest {_MOST_CONTAINERS} logs of node plugins are read"
    return (f"{_names(logs)}: {most}",) if logs else ()


def _names(logs: list[_ContainerLog]) -> str:
    """Return the first containers by name, and the number of the others."""
    first = ", ".join(f"{log.container} of {log.pod}" for log in logs[:_MOST_CONTAINERS])
    more = len(logs) - _MOST_CONTAINERS
    return f"{first} and {more} more" if more > 0 else first


def _read_log(log: _ContainerLog) -> str:
    namespace, _, pod = log.pod.partition("/")
    return line_of(kubectl("logs", pod, namespace=namespace, options=("-c", log.container)))


def _containers(host_root: Path) -> list[_ContainerLog] | NotObserved:
    """Return the logs of every container with the name of a node plugin, the newest first.

    The name proves nothing: see :func:`plugin_pods`.
    """
    base = f"{host_root}{followed(host_root, _PODS)}"
    pods = names_in(base)
    if isinstance(pods, NotObserved):
        return pods
    if pods is None:
        return NotObserved(
            reason=f"{_PODS} does not exist, or is not visible to rbdagent", hint=_NO_LOGS
        )
    found = []
    for pod in pods:
        names = names_in(f"{base}/{pod}")
        if isinstance(names, NotObserved):
            return names
        # The provisioner's pod has a container of the same name, which works for no node.
        if names is None or any(name.startswith("csi-provisioner") for name in names):
            continue
        for name in names:
            files = _files(f"{base}/{pod}/{name}") if "rbdplugin" in name else []
            if isinstance(files, NotObserved):
                return files
            if files:
                namespace, _, rest = pod.partition("_")
                pod_name, _, uid = rest.rpartition("_")
                found.append(_ContainerLog(files, f"{namespace}/{pod_name}", uid, name))
    if not found:
        return NotObserved(
            reason=f"{_PODS} has no log of a container csi-rbdplugin, ceph-csi's node plugin"
        )
    return sorted(found, reverse=True)


def _files(directory: str) -> list[_File] | NotObserved:
    names = names_in(directory)
    if isinstance(names, NotObserved):
        return names
    found = []
    for name in names or ():
        match = _LOG.fullmatch(name)
        if match is None:
            continue
        path = f"{directory}/{name}"
        try:
            written_at = os.lstat(path).st_mtime
        except FileNotFoundError:
            continue
        is_current = name.endswith(".log")
        found.append(_File(written_at, is_current, path, int(match["instance"])))
    return sorted(found, reverse=True)


def _container(files: list[_File], search: LogSearch) -> tuple[float, list[_Entry]] | NotObserved:
    """Return the entries of a container's log, and the time of the first line that was read."""
    oldest = search.now - _AGE_S
    since = search.now
    parts: list[tuple[int, list[Message]]] = []
    for file in files:
        if parts and file.written_at < oldest:
            since = oldest
            break
        part = _part(file)
        if isinstance(part, NotObserved):
            return part
        parts.append((file.instance, part.log_messages))
        since = max(oldest, min(since, part.began))
        if not part.is_all or since == oldest:
            break
    return since, _of_containers(parts[::-1], search)


class _Part(NamedTuple):
    """The part of a container's log that was read."""

    log_messages: list[Message]
    began: float
    is_all: bool


def _part(file: _File) -> _Part | NotObserved:
    tail = read_tail(file.path, _TAIL)
    if isinstance(tail, NotObserved):
        return tail
    if tail is None or not tail.raw.strip():
        return _Part([], file.written_at, is_all=tail is None or tail.is_all)
    lines = list(join_cri(tail.raw.split(b"\n")))
    if not lines:
        return NotObserved(reason=f"{file.path}: not in the format of CRI")
    return _Part(list(messages(lines)), lines[0].at or file.written_at, tail.is_all)


def _of_containers(parts: list[tuple[int, list[Message]]], search: LogSearch) -> list[_Entry]:
    """Return the errors of every call, and the calls without a response.

    After a restart, a container does not continue the calls of the previous one.
    """
    entries: list[_Entry] = []
    waiting: list[_Entry] = []
    for _, group in itertools.groupby(parts, key=lambda part: part[0]):
        log_messages = [message for _, part in group for message in part]
        wrong, waiting = _of_calls(log_messages, search)
        entries += wrong
    return entries + waiting


def _of_calls(log_messages: list[Message], search: LogSearch) -> tuple[list[_Entry], list[_Entry]]:
    entries: list[_Entry] = []
    open_calls: dict[str, _Entry] = {}
    methods: dict[str, str] = {}
    known: dict[str, list[str]] = {}
    has_responses = False
    for message in log_messages:
        head = _NUMBERED.match(message.text)
        number, text = ("", message.text) if head is None else (head["id"], head["text"])
        has_responses |= text.startswith(_RESPONSE)
        named = search.naming.in_log(message.text)
        if not named or message.at is None:
            continue
        call = _call(text, message.at) if number else None
        if call is not None:
            method, at = call
            if number not in open_calls:
                known[number] = []
                open_calls[number] = _Entry(at, _CALL + method, named, method, unanswered=True)
            methods[number] = method
            continue
        if text.startswith((_RESPONSE, _ERROR)):
            open_calls.pop(number, None)
        if message.severity == "I" or _is_known(text, known.get(number, [])):
            continue
        known.setdefault(number, []).append(text)
        entries.append(_Entry(message.at, text, named, methods.get(number, "")))
    # Calls are logged from verbosity 4 on, successful responses from 5 on. Without the latter, a
    # call without a logged response may have succeeded.
    return entries, list(open_calls.values()) if has_responses else []


def _call(text: str, at: float) -> tuple[str, float] | None:
    """Return the method and the start time of the call in a line; None if the line is no call."""
    slow = _SLOW.match(text)
    if slow is not None:
        hours, minutes, seconds = (int(slow[unit] or 0) for unit in "hms")
        return _method(slow["method"]), at - 3600 * hours - 60 * minutes - seconds
    return (_method(text), at) if text.startswith(_CALL) else None


def _method(path: str) -> str:
    """Return ``NodeStageVolume`` of ``/csi.v1.Node/NodeStageVolume``."""
    return path.rpartition("/")[2]


def _is_known(text: str, before: list[str]) -> bool:
    """Return whether a response only repeats an error that was logged in full before."""
    described = text.partition(_DESCRIBED)[2] if text.startswith(_ERROR) else ""
    return bool(described) and any(described in error for error in before)


# --------------------------------------------------------------------------------------------------
# kubelet
# --------------------------------------------------------------------------------------------------

_PLAIN: Final = "/var/log/kubelet.log"
_SYSLOGS: Final = ("/var/log/syslog", "/var/log/messages")
_WRITERS: Final = re.compile(r"(?:.*kubel(?:et|ite)|k3s|k0s|rke2)(?:-[\w-]+)?\[")
_OPERATION: Final = re.compile(
    r"\"?Operation for \".*?\" failed\. No retries permitted until "
    r"(?P<until>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? (?P<zone>[+-]\d{4}).{0,200}?"
    r"\(durationBeforeRetry [^)]{1,40}\)\. Error: ",
)
_VOLUME_NAME: Final = re.compile(
    r"(?<=failed) for volume \"[^\"]*\" \(UniqueName: \"[^\"]*\"\)"
    r"(?: pod \"[^\"]*\" \(UID: \"[^\"]*\"\))?(?: on node \"[^\"]*\")? ?:"
)
_FAILED_CALL: Final = re.compile(r"(?P<call>[A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)?) failed\b")


def of_kubelet(search: LogSearch) -> LogExcerpt | NotObserved:
    """Read kubelet's log: from the journal, else from a file."""
    refused = []
    syslogs = [functools.partial(_syslog, path) for path in _SYSLOGS]
    places: tuple[Callable[[LogSearch], _Read], ...] = (_journal, _plain, *syslogs)
    for read in places:
        found = read(search)
        if isinstance(found, NotObserved):
            refused.append(found)
        elif found is not None:
            since, log_messages = found
            return _excerpt(_kubelet_errors(log_messages, search), since, search, _AGE_S)
    return NotObserved(
        reason="; ".join(answer.reason for answer in refused),
        hint=next((answer.hint for answer in refused if answer.hint), _NO_LOGS),
    )


_Read = tuple[float, list[Message]] | NotObserved | None
"""The time of the first line, and the messages; None if the file does not exist."""


def _journal(search: LogSearch) -> _Read:
    unit = None
    if search.kubelet is not None:
        unit = kubelets_unit(search.roots.procfs, search.kubelet.pid)
    raw = read_journal(
        search.roots.host_root,
        GUESSED_UNITS if unit is None else (unit,),
        age_s=_AGE_S,
        most=_TAIL,
        within_s=WITHIN_S,
    )
    if isinstance(raw, NotObserved):
        return raw
    lines = [line for raw_line in raw.split(b"\n") if (line := parse_journal(raw_line)) is not None]
    if not lines and unit is None:
        return NotObserved(
            reason=f"the journal has no line of {', '.join(GUESSED_UNITS[:3])} or similar units",
            hint="kubelet's unit may have another name: systemctl list-units '*kube*'",
        )
    is_cut = len(lines) >= MOST_LINES or len(raw) >= _TAIL
    since = lines[0].at if is_cut and lines else None
    return since or search.now - _AGE_S, list(messages(lines))


def _plain(search: LogSearch) -> _Read:
    """Read the log file that kubelet writes."""
    tail = read_tail(_path(search, _PLAIN), _TAIL)
    if not isinstance(tail, Tail):
        return tail
    log_messages = list(messages(Line("", decoded(raw_line)) for raw_line in tail.raw.split(b"\n")))
    lines = [Line("", "", message.at, message.stamp) for message in log_messages]
    return _with_times(log_messages, lines, tail, _PLAIN, search)


def _path(search: LogSearch, path: str) -> str:
    """Return the path of a host's file below the host's root; its directory may be a link."""
    directory, _, name = path.rpartition("/")
    return f"{search.roots.host_root}{followed(search.roots.host_root, directory)}/{name}"


def _syslog(path: str, search: LogSearch) -> _Read:
    tail = read_tail(_path(search, path), _TAIL)
    if not isinstance(tail, Tail):
        return tail
    lines = [
        line for raw_line in tail.raw.split(b"\n") if (line := parse_syslog(raw_line)) is not None
    ]
    log_messages = list(messages(line for line in lines if _WRITERS.match(line.writer)))
    return _with_times(log_messages, lines, tail, path, search)


def _with_times(
    log_messages: list[Message], lines: list[Line], tail: Tail, path: str, search: LogSearch
) -> _Read:
    """Return the messages with times; the file's time supplies a missing year or time zone."""
    if not log_messages:
        return NotObserved(reason=f"{path}: no line of kubelet")
    zone = zone_of(lines[-1].stamp, tail.written_at)

    def moment(at: float | None, stamp: str) -> float | None:
        return zone.epoch(stamp) if at is None and zone is not None else at

    since, last = (
        moment(lines[0].at, lines[0].stamp),
        moment(log_messages[-1].at, log_messages[-1].stamp),
    )
    if since is None or last is None:
        return NotObserved(reason=f"{path}: the times of its lines do not match the file's time")
    if last < search.now - _AGE_S:
        # Old lines in the file do not prove that kubelet still writes to it.
        return NotObserved(reason=f"{path}: no line of kubelet since {iso_time(last)}")
    return since, [
        message._replace(at=moment(message.at, message.stamp)) for message in log_messages
    ]


def _kubelet_errors(log_messages: list[Message], search: LogSearch) -> Iterator[_Entry]:
    for message in log_messages:
        if message.severity == "I" or message.at is None:
            continue
        named = search.naming.in_log(message.text)
        if not named:
            continue
        text = message.text.replace('\\"', '"')
        operation = _OPERATION.match(text)
        if operation is not None:
            text = text[operation.end() :]
        doing = _FAILED_CALL.match(text)
        yield _Entry(
            message.at,
            _VOLUME_NAME.sub(" …:", text),
            named,
            doing["call"] if doing else "",
            retry_at=None if operation is None else _retry_at(operation),
        )


def _retry_at(operation: re.Match[str]) -> str | None:
    until = f"{operation['until']} {operation['zone']}"
    try:
        return iso_time(datetime.strptime(until, "%Y-%m-%d %H:%M:%S %z").timestamp())
    except (ValueError, OverflowError):
        return None


# --------------------------------------------------------------------------------------------------
# The kernel
# --------------------------------------------------------------------------------------------------

_WARNING: Final = 4
_MAPPED: Final = re.compile(
    r"(?:rbd: )?(?P<device>(?:rbd|nbd)\d+): (?:capacity |detected capacity change from 0 to )"
)
"""The line of a new device; earlier lines with this name belong to another image."""


def of_kernel(search: LogSearch) -> LogExcerpt | NotObserved:
    """Read the kernel's warnings about the present mappings of the devices."""
    lines = read_ring(search.roots.host_root, search.roots.procfs)
    if isinstance(lines, NotObserved):
        return lines
    up_s = uptime(search.roots.procfs)
    if up_s is None or not lines:
        return NotObserved(reason="the kernel's log or its uptime cannot be read")
    booted = search.now - up_s
    began = booted + lines[0].seconds
    return _excerpt(_warnings(lines, booted, search), began, search, _KERNELS_AGE_S)


def _warnings(lines: Iterable[KernelLine], booted: float, search: LogSearch) -> list[_Entry]:
    entries: dict[int, list[_Entry]] = {}
    owners: dict[str, list[int]] = {}
    for number, called in enumerate(search.calls):
        for name in called.kernel:
            owners.setdefault(name, []).append(number)
    for line in lines:
        begun = _MAPPED.match(line.text)
        for number in owners.get(begun["device"], ()) if begun else ():
            entries.pop(number, None)
        if line.level > _WARNING and not is_of_clients(line.text):
            continue
        for number, names in search.naming.in_kernel(line.text).items():
            warning = _Entry(booted + line.seconds, line.text, {number: names})
            entries.setdefault(number, []).append(warning)
    return [entry for found in entries.values() for entry in found]


# --------------------------------------------------------------------------------------------------
# Excerpt
# --------------------------------------------------------------------------------------------------

_COUNTED: Final = re.compile(r"(?<![-(])(?<!status )\b\d{2,}\b")
"""Numbers that differ between repeated entries, except error numbers and exit codes."""


_PEER: Final = re.compile(r"\b(osd|mon)\d+")


def _excerpt(
    entries: Iterable[_Entry], since: float, search: LogSearch, age_s: float
) -> LogExcerpt:
    """Return the last entries about every volume; a repeated entry is kept once and counted."""
    oldest, newest = search.now - age_s, search.now + _CLOCK_SKEW_S
    # A call without a response is in progress, so it is kept whatever its age.
    recent = [
        entry
        for entry in entries
        if entry.at <= newest and (entry.unanswered or oldest <= entry.at)
    ]
    recent.sort(key=lambda entry: entry.at, reverse=True)
    kept: dict[tuple[object, ...], LogEntry] = {}
    count: Counter[tuple[int, bool, bool]] = Counter()
    for entry in recent:
        text = _PEER.sub(r"\1", _COUNTED.sub("0", entry.text))
        key = (text, entry.call, frozenset(entry.named))
        # Lines about a client must not crowd out those about the device, and a failed request
        # (each logs three lines) not the one line with which a file system stops.
        places = [
            (number, names == {OF_CLIENTS}, is_decisive(entry.text))
            for number, names in entry.named.items()
        ]
        if key in kept:
            kept[key] = replace(kept[key], times=kept[key].times + 1)
        elif any(count[place] < MOST_WORDS for place in places):
            kept[key] = _log_entry(entry)
            count.update(places)
    since = min(max(since, oldest), search.now)
    return LogExcerpt(since=iso_time(since), lines=tuple(kept.values()))


def _log_entry(entry: _Entry) -> LogEntry:
    names = sorted(name for found in entry.named.values() for name in found)
    return LogEntry(
        at=iso_time(entry.at),
        text=shortened(without_secrets(printable(entry.text))),
        names=tuple(dict.fromkeys(names)),
        call=entry.call,
        unanswered=entry.unanswered,
        retry_at=entry.retry_at,
    )
