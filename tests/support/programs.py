"""Programs that some tests run, and that a contributor's machine may not have."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def needing(commands: Iterable[str]) -> list[object]:
    """Return parameters for a test that runs each of the commands; each needs its program."""
    return [pytest.param(one, marks=pytest.mark.needs(one.split()[0])) for one in commands]


def missing_for(item: pytest.Item) -> Iterator[str]:
    """Yield what a test needs and this machine has not, from the marks ``needs``."""
    for mark in item.iter_markers("needs"):
        yield from (program for program in mark.args if shutil.which(program) is None)
        module = mark.kwargs.get("module")
        if module is not None and find_spec(module) is None:
            yield module
