"""Why a part of a CSI driver does not run: its DaemonSet or Deployment, and what stops its pods.

Other families report it under the code of the step that waits: RBD731 for the node plugin, RBD712
for the attacher, RBD618 for the provisioner, RBD775 for the resizer. The subject is the workload,
and the words name no volume, pod or node that waits: all that wait for it have one cause.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import kubectl
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    Command,
    DriverWorkload,
    Finding,
    KubeEvent,
    Node,
    NotObserved,
    Pod,
    Recovery,
    Severity,
    Subject,
    Taint,
    Toleration,
    Words,
    WorkloadPod,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name, quoted_names
from rbdagent.parse.recognised import Recognised
from rbdagent.parse.selector import selects
from rbdagent.rules.context import RuleContext, finding, message_of, quoted
from rbdagent.rules.pod_events import has_any_waited, waiters
from rbdagent.verdicts.timing import LONG, MOVING, age, age_text, is_young

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rbdagent.codes import Code

NODE_PLUGIN: Final = "the node plugin"
_FAILED_CREATE: Final = "FailedCreate"
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_TOLERATED: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{name}", operator="Exists")
    for name in (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    )
)
"""The tolerations that each pod of a DaemonSet gets (AddOrUpdateDaemonPodTolerations in
pkg/controller/daemon/util/daemonset_util.go@v1.36.3); the last one only with the host's network,
which every node plugin of ceph-csi has."""


class Outage(NamedTuple):
    """Why a part of a driver does not run."""

    subject: Subject
    workload: Words
    """The workload with the part that it runs; the beginning of a sentence."""
    words: Words
    """The rest of that sentence."""
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    commands: tuple[Command, ...] = ()
    is_passing: bool = False
    """Whether it may end without an action: its pod has just been created."""
    has_pod: bool = False
    """Whether its pod is on the node, and does not run there."""

    @property
    def sentence(self) -> Words:
        """The sentence, without its full stop."""
        return stated("{} {}", self.workload, self.words)

    @property
    def severity(self) -> Severity | None:
        """The severity, if it is not that of the code."""
        return Severity.INFO if self.is_passing else None

    @property
    def recovery(self) -> Recovery | None:
        """The recovery, if it is not that of the code."""
        if not self.is_passing:
            return None
        return Recovery(actor="the controller of its pods", condition="its pod is Ready")


def outage_finding(
    code: Code,
    outage: Outage,
    then: Words,
    *,
    waiting: tuple[Pod, ...] = (),
    evidence: tuple[str, ...] = (),
    severity: Severity | None = None,
) -> Finding:
    """Return the finding of a step that waits for a part of a driver that does not run.

    Args:
        code: of the step.
        outage: of the part.
        then: the second sentence: what waits. Its names do not divide the cause of many objects.
        waiting: the pods that wait.
        evidence: that it waits.
        severity: only if it differs from the catalogue's.
    """
    return finding(
        code,
        outage.subject,
        stated("{}. {}", outage.sentence, then),
        waiting=waiting,
        evidence=(*outage.evidence, *evidence),
        remedy=outage.remedy,
        commands=outage.commands,
        severity=outage.severity or severity,
        recovery=outage.recovery,
    )


class _Cause(NamedTuple):
    """Holds why no pod is created, by its text, and what to do."""

    kind: Recognised
    means: str
    """Follows "cannot create its pods: "; may contain fields of the pattern."""
    remedy: str


_CAUSES: Final = (
    _Cause(
        Recognised.POD_WITHOUT_ACCOUNT,
        "the ServiceAccount {account} does not exist",
        "Restore the ServiceAccount with its roles: apply the manifests or the chart that install "
        "the driver (since Rook 1.20 the chart ceph-csi-drivers). An account without its roles "
        "does not help: the pods would start, and be refused by the API.",
    ),
    _Cause(
        Recognised.POD_OVER_QUOTA,
        "the ResourceQuota {quota} of its namespace allows no more",
        "Raise that quota, or remove from the namespace what uses it up.",
    ),
    _Cause(
        Recognised.POD_OUTSIDE_QUOTA,
        "a ResourceQuota does not admit them",
        "Read the event: it names the quota, or the scope that no quota of the namespace covers. "
        "Some clusters admit pods with system-node-critical or system-cluster-critical only where "
        "a quota for these PriorityClasses exists.",
    ),
    _Cause(
        Recognised.POD_INSECURE,
        "the namespace enforces PodSecurity {level}, which forbids them",
        "The pods of a CSI driver are privileged: set the label pod-security.kubernetes.io/enforce "
        "of that namespace to privileged, or move the driver to a namespace that has it.",
    ),
    _Cause(
        Recognised.POD_WITHOUT_CONSTRAINT,
        "no SecurityContextConstraints of OpenShift admit them",
        "Apply the SecurityContextConstraints of the driver (for Rook those of "
        "operator-openshift.yaml), with the ServiceAccounts of its namespace.",
    ),
    _Cause(
        Recognised.POD_WITHOUT_PRIORITY,
        "the PriorityClass {priority} does not exist",
        "Create that PriorityClass, or name another one in the settings of the driver.",
    ),
    _Cause(
        Recognised.WEBHOOK_REFUSES,
        "the admission webhook {webhook} refuses them",
        "Read its reason in the event, and exempt the namespace of the driver in the policy.",
    ),
    _Cause(
        Recognised.WEBHOOK_FAILS,
        "the admission webhook {webhook} does not answer",
        "Restore the pods of that webhook, or exempt the namespace of the driver in its "
        "configuration: a webhook that needs a volume of this driver waits for itself.",
    ),
)
_PULLS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
_RETRIED: Final = timedelta(minutes=20)
"""An older failure is over: the controllers try again after 1000 s at most, and each attempt counts
(DefaultTypedControllerRateLimiter of client-go; failedPodsBackoff of the DaemonSet controller ends
at 15 minutes)."""
_STARTS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


# --------------------------------------------------------------------------------------------------
# The node plugin
# --------------------------------------------------------------------------------------------------


def plugin_outage(context: RuleContext, driver: str, node: str) -> Outage | None:
    """Return why the node plugin of a driver does not run on a node; None if it is not known."""
    kube = context.snapshot.kubernetes
    if kube is None or isinstance(kube.node_plugins, NotObserved):
        return None
    serving = [one for one in kube.node_plugins if driver in one.serves]
    registering = [one for one in serving if _runs(one, "registrar")] or serving
    if not registering:
        return _no_node_plugin(context, driver)
    place = node_named(node, context.snapshot)
    if isinstance(place, Node):
        meant = [one for one in registering if not _against(one, place)]
        if not meant:
            return _excluded(registering, place, driver)
        registering = meant
    return _outage_of(registering[0], stated(", {},", _of(NODE_PLUGIN, driver)), context, node)


def _no_node_plugin(context: RuleContext, driver: str) -> Outage | None:
    """Return that no DaemonSet names the driver, if the driver is on no node."""
    coverage = context.kube.coverage
    if driver in context.kube.registered_drivers or not (coverage.nodes() and coverage.csi_nodes):
        return None
    return Outage(
        Subject.of_controller(f"{NODE_PLUGIN.removeprefix('the ')} of {driver}"),
        "No DaemonSet of this cluster",
        stated(
            "names the CSI driver {driver}, and no node has registered it: its node plugin is not "
            "installed",
            driver=driver,
        ),
        ("no DaemonSet has a container with that name in its arguments",),
        "With Rook or ceph-csi-operator, a Driver object creates the DaemonSet: see its status "
        "(`kubectl get drivers.csi.ceph.io -A`), and the operator's log. Without an operator, "
        "apply the manifests or the chart of the driver again.",
        (kubectl("get daemonsets -A -o wide"), kubectl("get csinodes")),
    )


def _excluded(found: list[DriverWorkload], node: Node, driver: str) -> Outage:
    """Return that the DaemonSets of a driver place no pod on a node, and what keeps it off."""
    workload = found[0]
    why = _against(workload, node)
    others = [str(one) for one in found[1:]]
    return Outage(
        _subject(workload),
        stated("{}{}", _named(workload), stated(", {},", _of(NODE_PLUGIN, driver))),
        stated(
            "places no pod on {node}: {}{}",
            why,
            stated(". Neither do {others:and}", others=others) if others else "",
            node=node.name,
        ),
        (_count(workload), *_labels_line(workload, node)),
        "Either the pod belongs on another node, or the node plugin belongs on this one: then "
        "give the DaemonSet the toleration or the nodeSelector (nodeplugin.tolerations of "
        "ceph-csi's chart, CSI_PLUGIN_TOLERATIONS and CSI_PLUGIN_NODE_AFFINITY of Rook, "
        "spec.nodePlugin of a Driver), or change the taint or the label of the node.",
        (
            kubectl("describe node", node.name),
            kubectl(
                "get daemonset",
                workload.ref.name,
                namespace=workload.ref.namespace,
                options=("-o", "yaml"),
            ),
        ),
    )


def _against(workload: DriverWorkload, node: Node) -> Words:
    """Return why a DaemonSet places no pod on a node; "" if it places one.

    The order is that of NodeShouldRunDaemonPod (pkg/controller/daemon/daemon_controller.go of
    Kubernetes 1.36.3).
    """
    labels = dict(node.labels)
    lacking = [
        f"{key}={value}" for key, value in workload.node_selector if labels.get(key) != value
    ]
    if lacking:
        return stated(
            "its nodeSelector asks for {labels:and}, and the node has no such label",
            labels=[foreign_name(label) for label in lacking],
        )
    named = {**labels, "metadata.name": node.name}
    terms = workload.node_affinity
    if terms and not any(term and selects(term, named) for term in terms):
        asked = [", ".join(map(str, term)) for term in terms]
        return stated(
            "its node affinity asks for {terms:;}, and the node does not meet it",
            terms=[foreign(term) for term in asked],
        )
    taint = next((one for one in node.taints if not _is_tolerated(one, workload)), None)
    if taint is not None:
        return stated(
            "the node has the taint {taint}, and the DaemonSet does not tolerate it",
            taint=foreign_name(str(taint)),
        )
    return ""


def _is_tolerated(taint: Taint, workload: DriverWorkload) -> bool:
    if taint.effect not in _KEEPS_OFF:
        return True
    return any(_tolerates(one, taint) for one in (*_TOLERATED, *workload.tolerations))


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration admits a taint; an unknown operator does, so that none accuses.

    An empty key with Exists admits each taint (ToleratesTaint in
    staging/src/k8s.io/api/core/v1/toleration.go@v1.36.3).
    """
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.key not in {"", taint.key}:
        return False
    return toleration.operator != "Equal" or toleration.value == taint.value


