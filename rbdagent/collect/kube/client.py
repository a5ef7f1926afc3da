"""A client of one Kubernetes API server: parallel GETs on one connection.

It uses libcurl through pycurl. libcurl multiplexes all requests over one TLS handshake (HTTP/2) in
one thread, and loads in a tenth of the time of a client written in Python (docs/adr/0001).
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec
import pycurl

from rbdagent.commands import kubectl, line_of
from rbdagent.errors import SourceError
from rbdagent.parse.times import seconds_of_http_date

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rbdagent.collect.kube.kubeconfig import Credentials
    from rbdagent.model import Command

Json = dict[str, Any]

_PAGE: Final = 500
_CONTENT: Final = {
    "POST": "application/json",
    "PATCH": "application/merge-patch+json",
    "DELETE": "application/json",
}
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_CONNECT_S: Final = 5.0
_CONNECTIONS: Final = 16
"""With HTTP/2 one connection is enough. The limit protects a proxy without HTTP/2."""
_LATE_S: Final = 30
"""A watch that is still open this long after its timeout has lost its server."""
_KEEPALIVE_S: Final = 30
_IDLE_S: Final = 0.002
_WAIT_S: Final = 0.1
_LARGEST: Final = 32 << 20
"""Limit of an answer, or of one change of a watch, in bytes; decoding may need ten times as much. A
page of 500 pods has some 10 MiB, and etcd accepts objects of 1.5 MiB (--max-request-bytes)."""
_FEWER: Final = 5
"""Divisor of the page size after a page that is too large."""
_LONGEST_MESSAGE: Final = 1000
_EQUAL_CLOCKS_S: Final = 5
_WATCH_WAIT_S: Final = 30.0
"""Any data from the server ends the wait. Shorter steps would cost an idle agent CPU time."""
_NO_CREDENTIALS: Final = frozenset({pycurl.E_SSL_CERTPROBLEM, pycurl.E_SSL_CACERT_BADFILE})
_TLS: Final = frozenset(
    {pycurl.E_SSL_CONNECT_ERROR, pycurl.E_SSL_CACERT, pycurl.E_SSL_PEER_CERTIFICATE}
)


def segment(name: str) -> str:
    """Return a name as one segment of the path of a URL, whatever characters it has.

    A name may come from an object of another writer (``leaseNamespace`` of an RBDNode), and must
    not lead to another path. ``.`` and ``..`` would be removed with the segment before them.
    """
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


class StatusError(SourceError):
    """The API server answered with an error status."""

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class TooLargeError(SourceError):
    """The answer of the API server is larger than the limit."""


class PendingRequest:
    """A request that was sent; :meth:`answer` waits for the answer."""

    def __init__(self, api: Api, handle: pycurl.Curl, method: str, path: str) -> None:
        self.handle = handle
        self.body = bytearray()
        self.failed: tuple[int, str] | None = None
        self.done = False
        self.is_too_large = False
        self.method = method
        self.path = path
        self._api = api

    def take(self, piece: bytes) -> int | None:
        """Append a piece of the answer; return 0, which ends the transfer, above the limit."""
        if len(self.body) + len(piece) > _LARGEST:
            self.is_too_large = True
            return 0
        self.body += piece
        return None

    def content(self) -> bytes | bytearray:
        """Wait for the answer, and return it as it is: a log is not JSON.

        Raises:
            SourceError: no answer arrived.
            StatusError: an error status.
            TooLargeError: it has more than `_LARGEST` bytes.
        """
        self._api.wait(self)
        what = f"{self.method} {self._api.server}{self.path}"
        if self.is_too_large:
            raise _too_large(what)
        if self.failed is not None:
            raise self._api.no_answer(self, what)
        status = int(self.handle.getinfo(pycurl.RESPONSE_CODE))
        if status >= _BAD_REQUEST:
            raise _refused(self.method, self.path, status, bytes(self.body))
        # The handle and this object refer to each other: the body would stay until a collection.
        body, self.body = self.body, bytearray()
        return body

    def answer(self) -> Json:
        """Wait for the answer.

        Raises:
            SourceError: as for :meth:`content`, or the answer is not a JSON object.
        """
        body = self.content()
        what = f"{self.method} {self._api.server}{self.path}"
        try:
            data = msgspec.json.decode(body)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{what}: the answer is not JSON",
                hint="check the address of the API server: kubectl cluster-info prints it",
            ) from error
        if not isinstance(data, dict):
            raise SourceError(f"{what}: the answer is not a JSON object")
        return data


class Listing:
    """A list request, page by page."""

    def __init__(self, api: Api, path: str, query: dict[str, str | int]) -> None:
        self._api = api
        self._path = path
        self._query = {**query, "limit": query.get("limit", _PAGE)}
        self._asked = api.ask(path, self._query)

    def items(self) -> list[Json]:
        """Wait for all pages; the list fails if one page fails.

        Raises:
            SourceError: as for one request.
        """
        return [item for page in self.pages() for item in page]

    def pages(self, *, ahead: bool = True) -> Iterator[list[Json]]:
        """Yield page by page, so that a long list need not be in memory at once.

        Args:
            ahead: request the next page while the caller reads this one. The timeout of that
                request includes the time of the caller, who must not wait for a terminal.

        Raises:
            SourceError: as for one request.
        """
        while True:
            page = self._page()
            items, metadata = page.get("items"), page.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise SourceError(f"GET {self._path}: the answer is not a list")
            more = metadata.get("continue")
            if more and ahead:
                self._ask_for(more)
            yield items
            if not more:
                return
            if not ahead:
                self._ask_for(more)

    def _ask_for(self, more: str) -> None:
        self._query["continue"] = more
        self._asked = self._api.ask(self._path, self._query)

    def _page(self) -> Json:
        """Wait for a page; if it is too large, request it again with fewer objects."""
        while True:
            try:
                return self._asked.answer()
            except TooLargeError:
                fewer = int(self._query["limit"]) // _FEWER
                if not fewer:
                    raise
            self._query["limit"] = fewer
            self._asked = self._api.ask(self._path, self._query)


class _Changes:
    """Receives a watch's answer in pieces, and reports each line, which is one change."""

    def __init__(self, asked: PendingRequest, on_change: Callable[[str, Json], None]) -> None:
        self._asked = asked
        self._on_change = on_change
        self._refused = False
        self.failed: SourceError | None = None

    def head(self, line: bytes) -> None:
        """Read a line of the answer's header; the first one has the status."""
        version, _, rest = line.partition(b" ")
        if version.startswith(b"HTTP/"):
            self._refused = not rest[:3].isdigit() or int(rest[:3]) >= _BAD_REQUEST

    def take(self, piece: bytes) -> int | None:
        """Read a piece; return 0, which ends the transfer, if a line is not a change."""
        if self._asked.take(piece) == 0:
            self.failed = _too_large(f"GET {self._asked.path}")
            return 0
        body = self._asked.body
        if self._refused:
            return None
        *lines, rest = bytes(body).split(b"\n")
        body[:] = rest
        try:
            for line in lines:
                self._read_line(line)
        except SourceError as error:
            self.failed = error
            return 0
        return None

    def _read_line(self, line: bytes) -> None:
        path = self._asked.path
        try:
            change = msgspec.json.decode(line)
            kind, changed = str(change["type"]), dict(change["object"])
            status = int(changed.get("code") or 0) if kind == "ERROR" else 0
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
            raise SourceError(
                f"GET {path}: the watch returned a line that is not a change"
            ) from None
        if kind == "ERROR":
            message = str(changed.get("message", ""))[:_LONGEST_MESSAGE]
            raise StatusError(f"GET {path}: {message}", status=status)
        self._on_change(kind, changed)


