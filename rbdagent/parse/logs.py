"""Parser of the log lines of a node: container runtime (CRI), syslog, journal, klog and kernel.

A line in another form is skipped and is never an error: a log may contain any text. Each text is
cut to `LONGEST` before it is parsed.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST: Final = 16384
"""The length of a piece of a line that containerd writes; the rest of a text is dropped."""


class Line(NamedTuple):
    """A line of a log."""

    writer: str
    """The process or stream; a line without a head continues the last message of its writer."""
    text: str
    at: float | None = None
    """Seconds since the epoch."""
    stamp: str = ""
    """The time without year and zone, if the line has no full time."""


class Message(NamedTuple):
    """One message of klog, which may have several lines."""

    severity: str
    """``I``, ``W``, ``E`` or ``F``."""
    text: str
    at: float | None
    stamp: str
    """``1121 00:46:43.130395``, or syslog's form: without the year, in the zone of the writer."""


class KernelLine(NamedTuple):
    """A line of the ring buffer of the kernel."""

    level: int
    """0 to 7; 4 is a warning."""
    seconds: float
    """Since boot."""
    text: str


# --------------------------------------------------------------------------------------------------
# A container's log, as the runtime writes it
# --------------------------------------------------------------------------------------------------


class CriLine(NamedTuple):
    """A line of the log file: a whole line of the container, or a piece of one."""

    at: float
    stream: str
    is_whole: bool
    """False if the next line of the stream continues it."""
    text: str


def parse_cri(raw: bytes) -> CriLine | None:
    """Parse ``TIME stdout|stderr F|P TEXT`` (k8s.io/cri-client/pkg/logs); None for another form."""
    fields = raw.split(b" ", 3)
    if len(fields) < 3 or fields[1] not in {b"stdout", b"stderr"}:
        return None
    tag = fields[2].partition(b":")[0]
    at = _epoch(fields[0])
    if at is None or tag not in {b"F", b"P"}:
        return None
    text = fields[3] if len(fields) == 4 else b""
    return CriLine(at, fields[1].decode(), tag == b"F", decoded(text))


def join_cri(raws: Iterable[bytes]) -> Iterator[Line]:
    """Yield the lines that a container wrote, each with the time of its first piece."""
    begun: dict[str, Line] = {}
    for raw in raws:
        piece = parse_cri(raw)
        if piece is None:
            continue
        line = _longer(begun.pop(piece.stream, None), piece)
        if piece.is_whole:
            yield line
        else:
            begun[piece.stream] = line
    yield from begun.values()


def _longer(line: Line | None, piece: CriLine) -> Line:
    if line is None:
        return Line(piece.stream, piece.text, piece.at)
    return line._replace(text=(line.text + piece.text)[:LONGEST])


def decoded(raw: bytes) -> str:
    """Decode the first `LONGEST` bytes; U+FFFD replaces bytes that are not UTF-8."""
    return raw[:LONGEST].decode(errors="replace")


def _epoch(stamp: bytes) -> float | None:
    """Parse an ISO 8601 time; None if it is invalid or has no zone."""
    try:
        moment = datetime.fromisoformat(stamp.decode("ascii"))
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()


# --------------------------------------------------------------------------------------------------
# Syslog and the journal
# --------------------------------------------------------------------------------------------------

_JOURNAL: Final = re.compile(rb"(?P<at>\d{9,11}\.\d{1,9}) \S+ (?P<writer>[^\s\[]+\[\d+\]): ?")
_SYSLOG: Final = re.compile(
    rb"(?:(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)|(?P<at>\d{4}-\d\d-\d\dT\S+)) \S+ "
    rb"(?P<writer>[^\s\[:]+\[\d+\]): ?"
)


def parse_journal(raw: bytes) -> Line | None:
    """Parse a line of ``journalctl -o short-unix``."""
    head = _JOURNAL.match(raw[:LONGEST])
    if head is None:
        return None
    return Line(decoded(head["writer"]), decoded(raw[head.end() :]), float(head["at"]))


def parse_syslog(raw: bytes) -> Line | None:
    """Parse ``Nov 21 00:46:43 HOST TAG[PID]: TEXT``, or the same with an ISO 8601 time."""
    head = _SYSLOG.match(raw[:LONGEST])
    if head is None:
        return None
    at = _epoch(head["at"]) if head["at"] else None
    if at is None and not head["stamp"]:
        return None
    stamp = decoded(head["stamp"]) if head["stamp"] else ""
    return Line(decoded(head["writer"]), decoded(raw[head.end() :]), at, stamp)


# --------------------------------------------------------------------------------------------------
# klog: kubelet and the CSI drivers
# --------------------------------------------------------------------------------------------------

_KLOG: Final = re.compile(
    r"(?P<severity>[IWEF])(?P<stamp>\d{4} \d\d:\d\d:\d\d\.\d{1,9})\s+\d+ [^\]\s]{1,200}\] ?"
)
_OTHERS: Final = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:")
"""The beginning of log lines of librados and of most other libraries."""
_MOST_LINES: Final = 8
_AT_ONCE_S: Final = 1.0


