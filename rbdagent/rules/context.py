"""The input of a rule, and the parts from which rules build findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, over_ssh
from rbdagent.correlate.index import KubeIndex, kube_index
from rbdagent.model import (
    WEIGHT,
    CollectScope,
    Command,
    Finding,
    Holder,
    HolderVerdict,
    KubeEvent,
    Node,
    NotObserved,
    Pod,
    PublishedFinding,
    Recovery,
    Sentence,
    Severity,
    Snapshot,
    Statement,
    Subject,
    TargetKind,
    Verdict,
    Volume,
    VolumeAttachment,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.recognised import Recognised
from rbdagent.verdicts.holder_verdict import pods_in_report
from rbdagent.verdicts.volume_verdict import fresh_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rbdagent.rules.entry import Entry


class Rule(NamedTuple):
    """A rule: a function from a context to findings, its rank, and what it reads."""

    rank: int
    """Of two findings of one severity, that of the lower rank comes first."""
    judge: Callable[[RuleContext], Iterator[Finding]]
    reads: CollectScope = CollectScope.NOTHING
    """The objects and logs that the function reads beside the volume, its holders and the objects
    that lead to these: a verb requests what its rules read."""


class RuleContext(Struct, frozen=True, kw_only=True, dict=True):
    """Holds one target with its verdicts: the input of every rule."""

    volume: Volume
    snapshot: Snapshot
    holder_verdicts: tuple[HolderVerdict, ...]
    verdict: Verdict

    @property
    def kube(self) -> KubeIndex:
        """The objects of Kubernetes by their names."""
        return kube_index(self.snapshot.kubernetes)

    @property
    def name(self) -> str:
        """The name of the volume in findings."""
        if self.volume.persistent_volume is not None:
            return self.volume.persistent_volume.name
        if self.volume.image is not None:
            return str(self.volume.image.spec)
        return self.volume.target.argument

    @property
    def ask(self) -> str:
        """The TARGET for a command on another node: a device name is valid only on this node."""
        if self.volume.persistent_volume is not None:
            return f"pv/{self.volume.persistent_volume.name}"
        if self.volume.image is not None and self.volume.image.spec.pool:
            return str(self.volume.image.spec)
        return self.volume.target.argument

    @property
    def here(self) -> str:
        """The node that was observed."""
        return self.here_if_known or "this node"

    @property
    def here_if_known(self) -> str | None:
        """The node that was observed, for commands; None if no node was observed."""
        return self.snapshot.node.node_name if self.snapshot.node is not None else None

    def holders_with(self, *verdicts: Verdict) -> tuple[HolderVerdict, ...]:
        """Return the holders with one of these verdicts."""
        return tuple(
            holder_verdict
            for holder_verdict in self.holder_verdicts
            if holder_verdict.verdict in verdicts
        )

    def observed_with(self, *verdicts: Verdict) -> tuple[HolderVerdict, ...]:
        """Return the holders with one of these verdicts whose finding no agent reports."""
        return tuple(
            holder_verdict
            for holder_verdict in self.holders_with(*verdicts)
            if reported_finding(holder_verdict.holder, self.snapshot) is None
            or holder_verdict.reported is None
        )


def entries() -> Mapping[str, Entry]:
    """Return the entry of each code of a finding: the families import this module."""
    from rbdagent.rules import FINDINGS

    return FINDINGS


def reported_finding(holder: Holder, snapshot: Snapshot) -> PublishedFinding | None:
    """Return the finding that the agent of another node reports for its verdict, if it is fresh."""
    found = _reported(holder, snapshot)
    known = None if found is None else entries().get(found.code)
    # RBD118 is of a volume that no client holds, never of a mapping.
    if found is None or known is None or known.code == Code.NO_HOLDER:
        return None
    return replace(found, message=found.message or known.summary)


def unknown_finding(holder: Holder, snapshot: Snapshot) -> PublishedFinding | None:
    """Return the finding of another node's agent if this version of rbdagent does not know it."""
    found = _reported(holder, snapshot)
    return None if found is None or found.code in entries() else found


def _reported(holder: Holder, snapshot: Snapshot) -> PublishedFinding | None:
    mapping = fresh_report(holder, snapshot)
    return mapping.finding if mapping is not None and holder.mapping is None else None