def _labels_line(workload: DriverWorkload, node: Node) -> tuple[str, ...]:
    """Return the labels of the node that the nodeSelector names."""
    keys = dict(workload.node_selector)
    found = [f"{key}={value}" for key, value in node.labels if key in keys]
    return (f"{node.name} has {', '.join(map(foreign_name, found))}",) if found else ()


# --------------------------------------------------------------------------------------------------
# The controllers
# --------------------------------------------------------------------------------------------------


def controller_outage(context: RuleContext, driver: str, sidecar: str, part: str) -> Outage | None:
    """Return why a controller of a driver does not run; None if one runs, or if it is not known.

    Args:
        context: the target.
        driver: its name.
        sidecar: what the name or image of its container contains: ``attacher``.
        part: what people call it: ``external-attacher``.
    """
    kube = context.snapshot.kubernetes
    if kube is None or isinstance(kube.controllers, NotObserved):
        return None
    serving = [one for one in kube.controllers if driver in one.serves]
    having = [one for one in serving if _runs(one, sidecar)]
    if any(one.ready for one in having):
        return None
    runs = stated(", which runs {},", _of(part, driver))
    if having:
        return _outage_of(having[0], runs, context, None)
    if serving:
        return _without_sidecar(serving[0], sidecar, part, driver)
    return None


