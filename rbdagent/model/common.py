"""The types that several others need: missing facts, states of sources, identities, verdicts.

A verdict is a conclusion, but the RBDNodes of other nodes contain verdicts, so it is also observed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

API_VERSION: Final = "rbdagent.dev/v1alpha1"

INT64_MAX: Final = 2**63 - 1
Int64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""An integer of a file. Python has no limit, and later code converts integers to floats."""

_T = TypeVar("_T")
_U = TypeVar("_U")


def camel(name: str) -> str:
    """Return ``client_id`` as ``clientID``, as Kubernetes writes initialisms."""
    head, *rest = name.split("_")
    return head + "".join("ID" if word == "id" else word.capitalize() for word in rest)


class Stored(
    Struct,
    frozen=True,
    kw_only=True,
    rename=camel,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A type of the files that rbdagent writes: snapshots, the history, the unmap records.

    A type that shares a field with another type has a tag: ``"type": "ImageSpec"`` in the file.
    """


class NotObserved(Stored, frozen=True, kw_only=True, tag=True):
    """A fact that could not be observed; it never means "none"."""

    reason: str
    """The attempt, its object, and the result, in one line."""
    hint: str = ""
    """What makes the fact observable: a Linux capability, a Ceph cap, a permission, a command."""
    timed_out: bool = False
    """Whether Ceph gave no answer in time."""


NOT_REQUESTED: Final = NotObserved(reason="not requested")
LIFECYCLE_NOT_REQUESTED: Final = NotObserved(
    reason="not requested: only the lifecycle of a volume needs it"
)


def observed_of(found: tuple[_T, ...] | NotObserved) -> tuple[_T, ...]:
    """Return the observed items, for a caller that concludes nothing from a missing item.

    Before a caller concludes something from a missing item, it checks that the fact was observed.
    """
    return () if isinstance(found, NotObserved) else found


def derived(fact: _T | NotObserved, function: Callable[[_T], _U]) -> _U | NotObserved:
    """Return the value of a function of an observed fact, else why the fact was not observed."""
    return fact if isinstance(fact, NotObserved) else function(fact)


def separated(
    facts: Iterable[_T | NotObserved],
) -> tuple[tuple[_T, ...], tuple[NotObserved, ...]]:
    """Return the observed facts, and why each of the others was not observed."""
    observed: list[_T] = []
    unobserved: list[NotObserved] = []
    for fact in facts:
        if isinstance(fact, NotObserved):
            unobserved.append(fact)
        else:
            observed.append(fact)
    return tuple(observed), tuple(unobserved)


def unobserved(facts: Iterable[tuple[str, object]]) -> tuple[tuple[str, NotObserved], ...]:
    """Return the name and the reason of each named fact that was not observed."""
    return tuple((name, fact) for name, fact in facts if isinstance(fact, NotObserved))


def first_unobserved(facts: Iterable[object]) -> NotObserved | None:
    """Return why the first unobserved fact was not observed; None if all facts were observed."""
    return next((fact for fact in facts if isinstance(fact, NotObserved)), None)


class SourceState(StrEnum):
    """Result of the observation of one source."""

    OBSERVED = "observed"
    FAILED = "failed"
    SKIPPED = "skipped"


COMMAND_LINES: Final = "command lines of processes"
"""Their gap is in no other fact: an unread command line that matters leaves the processes in
flight, kubelet's process or the image of an NBD device unobserved."""


class Gap(Stored, frozen=True, kw_only=True):
    """One fact that is missing from a source that was otherwise observed."""

    fact: str
    """The missing fact, as output names it: ``open descriptors of other users' processes``."""
    reason: str
    hint: str = ""


class Source(Stored, frozen=True, kw_only=True):
    """The state of one source (node, ceph, kubernetes) and its gaps."""

    state: SourceState
    reason: str = ""
    """Why the source failed or was skipped; empty if it was observed."""
    hint: str = ""
    timed_out: bool = False
    """Whether Ceph gave no answer in time."""
    gaps: tuple[Gap, ...] = ()
    took_s: float | None = None
    """Seconds until the source answered; None if it was not queried."""


class ImageSpec(Stored, frozen=True, kw_only=True, order=True, tag=True):
    """The name of an RBD image within one cluster: ``pool[/namespace]/name``."""

    pool: str
    namespace: str = ""
    """RADOS namespace; empty for the default namespace."""
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.pool, self.namespace, self.name) if part)


class EntityAddress(Stored, frozen=True, kw_only=True, order=True):
    """An address of a Ceph entity without its type (``v1:``, ``v2:``, ``any:``).

    The type is omitted because krbd, watchers and the blocklist show the same client with different
    types.
    """

    ip: str
    """Compressed textual form, without brackets."""
    port: Int64 = 0
    nonce: Int64 = 0

    def __str__(self) -> str:
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.port}/{self.nonce}"


class DeviceNumber(Stored, frozen=True, kw_only=True, order=True):
    """``major:minor`` of a block device."""

    major: Int64
    minor: Int64

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


class ImageIdentity(Stored, frozen=True, kw_only=True):
    """The identity of an image across clusters; unknown parts are None."""

    spec: ImageSpec
    fsid: str | None
    image_id: str | None = None
    pool_id: Int64 | None = None
    namespace_by: str | None = None
    """The clusterID whose radosNamespace in ceph-csi's configuration decides in which RADOS
    namespace the image is; that of ``spec`` is then an assumption. None if the namespace is known.
    """


class Verdict(StrEnum):
    """The verdict on one holder, or on the target."""

    IN_USE = "InUse"
    STAGED = "Staged"
    ORPHANED = "Orphaned"
    PINNED = "Pinned"
    DEAD = "Dead"
    UNWATCHED = "Unwatched"
    SHARED = "Shared"
    CONFLICT = "Conflict"
    FOREIGN = "Foreign"
    NODE_DOWN = "NodeDown"
    RETURNED_DIRTY = "ReturnedDirty"
    UNDETERMINED = "Undetermined"
    FREE = "Free"
    STALE_ATTACHMENT = "StaleAttachment"
    NOT_BACKED = "NotBacked"
