"""State files on the node: written completely or not at all, and no loss without a message."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from rbdagent.errors import RbdagentError
from rbdagent.model import Convergence, NotObserved, UnmapOutcome, UnmapRecord, observed_of
from rbdagent.unmap.state_store import StateDir, unmaps_of
from tests.support.unmap_plans import INCARNATION, history, identity, moment

if TYPE_CHECKING:
    from pathlib import Path

FILE, ACTS = "history.json", "acts.json"


def act(ago_s: float, **changes: object) -> UnmapRecord:
    given: dict[str, object] = {
        "boot_id": "b001",
        "begun": moment(ago_s),
        "by": "agent",
        "identity": identity(),
        "persistent_volume": "pvc-1",
        "why": "Orphaned for 11m0s",
    }
    return UnmapRecord(**(given | changes))  # type: ignore[arg-type]


def test_saved_history_is_loaded(tmp_path: Path) -> None:
    memory = history(of=identity(), needed_ago=5.0)
    state = StateDir(tmp_path / "state")
    state.save_history(memory)
    assert state.history() == (memory, "")
    assert INCARNATION in (state.path / FILE).read_text()
    assert (state.path / FILE).stat().st_mode & 0o777 == 0o600


def test_missing_file_is_an_empty_state_without_a_message(tmp_path: Path) -> None:
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
    "[" * 100_000,
    '{"apiVersion": ' + "9" * 5000 + "}",
    '{"apiVersion": "\\ud800"}',
)


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_history_is_renamed_with_a_message(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    memory, problem = StateDir(tmp_path).history()
    assert memory is None
    assert "renamed to" in problem
    assert not (tmp_path / FILE).exists()
    assert (tmp_path / f"{FILE}.unreadable").read_text() == text


def test_history_that_is_not_utf8_is_renamed(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xff\xfe")
    assert "renamed to" in StateDir(tmp_path).history()[1]


@pytest.mark.parametrize("raw", [*(text.encode() for text in MALFORMED), b"\xff\xfe"])
def test_malformed_record_of_acts_is_not_observed_and_is_kept(tmp_path: Path, raw: bytes) -> None:
    """Assert no rename: after a rename, the next cycle would count no unmap in this hour."""
    record = tmp_path / ACTS
    record.write_bytes(raw)
    state = StateDir(tmp_path)
    for found in (state.acts(), state.acts(), state.ended()):
        assert isinstance(found, NotObserved)
        assert found.reason.startswith(f"{record}: ")
        assert f"mv {record}" in found.hint
    with pytest.raises(RbdagentError, match=ACTS):
        state.save_act(act(30))
    assert record.read_bytes() == raw


@pytest.mark.parametrize("kind", [PermissionError, IsADirectoryError, NotADirectoryError])
def test_record_of_acts_without_permission_is_not_observed(
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


def test_state_path_that_is_not_a_directory_is_not_observed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(StateDir(tmp_path / "file").acts(), NotObserved)


KEPT = "a-secret-key"
QUOTED = {
    "no JSON": f'{{"acts": [] {KEPT}',
    "another version": f'{{"apiVersion": "{KEPT}", "kind": "Acts"}}',
    "another kind": f'{{"apiVersion": "rbdagent.dev/v1alpha1", "kind": "{KEPT}"}}',
    "an unknown field": f'{{"apiVersion": "rbdagent.dev/v1alpha1", "kind": "Acts", "{KEPT}": 1}}',
    "a field of another type": (
        f'{{"apiVersion": "rbdagent.dev/v1alpha1", "kind": "Acts", "acts": "{KEPT}"}}'
    ),
}


@pytest.mark.parametrize("text", QUOTED.values(), ids=QUOTED.keys())
def test_error_about_a_record_does_not_quote_it(tmp_path: Path, text: str) -> None:
    """Assert no quote: output and RBDNodes have the reason, and users with `view` read RBDNodes."""
    (tmp_path / ACTS).write_text(text)
    (tmp_path / FILE).write_text(text.replace('"Acts"', '"History"'))
    found = StateDir(tmp_path).acts()
    assert isinstance(found, NotObserved)
    assert KEPT not in found.reason + found.hint
    assert KEPT not in StateDir(tmp_path).history()[1]


def test_error_about_a_record_names_the_field_and_the_file(tmp_path: Path) -> None:
    """Assert the agent's state: `rbdagent snapshot` does not write this file."""
    (tmp_path / ACTS).write_text(QUOTED["a field of another type"])
    found = StateDir(tmp_path).acts()
    assert isinstance(found, NotObserved)
    assert "the field Acts.acts of the agent's state: expected a list" in found.reason
    assert "snapshot" not in found.reason + found.hint


