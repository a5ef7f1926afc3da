"""The Kubernetes API: only what belongs to the target, in as few requests as that takes.

The transport is urllib3; the ``kubernetes`` package is imported only where a kubeconfig asks for an
exec plugin or an auth provider. Importing it costs 0.5 s and 65 MB, more than the whole answer
(docs/adr/0001-kubernetes-transport.md).
"""

from __future__ import annotations

import base64
import concurrent.futures
import difflib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode

from rbdagent.errors import NotFoundError, ParseError, SourceError
from rbdagent.model import (
    Attachment,
    CheckResult,
    CheckState,
    Claim,
    CsiSource,
    Gap,
    ImageIdentity,
    ImageSpec,
    KubeEvent,
    KubeView,
    NotObserved,
    PersistentVolume,
    Pod,
    Source,
    SourceState,
    Target,
    TargetKind,
)
from rbdagent.parse import kubernetes as read
from rbdagent.parse.handle import attachment_name
from rbdagent.parse.volume import image_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_T = TypeVar("_T")
Json = dict[str, Any]

_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE: Final = 500
_THREADS: Final = 8
_OK: Final = 200
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CLOSE: Final = 0.5
_MOST_EVENT_SUBJECTS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeAccess:
    """How to reach the API: as kubectl does, by flag, ``KUBECONFIG``, in-cluster, ``~/.kube``."""

    kubeconfig: Path | None
    context: str | None
    timeout_s: float
    environment: tuple[tuple[str, str], ...] = ()
    """What matters of it: ``KUBECONFIG``, ``HOME``, ``KUBERNETES_SERVICE_HOST`` and ``_PORT``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credentials:
    server: str
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    ca_data: bytes | None = None
    verify: bool = True
    server_name: str | None = None
    cert: tuple[str, str] | None = None
    cert_data: tuple[bytes, bytes] | None = field(default=None, repr=False)
    proxy: str | None = None


class _StatusError(SourceError):
    """The API server answered with an error status."""

    def __init__(self, message: str, *, status: int, cure: str = "") -> None:
        super().__init__(message, cure=cure)
        self.status = status


# --------------------------------------------------------------------------------------------------
# Where and as whom
# --------------------------------------------------------------------------------------------------


def _credentials(access: KubeAccess) -> _Credentials:
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


def _in_cluster(environment: Mapping[str, str]) -> _Credentials:
    token = _IN_CLUSTER / "token"
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT")
    try:
        text = token.read_text().strip()
    except OSError as error:
        raise SourceError(
            f"in-cluster credentials: cannot read {token}: {error.strerror}",
            cure="mount the service account's token (automountServiceAccountToken: true)",
        ) from error
    host = f"[{host}]" if ":" in host else host
    return _Credentials(
        server=f"https://{host}:{port or 443}", token=text, ca_file=str(_IN_CLUSTER / "ca.crt")
    )


def _from_kubeconfig(paths: Sequence[Path], access: KubeAccess) -> _Credentials:
    """Merge kubeconfig files as kubectl does: the first file that sets something wins."""
    merged: dict[str, dict[str, tuple[Json, Path]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current: str | None = None
    there = [path for path in paths if path.exists()]
    if not there:
        raise SourceError(
            f"kubeconfig {', '.join(map(str, paths))}: no such file",
            cure="pass --kubeconfig FILE or correct KUBECONFIG",
        )
    for path in there:
        data = _yaml(path)
        current = current or data.get("current-context") or None
        for kind, entries in merged.items():
            for entry in data.get(kind) or ():
                if isinstance(entry, dict) and "name" in entry:
                    entries.setdefault(entry["name"], (entry.get(kind[:-1]) or {}, path))
    name = access.context or current
    if name is None or name not in merged["contexts"]:
        known = ", ".join(sorted(merged["contexts"])) or "none"
        wanted = f"context {name!r}" if name else "a current-context"
        raise SourceError(
            f"kubeconfig {', '.join(map(str, there))}: no {wanted}; it has: {known}",
            cure="pass --context with one of them",
        )
    context = merged["contexts"][name][0]
    cluster = merged["clusters"].get(context.get("cluster", ""))
    user = merged["users"].get(context.get("user", ""), ({}, there[0]))
    if cluster is None or not cluster[0].get("server"):
        raise SourceError(
            f"kubeconfig {there[0]}: context {name!r} names cluster {context.get('cluster')!r}, "
            "which it does not have or which has no server",
            cure="correct the kubeconfig (kubectl config view shows it)",
        )
    if "exec" in user[0] or "auth-provider" in user[0]:
        return _from_plugin(there, name, cluster)
    return _static(cluster, user)


def _yaml(path: Path) -> Json:
    import yaml

    try:
        data = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise SourceError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        # The message of a YAML error quotes the text around it, which may be a token.
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark is not None else ""
        raise SourceError(
            f"kubeconfig {path}: not YAML{at}", cure="kubectl config view tells what is wrong"
        ) from error
    if not isinstance(data, dict):
        raise SourceError(
            f"kubeconfig {path}: expected a mapping with clusters, users and contexts",
            cure="pass --kubeconfig with a kubeconfig file",
        )
    return cast("Json", data)


def _static(cluster: tuple[Json, Path], user: tuple[Json, Path]) -> _Credentials:
    def beside(entry: tuple[Json, Path], key: str) -> str | None:
        value = entry[0].get(key)
        return str(entry[1].parent / value) if value else None

    def decoded(entry: tuple[Json, Path], key: str) -> bytes | None:
        value = entry[0].get(key)
        return base64.b64decode(value) if value else None

    token = user[0].get("token")
    if token is None and (token_file := beside(user, "tokenFile")) is not None:
        try:
            token = Path(token_file).read_text().strip()
        except OSError as error:
            raise SourceError(f"token file {token_file}: {error.strerror}") from error
    cert, key = beside(user, "client-certificate"), beside(user, "client-key")
    cert_data, key_data = (
        decoded(user, "client-certificate-data"),
        decoded(user, "client-key-data"),
    )
    return _Credentials(
        server=str(cluster[0]["server"]).rstrip("/"),
        token=token,
        ca_file=beside(cluster, "certificate-authority"),
        ca_data=decoded(cluster, "certificate-authority-data"),
        verify=not cluster[0].get("insecure-skip-tls-verify"),
        server_name=cluster[0].get("tls-server-name"),
        cert=(cert, key) if cert and key else None,
        cert_data=(cert_data, key_data) if cert_data and key_data else None,
        proxy=cluster[0].get("proxy-url"),
    )


def _from_plugin(paths: Sequence[Path], context: str, cluster: tuple[Json, Path]) -> _Credentials:
    """Let the client library run the exec plugin or refresh the auth provider's token."""
    from kubernetes import client, config
    from kubernetes.config.config_exception import ConfigException

    configuration = client.Configuration()
    try:
        config.load_kube_config(
            config_file=os.pathsep.join(map(str, paths)),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except ConfigException as error:
        raise SourceError(
            f"kubeconfig {paths[0]}: the credential plugin of context {context!r} failed",
            cure="kubectl get --raw /version with the same context shows the plugin's words",
        ) from error
    header = configuration.api_key.get("authorization", "")
    static = _static(cluster, ({}, cluster[1]))
    cert = (configuration.cert_file, configuration.key_file)
    return replace(
        static,
        token=header.removeprefix("Bearer ") or None,
        cert=cert if all(cert) else None,
    )


# --------------------------------------------------------------------------------------------------
# The transport
# --------------------------------------------------------------------------------------------------


class _Api:
    """One user's way to one API server; safe for several threads."""

    def __init__(self, access: KubeAccess) -> None:
        import urllib3

        credentials = _credentials(access)
        self.server = credentials.server
        self._headers = {"Accept": "application/json", "User-Agent": "rbdagent"}
        if credentials.token:
            self._headers["Authorization"] = f"Bearer {credentials.token}"
        arguments: Json = {
            "timeout": urllib3.Timeout(connect=min(access.timeout_s, 5.0), read=access.timeout_s),
            "retries": False,
            "maxsize": _THREADS,
            "ssl_context": _tls(credentials),
        }
        if credentials.server_name:
            arguments |= {
                "server_hostname": credentials.server_name,
                "assert_hostname": credentials.server_name,
            }
        self._pool: urllib3.PoolManager = (
            urllib3.ProxyManager(credentials.proxy, **arguments)
            if credentials.proxy
            else urllib3.PoolManager(**arguments)
        )
        self._timeout_s = access.timeout_s

    def get(self, path: str, *, accept: str | None = None, **query: str | int) -> Json:
        """GET one path.

        Raises:
            SourceError: no answer, or none that is JSON.
            _StatusError: an error status.
        """
        return self._request("GET", path, query, accept=accept)

    def create(self, path: str, body: Json) -> Json:
        """POST a review: it asks, it stores nothing."""
        return self._request("POST", path, {}, body=body)

    def items(self, path: str, **query: str | int) -> list[Json]:
        """GET every page of a list; a page that fails fails the list."""
        found: list[Json] = []
        more = ""
        while True:
            paging: dict[str, str | int] = {"limit": _PAGE}
            if more:
                paging["continue"] = more
            page = self._request("GET", path, {**query, **paging})
            items = page.get("items")
            if not isinstance(items, list):
                raise SourceError(f"GET {path}: the answer is no list")
            found += items
            more = (page.get("metadata") or {}).get("continue") or ""
            if not more:
                return found

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        *,
        body: Json | None = None,
        accept: str | None = None,
    ) -> Json:
        import urllib3

        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = dict(self._headers)
        if accept:
            headers["Accept"] = accept
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = self._pool.request(
                method, url, headers=headers, body=None if body is None else json.dumps(body)
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._no_answer(method, path, error) from error
        if answer.status >= _UNAUTHORIZED - 1:
            raise _refused(method, path, answer.status, answer.data)
        try:
            data = json.loads(answer.data)
        except ValueError as error:
            raise SourceError(
                f"{method} {self.server}{path}: the answer is not JSON",
                cure="is that the API server? kubectl cluster-info tells its address",
            ) from error
        if not isinstance(data, dict):
            raise SourceError(f"{method} {self.server}{path}: the answer is no object")
        return data

    def _no_answer(self, method: str, path: str, error: Exception) -> SourceError:
        import urllib3

        # In urllib3 1.26 a refused connection is a kind of timeout.
        refused = isinstance(error, urllib3.exceptions.NewConnectionError)
        if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
            what = f"no answer within {self._timeout_s:g} s"
        elif isinstance(error, urllib3.exceptions.SSLError):
            what = f"TLS failed: {error}"
        else:
            what = _plain(error)
        return SourceError(
            f"{method} {self.server}{path}: {what}",
            cure="kubectl get --raw /readyz shows whether the API server is up",
        )


def _plain(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def _tls(credentials: _Credentials) -> object:
    import ssl
    import tempfile

    try:
        context = ssl.create_default_context(
            cafile=credentials.ca_file,
            cadata=credentials.ca_data.decode() if credentials.ca_data else None,
        )
        # urllib3 1.26 names no host to ssl for an IP address, and matches the name itself.
        context.check_hostname = False
        if not credentials.verify:
            context.verify_mode = ssl.CERT_NONE
        if credentials.cert is not None:
            context.load_cert_chain(*credentials.cert)
        elif credentials.cert_data is not None:
            # ssl reads certificates from files only; the file is gone before anything else runs.
            with tempfile.NamedTemporaryFile() as both:
                both.write(b"\n".join(credentials.cert_data))
                both.flush()
                context.load_cert_chain(both.name)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"certificates for {credentials.server} cannot be used: {error}",
            cure="correct the kubeconfig's certificate-authority, client-certificate, client-key",
        ) from error
    return context


def _refused(method: str, path: str, status: int, raw: bytes) -> _StatusError:
    try:
        message = str(json.loads(raw)["message"])
    except (ValueError, KeyError, TypeError):
        message = raw.decode(errors="replace")[:200]
    cure = ""
    if status == _UNAUTHORIZED:
        message = "the API server does not accept the credentials (401 Unauthorized)"
        cure = "the token or certificate is wrong or expired: log in again, or renew the kubeconfig"
    elif status == _FORBIDDEN:
        cure = f"grant it (docs/privileges.md); kubectl auth can-i {_can_i(path)} tells"
    return _StatusError(f"{method} {path}: {message}", status=status, cure=cure)


def _can_i(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    known = [
        part
        for part in parts
        if part in {"pods", "nodes", "events", "csinodes", "persistentvolumes"}
        or part in {"persistentvolumeclaims", "volumeattachments"}
    ]
    resource = known[-1] if known else parts[-1]
    return f"{'list' if parts[-1] == resource else 'get'} {resource}"


# --------------------------------------------------------------------------------------------------
# The look
# --------------------------------------------------------------------------------------------------

_PV: Final = "/api/v1/persistentvolumes"
_NODES: Final = "/api/v1/nodes"
_CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
_ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"


def observe_kube(
    access: KubeAccess, target: Target, *, node_name: str, images: Sequence[ImageIdentity] = ()
) -> tuple[KubeView | None, Source]:
    """Ask the API for what belongs to the target.

    Args:
        access: where and as whom.
        target: what the user named; for an image, handle or device every PV is listed.
        node_name: this node, for its pods and its attachments.
        images: what the node's devices are, when the target is a device.

    Returns:
        The view, or None with the reason why there is none. A kind that alone was refused is
        NotObserved in the view and a gap of the source.

    Raises:
        NotFoundError: the API answered, and the object that the target names is not there.
    """
    del images  # PVs are matched by the pure core; the list is the same for every image.
    try:
        api = _Api(access)
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            view = _Look(api, pool, node_name).view(target)
    except NotFoundError:
        raise
    except (SourceError, ParseError) as error:
        return None, Source(state=SourceState.FAILED, reason=str(error), cure=error.hint)
    return view, Source(state=SourceState.OBSERVED, gaps=_gaps(view))


class _Look:
    """One look at the API: what is found leads to what is asked next."""

    def __init__(
        self, api: _Api, pool: concurrent.futures.ThreadPoolExecutor, node_name: str
    ) -> None:
        self._api = api
        self._pool = pool
        self._node_name = node_name

    def view(self, target: Target) -> KubeView:
        attachments = self._later(lambda: self._list(_ATTACHMENTS, read.attachment))
        all_nodes = self._later(lambda: self._list(_NODES, read.node))
        all_csi_nodes = self._later(lambda: self._list(_CSI_NODES, read.csi_node))
        own_pods = self._later(self._pods_of_node)
        volumes, claims, pods = self._start(target)
        meant = _meant(target, _some(volumes))
        namespaces = _namespaces(meant, claims, pods)
        listed = [self._later(lambda ns=each: self._pods_in(ns)) for each in namespaces]  # type: ignore[misc]
        parts = [own_pods.result(), *(each.result() for each in listed)]
        scopes = [f"node/{self._node_name}", *(f"namespace/{each}" for each in namespaces)]
        found_pods, scope = _joined(pods, parts, scopes)
        found_attachments = self._attachments(attachments.result(), volumes, found_pods)
        names = _node_names(self._node_name, found_pods, found_attachments)
        listed_nodes = all_nodes.result()
        if isinstance(claims, tuple):
            claims = self._claims_of_volumes(meant, claims)
        return KubeView(
            server=self._api.server,
            persistent_volumes=volumes,
            claims=claims,
            pods=found_pods,
            nodes=self._named(listed_nodes, _NODES, names, read.node),
            csi_nodes=self._named(all_csi_nodes.result(), _CSI_NODES, names, read.csi_node),
            attachments=found_attachments,
            events=self._events(target, meant, claims, found_pods),
            nodes_complete=isinstance(listed_nodes, tuple),
            pods_scope=scope,
        )

    def _later(self, call: Callable[[], _T]) -> concurrent.futures.Future[_T]:
        return self._pool.submit(call)

    def _list(
        self, path: str, reader: Callable[[Json], _T], **query: str | int
    ) -> tuple[_T, ...] | NotObserved:
        try:
            items = self._api.items(path, **query)
            return tuple(read.parse_object(reader, each, what=path) for each in items)
        except (SourceError, ParseError) as error:
            return _not_observed(error)

    def _get(self, path: str, reader: Callable[[Json], _T]) -> _T:
        return read.parse_object(reader, self._api.get(path), what=path)

    def _find(self, path: str, reader: Callable[[Json], _T]) -> _T | NotObserved | None:
        try:
            return self._get(path, reader)
        except _StatusError as error:
            return None if error.status == _NOT_FOUND else _not_observed(error)
        except (SourceError, ParseError) as error:
            return _not_observed(error)

    # The objects that the target names ------------------------------------------------------------

    def _start(
        self, target: Target
    ) -> tuple[
        tuple[PersistentVolume, ...] | NotObserved,
        tuple[Claim, ...] | NotObserved,
        tuple[Pod, ...],
    ]:
        match target.kind:
            case TargetKind.PERSISTENT_VOLUME:
                return (
                    (self._must(f"{_PV}/{quote(target.name)}", target, read.persistent_volume),),
                    (),
                    (),
                )
            case TargetKind.CLAIM:
                claim = self._must(_claim_path(target.namespace, target.name), target, read.claim)
                return self._volumes_of((claim,)), (claim,), ()
            case TargetKind.POD:
                path = f"/api/v1/namespaces/{quote(target.namespace)}/pods/{quote(target.name)}"
                pod = self._must(path, target, read.pod)
                found = [
                    self._find(_claim_path(target.namespace, name), read.claim)
                    for name in pod.claims
                ]
                claims = _all(found)
                volumes = claims if isinstance(claims, NotObserved) else self._volumes_of(claims)
                return volumes, claims, (pod,)
            case _:
                return self._list(_PV, read.persistent_volume), (), ()

    def _must(self, path: str, target: Target, reader: Callable[[Json], _T]) -> _T:
        try:
            return self._get(path, reader)
        except _StatusError as error:
            if error.status != _NOT_FOUND:
                raise
            near = near_names(self._api, target)
            raise NotFoundError(
                f"{target.given}: {self._api.server} has no such {_KIND_WORDS[target.kind]}",
                hint=_did_you_mean(target, near),
                near=near,
            ) from error

    def _volumes_of(self, claims: Iterable[Claim]) -> tuple[PersistentVolume, ...] | NotObserved:
        names = dict.fromkeys(each.volume_name for each in claims if each.volume_name)
        return _all([self._find(f"{_PV}/{quote(name)}", read.persistent_volume) for name in names])

    def _claims_of_volumes(
        self, volumes: tuple[PersistentVolume, ...], known: tuple[Claim, ...]
    ) -> tuple[Claim, ...] | NotObserved:
        """Read the claims that the target's PVs refer to."""
        have = {(each.ref.namespace, each.ref.name) for each in known}
        wanted = {
            (each.claim.namespace, each.claim.name) for each in volumes if each.claim is not None
        }
        found = _all([self._find(_claim_path(*each), read.claim) for each in sorted(wanted - have)])
        return found if isinstance(found, NotObserved) else known + found

    # What belongs to them -------------------------------------------------------------------------

    def _pods_of_node(self) -> tuple[Pod, ...] | NotObserved:
        return self._list(
            "/api/v1/pods", read.pod, fieldSelector=f"spec.nodeName={self._node_name}"
        )

    def _pods_in(self, namespace: str) -> tuple[Pod, ...] | NotObserved:
        return self._list(f"/api/v1/namespaces/{quote(namespace)}/pods", read.pod)

    def _attachments(
        self,
        listed: tuple[Attachment, ...] | NotObserved,
        volumes: tuple[PersistentVolume, ...] | NotObserved,
        pods: tuple[Pod, ...] | NotObserved,
    ) -> tuple[Attachment, ...] | NotObserved:
        """Where the list is forbidden, ask by name for this node's and the pods' nodes'."""
        if not isinstance(listed, NotObserved) or isinstance(volumes, NotObserved):
            return listed
        if len(volumes) > _MOST_EVENT_SUBJECTS:
            return listed
        nodes = _node_names(self._node_name, pods, ())
        names = [
            attachment_name(each.source.volume_handle, each.source.driver, node)
            for each in volumes
            if isinstance(each.source, CsiSource)
            for node in nodes
        ]
        found = [self._find(f"{_ATTACHMENTS}/{name}", read.attachment) for name in names]
        some = tuple(each for each in found if isinstance(each, Attachment))
        # Absent by name on some nodes says nothing about the others.
        return some or listed

    def _named(
        self,
        listed: tuple[_T, ...] | NotObserved,
        path: str,
        names: Iterable[str],
        reader: Callable[[Json], _T],
    ) -> tuple[_T, ...] | NotObserved:
        """Where the list is forbidden, ask for those that are known by name."""
        if not isinstance(listed, NotObserved):
            return listed
        found = _all([self._find(f"{path}/{quote(name)}", reader) for name in names])
        return listed if isinstance(found, NotObserved) else found

    def _events(
        self,
        target: Target,
        meant: tuple[PersistentVolume, ...],
        claims: tuple[Claim, ...] | NotObserved,
        pods: tuple[Pod, ...] | NotObserved,
    ) -> tuple[KubeEvent, ...] | NotObserved:
        subjects = [("default", each.name) for each in meant]
        wanted = {(each.ref.namespace, each.ref.name) for each in _some(claims)}
        subjects += sorted(wanted)
        using = [
            each
            for each in _some(pods)
            if any((each.ref.namespace, name) in wanted for name in each.claims)
            or (target.kind is TargetKind.POD and each.ref.name == target.name)
        ]
        subjects += [(each.ref.namespace, each.ref.name) for each in using]
        asked = [
            self._later(lambda ns=namespace, name=name: self._events_of(ns, name))  # type: ignore[misc]
            for namespace, name in dict.fromkeys(subjects[:_MOST_EVENT_SUBJECTS])
        ]
        parts = [each.result() for each in asked]
        missing = next((each for each in parts if isinstance(each, NotObserved)), None)
        found = tuple(
            event for part in parts if not isinstance(part, NotObserved) for event in part
        )
        return missing if missing is not None and not found else found

    def _events_of(self, namespace: str, name: str) -> tuple[KubeEvent, ...] | NotObserved:
        return self._list(
            f"/api/v1/namespaces/{quote(namespace)}/events",
            read.event,
            fieldSelector=f"involvedObject.name={name}",
        )


_KIND_WORDS: Final = {
    TargetKind.PERSISTENT_VOLUME: "PersistentVolume",
    TargetKind.CLAIM: "PersistentVolumeClaim",
    TargetKind.POD: "Pod",
}


def _claim_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(name)}"


def _some(found: tuple[_T, ...] | NotObserved) -> tuple[_T, ...]:
    return () if isinstance(found, NotObserved) else found


def _all(found: Sequence[_T | NotObserved | None]) -> tuple[_T, ...] | NotObserved:
    """Give what is there; one that was not observed makes the whole not observed."""
    for each in found:
        if isinstance(each, NotObserved):
            return each
    return tuple(each for each in found if each is not None and not isinstance(each, NotObserved))


def _not_observed(error: SourceError | ParseError) -> NotObserved:
    return NotObserved(reason=str(error), cure=error.hint)


def _namespaces(
    meant: tuple[PersistentVolume, ...],
    claims: tuple[Claim, ...] | NotObserved,
    pods: tuple[Pod, ...],
) -> tuple[str, ...]:
    """Give the namespaces where users of the target may live."""
    found = {each.claim.namespace for each in meant if each.claim is not None}
    found |= {each.ref.namespace for each in _some(claims)}
    found |= {each.ref.namespace for each in pods}
    return tuple(sorted(found))


def _meant(target: Target, volumes: tuple[PersistentVolume, ...]) -> tuple[PersistentVolume, ...]:
    """Give the PVs that the target means: of all PVs those of the image, or with the handle.

    Which image a device is only the node knows: its pods are on this node, and these are listed.
    """
    match target.kind:
        case TargetKind.IMAGE:
            return tuple(each for each in volumes if _has_image(each, target.image))
        case TargetKind.VOLUME_HANDLE:
            return tuple(
                each
                for each in volumes
                if isinstance(each.source, CsiSource) and each.source.volume_handle == target.name
            )
        case TargetKind.DEVICE | TargetKind.NONE:
            return ()
        case _:
            return volumes


def _has_image(volume: PersistentVolume, spec: ImageSpec | None) -> bool:
    image = image_of(volume)
    if image is None or spec is None or isinstance(image, NotObserved):
        return False
    # A handle without volumeAttributes tells the pool by its id alone.
    return image.spec.name == spec.name and image.spec.pool in {"", spec.pool}


def _joined(
    known: tuple[Pod, ...], parts: Sequence[tuple[Pod, ...] | NotObserved], scopes: Sequence[str]
) -> tuple[tuple[Pod, ...] | NotObserved, str]:
    """Join lists of pods; the scope names the lists that were observed."""
    observed: list[tuple[tuple[Pod, ...], str]] = []
    for part, scope in zip(parts, scopes, strict=True):
        if not isinstance(part, NotObserved):
            observed.append((part, scope))
    if not observed:
        first = parts[0]
        return (first if isinstance(first, NotObserved) else known), ""
    pods = {(each.ref.namespace, each.ref.name): each for each in known}
    for part, _ in observed:
        pods |= {(each.ref.namespace, each.ref.name): each for each in part}
    return tuple(pods.values()), ",".join(scope for _, scope in observed)


def _node_names(
    own: str,
    pods: tuple[Pod, ...] | NotObserved,
    attachments: tuple[Attachment, ...] | NotObserved,
) -> tuple[str, ...]:
    names = [own, *(each.node_name for each in _some(attachments))]
    names += [each.node_name for each in _some(pods) if each.node_name]
    return tuple(dict.fromkeys(names))


def near_names(api: _Api, target: Target) -> tuple[str, ...]:
    """Give names of the same kind that come close to a name that is not there."""
    paths = {
        TargetKind.PERSISTENT_VOLUME: _PV,
        TargetKind.CLAIM: f"/api/v1/namespaces/{quote(target.namespace)}/persistentvolumeclaims",
        TargetKind.POD: f"/api/v1/namespaces/{quote(target.namespace)}/pods",
    }
    try:
        page = api.get(paths[target.kind], accept=_METADATA_ONLY, limit=_PAGE)
        names = [str(each["metadata"]["name"]) for each in page.get("items") or ()]
    except (SourceError, KeyError, TypeError):
        return ()
    close = difflib.get_close_matches(target.name, names, n=3, cutoff=_CLOSE)
    inside = [name for name in names if target.name and target.name in name][:3]
    return tuple(dict.fromkeys([*inside, *close]))[:3]


def _did_you_mean(target: Target, near: tuple[str, ...]) -> str:
    if not near:
        return f"kubectl get {target.kind} -A lists what there is"
    return "did you mean " + " or ".join(f"{target.kind}/{name}" for name in near) + "?"


def _gaps(view: KubeView) -> tuple[Gap, ...]:
    kinds = {
        "PersistentVolumes": view.persistent_volumes,
        "PersistentVolumeClaims": view.claims,
        "pods": view.pods,
        "nodes": view.nodes,
        "CSINodes": view.csi_nodes,
        "VolumeAttachments": view.attachments,
        "events": view.events,
    }
    return tuple(
        Gap(fact=fact, reason=value.reason, cure=value.cure)
        for fact, value in kinds.items()
        if isinstance(value, NotObserved)
    )


# --------------------------------------------------------------------------------------------------
# check
# --------------------------------------------------------------------------------------------------

_NEEDED: Final = (
    ("get", "", "persistentvolumes"),
    ("list", "", "persistentvolumes"),
    ("get", "", "persistentvolumeclaims"),
    ("list", "", "pods"),
    ("get", "", "nodes"),
    ("list", "", "nodes"),
    ("list", "storage.k8s.io", "volumeattachments"),
    ("get", "storage.k8s.io", "csinodes"),
    ("list", "", "events"),
)
_HELPFUL: Final = frozenset({("list", "nodes"), ("get", "csinodes"), ("list", "events")})
"""Without these the answer is poorer but never wrong."""


def check_kube(access: KubeAccess, node_name: str) -> tuple[CheckResult, ...]:
    """Ask the API server what this user may do (SelfSubjectAccessReview)."""
    source = "kubernetes"
    try:
        api = _Api(access)
        version = api.get("/version")
    except SourceError as error:
        sentence = "the Kubernetes API answers"
        return (
            CheckResult(
                source=source,
                sentence=sentence,
                state=CheckState.FAILED,
                detail=str(error),
                hint=error.cure,
            ),
        )
    results = [
        CheckResult(
            source=source,
            sentence="the Kubernetes API answers",
            state=CheckState.OK,
            detail=f"{api.server}, {version.get('gitVersion', '')}",
        )
    ]
    results += [_may(api, *each) for each in _NEEDED]
    results.append(_own_node(api, node_name))
    return tuple(results)


def _may(api: _Api, verb: str, group: str, resource: str) -> CheckResult:
    sentence = f"this user may {verb} {resource}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
    }
    try:
        answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    except SourceError as error:
        return CheckResult(
            source="kubernetes",
            sentence=sentence,
            state=CheckState.FAILED,
            detail=str(error),
            hint=error.cure,
        )
    if (answer.get("status") or {}).get("allowed"):
        return CheckResult(source="kubernetes", sentence=sentence, state=CheckState.OK)
    optional = (verb, resource) in _HELPFUL
    qualified = f"{resource}.{group}" if group else resource
    return CheckResult(
        source="kubernetes",
        sentence=sentence,
        state=CheckState.WARNING if optional else CheckState.FAILED,
        detail="not allowed",
        hint=f"kubectl create clusterrole rbdagent-{verb}-{resource} --verb={verb} "
        f"--resource={qualified}, and bind it to this user",
    )


def _own_node(api: _Api, node_name: str) -> CheckResult:
    sentence = f"a Node is named {node_name}"
    try:
        api.get(f"{_NODES}/{quote(node_name)}")
    except SourceError as error:
        return CheckResult(
            source="kubernetes",
            sentence=sentence,
            state=CheckState.FAILED,
            detail=str(error),
            hint="pass --node-name with this node's name in Kubernetes",
        )
    return CheckResult(source="kubernetes", sentence=sentence, state=CheckState.OK)
