"""A class without what ceph-csi needs: all that it lacks, and a class that has it."""

from __future__ import annotations

from typing import Any, Final

from rbdagent.model import StorageClass
from rbdagent.parse import kubernetes as read
from tests.support.rows import each_row
from tests.support.rule_rows.pv_controller import failing
from tests.support.snapshots import DRIVER, found

NO_CLUSTER: Final = (
    "rpc error: code = InvalidArgument desc = empty cluster ID to provision volume from"
)
EMPTY: Final = "rpc error: code = InvalidArgument desc = provided secret is empty"
PREFIX: Final = "csi.storage.k8s.io/"
PROVISIONERS: Final = f"{PREFIX}provisioner-secret-name and -namespace"
SECRETS: Final = tuple(
    f"{PREFIX}{secret}-secret-{end}"
    for secret in ("provisioner", "node-stage")
    for end in ("name", "namespace")
)
ALL: Final = ("clusterID", "pool", *SECRETS)


def classes(*parameters: str, **others: StorageClass) -> dict[str, Any]:
    own = StorageClass(name="rbd", provisioner=DRIVER, parameters=parameters)
    return {"storage_classes": (own, *others.values())}


def complete(name: str = "general", **fields: Any) -> StorageClass:  # noqa: ANN401 - as the builders
    return StorageClass(**{"name": name, "provisioner": DRIVER, "parameters": ALL, **fields})


@each_row(
    ("parameters", "lacks"),
    [
        (
            (),
            f"clusterID, pool, {PROVISIONERS}, {PREFIX}node-stage-secret-name and -namespace",
        ),
        (("pool", *SECRETS), "clusterID"),
        (("topologyConstrainedPools", *SECRETS), "clusterID"),
        (("pool", *SECRETS[1:]), f"clusterID, {PREFIX}provisioner-secret-name"),
        (("pool", *SECRETS[:2]), f"clusterID, {PREFIX}node-stage-secret-name and -namespace"),
        (("pool", f"{PREFIX}secret-name", f"{PREFIX}secret-namespace"), "clusterID"),
        (("pool", "csiProvisionerSecretName", "csiNodeStageSecretName"), "clusterID"),
    ],
)
def test_all_that_a_class_lacks_is_named_at_once(parameters: tuple[str, ...], lacks: str) -> None:
    finding = found(failing(NO_CLUSTER, **classes(*parameters)), "RBD607")
    assert f": its class rbd lacks {lacks}." in finding.message
    assert "{" not in finding.message + str(finding.remedy)


OTHERS: Final = {
    "complete": (complete(), True),
    "of another provisioner": (complete(provisioner="x.rbd.csi.ceph.com"), False),
    "incomplete": (complete(parameters=ALL[1:]), False),
    "of an older snapshot": (complete(parameters=None, pool="k8s"), False),
}


@each_row("name", OTHERS)
def test_class_that_has_everything_is_named(name: str) -> None:
    other, is_named = OTHERS[name]
    finding = found(failing(NO_CLUSTER, **classes(other=other)), "RBD607")
    assert ("The class general of the same provisioner has all" in finding.message) is is_named
    assert ("create it with the class general" in str(finding.remedy)) is is_named


def test_default_class_is_named_first() -> None:
    others = {"first": complete("a"), "second": complete("z", is_default=True)}
    finding = found(failing(NO_CLUSTER, **classes(**others)), "RBD607")
    assert "The class z of the same provisioner" in finding.message


def test_parameters_that_were_not_observed_are_not_missing() -> None:
    finding = found(failing(NO_CLUSTER), "RBD607")
    assert ": its class names no cluster." in finding.message
    assert f"{PREFIX}node-stage-secret-name and -namespace" in str(finding.remedy)


@each_row(
    ("parameters", "words"),
    [
        ((), f"its class rbd lacks {PROVISIONERS}."),
        (ALL, "the secret that its class rbd names for the provisioner has no data."),
        # A class of CephFS has no pool.
        (SECRETS, "the secret that its class rbd names for the provisioner has no data."),
        (None, "its class names no secret for the provisioner, or the secret"),
    ],
)
def test_parameters_decide_about_an_empty_secret(
    parameters: tuple[str, ...] | None, words: str
) -> None:
    own = StorageClass(name="rbd", provisioner=DRIVER, parameters=parameters)
    finding = found(failing(EMPTY, storage_classes=(own,)), "RBD607")
    assert words in finding.message


def test_names_of_parameters_are_read_without_their_values() -> None:
    parameters = {"pool": "k8s", "clusterID": "", "imageFeatures": "layering"}
    data = {"metadata": {"name": "rbd"}, "provisioner": DRIVER, "parameters": parameters}
    assert read.storage_class(data).parameters == ("imageFeatures", "pool")
    assert read.storage_class({**data, "parameters": None}).parameters == ()
