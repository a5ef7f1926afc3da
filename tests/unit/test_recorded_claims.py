"""Recorded claims of Kubernetes 1.36 and 1.37: each state of a growth and each failed creation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import Finding, Severity
from tests.support.claims import CLAIMS, recorded_claim
from tests.support.rows import each_row
from tests.support.snapshots import diagnosis_of

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

NOTHING: Final = ("", "")
_LATER: Final = {
    "grow-no-resizer": "2026-11-28T03:58:00Z",
    "grow-no-resizer-no-pod": "2026-11-28T04:30:00Z",
    "provisioning-xns": "2026-11-28T04:30:00Z",
}
"""The recording is younger than the limit of its finding."""
STATES: Final = {
    "claim-in-1.37-running": NOTHING,
    "claim-unused-but-mapped-1.37": NOTHING,
    "grow-block-done": NOTHING,
    "grow-claim-done-image-larger-than-device": ("RBD105", "its watch is gone"),
    "grow-controller-failed": ("RBD776", "rados: ret=-13, Permission denied"),
    "grow-controller-failed-request-lowered": ("RBD776", "rados: ret=-13, Permission denied"),
    "grow-controller-infeasible": ("RBD776", "not found"),
    "grow-controller-no-secret": ("RBD776", "the secret default/csi-rbd-secret that pvc-"),
    "grow-controller-timeout": ("RBD776", "DeadlineExceeded"),
    "grow-controller-working": NOTHING,
    "grow-device-larger-than-file-system": ("RBD779", "most likely not: it has room for 114Mi"),
    "grow-done": NOTHING,
    "grow-done-larger-than-request": NOTHING,
    "grow-encrypted": NOTHING,
    "grow-no-resizer": ("RBD775", "no external-resizer for its driver acts on it"),
    "grow-no-resizer-no-pod": ("RBD775", "no external-resizer for its driver acts on it"),
    "grow-node-failed-blocklisted": ("RBD777", "the client may be on the blocklist"),
    "grow-node-failed-pod-runs": ("RBD777", "the file system has recorded an error"),
    "grow-node-failed-request-lowered": ("RBD777", "the file system has recorded an error"),
    "grow-node-pending-no-pod": ("RBD778", "no pod runs with it"),
    "grow-node-pending-pod-runs": NOTHING,
    "grow-node-pending-read-only-pod": ("RBD778", "default/grow-ro mounts it read-only"),
    "grow-node-working": NOTHING,
    "grow-read-only-pod-started": ("RBD782", "default/grow-ro2 mounts it read-only"),
    "provisioning-badparam": ("RBD607", "does not accept the imageFeatures of its class"),
    "provisioning-clone": (
        "RBD607",
        "its source, the claim absent, does not exist in its namespace",
    ),
    "provisioning-clone-small": ("RBD607", "its source grow-xfs has 419430400"),
    "provisioning-nocluster": ("RBD607", "ConfigMap has no cluster nope"),
    "provisioning-nopool": ("RBD607", "the pool that its class names does not exist"),
    "provisioning-nosecret": ("RBD607", "secret default/gone that its class names does not exist"),
    "provisioning-quota": ("RBD619", "although Ceph's monitors answer rbdagent"),
    "provisioning-rwx": ("RBD621", "a file system that several nodes can write to"),
    "provisioning-selector": ("RBD620", "selects its PV by labels"),
    "provisioning-snap": ("RBD607", "its source, the VolumeSnapshot absent, does not exist"),
    "provisioning-topo": ("RBD607", "the node plugin on worker-1 reports none"),
    "provisioning-xns": ("RBD628", 'fills it from "Thing.example.org absent"'),
}
"""Recording -> code and words of its first finding; nothing if the state is healthy."""
_WITHOUT_EVENTS: Final = (
    "grow-controller-failed", "grow-controller-infeasible", "grow-node-failed-pod-runs",
    "grow-node-pending-no-pod", "grow-node-pending-read-only-pod",
)  # fmt: skip
"""The claim's own status has the cause."""


def test_each_recording_has_a_row() -> None:
    assert {path.stem for path in CLAIMS.glob("*.json")} == STATES.keys()


@each_row("name", STATES)
def test_recorded_claim_is_explained(name: str) -> None:
    _assert_first(recorded_claim(name, at=_LATER.get(name)), name)


@each_row("name", _WITHOUT_EVENTS)
def test_status_of_a_claim_explains_its_growth_after_its_events_are_gone(name: str) -> None:
    _assert_first(recorded_claim(name, events=False), name)


def test_device_that_missed_a_growth_is_named_although_its_claim_is_done() -> None:
    seen = recorded_claim("grow-claim-done-image-larger-than-device")
    missed = next(found for found in diagnosis_of(seen).findings if found.code == "RBD781")
    assert "has 128Mi, and /dev/rbd0 on worker-1 has 64Mi" in missed.message
    assert "claim 128Mi, PV 128Mi, image 128Mi, /dev/rbd0 64Mi, ext4 at" in missed.evidence[0]


def test_kubelet_that_does_not_grow_a_file_system_is_reported_after_two_minutes() -> None:
    seen = recorded_claim("grow-node-pending-pod-runs", at="2026-11-28T03:53:00Z")
    first = diagnosis_of(seen).findings[0]
    assert first.code == "RBD778"
    assert "the kubelet of default/grow-fs on worker-1 has not grown it for 3m" in first.message


def _assert_first(seen: Snapshot, name: str) -> None:
    code, words = STATES[name]
    findings = diagnosis_of(seen).findings
    if not code:
        assert not [found.code for found in findings if _is_a_problem(found)]
        return
    assert findings[0].code == code
    assert words in findings[0].message


def _is_a_problem(found: Finding) -> bool:
    return found.severity is not Severity.INFO
