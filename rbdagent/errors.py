"""The errors that users may see. Each error is understandable without a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import sentence_of

if TYPE_CHECKING:
    from rbdagent.model import Sentence


class RbdagentError(Exception):
    """An error with a hint for the user.

    ``str()`` is one paragraph: the attempt, its object, and the result. ``advice`` states what the
    user can do; commands in it are data.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: Sentence = "") -> None:
        super().__init__(message)
        self.advice = hint

    @property
    def hint(self) -> str:
        """The advice as it is read on a node, where rbdagent is installed."""
        return sentence_of(self.advice)


class ParseError(RbdagentError):
    """A text does not match its format; ``text`` is None if the error must not quote it."""

    def __init__(
        self, *, what: str, where: str, text: str | None, expected: str, hint: Sentence = ""
    ) -> None:
        found = "" if text is None else f" from {text!r}"
        super().__init__(f"{where}: cannot read {what}{found}: expected {expected}", hint=hint)
        self.what = what
        self.where = where
        self.text = text
        self.expected = expected


class UsageError(RbdagentError):
    """The command line or the configuration is wrong: flags, target forms, settings."""

    exit_code = 2


class NotFoundError(RbdagentError):
    """The requested object does not exist; ``near`` contains similar names."""

    def __init__(self, message: str, *, hint: Sentence = "", near: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.near = near


class SourceError(RbdagentError):
    """A source (node, Ceph, Kubernetes) could not be observed; the hint states what would help.

    ``timed_out`` is whether Ceph gave no answer in time.
    """

    def __init__(self, message: str, *, hint: Sentence = "", timed_out: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.timed_out = timed_out