def names_no_controller(context: RuleContext, driver: str) -> bool:
    """Return whether Deployments were observed, and none of them names the driver."""
    kube = context.snapshot.kubernetes
    if kube is None or isinstance(kube.controllers, NotObserved):
        return False
    return not any(driver in one.serves for one in kube.controllers)


def _without_sidecar(workload: DriverWorkload, sidecar: str, part: str, driver: str) -> Outage:
    names = [container.partition(" ")[0] for container in workload.containers]
    return Outage(
        _subject(workload),
        stated("{}, which is the controller of {driver},", _named(workload), driver=driver),
        stated("has no container csi-{}, which runs {}", sidecar, part),
        (f"its containers: {', '.join(map(foreign_name, names))}", _count(workload)),
        "Add the container: it is an option of what installs the driver (provisioner."
        f"{sidecar}.enabled of ceph-csi's chart, csi.enableAttacher and its like in Rook).",
        (
            kubectl(
                "get deployment",
                workload.ref.name,
                namespace=workload.ref.namespace,
                options=("-o", "yaml"),
            ),
        ),
    )


# --------------------------------------------------------------------------------------------------
# What keeps the pods of a workload from running
# --------------------------------------------------------------------------------------------------


def _outage_of(
    workload: DriverWorkload, part: Words, context: RuleContext, node: str | None
) -> Outage | None:
    """Return what keeps the pods of a workload from running, or its pod on a node."""
    pods = observed_of(workload.pods)
    here = [pod for pod in pods if node is None or pod.node_name == node]
    if any(pod.ready for pod in here):
        return None
    outage = (
        _scaled_to_none(workload)
        or _not_created(workload, here, context.snapshot.observed_at)
        or next((found for pod in here if (found := _not_running(pod, workload, context))), None)
        or _rolling(workload, context, node)
        or _too_few(workload, is_elsewhere=bool(node) and not here)
    )
    if outage is None:
        return None
    return outage._replace(
        workload=stated("{}{}", _named(workload), part),
        evidence=(_count(workload), *outage.evidence, *_owner_line(workload)),
        remedy=f"{outage.remedy}{_through_owner(workload)}",
        commands=(*outage.commands, _describe(workload)),
    )


