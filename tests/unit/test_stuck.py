"""``diagnose -A``: the findings are those of each target on its own, and none is missing."""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.collect.kube.list_target import _claim_names, _subjects, _using_pods
from rbdagent.correlate import correlate
from rbdagent.correlate.index import index_of, kube_index
from rbdagent.correlate.names import key_of
from rbdagent.correlate.pv_matching import candidates
from rbdagent.correlate.pv_shortlist import KEPT, VolumeShortlist
from rbdagent.correlate.resolve import about, target_claims, target_volumes
from rbdagent.lifecycle.cluster_report import (
    affected_objects,
    among_all,
    report_cluster,
    serious_findings,
)
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.lifecycle.targets import Scope, subjects_of
from rbdagent.lifecycle.triage import images_to_query
from rbdagent.model import (
    BlocklistEntry,
    ClusterReport,
    Finding,
    ImagePresence,
    ImageSpec,
    ImageView,
    KubeView,
    Lifecycle,
    NotObserved,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PublishedMapping,
    PublishedNode,
    Requirement,
    Severity,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
    Verdict,
    Watcher,
    observed_of,
)
from rbdagent.parse.selector import parse_selector
from tests.lab.many import HERE, KINDS, KINDS_HERE, LEGIT, SICK, many
from tests.support.random_clusters import Maker, address, some_cluster
from tests.support.random_reports import reported_cluster
from tests.support.rows import each_row
from tests.support.rule_rows.families import FAMILIES
from tests.support.snapshots import DRIVER, FSID, JUST_NOW, LONG_AGO, NOW, UNSEEN, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CLUSTERS: Final = st.builds(
    some_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=8)
)
REPORTED: Final = st.builds(
    reported_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=4)
)
MANY: Final = settings(max_examples=300)


BY_WHICH_NAME: Final = (
    TargetKind.CLAIM,
    TargetKind.DEVICE,
    TargetKind.IMAGE,
    TargetKind.PERSISTENT_VOLUME,
    TargetKind.POD,
)


def kube_of(snapshot: Snapshot) -> KubeView:
    assert snapshot.kubernetes is not None
    return snapshot.kubernetes


def alone(snapshot: Snapshot, target: Target) -> Snapshot:
    """Return the whole cluster as the snapshot of a target, with the events of that target only.

    Other objects stay: correlation selects those that concern the target.
    """
    kube = kube_of(snapshot)
    wanted = set(target_claims(target, kube))
    volumes = target_volumes(target, kube)
    claims = tuple(claim for claim in kube_index(kube).claims if key_of(claim.ref) in wanted)
    pods = _using_pods(target, volumes, claims, kube.pods)
    names = {*_subjects(volumes, claims), *pods, *wanted, *_claim_names(volumes, claims)}
    names |= {
        key_of(pod.ref)
        for pod in observed_of(kube.pods)
        if any((pod.ref.namespace, name) in wanted for name in pod.claims)
    }
    # Cluster-scoped objects have no namespace; their events are in the namespace default.
    names |= {("", name) for namespace, name in names if namespace == "default"}
    events = kube.events
    if not isinstance(events, NotObserved):
        events = tuple(event for event in events if key_of(event.subject) in names)
    return replace(snapshot, target=target, kubernetes=replace(kube, events=events))


def life_in(snapshot: Snapshot) -> Lifecycle:
    return among_all(lifecycle_of(correlate(snapshot), snapshot), snapshot)


CodesByTarget = dict[str, set[Finding]]


def codes_by_target(found: ClusterReport) -> CodesByTarget:
    """Return the serious findings of each stuck target."""
    return {
        stuck.life.diagnosis.volume.target.argument: set(serious_findings(stuck.life))
        for stuck in found.stuck
    }


def unfiltered(snapshot: Snapshot) -> CodesByTarget:
    """Return the serious findings of each target, from the whole cluster and without triage.

    A target is left out if targets of earlier kinds already have all of its findings.
    """
    found: CodesByTarget = {}
    targets = subjects_of(index_of(snapshot)).targets
    for kind in BY_WHICH_NAME:
        before = {finding for serious in found.values() for finding in serious}
        for target in (target for target in targets if target.kind is kind):
            serious = set(serious_findings(life_in(alone(snapshot, target))))
            if not serious <= before:
                found[target.argument] = serious
    return found


