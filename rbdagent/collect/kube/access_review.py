"""Check of a user's permissions in the Kubernetes API, with the consequences of missing ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.collect.kube.client import Api, StatusError, segment
from rbdagent.collect.kube.kubeconfig import KubeAccess, credentials
from rbdagent.collect.kube.requests import APPLY_RESOURCES, NODES, NOT_FOUND
from rbdagent.commands import kubectl, line_of
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import CheckResult, CheckState, Node, NotObserved, OtherMachine
from rbdagent.parse import kubernetes as read

if TYPE_CHECKING:
    from rbdagent.collect.kube.client import PendingRequest


class _Right(NamedTuple):
    """A permission of a user."""

    verb: str
    resource: str
    """In kubectl's format: ``rbdnodes.rbdagent.dev``."""
    loses: str = ""
    """What is missing without it; empty if no output is reliable without it."""


_OWN: Final = "rbdnodes.rbdagent.dev"
_GROUP_NAME: Final = ".rbdagent.dev"
_GROUPS: Final = (
    (_GROUP_NAME, "/apis/rbdagent.dev/v1alpha1"),
    (".kubevirt.io", "/apis/kubevirt.io"),
    (".replication.storage.openshift.io", "/apis/replication.storage.openshift.io"),
)
"""Groups that a cluster may lack, and their discovery, which every authenticated user may read
(system:discovery)."""
_NEEDED: Final = "no answer is reliable without it"
_LESS: Final = "the answer has fewer details, but no errors"
_AGENT: Final = "only an agent needs it"
_LESS_WHY: Final = "diagnose shows fewer reasons why a claim or a pod waits"
_NO_SNAPSHOTS: Final = "images judges no image unclaimed"
_NO_DRIVER: Final = "diagnose does not show why the CSI driver does not run"
_MACHINES: Final = "diagnose does not show whether a live migration of a virtual machine is running"
_ROLES: Final = "diagnose does not show what sets the role of a mirrored image"
_OLD: Final = "reports of agents count as old, and no volume is free"
_UNKNOWN_DRAIN: Final = "drain-check does not show which evictions a budget refuses"
_SLOWER: Final = "an agent sees a change only in its next cycle"
_RIGHTS: Final = (
    _Right("get", "persistentvolumes"),
    _Right("list", "persistentvolumes"),
    _Right("get", "persistentvolumeclaims"),
    _Right("list", "pods"),
    _Right("get", "nodes"),
    _Right("list", "nodes", _LESS),
    _Right("get", "volumeattachments.storage.k8s.io", "an agent reports no mapping as orphaned"),
    _Right("list", "volumeattachments.storage.k8s.io"),
    _Right("get", "csinodes.storage.k8s.io", _LESS),
    _Right("list", "events", _LESS),
    _Right("list", "storageclasses.storage.k8s.io", _LESS_WHY),
    _Right("list", "csidrivers.storage.k8s.io", _LESS_WHY),
    _Right("list", "volumesnapshotcontents.snapshot.storage.k8s.io", _NO_SNAPSHOTS),
    _Right("list", "virtualmachineinstancemigrations.kubevirt.io", _MACHINES),
    _Right("list", "volumereplications.replication.storage.openshift.io", _ROLES),
    _Right("list", "leases.coordination.k8s.io", _OLD),
    _Right("get", "leases.coordination.k8s.io", _OLD),
    _Right("get", "replicasets.apps", _LESS_WHY),
    _Right("get", "deployments.apps", _LESS_WHY),
    _Right("get", "statefulsets.apps", _LESS_WHY),
    _Right("list", "deployments.apps", _NO_DRIVER),
    _Right("list", "daemonsets.apps", _NO_DRIVER),
    _Right("list", "poddisruptionbudgets.policy", _UNKNOWN_DRAIN),
    _Right("list", "rbdnodes.rbdagent.dev", "holders on other nodes are probable, not certain"),
    _Right("get", "rbdnodes.rbdagent.dev", "an agent's conflicts with other nodes are probable"),
    _Right("list", "rbdmappings.rbdagent.dev", "holders on other nodes are probable, not certain"),
    _Right("get", "rbdmappings.rbdagent.dev", "holders on other nodes are probable, not certain"),
    _Right("list", "namespaces", "nothing can be unmapped: the frozen namespaces are unknown"),
    _Right("watch", "pods", _SLOWER),
    _Right("watch", "rbdnodes.rbdagent.dev", _SLOWER),
    _Right("create", "rbdnodes.rbdagent.dev", _AGENT),
    _Right("patch", "rbdnodes.rbdagent.dev", _AGENT),
    _Right("watch", "rbdmappings.rbdagent.dev", _SLOWER),
    _Right("create", "rbdmappings.rbdagent.dev", _AGENT),
    _Right("patch", "rbdmappings.rbdagent.dev", _AGENT),
    _Right("delete", "rbdmappings.rbdagent.dev", _AGENT),
    _Right("create", "events", _AGENT),
    _Right("patch", "events", _AGENT),
)