def _scaled_to_none(workload: DriverWorkload) -> Outage | None:
    if workload.kind != "Deployment" or workload.desired:
        return None
    scale: tuple[Command, ...] = ()
    if not workload.owners:
        scale = (
            kubectl(
                "scale deployment",
                workload.ref.name,
                namespace=workload.ref.namespace,
                options=("--replicas=2",),
            ),
        )
    return Outage(
        _subject(workload),
        "",
        "is scaled to 0",
        ("spec.replicas is 0",),
        "Scale it up again: two replicas are usual, of which one leads.",
        scale,
    )


def _not_created(workload: DriverWorkload, here: Iterable[WorkloadPod], now: str) -> Outage | None:
    """Return that the pods are not created, if the one that matters does not exist."""
    if workload.current >= workload.desired or any(here):
        return None
    event = _newest_failure(workload, now)
    text = workload.failure or ("" if event is None else message_of(event))
    if not text:
        return None
    evidence = (quoted(event),) if event is not None else (f"ReplicaFailure: {foreign(text)}",)
    return _for_text(workload, text, evidence)


def _newest_failure(workload: DriverWorkload, now: str) -> KubeEvent | None:
    own = [
        event
        for event in observed_of(workload.events)
        if event.kind == workload.kind
        and event.reason == _FAILED_CREATE
        and is_young(event.last_seen, now, _RETRIED) is not False
    ]
    return max(own, key=lambda event: event.last_seen or "", default=None)


def _for_text(workload: DriverWorkload, text: str, evidence: tuple[str, ...]) -> Outage:
    why: Words = stated("{error}", error=foreign(text))
    remedy = "Repair what the event names: the pods are then created."
    for cause in _CAUSES:
        named = cause.kind.named_in(text)
        if named is not None:
            why, remedy = stated(cause.means, **quoted_names(named)), cause.remedy
            break
    return Outage(
        _subject(workload),
        "",
        stated("cannot create its pods: {}", why),
        evidence,
        remedy,
        (kubectl("get serviceaccounts,resourcequotas", namespace=workload.ref.namespace),),
    )


def _not_running(pod: WorkloadPod, workload: DriverWorkload, context: RuleContext) -> Outage | None:
    """Return what keeps a pod from running."""
    where = pod.ref.namespace
    show = kubectl("describe pod", pod.ref.name, namespace=where)
    subject, name = _subject(workload), str(pod.ref)
    warning = _warning_of(pod, workload)
    seen = () if warning is None else (quoted(warning),)
    if pod.unschedulable:
        return Outage(
            subject,
            "",
            stated(
                "has the pod {plugin_pod}, which gets no node: {error}",
                plugin_pod=name,
                error=foreign(pod.unschedulable),
            ),
            (),
            "Make room for that pod on its node: its PriorityClass decides whether it displaces "
            "others (system-node-critical for a node plugin).",
            (show,),
        )
    if pod.waiting in _PULLS:
        return Outage(
            subject,
            "",
            stated(
                "has the pod {plugin_pod}, whose image cannot be pulled ({reason})",
                plugin_pod=name,
                reason=foreign_name(pod.waiting),
            ),
            (*((foreign(pod.message),) if pod.message else ()), *seen),
            "Correct the name of the image, the registry's address or its pull secret in the "
            "settings of the driver.",
            (show,),
        )
    if pod.waiting not in _STARTS:
        return Outage(
            subject,
            "",
            stated(
                "has the pod {plugin_pod}, whose container {container} does not run ({reason})",
                plugin_pod=name,
                container=foreign_name(pod.container),
                reason=foreign_name(pod.waiting),
            ),
            (*((foreign(pod.message),) if pod.message else ()), *seen),
            "Read the log of that container.",
            (
                show,
                kubectl(
                    "logs",
                    pod.ref.name,
                    namespace=where,
                    options=("--all-containers", "--tail=50"),
                ),
            ),
            has_pod=True,
        )
    if warning is not None and pod.waiting:
        return Outage(
            subject,
            "",
            stated(
                "has the pod {plugin_pod}, which does not start: {error}",
                plugin_pod=name,
                error=foreign(message_of(warning)),
            ),
            seen,
            "Repair what the event names: the pod then starts automatically.",
            (show,),
        )
    now = context.snapshot.observed_at
    return Outage(
        subject,
        "",
        stated(
            "has the pod {plugin_pod}, which is not Ready; it was created {age} ago",
            plugin_pod=name,
            age=age_text(age(pod.created_at, now)),
        ),
        (),
        "See the events and the log of that pod.",
        (show,),
        is_passing=is_young(pod.created_at, now, MOVING) is True,
    )


