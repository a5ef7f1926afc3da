"""The errors that users may see. Each error is understandable without a traceback."""

from __future__ import annotations


class RbdagentError(Exception):
    """An error with a hint for the user.

    ``str()`` is one paragraph: the attempt, its object, and the result. ``hint`` states what the
    user can do.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ParseError(RbdagentError):
    """A text does not match its format; ``text`` is None if the error must not quote it."""

    def __init__(
        self, *, what: str, where: str, text: str | None, expected: str, hint: str = ""
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

    def __init__(self, message: str, *, hint: str = "", near: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.near = near


class SourceError(RbdagentError):
    """A source (node, Ceph, Kubernetes) could not be observed; the hint states what would help."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.hint = hint