def check_kube(
    access: KubeAccess, node_name: str, boot_id: str | NotObserved | None
) -> tuple[CheckResult, ...]:
    """Return what this user may do, and whether this machine is its Node.

    What a user may do is according to the API server (SelfSubjectAccessReview).

    Args:
        access: how to query the API.
        node_name: the name of this machine's Node.
        boot_id: of this machine; None if it is not observed on purpose.
    """
    source = "kubernetes"
    try:
        api = Api(credentials(access), timeout_s=access.timeout_s)
        version = api.ask("/version").answer()
    except SourceError as error:
        return (
            CheckResult(
                source=source,
                sentence="the Kubernetes API answers",
                failure="the Kubernetes API cannot be queried",
                state=CheckState.FAILED,
                detail=str(error),
                hint=error.hint,
            ),
        )
    results = [
        CheckResult(
            source=source,
            sentence="the Kubernetes API answers",
            state=CheckState.OK,
            detail=f"{api.server}, {version.get('gitVersion', '')}",
        )
    ]
    groups = [(name, api.ask(path)) for name, path in _GROUPS]
    reviews = [(right, _review(api, right)) for right in _RIGHTS]
    missing = tuple(name for name, asked in groups if _is_missing(asked))
    results += [
        _of_no_resource(right) if right.resource.endswith(missing) else _may(asked, right)
        for right, asked in reviews
    ]
    results += [_NO_RBDNODES] if _GROUP_NAME in missing else []
    results += _own_node(api, node_name, boot_id)
    return tuple(results)


def _is_missing(group: PendingRequest) -> bool:
    """Return whether the API server has no resource of a group; False if it was not observed.

    A SelfSubjectAccessReview checks the RBAC rules only. It also allows resources that do not
    exist, and a user needs no right to what does not exist.
    """
    try:
        group.answer()
    except StatusError as error:
        return error.status == NOT_FOUND
    except SourceError:
        return False
    return False


_NO_RBDNODES: Final = CheckResult(
    source="kubernetes",
    sentence=f"the API server has {_OWN}",
    failure=f"the API server has no {_OWN}",
    state=CheckState.WARNING,
    detail="no agent publishes, and holders on other nodes are only probable",
    hint=f"{APPLY_RESOURCES}, and install the agents (docs/install.md)",
)


def _of_no_resource(right: _Right) -> CheckResult:
    return CheckResult(
        source="kubernetes",
        sentence=_sentence(right),
        state=CheckState.SKIPPED,
        detail="the API server has no such resource",
    )


def _sentence(right: _Right) -> str:
    return f"this user may {right.verb} {right.resource}"


def _review(api: Api, right: _Right) -> PendingRequest:
    name, _, subresource = right.resource.partition("/")
    resource, _, group = name.partition(".")
    attributes = {
        "verb": right.verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)


def _may(asked: PendingRequest, right: _Right) -> CheckResult:
    sentence = _sentence(right)
    try:
        answer = asked.answer()
    except SourceError as error:
        return CheckResult(
            source="kubernetes",
            sentence=sentence,
            failure=f"whether {sentence} is unknown",
            state=CheckState.FAILED,
            detail=str(error),
            hint=error.hint,
        )
    if (answer.get("status") or {}).get("allowed"):
        return CheckResult(source="kubernetes", sentence=sentence, state=CheckState.OK)
    name = re.sub(r"[./]", "-", f"rbdagent-{right.verb}-{right.resource}")
    options = (f"--verb={right.verb}", f"--resource={right.resource}")
    return CheckResult(
        source="kubernetes",
        sentence=sentence,
        failure=f"this user may not {right.verb} {right.resource}",
        state=CheckState.WARNING if right.loses else CheckState.FAILED,
        detail=right.loses or _NEEDED,
        hint=f"{line_of(kubectl('create clusterrole', name, options=options))}, and bind it to "
        "this user",
    )


def _own_node(
    api: Api, node_name: str, boot_id: str | NotObserved | None
) -> tuple[CheckResult, ...]:
    """Return whether the Node exists, and whether it is this machine: their boot ids are equal."""
    path, sentence = f"{NODES}/{segment(node_name)}", f"a Node is named {node_name}"
    try:
        node = read.parse_object(read.node, api.ask(path).answer(), what=path)
    except (SourceError, ParseError) as error:
        return (
            CheckResult(
                source="kubernetes",
                sentence=sentence,
                failure=f"no Node {node_name} could be read",
                state=CheckState.FAILED,
                detail=str(error),
                hint="pass --node-name with this node's name in Kubernetes",
            ),
        )
    exists = CheckResult(source="kubernetes", sentence=sentence, state=CheckState.OK)
    return exists, _is_own_node(node, boot_id)


def _is_own_node(node: Node, boot_id: str | NotObserved | None) -> CheckResult:
    sentence = f"this machine is Node {node.name}"
    if boot_id is None:
        state, detail, hint = CheckState.SKIPPED, "not checked: --no-node", ""
    elif isinstance(boot_id, NotObserved):
        state, detail, hint = CheckState.WARNING, boot_id.reason, boot_id.hint
    elif not node.boot_id:
        state, detail, hint = CheckState.WARNING, "the Node has no boot id: kubelet sets it", ""
    elif node.boot_id != boot_id:
        other = OtherMachine(
            node_name=node.name, hostname="", boot_id=boot_id, node_boot_id=node.boot_id
        )
        state, detail, hint = CheckState.FAILED, other.reason, other.hint
    else:
        state, detail, hint = CheckState.OK, "their boot ids are equal", ""
    is_unknown = state is CheckState.WARNING
    return CheckResult(
        source="kubernetes",
        sentence=sentence,
        failure=f"whether {sentence} is unknown: nothing can be unmapped"
        if is_unknown
        else f"this machine is not Node {node.name}",
        state=state,
        detail=detail,
        hint=hint,
    )
