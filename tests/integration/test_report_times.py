"""The age of a report is by the clock of the API server, which shows when it stored a time."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.agent.heartbeat import Heartbeat
from rbdagent.agent.publish import Publisher, _as_patch, _tracked, owned_by_node
from rbdagent.collect.kube.kubeconfig import KubeAccess
from rbdagent.collect.kube.list_reports import dated
from rbdagent.collect.kube.requests import RBD_NODES, lease_list
from rbdagent.parse.kubernetes import lease, observation_stored_at, rbd_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.model import PublishedSummary
    from tests.lab.api import Api
    from tests.lab.controlplane import ControlPlane

Json = dict[str, Any]
NAMESPACE: Final = "default"
_NUMBERS: Final = itertools.count(1)


@pytest.fixture
def agent(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Agent]:
    """Write as the agent of a Node of this test.

    The garbage collector deletes what the agent wrote some time after the Node is gone: a Node of
    the same name in the next test would find an object that disappears under it.
    """
    name = f"clock-{next(_NUMBERS)}"
    made = control_plane.api.create("/api/v1/nodes", {"metadata": {"name": name}})
    yield Agent(control_plane.api, name, owned_by_node(name, made["metadata"]["uid"]), tmp_path)
    control_plane.api.delete(f"/api/v1/nodes/{name}")


class Agent:
    """Sends what an agent's writers send, by a client in the network of the control plane."""

    def __init__(self, api: Api, node: str, owner: Json, directory: Path) -> None:
        self._api = api
        self._owner = owner
        self.path = f"{RBD_NODES}/{node}"
        self._lease_path = f"{lease_list(NAMESPACE)}/{node}"
        access = KubeAccess(kubeconfig=directory / "none", context=None, timeout_s=1)
        self._publisher = Publisher(access, node)
        self._heartbeat = Heartbeat(access, node, namespace=NAMESPACE, interval_s=60)

    def write(self, ahead: timedelta, *, mapped: int) -> None:
        """Write RBDNode and Lease, with a clock that is ahead."""
        at = f"{datetime.now(UTC) + ahead:%Y-%m-%dT%H:%M:%SZ}"
        status = {"observedAt": at, "leaseNamespace": NAMESPACE, "mapped": mapped}
        body = {"metadata": {"labels": {}}, "status": status}
        if self._api.find(self.path) is None:
            made = self._api.create(RBD_NODES, self._publisher._object(body, self._owner["uid"]))
            self._api.patch(self.path, {"metadata": _tracked(observation_stored_at(made))})
        else:
            self._api.patch(self.path, _as_patch(body, {}, known_at=None))
        spec = self._heartbeat._spec(at)
        if self._api.find(self._lease_path) is None:
            made = self._heartbeat._object({"metadata": {}, "spec": spec}, self._owner["uid"])
            self._api.create(lease_list(NAMESPACE), made)
        else:
            self._api.patch(self._lease_path, {"spec": spec})

    def read(self) -> PublishedSummary:
        """Return the RBDNode, dated as readers date it."""
        renewal = lease(self._api.get(self._lease_path))
        return dated(rbd_node(self._api.get(self.path)), renewal, timedelta())


def test_report_is_as_old_as_the_api_server_stored_it(
    control_plane: ControlPlane, agent: Agent
) -> None:
    for mapped, hours in ((0, 0), (1, 1), (2, 0), (3, -1)):
        before = datetime.now(UTC) - timedelta(seconds=2)
        agent.write(timedelta(hours=hours), mapped=mapped)
        # The label of another writer does not make the report recent, nor hides its time.
        control_plane.api.patch(agent.path, {"metadata": {"labels": {"by": f"another-{mapped}"}}})
        report = agent.read()
        assert report.lease is None
        assert re.sub(r"\d{3}s", "N", report.undated) == (
            "its clock is 3N ahead of the API server's" if hours > 0 else ""
        )
        seen = datetime.fromisoformat(report.observed_at)
        assert (seen >= before) is (hours >= 0)
        assert seen <= datetime.now(UTC)


def test_next_write_is_dated_after_the_api_server_stopped_to_record(
    control_plane: ControlPlane, agent: Agent
) -> None:
    """It records nothing of an object without managedFields, and any client may remove them."""
    agent.write(timedelta(), mapped=0)
    control_plane.api.patch(agent.path, {"metadata": {"managedFields": [{}]}})
    control_plane.api.patch(agent.path, {"status": {"mapped": 1}})
    assert agent.read().undated == "the API server does not show when it stored the report"
    agent.write(timedelta(seconds=2), mapped=2)
    assert agent.read().undated == ""