def messages(lines: Iterable[Line]) -> Iterator[Message]:
    """Yield the messages of klog, each with the few lines that were written with it.

    An error that quotes the output of a program has several lines; the last ones contain the cause.
    """
    begun: dict[str, tuple[re.Match[str], list[Line]]] = {}
    for line in lines:
        head = _KLOG.match(line.text)
        if head is not None:
            if line.writer in begun:
                yield _message(*begun[line.writer])
            begun[line.writer] = (head, [line])
        elif line.writer in begun and _goes_on(begun[line.writer][1], line):
            begun[line.writer][1].append(line)
    for entry in begun.values():
        yield _message(*entry)


def _goes_on(message: list[Line], line: Line) -> bool:
    """Return whether a line without a head may belong to the message."""
    if len(message) > _MOST_LINES or _OTHERS.match(line.text) is not None:
        return False
    begun = message[0].at
    return begun is None or line.at is None or abs(line.at - begun) <= _AT_ONCE_S


def _message(head: re.Match[str], lines: list[Line]) -> Message:
    first, *rest = lines
    text = " ".join((first.text[head.end() :], *(line.text.strip() for line in rest)))
    return Message(head["severity"], text[:LONGEST], first.at, first.stamp or head["stamp"])


# --------------------------------------------------------------------------------------------------
# The kernel
# --------------------------------------------------------------------------------------------------

_KMSG: Final = re.compile(r"(?P<priority>\d{1,10}),\d+,(?P<time>\d{1,18}),[^;]*;(?P<text>.*)")
_DMESG: Final = re.compile(
    r"<(?P<priority>\d{1,10})>\[ *(?P<time>\d{1,12}\.\d{1,9})\](?:\[ *[CT]\d+\])? ?(?P<text>.*)"
)
_LEVELS: Final = 8


def parse_kmsg(line: str) -> KernelLine | None:
    """Parse a record of ``/dev/kmsg`` (Documentation/ABI/testing/dev-kmsg).

    Return None for another form, and for a record that a program wrote: its facility is not 0.
    """
    found = _KMSG.fullmatch(line)
    if found is None or int(found["priority"]) >= _LEVELS:
        return None
    return KernelLine(int(found["priority"]), int(found["time"]) / 1e6, found["text"])


def parse_dmesg(line: str) -> KernelLine | None:
    """Parse a line of syslog(2); None as in `parse_kmsg`, and if the line has no time."""
    found = _DMESG.fullmatch(line)
    if found is None or int(found["priority"]) >= _LEVELS:
        return None
    return KernelLine(int(found["priority"]), float(found["time"]), found["text"])


# --------------------------------------------------------------------------------------------------
# Times without year and zone
# --------------------------------------------------------------------------------------------------

_FORMS: Final = ("%Y %m%d %H:%M:%S.%f", "%Y %b %d %H:%M:%S")
_LATEST: Final = 1 << 34
"""In the year 2514; a later modification time is not valid."""
_YEAR: Final = timedelta(days=365.25)
_ZONES_STEP: Final = timedelta(minutes=15)
_TOLERANCE: Final = timedelta(minutes=2)


class Zone(NamedTuple):
    """The local time in the last line of a log, and the offset of that log from UTC."""

    last: datetime
    offset: timedelta

    def epoch(self, stamp: str) -> float | None:
        """Return the time of a stamp; None if the stamp is malformed."""
        moment = _in_year(stamp, self.last.year)
        if moment is None:
            return None
        if moment > self.last + timedelta(days=1):
            moment = _in_year(stamp, self.last.year - 1)
        return None if moment is None else (moment - self.offset).timestamp()


def zone_of(last_stamp: str, written_at: float) -> Zone | None:
    """Return year and zone of a log from its last line and the modification time of its file.

    Offsets are whole quarters of an hour. Return None if the two times do not match: another
    program changed the modification time.
    """
    if not 0 < written_at < _LATEST:
        return None
    written = datetime.fromtimestamp(written_at, tz=UTC)
    last = _in_year(last_stamp, written.year)
    if last is None:
        return None
    years = round((last - written) / _YEAR)
    last = _in_year(last_stamp, written.year - years) if years else last
    if last is None:
        return None
    offset = round((last - written) / _ZONES_STEP) * _ZONES_STEP
    if abs(last - written - offset) > _TOLERANCE or abs(offset) > timedelta(hours=14):
        return None
    return Zone(last, offset)


def _in_year(stamp: str, year: int) -> datetime | None:
    """Parse a stamp as UTC; a fraction (klog) is cut to six digits."""
    head, dot, fraction = stamp.partition(".")
    text = f"{year:04} {head}{dot}{fraction[:6]}"
    for form in _FORMS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC)
    return None
