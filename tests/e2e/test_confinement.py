"""Remove each privilege of an agent's pod in the chart once, and check which function fails.

Real kubelets run the container as the real helm renders it. The cases run in mode unmap. They hold
for mode observe too, which has no privilege that mode unmap does not have: what fails with more
privileges also fails with fewer.
"""

from __future__ import annotations

import errno
import functools
import json
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
import yaml

from rbdagent.parse.krbd import parse_io_counters
from rbdagent.unmap import writer_child
from rbdagent.unmap.writer import counts_of
from tests.e2e.scene import Scene
from tests.lab.images import AGENT
from tests.lab.install import CHECKOUT, venv_python
from tests.lab.lab import POOL, guest_program
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.lab.api import Json
    from tests.lab.lab import Lab

CHART: Final = CHECKOUT / "helm" / "rbdagent"
DOCUMENT: Final = CHECKOUT / "docs" / "privileges.md"
OBSERVE, UNMAP = MODES = ("observe", "unmap")
"""In the order of the document's columns."""
NODE_OF: Final = {UNMAP: "worker-1", OBSERVE: "worker-2"}

# Names of the privileges -------------------------------------------------------------------------

_TAKES_AWAY: Final[dict[str, object]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Settings that leave a container less than its default (tests/e2e/test_cluster.py)."""
_NO_RIGHT_OF_A_POD: Final = frozenset(
    {"serviceAccountName", "priorityClassName", "nodeSelector", "tolerations", "containers",
     "volumes"}
)  # fmt: skip
_NO_RIGHT_OF_A_CONTAINER: Final = frozenset(
    {"name", "image", "imagePullPolicy", "command", "env", "ports", "livenessProbe",
     "readinessProbe", "resources", "securityContext", "volumeMounts"}
)  # fmt: skip
# Privileges that a privileged container has through that single setting.
_PRIVILEGED_HAS: Final = {"capability SYS_PTRACE", "appArmorProfile", "seLinuxOptions"}


def given_to(pod: Json) -> set[str]:
    """Return the names of everything that a pod is given, as docs/privileges.md writes them."""
    container = only_container(pod)
    security = {
        key: value
        for key, value in container["securityContext"].items()
        if _TAKES_AWAY.get(key) != value
    }
    capabilities = security.pop("capabilities", {"drop": ["ALL"]})
    assert capabilities["drop"] == ["ALL"]
    found = {*security, *(f"capability {name}" for name in capabilities.get("add", ()))}
    found |= (pod.keys() - _NO_RIGHT_OF_A_POD) | (container.keys() - _NO_RIGHT_OF_A_CONTAINER)
    for mount in container["volumeMounts"]:
        name = mount["name"]
        found.add(f"mount {name}")
        if not mount.get("readOnly"):
            found.add(f"{name} writable")
        if "mountPropagation" in mount:
            found.add(f"{name} {mount['mountPropagation']}")
    return found


def only_container(pod: Json) -> Json:
    (container,) = pod["containers"]
    only: Json = container
    return only


# Removed privileges and the output without them ---------------------------------------------------

_LOOK_AWAY: Final = ("--no-ceph", "--no-kube")
_CHECK: Final = ("rbdagent", "check", "-v", *_LOOK_AWAY)
_PLAN: Final = ("rbdagent", "unmap", "{device}", "-o", "json", *_LOOK_AWAY)
_AGENT: Final = ("rbdagent", "agent", "--once", *_LOOK_AWAY)
_ACT: Final = (str(venv_python()), "-I", "-S", writer_child.__file__, "/host{device}",
               "/host/sys/bus/rbd", "{number}", "{incarnation}", "{counts}")  # fmt: skip
"""The last step of an unmap: open the device exclusively, compare it, write its id."""
_ENTER: Final = "nsenter --mount=/host/proc/1/ns/mnt --ipc=/host/proc/1/ns/ipc -- true"
_OPENERS: Final = "open files and working directories of other users' processes can be seen"
_NOBODY: Final = "65534"
_OF_THE_UNIT: Final = ["SYS_PTRACE", "SYS_ADMIN", "SYS_CHROOT"]
"""All capabilities that systemd/rbdagent-unmap-staged.conf leaves the service."""


class Case(NamedTuple):
    """A privilege of the chart, and the output that shows that it is needed."""

    entry: str
    run: Sequence[str]
    gained: str
    """Printed without the privilege, and not printed with all of them."""
    lost: str
    """Not printed without the privilege, and printed with all of them."""
    take: tuple[str, str] | None = None
    """How tests/lab/guest/without.py removes it; for a mount, the name of the mount."""
    security: Mapping[str, object] | None = None
    """Overrides the security context of a separate container: a fork cannot drop this."""
    mode: str = UNMAP


def unseen(entry: str, take: tuple[str, str], fact: str) -> Case:
    """Return a case that `check` reports."""
    failure = fact.replace(" can be ", " cannot be ")
    return Case(entry, _CHECK, f"FAILED {failure}", f"ok {fact}", take)


_ALL: Final = "all there"
"""The container of the chart, unchanged."""
_ALL_RUN: Final = {OBSERVE: (_CHECK, _PLAN), UNMAP: (_CHECK, _PLAN, _AGENT)}

CASES: Final = (
    unseen("mount proc", ("hide", "proc"), "the node can be observed")._replace(
        lost="ok RBD devices can be seen"
    ),
    unseen("mount sys", ("hide", "sys"), "RBD devices can be seen"),
    unseen("mount dev", ("hide", "dev"), "device nodes can be seen"),
    unseen("mount kubelet", ("hide", "kubelet"), "kubelet's staging directories can be seen"),
    Case(
        "mount freeze",
        _PLAN,
        "the file that freezes this node: not observed",
        "frozen by the file",
        ("hide", "freeze"),
    ),
    Case("mount config", _PLAN, "kubelet does not run", "frozen by the file", ("hide", "config")),
    Case("mount state", _AGENT, "Read-only file system", "", ("hide", "state")),
    Case("state writable", _AGENT, "Read-only file system", "", ("lock", "state")),
    Case("sys writable", _ACT, f"exit {errno.EROFS}", "", ("lock", "sys")),
    Case("runAsUser", _CHECK, "Permission denied", f"ok {_OPENERS}", ("be", _NOBODY)),
    Case(
        "privileged",
        # The same privilege as a list of capabilities: those of the systemd unit are enough for
        # all cases but one.
        ("/bin/sh", "-c", f"{_ENTER} && echo entered && exec {shlex.join(_ACT)}"),
        f"entered exit {errno.EPERM}",
        "",
        security={"privileged": None, "capabilities": {"drop": ["ALL"], "add": _OF_THE_UNIT}},
    ),
    Case(
        "capability SYS_PTRACE",
        _PLAN,
        "processes that have it open: not observed",
        "(sleep) has the device open",
        take=("drop", "its one capability"),
        mode=OBSERVE,
    ),
)


# The stage ----------------------------------------------------------------------------------------


def rendered(lab: Lab, **values: object) -> list[Json]:
    """Render the chart with helm."""
    cluster = {"name": "lab", "config": "[global]\n", "keyring": "[client.rbdagent]\n"}
    given = {"ceph": {"clusters": [cluster]}, **values}
    template = ("helm", "template", "rbdagent", str(CHART), "--values=-")
    manifest = lab.control_plane.laptop().done(*template, stdin=json.dumps(given))
    return [document for document in yaml.safe_load_all(manifest) if document]


def pod_of(objects: Sequence[Json]) -> Json:
    """Return the spec of the agents' pods."""
    (found,) = (document for document in objects if document["kind"] == "DaemonSet")
    spec: Json = found["spec"]["template"]["spec"]
    return spec


def running(
    pod: Json, command: Sequence[str], security: Mapping[str, object] | None = None
) -> Json:
    """Return the pod's container with another command, and another security context."""
    container = only_container(pod)
    # Without probes: one pod has several of these containers.
    needless = ("livenessProbe", "readinessProbe", "ports", "resources")
    kept = {key: value for key, value in container.items() if key not in needless}
    changed = container["securityContext"] | (security or {})
    granted = {key: value for key, value in changed.items() if value is not None}
    return kept | {"command": list(command), "securityContext": granted}


def path_of(pod: Json, mount: str) -> str:
    """Return the path of a mount in a container."""
    mounts = only_container(pod)["volumeMounts"]
    return next(
        str(volume_mount["mountPath"]) for volume_mount in mounts if volume_mount["name"] == mount
    )


class Stage(Scene):
    """Runs a separate chart with separate directories on the nodes: it disturbs no other test."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, "confinement")
        self.directory = f"/run/{self.name}"

    def map(self, node: str, name: str, *, formatted: bool = False) -> str:
        """Create and map an image; return the device."""
        ceph, image = self.lab.ceph, f"{POOL}/{self.name}-{name}"
        (ceph.create_formatted if formatted else ceph.create_image)(image)
        self.undo(lambda: ceph.rbd("rm", "--no-progress", image))
        return self.map_by_hand(node, image)

    def chart(self, mode: str, **values: object) -> Json:
        """Create what the chart's pod mounts and its service account; return the pod's spec."""
        registry, repository, tag = re.split("[/:]", AGENT)
        objects = rendered(
            self.lab,
            mode=mode,
            fullnameOverride=f"{self.name}-{mode}",
            image={
                "registry": registry,
                "repository": repository,
                "tag": tag,
                "pullPolicy": "Never",
            },
            stateDir=f"{self.directory}/state",
            freezeDir=f"{self.directory}/freeze",
            **values,
        )
        for document in objects:
            if document["kind"] in {"ConfigMap", "Secret", "ServiceAccount"}:
                self.workloads.apply(document)
                self.undo(functools.partial(self._delete, document))
        return pod_of(objects)

    def _delete(self, made: Json) -> None:
        self.workloads.delete(made["kind"], made["metadata"]["name"])

    def start(self, name: str, node: str, pod: Json, containers: Mapping[str, Json]) -> str:
        """Start a pod of the chart with these containers instead; return its name."""
        of_ours = {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                container | {"name": slug(key)} for key, container in containers.items()
            ],
        }
        name = f"{self.name}-{name}"
        meta = {"name": name, "namespace": "default"}
        self.add({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod | of_ours})
        return name

    def said(self, name: str, containers: Mapping[str, Json]) -> dict[str, str]:
        """Wait until every container of a pod has ended; return the output and the exit codes."""

        def ended() -> Json | None:
            found = self.workloads.find("Pod", name)
            return found if found and found["status"]["phase"] in {"Succeeded", "Failed"} else None

        found = wait_until(ended, timeout_s=180, what=f"every container of {name} to have ended")
        codes = {
            status["name"]: status["state"]["terminated"]["exitCode"]
            for status in found["status"]["containerStatuses"]
        }
        kubectl = self.lab.control_plane.kubectl
        return {
            key: f"{kubectl('logs', name, f'--container={slug(key)}')}exit {codes[slug(key)]}"
            for key in containers
        }

    def execute(self, name: str, container: str, command: Sequence[str]) -> str:
        """Run a command in a container; return its output, and its exit code."""
        script = f"{shlex.join(command)} 2>&1; echo exit $?"
        run = ("exec", name, f"--container={slug(container)}", "--", "/bin/sh", "-c", script)
        return self.lab.control_plane.kubectl(*run)

    def about(self, node: str, device: str) -> dict[str, str]:
        """Return the values for the placeholders of commands about a device."""
        number = device.removeprefix("/dev/rbd")
        sequence = self.lab.nodes[node].get(f"/sys/block/rbd{number}/diskseq").decode().strip()
        stat = self.lab.nodes[node].get(f"/sys/block/rbd{number}/stat").decode()
        return {
            "device": device,
            "number": number,
            "incarnation": f"diskseq:{sequence}",
            "counts": counts_of(parse_io_counters(stat, where=device)),
        }


def filled(command: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return a command with the values of a device."""
    return [word.format(**known) for word in command]


def slug(entry: str) -> str:
    """Return the name of a container."""
    return re.sub(r"[^a-z0-9]+", "-", entry.lower())


@pytest.fixture(scope="module")
def stage(lab: Lab) -> Iterator[Stage]:
    stage = Stage(lab)
    try:
        yield stage
    finally:
        stage.clear()


class Said(NamedTuple):
    """Holds the output in each mode with every privilege, and without each of them."""

    all_there: dict[str, str]
    without: dict[str, str]


@pytest.fixture(scope="module")
def said(stage: Stage) -> Said:
    """Run all cases at once: one pod per mode, on a node with an RBD device."""
    begun = {mode: begin(stage, mode) for mode in (UNMAP, OBSERVE)}
    all_there: dict[str, str] = {}
    without: dict[str, str] = {}
    for mode, (pod, containers) in begun.items():
        without |= stage.said(pod, containers)
        *forks, end = without.pop(_ALL).splitlines()
        assert end == "exit 0", forks
        outputs = [json.loads(fork) for fork in forks]
        all_there[mode] = "\n".join(outputs[: len(_ALL_RUN[mode])])
        without |= dict(zip(forked(mode), outputs[len(_ALL_RUN[mode]) :], strict=True))
    return Said(all_there, without)


def forked(mode: str) -> dict[str, Case]:
    """Return the cases that one container of a mode runs."""
    return {case.entry: case for case in CASES if case.mode == mode and case.take is not None}


def begin(stage: Stage, mode: str) -> tuple[str, dict[str, Json]]:
    """Start the containers for the cases of a mode; return the pod and its containers."""
    node, pod = NODE_OF[mode], stage.chart(mode)
    device = stage.map(node, mode)
    stage.lab.nodes[node].put(f"{stage.directory}/freeze/freeze", b"")
    if mode == OBSERVE:
        stage.hold_open(node, device)
    known = stage.about(node, device)
    forks = [("nothing", "", filled(run, known)) for run in _ALL_RUN[mode]]
    for case in forked(mode).values():
        how, what = case.take or ("", "")
        what = path_of(pod, what) if how in {"hide", "lock"} else what
        forks.append((how, what, filled(case.run, known)))
    containers = {_ALL: running(pod, guest_program("without", json.dumps(forks)))}
    containers |= {
        case.entry: running(pod, filled(case.run, known), case.security)
        for case in CASES
        if case.mode == mode and case.security is not None
    }
    return stage.start(mode, node, pod, containers), containers


@pytest.mark.parametrize("mode", MODES)
def test_full_privileges_lose_no_function(said: Said, mode: str) -> None:
    text = " ".join(said.all_there[mode].split())
    for case in CASES:
        if case.mode in {mode, UNMAP} and case.run in _ALL_RUN[mode]:
            assert not case.gained or case.gained not in text, text
            assert case.lost in text, text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.entry)
