"""The logs of a node: recorded logs below the root of a host, and the entries read from them."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.collect.node import log_sources
from rbdagent.collect.node import volume_logs as observed
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.collect.node.volume_logs import begin_logs
from rbdagent.collector import collect_snapshot
from rbdagent.config import Settings
from rbdagent.correlate.log_names import LogNames
from rbdagent.model import (
    CollectScope,
    LogEntry,
    LogExcerpt,
    NodeLogs,
    NotObserved,
    ProcessRef,
    Snapshot,
    Target,
    TargetKind,
)
from rbdagent.parse.handle import staging_hash
from rbdagent.parse.logs import KernelLine
from rbdagent.parse.secrets import without_secrets
from rbdagent.report.snapshot import decode, dump_snapshot, encode, load_snapshot
from tests.support.cli_runner import ROOT
from tests.support.recordings import _plant, recorded_node
from tests.support.rows import each_row
from tests.support.snapshots import HANDLE, PV, SPEC, kubelet, node_view, process

LOGS: Final = Path(__file__).parents[1] / "fixtures" / "logs"
POD: Final = "var/log/pods/rook-ceph_csi-rbdplugin-x7k2p_3d5f0c1e-5f0e-4b39-9d53-8e1c8f2b1a77"
PLUGIN: Final = f"{POD}/csi-rbdplugin"
PLUGIN_DIRECTORY: Final = "/lib/kubelet/plugins/rbd.csi.ceph.com"
"""Where the driver's socket is, in the file system of the node's /var."""
HOST_MOUNTS: Final = """\
20 1 8:2 / / rw - ext4 /dev/sda2 rw
21 20 8:1 / /var rw - ext4 /dev/sda1 rw
22 21 8:1 /lib/kubelet/plugins/kubernetes.io /elsewhere rw - ext4 /dev/sda1 rw
"""
SIDECAR: Final = 401
"""The pid of the registrar in the plugin's pod: it has the driver's directory mounted."""

PINNED: Final = "2026-11-21T00:47:04Z"
"""The time of the recording with that name; likewise for the next constants."""
STAGING_BUSY, HUNG, ROLLED_BACK = (
    "2026-11-21T00:58:40Z",
    "2026-11-21T01:42:55Z",
    "2026-11-21T01:32:40Z",
)
ITSELF: Final = (
    LogNames(
        volume=frozenset({PV, HANDLE, str(SPEC), staging_hash(HANDLE)}),
        kernel=frozenset({"rbd0", "client4393"}),
    ),
)
HANDLES: Final = "0001-000a-lab-ceph-1-0000000000000001-"
BUSY: Final = (LogNames(volume=frozenset({f"{HANDLES}f479515b-16b0-451a-a6c5-f4ab2a7b14aa"})),)
HANGS: Final = (
    LogNames(
        volume=frozenset({f"{HANDLES}730e891c-7d48-4017-9abe-4823bfc4bbab"}),
        kernel=frozenset({"rbd0", "umount:1331"}),
    ),
)
LEAKS: Final = (LogNames(volume=frozenset({f"{HANDLES}9198df69-fd09-437b-a0c8-c20c4445d606"})),)


# Files of a host ----------------------------------------------------------------------------------


def epoch(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


def write(root: Path, name: str, text: str | bytes, *, at: str) -> Path:
    """Write a file with that time as its last change."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (epoch(at), epoch(at)))
    return path


def recorded(name: str) -> str:
    return (LOGS / name).read_text()


def in_frames(text: str, day: str = "2026-11-21") -> str:
    """Add the frame of the container runtime to the lines of a container."""
    clock, framed = "00:00:00.000000", []
    for line in text.splitlines():
        head = re.match(r"[IWEF]\d{4} (\S+)", line)
        clock = head[1] if head else clock
        framed.append(f"{day}T{clock}123Z stderr F {line}\n")
    return "".join(framed)


def in_records(text: str) -> str:
    """Return lines of dmesg in the format of /dev/kmsg; the text shows which are errors."""
    wrong = re.compile(r"error|result -|failed|blocked for|Aborting|read-only|Detected")
    records = []
    for number, line in enumerate(text.splitlines()):
        seconds, _, said = line.removeprefix("[").partition("] ")
        level = 4 if wrong.search(said) else 6
        records.append(f"{level},{number},{round(float(seconds) * 1e6)},-;{said}\n")
    return "".join(records)


def host(root: Path, *, up_s: float = 1720.0) -> NodeRoots:
    """Return a host without any log."""
    write(root, "proc/uptime", f"{up_s} 1.0\n", at=PINNED)
    write(root, "proc/sys/kernel/random/boot_id", "b001\n", at=PINNED)
    write(root, "proc/1/mountinfo", HOST_MOUNTS, at=PINNED)
    run_container(root, SIDECAR, POD.rpartition("_")[2], f"{PLUGIN_DIRECTORY} /csi")
    (root / "dev").mkdir(exist_ok=True)
    return NodeRoots(procfs=root / "proc", sysfs=root / "sys", host_root=root)


def run_container(root: Path, pid: int, pod_uid: str, *mounts: str, disk: str = "8:1") -> None:
    """Write the process of a container, with mounts of the node's disk: place and mount point."""
    lines = "".join(f"70 60 {disk} {mount} rw - ext4 /dev/sda1 rw\n" for mount in mounts)
    overlay = "60 50 0:40 / / rw - overlay overlay rw\n"
    write(root, f"proc/{pid}/mountinfo", overlay + lines, at=PINNED)
    cgroup = f"0::/kubepods.slice/kubepods-pod{pod_uid.replace('-', '_')}.slice/cri-x.scope\n"
    write(root, f"proc/{pid}/cgroup", cgroup, at=PINNED)


