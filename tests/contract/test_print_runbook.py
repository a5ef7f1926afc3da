"""``who-holds --print-runbook``: plain commands that only read, and where to get each name."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import NOT_PRINTED, text_of
from rbdagent.correlate import correlate
from rbdagent.model import Snapshot, Target, TargetKind, Volume
from rbdagent.parse.target import parse_target
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.runbook import runbook, steps_of
from tests.support.cli_runner import ORPHAN, ask
from tests.support.hostile_texts import is_clean
from tests.support.recordings import recorded_snapshot
from tests.support.snapshots import BY_IMAGE, target, volume, world

if TYPE_CHECKING:
    from pathlib import Path

OFFLINE: Final = ("--no-node", "--no-ceph", "--no-kube")
RECORDED: Final = (
    ("01-fs-running", "c1", "n1"),
    ("12-pinned-by-cwd-invisible", "c12", "n1"),
    ("20-nbd-killed", "cn", "n2"),
    ("24-read-only-and-shared", "crox", "n1"),
    ("30-two-writers-after-blocklist-rm", "ch", "n1"),
)
TARGETS: Final = (
    "pv/pvc-1", "pvc/shop/data", "pod/shop/web-0", "k8s/image", "k8s/tenant/image", "/dev/rbd3",
    "0001-0009-rook-ceph-0000000000000001-4d1d8b64-90b5-11ef-9d27-2a1e6d4c2a4b",
)  # fmt: skip


def unknown(argument: str) -> Volume:
    """Return the volume of a target about which no source has shown anything."""
    seen = world(target=parse_target(argument, namespace=None), node=None, ceph=None)
    return correlate(replace(seen, kubernetes=None))


def check(use: Volume) -> str:
    """Check the runbook of a volume; return its text."""
    known: set[str] = set()
    steps = steps_of(use)
    text = runbook(use, Layout())
    for step in steps:
        printed = text_of(step.command)
        assert printed is not None
        assert shlex.split(printed) == list(step.command.argv)
        assert f"  {printed}\n" in text
        assert not step.command.changes
        is_first_node = use.target.kind is TargetKind.DEVICE and step is steps[0]
        assert set(step.needs) <= known or is_first_node, step
        known |= set(step.yields)
    commands = [text_of(step.command) for step in steps]
    for line in text.splitlines():
        assert len(line) <= 80 or any(command and command in line for command in commands)
    assert is_clean(text)
    return text


@pytest.mark.parametrize(("recording", "claim", "node"), RECORDED)
def test_recorded_volume_has_its_names_in_the_commands(
    tmp_path: Path, recording: str, claim: str, node: str
) -> None:
    seen = recorded_snapshot(recording, claim, node_name=node, root=tmp_path)
    use = correlate(seen)
    text = check(use)
    assert use.persistent_volume is not None
    assert use.image is not None
    assert f"kubectl get pv {use.persistent_volume.name} -o json\n" in text
    assert f"rbd info {use.image.spec}\n" in text
    assert "rados listwatchers rbd_header." in text
    needed = {name for step in steps_of(use) for name in step.needs}
    assert not {"CLAIM", "PV", "POOL", "IMAGE"} & needed
    header = use.image_view.header if use.image_view is not None else None
    assert ("IMAGE_ID" in needed) is not bool(header or use.image.image_id)


@pytest.mark.parametrize("argument", TARGETS)
def test_unknown_names_are_placeholders_that_an_earlier_step_yields(argument: str) -> None:
    text = check(unknown(argument))
    assert "rados listwatchers rbd_header.IMAGE_ID" in text
    assert "IMAGE_ID from step" in text


def test_rados_namespace_is_part_of_the_commands() -> None:
    text = runbook(unknown("k8s/tenant/image"), Layout())
    assert "rbd info k8s/tenant/image\n" in text
    assert "rados listwatchers rbd_header.IMAGE_ID -p k8s --namespace tenant\n" in text


@pytest.mark.parametrize(
    "name", ["$(touch P)", "a b", "it's", "--kubeconfig=/tmp/x", "-rf", "a;reboot", "`id`"]
)
def test_hostile_name_stays_one_word(name: str) -> None:
    hostile = volume(name=name)
    seen = world(
        in_kube={"persistent_volumes": (hostile,)},
        target=Target(argument=name, kind=TargetKind.PERSISTENT_VOLUME, name=name),
    )
    step = next(step for step in steps_of(correlate(seen)) if name in step.command.argv)
    assert shlex.split(str(text_of(step.command))) == list(step.command.argv)
    if name.startswith("-"):
        assert step.command.argv[-2:] == ("--", name)


def test_name_that_a_terminal_would_interpret_is_not_printed() -> None:
    name = "a\x1b]0;title\x07b"
    seen: Snapshot = world(target=target(argument=name, name=name), in_kube={
        "persistent_volumes": (volume(name=name),)
    })  # fmt: skip
    text = runbook(correlate(seen), Layout())
    assert NOT_PRINTED in text
    assert is_clean(text)


def test_every_command_of_an_image_only_reads() -> None:
    assert not any(step.command.changes for step in steps_of(correlate(world(target=BY_IMAGE))))


@pytest.mark.parametrize("argument", TARGETS)
def test_runbook_needs_no_source(argument: str) -> None:
    done = ask("who-holds", argument, "--print-runbook", *OFFLINE)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith("RUNBOOK  ")


@pytest.mark.parametrize("more", [("-o", "json"), ("-o", "name"), ("-w",)])
def test_runbook_is_text_that_is_printed_once(more: tuple[str, ...]) -> None:
    done = ask("who-holds", "pvc/default/data", "--print-runbook", "--from", str(ORPHAN), *more)
    assert (done.code, done.stdout) == (2, "")
    assert "--print-runbook prints commands once" in done.stderr
