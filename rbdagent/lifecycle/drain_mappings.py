"""The mappings of a node that a drain does not end, as the rules or its agent report them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, over_ssh
from rbdagent.correlate.image_identity import are_watchers_observed
from rbdagent.correlate.index import kube_index
from rbdagent.correlate.node_usage import kubelet_of
from rbdagent.lifecycle.drain_pods import stays
from rbdagent.model import (
    Diagnosis,
    Finding,
    Gap,
    Holder,
    HolderVerdict,
    Mapping,
    NotObserved,
    ProcessRef,
    PublishedMapping,
    PublishedNode,
    Severity,
    Snapshot,
    Subject,
    SubjectKind,
    Verdict,
    observed_of,
    unobserved,
)
from rbdagent.model.drain import DrainItem, DrainStep, MappedVolume
from rbdagent.parse.foreign import foreign, reported
from rbdagent.rules import FINDINGS
from rbdagent.rules.context import subject_of
from rbdagent.rules.node import of_node
from rbdagent.rules.stacked import show_stacked, strange_devices
from rbdagent.verdicts.evidence import (
    block_holder_text,
    evidence_of,
    foreign_mounts,
    hung_requests,
    mount_text,
    opener_text,
)
from rbdagent.verdicts.holder_verdict import is_watch_observed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.correlate.index import KubeIndex
    from rbdagent.model import Command, ImageView

_STEPS: Final = {
    # The eviction of the pod destroys what it wrote.
    Code.VOLUME_NOT_BACKED: DrainStep.DATA_AT_RISK,
    Code.RUNNING_WITHOUT_MAPPING: DrainStep.DATA_AT_RISK,
    Code.VOLUME_CONFLICT: DrainStep.DATA_AT_RISK,
    # The next node maps the image to which the name leads today.
    Code.IMAGE_RENAMED: DrainStep.DATA_AT_RISK,
    # The watch of the mapping is what keeps the image from being purged.
    Code.IMAGE_IN_TRASH: DrainStep.DATA_AT_RISK,
    # What the unmount writes is lost with a resync, or fails.
    Code.DEMOTED_WHILE_MAPPED: DrainStep.DATA_AT_RISK,
    Code.OBJECT_MAP_DISABLED: DrainStep.DATA_AT_RISK,
    Code.MAPPING_WITHOUT_ITS_DATA: DrainStep.DATA_AT_RISK,
    Code.MIRROR_SPLIT_BRAIN: DrainStep.DATA_AT_RISK,
    Code.TWO_PRIMARIES: DrainStep.DATA_AT_RISK,
    Code.MAPPING_PINNED: DrainStep.PINNED,
    # A drain evicts through the API, which does not have the pod.
    Code.POD_LOST_BY_API: DrainStep.PINNED,
    Code.OPERATION_HANGS: DrainStep.HANGING_CALL,
    Code.NO_ROUTE_TO_CEPH: DrainStep.HANGING_CALL,
    Code.CEPH_OUT_OF_REACH: DrainStep.HANGING_CALL,
    Code.CLIENT_NETWORK_GONE: DrainStep.HANGING_REQUEST,
    Code.UNMOUNT_FAILS: DrainStep.HANGING_CALL,
    Code.CLIENT_BLOCKLISTED: DrainStep.LOST_CLIENT,
    Code.NBD_PROCESS_GONE: DrainStep.LOST_CLIENT,
    Code.MAPPING_UNWATCHED: DrainStep.LOST_CLIENT,
    Code.CSI_DRIVER_DOWN: DrainStep.NODE_SERVICE_DOWN,
    Code.KUBELET_DOWN: DrainStep.NODE_SERVICE_DOWN,
    Code.MAPPING_ORPHANED: DrainStep.UNUSED_MAPPING,
    Code.STAGING_LEFT_MOUNTED: DrainStep.UNUSED_MAPPING,
    Code.STAGING_WITHOUT_VOLUME_DATA: DrainStep.UNUSED_MAPPING,
    Code.NODE_RETURNED_DIRTY: DrainStep.UNUSED_MAPPING,
    # The kernel writes back what the pods wrote when it unmounts, and waits for the pool.
    Code.POOL_TAKES_NO_WRITES: DrainStep.HANGING_REQUEST,
    Code.FOREIGN_HOLDER: DrainStep.OUTSIDE_CLIENT,
    Code.HELD_FROM_OUTSIDE: DrainStep.OUTSIDE_CLIENT,
    Code.TWO_CLUSTERS_WRITE: DrainStep.OUTSIDE_CLIENT,
    Code.POD_DOES_NOT_END: DrainStep.REFUSED_POD,
    Code.POD_HELD_BY_FINALIZER: DrainStep.REFUSED_POD,
}
"""The step of each finding that concerns a drain; the others do not block one."""
_BY_VERDICT: Final = {
    Verdict.PINNED: DrainStep.PINNED,
    Verdict.DEAD: DrainStep.LOST_CLIENT,
    Verdict.UNWATCHED: DrainStep.LOST_CLIENT,
    Verdict.ORPHANED: DrainStep.UNUSED_MAPPING,
    Verdict.RETURNED_DIRTY: DrainStep.UNUSED_MAPPING,
    Verdict.FOREIGN: DrainStep.UNUSED_MAPPING,
}
"""The step of a mapping whose verdict no finding explains."""
_WITH_OWN_PINS: Final = frozenset({Verdict.PINNED, Verdict.STAGED, Verdict.FOREIGN})
"""Verdicts whose finding or reasons name what keeps the device open."""
_ABROAD: Final = frozenset({DrainStep.OUTSIDE_CLIENT, DrainStep.REFUSED_POD})
"""Steps whose subject may be on another node, or on none."""
_DELAYING: Final = frozenset(
    {DrainStep.HANGING_CALL, DrainStep.HANGING_REQUEST, DrainStep.NODE_SERVICE_DOWN}
)
"""Steps that explain why a mapping stays between two steps."""
_AGAIN: Final = "run it again in a minute: kubelet and the driver may be at work"
_CATALOGUE: Final = "this version of rbdagent does not know the code"


# --------------------------------------------------------------------------------------------------
# Of the observed node
# --------------------------------------------------------------------------------------------------


def observed_items(diagnoses: Sequence[Diagnosis], snapshot: Snapshot) -> Iterator[DrainItem]:
    """Yield what a drain of the observed node does not end, each thing once.

    Args:
        diagnoses: of all volumes that the node has mapped.
        snapshot: the snapshot that they are about.
    """
    node = "" if snapshot.node is None else snapshot.node.node_name
    kube = kube_index(snapshot.kubernetes)
    found: dict[tuple[str, Subject, str], DrainItem] = {}
    for diagnosis in diagnoses:
        for item in _items_of_volume(diagnosis, node, kube):
            found.setdefault(_key(item), item)
    for finding in of_node(snapshot):
        item = _item(DrainStep.NODE_SERVICE_DOWN, finding)
        found.setdefault(_key(item), item)
    yield from found.values()


def _key(item: DrainItem) -> tuple[str, Subject, str]:
    """Return what is the same for one thing: each volume reports a driver that is down."""
    is_of_node = item.step is DrainStep.NODE_SERVICE_DOWN
    return item.code, item.subject, "" if is_of_node else item.statement


def _items_of_volume(diagnosis: Diagnosis, node: str, kube: KubeIndex) -> Iterator[DrainItem]:
    taken: set[Subject] = set()
    for finding in diagnosis.findings:
        step = _step(finding, diagnosis, node)
        if step is not None:
            taken.add(finding.subject)
            yield _item(step, finding)
    for held, mapping in diagnosis.mapped:
        subject = subject_of(held.holder)
        if held.verdict is Verdict.FOREIGN:
            yield _mapped_by_hand(held, subject)
        elif subject not in taken and held.verdict in _BY_VERDICT:
            yield DrainItem(
                step=_BY_VERDICT[held.verdict],
                subject=subject,
                statement=f"{subject}: {held.reasons[0]}.",
                evidence=held.reasons,
            )
        if held.verdict not in _WITH_OWN_PINS:
            yield from _kept_beside_pods(held, mapping, subject, kube)
            yield from _of_staying_pods(held, subject)


def _step(finding: Finding, diagnosis: Diagnosis, node: str) -> DrainStep | None:
    """Return the step of a finding; None if it does not concern a drain of the node."""
    step = _STEPS.get(Code(finding.code))
    if step is None or finding.severity is Severity.INFO:
        return None
    if step not in _ABROAD and finding.subject.node not in {None, node}:
        return None
    if step is DrainStep.OUTSIDE_CLIENT and finding.subject.kind is SubjectKind.DEVICE:
        # A device of this node is reported by its verdict; one of another node is no client.
        return None
    if finding.code == Code.OPERATION_HANGS and _is_request(diagnosis):
        return DrainStep.HANGING_REQUEST
    return step


def _is_request(diagnosis: Diagnosis) -> bool:
    """Return whether requests to Ceph hang, and no process of kubelet or the driver sleeps."""
    holders = [held.holder for held in diagnosis.local]
    sleeps = any(
        flight.process.state == "D"
        for holder in holders
        for flight in observed_of(holder.in_flight)
    )
    return not sleeps and any(hung_requests(holder.mapping) for holder in holders)


def _item(step: DrainStep, finding: Finding) -> DrainItem:
    return DrainItem(
        step=step,
        subject=finding.subject,
        statement=finding.message,
        code=finding.code,
        evidence=finding.evidence,
        remedy=finding.remedy,
        commands=finding.commands,
    )


def _mapped_by_hand(held: HolderVerdict, subject: Subject) -> DrainItem:
    return DrainItem(
        step=DrainStep.UNUSED_MAPPING,
        subject=subject,
        statement=f"{subject} was not mapped by Kubernetes: a drain neither unmounts nor unmaps "
        "it. Release it as it was mapped, or let its own service do so at the shutdown.",
        code=Code.FOREIGN_HOLDER,
        evidence=held.reasons,
        commands=_findmnt(held),
    )


def _findmnt(held: HolderVerdict) -> tuple[Command, ...]:
    mapping = held.holder.mapping
    mounts = () if mapping is None else observed_of(mapping.mounts)
    on_host = (mount.path for mount in mounts if mount.namespace.is_host)
    return tuple(command("findmnt", path, node=held.holder.node) for path in dict.fromkeys(on_host))


def _kept_beside_pods(
    held: HolderVerdict, mapping: Mapping, subject: Subject, kube: KubeIndex
) -> Iterator[DrainItem]:
    """Yield what keeps a device of a pod open and does not end with the pods that are evicted.

    While a pod uses the volume, it is no fault: the verdict is the pod's. After the eviction,
    kubelet unmounts, and `rbd unmap` fails with EBUSY (recording 12-pinned-by-cwd-invisible).
    """
    found, holder = evidence_of(held.holder), held.holder
    openers = [one for one in found.openers if _remains(one.process, holder, kube)]
    mounts = [
        mount
        for mount in (*foreign_mounts(found, holder), *found.other_mounts)
        if mount.namespace.is_host or _remains(mount.namespace.process, holder, kube)
    ]
    devices = strange_devices(holder)
    texts = dict.fromkeys(
        (
            *map(opener_text, openers),
            *map(mount_text, mounts),
            *map(block_holder_text, devices),
        )
    )
    if not texts:
        return
    first, *others = texts
    more = f" (and {len(others)} more)" if others else ""
    processes = dict.fromkeys(
        [one.process.pid for one in openers]
        + [mount.namespace.process.pid for mount in mounts if not mount.namespace.is_host]
    )
    yield DrainItem(
        step=DrainStep.PINNED,
        subject=subject,
        statement=f"{subject} is kept open by something that a drain does not end: {first}{more}. "
        f"{mapping.device} cannot be unmapped until that ends.",
        evidence=tuple(texts),
        commands=(
            *(
                command("ps -o pid,user,lstart,args -p", str(pid), node=holder.node)
                for pid in processes
            ),
            *(
                command("findmnt", mount.path, node=holder.node)
                for mount in mounts
                if mount.namespace.is_host
            ),
            *(show_stacked(device, holder) for device in devices),
        ),
    )


def _remains(process: ProcessRef, holder: Holder, kube: KubeIndex) -> bool:
    """Return whether a process runs on after the evictions: of no pod, or of one that stays.

    A container whose pod the API does not list has its own finding (RBD109). If the pods were not
    observed, it is not known.
    """
    if process.pod_uid is None:
        return True
    pod = kube.pod_by_uid.get(process.pod_uid)
    if pod is not None:
        return stays(pod)
    is_known = kube.coverage.pods_on(holder.node)
    return is_known and process.pod_uid not in holder.unknown_pod_uids


def _of_staying_pods(held: HolderVerdict, subject: Subject) -> Iterator[DrainItem]:
    """Yield a device that a pod of a DaemonSet uses: a drain does not evict that pod."""
    staying = [str(pod.ref) for pod in evidence_of(held.holder).running if stays(pod)]
    if staying:
        names = ", ".join(staying)
        yield DrainItem(
            step=DrainStep.PINNED,
            subject=subject,
            statement=f"{subject} stays mapped: a drain does not evict {names}, of a DaemonSet.",
            evidence=held.reasons,
        )


# --------------------------------------------------------------------------------------------------
# What was not observed there
# --------------------------------------------------------------------------------------------------


def observed_gaps(
    diagnoses: Sequence[Diagnosis], snapshot: Snapshot, items: Sequence[DrainItem]
) -> Iterator[Gap]:
    """Yield the facts about the mappings of the observed node that could change the answer."""
    taken = {item.subject for item in items}
    is_delayed = any(item.step in _DELAYING for item in items)
    for diagnosis in diagnoses:
        for held, mapping in diagnosis.mapped:
            view = held.holder.view(diagnosis.volume)
            yield from _gaps_of_mapping(held, mapping, view)
            if subject_of(held.holder) in taken:
                continue
            if held.verdict is Verdict.UNDETERMINED:
                yield Gap(fact=f"what uses {mapping.device}", reason=held.reasons[0])
            elif held.verdict is Verdict.STAGED and not (
                is_delayed or evidence_of(held.holder).waiting
            ):
                yield Gap(
                    fact=f"whether {mapping.device} is about to be unmapped",
                    reason=held.reasons[0],
                    hint=_AGAIN,
                )
    if any(diagnosis.mapped for diagnosis in diagnoses):
        yield from _gaps_of_services(snapshot)
        yield from _gaps_of_reports(snapshot)
    unbacked = () if snapshot.node is None else snapshot.node.unbacked
    if isinstance(unbacked, NotObserved):
        yield Gap(
            fact="whether a container writes beside its volume",
            reason=unbacked.reason,
            hint=unbacked.hint,
        )


def _gaps_of_reports(snapshot: Snapshot) -> Iterator[Gap]:
    """Yield why the reports of agents were not read: they show holders that Ceph does not list."""
    published = () if snapshot.kubernetes is None else snapshot.kubernetes.published
    if isinstance(published, NotObserved):
        yield Gap(
            fact="what agents report of the mapped images",
            reason=published.reason,
            hint=published.hint,
        )


def _gaps_of_mapping(
    held: HolderVerdict, mapping: Mapping, view: ImageView | None
) -> Iterator[Gap]:
    holder = held.holder
    watchers: object = True
    if not are_watchers_observed(view):
        watchers = (
            NotObserved(reason="Ceph did not report its watchers")
            if view is None
            else (view.watchers)
        )
    is_krbd = mapping.nbd is None
    facts: tuple[tuple[str, object], ...] = (
        ("mounts in all mount namespaces", mapping.mounts),
        ("processes that have a device open", mapping.openers),
        ("device-mapper, loop and swap on a device", mapping.holders),
        ("running map, mount and unmap processes", holder.in_flight),
        ("requests to Ceph without an answer", mapping.hung_requests if is_krbd else ()),
        ("which pods use the volumes", holder.pods),
        ("the Ceph blocklist", holder.blocklisted_by),
        ("the watchers of the images", watchers),
        ("the watches of the mappings", is_watch_observed(holder, view)),
    )
    for fact, why in unobserved(facts):
        yield Gap(fact=fact, reason=why.reason, hint=why.hint)


def _gaps_of_services(snapshot: Snapshot) -> Iterator[Gap]:
    kubelet = kubelet_of(snapshot)
    if isinstance(kubelet, NotObserved):
        facts: tuple[tuple[str, object], ...] = (("kubelet and the CSI driver", kubelet),)
    else:
        facts = (
            ("whether kubelet runs", kubelet.process),
            ("whether the CSI driver answers", kubelet.sockets),
            *(
                ("whether the CSI driver answers", one.listening)
                for one in observed_of(kubelet.sockets)
            ),
        )
    for fact, why in unobserved(facts):
        yield Gap(fact=fact, reason=why.reason, hint=why.hint)


def observed_mappings(diagnoses: Sequence[Diagnosis]) -> tuple[MappedVolume, ...]:
    """Return the mappings of the observed node."""
    return tuple(
        MappedVolume(
            device=mapping.device,
            verdict=held.verdict,
            image=held.holder.other_image or diagnosis.volume.image,
            client_id=mapping.client_id,
            client_address=mapping.client_address,
            persistent_volume=None
            if diagnosis.volume.persistent_volume is None
            else diagnosis.volume.persistent_volume.name,
        )
        for diagnosis in diagnoses
        for held, mapping in diagnosis.mapped
    )


# --------------------------------------------------------------------------------------------------
# Of another node, by the report of its agent
# --------------------------------------------------------------------------------------------------


def reported_items(report: PublishedNode) -> Iterator[DrainItem]:
    """Yield what the agent of another node reports, each thing once."""
    found: dict[tuple[str, Subject, str], DrainItem] = {}
    for mapping in observed_of(report.mappings):
        for item in _items_of_report(mapping, report.name):
            found.setdefault(_key(item), item)
    yield from found.values()


def _items_of_report(mapping: PublishedMapping, node: str) -> Iterator[DrainItem]:
    device, known = Subject.of_device(mapping.device, node), False
    for code in _codes(mapping):
        step = _STEPS.get(Code(code)) if code in FINDINGS else None
        if step is None or (
            step is DrainStep.OUTSIDE_CLIENT and mapping.verdict is Verdict.FOREIGN
        ):
            continue
        is_of_node = step is DrainStep.NODE_SERVICE_DOWN
        known = known or not is_of_node
        yield _reported_item(
            step, Subject.of_node(node) if is_of_node else device, _message(code, mapping), code,
            mapping, node,
        )  # fmt: skip
    step = _BY_VERDICT.get(mapping.verdict)
    if step is not None and not known:
        reason = "".join(map(reported, mapping.reasons[:1])) or f"its verdict is {mapping.verdict}"
        yield _reported_item(step, device, f"{device}: {reason}.", "", mapping, node)


def _codes(mapping: PublishedMapping) -> tuple[str, ...]:
    """Return the codes of the findings about a mapping that are no mere remark."""
    lead = mapping.finding
    first = (lead.code,) if lead is not None and lead.severity != Severity.INFO else ()
    return tuple(dict.fromkeys((*first, *mapping.findings)))


def _message(code: str, mapping: PublishedMapping) -> str:
    lead = mapping.finding
    if lead is not None and lead.code == code and lead.message:
        return reported(lead.message)
    return FINDINGS[code].summary


def _reported_item(
    step: DrainStep,
    subject: Subject,
    statement: str,
    code: str,
    mapping: PublishedMapping,
    node: str,
) -> DrainItem:
    return DrainItem(
        step=step,
        subject=subject,
        statement=statement,
        code=code,
        evidence=(f"reported by the agent on {node}", *map(reported, mapping.reasons)),
        commands=(over_ssh(node, command("rbdagent drain-check", node)),),
    )


def reported_gaps(report: PublishedNode) -> Iterator[Gap]:
    """Yield what a report does not show, and what its agent had not observed."""
    for mapping in observed_of(report.mappings):
        unknown = [code for code in _codes(mapping) if code not in FINDINGS]
        for code in unknown:
            yield Gap(fact=f"what {foreign(code)} of {mapping.device} means", reason=_CATALOGUE)
        if mapping.verdict is Verdict.UNDETERMINED:
            reason = "".join(map(reported, mapping.reasons[:1])) or "its agent could not tell"
            yield Gap(fact=f"what uses {mapping.device}", reason=reason)
        elif mapping.verdict is Verdict.STAGED:
            yield Gap(
                fact=f"whether {mapping.device} is about to be unmapped",
                reason="its agent reports it between two steps",
                hint=_AGAIN,
            )
    if observed_of(report.mappings):
        # An agent publishes what keeps a device open only if no pod uses it.
        yield Gap(
            fact="processes and mounts beside the pods of a volume that is in use",
            reason=f"only {report.name} itself shows them, and no agent publishes them",
            hint=f"run it on {report.name}; kubectl rbdagent does that",
        )


def reported_mappings(report: PublishedNode) -> tuple[MappedVolume, ...] | NotObserved:
    """Return the mappings that an agent reports."""
    if isinstance(report.mappings, NotObserved):
        return report.mappings
    return tuple(
        MappedVolume(
            device=mapping.device,
            verdict=mapping.verdict,
            image=mapping.image,
            client_id=mapping.client_id,
            client_address=mapping.client_address,
            persistent_volume=mapping.persistent_volume,
        )
        for mapping in report.mappings
    )
