"""Log lines of the node as evidence: of the right node, step and volume, and never a verdict."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    BlocklistEntry,
    LogEntry,
    LogExcerpt,
    NodeLogs,
    NotObserved,
    PluginSocket,
    Snapshot,
)
from tests.support.snapshots import (
    ADDRESS,
    BY_IMAGE,
    DRIVER,
    HANDLE,
    NOW,
    PV,
    SPEC,
    attachment,
    codes,
    event,
    found,
    in_flight,
    mount,
    node,
    opener,
    pod,
    process,
    remote_watcher,
    unmapped,
    waiting_pod,
    world,
)

SINCE: Final = "2026-11-21T02:10:00Z"
NO_ERRORS: Final = LogExcerpt(since=SINCE)
HIDDEN: Final = NotObserved(reason="/var/log/pods is not there", hint="the chart: logs.enabled")


def word(text: str, *names: str, **overrides: Any) -> LogEntry:  # noqa: ANN401 - any field of a word
    made = LogEntry(at="2026-11-21T02:59:15Z", text=text, names=names or (PV, HANDLE))
    return replace(made, **overrides)


UNMAP: Final = word(
    "error unmapping volume: rbd: unmap failed: (16) Device or resource busy",
    call="NodeUnstageVolume",
    times=7,
)
UNMOUNT: Final = word(
    "UnmountDevice failed …: rpc error: code = Internal",
    call="UnmountDevice",
    retry_at="2026-11-21T03:00:14Z",
)
MOUNT: Final = word(f"MountVolume.MountDevice failed …: rbd image {SPEC} is still being used",
                    call="MountVolume.MountDevice")  # fmt: skip
WATCH: Final = word("rbd: rbd0: encountered watch error: -107", "rbd0")
OF_ANOTHER: Final = word("error unmapping another", "pvc-another", call="NodeUnstageVolume")


def with_logs(
    seen: Snapshot,
    kubelet: LogExcerpt | NotObserved | LogEntry = NO_ERRORS,
    plugin: LogExcerpt | NotObserved | LogEntry = NO_ERRORS,
    kernel: LogExcerpt | NotObserved | LogEntry = NO_ERRORS,
) -> Snapshot:
    """Return the snapshot with these log lines of its node."""
    assert seen.node is not None
    heard = [
        replace(NO_ERRORS, lines=(source,)) if isinstance(source, LogEntry) else source
        for source in (kubelet, plugin, kernel)
    ]
    logs = NodeLogs(kubelet=heard[0], plugin=heard[1], kernel=heard[2])
    return replace(seen, node=replace(seen.node, logs=logs))


def log_evidence(seen: Snapshot, code: str) -> tuple[str, ...]:
    """Return what the log lines add to the evidence of a finding."""
    assert seen.node is not None
    silent = replace(seen, node=replace(seen.node, logs=NotObserved(reason="not asked")))
    before = found(silent, code).evidence
    after = found(seen, code).evidence
    assert after[: len(before)] == before
    return after[len(before) :]


PINNED: Final = world(mapped={"openers": (opener(),)}, in_kube={"attachments": (attachment(),)})
STAGED_ONLY: Final = world(mapped={"mounts": (mount(),)})
STARTING: Final = world(in_kube={"pods": (waiting_pod(node="worker-1"),)})
MULTI_ATTACH: Final = event(f'Multi-Attach error for volume "{PV}" Volume is already exclusively')
BEING_USED: Final = event(f"rbd image {SPEC} is still being used", reason="FailedMount")


NO_KEY: Final = event(
    f"MountVolume.MountDevice failed for volume \"{PV}\" : rbd: failed to add secret 'client.csi' "
    "to kernel\nrbd: map failed: (22) Invalid argument",
    reason="FailedMount",
)


# What is quoted -----------------------------------------------------------------------------------


def test_source_age_count_and_next_retry_precede_the_log_line() -> None:
    kubelet, plugin = log_evidence(with_logs(PINNED, kubelet=UNMOUNT, plugin=UNMAP), "RBD102")
    assert kubelet == (
        'kubelet 45s ago, next retry in 14s: "UnmountDevice failed …: rpc error: code = Internal"'
    )
    assert plugin == (
        'the CSI node plugin 45s ago (7 times), NodeUnstageVolume: "error unmapping volume: rbd: '
        'unmap failed: (16) Device or resource busy" (the device is still open)'
    )


def test_past_retry_is_not_announced() -> None:
    (line, *_) = log_evidence(with_logs(PINNED, kubelet=replace(UNMOUNT, retry_at=NOW)), "RBD102")
    assert line.startswith("kubelet 45s ago: ")
    assert "retry" not in line


def test_call_without_an_answer_is_reported_as_such() -> None:
    call = word("GRPC call: NodeUnstageVolume", call="NodeUnstageVolume", unanswered=True,
                at="2026-11-21T02:40:00Z")  # fmt: skip
    assert log_evidence(with_logs(PINNED, plugin=call), "RBD102")[0] == (
        "the CSI node plugin 20m ago: NodeUnstageVolume was called and has not returned"
    )


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("umount: /x: target is busy.", "a file or a device on it is still open"),
        (f"an operation with the given Volume ID {HANDLE} already exists", "has not finished yet"),
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", "still be running"),
        (f"driver name {DRIVER} not found in the list of registered CSI drivers", "registered"),
        ("dial unix /x/csi.sock: connect: connection refused", "is not listening"),
    ],
)
def test_log_line_that_needs_it_is_explained(text: str, meaning: str) -> None:
    (line, *_) = log_evidence(with_logs(PINNED, kubelet=word(text)), "RBD102")
    assert line.startswith(f'kubelet 45s ago: "{text}" (')
    assert meaning in line


def test_log_lines_of_another_volume_are_not_quoted() -> None:
    """Assert no quotation: a snapshot without a target has the lines of every volume."""
    lines = log_evidence(with_logs(PINNED, plugin=OF_ANOTHER, kernel=word("x", "rbd1")), "RBD102")
    assert not any(OF_ANOTHER.text in line or '"x"' in line for line in lines)


# Findings that quote log lines --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (PINNED, "RBD102"),
        (STAGED_ONLY, "RBD110"),
        (STARTING, "RBD120"),
        (
            world(
                mapped={"mounts": (mount(),)},
                of_kubelet={
                    "sockets": (PluginSocket(driver=DRIVER, path="/s", listening=False),)
                },
                in_kube={"attachments": (attachment(),)},
            ),
            "RBD201",
        ),
        (
            world(
                on_node={
                    "in_flight": (
                        in_flight("umount", f"umount /x/{HANDLE}",
                                  process=process(pid=9000, command="umount", state="D")),
                    )
                }
            ),
            "RBD203",
        ),
    ],
    ids=["pinned", "staging-left", "between-steps", "driver-down", "hangs"],
)  # fmt: skip
def test_failed_detach_quotes_log_lines_of_the_detach_path(seen: Snapshot, code: str) -> None:
    """Assert both paths for a volume between two steps or in a hung step: it may be on either."""
    lines = log_evidence(with_logs(seen, kubelet=MOUNT, plugin=UNMAP, kernel=WATCH), code)
    assert any(UNMAP.text in line for line in lines)
    assert any(WATCH.text in line for line in lines)
    assert any(MOUNT.text in line for line in lines) == (code in {"RBD120", "RBD203"})


def waiting_here(name: str) -> Snapshot:
    """Build a snapshot in which a pod on that node waits for an image that worker-2 watches."""
    return unmapped(
        of_image={"watchers": (remote_watcher(),)},
        in_kube={
            "pods": (waiting_pod("web-1", name),),
            "events": (BEING_USED,),
            "attachments": (attachment(name),),
        },
    )


def test_waiting_pod_of_this_node_quotes_lines_of_the_attach_path() -> None:
    seen = with_logs(waiting_here("worker-1"), kubelet=MOUNT, plugin=UNMAP)
    lines = log_evidence(seen, "RBD402")
    assert any(MOUNT.text in line for line in lines)
    assert not any(UNMAP.text in line for line in lines)


def test_waiting_pod_of_another_node_quotes_no_log_line() -> None:
    assert log_evidence(with_logs(waiting_here("worker-2"), kubelet=MOUNT), "RBD402") == ()


def multi_attach(**parts: Any) -> Snapshot:  # noqa: ANN401 - as world
    pods = (waiting_pod(), *parts.pop("pods", ()))
    in_kube = {"pods": pods, "events": (MULTI_ATTACH,), "attachments": (attachment(),)}
    return world(in_kube=in_kube, **parts)


def test_multi_attach_quotes_the_log_of_this_node_as_the_holder() -> None:
    """Assert a quotation: the API shows the volume in use, so the failed step has no finding."""
    seen = multi_attach(mapped={"mounts": (mount(),)}, pods=(pod(deleting_since=NOW), pod("web-3")))
    assert "RBD102" not in codes(seen)
    assert any(UNMAP.text in line for line in log_evidence(with_logs(seen, plugin=UNMAP), "RBD401"))


def test_multi_attach_does_not_repeat_a_quoted_log_line() -> None:
    seen = with_logs(multi_attach(mapped={"openers": (opener(),)}), plugin=UNMAP)
    assert any(UNMAP.text in line for line in log_evidence(seen, "RBD102"))
    assert log_evidence(seen, "RBD401") == ()


def test_dead_device_quotes_only_the_kernel() -> None:
    dead = world(
        in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),)},
        of_image={"watchers": ()},
    )
    lines = log_evidence(with_logs(dead, kubelet=UNMOUNT, plugin=UNMAP, kernel=WATCH), "RBD103")
    assert lines == (
        (
            'the kernel 45s ago: "rbd: rbd0: encountered watch error: -107" '
            "(Ceph has removed its watch)"
        ),
    )


# Three states -------------------------------------------------------------------------------------


def test_absence_of_errors_is_reported_with_its_duration() -> None:
    (line,) = log_evidence(with_logs(PINNED), "RBD102")
    assert line == (
        "no error of this step was logged by kubelet in the last 50m or by the CSI node "
        "plugin in the last 50m"
    )


def test_a_log_that_is_not_quoted_is_named_beside_the_quoted_one() -> None:
    plugin = LogExcerpt(since=UNMAP.at, lines=(UNMAP,), unread=("csi-rbdplugin of shop/x: why",))
    lines = log_evidence(with_logs(PINNED, plugin=plugin), "RBD102")
    assert lines[-1] == "not quoted as the CSI node plugin: csi-rbdplugin of shop/x: why"


def test_unread_logs_are_reported_in_one_line_with_a_hint() -> None:
    denied = NotObserved(reason="syslog(2): Operation not permitted", hint="CAP_SYSLOG")
    seen = with_logs(PINNED, kubelet=UNMOUNT, plugin=HIDDEN, kernel=denied)
    _, line = log_evidence(seen, "RBD102")
    assert line == (
        "not observed: the log of the CSI node plugin (/var/log/pods is not there); the kernel "
        "(syslog(2): Operation not permitted). To read it: the chart: logs.enabled; CAP_SYSLOG"
    )


def test_healthy_step_reports_neither_absence_nor_unread_logs() -> None:
    assert log_evidence(with_logs(STARTING, plugin=HIDDEN), "RBD120") == ()


def test_logs_that_were_not_requested_are_not_mentioned() -> None:
    of_a_log = re.compile(r"\blog(ged)?\b")
    unread = found(with_logs(PINNED, plugin=HIDDEN), "RBD102").evidence
    assert any(of_a_log.search(line) for line in unread)
    assert not any(of_a_log.search(line) for line in found(PINNED, "RBD102").evidence)


@pytest.mark.parametrize("heard", [NO_ERRORS, HIDDEN, UNMAP, MOUNT, WATCH])
def test_log_lines_change_no_code(heard: LogExcerpt | NotObserved | LogEntry) -> None:
    for seen in (PINNED, STAGED_ONLY, multi_attach(), waiting_here("worker-1"), world()):
        assert codes(with_logs(seen, heard, heard, heard)) == codes(seen)


def test_skipped_node_has_no_log_lines() -> None:
    seen = world(node=None, in_kube={"nodes": (node(),)}, target=BY_IMAGE)
    assert codes(seen)


def test_kernel_line_of_a_refused_key_is_evidence_of_the_key_type() -> None:
    pods = (waiting_pod(node="worker-1"),)
    seen = unmapped(
        in_kube={"pods": pods, "attachments": (attachment(),), "events": (NO_KEY,)},
    )
    line = word("libceph: secret too big 32", "libceph: secret too big")
    said = log_evidence(with_logs(seen, kernel=line), "RBD747")
    assert said[0] == (
        'the kernel 45s ago: "libceph: secret too big 32" '
        "(it does not support keys of type aes256k)"
    )
