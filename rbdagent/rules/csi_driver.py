"""RBD731 to RBD734: the CSI driver on a node.

Whether it is installed and registered, sees the directory of kubelet, and has its secret and the
configuration of the volume's cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl, template
from rbdagent.correlate.node_usage import kubelet_of
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    CollectScope,
    Finding,
    LifecycleStep,
    Node,
    NotObserved,
    Pod,
    Recovery,
    Severity,
    Subject,
    SubjectKind,
    VolumeAttachment,
    observed_of,
    stated,
)
from rbdagent.parse.faults import Fault
from rbdagent.parse.foreign import foreign_name
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import Rule, RuleContext, finding, list_pods_on
from rbdagent.rules.controller_texts import NEEDED_FIELDS, NO_MONITORS_REMEDY
from rbdagent.rules.driver_workloads import (
    Outage,
    not_observed_lines,
    outage_finding,
    plugin_outage,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    CONFIG_MAPS,
    CSI_NODE,
    FIXED_ATTRIBUTES,
    NODE_PODS,
    STAGE_SECRET,
    ErrorText,
    failed_calls,
    field_of_volume,
    retried,
)
from rbdagent.rules.facts import is_only_node
from rbdagent.rules.pod_events import PodEvent, has_waited, scheduler_message, unscheduled, waiters
from rbdagent.verdicts.timing import LONG, MOVING, RETRY_S, is_young, seconds
from rbdagent.verdicts.volume_verdict import driver_of, may_map_by_nbd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


ENTRIES: Final = (
    Entry(
        Code.DRIVER_DOWN_WHERE_WANTED,
        Severity.ERROR,
        "The CSI driver does not respond on the node where the pod waits.",
        remedy="Start the CSI node plugin on that node. The pod then starts automatically.",
        recovery=retried("the driver responds there"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.DRIVER_NOT_INSTALLED,
        Severity.ERROR,
        "No CSI driver with the name that the volume requires is installed in this cluster.",
        remedy="Install the driver under exactly that name. Otherwise set the PV to Retain and "
        "create it again with the installed driver: the driver of a PV cannot be changed.",
        recovery=retried("the driver is installed"),
        step=LifecycleStep.ATTACH,
    ),
    Entry(
        Code.SECRET_MISSING,
        Severity.ERROR,
        "The secret that the driver needs for this volume is missing, or may not be read.",
        remedy="Create the secret again under exactly that name and namespace, with the keys "
        "userID and userKey.",
        recovery=retried("the secret exists"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.CLUSTER_NOT_CONFIGURED,
        Severity.ERROR,
        "ceph-csi has no configuration for the clusterID that the volume names.",
        remedy="Add the clusterID with the monitors of the right Ceph cluster. Make sure that it "
        "is the right one: different clusters can have the same pool IDs and image names.",
        recovery=retried("the clusterID is configured"),
        step=LifecycleStep.STAGE,
    ),
)
_SHOW_ACCESS: Final = template("kubectl describe secret", "{name}", namespace="{namespace}")
_DAEMON_SETS: Final = template("kubectl get daemonsets -A -o wide")
_NO_NODE_PLUGIN: Final = (
    "If that node has no pod of the node plugin, its DaemonSet places none there: compare the "
    "node's taints and labels with its tolerations and nodeSelector (nodeplugin.tolerations of "
    "ceph-csi's chart, CSI_PLUGIN_TOLERATIONS of Rook). If it has one, its log shows why it is not "
    "registered. The pod then starts automatically."
)
_SETTINGS: Final = (
    "kubeletDir of the Helm chart of ceph-csi, ROOK_CSI_KUBELET_DIR_PATH of Rook, kubeletDirPath "
    "of ceph-csi-operator"
)
# The container of the plugin has only the path that it mounts (rook#12556, and rook#3923 about bind
# mounts and symbolic links).
_NO_LINK: Final = (
    "To keep the directory on another disk, mount that disk at the directory of the other nodes. A "
    "symbolic link there does not help: kubelet passes the path of its --root-dir to the plugin."
)
_KUBELET_DIR: Final = (
    f"If all nodes have the directory of kubelet there, deploy the node plugin with it ({_SETTINGS}"
    "); if only this node has it there, drain the node and set --root-dir of its kubelet back, "
    f"because the setting of the plugin is for all nodes. {_NO_LINK}"
)
_DEPLOY_FOR_KUBELET: Final = f"Deploy the node plugin with the directory of kubelet: {_SETTINGS}."
_MOVE_KUBELET_BACK: Final = (
    "Drain the node, and set --root-dir of its kubelet back to the directory of the other nodes, "
    "where the driver is registered: the setting of the plugin is for all nodes, and another one "
    f"would keep them from mounting. {_NO_LINK}"
)


DRIVER_TEXTS: Final = (
    ErrorText(
        (Recognised.DRIVER_NOT_REGISTERED,),
        Code.DRIVER_DOWN_WHERE_WANTED,
        "the CSI driver {driver} is not registered with kubelet there",
        (NODE_PODS, _DAEMON_SETS, template("kubectl describe node", "{node}")),
        _NO_NODE_PLUGIN,
    ),
    ErrorText(
        (Recognised.DRIVER_SILENT,),
        Code.DRIVER_DOWN_WHERE_WANTED,
        "the CSI driver {driver} does not respond there",
        (NODE_PODS, CSI_NODE),
    ),
    ErrorText(
        (Recognised.SECRET_FIELD_MISSING,),
        Code.SECRET_MISSING,
        "the secret that the PV names for the node has no field {field}",
        (STAGE_SECRET,),
        NEEDED_FIELDS,
        retried("the secret has the field"),
    ),
    ErrorText(
        # kubelet sends an empty map for a PV without the reference (MountDevice, csi_attacher.go).
        (Recognised.NO_STAGE_SECRET,),
        Code.SECRET_MISSING,
        "the driver gets no secret for the node: the PV has no nodeStageSecretRef, or the secret "
        "that it names has no fields",
        (STAGE_SECRET,),
        "If the PV has a nodeStageSecretRef, write userID and userKey into that secret. If it has "
        "none, set the PV to Retain and create it again with one: the reference cannot be changed. "
        "For new volumes, the class needs csi.storage.k8s.io/node-stage-secret-name and "
        "-namespace.",
        retried("the PV names a secret with these fields"),
    ),
    ErrorText(
        (Recognised.NO_STAGING_PATH,),
        Code.DRIVER_DOWN_WHERE_WANTED,
        "kubelet has its directories at {root}, and the CSI node plugin does not see them there",
        (_DAEMON_SETS, NODE_PODS),
        _KUBELET_DIR,
        retried("kubelet and the node plugin use one directory"),
        causes=(
            (
                is_only_node,
                ErrorText(
                    (),
                    Code.DRIVER_DOWN_WHERE_WANTED,
                    "kubelet has its directories at {root}, and the CSI node plugin does not see "
                    "them there",
                    (_DAEMON_SETS, NODE_PODS),
                    _DEPLOY_FOR_KUBELET,
                    retried("the node plugin mounts that directory"),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.SECRET_MISSING, Recognised.ATTACHERS_SECRET_MISSING),
        Code.SECRET_MISSING,
        "the driver needs the secret {namespace}/{name}, but cannot read it",
        (_SHOW_ACCESS,),
    ),
    ErrorText(
        (Recognised.SECRET_WITHOUT_NAMESPACE,),
        Code.SECRET_MISSING,
        "the PV names the secret {name} without its namespace",
        (field_of_volume("rbd.secretRef"), STAGE_SECRET),
        "A PV of the in-tree plugin may leave the namespace out, and CSI needs it. The secretRef "
        "of a PV cannot be changed: set Retain, and create the PV again with the namespace.",
        Recovery(note="a PV's secretRef cannot be changed"),
    ),
    ErrorText(
        (Recognised.NO_CLUSTER,),
        Code.CLUSTER_NOT_CONFIGURED,
        "ceph-csi's configuration does not contain the cluster {cluster}",
        CONFIG_MAPS,
    ),
    ErrorText(
        (Recognised.CONFIGURATION_UNREADABLE,),
        Code.CLUSTER_NOT_CONFIGURED,
        "the CSI node plugin cannot read ceph-csi's configuration {path}: {why}",
        (*CONFIG_MAPS, _DAEMON_SETS),
        "Restore the ConfigMap, and mount it into the pods of the node plugin at "
        "/etc/ceph-csi-config, with the file config.json in it.",
        retried("the plugin can read the file"),
    ),
    ErrorText(
        # The mapping is read for a static PV, and after an image or its pool was not found.
        (Recognised.CONFIGURATION_MALFORMED,),
        Code.CLUSTER_NOT_CONFIGURED,
        "ceph-csi's configuration there (config.json, or cluster-mapping.json) is not valid "
        "JSON, or not of the expected form: {why}",
        CONFIG_MAPS,
        "Correct that file in the ConfigMap. The event quotes its content: config.json is a list "
        "of objects with clusterID and monitors, and monitors is a list. It applies to every "
        "volume of the driver.",
        retried("the file is valid"),
    ),
    ErrorText(
        (Recognised.NO_CLUSTER_ID,),
        Code.CLUSTER_NOT_CONFIGURED,
        "the PV has staticVolume and no clusterID in its volumeAttributes",
        (field_of_volume("csi.volumeAttributes"), *CONFIG_MAPS),
        "Set the PV to Retain and create it again with the clusterID of the cluster that has the "
        "image: the attributes of a PV cannot be changed.",
        FIXED_ATTRIBUTES,
    ),
)
MONITORS_TEXTS: Final = (
    ErrorText(
        (Recognised.NO_MONITORS,),
        Code.CLUSTER_NOT_CONFIGURED,
        "ceph-csi's configuration contains the cluster {cluster}, and no monitors of it",
        CONFIG_MAPS,
        NO_MONITORS_REMEDY,
    ),
    ErrorText(
        (Recognised.NO_NETWORK_NAMESPACE,),
        Code.CLUSTER_NOT_CONFIGURED,
        "ceph-csi's configuration sends the map into the network namespace {path}, and that path "
        "does not exist there",
        CONFIG_MAPS,
        "Remove netNamespaceFilePath from the entry of the cluster if the node plugin uses the "
        "network of the host. If it is meant (Multus), the pod that keeps the namespace (Rook's "
        "csi-rbdplugin-holder) has to run on that node. A template in the path is not filled in.",
    ),
    ErrorText(
        failed_calls(Fault.NO_CONFIGURATION),
        Code.CLUSTER_NOT_CONFIGURED,
        "the CSI driver has no monitors or no keyring for the volume's cluster",
        CONFIG_MAPS,
        "Add the monitors of the volume's clusterID to ceph-csi's configuration, and check the "
        "secret with the user's key. Make sure that it is the right cluster: different clusters "
        "can have the same pool IDs and image names.",
    ),
)


def is_attacher_back(attachment: VolumeAttachment, context: RuleContext) -> bool:
    """Return whether the driver is back; an attachError is never older than its attachment."""
    error, created_at = attachment.attach_error, attachment.created_at
    return _is_registered_by_now(error, created_at, attachment.node_name, context)


def is_attachment_new(attachment: VolumeAttachment, context: RuleContext) -> bool:
    """Return whether the attachment or the node is so new that the driver may still start."""
    young = is_young(attachment.created_at, context.snapshot.observed_at, MOVING) is True
    return young or has_just_come(attachment.node_name, context)


def _made_again(driver: str, known: Sequence[str], context: RuleContext) -> str:
    """Return how to mend a PV made by hand that names one RBD driver in place of the other.

    Rook puts the namespace of its operator before the name of the driver.
    """
    others = [other for other in known if other.endswith(_OF_RBD)]
    volume = context.volume.persistent_volume
    if volume is None or volume.provisioner or len(others) != 1 or not driver.endswith(_OF_RBD):
        return ""
    return (
        f"Set the PV to Retain, so that its image stays, and make it again with the driver "
        f"{others[0]}, which is installed: the driver of a PV cannot be changed. The secrets that "
        "it names are those of that driver."
    )


_OF_RBD: Final = "rbd.csi.ceph.com"


def driver_missing(context: RuleContext) -> Iterator[Finding]:
    """Report RBD731, RBD732: the node where a pod waits has no driver for its volume."""
    without = [pod for pod in waiters(context) if lacks_driver(pod.node_name, context)]
    driver = driver_of(context.volume)
    if not without or driver is None:
        return
    outages = {str(pod.node_name): _plugin_outage(context, driver, pod) for pod in without}
    for outage in dict.fromkeys(found for found in outages.values() if found is not None):
        yield _of_workload(outage)
    without = [pod for pod in without if outages[str(pod.node_name)] is None]
    if not without:
        return
    pods = [pod.ref for pod in without]
    nodes = sorted({str(pod.node_name) for pod in without})
    if is_not_installed(driver, context):
        known = known_drivers(context)
        yield finding(
            Code.DRIVER_NOT_INSTALLED,
            Subject.of_pod(without[0].ref),
            stated(
                "{pods} cannot start: {volume} requires the CSI driver {driver}, which is not "
                "installed in this cluster. Installed drivers: {}.",
                stated("{drivers}", drivers=known) if known else "none",
                pods=pods,
                volume=context.name,
                driver=driver,
            ),
            evidence=(f"no CSIDriver {driver} exists, and no CSINode lists it",),
            remedy=_made_again(driver, known, context),
            commands=(kubectl("get csidriver"),),
        )
        return
    place = stated(
        "{pods} cannot start on {nodes}: the CSI driver {driver} is",
        pods=pods,
        nodes=nodes,
        driver=driver,
    )
    unlisted = (
        *(f"CSINode {node} does not list {driver}" for node in nodes),
        *not_observed_lines(context, of_nodes=True),
    )
    elsewhere = _other_root(context) if nodes == [context.here_if_known] else ""
    if elsewhere:
        yield finding(
            Code.DRIVER_DOWN_WHERE_WANTED,
            Subject.of_pod(without[0].ref),
            stated(
                "{} not registered there, and the directory of kubelet is {path}: a node plugin "
                "that is deployed for {} does not reach kubelet.",
                place,
                _ROOT,
                path=foreign_name(elsewhere),
            ),
            evidence=(*unlisted, f"kubelet has its directories at {foreign_name(elsewhere)}"),
            remedy=_for_root(driver, nodes, context),
            commands=(
                kubectl("get daemonsets -A -o wide"),
                *(list_pods_on(node) for node in nodes),
            ),
        )
        return
    if _is_on_no_node(driver, context):
        yield finding(
            Code.DRIVER_DOWN_WHERE_WANTED,
            Subject.of_pod(without[0].ref),
            stated(
                "{} registered on no node. Look at the DaemonSet of its node plugin and at its "
                "operator, not at this node.",
                place,
            ),
            evidence=(*unlisted, "no CSINode of the cluster lists it"),
            remedy="With Rook or ceph-csi-operator, a Driver object creates the DaemonSet: see its "
            "status (`kubectl get drivers.csi.ceph.io -A`), and the operator's log. Without an "
            "operator, apply the DaemonSet again.",
            commands=(
                kubectl("get daemonsets -A -o wide"),
                *(list_pods_on(node) for node in nodes),
            ),
        )
        return
    if nodes == [context.here_if_known] and _lacks_module(context):
        yield finding(
            Code.DRIVER_DOWN_WHERE_WANTED,
            Subject.of_pod(without[0].ref),
            stated(
                "{} not registered there, and the kernel has not loaded the module rbd: the node "
                "plugin loads it when it starts, and does not start without it.",
                place,
            ),
            evidence=(*unlisted, "no /sys/bus/rbd"),
            remedy="Load the module on that node (`modprobe rbd`), and add rbd to "
            "/etc/modules-load.d. If modprobe does not find it, install the package with the "
            "additional modules of that kernel. The plugin's pod then starts.",
            commands=(
                command("modprobe rbd", node=nodes[0]),
                *(list_pods_on(node) for node in nodes),
            ),
        )
        return
    yield finding(
        Code.DRIVER_DOWN_WHERE_WANTED,
        Subject.of_pod(without[0].ref),
        stated(
            "{} not registered there. Its node plugin is not running on that node, or did not "
            "reach kubelet.",
            place,
        ),
        evidence=unlisted,
        remedy=_NO_NODE_PLUGIN,
        commands=(
            *(list_pods_on(node) for node in nodes),
            kubectl("get daemonsets -A -o wide"),
            *(kubectl("describe node", node) for node in nodes),
        ),
    )


def _plugin_outage(context: RuleContext, driver: str, pod: Pod) -> Outage | None:
    """Return why the node plugin does not run where a pod waits; None if the rule knows more.

    It knows more of a driver that is not installed, and of a plugin that cannot load the module.
    """
    outage = plugin_outage(context, driver, str(pod.node_name))
    if outage is None:
        return None
    if outage.subject.kind is SubjectKind.CONTROLLER and is_not_installed(driver, context):
        return None
    is_here = pod.node_name == context.here_if_known
    return None if outage.has_pod and is_here and _lacks_module(context) else outage


def _of_workload(outage: Outage) -> Finding:
    """Return RBD731 for the DaemonSet of the node plugin."""
    then = "Without it, no pod there can use a volume of this driver."
    return outage_finding(Code.DRIVER_DOWN_WHERE_WANTED, outage, then)


_ROOT: Final = "/var/lib/kubelet"


def _other_root(context: RuleContext) -> str:
    """Return the directory of the observed kubelet, if it is not the usual one; else empty."""
    kubelet = kubelet_of(context.snapshot)
    roots = () if isinstance(kubelet, NotObserved) else kubelet.roots
    return "" if not roots or _ROOT in roots else roots[0]


def _for_root(driver: str, nodes: list[str], context: RuleContext) -> str:
    """Return how kubelet and the node plugin get one directory; the other nodes decide.

    Where a driver is registered, its plugin has the directory of kubelet: the socket is in it.
    """
    if is_only_node(context, {}):
        return _DEPLOY_FOR_KUBELET
    kube = context.snapshot.kubernetes
    listed = () if kube is None else observed_of(kube.csi_nodes)
    elsewhere = any(driver in one.drivers for one in listed if one.node_name not in nodes)
    return _MOVE_KUBELET_BACK if elsewhere else _KUBELET_DIR


def _is_on_no_node(driver: str, context: RuleContext) -> bool:
    """Return whether every node of the cluster lacks the driver."""
    if not context.kube.coverage.nodes():
        return False
    names = context.kube.node_by_name.keys()
    return (
        driver not in context.kube.registered_drivers
        and len(names) > 1
        and names <= context.kube.csi_nodes.keys()
    )


def _lacks_module(context: RuleContext) -> bool:
    node = context.snapshot.node
    return node is not None and not node.module_loaded and not may_map_by_nbd(context.volume)


def lacks_driver(node: str | None, context: RuleContext) -> bool:
    """Return whether a node lacks the volume's driver; false if the node is new."""
    kube, driver = context.snapshot.kubernetes, driver_of(context.volume)
    if kube is None or driver is None:
        return False
    listed = context.kube.csi_nodes.get(node or "")
    if listed is None or driver in listed.drivers:
        return False
    return not has_just_come(node, context)


