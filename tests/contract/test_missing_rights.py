"""A refused kind of object is named in the answer that needs it, right by right.

tests/integration/test_privileges.py does the same with the RBAC of a real API server.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.cli.output import now_utc
from tests.support.cli_runner import Done, ask
from tests.support.fake_api import FakeApi, access_to
from tests.support.manifests import listed, pv
from tests.support.published import publish
from tests.support.rights import EXIT_CODES, IMAGES, NAMED, READING, Right

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

NODE: Final = "n1"
CLAIM: Final = "pvc/default/c12"
SPACE: Final = "rbdagent"
IN_CEPH: Final = frozenset({IMAGES})
"""It lists images of Ceph, which this test does not have: tests/contract/test_images.py."""
OF_OLD_REPORTS: Final = "leases"
"""A report that was written a moment ago needs no Lease."""


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    for node in ("n1", "n2"):
        mapped = {"device": "/dev/rbd0", "verdict": "InUse", "persistentVolume": _volume(fake)}
        publish(fake, node, *((mapped,) if node == NODE else ()), at=now_utc())
    for summary in fake.lists["rbdnodes"]:
        summary["status"]["leaseNamespace"] = SPACE
    # A workload that is not in its list does not exist.
    fake.lists |= {kind: [] for kind in ("leases", "deployments", "replicasets", "statefulsets")}
    fake.lists["pods"] += [_owned("Deployment"), _owned("ReplicaSet"), _owned("StatefulSet")]
    yield fake
    fake.stop()


def _volume(fake: FakeApi) -> str:
    (claim,) = (
        one for one in fake.lists["persistentvolumeclaims"] if one["metadata"]["name"] == "c12"
    )
    return str(claim["spec"]["volumeName"])


def _owned(kind: str) -> Json:
    owner = {"kind": kind, "name": "web", "controller": True}
    meta = {"name": kind.lower(), "namespace": "default", "uid": kind, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"nodeName": NODE}, "status": {"phase": "Running"}}


@pytest.fixture
def words(api: FakeApi, tmp_path: Path) -> dict[str, str]:
    manifests = tmp_path / "manifests.json"
    manifests.write_text(listed(pv(csi={"driver": "other.example.org"})))
    return {
        "{manifests}": str(manifests),
        "{archive}": str(tmp_path / "report.tar.gz"),
        "{free}": CLAIM,
        "{used}": CLAIM,
        "{volume}": f"pv/{_volume(api)}",
        "{pod}": f"pod/default/{api.lists['pods'][0]['metadata']['name']}",
        "{node}": NODE,
    }


def answer(api: FakeApi, directory: Path, words: dict[str, str], command: tuple[str, ...]) -> Done:
    given = [words.get(word, word) for word in command]
    if command[0] not in {"snapshot", "explain", "bug-report"}:
        given += ["-o", "json"]
    if command[0] != "explain":
        kubeconfig = str(access_to(api, directory).kubeconfig)
        given += ["--no-node", "--no-ceph", "--node-name=laptop", f"--kubeconfig={kubeconfig}"]
    return ask(*given)


@pytest.mark.parametrize(
    "right",
    [
        right
        for right, command in NAMED.items()
        if command not in IN_CEPH and right.resource != OF_OLD_REPORTS
    ],
    ids=lambda right: f"{right.verb} {right.resource}",
)
def test_a_missing_right_is_named(
    api: FakeApi, tmp_path: Path, words: dict[str, str], right: Right
) -> None:
    api.denied = {(right.verb, right.resource)}
    done = answer(api, tmp_path, words, NAMED[right])
    said = (done.stdout + done.stderr).replace('\\"', '"')
    assert done.code in EXIT_CODES
    assert right.refusal in said


@pytest.mark.parametrize("command", [one for one in READING if one not in IN_CEPH], ids=" ".join)
def test_each_verb_answers_a_user_without_rights(
    api: FakeApi, tmp_path: Path, words: dict[str, str], command: tuple[str, ...]
) -> None:
    kinds = {right.resource for right in NAMED}
    api.denied = {(verb, kind) for kind in kinds for verb in ("get", "list")}
    done = answer(api, tmp_path, words, command)
    said = done.stdout + done.stderr
    assert done.code in EXIT_CODES
    assert "Traceback" not in said
    assert "is forbidden" in said or command[0] == "explain"
    if command[0] == "who-holds" and done.stdout:
        assert json.loads(done.stdout)["verdict"] == "Undetermined"
