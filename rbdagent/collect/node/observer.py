"""The node: devices with the mounts, descriptors and stacked devices that keep them busy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.failure import gaps_in
from rbdagent.collect.files import LISTS, names_in, read_text
from rbdagent.collect.node.holder_processes import with_descriptions
from rbdagent.collect.node.kubelet_dirs import (
    existing_roots,
    find_kubelet,
    observe_kubelet,
    own_root,
    root_positions,
)
from rbdagent.collect.node.mounts import (
    OnDisk,
    Wanted,
    mounts_of,
    shows_a_volume,
    shows_use,
    unbacked_of,
)
from rbdagent.collect.node.process_scan import (
    MOST_NAMED,
    ProcessScan,
    in_flight_of,
    thread_traces,
)
from rbdagent.collect.node.processes import ProcessEntry, named
from rbdagent.collect.node.procfs import ProcessPass, Turns
from rbdagent.collect.node.rbd_sysfs import (
    BlockDevice,
    Clients,
    module_loaded,
    nbd_image,
    observe_clients,
    observe_kernel_traces,
    observe_krbd,
    observe_loops,
    observe_nbd,
    observe_swaps,
    requests_of,
    without_unmapped,
)
from rbdagent.errors import ParseError
from rbdagent.model import (
    COMMAND_LINES,
    BlockHolder,
    BlockHolderKind,
    DeviceKind,
    DeviceNumber,
    Gap,
    KubeletView,
    Mapping,
    Mount,
    MountKind,
    NodeView,
    NotObserved,
    OpenFile,
    ProcessRef,
    Source,
    SourceState,
    UnbackedMount,
    derived,
    first_unobserved,
    observed_of,
)
from rbdagent.parse.command_line import flag_value
from rbdagent.parse.network_namespace import local_addresses
from rbdagent.parse.rbd_nbd import NBD_SERVER, is_server
from rbdagent.parse.shown import all_as_unicode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rbdagent.collect.node.roots import NodeRoots

_HUNG: Final = "check that process: it does not answer"
_BEYOND: Final = "check that process: it exceeds the read limits"
_CHECK_PROCESS: Final = "check that process: it could not be observed"
_PTRACE: Final = "run as root with CAP_SYS_PTRACE; other users also need CAP_DAC_READ_SEARCH"


def observe_node(
    roots: NodeRoots,
    *,
    node_name: str,
    turns: Turns | None = None,
    deadline: float = math.inf,
) -> tuple[NodeView | None, Source]:
    """Return everything on this node that concerns RBD devices.

    The environment never causes an exception: without /proc, or with unreadable sysfs attributes,
    the source is ``failed``. A fact that a missing permission hides is NotObserved and a gap of the
    source.

    Args:
        roots: the paths of the host's file systems.
        node_name: this node.
        turns: stores between observations which processes hang.
        deadline: of the monotonic clock, for the processes of the node.
    """
    if names_in(roots.procfs / "1") is None:
        return None, Source(
            state=SourceState.FAILED,
            reason=f"{roots.procfs}: no /proc of the host is mounted there",
            hint="mount the host's /proc there, or pass --procfs with its path",
        )
    try:
        # Names are converted only here, because until now they are paths of files to read.
        return all_as_unicode(_observe(roots, node_name, turns, deadline))
    except ParseError as error:
        return None, Source(state=SourceState.FAILED, reason=str(error))


def _observe(
    roots: NodeRoots, node_name: str, turns: Turns | None, deadline: float
) -> tuple[NodeView, Source]:
    krbd = observe_krbd(roots.sysfs, roots.host_root)
    devices = observed_of(krbd) + observe_nbd(roots.sysfs, roots.host_root)
    numbers = frozenset(number for device in devices for number in device.numbers)
    wanted = Wanted.of(numbers, _node_paths(devices))
    processes = ProcessPass(
        roots.procfs, wanted, turns=turns, deadline=deadline, is_public=roots.is_public
    )
    scan = processes.scan()
    mounts = tuple(mounts_of(scan.namespaces, wanted))
    if _needs_threads(devices, mounts, scan) and (more := processes.scan_threads()):
        scan = more
        mounts = tuple(mounts_of(scan.namespaces, wanted))
    shared = _shared(roots, scan, mounts, devices)
    devices = without_unmapped(devices, roots.sysfs)
    found = find_kubelet(roots.procfs, scan)
    running = found if isinstance(found, ProcessEntry) else None
    own = own_root(running) if running else None
    kubelet = observe_kubelet(
        roots.host_root,
        roots.procfs,
        roots=existing_roots(roots.host_root, own, roots.kubelet_roots),
        process=running.ref if running else None,
        own=own,
    )
    held = tuple(_mapping(device, scan, shared) for device in devices)
    mappings = with_descriptions(held, scan, roots.procfs, roots.host_root)
    view = NodeView(
        node_name=node_name,
        hostname=_text(roots.procfs / "sys" / "kernel" / "hostname"),
        boot_id=boot_id(roots.procfs),
        module_loaded=module_loaded(roots.sysfs),
        mappings=derived(krbd, lambda _: mappings),
        kubelet=replace(kubelet, process=found) if isinstance(found, NotObserved) else kubelet,
        addresses=_addresses(roots.procfs),
        in_flight=in_flight_of(roots.procfs, scan),
        unbacked=_unbacked(roots, scan, numbers, kubelet.roots),
        processes=_containers(scan),
        uptime_s=uptime(roots.procfs),
    )
    return view, Source(
        state=SourceState.OBSERVED, gaps=_gaps(view, scan, any_device=bool(devices))
    )


def _needs_threads(
    devices: tuple[BlockDevice, ...], mounts: tuple[Mount, ...], scan: ProcessScan
) -> bool:
    """Return whether a device is open in no process and mounted for no pod.

    In that case, the open files and mounts of every thread are read too. Reading them in each
    observation would cost too much. An rbd-nbd process has the device open that it serves.
    """
    servers = {entry.process.pid for entry in scan.entries if is_server(entry.arguments)}
    used = {opener.device for opener in scan.openers if opener.process.pid not in servers}
    used |= {mount.device for mount in mounts if "/pods/" in mount.path}
    return any(used.isdisjoint(device.numbers) for device in devices)


def _text(path: Path) -> str:
    text = read_text(path)
    return text if isinstance(text, str) else ""


def boot_id(procfs: Path) -> str | None:
    """Read the random id of this boot; None if it cannot be read (random(4))."""
    return _text(procfs / "sys" / "kernel" / "random" / "boot_id") or None


def uptime(procfs: Path) -> float | None:
    """Read the seconds since boot, including suspend: CLOCK_BOOTTIME (fs/proc/uptime.c)."""
    words = _text(procfs / "uptime").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


class _Shared(Struct, frozen=True, kw_only=True):
    """Holds the facts that are read once for all devices."""

    mounts: dict[DeviceNumber, list[Mount]]
    hidden_mounts: NotObserved | None
    """Why the mounts of a namespace were not observed; None if all were."""
    openers: dict[DeviceNumber, list[OpenFile]]
    hidden_files: NotObserved | None
    """Why the open files of a process were not observed; None if all were."""
    traces: dict[str, list[str]]
    """The kernel objects of a file system on a device, by the kernel name of the device."""
    swaps: tuple[str, ...] | NotObserved
    loops: tuple[tuple[BlockHolder, str], ...]
    clients: Clients


def _shared(
    roots: NodeRoots,
    scan: ProcessScan,
    mounts: tuple[Mount, ...],
    devices: tuple[BlockDevice, ...],
) -> _Shared:
    mounts_of_device: dict[DeviceNumber, list[Mount]] = {}
    for mount in mounts:
        mounts_of_device.setdefault(mount.device, []).append(mount)
    openers_of_device: dict[DeviceNumber, list[OpenFile]] = {}
    for opener in scan.openers:
        openers_of_device.setdefault(opener.device, []).append(opener)
    traces: dict[str, list[str]] = {}
    for name, trace in (
        *observe_kernel_traces(roots.sysfs, roots.procfs),
        *thread_traces(scan.entries),
    ):
        traces.setdefault(name, []).append(trace)
    return _Shared(
        mounts=mounts_of_device,
        hidden_mounts=_hidden_mounts(scan),
        openers=openers_of_device,
        hidden_files=_hidden_files(scan),
        traces=traces,
        swaps=observe_swaps(roots.procfs),
        loops=observe_loops(roots.sysfs),
        clients=observe_clients(roots.sysfs, [device.mapping for device in devices]),
    )


def _mapping(device: BlockDevice, scan: ProcessScan, shared: _Shared) -> Mapping:
    """Return one mapping with everything that keeps the device busy."""
    found = tuple(
        mount for number in sorted(device.numbers) for mount in shared.mounts.get(number, ())
    )
    requests = requests_of(device.mapping, shared.clients)
    mapping = _with_nbd_process(device.mapping, scan)
    return replace(
        mapping,
        mounts=_all_mounts(found, shared.hidden_mounts),
        openers=_openers(device, shared, mapping.server_pid),
        holders=_holders(device, found, shared),
        kernel_traces=tuple(
            trace for name in sorted(device.names) for trace in shared.traces.get(name, ())
        ),
        watch=requests if isinstance(requests, NotObserved) else requests.has_watch,
        hung_requests=requests if isinstance(requests, NotObserved) else requests.requests,
        hung_at=() if isinstance(requests, NotObserved) else requests.places,
    )


def _all_mounts(
    found: tuple[Mount, ...], hidden: NotObserved | None
) -> tuple[Mount, ...] | NotObserved:
    """Return a device's mounts, or NotObserved if the hidden ones may matter.

    A mount that shows use is proof, whatever else is hidden. Without such a mount, a namespace that
    was not observed may have one, so the found mounts prove nothing.
    """
    if hidden is None or any(shows_use(mount, found) for mount in found):
        return found
    return hidden


def _openers(
    device: BlockDevice, shared: _Shared, server: int | None
) -> tuple[OpenFile, ...] | NotObserved:
    """Return a device's openers; the rbd-nbd process that serves the device does not prove use."""
    found = tuple(
        opener for number in sorted(device.numbers) for opener in shared.openers.get(number, ())
    )
    if shared.hidden_files is None or any(opener.process.pid != server for opener in found):
        return found
    return shared.hidden_files