def at_least(least: Severity, reported: str) -> Severity:
    """Return the severity that another node's agent reports, or the least one that counts here."""
    known = [severity for severity in Severity if severity == reported]
    return min([least, *known], key=WEIGHT.__getitem__)


def finding(  # noqa: PLR0913 - the fields of a finding
    code: Code,
    subject: Subject,
    statement: Statement,
    *,
    waiting: tuple[Pod, ...] = (),
    fact: str = "",
    evidence: tuple[str, ...] = (),
    pods: tuple[str, ...] = (),
    remedy: Sentence = "",
    commands: tuple[Command, ...] = (),
    severity: Severity | None = None,
    recovery: Recovery | None = None,
) -> Finding:
    """Return a finding; arguments that are not given are taken from the catalogue."""
    known = entries()[code]
    return Finding(
        code=code,
        severity=severity or known.severity,
        subject=subject,
        statement=statement,
        waiting=waiting,
        fact=fact,
        evidence=tuple(dict.fromkeys(evidence)),
        pods=pods,
        remedy=remedy or known.remedy,
        commands=tuple(dict.fromkeys(commands)),
        recovery=recovery or known.recovery,
    )


def pods_of(holder_verdicts: Iterable[HolderVerdict]) -> tuple[str, ...]:
    """Return the pods that the first reasons of verdicts name; that of a report names none."""
    return tuple(
        dict.fromkeys(name for one in holder_verdicts if one.reported is None for name in one.pods)
    )


def message_of(event: KubeEvent) -> str:
    """Return the message of an event, without the prefix of client-go for similar events."""
    return Recognised.COMBINED.left_out_of(event.message)


def quoted(event: KubeEvent) -> str:
    """Return an event with its message as it was reported."""
    # The name of an object without a namespace starts with a slash.
    about = str(event.subject).lstrip("/")
    return f"{event.kind} {about}, {foreign_name(event.reason)}: {foreign(event.message)}"


def subject_of(holder: Holder) -> Subject:
    """Return a holder as a subject: the device and its node, else the client, else the node."""
    if holder.mapping is not None:
        return Subject.of_device(holder.mapping.device, holder.node)
    if holder.watcher is not None:
        client = f"client.{holder.watcher.client} at {holder.watcher.address}"
        return Subject.of_client(client, holder.node, is_probable=holder.is_node_probable)
    if holder.published is not None:
        return Subject.of_device(holder.published.device, holder.node)
    return Subject.of_node(holder.node)


def client_name(holder: Holder) -> str:
    """Return the client of a watch, without a node: ``client.4239 at 10.77.0.12:0/77``."""
    return subject_of(holder).name


def probably(holder: Holder) -> Statement:
    """Return where a client probably is, and why, as a phrase behind ``is`` or ``held``."""
    return stated(
        "probably on {node}, because {reason}", node=holder.node, reason=holder.probable_by
    )


def identity_lines(context: RuleContext, holder: Holder) -> tuple[str, ...]:
    """Return the lines that prove that this device and this client belong to this image."""
    lines = []
    image = holder.other_image or context.volume.image
    if image is not None:
        fsid = f" in cluster {image.fsid}" if image.fsid else ""
        number = f", id {image.image_id}" if holder.other_image is not None else ""
        lines.append(f"image {image.spec}{fsid}{number}")
    mapping, watcher = holder.mapping, holder.watcher
    if mapping is not None and mapping.client_id is not None:
        both = "mapped and watched" if watcher is not None else "mapped"
        lines.append(f"{both} by client.{mapping.client_id} {mapping.client_address}")
    elif watcher is not None:
        lines.append(f"watched by client.{watcher.client} {watcher.address}")
    elif holder.published is not None and holder.published.client_id is not None:
        reported = holder.published
        lines.append(f"reported as mapped by client.{reported.client_id} {reported.client_address}")
    if isinstance(holder.attachment, VolumeAttachment):
        state = "attached" if holder.attachment.attached else "not attached"
        leaving = ", being deleted" if holder.attachment.deleting_since else ""
        lines.append(f"VolumeAttachment {holder.attachment.name}: {holder.node}, {state}{leaving}")
    if holder.in_volumes_in_use is True:
        lines.append(f"{holder.node} lists the volume in volumesInUse{as_of(holder.node_object)}")
    return tuple(lines)


