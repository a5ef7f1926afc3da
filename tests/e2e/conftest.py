"""One lab a run: real Ceph, a real control plane, two nodes with real kubelets and krbd.

Tests share it, and may run at the same time (pytest-xdist): each has volumes and faults of its own.
One that disturbs a whole node or the cluster is marked ``alone``, and waits for its turn.
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
    from collections.abc import Iterator


_ALONE_IN_FIRST_LAB: Final = frozenset(
    {"test_scenarios_of_the_cluster.py", "test_scenarios_on_nodes.py", "test_unmap.py"}
)
"""Their tests are alone behind those that share the first lab: so both take equally long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lab",
        choices=("both", "first", "second"),
        default="both",
        help="play the tests of one of two labs that run side by side",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this lab, and play last what must be alone: others wait for it."""
    items.sort(key=_is_alone)
    lab = config.getoption("--lab")
    if lab != "both":
        others = [item for item in items if _lab_of(item) != lab]
        items[:] = [item for item in items if _lab_of(item) == lab]
        config.hook.pytest_deselected(items=others)


def _lab_of(item: pytest.Item) -> str:
    first = not _is_alone(item) or item.path.name in _ALONE_IN_FIRST_LAB
    return "first" if first else "second"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Deal out by file, and last, to one worker, what must be alone.

    By files alone a worker that comes to such a test waits for all others, and has tests left that
    it could play.
    """
    alone = _those_alone()

    def scope_of(nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        return "alone" if (Path(file).name, name.partition("[")[0]) in alone else file

    # In the order of collection, not by the number of tests: what is alone is the last there.
    config.option.loadscopereorder = False
    by_scope: Any = importlib.import_module("xdist.scheduler").LoadScopeScheduling
    return type("LastAlone", (by_scope,), {"_split_scope": staticmethod(scope_of)})(config, log)


def _those_alone() -> set[tuple[str, str]]:
    """Give file and name of the tests that are marked so: who deals out knows of names alone."""
    return {
        (file.name, each.name)
        for file in Path(__file__).parent.glob("test_*.py")
        for each in ast.parse(file.read_text()).body
        if isinstance(each, ast.FunctionDef)
        and any(ast.unparse(one) == "pytest.mark.alone" for one in each.decorator_list)
    }


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Bring the lab up before there are workers: they share it."""
    config = session.config
    is_worker = hasattr(config, "workerinput")
    if not is_worker and config.getoption("numprocesses", default=None) and not _is_kept():
        stack = ExitStack()
        config.add_cleanup(stack.close)
        stack.enter_context(running_lab())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Share the lab with those that share it; a test that must be alone waits until it is.

    Around everything of a test: a module's fixtures, too, must not meet another's faults.
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
    """Share the lab between a module's tests too: nobody is alone with what its fixtures made."""
    with _turn(fcntl.LOCK_SH) if _is_lent() else contextlib.nullcontext():
        yield


def _is_kept() -> bool:
    return os.environ.get("RBDAGENT_TEST_LAB") == "kept"


def _is_lent() -> bool:
    return _is_kept() or "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Bring the lab up once; with RBDAGENT_TEST_LAB=kept use the one that `./dev lab up` left."""
    if _is_lent():
        lent = Lab()
        yield lent
        lent.close()
        return
    with running_lab() as lab:
        yield lab


@pytest.fixture
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Give a stage with names of its own, and clear it whatever happened on it."""
    scene = Scene(lab, request.node.name)
    yield scene
    scene.clear()
