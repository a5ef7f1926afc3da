"""The page of a code in docs/runbooks: the source of its cause, its evidence and its risk.

These sections, and the text below the marker, are written by hand. ``./dev docs`` writes the rest.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from rbdagent.errors import ParseError

HEADINGS: Final = ("Cause", "Evidence", "Risk")
MARKER: Final = (
    "<!-- By hand: Cause, Evidence, Risk, and all below. ./dev docs writes the rest. -->"
)
INCOMPLETE: Final = "the pages are a part of rbdagent: install it again"


class Page(Struct, frozen=True, kw_only=True):
    """Holds the sections of a page that are written by hand, each without its line breaks."""

    cause: str
    evidence: str
    """The observations that the finding is based on, and how certain they are."""
    risk: str


def parse_page(text: str, where: str) -> Page:
    """Parse the page of a code.

    Args:
        text: of the page, in Markdown.
        where: the file that it was read from.

    Raises:
        ParseError: a section is missing or empty.
    """
    found = sections(text)
    cause, evidence, risk = (_unwrapped(found, heading, where) for heading in HEADINGS)
    return Page(cause=cause, evidence=evidence, risk=risk)


def sections(text: str) -> dict[str, str]:
    """Return the text below each heading of level 2, from the top of a page to its marker."""
    found: dict[str, list[str]] = {}
    below: list[str] = []
    for line in map(str.rstrip, text.splitlines()):
        if line == MARKER:
            break
        if line.startswith("## "):
            below = found.setdefault(line.removeprefix("## ").strip(), [])
        elif line.startswith("# "):
            below = []
        else:
            below.append(line)
    return {heading: "\n".join(lines).strip() for heading, lines in found.items()}


def _unwrapped(found: dict[str, str], heading: str, where: str) -> str:
    text = " ".join(found.get(heading, "").split())
    if not text:
        raise ParseError(
            what=f"the section {heading}",
            where=where,
            text=None,
            expected=f"the heading '## {heading}' and a text below it",
            hint=INCOMPLETE,
        )
    return text
