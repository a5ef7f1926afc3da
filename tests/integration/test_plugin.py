"""The kubectl plugin with a real API server: it finds the right agent or prints why not.

No kubelet runs the pods: if the plugin has found a pod, an error of the API server ends the exec.
A tenant with all rights in its own namespace has copies of everything that the agents have there.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.agent_pods import (
    LABELS,
    ROLES,
    bind,
    make_agent,
    make_daemonset,
    make_pod,
)
from tests.integration.conftest import control_plane_alone
from tests.lab.install import CHECKOUT
from tests.lab.laptop import Done, Laptop
from tests.lab.network import ADDRESS
from tests.lab.workloads import collection
from tests.support.chart import render
from tests.support.published import rbd_mappings, rbd_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.lab.api import Api, Json
    from tests.lab.controlplane import ControlPlane

UUID: Final = "81bd820f-8403-4433-9d6e-9ce7ebece68f"
HANDLE: Final = f"0001-000a-lab-ceph-1-0000000000000001-{UUID}"
RBDNODES: Final = "/apis/rbdagent.dev/v1alpha1/rbdnodes"
RBDMAPPINGS: Final = "/apis/rbdagent.dev/v1alpha1/rbdmappings"
TENANT: Final = "aaa"
"""The tenant's namespace: before the agents' in every list."""


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield only an API server: no controller removes the pods that no kubelet runs."""
    with control_plane_alone("rbdagent-kp", tmp_path_factory.mktemp("plugin")) as (plane, parts):
        parts.stop("kube-controller-manager")
        _fill(plane.api)
        _imitate(plane)
        yield plane


