"""Kubernetes Events: each change is reported once, on the object where `kubectl describe` shows it.

The agent writes Events only for transitions. The name of an Event is derived from its node, object,
reason and message. A repeated Event therefore increases the count of the existing one and does not
fill the API server. This is also true after a restart of the agent.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from rbdagent.agent.sent_event import SentEvent, event_message
from rbdagent.agent.waiting_events import WaitingEvents
from rbdagent.codes import Code
from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.commands import PROGRAM
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.node_usage import unbacked_on
from rbdagent.model import (
    Convergence,
    Diagnosis,
    HolderVerdict,
    NotObserved,
    ObjectRef,
    UnmapOutcome,
    UnmapRecord,
    Verdict,
    observed_of,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.report.public import public_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.collect.kube.kubeconfig import KubeAccess

Json = dict[str, Any]
_CONFLICT: Final = 409
_OVERLOADED: Final = range(500, 600)
"""The API server did not refuse the Event itself."""
_COMPONENT: Final = "rbdagent"
_SAME: Final = (
    "involvedObject", "reason", "message", "type", "source", "reportingComponent",
    "reportingInstance",
)  # fmt: skip
"""The fields by which an Event is the agent's own: it increases the count of no other one."""
_PROBLEMS: Final = frozenset(
    {
        Verdict.ORPHANED,
        Verdict.PINNED,
        Verdict.DEAD,
        Verdict.UNWATCHED,
        Verdict.RETURNED_DIRTY,
    }
)
CONFLICTING: Final = Code.VOLUME_CONFLICT
_FOLLOWED: Final = frozenset({Convergence.CLEARED, Convergence.BLOCKED})
_NO_ACT: Final = frozenset({UnmapOutcome.REFUSED, None})


def transitions(
    before: CycleResult | None, now: CycleResult, node_name: str
) -> tuple[SentEvent, ...]:
    """Return the Events for the changes in this cycle, on the claim and on the Node.

    Args:
        before: the previous cycle; None in the first cycle, which reports every problem.
        now: this cycle.
        node_name: the name of the agent's node.
    """
    known = _problems(before, node_name) if before is not None else {}
    events: list[SentEvent] = []
    for (device, verdict), (message, claim) in _problems(now, node_name).items():
        if (device, verdict) not in known:
            events += _on(claim, node_name, f"RBD{verdict}", message, warns=True)
    before_that = {} if before is None else _not_backed(before, node_name)
    for mount, (message, claim) in _not_backed(now, node_name).items():
        if mount not in before_that:
            events += _on(claim, node_name, f"RBD{Verdict.NOT_BACKED}", message, warns=True)
    for act in _ended_since(before, now):
        claim = _claim_of(act, before, now)
        events += _on(claim, node_name, *_of_act(act), warns=_failed(act))
    for act in now.news:
        if act.outcome is UnmapOutcome.REFUSED or act.convergence in _FOLLOWED:
            reason, message = _of_news(act, node_name)
            warns = act.convergence is not Convergence.CLEARED
            events += _on(_claim_of(act, before, now), node_name, reason, message, warns=warns)
    # Two mappings of one image on this node report the same conflict.
    return tuple(dict.fromkeys(events))


def _ended_since(before: CycleResult | None, now: CycleResult) -> Iterator[UnmapRecord]:
    """Yield the unmaps that have ended since the previous cycle; none in the first cycle."""
    if before is None or isinstance(before.acts, NotObserved):
        return
    done = {act.key for act in before.acts if act.outcome}
    for act in observed_of(now.acts):
        if act.outcome not in _NO_ACT and act.key not in done:
            yield act


def _problems(
    result: CycleResult, node_name: str
) -> dict[tuple[str, Verdict], tuple[str, ObjectRef | None]]:
    """Return message and claim for each problem of a device or its image.

    The key is the device and the verdict.
    """
    found = {}
    for device, (holder_verdict, diagnosis) in _held(result):
        claim = _claim_in(diagnosis)
        if holder_verdict.verdict in _PROBLEMS:
            # The first two reasons identify the problem. Further reasons contain times, which
            # change in each cycle, so each message would be a new Event.
            reasons = "; ".join(holder_verdict.reasons[:2])
            message = f"{device} on {node_name} is {holder_verdict.verdict}: {reasons}"
            found[device, holder_verdict.verdict] = public_text(message), claim
        for finding in diagnosis.findings:
            if finding.code == CONFLICTING:
                found[device, Verdict.CONFLICT] = public_text(finding.message), claim
    return found


def _not_backed(
    result: CycleResult, node_name: str
) -> dict[tuple[str, str, str], tuple[str, ObjectRef | None]]:
    """Return message and claim for each container that writes to the node's own disk.

    The key is the pod's UID, the PV and the path. The volume may not be mapped on this node. Then
    no diagnosis of a mapping shows the problem.
    """
    kube = result.snapshot.kubernetes
    pods = {pod.ref.uid: str(pod.ref) for pod in kube_index(kube).pods}
    claims = {volume.name: volume.claim for volume in kube_index(kube).volumes}
    found = {}
    for mount in unbacked_on(result.snapshot):
        volume, pod = mount.persistent_volume, pods.get(mount.pod_uid, mount.pod_uid)
        message = (
            f"Pod {pod} writes to {node_name}'s own disk: {foreign_name(mount.path)} is not on "
            f"{volume}. Do not delete the pod: that destroys what it wrote."
        )
        found[mount.pod_uid, volume, mount.path] = message, claims[volume]
    return found