# --------------------------------------------------------------------------------------------------
# One target of a cluster
# --------------------------------------------------------------------------------------------------


@MANY
@given(snapshot=CLUSTERS)
def test_target_of_a_cluster_has_the_life_of_the_target_alone(snapshot: Snapshot) -> None:
    for target in subjects_of(index_of(snapshot)).targets:
        part = about(target, snapshot)
        assert life_in(part) == life_in(alone(snapshot, target)), target.argument


def test_events_of_the_same_second_keep_their_order() -> None:
    maker = Maker(Random(1))
    maker.events = [
        event("something else", kind=kind, subject=ObjectRef(namespace="shop", name=name))
        for kind, name in (("Pod", "web-0"), ("PersistentVolumeClaim", "data-0"))
    ]
    snapshot, target = maker.from_afar(), pvc("shop", "data-0")
    part = life_in(about(target, snapshot))
    assert len(part.diagnosis.volume.events) == 2
    assert part == life_in(alone(snapshot, target))


@MANY
@given(snapshot=CLUSTERS | REPORTED)
def test_triage_drops_no_target_with_a_serious_finding(
    snapshot: Snapshot,
) -> None:
    assert codes_by_target(report_cluster(snapshot)) == unfiltered(snapshot)


def reported(*changes: dict[str, Any]) -> Snapshot:
    """Return a cluster in which volume 0 is a suspect, and an agent reports these mappings."""
    maker = Maker(Random(0))
    maker.pods[0] = replace(maker.pods[0], deleting_since=LONG_AGO)
    image = ImageSpec(pool="k8s", name="image-0")
    maker.views = [
        ImageView(
            spec=image,
            fsid=FSID,
            presence=ImagePresence.PRESENT,
            image_id="id-0",
            watchers=(),
        )
    ]
    maker.blocklist = [BlocklistEntry(network=address("worker-1").ip, nonce=77)]
    first = PublishedMapping(
        device="/dev/rbd0",
        verdict=Verdict.IN_USE,
        fsid=FSID,
        spec=image,
        image_id="id-0",
        client_id=1,
        client_address=address("worker-1"),
    )
    mappings = tuple(replace(first, **change) for change in ({}, *changes))
    maker.published = [
        PublishedNode(name="worker-1", observed_at=JUST_NOW, mappings=mappings),
    ]
    return maker.from_afar()


OTHER: Final = {"spec": ImageSpec(pool="k8s", name="other"), "image_id": "id-9"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {
                **OTHER,
                "device": "/dev/rbd9",
                "client_id": 77,
                "client_address": replace(address("worker-1"), nonce=77),
            },
            "matches its client of /dev/rbd9",
        ),
        (
            {**OTHER, "device": "/dev/nbd9", "client_id": None, "client_address": None},
            "Whether this client has a device mapped was not observed",
        ),
        ({**OTHER, "device": "/dev/rbd9"}, "matches a former client of it"),
    ],
    ids=["client on the blocklist", "unknown client", "another client"],
)
def test_report_has_what_the_client_of_a_blocklist_entry_has_mapped(
    change: dict[str, Any], text: str
) -> None:
    snapshot, target = reported(change), pvc("shop", "data-0")
    life = life_in(about(target, snapshot))
    (finding,) = (finding for finding in life.findings if finding.code == "RBD306")
    assert text in finding.message
    assert life.findings == life_in(alone(snapshot, target)).findings


def test_reports_have_an_image_that_was_renamed_since_it_was_mapped() -> None:
    renamed = {"device": "/dev/rbd9", "spec": ImageSpec(pool="k8s", name="former")}
    snapshot, target = reported(renamed), pvc("shop", "data-0")
    part = life_in(about(target, snapshot))
    devices = {
        holder.published.device for holder in part.diagnosis.volume.holders if holder.published
    }
    assert devices == {"/dev/rbd0", "/dev/rbd9"}


