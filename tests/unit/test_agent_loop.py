"""The agent loop: when it observes, what it saves and unmaps, and that no failure ends it."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from rbdagent.agent import loop
from rbdagent.errors import NotFoundError, RbdagentError
from rbdagent.model import (
    BootTime,
    CephView,
    Convergence,
    NotObserved,
    Snapshot,
    SourceState,
    Target,
    UnmapOutcome,
    UnmapPlan,
    UnmapRecord,
    UnmapResult,
    observed_of,
)
from rbdagent.unmap.executor import Attempt
from rbdagent.unmap.state_store import StateDir
from tests.support.agent_loop import IN_USE, ORPHAN, PINNED, Stage, rounds
from tests.support.ceph_worker import FakeCephWorker
from tests.support.snapshots import (
    FAILED,
    JUST_NOW,
    NO_IO,
    NOW,
    PV,
    SPEC,
    attachment,
    cluster,
    image_view,
    in_flight,
    pod,
    remote_watcher,
    waiting_pod,
)
from tests.support.unmap_plans import GRACE_S, history, identity, moment, seen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.config import Settings


UNFINISHED = UnmapRecord(
    boot_id="b001",
    begun=moment(30),
    by="agent",
    identity=identity(),
    persistent_volume=None,
    why="",
)
"""An unmap that began, without an outcome: the agent was killed."""


def denied(path: object) -> list[str]:
    """Replace os.listdir to refuse the listing of a directory: root may list every directory."""
    raise PermissionError(13, "Permission denied", str(path))


def test_healthy_agent_does_not_query_the_api_at_every_resync(stage: Stage) -> None:
    stage.snapshots = [IN_USE]
    rounds(stage.agent(), "start", "time", "time", "change")
    assert stage.asked_api == [True, False, False, True]


def test_orphan_makes_every_resync_query_the_api(stage: Stage) -> None:
    """Assert the queries in mode observe, too: `rbdagent unmap` relies on the agent's history."""
    stage.snapshots = [ORPHAN]
    rounds(stage.agent(), "start", "time", "time")
    assert stage.asked_api == [True, True, True]


def test_pending_detach_makes_every_resync_query_the_api(stage: Stage) -> None:
    """Assert the queries: the controller detaches the volume, and nothing changes on the node."""
    stage.snapshots = [seen(in_kube={"attachments": (attachment(created_at=JUST_NOW),)})]
    agent = stage.agent()
    rounds(agent, "start", "time", "time")
    assert agent.seen is not None
    assert agent.seen.verdicts == {"Staged": 1}
    assert stage.asked_api == [True, True, True]


@pytest.mark.parametrize(("may_unmap", "longest_s"), [(True, 10.0), (False, 60.0)])
def test_pinned_mapping_is_observed_sooner_if_unmap_is_allowed(
    stage: Stage,
    may_unmap: bool,  # noqa: FBT001 - a table
    longest_s: float,
) -> None:
    """Assert a short pause: the end of a process does not wake the agent."""
    stage.policy = replace(stage.policy, may_unmap=may_unmap)
    stage.snapshots = [PINNED]
    agent = stage.agent()
    rounds(agent, "start")
    assert longest_s * 0.9 <= agent._pause() <= longest_s


def test_failed_api_is_queried_again_at_the_next_resync(stage: Stage) -> None:
    stage.snapshots = [replace(IN_USE, sources=replace(IN_USE.sources, kubernetes=FAILED)), IN_USE]
    rounds(stage.agent(), "start", "time", "time")
    assert stage.asked_api == [True, True, False]


def test_earlier_api_view_is_not_a_consistent_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.snapshots = [IN_USE]
    given: list[Any] = []
    taken = stage._snapshot

    def look(asked: Target, settings: Settings, **flags: Any) -> Snapshot:
        given.append(flags.get("kube"))
        return taken(asked, settings, **flags)

    monkeypatch.setattr(loop, "collect_snapshot", look)
    rounds(stage.agent(), "start", "time")
    view, source = given[1]
    assert view.consistent is False
    assert source.state is SourceState.OBSERVED


