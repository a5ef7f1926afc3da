"""Images, watchers, locks and the blocklist on a real cluster, healthy and broken."""

from __future__ import annotations

import json
import shlex
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rbdagent.collect.ceph.access import MappedHere
from rbdagent.collect.ceph.check import check_ceph
from rbdagent.collect.ceph.connection import _RELEASE, Cluster
from rbdagent.collect.ceph.images import CephReader, near_images
from rbdagent.collect.ceph.keys import can_use
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    HealthCheck,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    ImageView,
    NotObserved,
    SourceState,
    Watcher,
)
from tests.integration.clients import (
    access,
    close,
    observe_ceph,
    own_librados,
    said,
    start_client,
    wanted,
)
from tests.lab.ceph import READ_ONLY_CAPS, CephCluster
from tests.lab.network import free_port
from tests.lab.parts import chosen_parts
from tests.lab.processes import patience, wait_until
from tests.support.recorded_ceph import record
from tests.support.snapshots import AES256K_KEY, AES_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.processes import Processes


def seen(cluster: CephCluster, image: ImageIdentity, **changes: object) -> ImageView:
    view, source = observe_ceph([access(cluster, **changes)], [image], deadline_s=20 * patience())
    assert source.state is SourceState.OBSERVED, source
    assert isinstance(view, CephView)
    (found,) = view.clusters[0].images
    return found


@pytest.fixture
def held(ceph: CephCluster, request: pytest.FixtureRequest) -> str:
    """Make a separate image for a test: the watch of a killed client stays for 30 s."""
    name = request.node.name
    ceph.create_image(f"k8s/{name}")
    return str(name)


@pytest.fixture
def opened(ceph: CephCluster, held: str) -> Iterator[subprocess.Popen[str]]:
    """Start a separate client that holds the image open read-write; stop it at the end."""
    client = start_client(ceph, f"k8s/{held}")
    yield client
    client.kill()
    client.communicate()


def test_an_image_has_identity_header_size_and_features(ceph: CephCluster) -> None:
    ceph.create_image("k8s/plain", features="layering,exclusive-lock")
    view = seen(ceph, wanted("plain"))
    info = json.loads(ceph.rbd("info", "k8s/plain", "--format", "json"))
    assert view.presence is ImagePresence.PRESENT
    assert view.fsid == ceph.fsid
    assert view.image_id == info["id"]
    assert view.header == f"rbd_header.{info['id']}"
    assert view.size_bytes == 64 * 1024 * 1024
    assert view.features == ("layering", "exclusive-lock")
    assert view.watchers == ()
    assert view.mirrored is False


def test_images_of_two_namespaces_are_two_images(ceph: CephCluster) -> None:
    ceph.rbd("namespace", "create", "k8s/one")
    ceph.create_image("k8s/one/twin")
    ceph.create_image("k8s/twin")
    inner = seen(ceph, wanted("twin", namespace="one"))
    outer = seen(ceph, wanted("twin"))
    assert inner.image_id != outer.image_id


def test_a_format_1_image_has_no_id(ceph: CephCluster, tmp_path: Path) -> None:
    """Librbd no longer makes such images: the test writes the header (rbd_types.h, 112 bytes)."""
    text = b"<<< Rados Block Device Image >>>\n"
    header = struct.pack(
        "<40s24s4s8s4BQQIIQ",
        text,
        b"rb.0.1.2",
        b"RBD",
        b"001.005",
        22,
        0,
        0,
        0,
        8 << 20,
        0,
        0,
        0,
        0,
    )
    (tmp_path / "header").write_bytes(header)
    ceph.rados("-p", "k8s", "put", "old.rbd", str(tmp_path / "header"))
    view = seen(ceph, wanted("old"))
    assert (view.format, view.image_id, view.header) == (1, None, "old.rbd")


def test_an_image_in_the_trash_is_found_by_its_id_or_name(ceph: CephCluster) -> None:
    ceph.create_image("k8s/thrown")
    ceph.rbd("snap", "create", "--no-progress", "k8s/thrown@one")
    image_id = seen(ceph, wanted("thrown")).image_id
    ceph.rbd("trash", "mv", "k8s/thrown")
    for known in (image_id, None):
        view = seen(ceph, wanted("thrown", image_id=known))
        assert (view.presence, view.image_id) == (ImagePresence.TRASH, image_id)
        assert isinstance(view.snapshots, tuple)
        assert len(view.snapshots) == 1
    assert seen(ceph, wanted("other")).presence is ImagePresence.GONE


