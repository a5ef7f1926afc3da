"""When the objects of KubeVirt and csi-addons are requested, and what a missing answer means."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.kube.access_review import check_kube
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.list_operators import with_operators
from rbdagent.model import LIFECYCLE_NOT_REQUESTED, CollectScope, KubeView, NotObserved
from tests.support.fake_api import FakeApi, access_to, refuse
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import TARGET_POD, launcher, machines, replicated
from tests.support.snapshots import event, kube, volume, waiting_pod, world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.model import Snapshot

MIGRATIONS: Final = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"
OLD_MIGRATIONS: Final = MIGRATIONS.replace("/v1/", "/v1alpha3/")
REPLICATIONS: Final = (
    "/apis/replication.storage.openshift.io/v1alpha1/namespaces/default/volumereplications"
)
MIGRATING: Final = machines(launcher(), TARGET_POD)
MOVE: Final = {
    "metadata": {
        "namespace": "default",
        "name": "move",
        "uid": "m1",
        "deletionTimestamp": "2026-11-21T02:00:30Z",
    },
    "spec": {"vmiName": "vm1"},
    "status": {
        "phase": "Failed",
        "phaseTransitionTimestamps": [
            {"phase": "Running", "phaseTransitionTimestamp": "2026-11-21T02:00:00Z"},
            {"phase": "Failed", "phaseTransitionTimestamp": "2026-11-21T02:01:00Z"},
        ],
        "migrationState": {"failed": True, "failureReason": "the target is gone"},
    },
}
ROLE: Final = {
    "metadata": {
        "namespace": "default",
        "name": "data",
        "generation": 2,
        "labels": {"ramendr.openshift.io/owner-name": "shop-drpc"},
    },
    "spec": {
        "replicationState": "primary",
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "data"},
    },
    "status": {
        "state": "Unknown",
        "message": "failed to promote volume",
        "observedGeneration": 2,
        "conditions": [
            {"type": "Degraded", "status": "True", "reason": "Error"},
            {"type": "Completed", "status": "False", "reason": "FailedToPromote"},
        ],
    },
}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    fake.lists |= {"virtualmachineinstancemigrations": [MOVE], "volumereplications": [ROLE]}
    yield fake
    fake.stop()


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    return access_to(api, tmp_path)


def asked(
    seen: Snapshot, access: KubeAccess, also: CollectScope = CollectScope.LIFECYCLE
) -> Snapshot:
    empty = replace(
        seen.kubernetes or kube(),
        migrations=LIFECYCLE_NOT_REQUESTED,
        replications=LIFECYCLE_NOT_REQUESTED,
    )
    bare = replace(seen, kubernetes=empty)
    return with_operators(bare, Connection(access), also, time.monotonic() + 60)


def view(seen: Snapshot) -> KubeView:
    assert seen.kubernetes is not None
    return seen.kubernetes


def facts(seen: Snapshot) -> list[str]:
    return [gap.fact for gap in seen.sources.kubernetes.gaps]


NOT_PRIMARY: Final = world(
    of_image={"mirrored": False},
    in_kube={
        "pods": (waiting_pod(),),
        "events": (event("cannot map image k8s/x it is not primary", reason="FailedMount"),),
    },
)
REQUESTED: Final = {
    "two pods of one machine": (MIGRATING, [MIGRATIONS]),
    "one pod of a machine": (machines(launcher()), []),
    "two machines": (machines(launcher(), launcher("b", "worker-2", machine="vm2")), []),
    "two pods, one of which has ended": (
        machines(launcher(phase="Succeeded"), TARGET_POD),
        [],
    ),
    "a mirrored image": (replicated(), [REPLICATIONS]),
    "an image that is not mirrored": (world(), []),
    "an event reports that the image is not primary": (NOT_PRIMARY, [REPLICATIONS]),
    "a mirrored image that no PV of this cluster has": (
        world(of_image={"mirrored": True}, in_kube={"persistent_volumes": ()}),
        [],
    ),
    "a PV without a claim": (
        world(of_image={"mirrored": True}, in_kube={"persistent_volumes": (volume(claim=None),)}),
        [],
    ),
}


@each_row("name", REQUESTED)
def test_objects_are_requested_where_they_decide(
    name: str, api: FakeApi, access: KubeAccess
) -> None:
    seen, paths = REQUESTED[name]
    api.requests.clear()
    asked(seen, access)
    assert [request.partition("?")[0] for request in api.requests] == paths


def test_nothing_is_requested_outside_of_the_scope(api: FakeApi, access: KubeAccess) -> None:
    asked(MIGRATING, access, CollectScope.REPLICATIONS)
    asked(replicated(), access, CollectScope.MIGRATIONS)
    assert api.requests == []


@pytest.mark.usefixtures("api")
def test_fields_are_read(access: KubeAccess) -> None:
    (migration,) = view(asked(MIGRATING, access)).migrations  # type: ignore[misc]
    assert migration.ref.uid == "m1"
    assert migration.is_over
    assert migration.ended_at == "2026-11-21T02:01:00Z"
    assert migration.since == "2026-11-21T02:01:00Z"
    assert migration.deleting_since == "2026-11-21T02:00:30Z"
    assert migration.failure == "the target is gone"
    (replication,) = view(asked(replicated(), access)).replications  # type: ignore[misc]
    assert replication.source == "PersistentVolumeClaim/data"
    assert replication.failure == "FailedToPromote"
    assert replication.is_current
    assert replication.owner == "VolumeReplicationGroup/shop-drpc"


def test_missing_resource_is_absent(api: FakeApi, access: KubeAccess) -> None:
    for path in (MIGRATIONS, OLD_MIGRATIONS, REPLICATIONS):
        api.broken[path] = refuse(404, "the server could not find the requested resource")
    machine, mirrored = asked(MIGRATING, access), asked(replicated(), access)
    assert view(machine).migrations == ()
    assert view(mirrored).replications == ()
    assert facts(machine) == facts(mirrored) == []


def test_older_version_is_read_where_the_present_one_is_missing(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken[MIGRATIONS] = refuse(404)
    assert len(view(asked(MIGRATING, access)).migrations) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [403, 500])
def test_refused_list_is_not_observed(api: FakeApi, access: KubeAccess, status: int) -> None:
    for path in (MIGRATIONS, REPLICATIONS):
        api.broken[path] = refuse(status)
    machine, mirrored = asked(MIGRATING, access), asked(replicated(), access)
    assert isinstance(view(machine).migrations, NotObserved)
    assert isinstance(view(mirrored).replications, NotObserved)
    assert facts(machine) == ["live migrations of virtual machines"]
    assert facts(mirrored) == ["VolumeReplications"]
    if status == 403:
        (gap,) = machine.sources.kubernetes.gaps
        assert "can-i list virtualmachineinstancemigrations" in gap.hint


@pytest.mark.usefixtures("api")
def test_late_answer_is_not_observed(access: KubeAccess) -> None:
    bare = replace(view(MIGRATING), migrations=LIFECYCLE_NOT_REQUESTED)
    late = with_operators(
        replace(MIGRATING, kubernetes=bare),
        Connection(access),
        CollectScope.LIFECYCLE,
        time.monotonic() - 1,
    )
    assert isinstance(view(late).migrations, NotObserved)
    assert facts(late) == ["live migrations of virtual machines"]


RIGHT: Final = "this user may list virtualmachineinstancemigrations.kubevirt.io"


@pytest.mark.parametrize(("status", "state"), [(404, "skipped"), (None, "warning")])
def test_check_needs_no_right_to_what_the_cluster_lacks(
    api: FakeApi, access: KubeAccess, status: int | None, state: str
) -> None:
    api.review = lambda _: {"status": {"allowed": False}}
    if status is not None:
        api.broken["/apis/kubevirt.io"] = refuse(status)
    results = {result.sentence: result for result in check_kube(access, "n1", None)}
    assert str(results[RIGHT].state) == state
