"""Simulated nodes: the writes of a thousand agents and kubelets to a real API server.

Every agent is the real publisher with a status of the real report, and has the token of a separate
pod; every kubelet renews its node's Lease. All requests go to the API server of the network
namespace in which this process runs.
"""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import pycurl

from rbdagent.agent.heartbeat import Heartbeat
from rbdagent.agent.publish import Publisher
from rbdagent.agent.publish_mappings import MappingPublisher
from rbdagent.collect.kube.client import Api
from rbdagent.collect.kube.connection import Connection as OneConnection
from rbdagent.collect.kube.kubeconfig import KubeAccess, credentials
from rbdagent.collect.kube.list_reports import FoundMappings, mappings_with, reports_about
from rbdagent.collect.kube.requests import RBD_NODES
from rbdagent.correlate import correlate_node
from rbdagent.correlate.published_reports import further_lookup, lookup_of_image
from rbdagent.model import (
    BootTime,
    CephView,
    CsiImageMeta,
    CsiSource,
    DeviceNumber,
    History,
    ImageSpec,
    MappingHistory,
    NotObserved,
    ObjectRef,
    PublishedNode,
    Snapshot,
    TargetKind,
    separated,
)
from rbdagent.parse import labels
from rbdagent.parse.handle import staging_hash
from rbdagent.report.rbdmapping import mapping_statuses, rbdmapping_objects, without_none
from rbdagent.report.rbdnode import rbdnode_object, rbdnode_status
from rbdagent.rules import diagnose
from rbdagent.unmap.orphan_history import identity_of
from tests.lab.controlplane import RBDAGENT_ROLE
from tests.lab.errors import LabError
from tests.support import snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rbdagent.collect.kube.kubeconfig import Credentials
    from rbdagent.model import Mapping

Json = dict[str, Any]
_T = TypeVar("_T")

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NAMESPACE: Final = "rbdagent"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_TOKEN: Final = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/rbdagent/token"
_METADATA: Final = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=1"
_START: Final = datetime(2026, 11, 21, 3, tzinfo=UTC)
_TIMEOUT_S: Final = 60.0
_THREADS: Final = 8
_OK: Final = 200
_BATCH: Final = 50
"""Requests in flight at once while the cluster is created: no more than one connection's."""
_NODE_MARK: Final = "f1ee7000"
"""The place of the node in unique values; eight digits as the first group of a UUID has."""


# --------------------------------------------------------------------------------------------------
# What an agent publishes
# --------------------------------------------------------------------------------------------------


class Published(NamedTuple):
    """What an agent publishes: the status of its RBDNode, and of each RBDMapping."""

    node: Json
    mappings: list[Json]

    def rbd_node(self, at: str) -> Json:
        """Return the labels and the status of an RBDNode that names these mappings."""
        status = self.node | {"observedAt": at, "mapped": len(self.mappings)}
        return rbdnode_object(status, self.mappings)


def published_of_node(mappings: int) -> bytes:
    """Return what is published of a node whose every mapping is staged and used by a pod, as JSON.

    It is made once with the complete code path, from the snapshot to the published objects;
    :func:`for_node` turns it into that of another node.
    """
    seen = _snapshot(mappings)
    diagnoses = [diagnose(volume, seen) for volume in correlate_node(seen)]
    status = rbdnode_status(diagnoses, seen, ()) | {"leaseNamespace": _NAMESPACE}
    return msgspec.json.encode([status, mapping_statuses(diagnoses, seen, _history(seen))])


def for_node(published: bytes, number: int) -> Published:
    """Return it with names, uids and image ids that no other node has."""
    own = msgspec.json.decode(published.replace(_NODE_MARK.encode(), f"{number:08x}".encode()))
    return Published(*own)


def time_of(turn: int) -> str:
    """Return the time after so many heartbeats."""
    return f"{_START + timedelta(minutes=5 * turn):%Y-%m-%dT%H:%M:%SZ}"


def changed(status: Json, turn: int) -> Json:
    """Return a mapping that no pod uses any more; it differs at each turn."""
    gone = {"verdict": "Staged", "reasons": ["staged, and no pod uses it"], "pods": []}
    return status | gone | {"since": time_of(turn)}


