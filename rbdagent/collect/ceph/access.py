"""How to reach a cluster.

A command names its clusters before it starts the process that queries Ceph, and only that process
needs the other modules.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import EntityAddress, NotObserved


class MappedHere(Struct, frozen=True, kw_only=True):
    """Holds what the observed node has mapped: it decides which facts an answer needs."""

    clients: frozenset[EntityAddress] = frozenset()
    snapshots_of: frozenset[str] = frozenset()
    """Ids of images of which a snapshot is mapped."""


NOTHING_MAPPED: Final = MappedHere()


class CephAccess(Struct, frozen=True, kw_only=True):
    """Holds the access parameters of one cluster."""

    name: str
    conf: Path
    client_id: str
    """``rbdagent`` for ``client.rbdagent``."""
    keyring: Path | None
    """If None, librados searches its default paths."""
    keyfile: Path | None = None
    """A file with the key of the user alone, in place of a keyring: the form in the Secrets of
    Rook's CephClient and of CSI drivers."""
    timeout_s: float
    monitors: tuple[str, ...] = ()
    """The monitors, in place of those of ``conf``; empty if ``conf`` names them."""
    monitors_missing: NotObserved | None = None
    """Why the list of monitors was not read; ``monitors`` are then the last known ones."""

    @property
    def limit_s(self) -> int:
        """The limit of a call in whole seconds.

        Bindings that Cython 3 built (Ceph 18.2 and 20.2 of current distributions) refuse a float
        for a parameter ``timeout: int`` of src/pybind/rados/rados.pyx. librados 16.2 refuses
        fractions in options.
        """
        return math.ceil(self.timeout_s)