def test_a_renamed_image_is_found_by_its_id(ceph: CephCluster) -> None:
    ceph.create_image("k8s/before")
    image_id = seen(ceph, wanted("before")).image_id
    ceph.rbd("mv", "k8s/before", "k8s/after")
    view = seen(ceph, wanted("before", image_id=image_id))
    assert (view.presence, view.spec.name) == (ImagePresence.PRESENT, "after")


def test_a_name_is_resolved_with_ceph_csis_journal(ceph: CephCluster) -> None:
    uuid = "a5aedea1-28da-40b4-92b8-33fd7de38647"
    ceph.create_image("k8s/team-volume")
    ceph.rados("-p", "k8s", "setomapval", f"csi.volume.{uuid}", "csi.imagename", "team-volume")
    assert seen(ceph, wanted(f"csi-vol-{uuid}")).spec.name == "team-volume"


def test_a_missing_image_is_gone_and_similar_names_are_found(ceph: CephCluster) -> None:
    ceph.create_image("k8s/orders")
    assert seen(ceph, wanted("ordres")).presence is ImagePresence.GONE
    near = near_images([access(ceph)], ImageSpec(pool="k8s", name="ordres"), deadline_s=10)
    assert near[0] == "k8s/orders"


def test_a_client_is_a_watcher_with_its_exact_address(
    ceph: CephCluster, held: str, opened: subprocess.Popen[str]
) -> None:
    _, number = said(opened)
    view = seen(ceph, wanted(held))
    assert isinstance(view.watchers, tuple)
    (watcher,) = view.watchers
    assert watcher.client == number
    listed = ceph.rados("-p", "k8s", "listwatchers", str(view.header))
    assert f"watcher={watcher.address} client.{number} cookie={watcher.cookie}" in listed


