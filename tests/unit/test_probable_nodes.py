"""The probable node of a client whose address no Node lists, and why it is probable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate import correlate
from rbdagent.model import (
    BlocklistEntry,
    Confidence,
    CsiSource,
    EntityAddress,
    NotObserved,
    PublishedMapping,
    PublishedNode,
    Severity,
    Verdict,
)
from rbdagent.parse.handle import CLIENT_ADDRESS
from rbdagent.parse.kubernetes import node as parse_node
from rbdagent.parse.kubernetes import parse_object
from rbdagent.parse.node_networks import interface_ips, overlay_ips
from rbdagent.report.text.headline import verdict_finding
from rbdagent.rules import diagnose
from tests.support.rule_tables import attached
from tests.support.snapshots import (
    BY_IMAGE,
    DRIVER,
    FSID,
    HANDLE,
    IMAGE_ID,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    NOW,
    PV,
    SPEC,
    UNSEEN,
    codes,
    node,
    pod,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Finding, HolderVerdict, Node, Snapshot

STRANGER: Final = watcher(address=EntityAddress(ip="192.168.5.7", nonce=77), client=5604016)
SECOND: Final = (("192.168.5.7", "k8s.ovn.org/host-cidrs"),)


def seen(*nodes: Node, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return worker-1, where the image is not mapped and a pod waits for it."""
    parts = {"pods": (waiting_pod(node="worker-1"),), "nodes": nodes, "attachments": (), **in_kube}
    return unmapped(of_image={"watchers": (STRANGER,)}, in_kube=parts)


def judged(snapshot: Snapshot) -> HolderVerdict:
    """Return the verdict on the client."""
    (holder,) = (
        holder
        for holder in diagnose(correlate(snapshot), snapshot).holders
        if holder.holder.watcher == STRANGER
    )
    return holder


# --------------------------------------------------------------------------------------------------
# Annotations
# --------------------------------------------------------------------------------------------------

OVERLAYS: Final[list[tuple[dict[str, object], tuple[str, ...]]]] = [
    ({"network.cilium.io/ipv4-cilium-host": "10.0.1.64"}, ("10.0.1.64",)),
    ({"io.cilium.network.ipv6-cilium-host": "fd00::40"}, ("fd00::40",)),
    ({"projectcalico.org/IPv4VXLANTunnelAddr": "10.244.73.64"}, ("10.244.73.64",)),
    ({"network.cilium.io/ipv4-health-ip": "10.0.1.65"}, ()),
]


@pytest.mark.parametrize(("annotations", "expected"), OVERLAYS)
def test_overlay_addresses_are_those_from_which_the_node_sends(
    annotations: dict[str, object], expected: tuple[str, ...]
) -> None:
    assert overlay_ips(annotations, ["10.0.1.0/24"]) == expected


OVN: Final = "k8s.ovn.org/host-cidrs"
INTERFACES: Final[list[tuple[dict[str, object], tuple[str, ...]]]] = [
    ({OVN: '["10.77.0.12/24","192.168.5.7/24"]'}, ("10.77.0.12", "192.168.5.7")),
    ({"k8s.ovn.org/host-addresses": '["192.168.5.7"]'}, ("192.168.5.7",)),
    ({OVN: '["fd00::7/64","fe80::1/64","127.0.0.1/8","0.0.0.0/0"]'}, ("fd00::7",)),
    ({OVN: '["not an address", "10.77.0.12/24"]'}, ("10.77.0.12",)),
    ({OVN: '["fd00::7%eth0/64"]'}, ()),
    ({OVN: "not a list"}, ()),
    ({OVN: '{"a": 1}'}, ()),
    ({OVN: "[1]"}, ()),
    ({OVN: None}, ()),
    ({"projectcalico.org/IPv4Address": "192.168.5.7/24"}, ("192.168.5.7",)),
    ({"flannel.alpha.coreos.com/public-ip": "192.168.5.7"}, ("192.168.5.7",)),
    (
        {
            "flannel.alpha.coreos.com/public-ip": "203.0.113.9",
            "flannel.alpha.coreos.com/public-ip-overwrite": "203.0.113.9",
        },
        (),
    ),
    ({}, ()),
]


@pytest.mark.parametrize(("annotations", "expected"), INTERFACES)
def test_interfaces_are_read_from_the_node(
    annotations: dict[str, object], expected: tuple[str, ...]
) -> None:
    data = {"metadata": {"name": "worker-2", "annotations": annotations}}
    found = parse_object(parse_node, data, what="a Node").interface_ips
    assert tuple(ip for ip, _ in found) == expected
    assert {name for _, name in found} <= annotations.keys()


