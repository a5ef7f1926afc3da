"""The meaning of the error numbers of Ceph's calls; it depends on the call.

The same table is used for the errors of rbdagent's own calls (observe) and for the numbers in the
error messages of ceph-csi. The hint depends on whose client failed: the observers give the hint for
rbdagent's client, and the rules give the hint for the driver's client.

The numbers of connections, pools and images were measured with the librados of the lab
(tests/integration/test_errno_of_calls.py). The numbers of a map were recorded, or read in the
kernel source.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec import Struct

from rbdagent.parse.recognised import Rank, Recognised

if TYPE_CHECKING:
    from collections.abc import Iterable


class Call(StrEnum):
    """A call to Ceph or to the kernel, or a run of rbd."""

    CONNECT = "connect to the cluster"
    MONITOR = "ask the monitors"
    POOL = "open a pool, or read an object of it"
    IMAGE = "open an image, or read its header and watchers"
    ADD_KEY = "add the user's key to the kernel"
    MAP = "map an image by the kernel"
    RUN = "run rbd, which ends before it asks the kernel"


class Fault(StrEnum):
    """What an error number means."""

    NO_CONFIGURATION = "no monitors are configured, or there is no keyring"
    DENIED = "Ceph refuses the user"
    UNUSABLE = "librados cannot use the key or the keyring, or cannot resolve a monitor's name"
    TIMED_OUT = "no answer in time"
    BLOCKLISTED = "the client is on the blocklist"
    NOT_KNOWN = "the monitors do not know the command"
    NO_POOL = "no such pool"
    NO_OMAP = "the pool has no omap"
    NO_IMAGE = "no such image"
    KEY_TYPE = "the kernel cannot use keys of this type"
    FEATURES = "the kernel lacks a feature of the image"
    READ_ONLY = "sysfs is read-only, or the owner of the lock keeps it"
    TOO_SHORT = "an answer is longer than the caller's buffer"
    HAS_CHILDREN = "the image has snapshots or clones"
    BUSY = "a client has the image open, or locked"
    OLD_CEPH = "the OSDs do not know an operation of this call"
    NOT_TAKEN = "the kernel knows an option not, or the image's chain of parents is too long"


_ENOTSUPP: Final = 524
"""An error number of the kernel that errno(3) does not list (include/linux/errno.h)."""

FAULTS: Final[dict[Call, dict[int, Fault]]] = {
    Call.CONNECT: {
        # No mon_host, or no keyring although the monitor requires one.
        errno.ENOENT: Fault.NO_CONFIGURATION,
        errno.EPERM: Fault.DENIED,
        # A wrong key, or no such user.
        errno.EACCES: Fault.DENIED,
        # A keyring that cannot be read.
        errno.EIO: Fault.UNUSABLE,
        # A malformed key, a key of a type that librados does not know, or an unresolved host name.
        errno.EINVAL: Fault.UNUSABLE,
        errno.ETIMEDOUT: Fault.TIMED_OUT,
        # EBLOCKLISTED is ESHUTDOWN (src/include/rados.h), in every call.
        errno.ESHUTDOWN: Fault.BLOCKLISTED,
    },
    Call.MONITOR: {
        errno.EPERM: Fault.DENIED,
        errno.EACCES: Fault.DENIED,
        # Monitors before Ceph 16 return this for `osd blocklist`.
        errno.EINVAL: Fault.NOT_KNOWN,
        errno.ETIMEDOUT: Fault.TIMED_OUT,
    },
    Call.POOL: {
        errno.ENOENT: Fault.NO_POOL,
        errno.EPERM: Fault.DENIED,
        errno.EACCES: Fault.DENIED,
        errno.ETIMEDOUT: Fault.TIMED_OUT,
        errno.ESHUTDOWN: Fault.BLOCKLISTED,
        # The journal of ceph-csi is omap, which only a replicated pool has (supports_omap() in
        # src/osd/osd_types.h of Ceph; rook#7188).
        errno.EOPNOTSUPP: Fault.NO_OMAP,
    },
    Call.IMAGE: {
        errno.ENOENT: Fault.NO_IMAGE,
        errno.EBUSY: Fault.BUSY,
        # Lists of snapshots, children, lockers, watchers and metadata (rbd/librbd.h of 18.2.7).
        errno.ERANGE: Fault.TOO_SHORT,
        errno.ENOTEMPTY: Fault.HAS_CHILDREN,
        # ceph-csi#3699, with OSDs of Ceph 10.
        errno.EOPNOTSUPP: Fault.OLD_CEPH,
        errno.EPERM: Fault.DENIED,
        errno.EACCES: Fault.DENIED,
        errno.ETIMEDOUT: Fault.TIMED_OUT,
        errno.ESHUTDOWN: Fault.BLOCKLISTED,
    },
    Call.ADD_KEY: {
        # The kernel checks the length of a key since ac431d597a9b ("libceph: define and enforce
        # CEPH_MAX_KEY_LEN"), which stable kernels also have. Before, it checked only the type. It
        # knows the type aes256k since b7cc142dbafe ("add support for CEPH_CRYPTO_AES256KRB5", 7.0).
        errno.EINVAL: Fault.KEY_TYPE,
        _ENOTSUPP: Fault.KEY_TYPE,
    },
    Call.MAP: {
        errno.EPERM: Fault.DENIED,
        errno.ENOENT: Fault.NO_IMAGE,
        errno.ENXIO: Fault.FEATURES,
        errno.EACCES: Fault.DENIED,
        # A lock that was added by hand ("locked by external mechanism" in the kernel's log).
        errno.EBUSY: Fault.BUSY,
        # The owner of the lock keeps it ("peer will not release lock"), or sysfs is read-only.
        errno.EROFS: Fault.READ_ONLY,
        errno.EINVAL: Fault.NOT_TAKEN,
        errno.EOPNOTSUPP: Fault.NOT_TAKEN,
        errno.ESHUTDOWN: Fault.BLOCKLISTED,
        errno.ETIMEDOUT: Fault.TIMED_OUT,
    },
    Call.RUN: {
        # The exit status of rbd. 1 and 2 have too many causes to be in the table
        # (tests/fixtures/life/key_of_somebody_else.json).
        errno.EACCES: Fault.DENIED,
        errno.ESHUTDOWN: Fault.BLOCKLISTED,
        errno.ETIMEDOUT: Fault.TIMED_OUT,
    },
}

_SAID: Final = (
    (Recognised.KEY_NOT_ADDED, Call.ADD_KEY),
    (Recognised.MAP_NUMBER, Call.MAP),
    (Recognised.RBD_EXITED, Call.RUN),
    (Recognised.CONNECT_NUMBER, Call.CONNECT),
    (Recognised.IMAGE_NUMBER, Call.IMAGE),
    (Recognised.POOL_NUMBER, Call.POOL),
)
"""The first one that a text matches is the call that failed.

