"""Watches on the API: a pod of this node that comes, changes or goes wakes the loop at once."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

from rbdagent.observe.api import Api, StatusError
from rbdagent.observe.asking import PODS, RBD_NODES
from rbdagent.observe.failure import as_source_error
from rbdagent.observe.kubeconfig import credentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.errors import SourceError
    from rbdagent.observe.kubeconfig import KubeAccess

Json = dict[str, Any]
_WATCH_S: Final = (300, 600)
"""The server ends a watch after a random time between these, as client-go has it do."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 120.0
_GONE: Final = 410


class ApiWatch:
    """Watches some objects, over and over, in a thread of its own."""

    def __init__(
        self,
        access: KubeAccess,
        path: str,
        selector: str,
        *,
        told: Callable[[str, Json], None],
        missed: Callable[[], None],
        log: Any,  # noqa: ANN401 - structlog's bound logger
    ) -> None:
        """Prepare it.

        Args:
            access: where and as whom.
            path: of the list.
            selector: field selector of the objects.
            told: is given each change, see :meth:`Api.watch`.
            missed: is called when changes may have been missed.
            log: gets a line when it fails, and when it works again.
        """
        self._access = access
        self._path = path
        self._selector = selector
        self._told = told
        self._missed = missed
        self._log = log
        self._version = ""
        self._failing = False
        self._never = threading.Event()

    def start(self) -> None:
        """Begin; it lives as long as the program."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._once()
                pause = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - a thread that ended would watch no more
                self._fail(as_source_error(error, self._path))
                # Agents that lost their server together must not come back together.
                self._never.wait(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _once(self) -> None:
        """Watch until the server ends it, from where the last time ended."""
        api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        if not self._version:
            # From the server's cache. A watch alone would begin with all there is as well, but not
            # everywhere: recent servers ask etcd then, and older ones of these cannot answer
            # (RequestWatchProgress).
            query = {"fieldSelector": self._selector, "resourceVersion": "0"}
            listed = api.ask(self._path, query).answer()
            for each in listed.get("items") or ():
                self._told("ADDED", each)
            self._change("BOOKMARK", listed)
        api.watch(
            self._path,
            self._change,
            fieldSelector=self._selector,
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=random.randint(*_WATCH_S),  # noqa: S311
        )

    def _change(self, kind: str, changed: Json) -> None:
        if self._failing:
            self._failing = False
            self._log.info("watching again", path=self._path)
        self._version = str((changed.get("metadata") or {}).get("resourceVersion") or "")
        if kind != "BOOKMARK":
            self._told(kind, changed)

    def _fail(self, error: SourceError) -> None:
        if isinstance(error, StatusError) and error.status == _GONE:
            # What lies between is forgotten: begin anew with all there is.
            self._version = ""
            self._missed()
        elif not self._failing:
            self._failing = True
            self._log.warning("not watching", path=self._path, error=str(error))


class Pods:
    """What is known of this node's pods, to tell a change that matters from a probe's word."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[str, tuple[object, ...]] = {}

    def told(self, kind: str, pod: Json) -> None:
        """Take one change."""
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
    """Tell whether a pod uses a claim or an inline volume that may be an RBD image."""
    kinds = ("persistentVolumeClaim", "ephemeral", "csi", "rbd")
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return any(kind in volume for volume in volumes for kind in kinds)


def watch(
    access: KubeAccess,
    node_name: str,
    *,
    changed: Callable[[], None],
    withdrawn: Callable[[], None],
    log: Any,  # noqa: ANN401 - structlog's bound logger
) -> None:
    """Watch this node's pods, and the object that is published of it.

    Args:
        access: where and as whom.
        node_name: this node.
        changed: is called when a look is worth it.
        withdrawn: is called when somebody deleted what was published.
        log: gets a line when a watch fails, and when it works again.
    """
    pods = Pods(changed)
    ApiWatch(
        access,
        PODS,
        f"spec.nodeName={node_name}",
        told=pods.told,
        missed=changed,
        log=log,
    ).start()

    def published(kind: str, _: Json) -> None:
        if kind == "DELETED":
            withdrawn()

    ApiWatch(
        access,
        RBD_NODES,
        f"metadata.name={node_name}",
        told=published,
        missed=withdrawn,
        log=log,
    ).start()
