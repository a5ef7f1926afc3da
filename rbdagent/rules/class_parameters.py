"""The parameters that ceph-csi needs in a StorageClass, and a class that has all of them.

validateVolumeReq in internal/rbd/controllerserver.go of ceph-csi 52fcb7b requires clusterID and a
pool, newCredentialsFromSecret in internal/util/credentials.go the provisioner's secret, and
ValidateNodeStageVolumeRequest in internal/util/validate.go that of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.model import observed_of
from rbdagent.parse.foreign import foreign_name

if TYPE_CHECKING:
    from rbdagent.model import StorageClass
    from rbdagent.rules.context import RuleContext

_PREFIX: Final = "csi.storage.k8s.io/"
_POOLS: Final = frozenset({"pool", "topologyConstrainedPools"})
# getSecretReference in pkg/controller/controller.go of external-provisioner 6.3.0 reads them.
_PROVISIONERS: Final = ("provisioner-secret", "csiProvisionerSecret")
_NODES: Final = ("node-stage-secret", "csiNodeStageSecret")
"""The present and the former beginning of the names of a secret's two parameters."""
_FOR_ALL: Final = f"{_PREFIX}secret-name"
"""The default of all secrets."""


def class_fields(context: RuleContext, found: StorageClass) -> dict[str, str]:
    """Return the values for the sentences about a class; empty if its parameters are unknown."""
    names = frozenset(found.parameters or ())
    is_known = found.parameters is not None
    other = _complete_class(context, found)
    return {
        "class": foreign_name(found.name),
        "lacks": ", ".join(_lacking(names)) if is_known else "",
        "lacks_secret": _lacking_of_secret(*_PROVISIONERS, names) if is_known else "",
        "names_secret": "yes" if is_known and not _lacking_of_secret(*_PROVISIONERS, names) else "",
        "complete": foreign_name(other) if other else "",
    }


def lacks_parameters(_context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the class was observed without a parameter that ceph-csi needs."""
    return bool(named["lacks"])


def lacks_what_another_has(context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether another class of the same provisioner has all parameters."""
    return lacks_parameters(context, named) and bool(named["complete"])


def lacks_secret(_context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the class was observed without a secret for the provisioner."""
    return bool(named["lacks_secret"])


def names_secret(_context: RuleContext, named: dict[str, str]) -> bool:
    """Return whether the class was observed with a secret for the provisioner."""
    return bool(named["names_secret"])


def _lacking(names: frozenset[str]) -> list[str]:
    """Return what a class with these parameters lacks for volumes of RBD."""
    parts = (
        "" if "clusterID" in names else "clusterID",
        "" if _POOLS & names else "pool",
        _lacking_of_secret(*_PROVISIONERS, names),
        _lacking_of_secret(*_NODES, names),
    )
    return [part for part in parts if part]


def _lacking_of_secret(secret: str, former: str, names: frozenset[str]) -> str:
    if _FOR_ALL in names or f"{former}Name" in names:
        return ""
    ends = [end for end in ("-name", "-namespace") if f"{_PREFIX}{secret}{end}" not in names]
    return f"{_PREFIX}{secret}{' and '.join(ends)}" if ends else ""


def _complete_class(context: RuleContext, found: StorageClass) -> str:
    """Return another class of the same provisioner that has all parameters; "" if none is known.

    The default class comes first.
    """
    kube = context.snapshot.kubernetes
    classes = () if kube is None else observed_of(kube.storage_classes)
    complete = [
        (not other.is_default, other.name)
        for other in classes
        if other.provisioner == found.provisioner
        and other.name != found.name
        and other.parameters is not None
        and not _lacking(frozenset(other.parameters))
    ]
    return min(complete)[1] if complete else ""