def has_just_come(node: str | None, context: RuleContext) -> bool:
    """Return whether a node became Ready so recently that its drivers may still start."""
    found = node_named(node, context.snapshot)
    return isinstance(found, Node) and (
        is_young(found.ready_changed_at, context.snapshot.observed_at, MOVING) is True
    )


def _is_registered_by_now(
    text: str, last_seen: str | None, node: str | None, context: RuleContext
) -> bool:
    """Return whether a driver that was missing a moment ago is registered now.

    False if it has been missing for longer. CSINode keeps its list while kubelet restarts: a driver
    is removed only when kubelet sees it unregister (pkg/volume/csi/nodeinfomanager).
    """
    kube, driver = context.snapshot.kubernetes, driver_of(context.volume)
    if kube is None or driver is None or not Recognised.DRIVER_NOT_REGISTERED.is_in(text):
        return False
    if is_young(last_seen, context.snapshot.observed_at, seconds(RETRY_S)) is not True:
        return False
    listed = context.kube.csi_nodes.get(node or "")
    return listed is not None and driver in listed.drivers


def is_back(pod_event: PodEvent, context: RuleContext) -> bool:
    """Return whether the driver is back since the event of a pod that has not waited for long."""
    if pod_event.pod is None or has_waited(pod_event.pod, context.snapshot, LONG):
        return False
    return _is_registered_by_now(pod_event.text, pod_event.event.last_seen, pod_event.node, context)