@pytest.fixture(scope="module")
def laptop(api_server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    home = tmp_path_factory.mktemp("home")
    kubeconfig = json.loads(api_server.kubeconfig("admin").read_text())
    kubeconfig["contexts"][0]["context"]["namespace"] = "shop"
    path = home / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    return Laptop(api_server.netns, path, home)


def rbdagent(laptop: Laptop, *args: str) -> Done:
    """Run the plugin as kubectl does, which replaces its own process with the plugin."""
    return laptop.run("kubectl-rbdagent", *args)


# --------------------------------------------------------------------------------------------------
# The cluster: agents on three nodes, one of them broken, and what they published
# --------------------------------------------------------------------------------------------------


def _fill(api: Api) -> None:
    for name in ("rbdagent", "shop", TENANT):
        if api.find(f"/api/v1/namespaces/{name}") is None:
            api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        # The controller manager may have created it before it was stopped.
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        if api.find(f"{accounts}/default") is None:
            api.create(accounts, {"metadata": {"name": "default"}})
    for number in (1, 2, 3, 4):
        _make_node(api, f"worker-{number}")
    bind(api, "rbdagent")
    owner = make_daemonset(api, "rbdagent")
    make_agent(api, "worker-1", owner, ready=True)
    make_agent(api, "worker-2", owner, ready=True)
    make_agent(api, "worker-3", owner, waiting="CrashLoopBackOff")
    # In the agents' namespace, with their label, but not of their DaemonSet.
    make_pod(api, "rbdagent", "aaa-debug", node="worker-1", labels=LABELS)
    _publish(api, "worker-1", {"pv-one": f"k8s/csi-vol-{UUID}", "pv-two-nodes": "k8s/shared"})
    _publish(api, "worker-2", {"pv-two": "k8s/two", "pv-two-nodes": "k8s/shared"})
    _publish(api, "worker-3", {"pv-three": "k8s/tenant/three"})
    _publish(api, "worker-5", {"pv-gone": "k8s/gone"})
    api.create(RBDNODES, {**_kind("RBDNode"), "metadata": {"name": "worker-6"}})
    _make_volume(api, "pv-one", claim="data")
    _make_volume(api, "pv-two", claim="other")
    _make_volume(api, "pv-free", claim="free")
    api.create(
        "/apis/storage.k8s.io/v1/volumeattachments",
        {
            "metadata": {"name": "csi-1"},
            "spec": {
                "attacher": "rbd.csi.ceph.com",
                "nodeName": "worker-2",
                "source": {"persistentVolumeName": "pv-attached"},
            },
        },
    )
    make_pod(api, "shop", "app", node="worker-4", claims=("free", "other"))


def _kind(name: str) -> Json:
    return {"apiVersion": "rbdagent.dev/v1alpha1", "kind": name}


def _make_node(api: Api, name: str) -> None:
    api.create("/api/v1/nodes", {"metadata": {"name": name}})
    # No process listens at this address: an exec is refused at once.
    address = {"type": "InternalIP", "address": ADDRESS}
    endpoint = {"kubeletEndpoint": {"Port": 10250}}
    status = {"addresses": [address], "daemonEndpoints": endpoint}
    api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def _imitate(plane: ControlPlane) -> None:
    """Create in a namespace whatever its tenant may: copies of the agents on their nodes."""
    api = plane.api
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    scope = f"namespaces/{TENANT}"
    api.create(f"{ROLES}/{scope}/roles", {"metadata": {"name": "owner"}, "rules": [everything]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "owner"}
    user = {"kind": "ServiceAccount", "namespace": TENANT, "name": "tenant"}
    api.create(f"/api/v1/{scope}/serviceaccounts", {"metadata": {"name": "tenant"}})
    binding = {"metadata": {"name": "owner"}, "roleRef": role, "subjects": [user]}
    api.create(f"{ROLES}/{scope}/rolebindings", binding)
    token = api.create(f"/api/v1/{scope}/serviceaccounts/tenant/token", {"spec": {}})
    plane.write_kubeconfig("tenant", str(token["status"]["token"]))
    daemonsets = "/apis/apps/v1/namespaces/rbdagent/daemonsets"
    stolen = str(api.get(f"{daemonsets}/rbdagent")["metadata"]["uid"])
    with contextlib.closing(plane.client("tenant")) as tenant:
        own = make_daemonset(tenant, TENANT)
        for node in ("worker-1", "worker-2", "worker-3", "worker-4"):
            for owner, name in ((own, "own"), (stolen, "stolen")):
                make_agent(tenant, node, owner, namespace=TENANT, prefix=name, ready=True)


def _publish(api: Api, node: str, images: Mapping[str, str]) -> None:
    statuses: list[Json] = []
    for number, (volume, path) in enumerate(images.items()):
        pool, *namespace, name = path.split("/")
        image = {"pool": pool, "radosNamespace": "".join(namespace), "name": name}
        device = f"/dev/rbd{number}"
        known = {"device": device, "image": image, "persistentVolume": volume, "verdict": "InUse"}
        statuses.append(known)
    # A mapping with few known fields.
    statuses.append({"device": "/dev/rbd9", "verdict": "Undetermined"})
    at = "2026-01-01T00:00:00Z"
    for mapping in rbd_mappings(node, *statuses, at=at):
        api.create(RBDMAPPINGS, {**_kind("RBDMapping"), **mapping})
    api.create(RBDNODES, {**_kind("RBDNode"), **rbd_node(node, *statuses, at=at)})


def _make_volume(api: Api, name: str, *, claim: str) -> None:
    api.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "shop", "name": claim},
                "csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": HANDLE},
            },
        },
    )
    api.create(
        collection("PersistentVolumeClaim", namespace="shop"),
        {
            "metadata": {"name": claim},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )


# --------------------------------------------------------------------------------------------------
# Choice of the node
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "node"),
    [
        ("who-holds pv-two", "worker-2"),
        ("who-holds pv/pv-one", "worker-1"),
        ("who-holds pvc/other", "worker-2"),
        ("who-holds pvc/shop/other -n shop", "worker-2"),
        ("who-holds pod/app", "worker-2"),
        ("who-holds k8s/two", "worker-2"),
        (f"who-holds {HANDLE}", "worker-1"),
        ("who-holds pv-attached", "worker-2"),
        ("unmap pv-two --yes", "worker-2"),
        ("list --node worker-2", "worker-2"),
        ("who-holds /dev/rbd0 --node=worker-2", "worker-2"),
    ],
)
def test_a_verb_runs_on_the_node_that_has_the_target(
    laptop: Laptop, command: str, node: str
) -> None:
    done = rbdagent(laptop, *command.split())
    assert f"kubectl could not run rbdagent on {node}: see its error above" in done.stderr
    assert (done.code, done.stdout) == (1, "")


@pytest.mark.parametrize("target", ["pv-free", "pvc/missing"])
def test_a_target_without_a_holder_is_sent_to_any_agent(laptop: Laptop, target: str) -> None:
    done = rbdagent(laptop, "who-holds", target)
    assert "kubectl could not run rbdagent on worker-1" in done.stderr


