"""What is kept on the node: whole or not at all, and nothing is lost silently."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from rbdagent.errors import RbdagentError
from rbdagent.model import Act, Followed, NotObserved, UnmapOutcome, observed_of
from rbdagent.state import StateDir, unmaps_of
from tests.unit.plans import INCARNATION, history, identity, moment

if TYPE_CHECKING:
    from pathlib import Path

FILE, ACTS = "history.json", "acts.json"


def act(ago_s: float, **changes: object) -> Act:
    given: dict[str, object] = {
        "boot_id": "b001",
        "begun": moment(ago_s),
        "by": "agent",
        "identity": identity(),
        "persistent_volume": "pvc-1",
        "why": "Orphaned for 11m0s",
    }
    return Act(**(given | changes))  # type: ignore[arg-type]


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    memory = history(of=identity(), needed_ago=5.0)
    state = StateDir(tmp_path / "state")
    state.save_history(memory)
    assert state.history() == (memory, "")
    assert INCARNATION in (state.path / FILE).read_text()
    assert (state.path / FILE).stat().st_mode & 0o777 == 0o600


def test_without_a_file_nothing_is_remembered_and_nothing_is_told(tmp_path: Path) -> None:
    assert StateDir(tmp_path / "none").history() == (None, "")
    assert StateDir(tmp_path / "none").acts() == ()
    assert StateDir(tmp_path / "none").ended() == {}


MALFORMED = (
    "",
    "{",
    "[]",
    '{"apiVersion": "rbdagent.dev/v9", "kind": "History"}',
    '{"apiVersion": "rbdagent.dev/v1alpha1", "kind": "History", "bootID": 4}',
    "\0" * 4096,
)


@pytest.mark.parametrize("text", MALFORMED)
def test_an_unreadable_file_is_set_aside_and_said_so(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    memory, told = StateDir(tmp_path).history()
    assert memory is None
    assert "set aside" in told
    assert not (tmp_path / FILE).exists()
    assert (tmp_path / f"{FILE}.unreadable").read_text() == text


def test_a_file_of_bytes_that_are_no_text_is_set_aside_too(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xff\xfe")
    assert "set aside" in StateDir(tmp_path).history()[1]


@pytest.mark.parametrize("raw", [*(each.encode() for each in MALFORMED), b"\xff\xfe"])
def test_a_record_of_acts_that_cannot_be_read_is_not_observed_and_stays(
    tmp_path: Path, raw: bytes
) -> None:
    """Set aside it would read as no unmap in this hour at the next look."""
    record = tmp_path / ACTS
    record.write_bytes(raw)
    state = StateDir(tmp_path)
    for found in (state.acts(), state.acts(), state.ended()):
        assert isinstance(found, NotObserved)
        assert found.reason.startswith(f"{record}: ")
        assert f"mv {record}" in found.cure
    with pytest.raises(RbdagentError, match=ACTS):
        state.save_act(act(30))
    assert record.read_bytes() == raw


@pytest.mark.parametrize("kind", [PermissionError, IsADirectoryError, NotADirectoryError])
def test_a_record_of_acts_that_may_not_be_read_is_not_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[OSError]
) -> None:
    def refuse(path: Path, **_: object) -> os.stat_result:
        raise kind(1, "refused", str(path))

    state = StateDir(tmp_path)
    state.save_act(act(30))
    monkeypatch.setattr(os, "stat", refuse)
    found = state.acts()
    assert isinstance(found, NotObserved)
    assert found.reason == f"{tmp_path / ACTS}: refused"


def test_a_state_directory_that_is_none_is_not_observed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(StateDir(tmp_path / "file").acts(), NotObserved)


def test_without_the_record_the_unmaps_of_a_boot_are_not_observed() -> None:
    unread = NotObserved(reason="permission denied")
    assert unmaps_of(unread, history()).unmaps == unread


def test_a_write_that_fails_leaves_what_stood_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(tmp_path)
    state.save_history(history())

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        state.save_history(replace(history(), boot_id="other"))
    assert state.history() == (history(), "")
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_the_end_of_an_act_takes_the_place_of_its_beginning(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.save_act(act(60))
    state.save_act(act(30))
    ended = act(60, outcome=UnmapOutcome.UNMAPPED, followed=Followed.PENDING)
    for each in (ended, replace(ended, followed=Followed.CLEARED)):
        state.save_act(each)
    assert state.acts() == (replace(ended, followed=Followed.CLEARED), act(30))


def test_the_acts_of_this_boot_count_as_unmaps_but_for_those_that_were_refused() -> None:
    acts = (
        act(90, boot_id="another"),
        act(60, outcome=UnmapOutcome.REFUSED),
        act(30),
        act(20, outcome=UnmapOutcome.FAILED),
    )
    assert unmaps_of(acts, history()).unmaps == (moment(30), moment(20))


def test_only_the_latest_acts_are_kept(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for number in range(60):
        state.save_act(act(100 * (100 - number)))
    acts = observed_of(state.acts())
    assert (len(acts), acts[-1].begun) == (50, moment(4100))


def test_every_act_of_the_last_hour_is_kept(tmp_path: Path) -> None:
    """However many they are: the limit counts them."""
    state = StateDir(tmp_path)
    for number in range(60):
        state.save_act(act(100 - number))
    assert len(observed_of(state.acts())) == 60


def test_no_act_is_forgotten_for_refusals_however_many_they_are(tmp_path: Path) -> None:
    """The acts of the last hour are what the limit counts."""
    state = StateDir(tmp_path)
    state.save_act(act(1000, outcome=UnmapOutcome.UNMAPPED))
    for number in range(60):
        state.save_act(act(100 - number, outcome=UnmapOutcome.REFUSED))
    acts = observed_of(state.acts())
    assert acts[0].outcome is UnmapOutcome.UNMAPPED
    assert (len(acts), acts[-1].begun) == (21, moment(41))


def test_what_is_kept_no_longer_is_still_counted(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.ended() == {}
    for number in range(60):
        state.save_act(act(500 - number, outcome=UnmapOutcome.UNMAPPED))
        state.save_act(act(300 - number, outcome=UnmapOutcome.REFUSED))
    state.save_act(act(1))
    assert state.ended() == {"unmapped": 60, "refused": 60}


def test_two_at_once_are_kept_apart_by_image_and_by_agent(tmp_path: Path) -> None:
    state, other = StateDir(tmp_path), StateDir(tmp_path)
    with (
        state.only_one_on("x"),
        other.only_one_on("y"),
        pytest.raises(RbdagentError, match="at work on x"),
        other.only_one_on("x"),
    ):
        pass
    with (
        other.only_one_on("x"),
        state.only_agent(),
        pytest.raises(RbdagentError, match="another agent"),
        other.only_agent(),
    ):
        pass


def test_an_image_leaves_no_file_behind(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for image in ("x", "y"):
        with state.only_one_on(image):
            assert [each.name for each in tmp_path.iterdir()] == [f"image-{image}.lock"]
    assert not list(tmp_path.iterdir())


def test_one_is_at_work_on_an_image_however_often_the_file_comes_and_goes(tmp_path: Path) -> None:
    inside, most, done = [0], [0], [0]

    def work() -> None:
        state = StateDir(tmp_path)
        for _ in range(300):
            with contextlib.suppress(RbdagentError), state.only_one_on("x"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                # Lets the others run.
                os.sched_yield()
                inside[0] -= 1
                done[0] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (most[0], done[0] > 0) == (1, True)


def test_acts_that_another_process_has_written_are_seen(tmp_path: Path) -> None:
    state, other = StateDir(tmp_path), StateDir(tmp_path)
    state.save_act(act(60))
    assert state.acts() == (act(60),)
    other.save_act(act(30))
    assert state.acts() == (act(60), act(30))
    (tmp_path / ACTS).unlink()
    assert state.acts() == ()
