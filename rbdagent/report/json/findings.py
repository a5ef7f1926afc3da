"""Findings in an output, with their commands and the automatic recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent import model
from rbdagent.commands import sentence_of, text_of
from rbdagent.report.json.output import Code, Object
from rbdagent.rules.entry import runbook

if TYPE_CHECKING:
    from collections.abc import Iterable


class Command(Object, frozen=True, kw_only=True):
    """A command as words and as text; the text is null if a terminal does not show it exactly."""

    argv: tuple[str, ...]
    command: str | None
    node: str | None
    changes: bool
    note: str


class Recovery(Object, frozen=True, kw_only=True):
    """The recovery without an operator: which component acts, and after which condition."""

    actor: str
    condition: str
    within_seconds: float | None
    note: str


class Subject(Object, frozen=True, kw_only=True):
    """The object that a finding is about; `subject` is its name in sentences.

    The namespace is null for an object without one, and for a pod that the API does not list, whose
    name is its uid. The node is that of a device or a client, null if it is unknown.
    """

    kind: model.SubjectKind
    name: str
    namespace: str | None
    node: str | None


class Waiting(Object, frozen=True, kw_only=True):
    """A pod that the object of a finding keeps waiting; the node is null if it has none."""

    namespace: str
    name: str
    node: str | None


class Argument(Object, frozen=True, kw_only=True):
    """What others named or wrote in a message, or what was measured: `pod`, `error`, `age`.

    The values are as in the message: a text of others is quoted.
    """

    name: str
    values: tuple[str, ...]


class Finding(Object, frozen=True, kw_only=True):
    """One problem or fact, with its evidence and its remedy."""

    code: Code
    severity: model.Severity
    subject: str
    about: Subject
    message: str
    arguments: tuple[Argument, ...]
    waiting: tuple[Waiting, ...]
    evidence: tuple[str, ...]
    remedy: str
    commands: tuple[Command, ...]
    recovery: Recovery | None
    runbook: str


def findings(reported: Iterable[model.Finding]) -> tuple[Finding, ...]:
    """Return findings in their order."""
    return tuple(finding(known) for known in reported)


def finding(known: model.Finding) -> Finding:
    """Return a finding, with the URL of its runbook."""
    return Finding(
        code=known.code,
        severity=known.severity,
        subject=str(known.subject),
        about=subject(known.subject),
        message=known.message,
        arguments=tuple(
            Argument(name=argument.name, values=argument.values)
            for argument in known.statement.arguments
        ),
        waiting=tuple(
            Waiting(namespace=pod.ref.namespace, name=pod.ref.name, node=pod.node_name)
            for pod in known.waiting
        ),
        evidence=known.evidence,
        remedy=sentence_of(known.remedy),
        commands=commands(known.commands),
        recovery=recovery(known.recovery),
        runbook=runbook(known.code),
    )


def subject(known: model.Subject) -> Subject:
    """Return the object that a finding is about."""
    return Subject(
        kind=known.kind, name=known.name, namespace=known.namespace or None, node=known.node
    )


def commands(suggested: Iterable[model.Command]) -> tuple[Command, ...]:
    """Return commands in their order."""
    return tuple(
        Command(
            argv=command.argv,
            command=text_of(command),
            node=command.node,
            changes=command.changes,
            note=command.note,
        )
        for command in suggested
    )


def recovery(known: model.Recovery | None) -> Recovery | None:
    """Return the automatic recovery of a finding; None if the finding has none."""
    if known is None:
        return None
    return Recovery(
        actor=known.actor,
        condition=known.condition,
        within_seconds=known.within_s,
        note=known.note,
    )
