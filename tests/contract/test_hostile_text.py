"""Output has no control characters except its line breaks, whatever a snapshot contains."""

from __future__ import annotations

import html
import json
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.agent.cycle import CycleResult
from rbdagent.agent.events import transitions
from rbdagent.correlate import volumes_of_node
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.model import (
    CheckResult,
    CheckState,
    Convergence,
    PublishedNode,
    Snapshot,
    Target,
    TargetKind,
    UnmapOutcome,
    UnmapRecord,
)
from rbdagent.parse.kubernetes import rbd_mapping
from rbdagent.report.fleet import Fleet, Selection, selected
from rbdagent.report.rbdmapping import mapping_statuses
from rbdagent.report.rbdnode import rbdnode_status
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from rbdagent.report.text.check import check_lines
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.published import fleet_summary, fleet_table, published_names
from rbdagent.report.text.unmap import unmap_plan, unmap_refusal
from rbdagent.rules import diagnose
from tests.support.cli_runner import FORMS, OF_TARGET, ORPHAN, Done, ask
from tests.support.hostile_texts import (
    FORGED_LINE,
    ILL,
    TURNED,
    is_clean,
    made_ill,
    texts_of,
    with_ill,
)
from tests.support.recorded_agent import exposition
from tests.support.recordings import recorded_snapshot
from tests.support.snapshots import NOW, PV, opener
from tests.support.unmap_plans import LAST_CYCLE, history, identity, planned, seen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.model import UnmapPlan, UnmapRefusal

