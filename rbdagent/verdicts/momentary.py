"""Verdicts that a change of the node during its observation may explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rbdagent.correlate.node_usage import mounts_of, openers_of, stacked_on
from rbdagent.model import Verdict
from rbdagent.verdicts.holder_verdict import is_watch_observed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.model import Diagnosis, HolderVerdict, ImageView


class Momentary(NamedTuple):
    """A verdict on a device, whether the device is mounted, and its pods that the API has not."""

    device: str
    verdict: Verdict
    is_mounted: bool
    unknown_pod_uids: tuple[str, ...]


def momentary(diagnoses: Iterable[Diagnosis]) -> frozenset[Momentary]:
    """Return the verdicts on mappings that may have changed while they were observed.

    The facts of a node are read one after another, and those of Ceph after them. While kubelet
    unmaps a volume, the device can be read before the unmap and the watch after it: it seems to be
    `Unwatched`, or `Undetermined` if the kernel still listed the watch. While kubelet mounts or
    unmounts a volume, the kernel lists its file system, and no mount; or the mount is seen in the
    namespace of the CSI plugin, and not in the host's, which was read at another time: it seems to
    be `Pinned`. kubelet removes a deleted pod from the API right after it unmounts the pod's
    volumes: a mount that was read before, and pods that were listed after, look like a
    force-deleted pod. A second observation shows whether the state lasts.
    """
    return frozenset(
        Momentary(
            verdict.holder.mapping.device,
            verdict.verdict,
            bool(mounts_of(verdict.holder.mapping)),
            verdict.holder.unknown_pod_uids,
        )
        for diagnosis in diagnoses
        for verdict in diagnosis.local
        if verdict.holder.mapping is not None and _is_momentary(verdict, diagnosis.use.image_view)
    )


def _is_momentary(verdict: HolderVerdict, view: ImageView | None) -> bool:
    if verdict.holder.unknown_pod_uids:
        return True
    if verdict.verdict is Verdict.UNDETERMINED:
        return is_watch_observed(verdict.holder, view) is False
    mapping = verdict.holder.mapping
    if verdict.verdict is Verdict.PINNED:
        on_host = any(mount.namespace.is_host for mount in mounts_of(mapping))
        return not (on_host or openers_of(mapping) or stacked_on(mapping))
    return verdict.verdict is Verdict.UNWATCHED