def another(status: Json, turn: int) -> Json:
    """Return the mapping of another image, with another device at each turn."""
    image = status["image"]
    name = {"name": f"{image['name']}-{turn}", "id": f"{image['id']}{turn:04x}"}
    return status | {"device": f"/dev/rbd{1000 + turn}", "image": image | name}


def _snapshot(mappings: int) -> Snapshot:
    volumes = [_Volume(number) for number in range(mappings)]
    kubelet = snapshots.kubelet(staging=tuple(volume.staging() for volume in volumes))
    return snapshots.snapshot(
        target=snapshots.target(argument="", kind=TargetKind.NONE, name=""),
        node=snapshots.node_view(
            mappings=tuple(volume.mapping() for volume in volumes),
            kubelet=kubelet,
            boot_id=_uuid(0, "boot"),
        ),
        ceph=CephView(
            clusters=(snapshots.cluster(images=tuple(volume.image() for volume in volumes)),)
        ),
        kubernetes=snapshots.kube(
            persistent_volumes=tuple(volume.persistent_volume() for volume in volumes),
            claims=(),
            pods=tuple(volume.pod() for volume in volumes),
        ),
    )


class _Volume:
    """A volume in use, as each source shows it."""

    def __init__(self, number: int) -> None:
        self._number = number
        name = _uuid(number, "image")
        self._pv = f"pvc-{_uuid(number, 'volume')}"
        self._pod_uid = _uuid(number, "pod")
        self._spec = ImageSpec(pool="kubernetes", name=f"csi-vol-{name}")
        self._image_id = f"{_NODE_MARK}{number:04x}"
        # clusterID is the fsid, as ceph-csi's manual advises: length before it, then pool and name.
        self._handle = f"0001-0024-{snapshots.FSID}-0000000000000003-{name}"
        self._device = DeviceNumber(major=252, minor=16 * number)
        self._staged = (
            f"{snapshots.ROOT}/plugins/kubernetes.io/csi/{snapshots.DRIVER}/"
            f"{staging_hash(self._handle)}/globalmount/{self._handle}"
        )
        self._ref = ObjectRef(namespace="team-12", name=f"service-{number}-0", uid=self._pod_uid)

    def mapping(self) -> Mapping:
        published = f"{snapshots.ROOT}/pods/{self._pod_uid}/volumes/kubernetes.io~csi/{self._pv}"
        container = snapshots.container(self._pod_uid)
        mounts = (
            snapshots.mount(path=self._staged, device=self._device),
            snapshots.mount(path=f"{published}/mount", device=self._device),
            snapshots.mount(path="/var/lib/data", device=self._device, namespace=container),
        )
        return snapshots.mapping(
            device_id=self._number,
            device=f"/dev/rbd{self._number}",
            number=self._device,
            spec=self._spec,
            image_id=self._image_id,
            mounts=mounts,
        )

    def staging(self) -> Any:  # noqa: ANN401 - as the builders
        return snapshots.staging(
            path=self._staged,
            volume_handle=self._handle,
            handle_hash=staging_hash(self._handle),
            stash=CsiImageMeta(spec=self._spec),
        )

    def image(self) -> Any:  # noqa: ANN401 - as the builders
        return snapshots.image_view(spec=self._spec, image_id=self._image_id)

    def persistent_volume(self) -> Any:  # noqa: ANN401 - as the builders
        attributes = (("imageName", self._spec.name), ("pool", self._spec.pool))
        source = CsiSource(
            driver=snapshots.DRIVER, volume_handle=self._handle, attributes=attributes
        )
        claim = ObjectRef(namespace=self._ref.namespace, name=f"data-{self._number}")
        return snapshots.volume(name=self._pv, source=source, claim=claim)

    def pod(self) -> Any:  # noqa: ANN401 - as the builders
        return snapshots.pod(ref=self._ref, claims=(f"data-{self._number}",))


def _uuid(number: int, what: str) -> str:
    """Return a UUID that :func:`for_node` replaces by the node's own."""
    made = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{what}/{number}"))
    return f"{_NODE_MARK}{made[8:]}"