def _holders(
    device: BlockDevice, mounts: tuple[Mount, ...], shared: _Shared
) -> tuple[BlockHolder, ...] | NotObserved:
    """Return the holders in sysfs, with loop devices and swap areas."""
    hidden = first_unobserved((device.mapping.holders, shared.swaps))
    if hidden is not None:
        return hidden
    binds = {mount.path for mount in mounts if mount.kind is MountKind.DEVICE_BIND}
    below = tuple(f"{mount.path}/" for mount in mounts if mount.kind is MountKind.FILE_SYSTEM)
    nodes = {f"/dev{path}" for path in device.node_paths}
    loops = tuple(
        replace(holder, of=device.mapping.kernel_name)
        for holder, backing in shared.loops
        if backing in nodes or backing in binds or backing.startswith(below)
    )
    swapped = tuple(
        BlockHolder(
            kind=BlockHolderKind.SWAP,
            name=path.rpartition("/")[2],
            label=path,
            of=device.mapping.kernel_name,
        )
        for path in observed_of(shared.swaps)
        if path in nodes or path.startswith(below)
    )
    return observed_of(device.mapping.holders) + loops + swapped


def _with_nbd_process(mapping: Mapping, scan: ProcessScan) -> Mapping:
    """Return an nbd mapping with its process, found by the cookie, the device or the pid.

    ``pid`` alone is unreliable: it remains after the process was killed, and after a restart of the
    plugin it still names the old process. So it counts only if that process is rbd-nbd.
    """
    if mapping.nbd is None:
        return mapping
    # After the process was killed, the same volume gets a second device with the same cookie. A
    # process whose arguments name a device serves no other device (recorded).
    servers = [
        entry
        for entry in scan.entries
        if is_server(entry.arguments)
        and flag_value(entry.arguments, "--device") in {None, mapping.device}
    ]
    backend = mapping.nbd.backend
    recorded = mapping.nbd.recorded_pid
    ours = [
        entry
        for entry in servers
        if (backend and flag_value(entry.arguments, "--cookie") == backend)
        or mapping.device in entry.arguments
    ]
    ours += [entry for entry in servers if entry.process.pid == recorded]
    chosen = ours[0] if ours else None
    if chosen is None:
        return replace(mapping, nbd=replace(mapping.nbd, process=_unread_server(scan)))
    return replace(
        mapping,
        spec=nbd_image(chosen.ref, chosen.arguments),
        nbd=replace(mapping.nbd, process=chosen.ref),
    )


