"""One command of each printed shape is typed where it is read: it exists there and is accepted.

``kubectl`` and ``kubectl rbdagent`` are typed on a user's machine against a real API server with
agents' pods, ``ceph``, ``rbd`` and ``rados`` beside a real cluster, and the other programs on the
Debian of the nodes, where rbdagent is installed from its package. No kubelet runs a pod: an exec
that has reached the right pod ends with an error of the API server.
tests/contract/test_printed_commands.py shows that the words of every command arrive.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from rbdagent.commands import PROGRAM, line_of, reached_as
from tests.integration.agent_pods import bind, make_agent, make_daemonset
from tests.integration.building import said
from tests.integration.conftest import control_plane_alone
from tests.lab.install import cache_dir
from tests.lab.laptop import Done
from tests.lab.parts import chosen_parts
from tests.lab.roots import root_of
from tests.lab.workloads import collection
from tests.support.printed_commands import (
    PLUGIN,
    built_snapshots,
    printed_commands,
    recorded_snapshots,
    saved_snapshots,
    shapes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rbdagent.model import Command, Snapshot
    from tests.lab.api import Api, Json
    from tests.lab.ceph import CephCluster
    from tests.lab.controlplane import ControlPlane
    from tests.lab.laptop import Laptop
    from tests.lab.roots import Root

CEPH: Final = ("ceph", "rbd", "rados")
NOT_TYPED: Final = frozenset({"crictl"})
"""Part of cri-tools, which a node gets with containerd or from Kubernetes' packages: the lab's
nodes do not have it."""
OF_MANAGER: Final = frozenset({("ceph", "rbd", "task", "list"), ("ceph", "osd", "perf")})
"""ceph-mgr answers them, and the tests' cluster has none: the commands would wait for one."""
WITHOUT_HELP: Final = frozenset({"resize2fs", "xfs_growfs"})
"""They take no --help, and are typed with an object that does not exist."""
ENDINGS: Final = {
    "logs": ("Error from server", "is not valid for pod"),
    "thing.example.org": ("the server doesn't have a resource type",),
    # Types of operators that do not run here (tests/integration/test_operators.py defines them).
    **dict.fromkeys(
        (
            "vmi",
            "virtualmachineinstancemigrations",
            "volumereplications.replication.storage.openshift.io",
        ),
        ("the server doesn't have a resource type",),
    ),
    "taint": ('taint "node.kubernetes.io/out-of-service" not found',),
}
"""How the API server ends a command of kubectl that needs a kubelet, an operator, a taint or a
container of that name."""
_PLACEHOLDER: Final = re.compile(r"(?:^|[=/.])(?:CLAIM|PV|POOL|IMAGE|IMAGE_ID|NODE|rbdN)(?:/|$)")
"""A word of a runbook that its reader replaces."""
_REFUSED: Final = re.compile(
    r"command not found|unknown|unrecogni[sz]ed|invalid (?:option|command)|no valid command|usage:|"
    r"is invalid|not specified",
    re.IGNORECASE,
)
_SNAPSHOTS: Final = "snapshot.storage.k8s.io"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Printed(NamedTuple):
    """The printed commands that are complete: a runbook has names that its reader replaces."""

    observed: list[Command]
    """Printed about snapshots that contain their node, as those of an agent in a pod do."""
    others: list[Command]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    recorded = recorded_snapshots(tmp_path_factory.mktemp("recordings"))
    snapshots = [*recorded, *saved_snapshots(), *built_snapshots()]
    return Printed(
        _complete(snapshot for snapshot in snapshots if snapshot.node is not None),
        _complete(snapshot for snapshot in snapshots if snapshot.node is None),
    )


def _complete(snapshots: Iterable[Snapshot]) -> list[Command]:
    found = printed_commands(snapshots, PROGRAM)
    return [command for command in found if not any(map(_PLACEHOLDER.search, command.argv))]


