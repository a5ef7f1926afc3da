"""An error whose text is not known: what was observed beside it is named, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rbdagent.model import BlocklistEntry, LogEntry, LogExcerpt, NodeLogs
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import FULL_POOL, SLOW_OSD
from tests.support.rule_tables import kubelet_event, mounting, stage
from tests.support.snapshots import (
    ADDRESS,
    JUST_NOW,
    LONG_AGO,
    found,
    node,
    unmapped,
    volume,
    waiting_pod,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

UNKNOWN: Final = stage("the frobnicator of device /dev/rbd0 gave up")
LINE: Final = LogEntry(at=JUST_NOW, text="rbd0: no such luck", names=("rbd0",))


def state(text: str = UNKNOWN, *, node_name: str = "worker-1", **parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which a pod waits on a node because of a text."""
    in_kube = {
        "pods": (waiting_pod(node=node_name),),
        "nodes": (node(), node("worker-2")),
        "persistent_volumes": (volume(capacity_bytes=1 << 30),),
        "events": (kubelet_event(text),),
        "attachments": mounting().kubernetes.attachments,  # type: ignore[union-attr]
    }
    return unmapped(in_kube=in_kube, **parts)


def logged(line: LogEntry) -> dict[str, Any]:
    """Return the change of the node whose kernel logged a line."""
    empty, kernel = LogExcerpt(since=LONG_AGO), LogExcerpt(since=LONG_AGO, lines=(line,))
    return {"on_node": {"logs": NodeLogs(kubelet=empty, plugin=empty, kernel=kernel)}}


FACTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a line of the kernel": (logged(LINE), 'its kernel logged "rbd0: no such luck"'),
    "a fenced host": (
        {"in_ceph": {"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=0),)}},
        "worker-1 is on Ceph's blocklist by",
    ),
    "a full pool": (
        {"in_ceph": {"health": (FULL_POOL,)}},
        "Ceph reports that pool k8s is at its quota",
    ),
    "a slow OSD": (
        {"in_ceph": {"health": (SLOW_OSD,)}},
        'Ceph reports "1 slow ops, oldest one blocked for 284 sec, osd.1 has slow ops"',
    ),
    "not primary": ({"of_image": {"primary": False}}, "the image is not primary"),
    "shrunk": ({"of_image": {"size_bytes": 1 << 20}}, "the image is smaller than its PV"),
}


@each_row("fact", list(FACTS))
def test_what_was_observed_beside_an_unknown_error_is_named(fact: str) -> None:
    parts, expected = FACTS[fact]
    assert f"Observed beside it: {expected}" in found(state(**parts), "RBD762").message


def test_nothing_is_added_if_nothing_was_observed() -> None:
    assert "beside" not in found(state(), "RBD762").message


@each_row(
    ("node_name", "at"),
    [("worker-2", JUST_NOW), ("worker-1", LONG_AGO)],
)
def test_line_of_another_node_or_attempt_is_not_beside_it(node_name: str, at: str) -> None:
    line = LogEntry(at=at, text=LINE.text, names=LINE.names)
    seen = state(node_name=node_name, **logged(line))
    assert "beside" not in found(seen, "RBD762").message


def test_two_facts_are_named_at_most() -> None:
    seen = state(of_image={"primary": False, "size_bytes": 1}, in_ceph={"health": (FULL_POOL,)})
    message = found(seen, "RBD762").message
    assert "at its quota" in message
    assert "not primary" in message
    assert "smaller" not in message
