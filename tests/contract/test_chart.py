"""The chart without a cluster: what each value changes in the rendered objects."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import yaml

from rbdagent.addresses import REGISTRY
from rbdagent.rules.entry import runbook
from tests.support.chart import (
    CHART,
    NAMESPACE,
    VARIANTS,
    Rendered,
    helm_template,
    render,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.needs("helm")

Json = dict[str, Any]

DIGEST: Final = f"sha256:{'ab' * 32}"
CEPH: Final[Json] = {
    "clusters": [{"name": "c", "config": "[global]", "keyringSecret": {"name": "rbdagent-keyring"}}]
}
UNMAP: Final[Json] = {"mode": "unmap", "ceph": CEPH}


class Row(NamedTuple):
    """A value, and what it changes."""

    values: Json
    read: Callable[[Rendered], object]
    """Returns the part of the rendered objects that depends on the value."""
    expected: object
    by_default: object
    """The same part without the value."""


def names(*kinds: str) -> Callable[[Rendered], object]:
    return lambda given: sorted(name for kind in kinds for name in given.of_kind(kind))


def update(given: Rendered) -> object:
    return given.daemon_set["spec"]["updateStrategy"]


def probes(given: Rendered) -> object:
    return [
        {key: value for key, value in given.container[name].items() if key != "httpGet"}
        for name in ("livenessProbe", "readinessProbe")
    ]


def last(*path: str) -> Callable[[Rendered], object]:
    """Return a function that reads the last item of a list in the pod or its container."""
    holder, key = path
    return lambda given: getattr(given, holder)[key][-1]["name"]


def freeze(given: Rendered) -> object:
    """Return the freeze directory of the node, its mount, and whether the agent reads it there."""
    (volume,) = (volume for volume in given.pod["volumes"] if volume["name"] == "freeze")
    (mount,) = (mount for mount in given.container["volumeMounts"] if mount["name"] == "freeze")
    file = tomllib.loads(config(given))["freeze-file"]
    return volume["hostPath"]["path"], mount["mountPath"], file == f"{mount['mountPath']}/freeze"


def config(given: Rendered) -> str:
    (found,) = given.of_kind("ConfigMap").values()
    text: str = found["data"]["config.toml"]
    return text


def subjects(given: Rendered) -> object:
    return sorted(
        {
            subject["name"]
            for binding in given.of_kind("ClusterRoleBinding").values()
            for subject in binding["subjects"]
        }
    )


def own_user(given: Rendered) -> object:
    """Return the condition by which the admission policies recognise an agent."""
    (condition,) = {
        policy["spec"]["matchConditions"][0]["expression"]
        for policy in given.of_kind("ValidatingAdmissionPolicy").values()
    }
    return condition.rpartition(":")[2].rstrip("'")


def rules(given: Rendered) -> dict[str, list[Json]]:
    """Return the rules of the PrometheusRule by alert."""
    found: dict[str, list[Json]] = {}
    for group in given.of_kind("PrometheusRule")["rbdagent"]["spec"]["groups"]:
        for rule in group["rules"]:
            found.setdefault(rule.get("alert", rule.get("record")), []).append(rule)
    return found


def limit_of(alert: str) -> Callable[[Rendered], object]:
    """Return a function that reads the only number at the end of a line of an expression."""
    return lambda given: re.findall(r"> (\d+)$", rules(given)[alert][0]["expr"], re.MULTILINE)


def endpoint(key: str) -> Callable[[Rendered], object]:
    def read(given: Rendered) -> object:
        spec = given.of_kind("PodMonitor")["rbdagent"]["spec"]
        return {**spec, **spec["podMetricsEndpoints"][0]}.get(key)

    return read


def labels(given: Rendered) -> object:
    """Return the value of the label team of every object and of the pods."""
    pods = given.daemon_set["spec"]["template"]
    return {(found["metadata"]["labels"]).get("team") for found in (*given.objects, pods)}


ALERTS: Final[Json] = {"prometheusRule": {"enabled": True}}
MONITOR: Final[Json] = {"podMonitor": {"enabled": True}}
RELABEL: Final = [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}]
OWN_RULE: Final[Json] = {
    "alert": "TeamRule",
    "expr": "rbdagent_findings > 0",
    "annotations": {"summary": "{{ $labels.code }} on {{ $labels.instance }}"},
}

ROWS: Final = {
    "image.registry": Row(
        {"image": {"registry": "harbor.example:5000/ops"}},
        lambda given: given.container["image"],
        "harbor.example:5000/ops/rbdagent:0.1.0",
        f"{REGISTRY}/rbdagent:0.1.0",
    ),
    "image.registry empty": Row(
        {"image": {"registry": ""}},
        lambda given: given.container["image"],
        "rbdagent:0.1.0",
        f"{REGISTRY}/rbdagent:0.1.0",
    ),
    "image.repository": Row(
        {"image": {"repository": "storage/rbdagent"}},
        lambda given: given.container["image"],
        f"{REGISTRY}/storage/rbdagent:0.1.0",
        f"{REGISTRY}/rbdagent:0.1.0",
    ),
    "image.tag and digest": Row(
        {"image": {"tag": "0.2.0", "digest": DIGEST}},
        lambda given: given.container["image"],
        f"{REGISTRY}/rbdagent:0.2.0@{DIGEST}",
        f"{REGISTRY}/rbdagent:0.1.0",
    ),
    "global.imageRegistry": Row(
        {"global": {"imageRegistry": "mirror.example"}, "image": {"registry": "other.example"}},
        lambda given: given.container["image"],
        "mirror.example/rbdagent:0.1.0",
        f"{REGISTRY}/rbdagent:0.1.0",
    ),
    "image.pullPolicy": Row(
        {"image": {"pullPolicy": "Always"}},
        lambda given: given.container["imagePullPolicy"],
        "Always",
        "IfNotPresent",
    ),
    "imagePullSecrets": Row(
        {"imagePullSecrets": [{"name": "harbor"}]},
        lambda given: given.pod.get("imagePullSecrets"),
        [{"name": "harbor"}],
        None,
    ),
    "nameOverride": Row(
        {"nameOverride": "holders"},
        names("DaemonSet", "ConfigMap", "ServiceAccount"),
        ["rbdagent-holders"] * 3,
        ["rbdagent"] * 3,
    ),
    "nameOverride and the selector": Row(
        {"nameOverride": "holders"},
        lambda given: given.daemon_set["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"],
        "rbdagent",
        "rbdagent",
    ),
    "fullnameOverride": Row(
        {"fullnameOverride": "volumes", "nameOverride": "holders"},
        names("DaemonSet", "ConfigMap", "ServiceAccount"),
        ["volumes"] * 3,
        ["rbdagent"] * 3,
    ),
    "commonLabels": Row({"commonLabels": {"team": "storage"}}, labels, {"storage"}, {None}),
    "commonLabels and the selector": Row(
        {"commonLabels": {"team": "storage"}},
        lambda given: sorted(given.daemon_set["spec"]["selector"]["matchLabels"]),
        ["app.kubernetes.io/instance", "app.kubernetes.io/name"],
        ["app.kubernetes.io/instance", "app.kubernetes.io/name"],
    ),
    "commonLabels with a key of the chart": Row(
        {"commonLabels": {"app.kubernetes.io/name": "other"}},
        lambda given: given.daemon_set["metadata"]["labels"]["app.kubernetes.io/name"],
        "rbdagent",
        "rbdagent",
    ),
    "podLabels": Row(
        {"podLabels": {"tier": "node"}},
        lambda given: given.daemon_set["spec"]["template"]["metadata"]["labels"].get("tier"),
        "node",
        None,
    ),
    "serviceAccount.name": Row(
        {"serviceAccount": {"name": "holders"}},
        lambda given: (
            list(given.of_kind("ServiceAccount")),
            given.pod["serviceAccountName"],
            subjects(given),
            own_user(given),
        ),
        (["holders"], "holders", ["holders"], "holders"),
        (["rbdagent"], "rbdagent", ["rbdagent"], "rbdagent"),
    ),
    "serviceAccount.create": Row(
        {"serviceAccount": {"create": False, "name": "given"}},
        lambda given: (list(given.of_kind("ServiceAccount")), subjects(given), own_user(given)),
        ([], ["given"], "given"),
        (["rbdagent"], ["rbdagent"], "rbdagent"),
    ),
    "serviceAccount.annotations": Row(
        {"serviceAccount": {"annotations": {"example/role": "reader"}}},
        lambda given: given.of_kind("ServiceAccount")["rbdagent"]["metadata"].get("annotations"),
        {"example/role": "reader"},
        None,
    ),
    "rbac.create": Row(
        {"rbac": {"create": False}},
        names("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
        [],
        [*["rbdagent"] * 4, "rbdagent-cli", "rbdagent-exec", "rbdagent-view"],
    ),
    "crds.keep": Row(
        {"crds": {"keep": False}},
        lambda given: given.of_kind("CustomResourceDefinition")["rbdnodes.rbdagent.dev"][
            "metadata"
        ].get("annotations"),
        None,
        {"helm.sh/resource-policy": "keep"},
    ),
    "crds.install": Row(
        {"crds": {"install": False}},
        names("CustomResourceDefinition"),
        [],
        ["rbdmappings.rbdagent.dev", "rbdnodes.rbdagent.dev"],
    ),
    "freezeDir": Row(
        {"freezeDir": "/var/lib/rbdagent-freeze"},
        freeze,
        ("/var/lib/rbdagent-freeze", "/host/var/lib/rbdagent-freeze", True),
        ("/etc/rbdagent", "/host/etc/rbdagent", True),
    ),
    "metrics.mappings": Row(
        {"metrics": {"mappings": "problems"}},
        lambda given: tomllib.loads(config(given))["metrics"],
        "problems",
        "all",
    ),
    "log.level": Row(
        {"log": {"level": "debug"}},
        lambda given: tomllib.loads(config(given))["log-level"],
        "debug",
        "info",
    ),
    "log.format": Row(
        {"log": {"format": "logfmt"}},
        lambda given: tomllib.loads(config(given))["log-format"],
        "logfmt",
        "json",
    ),
    "extraArgs": Row(
        {"extraArgs": ["--kube-timeout=20s"]},
        lambda given: given.container.get("args"),
        ["--kube-timeout=20s"],
        None,
    ),
    "extraEnv": Row(
        {"extraEnv": [{"name": "RBDAGENT_TIMEOUT", "value": "20s"}]},
        last("container", "env"),
        "RBDAGENT_TIMEOUT",
        "RBDAGENT_PROGRAM",
    ),
    "extraVolumes": Row(
        {"extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}]},
        last("pod", "volumes"),
        "ca",
        "freeze",
    ),
    "extraVolumeMounts": Row(
        {"extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/ca"}]},
        last("container", "volumeMounts"),
        "ca",
        "freeze",
    ),
    "livenessProbe": Row(
        {"livenessProbe": {"periodSeconds": 60, "initialDelaySeconds": 5}},
        probes,
        [
            {"periodSeconds": 60, "timeoutSeconds": 5, "failureThreshold": 3,
             "initialDelaySeconds": 5},
            {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        ],
        [
            {"periodSeconds": 30, "timeoutSeconds": 5, "failureThreshold": 3},
            {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        ],
    ),
    "readinessProbe": Row(
        {"readinessProbe": {"failureThreshold": 6}},
        probes,
        [
            {"periodSeconds": 30, "timeoutSeconds": 5, "failureThreshold": 3},
            {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        ],
        [
            {"periodSeconds": 30, "timeoutSeconds": 5, "failureThreshold": 3},
            {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        ],
    ),
    "revisionHistoryLimit": Row(
        {"revisionHistoryLimit": 0},
        lambda given: given.daemon_set["spec"]["revisionHistoryLimit"],
        0,
        10,
    ),
    "minReadySeconds": Row(
        {"minReadySeconds": 30},
        lambda given: given.daemon_set["spec"]["minReadySeconds"],
        30,
        0,
    ),
    "updateStrategy in mode unmap": Row(
        UNMAP,
        update,
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "2%"}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
    ),
    "updateStrategy.rollingUpdate.maxUnavailable": Row(
        {**UNMAP, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}},
        update,
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
    ),
    "updateStrategy.type": Row(
        {"updateStrategy": {"type": "OnDelete"}},
        update,
        {"type": "OnDelete"},
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
    ),
}  # fmt: skip


def with_alerts(**values: object) -> Json:
    return {"prometheusRule": {"enabled": True, **values}}


MONITORING_ROWS: Final = {
    "the threshold of an orphan": Row(
        {**ALERTS, "unmap": {"gracePeriod": "1h2m3s"}},
        limit_of("RBDMappingOrphaned"),
        ["3723"],
        ["600"],
    ),
    "prometheusRule.thresholds.orphaned": Row(
        {**with_alerts(thresholds={"orphaned": "20m"}), "unmap": {"gracePeriod": "1h"}},
        limit_of("RBDMappingOrphaned"),
        ["1200"],
        ["600"],
    ),
    "the threshold of an incomplete observation": Row(
        {**ALERTS, "resync": "90s"}, limit_of("RBDAgentObservationFailing"), ["450"], ["300"]
    ),
    "prometheusRule.thresholds.incomplete": Row(
        with_alerts(thresholds={"incomplete": "15m"}),
        limit_of("RBDAgentObservationFailing"),
        ["900"],
        ["300"],
    ),
    "prometheusRule.thresholds.for": Row(
        with_alerts(thresholds={"for": {"RBDMappingDead": "7m"}}),
        lambda given: [rule["for"] for rule in rules(given)["RBDMappingDead"]],
        ["7m", "7m"],
        ["2m", "10m"],
    ),
    "prometheusRule.disabled": Row(
        with_alerts(disabled=["RBDMappingDead", "RBDMappingPinned"]),
        lambda given: {"RBDMappingDead", "RBDMappingPinned", "RBDAgentDown"} & rules(given).keys(),
        {"RBDAgentDown"},
        {"RBDMappingDead", "RBDMappingPinned", "RBDAgentDown"},
    ),
    "prometheusRule.runbookUrl": Row(
        with_alerts(runbookUrl="https://wiki.example/rbd/"),
        lambda given: rules(given)["RBDAgentDown"][0]["annotations"]["runbook_url"],
        "https://wiki.example/rbd/RBDAgentDown.md",
        runbook("RBDAgentDown"),
    ),
    "prometheusRule.additionalRules": Row(
        with_alerts(additionalRules=[OWN_RULE]),
        lambda given: rules(given).get("TeamRule"),
        [OWN_RULE],
        None,
    ),
    "prometheusRule.labels": Row(
        with_alerts(labels={"release": "prometheus"}),
        lambda given: given.of_kind("PrometheusRule")["rbdagent"]["metadata"]["labels"].get(
            "release"
        ),
        "prometheus",
        None,
    ),
    "podMonitor.relabelings": Row(
        {"podMonitor": {"enabled": True, "relabelings": RELABEL}},
        endpoint("relabelings"),
        RELABEL,
        None,
    ),
    "podMonitor.metricRelabelings": Row(
        {"podMonitor": {"enabled": True, "metricRelabelings": RELABEL}},
        endpoint("metricRelabelings"),
        RELABEL,
        None,
    ),
    "podMonitor.sampleLimit": Row(
        {"podMonitor": {"enabled": True, "sampleLimit": 5000}}, endpoint("sampleLimit"), 5000, None
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_value_changes_the_objects_that_it_names(name: str) -> None:
    row = ROWS[name]
    assert row.read(render()) == row.by_default
    assert row.read(render(row.values)) == row.expected


@pytest.mark.parametrize("name", MONITORING_ROWS)
def test_a_value_changes_the_monitoring_objects(name: str) -> None:
    row = MONITORING_ROWS[name]
    assert row.read(render(ALERTS | MONITOR)) == row.by_default
    assert row.read(render(row.values)) == row.expected


@pytest.mark.parametrize(("host_network", "address"), [(False, ""), (True, "127.0.0.1")])
def test_kubelet_probes_a_port_that_serves_nothing_else(host_network: bool, address: str) -> None:  # noqa: FBT001 - a table
    """In the node's network, no NetworkPolicy applies: only the node itself reaches the port."""
    found = render({"hostNetwork": host_network, "probePort": 9000})
    (probed,) = {
        json.dumps(found.container[name]["httpGet"] | {"path": ""})
        for name in ("livenessProbe", "readinessProbe")
    }
    host = {"host": address} if address else {}
    assert json.loads(probed) == {"path": "", "port": "probes"} | host
    (port,) = (port for port in found.container["ports"] if port["name"] == "probes")
    assert port["containerPort"] == 9000
    assert tomllib.loads(config(found))["probes"] == f"{address}:9000"


