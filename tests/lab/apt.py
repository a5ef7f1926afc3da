"""Packages of any Debian suite, without a change to this machine's own apt.

The mirror, proxies and certificates are those that the machine's apt is configured with; the lists,
the state and the archives of each suite are below the cache. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from tests.lab.commands import output
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.lab.parts import Suite

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# The Release file of a suite that is no longer maintained has expired.
_SOURCE_OPTIONS = f"signed-by={KEYRING} check-valid-until=no"
_INSTALLS = re.compile(r"^Inst (\S+)", re.MULTILINE)


class Apt:
    """The apt of one suite.

    Args:
        cache: the project's cache directory.
        suite: the suite of the packages.
        status: dpkg's database of the target system; by default one without packages.
    """

    def __init__(self, cache: Path, suite: Suite, *, status: Path | None = None) -> None:
        self._dir = cache / "apt" / suite.name
        self._suite = suite
        self._status = status or self._dir / "nothing-installed"

    def update(self) -> None:
        """Fetch the lists of packages."""
        for part in ("state/lists/partial", "cache/archives/partial"):
            (self._dir / part).mkdir(parents=True, exist_ok=True)
        (self._dir / "nothing-installed").touch()
        source = f"deb [{_SOURCE_OPTIONS}] {mirror()} {self._suite.name} main\n"
        (self._dir / "sources.list").write_text(source)
        self._apt_get("update")

    def index_digest(self) -> str:
        """Return a digest of the suite's index, which changes with each change of a package."""
        indices = sorted((self._dir / "state" / "lists").glob("*InRelease"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in indices)).hexdigest()

    def needed(self, package: str) -> tuple[str, ...]:
        """Return the packages that an installation of ``package`` would bring."""
        return tuple(_INSTALLS.findall(self._apt_get("install", "--simulate", package)))

    def download(self, packages: Sequence[str], directory: Path) -> None:
        """Download these packages without their dependencies, as files below ``directory``."""
        self._apt_get("download", *packages, cwd=directory)

    def download_needed(self, packages: Sequence[str], archives: Path) -> None:
        """Download these packages and their dependencies, as files below ``archives``."""
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        self._apt_get(
            "install", "--download-only", "-o", f"Dir::Cache::archives={archives}", *packages
        )

    def _apt_get(self, verb: str, *args: str, cwd: Path | None = None) -> str:
        settings = {
            "Dir::Etc::sourcelist": self._dir / "sources.list",
            "Dir::Etc::sourceparts": self._dir / "none",
            "Dir::Etc::preferences": self._dir / "none",
            "Dir::Etc::preferencesparts": self._dir / "none",
            "Dir::State": self._dir / "state",
            "Dir::State::status": self._status,
            "Dir::Cache": self._dir / "cache",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        options = [word for pair in settings.items() for word in ("-o", f"{pair[0]}={pair[1]}")]
        return output("apt-get", "-q", "-y", *options, verb, *args, cwd=cwd)


def mirror() -> str:
    """Return the URI from which this machine installs the packages of its suite.

    Raises:
        LabError: its apt has no source of Debian's packages.
    """
    listed = output(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    )  # fmt: skip
    return mirror_among(listed)


def mirror_among(targets: str) -> str:
    """Return the URI of Debian's main archive from lines of URI, suite and component.

    The archive of security updates has no other suites; names with a dash belong to such archives.

    Raises:
        LabError: no line has it.
    """
    for line in targets.splitlines():
        uri, suite, component = line.split()
        if component == "main" and "-" not in suite and "/debian" in uri:
            return uri.rstrip("/")
    raise LabError("apt has no source of Debian's main archive; see /etc/apt/sources.list.d")


def proxy() -> str:
    """Return the proxy that apt is configured with, or an empty string."""
    answer = output("apt-config", "shell", "PROXY", "Acquire::http::Proxy")
    return answer.strip().removeprefix("PROXY=").strip("'")
