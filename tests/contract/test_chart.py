"""The chart without a cluster: what each value changes in the rendered objects."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import yaml

from tests.support.chart import CHART, Rendered, helm_template, render, values_of

if TYPE_CHECKING:
    from collections.abc import Callable

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


def labels(given: Rendered) -> object:
    """Return the value of the label team of every object and of the pods."""
    pods = given.daemon_set["spec"]["template"]
    return {(found["metadata"]["labels"]).get("team") for found in (*given.objects, pods)}


ROWS: Final = {
    "image.registry": Row(
        {"image": {"registry": "harbor.example:5000/ops"}},
        lambda given: given.container["image"],
        "harbor.example:5000/ops/rbdagent:0.1.0",
        "registry.rbdagent.dev/rbdagent:0.1.0",
    ),
    "image.registry empty": Row(
        {"image": {"registry": ""}},
        lambda given: given.container["image"],
        "rbdagent:0.1.0",
        "registry.rbdagent.dev/rbdagent:0.1.0",
    ),
    "image.repository": Row(
        {"image": {"repository": "storage/rbdagent"}},
        lambda given: given.container["image"],
        "registry.rbdagent.dev/storage/rbdagent:0.1.0",
        "registry.rbdagent.dev/rbdagent:0.1.0",
    ),
    "image.tag and digest": Row(
        {"image": {"tag": "0.2.0", "digest": DIGEST}},
        lambda given: given.container["image"],
        f"registry.rbdagent.dev/rbdagent:0.2.0@{DIGEST}",
        "registry.rbdagent.dev/rbdagent:0.1.0",
    ),
    "global.imageRegistry": Row(
        {"global": {"imageRegistry": "mirror.example"}, "image": {"registry": "other.example"}},
        lambda given: given.container["image"],
        "mirror.example/rbdagent:0.1.0",
        "registry.rbdagent.dev/rbdagent:0.1.0",
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
        ["rbdagent", "rbdagent", "rbdagent-cli", "rbdagent-exec", "rbdagent-view"],
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
        "NODE_NAME",
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


@pytest.mark.parametrize("name", ROWS)
def test_a_value_changes_the_objects_that_it_names(name: str) -> None:
    row = ROWS[name]
    assert row.read(render()) == row.by_default
    assert row.read(render(row.values)) == row.expected


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
        ({"serviceAccount": {"create": False}}, "serviceAccount.name is empty"),
        ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "maxSurge"),
        ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "few"}}}, "/maxUnavailable"),
        ({"livenessProbe": {"httpGet": {"path": "/"}}}, "httpGet"),
        ({"extraVolumes": [{"configMap": {"name": "ca"}}]}, "/extraVolumes/0"),
        ({"mode": "unmap"}, "mode unmap needs ceph.clusters"),
    ],
)
def test_values_that_cannot_work_are_refused(values: Json, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        helm_template(values)


def test_the_schema_describes_the_values_in_their_order() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(schema["properties"]) == list(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.mark.parametrize("variant", ["unmap", "microk8s"])
def test_rendering_twice_gives_the_same_bytes(variant: str) -> None:
    """Argo CD compares what it renders with what it applied: a difference would never end."""
    values = values_of(variant)
    assert helm_template(values) == helm_template(values)
