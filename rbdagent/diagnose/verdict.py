"""The verdict on one holder: a ladder, from what endangers data down to what is free to go.

The first step that speaks decides. `Orphaned` stands last: it is said only when every step above
it looked, saw and had nothing to say. A fact that was not observed stops the ladder before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec import Struct

from rbdagent.correlate.blocklist import entry_text
from rbdagent.correlate.holders import is_finished
from rbdagent.correlate.local import pod_uid_of_path
from rbdagent.correlate.reports import is_nbd
from rbdagent.diagnose.evidence import (
    Evidence,
    evidence_of,
    lost_processes,
    own_processes,
    pins,
    pod_names,
    said_of_mount,
    said_of_process,
    unsorted_processes,
)
from rbdagent.diagnose.target import ORDER, fresh_word, maps_by_nbd, report_of
from rbdagent.diagnose.times import GRACE, age, is_young, spoken
from rbdagent.model import (
    Attachment,
    BlocklistEntry,
    DeviceKind,
    EntityAddress,
    Holder,
    HolderKind,
    ImagePresence,
    ImageView,
    JudgedHolder,
    KubeView,
    Node,
    NotObserved,
    Pod,
    PodVolumeDirectory,
    ProcessRef,
    PublishedMapping,
    Snapshot,
    Verdict,
    VolumeUse,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta


class Bench(Struct, frozen=True, kw_only=True):
    """What a step of the ladder has before it."""

    holder: Holder
    found: Evidence
    use: VolumeUse
    snapshot: Snapshot
    grace: timedelta

    @property
    def now(self) -> str:
        """The time of the look."""
        return self.snapshot.observed_at

    @property
    def report(self) -> str:
        """What the agent of the holder's node reported, and when."""
        return report_of(self.holder, self.now)


class Word(Struct, frozen=True, kw_only=True):
    """What a step said."""

    verdict: Verdict
    because: tuple[str, ...]


def judge(
    holder: Holder, use: VolumeUse, snapshot: Snapshot, grace: timedelta = GRACE
) -> JudgedHolder:
    """Give the verdict on a holder, with its evidence."""
    bench = Bench(holder=holder, found=evidence_of(holder), use=use, snapshot=snapshot, grace=grace)
    ladder = LOCAL if holder.mapping is not None else REMOTE
    word = next(word for step in ladder if (word := step(bench)) is not None)
    return JudgedHolder(
        holder=holder, verdict=word.verdict, because=word.because, since=snapshot.observed_at
    )


# --------------------------------------------------------------------------------------------------
# Mappings of the node that looked
# --------------------------------------------------------------------------------------------------


def unknown_image(bench: Bench) -> Word | None:
    """A device whose image nobody could read may be anybody's."""
    mapping = bench.holder.mapping
    if mapping is None or not isinstance(mapping.spec, NotObserved):
        return None
    if bench.use.image is not None and mapping.nbd is not None:
        return None
    return Word(
        verdict=Verdict.UNDETERMINED,
        because=(f"which image {mapping.device} is was not observed: {mapping.spec.reason}",),
    )


def dead_nbd(bench: Bench) -> Word | None:
    """An nbd device without its process: sysfs keeps pid and backend for ever."""
    mapping = bench.holder.mapping
    if mapping is None or mapping.nbd is None or mapping.nbd.process is not None:
        return None
    recorded = mapping.nbd.recorded_pid
    noted = f" (sysfs still notes pid {recorded}, which proves nothing)" if recorded else ""
    return Word(
        verdict=Verdict.DEAD,
        because=(f"no rbd-nbd process serves {mapping.device} any more{noted}",),
    )


def blocklisted(bench: Bench) -> Word | None:
    """A blocklisted client keeps its mappings and mounts; every write fails with -108."""
    entry = bench.holder.blocklisted_by
    if not isinstance(entry, BlocklistEntry):
        return None
    return Word(
        verdict=Verdict.DEAD,
        because=(f"its client is on the blocklist: {entry_text(entry)}",),
    )