@given(text=st.text(max_size=200) | st.lists(st.text(max_size=20)).map(str))
def test_any_annotation_is_addresses_or_nothing(text: str) -> None:
    for name in (OVN, "projectcalico.org/IPv4Address"):
        for ip, _ in interface_ips({name: text}):
            assert EntityAddress(ip=ip, nonce=0).ip == ip


def test_number_of_addresses_is_limited() -> None:
    many = str([f"10.{number // 256}.{number % 256}.1/24" for number in range(300)])
    assert len(interface_ips({OVN: many.replace("'", '"')})) == 64
    assert interface_ips({OVN: "[" + " " * 10_000 + "]"}) == ()


# --------------------------------------------------------------------------------------------------
# The node of a client
# --------------------------------------------------------------------------------------------------


def test_client_on_a_second_network_is_probably_on_the_node_that_lists_it() -> None:
    found = judged(seen(node("worker-1"), node("worker-2", interface_ips=SECOND)))
    assert (found.holder.node, found.holder.confidence) == ("worker-2", Confidence.PROBABLE)
    assert found.reasons[1] == (
        "worker-2 is probable, because the annotation k8s.ovn.org/host-cidrs of Node worker-2 "
        "lists 192.168.5.7"
    )


NO_NODE: Final = {
    "two nodes list it": [node(name, interface_ips=SECOND) for name in ("worker-2", "worker-3")],
    "only the observed node lists it": [node("worker-2"), node("worker-1", interface_ips=SECOND)],
    "no node lists it": [node("worker-1"), node("worker-2")],
}


@pytest.mark.parametrize("nodes", NO_NODE.values(), ids=NO_NODE)
def test_address_that_leads_to_no_single_other_node_names_none(nodes: list[Node]) -> None:
    found = judged(seen(*nodes))
    assert found.holder.node is None
    assert "probable" not in " ".join(found.reasons)


def test_internal_ip_has_precedence_over_an_annotation() -> None:
    nodes = (node("worker-2", internal_ips=("192.168.5.7",)), node("w-3", interface_ips=SECOND))
    found = judged(seen(*nodes))
    assert (found.holder.node, found.holder.probable_by) == ("worker-2", "")


def test_metadata_with_the_nonce_has_precedence_over_an_annotation() -> None:
    written = ((f"{CLIENT_ADDRESS}{HANDLE}/worker-2", str(STRANGER.address)),)
    nodes = (node("worker-1"), node("worker-2"), node("worker-3", interface_ips=SECOND))
    snapshot = unmapped(
        of_image={"watchers": (STRANGER,), "metadata": written}, in_kube={"nodes": nodes}
    )
    found = judged(snapshot)
    assert found.holder.node == "worker-2"
    assert found.reasons[1] == (
        "worker-2 is probable, because ceph-csi wrote into the image that 192.168.5.7:0/77 is its "
        "client on worker-2"
    )


def test_report_of_an_agent_is_certain_and_needs_no_annotation() -> None:
    there = PublishedMapping(
        device="/dev/rbd7",
        verdict=Verdict.IN_USE,
        fsid=FSID,
        spec=SPEC,
        image_id=IMAGE_ID,
        client_id=STRANGER.client,
        client_address=STRANGER.address,
        reasons=("a pod uses it",),
    )
    report = PublishedNode(name="worker-3", observed_at=NOW, mappings=(there,))
    nodes = (node("worker-1"), node("worker-2", interface_ips=SECOND), node("worker-3"))
    found = judged(seen(*nodes, published=(report,)))
    assert (found.holder.node, found.holder.confidence) == ("worker-3", Confidence.CERTAIN)
    assert found.holder.claimed_by == ()
    assert "probable" not in " ".join(found.reasons)


# --------------------------------------------------------------------------------------------------
# Candidates
# --------------------------------------------------------------------------------------------------

TWO: Final = (node("worker-1"), node("worker-2"))
IN_USE: Final = {"volumes_in_use": (f"kubernetes.io/csi/{DRIVER}^{HANDLE}",)}


def test_only_node_whose_kubelet_uses_the_volume_is_probable() -> None:
    nodes = (node("worker-1"), node("worker-2", **IN_USE))
    found = judged(seen(*nodes, attachments=attached("worker-2")))
    assert found.holder.node is None
    assert found.reasons[0] == (
        "its node is probably worker-2, because it has a VolumeAttachment of the volume and its "
        "kubelet lists the volume in volumesInUse, and no other client of the volume is known there"
    )