def _unread_server(scan: ProcessScan) -> NotObserved | None:
    """Return why a process may serve an nbd device although none was found; None if none does."""
    for entry in scan.entries:
        if entry.name == NBD_SERVER and entry.is_cut:
            why = entry.unread or "its command line was not read"
            return NotObserved(reason=f"{named(entry.ref)}: {why}")
    return NotObserved(reason=scan.unknown[0]) if scan.unknown else None


def _node_paths(devices: tuple[BlockDevice, ...]) -> dict[str, DeviceNumber]:
    """Return the path of each device node below /dev, including the device mapper's names."""
    found = {f"/{name}": number for device in devices for name, number in device.by_name}
    for device in devices:
        for holder in observed_of(device.mapping.holders):
            if holder.device and holder.label:
                found[f"/mapper/{holder.label}"] = holder.device
    return found


def _unbacked(
    roots: NodeRoots,
    scan: ProcessScan,
    numbers: frozenset[DeviceNumber],
    kubelet: tuple[str, ...],
) -> tuple[UnbackedMount, ...] | NotObserved:
    """Return the volume directories without a device that containers have mounted."""
    own: tuple[OnDisk, ...] | NotObserved = ()
    if any(map(shows_a_volume, scan.namespaces)):
        own = root_positions(roots.host_root, roots.procfs, kubelet)
    if isinstance(own, NotObserved):
        return own
    found = tuple(
        mount for namespace in scan.namespaces for mount in unbacked_of(namespace, numbers, own)
    )
    return found or _hidden_mounts(scan) or ()