def pinned_host(root: Path) -> NodeRoots:
    """Return the host of the recording in which a working directory pins the device."""
    write(root, f"{PLUGIN}/0.log", in_frames(recorded("pinned.csi.log")), at=PINNED)
    write(root, "var/log/kubelet.log", recorded("pinned.kubelet.log"), at="2026-11-21T00:46:54Z")
    write(root, "dev/kmsg", in_records(recorded("pinned.dmesg")), at=PINNED)
    return host(root)


def words_of(
    roots: NodeRoots,
    calls: tuple[LogNames, ...] = ITSELF,
    *,
    now: str = PINNED,
    pid: int = 300,
    others: tuple[ProcessRef, ...] = (),
) -> NodeLogs:
    """Return the log entries of a host where the containers of the plugin's pod run, and others."""
    running = kubelet(process=process(pid=pid, command="kubelet"))
    sidecar = process(pid=SIDECAR, pod_uid=POD.rpartition("_")[2])
    view = node_view(kubelet=running, processes=(*others, sidecar))
    wait = begin_logs(roots, view, calls, now=now)
    found = wait(time.monotonic() + 60)
    assert isinstance(found, NodeLogs)
    return found


def heard(answer: LogExcerpt | NotObserved) -> tuple[LogEntry, ...]:
    assert isinstance(answer, LogExcerpt), answer
    return answer.lines


def unseen(answer: LogExcerpt | NotObserved) -> NotObserved:
    assert isinstance(answer, NotObserved), answer
    return answer


# Recorded -----------------------------------------------------------------------------------------


def test_error_of_kubelet_has_its_last_time_and_next_retry(tmp_path: Path) -> None:
    (word,) = heard(words_of(pinned_host(tmp_path)).kubelet)
    assert word.text.startswith("UnmountDevice failed …: kubernetes.io/csi: attacher.UnmountDevice")
    assert (word.at, word.times, word.call) == ("2026-11-21T00:46:43Z", 3, "UnmountDevice")
    assert word.retry_at == "2026-11-21T00:46:59Z"
    assert {PV, HANDLE} <= set(word.names)


def test_error_of_the_plugin_is_kept_once_with_its_call(tmp_path: Path) -> None:
    """The plugin logs an error and then answers with it: the same text twice for each try."""
    (word,) = heard(words_of(pinned_host(tmp_path)).plugin)
    assert word.text.startswith("error unmapping volume (0001-000a-lab-ceph-1")
    assert word.text.endswith("rbd: unmap failed: (16) Device or resource busy ))")
    assert (word.at, word.times, word.call) == ("2026-11-21T00:46:43Z", 2, "NodeUnstageVolume")


def test_error_of_several_lines_is_one_entry(tmp_path: Path) -> None:
    text = recorded("staging-busy.kubelet.log")
    write(tmp_path, "var/log/kubelet.log", text, at="2026-11-21T00:58:32Z")
    words = heard(words_of(host(tmp_path), BUSY, now=STAGING_BUSY).kubelet)
    assert [word.text[-25:] for word in words] == ["f4ab2a7b14aa: target is busy."[-25:]]


def test_reason_of_a_failed_stage_is_kept(tmp_path: Path) -> None:
    """The driver answers "exit status 1"; its log has the output of mkfs and of the rollback."""
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(recorded("rollback.csi.log")), at=ROLLED_BACK)
    rollback, mkfs = heard(words_of(host(tmp_path), LEAKS, now=ROLLED_BACK).plugin)
    assert "failed to unmap rbd device" in rollback.text
    assert mkfs.text.endswith("error: exit status 1, output: mkfs.ext4: wrapped, fails")
    assert {rollback.call, mkfs.call} == {"NodeStageVolume"}


def test_hanging_call_is_kept_with_its_start_and_retries(
    tmp_path: Path,
) -> None:
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(recorded("hung.csi.log")), at=HUNG)
    retry, call = heard(words_of(host(tmp_path), HANGS, now=HUNG).plugin)
    assert retry.text.startswith("an operation with the given Volume ID 0001-000a")
    assert (retry.times, retry.unanswered) == (3, False)
    assert (call.call, call.unanswered) == ("NodeUnstageVolume", True)
    assert call.at == "2026-11-21T01:40:12Z", "slow for 2m29s by then"


def test_call_is_unanswered_only_where_responses_are_logged(tmp_path: Path) -> None:
    """At verbosity 4 the driver logs calls, but no answers."""
    quiet = "".join(
        f"{line}\n" for line in recorded("hung.csi.log").splitlines() if "response" not in line
    )
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(quiet), at=HUNG)
    (retry,) = heard(words_of(host(tmp_path), HANGS, now=HUNG).plugin)
    assert not retry.unanswered


def test_call_before_a_plugin_restart_is_not_unanswered(tmp_path: Path) -> None:
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(recorded("hung.csi.log")), at=HUNG)
    later = in_frames("I1121 01:42:50.000000     300 utils.go:273] ID: 1 GRPC response: {}")
    write(tmp_path, f"{PLUGIN}/1.log", later, at=HUNG)
    words = heard(words_of(host(tmp_path), HANGS, now=HUNG).plugin)
    assert [word.unanswered for word in words] == [False]


def test_kernel_entries_name_hung_tasks_by_device_and_process(tmp_path: Path) -> None:
    write(tmp_path, "dev/kmsg", in_records(recorded("hung.dmesg")), at=HUNG)
    words = heard(words_of(host(tmp_path, up_s=410), HANGS, now=HUNG).kernel)
    assert [(word.at, word.text) for word in words] == [
        ("2026-11-21T01:42:08Z", "INFO: task umount:1331 blocked for more than 120 seconds."),
        ("2026-11-21T01:42:08Z", "INFO: task jbd2/rbd0-8:1195 blocked for more than 120 seconds."),
    ]


