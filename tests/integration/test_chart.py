"""The chart on a real API server: install it, check the granted rights and the refused calls."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tomllib
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
import yaml

from rbdagent import __version__
from rbdagent.agent.events import event_object
from rbdagent.agent.sent_event import SentEvent
from rbdagent.config import load_file
from tests.lab.api import ApiError
from tests.lab.controlplane import LEASE_RULES, RBDAGENT_RULES
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.api import Api, Json
    from tests.lab.controlplane import ControlPlane

CHART: Final = CHECKOUT / "helm" / "rbdagent"
VARIANTS: Final = {
    path.name.removesuffix("-values.yaml"): path for path in sorted(CHART.glob("ci/*-values.yaml"))
}
WITH_LOGS: Final = "rook"
"""The variant that mounts the node's logs into its agents."""
WITH_EXTRAS: Final = "talos"
"""The variant that uses nearly every value for platform teams."""
NAMESPACE: Final = "rbdagent"
AGENT: Final = "agent"
"""The user of an agent: its token is bound to a pod on this node."""
NODE, OTHER_NODE = "chart-1", "chart-2"
POD: Final = f"rbdagent-{NODE}"

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: Final = f"{CRDS}/rbdnodes.rbdagent.dev"
RBDNODES: Final = "/apis/rbdagent.dev/v1alpha1/rbdnodes"
STORAGE: Final = "/apis/storage.k8s.io/v1"
MONITORS: Final = "/api/v1/namespaces/ceph-csi/configmaps/ceph-csi-config"
"""The list of monitors of the CSI driver, which the variant ceph-csi reads."""
APPS: Final = "/apis/apps/v1"
Call = tuple[str, "Json | None"]
"""Method and path, and the body."""
OURS: Final = f"/api/v1/namespaces/{NAMESPACE}"
VOLUMES: Final = "/api/v1/persistentvolumes"
CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
EVENTS: Final = "/api/v1/namespaces/default/events"

CSI_CLUSTERS: Final = [
    {"clusterID": "other", "monitors": ["10.9.9.9:6789"]},
    {
        "clusterID": "b9127830-b0cc-4e34-aa47-9d1a2e9949a8",
        "monitors": ["10.0.0.1:6789", "10.0.0.2:6789"],
    },
]
ROOK_CLUSTERS: Final = [
    {"clusterID": "rook-ceph", "namespace": "rook-ceph", "monitors": ["10.96.0.21:6789"]}
]
OF_OPERATOR: Final[Json] = {
    "cephFS": {
        "kernelMountOptions": "",
        "fuseMountOptions": "",
        "controllerPublishSecretRef": {"name": "cephfs", "namespace": "rook-ceph"},
    },
    "rbd": {"controllerPublishSecretRef": {}, "nodePublishSecretRef": {}},
    "nfs": {},
    "nvmeof": {"controllerPublishSecretRef": {}},
    "readAffinity": {},
}
"""What ceph-csi-operator writes about a cluster beside its id and its monitors: omitempty keeps
empty structures (csiClusterInfoRecord, internal/controller/clientprofile_controller.go, v1.0.4)."""
OPERATORS_CLUSTERS: Final = [
    # A ClientProfile whose CephConnection has no monitors yet has none here.
    {"clusterID": "new", **OF_OPERATOR},
    {"clusterID": "storage", "monitors": ["[fd00::1]:3300"], **OF_OPERATOR},
]
ROOKS_PROFILES: Final = [
    {"clusterID": "rook-ceph", "monitors": ["10.96.0.31:3300"], **OF_OPERATOR},
    {"clusterID": "rook-ceph-external", "monitors": ["192.0.2.7:3300"], **OF_OPERATOR},
]
LISTS: Final = (
    ("ceph-csi", "ceph-csi-config", "config.json", CSI_CLUSTERS),
    ("ceph-csi-operator-system", "ceph-csi-config", "config.json", OPERATORS_CLUSTERS),
    ("rook-ceph", "ceph-csi-config", "config.json", ROOKS_PROFILES),
    ("rook-ceph", "rook-ceph-csi-config", "csi-cluster-config-json", ROOK_CLUSTERS),
)
"""Namespace, name, key and content of each ConfigMap with a list of monitors."""
OTHER_INSTALLATIONS: Final = {
    "ceph-csi-operator": "-m '[fd00::1]:3300' ",
    "rook": "-m 10.96.0.31:3300 ",
    "rook-external": "-m 192.0.2.7:3300 ",
    "rook-1.19": "-m 10.96.0.21:6789 ",
}
"""The monitors in the words of check, by the variant that reads them."""


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield an API server as a user of the chart has it: with a CSI driver, without rbdagent."""
    api = control_plane.api
    control_plane.forget_rbdnodes()
    for name in (NAMESPACE, *dict.fromkeys(namespace for namespace, *_ in LISTS)):
        labels = {"pod-security.kubernetes.io/enforce": "privileged"} if name == NAMESPACE else {}
        metadata = {"name": name, "labels": labels}
        if api.find(f"/api/v1/namespaces/{name}") is None:
            api.create("/api/v1/namespaces", {"metadata": metadata})
        else:
            api.patch(f"/api/v1/namespaces/{name}", {"metadata": metadata})
    for namespace, name, key, clusters in LISTS:
        api.create(
            f"/api/v1/namespaces/{namespace}/configmaps",
            {"metadata": {"name": name}, "data": {key: json.dumps(clusters)}},
        )
    for kind in ("PodMonitor", "PrometheusRule"):
        api.create(CRDS, _prometheus_operators(kind))
    api.create(CRDS, CONSTRAINTS_OF_OPENSHIFT)
    for name in (NODE, OTHER_NODE):
        api.create("/api/v1/nodes", {"metadata": {"name": name}})
    _wait_known(api, "/apis/monitoring.coreos.com/v1/podmonitors")
    _wait_known(api, "/apis/monitoring.coreos.com/v1/prometheusrules")
    _wait_known(api, "/apis/security.openshift.io/v1/securitycontextconstraints")
    yield control_plane
    for name in (NODE, OTHER_NODE):
        api.delete(f"/api/v1/nodes/{name}")
    # The next tests find the resource as it was.
    control_plane.forget_rbdnodes()
    control_plane.define_rbdnodes()


def _prometheus_operators(kind: str) -> Json:
    """Return a CRD of Prometheus Operator that accepts objects with any fields."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


