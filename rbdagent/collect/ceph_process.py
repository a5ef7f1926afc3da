"""Queries of Ceph by a process that can be ended.

A call of librados may never return, and a failed assertion in librados ends its process.
"""

from __future__ import annotations

import contextlib
import importlib
from functools import partial
from typing import TYPE_CHECKING, Final

from rbdagent.collect.ceph.access import MappedHere
from rbdagent.collect.failure import failed
from rbdagent.collect.monitors import monitors_in, with_monitors
from rbdagent.collect.worker import PersistentWorker, Worker, WorkerExitedError
from rbdagent.errors import SourceError
from rbdagent.model import CephView, ImageIdentity, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.kube.kubeconfig import MonitorList

CephQuestion = tuple[tuple[ImageIdentity, ...], MappedHere, float]
"""Images, what the node has mapped, and a deadline of the monotonic clock."""
CephAnswer = tuple[CephView | None, Source]
CephProcess = Worker[CephQuestion, CephAnswer]
CEPH: Final = "Ceph"


def start_loading() -> CephProcess:
    """Start a process that loads librados and librbd; :func:`connect` sends it the clusters.

    This takes 27 ms of processor time, about as long as the command line and its configuration
    take in the process that called it.
    """
    return Worker(None, load=_load)


def _load() -> None:
    importlib.import_module("rbdagent.collect.ceph.images")
    from rbdagent.collect.ceph.connection import rbd_module

    # A missing module is reported by the answer to the first question.
    with contextlib.suppress(SourceError):
        rbd_module()


def connect(
    clusters: Sequence[CephAccess],
    lists: Sequence[MonitorList],
    loading: CephProcess | None = None,
) -> CephProcess:
    """Start to connect to the clusters in a process that opens images.

    Args:
        clusters: the configured clusters.
        lists: where their monitors are listed.
        loading: a process of :func:`start_loading`; if None, a new process.
    """
    # A new process loads librbd while it connects.
    process = loading or CephProcess(None)
    # If the process has ended, the first question fails too, and that is reported.
    with contextlib.suppress(WorkerExitedError):
        process.begin(partial(answers, tuple(clusters), tuple(lists), {}, opens_images=True))
    return process


class KeptCeph(PersistentWorker[CephQuestion, CephAnswer]):
    """The process that stays connected to Ceph; its successor knows the monitors of this one."""

    def __init__(self, clusters: Sequence[CephAccess], lists: Sequence[MonitorList]) -> None:
        """Start the process."""
        self._known: dict[str, tuple[str, ...]] = {}
        super().__init__(
            lambda: answers(clusters, lists, self._known, opens_images=False), answers=CephAnswer
        )

    def receive(self, deadline: float) -> CephAnswer:
        """Wait for the answer, and store the monitors that it contains."""
        answer = super().receive(deadline)
        self._known |= monitors_in(answer[0])
        return answer


def answers(
    clusters: Sequence[CephAccess],
    lists: Sequence[MonitorList],
    known: Mapping[str, tuple[str, ...]],
    *,
    opens_images: bool,
) -> Callable[[CephQuestion], CephAnswer]:
    """Start to connect to the clusters; return the function that answers questions.

    Args:
        clusters: the configured clusters.
        lists: where their monitors are listed.
        known: the last known monitors.
        opens_images: see :class:`CephReader`.
    """
    from rbdagent.collect.ceph.images import CephReader

    # Catch it here: the parent process may be unable to unpickle an exception of the bindings.
    try:
        reader = CephReader(with_monitors(clusters, lists, known), opens_images=opens_images)
    except Exception as error:  # noqa: BLE001 - a failure must not affect the other sources
        failure = failed(error, CEPH)
        return lambda _: (None, failure)

    def answer(question: CephQuestion) -> CephAnswer:
        images, known, deadline = question
        try:
            return reader.images(images, known=known, deadline=deadline)
        except Exception as error:  # noqa: BLE001 - as above
            return None, failed(error, CEPH)

    return answer
