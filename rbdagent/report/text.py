"""Output as text: aligned columns as kubectl prints them, then a short text, then ``Next:``."""

from __future__ import annotations

import functools
import textwrap
from typing import TYPE_CHECKING, Final, ParamSpec

from rbdagent.commands import command, lines_of
from rbdagent.correlate.image_identity import are_mappings_observed, mappings_of
from rbdagent.correlate.published_reports import is_fresh
from rbdagent.model import (
    NOT_REQUESTED,
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
from rbdagent.report.pod_names import pod_names
from rbdagent.rules import coverage_gaps
from rbdagent.verdicts.evidence import evidence_of, processes_on
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rbdagent.model import (
        CheckResult,
        Condition,
        Diagnosis,
        Finding,
        Holder,
        HolderVerdict,
        ProcessRef,
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
"""Maximum of reasons for one condition: a mount can be visible in many mount namespaces."""
_MOST_GAPS: Final = 20
"""Maximum of gaps for one source: each of many images can be unreachable."""
_MOST_PROCESSES: Final = 20
"""Maximum of described processes of one holder: a pod may have any number."""
_UNKNOWN: Final = "<unknown>"
_NOT_OBSERVED: Final = "<not observed>"

OF_SOURCES: Final = coverage_gaps.CODES
"""Findings that repeat the line of the source, which shows the reason and the hint."""

RED, YELLOW, GREEN, BOLD, PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[1m", "\033[0m"
PAINT: Final = {Severity.CRITICAL: BOLD + RED, Severity.ERROR: RED, Severity.WARNING: YELLOW}
COLOURS: Final = {  # every other verdict is red
    Verdict.IN_USE: GREEN,
    Verdict.SHARED: GREEN,
    Verdict.FREE: GREEN,
    Verdict.STAGED: YELLOW,
    Verdict.FOREIGN: YELLOW,
    Verdict.UNDETERMINED: YELLOW,
}
WORDS: Final = {
    Verdict.IN_USE: "a pod uses it",
    Verdict.STAGED: "kubelet or the CSI driver is between two steps",
    Verdict.ORPHANED: "it is mapped, and nothing on that node uses it",
    Verdict.PINNED: "Kubernetes has released it, but something on the node keeps the device open",
    Verdict.DEAD: "the client that maps it can no longer do I/O",
    Verdict.UNWATCHED: "it is mapped read-write without a watch: invisible to Ceph, and live",
    Verdict.SHARED: "several clients hold it, and that is legitimate",
    Verdict.CONFLICT: "it is mapped read-write on two nodes, and nothing makes that legitimate",
    Verdict.FOREIGN: "the client that holds it is not a mapping of a Kubernetes node",
    Verdict.NODE_DOWN: "the node of its holder is not Ready, or does not exist",
    Verdict.RETURNED_DIRTY: "a node that was considered lost is back and still holds it",
    Verdict.UNDETERMINED: "not everything that the answer needs could be observed",
    Verdict.FREE: "every node was observed, and no client holds it",
    Verdict.STALE_ATTACHMENT: "the control plane reports it attached, but its node has no mapping",
    Verdict.NOT_BACKED: "a pod writes to its node's own disk instead of the volume",
}


def with_escaped_texts(answer: Callable[_P, str]) -> Callable[_P, str]:
    """Decorate a function that returns output as text: escape all texts in its arguments.

    Every text is escaped before the layout. So every unprintable character of the output comes from
    the layout: its line breaks, and its colours if they are requested.
    """

    @functools.wraps(answer)
    def escaped(*args: _P.args, **kwargs: _P.kwargs) -> str:
        return answer(*in_all_texts(args, shown), **in_all_texts(kwargs, shown))

    return escaped


@with_escaped_texts
def answer(diagnosis: Diagnosis, snapshot: Snapshot, *, wide: bool, colour: bool) -> str:
    """Return the output of ``who-holds``."""
    parts = []
    if diagnosis.holders:
        parts.append(holder_table(diagnosis.holders, snapshot, wide=wide, colour=colour))
    parts.append(_headline(diagnosis, colour=colour))
    for holder_verdict in diagnosis.holders:
        if holder_verdict.reasons:
            parts.append(_reasons(holder_verdict))
        parts += _processes(holder_verdict.holder, wide=wide)
    reasons = frozenset(
        line for holder_verdict in diagnosis.holders for line in holder_verdict.reasons
    )
    parts += [
        finding_text(finding, reasons, colour=colour)
        for finding in diagnosis.findings
        if finding.code not in OF_SOURCES
    ]
    parts.append(source_lines(snapshot))
    if diagnosis.next_commands:
        parts.append(next_text(diagnosis.next_commands, colour=colour))
    return "\n\n".join(parts) + "\n"


@with_escaped_texts
def mapping_table(
    diagnoses: Sequence[Diagnosis],
    snapshot: Snapshot,
    *,
    wide: bool,
    colour: bool,
    of: str = "",
) -> str:
    """Return the output of ``list``; ``of`` describes the selection, if there is one."""
    local = [
        (diagnosis, holder_verdict) for diagnosis in diagnoses for holder_verdict in diagnosis.local
    ]
    if local:
        head = ["DEVICE", "IMAGE", "PERSISTENTVOLUME", "CLAIM", "VERDICT", "PODS"]
        head += ["CLIENT", "ADDRESS", "ATTACHMENT"] if wide else []
        rows = [
            _mapping_row(diagnosis, holder_verdict, snapshot, wide=wide)
            for diagnosis, holder_verdict in local
        ]
        verdicts = [holder_verdict.verdict for _, holder_verdict in local]
        parts = [_table(head, rows, verdicts if colour else None, head.index("VERDICT"))]
    elif snapshot.sources.node.state is SourceState.OBSERVED and are_mappings_observed(
        snapshot.node
    ):
        parts = [_nothing_mapped(snapshot, of)]
    else:
        parts = ["The mappings of this node were not observed."]
    serious = [
        finding
        for diagnosis in diagnoses
        for finding in diagnosis.findings
        if finding.severity is not Severity.INFO and finding.code not in OF_SOURCES
    ]
    parts += [finding_text(finding, colour=colour) for finding in dict.fromkeys(serious)]
    parts.append(source_lines(snapshot))
    commands = tuple(
        dict.fromkeys(suggested for diagnosis in diagnoses for suggested in diagnosis.next_commands)
    )
    if commands:
        parts.append(next_text(commands, colour=colour))
    return "\n\n".join(parts) + "\n"


def _nothing_mapped(snapshot: Snapshot, of: str) -> str:
    mapped = mappings_of(snapshot.node)
    where = snapshot.node.node_name if snapshot.node else "this node"
    if of and mapped:
        return f"No volume {of} is mapped on {where}; {len(mapped)} others are."
    return f"Nothing is mapped on {where}: no krbd device, no rbd-nbd device."


@with_escaped_texts
def names(holders: Sequence[HolderVerdict]) -> str:
    """Return the output of ``-o name``: one ``node/NAME DEVICE`` per line."""
    lines = []
    for holder_verdict in holders:
        mapping = holder_verdict.holder.mapping
        device = mapping.device if mapping else f"client.{_client(holder_verdict.holder)}"
        lines.append(f"node/{holder_verdict.holder.node or _UNKNOWN} {device}")
    return "".join(f"{line}\n" for line in lines)


@with_escaped_texts
def check_lines(results: Sequence[CheckResult], *, colour: bool) -> str:
    """Return the output of ``check``: one line per result, with a hint below each problem."""
    words = {
        CheckState.OK: ("ok     ", GREEN),
        CheckState.WARNING: ("warning", YELLOW),
        CheckState.FAILED: ("FAILED ", RED),
        CheckState.SKIPPED: ("-      ", ""),
    }
    lines: list[str] = []
    source = ""
    for result in results:
        if result.source != source:
            source = result.source
            lines.append(("" if not lines else "\n") + source)
        word, paint = words[result.state]
        detail = f": {result.detail}" if result.detail else ""
        lines.append(f"  {painted(word, paint, colour=colour)} {result.sentence}{detail}")
        if result.hint and result.state in {CheckState.WARNING, CheckState.FAILED}:
            lines.append(f"          -> {result.hint}")
    failed = sum(result.state is CheckState.FAILED for result in results)
    warned = sum(result.state is CheckState.WARNING for result in results)
    if failed:
        last = f"{failed} of {len(results)} checks failed: answers will have gaps, and report them."
    elif warned:
        last = f"All required checks passed; {warned} warnings."
    else:
        last = "All required checks passed."
    return "\n".join([*lines, "", last]) + "\n"


@with_escaped_texts
def published_table(nodes: Sequence[PublishedNode], *, now: str, wide: bool, colour: bool) -> str:
    """Return a table of published mappings, and a line for each outdated or missing report."""
    head = ["NODE", "DEVICE", "VERDICT", "PV", "IMAGE", "CLIENT", "PODS", "SEEN"]
    head += ["ADDRESS", "SINCE"] if wide else []
    rows, verdicts, notes = [], [], []
    for node in sorted(nodes, key=lambda node: node.name):
        since = age(node.observed_at, now)
        seen = age_text(since)
        if isinstance(node.mappings, NotObserved):
            notes.append(f"{node.name}: not observed: {node.mappings.reason} (reported {seen} ago)")
            continue
        if not is_fresh(node, now):
            notes.append(f"{node.name}: last report {seen} ago: its current mappings are unknown")
        for mapping in node.mappings:
            row = [
                node.name,
                mapping.device,
                str(mapping.verdict),
                mapping.persistent_volume or _UNKNOWN,
                str(mapping.spec or _UNKNOWN),
                f"client.{mapping.client_id}" if mapping.client_id else _UNKNOWN,
                ",".join(mapping.pods) or "none",
                seen,
            ]
            row += (
                [str(mapping.client_address or _UNKNOWN), mapping.since or _UNKNOWN] if wide else []
            )
            rows.append(row)
            verdicts.append(mapping.verdict)
    if not nodes:
        return "No agent has published anything yet.\n"
    table = _table(head, rows, verdicts if colour else None, head.index("VERDICT"))
    if not rows:
        reported = sum(not isinstance(node.mappings, NotObserved) for node in nodes)
        table = f"Nothing is mapped on the {reported} nodes whose agents reported."
    return "\n".join([table.rstrip(), *([""] if notes else []), *notes]) + "\n"


@with_escaped_texts
def published_names(nodes: Sequence[PublishedNode]) -> str:
    """Return one ``NODE DEVICE`` line for each published mapping."""
    return "".join(
        f"{node.name} {mapping.device}\n"
        for node in nodes
        if not isinstance(node.mappings, NotObserved)
        for mapping in node.mappings
    )


@with_escaped_texts
def unmap_plan(plan: UnmapPlan, *, colour: bool) -> str:
    """Return the plan that ``unmap`` prints before it executes it."""
    words = {
        StepKind.UMOUNT: "unmount its staging mount {}",
        StepKind.LUKS_CLOSE: "close its LUKS mapping {}",
        StepKind.UNMAP: "unmap {}",
    }
    steps = [
        f"  {number}. {words[step.kind].format(step.subject)}"
        for number, step in enumerate(plan.steps, start=1)
    ]
    parts = [
        f"{painted('May be unmapped', BOLD + GREEN, colour=colour)}: {_mapping_of(plan)}.",
        "\n".join(["Steps, each after a new observation:", *steps]),
        _conditions(plan.conditions, colour=colour),
    ]
    return "\n\n".join([*parts, *_expected(plan)]) + "\n"


@with_escaped_texts
def unmap_refusal(refusal: UnmapRefusal, *, colour: bool) -> str:
    """Return why nothing is unmapped: every condition with its evidence."""
    parts = [
        f"{painted('Not unmapped', BOLD + RED, colour=colour)}: {_mapping_of(refusal)}.",
        _conditions(refusal.conditions, colour=colour),
        *([] if refusal.prevented_by is None else [f"{refusal.prevented_by_text}."]),
        next_text(_after_refusal(refusal), colour=colour),
    ]
    return "\n\n".join(parts) + "\n"


def _after_refusal(refusal: UnmapRefusal) -> list[Command]:
    """Return the next commands: wait if only time is missing, else explain the refusal."""
    hard = [
        condition.code
        for condition in refusal.conditions
        if not condition.met and not condition.pending
    ]
    explained = [command("rbdagent explain", code) for code in hard]
    if refusal.identity is None:
        return explained
    device = refusal.identity.device
    if hard:
        return [command("rbdagent who-holds", device), *explained]
    return [command("rbdagent unmap", device, options=("--wait",), note="only time is missing")]


@with_escaped_texts
def unmap_result(result: UnmapResult, *, colour: bool) -> str:
    """Return the executed steps, why they stopped if they did, and what to do next."""
    paint = GREEN if result.outcome is UnmapOutcome.UNMAPPED else RED
    outcome = painted(str(result.outcome), BOLD + paint, colour=colour)
    parts = [f"{outcome}: {result.message}."]
    if result.done:
        parts.append(
            "\n".join(["Done:", *(f"  {step.kind} {step.subject}" for step in result.done)])
        )
    if result.refusal is not None:
        parts.append(_conditions(result.refusal.conditions, colour=colour))
    if any(step.kind is StepKind.UNMAP for step in result.done):
        parts += _expected(result.plan)
    return "\n\n".join(parts) + "\n"


def _mapping_of(plan: UnmapPlan | UnmapRefusal) -> str:
    device = plan.identity.device if plan.identity else "no mapping"
    volume = f" (pv/{plan.persistent_volume})" if plan.persistent_volume else ""
    return f"{device} on {plan.node}{volume}"


def _conditions(conditions: Sequence[Condition], *, colour: bool) -> str:
    lines = []
    for condition in conditions:
        word = "ok" if condition.met else "not yet" if condition.pending else "REFUSED"
        shown = painted(f"{word:<7}", GREEN if condition.met else RED, colour=colour)
        lines.append(f" {condition.number:>2} {shown}  {condition.requirement} ({condition.code})")
        if not condition.met:
            reasons = [*condition.observed[:_MOST_REASONS]]
            if len(condition.observed) > _MOST_REASONS:
                reasons.append(
                    f"and {len(condition.observed) - _MOST_REASONS} more: -o json lists all"
                )
            lines += [wrapped(f"- {text}", first=" " * 13, rest=" " * 15) for text in reasons]
    return "\n".join(["Conditions:", *lines])


def _expected(plan: UnmapPlan) -> list[str]:
    if not plan.expects:
        return []
    lines = [wrapped(line, first="  - ", rest="    ") for line in plan.expects]
    return ["\n".join(["What must follow:", *lines])]


# --------------------------------------------------------------------------------------------------
# Parts
# --------------------------------------------------------------------------------------------------


_HOLDER_HEAD: Final = (
    "NODE", "DEVICE", "VERDICT", "CLIENT", "ADDRESS", "PODS", "ATTACHMENT", "CONFIDENCE",
)  # fmt: skip
_HOLDER_HEAD_WIDE: Final = ("KIND", "MODE", "WATCH", "MOUNTS", "OPENERS", "SINCE")


def holder_table(
    holders: Sequence[HolderVerdict], snapshot: Snapshot, *, wide: bool, colour: bool
) -> str:
    """Return a table with one row for each holder."""
    names_by_uid = pod_names(snapshot)
    head = _HOLDER_HEAD + (_HOLDER_HEAD_WIDE if wide else ())
    rows = [_holder_row(holder_verdict, names_by_uid, wide=wide) for holder_verdict in holders]
    verdicts = [holder_verdict.verdict for holder_verdict in holders]
    return _table(head, rows, verdicts if colour else None, head.index("VERDICT"))


def holder_cells(holder_verdict: HolderVerdict, snapshot: Snapshot) -> dict[str, str]:
    """Return a holder's row of the wide table, by column."""
    row = _holder_row(holder_verdict, pod_names(snapshot), wide=True)
    return dict(zip(_HOLDER_HEAD + _HOLDER_HEAD_WIDE, row, strict=True))


def _device(holder: Holder) -> str:
    if holder.mapping is not None:
        return holder.mapping.device
    return holder.published.device if holder.published is not None else _UNKNOWN


def _holder_row(
    holder_verdict: HolderVerdict, names_by_uid: Mapping[str, str], *, wide: bool
) -> list[str]:
    holder = holder_verdict.holder
    mapping = holder.mapping
    address = mapping.client_address if mapping and mapping.client_address else None
    watcher = holder.watcher
    row = [
        holder.node or _UNKNOWN,
        _device(holder),
        str(holder_verdict.verdict),
        f"client.{_client(holder)}" if _client(holder) else _UNKNOWN,
        str(address or (watcher.address if watcher else _UNKNOWN)),
        _pods(holder, names_by_uid),
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
            holder_verdict.since or _UNKNOWN,
        ]
    return row


def _cell_without_volume(snapshot: Snapshot) -> str:
    """Return the cell of a volume that was not found; PersistentVolumes may be unobserved."""
    kube = snapshot.kubernetes
    if kube is None or isinstance(kube.persistent_volumes, NotObserved):
        return _NOT_OBSERVED
    return _NONE


def _mapping_row(
    diagnosis: Diagnosis, holder_verdict: HolderVerdict, snapshot: Snapshot, *, wide: bool
) -> list[str]:
    use, holder = diagnosis.use, holder_verdict.holder
    mapping = holder.mapping
    volume, claim = use.persistent_volume, use.claim and use.claim.ref
    if claim is None and volume is not None:
        claim = volume.claim
    absent = _cell_without_volume(snapshot)
    row = [
        mapping.device if mapping else _UNKNOWN,
        str(use.image.spec) if use.image else _UNKNOWN,
        volume.name if volume else absent,
        str(claim) if claim else absent,
        str(holder_verdict.verdict),
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


def _pods(holder: Holder, names_by_uid: Mapping[str, str]) -> str:
    if isinstance(holder.pods, NotObserved):
        return _NOT_OBSERVED
    found = [str(pod.ref) for pod in holder.pods]
    found += [names_by_uid.get(uid, f"uid {uid}") for uid in holder.unknown_pod_uids]
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
    subject = use.target.argument
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
        words = "it does not lead to an RBD image that could be queried"
    return f"{shown}: {words}.\n{subject}{about}"


def _reasons(holder_verdict: HolderVerdict) -> str:
    holder = holder_verdict.holder
    where = holder.node or "an unknown machine"
    device = f" {holder.mapping.device}" if holder.mapping else ""
    lines = [f"{where}{device} is {holder_verdict.verdict}, because"]
    lines += [wrapped(reason, first="  - ", rest="    ") for reason in holder_verdict.reasons]
    return "\n".join(lines)


def _processes(holder: Holder, *, wide: bool) -> list[str]:
    """Return the paragraph that describes the processes of a holder; without ``wide``, of no pod.

    They are those of the evidence: neither the process that serves an rbd-nbd device, nor one whose
    mount namespace has only a copy of the host's mount.
    """
    found = evidence_of(holder)
    others = (mount.namespace.process for mount in found.other_mounts)
    lines = {
        process.pid: _process_line(process)
        for process in (*processes_on(found), *others)
        if process.user != NOT_REQUESTED and (wide or process.pod_uid is None)
    }
    if holder.mapping is None or not lines:
        return []
    listed = [lines[pid] for pid in sorted(lines)[:_MOST_PROCESSES]]
    if len(lines) > _MOST_PROCESSES:
        listed.append(f"  and {len(lines) - _MOST_PROCESSES} more processes: -o json lists all")
    head = f"Processes that hold {holder.mapping.device} on {holder.node or 'an unknown machine'}:"
    return ["\n".join([head, *listed])]


def _process_line(process: ProcessRef) -> str:
    started = f", started {process.started_at}" if process.started_at else ""
    match process.user:
        case NotObserved(reason=reason):
            user = f", user not observed: {reason}"
        case user_name:
            user = f" of user {user_name}"
    match process.parent:
        case None:
            parent = ""
        case NotObserved():
            parent = ", parent not observed"
        case known:
            parent = f", child of {known.pid} ({known.program})"
    text = f"process {process.pid} ({process.program}){user}{started}{parent}"
    return wrapped(text, first="  ", rest="    ")


def finding_text(finding: Finding, reasons: frozenset[str] = frozenset(), *, colour: bool) -> str:
    """Return a finding, without the evidence that the reasons of its holder already show."""
    paint = PAINT.get(finding.severity, "")
    label = painted(f"{finding.code} {finding.severity}", paint, colour=colour)
    lines = [f"{label}  {finding.subject}", wrapped(finding.message, first="  ", rest="  ")]
    fresh = [line for line in finding.evidence if line not in reasons]
    lines += [wrapped(line, first="  - ", rest="    ") for line in fresh]
    if finding.recovery is not None:
        lines.append(wrapped(f"Recovery: {finding.recovery}.", first="  ", rest="  "))
    if finding.remedy:
        lines.append(wrapped(f"Remedy: {finding.remedy}", first="  ", rest="  "))
    lines += [f"    {line}" for line in lines_of(finding.commands)]
    return "\n".join(lines)


def source_lines(snapshot: Snapshot) -> str:
    """Return the state of each source, with one line for each fact that was not observed."""
    lines = ["Sources:"]
    for name, source in snapshot.sources.named:
        lines += _source(name, source)
    return "\n".join(lines)


def _source(name: str, source: Source) -> list[str]:
    state = "observed" if source.state is SourceState.OBSERVED else str(source.state).upper()
    reason = f": {source.reason}" if source.reason else ""
    lines = [wrapped(f"{name:<10} {state}{reason}", first="  ", rest=" " * 13)]
    if source.hint:
        # Never wrap this line: users copy it.
        lines.append(f"{' ' * 13}-> {source.hint}")
    for gap in source.gaps[:_MOST_GAPS]:
        lines.append(
            wrapped(f"not observed: {gap.fact}: {gap.reason}", first=" " * 13, rest=" " * 15)
        )
        if gap.hint:
            lines.append(f"{' ' * 15}-> {gap.hint}")
    if len(source.gaps) > _MOST_GAPS:
        omitted = len(source.gaps) - _MOST_GAPS
        lines.append(f"{' ' * 13}and {omitted} more facts were not observed: -o json lists all")
    return lines


def next_text(commands: Sequence[Command], *, colour: bool) -> str:
    """Return the commands to run now."""
    lines = [painted("Next:", BOLD, colour=colour), *(f"  {line}" for line in lines_of(commands))]
    return "\n".join(lines)


def wrapped(text: str, *, first: str, rest: str) -> str:
    """Wrap a text to the width of the output."""
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
    """Align columns as kubectl does, with three spaces between them; colours have no width."""
    paints = [COLOURS.get(verdict, RED) for verdict in verdicts] if verdicts else [""] * len(rows)
    return "\n".join(aligned(head, rows, paints, painted))


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], paints: Sequence[str], painted: int
) -> list[str]:
    """Return a table's lines; one column has the colour of its row."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str], paint: str) -> str:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        if paint:
            cells[painted] = f"{paint}{cells[painted]}{PLAIN}"
        return "   ".join(cells).rstrip()

    return [line(head, ""), *(line(row, paint) for row, paint in zip(rows, paints, strict=True))]


def painted(text: str, paint: str, *, colour: bool) -> str:
    """Return a coloured text, if colours may be shown."""
    return f"{paint}{text}{PLAIN}" if colour and paint else text
