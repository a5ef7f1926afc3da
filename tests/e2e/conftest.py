"""One lab per run: real Ceph, a real control plane, two nodes with real kubelets and krbd.

The tests share the lab and may run at the same time (pytest-xdist). Each test has its own volumes
and faults. A test that disturbs a whole node or the cluster has the mark ``alone``: it runs while
no other test runs.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import importlib
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.scene import Scene
from tests.lab.install import default_state_dir
from tests.lab.lab import Lab, running_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_ALONE_IN_FIRST_LAB: Final = frozenset({"test_scenarios_on_nodes.py", "test_unmap.py"})
"""Files whose tests run alone at the end of the first lab, so that both labs take equally long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lab",
        choices=("both", "first", "second"),
        default="both",
        help="play the tests of one of two labs that run side by side",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of this lab, and put the tests with the mark ``alone`` last."""
    items.sort(key=_is_alone)
    lab = config.getoption("--lab")
    if lab != "both":
        _deselect(config, items, lambda item: _lab_of(item) != lab)


def _deselect(
    config: pytest.Config, items: list[pytest.Item], is_other: Callable[[pytest.Item], bool]
) -> None:
    others = [item for item in items if is_other(item)]
    items[:] = [item for item in items if not is_other(item)]
    config.hook.pytest_deselected(items=others)


def _lab_of(item: pytest.Item) -> str:
    first = not _is_alone(item) or item.path.name in _ALONE_IN_FIRST_LAB
    return "first" if first else "second"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Distribute the tests by file; one worker runs all ``alone`` tests last.

    With files alone, a worker that reaches an ``alone`` test waits for all other workers, although
    it has other tests that it could run.
    """
    alone = _those_alone()

    def scope_of(nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        return "alone" if (Path(file).name, name.partition("[")[0]) in alone else file

    # In the order of collection, not by the number of tests: the ``alone`` tests come last.
    config.option.loadscopereorder = False
    by_scope: Any = importlib.import_module("xdist.scheduler").LoadScopeScheduling
    return type("LastAlone", (by_scope,), {"_split_scope": staticmethod(scope_of)})(config, log)


def _those_alone() -> set[tuple[str, str]]:
    """Return file and name of the tests with the mark: the scheduler knows only names."""
    return {
        (file.name, node.name)
        for file in Path(__file__).parent.glob("test_*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(one) == "pytest.mark.alone" for one in node.decorator_list)
    }


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the lab before the workers start: they share it."""
    config = session.config
    is_worker = hasattr(config, "workerinput")
    if not is_worker and config.getoption("numprocesses", default=None) and not _is_kept():
        stack = ExitStack()
        config.add_cleanup(stack.close)
        stack.enter_context(running_lab())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold a shared lock on the lab; a test with the mark ``alone`` holds an exclusive lock.

    The lock covers the whole test with its fixtures: the fixtures of a module must not meet the
    faults of another test either.
    """
    if not _is_lent():
        return (yield)
    with _turn(fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH):
        return (yield)


@contextlib.contextmanager
def _turn(kind: int) -> Iterator[None]:
    with (default_state_dir() / "turn.lock").open("w") as file:
        fcntl.flock(file, kind)
        yield


@pytest.fixture(scope="module")
def shared_turn() -> Iterator[None]:
    """Keep the shared lock between the tests of a module: its fixtures leave objects in the lab."""
    with _turn(fcntl.LOCK_SH) if _is_lent() else contextlib.nullcontext():
        yield


def _is_kept() -> bool:
    return os.environ.get("RBDAGENT_TEST_LAB") == "kept"


def _is_lent() -> bool:
    return _is_kept() or "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Start the lab once; with RBDAGENT_TEST_LAB=kept use the lab of `./dev lab up`."""
    if _is_lent():
        lent = Lab()
        yield lent
        lent.close()
        return
    with running_lab() as lab:
        yield lab


@pytest.fixture
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Yield a scene with unique names, and clear it after the test in every case."""
    scene = Scene(lab, request.node.name)
    yield scene
    scene.clear()
