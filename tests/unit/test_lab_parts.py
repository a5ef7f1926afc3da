"""A flag or an environment variable selects each version, which comes from one Debian suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab import developer
from tests.lab.apt import mirror_among
from tests.lab.demo import choose_parts
from tests.lab.errors import LabError
from tests.lab.kernels import _PACKAGES
from tests.lab.kubernetes import go_mod, kubernetes_module
from tests.lab.once import made_once
from tests.lab.parts import DEFAULT_KUBERNETES, OPTIONS, SUITES, chosen_parts, own_suite
from tests.lab.roots import Root, upstream_version

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "debian", "ceph", "kernel"),
    [
        ({}, "trixie", "trixie", "trixie"),
        ({"CEPH": "20.2"}, "trixie", "forky", "trixie"),
        ({"DEBIAN": "12"}, "bookworm", "bookworm", "bookworm"),
        ({"DEBIAN": "13"}, "trixie", "trixie", "trixie"),
        ({"DEBIAN": "forky"}, "forky", "forky", "forky"),
        ({"DEBIAN": "13", "CEPH": "16.2"}, "trixie", "bookworm", "trixie"),
        ({"DEBIAN": "12", "KERNEL": "5.10"}, "bookworm", "bookworm", "bullseye"),
        ({"DEBIAN": "12", "CEPH": "20.2", "KERNEL": "7"}, "bookworm", "forky", "forky"),
    ],
)
def test_ceph_and_kernel_default_to_those_of_the_debian_suite(
    given: dict[str, str], debian: str, ceph: str, kernel: str
) -> None:
    parts = chosen_parts({f"RBDAGENT_LAB_{name}": value for name, value in given.items()})
    assert (parts.debian.name, parts.ceph.name, parts.kernel.name) == (debian, ceph, kernel)
    assert (parts.kubernetes, parts.keys) == (DEFAULT_KUBERNETES, "aes")


@pytest.mark.parametrize(
    ("given", "node"),
    [
        ({}, "uml"),
        ({"CEPH": "20.2"}, "uml"),
        ({"DEBIAN": "13"}, "qemu"),
        ({"KERNEL": "5.10"}, "qemu"),
        ({"NODE": "qemu"}, "qemu"),
        ({"DEBIAN": "12", "NODE": "uml"}, "uml"),
    ],
)
def test_kernel_of_a_distribution_is_emulated(given: dict[str, str], node: str) -> None:
    parts = chosen_parts({f"RBDAGENT_LAB_{name}": value for name, value in given.items()})
    assert parts.node == node


@pytest.mark.parametrize(
    ("given", "has_kernel", "parts"),
    [
        ({}, False, ("qemu", "12")),
        ({}, True, ("uml", "13")),
        ({"RBDAGENT_LAB_NODE": "uml"}, False, ("uml", "13")),
        ({"RBDAGENT_LAB_CEPH": "20.2"}, False, ("uml", "13")),
    ],
)
def test_demo_emulates_its_nodes_until_their_kernel_is_built(
    given: dict[str, str], parts: tuple[str, str], *, has_kernel: bool
) -> None:
    bookworm = next(suite for suite in SUITES if suite.debian == "12")
    choose_parts(given, bookworm, has_kernel=has_kernel)
    chosen = chosen_parts(given)
    assert (chosen.node, chosen.debian.debian) == parts


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"NODE": "uml", "KERNEL": "6.1"}, "--kernel needs --node qemu"),
        ({"NODE": "kvm"}, "--node kvm: .* choose from uml, qemu"),
        ({"CEPH": "17.2"}, "--ceph 17.2: there is no such part; choose from 14.2, 16.2, 18.2"),
        ({"KERNEL": "6.8"}, "--kernel 6.8: .* choose from 5.10, 6.1, 6.12, 7"),
        ({"DEBIAN": "11"}, "--debian 11: .* choose from 12, 13, forky"),
        ({"KUBERNETES": "1.35"}, "--kubernetes 1.35: a version such as v1"),
        ({"MONITORS": "v3"}, "--monitors v3: .* choose from both, v1, v2"),
        ({"NETWORK": "ipv5"}, "--network ipv5: .* choose from ipv4, ipv6, dual"),
        ({"CEPH": "18.2", "KEYS": "aes256k"}, "--keys aes256k: Ceph 18.2 knows .* type aes$"),
    ],
)
def test_part_that_does_not_exist_is_refused(given: dict[str, str], words: str) -> None:
    environment = {"RBDAGENT_LAB_DEBIAN": "13"}
    environment |= {f"RBDAGENT_LAB_{name}": value for name, value in given.items()}
    with pytest.raises(LabError, match=words):
        chosen_parts(environment)


def test_each_version_has_one_suite() -> None:
    for axis in ("name", "debian", "ceph", "kernel"):
        values = [getattr(suite, axis) for suite in SUITES]
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("flag", [option.flag for option in OPTIONS])
def test_every_option_is_in_the_help(flag: str) -> None:
    assert flag in developer._options_help()


def test_options_are_removed_from_the_arguments_of_a_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in OPTIONS:
        monkeypatch.setenv(option.variable, "")
    args = ["--debian", "13", "-k", "founding", "--ceph=20.2", "-v"]
    assert developer._use_parts(args) == ["-k", "founding", "-v"]
    environment = developer._environment()
    assert environment["RBDAGENT_LAB_DEBIAN"] == "13"
    assert environment["RBDAGENT_LAB_CEPH"] == "20.2"


@pytest.mark.parametrize("codename", ["bookworm", "trixie"])
def test_suite_of_the_machine_is_read_from_os_release(tmp_path: Path, codename: str) -> None:
    (tmp_path / "os-release").write_text(f'PRETTY_NAME="x"\nVERSION_CODENAME={codename}\n')
    assert own_suite(tmp_path / "os-release").name == codename


def test_error_names_a_system_that_is_not_debian(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('PRETTY_NAME="Ubuntu 24.04"\nVERSION_CODENAME=noble\n')
    with pytest.raises(LabError, match=r"this is Ubuntu 24\.04"):
        own_suite(tmp_path / "os-release")


def test_mirror_is_that_of_the_main_archive() -> None:
    targets = (
        "https://deb.nodesource.com/node_20.x/ nodistro main\n"
        "http://security.debian.org/debian-security/ trixie-security main\n"
        "http://mirror.example/debian/ trixie-updates main\n"
        "http://mirror.example/debian/ trixie contrib\n"
        "http://mirror.example/debian/ trixie main\n"
    )
    assert mirror_among(targets) == "http://mirror.example/debian"
    with pytest.raises(LabError, match="no source"):
        mirror_among("http://mirror.example/ubuntu/ noble universe\n")


@pytest.mark.parametrize(
    ("package", "wanted"),
    [
        ("linux-image-6.12.107+deb13-amd64", True),
        ("linux-binary-7.2.12+deb14-amd64", True),
        ("linux-modules-7.2.12+deb14-amd64", True),
        ("linux-base-7.2.12+deb14-amd64", True),
        ("linux-base", False),
        ("linux-image-amd64", False),
        ("linux-libc-dev", False),
    ],
)
def test_kernel_is_unpacked_from_packages_of_both_layouts(package: str, wanted: bool) -> None:  # noqa: FBT001
    assert bool(_PACKAGES.fullmatch(package)) is wanted


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("18.2.7+ds-1", "18.2.7"),
        ("16.2.15+ds-0+deb12u2", "16.2.15"),
        ("1:20.2.4-2", "20.2.4"),
        ("14.2.21", "14.2.21"),
    ],
)
def test_upstream_version_is_part_of_the_debian_version(version: str, upstream: str) -> None:
    assert upstream_version(version) == upstream


def test_program_in_the_root_of_the_machine_needs_no_prefix(tmp_path: Path) -> None:
    own = Root(tmp_path.parents[-1])
    assert own.command(["ceph", tmp_path / "x"]) == ["ceph", str(tmp_path / "x")]


def test_tree_is_made_again_only_with_another_key(tmp_path: Path) -> None:
    target, made = tmp_path / "below" / "tree", []

    def make(directory: Path) -> None:
        made.append(directory)
        (directory / "file").touch()

    for key in ("one", "one", "two"):
        assert made_once(target, key, make) == target
        assert (target / "file").exists()
    assert len(made) == 2
    assert target not in made


def test_failed_attempt_keeps_the_previous_tree(tmp_path: Path) -> None:
    target = made_once(tmp_path / "tree", "one", lambda new: (new / "file").touch())

    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise LabError("no")

    with pytest.raises(LabError):
        made_once(target, "two", fail)
    assert (target / "file").exists()
    made_once(target, "three", lambda new: (new / "other").touch())
    assert {path.name for path in target.iterdir()} == {"other", "made-from"}


def test_other_kubernetes_version_has_its_own_staging_modules() -> None:
    default = (
        "module x\n\ngo 1.26.0\n\nrequire a v1.0.0\n\nreplace (\n"
        "\tk8s.io/api => k8s.io/api v0.36.3\n"
        "\tk8s.io/kubelet => k8s.io/kubelet v0.36.3\n)\n"
    )
    assert go_mod(default, "v1.35.2").splitlines() == [
        "module rbdagent.dev/lab",
        "go 1.26.0",
        "require k8s.io/kubernetes v1.35.2",
        "replace k8s.io/api => k8s.io/api v0.35.2",
        "replace k8s.io/kubelet => k8s.io/kubelet v0.35.2",
    ]


def test_default_kubernetes_is_built_from_the_checkout(tmp_path: Path) -> None:
    assert kubernetes_module(tmp_path / "cache", tmp_path, DEFAULT_KUBERNETES) == tmp_path
