"""Join the sources: assign mappings, watchers, pods and directories to images. No verdict."""

from __future__ import annotations

from rbdagent.correlate.resolve import images_of
from rbdagent.correlate.volume import (
    NodeVolumes,
    correlate,
    correlate_node,
    correlate_waiting,
    images_to_identify,
    volumes_of_node,
)
from rbdagent.correlate.waiting_pods import images_waited_for

__all__ = [
    "NodeVolumes",
    "correlate",
    "correlate_node",
    "correlate_waiting",
    "images_of",
    "images_to_identify",
    "images_waited_for",
    "volumes_of_node",
]
