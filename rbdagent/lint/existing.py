"""Objects that exist under the name of a manifest: what the API server does not let change.

An apply merges: of an object that exists, it changes the fields that the manifest has, and removes
those that the last `kubectl apply` had and this one has not. So only such fields are compared. What
cannot be changed: ValidatePersistentVolumeUpdate and ValidatePersistentVolumeClaimUpdate in
pkg/apis/core/validation/validation.go, ValidateStorageClassUpdate in
pkg/apis/storage/validation/validation.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from rbdagent.codes import Code
from rbdagent.errors import ParseError
from rbdagent.lint.context import subject_of
from rbdagent.lint.entries import problem
from rbdagent.model import (
    CsiSource,
    InTreeRbdSource,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.kubernetes import SPEC_FIELDS
from rbdagent.parse.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.lint.context import LintContext
    from rbdagent.model.lint import Manifest, Problem

Json = dict[str, Any]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ABSENT: Final = object()
_SOURCE: Final = "spec.persistentvolumesource is immutable after creation"
_OF_CLAIM: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
_IMMUTABLE: Final = "field is immutable"
_OF_CLASS: Final = "field is immutable, before 1.36: updates to {} are forbidden"
_STORAGE: Final = "spec.resources.requests.storage"


class Difference(NamedTuple):
    """A field that a manifest would change, and that cannot be changed."""

    field: str
    """``spec.csi``: the part of the object that the API server compares."""
    text: str
    """The field in it that differs, with both values."""
    refusal: str
    """The words of the API server."""


def existing_objects(context: LintContext) -> Iterator[Problem]:
    """Report RBD805: an object that exists, and that the manifest would change where it cannot."""
    for item in context.manifests.items:
        differs = tuple(_differences(context, item))
        if not differs:
            continue
        fields = ", ".join(dict.fromkeys(one.field for one in differs))
        yield problem(
            Code.EXISTS_OTHERWISE,
            item,
            differs[0].field,
            f"{subject_of(item)} exists and differs from the manifest in {fields}. This cannot be "
            "changed: the API server refuses the manifest, and the object stays as it is.",
            subject=subject_of(item),
            evidence=(
                *(one.text for one in differs),
                *(f"the API server refuses it: {one.refusal}" for one in differs),
            ),
        )


def being_deleted(context: LintContext) -> Iterator[Problem]:
    """Report RBD817: an object of that name that goes away, whatever is applied."""
    for item in context.manifests.items:
        since = _deleted_since(context, item)
        if since is None:
            continue
        yield problem(
            Code.BEING_DELETED,
            item,
            "metadata.name",
            f"{subject_of(item)} exists here and is being deleted since {foreign_name(since)}: an "
            "apply changes that object, and it then goes away. Nothing stops a deletion.",
            subject=subject_of(item),
            evidence=(f"deletionTimestamp {foreign_name(since)}",),
        )


def _deleted_since(context: LintContext, item: Manifest) -> str | None:
    existing = context.existing(item)
    if existing is not None:
        return existing.deleting_since
    stored = context.stored(item)
    found = (stored or {}).get("metadata", {}).get("deletionTimestamp")
    return found if isinstance(found, str) else None


def _differences(context: LintContext, item: Manifest) -> Iterator[Difference]:
    stored = context.stored(item)
    is_whole = stored is not None
    if stored is None:
        stored = _as_observed(context, item)
    if stored is None:
        return
    compared = _Compared(item.data, stored, _last_applied(stored), is_whole=is_whole)
    match item.object:
        case PersistentVolume():
            yield from _of_volume(compared)
        case PersistentVolumeClaim():
            yield from _of_claim(compared)
        case StorageClass():
            yield from _of_class(compared)


class _Compared(NamedTuple):
    """Two forms of one object, each as JSON."""

    given: Json
    stored: Json
    last: Json
    """What the last apply had; empty if that is unknown."""
    is_whole: bool
    """Whether a field that ``stored`` lacks is absent there."""

    def differing(self, *path: str) -> Iterator[tuple[str, str]]:
        """Yield each field below a path that an apply would change, with both values."""
        found = [_at(one, path) for one in (self.given, self.stored, self.last)]
        yield from _differing(".".join(path), *found, is_whole=self.is_whole)


def _at(data: object, path: tuple[str, ...]) -> object:
    for key in path:
        data = data.get(key, _ABSENT) if isinstance(data, dict) else _ABSENT
    return _ABSENT if data is None else data


def _differing(
    path: str, given: object, stored: object, last: object, *, is_whole: bool
) -> Iterator[tuple[str, str]]:
    if isinstance(given, dict) and (isinstance(stored, dict) or stored is _ABSENT):
        for key in dict.fromkeys((*given, *(last if isinstance(last, dict) else ()))):
            ours, here, before = (_at(one, (key,)) for one in (given, stored, last))
            yield from _differing(f"{path}.{key}", ours, here, before, is_whole=is_whole)
        return
    if given is _ABSENT:
        if last is not _ABSENT and stored is not _ABSENT:
            yield path, f"here {_text(stored)}, absent in the file and in the last apply"
        return
    if stored is _ABSENT and (not is_whole or not given):
        # The API leaves out a field that is empty, false or 0.
        return
    if given != stored:
        yield path, f"here {_text(stored)}, in the file {_text(given)}"


def _text(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return foreign_name(text)


def _last_applied(stored: Json) -> Json:
    """Return what the last `kubectl apply` had; an annotation that every user may write."""
    annotations = (stored.get("metadata") or {}).get("annotations") or {}
    try:
        found = msgspec.json.decode(annotations.get(_LAST_APPLIED) or "{}")
    except (msgspec.DecodeError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _as_observed(context: LintContext, item: Manifest) -> Json | None:
    """Return what a snapshot contains of an object that exists; None if none was observed."""
    existing = context.existing(item)
    match existing:
        case PersistentVolume(source=CsiSource() as source):
            csi = {
                "driver": source.driver,
                "volumeHandle": source.volume_handle,
                "volumeAttributes": dict(source.attributes),
                **({"fsType": source.fs_type} if source.fs_type else {}),
            }
            return {"spec": {"csi": csi, "volumeMode": existing.volume_mode}}
        case PersistentVolume(source=InTreeRbdSource() as source):
            rbd = {"image": source.spec.name, "pool": source.spec.pool}
            return {"spec": {"rbd": rbd, "volumeMode": existing.volume_mode}}
        case PersistentVolume(source=OtherSource() as source):
            # Another driver, or another kind of source.
            csi = {"driver": source.kind, "volumeHandle": source.volume_handle or ""}
            of_kind: Json = {"csi": csi} if source.volume_handle else {source.kind: {}}
            return {"spec": {**of_kind, "volumeMode": existing.volume_mode}}
        case PersistentVolumeClaim():
            return _claim_as_observed(existing)
    known = context.class_before(item.name) if isinstance(item.object, StorageClass) else None
    if known is None:
        return None
    named = {"pool": known.pool, "dataPool": known.data_pool, "clusterID": known.cluster_id}
    return {
        "provisioner": known.provisioner,
        "reclaimPolicy": known.reclaim_policy,
        "volumeBindingMode": known.binding_mode,
        "parameters": {key: value for key, value in named.items() if value},
    }


def _claim_as_observed(claim: PersistentVolumeClaim) -> Json:
    return {
        "spec": {
            "accessModes": [*claim.access_modes],
            "volumeMode": claim.volume_mode,
            **({"volumeName": claim.volume_name} if claim.volume_name else {}),
            **({} if claim.storage_class is None else {"storageClassName": claim.storage_class}),
            **({"resources": {"requests": {"storage": str(claim.requested_bytes)}}}
               if claim.requested_bytes else {}),
        },
        "status": {
            "phase": claim.phase,
            **({"capacity": {"storage": str(claim.capacity_bytes)}}
               if claim.capacity_bytes else {}),
        },
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------
# One kind each
# --------------------------------------------------------------------------------------------------


def _of_volume(compared: _Compared) -> Iterator[Difference]:
    given, stored = compared.given["spec"], compared.stored["spec"]
    for kind in sorted(key for key in given if key not in SPEC_FIELDS and given[key] is not None):
        if kind not in stored:
            here = ", ".join(sorted(key for key in stored if key not in SPEC_FIELDS))
            text = f"here {foreign_name(here)}, in the file {foreign_name(kind)}"
            yield Difference(f"spec.{foreign_name(kind)}", text, _SOURCE)
            continue
        for path, text in compared.differing("spec", kind):
            is_new_secret = path.startswith("spec.csi.controllerExpandSecretRef") and not (
                stored["csi"].get("controllerExpandSecretRef")
            )
            if not is_new_secret:
                yield Difference(f"spec.{kind}", f"{path}: {text}", _SOURCE)
    for path, text in compared.differing("spec", "volumeMode"):
        yield Difference("spec.volumeMode", f"{path}: {text}", _IMMUTABLE)
    if stored.get("nodeAffinity"):
        for path, text in compared.differing("spec", "nodeAffinity"):
            yield Difference(
                "spec.nodeAffinity",
                f"{path}: {text}",
                f"{_IMMUTABLE}, unless the feature gate MutablePVNodeAffinity is on, or only names "
                "of beta labels become those of GA",
            )


def _of_claim(compared: _Compared) -> Iterator[Difference]:
    stored = compared.stored["spec"]
    is_bound = (compared.stored.get("status") or {}).get("phase") == "Bound"
    # A volumeName is allowed once, and so is the class of a claim without one.
    once = tuple(key for key in ("volumeName", "storageClassName") if stored.get(key) is not None)
    compared_whole = ("volumeAttributesClassName",) if not is_bound else ()
    for key in (
        *once, "accessModes", "volumeMode", "selector", "dataSource", "dataSourceRef",
        *compared_whole,
    ):  # fmt: skip
        for path, text in compared.differing("spec", key):
            yield Difference(f"spec.{key}", f"{path}: {text}", _OF_CLAIM)
    yield from _of_size(compared, is_bound=is_bound)


def _of_size(compared: _Compared, *, is_bound: bool) -> Iterator[Difference]:
    path = ("spec", "resources", "requests", "storage")
    given, stored = (_size(_at(one, path)) for one in (compared.given, compared.stored))
    if given is None or stored is None or given == stored:
        return
    if not is_bound:
        text = "the request of a claim that is not bound cannot be changed"
        yield Difference(_STORAGE, text, _OF_CLAIM)
        return
    has = _size(_at(compared.stored, ("status", "capacity", "storage")))
    if given < stored and (has is None or given <= has):
        yield Difference(
            _STORAGE,
            "the request cannot be lowered",
            "field can not be less than status.capacity, before 1.32: less than previous value",
        )


def _size(value: object) -> int | None:
    if not isinstance(value, (str, int, float)):
        return None
    try:
        return parse_quantity(str(value))
    except ParseError:
        return None


def _of_class(compared: _Compared) -> Iterator[Difference]:
    for key in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
        for path, text in compared.differing(key):
            # Drivers of other storage may have keys in their parameters.
            shown = f"{path}: {text}" if key != "parameters" else f"{path} differs"
            yield Difference(key, shown, _OF_CLASS.format(key))


CHECKS: Final = (existing_objects, being_deleted)
