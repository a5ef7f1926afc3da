"""Verdicts that a change of the node during its observation may explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rbdagent.codes import Code
from rbdagent.correlate.directories import observed_mounts, openers_of
from rbdagent.correlate.holders import is_ceph_daemon
from rbdagent.correlate.node_usage import stacked_on
from rbdagent.model import BlockHolderKind, Verdict, observed_of
from rbdagent.verdicts.evidence import hung_requests
from rbdagent.verdicts.holder_verdict import is_watch_observed
from rbdagent.verdicts.volume_verdict import watches_for_a_moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.model import BlockHolder, Diagnosis, HolderVerdict, ImageView


class Momentary(NamedTuple):
    """A verdict on a device, whether it is mounted, its pods that the API has not, its requests.

    Or the verdict on a volume that a client watched for a moment; the client is the subject.
    """

    subject: str
    verdict: Verdict
    is_mounted: bool = False
    unknown_pod_uids: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()


def momentary(diagnoses: Iterable[Diagnosis]) -> frozenset[Momentary]:
    """Return the verdicts on what may have changed while it was observed.

    The facts of a node are read one after another, and those of Ceph after them. While kubelet
    unmaps a volume, the device can be read before the unmap and the watch after it: it seems to be
    `Unwatched`, or `Undetermined` if the kernel still listed the watch. While kubelet mounts or
    unmounts a volume, the kernel lists its file system, and no mount; or the mount is seen in the
    namespace of the CSI plugin, and not in the host's, which was read at another time: it seems to
    be `Pinned`. kubelet removes a deleted pod from the API right after it unmounts the pod's
    volumes: a mount that was read before, and pods that were listed after, look like a
    force-deleted pod. A client that watched the image for a moment may map it right afterwards, as
    ceph-csi does, or not. A backup maps a snapshot, and unmaps and removes it at its end: between
    the two reads, a snapshot seems to be removed under its mapping. A device that is unmapped after
    sysfs was read has no node in /dev. osdc lists each request until
    it is answered, without a time: udev reads a device that nothing uses, and one request seems to
    hang. The PV controller releases a PV right after its claim is gone. A second observation shows
    whether the state lasts.
    """
    diagnoses = tuple(diagnoses)
    return frozenset(
        (*_of_mappings(diagnoses), *_of_watches(diagnoses), *_of_claims(diagnoses)),
    )


def _of_mappings(diagnoses: Iterable[Diagnosis]) -> Iterator[Momentary]:
    return (
        Momentary(
            verdict.holder.mapping.device,
            verdict.verdict,
            bool(observed_mounts(verdict.holder.mapping)),
            verdict.holder.unknown_pod_uids,
            hung_requests(verdict.holder.mapping),
        )
        for diagnosis in diagnoses
        for verdict in diagnosis.local
        if verdict.holder.mapping is not None
        and _is_momentary(verdict, verdict.holder.view(diagnosis.volume))
    )


def _of_watches(diagnoses: Iterable[Diagnosis]) -> Iterator[Momentary]:
    """Yield the clients whose short watch is a reason why a volume without holder is not `Free`."""
    return (
        Momentary(f"client.{watcher.client}", diagnosis.verdict)
        for diagnosis in diagnoses
        if diagnosis.verdict is Verdict.UNDETERMINED
        and all(holder.transient or is_ceph_daemon(holder) for holder in diagnosis.volume.holders)
        for watcher in watches_for_a_moment(diagnosis.volume)
    )


def _of_claims(diagnoses: Iterable[Diagnosis]) -> Iterator[Momentary]:
    """Yield the PVs whose claim is gone, and which the PV controller may just be releasing."""
    return (
        Momentary(finding.subject.name, diagnosis.verdict)
        for diagnosis in diagnoses
        for finding in diagnosis.findings
        if finding.code == Code.BOUND_TO_GONE_CLAIM
    )


def _is_momentary(verdict: HolderVerdict, view: ImageView | None) -> bool:
    mapping, is_idle = verdict.holder.mapping, verdict.verdict is not Verdict.IN_USE
    if mapping is not None and mapping.device_node_present is False:
        return True
    if verdict.holder.unknown_pod_uids or (is_idle and hung_requests(mapping)):
        return True
    if verdict.verdict is Verdict.UNDETERMINED:
        return is_watch_observed(verdict.holder, view) is False
    if mapping is not None and view is not None and mapping.snapshot_id is not None:
        return mapping.snapshot_id not in observed_of(view.snapshots)
    if verdict.verdict is Verdict.PINNED:
        on_host = any(mount.namespace.is_host for mount in observed_mounts(mapping))
        return not (on_host or openers_of(mapping) or any(map(_is_lasting, stacked_on(mapping))))
    return verdict.verdict is Verdict.UNWATCHED


def _is_lasting(stacked: BlockHolder) -> bool:
    """Return whether a device is no device-mapper device without a name: that is being removed.

    Its name is taken out of the hash of names first (dm_hash_remove_all, __hash_remove in
    drivers/md/dm-ioctl.c), and sysfs then shows none.
    """
    return stacked.kind is not BlockHolderKind.DM or bool(stacked.label)