def test_reports_have_a_client_whose_id_another_agent_reports_as_its_own() -> None:
    """Id and nonce alone identify a client only if each agent reports its own clients."""
    maker, target = Maker(Random(0)), pvc("shop", "data-0")
    watcher = Watcher(address=replace(address("worker-2"), nonce=7), client=7, cookie=1)
    maker.views = [
        ImageView(
            spec=ImageSpec(pool="k8s", name="image-0"),
            fsid=FSID,
            presence=ImagePresence.PRESENT,
            image_id="id-0",
            watchers=(watcher,),
        )
    ]
    maker.published = [
        PublishedNode(
            name=node,
            observed_at=JUST_NOW,
            mappings=(
                PublishedMapping(
                    device="/dev/rbd9",
                    verdict=Verdict.IN_USE,
                    fsid=FSID,
                    spec=ImageSpec(pool="k8s", name="other"),
                    image_id="id-9",
                    client_id=7,
                    client_address=replace(address(node), nonce=7),
                ),
            ),
        )
        for node in ("worker-1", "worker-2")
    ]
    life = life_in(about(target, maker.from_afar()))
    (publisher,) = (
        holder.published_by.name for holder in life.diagnosis.volume.holders if holder.published_by
    )
    assert publisher == "worker-2"


def without(part: str, seen: Snapshot) -> Snapshot:
    """Return a snapshot in which a part was not observed."""
    skipped = Source(state=SourceState.SKIPPED)
    match part:
        case "node":
            return replace(seen, node=None, sources=replace(seen.sources, node=skipped))
        case "ceph":
            return replace(seen, ceph=None, sources=replace(seen.sources, ceph=skipped))
        case _:
            unseen = NotObserved(reason="forbidden")
            return replace(seen, kubernetes=replace(kube_of(seen), **{part: unseen}))


def rows_of_the_tables() -> list[Any]:
    """Return each row of the tables of the rules in which Kubernetes was observed."""
    return [
        pytest.param(seen, id=f"{code}: {name}")
        for family in FAMILIES
        for code, rows in family.REPORTED.items()
        for name, row in rows.items()
        if (seen := row[0] if isinstance(row, tuple) else row).kubernetes is not None
    ]


@each_row("seen", rows_of_the_tables())
def test_rule_row_passes_triage_whatever_was_not_observed(seen: Snapshot) -> None:
    """Assert that `diagnose -A` reports what each target alone reports, also without pods."""
    for parts in ((), ("pods",), ("node",), ("node", "pods"), ("node", "ceph", "pods")):
        partial = reduce(lambda found, part: without(part, found), parts, seen)
        assert codes_by_target(report_cluster(partial)) == unfiltered(partial), parts


@MANY
@given(snapshot=CLUSTERS)
def test_each_rbd_claim_volume_and_pod_is_a_target(snapshot: Snapshot) -> None:
    kube, whole = kube_of(snapshot), index_of(snapshot)
    given = {target.argument for target in subjects_of(whole).targets}
    others = {
        volume.name
        for volume in observed_of(kube.persistent_volumes)
        if isinstance(volume.source, OtherSource)
    }
    for claim in observed_of(kube.claims):
        assert (f"pvc/{claim.ref}" in given) == (claim.volume_name not in others)
    for volume in observed_of(kube.persistent_volumes):
        by_claim = volume.claim is not None and f"pvc/{volume.claim}" in given
        assert f"pv/{volume.name}" in given or by_claim or volume.name in others
    for pod in observed_of(kube.pods):
        assert f"pod/{pod.ref}" in given or all(
            claim.volume_name in others
            for claim in observed_of(kube.claims)
            if claim.ref.namespace == pod.ref.namespace and claim.ref.name in pod.claims
        )


def pvc(namespace: str, name: str) -> Target:
    return Target(
        argument=f"pvc/{namespace}/{name}", kind=TargetKind.CLAIM, name=name, namespace=namespace
    )


