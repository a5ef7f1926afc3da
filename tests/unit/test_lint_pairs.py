"""The clean pair binds, whatever the manifests were, and leads to the same image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.lint.pairs import SOLVED
from rbdagent.model.lint import CleanPair
from tests.support.manifests import (
    BIND_COMPLETED,
    CLAIM_REF,
    OLD_UID,
    RBD,
    empty_cluster,
    linted,
    pv,
    pvc,
)
from tests.support.snapshots import PV

if TYPE_CHECKING:
    from rbdagent.model import StorageClass

Json = dict[str, Any]

OWNERS: Final = [{"kind": "StatefulSet", "name": "db", "uid": OLD_UID}]
LEFTOVERS: Final[Json] = {
    "uid": OLD_UID,
    "resourceVersion": "77",
    "creationTimestamp": "2026-11-20T03:00:00Z",
    "generation": 2,
    "deletionTimestamp": "2026-11-20T04:00:00Z",
    "finalizers": ["kubernetes.io/pv-protection"],
    "managedFields": [{"manager": "kube-controller-manager"}],
    "ownerReferences": OWNERS,
    "labels": {"app": "db"},
    "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "pv.kubernetes.io/provisioned-by": "rbd.csi.ceph.com",
        "volume.kubernetes.io/storage-provisioner": "rbd.csi.ceph.com",
    },
}


def only_pair(*objects: Json) -> CleanPair:
    (pair,) = linted(*objects).pairs
    return pair


def test_pair_of_a_backup() -> None:
    pair = only_pair(
        pv(meta=LEFTOVERS, claimRef={**CLAIM_REF, "resourceVersion": "9"},
           persistentVolumeReclaimPolicy="Delete") | {"status": {"phase": "Bound"}},
        pvc(meta=LEFTOVERS) | {"status": {"phase": "Bound"}},
    )  # fmt: skip
    volume, claim = pair.volume, pair.claim
    kept = {
        "labels": {"app": "db"},
        "annotations": {"pv.kubernetes.io/provisioned-by": "rbd.csi.ceph.com"},
    }
    assert volume["metadata"] == {"name": PV, **kept}
    assert claim["metadata"] == {"name": "data", "namespace": "shop", **kept}
    assert (set(volume), set(claim)) == (ROOT, ROOT)
    assert volume["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "shop",
        "name": "data",
    }
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert claim["spec"]["volumeName"] == PV
    assert pair.notes == ("the reclaim policy was Delete, and is Retain",)


ROOT: Final = {"apiVersion", "kind", "metadata", "spec"}


def test_claim_is_made_from_a_volume_whose_claim_is_in_no_file() -> None:
    pair = only_pair(pv(claimRef=CLAIM_REF, accessModes=["ReadWriteOnce", "ReadOnlyMany"]))
    assert pair.claim["metadata"] == {"name": "data", "namespace": "shop"}
    assert pair.claim["spec"] == {
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "rbd",
        "volumeMode": "Filesystem",
        "volumeName": PV,
    }
    assert "the claim is not in the files: it is made from the PV" in pair.notes


def test_volume_without_a_class_has_a_claim_without_one_and_not_with_the_default() -> None:
    assert only_pair(pv(storageClassName=None), pvc()).claim["spec"]["storageClassName"] == ""


def test_volume_without_a_claimref_gets_the_only_claim_that_names_it() -> None:
    assert only_pair(pv(claimRef=None), pvc()).volume["spec"]["claimRef"]["name"] == "data"


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param((pv(claimRef=None),), id="no claim names it"),
        pytest.param((pv(claimRef=None), pvc("a"), pvc("b")), id="two claims name it"),
    ],
)
def test_volume_whose_claim_is_unknown_has_no_pair(objects: tuple[Json, ...]) -> None:
    found = linted(*objects)
    assert (found.pairs, found.without_pair) == ((), (PV,))


def test_claim_of_two_volumes_has_one_pair() -> None:
    found = linted(pv(), pv("pv-2", csi={"volumeHandle": "x"}), pvc())
    assert [pair.volume["metadata"]["name"] for pair in found.pairs] == [PV]
    assert found.without_pair == ("pv-2",)


def test_claim_gets_the_volume_that_it_names_also_behind_an_older_one() -> None:
    old = pv("pv-old", csi={"volumeHandle": "x"})
    found = linted(old, pv(), pvc(volumeName=PV))
    assert [pair.volume["metadata"]["name"] for pair in found.pairs] == [PV]
    assert found.without_pair == ("pv-old",)


def test_two_volumes_that_name_a_claim_have_no_pair_if_it_names_none() -> None:
    found = linted(pv(), pv("pv-2", csi={"volumeHandle": "x"}), pvc(volumeName=None))
    assert (found.pairs, found.without_pair) == ((), (PV, "pv-2"))


def test_claim_that_names_a_volume_of_no_file_gets_no_other_one() -> None:
    found = linted(pv(), pvc(volumeName="pv-elsewhere"))
    assert (found.pairs, found.without_pair) == ((), (PV,))


def test_what_a_pair_does_not_solve_is_noted() -> None:
    found = linted(pv(), pvc(), into=empty_cluster(drivers=(), csi_nodes=()))
    (note,) = found.pairs[0].notes
    assert note.startswith("not solved: RBD732 pv pvc-")


_MODES: Final = st.lists(
    st.sampled_from(["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"]),
    min_size=1, max_size=2, unique=True,
)  # fmt: skip
_SIZES: Final = st.sampled_from(["1Gi", "2Gi", "500M", "1000000001"])
_VOLUMES: Final = st.builds(
    pv,
    meta=st.sampled_from([{}, LEFTOVERS]),
    claimRef=st.sampled_from([CLAIM_REF, {"namespace": "shop", "name": "data"}]),
    persistentVolumeReclaimPolicy=st.sampled_from([None, "Delete", "Retain"]),
    storageClassName=st.sampled_from([None, "", "rbd", "gone"]),
    volumeMode=st.sampled_from([None, "Filesystem", "Block"]),
    accessModes=_MODES,
    capacity=_SIZES.map(lambda size: {"storage": size}),
)
_CLAIMS: Final = st.builds(
    pvc,
    meta=st.sampled_from([{}, LEFTOVERS, BIND_COMPLETED]),
    volumeName=st.sampled_from([None, "", PV, "pv-2"]),
    storageClassName=st.sampled_from([None, "", "rbd", "gone"]),
    volumeMode=st.sampled_from([None, "Filesystem", "Block"]),
    accessModes=_MODES,
    resources=_SIZES.map(lambda size: {"requests": {"storage": size}}),
)


@settings(max_examples=60, deadline=None)
@given(
    volume=_VOLUMES,
    claim=st.none() | _CLAIMS,
    known=st.sampled_from([RBD, replace(RBD, is_default=True)]),
)
def test_pair_binds_and_solves_what_it_can(
    volume: Json, claim: Json | None, known: StorageClass
) -> None:
    into = empty_cluster(storage_classes=(known,))
    assume(claim is None or claim["spec"].get("volumeName") in {None, PV})
    objects = (volume,) if claim is None else (volume, claim)
    (pair,) = linted(*objects, into=into).pairs
    again = linted(pair.volume, pair.claim, into=into)
    assert {problem.code for problem in again.problems}.isdisjoint(SOLVED)
    assert [(str(ref), name) for ref, name in again.bindings] == [("shop/data", PV)]
    assert pair.volume["spec"]["csi"] == volume["spec"]["csi"]
    assert again.pairs == (CleanPair(volume=pair.volume, claim=pair.claim),)