class Api:
    """A client for one user and one API server; for one thread only."""

    def __init__(self, credentials: Credentials, *, timeout_s: float) -> None:
        self.server = credentials.server
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, _CONNECTIONS)
        self._under_way: dict[pycurl.Curl, PendingRequest] = {}
        self._ahead_s = 0.0

    @property
    def ahead(self) -> timedelta:
        """How far this machine's clock is ahead of the API server's; 0 if they are about equal.

        The Date header has whole seconds, and an answer needs time.
        """
        return timedelta(seconds=0 if abs(self._ahead_s) < _EQUAL_CLOCKS_S else self._ahead_s)

    def _read_header(self, line: bytes) -> None:
        """Read a line of an answer's header."""
        name, _, value = line.partition(b":")
        if name.lower() == b"date":
            at = seconds_of_http_date(value.decode(errors="replace"))
            self._ahead_s = 0.0 if at is None else time.time() - at

    def ask(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        accept: str = "application/json",
    ) -> PendingRequest:
        """Send a GET, and return without waiting."""
        return self._send("GET", f"{path}?{urlencode(query)}" if query else path, path, accept)

    def create(self, path: str, body: Json) -> PendingRequest:
        """POST an object, or a review; the server answers a review and does not store it."""
        return self._send("POST", path, path, "application/json", body)

    def patch(self, path: str, body: Json) -> PendingRequest:
        """Merge a body into the object at a path (RFC 7386: null removes a field)."""
        return self._send("PATCH", path, path, "application/json", body)

    def delete(self, path: str) -> PendingRequest:
        """Delete the object at a path."""
        return self._send("DELETE", path, path, "application/json", {})

    def list(self, path: str, **query: str | int) -> Listing:
        """Request the first page of a list, and return without waiting."""
        return Listing(self, path, query)

    def watch(self, path: str, on_change: Callable[[str, Json], None], **query: str | int) -> None:
        """Report the changes of the list at a path until the server ends the watch.

        The callback receives the type of each change (``ADDED``, ``MODIFIED``, ``DELETED``,
        ``BOOKMARK``) and the object, in this thread. The server ends a watch after
        ``timeoutSeconds``, a required parameter of the query.

        Raises:
            SourceError: the connection failed or ended early.
            StatusError: an error status, also after changes: 410 Gone if the version is too old.
        """
        url = f"{path}?{urlencode({**query, 'watch': 'true'})}"
        handle = self._handle("GET", url, "application/json")
        asked = PendingRequest(self, handle, "GET", path)
        handle.setopt(pycurl.TIMEOUT_MS, (int(query["timeoutSeconds"]) + _LATE_S) * 1000)
        handle.setopt(pycurl.TCP_KEEPALIVE, 1)
        handle.setopt(pycurl.TCP_KEEPIDLE, _KEEPALIVE_S)
        handle.setopt(pycurl.TCP_KEEPINTVL, _KEEPALIVE_S)
        changes = _Changes(asked, on_change)
        handle.setopt(pycurl.HEADERFUNCTION, changes.head)
        handle.setopt(pycurl.WRITEFUNCTION, changes.take)
        self._begin(asked)
        self.wait(asked, step_s=_WATCH_WAIT_S)
        if changes.failed is not None:
            raise changes.failed
        if asked.failed is not None:
            raise self.no_answer(asked, f"GET {self.server}{path}")
        status = int(handle.getinfo(pycurl.RESPONSE_CODE))
        if status >= _BAD_REQUEST:
            raise _refused("GET", path, status, bytes(asked.body))

    def wait(self, asked: PendingRequest, *, step_s: float = _WAIT_S) -> None:
        """Process all transfers until one request is done.

        Args:
            asked: that request.
            step_s: longest single wait, if no data arrives and no timer expires.
        """
        while True:
            self._multi.perform()
            self._collect()
            if asked.done:
                return
            # Data that libcurl has read but not processed causes no socket event. The timer of
            # libcurl expires instead.
            due_ms = self._multi.timeout()
            most_s = step_s if due_ms < 0 else min(due_ms / 1000, step_s)
            # -1: libcurl has no socket to wait for yet, for example during name resolution.
            if most_s > 0 and self._multi.select(most_s) < 0:
                time.sleep(_IDLE_S)

    def _collect(self) -> None:
        _, succeeded, failed = self._multi.info_read()
        for handle in succeeded:
            self._end(handle, None)
        for handle, number, message in failed:
            self._end(handle, (number, message))

    def _end(self, handle: pycurl.Curl, failed: tuple[int, str] | None) -> None:
        self._multi.remove_handle(handle)
        asked = self._under_way.pop(handle)
        asked.failed = failed
        asked.done = True

    def _send(
        self, method: str, url: str, path: str, accept: str, body: Json | None = None
    ) -> PendingRequest:
        handle = self._handle(method, url, accept, body)
        asked = PendingRequest(self, handle, method, path)
        handle.setopt(pycurl.WRITEFUNCTION, asked.take)
        handle.setopt(pycurl.HEADERFUNCTION, self._read_header)
        self._begin(asked)
        return asked

    def _begin(self, asked: PendingRequest) -> None:
        self._multi.add_handle(asked.handle)
        self._under_way[asked.handle] = asked
        self._multi.perform()

    def _handle(self, method: str, url: str, accept: str, body: Json | None = None) -> pycurl.Curl:
        handle = pycurl.Curl()
        headers = [f"Accept: {accept}"]
        if self._credentials.token:
            headers.append(f"Authorization: Bearer {self._credentials.token}")
        if body is not None:
            headers.append(f"Content-Type: {_CONTENT[method]}")
            handle.setopt(pycurl.CUSTOMREQUEST, method)
            handle.setopt(pycurl.POSTFIELDS, msgspec.json.encode(body))
        handle.setopt(pycurl.HTTPHEADER, headers)
        # libcurl would remove "..", also if it is quoted, together with the segment before it.
        handle.setopt(pycurl.PATH_AS_IS, 1)
        handle.setopt(pycurl.USERAGENT, "rbdagent")
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.PIPEWAIT, 1)
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, round(min(self._timeout_s, _CONNECT_S) * 1000))
        handle.setopt(pycurl.TIMEOUT_MS, round(self._timeout_s * 1000))
        self._authenticate(handle, url)
        return handle

    def _authenticate(self, handle: pycurl.Curl, url: str) -> None:
        given = self._credentials
        handle.setopt(pycurl.URL, f"{_named(handle, given)}{url}")
        if not given.verify:
            handle.setopt(pycurl.SSL_VERIFYPEER, 0)
            handle.setopt(pycurl.SSL_VERIFYHOST, 0)
        elif given.ca_data is not None:
            handle.setopt(pycurl.CAINFO_BLOB, given.ca_data)
        else:
            handle.setopt(pycurl.CAINFO, given.ca_file or _system_cas())
        if given.cert is not None:
            handle.setopt(pycurl.SSLCERT, given.cert[0])
            handle.setopt(pycurl.SSLKEY, given.cert[1])
        elif given.cert_data is not None:
            handle.setopt(pycurl.SSLCERT_BLOB, given.cert_data[0])
            handle.setopt(pycurl.SSLKEY_BLOB, given.cert_data[1])
        if given.proxy is not None:
            handle.setopt(pycurl.PROXY, given.proxy)

    def no_answer(self, asked: PendingRequest, what: str) -> SourceError:
        """Return an error that states why no answer arrived."""
        number, message = asked.failed or (0, "")
        hint = "kubectl get --raw /readyz shows whether the API server is up"
        system = int(asked.handle.getinfo(pycurl.OS_ERRNO))
        if number in _NO_CREDENTIALS:
            return SourceError(
                f"certificates for {self.server} cannot be used: {message}",
                hint="correct certificate-authority, client-certificate and client-key in the "
                "kubeconfig",
            )
        if number == pycurl.E_OPERATION_TIMEDOUT:
            why = f"no answer within {self._timeout_s:g} s"
        elif number in _TLS:
            why = f"TLS failed: {message}"
        elif number == pycurl.E_COULDNT_CONNECT and system:
            why = os.strerror(system)
        else:
            why = message
        return SourceError(f"{what}: {why}", hint=hint)