def _hidden_mounts(scan: ProcessScan) -> NotObserved | None:
    """Return why the mounts of a namespace were not observed; None if all were."""
    return _hidden(
        "mountinfo of {} cannot be read",
        scan.denied_mounts,
        [
            f"mount namespace of {named(namespace.process)}: {namespace.mounts.reason}"
            for namespace in scan.namespaces
            if isinstance(namespace.mounts, NotObserved)
        ]
        + scan.unread_mounts,
    )


def _hidden_files(scan: ProcessScan) -> NotObserved | None:
    """Return why the open files of a process were not observed; None if all were."""
    return _hidden(
        "open files of {} cannot be read",
        scan.denied_files,
        scan.unread_files,
        hung=scan.hung_files,
        beyond=scan.beyond_files,
    )


def _hidden(
    reason: str,
    denied: list[str],
    unread: list[str],
    *,
    hung: Sequence[str] = (),
    beyond: Sequence[str] = (),
) -> NotObserved | None:
    """Return the processes that a missing permission hides, that hang, and that are too large."""
    reasons = [reason.format(_some(denied))] if denied else []
    hints = [_PTRACE] if denied else []
    for found, hint in ((hung, _HUNG), (beyond, _BEYOND), (unread, _CHECK_PROCESS)):
        if found:
            reasons += found[:MOST_NAMED]
            hints.append(hint)
        if (more := len(found) - MOST_NAMED) > 0:
            reasons.append(f"and {more} more")
    return NotObserved(reason="; ".join(reasons), hint="; ".join(hints)) if reasons else None


def _some(processes: list[str]) -> str:
    first, *others = processes
    return f"{len(processes)} processes, including {first}," if others else first


def _containers(scan: ProcessScan) -> tuple[ProcessRef, ...]:
    """Return one process of every container of a pod."""
    first: dict[tuple[str, str | None], ProcessEntry] = {}
    for entry in scan.entries:
        if entry.process.pod_uid is not None:
            first.setdefault((entry.process.pod_uid, entry.process.container_id), entry)
    return tuple(entry.ref for entry in first.values())


def _addresses(procfs: Path) -> tuple[str, ...] | NotObserved:
    """Read the host's addresses from the network namespace of pid 1."""
    trie = read_text(procfs / "1" / "net" / "fib_trie", LISTS)
    six = read_text(procfs / "1" / "net" / "if_inet6", LISTS)
    hidden = first_unobserved((trie, six))
    if hidden is not None:
        return hidden
    try:
        return local_addresses(
            trie if isinstance(trie, str) else "", six if isinstance(six, str) else ""
        )
    except ParseError as error:
        return NotObserved(reason=str(error))


def _gaps(view: NodeView, scan: ProcessScan, *, any_device: bool) -> tuple[Gap, ...]:
    facts: list[tuple[str, object]] = [("krbd devices", view.mappings)]
    if any_device:
        fact = "open files and working directories of other users' processes"
        facts.append((fact, _hidden_files(scan)))
    facts += [
        ("mounts in other mount namespaces", _hidden_mounts(scan)),
        ("processes in flight", view.in_flight),
        (COMMAND_LINES, _hidden("", [], [], hung=scan.unread_commands)),
    ]
    kubelet = view.kubelet
    if isinstance(kubelet, KubeletView):
        facts += [
            ("kubelet's process", kubelet.process),
            ("kubelet's staging directories", kubelet.staging),
            ("kubelet's pod directories", kubelet.pod_volumes),
        ]
    return gaps_in((*facts, *_facts_of_devices(view)))


def _facts_of_devices(view: NodeView) -> Iterator[tuple[str, object]]:
    """Yield each fact of devices, with the reason if it was not observed of a device."""
    mappings = observed_of(view.mappings)
    krbd = [mapping for mapping in mappings if mapping.kind is DeviceKind.KRBD]
    yield "device nodes", first_unobserved(mapping.device_node_present for mapping in mappings)
    fact = "the kernel's own list of watches and hung requests"
    yield fact, first_unobserved(mapping.watch for mapping in krbd)
