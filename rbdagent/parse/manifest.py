"""Manifests of PersistentVolumes, claims, StorageClasses and VolumeSnapshotContents: YAML or JSON.

A file is what ``kubectl get -o yaml`` or Velero saved, or written by hand: one document or many,
each an object or a List. Errors name the document and the field, and quote nothing of the file,
which may be any file that root can read.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from rbdagent.errors import ParseError
from rbdagent.model.lint import (
    ContentManifest,
    Manifest,
    ManifestObject,
    Manifests,
    Place,
    SecretRef,
)
from rbdagent.parse import kubernetes as read
from rbdagent.parse.documents import parse_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Json = dict[str, Any]

MOST_OBJECTS: Final = 20_000
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_EXPECTED: Final = (
    "PersistentVolumes, PersistentVolumeClaims, StorageClasses or VolumeSnapshotContents, as "
    "`kubectl get -o yaml` prints them"
)
_DEFAULT_POLICY: Final = "Retain"
"""Of a PV that names none (SetDefaults_PersistentVolume, pkg/apis/core/v1/defaults.go)."""


def parse_manifests(text: str, *, file: str, namespace: str) -> Manifests:
    """Parse the manifests of one file.

    Args:
        text: of the file.
        file: its name, for the places of the manifests and for errors.
        namespace: of claims whose manifest names none.

    Raises:
        ParseError: it is neither YAML nor JSON, an object lacks a field or has another type in it,
            its aliases or its nesting are too much, or it has no object that is examined.
    """
    found = _Found(namespace)
    for number, document in enumerate(parse_documents(text, file=file), start=1):
        for place, data in _objects(document, Place(file=file, document=number)):
            found.add(data, place)
    if not (found.items or found.namespaces or found.secrets or found.drivers):
        raise _unreadable(file, "manifests", _EXPECTED)
    return found.manifests()


def joined_manifests(parts: Iterable[Manifests]) -> Manifests:
    """Return the manifests of several files, in their order.

    Raises:
        ParseError: one object is in them twice, or none is examined.
    """
    every = tuple(parts)
    others: Counter[str] = Counter()
    for part in every:
        others.update(dict(part.others))
    items = tuple(chain.from_iterable(part.items for part in every))
    if not items:
        raise _unreadable("the files", "manifests", _EXPECTED)
    known: dict[tuple[str, str, str], Manifest] = {}
    for item in items:
        first = known.setdefault((item.kind, item.namespace, item.name), item)
        if first is not item:
            raise _unreadable(
                str(item.place), f"a {item.kind}", f"each object once; {first.place} has it, too"
            )
    return Manifests(
        items=items,
        namespaces=frozenset().union(*(part.namespaces for part in every)),
        secrets=frozenset().union(*(part.secrets for part in every)),
        drivers=frozenset().union(*(part.drivers for part in every)),
        others=tuple(sorted(others.items())),
    )


class _Found:
    """The objects of a file so far."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._others: Counter[str] = Counter()
        self.items: list[Manifest] = []
        self.namespaces: set[str] = set()
        self.secrets: set[tuple[str, str]] = set()
        self.drivers: set[str] = set()

    def add(self, data: Json, place: Place) -> None:
        """Take an object.

        Raises:
            ParseError: it lacks a field or has another type in it, or there are too many.
        """
        kind, group = _kind_of(data, place)
        if _GROUPS.get(kind) == group:
            if len(self.items) == MOST_OBJECTS:
                raise _unreadable(str(place), "manifests", f"at most {MOST_OBJECTS} objects")
            self.items.append(_READERS[kind](data, place, self._namespace))
            return
        if kind in {"Namespace", "Secret", "CSIDriver"}:
            meta = _checked(_Named, data, place, kind).metadata
            self.namespaces |= {meta.name} if kind == "Namespace" else set()
            self.drivers |= {meta.name} if kind == "CSIDriver" else set()
            if kind == "Secret":
                self.secrets.add((meta.namespace or self._namespace, meta.name))
            return
        self._others[kind if _KIND.fullmatch(kind) else "another kind"] += 1

    def manifests(self) -> Manifests:
        return Manifests(
            items=tuple(self.items),
            namespaces=frozenset(self.namespaces),
            secrets=frozenset(self.secrets),
            drivers=frozenset(self.drivers),
            others=tuple(sorted(self._others.items())),
        )


