"""A text with several causes: the fact that decides, and the meaning if no fact was observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.correlate import correlate
from rbdagent.correlate.log_names import log_names_of
from rbdagent.model import (
    BlocklistEntry,
    CsiSource,
    EntityAddress,
    InFlight,
    LockHolder,
    LogEntry,
    LogExcerpt,
    NodeLogs,
    NotObserved,
    ProcessRef,
    ServiceAddress,
    Severity,
    observed_of,
)
from rbdagent.parse.handle import CLIENT_ADDRESS
from rbdagent.parse.recognised import Recognised
from tests.support.quoted_messages import QUOTES
from tests.support.rows import each_row
from tests.support.rule_rows.node_stage import MAP
from tests.support.rule_tables import kubelet_event, mounting, stage
from tests.support.snapshots import (
    ADDRESS,
    CLIENT,
    HANDLE,
    JUST_NOW,
    LONG_AGO,
    NOW,
    SPEC,
    UNSEEN,
    codes,
    diagnosis_of,
    found,
    mapping,
    mount,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

GIB: Final = 1 << 30
NO_ANSWER: Final = stage(MAP.format(number=110, text="Connection timed out"))
BY_HAND: Final = LockHolder(client=CLIENT, address=None, lock_id="maintenance")
TAKEN: Final = LockHolder(
    client=remote_watcher().client,
    address=EntityAddress(ip="10.77.0.12", nonce=1),
    lock_id="auto 18446462598732840961",
)
LOCKED: Final = {"watchers": (remote_watcher(),), "lockers": (TAKEN,)}
BUSY, READ_ONLY, INVALID, LACKS = (
    stage(MAP.format(number=number, text="x")) for number in (16, 30, 22, 6)
)
HERE: Final[dict[str, Any]] = {"pods": (waiting_pod(node="worker-1"),)}
DAMAGED: Final = stage(
    "'fsck' found errors on device /dev/rbd0 but could not correct them: Inode 1234 has illegal "
    "block(s)."
)
NO_FSCK: Final = stage(
    "'fsck' found errors on device /dev/rbd0 but could not correct them: Error reading block 65536"
)
REFUSED: Final = stage(
    "mount failed: exit status 32\nOutput: mount: /o: wrong fs type, bad option, bad superblock on "
    "/dev/rbd0, missing codepage or helper program, or other error."
)
UNREADABLE: Final = stage("mount: /o: can't read superblock on /dev/rbd0.")
STOPPED: Final = "XFS (rbd0): Filesystem has been shut down due to log error (0x2)."
FAILS_AT_STAGING: Final[dict[str, Any]] = {
    **HERE,
    "events": (kubelet_event(QUOTES[Recognised.STAGING_PATH_FAILS][0].text),),
}
AT_STAGING: Final[dict[str, Any]] = {"mounts": (mount(fs_type="xfs"),)}
NOT_STAGED: Final = QUOTES[Recognised.NOTHING_STAGED][0].text
NO_REPLAY: Final = QUOTES[Recognised.NOT_MOUNTED_READ_ONLY][0].text
UNKNOWN_TYPE: Final = QUOTES[Recognised.UNKNOWN_FILE_SYSTEM][0].text.replace("-t xfs ", "")
NO_POOL: Final = QUOTES[Recognised.POOL_GONE][1].text.replace("(7)", "(1)")
PANICKED: Final = QUOTES[Recognised.DRIVER_PANICKED][0].text
IN_LUKS: Final = REFUSED.replace("/dev/rbd0", "/dev/mapper/luks-rbd-0001-x")


def state(text: str, of_image: dict[str, Any] | None = None, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which a pod waits, with changes to its image and the API."""
    parts = {
        "pods": (waiting_pod(),),
        "events": (kubelet_event(text),),
        "attachments": mounting().kubernetes.attachments,  # type: ignore[union-attr]
        **in_kube,
    }
    return unmapped(of_image=of_image or {}, in_kube=parts)


