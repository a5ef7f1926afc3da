"""Logs to stderr: plain lines on a terminal, JSON elsewhere.

This module uses logging from the standard library, because structlog imports asyncio: 4.6 MiB in
the agent of each node (measured with structlog 26.1 and Python 3.11).
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rbdagent.parse.shown import shown, shown_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = "rbdagent.log"
_FIELDS: Final = "fields"


class Log:
    """Writes log events, one line per event."""

    def __init__(self, **bound: object) -> None:
        """Write to the present ``sys.stderr``.

        Args:
            bound: fields that are added to every event.
        """
        self._bound = bound
        self._logger = logging.getLogger(_NAME)
        self._logger.propagate = False
        self._logger.setLevel(logging.DEBUG)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Line() if sys.stderr.isatty() else _Json())
        self._logger.handlers = [handler]

    def debug(self, event: str, **fields: object) -> None:
        """Write an event for developers."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Write an expected event."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write an event that may need an administrator."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write an event that needs an administrator."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        # Without arguments, logging does not interpret a "%" in the event.
        self._logger.log(level, event, extra={_FIELDS: {**self._bound, **fields}})


class _Json(logging.Formatter):
    """Formats an event as JSON in ASCII, with escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text; logging's hook."""
        written = {"event": record.msg, "level": record.levelname.lower(), "timestamp": _at(record)}
        return json.dumps(_fields(record) | written, default=repr)


class _Line(logging.Formatter):
    """Formats an event as a plain line; quoted text is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text; logging's hook."""
        fields = " ".join(f"{name}={value!r}" for name, value in _fields(record).items())
        return shown(f"{_at(record)} {record.levelname.lower():7} {record.msg}: {fields}")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, _FIELDS)
    return fields


def _at(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _ShownLines(logging.Formatter):
    """Formats a record of several lines: a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text; logging's hook."""
        return shown_lines(super().format(record))


@contextlib.contextmanager
def tracebacks_shown() -> Iterator[None]:
    """Write the tracebacks of contained failures (``rbdagent.collect.failure``) to stderr."""
    from rbdagent.collect.failure import LOGGER

    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.handlers
    handler = logging.StreamHandler()
    handler.setFormatter(_ShownLines())
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.handlers = before[1]
