"""Fixtures of several test modules: an agent that only observes, and one that may unmap."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rbdagent.model import (
    UnmapOutcome,
    UnmapPlan,
    UnmapResult,
)
from tests.support.agent_loop import Stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch, may_unmap=False)


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch, may_unmap=True)


@pytest.fixture
def unmapped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the module that writes to the node; return the devices that it was to unmap."""
    done: list[str] = []

    def carry_out(plan: UnmapPlan, *, again: Callable[[], Any], **_: Any) -> UnmapResult:
        now = again()
        assert isinstance(now, UnmapPlan), now
        done.append(plan.identity.device)
        return UnmapResult(plan=plan, outcome=UnmapOutcome.UNMAPPED, message="", done=plan.steps)

    monkeypatch.setattr("rbdagent.unmap.executor.carry_out", carry_out)
    return done
