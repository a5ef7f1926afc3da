"""The released files: sdist, wheel and .deb are built once, inspected and run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import pytest
from packaging.metadata import Metadata

from rbdagent import __version__
from rbdagent.collect.ceph.keys import can_use
from tests.integration.building import built, said
from tests.integration.clients import asked, own_librados
from tests.lab.install import CHECKOUT
from tests.lab.parts import chosen_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.lab.ceph import CephCluster

UNIT: Final = CHECKOUT / "systemd" / "rbdagent.service"
LIBRARY: Final = "usr/lib/rbdagent"
PAGE: Final = ("diagnose", "/dev/rbd0", "--from", "examples/true-orphan.json", "-o", "html")
"""The arguments of an answer that needs data files of the package, as does ``explain``."""


@pytest.fixture(scope="session")
def root(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the unpacked .deb; none of its scripts was run."""
    root = tmp_path_factory.mktemp("root")
    said(["dpkg-deb", "-x", deb, root])
    return root


def readme_line() -> list[str]:
    """Return the arguments of README's example that needs no Ceph, network or root."""
    lines = (CHECKOUT / "README.md").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("rbdagent who-holds pvc/")]
    return shlex.split(found, comments=True)[1:]


def answer(program: Path, arguments: Sequence[str]) -> str:
    """Return what a program prints about an example with findings: exit code 3."""
    done = subprocess.run(
        [str(program), *arguments],
        cwd=CHECKOUT,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "")
    return done.stdout


def modules() -> set[str]:
    """Return the files of the Python package in the checkout."""
    files = (CHECKOUT / "rbdagent").rglob("*")
    return {
        str(file.relative_to(CHECKOUT))
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    }


def pages() -> set[str]:
    """Return the runbooks in the checkout."""
    return {path.name for path in (CHECKOUT / "docs" / "runbooks").iterdir()}


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = modules() | {f"rbdagent/runbooks/{name}" for name in pages()}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "rbdagent/py.typed" in names


def test_the_wheels_metadata_is_valid_for_an_index(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"rbdagent-{__version__}.dist-info"
        metadata = Metadata.from_email(archive.read(f"{info}/METADATA"), validate=True)
        points = archive.read(f"{info}/entry_points.txt").decode()
    assert str(metadata.version) == __version__
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (CHECKOUT / "README.md").read_text()
    assert "rbdagent = rbdagent.__main__:main" in points


def test_the_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    again = built(tmp_path, "wheel") / wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_sdist_has_the_files_to_build_test_and_package(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.partition("/")[2] for member in archive.getnames()}
    assert modules() | {f"docs/runbooks/{name}" for name in pages()} <= names
    needed = {
        "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "mkdocs.yml", "dev",
        "Containerfile",
        "requirements.txt", "requirements-dev.txt",
        "examples/true-orphan.json", "packaging/build_deb.py", "release/__main__.py",
        "systemd/rbdagent.service", "tests/integration/test_packages.py",
        "docs/packages.md",
    }  # fmt: skip
    assert needed <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".git/")]


def test_the_wheel_runs_from_a_fresh_virtual_environment(wheel: Path, tmp_path: Path) -> None:
    """It borrows its PyPI dependencies; the tests of the .deb show that it declares them all."""
    venv = tmp_path / "venv"
    said([sys.executable, "-m", "venv", "--without-pip", venv])
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q"]
    said([*pip, "--no-deps", "--no-index", wheel])
    (site,) = venv.glob("lib/python3.*/site-packages")
    (site / "lent.pth").write_text(str(Path(click.__file__).parents[1]))
    assert said([venv / "bin" / "rbdagent", "version"]) == f"rbdagent {__version__}\n"
    assert "PINNED" in answer(venv / "bin" / "rbdagent", readme_line())
    assert "Orphaned" in answer(venv / "bin" / "rbdagent", PAGE)
    assert "\nCause: " in said([venv / "bin" / "rbdagent", "explain", "RBD102"])
    where = said([venv / "bin" / "python", "-Ic", "import rbdagent; print(rbdagent.__file__)"])
    assert Path(where.strip()).is_relative_to(site)


def test_the_deb_depends_on_its_python_and_on_ceph_bindings(deb: Path) -> None:
    control = message_from_string(said(["dpkg-deb", "-f", deb]))
    minor = sys.version_info.minor
    python = f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1}~)"
    assert control["Depends"] == f"{python}, libc6, python3-rados, python3-rbd"
    assert control["Recommends"] == "python3-kubernetes"
    assert control["Version"] == __version__
    assert control["Architecture"] == said(["dpkg", "--print-architecture"]).strip()


def test_the_deb_has_program_unit_drop_ins_and_completions(deb: Path) -> None:
    rows = [line.split(None, 5) for line in said(["dpkg-deb", "-c", deb]).splitlines()]
    modes = {row[5].removeprefix("./"): row[0] for row in rows}
    assert {row[1] for row in rows} == {"root/root"}
    assert modes["usr/bin/rbdagent"] == "-rwxr-xr-x"
    assert modes["usr/share/rbdagent/gather"] == "-rwxr-xr-x"
    for path in (
        "usr/lib/systemd/system/rbdagent.service",
        "usr/share/rbdagent/systemd/rbdagent-unmap.conf",
        "usr/share/rbdagent/systemd/rbdagent-unmap-staged.conf",
        "usr/share/bash-completion/completions/rbdagent",
        "usr/share/zsh/vendor-completions/_rbdagent",
        "usr/share/fish/vendor_completions.d/rbdagent.fish",
        "usr/share/doc/rbdagent/copyright",
        "usr/share/doc/rbdagent/changelog.gz",
        "usr/share/doc/rbdagent/CHANGELOG.md.gz",
        "usr/share/lintian/overrides/rbdagent",
        "usr/share/man/man1/rbdagent.1.gz",
    ):
        assert modes[path] == "-rw-r--r--"
    in_etc = {path for path in modes if path.startswith("etc/")}
    assert in_etc == {"etc/", "etc/rbdagent/"}, "nothing is switched on"
    assert not [mode for mode in modes if "__pycache__" in mode or f"{LIBRARY}/tests" in mode]
    assert f"{LIBRARY}/kubernetes/" not in modes


