"""How an answer states which other nodes were not observed, and what to run then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.commands import line_of
from tests.support.snapshots import (
    LONG_AGO,
    NOW,
    PV,
    UNSEEN,
    attachment,
    codes,
    found,
    node,
    reported_by,
    unmapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Node, PublishedNode

_PREFIX: Final = "not observed: what is mapped on "


def _workers(*numbers: int) -> tuple[Node, ...]:
    return tuple(node(f"worker-{number}") for number in numbers)


def _evidence(nodes: Sequence[Node], *reports: PublishedNode) -> str:
    seen = unmapped(in_kube={"nodes": (node("worker-1"), *nodes), "published": reports})
    (fact,) = found(seen, "RBD119").evidence
    return fact.removeprefix(_PREFIX)


@pytest.mark.parametrize(
    ("nodes", "reports", "expected"),
    [
        (_workers(2), (), "worker-2 (no agent reports)"),
        (_workers(2, 3), (), "worker-2, worker-3 (no agent reports)"),
        (_workers(*range(2, 8)), (), "6 other nodes (no agent reports)"),
        (
            _workers(2, 3, 4),
            (reported_by("worker-3"),),
            "worker-2, worker-4 (no agent reports)",
        ),
        (
            (*_workers(2, 3), node("worker-4", ready=False)),
            (),
            "worker-4 (not Ready, no agent reports), worker-2, worker-3 (no agent reports)",
        ),
        (
            (*_workers(*range(2, 8)), node("worker-8", ready=False)),
            (),
            (
                "worker-8 (not Ready, no agent reports), worker-2, worker-3, worker-4, worker-5 "
                "(no agent reports) and 2 more nodes"
            ),
        ),
    ],
    ids=[
        "one node",
        "two nodes in one state",
        "many nodes in one state",
        "a node that reports",
        "an unhealthy node first",
        "many nodes in two states",
    ],
)
def test_nodes_in_one_state_are_named_together(
    nodes: Sequence[Node], reports: Sequence[PublishedNode], expected: str
) -> None:
    assert _evidence(nodes, *reports) == expected


def test_old_report_states_its_age_for_each_node() -> None:
    old = reported_by("worker-2", observed_at=LONG_AGO)
    assert _evidence(_workers(2, 3), old).startswith("worker-2 (its agent last ")
    assert _evidence(_workers(2, 3), old).endswith("), worker-3 (no agent reports)")


@pytest.mark.parametrize("observed_at", [NOW, LONG_AGO])
def test_report_without_a_node_is_a_gap_at_any_age(observed_at: str) -> None:
    """A Node may be deleted while its machine runs."""
    report = reported_by("worker-9", observed_at=observed_at)
    expected = "worker-9 (it has no Node; its agent last reported "
    assert _evidence((), report).startswith(expected)


def test_free_names_what_it_cannot_show() -> None:
    assert found(unmapped(), "RBD118").message.endswith(
        " Not visible: a machine without Node, report and watch."
    )


def test_free_of_a_mirrored_image_names_the_peer_cluster() -> None:
    assert "in the peer cluster" not in found(unmapped(), "RBD118").message
    mirrored = found(unmapped(of_image={"mirrored": True}), "RBD118")
    assert mirrored.message.endswith("in the peer cluster, because the image is mirrored.")
    unknown = found(unmapped(of_image={"mirrored": UNSEEN}), "RBD118")
    assert "whether the image is mirrored" in unknown.evidence[-1]


def test_all_nodes_that_report_leave_nothing_out() -> None:
    seen = unmapped(
        in_kube={"nodes": _workers(1, 2), "published": (reported_by("worker-2"),)},
    )
    assert "RBD119" not in codes(seen)


def _next_commands(*reports: PublishedNode, attached: bool = False) -> list[str]:
    attachments = (attachment("worker-2"),) if attached else ()
    seen = unmapped(
        in_kube={"nodes": _workers(1, 2, 3), "published": reports, "attachments": attachments}
    )
    return [line_of(given) for given in found(seen, "RBD119").commands]


def test_cluster_without_agents_gets_the_runbook() -> None:
    assert _next_commands() == [f"rbdagent who-holds --print-runbook pv/{PV}"]


def test_node_to_which_the_volume_is_attached_is_queried_first() -> None:
    (first,) = _next_commands(attached=True)
    assert first.startswith("ssh worker-2 ")


def test_cluster_with_agents_gets_the_list_of_those_that_report() -> None:
    assert _next_commands(reported_by("worker-2")) == ["kubectl get rbdnodes"]
