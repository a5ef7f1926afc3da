"""The labels of an RBDMapping, by which readers select the mappings of one image or client.

A label has at most 63 characters, and only letters, digits, ``-``, ``_`` and ``.``; a name that is
no such value is replaced by its digest. The image is labelled by its name alone: where the cluster
is unknown or a pool was renamed, the name is what both sides still know, and a reader compares the
complete identity of what it finds. A renamed image keeps its id.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

NODE: Final = "rbdagent.dev/node"
VOLUME: Final = "rbdagent.dev/persistentvolume"
IMAGE: Final = "rbdagent.dev/image"
IMAGE_ID: Final = "rbdagent.dev/image-id"
CLIENT: Final = "rbdagent.dev/client"

UNKNOWN_IMAGE: Final = "unknown"
"""The label of a device whose image was not observed: it may be any image."""
_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_NAME: Final = 253
"""Of an object (validation.DNS1123SubdomainMaxLength in apimachinery)."""


def label_value(name: str) -> str:
    """Return a name as the value of a label."""
    return name if _VALUE.fullmatch(name) else f"h-{_digest(name)}"


def mapping_name(node: str, device: str) -> str:
    """Return the name of the RBDMapping of a device: ``worker-1.rbd0``."""
    name = f"{node}.{device.removeprefix('/dev/')}"
    return name if len(name) <= _LONGEST_NAME else f"{_digest(node)}.{device.rpartition('/')[2]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
