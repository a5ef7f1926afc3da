"""Watchers that are probably daemons of Ceph whose clients were not observed (RBD116)."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.correlate.unknown_watchers import nodes_of_watchers_elsewhere
from rbdagent.model import (
    CephView,
    ClusterView,
    HolderKind,
    ServiceAddress,
    Severity,
    Snapshot,
    Verdict,
)
from rbdagent.report.json.holders import holder_report
from tests.support.rows import each_row
from tests.support.rule_rows.holder_verdicts import EXPECTED as HOLDERS
from tests.support.rule_rows.target_verdicts import EXPECTED as TARGETS
from tests.support.snapshots import (
    LIBRBD_COOKIE,
    STRANGER_ADDRESS,
    UNSEEN,
    codes,
    diagnosis_of,
    found,
    judged,
    mirror_daemon,
    pod,
    remote_watcher,
    unmapped,
    waiting_pod,
    watcher,
    world,
)

STRANGER: Final = watcher(address=STRANGER_ADDRESS, client=3, cookie=LIBRBD_COOKIE)
MGR: Final = ServiceAddress(kind="mgr", name="x", address=STRANGER.address)
FLATTENS: Final = {"tasks": ("flatten",)}
NO_CLIENTS_OF_THE_MGR: Final = {"services": UNSEEN}
MIRRORED: Final = {"mirrored": True, "mirror_daemons": UNSEEN}


def held(*watchers: Any, in_ceph: Any = NO_CLIENTS_OF_THE_MGR, **parts: Any) -> Snapshot:  # noqa: ANN401
    """Return a world where clients watch the image, and the mgr's clients were not observed."""
    of_image = {"watchers": watchers or (STRANGER,), **parts.pop("of_image", FLATTENS)}
    return unmapped(of_image=of_image, in_ceph=in_ceph, **parts)


SUPPOSED: Final = {
    "the mgr has to flatten the image": (held(), HolderKind.MGR),
    "the mgr has to remove it from the trash": (
        held(of_image={"tasks": ("trash remove",)}),
        HolderKind.MGR,
    ),
    "a kernel client watches beside it": (held(remote_watcher(), STRANGER), HolderKind.MGR),
    "a transient watch": (
        held(
            of_image={
                **FLATTENS,
                "transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),),
            }
        ),
        HolderKind.MGR,
    ),
    "it has the address of a node": (held(remote_watcher(cookie=LIBRBD_COOKIE)), HolderKind.MGR),
    "the image is mirrored": (held(of_image=MIRRORED, in_ceph={}), HolderKind.MIRROR),
}

NOT_SUPPOSED: Final = {
    "the mgr has no task of the image": held(of_image={"tasks": ()}),
    "its tasks were not observed": held(of_image={"tasks": UNSEEN}),
    "it cannot remove an image that still has a watcher": held(of_image={"tasks": ("remove",)}),
    "the clients of the mgr are known, and it is none": held(in_ceph={}),
    "two librbd clients watch": held(STRANGER, replace(STRANGER, client=4)),
    "it is a kernel client": held(remote_watcher()),
    "a pod of the volume runs there": held(
        remote_watcher(cookie=LIBRBD_COOKIE), in_kube={"pods": (pod(node="worker-2"),)}
    ),
    "the image is not mirrored": held(of_image={"mirror_daemons": UNSEEN}, in_ceph={}),
    "whether it is mirrored was not observed": held(
        of_image={"mirrored": UNSEEN, "mirror_daemons": UNSEEN}, in_ceph={}
    ),
    "the clients of rbd-mirror are known, and it is none": held(
        of_image={"mirrored": True}, in_ceph={}
    ),
    "it may be either": held(of_image={**MIRRORED, **FLATTENS}),
}


def suppositions(seen: Snapshot) -> set[HolderKind]:
    return {
        holder.holder.probable_kind
        for holder in diagnosis_of(seen).holders
        if holder.holder.probable_kind is not None
    }


@pytest.mark.parametrize(("seen", "kind"), SUPPOSED.values(), ids=SUPPOSED)
def test_only_librbd_client_is_supposed_to_be_the_active_daemon(
    seen: Snapshot, kind: HolderKind
) -> None:
    assert suppositions(seen) == {kind}


@pytest.mark.parametrize("seen", NOT_SUPPOSED.values(), ids=NOT_SUPPOSED)
def test_client_is_not_a_daemon_without_a_reason(seen: Snapshot) -> None:
    assert suppositions(seen) == set()


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (held(), "probably ceph-mgr: it has a task of the image (flatten)"),
        (held(of_image=MIRRORED, in_ceph={}), "probably an rbd-mirror daemon"),
    ],
)
def test_supposed_daemon_is_reported_as_info_with_a_reservation(seen: Snapshot, words: str) -> None:
    finding = found(seen, "RBD116")
    assert finding.severity is Severity.INFO
    assert words in finding.message
    assert "Any other librbd client would look the same." in finding.message
    assert any("was not observed: permission denied" in line for line in finding.evidence)
    assert "RBD115" not in codes(seen)


