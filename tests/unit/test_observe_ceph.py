"""Queries of Ceph with fake bindings that check argument types, as Cython 3 does."""

from __future__ import annotations

import errno
import json
import re
import time
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.collect.ceph import many_images
from rbdagent.collect.ceph.access import NOTHING_MAPPED, MappedHere
from rbdagent.collect.ceph.check import check_ceph
from rbdagent.collect.ceph.images import CephReader
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    CheckResult,
    CheckState,
    ImageIdentity,
    ImagePresence,
    NotObserved,
    Source,
    SourceState,
    Watcher,
)
from rbdagent.parse.address import parse_address
from tests.support.ceph_bindings import (
    FakeImage,
    Rados,
    RadosError,
    RbdError,
    TimedOut,
    ceph,
    raising,
)
from tests.support.ceph_queries import access, identity, image, views
from tests.support.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WATCHER = ("10.77.0.12:0/1932216381", 4394, 18446462598732840961)
CHECK = ("10.77.0.12:0/77", 4400, 94310735552)
"""A client of librbd, such as ceph-csi's in-use check."""


def observe(
    tmp_path: Path, images: Sequence[ImageIdentity] = (), known: MappedHere = NOTHING_MAPPED
) -> tuple[CephView | None, Source]:
    look = CephReader([access(tmp_path)])
    return look.images(images, known=known, deadline=time.monotonic() + 60)


def watchers(view: CephView | None) -> list[int]:
    """Return the number of watchers of each image whose watchers were observed."""
    found = [image.watchers for image in views(view)]
    return [len(listed) for listed in found if isinstance(listed, tuple)]


def test_cluster_query_uses_the_argument_types_of_the_bindings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(image("one", watchers=(WATCHER,))).install(monkeypatch)
    view, source = observe(tmp_path, [identity("one", pool_id=None)])
    assert source == Source(state=SourceState.OBSERVED)
    (found,) = views(view)
    address, client, cookie = WATCHER
    watcher = Watcher(address=parse_address(address, where="x"), client=client, cookie=cookie)
    assert (found.presence, found.watchers) == (ImagePresence.PRESENT, (watcher,))
    assert view is not None
    assert view.clusters[0].blocklist == ()
    assert view.clusters[0].pools == ((1, "k8s"),)


@pytest.mark.parametrize("count", [8, 100])
def test_query_of_many_images_uses_the_argument_types(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int
) -> None:
    names = [f"image-{number}" for number in range(count)]
    ceph(*(image(name) for name in names)).install(monkeypatch)
    view, source = observe(tmp_path, [identity(name) for name in names])
    assert source == Source(state=SourceState.OBSERVED)
    assert watchers(view) == [0] * count


def test_query_of_osd_watches_uses_the_argument_types(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [f"image-{number}" for number in range(8)]
    dumped = dump_of("rbd_header.id-image-3")
    ceph(*(image(name) for name in names), answers={"dump_watchers": dumped}).install(monkeypatch)
    view, _ = observe(tmp_path, [identity(name) for name in names])
    assert watchers(view) == [0, 0, 0, 1, 0, 0, 0, 0]


def dump_of(*objects: str) -> bytes:
    """Return the answer of an OSD where one client watches the objects."""
    address = {"type": "v1", "addr": "10.77.0.12:0", "nonce": 9}
    client = {"entity_name": {"type": "client", "num": 4394}, "entity_addr_t": address}
    watch = {"namespace": "", "cookie": 1, **client}
    return json.dumps([{**watch, "object": name} for name in objects]).encode()


@pytest.mark.parametrize(
    ("objects", "asked"),
    [(["rbd_header.id-image-3"], 0), (["rbd_header.id-image-3", "rbd_mirroring"], 1)],
    ids=["no daemon runs", "one runs"],
)
def test_mirror_daemons_are_requested_only_if_the_dump_has_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, objects: list[str], asked: int
) -> None:
    """A dump does not name the pool of an object, so it does not show whose daemon it is."""
    names = [f"image-{number}" for number in range(8)]
    answers = {"dump_watchers": dump_of(*objects)}
    ceph(*(image(name) for name in names), answers=answers).install(monkeypatch)
    pools: list[int] = []

    def requested(_: object, pool_id: int, namespace: str) -> tuple[()]:
        pools.append(pool_id)
        return ()

    monkeypatch.setattr(many_images, "mirror_daemons", requested)
    found = views(observe(tmp_path, [identity(name) for name in names])[0])
    assert found[3].mirror_daemons == ()
    assert len(pools) == asked


