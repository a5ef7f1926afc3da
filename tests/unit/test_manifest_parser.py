"""Manifests in YAML and JSON: their places, their fields, and errors that quote nothing."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import yaml

from rbdagent.errors import ParseError
from rbdagent.model import CsiSource, ObjectRef, PersistentVolume
from rbdagent.model.lint import Manifests, SecretRef
from rbdagent.parse.documents import MOST_BYTES, parse_documents
from rbdagent.parse.manifest import joined_manifests, parse_manifests
from tests.support.manifests import SECRET, content, listed, pv, pvc, storage_class
from tests.support.snapshots import HANDLE

Json = dict[str, Any]


def parsed(text: str) -> Manifests:
    return parse_manifests(text, file="f.yaml", namespace="default")


def error_of(text: str) -> str:
    with pytest.raises(ParseError) as failed:
        parsed(text)
    return str(failed.value)


# --------------------------------------------------------------------------------------------------
# Forms
# --------------------------------------------------------------------------------------------------

BOTH: Final = (pv(), pvc())
FORMS: Final = {
    "a List of JSON": (listed(*BOTH), ["document 1, item 1", "document 1, item 2"]),
    "a List of YAML": (
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [*BOTH]}),
        ["document 1, item 1", "document 1, item 2"],
    ),
    "documents of YAML": (yaml.safe_dump_all(BOTH), ["document 1", "document 2"]),
    "documents of YAML, the first one empty": (
        f"---\n---\n{yaml.safe_dump_all(BOTH)}",
        ["document 2", "document 3"],
    ),
    "JSON objects that follow each other": (
        "\n".join(map(json.dumps, BOTH)),
        ["document 1", "document 2"],
    ),
}


@pytest.mark.parametrize(("text", "places"), FORMS.values(), ids=FORMS)
def test_each_form_has_the_same_objects_with_their_places(text: str, places: list[str]) -> None:
    found = parsed(text).items
    assert [item.object for item in found] == [item.object for item in parsed(FORMS_TEXT).items]
    assert [str(item.place) for item in found] == [f"f.yaml, {place}" for place in places]


FORMS_TEXT: Final = listed(*BOTH)


def test_items_of_a_list_of_the_api_need_no_kind() -> None:
    item = {key: value for key, value in pv().items() if key not in {"apiVersion", "kind"}}
    text = json.dumps({"apiVersion": "v1", "kind": "PersistentVolumeList", "items": [item]})
    assert [found.kind for found in parsed(text).items] == ["PersistentVolume"]


def test_objects_of_every_kind_are_read() -> None:
    found = parsed(listed(pv(), pvc(), storage_class(), content())).items
    kinds = [type(item.object).__name__ for item in found]
    assert kinds == ["PersistentVolume", "PersistentVolumeClaim", "StorageClass", "ContentManifest"]


def test_other_kinds_are_counted_and_their_content_is_not_kept() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "data": {"userKey": "hidden"}}
    named = secret | {"metadata": {"name": "s", "namespace": "ceph"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    found = parsed(listed(pv(), pod, pod, named, space))
    assert found.others == (("Pod", 2),)
    assert found.secrets == frozenset({("ceph", "s")})
    assert found.namespaces == frozenset({"shop"})
    assert "hidden" not in repr(found)


def test_kind_of_another_group_is_another_kind() -> None:
    found = parsed(listed(pv(), storage_class() | {"apiVersion": "storage.example.org/v1"}))
    assert found.others == (("StorageClass", 1),)


# --------------------------------------------------------------------------------------------------
# Fields
# --------------------------------------------------------------------------------------------------


def test_fields_of_a_volume() -> None:
    claim = {"namespace": "shop", "name": "data", "uid": "u"}
    (item,) = parsed(listed(pv(claimRef=claim, persistentVolumeReclaimPolicy=None))).items
    volume = item.object
    assert isinstance(volume, PersistentVolume)
    assert isinstance(volume.source, CsiSource)
    assert volume.source.volume_handle == HANDLE
    assert volume.claim == ObjectRef(namespace="shop", name="data", uid="u")
    # The default of a PV that names no policy.
    assert volume.reclaim_policy == "Retain"
    assert item.secrets == (
        SecretRef(field="spec.csi.nodeStageSecretRef", namespace=SECRET[0], name=SECRET[1]),
    )


def test_claim_without_a_namespace_is_in_the_given_one() -> None:
    data = pvc()
    del data["metadata"]["namespace"]
    (item,) = parsed(listed(data)).items
    assert item.namespace == "default"


def test_dates_of_yaml_are_texts() -> None:
    text = yaml.safe_dump(pv(meta={"creationTimestamp": "T"})).replace(
        "creationTimestamp: T", "creationTimestamp: 2026-11-20T03:00:00Z"
    )
    (item,) = parsed(text).items
    assert item.data["metadata"]["creationTimestamp"] == "2026-11-20T03:00:00Z"


def test_aliases_of_yaml_are_followed() -> None:
    text = yaml.safe_dump(pv()).replace("storageClassName: rbd", "storageClassName: &c rbd")
    other = yaml.safe_dump(pvc()).replace("storageClassName: rbd", "storageClassName: &d rbd")
    assert len(parsed(f"{text}---\n{other}").items) == 2


# --------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------

_NAMES: Final = "expected a name that Kubernetes accepts, such as data-1"
FIELDS: Final = {
    "no metadata": (pv() | {"metadata": None}, "the field metadata of a PersistentVolume"),
    "no name": (pv(meta={"name": None}), "the field metadata.name of a PersistentVolume"),
    "a name with a quote": (pv('x". pv-2'), f"metadata.name of a PersistentVolume: {_NAMES}"),
    "a name with a line break": (pv("a\n"), f"metadata.name of a PersistentVolume: {_NAMES}"),
    "no spec": (pv() | {"spec": None}, "the field spec of a PersistentVolume"),
    "no handle": (pv(csi={"volumeHandle": None}), "spec.csi.volumeHandle of a PersistentVolume"),
    "a number for a handle": (
        pv(csi={"volumeHandle": 7}),
        "spec.csi.volumeHandle of a PersistentVolume: expected a text, and found a number",
    ),
    "a switch for a class": (
        pv(storageClassName=True),
        "spec.storageClassName of a PersistentVolume: expected a text or nothing, and found true",
    ),
    "a policy in lower case": (
        pv(persistentVolumeReclaimPolicy="delete"),
        "spec.persistentVolumeReclaimPolicy of a PersistentVolume: expected a value that",
    ),
    "a size with a space": (pv(capacity={"storage": "10 GB"}), "expected a number and a unit"),
    "a text for access modes": (
        pvc(accessModes="ReadWriteOnce"),
        "spec.accessModes of a PersistentVolumeClaim: expected a list or nothing",
    ),
    "a claimRef without a namespace": (
        pv(claimRef={"name": "data"}),
        "the field spec.claimRef.namespace of a PersistentVolume: expected a value",
    ),
    "a volumeName with a slash": (
        pvc(volumeName="a/b"),
        "spec.volumeName of a PersistentVolumeClaim",
    ),
    "an annotation that is a number": (
        pv(meta={"annotations": {"a": 1}}),
        "the field metadata.annotations[...] of a PersistentVolume",
    ),
    "an owner without a uid": (
        pvc(meta={"ownerReferences": [{"kind": "StatefulSet", "name": "db"}]}),
        "metadata.ownerReferences[0].uid",
    ),
    "a class without a provisioner": (
        storage_class(provisioner=None),
        "the field provisioner of a StorageClass",
    ),
    "a content without a source": (content(source=None), "spec.source of a VolumeSnapshotContent"),
}


@pytest.mark.parametrize(("data", "expected"), FIELDS.values(), ids=FIELDS)
def test_error_names_file_document_field_and_what_was_expected(data: Json, expected: str) -> None:
    said = error_of(yaml.safe_dump_all([pvc("first"), data]))
    assert said.startswith("f.yaml, document 2: cannot read ")
    assert expected in said


TEXTS: Final = {
    "an empty file": ("", "f.yaml: cannot read manifests: expected PersistentVolumes"),
    "only other kinds": (
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}',
        "expected PersistentVolumes",
    ),
    "a text": ("hidden", "f.yaml, document 1: cannot read a manifest: expected an object with"),
    "a list": ("- hidden", "document 1: cannot read a manifest: expected an object with"),
    "no kind": ("password: hidden", "expected an object with apiVersion and kind"),
    "broken YAML": ("a: [\n", "expected YAML or JSON; line 2, column 1, did not find expected"),
    "broken JSON": ('{"password": "hidden', "expected YAML or JSON; line 1, column"),
    "an unknown tag": ("a: !hidden b", "expected YAML or JSON; line 1, column 4"),
    "a list for a key": ("? [hidden]\n: b", "expected YAML or JSON"),
    "binary data": ("a: !!binary hidden", "cannot read"),
    "a set": ("a: !!set {hidden}", "expected an object with apiVersion and kind"),
    "a control character": ("a: \x01", "expected YAML or JSON"),
    "half a character": ('{"a": "\\ud800"}', "expected only what JSON can contain"),
    "items that are no list": (
        '{"apiVersion": "v1", "kind": "List", "items": {}}',
        "cannot read the field items: expected a list",
    ),
    "an item that is no object": (
        '{"apiVersion": "v1", "kind": "List", "items": ["hidden"]}',
        "document 1, item 1: cannot read a manifest: expected an object",
    ),
    "lists that are nested deeply": ("[" * 50_000, "nested at most 100 deep; line 1"),
    "objects that are nested deeply": ('{"a":' * 50_000, "nested at most 100 deep; line 1"),
    "an alias of itself": ("a: &a [*a]", "expected aliases that mean at most 100000 nodes"),
    "an alias of nothing": ("a: *b", "expected aliases"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_text_that_has_no_manifests_is_refused_without_a_quotation(
    text: str, expected: str
) -> None:
    said = error_of(text)
    assert expected in said
    assert "hidden" not in said


def test_aliases_that_grow_by_powers_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    assert "expected aliases that mean at most 100000 nodes in total" in error_of("\n".join(lines))


def test_merged_keys_that_grow_by_powers_are_refused() -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 20)]
    assert "expected aliases" in error_of("\n".join(lines))


def test_file_above_the_limit_is_refused() -> None:
    with pytest.raises(ParseError, match="at most 16 MiB in a file"):
        parse_documents(" " * (MOST_BYTES + 1), file="f.yaml")


def test_object_that_two_files_have_is_refused_with_both_places() -> None:
    one = parse_manifests(listed(pv()), file="a.json", namespace="default")
    two = parse_manifests(json.dumps(pv()), file="b.json", namespace="default")
    with pytest.raises(ParseError, match=r"b.json, document 1: .* a.json, document 1, item 1 has"):
        joined_manifests([one, two])


def test_too_many_objects_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbdagent.parse.manifest.MOST_OBJECTS", 1)
    assert "item 2: cannot read manifests: expected at most 1 objects" in error_of(FORMS_TEXT)
