"""What Ceph itself reports decides why a call or a request waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from rbdagent.collect.ceph.connection import read_health
from rbdagent.model import CephView, HealthCheck, StorageClass
from tests.support.claims import recorded_claim
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import REPORTED
from tests.support.snapshots import diagnosis_of

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

FULL: Final = HealthCheck(
    name="POOL_FULL",
    texts=("1 pool(s) full", "pool 'k8s' is full (running out of quota)"),
)
NO_SPACE: Final = HealthCheck(
    name="POOL_FULL",
    texts=(
        "2 pool(s) full",
        "pool 'x' is full (running out of quota)",
        "pool 'k8s' is full (no space)",
    ),
)
NO_REASON: Final = HealthCheck(name="POOL_FULL", texts=("pool 'k8s' is full",))
OTHER_FULL: Final = HealthCheck(name="POOL_FULL", texts=("1 pool(s) full", "pool 'x' is full"))
INACTIVE: Final = HealthCheck(
    name="PG_AVAILABILITY",
    texts=("Reduced data availability: 1 pg inactive", "pg 1.0 is stuck inactive for 61s"),
)
OTHER_INACTIVE: Final = HealthCheck(
    name="PG_AVAILABILITY",
    texts=("Reduced data availability: 1 pg inactive", "pg 2.0 is stuck inactive for 61s"),
)
PAUSED: Final = HealthCheck(name="OSDMAP_FLAGS", texts=("pauserd,pausewr flag(s) set",))
NOOUT: Final = HealthCheck(name="OSDMAP_FLAGS", texts=("noout flag(s) set",))
CAUSES: Final = {
    "quota": (FULL, "Ceph reports that pool k8s is at its quota"),
    "no space": (NO_SPACE, "Ceph reports that pool k8s is full (no space)"),
    "full": (NO_REASON, "Ceph reports that pool k8s is full or at its quota"),
    "inactive": (INACTIVE, "placement groups of pool k8s serve no I/O"),
    "paused": (PAUSED, "Ceph's I/O is paused"),
}
NO_CAUSES: Final = {"full": OTHER_FULL, "inactive": OTHER_INACTIVE, "noout": NOOUT}


def reporting(seen: Snapshot, *checks: HealthCheck) -> Snapshot:
    """Return a snapshot whose clusters report these checks."""
    assert seen.ceph is not None
    clusters = tuple(replace(cluster, health=checks) for cluster in seen.ceph.clusters)
    return replace(seen, ceph=CephView(clusters=clusters))


def hanging_creation() -> Snapshot:
    """Return the recorded claim whose class names a pool at its quota."""
    seen = recorded_claim("provisioning-quota")
    assert seen.kubernetes is not None
    classes = (StorageClass(name="rbd-quota", provisioner="rbd.csi.ceph.com", pool="k8s"),)
    (claim,) = seen.kubernetes.claims  # type: ignore[misc]
    classes = (replace(classes[0], name=claim.storage_class or ""),)
    return replace(seen, kubernetes=replace(seen.kubernetes, storage_classes=classes))


def message(seen: Snapshot, code: str) -> str:
    return next(one.message for one in diagnosis_of(seen).findings if one.code == code)


def a_hang() -> Snapshot:
    """Return a node with a request of the volume's client that has no answer."""
    rows: dict[str, Any] = dict(REPORTED["RBD203"])
    found = next(iter(rows.values()))
    seen: Snapshot = found[0] if isinstance(found, tuple) else found
    return seen


@each_row("case", CAUSES)
def test_reported_cause_is_named_for_a_creation_and_for_a_hang(case: str) -> None:
    check, words = CAUSES[case]
    assert words in message(reporting(hanging_creation(), check), "RBD619")
    assert words in message(reporting(a_hang(), check), "RBD203")


@each_row("case", NO_CAUSES)
def test_report_about_another_pool_is_no_cause(case: str) -> None:
    for seen, code in ((hanging_creation(), "RBD619"), (a_hang(), "RBD203")):
        assert "Ceph reports" not in message(reporting(seen, NO_CAUSES[case]), code)
        assert "paused" not in message(reporting(seen, NO_CAUSES[case]), code)


def test_only_checks_that_stop_io_are_kept() -> None:
    answer = {
        "status": "HEALTH_WARN",
        "checks": {
            "MON_DOWN": {"summary": {"message": "1/3 mons down"}, "detail": []},
            "POOL_FULL": {
                "summary": {"message": "1 pool(s) full", "count": 1},
                "detail": [{"message": "pool 'k8s' is full (running out of quota)"}],
            },
        },
    }
    values = (msgspec.json.decode(msgspec.json.encode(answer)),)
    assert read_health(values) == (FULL,)
