"""The node's own words: what kubelet, the CSI node plugin and the kernel last complained of.

A failing NodeUnstage is told nowhere else: no event, no condition (measured). Everything here is
read-only and bounded, and only lines that name a volume that is asked about are kept. Each log is
read in a thread of its own: a file that hangs is left behind.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.correlate.words import Naming
from rbdagent.model import Heard, KubeletView, NodeWords, NotObserved, ProcessRef, Word
from rbdagent.observe.failure import not_observed
from rbdagent.observe.files import followed, names_in
from rbdagent.observe.logs import (
    GUESSED_UNITS,
    MOST_LINES,
    Tail,
    kubelets_unit,
    read_journal,
    read_ring,
    read_tail,
)
from rbdagent.observe.node import uptime
from rbdagent.observe.together import start
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rbdagent.correlate.words import Called
    from rbdagent.model import NodeView
    from rbdagent.observe.node import NodeRoots

WITHIN_S: Final = 5.0
"""For all of it: a log is no reason to wait for an answer."""
MOST_WORDS: Final = 3
"""Of each volume and log."""
_TAIL: Final = 1 << 20
_MOST_CONTAINERS, _MOST_FILES = 3, 2
_AGE_S: Final = 3600.0
_KERNELS_AGE_S: Final = 86400.0
"""A file system that went read-only is so until it is mounted anew, and nobody repeats it."""
_AHEAD_S: Final = 120.0
"""Clocks are read one after the other; what lies further ahead is no time at all."""
_PODS: Final = "/var/log/pods"
_SHOW: Final = "run it on the node as root, or show /var/log to it (the chart: logs.enabled)"


class Look(NamedTuple):
    """What is looked for, and when."""

    roots: NodeRoots
    kubelet: ProcessRef | None
    naming: Naming
    calls: tuple[Called, ...]
    now: float
    """Seconds since the epoch."""


class _Said(NamedTuple):
    """A line that names a volume."""

    at: float
    text: str
    named: dict[int, frozenset[str]]
    call: str = ""
    unanswered: bool = False
    retry_at: str | None = None


def begin_words(
    roots: NodeRoots, view: NodeView, calls: tuple[Called, ...], *, now: str
) -> Callable[[float], NodeWords | NotObserved]:
    """Begin to read the logs; give what waits for the words about some volumes until a deadline.

    Args:
        roots: where the host's file systems are seen.
        view: what was seen of that node.
        calls: the names of the volumes.
        now: the time, ISO 8601 in UTC.
    """
    if not calls:
        nothing = NotObserved(reason="not asked: the target leads to no volume")
        return lambda _: nothing
    process = view.kubelet.process if isinstance(view.kubelet, KubeletView) else None
    look = Look(
        roots=roots,
        kubelet=process if isinstance(process, ProcessRef) else None,
        naming=Naming.of(calls),
        calls=calls,
        now=datetime.fromisoformat(now).timestamp(),
    )
    begun = time.monotonic()
    wait = start([functools.partial(each, look) for each in (of_kubelet, of_plugin, of_kernel)])

    def words(deadline: float) -> NodeWords:
        answers = [_ended(each) for each in wait(min(deadline, begun + WITHIN_S))]
        return NodeWords(kubelet=answers[0], plugin=answers[1], kernel=answers[2])

    return words


def _ended(answer: Heard | NotObserved | BaseException | None) -> Heard | NotObserved:
    if answer is None:
        return NotObserved(
            reason=f"not read within {WITHIN_S:g} s", cure="its disk is slow, or hangs"
        )
    if isinstance(answer, OSError):
        return NotObserved(reason=printable(str(answer)))
    if isinstance(answer, BaseException):
        return not_observed(answer, "the log")
    if isinstance(answer, NotObserved):
        # It may quote a file's name, or what a program said.
        return replace(answer, reason=printable(answer.reason))
    return answer


# --------------------------------------------------------------------------------------------------
# The CSI node plugin
# --------------------------------------------------------------------------------------------------

_LOG: Final = re.compile(r"(?P<instance>\d+)\.log(?:\.\d{8}-\d{6})?")
"""A container's log, or the newest rotated part of it; older ones are compressed."""
_NUMBERED: Final = re.compile(r"ID: (?P<id>\d+) (?:Req-ID: \S+ )?(?P<text>.*)", re.DOTALL)
_CALL, _RESPONSE, _ERROR = "GRPC call: ", "GRPC response: ", "GRPC error: "
"""ceph-csi's (internal/csi-common/utils.go), recorded."""
_SLOW: Final = re.compile(
    r"Slow GRPC call (?P<method>\S+) \((?:(?P<h>\d{1,4})h)?"
    r"(?:(?P<m>\d{1,4})m)?(?:(?P<s>\d{1,4})(?:\.\d+)?s)?\)"
)
"""Said again and again while a call is under way."""
_DESCRIBED: Final = "desc = "


