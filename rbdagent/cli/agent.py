"""rbdagent agent."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

import click

from rbdagent.cli.flags import Duration, acting, leave_of, observing, option
from rbdagent.cli.output import moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.agent.loop import Seen
    from rbdagent.agent.notify import ServiceManager
    from rbdagent.agent.wake import Wake
    from rbdagent.config import Settings
    from rbdagent.observe.kubeconfig import KubeAccess

_END_S: Final = 4.0
"""What is under way gets so long to end after SIGTERM; then the program ends without it."""


@click.command("agent")
@option("--mode", type=click.Choice(["observe", "unmap"]), default="observe", show_default=True,
        help="Whether orphans may be unmapped.")  # fmt: skip
@option("--resync", type=Duration(), default="60s", show_default=True,
        help="The longest time between two looks; changes are seen at once.")  # fmt: skip
@option("--heartbeat", type=Duration(), default="5m", show_default=True,
        help="How often RBDNode is written although nothing changed.")  # fmt: skip
@option("--listen", default="127.0.0.1:9464", show_default=True, metavar="ADDRESS:PORT",
        help="Where /metrics, /livez and /readyz are served.")  # fmt: skip
@click.option("--once", is_flag=True, help="One cycle: look, publish, exit.")
@acting
@observing
def command(
    *,
    mode: str,
    resync: float,
    heartbeat: float,
    listen: str,
    once: bool,
    settings: Callable[[], Settings],
    **allowed: Any,  # noqa: ANN401 - the flags of the policy
) -> int:
    """Run on a node: watch what is mapped, publish it, and unmap orphans where that is allowed."""
    from rbdagent.agent.endpoint import serve
    from rbdagent.agent.loop import Agent, run_until
    from rbdagent.agent.notify import ServiceManager
    from rbdagent.agent.wake import Wake
    from rbdagent.log import agent_log
    from rbdagent.look import keep_ceph

    # The program ends without a collector after one answer; this one stays.
    gc.enable()
    # A watchdog ends it with SIGABRT: the log then tells where each thread was.
    faulthandler.enable()
    chosen = settings()
    log = agent_log(chosen.node_name)
    leave = leave_of(allowed, by="agent", may_unmap=mode == "unmap")
    if chosen.roots is None:
        raise click.UsageError("an agent looks at its node: --no-node makes no sense here")
    with leave.state.only_agent():
        # Before there are threads: it forks.
        ceph = keep_ceph(chosen)
        wake = Wake(chosen.roots.procfs)
        for each in wake.deaf:
            log.warning("deaf", to=each, then="it is looked at every --resync only")
        kubernetes = None
        if chosen.kube is not None:
            kubernetes = _Kubernetes(chosen.kube, chosen.node_name, heartbeat_s=heartbeat, log=log)
        manager = ServiceManager(os.environ)

        def tell(seen: Seen) -> None:
            manager.looked(seen)
            if kubernetes is not None:
                kubernetes.tell(seen)

        agent = Agent(
            chosen,
            leave,
            wake,
            resync_s=resync,
            clock=moment,
            tell=tell,
            log=log,
            ceph=ceph,
        )
        if once:
            agent.run(once=True)
            return 0
        serve(agent, listen)
        if kubernetes is not None:
            kubernetes.watch(wake)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: wake.end())
        log.info("started", mode=mode, listen=listen, state=str(leave.state.path))
        return _run(lambda ended: run_until(agent, wake, ended, manager.alive), wake, manager, log)


def _run(
    work: Callable[[threading.Event], None],
    wake: Wake,
    manager: ServiceManager,
    log: Any,  # noqa: ANN401 - structlog's bound logger
) -> int:
    """Run the loop in a thread that nobody must wait for: a hung call cannot keep us."""
    ended = threading.Event()
    threading.Thread(target=work, args=(ended,), daemon=True).start()
    wake.wait_for_end()
    manager.stopping()
    well = ended.wait(_END_S)
    log.info("ended", waited_for_all=well)
    return 0


class _Kubernetes:
    """The cluster's API: what it is told of each look, and what there wakes the agent."""

    def __init__(
        self,
        access: KubeAccess,
        node_name: str,
        *,
        heartbeat_s: float,
        log: Any,  # noqa: ANN401 - structlog's bound logger
    ) -> None:
        from rbdagent.agent.events import Events
        from rbdagent.agent.publish import Publisher

        self._access = access
        self._node_name = node_name
        self._publisher = Publisher(access, node_name, heartbeat_s=heartbeat_s)
        self._events = Events(access, node_name)
        self._log = log

    def tell(self, seen: Seen) -> None:
        """Write RBDNode and Events; that it cannot is logged and ends nothing."""
        from rbdagent.observe.failure import as_source_error

        for what, write in (("RBDNode", self._publish), ("events", self._events.tell)):
            try:
                write(seen)
            except Exception as error:  # noqa: BLE001 - the one must not keep back the other
                self._log.warning(
                    "not published", what=what, error=str(as_source_error(error, what))
                )

    def _publish(self, seen: Seen) -> None:
        from rbdagent.report.rbdnode import rbdnode_status

        status = rbdnode_status(seen.diagnoses, seen.snapshot, seen.history, seen.acts)
        self._publisher.publish(status, node_uid=_uid_of(seen))

    def watch(self, wake: Wake) -> None:
        """Have changes wake the agent; a withdrawn RBDNode is written again."""
        from rbdagent.agent.watching import watch

        def withdrawn() -> None:
            self._publisher.forget()
            wake.tell()

        watch(
            self._access,
            self._node_name,
            changed=wake.tell,
            withdrawn=withdrawn,
            log=self._log,
        )


def _uid_of(seen: Seen) -> str | None:
    """Give the uid of the Node that looked; None where it is unknown."""
    from rbdagent.model import NotObserved

    kube, node = seen.snapshot.kubernetes, seen.snapshot.node
    node_name = node.node_name if node is not None else ""
    nodes = () if kube is None or isinstance(kube.nodes, NotObserved) else kube.nodes
    return next((each.uid for each in nodes if each.name == node_name), None)