_TEXTS: Final[Json] = {"type": "array", "nullable": True, "items": {"type": "string"}}
_STRATEGY: Final[Json] = {
    "type": "object",
    "nullable": True,
    "properties": {"type": {"type": "string"}, "uid": {"type": "integer", "format": "int64"}},
}
_REQUIRED: Final[Json] = {
    "allowHostDirVolumePlugin": {"type": "boolean"},
    "allowHostIPC": {"type": "boolean"},
    "allowHostNetwork": {"type": "boolean"},
    "allowHostPID": {"type": "boolean"},
    "allowHostPorts": {"type": "boolean"},
    "allowPrivilegedContainer": {"type": "boolean"},
    "readOnlyRootFilesystem": {"type": "boolean"},
    "allowedCapabilities": _TEXTS,
    "defaultAddCapabilities": _TEXTS,
    "requiredDropCapabilities": _TEXTS,
    "volumes": _TEXTS,
    "priority": {"type": "integer", "format": "int32", "nullable": True},
}
_OPTIONAL: Final[Json] = {
    "allowPrivilegeEscalation": {"type": "boolean", "nullable": True},
    "seccompProfiles": _TEXTS,
    "runAsUser": _STRATEGY,
    "seLinuxContext": _STRATEGY,
    "fsGroup": _STRATEGY,
    "supplementalGroups": _STRATEGY,
}
CONSTRAINTS_OF_OPENSHIFT: Final[Json] = {
    "metadata": {"name": "securitycontextconstraints.security.openshift.io"},
    "spec": {
        "group": "security.openshift.io",
        "scope": "Cluster",
        "names": {
            "kind": "SecurityContextConstraints",
            "plural": "securitycontextconstraints",
            "singular": "securitycontextconstraints",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": list(_REQUIRED),
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {"type": "object"},
                            **_REQUIRED,
                            **_OPTIONAL,
                        },
                    }
                },
            }
        ],
    },
}
"""The fields that the chart may use, as OpenShift defines them (security/v1/
zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints-Default.crd.yaml of
openshift/api@9582650)."""


def _wait_gone(api: Api, path: str) -> None:
    wait_until(lambda: api.find(path) is None, timeout_s=30, what=f"{path} to be gone")


def _wait_known(api: Api, path: str) -> None:
    wait_until(lambda: api.find(path) is not None, timeout_s=30, what=f"{path} to be served")


def helm(plane: ControlPlane, verb: str, *args: str, chart: Path | None = CHART) -> str:
    """Run helm on the release."""
    charts = () if chart is None else (str(chart),)
    return plane.laptop().done("helm", verb, "rbdagent", *charts, f"--namespace={NAMESPACE}", *args)


class Rendered(NamedTuple):
    """The manifest and the notes that helm would install."""

    manifest: str
    notes: str

    @property
    def objects(self) -> list[Json]:
        return [document for document in yaml.safe_load_all(self.manifest) if document]

    def one(self, kind: str, name: str = "rbdagent") -> Json:
        (found,) = (
            document
            for document in self.objects
            if document["kind"] == kind and document["metadata"]["name"] == name
        )
        return found

    @property
    def pod(self) -> Json:
        spec: Json = self.one("DaemonSet")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Json:
        (container,) = self.pod["containers"]
        only: Json = container
        return only


def render(plane: ControlPlane, *args: str, chart: Path = CHART) -> Rendered:
    """Return what helm would install, with a dry run on the API server."""
    release = json.loads(
        helm(plane, "install", "--dry-run=server", "--output=json", *args, chart=chart)
    )
    return Rendered(release["manifest"], release["info"]["notes"])


@pytest.fixture(scope="module")
def rendered(plane: ControlPlane) -> dict[str, Rendered]:
    """Return every variant, and the chart without values under the key ''."""
    flags = {name: (f"--values={path}",) for name, path in VARIANTS.items()}
    return {name: render(plane, *args) for name, args in {"": (), **flags}.items()}


# Installed objects --------------------------------------------------------------------------------


def test_chart_and_program_have_the_same_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("variant", ["", *VARIANTS])
def test_api_server_accepts_every_object_of_a_variant(
    plane: ControlPlane, rendered: dict[str, Rendered], variant: str
) -> None:
    """Validation is strict: the API server refuses an unknown field or a wrong value."""
    given = rendered[variant]
    flags = ("--dry-run=server", "--validate=strict", "--output=name", "--filename=-")
    created = plane.kubectl("create", *flags, stdin=given.manifest)
    assert len(created.splitlines()) == len(given.objects)
    assert "pod-security.kubernetes.io/enforce=privileged" in given.notes
    assert "kubectl get rbdnodes" in given.notes
    assert ("ceph.clusters is empty" in given.notes) == (variant == "")


@pytest.mark.parametrize("variant", ["", *VARIANTS])
def test_rbdagent_finds_the_configured_files_in_the_pod(
    rendered: dict[str, Rendered], variant: str, tmp_path: Path
) -> None:
    given = rendered[variant]
    path = tmp_path / "config.toml"
    path.write_text(given.one("ConfigMap")["data"]["config.toml"])

    settings = load_file(path, must_exist=True)

    mounts = {mount["name"]: mount["mountPath"] for mount in given.container["volumeMounts"]}
    (config,) = (
        volume["projected"] for volume in given.pod["volumes"] if volume["name"] == "config"
    )
    files = {
        f"{mounts['config']}/{item['path']}"
        for source in config["sources"]
        for item in next(iter(source.values()))["items"]
    }
    tables = settings.get("ceph", [])
    assert "/etc/rbdagent/config.toml" in files
    keys = {table.get("keyring") or table["keyfile"] for table in tables}
    assert keys | {table["conf"] for table in tables} <= files
    assert settings.get("no-ceph", False) == (not tables)
    seen = {settings[key] for key in ("procfs", "sysfs", "state-dir")}
    seen |= {
        f"{settings['host-root']}{directory}" for directory in ("/dev", *settings["kubelet-root"])
    }
    seen |= {settings["freeze-file"].removesuffix("/freeze")}
    seen |= {f"{settings['host-root']}/var/log"} if variant == WITH_LOGS else set()
    seen |= {"/etc/ssl/cluster"} if variant == WITH_EXTRAS else set()
    assert seen | {"/etc/rbdagent"} == set(mounts.values())


