"""What a short text shows of a long quotation: what failed, and what the program printed."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.parse.brief import brief
from rbdagent.parse.foreign import foreign, foreign_at
from tests.support.hostile_texts import is_clean

STAGING: Final = (
    "/var/lib/kubelet/plugins/kubernetes.io/csi/rbd.csi.ceph.com/967f1fb315032705af4dc8f0baa55e1f4"
    "772128dd61e8cdf47232ff06e043591/globalmount/0001-000a-lab-ceph-1-0000000000000001-bc386661-"
    "fc04-4c94-b05d-1428314b0ae4"
)
OF_KUBELET: Final = (
    'MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = Internal desc = '
)
MOUNT: Final = (
    "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t ext4 -o "
    f"_netdev,discard,defaults /dev/rbd0 {STAGING}\nOutput: mount: {STAGING}: can't read "
    "superblock on /dev/rbd0."
)
MKFS: Final = (
    f'format of disk "/dev/rbd0" failed: type:("xfs") target:("{STAGING}") '
    'options:("nouuid,_netdev,defaults") errcode:(exit status 1) output:(size 2048 of data '
    "subvolume is too small, minimum 4096 blocks\nUsage: mkfs.xfs\n/* blocksize */\t\t[-b "
    "size=num]\n/* config file */\t[-c options=xxx]\n/* metadata */\t\t[-m "
    "crc=0|1,finobt=0|1,uuid=xxx,rmapbt=0|1,reflink=0|1,\n"
)
RESIZE: Final = (
    f"resize failed on path {STAGING}, error: resize of device /dev/rbd2 failed: exit status 1. "
    "resize2fs output: resize2fs 1.46.5 (30-Dec-2021)\nopen: Device or resource busy while "
    "opening /dev/rbd2"
)
MAP: Final = (
    "rbd: map failed with error an error (exit status 22) occurred while running rbd args: [--id "
    "csi-rbd-node -m 10.77.0.1:6789,10.77.0.2:6789,10.77.0.3:6789 --keyfile=***stripped*** map "
    "k8s/csi-vol-bc386661-fc04-4c94-b05d-1428314b0ae4 --device-type krbd --options noudev], rbd "
    "error output: rbd: sysfs write failed\nrbd: map failed: (22) Invalid argument"
)


def shown_of(text: str) -> str:
    """Return what a short text shows of a message."""
    shown, _ = foreign_at(brief(foreign(text)), 0) or ("", 0)
    return shown


@pytest.mark.parametrize(
    "prefix", ["", OF_KUBELET, f"(combined from similar events): {OF_KUBELET}"]
)
@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        (MOUNT, "mount failed: exit status 32\n", "superblock on /dev/rbd0."),
        (MAP, "rbd: map failed with error", "failed\nrbd: map failed: (22) Invalid argument"),
        (RESIZE, "resize failed on path /var/lib/kubelet", "busy while opening /dev/rbd2"),
    ],
)
def test_a_long_error_keeps_its_beginning_and_the_output_of_the_program(
    prefix: str, text: str, begin: str, end: str
) -> None:
    short = shown_of(f"{prefix}{text}")
    assert short.startswith(begin)
    assert short.endswith(end)


def test_the_first_line_of_a_long_output_is_kept() -> None:
    short = shown_of(OF_KUBELET + MKFS)
    assert "output:(size 2048 of data subvolume is too small, minimum 4096 blocks\n" in short


def test_words_are_kept_whole() -> None:
    text = " ".join(f"word{number}" for number in range(200))
    head, _, tail = shown_of(text).partition(" … ")
    assert head == " ".join(text.split()[: len(head.split())])
    assert tail == " ".join(text.split()[-len(tail.split()) :])


@pytest.mark.parametrize(
    "text", ["no such thing here", "sleep 100000", f"cat {STAGING}", 'a "b" \\c\n', ""]
)
def test_a_text_without_usual_prefix_for_which_there_is_room_is_unchanged(text: str) -> None:
    assert brief(f"It is {foreign(text)}.") == f"It is {foreign(text)}."


def test_a_prefix_without_a_text_is_kept() -> None:
    assert shown_of("rpc error: code = Internal desc = ") == "rpc error: code = Internal desc = "


def test_what_is_not_quoted_is_kept() -> None:
    long = "rpc error: code = Internal desc = " + "own words " * 90
    assert brief(long) == long
    assert brief(f'{long} a quote without a partner: "x') == f'{long} a quote without a partner: "x'


@given(st.lists(st.text() | st.sampled_from([" ", "\n", "output:", "x" * 70, OF_KUBELET])))
def test_a_short_quotation_is_bounded_and_is_not_shortened_again(parts: list[str]) -> None:
    text = "".join(parts) * 3
    said = brief(f"It is {foreign(text)}. It ends.")
    assert re.fullmatch(r'It is "(?:[^"\\]|\\.)*"\. It ends\.', said)
    assert is_clean(said)
    assert len(shown_of(text)) <= 300
    assert brief(said) == said
