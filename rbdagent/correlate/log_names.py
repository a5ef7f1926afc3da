"""The names of a volume in the logs of the observed node, and the lines that contain them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.correlate.image_identity import identity_of_mapping, mappings_of, staging_on
from rbdagent.correlate.volume import correlate, volumes_of_node
from rbdagent.model import (
    CsiSource,
    ImageSpec,
    Mapping,
    Snapshot,
    StagingDirectory,
    TargetKind,
    Volume,
    observed_of,
)
from rbdagent.parse.handle import staging_hash
from rbdagent.parse.recognised import Recognised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Holder

_COMM: Final = 15
"""Characters of a task's name that the kernel keeps (TASK_COMM_LEN)."""
_KEY_TOO_LONG: Final = "libceph: secret too big"
"""The name for kernel lines about a key: such a line names no volume."""
OF_CLIENTS: Final = "libceph:"
"""The name for kernel lines about a client of Ceph: such a line names no device."""
_HEADS: Final = ("libceph: ", "rbd: ")
_CLIENT_LINES: Final = (
    Recognised.FEATURE_SET_MISMATCH,
    Recognised.OTHER_CLUSTER_ANSWERS,
    Recognised.CONNECTION_LOST,
    Recognised.CONNECT_REFUSED_HERE,
    Recognised.FORMER_PROTOCOL_TO_MSGR2,
    Recognised.UNKNOWN_MAP_OPTION,
    Recognised.TOO_MANY_PARENTS,
    Recognised.POOL_FULL_FOR_CLIENT,
)


_DECISIVE_LINES: Final = (
    Recognised.FILE_SYSTEM_STOPPED,
    Recognised.FILE_SYSTEM_CHANGED,
    Recognised.DUPLICATE_UUID,
    Recognised.UNKNOWN_FEATURE,
    Recognised.BAD_GEOMETRY,
    Recognised.TASK_HUNG,
)


class LogNames(Struct, frozen=True, kw_only=True):
    """The names of one volume in the logs of a node."""

    volume: frozenset[str] = frozenset()
    """PVs, volume handles, staging directories, ``pool/image``: for kubelet and the plugin."""
    kernel: frozenset[str] = frozenset()
    """``rbd0``, ``dm-0``, ``client4118``, ``umount:1331``; and the name for a refused key."""


def log_names_in(snapshot: Snapshot) -> tuple[LogNames, ...]:
    """Return the names of each volume that a snapshot is about.

    Without a target, these are all volumes that the node has mapped or staged, or waits for.
    """
    if snapshot.target.kind is not TargetKind.NONE:
        found = [log_names_of(correlate(snapshot), snapshot)]
    else:
        found = [log_names_of(volume, snapshot) for volume in volumes_of_node(snapshot).all_volumes]
        found += _only_staged(snapshot, found)
    return tuple(dict.fromkeys(call for call in found if call.volume or call.kernel))


def log_names_of(volume: Volume, snapshot: Snapshot) -> LogNames:
    """Return the names of one volume."""
    kernel = {*_of_kernel(volume), *_of_failed_mounts(volume, snapshot)}
    return LogNames(volume=frozenset(_of_volume(volume)), kernel=frozenset(kernel))


def _of_volume(volume: Volume) -> Iterator[str]:
    volumes = (
        ()
        if volume.persistent_volume is None
        else (volume.persistent_volume, *volume.other_volumes)
    )
    for persistent_volume in volumes:
        yield persistent_volume.name
        if isinstance(persistent_volume.source, CsiSource):
            yield from _of_handle(persistent_volume.source.volume_handle)
    match volume.target.kind:
        case TargetKind.PERSISTENT_VOLUME:
            yield volume.target.name
        case TargetKind.VOLUME_HANDLE:
            yield from _of_handle(volume.target.name)
        case _:
            pass
    if volume.image is not None:
        yield from _of_spec(volume.image.spec)
    for holder in volume.holders:
        for staging in observed_of(holder.staging) if holder.is_local else ():
            yield from _of_staging(staging)
        if holder.is_local and isinstance(holder.mapping, Mapping):
            image = identity_of_mapping(holder.mapping)
            yield from () if image is None else _of_spec(image.spec)


def _of_spec(spec: ImageSpec) -> Iterator[str]:
    if spec.pool:
        yield str(spec)


def _of_handle(handle: str) -> Iterator[str]:
    yield handle
    yield staging_hash(handle)


def _of_staging(staging: StagingDirectory) -> Iterator[str]:
    if staging.volume_handle is not None:
        yield from _of_handle(staging.volume_handle)
    yield from (
        word for word in (staging.handle_hash, staging.persistent_volume) if word is not None
    )


def _of_kernel(volume: Volume) -> Iterator[str]:
    for holder in volume.holders:
        if not holder.is_local:
            continue
        if holder.mapping is not None:
            yield holder.mapping.kernel_name
            yield from (block_holder.name for block_holder in observed_of(holder.mapping.holders))
            if holder.mapping.client_id is not None:
                yield f"client{holder.mapping.client_id}"
        for flight in observed_of(holder.in_flight):
            yield f"{flight.program[:_COMM]}:{flight.process.pid}"
    if any(Recognised.KEY_NOT_ADDED.is_in(event.message) for event in volume.events):
        yield _KEY_TOO_LONG
    if any(map(_has_hung_requests, volume.holders)):
        yield OF_CLIENTS


def _has_hung_requests(holder: Holder) -> bool:
    return holder.mapping is not None and bool(observed_of(holder.mapping.hung_requests))


_FAILED: Final = (Recognised.MOUNT_REFUSED, Recognised.SUPER_BLOCK_UNREADABLE)