def test_missing_privilege_loses_its_function(said: Said, case: Case) -> None:
    text = " ".join(said.without[case.entry].split())
    assert case.gained in text, text
    assert not case.lost or case.lost not in text, text


# Privileges for later changes on the node ---------------------------------------------------------


class Following(NamedTuple):
    """A pod whose containers started before the node's mounts changed."""

    pod: str
    device: str
    """A device that was mounted below kubelet's directory, and no longer is."""


_PRIVATE: Final = {"kubelet HostToContainer": "kubelet", "sys HostToContainer": "sys"}
"""Privilege, and the mount that has no propagation without it."""


@pytest.fixture(scope="module")
def following(stage: Stage) -> Following:
    """Unmount a volume and mount debugfs while agents run."""
    node = NODE_OF[UNMAP]
    vm, root = stage.lab.nodes[node], f"{stage.directory}/kubelet"
    device = stage.map(node, "mounted", formatted=True)
    vm.run(f"mkdir -p {root}/volume && mount {device} {root}/volume")
    stage.undo(lambda: vm.run(f"umount {root}/volume", check=False))
    pod = stage.chart(UNMAP, kubeletRoot=root)
    sleeper = running(pod, ("sleep", "100000"))
    containers = {_ALL: sleeper} | {
        entry: sleeper | {"volumeMounts": without_propagation(sleeper, mount)}
        for entry, mount in _PRIVATE.items()
    }
    vm.run("umount -R /sys/kernel/debug")
    mount_debugfs = "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
    try:
        name = stage.start("following", node, pod, containers)
        stage.workloads.wait_running(name)
    finally:
        vm.run(mount_debugfs)
    vm.run(f"umount {root}/volume")
    return Following(name, device)


