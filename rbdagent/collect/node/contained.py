"""Observation of the node by a process that can be ended.

A read of /proc or /sys may wait in the kernel for longer than the deadline, and a thread that waits
there cannot be ended. So a separate process does the reads, and is ended at the deadline. If the
separate process is kept, it stores which processes of the node hang, and does not read them again.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.collect.failure import failed
from rbdagent.collect.worker import PersistentWorker, Worker, WorkerExitedError
from rbdagent.model import NodeView, Source, SourceState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.collect.node.roots import NodeRoots

NodeAnswer = tuple[NodeView | None, Source]
KeptNode = PersistentWorker[float, NodeAnswer]
_THE_NODE: Final = "the node"
_MARGIN_S: Final = 0.5
"""Time for the observing process to report a read that hangs, before it is ended."""


def start_node_worker(roots: NodeRoots, node_name: str) -> KeptNode:
    """Start a long-running process that observes the node.

    Call this before the current process has threads.
    """
    return PersistentWorker(_observing(roots, node_name), answers=NodeAnswer)


@contextlib.contextmanager
def node_begun(
    roots: NodeRoots, node_name: str, deadline: float, kept: KeptNode | None = None
) -> Iterator[Callable[[], NodeAnswer]]:
    """Start to observe the node; yield a function that waits for the answer and never raises.

    Args:
        roots: the paths of the host's file systems.
        node_name: this node.
        deadline: of the monotonic clock; a process that needs longer is ended.
        kept: the process that observes; if None, a new one, which ends with this context.
    """
    worker = kept or Worker(_observing(roots, node_name))
    answer: NodeAnswer | None = None

    def wait() -> NodeAnswer:
        nonlocal answer
        answer = begun or _contained(lambda: worker.receive(deadline))
        assert answer is not None  # noqa: S101 - an answer or a failure
        worker.finish()
        return answer

    try:
        begun = _contained(lambda: worker.ask(deadline))
        yield wait
    finally:
        # A late answer would be read as the answer to the next question.
        if kept is None or answer is None or answer[1].state is SourceState.FAILED:
            worker.end()


def _contained(call: Callable[[], NodeAnswer | None]) -> NodeAnswer | None:
    try:
        return call()
    except TimeoutError:
        reason, hint = "the node was not observed in time", "a longer --timeout may help"
    except WorkerExitedError:
        reason = "the process that observed the node ended without an answer"
        hint = "the kernel may have killed it because of its memory use: dmesg shows that"
    except Exception as error:  # noqa: BLE001 - a failure must not affect the other sources
        return None, failed(error, _THE_NODE)
    return None, Source(state=SourceState.FAILED, reason=reason, hint=hint)


def _observing(roots: NodeRoots, node_name: str) -> Callable[[], Callable[[float], NodeAnswer]]:
    def begin() -> Callable[[float], NodeAnswer]:
        # A process that cannot be ended must not make a reader of the program's messages wait.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        from rbdagent.collect.files import last_path
        from rbdagent.collect.node.observer import observe_node
        from rbdagent.collect.parallel import InTurn, all_of

        turns = InTurn[tuple[str, int]]()

        def answer(deadline: float) -> NodeAnswer:
            begun = time.monotonic()
            patience_s = deadline - begun
            (found,) = all_of(
                [
                    lambda: observe_node(
                        roots, node_name=node_name, turns=turns, deadline=begun + patience_s / 2
                    )
                ],
                deadline - min(_MARGIN_S, patience_s / 4),
            )
            if isinstance(found, BaseException):
                view, source = None, failed(found, _THE_NODE)
            elif found is None:
                reason = f"{last_path()} did not answer within {patience_s:.0f} s"
                view, source = None, Source(state=SourceState.FAILED, reason=reason)
            else:
                view, source = found
            return view, replace(source, took_s=round(time.monotonic() - begun, 3))

        return answer

    return begin
