"""rbdagent agent."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import gc
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rbdagent.cli.options import LOG_LEVEL, Duration, observing, option
from rbdagent.cli.output import moment
from rbdagent.cli.unmap_options import acting, state_of, unmap_context_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.agent.cycle import CycleResult
    from rbdagent.agent.kernel_events import Wake
    from rbdagent.agent.loop import Agent
    from rbdagent.agent.pod_watch import ApiWatch
    from rbdagent.agent.systemd import ServiceManager
    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.config import Settings
    from rbdagent.log import Log

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""From malloc.h of glibc."""
_LARGE: Final = 64 << 10
"""Size in bytes of a block that glibc returns to the kernel when it is free, as it does with so
much free memory at the end of the heap. By default, glibc keeps larger and larger blocks, up to
32 MiB, once the program has freed one."""
_END_S: Final = 4.0
"""Time limit for the end of a running cycle after SIGTERM; then the program exits anyway."""


class _Served(NamedTuple):
    """Holds the flags of the HTTP endpoints."""

    listen: str
    probes: str
    metrics: str


_SERVED: Final = (
    option("--listen", default="127.0.0.1:9464", show_default=True, metavar="ADDRESS:PORT",
           help="Address that serves /metrics, /livez and /readyz."),
    option("--probes", default="", metavar="ADDRESS:PORT",
           help="Address that serves only /livez and /readyz, which no other client can delay; "
                "empty for none."),
    option("--metrics", type=click.Choice(["all", "problems"]), default="all", show_default=True,
           help="Mappings with series in /metrics: all, or the unhealthy ones."),
)  # fmt: skip


def _serving(command: Callable[..., int]) -> Callable[..., int]:
    """Decorate the command: add the flags of the endpoints, and pass them as one value."""

    @functools.wraps(command)
    def run(**given: object) -> int:
        flags = {name: given.pop(name) for name in _Served._fields}
        return command(served=_Served(**flags), **given)  # type: ignore[arg-type]

    return functools.reduce(lambda decorated, add: add(decorated), reversed(_SERVED), run)


@click.command("agent")
@option("--mode", type=click.Choice(["observe", "unmap"]), default="observe", show_default=True,
        help="Only observe, or also unmap orphans.")  # fmt: skip
@option("--resync", type=Duration(), default="60s", show_default=True,
        help="Maximum time between two cycles; a change starts a cycle immediately.")  # fmt: skip
@option("--heartbeat", type=Duration(), default="5m", show_default=True,
        help="Interval at which the agent renews its Lease.")  # fmt: skip
@option("--lease-namespace", default="rbdagent", show_default=True, metavar="NAME",
        help="Namespace of the agent's Lease, which has the name of the node.")  # fmt: skip
@_serving
@LOG_LEVEL
@option(
    "--answer-for",
    type=Duration(),
    default="10m",
    show_default=True,
    help="How long the process that answers commands at once outlives the last one; 0 for none.",
)
@click.option("--once", is_flag=True,
              help="Run one cycle (observe, publish), then exit: with 1 if it failed.")  # fmt: skip
@acting
@observing
def command(
    *,
    mode: str,
    resync: float,
    heartbeat: float,
    lease_namespace: str,
    served: _Served,
    answer_for: float,
    once: bool,
    settings: Callable[[], Settings],
    **allowed: Any,  # noqa: ANN401 - the flags of the policy
) -> int:
    """Observe this node's mappings continuously, and publish them.

    In mode unmap, the agent also unmaps orphans.
    """
    from rbdagent.collector import start_workers

    # The other verbs exit after one output, and run without the garbage collector.
    gc.enable()
    _limit_heaps()
    # The watchdog of systemd sends SIGABRT. The log then shows the stack of each thread.
    faulthandler.enable()
    chosen = settings().published()
    if chosen.roots is None:
        raise click.UsageError("the agent observes its node: do not use --no-node with it")
    with state_of(allowed).only_agent() as problem, contextlib.ExitStack() as stack:
        # This call forks. So it runs before this process starts threads, and before this process
        # imports modules that the workers do not need: a page that one process changes is copied.
        workers = start_workers(chosen)
        from rbdagent.agent.http import serve
        from rbdagent.agent.loop import Agent, run_until
        from rbdagent.agent.probes import serve_probes
        from rbdagent.agent.systemd import ServiceManager
        from rbdagent.log import logged, logger

        given = click.get_current_context()
        level = "debug" if given.params["debug"] else given.meta["log_level"]
        form = given.params["log_format"] or ("console" if sys.stderr.isatty() else "json")
        stack.enter_context(logged(level, form))
        log = logger(node=chosen.node_name)
        if problem:
            log.error("state", message=problem, then="nothing is unmapped; a second agent may run")
        unmap_context = unmap_context_of(allowed, by="agent", may_unmap=mode == "unmap")
        wake = _wake(chosen.roots.procfs, log)
        kubernetes = _kubernetes(chosen, lease_namespace, heartbeat, log)
        manager = ServiceManager(os.environ)
        agent = Agent(
            chosen,
            unmap_context,
            wake,
            resync_s=resync,
            clock=moment,
            report=_reporter(manager, kubernetes),
            log=log,
            workers=workers,
        )
        if once:
            return _run_once(agent, kubernetes)
        serve(agent, served.listen, problems_only=served.metrics == "problems", workers=workers)
        if served.probes:
            serve_probes(agent, served.probes)
        if kubernetes is not None:
            kubernetes.watch(wake)
        if answer_for:
            from rbdagent.agent.prepared import offer_answers

            offer_answers(unmap_context.state.path, answer_for, log)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: wake.end())
        log.info("started", mode=mode, listen=served.listen, state=str(unmap_context.state.path))
        return _run(lambda ended: run_until(agent, wake, ended, manager.alive), wake, manager, log)