# --------------------------------------------------------------------------------------------------
# The nearest PVs
# --------------------------------------------------------------------------------------------------

_VOLUMES: Final = st.lists(
    st.builds(
        PersistentVolume,
        name=st.uuids().map(str),
        phase=st.sampled_from(["Available", "Bound", "Released"]),
        source=st.just(OtherSource(kind="nfs")),
        claim=st.sampled_from([None, ObjectRef(namespace="a", name="b")]),
        access_modes=st.sampled_from([("ReadWriteOnce",), ("ReadWriteMany",)]),
        storage_class=st.sampled_from(["", "fast"]),
        capacity_bytes=st.integers(min_value=1, max_value=4),
        labels=st.sampled_from([(), (("disk", "a"),), (("disk", "b"),)]),
        deleting_since=st.sampled_from([None, None, NOW]),
    ),
    max_size=60,
)
_CLAIMS: Final = st.builds(
    PersistentVolumeClaim,
    ref=st.just(ObjectRef(namespace="shop", name="data", uid="u")),
    phase=st.just("Pending"),
    access_modes=st.just(("ReadWriteOnce",)),
    storage_class=st.sampled_from([None, "fast"]),
    requested_bytes=st.integers(min_value=1, max_value=4),
    selector=st.sampled_from([None, (Requirement(key="disk", operator="In", values=("a",)),)]),
)


@MANY
@given(volumes=_VOLUMES, claims=st.lists(_CLAIMS, min_size=1, max_size=3))
def test_nearest_volumes_equal_those_of_a_comparison_with_all(
    volumes: list[PersistentVolume], claims: list[PersistentVolumeClaim]
) -> None:
    shelf = VolumeShortlist(sorted(volumes, key=lambda volume: volume.name))
    for claim in claims:
        nearest = [candidate.volume for candidate in candidates(claim, shelf.nearest(claim))]
        assert nearest == [fitting.volume for fitting in candidates(claim, volumes)[:KEPT]]


def test_comparisons_among_5000_volumes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(
        claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]
    ) -> tuple[object, ...]:
        held = list(volumes)
        compared.append(len(held))
        return candidates(claim, held)

    monkeypatch.setattr("rbdagent.correlate.pv_shortlist.candidates", counted)
    maker = Maker(Random(0))
    shelf = VolumeShortlist(
        [replace(maker.volumes[0], name=f"{size:05}", capacity_bytes=size) for size in range(5000)]
    )
    for size in range(20):
        shelf.nearest(replace(maker.claims[0], requested_bytes=size))
        shelf.nearest(replace(maker.claims[1], requested_bytes=size))
    # Two claims with equal requirements cause one comparison.
    assert len(compared) == 20
    assert max(compared) <= 500


# --------------------------------------------------------------------------------------------------
# A large cluster
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exactly_the_broken_volumes_are_found_with_their_codes(seed: int) -> None:
    made = many(volumes=1000, broken=200, seed=seed)
    found = codes_by_target(report_cluster(made.snapshot))
    assert {
        given: code
        for given, code in made.broken.items()
        if code not in {finding.code for finding in found.get(given, ())}
    } == {}
    assert found.keys() == made.broken.keys()


def test_cluster_of_1000_volumes_has_each_kind_of_problem() -> None:
    made = many(volumes=1000, broken=200, seed=1)
    codes = {code for code, _ in (*KINDS.values(), *KINDS_HERE.values())}
    assert codes | {sick.code for sick in SICK.values()} <= set(made.broken.values())
    assert len(LEGIT) * 10 < 1000 - len(made.broken)


def test_ceph_is_queried_for_few_healthy_images() -> None:
    made = many(volumes=2000, broken=200, seed=1)
    whole = index_of(replace(made.snapshot, ceph=None))
    asked = images_to_query(whole, Scope())
    # The others: images of healthy but unusual volumes, and those that the observed node maps.
    assert len(asked) < len(made.broken) + HERE + 2000 // 10