def test_a_short_open_is_a_transient_watcher(
    ceph: CephCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceph.create_image("k8s/transient")
    client = start_client(ceph, "k8s/transient")
    # The client closes between the first query and the second, even on a busy machine.
    monkeypatch.setattr("rbdagent.collect.ceph.image.time.sleep", lambda _: close(client))
    try:
        _, number = said(client)
        view = seen(ceph, wanted("transient"))
    finally:
        client.kill()
        client.communicate()
    assert view.watchers == ()
    assert [watcher.client for watcher in view.transient_watchers] == [number]


def test_a_lock_names_its_client(ceph: CephCluster) -> None:
    ceph.create_image("k8s/locked")
    ceph.rbd("lock", "add", "k8s/locked", "kubelet_lock_magic_n1")
    view = seen(ceph, wanted("locked"))
    assert isinstance(view.lockers, tuple)
    assert [locker.lock_id for locker in view.lockers] == ["kubelet_lock_magic_n1"]


def test_the_blocklist_is_read(ceph: CephCluster) -> None:
    ceph.ceph("osd", "blocklist", "add", "10.9.9.9:0/77")
    view, _ = observe_ceph([access(ceph)], [], deadline_s=10)
    assert view is not None
    blocklist = view.clusters[0].blocklist
    assert isinstance(blocklist, tuple)
    assert ("10.9.9.9", 77) in {(client.network, client.nonce) for client in blocklist}


def test_a_pause_is_read(ceph: CephCluster) -> None:
    ceph.ceph("osd", "pause")
    try:
        (flags,) = (check for check in health_of(ceph) if check.name == "OSDMAP_FLAGS")
        assert any("pauserd,pausewr" in text for text in flags.texts)
    finally:
        ceph.ceph("osd", "unpause")


def health_of(ceph: CephCluster) -> tuple[HealthCheck, ...]:
    view, _ = observe_ceph([access(ceph)], [], deadline_s=10)
    assert view is not None
    found = view.clusters[0].health
    assert isinstance(found, tuple)
    return found


def test_the_monitors_are_known_by_name_and_address(ceph: CephCluster) -> None:
    view, _ = observe_ceph([access(ceph)], [], deadline_s=10)
    assert view is not None
    monitors = view.clusters[0].monitors
    assert isinstance(monitors, tuple)
    assert {monitor.name for monitor in monitors} == {"a"}
    host, _, port = ceph.monitor.rpartition(":")
    assert (host, int(port)) in {(monitor.address.ip, monitor.address.port) for monitor in monitors}


RANGES = ("10.77.0.52/32", "10.77.1.52/24", "fd00:1::/64", "fd00:3::1/128")


def test_blocklisted_ranges_are_read_and_removed_as_written(ceph: CephCluster) -> None:
    """Fencing by csi-addons (NetworkFence) adds ranges, also for single addresses."""
    ceph.ceph("osd", "blocklist", "add", "10.9.9.9:0/78")
    for network in RANGES:
        ceph.ceph("osd", "blocklist", "range", "add", network, "3600")
    blocklist = blocklist_of(ceph)
    ranges = [entry for entry in blocklist if entry.is_range]
    assert {str(entry) for entry in ranges} == set(RANGES)
    assert all(entry.until for entry in ranges)
    assert "10.9.9.9:0/78" in {str(entry) for entry in blocklist}
    for entry in ranges:
        ceph.ceph("osd", "blocklist", "range", "rm", str(entry))
    assert not any(entry.is_range for entry in blocklist_of(ceph))


def blocklist_of(ceph: CephCluster) -> tuple[BlocklistEntry, ...]:
    view, _ = observe_ceph([access(ceph)], [], deadline_s=10)
    assert view is not None
    found = view.clusters[0].blocklist
    assert isinstance(found, tuple)
    return found


def test_a_blocklisted_client_of_rbdagent_is_reported(ceph: CephCluster, held: str) -> None:
    """The OSDs refuse the client with errno 108; the monitors still answer."""
    look = CephReader([access(ceph)])

    def watchers() -> tuple[Watcher, ...] | NotObserved:
        view, _ = look.images([wanted(held)], deadline=time.monotonic() + 10)
        assert view is not None
        (found,) = view.clusters[0].images
        return found.watchers

    assert watchers() == ()
    (cluster,) = look._connected.values()
    address = cluster._handle.get_addrs().removeprefix("v1:")
    ceph.ceph("osd", "blocklist", "add", address)
    try:
        wait_until(lambda: watchers() != (), timeout_s=30, what="the OSD to have the map")
        refused = watchers()
    finally:
        ceph.ceph("osd", "blocklist", "rm", address)
    assert isinstance(refused, NotObserved)
    assert f"errno 108): on the blocklist is {address} until" in refused.reason
    assert "run it again" in refused.hint


def test_a_release_is_read_from_the_monitors(ceph: CephCluster) -> None:
    cluster = Cluster(access(ceph))
    (answer,) = cluster.monitor("version")
    assert _RELEASE.search(answer["version"]) is not None
    cluster._check_version()


def test_ceph_csis_metadata_is_read(ceph: CephCluster) -> None:
    ceph.create_image("k8s/named")
    ceph.rbd("image-meta", "set", "k8s/named", "csi.storage.k8s.io/pv/name", "pvc-1")
    assert seen(ceph, wanted("named")).metadata == (("csi.storage.k8s.io/pv/name", "pvc-1"),)


def test_an_observation_leaves_no_watch_and_no_lock(ceph: CephCluster) -> None:
    ceph.create_image("k8s/untouched", features="layering,exclusive-lock")
    view = seen(ceph, wanted("untouched"))
    assert ceph.rados("-p", "k8s", "listwatchers", str(view.header)).strip() == ""
    assert ceph.rbd("lock", "ls", "k8s/untouched").strip() == ""


@pytest.mark.parametrize("way", ["by dump_watchers", "by object", "by opening"])
def test_many_images_have_the_same_watchers_as_single_ones(
    ceph: CephCluster,
    held: str,
    opened: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    said(opened)
    names = [f"{held}-{number}" for number in range(8)]
    for name in names:
        ceph.create_image(f"k8s/{name}")
    single = [seen(ceph, wanted(name)) for name in [held, *names]]
    assert single[0].watchers
    identities = [
        ImageIdentity(
            spec=image.spec, fsid=image.fsid, image_id=image.image_id, pool_id=image.pool_id
        )
        for image in single
    ]
    used = access(ceph)
    if way == "by dump_watchers":
        used = access(ceph, client_id="admin", keyring=ceph.admin_keyring)
    if way == "by opening":
        # A librados without the function that lists the watches of an object.
        monkeypatch.setattr("rbdagent.collect.ceph.list_watchers._library", lambda: None)
    view, _ = observe_ceph([used], identities, deadline_s=20 * patience())
    assert view is not None
    assert [image.watchers for image in view.clusters[0].images] == [
        image.watchers for image in single
    ]


def test_watches_are_listed_without_opening_an_image(
    ceph: CephCluster, held: str, opened: subprocess.Popen[str]
) -> None:
    """An object may have several watches; a missing object raises instead of an empty list."""
    said(opened)
    second = start_client(ceph, f"k8s/{held}")
    cluster = Cluster(access(ceph))
    try:
        said(second)
        view = seen(ceph, wanted(held))
        listed = cluster.watches
        assert listed is not None
        assert isinstance(view.watchers, tuple)
        assert len(view.watchers) == 2
        assert set(listed.of(view.pool_id or 0, "", str(view.header))) == set(view.watchers)
        with pytest.raises(FileNotFoundError):
            listed.of(view.pool_id or 0, "elsewhere", str(view.header))
    finally:
        second.kill()
        second.communicate()


def test_too_small_caps_are_not_observed_with_a_hint(ceph: CephCluster) -> None:
    ceph.create_image("k8s/guarded")
    keyring = ceph.create_user("poor", {"mon": "allow r", "osd": "allow r pool=other"})
    view = seen(ceph, wanted("guarded"), client_id="poor", keyring=keyring)
    assert isinstance(view.watchers, NotObserved)
    assert isinstance(view.presence, NotObserved)
    assert "profile rbd-read-only" in view.watchers.hint


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client_id": "missing"}, "ceph auth get-or-create client.missing"),
        ({"conf": Path("/none/ceph.conf")}, "/none/ceph.conf"),
        ({"keyring": Path("/none/keyring")}, "/none/keyring"),
    ],
)
def test_wrong_access_fails_with_a_hint(
    ceph: CephCluster, changes: dict[str, object], words: str
) -> None:
    view, source = observe_ceph([access(ceph, **changes)], [wanted("x")], deadline_s=15)
    assert source.state is SourceState.FAILED
    assert words in f"{source.reason} {source.hint}"
    assert view is not None
    assert isinstance(view.clusters[0].blocklist, NotObserved)


