"""The volumes that keep a pod of this node from starting, and the clients that hold them."""

# ruff: noqa: ANN401 - as the builders

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.correlate import correlate_node, correlate_waiting, images_waited_for
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.model import (
    BlocklistEntry,
    ContainerState,
    CsiSource,
    EntityAddress,
    ObjectRef,
    OtherSource,
    ServiceAddress,
    Snapshot,
    Verdict,
)
from tests.support.blocked import HERE, THERE, held, report, waiting
from tests.support.snapshots import (
    JUST_NOW,
    LIBRBD_COOKIE,
    POD_PATH,
    PV,
    REMOTE_ADDRESS,
    SPEC,
    UNSEEN,
    attachment,
    claim,
    image_view,
    in_flight,
    mapping,
    mount,
    nbd_mapping,
    node,
    opener,
    pod,
    remote_watcher,
    volume,
    waiting_pod,
    watcher,
)

AN_HOUR_AGO: Final = "2026-11-21T02:00:00Z"
STRANGE: Final = EntityAddress(ip="192.0.2.7", nonce=5)
THIRD: Final = EntityAddress(ip="10.77.0.99", nonce=6)


def here(in_flight: tuple[Any, ...] = (), **mapped: Any) -> Snapshot:
    """Build the same snapshot with the image mapped on this node."""
    return waiting(
        on_node={"mappings": (mapping(**mapped),), "in_flight": in_flight},
        of_image={"watchers": (watcher(),)},
    )


def blocked(seen: Snapshot) -> list[tuple[str, str | None]]:
    return [
        (str(entry.cause), entry.holder_node)
        for entry in blocked_volumes(seen, correlate_waiting(seen))
    ]


TWO = (remote_watcher(), watcher(address=THIRD, client=77))
ENTRY = BlocklistEntry(network=REMOTE_ADDRESS.ip, nonce=REMOTE_ADDRESS.nonce)
LEFT = attachment(THERE, deleting_since=JUST_NOW)


@pytest.mark.parametrize(
    ("seen", "cause", "holder_node"),
    [
        pytest.param(held(published=report(Verdict.ORPHANED)), "Orphaned", THERE, id="an orphan"),
        pytest.param(held(published=report(Verdict.IN_USE)), "InUse", THERE, id="in use"),
        pytest.param(held(published=report(Verdict.PINNED)), "Pinned", THERE, id="pinned"),
        pytest.param(
            held(published=report(Verdict.STAGED)), "Staged", THERE, id="staged, with no pod"
        ),
        pytest.param(held(), "Undetermined", THERE, id="no agent there"),
        pytest.param(
            held(published=report(Verdict.ORPHANED, AN_HOUR_AGO)),
            "Undetermined",
            THERE,
            id="an old report",
        ),
        pytest.param(
            held(nodes=(node(HERE), node(THERE, ready=False))), "NodeDown", THERE, id="down"
        ),
        pytest.param(
            waiting(of_image={"watchers": (remote_watcher(),)}, in_ceph={"blocklist": (ENTRY,)}),
            "Dead",
            THERE,
            id="blocklisted",
        ),
        pytest.param(
            waiting(of_image={"watchers": (watcher(address=STRANGE, client=1),)}),
            "Undetermined",
            None,
            id="an address that no node has",
        ),
        pytest.param(
            waiting(
                of_image={"watchers": (watcher(address=STRANGE, client=1, cookie=LIBRBD_COOKIE),)}
            ),
            "Foreign",
            None,
            id="a virtual machine",
        ),
        pytest.param(
            waiting(of_image={"watchers": TWO}, in_kube={"published": report(Verdict.ORPHANED)}),
            "Undetermined",
            None,
            id="a client that may use it, and an orphan",
        ),
        pytest.param(
            held(attachments=(attachment(THERE),), published=report(Verdict.ORPHANED)),
            "Orphaned",
            THERE,
            id="an orphan that is attached",
        ),
        pytest.param(
            waiting(in_kube={"attachments": (attachment(THERE),)}),
            "StaleAttachment",
            THERE,
            id="nothing but an attachment",
        ),
        pytest.param(
            waiting(in_kube={"attachments": (LEFT,)}), "StaleAttachment", THERE, id="being detached"
        ),
        pytest.param(
            waiting(of_image={"watchers": UNSEEN}), "Undetermined", None, id="watchers not observed"
        ),
        pytest.param(waiting(ceph=None), "Undetermined", None, id="Ceph not observed"),
        pytest.param(
            waiting(of_image={"watchers": UNSEEN}, in_kube={"attachments": (attachment(THERE),)}),
            "Undetermined",
            THERE,
            id="watchers not observed, and an attachment",
        ),
        pytest.param(
            waiting(in_kube={"attachments_complete": False}),
            "Undetermined",
            None,
            id="attachments to other nodes not requested",
        ),
        pytest.param(here(mounts=()), "Staged", HERE, id="left by a failed stage"),
        pytest.param(here(mounts=(mount(path="/mnt"),)), "Staged", HERE, id="mounted by hand"),
        pytest.param(here(openers=(opener(),)), "Staged", HERE, id="kept by a process"),
    ],
)
def test_holder_of_a_waited_for_volume_is_named(
    seen: Snapshot, cause: str, holder_node: str | None
) -> None:
    assert blocked(seen) == [(cause, holder_node)]


