"""Log lines of the node, added as evidence to the findings that they explain.

Errors of kubelet, the CSI node plugin and the kernel are evidence, never a verdict: a rule is based
on state. If a step fails on this node, the log lines of that step are quoted. If a log could not be
read, the evidence shows how to make it readable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.correlate.log_names import log_names_of
from rbdagent.model import (
    LifecycleStep,
    LogExcerpt,
    NotObserved,
    Severity,
    SubjectKind,
    derived,
    observed_of,
    unobserved,
)
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules import FINDINGS
from rbdagent.verdicts.timing import age, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Finding, LogEntry, NodeLogs
    from rbdagent.rules.context import RuleContext

_Logs = tuple[tuple[str, LogExcerpt | NotObserved], ...]
"""Pairs of a log's name and its lines."""

_BACK: Final = frozenset({LifecycleStep.UNPUBLISH, LifecycleStep.UNSTAGE})
_THERE: Final = frozenset({LifecycleStep.STAGE, LifecycleStep.PUBLISH})
_EITHER: Final = frozenset({Code.BETWEEN_STEPS, Code.OPERATION_HANGS})
"""A volume between two steps, or with a hanging step, may be on the attach or the detach path."""
_OF_THE_HOLDER: Final = frozenset({Code.MULTI_ATTACH})
"""A pod on another node waits for a step of this node."""
_DETACH_CALLS: Final = r"\b(?:Node)?Un(?:mount|map|stage|publish)"
"""``NodeUnstageVolume``, ``UnmountDevice``, ``UnmapVolume.TearDownVolume``."""

_MEANINGS: Final = (
    (Recognised.UNMAP_BUSY, "the device is still open"),
    (Recognised.UMOUNT_BUSY, "a file or a device on it is still open"),
    (Recognised.UNDER_WAY, "an earlier call has not finished yet"),
    (Recognised.DEADLINE, "the call exceeded kubelet's timeout and may still be running"),
    (Recognised.DRIVER_NOT_REGISTERED, "the node plugin has not registered with kubelet"),
    (Recognised.DRIVER_SILENT, "the node plugin is not listening on its socket"),
    (Recognised.WATCH_ENDED, "Ceph has removed its watch"),
    (Recognised.KERNEL_BLOCKLISTED, "its client is on Ceph's blocklist"),
    (Recognised.MAP_BLOCKLISTED, "the node's client is on Ceph's blocklist"),
    (
        Recognised.BLOCKLIST_REFUSED,
        "its Ceph user is not allowed to break the lock of a client that is gone",
    ),
    (Recognised.SECRET_TOO_BIG, "it does not support keys of type aes256k"),
    (Recognised.TASK_HUNG, "the process waits for its disk and cannot be killed"),
)
"""What a recognised text means, where the text itself does not state it."""


def with_log_lines(
    findings: tuple[Finding, ...], logs: NodeLogs, context: RuleContext
) -> tuple[Finding, ...]:
    """Return findings with the log lines of their step as further evidence."""
    kubelet, kernel = _logs_of_volume(context, logs)
    has_detach_step = any(
        _steps(finding) & _BACK and _is_here(finding, context) for finding in findings
    )
    extended = []
    for finding in findings:
        lines: tuple[str, ...] = ()
        steps = _steps(finding)
        if finding.code in _OF_THE_HOLDER and not has_detach_step and _is_attached_here(context):
            lines = _log_lines(_BACK, kubelet, kernel, context, is_problem=True)
        elif steps and _is_here(finding, context):
            is_problem = finding.severity is not Severity.INFO
            lines = _log_lines(steps, kubelet, kernel, context, is_problem=is_problem)
        elif FINDINGS[finding.code].step is LifecycleStep.USE and _is_here(finding, context):
            # Only the kernel logs errors of a device in use.
            lines = tuple(_quoted(kernel, _BACK | _THERE, context))
        extended.append(
            replace(finding, evidence=(*finding.evidence, *lines)) if lines else finding
        )
    return tuple(extended)


def _steps(finding: Finding) -> frozenset[LifecycleStep]:
    """Return the steps whose log lines explain a finding."""
    if finding.code in _EITHER:
        return _BACK | _THERE
    step = FINDINGS[finding.code].step
    return next((path for path in (_BACK, _THERE) if step in path), frozenset())


def _logs_of_volume(context: RuleContext, logs: NodeLogs) -> tuple[_Logs, _Logs]:
    """Return the lines of this volume: those of kubelet and the plugin, and those of the kernel."""
    names = log_names_of(context.volume, context.snapshot)

    def of(log: LogExcerpt | NotObserved, known: frozenset[str]) -> LogExcerpt | NotObserved:
        return derived(log, lambda excerpt: _about(excerpt, known))

    return (
        ("kubelet", of(logs.kubelet, names.volume)),
        ("the CSI node plugin", of(logs.plugin, names.volume)),
    ), (("the kernel", of(logs.kernel, names.kernel)),)


