"""Parser of the TARGET argument."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.errors import UsageError
from rbdagent.model import ImageSpec, Target, TargetKind

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMS: Final = (
    "pv/NAME or NAME, pvc/NAMESPACE/NAME, pod/NAMESPACE/NAME, POOL[/NAMESPACE]/IMAGE, "
    "a CSI volume handle, or /dev/rbdN"
)

KINDS: Final = {
    "pv": TargetKind.PERSISTENT_VOLUME,
    "persistentvolume": TargetKind.PERSISTENT_VOLUME,
    "persistentvolumes": TargetKind.PERSISTENT_VOLUME,
    "pvc": TargetKind.CLAIM,
    "persistentvolumeclaim": TargetKind.CLAIM,
    "persistentvolumeclaims": TargetKind.CLAIM,
    "pod": TargetKind.POD,
    "po": TargetKind.POD,
    "pods": TargetKind.POD,
}
_WITHOUT_VOLUME: Final = frozenset(
    {
        *("deploy", "deployment", "deployments", "sts", "statefulset", "statefulsets"),
        *("ds", "daemonset", "daemonsets", "rs", "replicaset", "replicasets"),
        *("job", "jobs", "cj", "cronjob", "cronjobs", "svc", "service", "services"),
        *("node", "nodes", "sc", "storageclass", "storageclasses"),
        *("volumeattachment", "volumeattachments", "volumesnapshot", "volumesnapshots"),
    }
)
"""Types of kubectl that are no TARGET: they must not look like an image without holder."""
_NAMESPACED: Final = (TargetKind.CLAIM, TargetKind.POD)
_DEVICE: Final = r"(?:/dev/)?(?P<name>(?:rbd|nbd)[0-9]+)(?:p[0-9]+)?"
_HANDLE: Final = r"[0-9a-f]{4}-[0-9a-f]{4}-.+-[0-9a-f]{16}-[0-9a-f-]{36}|mig_mons-.+"
_MOST_PARTS: Final = 3


def joined_target(words: Sequence[str]) -> str | None:
    """Return the TARGET that was given as one word, or as kubectl's two words ``TYPE NAME``.

    Returns:
        ``pvc/data`` for ``pvc data``, one word unchanged, None if there is no word.

    Raises:
        UsageError: several words, and not a type and a name.
    """
    match words:
        case []:
            return None
        case [target]:
            return target
        case [kind, name] if kind.lower() in KINDS:
            return f"{kind}/{name}"
    raise UsageError(
        f"{' '.join(words)}: more than one TARGET",
        hint=f"a TARGET is {FORMS}; two words are a type and a name: pvc data",
    )


def parse_target(given: str, *, namespace: str | None) -> Target:
    """Parse a TARGET; ``namespace`` is the ``-n`` option and completes ``pvc/NAME``, ``pod/NAME``.

    The first form that matches is used: a kind before the first slash, a device, an image, a
    composed or migrated volume handle, a bare PV name. For an image in a pool whose name is a type
    of kubectl (``pv``, ``pod``, ``node``, …), only a device or a handle can be the TARGET.

    Raises:
        UsageError: the TARGET is empty, is of another type of kubectl, or its form is not valid.
    """
    text = given.strip()
    if not text:
        raise UsageError("the TARGET is empty", hint=f"it is {FORMS}")
    parts = text.split("/")
    kind = KINDS.get(parts[0].lower()) if len(parts) > 1 else None
    if kind is not None:
        return _object(given, kind, parts[1:], namespace)
    if len(parts) > 1 and parts[0].lower() in _WITHOUT_VOLUME:
        raise UsageError(
            f"{given}: {parts[0]} is no type of a TARGET",
            hint=f"name one of its pods or claims; a TARGET is {FORMS}",
        )
    if (device := re.fullmatch(_DEVICE, text)) is not None:
        return Target(argument=given, kind=TargetKind.DEVICE, name=f"/dev/{device['name']}")
    if text.startswith("/dev/rbd/") and len(parts) > _MOST_PARTS:
        parts = parts[3:]
    elif text.startswith("/"):
        raise UsageError(f"{given}: this is no RBD device", hint=f"a TARGET is {FORMS}")
    if len(parts) > 1:
        return _image(given, parts)
    if re.fullmatch(_HANDLE, text):
        return Target(argument=given, kind=TargetKind.VOLUME_HANDLE, name=text)
    return Target(argument=given, kind=TargetKind.PERSISTENT_VOLUME, name=text)


def _object(given: str, kind: TargetKind, names: list[str], namespace: str | None) -> Target:
    if not all(names):
        raise UsageError(f"{given}: a name is missing", hint=f"a TARGET is {FORMS}")
    if kind not in _NAMESPACED:
        if len(names) != 1:
            raise UsageError(
                f"{given}: a PersistentVolume has no namespace", hint=f"try pv/{names[-1]}"
            )
        return Target(argument=given, kind=kind, name=names[0])
    match names:
        case [name]:
            return Target(argument=given, kind=kind, name=name, namespace=namespace or "default")
        case [own, name] if namespace in {None, own}:
            return Target(argument=given, kind=kind, name=name, namespace=own)
        case [own, _]:
            raise UsageError(f"{given} is in namespace {own}, but -n names {namespace}")
    raise UsageError(
        f"{given}: too many slashes", hint=f"{kind}/NAMESPACE/NAME, or -n NAMESPACE {kind}/NAME"
    )


def _image(given: str, parts: list[str]) -> Target:
    if not all(parts) or len(parts) > _MOST_PARTS:
        raise UsageError(
            f"{given}: not the name of an image",
            hint="an image is POOL/IMAGE or POOL/NAMESPACE/IMAGE",
        )
    spec = ImageSpec(
        pool=parts[0], namespace=parts[1] if len(parts) == _MOST_PARTS else "", name=parts[-1]
    )
    return Target(argument=given, kind=TargetKind.IMAGE, image=spec)
