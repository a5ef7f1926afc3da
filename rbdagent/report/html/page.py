"""The lifecycle of a volume as one HTML page.

The page needs no network and no scripts. Its policy forbids both, so that no name in it can use
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import lines_of
from rbdagent.model import Severity, SourceState, StepState
from rbdagent.report.html.assets import ICONS, STYLE_SHEET
from rbdagent.report.html.chain import NOT_OBSERVED, picture_of
from rbdagent.report.html.markup import Html, el, several
from rbdagent.report.story import headline
from rbdagent.report.text import COLOURS, GREEN, WORDS, holder_cells
from rbdagent.rules.entry import runbook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import (
        Finding,
        Gap,
        HolderVerdict,
        Lifecycle,
        Snapshot,
        Source,
        StepStatus,
        Verdict,
    )
    from rbdagent.report.html.chain import Box, Lane, Link, Stop

_HEAD: Final = Html(
    '<meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    '<meta http-equiv="Content-Security-Policy"'
    """ content="default-src 'none';style-src 'unsafe-inline'">"""
)


def page(life: Lifecycle, snapshot: Snapshot) -> str:
    """Return the output of ``diagnose -o html`` in ASCII: safe for every terminal and server."""
    given = life.diagnosis.use.target.given
    head = several((_HEAD, el("title", f"{given}: {headline(life)}"), el("style", STYLE_SHEET)))
    body = several(
        (
            el(
                "header",
                el("p", "rbdagent diagnose ", el("code", given)),
                el("p", f"observed {snapshot.observed_at}"),
            ),
            el("main", _answer(life), _picture(life, snapshot), _steps(life), _findings(life),
                _holders(life, snapshot), _sources(snapshot)),
            el("footer", el("p", f"rbdagent {snapshot.tool_version}")),
        )
    )  # fmt: skip
    document = el("html", el("head", head), el("body", body), lang="en")
    return f"<!DOCTYPE html>\n{document}\n".encode("ascii", "xmlcharrefreplace").decode()


def _section(title: str, *inside: str) -> Html:
    name = title.lower().replace(" ", "-")
    return el("section", el("h2", title, id=name), *inside, aria_labelledby=name)


def _tone(state: StepState) -> str:
    return state.replace(" ", "-")


def _icon(name: str) -> Html:
    """Return the icon of a state; the page shows the name of the state beside it."""
    return el("svg", ICONS[name], class_="icon", viewBox="0 0 24 24", aria_hidden="true")


def _codes(codes: Iterable[str]) -> Html:
    return several(several((" ", el("a", code, href=f"#{code}"))) for code in codes)


def _pill(verdict: Verdict) -> Html:
    return el("span", str(verdict), class_="pill")


def _tone_of(verdict: Verdict | None) -> str:
    if verdict is None:
        return "plain"
    paint = COLOURS.get(verdict)
    return "good" if paint == GREEN else "waiting" if paint else "failed"


# --------------------------------------------------------------------------------------------------
# Root cause
# --------------------------------------------------------------------------------------------------


def _answer(life: Lifecycle) -> Html:
    first = life.first_failed
    if first is None:
        is_waiting = any(stage.state is StepState.WAITING for stage in life.there)
        shape = "waiting" if is_waiting else "done"
        verdict = life.diagnosis.verdict
        details: tuple[Html, ...] = (el("p", f"{verdict}: {WORDS[verdict]}."),)
    else:
        shape = "warning" if first.severity is Severity.WARNING else "failed"
        recovery = el("p", el("b", "Recovery: "), f"{first.recovery}.")
        details = (
            el("p", first.message),
            *((recovery,) if first.recovery else ()),
            el("p", el("a", "Evidence and remedy", href=f"#{first.code}")),
        )
    return el(
        "div",
        _icon(shape),
        el("div", el("h1", headline(life)), *details),
        class_=f"answer card {shape}",
    )


# --------------------------------------------------------------------------------------------------
# The picture
# --------------------------------------------------------------------------------------------------


def _picture(life: Lifecycle, snapshot: Snapshot) -> Html:
    picture = picture_of(life, snapshot)
    fork = (_link(picture.fork),) if picture.fork.state else ()
    lanes = el("ul", *(_lane(lane) for lane in picture.lanes), class_="lanes")
    return _section(
        "Dependency chain",
        el(
            "div",
            el("ol", *(_stop(stop) for stop in picture.trunk), class_="trunk"),
            *fork,
            *((lanes,) if picture.lanes else ()),
            class_="picture card",
        ),
    )


def _lane(lane: Lane) -> Html:
    about = [WORDS[lane.verdict] if lane.verdict else "", lane.part]
    pill = (_pill(lane.verdict),) if lane.verdict else ()
    return el(
        "li",
        el("h3", el("span", lane.name or "no node yet", class_="names"), *pill),
        el("p", "; ".join(phrase for phrase in about if phrase)),
        el("ol", *(_stop(stop) for stop in lane.stops)),
        class_=f"lane {_tone_of(lane.verdict)}" + (" back" if lane.goes_back else ""),
    )


def _stop(stop: Stop) -> Html:
    link = (_link(stop.link),) if stop.link else ()
    return el("li", *link, _box(stop.box), class_="stop")


def _link(link: Link) -> Html:
    if link.state is None:
        return el("div", class_="link plain")
    word = link.state.upper() if link.state is StepState.FAILED else str(link.state)
    first = " first" if link.is_first else ""
    state = el("span", el("b", word, class_="state"), _codes(link.codes), class_="result")
    return el("div", _icon(_tone(link.state)), el("span", link.word, class_="step"), " ", state,
        class_=f"link {_tone(link.state)}{first}")  # fmt: skip


def _box(box: Box) -> Html:
    notes = el("ul", *(several((" ", el("li", note))) for note in box.notes), class_="notes")
    return el(
        "div",
        el("p", "PV" if box.kind == "pv" else box.kind, class_="kind"),
        *(el("p", name, class_="names") for name in box.names),
        *((notes,) if box.notes else ()),
        class_=f"box {box.kind} {box.look}",
    )


# --------------------------------------------------------------------------------------------------
# The steps
# --------------------------------------------------------------------------------------------------


def _steps(life: Lifecycle) -> Html:
    back = ((f"Detach path from {way.node}", way.stages) for way in life.back)
    ways = [("Attach path", life.there), *back]
    return _section(
        "Steps",
        el("div", *(_way(title, stages) for title, stages in ways), class_="ways"),
    )


def _way(title: str, stages: Iterable[StepStatus]) -> Html:
    steps = el("ol", *(_step(stage) for stage in stages), class_="steps")
    return el("div", el("h3", title), steps, class_="card")


def _step(stage: StepStatus) -> Html:
    word = stage.state.upper() if stage.state is StepState.FAILED else str(stage.state)
    return el(
        "li",
        _icon(_tone(stage.state)),
        el("b", str(stage.step)),
        el("span", el("span", word, class_="word"), _codes(stage.codes)),
        *((el("span", stage.said, class_="said"),) if stage.said else ()),
        class_=_tone(stage.state),
    )


# --------------------------------------------------------------------------------------------------
# Findings, holders, sources
# --------------------------------------------------------------------------------------------------


def _findings(life: Lifecycle) -> Html:
    if not life.findings:
        return Html()
    ids = {finding.code: finding for finding in reversed(life.findings)}
    cards = (_finding(finding, is_target=ids[finding.code] is finding) for finding in life.findings)
    return _section("Findings", el("div", *cards, class_="findings"))


def _finding(finding: Finding, *, is_target: bool) -> Html:
    evidence = el("ul", *(el("li", line) for line in finding.evidence))
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("Evidence", (evidence,) if finding.evidence else ()),
        ("Recovery", (f"{finding.recovery}.",) if finding.recovery else ()),
        ("Remedy", (finding.remedy,) if finding.remedy else ()),
        ("Commands", tuple(_command(line) for line in lines_of(finding.commands))),
    ]
    return el(
        "article",
        el(
            "h3",
            el("span", str(finding.severity), class_="pill"),
            el("a", finding.code, href=runbook(finding.code)),
            el("span", finding.subject),
        ),
        el("p", finding.message, class_="message"),
        _facts((name, several(inside)) for name, inside in rows if inside),
        class_=f"finding card {finding.severity}",
        id=finding.code if is_target else "",
    )


def _command(command: str) -> Html:
    return el("pre", el("code", command))


def _facts(rows: Iterable[tuple[str, str]]) -> Html:
    return el("dl", *(el("div", el("dt", name), el("dd", said)) for name, said in rows))


def _holders(life: Lifecycle, snapshot: Snapshot) -> Html:
    if not life.diagnosis.holders:
        return Html()
    said = {line for finding in life.findings for line in finding.evidence}
    cards = (_holder(judged, snapshot, said) for judged in life.diagnosis.holders)
    return _section("Holders", el("div", *cards, class_="holders"))


def _holder(judged: HolderVerdict, snapshot: Snapshot, said: set[str]) -> Html:
    cells = {name: cell.strip("<>") for name, cell in holder_cells(judged, snapshot).items()}
    title = f"{cells.pop('NODE')} {cells.pop('DEVICE')}"
    del cells["VERDICT"]
    fresh = [reason for reason in judged.reasons if reason not in said]
    reasons = el("ul", *(el("li", reason) for reason in fresh))
    return el(
        "article",
        el("h3", el("span", title, class_="names"), _pill(judged.verdict)),
        _facts(
            (
                *((name.capitalize(), cell) for name, cell in cells.items()),
                *((("Reasons", reasons),) if fresh else ()),
            )
        ),
        class_=f"card {_tone_of(judged.verdict)}",
    )


def _sources(snapshot: Snapshot) -> Html:
    rows = (_source(name, source) for name, source in snapshot.sources.named)
    return _section("Sources", el("ul", *rows, class_="sources card"))


def _source(name: str, source: Source) -> Html:
    is_seen = source.state is SourceState.OBSERVED
    state = StepState.DONE if is_seen else StepState.NOT_OBSERVED
    word = "observed" if is_seen else f"{NOT_OBSERVED} ({source.state})"
    reason = f": {source.reason}" if source.reason else ""
    return el(
        "li",
        _icon(_tone(state)),
        el(
            "div",
            el("p", el("b", name), " ", el("span", word, class_="word"), reason),
            *((_command(source.hint),) if source.hint else ()),
            *(_gap(gap) for gap in source.gaps),
        ),
        class_=_tone(state),
    )


def _gap(gap: Gap) -> Html:
    return several(
        (
            el("p", el("b", f"{NOT_OBSERVED}: "), f"{gap.fact}: {gap.reason}"),
            *((_command(gap.hint),) if gap.hint else ()),
        )
    )
