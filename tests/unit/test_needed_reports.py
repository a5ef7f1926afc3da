"""The reports that ``diagnose -A`` keeps lead to the same answer as all reports."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.correlate.index import Index, index_of, with_ceph, with_reports
from rbdagent.correlate.resolve import about
from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.lifecycle.needed_reports import needed_reports, suspicious_reports
from rbdagent.lifecycle.targets import Scope, subjects_of
from rbdagent.lifecycle.triage import targets_to_diagnose
from rbdagent.model import (
    BlocklistEntry,
    ImageSpec,
    KubeView,
    PublishedMapping,
    PublishedNode,
    Snapshot,
    Target,
    Verdict,
    Volume,
    Watcher,
    observed_of,
)
from rbdagent.parse.selector import parse_selector
from tests.support.random_clusters import COUNT, NODES, Maker, address
from tests.support.random_reports import SECOND, reported_cluster
from tests.support.snapshots import COOKIE, FSID, JUST_NOW, LONG_AGO, UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable

_SCOPES: Final = (
    Scope(),
    Scope(namespace="shop"),
    Scope(selector=parse_selector("app=web")),
    Scope(namespace="bank", selector=parse_selector("app!=web")),
)


CLUSTERS: Final = st.builds(
    reported_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=6)
)


def healthy_with(*mappings: tuple[str, PublishedMapping]) -> Maker:
    """Return a healthy cluster whose agents report these mappings."""
    maker = Maker(Random(0))
    maker.published = [
        PublishedNode(
            name=node,
            observed_at=JUST_NOW,
            mappings=tuple(mapping for theirs, mapping in mappings if theirs == node),
        )
        for node in NODES
    ]
    return maker


def in_use(number: int, node: str, **changes: object) -> tuple[str, PublishedMapping]:
    made = PublishedMapping(
        device=f"/dev/rbd{number}",
        verdict=Verdict.IN_USE,
        fsid=FSID,
        spec=ImageSpec(pool="k8s", name=f"image-{number}"),
        image_id=f"id-{number}",
        client_id=int(node[-1]),
        client_address=address(node),
        read_only=False,
        persistent_volume=f"pv-{number}",
    )
    return node, replace(made, **changes)


# --------------------------------------------------------------------------------------------------
# The same answer
# --------------------------------------------------------------------------------------------------


def kube_of(snapshot: Snapshot) -> KubeView:
    assert snapshot.kubernetes is not None
    return snapshot.kubernetes


def with_published(snapshot: Snapshot, reports: tuple[PublishedNode, ...]) -> Snapshot:
    return replace(snapshot, kubernetes=replace(kube_of(snapshot), published=reports))


def before_ceph(snapshot: Snapshot, scope: Scope) -> Index:
    """Return the index with the reports that are kept before Ceph answers."""
    reports = observed_of(kube_of(snapshot).published)
    index = index_of(replace(with_published(snapshot, ()), ceph=None))
    index = with_reports(index, suspicious_reports(index, scope, reports))
    return with_reports(index, needed_reports(index, scope, reports))


def reduced(snapshot: Snapshot, scope: Scope = Scope()) -> Snapshot:  # noqa: B008 - immutable
    """Return a snapshot with the reports that are kept, as the collector selects them."""
    index = with_ceph(before_ceph(snapshot, scope), snapshot.ceph)
    reports = observed_of(kube_of(snapshot).published)
    return with_published(snapshot, needed_reports(index, scope, reports))


def uses_of_suspects(index: Index, scope: Scope) -> dict[Target, Volume]:
    return {
        target: correlate(about(target, index.snapshot))
        for target in targets_to_diagnose(index, scope)
    }


@settings(max_examples=300)
@given(snapshot=CLUSTERS, scope=st.sampled_from(_SCOPES))
def test_reduced_reports_lead_to_the_same_answer(snapshot: Snapshot, scope: Scope) -> None:
    # The collector knows the namespace, and not the labels.
    fewer = reduced(snapshot, Scope(namespace=scope.namespace))
    assert report_cluster(fewer, scope) == report_cluster(snapshot, scope)
    whole, part = index_of(snapshot), index_of(fewer)
    assert subjects_of(part, scope) == subjects_of(whole, scope)
    assert uses_of_suspects(part, scope) == uses_of_suspects(whole, scope)


@settings(max_examples=300)
@given(snapshot=CLUSTERS, scope=st.sampled_from(_SCOPES[:2]))
def test_ceph_and_the_logs_are_queried_about_the_same_targets(
    snapshot: Snapshot, scope: Scope
) -> None:
    before = before_ceph(snapshot, scope)
    whole = index_of(replace(snapshot, ceph=None))
    assert uses_of_suspects(before, scope) == uses_of_suspects(whole, scope)
    for ceph in (None, snapshot.ceph):
        # The first answer has the blocklist, which may lead to further images.
        asked = targets_to_diagnose(with_ceph(before, ceph), scope)
        assert asked == targets_to_diagnose(with_ceph(whole, ceph), scope)


# --------------------------------------------------------------------------------------------------
# What is kept
# --------------------------------------------------------------------------------------------------


def kept(maker: Maker) -> set[tuple[str, str]]:
    """Return node and device of the mappings that are kept; the answer must be the same."""
    snapshot = maker.from_afar()
    fewer = reduced(snapshot)
    assert report_cluster(fewer) == report_cluster(snapshot)
    reports = observed_of(kube_of(fewer).published)
    assert [report.name for report in reports] == [report.name for report in maker.published]
    return {(report.name, one.device) for report in reports for one in observed_of(report.mappings)}


HEALTHY: Final = tuple(in_use(number, NODES[number % 3]) for number in range(COUNT))


def test_no_mapping_of_a_healthy_volume_is_kept() -> None:
    foreign = in_use(7, NODES[0], persistent_volume=None)
    assert kept(healthy_with(*HEALTHY, foreign)) == set()


def test_no_mapping_of_a_healthy_shared_volume_is_kept() -> None:
    maker = healthy_with(*HEALTHY, in_use(0, NODES[1]))
    shared = {"access_modes": ("ReadWriteMany",), "volume_mode": "Block"}
    maker.volumes[0] = replace(maker.volumes[0], **shared)
    second = replace(maker.pods[0].ref, name="web-9", uid="pod-9")
    maker.pods.append(replace(maker.pods[0], ref=second, node_name=NODES[1]))
    assert kept(maker) == set()


@pytest.mark.parametrize(
    "further",
    [
        in_use(0, NODES[2]),
        in_use(0, NODES[2], persistent_volume=None),
        in_use(0, NODES[2], spec=ImageSpec(pool="k8s", name="former")),
        in_use(0, NODES[2], verdict=Verdict.ORPHANED),
    ],
    ids=["node without a pod", "by its image", "by its PV", "not in use"],
)
def test_one_report_against_a_volume_keeps_all_its_reports(
    further: tuple[str, PublishedMapping],
) -> None:
    """Also those of nodes that come earlier in the list."""
    assert kept(healthy_with(*HEALTHY, further)) == {
        (NODES[0], "/dev/rbd0"),
        (NODES[2], "/dev/rbd0"),
    }


def _kill_pod(maker: Maker) -> None:
    maker.pods[0] = replace(maker.pods[0], deleting_since=LONG_AGO)


def _list_node(maker: Maker) -> None:
    maker.blocklist = [BlocklistEntry(network=address(NODES[0]).ip)]


def _hide_pods(maker: Maker) -> None:
    maker.of_kube["pods"] = UNSEEN


@pytest.mark.parametrize(
    ("become", "numbers"),
    [(_kill_pod, {0}), (_list_node, {0, 3}), (_hide_pods, {0, 1, 2, 3, 4})],
    ids=["unhealthy for another reason", "blocklisted node", "pods not observed"],
)
def test_reports_of_each_suspect_are_kept(
    become: Callable[[Maker], None], numbers: set[int]
) -> None:
    maker = healthy_with(*HEALTHY)
    become(maker)
    assert kept(maker) == {(NODES[number % 3], f"/dev/rbd{number}") for number in numbers}


def test_reports_of_an_image_that_a_report_names_are_kept_before_ceph_answers() -> None:
    """The report of the suspect's PV is not suspicious itself, and its image has another id."""
    maker = healthy_with(in_use(0, NODES[0], image_id="id-1"), *HEALTHY[1:])
    _kill_pod(maker)
    before = before_ceph(maker.from_afar(), Scope())
    reports = {report.name: report for report in observed_of(kube_of(before.snapshot).published)}
    assert [one.device for one in observed_of(reports[NODES[1]].mappings)] == ["/dev/rbd1"]