def test_kernel_warnings_are_the_newest_of_the_device(
    tmp_path: Path,
) -> None:
    write(tmp_path, "dev/kmsg", in_records(recorded("blocklisted.dmesg")), at=HUNG)
    roots = host(tmp_path, up_s=760)
    own = words_of(roots, (LogNames(kernel=frozenset({"rbd1"})),), now=HUNG).kernel
    assert [word.text for word in heard(own)] == [
        "rbd: rbd1: failed to reregister watch: -108",
        "rbd: rbd1: failed to unwatch: -108",
        "rbd: rbd1: encountered watch error: -107",
    ]
    both = (LogNames(kernel=frozenset({"rbd0"})), LogNames(kernel=frozenset({"rbd1"})))
    words = heard(words_of(roots, both, now=HUNG).kernel)
    assert [word.names for word in words] == [("rbd0",)] * 3 + [("rbd1",)] * 3
    assert words[0].text == "rbd: rbd0: write result -108"
    assert words[0].times == 4


def test_kernel_line_about_a_refused_key_is_kept(
    tmp_path: Path,
) -> None:
    # pr_err of ceph_crypto_key_decode (net/ceph/crypto.c), which names neither image nor user.
    record = "3,812,1690000000,-;libceph: secret too big 32\n"
    write(tmp_path, "dev/kmsg", in_records(recorded("pinned.dmesg")) + record, at=PINNED)
    calls = (LogNames(kernel=frozenset({"libceph: secret too big"})),)
    (word,) = heard(words_of(host(tmp_path), calls).kernel)
    assert (word.text, word.names) == ("libceph: secret too big 32", ("libceph: secret too big",))


@each_row(
    ("level", "text"),
    [
        (3, "libceph: mon0 (1)10.77.0.1:6789 feature set mismatch, my 1 < server's 3, missing 2"),
        (3, "libceph: bad fsid, had 50694798-7cee got 7d112cea-dc64"),
        (4, "libceph: osd7 (1)10.77.0.7:6801 socket closed (con state CONNECTING)"),
        (3, "rbd: Unknown parameter 'ms_mode'"),
        # At level info.
        (6, "rbd: id 135dfba5eabd: parent chain is too long (17)"),
        (4, "libceph: pool 4 is full or reached quota"),
    ],
)
def test_kernel_line_about_a_client_is_kept(tmp_path: Path, level: int, text: str) -> None:
    """A map that failed had no device; such a line names a monitor, an OSD or a pool."""
    record = f"{level},812,1690000000,-;{text}\n"
    write(tmp_path, "dev/kmsg", in_records(recorded("pinned.dmesg")) + record, at=PINNED)
    calls = (LogNames(kernel=frozenset({"libceph:"})),)
    assert [word.text for word in heard(words_of(host(tmp_path), calls).kernel)] == [text]
    assert heard(words_of(host(tmp_path), (LogNames(kernel=frozenset({"rbd9"})),)).kernel) == ()


def test_line_with_the_cause_is_kept_among_many_of_its_effect(tmp_path: Path) -> None:
    """As ext4 of a blocklisted client logs it: each failed request logs three lines."""
    lines = [
        "EXT4-fs (rbd0): Remounting filesystem read-only",
        *(
            text
            for number in (1, 2)
            for text in (
                f"rbd: rbd0: write at objno {number} 0~4096 result -108",
                f"I/O error, dev rbd0, sector {number} op 0x1:(WRITE)",
                f"Buffer I/O error on device rbd0, logical block {number}",
                f"EXT4-fs (rbd0): I/O error while writing superblock {number}",
            )
        ),
        *(f"libceph: osd{number} (1)10.77.0.7:6801 socket closed" for number in range(5)),
    ]
    records = "".join(f"4,{at},16900000{at},-;{text}\n" for at, text in enumerate(lines, 10))
    write(tmp_path, "dev/kmsg", in_records(recorded("pinned.dmesg")) + records, at=PINNED)
    calls = (LogNames(kernel=frozenset({"rbd0", "libceph:"})),)
    kept = [word.text for word in heard(words_of(host(tmp_path), calls).kernel)]
    assert lines[0] in kept
    assert sum(text.startswith("libceph: ") for text in kept) == 1


def test_kernel_lines_before_the_current_mapping_are_ignored(tmp_path: Path) -> None:
    early = "[  100.000000] rbd: rbd0: encountered watch error: -107\n"
    write(tmp_path, "dev/kmsg", in_records(early + recorded("pinned.dmesg")), at=PINNED)
    assert heard(words_of(host(tmp_path)).kernel) == ()
    late = recorded("pinned.dmesg") + early.replace(" 100.", "1700.")
    write(tmp_path, "dev/kmsg", in_records(late), at=PINNED)
    assert len(heard(words_of(host(tmp_path)).kernel)) == 1


def test_lines_about_another_volume_are_not_kept(tmp_path: Path) -> None:
    """Both logs have many lines about another volume."""
    words = words_of(pinned_host(tmp_path), (LogNames(volume=frozenset({"pvc-of-no-pod-here-1"})),))
    assert [heard(answer) for answer in (words.kubelet, words.plugin, words.kernel)] == [()] * 3


# Three states -------------------------------------------------------------------------------------


