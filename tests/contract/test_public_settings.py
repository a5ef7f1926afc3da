"""An agent, and the verb that writes records, observe their node for readers of objects."""

from __future__ import annotations

import faulthandler
from typing import TYPE_CHECKING

import pytest

from rbdagent import collector
from tests.support.cli_runner import ask

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.config import Settings


@pytest.mark.parametrize("verb", [("agent",), ("unmap", "pv/x")])
def test_processes_of_the_node_are_public(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Settings] = []

    def start_workers(settings: Settings) -> None:
        given.append(settings)
        raise InterruptedError

    monkeypatch.setattr(collector, "start_workers", start_workers)
    # It needs a standard error with a descriptor.
    monkeypatch.setattr(faulthandler, "enable", lambda: None)
    ask(*verb, "--no-kube", "--no-ceph", "--state-dir", str(tmp_path))
    assert [settings.roots is not None and settings.roots.is_public for settings in given] == [True]