def _named(handle: pycurl.Curl, given: Credentials) -> str:
    """Return the server's URL, with the kubeconfig's tls-server-name if it has one."""
    if given.server_name is None:
        return given.server
    scheme, _, rest = given.server.partition("://")
    address, slash, prefix = rest.partition("/")
    host, _, port = address.rpartition(":") if address[-1:].isdigit() else (address, "", "443")
    handle.setopt(pycurl.CONNECT_TO, [f"{given.server_name}:{port}:{host}:{port}"])
    return f"{scheme}://{given.server_name}:{port}{slash}{prefix}"


def _system_cas() -> str:
    """Return the path of the distribution's CA certificates, for a kubeconfig without any."""
    import ssl

    paths = ssl.get_default_verify_paths()
    return paths.cafile or "/etc/ssl/certs/ca-certificates.crt"


def _too_large(what: str) -> TooLargeError:
    return TooLargeError(f"{what}: the answer is larger than {_LARGEST >> 20} MiB")


def _refused(method: str, path: str, status: int, raw: bytes) -> StatusError:
    try:
        message = str(msgspec.json.decode(raw)["message"])[:_LONGEST_MESSAGE]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = raw.decode(errors="replace")[:200]
    hint = ""
    if status == _UNAUTHORIZED:
        message = "the API server does not accept the credentials (401 Unauthorized)"
        hint = "the token or certificate is wrong or expired: log in again, or renew the kubeconfig"
    elif status == _FORBIDDEN:
        hint = (
            f"grant the permission (docs/privileges.md); {line_of(_can_i(path))} shows whether it "
            "is granted"
        )
    return StatusError(f"{method} {path}: {message}", status=status, hint=hint)


def _can_i(path: str) -> Command:
    parts = [part for part in path.split("/") if part]
    known = [
        part
        for part in parts
        if part in {"pods", "nodes", "events", "csinodes", "persistentvolumes"}
        or part in {"persistentvolumeclaims", "volumeattachments"}
    ]
    resource = known[-1] if known else parts[-1]
    return kubectl("auth can-i", "list" if parts[-1] == resource else "get", resource)
