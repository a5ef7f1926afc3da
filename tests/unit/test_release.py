"""The parts of ./dev release that need no Debian root: refusals, statements, checks, the image."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import runpy
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent import __version__
from rbdagent.addresses import REPOSITORY
from release import __main__ as program
from release import build, checkout, checks, image
from release.artefacts import ARCHIVE, MANIFEST, build_plugin, with_time
from release.changelog import section
from release.checkout import Commit
from release.errors import ReleaseError
from release.provenance import (
    CHECKSUMS,
    PROVENANCE,
    UNSIGNED,
    checksums,
    digests,
    statement,
    write_provenance,
)
from release.sbom import bill_of_materials
from tests.lab.roots import IMAGE_PACKAGES
from tests.lab.venvs import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMMIT: Final = Commit("0a" * 20, 1_700_000_000)
CHANGES: Final = """\
# Changelog

## Unreleased

- next

## 0.2.0 - 2026-12-01

### Added

- more

## 0.1.0

- first
"""


# --------------------------------------------------------------------------------------------------
# Refusals
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "text"),
    [("0.2.0", "### Added\n\n- more\n"), ("0.1.0", "- first\n"), ("Unreleased", "- next\n")],
)
def test_section_is_the_text_below_the_heading(version: str, text: str) -> None:
    assert section(CHANGES, version) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CHANGES, "has 0 sections '## 0.3.0'; its sections: Unreleased, 0.2.0, 0.1.0"),
        ("# Changelog\n", "has 0 sections '## 0.3.0'; its sections: none"),
        ("## 0.3.0\n\n- a\n\n## 0.3.0\n\n- b\n", "has 2 sections"),
        ("## 0.3.0\n\n## 0.2.0\n\n- a\n", "the section '## 0.3.0' is empty"),
        ("### 0.3.0\n\n- a\n", "has 0 sections"),
        ("## 0.3.0rc1\n\n- a\n", "has 0 sections"),
    ],
)
def test_version_without_one_section_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ReleaseError) as error:
        section(text, "0.3.0")
    assert reason in str(error.value)
    assert "run this again" in str(error.value)


def test_changelog_has_the_version_of_the_checkout() -> None:
    assert section((CHECKOUT / "CHANGELOG.md").read_text(), __version__)


@pytest.mark.parametrize("changed", [" M README.md\n", "?? notes.txt\n"])
def test_checkout_with_a_change_is_refused(monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    monkeypatch.setattr(checkout, "output", lambda *_, **__: changed)
    with pytest.raises(ReleaseError) as error:
        checkout.require_clean_checkout()
    assert changed.strip() in str(error.value)
    assert "Commit these files or remove them" in str(error.value)


def test_clean_checkout_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "output", lambda *_, **__: "")
    checkout.require_clean_checkout()


def test_version_of_another_commit_is_refused() -> None:
    checkout.require_version("0.1.0", "0.1.0")
    with pytest.raises(ReleaseError, match=r"has version 0\.1\.0, not 0\.2\.0"):
        checkout.require_version("0.2.0", "0.1.0")


def test_directory_with_files_is_refused(tmp_path: Path) -> None:
    checkout.require_empty(tmp_path / "new")
    checkout.require_empty(tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(ReleaseError, match="not an empty directory"):
            checkout.require_empty(path)


def test_refused_release_builds_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "require_clean_checkout", lambda: None)
    assert program.main(["9.9.9", str(tmp_path / "out")]) == 1
    assert "./dev release: CHANGELOG.md has 0 sections '## 9.9.9'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("found", "written"), [([], True), (["a: its version is 1"], False)])
def test_files_that_fail_a_check_are_not_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: list[str], *, written: bool
) -> None:
    def make(out: Path, **_: object) -> None:
        (out / "made").touch()

    monkeypatch.setattr(build, "build", make)
    monkeypatch.setattr(build, "problems", lambda *_: found)
    directory = tmp_path / "new"
    expected = contextlib.nullcontext() if written else pytest.raises(ReleaseError, match="a: its")
    with expected:
        build.release(directory, version=__version__, commit=COMMIT, choice=build.Choice())
    names = {path.name for path in directory.iterdir()} if directory.exists() else set()
    assert names == ({"made", build.NOTES} if written else set())


# --------------------------------------------------------------------------------------------------
# Checksums and provenance
# --------------------------------------------------------------------------------------------------


def test_statement_names_subjects_commit_and_command() -> None:
    made = statement({"a.whl": "11"}, version="0.1.0", commit=COMMIT, lock="22")
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert made["subject"] == [{"name": "a.whl", "digest": {"sha256": "11"}}]
    definition = made["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["command"] == "./dev release 0.1.0"
    assert definition["resolvedDependencies"] == [
        {
            "uri": f"git+{REPOSITORY}@{COMMIT.digest}",
            "digest": {"gitCommit": COMMIT.digest},
        },
        {"name": "requirements.txt", "digest": {"sha256": "22"}},
    ]


def test_statement_states_that_it_is_unsigned() -> None:
    made = statement({}, version="0.1.0", commit=COMMIT, lock="")
    assert made["predicate"]["runDetails"]["rbdagent_signature"] == UNSIGNED
    assert "not signed" in UNSIGNED


def test_checksums_are_sorted_lines_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").write_text("")
    (tmp_path / CHECKSUMS).write_text("from before")
    first, second = checksums(digests(tmp_path)).splitlines()
    assert first == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a"
    assert second.endswith("  b")


# --------------------------------------------------------------------------------------------------
# Checks
# --------------------------------------------------------------------------------------------------


def tar_of(files: dict[str, str]) -> bytes:
    """Return a .tar.gz with these files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(text), 12345
            tar.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the files of version 0.1.0; programs of Debian are replaced."""
    out = tmp_path / "out"
    out.mkdir()
    with zipfile.ZipFile(out / "rbdagent-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("rbdagent-0.1.0.dist-info/METADATA", "Name: rbdagent\nVersion: 0.1.0\n\n")
    sdist = tar_of({"rbdagent-0.1.0/PKG-INFO": "Version: 0.1.0\n\n"})
    (out / "rbdagent-0.1.0.tar.gz").write_bytes(sdist)
    chart = tar_of({"rbdagent/Chart.yaml": 'version: 0.1.0\nappVersion: "0.1.0"\n'})
    (out / "rbdagent-0.1.0.tgz").write_bytes(chart)
    (out / "rbdagent_0.1.0_forky_amd64.deb").write_text("deb")
    build_plugin(out)
    root = tmp_path / "root"
    (root / "usr").mkdir(parents=True)
    image.write_archive(root, out / "i.oci.tar", version="0.1.0", commit=COMMIT)
    bill = {"metadata": {"component": {"version": "0.1.0"}}, "components": []}
    (out / "rbdagent-image.cdx.json").write_text(json.dumps(bill))
    monkeypatch.setattr(checks, "output", lambda *_: "0.1.0\n")
    rows = [f"-rw-r--r-- root/root 1 2026-11-25 16:00 ./{name}" for name in checks.DEB_FILES]
    monkeypatch.setattr(checks, "contents", lambda _: rows)
    write_provenance(out, version="0.1.0", commit=COMMIT, lock=CHECKOUT / "requirements.txt")
    return out


def test_complete_release_passes(files: Path) -> None:
    assert list(checks.problems(files, "0.1.0")) == []


def test_each_file_has_the_version_of_the_release(files: Path) -> None:
    found = list(checks.problems(files, "0.2.0"))
    assert {line.partition(":")[0] for line in found} == {
        path.name for path in files.iterdir() if path.name not in (CHECKSUMS, ARCHIVE)
    }
    assert "rbdagent-0.1.0.tgz: appVersion is 0.1.0, not 0.2.0" in found
    assert "rbdagent.yaml: its address is 0.1.0, not 0.2.0" in found


def test_missing_kind_of_file_is_a_problem(files: Path) -> None:
    (files / "i.oci.tar").unlink()
    assert "there is no file *.oci.tar" in list(checks.problems(files, "0.1.0"))


def test_deb_without_a_file_is_a_problem(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "contents", lambda _: ["- - - - - ./usr/bin/rbdagent"])
    found = list(checks.problems(files, "0.1.0"))
    name = "rbdagent_0.1.0_forky_amd64.deb"
    assert found == [f"{name}: {path} is missing" for path in checks.DEB_FILES[1:]]


def _change(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda out: _change(out / ARCHIVE), f"{MANIFEST} does not have the digest of {ARCHIVE}"),
        (lambda out: _change(out / MANIFEST), f"{CHECKSUMS} does not have the digests"),
        (lambda out: _change(out / MANIFEST), f"{PROVENANCE} does not have the digests"),
        (lambda out: (out / "more").touch(), f"{CHECKSUMS} does not have the digests"),
        (lambda out: (out / "i.oci.tar").unlink(), f"{PROVENANCE} does not have the digests"),
    ],
)
def test_changed_file_is_a_problem(
    files: Path, change: Callable[[Path], object], problem: str
) -> None:
    change(files)
    assert any(line.startswith(problem) for line in checks.problems(files, "0.1.0"))


# --------------------------------------------------------------------------------------------------
# Chart, bill of materials, image
# --------------------------------------------------------------------------------------------------


def test_archive_with_other_times_and_order_becomes_the_same() -> None:
    one = with_time(tar_of({"a": "1", "b": "2"}), epoch=COMMIT.epoch)
    other = with_time(tar_of({"b": "2", "a": "1"}), epoch=COMMIT.epoch)
    assert one == other
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        assert [(entry.name, entry.mtime) for entry in tar] == [
            ("a", COMMIT.epoch),
            ("b", COMMIT.epoch),
        ]
    assert gzip.decompress(one)


def test_bill_adds_debian_packages_to_those_of_pypi() -> None:
    packed: dict[str, Any] = {"metadata": {}, "components": [{"name": "click"}]}
    packages = [("python3-rbd", "2:20.2.4+ds-1", "amd64"), ("rbdagent", "0.1.0", "amd64")]
    components = bill_of_materials(packed, packages, suite="forky")["components"]
    purl = "pkg:deb/debian/python3-rbd@2%3A20.2.4%2Bds-1?arch=amd64&distro=forky"
    assert [component["name"] for component in components] == ["click", "python3-rbd"]
    assert components[1]["purl"] == components[1]["bom-ref"] == purl
    assert packed["components"] == [{"name": "click"}]


def test_image_root_has_what_the_deb_depends_on() -> None:
    script = runpy.run_path(str(CHECKOUT / "packaging" / "build_deb.py"))
    assert ("python3", *script["DEPENDS"]) == IMAGE_PACKAGES


def tree(directory: Path, *, time: int) -> Path:
    """Return a small file system whose files have a time."""
    (directory / "usr/bin").mkdir(parents=True)
    for name in ("usr/bin/rbdagent", "usr/bin/other"):
        (directory / name).write_text(name)
    (directory / "usr/bin/module.py").write_text("")
    (directory / "bin").symlink_to("usr/bin")
    os.link(directory / "usr/bin/other", directory / "usr/bin/same")
    for path in (directory, *directory.rglob("*")):
        os.utime(path, (time, time), follow_symlinks=False)
    os.utime(directory / "usr/bin/module.py", (1_800_000_000, 1_800_000_000))
    return directory


def test_image_built_later_has_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for number, time in enumerate((1_750_000_000, 1_760_000_000)):
        root = tree(tmp_path / f"root{number}", time=time)
        archive = tmp_path / f"{number}.oci.tar"
        image.write_archive(root, archive, version="0.1.0", commit=COMMIT)
        made.append(archive.read_bytes())
    assert made[0] == made[1]
    assert sorted(path.name for path in tmp_path.glob("*.layer")) == []


def test_layer_has_every_file_and_the_time_of_python_sources(tmp_path: Path) -> None:
    """A .pyc file records the time of its .py file."""
    layer = tmp_path / "layer"
    image.write_layer(tree(tmp_path / "root", time=1_750_000_000), layer, epoch=COMMIT.epoch)
    with tarfile.open(layer) as tar:
        members = {member.name: member for member in tar}
    assert list(members) == [
        "bin", "usr", "usr/bin", "usr/bin/module.py", "usr/bin/other", "usr/bin/rbdagent",
        "usr/bin/same",
    ]  # fmt: skip
    assert members["bin"].linkname == "usr/bin"
    assert members["usr/bin/same"].linkname == "usr/bin/other"
    times = {name: member.mtime for name, member in members.items()}
    assert times.pop("usr/bin/module.py") == 1_800_000_000
    assert set(times.values()) == {COMMIT.epoch}


def test_image_is_configured_as_the_containerfile_describes() -> None:
    layer = image.Blob("layer.v1.tar", "0a", 1)
    text = (CHECKOUT / "Containerfile").read_text()
    config = image.image_config(text, layer, "0.1.0", COMMIT)
    assert config["created"] == "2023-11-14T22:13:20Z"
    assert config["rootfs"]["diff_ids"] == ["sha256:0a"]
    described = config["config"]
    assert described["Entrypoint"] == ["rbdagent"]
    assert described["StopSignal"] == "SIGTERM"
    labels = described["Labels"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels["org.opencontainers.image.revision"] == COMMIT.digest
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert not [value for value in labels.values() if "$" in value]


def test_cleaned_root_has_nothing_of_the_machine(tmp_path: Path) -> None:
    kept = ("etc/passwd", "usr/bin/rbdagent", "var/lib/dpkg/status")
    removed = (
        "etc/resolv.conf", "etc/machine-id", "etc/passwd-", "run/lock/a", "var/log/dpkg.log",
        "var/log/apt/history.log", "var/lib/apt/lists/x", "var/lib/dpkg/status-old",
        "usr/sbin/policy-rc.d", "made-from", "tmp/.hidden",
    )  # fmt: skip
    for name in (*kept, *removed):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    image.clean(tmp_path)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(kept)
