"""Timeouts of the lab while kubelet mounts or unmounts a volume."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scene import Scene
from tests.lab.workloads import BACK_OFF_S, Workloads

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "wait",
    [
        Workloads.wait_running,
        Workloads.wait_gone,
        Workloads.wait_event,
        Workloads.wait_rolled_out,
        Scene.run_pod,
        Scene.wait_detached,
    ],
)
def test_wait_for_kubelet_is_longer_than_its_back_off(wait: Callable[..., object]) -> None:
    """Assert the timeout: kubelet retries a failed attempt up to 2m2s later."""
    assert inspect.signature(wait).parameters["timeout_s"].default > BACK_OFF_S
