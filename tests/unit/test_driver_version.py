"""An error whose cause depends on the version of ceph-csi."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.parse.driver_image import cephcsi_version
from tests.support.rows import each_row
from tests.support.rule_rows.pv_controller import PROVISIONER, failing, of_volume, to_volume
from tests.support.rule_tables import mounting, stage
from tests.support.snapshots import UNSEEN, found

if TYPE_CHECKING:
    from rbdagent.model import DriverPod, Snapshot

REFUSED: Final = "failed to get connection: connecting failed: rados: ret=-13, Permission denied"
NOT_PERMITTED: Final = (
    "failed to get connection: connecting failed: rados: ret=-1, Operation not permitted"
)
RECLAIM: Final = "ceph config get mon auth_allow_insecure_global_id_reclaim"


@each_row(
    ("image", "version"),
    [
        ("quay.io/cephcsi/cephcsi:v3.3.1", "3.3.1"),
        ("cephcsi:3.12.2-arm64", "3.12.2"),
        ("quay.io/cephcsi/cephcsi:v3.13", ""),
        ("quay.io/cephcsi/cephcsi:v3.3.1.2", ""),
        ("quay.io/cephcsi/cephcsi:canary", ""),
        ("registry.redhat.io/ocs4/cephcsi-rhel8@sha256:00", ""),
        ("registry.k8s.io/sig-storage/csi-provisioner:v5.3.0", ""),
    ],
)
def test_version_is_read_from_the_image_of_ceph_csi_only(image: str, version: str) -> None:
    assert cephcsi_version(image) == version


def pods(*versions: str) -> tuple[DriverPod, ...]:
    return tuple(
        replace(PROVISIONER, images=(f"quay.io/cephcsi/cephcsi:{version}",)) for version in versions
    )


def refused(*versions: str, text: str = REFUSED) -> Snapshot:
    """Build a snapshot in which the provisioner's pods run these versions, and Ceph refuses it."""
    return failing(text, driver_pods=pods(*versions))


@each_row("version", ["v1.2.2", "v3.2.1", "v3.3.0"])
def test_old_client_may_be_refused(version: str) -> None:
    finding = found(refused(version), "RBD607")
    assert f"the client in ceph-csi {version[1:]} is too old for monitors that" in finding.message
    assert "or the user or the key in the secret is wrong" in finding.message
    assert "if they are equal, update ceph-csi to 3.3.1 or newer." in str(finding.remedy)
    assert lines_of(finding.commands) == (RECLAIM,)


@each_row("version", ["v3.2.2", "v3.3.1", "v3.4.0", "v3.12.1"])
def test_key_is_the_cause_if_the_client_is_new_enough(version: str) -> None:
    finding = found(refused(version), "RBD607")
    assert "Ceph does not accept the key of the class's secret." in finding.message


UNKNOWN: Final = {
    "of no pod": failing(REFUSED, driver_pods=()),
    "not observed": failing(REFUSED, driver_pods=UNSEEN),
    "two versions": refused("v3.3.0", "v3.4.0"),
    "a build": refused("canary"),
    "of another driver": failing(
        REFUSED, driver_pods=(replace(pods("v3.3.0")[0], serves=("x.rbd.csi.ceph.com",)),)
    ),
}


@each_row("name", UNKNOWN)
def test_both_causes_are_named_if_the_version_is_not_known(name: str) -> None:
    finding = found(UNKNOWN[name], "RBD607")
    assert "the secret is wrong, or the client of ceph-csi is too old for" in finding.message
    assert "if they differ, correct the secret; if they are equal, update" in str(finding.remedy)


def test_another_number_is_not_about_the_client() -> None:
    finding = found(refused("v3.3.0", text=NOT_PERMITTED), "RBD607")
    assert "Ceph does not accept the key of the class's secret." in finding.message


def test_client_in_the_kernel_is_not_affected() -> None:
    """All versions of the kernel authenticate as the monitors demand (CVE-2021-20288)."""
    mapped = "rbd: map failed: (13) Permission denied"
    seen = mounting(stage(mapped), driver_pods=pods("v3.3.0"))
    assert "Ceph refuses the driver's user" in found(seen, "RBD736").message


@each_row(
    ("version", "words"),
    [
        ("v3.3.0", "the client of its version of ceph-csi is too old"),
        ("v3.4.0", "Ceph refuses the driver's user"),
    ],
)
def test_connection_of_the_node_plugin_has_the_same_cause(version: str, words: str) -> None:
    seen = mounting(stage(REFUSED), driver_pods=pods(version))
    assert words in found(seen, "RBD736").message


@each_row(
    ("version", "words"),
    [
        ("v3.3.0", "the client in ceph-csi 3.3.0 is too old"),
        ("v3.4.0", "Ceph refuses the user of the secret that the PV names"),
    ],
)
def test_deletion_has_the_same_cause(version: str, words: str) -> None:
    in_kube = {"events": (to_volume(REFUSED),), "driver_pods": pods(version)}
    assert words in found(of_volume(in_kube=in_kube), "RBD642").message


def test_no_key_is_printed() -> None:
    finding = found(refused("v3.3.0"), "RBD607")
    assert not any("auth get" in line for line in lines_of(finding.commands))