def test_each_cluster_has_a_separate_configuration_and_key(
    rendered: dict[str, Rendered],
) -> None:
    given = rendered["several-clusters"]
    (config,) = (
        volume["projected"] for volume in given.pod["volumes"] if volume["name"] == "config"
    )
    sources = [
        (kind, field["name"], item["key"], item["path"])
        for source in config["sources"]
        for kind, field in source.items()
        for item in field["items"]
    ]
    assert sources == [
        ("configMap", "rbdagent", "config.toml", "config.toml"),
        ("configMap", "rbdagent", "east.conf", "ceph/east/ceph.conf"),
        ("configMap", "rbdagent", "trial.conf", "ceph/trial/ceph.conf"),
        ("secret", "rbdagent-keyring", "east", "ceph/east/keyring"),
        ("configMap", "ceph-west", "ceph.conf", "ceph/west/ceph.conf"),
        ("secret", "rbdagent-keyring", "west", "ceph/west/keyring"),
        ("secret", "rbdagent-trial", "keyring", "ceph/trial/keyring"),
    ]
    assert "mon_host = 10.0.0.1,10.0.0.2,10.0.0.3" in given.one("ConfigMap")["data"]["east.conf"]
    assert "key = AQ" in given.one("Secret", "rbdagent-trial")["stringData"]["keyring"]


def test_unmapping_is_configured_from_the_values(rendered: dict[str, Rendered]) -> None:
    config = rendered["unmap"].one("ConfigMap")["data"]["config.toml"]
    for line in (
        'mode = "unmap"',
        'grace-period = "15m"',
        "max-unmaps-per-hour = 3",
        "unmap-staged = true",
    ):
        assert line in config.splitlines()


# Confinement --------------------------------------------------------------------------------------

HOST: Final = {
    # Path in the container: path on the node, read-only, propagation.
    "/host/proc": ("/proc", True, None),
    "/host/sys": ("/sys", True, "HostToContainer"),
    "/host/dev": ("/dev", True, None),
    "/host/var/lib/kubelet": ("/var/lib/kubelet", True, "HostToContainer"),
    "/host/etc/rbdagent": ("/etc/rbdagent", True, None),
    "/var/lib/rbdagent": ("/var/lib/rbdagent", False, None),
}
MOUNTS: Final = {
    "ceph-csi": HOST,
    WITH_LOGS: HOST | {"/host/var/log": ("/var/log", True, "HostToContainer")},
    "unmap": HOST | {"/host/sys": ("/sys", False, "HostToContainer")},
}
OBSERVER: Final = {
    "runAsUser": 0,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]},
    "seccompProfile": {"type": "RuntimeDefault"},
    "appArmorProfile": {"type": "Unconfined"},
    "seLinuxOptions": {"type": "spc_t"},
}
SECURITY: Final = {
    "ceph-csi": OBSERVER,
    WITH_LOGS: OBSERVER | {"capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE", "SYSLOG"]}},
    "unmap": {
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
        "privileged": True,
    },
}


@pytest.mark.parametrize("variant", MOUNTS)
def test_an_agent_has_these_rights_on_its_node_and_no_others(
    rendered: dict[str, Rendered], variant: str
) -> None:
    given = rendered[variant]
    paths = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in given.pod["volumes"]
        if "hostPath" in volume
    }
    mounts = {
        mount["mountPath"]: (
            paths[mount["name"]],
            mount.get("readOnly", False),
            mount.get("mountPropagation"),
        )
        for mount in given.container["volumeMounts"]
        if mount["name"] in paths
    }
    assert mounts == MOUNTS[variant]
    assert given.container["securityContext"] == SECURITY[variant]
    assert given.container["resources"]["limits"] == {"memory": "512Mi"}
    assert [field for field in given.pod if field.startswith(("host", "securityContext"))] == []


def test_a_namespace_without_the_label_refuses_the_pod(
    plane: ControlPlane, rendered: dict[str, Rendered]
) -> None:
    """The label that NOTES.txt asks for is necessary."""
    name = "baseline"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    pod = {"metadata": {"name": "agent"}, "spec": rendered[""].pod | {"serviceAccountName": ""}}
    wait_until(
        lambda: plane.api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        timeout_s=30,
        what="the namespace's service account",
    )

    with pytest.raises(ApiError, match="hostPath volumes"):
        plane.api.create(f"/api/v1/namespaces/{name}/pods", pod)


# Bad values ---------------------------------------------------------------------------------------


def test_unknown_and_wrong_values_are_refused_by_name(plane: ControlPlane) -> None:
    with pytest.raises(LabError) as refused:
        render(
            plane,
            *("--set", "mod=unmap", "--set", "podMonitor.enable=true", "--set", "mode=force"),
            *("--set", "ceph.cluster=x", "--set", "kubeletRoot=1"),
            *("--set", "ceph.clusters[0].name=a,ceph.clusters[0].conf=x"),
        )
    message = str(refused.value)
    for word in ("'mod'", "'enable'", "'cluster'", "'conf'", "/mode", "/kubeletRoot"):
        assert word in message


FROM_CSI: Final = "keyring=x,monitorsFrom.namespace=ceph-csi,monitorsFrom.configMap"


