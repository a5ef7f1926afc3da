"""The one hierarchy of errors that users may see; none needs a traceback to be understood."""

from __future__ import annotations


class RbdagentError(Exception):
    """Something rbdagent could not do, said so that a user can act on it.

    ``str()`` is one paragraph: what was tried, on what, what happened. ``hint`` is what to do
    about it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ParseError(RbdagentError):
    """A text was not what its format says; ``text`` is None where the error must not quote it."""

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
    """The call itself was wrong: flags, target forms, configuration."""

    exit_code = 2


class NotFoundError(RbdagentError):
    """Something that was asked for does not exist; ``near`` are names that come close."""

    def __init__(self, message: str, *, hint: str = "", near: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.near = near


class SourceError(RbdagentError):
    """A source (node, Ceph, Kubernetes) could not be observed; ``cure`` says what would help."""

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(message, hint=cure)
        self.cure = cure
