"""Lines of a node's logs: the runtime's (CRI), syslog's and the journal's, klog's, the kernel's.

What follows their forms is read; whatever does not is no line of theirs, and never an error: a log
holds what anybody wrote into it. Each text is cut to `LONGEST` before anything else looks at it.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST: Final = 16384
"""As long as a piece of a line that containerd writes: more of one is no use to anybody."""


class Line(NamedTuple):
    """A line of a log."""

    writer: str
    """Whose it is: what is no beginning of a message goes on with its writer's last one."""
    text: str
    at: float | None = None
    """Seconds since the epoch."""
    stamp: str = ""
    """What stands there instead, with neither year nor zone."""


class Message(NamedTuple):
    """What klog wrote at once."""

    severity: str
    """``I``, ``W``, ``E`` or ``F``."""
    text: str
    at: float | None
    stamp: str
    """``1121 00:46:43.130395``, or syslog's: in the zone of whoever wrote it, without the year."""


class KernelLine(NamedTuple):
    """A line of the kernel's ring buffer."""

    level: int
    """0 to 7; 4 is a warning."""
    seconds: float
    """Since boot."""
    text: str


# --------------------------------------------------------------------------------------------------
# A container's log, as the runtime writes it
# --------------------------------------------------------------------------------------------------


class CriLine(NamedTuple):
    """One line of it: a whole line of the container, or a piece of one."""

    at: float
    stream: str
    is_whole: bool
    """False: it goes on in the stream's next line."""
    text: str


def parse_cri(raw: bytes) -> CriLine | None:
    """Read ``TIME stdout|stderr F|P TEXT`` (k8s.io/cri-client/pkg/logs); None: it is no such."""
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
    """Give the lines that a container wrote, at the time of their first piece."""
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
    """Give the beginning of a text; bytes that are no UTF-8 are shown as such."""
    return raw[:LONGEST].decode(errors="replace")


def _epoch(stamp: bytes) -> float | None:
    """Read an ISO 8601 time with its zone."""
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
    """Read a line of ``journalctl -o short-unix``."""
    head = _JOURNAL.match(raw[:LONGEST])
    if head is None:
        return None
    return Line(decoded(head["writer"]), decoded(raw[head.end() :]), float(head["at"]))


def parse_syslog(raw: bytes) -> Line | None:
    """Read ``Nov 21 00:46:43 HOST TAG[PID]: TEXT``, or the same with an ISO 8601 time."""
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
"""How lines of librados, and of most other libraries, begin."""
_MOST_LINES: Final = 8
_AT_ONCE_S: Final = 1.0


def messages(lines: Iterable[Line]) -> Iterator[Message]:
    """Give klog's messages, each with the few lines that were written with it.

    An error that quotes a program's output has several lines, and the last ones tell why.
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
    for each in begun.values():
        yield _message(*each)


def _goes_on(message: list[Line], line: Line) -> bool:
    """Tell whether a line without a head may be one of a message's further ones."""
    if len(message) > _MOST_LINES or _OTHERS.match(line.text) is not None:
        return False
    begun = message[0].at
    return begun is None or line.at is None or abs(line.at - begun) <= _AT_ONCE_S


def _message(head: re.Match[str], lines: list[Line]) -> Message:
    first, *rest = lines
    text = " ".join((first.text[head.end() :], *(each.text.strip() for each in rest)))
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
    """Read a record of ``/dev/kmsg`` (Documentation/ABI/testing/dev-kmsg).

    None for what is no record, and for what a program wrote there: its facility is not 0.
    """
    found = _KMSG.fullmatch(line)
    if found is None or int(found["priority"]) >= _LEVELS:
        return None
    return KernelLine(int(found["priority"]), int(found["time"]) / 1e6, found["text"])


def parse_dmesg(line: str) -> KernelLine | None:
    """Read a line as syslog(2) gives it; None as above, and where times are left out."""
    found = _DMESG.fullmatch(line)
    if found is None or int(found["priority"]) >= _LEVELS:
        return None
    return KernelLine(int(found["priority"]), float(found["time"]), found["text"])


# --------------------------------------------------------------------------------------------------
# Times without year and zone
# --------------------------------------------------------------------------------------------------

_FORMS: Final = ("%Y %m%d %H:%M:%S.%f", "%Y %b %d %H:%M:%S")
_LATEST: Final = 1 << 34
"""In the year 2514: no file was written later."""
_YEAR: Final = timedelta(days=365.25)
_ZONES_STEP: Final = timedelta(minutes=15)
_TOLERANCE: Final = timedelta(minutes=2)


class Zone(NamedTuple):
    """How to read the times of one log: what its last line says, and when that was."""

    last: datetime
    offset: timedelta

    def epoch(self, stamp: str) -> float | None:
        """Give the time that a stamp means; None: it is none."""
        moment = _in_year(stamp, self.last.year)
        if moment is None:
            return None
        if moment > self.last + timedelta(days=1):
            moment = _in_year(stamp, self.last.year - 1)
        return None if moment is None else (moment - self.offset).timestamp()


def zone_of(last_stamp: str, written_at: float) -> Zone | None:
    """Find year and zone of a log from its last line and the time when the file was written to.

    Offsets are whole quarters of an hour. None where the two do not fit: somebody else touched it.
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
    """Read a stamp as one of UTC; klog's has a fraction, of which six digits count."""
    head, dot, fraction = stamp.partition(".")
    text = f"{year:04} {head}{dot}{fraction[:6]}"
    for form in _FORMS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, form).replace(tzinfo=UTC)
    return None


# --------------------------------------------------------------------------------------------------
# To be shown
# --------------------------------------------------------------------------------------------------
