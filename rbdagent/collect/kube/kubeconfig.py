"""Address and credentials of the Kubernetes API: from a kubeconfig, or in-cluster.

The ``kubernetes`` package runs exec plugins and refreshes the tokens of auth providers, in a
separate program (docs/adr/0001-kubernetes-transport.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.user_files import read_user_file
from rbdagent.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rbdagent.collect.kube.plugins import Plugin, PluginCredentials

Json = dict[str, Any]

_Entry = tuple[Json, Path]
"""A cluster, user or context, and the kubeconfig that contains it."""

_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST: Final = 4 << 20
"""Largest kubeconfig in bytes: some 700 clusters with their certificates."""
_MOST_OF_TOKEN: Final = 1 << 20
_SHOWS_FAULT: Final = "kubectl config view shows the error"


class KubeAccess(Struct, frozen=True, kw_only=True):
    """Holds the access to the API: as for kubectl, from flag, ``KUBECONFIG``, in-cluster, HOME."""

    kubeconfig: Path | None
    context: str | None
    timeout_s: float
    """Time limit of a request."""
    answer_s: float = 30.0
    """Time limit of the whole snapshot, which a credential plugin must not exceed."""
    environment: tuple[tuple[str, str], ...] = ()
    """The variables in use: ``KUBECONFIG``, ``HOME``, ``KUBERNETES_SERVICE_HOST``, ``_PORT``."""


class MonitorList(Struct, frozen=True, kw_only=True):
    """Names the place of a Ceph cluster's list of monitors, and the access to it."""

    cluster: str
    """The name of the cluster in answers."""
    namespace: str
    config_map: str
    key: str
    cluster_id: str
    """The id of the cluster in the list; empty for a list of one cluster."""
    access: KubeAccess | None
    """None if the API must not be queried."""

    def __str__(self) -> str:
        """Return the place, for messages."""
        return f"ConfigMap {self.namespace}/{self.config_map}, key {self.key}"


class Credentials(Struct, frozen=True, kw_only=True):
    """Holds the address of one API server, and the credentials for it."""

    server: str
    token: str | None = None
    ca_file: str | None = None
    ca_data: bytes | None = None
    verify: bool = True
    server_name: str | None = None
    cert: tuple[str, str] | None = None
    cert_data: tuple[bytes, bytes] | None = None
    proxy: str | None = None

    def __repr__(self) -> str:
        """Return the server only: the other fields are secret."""
        return f"Credentials(server={self.server!r})"


def credentials(access: KubeAccess) -> Credentials:
    """Return the server and the credentials.

    Raises:
        SourceError: there are none, or they cannot be read; the message names the tried sources.
    """
    found = _found(access)
    if found.token is not None and not (found.token.isascii() and found.token.isprintable()):
        raise SourceError(
            f"the token for {found.server} has characters that are not valid in a token",
            hint="log in again, or correct the kubeconfig or token file",
        )
    return found


def namespace_of(access: KubeAccess) -> str | None:
    """Return the namespace of the context, as kubectl does; None without one.

    In a pod without a kubeconfig it is that of the service account.

    Raises:
        SourceError: there is no kubeconfig, or it cannot be read.
    """
    paths = _paths(access)
    if paths is not None:
        _, _, context = _context_of(paths, access)
        return _text(context, "namespace")
    try:
        return _token_of(_IN_CLUSTER / "namespace") or None
    except OSError:
        return None


def _found(access: KubeAccess) -> Credentials:
    paths = _paths(access)
    if paths is not None:
        return _from_kubeconfig(paths, access)
    return _in_cluster(dict(access.environment))