def test_the_debs_program_runs_with_only_debians_python(root: Path) -> None:
    """The program gets neither PATH nor a virtual environment from the caller."""
    program = root / "usr/bin/rbdagent"
    assert program.read_text().startswith("#!/usr/bin/python3 -I\n")
    assert said([program, "version"]) == f"rbdagent {__version__}\n"
    assert "PINNED" in answer(program, readme_line())
    assert "Orphaned" in answer(program, PAGE)
    assert "\nCause: " in said([program, "explain", "RBD102"])


def test_the_debs_program_queries_ceph(
    root: Path, ceph: CephCluster, record_property: Callable[[str, object], None]
) -> None:
    """It uses the librados that it depends on and the key type that the cluster creates."""
    ceph.create_image("k8s/packaged")
    answer = asked([root / "usr/bin/rbdagent"], ceph, "k8s/packaged")
    source = answer["sources"]["ceph"]
    if can_use(chosen_parts().keys, own_librados()):
        assert source["state"] == "observed", source
        assert answer["image"]["id"]
        return
    assert source["state"] == "failed"
    assert f"its key is of type {chosen_parts().keys}" in source["reason"]
    record_property("said", source["reason"])


@pytest.mark.parametrize(
    "path", ["usr/share/bash-completion/completions/rbdagent", "DEBIAN/postinst",
             "DEBIAN/prerm", "DEBIAN/postrm"]
)  # fmt: skip
def test_the_debs_scripts_have_valid_syntax(root: Path, deb: Path, path: str) -> None:
    said(["dpkg-deb", "-e", deb, root / "DEBIAN"])
    said(["bash", "-n", root / path])


def test_the_sbom_names_every_packed_dependency(root: Path) -> None:
    share = root / "usr/share/rbdagent"
    bill = json.loads((share / "sbom.cdx.json").read_text())
    packed = {f"{component['name']}-{component['version']}" for component in bill["components"]}
    there = {path.name.removesuffix(".dist-info") for path in (root / LIBRARY).glob("*.dist-info")}
    assert {path.lower() for path in packed} == {path.lower() for path in there} - {
        f"rbdagent-{__version__}"
    }
    locked = (share / "requirements.txt").read_text()
    for component in bill["components"]:
        digest = component["hashes"][0]["content"]
        assert f"{component['name']}=={component['version']} --hash=sha256:{digest}\n" in locked


def test_each_packed_wheel_has_a_locked_digest(root: Path) -> None:
    packed = (root / "usr/share/rbdagent/requirements.txt").read_text().split()
    digests = {word for word in packed if word.startswith("--hash=")}
    assert digests
    assert digests <= set((CHECKOUT / "requirements.txt").read_text().split())


def test_the_package_has_the_directory_of_the_freeze_file(root: Path) -> None:
    """Without this directory the file is not observed, and nothing is unmapped."""
    assert (root / "etc/rbdagent").is_dir()


def test_the_files_have_the_digests_that_dpkg_verifies(root: Path, deb: Path) -> None:
    said(["dpkg-deb", "-e", deb, root / "DEBIAN"])
    said(["env", "-C", root, "md5sum", "--check", "--quiet", "DEBIAN/md5sums"])


def as_the_unit(*command: object, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program as the unit does: as uid 65534, with its capabilities, beside root's process 1.

    Process 1 is a shell in a separate pid namespace: the machine's process 1 may be unreadable.
    """
    settings = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line)
    rights = settings["CapabilityBoundingSet"].lower().replace("cap_", "").split()
    kept = ",".join(f"+{right}" for right in rights if right != without)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    nobody += [f"--bounding-set=-all,{kept}", f"--inh-caps=-all,{kept}", f"--ambient-caps={kept}"]
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    return subprocess.run(
        [*apart, *shell, *nobody, *map(str, command), "--host-root", "/proc/1/root"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_units_rights_show_the_whole_node(root: Path, tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet"
    for directory in (kubelet, kubelet / "pods", kubelet / "plugins"):
        directory.mkdir(mode=0o700)
    observing = ("check", "-v", "--no-ceph", "--no-kube", "--kubelet-root", kubelet)
    done = as_the_unit(root / "usr/bin/rbdagent", *observing)
    assert done.returncode == 0, done.stdout
    assert "ok      kubelet's pod directories can be seen" in done.stdout


def test_without_sys_ptrace_the_node_is_not_fully_seen(root: Path) -> None:
    program = [root / "usr/bin/rbdagent", "check", "--no-ceph", "--no-kube"]
    done = as_the_unit(*program, without="sys_ptrace")
    assert done.returncode == 1
    assert "FAILED  kubelet's pod directories cannot be seen" in done.stdout


def test_the_agent_runs_beside_lock_files_of_root(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The state directory has lock files of root, which the unit may only read."""
    state = tmp_path_factory.mktemp("state")
    for name in ("agent.lock", ".acts.lock"):
        (state / name).touch(mode=0o644)
    os.chown(state, 65534, 65534)
    agent = [root / "usr/bin/rbdagent", "agent", "--once", "--no-ceph", "--no-kube"]
    done = as_the_unit(*agent, "--state-dir", state)
    assert done.returncode == 0, done.stderr
    (seen,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (seen["event"], seen["failed"]) == ("changed", {})
    assert (state / "history.json").stat().st_uid == 65534
