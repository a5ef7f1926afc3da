"""Rules of binding and reclaiming: each code is reported in its state, and not in similar ones."""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.catalog import CATALOG
from rbdagent.commands import lines_of
from rbdagent.model import (
    Finding,
    ObjectRef,
    OtherSource,
    Severity,
    Snapshot,
)
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from rbdagent.rules import finalizers, provisioner, pv_reclaim, pvc_lost, pvc_pending
from tests.support.rows import each_row
from tests.support.rule_rows.pv_controller import (
    BEING_USED,
    BOUND,
    CONTROLLERS,
    DEAD_CONTROLLERS,
    FOREIGN,
    GI,
    INFO_ONLY,
    LOST,
    NONE_MADE,
    NOT_REPORTED,
    OF_OLD,
    OURS,
    OURS_BY_NAME,
    REPORTED,
    SELECTOR,
    deleted,
    deleted_volume,
    free,
    life,
    of_volume,
    to_volume,
    wanting,
)
from tests.support.rule_tables import BY_POD, Table
from tests.support.snapshots import (
    JUST_NOW,
    NOW,
    PV,
    UNSEEN,
    claim,
    codes,
    diagnosis_of,
    event,
    found,
    in_reverse_order,
    mirror_daemon,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
)

FAMILY: Final = frozenset(
    entry.code
    for family in (finalizers, provisioner, pv_reclaim, pvc_lost, pvc_pending)
    for entry in family.ENTRIES
)


HERE: Final = {"pods": (waiting_pod(node=None),)}


def cases(*tables: dict[str, Table]) -> list[Any]:
    return [
        pytest.param(code, seen, id=f"{code}: {name}")
        for table in tables
        for code, seens in table.items()
        for name, seen in seens.items()
    ]


def of_family(seen: Snapshot) -> set[str]:
    return codes(seen) & FAMILY


@each_row(("code", "seen"), cases(REPORTED))
def test_state_is_reported_with_its_code_only(code: str, seen: Snapshot) -> None:
    finding = found(seen, code)
    assert of_family(seen) == {code}
    assert finding.message
    assert finding.remedy
    assert "None" not in finding.message