def _paths(access: KubeAccess) -> tuple[Path, ...] | None:
    """Return the kubeconfig files; None for the credentials of a pod.

    Raises:
        SourceError: there are neither.
    """
    environment = dict(access.environment)
    if access.kubeconfig is not None:
        return (access.kubeconfig,)
    if environment.get("KUBECONFIG"):
        return tuple(Path(path) for path in environment["KUBECONFIG"].split(os.pathsep) if path)
    is_in_cluster = bool(environment.get("KUBERNETES_SERVICE_HOST"))
    if is_in_cluster and access.context is None:
        return None
    home = Path(environment.get("HOME", "/root")) / ".kube" / "config"
    if home.exists():
        return (home,)
    skipped = "not used with --context" if is_in_cluster else "KUBERNETES_SERVICE_HOST not set"
    raise SourceError(
        "no kubeconfig: tried --kubeconfig (not given), KUBECONFIG (not set), in-cluster "
        f"({skipped}), {home} (no such file)",
        hint="pass --kubeconfig FILE, or set KUBECONFIG",
    )


def _in_cluster(environment: Mapping[str, str]) -> Credentials:
    token = _IN_CLUSTER / "token"
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT")
    try:
        text = _token_of(token)
    except OSError as error:
        raise SourceError(
            f"in-cluster credentials: cannot read {token}: {error.strerror}",
            hint="mount the service account's token (automountServiceAccountToken: true)",
        ) from error
    host = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{host}:{port or 443}", token=text, ca_file=str(_IN_CLUSTER / "ca.crt")
    )


def _token_of(file: Path) -> str:
    return read_user_file(file, most=_MOST_OF_TOKEN).decode(errors="replace").strip()


_Merged = dict[str, dict[str, _Entry]]
"""Clusters, users and contexts by name."""


def _context_of(paths: Sequence[Path], access: KubeAccess) -> tuple[str, _Merged, _Entry]:
    """Merge kubeconfig files as kubectl does: the first file that sets a value has precedence.

    Return the name of the context, everything that the files have, and the context.
    """
    merged: _Merged = {"clusters": {}, "users": {}, "contexts": {}}
    current: str | None = None
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise SourceError(
            f"kubeconfig {', '.join(map(str, paths))}: no such file",
            hint="pass --kubeconfig FILE or correct KUBECONFIG",
        )
    for path in existing:
        data = _yaml(path)
        current = current or _text((data, path), "current-context")
        for kind, entries in merged.items():
            for own_name, content in _named(data, kind, path):
                entries.setdefault(own_name, (content, path))
    name = access.context or current
    if name is None or name not in merged["contexts"]:
        known = ", ".join(sorted(merged["contexts"])) or "none"
        wanted = f"context {name!r}" if name else "a current-context"
        raise SourceError(
            f"kubeconfig {', '.join(map(str, existing))}: no {wanted}; it has: {known}",
            hint="pass --context with one of them",
        )
    return name, merged, merged["contexts"][name]


def _from_kubeconfig(paths: Sequence[Path], access: KubeAccess) -> Credentials:
    name, merged, context = _context_of(paths, access)
    existing = [path for path in paths if path.exists()]
    wanted_cluster = _text(context, "cluster") or ""
    cluster = merged["clusters"].get(wanted_cluster)
    user = merged["users"].get(_text(context, "user") or "", ({}, existing[0]))
    if cluster is None or not _text(cluster, "server"):
        raise SourceError(
            f"kubeconfig {existing[0]}: context {name!r} names cluster {wanted_cluster!r}, "
            "which it does not have or which has no server",
            hint="correct the kubeconfig (kubectl config view shows it)",
        )
    if "exec" in user[0] or "auth-provider" in user[0]:
        # Imported here: few kubeconfigs need the module, and its imports take time.
        from rbdagent.collect.kube.plugins import credentials_of_plugin

        plugin = _plugin(existing, name, user)
        return _with(credentials_of_plugin(plugin, answer_s=access.answer_s), cluster)
    return _static(cluster, user)


def _named(data: Json, kind: str, path: Path) -> Iterator[tuple[str, Json]]:
    """Yield the clusters, users or contexts of a kubeconfig with their names."""
    entries = data.get(kind) or []
    if not isinstance(entries, list):
        raise _mistyped(path, kind, "a list")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise _mistyped(path, f"{kind}[{number}]", "a mapping with a name")
        content = entry.get(kind[:-1]) or {}
        if not isinstance(content, dict):
            raise _mistyped(path, f"{kind}[{number}].{kind[:-1]}", "a mapping")
        yield entry["name"], content