OF_ALL: Final = (
    *(("list", form) for form in FORMS),
    *(("diagnose", form) for form in (*FORMS, "html")),
)
RECORDED: Final = (
    ("05-force-delete-kubelet-stopped", "c1"),
    ("09b-pinned", "c1"),
    ("15-plugin-stopped", "c1"),
    ("26-not-backed", "cz"),
)


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    """Return snapshots with data in every part: several recorded, and one saved."""
    saved = load_snapshot(ORPHAN.read_text(), where="examples")
    root = tmp_path_factory.mktemp("recorded")
    return [
        saved,
        *(
            recorded_snapshot(recording, claim, node_name="n1", root=root / recording)
            for recording, claim in RECORDED
        ),
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saved") / "snapshot.json"


def answers(snapshot: Snapshot, file: Path) -> Iterator[tuple[str, Done]]:
    """Yield the output of every verb that reads, in every format."""
    saved = dump_snapshot(snapshot)
    assert is_clean(saved)
    file.write_text(saved)
    target = f"pv/{snapshot.target.name}"
    for verb, form in OF_TARGET:
        yield f"{verb} -o {form}", ask(verb, target, "--from", str(file), "-o", form)
    for verb, form in OF_ALL:
        given_ = "-A" if verb == "diagnose" else ""
        whole = replace(snapshot, target=Target(argument=given_, kind=TargetKind.NONE))
        file.write_text(dump_snapshot(whole))
        every = [given_] if given_ else []
        yield f"{verb} -o {form} of all", ask(verb, *every, "--from", str(file), "-o", form)
    name = "n1" if snapshot.node is None else snapshot.node.node_name
    for flags in product([(), ("--after",)], [("-v",), ("-o", "json"), ("-o", "yaml")]):
        words = ("--from", str(file), *flags[0], *flags[1])
        yield f"drain-check {words[2:]}", ask("drain-check", *words, "--", name)


def assert_clean(question: str, done: Done) -> None:
    assert is_clean(done.stdout), question
    assert is_clean(done.stderr), question
    assert "defect" not in done.stderr, (question, done.stderr)
    if "-o html" in question:
        assert is_clean(html.unescape(done.stdout)), question
    if "-o json" in question and done.stdout:
        json.loads(done.stdout)
    if "-o yaml" in question and done.stdout:
        yaml.safe_load(done.stdout)


@settings(max_examples=40)
@given(data=st.data())
def test_output_has_no_unsafe_characters(
    snapshots: list[Snapshot], file: Path, data: st.DataObject
) -> None:
    snapshot = data.draw(st.sampled_from(snapshots).flatmap(made_ill))
    for question, done in answers(snapshot, file):
        assert_clean(question, done)


@pytest.mark.parametrize("ill", ILL, ids=map(ascii, ILL))
def test_snapshot_keeps_hostile_text_unchanged(snapshots: list[Snapshot], ill: str) -> None:
    snapshot = with_ill(snapshots[0], texts_of(snapshots[0]), ill)
    dumped = dump_snapshot(snapshot)
    assert is_clean(dumped)
    assert load_snapshot(dumped, where="memory") == snapshot


PLAN: Final = planned(seen(), remembered=history())
REFUSAL: Final = planned(seen(mapped={"openers": (opener(),)}), remembered=history())


@given(made_ill((PLAN, REFUSAL)))
def test_unmap_plan_and_refusal_have_no_unsafe_characters(
    decided: tuple[UnmapPlan, UnmapRefusal],
) -> None:
    plan, refusal = decided
    assert is_clean(unmap_plan(plan, Layout()))
    assert is_clean(unmap_refusal(refusal, Layout()))


CHECK: Final = CheckResult(
    source="node",
    sentence="the node can be observed",
    state=CheckState.FAILED,
    detail="/proc: permission denied",
    hint="run as root",
)


@given(made_ill(CHECK))
def test_check_output_has_no_unsafe_characters(result: CheckResult) -> None:
    assert is_clean(check_lines([result], Layout()))


REPORT: Final = PublishedNode(
    name="worker-2",
    observed_at=NOW,
    incomplete="not all of its RBDMappings were found",
    mappings=(
        rbd_mapping(
            {
                "device": "/dev/rbd3",
                "verdict": "Pinned",
                "image": {"pool": "k8s", "name": "csi-vol-1"},
                "persistentVolume": "pvc-1",
                "reasons": ["process 7 (sleep) has an open file on it"],
                "pods": ["default/web-0"],
                "since": NOW,
            }
        ),
    ),
)


@given(made_ill(REPORT), st.booleans())
def test_published_table_has_no_unsafe_characters(report: PublishedNode, wide: bool) -> None:  # noqa: FBT001
    fleet, layout = Fleet(), Layout(details=wide)
    rows = list(selected(report, Selection(), fleet, now=NOW))
    assert is_clean(fleet_table(rows, layout, now=NOW))
    assert is_clean(fleet_summary(fleet, layout))
    assert is_clean(published_names(rows))


IDENTITY: Final = {"device", "image", "clientID", "clientAddress", "readOnly", "persistentVolume"}
"""Keys that agents of other nodes compare with what they observe: their values stay unchanged."""
ACT: Final = UnmapRecord(
    boot_id="b001",
    begun=LAST_CYCLE,
    by="agent",
    identity=identity(),
    persistent_volume=PV,
    why="its grace period is over",
    outcome=UnmapOutcome.FAILED,
    message="umount: target is busy",
    convergence=Convergence.BLOCKED,
    convergence_reasons=("a pod waits",),
)


@settings(max_examples=60)
@given(data=st.data())
def test_published_status_has_no_unsafe_characters(
    snapshots: list[Snapshot], data: st.DataObject
) -> None:
    snapshot, act = data.draw(
        st.sampled_from(snapshots).flatmap(lambda recorded: made_ill((recorded, ACT)))
    )
    whole = replace(snapshot, target=Target(argument="", kind=TargetKind.NONE))
    uses = volumes_of_node(whole)
    look = CycleResult(
        snapshot=whole,
        diagnoses=tuple(diagnose(volume, whole) for volume in uses.mapped),
        history=None,
        took_s=0.1,
        at=0.0,
        acts=(act,),
        news=(act,),
        blocked=blocked_volumes(whole, uses.waited_for),
    )
    status = rbdnode_status(look.diagnoses, whole, (act,))
    judged = [
        {key: mapping[key] for key in mapping.keys() - IDENTITY}
        for mapping in mapping_statuses(look.diagnoses, whole, None)
    ]
    texts = texts_of([judged, status["sources"], status["acts"]])
    texts |= {event.message for event in transitions(None, look, "n1")}
    assert all(text.isprintable() for text in texts)
    assert is_clean(exposition(look).decode())


def test_error_about_an_argument_has_no_unsafe_characters() -> None:
    for asked in (("who-holds", f"pv/{FORGED_LINE}/{TURNED}"), (f"who{TURNED}",)):
        done = ask(*asked)
        assert (done.code, done.stdout) == (2, "")
        assert TURNED not in done.stderr
        assert FORGED_LINE not in done.stderr


def test_an_argument_that_is_not_utf_8_is_refused_by_name() -> None:
    done = ask("who-holds", "caf\udce9", "-o", "json")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == "rbdagent: the argument caf\\udce9 is not UTF-8\n"