def watch_seen(holder: Holder, view: ImageView | None) -> bool | NotObserved | None:
    """Tell whether the mapping has its watch on the header; None where it takes none.

    Read-only and snapshot mappings take none (kernel 5.5), nor is there a header to watch when the
    image is gone. rbd-nbd's client is not in sysfs: its watch is never missed.
    """
    mapping = holder.mapping
    if mapping is None or mapping.kind is not DeviceKind.KRBD:
        return None
    if mapping.snapshot is not None or mapping.read_only is True:
        return None
    if holder.watcher is not None:
        return True
    if view is not None and view.presence is ImagePresence.GONE:
        return None
    facts = (view.presence, view.watchers) if view is not None else (_NO_VIEW,)
    facts = (*facts, mapping.read_only, mapping.client_address or _NO_ADDRESS)
    unseen = [each for each in facts if isinstance(each, NotObserved)]
    return unseen[0] if unseen else False


_NO_VIEW: Final = NotObserved(reason="the watchers of its image were not observed")
_NO_ADDRESS: Final = NotObserved(reason="the address of its client was not observed")


def unwatched(bench: Bench) -> Word | None:
    """Live, writable, and invisible to Ceph: its watch is gone and does not come back.

    Recorded after a blocklist entry was lifted: I/O came back, the watch did not.
    """
    holder, mapping = bench.holder, bench.holder.mapping
    seen = watch_seen(holder, bench.use.image_view)
    if mapping is None or mapping.kind is not DeviceKind.KRBD or seen is None or seen is True:
        return None
    if isinstance(mapping.read_only, NotObserved):
        return None
    if mapping.watch is False:
        return Word(verdict=Verdict.UNWATCHED, because=_without_watch(bench, "the kernel lists no"))
    moving = bench.found.bringing_up or bench.found.tearing_down
    if seen is not False or mapping.watch is True or moving:
        # The node and Ceph are looked at one after the other: what comes or goes between the two
        # looks is not without its watch.
        return None
    if isinstance(holder.blocklisted_by, NotObserved):
        reason = holder.blocklisted_by.reason
        return Word(
            verdict=Verdict.UNDETERMINED,
            because=(
                f"{mapping.device} is mapped read-write, and Ceph lists no watch of its client",
                f"whether that client is blocklisted was not observed: {reason}",
            ),
        )
    return Word(verdict=Verdict.UNWATCHED, because=_without_watch(bench, "Ceph lists no"))


def _without_watch(bench: Bench, who: str) -> tuple[str, ...]:
    mapping = bench.holder.mapping
    assert mapping is not None  # noqa: S101 - the caller looked
    client = f"client.{mapping.client_id} {mapping.client_address}"
    said = [f"{mapping.device} is mapped read-write, and {who} watch of {client} on its header"]
    if isinstance(bench.holder.blocklisted_by, NotObserved):
        said.append("whether the client is blocklisted was not observed: if so, it is Dead instead")
    else:
        said.append("the client is not blocklisted (any more): it can write")
    return tuple(said)


def returned_dirty(bench: Bench) -> Word | None:
    """The node was taken for lost, is alive, and still holds what was taken from it."""
    holder = bench.holder
    node = holder.node_object
    if not isinstance(node, Node) or not node.out_of_service:
        return None
    if isinstance(holder.pods, NotObserved) or bench.found.running:
        return None
    if isinstance(holder.attachment, NotObserved | Attachment):
        return None
    said = [
        f"node {node.name} carries the out-of-service taint, so its volumes were detached by force",
        "it still has this image mapped",
    ]
    boot_id = bench.snapshot.node.boot_id if bench.snapshot.node is not None else None
    if boot_id and node.boot_id == boot_id:
        said.append("it has not rebooted since kubelet last reported")
    return Word(verdict=Verdict.RETURNED_DIRTY, because=tuple(said))


def in_use(bench: Bench) -> Word | None:
    """A pod runs on it, or a container or a pod's path shows it; in doubt so, too."""
    holder, found = bench.holder, bench.found
    if found.running:
        return Word(
            verdict=Verdict.IN_USE,
            because=(f"used by {_pods(found.running)} on {holder.node}",),
        )
    groups: tuple[tuple[str, tuple[ProcessRef, ...]], ...] = (
        ("a container of its pod still runs on it", own_processes(found, holder)),
        ("a container runs on it whose pod the API does not know", lost_processes(found, holder)),
        (
            "a container runs on it, and nobody could tell whether its pod uses the volume",
            unsorted_processes(found, holder, bench.snapshot),
        ),
    )
    for reason, processes in groups:
        if processes:
            said = tuple(said_of_process(each) for each in processes)
            return Word(verdict=Verdict.IN_USE, because=(reason, *said))
    return _in_use_by_path(bench) or _in_use_by_directory(bench)


