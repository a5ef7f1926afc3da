"""RBD77x: one image, and machines that are no nodes of this cluster.

No object of this cluster knows the other one: what tells of it is the watch of a client from an
address that no Node has, and what ceph-csi wrote into the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import kubectl, with_note
from rbdagent.correlate.holders import same_ip
from rbdagent.correlate.names import knows_every_volume_of, node_named
from rbdagent.diagnose.attaching import is_exclusive
from rbdagent.diagnose.binding import retain
from rbdagent.diagnose.case import Case, finding, look_again, subject_of
from rbdagent.diagnose.evidence import pod_names
from rbdagent.diagnose.target import is_writable, volumes_of_use
from rbdagent.diagnose.verdict import knows_every_node_at
from rbdagent.diagnose.waiting import knows_every_user, waiters
from rbdagent.model import (
    Command,
    CsiSource,
    Finding,
    HolderKind,
    JudgedHolder,
    Node,
    NotObserved,
    Severity,
    Verdict,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_PV: Final = "csi.storage.k8s.io/pv/name"
_CLAIM: Final = ("csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/pvc/name")
_CLUSTER: Final = "csi.ceph.com/cluster/name"


def from_outside(case: Case) -> Iterator[Finding]:
    """RBD771, RBD773, RBD774: a machine outside this cluster has it mapped."""
    found = outsiders(case)
    if not found:
        return
    who = ", ".join(subject_of(each.holder) for each in found)
    evidence = (*_identity(case, found), *_written(case), *_known_addresses(case))
    head = f"{case.volume} is mapped by a machine that, by its address, is no node here: {who}."
    if not is_exclusive(case.use):
        yield finding(
            "RBD773", case.volume, f"{head} Its access modes allow that.", evidence=evidence
        )
        return
    users = _users_here(case)
    if users:
        nodes = ", ".join(sorted({str(each.holder.node) for each in users}))
        yield finding(
            "RBD774",
            case.volume,
            f"{head} It is in use on {nodes} here as well: two clusters write to one image. Stop "
            "one side, now.",
            evidence=(*evidence, *(each.because[0] for each in users)),
            commands=(*_retain(case), *_there(case)),
        )
        return
    waiting = pod_names(waiters(case))
    yield finding(
        "RBD771",
        case.volume,
        f"{head} Another cluster uses the same image, or somebody mapped it by hand."
        + (f" {waiting} waits for it, and ceph-csi lets nobody in beside it." if waiting else ""),
        evidence=evidence,
        commands=(*_retain(case), *_there(case), look_again(case)),
        severity=None if waiting else Severity.WARNING,
    )


def outsiders(case: Case) -> tuple[JudgedHolder, ...]:
    """Give the holders that are no nodes of this cluster, as far as that can be known from here.

    An address that no Node lists may be a node's second network: it counts only where nodes of this
    cluster are seen to reach Ceph from addresses that their Nodes do list; and only if no pod and
    no attachment here lacks the watch that it should have. What the image says of itself proves no
    machine: a PV that was made anew under another name leaves the old name in it.
    """
    if not volumes_of_use(case.use) or not knows_every_user(case):
        return ()
    found = _unknown_mappings(case)
    if not found or _is_watch_missing(case):
        return ()
    return found if _known_addresses(case) else ()


def _unknown_mappings(case: Case) -> tuple[JudgedHolder, ...]:
    return tuple(each for each in case.judged if _is_unknown_mapping(each, case))


def _is_unknown_mapping(judged: JudgedHolder, case: Case) -> bool:
    holder = judged.holder
    if holder.watcher is None or holder.passing or holder.node is not None:
        return False
    if holder.kind is not HolderKind.KRBD:
        return False
    return knows_every_node_at(holder.watcher.address, case.snapshot.kubernetes)


def _is_watch_missing(case: Case) -> bool:
    """Tell whether a pod or an attachment here has neither mapping nor watch: this may be its."""
    bare = {
        each.holder.node
        for each in case.judged
        if each.holder.mapping is None and each.holder.watcher is None
    }
    seen = {each.holder.node for each in case.judged} - bare
    attached = {each.node_name for each in observed_of(case.use.attachments) if each.attached}
    return bool(bare or attached - seen - {each.node_name for each in waiters(case)})


def _known_addresses(case: Case) -> tuple[str, ...]:
    """Name a node of this cluster that reaches Ceph from the address that its Node lists."""
    clients = {}
    for each in case.judged:
        watcher, node = each.holder.watcher, each.holder.node_object
        if watcher is not None and isinstance(node, Node):
            clients[node.name] = (watcher.address.ip, node.internal_ips)
    local = case.snapshot.node
    own = node_named(local.node_name, case.snapshot) if local is not None else None
    if local is not None and isinstance(own, Node) and not isinstance(local.mappings, NotObserved):
        for mapping in local.mappings:
            if mapping.client_address is not None:
                clients[own.name] = (mapping.client_address.ip, own.internal_ips)
    known = [
        name
        for name, (ip, listed) in sorted(clients.items())
        if any(same_ip(ip, each) for each in listed)
    ]
    return (
        (f"{known[0]} reaches Ceph from the address that its Node lists; these do not",)
        if known
        else ()
    )


def _users_here(case: Case) -> list[JudgedHolder]:
    return [
        each
        for each in case.those(Verdict.IN_USE)
        if each.holder.node is not None
        and (is_writable(each.holder.mapping) is True or each.holder.watcher is not None)
    ]


# --------------------------------------------------------------------------------------------------
# What is written in the image
# --------------------------------------------------------------------------------------------------


def named_elsewhere(case: Case) -> Iterator[Finding]:
    """RBD772: the image says that it belongs to a PV that is not here."""
    if not _names_another(case):
        return
    volumes = ", ".join(each.name for each in volumes_of_use(case.use))
    yield finding(
        "RBD772",
        case.volume,
        f"The image of {volumes} says that it belongs to PV {_metadata(case)[_PV]}, which is not "
        f"in this cluster: another cluster may have a PV of it, or had one.{_watched(case)}",
        evidence=_written(case),
        commands=_there(case),
    )


def _watched(case: Case) -> str:
    """Say who has it mapped, where nobody knows whether that is a node of this cluster."""
    found = _unknown_mappings(case)
    if not found or outsiders(case):
        return ""
    who = ", ".join(subject_of(each.holder) for each in found)
    return (
        f" It is mapped by {who}: that may be another cluster's machine, or a node of this one by "
        "the address of its second network."
    )


def _metadata(case: Case) -> dict[str, str]:
    view = case.use.image_view
    if view is None or isinstance(view.metadata, NotObserved):
        return {}
    return dict(view.metadata)


def _names_another(case: Case) -> bool:
    named = _metadata(case).get(_PV)
    volumes = volumes_of_use(case.use)
    if (
        not named
        or not volumes
        or not knows_every_volume_of(case.use.image, case.snapshot.kubernetes)
    ):
        return False
    return all(each.name != named for each in volumes)


def _written(case: Case) -> tuple[str, ...]:
    known = _metadata(case)
    said = []
    if known.get(_CLUSTER):
        said.append(f"ceph-csi wrote into the image: cluster {known[_CLUSTER]}")
    if known.get(_PV):
        claim = "/".join(filter(None, (known.get(each) for each in _CLAIM)))
        said.append(
            f"ceph-csi wrote into the image: PV {known[_PV]}"
            + (f", claim {claim}" if claim else "")
        )
    return tuple(said)


def _identity(case: Case, found: tuple[JudgedHolder, ...]) -> tuple[str, ...]:
    image = case.use.image
    fsid = f" in Ceph cluster {image.fsid}" if image is not None and image.fsid else ""
    head = () if image is None else (f"image {image.spec}{fsid}",)
    return (
        *head,
        *(
            f"watched by client.{each.holder.watcher.client} {each.holder.watcher.address}, which "
            "no Node lists"
            for each in found
            if each.holder.watcher is not None
        ),
    )


# --------------------------------------------------------------------------------------------------
# What to type
# --------------------------------------------------------------------------------------------------


def _retain(case: Case) -> tuple[Command, ...]:
    return tuple(patch for volume in volumes_of_use(case.use) for patch in retain(volume))


def _there(case: Case) -> tuple[Command, ...]:
    """Give what finds the PV of this image in another cluster."""
    volume, image = case.use.persistent_volume, case.use.image
    if image is None:
        return ()
    source = volume.source if volume is not None else None
    wanted = {"volumeAttributes.imageName": image.spec.name}
    if isinstance(source, CsiSource):
        wanted["volumeHandle"] = source.volume_handle
    return tuple(
        with_note(_volumes_with(field, value), "in the other cluster")
        for field, value in wanted.items()
        # In a filter of kubectl's jsonpath no quote can be escaped.
        if '"' not in value and "\\" not in value
    )


def _volumes_with(field: str, value: str) -> Command:
    """Return the command that lists the PVs with a value in spec.csi, and their claims."""
    where = f'@.spec.csi.{field}=="{value}"'
    claim = "{.spec.claimRef.namespace}/{.spec.claimRef.name}"
    lines = f'{{range .items[?({where})]}}{{.metadata.name}} {claim}{{"\\n"}}{{end}}'
    return kubectl("get pv -o", f"jsonpath={lines}")