def as_of(node: Node | NotObserved | None) -> str:
    """Return when a kubelet that is not Ready last reported, as the end of a sentence."""
    if not isinstance(node, Node) or node.ready is True:
        return ""
    return f", as of its last report at {node.reported_at or 'an unknown time'}"


CONTROLLER: Final = "the attach/detach controller"
ATTACHER: Final = "external-attacher"
SCHEDULER: Final = "the scheduler"
LIST_CONTROLLERS: Final = kubectl("get deployments -A -o wide")
"""``-o wide`` shows their containers: csi-provisioner and csi-attacher, whatever the name of the
Deployment."""


def query_on_node(context: RuleContext, node: str) -> Command:
    """Return the command that queries the target on the holder's own node."""
    return over_ssh(node, command("rbdagent who-holds", context.ask))


def query_again(context: RuleContext) -> Command:
    """Return the command that queries the target again on this node."""
    if context.volume.target.kind is TargetKind.DEVICE:
        return command(
            "rbdagent who-holds", context.volume.target.argument, node=context.here_if_known
        )
    return command("rbdagent who-holds", context.ask)


def check_here(context: RuleContext) -> Command:
    """Return the command that shows what rbdagent cannot observe on this node, and why."""
    return command("rbdagent check", node=context.here_if_known)


def device_log(device: str, node: str | None) -> Command:
    """Return the command that shows the kernel's newest lines about a device."""
    return command(
        "journalctl --dmesg --no-pager --lines=10", options=(f"--grep={device}",), node=node
    )


def delete_pod(pod: Pod) -> Command:
    """Return the command that deletes a pod gracefully."""
    return kubectl("delete pod", pod.ref.name, namespace=pod.ref.namespace)


def cordon(holder: Holder) -> tuple[Command, ...]:
    """Return the command that keeps new pods off a holder's node; none if it is on no node."""
    return () if holder.node is None else (kubectl("cordon", holder.node),)


def show_sandbox(pod_uid: str, holder: Holder) -> Command:
    """Return the command that shows the containers of a pod on a holder's node, by its uid."""
    return command("crictl pods --label", f"io.kubernetes.pod.uid={pod_uid}", node=holder.node)


def list_pods_on(node: str) -> Command:
    """Return the command that lists the pods of a node."""
    return kubectl("get pods -A -o wide --field-selector", f"spec.nodeName={node}")


def pod_by_uid(uid: str | None, context: RuleContext) -> Pod | None:
    """Return the pod with that uid; None without it."""
    return context.kube.pod_by_uid.get(uid or "")


def agent_findings(
    code: Code, message: str, subject: Callable[[Holder], Subject], context: RuleContext
) -> Iterator[Finding]:
    """Yield a code that the agents of other nodes report: only their reports show it.

    Args:
        code: the code in the reports.
        message: what it means, with the same first sentence as on that node; may contain
            ``{device}``, ``{node}`` and ``{volume}``.
        subject: returns the subject for a holder, which has a node.
        context: the target.
    """
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        mapping = fresh_report(holder, context.snapshot)
        if mapping is None or holder.mapping is not None or holder.node is None:
            continue
        lead = reported_finding(holder, context.snapshot)
        if code in mapping.findings and (lead is None or lead.code != code):
            yield finding(
                code,
                subject(holder),
                stated(message, device=mapping.device, node=holder.node, volume=context.name),
                waiting=waiting_elsewhere(context, holder.node),
                evidence=(
                    f"reported by the agent on {holder.node}",
                    *mapping.reasons,
                    *identity_lines(context, holder),
                ),
                pods=pods_in_report(holder, mapping),
                commands=(query_on_node(context, holder.node),),
            )


def waiting_elsewhere(context: RuleContext, node: str | None) -> tuple[Pod, ...]:
    """Return the pods that wait for the volume on other nodes."""
    return tuple(pod for pod in context.volume.waiting_pods if pod.node_name != node)