def test_every_cycle_is_saved_to_disk_and_reported(stage: Stage) -> None:
    stage.snapshots = [ORPHAN]
    agent = stage.agent()
    rounds(agent, "start")
    stage.times.uptime_s += 60
    rounds(agent, "time")
    history, problem = stage.state.history()
    assert problem == ""
    assert history is not None
    (remembered,) = history.mappings
    assert remembered.orphaned_since is not None
    assert (remembered.orphaned_since.uptime_s, history.last_observed.uptime_s) == (5000.0, 5060.0)
    assert len(stage.reported) == 2
    assert stage.log.of("cycle")[0]["Orphaned"] == 1


def test_complete_at_is_kept_while_a_source_fails(stage: Stage) -> None:
    broken = replace(IN_USE, sources=replace(IN_USE.sources, ceph=FAILED))
    later = replace(IN_USE, observed_at="2026-11-21T03:02:00Z")
    stage.snapshots = [broken, IN_USE, replace(broken, observed_at=later.observed_at), later]
    rounds(stage.agent(), "start", "time", "time", "time")
    assert [cycle.complete_at for cycle in stage.reported] == [None, NOW, NOW, later.observed_at]


def test_new_agent_continues_the_saved_history(stage: Stage) -> None:
    stage.snapshots = [ORPHAN]
    rounds(stage.agent(), "start")
    stage.times.uptime_s += 60
    rounds(stage.agent(), "start")
    history, _ = stage.state.history()
    assert history is not None
    since = history.mappings[0].orphaned_since
    assert since is not None
    assert since.uptime_s == moment(0).uptime_s


def test_agent_that_was_down_for_long_restarts_the_orphan_time(stage: Stage) -> None:
    """Assert a restart: unobserved time never counts as time without a break."""
    stage.snapshots = [ORPHAN]
    rounds(stage.agent(), "start")
    stage.times.uptime_s += 3600
    rounds(stage.agent(), "start")
    history, _ = stage.state.history()
    assert history is not None
    assert history.mappings[0].orphaned_since is not None
    assert history.mappings[0].orphaned_since.uptime_s == stage.times.uptime_s


def test_failed_cycle_does_not_end_the_agent(stage: Stage) -> None:
    stage.snapshots = [RbdagentError("the node is on fire"), IN_USE]
    agent = stage.agent()
    assert not agent.run(once=True)
    assert stage.log.of("cycle failed")[0]["error"] == "the node is on fire"
    assert agent.run(once=True)
    assert len(stage.reported) == 1


def test_defect_is_logged_and_does_not_end_the_agent(stage: Stage) -> None:
    stage.snapshots = [KeyError("pool"), IN_USE]
    agent = stage.agent()
    agent.run(once=True)
    (line,) = stage.log.of("this is a defect of rbdagent")
    assert repr(line["exc_info"]) == "KeyError('pool')"
    agent.run(once=True)
    assert len(stage.reported) == 1


