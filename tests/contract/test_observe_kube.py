"""The Kubernetes observer with a server that answers as recorded, refuses, or fails."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlparse

import pytest
from msgspec.structs import replace

from rbdagent import collector as look_module
from rbdagent.agent.events import Events
from rbdagent.agent.heartbeat import Heartbeat
from rbdagent.agent.neighbours import Neighbours
from rbdagent.agent.publish import Publisher
from rbdagent.cli.agent import _Kubernetes
from rbdagent.collect.kube.access_review import check_kube
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.kubeconfig import KubeAccess
from rbdagent.collect.kube.list_reports import published_nodes, reports_of_nodes
from rbdagent.collect.kube.list_target import observe_kube
from rbdagent.collect.kube.requests import RBD_MAPPINGS, RBD_NODES
from rbdagent.correlate import correlate, correlate_waiting, images_to_identify, volumes_of_node
from rbdagent.correlate.machine import without_other_machine
from rbdagent.errors import NotFoundError, SourceError
from rbdagent.lifecycle.blocked_pods import blocked_volumes
from rbdagent.model import (
    CollectScope,
    Confidence,
    CsiSource,
    KubeView,
    NotObserved,
    PublishedNode,
    Snapshot,
    Source,
    SourceState,
    Target,
    TargetKind,
    Verdict,
    observed_of,
)
from rbdagent.parse.labels import (
    UNKNOWN_IMAGE,
    client_label,
    id_key,
    image_keys,
    image_label,
    volume_key,
)
from rbdagent.parse.times import age
from rbdagent.rules import diagnose
from tests.support.agent_loop import Log, cycle_of
from tests.support.blocked import held
from tests.support.cli_runner import process
from tests.support.fake_api import (
    TOKEN,
    VOLUME,
    FakeApi,
    Json,
    access_to,
    answer,
    kubeconfig,
    refuse,
)
from tests.support.published import publish_only
from tests.support.snapshots import (
    FSID,
    IMAGE_ID,
    NOW,
    NOWHERE,
    PV,
    REMOTE_ADDRESS,
    SPEC,
    remote_watcher,
    waiting_pod,
    watcher,
)
from tests.support.unmap_plans import seen as seen_by_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rbdagent.agent.cycle import CycleResult

OWN_BOOT = "f3236283-2359-4784-bff6-cc56d0bcf0d4"
"""Of Node n1 in the recording of the fake API."""

_PV = "/api/v1/persistentvolumes"
_VA = "/apis/storage.k8s.io/v1/volumeattachments"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.stop()


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> KubeAccess:
    return access_to(api, tmp_path)


def target(name: str = VOLUME, kind: TargetKind = TargetKind.PERSISTENT_VOLUME) -> Target:
    return Target(argument=name, kind=kind, name=name, namespace="default")


def look(access: KubeAccess, wanted: Target | None = None) -> tuple[KubeView | None, Source]:
    return observe_kube(Connection(access), wanted or target(), node_name="n1")


def test_volume_leads_to_claim_pods_nodes_attachment_and_events(access: KubeAccess) -> None:
    """Recording 12."""
    view, source = look(access)
    assert source.state is SourceState.OBSERVED
    assert source.gaps == ()
    assert view is not None
    assert VOLUME in {volume.name for volume in view.persistent_volumes}  # type: ignore[union-attr]
    assert [claim.ref.name for claim in view.claims] == ["c12"]  # type: ignore[union-attr]
    assert {node.name for node in view.nodes} == {"n1", "n2"}  # type: ignore[union-attr]
    (attachment,) = view.attachments  # type: ignore[misc]
    assert (attachment.node_name, attachment.attached) == ("n1", True)
    assert view.pods_scope == "node/n1,namespace/default"


def test_a_claim_and_a_handle_lead_to_the_same_volume(access: KubeAccess) -> None:
    by_claim, _ = look(access, target("c12", TargetKind.CLAIM))
    assert by_claim is not None
    (volume,) = (pv for pv in observed_of(by_claim.persistent_volumes) if pv.name == VOLUME)
    assert isinstance(volume.source, CsiSource)
    by_handle, _ = look(access, target(volume.source.volume_handle, TargetKind.VOLUME_HANDLE))
    assert by_handle is not None
    assert volume in by_handle.persistent_volumes  # type: ignore[operator]
    assert [claim.ref.name for claim in by_handle.claims] == ["c12"]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [TargetKind.PERSISTENT_VOLUME, TargetKind.CLAIM])
def test_other_pvs_of_the_image_are_observed_for_every_target(
    api: FakeApi, access: KubeAccess, kind: TargetKind
) -> None:
    """The other PVs of an image show whether other clients may hold, share or wait for it."""
    view, _ = look(access, target("c12" if kind is TargetKind.CLAIM else VOLUME, kind))
    assert view is not None
    assert view.volumes_complete
    assert len(observed_of(view.persistent_volumes)) == len(api.lists["persistentvolumes"])


def test_refused_list_of_pvs_leaves_the_target_pv_and_a_gap(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken["/api/v1/persistentvolumes"] = refuse(403)
    view, source = look(access)
    assert view is not None
    assert not view.volumes_complete
    assert [volume.name for volume in observed_of(view.persistent_volumes)] == [VOLUME]
    assert [gap.fact for gap in source.gaps] == ["all PersistentVolumes"]
    assert "can-i list persistentvolumes" in source.gaps[0].hint


def unclaimed(api: FakeApi) -> None:
    """Remove the claimRef, as `kubectl patch pv` with `claimRef: null` does."""
    for volume in api.lists["persistentvolumes"]:
        if volume["metadata"]["name"] == VOLUME:
            del volume["spec"]["claimRef"]


def test_pods_of_a_pv_without_claim_are_listed_cluster_wide(
    api: FakeApi, access: KubeAccess
) -> None:
    """No namespace leads to these pods: without this list they would count as not observed."""
    unclaimed(api)
    api.lists["persistentvolumeclaims"] = []
    view, _ = look(access)
    assert view is not None
    assert view.pods_scope == "node/n1,cluster"
    assert len(observed_of(view.pods)) == len(api.lists["pods"])


def test_claim_that_names_a_pv_without_claimref_leads_to_pods(
    api: FakeApi, access: KubeAccess
) -> None:
    unclaimed(api)
    view, _ = look(access)
    assert view is not None
    assert [claim.ref.name for claim in observed_of(view.claims)] == ["c12"]
    assert view.pods_scope == "node/n1,namespace/default"


def test_refused_claims_hide_the_pods_of_a_pv_without_claim(
    api: FakeApi, access: KubeAccess
) -> None:
    unclaimed(api)
    api.broken["/api/v1/persistentvolumeclaims"] = refuse(403)
    view, _ = look(access)
    assert view is not None
    assert view.pods_scope == "node/n1"


def test_a_typo_gets_near_matches(access: KubeAccess) -> None:
    with pytest.raises(NotFoundError) as error:
        look(access, target(VOLUME[:-3]))
    assert error.value.near == (VOLUME,)
    assert f"pv/{VOLUME}" in error.value.hint


def test_refused_resource_is_a_gap_and_the_rest_is_observed(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken["/api/v1/namespaces/default/events"] = refuse(403)
    view, source = look(access)
    assert view is not None
    assert isinstance(view.events, NotObserved)
    assert [gap.fact for gap in source.gaps] == ["events"]
    assert "can-i list events" in source.gaps[0].hint


def test_refused_list_of_nodes_is_replaced_by_a_request_by_name(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken["/api/v1/nodes"] = refuse(403)
    view, _ = look(access)
    assert view is not None
    assert {node.name for node in view.nodes} == {"n1"}  # type: ignore[union-attr]
    assert not view.nodes_complete


def test_refused_attachments_are_requested_by_computed_name(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken[_VA] = refuse(403)
    view, _ = look(access)
    assert view is not None
    (attachment,) = view.attachments  # type: ignore[misc]
    assert attachment.name.startswith("csi-d7dc12f3")


def test_a_page_that_fails_fails_its_list(api: FakeApi, access: KubeAccess) -> None:
    api.page = 1
    view, _ = look(access, target("x", TargetKind.NONE))
    assert view is not None
    assert len(view.persistent_volumes) == len(api.lists["persistentvolumes"])  # type: ignore[arg-type]

    once = iter((False, True))

    def second_fails(handler: BaseHTTPRequestHandler) -> None:
        if next(once):
            answer(handler, 500, {"message": "etcd is gone"})
        else:
            answer(handler, *api.answer(_PV, {}))

    api.broken[_PV] = second_fails
    view, _ = look(access, target("x", TargetKind.NONE))
    assert view is not None
    assert isinstance(view.persistent_volumes, NotObserved)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (refuse(401, "Unauthorized"), "expired"),
        (refuse(500, "etcdserver: no leader"), "no leader"),
        (lambda handler: answer(handler, 200, b"<html>"), "not JSON"),
        (lambda handler: answer(handler, 200, b"[]"), "not a JSON object"),
    ],
)
def test_failed_request_for_the_target_fails_the_source(
    api: FakeApi,
    access: KubeAccess,
    broken: Callable[[BaseHTTPRequestHandler], None],
    words: str,
) -> None:
    api.broken[f"{_PV}/{VOLUME}"] = broken
    view, source = look(access)
    assert view is None
    assert source.state is SourceState.FAILED
    assert words in f"{source.reason} {source.hint}"
    assert TOKEN not in f"{source}"


def test_server_that_does_not_answer_costs_one_time_limit(api: FakeApi, access: KubeAccess) -> None:
    release = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        release.wait(20)

    api.broken[f"{_PV}/{VOLUME}"] = wait
    try:
        view, source = look(replace(access, timeout_s=1))
    finally:
        release.set()
    assert view is None
    assert "no answer within 1 s" in source.reason


def test_closed_port_is_reported(api: FakeApi, access: KubeAccess) -> None:
    api.stop()
    _, source = look(access)
    assert source.state is SourceState.FAILED
    assert "Connection refused" in source.reason


# --------------------------------------------------------------------------------------------------
# What only the lifecycle of a volume needs
# --------------------------------------------------------------------------------------------------


def lease_of(namespace: str, name: str, holder: str) -> Json:
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": "2026-11-21T02:59:58.123456Z",
        },
    }


def provisioner_pod(name: str, namespace: str = "csi") -> Json:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {"app": "csi-rbdplugin-provisioner"},
        },
        "spec": {
            "nodeName": "n2",
            "containers": [
                {
                    "name": "csi-provisioner",
                    "image": "registry.k8s.io/sig-storage/csi-provisioner:v5.3.0",
                    "args": ["--v=1"],
                },
                {
                    "name": "csi-rbdplugin",
                    "image": "quay.io/cephcsi/cephcsi:v3.13.0",
                    "args": ["--type=rbd", "--drivername=rbd.csi.ceph.com"],
                },
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@pytest.fixture
def pending(api: FakeApi) -> FakeApi:
    """Return an API in which the recorded claim waits for a provisioner that runs."""
    (claim,) = [
        item for item in api.lists["persistentvolumeclaims"] if item["metadata"]["name"] == "c12"
    ]
    del claim["spec"]["volumeName"]
    claim["status"] = {"phase": "Pending"}
    api.lists["storageclasses"] = [
        {
            "metadata": {"name": claim["spec"]["storageClassName"]},
            "provisioner": "rbd.csi.ceph.com",
        }
    ]
    api.lists["leases"] = [
        lease_of("kube-system", "kube-controller-manager", "m1_x"),
        lease_of("csi", "rbd-csi-ceph-com", "prov-1"),
        lease_of("csi", "external-attacher-leader-rbd-csi-ceph-com", "prov-1"),
        lease_of("kube-node-lease", "n1", "n1"),
    ]
    api.lists["pods"] += [provisioner_pod("prov-1")]
    api.lists["version"] = []
    return api


def look_at_life(access: KubeAccess) -> KubeView:
    view, _ = observe_kube(
        Connection(access),
        target("c12", TargetKind.CLAIM),
        node_name="n1",
        also=CollectScope.LIFECYCLE,
    )
    assert view is not None
    return view


def test_pending_claim_requests_leases_and_driver_pods(
    pending: FakeApi, access: KubeAccess
) -> None:
    pending.broken["/version"] = lambda handler: answer(handler, 200, {"gitVersion": "v1.36.3"})
    view = look_at_life(access)
    leases = [f"{lease.namespace}/{lease.name}" for lease in view.leases]  # type: ignore[union-attr]
    assert sorted(leases) == ["csi/rbd-csi-ceph-com", "kube-system/kube-controller-manager"]
    (pod,) = [
        driver_pod
        for driver_pod in view.driver_pods  # type: ignore[union-attr]
        if driver_pod.ref.namespace == "csi"
    ]
    assert pod.serves == ("rbd.csi.ceph.com",)
    assert pod.images[0].endswith("csi-provisioner:v5.3.0")
    assert pod.ready
    assert view.version == "v1.36.3"
    (asked,) = [request for request in pending.requests if "labelSelector" in request]
    assert "component%21%3Dnodeplugin" in asked
    assert "rbd.csi.ceph.com-ctrlplugin" in asked


def test_bound_claim_requests_no_provisioner(api: FakeApi, access: KubeAccess) -> None:
    view = look_at_life(access)
    assert isinstance(view.leases, NotObserved)
    assert isinstance(view.driver_pods, NotObserved)
    assert not any("leases" in request or "labelSelector" in request for request in api.requests)


def test_pv_that_is_newer_than_the_list_is_requested_by_name(
    api: FakeApi, access: KubeAccess
) -> None:
    """A claim that is read as bound has a PV, even if the list does not contain it yet."""
    api.broken[_PV] = lambda handler: answer(handler, 200, {"items": [], "metadata": {}})
    view = look_at_life(access)
    (volume,) = view.persistent_volumes  # type: ignore[misc]
    assert volume.name == VOLUME


def test_refused_leases_are_not_observed(pending: FakeApi, access: KubeAccess) -> None:
    pending.broken["/apis/coordination.k8s.io/v1/leases"] = refuse(403)
    view = look_at_life(access)
    assert isinstance(view.leases, NotObserved)
    assert "can-i list leases" in view.leases.hint
    # The driver pods are found by their label as well.
    assert view.driver_pods


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("/apis/storage.k8s.io/v1/storageclasses", "storage classes"),
        ("/apis/storage.k8s.io/v1/csidrivers", "CSIDrivers"),
        ("/apis/coordination.k8s.io/v1/leases", "leases of controllers"),
    ],
)
def test_refused_list_for_the_lifecycle_is_a_gap(
    pending: FakeApi, access: KubeAccess, path: str, fact: str
) -> None:
    pending.broken[path] = refuse(403)
    _, source = observe_kube(
        Connection(access),
        target("c12", TargetKind.CLAIM),
        node_name="n1",
        also=CollectScope.LIFECYCLE,
    )
    assert [gap.fact for gap in source.gaps] == [fact]


def test_lists_for_the_lifecycle_are_no_gap_without_it(
    pending: FakeApi, access: KubeAccess
) -> None:
    pending.broken["/apis/storage.k8s.io/v1/storageclasses"] = refuse(403)
    _, source = observe_kube(Connection(access), target("c12", TargetKind.CLAIM), node_name="n1")
    assert source.gaps == ()


def test_snapshot_needs_few_requests(api: FakeApi, access: KubeAccess) -> None:
    look(access)
    assert len(api.requests) <= 10


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        (None, None, "no such file"),
        ("a: [", None, "not YAML"),
        ("- a", None, "expected a mapping"),
        (json.dumps(kubeconfig("http://127.0.0.1:1")), "prod", "it has: lab"),
        (json.dumps({"contexts": [{"name": "x", "context": {"cluster": "none"}}]}), "x", "'none'"),
        (json.dumps(kubeconfig("http://127.0.0.1:1", tokenFile="gone")), None, "gone"),
    ],
)
def test_a_wrong_kubeconfig_is_named(
    tmp_path: Path, text: str | None, context: str | None, words: str
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    _, source = look(KubeAccess(kubeconfig=path, context=context, timeout_s=1))
    assert source.state is SourceState.FAILED
    assert words in source.reason
    assert str(tmp_path) in source.reason


def test_missing_kubeconfig_reports_the_path_tried(tmp_path: Path) -> None:
    environment = (("HOME", str(tmp_path)),)
    _, source = look(
        KubeAccess(kubeconfig=None, context=None, timeout_s=1, environment=environment)
    )
    assert f"{tmp_path}/.kube/config" in source.reason
    assert source.hint == "pass --kubeconfig FILE, or set KUBECONFIG"


def test_missing_kubeconfig_states_why_the_service_account_was_not_used(tmp_path: Path) -> None:
    environment = (("HOME", str(tmp_path)), ("KUBERNETES_SERVICE_HOST", "10.0.0.1"))
    access = KubeAccess(kubeconfig=None, context="lab", timeout_s=1, environment=environment)
    _, source = look(access)
    assert "in-cluster (not used with --context)" in source.reason


def test_several_kubeconfig_files_are_merged(api: FakeApi, tmp_path: Path) -> None:
    whole = kubeconfig(api.url)
    first, second = tmp_path / "one", tmp_path / "two"
    first.write_text(json.dumps({"current-context": "lab", "contexts": whole["contexts"]}))
    second.write_text(json.dumps({"clusters": whole["clusters"], "users": whole["users"]}))
    environment = (("KUBECONFIG", f"{first}:{second}"),)
    access = KubeAccess(kubeconfig=None, context=None, timeout_s=2, environment=environment)
    assert look(access)[1].state is SourceState.OBSERVED


def test_missing_in_cluster_token_is_reported() -> None:
    environment = (("KUBERNETES_SERVICE_HOST", "10.0.0.1"),)
    _, source = look(
        KubeAccess(kubeconfig=None, context=None, timeout_s=1, environment=environment)
    )
    assert "serviceaccount/token" in source.reason


@pytest.mark.parametrize(
    ("refused", "state", "words"),
    [
        ("list pods", "failed", "no answer is reliable without it"),
        ("list events", "warning", "fewer details"),
        ("list namespaces", "warning", "nothing can be unmapped"),
        ("patch rbdnodes.rbdagent.dev", "warning", "an agent needs it"),
    ],
)
def test_check_reports_the_effect_and_fix_of_a_missing_right(
    api: FakeApi, access: KubeAccess, refused: str, state: str, words: str
) -> None:
    def review(body: Json) -> Json:
        asked = body["spec"]["resourceAttributes"]
        name = ".".join(filter(None, (asked["resource"], asked["group"])))
        name += f"/{asked['subresource']}" if asked["subresource"] else ""
        return {"status": {"allowed": f"{asked['verb']} {name}" != refused}}

    api.review = review
    results = {result.sentence: result for result in check_kube(access, "n1", OWN_BOOT)}
    found = results.pop(f"this user may {refused}")
    assert (str(found.state), words in found.detail) == (state, True)
    verb, resource = refused.split()
    assert f"--verb={verb} --resource={resource}, and bind" in found.hint
    assert {str(result.state) for result in results.values()} == {"ok"}


@pytest.mark.parametrize(
    ("boot_id", "state", "words"),
    [
        (OWN_BOOT, "ok", "their boot ids are equal"),
        ("b999", "failed", f"its boot id is b999, and that of the Node is {OWN_BOOT}"),
        (NotObserved(reason="no /proc"), "warning", "no /proc"),
        (None, "skipped", "--no-node"),
    ],
    ids=["the same machine", "another machine", "unread", "no node"],
)
def test_check_compares_the_machine_with_its_node(
    api: FakeApi, access: KubeAccess, boot_id: str | NotObserved | None, state: str, words: str
) -> None:
    """A wrong --node-name, or a cloned VM: check names both boot ids."""
    assert api.lists["nodes"]
    results = {result.sentence: result for result in check_kube(access, "n1", boot_id)}
    found = results["this machine is Node n1"]
    assert (str(found.state), words in found.detail) == (state, True)
    assert ("--node-name" in found.hint) is (state == "failed")


@pytest.mark.parametrize(("status", "state"), [(404, "skipped"), (403, "ok")])
def test_check_reports_a_missing_rbdnode_resource(
    api: FakeApi, access: KubeAccess, status: int, state: str
) -> None:
    """An access review allows even a missing resource; a refused discovery proves nothing."""
    api.broken["/apis/rbdagent.dev/v1alpha1"] = refuse(status)
    results = {result.sentence: result for result in check_kube(access, "n1", OWN_BOOT)}
    of_rights = {
        str(result.state)
        for sentence, result in results.items()
        if "may" in sentence and "rbdnodes" in sentence
    }
    assert of_rights == {state}
    missing = results.get("the API server has rbdnodes.rbdagent.dev")
    assert (missing is not None) is (status == 404)
    if missing is not None:
        assert str(missing.state) == "warning"
        assert "kubectl apply" in missing.hint
        # The plugin shows this hint too, and has no verb `agent`.
        assert "rbdagent agent" not in missing.hint


# --------------------------------------------------------------------------------------------------
# What an agent writes
# --------------------------------------------------------------------------------------------------

_RBD_NODE = f"{RBD_NODES}/n1"


_OF_KEY = {"image.rbdagent.dev/key": "rbd0"}


def body_of(status: Json, labels: Json | None = None) -> Json:
    """Return labels and status of an RBDNode."""
    return {"metadata": {"labels": labels or {}}, "status": status}


@pytest.fixture
def stored(api: FakeApi) -> Json:
    """Return the RBDNode that the API server has."""
    found: Json = {"metadata": {"name": "n1", "labels": {"team": "storage"}}}
    api.lists["rbdnodes"] = [found]
    return found


@pytest.mark.usefixtures("stored")
def test_unchanged_status_is_not_written_again(api: FakeApi, access: KubeAccess) -> None:
    publisher = Publisher(access, "n1")
    assert publisher.publish(body_of({"observedAt": "1", "mapped": 0}), node_uid="u")
    assert not publisher.publish(body_of({"observedAt": "2", "mapped": 0}), node_uid="u")
    assert publisher.publish(body_of({"observedAt": "3", "mapped": 1}), node_uid="u")
    assert [(method, path) for method, path, _ in api.writes] == [("PATCH", _RBD_NODE)] * 2
    assert api.writes[-1][2]["status"] == {"observedAt": "3", "mapped": 1}
    assert api.requests == [_RBD_NODE]


def test_labels_of_images_that_are_gone_are_removed(
    api: FakeApi, access: KubeAccess, stored: Json
) -> None:
    """Those of an earlier run of the agent, too; those of other writers stay."""
    stored["metadata"]["labels"] |= {"image.rbdagent.dev/old": "rbd0"}
    client = {"client.rbdagent.dev/1": "rbd0"}
    first, second = ({f"image.rbdagent.dev/{key}": "rbd0"} for key in "ab")
    publisher = Publisher(access, "n1")
    publisher.publish(body_of({"mapped": 1}, client | first), node_uid="u")
    publisher.publish(body_of({"mapped": 1}, client | second), node_uid="u")
    assert [sent["metadata"]["labels"] for _, _, sent in api.writes] == [
        client | first | {"image.rbdagent.dev/old": None},
        client | second | dict.fromkeys(first),
    ]


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "changed",
    [
        body_of({"observedAt": "1", "mapped": 1}),
        body_of({"observedAt": "1", "mapped": 2}, _OF_KEY),
        body_of({"observedAt": "1", "mapped": 1}, _OF_KEY | {"image.rbdagent.dev/more": "rbd0"}),
    ],
    ids=["label removed", "status", "label added"],
)
def test_change_by_another_client_is_corrected(access: KubeAccess, changed: Json) -> None:
    """Without the label of an image, its missing RBDMapping would not be recognised."""
    publisher = Publisher(access, "n1")
    written = body_of({"observedAt": "1", "mapped": 1, "acts": None}, _OF_KEY)
    publisher.publish(written, node_uid="u")
    echo = body_of({"observedAt": "1", "mapped": 1}, _OF_KEY | {"team": "storage"})
    assert not publisher.is_foreign("MODIFIED", echo)
    assert publisher.is_foreign("MODIFIED", changed)
    assert publisher.publish(written, node_uid="u")
    assert publisher.is_foreign("DELETED", echo)
    assert publisher.publish(written, node_uid="u")


def missing_once(api: FakeApi, key: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def refuse_once(handler: BaseHTTPRequestHandler) -> None:
        del api.broken[key]
        answer(handler, 404, {"message": "not found"})

    return refuse_once


def test_second_write_of_a_second_keeps_when_the_api_server_stored_its_time(
    api: FakeApi, access: KubeAccess
) -> None:
    """Else readers take the creation of the object for that time, and the clock to be ahead."""
    publisher = Publisher(access, "n1")
    for at, mapped in (("1", 1), ("1", 0), ("2", 0), ("2", 1)):
        publisher.publish(body_of({"observedAt": at, "mapped": mapped}, _OF_KEY), node_uid="u")
        if mapped == 0 and at == "2":
            publisher.forget()
    sent = [body for method, path, body in api.writes if (method, path) == ("PATCH", _RBD_NODE)]
    cleared = ["managedFields" in body["metadata"] for body in sent]
    times = [body["status"]["observedAt"] for body in sent]
    assert cleared == [index == 0 or times[index - 1] != at for index, at in enumerate(times)]
    assert set(cleared) == {True, False}


def test_missing_rbdnode_is_created_with_its_node_as_owner(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken[_RBD_NODE] = refuse(404)
    body = body_of({"mapped": 1, "acts": None, "observedAt": NOW}, _OF_KEY)
    assert Publisher(access, "n1").publish(body, node_uid="node-uid")
    (method, path, sent), (*further, left) = api.writes
    assert (method, path) == ("POST", RBD_NODES)
    assert further == ["PATCH", _RBD_NODE]
    # The labels are not recorded, and the time is the one of the API server.
    (entry,) = left["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:status": {"f:observedAt": {}}}
    assert entry["time"] == NOW
    (owner,) = sent["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", "node-uid")
    assert (sent["metadata"]["labels"], sent["status"]) == (
        _OF_KEY,
        {"mapped": 1, "observedAt": NOW},
    )


@pytest.mark.usefixtures("stored")
def test_rbdnode_that_was_deleted_is_created_again(api: FakeApi, access: KubeAccess) -> None:
    publisher = Publisher(access, "n1")
    publisher.publish(body_of({"mapped": 0, "observedAt": "1"}), node_uid="u")
    api.broken[f"PATCH {_RBD_NODE}"] = missing_once(api, f"PATCH {_RBD_NODE}")
    publisher.publish(body_of({"mapped": 1, "observedAt": "2"}), node_uid="u")
    assert [method for method, _, _ in api.writes] == ["PATCH", "PATCH", "POST", "PATCH"]


def test_rbdnode_is_not_created_without_the_uid_of_the_node(
    api: FakeApi, access: KubeAccess
) -> None:
    api.broken[_RBD_NODE] = refuse(404)
    with pytest.raises(SourceError):
        Publisher(access, "n1").publish(body_of({"mapped": 0}), node_uid=None)


@pytest.mark.usefixtures("stored")
def test_failed_write_is_retried(api: FakeApi, access: KubeAccess) -> None:
    publisher = Publisher(access, "n1")
    api.broken[f"PATCH {_RBD_NODE}"] = refuse(403)
    with pytest.raises(SourceError):
        publisher.publish(body_of({"mapped": 0}), node_uid="u")
    del api.broken[f"PATCH {_RBD_NODE}"]
    assert publisher.publish(body_of({"mapped": 0}), node_uid="u")


_LEASES = "/apis/coordination.k8s.io/v1/namespaces/rbdagent/leases"
_LEASE = f"{_LEASES}/n1"


def heartbeat(access: KubeAccess, interval_s: float = 3600) -> Heartbeat:
    return Heartbeat(access, "n1", namespace="rbdagent", interval_s=interval_s)


def test_lease_is_renewed_once_in_an_interval(api: FakeApi, access: KubeAccess) -> None:
    beat, eager = heartbeat(access), heartbeat(access, 0)
    assert [beat.is_due, eager.is_due] == [True, True]
    for one in (beat, eager):
        assert one.renew(NOW, node_uid="u", confirms="uid/7")
    assert [beat.is_due, eager.is_due] == [False, True]
    assert [(method, path) for method, path, _ in api.writes] == [("PATCH", _LEASE)] * 2
    assert api.writes[0][2]["metadata"]["annotations"] == {"rbdagent.dev/confirms": "uid/7"}
    assert api.writes[0][2]["spec"]["renewTime"] == NOW.replace("Z", ".000000Z")


def test_missing_lease_is_created_with_its_node_as_owner(api: FakeApi, access: KubeAccess) -> None:
    api.broken[f"PATCH {_LEASE}"] = refuse(404)
    assert heartbeat(access).renew(NOW, node_uid="node-uid", confirms="uid/7")
    method, path, created = api.writes[-1]
    assert (method, path, created["metadata"]["name"]) == ("POST", _LEASES, "n1")
    (owner,) = created["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", "node-uid")
    assert created["spec"] == api.writes[0][2]["spec"]


def test_refused_renewal_is_retried_in_the_next_cycle(api: FakeApi, access: KubeAccess) -> None:
    beat = heartbeat(access)
    for status, uid in ((403, "u"), (404, None)):
        api.broken[f"PATCH {_LEASE}"] = refuse(status)
        with pytest.raises(SourceError):
            beat.renew(NOW, node_uid=uid, confirms="uid/7")
    del api.broken[f"PATCH {_LEASE}"]
    assert beat.renew(NOW, node_uid="u", confirms="uid/7")


def test_lease_is_not_renewed_when_the_report_was_not_written(
    api: FakeApi, access: KubeAccess
) -> None:
    """A renewal would confirm the previous report, in which a new mapping is missing."""
    api.broken[f"PATCH {RBD_NODES}/worker-1"] = refuse(500)
    writers_of_agent(access).tell(cycle_of(seen_by_agent()))
    assert not [path for _, path, _ in api.writes if "leases" in path]
    del api.broken[f"PATCH {RBD_NODES}/worker-1"]
    writers_of_agent(access).tell(cycle_of(seen_by_agent()))
    assert [path for _, path, _ in api.writes if "leases" in path] == [f"{_LEASES}/worker-1"]


def writers_of_agent(access: KubeAccess, log: Log | None = None) -> _Kubernetes:
    return _Kubernetes(
        access, "worker-1", lease_namespace="rbdagent", heartbeat_s=60, log=(log or Log()).logger
    )


def test_agent_of_another_machine_publishes_nothing(api: FakeApi, access: KubeAccess) -> None:
    """The objects of that name belong to the agent of the Node, or to the boot before this one."""
    look = seen_by_agent()
    assert look.node is not None
    other = without_other_machine(replace(look, node=replace(look.node, boot_id="b999")))
    log = Log()
    writers = writers_of_agent(access, log)
    writers.tell(cycle_of(other))
    assert api.writes == []
    assert not writers.is_published
    (line,) = log.of("not published")
    assert "is not Node worker-1" in line["error"]


@pytest.mark.parametrize("namespace", ["../../../../api/v1/namespaces/x", "a?b#c", "..", "a%2Fb"])
def test_name_in_a_report_leads_to_no_other_path(
    api: FakeApi, access: KubeAccess, namespace: str
) -> None:
    """An agent that was taken over chooses the leaseNamespace of its RBDNode."""
    node = {
        "metadata": {"name": "worker-2", "creationTimestamp": NOW},
        "status": {"observedAt": NOW, "leaseNamespace": namespace},
    }
    api.lists["rbdnodes"] = [node]
    list(published_nodes(access))
    found = [path for path in api.requests if "coordination" in path]
    assert len(found) == 1
    path = urlparse(found[0]).path
    prefix, suffix = "/apis/coordination.k8s.io/v1/namespaces/", "/leases"
    assert path.startswith(prefix)
    assert path.endswith(suffix)
    segment = path.removeprefix(prefix).removesuffix(suffix)
    assert "/" not in segment
    assert segment not in {".", ".."}
    assert unquote(segment) == namespace


def test_existing_event_counts_up(api: FakeApi, access: KubeAccess) -> None:
    now = cycle_of(seen_by_agent())
    Events(access, "worker-1").tell(now)
    posts = [path for method, path, _ in api.writes if method == "POST"]
    assert posts == ["/api/v1/namespaces/default/events"] * 2
    first = api.writes[0][2]
    api.writes.clear()
    api.lists["events"] = [first | {"count": 4}]
    api.broken["POST /api/v1/namespaces/default/events"] = refuse(409)
    with pytest.raises(SourceError):
        # The second event, on the node, is not in the list: this is reported, and stops nothing.
        Events(access, "worker-1").tell(now)
    patched = [body for method, _, body in api.writes if method == "PATCH"]
    assert [body["count"] for body in patched] == [5]


def waiting_cycle(at: float) -> CycleResult:
    """Return a cycle of an agent on whose node a pod waits for a volume of another node."""
    snapshot = held()
    blocked = blocked_volumes(snapshot, correlate_waiting(snapshot))
    return replace(cycle_of(snapshot), diagnoses=(), blocked=blocked, at=at)


def test_event_on_a_waiting_pod_is_written_once(api: FakeApi, access: KubeAccess) -> None:
    events = Events(access, "worker-1")
    events.tell(waiting_cycle(0.0))
    events.tell(waiting_cycle(60.0))
    ((method, path, body),) = api.writes
    assert (method, path) == ("POST", "/api/v1/namespaces/default/events")
    assert (body["reason"], body["involvedObject"]["kind"]) == ("RBDVolumeHeld", "Pod")


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (503, 2)])
def test_event_on_a_waiting_pod_is_tried_again_unless_it_is_refused(
    api: FakeApi, access: KubeAccess, status: int, tries: int
) -> None:
    api.broken["POST /api/v1/namespaces/default/events"] = refuse(status)
    events = Events(access, "worker-1")
    for at in (0.0, 60.0):
        with contextlib.suppress(SourceError):
            events.tell(waiting_cycle(at))
    assert len(api.writes) == tries


@pytest.mark.parametrize(
    "forged",
    [
        {"message": "nothing happened"},
        {"reportingInstance": "worker-2"},
        {"source": {"component": "tenant"}},
        {"involvedObject": {"kind": "Pod", "name": "web"}},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_event_that_another_client_made_with_the_name_is_left_alone(
    api: FakeApi, access: KubeAccess, forged: Json
) -> None:
    """The name of an Event can be computed, and a tenant may create one in its namespace."""
    now = cycle_of(seen_by_agent())
    Events(access, "worker-1").tell(now)
    written = [body for _, _, body in api.writes]
    api.writes.clear()
    api.stores = True
    api.lists["events"] = [copy.deepcopy(body) | forged for body in written]
    Events(access, "worker-1").tell(now)
    assert [method for method, _, _ in api.writes] == ["POST", "POST"] * 2
    again = [body for _, _, body in api.writes[1::2]]
    for body, before in zip(again, written, strict=True):
        name = before["metadata"]["name"]
        assert body["metadata"]["name"].startswith(f"{name}.")
        assert {**body, "metadata": before["metadata"]} == before


def test_refused_event_does_not_stop_the_others(api: FakeApi, access: KubeAccess) -> None:
    """An example is a namespace that is being deleted: events on the Node are in another."""
    api.broken["POST /api/v1/namespaces/default/events"] = refuse(403)
    with pytest.raises(SourceError):
        Events(access, "worker-1").tell(cycle_of(seen_by_agent()))
    kinds = [body["involvedObject"]["kind"] for _, _, body in api.writes]
    assert kinds == ["PersistentVolumeClaim", "Node"]


def test_failing_writer_does_not_stop_the_others(
    api: FakeApi, access: KubeAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any exception counts: a surrogate in one name once stopped all writes of the agent."""

    def fail(*_: object) -> Json:
        raise UnicodeEncodeError("utf-8", "caf\udce9", 3, 4, "surrogates not allowed")

    monkeypatch.setattr("rbdagent.report.rbdnode.rbdnode_status", fail)
    log = Log()
    writers_of_agent(access, log).tell(cycle_of(seen_by_agent()))
    assert [path.rpartition("/")[2] for _, path, _ in api.writes] == ["events"] * 2
    assert [fields["what"] for fields in log.of("not published")] == ["RBDNode"]