def test_node_is_probable_without_an_attachment_if_its_kubelet_uses_the_volume() -> None:
    found = judged(seen(node("worker-1"), node("worker-2", **IN_USE)))
    assert found.reasons[0].startswith("its node is probably worker-2, because its kubelet lists")


NO_MORE: Final = "it may be on a node where no client of the volume is known: "


def test_node_whose_kubelet_has_unstaged_the_volume_is_no_more_than_a_candidate() -> None:
    found = judged(seen(*TWO, attachments=attached("worker-2")))
    assert found.reasons[0] == f"{NO_MORE}worker-2 (it has a VolumeAttachment of the volume)"


def test_several_nodes_are_candidates_and_none_is_probable() -> None:
    nodes = (*TWO, node("worker-3", **IN_USE))
    found = judged(seen(*nodes, attachments=attached("worker-2")))
    assert found.reasons[0] == (
        f"{NO_MORE}worker-2 (it has a VolumeAttachment of the volume), worker-3 (its kubelet lists "
        "the volume in volumesInUse)"
    )


def test_node_is_no_more_than_a_candidate_while_attachments_are_unknown() -> None:
    nodes = (node("worker-1"), node("worker-2", **IN_USE))
    found = judged(seen(*nodes, attachments=NotObserved(reason="forbidden")))
    assert found.reasons[0].startswith(NO_MORE)


def test_one_node_is_not_probable_for_two_unknown_clients() -> None:
    other = watcher(address=EntityAddress(ip="192.168.5.8", nonce=78), client=77)
    snapshot = unmapped(
        of_image={"watchers": (STRANGER, other)},
        in_kube={"nodes": (node("worker-1"), node("worker-2", **IN_USE)), "attachments": ()},
    )
    assert judged(snapshot).reasons[0].startswith(NO_MORE)


def test_node_with_a_known_client_is_no_candidate() -> None:
    known = watcher(address=EntityAddress(ip="10.77.0.12", nonce=78), client=77)
    snapshot = unmapped(
        of_image={"watchers": (STRANGER, known)},
        in_kube={"nodes": (node("worker-1"), node("worker-2", **IN_USE)), "attachments": ()},
    )
    assert len(judged(snapshot).reasons) == 1


def test_librbd_client_may_be_a_device_of_a_node_only_if_rbd_nbd_maps_the_volume() -> None:
    source = volume().source
    assert isinstance(source, CsiSource)
    by_nbd = replace(source, attributes=(("mounter", "rbd-nbd"),))
    by_either = replace(source, attributes=(("tryOtherMounters", "true"),))
    stranger = replace(STRANGER, cookie=LIBRBD_COOKIE)
    nodes = (node("worker-1"), node("worker-2", **IN_USE))

    def verdict_on(of: CsiSource) -> HolderVerdict:
        parts = {"persistent_volumes": (volume(source=of),), "nodes": nodes, "attachments": ()}
        snapshot = unmapped(of_image={"watchers": (stranger,)}, in_kube=parts)
        (holder,) = diagnose(correlate(snapshot), snapshot).holders
        return holder

    found = verdict_on(by_nbd)
    assert found.verdict is Verdict.UNDETERMINED
    assert found.reasons[0].startswith("its node is probably worker-2, because its kubelet lists")
    assert verdict_on(by_either).verdict is Verdict.UNDETERMINED
    assert verdict_on(source).verdict is Verdict.FOREIGN


def test_librbd_client_may_be_a_device_of_a_node_if_the_mounter_was_not_observed() -> None:
    stranger = replace(STRANGER, cookie=LIBRBD_COOKIE)
    parts = {"persistent_volumes": UNSEEN, "nodes": (node("worker-1"), node("worker-2"))}
    snapshot = unmapped(of_image={"watchers": (stranger,)}, in_kube=parts, target=BY_IMAGE)
    (holder,) = diagnose(correlate(snapshot), snapshot).holders
    assert holder.verdict is Verdict.UNDETERMINED


def test_observed_node_is_no_candidate() -> None:
    found = judged(seen(*TWO, attachments=attached("worker-1")))
    assert len(found.reasons) == 1


def test_names_of_many_candidates_are_limited() -> None:
    nodes = [node(f"worker-{number}", **IN_USE) for number in range(2, 9)]
    found = judged(seen(*nodes))
    assert found.reasons[0].endswith(", and 4 more")