@pytest.mark.parametrize("end", ["", "\n"], ids=["as Rook writes it", "with an end of line"])
def test_a_key_alone_is_enough(ceph: CephCluster, tmp_path: Path, end: str) -> None:
    """The form of the Secret of Rook's CephClient: no keyring, the key under the user's name."""
    ceph.create_image(f"k8s/keyfile{len(end)}")
    key = tmp_path / "key"
    key.write_text(ceph.key_of("rbdagent") + end)
    view = seen(ceph, wanted(f"keyfile{len(end)}"), keyring=None, keyfile=key)
    assert view.presence is ImagePresence.PRESENT
    assert view.watchers == ()


@pytest.mark.parametrize(
    ("key", "words"), [(AES256K_KEY, "its key is of type aes256k"), (AES_KEY, "of type aes")]
)
def test_an_unusable_key_is_reported_with_its_type(
    ceph: CephCluster, tmp_path: Path, key: str, words: str
) -> None:
    """The error comes from librados, which reads the key before it queries a monitor."""
    keyring = tmp_path / "keyring"
    keyring.write_text(f"[client.rbdagent]\n\tkey = {key}\n")
    if key == AES256K_KEY and can_use("aes256k", own_librados()):
        words = "its key is wrong"
    _, source = observe_ceph([access(ceph, keyring=keyring)], [wanted("x")], deadline_s=15)
    assert source.state is SourceState.FAILED
    assert words in source.reason
    assert key[:12] not in f"{source.reason} {source.hint}"