def _history(seen: Snapshot) -> History:
    at = BootTime(at=seen.observed_at, uptime_s=5000)
    mappings = seen.node.mappings if seen.node is not None else ()
    assert isinstance(mappings, tuple)
    known = tuple(
        MappingHistory(identity=identity_of(mapping), first_seen=at) for mapping in mappings
    )
    return History(boot_id="", last_observed=at, mappings=known)


# --------------------------------------------------------------------------------------------------
# The writers
# --------------------------------------------------------------------------------------------------


class Agent:
    """The agent of one node, from the moment at which it knows what to publish."""

    def __init__(self, access: KubeAccess, node: str, node_uid: str, published: Published) -> None:
        self.node = node
        self.published = published
        self._node_uid = node_uid
        self._access = access
        self._credentials = credentials(access)
        self._publisher = Publisher(access, node)
        self._mappings = MappingPublisher(access, node)
        # A heartbeat is due at once: the Lease shows the five minutes without a wait.
        self._heartbeat = Heartbeat(access, node, namespace=_NAMESPACE, interval_s=0)
        self._open: Api | None = None

    def publish(self, turn: int) -> None:
        """Write what has changed, in the order of an agent's cycle, without the Lease."""
        at = time_of(turn)
        wanted = rbdmapping_objects(self.published.mappings, self.node, observed_at=at)
        self._mappings.write(wanted, node_uid=self._node_uid)
        self._publisher.publish(self.published.rbd_node(at), node_uid=self._node_uid)
        self._mappings.delete_others(wanted)

    def renew(self, turn: int) -> None:
        """Renew the Lease as an agent does while nothing changes."""
        if turn:
            assert self._publisher.verify()
            self._mappings.verify()
        assert self._heartbeat.renew(
            time_of(turn), node_uid=self._node_uid, confirms=self._publisher.confirmation
        )

    def change(self, turn: int) -> None:
        """Publish a changed mapping."""
        mappings = list(self.published.mappings)
        which = turn % len(mappings)
        mappings[which] = changed(mappings[which], turn)
        self.published = self.published._replace(mappings=mappings)
        self.publish(turn)

    def map(self, turn: int) -> None:
        """Publish a new mapping."""
        mappings = self.published.mappings
        more = [*mappings, another(mappings[0], turn)]
        self.published = self.published._replace(mappings=more)
        self.publish(turn)

    def unmap(self, turn: int) -> None:
        """Publish that the last mapping is gone."""
        rest = self.published.mappings[:-1]
        self.published = self.published._replace(mappings=rest)
        self.publish(turn)

    def holders_of(self, number: int) -> None:
        """Request what agents published about one of this node's images, as `who-holds` does."""
        image = self.published.mappings[number % len(self.published.mappings)]["image"]
        connection = OneConnection(self._access)
        found = mappings_with(connection, lookup_of_image(image["name"]))
        assert isinstance(found, FoundMappings)
        assert found.nodes == {self.node}
        views = [snapshots.image_view(image_id=image["id"], watchers=())]
        by_id = mappings_with(connection, further_lookup(views, ()), known=found)
        assert by_id == FoundMappings((), frozenset({self.node}))
        keys = labels.image_keys(image["name"], image["id"])
        reports = reports_about(connection, found, keys, {self.node})
        assert _incomplete(reports) == [""]

    def without_holder(self) -> None:
        """Request what shows that no node has an image mapped, as `who-holds` does."""
        keys = labels.image_keys("csi-vol-free", "f00")
        reports = reports_about(OneConnection(self._access), FoundMappings(), keys, None)
        assert {*_incomplete(reports)} == {""}

    def connect(self) -> None:
        """Open a connection as every write does, and send a minimal request."""
        self._open = Api(self._credentials, timeout_s=_TIMEOUT_S)
        self.ask()

    def ask(self) -> None:
        """Send a minimal request over the open connection."""
        assert self._open is not None
        self._open.ask("/version").answer()

    def hang_up(self) -> None:
        """Close the connection."""
        self._open = None


