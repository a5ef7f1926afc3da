"""Properties that hold for every snapshot: the promises of the safety rules."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from rbdagent.commands import lines_of
from rbdagent.model import (
    NotObserved,
    Snapshot,
    Verdict,
)
from tests.support.orphan_variations import FLIGHTS, HOLDERS, MOUNTS, OPENERS, PODS, SCENES, Scene
from tests.support.snapshots import (
    UNSEEN,
    diagnosis_of,
    in_reverse_order,
    pod,
    waiting_pod,
)

# Without hung requests: debugfs is extra evidence, used only if it can be read (safety 7).
FAILURES: Final[dict[str, Any]] = {
    "mounts": UNSEEN,
    "openers": UNSEEN,
    "holders": UNSEEN,
    "kernel_traces": UNSEEN,
    "read_only": UNSEEN,
    "watch": UNSEEN,
    "in_flight": UNSEEN,
    "kubelet": UNSEEN,
    "staging": UNSEEN,
    "pod_volumes": UNSEEN,
    "presence": UNSEEN,
    "watchers": UNSEEN,
    "blocklist": UNSEEN,
    "pods": UNSEEN,
    "attachments": UNSEEN,
    "nodes": UNSEEN,
    "events": UNSEEN,
    "mapped": None,
    "node_seen": False,
    "ceph_seen": False,
    "kube_seen": False,
}

USE: Final[dict[str, tuple[Any, ...]]] = {
    "mounts": MOUNTS[1:],
    "openers": OPENERS,
    "holders": HOLDERS,
    "kernel_traces": ("/sys/fs/xfs/rbd0",),
    "in_flight": FLIGHTS,
    "pods": (pod(), waiting_pod("starting", "worker-1"), PODS[2]),
    "hung_requests": ("read rbd_data.2",),
}
"""Evidence of use. A staging mount is none: it explains what is a pin without it. The directory of
a pod that the API does not list is none either: without a mount there it is a leftover."""


def orphaned(seen: Snapshot) -> bool:
    """Return whether the target or a holder has the verdict Orphaned."""
    answer = diagnosis_of(seen)
    return answer.verdict is Verdict.ORPHANED or any(
        holder.verdict is Verdict.ORPHANED for holder in answer.holders
    )


MANY: Final = settings(max_examples=400)


@MANY
@given(scene=SCENES, what=st.sampled_from(sorted(FAILURES)))
def test_failed_source_never_makes_a_volume_orphaned(scene: Scene, what: str) -> None:
    if not orphaned(scene.seen()):
        assert not orphaned(scene.but(**{what: FAILURES[what]}).seen())


@MANY
@given(scene=SCENES, what=st.sampled_from(sorted(USE)), data=st.data())
def test_more_evidence_of_use_never_makes_a_volume_orphaned(
    scene: Scene, what: str, data: st.DataObject
) -> None:
    before_it = scene.seen()
    if orphaned(before_it) or not diagnosis_of(before_it).holders:
        # Without a holder the target leads nowhere yet: a directory may be what names the volume.
        return
    more = data.draw(st.sampled_from(USE[what]))
    before = scene.parts[what]
    if what == "kernel_traces" and scene.parts["mounts"]:
        # A mounted file system has kernel traces: they are no additional use of it.
        return
    # An unobserved part also becomes observed: that must not lead to Orphaned either.
    with_more = (more,) if isinstance(before, NotObserved) else (*before, more)
    assert not orphaned(scene.but(**{what: with_more}).seen())


@MANY
@given(scene=SCENES)
def test_order_of_objects_does_not_change_the_diagnosis(scene: Scene) -> None:
    seen = scene.seen()
    one, other = diagnosis_of(seen), diagnosis_of(in_reverse_order(seen))
    assert one.verdict is other.verdict
    assert [(holder.holder.node, holder.verdict) for holder in one.holders] == [
        (holder.holder.node, holder.verdict) for holder in other.holders
    ]
    assert {(finding.code, finding.severity) for finding in one.findings} == {
        (finding.code, finding.severity) for finding in other.findings
    }


@MANY
@given(scene=SCENES)
def test_free_is_reported_only_if_everything_was_observed(scene: Scene) -> None:
    seen = scene.seen()
    answer = diagnosis_of(seen)
    is_free = any(finding.code == "RBD118" for finding in answer.findings)
    assert is_free == (answer.verdict is Verdict.FREE)
    if not is_free:
        return
    part = scene.parts
    assert part["node_seen"]
    assert part["ceph_seen"]
    assert part["kube_seen"]
    assert part["mapped"] is False
    assert not part["unknown"]
    for name in ("watchers", "pods", "attachments", "volumes", "presence"):
        assert not isinstance(part[name], NotObserved)
    assert not part["watchers"]


@MANY
@given(scene=SCENES)
def test_orphan_was_observed_from_every_source(scene: Scene) -> None:
    seen = scene.seen()
    part = scene.parts
    for holder in diagnosis_of(seen).holders:
        if holder.verdict is not Verdict.ORPHANED:
            continue
        assert holder.holder.mapping is not None, "only its own node shows that it is orphaned"
        for name in (
            "mounts",
            "openers",
            "holders",
            "kernel_traces",
            "in_flight",
            "staging",
            "pod_volumes",
            "pods",
            "attachments",
            "blocklist",
            "volumes",
            "presence",
        ):
            assert not isinstance(part[name], NotObserved), name
        assert part["node_seen"]
        assert part["ceph_seen"]
        assert part["kube_seen"]
        assert not part["openers"]
        assert not part["in_flight"]
        assert not part["blocklist"]


UNMAPPING: Final = ("rbdagent unmap", "rbd unmap", "umount", "cryptsetup", "echo")


@MANY
@given(scene=SCENES)
def test_unmap_is_advised_only_for_orphans(scene: Scene) -> None:
    answer = diagnosis_of(scene.seen())
    for finding in answer.findings:
        if any(command.startswith(UNMAPPING) for command in lines_of(finding.commands)):
            assert finding.code in ("RBD101", "RBD110")
            assert any(one.verdict is Verdict.ORPHANED for one in answer.holders)


@MANY
@given(scene=SCENES)
def test_every_holder_has_a_reason_and_no_text_is_empty(scene: Scene) -> None:
    answer = diagnosis_of(scene.seen())
    assert all(holder.reasons and all(holder.reasons) for holder in answer.holders)
    for finding in answer.findings:
        assert finding.message
        assert finding.remedy
        assert "None" not in finding.message.split()