def test_overlay_address_needs_no_candidates() -> None:
    nodes = (node("worker-1"), node("worker-2", overlay_ips=("192.168.5.7",)))
    found = judged(seen(*nodes, attachments=attached("worker-2")))
    assert len(found.reasons) == 1


def test_kubelet_that_waits_for_the_volume_makes_its_node_no_more_than_a_candidate() -> None:
    """Kubelet lists a volume in volumesInUse before it is mounted, too."""
    nodes = (node("worker-1"), node("worker-2", **IN_USE))
    found = judged(seen(*nodes, pods=(waiting_pod(node="worker-2"),)))
    assert found.reasons[0] == (
        f"{NO_MORE}worker-2 (its kubelet lists the volume in volumesInUse, and a pod there waits "
        "for it)"
    )


# --------------------------------------------------------------------------------------------------
# A list of a kubelet that does not report
# --------------------------------------------------------------------------------------------------

LISTED: Final = "its kubelet listed the volume in volumesInUse when it last reported"


@pytest.mark.parametrize("ready", [None, False])
@pytest.mark.parametrize(
    ("reported_at", "text"),
    [
        (JUST_NOW, f"its node is probably worker-2, because {LISTED}, at {JUST_NOW}, and no other"),
        (LONG_AGO, f"{NO_MORE}worker-2 ({LISTED}, at {LONG_AGO})"),
        (None, f"{NO_MORE}worker-2 ({LISTED}, at an unknown time)"),
    ],
)
def test_list_of_a_node_that_is_not_ready_is_as_old_as_its_last_report(
    *, ready: bool | None, reported_at: str | None, text: str
) -> None:
    lost = node("worker-2", ready=ready, reported_at=reported_at, **IN_USE)
    assert judged(seen(node("worker-1"), lost)).reasons[0].startswith(text)


def test_time_of_the_last_report_is_no_part_of_a_sentence() -> None:
    lost = node("worker-2", ready=None, reported_at=JUST_NOW, **IN_USE)
    finding = found_in(seen(node("worker-1"), lost), "RBD119")
    assert JUST_NOW not in finding.message
    assert f"probably on worker-2, because {LISTED}: run rbdagent there" in finding.message
    assert any(JUST_NOW in line for line in finding.evidence)


CONDITIONS: Final = {
    "Unknown": ("Unknown", "2026-11-20T11:00:00Z"),
    "False": ("False", "2026-11-20T11:00:00Z"),
    "True": ("True", None),
}


