"""The node: devices joined with the mounts, descriptors and stacked devices that keep them busy."""

from __future__ import annotations

import ipaddress
import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.correlate.local import server_pid
from rbdagent.errors import ParseError
from rbdagent.model import (
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
    Opener,
    ProcessRef,
    Source,
    SourceState,
    UnbackedMount,
    observed_of,
)
from rbdagent.observe.devices import (
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
)
from rbdagent.observe.files import LISTS, names_in, read_text
from rbdagent.observe.kubelet import existing_roots, observe_kubelet, own_root
from rbdagent.observe.mounts import Wanted, mounts_of, shows_use, unbacked_of
from rbdagent.observe.processes import (
    ProcessPass,
    ProcessScan,
    Turns,
    find_kubelet,
    flag_value,
    in_flight_of,
    is_nbd_server,
    named,
    thread_traces,
)
from rbdagent.parse.shown import as_unicode, in_all_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOOK_AT_IT: Final = "look at that process: it does not answer, or has more than is read"
_PTRACE: Final = "run as root with CAP_SYS_PTRACE; other users need CAP_DAC_READ_SEARCH beside it"


class NodeRoots(Struct, frozen=True, kw_only=True):
    """Where the host's file systems are seen: in a container below ``/host``."""

    procfs: Path
    sysfs: Path
    host_root: Path
    kubelet_roots: tuple[str, ...] = ()
    """As the host names them; empty: found from kubelet's command line, then the known places."""


def observe_node(
    roots: NodeRoots,
    *,
    node_name: str,
    turns: Turns | None = None,
    deadline: float = math.inf,
) -> tuple[NodeView | None, Source]:
    """Look at everything on this node that concerns RBD devices.

    Never raises for broken surroundings: without /proc or with unreadable sysfs attributes the
    source is ``failed``; a fact that a missing right hides is NotObserved and a gap of the source.

    Args:
        roots: where the host's file systems are seen.
        node_name: this node.
        turns: remembers from one observation to the next which processes hang.
        deadline: of the monotonic clock, for the processes of the node.
    """
    if names_in(roots.procfs / "1") is None:
        return None, Source(
            state=SourceState.FAILED,
            reason=f"{roots.procfs}: no /proc of the host is mounted there",
            cure="mount the host's /proc there, or pass --procfs where it is",
        )
    try:
        # Names are kept as they are while files are reached by them.
        return in_all_texts(_observe(roots, node_name, turns, deadline), as_unicode)
    except ParseError as error:
        return None, Source(state=SourceState.FAILED, reason=str(error))


def _observe(
    roots: NodeRoots, node_name: str, turns: Turns | None, deadline: float
) -> tuple[NodeView, Source]:
    krbd = observe_krbd(roots.sysfs, roots.host_root)
    devices = () if isinstance(krbd, NotObserved) else krbd
    devices += observe_nbd(roots.sysfs, roots.host_root)
    numbers = frozenset(number for device in devices for number in device.numbers)
    wanted = Wanted.of(numbers, _node_paths(devices))
    processes = ProcessPass(roots.procfs, wanted, turns=turns, deadline=deadline)
    scan = processes.scan()
    mounts = tuple(mounts_of(scan.namespaces, wanted))
    if _seems_idle(devices, mounts, scan) and (more := processes.scan_threads()):
        scan = more
        mounts = tuple(mounts_of(scan.namespaces, wanted))
    shared = _shared(roots, scan, mounts, devices)
    kubelet_entry = find_kubelet(scan.entries)
    own = own_root(kubelet_entry) if kubelet_entry else None
    mappings = tuple(_mapping(device, scan, shared) for device in devices)
    view = NodeView(
        node_name=node_name,
        hostname=_text(roots.procfs / "sys" / "kernel" / "hostname"),
        boot_id=_text(roots.procfs / "sys" / "kernel" / "random" / "boot_id") or None,
        module_loaded=module_loaded(roots.sysfs),
        mappings=krbd if isinstance(krbd, NotObserved) else mappings,
        kubelet=observe_kubelet(
            roots.host_root,
            roots.procfs,
            roots=existing_roots(roots.host_root, own, roots.kubelet_roots),
            process=kubelet_entry.ref if kubelet_entry else None,
            own=own,
        ),
        addresses=_addresses(roots.procfs),
        in_flight=in_flight_of(scan),
        unbacked=_unbacked(scan, numbers),
        processes=_containers(scan),
        uptime_s=uptime(roots.procfs),
    )
    return view, Source(
        state=SourceState.OBSERVED, gaps=_gaps(view, scan, any_device=bool(devices))
    )


