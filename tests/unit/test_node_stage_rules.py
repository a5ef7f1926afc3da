"""RBD73x to RBD76x: events from kubelet about a pod that waits, and the findings they lead to."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of, sentence_of
from rbdagent.model import (
    CSINode,
    CsiSource,
    EntityAddress,
    ObjectRef,
    Severity,
    Snapshot,
)
from tests.support.rows import each_row
from tests.support.rule_rows.node_stage import (
    BEING_USED,
    MAP,
    NO_SECRET,
    NOT_REGISTERED,
    NOT_REPORTED,
    READ_ONLY,
    REPORTED,
    SOCKET,
    events_of,
)
from tests.support.rule_tables import (
    attached,
    kubelet_event,
    listing,
    mounting,
    not_reported_rows,
    problem_codes,
    reported_rows,
    stage,
)
from tests.support.snapshots import (
    DRIVER,
    HANDLE,
    PV,
    SPEC,
    STAGING_PATH,
    UNSEEN,
    attachment,
    codes,
    diagnosis_of,
    event,
    found,
    mirror_daemon,
    mount,
    node,
    pod,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)


@each_row(("code", "seen", "beside"), reported_rows(REPORTED))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert finding.remedy
    assert finding.recovery is not None
    assert "None" not in finding.message
    assert "{" not in finding.message
    assert problem_codes(seen) - {code} == beside


@pytest.mark.parametrize(("code", "seen"), not_reported_rows(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


# --------------------------------------------------------------------------------------------------
# The newest event
# --------------------------------------------------------------------------------------------------

EARLIER: Final = kubelet_event(NO_SECRET, last_seen="2026-11-21T02:50:00Z")


def since_then(reason: str, message: str = "", **overrides: Any) -> Snapshot:  # noqa: ANN401
    return events_of(EARLIER, kubelet_event(message, reason=reason, **overrides))


@pytest.mark.parametrize("pods", [{}, {"pods": UNSEEN}], ids=["seen", "pods were not observed"])
@pytest.mark.parametrize(
    "reason",
    [
        "BackOff",
        "Created",
        "Failed",
        "FailedCreatePodSandBox",
        "Pulled",
        "Pulling",
        "SandboxChanged",
        "Started",
    ],
)
def test_later_step_of_kubelet_ends_a_mount_error(reason: str, pods: dict[str, Any]) -> None:
    seen = events_of(EARLIER, kubelet_event("", reason=reason), **pods)
    assert "RBD733" not in codes(seen)


STILL: Final[dict[str, Snapshot]] = {
    "it is being ended": since_then("Killing"),
    "it is evicted": since_then("Evicted"),
    "the network of the node is not ready, which kubelet looks at first": since_then(
        "NetworkNotReady"
    ),
    "its directories are made first": since_then(
        "Failed", "error making pod data directories: no space left on device"
    ),
    "according to another reporter": since_then("Failed", reporter="job-controller"),
    "of another pod": since_then("Pulled", subject=ObjectRef(namespace="default", name="web-0")),
    "of the pod before it": events_of(
        kubelet_event(NO_SECRET, last_seen="2026-11-21T02:50:00Z"),
        kubelet_event(
            "", reason="Pulled", subject=ObjectRef(namespace="default", name="web-1", uid="old")
        ),
    ),
    "the mount failed later: the node has booted since": events_of(
        kubelet_event("", reason="BackOff", last_seen="2026-11-21T02:40:00Z"), EARLIER
    ),
    "the order is unknown": since_then("Pulled", last_seen=EARLIER.last_seen),
}


@pytest.mark.parametrize("seen", STILL.values(), ids=STILL)
def test_other_event_does_not_end_a_mount_error(seen: Snapshot) -> None:
    assert "RBD733" in codes(seen)


def test_mount_that_fails_again_is_reported() -> None:
    seen = events_of(
        EARLIER,
        kubelet_event("", reason="SandboxChanged", last_seen="2026-11-21T02:55:00Z"),
        kubelet_event(NOT_REGISTERED),
    )
    assert "RBD731" in codes(seen)
    assert "RBD733" not in codes(seen)


# --------------------------------------------------------------------------------------------------
# Messages, evidence and recovery
# --------------------------------------------------------------------------------------------------


def test_message_contains_the_names_from_the_event() -> None:
    finding = found(mounting(NO_SECRET), "RBD733")
    assert finding.message == (
        "default/web-1 cannot start on worker-2: the driver needs the secret ceph/csi-rbd-secret, "
        "but cannot read it."
    )
    assert lines_of(finding.commands) == ("kubectl -n ceph describe secret csi-rbd-secret",)
    assert finding.evidence[1] == "reported 2m ago"


def test_pods_of_several_nodes_are_named_with_their_nodes() -> None:
    """Assert one finding: each of two nodes sends the event for its pod."""
    other = waiting_pod("web-2", "worker-1")
    image_is_empty = stage("cannot mount unformatted disk /dev/rbd0")
    seen = mounting(
        pods=(waiting_pod(), other),
        attachments=attached("worker-1", "worker-2"),
        events=(kubelet_event(image_is_empty), kubelet_event(image_is_empty, subject=other.ref)),
    )
    said = found(seen, "RBD754").message
    assert said.startswith("default/web-1 on worker-2, default/web-2 on worker-1 cannot start: ")


ARRIVED: Final = "2026-11-21T02:59:30Z"
MOVED: Final = {"pods": (waiting_pod(created_at="2026-11-21T02:57:30Z"),)}
NEW_NODE: Final = {"nodes": (node(), listing("worker-2", ready_changed_at=ARRIVED))}


def lacks(**in_attachment: Any) -> dict[str, Any]:  # noqa: ANN401 - as the builders
    """Return the VolumeAttachment of an attacher that does not find the driver on the node."""
    words = {
        "attached": False,
        "attach_error": f"CSINode worker-2 does not contain driver {DRIVER}",
    }
    return {"attachments": attached("worker-2", **words, **in_attachment)}


@pytest.mark.parametrize(
    "seen",
    [
        mounting(NOT_REGISTERED, csi_nodes=(), **NEW_NODE),
        mounting(SOCKET, **NEW_NODE),
        mounting(csi_nodes=(), **lacks(), **NEW_NODE),
        mounting(csi_nodes=(), **lacks(created_at=ARRIVED)),
    ],
    ids=["kubelet", "a socket", "the attacher", "the attachment is as new"],
)
def test_driver_may_still_start_on_a_new_node(seen: Snapshot) -> None:
    finding = found(seen, "RBD731")
    assert finding.severity is Severity.INFO
    assert str(finding.recovery) == "kubelet, within 2m2s, once the driver responds there"


@pytest.mark.parametrize(
    ("seen", "by"),
    [
        (mounting(NOT_REGISTERED, **MOVED), "kubelet"),
        (mounting(**lacks(created_at="2026-11-21T02:58:10Z")), "external-attacher"),
    ],
    ids=["kubelet", "the attacher"],
)
def test_driver_that_is_registered_again_is_found_by_a_retry(seen: Snapshot, by: str) -> None:
    finding = found(seen, "RBD731")
    assert finding.severity is Severity.INFO
    assert finding.message.endswith(
        "The driver is registered there now: the next retry will succeed."
    )
    assert str(finding.recovery) == f"{by}, within 2m2s"


@pytest.mark.parametrize(
    "seen",
    [
        mounting(NOT_REGISTERED),
        mounting(SOCKET, **MOVED),
        mounting(
            events=(kubelet_event(NOT_REGISTERED, last_seen="2026-11-21T02:57:50Z"),), **MOVED
        ),
        mounting(NOT_REGISTERED, csi_nodes=(), **MOVED),
        mounting(**lacks()),
    ],
    ids=[
        "CSINode may have kept it: the pod has waited for long",
        "it is registered, and does not answer",
        "kubelet should have tried again since",
        "it is not registered",
        "the attacher has missed it for long",
    ],
)
def test_any_other_missing_driver_is_an_error(seen: Snapshot) -> None:
    assert found(seen, "RBD731").severity is Severity.ERROR


def test_generic_mount_error_leads_to_the_mount_options_first() -> None:
    finding = found(REPORTED["RBD753"]["by mount"][0], "RBD753")
    assert "mount refuses a mount option, the type (ext4), or the file system" in finding.message
    assert (
        lines_of(finding.commands)[0] == f"kubectl get pv {PV} -o 'jsonpath={{.spec.mountOptions}}'"
    )
    assert sentence_of(finding.remedy).startswith("Check the mount options first")
    assert (
        str(finding.recovery) == "kubelet, once the file system can be mounted as the PV specifies"
    )


@pytest.mark.parametrize("there", ["xfs", "unknown data, probably partitions"])
def test_mount_utils_message_proves_another_file_system(there: str) -> None:
    words = f'failed to mount the volume as "ext4", it already contains {there}. Mount error: '
    finding = found(mounting(stage(f"{words}wrong fs type, bad option")), "RBD753")
    assert "the image does not contain the requested file system" in finding.message
    assert lines_of(finding.commands) == (
        f"kubectl get pv {PV} -o 'jsonpath={{.spec.csi.fsType}}'",
    )
    assert str(finding.recovery) == "not automatic: a PV's fsType cannot be changed"


def test_command_with_an_unknown_name_is_left_out() -> None:
    by_hand = CsiSource(driver=DRIVER, volume_handle="by-hand")
    unnamed = mounting(
        stage("image not found"),
        persistent_volumes=(volume(source=by_hand),),
        attachments=(),
    )
    assert lines_of(found(unnamed, "RBD738").commands) == ()
    waiting = mounting(stage("image not found")).kubernetes
    lost = replace(unmapped(of_image={"presence": UNSEEN}), kubernetes=waiting)
    known = lines_of(found(lost, "RBD738").commands)
    assert known == (f"rbd info {SPEC}", "rbd trash ls --all --pool k8s")


def test_key_unusable_by_the_kernel_is_shown_with_its_user() -> None:
    finding = found(REPORTED["RBD747"]["the kernel checks the type"][0], "RBD747")
    assert "its kernel cannot use the key of client.csi-rbd-node (524)" in finding.message
    assert lines_of(finding.commands)[0] == (
        "kubectl get node worker-2 -o 'jsonpath={.status.nodeInfo.kernelVersion}'"
    )
    assert "node-stage secret" in finding.remedy
    assert "kernel 7.0" in finding.remedy


@pytest.mark.parametrize("row", ["the kernel checks the type", "ceph-csi with librados 18"])
def test_key_of_type_aes_needs_a_new_user(row: str) -> None:
    """Assert a new user: Ceph 20.2.4 ignores --key-type for an existing user and keeps the key."""
    finding = found(REPORTED["RBD747"][row][0], "RBD747")
    assert "`ceph auth get-or-create client.USER-aes CAPS --key-type=aes`" in finding.remedy
    assert "a user that exists keeps its key" in finding.remedy


def test_key_unreadable_by_ceph_csi_leads_to_its_version() -> None:
    finding = found(REPORTED["RBD747"]["ceph-csi with librados 18"][0], "RBD747")
    assert "the CSI driver cannot read the key" in finding.message
    assert "3.16.3" in finding.remedy


def test_invalid_map_option_may_be_set_by_rbd() -> None:
    """Assert the hint: rbd 20.2.4 without mapOptions on kernel 5.10 causes this error.

    The kernel log has `rbd: Unknown parameter 'ms_mode'`.
    """
    words = "rbd: sysfs write failed\nrbd: map failed: (22) Invalid argument"
    finding = found(mounting(stage(words)), "RBD741")
    assert "a ceph-csi with Ceph 19 or older" in finding.remedy


def test_ms_mode_mismatch_leads_to_the_monitors() -> None:
    finding = found(REPORTED["RBD748"]["msgr2 only, rbd of Ceph 18"][0], "RBD748")
    assert lines_of(finding.commands)[0] == "ceph mon dump"
    assert not any(command.startswith("rbd ") for command in lines_of(finding.commands))
    assert "rbd_default_map_options ms_mode=prefer-crc" in finding.remedy


def test_feature_in_the_pv_is_not_disabled_on_the_image() -> None:
    """Assert no such command: ceph-csi compares the imageFeatures of the PV, not of the image."""
    words = stage("feature journaling requires rbd-nbd for mounter")
    finding = found(mounting(words), "RBD740")
    assert "asks for the image feature journaling" in finding.message
    assert "create the PV again" in finding.remedy
    assert not any("feature disable" in command for command in lines_of(finding.commands))


JOURNALED: Final = {"features": ("layering", "exclusive-lock", "journaling")}


@pytest.mark.parametrize(
    ("of_image", "wanted"),
    [
        (JOURNALED, True),
        ({**JOURNALED, "mirrored": True}, False),
        ({**JOURNALED, "mirrored": UNSEEN}, False),
        ({"features": ("layering", "deep-flatten")}, False),
    ],
    ids=["journaling", "it is mirrored", "whether it is mirrored was not seen", "kernels differ"],
)
def test_journaling_is_disabled_unless_a_mirror_needs_it(
    of_image: dict[str, Any], *, wanted: bool
) -> None:
    seen = unmapped(
        of_image=of_image,
        in_kube={
            "pods": (waiting_pod(),),
            "attachments": attached("worker-2"),
            "nodes": (node(), listing("worker-2")),
            "events": (
                kubelet_event(stage(MAP.format(number=6, text="No such device or address"))),
            ),
        },
    )
    disable = f"rbd feature disable {SPEC} journaling"
    assert (disable in lines_of(found(seen, "RBD740").commands)) is wanted


def test_pods_of_a_read_only_volume_are_deleted_last() -> None:
    finding = found(world(mapped=READ_ONLY, in_kube={"pods": (pod(),)}), "RBD755")
    assert lines_of(finding.commands)[-1] == "kubectl -n default delete pod web-0"
    assert lines_of(finding.commands)[0].startswith("journalctl --dmesg")


@pytest.mark.parametrize(
    "words",
    [
        "failed to find the secret $(reboot) in the namespace x with error",
        "failed to find the secret x in the namespace `reboot` with error",
        'failed to load secret "x/$(reboot)"',
        "error processing PVC default/x;reboot: PVC is not bound",
    ],
)
def test_command_takes_only_names_from_an_event(words: str) -> None:
    seen = mounting(f'MountVolume.MountDevice failed for volume "{PV}" : {words}')
    assert not any(
        "reboot" in line
        for finding in diagnosis_of(seen).findings
        for line in lines_of(finding.commands)
    )


def test_combined_event_is_recognised_by_its_message() -> None:
    combined = kubelet_event(f"(combined from similar events): {NO_SECRET}", count=17)
    finding = found(events_of(combined), "RBD733")
    assert "ceph/csi-rbd-secret" in finding.message
    assert finding.evidence[1] == "reported 17 times, last 2m ago"


def test_pods_with_the_same_error_are_named_together() -> None:
    names = ("web-1", "web-2", "web-3", "web-4", "web-5")
    seen = mounting(
        pods=tuple(waiting_pod(name) for name in names),
        events=tuple(
            kubelet_event(NO_SECRET, subject=ObjectRef(namespace="default", name=name))
            for name in names
        ),
    )
    (finding,) = [found for found in diagnosis_of(seen).findings if found.code == "RBD733"]
    assert "default/web-1, default/web-2, default/web-3 and 2 more cannot start" in finding.message


def test_unknown_error_is_quoted_without_its_common_prefix() -> None:
    finding = found(mounting(stage("the moon is in the wrong house")), "RBD762")
    assert finding.message == (
        'default/web-1 cannot start on worker-2: "rpc error: code = Internal desc = the moon is in '
        'the wrong house".'
    )


def test_event_is_reported_if_pods_were_not_observed() -> None:
    seen = mounting(NO_SECRET, pods=UNSEEN)
    assert found(seen, "RBD733").message.startswith("default/web-1 cannot start: the driver needs")


def test_failed_attach_is_reported_by_event_if_unobserved() -> None:
    words = event(f'AttachVolume.Attach failed for volume "{PV}" : rpc error: no')
    seen = mounting(events=(words,), attachments=UNSEEN)
    assert "rpc error: no" in found(seen, "RBD413").message
    assert "RBD413" not in codes(mounting(events=(words,)))


# --------------------------------------------------------------------------------------------------
# Image still in use
# --------------------------------------------------------------------------------------------------


def being_used(**parts: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    in_kube = {
        "pods": (waiting_pod(),),
        "attachments": attached("worker-2"),
        "events": (kubelet_event(BEING_USED),),
    }
    return world(in_kube=in_kube, **parts)


def test_watcher_of_an_orphan_does_not_end_automatically() -> None:
    finding = found(being_used(), "RBD402")
    assert "Nothing else makes that client release the image" in finding.message
    assert finding.severity is Severity.ERROR


def test_next_retry_succeeds_if_the_watcher_is_gone() -> None:
    finding = found(being_used(on_node={"mappings": ()}, of_image={"watchers": ()}), "RBD402")
    assert finding.severity is Severity.INFO
    assert str(finding.recovery) == "kubelet, within 2m56s"


def test_watchers_of_rbd_mirror_only_lead_to_configuration() -> None:
    watching = watcher(address=EntityAddress(ip="192.0.2.7", nonce=5), client=3)
    mirror = {"watchers": (watching,), "mirror_daemons": (mirror_daemon(watching),)}
    finding = found(
        being_used(on_node={"mappings": ()}, of_image=mirror),
        "RBD402",
    )
    assert "Only rbd-mirror watches" in finding.message
    assert "mirrorDaemonCount" in finding.remedy


# --------------------------------------------------------------------------------------------------
# A call that does not return
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "code = DeadlineExceeded desc = context deadline exceeded",
        f"code = Aborted desc = an operation with the given Volume ID {HANDLE} already exists",
    ],
)
def test_call_that_has_not_returned_is_reported_as_hanging(words: str) -> None:
    seen = mounting(f'MountVolume.MountDevice failed for volume "{PV}" : rpc error: {words}')
    assert problem_codes(seen) == {"RBD203"}


def test_former_hang_is_not_reported_after_a_newer_error() -> None:
    exists = f"an operation with the given Volume ID {HANDLE} already exists"
    seen = events_of(
        kubelet_event(exists, last_seen="2026-11-21T02:50:00Z"), kubelet_event(NO_SECRET)
    )
    assert problem_codes(seen) == {"RBD733"}


def test_driver_of_the_old_node_is_not_reported_for_the_new() -> None:
    seen = world(
        mapped={"mounts": (mount(path=STAGING_PATH),)},
        in_kube={
            "pods": (waiting_pod(),),
            "attachments": (attachment(),),
            "csi_nodes": (
                CSINode(node_name="worker-1"),
                CSINode(node_name="worker-2", drivers=(DRIVER,)),
            ),
        },
    )
    assert "RBD201" in codes(seen)
    assert "RBD731" not in codes(seen)