def with_kernel(
    seen: Snapshot, row: Recognised, text: str = "", *, at: str = JUST_NOW, device: str = "rbd0"
) -> Snapshot:
    """Add a line of the observed node's kernel."""
    line = LogEntry(at=at, text=text or QUOTES[row][0].text, names=(device,))
    kernel = LogExcerpt(since=LONG_AGO, lines=(line,))
    empty = LogExcerpt(since=LONG_AGO)
    assert seen.node is not None
    logs = NodeLogs(kubelet=empty, plugin=empty, kernel=kernel)
    return replace(seen, node=replace(seen.node, logs=logs))


def with_pools(seen: Snapshot, *pools: tuple[int, str]) -> Snapshot:
    """Return a snapshot whose cluster has these pools; without any, they were not observed."""
    assert seen.ceph is not None
    (asked,) = seen.ceph.clusters
    return replace(seen, ceph=replace(seen.ceph, clusters=(replace(asked, pools=pools or UNSEEN),)))


def monitored(*ports: int, **attributes: str) -> Snapshot:
    """Build the state of a map that finds no address, with monitors at these ports."""
    source = volume().source
    assert isinstance(source, CsiSource)
    given = replace(source, attributes=(*source.attributes, *attributes.items()))
    seen = state(QUOTES[Recognised.NO_ADDRESS][0].text, persistent_volumes=(volume(source=given),))
    monitors = tuple(
        ServiceAddress(kind="mon", name="a", address=EntityAddress(ip="10.77.0.1", port=port))
        for port in ports
    )
    assert seen.ceph is not None
    clusters = tuple(replace(found, monitors=monitors or UNSEEN) for found in seen.ceph.clusters)
    return replace(seen, ceph=replace(seen.ceph, clusters=clusters))


def unseen_mappings(seen: Snapshot) -> Snapshot:
    """Return the state without the mappings of its node."""
    assert seen.node is not None
    return replace(seen, node=replace(seen.node, mappings=UNSEEN))


def of_type(fs_type: str, **overrides: Any) -> dict[str, Any]:  # noqa: ANN401 - as the builders
    source = volume().source
    assert isinstance(source, CsiSource)
    made = volume(source=replace(source, fs_type=fs_type), **overrides)
    return {"persistent_volumes": (made,)}


