"""Pods that wait for a volume, for how long, and what was said to them last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rbdagent.correlate.holders import is_finished, waits_for_volumes
from rbdagent.correlate.names import covers_claims, names_of_use
from rbdagent.diagnose.case import Case, quoted
from rbdagent.diagnose.target import volumes_of_use
from rbdagent.diagnose.times import MOVING, age, spoken
from rbdagent.model import KubeEvent, NotObserved, ObjectRef, Pod, Snapshot

if TYPE_CHECKING:
    from datetime import timedelta

T = TypeVar("T")

_COMBINED: Final = "(combined from similar events): "
_OF_VOLUMES: Final = frozenset(
    {
        "FailedAttachVolume",
        "FailedBinding",
        "FailedMapVolume",
        "FailedMount",
        "FileSystemResizeFailed",
        "VolumePermissionChangeInProgress",
        "VolumeResizeFailed",
    }
)
"""Reasons of a pod's events that speak of its volumes."""
_AFTER_MOUNT: Final = frozenset(
    {
        "BackOff",
        "Created",
        "Failed",
        "FailedCreatePodSandBox",
        "Pulled",
        "Pulling",
        "SandboxChanged",
        "Started",
    }
)
"""Reasons of what kubelet does once a pod's volumes are mounted: SyncPod waits for all of them
(WaitForAttachAndMount) before it makes the sandbox, pulls images, or restarts a container
(pkg/kubelet/kubelet.go, kuberuntime/kuberuntime_manager.go, events/event.go)."""
_BEFORE_MOUNT: Final = "error making pod data directories"
"""The one `Failed` that SyncPod says before it waits (FailedToMakePodDataDirectories)."""
_FOR_VOLUME: Final = re.compile(r'[^:]* for volume "(?P<name>[^"]+)"')
"""How an error of one volume begins (GenerateError); later on pods' own names are called so."""


class Word(NamedTuple):
    """The newest thing that was said to a waiting pod about this volume."""

    pod: Pod | None
    """None where pods were not observed."""
    event: KubeEvent

    @property
    def text(self) -> str:
        """What was said; kubelet puts many alike into one event."""
        return self.event.message.removeprefix(_COMBINED)

    @property
    def node(self) -> str | None:
        """Where the pod waits."""
        return self.pod.node_name if self.pod is not None else None


def waiters(case: Case) -> tuple[Pod, ...]:
    """Give the pods that have a node, and none of their containers for want of volumes."""
    return tuple(
        each
        for each in case.use.waiting_pods
        if each.node_name is not None and waits_for_volumes(each)
    )


def has_waited(pod: Pod, snapshot: Snapshot, least: timedelta) -> bool:
    """Tell whether a pod has had its node so long; of unknown age it may be young."""
    since = waited(pod, snapshot)
    return since is not None and since >= least


def waited(pod: Pod, snapshot: Snapshot) -> timedelta | None:
    """Give how long a pod has had its node or, where nobody noted that, how old it is."""
    return age(pod.placed_at or pod.created_at, snapshot.observed_at)


def is_ending_in_time(pod: Pod, case: Case) -> bool:
    """Tell whether a pod is ending, and not late: its mark is the request and its grace period."""
    over = age(pod.deleting_since, case.snapshot.observed_at)
    return over is not None and over < MOVING


def knows_every_user(case: Case) -> bool:
    """Tell whether a pod that uses the volume and was not seen is a pod that there is not."""
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        return False
    return covers_claims(kube, names_of_use(case.use))


def users_on(node: str, case: Case) -> tuple[Pod, ...]:
    """Give the pods on a node that use the volume and have not finished."""
    return tuple(each for each in case.use.pods if each.node_name == node and not is_finished(each))


def words(case: Case) -> tuple[Word, ...]:
    """Give the newest word to each pod that still waits: an older one explains nothing.

    Nor does one that came before kubelet went on to what it does with mounted volumes.

    Where pods were not observed, each pod that an event regards may still wait.
    """
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.pods, NotObserved):
        newest: dict[ObjectRef, KubeEvent] = {}
        for event in case.use.events:
            _hear(event, event.subject, newest, case)
        return tuple(Word(None, event) for event in newest.values())
    waiting = {
        (each.ref.namespace, each.ref.name): each
        for each in case.use.waiting_pods
        if waits_for_volumes(each)
    }
    last: dict[Pod, KubeEvent] = {}
    for event in case.use.events if waiting else ():
        pod = waiting.get((event.subject.namespace, event.subject.name))
        if pod is not None and _is_to(pod, event):
            _hear(event, pod, last, case)
    return tuple(Word(pod, event) for pod, event in last.items())


def _hear(event: KubeEvent, of: T, last: dict[T, KubeEvent], case: Case) -> None:
    """Keep the newest word to a pod, until its volumes are mounted; events come oldest first."""
    if _is_about(event, case):
        last[of] = event
    elif of in last and _is_mounted_by(event) and _is_newer(event, last[of]):
        del last[of]


def _is_mounted_by(event: KubeEvent) -> bool:
    """Tell whether kubelet says what it says only of a pod whose volumes it has mounted."""
    if event.kind != "Pod" or event.reporter != "kubelet" or event.reason not in _AFTER_MOUNT:
        return False
    return not event.message.startswith(_BEFORE_MOUNT)


def _is_newer(event: KubeEvent, word: KubeEvent) -> bool:
    """Tell whether it was said later: within one second nobody knows which came first."""
    if event.last_seen is None or word.last_seen is None:
        return False
    return event.last_seen > word.last_seen


def word_with(case: Case, *texts: str) -> Word | None:
    """Give the newest of these words that has one of the texts."""
    found = [each for each in words(case) if any(text in each.text for text in texts)]
    return max(found, key=lambda each: each.event.last_seen or "", default=None)


def _is_to(pod: Pod, event: KubeEvent) -> bool:
    """Tell this pod from the one before it: a StatefulSet's next pod bears the same name."""
    if event.subject.uid is not None and pod.ref.uid is not None:
        return event.subject.uid == pod.ref.uid
    return (event.last_seen or "9") >= (pod.created_at or "")


def _is_about(event: KubeEvent, case: Case) -> bool:
    """Tell whether an event speaks of a volume, and not of another one of the pod."""
    if event.kind != "Pod" or event.reason not in _OF_VOLUMES:
        return False
    named = _FOR_VOLUME.match(event.message.removeprefix(_COMBINED))
    volumes = {each.name for each in volumes_of_use(case.use)}
    return named is None or not volumes or named["name"] in volumes


def evidence_of_word(word: Word, case: Case) -> tuple[str, ...]:
    """Quote it, and say how old it is: nobody takes back what is no longer so."""
    since = age(word.event.last_seen, case.snapshot.observed_at)
    times = f"{word.event.count} times, last " if word.event.count > 1 else ""
    return quoted(word.event), f"said {times}{spoken(since)} ago"