def test_images_that_a_pod_waits_for_are_queried_first() -> None:
    maker = Maker(Random(0))
    maker.attachments = [
        attachment
        for attachment in maker.attachments
        if attachment.persistent_volume not in {"pv-1", "pv-3"}
    ]
    maker.attachments += [replace(maker._attachment(1), detach_error="no", deleting_since=NOW)]
    maker.pods[3] = replace(maker.pods[3], phase="Pending")
    whole = index_of(replace(maker.from_afar(), ceph=None))
    names = [image.spec.name for image in images_to_query(whole, Scope())]
    assert names == ["image-3", "image-1"]


def test_healthy_cluster_has_no_stuck_and_no_suspected_volume() -> None:
    snapshot = Maker(Random(0)).from_afar()
    found = report_cluster(snapshot)
    assert found.causes == ()
    assert (found.claims, found.volumes, found.pods) == (5, 5, 5)
    assert images_to_query(index_of(snapshot), Scope()) == ()


def test_volumes_of_other_drivers_are_skipped_and_counted() -> None:
    maker = Maker(Random(0))
    maker.volumes[0] = replace(maker.volumes[0], source=OtherSource(kind="nfs"), phase="Failed")
    found = report_cluster(maker.from_afar())
    assert found.causes == ()
    assert (found.claims, found.volumes, found.pods, found.others) == (4, 4, 4, 1)


def test_idle_volume_is_not_stuck_if_ceph_was_not_queried() -> None:
    """Assert no cause: no pod waits for the volume, so whether a client holds it is irrelevant."""
    maker = Maker(Random(0))
    maker.pods, maker.attachments = [], []
    assert report_cluster(replace(maker.from_afar(), ceph=None)).causes == ()


def test_waiting_pod_without_ceph_is_reported_with_rbd119() -> None:
    maker = Maker(Random(0))
    maker.pods[0] = replace(maker.pods[0], phase="Pending", containers=())
    found = codes_by_target(report_cluster(replace(maker.from_afar(), ceph=None)))
    assert {given: {finding.code for finding in findings} for given, findings in found.items()} == {
        "pvc/shop/data-0": {"RBD718", "RBD119"}
    }


def test_pod_that_was_just_scheduled_is_not_stuck() -> None:
    maker = Maker(Random(0))
    maker.pods[0] = replace(
        maker.pods[0], phase="Pending", containers=(), created_at=NOW, placed_at=NOW
    )
    assert report_cluster(replace(maker.from_afar(), ceph=None)).causes == ()


def test_pending_pod_with_a_running_container_is_not_stuck() -> None:
    """Assert no cause: kubelet starts no container before it has mounted all volumes.

    The phase of the pod may still be Pending.
    """
    maker = Maker(Random(0))
    maker.pods[0] = replace(maker.pods[0], phase="Pending")
    assert report_cluster(replace(maker.from_afar(), ceph=None)).causes == ()


# --------------------------------------------------------------------------------------------------
# Shared causes
# --------------------------------------------------------------------------------------------------


def broken(become: Callable[[Maker, int], None], *numbers: int) -> ClusterReport:
    """Return what is stuck in a cluster in which ``become`` changes the numbered volumes."""
    maker = Maker(Random(0))
    for number in numbers:
        become(maker, number)
    return report_cluster(maker.from_afar())


def _is_unbound(maker: Maker, number: int) -> None:
    maker.volumes = [volume for volume in maker.volumes if volume.name != f"pv-{number}"]
    maker.attachments = [
        attachment
        for attachment in maker.attachments
        if attachment.persistent_volume != f"pv-{number}"
    ]
    maker.claims[number] = replace(
        maker.claims[number],
        phase="Pending",
        volume_name=None,
        bind_completed=False,
        provisioner=DRIVER,
        created_at=f"2026-11-20T0{number}:00:00Z",
    )
    maker.pods[number] = replace(maker.pods[number], phase="Pending", node_name=None)


