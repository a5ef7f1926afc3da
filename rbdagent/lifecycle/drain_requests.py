"""Requests of a device that the kernel holds and has not sent to Ceph: no list of Ceph's has them.

The block layer counts a request from its issue to krbd until it is completed (field 9 of
``/sys/block/rbd0/stat``). osdc lists it only once krbd has sent it: before that, it may wait for
the exclusive lock or for the header of the image (rbd_queue_workfn and rbd_img_exclusive_lock in
drivers/block/rbd.c). Both are read one after the other, so one observation shows a busy device in
the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rbdagent.commands import command
from rbdagent.correlate.image_identity import mappings_of
from rbdagent.model import (
    DeviceKind,
    Gap,
    IoCounters,
    NotObserved,
    Subject,
    observed_of,
)
from rbdagent.model.drain import DrainItem, DrainStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Mapping, NodeView


def may_wait(node: NodeView | None) -> bool:
    """Return whether a device has requests of which Ceph's client shows none."""
    return any(map(_is_without_its_requests, mappings_of(node)))


def waiting_requests(node: NodeView, again: NodeView | None) -> Iterator[DrainItem]:
    """Yield the devices that completed no request between two observations of one boot.

    Args:
        node: the observed node.
        again: a further observation of it; None without one.
    """
    others = _by_device(node, again)
    for mapping in mappings_of(node):
        if _is_without_its_requests(mapping) and _is_at_rest(mapping, others.get(mapping.device)):
            yield _item(mapping, node)


def unclear_requests(node: NodeView, again: NodeView | None) -> Iterator[Gap]:
    """Yield the devices of which one observation does not show whether a request waits."""
    others = _by_device(node, again)
    for mapping in mappings_of(node):
        if _is_without_its_requests(mapping) and not _is_answered(others.get(mapping.device)):
            yield Gap(
                fact=f"whether the requests of {mapping.device} are completed",
                reason=f"{_count(mapping)} in flight, and {_shown(mapping)}: one observation does "
                "not show whether it waits",
                hint=f"run it again on {node.node_name}",
            )


def _is_answered(other: Mapping | None) -> bool:
    """Return whether a further observation decides: it has the counters."""
    return other is not None and isinstance(other.io_counters, IoCounters)


def _is_without_its_requests(mapping: Mapping) -> bool:
    counters = mapping.io_counters
    return (
        mapping.kind is DeviceKind.KRBD
        and isinstance(counters, IoCounters)
        and counters.in_flight > 0
        and not observed_of(mapping.hung_requests)
    )


def _by_device(node: NodeView, again: NodeView | None) -> dict[str, Mapping]:
    """Return the devices of another observation of the same boot that are the same mappings."""
    if again is None or not node.boot_id or node.boot_id != again.boot_id:
        return {}
    now = {mapping.device: mapping.incarnation for mapping in mappings_of(node)}
    return {
        mapping.device: mapping
        for mapping in mappings_of(again)
        if mapping.incarnation is not None and mapping.incarnation == now.get(mapping.device)
    }


def _is_at_rest(mapping: Mapping, other: Mapping | None) -> bool:
    """Return whether requests were in flight both times, and none was completed in between."""
    if other is None or not _is_without_its_requests(other):
        return False
    one, two = mapping.io_counters, other.io_counters
    if isinstance(one, NotObserved) or isinstance(two, NotObserved):
        return False
    return replace(one, in_flight=0) == replace(two, in_flight=0)


def _item(mapping: Mapping, node: NodeView) -> DrainItem:
    device, unread = mapping.device, isinstance(mapping.hung_requests, NotObserved)
    where = (
        "Whether they wait in the kernel or for Ceph was not observed"
        if unread
        else "Most likely they wait in the kernel: for the exclusive lock or the image's header"
    )
    return DrainItem(
        step=DrainStep.HANGING_REQUEST,
        subject=Subject.of_device(device, node.node_name),
        statement=f"{device} completes no request: {_count(mapping)} in flight, and "
        f"{_shown(mapping)}. {where}. An unmount waits for them.",
        evidence=(
            f"two observations of {device}: no completed request in between",
            f"/sys/block/{mapping.kernel_name}/stat: {_count(mapping)} in flight",
        ),
        commands=(
            command("cat", f"/sys/block/{mapping.kernel_name}/inflight", node=node.node_name),
            command(
                "journalctl --dmesg --no-pager --lines=20",
                options=("--grep=rbd|libceph|blocked for more than",),
                node=node.node_name,
            ),
        ),
    )


def _count(mapping: Mapping) -> str:
    counters = mapping.io_counters
    count = 0 if isinstance(counters, NotObserved) else counters.in_flight
    return "1 request is" if count == 1 else f"{count} requests are"


def _shown(mapping: Mapping) -> str:
    if isinstance(mapping.hung_requests, NotObserved):
        return "those of its client at Ceph were not observed"
    return "its client has none at Ceph"
