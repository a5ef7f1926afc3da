"""Fields of raw API objects that show the life of a volume."""

from __future__ import annotations

from typing import Any

import pytest

from rbdagent.parse import kubernetes as read
from rbdagent.parse.handle import lease_names

OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def a_claim(spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    meta = {"namespace": "default", "name": "data", "annotations": annotations}
    return {"metadata": meta, "spec": spec}


def a_volume(spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "pv", "annotations": annotations}, "spec": {"nfs": {}, **spec}}


@pytest.mark.parametrize(
    ("spec", "annotations", "storage_class"),
    [
        ({}, {}, None),
        ({"storageClassName": ""}, {}, ""),
        ({"storageClassName": "new"}, {}, "new"),
        ({"storageClassName": "new"}, {OLD_CLASS: "old"}, "old"),
        ({"storageClassName": "new"}, {OLD_CLASS: ""}, ""),
    ],
)
def test_beta_class_annotation_outranks_the_field(
    spec: dict[str, Any], annotations: dict[str, str], storage_class: str | None
) -> None:
    assert read.claim(a_claim(spec, **annotations)).storage_class == storage_class
    assert read.persistent_volume(a_volume(spec, **annotations)).storage_class == (
        storage_class or ""
    )


@pytest.mark.parametrize("uid", [None, ""])
def test_empty_uid_in_a_claim_ref_is_none(uid: str | None) -> None:
    reference = {"namespace": "default", "name": "data", "uid": uid}
    found = read.persistent_volume(a_volume({"claimRef": reference})).claim
    assert found is not None
    assert found.uid is None


@pytest.mark.parametrize(
    ("container", "serves"),
    [
        ({"args": ["--drivername=rbd.csi.ceph.com"]}, ("rbd.csi.ceph.com",)),
        ({"args": ["--provisioner", "x.org"]}, ("x.org",)),
        ({"command": ["/p", "-provisioner=x.org"]}, ("x.org",)),
        ({"env": [{"name": "PROVISIONER_NAME", "value": "ceph.com/rbd"}]}, ("ceph.com/rbd",)),
        ({"env": [{"name": "PROVISIONER_NAME", "valueFrom": {}}]}, ()),
        ({"args": ["--drivernames=x"]}, ()),
    ],
)
def test_driver_pod_is_parsed_to_its_provisioner_names(
    container: dict[str, Any], serves: tuple[str, ...]
) -> None:
    pod = {
        "metadata": {"namespace": "csi", "name": "p"},
        "spec": {"containers": [{"image": "i:1", **container}]},
    }
    found = read.driver_pod(pod)
    assert found.serves == serves
    assert found.images == ("i:1",)
    assert not found.ready


def test_lease_names_are_the_current_and_the_former_form() -> None:
    assert lease_names("rbd.csi.ceph.com") == ("rbd-csi-ceph-com", "rbd.csi.ceph.com")
    assert lease_names("ceph.com/rbd") == ("ceph-com-rbd", "ceph.com-rbd")