def _in_use_by_path(bench: Bench) -> Word | None:
    """Mounted at a pod's path: in use, unless the API or a dead plugin explains it."""
    holder, found = bench.holder, bench.found
    pods = () if isinstance(holder.pods, NotObserved) else holder.pods
    explained = {each.ref.uid for each in pods}
    unexplained = [each for each in found.pod_mounts if pod_uid_of_path(each.path) not in explained]
    driver_is_down = holder.driver_registered is False and not isinstance(holder.pods, NotObserved)
    if not unexplained or driver_is_down:
        return None
    return Word(
        verdict=Verdict.IN_USE,
        because=tuple(f"{said_of_mount(each)}, where a pod would see it" for each in unexplained),
    )


def _in_use_by_directory(bench: Bench) -> Word | None:
    """A living pod's directory of the volume counts as use, whatever claim the API says it has."""
    kube = bench.snapshot.kubernetes
    pods = () if kube is None or isinstance(kube.pods, NotObserved) else kube.pods
    seen = bench.holder.pods
    known = set() if isinstance(seen, NotObserved) else {each.ref.uid for each in seen}
    living = {each.ref.uid: each for each in pods if not is_finished(each)}
    said = tuple(
        f"pod {living[each.pod_uid].ref} has a directory of it: {each.path}"
        for each in _pod_directories(bench.holder)
        if each.pod_uid in living and each.pod_uid not in known
    )
    return Word(verdict=Verdict.IN_USE, because=said) if said else None


def _pods(pods: tuple[Pod, ...]) -> str:
    return f"{'pod' if len(pods) == 1 else 'pods'} {pod_names(pods)}"


def between_steps(bench: Bench) -> Word | None:
    """Kubelet or the driver has begun something, or is kept from ending it, and will go on."""
    found, node = bench.found, bench.holder.node
    if found.waiting:
        return Word(
            verdict=Verdict.STAGED,
            because=(f"{_pods(found.waiting)} is scheduled to {node} and does not run yet",),
        )
    if found.ending:
        return Word(
            verdict=Verdict.STAGED,
            because=(
                f"{_pods(found.ending)} on {node} has finished and is being deleted",
                *_plugin(bench),
            ),
        )
    if _plugin(bench):
        return Word(verdict=Verdict.STAGED, because=_plugin(bench))
    if found.bringing_up:
        return Word(
            verdict=Verdict.STAGED,
            because=tuple(
                f"{said_of_process(each.process)} is at work on it" for each in found.bringing_up
            ),
        )
    if found.pod_mounts:
        said = tuple(said_of_mount(each) for each in found.pod_mounts)
        return Word(verdict=Verdict.STAGED, because=("its pod has finished", *said))
    return None


def _plugin(bench: Bench) -> tuple[str, ...]:
    """Say that the driver is down, where that keeps kubelet from tearing the volume down."""
    holder, found = bench.holder, bench.found
    if holder.driver_registered is not False:
        return ()
    if not (found.staging_mounts or found.pod_mounts or isinstance(holder.attachment, Attachment)):
        return ()
    return (f"the CSI driver does not answer on {holder.node}: kubelet cannot unmount it",)


def administrators(bench: Bench) -> Word | None:
    """Nothing says that Kubernetes made it: an administrator's own map is never touched."""
    holder = bench.holder
    if holder.kubernetes_made or isinstance(holder.pods, NotObserved):
        return None
    return Word(
        verdict=Verdict.FOREIGN,
        because=(
            (
                "no PersistentVolume, staging directory, image metadata or name says that "
                "Kubernetes made it: somebody mapped it by hand"
            ),
            *pins(bench.found, holder),
        ),
    )


def pinned(bench: Bench) -> Word | None:
    """Kubernetes has let go, something else has not."""
    holder = bench.holder
    kept = pins(bench.found, holder)
    if not kept:
        return None
    if isinstance(holder.pods, NotObserved):
        return Word(
            verdict=Verdict.UNDETERMINED,
            because=(*kept, f"whether a pod uses it was not observed: {holder.pods.reason}"),
        )
    return Word(verdict=Verdict.PINNED, because=kept)


