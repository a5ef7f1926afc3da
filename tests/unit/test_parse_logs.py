"""Log lines: each known form is parsed, parts are joined, and other text is not a line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.parse.excerpt import printable, shortened
from rbdagent.parse.logs import (
    LONGEST,
    Line,
    join_cri,
    messages,
    parse_cri,
    parse_dmesg,
    parse_journal,
    parse_kmsg,
    parse_syslog,
    zone_of,
)

TIME = b"2026-11-21T00:46:43.130828123Z"
AT = datetime(2026, 11, 21, 0, 46, 43, 130828, tzinfo=UTC).timestamp()
HEAD = "E1121 00:46:43.130828     211 nodeserver.go:1050] "

# Container runtime --------------------------------------------------------------------------------


def test_cri_line_has_a_time_a_stream_and_a_text() -> None:
    line = parse_cri(TIME + b" stderr F ID: 113 failed  twice ")
    assert line is not None
    assert (line.at, line.stream, line.is_whole) == (AT, "stderr", True)
    assert line.text == "ID: 113 failed  twice "


def test_cri_line_may_be_empty_and_its_time_in_any_zone() -> None:
    line = parse_cri(b"2026-11-21T02:46:43.130828123+02:00 stdout P:x ")
    assert line is not None
    assert (line.at, line.stream, line.is_whole, line.text) == (AT, "stdout", False, "")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"E1121 00:46:43.130828 211 utils.go:271] no frame",
        b"yesterday stderr F text",
        b"2026-11-21T00:46:43 stderr F without a zone",
        TIME + b" stdin F text",
        TIME + b" stderr X text",
        TIME + b" stderr",
        b'{"log":"of Docker\\n","stream":"stderr","time":"2026-11-21T00:46:43Z"}',
    ],
)
def test_line_with_another_form_is_not_a_cri_line(raw: bytes) -> None:
    assert parse_cri(raw) is None


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda raw: TIME + b" stderr F " + raw))
def test_any_bytes_are_parsed_or_skipped_without_an_error(raw: bytes) -> None:
    parse_cri(raw)
    parse_journal(raw)
    parse_syslog(raw)
    list(messages(join_cri(raw.split(b"\n"))))


def framed(pieces: list[str], stream: str = "stderr") -> list[bytes]:
    """Return a long line in parts, as the container runtime writes it."""
    tags = ["P"] * (len(pieces) - 1) + ["F"]
    return [
        b"%s %s %s %s" % (TIME, stream.encode(), tag.encode(), piece.encode())
        for piece, tag in zip(pieces, tags, strict=True)
    ]


PIECES = st.lists(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), min_size=1
)


@given(PIECES, PIECES)
def test_parts_of_a_line_are_joined_per_stream(one: list[str], other: list[str]) -> None:
    written = framed(one), framed(other, "stdout")
    shorter = min(len(one), len(other))
    mixed = [raw for pair in zip(*written, strict=False) for raw in pair]
    mixed += [raw for lines in written for raw in lines[shorter:]]
    found = {line.writer: line.text for line in join_cri(mixed)}
    assert found == {"stderr": "".join(one), "stdout": "".join(other)}


def test_line_without_an_end_is_cut_and_not_lost() -> None:
    (line,) = join_cri([TIME + b" stderr P " + b"x" * 20000] * 50)
    assert line == Line("stderr", "x" * LONGEST, AT)


# klog ---------------------------------------------------------------------------------------------


def test_following_lines_without_a_head_belong_to_a_message() -> None:
    lines = [
        Line("stderr", f"{HEAD}unmap failed: (rbd: sysfs write failed", 1.0),
        Line("stdout", "not its own"),
        Line("stderr", "rbd: unmap failed: (16) Device or resource busy"),
        Line("stderr", ")"),
        Line("stderr", f"{HEAD.replace('E', 'I', 1)}next", 2.0),
    ]
    first, second = messages(lines)
    assert first.text == (
        "unmap failed: (rbd: sysfs write failed rbd: unmap failed: (16) Device or resource busy )"
    )
    assert (first.severity, first.at, first.stamp) == ("E", 1.0, "1121 00:46:43.130828")
    assert (second.severity, second.text) == ("I", "next")


def test_line_without_a_head_and_a_message_is_dropped() -> None:
    assert list(messages([Line("stderr", "the end of a line that was cut off")])) == []


@pytest.mark.parametrize(
    "line",
    [
        Line("", "much later", 3.5),
        Line("", "2026-11-21T00:46:43.130+0000 7f4e -1 librados: of another image", 2.0),
    ],
)
def test_later_or_foreign_line_is_not_part_of_a_message(line: Line) -> None:
    (message,) = messages([Line("", f"{HEAD}begun", 2.0), line])
    assert message.text == "begun"


def test_message_has_a_limited_length() -> None:
    lines = [Line("", f"{HEAD}begun")] + [Line("", "y" * 9000)] * 100
    (message,) = messages(lines)
    assert len(message.text) == LONGEST
    (message,) = messages([lines[0], *[Line("", "y")] * 100])
    assert message.text == "begun y y y y y y y y"


# Syslog and the journal ---------------------------------------------------------------------------


def test_journal_line_has_its_time_in_seconds() -> None:
    line = parse_journal(b"1795222003.145704 n1 kubelet[3486]: E1121 00:46:43.145704 failed")
    assert line == Line("kubelet[3486]", "E1121 00:46:43.145704 failed", 1795222003.145704)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (
            b"Nov 21 00:46:43 n1 kubelet[3486]: E1121 failed",
            Line("kubelet[3486]", "E1121 failed", None, "Nov 21 00:46:43"),
        ),
        (
            b"Nov  1 00:46:43 n1 microk8s.daemon-kubelite[9]: failed",
            Line("microk8s.daemon-kubelite[9]", "failed", None, "Nov  1 00:46:43"),
        ),
        (
            b"2026-11-21T01:46:43.130828+01:00 n1 kubelet[3486]: failed",
            Line("kubelet[3486]", "failed", AT, ""),
        ),
    ],
)
def test_syslog_line_has_either_of_two_time_formats(raw: bytes, line: Line) -> None:
    assert parse_syslog(raw) == line


@pytest.mark.parametrize(
    "raw",
    [
        b"-- No entries --",
        b"Nov 21 00:46:43 n1 kernel: [1.0] no process",
        b"2026-11-21Tx n1 a[1]: b",
    ],
)
def test_other_line_is_neither_journal_nor_syslog(raw: bytes) -> None:
    assert parse_journal(raw) is None
    assert parse_syslog(raw) is None


# The kernel ---------------------------------------------------------------------------------------


def test_kernel_record_has_a_level_and_the_time_since_boot() -> None:
    line = parse_kmsg("4,1201,690172578,-;rbd: rbd1: encountered watch error: -107")
    assert line == (4, 690.172578, "rbd: rbd1: encountered watch error: -107")
    assert parse_dmesg("<4>[  690.172578] rbd: rbd1: encountered watch error: -107") == line
    assert parse_dmesg("<4>[  690.172578][  T123] rbd: rbd1: encountered watch error: -107") == line


def test_record_of_a_program_in_kmsg_is_not_a_kernel_record() -> None:
    assert parse_kmsg("12,5,7220000,-;rbd: rbd0: made up") is None
    assert parse_dmesg("<12>[    7.220000] rbd: rbd0: made up") is None


@pytest.mark.parametrize("line", ["", " SUBSYSTEM=block", "4,1,2", "<4>no time", "rbd: rbd0: x"])
def test_line_with_another_form_is_not_a_kernel_record(line: str) -> None:
    assert parse_kmsg(line) is None
    assert parse_dmesg(line) is None


# Times without year and zone ----------------------------------------------------------------------

MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(  # noqa: DTZ001 - naive
    lambda moment: moment.replace(tzinfo=UTC, microsecond=0)
)
OFFSETS = st.integers(-48, 56).map(lambda quarters: timedelta(minutes=15 * quarters))


@given(
    written=MOMENTS,
    offset=OFFSETS,
    late=st.integers(0, 60).map(lambda seconds: timedelta(seconds=seconds)),
    older=st.integers(0, 3600).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_year_and_zone_are_derived_from_the_time_of_the_file(
    written: datetime, offset: timedelta, late: timedelta, older: timedelta
) -> None:
    """Assert the time for any zone of the writer, also at the turn of the year."""
    last = written - late
    for form in ("%m%d %H:%M:%S.000000", "%b %d %H:%M:%S"):
        zone = zone_of((last + offset).strftime(form), written.timestamp())
        assert zone is not None
        moment = last - older
        assert zone.epoch((moment + offset).strftime(form)) == moment.timestamp()


@pytest.mark.parametrize("stamp", ["1121 00:53:43.130828", "", "soon", "0230 00:00:00.000000"])
def test_zone_is_unknown_if_the_file_time_does_not_fit(stamp: str) -> None:
    assert zone_of(stamp, AT) is None


@pytest.mark.parametrize("written_at", [-1.0, 0.0, 1e300, float("inf"), float("nan")])
def test_zone_is_unknown_without_a_valid_file_time(written_at: float) -> None:
    assert zone_of("1121 00:46:43.130828", written_at) is None


# Display ------------------------------------------------------------------------------------------


@given(st.text())
def test_printable_text_has_no_invisible_characters(text: str) -> None:
    """Assert no character that moves a cursor, reverses text, or has no width."""
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


def test_visible_characters_are_kept() -> None:
    hidden = "rbd:\u202e unmap\x1b[2J \x00 failed:\r\n\t(16)\u200b äß\ufeff"
    assert printable(hidden) == "rbd: unmap [2J failed: (16) äß"


@given(st.text(max_size=1000))
def test_shortened_text_keeps_both_ends(text: str) -> None:
    shown = shortened(text)
    assert len(shown) == min(len(text), 300)
    assert text.startswith(shown[:100])
    assert text.endswith(shown[103:])
