"""Kubernetes Events: what has changed, told once, where `kubectl describe` shows it.

On transitions only. One event has one name, made of its object, reason and message: the same thing
said again counts up instead of filling the API server, also after a restart of the agent.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rbdagent.correlate.identity import pods_of, volumes_of
from rbdagent.correlate.local import unbacked_on
from rbdagent.model import (
    Act,
    Diagnosis,
    Followed,
    JudgedHolder,
    NotObserved,
    ObjectRef,
    UnmapOutcome,
    Verdict,
    observed_of,
)
from rbdagent.observe.api import Api, StatusError
from rbdagent.observe.kubeconfig import credentials
from rbdagent.parse.shown import shown
from rbdagent.report.public import PublicText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.agent.loop import Seen
    from rbdagent.observe.kubeconfig import KubeAccess

Json = dict[str, Any]
_LONGEST: Final = 1024
"""The API server refuses longer messages (core/v1 Event validation)."""
_CONFLICT: Final = 409
_COMPONENT: Final = "rbdagent"
_AMISS: Final = frozenset(
    {
        Verdict.ORPHANED,
        Verdict.PINNED,
        Verdict.DEAD,
        Verdict.UNWATCHED,
        Verdict.RETURNED_DIRTY,
    }
)
CONFLICTING: Final = "RBD106"
_FOLLOWED: Final = frozenset({Followed.CLEARED, Followed.BLOCKED})
_NO_ACT: Final = frozenset({UnmapOutcome.REFUSED, None})


class Told(Struct, frozen=True, kw_only=True):
    """One thing to be told of one object."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    warns: bool

    @property
    def event_name(self) -> str:
        """What the event is called: the same for the same thing."""
        parts = (self.kind, self.namespace, self.name, self.uid, self.reason, self.message)
        return f"{self.name}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def transitions(before: Seen | None, now: Seen, node_name: str) -> tuple[Told, ...]:
    """Give what one look shows that the one before it did not, on the claim and on the node.

    Args:
        before: the look before; None: this is the first one, and all that is amiss is told.
        now: the look.
        node_name: of the agent's node.
    """
    known = _amiss(before, node_name) if before is not None else {}
    told: list[Told] = []
    for (device, verdict), (message, claim) in _amiss(now, node_name).items():
        if (device, verdict) not in known:
            told += _on(claim, node_name, f"RBD{verdict}", message, warns=True)
    before_that = {} if before is None else _not_backed(before, node_name)
    for mount, (message, claim) in _not_backed(now, node_name).items():
        if mount not in before_that:
            told += _on(claim, node_name, f"RBD{Verdict.NOT_BACKED}", message, warns=True)
    for act in _ended_since(before, now):
        claim = _claim_of(act, before, now)
        told += _on(claim, node_name, *_of_act(act), warns=_failed(act))
    for act in now.news:
        if act.outcome is UnmapOutcome.REFUSED or act.followed in _FOLLOWED:
            reason, message = _of_news(act, node_name)
            warns = act.followed is not Followed.CLEARED
            told += _on(_claim_of(act, before, now), node_name, reason, message, warns=warns)
    # A conflict over an image that is mapped twice here is one conflict.
    return tuple(dict.fromkeys(told))


def _ended_since(before: Seen | None, now: Seen) -> Iterator[Act]:
    """Iterate over the acts that have ended since the look before; without one nothing is news."""
    if before is None or isinstance(before.acts, NotObserved):
        return
    done = {act.key for act in before.acts if act.outcome}
    for act in observed_of(now.acts):
        if act.outcome not in _NO_ACT and act.key not in done:
            yield act


def _amiss(seen: Seen, node_name: str) -> dict[tuple[str, Verdict], tuple[str, ObjectRef | None]]:
    """Give what is wrong with each device, and with the image that it shows: words, and claim."""
    found, public = {}, PublicText(seen.snapshot)
    for device, (judged, diagnosis) in _held(seen):
        claim = _claim_in(diagnosis)
        if judged.verdict in _AMISS:
            # The first reasons are what it is; further ones tell times, which always differ.
            because = "; ".join(judged.because[:2])
            message = f"{device} on {node_name} is {judged.verdict}: {because}"
            found[device, judged.verdict] = public(message), claim
        for each in diagnosis.findings:
            if each.code == CONFLICTING:
                found[device, Verdict.CONFLICT] = public(each.message), claim
    return found


def _not_backed(
    seen: Seen, node_name: str
) -> dict[tuple[str, str, str], tuple[str, ObjectRef | None]]:
    """Return what containers write beside their volume: words, and claim, by pod, PV and path.

    The volume need not be mapped there: no diagnosis of a mapping shows it.
    """
    kube = seen.snapshot.kubernetes
    pods = {pod.ref.uid: str(pod.ref) for pod in pods_of(kube)}
    claims = {volume.name: volume.claim for volume in volumes_of(kube)}
    found = {}
    for mount in unbacked_on(seen.snapshot):
        volume, pod = mount.persistent_volume, pods.get(mount.pod_uid, mount.pod_uid)
        message = (
            f"Pod {pod} writes to {node_name}'s own disk: {mount.path} is not on {volume}. Do not "
            "delete the pod: that destroys what it wrote."
        )
        found[mount.pod_uid, volume, mount.path] = message, claims[volume]
    return found


