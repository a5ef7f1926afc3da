"""Settings, from (in this order) flag, environment, ``/etc/rbdagent/config.toml`` or default."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.kube.kubeconfig import KubeAccess, MonitorList
    from rbdagent.collect.node.roots import NodeRoots

DEFAULT_FILE: Final = "/etc/rbdagent/config.toml"

KEYS: Final = (
    "node-name",
    "procfs",
    "sysfs",
    "host-root",
    "kubelet-root",
    "ceph-conf",
    "ceph-id",
    "ceph-keyring",
    "ceph-timeout",
    "kubeconfig",
    "context",
    "kube-timeout",
    "no-ceph",
    "no-kube",
    "no-node",
    "timeout",
    "fail-on",
    "output",
    "grace-period",
    "max-unmaps-per-hour",
    "unmap-staged",
    "state-dir",
    "freeze-file",
    "log-level",
    "log-format",
    "mode",
    "resync",
    "heartbeat",
    "answer-for",
    "lease-namespace",
    "listen",
    "probes",
    "metrics",
)
"""The keys that a configuration file may set: the names of the flags."""

CLUSTER_KEYS: Final = (
    "name", "conf", "id", "keyring", "keyfile", "timeout", "monitors-from", "monitors-key",
    "cluster-id",
)  # fmt: skip
"""The keys that a ``[[ceph]]`` table may set."""

_DURATION: Final = (r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?!s))?"
                              r"(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+)ms)?")  # fmt: skip
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Settings(Struct, frozen=True, kw_only=True):
    """Holds the settings of a snapshot; the caller supplies the clock and the names."""

    node_name: str
    roots: NodeRoots | None
    """None if the node must not be observed."""
    clusters: tuple[CephAccess, ...] | None
    kube: KubeAccess | None
    timeout_s: float
    version: str
    monitor_lists: tuple[MonitorList, ...] = ()
    """Where the monitors of a cluster are listed, if its ceph.conf does not name them."""

    def published(self) -> Settings:
        """Return the settings of an observation whose sentences every reader of objects sees."""
        return replace(self, roots=self.roots and replace(self.roots, is_public=True))

    def within(self, timeout_s: float) -> Settings:
        """Return the settings with another deadline."""
        kube = self.kube and replace(self.kube, answer_s=timeout_s)
        return replace(self, kube=kube, timeout_s=timeout_s)


def parse_duration(text: str) -> float:
    """Parse a duration in the format of kubectl (``90s``, ``1m30s``, ``500ms``), or plain seconds.

    Raises:
        ValueError: it is not a duration, or not greater than zero.
    """
    match = re.fullmatch(_DURATION, text.strip())
    if match is not None and any(match.groups()):
        seconds = sum(
            float(value) * _SECONDS[unit] for unit, value in match.groupdict().items() if value
        )
    else:
        seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def load_file(path: Path, *, must_exist: bool) -> Mapping[str, Any]:
    """Read a configuration file.

    Args:
        path: TOML with the names of flags as keys, and ``[[ceph]]`` tables for several clusters.
        must_exist: whether the user named the file; the default file may be absent.

    Raises:
        UsageError: it cannot be read, or is not a configuration file.
    """
    from rbdagent.collect.user_files import read_user_file

    try:
        text = read_user_file(path, most=_MOST).decode()
    except FileNotFoundError:
        if must_exist:
            raise UsageError(f"{path}: no such file", hint="correct --config") from None
        return {}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", hint=_WANTED) from error
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file", hint=_WANTED) from None
    return parse_config(text, where=str(path))


def parse_config(text: str, *, where: str) -> dict[str, Any]:
    """Parse the content of a configuration file.

    Errors never quote a value: --config may name any file that root can read.

    Raises:
        UsageError: it is not TOML, has an unknown key, or has a value of another type.
    """
    import tomllib

    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise UsageError(f"{where}: more than {_MOST_DOTS} dots in a line", hint=_WANTED)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # The rest of the message of tomllib may quote the file, and --debug prints the cause.
        place = re.search(_PLACE, str(error))
        at = f" {place[0]}" if place else ""
        raise UsageError(f"{where}: not TOML{at}", hint=_WANTED) from None
    for key, value in data.items():
        if key != "ceph":
            _check_known(where, key, value, KEYS)
            data[key] = _checked(f"{where}: {key}", key, value)
    tables = data.get("ceph", [])
    if not isinstance(tables, list) or not all(isinstance(section, dict) for section in tables):
        raise UsageError(f"{where}: ceph: expected [[ceph]] tables, one for each cluster")
    for number, table in enumerate(tables):
        for key, value in table.items():
            _check_known(where, key, value, CLUSTER_KEYS, prefix=f"ceph[{number}].")
            table[key] = _checked(f"{where}: ceph[{number}].{key}", key, value)
    return data


_MOST: Final = 64 << 10
"""Maximum size of a configuration file in bytes; this is enough for hundreds of clusters."""
_MOST_DOTS: Final = 64
"""Maximum of dots in a line. tomllib takes 12 s for a dotted key of 64 KiB: its time grows with the
square of the number of parts."""
_WANTED: Final = '--config needs a file with lines such as: ceph-timeout = "10s"'
_PLACE: Final = r"\(at (?:line \d+, column \d+|end of document)\)\Z"
_KEY: Final = r"(?a)[A-Za-z][\w-]{0,39}"
_SWITCHES: Final = frozenset({"no-ceph", "no-kube", "no-node", "unmap-staged"})
_NUMBERS: Final = frozenset({"max-unmaps-per-hour"})
_MOST_SECONDS: Final = 1e9


def _checked(where: str, key: str, value: object) -> object:
    """Return a value in the type of its flag; a list with one item may be written as a string."""
    if key in _SWITCHES:
        if isinstance(value, bool):
            return value
        raise UsageError(f"{where}: expected true or false")
    if key == "kubelet-root":
        paths = value if isinstance(value, list) else [value]
        if all(map(_is_text, paths)):
            return paths
        raise UsageError(f"{where}: expected a path or a list of paths")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in _NUMBERS:
        if is_number and isinstance(value, int):
            return value
        raise UsageError(f"{where}: expected a number")
    if key.endswith("timeout") and is_number and abs(cast("float", value)) < _MOST_SECONDS:
        return str(value)
    if _is_text(value):
        return value
    raise UsageError(f"{where}: expected a string in quotes, without control characters")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _check_known(
    where: str, key: str, value: object, keys: tuple[str, ...], prefix: str = ""
) -> None:
    if key in keys:
        return
    import difflib

    near = difflib.get_close_matches(key, keys, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(keys)}"
    # If the file is not a configuration file, a quoted key or a line in brackets may be secret.
    is_setting = re.fullmatch(_KEY, key) is not None and not isinstance(value, dict | list)
    name = f" {prefix}{key}" if is_setting else ""
    raise UsageError(f"{where}: unknown key{name}", hint=hint)
