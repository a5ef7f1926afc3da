"""Watchers and the blocklist if monitors speak only one messenger or have IPv6 addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.correlate.holders import entry_hits, same_client
from rbdagent.model import SourceState, observed_of
from rbdagent.parse.address import parse_address, parse_address_vector
from tests.integration.clients import access, observe_ceph, said, start_client, wanted
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.network import free_port
from tests.lab.processes import Processes, patience

if TYPE_CHECKING:
    from collections.abc import Iterator

_NETWORKS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "messenger v1 alone": ("127.0.0.1", ("v1",)),
    "msgr2 alone": ("127.0.0.1", ("v2",)),
    "IPv6": ("::1", ("v2", "v1")),
}


@pytest.fixture(scope="module", params=_NETWORKS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CephCluster]:
    """Run a cluster whose monitor can be reached in only one way."""
    address, speaks = _NETWORKS[request.param]
    processes = Processes(tmp_path_factory.mktemp("processes"))
    made = CephCluster(
        processes,
        tmp_path_factory.mktemp("ceph"),
        address=address,
        port=free_port(),
        msgr2_port=free_port(),
        name="networks",
        speaks=speaks,
    )
    try:
        made.start()
        made.wait_ready()
        made.create_pool("k8s")
        made.create_user("rbdagent", READ_ONLY_CAPS)
        yield made
    finally:
        processes.stop_all()


def test_a_watcher_matches_its_client_by_address_and_nonce(cluster: CephCluster) -> None:
    cluster.create_image("k8s/held")
    client = start_client(cluster, "k8s/held")
    try:
        addresses, number = said(client)
        view, source = observe_ceph([access(cluster)], [wanted("held")], deadline_s=20 * patience())
    finally:
        client.kill()
        client.communicate()
    assert source.state is SourceState.OBSERVED
    assert view is not None
    (image,) = view.clusters[0].images
    (watcher,) = observed_of(image.watchers)
    assert watcher.client == number
    assert same_client(watcher.address, parse_address_vector(addresses, where="the client"))


def test_a_blocklist_range_matches_a_client_inside_it(cluster: CephCluster) -> None:
    """NetworkFence of csi-addons adds such a range; no client of this test is in its network."""
    is_ipv6 = cluster.monitor.startswith("[")
    network, inside = ("fd00:7::/64", "[fd00:7::9]") if is_ipv6 else ("10.7.0.0/24", "10.7.0.9")
    cluster.ceph("osd", "blocklist", "range", "add", network, "3600")
    view, _ = observe_ceph([access(cluster)], [], deadline_s=20 * patience())
    assert view is not None
    (entry,) = observed_of(view.clusters[0].blocklist)
    assert str(entry) == network
    assert entry_hits(entry, parse_address(f"{inside}:0/77", where="a client"))
