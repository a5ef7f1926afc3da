"""What every tier has.

No property is held to a time of its own: on a busy machine that tells of the machine. And a test
may tell a figure, which is printed at the end whoever ran it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

TOLD = "told"
"""A property that a test records with ``record_property(TOLD, ...)``."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests told: seeds above all, to play a run once more."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == TOLD:
                    terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