def test_unmaps_of_a_boot_are_not_observed_without_the_record() -> None:
    unread = NotObserved(reason="permission denied")
    assert unmaps_of(unread, history()).unmaps == unread


def test_failed_write_keeps_the_previous_file(
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
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_end_of_an_act_replaces_its_start(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.save_act(act(60))
    state.save_act(act(30))
    ended = act(60, outcome=UnmapOutcome.UNMAPPED, convergence=Convergence.PENDING)
    for update in (ended, replace(ended, convergence=Convergence.CLEARED)):
        state.save_act(update)
    assert state.acts() == (replace(ended, convergence=Convergence.CLEARED), act(30))


def test_acts_of_this_boot_that_were_not_refused_are_unmaps() -> None:
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


def test_all_acts_of_the_last_hour_are_kept(tmp_path: Path) -> None:
    """Assert that their number does not matter: the unmap limit counts them."""
    state = StateDir(tmp_path)
    for number in range(60):
        state.save_act(act(100 - number))
    assert len(observed_of(state.acts())) == 60


def test_refusals_do_not_displace_an_act_of_the_last_hour(tmp_path: Path) -> None:
    """Assert that the act is kept: the unmap limit counts the acts of the last hour."""
    state = StateDir(tmp_path)
    state.save_act(act(1000, outcome=UnmapOutcome.UNMAPPED))
    for number in range(60):
        state.save_act(act(100 - number, outcome=UnmapOutcome.REFUSED))
    acts = observed_of(state.acts())
    assert acts[0].outcome is UnmapOutcome.UNMAPPED
    assert (len(acts), acts[-1].begun) == (21, moment(41))


def test_acts_that_are_no_longer_kept_are_counted(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.ended() == {}
    for number in range(60):
        state.save_act(act(500 - number, outcome=UnmapOutcome.UNMAPPED))
        state.save_act(act(300 - number, outcome=UnmapOutcome.REFUSED))
    state.save_act(act(1))
    assert state.ended() == {"unmapped": 60, "refused": 60}


def test_lock_of_an_image_or_of_the_agent_is_exclusive(tmp_path: Path) -> None:
    state, other = StateDir(tmp_path), StateDir(tmp_path)
    with (
        state.only_one_on("x"),
        other.only_one_on("y"),
        pytest.raises(RbdagentError, match="operates on x"),
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


def test_image_lock_leaves_no_file(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for image in ("x", "y"):
        with state.only_one_on(image):
            assert [path.name for path in tmp_path.iterdir()] == [f"image-{image}.lock"]
    assert not list(tmp_path.iterdir())


def test_image_lock_is_exclusive_while_its_file_is_recreated(tmp_path: Path) -> None:
    inside, most, done = [0], [0], [0]

    def work() -> None:
        state = StateDir(tmp_path)
        for _ in range(300):
            with contextlib.suppress(RbdagentError), state.only_one_on("x"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                # Let other threads run.
                os.sched_yield()
                inside[0] -= 1
                done[0] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most[0], done[0] > 0) == (1, True)


def test_acts_that_another_process_wrote_are_loaded(tmp_path: Path) -> None:
    state, other = StateDir(tmp_path), StateDir(tmp_path)
    state.save_act(act(60))
    assert state.acts() == (act(60),)
    other.save_act(act(30))
    assert state.acts() == (act(60), act(30))
    (tmp_path / ACTS).unlink()
    assert state.acts() == ()
