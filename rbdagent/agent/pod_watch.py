"""Watches on the API: a change of this node's pods, or of what its agent wrote, wakes the loop."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from rbdagent.collect.failure import as_source_error
from rbdagent.collect.kube.client import Api, StatusError
from rbdagent.collect.kube.kubeconfig import credentials
from rbdagent.collect.kube.requests import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.collect.kube.kubeconfig import KubeAccess
    from rbdagent.errors import SourceError
    from rbdagent.log import Log

Json = dict[str, Any]
_WATCH_S: Final = (300, 600)
"""Seconds. The server ends a watch after a random time in this range, as for client-go."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 120.0
_GONE: Final = 410


class ApiWatch:
    """Watches objects of the API in a separate thread, and restarts the watch when it ends."""

    def __init__(
        self,
        access: KubeAccess,
        path: str,
        selector: dict[str, str],
        *,
        on_change: Callable[[str, Json], None],
        missed: Callable[[], None],
        log: Log,
    ) -> None:
        """Store the API server, the path of the list, its selector and the callbacks.

        The first callback receives each change, see :meth:`Api.watch`. ``missed`` is called when
        changes may have been missed. ``log`` receives a line when the watch fails, and a line when
        it works again.
        """
        self._access = access
        self._path = path
        self._selector = selector
        self._on_change = on_change
        self._missed = missed
        self._log = log
        self._version = ""
        self._begins_again = False
        self._failing = False
        self._never = threading.Event()

    def start(self) -> Self:
        """Start the thread; it runs until the program ends."""
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def begin_again(self) -> None:
        """Make the watch begin with a new list when the server ends it; thread-safe.

        Its version may be one that the store does not have yet, after a restore of etcd from a
        backup: the server then sends neither changes nor 410 Gone.
        """
        self._begins_again = True

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._once()
                pause = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - an ended thread would watch nothing
                self._fail(as_source_error(error, self._path))
                # Agents that lost the API server at the same time must not reconnect at the same
                # time.
                self._never.wait(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _once(self) -> None:
        """Watch until the server ends the watch; continue at the last resourceVersion."""
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        if self._begins_again:
            self._begins_again, self._version = False, ""
            self._missed()
        if not self._version:
            # resourceVersion 0 lists from the server's cache. A watch without a version would also
            # begin with all objects. But recent servers then send a request to etcd that older
            # versions of etcd do not support (RequestWatchProgress).
            query = {**self._selector, "resourceVersion": "0"}
            listed = api.ask(self._path, query).answer()
            for item in listed.get("items") or ():
                self._on_change("ADDED", item)
            self._change("BOOKMARK", listed)
        api.watch(
            self._path,
            self._change,
            **self._selector,
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=random.randint(*_WATCH_S),  # noqa: S311
        )

    def _change(self, kind: str, changed: Json) -> None:
        if self._failing:
            self._failing = False
            self._log.info("watch recovered", path=self._path)
        self._version = str((changed.get("metadata") or {}).get("resourceVersion") or "")
        if kind != "BOOKMARK":
            self._on_change(kind, changed)

    def _fail(self, error: SourceError) -> None:
        if isinstance(error, StatusError) and error.status == _GONE:
            # The server no longer has the changes since that version, so start with a new list.
            self._version = ""
            self._missed()
        elif not self._failing:
            self._failing = True
            self._log.warning("watch failed", path=self._path, error=str(error))


class Pods:
    """Holds the state of this node's pods, to ignore irrelevant changes such as probe results."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[str, tuple[object, ...]] = {}

    def on_change(self, kind: str, pod: Json) -> None:
        """Process one change."""
        meta = pod["metadata"]
        uid = str(meta.get("uid"))
        before = self._known.get(uid)
        if kind == "DELETED":
            now = None
            self._known.pop(uid, None)
        else:
            phase = (pod.get("status") or {}).get("phase")
            now = self._known[uid] = (phase, meta.get("deletionTimestamp"))
        if now != before and _may_have_images(pod):
            self._changed()


def _may_have_images(pod: Json) -> bool:
    """Return whether a pod uses a claim or an inline volume that may be an RBD image."""
    kinds = ("persistentVolumeClaim", "ephemeral", "csi", "rbd")
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return any(kind in volume for volume in volumes for kind in kinds)


def watch_pods(
    access: KubeAccess, node_name: str, changed: Callable[[], None], log: Log
) -> ApiWatch:
    """Watch this node's pods, and return the watch.

    Args:
        access: API server and credentials.
        node_name: this node.
        changed: is called when a new snapshot is needed.
        log: receives a line when the watch fails, and a line when it works again.
    """
    return ApiWatch(
        access,
        PODS,
        {"fieldSelector": f"spec.nodeName={node_name}"},
        on_change=Pods(changed).on_change,
        missed=changed,
        log=log,
    ).start()


class Writer(Protocol):
    """Writes objects that no other client should change."""

    def is_foreign(self, kind: str, changed: Json) -> bool:
        """Return whether the agent did not make a change; the next cycle corrects it."""

    def forget(self) -> None:
        """Make the next cycle write again what may have changed."""


def watch_written(
    access: KubeAccess,
    path: str,
    selector: dict[str, str],
    writer: Writer,
    changed: Callable[[], None],
    log: Log,
) -> ApiWatch:
    """Watch objects that an agent writes, and return the watch.

    Args:
        access: API server and credentials.
        path: of the list of the objects.
        selector: of the agent's objects.
        writer: writes them.
        changed: is called when a cycle is needed.
        log: receives a line when the watch fails, and a line when it works again.
    """

    def on_change(kind: str, item: Json) -> None:
        if writer.is_foreign(kind, item):
            changed()

    def missed() -> None:
        writer.forget()
        changed()

    return ApiWatch(access, path, selector, on_change=on_change, missed=missed, log=log).start()
