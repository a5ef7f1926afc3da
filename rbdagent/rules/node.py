"""RBD2xx: rules on the observed node, its kubelet and its CSI driver."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl
from rbdagent.correlate.image_identity import (
    identity_of_mapping,
    mappings_of,
    may_be_in_another_namespace,
    same_image,
)
from rbdagent.correlate.index import kube_index, node_index
from rbdagent.correlate.node_usage import kubelet_of, maps_in_flight
from rbdagent.model import (
    CollectScope,
    Command,
    CsiSource,
    Finding,
    Holder,
    HolderVerdict,
    KubeEvent,
    KubeletView,
    LifecycleStep,
    LogEntry,
    Mapping,
    NotObserved,
    Pod,
    PodVolumeDirectory,
    ProcessRef,
    Recovery,
    Severity,
    Snapshot,
    Statement,
    Subject,
    SubjectKind,
    TargetKind,
    Verdict,
    VolumeAttachment,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.krbd import KEEP_ALIVE
from rbdagent.parse.recognised import Recognised
from rbdagent.rules import networks
from rbdagent.rules.ceph_health import SlowOsds, blocking, is_health_known, slow_osds
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    agent_findings,
    finding,
    list_pods_on,
    query_on_node,
    quoted,
    subject_of,
    waiting_elsewhere,
)
from rbdagent.rules.csi_driver import is_not_installed, known_drivers
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import has_logged_no_cause, kernel_line, kernel_log
from rbdagent.rules.placement import waiting_for
from rbdagent.rules.pod_events import decisive_pod_event, does_a_pod_start, is_about_hanging_call
from rbdagent.verdicts.evidence import Evidence, evidence_of, hung_requests, process_text
from rbdagent.verdicts.timing import LONG, MOVING, RETRY_S, age, age_text, is_young
from rbdagent.verdicts.volume_verdict import driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.CSI_DRIVER_DOWN,
        Severity.ERROR,
        "The CSI driver does not answer on the node that holds the volume.",
        remedy="Bring the CSI node plugin back on that node. kubelet then completes the operation.",
        recovery=Recovery(
            actor="kubelet", condition="the driver answers there again", within_s=RETRY_S
        ),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        Code.KUBELET_DOWN,
        Severity.ERROR,
        "kubelet does not run on this node.",
        remedy="Start kubelet: it cleans up the volumes that it finds.",
        recovery=Recovery(actor="kubelet", condition="it runs again"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        Code.OPERATION_HANGS,
        Severity.ERROR,
        "An operation on this volume hangs.",
        remedy="Repair Ceph first (`ceph health detail`). The operation then completes. If Ceph is "
        "healthy and the operation does not complete, restart the CSI node plugin's pod on that "
        "node, if it runs with hostNetwork: this releases the lock in the plugin's memory, but "
        "ends no process in uninterruptible sleep. Without hostNetwork, the mappings of that node "
        "use the network of the pod (ceph-csi#2983): leave it.",
        recovery=Recovery(
            actor="the operation itself and kubelet", condition="Ceph answers", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.DEVICE_NODE_MISSING,
        Severity.WARNING,
        "The mapping is in sysfs, but its device node is missing from /dev.",
        remedy="Create the device node again with the number that sysfs has for the device "
        "(mknod). udev does not create device nodes. Without a device node, unmap the device by "
        "its id in sysfs.",
        recovery=Recovery(note="no component creates the device node again"),
    ),
    Entry(
        Code.POD_DIRECTORY_LEFT,
        Severity.WARNING,
        "A pod's directory of the volume is left, the pod is not in the API, and nothing is "
        "mounted there.",
        remedy="List the directory. Remove vol_data.json with rm and empty directories with rmdir, "
        "never with rm -r. kubelet then removes the pod's directory.",
        recovery=Recovery(note="kubelet only logs it"),
        step=LifecycleStep.UNPUBLISH,
    ),
    Entry(
        Code.STAGING_WITHOUT_VOLUME_DATA,
        Severity.WARNING,
        "The volume is staged, and its vol_data.json is missing.",
        remedy="Never recreate the file by hand. See RBD110.",
        recovery=Recovery(note="kubelet cannot identify the volume that is staged there"),
        step=LifecycleStep.UNSTAGE,
    ),
    Entry(
        Code.SAME_NAME_ELSEWHERE,
        Severity.INFO,
        "Another image of the same name is mapped on this node.",
        remedy="Use the device in commands, never the image's name.",
        recovery=None,
    ),
)

_CSI_VOLUMES: Final = "kubernetes.io~csi"


def driver_down(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD201 for a node whose CSI driver does not answer."""
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        if holder.driver_registered is not False or holder.transient or holder.node is None:
            continue
        hanging_pods = _hanging_pods(holder_verdict)
        if holder.is_node_probable and not _uses_node(holder):
            # The client may be on another machine, and then nothing is to be unmounted there.
            continue
        stuck = (
            stated(" {pods} cannot end until then.", pods=[pod.ref for pod in hanging_pods])
            if hanging_pods
            else ""
        )
        gone = _driver_gone(context, holder.node)
        yield finding(
            Code.CSI_DRIVER_DOWN,
            Subject.of_node(holder.node),
            stated("{}{}", gone, stuck)
            if gone
            else stated(
                "The CSI driver does not answer on {node}, so nothing can be unmounted there. "
                "Bring its node plugin back: kubelet then continues automatically.{}",
                stuck,
                node=holder.node,
            ),
            waiting=waiting_elsewhere(context, holder.node),
            evidence=holder_verdict.reasons,
            pods=holder_verdict.pods,
            remedy=_UNDER_ITS_NAME if gone else "",
            commands=(kubectl("get csidriver"),) if gone else (list_pods_on(holder.node),),
            severity=None if _blocks(holder_verdict, context) else Severity.WARNING,
        )