def test_check_uses_the_argument_types_of_the_bindings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph().install(monkeypatch)
    lines = check_ceph(access(tmp_path))
    assert {line.state.value for line in lines} == {"ok", "skipped"}


IMAGES_CAN_BE_READ: Final = "images can be read"
DENIED: Final = RbdError("[errno 1] error opening image", errno=errno.EPERM)


def readable(tmp_path: Path) -> CheckResult:
    """Return the line of check about images."""
    lines = check_ceph(access(tmp_path))
    (found,) = (line for line in lines if line.sentence == IMAGES_CAN_BE_READ)
    return found


def test_check_reads_the_watchers_of_an_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(image("one", watchers=(WATCHER,))).install(monkeypatch)
    found = readable(tmp_path)
    assert (found.state, found.detail) == (CheckState.OK, "pools: k8s")


@pytest.mark.parametrize("refused", ["the directory", "an image"])
def test_check_fails_without_osd_caps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: str
) -> None:
    """The monitors answer such a user: nothing else shows that the caps are missing."""
    is_directory = refused == "the directory"
    objects = {"rbd_directory": RadosError("denied", errno=errno.EPERM)} if is_directory else {}
    one = replace(image("one"), error=None if is_directory else DENIED)
    ceph(one, objects=objects).install(monkeypatch)
    found = readable(tmp_path)
    assert found.state is CheckState.FAILED
    assert found.detail == "pool k8s: client.rbdagent has no permission to read it"
    assert "osd 'profile rbd-read-only'" in found.hint


def test_check_warns_of_a_pool_that_the_caps_leave_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = ceph(
        image("one"),
        replace(image("two"), pool_id=2, error=DENIED),
        answers={
            "osd lspools": b'[{"poolnum":1,"poolname":"k8s"},{"poolnum":2,"poolname":"vms"}]',
            "osd pool application get": b'{"k8s":{"rbd":{}},"vms":{"rbd":{}}}',
        },
    )
    cluster.pools[2] = "vms"
    cluster.install(monkeypatch)
    found = readable(tmp_path)
    assert found.state is CheckState.WARNING
    assert found.detail == "pool vms: client.rbdagent has no permission to read it"


def test_check_names_missing_caps_if_the_osds_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(objects={"rbd_directory": TimedOut("late", errno=errno.ETIMEDOUT)}).install(monkeypatch)
    found = readable(tmp_path)
    assert found.state is CheckState.FAILED
    assert found.detail.startswith("pool k8s: no answer within")
    assert "without osd caps, which ceph auth get client.rbdagent shows" in found.hint


@pytest.mark.parametrize(
    ("printed", "state", "words"),
    [
        (b"{}", CheckState.SKIPPED, "no pool has the application rbd"),
        (b"[]", CheckState.WARNING, "the applications"),
        (-errno.EACCES, CheckState.WARNING, "'osd pool application get' failed"),
    ],
)
def test_check_states_why_no_image_was_read(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    printed: bytes | int,
    state: CheckState,
    words: str,
) -> None:
    ceph(image("one"), answers={"osd pool application get": printed}).install(monkeypatch)
    found = readable(tmp_path)
    assert found.state is state
    assert words in found.detail


@pytest.mark.parametrize("in_trash", [False, True])
def test_renamed_or_trashed_image_is_found_by_its_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, in_trash: bool
) -> None:
    ceph(image("new", image_id="id-old", in_trash=in_trash)).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("old")])[0])
    expected = (ImagePresence.TRASH, "old") if in_trash else (ImagePresence.PRESENT, "new")
    assert (found.presence, found.spec.name) == expected