def _unreadable(where: str, what: str, expected: str) -> ParseError:
    return ParseError(what=what, where=where, text=None, expected=expected)


# --------------------------------------------------------------------------------------------------
# Documents
# --------------------------------------------------------------------------------------------------


def _objects(document: object, place: Place) -> Iterator[tuple[Place, Json]]:
    """Yield the object of a document, or those of a List; an empty document has none.

    Raises:
        ParseError: it is neither.
    """
    if document is None:
        return
    data = _as_json(document, place)
    kind = data.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in data):
        yield place, data
        return
    items = data["items"]
    if not isinstance(items, list):
        raise _unreadable(str(place), "the field items", "a list")
    shared = {"apiVersion": data.get("apiVersion"), "kind": kind.removesuffix("List")}
    for number, item in enumerate(items, start=1):
        at = replace(place, item=number)
        if isinstance(item, dict) and item.get("kind") == "List":
            # As kubectl, which visits the objects of a List in a List.
            yield from _objects(item, replace(place, item=None))
            continue
        if not isinstance(item, dict):
            raise _unreadable(str(at), "a manifest", "an object with apiVersion and kind")
        # The API server does not repeat the kind in the items of a PersistentVolumeList.
        yield at, item if shared["kind"] == "" else shared | item


def _as_json(document: object, place: Place) -> Json:
    """Return a document as JSON has it: only texts as keys, and no types of YAML."""
    if not isinstance(document, dict):
        raise _unreadable(str(place), "a manifest", "an object with apiVersion and kind")
    try:
        found: Json = msgspec.json.decode(msgspec.json.encode(document))
    except (ValueError, TypeError, OverflowError, RecursionError, NotImplementedError):
        expected = "only what JSON can contain: texts as keys, and no dates, sets or binary data"
        raise _unreadable(str(place), "a manifest", expected) from None
    return found


def _kind_of(data: Json, place: Place) -> tuple[str, str]:
    """Return the kind of an object, and the group of the API that it belongs to."""
    kind, version = data.get("kind"), data.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str) or not kind or not version:
        raise _unreadable(str(place), "a manifest", "an object with apiVersion and kind")
    return kind, version.rpartition("/")[0]


# --------------------------------------------------------------------------------------------------
# Shapes: the fields that are read, so that each error names one
# --------------------------------------------------------------------------------------------------


class _Shape(Struct, rename="camel"):
    """Fields of an object; there may be others."""