def _uses_node(holder: Holder) -> bool:
    """Return whether the API shows a use of the volume on the holder's node."""
    return bool(observed_of(holder.pods)) or isinstance(holder.attachment, VolumeAttachment)


_UNDER_ITS_NAME: Final = (
    "Install the driver again under exactly the name that the PV has: kubelet asks the driver of "
    "that name to unmount. Rook names it by CSI_DRIVER_NAME_PREFIX, or by the namespace of its "
    "operator. PVs that name another installed driver still need that one. The driver of a PV "
    "cannot be changed. Do not delete the claim to get rid of the pod: the data goes with it."
)


def _driver_gone(context: RuleContext, node: str) -> Words:
    """Return that no driver of the PV's name is installed; "" if one is, or if it is not known.

    Rook puts the namespace of its operator before the name: after a move of the operator, the
    same plugin runs under another name (rook#6371).
    """
    driver = driver_of(context.volume)
    if driver is None or not is_not_installed(driver, context):
        return ""
    known = known_drivers(context)
    return stated(
        "Nothing can be unmounted on {node}: {volume} names the CSI driver {driver}, which is not "
        "installed in this cluster any more. Installed drivers: {}.",
        stated("{drivers}", drivers=known) if known else "none",
        node=node,
        volume=context.name,
        driver=driver,
    )