def test_defect_in_an_unmap_attempt_does_not_prevent_the_cycle(
    acting: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert a snapshot in every cycle: a due unmap runs before it, and may raise an error."""

    def decide(_: Attempt) -> None:
        raise TypeError("expected int, got float")

    monkeypatch.setattr(Attempt, "decide", decide)
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=12)
    assert len(acting.reported) == 12
    assert "TypeError: expected int, got float" in acting.log.of("unmap failed")[0]["error"]


def test_interrupted_unmap_is_reported_and_closed_at_next_start(
    stage: Stage,
) -> None:
    stage.state.save_act(UNFINISHED)
    stage.agent()
    (act,) = observed_of(stage.state.acts())
    assert act.outcome is UnmapOutcome.FAILED
    assert "ended before this unmap did" in act.message
    assert len(stage.log.of("unmap interrupted")) == 1


WAITS = seen(
    on_node={"mappings": ()},
    in_ceph={"images": ()},
    in_kube={"pods": (waiting_pod(node="worker-1"),)},
)
STARTED = seen(on_node={"mappings": ()}, in_ceph={"images": ()}, in_kube={"pods": (pod(),)})


def test_blocked_volume_is_queried_only_while_its_pod_waits(
    stage: Stage,
) -> None:
    watched = image_view(watchers=(remote_watcher(),))
    stage.ceph = FakeCephWorker(CephView(clusters=(cluster(images=(watched,)),)))
    stage.snapshots = [WAITS, STARTED]
    rounds(stage.agent(), "start", "change")
    waits, started = stage.reported
    assert [(volume.pod, volume.holder_node) for volume in waits.blocked] == [("web-1", "worker-2")]
    assert started.blocked == ()
    assert [[image.spec for image in images] for images in stage.ceph.asked] == [[SPEC]]
    # What is published, saved or unmapped does not contain it.
    assert waits.diagnoses == ()


# --------------------------------------------------------------------------------------------------
# Unmap
# --------------------------------------------------------------------------------------------------


def test_only_a_change_is_logged_above_debug(stage: Stage) -> None:
    """2,000 agents would write 2.9 million lines a day, if each cycle had one."""
    failed = replace(IN_USE, sources=replace(IN_USE.sources, kubernetes=FAILED))
    stage.snapshots = [IN_USE, IN_USE, failed, failed, ORPHAN, ORPHAN]
    rounds(stage.agent(), *["change"] * 6)
    above = [entry for entry in stage.log.entries if entry["log_level"] != "debug"]
    assert [entry["event"] for entry in above] == ["changed"] * 3
    assert [set(entry["failed"]) for entry in above] == [set(), {"kubernetes"}, set()]
    assert [entry.get("Orphaned") for entry in above] == [None, None, 1]
    assert len(stage.log.of("cycle")) == 6


def test_lines_of_a_cycle_have_its_id(stage: Stage) -> None:
    stage.snapshots = [RbdagentError("the node is on fire"), IN_USE, KeyError("pool")]
    agent = stage.agent()
    for _ in range(3):
        agent.run(once=True)
    ids = {entry["event"]: entry["cycle"] for entry in stage.log.entries}
    events = ["cycle failed", "cycle", "changed", "this is a defect of rbdagent"]
    assert list(ids) == events
    assert ids["cycle"] == ids["changed"]
    assert len(set(ids.values())) == 3


def test_lines_of_an_unmap_have_its_device_and_volume(acting: Stage, unmapped: list[str]) -> None:
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=11)
    assert unmapped == ["/dev/rbd0"]
    (line,) = acting.log.of("unmap")
    (act,) = observed_of(acting.state.acts())
    assert (line["device"], line["persistent_volume"]) == ("/dev/rbd0", act.persistent_volume)
    assert act.persistent_volume is not None
    assert all("device" not in entry for entry in acting.log.of("cycle"))


def test_orphan_is_unmapped_after_its_grace_period(acting: Stage, unmapped: list[str]) -> None:
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    for _ in range(10):
        rounds(agent, "time")
        assert unmapped == []
        acting.times.uptime_s += 60
    rounds(agent, "time")
    assert unmapped == ["/dev/rbd0"]
    (act,) = observed_of(acting.state.acts())
    assert (act.outcome, act.by) == (UnmapOutcome.UNMAPPED, "agent")
    assert acting.log.of("unmap")[0]["outcome"] == "unmapped"


def test_agent_in_mode_observe_unmaps_nothing(stage: Stage, unmapped: list[str]) -> None:
    stage.snapshots = [ORPHAN]
    agent = stage.agent()
    stage.watch(agent, minutes=20)
    assert unmapped == []


def test_volume_used_in_the_meantime_is_refused_with_a_reason(
    acting: Stage, unmapped: list[str]
) -> None:
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    # In use at the close observation.
    acting.snapshots = [IN_USE, ORPHAN]
    rounds(agent, "time")
    assert unmapped == []
    assert "RBD505" in acting.log.of("unmap refused")[0]
    (act,) = observed_of(acting.state.acts())
    assert (act.outcome, act.by) == (UnmapOutcome.REFUSED, "agent")
    assert act.message.startswith("RBD505: needed by default/web-0; ")
    assert acting.reported[-1].news == acting.reported[-1].acts == (act,)
    assert acting.reported[-1].ended == {"refused": 1}


READ = seen(mapped={"io_counters": replace(NO_IO, reads=NO_IO.reads + 1)})


def test_io_directly_before_the_step_is_refused(
    acting: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert a refusal: the observation before the write compares the counters, too."""
    done: list[str] = []
    monkeypatch.setattr("rbdagent.unmap.writer._do", lambda step, *_: done.append(step.subject))
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    acting.snapshots = [ORPHAN, READ]
    rounds(agent, "time")
    assert done == []
    (act,) = observed_of(acting.state.acts())
    assert act.outcome is UnmapOutcome.REFUSED
    assert act.message.startswith("refused before unmap: RBD510: reads went from 812 to 813")


def test_io_of_an_orphan_restarts_its_grace_period(acting: Stage, unmapped: list[str]) -> None:
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=9)
    acting.snapshots = [READ]
    acting.watch(agent, minutes=10)
    assert unmapped == []
    (act,) = observed_of(acting.state.acts())
    assert act.outcome is UnmapOutcome.REFUSED
    assert act.message.startswith("RBD510: reads went from 812 to 813")
    rounds(agent, "time")
    assert unmapped == ["/dev/rbd0"]


