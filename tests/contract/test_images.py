"""`rbdagent images --unclaimed`: the images of pools that nothing of this cluster refers to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest

from tests.support.ceph_bindings import FakeCeph, FakeImage, RadosError, ceph
from tests.support.cli_runner import Done, ask
from tests.support.fake_api import FakeApi, kubeconfig, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UUIDS: Final = tuple(f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "abcdef")
OWNED, GONE, THEIRS, SNAPSHOT, CLONE, TRASHED = UUIDS
FSID: Final = "7d112cea-dc64-4604-876a-0d7dcec17d1a"
CREATED: Final = {"create_timestamp": bytes.fromhex("0000006000000000")}
PV_KEY, CLUSTER_KEY = b"csi.storage.k8s.io/pv/name", "csi.ceph.com/cluster/name"


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


def test_the_first_line_counts_the_unclaimed_images(world: World) -> None:
    done = world.images()
    print(done.stdout, done.stderr)
    said = " ".join(done.stdout.split())
    assert done.code == 0
    assert said.startswith("2 of 5 images in pool k8s are unclaimed")