def down_elsewhere(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD201, RBD202 and RBD203 of another node: only its agent's report shows them."""
    for code, message in _DOWN_ELSEWHERE.items():
        if code == Code.OPERATION_HANGS and _hanging_event(context) is not None:
            # The event shows it here, too.
            continue
        yield from agent_findings(
            code, message, lambda holder: Subject.of_node(holder.node), context
        )


_DOWN_ELSEWHERE: Final = {
    Code.CSI_DRIVER_DOWN: "The CSI driver does not answer on {node}, so nothing can be unmounted "
    "there. Bring its node plugin back, as the agent there reports.",
    Code.KUBELET_DOWN: "kubelet does not run on {node}. Containers keep running, and nothing is "
    "unmounted until kubelet is back, as the agent there reports.",
    Code.OPERATION_HANGS: "An operation on {volume} hangs. The agent on {node} shows it: run "
    "rbdagent there.",
}


def _hanging_pods(holder_verdict: HolderVerdict) -> tuple[Pod, ...]:
    """Return the pods that cannot end until their volume is unmounted."""
    found = evidence_of(holder_verdict.holder)
    return (*found.ending, *(pod for pod in found.running if pod.deleting_since))


def _blocks(holder_verdict: HolderVerdict, context: RuleContext) -> bool:
    """Return whether a pod waits for a step of kubelet or its CSI driver on a holder."""
    running = evidence_of(holder_verdict.holder).running
    living = any(pod.deleting_since is None for pod in running)
    awaited = bool(waiting_elsewhere(context, holder_verdict.holder.node)) and not living
    return (
        bool(_hanging_pods(holder_verdict)) or awaited or holder_verdict.verdict is Verdict.STAGED
    )


def kubelet_down(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD202 for a node without a kubelet process."""
    kubelet = _kubelet(context.snapshot)
    local = [
        holder_verdict
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is not None
    ]
    if kubelet is None or not _is_down(kubelet) or not local:
        return
    if not any(holder_verdict.holder.is_kubernetes_managed for holder_verdict in local):
        return
    is_used = all(
        holder_verdict.verdict is Verdict.IN_USE and not _blocks(holder_verdict, context)
        for holder_verdict in local
    )
    yield _without_kubelet(kubelet, context.here, Severity.WARNING if is_used else None)


def _is_down(kubelet: KubeletView) -> bool:
    return kubelet.process is None and bool(kubelet.roots)


def _without_kubelet(kubelet: KubeletView, node: str, severity: Severity | None) -> Finding:
    return finding(
        Code.KUBELET_DOWN,
        Subject.of_node(node),
        stated(
            "kubelet does not run on {node}. Containers keep running, and nothing is unmounted "
            "until kubelet is back.",
            node=node,
        ),
        evidence=(f"no kubelet process; its directories are at {', '.join(kubelet.roots)}",),
        commands=(command("systemctl status kubelet", node=node),),
        severity=severity,
    )


def of_node(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield RBD201 and RBD202 for the observed node, whichever volume is the target.

    Volumes that are in use there keep working: they need neither kubelet nor the driver.
    """
    node, kubelet = snapshot.node, _kubelet(snapshot)
    if node is None or kubelet is None or not mappings_of(node):
        return
    if _is_down(kubelet):
        yield _without_kubelet(kubelet, node.node_name, Severity.WARNING)
    drivers = {
        volume.source.driver
        for volume in kube_index(snapshot.kubernetes).volumes
        if isinstance(volume.source, CsiSource)
    }
    for plugin in observed_of(kubelet.sockets):
        if plugin.listening is False and plugin.driver in drivers:
            yield finding(
                Code.CSI_DRIVER_DOWN,
                Subject.of_node(node.node_name),
                stated(
                    "The CSI driver {driver} does not answer on {node}, so nothing can be mounted "
                    "or unmounted there. Bring its node plugin back.",
                    driver=plugin.driver,
                    node=node.node_name,
                ),
                evidence=(f"nothing listens on {plugin.path}",),
                commands=(list_pods_on(node.node_name),),
                severity=Severity.WARNING,
            )


def _kubelet(snapshot: Snapshot) -> KubeletView | None:
    """Return what was observed of kubelet; None if nothing was."""
    kubelet = kubelet_of(snapshot)
    return None if isinstance(kubelet, NotObserved) else kubelet


class _Hang(NamedTuple):
    """Holds what hangs on the observed node."""

    asleep: tuple[ProcessRef, ...]
    """Processes in uninterruptible sleep, or that have run for long; the longest-running first."""
    requests: tuple[str, ...]
    clients: tuple[str, ...]
    """The clients of these requests."""
    places: tuple[str, ...]
    """The placement groups and OSDs of these requests: ``PG 5.0 on osd.3``."""
    strange: tuple[str, ...]
    """Their addresses, as far as the node does not have them."""
    is_certain: bool


def hanging(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD203 for an operation that hangs, and which side does not answer."""
    event, hang = _hanging_event(context), _hang_here(context)
    if event is None and not hang.asleep and not hang.requests:
        yield from _hung_by_its_kernel(context)
        return
    if networks.is_explained(context):
        return
    stuck = _stuck_tasks(context) if hang.requests else ()
    is_certain = event is not None or hang.is_certain or bool(stuck)
    side = _side(context, hang, stuck)
    yield finding(
        Code.OPERATION_HANGS,
        Subject.of_volume(context.name),
        stated("{} Do not kill the processes.", side.message),
        evidence=(
            *(() if event is None else (quoted(event),)),
            *map(process_text, hang.asleep),
            *(f"hanging request of its client: {foreign(request)}" for request in hang.requests),
            *map(kernel_line, stuck),
            *_health_lines(slow_osds(context, _pool(context))),
        ),
        pods=() if event is None else (str(event.subject),),
        remedy=side.remedy,
        commands=side.commands,
        severity=None if is_certain else Severity.WARNING,
    )


def _hung_by_its_kernel(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD203 for what the kernel logged about a device whose requests could not be read.

    Where osdc was read, it decides: the kernel does not log the end of a wait.
    """
    unread = {
        mapping.kernel_name: mapping.hung_requests.reason
        for holder_verdict in context.holder_verdicts
        if (mapping := holder_verdict.holder.mapping) is not None
        and isinstance(mapping.hung_requests, NotObserved)
    }
    if not unread:
        return
    stuck = [entry for entry in _stuck_tasks(context) if not unread.keys().isdisjoint(entry.names)]
    if not stuck or networks.is_explained(context):
        return
    device = next(name for name in stuck[-1].names if name in unread)
    yield finding(
        Code.OPERATION_HANGS,
        Subject.of_volume(context.name),
        stated(
            "A process on {node} has waited for more than two minutes for /dev/{device}: the "
            "kernel logged it at {at}. Whether it still waits was not observed ({reason}). Do not "
            "kill the processes.",
            node=context.here,
            device=device,
            at=stuck[-1].at,
            reason=unread[device],
        ),
        evidence=tuple(map(kernel_line, stuck)),
        remedy="The requests of its client in /sys/kernel/debug/ceph/*/osdc decide, read twice: "
        "one that stays has no answer from the OSD that it names. Then look at that OSD, and at "
        "the way to it from that node. If none stays, the wait is over.",
        commands=(
            command(
                "grep -r .",
                "/sys/kernel/debug/ceph",
                options=("--include=osdc",),
                node=context.here_if_known,
            ),
            _kernel_log(context),
            _HEALTH,
        ),
        severity=Severity.WARNING,
    )


_RESTART: Final = (
    "and the CSI node plugin runs with hostNetwork, restart its pod on that node: this releases "
    "the lock in the plugin's memory, but ends no process in uninterruptible sleep. Without "
    "hostNetwork, leave the pod: the mappings of that node use its network (ceph-csi#2983)."
)
_LOOK_AT_THE_NODE: Final = (
    "Mend what the message names: the operation then completes. If it does not, "
) + _RESTART
_NOTHING_NAMED: Final = (
    "Two causes show nowhere: the CSI node plugin does not reach the OSDs (ports 6800 to 7568) "
    "from its own network, or its Ceph user has no osd caps, and OSDs since Ceph 18 do not answer "
    "it. `ceph auth get` shows the caps. If both are well, "
) + _RESTART
_OF_A_POD: Final = (
    "Compare the address with those of the pods on that node (`kubectl get pods -A -o wide`), also "
    "of a CSI node plugin that was replaced. If it was the plugin's: do not restart the plugin "
    "while its network serves mappings; once its pod is gone, only a reboot of the node ends them, "
    "and hostNetwork avoids it. If addresses are translated on the way to Ceph, the address proves "
    "nothing: `ceph health detail` and the kernel log on that node show which OSD does not answer."
)


def _pool(context: RuleContext) -> str:
    return context.volume.image.spec.pool if context.volume.image is not None else ""


def _hang_here(context: RuleContext) -> _Hang:
    asleep: list[ProcessRef] = []
    requests: list[str] = []
    clients: list[str] = []
    places: list[str] = []
    strange: list[str] = []
    is_certain = False
    for holder_verdict in context.holder_verdicts:
        holder = holder_verdict.holder
        if not observed_of(holder.in_flight) and not hung_requests(holder.mapping):
            continue
        found = evidence_of(holder)
        sleeping = [
            operation.process
            for operation in (*found.bringing_up, *found.tearing_down)
            if operation.process.state == "D"
            # A process that works is in this state for moments too.
            and is_young(operation.process.started_at, context.snapshot.observed_at, _MOMENT)
            is not True
        ]
        hung = _hanging_requests(holder_verdict.verdict, found, context)
        asleep += sleeping
        requests += hung
        if hung and holder.mapping is not None:
            clients.append(f"client.{holder.mapping.client_id}")
            places += holder.mapping.hung_at
            strange += _strange_address(context, holder.mapping)
        is_certain |= bool(sleeping) or (
            bool(hung) and holder_verdict.verdict is not Verdict.IN_USE
        )
    waiting = [process for process in _waiting_maps(context) if process not in asleep]
    is_certain |= bool(waiting)
    asleep += waiting
    return _Hang(
        tuple(sorted(asleep, key=lambda process: process.started_at or "")),
        tuple(dict.fromkeys(requests)),
        tuple(dict.fromkeys(clients)),
        tuple(dict.fromkeys(places)),
        tuple(dict.fromkeys(strange)),
        is_certain,
    )


def _strange_address(context: RuleContext, mapping: Mapping) -> tuple[str, ...]:
    """Return the address of a mapping's client if it is none of the node's.

    A mapping keeps the network namespace of the process that mapped it (ceph_messenger_init() in
    net/ceph/messenger.c).
    """
    node, address = context.snapshot.node, mapping.client_address
    known = () if node is None else observed_of(node.addresses)
    if address is None or not known or address.ip in known:
        return ()
    return (address.ip,)


def _waiting_maps(context: RuleContext) -> list[ProcessRef]:
    """Return the processes that have been mapping the image of the volume for long.

    They have no device yet. rbd waits for the monitors in any state.
    """
    return [
        entry.process
        for entry in maps_in_flight(context.volume.image, context.snapshot)
        if _monitors_in(entry.process)
        and is_young(entry.process.started_at, context.snapshot.observed_at, LONG) is False
    ]


_MOMENT: Final = timedelta(seconds=30)
_HUNG_LATELY: Final = timedelta(hours=1)
"""The kernel repeats its line about a task every two minutes, ten times (hung_task_warnings)."""


def _stuck_tasks(context: RuleContext) -> tuple[LogEntry, ...]:
    """Return the lines of the kernel about tasks that wait for a device of the volume."""
    devices = {
        holder_verdict.holder.mapping.kernel_name
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is not None
    }
    return tuple(
        entry
        for entry in kernel_log(context)
        if Recognised.TASK_HUNG.is_in(entry.text)
        and not devices.isdisjoint(entry.names)
        and is_young(entry.at, context.snapshot.observed_at, _HUNG_LATELY) is True
    )


class _Side(NamedTuple):
    """Holds which side does not answer, what shows more, and what to do."""

    message: Statement
    commands: tuple[Command, ...]
    remedy: str = ""


def _side(context: RuleContext, hang: _Hang, stuck: tuple[LogEntry, ...]) -> _Side:
    """Return which side does not answer.

    "Ceph does not answer" is never reported of a cluster that has just answered rbdagent.
    """
    # The agents of other nodes report the code of a mapping only: it begins in the same way there.
    hangs = stated("An operation on {volume} hangs.", volume=context.name)
    answers, slow = _does_ceph_answer(context), slow_osds(context, _pool(context))
    if reported := blocking(context, _pool(context)):
        message = stated(
            "{} {}. When that is mended, the operation most likely completes.", hangs, reported
        )
        return _Side(message, (_HEALTH,), _LOOK_AT_THE_NODE if answers else "")
    if answers and hang.strange:
        return _of_strange_address(context, hangs, hang)
    maps = [process for process in hang.asleep if _monitors_in(process)]
    if slow is not None and slow.osds and (not maps or maps[0].state == "D"):
        return _of_slow_osds(context, hangs, slow)
    if not answers:
        places = hang.places[:_MOST_PLACES]
        message = stated(
            "{}{} Check Ceph first: when Ceph answers again, the operation completes.",
            hangs,
            stated(" Its requests wait for {places:and}.", places=places) if places else "",
        )
        waits = waiting_for(context)
        find = () if waits is None else waits.commands
        return _Side(message, (_HEALTH, *find), _OF_A_POD if hang.strange else "")
    if hang.requests or hang.asleep:
        return _of_what_waits(context, hangs, hang, stuck)
    return _unexplained(context, hangs)


_HEALTH: Final = command("ceph health detail")


def _kernel_log(context: RuleContext) -> Command:
    return command(
        "journalctl --dmesg --no-pager --lines=10 --grep=libceph:", node=context.here_if_known
    )


def _of_strange_address(context: RuleContext, hangs: Statement, hang: _Hang) -> _Side:
    message = stated(
        "{} {clients} has the address {addresses}, which {node} does not have: {}.",
        hangs,
        networks.whose_address(hang.strange, context),
        clients=hang.clients,
        addresses=hang.strange,
        node=context.here,
    )
    return _Side(message, (list_pods_on(context.here), _kernel_log(context), _HEALTH), _OF_A_POD)


def _of_what_waits(
    context: RuleContext, hangs: Statement, hang: _Hang, stuck: tuple[LogEntry, ...]
) -> _Side:
    """Return what the requests or the processes on the observed node may wait for."""
    log = _kernel_log(context)
    maps = [process for process in hang.asleep if _monitors_in(process)]
    if maps and not hang.requests:
        message, commands = _of_map(context, hangs, maps[0], (log, _HEALTH))
        return _Side(message, commands, _LOOK_AT_THE_NODE)
    if hang.requests:
        since = stated(" since {since} or longer", since=stuck[0].at) if stuck else ""
        what = stated(
            "{} of {clients} on {node} to Ceph{} {} no answer{}",
            _count(hang.requests),
            stated(" ({places})", places=hang.places[:_MOST_PLACES]) if hang.places else "",
            "has" if len(hang.requests) == 1 else "have",
            since,
            clients=hang.clients,
            node=context.here,
        )
        osd = "a PG or an OSD of these requests"
    else:
        what = stated("A process on {node} waits for the device", node=context.here)
        osd = "an OSD"
    message = stated(
        "{} {}, although Ceph answers rbdagent. Either {} does not answer (`ceph health "
        "detail` names it), or this node does not reach that OSD (the kernel log names its "
        "address).",
        hangs,
        what,
        osd,
    )
    return _Side(message, (_HEALTH, log), _LOOK_AT_THE_NODE)


_MOST_PLACES: Final = 3


def _of_slow_osds(context: RuleContext, hangs: Statement, slow: SlowOsds) -> _Side:
    """Return what Ceph reports of its OSDs, and what decides whether the call waits for them."""
    is_one = len(slow.osds) == 1
    which, number = ("that OSD", slow.osds[0]) if is_one else ("the OSDs that are named", "N")
    found = (command("ceph osd find", number),) if is_one else ()
    return _Side(
        stated(
            "{} {}: most likely it waits for {}.",
            hangs,
            slow.reported,
            stated("osd.{osd}", osd=number) if is_one else "one of these OSDs",
        ),
        (_HEALTH, *found, command("ceph osd perf")),
        f"Look at {which}: disk, log, and network to the other OSDs. When that is mended, the "
        f"operation completes. `ceph tell osd.{number} dump_blocked_ops` lists what waits there: "
        f"if nothing is of this image{_object_names(context)}, check whether the node reaches "
        "every OSD. Do not restart the CSI node plugin for it.",
    )


def _object_names(context: RuleContext) -> str:
    view = context.volume.image_view
    return f" ({view.image_id} in the name of its objects)" if view and view.image_id else ""


def _health_lines(slow: SlowOsds | None) -> tuple[str, ...]:
    """Return the first texts of each check: a check of pings names the OSDs in its details."""
    checks = () if slow is None else slow.checks
    return tuple(
        f"ceph health: {check.name}: {foreign(text)}"
        for check in checks
        for text in check.texts[:_HEALTH_LINES]
    )


_HEALTH_LINES: Final = 3


def _unexplained(context: RuleContext, hangs: Statement) -> _Side:
    """Return what is known of a call whose cause neither Ceph nor the node shows."""
    slow = slow_osds(context, _pool(context))
    if slow is not None:
        health = stated("{}: the network between OSDs may lose packets", slow.reported)
    elif is_health_known(context, _pool(context)):
        health = stated("Ceph answers rbdagent, and its health reports nothing that explains it")
    else:
        health = stated("Ceph answers rbdagent, and its health was not observed")
    log = stated("the log of the CSI node plugin may show what its call waits for")
    word = decisive_pod_event(context, is_about_hanging_call)
    node = None if word is None else word.node
    if word is not None and node is not None and node == context.here_if_known:
        if has_logged_no_cause(context, word.event.first_seen):
            log = stated("the log of the CSI node plugin on {node} has no other error", node=node)
        node = None
    there = () if node is None else (query_on_node(context, node),)
    return _Side(stated("{} {}; {}.", hangs, health, log), (_HEALTH, *there), _NOTHING_NAMED)


def _of_map(
    context: RuleContext, hangs: Statement, waiting: ProcessRef, shown: tuple[Command, ...]
) -> tuple[Statement, tuple[Command, ...]]:
    """Return what a process of rbd waits for while it maps an image, and the commands."""
    if "noudev" not in waiting.command and _is_mapped_here(context):
        message = stated(
            "{} `rbd map` on {node} has mapped the image and waits for udev, whose events do "
            "not reach the plugin's container: it runs without the option noudev.",
            hangs,
            node=context.here,
        )
        return message, (list_pods_on(context.here),)
    waited = age_text(age(waiting.started_at, context.snapshot.observed_at))
    message = stated(
        "The CSI node plugin on {node} has waited {age} for Ceph at {monitors}, although Ceph "
        "answers rbdagent. Check the route to these addresses from the network namespace of "
        "the plugin's pod",
        node=context.here,
        age=waited,
        monitors=foreign_name(_monitors_in(waiting)),
    )
    end = _AND_TO_OSDS if waiting.state == "D" else "."
    return stated("{}{}", message, end), (list_pods_on(context.here), *shown)


_AND_TO_OSDS: Final = (
    ", and to all OSDs (ports 6800 to 7568): a map in state D has most likely reached the monitors."
)
"""The kernel waits interruptibly for the monitors, for 60 s (__ceph_open_session() in
net/ceph/ceph_common.c), and for an OSD without a limit (wait_request_timeout() in osd_client.c)."""


def _is_mapped_here(context: RuleContext) -> bool:
    return any(
        holder_verdict.holder.mapping is not None and holder_verdict.holder.is_local
        for holder_verdict in context.holder_verdicts
    )


def _does_ceph_answer(context: RuleContext) -> bool:
    """Return whether the OSD of the image's header answered rbdagent."""
    view = context.volume.image_view
    return view is not None and not isinstance(view.watchers, NotObserved)


def _count(requests: tuple[str, ...]) -> Words:
    return "1 request" if len(requests) == 1 else stated("{count} requests", count=len(requests))


def _monitors_in(process: ProcessRef) -> str:
    """Return the monitors in the command line of rbd; empty without them."""
    words = process.command.split()
    return next((after for word, after in pairwise(words) if word == "-m"), "")


def _hanging_requests(verdict: Verdict, found: Evidence, context: RuleContext) -> tuple[str, ...]:
    """Return the requests to Ceph that hang, rather than being in progress.

    osdc has no times: it lists each write of a pod, of mkfs or of an unmount until the OSD answers.
    The ping of the watch is one small operation every few seconds. A ping in osdc beside other
    requests therefore hints at an OSD that does not answer (recording 29-debugfs). While a volume
    follows its pod, udev and the driver read the device too, with no process that shows it.
    """
    is_step = found.bringing_up or found.tearing_down or does_a_pod_start(context)
    is_busy = verdict is Verdict.IN_USE or is_step
    has_ping = any(request.startswith(KEEP_ALIVE) for request in found.hung)
    return found.hung if has_ping or not is_busy else ()


def _hanging_event(context: RuleContext) -> KubeEvent | None:
    """Return the newest event of a waiting pod, if it reports a call that has not returned."""
    word = decisive_pod_event(context, is_about_hanging_call)
    if word is not None:
        return word.event
    if context.volume.target.kind is not TargetKind.NONE:
        return None
    # A snapshot of one node has the events of pods on other nodes, and not whether they wait.
    known = {(pod.ref.namespace, pod.ref.name) for pod in context.volume.pods}
    found = [
        event
        for event in context.volume.events
        if (event.subject.namespace, event.subject.name) not in known
        and is_about_hanging_call(event.message)
    ]
    return found[-1] if found else None


def device_node_missing(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD204 for a mapping in sysfs without a device node in /dev."""
    for holder_verdict in context.holder_verdicts:
        mapping = holder_verdict.holder.mapping
        if mapping is None or mapping.device_node_present is not False:
            continue
        yield finding(
            Code.DEVICE_NODE_MISSING,
            subject_of(holder_verdict.holder),
            stated(
                "{device} is mapped on {node}, and its device node is missing from /dev.",
                device=mapping.device,
                node=holder_verdict.holder.node,
            ),
            evidence=(f"{mapping.number} has no node {mapping.device}",),
            commands=(_make_node(mapping, holder_verdict.holder.node),),
        )


def _make_node(mapping: Mapping, node: str | None) -> Command:
    """Return the command that creates a device node.

    devtmpfs creates a node only once, and udev never does (NEWS of 176).
    """
    number = (str(mapping.number.major), str(mapping.number.minor))
    return command("mknod -m 600", mapping.device, "b", *number, node=node)


def pod_directories_left(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD205 for a pod's directory that is left and is no use of the volume.

    kubelet removes the directory before the pod leaves the API, and makes it after the pod is
    there: the pods may have been read after the one, or before the other.
    """
    for leftover in context.volume.leftovers:
        is_moving = _just_changed(leftover, context)
        yield finding(
            Code.POD_DIRECTORY_LEFT,
            Subject(kind=SubjectKind.POD, name=leftover.pod_uid),
            stated(
                "A directory of pod {pod} is left on {node}. The pod is not in the API, and "
                "nothing is mounted in the directory.{}",
                _AT_WORK if is_moving else "",
                pod=leftover.pod_uid,
                node=context.here,
            ),
            evidence=(_directory(leftover),),
            commands=(command("ls -la", _directory(leftover), node=context.here),),
            severity=Severity.INFO if is_moving else None,
        )


def _just_changed(left: PodVolumeDirectory, context: RuleContext) -> bool:
    """Return whether it changed within a minute of the observation: a clock may be set back."""
    since = age(left.changed_at, context.snapshot.observed_at)
    return since is not None and abs(since) < MOVING


_AT_WORK: Final = " It changed less than a minute ago: kubelet may be at work there."


def _directory(left: PodVolumeDirectory) -> str:
    """Return the volume's directory: kubelet's rmdir removes an empty mount point below it."""
    is_mount_point = left.plugin == _CSI_VOLUMES and not left.block
    return left.path.removesuffix("/mount") if is_mount_point else left.path


def staged_without_volume_data(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD206 for a staged volume without kubelet's vol_data.json."""
    for holder_verdict in context.holder_verdicts:
        if holder_verdict.holder.mapping is None:
            continue
        for directory in observed_of(holder_verdict.holder.staging):
            if directory.volume_data is not None or directory.block:
                continue
            if _IN_TREE_STAGING in directory.path:
                continue
            mounted = evidence_of(holder_verdict.holder).staging_mounts
            if not any(mount.path.startswith(directory.path) for mount in mounted):
                continue
            yield finding(
                Code.STAGING_WITHOUT_VOLUME_DATA,
                subject_of(holder_verdict.holder),
                stated(
                    "{holder} is staged, and the vol_data.json beside it is missing: kubelet "
                    "cannot unstage the volume.",
                    holder=subject_of(holder_verdict.holder),
                ),
                evidence=(directory.path,),
            )


_IN_TREE_STAGING: Final = "/plugins/kubernetes.io/rbd/"
"""kubelet writes a vol_data.json for volumes of a CSI driver only."""


def same_name_other_image(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD207 for a mapping with the same names in another cluster, namespace or image."""
    image = context.volume.image
    if image is None or (image.fsid is None and image.image_id is None):
        return
    for mapping in node_index(context.snapshot.node).mappings_by_image.get(image.spec.name, ()):
        other = identity_of_mapping(mapping)
        if other is None or other.spec.pool != image.spec.pool or same_image(image, other):
            continue
        if may_be_in_another_namespace(image, other):
            continue
        if any(
            holder_verdict.holder.mapping == mapping for holder_verdict in context.holder_verdicts
        ):
            continue
        difference = _difference(mapping, context)
        if not difference:
            continue
        yield finding(
            Code.SAME_NAME_ELSEWHERE,
            Subject.of_device(mapping.device, context.here),
            stated(
                "{device} on {node} is another image of the same name: {}. Use the device in "
                "commands, never the name.",
                difference,
                device=mapping.device,
                node=context.here,
            ),
            evidence=(
                f"{mapping.device}: {other.spec}, cluster {other.fsid}, id {other.image_id}",
            ),
        )


def _difference(mapping: Mapping, context: RuleContext) -> Words:
    """Return what is known to differ; "" if that was not observed."""
    image = context.volume.image
    if image is not None and mapping.fsid != image.fsid and mapping.fsid and image.fsid:
        return stated("it is in cluster {cluster}", cluster=mapping.fsid)
    mapped = identity_of_mapping(mapping)
    if mapped and image is not None and mapped.spec.namespace != image.spec.namespace:
        return stated(
            "it is in RADOS namespace {namespace}", namespace=f"{mapped.spec.namespace!r}"
        )
    known = image is not None and image.image_id is not None and mapping.image_id is not None
    return stated("its image id is {image_id}", image_id=mapping.image_id) if known else ""


RULES: Final = (
    Rule(105, down_elsewhere),
    Rule(110, driver_down, CollectScope.CSI_DRIVERS),
    Rule(120, kubelet_down),
    Rule(240, hanging, CollectScope.LOGS),
    Rule(600, device_node_missing),
    Rule(610, staged_without_volume_data),
    Rule(620, pod_directories_left),
    Rule(630, same_name_other_image),
)
