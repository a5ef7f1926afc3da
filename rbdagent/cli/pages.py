"""The place of the pages of all codes: the only module that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import rbdagent
from rbdagent.errors import RbdagentError
from rbdagent.pages import HEADINGS, INCOMPLETE, Page, parse_page


def directory_of(package: Path) -> Path:
    """Return the directory of the pages: inside of an installed package, in docs of a checkout."""
    installed = package / "runbooks"
    return installed if installed.is_dir() else package.parent / "docs" / "runbooks"


PAGES: Final = directory_of(Path(rbdagent.__file__).parent)


def page_of(code: str) -> Page:
    """Return the sections of the page of a code that are written by hand.

    Raises:
        RbdagentError: the page cannot be read, or lacks a section.
    """
    path = PAGES / f"{code}.md"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "not UTF-8") from error
    return parse_page(text, where=str(path))


def _unreadable(path: Path, reason: str) -> RbdagentError:
    expected = f"expected a page with the sections {', '.join(HEADINGS)}"
    return RbdagentError(f"{path}: cannot be read: {reason}; {expected}", hint=INCOMPLETE)