def _wake(procfs: Path, log: Log) -> Wake:
    """Return what wakes the loop, and log which changes of the node do not."""
    from rbdagent.agent.kernel_events import Wake

    wake = Wake(procfs)
    for source in wake.deaf:
        log.warning("no change notification", of=source, then="observed every --resync only")
    return wake


def _kubernetes(
    settings: Settings, lease_namespace: str, heartbeat_s: float, log: Log
) -> _Kubernetes | None:
    """Return the agent's part in the API; None if the API must not be queried."""
    if settings.kube is None:
        return None
    return _Kubernetes(
        settings.kube,
        settings.node_name,
        lease_namespace=lease_namespace,
        heartbeat_s=heartbeat_s,
        log=log,
    )


def _reporter(
    manager: ServiceManager, kubernetes: _Kubernetes | None
) -> Callable[[CycleResult], None]:
    """Return the function that reports each cycle: to systemd, and to the Kubernetes API."""

    def report(result: CycleResult) -> None:
        manager.send_status(result)
        if kubernetes is not None:
            kubernetes.tell(result)

    return report


def _limit_heaps() -> None:
    """Limit the free memory that glibc keeps, in this process and in the workers.

    Threads leave heaps behind when they end: 2 MiB in the agent's three processes (glibc 2.36,
    Anonymous in smaps_rollup). Free blocks of the first cycle, which reads all objects, are 3 MiB.
    Another C library may not have mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in (
            (_M_ARENA_MAX, 1),
            (_M_MMAP_THRESHOLD, _LARGE),
            (_M_TRIM_THRESHOLD, _LARGE),
        ):
            mallopt(parameter, value)


def _run_once(agent: Agent, kubernetes: _Kubernetes | None) -> int:
    """Run one cycle; return 1 if it failed or was not published. The log has the reason."""
    has_succeeded = agent.run(once=True)
    is_published = kubernetes is None or kubernetes.is_published
    return int(not (has_succeeded and is_published))


def _run(
    work: Callable[[threading.Event], None],
    wake: Wake,
    manager: ServiceManager,
    log: Log,
) -> int:
    """Run the loop in a daemon thread, so that a call that hangs does not block the exit."""
    ended = threading.Event()
    threading.Thread(target=work, args=(ended,), daemon=True).start()
    wake.wait_for_end()
    manager.stopping()
    well = ended.wait(_END_S)
    log.info("ended", waited_for_all=well)
    return 0


class _Kubernetes:
    """Writes the result of each cycle to the Kubernetes API, and watches it for changes."""

    def __init__(
        self,
        access: KubeAccess,
        node_name: str,
        *,
        lease_namespace: str,
        heartbeat_s: float,
        log: Log,
    ) -> None:
        from rbdagent.agent.events import Events
        from rbdagent.agent.heartbeat import Heartbeat
        from rbdagent.agent.publish import Publisher
        from rbdagent.agent.publish_mappings import MappingPublisher
        from rbdagent.cli.output import program

        self._access = access
        self._node_name = node_name
        self._lease_namespace = lease_namespace
        self._publisher = Publisher(access, node_name)
        self._mappings = MappingPublisher(access, node_name)
        self._heartbeat = Heartbeat(
            access, node_name, namespace=lease_namespace, interval_s=heartbeat_s
        )
        self._events = Events(access, node_name, program())
        self._log = log
        self._watches: tuple[ApiWatch, ...] = ()
        self._failures: dict[str, str] = {}
        """By what was not written: the error, which is logged again when it changes."""
        self._is_without_node = False
        self.is_published = False
        """Whether everything of the last cycle was written."""

    def tell(self, result: CycleResult) -> None:
        """Write RBDMappings, RBDNode, Lease and Events; log a failure and continue."""
        from rbdagent.collect.failure import as_source_error

        self.is_published = True
        other = result.snapshot.other_machine
        if other is not None:
            # The objects of the Node's name belong to the agent of another machine, or show the
            # mappings before the last boot until kubelet has reported the present one.
            self._log_failure("RBDNode", other.reason, hint=other.hint)
            return
        self._log_node(result)
        for what, write in (("RBDNode", self._publish), ("events", self._events.tell)):
            try:
                write(result)
            except Exception as error:  # noqa: BLE001 - one failure must not prevent the other write
                self._log_failure(what, str(as_source_error(error, what)))
            else:
                if self._failures.pop(what, None) is not None:
                    self._log.info("published again", what=what)

    def _log_failure(self, what: str, error: str, **fields: str) -> None:
        """Log that something was not written, once for each error in a row."""
        self.is_published = False
        repeats = self._failures.get(what) == error
        self._failures[what] = error
        log = self._log.debug if repeats else self._log.warning
        log("not published", what=what, error=error, **fields)

    def _log_node(self, result: CycleResult) -> None:
        """Log once that the Node of the agent was deleted."""
        from rbdagent.correlate.volume_names import node_named

        is_deleted = node_named(self._node_name, result.snapshot) is None
        if is_deleted and not self._is_without_node:
            # Its reports are garbage collected with the Node, and none can be created.
            self._log.warning(
                "no Node",
                node=self._node_name,
                effect="no other node can see what is mapped here",
                hint="kubelet registers the Node when it starts; unmap, or shut the machine down, "
                "before its Node is deleted",
            )
        self._is_without_node = is_deleted

    def _publish(self, result: CycleResult) -> None:
        from rbdagent.correlate.image_identity import are_mappings_observed
        from rbdagent.report.rbdmapping import mapping_statuses, rbdmapping_objects
        from rbdagent.report.rbdnode import rbdnode_object, rbdnode_status
        from rbdagent.verdicts.volume_traces import keys_of_traces

        renews = self._heartbeat.is_due
        if renews:
            self._verify()
        status = rbdnode_status(result.diagnoses, result.snapshot, result.acts)
        node_uid, observed_at = _uid_of(result), result.snapshot.observed_at
        status["leaseNamespace"] = self._lease_namespace
        wanted, statuses = None, None
        if are_mappings_observed(result.snapshot.node):
            statuses = mapping_statuses(result.diagnoses, result.snapshot, result.history)
            wanted = rbdmapping_objects(statuses, self._node_name, observed_at=observed_at)
            self._mappings.write(wanted, node_uid=node_uid)
        used = keys_of_traces(result.diagnoses, result.snapshot)
        self._publisher.publish(rbdnode_object(status, statuses, used), node_uid=node_uid)
        if wanted is not None:
            self._mappings.delete_others(wanted)
        # Last: the Lease shows that what was observed is published.
        if renews and not self._heartbeat.renew(
            observed_at, node_uid=node_uid, confirms=self._publisher.confirmation
        ):
            self._begin_again()

    def _verify(self) -> None:
        """Read what the agent published, before its Lease confirms that."""
        if not self._publisher.verify():
            self._mappings.forget()
        self._mappings.verify()

    def _begin_again(self) -> None:
        """Read and write everything again: the API server has older objects than before."""
        self._log.warning("the API server has older objects than before: etcd was restored")
        self._publisher.forget()
        self._mappings.forget()
        for watch in self._watches:
            watch.begin_again()

    def watch(self, wake: Wake) -> None:
        """Wake the agent on changes; make it correct what another client changed or deleted."""
        from rbdagent.agent.pod_watch import watch_pods, watch_written
        from rbdagent.collect.kube.requests import RBD_MAPPINGS, RBD_NODES

        access, log, mappings = self._access, self._log, self._mappings
        own = {"fieldSelector": f"metadata.name={self._node_name}"}
        labelled = {"labelSelector": mappings.selector}
        self._watches = (
            watch_pods(access, self._node_name, wake.tell, log),
            watch_written(access, RBD_NODES, own, self._publisher, wake.tell, log),
            watch_written(access, RBD_MAPPINGS, labelled, mappings, wake.tell, log),
        )


def _uid_of(result: CycleResult) -> str | None:
    """Return the uid of this node's Node object; None if it is unknown."""
    # The workers are forked before this is imported: they do not need it.
    from rbdagent.correlate.index import kube_index

    observed = result.snapshot.node
    node_name = observed.node_name if observed is not None else ""
    node = kube_index(result.snapshot.kubernetes).node_by_name.get(node_name)
    return None if node is None else node.uid
