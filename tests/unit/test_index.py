"""What the index of a random cluster returns, against a scan of all its lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hypothesis.strategies as st
from hypothesis import given, settings
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.correlate.holders import claimants, node_at
from rbdagent.correlate.index import index_of, kube_index, once
from rbdagent.correlate.node_usage import mapped_here, serving
from rbdagent.correlate.published_reports import reported_mappings
from rbdagent.correlate.resolve import about
from rbdagent.correlate.volume_names import attachments_of, names_of, users_of
from rbdagent.lifecycle.targets import subjects_of
from rbdagent.model import TargetKind, observed_of
from tests.support import scanned_joins as scanned
from tests.support.random_clusters import some_cluster
from tests.support.random_reports import reported_cluster
from tests.support.rule_rows.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.names import VolumeNames
    from rbdagent.model import ImageView, Snapshot, Watcher

CLUSTERS: Final = st.builds(
    some_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=8)
) | st.builds(
    reported_cluster, st.randoms(use_true_random=False), st.integers(min_value=0, max_value=4)
)
MANY: Final = settings(max_examples=300)


def names_in(snapshot: Snapshot) -> Iterator[VolumeNames]:
    """Yield the names of the volume of each target, and of each target without its PVs."""
    for target in subjects_of(index_of(snapshot)).targets:
        volume = correlate(about(target, snapshot))
        volumes = () if volume.persistent_volume is None else (volume.persistent_volume,)
        names = names_of(volume.image, (*volumes, *volume.other_volumes), snapshot)
        yield names
        # The monitors of an inline volume decide only where the addresses of a cluster are known.
        yield replace(names, volumes=(), monitors=frozenset())


def rows_of_the_tables() -> list[Snapshot]:
    rows = (
        row
        for family in FAMILIES
        for by_name in family.REPORTED.values()
        for row in by_name.values()
    )
    found = (row[0] if isinstance(row, tuple) else row for row in rows)
    return [snapshot for snapshot in found if snapshot.kubernetes is not None]


def watchers_in(snapshot: Snapshot) -> Iterator[tuple[ImageView, Watcher]]:
    for cluster in () if snapshot.ceph is None else snapshot.ceph.clusters:
        for view in cluster.images:
            for watcher in (*observed_of(view.watchers), *view.transient_watchers):
                yield view, watcher


def differences(snapshot: Snapshot) -> list[str]:
    """Return the joins that differ from a scan."""
    found: list[str] = []
    for names in names_in(snapshot):
        known = replace(names, monitors=frozenset())
        attachments = attachments_of(names, snapshot)
        pairs = {
            "users": ({*users_of(known, snapshot)}, scanned.users_of(known, snapshot)),
            "devices": (
                {mapping.device for mapping in mapped_here(names, snapshot.node)},
                scanned.mapped_here(names, snapshot),
            ),
            "serving": (
                {mapping.device for mapping in serving(names, snapshot.node)},
                scanned.serving(names, snapshot),
            ),
            "reports": (
                [(report.name, mapping) for report, mapping in reported_mappings(names, snapshot)],
                [*scanned.reported_mappings(names, snapshot)],
            ),
            "claims": (
                names.claims if names.volumes else frozenset(),
                scanned.claims_of(names.volumes, snapshot),
            ),
        }
        if isinstance(attachments, tuple):
            pairs["attachments"] = ({*attachments}, scanned.attachments_of(names, snapshot))
        if names.image is not None and names.volumes:
            pairs["volumes"] = (
                {*names.volumes} & scanned.volumes_of(names.image, snapshot),
                scanned.volumes_of(names.image, snapshot),
            )
        found += [name for name, (looked_up, seen) in pairs.items() if looked_up != seen]
    for view, watcher in watchers_in(snapshot):
        nodes = scanned.claimants(watcher, view.fsid, snapshot)
        known_nodes = claimants(watcher.client, watcher.address, view.fsid, snapshot)
        found += ["claimants"] if {*known_nodes} != (nodes if len(nodes) > 1 else set()) else []
        at = scanned.nodes_at(watcher.address.ip, snapshot)
        found += (
            ["address"] if len(at) == 1 and {node_at(watcher.address.ip, snapshot)} != at else []
        )
    return found


@MANY
@given(snapshot=CLUSTERS)
def test_lookup_equals_a_scan_in_a_random_cluster(snapshot: Snapshot) -> None:
    assert differences(snapshot) == []


def test_lookup_equals_a_scan_in_each_row_of_the_rules() -> None:
    assert {
        number: found
        for number, snapshot in enumerate(rows_of_the_tables())
        if (found := differences(snapshot))
    } == {}


@settings(max_examples=50)
@given(snapshot=CLUSTERS)
def test_target_of_a_cluster_keeps_the_index_of_the_cluster(snapshot: Snapshot) -> None:
    index = index_of(snapshot)
    for target in subjects_of(index).targets:
        of_target = index_of(about(target, snapshot))
        assert of_target.kube is index.kube
        assert of_target.reports is index.reports


def test_other_lists_have_another_index() -> None:
    snapshot = next(seen for seen in rows_of_the_tables() if kube_index(seen.kubernetes).pods)
    kube = scanned.kube_of(snapshot)
    assert kube_index(replace(kube, pods=())).pods == ()
    assert kube_index(kube).pods != ()


def test_function_is_called_once_for_a_view_and_all_its_targets() -> None:
    calls: list[TargetKind] = []

    def noted(snapshot: Snapshot) -> int:
        calls.append(snapshot.target.kind)
        return len(calls)

    snapshot = rows_of_the_tables()[0]
    target = replace(snapshot.target, kind=TargetKind.POD)
    assert [once(snapshot, noted), once(about(target, snapshot), noted)] == [1, 1]