class _File(NamedTuple):
    """One part of a container's log."""

    written_at: float
    is_current: bool
    """Not rotated away."""
    path: str
    instance: int
    """How often the container was started before."""


def of_plugin(look: Look) -> Heard | NotObserved:
    """Read the logs of ceph-csi's node plugin, as the runtime keeps them for kubelet.

    ``NAMESPACE_POD_UID/CONTAINER/INSTANCE.log`` below /var/log/pods
    (k8s.io/kubernetes/pkg/kubelet/kuberuntime, BuildContainerLogsDirectory).
    """
    containers = _containers(look.roots.host_root)
    if isinstance(containers, NotObserved):
        return containers
    since = look.now - _AGE_S
    said: list[_Said] = []
    for files in containers[:_MOST_CONTAINERS]:
        heard = _container(files[:_MOST_FILES], look)
        if isinstance(heard, NotObserved):
            return heard
        since = max(since, heard[0])
        said += heard[1]
    return _heard(said, since, look, _AGE_S)


def _containers(host_root: Path) -> list[list[_File]] | NotObserved:
    """Give the files of each node plugin's container, the newest first."""
    base = f"{host_root}{followed(host_root, _PODS)}"
    pods = names_in(base)
    if isinstance(pods, NotObserved):
        return pods
    if pods is None:
        return NotObserved(reason=f"{_PODS} is not there, or not shown to rbdagent", cure=_SHOW)
    found = []
    for pod in pods:
        names = names_in(f"{base}/{pod}")
        if isinstance(names, NotObserved):
            return names
        # Of the provisioner's pod a container has the same name, and works for no node.
        if names is None or any(each.startswith("csi-provisioner") for each in names):
            continue
        for name in names:
            files = _files(f"{base}/{pod}/{name}") if "rbdplugin" in name else []
            if isinstance(files, NotObserved):
                return files
            found += [files] if files else []
    if not found:
        return NotObserved(
            reason=f"{_PODS} has no log of a ceph-csi node plugin (a container csi-rbdplugin)"
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


def _container(files: list[_File], look: Look) -> tuple[float, list[_Said]] | NotObserved:
    """Give what a container said, and since when that is known."""
    oldest = look.now - _AGE_S
    since = look.now
    parts: list[tuple[int, list[Message]]] = []
    for file in files:
        if parts and file.written_at < oldest:
            since = oldest
            break
        part = _part(file)
        if isinstance(part, NotObserved):
            return part
        parts.append((file.instance, part.told))
        since = max(oldest, min(since, part.began))
        if not part.is_all or since == oldest:
            break
    return since, _of_instances(parts[::-1], look)


class _Part(NamedTuple):
    """What was read of a container's log."""

    told: list[Message]
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
        return NotObserved(reason=f"{file.path}: not in the form of CRI")
    return _Part(list(messages(lines)), lines[0].at or file.written_at, tail.is_all)


def _of_instances(parts: list[tuple[int, list[Message]]], look: Look) -> list[_Said]:
    """Give what went wrong in each call, and the calls that nobody has answered yet.

    A container that was started again has forgotten what the one before was asked.
    """
    said: list[_Said] = []
    waiting: list[_Said] = []
    for _, group in itertools.groupby(parts, key=lambda part: part[0]):
        told = [message for _, part in group for message in part]
        wrong, waiting = _of_calls(told, look)
        said += wrong
    return said + waiting


def _of_calls(told: list[Message], look: Look) -> tuple[list[_Said], list[_Said]]:
    said: list[_Said] = []
    open_calls: dict[str, _Said] = {}
    methods: dict[str, str] = {}
    known: dict[str, list[str]] = {}
    tells_answers = False
    for message in told:
        head = _NUMBERED.match(message.text)
        number, text = ("", message.text) if head is None else (head["id"], head["text"])
        tells_answers |= text.startswith(_RESPONSE)
        named = look.naming.in_log(message.text)
        if not named or message.at is None:
            continue
        call = _call(text, message.at) if number else None
        if call is not None:
            method, at = call
            if number not in open_calls:
                known[number] = []
                open_calls[number] = _Said(at, _CALL + method, named, method, unanswered=True)
            methods[number] = method
            continue
        if text.startswith((_RESPONSE, _ERROR)):
            open_calls.pop(number, None)
        if message.severity == "I" or _is_known(text, known.get(number, [])):
            continue
        known.setdefault(number, []).append(text)
        said.append(_Said(message.at, text, named, methods.get(number, "")))
    # Calls are logged from verbosity 4 on, good answers from 5 on: without these nobody can tell.
    return said, list(open_calls.values()) if tells_answers else []


def _call(text: str, at: float) -> tuple[str, float] | None:
    """Give which call a line tells of, and when that began."""
    slow = _SLOW.match(text)
    if slow is not None:
        hours, minutes, seconds = (int(slow[each] or 0) for each in "hms")
        return _method(slow["method"]), at - 3600 * hours - 60 * minutes - seconds
    return (_method(text), at) if text.startswith(_CALL) else None


def _method(path: str) -> str:
    """Give ``NodeStageVolume`` of ``/csi.v1.Node/NodeStageVolume``."""
    return path.rpartition("/")[2]


def _is_known(text: str, before: list[str]) -> bool:
    """Tell whether an answer only repeats an error that its call has told in full."""
    described = text.partition(_DESCRIBED)[2] if text.startswith(_ERROR) else ""
    return bool(described) and any(described in each for each in before)


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
_WHOM: Final = re.compile(
    r"(?<=failed) for volume \"[^\"]*\" \(UniqueName: \"[^\"]*\"\)"
    r"(?: pod \"[^\"]*\" \(UID: \"[^\"]*\"\))?(?: on node \"[^\"]*\")? ?:"
)
_DOING: Final = re.compile(r"(?P<call>[A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)?) failed\b")


def of_kubelet(look: Look) -> Heard | NotObserved:
    """Read kubelet's log: the journal's, else a file that somebody writes it to."""
    refused = []
    syslogs = [functools.partial(_syslog, path) for path in _SYSLOGS]
    places: tuple[Callable[[Look], _Read], ...] = (_journal, _plain, *syslogs)
    for read in places:
        found = read(look)
        if isinstance(found, NotObserved):
            refused.append(found)
        elif found is not None:
            since, told = found
            return _heard(_complaints(told, look), since, look, _AGE_S)
    return NotObserved(
        reason="; ".join(each.reason for each in refused),
        cure=next((each.cure for each in refused if each.cure), _SHOW),
    )


_Read = tuple[float, list[Message]] | NotObserved | None
"""Since when, and the messages; None: there is no such file."""


def _journal(look: Look) -> _Read:
    unit = None
    if look.kubelet is not None:
        unit = kubelets_unit(look.roots.procfs, look.kubelet.pid)
    raw = read_journal(
        look.roots.host_root,
        GUESSED_UNITS if unit is None else (unit,),
        age_s=_AGE_S,
        most=_TAIL,
        within_s=WITHIN_S,
    )
    if isinstance(raw, NotObserved):
        return raw
    lines = [line for each in raw.split(b"\n") if (line := parse_journal(each)) is not None]
    if not lines and unit is None:
        return NotObserved(
            reason=f"the journal has no line of {', '.join(GUESSED_UNITS[:3])} and the like",
            cure="it may run under another name: systemctl list-units '*kube*'",
        )
    is_cut = len(lines) >= MOST_LINES or len(raw) >= _TAIL
    since = lines[0].at if is_cut and lines else None
    return since or look.now - _AGE_S, list(messages(lines))


def _plain(look: Look) -> _Read:
    """Read what kubelet writes to a file by itself."""
    tail = read_tail(_path(look, _PLAIN), _TAIL)
    if not isinstance(tail, Tail):
        return tail
    told = list(messages(Line("", decoded(each)) for each in tail.raw.split(b"\n")))
    lines = [Line("", "", each.at, each.stamp) for each in told]
    return _timed(told, lines, tail, _PLAIN, look)


def _path(look: Look, path: str) -> str:
    """Give where a file of the host's is seen: its directory may be a link."""
    directory, _, name = path.rpartition("/")
    return f"{look.roots.host_root}{followed(look.roots.host_root, directory)}/{name}"


def _syslog(path: str, look: Look) -> _Read:
    tail = read_tail(_path(look, path), _TAIL)
    if not isinstance(tail, Tail):
        return tail
    lines = [line for each in tail.raw.split(b"\n") if (line := parse_syslog(each)) is not None]
    told = list(messages(each for each in lines if _WRITERS.match(each.writer)))
    return _timed(told, lines, tail, path, look)


def _timed(told: list[Message], lines: list[Line], tail: Tail, path: str, look: Look) -> _Read:
    """Give each message its time, by the file's own where the lines tell neither year nor zone."""
    if not told:
        return NotObserved(reason=f"{path}: no line of kubelet")
    zone = zone_of(lines[-1].stamp, tail.written_at)

    def moment(at: float | None, stamp: str) -> float | None:
        return zone.epoch(stamp) if at is None and zone is not None else at

    since, last = moment(lines[0].at, lines[0].stamp), moment(told[-1].at, told[-1].stamp)
    if since is None or last is None:
        return NotObserved(reason=f"{path}: the times of its lines do not fit its own")
    if last < look.now - _AGE_S:
        # What kubelet once wrote there proves nothing about where it writes now.
        return NotObserved(reason=f"{path}: no line of kubelet since {_iso(last)}")
    return since, [each._replace(at=moment(each.at, each.stamp)) for each in told]


def _complaints(told: list[Message], look: Look) -> Iterator[_Said]:
    for each in told:
        if each.severity == "I" or each.at is None:
            continue
        named = look.naming.in_log(each.text)
        if not named:
            continue
        text = each.text.replace('\\"', '"')
        operation = _OPERATION.match(text)
        if operation is not None:
            text = text[operation.end() :]
        doing = _DOING.match(text)
        yield _Said(
            each.at,
            _WHOM.sub(" …:", text),
            named,
            doing["call"] if doing else "",
            retry_at=None if operation is None else _retry_at(operation),
        )


def _retry_at(operation: re.Match[str]) -> str | None:
    until = f"{operation['until']} {operation['zone']}"
    try:
        return _iso(datetime.strptime(until, "%Y-%m-%d %H:%M:%S %z").timestamp())
    except (ValueError, OverflowError):
        return None


# --------------------------------------------------------------------------------------------------
# The kernel
# --------------------------------------------------------------------------------------------------

_WARNING: Final = 4
_MAPPED: Final = re.compile(
    r"(?:rbd: )?(?P<device>(?:rbd|nbd)\d+): (?:capacity |detected capacity change from 0 to )"
)
"""What is said when a device begins; before that its name meant another image."""


def of_kernel(look: Look) -> Heard | NotObserved:
    """Read the kernel's warnings about the devices as they are mapped now."""
    lines = read_ring(look.roots.host_root, look.roots.procfs)
    if isinstance(lines, NotObserved):
        return lines
    up_s = uptime(look.roots.procfs)
    if up_s is None or not lines:
        return NotObserved(reason="the kernel's lines, or since when it runs, could not be read")
    booted = look.now - up_s
    began = booted + lines[0].seconds
    return _heard(_warnings(lines, booted, look), began, look, _KERNELS_AGE_S)


def _warnings(lines: Iterable[KernelLine], booted: float, look: Look) -> list[_Said]:
    said: dict[int, list[_Said]] = {}
    owners: dict[str, list[int]] = {}
    for number, each in enumerate(look.calls):
        for name in each.kernel:
            owners.setdefault(name, []).append(number)
    for line in lines:
        begun = _MAPPED.match(line.text)
        for number in owners.get(begun["device"], ()) if begun else ():
            said.pop(number, None)
        if line.level > _WARNING:
            continue
        for number, names in look.naming.in_kernel(line.text).items():
            one = _Said(booted + line.seconds, line.text, {number: names})
            said.setdefault(number, []).append(one)
    return [each for found in said.values() for each in found]


# --------------------------------------------------------------------------------------------------
# What is kept
# --------------------------------------------------------------------------------------------------

_COUNTED: Final = re.compile(r"(?<![-(])(?<!status )\b\d{2,}\b")
"""What differs where the same is said again; error numbers and exit codes are no such."""


def _heard(said: Iterable[_Said], since: float, look: Look, age_s: float) -> Heard:
    """Keep the last words of each volume; what was said again counts once."""
    oldest, newest = look.now - age_s, look.now + _AHEAD_S
    # A call without an answer is no old word: it is under way.
    recent = [each for each in said if each.at <= newest and (each.unanswered or oldest <= each.at)]
    recent.sort(key=lambda each: each.at, reverse=True)
    kept: dict[tuple[object, ...], Word] = {}
    count = dict.fromkeys(range(len(look.calls)), 0)
    for each in recent:
        key = (_COUNTED.sub("0", each.text), each.call, frozenset(each.named))
        if key in kept:
            kept[key] = replace(kept[key], times=kept[key].times + 1)
        elif any(count[number] < MOST_WORDS for number in each.named):
            kept[key] = _word(each)
            for number in each.named:
                count[number] += 1
    since = min(max(since, oldest), look.now)
    return Heard(since=_iso(since), words=tuple(kept.values()))


def _word(said: _Said) -> Word:
    names = sorted(name for each in said.named.values() for name in each)
    return Word(
        at=_iso(said.at),
        text=shortened(without_secrets(printable(said.text))),
        names=tuple(dict.fromkeys(names)),
        call=said.call,
        unanswered=said.unanswered,
        retry_at=said.retry_at,
    )


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