def _seems_idle(
    devices: tuple[BlockDevice, ...], mounts: tuple[Mount, ...], scan: ProcessScan
) -> bool:
    """Tell whether some device is open nowhere and mounted for no pod.

    Then it matters what single threads keep; of all devices on all nodes that is dear to know.
    """
    used = {each.device for each in scan.openers}
    used |= {each.device for each in mounts if "/pods/" in each.path}
    return any(used.isdisjoint(each.numbers) for each in devices)


def _text(path: Path) -> str:
    text = read_text(path)
    return text if isinstance(text, str) else ""


def uptime(procfs: Path) -> float | None:
    """Read the seconds since boot; suspension counts (CLOCK_BOOTTIME, Linux 5.3 and before)."""
    words = _text(procfs / "uptime").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


class _Shared(Struct, frozen=True, kw_only=True):
    """What is read once for all devices."""

    mounts: dict[DeviceNumber, list[Mount]]
    hidden_mounts: NotObserved | None
    """Why the mounts of some namespace were not observed."""
    openers: dict[DeviceNumber, list[Opener]]
    hidden_files: NotObserved | None
    """Why the open files of some process were not observed."""
    traces: dict[str, list[str]]
    """Kernel name of a device to what a live file system on it keeps."""
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
    openers_of_device: dict[DeviceNumber, list[Opener]] = {}
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
        clients=observe_clients(roots.sysfs, [each.mapping for each in devices]),
    )


def _mapping(device: BlockDevice, scan: ProcessScan, shared: _Shared) -> Mapping:
    """Join one device with all that keeps it busy."""
    found = tuple(
        mount for number in sorted(device.numbers) for mount in shared.mounts.get(number, ())
    )
    watch, requests = requests_of(device.mapping, shared.clients)
    mapping = _with_nbd_process(device.mapping, scan)
    return replace(
        mapping,
        mounts=_all_mounts(found, shared.hidden_mounts),
        openers=_openers(device, shared, server_pid(mapping)),
        holders=_holders(device, found, shared),
        kernel_traces=tuple(
            trace for name in sorted(device.names) for trace in shared.traces.get(name, ())
        ),
        watch=watch,
        hung_requests=requests,
    )


def _all_mounts(
    found: tuple[Mount, ...], hidden: NotObserved | None
) -> tuple[Mount, ...] | NotObserved:
    """Return a device's mounts, where those that were found tell enough.

    One that shows use is evidence whatever else is hidden. Without one, a namespace that was not
    observed may have it: what was found proves nothing.
    """
    if hidden is None or any(shows_use(mount, found) for mount in found):
        return found
    return hidden


def _openers(
    device: BlockDevice, shared: _Shared, server: int | None
) -> tuple[Opener, ...] | NotObserved:
    """Return a device's openers; the rbd-nbd process that serves it is no proof that it is used."""
    found = tuple(
        opener for number in sorted(device.numbers) for opener in shared.openers.get(number, ())
    )
    if shared.hidden_files is None or any(each.process.pid != server for each in found):
        return found
    return shared.hidden_files


def _holders(
    device: BlockDevice, mounts: tuple[Mount, ...], shared: _Shared
) -> tuple[BlockHolder, ...] | NotObserved:
    """Add loop devices and swap to what sysfs lists as holders."""
    if isinstance(device.mapping.holders, NotObserved):
        return device.mapping.holders
    if isinstance(shared.swaps, NotObserved):
        return shared.swaps
    binds = {each.path for each in mounts if each.kind is MountKind.DEVICE_BIND}
    below = tuple(f"{each.path}/" for each in mounts if each.kind is MountKind.FILE_SYSTEM)
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
        for path in shared.swaps
        if path in nodes or path.startswith(below)
    )
    return device.mapping.holders + loops + swapped


def _with_nbd_process(mapping: Mapping, scan: ProcessScan) -> Mapping:
    """Find the process that serves an nbd device: by the cookie, by the device, by the pid.

    ``pid`` alone lies both ways: it survives a killed process, and after a restart of the plugin it
    still names the dead one. So it counts only where that process is an rbd-nbd one.
    """
    if mapping.nbd is None:
        return mapping
    # After a killed process the same volume gets a second device with the same cookie: who says
    # which device it serves, serves no other (recorded).
    servers = [
        entry
        for entry in scan.entries
        if is_nbd_server(entry)
        and flag_value(entry.arguments, "--device") in {None, mapping.device}
    ]
    backend = mapping.nbd.backend
    recorded = mapping.nbd.recorded_pid
    ours = [
        each
        for each in servers
        if (backend and flag_value(each.arguments, "--cookie") == backend)
        or mapping.device in each.arguments
    ]
    ours += [each for each in servers if each.ref.pid == recorded]
    chosen = ours[0] if ours else None
    if chosen is None:
        return mapping
    return replace(
        mapping,
        spec=nbd_image(chosen.ref, chosen.arguments),
        nbd=replace(mapping.nbd, process=chosen.ref),
    )


