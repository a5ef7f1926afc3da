"""Everything that is stuck: the same words as for a single target, and nothing hidden."""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.correlate.fits import candidates
from rbdagent.correlate.identity import target_claims, target_volumes
from rbdagent.correlate.names import claims_of, key_of
from rbdagent.correlate.parts import part_of
from rbdagent.correlate.shelf import KEPT, Shelf
from rbdagent.correlate.whole import whole_of
from rbdagent.diagnose.life import life_of
from rbdagent.diagnose.stuck import (
    among_all,
    lives_that_are_stuck,
    serious_findings,
    stuck_in,
)
from rbdagent.diagnose.subjects import Scope, subjects_of
from rbdagent.diagnose.suspects import images_of_suspects
from rbdagent.model import (
    Claim,
    Finding,
    KubeView,
    Life,
    LifeList,
    NotObserved,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    Pod,
    Requirement,
    Severity,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
    observed_of,
)
from rbdagent.observe.kube import _claim_names, _subjects, _using_pods
from rbdagent.parse.selector import parse_selector
from tests.lab.many import HERE, KINDS, KINDS_HERE, LEGIT, SICK, Many, many
from tests.unit import test_diagnose_rules
from tests.unit.builders import DRIVER, LONG_AGO, NOW, UNSEEN, event
from tests.unit.clusters import GIB, Maker, some_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CLUSTERS: Final = st.builds(
    some_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=8)
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
    """Give the look at a target that saw the whole cluster, with the events that it asks for.

    What else an answer rests on is told apart by the joins themselves.
    """
    kube = kube_of(snapshot)
    wanted = set(target_claims(target, kube))
    volumes = target_volumes(target, kube)
    claims = tuple(each for each in claims_of(kube) if key_of(each.ref) in wanted)
    pods = _using_pods(target, volumes, claims, kube.pods)
    names = {*_subjects(volumes, claims), *pods, *wanted, *_claim_names(volumes, claims)}
    names |= {
        key_of(each.ref)
        for each in observed_of(kube.pods)
        if any((each.ref.namespace, name) in wanted for name in each.claims)
    }
    # What is the cluster's own has no namespace, and its events lie in default.
    names |= {("", name) for namespace, name in names if namespace == "default"}
    events = kube.events
    if not isinstance(events, NotObserved):
        events = tuple(each for each in events if key_of(each.subject) in names)
    return replace(snapshot, target=target, kubernetes=replace(kube, events=events))


def life_in(snapshot: Snapshot) -> Life:
    return among_all(life_of(correlate(snapshot), snapshot), snapshot)


Said = dict[str, set[Finding]]


def said(found: LifeList) -> Said:
    """Give what is said of whom."""
    return {
        each.life.diagnosis.use.target.given: set(serious_findings(each.life))
        for each in found.stuck
    }


def unfiltered(snapshot: Snapshot) -> Said:
    """Give the same of everybody, one by one, each by the look that saw the whole cluster.

    What was said by one name is not said again by another.
    """
    found: Said = {}
    targets = subjects_of(whole_of(snapshot)).targets
    for kind in BY_WHICH_NAME:
        before = {one for each in found.values() for one in each}
        for target in (each for each in targets if each.kind is kind):
            serious = set(serious_findings(life_in(alone(snapshot, target))))
            if not serious <= before:
                found[target.given] = serious
    return found


# --------------------------------------------------------------------------------------------------
# Parts
# --------------------------------------------------------------------------------------------------


@MANY
@given(snapshot=CLUSTERS)
def test_of_every_target_its_part_tells_the_very_same_life_as_the_whole(snapshot: Snapshot) -> None:
    whole = whole_of(snapshot)
    for target in subjects_of(whole).targets:
        part = part_of(whole, target)
        assert life_in(part) == life_in(alone(snapshot, target)), target.given


