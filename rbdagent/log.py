"""The log, on stderr: one line per event, as JSON, logfmt or text for a terminal.

Events of rbdagent and of libraries go through the same processors (docs/adr/0007-log.md). Import
this module only where a log is written: structlog imports asyncio, and takes 30 ms.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, merge_contextvars
from structlog.stdlib import ProcessorFormatter

from rbdagent.collect.failure import LOGGER
from rbdagent.parse.secrets import without_secrets
from rbdagent.parse.shown import as_unicode, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Log: TypeAlias = "FilteringBoundLogger"

bound = bound_contextvars
"""Add fields to each event that this thread logs while the context runs."""

bind = bind_contextvars
"""Change fields of the innermost :data:`bound` that has them."""

_EXCEPTION: Final = "exception"
_FIRST: Final = ("timestamp", "level", "event")


def logger(**fields: object) -> Log:
    """Return a logger for rbdagent's own events; :func:`logged` has the level.

    Args:
        fields: are added to every event.
    """
    chosen = structlog.make_filtering_bound_logger(logging.getLogger(LOGGER).getEffectiveLevel())
    log: Log = structlog.wrap_logger(
        logging.getLogger(LOGGER),
        processors=[
            merge_contextvars,
            structlog.processors.add_log_level,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=chosen,
    )
    return log.bind(**fields)


@contextlib.contextmanager
def logged(level: str, form: str) -> Iterator[None]:
    """Write events of rbdagent and of libraries to stderr, while the context runs.

    Args:
        level: of the least severe events: ``debug``, ``info``, ``warning`` or ``error``.
        form: ``json``, ``logfmt`` or ``console``.
    """
    root, excepthook = logging.getLogger(), threading.excepthook
    before = root.level, root.handlers
    handler = _Stderr(sys.stderr)
    handler.setFormatter(_formatter(form))
    root.handlers = [handler]
    root.setLevel(level.upper())
    threading.excepthook = _log_end_of_thread
    try:
        yield
    finally:
        root.setLevel(before[0])
        root.handlers = before[1]
        threading.excepthook = excepthook


class _Stderr(logging.StreamHandler[Any]):
    """Writes to stderr; an event that cannot be written is lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's hook
        """Do nothing: logging would print the event, with its secrets, to the same stderr."""


class _Formatter(ProcessorFormatter):
    """Formats any event: one that cannot be formatted is replaced, with its place."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text; logging's hook."""
        try:
            return super().format(record)
        except Exception as error:  # noqa: BLE001 - a line of the log must not end the program
            return super().format(
                logging.LogRecord(
                    record.name,
                    logging.ERROR,
                    record.pathname,
                    record.lineno,
                    "a log event was not written: %s at %s:%d",
                    (type(error).__name__, record.pathname, record.lineno),
                    None,
                )
            )


def _formatter(form: str) -> logging.Formatter:
    traceback, texts, render = _FORMS[form]
    return _Formatter(
        foreign_pre_chain=[
            merge_contextvars,
            structlog.processors.add_log_level,
            structlog.stdlib.add_logger_name,
        ],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            traceback,
            _redacted,
            texts,
            render,
        ],
    )


def _redacted(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Return an event as plain data without secrets; a processor of structlog."""
    # The first names first; a name that occurs twice keeps its first place.
    names = dict.fromkeys((*_FIRST, *event))
    return {name: _plain(name, event[name]) for name in names if name in event}


def _plain(name: str, value: object) -> object:
    """Return the plain data of a field without secrets; any object becomes a text.

    Args:
        name: of the field. It may show that the value is a secret.
        value: of the field.
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            # JSON has no NaN and no infinity.
            return value if math.isfinite(value) else str(value)
        case str():
            # A subclass may be formatted in a different way.
            return without_secrets(f"{name}={value}").removeprefix(f"{name}=")
        case dict():
            return {str(key): _plain(str(key), part) for key, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(name, part) for part in value]
        case _:
            return _plain(name, _text_of(value))


def _text_of(value: object) -> str:
    try:
        return str(value) if isinstance(value, BaseException) else repr(value)
    except Exception as error:  # noqa: BLE001 - an object that has no text must not end the program
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _in_texts(change: Callable[[str], str], lines: Callable[[str], str]) -> Processor:
    """Return a processor that changes each text of plain data; a traceback has several lines."""

    def changed(value: object) -> object:
        match value:
            case str():
                return change(value)
            case dict():
                return {change(name): changed(part) for name, part in value.items()}
            case list():
                return [changed(part) for part in value]
            case _:
                return value

    def processor(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {
            change(name): lines(value)
            if name == _EXCEPTION and isinstance(value, str)
            else changed(value)
            for name, value in event.items()
        }

    return processor


def _indented(traceback: str) -> str:
    """Escape and indent the lines of a traceback: an error may quote what looks like an event."""
    return "\n".join(f"  {shown(line)}" for line in traceback.split("\n"))


_FORMS: Final[dict[str, tuple[Processor, Processor, Processor]]] = {
    "json": (
        # The default shows the local variables of each frame: the keys and tokens that it held.
        structlog.processors.ExceptionRenderer(
            structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        ),
        # JSON escapes everything else. A parser may refuse the escape of half a surrogate pair.
        _in_texts(as_unicode, as_unicode),
        structlog.processors.JSONRenderer(),
    ),
    "logfmt": (
        structlog.processors.format_exc_info,
        _in_texts(shown, shown),
        structlog.processors.LogfmtRenderer(bool_as_flag=False),
    ),
    "console": (
        structlog.processors.format_exc_info,
        _in_texts(shown, _indented),
        structlog.dev.ConsoleRenderer(
            colors=False,
            repr_native_str=True,
            exception_formatter=structlog.dev.plain_traceback,
            sort_keys=False,
        ),
    ),
}
"""By format: the processors that format tracebacks, that escape texts, and that write the line."""


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Log an error that ended a thread; hook of threading, which would print the traceback."""
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        logger().error("a thread ended: this is a defect of rbdagent", exc_info=ended.exc_value)