def _text(entry: _Entry, key: str) -> str | None:
    """Return a field of a kubeconfig; None if it is absent or empty."""
    content, path = entry
    value = content.get(key)
    if value is not None and not (isinstance(value, str) and "\0" not in value):
        raise _mistyped(path, key, "a string")
    return value or None


def _mistyped(path: Path, field: str, expected: str) -> SourceError:
    return SourceError(f"kubeconfig {path}: {field}: expected {expected}", hint=_SHOWS_FAULT)


def _yaml(path: Path) -> Json:
    import yaml

    try:
        data = yaml.safe_load(read_user_file(path, most=_MOST))
    except OSError as error:
        raise SourceError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    # PyYAML's constructors of numbers and dates do not catch the errors of their conversions.
    except (
        yaml.YAMLError, RecursionError, ArithmeticError, AttributeError, LookupError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        # The message of a YAML error quotes the surrounding text, which may be a token.
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark is not None else ""
        raise SourceError(f"kubeconfig {path}: not YAML{at}", hint=_SHOWS_FAULT) from error
    if not isinstance(data, dict):
        raise SourceError(
            f"kubeconfig {path}: expected a mapping with clusters, users and contexts",
            hint="pass --kubeconfig with a kubeconfig file",
        )
    return cast("Json", data)


def _static(cluster: _Entry, user: _Entry) -> Credentials:
    def beside(entry: _Entry, key: str) -> str | None:
        value = _text(entry, key)
        return str(entry[1].parent / value) if value else None

    def decoded(entry: _Entry, key: str) -> bytes | None:
        value = _text(entry, key)
        return _decoded(value, key, entry[1]) if value else None

    token = _text(user, "token")
    if token is None and (token_file := beside(user, "tokenFile")) is not None:
        try:
            token = _token_of(Path(token_file))
        except OSError as error:
            raise SourceError(f"token file {token_file}: {error.strerror}") from error
    cert, key = beside(user, "client-certificate"), beside(user, "client-key")
    cert_data, key_data = (
        decoded(user, "client-certificate-data"),
        decoded(user, "client-key-data"),
    )
    return Credentials(
        server=(_text(cluster, "server") or "").rstrip("/"),
        token=token,
        ca_file=beside(cluster, "certificate-authority"),
        ca_data=decoded(cluster, "certificate-authority-data"),
        verify=not cluster[0].get("insecure-skip-tls-verify"),
        server_name=_text(cluster, "tls-server-name"),
        cert=(cert, key) if cert and key else None,
        cert_data=(cert_data, key_data) if cert_data and key_data else None,
        proxy=_text(cluster, "proxy-url"),
    )


def _decoded(text: str, key: str, path: Path) -> bytes:
    import binascii

    try:
        return binascii.a2b_base64(text)
    except ValueError as error:
        raise SourceError(
            f"kubeconfig {path}: {key} is not base64", hint="write the kubeconfig again"
        ) from error


def _plugin(files: Sequence[Path], context: str, user: _Entry) -> Plugin:
    from rbdagent.collect.kube.plugins import Plugin

    content, path = user
    kind, key = ("exec", "command") if "exec" in content else ("auth-provider", "name")
    settings = content[kind]
    if not isinstance(settings, dict):
        raise _mistyped(path, kind, "a mapping")
    program = _text((settings, path), key) or ""
    return Plugin(files=tuple(files), context=context, program=program)


def _with(given: PluginCredentials, cluster: _Entry) -> Credentials:
    """Return the credentials for a cluster that a plugin returned."""
    cert = given.cert
    return replace(
        _static(cluster, ({}, cluster[1])),
        token=given.token,
        cert_data=None if cert is None else (cert[0].encode(), cert[1].encode()),
    )