def test_an_unreachable_monitor_costs_one_time_limit(ceph: CephCluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unanswering:
        conf = tmp_path / "ceph.conf"
        conf.write_text(f"[global]\nmon host = v1:127.0.0.1:{unanswering.getsockname()[1]}\n")
        done = subprocess.run(
            [sys.executable, "-m", "rbdagent", "who-holds", "k8s/x", "--no-kube", "-o", "json",
             "--ceph-conf", conf, "--timeout", "3s", "--ceph-keyring",
             ceph.conf.parent / "ceph.client.rbdagent.keyring"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["verdict"] == "Undetermined"
    assert report["sources"]["ceph"]["state"] == "failed"
    assert "no answer" in report["sources"]["ceph"]["reason"]
    assert "RBD905" in {finding["code"] for finding in report["findings"]}


def test_a_hung_osd_is_not_observed_but_the_monitors_are(ceph: CephCluster) -> None:
    ceph.create_image("k8s/hung")
    ceph.pause_osd()
    try:
        started = time.monotonic()
        view, source = observe_ceph([access(ceph)], [wanted("hung")], deadline_s=3)
        took = time.monotonic() - started
    finally:
        ceph.resume_osd()
    assert took < 30, "the deadline was not kept at all"
    assert source.state is SourceState.OBSERVED
    assert view is not None
    (image,) = view.clusters[0].images
    assert isinstance(image.watchers, NotObserved)
    assert image.watchers.timed_out
    assert isinstance(view.clusters[0].blocklist, tuple)
    wait_until(lambda: "img" not in ceph.rbd("ls", "k8s"), timeout_s=30, what="the OSD to go on")


def test_placement_group_and_osd_that_do_not_answer_are_named(ceph: CephCluster) -> None:
    """The monitors mark the OSD down only after reports of others; the test does it."""
    ceph.create_image("k8s/placed")
    ceph.pause_osd()
    try:
        (before,) = _unanswered(ceph, "k8s/placed")
        record("osd-paused", ceph, "k8s/placed", "--ceph-timeout=2s")
        ceph.ceph("osd", "down", "0")
        (after,) = _unanswered(ceph, "k8s/placed")
        record("osd-down", ceph, "k8s/placed", "--ceph-timeout=2s")
    finally:
        ceph.resume_osd()
    wait_until(lambda: "placed" in ceph.rbd("ls", "k8s"), timeout_s=60, what="the OSD to go on")
    assert "rbd_id.placed is in PG " in before
    assert ", whose primary is osd.0)" in before
    # The only OSD of the group is gone: it has no acting set any more.
    assert ", which no OSD serves)" in after
    what = "the answer to be complete again"
    wait_until(lambda: _unanswered(ceph, "k8s/placed") == [], timeout_s=60, what=what)


def _unanswered(ceph: CephCluster, image: str) -> list[str]:
    """Return what who-holds reports about an image for which Ceph does not answer."""
    done = subprocess.run(
        [sys.executable, "-m", "rbdagent", "who-holds", image, "--no-kube", "-o", "json",
         "--ceph-conf", ceph.conf, "--ceph-timeout", "2s", "--ceph-keyring",
         ceph.conf.parent / "ceph.client.rbdagent.keyring"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    findings = json.loads(done.stdout)["findings"]
    return [
        str(found["message"])
        for found in findings
        if found["code"] == "RBD905" and " is in PG " in found["message"]
    ]


def test_two_clusters_with_equal_names_are_kept_separate(
    ceph: CephCluster, processes: Processes, tmp_path: Path
) -> None:
    second = CephCluster(
        processes,
        tmp_path / "second",
        port=free_port(),
        msgr2_port=free_port(),
        name="it-second",
    )
    second.start()
    second.wait_ready()
    second.create_pool("k8s")
    second.create_user("rbdagent", READ_ONLY_CAPS)
    for cluster in (ceph, second):
        cluster.create_image("k8s/same")
    view, source = observe_ceph(
        [access(ceph), access(second)], [wanted("same")], deadline_s=20 * patience()
    )
    assert source.state is SourceState.OBSERVED
    assert view is not None
    found = {image.fsid for cluster in view.clusters for image in cluster.images}
    assert found == {ceph.fsid, second.fsid}


def test_missing_bindings_are_named_with_their_packages(ceph: CephCluster, tmp_path: Path) -> None:
    (tmp_path / "rados.py").write_text("raise ImportError(name='rados')\n")
    done = subprocess.run(
        [sys.executable, "-m", "rbdagent", "who-holds", "k8s/x", "--no-kube",
         "--ceph-conf", ceph.conf],
        capture_output=True, text=True, check=False, timeout=60,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "python3-rados python3-rbd" in done.stdout
    assert done.returncode == 1


def test_check_reports_what_works(ceph: CephCluster) -> None:
    states = {fact.sentence: str(fact.state) for fact in check_ceph(access(ceph))}
    assert states["the blocklist can be read"] == "ok"
    assert states["the clients of the mgr can be listed"] == "ok"
    assert states["images can be read"] == "ok"


@pytest.mark.parametrize(
    ("name", "osd", "state"),
    [
        ("another-pool", {"osd": "allow r pool=other"}, "failed"),
        # The directory can be read, and no image can be opened.
        ("no-class-read", {"osd": "allow r pool=k8s"}, "failed"),
        ("one-pool", {"osd": "profile rbd-read-only pool=k8s"}, "ok"),
    ],
)
def test_check_finds_missing_osd_caps(
    ceph: CephCluster, name: str, osd: dict[str, str], state: str
) -> None:
    """The monitors answer each of these users; the test runs the command of the hint."""
    ceph.create_image(f"k8s/caps-{name}")
    user = f"caps-{name}"
    keyring = ceph.create_user(user, {"mon": READ_ONLY_CAPS["mon"], **osd})
    by_user = access(ceph, client_id=user, keyring=keyring)
    sentence = "images can be read"
    (before,) = (found for found in check_ceph(by_user) if found.sentence == sentence)
    assert before.state == state, before
    if state == "ok":
        return
    assert before.detail == f"pool k8s: client.{user} has no permission to read it"
    program, *arguments = shlex.split(before.hint.partition(": ")[2])
    assert program == "ceph"
    ceph.ceph(*arguments)
    (after,) = (found for found in check_ceph(by_user) if found.sentence == sentence)
    assert after.state == "ok"


def test_check_finds_a_user_without_any_osd_caps(ceph: CephCluster) -> None:
    """Such a user gets no ticket for OSDs: its requests wait, as if the OSDs were down.

    OSDs of Ceph 16 refuse it at once.
    """
    ceph.create_image("k8s/caps-none")
    keyring = ceph.create_user("caps-none", {"mon": READ_ONLY_CAPS["mon"]})
    by_user = access(ceph, client_id="caps-none", keyring=keyring, timeout_s=2.0)
    (found,) = (line for line in check_ceph(by_user) if line.sentence == "images can be read")
    assert found.state == "failed"
    if chosen_parts().ceph.ceph == "16.2":
        assert found.detail == "pool k8s: client.caps-none has no permission to read it"
        return
    assert found.detail.startswith("pool k8s: no answer")
    assert "a user without osd caps, which ceph auth get client.caps-none shows" in found.hint


def test_check_prints_the_caps_for_the_clients_of_the_mgr(
    ceph: CephCluster,
) -> None:
    """The user has the caps that earlier versions asked for; the test runs the printed command."""
    user = "of-the-profile-alone"
    keyring = ceph.create_user(user, READ_ONLY_CAPS | {"mon": "profile rbd-read-only"})
    by_user = access(ceph, client_id=user, keyring=keyring)
    sentence = "the clients of the mgr can be listed"
    (before,) = (found for found in check_ceph(by_user) if found.sentence == sentence)
    assert before.state == "warning"
    assert before.detail == f"{ceph.name}: 'mgr dump' failed: access denied"
    program, *arguments = shlex.split(before.hint.partition(": ")[2])
    assert program == "ceph"
    ceph.ceph(*arguments)
    (after,) = (found for found in check_ceph(by_user) if found.sentence == sentence)
    assert after.state == "ok"


def test_a_known_client_is_recognised_by_address_and_nonce(
    ceph: CephCluster, held: str, opened: subprocess.Popen[str]
) -> None:
    """A watcher that sysfs already shows is not checked a second time."""
    said(opened)
    (watcher,) = seen(ceph, wanted(held)).watchers  # type: ignore[misc]
    known = MappedHere(clients=frozenset({watcher.address}))
    view, _ = observe_ceph([access(ceph)], [wanted(held)], deadline_s=10, known=known)
    assert view is not None
    assert view.clusters[0].images[0].watchers == (watcher,)
