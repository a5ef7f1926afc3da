"""The wheel, the sdist, the .deb, the chart and the plugin: each from the same time and commit."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release import plugin
from release.provenance import digest
from tests.lab.commands import output
from tests.lab.roots import root_of
from tests.lab.venvs import CHECKOUT, inside, venv_of, venv_place

if TYPE_CHECKING:
    from tests.lab.parts import Suite

ARCHIVE: Final = "kubectl-rbdagent.zip"
"""The plugin; the manifest for krew has its address."""
MANIFEST: Final = "rbdagent.yaml"

_BUILD_DEB: Final = CHECKOUT / "packaging" / "build_deb.py"
_CHART: Final = CHECKOUT / "helm" / "rbdagent"


def build_python(out: Path, *, epoch: int) -> Path:
    """Build the sdist and the wheel with hatchling, as pip does, and return the wheel."""
    build = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", out)
    output(*build, cwd=CHECKOUT, env={"SOURCE_DATE_EPOCH": str(epoch)})
    (wheel,) = out.glob("*.whl")
    return wheel


def build_deb(
    cache: Path, wheel: Path, out: Path, suite: Suite, *, epoch: int, compression: str
) -> Path:
    """Build the package of a wheel with the Python of a Debian suite, and return its path.

    Args:
        cache: the project's cache directory, with the suite's root.
        wheel: rbdagent's own, below the directory of temporary files, which the root shares.
        out: the directory of the package, there too.
        suite: whose Python the package fits.
        epoch: the time of its files, in seconds.
        compression: as ``dpkg-deb -Z`` takes it.
    """
    place = venv_place(cache)
    options = ("--out", out, "--compression", compression)
    build = (place / "bin" / "python", _BUILD_DEB, wheel, *options)
    command = inside(root_of(cache, suite), build, {place: venv_of(cache, suite)})
    return Path(output(*command, env={"SOURCE_DATE_EPOCH": str(epoch)}).strip())


def build_chart(helm: Path, out: Path, *, epoch: int) -> Path:
    """Package the chart, and return the archive.

    Helm records the current time in it, so the archive is written again without.
    """
    output(helm, "package", _CHART, "--destination", out)
    (archive,) = out.glob("*.tgz")
    archive.write_bytes(with_time(archive.read_bytes(), epoch=epoch))
    return archive


def with_time(archive: bytes, *, epoch: int) -> bytes:
    """Return a .tar.gz with the same files, sorted, and with one time, mode and owner."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for name in sorted(old.getnames()):
            content = old.extractfile(name)
            if content is None:
                continue
            member = tarfile.TarInfo(name)
            data = content.read()
            member.size, member.mode, member.mtime = len(data), 0o644, epoch
            new.addfile(member, io.BytesIO(data))
    return gzip.compress(made.getvalue(), mtime=0)


def build_plugin(out: Path) -> None:
    """Write the plugin's archive, and the manifest with which krew installs it."""
    plugin.write_archive(out / ARCHIVE)
    (out / MANIFEST).write_text(plugin.manifest(digest(out / ARCHIVE)))
