"""The section of a version in CHANGELOG.md."""

from __future__ import annotations

import re
from typing import Final

from release.errors import ReleaseError

_HEADING: Final = re.compile(r"^## (\S+).*$", re.MULTILINE)


def section(text: str, version: str) -> str:
    """Return the text below the heading of a version, such as ``## 0.1.0`` or ``## 0.1.0 - DATE``.

    Raises:
        ReleaseError: the change log has no such section, two of them, or an empty one.
    """
    headings = list(_HEADING.finditer(text))
    found = [number for number, heading in enumerate(headings) if heading[1] == version]
    if len(found) != 1:
        names = ", ".join(heading[1] for heading in headings) or "none"
        raise ReleaseError(
            f"CHANGELOG.md has {len(found)} sections '## {version}'; its sections: {names}.\n"
            f"  Write one section '## {version}', or rename '## Unreleased'. Commit it, and run"
            " this again"
        )
    (number,) = found
    ends = [heading.start() for heading in headings[number + 1 :]]
    body = text[headings[number].end() : ends[0] if ends else len(text)].strip()
    if not body:
        raise ReleaseError(
            f"CHANGELOG.md: the section '## {version}' is empty.\n"
            "  List the changes, commit them, and run this again"
        )
    return f"{body}\n"
