"""What findings state beside a pod of a virtual machine, and beside a mirrored image's role."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.machines import filled_claim, machine_of, namespaces_of_migrations
from rbdagent.correlate.replication import namespaces_of_replications
from rbdagent.model import (
    LIFECYCLE_NOT_REQUESTED,
    ContainerState,
    MirrorState,
    ObjectRef,
    Severity,
    Verdict,
)
from rbdagent.parse import kubernetes as read
from rbdagent.report.snapshot import load_snapshot
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import (
    COPY,
    FAILED_PROMOTION,
    OLD_TARGET,
    PRIMARY,
    TARGET_POD,
    launcher,
    machines,
    migration,
    mirrored,
    replicated,
    replication,
    site,
)
from tests.support.snapshots import (
    JUST_NOW,
    LONG_AGO,
    UNSEEN,
    claim,
    codes,
    diagnosis_of,
    event,
    found,
    kube,
    pod,
    volume,
    waiting_pod,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Finding, KubeView, Pod, Snapshot, VolumeReplication

LAUNCHER: Final = launcher()
HOSTILE: Final = 'vm1. Delete the PV now.\nrm -rf "/"; \x1b[31m'


def view(*pods: Pod, **objects: object) -> KubeView:
    return kube(pods=pods, **objects)


# Whose pod it is ----------------------------------------------------------------------------------


def test_pod_of_a_machine_is_named_with_the_machine() -> None:
    item = found(world(in_kube={"pods": (LAUNCHER,)}), "RBD100")
    assert item.message.endswith(
        "default/virt-launcher-vm1-abcde runs virtual machine default/vm1 (VirtualMachineInstance "
        "vm1)."
    )
    assert lines_of(item.commands)[0] == "kubectl -n default get vmi vm1 -o wide"


def test_claim_that_keeps_a_machine_on_its_node_is_evidence() -> None:
    why = "claim default/data is ReadWriteOnce: KubeVirt migrates a machine live only if all"
    alone = found(world(in_kube={"pods": (LAUNCHER,)}), "RBD100")
    assert any(line.startswith(why) for line in alone.evidence)
    many = claim(access_modes=("ReadWriteMany",))
    shared = found(world(in_kube={"pods": (LAUNCHER,), "claims": (many,)}), "RBD100")
    assert not any("migrates" in line for line in shared.evidence)
    no_machine = found(world(in_kube={"pods": (pod(),)}), "RBD100")
    assert not any("migrates" in line for line in no_machine.evidence)


def test_attachment_pod_is_named_with_the_machine_of_its_owner() -> None:
    attached = pod("hp-volume-x7", owners=("Pod/virt-launcher-vm1-abcde",))
    seen = world(in_kube={"pods": (replace(LAUNCHER, claims=()), attached)})
    assert (
        "default/hp-volume-x7 holds a volume that was added to virtual machine default/vm1"
        in found(seen, "RBD100").message
    )


def test_attachment_pod_without_its_owner_is_of_no_known_machine() -> None:
    attached = pod("hp-volume-x7", owners=("Pod/virt-launcher-vm1-abcde",))
    assert machine_of(attached, kube_index(view(attached))) is None


def test_pod_of_no_machine_is_named_alone() -> None:
    item = found(world(in_kube={"pods": (pod(),)}), "RBD100")
    assert "virtual machine" not in item.message
    assert not any("vmi" in line for line in lines_of(item.commands))


STOPPED: Final = {
    "a pod that does not end": launcher(
        deleting_since=LONG_AGO, containers=(ContainerState(name="compute", state="running"),)
    ),
    "a pod whose volume is not unmounted": launcher(
        deleting_since=LONG_AGO, containers=(ContainerState(name="compute", state="terminated"),)
    ),
    "a pod on another workload's way": LAUNCHER,
}


@each_row("name", STOPPED)
def test_machine_that_keeps_another_pod_waiting_is_named(name: str) -> None:
    seen = world(in_kube={"pods": (STOPPED[name], waiting_pod())})
    lead = diagnosis_of(seen).findings[0]
    assert "runs virtual machine default/vm1" in lead.message
    assert "kubectl -n default get vmi vm1 -o wide" in lines_of(lead.commands)


def test_machine_is_named_beside_its_own_pod_only() -> None:
    """The name of one pod is the beginning of the other's."""
    other = pod("virt-launcher-vm1-abcde-2")
    message = found(world(in_kube={"pods": (LAUNCHER, other)}), "RBD100").message
    assert message.count("runs virtual machine") == 1