def test_image_with_another_id_does_not_count_for_a_renamed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A device is mapped by a name that another image has now."""
    ceph(image("old", image_id="id-of-another"), image("new", image_id="id-old")).install(
        monkeypatch
    )
    (found,) = views(observe(tmp_path, [identity("old")])[0])
    assert (found.presence, found.spec.name) == (ImagePresence.PRESENT, "new")
    assert found.image_id == "id-old"


def test_image_that_was_deleted_and_created_again_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(image("old", image_id="id-of-another")).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("old")])[0])
    assert (found.presence, found.image_id) == (ImagePresence.GONE, "id-old")


TASK: Final = b'{"refs":{"action":"trash remove","pool_name":"k8s","image_id":"id-old"}}'


def test_image_in_the_trash_is_found_by_its_name_with_its_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ceph-csi moves an image to the trash, and Ceph's manager removes it."""
    trashed = image("old", in_trash=True, snapshots=((4, b"one"), (9, b"two")))
    other = FakeImage(name=b"\xff", image_id="x", in_trash=True)
    ceph(trashed, other, tasks=(TASK,)).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("old", image_id=None)])[0])
    assert (found.presence, found.image_id) == (ImagePresence.TRASH, "id-old")
    assert (found.tasks, found.snapshots) == (("trash remove",), (4, 9))


def test_one_of_two_images_in_the_trash_with_a_name_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = (image("old", image_id=number, in_trash=True) for number in ("1", "2"))
    ceph(*both).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("old", image_id=None)])[0])
    assert found.presence is ImagePresence.GONE


@pytest.mark.parametrize("source", [2, 3], ids=["migration", "being removed"])
def test_image_that_was_not_deleted_by_its_name_is_not_in_the_trash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: int
) -> None:
    ceph(image("old", in_trash=True, trash_source=source)).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("old", image_id=None)])[0])
    assert found.presence is ImagePresence.GONE


def test_image_is_gone_if_the_trash_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    denied = RadosError("denied", errno=errno.EPERM)
    ceph(image("other"), objects={"rbd_trash": denied}).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("old", image_id=None)])[0])
    assert found.presence is ImagePresence.GONE


SNAPSHOTS: Final = {
    "names": (((4, b"one"), (9, b"two")), (4, 9)),
    "a name that is not UTF-8": (((4, b"\xfe"),), None),
    "too many": (tuple((number, b"x") for number in range(1025)), None),
}


@each_row("name", SNAPSHOTS)
@pytest.mark.parametrize("count", [1, 8])
def test_snapshots_are_read_of_an_image_of_which_one_is_mapped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, count: int
) -> None:
    snapshots, ids = SNAPSHOTS[name]
    names = [f"image-{number}" for number in range(count)]
    ceph(*(image(one, snapshots=snapshots) for one in names)).install(monkeypatch)
    known = MappedHere(snapshots_of=frozenset({"id-image-0"}))
    found = views(observe(tmp_path, [identity(one) for one in names], known)[0])
    assert (found[0].snapshots if ids else type(found[0].snapshots)) == (ids or NotObserved)
    assert all(isinstance(view.snapshots, NotObserved) for view in found[1:])


@pytest.mark.parametrize(
    ("removed", "presence"),
    [("deleted", ImagePresence.GONE), ("in the trash", ImagePresence.TRASH)],
)
def test_image_that_is_removed_after_it_was_opened_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, removed: str, presence: ImagePresence
) -> None:
    ceph(image("old", removed_after_open=removed)).install(monkeypatch)
    view, source = observe(tmp_path, [identity("old")])
    assert [found.presence for found in views(view)] == [presence]
    assert source == Source(state=SourceState.OBSERVED)