def test_supposed_daemon_is_a_warning_while_a_pod_waits() -> None:
    assert found(held(in_kube={"pods": (waiting_pod(),)}), "RBD116").severity is Severity.WARNING


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(held(remote_watcher(cookie=LIBRBD_COOKIE)), id="the address of a node"),
        pytest.param(held(in_kube={"nodes": UNSEEN}), id="the nodes were not observed"),
    ],
)
def test_supposed_daemon_is_named_if_its_node_must_be_queried(seen: Snapshot) -> None:
    finding = found(seen, "RBD119")
    assert finding.severity is Severity.WARNING
    assert "It is probably ceph-mgr: it has a task of the image (flatten)." in finding.message


def test_holder_report_has_its_kind_and_the_supposed_daemon() -> None:
    seen = held()
    (holder,) = holder_report(diagnosis_of(seen), seen).holders
    assert (holder.kind, holder.probable_kind) == ("librbd", "mgr")


def test_unknown_client_is_reported_with_the_possible_daemons() -> None:
    seen = held(of_image={"tasks": (), **MIRRORED, "mirrored": UNSEEN})
    evidence = found(seen, "RBD115").evidence
    assert "whether it is ceph-mgr was not observed: permission denied" in evidence
    assert "whether it is an rbd-mirror daemon was not observed: permission denied" in evidence


def test_known_mgr_is_reported_with_its_name_and_tasks() -> None:
    seen = held(in_ceph={"services": (MGR,)})
    assert judged(seen).reasons == ("ceph-mgr x (flatten)",)
    assert judged(seen).holder.probable_kind is None


@pytest.mark.parametrize(("of_peer", "owner"), [(False, "this"), (True, "a peer")])
def test_rbd_mirror_is_reported_with_its_side(*, of_peer: bool, owner: str) -> None:
    daemon = mirror_daemon(STRANGER, of_peer=of_peer)
    seen = held(of_image={"mirrored": True, "mirror_daemons": (daemon,)})
    assert judged(seen).reasons == (f"an rbd-mirror daemon of {owner} cluster",)


# --------------------------------------------------------------------------------------------------
# No effect on verdicts
# --------------------------------------------------------------------------------------------------


def with_image(seen: Snapshot, in_ceph: Any, **of_image: Any) -> Snapshot:  # noqa: ANN401
    """Return the snapshot with other facts of each cluster and of each image."""

    def changed(cluster: ClusterView) -> ClusterView:
        images = tuple(replace(image, **of_image) for image in cluster.images)
        return replace(cluster, images=images, **in_ceph)

    if seen.ceph is None:
        return seen
    return replace(seen, ceph=CephView(clusters=tuple(map(changed, seen.ceph.clusters))))


WORLDS: Final = {
    **{name: seen for _, table in HOLDERS for name, seen in table.items()},
    **dict(chain.from_iterable(table.items() for table in TARGETS.values())),
    **{name: seen for name, (seen, _) in SUPPOSED.items()},
    "an orphan here, and a librbd client elsewhere": world(
        of_image={"watchers": (watcher(), STRANGER)}
    ),
}


@each_row("seen", WORLDS.values(), ids=WORLDS)
@each_row(
    ("in_ceph", "unsaid", "hint"),
    [
        pytest.param(NO_CLIENTS_OF_THE_MGR, {"tasks": ()}, {"tasks": ("flatten",)}, id="mgr"),
        pytest.param(
            {},
            {"mirrored": False, "mirror_daemons": UNSEEN},
            {"mirrored": True, "mirror_daemons": UNSEEN},
            id="rbd-mirror",
        ),
    ],
)
def test_supposition_changes_neither_verdict_nor_queried_nodes(
    seen: Snapshot,
    in_ceph: dict[str, Any],
    unsaid: dict[str, Any],
    hint: dict[str, Any],
) -> None:
    without, supposed = (with_image(seen, in_ceph, **facts) for facts in (unsaid, hint))
    one, other = diagnosis_of(without), diagnosis_of(supposed)
    assert other.verdict is one.verdict
    assert [holder.verdict for holder in other.holders] == [
        holder.verdict for holder in one.holders
    ]
    one_use, other_use = correlate(without), correlate(supposed)
    assert nodes_of_watchers_elsewhere(other_use, "worker-1") == nodes_of_watchers_elsewhere(
        one_use, "worker-1"
    )


def test_supposed_daemon_never_makes_a_volume_free() -> None:
    for seen, _ in SUPPOSED.values():
        assert diagnosis_of(seen).verdict is not Verdict.FREE