SHRUNK: Final = {"persistent_volumes": (volume(capacity_bytes=20 * GIB),)}
STATIC: Final = {"persistent_volumes": (volume(capacity_bytes=20 * GIB, provisioner=None),)}
TEN: Final = {"size_bytes": 10 * GIB}
DECIDED: Final = {
    "22, a task": (state(INVALID, {"tasks": ("flatten",)}), "RBD745", "is flattening the image"),
    "22, no task": (state(INVALID, {"tasks": ()}), "RBD741", "an option that the kernel"),
    "22, tasks unseen": (state(INVALID, {"tasks": UNSEEN}), "RBD741", "an option that the kernel"),
    "16, by hand": (state(BUSY, {"lockers": (BY_HAND,)}), "RBD744", "was locked by hand"),
    "16, unseen": (state(BUSY, {"lockers": UNSEEN}), "RBD744", "cannot take the lock"),
    "30, locked": (state(READ_ONLY, LOCKED), "RBD744", "does not release it"),
    "30, released": (state(READ_ONLY), "RBD744", "/sys is most likely read-only"),
    "30, unseen": (state(READ_ONLY, {"lockers": UNSEEN}), "RBD744", "either the owner"),
    "6, primary elsewhere": (
        state(LACKS, {"mirrored": True, "primary": False}), "RBD743", "non-primary"
    ),
    "6, by the feature": (state(LACKS, {"features": ("non-primary",)}), "RBD743", "non-primary"),
    "6, primary elsewhere, journaling": (
        state(LACKS, {"primary": False, "features": ("journaling",)}), "RBD740", "features"
    ),
    "6, primary": (state(LACKS, {"mirrored": True, "primary": True}), "RBD740", "features"),
    "6, migrating": (state(LACKS, {"features": ("migrating",)}), "RBD740", "not committed"),
    "ms_mode, msgr2 only": (monitored(3300, 3300), "RBD748", "the PV has no ms_mode"),
    "ms_mode, both": (monitored(3300, 6789), "RBD748", "for the ms_mode of the map"),
    "ms_mode, unseen": (monitored(), "RBD748", "for the ms_mode of the map"),
    "ms_mode, named": (
        monitored(3300, mapOptions="krbd:ms_mode=legacy"), "RBD748", "for the ms_mode of the map"
    ),
    "ms_mode, v1 only": (
        monitored(6789, mapOptions="krbd:ms_mode=prefer-crc"), "RBD748", "have port 6789 only (v1)"
    ),
    "ms_mode, v1 and msgr2": (
        monitored(6789, 3300, mapOptions="krbd:ms_mode=prefer-crc"),
        "RBD748",
        "for the ms_mode of the map",
    ),
    "110, no route of the kernel": (
        with_kernel(state(NO_ANSWER, **HERE), Recognised.CONNECT_REFUSED_HERE),
        "RBD212",
        "has no route to Ceph",
    ),
    "110, v1 to the port of msgr2": (
        with_kernel(state(NO_ANSWER, **HERE), Recognised.FORMER_PROTOCOL_TO_MSGR2),
        "RBD748",
        "uses the former protocol (v1)",
    ),
    "110, refused": (
        with_kernel(state(NO_ANSWER, **HERE), Recognised.CONNECTION_LOST),
        "RBD735",
        "does not reach Ceph",
    ),
    "fsck, behind the end": (state(NO_FSCK, TEN, **SHRUNK), "RBD752", "the image was shrunk"),
    "fsck, damaged and smaller": (
        state(DAMAGED, TEN, **SHRUNK), "RBD752", "or rolled back to an earlier snapshot"
    ),
    "fsck, a static PV": (state(NO_FSCK, TEN, **STATIC), "RBD752", "fsck does not correct"),
    "fsck, the size unseen": (
        state(NO_FSCK, {"size_bytes": None}, **SHRUNK), "RBD752", "fsck does not correct"
    ),
    "mount, smaller": (state(REFUSED, TEN, **SHRUNK), "RBD753", "may be larger than its device"),
    "mount, shrunk": (
        with_kernel(state(REFUSED, TEN, **SHRUNK, **HERE), Recognised.BAD_GEOMETRY),
        "RBD753",
        "the image was shrunk",
    ),
    "super block, shrunk": (
        state(UNREADABLE, TEN, **SHRUNK), "RBD768", "most likely it was shrunk"
    ),
    "super block": (state(UNREADABLE, TEN), "RBD768", "each read of the device fails"),
    "staging path, stopped": (
        with_kernel(
            world(mapped=AT_STAGING, in_kube=FAILS_AT_STAGING),
            Recognised.FILE_SYSTEM_STOPPED,
            STOPPED,
        ),
        "RBD768",
        "and it is still mounted at the staging path",
    ),
    "staging path, another device": (
        with_kernel(
            world(mapped=AT_STAGING, in_kube=FAILS_AT_STAGING),
            Recognised.FILE_SYSTEM_STOPPED,
            STOPPED.replace("rbd0", "rbd7"),
            device="rbd7",
        ),
        "RBD768",
        "or the kernel has stopped the file system",
    ),
    "staging path, the log of another node": (
        with_kernel(
            world(mapped=AT_STAGING, in_kube={**FAILS_AT_STAGING, "pods": (waiting_pod(),)}),
            Recognised.FILE_SYSTEM_STOPPED,
            STOPPED,
        ),
        "RBD768",
        "or the kernel has stopped the file system",
    ),
    "nothing staged, not mapped": (
        state(NOT_STAGED, **HERE), "RBD769", "that node has not mapped the image"
    ),
    "nothing staged, mappings unseen": (
        unseen_mappings(state(NOT_STAGED, **HERE)), "RBD769", "nothing is at its staging path."
    ),
    "nothing staged, another node": (
        state(NOT_STAGED), "RBD769", "nothing is at its staging path.",
    ),
    "mount, xfs": (state(REFUSED, **of_type("xfs")), "RBD753", "one of two usual reasons"),
    "mount, a clone": (
        with_kernel(state(REFUSED, **of_type("xfs"), **HERE), Recognised.DUPLICATE_UUID),
        "RBD753",
        "with the same UUID: this image is a clone",
    ),
    "mount, a newer feature": (
        with_kernel(state(REFUSED, **of_type("xfs"), **HERE), Recognised.UNKNOWN_FEATURE),
        "RBD753",
        "features that this kernel does not know",
    ),
    "mount, a newer feature of ext4": (
        with_kernel(
            state(REFUSED, **of_type("ext4"), **HERE),
            Recognised.UNKNOWN_FEATURE,
            QUOTES[Recognised.UNKNOWN_FEATURE][1].text,
        ),
        "RBD753",
        "features that this kernel does not know",
    ),
    "mount, the log of another node": (
        with_kernel(state(REFUSED, **of_type("xfs")), Recognised.DUPLICATE_UUID),
        "RBD753",
        "one of two usual reasons",
    ),
    "mount, xfs with an option": (
        state(REFUSED, **of_type("xfs", mount_options=("data=ordered",))),
        "RBD753",
        "refuses a mount option",
    ),
    "mount, LUKS": (state(IN_LUKS, **of_type("ext4")), "RBD753", "on the LUKS device"),
    "mount, ext4": (state(REFUSED, **of_type("ext4")), "RBD753", "refuses a mount option"),
    "no image for the driver": (
        state(QUOTES[Recognised.IMAGE_GONE][0].text), "RBD738", "looks in another cluster"
    ),
    "read-only, the kernel wants to replay": (
        with_kernel(state(NO_REPLAY, **HERE), Recognised.RECOVERY_NEEDS_WRITES),
        "RBD753",
        "has to be replayed, and the device is read-only",
    ),
    "read-only, the log of another node": (
        with_kernel(state(NO_REPLAY), Recognised.RECOVERY_NEEDS_WRITES), "RBD753", "most likely"
    ),
    "a type that the kernel lacks": (
        state(UNKNOWN_TYPE), "RBD753", "its kernel knows no file system xfs"
    ),
    "LUKS in place of a file system": (
        state(UNKNOWN_TYPE.replace("xfs", "crypto_LUKS")), "RBD753", "contains crypto_LUKS"
    ),
    "LVM in place of a file system": (
        state(UNKNOWN_TYPE.replace("xfs", "LVM2_member")), "RBD753", "contains LVM2_member"
    ),
    "no pool for the driver": (state(NO_POOL), "RBD737", "the driver asks another Ceph cluster"),
    "a pool that was deleted": (
        with_pools(state(NO_POOL, {"pool_id": 2}), (2, "k8s")), "RBD737", "no pool with the id in"
    ),
    "no pool, the image is not there": (
        state(NO_POOL, {"presence": "gone"}), "RBD737", "pool does not exist in the Ceph cluster"
    ),
    "no pool, the pools unseen": (with_pools(state(NO_POOL)), "RBD737", "pool does not exist in"),
    "another pool, by its id": (
        with_pools(state(NO_POOL.replace("(1)", "(7)")), (2, "k8s")), "RBD737", "does not exist in"
    ),
    "another pool, by its name": (
        state(QUOTES[Recognised.POOL_GONE][0].text), "RBD737", "pool does not exist in the Ceph"
    ),
    "a panic": (state(PANICKED), "RBD762", "it panicked"),
    "no journal entry": (
        state(QUOTES[Recognised.NO_VOLUME_IN_JOURNAL][0].text), "RBD767", "rbdagent finds its image"
    ),
}  # fmt: skip