CLIENT, UNTIL = BlocklistEntry(network="10.9.9.9", nonce=77, until="2026-11-23T01:15"), "2026-11-23"
RANGES = (
    BlocklistEntry(network="10.77.0.52/32", until=UNTIL),
    BlocklistEntry(network="fd00:1::/64", until=UNTIL),
)
LISTED_CLIENT = '[{"addr":"10.9.9.9:0/77","until":"2026-11-23T01:15"}]'
LISTED_RANGES = (
    f'[{{"range":"10.77.0.52:0/32","until":"{UNTIL}"}},'
    f'{{"range":"[fd00:1::]:0/64","until":"{UNTIL}"}}]'
)
BLOCKLISTS = {
    "nothing": ("[][]", ()),
    "before ranges existed": (LISTED_CLIENT, (CLIENT,)),
    "a client": (f"{LISTED_CLIENT}[]", (CLIENT,)),
    "ranges alone": (f"[]{LISTED_RANGES}", RANGES),
    "both": (f"{LISTED_CLIENT}{LISTED_RANGES}", (CLIENT, *RANGES)),
    "both, pretty": (f"\n{LISTED_CLIENT}\n{LISTED_RANGES}\n\n", (CLIENT, *RANGES)),
}


@pytest.mark.parametrize(("printed", "entries"), BLOCKLISTS.values(), ids=BLOCKLISTS.keys())
def test_clients_and_ranges_of_the_blocklist_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    printed: str,
    entries: tuple[BlocklistEntry, ...],
) -> None:
    ceph(answers={"osd blocklist ls": printed.encode()}).install(monkeypatch)
    view, _ = observe(tmp_path)
    assert view is not None
    assert view.clusters[0].blocklist == entries


UNREADABLE = {
    "an address that is none": '[{"addr":"worker-1","until":"x"}][]',
    "a range that is none": '[][{"range":"10.8.0.0/24","until":"x"}]',
    "a prefix that is too long": '[][{"range":"10.8.0.0:0/33","until":"x"}]',
    "an entry of another kind": '[{"host":"worker-1","until":"x"}][]',
    "an entry that is no object": '["10.9.9.9:0/77"][]',
    "a value of another kind": '[]{"ranges":[]}',
    "something behind the values": "[][] listed 0 entries",
    "half of it": f"{LISTED_CLIENT}{LISTED_RANGES[:-9]}",
    "nothing at all": "",
    "no text": "\xff",
}


@pytest.mark.parametrize("printed", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_blocklist_that_cannot_be_parsed_is_not_observed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str
) -> None:
    """Assert not observed: an entry that is left out may be the one that blocks the client."""
    ceph(answers={"osd blocklist ls": printed.encode("latin-1")}).install(monkeypatch)
    view, source = observe(tmp_path)
    assert view is not None
    found = view.clusters[0].blocklist
    assert isinstance(found, NotObserved)
    assert "osd blocklist ls" in found.reason
    assert [gap.fact for gap in source.gaps] == ["the blocklist"]


@pytest.mark.parametrize(
    ("prefix", "fact"),
    [
        ("osd lspools", "pools"),
        ("mgr dump", "services"),
        ("mon dump", "monitors"),
        ("health", "health"),
    ],
)
def test_answer_with_a_second_value_is_not_observed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: str, fact: str
) -> None:
    ceph(answers={prefix: b"[][]"}).install(monkeypatch)
    view, _ = observe(tmp_path)
    assert view is not None
    found = getattr(view.clusters[0], fact)
    assert isinstance(found, NotObserved)
    assert "expected one JSON value" in found.reason


# --------------------------------------------------------------------------------------------------
# The client of rbdagent is blocklisted
# --------------------------------------------------------------------------------------------------

