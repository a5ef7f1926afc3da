"""RBD103, RBD104: mappings without I/O: of a blocklisted client, or of a lost rbd-nbd process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.correlate.blocklist import removal_of
from rbdagent.correlate.directories import observed_mounts, pod_uids_on
from rbdagent.model import (
    BlocklistEntry,
    DeviceKind,
    Finding,
    Holder,
    HolderVerdict,
    LifecycleStep,
    Pod,
    Recovery,
    Severity,
    Statement,
    SubjectKind,
    Verdict,
    Words,
    observed_of,
    stated,
)
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    client_name,
    cordon,
    delete_pod,
    finding,
    identity_lines,
    pod_by_uid,
    probably,
    query_again,
    query_on_node,
    subject_of,
)
from rbdagent.rules.entry import Entry
from rbdagent.verdicts.evidence import evidence_of
from rbdagent.verdicts.volume_verdict import is_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.CLIENT_BLOCKLISTED,
        Severity.CRITICAL,
        "The node's Ceph client is on the blocklist: the mapping is unusable.",
        remedy="Evict the pods that use these devices. Let kubelet unmount and unmap all of them. "
        "The last unmap removes the client, and new maps work again, unless the entry is for the "
        "whole host or for a range: then remove the entry afterwards. Never remove an entry while "
        "the mappings exist: I/O resumes, but the watch does not come back (see RBD105).",
        recovery=Recovery(note="a blocklisted client does not recover"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.NBD_PROCESS_GONE,
        Severity.ERROR,
        "The process of an rbd-nbd device no longer exists.",
        remedy="Delete the pods that use it; the next stage uses another nbd device. rbdagent "
        "never disconnects nbd devices: nothing prevents the disconnect of one that is in use.",
        recovery=Recovery(note="no component starts the process again"),
        step=LifecycleStep.USE,
    ),
)


def blocklisted(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD103 for a blocklisted client, with all its devices."""
    for holder_verdict in context.observed_with(Verdict.DEAD):
        holder = holder_verdict.holder
        entry = holder.blocklisted_by
        if not isinstance(entry, BlocklistEntry):
            continue
        devices = (*((holder.mapping.device,) if holder.mapping else ()), *holder.sibling_devices)
        expiry = stated(" The entry expires {until}.", until=entry.until) if entry.until else ""
        pods = evidence_of(holder).running
        others = _pods_of_siblings(holder, pods, context)
        shared = (
            stated(
                " The same client serves {devices}: I/O fails on all of them. This affects {} as "
                "well.",
                stated("{pods}", pods=[pod.ref for pod in others])
                if others
                else "the pods that use them",
                devices=devices,
            )
            if holder.sibling_devices
            else ""
        )
        yield finding(
            Code.CLIENT_BLOCKLISTED,
            subject_of(holder),
            stated(
                "{} is blocklisted: writes there fail (-108), and every new map on {} fails "
                "too.{}{} {}",
                _client_of(holder),
                stated("{node}", node=holder.node)
                if holder.node and not holder.is_node_probable
                else "that machine",
                shared,
                expiry,
                _removal_advice(entry),
            ),
            evidence=(*holder_verdict.reasons, *identity_lines(context, holder)),
            pods=holder_verdict.pods,
            remedy=_OF_UNPROVEN_NODE if holder.is_node_probable else "",
            commands=(query_on_node(context, str(holder.node)),)
            if holder.is_node_probable
            else (
                *cordon(holder),
                *(delete_pod(pod) for pod in (*pods, *others)),
                query_again(context),
            ),
        )


_OF_UNPROVEN_NODE: Final = (
    "Run rbdagent on the named node: it shows whether a mapping there has this client. If none "
    "has, find the machine with its address. Release the mapping there as its owner does, and do "
    "not remove the entry before that."
)


def _client_of(holder: Holder) -> Statement:
    """Return the client of a holder, which is its subject if no device of it is known."""
    subject = subject_of(holder)
    if holder.is_node_probable:
        return stated("{client}, {},", probably(holder), client=client_name(holder))
    is_client = subject.kind is SubjectKind.CLIENT
    return (
        stated("{holder}", holder=subject)
        if is_client
        else stated("The Ceph client of {holder}", holder=subject)
    )


def _pods_of_siblings(
    holder: Holder, own: tuple[Pod, ...], context: RuleContext
) -> tuple[Pod, ...]:
    """Return the pods on the other devices of a client: they must be deleted as well."""
    node = context.snapshot.node
    mappings = observed_of(node.mappings) if node is not None and holder.is_local else ()
    uids = {
        uid
        for mapping in mappings
        if mapping.device in holder.sibling_devices
        for uid in pod_uids_on(mapping)
    }
    found = (pod_by_uid(uid, context) for uid in sorted(uids))
    return tuple(pod for pod in found if pod is not None and pod not in own)


def _removal_advice(entry: BlocklistEntry) -> Words:
    if entry.nonce != 0:
        return "Do not remove the entry while these mappings exist."
    covered = "that range" if entry.is_range else "that host"
    return stated(
        "The entry blocks every client of {}, including new clients. `{command}` removes it. "
        "Do not run this before the last mapping that the entry blocks is gone.",
        covered,
        command=removal_of(entry),
    )


def dead_nbd(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD104 for an nbd device whose rbd-nbd process no longer exists."""
    for holder_verdict in context.observed_with(Verdict.DEAD):
        holder = holder_verdict.holder
        if holder.mapping is None or holder.mapping.kind is not DeviceKind.NBD:
            continue
        if isinstance(holder.blocklisted_by, BlocklistEntry):
            continue
        pods = pods_of_dead_nbd(holder_verdict, context)
        advice = (
            stated(
                "Delete {pods}: the next stage uses another device.", pods=[pod.ref for pod in pods]
            )
            if pods
            else "Nothing uses it. The device is harmless, and a reboot removes it."
        )
        yield finding(
            Code.NBD_PROCESS_GONE,
            subject_of(holder),
            stated(
                "The rbd-nbd process of {holder} no longer exists: I/O on it hangs, then fails. {}",
                advice,
                holder=subject_of(holder),
            ),
            evidence=holder_verdict.reasons,
            pods=holder_verdict.pods,
            commands=tuple(delete_pod(pod) for pod in pods),
            severity=None if pods or observed_mounts(holder.mapping) else Severity.WARNING,
        )


def pods_of_dead_nbd(holder_verdict: HolderVerdict, context: RuleContext) -> tuple[Pod, ...]:
    """Return the running pods whose device it is: none if another device has replaced it."""
    holder = holder_verdict.holder
    in_place = (user.holder.node == holder.node for user in context.holders_with(Verdict.IN_USE))
    is_replaced = is_left_behind(holder_verdict) and any(in_place)
    return () if is_replaced else evidence_of(holder).running


RULES: Final = (
    Rule(70, blocklisted),
    Rule(80, dead_nbd),
)
