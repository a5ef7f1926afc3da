"""The hook of mkdocs.yml: documents that are written for the forge become pages of a site.

On the forge, a document links to any file of the repository. On the site, a link to a file that is
no page leads to the forge. mkdocs warns of a link that leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from textwrap import dedent, indent
from typing import TYPE_CHECKING, Final

from rbdagent.addresses import REPOSITORY

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
OF_ROOT: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents outside of docs/ that are pages. SECURITY.md is none: it repeats docs/security.md."""

LINK: Final = re.compile(
    r"^ *```.*?^ *```$|(?P<span>`(?:[^`\n]|\n(?!\n))+`)"  # code: it has no links
    r'|(?:(?<=\]\()|(?<=src=")|(?<=srcset="))(?P<target>[^)"\s]+)',
    re.DOTALL | re.MULTILINE,
)
_IN_LIST: Final = re.compile(
    r"^```.*?^```$|^ +```\w*\n(?P<block>.*?)^ +```$|^(?P<indent> {2})(?= *\S)",
    re.DOTALL | re.MULTILINE,
)
"""A block at the margin; a block in a list item; the indent of a line in a list item."""


def slug(heading: str, _separator: str = "-") -> str:
    """Return the anchor that the forge gives a heading; that of Python-Markdown has no ``--``."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def link_on_site(source: str, target: str) -> str:
    """Return a link as the page has it.

    Args:
        source: the path of the document in the repository.
        target: the link in the document.
    """
    path, *anchor = re.split("(?=#)", target, maxsplit=1)
    file = normpath(join(dirname(source), path))
    if not path or ":" in path or not (ROOT / file).exists():
        return target
    there = _page_of(file)
    if there is None:
        return "".join((f"{REPOSITORY}/blob/main/{file}", *anchor))
    return "".join((relpath(there, dirname(_page_of(source) or "") or "."), *anchor))


def _page_of(file: str) -> str | None:
    """Return the path on the site of a file of the repository; None if it is not there."""
    return OF_ROOT.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)


def for_python_markdown(markdown: str) -> str:
    """Indent what belongs to a list item by four spaces: with less, it ends the item.

    Python-Markdown takes ``` at the margin alone: the code of a block gets four more.
    """

    def changed(found: re.Match[str]) -> str:
        if found["block"] is not None:
            return indent(dedent(found["block"]), " " * 8)
        return " " * 4 if found["indent"] else found[0]

    return _IN_LIST.sub(changed, markdown)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the function for the anchors of headings: they are those of the forge."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents outside of docs/."""
    from mkdocs.structure.files import File

    for source, page in OF_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the Markdown of a page: its links, its list items, and code in a sentence."""
    sources = {there: source for source, there in OF_ROOT.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def changed(found: re.Match[str]) -> str:
        if found["span"] is not None:
            # The theme would show the line break.
            return re.sub(r"\n *", " ", found["span"])
        return link_on_site(source, found["target"]) if found["target"] else found[0]

    return LINK.sub(changed, for_python_markdown(markdown))
