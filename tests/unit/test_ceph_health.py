"""What Ceph itself reports decides why a call or a request waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from rbdagent.collect.ceph.connection import read_health
from rbdagent.model import CephView, HealthCheck, LogEntry, LogExcerpt, NodeLogs, StorageClass
from tests.support.claims import recorded_claim
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import REPORTED, SLOW_OSD
from tests.support.rule_tables import kubelet_event, stage
from tests.support.snapshots import (
    HANDLE,
    JUST_NOW,
    LONG_AGO,
    SPEC,
    UNSEEN,
    attachment,
    diagnosis_of,
    found,
    in_flight,
    process,
    unmapped,
    waiting_pod,
)

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


SLOW_OSDS: Final = HealthCheck(
    name="SLOW_OPS",
    texts=(
        "6 slow ops, oldest one blocked for 61 sec, daemons [mon.a,osd.0,osd.12] have slow ops.",
    ),
)
SLOW_MONITOR: Final = HealthCheck(
    name="SLOW_OPS", texts=("1 slow ops, oldest one blocked for 61 sec, mon.a has slow ops",)
)
SLOW_PINGS: Final = HealthCheck(
    name="OSD_SLOW_PING_TIME_BACK",
    texts=(
        "Slow OSD heartbeats on back (longest 1118.001ms)",
        "Slow OSD heartbeats on back from osd.0 [] to osd.1 [] 1118.001 msec",
    ),
)
EXISTS: Final = stage(f"an operation with the given Volume ID {HANDLE} already exists")
NO_CAUSE: Final = "its health reports nothing that explains it"


def a_hanging_call(*checks: HealthCheck, **parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return a node on which a pod waits for a call, and nothing else shows why."""
    in_kube = {
        "pods": (waiting_pod(node="worker-1"),),
        "events": (kubelet_event(EXISTS, first_seen=JUST_NOW),),
        "attachments": (attachment(),),
    }
    return unmapped(in_kube=in_kube, in_ceph={"health": checks}, **parts)


SHOWN_OSDS: Final = {
    "one": (SLOW_OSD, "most likely it waits for osd.1.", ("ceph osd find 1",)),
    "two": (SLOW_OSDS, "most likely it waits for one of these OSDs.", ()),
}


@each_row("case", SHOWN_OSDS)
def test_slow_osds_are_named_for_a_call_that_hangs(case: str) -> None:
    check, words, located = SHOWN_OSDS[case]
    for seen in (a_hanging_call(check), reporting(a_hang(), check)):
        hang = found(seen, "RBD203")
        assert words in hang.message
        commands = [" ".join(given.argv) for given in hang.commands]
        assert commands == ["ceph health detail", *located, "ceph osd perf"]


def test_monitor_with_slow_operations_is_no_cause() -> None:
    assert NO_CAUSE in found(a_hanging_call(SLOW_MONITOR), "RBD203").message


def test_slow_pings_alone_are_quoted_and_blamed_on_the_network() -> None:
    hang = found(a_hanging_call(SLOW_PINGS), "RBD203")
    assert "the network between OSDs may lose packets" in hang.message
    assert any("from osd.0 [] to osd.1 []" in line for line in hang.evidence)


def test_map_that_waits_for_the_monitors_does_not_wait_for_an_osd() -> None:
    """The kernel waits interruptibly for the monitors, and uninterruptibly for an OSD."""
    for state, is_osd in (("S", False), ("D", True)):
        waiting = in_flight(
            "rbd",
            f"rbd -m 192.0.2.10:3300 map {SPEC}",
            process=process(
                state=state, started_at=LONG_AGO, command=f"rbd -m 192.0.2.10 map {SPEC}"
            ),
            names=(str(SPEC),),
        )
        seen = a_hanging_call(SLOW_OSD, on_node={"in_flight": (waiting,)})
        assert ("most likely it waits for osd.1" in found(seen, "RBD203").message) is is_osd


def test_health_without_a_cause_is_reported_as_such() -> None:
    hang = found(a_hanging_call(), "RBD203")
    assert NO_CAUSE in hang.message
    assert "may show what its call waits for" in hang.message


def test_health_that_was_not_read_explains_nothing() -> None:
    seen = a_hanging_call()
    assert seen.ceph is not None
    clusters = tuple(replace(cluster, health=UNSEEN) for cluster in seen.ceph.clusters)
    hang = found(replace(seen, ceph=CephView(clusters=clusters)), "RBD203")
    assert "its health was not observed" in hang.message


LOG_LINES: Final = {
    "the call": (LogEntry(at=JUST_NOW, text=EXISTS, names=(HANDLE,)), True),
    "another error": (LogEntry(at=JUST_NOW, text="no such pool", names=(HANDLE,)), False),
}


@each_row("case", LOG_LINES)
def test_log_of_the_plugin_is_named_empty_only_if_it_is(case: str) -> None:
    line, is_silent = LOG_LINES[case]
    for since, is_whole in ((LONG_AGO, True), ("2026-11-21T02:59:59Z", False)):
        log, empty = LogExcerpt(since=since, lines=(line,)), LogExcerpt(since=since)
        logs = NodeLogs(kubelet=empty, plugin=log, kernel=empty)
        hang = found(a_hanging_call(on_node={"logs": logs}), "RBD203")
        assert ("on worker-1 has no other error" in hang.message) is (is_silent and is_whole)


def test_waiting_is_no_advice_beside_a_call_that_hangs() -> None:
    step = found(a_hanging_call(), "RBD120")
    assert "Wait" not in step.message
    assert "Wait" not in str(step.remedy)


def test_waiting_is_no_advice_after_the_time_of_a_map() -> None:
    for placed_at, waits in ((LONG_AGO, False), (JUST_NOW, True)):
        late = replace(waiting_pod(node="worker-1"), placed_at=placed_at)
        step = found(unmapped(in_kube={"pods": (late,), "attachments": (attachment(),)}), "RBD120")
        assert ("Wait, then run" in step.message) is waits
        assert ("for longer than a map takes" in step.message) is not waits


def test_only_checks_that_stop_io_are_kept() -> None:
    answer = {
        "status": "HEALTH_WARN",
        "checks": {
            "MON_DOWN": {"summary": {"message": "1/3 mons down"}, "detail": []},
            "POOL_FULL": {
                "summary": {"message": "1 pool(s) full", "count": 1},
                "detail": [{"message": "pool 'k8s' is full (running out of quota)"}],
            },
            "SLOW_OPS": {"summary": {"message": SLOW_OSD.texts[0], "count": 1}, "detail": []},
        },
    }
    values = (msgspec.json.decode(msgspec.json.encode(answer)),)
    assert read_health(values) == (FULL, SLOW_OSD)
