"""What every tier has.

No property is held to a time of its own: on a busy machine that tells of the machine. A property
test has the same examples in each run, so a failure is the change's own; ``./dev fuzz`` draws new
ones and prints their seed. And a test may record a figure, which is printed at the end of each run.
"""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING

from hypothesis import settings

import rbdagent

if TYPE_CHECKING:
    import pytest

# Without a database a run depends on its seed alone, not on the runs before it.
_PLAIN = settings(deadline=None, database=None, print_blob=True)
settings.register_profile("fuzz", _PLAIN, max_examples=1000)
settings.register_profile("tier", _PLAIN, derandomize=True)
settings.load_profile("fuzz" if "RBDAGENT_FUZZ_SEED" in os.environ else "tier")

TOLD = "told"
"""A property that a test records with ``record_property(TOLD, ...)``."""


def pytest_collection_finish() -> None:
    """Import the whole product before the first example.

    hypothesis takes constants from the local modules that are loaded when it draws
    (hypothesis/internal/conjecture/providers.py, _get_local_constants). Verbs are imported when
    they run: else the examples depend on which tests a worker of xdist has run before.
    """
    for module in walk_packages(rbdagent.__path__, "rbdagent."):
        import_module(module.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests told: seeds above all, to play a run once more."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == TOLD:
                    terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