def test_missing_logs_are_reported_with_a_hint(tmp_path: Path) -> None:
    words = words_of(host(tmp_path))
    assert "/var/log/pods does not exist" in unseen(words.plugin).reason
    assert "no journal" in unseen(words.kubelet).reason
    assert "dev/kmsg: No such file" in unseen(words.kernel).reason
    for answer in (words.plugin, words.kubelet, words.kernel):
        assert "logs.enabled" in unseen(answer).hint


def test_log_without_entries_reports_how_far_back_it_was_read(tmp_path: Path) -> None:
    lines = [f"I1121 00:{minute}:00.000000     1 a.go:1] idle" for minute in (10, 20, 40)]
    write(tmp_path, f"{PLUGIN}/0.log", in_frames("\n".join(lines)), at="2026-11-21T00:40:00Z")
    write(tmp_path, "var/log/kubelet.log", "\n".join(lines), at="2026-11-21T00:40:00Z")
    words = words_of(host(tmp_path))
    assert words.plugin == words.kubelet == LogExcerpt(since="2026-11-21T00:10:00Z")


def test_entries_older_than_an_hour_are_not_kept(tmp_path: Path) -> None:
    words = words_of(pinned_host(tmp_path), now="2026-11-21T01:46:33Z")
    (plugin,) = heard(words.plugin)
    assert plugin.times == 2
    assert heard(words_of(pinned_host(tmp_path), now="2026-11-21T01:46:44Z").plugin) == ()


def test_log_that_kubelet_no_longer_writes_is_not_observed(tmp_path: Path) -> None:
    words = words_of(pinned_host(tmp_path), now="2026-11-21T03:00:00Z")
    assert "no line of kubelet since 2026-11-21T00:46:5" in unseen(words.kubelet).reason


def test_log_of_the_provisioner_is_not_read_for_the_plugin(tmp_path: Path) -> None:
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(recorded("pinned.csi.log")), at=PINNED)
    (tmp_path / POD / "csi-provisioner").mkdir()
    assert "no log of a container csi-rbdplugin" in unseen(words_of(host(tmp_path)).plugin).reason


# Containers that are named like the plugin's ------------------------------------------------------

LOOK_ALIKE: Final = "var/log/pods/shop_csi-rbdplugin-{0}_00000000-0000-4000-8000-00000000000{0}"


def imitate(root: Path, number: int) -> ProcessRef:
    """Run a tenant's pod whose log is newer than the plugin's, and is about the same volume."""
    pod = LOOK_ALIKE.format(number)
    forged = recorded("pinned.csi.log").replace("Device or resource busy", "No such device")
    write(root, f"{pod}/csi-rbdplugin/0.log", in_frames(forged), at="2026-11-21T00:47:05Z")
    uid, pid = pod.rpartition("_")[2], 500 + number
    # A volume of the tenant on the same disk, and kubelet's directory of all staging paths.
    volume = f"/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/plugins"
    run_container(root, pid, uid, f"{volume}/rbd.csi.ceph.com /csi")
    # A separate file system, in a user namespace, whose directories have the names of the host.
    with (root / f"proc/{pid}/mountinfo").open("a") as mounts:
        mounts.write(f"71 60 0:77 {PLUGIN_DIRECTORY} /csi2 rw - tmpfs none rw\n")
    return process(pid=pid, pod_uid=uid)


def test_three_pods_that_are_named_like_the_plugin_do_not_hide_its_log(tmp_path: Path) -> None:
    roots = pinned_host(tmp_path)
    alone = words_of(roots).plugin
    others = tuple(imitate(tmp_path, number) for number in (1, 2, 3, 4))
    answer = words_of(roots, others=others).plugin
    assert heard(answer) == heard(alone)
    assert isinstance(answer, LogExcerpt)
    (unread,) = answer.unread
    assert unread == (
        "csi-rbdplugin of shop/csi-rbdplugin-4, csi-rbdplugin of shop/csi-rbdplugin-3, "
        "csi-rbdplugin of shop/csi-rbdplugin-2 and 1 more: no running container of that pod has "
        "the directory of a CSI driver mounted, as the node plugin has"
    )


def test_a_log_of_no_proved_pod_is_not_observed(tmp_path: Path) -> None:
    roots = host(tmp_path)
    answer = unseen(words_of(roots, others=(imitate(tmp_path, 1),)).plugin)
    assert answer.reason.startswith("csi-rbdplugin of shop/csi-rbdplugin-1: no running container")
    assert answer.hint == "kubectl -n shop logs csi-rbdplugin-1 -c csi-rbdplugin"


def test_a_sidecar_proves_the_pod_while_the_plugin_restarts(tmp_path: Path) -> None:
    roots = pinned_host(tmp_path)
    ended = process(pid=999, pod_uid=POD.rpartition("_")[2], container_id="c1")
    assert len(heard(words_of(roots, others=(ended,)).plugin)) == 1


def test_mounts_that_cannot_be_read_are_a_reason(tmp_path: Path) -> None:
    roots = pinned_host(tmp_path)
    write(tmp_path, f"proc/{SIDECAR}/mountinfo", "70 60 8:1 cut\n", at=PINNED)
    assert "its mounts were not read (" in unseen(words_of(roots).plugin).reason


def test_without_the_hosts_mounts_no_pod_is_the_plugins(tmp_path: Path) -> None:
    roots = pinned_host(tmp_path)
    (tmp_path / "proc/1/mountinfo").unlink()
    reason = unseen(words_of(roots).plugin).reason
    assert reason.startswith("which pod is the node plugin's is not known: ")


def test_a_pid_that_another_pod_has_now_proves_nothing(tmp_path: Path) -> None:
    roots = pinned_host(tmp_path)
    write(tmp_path, f"proc/{SIDECAR}/cgroup", "0::/kubepods.slice/pod-of-another\n", at=PINNED)
    assert "no running container of that pod has" in unseen(words_of(roots).plugin).reason


