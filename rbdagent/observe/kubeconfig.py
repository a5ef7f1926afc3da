"""Where the Kubernetes API is and as whom to ask it: kubeconfigs, and the in-cluster account.

The ``kubernetes`` package is imported only where a kubeconfig asks for an exec plugin or an auth
provider (docs/adr/0001-kubernetes-transport.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from rbdagent.errors import SourceError
from rbdagent.observe.user_files import read_user_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]

_Entry = tuple[Json, Path]
"""A cluster, user or context, and the kubeconfig that it is from."""

_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST: Final = 4 << 20
"""Bytes of a kubeconfig: some 700 clusters with their certificates."""
_MOST_OF_TOKEN: Final = 1 << 20
_SHOWS_FAULT: Final = "kubectl config view tells what is wrong"


class KubeAccess(Struct, frozen=True, kw_only=True):
    """How to reach the API: as kubectl does, by flag, ``KUBECONFIG``, in-cluster, ``~/.kube``."""

    kubeconfig: Path | None
    context: str | None
    timeout_s: float
    environment: tuple[tuple[str, str], ...] = ()
    """What matters of it: ``KUBECONFIG``, ``HOME``, ``KUBERNETES_SERVICE_HOST`` and ``_PORT``."""


class Credentials(Struct, frozen=True, kw_only=True):
    """One API server, and what proves who asks."""

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
        """Name the server alone: the rest is secret."""
        return f"Credentials(server={self.server!r})"


def credentials(access: KubeAccess) -> Credentials:
    """Find the server and the credentials.

    Raises:
        SourceError: there are none, or they cannot be read; it tells what was tried.
    """
    found = _found(access)
    if found.token is not None and not (found.token.isascii() and found.token.isprintable()):
        raise SourceError(
            f"the token for {found.server} has characters that no token has",
            cure="log in again, or correct the kubeconfig or token file",
        )
    return found


def _found(access: KubeAccess) -> Credentials:
    environment = dict(access.environment)
    if access.kubeconfig is not None:
        return _from_kubeconfig((access.kubeconfig,), access)
    if environment.get("KUBECONFIG"):
        paths = tuple(Path(each) for each in environment["KUBECONFIG"].split(os.pathsep) if each)
        return _from_kubeconfig(paths, access)
    if environment.get("KUBERNETES_SERVICE_HOST") and access.context is None:
        return _in_cluster(environment)
    home = Path(environment.get("HOME", "/root")) / ".kube" / "config"
    candidates = (home, Path("/etc/kubernetes/admin.conf"))
    if home.exists():
        return _from_kubeconfig((home,), access)
    raise SourceError(
        "no kubeconfig: tried --kubeconfig (not given), KUBECONFIG (not set), in-cluster "
        f"(KUBERNETES_SERVICE_HOST not set), {candidates[0]} (no such file)",
        cure="pass --kubeconfig FILE, set KUBECONFIG, or use --no-kube to look away on purpose",
    )


def _in_cluster(environment: Mapping[str, str]) -> Credentials:
    token = _IN_CLUSTER / "token"
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT")
    try:
        text = _token_of(token)
    except OSError as error:
        raise SourceError(
            f"in-cluster credentials: cannot read {token}: {error.strerror}",
            cure="mount the service account's token (automountServiceAccountToken: true)",
        ) from error
    host = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{host}:{port or 443}", token=text, ca_file=str(_IN_CLUSTER / "ca.crt")
    )


def _token_of(file: Path) -> str:
    return read_user_file(file, most=_MOST_OF_TOKEN).decode(errors="replace").strip()


def _from_kubeconfig(paths: Sequence[Path], access: KubeAccess) -> Credentials:
    """Merge kubeconfig files as kubectl does: the first file that sets something wins."""
    merged: dict[str, dict[str, _Entry]] = {"clusters": {}, "users": {}, "contexts": {}}
    current: str | None = None
    there = [path for path in paths if path.exists()]
    if not there:
        raise SourceError(
            f"kubeconfig {', '.join(map(str, paths))}: no such file",
            cure="pass --kubeconfig FILE or correct KUBECONFIG",
        )
    for path in there:
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
            f"kubeconfig {', '.join(map(str, there))}: no {wanted}; it has: {known}",
            cure="pass --context with one of them",
        )
    context = merged["contexts"][name]
    wanted_cluster = _text(context, "cluster") or ""
    cluster = merged["clusters"].get(wanted_cluster)
    user = merged["users"].get(_text(context, "user") or "", ({}, there[0]))
    if cluster is None or not _text(cluster, "server"):
        raise SourceError(
            f"kubeconfig {there[0]}: context {name!r} names cluster {wanted_cluster!r}, "
            "which it does not have or which has no server",
            cure="correct the kubeconfig (kubectl config view shows it)",
        )
    if "exec" in user[0] or "auth-provider" in user[0]:
        return _from_plugin(there, name, cluster)
    return _static(cluster, user)


def _named(data: Json, kind: str, path: Path) -> Iterator[tuple[str, Json]]:
    """Return the clusters, users or contexts of a kubeconfig by their names."""
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
    """Return a field of a kubeconfig; None where it is absent or empty."""
    content, path = entry
    value = content.get(key)
    if value is not None and not (isinstance(value, str) and "\0" not in value):
        raise _mistyped(path, key, "a text")
    return value or None


def _mistyped(path: Path, field: str, expected: str) -> SourceError:
    return SourceError(f"kubeconfig {path}: {field}: expected {expected}", cure=_SHOWS_FAULT)


def _yaml(path: Path) -> Json:
    import yaml

    try:
        data = yaml.safe_load(read_user_file(path, most=_MOST))
    except OSError as error:
        raise SourceError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    # PyYAML's constructors of numbers and dates raise what their conversions raise.
    except (
        yaml.YAMLError, RecursionError, ArithmeticError, AttributeError, LookupError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        # The message of a YAML error quotes the text around it, which may be a token.
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark is not None else ""
        raise SourceError(f"kubeconfig {path}: not YAML{at}", cure=_SHOWS_FAULT) from error
    if not isinstance(data, dict):
        raise SourceError(
            f"kubeconfig {path}: expected a mapping with clusters, users and contexts",
            cure="pass --kubeconfig with a kubeconfig file",
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
            f"kubeconfig {path}: {key} is not base64", cure="write the kubeconfig anew"
        ) from error


def _from_plugin(paths: Sequence[Path], context: str, cluster: _Entry) -> Credentials:
    """Let the client library run the exec plugin or refresh the auth provider's token."""
    import logging

    try:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
    except ImportError as error:
        raise SourceError(
            f"kubeconfig {paths[0]}: context {context!r} has a credential plugin, and the Python "
            "package that runs it is not installed: kubernetes",
            cure="apt install python3-kubernetes, or pip install kubernetes; a context with a "
            "token or a certificate needs neither",
        ) from error

    configuration = client.Configuration()
    failed = SourceError(
        f"kubeconfig {paths[0]}: the credential plugin of context {context!r} failed",
        cure="kubectl get --raw /version with the same context shows the plugin's words",
    )
    # The loader logs what the plugin said, which may be a secret, and goes on without credentials.
    logging.disable(logging.CRITICAL)
    try:
        config.load_kube_config(
            config_file=os.pathsep.join(map(str, paths)),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except ConfigException as error:
        raise failed from error
    finally:
        logging.disable(logging.NOTSET)
    # The loader's key is BearerToken from 36.0.1 on, authorization before (pull request 2585 of
    # kubernetes-client/python). auth_settings() of 36.0.0 has neither (issue 2582 there).
    keys = configuration.api_key
    header = keys.get("BearerToken") or keys.get("authorization") or ""
    static = _static(cluster, ({}, cluster[1]))
    cert = (configuration.cert_file, configuration.key_file)
    if not header and not all(cert):
        raise failed
    return replace(
        static,
        token=header.removeprefix("Bearer ") or None,
        cert=cert if all(cert) else None,
    )
