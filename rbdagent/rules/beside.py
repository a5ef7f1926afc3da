"""What was observed beside an error whose text is not known: a text alone decides nothing.

The quotation may be a symptom. Each of these facts is enough to make a call fail. It is named as
observed, not as the cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.correlate.blocklist import entry_text
from rbdagent.correlate.holders import entry_hits
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import BlocklistEntry, EntityAddress, Node, Words, joined, observed_of, stated
from rbdagent.parse.foreign import foreign
from rbdagent.rules.ceph_health import blocking, slow_osds
from rbdagent.rules.facts import cluster_of_image, is_non_primary, is_shrunk, kernel_log, of_attempt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.rules.context import RuleContext

_MOST: Final = 2
_ANY_NONCE: Final = 1
"""An entry of a host or of a range hits each nonce."""


def beside(context: RuleContext, node: str | None = None) -> Words:
    """Return a sentence with what was observed beside an error; "" if nothing was.

    Args:
        context: the target.
        node: where the call ran; None for one of a controller.
    """
    found = tuple(_facts(context, node))[:_MOST]
    return stated(" Observed beside it: {}.", joined(found, "; ")) if found else ""


def _facts(context: RuleContext, node: str | None) -> Iterator[Words]:
    entry = entry_of_host(context, node)
    if entry is not None:
        yield stated("{node} is on Ceph's blocklist by {entry}", node=node, entry=entry_text(entry))
    if node is not None and node == context.here_if_known:
        lines = [line for line in kernel_log(context) if of_attempt(line, context)]
        yield from (
            stated("its kernel logged {line}", line=foreign(line.text)) for line in lines[-1:]
        )
    spec = context.volume.image.spec if context.volume.image is not None else None
    if spec is not None and (reported := blocking(context, spec.pool)):
        yield reported
    slow = slow_osds(context, spec.pool) if spec is not None else None
    if slow is not None and slow.osds:
        yield slow.reported
    if is_non_primary(context, {}):
        yield "the image is not primary in this cluster"
    if is_shrunk(context, {}):
        yield "the image is smaller than its PV"


def entry_of_host(context: RuleContext, node: str | None) -> BlocklistEntry | None:
    """Return the entry of the image's cluster that hits each client of a node.

    An address of a family that the monitors do not have is not the one with which the node reaches
    them.
    """
    found = node_named(node or "", context.snapshot)
    cluster = cluster_of_image(context)
    if not isinstance(found, Node) or cluster is None:
        return None
    families = {":" in monitor.address.ip for monitor in observed_of(cluster.monitors)}
    addresses = [ip for ip in found.internal_ips if not families or (":" in ip) in families]
    return next(
        (
            entry
            for entry in observed_of(cluster.blocklist)
            for ip in addresses
            if (entry.is_range or entry.nonce == 0)
            and entry_hits(entry, EntityAddress(ip=ip, nonce=_ANY_NONCE))
        ),
        None,
    )
