"""The sections by hand of a page, the place of the pages, and the errors about both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.cli.pages import directory_of, page_of
from rbdagent.errors import ParseError, RbdagentError
from rbdagent.pages import HEADINGS, MARKER, Page, parse_page, sections
from tests.support.cli_runner import ask

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = f"""\
# RBD101 MappingOrphaned

Nothing uses it.

## Cause

kubelet
restarted.

## Evidence

Mounts.

## Risk

No other node gets it.

## Remedy

Unmap it.

{MARKER}

Our storage team: 555.
"""
PARSED: Final = Page(cause="kubelet restarted.", evidence="Mounts.", risk="No other node gets it.")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PAGE, id="as it is written"),
        pytest.param(PAGE.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(PAGE.replace("\n\n", "\n"), id="no empty lines"),
        pytest.param(PAGE.replace("\n", "  \n"), id="spaces at the ends of lines"),
        pytest.param(PAGE.replace("## ", "##   "), id="spaces in front of a heading"),
        pytest.param(PAGE.partition("## Remedy")[0], id="nothing below the risk"),
        pytest.param(PAGE.replace("## Remedy", "# Remedy"), id="a heading of level 1 ends one"),
        pytest.param(PAGE.replace("## Remedy\n\nUnmap it.\n\n", ""), id="so does the marker"),
        pytest.param(f"{PAGE}\n## Cause\n\nOurs.\n", id="a section below the marker"),
    ],
)
def test_sections_by_hand_are_read(text: str) -> None:
    assert parse_page(text, where="here") == PARSED


@pytest.mark.parametrize("heading", HEADINGS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("## {}\n", "", id="missing"),
        pytest.param("## {}\n", "### {}\n", id="level 3"),
        pytest.param("## {}\n", "# {}\n", id="level 1"),
        pytest.param("## {}\n", "##{}\n", id="no space"),
        pytest.param("## {}\n", "## {} of it\n", id="another heading"),
        pytest.param("## {}\n", "## {}\n\n## Then\n", id="empty"),
        pytest.param("## {}\n", "## {}\n \n\t\n## Then\n", id="blank"),
        pytest.param("## {}\n", MARKER + "\n## {}\n", id="below the marker"),
    ],
)
def test_missing_or_empty_section_is_an_error(old: str, new: str, heading: str) -> None:
    text = PAGE.replace(old.format(heading), new.replace("{}", heading))
    assert text != PAGE
    with pytest.raises(ParseError) as error:
        parse_page(text, where="/pages/RBD101.md")
    assert str(error.value) == (
        f"/pages/RBD101.md: cannot read the section {heading}: "
        f"expected the heading '## {heading}' and a text below it"
    )


def test_lines_of_a_section_are_kept() -> None:
    """``./dev docs`` writes them again as they are."""
    found = sections(PAGE)
    assert found["Cause"] == "kubelet\nrestarted."
    assert list(found) == [*HEADINGS, "Remedy"]


def test_second_section_with_a_heading_is_not_lost() -> None:
    text = "## Cause\n\nA.\n\n## Risk\n\nB.\n\n## Cause\n\nC.\n"
    assert sections(text)["Cause"].split() == ["A.", "C."]


def test_pages_of_an_installed_package_are_in_it(tmp_path: Path) -> None:
    package = tmp_path / "rbdagent"
    assert directory_of(package) == tmp_path / "docs" / "runbooks"
    (package / "runbooks").mkdir(parents=True)
    assert directory_of(package) == package / "runbooks"


def test_page_that_cannot_be_read_is_an_error_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbdagent.cli.pages.PAGES", tmp_path)
    expected = "expected a page with the sections Cause, Evidence, Risk"
    page = tmp_path / "RBD101.md"
    with pytest.raises(RbdagentError) as error:
        page_of("RBD101")
    assert str(error.value) == f"{page}: cannot be read: No such file or directory; {expected}"
    page.write_bytes(b"\xff")
    with pytest.raises(RbdagentError) as error:
        page_of("RBD101")
    assert str(error.value) == f"{page}: cannot be read: not UTF-8; {expected}"


@pytest.mark.parametrize("arguments", [("RBD101",), ("RBD101", "-o", "json"), ("-o", "yaml")])
def test_explain_reports_a_page_without_a_section(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbdagent.cli.pages.PAGES", tmp_path)
    (tmp_path / "RBD100.md").write_text(PAGE)
    (tmp_path / "RBD101.md").write_text(PAGE.replace("## Risk", "## Risks"))
    done = ask("explain", *arguments)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr == (
        f"rbdagent: {tmp_path}/RBD101.md: cannot read the section Risk: expected the heading "
        "'## Risk' and a text below it\n  the pages are a part of rbdagent: install it again\n"
    )


def test_list_of_codes_needs_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbdagent.cli.pages.PAGES", tmp_path)
    assert ask("explain").code == 0
