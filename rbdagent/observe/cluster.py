"""One connection to one Ceph cluster, and what its monitors tell. Read-only, always.

librados waits for ever by default, so every call has a time limit.
"""

from __future__ import annotations

import errno
import functools
import math
import os
import re
import shlex
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rbdagent.commands import command, line_of
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    BlocklistEntry,
    ImageIdentity,
    NotObserved,
    ServiceAddress,
    observed_of,
)
from rbdagent.observe.cephx import can_use, client_key_type, librados_version
from rbdagent.observe.failure import not_observed
from rbdagent.parse.address import (
    parse_address,
    parse_address_vector,
    parse_blocklist_entry,
    parse_blocklist_range,
)
from rbdagent.parse.excerpt import shortened
from rbdagent.parse.keyring import AES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rbdagent.observe.watches import Watches

_T = TypeVar("_T")

CAPS: Final = "mon 'profile rbd-read-only' osd 'profile rbd-read-only'"
"""Enough to list watchers and the blocklist; mon ``profile rbd`` could blocklist others."""


OLDEST: Final = (16, 2)
"""The oldest Ceph that is supported; ``osd blocklist`` exists since 16."""

_VERSION: Final = "version"
_RELEASE: Final = re.compile(r"ceph version (?P<release>(?P<major>\d+)\.(?P<minor>\d+)\S*)")


