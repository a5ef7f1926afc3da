"""Check the wording of files: ``python -m tests.wording [PATH ...]``, all of git's without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.wording.check import load, matches_in


def main(paths: list[str]) -> int:
    """Print each match as ``file:line: text (write: ...)``; return 1 if there is one."""
    rules = load()
    found = 0
    for name in _files(paths):
        for match in matches_in(name, Path(name).read_text(), rules):
            print(f"{name}:{match.line}: {match.text} (write: {match.instead})")
            found += 1
    return int(found > 0)


def _files(paths: list[str]) -> list[str]:
    """Return git's files of the project's own words, below the paths if there are any."""
    listed = subprocess.run(
        ["git", "ls-files", *paths], check=True, capture_output=True, text=True
    ).stdout
    endings = (".py", ".md", ".yaml", ".tpl", ".txt", ".toml", ".html", ".css", ".go", "/dev",
        ".service")  # fmt: skip
    return [
        name
        for name in listed.splitlines()
        if f"/{name}".endswith(endings) and not name.startswith(_OTHERS)
    ]


_OTHERS = (
    "tests/fixtures/",
    "tests/unit/test_wording.py",
    "tests/wording/words.toml",
    "requirements",
)
"""Recordings of other programs, the list itself with its examples, and what tools write."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
