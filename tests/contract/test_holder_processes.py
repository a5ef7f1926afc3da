"""User, start and parent of the processes that hold a device, in answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import MountNamespace, NotObserved, ParentProcess, observed_of
from rbdagent.report.json.holders import holder_report
from rbdagent.report.schema import schema
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from rbdagent.report.text import holders
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.lifecycle import story
from tests.support.snapshots import (
    POD_UID,
    STAGING_PATH,
    diagnosis_of,
    mapping,
    mount,
    nbd_mapping,
    node_view,
    opener,
    process,
    snapshot,
)

if TYPE_CHECKING:
    from rbdagent.model import Mapping, ProcessRef, Snapshot

STARTED: Final = "2026-11-20T08:00:00Z"
ENDED: Final = NotObserved(reason="process 4623 (sleep) ended before its user was read")
NO_PARENT: Final = NotObserved(reason="process 380, the parent of process 4623, was not observed")
SHELL: Final = ParentProcess(pid=380, program="bash")
KNOWN: Final = process(user="root", started_at=STARTED, parent=SHELL)
HEAD: Final = "Processes that hold /dev/rbd0 on worker-1:"


def seen_with(*processes: ProcessRef, made: Mapping | None = None) -> Snapshot:
    """Return a snapshot, as a file has it, in which processes have the device open."""
    openers = tuple(opener(process=known) for known in processes)
    held = replace(made or mapping(), openers=openers)
    seen = snapshot(node=node_view(mappings=(held,)))
    return load_snapshot(dump_snapshot(seen), where="test")


def answer(seen: Snapshot, *, details: bool = True) -> str:
    return holders.answer(diagnosis_of(seen), seen, Layout(width=100, details=details))


def opened_by(seen: Snapshot) -> list[dict[str, Any]]:
    """Return the processes in the JSON output, which its schema permits."""
    written = json.loads(msgspec.json.encode(holder_report(diagnosis_of(seen), seen)))
    jsonschema.validate(written, schema("HolderReport"))
    found: list[dict[str, Any]] = written["holders"][0]["openedBy"]
    return found


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (
            KNOWN,
            f'process 4623 ("sleep 100000") of user root, started {STARTED}, child of 380 (bash)',
        ),
        (process(user="34", parent=None), 'process 4623 ("sleep 100000") of user 34'),
        (
            process(user="34", parent=NO_PARENT),
            'process 4623 ("sleep 100000") of user 34, parent not observed',
        ),
    ],
)
def test_text_describes_a_process(known: ProcessRef, line: str) -> None:
    shown = answer(seen_with(known)).replace("\n    ", " ")
    assert f"\n\n{HEAD}\n  {line}\n\n" in shown


def test_text_shows_why_a_user_was_not_observed() -> None:
    shown = " ".join(answer(seen_with(process(user=ENDED, parent=SHELL))).split())
    described = 'process 4623 ("sleep 100000")'
    assert f"{described}, user not observed: {ENDED.reason}, child of 380 (bash)" in shown


def test_processes_are_described_with_details_only() -> None:
    seen = seen_with(process(user="34", parent=SHELL, pod_uid=POD_UID))
    assert HEAD not in answer(seen, details=False)
    assert f'{HEAD}\n  process 4623 ("sleep 100000") of user 34' in answer(seen)


def test_a_reader_without_a_shell_on_the_node_gets_the_processes_instead_of_ps() -> None:
    """The kubectl plugin starts rbdagent with other words: see :func:`for_reader`."""
    seen = seen_with(process(user="34", parent=SHELL))
    assert "ps -o pid,user,lstart,args" in answer(seen, details=False)
    there = Layout(width=160, program=("kubectl", "rbdagent"))
    life = lifecycle_of(correlate(seen), seen)
    for shown in (holders.answer(diagnosis_of(seen), seen, there), story(life, seen, there)):
        assert "ps -o" not in shown
        assert f'{HEAD}\n  process 4623 ("sleep 100000") of user 34, child of 380 (bash)' in shown


def test_undescribed_process_has_no_line() -> None:
    assert HEAD not in answer(seen_with(process()))


def test_server_of_an_nbd_device_has_no_line() -> None:
    server = process(pid=700, user="root", parent=None)
    assert "Processes that hold" not in answer(seen_with(server, made=nbd_mapping()))


@pytest.mark.parametrize(("path", "is_listed"), [(f"/host{STAGING_PATH}", False), ("/mnt", True)])
def test_copy_of_a_host_mount_is_not_held_by_its_process(path: str, *, is_listed: bool) -> None:
    """A service with its own mount namespace has copies of the host's mounts."""
    inside = MountNamespace(inode=4026532251, process=process(user="34", parent=None))
    mounts = (mount(), mount(path=path, namespace=inside))
    seen = snapshot(node=node_view(mappings=(mapping(mounts=mounts),)))
    assert (HEAD in answer(seen)) is is_listed


def test_text_lists_some_processes_and_counts_the_others() -> None:
    found = answer(seen_with(*(process(pid=pid, user="0", parent=None) for pid in range(10, 40))))
    assert found.count(" of user 0\n") == 20
    assert "\n  and 10 more processes: -o json lists all\n" in found


def test_json_describes_a_process() -> None:
    (found,) = opened_by(seen_with(KNOWN))
    assert found["user"] == "root"
    assert found["startedAt"] == STARTED
    assert found["parent"] == {"pid": 380, "program": "bash"}
    assert found["notObserved"] == {}


@pytest.mark.parametrize(
    ("known", "reasons"),
    [
        (
            process(),
            {
                "user": "not requested",
                "parent": "not requested",
                "startedAt": "the start time of the process was not observed",
            },
        ),
        (
            process(user=ENDED, started_at=STARTED, parent=NO_PARENT),
            {"user": ENDED.reason, "parent": NO_PARENT.reason},
        ),
        (process(user="0", started_at=STARTED, parent=None), {}),
    ],
)
def test_json_distinguishes_unknown_from_absent(known: ProcessRef, reasons: dict[str, str]) -> None:
    (found,) = opened_by(seen_with(known))
    assert found["parent"] is None
    assert found["notObserved"] == reasons


def test_snapshot_keeps_descriptions() -> None:
    view = seen_with(KNOWN).node
    assert view is not None
    (known,) = observed_of(view.mappings)
    assert observed_of(known.openers) == (opener(process=KNOWN),)