@pytest.fixture(scope="module")
def on_host(printed: Printed) -> list[Command]:
    """Return one command of each shape that is printed on a host installation."""
    return [*shapes((*printed.observed, *printed.others)).values()]


@pytest.fixture(scope="module")
def of_plugin(printed: Printed) -> list[Command]:
    """Return one command of each shape that the plugin runs."""
    found = shapes(reached_as(PLUGIN, command) for command in printed.observed).values()
    return [command for command in found if command.argv[:2] == PLUGIN]


def _wrong(
    given: Iterable[Command], type_one: Callable[[Command], Done], is_right: Callable[..., bool]
) -> list[tuple[str, Done]]:
    """Type the commands, some at a time, and return those that did not end as expected."""
    typed = [*given]
    assert typed
    with ThreadPoolExecutor(max_workers=4) as pool:
        ended = [*pool.map(type_one, typed)]
    return [
        (line_of(command), done)
        for command, done in zip(typed, ended, strict=True)
        if not is_right(command, done)
    ]


# --------------------------------------------------------------------------------------------------
# A user's machine
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield only an API server: no controller removes the pods that no kubelet runs."""
    with control_plane_alone("rbdagent-pc", tmp_path_factory.mktemp("printed")) as (plane, parts):
        parts.stop("kube-controller-manager")
        yield plane


@pytest.fixture(scope="module")
def laptop(api_server: ControlPlane) -> Laptop:
    return api_server.laptop()


def test_api_server_accepts_every_command_of_kubectl(
    on_host: list[Command], api_server: ControlPlane, laptop: Laptop
) -> None:
    """Commands that change something are typed with --dry-run=server: all checks, no change."""
    given = [command for command in on_host if command.argv[0] == "kubectl"]
    _define_volume_snapshots(api_server.api, laptop)
    for command in given:
        _make_object_of(command.argv, api_server.api)

    patching = threading.Lock()

    def type_one(command: Command) -> Done:
        line = line_of(command)
        if command.changes:
            line = f"{shlex.join(command.argv)} --dry-run=server"
        if (tested := _tested_claim(command.argv)) is None:
            return laptop.run("bash", "-c", line)
        # Two patches of one PV test different values.
        with patching:
            name = command.argv[command.argv.index("pv") + 1]
            spec = {"claimRef": {**_REFERENCE, **tested}}
            api_server.api.patch(f"{collection('PersistentVolume')}/{name}", {"spec": spec})
            return laptop.run("bash", "-c", line)

    assert _wrong(given, type_one, _is_accepted_by_server) == []


def _is_accepted_by_server(command: Command, done: Done) -> bool:
    endings = next((ENDINGS[word] for word in command.argv if word in ENDINGS), ())
    return done.code == 0 or any(ending in done.stderr for ending in endings)


def test_plugin_reaches_the_agent_with_every_command_of_rbdagent(
    of_plugin: list[Command], api_server: ControlPlane, laptop: Laptop
) -> None:
    api = api_server.api
    _make(api, "Namespace", "rbdagent")
    bind(api, "rbdagent")
    owner = make_daemonset(api, "rbdagent")
    for node in {_node_of(command) or "worker-1" for command in of_plugin} | {"worker-2"}:
        _make(api, "Node", node)
        make_agent(api, node, owner, ready=True)

    def type_one(command: Command) -> Done:
        # On a terminal: without one, the plugin refuses `unmap --wait`.
        return laptop.run(
            "script", "--quiet", "--return", "--command", line_of(command), os.devnull
        )

    assert _wrong(of_plugin, type_one, _is_sent_to_agent) == []


def _is_sent_to_agent(command: Command, done: Done) -> bool:
    """Return whether the plugin chose the agent; it answers ``explain`` itself."""
    verb, *words = command.argv[2:]
    if verb == "explain":
        return done.code == 0 and done.stdout.startswith(words[0])
    node = _node_of(command)
    chosen = f"could not run rbdagent on {node}:" if node else "could not run rbdagent on "
    # A terminal may end a line with a carriage return too.
    printed = done.stdout.replace("\r", "")
    tried = f"-c rbdagent -- rbdagent {verb}\n"
    return done.code == 1 and chosen in printed and tried in printed


def _node_of(command: Command) -> str | None:
    words = command.argv
    return words[words.index("--node") + 1] if "--node" in words else None


# --------------------------------------------------------------------------------------------------
# The objects that the commands name
# --------------------------------------------------------------------------------------------------


def _pod_spec(container: str) -> Json:
    return {
        "automountServiceAccountToken": False,
        "containers": [{"name": container, "image": container}],
    }


_CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
_VOLUME: Final = {
    "accessModes": ["ReadWriteOnce"],
    "capacity": {"storage": "1Gi"},
    "csi": {"driver": "rbd.csi.ceph.com", "volumeHandle": "handle"},
}
_WORKLOAD: Final = {
    "selector": {"matchLabels": {"app": "app"}},
    "template": {"metadata": {"labels": {"app": "app"}}, "spec": _pod_spec("app")},
}
_KINDS: Final[dict[str, tuple[str, Json]]] = {
    "csinode": ("CSINode", {"spec": {"drivers": []}}),
    "daemonset": ("DaemonSet", {"spec": _WORKLOAD}),
    "deployment": ("Deployment", {"spec": _WORKLOAD}),
    "lease": ("Lease", {"spec": {}}),
    "node": ("Node", {}),
    "pod": ("Pod", {"spec": _pod_spec("csi-provisioner")}),
    "pv": ("PersistentVolume", {"spec": _VOLUME}),
    "pvc": ("PersistentVolumeClaim", {"spec": _CLAIM}),
    "secret": ("Secret", {}),
    "statefulset": ("StatefulSet", {"spec": {**_WORKLOAD, "serviceName": "app"}}),
    "storageclass": ("StorageClass", {"provisioner": "rbd.csi.ceph.com"}),
    "volumeattachment": (
        "VolumeAttachment",
        {
            "spec": {
                "attacher": "rbd.csi.ceph.com",
                "nodeName": "worker-1",
                "source": {"persistentVolumeName": "pv"},
            }
        },
    ),
}
"""By kubectl's word for a kind: the kind, and the fields of an object that the server accepts."""
_WITHOUT_KIND: Final = {"cordon": "node", "drain": "node", "logs": "pod"}
"""Verbs of kubectl whose kind of object is not a word of the command."""


