"""Read the commands and the YAML that a document asks the user to run and write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.lab.install import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

INSTALL: Final = CHECKOUT / "docs" / "install.md"
ORPHANED_RUNBOOK: Final = CHECKOUT / "docs" / "runbooks" / "RBDMappingOrphaned.md"

_BLOCK: Final = r"(?ms)^ *```{}\n(.*?)^ *```$"


def typed(document: Path, heading: str) -> tuple[str, ...]:
    """Return the commands between a heading and the next heading."""
    blocks = _blocks(document, heading, "console")
    return tuple(re.findall(r"(?m)^\$ (.*)$", "".join(blocks)))


def printed(document: Path, heading: str) -> tuple[str, ...]:
    """Return the lines of the code blocks between a heading and the next heading.

    Runbooks have their commands there, without a prompt.
    """
    return tuple("".join(_blocks(document, heading, "")).splitlines())


def written(document: Path, heading: str) -> tuple[str, ...]:
    """Return the YAML blocks between a heading and the next heading."""
    return tuple(_blocks(document, heading, "yaml"))


def _blocks(document: Path, heading: str, language: str) -> list[str]:
    _, found, rest = document.read_text().partition(f"\n{heading}\n")
    assert found, f"{document.name} has no heading: {heading}"
    return re.findall(_BLOCK.format(language), re.split(r"(?m)^#+ ", rest, maxsplit=1)[0])
