"""Rights in Kubernetes and caps in Ceph, removed one by one: the answer states what it lacks.

The API server, its RBAC, the controllers and Ceph are real. docs/privileges.md has what is measured
here; tests/e2e/test_privileges.py does the same for the privileges on a node.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.agent_reports import renew, report
from tests.integration.states import HERE, NODE, ROOK, THERE, Making
from tests.lab.api import ApiError
from tests.lab.ceph import READ_ONLY_CAPS
from tests.lab.controlplane import RBDAGENT_RULES
from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.lab import POOL, running_lab
from tests.lab.played import PlayedNodes
from tests.lab.processes import wait_until
from tests.lab.workloads import DRIVER, collection, pod_spec
from tests.support.cli_runner import Done
from tests.support.rights import (
    DRAIN,
    ELSEWHERE,
    EXIT_CODES,
    FREE,
    IMAGES,
    LINT,
    NAMED,
    READING,
    Right,
    rights_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.lab.api import Json
    from tests.lab.lab import Lab

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_SPACE: Final = "rbdagent"
_UUID: Final = "00000002-1111-2222-3333-000000000002"
_UNCLAIMED: Final = "csi-vol-00000001-1111-2222-3333-000000000001"
_DRIVEN: Final = "other.example.org"
"""A driver without a CSIDriver, which is registered on a node."""
_OF_THE_NODE: Final = "processes and mounts beside the pods of a volume that is in use"
"""What only the node itself shows, whatever the rights of the user are."""


class World:
    """A used volume, a free one, an image that nothing names, and what agents published."""

    def __init__(self, lab: Lab, undo: ExitStack, directory: Path) -> None:
        self.lab = lab
        self.api = lab.control_plane.api
        self._words = {
            "{manifests}": str(directory / "manifests.json"),
            "{archive}": str(directory / "report.tar.gz"),
            "{free}": "pvc/default/free",
            "{used}": "pvc/default/used",
            "{volume}": "pv/free",
            "{pod}": "pod/default/alone-0",
            "{node}": HERE,
        }
        (directory / "manifests.json").write_text(json.dumps(_manifests()))
        self.api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
        nodes = undo.enter_context(PlayedNodes(lab, undo))
        nodes.add(HERE, drivers=(DRIVER, ROOK, _DRIVEN))
        nodes.add(THERE)
        used, free = (Making(lab, nodes, name, undo) for name in ("used", "free"))
        used.bound()
        used.deployment(HERE)
        used.starts(used.pod_of_owner(HERE), HERE)
        free.bound()
        alone = Making(lab, nodes, "alone", undo)
        alone.bound()
        alone.statefulset(pod_spec(node=HERE, claims=[alone.name]))
        alone.starts(alone.pod_of_owner(HERE), HERE)
        nodes.open_all()
        self._snapshot_content()
        for name in (_UNCLAIMED, f"csi-snap-{_UUID}"):
            lab.ceph.create_image(f"{POOL}/{name}", size="8M")
        self._report()

    def _report(self) -> None:
        """Publish reports that only the Leases show to be current."""
        earlier = f"{datetime.now(UTC) - timedelta(minutes=20):%Y-%m-%dT%H:%M:%SZ}"
        mapped = [self._mapped(number, name) for number, name in enumerate(("used", "alone"))]
        for node in (NODE, HERE, THERE):
            report(self.api, node, *(mapped if node == HERE else ()), at=earlier)

    def _mapped(self, number: int, name: str) -> Json:
        info = json.loads(self.lab.ceph.rbd("info", f"{POOL}/{name}", "--format", "json"))
        return {
            "device": f"/dev/rbd{number}",
            "verdict": "InUse",
            "persistentVolume": name,
            "image": {
                "fsid": self.lab.ceph.fsid,
                "pool": POOL,
                "radosNamespace": "",
                "name": name,
                "id": info["id"],
            },
        }

    def _snapshot_content(self) -> None:
        """Create a VolumeSnapshotContent, and its definition without the snapshot controller."""
        group = "snapshot.storage.k8s.io"
        plural = "volumesnapshotcontents"
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {
            "plural": plural,
            "singular": "volumesnapshotcontent",
            "kind": "VolumeSnapshotContent",
            "listKind": "VolumeSnapshotContentList",
        }
        version = {"name": "v1", "served": True, "storage": True}
        spec = {
            "group": group,
            "scope": "Cluster",
            "names": names,
            "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
        }
        approved = {"api-approved.kubernetes.io": "unapproved, only for tests"}
        meta = {"name": f"{plural}.{group}", "annotations": approved}
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.api.create(definitions, {"metadata": meta, "spec": spec})
        handle = f"0001-000a-lab-ceph-1-{2:016x}-{_UUID}"
        content = {
            "apiVersion": f"{group}/v1",
            "kind": "VolumeSnapshotContent",
            "metadata": {"name": "content-1"},
            "spec": {"driver": DRIVER, "source": {"snapshotHandle": handle}},
            "status": {"snapshotHandle": handle},
        }

        def is_created() -> bool:
            try:
                self.api.create(f"/apis/{group}/v1/{plural}", content)
            except ApiError:
                return False
            return True

        wait_until(is_created, timeout_s=60, what="the resource of snapshots to be served")

    def add_user(self, name: str, rights: Iterable[Right]) -> None:
        """Create a ServiceAccount with these rights, and its kubeconfig."""
        accounts = collection("ServiceAccount", _SPACE)
        role = f"measured-{name}"
        meta = {"metadata": {"name": role}}
        self.api.create(accounts, {"metadata": {"name": name}})
        rules = [right.rule for right in rights]
        self.api.create(f"{_RBAC}/clusterroles", {**meta, "rules": rules})
        bound = {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": _SPACE, "name": name}],
        }  # fmt: skip
        self.api.create(f"{_RBAC}/clusterrolebindings", {**meta, **bound})
        lasting = {"spec": {"expirationSeconds": 36000}}
        token = self.api.create(f"{accounts}/{name}/token", lasting)["status"]["token"]
        self.lab.control_plane.write_kubeconfig(name, str(token))

    def answers(
        self, user: str, commands: Iterable[tuple[str, ...]], *, ceph_user: str = "rbdagent"
    ) -> list[Done]:
        """Return the answers to commands, asked by a user outside every node."""
        plane, conf = self.lab.control_plane, self.lab.ceph.conf
        flags = (
            "--node-name=laptop",
            f"--kubeconfig={plane.kubeconfig(user)}",
            f"--ceph-conf={conf}",
            f"--ceph-id={ceph_user}",
            f"--ceph-keyring={conf.parent}/ceph.client.{ceph_user}.keyring",
            "--ceph-timeout=3s",
        )
        for node in (NODE, HERE, THERE):
            renew(self.api, node)
        given = [
            [*(self._words.get(word, word) for word in command), *_form(command),
             *(() if command[0] == "explain" else flags)]
            for command in commands
        ]  # fmt: skip
        program = ("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m")
        done = plane.laptop().run(
            *program, "tests.support.many_answers", stdin=json.dumps(given), timeout_s=600
        )
        assert done.code == 0, done.said
        return [Done(**answer) for answer in json.loads(done.stdout)]

    def answer(self, user: str, command: tuple[str, ...], *, ceph_user: str = "rbdagent") -> Done:
        (found,) = self.answers(user, [command], ceph_user=ceph_user)
        return found


def _form(command: tuple[str, ...]) -> tuple[str, ...]:
    return () if command[0] in {"snapshot", "explain", "bug-report"} else ("-o", "json")


def _manifests() -> Json:
    """Return a PV of the driver that has no CSIDriver, and its claim."""
    source = {"driver": _DRIVEN, "volumeHandle": "x", "volumeAttributes": {}}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "default", "name": "saved"},
        "csi": source,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
    }
    volume = {"kind": "PersistentVolume", "metadata": {"name": "saved"}, "spec": spec}
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
        "volumeName": "saved",
    }
    meta = {"name": "saved", "namespace": "default"}
    claim = {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": wanted}
    items = [{"apiVersion": "v1", **item} for item in (volume, claim)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    state = cache_dir() / f"test-privileges-{os.getpid()}"
    with running_lab(state, nodes=()) as lab, ExitStack() as undo:
        made = World(lab, undo, tmp_path_factory.mktemp("files"))
        rights = rights_in(RBDAGENT_RULES)
        made.add_user("full", rights)
        made.add_user("nothing", ())
        for number, right in enumerate(NAMED):
            made.add_user(f"without-{number}", [one for one in rights if one != right])
        # RBAC of the API server reads roles by a watch.
        last = f"without-{len(NAMED) - 1}"
        what = "the roles to be in force"
        wait_until(lambda: made.answer(last, FREE).code == 0, timeout_s=120, what=what)
        yield made
    shutil.rmtree(state)


def refused(done: Done) -> bool:
    return "is forbidden" in done.stdout + done.stderr


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


def test_each_reading_right_of_the_role_is_measured() -> None:
    assert {*rights_in(RBDAGENT_RULES)} == NAMED.keys() | ELSEWHERE


def test_with_the_rights_of_the_role_nothing_is_refused(world: World) -> None:
    asked = [command for command in READING if command[0] not in {"bug-report", "lint"}]
    answers = dict(zip(asked, world.answers("full", asked), strict=True))
    assert [command for command, done in answers.items() if refused(done)] == []
    assert answers[FREE].data["verdict"] == "Free"
    assert [one["fact"] for one in answers[DRAIN].data["notObserved"]] == [_OF_THE_NODE]
    verdicts = {one["image"]["name"]: one["verdict"] for one in answers[IMAGES].data["items"]}
    assert verdicts[_UNCLAIMED] == "Unclaimed"
    assert verdicts[f"csi-snap-{_UUID}"] == "Referred"


@pytest.mark.parametrize("right", NAMED, ids=lambda right: f"{right.verb} {right.resource}")
def test_a_missing_right_is_named_and_never_none(world: World, right: Right) -> None:
    number = [*NAMED].index(right)
    done = world.answer(f"without-{number}", NAMED[right])
    said = done.stdout + done.stderr
    assert done.code in EXIT_CODES
    assert right.refusal in said.replace('\\"', '"')
    assert "Traceback" not in said
    if done.stdout and NAMED[right] is FREE:
        assert done.data["verdict"] == "Undetermined"
    if done.stdout and NAMED[right] is DRAIN:
        gaps = [*done.data["notObserved"], *done.data["sources"]["kubernetes"]["gaps"]]
        assert any(right.refusal in one["reason"] for one in gaps)
    if right.group == "apps" and right.verb == "get":
        assert None in [move["replicas"] for move in done.data["moves"]]
    if done.stdout and NAMED[right] is IMAGES:
        verdicts = {one["image"]["name"]: one["verdict"] for one in done.data["items"]}
        assert verdicts[f"csi-snap-{_UUID}"] != "Unclaimed"
    if done.stdout and NAMED[right] is LINT:
        assert "RBD732" not in [problem["code"] for problem in done.data["problems"]]


def test_every_verb_answers_a_user_without_rights(world: World) -> None:
    for command, done in zip(READING, world.answers("nothing", READING), strict=True):
        said = done.stdout + done.stderr
        assert done.code in EXIT_CODES, command
        assert "Traceback" not in said, command
        if command[0] != "explain":
            assert refused(done), command


# --------------------------------------------------------------------------------------------------
# Ceph
# --------------------------------------------------------------------------------------------------

MON: Final = READ_ONLY_CAPS["mon"]
OSD: Final = READ_ONLY_CAPS["osd"]
CAPS: Final[dict[str, dict[str, str]]] = {
    "without mon caps": {"osd": OSD},
    "without osd caps": {"mon": MON},
    "osd caps of another pool": {"mon": MON, "osd": "profile rbd-read-only pool=other"},
    "osd caps of another namespace": {
        "mon": MON,
        "osd": f"profile rbd-read-only pool={POOL} namespace=team",
    },
    "osd caps without class-read": {"mon": MON, "osd": "allow r"},
    "without mgr dump": {"mon": "profile rbd-read-only", "osd": OSD},
    "with mgr caps too": {**READ_ONLY_CAPS, "mgr": "allow r"},
}
SUFFICIENT: Final = frozenset({"without mgr dump", "with mgr caps too"})
"""Those with which a free volume is free, and an unclaimed image unclaimed."""


@pytest.mark.parametrize("name", CAPS)
def test_missing_caps_are_named_and_never_none(world: World, name: str) -> None:
    user = name.replace(" ", "-")
    world.lab.ceph.create_user(user, CAPS[name])
    asked = [command for command in READING if command[0] != "bug-report"]
    answers = world.answers("full", asked, ceph_user=user)
    by_command = dict(zip(asked, answers, strict=True))
    for command, done in by_command.items():
        assert done.code in EXIT_CODES, command
        assert "Traceback" not in done.stdout + done.stderr, command
    free, images = by_command[FREE], by_command[IMAGES]
    listed = images.data["items"] if images.stdout else []
    unclaimed = [one["image"]["name"] for one in listed if one["verdict"] == "Unclaimed"]
    if name in SUFFICIENT:
        assert free.data["verdict"] == "Free"
        assert unclaimed == [_UNCLAIMED]
        return
    assert free.data["verdict"] == "Undetermined"
    assert f"client.{user}" in free.stdout
    assert unclaimed == []
    assert f"client.{user}" in images.stdout + images.stderr
