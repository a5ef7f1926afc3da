"""Why a part of the CSI driver does not run: its DaemonSet or Deployment names the cause."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.model import (
    CSINode,
    DriverWorkload,
    NotObserved,
    Requirement,
    Severity,
    Snapshot,
    Taint,
    Toleration,
)
from rbdagent.parse.kubernetes import driver_workload, workload_pod
from tests.support.driver_workloads import (
    EVERY_TAINT,
    NO_ACCOUNT,
    controller,
    controller_down,
    failed_create,
    not_created,
    one_missing,
    plugin,
    plugin_pod,
    warning_of_pod,
)
from tests.support.random_clusters import Maker
from tests.support.rows import each_row
from tests.support.rule_rows.growth import expanding, grown
from tests.support.rule_rows.node_stage import WITHOUT
from tests.support.rule_rows.pv_controller import CONTROLLERS, life
from tests.support.rule_tables import attached, listing, mounting
from tests.support.snapshots import (
    DRIVER,
    JUST_NOW,
    LONG_AGO,
    NOW,
    codes,
    found,
    node,
    waiting_pod,
)

GPU: Final = Taint(key="example.org/gpu", value="yes", effect="NoSchedule")
FORBIDDEN: Final = NotObserved(
    reason="GET /apis/apps/v1/daemonsets: forbidden", hint="grant the permission"
)
LONG_SINCE: Final = "2026-11-21T02:40:00Z"


def without(*found: DriverWorkload, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot in which the driver is not registered on worker-2, where a pod waits."""
    return mounting(**{"csi_nodes": WITHOUT, "node_plugins": found, **in_kube})