_SUBDOMAIN: Final = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_Name = Annotated[str, Meta(max_length=253, pattern=rf"^{_SUBDOMAIN}\Z")]
"""As the API server requires it (IsDNS1123Subdomain): output does not quote names of objects."""
_NameOrNone = Annotated[str, Meta(max_length=253, pattern=rf"^(?:{_SUBDOMAIN})?\Z")]
_Driver = Annotated[str, Meta(max_length=253, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_./]*\Z")]
_Kind = Annotated[str, Meta(max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9]*\Z")]


class _Owner(_Shape):
    kind: _Kind
    name: _Name
    uid: str


class _Meta(_Shape):
    name: _Name
    namespace: _Name | None = None
    uid: str | None = None
    resource_version: str | int | None = None
    annotations: dict[str, str | None] | None = None
    labels: dict[str, str | None] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


class _Named(_Shape):
    metadata: _Meta


_S = TypeVar("_S", bound=_Named)


class _ClaimRef(_Shape):
    name: _Name
    namespace: _Name
    uid: str | None = None


class _Reference(_Shape):
    name: _NameOrNone | None = None
    namespace: _NameOrNone | None = None


class _Csi(_Shape):
    driver: _Driver
    volume_handle: str
    volume_attributes: dict[str, str | None] | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    controller_publish_secret_ref: _Reference | None = None
    node_stage_secret_ref: _Reference | None = None
    node_publish_secret_ref: _Reference | None = None
    controller_expand_secret_ref: _Reference | None = None
    node_expand_secret_ref: _Reference | None = None


class _Rbd(_Shape):
    image: str
    pool: str | None = None
    monitors: list[str] | None = None
    read_only: bool | None = None
    secret_ref: _Reference | None = None


class _VolumeSpec(_Shape):
    access_modes: list[str] | None = None
    capacity: dict[str, str | int | float] | None = None
    claim_ref: _ClaimRef | None = None
    csi: _Csi | None = None
    rbd: _Rbd | None = None
    storage_class_name: _NameOrNone | None = None
    persistent_volume_reclaim_policy: Literal["Retain", "Delete", "Recycle"] | None = None
    volume_mode: Literal["Filesystem", "Block"] | None = None
    mount_options: list[str] | None = None
    volume_attributes_class_name: str | None = None


class _Volume(_Named):
    spec: _VolumeSpec


class _Resources(_Shape):
    requests: dict[str, str | int | float] | None = None


class _ClaimSpec(_Shape):
    access_modes: list[str] | None = None
    resources: _Resources | None = None
    storage_class_name: _NameOrNone | None = None
    volume_name: _NameOrNone | None = None
    volume_mode: Literal["Filesystem", "Block"] | None = None
    volume_attributes_class_name: str | None = None


class _Claim(_Named):
    spec: _ClaimSpec


class _Class(_Named):
    provisioner: _Driver
    parameters: dict[str, str | None] | None = None
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None


class _SnapshotSource(_Shape):
    snapshot_handle: str | None = None
    volume_handle: str | None = None


class _ContentSpec(_Shape):
    driver: _Driver
    source: _SnapshotSource
    deletion_policy: Literal["Retain", "Delete"]


class _Content(_Named):
    spec: _ContentSpec


def _checked(shape: type[_S], data: Json, place: Place, kind: str) -> _S:
    """Return the fields that are read.

    Raises:
        ParseError: one is missing or has another type; the error names it.
    """
    # As in report/snapshot.py: msgspec.convert does not check the size of numbers.
    encoded = msgspec.json.encode([data])
    try:
        (found,) = msgspec.json.decode(encoded, type=list[shape])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        field, expected = _wrong_field(str(error))
        what = f"the field {field} of a {kind}" if field else f"a {kind}"
        raise _unreadable(str(place), what, expected) from None
    checked: _S = found
    if not checked.metadata.name:
        raise _unreadable(str(place), f"the field metadata.name of a {kind}", "a name")
    return checked


_TYPE: Final = re.compile("`([^`]*)`")
_WORDS: Final = {
    "str": "a text", "int": "a number", "float": "a number", "bool": "true or false",
    "object": "an object", "array": "a list", "null": "nothing",
}  # fmt: skip


def _wrong_field(message: str) -> tuple[str, str]:
    """Return the field that a message of msgspec names, and what it expects there.

    Of a path, the keys of a map are ``[...]``. A message that may quote the file is left out.
    """
    said, _, place = message.rpartition(" - at `$[0]")
    place = place.removesuffix("`").removeprefix(".")
    if said.startswith(("Expected `str` matching", "Expected `str` of length")):
        return place, "a name that Kubernetes accepts, such as data-1"
    if said.startswith("Invalid enum value"):
        return place, "a value that Kubernetes accepts"
    if said.startswith("Expected "):
        words = _TYPE.sub(_in_words, said.removeprefix("Expected "))
        return place, words.replace(", got ", ", and found ")
    if said.startswith("Object missing required field"):
        field = said.split("`")[1]
        return f"{place}.{field}".removeprefix("."), "a value, and found nothing"
    return place, "another value"


def _in_words(types: re.Match[str]) -> str:
    return " or ".join(dict.fromkeys(_WORDS.get(name, name) for name in types[1].split(" | ")))


# --------------------------------------------------------------------------------------------------
# Objects
# --------------------------------------------------------------------------------------------------


def _volume(data: Json, place: Place, _: str) -> Manifest:
    shape = _checked(_Volume, data, place, "PersistentVolume")
    found = _model(read.persistent_volume, data, place, "PersistentVolume")
    return _manifest(
        data,
        place,
        replace(found, reclaim_policy=found.reclaim_policy or _DEFAULT_POLICY),
        shape.metadata,
        secrets=tuple(_secrets(shape.spec)),
    )


def _secrets(spec: _VolumeSpec) -> Iterator[SecretRef]:
    csi = spec.csi
    references = (
        ()
        if csi is None
        else (
            ("csi.controllerPublishSecretRef", csi.controller_publish_secret_ref),
            ("csi.nodeStageSecretRef", csi.node_stage_secret_ref),
            ("csi.nodePublishSecretRef", csi.node_publish_secret_ref),
            ("csi.controllerExpandSecretRef", csi.controller_expand_secret_ref),
            ("csi.nodeExpandSecretRef", csi.node_expand_secret_ref),
        )
    )
    for field, reference in references:
        if reference is not None and reference.name and reference.namespace:
            yield SecretRef(
                field=f"spec.{field}", namespace=reference.namespace, name=reference.name
            )


def _claim(data: Json, place: Place, namespace: str) -> Manifest:
    shape = _checked(_Claim, data, place, "PersistentVolumeClaim")
    # kubectl puts an object without a namespace into that of its context.
    meta = {**data["metadata"], "namespace": shape.metadata.namespace or namespace}
    found = _model(read.claim, data | {"metadata": meta}, place, "PersistentVolumeClaim")
    return _manifest(data, place, found, shape.metadata, namespace=found.ref.namespace)


def _class(data: Json, place: Place, _: str) -> Manifest:
    shape = _checked(_Class, data, place, "StorageClass")
    found = _model(read.storage_class, data, place, "StorageClass")
    return _manifest(data, place, found, shape.metadata)


def _content(data: Json, place: Place, _: str) -> Manifest:
    shape = _checked(_Content, data, place, "VolumeSnapshotContent")
    found = ContentManifest(
        name=shape.metadata.name,
        driver=shape.spec.driver,
        snapshot_handle=shape.spec.source.snapshot_handle,
        volume_handle=shape.spec.source.volume_handle,
        deletion_policy=shape.spec.deletion_policy,
    )
    return _manifest(data, place, found, shape.metadata)


_M = TypeVar("_M", bound=Struct)


def _model(reader: Callable[[Json], _M], data: Json, place: Place, kind: str) -> _M:
    """Return an object of the model; its required fields and their types are known to be right."""
    try:
        return reader(data)
    except ParseError as error:
        raise _unreadable(str(place), f"{error.what} of a {kind}", error.expected) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        expected = "the fields that the API server accepts"
        raise _unreadable(str(place), f"a {kind}", expected) from None


def _manifest(
    data: Json,
    place: Place,
    found: ManifestObject,
    meta: _Meta,
    *,
    namespace: str = "",
    secrets: tuple[SecretRef, ...] = (),
) -> Manifest:
    return Manifest(
        place=place,
        kind=str(data["kind"]),
        name=meta.name,
        namespace=namespace,
        data=data,
        object=found,
        secrets=secrets,
        owners=tuple(
            (f"{owner.kind}/{owner.name}", owner.uid) for owner in meta.owner_references or ()
        ),
        resource_version=bool(meta.resource_version),
    )


_READERS: Final[dict[str, Callable[[Json, Place, str], Manifest]]] = {
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "StorageClass": _class,
    "VolumeSnapshotContent": _content,
}
"""The kinds that are examined."""
_GROUPS: Final = {
    "PersistentVolume": "",
    "PersistentVolumeClaim": "",
    "StorageClass": "storage.k8s.io",
    "VolumeSnapshotContent": "snapshot.storage.k8s.io",
}
"""Their groups of the API: others have kinds of the same names."""