def test_orphan_is_refused_while_the_state_directory_cannot_be_written(
    acting: Stage, unmapped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert the reason in the refusal: an unmap is recorded before it begins."""
    full = "/state: No space left on device"
    monkeypatch.setattr(StateDir, "unwritable", lambda _: full)
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=12)
    assert unmapped == []
    (refusal,) = acting.reported[-1].refused
    assert refusal.reasons == {"RBD508": f"an unmap cannot be recorded: {full}"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RbdagentError("bad")])
def test_interrupted_unmap_that_cannot_be_closed_does_not_prevent_the_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    stage.state.save_act(UNFINISHED)

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(StateDir, "save_act", fail)
    stage.snapshots = [ORPHAN]
    rounds(stage.agent(), "start")
    assert str(error) in stage.log.of("state")[0]["message"]
    assert len(stage.reported) == 1
    assert [act.outcome for act in observed_of(stage.state.acts())] == [None]


def test_lock_that_cannot_be_made_fails_the_unmap(
    acting: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = StateDir._alone

    def alone(self: StateDir, name: str, **given: Any) -> Any:
        if name.startswith("image-"):
            raise OSError(30, "Read-only file system", name)
        return real(self, name, **given)

    monkeypatch.setattr(StateDir, "_alone", alone)
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=12)
    error = acting.log.of("unmap failed")[0]["error"]
    assert "Read-only file system: an unmap must be recorded before it begins" in error
    assert len(acting.reported) == 12


FROZEN = seen(in_kube={"frozen_namespaces": ("default",)})
AT_WORK = seen(
    in_kube={"frozen_namespaces": ("default",)},
    on_node={"in_flight": (in_flight("rbd", "rbd unmap /dev/rbd0"),)},
)


def test_refusal_is_reported_again_only_with_other_reasons(acting: Stage) -> None:
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    acting.asked_api.clear()
    for looks in ([FROZEN, ORPHAN], [FROZEN, ORPHAN], [AT_WORK, ORPHAN], [FROZEN, ORPHAN]):
        acting.snapshots = [*looks]
        rounds(agent, "time")
        acting.times.uptime_s += 10
    assert [len(cycle.news) for cycle in acting.reported[-4:]] == [1, 0, 1, 1]
    levels = [line["log_level"] for line in acting.log.of("unmap refused")]
    assert levels == ["info", "debug", "info", "info"]
    assert acting.reported[-1].ended == {"refused": 3}
    # Nothing was unmapped: one snapshot of the orphan and one of the node in each cycle.
    assert len(acting.asked_api) == 8


def test_at_the_hourly_limit_an_orphan_is_observed_closely_once(
    acting: Stage, unmapped: list[str]
) -> None:
    """Assert one: a close observation reads all data of an orphan, in vain at the limit."""
    acting.policy = replace(acting.policy, most_unmaps_an_hour=1)
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    acting.state.save_act(
        UnmapRecord(
            boot_id="b001",
            begun=acting.times(),
            by="agent",
            identity=identity(device="/dev/rbd5"),
            persistent_volume=None,
            why="",
            outcome=UnmapOutcome.UNMAPPED,
        )
    )
    closely = []
    for _ in range(4):
        acting.asked_api.clear()
        rounds(agent, "time")
        closely.append(len(acting.asked_api) - 1)
        acting.times.uptime_s += 60
    assert (closely, unmapped) == ([1, 0, 0, 0], [])
    assert sum(len(cycle.news) for cycle in acting.reported) == 1
    acting.watch(agent, minutes=60)
    assert unmapped == ["/dev/rbd0"]


def test_unreadable_record_refuses_every_unmap_and_is_reported(
    acting: Stage, unmapped: list[str]
) -> None:
    """Assert a refusal: the record may contain as many unmaps as the hourly limit allows.

    The refusal is reported although nothing is recorded.
    """
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=9)
    record = acting.state.path / "acts.json"
    record.write_text("{")
    acting.watch(agent, minutes=5)
    assert (unmapped, record.read_text()) == ([], "{")
    reported_acts = [act for seen in acting.reported for act in observed_of(seen.news)]
    assert [
        (act.outcome, "the record of unmaps: not observed" in act.message) for act in reported_acts
    ] == [(UnmapOutcome.REFUSED, True)]
    assert isinstance(acting.reported[-1].acts, NotObserved)
    record.unlink()
    acting.watch(agent, minutes=1)
    assert unmapped == ["/dev/rbd0"]


def test_unreadable_record_is_logged_at_the_start(acting: Stage) -> None:
    acting.state.path.mkdir(exist_ok=True)
    (acting.state.path / "acts.json").write_text("{")
    acting.agent()
    (line,) = acting.log.of("state")
    assert "acts.json" in line["message"]


@pytest.mark.parametrize("hidden", ["missing", "denied"])
def test_unobserved_freeze_directory_refuses_every_unmap(
    acting: Stage,
    unmapped: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    hidden: str,
) -> None:
    """Assert a refusal: the file may exist on a missing mount or in another user's directory."""
    directory = tmp_path / "etc"
    acting.freeze_file = directory / "freeze"
    if hidden == "denied":
        directory.mkdir()
        monkeypatch.setattr(os, "listdir", denied)
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=12)
    assert unmapped == []
    assert (
        "the file that freezes this node: not observed"
        in acting.log.of("unmap refused")[0]["RBD508"]
    )
    monkeypatch.undo()