def without_propagation(container: Json, mount: str) -> list[Json]:
    return [
        {key: value for key, value in volume_mount.items() if key != "mountPropagation"}
        if volume_mount["name"] == mount
        else volume_mount
        for volume_mount in container["volumeMounts"]
    ]


@pytest.mark.alone
def test_debugfs_mounted_later_is_visible(stage: Stage, following: Following) -> None:
    """The remedy of `check` needs no restart of the agent."""
    look = ("test", "-d", "/host/sys/kernel/debug/ceph")
    assert stage.execute(following.pod, _ALL, look) == "exit 0\n"
    assert stage.execute(following.pod, "sys HostToContainer", look) == "exit 1\n"


@pytest.mark.alone
def test_private_copy_of_kubelet_directory_keeps_device_busy(
    stage: Stage, following: Following
) -> None:
    """Without such a copy an unmap succeeds."""
    pod, device = following
    vm = stage.lab.nodes[NODE_OF[UNMAP]]

    def act() -> str:
        # The I/O counters must be current: the last umount of a file system writes.
        return stage.execute(pod, _ALL, filled(_ACT, stage.about(vm.name, device)))

    assert act() == f"exit {errno.EBUSY}\n"
    (pid,) = vm.run(f"grep -ls ' {device} ' /proc/[0-9]*/mountinfo | cut -d/ -f3").stdout.split()
    mounts = ("grep", "-c", f"^{device} ", "/proc/mounts")
    assert stage.execute(pod, "kubelet HostToContainer", mounts) == "1\nexit 0\n"
    vm.run(["kill", "-KILL", pid])
    wait_until(
        lambda: act() == "exit 0\n",
        timeout_s=30,
        what=f"{device} to be unmapped by what the chart's container may do",
    )
    assert vm.run(f"test -e {device}", check=False).exit_code == 1