def test_failure_to_publish_is_logged_when_it_begins_changes_and_ends(
    access: KubeAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[str | None] = ["a", "a", "b", None, None, "b"]

    def fail(*_: object) -> None:
        if (text := errors.pop(0)) is not None:
            raise SourceError(text)

    log = Log()
    writers = writers_of_agent(access, log)
    monkeypatch.setattr(writers, "_publish", fail)
    for _ in range(6):
        writers.tell(cycle_of(seen_by_agent()))
    assert [(line["event"], line.get("error")) for line in log.entries
            if line["log_level"] != "debug"] == [
        ("not published", "a"), ("not published", "b"), ("published again", None),
        ("not published", "b"),
    ]  # fmt: skip


def test_agent_whose_node_was_deleted_says_so(api: FakeApi, access: KubeAccess) -> None:
    log, seen = Log(), seen_by_agent()
    writers_of_agent(access, log).tell(cycle_of(seen))
    assert log.of("no Node") == []
    assert seen.kubernetes is not None
    alone = replace(seen, kubernetes=replace(seen.kubernetes, nodes=()))
    writers_of_agent(access, log).tell(cycle_of(alone))
    assert [fields["node"] for fields in log.of("no Node")] == ["worker-1"]


@pytest.mark.parametrize(
    ("broken", "code"),
    [({}, 0), ({f"PATCH {_RBD_NODE}": 403}, 1), ({RBD_MAPPINGS: 503}, 1)],
    ids=["published", "RBDNode refused", "RBDMappings not listed"],
)
def test_one_cycle_fails_if_it_was_not_published(
    api: FakeApi, access: KubeAccess, tmp_path: Path, broken: dict[str, int], code: int
) -> None:
    api.broken.update({path: refuse(status) for path, status in broken.items()})
    api.runs_on_this_machine("n1")
    state, kubeconfig = f"--state-dir={tmp_path / 'state'}", f"--kubeconfig={access.kubeconfig}"
    done = process("agent", "--once", "--no-ceph", "--node-name=n1", state, kubeconfig)
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert (done.code, "not published" in events) == (code, code == 1), done.stderr


def test_agent_process_on_another_machine_publishes_nothing(
    api: FakeApi, access: KubeAccess, tmp_path: Path
) -> None:
    """Assert it with the /proc of this machine: Node n1 was recorded on another one."""
    state, kubeconfig = f"--state-dir={tmp_path / 'state'}", f"--kubeconfig={access.kubeconfig}"
    done = process("agent", "--once", "--no-ceph", "--node-name=n1", state, kubeconfig)
    assert (done.code, api.writes) == (1, []), done.stderr
    assert f"that of the Node is {OWN_BOOT}" in done.stderr


def test_no_published_node_differs_from_a_missing_resource(
    api: FakeApi, access: KubeAccess
) -> None:
    assert list(published_nodes(access)) == []
    api.broken[RBD_NODES] = refuse(404)
    with pytest.raises(SourceError, match="publishes here"):
        list(published_nodes(access))


# --------------------------------------------------------------------------------------------------
# The age of a report
# --------------------------------------------------------------------------------------------------

AN_HOUR_AGO = "2026-11-21T02:00:00Z"


def agent_lease(
    name: str, renewed_at: str | None, stored_at: str | None = NOW, *, confirms: str = "uid/7"
) -> Json:
    """Return a Lease; the API server shows when it stored the time that the agent wrote."""
    fields: Json = {"f:spec": {"f:renewTime": {}}}
    stored = {"manager": "rbdagent", "time": stored_at, "fieldsV1": fields}
    labelled = {"manager": "kubectl", "time": NOW, "fieldsV1": {"f:metadata": {"f:labels": {}}}}
    managed = [labelled, *([stored] if stored_at is not None else [])]
    return {
        "metadata": {
            "name": name,
            "namespace": "rbdagent",
            "managedFields": managed,
            "annotations": {"rbdagent.dev/confirms": confirms},
        },
        "spec": {"holderIdentity": name, "renewTime": renewed_at},
    }


def with_lease(api: FakeApi, *leases: Json) -> None:
    """Publish an RBDNode that was written an hour ago, and Leases."""
    status = {
        "observedAt": AN_HOUR_AGO,
        "leaseNamespace": "rbdagent",
        "mapped": 0,
        "imageLabels": 0,
    }
    metadata = {"name": "worker-2", "uid": "uid", "resourceVersion": "7"}
    api.lists["rbdnodes"] = [{"metadata": metadata, "status": status}]
    api.lists["leases"] = [*leases]


@pytest.mark.parametrize(
    ("lease", "age", "reason"),
    [
        (agent_lease("worker-2", NOW.replace("Z", ".000000Z")), NOW, None),
        (agent_lease("worker-2", "2026-11-21T01:00:00.000000Z"), AN_HOUR_AGO, None),
        (agent_lease("worker-2", None), AN_HOUR_AGO, "the time of the Lease cannot be read"),
        (agent_lease("worker-2", "soon"), AN_HOUR_AGO, "the time of the Lease cannot be read"),
        (
            agent_lease("worker-3", NOW),
            AN_HOUR_AGO,
            "the agent has no Lease in namespace rbdagent",
        ),
        (
            agent_lease("worker-2", NOW, confirms="uid/8"),
            AN_HOUR_AGO,
            "the Lease of the agent confirms another version of its RBDNode",
        ),
        (
            agent_lease("worker-2", NOW, None),
            AN_HOUR_AGO,
            "the API server does not show when it stored the Lease",
        ),
    ],
    ids=[
        "renewed",
        "written since",
        "never renewed",
        "no time",
        "of another agent",
        "of another",
        "not stored",
    ],
)
def test_report_is_as_old_as_the_renewal_of_its_lease(
    api: FakeApi, access: KubeAccess, lease: Json, age: str, reason: str | None
) -> None:
    with_lease(api, lease)
    (listed,) = published_nodes(access)
    named = reports_of_nodes(access, ["worker-2"])["worker-2"]
    assert listed == named
    assert isinstance(named, PublishedNode)
    assert named.observed_at == age
    assert (named.lease and named.lease.reason) == reason


@pytest.mark.parametrize(
    ("renewed_at", "stored_at"),
    [(NOW, "2026-11-21T02:00:01Z"), ("2026-11-21T04:00:00Z", NOW)],
    ids=["the agent ended before that time came", "it runs"],
)
def test_clock_of_an_agent_that_is_ahead_does_not_make_its_report_recent(
    api: FakeApi, access: KubeAccess, renewed_at: str, stored_at: str
) -> None:
    with_lease(api, agent_lease("worker-2", renewed_at, stored_at))
    report = reports_of_nodes(access, ["worker-2"])["worker-2"]
    assert isinstance(report, PublishedNode)
    assert report.observed_at == stored_at
    assert re.fullmatch(r"its clock is 3\d{3}s ahead of the API server's", report.incomplete)


def test_write_counts_as_late_as_the_api_server_stored_it(api: FakeApi, access: KubeAccess) -> None:
    with_lease(api)
    (rbdnode,) = api.lists["rbdnodes"]
    rbdnode["status"]["observedAt"] = NOW
    fields: Json = {"f:status": {"f:observedAt": {}}}
    for stored, seen, incomplete in (
        (AN_HOUR_AGO, AN_HOUR_AGO, "its clock is 3600s ahead of the API server's"),
        (NOW, NOW, ""),
    ):
        rbdnode["metadata"]["managedFields"] = [{"time": stored, "fieldsV1": fields}]
        (report,) = published_nodes(access)
        assert (report.observed_at, report.incomplete) == (seen, incomplete)
    rbdnode["metadata"]["managedFields"] = [{"time": NOW, "fieldsV1": {"f:metadata": {}}}]
    (unknown,) = published_nodes(access)
    assert unknown.incomplete == "the API server does not show when it stored the report"


def test_age_of_a_report_is_by_the_clock_of_the_api_server(
    api: FakeApi, access: KubeAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine is an hour ahead of the API server, which sends its Date."""
    with_lease(api, agent_lease("worker-2", NOW))
    sent = formatdate(time.time() - 3600, usegmt=True)
    monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", lambda _: sent)
    (report,) = published_nodes(access)
    by = age(NOW, report.observed_at)
    assert by is not None
    assert abs(by.total_seconds() - 3600) <= 60
    assert report.incomplete == ""


def test_refused_leases_leave_reports_as_old_as_their_write(
    api: FakeApi, access: KubeAccess
) -> None:
    with_lease(api, agent_lease("worker-2", NOW))
    api.broken |= {_LEASES: refuse(403), f"{_LEASES}/worker-2": refuse(403)}
    (listed,) = published_nodes(access)
    named = reports_of_nodes(access, ["worker-2"])["worker-2"]
    for report in (listed, named):
        assert isinstance(report, PublishedNode)
        assert report.observed_at == AN_HOUR_AGO
        assert report.lease is not None
        assert "forbidden" in report.lease.reason


def test_leases_of_a_namespace_are_listed_once(api: FakeApi, access: KubeAccess) -> None:
    with_lease(api)
    (node,) = api.lists["rbdnodes"]
    api.lists["rbdnodes"] += [{**node, "metadata": {"name": f"n{number}"}} for number in range(2)]
    assert len(list(published_nodes(access))) == 3
    assert [path for path in api.requests if "leases" in path] == [f"{_LEASES}?limit=500"]


# --------------------------------------------------------------------------------------------------
# What an agent reads from the agents of other nodes
# --------------------------------------------------------------------------------------------------


OVERLAY = replace(REMOTE_ADDRESS, ip="192.0.2.7")
"""No InternalIP of a Node: only a report shows on which node the client is."""
MAPPED: Json = {
    "device": "/dev/rbd7",
    "verdict": "InUse",
    "image": {"fsid": FSID, "pool": SPEC.pool, "name": SPEC.name, "id": IMAGE_ID},
    "clientID": 4239,
    "clientAddress": str(REMOTE_ADDRESS),
    "readOnly": False,
}


def asked_of(api: FakeApi) -> list[str]:
    """Return what was requested of agents: the objects' names, and the labels of lists."""
    return [
        parse_qs(urlparse(path).query).get("labelSelector", [path.rpartition("/")[2]])[0]
        for path in api.requests
        if "rbdagent.dev" in path
    ]


CONFLICT = seen_by_agent(
    of_image={"watchers": (watcher(), remote_watcher())},
    target=Target(argument="", kind=TargetKind.NONE),
)


def told_of(neighbours: Neighbours, snapshot: Snapshot = CONFLICT) -> tuple[str, Confidence]:
    """Return the verdict, and the confidence in the holder on the other node."""
    uses = neighbours.with_results(volumes_of_node(snapshot))
    (volume,) = uses.mapped
    diagnosis = diagnose(volume, uses.snapshot)
    return diagnosis.verdict, diagnosis.holders[-1].holder.confidence


def test_rbdnode_of_a_conflicting_node_is_requested_once_by_name(
    api: FakeApi, access: KubeAccess
) -> None:
    publish_only(api, *((f"worker-{number}", (MAPPED,)) for number in range(2, 5)))
    neighbours = Neighbours(access, "worker-1")
    assert told_of(neighbours) == (Verdict.CONFLICT, Confidence.CERTAIN)
    assert told_of(neighbours) == (Verdict.CONFLICT, Confidence.CERTAIN)
    assert asked_of(api) == ["rbdagent.dev/node in (worker-2)", "worker-2"]
    neighbours.forget()
    told_of(neighbours)
    assert asked_of(api) == ["rbdagent.dev/node in (worker-2)", "worker-2"] * 2


WAITED_FOR = seen_by_agent(
    of_image={"watchers": (remote_watcher(),)},
    on_node={"mappings": ()},
    in_kube={"pods": (waiting_pod(node="worker-1"),)},
    target=Target(argument="", kind=TargetKind.NONE),
)


def test_rbdnode_of_a_watching_node_is_requested_once_by_name(
    api: FakeApi, access: KubeAccess
) -> None:
    publish_only(api, *((f"worker-{number}", (MAPPED,)) for number in range(2, 5)))
    neighbours = Neighbours(access, "worker-1")
    for _ in range(2):
        uses = neighbours.with_results(volumes_of_node(WAITED_FOR))
        (blocked,) = blocked_volumes(uses.snapshot, uses.waited_for)
        assert (blocked.cause, blocked.holder_node) == (Verdict.IN_USE, "worker-2")
    assert asked_of(api) == ["rbdagent.dev/node in (worker-2)", "worker-2"]


def test_no_rbdnode_is_requested_without_another_watcher(api: FakeApi, access: KubeAccess) -> None:
    alone = seen_by_agent(target=Target(argument="", kind=TargetKind.NONE))
    Neighbours(access, "worker-1").with_results(volumes_of_node(alone))
    assert api.requests == []


def test_node_without_an_agent_is_probable_and_not_retried(
    api: FakeApi, access: KubeAccess
) -> None:
    publish_only(api)
    neighbours = Neighbours(access, "worker-1")
    assert told_of(neighbours) == (Verdict.CONFLICT, Confidence.PROBABLE)
    assert told_of(neighbours) == (Verdict.CONFLICT, Confidence.PROBABLE)
    assert len(api.requests) == 2


def test_refused_rbdnode_is_a_gap_and_is_retried(api: FakeApi, access: KubeAccess) -> None:
    publish_only(api, ("worker-2", (MAPPED,)))
    api.broken[f"{RBD_NODES}/worker-2"] = refuse(403)
    neighbours = Neighbours(access, "worker-1")
    looked_at = neighbours.with_results(volumes_of_node(CONFLICT)).snapshot
    assert [gap.fact for gap in looked_at.sources.kubernetes.gaps] == ["RBDNodes"]
    assert told_of(neighbours) == (Verdict.CONFLICT, Confidence.PROBABLE)
    del api.broken[f"{RBD_NODES}/worker-2"]
    assert told_of(neighbours) == (Verdict.CONFLICT, Confidence.CERTAIN)


def test_missing_credentials_for_rbdnodes_are_a_gap(tmp_path: Path) -> None:
    access = KubeAccess(kubeconfig=tmp_path / "none", context=None, timeout_s=1)
    looked_at = Neighbours(access, "worker-1").with_results(volumes_of_node(CONFLICT)).snapshot
    assert [gap.fact for gap in looked_at.sources.kubernetes.gaps] == ["RBDNodes"]


ELSEWHERE = seen_by_agent(
    of_image={"watchers": (remote_watcher(),)},
    on_node={"mappings": ()},
    target=Target(argument=f"pv/{PV}", kind=TargetKind.PERSISTENT_VOLUME, name=PV),
)


def reports_on(access: KubeAccess, seen: Snapshot = ELSEWHERE) -> Snapshot:
    """Return a snapshot with what who-holds requests of agents."""
    settings = replace(NOWHERE, kube=access)
    begun = look_module._begin_reports(seen, settings, CollectScope.NOTHING, Connection(access), {})
    return look_module.with_published(seen, begun.of_all(seen, time.monotonic() + 10))


def published_in(seen: Snapshot) -> tuple[PublishedNode, ...]:
    assert seen.kubernetes is not None
    return observed_of(seen.kubernetes.published)


UNWATCHED = replace(ELSEWHERE, ceph=seen_by_agent(of_image={"watchers": ()}).ceph)
OF_VOLUME = {
    image_label(key) for key in (*image_keys(SPEC.name, None), UNKNOWN_IMAGE, volume_key(PV))
}
OF_ID = image_label(id_key(IMAGE_ID))


def test_holder_is_found_by_the_label_of_the_image(api: FakeApi, access: KubeAccess) -> None:
    """A client that lost its watch is visible only to the agent of its node."""
    publish_only(api, ("worker-2", (MAPPED,)), ("worker-8", ()))
    for seen, watched in ((ELSEWHERE, True), (UNWATCHED, False)):
        api.requests.clear()
        (holder,) = correlate(reports_on(access, seen)).holders
        assert (holder.node, holder.confidence) == ("worker-2", Confidence.CERTAIN)
        assert (holder.watcher is not None) == watched
        assert {"worker-8", "rbdnodes"}.isdisjoint(asked_of(api))
    # The first three requests are sent together.
    first, second, third, *later = asked_of(api)
    assert {first, second, third} == OF_VOLUME
    assert later == ["worker-2.rbd7", OF_ID, "worker-2"]


def test_renamed_image_is_found_by_its_id(api: FakeApi, access: KubeAccess) -> None:
    renamed = {**MAPPED, "image": {**MAPPED["image"], "name": "former-name"}}
    publish_only(api, ("worker-7", (renamed,)))
    (holder,) = correlate(reports_on(access, UNWATCHED)).holders
    assert holder.node == "worker-7"


@pytest.mark.parametrize("name", [SPEC.name, "mapped-by-hand"])
def test_device_of_the_pv_is_found_although_it_is_of_another_image(
    api: FakeApi, access: KubeAccess, name: str
) -> None:
    """Another image has the name in the PV; or the device was mapped under another name."""
    image = {**MAPPED["image"], "id": "9999", "name": name}
    former = {**MAPPED, "image": image, "persistentVolume": PV}
    publish_only(api, ("worker-7", (former,)))
    seen = reports_on(access, UNWATCHED)
    (holder,) = correlate(seen).holders
    assert (holder.node, holder.other_image is not None) == ("worker-7", True)
    assert [image.image_id for image in images_to_identify(seen)] == ["9999"]


def test_node_of_a_watcher_is_found_by_its_client(api: FakeApi, access: KubeAccess) -> None:
    """Any mapping of the client shows its node."""
    image = {**MAPPED["image"], "name": "other", "id": "f00"}
    other = {**MAPPED, "image": image, "clientAddress": str(OVERLAY)}
    watched = seen_by_agent(of_image={"watchers": (remote_watcher(address=OVERLAY),)}).ceph
    many = tuple({**other, "device": f"/dev/rbd{number}"} for number in range(10, 20))
    publish_only(api, ("worker-7", many))
    seen = reports_on(access, replace(ELSEWHERE, ceph=watched))
    assert client_label(4239) in asked_of(api)
    (holder,) = correlate(seen).holders
    assert (holder.node, holder.confidence) == ("worker-7", Confidence.CERTAIN)
    (report,) = (report for report in published_in(seen) if report.name == "worker-7")
    assert len(observed_of(report.mappings)) == 1


def test_device_of_an_unknown_image_may_be_the_image(api: FakeApi, access: KubeAccess) -> None:
    publish_only(api, ("worker-7", ({"device": "/dev/rbd9", "verdict": "Undetermined"},)))
    (report,) = published_in(reports_on(access, UNWATCHED))
    (mapping,) = observed_of(report.mappings)
    assert mapping.image is None


def test_without_a_holder_the_rbdnodes_of_all_nodes_are_listed(
    api: FakeApi, access: KubeAccess
) -> None:
    publish_only(api, ("worker-7", ()), ("worker-8", ()))
    reports = published_in(reports_on(access, UNWATCHED))
    assert [(report.name, report.incomplete) for report in reports] == [
        ("worker-7", ""),
        ("worker-8", ""),
    ]


@pytest.mark.parametrize("known", [IMAGE_ID, None], ids=["by id", "by name"])
def test_missing_rbdmapping_does_not_mean_that_nothing_is_mapped(
    api: FakeApi, access: KubeAccess, known: str | None
) -> None:
    """The RBDNode names the image, by its name or its id, and no RBDMapping was found."""
    name = "former-name" if known else SPEC.name
    image = {"pool": SPEC.pool, "name": name} | ({"id": known} if known else {})
    publish_only(api, ("worker-7", ({**MAPPED, "image": image},)))
    api.lists["rbdmappings"] = []
    (report,) = published_in(reports_on(access, UNWATCHED))
    assert report.incomplete == "its RBDMapping of this image was not found"


@pytest.mark.parametrize(
    ("clients", "known"), [([str(REMOTE_ADDRESS)], True), (["10.0.0.9:0/9"], False), (None, False)]
)
def test_report_about_an_image_has_every_client_if_the_rbdnode_does(
    api: FakeApi,
    access: KubeAccess,
    clients: list[str] | None,
    known: bool,  # noqa: FBT001
) -> None:
    """A former client on the blocklist is recognised if no client of the node is missing."""
    other = {**MAPPED, "device": "/dev/rbd8", "image": {"pool": "k8s", "name": "other"}}
    publish_only(api, ("worker-7", (MAPPED, other)))
    api.lists["rbdnodes"][0]["status"]["clients"] = clients
    (report,) = published_in(reports_on(access, UNWATCHED))
    assert report.every_client is known


def test_rbdnode_without_keys_shows_nothing(api: FakeApi, access: KubeAccess) -> None:
    """An agent of another version wrote it, or another client removed them."""
    publish_only(api, ("worker-7", (MAPPED,)))
    api.lists["rbdmappings"] = []
    del api.lists["rbdnodes"][0]["metadata"]["labels"]
    (report,) = published_in(reports_on(access, UNWATCHED))
    assert report.incomplete == "the labels of its RBDNode do not name all its images"
    (listed,) = published_nodes(access)
    assert listed.incomplete


@pytest.mark.parametrize("broken", [f"{RBD_MAPPINGS}/worker-7.rbd7", RBD_NODES])
def test_reports_that_are_refused_are_a_gap(api: FakeApi, access: KubeAccess, broken: str) -> None:
    publish_only(api, ("worker-7", (MAPPED,)))
    api.broken[broken] = refuse(403)
    seen = reports_on(access, UNWATCHED)
    assert seen.kubernetes is not None
    assert isinstance(seen.kubernetes.published, NotObserved)
    assert [gap.fact for gap in seen.sources.kubernetes.gaps] == ["RBDNodes"]


def test_second_holder_whose_rbdmapping_is_missing_is_not_forgotten(
    api: FakeApi, access: KubeAccess
) -> None:
    publish_only(api, ("worker-7", (MAPPED,)), ("worker-8", (MAPPED,)))
    api.lists["rbdmappings"] = [
        item for item in api.lists["rbdmappings"] if item["status"]["node"] == "worker-7"
    ]
    missing = {report.name: report.incomplete for report in published_in(reports_on(access))}
    assert missing == {
        "worker-7": "",
        "worker-8": "its RBDMapping of this image was not found",
    }


def test_refused_rbdnode_of_a_possible_second_holder_is_a_gap(
    api: FakeApi, access: KubeAccess
) -> None:
    publish_only(api, ("worker-7", (MAPPED,)), ("worker-8", (MAPPED,)))
    del api.lists["rbdmappings"][1]
    api.broken[f"{RBD_NODES}/worker-8"] = refuse(403)
    seen = reports_on(access)
    assert [report.name for report in published_in(seen)] == ["worker-7"]
    assert [gap.fact for gap in seen.sources.kubernetes.gaps] == ["RBDNodes"]


@pytest.mark.parametrize("nodes", [1, 60])
def test_rbdmappings_that_are_not_named_are_selected(
    api: FakeApi, access: KubeAccess, nodes: int
) -> None:
    """A label names few devices, and a volume of many nodes is not requested by name."""
    devices = 20 if nodes == 1 else 1
    mapped = tuple({**MAPPED, "device": f"/dev/rbd{1000 + number}"} for number in range(devices))
    publish_only(api, *((f"worker-{number}", mapped) for number in range(7, 7 + nodes)))
    reports = published_in(reports_on(access, UNWATCHED))
    assert sum(len(observed_of(report.mappings)) for report in reports) == nodes * devices
    assert f"rbdagent.dev/image in ({SPEC.name},unknown)" in asked_of(api)


def test_refused_rbdnode_of_a_holder_leaves_the_holder(api: FakeApi, access: KubeAccess) -> None:
    publish_only(api, ("worker-7", (MAPPED,)))
    api.broken[f"{RBD_NODES}/worker-7"] = refuse(403)
    seen = reports_on(access, UNWATCHED)
    (holder,) = correlate(seen).holders
    assert holder.node == "worker-7"
    (report,) = published_in(seen)
    assert "forbidden" in report.incomplete


def test_missing_resource_of_mappings_leaves_what_rbdnodes_count(
    api: FakeApi, access: KubeAccess
) -> None:
    """The resource of an older release has no RBDMapping: its RBDNodes are not complete."""
    publish_only(api, ("worker-7", (MAPPED,)))
    api.broken[f"{RBD_MAPPINGS}/worker-7.rbd7"] = refuse(404)
    (report,) = published_in(reports_on(access, UNWATCHED))
    assert report.incomplete


def test_who_holds_answers_where_no_agent_publishes(api: FakeApi, access: KubeAccess) -> None:
    for path in (RBD_NODES, RBD_MAPPINGS):
        api.broken[path] = refuse(404, "the server could not find the requested resource")
    (holder,) = correlate(reports_on(access)).holders
    assert holder.confidence is Confidence.PROBABLE