def test_events_of_one_second_with_one_message_are_in_the_same_order_in_a_part() -> None:
    maker = Maker(Random(1))
    maker.events = [
        event("something else", kind=kind, subject=ObjectRef(namespace="shop", name=name))
        for kind, name in (("Pod", "web-0"), ("PersistentVolumeClaim", "data-0"))
    ]
    snapshot, target = maker.from_afar(), pvc("shop", "data-0")
    part = life_in(part_of(whole_of(snapshot), target))
    assert len(part.diagnosis.use.events) == 2
    assert part == life_in(alone(snapshot, target))


@MANY
@given(snapshot=CLUSTERS)
def test_nobody_is_left_out_of_whom_the_rules_would_say_something_serious(
    snapshot: Snapshot,
) -> None:
    assert said(stuck_in(snapshot)) == unfiltered(snapshot)


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
    """Return each row of each table of the rules that Kubernetes has a part in."""
    return [
        pytest.param(seen, id=f"{code}: {name}")
        for family in (test_diagnose_rules, *test_diagnose_rules.FAMILIES)
        for code, rows in family.SAID.items()
        for name, row in rows.items()
        if (seen := row[0] if isinstance(row, tuple) else row).kubernetes is not None
    ]


@pytest.mark.parametrize("seen", rows_of_the_tables())
def test_row_of_a_rule_passes_triage_whatever_was_not_observed(seen: Snapshot) -> None:
    """`diagnose -A` reports what each target alone would, also where pods were not observed."""
    for parts in ((), ("pods",), ("node",), ("node", "pods"), ("node", "ceph", "pods")):
        partial = reduce(lambda found, part: without(part, found), parts, seen)
        assert said(stuck_in(partial)) == unfiltered(partial), parts


@MANY
@given(snapshot=CLUSTERS)
def test_every_claim_volume_and_pod_of_ours_is_asked_about(snapshot: Snapshot) -> None:
    kube, whole = kube_of(snapshot), whole_of(snapshot)
    given = {each.given for each in subjects_of(whole).targets}
    others = {
        each.name
        for each in observed_of(kube.persistent_volumes)
        if isinstance(each.source, OtherSource)
    }
    for claim in observed_of(kube.claims):
        assert (f"pvc/{claim.ref}" in given) == (claim.volume_name not in others)
    for volume in observed_of(kube.persistent_volumes):
        by_claim = volume.claim is not None and f"pvc/{volume.claim}" in given
        assert f"pv/{volume.name}" in given or by_claim or volume.name in others
    for pod in observed_of(kube.pods):
        assert f"pod/{pod.ref}" in given or all(
            each.volume_name in others
            for each in observed_of(kube.claims)
            if each.ref.namespace == pod.ref.namespace and each.ref.name in pod.claims
        )


@MANY
@given(snapshot=CLUSTERS)
def test_what_was_not_observed_is_not_observed_in_any_part_and_what_was_is_as_complete(
    snapshot: Snapshot,
) -> None:
    kube, whole = kube_of(snapshot), whole_of(snapshot)
    for target in subjects_of(whole).targets:
        part = kube_of(part_of(whole, target))
        for name in KubeView.__struct_fields__:
            seen, all_seen = getattr(part, name), getattr(kube, name)
            assert isinstance(seen, NotObserved) == isinstance(all_seen, NotObserved), name
        assert part.pods_scope == kube.pods_scope
        assert part.volumes_complete == kube.volumes_complete
        assert part.attachments_complete == kube.attachments_complete
        for name in ("nodes", "csi_nodes", "nodes_complete", "searched", "storage_classes"):
            assert getattr(part, name) == getattr(kube, name)


def test_a_part_does_not_grow_with_the_cluster() -> None:
    small, large = (many(volumes=each, broken=200, seed=7) for each in (640, 2640))
    most, before = largest_part(large), largest_part(small)
    # What is of no volume brings the pods of a node with it, which some have more of than others.
    assert {name for name, count in most.items() if count > 1.25 * before[name]} == set()