def finishing(bench: Bench) -> Word | None:
    """Somebody is taking it down at this moment, or a request hangs."""
    found = bench.found
    if found.tearing_down:
        said = tuple(
            f"{said_of_process(each.process)} is taking it down" for each in found.tearing_down
        )
        return Word(verdict=Verdict.STAGED, because=said)
    if found.hung:
        return Word(
            verdict=Verdict.STAGED,
            because=(f"requests to Ceph hang: {', '.join(found.hung[:3])}",),
        )
    return None


def not_observed(bench: Bench) -> Word | None:
    """Stop where a fact is missing that `Orphaned` would rest on."""
    missing = unseen_facts(bench)
    if not missing:
        return None
    return Word(
        verdict=Verdict.UNDETERMINED,
        because=tuple(f"not observed: {what} ({why.reason})" for what, why in missing),
    )


def unseen_facts(bench: Bench) -> tuple[tuple[str, NotObserved], ...]:
    """Give the facts that `Orphaned` rests on and that nobody could look at."""
    holder, mapping = bench.holder, bench.holder.mapping
    assert mapping is not None  # noqa: S101 - the local ladder only
    process = mapping.nbd.process if mapping.nbd is not None else None
    facts: tuple[tuple[str, object], ...] = (
        ("mounts in all mount namespaces", mapping.mounts),
        ("processes that have it open", mapping.openers),
        ("device-mapper, loop and swap on it", mapping.holders),
        ("live file systems in the kernel", mapping.kernel_traces),
        ("its rbd-nbd process", process),
        ("processes in flight", holder.in_flight),
        ("kubelet's staging directories", holder.staging),
        ("kubelet's pod directories", holder.pod_volumes),
        ("pods on this node", holder.pods),
        ("VolumeAttachments", holder.attachment),
        ("the Ceph blocklist", holder.blocklisted_by),
        ("its watch on the image", watch_seen(holder, bench.use.image_view)),
        ("whether the image exists", _presence(bench.use.image_view)),
    )
    missing = [(what, fact) for what, fact in facts if isinstance(fact, NotObserved)]
    if watch_seen(holder, bench.use.image_view) is False:
        # The kernel says that it watches, Ceph does not show it: one of them is out of date.
        reason = "the kernel lists it and Ceph does not, look again"
        missing.append(("its watch on the image", NotObserved(reason=reason)))
    return tuple(missing)


def _presence(view: ImageView | None) -> ImagePresence | NotObserved:
    return NotObserved(reason="no cluster told of this image") if view is None else view.presence


def young(bench: Bench) -> Word | None:
    """Let kubelet and the controller finish: what is younger than the grace period is `Staged`."""
    holder, now = bench.holder, bench.now
    attachment = holder.attachment
    has_attachment = isinstance(attachment, Attachment) and attachment.deleting_since is None
    found = bench.found
    left = bool(found.staging_mounts or found.own_luks or _pod_directories(holder))
    if not has_attachment and not left:
        # kubelet finishes what has an attachment, a staging mount or a pod's directory. A mapping
        # with none of them is nobody's, however lately kubelet started (recorded: kubelet forgets).
        return None
    said: list[str] = []
    created = attachment.created_at if isinstance(attachment, Attachment) else None
    if has_attachment and is_young(created, now, bench.grace) is not False:
        said.append(f"its VolumeAttachment is {spoken(age(created, now))} old")
    said += _lately_ended(bench)
    said += _kubelet_at_work(bench)
    if not said:
        return None
    if said == [_KUBELET_UNSEEN]:
        return Word(verdict=Verdict.UNDETERMINED, because=tuple(said))
    patience = spoken(bench.grace)
    return Word(
        verdict=Verdict.STAGED, because=(*said, f"younger than {patience}: wait and look again")
    )


def _pod_directories(holder: Holder) -> tuple[PodVolumeDirectory, ...]:
    return () if isinstance(holder.pod_volumes, NotObserved) else holder.pod_volumes


_KUBELET_UNSEEN: Final = (
    "when kubelet started was not observed: it may still be at work on this volume"
)