def test_claims_that_wait_for_one_provisioner_are_one_cause() -> None:
    found = broken(_is_unbound, 0, 1, 3, 4)
    (cause,) = found.causes
    assert cause.finding.code == "RBD606"
    assert [victim.life.diagnosis.volume.target.argument for victim in cause.affected] == [
        "pvc/bank/data-1",
        "pvc/bank/data-3",
        "pvc/shop/data-0",
        "pvc/shop/data-4",
    ]
    assert cause.affected[0].since == "2026-11-20T01:00:00Z"


def test_claims_with_two_missing_storage_classes_are_two_causes() -> None:
    def become(maker: Maker, number: int) -> None:
        _is_unbound(maker, number)
        name = "none" if number < 2 else "nil"
        maker.claims[number] = replace(maker.claims[number], storage_class=name)

    found = broken(become, 0, 1, 3)
    assert [(cause.finding.code, len(cause.affected)) for cause in found.causes] == [
        ("RBD601", 2),
        ("RBD601", 1),
    ]


def test_volumes_on_a_node_that_is_down_are_one_cause() -> None:
    maker = Maker(Random(0))
    # worker-1 has data-0 and data-3.
    maker.nodes[0] = replace(maker.nodes[0], ready=None)
    found = report_cluster(maker.from_afar())
    assert [(cause.finding.code, len(cause.affected)) for cause in found.causes] == [("RBD113", 2)]
    assert str(found.causes[0].finding.subject) == "node worker-1"


def test_causes_are_sorted_by_severity_then_by_affected_count() -> None:
    maker = Maker(Random(0))
    _is_unbound(maker, 4)
    _is_unbound(maker, 2)
    maker.claims[0] = replace(maker.claims[0], storage_class="none")
    _is_unbound(maker, 0)
    maker.claims[0] = replace(maker.claims[0], storage_class="none")
    # Two pods write on two nodes.
    maker.pods.append(
        replace(
            maker.pods[1],
            ref=ObjectRef(namespace="bank", name="second", uid="second"),
            node_name="worker-3",
        )
    )
    maker.volumes = [
        replace(volume, deleting_since=LONG_AGO, finalizers=("kubernetes.io/pv-protection",))
        if volume.name == "pv-3"
        else volume
        for volume in maker.volumes
    ]
    found = report_cluster(maker.from_afar())
    assert [(cause.finding.code, len(cause.affected)) for cause in found.causes] == [
        ("RBD106", 1),
        ("RBD606", 2),
        ("RBD601", 1),
        ("RBD614", 1),
    ]
    assert [cause.finding.severity for cause in found.causes][-1] is Severity.WARNING


def stuck_without_its_claim(message: str) -> list[str]:
    """Return what is stuck if a pod's claim is missing, and the scheduler reports this message."""
    maker = Maker(Random(0))
    maker.pods[0] = replace(
        maker.pods[0],
        claims=("missing",),
        phase="Pending",
        node_name=None,
        unschedulable=message,
    )
    maker.attachments = maker.attachments[1:]
    whole = index_of(maker.from_afar())
    found = affected_objects(whole, subjects_of(whole).targets)
    return [item.life.diagnosis.volume.target.argument for item in found]


def test_pod_without_its_claim_is_stuck_once_the_scheduler_reports_it() -> None:
    assert stuck_without_its_claim("") == []
    message = 'persistentvolumeclaim "missing" not found'
    assert stuck_without_its_claim(message) == ["pod/shop/web-0"]


def test_failed_source_is_reported_once_for_the_cluster() -> None:
    maker = Maker(Random(0))
    _is_unbound(maker, 0)
    _is_unbound(maker, 1)
    snapshot = maker.from_afar()
    failed = replace(snapshot.sources.node, state=SourceState.FAILED, reason="no /proc")
    found = report_cluster(replace(snapshot, sources=replace(snapshot.sources, node=failed)))
    assert "RBD901" in {finding.code for finding in found.findings}
    assert all(finding.code != "RBD901" for stuck in found.stuck for finding in stuck.life.findings)


# --------------------------------------------------------------------------------------------------
# Scope
# --------------------------------------------------------------------------------------------------


