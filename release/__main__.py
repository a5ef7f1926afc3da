"""``./dev release VERSION [DIRECTORY]``: refuse, or build and check all files of a version."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rbdagent import __version__
from release.build import Choice, release
from release.changelog import section
from release.checkout import (
    current_commit,
    require_clean_checkout,
    require_empty,
    require_version,
)
from release.errors import ReleaseError
from tests.lab.errors import LabError
from tests.lab.venvs import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Write the release; return 1 if it is refused or a check fails."""
    parser = argparse.ArgumentParser(
        prog="./dev release", description="Build, check and write all files of a version."
    )
    parser.add_argument("version", metavar="VERSION", help="such as 0.1.0")
    parser.add_argument(
        "directory", metavar="DIRECTORY", nargs="?", type=Path, help="by default dist/VERSION"
    )
    given = parser.parse_args(argv)
    directory: Path = given.directory or CHECKOUT / "dist" / given.version
    try:
        section((CHECKOUT / "CHANGELOG.md").read_text(), given.version)
        require_version(given.version, __version__)
        require_empty(directory)
        require_clean_checkout()
        release(directory, version=given.version, commit=current_commit(), choice=Choice())
    except (ReleaseError, LabError) as error:
        print(f"./dev release: {error}", file=sys.stderr)
        return 1
    print(f"{directory} has the files of {given.version}; they are not signed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