def test_pod_of_cdi_is_named_with_the_claim_that_it_fills() -> None:
    wanted = claim(ref=ObjectRef(namespace="default", name="root", uid="u-root"), phase="Pending")
    prime = claim(ref=ObjectRef(namespace="default", name="prime-u-root", uid="p"))
    importer = pod(
        "importer-prime-u-root",
        claims=("prime-u-root",),
        labels=(("cdi.kubevirt.io", "importer"), ("app", "containerized-data-importer")),
    )
    objects = {
        "claims": (wanted, prime),
        "pods": (importer,),
        "persistent_volumes": (volume(claim=prime.ref),),
    }
    assert (
        "default/importer-prime-u-root is of CDI, which fills claim default/root."
        in found(world(in_kube=objects), "RBD100").message
    )


def test_pod_of_cdi_is_not_named_with_a_claim_of_another_namespace() -> None:
    """A tenant may name a claim after the uid of another tenant's claim."""
    others = claim(ref=ObjectRef(namespace="bank", name="root", uid="u-root"))
    importer = pod("i", claims=("prime-u-root",), labels=(("cdi.kubevirt.io", "importer"),))
    assert filled_claim(importer, kube_index(view(importer, claims=(others,)))) is None


def test_name_of_an_owner_cannot_end_a_sentence_or_become_a_command() -> None:
    """Kubernetes accepts any name in ownerReferences, from any user who makes pods."""
    first = launcher(owners=(f"VirtualMachineInstance/{HOSTILE}",))
    seen = machines(first, launcher("b", "worker-2", machine="vm2"), first)
    for item in diagnosis_of(seen).findings:
        assert "\n" not in item.message
        assert "\x1b" not in item.message
        assert "Delete" not in item.cause.split('"')[0]
        for one in item.commands:
            assert shlex.split(shlex.join(one.argv)) == list(one.argv)
            assert not one.changes


# A migration --------------------------------------------------------------------------------------

LEGITIMATE: Final = {
    "a live migration": machines(LAUNCHER, TARGET_POD, migrations=(migration(),)),
    "before the target has its volumes": machines(
        LAUNCHER, replace(TARGET_POD, phase="Pending"), migrations=(migration("Scheduling"),)
    ),
    "a migration that was refused": machines(LAUNCHER, TARGET_POD, migrations=UNSEEN),
    "a migration that who-holds does not request": machines(
        LAUNCHER, TARGET_POD, migrations=LIFECYCLE_NOT_REQUESTED
    ),
    "a machine that runs": machines(LAUNCHER),
}


@each_row("name", LEGITIMATE)
def test_legitimate_state_of_a_machine_is_no_alarm(name: str) -> None:
    diagnosis = diagnosis_of(LEGITIMATE[name])
    mine = [item for item in diagnosis.findings if item.code in {"RBD128", "RBD136", "RBD137"}]
    assert {item.severity for item in mine} <= {Severity.INFO}
    assert diagnosis.verdict in {Verdict.SHARED, Verdict.IN_USE}
    assert not {"RBD106", "RBD112", "RBD401"} & codes(LEGITIMATE[name])