@each_row(("code", "seen"), cases(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


@pytest.mark.parametrize(("code", "seen"), cases(INFO_ONLY))
def test_legitimate_or_transient_state_is_info_only(code: str, seen: Snapshot) -> None:
    reported = [finding for finding in diagnosis_of(seen).findings if finding.code in FAMILY]
    assert [(finding.code, finding.severity) for finding in reported] == [(code, Severity.INFO)]


LESS: Final = frozenset({"RBD403", "RBD606", "RBD640"})
"""Codes that are reported if something was not observed."""
OF_THE_REST: Final = {
    "claims": {"RBD405"},
    "pods": {"RBD603"},
    "csi_nodes": {"RBD607"},
}
"""Codes that are also true, and are left out if more was observed."""


@pytest.mark.parametrize(
    "kind",
    [
        *("persistent_volumes", "claims", "pods", "nodes", "csi_nodes", "attachments", "events"),
        *("storage_classes", "drivers", "leases", "driver_pods", "version"),
    ],
)
def test_unobserved_objects_lead_to_no_unrelated_code(kind: str) -> None:
    for code, table in REPORTED.items():
        for name, seen in table.items():
            assert seen.kubernetes is not None
            blind = replace(seen, kubernetes=replace(seen.kubernetes, **{kind: UNSEEN}))
            more = of_family(blind) - {code} - LESS - OF_THE_REST.get(kind, set())
            assert more == set(), (code, name)


def test_order_of_objects_does_not_change_the_codes() -> None:
    for table in REPORTED.values():
        for seen in table.values():
            assert of_family(in_reverse_order(seen)) == of_family(seen)


def test_snapshot_is_equal_after_dump_and_load() -> None:
    for table in REPORTED.values():
        for seen in table.values():
            assert load_snapshot(dump_snapshot(seen), where="a test") == seen


def test_no_code_is_reported_without_the_api() -> None:
    for table in REPORTED.values():
        for seen in table.values():
            assert of_family(replace(seen, kubernetes=None)) == set()


def test_every_code_of_the_family_has_a_table() -> None:
    assert REPORTED.keys() == FAMILY
    assert NOT_REPORTED.keys() | INFO_ONLY.keys() <= FAMILY


@each_row("code", sorted(FAMILY))
def test_every_problem_code_has_a_recovery_and_a_step(code: str) -> None:
    entry = CATALOG[code]
    if entry.severity is not Severity.INFO:
        assert entry.recovery is not None
        assert entry.step is not None


# --------------------------------------------------------------------------------------------------
# Commands
# --------------------------------------------------------------------------------------------------

FORBIDDEN: Final = ("finalizers", "--force", "--grace-period", "delete pv", "delete pvc", "unmap")


@each_row(("code", "seen"), cases(REPORTED, INFO_ONLY))
def test_commands_parse_and_remove_nothing_by_force(code: str, seen: Snapshot) -> None:
    for line in lines_of(found(seen, code).commands):
        words = shlex.split(line)
        assert words[0] in {"kubectl", "rbdagent", "ceph"}
        assert "None" not in line
        assert not any(word in line for word in FORBIDDEN)
        if "-p" in words:
            json.loads(words[words.index("-p") + 1])


def patched(command: str, reference: dict[str, str] | None) -> dict[str, str] | None:
    """Apply the JSON patch of a command to a claimRef; a failed `test` raises AssertionError."""
    words = shlex.split(command)
    spec: dict[str, Any] = {} if reference is None else {"claimRef": dict(reference)}
    for operation in json.loads(words[words.index("-p") + 1]):
        *path, last = operation["path"].removeprefix("/spec/").split("/")
        inside = spec[path[0]] if path else spec
        if operation["op"] == "test":
            assert inside[last] == operation["value"]
        elif operation["op"] == "add":
            inside[last] = operation["value"]
        else:
            del inside[last]
    return spec.get("claimRef")


def binds(reference: dict[str, str] | None, uid: str, *, completed: bool) -> bool:
    """Return whether syncBoundClaim or syncUnboundClaim binds a PV that the claim names."""
    if reference is None:
        return True
    same = (reference["namespace"], reference["name"]) == ("default", "data")
    if completed:
        return reference.get("uid") == uid
    return same and reference.get("uid") in (None, uid)


REFERENCES: Final = {
    "same name": {"namespace": "default", "name": "data", "uid": "old-uid"},
    "stripped": {"namespace": "default", "name": "data"},
    "another name": {"namespace": "other", "name": "theirs", "uid": "their-uid"},
}


@pytest.mark.parametrize("completed", [True, False], ids=["bound once", "never bound"])
@pytest.mark.parametrize("name", REFERENCES)
def test_patch_binds_a_restored_pv_and_stripping_its_uid_does_not(
    name: str, *, completed: bool
) -> None:
    reference = REFERENCES[name]
    bound = ObjectRef(
        namespace=reference["namespace"], name=reference["name"], uid=reference.get("uid")
    )
    seen = life(
        volume(claim=bound, reclaim_policy="Retain"),
        claims=(claim(**LOST) if completed else wanting(volume_name=PV),),
    )
    if binds(reference, "claim-uid", completed=completed):
        # Never bound, and the PV names the claim: the controller binds them automatically.
        assert of_family(seen) == {"RBD626"}
        return
    (command,) = lines_of(found(seen, "RBD404" if completed else "RBD624").commands)
    assert binds(patched(command, reference), "claim-uid", completed=completed)
    if completed:
        assert not binds(REFERENCES["stripped"], "claim-uid", completed=True)


def test_misbound_volume_of_another_driver_names_no_image() -> None:
    share = volume(claim=OF_OLD, source=OtherSource(kind="nfs.csi.k8s.io"))
    finding = found(life(share, claims=(claim(**LOST),)), "RBD404")
    assert "image" not in finding.message + " ".join(finding.evidence)
    assert not any("who-holds" in line for line in lines_of(finding.commands))


def test_patch_fails_if_the_pv_names_another_claim_by_now() -> None:
    (_, command) = lines_of(found(REPORTED["RBD404"]["misbound (40)"], "RBD404").commands)
    with pytest.raises(AssertionError):
        patched(command, {"namespace": "default", "name": "another-claim", "uid": "x"})


def test_first_command_sets_retain() -> None:
    for code, name in (("RBD404", "misbound (40)"), ("RBD406", "claim lives (43)")):
        assert '"Retain"' in lines_of(found(REPORTED[code][name], code).commands)[0]
    kept = life(volume(claim=OF_OLD, reclaim_policy="Retain"), claims=(claim(**LOST),))
    assert not any("Retain" in line for line in lines_of(found(kept, "RBD404").commands))


def test_overdue_correction_means_the_controller_does_not_work() -> None:
    finding = found(REPORTED["RBD406"]["claim lives (43)"], "RBD406")
    assert finding.severity is Severity.ERROR
    assert "it is not working" in finding.message
    assert str(finding.recovery) == "the PV controller, within 15s, once it works again"


def restored(**parts: Any) -> Finding:  # noqa: ANN401
    seen = life(volume(claim=OF_OLD), claims=(claim(**LOST),), **parts)
    return found(seen, "RBD404")


def test_outside_client_is_named_and_no_patch_is_printed() -> None:
    finding = restored(of_image=FOREIGN)
    assert any(
        "192.0.2.7" in line and "no node of this cluster lists" in line for line in finding.evidence
    )
    assert lines_of(finding.commands)[1:] == (f"rbdagent who-holds pv/{PV}",)


def test_watcher_on_a_cluster_node_is_not_an_outside_client() -> None:
    finding = restored(of_image={"watchers": (remote_watcher(),)})
    assert any("no client outside" in line for line in finding.evidence)
    assert "/spec/claimRef/uid" in lines_of(finding.commands)[1]


@pytest.mark.parametrize(
    "blind", [{"of_image": {"watchers": UNSEEN}}, {"nodes": UNSEEN}], ids=["watchers", "nodes"]
)
def test_patch_follows_a_check_if_outside_clients_are_unknown(
    blind: dict[str, Any],
) -> None:
    finding = restored(**blind)
    assert any("whether another cluster" in line for line in finding.evidence)
    assert lines_of(finding.commands)[1] == f"rbdagent who-holds pv/{PV}"
    assert "/spec/claimRef/uid" in lines_of(finding.commands)[2]


def test_running_pod_with_a_lost_claim_is_reported() -> None:
    assert "still use the volume: default/web-0." in restored(pods=(pod(),)).message


def test_risk_of_a_released_pv_with_delete_is_reported() -> None:
    assert "its image is deleted" in found(REPORTED["RBD404"]["asked by its PV"], "RBD404").message


def test_remedy_for_a_deleted_pv_states_the_uid_of_its_claim() -> None:
    assert "uid claim-uid" in found(REPORTED["RBD631"]["its PV is gone"], "RBD631").remedy


def test_claim_without_volume_name_gets_the_pv_that_names_it() -> None:
    seen = life(
        volume(claim=OF_OLD, reclaim_policy="Retain"), claims=(claim(volume_name=None, **LOST),)
    )
    give, name = lines_of(found(seen, "RBD630").commands)[-2:]
    assert "/spec/claimRef/uid" in give
    assert f'"volumeName":"{PV}"' in name


# --------------------------------------------------------------------------------------------------
# Messages, evidence and commands
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "kind"), [("a clone", "pvc"), ("a snapshot", "volumesnapshot")])
def test_command_lists_what_is_made_from_the_claim(made: str, kind: str) -> None:
    seen = REPORTED["RBD650"][made]
    assert lines_of(found(seen, "RBD650").commands) == (f"kubectl -n default get {kind}",)


