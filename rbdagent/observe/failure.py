"""Why a source failed, whatever it raised: one failing source never ends the others."""

from __future__ import annotations

from typing import Final

from rbdagent.errors import RbdagentError, SourceError
from rbdagent.model import NotObserved, Source, SourceState
from rbdagent.parse.excerpt import printable, shortened

LOGGER: Final = "rbdagent"
"""Of the standard library; silent below warnings unless ``--debug`` shows it (``rbdagent.log``)."""

DEFECT: Final = "this is a defect of rbdagent: run it again with --debug and report what it prints"


def as_source_error(error: BaseException, subject: str) -> SourceError:
    """Return what to report of an error; the traceback of one without a cure is logged.

    Args:
        error: whatever observing the subject raised. What is no ``Exception`` (KeyboardInterrupt)
            is raised again.
        subject: what was observed, as a user names it: ``the node``, ``cluster ceph``.
    """
    if isinstance(error, SourceError):
        return error
    if isinstance(error, RbdagentError):
        text = str(error)
        return SourceError(text if subject in text else f"{subject}: {text}", cure=error.hint)
    if not isinstance(error, Exception):
        raise error
    import logging

    logging.getLogger(LOGGER).debug("%s", subject, exc_info=error)
    text = shortened(printable(str(error)))
    name = type(error).__name__
    return SourceError(f"{subject}: {name}: {text}" if text else f"{subject}: {name}", cure=DEFECT)


def not_observed(error: BaseException, subject: str) -> NotObserved:
    """Return that a fact was not observed, and why."""
    found = as_source_error(error, subject)
    return NotObserved(reason=str(found), cure=found.cure)


def failed(error: BaseException, subject: str) -> Source:
    """Return the state of a source that failed, and why."""
    found = as_source_error(error, subject)
    return Source(state=SourceState.FAILED, reason=str(found), cure=found.cure)
