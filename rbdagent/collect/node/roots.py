"""Where the host's file systems are.

A command names them before it starts the process that observes the node, and only that process
needs the other modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path


class NodeRoots(Struct, frozen=True, kw_only=True):
    """Holds the paths of the host's file systems: in a container they are below ``/host``."""

    procfs: Path
    sysfs: Path
    host_root: Path
    kubelet_roots: tuple[str, ...] = ()
    """Paths on the host; if empty, from kubelet's command line, then the known directories."""
    is_public: bool = False
    """Whether sentences about this node are published: RBDNodes, RBDMappings, Events, records of
    unmaps. The ClusterRole ``view`` includes RBDNodes, and no mask finds every secret in the
    arguments of a process."""