def _make_object_of(argv: tuple[str, ...], api: Api) -> None:
    """Create the object that a command of kubectl names, and its namespace."""
    namespace, words = None, argv[1:]
    if words[0] == "-n":
        namespace, words = words[1], words[2:]
        _make(api, "Namespace", namespace)
        _make(api, "ServiceAccount", "default", namespace=namespace)
    verb, *others = words
    kind, *named = [_WITHOUT_KIND[verb], *others] if verb in _WITHOUT_KIND else others
    if kind in _KINDS and named and not named[0].startswith("-"):
        name, fields = _KINDS[kind]
        _make(api, name, named[0], namespace=namespace, fields=fields)


def _make(
    api: Api,
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: Json | None = None,
    fields: Json | None = None,
) -> None:
    """Create an object unless it exists."""
    path = collection(kind, namespace=namespace or "default")
    if api.find(f"{path}/{name}") is None:
        api.create(path, {"metadata": {"name": name, "labels": labels or {}}, **(fields or {})})


_REFERENCE: Final = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": "claim-uid"}


def _tested_claim(argv: tuple[str, ...]) -> dict[str, str] | None:
    """Return the values of a PV's claimRef that a JSON patch tests before it changes anything."""
    if "--type" not in argv or argv[argv.index("--type") + 1] != "json":
        return None
    operations = json.loads(argv[argv.index("-p") + 1])
    return {
        operation["path"].rpartition("/")[2]: operation["value"]
        for operation in operations
        if operation["op"] == "test"
    }


