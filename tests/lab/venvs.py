"""The virtual environments that have rbdagent: one for the Python of each Debian suite.

Programs see all of them at the same path, ``venv`` below the cache. For a suite that is not the
machine's own, another directory is mounted there. Standard library only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.commands import output
from tests.lab.once import made_once
from tests.lab.parts import own_suite
from tests.lab.roots import Root, root_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lab.parts import Suite

CHECKOUT = Path(__file__).resolve().parents[2]
REQUIREMENTS = CHECKOUT / "requirements-dev.txt"
FLOORS = CHECKOUT / "requirements-floors.txt"
"""The oldest allowed version of each package that rbdagent needs; the newest of all others."""

# pip's configuration on this machine: a proxy's certificates, an index, names.
_NETWORK = (
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/ssl/certs"),
    *("/etc/pip.conf", "/etc/xdg/pip", str(Path.home() / ".config/pip")),
)


def venv_place(cache: Path) -> Path:
    """Return the path at which programs find their virtual environment."""
    return cache / "venv"


def floors_place(cache: Path) -> Path:
    """Return the path of the virtual environment with the packages of :data:`FLOORS`."""
    return cache / "venv-floors"


def quick_place(cache: Path) -> Path:
    """Return the path of the virtual environment that sees no package of the system."""
    return cache / "venv-quick"


def venv_of(cache: Path, suite: Suite) -> Path:
    """Return the directory of the virtual environment for a suite's Python.

    :mod:`tests.lab.install` makes that of the machine's own suite.

    Args:
        cache: the project's cache directory.
        suite: the suite of the Python.

    Raises:
        LabError: it cannot be made.
    """
    if suite == own_suite():
        return venv_place(cache)
    root = root_of(cache, suite)
    place = venv_place(cache)
    packages, checkout = install_commands(place / "bin" / "python")

    def make(directory: Path) -> None:
        for command in (("python3", "-m", "venv", "--system-site-packages", place), packages):
            output(*inside(root, command, {place: directory}))

    key = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    made = made_once(cache / "venvs" / suite.name, key, make)
    # Another checkout needs no new packages, which take half a minute.
    has_checkout, wanted = made / "checkout.made-from", hashlib.sha256(made_from()).hexdigest()
    if not has_checkout.exists() or has_checkout.read_text() != wanted:
        output(*inside(root, checkout, {place: made}))
        has_checkout.write_text(wanted)
    return made


def install_commands(
    python: Path, requirements: Path = REQUIREMENTS
) -> tuple[tuple[str | Path, ...], tuple[str | Path, ...]]:
    """Return the commands that fill a virtual environment: the locked packages, and the checkout.

    No source distribution is built: pip checks no digest of what builds one. The locked hatchling
    builds the checkout itself.

    Args:
        python: of the virtual environment.
        requirements: the list of the locked packages.
    """
    pip = (python, "-m", "pip", "install", "--disable-pip-version-check")
    return (
        (*pip, "--require-hashes", "--only-binary=:all:", "-r", requirements),
        (*pip, "--no-index", "--no-deps", "--no-build-isolation", "-e", CHECKOUT),
    )


def made_from(requirements: Path = REQUIREMENTS) -> bytes:
    """Return what identifies the content of a virtual environment, except for its Python."""
    files = (CHECKOUT / "pyproject.toml", requirements)
    return b"\0".join((*(file.read_bytes() for file in files), bytes(CHECKOUT)))


def inside(
    root: Root, argv: Sequence[str | Path], mounted: dict[Path, Path] | None = None
) -> list[str]:
    """Return the command that runs ``argv`` in a root with the checkout and a network."""
    network = [path for path in map(Path, _NETWORK) if path.exists()]
    return root.command(argv, shared=(CHECKOUT, *network), mounted=mounted)