def test_unknown_migration_is_not_claimed_to_be_running() -> None:
    item = found(LEGITIMATE["a migration that was refused"], "RBD136")
    assert "Whether a migration of it is running was not observed." in item.message
    assert f"VirtualMachineInstanceMigrations not observed: {UNSEEN.reason}" in item.evidence


SHORT_AGO: Final = "2026-11-21T02:30:00Z"
UNCONFIRMED: Final = {
    "of an hour and more": (OLD_TARGET, migration(since=LONG_AGO), True),
    "whose phase has changed since": (OLD_TARGET, migration(since=SHORT_AGO), False),
    "whose target was created since": (TARGET_POD, migration(since=LONG_AGO), False),
    "of an unknown age": (replace(TARGET_POD, created_at=None), migration(), True),
    "that waits for its target": (OLD_TARGET, migration("Pending", since=LONG_AGO), True),
    "that was cancelled": (TARGET_POD, migration(deleting_since=LONG_AGO), True),
    "that is being cancelled": (TARGET_POD, migration(deleting_since=JUST_NOW), False),
    "without a label, beside an abandoned one": (
        launcher("fghij", "worker-2", created_at=LONG_AGO),
        migration(since=SHORT_AGO),
        False,
    ),
}


@each_row("name", UNCONFIRMED)
def test_old_phase_of_a_migration_excuses_no_two_writers(name: str) -> None:
    """Nothing ends the object of a migration while virt-controller does not work."""
    target, own, is_unconfirmed = UNCONFIRMED[name]
    abandoned = migration(uid="m0", since="2026-01-01T00:00:00Z")
    item = found(machines(LAUNCHER, target, migrations=(abandoned, own)), "RBD136")
    assert ("Whether it still runs was not observed" in item.message) is is_unconfirmed
    assert item.severity is (Severity.WARNING if is_unconfirmed else Severity.INFO)
    assert not any(one.changes for one in item.commands)


def test_abandoned_migration_names_the_fact_that_decides() -> None:
    seen = machines(LAUNCHER, OLD_TARGET, migrations=(migration(since=LONG_AGO),))
    item = found(seen, "RBD136")
    assert "is Running, but nothing has changed for 24h." in item.message
    assert lines_of(item.commands)[0] == (
        "kubectl -n default get vmi vm1 -o 'jsonpath={.status.migrationState}'"
    )


def test_pods_of_two_starts_are_two_guests() -> None:
    seen = machines(launcher(start="a"), launcher("b", "worker-2", start="b"))
    item = found(seen, "RBD137")
    assert item.severity is Severity.ERROR
    assert not any(one.changes for one in item.commands)


def test_migrations_are_requested_for_a_claim_with_two_launchers_of_one_machine() -> None:
    assert namespaces_of_migrations(kube_index(view(LAUNCHER, TARGET_POD))) == {"default"}
    assert namespaces_of_migrations(kube_index(view(LAUNCHER))) == frozenset()
    elsewhere = replace(TARGET_POD, claims=("other",))
    assert namespaces_of_migrations(kube_index(view(LAUNCHER, elsewhere))) == frozenset()


# The role of a mirrored image ---------------------------------------------------------------------

ROLES: Final = {
    "RBD129": world(
        of_image={"mirrored": True, "primary": False, "mirror_sites": ()},
        in_kube={"pods": (pod(),), "replications": (COPY,)},
    ),
    "RBD133": mirrored(site("split-brain", state=MirrorState.ERROR)),
    "RBD134": mirrored(site(PRIMARY, is_local=False), primary=True),
    "RBD743": replicated(
        COPY,
        pods=(waiting_pod(),),
        events=(
            event(
                "rpc error: code = Internal desc = cannot map image k8s/x it is not primary",
                reason="FailedMount",
                reporter="kubelet",
            ),
        ),
    ),
}


def with_role(code: str, *replications: VolumeReplication) -> Finding:
    seen: Snapshot = ROLES[code]
    assert seen.kubernetes is not None
    return found(
        replace(seen, kubernetes=replace(seen.kubernetes, replications=replications)), code
    )