def _kubelet_at_work(bench: Bench) -> list[str]:
    """Kubelet's start restarts the clock; one that is down finishes nothing until it is up."""
    node = bench.snapshot.node
    kubelet = None if node is None or isinstance(node.kubelet, NotObserved) else node.kubelet
    if kubelet is None or isinstance(kubelet.process, NotObserved):
        return [_KUBELET_UNSEEN]
    if kubelet.process is None:
        return [f"kubelet does not run on {bench.holder.node}: it finishes this when it is back"]
    fresh = is_young(kubelet.process.started_at, bench.now, bench.grace)
    if fresh is None:
        return [_KUBELET_UNSEEN]
    if fresh:
        return [f"kubelet started {spoken(age(kubelet.process.started_at, bench.now))} ago"]
    return []


def _lately_ended(bench: Bench) -> list[str]:
    """A pod that was killed here a moment ago: kubelet is tearing down what it left."""
    return [
        f"pod {each.subject} was stopped {spoken(age(each.last_seen, bench.now))} ago"
        for each in bench.use.events
        if each.kind == "Pod"
        and each.reason == "Killing"
        and is_young(each.last_seen, bench.now, bench.grace)
        and each.reporter in ("", "kubelet", f"kubelet, {bench.holder.node}")
    ][:1]


def orphaned(bench: Bench) -> Word | None:
    """Everything that could use it was looked at, and nothing does."""
    holder, found = bench.holder, bench.found
    own = found.own_luks
    said = [
        (
            "no pod on this node uses it, no container sees it, no process has it open, "
            f"and nothing{' else' if own else ''} is stacked on it"
        )
    ]
    said += [f"its LUKS mapping {each.label} is left, and nobody has it open" for each in own]
    if found.staging_mounts:
        said.append(f"only its staging mount is left: {found.staging_mounts[0].path}")
    else:
        said.append("it is mounted nowhere")
    attachment = holder.attachment
    if isinstance(attachment, Attachment):
        state = "being deleted" if attachment.deleting_since else "there, and nobody needs it"
        said.append(f"VolumeAttachment {attachment.name} is {state}")
    else:
        said.append("no VolumeAttachment ties it to this node: nobody else will ever clear it")
    said.append(f"seen so in this one look, at {bench.now}")
    return Word(verdict=Verdict.ORPHANED, because=tuple(said))


LOCAL: Final[tuple[Callable[[Bench], Word | None], ...]] = (
    unknown_image,
    dead_nbd,
    blocklisted,
    unwatched,
    returned_dirty,
    in_use,
    between_steps,
    administrators,
    pinned,
    finishing,
    not_observed,
    young,
    orphaned,
)
"""In this order; `orphaned` always speaks."""


# --------------------------------------------------------------------------------------------------
# Everything else: watchers, and pods whose node has shown neither watch nor mapping
# --------------------------------------------------------------------------------------------------


def passing_by(bench: Bench) -> Word | None:
    """ceph-csi's own in-use check opens the image for a moment, again and again (recorded)."""
    if not bench.holder.passing:
        return None
    return Word(
        verdict=Verdict.FOREIGN,
        because=("seen in one look of two: a short open, such as ceph-csi's in-use check",),
    )


def ceph_service(bench: Bench) -> Word | None:
    """Mgr and rbd-mirror watch images as part of their work."""
    match bench.holder.kind:
        case HolderKind.MGR:
            return Word(verdict=Verdict.FOREIGN, because=("a Ceph manager (rbd_support tasks)",))
        case HolderKind.MIRROR:
            return Word(verdict=Verdict.FOREIGN, because=("an rbd-mirror daemon",))
        case HolderKind.KRBD | HolderKind.NBD | HolderKind.LIBRBD | HolderKind.UNKNOWN:
            return None
        case _ as never:
            assert_never(never)


def lingering(bench: Bench) -> Word | None:
    """This node's address, and no mapping of it here: a program, or a watch that has yet to go."""
    holder, node = bench.holder, bench.snapshot.node
    if not holder.is_local or holder.watcher is None or node is None:
        return None
    if isinstance(node.mappings, NotObserved):
        reason = f"the mappings of {holder.node} were not observed: {node.mappings.reason}"
        return Word(verdict=Verdict.UNDETERMINED, because=(reason,))
    unnamed = [each.device for each in node.mappings if isinstance(each.spec, NotObserved)]
    if unnamed:
        reason = f"which image {', '.join(unnamed)} is was not observed"
        return Word(verdict=Verdict.UNDETERMINED, because=(reason,))
    if holder.kind is HolderKind.KRBD:
        return Word(
            verdict=Verdict.UNDETERMINED,
            because=(
                (
                    f"the watch comes from {holder.node}, and no mapping there is its client: a "
                    "watch lingers up to 30s after its client died"
                ),
            ),
        )
    return Word(
        verdict=Verdict.FOREIGN,
        because=(f"a librbd program on {holder.node} (rbd, qemu), not a mapped device",),
    )


