"""Logs to stderr: for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

from rbdagent.parse.shown import in_all_texts, shown, shown_lines


def debug_log() -> Any:  # noqa: ANN401 - structlog's bound logger is a protocol of its own
    """Configure structlog and return a logger; imported only where --debug asks for it."""
    import structlog

    # As JSON every text is ASCII, with escapes (json.dumps).
    renderers: tuple[Any, ...] = (structlog.processors.JSONRenderer(),)
    if sys.stderr.isatty():
        renderers = (_shown, structlog.dev.ConsoleRenderer(colors=False))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    return structlog.get_logger()


def _shown(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Return an event with what it quotes shown: structlog 24 prints texts as they are."""
    return in_all_texts(event, shown)


class _ShownLines(logging.Formatter):
    """Formats a record: the lines are a traceback's."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text; logging's hook."""
        return shown_lines(super().format(record))


def show_tracebacks() -> None:
    """Have the tracebacks of contained failures (``rbdagent.observe.failure``) go to stderr."""
    from rbdagent.observe.failure import LOGGER

    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.DEBUG)
    handler = logging.StreamHandler()
    handler.setFormatter(_ShownLines())
    logger.handlers = [handler]


def agent_log(node_name: str) -> Any:  # noqa: ANN401 - as above
    """Give the agent's logger: one canonical line a cycle, with the node's name in each."""
    return debug_log().bind(node=node_name)