MGR = ServiceAddress(kind="mgr", name="x", address=STRANGE)
RWX_BLOCK = volume(access_modes=("ReadWriteMany",), volume_mode="Block")
ROX = volume(access_modes=("ReadOnlyMany",))
DEAD_NBD = nbd_mapping()
assert DEAD_NBD.nbd is not None
DEAD_NBD = replace(DEAD_NBD, nbd=replace(DEAD_NBD.nbd, process=None))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(waiting(), id="no client holds it"),
        pytest.param(
            waiting(in_kube={"attachments": (attachment(HERE), attachment(THERE))}),
            id="attached here",
        ),
        pytest.param(
            waiting(in_kube={"attachments": (attachment(HERE),), "attachments_complete": False}),
            id="attached here, and other nodes not requested",
        ),
        pytest.param(
            waiting(in_kube={"attachments": (attachment(THERE, attached=False),)}),
            id="another pod waits elsewhere",
        ),
        pytest.param(
            waiting(of_image={"watchers": (watcher(),)}), id="mapped here since the node was seen"
        ),
        pytest.param(
            waiting(of_image={"watchers": (watcher(cookie=LIBRBD_COOKIE),)}),
            id="the driver's own check",
        ),
        pytest.param(
            waiting(of_image={"transient_watchers": (remote_watcher(cookie=LIBRBD_COOKIE),)}),
            id="a transient watch",
        ),
        pytest.param(
            waiting(
                of_image={"watchers": (watcher(address=STRANGE, client=1),)},
                in_ceph={"services": (MGR,)},
            ),
            id="a manager's task",
        ),
        pytest.param(here((in_flight("rbd", f"rbd map {SPEC}"),)), id="being mapped"),
        pytest.param(here(mounts=(mount(),)), id="staged"),
        pytest.param(here(mounts=(mount(path=POD_PATH),)), id="mounted for a pod"),
        pytest.param(here(mounts=UNSEEN), id="mapped, and mounts not observed"),
        pytest.param(waiting(on_node={"mappings": (DEAD_NBD,)}), id="a dead nbd device is left"),
        pytest.param(held(persistent_volumes=(RWX_BLOCK,)), id="several may write"),
        pytest.param(held(persistent_volumes=(ROX,)), id="several may read"),
    ],
)
def test_pod_that_waits_normally_is_not_blocked(seen: Snapshot) -> None:
    assert blocked(seen) == []


PULLING = ContainerState(name="app", state="waiting", reason="ImagePullBackOff")
STARTING = ContainerState(name="app", state="waiting", reason="ContainerCreating")
NFS = volume(source=OtherSource(kind="nfs"))