The messages of rbd come before its exit status, because they are more specific.
"""


class Failure(Struct, frozen=True, kw_only=True):
    """A failed call that a text reports."""

    call: Call
    number: int
    fault: Fault | None
    """None if the number is not in the table."""
    named: dict[str, str]
    """The number, and the other values that the pattern captures."""

    @property
    def kind(self) -> tuple[Call, Fault | None]:
        """The call, and the meaning of its number."""
        return self.call, self.fault


def fault_of(call: Call, number: int | None) -> Fault | None:
    """Return the meaning of an error number of either sign; None if it is not in the table."""
    return FAULTS[call].get(abs(number or 0))


def failure_in(text: str) -> Failure | None:
    """Return the failed call that a text of ceph-csi reports; None if it reports none."""
    for row, call in _SAID:
        named = row.named_in(text)
        if named is not None:
            number = int(named["number"])
            return Failure(call=call, number=number, fault=fault_of(call, number), named=named)
    return None


Kind = Recognised | Fault | tuple[Call, Fault]
"""A text, or a fault in one call; a fault without a call matches every call."""


class _Meaning(Protocol):
    @property
    def kinds(self) -> tuple[Kind, ...]: ...


_AnyMeaning = TypeVar("_AnyMeaning", bound=_Meaning)


def first_meaning(
    meanings: Iterable[_AnyMeaning], text: str
) -> tuple[_AnyMeaning, dict[str, str]] | None:
    """Return the meaning of a text, and the captured values; None if no meaning matches.

    A phrase that names the cause is stronger than a number in the same text, and both are stronger
    than a phrase that only states a wait.

    Args:
        meanings: of two that match by phrases of the same rank, the first one applies.
        text: a message of ceph-csi, a sidecar or kubelet.
    """
    failure = failure_in(text)
    kinds = [(kind, meaning) for meaning in meanings for kind in meaning.kinds]
    for rank in sorted(Rank, reverse=True):
        for kind, meaning in kinds:
            if _rank_of_kind(kind) is rank:
                named = _named_by(kind, text, failure)
                if named is not None:
                    return meaning, named
    return None


def _rank_of_kind(kind: Kind) -> Rank:
    """Return the rank of a kind; an error number of a call has several causes."""
    rank = kind.rank if isinstance(kind, Recognised) else None
    return Rank.SYMPTOM if rank is None else rank


def _named_by(kind: Kind, text: str, failure: Failure | None) -> dict[str, str] | None:
    if isinstance(kind, Recognised):
        return kind.named_in(text)
    is_meant = failure is not None and kind in {failure.fault, failure.kind}
    return failure.named if failure is not None and is_meant else None


def rank_of(text: str) -> Rank:
    """Return how specific a text is about a cause; an unrecognised text is a symptom."""
    ranks = {row.rank for row in Recognised if row.rank is not None and row.is_in(text)}
    if Rank.SPECIFIC in ranks:
        return Rank.SPECIFIC
    is_general = ranks == {Rank.GENERAL} and failure_in(text) is None
    return Rank.GENERAL if is_general else Rank.SYMPTOM
