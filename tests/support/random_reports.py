"""Random small clusters with a report of most nodes, which differs from what the API shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.model import (
    BlocklistEntry,
    ImageSpec,
    PublishedMapping,
    PublishedNode,
    Snapshot,
    Verdict,
    Watcher,
    observed_of,
)
from tests.support.random_clusters import COUNT, GONE, NODES, Maker, address
from tests.support.snapshots import COOKIE, FSID, JUST_NOW, LONG_AGO, OTHER_FSID, UNSEEN

if TYPE_CHECKING:
    from random import Random

LABELS: Final = (("app", "web"),)
"""Of one claim."""
SECOND: Final = 7
"""Id and nonce of a second client of a node."""


def a_mapping(random: Random, node: str, device: int) -> PublishedMapping:
    """Return a mapping: most are healthy, and the others differ in one or more ways."""
    number = random.randrange(COUNT)
    if random.random() < 0.4:
        # The pods of every third volume are on the same node.
        number = next((one for one in range(COUNT) if NODES[one % 3] == node), number)
    # Some agents report the client of another node.
    owner = random.choice((*[node] * 14, *NODES))
    client = random.choice((int(owner[-1]), int(owner[-1]), SECOND))
    client_address = replace(address(owner), nonce=client)
    name = random.choice((*[f"image-{number}"] * 5, f"former-{number}", "image-nowhere"))
    spec = ImageSpec(pool=random.choice(("k8s", "k8s", "former")), name=name)
    return PublishedMapping(
        device=f"/dev/{random.choice(('rbd', 'rbd', 'rbd', 'nbd'))}{device}",
        verdict=random.choice((*[Verdict.IN_USE] * 12, *Verdict)),
        fsid=random.choice((FSID, FSID, FSID, OTHER_FSID, None)),
        spec=random.choice((*[spec] * 9, None)),
        image_id=random.choice((*[f"id-{number}"] * 4, "id-0", None)),
        client_id=client,
        client_address=random.choice((*[client_address] * 9, None)),
        read_only=random.choice((False, False, True, None)),
        persistent_volume=random.choice((*[f"pv-{number}"] * 3, f"pv-{number ^ 1}", None)),
        findings=random.choice((*[()] * 9, ("RBD123",))),
    )


def a_report(random: Random, node: str) -> PublishedNode:
    mappings = tuple(a_mapping(random, node, device) for device in range(random.randrange(7)))
    return PublishedNode(
        name=node,
        observed_at=random.choice((JUST_NOW, JUST_NOW, LONG_AGO)),
        mappings=UNSEEN if random.random() < 0.1 else mappings,
        incomplete=random.choice(("", "", "", "not all of its RBDMappings were found")),
        every_client=random.choice((True, True, False)),
    )


def watch(maker: Maker, random: Random) -> None:
    """Add to each image a watcher with a client of any node."""
    for number, view in enumerate(maker.views):
        node = random.choice((*NODES, GONE))
        client = random.choice((int(node[-1]), SECOND))
        watched_from = replace(address(node), nonce=client)
        watcher = Watcher(address=watched_from, client=client, cookie=COOKIE)
        maker.views[number] = replace(view, watchers=(watcher, *observed_of(view.watchers)))


def reported_cluster(random: Random, changes: int) -> Snapshot:
    """Return a cluster, so many changes away from a healthy one, with a report of most nodes."""
    maker = Maker(random)
    for _ in range(changes):
        maker.change()
    if random.random() < 0.5:
        for _ in range(COUNT):
            maker.a_view()
        watch(maker, random)
    if random.random() < 0.4:
        node = random.choice((*NODES, GONE))
        nonce = random.choice((0, address(node).nonce, SECOND))
        maker.blocklist.append(BlocklistEntry(network=address(node).ip, nonce=nonce))
    maker.of_kube.pop("published", None)
    nodes = random.sample((*NODES, GONE), random.randrange(2, 5))
    maker.published = [a_report(random, node) for node in nodes]
    maker.claims[1] = replace(maker.claims[1], labels=LABELS)
    return random.choice((maker.made, maker.from_afar))()
