"""Logs to stderr: for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import sys
from typing import Any


def debug_log() -> Any:  # noqa: ANN401 - structlog's bound logger is a protocol of its own
    """Configure structlog and give a logger; imported only where --debug asks for it."""
    import structlog

    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=False)
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    return structlog.get_logger()


def show_tracebacks() -> None:
    """Have the tracebacks of contained failures (``rbdagent.observe.failure``) go to stderr."""
    import logging

    from rbdagent.observe.failure import LOGGER

    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.DEBUG)
    logger.handlers = [logging.StreamHandler()]


def agent_log(node_name: str) -> Any:  # noqa: ANN401 - as above
    """Give the agent's logger: one canonical line a cycle, with the node's name in each."""
    return debug_log().bind(node=node_name)