class CephAccess(Struct, frozen=True, kw_only=True):
    """How to reach one cluster."""

    name: str
    conf: Path
    client_id: str
    """``rbdagent`` of ``client.rbdagent``."""
    keyring: Path | None
    """None: librados looks where it always does."""
    timeout_s: float

    @property
    def limit_s(self) -> int:
        """The limit of a call in whole seconds.

        Bindings that Cython 3 built (Ceph 18.2 and 20.2 of current distributions) refuse a float
        where rados.pyx has ``timeout: int``, and librados 16.2 refuses fractions in its options.
        """
        return math.ceil(self.timeout_s)


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
    limit = str(access.limit_s)
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
        self._handle: Any = None
        try:
            self._handle = self._rados.Rados(
                conffile=str(access.conf), rados_id=access.client_id, conf=_settings(access)
            )
            self._handle.connect()
            self.fsid: str = self._handle.get_fsid()
        except self._rados.Error as error:
            raise self._not_connected(error) from error

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
        by_key = self._refused_by_key(who, abs(getattr(error, "errno", None) or 0))
        if by_key is not None:
            return by_key
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
        if is_shutdown(error):
            return self.refused(who, None)
        return SourceError(f"{who}: cannot connect: {error}", cure=reach_cure(self.access))

    def _refused_by_key(self, who: str, number: int) -> SourceError | None:
        """Return what an error number says of this client's key; None where it is not the key."""
        if number not in {errno.EPERM, errno.EACCES, errno.EIO, errno.EINVAL}:
            return None
        kind = self._key_type()
        if number in {errno.EPERM, errno.EACCES} and kind == AES:
            return SourceError(
                f"{who} was refused: its key is wrong, there is no such user, or the cluster does "
                f"not allow keys of type {AES}",
                cure=f"{self._grant('ceph auth get-or-create')}; ceph mon dump shows the key types "
                "that the cluster allows (auth_allowed_ciphers)",
            )
        if number in {errno.EPERM, errno.EACCES}:
            return SourceError(
                f"{who} was refused: its key is wrong, or there is no such user",
                cure=self._grant("ceph auth get-or-create"),
            )
        version = librados_version()
        if kind is None or can_use(kind, version):
            return None
        return SourceError(
            f"{who}: its key is of type {kind}, which this librados "
            f"({version or 'of unknown version'}) cannot use",
            cure=f"{self._grant('ceph auth get-or-create', AES)} creates a user that it can "
            "connect as, where the cluster allows that; or use librados 19.2.6, 20.2.4 or later "
            "(docs/install.md, Key types)",
        )

    def _grant(self, begin: str, key_type: str = "") -> str:
        """Return the command that gives this user its caps, or one of its name and another key."""
        user = f"client.{self.access.client_id}" + (f"-{key_type}" if key_type else "")
        options = (f"--key-type={key_type}",) if key_type else ()
        return line_of(command(begin, user, *shlex.split(CAPS), options=options))

    def _key_type(self) -> str | None:
        if self._handle is None:
            return None
        entity = f"client.{self.access.client_id}"
        return client_key_type(lambda name: str(self._handle.conf_get(name) or ""), entity)

    def blocked(self, subject: str) -> SourceError:
        """Return that OSDs refuse this connection's own client, and which entry blocks it.

        An OSD answers a blocklisted client with EBLOCKLISTED, which is ESHUTDOWN
        (src/include/rados.h). Monitors answer it all the same: the blocklist can still be read.
        """
        entries = self.monitor_or_gap("osd blocklist ls", read_blocklist)
        return self.refused(subject, self.entry_of_own(observed_of(entries)))

    def refused(self, subject: str, entry: BlocklistEntry | None) -> SourceError:
        """Return the same of a known entry; None where the entry could not be found."""
        if entry is None:
            return SourceError(
                f"{subject}: Ceph refuses this node's client (errno 108): it is on the blocklist, "
                "or was until now",
                cure="run rbdagent on another node; ceph osd blocklist ls shows whether an entry "
                "hits this node, and until when",
            )
        from rbdagent.correlate.blocklist import entry_text

        return SourceError(
            f"{subject}: Ceph refuses this node's client (errno 108): on the blocklist is "
            f"{entry_text(entry)}",
            cure="run it again: a new client has another nonce, and the entry is of this one alone"
            if entry.nonce
            else "run rbdagent on another node: the entry (ceph osd blocklist ls) blocks every "
            "client of this one. Do not remove it while this node has an image mapped",
        )

    def entry_of_own(self, entries: tuple[BlocklistEntry, ...]) -> BlocklistEntry | None:
        """Return the entry that blocks this connection's own client; None where none does."""
        from rbdagent.correlate.holders import entry_hits

        own = parse_address_vector(self._handle.get_addrs(), where="own address")
        return next((entry for entry in entries if entry_hits(entry, own)), None)

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

    def monitor(self, prefix: str) -> tuple[Any, ...]:
        """Ask the monitors; return the JSON values of the answer, of most commands a single one.

        Raises:
            SourceError: refused, or no answer in time.
            ParseError: the answer is not JSON alone.
        """
        command = msgspec.json.encode({"prefix": prefix, "format": "json"}).decode()
        try:
            code, output, status = self._handle.mon_command(
                command, b"", timeout=self.access.limit_s
            )
        except self._rados.Error as error:
            raise SourceError(
                f"{self.access.name}: {prefix!r} failed: {error}", cure=reach_cure(self.access)
            ) from error
        if code == -errno.ETIMEDOUT:
            raise SourceError(
                f"{self.access.name}: no answer to {prefix!r} within {self.access.timeout_s:g} s",
                cure=reach_cure(self.access),
            )
        if code == -errno.EINVAL and prefix != _VERSION:
            self._check_version()
        if code != 0:
            raise SourceError(
                f"{self.access.name}: {prefix!r} failed: {status or _errno_text(code)}",
                cure=self._grant("ceph auth caps"),
            )
        return _json_values(output, prefix)

    def _check_version(self) -> None:
        """Raise a SourceError where the monitors are too old to know what they are asked.

        Ceph 16 renamed the blocklist's commands; older monitors answer EINVAL.
        """
        answer = self.monitor_or_gap(_VERSION, lambda values: str(_only(values, _VERSION)))
        found = _RELEASE.search(answer) if isinstance(answer, str) else None
        if found is not None and (int(found["major"]), int(found["minor"])) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise SourceError(
                f"{self.access.name} runs Ceph {found['release']}: rbdagent supports Ceph {oldest} "
                "and later",
                cure="upgrade the cluster, or use --no-ceph for what the other sources show",
            )

    def monitor_or_gap(
        self, prefix: str, read: Callable[[tuple[Any, ...]], _T], *, cure: str | None = None
    ) -> _T | NotObserved:
        """Ask the monitors; a refusal is not observed."""
        try:
            return read(self.monitor(prefix))
        except Exception as error:  # noqa: BLE001 - one answer never hides the others
            missing = not_observed(error, f"{self.access.name}: {prefix!r}")
            is_refused = isinstance(error, SourceError)
            return replace(missing, cure=cure) if cure and is_refused else missing

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
        osds = self.monitor_or_gap("osd ls", lambda values: _only(values, "osd ls"))
        if isinstance(osds, NotObserved):
            return osds
        command = msgspec.json.encode({"prefix": "dump_watchers", "format": "json"}).decode()
        found: list[dict[str, Any]] = []
        for osd in osds:
            code, output, status = self._handle.osd_command(
                osd, command, b"", timeout=self.access.limit_s
            )
            if code != 0:
                return NotObserved(
                    reason=f"dump_watchers of osd.{osd}: {status or _errno_text(code)}",
                    cure="osd caps 'allow *' would allow it; single images are asked instead",
                )
            found += _only(_json_values(output, "dump_watchers"), "dump_watchers")
        return tuple(found)

    @property
    def rados(self) -> Any:  # noqa: ANN401 - the module
        """The module ``rados``."""
        return self._rados

    @property
    def rbd(self) -> Any:  # noqa: ANN401 - the module
        """The module ``rbd``."""
        return self._rbd