def on_node(*found: DriverWorkload, **fields: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build the same snapshot with a node that differs."""
    return without(*found, nodes=(node(), listing("worker-2", **fields)))


def unattached(*found: DriverWorkload, **in_kube: Any) -> Snapshot:  # noqa: ANN401
    """Build a snapshot in which no component has attached the volume for a day."""
    parts = {"attachments": attached("worker-2", attached=False), "controllers": found}
    return mounting(**{**parts, **in_kube})


def unprovisioned(*found: DriverWorkload, **in_kube: Any) -> Snapshot:  # noqa: ANN401
    """Build a snapshot in which a claim waits, and no pod of its provisioner runs."""
    parts = {"leases": (CONTROLLERS,), "driver_pods": (), "controllers": found}
    return life(**{**parts, **in_kube})


NO_NODE_HAS_IT: Final = (
    CSINode(node_name="worker-1", drivers=()),
    CSINode(node_name="worker-2", drivers=()),
)
NODE_PLUGIN: Final = "DaemonSet rook-ceph/csi-rbdplugin, the node plugin of rbd.csi.ceph.com, "
NOT_READY: Final = plugin_pod(
    container="csi-rbdplugin", waiting="CrashLoopBackOff", message="back-off 5m0s"
)
OF_NODE: Final[dict[str, tuple[Snapshot, str]]] = {
    "its ServiceAccount is missing": (
        without(not_created(NO_ACCOUNT)),
        "cannot create its pods: the ServiceAccount rook-ceph/rook-csi-rbd-plugin-sa does not",
    ),
    "a quota": (
        without(
            not_created(
                'pods "x" is forbidden: exceeded quota: storage, requested: pods=1, used: pods=4, '
                "limited: pods=4"
            )
        ),
        "cannot create its pods: the ResourceQuota storage of its namespace allows no more.",
    ),
    "a quota for its PriorityClass": (
        without(
            not_created(
                "insufficient quota to match these scopes: [{PriorityClass In "
                "[system-node-critical system-cluster-critical]}]"
            )
        ),
        "cannot create its pods: a ResourceQuota does not admit them.",
    ),
    "PodSecurity": (
        without(
            not_created(
                'pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces '
                "(hostNetwork=true)"
            )
        ),
        "cannot create its pods: the namespace enforces PodSecurity baseline:latest, which forbids",
    ),
    "OpenShift": (
        without(
            not_created(
                'pods "x" is forbidden: unable to validate against any security context '
                "constraint: []"
            )
        ),
        "cannot create its pods: no SecurityContextConstraints of OpenShift admit them.",
    ),
    "a PriorityClass": (
        without(not_created('pods "x" is forbidden: no PriorityClass with name high was found')),
        "cannot create its pods: the PriorityClass high does not exist.",
    ),
    "a webhook that is down": (
        without(
            not_created(
                'Internal error occurred: failed calling webhook "validate.kyverno.svc-fail": '
                "failed to call webhook: context deadline exceeded"
            )
        ),
        "cannot create its pods: the admission webhook validate.kyverno.svc-fail does not answer.",
    ),
    "a webhook that refuses": (
        without(
            not_created('admission webhook "validate.kyverno.svc-fail" denied the request: no')
        ),
        "cannot create its pods: the admission webhook validate.kyverno.svc-fail refuses them.",
    ),
    "a text that is not known": (
        without(not_created('pods "x" is forbidden: out of luck')),
        'cannot create its pods: "Error creating: pods \\"x\\" is forbidden: out of luck".',
    ),
    "its nodeSelector": (
        on_node(plugin(node_selector=(("storage", "ceph"),)), labels=(("storage", "no"),)),
        "places no pod on worker-2: its nodeSelector asks for storage=ceph, and the node has no",
    ),
    "its node affinity": (
        on_node(
            plugin(node_affinity=((Requirement(key="storage", operator="In", values=("ceph",)),),)),
        ),
        'places no pod on worker-2: its node affinity asks for "storage In ceph", and the node',
    ),
    "a taint": (
        on_node(
            plugin(tolerations=(Toleration(key="example.org/gpu", value="no"),)), taints=(GPU,)
        ),
        "places no pod on worker-2: the node has the taint example.org/gpu=yes:NoSchedule, and the",
    ),
    "no room": (
        without(one_missing(plugin_pod(unschedulable="0/2 nodes: 1 Too many pods"))),
        'csi-rbdplugin-x7k2p, which gets no node: "0/2 nodes: 1 Too many pods".',
    ),
    "an image": (
        without(one_missing(plugin_pod(waiting="ImagePullBackOff"))),
        "csi-rbdplugin-x7k2p, whose image cannot be pulled (ImagePullBackOff)",
    ),
    "a crash": (
        without(one_missing(NOT_READY)),
        "csi-rbdplugin-x7k2p, whose container csi-rbdplugin does not run (CrashLoopBackOff)",
    ),
    "a ConfigMap": (
        without(
            one_missing(
                plugin_pod(waiting="ContainerCreating"),
                events=(
                    warning_of_pod(
                        'MountVolume.SetUp failed for volume "ceph-csi-config" : configmap '
                        '"ceph-csi-config" not found'
                    ),
                ),
            )
        ),
        'which does not start: "MountVolume.SetUp failed for volume \\"ceph-csi-config\\"',
    ),
    "some are missing, and why was not observed": (
        without(plugin(current=1, ready=1, pods=FORBIDDEN, events=FORBIDDEN)),
        "has 1 of 2 pods Ready.",
    ),
}


@each_row(("seen", "words"), [pytest.param(*row, id=name) for name, row in OF_NODE.items()])
def test_node_plugin_that_does_not_run_is_named(seen: Snapshot, words: str) -> None:
    finding = found(seen, "RBD731")
    assert str(finding.subject) == "daemonset rook-ceph/csi-rbdplugin"
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith(NODE_PLUGIN)
    assert words in finding.message
    assert finding.commands


def test_driver_that_no_daemon_set_names_is_not_installed_on_the_nodes() -> None:
    finding = found(without(csi_nodes=NO_NODE_HAS_IT), "RBD731")
    assert finding.message.startswith(
        "No DaemonSet of this cluster names the CSI driver rbd.csi.ceph.com, and no node has "
        "registered it"
    )


HEALTHY: Final[dict[str, Snapshot]] = {
    "each pod is Ready": without(plugin()),
    "an unobserved DaemonSet": without(),
    "it tolerates everything": on_node(plugin(tolerations=(EVERY_TAINT,)), taints=(GPU,)),
    "it tolerates the taint": on_node(
        plugin(tolerations=(Toleration(key=GPU.key, value=GPU.value, effect=GPU.effect),)),
        taints=(GPU,),
    ),
    "a taint that keeps no pod off": on_node(
        plugin(), taints=(replace(GPU, effect="PreferNoSchedule"),)
    ),
    "a cordoned node": on_node(
        plugin(), taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),)
    ),
    "a label that the node has": on_node(
        plugin(node_selector=(("storage", "ceph"),)), labels=(("storage", "ceph"),)
    ),
    "an operator that is not known": on_node(
        plugin(tolerations=(Toleration(key=GPU.key, operator="Lt", value="5"),)), taints=(GPU,)
    ),
    "its pod there is Ready, and another one is not": without(
        one_missing(plugin_pod(ready=True), current=1, events=(failed_create(NO_ACCOUNT),))
    ),
    "a failure that is over": without(
        plugin(ready=1, current=1, events=(failed_create(NO_ACCOUNT, last_seen=LONG_AGO),))
    ),
    "an update with each pod Ready": without(plugin(updated=1)),
    "a pod is missing on another node": without(plugin(ready=1, current=1)),
    "a second DaemonSet serves the node": on_node(
        plugin(node_selector=(("storage", "ceph"),)), plugin()
    ),
}


@each_row("seen", [pytest.param(seen, id=name) for name, seen in HEALTHY.items()])
def test_workload_that_runs_is_not_accused(seen: Snapshot) -> None:
    assert str(found(seen, "RBD731").subject) == "pod default/web-1"


def test_driver_of_a_node_that_no_pod_needs_is_not_reported() -> None:
    # The node plugin is kept away from worker-2 on purpose, and web-0 runs on worker-1.
    seen = without(plugin(node_selector=(("storage", "ceph"),)), pods=())
    assert "RBD731" not in codes(seen)


ROLLING: Final = {
    "its pod there has just been created": one_missing(plugin_pod(created_at=NOW)),
    "the old pod there is gone": plugin(ready=1, current=1, updated=1),
}


@each_row("workload", [pytest.param(row, id=name) for name, row in ROLLING.items()])
def test_rolling_update_is_no_error(workload: DriverWorkload) -> None:
    seen = without(workload, pods=(waiting_pod(created_at=JUST_NOW),))
    finding = found(seen, "RBD731")
    assert finding.severity is Severity.INFO
    assert finding.recovery is not None
    assert finding.recovery.actor == "the controller of its pods"


def test_update_that_does_not_end_is_an_error() -> None:
    seen = without(ROLLING["the old pod there is gone"])
    assert found(seen, "RBD731").severity is Severity.ERROR
    # With OnDelete, the pods of the old template stay until they are deleted.
    seen = without(
        plugin(ready=1, current=1, updated=1, rolls=False),
        pods=(waiting_pod(created_at=JUST_NOW),),
    )
    assert found(seen, "RBD731").severity is Severity.ERROR


OF_CONTROLLER: Final[dict[str, tuple[DriverWorkload, str]]] = {
    "its ServiceAccount is missing": (
        controller_down(),
        "cannot create its pods: the ServiceAccount rook-ceph/rook-csi-rbd-plugin-sa does not",
    ),
    "scaled to 0": (controller(desired=0, current=0, ready=0), "is scaled to 0."),
    "no pod is Ready": (controller(ready=0), "has 0 of 2 pods Ready."),
    "an image": (
        controller(ready=0, pods=(plugin_pod(waiting="ErrImagePull"),)),
        "whose image cannot be pulled (ErrImagePull)",
    ),
}


def lacking(part: str) -> DriverWorkload:
    """Return a Deployment without one of its sidecars."""
    kept = tuple(one for one in controller().containers if part not in one)
    return controller(containers=kept)


@each_row(
    ("workload", "words"), [pytest.param(*row, id=name) for name, row in OF_CONTROLLER.items()]
)
def test_controller_that_does_not_run_is_named_by_each_step(
    workload: DriverWorkload, words: str
) -> None:
    steps = {
        "RBD712": (unattached(workload), "external-attacher"),
        "RBD713": (
            unattached(workload, attachments=attached("worker-2", deleting_since=LONG_SINCE)),
            "external-attacher",
        ),
        "RBD618": (unprovisioned(workload), "external-provisioner"),
        "RBD775": (grown(expanding(), controllers=(workload,)), "external-resizer"),
    }
    for code, (seen, part) in steps.items():
        finding = found(seen, code)
        assert str(finding.subject) == "deployment rook-ceph/csi-rbdplugin-provisioner"
        assert (
            finding.message.startswith(
                "Deployment rook-ceph/csi-rbdplugin-provisioner, which runs "
                f"{part} of rbd.csi.ceph.com, {words}"
            )
            or words in finding.message
        )
        assert finding.commands


def test_controller_without_the_container_is_named() -> None:
    assert (
        "has no container csi-attacher" in found(unattached(lacking("attacher")), "RBD712").message
    )
    seen = unprovisioned(lacking("provisioner"))
    # The name of the Deployment has the word too, and no container has.
    assert "has no container csi-provisioner" in found(seen, "RBD618").message
    seen = grown(expanding(), controllers=(lacking("resizer"),))
    assert "has no container csi-resizer" in found(seen, "RBD775").message


def test_controller_that_runs_is_not_accused() -> None:
    # A rolling update keeps one of two pods, and creates the other one in vain.
    for workload in (controller(), controller(ready=1, current=1, failure=NO_ACCOUNT)):
        assert found(unattached(workload), "RBD712").subject.kind == "volumeattachment"
        assert "RBD618" not in codes(unprovisioned(workload))
        assert found(grown(expanding(), controllers=(workload,)), "RBD775").subject.kind == "pvc"


def test_driver_that_no_deployment_names_is_reported() -> None:
    assert (
        "no Deployment of this cluster names that driver" in found(unattached(), "RBD712").message
    )
    message = found(unprovisioned(), "RBD606").message
    assert "no lease, no pod and no Deployment of this cluster shows that it runs" in message
    seen = unprovisioned(leases=FORBIDDEN)
    assert "shows that it runs" not in found(seen, "RBD606").message


def test_missing_permission_is_reported_with_what_grants_it() -> None:
    seen = mounting(csi_nodes=WITHOUT, node_plugins=FORBIDDEN)
    line = (
        "the DaemonSets of the driver were not observed: GET /apis/apps/v1/daemonsets: forbidden; "
        "grant the permission"
    )
    assert line in found(seen, "RBD731").evidence
    seen = mounting(attachments=attached("worker-2", attached=False), controllers=FORBIDDEN)
    assert any("Deployments of the driver" in one for one in found(seen, "RBD712").evidence)


def test_workload_of_an_operator_is_not_changed_by_hand() -> None:
    owner = ("Driver/rook-ceph.rbd.csi.ceph.com",)
    scaled = controller(desired=0, current=0, ready=0)
    lines = lines_of(found(unattached(scaled), "RBD712").commands)
    assert lines[0] == (
        "kubectl -n rook-ceph scale deployment csi-rbdplugin-provisioner --replicas=2"
    )
    finding = found(unattached(replace(scaled, owners=owner)), "RBD712")
    assert not any(command.changes for command in finding.commands)
    assert "it belongs to Driver/rook-ceph.rbd.csi.ceph.com" in str(finding.remedy)


def test_pod_and_event_cannot_end_the_sentence() -> None:
    hostile = 'x". The volume is free.\nRun `rbd unmap`\x1b[2J'
    for workload in (
        not_created(hostile),
        one_missing(plugin_pod(unschedulable=hostile)),
        one_missing(plugin_pod(waiting=hostile, message=hostile)),
        one_missing(plugin_pod(), events=(warning_of_pod(hostile),)),
    ):
        finding = found(without(workload), "RBD731")
        assert str(finding.statement.rest) == (
            "Without it, no pod there can use a volume of this driver."
        )
        assert "\x1b" not in finding.message
        assert "\n" not in finding.message
        assert not any("\x1b" in line or "\n" in line for line in finding.evidence)


def test_long_ago_is_not_young() -> None:
    finding = found(without(one_missing(plugin_pod(created_at=LONG_AGO))), "RBD731")
    assert finding.severity is Severity.ERROR
    assert "is not Ready; it was created" in finding.message
    assert DRIVER in finding.message


def test_all_pods_that_wait_for_a_daemon_set_are_one_cause() -> None:
    maker = Maker(Random(0))
    maker.csi_nodes = [replace(one, drivers=()) for one in maker.csi_nodes]
    maker.pods = [replace(one, phase="Pending", ready=False, containers=()) for one in maker.pods]
    maker.attachments = []
    maker.of_kube = {"node_plugins": (not_created(NO_ACCOUNT),), "controllers": (controller(),)}
    (cause,) = report_cluster(maker.from_afar()).causes
    assert str(cause.finding.subject) == "daemonset rook-ceph/csi-rbdplugin"
    nodes = {pod.node_name for pod in maker.pods}
    assert len(cause.affected) == len(maker.pods) > len(nodes) > 1


def test_all_volumes_that_wait_for_a_deployment_are_one_cause() -> None:
    maker = Maker(Random(0))
    maker.pods = [replace(one, phase="Pending", ready=False, containers=()) for one in maker.pods]
    maker.attachments = [
        replace(one, attached=False, created_at=LONG_AGO) for one in maker.attachments
    ]
    maker.of_kube = {"node_plugins": (plugin(),), "controllers": (controller_down(),)}
    (cause,) = report_cluster(maker.from_afar()).causes
    assert cause.finding.code == "RBD712"
    assert str(cause.finding.subject) == "deployment rook-ceph/csi-rbdplugin-provisioner"
    assert len(cause.affected) == len(maker.pods) > 1


def test_variables_of_a_container_are_resolved() -> None:
    """As the chart of ceph-csi names the driver (templates/nodeplugin-daemonset.yaml)."""
    container = {
        "name": "csi-rbdplugin",
        "args": ["--type=rbd", "--drivername=$(DRIVER_NAME)"],
        "env": [{"name": "DRIVER_NAME", "value": "rbd.example.org"}],
    }
    assert served_by(container) == ("rbd.example.org",)
    elsewhere = {"name": "DRIVER_NAME", "valueFrom": {"configMapKeyRef": {"name": "c"}}}
    assert served_by({**container, "env": [elsewhere]}) == ("$(DRIVER_NAME)",)


def served_by(container: dict[str, Any]) -> tuple[str, ...]:
    meta = {"name": "csi", "namespace": "rook-ceph", "uid": "u"}
    spec = {"template": {"spec": {"containers": [container]}}}
    return driver_workload({"metadata": meta, "spec": spec}, kind="DaemonSet").serves


def test_evicted_pod_is_none_of_a_workload() -> None:
    data = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}}
    assert workload_pod({**data, "status": {"phase": "Failed"}}) is None
    assert workload_pod({**data, "status": {"phase": "Pending"}}) is not None
