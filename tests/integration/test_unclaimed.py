"""`rbdagent images --unclaimed` on a real cluster: what is listed, read and judged."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.cli.output import now_utc
from rbdagent.parse.times import later_by
from tests.integration.clients import start_client
from tests.support.cli_runner import Done, ask
from tests.support.fake_api import FakeApi, kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.ceph import CephCluster

POOL: Final = "unclaimed"
NAMES: Final = (
    "owned", "gone", "theirs", "snap", "source", "clone", "temp", "thrown", "held", "renamed",
    "spaced", "migrated", "parent", "asked", "parted",
)  # fmt: skip
UUIDS: Final = {
    name: f"{number:08d}-1111-2222-3333-{number:012d}" for number, name in enumerate(NAMES, start=1)
}
PV_KEY: Final = "csi.storage.k8s.io/pv/name"
CLUSTER_KEY: Final = "csi.ceph.com/cluster/name"


def vol(name: str) -> str:
    return f"csi-vol-{UUIDS[name]}"


def handle(name: str) -> str:
    return f"0001-0009-rook-ceph-0000000000000001-{UUIDS[name]}"


def pv(name: str) -> dict[str, Any]:
    attributes = {"pool": POOL, "clusterID": "rook-ceph", "imageName": vol(name)}
    source = {
        "driver": "rbd.csi.ceph.com",
        "volumeHandle": handle(name),
        "volumeAttributes": attributes,
    }
    return {
        "metadata": {"name": f"pv-{name}", "uid": name},
        "spec": {"csi": source},
        "status": {"phase": "Bound"},
    }


@pytest.fixture(scope="module")
def pool(ceph: CephCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephCluster]:
    """Yield the cluster with a pool of images in every state; a client holds one of them."""
    ceph.create_pool(POOL)
    ceph.create_pool("elsewhere")
    ceph.rbd("namespace", "create", f"{POOL}/team")
    for name in (
        "owned",
        "gone",
        "theirs",
        "source",
        "thrown",
        "held",
        "migrated",
        "parent",
        "asked",
    ):
        ceph.create_image(f"{POOL}/{vol(name)}")
    for spec in (f"csi-snap-{UUIDS['snap']}", f"{vol('temp')}-temp", "orders-backup", "vm-disk-1"):
        ceph.create_image(f"{POOL}/{spec}")
    ceph.create_image(f"{POOL}/team/{vol('spaced')}")
    for name, cluster in (("owned", "prod-a"), ("gone", "prod-a"), ("theirs", "prod-b")):
        for key, value in ((PV_KEY, f"pv-{name}"), (CLUSTER_KEY, cluster)):
            ceph.rbd("image-meta", "set", f"{POOL}/{vol(name)}", key, value)
    journal(ceph, "gone", request="pv-gone", image_name=vol("gone"))
    moved = json.loads(ceph.rbd("info", f"{POOL}/orders-backup", "--format", "json"))["id"]
    journal(ceph, "renamed", request="pv-renamed", image_name=vol("renamed"), image_id=moved)
    own = f"{POOL}/csi-snap-{UUIDS['snap']}"
    ceph.rbd("snap", "create", "--no-progress", f"{own}@csi-snap-{UUIDS['snap']}")
    # Clones of the second format need no protected snapshot.
    ceph.ceph("osd", "set-require-min-compat-client", "mimic")
    for source, target in (("source", vol("clone")), ("parent", "elsewhere/child")):
        ceph.rbd("snap", "create", "--no-progress", f"{POOL}/{vol(source)}@one")
        where = target if "/" in target else f"{POOL}/{target}"
        ceph.rbd("clone", "--rbd-default-clone-format=2", f"{POOL}/{vol(source)}@one", where)
    ceph.rbd("trash", "mv", f"{POOL}/{vol('thrown')}", "--expires-at", "2099-01-01")
    ceph.rbd("migration", "prepare", f"{POOL}/{vol('migrated')}", f"elsewhere/{vol('migrated')}")
    client = start_client(ceph, f"{POOL}/{vol('held')}")
    assert client.stdout is not None
    client.stdout.readline()
    yield ceph
    client.kill()
    client.communicate()


def journal(ceph: CephCluster, name: str, **values: str) -> None:
    keys = {"request": "csi.volname", "image_name": "csi.imagename", "image_id": "csi.imageid"}
    for key, value in values.items():
        ceph.rados("-p", POOL, "setomapval", f"csi.volume.{UUIDS[name]}", keys[key], value)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    content = {
        "metadata": {"name": "snapcontent-1"},
        "spec": {"driver": "rbd.csi.ceph.com"},
        "status": {"snapshotHandle": handle("snap")},
    }
    asked = {
        "metadata": {"name": "snapcontent-2"},
        "spec": {"driver": "rbd.csi.ceph.com", "source": {"volumeHandle": handle("asked")}},
    }
    fake.lists = {
        "persistentvolumes": [pv("owned"), pv("renamed"), pv("clone")],
        "persistentvolumeclaims": [],
        "pods": [],
        "volumesnapshotcontents": [content, asked],
    }
    yield fake
    fake.stop()


class World:
    """The cluster, and an API server with the PVs."""

    def __init__(self, ceph: CephCluster, api: FakeApi, directory: Path) -> None:
        self.ceph = ceph
        self.api = api
        self._kubeconfig = directory / "kubeconfig"
        self._kubeconfig.write_text(json.dumps(kubeconfig(api.url)))

    def images(self, *flags: str, user: str = "rbdagent") -> Done:
        keyring = self.ceph.conf.parent / f"ceph.client.{user}.keyring"
        return ask(
            "images", "--unclaimed", *flags, f"--ceph-conf={self.ceph.conf}", f"--ceph-id={user}",
            f"--ceph-keyring={keyring}", f"--kubeconfig={self._kubeconfig}",
        )  # fmt: skip

    def judged(self, *flags: str, user: str = "rbdagent") -> dict[str, dict[str, Any]]:
        """Return the items of the pool by the names of their images."""
        items = self.images(*flags, "-o", "json", "--all", user=user).data["items"]
        return {item["image"]["name"]: item for item in items if item["image"]["pool"] == POOL}


@pytest.fixture
def world(
    pool: CephCluster, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """Return the world an hour later: the image of a claim without a PV may be new."""
    later = later_by(now_utc(), timedelta(hours=1))
    monkeypatch.setattr("rbdagent.cli.images.now_utc", lambda: later)
    return World(pool, api, tmp_path)


def test_each_image_has_its_verdict(world: World) -> None:
    verdicts = {name: item["verdict"] for name, item in world.judged(POOL).items()}
    assert verdicts == {
        vol("owned"): "Referred",
        vol("gone"): "Unclaimed",
        vol("theirs"): "Unclaimed",
        f"csi-snap-{UUIDS['snap']}": "Referred",
        vol("source"): "Source",
        vol("clone"): "Referred",
        f"{vol('temp')}-temp": "Temporary",
        vol("thrown"): "Unclaimed",
        vol("held"): "InUse",
        "orders-backup": "Referred",
        "vm-disk-1": "NotOfCephCsi",
        vol("spaced"): "Unclaimed",
        vol("migrated"): "Source",
        vol("parent"): "Source",
        vol("asked"): "Referred",
    }


def test_the_facts_are_those_that_rbd_prints(world: World) -> None:
    item = world.judged(POOL)[vol("gone")]
    info = json.loads(world.ceph.rbd("info", f"{POOL}/{vol('gone')}", "--format", "json"))
    facts = item["facts"]
    assert item["image"]["id"] == info["id"]
    assert facts["sizeBytes"] == 64 << 20
    assert abs(_minutes(facts["createdAt"], now_utc())) < 60
    assert facts["metadata"] == {PV_KEY: "pv-gone", CLUSTER_KEY: "prod-a"}
    assert facts["journal"] == {
        "present": True,
        "objectName": f"csi.volume.{UUIDS['gone']}",
        "request": "pv-gone",
    }
    assert (facts["watchers"], facts["snapshots"], facts["clones"]) == ([], [], [])
    assert (facts["mirrored"], facts["tasks"], facts["notObserved"]) == (False, [], [])
    assert (item["origin"], item["names"]) == ("ThisCluster", "pv-gone")


def _minutes(then: str, now: str) -> float:
    from rbdagent.parse.times import age

    found = age(then, now)
    assert found is not None
    return found.total_seconds() / 60


def test_an_image_of_another_cluster_is_named_as_such(world: World) -> None:
    item = world.judged(POOL)[vol("theirs")]
    assert (item["origin"], item["names"]) == ("OtherCluster", "pv-theirs")


def test_clones_are_found_in_every_pool(world: World) -> None:
    items = world.judged(POOL)
    assert items[vol("source")]["facts"]["clones"] == [f"{POOL}/{vol('clone')}"]
    assert items[vol("parent")]["facts"]["clones"] == ["elsewhere/child"]


def test_an_image_whose_clone_is_flattened_and_whose_snapshot_is_removed_is_no_source(
    world: World,
) -> None:
    """A clone of the second format no longer needs the snapshot, nor the snapshot the image."""
    ceph, source, clone = world.ceph, f"{POOL}/{vol('parted')}", "elsewhere/parted"
    ceph.create_image(source)
    ceph.rbd("snap", "create", "--no-progress", f"{source}@one")
    ceph.rbd("clone", "--rbd-default-clone-format=2", f"{source}@one", clone)
    assert world.judged(POOL)[vol("parted")]["verdict"] == "Source"
    ceph.rbd("flatten", "--no-progress", clone)
    ceph.rbd("snap", "rm", "--no-progress", f"{source}@one")
    assert world.judged(POOL)[vol("parted")]["verdict"] == "Unclaimed"
    ceph.rbd("rm", "--no-progress", source)
    assert vol("parted") not in world.judged(POOL)


def test_the_trash_has_its_times(world: World) -> None:
    trash = world.judged(POOL)[vol("thrown")]["trash"]
    assert trash["source"] == "user"
    assert abs(_minutes(trash["since"], now_utc())) < 60
    assert trash["until"].startswith(("2098-12-31", "2099-01-01"))


def test_a_client_that_holds_an_image_is_named(world: World) -> None:
    (watcher,) = world.judged(POOL)[vol("held")]["facts"]["watchers"]
    assert watcher.startswith("client.")


def test_one_namespace_can_be_listed(world: World) -> None:
    assert [*world.judged(f"{POOL}/team")] == [vol("spaced")]


def test_without_a_pool_all_pools_for_rbd_are_listed(world: World) -> None:
    pools = world.images("-o", "json").data["pools"]
    assert {POOL, "elsewhere"} <= {pool["pool"] for pool in pools}


def test_caps_for_one_pool_leave_gaps(world: World) -> None:
    """Librbd searches every pool for clones: without their caps, a source is not recognised."""
    caps = {"mon": "profile rbd-read-only", "osd": f"profile rbd-read-only pool={POOL}"}
    world.ceph.create_user("limited", caps)
    items = world.judged(POOL, user="limited")
    assert items[vol("gone")]["verdict"] == "Unclaimed"
    assert items[vol("parent")]["verdict"] == "Source"
    everywhere = world.images("-o", "json", user="limited")
    assert everywhere.code == 1
    assert "the images of elsewhere" in {gap["fact"] for gap in everywhere.data["gaps"]}


def test_caps_for_one_namespace_are_enough_for_it(world: World) -> None:
    caps = {
        "mon": "profile rbd-read-only",
        "osd": f"profile rbd-read-only pool={POOL} namespace=team",
    }
    world.ceph.create_user("narrow", caps)
    done = world.images(f"{POOL}/team", "-o", "json", user="narrow")
    assert [item["verdict"] for item in done.data["items"]] == ["Unclaimed"]


def test_without_osd_caps_nothing_is_judged(world: World) -> None:
    world.ceph.create_user("blind", {"mon": "profile rbd-read-only"})
    done = world.images(POOL, "--ceph-timeout=2s", user="blind")
    assert done.code == 1
    assert "Unclaimed (" not in done.stdout
