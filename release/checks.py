"""Check the files of a release: each has its version, and the digests agree."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from typing import TYPE_CHECKING, Any, Final

import yaml

from release import sbom
from release.artefacts import ARCHIVE, MANIFEST
from release.provenance import CHECKSUMS, PROVENANCE, checksums, digest, digests
from tests.lab.commands import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

DEB_FILES: Final = (
    "usr/bin/rbdagent",
    "usr/lib/rbdagent/rbdagent/__main__.py",
    "usr/lib/systemd/system/rbdagent.service",
    "usr/share/bash-completion/completions/rbdagent",
    "usr/share/doc/rbdagent/changelog.gz",
    "usr/share/doc/rbdagent/copyright",
    "usr/share/man/man1/rbdagent.1.gz",
    "usr/share/rbdagent/sbom.cdx.json",
)
"""What each .deb must install."""


def problems(directory: Path, version: str) -> Iterator[str]:
    """Yield what is wrong with the files of a release; nothing if it is complete."""
    for pattern, versions_of in VERSIONS.items():
        found = sorted(directory.glob(pattern))
        if not found:
            yield f"there is no file {pattern}"
        for path in found:
            for what, value in versions_of(path).items():
                if value != version:
                    yield f"{path.name}: {what} is {value}, not {version}"
    yield from missing_from_debs(directory)
    yield from wrong_digests(directory)


def missing_from_debs(directory: Path) -> Iterator[str]:
    """Yield each file that a .deb does not install."""
    for deb in sorted(directory.glob("*.deb")):
        names = {line.split()[-1].removeprefix("./") for line in contents(deb)}
        yield from (f"{deb.name}: {name} is missing" for name in DEB_FILES if name not in names)


def contents(deb: Path) -> list[str]:
    """Return the rows of a package's files."""
    return output("dpkg-deb", "--contents", deb).splitlines()


def wrong_digests(directory: Path) -> Iterator[str]:
    """Yield each file whose digest is not the recorded one: by sums, statement and manifest."""
    found = digests(directory)
    if (directory / CHECKSUMS).read_text() != checksums(found):
        yield f"{CHECKSUMS} does not have the digests of the files"
    statement = json.loads((directory / PROVENANCE).read_text())
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    if subjects != {name: value for name, value in found.items() if name != PROVENANCE}:
        yield f"{PROVENANCE} does not have the digests of the files"
    (platform,) = yaml.safe_load((directory / MANIFEST).read_text())["spec"]["platforms"]
    if platform["sha256"] != digest(directory / ARCHIVE):
        yield f"{MANIFEST} does not have the digest of {ARCHIVE}"
    if not platform["uri"].endswith(f"/{ARCHIVE}"):
        yield f"{MANIFEST} does not have the address of {ARCHIVE}"


def lint(deb: Path) -> list[str]:
    """Return the errors and warnings of lintian about a package, without the accepted ones."""
    command = ["lintian", "--fail-on", "error,warning", "--tag-display-limit", "0", str(deb)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [f"{deb.name}: {line}" for line in (done.stdout or done.stderr).splitlines()]


def of_wheel(path: Path) -> Mapping[str, str]:
    """Return the version in the metadata of a wheel."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return {"its metadata": message_from_bytes(archive.read(name))["Version"]}


def of_sdist(path: Path) -> Mapping[str, str]:
    """Return the version in the metadata of an sdist."""
    text = member(path, r"[^/]+/PKG-INFO")
    return {"its metadata": message_from_bytes(text)["Version"]}


def of_deb(path: Path) -> Mapping[str, str]:
    """Return the version of a Debian package."""
    return {"its version": output("dpkg-deb", "--field", path, "Version").strip()}


def of_chart(path: Path) -> Mapping[str, str]:
    """Return the versions of the chart and of the image that it installs."""
    chart = yaml.safe_load(member(path, r"[^/]+/Chart\.yaml"))
    return {name: str(chart[name]) for name in ("version", "appVersion")}


def of_manifest(path: Path) -> Mapping[str, str]:
    """Return the versions in krew's manifest: its own, and that of the address."""
    spec = yaml.safe_load(path.read_text())["spec"]
    (platform,) = spec["platforms"]
    (of_address,) = re.findall(r"/v([^/]+)/[^/]+$", platform["uri"])
    return {"spec.version": spec["version"].removeprefix("v"), "its address": of_address}


def of_image(path: Path) -> Mapping[str, str]:
    """Return the version in the label of an image."""
    (manifest,) = json.loads(member(path, r"index\.json"))["manifests"]
    config = _blob(path, _blob(path, manifest)["config"])
    return {"its label": config["config"]["Labels"]["org.opencontainers.image.version"]}


def _blob(path: Path, descriptor: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    return json.loads(member(path, f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"))


def of_bill(path: Path) -> Mapping[str, str]:
    """Return the version of the subject of a bill of materials."""
    return {"its subject": json.loads(path.read_text())["metadata"]["component"]["version"]}


def of_statement(path: Path) -> Mapping[str, str]:
    """Return the version in the statement of the build."""
    definition = json.loads(path.read_text())["predicate"]["buildDefinition"]
    return {"its parameter": definition["externalParameters"]["version"]}


def member(archive: Path, pattern: str) -> bytes:
    """Return the one file of a tar archive whose name the pattern matches."""
    with tarfile.open(archive) as tar:
        (name,) = [name for name in tar.getnames() if re.fullmatch(pattern, name)]
        content = tar.extractfile(name)
        return content.read() if content else b""


VERSIONS: Final[Mapping[str, Callable[[Path], Mapping[str, str]]]] = {
    "*.whl": of_wheel,
    "*.tar.gz": of_sdist,
    "*.deb": of_deb,
    "*.tgz": of_chart,
    MANIFEST: of_manifest,
    "*.oci.tar": of_image,
    sbom.NAME: of_bill,
    PROVENANCE: of_statement,
}
"""Each kind of file, and how its versions are read."""
