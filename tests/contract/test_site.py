"""The site of the documents: mkdocs builds it without a warning, and every page is reached."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.addresses import REPOSITORY
from rbdagent.catalog import CATALOG
from tests.documents.site import OF_ROOT, ROOT, for_python_markdown, link_on_site

if TYPE_CHECKING:
    from pathlib import Path

_FENCE: Final = re.compile(r"^ *```", re.MULTILINE)


class _Page(HTMLParser):
    """What a page has: its links, what it loads, and the anchors in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors = {""}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.add(found.get("id", ""))
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        loads = {found.get("src", ""), found.get("srcset", "")}
        if tag == "link" and found.get("rel") != "canonical":
            loads.add(found.get("href", ""))
        self.loads |= loads - {""}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Build the site once; return its directory, and what mkdocs printed."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return place, done.stderr if done.returncode == 0 else f"WARNING {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def pages(built: tuple[Path, str]) -> dict[Path, _Page]:
    """Return each page; that of a missing address has links from the root of the server."""
    place, _ = built
    paths = (path for path in place.rglob("*.html") if path != place / "404.html")
    return {path: _Page(path.read_text()) for path in paths}


@pytest.mark.needs(module="mkdocs")
def test_site_is_built_without_a_warning(built: tuple[Path, str]) -> None:
    _, printed = built
    assert "WARNING" not in printed, printed


@pytest.mark.needs(module="mkdocs")
def test_each_page_is_reached_from_the_first(
    built: tuple[Path, str], pages: dict[Path, _Page]
) -> None:
    place, _ = built
    waiting = [place / "index.html"]
    reached: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in pages and path not in reached:
            reached.add(path)
            waiting += [(path.parent / _file(link)).resolve() for link in pages[path].links]
    assert pages.keys() - reached == set()
    assert {place / "runbooks" / f"{code}.html" for code in CATALOG} <= reached


@pytest.mark.needs(module="mkdocs")
def test_each_link_on_the_site_leads_to_a_file_and_an_anchor(pages: dict[Path, _Page]) -> None:
    """Of the HTML in a document, mkdocs checks no link."""
    assert {
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in page.links | page.loads
        if ":" not in link and not _is_there(pages, path, link)
    } == set()


def _is_there(pages: dict[Path, _Page], path: Path, link: str) -> bool:
    there = (path.parent / _file(link)).resolve() if _file(link) else path
    anchor = link.partition("#")[2]
    return there.is_file() and (there not in pages or anchor in pages[there].anchors)


def _file(link: str) -> str:
    return link.partition("#")[0]


@pytest.mark.needs(module="mkdocs")
def test_no_page_loads_from_another_host(pages: dict[Path, _Page]) -> None:
    assert {load for page in pages.values() for load in page.loads if "//" in load} == set()


@pytest.mark.needs(module="mkdocs")
def test_each_block_of_code_of_a_document_is_one_on_its_page(built: tuple[Path, str]) -> None:
    """The forge reads some lists with blocks that Python-Markdown reads as text."""
    place, _ = built
    sources = {page: ROOT / source for source, page in OF_ROOT.items()}
    docs = ROOT / "docs"
    sources |= {str(path.relative_to(docs)): path for path in docs.rglob("*.md")}
    other = {}
    for page, source in sources.items():
        html = (place / page.replace("README", "index")).with_suffix(".html").read_text()
        wanted, found = len(_FENCE.findall(source.read_text())) // 2, html.count("<pre")
        if found != wanted:
            other[page] = f"{found} instead of {wanted}"
    assert other == {}


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("README.md", "docs/install.md#rook", "install.md#rook"),
        ("README.md", "docs/who-holds.svg", "who-holds.svg"),
        ("README.md", "CONTRIBUTING.md", "contributing.md"),
        ("docs/faq.md", "../README.md#install", "index.md#install"),
        ("docs/runbooks/RBD101.md", "../install.md", "../install.md"),
        ("docs/install.md", "../dev", f"{REPOSITORY}/blob/main/dev"),
        ("README.md", "SECURITY.md#a", f"{REPOSITORY}/blob/main/SECURITY.md#a"),
        ("docs/faq.md", "#rook", "#rook"),
        ("docs/faq.md", "https://docs.ceph.com/", "https://docs.ceph.com/"),
        ("docs/faq.md", "../missing.md", "../missing.md"),
    ],
)  # fmt: skip
def test_link_leads_to_a_page_or_to_the_forge(source: str, target: str, found: str) -> None:
    assert link_on_site(source, target) == found


def test_lines_of_a_list_item_are_indented_by_four_spaces() -> None:
    block = "```\n  a\n```\n"
    item = "- one\n\n  ```yaml\n  a:\n    b\n  ```\n\n  two\n"
    assert for_python_markdown(block) == block
    assert for_python_markdown(item) == ("- one\n\n        a:\n          b\n\n\n    two\n")
