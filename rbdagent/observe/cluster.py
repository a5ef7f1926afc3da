"""One connection to one Ceph cluster, and what its monitors tell. Read-only, always.

librados waits for ever by default, so every call has a time limit.
"""

from __future__ import annotations

import errno
import functools
import math
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from rbdagent.errors import ParseError, SourceError
from rbdagent.model import BlocklistEntry, ImageIdentity, NotObserved, ServiceAddress
from rbdagent.parse.address import parse_address, parse_blocklist_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.observe.watches import Watches

_T = TypeVar("_T")

CAPS: Final = "mon 'profile rbd-read-only' osd 'profile rbd-read-only'"
"""Enough to list watchers and the blocklist; mon ``profile rbd`` could blocklist others."""


class CephAccess(Struct, frozen=True, kw_only=True):
    """How to reach one cluster."""

    name: str
    conf: Path
    client_id: str
    """``rbdagent`` of ``client.rbdagent``."""
    keyring: Path | None
    """None: librados looks where it always does."""
    timeout_s: float


def bindings() -> tuple[Any, Any]:
    """Give the modules rados and rbd.

    Raises:
        SourceError: they are not installed; it names the packages.
    """
    try:
        import rados
        import rbd
    except ImportError as error:
        raise SourceError(
            f"Ceph's Python bindings are missing ({error.name or error})",
            cure="apt install python3-rados python3-rbd (dnf has the same names), and make the "
            "virtual environment with --system-site-packages",
        ) from error
    return rados, rbd


def _settings(access: CephAccess) -> dict[str, str]:
    """Give the options of a connection, which stand above Ceph's configuration file."""
    # Whole seconds: librados 16.2 refuses fractions.
    limit = str(math.ceil(access.timeout_s))
    given = {
        "admin_socket": "",
        "log_file": "",
        "log_to_stderr": "false",
        "err_to_stderr": "false",
        "client_mount_timeout": limit,
        "rados_mon_op_timeout": limit,
        "rados_osd_op_timeout": limit,
        # One look asks little: more messenger threads cost more to start than they save.
        "ms_async_op_threads": "1",
        # MonClient::tick runs at the shorter of this (1 s) and the ping interval (10 s), to send
        # what a client has for the cluster's log. rbdagent has nothing for it.
        "mon_client_log_interval": "60",
    }
    return given if access.keyring is None else given | {"keyring": str(access.keyring)}