SHUT_DOWN = RbdError("RBD connection was shutdown (error opening image)", errno=errno.ESHUTDOWN)
OWN = {
    "the client itself": (
        '[{"addr":"10.77.0.11:0/2632773861","until":"tonight"}][]',
        "on the blocklist is 10.77.0.11:0/2632773861 until tonight",
        "run it again",
    ),
    "its host": (
        '[{"addr":"10.77.0.11:0/0","until":"tonight"}][]',
        "on the blocklist is 10.77.0.11:0/0 (every client of that host) until tonight",
        "on another node",
    ),
    "a range": (
        '[][{"range":"10.77.0.0:0/24","until":"tonight"}]',
        "on the blocklist is range 10.77.0.0/24 until tonight",
        "on another node",
    ),
    "no entry any more": ("[][]", "it is on the blocklist, or was", "on another node"),
    "a blocklist that was not read": ("?", "it is on the blocklist, or was", "on another node"),
}


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize(("printed", "reason", "hint"), OWN.values(), ids=OWN.keys())
def test_watchers_are_unknown_to_a_blocklisted_client(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    printed: str,
    reason: str,
    hint: str,
    count: int,
) -> None:
    names = [f"image-{number}" for number in range(count)]
    images = (image(name, error=SHUT_DOWN) for name in names)
    ceph(*images, answers={"osd blocklist ls": printed.encode()}).install(monkeypatch)
    for found in views(observe(tmp_path, [identity(name) for name in names])[0]):
        assert isinstance(found.watchers, NotObserved)
        assert found.presence == found.watchers
        assert reason in found.watchers.reason
        assert hint in found.watchers.hint
        assert "rm" not in found.watchers.hint.split()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "names no monitors"),
        (errno.EINVAL, "cannot resolve a monitor's name"),
        (errno.EIO, "cannot use the key or the keyring"),
        (errno.ENETUNREACH, "cannot connect: [errno 101]"),
    ],
)
def test_failed_connection_is_explained_by_its_errno(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, words: str
) -> None:
    error = RadosError("error connecting to the cluster", errno=number)
    ceph(connect={"rbdagent": error}).install(monkeypatch)
    _, source = observe(tmp_path)
    assert source.state is SourceState.FAILED
    assert words in source.reason


def test_configuration_file_that_librados_cannot_parse_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph().install(monkeypatch)
    error = RadosError("error calling conf_read_file", errno=errno.EINVAL)
    monkeypatch.setattr(Rados, "__init__", raising(error))
    _, source = observe(tmp_path)
    assert source.state is SourceState.FAILED
    assert re.search(r"librados cannot use /\S+/ceph\.conf ", source.reason)
    assert "[global]" in source.hint


@pytest.mark.parametrize("error", [SHUT_DOWN, RadosError("error opening pool", errno=108)])
def test_watchers_are_unknown_if_the_pool_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    ceph(image("one")).install(monkeypatch)
    monkeypatch.setattr(Rados, "open_ioctx2", raising(error))
    (found,) = views(observe(tmp_path, [identity("one")])[0])
    assert isinstance(found.watchers, NotObserved)
    assert "errno 108" in found.watchers.reason


def test_connection_of_a_blocklisted_client_has_a_hint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = RadosError("error connecting to the cluster", errno=errno.ESHUTDOWN)
    ceph(connect={"rbdagent": error}).install(monkeypatch)
    _, source = observe(tmp_path)
    assert source.state is SourceState.FAILED
    assert "errno 108" in source.reason
    assert "ceph osd blocklist ls" in source.hint