def test_reports_without_observed_volumes_are_those_of_no_target() -> None:
    maker = healthy_with(*HEALTHY)
    maker.of_kube["persistent_volumes"] = UNSEEN
    assert kept(maker) == set()


def test_device_whose_image_is_unknown_is_kept() -> None:
    unknown = in_use(7, NODES[1], spec=None, image_id=None, persistent_volume=None)
    assert kept(healthy_with(*HEALTHY, unknown)) == {(NODES[1], "/dev/rbd7")}


def watched_image(maker: Maker, node: str) -> None:
    """Make volume 0 a suspect whose image a client on a node watches."""
    _kill_pod(maker)
    maker.a_view()
    watcher = Watcher(address=address(node), client=int(node[-1]), cookie=COOKIE)
    maker.views = [
        replace(
            (maker.views or maker.other_views)[0],
            spec=ImageSpec(pool="k8s", name="image-0"),
            fsid=FSID,
            image_id="id-0",
            watchers=(watcher,),
            transient_watchers=(),
        )
    ]
    maker.other_views = []


def test_one_mapping_of_a_watchers_client_is_kept_and_each_of_its_image() -> None:
    """A node still shows the former name of an image that was renamed."""
    renamed = in_use(
        9,
        NODES[1],
        spec=ImageSpec(pool="k8s", name="former"),
        image_id="id-0",
        persistent_volume=None,
    )
    maker = healthy_with(*HEALTHY, renamed)
    watched_image(maker, NODES[1])
    # Volumes 1 and 4 are mapped by the client that watches the image.
    assert kept(maker) == {
        (NODES[0], "/dev/rbd0"),
        (NODES[1], "/dev/rbd1"),
        (NODES[1], "/dev/rbd9"),
    }


