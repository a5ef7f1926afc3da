"""What must hold whatever was seen: the promises of the safety rules, as properties."""

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
from tests.unit.builders import (
    UNSEEN,
    pod,
    said,
    turned,
    waiting_pod,
)
from tests.unit.scenes import FLIGHTS, HOLDERS, MOUNTS, OPENERS, PODS, SCENES, Scene

# Hung requests are missing here: debugfs is extra evidence, heeded where it can be read (safety 7).
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
"""Evidence of use. A staging mount is none: it explains what else would be a pin. Nor is the
directory of a pod that the API lacks: with nothing mounted there it is a leftover."""


def orphaned(seen: Snapshot) -> bool:
    """Tell whether anybody, or the target, is called orphaned."""
    answer = said(seen)
    return answer.verdict is Verdict.ORPHANED or any(
        each.verdict is Verdict.ORPHANED for each in answer.holders
    )


MANY: Final = settings(max_examples=400)


@MANY
@given(scene=SCENES, what=st.sampled_from(sorted(FAILURES)))
def test_a_source_that_fails_never_makes_anything_orphaned(scene: Scene, what: str) -> None:
    if not orphaned(scene.seen()):
        assert not orphaned(scene.but(**{what: FAILURES[what]}).seen())


@MANY
@given(scene=SCENES, what=st.sampled_from(sorted(USE)), data=st.data())
def test_more_evidence_of_use_never_makes_anything_orphaned(
    scene: Scene, what: str, data: st.DataObject
) -> None:
    before_it = scene.seen()
    if orphaned(before_it) or not said(before_it).holders:
        # With no holder the target led nowhere yet: a directory may be what names the volume.
        return
    more = data.draw(st.sampled_from(USE[what]))
    before = scene.parts[what]
    if what == "kernel_traces" and scene.parts["mounts"]:
        # A mounted file system leaves its traces: seeing them as well is no further use of it.
        return
    # What was not observed becomes observed as well: that may not tip it either.
    with_more = (more,) if isinstance(before, NotObserved) else (*before, more)
    assert not orphaned(scene.but(**{what: with_more}).seen())


@MANY
@given(scene=SCENES)
def test_the_order_of_what_was_seen_changes_nothing(scene: Scene) -> None:
    seen = scene.seen()
    one, other = said(seen), said(turned(seen))
    assert one.verdict is other.verdict
    assert [(each.holder.node, each.verdict) for each in one.holders] == [
        (each.holder.node, each.verdict) for each in other.holders
    ]
    assert {(each.code, each.severity) for each in one.findings} == {
        (each.code, each.severity) for each in other.findings
    }


@MANY
@given(scene=SCENES)
def test_nobody_is_said_only_where_everybody_was_asked(scene: Scene) -> None:
    seen = scene.seen()
    answer = said(seen)
    nobody = any(each.code == "RBD118" for each in answer.findings)
    assert nobody == (answer.verdict is Verdict.FREE)
    if not nobody:
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
def test_an_orphan_was_looked_at_from_every_side(scene: Scene) -> None:
    seen = scene.seen()
    part = scene.parts
    for each in said(seen).holders:
        if each.verdict is not Verdict.ORPHANED:
            continue
        assert each.holder.mapping is not None, "nobody can call a remote holder orphaned"
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
def test_unmapping_is_advised_for_orphans_alone(scene: Scene) -> None:
    answer = said(scene.seen())
    for each in answer.findings:
        if any(command.startswith(UNMAPPING) for command in lines_of(each.commands)):
            assert each.code in ("RBD101", "RBD110")
            assert any(one.verdict is Verdict.ORPHANED for one in answer.holders)


@MANY
@given(scene=SCENES)
def test_every_holder_has_a_reason_and_no_sentence_is_empty(scene: Scene) -> None:
    answer = said(scene.seen())
    assert all(each.because and all(each.because) for each in answer.holders)
    for each in answer.findings:
        assert each.message
        assert each.remedy
        assert "None" not in each.message.split()
