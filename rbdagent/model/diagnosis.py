"""The conclusions about one volume: verdicts, findings, recovery, commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from rbdagent.model.common import ImageSpec, Verdict
from rbdagent.model.kubernetes import ObjectRef, Pod, PublishedMapping
from rbdagent.model.node import Mapping
from rbdagent.model.statement import Statement
from rbdagent.model.volume import Holder, Volume


class Severity(StrEnum):
    """Severity of a finding."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    """Data is in danger now."""


WEIGHT: Final = {
    Severity.CRITICAL: 0,
    Severity.ERROR: 1,
    Severity.WARNING: 2,
    Severity.INFO: 3,
}
"""The order of severities, the worst first."""


class SubjectKind(StrEnum):
    """The kinds of objects that a finding may be about; as kubectl names them, if it does."""

    POD = "pod"
    CLAIM = "pvc"
    PERSISTENT_VOLUME = "pv"
    ATTACHMENT = "volumeattachment"
    NODE = "node"
    DEVICE = "device"
    CLIENT = "client"
    IMAGE = "image"
    VOLUME = "volume"
    """The volume of the target, by the name of its PV or image, or by the argument."""
    CLUSTER = "cluster"
    """A Ceph cluster."""
    SOURCE = "source"
    """A source that was not observed."""
    CONTROLLER = "controller"
    STORAGE_CLASS = "storageclass"
    SNAPSHOT_CONTENT = "volumesnapshotcontent"
    DEPLOYMENT = "deployment"
    DAEMON_SET = "daemonset"


_NAMED_ALONE: Final = frozenset(
    {SubjectKind.IMAGE, SubjectKind.VOLUME, SubjectKind.SOURCE, SubjectKind.CONTROLLER}
)
"""Kinds that output does not name: the name alone shows what it is."""


class Subject(Struct, frozen=True, kw_only=True):
    """The object that a finding is about."""

    kind: SubjectKind
    name: str
    """Of a pod that the API does not list, its uid."""
    namespace: str = ""
    node: str | None = None
    """Of a device or a client, if it is known."""
    is_probable: bool = False
    """Whether the node of a client is only probable."""

    def __str__(self) -> str:
        """Return the name in output: ``pod default/web-1``, ``rbd0 on worker-1``."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        match self.kind:
            case SubjectKind.DEVICE:
                return f"{name} on {self.node}"
            case SubjectKind.CLIENT:
                where = f"probably {self.node}" if self.is_probable else self.node
                return f"{name} ({where})" if self.node else name
            case kind if kind in _NAMED_ALONE:
                return name
            case kind:
                return f"{kind} {name}"

    @classmethod
    def of_pod(cls, pod: ObjectRef) -> Subject:
        """Return a pod."""
        return cls(kind=SubjectKind.POD, name=pod.name, namespace=pod.namespace)

    @classmethod
    def of_claim(cls, claim: ObjectRef) -> Subject:
        """Return a claim."""
        return cls(kind=SubjectKind.CLAIM, name=claim.name, namespace=claim.namespace)

    @classmethod
    def of_pv(cls, name: str) -> Subject:
        """Return a PersistentVolume."""
        return cls(kind=SubjectKind.PERSISTENT_VOLUME, name=name)

    @classmethod
    def of_attachment(cls, name: str) -> Subject:
        """Return a VolumeAttachment."""
        return cls(kind=SubjectKind.ATTACHMENT, name=name)

    @classmethod
    def of_node(cls, name: str | None) -> Subject:
        """Return a node."""
        return cls(kind=SubjectKind.NODE, name=str(name), node=name)

    @classmethod
    def of_device(cls, device: str, node: str | None) -> Subject:
        """Return a device of a node."""
        return cls(kind=SubjectKind.DEVICE, name=device, node=node)

    @classmethod
    def of_client(cls, name: str, node: str | None = None, *, is_probable: bool = False) -> Subject:
        """Return a client of Ceph."""
        return cls(kind=SubjectKind.CLIENT, name=name, node=node, is_probable=is_probable)

    @classmethod
    def of_image(cls, spec: ImageSpec) -> Subject:
        """Return an image."""
        return cls(kind=SubjectKind.IMAGE, name=str(spec))

    @classmethod
    def of_volume(cls, name: str) -> Subject:
        """Return the volume of the target."""
        return cls(kind=SubjectKind.VOLUME, name=name)

    @classmethod
    def of_cluster(cls, name: str) -> Subject:
        """Return a Ceph cluster."""
        return cls(kind=SubjectKind.CLUSTER, name=name)

    @classmethod
    def of_source(cls, name: str) -> Subject:
        """Return a source, by its name in sentences."""
        return cls(kind=SubjectKind.SOURCE, name=name)

    @classmethod
    def of_controller(cls, name: str) -> Subject:
        """Return a controller of Kubernetes or of the driver."""
        return cls(kind=SubjectKind.CONTROLLER, name=name)

    @classmethod
    def of_workload(cls, kind: str, workload: ObjectRef) -> Subject:
        """Return a Deployment or a DaemonSet."""
        return cls(kind=SubjectKind(kind.lower()), name=workload.name, namespace=workload.namespace)


