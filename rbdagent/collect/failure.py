"""Errors become reasons: a source that fails does not end the others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from rbdagent.errors import RbdagentError, SourceError
from rbdagent.model import Gap, NotObserved, Source, SourceState, unobserved
from rbdagent.parse.excerpt import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOGGER: Final = "rbdagent"
"""Name of the logger; its debug messages are written with ``--debug``, and by an agent with
``--log-level debug`` (``rbdagent.log``)."""

DEFECT: Final = "this is a defect of rbdagent: run it again with --debug and report what it prints"


def is_debug(arguments: Sequence[str]) -> bool:
    """Return whether the command line or the environment requests tracebacks."""
    return "--debug" in arguments or os.environ.get("RBDAGENT_DEBUG") not in {None, "", "0"}


def as_source_error(error: BaseException, subject: str) -> SourceError:
    """Return the error to report; log the traceback of an unexpected one.

    Args:
        error: the error raised while the subject was observed. It is raised again if it is not an
            ``Exception`` (KeyboardInterrupt).
        subject: the name of the subject in output: ``the node``, ``cluster ceph``.
    """
    if isinstance(error, SourceError):
        return error
    if isinstance(error, RbdagentError):
        text = str(error)
        return SourceError(text if subject in text else f"{subject}: {text}", hint=error.advice)
    if not isinstance(error, Exception):
        raise error
    import logging

    logging.getLogger(LOGGER).debug("%s", subject, exc_info=error)
    text = shortened(printable(str(error)))
    name = type(error).__name__
    return SourceError(f"{subject}: {name}: {text}" if text else f"{subject}: {name}", hint=DEFECT)


def not_observed(error: BaseException, subject: str) -> NotObserved:
    """Return a NotObserved with the reason."""
    found = as_source_error(error, subject)
    return NotObserved(reason=str(found), hint=found.hint, timed_out=found.timed_out)


def gaps_in(facts: Iterable[tuple[str, object]]) -> tuple[Gap, ...]:
    """Return a gap for each named fact that was not observed."""
    return tuple(
        Gap(fact=fact, reason=why.reason, hint=why.hint) for fact, why in unobserved(facts)
    )


def failed(error: BaseException, subject: str) -> Source:
    """Return the state of a failed source with the reason."""
    found = as_source_error(error, subject)
    return Source(
        state=SourceState.FAILED,
        reason=str(found),
        hint=found.hint,
        timed_out=found.timed_out,
    )
