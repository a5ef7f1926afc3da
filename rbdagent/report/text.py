"""Answers for people: aligned columns as kubectl prints them, then a short text, then ``Next:``."""

from __future__ import annotations

import functools
import textwrap
from typing import TYPE_CHECKING, Final, ParamSpec

from rbdagent.commands import command, lines_of
from rbdagent.correlate.identity import mappings_of, mappings_seen
from rbdagent.correlate.reports import is_fresh
from rbdagent.diagnose import unseen
from rbdagent.diagnose.times import age, spoken
from rbdagent.model import (
    CheckState,
    Command,
    NotObserved,
    Severity,
    SourceState,
    StepKind,
    UnmapOutcome,
    Verdict,
)
from rbdagent.parse.shown import in_all_texts, shown
from rbdagent.report.machine import pod_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rbdagent.model import (
        CheckResult,
        Condition,
        Diagnosis,
        Finding,
        Holder,
        JudgedHolder,
        PublishedNode,
        Snapshot,
        Source,
        UnmapPlan,
        UnmapRefusal,
        UnmapResult,
    )

_P = ParamSpec("_P")

WIDTH: Final = 100
_NONE: Final = "<none>"
_MOST_REASONS: Final = 4
"""Of one condition: a mount may be seen in many namespaces."""
_MOST_GAPS: Final = 20
"""Of one source: of many images each may have been out of reach."""
_UNKNOWN: Final = "<unknown>"
_NOT_OBSERVED: Final = "<not observed>"

OF_SOURCES: Final = unseen.CODES
"""Findings that say of a source what its own line says, with reason and cure."""

