"""Text from users (targets, durations, configuration files) and files of kubelet and ceph-csi."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.config import load_file, parse_duration
from rbdagent.errors import ParseError, UsageError
from rbdagent.model import ImageSpec, Target, TargetKind
from rbdagent.parse.kubelet import parse_stash, parse_volume_data
from rbdagent.parse.target import joined_target, parse_target

if TYPE_CHECKING:
    from pathlib import Path

HANDLE = "0001-000a-lab-ceph-1-0000000000000001-a5aedea1-28da-40b4-92b8-33fd7de38647"


@pytest.mark.parametrize(
    ("given", "namespace", "kind", "name", "where"),
    [
        ("pvc-7d6d4e77", None, TargetKind.PERSISTENT_VOLUME, "pvc-7d6d4e77", ""),
        ("pv/pvc-7d6d4e77", None, TargetKind.PERSISTENT_VOLUME, "pvc-7d6d4e77", ""),
        ("PV/x", None, TargetKind.PERSISTENT_VOLUME, "x", ""),
        ("pvc/shop/data", None, TargetKind.CLAIM, "data", "shop"),
        ("pvc/data", "shop", TargetKind.CLAIM, "data", "shop"),
        ("pvc/data", None, TargetKind.CLAIM, "data", "default"),
        ("pod/shop/web-0", "shop", TargetKind.POD, "web-0", "shop"),
        ("/dev/rbd4", None, TargetKind.DEVICE, "/dev/rbd4", ""),
        ("rbd4", None, TargetKind.DEVICE, "/dev/rbd4", ""),
        ("/dev/rbd4p1", None, TargetKind.DEVICE, "/dev/rbd4", ""),
        ("/dev/nbd0", None, TargetKind.DEVICE, "/dev/nbd0", ""),
        (HANDLE, None, TargetKind.VOLUME_HANDLE, HANDLE, ""),
    ],
)
def test_each_form_of_a_target_is_parsed(
    given: str, namespace: str | None, kind: TargetKind, name: str, where: str
) -> None:
    target = parse_target(given, namespace=namespace)
    assert target == Target(argument=given, kind=kind, name=name, namespace=where)


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ("k8s/img", ImageSpec(pool="k8s", name="img")),
        ("k8s/tenant/img", ImageSpec(pool="k8s", namespace="tenant", name="img")),
        ("/dev/rbd/k8s/img", ImageSpec(pool="k8s", name="img")),
    ],
)
def test_image_target_has_pool_namespace_and_name(given: str, image: ImageSpec) -> None:
    assert parse_target(given, namespace=None).image == image


@pytest.mark.parametrize("given", ["", " ", "pvc/", "pv/a/b", "pod/a/b/c", "/dev/sda", "a//b"])
def test_incomplete_target_is_a_usage_error(given: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_target(given, namespace=None)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("given", ["deploy/app", "STS/shop/web", "node/worker-1"])
def test_other_type_of_kubectl_is_no_image(given: str) -> None:
    with pytest.raises(UsageError, match="is no type of a TARGET") as raised:
        parse_target(given, namespace=None)
    assert "its pods or claims" in raised.value.hint


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ([], None),
        (["pvc-1"], "pvc-1"),
        (["pvc"], "pvc"),
        (["pvc", "data"], "pvc/data"),
        (["Pods", "app"], "Pods/app"),
        (["pv", ""], "pv/"),
    ],
)
def test_type_and_name_are_one_target(words: list[str], target: str | None) -> None:
    assert joined_target(words) == target


@pytest.mark.parametrize("words", [["pv/a", "pv/b"], ["node", "n1"], ["", "a"], ["pvc", "a", "b"]])
def test_several_words_that_are_no_type_and_name_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="more than one TARGET") as raised:
        joined_target(words)
    assert "pvc data" in raised.value.hint


def test_namespace_that_contradicts_the_target_is_refused() -> None:
    with pytest.raises(UsageError, match="-n names other"):
        parse_target("pvc/shop/data", namespace="other")


@given(st.text(max_size=60))
def test_text_is_a_target_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert parse_target(text, namespace=None).argument == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1m30s", 90), ("2h", 7200), ("500ms", 0.5), ("10", 10), ("1.5s", 1.5)],
)
def test_duration_in_kubectl_format_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1s", "soon", "10 s", "inf", "nan"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^(could not convert string to float: '{text}'|{text})$"
    ):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('timout = "3s"', "timeout"),
        ('[[ceph]]\nnmae = "x"', "name"),
        ("timeout = ", "not TOML"),
        ('ceph = "x"', "[[ceph]] tables"),
    ],
)
def test_error_in_the_configuration_names_the_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_file(path, must_exist=True)
    assert words in f"{error.value} {error.value.hint}"
    assert str(path) in str(error.value)


def test_default_configuration_may_be_absent(tmp_path: Path) -> None:
    assert load_file(tmp_path / "none.toml", must_exist=False) == {}
    with pytest.raises(UsageError, match="no such file"):
        load_file(tmp_path / "none.toml", must_exist=True)


def test_recorded_stash_and_volume_data_are_parsed() -> None:
    """Parse the files of recording 12."""
    stash = parse_stash(
        b'{"Version":3,"pool":"k8s","radosNamespace":"","image":"csi-vol-a5","unmapOptions":"",'
        b'"accessType":false,"encrypted":false,"device":"","logDir":"","logFileStrategy":""}',
        where="image-meta.json",
    )
    assert stash.spec == ImageSpec(pool="k8s", name="csi-vol-a5")
    assert not stash.encrypted
    assert stash.device is None
    data = parse_volume_data(
        b'{"driverName":"rbd.csi.ceph.com","volumeHandle":"0001-x"}', where="vol_data.json"
    )
    assert (data.driver, data.volume_handle) == ("rbd.csi.ceph.com", "0001-x")
    assert data.persistent_volume is None


@given(st.binary(max_size=60))
def test_damaged_file_of_kubelet_is_a_parse_error(raw: bytes) -> None:
    for read in (parse_stash, parse_volume_data):
        try:
            read(raw, where="/var/lib/kubelet/x.json")
        except ParseError as error:
            assert "/var/lib/kubelet/x.json" in str(error)