def _held(result: CycleResult) -> Iterator[tuple[str, tuple[HolderVerdict, Diagnosis]]]:
    for diagnosis in result.diagnoses:
        for holder_verdict, mapping in diagnosis.mapped:
            yield mapping.device, (holder_verdict, diagnosis)


def _claim_in(diagnosis: Diagnosis) -> ObjectRef | None:
    """Return the volume's claim, or the claim that the PV names if none was requested."""
    if diagnosis.volume.claim is not None:
        return diagnosis.volume.claim.ref
    volume = diagnosis.volume.persistent_volume
    return volume.claim if volume is not None else None


def _claim_of(act: UnmapRecord, *cycles: CycleResult | None) -> ObjectRef | None:
    """Return the claim that the PV of an unmap names; None if no cycle has the PV."""
    for result in cycles:
        for volume in kube_index(result.snapshot.kubernetes).volumes if result is not None else ():
            if volume.name == act.persistent_volume:
                return volume.claim
    return None


def _of_act(act: UnmapRecord) -> tuple[str, str]:
    reason = "RBDUnmapFailed" if _failed(act) else "RBDUnmapped"
    return reason, f"{act.message} (by {act.by}, started {act.begun.at})"


def _of_news(act: UnmapRecord, node_name: str) -> tuple[str, str]:
    device, reasons = act.identity.device, "; ".join(act.convergence_reasons)
    if act.outcome is UnmapOutcome.REFUSED:
        return "RBDUnmapRefused", f"{device} on {node_name} is left mapped: {act.message}"
    what = act.persistent_volume or str(act.identity.spec)
    if act.convergence is Convergence.CLEARED:
        return "RBDCleared", f"{what} is cleared: {reasons} ({device} was unmapped by {act.by})"
    unmapped = f"{device} was unmapped on {node_name} by {act.by}"
    return "RBDStillBlocked", f"{what} is still blocked, because {reasons} ({unmapped})"


def _failed(act: UnmapRecord) -> bool:
    return act.outcome not in {UnmapOutcome.UNMAPPED, UnmapOutcome.WATCH_LINGERS}


def _on(
    claim: ObjectRef | None, node_name: str, reason: str, message: str, *, warns: bool
) -> Iterator[SentEvent]:
    short = event_message(message)
    if claim is not None and claim.uid:
        yield SentEvent(
            kind="PersistentVolumeClaim",
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            reason=reason,
            message=short,
            warns=warns,
        )
    yield SentEvent(
        kind="Node",
        namespace="",
        name=node_name,
        # As in kubelet: kubectl describe node searches for Events with the node's name as the UID.
        uid=node_name,
        reason=reason,
        message=short,
        warns=warns,
    )


class Events:
    """Writes the Events of one node."""

    def __init__(
        self, access: KubeAccess, node_name: str, program: Sequence[str] = PROGRAM
    ) -> None:
        """Prepare the writer.

        Args:
            access: of the API server.
            node_name: the name of the agent's node.
            program: the words that start rbdagent in the place of the reader.
        """
        self._access = access
        self._node_name = node_name
        self._before: CycleResult | None = None
        self._waiting = WaitingEvents(program)

    def tell(self, now: CycleResult) -> None:
        """Write the Events for the changes since the previous cycle, and those on waiting pods.

        Raises:
            SourceError: the API server refused an Event. The others were written. An Event about a
                change is not written later; one on a waiting pod is, if the server was overloaded.
        """
        changes = transitions(self._before, now, self._node_name)
        waiting = self._waiting.due(now)
        self._before = now
        if not changes and not waiting:
            return
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        refused = None
        for event in (*changes, *waiting):
            try:
                self._write(api, event, now.snapshot.observed_at)
            except StatusError as error:
                # A namespace that is being deleted accepts no Event. The Events of the Node are in
                # another namespace.
                refused = refused or error
                if error.status in _OVERLOADED:
                    continue
            if event in waiting:
                self._waiting.answered(event, now)
        if refused is not None:
            raise refused

    def _write(self, api: Api, event: SentEvent, at: str) -> None:
        # Events about objects without a namespace are in the namespace "default".
        path = f"/api/v1/namespaces/{segment(event.namespace or 'default')}/events"
        body = event_object(event, self._node_name, at)
        try:
            api.create(path, body).answer()
        except StatusError as error:
            if error.status != _CONFLICT:
                raise
            name = body["metadata"]["name"]
            known = api.ask(f"{path}/{segment(name)}").answer()
            if all(known.get(key) == body[key] for key in _SAME):
                count = int(known.get("count") or 1) + 1
                api.patch(f"{path}/{segment(name)}", {"count": count, "lastTimestamp": at}).answer()
                return
            # The name can be computed: another client has written another Event with it.
            body["metadata"]["name"] = f"{name}.{secrets.token_hex(4)}"
            api.create(path, body).answer()


def event_object(reported: SentEvent, node_name: str, at: str) -> Json:
    """Return the Event as JSON: core/v1, as kubelet and the controllers write Events."""
    # kubelet's Events about a Node have no apiVersion either.
    version = {} if reported.kind == "Node" else {"apiVersion": "v1"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": reported.event_name(node_name),
            "namespace": reported.namespace or "default",
        },
        "involvedObject": {
            "kind": reported.kind,
            "name": reported.name,
            "uid": reported.uid,
            **({"namespace": reported.namespace} if reported.namespace else {}),
            **version,
        },
        "reason": reported.reason,
        "message": reported.message,
        "type": "Warning" if reported.warns else "Normal",
        "source": {"component": _COMPONENT, "host": node_name},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node_name,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
