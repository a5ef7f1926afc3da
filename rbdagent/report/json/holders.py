"""The output of ``who-holds``: every client that holds the image, with its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from rbdagent import model
from rbdagent.correlate.device_io import io_of
from rbdagent.model import NotObserved, unobserved
from rbdagent.report.json.findings import Command, Finding, commands, findings
from rbdagent.report.json.output import Object, Output, Time
from rbdagent.report.json.sources import Sources, sources
from rbdagent.report.json.volume import Image, Pod, Target, image, pod, target
from rbdagent.report.pod_names import pod_names_by_uid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rbdagent.correlate.device_io import DeviceIo

_T = TypeVar("_T")
_NO_START: Final = NotObserved(reason="the start time of the process was not observed")


class Watcher(Object, frozen=True, kw_only=True):
    """A watch on the header object of the image.

    The cookie is a decimal number in a string: it has 64 bits, and many readers of JSON, jq among
    them, keep 53 bits of a number.
    """

    address: str
    client: int
    cookie: str


class Lock(Object, frozen=True, kw_only=True):
    """An advisory lock on the image."""

    id: str
    client: int
    address: str | None
    exclusive: bool


class ParentProcess(Object, frozen=True, kw_only=True):
    """The parent of a process."""

    pid: int
    program: str


class Process(Object, frozen=True, kw_only=True):
    """A process, and its pod: ``namespace/name``, or its uid if the pod is not in the API.

    ``notObserved`` has the reason for each unknown field. A ``parent`` that is null without a
    reason does not exist.
    """

    pid: int
    command: str
    pod: str | None
    user: str | None
    started_at: Time | None
    parent: ParentProcess | None
    not_observed: dict[str, str]


class Mount(Object, frozen=True, kw_only=True):
    """A mount of the device, and one process in its mount namespace."""

    path: str
    kind: model.MountKind
    read_only: bool
    mount_namespace_of: Process


class OpenFile(Process, frozen=True, kw_only=True):
    """A process that has the device, or a file on it, open."""

    kind: model.OpenKind
    path: str


class BlockHolder(Object, frozen=True, kw_only=True):
    """A block device or swap area on top of the device."""

    kind: model.BlockHolderKind
    name: str
    label: str


class Io(Object, frozen=True, kw_only=True):
    """The I/O of a mapped device: completed requests and their bytes, and requests in flight.

    That of its partitions and of devices stacked on it is part of it, and so are requests that
    failed. If ``sinceMapping`` is false, earlier mappings of the same device are included: an nbd
    device keeps its counters.
    """

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    in_flight: int
    since_mapping: bool


class Attachment(Object, frozen=True, kw_only=True):
    """The VolumeAttachment of the volume to the node of the holder."""

    name: str
    attached: bool
    deleting: bool


class Holder(Object, frozen=True, kw_only=True):
    """A client that holds the image; ``notObserved`` has the reason for each unknown field.

    ``otherImage`` is the image that it holds if the name in the PV leads to another one (RBD123).
    """

    kind: model.HolderKind
    probable_kind: model.HolderKind | None
    node: str | None
    confidence: model.Confidence
    verdict: model.Verdict
    reasons: tuple[str, ...]
    device: str | None
    other_image: Image | None
    read_only: bool | None
    client_id: int | None
    client_address: str | None
    watcher: Watcher | None
    transient: bool
    locks: tuple[Lock, ...]
    mounts: tuple[Mount, ...] | None
    opened_by: tuple[OpenFile, ...] | None
    held_by: tuple[BlockHolder, ...] | None
    io: Io | None
    pods: tuple[Pod, ...] | None
    attachment: Attachment | None
    since: Time | None
    not_observed: dict[str, str]


class VolumeReport(Output, frozen=True, kw_only=True):
    """The verdict on a volume, its holders and its findings."""

    observed_at: Time
    target: Target
    image: Image | None
    verdict: model.Verdict
    holders: tuple[Holder, ...]
    findings: tuple[Finding, ...]


class HolderReport(VolumeReport, frozen=True, kw_only=True):
    """The output of ``who-holds``."""

    kind: Literal["HolderReport"] = "HolderReport"
    sources: Sources
    next: tuple[Command, ...]


def holder_report(diagnosis: model.Diagnosis, snapshot: model.Snapshot) -> HolderReport:
    """Return the output of ``who-holds -o json``."""
    return HolderReport(
        observed_at=snapshot.observed_at,
        target=target(diagnosis.volume),
        image=image(diagnosis.volume.image),
        verdict=diagnosis.verdict,
        holders=holders(diagnosis, pod_names_by_uid(snapshot)),
        findings=findings(diagnosis.findings),
        sources=sources(snapshot),
        next=commands(diagnosis.next_commands),
    )


def holders(diagnosis: model.Diagnosis, names: Mapping[str, str]) -> tuple[Holder, ...]:
    """Return the holders of a volume; ``names`` are those of pods by their uid."""
    return tuple(holder(holder_verdict, names) for holder_verdict in diagnosis.holders)


def holder(holder_verdict: model.HolderVerdict, names: Mapping[str, str]) -> Holder:
    """Return one holder; ``names`` are those of pods by their uid."""
    client = holder_verdict.holder
    mapping, published = client.mapping, client.published
    elsewhere = _not_observed(client)
    read_only = mapping.read_only if mapping else None
    mounts = mapping.mounts if mapping else elsewhere
    openers = mapping.openers if mapping else elsewhere
    devices = mapping.holders if mapping else elsewhere
    done = io_of(mapping) if mapping else elsewhere
    facts = {
        "readOnly": read_only,
        "mounts": mounts,
        "openedBy": openers,
        "heldBy": devices,
        "io": done,
        "pods": client.pods,
        "attachment": client.attachment,
    }
    return Holder(
        kind=client.kind,
        probable_kind=client.probable_kind,
        node=client.node,
        confidence=client.confidence,
        verdict=holder_verdict.verdict,
        reasons=holder_verdict.reasons,
        device=mapping.device if mapping else published.device if published else None,
        other_image=image(client.other_image),
        read_only=_observed(read_only),
        client_id=_client_id(client),
        client_address=_client_address(client),
        watcher=_watcher(client.watcher),
        transient=client.transient,
        locks=tuple(_lock(locker) for locker in client.lockers),
        mounts=_mounts(mounts, names),
        opened_by=_open_files(openers, names),
        held_by=_block_holders(devices),
        io=_io(done),
        pods=_pods(client.pods),
        attachment=_attachment(client.attachment),
        since=holder_verdict.since,
        not_observed=_reasons(facts),
    )


def _reasons(facts: Mapping[str, object]) -> dict[str, str]:
    """Return why each of the named facts was not observed."""
    return {key: fact.reason for key, fact in unobserved(facts.items())}


def _not_observed(client: model.Holder) -> NotObserved:
    """Return why the facts of a client are unknown that only its own node shows."""
    where = client.node or "an unknown machine"
    return NotObserved(reason=f"the client is on {where}, which was not observed")


def _observed(fact: _T | NotObserved) -> _T | None:
    return None if isinstance(fact, NotObserved) else fact


def _client_id(client: model.Holder) -> int | None:
    if client.mapping and client.mapping.client_id:
        return client.mapping.client_id
    return client.watcher.client if client.watcher else None


def _client_address(client: model.Holder) -> str | None:
    address = client.mapping.client_address if client.mapping else None
    if address is None and client.watcher is not None:
        address = client.watcher.address
    return str(address) if address else None


def _watcher(watcher: model.Watcher | None) -> Watcher | None:
    if watcher is None:
        return None
    return Watcher(address=str(watcher.address), client=watcher.client, cookie=str(watcher.cookie))


def _lock(locker: model.LockHolder) -> Lock:
    return Lock(
        id=locker.lock_id,
        client=locker.client,
        address=str(locker.address) if locker.address else None,
        exclusive=locker.exclusive,
    )


def _mounts(
    mounts: tuple[model.Mount, ...] | NotObserved, names: Mapping[str, str]
) -> tuple[Mount, ...] | None:
    if isinstance(mounts, NotObserved):
        return None
    return tuple(
        Mount(
            path=mount.path,
            kind=mount.kind,
            read_only=mount.read_only,
            mount_namespace_of=Process(**_process(mount.namespace.process, names)),
        )
        for mount in mounts
    )


def _open_files(
    openers: tuple[model.OpenFile, ...] | NotObserved, names: Mapping[str, str]
) -> tuple[OpenFile, ...] | None:
    if isinstance(openers, NotObserved):
        return None
    return tuple(
        OpenFile(**_process(opener.process, names), kind=opener.kind, path=opener.path)
        for opener in openers
    )


def _process(process: model.ProcessRef, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a `Process`."""
    facts = {
        "user": process.user,
        "startedAt": process.started_at or _NO_START,
        "parent": process.parent,
    }
    return {
        "pid": process.pid,
        "command": process.command,
        "pod": _pod_of(process, names),
        "user": _observed(process.user),
        "started_at": process.started_at,
        "parent": _parent(process.parent),
        "not_observed": _reasons(facts),
    }