def largest_part(made: Many) -> dict[str, int]:
    """Give how many of each kind the largest part has, but for those of the node that looked."""
    whole, largest = whole_of(made.snapshot), dict.fromkeys(KubeView.__struct_fields__, 0)
    for target in subjects_of(whole).targets:
        if target.name.rpartition("-")[2] in {str(each) for each in range(HERE)}:
            continue
        kube = kube_of(part_of(whole, target))
        for name in ("persistent_volumes", "claims", "pods", "attachments", "events"):
            largest[name] = max(largest[name], len(getattr(kube, name)))
        # Every node's report is there, as every Node is, but with the target's mappings alone.
        mapped = sum(len(observed_of(report.mappings)) for report in observed_of(kube.published))
        largest["published"] = max(largest["published"], mapped)
    return largest


def pvc(namespace: str, name: str) -> Target:
    return Target(
        given=f"pvc/{namespace}/{name}", kind=TargetKind.CLAIM, name=name, namespace=namespace
    )


@pytest.mark.parametrize("labels", [(), (("disk", "fast"),)], ids=["no labels", "labels"])
@pytest.mark.parametrize("storage_class", ["manual", "first", "", None, "none-such"])
def test_a_claim_that_no_volume_fits_is_told_the_same_by_a_part_that_has_the_nearest_alone(
    storage_class: str | None, labels: tuple[tuple[str, str], ...]
) -> None:
    maker = Maker(Random(1))
    for _ in range(3):
        maker.spare_volumes()
    wanted = tuple(Requirement(key=key, operator="In", values=(value,)) for key, value in labels)
    maker.claims[0] = replace(
        maker.claims[0],
        phase="Pending",
        volume_name=None,
        bind_completed=False,
        storage_class=storage_class,
        requested_bytes=5 * GIB,
        selector=wanted or None,
    )
    snapshot, target = maker.from_afar(), pvc("shop", "data-0")
    part = part_of(whole_of(snapshot), target)
    assert life_in(part) == life_in(alone(snapshot, target))
    assert len(observed_of(kube_of(part).persistent_volumes)) < len(maker.volumes)


# --------------------------------------------------------------------------------------------------
# PVs that come near
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
    Claim,
    ref=st.just(ObjectRef(namespace="shop", name="data", uid="u")),
    phase=st.just("Pending"),
    access_modes=st.just(("ReadWriteOnce",)),
    storage_class=st.sampled_from([None, "fast"]),
    requested_bytes=st.integers(min_value=1, max_value=4),
    selector=st.sampled_from([None, (Requirement(key="disk", operator="In", values=("a",)),)]),
)


@MANY
@given(volumes=_VOLUMES, claims=st.lists(_CLAIMS, min_size=1, max_size=3))
def test_the_nearest_volumes_are_those_that_a_comparison_with_all_would_find(
    volumes: list[PersistentVolume], claims: list[Claim]
) -> None:
    shelf = Shelf(sorted(volumes, key=lambda each: each.name))
    for claim in claims:
        nearest = [each.volume for each in candidates(claim, shelf.nearest(claim))]
        assert nearest == [each.volume for each in candidates(claim, volumes)[:KEPT]]


def test_very_many_sorts_of_volumes_are_not_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(claim: Claim, volumes: Iterable[PersistentVolume]) -> tuple[object, ...]:
        held = list(volumes)
        compared.append(len(held))
        return candidates(claim, held)

    monkeypatch.setattr("rbdagent.correlate.shelf.candidates", counted)
    maker = Maker(Random(0))
    shelf = Shelf(
        [replace(maker.volumes[0], name=f"{each:05}", capacity_bytes=each) for each in range(5000)]
    )
    for size in range(20):
        shelf.nearest(replace(maker.claims[0], requested_bytes=size))
        shelf.nearest(replace(maker.claims[1], requested_bytes=size))
    # Claims that want the same are answered once.
    assert len(compared) == 20
    assert max(compared) <= 500