@pytest.mark.parametrize("peers", [[], [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]])
def test_pods_reach_only_the_metrics(peers: list[Json]) -> None:
    found = render({"networkPolicy": {"from": peers}}).of_kind("NetworkPolicy")["rbdagent"]["spec"]
    expected: Json = {"ports": [{"port": "metrics"}]} | ({"from": peers} if peers else {})
    assert (found["policyTypes"], found["ingress"]) == (["Ingress"], [expected])


def test_the_rules_are_those_of_the_plain_file_by_default() -> None:
    spec = render(ALERTS | MONITOR).of_kind("PrometheusRule")["rbdagent"]["spec"]
    assert spec == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())


@pytest.mark.parametrize(
    ("release", "values", "expected"),
    [
        ("rbdagent", {}, "rbdagent"),
        ("prod-rbdagent", {}, "prod-rbdagent"),
        ("prod", {}, "prod-rbdagent"),
        ("prod", {"nameOverride": "holders"}, "prod-holders"),
        ("prod", {"fullnameOverride": "holders"}, "holders"),
    ],
)
def test_objects_are_named_after_the_release(release: str, values: Json, expected: str) -> None:
    assert list(render(values, release=release).of_kind("DaemonSet")) == [expected]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image": {"digest": "ab"}}, "/image/digest"),
        ({"probePort": 9464}, "port and probePort are equal"),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name is empty"),
        ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "maxSurge"),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "few"}}}, "/maxUnavailable"),
        ({"livenessProbe": {"httpGet": {"path": "/"}}}, "httpGet"),
        ({"extraVolumes": [{"configMap": {"name": "ca"}}]}, "/extraVolumes/0"),
        ({"mode": "unmap"}, "mode unmap needs ceph.clusters"),
        (
            {"kubeletRoot": "var/lib/kubelet"},
            'kubeletRoot is "var/lib/kubelet": give the absolute path of a directory on the nodes',
        ),
        (
            {"kubeletRoot": "var/lib/kubelet"},
            "without a slash at its end, a quote or a backslash, such as /var/lib/kubelet",
        ),
        ({"kubeletRoot": "/data/kubelet/"}, 'kubeletRoot is "/data/kubelet/": give the absolute '),
        ({"stateDir": 'a"b'}, 'stateDir is "a\\"b": give the absolute path'),
        ({"freezeDir": ""}, 'freezeDir is "": give the absolute path'),
        ({"freezeDir": None}, "freezeDir"),
        (with_alerts(disabled=["RBDMapingDead"]), "there is no alert RBDMapingDead; there are: "),
        (with_alerts(thresholds={"for": {"X": "1m"}}), "there is no alert X; there are: "),
        (with_alerts(thresholds={"orphaned": "soon"}), "/prometheusRule/thresholds/orphaned"),
    ],
)
def test_values_that_cannot_work_are_refused(values: Json, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        helm_template(values)


def test_the_schema_describes_the_values_in_their_order() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(schema["properties"]) == list(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.mark.parametrize(
    "variant", ["ceph-csi", "ceph-csi-operator", "rook", "rook-external", "rook-1.19"]
)
def test_agents_read_the_monitors_from_one_config_map_at_run_time(variant: str) -> None:
    """Nothing is looked up while the chart is rendered, so Argo CD and Flux render it as helm."""
    given = render(values_of(variant))
    (cluster,) = values_of(variant)["ceph"]["clusters"]
    place, name = cluster["monitorsFrom"], f"rbdagent-monitors-{cluster['name']}"
    (table,) = tomllib.loads(config(given))["ceph"]
    assert table["monitors-from"] == f"{place['namespace']}/{place['configMap']}"
    assert table["monitors-key"] == place.get("key", "config.json")
    assert table["cluster-id"] == place["clusterID"]
    assert "mon_host" not in str(given.of_kind("ConfigMap"))
    role, binding = given.of_kind("Role")[name], given.of_kind("RoleBinding")[name]
    assert {role["metadata"]["namespace"], binding["metadata"]["namespace"]} == {place["namespace"]}
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [place["configMap"]],
            "verbs": ["get"],
        }
    ]
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "rbdagent", "namespace": NAMESPACE}
    ]


