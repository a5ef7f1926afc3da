"""What an apply is refused for, according to `lint`: a real API server and kubectl refuse it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.codes import Code
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT
from tests.support.manifests import listed, pv, pvc, storage_class
from tests.support.snapshots import HANDLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.controlplane import ControlPlane

Json = dict[str, Any]

OF_SOURCE: Final = "spec.persistentvolumesource is immutable after creation"
OF_CLAIM: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
IMMUTABLE: Final = "field is immutable"
OTHER: Final = HANDLE.replace("a5aedea1", "b5aedea1")


def zone(name: str) -> Json:
    key = "topology.kubernetes.io/zone"
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [name]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def a_pv(csi: Json | None = None, **spec: Any) -> Json:  # noqa: ANN401 - any field
    return pv(
        "lint-a", claimRef=None, csi=csi, nodeAffinity=spec.pop("affinity", zone("a")), **spec
    )


def a_claim(**spec: Any) -> Json:  # noqa: ANN401 - any field
    own = {"volumeName": "lint-none", "storageClassName": "lint-class", **spec}
    return pvc("lint", namespace="default", **own)


def a_class(**fields: Any) -> Json:  # noqa: ANN401 - any field
    return storage_class("lint-class", **{"volumeBindingMode": "Immediate", **fields})


BEFORE: Final = (a_pv(), a_claim(), a_class())
SECRET: Final = {"nodeStageSecretRef": {"namespace": "other", "name": "s"}}
GROW: Final = {"controllerExpandSecretRef": {"namespace": "other", "name": "s"}}
REFUSED: Final = {
    "another handle": (a_pv({"volumeHandle": OTHER}), OF_SOURCE),
    "another secret": (a_pv(SECRET), OF_SOURCE),
    "another attribute": (a_pv({"volumeAttributes": {"pool": "x"}}), OF_SOURCE),
    "another volumeMode": (a_pv(volumeMode="Block"), IMMUTABLE),
    "another nodeAffinity": (a_pv(affinity=zone("b")), IMMUTABLE),
    "another PV of a claim": (a_claim(volumeName="lint-b"), OF_CLAIM),
    "another class of a claim": (a_claim(storageClassName="other"), OF_CLAIM),
    "further access modes": (a_claim(accessModes=["ReadWriteOnce", "ReadOnlyMany"]), OF_CLAIM),
    "the size of a claim that is not bound": (
        a_claim(resources={"requests": {"storage": "2Gi"}}), OF_CLAIM,
    ),
    "a parameter": (a_class(parameters={"clusterID": "lab-ceph-1", "pool": "x"}), IMMUTABLE),
    "a parameter that is left out": (a_class(parameters={"pool": "k8s"}), IMMUTABLE),
    "another provisioner": (a_class(provisioner="x.example.org"), IMMUTABLE),
    "another reclaim policy": (a_class(reclaimPolicy="Retain"), IMMUTABLE),
    "another binding mode": (a_class(volumeBindingMode="WaitForFirstConsumer"), IMMUTABLE),
}  # fmt: skip
ACCEPTED: Final = {
    "a first secret to grow": a_pv(GROW),
    "the same": a_pv(),
    "the same claim": a_claim(),
    "the same class": a_class(),
}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    control_plane.kubectl("apply", "-f", "-", stdin=listed(*BEFORE))
    return control_plane


def codes_of(cluster: ControlPlane, directory: Path, manifest: Json, *flags: str) -> set[str]:
    file = directory / "restore.json"
    file.write_text(listed(manifest))
    done = cluster.laptop("admin").run(
        *("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent"),
        *("lint", "-f", str(file), "--no-ceph", "-o", "json", *flags),
    )
    assert done.stdout, done.stderr
    found: Json = json.loads(done.stdout)
    assert found["sources"]["kubernetes"]["state"] == "observed"
    return {problem["code"] for problem in found["problems"]}


@pytest.mark.parametrize(("manifest", "words"), REFUSED.values(), ids=REFUSED)
def test_what_lint_reports_is_refused(
    cluster: ControlPlane, tmp_path: Path, manifest: Json, words: str
) -> None:
    assert Code.EXISTS_OTHERWISE in codes_of(cluster, tmp_path, manifest)
    with pytest.raises(LabError, match=words):
        cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))


@pytest.mark.parametrize("manifest", ACCEPTED.values(), ids=ACCEPTED)
def test_what_lint_does_not_report_is_accepted(
    cluster: ControlPlane, tmp_path: Path, manifest: Json
) -> None:
    assert Code.EXISTS_OTHERWISE not in codes_of(cluster, tmp_path, manifest)
    cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))


def test_claim_of_another_namespace_is_refused(cluster: ControlPlane, tmp_path: Path) -> None:
    flags = ("-n", "kube-system")
    assert Code.OTHER_NAMESPACE in codes_of(cluster, tmp_path, a_claim(), *flags)
    with pytest.raises(LabError, match="does not match the namespace"):
        cluster.kubectl("apply", "--dry-run=server", *flags, "-f", "-", stdin=json.dumps(a_claim()))


def test_object_that_is_being_deleted_is_changed_and_goes_away(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    kept = pvc("lint-kept", namespace="default", meta={"finalizers": ["example.org/kept"]})
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(kept))
    cluster.kubectl("delete", "pvc", "lint-kept", "-n", "default", "--wait=false")
    assert Code.BEING_DELETED in codes_of(cluster, tmp_path, kept)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(kept))
    patch = '{"metadata":{"finalizers":null}}'
    cluster.kubectl("patch", "pvc", "lint-kept", "-n", "default", "-p", patch)
    left = cluster.kubectl("get", "pvc", "-n", "default", "-o", "name")
    assert "lint-kept" not in left
