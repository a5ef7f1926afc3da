"""Settings: flag, environment, ``/etc/rbdagent/config.toml``, default; in this order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rbdagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rbdagent.observe.cluster import CephAccess
    from rbdagent.observe.kubeconfig import KubeAccess
    from rbdagent.observe.node import NodeRoots

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
    "mode",
    "resync",
    "heartbeat",
    "listen",
)
"""What a configuration file may set: the names of the flags."""

CLUSTER_KEYS: Final = ("name", "conf", "id", "keyring", "timeout")
"""What a ``[[ceph]]`` table may set."""

_DURATION: Final = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?!s))?"
                              r"(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+)ms)?")  # fmt: skip
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Settings(Struct, frozen=True, kw_only=True):
    """Everything a look needs to know of its surroundings; clock and names come in from outside."""

    node_name: str
    roots: NodeRoots | None
    """None: look away from the node on purpose."""
    clusters: tuple[CephAccess, ...] | None
    kube: KubeAccess | None
    timeout_s: float
    version: str


def parse_duration(text: str) -> float:
    """Read a duration as kubectl writes it (``90s``, ``1m30s``, ``500ms``), or plain seconds.

    Raises:
        ValueError: it is none, or not above zero.
    """
    match = _DURATION.fullmatch(text.strip())
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
        path: TOML with the flags' names as keys, and ``[[ceph]]`` tables for several clusters.
        must_exist: it was asked for by name; the default file may be absent.

    Raises:
        UsageError: it cannot be read, is no TOML, or has a key that nobody knows.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        if must_exist:
            raise UsageError(f"{path}: no such file", hint="correct --config") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    for key in data:
        if key != "ceph":
            _known(path, key, KEYS)
            data[key] = _of_kind(path, key, data[key])
    tables = data.get("ceph", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise UsageError(f"{path}: ceph: expected [[ceph]] tables, one a cluster")
    for number, table in enumerate(tables):
        for key in table:
            _known(path, key, CLUSTER_KEYS, prefix=f"ceph[{number}].")
    return data


_SWITCHES: Final = frozenset({"no-ceph", "no-kube", "no-node", "unmap-staged"})
_NUMBERS: Final = frozenset({"max-unmaps-per-hour"})


def _of_kind(path: Path, key: str, value: object) -> object:
    """Give a value as its flag takes it; a list of one may be written as a text."""
    if key in _SWITCHES:
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {key} is {value!r}: expected true or false")
        return value
    if key == "kubelet-root":
        value = [value] if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
        raise UsageError(f"{path}: {key} is {value!r}: expected a path or a list of paths")
    if key in _NUMBERS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{path}: {key} is {value!r}: expected a number")
        return value
    if isinstance(value, str) or (key.endswith("timeout") and isinstance(value, int | float)):
        return str(value) if key.endswith("timeout") else value
    raise UsageError(f"{path}: {key} is {value!r}: expected a text in quotes")


def _known(path: Path, key: str, keys: tuple[str, ...], prefix: str = "") -> None:
    if key in keys:
        return
    import difflib

    near = difflib.get_close_matches(key, keys, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(keys)}"
    raise UsageError(f"{path}: unknown key {prefix}{key}", hint=hint)