def test_check_reports_the_blocklisted_client_of_this_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Assert one failed line: the monitors answer a blocklisted client."""
    printed = b'[][{"range":"10.77.0.0:0/24","until":"tonight"}]'
    ceph(answers={"osd blocklist ls": printed}).install(monkeypatch)
    (failed,) = (line for line in check_ceph(access(tmp_path)) if line.state.value == "failed")
    assert failed.sentence == "this node's client is not on the blocklist"
    assert "range 10.77.0.0/24 until tonight" in failed.detail


# --------------------------------------------------------------------------------------------------
# Ceph before 16.2
# --------------------------------------------------------------------------------------------------

TOO_OLD = {
    "14.2.21": b'{"version":"ceph version 14.2.21 (5ef401921d7a88aea18ec7558f7f9374ebd8f5a6) '
    b'nautilus (stable)"}',
    "15.2.17": b'{"version":"ceph version 15.2.17 (8a82819d84cf884bd39c17e3236e0632ac146dc4) '
    b'octopus (stable)"}',
    "16.1.0": b'{"version":"ceph version 16.1.0 (x) pacific (rc)"}',
}


@pytest.mark.parametrize(("release", "printed"), TOO_OLD.items(), ids=TOO_OLD.keys())
def test_cluster_before_16_2_is_reported_as_unsupported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, printed: bytes
) -> None:
    """Assert the reason for a cluster before Ceph 16, whose command is `osd blacklist ls`."""
    unknown = {"osd blocklist ls": -errno.EINVAL, "version": printed}
    ceph(answers=unknown).install(monkeypatch)
    view, source = observe(tmp_path)
    assert view is not None
    found = view.clusters[0].blocklist
    assert isinstance(found, NotObserved)
    assert f"runs Ceph {release}: rbdagent supports Ceph 16.2 and later" in found.reason
    assert [gap.reason for gap in source.gaps] == [found.reason]
    failed = [line.detail for line in check_ceph(access(tmp_path)) if line.state.value == "failed"]
    assert failed == [found.reason]


@pytest.mark.parametrize(
    "version",
    [b'{"version":"ceph version 16.2.15 (x) pacific (stable)"}', b'{"version":"?"}', b"", -1],
    ids=str,
)
def test_refusal_by_a_newer_cluster_is_not_called_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: bytes | int
) -> None:
    ceph(answers={"osd blocklist ls": -errno.EINVAL, "version": version}).install(monkeypatch)
    view, _ = observe(tmp_path)
    assert view is not None
    found = view.clusters[0].blocklist
    assert isinstance(found, NotObserved)
    assert "'osd blocklist ls' failed: command not known" in found.reason


def test_version_is_queried_only_if_a_command_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = ceph(image("one")).install(monkeypatch)
    observe(tmp_path, [identity("one")])
    asked = ["health", "mgr dump", "mon dump", "osd blocklist ls", "osd lspools"]
    assert sorted(cluster.asked) == asked


UUID = "0a1b2c3d-1111-2222-3333-444455556666"
UNREAD: dict[str, dict[str, bytes] | Exception] = {
    f"csi.volume.{UUID}": TimedOut("Failed to operate read op", errno=errno.ETIMEDOUT)
}


def test_image_is_not_gone_if_its_journal_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(image("elsewhere"), objects=UNREAD).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity(f"csi-vol-{UUID}", image_id=None)])[0])
    assert isinstance(found.presence, NotObserved)
    assert "no answer within 2.5 s" in found.presence.reason
    assert found.presence.timed_out


def test_image_without_a_readable_journal_is_found_by_its_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(image("new", image_id="id-1"), objects=UNREAD).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity(f"csi-vol-{UUID}", image_id="id-1")])[0])
    assert (found.presence, found.spec.name) == (ImagePresence.PRESENT, "new")


# --------------------------------------------------------------------------------------------------
# Names that are not UTF-8
# --------------------------------------------------------------------------------------------------

CAFE, ESCAPED = b"caf\xe9", "caf\\xe9"
LOCKER = (b"client.4394", b"auto 18446462598732840961", b"10.77.0.12:0/1932216381")


def test_image_with_a_name_that_is_not_utf8_is_found_by_its_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Assert the same escaped name as that from the kernel (rbdagent/collect/files.py)."""
    ceph(FakeImage(name=CAFE, image_id="id-1", watchers=(WATCHER,))).install(monkeypatch)
    view, source = observe(tmp_path, [identity(ESCAPED, image_id="id-1")])
    (found,) = views(view)
    assert source == Source(state=SourceState.OBSERVED)
    assert (found.presence, found.spec.name) == (ImagePresence.PRESENT, ESCAPED)
    assert watchers(view) == [1]


def test_journal_name_that_is_not_utf8_opens_the_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    journal: dict[str, dict[str, bytes] | Exception] = {
        f"csi.volume.{UUID}": {"csi.imagename": CAFE}
    }
    ceph(FakeImage(name=CAFE, image_id="id-1"), objects=journal).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity(f"csi-vol-{UUID}", image_id=None)])[0])
    assert (found.presence, found.spec.name) == (ImagePresence.PRESENT, ESCAPED)