def unknown_node(bench: Bench) -> Word | None:
    """An address that no Node object lists: an overlay, another cluster, somebody's shell."""
    holder, kube = bench.holder, bench.snapshot.kubernetes
    if holder.node is not None or holder.watcher is None:
        return None
    ip = holder.watcher.address.ip
    if not knows_every_node_at(holder.watcher.address, kube):
        reason = f"whose address {ip} is was not observed: the nodes of the cluster are unknown"
        return Word(verdict=Verdict.UNDETERMINED, because=(reason,))
    if holder.kind is HolderKind.LIBRBD:
        return Word(
            verdict=Verdict.FOREIGN,
            because=(
                f"no node has the address {ip}; the client looks like librbd (qemu, an rbd shell)",
            ),
        )
    return Word(
        verdict=Verdict.UNDETERMINED,
        because=(
            (
                f"no node lists the address {ip}: a node's second network or overlay, or a machine "
                "outside this cluster"
            ),
        ),
    )


def knows_every_node_at(address: EntityAddress, kube: KubeView | None) -> bool:
    """Tell whether an address that no Node seen has is one that no Node has."""
    if kube is None or isinstance(kube.nodes, NotObserved):
        return False
    return kube.nodes_complete or str(address) in kube.searched


def node_down(bench: Bench) -> Word | None:
    """The node is gone or not Ready: nobody there answers for what it holds."""
    holder = bench.holder
    node = holder.node_object
    if isinstance(node, NotObserved) or holder.node is None:
        return None
    if node is None:
        if holder.is_local:
            return None
        said = [f"there is no Node object {holder.node}"]
        said += [f"{bench.report}: {holder.published.verdict}"] if holder.published else []
        return Word(verdict=Verdict.NODE_DOWN, because=tuple(said))
    if node.ready is True or holder.is_local:
        return None
    state = "NotReady" if node.ready is False else "Unknown: its kubelet is silent"
    since = f" for {spoken(age(node.ready_changed_at, bench.now))}" if node.ready_changed_at else ""
    said = [f"node {node.name} is {state}{since}"]
    if holder.watcher is not None:
        said.append("its watch is alive: for Ceph that machine is running and may write")
    elif holder.published is not None:
        said.append(f"{bench.report}: {holder.published.verdict}")
    return Word(verdict=Verdict.NODE_DOWN, because=tuple(said))


def returned_remotely(bench: Bench) -> Word | None:
    """The node is tainted out-of-service, and its watch or its agent shows that it is alive."""
    holder = bench.holder
    node = holder.node_object
    if not isinstance(node, Node) or not node.out_of_service:
        return None
    if isinstance(holder.attachment, NotObserved | Attachment) or bench.found.running:
        return None
    if holder.watcher is not None:
        proof = "a client at its address still watches the image"
    elif fresh_word(holder, bench.snapshot) is not None:
        proof = bench.report
    else:
        return None
    return Word(
        verdict=Verdict.RETURNED_DIRTY,
        because=(f"node {node.name} is Ready and carries the out-of-service taint", proof),
    )


def own_check(bench: Bench) -> Word | None:
    """The waiting node's NodeStage opens the image by librbd: not a holder of it."""
    holder = bench.holder
    if holder.kind is not HolderKind.LIBRBD or bench.use.persistent_volume is None:
        return None
    if not bench.found.waiting or bench.found.running or maps_by_nbd(bench.use):
        return None
    return Word(
        verdict=Verdict.FOREIGN,
        because=(
            (
                f"{_pods(bench.found.waiting)} waits on {holder.node}, and this looks like "
                "ceph-csi's own in-use check there"
            ),
        ),
    )