def _labelled(maker: Maker) -> None:
    for number in range(5):
        _is_unbound(maker, number)
    maker.claims[0] = replace(maker.claims[0], labels=(("app", "db"),))
    maker.pods[1] = replace(maker.pods[1], labels=(("app", "db"),))


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        (Scope(namespace="bank"), {"data-1", "data-3"}),
        (Scope(selector=parse_selector("app=db")), {"data-0", "data-1"}),
        (Scope(namespace="bank", selector=parse_selector("app=db")), {"data-1"}),
        (Scope(namespace="absent"), set()),
        (Scope(selector=parse_selector("app!=db")), {"data-2", "data-3", "data-4"}),
    ],
    ids=["-n", "-l", "-n -l", "absent", "-l !="],
)
def test_scope_selects_by_namespace_or_labels_of_claims_and_pods(
    scope: Scope, found: set[str]
) -> None:
    maker = Maker(Random(0))
    _labelled(maker)
    stuck = report_cluster(maker.from_afar(), scope).stuck
    assert {item.life.diagnosis.volume.target.name for item in stuck} == found


def test_volume_of_a_deleted_claim_is_in_the_claims_namespace() -> None:
    maker = Maker(Random(0))
    maker.volumes[0] = replace(maker.volumes[0], phase="Failed")
    maker.claims, maker.pods, maker.attachments = maker.claims[1:], maker.pods[1:], []
    snapshot = maker.from_afar()
    in_shop, in_bank = (
        report_cluster(snapshot, Scope(namespace=name)) for name in ("shop", "bank")
    )
    assert [stuck.life.diagnosis.volume.target.argument for stuck in in_shop.stuck] == ["pv/pv-0"]
    assert in_bank.stuck == ()


def test_mapping_without_a_pv_is_reported_in_full_scope_only() -> None:
    maker = Maker(Random(0))
    maker.volumes = maker.volumes[1:]
    maker.claims, maker.pods = maker.claims[1:], maker.pods[1:]
    maker.attachments = maker.attachments[1:]
    made = many(volumes=500, broken=11, seed=1)
    kube = kube_of(made.snapshot)
    orphan = next(given for given, code in made.broken.items() if code == "RBD101")
    name = orphan.rpartition("/")[2]
    without = replace(
        kube,
        persistent_volumes=tuple(
            volume
            for volume in observed_of(kube.persistent_volumes)
            if volume.claim is None or volume.claim.name != name
        ),
        claims=tuple(claim for claim in observed_of(kube.claims) if claim.ref.name != name),
    )
    snapshot = replace(made.snapshot, kubernetes=without)
    everywhere = codes_by_target(report_cluster(snapshot))
    assert {finding.code for finding in everywhere["/dev/rbd0"]} == {"RBD101"}
    assert "/dev/rbd0" not in codes_by_target(report_cluster(snapshot, Scope(namespace="team-0")))


# --------------------------------------------------------------------------------------------------
# Not observed
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["persistent_volumes", "claims", "pods", "nodes", "attachments"])
def test_unobserved_kind_makes_no_healthy_volume_stuck(what: str) -> None:
    maker = Maker(Random(0))
    maker.of_kube[what] = UNSEEN
    assert report_cluster(replace(maker.from_afar(), ceph=None)).causes == ()


def test_part_has_each_pod_whose_uid_is_on_the_node() -> None:
    """Assert that a pod that uses no volume of the part is not reported as unknown to the API."""
    made = many(volumes=500, broken=11, seed=1)
    kube = kube_of(made.snapshot)
    stranger = Pod(
        ref=ObjectRef(namespace="kube-system", name="backup", uid="absent"),
        node_name="node-00000",
        phase="Running",
    )
    seen = replace(
        made.snapshot, kubernetes=replace(kube, pods=(*observed_of(kube.pods), stranger))
    )
    before, after = (
        codes_by_target(report_cluster(made.snapshot)),
        codes_by_target(report_cluster(seen)),
    )
    lost = next(given for given, code in made.broken.items() if code == "RBD109")
    assert "RBD109" in {finding.code for finding in before[lost]}
    assert "RBD109" not in {finding.code for finding in after.get(lost, ())}