def _incomplete(reports: Sequence[PublishedNode | NotObserved] | NotObserved) -> list[str]:
    """Return why each report is incomplete; all must be observed."""
    assert not isinstance(reports, NotObserved)
    observed, unseen = separated(reports)
    assert unseen == ()
    return [report.incomplete for report in observed]


class Kubelet:
    """The requests of an idle kubelet: it renews its node's Lease."""

    def __init__(self, access: KubeAccess, node: str, lease: Json) -> None:
        self._connection = Connection(credentials(access))
        self._path = f"{LEASES}/{node}"
        self._lease = lease

    def renew(self, turn: int) -> None:
        """Renew the Lease ten seconds after the last time, by PUT as kubelet does."""
        at = _START + timedelta(seconds=10 * turn)
        self._lease["spec"]["renewTime"] = f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"
        self._lease = msgspec.json.decode(self._connection.put(self._path, self._lease))


class Watch:
    """A watch as the garbage collector has for every resource: it watches the metadata."""

    def __init__(self, access: KubeAccess, path: str) -> None:
        self._ended = threading.Event()
        self._handle = _handle(credentials(access), [f"Accept: {_METADATA}"])
        self._handle.setopt(pycurl.URL, f"{credentials(access).server}{path}?watch=1")
        self._handle.setopt(pycurl.WRITEFUNCTION, self._take)
        self._handle.setopt(pycurl.NOPROGRESS, 0)
        self._handle.setopt(pycurl.XFERINFOFUNCTION, lambda *_: int(self._ended.is_set()))
        self.bytes = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> None:
        """End the watch."""
        self._ended.set()
        self._thread.join()

    def _take(self, piece: bytes) -> None:
        self.bytes += len(piece)

    def _watch(self) -> None:
        try:
            self._handle.perform()
        except pycurl.error:
            if not self._ended.is_set():
                raise


class Connection:
    """A connection that stays open, for one request after the other."""

    def __init__(self, given: Credentials) -> None:
        self._given = given
        self._handle = _handle(given, ["Content-Type: application/json"])
        self._handle.setopt(pycurl.TIMEOUT_MS, round(_TIMEOUT_S * 1000))

    def get(self, path: str) -> bytes:
        """Return the object."""
        self._handle.unsetopt(pycurl.CUSTOMREQUEST)
        self._handle.setopt(pycurl.HTTPGET, 1)
        return self._perform(path)

    def put(self, path: str, body: Json) -> bytes:
        """Replace an object and return the new one."""
        self._handle.setopt(pycurl.CUSTOMREQUEST, "PUT")
        self._handle.setopt(pycurl.POSTFIELDS, msgspec.json.encode(body))
        return self._perform(path)

    def _perform(self, path: str) -> bytes:
        answer = bytearray()
        self._handle.setopt(pycurl.URL, f"{self._given.server}{path}")
        self._handle.setopt(pycurl.WRITEFUNCTION, answer.extend)
        self._handle.perform()
        if (status := int(self._handle.getinfo(pycurl.RESPONSE_CODE))) != _OK:
            raise LabError(f"{path}: {status}: {answer.decode(errors='replace')[:300]}")
        return bytes(answer)


def _handle(given: Credentials, headers: list[str]) -> pycurl.Curl:
    handle = pycurl.Curl()
    if given.token is not None:
        headers = [*headers, f"Authorization: Bearer {given.token}"]
    handle.setopt(pycurl.HTTPHEADER, headers)
    handle.setopt(pycurl.NOSIGNAL, 1)
    handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
    if given.ca_data is not None:
        handle.setopt(pycurl.CAINFO_BLOB, given.ca_data)
    return handle


def together(work: Callable[[_T], object], players: Iterable[_T]) -> None:
    """Run an action for all, a few at a time; raise the first failure."""
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(work, players):
            pass


# --------------------------------------------------------------------------------------------------
# The cluster of the simulated nodes
# --------------------------------------------------------------------------------------------------