def test_near_pvs_are_listed_with_their_mismatch() -> None:
    seen = life(
        free("a", capacity_bytes=GI // 2, labels=(("tier", "gold"),)),
        free("b", volume_mode="Block", labels=(("tier", "gold"),)),
        free("c", access_modes=("ReadOnlyMany",), labels=(("tier", "gold"),)),
        free("d", claim=OF_OLD, phase="Released", labels=(("tier", "gold"),)),
        free("e"),
        free("f", storage_class="other"),
        claims=(wanting(selector=SELECTOR, provisioner=None),),
        storage_classes=(NONE_MADE,),
    )
    assert found(seen, "RBD602").evidence == (
        "a has 512Mi, the claim requests 1Gi",
        "b has volumeMode Block, the claim requests Filesystem",
        "c offers ReadOnlyMany, the claim requests ReadWriteOnce",
        "e does not have the labels that the claim's selector requires (tier In gold)",
        "d still names an older claim of the same name, with another uid; is Released",
    )


@pytest.mark.parametrize(
    ("near", "hint"),
    [
        (
            {"storage_class": ""},
            """kubectl patch pv pv-free --type merge -p '{"spec":{"storageClassName":"rbd"}}'""",
        ),
        (
            {"access_modes": ("ReadOnlyMany",)},
            (
                "kubectl patch pv pv-free --type merge -p "
                """'{"spec":{"accessModes":["ReadOnlyMany","ReadWriteOnce"]}}'"""
            ),
        ),
        ({"labels": ()}, "kubectl label pv pv-free tier=gold"),
    ],
)
def test_single_near_pv_gets_a_command_that_makes_it_fit(near: dict[str, Any], hint: str) -> None:
    gold = {"labels": (("tier", "gold"),)}
    seen = life(
        free(**(gold | near)),
        claims=(wanting(selector=SELECTOR, provisioner=None),),
        storage_classes=(NONE_MADE,),
    )
    assert lines_of(found(seen, "RBD602").commands)[-1] == hint


def test_access_modes_are_not_extended_to_more_nodes() -> None:
    seen = life(free(), claims=(wanting(volume_name="pv-free", access_modes=("ReadWriteMany",)),))
    assert not any("patch" in line for line in lines_of(found(seen, "RBD610").commands))


def test_capacity_is_raised_only_if_the_image_is_larger() -> None:
    small = volume(claim=None, phase="Available", capacity_bytes=GI // 2, reclaim_policy="Retain")
    wants = (wanting(volume_name=PV),)
    true = life(small, claims=wants, of_image={"size_bytes": GI})
    assert '{"capacity":{"storage":"1Gi"}}' in lines_of(found(true, "RBD610").commands)[0]
    lie = life(small, claims=wants, of_image={"size_bytes": GI // 2})
    assert not any("patch" in line for line in lines_of(found(lie, "RBD610").commands))


def test_reserved_pv_that_does_not_fit_warns_of_an_empty_volume() -> None:
    dynamic = REPORTED["RBD625"]["too small"]
    assert "another, empty volume" in found(dynamic, "RBD625").message
    static = life(
        free(claim=OURS_BY_NAME, capacity_bytes=1),
        claims=(wanting(provisioner=None),),
        storage_classes=(NONE_MADE,),
    )
    assert "another, empty volume" not in found(static, "RBD625").message


def test_lapsed_controller_lease_is_reported_if_a_claim_waits() -> None:
    seen = life(
        free(),
        claims=(wanting(provisioner=None),),
        storage_classes=(NONE_MADE,),
        leases=(DEAD_CONTROLLERS,),
    )
    assert of_family(seen) == {"RBD626", "RBD627"}
    assert "kube-controller-manager runs again" in str(found(seen, "RBD626").recovery)


def test_pod_with_several_claims_waits_for_the_unbound_claim() -> None:
    other = replace(OURS, name="more", uid="more-uid")
    seen = life(
        volume(),
        claims=(claim(**BOUND), wanting(ref=other, storage_class="x")),
        pods=(waiting_pod(claims=("data", "more")),),
        target=BY_POD,
    )
    assert str(found(seen, "RBD601").subject) == "pvc default/more"


def test_driver_with_a_similar_name_is_reported() -> None:
    seen = life(drivers=("rook-ceph.rbd.csi.ceph.com",), leases=(CONTROLLERS,), driver_pods=())
    assert "rook-ceph.rbd.csi.ceph.com" in found(seen, "RBD617").message


def test_command_reads_the_log_of_the_leading_provisioner() -> None:
    assert lines_of(found(life(), "RBD606").commands)[0] == (
        "kubectl -n csi logs prov-0 -c csi-provisioner --tail=50"
    )


def test_provisioner_whose_events_were_not_observed_has_not_reported_nothing() -> None:
    assert "has reported nothing" in found(life(), "RBD606").message
    unseen = found(life(events=UNSEEN), "RBD606").message
    assert "has reported was not observed." in unseen


def test_feature_that_only_rbd_nbd_supports_is_named() -> None:
    finding = found(REPORTED["RBD607"]["feature"], "RBD607")
    assert "requests the image feature journaling" in finding.message
    assert "mounter: rbd-nbd" in finding.remedy


MEANINGS: Final = {
    "failed to get connection: connecting failed: rados: ret=-2, No such file or directory": (
        "finds no monitors or no keyring"
    ),
    "rpc error: code = Internal desc = pool not found: pool (k8s) not found in Ceph cluster": (
        "the pool that its class names does not exist"
    ),
    "connecting failed: rados: ret=-108, Cannot send after transport endpoint shutdown": (
        "is on the blocklist"
    ),
    "code = ResourceExhausted desc = rbd image k8s/csi-vol-1 has 500 snapshots": (
        "its source k8s/csi-vol-1 has 500 snapshots and clones, which is the limit of ceph-csi"
    ),
    "rpc error: code = InvalidArgument desc = provided secret is empty": (
        "its class names no secret for the provisioner, or the secret that it names has no data"
    ),
    # Not the pool, although the number is that of a pool.
    "rpc error: code = Internal desc = key not found: rados: ret=-2, No such file or directory": (
        "ceph-csi's journal has no entry of its source"
    ),
    "rpc error: code = Internal desc = invalid VolumeID: error decoding volume ID (failed to "
    "decode CSI identifier, string underflow) (my-image)": (
        "the handle my-image of its source is not of its form"
    ),
    "rpc error: code = Unknown desc = failed to create rbd clone: RBD image not found": (
        "does not find the pool of its data"
    ),
    "rpc error: code = InvalidArgument desc = empty cluster ID to provision volume from": (
        "its class names no cluster."
    ),
    "rpc error: code = InvalidArgument desc = empty volume name prefix to provision volume from": (
        "its class has an empty prefix,"
    ),
    "rpc error: code = InvalidArgument desc = cannot clone from volume k8s/csi-vol-1: volume size "
    "1 is smaller than source volume size 2": (
        "it requests 1 bytes, and its source k8s/csi-vol-1 has 2."
    ),
}


@pytest.mark.parametrize(("text", "means"), MEANINGS.items())
def test_provisioner_error_is_explained_by_the_call_that_failed(text: str, means: str) -> None:
    failed = event(
        f'failed to provision volume with StorageClass "rbd": {text}',
        reason="ProvisioningFailed",
        subject=OURS,
        kind="PersistentVolumeClaim",
    )
    finding = found(life(events=(failed,)), "RBD607")
    assert means in finding.message


@pytest.mark.parametrize(
    ("text", "means", "remedy"),
    [
        ("InvalidArgument desc = provided secret is empty", "finds no secret", "Create again the"),
        (
            "Internal desc = cannot map image k8s/csi-vol-1 it is not primary",
            "is a copy of a mirror, is not primary here",
            "Start rbd-mirror here again",
        ),
        (
            "Internal desc = missing encryption passphrase in secrets",
            "has no encryptionPassphrase",
            "Restore the key encryptionPassphrase",
        ),
        (
            'Internal desc = could not get KMS configuration for "vault-prod" (have [vault-test])',
            "has no entry vault-prod; it has [vault-test].",
            "Restore the entry vault-prod",
        ),
        (
            'Internal desc = failed fetching token from shop/ceph-csi-kms-token: secrets "x" no',
            "the secret shop/ceph-csi-kms-token does not exist",
            "Create that secret again",
        ),
        (
            'Internal desc = failed to get ServiceAccount shop/vault-sa: serviceaccounts "x" no',
            "the service account shop/vault-sa does not exist",
            "Create that service account again",
        ),
        (
            "Internal desc = unmarshal failed (unexpected end of JSON input), raw buffer response:",
            'cannot read its list of clusters: "unexpected end of JSON input".',
            "Correct the ConfigMap ceph-csi-config",
        ),
    ],
)
def test_error_of_a_deletion_is_explained(text: str, means: str, remedy: str) -> None:
    seen = of_volume(in_kube={"events": (to_volume(f"rpc error: code = {text}"),)})
    finding = found(seen, "RBD642")
    assert means in finding.message
    assert str(finding.remedy).startswith(remedy)


def test_missing_secret_is_named() -> None:
    finding = found(REPORTED["RBD607"]["secret"], "RBD607")
    assert "the secret n/s" in finding.message
    assert lines_of(finding.commands) == ("kubectl -n n get secret s",)


def test_remedy_turns_off_the_topology_of_the_provisioner() -> None:
    finding = found(REPORTED["RBD607"]["no topology labels"], "RBD607")
    assert "the node plugin on worker-1 reports none" in finding.message
    assert "--feature-gates=Topology=false" in finding.remedy
    assert lines_of(finding.commands) == ("kubectl get csinode worker-1 -o yaml",)


def test_holder_of_a_volume_to_be_deleted_is_named() -> None:
    finding = found(REPORTED["RBD641"]["an orphan holds it (42)"], "RBD641")
    assert "have it open: /dev/rbd0 on worker-1." in finding.message
    assert "/dev/rbd0 on worker-1 has released the image" in str(finding.recovery)


def test_mirror_daemons_alone_name_the_setting_that_counts_them() -> None:
    (watching,) = FOREIGN["watchers"]
    mirror = {**FOREIGN, "mirror_daemons": (mirror_daemon(watching),)}
    kube = {"persistent_volumes": (volume(phase="Released"),), "claims": ()}
    quiet = unmapped(of_image=mirror, in_kube={**kube, "events": ()})
    assert "RBD641" not in codes(quiet)
    fails = unmapped(of_image=mirror, in_kube={**kube, "events": (BEING_USED,)})
    assert "mirrorDaemonCount" in found(fails, "RBD641").message


@pytest.mark.parametrize(
    ("policy", "finalizer", "words"),
    [
        ("Retain", (), "Its image stays"),
        ("Delete", (), "left behind"),
        ("Delete", ("external-provisioner.volume.kubernetes.io/finalizer",), "deleted with it"),
    ],
)
def test_message_states_what_happens_to_the_image_of_a_deleted_pv(
    policy: str, finalizer: tuple[str, ...], words: str
) -> None:
    seen = deleted_volume(
        "kubernetes.io/pv-protection",
        *finalizer,
        phase="Bound",
        reclaim_policy=policy,
        claims=(claim(**BOUND),),
    )
    assert words in found(seen, "RBD614").message


def test_command_deletes_only_pods_that_have_ended() -> None:
    ended = found(REPORTED["RBD613"]["a pod has ended"], "RBD613")
    assert "kubectl -n default delete pod web-0" in lines_of(ended.commands)
    assert ended.severity is Severity.WARNING
    runs = found(REPORTED["RBD613"]["a pod runs"], "RBD613")
    assert not any("delete" in line for line in lines_of(runs.commands))


@pytest.mark.parametrize(
    ("deleting_since", "severity"),
    [(JUST_NOW, Severity.WARNING), (NOW, Severity.INFO)],
    ids=["two minutes ago", "now"],
)
def test_pod_that_has_ended_and_is_being_deleted_is_removed_in_a_moment(
    deleting_since: str, severity: Severity
) -> None:
    ended = pod(phase="Failed", deleting_since=deleting_since)
    seen = found(life(volume(), claims=(deleted(),), pods=(ended,)), "RBD613")
    assert seen.severity is severity
    assert not any("delete" in line for line in lines_of(seen.commands))


def test_claim_that_a_clone_and_a_snapshot_keep_names_both() -> None:
    clone, snapshot = (
        REPORTED["RBD650"][made].kubernetes.claims[0].finalizers  # type: ignore[union-attr, index]
        for made in ("a clone", "a snapshot")
    )
    seen = found(life(volume(), claims=(deleted(finalizers=(*clone, *snapshot)),)), "RBD650")
    assert "a clone of it is not bound and a snapshot of it is not ready" in seen.message
    assert len(seen.commands) == 2


def test_pod_that_waits_for_a_claim_being_deleted_is_a_warning() -> None:
    seen = life(volume(), claims=(deleted(),), pods=(pod(), waiting_pod(node=None)))
    finding = found(seen, "RBD613")
    assert finding.severity is Severity.WARNING
    assert "default/web-1 will not start" in finding.message


def test_pod_that_is_deleted_with_its_claim_waits_for_nothing() -> None:
    ending = waiting_pod(node="worker-1", deleting_since=NOW)
    finding = found(life(volume(), claims=(deleted(),), pods=(ending,)), "RBD613")
    assert finding.severity is Severity.INFO
    assert "will not start" not in finding.message


def test_finalizer_of_another_program_is_named() -> None:
    assert "backup.example.org/hold" in found(REPORTED["RBD652"]["a PV's"], "RBD652").message


def test_stopped_controller_is_the_reason_why_a_pv_stays_bound_to_a_gone_claim() -> None:
    seen = NOT_REPORTED["RBD636"]["the PV controller is down (RBD627)"]
    assert "its holder has stopped" in found(seen, "RBD627").message


@pytest.mark.parametrize(
    ("leases", "words", "evidence"),
    [
        ((CONTROLLERS,), "unless its cache keeps", "renewed"),
        (UNSEEN, "unless it does not run, or its cache", "not observed"),
    ],
    ids=["it runs", "not observed"],
)
def test_claim_that_is_gone_says_what_may_keep_its_pv_bound(
    leases: object, words: str, evidence: str
) -> None:
    finding = found(of_volume(phase="Bound", in_kube={"leases": leases}), "RBD636")
    assert words in finding.message
    assert any(evidence in line for line in finding.evidence)


def test_data_of_a_pv_that_is_to_be_released_is_kept_first() -> None:
    finding = found(REPORTED["RBD636"]["the PV controller runs"], "RBD636")
    assert "its image is deleted" in finding.message
    assert "persistentVolumeReclaimPolicy" in lines_of(finding.commands)[0]
    kept = found(REPORTED["RBD636"]["with Retain"], "RBD636")
    assert "its image is deleted" not in kept.message