@pytest.mark.parametrize(
    ("target", "holder"), [("k8s/tenant/three", "worker-3"), ("pv-gone", "worker-5")]
)
def test_a_holder_without_a_ready_agent_is_reported(
    laptop: Laptop, target: str, holder: str
) -> None:
    done = rbdagent(laptop, "who-holds", target)
    assert f"{holder} has {target}, but its agent is not Ready: the agent on" in done.stderr
    assert "kubectl could not run rbdagent on worker-1" in done.stderr


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("list", 2, "agents run on: worker-1, worker-2, worker-3"),
        ("unmap pv-free", 2, "no RBDMapping shows which node has pv-free mapped"),
        ("unmap pv-two-nodes", 2, "mapped on more than one node: worker-1, worker-2"),
        ("unmap pv-three", 1, "the agent on worker-3 does not run: pod rbdagent/rbdagent-worker-3"),
        ("list --node worker-3", 1, "is CrashLoopBackOff"),
        ("list --node worker-4", 1, "no agent runs on worker-4\n"),
        ("list --node worker-7", 1, "no agent runs on worker-7, and no node has that name"),
        ("list --agent-namespace shop", 1, "there is no DaemonSet labelled app.kubernetes.io/na"),
        (
            f"list --server https://{ADDRESS}:1",
            1,
            "cannot list the ClusterRoleBindings, which name the namespace of the agents: see",
        ),
    ],
)
def test_the_reason_is_printed_if_no_agent_can_be_asked(
    laptop: Laptop, command: str, code: int, words: str
) -> None:
    done = rbdagent(laptop, *command.split())
    assert words in done.stderr
    assert (done.code, done.stdout) == (code, "")


# --------------------------------------------------------------------------------------------------
# Rights
# --------------------------------------------------------------------------------------------------


def test_a_failed_exec_is_reported_with_its_reason(laptop: Laptop) -> None:
    done = laptop.run("kubectl", "rbdagent", "version")
    assert "connection refused" in done.stderr
    assert done.stderr.endswith(
        "kubectl rbdagent: kubectl could not run rbdagent on worker-1: see its error above\n"
        "  tried: kubectl exec -n rbdagent rbdagent-worker-1 -c rbdagent -- rbdagent version\n"
        "  is the node Ready? kubectl get node worker-1\n"
        "  for who-holds and list -A, use another node's agent: --node NODE\n"
    )


def test_without_rights_the_agents_namespace_is_asked_for(laptop: Laptop) -> None:
    done = rbdagent(laptop, "version", "--as", "an-unknown-user")
    assert done.code == 1
    assert "which name the namespace of the agents: permission denied\n" in done.stderr
    assert "--agent-namespace NAMESPACE" in done.stderr


def test_the_role_in_the_message_is_sufficient(laptop: Laptop, api_server: ControlPlane) -> None:
    """A user without rights reaches the pod after an administrator runs the printed command."""
    rules = render().of_kind("Role")["rbdagent-exec"]["rules"]
    api_server.api.create(
        f"{ROLES}/namespaces/rbdagent/roles",
        {"metadata": {"name": "rbdagent-exec"}, "rules": rules},
    )
    call = ("version", "--agent-namespace", "rbdagent", "--as", "on-call")
    refused = rbdagent(laptop, *call)
    words = "cannot list the agents' DaemonSet and pods in namespace rbdagent: permission denied\n"
    assert f"kubectl rbdagent: {words}" in refused.stderr
    (grant,) = [line for line in refused.stderr.splitlines() if "create rolebinding" in line]

    assert laptop.run("kubectl", *grant.split()[1:]).code == 0
    assert "kubectl could not run rbdagent on worker-1" in rbdagent(laptop, *call).stderr


def _may(resource: str, *verbs: str, group: str = "") -> Json:
    return {"apiGroups": [group], "resources": [resource], "verbs": [*verbs]}


def test_a_user_without_rights_to_rbdmappings_uses_any_agent(
    laptop: Laptop, api_server: ControlPlane
) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pods-only"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
    api_server.api.create(
        f"{ROLES}/clusterroles",
        {
            "metadata": {"name": "pods-only"},
            "rules": [_may("pods", "get", "list"), _may("daemonsets", "list", group="apps")],
        },
    )
    api_server.api.create(
        f"{ROLES}/clusterrolebindings",
        {"metadata": {"name": "pods-only"}, "roleRef": role, "subjects": [user]},
    )
    done = rbdagent(laptop, "who-holds", "pv-two", "--as=reader", "--agent-namespace=rbdagent")
    assert "you may not run commands in the agents' pods\n" in done.stderr
    assert "or run it directly on worker-1: rbdagent who-holds pv-two" in done.stderr


# --------------------------------------------------------------------------------------------------
# A tenant's copies of the agents
# --------------------------------------------------------------------------------------------------