def test_logs_of_more_plugins_than_are_read_are_named(tmp_path: Path) -> None:
    roots, others = pinned_host(tmp_path), []
    for number in (1, 2, 3):
        others.append(imitate(tmp_path, number))
        uid = str(others[-1].pod_uid)
        run_container(tmp_path, others[-1].pid, uid, f"/lib/kubelet/plugins/{number}.rbd /csi")
    answer = words_of(roots, others=tuple(others)).plugin
    assert isinstance(answer, LogExcerpt)
    (unread,) = answer.unread
    assert unread == (
        "csi-rbdplugin of rook-ceph/csi-rbdplugin-x7k2p: only the newest 3 logs of node plugins "
        "are read"
    )


def test_without_a_volume_nothing_is_read(tmp_path: Path) -> None:
    answer = begin_logs(host(tmp_path), node_view(), (), now=PINNED)(time.monotonic())
    assert answer == NotObserved(reason="not read: the target leads to no volume")


# Hostile ------------------------------------------------------------------------------------------


def test_pipe_link_or_directory_is_not_opened_as_a_plugin_log(tmp_path: Path) -> None:
    roots = host(tmp_path)
    (tmp_path / PLUGIN).mkdir(parents=True)
    place = tmp_path / PLUGIN / "0.log"
    os.mkfifo(place)
    assert "not a regular file" in unseen(words_of(roots).plugin).reason
    place.unlink()
    place.symlink_to("/etc/shadow")
    assert "not a regular file" in unseen(words_of(roots).plugin).reason
    place.unlink()
    place.mkdir()
    assert "not a regular file" in unseen(words_of(roots).plugin).reason


def test_pipe_is_not_opened_as_a_log_of_kubelet_or_the_kernel(tmp_path: Path) -> None:
    roots = host(tmp_path)
    os.mkfifo(tmp_path / "dev" / "kmsg")
    (tmp_path / "var" / "log").mkdir(parents=True)
    for name in ("kubelet.log", "syslog", "messages"):
        os.mkfifo(tmp_path / "var" / "log" / name)
    words = words_of(roots)
    assert "not the kernel's log" in unseen(words.kernel).reason
    assert unseen(words.kubelet).reason.count("not a regular file") == 3


def test_circular_links_are_reported(tmp_path: Path) -> None:
    roots = host(tmp_path)
    (tmp_path / "var" / "log" / "pods").mkdir(parents=True)
    (tmp_path / POD).symlink_to(tmp_path / POD)
    assert "Too many levels of symbolic links" in unseen(words_of(roots).plugin).reason


def test_link_to_a_moved_log_directory_is_resolved_in_the_host(tmp_path: Path) -> None:
    roots = pinned_host(tmp_path)
    (tmp_path / "var/log/pods").rename(tmp_path / "moved")
    (tmp_path / "var/log/pods").symlink_to("/moved")
    assert len(heard(words_of(roots).plugin)) == 1


def test_log_without_permission_is_reported_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = pinned_host(tmp_path)
    opened = os.open

    def denied(path: str | Path, flags: int) -> int:
        if "/var/log/" in str(path) or str(path).endswith("/dev/kmsg"):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags)

    monkeypatch.setattr(os, "open", denied)
    words = words_of(roots)
    for answer in (words.plugin, words.kubelet, words.kernel):
        assert "Permission denied" in unseen(answer).reason
    assert "CAP_DAC_READ_SEARCH" in unseen(words.plugin).hint
    assert "CAP_SYSLOG" in unseen(words.kernel).hint


def test_damaged_lines_do_not_hide_the_other_lines(
    tmp_path: Path,
) -> None:
    error = f"E1121 00:46:50.000000     211 a.go:1] Req-ID: {HANDLE} in two"
    frame = b"2026-11-21T00:46:50.000000000Z stderr "
    later = frame.replace(b":50", b":55")
    noise = b"\0" * 5000 + b"\n" + b"\xff\xfe\n" + later + b"F " + b"\x1b[31m\0" * 900 + b"\n"
    pieces = frame + b"P " + error.encode() + b"\n" + frame + b"F  pieces\x1b[2J\x00\n"
    endless = later + b"P " + b"A" * 300_000
    text = in_frames(recorded("pinned.csi.log")).encode() + noise + pieces + noise + endless
    write(tmp_path, f"{PLUGIN}/0.log", text, at=PINNED)
    words = heard(words_of(host(tmp_path)).plugin)
    assert words[0].text == f"Req-ID: {HANDLE} in two pieces [2J"
    assert len(words) == 2


def test_only_the_end_of_a_long_log_is_read(
    tmp_path: Path,
) -> None:
    error = f"E1121 00:00:01.000000     211 a.go:1] Req-ID: {HANDLE} early\n"
    idle = "".join(
        f"I1121 00:{second // 60:02}:{second % 60:02}.000000     1 a.go:1] {'idle ' * 100}\n"
        for second in range(10, 2800)
    )
    rotated = f"{PLUGIN}/0.log.20261121-000002"
    write(tmp_path, rotated, in_frames(error), at="2026-11-21T00:00:02Z")
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(error + idle), at=PINNED)
    plugin = words_of(host(tmp_path)).plugin
    assert heard(plugin) == ()
    assert isinstance(plugin, LogExcerpt)
    assert plugin.since > "2026-11-21T00:10:00Z"