@each_row("name", DECIDED)
def test_fact_decides_between_the_causes_of_a_text(name: str) -> None:
    seen, code, words = DECIDED[name]
    finding = found(seen, code)
    assert words in finding.message
    assert "{" not in finding.message + str(finding.remedy)


@each_row("name", [name for name in DECIDED if "shrunk" in name or "behind" in name])
def test_no_repair_is_advised_for_an_image_that_was_shrunk(name: str) -> None:
    seen, code, _ = DECIDED[name]
    assert "Do not repair" in str(found(seen, code).remedy)
    assert "Grow the image back" in str(found(seen, code).remedy)


def test_snapshot_comes_before_the_repair_of_a_smaller_image() -> None:
    finding = found(DECIDED["fsck, damaged and smaller"][0], "RBD752")
    assert f"rbd snap create {SPEC}@before-repair" in lines_of(finding.commands)


def test_second_mount_of_one_image_never_leads_to_nouuid() -> None:
    xfs = mapping(mounts=(mount(fs_type="xfs"),))
    seen = state(REFUSED, **of_type("xfs"), **HERE)
    assert seen.node is not None
    twice = replace(seen, node=replace(seen.node, mappings=(xfs,)))
    finding = found(with_kernel(twice, Recognised.DUPLICATE_UUID), "RBD753")
    assert "has the XFS file system of this image mounted already" in finding.message
    assert "Never mount" in str(finding.remedy)


