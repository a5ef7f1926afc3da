"""One lab a run: real Ceph, a real control plane, two nodes with real kubelets and krbd."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scene import Scene
from tests.lab.lab import Lab, running_lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Bring the lab up once; with RBDAGENT_TEST_LAB=kept use the one that `./dev lab up` left."""
    if os.environ.get("RBDAGENT_TEST_LAB") == "kept":
        kept = Lab()
        yield kept
        kept.close()
        return
    with running_lab() as lab:
        yield lab


@pytest.fixture
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Give a stage with names of its own, and clear it whatever happened on it."""
    scene = Scene(lab, request.node.name)
    yield scene
    scene.clear()