def _parent(parent: model.ParentProcess | NotObserved | None) -> ParentProcess | None:
    if parent is None or isinstance(parent, NotObserved):
        return None
    return ParentProcess(pid=parent.pid, program=parent.program)


def _pod_of(process: model.ProcessRef, names: Mapping[str, str]) -> str | None:
    uid = process.pod_uid
    return names.get(uid, f"uid {uid}") if uid else None


def _block_holders(
    devices: tuple[model.BlockHolder, ...] | NotObserved,
) -> tuple[BlockHolder, ...] | None:
    if isinstance(devices, NotObserved):
        return None
    return tuple(
        BlockHolder(kind=device.kind, name=device.name, label=device.label) for device in devices
    )


def _io(done: DeviceIo | NotObserved) -> Io | None:
    if isinstance(done, NotObserved):
        return None
    return Io(
        reads=done.reads,
        read_bytes=done.read_bytes,
        writes=done.writes,
        written_bytes=done.written_bytes,
        in_flight=done.in_flight,
        since_mapping=done.is_since_mapping,
    )


def _pods(pods: tuple[model.Pod, ...] | NotObserved) -> tuple[Pod, ...] | None:
    return None if isinstance(pods, NotObserved) else tuple(pod(known) for known in pods)


def _attachment(attachment: model.VolumeAttachment | NotObserved | None) -> Attachment | None:
    if attachment is None or isinstance(attachment, NotObserved):
        return None
    return Attachment(
        name=attachment.name,
        attached=attachment.attached,
        deleting=attachment.deleting_since is not None,
    )
