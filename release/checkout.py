"""What a release is made from, and when it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from release.errors import ReleaseError
from tests.lab.commands import output
from tests.lab.venvs import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path


class Commit(NamedTuple):
    """The commit that is checked out."""

    digest: str
    epoch: int
    """Its time, in seconds: the time of all files of the release."""


def current_commit() -> Commit:
    """Return the commit that is checked out."""
    digest, epoch = output("git", "log", "-1", "--format=%H %ct", cwd=CHECKOUT).split()
    return Commit(digest, int(epoch))


def require_clean_checkout() -> None:
    """Refuse a checkout that differs from its commit.

    Raises:
        ReleaseError: a file is changed, or is not part of the commit.
    """
    if changed := output("git", "status", "--porcelain", cwd=CHECKOUT).rstrip():
        raise ReleaseError(
            f"the checkout differs from its commit:\n{changed}\n"
            "  Commit these files or remove them, and run this again"
        )


def require_version(version: str, own: str) -> None:
    """Refuse a version other than that of the checkout.

    Raises:
        ReleaseError: the checkout has another version.
    """
    if version != own:
        raise ReleaseError(
            f"this checkout has version {own}, not {version}.\n"
            f"  Check out the commit of {version}, or set the version in pyproject.toml,"
            " rbdagent/__init__.py,\n  helm/rbdagent/Chart.yaml, plugin/rbdagent.yaml and"
            " Containerfile, and commit it"
        )


def require_empty(directory: Path) -> None:
    """Refuse a directory that has files, which could be taken for a part of the release.

    Raises:
        ReleaseError: it is not empty, or not a directory.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ReleaseError(
            f"{directory} is not an empty directory.\n  Remove it, or name another directory"
        )