# --------------------------------------------------------------------------------------------------
# A large cluster
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_exactly_what_is_broken_is_found_each_by_its_code(seed: int) -> None:
    made = many(volumes=1000, broken=200, seed=seed)
    found = said(stuck_in(made.snapshot))
    assert {
        given: code
        for given, code in made.broken.items()
        if code not in {each.code for each in found.get(given, ())}
    } == {}
    assert found.keys() == made.broken.keys()


def test_every_kind_of_trouble_and_every_odd_peace_is_in_a_cluster_of_that_size() -> None:
    made = many(volumes=1000, broken=200, seed=1)
    codes = {code for code, _ in (*KINDS.values(), *KINDS_HERE.values())}
    assert codes | {each.code for each in SICK.values()} <= set(made.broken.values())
    assert len(LEGIT) * 10 < 1000 - len(made.broken)


def test_ceph_is_asked_about_little_more_than_what_is_broken() -> None:
    made = many(volumes=2000, broken=200, seed=1)
    whole = whole_of(replace(made.snapshot, ceph=None))
    asked = images_of_suspects(whole, Scope())
    # Beside what is broken: what only looks odd, and what the node that looked has mapped.
    assert len(asked) < len(made.broken) + HERE + 2000 // 10


def test_whom_a_pod_waits_for_ceph_is_asked_about_first() -> None:
    maker = Maker(Random(0))
    maker.attachments = [
        each for each in maker.attachments if each.persistent_volume not in {"pv-1", "pv-3"}
    ]
    maker.attachments += [replace(maker._attachment(1), detach_error="no", deleting_since=NOW)]
    maker.pods[3] = replace(maker.pods[3], phase="Pending")
    whole = whole_of(replace(maker.from_afar(), ceph=None))
    names = [each.spec.name for each in images_of_suspects(whole, Scope())]
    assert names == ["image-3", "image-1"]


def test_at_peace_nothing_is_stuck_and_nobody_is_suspected() -> None:
    snapshot = Maker(Random(0)).from_afar()
    found = stuck_in(snapshot)
    assert found.causes == ()
    assert (found.claims, found.volumes, found.pods) == (5, 5, 5)
    assert images_of_suspects(whole_of(snapshot), Scope()) == ()


def test_volumes_of_other_drivers_are_left_out_and_counted() -> None:
    maker = Maker(Random(0))
    maker.volumes[0] = replace(maker.volumes[0], source=OtherSource(kind="nfs"), phase="Failed")
    found = stuck_in(maker.from_afar())
    assert found.causes == ()
    assert (found.claims, found.volumes, found.pods, found.others) == (4, 4, 4, 1)


def test_an_idle_volume_that_ceph_was_not_asked_about_is_not_called_stuck() -> None:
    """Nobody waits for it: whether somebody holds it, nobody wanted to know."""
    maker = Maker(Random(0))
    maker.pods, maker.attachments = [], []
    assert stuck_in(replace(maker.from_afar(), ceph=None)).causes == ()


def test_of_a_pod_that_waits_it_is_told_that_nobody_was_asked_who_holds_its_volume() -> None:
    maker = Maker(Random(0))
    maker.pods[0] = replace(maker.pods[0], phase="Pending", containers=())
    found = said(stuck_in(replace(maker.from_afar(), ceph=None)))
    assert {given: {each.code for each in told} for given, told in found.items()} == {
        "pvc/shop/data-0": {"RBD718", "RBD119"}
    }


def test_a_pod_that_was_just_placed_is_no_reason_to_ask_who_holds_its_volume() -> None:
    maker = Maker(Random(0))
    maker.pods[0] = replace(
        maker.pods[0], phase="Pending", containers=(), created_at=NOW, placed_at=NOW
    )
    assert stuck_in(replace(maker.from_afar(), ceph=None)).causes == ()