def _warning_of(pod: WorkloadPod, workload: DriverWorkload) -> KubeEvent | None:
    """Return the newest warning about a pod."""
    own = [
        event
        for event in observed_of(workload.events)
        if event.kind == "Pod" and event.subject.name == pod.ref.name
    ]
    return max(own, key=lambda event: event.last_seen or "", default=None)


def _rolling(workload: DriverWorkload, context: RuleContext, node: str | None) -> Outage | None:
    """Return that a DaemonSet replaces its pods: the one of a node is gone for a moment."""
    if not node or not workload.rolls or workload.updated >= workload.desired:
        return None
    if workload.ready >= workload.desired or isinstance(workload.pods, NotObserved):
        return None
    if has_any_waited(waiters(context), context.snapshot, LONG):
        return None
    return Outage(
        _subject(workload),
        "",
        "is being updated, and has no Ready pod there now",
        (f"{workload.updated} of {workload.desired} pods are of its newest template",),
        "Wait, then run the command again.",
        is_passing=True,
    )


def _too_few(workload: DriverWorkload, *, is_elsewhere: bool) -> Outage | None:
    """Return that a workload has too few pods, for a reason that was not observed.

    Pods that lack on other nodes explain nothing here.
    """
    unseen = next(
        (one for one in (workload.pods, workload.events) if isinstance(one, NotObserved)), None
    )
    if workload.ready >= workload.desired or (is_elsewhere and unseen is None):
        return None
    return Outage(
        _subject(workload),
        "",
        stated(
            "has {ready} of {desired} pods Ready",
            ready=workload.ready,
            desired=workload.desired,
        ),
        () if unseen is None else (f"its pods and events were not observed: {unseen.reason}",),
        "Its events and those of its ReplicaSet state why.",
    )


# --------------------------------------------------------------------------------------------------
# Names and lines
# --------------------------------------------------------------------------------------------------


def not_observed_lines(context: RuleContext, *, of_nodes: bool) -> tuple[str, ...]:
    """Return that the workloads of the driver were requested and not observed, and the hint."""
    kube = context.snapshot.kubernetes
    found = None if kube is None else (kube.node_plugins if of_nodes else kube.controllers)
    if not isinstance(found, NotObserved) or not found.hint:
        return ()
    kind = "DaemonSets" if of_nodes else "Deployments"
    return (f"the {kind} of the driver were not observed: {found.reason}; {found.hint}",)


def _runs(workload: DriverWorkload, part: str) -> bool:
    return any(part in container for container in workload.containers)


def _subject(workload: DriverWorkload) -> Subject:
    return Subject.of_workload(workload.kind, workload.ref)


def _named(workload: DriverWorkload) -> Words:
    return stated("{workload}", workload=str(workload))


def _of(part: str, driver: str) -> Words:
    return stated("{} of {driver}", part, driver=driver)


def _count(workload: DriverWorkload) -> str:
    return (
        f"{workload}: {workload.desired} pods wanted, {workload.current} exist, "
        f"{workload.ready} are Ready"
    )


def _owner_line(workload: DriverWorkload) -> tuple[str, ...]:
    owners = ", ".join(map(foreign_name, workload.owners))
    return (f"{workload} belongs to {owners}",) if owners else ()


def _through_owner(workload: DriverWorkload) -> str:
    """Return what owns a workload: an operator undoes every change of it."""
    if not workload.owners:
        return ""
    owners = " and ".join(map(foreign_name, workload.owners))
    return f" A change of the {workload.kind} itself is undone: it belongs to {owners}."


def _describe(workload: DriverWorkload) -> Command:
    name, namespace = workload.ref.name, workload.ref.namespace
    if workload.kind == "DaemonSet":
        return kubectl("describe daemonset", name, namespace=namespace)
    return kubectl("describe deployment", name, namespace=namespace)