class Recovery(Struct, frozen=True, kw_only=True):
    """The automatic recovery from a problem, without an operator."""

    actor: str = ""
    """The component that recovers the object; empty if no component ever does."""
    condition: str = ""
    """A condition that must be met first, and that the component does not cause."""
    within_s: float | None = None
    """Upper bound in seconds; None if there is no bound."""
    note: str = ""

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        if not self.actor:
            return f"not automatic{note}"
        within = "" if self.within_s is None else f", within {_spoken(self.within_s)}"
        condition = f", once {self.condition}" if self.condition else ""
        return f"{self.actor}{within}{condition}{note}"


def _spoken(seconds: float) -> str:
    """Format a duration as kubelet does: ``2m2s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


class Command(Struct, frozen=True, kw_only=True):
    """One command for a person or a program; `rbdagent.commands` creates and formats it."""

    argv: tuple[str, ...]
    """The words, unquoted; a program runs them without a shell."""
    node: str | None = None
    """The node to run the command on; None if it can run anywhere."""
    changes: bool
    """Whether the command changes something; True unless it is known to be read-only."""
    note: str = ""
    """When or why to run the command, in a few words."""


class Verb(Struct, frozen=True):
    """A verb of rbdagent that a text names without the target: no complete command."""

    name: str


Sentence = str | tuple[str | Command | Verb, ...]
"""A text, or its parts: a command in it is data until it is known where the text is read."""


class Finding(Struct, frozen=True, kw_only=True):
    """One problem or fact, with its evidence and its remedy."""

    code: str
    """``RBD101``; the catalogue explains it."""
    severity: Severity
    subject: Subject
    statement: Statement
    """One sentence or more; the first one is the cause."""
    waiting: tuple[Pod, ...] = ()
    """The pods that the object keeps waiting."""
    fact: str = ""
    """What was not observed, in a few words, if that is the finding."""
    evidence: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    """The pods that the evidence or a reason names, beside those in arguments: ``shop/web-1``."""
    remedy: Sentence = ""
    commands: tuple[Command, ...] = ()
    """Commands to copy, in order."""
    recovery: Recovery | None = None
    """The automatic recovery; None if the finding has none."""

    @property
    def message(self) -> str:
        """The statement, and who waits."""
        return " ".join(filter(None, (str(self.statement), self._who_waits)))

    @property
    def cause(self) -> str:
        """The first sentence of the message."""
        return str(self.statement.cause)

    @property
    def consequence(self) -> str:
        """The other sentences of the message; empty if there are none."""
        return " ".join(filter(None, (str(self.statement.rest), self._who_waits)))

    @property
    def _who_waits(self) -> str:
        names = ", ".join(pod.placed for pod in self.waiting)
        return f"Waiting for the volume: {names}." if names else ""


class HolderVerdict(Struct, frozen=True, kw_only=True):
    """A holder and its verdict."""

    holder: Holder
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    """The evidence for the verdict, in short sentences."""
    pods: tuple[str, ...] = ()
    """The pods that the reasons name: ``shop/web-1``."""
    is_lingering: bool = False
    """Whether only a watch is left: no mapping of its node, which was observed, belongs to it."""
    reported: PublishedMapping | None = None
    """The report of the agent on the holder's node if the verdict is that of the report."""
    since: str | None = None
    """When this verdict was first observed; without a history, the time of the snapshot."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The conclusions about one volume, before they are formatted for output."""

    volume: Volume
    verdict: Verdict
    holders: tuple[HolderVerdict, ...]
    findings: tuple[Finding, ...] = ()
    next_commands: tuple[Command, ...] = ()

    @property
    def local(self) -> tuple[HolderVerdict, ...]:
        """The holders on the observed node."""
        return tuple(holder for holder in self.holders if holder.holder.is_local)

    @property
    def mapped(self) -> tuple[tuple[HolderVerdict, Mapping], ...]:
        """The holders on the observed node that have an observed mapping, each with its mapping."""
        return tuple(
            (verdict, verdict.holder.mapping)
            for verdict in self.local
            if verdict.holder.mapping is not None
        )


class BlockedVolume(Struct, frozen=True, kw_only=True):
    """A volume that prevents the start of a pod on the observed node."""

    namespace: str
    pod: str
    persistent_volume: str
    cause: Verdict
    """The verdict on the holder that blocks the volume. It is ``StaleAttachment`` if only a
    VolumeAttachment to another node blocks it, and ``Undetermined`` if the holder was not
    observed."""
    holder_node: str | None
    """The node of that holder; None if it is unknown."""
    claim: str | None = None
    """The claim of the PV, in the namespace of the pod; None if the PV names none."""
    holder: Holder | None = None
    """The client that holds the image; None if no client was observed."""