class Cluster:
    """One connection."""

    def __init__(self, access: CephAccess) -> None:
        self.access = access
        self._contexts: dict[tuple[int | None, str, str], Any] = {}
        self._rados, self._rbd = bindings()
        self._check_files()
        try:
            self._handle = self._rados.Rados(
                conffile=str(access.conf), rados_id=access.client_id, conf=_settings(access)
            )
            self._handle.connect()
        except self._rados.Error as error:
            raise self._not_connected(error) from error
        self.fsid: str = self._handle.get_fsid()

    def _check_files(self) -> None:
        """Librados says "No such file" without a name: look first."""
        for path, flag in (
            (self.access.conf, "--ceph-conf"),
            (self.access.keyring, "--ceph-keyring"),
        ):
            if path is None:
                continue
            try:
                with path.open("rb"):
                    pass
            except OSError as error:
                raise SourceError(
                    f"{self.access.name}: cannot read {path}: {error.strerror}",
                    cure=f"pass {flag}, or use --no-ceph to look away on purpose",
                ) from error

    def _not_connected(self, error: Exception) -> SourceError:
        who = f"{self.access.name}: client.{self.access.client_id}"
        if abs(getattr(error, "errno", None) or 0) in {errno.EPERM, errno.EACCES}:
            return SourceError(
                f"{who} was refused: its key is wrong, or there is no such user",
                cure=f"ceph auth get-or-create client.{self.access.client_id} {CAPS}",
            )
        if isinstance(error, self._rados.ObjectNotFound):
            return SourceError(
                f"{who} has no keyring that librados could find",
                cure="pass --ceph-keyring, or write the key to "
                f"/etc/ceph/ceph.client.{self.access.client_id}.keyring",
            )
        if isinstance(error, self._rados.TimedOut):
            return SourceError(
                f"{who}: no monitor answered within {self.access.timeout_s:g} s",
                cure=reach_cure(self.access),
            )
        return SourceError(f"{who}: cannot connect: {error}", cure=reach_cure(self.access))

    @functools.cached_property
    def watches(self) -> Watches | None:
        """What lists the watches of single objects; None where that cannot be had."""
        # Needed where many images are asked alone: an answer about one need not load ctypes.
        from rbdagent.observe.watches import Watches

        try:
            return Watches(self.access.conf, self.access.client_id, _settings(self.access))
        except (OSError, NotImplementedError):
            return None

    def forget_pools(self) -> None:
        """Open each pool anew when it is asked for next."""
        self._contexts = {}

    def monitor(self, prefix: str) -> Any:  # noqa: ANN401 - whatever the command answers
        """Ask the monitors; the answer is JSON, of some commands several values in a row.

        Raises:
            SourceError: refused, or no answer in time.
        """
        command = msgspec.json.encode({"prefix": prefix, "format": "json"}).decode()
        code, output, status = self._handle.mon_command(command, b"", timeout=self.access.timeout_s)
        if code != 0:
            raise SourceError(
                f"{self.access.name}: {prefix!r} failed: {status or _errno_text(code)}",
                cure=f"ceph auth caps client.{self.access.client_id} {CAPS}",
            )
        try:
            return msgspec.json.decode(output)
        except msgspec.DecodeError:
            import json

            return json.JSONDecoder().raw_decode(output.decode())[0]

    def monitor_or_gap(
        self, prefix: str, read: Callable[[Any], _T], *, cure: str | None = None
    ) -> _T | NotObserved:
        """Ask the monitors; a refusal is not observed."""
        try:
            return read(self.monitor(prefix))
        except (SourceError, ParseError) as error:
            return NotObserved(reason=str(error), cure=error.hint if cure is None else cure)

    def pool(self, image: ImageIdentity) -> Any | None:  # noqa: ANN401 - rados.Ioctx
        """Open the image's pool and namespace; None where this cluster has no such pool.

        Many images share one context: librados lets several threads read by it.
        """
        key = (image.pool_id, image.spec.pool, image.spec.namespace)
        if key not in self._contexts:
            self._contexts[key] = self._open_pool(image)
        return self._contexts[key]

    def _open_pool(self, image: ImageIdentity) -> Any | None:  # noqa: ANN401 - rados.Ioctx
        try:
            if image.pool_id is not None:
                context = self._handle.open_ioctx2(image.pool_id)
                if image.spec.pool and context.get_pool_name() != image.spec.pool:
                    return None
            else:
                context = self._handle.open_ioctx(image.spec.pool)
        except self._rados.ObjectNotFound:
            return None
        context.set_namespace(image.spec.namespace)
        return context

    def dump_watchers(self) -> tuple[dict[str, Any], ...] | NotObserved:
        """Ask every OSD for all its watches in one call each; needs osd caps ``allow *``."""
        try:
            osds = cast("list[int]", self.monitor("osd ls"))
        except SourceError as error:
            return NotObserved(reason=str(error), cure=error.cure)
        command = msgspec.json.encode({"prefix": "dump_watchers", "format": "json"}).decode()
        found: list[dict[str, Any]] = []
        for osd in osds:
            code, output, status = self._handle.osd_command(
                osd, command, b"", timeout=self.access.timeout_s
            )
            if code != 0:
                return NotObserved(
                    reason=f"dump_watchers of osd.{osd}: {status or _errno_text(code)}",
                    cure="osd caps 'allow *' would allow it; single images are asked instead",
                )
            found += msgspec.json.decode(output)
        return tuple(found)

    @property
    def rados(self) -> Any:  # noqa: ANN401 - the module
        """The module ``rados``."""
        return self._rados

    @property
    def rbd(self) -> Any:  # noqa: ANN401 - the module
        """The module ``rbd``."""
        return self._rbd


def _errno_text(code: int) -> str:
    return os.strerror(abs(code))


def reach_cure(access: CephAccess) -> str:
    """Give the command that shows whether a cluster can be reached."""
    return (
        f"ceph -c {access.conf} -n client.{access.client_id} --connect-timeout 5 fsid "
        "shows whether the monitors can be reached"
    )


def read_blocklist(answer: object) -> tuple[BlocklistEntry, ...]:
    """Read ``osd blocklist ls``."""
    return tuple(
        parse_blocklist_entry(each["addr"], until=each.get("until", ""), where="osd blocklist ls")
        for each in cast("list[dict[str, str]]", answer)
    )


def read_pools(answer: object) -> tuple[tuple[int, str], ...]:
    """Read ``osd lspools``: number and name."""
    pools = cast("list[dict[str, Any]]", answer)
    return tuple((int(each["poolnum"]), str(each["poolname"])) for each in pools)


def read_managers(answer: object) -> tuple[ServiceAddress, ...]:
    """Read the active mgr's clients: its rbd_support module watches images under way."""
    data = cast("dict[str, Any]", answer)
    name = str(data.get("active_name", ""))
    found = []
    for client in data.get("active_clients") or ():
        for each in client.get("addrvec") or ():
            address = parse_address(f"{each['addr']}/{each['nonce']}", where="mgr dump")
            found.append(ServiceAddress(kind="mgr", name=name, address=address))
    return tuple(found)