def test_freeze_directory_without_the_file_freezes_nothing(
    acting: Stage, unmapped: list[str], tmp_path: Path
) -> None:
    acting.freeze_file = tmp_path / "freeze"
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=11)
    assert unmapped == ["/dev/rbd0"]


def test_refusal_is_reported_again_after_the_device_was_in_use(acting: Stage) -> None:
    agent = acting.agent()
    for _ in range(2):
        acting.snapshots = [ORPHAN]
        acting.watch(agent, minutes=10)
        acting.snapshots = [FROZEN, ORPHAN]
        rounds(agent, "time")
        assert len(acting.reported[-1].news) == 1
        acting.snapshots = [IN_USE]
        acting.watch(agent, minutes=1)


def test_running_unmap_does_not_count_against_its_own_limit(
    acting: Stage, unmapped: list[str]
) -> None:
    """Assert that the last unmap within the limit passes the check before its step, too."""
    acting.policy = replace(acting.policy, most_unmaps_an_hour=1)
    acting.snapshots = [ORPHAN]
    acting.watch(acting.agent(), minutes=12)
    assert unmapped == ["/dev/rbd0"]


def test_refusal_directly_before_the_step_states_its_reasons(
    acting: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(plan: UnmapPlan, *, again: Callable[[], Any], **_: Any) -> UnmapResult:
        return UnmapResult(
            plan=plan, outcome=UnmapOutcome.REFUSED, message="before unmap", refusal=again()
        )

    monkeypatch.setattr("rbdagent.unmap.executor.carry_out", carry_out)
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    for _ in range(2):
        acting.snapshots = [ORPHAN, FROZEN, ORPHAN]
        rounds(agent, "time")
        acting.times.uptime_s += 60
    # Each attempt began and is recorded; only the first is news.
    assert acting.reported[-1].ended == {"refused": 2}
    assert [len(cycle.news) for cycle in acting.reported[-2:]] == [1, 0]
    (news,) = acting.reported[-2].news
    assert news.message == (
        "before unmap: RBD508: namespace default has the annotation rbdagent.dev/freeze. "
        "Apart from time, only Namespace default prevents it"
    )
    assert news.convergence is None
    assert "RBD508" in acting.log.of("unmap")[0]


def test_next_cycle_starts_when_a_grace_period_ends(acting: Stage) -> None:
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    rounds(agent, "start")
    acting.times.uptime_s += 595
    assert agent._pause() == pytest.approx(5.0)


# --------------------------------------------------------------------------------------------------
# Follow-up of unmaps
# --------------------------------------------------------------------------------------------------

FREED = seen(on_node={"mappings": ()}, of_image={"watchers": ()})
ATTACHED = seen(
    on_node={"mappings": ()},
    of_image={"watchers": ()},
    in_kube={"attachments": (attachment(),)},
)
WAITED_FOR = seen(
    on_node={"mappings": ()},
    of_image={"watchers": ()},
    in_kube={"pods": (waiting_pod(),)},
)


def done(acting: Stage, ago_s: float = 10, **changes: Any) -> UnmapRecord:
    """Record an unmap of the volume that many seconds ago."""
    act = UnmapRecord(
        boot_id="b001",
        begun=BootTime(at=NOW, uptime_s=acting.times.uptime_s - ago_s),
        by="root",
        identity=identity(),
        persistent_volume=PV,
        why="",
        outcome=UnmapOutcome.UNMAPPED,
        convergence=Convergence.PENDING,
    )
    act = replace(act, **changes)
    acting.state.save_act(act)
    return act


def came_of(stage: Stage) -> Convergence | None:
    (act,) = observed_of(stage.state.acts())
    return act.convergence


def test_own_unmap_is_followed_up_from_the_same_cycle_on(
    acting: Stage, unmapped: list[str]
) -> None:
    acting.snapshots = [ORPHAN]
    agent = acting.agent()
    acting.watch(agent, minutes=10)
    # The snapshots for the plan, before the step, and after the unmap.
    acting.snapshots = [ORPHAN, ORPHAN, FREED]
    rounds(agent, "time")
    assert unmapped == ["/dev/rbd0"]
    assert came_of(acting) is Convergence.CLEARED
    assert [act.convergence for act in acting.reported[-1].news] == [Convergence.CLEARED]
    assert acting.log.of("unmap followed up")[0]["state"] == "cleared"
    rounds(agent, "time")
    assert acting.reported[-1].news == ()


def test_pending_follow_up_queries_the_api_and_shortens_the_pause(
    stage: Stage,
) -> None:
    """Assert the follow-up in mode observe, too: the command line has unmapped the volume."""
    done(stage)
    stage.snapshots = [ATTACHED]
    agent = stage.agent()
    rounds(agent, "start", "time", "time")
    assert stage.asked_api == [True, True, True]
    assert agent._pause() == 10.0
    assert came_of(stage) is Convergence.PENDING
    assert stage.log.of("unmap followed up") == []


def test_late_step_is_reported_once_and_so_is_its_later_end(stage: Stage) -> None:
    done(stage)
    stage.snapshots = [ATTACHED]
    agent = stage.agent()
    stage.watch(agent, minutes=6)
    assert came_of(stage) is Convergence.BLOCKED
    (followed_up,) = stage.log.of("unmap followed up")
    assert followed_up["state"] == "still-blocked"
    assert "VolumeAttachment" in followed_up["reasons"]
    assert sum(len(cycle.news) for cycle in stage.reported) == 1
    assert agent._pause() > 10.0
    stage.snapshots = [FREED]
    rounds(agent, "time")
    assert came_of(stage) is Convergence.CLEARED
    assert [line["state"] for line in stage.log.of("unmap followed up")] == [
        "still-blocked",
        "cleared",
    ]


def test_pod_that_waits_elsewhere_is_found_by_its_volume(stage: Stage) -> None:
    done(stage)
    stage.snapshots = [FREED, WAITED_FOR]
    rounds(stage.agent(), "start")
    assert came_of(stage) is Convergence.PENDING
    (act,) = observed_of(stage.state.acts())
    assert "web-1 on worker-2 still waits" in act.convergence_reasons[0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotFoundError("no such PersistentVolume"), Convergence.CLEARED),
        (RbdagentError("no answer"), Convergence.PENDING),
    ],
)
def test_deleted_volume_ends_the_follow_up_and_an_error_does_not(
    stage: Stage, error: Exception, expected: Convergence
) -> None:
    done(stage)
    stage.snapshots = [FREED, error]
    rounds(stage.agent(), "start")
    assert came_of(stage) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ago_s": 901}, Convergence.NOT_OBSERVED),
        ({"boot_id": "b000"}, Convergence.NOT_OBSERVED),
        ({"ago_s": 901, "convergence": Convergence.BLOCKED}, Convergence.BLOCKED),
        ({"convergence": None}, None),
        ({"convergence": Convergence.CLEARED}, Convergence.CLEARED),
    ],
    ids=str,
)
def test_old_or_finished_follow_up_is_not_observed_again(
    stage: Stage, changes: dict[str, Any], expected: Convergence | None
) -> None:
    done(stage, **changes)
    stage.snapshots = [FREED]
    agent = stage.agent()
    rounds(agent, "start", "time")
    assert came_of(stage) is expected
    assert stage.asked_api == [True, False]
    assert agent._pause() > 10.0