_EXEC: Final = re.compile(r"/namespaces/([^/\s]+)/pods/([^/\s]+)/exec\?")
"""A request in the log of kubectl -v 6."""


@pytest.mark.parametrize(
    "command",
    [
        "who-holds pv-one",
        "who-holds pv-free",
        "diagnose pv-one",
        "diagnose -A",
        "list -A",
        "list --node worker-1",
        "check --node worker-1",
        "snapshot pv-one",
        "snapshot -A",
        "snapshot --node worker-1",
        "unmap pv-one",
        "unmap pv-one --yes",
        "unmap pv-one --yes --node worker-1",
        "unmap pv-one --from snapshot.json",
        "who-holds pv-one --from snapshot.json",
        "list --from snapshot.json",
        "explain RBD101 -o json",
        "schema HolderReport",
        "version",
    ],
)
def test_the_look_alikes_of_a_tenant_get_no_exec(
    laptop: Laptop, command: str, tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text("{}")
    words = command.replace("snapshot.json", str(snapshot)).split()
    done = rbdagent(laptop, *words, "-v", "6")
    reached = set(_EXEC.findall(done.stderr))
    record_property("exec", f"kubectl rbdagent {command}: {reached}")
    assert reached == {("rbdagent", "rbdagent-worker-1")}


def test_the_nodes_of_a_tenants_pods_are_not_completed(laptop: Laptop) -> None:
    done = laptop.run("kubectl", "__complete", "rbdagent", "list", "--node", "")
    assert done.stdout.splitlines() == ["worker-1", "worker-2", "worker-3", ":4"]
    assert "no agent runs on worker-4" in rbdagent(laptop, "list", "--node=worker-4").stderr


def test_two_releases_are_an_error_until_one_is_named(
    laptop: Laptop, api_server: ControlPlane
) -> None:
    api = api_server.api
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    bind(api, "other")
    make_agent(api, "worker-1", make_daemonset(api, "other"), namespace="other", ready=True)
    try:
        refused = rbdagent(laptop, "version")
        assert (refused.code, refused.stdout) == (2, "")
        assert "other/rbdagent, rbdagent/rbdagent\n" in refused.stderr
        assert "--agent-namespace other/rbdagent" in refused.stderr
        chosen = rbdagent(laptop, "version", "--agent-namespace", "other/rbdagent")
        assert "kubectl exec -n other rbdagent-worker-1" in chosen.stderr
    finally:
        api.delete(f"{ROLES}/clusterrolebindings/other")


# --------------------------------------------------------------------------------------------------
# kubectl's own flags
# --------------------------------------------------------------------------------------------------


def test_every_flag_of_kubectl_is_known(laptop: Laptop) -> None:
    """Otherwise the plugin would pass a flag to the verb and take its value for the TARGET."""
    output = laptop.run("kubectl", "options").stdout
    flags = dict(re.findall(r"^ +(?:-., )?(--[a-z-]+)=(.*):$", output, re.MULTILINE))
    switches = {flag for flag, default in flags.items() if default == "false"}
    plugin = (CHECKOUT / "plugin" / "kubectl-rbdagent").read_text().replace("\\\n", "")
    lists = dict(re.findall(r'^(\w+)="(.*)"$', plugin, re.MULTILINE))
    known = {name: set(words.split()) for name, words in lists.items()}
    assert known["KUBECTL_SWITCHES"] == switches
    # -n belongs to the verb: it is the namespace of the claim.
    assert known["KUBECTL_VALUES"] == flags.keys() - switches - {"--namespace"}


# --------------------------------------------------------------------------------------------------
# Completion
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("who",), ["who-holds"]),
        (("who-holds", "pv-t"), ["pv-two\tshop/other"]),
        (("who-holds", "pv/pv-o"), ["pv/pv-one\tshop/data"]),
        (("who-holds", "pvc/"), ["pvc/data", "pvc/free", "pvc/other"]),
        (("who-holds", "pod/rbdagent/r"), [f"pod/rbdagent/rbdagent-worker-{n}" for n in (1, 2, 3)]),
        (("list", "--node", ""), ["worker-1", "worker-2", "worker-3"]),
        (("who-holds", "-n", "s"), ["shop"]),
        (("list", "--context", ""), ["lab"]),
    ],
)
def test_kubectl_completes_from_the_cluster(
    laptop: Laptop, typed: tuple[str, ...], offered: list[str]
) -> None:
    done = laptop.run("kubectl", "__complete", "rbdagent", *typed)
    assert done.stdout.splitlines() == [*offered, ":4"]
