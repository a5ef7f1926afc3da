"""The image of an rbd-nbd process is the one that rbd-nbd itself takes from its command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rbdagent.model import (
    ImageSpec,
    Mapping,
    NbdState,
    NotObserved,
    ProcessRef,
    PublishedMapping,
    Target,
    TargetKind,
    Verdict,
)
from rbdagent.parse.rbd_nbd import served_image
from tests.support.node_files import Tree
from tests.support.rbd_nbd import COMMAND, IMAGE, REFUSED, SERVED, WITHOUT_POOL
from tests.support.rows import each_row
from tests.support.snapshots import (
    POD_PATH,
    SPEC,
    UNSEEN,
    diagnosis_of,
    judged,
    mount,
    nbd_mapping,
    pod,
    reported_by,
    unmapped,
    world,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import Snapshot


def served(line: str, command: str = "map") -> ImageSpec | None:
    return served_image(("rbd-nbd", *line.replace(COMMAND, command).split()))


@each_row("command", ["map", "attach"])
@each_row("line", SERVED)
def test_image_is_that_of_the_program(line: str, command: str) -> None:
    assert served(line, command) == SERVED[line]


@pytest.mark.parametrize("option", ["--device /dev/nbd0", "--device=/dev/nbd0"])
def test_device_may_be_named_anywhere(option: str) -> None:
    # The program opens the device for `unmap`, so it does not print the image.
    for line in (f"{option} map k8s/img", f"map {option} k8s/img", f"map k8s/img {option}"):
        assert served(line) == IMAGE


@pytest.mark.parametrize("line", WITHOUT_POOL)
def test_image_without_a_pool_is_unknown(line: str) -> None:
    assert served(line) is None


@pytest.mark.parametrize("line", REFUSED)
def test_line_that_the_program_refuses_names_no_image(line: str) -> None:
    assert served(line) is None


@pytest.mark.parametrize("line", ["map --rbd_x a --rbd_y b", "map --rbd_x k8s/a --rbd_y k8s/b"])
def test_line_with_two_possible_images_names_none(line: str) -> None:
    assert served(line) is None


@pytest.mark.parametrize("command", ["unmap", "detach", "list-mapped"])
def test_process_that_maps_nothing_serves_no_image(command: str) -> None:
    assert served("COMMAND k8s/map", command) is None


def test_word_of_the_command_may_be_an_image() -> None:
    assert served("map map/attach") == ImageSpec(pool="map", name="attach")
    assert served("attach k8s/map") == ImageSpec(pool="k8s", name="map")


# --------------------------------------------------------------------------------------------------
# Its device
# --------------------------------------------------------------------------------------------------


def nbd_served_by(tmp_path: Path, *arguments: str) -> Mapping:
    """Observe a node with /dev/nbd0, and one rbd-nbd process with these arguments."""
    tree = Tree(tmp_path)
    tree.write("sys/block/nbd0/pid", "9\n")
    tree.write("sys/block/nbd0/dev", "43:0\n")
    tree.process(9, "/usr/bin/rbd-nbd", *arguments)
    (found,) = tree.mappings()
    return found


@pytest.mark.parametrize(
    "line",
    [
        f"map --device /dev/nbd0 {SPEC}",
        f"--device=/dev/nbd0 map --read-only {SPEC}",
        f"attach --device /dev/nbd0 --id admin {SPEC}",
        f"map {SPEC} --device /dev/nbd0 --exclusive",
    ],
)
def test_mounted_nbd_device_is_in_use_wherever_its_options_are(tmp_path: Path, line: str) -> None:
    device = nbd_served_by(tmp_path, *line.split())
    assert device.spec == SPEC
    mounted = nbd_mapping(spec=device.spec, nbd=device.nbd, mounts=(mount(path=POD_PATH),))
    seen = world(on_node={"mappings": (mounted,)}, in_kube={"pods": (pod(),)})
    assert judged(seen).verdict is Verdict.IN_USE


def test_process_whose_command_line_was_not_read_may_serve_the_device(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("sys/block/nbd0/pid", "1000\n")
    tree.process(9, "/usr/bin/rbd-nbd", "map", str(SPEC))
    (tree.root / "proc/9/cmdline").unlink()
    (tree.root / "proc/9/cmdline").mkdir()
    (device,) = tree.mappings()
    assert device.nbd is not None
    assert isinstance(device.nbd.process, NotObserved)
    assert "process 9 (rbd-nbd)" in device.nbd.process.reason


SERVER = ProcessRef(pid=700, command="rbd-nbd map")


def unknown_here(process: ProcessRef | NotObserved | None) -> Snapshot:
    state = NbdState(recorded_pid=700, backend="another-volume", process=process)
    return unmapped(on_node={"mappings": (nbd_mapping(spec=UNSEEN, nbd=state),)})


@pytest.mark.parametrize(
    ("process", "verdict"),
    [(SERVER, Verdict.UNDETERMINED), (UNSEEN, Verdict.UNDETERMINED), (None, Verdict.FREE)],
    ids=["served", "its process was not observed", "no process serves it"],
)
def test_unknown_image_of_an_nbd_device_here_may_be_any_image(
    process: ProcessRef | NotObserved | None, verdict: Verdict
) -> None:
    assert diagnosis_of(unknown_here(process)).verdict is verdict


@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        (Verdict.IN_USE, Verdict.UNDETERMINED),
        (Verdict.UNDETERMINED, Verdict.UNDETERMINED),
        (Verdict.DEAD, Verdict.FREE),
    ],
)
def test_unknown_image_of_an_nbd_device_elsewhere_may_be_any_image(
    published: Verdict, verdict: Verdict
) -> None:
    mapping = PublishedMapping(device="/dev/nbd0", verdict=published)
    report = reported_by("worker-2", mappings=(mapping,))
    assert diagnosis_of(unmapped(in_kube={"published": (report,)})).verdict is verdict


def test_dead_nbd_device_of_an_unknown_image_is_dead() -> None:
    ((device, _),) = diagnosis_of(
        world(
            on_node={"mappings": unknown_here(None).node.mappings},  # type: ignore[union-attr]
            target=Target(argument="/dev/nbd0", kind=TargetKind.DEVICE, name="/dev/nbd0"),
        )
    ).mapped
    assert device.verdict is Verdict.DEAD
