"""The reading rights of the chart's role, each with a verb whose answer needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]


class Right(NamedTuple):
    """A permission of a user."""

    verb: str
    group: str
    resource: str

    @property
    def refusal(self) -> str:
        """What the API server answers without it."""
        return f'cannot {self.verb} resource "{self.resource}"'

    @property
    def rule(self) -> Json:
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]}


def rights_in(rules: Iterable[Json]) -> list[Right]:
    """Return the reading rights of a role one by one."""
    return [
        Right(verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb in {"get", "list"}
    ]


FREE: Final = ("who-holds", "{free}")
USED: Final = ("who-holds", "{used}")
LIFE: Final = ("diagnose", "{used}")
ALL: Final = ("diagnose", "-A")
IMAGES: Final = ("images", "--unclaimed", "--all")
DRAIN: Final = ("drain-check", "{node}")
LINT: Final = ("lint", "-f", "{manifests}")
NAMED: Final[dict[Right, tuple[str, ...]]] = {
    Right("get", "", "persistentvolumes"): ("who-holds", "{volume}"),
    Right("list", "", "persistentvolumes"): FREE,
    Right("get", "", "persistentvolumeclaims"): FREE,
    Right("list", "", "persistentvolumeclaims"): IMAGES,
    Right("get", "", "pods"): ("who-holds", "{pod}"),
    Right("list", "", "pods"): FREE,
    Right("list", "", "nodes"): FREE,
    Right("list", "", "events"): LIFE,
    Right("list", "storage.k8s.io", "volumeattachments"): FREE,
    Right("list", "storage.k8s.io", "csinodes"): LINT,
    Right("list", "storage.k8s.io", "csidrivers"): ALL,
    Right("list", "storage.k8s.io", "storageclasses"): LINT,
    Right("list", "snapshot.storage.k8s.io", "volumesnapshotcontents"): IMAGES,
    Right("get", "apps", "replicasets"): DRAIN,
    Right("list", "apps", "replicasets"): ALL,
    Right("get", "apps", "deployments"): DRAIN,
    Right("list", "apps", "deployments"): ALL,
    Right("get", "apps", "statefulsets"): DRAIN,
    Right("list", "apps", "statefulsets"): ALL,
    Right("list", "policy", "poddisruptionbudgets"): DRAIN,
    Right("get", "coordination.k8s.io", "leases"): DRAIN,
    Right("list", "coordination.k8s.io", "leases"): FREE,
    Right("get", "rbdagent.dev", "rbdnodes"): DRAIN,
    Right("list", "rbdagent.dev", "rbdnodes"): FREE,
    Right("get", "rbdagent.dev", "rbdmappings"): USED,
    Right("list", "rbdagent.dev", "rbdmappings"): DRAIN,
}
"""The rights of the chart's role, each with a verb whose answer needs it."""
ELSEWHERE: Final = frozenset(
    {
        Right("list", "", "namespaces"),
        Right("get", "", "nodes"),
        Right("get", "", "events"),
        Right("get", "storage.k8s.io", "volumeattachments"),
        Right("get", "storage.k8s.io", "csinodes"),
        Right("get", "storage.k8s.io", "csidrivers"),
        Right("get", "storage.k8s.io", "storageclasses"),
        # Asked only where a pod waits for a driver, or a virtual machine or a mirrored image has a
        # problem (tests/contract/test_driver_workloads.py, tests/integration/test_operators.py).
        Right("list", "apps", "daemonsets"),
        Right("list", "kubevirt.io", "virtualmachineinstancemigrations"),
        Right("list", "replication.storage.openshift.io", "volumereplications"),
    }
)
"""Those that only an unmap, an agent or a rare state needs, or a user whose list is refused."""
READING: Final = (
    FREE, LIFE, ALL, IMAGES, DRAIN, (*DRAIN, "--after"), LINT, ("list", "-A"),
    ("snapshot", "{free}"), ("snapshot", "-A"), ("explain", "RBD101"),
    ("bug-report", "--overwrite", "-o", "{archive}"),
)  # fmt: skip
"""The reading verbs."""
EXIT_CODES: Final = frozenset({0, 1, 3})