def test_new_mapping_without_an_event_leads_to_an_api_query(stage: Stage) -> None:
    stage.snapshots = [seen(on_node={"mappings": ()}), IN_USE]
    rounds(stage.agent(), "start", "time", "time", "time")
    assert stage.asked_api == [True, False, True, False]


def test_rest_after_a_cycle_is_part_of_the_wait(acting: Stage) -> None:
    class Wake:
        def __init__(self) -> None:
            self.rested: list[float] = []

        def rest(self, seconds: float) -> bool:
            self.rested.append(seconds)
            return False

        def wait(self, _: float) -> str:
            return "change"

    acting.snapshots = [ORPHAN]
    agent, wake = acting.agent(), Wake()
    agent._wake = wake  # type: ignore[assignment]
    rounds(agent, "start")
    assert agent.seen is not None
    for took_s, pause in ((100.0, 0.01), (100.0, 60.0), (0.1, 60.0)):
        agent.seen = replace(agent.seen, took_s=took_s)
        assert agent._wait(pause) == "change", "a change during the rest is reported"
    assert wake.rested == [0.01, 10.0, pytest.approx(0.3)]


def test_longest_waiting_orphan_is_tried_first(
    acting: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert the order: an agent that ends early would never try the last of many orphans."""
    agent, tried = acting.agent(), list[str]()
    monkeypatch.setattr(agent, "_try", tried.append)
    (known,) = history().mappings
    agent._history = replace(
        history(),
        mappings=tuple(
            replace(
                known,
                identity=replace(known.identity, device=f"/dev/rbd{number}"),
                orphaned_since=moment(GRACE_S + waiting),
            )
            for number, waiting in enumerate((1, 3, 2))
        ),
    )
    agent._act()
    assert tried == ["/dev/rbd1", "/dev/rbd2", "/dev/rbd0"]