def test_a_list_without_ids_needs_no_cluster_id() -> None:
    (cluster,) = values_of("rook")["ceph"]["clusters"]
    place = {"namespace": "monitors", "configMap": "endpoints"}
    plain = {"ceph": {"clusters": [{**cluster, "monitorsFrom": {**place, "key": "data"}}]}}
    (table,) = tomllib.loads(config(render(plain)))["ceph"]
    assert (table["monitors-key"], table["cluster-id"]) == ("data", "")
    with pytest.raises(ValueError, match=r"rook: monitorsFrom\.clusterID is missing"):
        render({"ceph": {"clusters": [{**cluster, "monitorsFrom": place}]}})


def test_a_key_without_a_keyring_is_read_from_the_users_name() -> None:
    """Rook's CephClient writes such a Secret."""
    given = render(values_of("rook"))
    (table,) = tomllib.loads(config(given))["ceph"]
    assert (table["keyfile"], table.get("keyring")) == ("/etc/rbdagent/ceph/rook/key", None)
    (cluster,) = values_of("rook")["ceph"]["clusters"]
    for more, key in (({}, "rbdagent"), ({"id": "east"}, "east")):
        values = {"ceph": {"clusters": [{**cluster, **more}]}}
        (volume,) = (found for found in render(values).pod["volumes"] if found["name"] == "config")
        assert volume["projected"]["sources"][-1] == {
            "secret": {
                "name": "rook-ceph-client-rbdagent",
                "items": [{"key": key, "path": "ceph/rook/key"}],
            }
        }


