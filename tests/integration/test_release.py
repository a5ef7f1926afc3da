"""./dev release: two runs give the same files, and they pass the checks of a release."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rbdagent import __version__
from release.build import Choice, build
from release.checkout import current_commit
from release.checks import lint, member, problems
from release.provenance import CHECKSUMS, digests
from release.sbom import NAME as BILL
from tests.integration.building import said
from tests.lab.parts import image_base
from tests.lab.roots import Root

if TYPE_CHECKING:
    from pathlib import Path

CHOICE = Choice(debians=(image_base(),), compression="gzip", current=False)
"""One .deb, and the packages of an existing image root: all that a release has takes longer."""


def made_in(directory: Path) -> Path:
    """Return a directory with the files of a release of the current commit."""
    build(directory, version=__version__, commit=current_commit(), choice=CHOICE)
    return directory


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_in(tmp_path_factory.mktemp("release"))


def test_second_run_gives_identical_files(files: Path, tmp_path: Path) -> None:
    assert digests(made_in(tmp_path)) == digests(files)


def test_files_pass_the_checks_of_a_release(files: Path) -> None:
    assert list(problems(files, __version__)) == []


def test_sha256sum_verifies_the_files(files: Path) -> None:
    said(["env", "-C", files, "sha256sum", "--check", "--quiet", CHECKSUMS])


def test_lintian_reports_no_error_and_no_warning(files: Path) -> None:
    (deb,) = files.glob("*.deb")
    assert lint(deb) == []


def test_man_page_is_found_and_formatted(files: Path, tmp_path: Path) -> None:
    (deb,) = files.glob("*.deb")
    said(["dpkg-deb", "-x", deb, tmp_path])
    page = said(["man", "--local-file", tmp_path / "usr/share/man/man1/rbdagent.1.gz"])
    assert f"rbdagent {__version__}" in page


def test_image_runs_the_program(files: Path, tmp_path: Path) -> None:
    (archive,) = files.glob("*.oci.tar")
    (manifest,) = json.loads(member(archive, r"index\.json"))["manifests"]
    layers = json.loads(member(archive, blob(manifest)))["layers"]
    root = tmp_path / "root"
    root.mkdir()
    said(["tar", "--extract", "--file", archive, "--directory", tmp_path])
    said(["tar", "--extract", "--file", tmp_path / blob(layers[0]), "--directory", root])
    assert said(Root(root).command(["rbdagent", "version"])) == f"rbdagent {__version__}\n"
    said(Root(root).command(["python3", "-c", "import rados, rbd"]))


def blob(descriptor: dict[str, str]) -> str:
    """Return the name of a part of an image."""
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def test_bill_names_the_packages_that_the_deb_depends_on(files: Path) -> None:
    components = json.loads((files / BILL).read_text())["components"]
    names = {component["name"] for component in components}
    assert {"click", "msgspec", "python3", "python3-rados", "python3-rbd"} <= names
    assert all(component["purl"] for component in components)
