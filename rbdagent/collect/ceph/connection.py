"""One connection to one Ceph cluster, and the answers of its monitors. Always read-only.

librados waits indefinitely by default, so every call has a time limit.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from rbdagent.collect.failure import not_observed
from rbdagent.collect.parallel import once_for_all_threads
from rbdagent.commands import command, line_of
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    BlocklistEntry,
    HealthCheck,
    ImageIdentity,
    NotObserved,
    Placement,
    ServiceAddress,
    observed_of,
)
from rbdagent.parse.address import (
    parse_address,
    parse_address_vector,
    parse_blocklist_entry,
    parse_blocklist_range,
)
from rbdagent.parse.excerpt import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.ceph.list_watchers import Watches
    from rbdagent.parse.faults import Call, Fault

_T = TypeVar("_T")

CAPS: Final = "mon 'profile rbd-read-only, allow command \"mgr dump\"' osd 'profile rbd-read-only'"
"""The caps for watchers, the blocklist and the mgr's clients. mon ``profile rbd`` could also add
entries to the blocklist.

No profile of RBD allows ``mgr dump`` (measured with Ceph 16.2 and 20.2; expand_profile_mon() in
src/mon/MonCap.cc).
"""


OLDEST: Final = (16, 2)
"""The oldest supported Ceph release; ``osd blocklist`` exists since 16 (ceph#36527)."""

_IMPORTS: Final = threading.Lock()
"""Held during an import that may fail: a thread that waits for the failing import of another thread
gets the incomplete module instead of an ImportError (CPython 3.11, Python/import.c,
import_ensure_initialized)."""
_VERSION: Final = "version"
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as PEP 383 decodes it."""
_RELEASE: Final = re.compile(r"ceph version (?P<release>(?P<major>\d+)\.(?P<minor>\d+)\S*)")


def rados_module() -> Any:  # noqa: ANN401 - the module
    """Return the module rados; check that rbd is installed, and do not load it.

    librbd takes 5.7 MiB (Pss, librbd 16.2), and the watchers of many images are read without it.

    Raises:
        SourceError: one of the two is not installed; the hint names the packages.
    """
    if not (sys.modules.get("rbd") or importlib.util.find_spec("rbd")):
        raise _missing("rbd")
    try:
        with _IMPORTS:
            import rados
    except ImportError as error:
        raise _missing(error.name or str(error)) from error
    return rados


def rbd_module() -> Any:  # noqa: ANN401 - the module
    """Return the module rbd.

    Raises:
        SourceError: as `rados_module`.
    """
    try:
        with _IMPORTS:
            import rbd
    except ImportError as error:
        raise _missing(error.name or str(error)) from error
    return rbd


_DISTRIBUTIONS: Final = "/usr/bin/python3"


def _missing(what: str) -> SourceError:
    return SourceError(
        f"Ceph's Python bindings are missing ({what})",
        hint="apt install python3-rados python3-rbd (dnf has the same names), and create the "
        f"virtual environment with {_DISTRIBUTIONS} -m venv --system-site-packages: they are for "
        f"the distribution's Python. This is {sys.executable}",
    )


def _settings(access: CephAccess) -> dict[str, str]:
    """Return the options of a connection, which override Ceph's configuration file."""
    limit = str(access.limit_s)
    options = {
        "admin_socket": "",
        "log_file": "",
        "log_to_stderr": "false",
        "err_to_stderr": "false",
        "client_mount_timeout": limit,
        "rados_mon_op_timeout": limit,
        "rados_osd_op_timeout": limit,
        # A snapshot needs few requests: starting more messenger threads costs more than they save.
        "ms_async_op_threads": "1",
        # MonClient::tick runs at the shorter of this interval (1 s) and the ping interval (10 s),
        # to send a client's entries for the cluster's log. rbdagent has no such entries.
        "mon_client_log_interval": "60",
    }
    if access.monitors:
        options["mon_host"] = ",".join(access.monitors)
    # librados uses the key of a keyfile also if it finds a keyring (KeyRing::from_ceph_context,
    # ceph src/auth/KeyRing.cc).
    keys = {"keyring": access.keyring, "keyfile": access.keyfile}
    return options | {name: str(path) for name, path in keys.items() if path is not None}


def caps_cure(user: str) -> str:
    """Return a hint with the command for a user's caps at its end, where it can be copied."""
    grant = line_of(command("ceph auth caps", user, *shlex.split(CAPS)))
    shown = line_of(command("ceph auth get", user))
    return f"the next command replaces all caps of the user, which {shown} shows: {grant}"


class Cluster:
    """A connection to a cluster."""

    def __init__(self, access: CephAccess) -> None:
        self.access = access
        self._contexts: dict[tuple[int | None, str, str], Any] = {}
        self._watches_once = once_for_all_threads(self._new_watches)
        missing = access.monitors_missing
        if missing is not None and not access.monitors:
            raise SourceError(f"{access.name}: {missing.reason}", hint=missing.hint)
        self._rados = rados_module()
        self._check_files()
        self._handle: Any = None
        try:
            self._handle = self._rados.Rados(
                conffile=str(access.conf), rados_id=access.client_id, conf=_settings(access)
            )
            self._handle.connect()
            self.fsid: str = self._handle.get_fsid()
        except self._rados.Error as error:
            error_of = self._not_parsed if self._handle is None else self._not_connected
            raise error_of(error) from error

    def _check_files(self) -> None:
        """Check that the files can be read: librados reports "No such file" without the name."""
        for path, flag in (
            (self.access.conf, "--ceph-conf"),
            (self.access.keyring, "--ceph-keyring"),
            (self.access.keyfile, "--ceph-keyring"),
        ):
            if path is None:
                continue
            try:
                with path.open("rb"):
                    pass
            except OSError as error:
                raise SourceError(
                    f"{self.access.name}: cannot read {path}: {error.strerror}",
                    hint=f"pass {flag}, or use --no-ceph to skip Ceph",
                ) from error

    def _not_parsed(self, error: Exception) -> SourceError:
        return SourceError(
            f"{self.access.name}: librados cannot use {self.access.conf} ({error})",
            hint="a Ceph configuration file has lines such as `mon_host = …`, below a section "
            "such as `[global]`; --ceph-conf names another file",
        )

    def _not_connected(self, error: Exception) -> SourceError:
        # The table of error numbers is loaded only after a failure.
        from rbdagent.parse.faults import Call, Fault

        client = f"{self.access.name}: client.{self.access.client_id}"
        match fault_in(Call.CONNECT, error):
            case Fault.DENIED:
                return self._denied(client)
            case Fault.UNUSABLE:
                return self._unusable(client, error)
            case Fault.NO_CONFIGURATION:
                return SourceError(
                    f"{client}: librados finds no keyring, or {self.access.conf} names no monitors",
                    hint="pass --ceph-keyring, or write the key to "
                    f"/etc/ceph/ceph.client.{self.access.client_id}.keyring; mon_host of "
                    f"{self.access.conf} names the monitors",
                )
            case Fault.TIMED_OUT:
                return SourceError(
                    f"{client}: no monitor answered within {self.access.timeout_s:g} s",
                    hint=reach_cure(self.access),
                    timed_out=True,
                )
            case Fault.BLOCKLISTED:
                return self.refused(client, None)
            case _:
                return SourceError(
                    f"{client}: cannot connect: {error}", hint=reach_cure(self.access)
                )

    def _denied(self, client: str) -> SourceError:
        # Key types are read only after a failure.
        from rbdagent.parse.keyring import AES

        if self._key_type() == AES:
            return SourceError(
                f"{client} was refused: its key is wrong, there is no such user, or the cluster "
                f"does not allow keys of type {AES}",
                hint=f"{self._grant('ceph auth get-or-create')}; ceph mon dump shows the key types "
                "that the cluster allows (auth_allowed_ciphers)",
            )
        return SourceError(
            f"{client} was refused: its key is wrong, or there is no such user",
            hint=self._grant("ceph auth get-or-create"),
        )

    def _unusable(self, client: str, error: Exception) -> SourceError:
        """Return the error that librados cannot use the type of the key, or reports no cause."""
        from rbdagent.collect.ceph.keys import can_use, librados_version
        from rbdagent.parse.faults import Fault
        from rbdagent.parse.keyring import AES

        kind, version = self._key_type(), librados_version()
        if kind is None or can_use(kind, version):
            return SourceError(
                f"{client}: cannot connect: {Fault.UNUSABLE} ({error})",
                hint=reach_cure(self.access),
            )
        return SourceError(
            f"{client}: its key is of type {kind}, which this librados "
            f"({version or 'of unknown version'}) cannot use",
            hint=f"{self._grant('ceph auth get-or-create', AES)} creates a user with a key that "
            "this librados can use, where the cluster allows that; or use librados 19.2.6, 20.2.4 "
            "or later (docs/install.md, Key types)",
        )

    def _grant(self, begin: str, key_type: str = "") -> str:
        """Return the command that grants the caps to this user, or to one with another key type."""
        user = f"client.{self.access.client_id}" + (f"-{key_type}" if key_type else "")
        options = (f"--key-type={key_type}",) if key_type else ()
        return line_of(command(begin, user, *shlex.split(CAPS), options=options))

    def _key_type(self) -> str | None:
        if self._handle is None:
            return None
        from rbdagent.collect.ceph.keys import client_key_type

        entity = f"client.{self.access.client_id}"
        return client_key_type(lambda name: str(self._handle.conf_get(name) or ""), entity)

    def blocked(self, subject: str) -> SourceError:
        """Return the error that OSDs refuse this connection's client, with the blocklist entry.

        An OSD answers a blocklisted client with EBLOCKLISTED, which is ESHUTDOWN
        (src/include/rados.h). Monitors still answer such a client: the blocklist can be read.
        """
        entries = self.monitor_or_gap("osd blocklist ls", read_blocklist)
        return self.refused(subject, self.entry_of_own(observed_of(entries)))

    def refused(self, subject: str, entry: BlocklistEntry | None) -> SourceError:
        """Return the same error for an entry, or for None if the entry was not found."""
        if entry is None:
            return SourceError(
                f"{subject}: Ceph refuses this node's client (errno 108): it is on the blocklist, "
                "or was until now",
                hint="run rbdagent on another node; ceph osd blocklist ls shows whether an entry "
                "matches this node, and until when",
            )
        from rbdagent.correlate.blocklist import entry_text

        return SourceError(
            f"{subject}: Ceph refuses this node's client (errno 108): on the blocklist is "
            f"{entry_text(entry)}",
            hint="run it again: a new client has another nonce, and the entry blocks this one only"
            if entry.nonce
            else "run rbdagent on another node: the entry (ceph osd blocklist ls) blocks every "
            "client on this node. Do not remove it while this node has an image mapped",
        )

    def entry_of_own(self, entries: tuple[BlocklistEntry, ...]) -> BlocklistEntry | None:
        """Return the entry that blocks this connection's own client; None if none does."""
        from rbdagent.correlate.holders import entry_hits

        own = parse_address_vector(self._handle.get_addrs(), where="own address")
        return next((entry for entry in entries if entry_hits(entry, own)), None)

    @property
    def watches(self) -> Watches | None:
        """Lists the watches of single objects; None if librados does not support it."""
        return self._watches_once()

    def _new_watches(self) -> Watches | None:
        # Needed for many images only: a query for one image need not load ctypes.
        from rbdagent.collect.ceph.list_watchers import Watches

        try:
            return Watches(self.access.conf, self.access.client_id, _settings(self.access))
        except (OSError, NotImplementedError):
            return None

    def forget_pools(self) -> None:
        """Drop the open pools: the next request opens them again."""
        self._contexts = {}

    def monitor(self, prefix: str, **arguments: str) -> tuple[Any, ...]:
        """Query the monitors; return the JSON values of the answer, usually a single one.

        Raises:
            SourceError: refused, or no answer in time.
            ParseError: the answer is not JSON only.
        """
        command = msgspec.json.encode({"prefix": prefix, "format": "json"} | arguments).decode()
        try:
            code, output, status = self._handle.mon_command(
                command, b"", timeout=self.access.limit_s
            )
        except self._rados.Error as error:
            raise SourceError(
                f"{self.access.name}: {prefix!r} failed: {error}", hint=reach_cure(self.access)
            ) from error
        if code != 0:
            raise self._monitor_error(prefix, code, status)
        return _json_values(output, prefix)

    def _monitor_error(self, prefix: str, code: int, status: str) -> SourceError:
        from rbdagent.parse.faults import Call, Fault, fault_of

        fault = fault_of(Call.MONITOR, code)
        if fault is Fault.TIMED_OUT:
            return SourceError(
                f"{self.access.name}: no answer to {prefix!r} within {self.access.timeout_s:g} s",
                hint=reach_cure(self.access),
                timed_out=True,
            )
        if fault is Fault.NOT_KNOWN and prefix != _VERSION:
            self._check_version()
        return SourceError(
            f"{self.access.name}: {prefix!r} failed: {status or _errno_text(code)}",
            hint=caps_cure(f"client.{self.access.client_id}"),
        )

    def _check_version(self) -> None:
        """Raise a SourceError if the monitors are too old to know the command.

        Ceph 16 renamed the blocklist's commands (ceph#36527); older monitors answer EINVAL.
        """
        answer = self.monitor_or_gap(_VERSION, lambda values: str(_only(values, _VERSION)))
        found = _RELEASE.search(answer) if isinstance(answer, str) else None
        if found is not None and (int(found["major"]), int(found["minor"])) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise SourceError(
                f"{self.access.name} runs Ceph {found['release']}: rbdagent supports Ceph {oldest} "
                "and later",
                hint="upgrade the cluster, or use --no-ceph to query the other sources only",
            )

    def monitor_or_gap(
        self, prefix: str, read: Callable[[tuple[Any, ...]], _T], **arguments: str
    ) -> _T | NotObserved:
        """Query the monitors; return NotObserved after an error."""
        try:
            return read(self.monitor(prefix, **arguments))
        except Exception as error:  # noqa: BLE001 - a failed request must not hide the others
            return not_observed(error, f"{self.access.name}: {prefix!r}")

    def pool(self, image: ImageIdentity) -> Any | None:  # noqa: ANN401 - rados.Ioctx
        """Open the image's pool and namespace; None if this cluster has no such pool.

        Many images share one context: librados allows several threads to read with it.
        """
        key = (image.pool_id, image.spec.pool, image.spec.namespace)
        if key not in self._contexts:
            self._contexts[key] = self._open_pool(image)
        return self._contexts[key]

    def _open_pool(self, image: ImageIdentity) -> Any | None:  # noqa: ANN401 - rados.Ioctx
        try:
            if image.pool_id is not None:
                context = self._handle.open_ioctx2(image.pool_id)
                if image.spec.pool and name_of(context.get_pool_name) != image.spec.pool:
                    return None
            else:
                context = self._handle.open_ioctx(image.spec.pool)
        except self._rados.ObjectNotFound:
            return None
        context.set_namespace(image.spec.namespace)
        return context

    def dump_watchers(self) -> tuple[dict[str, Any], ...] | NotObserved:
        """Return the watches of every OSD, one call per OSD; needs osd caps ``allow *``."""
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
                    hint="osd caps 'allow *' would allow it; each image is queried instead",
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
        return rbd_module()


def fault_in(call: Call, error: Exception) -> Fault | None:
    """Return the meaning of a failed call's errno; None if the table has none."""
    from rbdagent.parse.faults import fault_of

    return fault_of(call, getattr(error, "errno", None))


def is_late(error: Exception) -> bool:
    """Return whether OSDs did not answer a request for an image in time."""
    from rbdagent.parse.faults import Call, Fault

    return fault_in(Call.IMAGE, error) is Fault.TIMED_OUT


def name_of(read: Callable[[], str]) -> str:
    r"""Return a name that a binding returns, with ``\xff`` for each byte that is not UTF-8.

    The bindings decode strictly (``decode_cstr`` in rados.pyx and rbd.pyx), but Ceph accepts any
    bytes as a name. The decoding error contains these bytes.
    """
    try:
        return str(read())
    except UnicodeDecodeError as error:
        return error.object.decode(errors="backslashreplace")


def _errno_text(code: int) -> str:
    return os.strerror(abs(code))


def reach_cure(access: CephAccess) -> str:
    """Return the command that shows whether a cluster can be reached."""
    user = ("-n", f"client.{access.client_id}", "--connect-timeout", "5")
    monitors = ("-m", ",".join(access.monitors)) if access.monitors else ()
    asked = command("ceph fsid", options=("-c", str(access.conf), *monitors, *user))
    return f"{line_of(asked)} shows whether the monitors can be reached"


def silence_cure(cluster: Cluster) -> str:
    """Return a hint for an OSD that does not answer.

    The monitors give a user without osd caps no ticket for OSDs, and its requests then wait until
    their time limit (measured with Ceph 16.2.15 by
    tests/integration/test_observe_ceph.py).
    """
    shown = line_of(command("ceph auth get", f"client.{cluster.access.client_id}"))
    return (
        "ceph health detail shows placement groups and OSDs that are down; OSDs of most "
        f"releases never answer a user without osd caps, which {shown} shows"
    )


def osd_error(cluster: Cluster, subject: str, error: Exception, more: str) -> SourceError:
    """Return the error that OSDs did not answer about an image or a pool.

    Args:
        cluster: the connection.
        subject: the image or the pool.
        error: of a binding.
        more: a command that may show the cause.
    """
    # The table of error numbers is loaded only after a failure.
    from rbdagent.parse.faults import Call, Fault

    user = f"client.{cluster.access.client_id}"
    match fault_in(Call.IMAGE, error):
        case Fault.BLOCKLISTED:
            return cluster.blocked(subject)
        case Fault.TIMED_OUT:
            return SourceError(
                f"{subject}: no answer within {cluster.access.timeout_s:g} s",
                hint=silence_cure(cluster),
                timed_out=True,
            )
        case Fault.DENIED:
            return SourceError(
                f"{subject}: {user} has no permission to read it",
                hint=caps_cure(user),
            )
        case _:
            return SourceError(f"{subject}: {error}", hint=f"{more} may show more")


class _Blocked(Struct, frozen=True):
    """Holds an entry of one of the two lists: a client has ``addr``, a range has ``range``."""

    addr: str = ""
    range: str = ""
    until: str = ""


def read_blocklist(values: tuple[object, ...]) -> tuple[BlocklistEntry, ...]:
    """Parse ``osd blocklist ls``: a list of clients, and of ranges where they exist (ceph#44151).

    The monitor prints the two arrays one after the other, without an object around them
    (OSDMonitor::preprocess_command, src/mon/OSDMonitor.cc; the same in Ceph 16.2, 18.2 and 20.2).

    Raises:
        ParseError: an entry cannot be parsed. It may be the entry that blocks the client.
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
    r"""Return all JSON values of an answer, with ``\xff`` for a byte that is not UTF-8.

    Ceph accepts any byte in a name, and writes those from 0x80 on unchanged
    (src/common/escape.cc).

    Raises:
        ParseError: it contains something else, a number is too long, or it is nested too deeply.
    """
    try:
        # The usual form. Only this decoder is fast enough for the megabytes of `mgr dump`.
        return (msgspec.json.decode(output),)
    except (ValueError, RecursionError):
        pass
    import json

    text = _NOT_UTF8.sub(
        lambda byte: rf"\\x{ord(byte[0]) & 0xFF:02x}",
        output.decode(errors="surrogateescape").strip(),
    )
    decoder, values, at = json.JSONDecoder(), [], 0
    try:
        while at < len(text):
            _, end = decoder.raw_decode(text, at)
            # Python's decoder also accepts NaN and lone surrogates, which are not valid JSON.
            values.append(msgspec.json.decode(text[at:end]))
            at = end
            while at < len(text) and text[at].isspace():
                at += 1
    except (ValueError, RecursionError) as error:
        raise _unexpected(output, where, "JSON") from error
    return tuple(values)


def _only(values: tuple[Any, ...], where: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the only JSON value of an answer."""
    if len(values) != 1:
        raise _unexpected(values, where, "one JSON value")
    return values[0]


def _unexpected(answer: object, where: str, expected: str) -> ParseError:
    return ParseError(
        what="the answer", where=where, text=shortened(str(answer)), expected=expected
    )


def read_pools(values: tuple[object, ...]) -> tuple[tuple[int, str], ...]:
    """Parse ``osd lspools``: number and name."""
    pools = cast("list[dict[str, Any]]", _only(values, "osd lspools"))
    return tuple((int(pool["poolnum"]), str(pool["poolname"])) for pool in pools)


def read_health(values: tuple[object, ...]) -> tuple[HealthCheck, ...]:
    """Parse ``health`` with details: the checks that can make I/O wait."""
    data = cast("dict[str, Any]", _only(values, "health"))
    checks = cast("dict[str, Any]", data.get("checks") or {})
    return tuple(
        HealthCheck(name=name, texts=tuple(_texts_of(checks[name])))
        for name in _STOP_IO
        if name in checks
    )


_STOP_IO: Final = (
    "POOL_FULL",
    "OSDMAP_FLAGS",
    "PG_AVAILABILITY",
    "OSD_DOWN",
    "SLOW_OPS",
    "OSD_SLOW_PING_TIME_FRONT",
    "OSD_SLOW_PING_TIME_BACK",
)
"""Codes of checks (OSDMap::check_health, PGMap::get_health_checks and, of SLOW_OPS,
src/mgr/DaemonHealthMetricCollector.cc, of Ceph 16 to 20)."""
_MOST_DETAILS: Final = 60
"""Ceph itself prints at most 50 (mon_health_max_detail)."""


def _texts_of(check: dict[str, Any]) -> Iterator[str]:
    summary: dict[str, Any] = check.get("summary") or {}
    for text in (summary, *(check.get("detail") or ())[:_MOST_DETAILS]):
        yield shortened(str(text.get("message") or ""))


def read_placement(values: tuple[object, ...]) -> Placement:
    """Parse ``osd map``: the placement group of an object, and its acting set, the primary first.

    An OSD that is missing in the set of an erasure-coded pool is 2147483647 (CRUSH_ITEM_NONE).
    """
    data = cast("dict[str, Any]", _only(values, "osd map"))
    primary = int(data["acting_primary"])
    others = (int(osd) for osd in data["acting"])
    return Placement(
        name=str(data["objname"]),
        group=str(data["pgid"]),
        acting=tuple(osd for osd in dict.fromkeys((primary, *others)) if 0 <= osd < _NO_OSD),
    )


_NO_OSD: Final = 0x7FFFFFFF


def read_managers(values: tuple[object, ...]) -> tuple[ServiceAddress, ...]:
    """Parse the active mgr's clients: its rbd_support module watches images that it works on."""
    data = cast("dict[str, Any]", _only(values, "mgr dump"))
    name = str(data.get("active_name", ""))
    found = []
    for client in data.get("active_clients") or ():
        for entry in client.get("addrvec") or ():
            address = parse_address(f"{entry['addr']}/{entry['nonce']}", where="mgr dump")
            found.append(ServiceAddress(kind="mgr", name=name, address=address))
    return tuple(found)


def read_monitors(values: tuple[object, ...]) -> tuple[ServiceAddress, ...]:
    """Parse ``mon dump``: one entry per monitor and version of the messenger protocol."""
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
