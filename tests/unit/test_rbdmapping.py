"""What an agent publishes about each mapping: its labels, its size, and its schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.codes import Code
from rbdagent.correlate import correlate_node
from rbdagent.model import TargetKind, Verdict
from rbdagent.parse import labels
from rbdagent.parse.kubernetes import rbd_mapping
from rbdagent.report.rbdmapping import MOST_BYTES, mapping_statuses, rbdmapping_objects
from rbdagent.rules import diagnose
from rbdagent.verdicts.timing import AGES
from tests.support.rule_rows.holder_verdicts import (
    DEAD,
    IN_USE,
    ORPHANED,
    PINNED,
    STAGED,
    UNWATCHED,
)
from tests.support.snapshots import (
    CLIENT,
    IMAGE_ID,
    PV,
    SPEC,
    UNSEEN,
    mount,
    opener,
    pod,
    target,
    volume,
    world,
)
from tests.support.unmap_plans import history, identity

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

Json = dict[str, Any]
CRD: Final = yaml.safe_load(
    (Path(__file__).parents[2] / "helm/rbdagent/files/rbdmappings.yaml").read_text()
)
SCHEMA: Final[Json] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
LOCAL: Final = (ORPHANED, IN_USE, STAGED, PINNED, DEAD, UNWATCHED)
LABEL: Final = r"\A(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z"


def node_world(**parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    return world(target=target(argument="", kind=TargetKind.NONE, name=""), **parts)


def objects_of(seen: Snapshot) -> dict[str, Json]:
    diagnoses = [diagnose(use, seen) for use in correlate_node(seen)]
    statuses = mapping_statuses(diagnoses, seen, history(of=identity()))
    return rbdmapping_objects(statuses, "worker-1", observed_at=seen.observed_at)


@pytest.mark.parametrize("seen", [seen for table in LOCAL for seen in table.values()])
def test_only_the_sentence_of_a_step_has_an_age(seen: Snapshot) -> None:
    """An agent does not compare that sentence: an age alone is no change."""
    found = [item["status"]["finding"] for item in objects_of(seen).values()]
    others = [item for item in found if item["code"] != Code.BETWEEN_STEPS]
    assert [item for item in others if re.search(AGES, item["message"])] == []


@pytest.mark.parametrize(
    "seen",
    [
        node_world(),
        node_world(in_kube={"pods": (pod(),)}, mapped={"mounts": (mount(),)}),
        node_world(mapped={"openers": (opener(),)}),
        node_world(mapped={"mounts": UNSEEN, "openers": UNSEEN, "spec": UNSEEN}),
    ],
    ids=["orphan", "in use", "pinned", "half seen"],
)
def test_object_is_valid_against_the_crd_schema(seen: Snapshot) -> None:
    ((name, published),) = objects_of(seen).items()
    assert name == "worker-1.rbd0"
    jsonschema.validate(published, SCHEMA)


def test_labels_select_node_volume_image_and_client() -> None:
    (published,) = objects_of(node_world()).values()
    assert published["metadata"]["labels"] == {
        labels.NODE: "worker-1",
        labels.VOLUME: PV,
        labels.IMAGE: SPEC.name,
        labels.IMAGE_ID: IMAGE_ID,
        labels.CLIENT: str(CLIENT),
    }


def test_object_names_the_claim_of_its_volume() -> None:
    (published,) = objects_of(node_world()).values()
    status = published["status"]
    assert (status["claimNamespace"], status["claim"]) == ("default", "data")


def test_object_of_a_volume_without_a_claim_names_none() -> None:
    parts = {"persistent_volumes": (volume(claim=None),), "claims": ()}
    (published,) = objects_of(node_world(in_kube=parts)).values()
    assert {"claimNamespace", "claim"} & published["status"].keys() == set()


def test_device_of_an_unknown_image_may_be_any_image() -> None:
    (published,) = objects_of(node_world(mapped={"spec": UNSEEN, "image_id": None})).values()
    assert published["metadata"]["labels"][labels.IMAGE] == labels.UNKNOWN_IMAGE
    assert "image" not in published["status"]


def test_unobserved_devices_have_no_object() -> None:
    assert objects_of(node_world(on_node={"mappings": UNSEEN})) == {}


LONG: Final[Json] = {
    "device": "/dev/rbd0",
    "verdict": str(Verdict.PINNED),
    "clientID": CLIENT,
    "image": {"fsid": "f" * 36, "pool": "p" * 60, "name": "i" * 90, "id": "ab12"},
    "persistentVolume": PV,
    "mounts": ["/m" * 100] * 5,
    "pods": ["shop/web-0" * 5] * 5,
    "reasons": ["first " * 10, "second " * 80, "third " * 40],
}


USUAL: Final[Json] = {
    "device": "/dev/rbd0",
    "image": {
        "fsid": "50694798-7cee-5f76-a487-c8b372b8e58a",
        "pool": "replicapool",
        "radosNamespace": "",
        "name": "csi-vol-696e7118-239a-4daa-a2b7-13ec9f7cdaa9",
        "id": "106dfed2a600",
    },
    "clientID": 4251,
    "clientAddress": "10.77.0.12:0/92705246",
    "readOnly": False,
    "persistentVolume": "pvc-a0157d53-3b1e-450b-85cf-c2e3bbf24b66",
    "claimNamespace": "monitoring-of-tenants",
    "claim": "prometheus-k8s-db-prometheus-k8s-0",
    "verdict": str(Verdict.IN_USE),
    "reasons": ["used by pod monitoring-of-tenants/prometheus-k8s-0 on worker-2.example.com"],
    "finding": {
        "code": "RBD100",
        "severity": "info",
        "message": "/dev/rbd0 on worker-2.example.com is in use: used by pod"
        " monitoring-of-tenants/prometheus-k8s-0 on worker-2.example.com.",
    },
    "findings": [],
    "since": "2026-11-28T10:19:01Z",
    "mounts": ["pod monitoring-of-tenants/prometheus-k8s-0", "staging"],
    "heldBy": [],
    "pods": ["monitoring-of-tenants/prometheus-k8s-0"],
}
"""Names as Rook, ceph-csi and the Prometheus operator choose them."""


def test_object_of_usual_names_is_complete() -> None:
    (published,) = rbdmapping_objects(
        [USUAL], "worker-2.example.com", observed_at="2026-11-21T03:00:00Z"
    ).values()
    assert published["status"].items() >= USUAL.items()


def test_object_has_at_most_one_and_a_half_kibibytes() -> None:
    """The identity stays: readers on other nodes compare it."""
    (published,) = rbdmapping_objects([LONG], "n1", observed_at="2026-11-21T03:00:00Z").values()
    sent = [published["metadata"]["labels"], published["status"]]
    assert len(msgspec.json.encode(sent)) <= MOST_BYTES
    status = published["status"]
    assert {key: status[key] for key in ("device", "image", "clientID", "verdict")} == {
        key: LONG[key] for key in ("device", "image", "clientID", "verdict")
    }
    assert (status.get("mounts", []), status["reasons"]) == ([], LONG["reasons"][:1])


@given(st.text(max_size=80))
def test_every_name_is_a_valid_value_of_a_label(name: str) -> None:
    value = labels.label_value(name)
    assert len(value) <= 63
    assert value.isascii()
    assert jsonschema.Draft202012Validator({"pattern": LABEL}).is_valid(value)


def test_different_names_have_different_labels() -> None:
    names = ("a" * 63, "a" * 64, "a" * 65, "", "-", "ä", "pool@image")
    assert len({labels.label_value(name) for name in names}) == len(names)
    assert labels.label_value("a" * 63) == "a" * 63


def test_name_of_an_object_fits_a_long_node() -> None:
    long = "n" * 253
    first, second = (labels.mapping_name(long, f"/dev/rbd{number}") for number in (1, 2))
    assert len(first) <= 253
    assert first != second


def test_address_that_cannot_be_read_hides_no_other_mapping() -> None:
    """The schema admits any text as the address of a client."""
    status = {"device": "/dev/rbd0", "verdict": "InUse", "clientAddress": "not an address"}
    assert rbd_mapping(status).client_address is None
