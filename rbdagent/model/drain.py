"""The check of a node before a drain, and after it: what remains, and in which order to act."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from rbdagent.model.common import EntityAddress, Gap, ImageIdentity, NotObserved, Verdict
from rbdagent.model.diagnosis import Command, Sentence, Subject
from rbdagent.model.kubernetes import ObjectRef


class DrainStep(StrEnum):
    """What an operator deals with, in this order."""

    DATA_AT_RISK = "data-at-risk"
    """A drain may destroy data, or a pod may get other data on the next node."""
    PINNED = "pinned"
    """Something keeps a device open that a drain does not end."""
    HANGING_CALL = "hanging-call"
    """A call of kubelet or the driver does not return, or fails."""
    LOST_CLIENT = "lost-client"
    """The client of a mapping is blocklisted, or has lost its watch or its process."""
    HANGING_REQUEST = "hanging-request"
    """A request to Ceph has no answer."""
    NODE_SERVICE_DOWN = "node-service-down"
    """kubelet or the CSI driver is down: it unmounts nothing."""
    UNUSED_MAPPING = "unused-mapping"
    """No pod uses a mapping, and no component removes it: it survives the drain."""
    OUTSIDE_CLIENT = "outside-client"
    """A client outside of the cluster holds an image: its pod may not start on the next node."""
    REFUSED_POD = "refused-pod"
    """A drain does not evict a pod, or waits for it."""
    MAPPED = "mapped"
    """After a drain: a device is mapped."""
    WATCHED = "watched"
    """After a drain: Ceph lists a watch of a client of the node."""


class DrainState(StrEnum):
    """The answer."""

    BLOCKED = "blocked"
    """At least one thing was found; there may be more where a fact was not observed."""
    UNKNOWN = "unknown"
    """Nothing was found, and a fact was not observed."""
    CLEAR = "clear"


class DrainItem(Struct, frozen=True, kw_only=True):
    """One thing that blocks a drain or survives it."""

    step: DrainStep
    subject: Subject
    statement: str
    """One sentence or more; the first one is the cause."""
    code: str = ""
    """Of the finding that it is; empty if no finding reports it."""
    evidence: tuple[str, ...] = ()
    remedy: Sentence = ""
    commands: tuple[Command, ...] = ()


class DrainMove(Struct, frozen=True, kw_only=True):
    """A pod that no other replica replaces until its volume is mapped on another node."""

    pod: ObjectRef
    controller: str
    """``StatefulSet/db``; empty without one."""
    replicas: int | None
    """None if they were not observed, or if its controller has none."""
    persistent_volume: str


class MappedVolume(Struct, frozen=True, kw_only=True):
    """A mapping of the node, with what identifies its client after the drain."""

    device: str
    verdict: Verdict
    image: ImageIdentity | None
    client_id: int | None
    client_address: EntityAddress | None
    persistent_volume: str | None


class EarlierCheck(Struct, frozen=True, kw_only=True):
    """What the check before a drain observed, as its file has it."""

    boot_id: str | None
    mappings: tuple[MappedVolume, ...]


class DrainCheck(Struct, frozen=True, kw_only=True):
    """The check of one node."""

    node: str
    is_after: bool
    """Whether it asks what a drain has left, not what blocks one."""
    reported_at: str | None = None
    """When the node's agent confirmed the report with the mappings; None if they were observed
    here, or not at all."""
    boot_id: str | None = None
    """Of the node; None if it was not observed."""
    earlier_boot_id: str | None = None
    """In the file of the check before; None without one."""
    mappings: tuple[MappedVolume, ...] | NotObserved
    items: tuple[DrainItem, ...] = ()
    """In the order in which to deal with them."""
    moves: tuple[DrainMove, ...] | NotObserved = ()
    queried_images: int = 0
    """After a drain: the number of images whose watches were observed."""
    unobserved: tuple[Gap, ...] = ()
    """The facts that could change the answer."""

    @property
    def state(self) -> DrainState:
        """The answer; a fact that was not observed is never "none"."""
        if self.items:
            return DrainState.BLOCKED
        return DrainState.UNKNOWN if self.unobserved else DrainState.CLEAR

    @property
    def is_new_boot(self) -> bool | None:
        """Whether the node has booted since the check before; None if one of the ids is unknown."""
        if self.boot_id is None or self.earlier_boot_id is None:
            return None
        return self.boot_id != self.earlier_boot_id