class Fleet:
    """The nodes, each with an agent and a kubelet.

    Args:
        directory: of the control plane, with its kubeconfigs; the agents' are added.
        names: of the nodes; each has a kubeconfig there.
        mappings: on each node.
    """

    def __init__(self, directory: Path, names: Sequence[str], *, mappings: int) -> None:
        self._directory = directory
        self._names = names
        self._admin = Api(credentials(self.access("admin")), timeout_s=_TIMEOUT_S)
        self._published = published = published_of_node(mappings)
        nodes = self._create("/api/v1/nodes", [_node(name) for name in names])
        tokens = self._tokens()
        leases = self._create(LEASES, [_lease(name) for name in names])
        self.agents = [
            Agent(
                self._agent_access(name, token),
                name,
                node["metadata"]["uid"],
                for_node(published, number),
            )
            for number, (name, node, token) in enumerate(zip(names, nodes, tokens, strict=True))
        ]
        self.kubelets = [
            Kubelet(self.access(name), name, lease)
            for name, lease in zip(names, leases, strict=True)
        ]

    def add_rbd_nodes(self, total: int) -> None:
        """Create RBDNodes without agents and RBDMappings, until there are so many RBDNodes."""
        for first in range(len(self.agents), total, _BATCH):
            bodies = [
                {
                    "apiVersion": "rbdagent.dev/v1alpha1",
                    "kind": "RBDNode",
                    **for_node(self._published, number).rbd_node(time_of(0)),
                }
                for number in range(first, min(first + _BATCH, total))
            ]
            for number, body in enumerate(bodies, first):
                body["metadata"]["name"] = f"more-{number:05}"
                body["status"] = without_none(body["status"])
            self._create(RBD_NODES, bodies)

    def access(self, user: str) -> KubeAccess:
        """Return the access of one of the control plane's users."""
        return _access(self._directory / f"{user}.kubeconfig")

    def _tokens(self) -> list[str]:
        """Return each agent's token: of the one service account, bound to the agent's pod."""
        accounts = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts"
        self._create(accounts, [{"metadata": {"name": "rbdagent"}}])
        self._create(f"{_RBAC}/clusterrolebindings", [_binding("ClusterRole")])
        self._create(f"{_RBAC}/namespaces/{_NAMESPACE}/rolebindings", [_binding("Role")])
        pods = self._create(_PODS, [_pod(name) for name in self._names])
        answers = self._create(_TOKEN, [_token_request(pod) for pod in pods])
        return [str(answer["status"]["token"]) for answer in answers]

    def _create(self, path: str, bodies: Sequence[Json]) -> list[Json]:
        made = []
        for first in range(0, len(bodies), _BATCH):
            asked = [self._admin.create(path, body) for body in bodies[first : first + _BATCH]]
            made += [future.answer() for future in asked]
        return made

    def _agent_access(self, node: str, token: str) -> KubeAccess:
        """Write the files of an agent's pod: the token, and a kubeconfig with its path."""
        directory = self._directory / "agents"
        directory.mkdir(exist_ok=True)
        token_file = directory / f"{node}.token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        cluster = {
            "server": self._admin.server,
            "certificate-authority": str(self._directory / "ca.crt"),
        }
        document = {
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "agent"}}],
            "users": [{"name": "agent", "user": {"tokenFile": str(token_file)}}],
        }
        kubeconfig = directory / f"{node}.kubeconfig"
        kubeconfig.write_text(json.dumps(document))
        return _access(kubeconfig)


def _binding(kind: str) -> Json:
    """Return a binding of the agents' service account to the lab's role of a kind."""
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": "rbdagent-agents"},
        "roleRef": {"apiGroup": group, "kind": kind, "name": RBDAGENT_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "rbdagent", "namespace": _NAMESPACE}],
    }


def _access(kubeconfig: Path) -> KubeAccess:
    return KubeAccess(kubeconfig=kubeconfig, context=None, timeout_s=_TIMEOUT_S)


def _node(name: str) -> Json:
    return {"metadata": {"name": name}}


def _pod(node: str) -> Json:
    container = {"name": "rbdagent", "image": "rbdagent"}
    return {
        "metadata": {"name": f"rbdagent-{node}"},
        "spec": {"nodeName": node, "serviceAccountName": "rbdagent", "containers": [container]},
    }


def _token_request(pod: Json) -> Json:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}},
    }


def _lease(node: str) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40},
    }
