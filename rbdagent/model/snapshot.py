"""The target of a request, and the snapshot of all sources about it."""

from __future__ import annotations

from enum import Flag, StrEnum, auto

from rbdagent.model.ceph import CephView
from rbdagent.model.common import ImageSpec, Source, SourceState, Stored
from rbdagent.model.kubernetes import KubeView
from rbdagent.model.node import NodeView


class TargetKind(StrEnum):
    """How a user may name a volume."""

    PERSISTENT_VOLUME = "pv"
    CLAIM = "pvc"
    POD = "pod"
    IMAGE = "image"
    VOLUME_HANDLE = "handle"
    DEVICE = "device"
    NONE = "none"
    """No single target: ``list`` of a node, or all objects (``given`` has the option)."""


class Target(Stored, frozen=True, kw_only=True):
    """The target that the user named, parsed but not yet resolved."""

    argument: str
    kind: TargetKind
    name: str = ""
    """PV, claim or pod name; volume handle; device path."""
    namespace: str = ""
    """Kubernetes namespace of a claim or pod; if there is no name, of all requested objects."""
    image: ImageSpec | None = None


class CollectScope(Flag):
    """Requests in addition to those for the holders of the volume."""

    NOTHING = 0
    UNMAP_GUARDS = auto()
    """The objects that can forbid an unmap, for a caller that may unmap."""
    STORAGE_CLASSES = auto()
    CSI_DRIVERS = auto()
    VERSION = auto()
    """Version of the API server."""
    WORKLOADS = auto()
    """The controllers of the pods, and the controllers of these."""
    PROVISIONERS = auto()
    """The leases and pods of the controllers that a claim or PV waits for."""
    DRIVER_WORKLOADS = auto()
    """The Deployments and DaemonSets of the driver that a claim, PV, pod or attachment waits for,
    and what keeps them from running."""
    MIGRATIONS = auto()
    """The live migrations of virtual machines, if two pods of one machine use a volume."""
    REPLICATIONS = auto()
    """What sets the role of the images of claims, if an image is mirrored."""
    BUDGETS = auto()
    """The PodDisruptionBudgets of all namespaces, which can forbid an eviction."""
    LOGS = auto()
    """The lines of the node's logs that name the volume."""
    FILE_SYSTEMS = auto()
    """The sizes of the volume's file systems on the node, by statfs(2)."""
    EVERYTHING = auto()
    """All objects of the cluster or of the target's namespace, because no volume is named."""
    ALL_REPORTS = auto()
    """Every mapping that agents report, not only those that the objects to judge need."""
    LIFECYCLE = (
        STORAGE_CLASSES
        | CSI_DRIVERS
        | VERSION
        | WORKLOADS
        | PROVISIONERS
        | DRIVER_WORKLOADS
        | MIGRATIONS
        | REPLICATIONS
        | LOGS
        | FILE_SYSTEMS
    )
    """What the lifecycle of the volume depends on: all that the rules declare (`Rule.reads`)."""


class Sources(Stored, frozen=True, kw_only=True):
    """The state of each source of a snapshot."""

    node: Source
    ceph: Source
    kubernetes: Source

    @property
    def named(self) -> tuple[tuple[str, Source], ...]:
        """Each source with its name, in the order of the output."""
        return (("node", self.node), ("ceph", self.ceph), ("kubernetes", self.kubernetes))

    @property
    def failed(self) -> dict[str, str]:
        """Why each failed source was not observed, by its name."""
        return {
            name: source.reason for name, source in self.named if source.state is SourceState.FAILED
        }


class OtherMachine(Stored, frozen=True, kw_only=True):
    """The machine that was observed, if it is not the Node whose name rbdagent was given."""

    node_name: str
    hostname: str
    boot_id: str
    """Of the machine: ``/proc/sys/kernel/random/boot_id``."""
    node_boot_id: str
    """Of the Node: ``status.nodeInfo.bootID``."""
    is_node: str = ""
    """The Node that the machine is, if no Node has the name: the one with its boot id."""

    @property
    def reason(self) -> str:
        """What differs, for use in a sentence."""
        machine = f"this machine ({self.hostname})" if self.hostname else "this machine"
        if self.is_node:
            return (
                f"{machine} is Node {self.is_node}, which has its boot id {self.boot_id}, and no "
                f"Node is named {self.node_name}"
            )
        return (
            f"{machine} is not Node {self.node_name}: its boot id is {self.boot_id}, and that of "
            f"the Node is {self.node_boot_id}"
        )

    @property
    def hint(self) -> str:
        """What makes them equal."""
        if self.is_node:
            return f"pass --node-name {self.is_node}"
        return (
            "pass --node-name with the name of this machine's Node; after a boot, the ids differ "
            "until kubelet runs and reports"
        )


class Snapshot(Stored, frozen=True, kw_only=True, dict=True):
    """All facts that were observed at one time: the only input of the pure core, and a file."""

    observed_at: str
    tool_version: str
    target: Target
    node: NodeView | None
    ceph: CephView | None
    kubernetes: KubeView | None
    sources: Sources
    other_machine: OtherMachine | None = None
    """Set if the machine is not its Node; ``node`` is then None, and its source has failed."""