def test_a_pod_of_which_one_container_runs_waits_for_another_thing_than_its_volumes() -> None:
    """No container starts before all volumes are mounted; its phase stays Pending all the same."""
    maker = Maker(Random(0))
    maker.pods[0] = replace(maker.pods[0], phase="Pending")
    assert stuck_in(replace(maker.from_afar(), ceph=None)).causes == ()


# --------------------------------------------------------------------------------------------------
# What many wait for
# --------------------------------------------------------------------------------------------------


def broken(become: Callable[[Maker, int], None], *numbers: int) -> LifeList:
    """Give what is stuck where so many volumes are broken alike."""
    maker = Maker(Random(0))
    for number in numbers:
        become(maker, number)
    return stuck_in(maker.from_afar())


def _is_unbound(maker: Maker, number: int) -> None:
    maker.volumes = [each for each in maker.volumes if each.name != f"pv-{number}"]
    maker.attachments = [
        each for each in maker.attachments if each.persistent_volume != f"pv-{number}"
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


def test_those_who_wait_for_one_provisioner_are_one_cause_whatever_their_names_and_ages() -> None:
    found = broken(_is_unbound, 0, 1, 3, 4)
    (cause,) = found.causes
    assert cause.finding.code == "RBD606"
    assert [each.life.diagnosis.use.target.given for each in cause.victims] == [
        "pvc/bank/data-1",
        "pvc/bank/data-3",
        "pvc/shop/data-0",
        "pvc/shop/data-4",
    ]
    assert cause.victims[0].since == "2026-11-20T01:00:00Z"


def test_those_who_ask_for_classes_of_different_names_are_two_causes() -> None:
    def become(maker: Maker, number: int) -> None:
        _is_unbound(maker, number)
        name = "none" if number < 2 else "nil"
        maker.claims[number] = replace(maker.claims[number], storage_class=name)

    found = broken(become, 0, 1, 3)
    assert [(each.finding.code, len(each.victims)) for each in found.causes] == [
        ("RBD601", 2),
        ("RBD601", 1),
    ]


def test_those_who_hang_on_one_node_are_one_cause() -> None:
    maker = Maker(Random(0))
    # data-0 and data-3 are there.
    maker.nodes[0] = replace(maker.nodes[0], ready=None)
    found = stuck_in(maker.from_afar())
    assert [(each.finding.code, len(each.victims)) for each in found.causes] == [("RBD113", 2)]
    assert found.causes[0].finding.subject == "node worker-1"


def test_data_in_danger_comes_first_then_errors_then_warnings_then_what_has_most_victims() -> None:
    maker = Maker(Random(0))
    _is_unbound(maker, 4)
    _is_unbound(maker, 2)
    maker.claims[0] = replace(maker.claims[0], storage_class="none")
    _is_unbound(maker, 0)
    maker.claims[0] = replace(maker.claims[0], storage_class="none")
    # Two pods that write on two nodes.
    maker.pods.append(
        replace(
            maker.pods[1],
            ref=ObjectRef(namespace="bank", name="second", uid="second"),
            node_name="worker-3",
        )
    )
    maker.volumes = [
        replace(each, deleting_since=LONG_AGO, finalizers=("kubernetes.io/pv-protection",))
        if each.name == "pv-3"
        else each
        for each in maker.volumes
    ]
    found = stuck_in(maker.from_afar())
    assert [(each.finding.code, len(each.victims)) for each in found.causes] == [
        ("RBD106", 1),
        ("RBD606", 2),
        ("RBD601", 1),
        ("RBD614", 1),
    ]
    assert [each.finding.severity for each in found.causes][-1] is Severity.WARNING


def test_a_pod_is_told_of_where_its_claims_say_nothing() -> None:
    maker = Maker(Random(0))
    maker.pods[0] = replace(maker.pods[0], claims=("never-made",), phase="Pending", node_name=None)
    maker.attachments = maker.attachments[1:]
    whole = whole_of(maker.from_afar())
    stuck = list(lives_that_are_stuck(whole, subjects_of(whole).targets))
    # Today no rule knows a claim that is not there; whichever comes to know it, is heard.
    assert {each.life.diagnosis.use.target.given for each in stuck} <= {"pod/shop/web-0"}


def test_what_many_sources_lack_is_told_once() -> None:
    maker = Maker(Random(0))
    _is_unbound(maker, 0)
    _is_unbound(maker, 1)
    snapshot = maker.from_afar()
    failed = replace(snapshot.sources.node, state=SourceState.FAILED, reason="no /proc")
    found = stuck_in(replace(snapshot, sources=replace(snapshot.sources, node=failed)))
    assert "RBD901" in {each.code for each in found.findings}
    assert all(each.code != "RBD901" for stuck in found.stuck for each in stuck.life.findings)


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
        (Scope(namespace="nobodys"), set()),
        (Scope(selector=parse_selector("app!=db")), {"data-2", "data-3", "data-4"}),
    ],
    ids=["-n", "-l", "-n -l", "nobody", "-l !="],
)
def test_a_scope_is_of_a_namespace_or_of_labels_on_claims_or_their_pods(
    scope: Scope, found: set[str]
) -> None:
    maker = Maker(Random(0))
    _labelled(maker)
    stuck = stuck_in(maker.from_afar(), scope).stuck
    assert {each.life.diagnosis.use.target.name for each in stuck} == found