def _held(seen: Seen) -> Iterator[tuple[str, tuple[JudgedHolder, Diagnosis]]]:
    for diagnosis in seen.diagnoses:
        for judged, mapping in diagnosis.mapped:
            yield mapping.device, (judged, diagnosis)


def _claim_in(diagnosis: Diagnosis) -> ObjectRef | None:
    """Give the volume's claim; where it was not looked up, as the PV names it."""
    if diagnosis.use.claim is not None:
        return diagnosis.use.claim.ref
    volume = diagnosis.use.persistent_volume
    return volume.claim if volume is not None else None


def _claim_of(act: Act, *looks: Seen | None) -> ObjectRef | None:
    """Give the claim of what was acted on, as its PV names it; the PV may be gone by now."""
    for seen in looks:
        for each in volumes_of(seen.snapshot.kubernetes) if seen is not None else ():
            if each.name == act.persistent_volume:
                return each.claim
    return None


def _of_act(act: Act) -> tuple[str, str]:
    reason = "RBDUnmapFailed" if _failed(act) else "RBDUnmapped"
    return reason, f"{act.message} (by {act.by}, begun {act.begun.at})"


def _of_news(act: Act, node_name: str) -> tuple[str, str]:
    device, because = act.identity.device, "; ".join(act.followed_because)
    if act.outcome is UnmapOutcome.REFUSED:
        return "RBDUnmapRefused", f"{device} on {node_name} is left mapped: {act.message}"
    what = act.persistent_volume or str(act.identity.spec)
    if act.followed is Followed.CLEARED:
        return "RBDCleared", f"{what} is cleared: {because} ({device} was unmapped by {act.by})"
    unmapped = f"{device} was unmapped on {node_name} by {act.by}"
    return "RBDStillBlocked", f"{what} is still blocked, because {because} ({unmapped})"


def _failed(act: Act) -> bool:
    return act.outcome not in {UnmapOutcome.UNMAPPED, UnmapOutcome.WATCH_LINGERS}


def _on(
    claim: ObjectRef | None, node_name: str, reason: str, message: str, *, warns: bool
) -> Iterator[Told]:
    told = shown(message)
    short = told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"
    if claim is not None and claim.uid:
        yield Told(
            kind="PersistentVolumeClaim",
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            reason=reason,
            message=short,
            warns=warns,
        )
    yield Told(
        kind="Node",
        namespace="",
        name=node_name,
        # As kubelet does it: kubectl describe node looks for this.
        uid=node_name,
        reason=reason,
        message=short,
        warns=warns,
    )


class Events:
    """Writes them for one node."""

    def __init__(self, access: KubeAccess, node_name: str) -> None:
        self._access = access
        self._node_name = node_name
        self._before: Seen | None = None

    def tell(self, now: Seen) -> None:
        """Write what has changed since the last look.

        Raises:
            SourceError: the API server did not take one, the others were written; what was not told
                is not told later.
        """
        told = transitions(self._before, now, self._node_name)
        self._before = now
        if not told:
            return
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        refused = None
        for each in told:
            try:
                self._write(api, each, now.snapshot.observed_at)
            except StatusError as error:
                # A namespace that is being deleted takes no Event; the Node's are elsewhere.
                refused = refused or error
        if refused is not None:
            raise refused

    def _write(self, api: Api, told: Told, at: str) -> None:
        # Events of what has no namespace live in default.
        path = f"/api/v1/namespaces/{told.namespace or 'default'}/events"
        try:
            api.create(path, event_object(told, self._node_name, at)).answer()
        except StatusError as error:
            if error.status != _CONFLICT:
                raise
            known = f"{path}/{told.event_name}"
            count = int(api.ask(known).answer().get("count") or 1) + 1
            api.patch(known, {"count": count, "lastTimestamp": at}).answer()


def event_object(told: Told, node_name: str, at: str) -> Json:
    """Give the object that is written: core/v1, as kubelet and the controllers write theirs."""
    versions = {"Node": {}, "PersistentVolumeClaim": {"apiVersion": "v1"}}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": told.event_name, "namespace": told.namespace or "default"},
        "involvedObject": {
            "kind": told.kind,
            "name": told.name,
            "uid": told.uid,
            **({"namespace": told.namespace} if told.namespace else {}),
            **versions[told.kind],
        },
        "reason": told.reason,
        "message": told.message,
        "type": "Warning" if told.warns else "Normal",
        "source": {"component": _COMPONENT, "host": node_name},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node_name,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
