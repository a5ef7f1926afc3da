"""RBDNode, Events and metrics of a recorded node name processes by pid and program only.

Answers also have the command line, the user and the parent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.agent.events import event_object, transitions
from rbdagent.correlate import correlate
from rbdagent.report.json.holders import holder_report
from rbdagent.report.rbdmapping import mapping_statuses
from rbdagent.report.rbdnode import rbdnode_status
from rbdagent.rules import diagnose
from tests.support import recordings
from tests.support.hostile_texts import texts_of
from tests.support.recorded_agent import exposition, recorded_cycle

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.agent.cycle import CycleResult

MARKER: Final = "--of=(MARKER"
"""A word in the command line of each process; the sentences contain parentheses as well."""
NODES: Final = recordings.recorded_nodes()


@pytest.fixture(params=NODES, ids=[f"{recording}-{node}" for recording, node in NODES])
def seen(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CycleResult:
    """Return what the agent of a recorded node knows; MARKER is each process's first argument."""
    recording, node_name = request.param
    read = recordings.recorded_node

    def marked(recording: str, name: str) -> recordings.RecordedNode:
        node = read(recording, name)
        for process in node.processes.values():
            program, *arguments = process.command.split(" ")
            if program:
                process.command = " ".join((program, MARKER, *arguments))
        return node

    monkeypatch.setattr(recordings, "recorded_node", marked)
    claim = recordings.some_claim(recording)
    return recorded_cycle(recording, claim, root=tmp_path / "node", node_name=node_name)


def test_published_data_contains_no_command_line(seen: CycleResult) -> None:
    assert any(MARKER in text for text in texts_of(seen.snapshot.node))
    node_name = seen.snapshot.node.node_name if seen.snapshot.node is not None else ""
    status = [
        rbdnode_status(seen.diagnoses, seen.snapshot, ()),
        mapping_statuses(seen.diagnoses, seen.snapshot, seen.history),
    ]
    events = [
        event_object(event, node_name, seen.snapshot.observed_at)
        for event in transitions(None, seen, node_name)
    ]
    assert "MARKER" not in json.dumps([status, events])
    assert b"MARKER" not in exposition(seen)


def test_holder_is_published_without_its_arguments(tmp_path: Path) -> None:
    """Recording 12: a shell's `sleep 100000` has its working directory on the volume."""
    seen = recorded_cycle("12-pinned-by-cwd-invisible", "c12", root=tmp_path)
    (mapping,) = mapping_statuses(seen.diagnoses, seen.snapshot, seen.history)
    said = "process 4623 (sleep) has its working directory on it"
    assert mapping["reasons"][0] == said
    assert said in transitions(None, seen, "n1")[0].message
    snapshot = recordings.recorded_snapshot(
        "12-pinned-by-cwd-invisible", "c12", node_name="n1", root=tmp_path / "asked"
    )
    (holder,) = holder_report(diagnose(correlate(snapshot), snapshot), snapshot).holders
    assert holder.reasons[0] == said.replace("sleep", '"sleep 100000"')


def test_user_and_parent_of_a_holder_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = recordings.recorded_node

    def marked(recording: str, name: str) -> recordings.RecordedNode:
        node = read(recording, name)
        node.files["/etc/passwd"] = "MARKER-user:x:0:0::/:/bin/sh\n"
        node.processes[1].command = "/sbin/MARKER-parent"
        return node

    monkeypatch.setattr(recordings, "recorded_node", marked)
    seen = recorded_cycle("12-pinned-by-cwd-invisible", "c12", root=tmp_path)
    (diagnosis,) = seen.diagnoses
    (holder,) = holder_report(diagnosis, seen.snapshot).holders
    assert holder.opened_by is not None
    (process,) = holder.opened_by
    assert process.user == "MARKER-user"
    assert process.parent is not None
    assert process.parent.program == "MARKER-parent"
    status = [
        rbdnode_status(seen.diagnoses, seen.snapshot, ()),
        mapping_statuses(seen.diagnoses, seen.snapshot, seen.history),
    ]
    events = [
        event_object(event, "n1", seen.snapshot.observed_at)
        for event in transitions(None, seen, "n1")
    ]
    public = json.dumps([status, events]) + exposition(seen).decode()
    assert "MARKER" not in public
    assert process.started_at is not None
    assert process.started_at not in public