CONSTRAINTS: Final = {
    "openshift": {
        "allowHostNetwork": False,
        "allowHostPorts": False,
        "allowPrivilegedContainer": False,
        "allowPrivilegeEscalation": False,
        "allowedCapabilities": ["SYS_PTRACE"],
        "requiredDropCapabilities": ["ALL"],
        "seccompProfiles": ["runtime/default"],
    },
    "openshift-unmap": {
        "allowHostNetwork": True,
        "allowHostPorts": True,
        "allowPrivilegedContainer": True,
        "allowPrivilegeEscalation": True,
        "allowedCapabilities": [],
        "requiredDropCapabilities": [],
    },
}
"""What differs between the modes."""


@pytest.mark.parametrize("variant", CONSTRAINTS)
def test_openshift_admits_the_pods_and_nothing_more(variant: str) -> None:
    given = render(values_of(variant))
    ((name, constraints),) = given.of_kind("SecurityContextConstraints").items()
    same = {
        "allowHostDirVolumePlugin": True,
        "allowHostIPC": False,
        "allowHostPID": False,
        "readOnlyRootFilesystem": True,
        "runAsUser": {"type": "MustRunAs", "uid": 0},
        "priority": 0,
        "users": None,
        "groups": None,
    }
    for key, value in (same | CONSTRAINTS[variant]).items():
        assert constraints.get(key) == value, key
    volumes = {kind for volume in given.pod["volumes"] for kind in volume if kind != "name"}
    assert volumes <= set(constraints["volumes"])
    context = given.container["securityContext"]
    added = context.get("capabilities", {}).get("add", [])
    assert added == constraints["allowedCapabilities"]
    assert context.get("privileged", False) == constraints["allowPrivilegedContainer"]
    metadata = given.daemon_set["spec"]["template"]["metadata"]
    assert metadata["annotations"]["openshift.io/required-scc"] == name
    role = given.of_kind("Role")["rbdagent-scc"]
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == ([name], ["use"])
    assert given.of_kind("RoleBinding")["rbdagent-scc"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "rbdagent", "namespace": NAMESPACE}
    ]


