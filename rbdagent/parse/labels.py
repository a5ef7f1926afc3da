"""The labels of an RBDMapping, by which readers select the mappings of one image or client.

A label has at most 63 characters, and only letters, digits, ``-``, ``_`` and ``.``; a name that is
no such value is replaced by its digest. The image is labelled by its name alone: where the cluster
is unknown or a pool was renamed, the name is what both sides still know, and a reader compares the
complete identity of what it finds. A renamed image keeps its id.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

NODE: Final = "rbdagent.dev/node"
VOLUME: Final = "rbdagent.dev/persistentvolume"
IMAGE: Final = "rbdagent.dev/image"
IMAGE_ID: Final = "rbdagent.dev/image-id"
CLIENT: Final = "rbdagent.dev/client"

UNKNOWN_IMAGE: Final = "unknown"
"""The label of a device whose image was not observed: it may be any image."""
_KEY_DIGITS: Final = 12
_MOST_VALUES: Final = 100
"""In one selector: a URL must not become too long."""
_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_NAME: Final = 253
"""Of an object (validation.DNS1123SubdomainMaxLength in apimachinery)."""


def label_value(name: str) -> str:
    """Return a name as the value of a label."""
    return name if _VALUE.fullmatch(name) else f"h-{_digest(name)}"


def selectors(key: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return label selectors of the objects that one of these names is the value of a label of."""
    values = sorted({label_value(name) for name in names})
    return tuple(
        f"{key} in ({','.join(values[first : first + _MOST_VALUES])})"
        for first in range(0, len(values), _MOST_VALUES)
    )


def image_keys(name: str | None, image_id: str | None) -> frozenset[str]:
    """Return the short keys of an image by which an RBDNode names what its node maps.

    One key is of the name, and one of the id: as for the labels, one of them is equal where two
    observations are of the same image. Another image with an equal key is only a false alarm.
    """
    if name is None:
        return frozenset({UNKNOWN_IMAGE})
    keys = {_digest(name)[:_KEY_DIGITS]}
    return frozenset(keys | {f"id-{label_value(image_id)}"} if image_id else keys)


def mapping_name(node: str, device: str) -> str:
    """Return the name of the RBDMapping of a device: ``worker-1.rbd0``."""
    name = f"{node}.{device.removeprefix('/dev/')}"
    return name if len(name) <= _LONGEST_NAME else f"{_digest(node)}.{device.rpartition('/')[2]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
