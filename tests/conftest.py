"""Settings of all test tiers.

A property test has no deadline: on a busy machine a deadline measures the machine. A property test
has the same examples in each run, so a failure comes from the change; ``./dev fuzz`` draws new
examples and prints their seed. A test may record a figure, which is printed at the end of each run.
"""

from __future__ import annotations

import os
from importlib import import_module
from pkgutil import walk_packages

import pytest
from hypothesis import settings

import rbdagent
from tests.support import programs, rows
from tests.support.run_summary import PRINTED

# Without a database a run depends only on its seed, not on the runs before it.
_PLAIN = settings(deadline=None, database=None, print_blob=True)
settings.register_profile("fuzz", _PLAIN, max_examples=1000)
settings.register_profile("tier", _PLAIN, derandomize=True)
settings.load_profile("fuzz" if "RBDAGENT_FUZZ_SEED" in os.environ else "tier")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Define ``--rows``: the rows of long tables differ in the product's own rules."""
    parser.addoption("--rows", type=int, metavar="N", help="run at most N rows of a test function")
    parser.addoption("--quick", action="store_true", help="skip tests whose programs are missing")


def pytest_configure(config: pytest.Config) -> None:
    """Read ``--rows`` for the tests that run a table in one case."""
    if (most := config.getoption("--rows")) is not None:
        rows.chosen["most"] = most


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep at most ``--rows`` rows of each test function, evenly from its table."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {row for table in tables.values() for row in rows.some_of(table)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    if config.getoption("--quick"):
        for item in items:
            if missing := sorted(programs.missing_for(item)):
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)}: not installed"))


def pytest_collection_finish() -> None:
    """Import the whole product before the first example.

    hypothesis takes constants from the local modules that are loaded when it draws
    (hypothesis/internal/conjecture/providers.py, _get_local_constants). Verbs are imported when
    they run: else the examples depend on which tests a worker of xdist has run before.
    """
    for module in walk_packages(rbdagent.__path__, "rbdagent."):
        import_module(module.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded, mainly seeds with which a run can be repeated."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == PRINTED:
                    terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