def test_rotated_log_is_read_and_a_compressed_log_is_not(tmp_path: Path) -> None:
    first, second = in_frames(recorded("pinned.csi.log")).split("ID: 112 GRPC call", 1)
    rotated = write(tmp_path, f"{PLUGIN}/0.log.20261121-004642", first, at="2026-11-21T00:46:42Z")
    write(tmp_path, f"{PLUGIN}/0.log", second.partition("\n")[2], at=PINNED)
    write(tmp_path, f"{PLUGIN}/0.log.20261121-004000.gz", b"\x1f\x8b", at=PINNED)
    (word,) = heard(words_of(host(tmp_path)).plugin)
    assert word.times == 2
    rotated.unlink()
    (word,) = heard(words_of(host(tmp_path)).plugin)
    assert word.times == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(complaints=st.lists(st.tuples(st.integers(0, 9), st.text(max_size=350)), max_size=30))
def test_few_short_entries_of_each_volume_are_kept(
    tmp_path: Path, complaints: list[tuple[int, str]]
) -> None:
    calls = tuple(
        LogNames(volume=frozenset({f"pvc-0000000{number}-8106-4cb4-948f"})) for number in range(5)
    )
    lines = [
        f'E1121 00:46:{number:02}.000000     1 a.go:1] volume "pvc-0000000{volume}-8106-4cb4-948f" '
        + re.sub(r"[\r\n]", " ", text)
        for number, (volume, text) in enumerate(complaints)
    ]
    text = "".join(in_frames(line) for line in lines).encode(errors="replace")
    write(tmp_path, f"{PLUGIN}/0.log", text or b"\n", at=PINNED)
    words = heard(words_of(host(tmp_path), calls).plugin)
    for call in calls:
        own = [word for word in words if not call.volume.isdisjoint(word.names)]
        assert len(own) <= observed.MOST_WORDS
    assert all(len(word.text) <= 300 and word.text.isprintable() for word in words)
    assert [word.at for word in words] == sorted((word.at for word in words), reverse=True)
    named = {volume for volume, _ in complaints if volume < len(calls)}
    assert {name[11] for word in words for name in word.names} == {str(number) for number in named}


LINES: Final = st.sampled_from(
    [
        *in_frames(recorded("hung.csi.log")).encode().splitlines(),
        *recorded("pinned.kubelet.log").encode().splitlines(),
        *in_records(recorded("blocklisted.dmesg")).encode().splitlines(),
        b"9999-12-31T23:59:59-14:00 stderr F E1121 00:46:43.1 1 a.go:1] x",
        b"9999-12-31T23:59:59-14:00 n1 kubelet[1]: E1121 00:46:43.1 1 a.go:1] x",
        b"0001-01-01T00:00:00+14:00 stderr F E1121 00:46:43.1 1 a.go:1] x",
        b"4,1,999999999999999999,-;rbd: rbd0: far ahead",
        f"2026-11-21T00:46:50Z stderr F I1121 00:46:50.1 1 a.go:1] ID: 1 Req-ID: {HANDLE} "
        "Slow GRPC call /x/NodeStageVolume (9999h59m1.5s)".encode(),
        f'E1121 00:46:50.1 1 a.go:1] Operation for "{HANDLE}" failed. No retries permitted until '
        "0001-01-01 00:00:00 +1400 UTC (durationBeforeRetry 1s). Error: x".encode(),
    ]
)
MANGLED: Final = st.lists(
    st.builds(
        lambda line, at, put: line[: at % (len(line) + 1)] + put + line[at % (len(line) + 1) :],
        LINES,
        st.integers(0, 400),
        st.binary(max_size=12),
    )
    | LINES,
    max_size=40,
).map(b"\n".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(plugin=MANGLED, kubelets=MANGLED, kernel=MANGLED, at=st.integers(-(1 << 31), 1 << 33))
def test_any_log_leads_to_a_result_that_can_be_saved(
    tmp_path: Path, plugin: bytes, kubelets: bytes, kernel: bytes, at: int
) -> None:
    roots = host(tmp_path)
    write(tmp_path, f"{PLUGIN}/0.log", plugin, at=PINNED)
    write(tmp_path, "dev/kmsg", kernel, at=PINNED)
    os.utime(write(tmp_path, "var/log/syslog", kubelets, at=PINNED), (at, at))
    words = words_of(roots, (*ITSELF, *HANGS, LogNames(kernel=frozenset({"rbd1"}))))
    shown = json.dumps(encode(words), ensure_ascii=False).encode()
    assert decode(NodeLogs, json.loads(shown), what="logs", where="test", path="$") == words


def test_log_that_hangs_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = pinned_host(tmp_path)
    asked, released = threading.Event(), threading.Event()

    def hangs(_look: object) -> LogExcerpt:
        asked.set()
        released.wait(60)
        return LogExcerpt(since=PINNED)

    monkeypatch.setattr(observed, "of_plugin", hangs)
    wait = begin_logs(roots, node_view(), ITSELF, now=PINNED)
    assert asked.wait(60)
    words = wait(time.monotonic() + 2)
    released.set()
    assert isinstance(words, NodeLogs)
    assert "not read within" in unseen(words.plugin).reason
    assert heard(words.kernel) == ()


# Secrets ------------------------------------------------------------------------------------------

KEY: Final = "AQBPnnpgAAAAABAAcPb8S8gLKXhXJ1yJ5rwQ2A=="
TOKEN: Final = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJl"  # noqa: S105 - of no user


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"rbd args: [map k8s/x --id u --key {KEY}]", KEY),
        (f"key = {KEY}", KEY),
        (f"something {KEY} else", KEY),
        ("--keyfile=/tmp/csi/keys/keyfile-1070400019 map", "1070400019"),
        ('GRPC request: {"secrets":{"userID":"u","userKey":"not base64"},"x":1}', "not base64"),
        (r"{\"encryptionPassphrase\":\"open sesame\",\"a\":\"b\"}", "sesame"),
        ("password: hunter2, user: x", "hunter2"),
        ("passphrase='two words' x", "two words"),
        ('userKey="begun and never ended', "never ended"),
        (f"Authorization: Bearer {TOKEN}", TOKEN),
        (f"token {TOKEN}", TOKEN),
        ("https://user:hunter2@vault:8200/v1", "hunter2"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIEpAIBAAK -----END", "MIIEpAIBAAK"),
        ("-----BEGIN PRIVATE KEY----- MIIEpAIBAAK and on", "MIIEpAIBAAK"),
        ("X-Vault-Token: s.abcdefgh", "abcdefgh"),
        ("tenantToken=abc-def", "abc-def"),
    ],
)
def test_text_like_a_secret_is_redacted(tmp_path: Path, text: str, secret: str) -> None:
    assert secret not in without_secrets(text)
    line = f"E1121 00:46:50.000000     211 a.go:1] Req-ID: {HANDLE} {text}"
    write(tmp_path, f"{PLUGIN}/0.log", in_frames(line), at=PINNED)
    write(tmp_path, "var/log/kubelet.log", line, at="2026-11-21T00:46:50Z")
    for answer in (words_of(host(tmp_path)).plugin, words_of(host(tmp_path)).kubelet):
        (word,) = heard(answer)
        assert secret not in word.text
        assert "<redacted>" in word.text


