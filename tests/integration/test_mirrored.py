"""Two clusters that mirror to each other: two primaries, and the split brain that follows.

Each daemon reports to both clusters, so that each side has the report of the other. The snapshots
of these states are in tests/fixtures/ceph: RBDAGENT_RECORD=1 writes them again.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.model import ImageView, MirrorState, observed_of
from tests.integration.clients import access, asked, observe_ceph, wanted
from tests.integration.two_clusters import Pair, two_clusters
from tests.lab.processes import patience, wait_until
from tests.support.recorded_ceph import record

if TYPE_CHECKING:
    from tests.lab.ceph import CephCluster
    from tests.lab.processes import Processes

_READY_S: Final = 120.0
_IMAGE: Final = "k8s/both"
_MIRRORING: Final = frozenset({"RBD133", "RBD134", "RBD135"})
_KEPT: Final = b"written to the side that is kept"
_LOST: Final = b"written to the side that is lost"
_WRITE: Final = """
import sys, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1], rados_id="admin", conf={"keyring": sys.argv[2]})
cluster.connect()
pool, name = sys.argv[3].split("/")
with rbd.Image(cluster.open_ioctx(pool), name) as image:
    image.write(sys.argv[4].encode(), 0)
    image.flush()
"""


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


def content_of(cluster: CephCluster) -> bytes:
    """Return the first bytes of the image, by the command of a backup."""
    copy = cluster.conf.parent / "copy"
    cluster.rbd("export", "--no-progress", _IMAGE, str(copy))
    with copy.open("rb") as file:
        content = file.read(len(_KEPT))
    copy.unlink()
    return content


def write(cluster: CephCluster, content: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WRITE, cluster.conf, cluster.admin_keyring, _IMAGE, content],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def wait_copied(pair: Pair) -> None:
    """Wait until the second cluster copies the first, and nothing is reported."""
    copied = {True: MirrorState.STOPPED, False: MirrorState.REPLAYING}
    what = "the copy to be replayed, and both daemons to report"
    wait_until(lambda: states_in(pair.primary) == copied, timeout_s=_READY_S, what=what)
    wait_until(
        lambda: [findings_in(cluster) for cluster in pair] == [{}, {}],
        timeout_s=_READY_S,
        what="nothing to be reported of either side",
    )


def test_a_copy_without_its_daemon_is_reported_until_the_daemon_runs(pair: Pair) -> None:
    wait_copied(pair)
    pair.secondary.stop_mirror()
    try:
        wait_until(
            lambda: "RBD135" in findings_in(pair.secondary),
            timeout_s=_READY_S,
            what="the cluster to miss its daemon",
        )
        record("mirror-not-running", pair.secondary, _IMAGE)
    finally:
        pair.secondary.start_mirror()
    wait_copied(pair)


def test_two_primaries_and_a_split_brain_are_reported_and_their_remedy_keeps_a_side(
    pair: Pair,
) -> None:
    """Ceph's own health is OK with two primaries; each step is one of a failover that goes wrong.

    One test, because each state follows from the one before.
    """
    wait_copied(pair)
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
    record("two-primaries", pair.primary, _IMAGE)
    write(pair.primary, _KEPT)
    write(pair.secondary, _LOST)

    # The remedy of RBD134 and RBD133: the other side is exported, demoted and resynced.
    assert "Compare the data of both sides" in found["remedy"]
    assert content_of(pair.primary) == _KEPT
    assert content_of(pair.secondary) == _LOST
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
    record("split-brain", pair.secondary, _IMAGE)
    assert "export the image of the other side first" in found["remedy"]
    assert "`rbd mirror image resync`" in found["remedy"]
    pair.secondary.rbd("mirror", "image", "resync", _IMAGE)
    wait_copied(pair)
    assert content_of(pair.primary) == _KEPT
    pair.primary.rbd("mirror", "image", "snapshot", _IMAGE)
    wait_until(
        lambda: content_of(pair.secondary) == _KEPT,
        timeout_s=_READY_S,
        what="the side that was discarded to have the data of the other one",
    )