def _define_volume_snapshots(api: Api, laptop: Laptop) -> None:
    """Define VolumeSnapshot, whose controller sets the finalizer that RBD650 reports."""
    name = f"volumesnapshots.{_SNAPSHOTS}"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    names = {"kind": "VolumeSnapshot", "singular": "volumesnapshot", "plural": "volumesnapshots"}
    protected = {"api-approved.kubernetes.io": "unapproved, for a test"}
    api.create(
        _CRDS,
        {
            "metadata": {"name": name, "annotations": protected},
            "spec": {
                "group": _SNAPSHOTS,
                "scope": "Namespaced",
                "names": names,
                "versions": [version],
            },
        },
    )
    laptop.done("kubectl", "wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")


# --------------------------------------------------------------------------------------------------
# A host installation, and the machine with the key to Ceph
# --------------------------------------------------------------------------------------------------


class Machine:
    """A root of Debian in which lines are typed.

    Args:
        root: its files.
        home: an empty directory.
        path: a directory with further programs.
        environment: further variables.
    """

    def __init__(self, root: Root, home: Path, path: str = "", **environment: str) -> None:
        self._root = root
        self._home = home
        self._variables = [
            f"PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin",
            f"HOME={home}",
            *(f"{name}={value}" for name, value in environment.items()),
        ]

    def run(self, line: str) -> Done:
        shell = ["env", "-i", "-C", str(self._home), *self._variables, "bash", "-c", line]
        done = subprocess.run(
            self._root.command(shell),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def _is_accepted(command: Command, done: Done) -> bool:
    """Return whether the program exists and accepts the words; its object need not exist."""
    is_usage = done.code == 2 and "rbdagent" in command.argv
    return done.code not in {126, 127} and not is_usage and not _REFUSED.search(done.stderr)


def test_host_accepts_every_command(
    on_host: list[Command], deb_of_nodes: Path, tmp_path: Path
) -> None:
    """What changes something, or waits, is typed with --help: it would act on this machine.

    A command over ssh, the reader's way to the node, is typed as the shell of the node gets it.
    """
    installed = tmp_path / "installed"
    said(["dpkg-deb", "-x", deb_of_nodes, installed])
    root = root_of(cache_dir(), chosen_parts().debian)
    machine = Machine(root, tmp_path, str(installed / "usr" / "bin"))

    def type_one(command: Command) -> Done:
        words = command.argv
        line = " ".join(words[2:]) if words[0] == "ssh" else shlex.join(words)
        if words[0] in WITHOUT_HELP:
            return machine.run(shlex.join((*words[:-1], "/nonexistent")))
        acts = command.changes or "--wait" in words
        return machine.run(f"{line} --help" if acts else line)

    given = [
        command
        for command in on_host
        if command.argv[0] not in {"kubectl", *CEPH, *NOT_TYPED} or _acts_on_the_kernel(command)
    ]
    assert _wrong(given, type_one, _is_accepted) == []


def _acts_on_the_kernel(command: Command) -> bool:
    return command.argv[:2] == ("rbd", "unmap")


def test_ceph_accepts_every_command(
    on_host: list[Command], ceph: CephCluster, tmp_path: Path
) -> None:
    """What changes something is typed without a cluster: rbd has checked its words by then."""
    root = root_of(cache_dir(), chosen_parts().ceph)
    machine = Machine(root, tmp_path, CEPH_CONF=str(ceph.conf))
    alone = Machine(root, tmp_path, CEPH_CONF=os.devnull)

    def type_one(command: Command) -> Done:
        return (alone if command.changes else machine).run(line_of(command))

    given = [
        command
        for command in on_host
        if command.argv[0] in CEPH
        and command.argv not in OF_MANAGER
        and not _acts_on_the_kernel(command)
    ]
    assert any(command.changes for command in given)
    assert _wrong(given, type_one, _is_accepted_by_ceph) == []


def _is_accepted_by_ceph(command: Command, done: Done) -> bool:
    is_checked = not command.changes or "couldn't connect to the cluster" in done.stderr
    return is_checked and _is_accepted(command, done)
