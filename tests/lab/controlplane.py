"""A real Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager.

There is no scheduler: pods set ``spec.nodeName``. Users authenticate by tokens. The kubeconfig of
each user is written below the state directory; rbdagent's has exactly the rights that its manual
asks for.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shutil
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from tests.lab.addresses import HOST, IPV4, Family, bracketed
from tests.lab.api import Api, Json
from tests.lab.errors import LabError
from tests.lab.install import CHECKOUT
from tests.lab.laptop import Laptop
from tests.lab.processes import Process, Processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

API_PORT = 443
_ETCD = "127.0.0.1:2379"
_READY_S = 90.0

# The controllers for pods, nodes and volumes. Those that only cost time here are left out:
# quota, autoscaling, endpoints, certificates, jobs.
_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "daemonset-controller",
    "deployment-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
)

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OUR_CRDS = tuple(
    CHECKOUT / "helm" / "rbdagent" / "files" / name
    for name in ("rbdnodes.yaml", "rbdmappings.yaml")
)
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NAMESPACES = "/api/v1/namespaces"
RBDAGENT_ROLE = "lab-rbdagent"
"""Another name than the chart's role: the chart can be installed next to it."""
RBDAGENT_RULES: tuple[Json, ...] = (
    {
        "apiGroups": [""],
        "resources": ["nodes", "persistentvolumes", "persistentvolumeclaims"],
        "verbs": ["get", "list"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["storage.k8s.io"],
        "resources": ["volumeattachments", "csinodes", "csidrivers", "storageclasses"],
        "verbs": ["get", "list"],
    },
    {
        "apiGroups": ["snapshot.storage.k8s.io"],
        "resources": ["volumesnapshotcontents"],
        "verbs": ["list"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["replicasets", "deployments", "statefulsets"],
        "verbs": ["get", "list"],
    },
    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["list"]},
    {
        "apiGroups": ["kubevirt.io"],
        "resources": ["virtualmachineinstancemigrations"],
        "verbs": ["list"],
    },
    {
        "apiGroups": ["replication.storage.openshift.io"],
        "resources": ["volumereplications"],
        "verbs": ["list"],
    },
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "create", "patch"]},
    {
        "apiGroups": ["rbdagent.dev"],
        "resources": ["rbdnodes"],
        "verbs": ["get", "list", "watch", "create", "patch"],
    },
    {
        "apiGroups": ["rbdagent.dev"],
        "resources": ["rbdmappings"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]},
)
"""What the chart grants to an agent in mode unmap, and no more: a test that needs more has found a
fault (tests/integration/test_chart.py keeps both the same)."""
LEASE_RULES: tuple[Json, ...] = (
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "patch"],
    },
)
"""What the chart grants in the namespace of the agents' Leases, also kept the same."""
_LEASES_IN = "rbdagent"
"""The default of --lease-namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _User:
    """A user with a token; ``kubeconfig`` is the stem of the file."""

    kubeconfig: str
    name: str
    groups: tuple[str, ...] = ()


class ControlPlane:
    """The control plane of one lab, in its network namespace; API server on the bridge.

    Args:
        processes: start and stop the programs.
        netns: the network namespace; its ``lo`` is up and its bridge has an address.
        state_dir: takes certificates, kubeconfigs and etcd's files.
        bin_dir: has kube-apiserver, kube-controller-manager and kubectl.
        family: of the addresses of the API server, the services and the nodes' first.
        nodes: names for which a kubelet's kubeconfig is written.
    """

    def __init__(
        self,
        processes: Processes,
        netns: str,
        state_dir: Path,
        bin_dir: Path,
        *,
        family: Family = IPV4,
        nodes: Sequence[str] = ("worker-1", "worker-2"),
    ) -> None:
        self._processes = processes
        self.netns = netns
        self._dir = state_dir
        self._bin = bin_dir
        self._family = family
        self._address = family.machine(HOST)
        self._nodes = tuple(nodes)
        self._api: Api | None = None
        self._making_api = threading.Lock()

    @property
    def url(self) -> str:
        """The URL of the API server, inside the network namespace."""
        return f"https://{bracketed(self._address)}:{API_PORT}"

    @property
    def ca(self) -> Path:
        """The certificate authority of the API server."""
        return self._dir / "ca.crt"

    @property
    def api(self) -> Api:
        """The administrator's client; connects on first use."""
        with self._making_api:
            if self._api is None:
                self._api = self.client("admin")
            return self._api

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of ``admin``, ``csi``, ``rbdagent``, ``stranger`` or a node's name.

        ``stranger`` is authenticated and has no rights (403); ``expired`` has an unknown token
        (401).
        """
        return self._dir / f"{user}.kubeconfig"

    def client(self, user: str) -> Api:
        """Return a client for ``user``; the caller closes it."""
        token = (self._dir / f"{user}.token").read_text()
        return Api(host=self._address, port=API_PORT, token=token, ca=self.ca, netns=self.netns)

    def start(self) -> None:
        """Start the three programs.

        The controller manager waits ten seconds for the API server, and then ends: on a busy
        machine that is too short, so it starts when the API server answers.
        """
        self._dir.mkdir(parents=True, exist_ok=True)
        _make_certificates(self._dir, self._family)
        self._write_users()
        self._start_etcd()
        self._start_apiserver()
        self._wait_for_apiserver()
        self._start_controller_manager()

    def _wait_for_apiserver(self) -> None:
        wait_until(
            self.api.ready,
            timeout_s=_READY_S,
            what="the API server to be ready",
            process=self._part("kube-apiserver"),
        )

    def wait_ready(self) -> None:
        """Wait until pods can be created, and grant rbdagent its rights.

        Raises:
            LabError: a program ended or was not ready in time.
        """
        self._wait_for_apiserver()
        self._grant()
        self.define_rbdnodes()
        wait_until(
            lambda: self.api.find("/api/v1/namespaces/default/serviceaccounts/default"),
            timeout_s=_READY_S,
            what="the default service account, without which no pod is admitted",
            process=self._part("kube-controller-manager"),
        )

    def define_rbdnodes(self) -> None:
        """Create the CustomResourceDefinitions of agents, and the namespace of their Leases."""
        for path in _OUR_CRDS:
            self.api.create(_CRDS, yaml.safe_load(path.read_text()))
        if self.api.find(f"{_NAMESPACES}/{_LEASES_IN}") is None:
            self.api.create(_NAMESPACES, {"metadata": {"name": _LEASES_IN}})
        roles = f"{_RBAC}/namespaces/{_LEASES_IN}/roles"
        if self.api.find(f"{roles}/{RBDAGENT_ROLE}") is None:
            named = {"metadata": {"name": RBDAGENT_ROLE}}
            self.api.create(roles, named | {"rules": list(LEASE_RULES)})
            self.api.create(
                f"{_RBAC}/namespaces/{_LEASES_IN}/rolebindings", named | _bound_to("Role")
            )

    def forget_rbdnodes(self) -> None:
        """Delete the definitions, and every object of them."""
        names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in _OUR_CRDS]
        for name in names:
            self.api.delete(f"{_CRDS}/{name}")
        wait_until(
            lambda: all(self.api.find(f"{_CRDS}/{name}") is None for name in names),
            timeout_s=_READY_S,
            what="what agents published to be forgotten",
        )

    def stop(self) -> None:
        """Stop the three programs."""
        self.close()
        for part in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self._processes.stop(part)

    def close(self) -> None:
        """Close the connection; the programs keep running."""
        if self._api is not None:
            self._api.close()
            self._api = None

    def kubectl(self, *args: str, stdin: str = "", user: str = "admin") -> str:
        """Run kubectl as ``user`` and return what it printed.

        Raises:
            LabError: kubectl failed; the message has its output.
        """
        return self.laptop(user).done("kubectl", *args, stdin=stdin)

    def laptop(self, user: str = "admin") -> Laptop:
        """Return the machine of a user who uses the API server as ``user``."""
        return Laptop(self.netns, self.kubeconfig(user), self._dir)

    def restart_controller_manager(self) -> None:
        """Restart kube-controller-manager: it loses its cached state of volumes in use."""
        with self.controller_manager_stopped():
            pass

    @contextlib.contextmanager
    def controller_manager_stopped(self) -> Iterator[None]:
        """Stop kube-controller-manager during the block."""
        self._processes.stop("kube-controller-manager")
        try:
            yield
        finally:
            self._start_controller_manager()

    def _part(self, name: str) -> Process:
        process = self._processes.get(name)
        if process is None:
            raise LabError(f"{name} was not started")
        return process

    def _users(self) -> tuple[_User, ...]:
        return (
            _User(kubeconfig="admin", name="lab:admin", groups=("system:masters",)),
            _User(kubeconfig="csi", name="lab:csi-controller", groups=("system:masters",)),
            _User(kubeconfig="rbdagent", name="lab:rbdagent"),
            _User(kubeconfig="stranger", name="lab:stranger"),
            *(
                _User(kubeconfig=node, name=f"system:node:{node}", groups=("system:nodes",))
                for node in self._nodes
            ),
        )

    def _write_users(self) -> None:
        lines = []
        for user in self._users():
            token = secrets.token_hex(16)
            groups = ",".join(user.groups)
            lines.append(f'{token},{user.name},{user.kubeconfig},"{groups}"\n')
            self.write_kubeconfig(user.kubeconfig, token)
        self.write_kubeconfig("expired", secrets.token_hex(16))
        tokens = self._dir / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("".join(lines))

    def write_kubeconfig(self, user: str, token: str) -> None:
        """Write a kubeconfig with this token, for :meth:`kubeconfig` and :meth:`client`."""
        # Inline, so that the file alone is enough for a guest.
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "users": [{"name": user, "user": {"token": token}}],
        }
        path = self.kubeconfig(user)
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1))  # JSON is YAML
        token_file = self._dir / f"{user}.token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)

    def _start_etcd(self) -> None:
        data = self._dir / "etcd"
        shutil.rmtree(data, ignore_errors=True)
        self._processes.start(
            "etcd",
            [
                "etcd",
                "--name=lab",
                f"--data-dir={data}",
                f"--listen-client-urls=http://{_ETCD}",
                f"--advertise-client-urls=http://{_ETCD}",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--unsafe-no-fsync",
                "--logger=zap",
            ],
            netns=self.netns,
        )

    def _start_apiserver(self) -> None:
        here = self._dir
        self._processes.start(
            "kube-apiserver",
            [
                self._bin / "kube-apiserver",
                f"--etcd-servers=http://{_ETCD}",
                f"--advertise-address={self._address}",
                f"--bind-address={self._family.every_address}",
                # No component resolves the nodes' names here.
                "--kubelet-preferred-address-types=InternalIP",
                f"--secure-port={API_PORT}",
                f"--tls-cert-file={here / 'apiserver.crt'}",
                f"--tls-private-key-file={here / 'apiserver.key'}",
                f"--token-auth-file={here / 'tokens.csv'}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={here / 'serviceaccount.key'}",
                f"--service-account-signing-key-file={here / 'serviceaccount.key'}",
                f"--service-cluster-ip-range={self._family.services}",
                "--allow-privileged=true",
                "--profiling=false",
            ],
            netns=self.netns,
        )

    def _start_controller_manager(self) -> None:
        self._processes.start(
            "kube-controller-manager",
            [
                self._bin / "kube-controller-manager",
                f"--kubeconfig={self.kubeconfig('admin')}",
                "--leader-elect=false",
                "--secure-port=0",
                f"--controllers={','.join(_CONTROLLERS)}",
                f"--service-account-private-key-file={self._dir / 'serviceaccount.key'}",
                f"--root-ca-file={self.ca}",
                # Short, so that an incident does not take minutes to appear.
                "--attach-detach-reconcile-sync-period=1s",
                "--pvclaimbinder-sync-period=2s",
                "--node-monitor-grace-period=40s",
                "--profiling=false",
                "--v=2",
            ],
            netns=self.netns,
        )

    def _grant(self) -> None:
        self.api.create(
            f"{_RBAC}/clusterroles",
            {"metadata": {"name": RBDAGENT_ROLE}, "rules": list(RBDAGENT_RULES)},
        )
        self.api.create(
            f"{_RBAC}/clusterrolebindings",
            {"metadata": {"name": RBDAGENT_ROLE}} | _bound_to("ClusterRole"),
        )


def _bound_to(kind: str) -> Json:
    """Return the body of a binding of rbdagent's user to its role of a kind."""
    group = "rbac.authorization.k8s.io"
    return {
        "roleRef": {"apiGroup": group, "kind": kind, "name": RBDAGENT_ROLE},
        "subjects": [{"kind": "User", "name": "lab:rbdagent", "apiGroup": group}],
    }


