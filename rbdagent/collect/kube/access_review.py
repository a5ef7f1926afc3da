"""Check of a user's permissions in the Kubernetes API, with the consequences of missing ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from rbdagent.collect.kube.client import Api, StatusError
from rbdagent.collect.kube.kubeconfig import KubeAccess, credentials
from rbdagent.collect.kube.requests import APPLY_RESOURCES, NODES, NOT_FOUND
from rbdagent.commands import kubectl, line_of
from rbdagent.errors import SourceError
from rbdagent.model import CheckResult, CheckState

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
_GROUP: Final = "/apis/rbdagent.dev/v1alpha1"
"""Its discovery, which every authenticated user may read (system:discovery)."""
_NEEDED: Final = "no answer is reliable without it"
_LESS: Final = "the answer has fewer details, but no errors"
_AGENT: Final = "only an agent needs it"
_LESS_WHY: Final = "diagnose shows fewer reasons why a claim or a pod waits"
_OLD: Final = "reports of agents count as old, and no volume is free"
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
    _Right("list", "leases.coordination.k8s.io", _OLD),
    _Right("get", "leases.coordination.k8s.io", _OLD),
    _Right("get", "replicasets.apps", _LESS_WHY),
    _Right("get", "deployments.apps", _LESS_WHY),
    _Right("get", "statefulsets.apps", _LESS_WHY),
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


def check_kube(access: KubeAccess, node_name: str) -> tuple[CheckResult, ...]:
    """Return what this user may do, according to the API server (SelfSubjectAccessReview)."""
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
    group = api.ask(_GROUP)
    reviews = [(right, _review(api, right)) for right in _RIGHTS]
    lacking = _lacks_resource(group)
    results += [
        _of_no_resource(right) if lacking and _GROUP_NAME in right.resource else _may(asked, right)
        for right, asked in reviews
    ]
    results += [lacking] if lacking else []
    results.append(_own_node(api, node_name))
    return tuple(results)


def _lacks_resource(group: PendingRequest) -> CheckResult | None:
    """Return a warning if the API server has no RBDNodes; None if it has, or if not observed.

    A SelfSubjectAccessReview checks the RBAC rules only. It also allows resources that do not
    exist.
    """
    try:
        group.answer()
    except StatusError as error:
        if error.status != NOT_FOUND:
            return None
    except SourceError:
        return None
    else:
        return None
    return CheckResult(
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


def _own_node(api: Api, node_name: str) -> CheckResult:
    sentence = f"a Node is named {node_name}"
    try:
        api.ask(f"{NODES}/{quote(node_name)}").answer()
    except SourceError as error:
        return CheckResult(
            source="kubernetes",
            sentence=sentence,
            failure=f"no Node {node_name} could be read",
            state=CheckState.FAILED,
            detail=str(error),
            hint="pass --node-name with this node's name in Kubernetes",
        )
    return CheckResult(source="kubernetes", sentence=sentence, state=CheckState.OK)