def test_pool_with_a_name_that_is_not_utf8_is_found_by_its_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = b'[{"poolnum":1,"poolname":"k8s"},{"poolnum":2,"poolname":"caf\xe9"}]'
    cluster = ceph(
        image("one"), image("two", pool_id=2, watchers=(WATCHER,)), answers={"osd lspools": listed}
    )
    cluster.pools = {1: "k8s", 2: CAFE}
    cluster.install(monkeypatch)
    there = identity("two", pool_id=2)
    there = replace(there, spec=replace(there.spec, pool=ESCAPED))
    view, source = observe(tmp_path, [identity("one"), there])
    assert source == Source(state=SourceState.OBSERVED)
    assert [str(found.spec) for found in views(view)] == ["k8s/one", f"{ESCAPED}/two"]
    assert view is not None
    assert view.clusters[0].pools == ((1, "k8s"), (2, ESCAPED))


def test_lock_name_that_is_not_utf8_is_a_gap_of_the_locks_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    locks = (LOCKER, (LOCKER[0], b"lock \xff", LOCKER[2]))
    ceph(image("one", watchers=(WATCHER,), lockers=locks)).install(monkeypatch)
    view, source = observe(tmp_path, [identity("one")])
    (found,) = views(view)
    assert isinstance(found.lockers, NotObserved)
    assert found.lockers.reason == "locks of k8s/one: the name of a lock is not UTF-8"
    assert (found.presence, watchers(view)) == (ImagePresence.PRESENT, [1])
    assert [gap.fact for gap in source.gaps] == ["locks of k8s/one"]


def test_metadata_that_is_not_utf8_is_escaped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {"csi.storage.k8s.io/pv/name": CAFE, "csi.ceph.com/cluster/name": b"lab"}
    ceph(image("one", metadata=given)).install(monkeypatch)
    (found,) = views(observe(tmp_path, [identity("one")])[0])
    assert found.metadata == (
        ("csi.ceph.com/cluster/name", "lab"),
        ("csi.storage.k8s.io/pv/name", ESCAPED),
    )


def test_name_that_is_not_utf8_hides_no_other_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Query 100 images: the directory of a pool is read if many of its images are wanted."""
    names = [f"image-{number}" for number in range(100)]
    images = [image(name, error=RbdError("opened")) for name in names]
    dumped = b"[]"
    foreign = FakeImage(name=CAFE, image_id="id-1")
    ceph(foreign, *images, answers={"dump_watchers": dumped}).install(monkeypatch)
    view, source = observe(tmp_path, [identity(name) for name in names])
    assert source == Source(state=SourceState.OBSERVED)
    assert watchers(view) == [0] * 100


@pytest.mark.parametrize(
    ("reads", "lasting", "transient"),
    [
        ([(CHECK,), ()], [], [4400]),
        ([(CHECK,), (CHECK,)], [4400], []),
        ([(CHECK,), (WATCHER,)], [4394], [4400]),
        ([(CHECK,), (CHECK, WATCHER)], [4394, 4400], []),
        ([(WATCHER,), ()], [4394], []),
        ([(WATCHER,), (WATCHER, CHECK), (WATCHER,)], [4394], [4400]),
        ([(WATCHER,), (WATCHER, CHECK), (WATCHER, CHECK)], [4394, 4400], []),
        ([(CHECK,), (("10.77.0.13:0/5", 4500, 7),), (("10.77.0.14:0/5", 4600, 7),)],
         [4600], [4400, 4500]),
    ],
    ids=[
        "a check that ends",
        "a client that stays",
        "a check, and the map that follows it",
        "a map during the check",
        "a mapping that lost its watch",
        "a check that begins and ends",
        "a client that begins and stays",
        "a new client in each read",
    ],
)  # fmt: skip
def test_only_a_watch_of_librbd_that_has_ended_is_transient(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    reads: list[tuple[tuple[str, int, int], ...]],
    lasting: list[int],
    transient: list[int],
) -> None:
    first, *later = reads
    watched = image("one", watchers=first)
    ceph(watched).install(monkeypatch)

    def next_read(_: float) -> None:
        watched.watchers = later.pop(0)

    monkeypatch.setattr("rbdagent.collect.ceph.image.time.sleep", next_read)
    (found,) = views(observe(tmp_path, [identity("one")])[0])
    assert isinstance(found.watchers, tuple)
    assert [watcher.client for watcher in found.watchers] == lasting
    assert [watcher.client for watcher in found.transient_watchers] == transient
    assert later == []