def test_text_without_a_secret_is_unchanged() -> None:
    for name in ("pinned.csi.log", "pinned.kubelet.log"):
        for line in recorded(name).splitlines():
            if "E1121" in line and "key" not in line:
                assert without_secrets(line) == line


@pytest.mark.parametrize("piece", ["key", "-", "--key ", 'key="', "key={", "eyJ-", "A", "://a:b"])
def test_redaction_is_fast_for_every_line(piece: str) -> None:
    without_secrets((piece * 16384)[:16384])


# The journal --------------------------------------------------------------------------------------


def with_journalctl(root: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> NodeRoots:
    """Return a host with a journal, and with a journalctl that runs a script."""
    roots = host(root)
    (root / "var/log/journal/b001").mkdir(parents=True)
    program = root / "programs" / "journalctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(log_sources, "PROGRAMS", f"{program.parent}:{log_sources.PROGRAMS}")
    return roots


def in_journal(text: str) -> str:
    """Return kubelet's lines in the format of the journal, with one entry for each line."""
    at, lines = 0.0, []
    for line in text.splitlines():
        head = re.match(r"[IWEF]\d{4} (\S+)", line)
        at = epoch(f"2026-11-21T{head[1]}Z") if head else at
        lines.append(f"{at:.6f} n1 kubelet[3486]: {line}")
    return "\n".join(lines)


def test_journal_is_read_for_the_unit_of_kubelet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = with_journalctl(
        tmp_path, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/lines', monkeypatch
    )
    (tmp_path / "lines").write_text(in_journal(recorded("staging-busy.kubelet.log")))
    write(roots.procfs, "3486/cgroup", "0::/system.slice/k3s-agent.service\n", at=PINNED)
    words = heard(words_of(roots, BUSY, now=STAGING_BUSY, pid=3486).kubelet)
    assert [word.text[-25:] for word in words] == ["f4ab2a7b14aa: target is busy."[-25:]]
    asked = (tmp_path / "asked").read_text().split()
    assert f"--root={tmp_path}" in asked
    assert [argument for argument in asked if "unit" in argument] == ["--unit=k3s-agent.service"]
    assert {"--since=-3600s", "--lines=4000", "--output=short-unix"} <= set(asked)


def test_known_unit_without_entries_is_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = with_journalctl(tmp_path, "echo '-- No entries --'", monkeypatch)
    write(roots.procfs, "300/cgroup", "1:name=systemd:/system.slice/kubelet.service\n", at=PINNED)
    assert words_of(roots).kubelet == LogExcerpt(since="2026-11-20T23:47:04Z")


def test_guessed_unit_without_entries_is_not_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = with_journalctl(tmp_path, "echo '-- No entries --'", monkeypatch)
    assert "no line of kubelet, k3s" in unseen(words_of(roots).kubelet).reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'Hint: You are currently not seeing messages from other users' >&2",
            "only the user",
        ),
        (
            "echo 'No journal files were opened due to insufficient permissions.'; exit 1",
            "only the user",
        ),
        ("echo 'No journal files were found.' >&2", "No journal files were found"),
        ("echo 'Failed to add filter for units: x' >&2; exit 1", "Failed to add filter"),
        ("exit 3", "exited with 3"),
        ("head -c 5000000 /dev/zero; exit 1", "exited with 1"),
    ],
)
def test_reason_of_an_unreadable_journal_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    roots = with_journalctl(tmp_path, script, monkeypatch)
    assert reason in unseen(words_of(roots).kubelet).reason


def test_journalctl_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    roots = with_journalctl(tmp_path, f"exec cat {pipe}", monkeypatch)
    answer = log_sources.read_journal(roots.host_root, ("kubelet",), age_s=1, most=1, within_s=0.01)
    assert "exited with -9" in unseen(answer).reason  # type: ignore[arg-type]


def test_missing_journalctl_is_reported_with_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = with_journalctl(tmp_path, "", monkeypatch)
    monkeypatch.setattr(log_sources, "PROGRAMS", str(tmp_path))
    answer = unseen(words_of(roots).kubelet)
    assert "journalctl is not installed" in answer.reason
    assert answer.hint == "on the node: journalctl --unit kubelet --since=-1h"