def pods_there(bench: Bench) -> Word | None:
    """What the API says of the pods on the holder's node."""
    holder, found = bench.holder, bench.found
    if found.running:
        said = [f"used by {_pods(found.running)} on {holder.node}, by the API's word"]
        if holder.watcher is None:
            said.append("no watch of that node was seen")
        if holder.is_local and holder.mapping is None:
            said.append(f"and no mapping of the image on {holder.node}")
            return Word(verdict=Verdict.UNDETERMINED, because=tuple(said))
        return Word(verdict=Verdict.IN_USE, because=tuple(said))
    if found.waiting or found.ending:
        pods = found.waiting or found.ending
        return Word(
            verdict=Verdict.STAGED,
            because=(
                f"{_pods(pods)} on {holder.node} is {'starting' if found.waiting else 'ending'}",
            ),
        )
    return None


_DANGERS: Final = frozenset({Verdict.UNWATCHED, Verdict.RETURNED_DIRTY, Verdict.DEAD})
"""What outweighs a pod that runs there, or a node that is not Ready: it endangers the data."""


def reported_danger(bench: Bench) -> Word | None:
    """Return what the agent there lately reported, where that endangers the data.

    Ceph's own answer is newer: a watch that is back, or a blocklist entry that is gone.
    """
    holder = bench.holder
    mapping = fresh_word(holder, bench.snapshot)
    if mapping is None or mapping.verdict not in _DANGERS:
        return None
    if mapping.verdict is not Verdict.DEAD:
        is_watched = mapping.verdict is Verdict.UNWATCHED and holder.watcher is not None
        return None if is_watched else published(bench)
    if is_nbd(mapping) or holder.blocklisted_by is not None:
        return published(bench)
    return Word(
        verdict=Verdict.UNWATCHED,
        because=(
            f"{bench.report}: Dead, and Ceph no longer lists a blocklist entry of its client",
            "a client whose entry is gone writes again, and does not get its watch back",
        ),
    )


def published(bench: Bench) -> Word | None:
    """What the agent of the holder's own node said, as long as its word is fresh."""
    mapping = fresh_word(bench.holder, bench.snapshot)
    if mapping is None or mapping.verdict not in ORDER:
        return None
    if _lacks_its_watch(bench, mapping):
        return Word(
            verdict=Verdict.UNDETERMINED,
            because=(
                f"{bench.report}: {mapping.verdict}",
                (
                    "Ceph lists no watch of that client now: it was unmapped since then, or it "
                    "lost its watch and can still write"
                ),
                *mapping.because,
            ),
        )
    return Word(verdict=mapping.verdict, because=(bench.report, *mapping.because))


def _lacks_its_watch(bench: Bench, mapping: PublishedMapping) -> bool:
    """Return whether a mapping that takes a watch is reported, and Ceph lists none.

    Read-only mappings take none (kernel 5.5); the client of rbd-nbd is not in sysfs.
    """
    view = bench.use.image_view
    return (
        bench.holder.watcher is None
        and view is not None
        and not isinstance(view.watchers, NotObserved)
        and mapping.read_only is not True
        and mapping.verdict is not Verdict.UNWATCHED
        and not is_nbd(mapping)
    )


def not_looked(bench: Bench) -> Word | None:
    """Only its own node can tell what the holder does."""
    holder = bench.holder
    if holder.node is None:
        return Word(verdict=Verdict.UNDETERMINED, because=("its node is unknown",))
    said = [f"what it does on {holder.node} can be seen only there"]
    node, mapping = holder.published_by, holder.published
    if node is not None and mapping is not None:
        ago = spoken(age(node.observed_at, bench.now))
        said.append(f"the agent there last said {mapping.verdict}, {ago} ago, and nothing since")
    if isinstance(holder.pods, NotObserved):
        said.append(f"pods there: {holder.pods.reason}")
    else:
        said.append(f"no pod on {holder.node} uses the volume, by the API's word")
    if holder.attachment is None:
        said.append(
            f"no VolumeAttachment ties it to {holder.node}: if it is a mapping, kubelet there has "
            "most likely forgotten it"
        )
    return Word(verdict=Verdict.UNDETERMINED, because=tuple(said))


REMOTE: Final[tuple[Callable[[Bench], Word | None], ...]] = (
    passing_by,
    ceph_service,
    blocklisted,
    reported_danger,
    unknown_node,
    node_down,
    returned_remotely,
    own_check,
    pods_there,
    lingering,
    published,
    not_looked,
)
"""In this order; `not_looked` always speaks."""