def test_blocklist_entry_of_another_node_decides_nothing() -> None:
    seen = world(
        in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),)},
        in_kube={"pods": (waiting_pod(),), "events": (kubelet_event(UNREADABLE),)},
    )
    assert "each read of the device fails" in found(seen, "RBD768").message


@each_row(
    ("handle", "node_name", "expected"),
    [(HANDLE, "worker-2", "worker-2"), ("0001-0007-other", "worker-2", None),
     (HANDLE, "worker-77", None), (HANDLE, "worker-1", None)],
)  # fmt: skip
def test_metadata_names_only_a_node_of_this_volume_and_cluster(
    handle: str, node_name: str, expected: str | None
) -> None:
    """Another cluster may write to the same image, and this node's mappings are known."""
    stranger = EntityAddress(ip="192.0.2.7", nonce=5)
    seen = unmapped(
        of_image={
            "watchers": (watcher(address=stranger, client=77),),
            "metadata": ((f"{CLIENT_ADDRESS}{handle}/{node_name}", str(stranger)),),
        }
    )
    (holder,) = correlate(seen).holders
    assert holder.node == expected


def test_backup_of_an_image_is_no_map_that_waits() -> None:
    command = f"rbd -m 192.0.2.10:3300 export {SPEC} -"
    process = ProcessRef(pid=5, command=command, started_at=LONG_AGO, state="S")
    flight = InFlight(process=process, program="rbd", names=(str(SPEC),))
    assert "RBD203" not in codes(unmapped(on_node={"in_flight": (flight,)}))


STOPS: Final = {"ext4": 0, "xfs": 1}
"""Which quotation of the kernel is about which file system."""


def stopped(fs_type: str, *, created_at: str = LONG_AGO, then: str = "") -> Snapshot:
    """Build a pod whose file system stopped just now, and what the kernel logged after that."""
    seen = world(
        mapped={"mounts": (mount(fs_type=fs_type),)},
        in_kube={"pods": (pod(created_at=created_at),)},
    )
    text = QUOTES[Recognised.FILE_SYSTEM_STOPPED][STOPS[fs_type]].text
    seen = with_kernel(seen, Recognised.FILE_SYSTEM_STOPPED, text)
    assert seen.node is not None
    assert isinstance(seen.node.logs, NodeLogs)
    assert isinstance(seen.node.logs.kernel, LogExcerpt)
    line = LogEntry(at=NOW, text=then, names=("rbd0",))
    lines = (*seen.node.logs.kernel.lines, *((line,) if then else ()))
    kernel = replace(seen.node.logs.kernel, lines=lines)
    return replace(seen, node=replace(seen.node, logs=replace(seen.node.logs, kernel=kernel)))