def test_mapping_of_a_watchers_client_is_kept_though_another_agent_reports_its_id_first() -> None:
    """An agent that reports the id and nonce of another node's client is faulty or compromised."""
    other = in_use(
        9,
        NODES[0],
        spec=ImageSpec(pool="k8s", name="other"),
        image_id="id-9",
        client_id=int(NODES[1][-1]),
        client_address=replace(address(NODES[0]), nonce=address(NODES[1]).nonce),
        persistent_volume=None,
    )
    maker = healthy_with(other, *HEALTHY)
    watched_image(maker, NODES[1])
    assert kept(maker) == {(NODES[0], "/dev/rbd0"), (NODES[1], "/dev/rbd1")}


def test_mappings_of_a_client_on_the_blocklist_are_kept() -> None:
    """They are of another client than those of the suspects: RBD306 names all its devices."""
    second = {"client_id": SECOND, "client_address": replace(address(NODES[0]), nonce=SECOND)}
    maker = healthy_with(*HEALTHY, in_use(8, NODES[0], **second), in_use(9, NODES[0], **second))
    watched_image(maker, NODES[0])
    maker.blocklist = [BlocklistEntry(network=address(NODES[0]).ip, nonce=SECOND)]
    # The pods of volumes 0 and 3 are on this node.
    assert kept(maker) == {(NODES[0], f"/dev/rbd{number}") for number in (0, 3, 8, 9)}


def test_volume_outside_the_namespace_does_not_matter() -> None:
    """Pods of other namespaces are not listed: no node seems to have one."""
    maker = healthy_with(*HEALTHY)
    maker.claims = [claim for claim in maker.claims if claim.ref.namespace == "shop"]
    maker.pods = [pod for pod in maker.pods if pod.ref.namespace == "shop"]
    fewer = reduced(maker.from_afar(), Scope(namespace="shop"))
    assert {report.mappings for report in observed_of(kube_of(fewer).published)} == {()}
