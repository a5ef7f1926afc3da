"""The document of a page, and the parts that every page has: sections, icons, sources.

A page needs no network and no scripts. Its policy forbids both, so that no name in it can use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import SourceState, StepState
from rbdagent.report.html.assets import ICONS, STYLE_SHEET
from rbdagent.report.html.boxes import NOT_OBSERVED
from rbdagent.report.html.markup import Html, el, joined

if TYPE_CHECKING:
    from rbdagent.model import Gap, Snapshot, Source

_HEAD: Final = Html(
    '<meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<meta http-equiv="Content-Security-Policy"'
    """ content="default-src 'none';style-src 'unsafe-inline'">"""
)


def document(title: str, header: Html, main: Html, snapshot: Snapshot) -> str:
    """Return a page in ASCII: safe for every terminal and server.

    Args:
        title: the title of the window.
        header: what identifies the page.
        main: its content.
        snapshot: the snapshot; the footer has the version of rbdagent that made it.
    """
    head = joined((_HEAD, el("title", title), el("style", STYLE_SHEET)))
    footer = el("footer", el("p", f"rbdagent {snapshot.tool_version}"))
    body = joined((el("header", header), el("main", main), footer))
    markup = el("html", el("head", head), el("body", body), lang="en")
    return f"<!DOCTYPE html>\n{markup}\n".encode("ascii", "xmlcharrefreplace").decode()


def section(title: str, *inside: str) -> Html:
    """Return a section with its heading, whose id is the title."""
    name = title.lower().replace(" ", "-")
    return el("section", el("h2", title, id=name), *inside, aria_labelledby=name)


def class_of_state(state: StepState) -> str:
    """Return the class of a state in ``page.css``, which is the name of its icon as well."""
    return state.replace(" ", "-")


def state_text(state: StepState) -> str:
    """Return a state as text; a failed one in capitals."""
    return state.upper() if state is StepState.FAILED else str(state)


def icon(name: str) -> Html:
    """Return the icon of a state; the page shows the name of the state beside it."""
    return el("svg", ICONS[name], class_="icon", viewBox="0 0 24 24", aria_hidden="true")


def command_block(command: str) -> Html:
    """Return a command in a block that a click selects."""
    return el("pre", el("code", command))


def sources(snapshot: Snapshot) -> Html:
    """Return the section about the sources."""
    rows = (_source(name, source) for name, source in snapshot.sources.named)
    return section("Sources", el("ul", *rows, class_="sources card"))


def _source(name: str, source: Source) -> Html:
    is_observed = source.state is SourceState.OBSERVED
    class_name = class_of_state(StepState.DONE if is_observed else StepState.NOT_OBSERVED)
    state = "observed" if is_observed else f"{NOT_OBSERVED} ({source.state})"
    reason = f": {source.reason}" if source.reason else ""
    return el(
        "li",
        icon(class_name),
        el(
            "div",
            el("p", el("b", name), " ", el("span", state, class_="word"), reason),
            *((command_block(source.hint),) if source.hint else ()),
            *(_gap(gap) for gap in source.gaps),
        ),
        class_=class_name,
    )


def _gap(gap: Gap) -> Html:
    return joined(
        (
            el("p", el("b", f"{NOT_OBSERVED}: "), f"{gap.fact}: {gap.reason}"),
            *((command_block(gap.hint),) if gap.hint else ()),
        )
    )
