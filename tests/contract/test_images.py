"""`rbdagent images --unclaimed`: the images of pools that nothing of this cluster refers to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest

from tests.support.ceph_bindings import FakeCeph, FakeImage, RadosError, RbdError, ceph
from tests.support.cli_runner import Done, ask
from tests.support.fake_api import FakeApi, kubeconfig, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UUIDS: Final = tuple(f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "abcdef")
OWNED, GONE, THEIRS, SNAPSHOT, CLONE, TRASHED = UUIDS
FSID: Final = "7d112cea-dc64-4604-876a-0d7dcec17d1a"
CREATED: Final = {"create_timestamp": bytes.fromhex("0000006000000000")}
CLUSTER_KEY: Final = "csi.ceph.com/cluster/name"


def handle(uuid: str) -> str:
    return f"0001-0024-{FSID}-0000000000000001-{uuid}"


def pv(name: str, uuid: str) -> dict[str, Any]:
    attributes = {"pool": "k8s", "clusterID": FSID, "imageName": f"csi-vol-{uuid}"}
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {
            "csi": {
                "driver": "rbd.csi.ceph.com",
                "volumeHandle": handle(uuid),
                "volumeAttributes": attributes,
            }
        },
        "status": {"phase": "Bound"},
    }


def content(name: str, uuid: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": "rbd.csi.ceph.com",
            "volumeSnapshotRef": {"namespace": "shop", "name": "daily", "uid": "u1"},
        },
        "status": {"snapshotHandle": handle(uuid)},
    }


def image(uuid: str, number: int, begin: str = "csi-vol-", **more: Any) -> FakeImage:  # noqa: ANN401
    return FakeImage(image_id=f"10{number}", name=f"{begin}{uuid}", **more)


def named(volume: str, cluster: str) -> dict[str, bytes]:
    return {"csi.storage.k8s.io/pv/name": volume.encode(), CLUSTER_KEY: cluster.encode()}


POOL: Final = (
    image(OWNED, 1, metadata=named("pv-owned", "prod-a")),
    image(GONE, 2, metadata=named("pv-gone", "prod-a")),
    image(THEIRS, 3, metadata=named("pv-theirs", "prod-b")),
    image(SNAPSHOT, 4, "csi-snap-", snapshots=((7, f"csi-snap-{SNAPSHOT}".encode()),)),
    FakeImage(image_id="105", name="vm-disk-1"),
)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    fake.lists = {
        "persistentvolumes": [pv("pv-owned", OWNED)],
        "persistentvolumeclaims": [],
        "pods": [],
        "volumesnapshotcontents": [content("snapcontent-1", SNAPSHOT)],
    }
    yield fake
    fake.stop()


class World:
    """A fake Ceph cluster and a fake API server, and the flags that lead to them."""

    def __init__(self, api: FakeApi, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self._patch = monkeypatch
        self._conf, self._kubeconfig = directory / "ceph.conf", directory / "kubeconfig"
        self._conf.write_text("[global]\n")
        self._kubeconfig.write_text(json.dumps(kubeconfig(api.url)))

    def images(self, *flags: str, of: FakeCeph | None = None) -> Done:
        found = of or a_pool()
        found.install(self._patch)
        return ask(
            "images", "--unclaimed", *flags, f"--ceph-conf={self._conf}",
            f"--kubeconfig={self._kubeconfig}",
        )  # fmt: skip


def a_pool(*more: FakeImage, **changes: Any) -> FakeCeph:  # noqa: ANN401
    headers = {f"rbd_header.{one.image_id}": CREATED for one in (*POOL, *more)}
    objects = headers | changes.pop("objects", {})
    return ceph(*POOL, *more, objects=objects, **changes)


@pytest.fixture
def world(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("COLUMNS", "80")
    return World(api, tmp_path, monkeypatch)


def verdicts(done: Done) -> dict[str, str]:
    return {item["image"]["name"]: item["verdict"] for item in done.data["items"]}


def text_of(done: Done) -> str:
    return " ".join(done.stdout.split())


def test_the_first_line_counts_the_unclaimed_images(world: World) -> None:
    done = world.images()
    assert (done.code, done.stderr) == (0, "")
    assert text_of(done).startswith("2 of 5 images in pool k8s are unclaimed: ")
    assert "1 with the name of PVs here and 1 of another." in text_of(done)


def test_the_report_states_that_other_clusters_are_not_visible(world: World) -> None:
    said = text_of(world.images())
    assert "PVs of other Kubernetes clusters are not visible here" in said
    assert "images of PVs here have the name prod-a" in said


def test_the_text_fits_80_columns_apart_from_commands(world: World) -> None:
    long = image(TRASHED, 9, namespace="namespace-of-team-a")
    pool = a_pool(long, namespaces=("namespace-of-team-a",))
    lines = world.images("--all", of=pool).stdout.splitlines()
    assert [line for line in lines if len(line) > 80 and "rbdagent who-holds" not in line] == []


def test_no_command_of_the_report_changes_anything(world: World) -> None:
    said = world.images("--all", "-o", "wide").stdout
    assert "rbdagent who-holds k8s/csi-vol-" in said
    assert not [word for word in (" rm ", "rm-", "delete ", "remove k8s") if word in said]


def test_images_that_are_referred_to_are_only_counted(world: World) -> None:
    done = world.images()
    assert OWNED not in done.stdout
    assert "2 referred to by an object of this cluster, 1 not made by ceph-csi" in text_of(done)


def test_all_lists_every_image_with_what_refers_to_it(world: World) -> None:
    said = text_of(world.images("--all"))
    assert "pv/pv-owned names it" in said
    assert "volumesnapshotcontent/snapcontent-1 has its uuid in the snapshot handle" in said
    assert "k8s/vm-disk-1" in said


def test_json_matches_its_schema(world: World) -> None:
    done = world.images("-o", "json", "--all")
    jsonschema.validate(done.data, ask("schema", "ImageList").data)
    assert (
        done.data["counts"] | {"Referred": 2, "Unclaimed": 2, "NotOfCephCsi": 1}
        == (done.data["counts"])
    )
    assert verdicts(done) == {
        f"csi-vol-{OWNED}": "Referred",
        f"csi-snap-{SNAPSHOT}": "Referred",
        f"csi-vol-{GONE}": "Unclaimed",
        f"csi-vol-{THEIRS}": "Unclaimed",
        "vm-disk-1": "NotOfCephCsi",
    }


def test_json_without_all_has_no_image_that_is_referred_to(world: World) -> None:
    done = world.images("-o", "json")
    assert set(verdicts(done).values()) == {"Unclaimed"}
    assert done.data["counts"]["Referred"] == 2


def test_there_is_no_output_of_names_alone(world: World) -> None:
    """A list of names could be passed to a command that deletes."""
    assert world.images("-o", "name").code == 2


def test_wide_has_every_fact(world: World) -> None:
    said = text_of(world.images("-o", "wide"))
    for fact in (
        "id 102, Ceph cluster ceph", "created: 2021-01-14T", "watchers: none", "clone of: nothing",
        "snapshots: none", "clones: none", "journal of ceph-csi: absent", "mirrored: no",
        "metadata: csi.ceph.com/cluster/name=prod-a, csi.storage.k8s.io/pv/name=pv-gone",
        "tasks: none",
    ):  # fmt: skip
        assert fact in said


# --------------------------------------------------------------------------------------------------
# Not observed
# --------------------------------------------------------------------------------------------------

VOLUMES: Final = "/api/v1/persistentvolumes"
CONTENTS: Final = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
OLD_CONTENTS: Final = CONTENTS.replace("/v1/", "/v1beta1/")


def test_without_pvs_no_image_is_unclaimed(world: World) -> None:
    world.api.broken[VOLUMES] = refuse(403)
    done = world.images()
    assert done.code == 1
    assert text_of(done).startswith(f"No image can be called unclaimed: GET {VOLUMES}")
    assert set(verdicts(world.images("-o", "json")).values()) == {"NotJudged"}


def test_without_kubernetes_no_image_is_unclaimed(world: World) -> None:
    done = world.images("--no-kube")
    assert done.code == 1
    assert text_of(done).startswith(
        "No image can be called unclaimed: the Kubernetes API was not queried, as requested."
    )


def test_without_contents_no_image_is_unclaimed(world: World) -> None:
    """One of them may have the handle of a volume of which a snapshot is to be made."""
    world.api.broken[CONTENTS] = refuse(403)
    done = world.images("-o", "json")
    assert done.code == 1
    assert verdicts(done)[f"csi-snap-{SNAPSHOT}"] == "NotJudged"
    assert verdicts(done)[f"csi-vol-{GONE}"] == "NotJudged"


def test_a_cluster_without_the_resource_has_no_contents(world: World) -> None:
    world.api.broken |= dict.fromkeys((CONTENTS, OLD_CONTENTS), refuse(404))
    done = world.images("-o", "json")
    assert (done.code, verdicts(done)[f"csi-snap-{SNAPSHOT}"]) == (0, "Unclaimed")


def test_contents_of_an_old_cluster_are_read(world: World) -> None:
    world.api.broken[CONTENTS] = refuse(404)
    assert f"csi-snap-{SNAPSHOT}" not in verdicts(world.images("-o", "json"))


def test_a_directory_that_cannot_be_read_is_a_gap(world: World) -> None:
    done = world.images(of=a_pool(objects={"rbd_directory": RadosError("down", errno=5)}))
    assert (done.code, "not observed: the images of k8s" in text_of(done)) == (1, True)


# --------------------------------------------------------------------------------------------------
# Pools
# --------------------------------------------------------------------------------------------------


def test_a_pool_that_no_cluster_has_is_a_usage_error(world: World) -> None:
    done = world.images("k9s")
    assert done.code == 1
    assert "no such pool in ceph: k9s" in done.stderr


@pytest.mark.parametrize("name", ["", "/", "k8s/", "k8s/team/image"])
def test_what_is_no_pool_is_a_usage_error(world: World, name: str) -> None:
    assert world.images(name).code == 2


def test_without_the_flag_it_is_a_usage_error() -> None:
    done = ask("images")
    assert done.code == 2
    assert done.stderr.endswith("  rbdagent images --unclaimed\n")


def test_without_ceph_it_is_a_usage_error(world: World) -> None:
    assert world.images("--no-ceph").code == 2


def test_the_images_of_a_namespace_are_listed(world: World) -> None:
    there = image(TRASHED, 9, namespace="team")
    pool = a_pool(there, namespaces=("team",))
    everywhere = world.images("-o", "json", of=pool)
    assert verdicts(everywhere)[f"csi-vol-{TRASHED}"] == "Unclaimed"
    only = world.images("k8s/team", "-o", "json", of=pool)
    assert verdicts(only) == {f"csi-vol-{TRASHED}": "Unclaimed"}


def test_namespaces_that_cannot_be_listed_are_a_gap(world: World) -> None:
    done = world.images(of=a_pool(namespaces=RbdError("denied", errno=1)))
    assert done.code == 1
    assert "not observed: the RADOS namespaces of pool k8s" in text_of(done)


def test_a_trash_that_cannot_be_read_is_a_gap(world: World) -> None:
    done = world.images(of=a_pool(objects={"rbd_trash": RadosError("denied", errno=1)}))
    assert done.code == 1
    assert "not observed: the trash of k8s" in text_of(done)


def test_an_image_in_the_trash_is_listed_with_its_times(world: World) -> None:
    thrown = image(TRASHED, 9, in_trash=True, trashed=(1767225600, 1798761600))
    said = text_of(world.images(of=a_pool(thrown)))
    assert f"k8s/csi-vol-{TRASHED}" in said
    assert "in the trash since 2026-01-01T00:00:00Z, kept until 2027-01-01T00:00:00Z" in said


def test_a_task_of_the_manager_is_shown(world: World) -> None:
    thrown = image(TRASHED, 9, in_trash=True)
    task = b'{"refs": {"action": "trash remove", "image_id": "109"}}'
    assert "manager has queued: trash remove" in text_of(
        world.images(of=a_pool(thrown, tasks=(task,)))
    )


def test_a_renamed_image_is_found_by_ceph_csis_journal(world: World) -> None:
    world.api.lists["persistentvolumes"].append(pv("pv-moved", CLONE))
    journal = {"csi.imageid": b"109", "csi.imagename": b"x", "csi.volname": b"pv-moved"}
    pool = a_pool(
        FakeImage(image_id="109", name="orders-backup"),
        objects={f"csi.volume.{CLONE}": journal},
    )
    done = world.images("--all", "-o", "json", of=pool)
    assert verdicts(done)["orders-backup"] == "Referred"
    assert done.data["lostPersistentVolumes"] == []


def test_a_pv_without_its_image_is_named(world: World) -> None:
    world.api.lists["persistentvolumes"].append(pv("pv-moved", CLONE))
    said = text_of(world.images())
    assert "1 PV names an image that is in none of these pools: pv-moved." in said


def test_an_image_that_users_may_not_open_is_not_judged(world: World) -> None:
    closed = image(TRASHED, 9, error=RbdError("denied", errno=1))
    done = world.images("-o", "json", of=a_pool(closed))
    assert (done.code, verdicts(done)[f"csi-vol-{TRASHED}"]) == (1, "NotJudged")
    assert "ceph auth caps client.rbdagent" in world.images(of=a_pool(closed)).stdout


def test_a_name_that_is_not_utf8_is_escaped(world: World) -> None:
    odd = FakeImage(image_id="109", name=b"\xff-csi")
    assert r"k8s/\xff-csi" in world.images("--all", of=a_pool(odd)).stdout


def test_more_images_than_the_limit_are_a_gap(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbdagent.collect.ceph.pool_images.MOST_IMAGES", 2)
    done = world.images()
    assert done.code == 1
    assert "only the first 2 are listed" in text_of(done)