def known_drivers(context: RuleContext) -> tuple[str, ...]:
    """Return the names of the CSIDriver objects, sorted; none if they were not observed."""
    kube = context.snapshot.kubernetes
    return () if kube is None else tuple(sorted(observed_of(kube.drivers)))


def is_not_installed(driver: str, context: RuleContext) -> bool:
    """Return whether no CSI driver of that name is installed in this cluster.

    A driver needs no CSIDriver: only the CSINodes of all nodes show that it runs nowhere.
    """
    kube = context.snapshot.kubernetes
    if kube is None or isinstance(kube.drivers, NotObserved) or not kube.nodes_complete:
        return False
    if not context.kube.coverage.csi_nodes:
        return False
    return driver not in kube.drivers and driver not in context.kube.registered_drivers


def unregistered_driver(context: RuleContext) -> Iterator[Finding]:
    """Report RBD731 for a pod without a node: the scheduler names the unregistered driver."""
    own = driver_of(context.volume)
    for pod in unscheduled(context):
        named = {match["driver"] for match in Recognised.NO_DRIVER.all_in(pod.unschedulable)}
        for driver in sorted(named if context.volume.persistent_volume is None else named & {own}):
            outage = plugin_outage(context, driver, "")
            if outage is not None:
                yield _of_workload(outage)
                continue
            yield finding(
                Code.DRIVER_DOWN_WHERE_WANTED,
                Subject.of_pod(pod.ref),
                stated(
                    "{pod} gets no node: the CSI driver {driver} is not registered on nodes that "
                    "could run the pod.",
                    pod=pod.ref,
                    driver=driver,
                ),
                evidence=(scheduler_message(pod), *not_observed_lines(context, of_nodes=True)),
                commands=(kubectl("get csinodes"),),
            )


RULES: Final = (
    Rule(395, unregistered_driver, CollectScope.DRIVER_WORKLOADS),
    Rule(450, driver_missing, CollectScope.CSI_DRIVERS | CollectScope.DRIVER_WORKLOADS),
)