# Files of a syslog daemon -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["syslog", "messages"])
@pytest.mark.parametrize("stamp", ["{:%b %e %H:%M:%S}", "{:%Y-%m-%dT%H:%M:%S.%f}+02:00"])
def test_entries_of_kubelet_are_found_in_syslog(tmp_path: Path, name: str, stamp: str) -> None:
    lines = []
    for line in in_journal(recorded("staging-busy.kubelet.log")).splitlines():
        seconds, _, rest = line.partition(" ")
        moment = dt.datetime.fromtimestamp(float(seconds) + 7200, tz=dt.UTC)
        lines += [f"{stamp.format(moment)} n1 sshd[9]: x", f"{stamp.format(moment)} {rest}"]
    write(tmp_path, f"var/log/{name}", "\n".join(lines), at="2026-11-21T00:58:32Z")
    (word,) = heard(words_of(host(tmp_path), BUSY, now=STAGING_BUSY).kubelet)
    assert word.text.endswith("target is busy.")
    assert word.at.startswith("2026-11-21T00:58:")


def test_syslog_without_kubelet_is_not_observed(tmp_path: Path) -> None:
    write(tmp_path, "var/log/syslog", "Nov 21 00:47:00 n1 sshd[9]: x\n", at="2026-11-21T00:47:00Z")
    assert "/var/log/syslog: no line of kubelet" in unseen(words_of(host(tmp_path)).kubelet).reason


# The kernel's log ---------------------------------------------------------------------------------


def test_syslog_call_is_used_only_for_the_running_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have the capability without the device."""
    said = (KernelLine(4, 1700.0, "rbd: rbd0: encountered watch error: -107"),)
    monkeypatch.setattr(log_sources, "_syslog_lines", lambda: said)
    roots = host(tmp_path)
    assert "No such file" in unseen(words_of(roots).kernel).reason, "another kernel's"
    own = Path("/proc/sys/kernel/random/boot_id").read_text()
    write(roots.procfs, "sys/kernel/random/boot_id", own, at=PINNED)
    (word,) = heard(words_of(roots).kernel)
    assert word.text == "rbd: rbd0: encountered watch error: -107"


def test_real_ring_buffer_is_read_or_the_reason_is_reported() -> None:
    for answer in (log_sources._device_lines("/dev/kmsg"), log_sources._syslog_lines()):
        if isinstance(answer, NotObserved):
            assert "CAP_SYSLOG" in answer.hint
        else:
            assert all(line.level < 8 for line in answer)


# In a snapshot ------------------------------------------------------------------------------------


@pytest.fixture
def recorded_host(tmp_path: Path) -> NodeRoots:
    """Return the whole node of the recording, with its logs."""
    roots = _plant(recorded_node("12-pinned-by-cwd-invisible", "n1"), tmp_path)
    pinned_host(tmp_path / "logs")
    shutil.copytree(tmp_path / "logs" / "var" / "log", roots.host_root / "var" / "log")
    # The nodes of the recording had a driver without a pod.
    uid, plugins = POD.rpartition("_")[2], "/kubelet/plugins/rbd.csi.ceph.com"
    run_container(tmp_path, SIDECAR, uid, f"{plugins} /csi", disk="254:0")
    write(
        tmp_path, f"proc/{SIDECAR}/stat", f"{SIDECAR} (registrar) S {'1 ' * 18}9000 0\n", at=PINNED
    )
    return roots


DEVICE: Final = Target(argument="/dev/rbd0", kind=TargetKind.DEVICE, name="/dev/rbd0")


def seen(roots: NodeRoots, also: CollectScope) -> Snapshot:
    surroundings = Settings(
        node_name="n1", roots=roots, clusters=None, kube=None, timeout_s=60.0, version="test"
    )
    return collect_snapshot(DEVICE, surroundings, now=lambda: PINNED, also=also)


def test_snapshot_for_the_lifecycle_contains_log_entries(
    recorded_host: NodeRoots,
) -> None:
    found = seen(recorded_host, CollectScope.LIFECYCLE)
    assert found.node is not None
    words = found.node.logs
    assert isinstance(words, NodeLogs)
    assert heard(words.plugin)[0].call == "NodeUnstageVolume"
    assert load_snapshot(dump_snapshot(found), where="test") == found


@pytest.mark.parametrize("also", [CollectScope.NOTHING, CollectScope.UNMAP_GUARDS])
def test_other_snapshots_read_no_log(
    recorded_host: NodeRoots, also: CollectScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "begin_logs", None)
    found = seen(recorded_host, also)
    assert found.node is not None
    assert isinstance(found.node.logs, NotObserved)
    assert "not requested" in found.node.logs.reason


def test_who_holds_imports_no_log_module(recorded_host: NodeRoots) -> None:
    # Another process observes the node; it imports the observer.
    code = (
        "import sys; from rbdagent.cli import run; run(sys.argv[1:]);"
        "import rbdagent.collect.node.observer;"
        "found = [name for name in sys.modules if name.endswith(('.volume_logs', '.logs'))];"
        "assert not found, found"
    )
    places = (
        f"--procfs={recorded_host.procfs}",
        f"--sysfs={recorded_host.sysfs}",
        f"--host-root={recorded_host.host_root}",
    )
    command = (sys.executable, "-c", code, "who-holds", "/dev/rbd0", "--no-ceph", "--no-kube")
    done = subprocess.run(
        (*command, *places), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "/dev/rbd0" in done.stdout
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_unobserved_node_has_no_log_entries(recorded_host: NodeRoots) -> None:
    found = seen(replace(recorded_host, procfs=Path("/none")), CollectScope.LIFECYCLE)
    assert found.node is None
