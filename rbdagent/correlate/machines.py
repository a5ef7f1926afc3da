"""Whose pods they are: the virtual machines of KubeVirt, and the importers of CDI.

KubeVirt runs each machine in a pod virt-launcher, which its VirtualMachineInstance owns. A volume
that was added to a running machine is held by one more pod, which the virt-launcher owns
(RenderHotplugAttachmentPodTemplate() in pkg/virt-controller/services/template.go). A live migration
has two virt-launchers of one VirtualMachineInstance. A machine that is started again has a new
VirtualMachineInstance with the name of the former one: only its uid differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.correlate.holders import is_terminated
from rbdagent.correlate.names import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rbdagent.correlate.index import Key, KubeIndex
    from rbdagent.model import Pod

_INSTANCE: Final = "VirtualMachineInstance/"
_POD: Final = "Pod/"
_CREATED_BY: Final = "kubevirt.io/created-by"
"""The uid of the VirtualMachineInstance of a virt-launcher."""
_MIGRATION: Final = "kubevirt.io/migrationJobUID"
"""The uid of the migration that made the pod: it is the target of it, and later may be the source
of another one."""
_CDI: Final = "cdi.kubevirt.io"
_PRIME: Final = "prime-"
"""The claim that CDI fills for a claim, named after the uid of that one (PVCPrimeName() in
pkg/controller/populators/util.go of the containerized-data-importer)."""


class Machine(NamedTuple):
    """A virtual machine, according to the owner of one of its pods."""

    namespace: str
    name: str
    """Of the VirtualMachineInstance, which is that of its VirtualMachine, if it has one."""
    uid: str
    """Of the VirtualMachineInstance; empty if the pod does not show it."""
    is_hotplugged: bool = False
    """Whether the pod holds a volume that was added to the machine while it ran."""

    @property
    def key(self) -> Key:
        """Namespace and name: those of the machine, however often it was started."""
        return self.namespace, self.name


def machine_of(pod: Pod, kube: KubeIndex) -> Machine | None:
    """Return the machine that a pod runs, or holds a volume for; None if it is of none."""
    own = _of_launcher(pod)
    if own is not None:
        return own
    launcher = _owning_pod(pod, kube)
    found = None if launcher is None else _of_launcher(launcher)
    return None if found is None else found._replace(is_hotplugged=True)


def _of_launcher(pod: Pod) -> Machine | None:
    for owner in pod.owners:
        if owner.startswith(_INSTANCE):
            uid = dict(pod.labels).get(_CREATED_BY, "")
            return Machine(pod.ref.namespace, owner.removeprefix(_INSTANCE), uid)
    return None


class MachinePod(NamedTuple):
    """A pod of a virtual machine, with the virt-launcher that runs the machine."""

    pod: Pod
    machine: Machine
    launcher: str
    """The name of the virt-launcher: of the pod itself, or of its owner."""
    migration: str
    """The uid of the migration that made the virt-launcher; empty for the first one."""


def machine_pods(pods: Iterable[Pod], kube: KubeIndex) -> Iterator[MachinePod]:
    """Yield the pods that are of a machine and have not ended."""
    for pod in pods:
        machine = None if is_terminated(pod) else machine_of(pod, kube)
        if machine is None:
            continue
        launcher = _owning_pod(pod, kube) or pod
        uid = dict(launcher.labels).get(_MIGRATION) or dict(pod.labels).get(_MIGRATION, "")
        yield MachinePod(pod, machine, launcher.ref.name, uid)


def _owning_pod(pod: Pod, kube: KubeIndex) -> Pod | None:
    names = (owner.removeprefix(_POD) for owner in pod.owners if owner.startswith(_POD))
    found = (kube.pod_by_key.get((pod.ref.namespace, name)) for name in names)
    return next((owner for owner in found if owner is not None), None)


def launchers_of(pods: Iterable[MachinePod]) -> dict[Key, dict[str, MachinePod]]:
    """Return one pod of each virt-launcher by its name, by the key of the machine."""
    found: dict[Key, dict[str, MachinePod]] = {}
    for one in pods:
        found.setdefault(one.machine.key, {}).setdefault(one.launcher, one)
    return found


def namespaces_of_migrations(kube: KubeIndex) -> frozenset[str]:
    """Return the namespaces in which two virt-launchers of a machine use an observed claim."""
    return frozenset(
        namespace
        for claim in kube.claims
        for (namespace, _), launchers in launchers_of(
            machine_pods(kube.pods_by_claim.get(key_of(claim.ref), ()), kube)
        ).items()
        if len(launchers) > 1
    )


def filled_claim(pod: Pod, kube: KubeIndex) -> str | None:
    """Return the claim that a pod of CDI fills; None if it is no such pod, or if it is unknown."""
    if _CDI not in dict(pod.labels):
        return None
    for name in pod.claims:
        uid = name.removeprefix(_PRIME)
        for claim in kube.claims:
            is_prime = name.startswith(_PRIME) and claim.ref.uid == uid
            if is_prime and claim.ref.namespace == pod.ref.namespace:
                return str(claim.ref)
    return None
