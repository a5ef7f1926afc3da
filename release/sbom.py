"""The bill of materials of the image: packages of PyPI and of Debian, in CycloneDX's JSON.

The .deb contains the bill of the packages from PyPI in it, each with the digest of its wheel
(packaging/build_deb.py). The image adds packages of Debian, which no generator for Python knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.lab.commands import output

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME: Final = "rbdagent-image.cdx.json"
PACKED: Final = "usr/share/rbdagent/sbom.cdx.json"
"""The bill of the .deb, where it is installed."""

_OWN: Final = "rbdagent"


def installed(root: Path) -> list[tuple[str, str, str]]:
    """Return name, version and architecture of each Debian package in a root, sorted."""
    fields = "${Package} ${Version} ${Architecture}\\n"
    found = output("dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "-W", "-f", fields)
    rows = (line.split() for line in found.splitlines())
    return sorted((name, version, architecture) for name, version, architecture in rows)


def bill_of_materials(
    packed: dict[str, Any], packages: Iterable[tuple[str, str, str]], *, suite: str
) -> dict[str, Any]:
    """Return the bill of the image.

    Args:
        packed: the bill of the .deb.
        packages: name, version and architecture of each Debian package; rbdagent is the subject.
        suite: the codename of the Debian.
    """
    others = (component(*package, suite=suite) for package in packages if package[0] != _OWN)
    return {**packed, "components": [*packed["components"], *others]}


def component(name: str, version: str, architecture: str, *, suite: str) -> dict[str, str]:
    """Return a Debian package as a component, with its package URL (purl-spec, type deb)."""
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}&distro={suite}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