def test_existing_constraints_are_bound_and_not_changed() -> None:
    given = render({"securityContextConstraints": {"name": "privileged"}})
    assert given.of_kind("SecurityContextConstraints") == {}
    (rule,) = given.of_kind("Role")["rbdagent-scc"]["rules"]
    assert rule["resourceNames"] == ["privileged"]


def test_no_agent_runs_where_its_image_does_not() -> None:
    """A nodeSelector of the user adds to that of the chart, and null removes a line of it."""
    selector = render({"nodeSelector": {"tier": "storage"}}).pod["nodeSelector"]
    linux = {"kubernetes.io/os": "linux"}
    assert selector == {**linux, "kubernetes.io/arch": "amd64", "tier": "storage"}
    assert render({"nodeSelector": {"kubernetes.io/arch": None}}).pod["nodeSelector"] == linux


def test_the_chart_queries_no_cluster_while_it_is_rendered() -> None:
    templates = [path.read_text() for path in (CHART / "templates").iterdir()]
    assert [text for text in templates if re.search(r"{{[^}]*\blookup\b", text)] == []


@pytest.mark.parametrize("variant", ["", *VARIANTS])
def test_rendering_twice_gives_the_same_bytes(variant: str) -> None:
    """Argo CD compares what it renders with what it applied: a difference would never end."""
    values = values_of(variant) if variant else {}
    assert helm_template(values) == helm_template(values)