RED, YELLOW, GREEN, BOLD, PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[1m", "\033[0m"
PAINT: Final = {Severity.CRITICAL: BOLD + RED, Severity.ERROR: RED, Severity.WARNING: YELLOW}
COLOURS: Final = {  # what is not here is red
    Verdict.IN_USE: GREEN,
    Verdict.SHARED: GREEN,
    Verdict.FREE: GREEN,
    Verdict.STAGED: YELLOW,
    Verdict.FOREIGN: YELLOW,
    Verdict.UNDETERMINED: YELLOW,
}
WORDS: Final = {
    Verdict.IN_USE: "a pod uses it",
    Verdict.STAGED: "kubelet or the CSI driver is between steps",
    Verdict.ORPHANED: "it is mapped, and nothing there uses it",
    Verdict.PINNED: "Kubernetes has let go, but something on the node keeps the device open",
    Verdict.DEAD: "it is mapped by a client that can do no I/O any more",
    Verdict.UNWATCHED: "it is mapped read-write without a watch: invisible to Ceph, and live",
    Verdict.SHARED: "several clients hold it, and that is legitimate",
    Verdict.CONFLICT: "it is mapped read-write on two nodes, and nothing makes that legitimate",
    Verdict.FOREIGN: "a client holds it that is no Kubernetes node's mapping",
    Verdict.NODE_DOWN: "its holder's node is not Ready or gone",
    Verdict.RETURNED_DIRTY: "a node that was taken for lost came back and still holds it",
    Verdict.UNDETERMINED: "not everything that the answer needs could be observed",
    Verdict.FREE: "every node was observed, and no client holds it",
    Verdict.ATTACHED_ON_PAPER: "the control plane says attached, the node has nothing",
    Verdict.NOT_BACKED: "a pod writes to its node's own disk instead of the volume",
}


def for_people(answer: Callable[_P, str]) -> Callable[_P, str]:
    """Decorate what makes an answer for people: no text of others breaks a line or reaches colours.

    Every text in the arguments is shown before it is laid out. What is not printable in the answer
    is then the layout's own: its line breaks, and colours where these are asked for.
    """

    @functools.wraps(answer)
    def shown_answer(*args: _P.args, **kwargs: _P.kwargs) -> str:
        return answer(*in_all_texts(args, shown), **in_all_texts(kwargs, shown))

    return shown_answer


@for_people
def answer(diagnosis: Diagnosis, snapshot: Snapshot, *, wide: bool, colour: bool) -> str:
    """Give the answer of ``who-holds``."""
    parts = []
    if diagnosis.holders:
        parts.append(holder_table(diagnosis.holders, snapshot, wide=wide, colour=colour))
    parts.append(_headline(diagnosis, colour=colour))
    parts += [_judged(each) for each in diagnosis.holders if each.because]
    said = frozenset(line for each in diagnosis.holders for line in each.because)
    parts += [
        finding_text(each, said, colour=colour)
        for each in diagnosis.findings
        if each.code not in OF_SOURCES
    ]
    parts.append(source_lines(snapshot))
    if diagnosis.next_commands:
        parts.append(next_text(diagnosis.next_commands, colour=colour))
    return "\n\n".join(parts) + "\n"


@for_people
def mapping_table(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    *,
    wide: bool,
    colour: bool,
    of: str = "",
) -> str:
    """Give the answer of ``list``; ``of`` says in words what was asked for, if not everything."""
    local = [(diagnosis, each) for diagnosis in diagnoses for each in diagnosis.local]
    if local:
        head = ["DEVICE", "IMAGE", "PERSISTENTVOLUME", "CLAIM", "VERDICT", "PODS"]
        head += ["CLIENT", "ADDRESS", "ATTACHMENT"] if wide else []
        rows = [_listed(diagnosis, each, snapshot, wide=wide) for diagnosis, each in local]
        verdicts = [each.verdict for _, each in local]
        parts = [_table(head, rows, verdicts if colour else None, head.index("VERDICT"))]
    elif snapshot.sources.node.state is SourceState.OBSERVED and mappings_seen(snapshot.node):
        parts = [_nothing_mapped(snapshot, of)]
    else:
        parts = ["Whether anything is mapped here was not observed."]
    serious = [
        finding
        for diagnosis in diagnoses
        for finding in diagnosis.findings
        if finding.severity is not Severity.INFO and finding.code not in OF_SOURCES
    ]
    parts += [finding_text(each, colour=colour) for each in dict.fromkeys(serious)]
    parts.append(source_lines(snapshot))
    commands = tuple(dict.fromkeys(each for one in diagnoses for each in one.next_commands))
    if commands:
        parts.append(next_text(commands, colour=colour))
    return "\n\n".join(parts) + "\n"


def _nothing_mapped(snapshot: Snapshot, of: str) -> str:
    mapped = mappings_of(snapshot.node)
    where = snapshot.node.node_name if snapshot.node else "this node"
    if of and mapped:
        return f"No volume {of} is mapped on {where}; {len(mapped)} others are."
    return f"Nothing is mapped on {where}: no krbd device, no rbd-nbd device."


@for_people
def names(holders: Sequence[JudgedHolder]) -> str:
    """Give ``-o name``: one ``node/NAME DEVICE`` a line, as far as they are known."""
    lines = []
    for each in holders:
        mapping = each.holder.mapping
        device = mapping.device if mapping else f"client.{_client(each.holder)}"
        lines.append(f"node/{each.holder.node or _UNKNOWN} {device}")
    return "".join(f"{line}\n" for line in lines)


@for_people
def check_lines(results: Sequence[CheckResult], *, colour: bool) -> str:
    """Give the answer of ``check``: a line each, and below what is not well what to do."""
    words = {
        CheckState.OK: ("ok     ", GREEN),
        CheckState.WARNING: ("warning", YELLOW),
        CheckState.FAILED: ("FAILED ", RED),
        CheckState.SKIPPED: ("-      ", ""),
    }
    lines: list[str] = []
    source = ""
    for each in results:
        if each.source != source:
            source = each.source
            lines.append(("" if not lines else "\n") + source)
        word, paint = words[each.state]
        detail = f": {each.detail}" if each.detail else ""
        lines.append(f"  {painted(word, paint, colour=colour)} {each.sentence}{detail}")
        if each.hint and each.state in {CheckState.WARNING, CheckState.FAILED}:
            lines.append(f"          -> {each.hint}")
    failed = sum(each.state is CheckState.FAILED for each in results)
    warned = sum(each.state is CheckState.WARNING for each in results)
    if failed:
        last = f"{failed} of {len(results)} checks failed: answers here will have gaps, and say so."
    elif warned:
        last = f"Everything that an answer needs is here; {warned} warnings."
    else:
        last = "Everything that an answer needs is here."
    return "\n".join([*lines, "", last]) + "\n"


@for_people
def published_table(nodes: Sequence[PublishedNode], *, now: str, wide: bool, colour: bool) -> str:
    """Give what agents published as a table, and a line for each whose word is old or missing."""
    head = ["NODE", "DEVICE", "VERDICT", "PV", "IMAGE", "CLIENT", "PODS", "SEEN"]
    head += ["ADDRESS", "SINCE"] if wide else []
    rows, verdicts, notes = [], [], []
    for node in sorted(nodes, key=lambda each: each.name):
        since = age(node.observed_at, now)
        seen = spoken(since)
        if isinstance(node.mappings, NotObserved):
            notes.append(f"{node.name}: not observed: {node.mappings.reason} (asked {seen} ago)")
            continue
        if not is_fresh(node, now):
            notes.append(
                f"{node.name}: last heard of {seen} ago: what is mapped there now is not known"
            )
        for each in node.mappings:
            row = [
                node.name,
                each.device,
                str(each.verdict),
                each.persistent_volume or _UNKNOWN,
                str(each.spec or _UNKNOWN),
                f"client.{each.client_id}" if each.client_id else _UNKNOWN,
                ",".join(each.pods) or "none",
                seen,
            ]
            row += [str(each.client_address or _UNKNOWN), each.since or _UNKNOWN] if wide else []
            rows.append(row)
            verdicts.append(each.verdict)
    if not nodes:
        return "No agent has published anything yet.\n"
    table = _table(head, rows, verdicts if colour else None, head.index("VERDICT"))
    if not rows:
        heard = sum(not isinstance(each.mappings, NotObserved) for each in nodes)
        table = f"Nothing is mapped on the {heard} nodes whose agents were heard."
    return "\n".join([table.rstrip(), *([""] if notes else []), *notes]) + "\n"


@for_people
def published_names(nodes: Sequence[PublishedNode]) -> str:
    """Give NODE DEVICE lines of everything that was published."""
    return "".join(
        f"{node.name} {each.device}\n"
        for node in nodes
        if not isinstance(node.mappings, NotObserved)
        for each in node.mappings
    )


@for_people
def unmap_plan(plan: UnmapPlan, *, colour: bool) -> str:
    """Give the plan that ``unmap`` prints before it acts."""
    words = {
        StepKind.UMOUNT: "unmount its staging mount {}",
        StepKind.LUKS_CLOSE: "close its LUKS mapping {}",
        StepKind.UNMAP: "unmap {}",
    }
    steps = [
        f"  {number}. {words[each.kind].format(each.subject)}"
        for number, each in enumerate(plan.steps, start=1)
    ]
    parts = [
        f"{painted('May be unmapped', BOLD + GREEN, colour=colour)}: {_what(plan)}.",
        "\n".join(["Steps, each after another look:", *steps]),
        _conditions(plan.conditions, colour=colour),
    ]
    return "\n\n".join([*parts, *_follows(plan)]) + "\n"


@for_people
def unmap_refusal(refusal: UnmapRefusal, *, colour: bool) -> str:
    """Give why nothing is unmapped: every condition, and what was seen of it."""
    parts = [
        f"{painted('Not unmapped', BOLD + RED, colour=colour)}: {_what(refusal)}.",
        _conditions(refusal.conditions, colour=colour),
        next_text(_after_refusal(refusal), colour=colour),
    ]
    return "\n\n".join(parts) + "\n"


def _after_refusal(refusal: UnmapRefusal) -> list[Command]:
    """Return what to run next: wait where only time is missing, else why it was refused."""
    hard = [each.code for each in refusal.conditions if not each.met and not each.passes]
    explained = [command("rbdagent explain", code) for code in hard]
    if refusal.identity is None:
        return explained
    device = refusal.identity.device
    if hard:
        return [command("rbdagent who-holds", device), *explained]
    return [command("rbdagent unmap", device, options=("--wait",), note="only time is missing")]


@for_people
def unmap_result(result: UnmapResult, *, colour: bool) -> str:
    """Give what was done, what stopped it, and what must follow."""
    well = result.outcome is UnmapOutcome.UNMAPPED
    word = painted(str(result.outcome), BOLD + (GREEN if well else RED), colour=colour)
    parts = [f"{word}: {result.message}."]
    if result.done:
        parts.append(
            "\n".join(["Done:", *(f"  {each.kind} {each.subject}" for each in result.done)])
        )
    if result.refusal is not None:
        parts.append(_conditions(result.refusal.conditions, colour=colour))
    if any(each.kind is StepKind.UNMAP for each in result.done):
        parts += _follows(result.plan)
    return "\n\n".join(parts) + "\n"


def _what(plan: UnmapPlan | UnmapRefusal) -> str:
    device = plan.identity.device if plan.identity else "nothing of it"
    volume = f" (pv/{plan.persistent_volume})" if plan.persistent_volume else ""
    return f"{device} on {plan.node}{volume}"


def _conditions(conditions: Sequence[Condition], *, colour: bool) -> str:
    lines = []
    for each in conditions:
        word = "ok" if each.met else "not yet" if each.passes else "REFUSED"
        shown = painted(f"{word:<7}", GREEN if each.met else RED, colour=colour)
        lines.append(f" {each.number:>2} {shown}  {each.demands} ({each.code})")
        if not each.met:
            told = [*each.observed[:_MOST_REASONS]]
            if len(each.observed) > _MOST_REASONS:
                told.append(
                    f"and {len(each.observed) - _MOST_REASONS} more: -o json tells them all"
                )
            lines += [wrapped(f"- {why}", first=" " * 13, rest=" " * 15) for why in told]
    return "\n".join(["Conditions:", *lines])


def _follows(plan: UnmapPlan) -> list[str]:
    if not plan.expects:
        return []
    lines = [wrapped(each, first="  - ", rest="    ") for each in plan.expects]
    return ["\n".join(["What must follow:", *lines])]


# --------------------------------------------------------------------------------------------------
# Parts
# --------------------------------------------------------------------------------------------------


_HOLDER_HEAD: Final = (
    "NODE", "DEVICE", "VERDICT", "CLIENT", "ADDRESS", "PODS", "ATTACHMENT", "CONFIDENCE",
)  # fmt: skip
_HOLDER_HEAD_WIDE: Final = ("KIND", "MODE", "WATCH", "MOUNTS", "OPENERS", "SINCE")


def holder_table(
    holders: Sequence[JudgedHolder], snapshot: Snapshot, *, wide: bool, colour: bool
) -> str:
    """Give one row a holder."""
    known = pod_names(snapshot)
    head = _HOLDER_HEAD + (_HOLDER_HEAD_WIDE if wide else ())
    rows = [_row(each, known, wide=wide) for each in holders]
    verdicts = [each.verdict for each in holders]
    return _table(head, rows, verdicts if colour else None, head.index("VERDICT"))


def holder_cells(judged: JudgedHolder, snapshot: Snapshot) -> dict[str, str]:
    """Give a holder's row of the wide table, by column."""
    row = _row(judged, pod_names(snapshot), wide=True)
    return dict(zip(_HOLDER_HEAD + _HOLDER_HEAD_WIDE, row, strict=True))


def _device(holder: Holder) -> str:
    if holder.mapping is not None:
        return holder.mapping.device
    return holder.published.device if holder.published is not None else _UNKNOWN


def _row(judged: JudgedHolder, known: Mapping[str, str], *, wide: bool) -> list[str]:
    holder = judged.holder
    mapping = holder.mapping
    address = mapping.client_address if mapping and mapping.client_address else None
    watcher = holder.watcher
    row = [
        holder.node or _UNKNOWN,
        _device(holder),
        str(judged.verdict),
        f"client.{_client(holder)}" if _client(holder) else _UNKNOWN,
        str(address or (watcher.address if watcher else _UNKNOWN)),
        _pods(holder, known),
        _attachment(holder),
        str(holder.confidence),
    ]
    if wide:
        row += [
            str(holder.kind),
            _mode(holder),
            "yes" if watcher else "no",
            _count(mapping.mounts) if mapping else _UNKNOWN,
            _count(mapping.openers) if mapping else _UNKNOWN,
            judged.since or _UNKNOWN,
        ]
    return row


def _absent(snapshot: Snapshot) -> str:
    """Give the word for a volume that was not found: nobody may have looked for it."""
    kube = snapshot.kubernetes
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return _NOT_OBSERVED
    return _NONE


def _listed(
    diagnosis: Diagnosis, judged: JudgedHolder, snapshot: Snapshot, *, wide: bool
) -> list[str]:
    use, holder = diagnosis.use, judged.holder
    mapping = holder.mapping
    volume, claim = use.persistent_volume, use.claim and use.claim.ref
    if claim is None and volume is not None:
        claim = volume.claim
    absent = _absent(snapshot)
    row = [
        mapping.device if mapping else _UNKNOWN,
        str(use.image.spec) if use.image else _UNKNOWN,
        volume.name if volume else absent,
        str(claim) if claim else absent,
        str(judged.verdict),
        _pods(holder, {}),
    ]
    if wide:
        address = mapping.client_address if mapping else None
        row += [
            f"client.{_client(holder)}" if _client(holder) else _UNKNOWN,
            str(address) if address else _UNKNOWN,
            _attachment(holder),
        ]
    return row


def _client(holder: Holder) -> int | None:
    if holder.mapping is not None and holder.mapping.client_id is not None:
        return holder.mapping.client_id
    return holder.watcher.client if holder.watcher is not None else None


def _pods(holder: Holder, known: Mapping[str, str]) -> str:
    if isinstance(holder.pods, NotObserved):
        return _NOT_OBSERVED
    found = [str(each.ref) for each in holder.pods]
    found += [known.get(uid, f"uid {uid}") for uid in holder.lost_pod_uids]
    return ",".join(found) or _NONE


def _attachment(holder: Holder) -> str:
    found = holder.attachment
    if isinstance(found, NotObserved):
        return _NOT_OBSERVED
    if found is None:
        return _NONE
    if found.deleting_since is not None:
        return "deleting"
    return "attached" if found.attached else "not attached"


def _mode(holder: Holder) -> str:
    if holder.mapping is None or isinstance(holder.mapping.read_only, NotObserved):
        return _UNKNOWN
    return "ro" if holder.mapping.read_only else "rw"


def _count(found: tuple[object, ...] | NotObserved) -> str:
    return _NOT_OBSERVED if isinstance(found, NotObserved) else str(len(found))


def _headline(diagnosis: Diagnosis, *, colour: bool) -> str:
    use = diagnosis.use
    subject = use.target.given
    if use.persistent_volume is not None:
        subject = f"pv/{use.persistent_volume.name}"
    details = []
    if use.claim is not None:
        details.append(f"claim {use.claim.ref}")
    if use.image is not None:
        details.append(f"image {use.image.spec}")
    if use.image is not None and use.image.fsid:
        details.append(f"cluster {use.image.fsid}")
    about = f" ({', '.join(details)})" if details else ""
    verdict = str(diagnosis.verdict)
    shown = painted(verdict, BOLD + COLOURS.get(diagnosis.verdict, RED), colour=colour)
    words = WORDS[diagnosis.verdict]
    if use.image is None and diagnosis.verdict is Verdict.UNDETERMINED:
        words = "it leads to no RBD image that could be asked about"
    return f"{shown}: {words}.\n{subject}{about}"


def _judged(judged: JudgedHolder) -> str:
    holder = judged.holder
    where = holder.node or "an unknown machine"
    device = f" {holder.mapping.device}" if holder.mapping else ""
    lines = [f"{where}{device} is {judged.verdict}, because"]
    lines += [wrapped(each, first="  - ", rest="    ") for each in judged.because]
    return "\n".join(lines)


def finding_text(finding: Finding, said: frozenset[str] = frozenset(), *, colour: bool) -> str:
    """Give a finding; evidence that was said of the holder already is not said again."""
    paint = PAINT.get(finding.severity, "")
    label = painted(f"{finding.code} {finding.severity}", paint, colour=colour)
    lines = [f"{label}  {finding.subject}", wrapped(finding.message, first="  ", rest="  ")]
    fresh = [each for each in finding.evidence if each not in said]
    lines += [wrapped(each, first="  - ", rest="    ") for each in fresh]
    if finding.heals is not None:
        lines.append(wrapped(f"By itself: {finding.heals}.", first="  ", rest="  "))
    if finding.remedy:
        lines.append(wrapped(f"Remedy: {finding.remedy}", first="  ", rest="  "))
    lines += [f"    {line}" for line in lines_of(finding.commands)]
    return "\n".join(lines)


def source_lines(snapshot: Snapshot) -> str:
    """Give how each source went: what was not observed is a line, never a silent gap."""
    lines = ["Sources:"]
    for name, source in snapshot.sources.named:
        lines += _source(name, source)
    return "\n".join(lines)


def _source(name: str, source: Source) -> list[str]:
    state = "observed" if source.state is SourceState.OBSERVED else str(source.state).upper()
    reason = f": {source.reason}" if source.reason else ""
    lines = [wrapped(f"{name:<10} {state}{reason}", first="  ", rest=" " * 13)]
    if source.cure:
        # Never wrapped: it is there to be copied.
        lines.append(f"{' ' * 13}-> {source.cure}")
    for gap in source.gaps[:_MOST_GAPS]:
        lines.append(
            wrapped(f"not observed: {gap.fact}: {gap.reason}", first=" " * 13, rest=" " * 15)
        )
        if gap.cure:
            lines.append(f"{' ' * 15}-> {gap.cure}")
    if len(source.gaps) > _MOST_GAPS:
        left = len(source.gaps) - _MOST_GAPS
        lines.append(f"{' ' * 13}and {left} facts more were not observed: -o json tells them all")
    return lines


def next_text(commands: Sequence[Command], *, colour: bool) -> str:
    """Return the commands to run now."""
    lines = [painted("Next:", BOLD, colour=colour), *(f"  {line}" for line in lines_of(commands))]
    return "\n".join(lines)


def wrapped(text: str, *, first: str, rest: str) -> str:
    """Wrap a text to the width of an answer."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    verdicts: Sequence[Verdict] | None,
    painted: int,
) -> str:
    """Align as kubectl does: three spaces between columns; colour never counts as width."""
    paints = [COLOURS.get(each, RED) for each in verdicts] if verdicts else [""] * len(rows)
    return "\n".join(aligned(head, rows, paints, painted))


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], paints: Sequence[str], painted: int
) -> list[str]:
    """Give a table's lines, each with the paint of one of its columns."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str], paint: str) -> str:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        if paint:
            cells[painted] = f"{paint}{cells[painted]}{PLAIN}"
        return "   ".join(cells).rstrip()

    return [line(head, ""), *(line(row, paint) for row, paint in zip(rows, paints, strict=True))]


def painted(text: str, paint: str, *, colour: bool) -> str:
    """Colour a text, where colours may be shown."""
    return f"{paint}{text}{PLAIN}" if colour and paint else text