def _make_certificates(directory: Path, family: Family) -> None:
    """Create a certificate authority, the API server's certificate and the service accounts' key.

    The API server could sign its own (--cert-dir), but Python 3.13 checks strictly (RFC 5280) and
    refuses what Go writes there: no key identifiers.
    """
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    valid = ("-x509", "-days", "30", "-sha256")
    _openssl(
        *("req", *valid, *key, "-subj", "/CN=lab-ca"),
        *("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.crt")),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    addresses = (family.machine(HOST), "127.0.0.1", family.api_service)
    names = ",".join(f"IP:{address}" for address in addresses)
    names += ",DNS:kubernetes.default.svc,DNS:localhost"
    extensions = directory / "apiserver.ext"
    extensions.write_text(
        f"subjectAltName={names}\n"
        "basicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth\n"
        "subjectKeyIdentifier=hash\n"
        "authorityKeyIdentifier=keyid\n"
    )
    request = directory / "apiserver.csr"
    _openssl(
        *("req", "-new", *key, "-subj", "/CN=kube-apiserver"),
        *("-keyout", str(directory / "apiserver.key"), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-days", "30", "-sha256", "-CAcreateserial"),
        *("-CA", str(directory / "ca.crt"), "-CAkey", str(directory / "ca.key")),
        *("-extfile", str(extensions), "-out", str(directory / "apiserver.crt")),
    )
    _openssl(
        *("ecparam", "-name", "prime256v1", "-genkey", "-noout"),
        *("-out", str(directory / "serviceaccount.key")),
    )


def _openssl(*args: str) -> None:
    done = subprocess.run(
        ["openssl", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"openssl {args[0]}: {done.stderr.strip()}")
