"""The labels of RBDMappings and RBDNodes, by which readers find the mappings of an image or client.

A label has at most 63 characters, and only letters, digits, ``-``, ``_`` and ``.``; a name that is
no such value is replaced by its digest. The image is labelled by its name alone: where the cluster
is unknown or a pool was renamed, the name is what both sides still know, and a reader compares the
complete identity of what it finds. A renamed image keeps its id.

Kubernetes has no index of labels: the API server compares those of all objects of a list. A cluster
has fifty times as many RBDMappings as RBDNodes. So an RBDNode has a label for each image and each
client of its node, whose value names the devices, and a reader requests their RBDMappings by name.

A PV may lead to another image than the one that was mapped for it: an RBDNode also has a label for
each PV that its node maps, and for each that it does not map and may still use. The value of the
latter names no device.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.parse.digests import sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NODE: Final = "rbdagent.dev/node"
VOLUME: Final = "rbdagent.dev/persistentvolume"
IMAGE: Final = "rbdagent.dev/image"
IMAGE_ID: Final = "rbdagent.dev/image-id"
CLIENT: Final = "rbdagent.dev/client"

UNKNOWN_IMAGE: Final = "unknown"
"""The label of a device whose image was not observed: it may be any image."""
UNKNOWN_VOLUME: Final = "pv-unknown"
"""The key of a node whose mounts or kubelet's directories were not observed: any PV may be used
there."""
_OF_IMAGE: Final = "image.rbdagent.dev/"
_OF_CLIENT: Final = "client.rbdagent.dev/"
"""Before the key of an image, or the number of a client, in a label of an RBDNode."""
_MANY_DEVICES: Final = "many"
"""The value of a label for more devices than fit into a value."""
_BETWEEN: Final = "_"
_DEVICES: Final = r"(?:rbd|nbd)[0-9]+(?:_(?:rbd|nbd)[0-9]+)*"
_LONGEST_VALUE: Final = 63
_KEY_DIGITS: Final = 12
_MOST_VALUES: Final = 100
"""In one selector: a URL must not become too long."""
_VALUE: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LONGEST_NAME: Final = 253
"""Of an object (validation.DNS1123SubdomainMaxLength in apimachinery)."""


class Lookup(NamedTuple):
    """How to find the RBDMappings of images, clients or volumes."""

    node_labels: tuple[str, ...]
    """The labels that an RBDNode has if such a mapping is on its node; empty if RBDNodes have no
    such label."""
    selectors: tuple[str, ...]
    """The label selectors of the same RBDMappings."""


def label_value(name: str) -> str:
    """Return a name as the value of a label."""
    return name if re.fullmatch(_VALUE, name) else f"h-{_digest(name)}"


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
    return frozenset({_key(name), id_key(image_id)} if image_id else {_key(name)})


def mapping_keys(
    name: str | None, image_id: str | None, persistent_volume: str | None
) -> frozenset[str]:
    """Return the short keys of a mapping: those of its image, and of the PV that it serves."""
    of_volume = frozenset(() if persistent_volume is None else {volume_key(persistent_volume)})
    return image_keys(name, image_id) | of_volume


def volume_key(name: str) -> str:
    """Return the short key of a PV or of a volume handle."""
    return f"pv-{_key(name)}"


def id_key(image_id: str) -> str:
    """Return the short key of an image's id."""
    return f"id-{_key(image_id)}"


def image_label(key: str) -> str:
    """Return the label of the RBDNodes that map an image with this short key."""
    return f"{_OF_IMAGE}{key}"


def client_label(client_id: int | str) -> str:
    """Return the label of the RBDNode of a client."""
    return f"{_OF_CLIENT}{client_id}"


def published_labels(given: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an RBDNode that its agent wrote, without those of other writers."""
    return {
        label: value for label, value in given.items() if label.startswith((_OF_IMAGE, _OF_CLIENT))
    }


def image_keys_in(given: Mapping[str, str]) -> frozenset[str]:
    """Return the short keys among the labels of an RBDNode."""
    return frozenset(
        label.removeprefix(_OF_IMAGE) for label in given if label.startswith(_OF_IMAGE)
    )


def unmapped_keys_in(given: Mapping[str, str]) -> frozenset[str]:
    """Return those of these keys that no device has: of PVs that the node may still use."""
    return image_keys_in({label: value for label, value in given.items() if not value})


def devices_value(devices: Iterable[str]) -> str:
    """Return devices as the value of a label: ``rbd0_rbd7``."""
    value = _BETWEEN.join(sorted(device.removeprefix("/dev/") for device in devices))
    return value if len(value) <= _LONGEST_VALUE else _MANY_DEVICES


def devices_in(value: str) -> tuple[str, ...] | None:
    """Return the devices that the value of a label names; None if it does not name them."""
    if not value:
        return ()
    return tuple(value.split(_BETWEEN)) if re.fullmatch(_DEVICES, value) else None


def mapping_name(node: str, device: str) -> str:
    """Return the name of the RBDMapping of a device: ``worker-1.rbd0``."""
    name = f"{node}.{device.removeprefix('/dev/')}"
    return name if len(name) <= _LONGEST_NAME else f"{_digest(node)}.{device.rpartition('/')[2]}"


def _key(name: str) -> str:
    return _digest(name)[:_KEY_DIGITS]


def _digest(text: str) -> str:
    return sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
