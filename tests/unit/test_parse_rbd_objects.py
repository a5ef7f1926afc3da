"""Values in the objects of librbd, and the names of images."""

from __future__ import annotations

import struct

import pytest

from rbdagent.model.inventory import TrashSource
from rbdagent.parse.csi_image_name import (
    has_name_of_ceph_csi,
    is_of_snapshot,
    is_temporary,
    journal_uuid,
    uuids_in,
)
from rbdagent.parse.rbd_objects import name_in_directory, time_of
from rbdagent.parse.trash import trash_entry

UUID = "a5aedea1-28da-40b4-92b8-33fd7de38647"
ENTRY = struct.pack("<BBIBI", 2, 1, 0, 0, 1) + b"x" + struct.pack("<IIII", 1, 0, 2, 0)


def test_the_name_in_a_directory_follows_its_length() -> None:
    assert name_in_directory(b"\x02\0\0\0ab") == "ab"
    assert name_in_directory(b"\x02\0\0\0a\xff") == r"a\xff"


@pytest.mark.parametrize("value", [b"", b"\x02\0\0", b"\x02\0\0\0a"])
def test_a_malformed_entry_of_a_directory_has_no_name(value: bytes) -> None:
    assert name_in_directory(value) is None


def test_a_time_is_in_utc() -> None:
    assert time_of(struct.pack("<II", 1767225600, 5)) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("value", [b"", b"\0" * 7, b"\0" * 8])
def test_an_unset_time_is_none(value: bytes) -> None:
    assert time_of(value) is None


def test_an_entry_of_the_trash_has_its_times() -> None:
    entry = trash_entry(ENTRY)
    assert entry is not None
    assert (entry.name, entry.source, entry.since, entry.until) == (
        "x",
        TrashSource.USER,
        "1970-01-01T00:00:01Z",
        "1970-01-01T00:00:02Z",
    )


def test_an_entry_of_a_later_ceph_has_no_known_source() -> None:
    entry = trash_entry(struct.pack("<BBIBI", 2, 1, 0, 99, 0))
    assert entry is not None
    assert entry.source is None


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        (f"csi-vol-{UUID}", UUID),
        (f"csi-vol-{UUID}-temp", UUID),
        (f"team-{UUID}", UUID),
        (f"csi-vol-{UUID}-old", None),
        ("vm-disk-1", None),
        (f"csi-vol-{UUID}0", None),
    ],
)
def test_the_journal_has_an_image_by_the_uuid_at_its_end(name: str, uuid: str | None) -> None:
    assert journal_uuid(name) == uuid


def test_the_uuids_of_a_handle_are_in_order() -> None:
    fsid = "7d112cea-dc64-4604-876a-0d7dcec17d1a"
    assert uuids_in(f"0001-0024-{fsid}-0000000000000001-{UUID}") == (fsid, UUID)


def test_only_the_default_names_are_known() -> None:
    assert has_name_of_ceph_csi(f"csi-snap-{UUID}")
    assert not has_name_of_ceph_csi(f"team-{UUID}")
    assert is_of_snapshot(f"csi-snap-{UUID}")
    assert is_temporary(f"team-{UUID}-temp")
    assert not is_temporary("notes-temp")
