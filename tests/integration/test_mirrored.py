"""Two clusters that mirror to each other: two primaries, and the split brain that follows.

Each daemon reports to both clusters, so that each side has the report of the other.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.model import ImageView, MirrorState, observed_of
from tests.integration.clients import access, asked, observe_ceph, wanted
from tests.integration.two_clusters import Pair, two_clusters
from tests.lab.processes import patience, wait_until

if TYPE_CHECKING:
    from tests.lab.ceph import CephCluster
    from tests.lab.processes import Processes

_READY_S: Final = 120.0
_IMAGE: Final = "k8s/both"
_MIRRORING: Final = frozenset({"RBD133", "RBD134", "RBD135"})


@pytest.fixture(scope="module")
def pair(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    made = two_clusters(processes, tmp_path_factory.mktemp, prefix="both-")
    made.secondary.mirror_from(made.primary, "k8s", direction="rx-tx")
    made.primary.start_mirror()
    made.primary.create_image(_IMAGE, features="layering,exclusive-lock")
    made.primary.rbd("mirror", "image", "enable", _IMAGE, "snapshot")
    return made


def view_in(cluster: CephCluster) -> ImageView | None:
    view, _ = observe_ceph([access(cluster)], [wanted("both")], deadline_s=20 * patience())
    images = () if view is None else view.clusters[0].images
    return next(iter(images), None)


def states_in(cluster: CephCluster) -> dict[bool, MirrorState]:
    """Return the state that each daemon reports, by whether it is the one of this cluster."""
    view = view_in(cluster)
    sites = () if view is None else observed_of(view.mirror_sites)
    return {site.is_local: site.state for site in sites if site.is_up}


def findings_in(cluster: CephCluster) -> dict[str, dict[str, Any]]:
    answer = asked([sys.executable, "-m", "rbdagent"], cluster, _IMAGE)
    return {found["code"]: found for found in answer["findings"] if found["code"] in _MIRRORING}


def test_two_primaries_and_a_split_brain_are_reported_and_health_is_not(pair: Pair) -> None:
    """Ceph's own health is OK with two primaries; each step is one of a failover that goes wrong.

    One test, because each state follows from the one before.
    """
    copied = {True: MirrorState.STOPPED, False: MirrorState.REPLAYING}
    what = "the copy to be replayed, and both daemons to report"
    wait_until(lambda: states_in(pair.primary) == copied, timeout_s=_READY_S, what=what)
    assert [findings_in(cluster) for cluster in pair] == [{}, {}]

    pair.secondary.rbd("mirror", "image", "promote", "--force", _IMAGE)
    what = "each cluster to have the peer's report that it is primary"
    # The daemon first reports that it takes over ("orphan (force promoting)", 20.2), and a report
    # is up to 30 s old.
    wait_until(
        lambda: [[*findings_in(cluster)] for cluster in pair] == [["RBD134"], ["RBD134"]],
        timeout_s=_READY_S,
        what=what,
    )
    (found,) = findings_in(pair.primary).values()
    assert found["severity"] == "error"
    assert "image health: OK" in pair.primary.rbd("mirror", "pool", "status", "k8s")

    pair.secondary.rbd("mirror", "image", "demote", _IMAGE)
    what = "the daemon to find the split brain"
    wait_until(
        lambda: states_in(pair.secondary).get(True) is MirrorState.ERROR,
        timeout_s=_READY_S,
        what=what,
    )
    found = findings_in(pair.secondary)["RBD133"]
    assert found["severity"] == "error"
    assert any("split-brain" in line for line in found["evidence"])