def test_a_volume_whose_claim_is_gone_is_of_the_namespace_that_it_had() -> None:
    maker = Maker(Random(0))
    maker.volumes[0] = replace(maker.volumes[0], phase="Failed")
    maker.claims, maker.pods, maker.attachments = maker.claims[1:], maker.pods[1:], []
    snapshot = maker.from_afar()
    in_shop, in_bank = (stuck_in(snapshot, Scope(namespace=each)) for each in ("shop", "bank"))
    assert [each.life.diagnosis.use.target.given for each in in_shop.stuck] == ["pv/pv-0"]
    assert in_bank.stuck == ()


def test_what_is_mapped_and_no_pvs_is_told_only_where_everything_is_asked_for() -> None:
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
            each
            for each in observed_of(kube.persistent_volumes)
            if each.claim is None or each.claim.name != name
        ),
        claims=tuple(each for each in observed_of(kube.claims) if each.ref.name != name),
    )
    snapshot = replace(made.snapshot, kubernetes=without)
    everywhere = said(stuck_in(snapshot))
    assert {each.code for each in everywhere["/dev/rbd0"]} == {"RBD101"}
    assert "/dev/rbd0" not in said(stuck_in(snapshot, Scope(namespace="team-0")))


# --------------------------------------------------------------------------------------------------
# Not observed
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["persistent_volumes", "claims", "pods", "nodes", "attachments"])
def test_a_kind_that_was_not_observed_makes_nobody_at_peace_stuck(what: str) -> None:
    maker = Maker(Random(0))
    maker.of_kube[what] = UNSEEN
    assert stuck_in(replace(maker.from_afar(), ceph=None)).causes == ()


def test_pods_whose_uids_the_node_shows_are_known_in_a_part_wherever_they_are() -> None:
    """A part that knew only its volume's pods would call the others lost."""
    made = many(volumes=500, broken=11, seed=1)
    kube = kube_of(made.snapshot)
    stranger = Pod(
        ref=ObjectRef(namespace="kube-system", name="backup", uid="nobody"),
        node_name="node-00000",
        phase="Running",
    )
    seen = replace(
        made.snapshot, kubernetes=replace(kube, pods=(*observed_of(kube.pods), stranger))
    )
    before, after = said(stuck_in(made.snapshot)), said(stuck_in(seen))
    lost = next(given for given, code in made.broken.items() if code == "RBD109")
    assert "RBD109" in {each.code for each in before[lost]}
    assert "RBD109" not in {each.code for each in after.get(lost, ())}