@pytest.mark.parametrize(("status", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_last_report_is_the_heartbeat_of_a_node_that_is_not_ready(
    status: str, expected: str | None
) -> None:
    condition = {
        "type": "Ready",
        "status": status,
        "lastHeartbeatTime": "2026-11-20T11:00:00Z",
        "lastTransitionTime": "2026-11-20T11:00:41Z",
    }
    data = {"metadata": {"name": "worker-2"}, "status": {"conditions": [condition]}}
    assert parse_object(parse_node, data, what="a Node").reported_at == expected


# --------------------------------------------------------------------------------------------------
# What follows from a node that is only probable
# --------------------------------------------------------------------------------------------------

WHY: Final = (
    "probably on worker-2, because the annotation k8s.ovn.org/host-cidrs of Node worker-2 lists "
    "192.168.5.7"
)
PROBABLE: Final = node("worker-2", interface_ips=SECOND)


def found_in(snapshot: Snapshot, code: str) -> Finding:
    """Return the finding with a code."""
    (finding,) = (
        one for one in diagnose(correlate(snapshot), snapshot).findings if one.code == code
    )
    return finding


def down(**changes: Any) -> Snapshot:  # noqa: ANN401 - fields of the Node
    """Return a client whose probable node is not Ready."""
    return seen(node("worker-1"), node("worker-2", interface_ips=SECOND, **changes))


@pytest.mark.parametrize("ready", [None, False])
@pytest.mark.parametrize("is_tainted", [True, False])
def test_probable_node_that_is_not_ready_is_no_fact(
    *, ready: bool | None, is_tainted: bool
) -> None:
    snapshot = down(ready=ready, out_of_service=is_tainted)
    assert judged(snapshot).verdict is Verdict.UNDETERMINED
    finding = found_in(snapshot, "RBD113")
    assert verdict_finding(diagnose(correlate(snapshot), snapshot)) == finding
    assert f"and is {WHY}, and worker-2 is not Ready." in finding.message
    advice = " ".join((str(finding.remedy), *(" ".join(one.argv) for one in finding.commands)))
    for presumed in ("taint", "Power", "off, then", "blocklist", "delete", "cordon"):
        assert presumed not in advice
    assert "RBD119" not in codes(snapshot)


def test_probable_node_was_not_taken_out_of_service_and_returned() -> None:
    """A client at its address on another machine does not show that the node runs."""
    snapshot = down(out_of_service=True)
    assert judged(snapshot).verdict is Verdict.UNDETERMINED
    assert "RBD107" not in codes(snapshot)


def test_probable_client_is_undetermined_with_the_reason_in_its_sentence() -> None:
    finding = found_in(down(), "RBD119")
    assert finding.message.startswith(
        f"client.5604016 at 192.168.5.7:0/77 holds {PV} and is {WHY}. "
    )
    assert "do not conclude from the state of worker-2" in str(finding.remedy)


def two_writers(**in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return worker-1, which has the image mapped, and a second kernel client."""
    return world(
        of_image={"watchers": (watcher(), STRANGER)},
        in_kube={"nodes": (node("worker-1"), PROBABLE), **in_kube},
    )


def test_conflict_with_a_probable_node_says_so_and_stops_nothing() -> None:
    snapshot = two_writers(pods=(pod(),))
    diagnosis = diagnose(correlate(snapshot), snapshot)
    assert diagnosis.verdict is Verdict.CONFLICT
    finding = found_in(snapshot, "RBD106")
    assert f"by 2 clients at the same time, on worker-1 and {WHY}, and its" in finding.message
    assert "client.5604016 at 192.168.5.7:0/77 may be on another machine" in finding.message
    assert [one.argv[:2] for one in finding.commands] == [("ssh", "worker-2")]
    assert not any(one.changes for one in finding.commands)


def test_pod_without_a_watch_is_no_second_writer_beside_a_client_on_a_probable_node() -> None:
    """The client may be the pod's: an annotation may list an address that moved."""
    snapshot = seen(
        node("worker-1"),
        PROBABLE,
        node("worker-3"),
        pods=(pod(node="worker-3"),),
        attachments=attached("worker-3"),
    )
    diagnosis = diagnose(correlate(snapshot), snapshot)
    assert diagnosis.verdict is not Verdict.CONFLICT
    assert found_in(snapshot, "RBD416").severity is Severity.WARNING


def test_blocklisted_client_on_a_probable_node_evicts_nothing_there() -> None:
    entry = BlocklistEntry(network="192.168.5.7", port=0, nonce=77, until="")
    snapshot = unmapped(
        of_image={"watchers": (STRANGER,)},
        in_ceph={"blocklist": (entry,)},
        in_kube={"nodes": (node("worker-1"), PROBABLE), "pods": (pod(node="worker-2"),)},
    )
    finding = found_in(snapshot, "RBD103")
    assert finding.message.startswith(f"client.5604016 at 192.168.5.7:0/77, {WHY}, is blocklisted:")
    assert "every new map on that machine fails" in finding.message
    assert not any(one.changes for one in finding.commands)


def test_pod_on_a_lost_node_that_is_only_probable_does_not_prove_that_the_machine_runs() -> None:
    ending = pod(node="worker-2", deleting_since=LONG_AGO)
    lost = node("worker-2", interface_ips=SECOND, ready=None)
    finding = found_in(seen(node("worker-1"), lost, pods=(ending,)), "RBD725")
    assert f" client.5604016 at 192.168.5.7:0/77 watches the image and is {WHY}:" in finding.message
    assert "that machine runs" not in f"{finding.message} {finding.remedy}".replace(
        "whichever machine has it runs", ""
    )


# --------------------------------------------------------------------------------------------------
# Where to look first
# --------------------------------------------------------------------------------------------------


def test_candidates_are_checked_first_each_with_its_reason() -> None:
    nodes = (*TWO, node("worker-3", **IN_USE), node("worker-4"), node("worker-5"))
    finding = found_in(seen(*nodes, attachments=attached("worker-2")), "RBD119")
    assert "It may be on worker-2 and worker-3, where no client" in finding.message
    assert (
        "Check these nodes first: worker-2, because it has a VolumeAttachment of the volume; "
        in (str(finding.remedy))
    )
    assert [(one.argv[1], one.note) for one in finding.commands] == [
        ("worker-2", "because it has a VolumeAttachment of the volume"),
        ("worker-3", "because its kubelet lists the volume in volumesInUse"),
    ]


def test_without_candidates_the_machine_is_to_be_found() -> None:
    finding = found_in(seen(*TWO), "RBD119")
    assert "Find the machine that has it." in finding.message
    assert "first" not in str(finding.remedy)