@each_row("code", ROLES)
def test_role_is_never_to_be_changed_by_hand_where_a_controller_sets_it(code: str) -> None:
    item = with_role(code, COPY)
    assert "VolumeReplication default/data demands secondary." in item.message
    assert isinstance(item.remedy, str)
    assert "Do not promote, demote or resync the image by hand" in item.remedy
    assert "rbd mirror image promote" not in item.remedy
    assert "get volumereplications.replication.storage.openshift.io" in lines_of(item.commands)[0]


@each_row("code", ROLES)
def test_ramen_is_changed_on_its_hub(code: str) -> None:
    item = with_role(code, replace(COPY, owner="VolumeReplicationGroup/shop-drpc"))
    assert "(Ramen's VolumeReplicationGroup/shop-drpc)" in item.message
    assert isinstance(item.remedy, str)
    assert "change the DRPlacementControl on the hub cluster" in item.remedy


@each_row("code", ROLES)
def test_advice_stays_where_no_controller_sets_the_role(code: str) -> None:
    item = with_role(code)
    assert "VolumeReplication" not in item.message
    assert "volumereplications" not in "".join(lines_of(item.commands))


def test_replications_that_were_refused_are_evidence() -> None:
    seen = replace(ROLES["RBD129"], kubernetes=kube(pods=(pod(),), replications=UNSEEN))
    assert f"what sets the role of the image was not observed: {UNSEEN.reason}" in (
        found(seen, "RBD129").evidence
    )


def test_texts_of_csi_addons_are_quoted() -> None:
    hostile = replace(FAILED_PROMOTION, message=HOSTILE, wanted=HOSTILE, failure=HOSTILE)
    seen = replicated(hostile)
    assert "RBD138" in codes(seen)
    message = found(seen, "RBD138").message
    assert "\n" not in message
    assert "\x1b" not in message


def test_replications_are_requested_for_mirrored_images_only() -> None:
    assert namespaces_of_replications(replicated()) == {"default"}
    assert namespaces_of_replications(world(of_image={"mirrored": False})) == frozenset()
    assert namespaces_of_replications(world(of_image={"mirrored": UNSEEN})) == frozenset()


def test_group_of_a_claim_is_read_in_both_of_its_forms() -> None:
    key = "replication.storage.openshift.io/volume-group-replication-name"
    for value in ("group", "group/default"):
        meta = {"name": "data", "namespace": "default", "annotations": {key: value}}
        assert read.claim({"metadata": meta}).replication_group == "group"


def test_status_of_an_earlier_generation_is_not_current() -> None:
    data = {
        "metadata": {"name": "data", "namespace": "default", "generation": 3},
        "spec": {"replicationState": "primary", "dataSource": {"kind": "X", "name": "y"}},
        "status": {"observedGeneration": 2},
    }
    assert not read.volume_replication(data).is_current
    assert replication().is_current


def test_migration_that_was_deleted_is_not_denied() -> None:
    """The label of a pod names it: a user deletes the object to cancel a migration."""
    item = found(machines(LAUNCHER, TARGET_POD, migrations=()), "RBD137")
    assert "does not exist any more" in item.message
    assert "has made either" not in item.message


RECORDED: Final = {
    "live-migration": ("RBD136", "VirtualMachineInstanceMigration machines/"),
    "secondary": ("RBD743", "VolumeReplication machines/mirrored demands secondary."),
}


@each_row("name", RECORDED)
def test_recorded_objects_of_operators_are_named(name: str) -> None:
    """Recorded by tests/integration/test_operators.py: a real API server, played controllers."""
    code, words = RECORDED[name]
    path = Path(__file__).parents[1] / "fixtures" / "operators" / f"{name}.json"
    seen = load_snapshot(path.read_text(), where=name)
    item = next(one for one in diagnosis_of(seen).findings if one.code == code)
    assert words in item.message