@pytest.mark.parametrize(
    ("clusters", "more", "message"),
    [
        ([], ("mode=unmap",), "mode unmap needs ceph.clusters"),
        (["config=x"], (), "c0: give one of keyringSecret, keySecret, keyring (there are 0)"),
        (
            ["config=x,keyring=x,keySecret.name=y"],
            (),
            "c0: give one of keyringSecret, keySecret, keyring (there are 2)",
        ),
        (["id=client.x"], (), 'ceph.clusters, c0: id is client.x: write it without "client."'),
        (["keyring=x"], (), "give one of monitorsFrom, config, configMap (there are 0)"),
        (["config=x,keyring=x", "name=c0"], (), "ceph.clusters: two are named c0"),
        (
            [f"{FROM_CSI}=ceph-csi-config"],
            (),
            "c0: monitorsFrom.clusterID is missing: ConfigMap ceph-csi/ceph-csi-config lists",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_reason(
    plane: ControlPlane, clusters: list[str], more: tuple[str, ...], message: str
) -> None:
    flags = [f"ceph.clusters[{number}].name=c{number}" for number, _ in enumerate(clusters)]
    flags += [
        f"ceph.clusters[{number}].{word}"
        for number, cluster in enumerate(clusters)
        for word in cluster.split(",")
    ]
    with pytest.raises(LabError) as refused:
        render(plane, *(word for setting in (*flags, *more) for word in ("--set", setting)))
    assert message in str(refused.value)


def test_alerts_and_dashboard_are_embedded_unchanged(plane: ControlPlane, tmp_path: Path) -> None:
    """Helm leaves the placeholders of Prometheus and Grafana unchanged."""
    rules = 'groups: [{name: a, rules: [{alert: A, expr: up, annotations: {x: "{{ $value }}"}}]}]\n'
    dashboard = '{"title": "{{node}}"}\n'
    chart = tmp_path / "rbdagent"
    shutil.copytree(CHART, chart)
    files = chart / "files"
    (files / "alerts.yaml").write_text(rules)
    (files / "dashboard.json").write_text(dashboard)
    wanted = ("--set", "prometheusRule.enabled=true", "--set", "dashboard.enabled=true")

    given = render(plane, *wanted, chart=chart)

    assert given.one("PrometheusRule")["spec"] == yaml.safe_load(rules)
    assert given.one("ConfigMap", "rbdagent-dashboard")["data"] == {"rbdagent.json": dashboard}
    (files / "alerts.yaml").unlink()
    with pytest.raises(LabError, match=r"files/alerts\.yaml is missing"):
        render(plane, *wanted, chart=chart)


# Life cycle of a release and the rights of its accounts -------------------------------------------


@pytest.fixture(scope="module")
def observing(plane: ControlPlane) -> ControlPlane:
    """Install the chart; return a control plane with the token of one of its agents."""
    helm(plane, "install", f"--values={VARIANTS['ceph-csi']}")
    api = plane.api
    _wait_known(api, RBDNODES)
    template = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/rbdagent")["spec"][
        "template"
    ]
    # No DaemonSet controller runs here.
    pod = api.create(
        f"{OURS}/pods",
        {
            "metadata": {"name": POD, "labels": template["metadata"]["labels"]},
            "spec": template["spec"] | {"nodeName": NODE},
        },
    )
    api.create(RBDNODES, {**RBDNODE, "metadata": {"name": OTHER_NODE}})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": POD, "uid": pod["metadata"]["uid"]}
    _be(plane, AGENT, NAMESPACE, "rbdagent", boundObjectRef=bound)
    _be(plane, "nodeless", NAMESPACE, "rbdagent")
    # An API server enforces new policies after a moment.
    wait_until(
        lambda: not make(plane, AGENT, (STATUS_OF_OTHER_NODE, EVENT_OF_OTHER_NODE)).allowed,
        timeout_s=30,
        what="the policies to be in force",
    )
    return plane


def _be(plane: ControlPlane, user: str, namespace: str, account: str, **spec: object) -> None:
    """Write a kubeconfig with a service account's token, which kubelet requests the same way."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    plane.write_kubeconfig(user, plane.api.create(path, {"spec": spec})["status"]["token"])


def is_allowed(client: Api, call: Call) -> bool:
    """Make a call; return whether it was not forbidden. The object need not exist."""
    line, body = call
    method, path = line.split(" ")
    try:
        client.request(method, path, body)
    except ApiError as error:
        return error.status != HTTPStatus.FORBIDDEN
    return True


AT: Final = "2026-11-21T05:08:08Z"
RBDNODE: Final[Json] = {"apiVersion": "rbdagent.dev/v1alpha1", "kind": "RBDNode"}
STATUS: Final[Json] = {
    "metadata": {"labels": {"image.rbdagent.dev/key": "rbd0"}, "managedFields": [{}]},
    "status": {"observedAt": AT, "mapped": 0, "imageLabels": 1},
}


def event(name: str, *, component: str = "rbdagent", node: str = NODE) -> Json:
    """Return an event as agents write them."""
    sent = SentEvent(
        kind="Node", namespace="", name=NODE, uid=NODE, reason="RBDOrphaned", message="", warns=True
    )
    body = event_object(sent, node, AT) | {"reportingComponent": component}
    return body | {"metadata": {"name": name, "namespace": "default"}}


RBDMAPPINGS: Final = RBDNODES.replace("rbdnodes", "rbdmappings")


OWNER: Final = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-of-the-node"}
KEPT: Final = {"finalizers": ["example.com/kept"]}
LABELLED: Final = {"labels": {"app": "x"}}
ANNOTATED: Final = {"annotations": {"example.com/text": "x" * 200_000}}
OWNED_BY_OTHER: Final = {"ownerReferences": [OWNER | {"name": OTHER_NODE}]}
UNOWNED: Final[Json] = {"ownerReferences": []}
CONTROLLED: Final = {"ownerReferences": [OWNER | {"controller": True}]}


def own(name: str = NODE, **metadata: object) -> Json:
    """Return metadata as an agent writes them, with changes."""
    return {"metadata": {"name": name, "ownerReferences": [OWNER]} | metadata}


def mapping_of(
    node: str, *, label: str = "", name: str = "", device: str = "/dev/rbd0", **metadata: object
) -> Json:
    """Return an RBDMapping as the agent of a node writes it."""
    status = {"node": node, "device": device, "verdict": "InUse", "observedAt": AT}
    labels = {"rbdagent.dev/node": label or node}
    return {
        "apiVersion": "rbdagent.dev/v1alpha1",
        "kind": "RBDMapping",
        **own(name or f"{node}.rbd0", **({"labels": labels} | metadata)),
        "status": status,
    }


def changed_event(**changes: object) -> Call:
    """Return a new Event of this agent that differs from what it writes."""
    return (f"POST {EVENTS}", event("e") | changes)


def with_metadata(**changes: object) -> Call:
    """Return a new Event of this agent with other metadata."""
    body = event("e")
    return (f"POST {EVENTS}", body | {"metadata": body["metadata"] | changes})


LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
CONFIRMED: Final = {"rbdagent.dev/confirms": "0b2f0e35-7ec5-4f7a-a3e5-6d3c1b9e2b1d/4711"}
RENEWAL: Final[Json] = {
    "metadata": {"annotations": CONFIRMED},
    "spec": {"holderIdentity": NODE, "renewTime": AT.replace("Z", ".000000Z")},
}
STATUS_OF_OTHER_NODE: Final[Call] = (f"PATCH {RBDNODES}/{OTHER_NODE}", STATUS)
EVENT_OF_OTHER_NODE: Final[Call] = (f"POST {EVENTS}", event("c", node=OTHER_NODE))
# A watch with an invalid resourceVersion ends at once, but only after it was authorized.
WATCH: Final = "watch=true&resourceVersion=none"

READS: Final[tuple[Call, ...]] = tuple(
    (f"GET {path}", None)
    for path in (
        "/api/v1/nodes",
        f"/api/v1/nodes/{OTHER_NODE}",
        "/api/v1/pods",
        f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}",
        "/api/v1/namespaces/default/pods/absent",
        VOLUMES,
        f"{VOLUMES}/absent",
        CLAIMS,
        f"{CLAIMS}/absent",
        f"{STORAGE}/volumeattachments",
        f"{STORAGE}/volumeattachments/absent",
        f"{STORAGE}/csinodes",
        f"{STORAGE}/csinodes/{NODE}",
        f"{STORAGE}/storageclasses",
        f"{STORAGE}/csidrivers",
        "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents",
        *(f"{APPS}/{resource}" for resource in ("replicasets", "deployments", "statefulsets")),
        f"{APPS}/namespaces/default/deployments/absent",
        "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
        "/apis/replication.storage.openshift.io/v1alpha1/volumereplications",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        f"{LEASES}/{OTHER_NODE}",
        EVENTS,
        RBDNODES,
        f"{RBDNODES}/{OTHER_NODE}",
        RBDNODES.replace("rbdnodes", "rbdmappings"),
        f"{RBDMAPPINGS}/absent",
    )
)
OWN_LABEL: Final = {"rbdagent.dev/node": NODE}
OWN: Final = mapping_of(NODE, name=f"{NODE}.rbd9", device="/dev/rbd9", ownerReferences=[])
OWN_MAPPING: Final = f"{RBDMAPPINGS}/{NODE}.rbd9"
AGENT_DOES: Final[tuple[Call, ...]] = (
    *READS,
    (f"GET /api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}&{WATCH}", None),
    (f"GET {RBDNODES}?fieldSelector=metadata.name%3D{NODE}&{WATCH}", None),
    (f"POST {RBDNODES}", {**RBDNODE, **own()}),
    (f"PATCH {RBDNODES}/{NODE}", STATUS),
    (f"GET {RBDMAPPINGS}?labelSelector=rbdagent.dev%2Fnode%3D{NODE}&{WATCH}", None),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE)),
    (f"PATCH {RBDMAPPINGS}/{NODE}.rbd0", {"status": {"verdict": "Staged"}}),
    (f"DELETE {RBDMAPPINGS}/{NODE}.rbd0", {}),
    (f"POST {LEASES}", own(annotations=CONFIRMED) | {"spec": {"holderIdentity": NODE}}),
    (f"PATCH {LEASES}/{NODE}", RENEWAL),
    (f"POST {EVENTS}", event("a")),
    (f"GET {EVENTS}/a", None),
    (f"PATCH {EVENTS}/a", {"count": 2, "lastTimestamp": AT}),
    (f"POST {EVENTS.replace('default', NAMESPACE)}", event("a") | {"metadata": {"name": "a"}}),
    (f"GET {MONITORS}", None),
)
AGENT_MUST_NOT: Final[tuple[Call, ...]] = (
    ("GET /api/v1/secrets", None),
    (f"GET {OURS}/secrets/rbdagent-keyring", None),
    (f"GET {OURS}/configmaps", None),
    ("GET /api/v1/namespaces/ceph-csi/configmaps", None),
    ("GET /api/v1/namespaces/ceph-csi/configmaps/other", None),
    ("GET /api/v1/namespaces/rook-ceph/configmaps/rook-ceph-mon-endpoints", None),
    (f"PATCH {MONITORS}", {"data": {}}),
    (f"GET {OURS}/serviceaccounts", None),
    (f"POST {OURS}/serviceaccounts/rbdagent/token", {"spec": {}}),
    (f"POST {OURS}/pods/{POD}/exec?command=true&stdout=true", {}),
    (f"GET {OURS}/pods/{POD}/exec?command=true&stdout=true", None),
    (f"POST {OURS}/pods/{POD}/attach", {}),
    (f"GET {OURS}/pods/{POD}/log", None),
    (f"POST {OURS}/pods/{POD}/eviction", {"metadata": {"name": POD}}),
    (f"POST {OURS}/pods", {"metadata": {"name": "x"}}),
    (f"PATCH {OURS}/pods/{POD}", {"metadata": {"labels": {"a": "b"}}}),
    (f"DELETE {OURS}/pods/{POD}", {}),
    (f"PATCH /api/v1/nodes/{NODE}", {"metadata": {"annotations": {"a": "b"}}}),
    (f"PATCH /api/v1/nodes/{NODE}/status", {"status": {}}),
    (f"GET /api/v1/nodes/{NODE}/proxy/pods", None),
    (f"DELETE /api/v1/nodes/{NODE}", {}),
    (f"POST {VOLUMES}", {"metadata": {"name": "x"}}),
    (f"PATCH {VOLUMES}/x", {"metadata": {"finalizers": None}}),
    (f"DELETE {VOLUMES}/x", {}),
    (f"PATCH {CLAIMS}/x", {"metadata": {"finalizers": None}}),
    (f"DELETE {CLAIMS}/x", {}),
    (f"POST {STORAGE}/volumeattachments", {"metadata": {"name": "x"}}),
    (f"PATCH {STORAGE}/volumeattachments/x", {"metadata": {"finalizers": None}}),
    (f"PATCH {STORAGE}/volumeattachments/x/status", {"status": {"attached": False}}),
    (f"DELETE {STORAGE}/volumeattachments/x", {}),
    (f"PATCH {STORAGE}/csinodes/{NODE}", {"spec": {"drivers": []}}),
    (f"PATCH {APPS}/namespaces/default/deployments/x", {"spec": {"replicas": 0}}),
    (f"DELETE {STORAGE}/storageclasses/x", {}),
    (f"POST {RBDNODES}", {**RBDNODE, "metadata": {"name": "chart-3"}}),
    STATUS_OF_OTHER_NODE,
    (f"PUT {RBDNODES}/{NODE}", {**RBDNODE, "metadata": {"name": NODE}}),
    (f"DELETE {RBDNODES}/{NODE}", {}),
    (f"DELETE {RBDNODES}", {}),
    (f"POST {RBDMAPPINGS}", mapping_of(OTHER_NODE)),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE, label=OTHER_NODE)),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE, name=f"{OTHER_NODE}.rbd0")),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE, name=f"{NODE}.more.rbd0")),
    (f"PATCH {RBDMAPPINGS}/theirs", {"status": {"verdict": "Staged"}}),
    (f"PATCH {RBDMAPPINGS}/theirs", {"status": {"node": NODE}}),
    (f"DELETE {RBDMAPPINGS}/theirs", {}),
    (f"DELETE {RBDMAPPINGS}", {}),
    *(
        (f"PATCH {RBDNODES}/{NODE}", {"metadata": changes})
        for changes in (KEPT, LABELLED, ANNOTATED, OWNED_BY_OTHER, CONTROLLED)
    ),
    *(
        (f"POST {RBDMAPPINGS}", mapping_of(NODE, **changes))
        for changes in (KEPT, ANNOTATED, OWNED_BY_OTHER, CONTROLLED, UNOWNED)
    ),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE, labels=OWN_LABEL | {"app": "x"})),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE, device="/dev/rbd7")),
    (f"POST {RBDMAPPINGS}", mapping_of(NODE, name=f"{NODE}.sda")),
    (f"PATCH {OWN_MAPPING}", {"status": {"device": "/dev/rbd8"}}),
    *(
        (f"PATCH {OWN_MAPPING}", {"metadata": changes})
        for changes in (KEPT, LABELLED, ANNOTATED, OWNED_BY_OTHER)
    ),
    (f"POST {LEASES}", {"metadata": {"name": OTHER_NODE}}),
    (f"DELETE {LEASES}/{NODE}", {}),
    (f"PATCH {LEASES}/{NODE}", {"spec": {"holderIdentity": OTHER_NODE}}),
    (f"PATCH {LEASES}/{NODE}", {"metadata": {"annotations": {next(iter(CONFIRMED)): "x" * 200}}}),
    *(
        (f"PATCH {LEASES}/{NODE}", {"metadata": changes})
        for changes in (KEPT, LABELLED, ANNOTATED, OWNED_BY_OTHER)
    ),
    (f"PATCH {CRD}", {"spec": {}}),
    (f"POST {EVENTS}", event("b", component="kubelet")),
    EVENT_OF_OTHER_NODE,
    (f"PATCH {EVENTS}/of-kubelet", {"message": "nothing happened"}),
    (f"PATCH {EVENTS}/a", {"reportingComponent": "kubelet"}),
    (f"PATCH {EVENTS}/of-other", {"count": 2}),
    (f"PATCH {EVENTS}/of-other", {"message": "nothing happened", "reportingInstance": NODE}),
    *(
        (f"PATCH {EVENTS}/a", changes)
        for changes in (
            {"message": "nothing happened"},
            {"reason": "Other"},
            {"type": "Normal"},
            {"action": "x"},
            {"involvedObject": {"kind": "Pod"}},
            {"source": {"host": OTHER_NODE}},
            {"firstTimestamp": "2020-01-01T00:00:00Z"},
            {"eventTime": f"{AT[:-1]}.000000Z", "action": "x"},
            {"related": {"kind": "Pod", "name": "x"}},
            {"series": {"count": 2, "lastObservedTime": f"{AT[:-1]}.000000Z"}},
            {"metadata": KEPT},
            {"metadata": LABELLED},
            {"metadata": ANNOTATED},
            {"metadata": OWNED_BY_OTHER},
        )
    ),
    changed_event(message="x" * 1025),
    changed_event(reason="x" * 200),
    changed_event(related={"kind": "Pod", "name": "x" * 100_000}),
    changed_event(action="x" * 100_000),
    changed_event(source={"component": "kubelet", "host": NODE}),
    changed_event(involvedObject={"kind": "Node", "name": OTHER_NODE}),
    changed_event(involvedObject={"kind": "Secret", "name": "x", "namespace": "default"}),
    *(with_metadata(**changes) for changes in (KEPT, LABELLED, ANNOTATED, OWNED_BY_OTHER)),
    (f"DELETE {EVENTS}/a", {}),
    ("PATCH /api/v1/namespaces/default", {"metadata": {"annotations": {"a": "b"}}}),
    (f"POST {RBAC}/clusterrolebindings", {"metadata": {"name": "x"}}),
    ("POST /apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": {"name": "x"}}),
)
NAMESPACES: Final[Call] = ("GET /api/v1/namespaces", None)


class Made(NamedTuple):
    """The calls of one user, by result."""

    allowed: list[Call]
    refused: list[Call]


def with_owner(call: Call, uid: str) -> Call:
    """Return a call with the uid of the Node: the garbage collector deletes what has another."""
    line, body = call
    text = json.dumps(body).replace(json.dumps(OWNER["uid"]), json.dumps(uid))
    return line, json.loads(text)


def make(plane: ControlPlane, user: str, calls: tuple[Call, ...]) -> Made:
    """Make every call as a user; return which were allowed."""
    uid = str(plane.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["uid"])
    with contextlib.closing(plane.client(user)) as client:
        answers = [(call, is_allowed(client, with_owner(call, uid))) for call in calls]
    return Made([call for call, may in answers if may], [call for call, may in answers if not may])


def test_an_agent_may_do_all_that_it_does(observing: ControlPlane) -> None:
    assert make(observing, AGENT, AGENT_DOES).refused == []


def make_what_must_stay(plane: ControlPlane) -> None:
    """Create the objects that an agent must not change, unless they exist."""
    for path, body in (
        (EVENTS, event("of-kubelet", component="kubelet")),
        (EVENTS, event("of-other", node=OTHER_NODE)),
        (RBDMAPPINGS, mapping_of(OTHER_NODE, name="theirs", ownerReferences=[])),
        (RBDMAPPINGS, OWN),
    ):
        if plane.api.find(f"{path}/{body['metadata']['name']}") is None:
            plane.api.create(path, body)


def test_an_agent_may_do_nothing_else(observing: ControlPlane) -> None:
    make_what_must_stay(observing)
    assert make(observing, AGENT, (*AGENT_MUST_NOT, NAMESPACES)).allowed == []


def test_an_agent_may_write_what_others_have_added_to(observing: ControlPlane) -> None:
    """Garbage collection sets a finalizer, and administrators set labels and annotations."""
    path = f"{RBDMAPPINGS}/{NODE}.rbd8"
    added = {"annotations": {"example.com/a": "b"}, **KEPT, **LABELLED}
    body = mapping_of(NODE, name=f"{NODE}.rbd8", device="/dev/rbd8", ownerReferences=[])
    observing.api.create(RBDMAPPINGS, body)
    observing.api.patch(path, {"metadata": added})
    calls: tuple[Call, ...] = (
        (f"PATCH {path}", {"status": {"verdict": "Staged"}}),
        (f"DELETE {path}", {}),
    )
    refused = make(observing, AGENT, calls).refused
    observing.api.patch(path, {"metadata": {"finalizers": None}})
    assert refused == []


@pytest.mark.parametrize(
    "status",
    [
        {"reasons": ["x" * 250_000]},
        {"mounts": ["x" * 250_000]},
        {"since": "x" * 250_000},
        {"image": {"name": "x" * 250_000}},
        {"persistentVolume": "x" * 250_000},
        {"clientAddress": "x" * 250_000},
        {"image": {f"field-{number}": "x" * 5000 for number in range(50)}},
    ],
    ids=lambda status: next(iter(status)),
)
def test_a_large_mapping_is_refused_or_cut(observing: ControlPlane, status: Json) -> None:
    uid = str(observing.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["uid"])
    owner = OWNER | {"uid": uid}
    body = mapping_of(NODE, name=f"{NODE}.rbd7", device="/dev/rbd7", ownerReferences=[owner])
    with contextlib.closing(observing.client(AGENT)) as client, contextlib.suppress(ApiError):
        client.create(RBDMAPPINGS, body | {"status": body["status"] | status})
    found = observing.api.find(f"{RBDMAPPINGS}/{NODE}.rbd7")
    if found is not None:
        observing.api.delete(f"{RBDMAPPINGS}/{NODE}.rbd7")
    assert len(json.dumps(found)) < 32_768


@pytest.mark.parametrize(
    "status",
    [
        {"sources": {"node": {"state": "observed", "reason": "x" * 250_000}}},
        {"sources": {f"s{number}": {"state": "observed"} for number in range(10_000)}},
        {"acts": [{"message": "x" * 250_000}]},
        {"leaseNamespace": "x" * 250_000},
    ],
    ids=["reason", "sources", "acts", "namespace"],
)
def test_a_large_rbdnode_is_refused(observing: ControlPlane, status: Json) -> None:
    with contextlib.closing(observing.client(AGENT)) as client, pytest.raises(ApiError) as refused:
        client.patch(f"{RBDNODES}/{NODE}", {"status": {"observedAt": AT} | status})
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY


def test_an_agent_without_a_node_in_its_token_writes_nothing(observing: ControlPlane) -> None:
    writes = (
        (f"PATCH {RBDNODES}/{NODE}", STATUS),
        (f"POST {RBDNODES}", {**RBDNODE, "metadata": {"name": "chart-3"}}),
        (f"POST {RBDMAPPINGS}", mapping_of(NODE)),
        (f"POST {LEASES}", {"metadata": {"name": "chart-3"}}),
        (f"POST {EVENTS}", event("d")),
    )
    assert make(observing, "nodeless", writes).allowed == []


def rbdagent(plane: ControlPlane, user: str, verb: str, *args: str) -> str:
    """Run rbdagent of this checkout with the kubeconfig of a user."""
    program = (f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent")
    return plane.laptop(user).done("/usr/bin/env", *program, verb, *args)


def test_a_real_agent_publishes_its_node_with_these_rights(
    observing: ControlPlane, tmp_path: Path
) -> None:
    observing.api.delete(f"{RBDNODES}/{NODE}")
    state = f"--state-dir={tmp_path}"
    rbdagent(observing, AGENT, "agent", "--once", "--no-ceph", f"--node-name={NODE}", state)
    published = observing.api.get(f"{RBDNODES}/{NODE}")
    assert published["status"]["toolVersion"] == __version__
    assert [owner["name"] for owner in published["metadata"]["ownerReferences"]] == [NODE]
    lease = observing.api.get(f"{LEASES}/{NODE}")
    assert lease["spec"]["holderIdentity"] == NODE


KEY: Final = "AQBPnnpgAAAAABAAcPb8S8gLKXhXJ1yJ5rwQ2A=="


def checked(plane: ControlPlane, given: Rendered, directory: Path) -> str:
    """Return what check prints about the only cluster of a variant, outside of its pod.

    No monitor has the listed addresses: check prints them in the command that shows whether they
    can be reached.
    """
    data = given.one("ConfigMap")["data"]
    (table,) = tomllib.loads(data["config.toml"])["ceph"]
    files = {
        "conf": data[f"{table['name']}.conf"],
        "keyring": f"[client.rbdagent]\n\tkey = {KEY}\n",
        "keyfile": KEY,
    }
    lines = {**table, "timeout": "1s"}
    for name in files.keys() & table.keys():
        (directory / name).write_text(files[name])
        lines[name] = str(directory / name)
    path = directory / "config.toml"
    settings = (f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
    path.write_text("[[ceph]]\n" + "".join(settings))
    program = (f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "rbdagent", "check")
    flags = (f"--config={path}", "--no-node", f"--node-name={NODE}", "--output=json")
    said = plane.laptop(AGENT).run("/usr/bin/env", *program, *flags).said
    return " ".join(said.split())


@pytest.mark.parametrize("variant", OTHER_INSTALLATIONS)
def test_an_agent_reads_the_monitors_of_each_installation(
    observing: ControlPlane, rendered: dict[str, Rendered], variant: str, tmp_path: Path
) -> None:
    """It reads the ConfigMap of the operator or of Rook with the rights of the chart alone."""
    given = rendered[variant]
    (table,) = tomllib.loads(given.one("ConfigMap")["data"]["config.toml"])["ceph"]
    name = f"rbdagent-monitors-{table['name']}"
    namespace, _, config_map = table["monitors-from"].partition("/")
    assert f"auth can-i get configmaps/{config_map}" in checked(observing, given, tmp_path)
    roles = [given.one(kind, name) for kind in ("Role", "RoleBinding")]
    try:
        observing.kubectl("create", "--filename=-", stdin=yaml.safe_dump_all(roles))
        read: Call = (f"GET /api/v1/namespaces/{namespace}/configmaps/{config_map}", None)
        wait_until(
            lambda: make(observing, AGENT, (read,)).allowed,
            timeout_s=30,
            what="the right to read the monitors",
        )
        assert OTHER_INSTALLATIONS[variant] in checked(observing, given, tmp_path)
    finally:
        observing.kubectl("delete", "--filename=-", stdin=yaml.safe_dump_all(roles))


def test_an_agent_reads_the_monitors_at_run_time(
    observing: ControlPlane, rendered: dict[str, Rendered], tmp_path: Path
) -> None:
    """The list changes, and the next command uses the new one: no upgrade is needed."""

    def monitors() -> str:
        return checked(observing, rendered["ceph-csi"], tmp_path)

    def list_monitors(text: str) -> None:
        observing.api.patch(MONITORS, {"data": {"config.json": text}})

    assert "-m 10.0.0.1:6789,10.0.0.2:6789 " in monitors()
    list_monitors(json.dumps([{**CSI_CLUSTERS[1], "monitors": ["10.0.0.9:6789"]}]))
    assert "-m 10.0.0.9:6789 " in monitors()
    list_monitors("[]")
    assert "expected a cluster with clusterID b9127830-" in monitors()
    list_monitors(json.dumps(CSI_CLUSTERS))


def test_check_reports_only_the_right_that_unmapping_needs(observing: ControlPlane) -> None:
    looks = ("--no-ceph", "--no-node", f"--node-name={NODE}", "--output=json")
    report = json.loads(rbdagent(observing, AGENT, "check", *looks))
    states: dict[str, list[str]] = {}
    for check in report["checks"]:
        if check["source"] == "kubernetes":
            states.setdefault(check["state"], []).append(check["sentence"])
    assert states.pop("ok")
    assert states == {
        "warning": ["this user may list namespaces"],
        "skipped": [
            # Neither KubeVirt nor csi-addons runs here: no right is needed to what is absent.
            "this user may list virtualmachineinstancemigrations.kubevirt.io",
            "this user may list volumereplications.replication.storage.openshift.io",
            # The Node of the test was written without a kubelet, and has no boot id.
            f"this machine is Node {NODE}",
        ],
    }


def _have_role(plane: ControlPlane, user: str, bindings: str, kind: str, role: str) -> None:
    """Make a service account with a role; wait until the API server grants it."""
    api = plane.api
    api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": user}})
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": user}],
    }
    api.create(bindings, binding)
    _be(plane, user, "default", user)
    look: Call = (f"GET {RBDNODES if kind == 'ClusterRole' else f'{OURS}/pods'}", None)
    wait_until(
        lambda: make(plane, user, (look,)).allowed,
        timeout_s=30,
        what=f"{role} to be granted",
    )


def test_users_may_only_read(observing: ControlPlane) -> None:
    """The role for users with a kubeconfig, and the rights that the chart adds to `view`."""
    for user in ("rbdagent-cli", "view"):
        _have_role(observing, user, f"{RBAC}/clusterrolebindings", "ClusterRole", user)
    writes: tuple[Call, ...] = (
        (f"POST {RBDNODES}", {**RBDNODE, "metadata": {"name": NODE}}),
        (f"PATCH {RBDNODES}/{NODE}", STATUS),
        (f"POST {EVENTS}", event("e")),
        (f"PATCH {EVENTS}/a", {"count": 2}),
    )
    assert make(observing, "rbdagent-cli", (*READS, NAMESPACES)).refused == []
    assert make(observing, "rbdagent-cli", (*AGENT_MUST_NOT, *writes)).allowed == []
    assert make(observing, "view", writes).allowed == []


def test_plugin_users_may_exec_only_into_agent_pods(observing: ControlPlane) -> None:
    bindings = f"{RBAC}/namespaces/{NAMESPACE}/rolebindings"
    _have_role(observing, "rbdagent-exec", bindings, "Role", "rbdagent-exec")
    command = "exec?command=true&stdout=true"
    may: tuple[Call, ...] = (
        (f"GET {OURS}/pods", None),
        (f"GET /apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", None),
        (f"POST {OURS}/pods/{POD}/{command}", {}),
        (f"GET {OURS}/pods/{POD}/{command}", None),
    )
    must_not: tuple[Call, ...] = (
        ("GET /api/v1/pods", None),
        (f"POST /api/v1/namespaces/default/pods/x/{command}", {}),
        (f"DELETE {OURS}/pods/{POD}", {}),
        (f"GET {OURS}/secrets", None),
    )
    assert make(observing, "rbdagent-exec", (*may, *must_not)) == Made(list(may), list(must_not))


@pytest.fixture(scope="module")
def unmapping(observing: ControlPlane) -> ControlPlane:
    """Upgrade the release to mode unmap."""
    helm(observing, "upgrade", f"--values={VARIANTS['unmap']}")
    wait_until(
        lambda: make(observing, AGENT, (NAMESPACES,)).allowed,
        timeout_s=30,
        what="the right to list namespaces to be granted",
    )
    return observing


def test_an_upgrade_to_unmap_grants_namespaces_and_nothing_else(unmapping: ControlPlane) -> None:
    make_what_must_stay(unmapping)
    made = make(unmapping, AGENT, (*READS, *AGENT_MUST_NOT))
    assert made == Made(list(READS), list(AGENT_MUST_NOT))


def test_the_labs_agents_have_the_rights_that_the_chart_grants(
    rendered: dict[str, Rendered],
) -> None:
    """Everything that agents do in the lab's clusters therefore works with the chart's rights."""
    roles = [rendered["unmap"].one("ClusterRole", f"rbdagent{suffix}") for suffix in ("", "-unmap")]
    granted = [rule for role in roles for rule in role["rules"]]
    assert granted == list(RBDAGENT_RULES)
    assert rendered["unmap"].one("Role", "rbdagent")["rules"] == list(LEASE_RULES)


def test_an_upgrade_leaves_what_agents_published(unmapping: ControlPlane) -> None:
    names = {report["metadata"]["name"] for report in unmapping.api.items(RBDNODES)}
    assert names >= {NODE, OTHER_NODE}


@pytest.fixture(scope="module")
def switched_off(unmapping: ControlPlane) -> ControlPlane:
    """Upgrade the release back to mode observe."""
    helm(unmapping, "upgrade", f"--values={VARIANTS['ceph-csi']}")
    return unmapping


def test_an_upgrade_back_removes_that_right(switched_off: ControlPlane) -> None:
    wait_until(
        lambda: make(switched_off, AGENT, (NAMESPACES,)).refused,
        timeout_s=30,
        what="the right to list namespaces to be gone",
    )


def test_an_uninstalled_release_leaves_only_what_agents_published(
    switched_off: ControlPlane, rendered: dict[str, Rendered]
) -> None:
    helm(switched_off, "uninstall", chart=None)
    there = ("get", "--ignore-not-found", "--output=name", "--filename=-")
    left = switched_off.kubectl(*there, stdin=rendered["unmap"].manifest)
    assert sorted(left.split()) == [
        f"customresourcedefinition.apiextensions.k8s.io/{resource}.rbdagent.dev"
        for resource in ("rbdmappings", "rbdnodes")
    ]
    names = {report["metadata"]["name"] for report in switched_off.api.items(RBDNODES)}
    assert names >= {NODE, OTHER_NODE}
    assert switched_off.api.items(f"{OURS}/secrets") == [], "helm's own record of the release"


def test_rbdnodes_are_deleted_if_the_values_ask_for_it(switched_off: ControlPlane) -> None:
    """The second release of the same name takes over the resource that the first one left."""
    helm(switched_off, "install", f"--values={VARIANTS['microk8s']}")
    helm(switched_off, "uninstall", chart=None)
    _wait_gone(switched_off.api, CRD)
    # The server stops serving the resource some moments after its definition is gone.
    _wait_gone(switched_off.api, RBDNODES)
