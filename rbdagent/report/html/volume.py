"""The content of a volume's page: root cause, dependency chain, steps, findings and holders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import lines_of, sentence_of
from rbdagent.model import Severity, StepState
from rbdagent.report.html.chain import chain_of
from rbdagent.report.html.document import (
    class_of_state,
    command_block,
    icon,
    section,
    state_text,
)
from rbdagent.report.html.markup import Html, el, joined
from rbdagent.report.text.holders import holder_cells
from rbdagent.report.text.layout import COLOURS, GREEN
from rbdagent.report.text.lifecycle import headline
from rbdagent.report.text.verdicts import WORDS
from rbdagent.rules.entry import runbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rbdagent.model import Finding, HolderVerdict, Lifecycle, Snapshot, StepStatus, Verdict
    from rbdagent.report.html.boxes import Box
    from rbdagent.report.html.chain import Lane, Link, LinkedBox


def volume_sections(lifecycle: Lifecycle, snapshot: Snapshot, program: Sequence[str]) -> Html:
    """Return all that a page shows of one volume; the program is that of `commands.lines_of`."""
    return joined(
        (
            _root_cause(lifecycle),
            _chain(lifecycle, snapshot),
            _steps(lifecycle),
            _findings(lifecycle, program),
            _holders(lifecycle, snapshot),
        )
    )


def _codes(codes: Iterable[str]) -> Html:
    return joined(joined((" ", el("a", code, href=f"#{code}"))) for code in codes)


def _pill(verdict: Verdict) -> Html:
    return el("span", str(verdict), class_="pill")


def _class_of_verdict(verdict: Verdict | None) -> str:
    """Return the class of a verdict in ``page.css``: its colour in the terminal as a state."""
    if verdict is None:
        return "plain"
    colour = COLOURS.get(verdict)
    return "good" if colour == GREEN else "waiting" if colour else "failed"


# --------------------------------------------------------------------------------------------------
# Root cause
# --------------------------------------------------------------------------------------------------


def _root_cause(lifecycle: Lifecycle) -> Html:
    first = lifecycle.first_failed
    if first is None:
        is_waiting = any(stage.state is StepState.WAITING for stage in lifecycle.attach_path)
        class_name = "waiting" if is_waiting else "done"
        verdict = lifecycle.diagnosis.verdict
        details: tuple[Html, ...] = (el("p", f"{verdict}: {WORDS[verdict]}."),)
    else:
        class_name = "warning" if first.severity is Severity.WARNING else "failed"
        recovery = el("p", el("b", "Recovery: "), f"{first.recovery}.")
        details = (
            el("p", first.message),
            *((recovery,) if first.recovery else ()),
            el("p", el("a", "Evidence and remedy", href=f"#{first.code}")),
        )
    return el(
        "div",
        icon(class_name),
        el("div", el("h1", headline(lifecycle)), *details),
        class_=f"answer card {class_name}",
    )


# --------------------------------------------------------------------------------------------------
# Dependency chain
# --------------------------------------------------------------------------------------------------


def _chain(lifecycle: Lifecycle, snapshot: Snapshot) -> Html:
    chain = chain_of(lifecycle, snapshot)
    trunk = el("ol", *(_linked_box(linked_box) for linked_box in chain.trunk), class_="trunk")
    fork = (_link(chain.fork),) if chain.fork.state else ()
    lanes = el("ul", *(_lane(lane) for lane in chain.lanes), class_="lanes")
    return section(
        "Dependency chain",
        el("div", trunk, *fork, *((lanes,) if chain.lanes else ()), class_="picture card"),
    )


def _lane(lane: Lane) -> Html:
    phrases = (WORDS[lane.verdict] if lane.verdict else "", lane.relation)
    pill = (_pill(lane.verdict),) if lane.verdict else ()
    return el(
        "li",
        el("h3", el("span", lane.name or "no node yet", class_="names"), *pill),
        el("p", "; ".join(phrase for phrase in phrases if phrase)),
        el("ol", *(_linked_box(linked_box) for linked_box in lane.boxes)),
        class_=f"lane {_class_of_verdict(lane.verdict)}" + (" back" if lane.is_detach_path else ""),
    )


def _linked_box(linked_box: LinkedBox) -> Html:
    link = (_link(linked_box.link),) if linked_box.link else ()
    return el("li", *link, _box(linked_box.box), class_="stop")


def _link(link: Link) -> Html:
    if link.state is None:
        return el("div", class_="link plain")
    class_name = class_of_state(link.state)
    first = " first" if link.is_first else ""
    state = el("b", state_text(link.state), class_="state")
    return el(
        "div",
        icon(class_name),
        el("span", link.step, class_="step"),
        " ",
        el("span", state, _codes(link.codes), class_="result"),
        class_=f"link {class_name}{first}",
    )


def _box(box: Box) -> Html:
    notes = el("ul", *(joined((" ", el("li", note))) for note in box.notes), class_="notes")
    return el(
        "div",
        el("p", "PV" if box.kind == "pv" else box.kind, class_="kind"),
        *(el("p", name, class_="names") for name in box.names),
        *((notes,) if box.notes else ()),
        class_=f"box {box.kind} {box.state}",
    )


# --------------------------------------------------------------------------------------------------
# Steps
# --------------------------------------------------------------------------------------------------


def _steps(lifecycle: Lifecycle) -> Html:
    detach_paths = (
        (f"Detach path from {path.node}", path.stages) for path in lifecycle.detach_paths
    )
    paths = (("Attach path", lifecycle.attach_path), *detach_paths)
    return section(
        "Steps",
        el("div", *(_path(title, stages) for title, stages in paths), class_="ways"),
    )


def _path(title: str, stages: Iterable[StepStatus]) -> Html:
    steps = el("ol", *(_step(stage) for stage in stages), class_="steps")
    return el("div", el("h3", title), steps, class_="card")


def _step(stage: StepStatus) -> Html:
    class_name = class_of_state(stage.state)
    return el(
        "li",
        icon(class_name),
        el("b", str(stage.step)),
        el("span", el("span", state_text(stage.state), class_="word"), _codes(stage.codes)),
        *((el("span", stage.detail, class_="said"),) if stage.detail else ()),
        class_=class_name,
    )


# --------------------------------------------------------------------------------------------------
# Findings, holders
# --------------------------------------------------------------------------------------------------


def _findings(lifecycle: Lifecycle, program: Sequence[str]) -> Html:
    if not lifecycle.findings:
        return Html()
    ids = {finding.code: finding for finding in reversed(lifecycle.findings)}
    cards = (
        finding_card(finding, program, is_target=ids[finding.code] is finding)
        for finding in lifecycle.findings
    )
    return section("Findings", el("div", *cards, class_="findings"))


def finding_card(finding: Finding, program: Sequence[str], *, is_target: bool) -> Html:
    """Return the card of a finding; if it is a target, its code is its id."""
    evidence = el("ul", *(el("li", line) for line in finding.evidence))
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("Evidence", (evidence,) if finding.evidence else ()),
        ("Recovery", (f"{finding.recovery}.",) if finding.recovery else ()),
        ("Remedy", (sentence_of(finding.remedy, program),) if finding.remedy else ()),
        ("Commands", tuple(map(command_block, lines_of(finding.commands, program)))),
    ]
    return el(
        "article",
        el(
            "h3",
            el("span", str(finding.severity), class_="pill"),
            el("a", finding.code, href=runbook(finding.code)),
            el("span", str(finding.subject)),
        ),
        el("p", finding.message, class_="message"),
        _facts((name, joined(inside)) for name, inside in rows if inside),
        class_=f"finding card {finding.severity}",
        id=finding.code if is_target else "",
    )


def _facts(rows: Iterable[tuple[str, str]]) -> Html:
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in rows))


def _holders(lifecycle: Lifecycle, snapshot: Snapshot) -> Html:
    if not lifecycle.diagnosis.holders:
        return Html()
    shown = {line for finding in lifecycle.findings for line in finding.evidence}
    cards = (
        _holder(holder_verdict, snapshot, shown) for holder_verdict in lifecycle.diagnosis.holders
    )
    return section("Holders", el("div", *cards, class_="holders"))


def _holder(holder_verdict: HolderVerdict, snapshot: Snapshot, shown: set[str]) -> Html:
    """Return the card of a holder, without the reasons that findings have shown as evidence."""
    cells = {
        name: cell.strip("<>") for name, cell in holder_cells(holder_verdict, snapshot).items()
    }
    title = f"{cells.pop('NODE')} {cells.pop('DEVICE')}"
    del cells["VERDICT"]
    more = [reason for reason in holder_verdict.reasons if reason not in shown]
    reasons = el("ul", *(el("li", reason) for reason in more))
    return el(
        "article",
        el("h3", el("span", title, class_="names"), _pill(holder_verdict.verdict)),
        _facts(
            (
                *((name.capitalize(), cell) for name, cell in cells.items()),
                *((("Reasons", reasons),) if more else ()),
            )
        ),
        class_=f"card {_class_of_verdict(holder_verdict.verdict)}",
    )
