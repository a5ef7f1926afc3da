r"""An ordinary file name that is not UTF-8 (``caf\xe9``) breaks no answer and no writer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from msgspec.structs import replace

from rbdagent.agent.cycle import CycleResult
from rbdagent.agent.events import event_object, transitions
from rbdagent.collect.files import read_text
from rbdagent.correlate import volumes_of_node
from rbdagent.errors import ParseError
from rbdagent.model import Snapshot, Target, TargetKind, observed_of
from rbdagent.parse.mountinfo import parse_mount_line
from rbdagent.report.rbdmapping import mapping_statuses
from rbdagent.report.rbdnode import rbdnode_status
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from rbdagent.rules import diagnose
from tests.support import recordings
from tests.support.cli_runner import OF_TARGET, ask
from tests.support.hostile_texts import texts_of
from tests.support.recorded_agent import exposition

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "caf\udce9"
"""The file name as Python returns it: the byte is a lone surrogate (PEP 383)."""
SHOWN: Final = r"caf\xe9"
RECORDING, CLAIM = "12-pinned-by-cwd-invisible", "c12"
PODS: Final = "/var/lib/kubelet/pods"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Return a snapshot of a node with an open file and a directory of kubelet of that name."""
    read = recordings.recorded_node

    def with_name(recording: str, name: str) -> recordings.RecordedNode:
        node = read(recording, name)
        for process in node.processes.values():
            for number, link in enumerate(list(process.links.values())):
                opened = dataclasses.replace(link, target=f"/data/{NAME}")
                process.links[f"fd/{number}"] = opened
        node.directories.add(f"{PODS}/{NAME}/volumes/kubernetes.io~csi/{NAME}")
        return node

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "recorded_node", with_name)
        root = tmp_path_factory.mktemp("node")
        return recordings.recorded_snapshot(RECORDING, CLAIM, node_name="n1", root=root)


def test_surrogates_do_not_enter_the_model(snapshot: Snapshot) -> None:
    texts = texts_of(snapshot.node)
    assert any(SHOWN in text for text in texts)
    for text in texts:
        text.encode()


def test_file_with_such_a_name_is_observed(snapshot: Snapshot) -> None:
    assert snapshot.node is not None
    (mapping,) = observed_of(snapshot.node.mappings)
    assert f"/data/{SHOWN}" in {opener.path for opener in observed_of(mapping.openers)}


def test_a_mount_with_such_a_name_is_read() -> None:
    line = b"36 35 252:0 / /mnt/caf\xe9 rw - ext4 /dev/rbd0 rw"
    assert parse_mount_line(line, where="test").path == f"/mnt/{SHOWN}"


def test_file_and_mount_with_such_a_name_have_equal_text(tmp_path: Path) -> None:
    """The backing file of a loop device (sysfs) is searched below the mounts of a device."""
    (tmp_path / "backing_file").write_bytes(b"/mnt/caf\xe9/disk\n")
    assert read_text(tmp_path / "backing_file") == f"/mnt/{SHOWN}/disk"


def test_every_verb_prints_every_format(snapshot: Snapshot, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(dump_snapshot(snapshot))
    for verb, form in OF_TARGET:
        done = ask(verb, snapshot.target.argument, "--from", str(file), "-o", form)
        assert "defect" not in done.stderr, (verb, form)
        assert done.stdout, (verb, form)


def test_a_saved_snapshot_is_read_again(snapshot: Snapshot) -> None:
    assert load_snapshot(dump_snapshot(snapshot), where="memory") == snapshot


def test_snapshot_with_a_lone_surrogate_is_refused(snapshot: Snapshot) -> None:
    dumped = dump_snapshot(snapshot).replace(SHOWN.replace("\\", "\\\\"), r"caf\udce9")
    with pytest.raises(ParseError, match="invalid utf-16 surrogate pair"):
        load_snapshot(dumped, where="memory")


# --------------------------------------------------------------------------------------------------
# What an agent writes
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(snapshot: Snapshot) -> CycleResult:
    whole = replace(snapshot, target=Target(argument="", kind=TargetKind.NONE))
    diagnoses = tuple(diagnose(volume, whole) for volume in volumes_of_node(whole).mapped)
    return CycleResult(snapshot=whole, diagnoses=diagnoses, history=None, took_s=0.1, at=0.0)


def test_rbdnode_events_and_metrics_can_be_written(seen: CycleResult) -> None:
    status = rbdnode_status(seen.diagnoses, seen.snapshot, ())
    (mapping,) = mapping_statuses(seen.diagnoses, seen.snapshot, None)
    quoted = SHOWN.replace("\\", "\\\\")
    assert any(quoted in reason for reason in mapping["reasons"])
    events = transitions(None, seen, "n1")
    assert events
    msgspec.json.encode([status, mapping, *(event_object(event, "n1", "") for event in events)])
    exposition(seen)