def _node_paths(devices: tuple[BlockDevice, ...]) -> dict[str, DeviceNumber]:
    """Return the path of each device node below /dev, the mapper's names included."""
    found = {f"/{name}": number for device in devices for name, number in device.by_name}
    for device in devices:
        for holder in observed_of(device.mapping.holders):
            if holder.device and holder.label:
                found[f"/mapper/{holder.label}"] = holder.device
    return found


def _unbacked(
    scan: ProcessScan, numbers: frozenset[DeviceNumber]
) -> tuple[UnbackedMount, ...] | NotObserved:
    found = tuple(
        mount for namespace in scan.namespaces for mount in unbacked_of(namespace, numbers)
    )
    return found or _hidden_mounts(scan) or ()


def _hidden_mounts(scan: ProcessScan) -> NotObserved | None:
    """Return why the mounts of some namespace were not observed; None: all were."""
    return _hidden(
        f"mountinfo of {scan.denied_mounts} processes may not be read"
        if scan.denied_mounts
        else "",
        [
            f"mount namespace of {named(namespace.process)}: {namespace.mounts.reason}"
            for namespace in scan.namespaces
            if isinstance(namespace.mounts, NotObserved)
        ]
        + scan.unread_mounts,
    )


def _hidden_files(scan: ProcessScan) -> NotObserved | None:
    """Return why the open files of some process were not observed; None: all were."""
    return _hidden(
        f"open files of {scan.denied_files} processes may not be looked at"
        if scan.denied_files
        else "",
        scan.unread_files,
    )


_MOST_NAMED: Final = 3


def _hidden(denied: str, unread: list[str]) -> NotObserved | None:
    """Return what a right hides, and what was too large or too slow, by name."""
    more = len(unread) - _MOST_NAMED
    reasons = ([denied] if denied else []) + unread[:_MOST_NAMED]
    if more > 0:
        reasons.append(f"and {more} more")
    if not reasons:
        return None
    return NotObserved(reason="; ".join(reasons), cure=_PTRACE if denied else _LOOK_AT_IT)


def _containers(scan: ProcessScan) -> tuple[ProcessRef, ...]:
    """Give one process of each container of a pod."""
    first: dict[tuple[str, str | None], ProcessRef] = {}
    for entry in scan.entries:
        if entry.ref.pod_uid is not None:
            first.setdefault((entry.ref.pod_uid, entry.ref.container_id), entry.ref)
    return tuple(first.values())


def _addresses(procfs: Path) -> tuple[str, ...] | NotObserved:
    """Read the host's own addresses from init's network namespace."""
    trie = read_text(procfs / "1" / "net" / "fib_trie", LISTS)
    six = read_text(procfs / "1" / "net" / "if_inet6", LISTS)
    for hidden in (trie, six):
        if isinstance(hidden, NotObserved):
            return hidden
    found = set()
    previous = ""
    for line in trie.splitlines() if isinstance(trie, str) else ():
        words = line.split()
        if words[:1] == ["/32"] and "LOCAL" in words:
            found.add(previous)
        if len(words) > 1 and words[0] == "|--":
            previous = words[1]
    for line in six.splitlines() if isinstance(six, str) else ():
        found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    return tuple(sorted(found))


def _gaps(view: NodeView, scan: ProcessScan, *, any_device: bool) -> tuple[Gap, ...]:
    gaps = []
    if isinstance(view.mappings, NotObserved):
        gaps.append(Gap(fact="krbd devices", reason=view.mappings.reason, cure=view.mappings.cure))
    facts: list[tuple[str, object]] = [
        ("mounts in other mount namespaces", _hidden_mounts(scan)),
        ("processes in flight", view.in_flight),
    ]
    if any_device:
        fact = "open files and working directories of other users' processes"
        facts.insert(0, (fact, _hidden_files(scan)))
    kubelet = view.kubelet
    if isinstance(kubelet, KubeletView):
        facts += [
            ("kubelet's staging directories", kubelet.staging),
            ("kubelet's pod directories", kubelet.pod_volumes),
        ]
    gaps += [
        Gap(fact=fact, reason=value.reason, cure=value.cure)
        for fact, value in facts
        if isinstance(value, NotObserved)
    ]
    return (*gaps, *_gaps_of_devices(view))


def _gaps_of_devices(view: NodeView) -> Iterator[Gap]:
    """Give what is hidden of every device, once."""
    mappings = () if isinstance(view.mappings, NotObserved) else view.mappings
    facts = {
        "device nodes": [each.node_present for each in mappings],
        "the kernel's own list of watches and hung requests": [
            each.watch for each in mappings if each.kind is DeviceKind.KRBD
        ],
    }
    for fact, values in facts.items():
        hidden = next((each for each in values if isinstance(each, NotObserved)), None)
        if hidden is not None:
            yield Gap(fact=fact, reason=hidden.reason, cure=hidden.cure)