def is_shutdown(error: Exception) -> bool:
    """Return whether an operation failed because its client is blocklisted (EBLOCKLISTED)."""
    return bool(abs(getattr(error, "errno", None) or 0) == errno.ESHUTDOWN)


def _errno_text(code: int) -> str:
    return os.strerror(abs(code))


def reach_cure(access: CephAccess) -> str:
    """Return the command that shows whether a cluster can be reached."""
    user = ("-n", f"client.{access.client_id}", "--connect-timeout", "5")
    asked = command("ceph fsid", options=("-c", str(access.conf), *user))
    return f"{line_of(asked)} shows whether the monitors can be reached"


class _Blocked(Struct, frozen=True):
    """An entry of either list: a client has ``addr``, a range has ``range``."""

    addr: str = ""
    range: str = ""
    until: str = ""


def read_blocklist(values: tuple[object, ...]) -> tuple[BlocklistEntry, ...]:
    """Read ``osd blocklist ls``: a list of clients and, since ranges exist, a list of ranges.

    The monitor prints the two arrays one behind the other, without an object around them
    (OSDMonitor::preprocess_command, src/mon/OSDMonitor.cc; the same in Ceph 16.2, 18.2 and 20.2).

    Raises:
        ParseError: an entry was not understood. It may be the one that blocks the client.
    """
    where = "osd blocklist ls"
    try:
        lists = msgspec.convert(values, tuple[list[_Blocked], ...])
    except msgspec.ValidationError as error:
        raise _unexpected(values, where, "lists of entries") from error
    if not lists:
        raise _unexpected(values, where, "lists of entries")
    return tuple(_blocked(entry, where) for entries in lists for entry in entries)


def _blocked(entry: _Blocked, where: str) -> BlocklistEntry:
    if entry.range:
        return parse_blocklist_range(entry.range, until=entry.until, where=where)
    return parse_blocklist_entry(entry.addr, until=entry.until, where=where)


def _json_values(output: bytes, where: str) -> tuple[Any, ...]:
    """Return all JSON values of an answer; raise a ParseError where something else is in it."""
    try:
        # The usual answer, and the only fast way for the megabytes of `mgr dump`.
        return (msgspec.json.decode(output),)
    except msgspec.DecodeError:
        pass
    import json

    decoder, values = json.JSONDecoder(), []
    try:
        rest = output.decode().strip()
        while rest:
            value, end = decoder.raw_decode(rest)
            values.append(value)
            rest = rest[end:].lstrip()
    except ValueError as error:
        raise _unexpected(output, where, "JSON") from error
    return tuple(values)


def _only(values: tuple[Any, ...], where: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of an answer that has one alone."""
    if len(values) != 1:
        raise _unexpected(values, where, "one JSON value")
    return values[0]


def _unexpected(answer: object, where: str, expected: str) -> ParseError:
    return ParseError(
        what="the answer", where=where, text=shortened(str(answer)), expected=expected
    )


def read_pools(values: tuple[object, ...]) -> tuple[tuple[int, str], ...]:
    """Read ``osd lspools``: number and name."""
    pools = cast("list[dict[str, Any]]", _only(values, "osd lspools"))
    return tuple((int(each["poolnum"]), str(each["poolname"])) for each in pools)


def read_managers(values: tuple[object, ...]) -> tuple[ServiceAddress, ...]:
    """Read the active mgr's clients: its rbd_support module watches images under way."""
    data = cast("dict[str, Any]", _only(values, "mgr dump"))
    name = str(data.get("active_name", ""))
    found = []
    for client in data.get("active_clients") or ():
        for each in client.get("addrvec") or ():
            address = parse_address(f"{each['addr']}/{each['nonce']}", where="mgr dump")
            found.append(ServiceAddress(kind="mgr", name=name, address=address))
    return tuple(found)


def read_monitors(values: tuple[object, ...]) -> tuple[ServiceAddress, ...]:
    """Read ``mon dump``: each monitor, an entry for each version of the messenger it speaks."""
    data = cast("dict[str, Any]", _only(values, "mon dump"))
    return tuple(
        ServiceAddress(
            kind="mon",
            name=str(monitor["name"]),
            address=parse_address(f"{address['addr']}/{address['nonce']}", where="mon dump"),
        )
        for monitor in data["mons"]
        for address in monitor["public_addrs"]["addrvec"]
    )
