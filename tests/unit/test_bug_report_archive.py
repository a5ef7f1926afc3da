"""The archive of a bug report: its order, its MANIFEST, and its limits."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Final

from rbdagent.model import NotObserved
from rbdagent.report import bug_report
from rbdagent.report.bug_report import DIRECTORY, MANIFEST, Bundle, Part, bundle

if TYPE_CHECKING:
    import pytest

PARTS: Final = (
    Part(name="b.txt", what="The second letter.", content=b"b\n"),
    Part(name="a.json", what="The first letter.", content=b"{}\n", note="Only one of two."),
    Part(name="c.json", what="A list.", content=NotObserved(reason="forbidden")),
    Part(name="d.txt", what="A log.", content=NotObserved(reason="no\x1b[31m log")),
)


def made(parts: tuple[Part, ...] = PARTS) -> Bundle:
    return bundle(parts, version="1.2.3", at="2026-11-21T03:00:00Z", node="worker-1")


def files(archive: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {
            member.name.removeprefix(f"{DIRECTORY}/"): _text(tar, member)
            for member in tar.getmembers()
        }


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = tar.extractfile(member)
    assert file is not None
    return file.read().decode()


def test_manifest_comes_first_and_the_files_follow_in_their_order() -> None:
    assert [*files(made().archive)] == [MANIFEST, "b.txt", "a.json", "c.json", "d.txt"]


def test_same_parts_give_the_same_bytes() -> None:
    assert made().archive == made().archive


def test_no_time_and_no_user_of_this_machine_is_in_it() -> None:
    with tarfile.open(fileobj=io.BytesIO(made().archive)) as tar:
        assert {(one.mtime, one.uid, one.gid, one.uname, one.gname, one.mode) for one in tar} == {
            (0, 0, 0, "", "", 0o600)
        }


def test_failing_source_is_stated_in_its_file_in_the_manifest_and_in_the_result() -> None:
    found = files(made().archive)
    assert json.loads(found["c.json"]) == {"notObserved": "forbidden"}
    assert found["d.txt"].startswith("not observed: no")
    assert "  Not observed: forbidden\n" in found[MANIFEST]
    assert [name for name, _ in made().missing] == ["c.json", "d.txt"]


def test_reason_has_no_control_character() -> None:
    assert "\x1b" not in "".join(files(made().archive).values())


def test_manifest_describes_every_file() -> None:
    text = files(made().archive)[MANIFEST]
    for part in PARTS:
        assert f"\n\n{part.name} (" in text
        assert f"\n  {part.what}\n" in text
    assert "\n  Only one of two.\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_file_that_is_too_large_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_report, "MOST_OF_PART", 2)
    found = made()
    assert files(found.archive)["b.txt"] == "b\n"
    assert [name for name, _ in found.missing] == ["a.json", "c.json", "d.txt"]


def test_all_files_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_report, "MOST", 2)
    assert [name for name, _ in made().missing] == ["a.json", "c.json", "d.txt"]
