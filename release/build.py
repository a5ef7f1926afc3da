"""Build all files of a release, and check them, before the directory of the release has any."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from release import image, sbom
from release.artefacts import build_chart, build_deb, build_plugin, build_python
from release.changelog import section
from release.checks import lint, problems
from release.errors import ReleaseError
from release.provenance import write_provenance
from tests.lab.install import bin_dir, cache_dir
from tests.lab.parts import USERLANDS, image_base
from tests.lab.venvs import CHECKOUT

if TYPE_CHECKING:
    from release.checkout import Commit
    from tests.lab.parts import Suite

NOTES: Final = "RELEASE_NOTES.md"


class Choice(NamedTuple):
    """What a test may reduce; a release has the default of each."""

    debians: tuple[Suite, ...] = USERLANDS
    """For each, there is a .deb: it fits one minor version of Python."""
    compression: str = "xz"
    """Of the .deb, as ``dpkg-deb -Z`` takes it."""
    current: bool = True
    """The image has the newest packages of its Debian."""


def release(directory: Path, *, version: str, commit: Commit, choice: Choice) -> None:
    """Write the files of a version into a directory, if all checks pass.

    Raises:
        ReleaseError: a check failed; the directory is unchanged.
        LabError: a program failed.
    """
    notes = section((CHECKOUT / "CHANGELOG.md").read_text(), version)
    with tempfile.TemporaryDirectory(prefix="rbdagent-release-") as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        (out / NOTES).write_text(notes)
        build(out, version=version, commit=commit, choice=choice)
        print("checks", flush=True)
        found = [
            *problems(out, version),
            *(line for deb in out.glob("*.deb") for line in lint(deb)),
        ]
        if found:
            listed = "\n".join(f"  {problem}" for problem in found)
            raise ReleaseError(f"the files were built, and are not released:\n{listed}")
        shutil.copytree(out, directory, dirs_exist_ok=True)


def build(out: Path, *, version: str, commit: Commit, choice: Choice) -> None:
    """Build the files of a release."""
    print("wheel, sdist", flush=True)
    wheel = build_python(out, epoch=commit.epoch)
    debs = {suite: deb_of(suite, wheel, out, commit, choice) for suite in choice.debians}
    print("chart, plugin", flush=True)
    build_chart(bin_dir() / "helm", out, epoch=commit.epoch)
    build_plugin(out)
    build_image(debs, out, version=version, commit=commit, choice=choice)
    write_provenance(out, version=version, commit=commit, lock=CHECKOUT / "requirements.txt")


def deb_of(suite: Suite, wheel: Path, out: Path, commit: Commit, choice: Choice) -> Path:
    """Build the .deb of a Debian; the codename in its file name distinguishes it from others."""
    print(f".deb for Debian {suite.debian}", flush=True)
    built = build_deb(
        cache_dir(), wheel, out, suite, epoch=commit.epoch, compression=choice.compression
    )
    name, version, architecture = built.stem.split("_")
    return built.rename(out / f"{name}_{version}_{suite.name}_{architecture}.deb")


def build_image(
    debs: dict[Suite, Path], out: Path, *, version: str, commit: Commit, choice: Choice
) -> None:
    """Write the image and its bill of materials."""
    suite = image_base()
    print(f"image with Debian {suite.debian}", flush=True)
    archive = out / f"rbdagent-image-{version}.oci.tar"
    current = choice.current
    with image.installed_root(cache_dir(), suite, debs[suite], current=current) as root:
        image.write_archive(root, archive, version=version, commit=commit)
        packed = json.loads((root / sbom.PACKED).read_text())
        bill = sbom.bill_of_materials(packed, sbom.installed(root), suite=suite.name)
    (out / sbom.NAME).write_text(json.dumps(bill, indent=2) + "\n")
