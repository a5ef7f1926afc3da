"""RBD115 to RBD117, RBD125: clients of the image that are not the mapping of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.correlate.holders import cluster_with, is_ceph_daemon
from rbdagent.model import (
    Finding,
    Holder,
    HolderKind,
    LifecycleStep,
    MirrorState,
    NotObserved,
    Recovery,
    Severity,
    Subject,
    Verb,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    check_here,
    finding,
    identity_lines,
    query_on_node,
    subject_of,
    waiting_elsewhere,
)
from rbdagent.rules.entry import Entry
from rbdagent.verdicts.ceph_daemons import not_excluded, supposed
from rbdagent.verdicts.timing import RETRY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.FOREIGN_HOLDER,
        Severity.WARNING,
        "A client that is not a mapping of a Kubernetes node holds the image.",
        remedy="Find the owner of the client by its address. rbdagent never acts on this client.",
        recovery=Recovery(
            actor="kubelet", condition="that client has released the image", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.CEPH_DAEMON_WATCHES,
        Severity.INFO,
        "A Ceph daemon watches the image as part of its work.",
        remedy=(
            "Nothing to do. If mgr's watch stays, check `ceph rbd task list`. `",
            Verb("check"),
            "` shows the caps that are needed to recognise mgr's clients.",
        ),
        recovery=None,
    ),
    Entry(
        Code.WATCH_PASSED_BY,
        Severity.INFO,
        "A watch was present in one observation and gone in the next.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    Entry(
        Code.CLIENT_ON_TWO_NODES,
        Severity.ERROR,
        "Several nodes have the same client, by reports or by its address, and it is on one node.",
        remedy="Run rbdagent on each of these nodes: there it reads the kernel, not the reports. "
        "Treat a node that reports the client and does not have it as compromised. After a change "
        "of a node's name, delete the RBDNode and the RBDMappings of the former name.",
        recovery=Recovery(note="an agent corrects only its own reports"),
    ),
)


def client_on_two_nodes(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD125 for a client that several nodes have, by reports or by its address."""
    clients: dict[str, Holder] = {}
    for holder_verdict in context.holder_verdicts:
        if holder_verdict.holder.claimed_by:
            clients.setdefault(_client_name(holder_verdict.holder), holder_verdict.holder)
    for client, holder in clients.items():
        nodes = holder.claimed_by
        yield finding(
            Code.CLIENT_ON_TWO_NODES,
            Subject.of_client(client),
            stated(
                "{nodes:and} have the same client {client} according to its address and what "
                "agents report, and a client is on one node. A report is wrong, or the address is "
                "that of a gateway: observe these nodes before you rely on either.",
                nodes=nodes,
                client=client,
            ),
            evidence=identity_lines(context, holder),
            commands=tuple(query_on_node(context, node) for node in nodes if node != context.here),
        )


def _copies_into(holder: Holder, context: RuleContext) -> Words:
    """Return that rbd-mirror writes to the image, which is a copy; "" if it is not known to."""
    view = context.volume.image_view
    if view is None or holder.kind is not HolderKind.MIRROR or view.primary is not False:
        return ""
    reported = next((site for site in observed_of(view.mirror_sites) if site.is_local), None)
    is_copying = reported is not None and reported.is_up and reported.state in _COPYING
    return stated(
        ". It copies the image of another cluster into {image}, which is not primary here{}",
        stated(", and reports the state {state}", state=reported.state)
        if reported is not None and is_copying
        else "",
        image=view.spec,
    )


_COPYING: Final = frozenset(
    {MirrorState.SYNCING, MirrorState.STARTING_REPLAY, MirrorState.REPLAYING}
)


def _client_name(holder: Holder) -> str:
    """Return the client of a holder: ``client.4154``."""
    known = (holder.mapping, holder.published)
    ids = (found.client_id for found in known if found is not None)
    client = holder.watcher.client if holder.watcher is not None else next(ids, None)
    return f"client.{client}"


def foreign_client(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD115, RBD116 and RBD117 for clients that are not mappings of Kubernetes."""
    for holder_verdict in context.observed_with(Verdict.FOREIGN):
        holder = holder_verdict.holder
        if holder.transient:
            yield finding(
                Code.WATCH_PASSED_BY,
                subject_of(holder),
                stated(
                    "{holder} opened the image for a moment: it does not hold it.",
                    holder=subject_of(holder),
                ),
                evidence=holder_verdict.reasons,
                pods=holder_verdict.pods,
            )
        elif is_ceph_daemon(holder):
            yield finding(
                Code.CEPH_DAEMON_WATCHES,
                subject_of(holder),
                stated(
                    "{holder} is {reason}{}: this is expected.",
                    _copies_into(holder, context),
                    holder=subject_of(holder),
                    reason=holder_verdict.reasons[0],
                ),
                evidence=holder_verdict.reasons,
                pods=holder_verdict.pods,
            )
        elif holder.probable_kind is not None:
            yield finding(
                Code.CEPH_DAEMON_WATCHES,
                subject_of(holder),
                stated(
                    "{holder} is {reason}. Any other librbd client would look the same.",
                    holder=subject_of(holder),
                    reason=supposed(holder, context.volume),
                ),
                evidence=(*holder_verdict.reasons, *not_excluded(context.volume, context.snapshot)),
                pods=holder_verdict.pods,
                commands=(check_here(context),),
                severity=Severity.WARNING if context.volume.waiting_pods else None,
            )
        else:
            blocks = bool(context.volume.waiting_pods)
            is_librbd = holder.kind is HolderKind.LIBRBD
            yield finding(
                Code.FOREIGN_HOLDER,
                subject_of(holder),
                stated(
                    "{holder} holds the image and is not a mapping of Kubernetes: find its owner{}",
                    (is_librbd and _unknown_daemon(context)) or _NOT_OURS,
                    holder=subject_of(holder),
                ),
                waiting=waiting_elsewhere(context, None),
                evidence=(
                    *holder_verdict.reasons,
                    *identity_lines(context, holder),
                    *(not_excluded(context.volume, context.snapshot) if is_librbd else ()),
                ),
                pods=holder_verdict.pods,
                severity=Severity.ERROR if blocks else None,
            )


_NOT_OURS: Final = ". rbdagent does not act on it."


def _unknown_daemon(context: RuleContext) -> Words:
    """Return which of Ceph's daemons a librbd client may be, and what would tell."""
    view = context.volume.image_view
    cluster = cluster_with(view.fsid if view is not None else None, context.snapshot)
    unread = None if cluster is None else cluster.services
    if not isinstance(unread, NotObserved):
        return ""
    return stated(" (ceph-mgr? {hint}).", hint=unread.hint) if unread.hint else ""


RULES: Final = (
    Rule(125, client_on_two_nodes),
    Rule(520, foreign_client),
)