@each_row("fs_type", list(STOPS))
def test_file_system_that_stopped_is_found_in_the_log_of_the_kernel(fs_type: str) -> None:
    finding = found(stopped(fs_type), "RBD755")
    assert QUOTES[Recognised.FILE_SYSTEM_STOPPED][STOPS[fs_type]].text in str(finding.evidence)
    assert "has become read-only" in finding.message
    assert finding.severity is Severity.ERROR


@each_row("fs_type", list(STOPS))
def test_file_system_that_stopped_before_its_pods_is_most_likely_theirs(fs_type: str) -> None:
    finding = found(stopped(fs_type, created_at=NOW), "RBD755")
    assert "before default/web-0 began" in finding.message
    assert "most likely" in finding.message
    assert finding.severity is Severity.WARNING


@each_row("row", range(4))
def test_file_system_that_was_mounted_since_is_not_the_one_that_stopped(row: int) -> None:
    text = QUOTES[Recognised.FILE_SYSTEM_CHANGED][row].text
    assert "RBD755" not in codes(stopped("xfs", created_at=NOW, then=text))


def test_file_system_of_another_type_is_not_the_one_that_stopped() -> None:
    seen = stopped("xfs")
    assert seen.node is not None
    (mapped,) = observed_of(seen.node.mappings)
    other = replace(mapped, mounts=(mount(fs_type="ext4"),))
    assert "RBD755" not in codes(replace(seen, node=replace(seen.node, mappings=(other,))))


@each_row(
    ("program", "minutes", "reported"),
    [("rbd", 14, True), ("rbd", 1, False), ("rbd-nbd", 14, False)],
)
def test_map_that_waits_for_monitors_is_the_plugins_network(
    program: str, minutes: int, *, reported: bool
) -> None:
    started = f"2026-11-21T02:{60 - minutes:02}:00Z"
    process = ProcessRef(
        pid=542,
        command=f"{program} --id csi-rbd-node -m 192.0.2.10:3300 map {SPEC}",
        started_at=started,
        state="S",
    )
    flight = InFlight(process=process, program=program, names=(str(SPEC),))
    seen = unmapped(
        on_node={"in_flight": (flight,)}, in_kube={"pods": (waiting_pod(node="worker-1"),)}
    )
    messages = [one.message for one in diagnosis_of(seen).findings if one.code == "RBD203"]
    assert (
        any("has waited 14m for Ceph at 192.0.2.10:3300" in text for text in messages) == reported
    )


@each_row(
    ("at", "decided"),
    [(JUST_NOW, True), ("2026-11-21T02:57:30Z", False), (LONG_AGO, False)],
)
def test_line_of_the_kernel_counts_only_at_the_time_of_the_attempt(
    at: str, *, decided: bool
) -> None:
    """The device may have been that of another volume in between."""
    waits = state(REFUSED, **of_type("xfs"), **HERE)
    seen = with_kernel(waits, Recognised.DUPLICATE_UUID, at=at)
    assert ("this image is a clone" in found(seen, "RBD753").message) is decided


@each_row(
    ("node_name", "in_use", "expected"),
    [("worker-1", False, {"rbd0"}), ("worker-2", False, set()), ("worker-1", True, set())],
)
def test_device_of_a_failed_mount_is_looked_for_in_the_kernels_log(
    node_name: str, expected: set[str], *, in_use: bool
) -> None:
    seen = state(REFUSED, pods=(waiting_pod(node=node_name),))
    if in_use:
        other = mapping(spec=replace(SPEC, name="other"), image_id="9")
        assert seen.node is not None
        seen = replace(seen, node=replace(seen.node, mappings=(other,)))
    clients = {"libceph:"} if node_name == "worker-1" else set()
    assert log_names_of(correlate(seen), seen).kernel == expected | clients


def test_a_source_that_was_not_read_decides_nothing() -> None:
    unread = NotObserved(reason="permission denied")
    seen = state(READ_ONLY, {"watchers": unread, "lockers": unread})
    messages = [finding.message for finding in diagnosis_of(seen).findings]
    assert not any("no client holds the image" in message for message in messages)