def _is_here(finding: Finding, context: RuleContext) -> bool:
    """Return whether a finding is about the node that was observed, based on its subject.

    A pod that the API does not list has its traces on this node.
    """
    subject = finding.subject
    if subject.kind is SubjectKind.VOLUME:
        pods = context.volume.waiting_pods
        return any(
            holder_verdict.holder.is_local for holder_verdict in context.holder_verdicts
        ) or any(pod.node_name == context.here for pod in pods)
    if subject.kind is SubjectKind.POD:
        pod = context.kube.pod_by_key.get((subject.namespace, subject.name))
        return pod is None or pod.node_name == context.here
    return subject.kind in {SubjectKind.NODE, SubjectKind.DEVICE} and subject.node == context.here


def _is_attached_here(context: RuleContext) -> bool:
    return any(
        attachment.attached and attachment.node_name == context.here
        for attachment in observed_of(context.volume.attachments)
    )


# --------------------------------------------------------------------------------------------------
# Sentences
# --------------------------------------------------------------------------------------------------


def _log_lines(
    steps: frozenset[LifecycleStep],
    kubelet: _Logs,
    kernel: _Logs,
    context: RuleContext,
    *,
    is_problem: bool,
) -> tuple[str, ...]:
    """Quote the log lines of some steps.

    For a problem, also name the logs without such lines and the logs that could not be read.
    """
    lines = [*_quoted((*kubelet, *kernel), steps, context)]
    if is_problem:
        lines += _logs_without_errors(kubelet, steps, context)
        lines += _unread_logs((*kubelet, *kernel))
    return tuple(lines)


def _about(excerpt: LogExcerpt, known: frozenset[str]) -> LogExcerpt:
    """Return the part of an excerpt that contains one of the names."""
    kept = tuple(entry for entry in excerpt.lines if not known.isdisjoint(entry.names))
    return replace(excerpt, lines=kept)


def _quoted(logs: _Logs, steps: frozenset[LifecycleStep], context: RuleContext) -> Iterator[str]:
    for source, log in logs:
        for entry in observed_of(derived(log, lambda excerpt: excerpt.lines)):
            if _is_of_steps(entry, steps):
                yield _line(source, entry, context.snapshot.observed_at)


def _is_of_steps(entry: LogEntry, steps: frozenset[LifecycleStep]) -> bool:
    """Return whether a log line is of one of the steps; a line without a call may be of any."""
    if not entry.call:
        return True
    return not steps.isdisjoint(_BACK if re.search(_DETACH_CALLS, entry.call) else _THERE)


def _line(source: str, entry: LogEntry, now: str) -> str:
    origin = f"{source} {age_text(age(entry.at, now))} ago"
    if entry.unanswered:
        return f"{origin}: {entry.call} was called and has not returned"
    if entry.times > 1:
        origin += f" ({entry.times} times)"
    if entry.call and entry.call not in entry.text:
        origin += f", {entry.call}"
    if entry.retry_at is not None and entry.retry_at > now:
        origin += f", next retry in {age_text(age(now, entry.retry_at))}"
    meanings = (f" ({meaning})" for pattern, meaning in _MEANINGS if pattern.is_in(entry.text))
    return f"{origin}: {foreign(entry.text)}{next(meanings, '')}"


def _logs_without_errors(
    logs: _Logs, steps: frozenset[LifecycleStep], context: RuleContext
) -> Iterator[str]:
    now = context.snapshot.observed_at
    without = [
        f"{source} in the last {age_text(age(excerpt.since, now))}"
        for source, excerpt in logs
        if isinstance(excerpt, LogExcerpt)
        and not any(_is_of_steps(entry, steps) for entry in excerpt.lines)
    ]
    if without:
        yield f"no error of this step was logged by {' or by '.join(without)}"


def _unread_logs(logs: _Logs) -> Iterator[str]:
    """Yield one line that names the logs that could not be read, and how to read them."""
    for source, excerpt in logs:
        if isinstance(excerpt, LogExcerpt) and excerpt.unread:
            yield f"not quoted as {source}: {'; '.join(excerpt.unread)}"
    unread = unobserved(logs)
    if not unread:
        return
    reasons = "; ".join(f"{source} ({excerpt.reason})" for source, excerpt in unread)
    hints = "; ".join(dict.fromkeys(excerpt.hint for _, excerpt in unread if excerpt.hint))
    yield f"not observed: the log of {reasons}{f'. To read it: {hints}' if hints else ''}"
