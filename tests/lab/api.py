"""A small client of the lab's Kubernetes API, for making incidents and waiting for their effects.

The API server listens only inside the lab's network namespace. A socket belongs permanently to the
namespace of the thread that made it, so one dedicated thread enters the namespace and sends all
requests from there: 2 ms each, where a kubectl process costs 150 ms of a processor.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]
"""An API object as the API returns it."""

_CLONE_NEWNET = 0x40000000
_TIMEOUT_S = 10.0
_IDLE_S = 15.0
"""A connection that was idle for longer is not used again: the server may have closed it."""
_CONTENT_TYPES = {
    "PATCH": "application/merge-patch+json",
    "POST": "application/json",
    "PUT": "application/json",
    "DELETE": "application/json",
}


class ApiError(LabError):
    """The API server answered with an error; ``status`` is the HTTP status."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: {status}: {_message(body)}")
        self.status = status


class Api:
    """A user's connection to the API server of the lab."""

    def __init__(self, *, host: str, port: int, token: str, ca: Path, netns: str) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._connection: http.client.HTTPSConnection | None = None
        self._used_at = 0.0
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="api", initializer=_enter_netns, initargs=(netns,)
        )

    def get(self, path: str) -> Json:
        """Return the object or list at ``path``."""
        return self.request("GET", path)

    def find(self, path: str) -> Json | None:
        """Return the object at ``path``; None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def items(self, path: str) -> list[Json]:
        """Return the items of the list at ``path``."""
        items: list[Json] = self.get(path)["items"]
        return items

    def create(self, path: str, body: Mapping[str, object]) -> Json:
        """Create ``body`` in the collection at ``path``."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Json:
        """Merge ``body`` into the object at ``path``."""
        return self.request("PATCH", path, body)

    def delete(self, path: str, **options: object) -> None:
        """Delete the object at ``path``; one that is already gone is no error."""
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def ready(self) -> bool:
        """Return whether the API server answers and reports that it is ready."""
        try:
            status, _ = self._thread.submit(self._exchange, "GET", "/readyz", None).result()
        except LabError:
            return False
        return status == http.client.OK

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Json:
        """Send one request and return the answer.

        Raises:
            ApiError: the server answered with an error.
            LabError: there was no answer.
        """
        status, text = self._thread.submit(self._exchange, method, path, body).result()
        if status >= http.client.BAD_REQUEST:
            raise ApiError(method, path, status, text)
        answer: Json = json.loads(text)
        return answer

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._thread.submit(self._hang_up).result()
        self._thread.shutdown()

    def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> tuple[int, str]:
        if time.monotonic() - self._used_at > _IDLE_S:
            self._hang_up()
        self._used_at = time.monotonic()
        kept = self._connection is not None
        try:
            return self._send(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            self._hang_up()
            # The server closes connections; only a repeated GET has no side effects.
            if kept and method == "GET":
                return self._exchange(method, path, body)
            raise LabError(f"{method} {path}: no answer: {error!r}") from error

    def _send(self, method: str, path: str, body: Mapping[str, object] | None) -> tuple[int, str]:
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_TIMEOUT_S, context=self._tls
            )
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = _CONTENT_TYPES[method]
        self._connection.request(
            method, path, body=None if body is None else json.dumps(body), headers=headers
        )
        response = self._connection.getresponse()
        return response.status, response.read().decode()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _enter_netns(name: str) -> None:
    """Move the calling thread, and no other, into a named network namespace.

    os.setns exists from Python 3.12 on; Debian 12 has 3.11.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
    finally:
        os.close(handle)


def _message(body: str) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.strip()