def _of_failed_mounts(volume: Volume, snapshot: Snapshot) -> Iterator[str]:
    """Yield what names the kernel's lines about a volume that a pod here waits for.

    After a mount that failed, ceph-csi unmaps the device: an event names it. The device may have
    another image now. A map that failed had no device.
    """
    node = snapshot.node
    if node is None or all(pod.node_name != node.node_name for pod in volume.waiting_pods):
        return
    yield OF_CLIENTS
    mapped = {mapping.kernel_name for mapping in mappings_of(node)}
    for event in volume.events:
        for text in _FAILED:
            named = text.named_in(event.message)
            device = named["device"].removeprefix("/dev/") if named is not None else ""
            if _MAPPABLE.fullmatch(device) and device not in mapped:
                yield device


def _only_staged(snapshot: Snapshot, known: list[LogNames]) -> Iterator[LogNames]:
    """Yield the names of the volumes that are staged and not mapped."""
    named = frozenset(name for call in known for name in call.volume)
    for staging in staging_on(snapshot.node):
        names = frozenset(_of_staging(staging))
        if names.isdisjoint(named):
            yield LogNames(volume=names)


# --------------------------------------------------------------------------------------------------
# The volumes that a line names
# --------------------------------------------------------------------------------------------------

_MAPPABLE: Final = re.compile(r"(?:rbd|nbd)\d{1,6}")
_WORD: Final = re.compile(r"[\w.-]+")
_DEVICE: Final = re.compile(r"dm-\d+|(?<![A-Za-z])[A-Za-z]++\d+")
_TASK: Final = re.compile(r"[\w.-]++(?::\d+)?")
"""Both patterns are possessive, so that no match begins inside a long word that did not match."""
_DISTINCT: Final = 24
"""A name of this length is unique; a shorter name (a static PV ``data``) may be any word."""
_PLACES: Final = (
    r"(?:\^|Req-ID: |kubernetes\.io~(?:csi|rbd)/|globalmount/|volumeDevices/(?:staging/|publish/)?"
    r"|\b(?:[Pp]ersistent)?[Vv]olumes?[ :=]?\\*[\"'(\[]"
    r"|\b[Vv]ol(?:ume)?[ _]?(?:ID|id|Name)\b\\*[\"']?[:= ]{1,2}\\*[\"']?)"
)
"""The positions at which kubelet and ceph-csi write only the name of a PV or a handle."""


def is_decisive(text: str) -> bool:
    """Return whether a line of the kernel has the cause, among many that repeat its effect."""
    return any(row.is_in(text) for row in _DECISIVE_LINES)


def is_of_clients(text: str) -> bool:
    """Return whether a line of the kernel is about its client of Ceph, and names no device."""
    return text.startswith(_HEADS) and any(row.is_in(text) for row in _CLIENT_LINES)


class Naming(Struct, frozen=True, kw_only=True):
    """Holds the names of volumes, to find the numbers of the volumes that a line names."""

    volumes: dict[str, tuple[_Name, ...]]
    """Names by a word that they contain."""
    kernel: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, calls: tuple[LogNames, ...]) -> Naming:
        """Index the names of volumes."""
        volumes: dict[str, list[_Name]] = {}
        kernel: dict[str, list[int]] = {}
        for number, call in enumerate(calls):
            for name in sorted(call.volume):
                made = _Name.of(name, number)
                volumes.setdefault(made.word, []).append(made)
            for name in sorted(call.kernel):
                kernel.setdefault(name, []).append(number)
        return cls(
            volumes={word: tuple(found) for word, found in volumes.items()},
            kernel={name: tuple(numbers) for name, numbers in kernel.items()},
        )

    def in_log(self, text: str) -> dict[int, frozenset[str]]:
        """Return the volumes that a line of kubelet or of the plugin names, and by which names."""
        found: dict[int, set[str]] = {}
        for word in {match.strip(".") for match in _WORD.findall(text)}:
            for name in self.volumes.get(word, ()):
                if name.is_in(text):
                    found.setdefault(name.number, set()).add(name.text)
        return {number: frozenset(names) for number, names in found.items()}

    def in_kernel(self, text: str) -> dict[int, frozenset[str]]:
        """Return the volumes that a line of the kernel names, and by which names."""
        found: dict[int, set[str]] = {}
        names = {*_DEVICE.findall(text), *(task for task in _TASK.findall(text) if ":" in task)}
        if Recognised.SECRET_TOO_BIG.is_in(text):
            names.add(_KEY_TOO_LONG)
        if is_of_clients(text):
            names.add(OF_CLIENTS)
        for name in names:
            for number in self.kernel.get(name, ()):
                found.setdefault(number, set()).add(name)
        return {number: frozenset(names) for number, names in found.items()}


class _Name(Struct, frozen=True, kw_only=True):
    """One name of one volume."""

    text: str
    word: str
    """The last word of the name: a line without that word does not contain the name."""
    number: int
    pattern: str
    """The pattern for the name in a line, compiled only for a line with its word; empty if the name
    may occur in any form."""

    @classmethod
    def of(cls, text: str, number: int) -> _Name:
        words = _WORD.findall(text)
        word = words[-1].strip(".") if words else text
        escaped = re.escape(text)
        pattern = ""
        if "/" in text:
            pattern = rf"(?<![\w./-]){escaped}(?![\w/-]|\.\w)"
        elif len(text) < _DISTINCT or word != text:
            pattern = rf"{_PLACES}{escaped}(?![\w-]|\.\w)"
        return cls(text=text, word=word, number=number, pattern=pattern)

    def is_in(self, text: str) -> bool:
        return not self.pattern or re.search(self.pattern, text) is not None