@pytest.mark.parametrize(
    "in_kube",
    [
        {"pods": (pod(),)},
        {"pods": (pod(phase="Succeeded"),)},
        {"pods": (waiting_pod(node=HERE, deleting_since=JUST_NOW),)},
        {"pods": (waiting_pod(node=HERE, containers=(PULLING,)),)},
        {"pods": (waiting_pod(node=THERE),)},
        {"pods": (waiting_pod(node=None),)},
        {"pods": (waiting_pod(node=HERE, claims=()),)},
        {"pods": UNSEEN},
        {"persistent_volumes": (NFS,)},
        {"persistent_volumes": (volume(phase="Released"),)},
        {"persistent_volumes": UNSEEN},
    ],
    ids=[
        "it runs",
        "it has finished",
        "it is being deleted",
        "its volumes are mounted",
        "on another node",
        "on no node",
        "without a claim",
        "pods not observed",
        "not RBD",
        "of a claim that had the same name",
        "volumes not observed",
    ],
)
def test_ceph_is_not_queried_for_a_pod_that_needs_no_volume_here(in_kube: dict[str, Any]) -> None:
    seen = waiting(of_image={"watchers": (remote_watcher(),)}, in_kube=in_kube)
    assert images_waited_for(seen) == ()
    assert blocked(seen) == []


@pytest.mark.parametrize(
    ("devices", "asked"),
    [((), [SPEC]), ((mapping(),), []), ((nbd_mapping(spec=UNSEEN),), [])],
    ids=["not mapped", "mapped", "mapped by rbd-nbd under its cookie"],
)
def test_ceph_is_queried_for_waited_volumes_that_are_not_mapped(
    devices: tuple[Any, ...], asked: list[Any]
) -> None:
    pods = (waiting_pod(node=HERE, containers=(STARTING,)), waiting_pod("web-2", HERE))
    seen = waiting(on_node={"mappings": devices}, in_kube={"pods": pods})
    assert [image.spec for image in images_waited_for(seen)] == asked


def test_claim_that_names_the_volume_of_another_claim_has_no_holder_to_show() -> None:
    """A user writes volumeName: the Event would show a client of another tenant's volume."""
    foreign = claim(ref=ObjectRef(namespace="evil", name="mine", uid="e"), phase="Pending")
    spy = waiting_pod(
        node=HERE, ref=ObjectRef(namespace="evil", name="spy", uid="s"), claims=("mine",)
    )
    seen = held(pods=(spy,), claims=(claim(), foreign))
    assert (images_waited_for(seen), blocked(seen)) == ((), [])


def test_nothing_waits_on_a_node_that_was_not_observed() -> None:
    seen = waiting(in_kube={"pods": (waiting_pod(node=None), waiting_pod(node=HERE))}, node=None)
    assert (images_waited_for(seen), blocked(seen)) == ((), [])


def test_each_pod_and_volume_is_reported_once() -> None:
    source = volume().source
    assert isinstance(source, CsiSource)
    attributes = (("imageName", "other"), ("pool", "k8s"))
    other = volume(
        name="pvc-other",
        source=replace(source, volume_handle="other", attributes=attributes),
        claim=ObjectRef(namespace="default", name="more"),
    )
    pods = (
        waiting_pod("web-1", HERE, claims=("data", "more", "data")),
        waiting_pod("web-2", HERE),
    )
    images = (
        image_view(watchers=(remote_watcher(),)),
        image_view(
            spec=replace(SPEC, name="other"),
            image_id="0b0b",
            watchers=(remote_watcher(),),
            metadata=(),
        ),
    )
    kube = {"pods": pods, "persistent_volumes": (volume(), other), "claims": (claim(),)}
    seen = waiting(in_ceph={"images": images}, in_kube=kube)
    volumes = blocked_volumes(seen, correlate_waiting(seen))
    assert [(entry.namespace, entry.pod, entry.persistent_volume) for entry in volumes] == [
        ("default", "web-1", PV),
        ("default", "web-1", "pvc-other"),
        ("default", "web-2", PV),
    ]


def test_waited_for_volume_does_not_count_as_mapped() -> None:
    """Only mappings are published, planned and counted as mapped."""
    assert correlate_node(held()) == ()