# Chart, cases and document ------------------------------------------------------------------------

_SHOWN_BY: Final = {
    **{case.entry: f"[{case.entry}]" for case in CASES},
    "sys HostToContainer": "test_debugfs_mounted_later_is_visible",
    "kubelet HostToContainer": "test_private_copy_of_kubelet_directory_keeps_device_busy",
    # The lab's kernel runs without AppArmor and SELinux.
    "appArmorProfile": "not played",
    "seLinuxOptions": "not played",
}
_ROW: Final = re.compile(
    r"^\| `([^`|]+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \| `?([^`|]+)`?[^|]* \|$", re.MULTILINE
)


@pytest.fixture(scope="module")
def given(lab: Lab) -> dict[str, set[str]]:
    """Return the names of what the chart gives in each mode."""
    return {mode: given_to(pod_of(rendered(lab, mode=mode))) for mode in MODES}


def test_chart_has_a_case_for_each_privilege(given: dict[str, set[str]]) -> None:
    assert given[OBSERVE] | given[UNMAP] == set(_SHOWN_BY)
    assert {case.entry for case in CASES if case.mode == UNMAP} <= given[UNMAP]


def test_mode_observe_has_only_privileges_of_mode_unmap(given: dict[str, set[str]]) -> None:
    assert given[OBSERVE] - _PRIVILEGED_HAS < given[UNMAP]


def test_document_has_a_row_for_each_privilege_of_each_mode(given: dict[str, set[str]]) -> None:
    rows = [match for match in _ROW.findall(DOCUMENT.read_text()) if match[0] in _SHOWN_BY]
    assert {entry: shown.strip() for entry, _, _, shown in rows} == _SHOWN_BY
    for column, mode in enumerate(MODES, start=1):
        assert {row[0] for row in rows if row[column] != "no"} == given[mode]
