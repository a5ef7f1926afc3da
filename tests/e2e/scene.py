"""A scene for one incident: pods with volumes, ways to break things, and checks of the result."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import json
import re
import shlex
import uuid
from typing import TYPE_CHECKING, Any, Final

import jsonschema

from rbdagent.report.schema import schema
from tests.lab.addresses import bracketed
from tests.lab.clients import flashing_client, librbd_client
from tests.lab.controlplane import RBDAGENT_ROLE, RBDAGENT_RULES
from tests.lab.csi import static_volume
from tests.lab.errors import LabError
from tests.lab.install import venv_python
from tests.lab.lab import POOL
from tests.lab.processes import wait_until
from tests.lab.workloads import RETRIED_S, claim, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.lab.api import Json
    from tests.lab.lab import Lab
    from tests.lab.vm import Service
    from tests.lab.workloads import Workloads

_LOOK_S: Final = 120.0
_REFUSED: Final = 4
_UNMAP_S: Final = 20.0


class Report:
    """The output of `who-holds -o json`, checked against its published schema."""

    def __init__(self, data: Json, exit_code: int) -> None:
        jsonschema.validate(data, schema(str(data["kind"])))
        self.data = data
        self.exit_code = exit_code

    @property
    def verdict(self) -> str:
        """The verdict on the target."""
        return str(self.data["verdict"])

    @property
    def holders(self) -> list[Json]:
        """All holders."""
        found: list[Json] = self.data["holders"]
        return found

    @property
    def codes(self) -> set[str]:
        """The codes of the findings."""
        return {str(finding["code"]) for finding in self.data["findings"]}

    def finding(self, code: str) -> Json:
        """Return the only finding with that code."""
        found: list[Json] = [entry for entry in self.data["findings"] if entry["code"] == code]
        assert len(found) == 1, f"{len(found)} findings {code}: {self}"
        return found[0]

    @property
    def next(self) -> list[str]:
        """The commands to copy, without the node that each is for."""
        return [str(given["command"]) for given in self.data["next"]]

    def holder(self, node: str | None) -> Json:
        """Return the only holder on a node."""
        found = [holder for holder in self.holders if holder["node"] == node]
        assert len(found) == 1, f"{len(found)} holders on {node}: {self}"
        return found[0]

    @property
    def summary(self) -> str:
        """The verdict, and one line per finding with its evidence."""
        findings = [
            f"{found['code']} {found['message']} {found['evidence']}"
            for found in self.data["findings"]
        ]
        return "\n".join([f"{self.verdict}, exit code {self.exit_code}", *findings])

    def __str__(self) -> str:
        return json.dumps(self.data, indent=1)


def _said(refusal: Json, chosen: Callable[[Json], bool]) -> dict[str, str]:
    assert refusal["kind"] == "UnmapRefusal", refusal
    return {
        condition["code"]: "; ".join(condition["observed"])
        for condition in refusal["conditions"]
        if not condition["met"] and chosen(condition)
    }


class Scene:
    """Uses unique names in the shared lab; ``clear`` removes what it made."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        digest = hashlib.sha256(name.encode()).hexdigest()[:6]
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("test_"))[:24].strip("-")
        self.name = f"{stem}-{digest}"
        self._pods: list[str] = []
        self._claims: list[str] = []
        self._images: list[str] = []
        self._undo: list[Callable[[], object]] = []

    @property
    def workloads(self) -> Workloads:
        """The workloads of the lab: claims, pods and events."""
        return self.lab.workloads

    # Making --------------------------------------------------------------------------------------

    def claim(self, suffix: str = "", **settings: Any) -> str:  # noqa: ANN401 - claim()'s own
        """Create a claim, wait until it is bound, and return the name of its PV."""
        name = f"{self.name}{suffix}"
        self._claims.append(name)
        self.workloads.apply(claim(name, **settings))
        return self.workloads.wait_bound(name)

    def start_pod(
        self,
        node: str,
        suffix: str = "",
        *,
        claim_suffix: str = "",
        **settings: Any,  # noqa: ANN401 - pod()'s own
    ) -> str:
        """Create a pod on a node that uses the scene's claim; do not wait."""
        name = f"{self.name}{suffix or '-' + node}"
        self._pods.append(name)
        self.workloads.apply(
            pod(name, node=node, claims=[f"{self.name}{claim_suffix}"], **settings)
        )
        return name

    def add(self, made: Json) -> None:
        """Create a pod from this object; ``clear`` deletes it."""
        self._pods.append(made["metadata"]["name"])
        self.workloads.apply(made)

    def run_pod(
        self,
        node: str,
        suffix: str = "",
        *,
        timeout_s: float = RETRIED_S,
        **settings: Any,  # noqa: ANN401 - pod()'s own
    ) -> str:
        """Create a pod and wait until it runs; return its name."""
        name = self.start_pod(node, suffix, **settings)
        self.workloads.wait_running(name, timeout_s=timeout_s)
        return name

    def volume_by_hand(
        self,
        *,
        image: str = "",
        attributes: Json | None = None,
        source: Json | None = None,
        **spec: Any,  # noqa: ANN401 - a PV's own
    ) -> str:
        """Create a static PV of an image, and the scene's claim, which is bound to it.

        Args:
            image: an image that exists, or does not; by default an empty image is created.
            attributes: override its volumeAttributes.
            source: overrides its spec.csi.
            spec: overrides its spec.
        """
        image = image or self.image(self.name)
        made = static_volume(self.name, pool=POOL, image=image)
        csi = made["spec"]["csi"]
        csi |= source or {}
        csi["volumeAttributes"] |= attributes or {}
        made["spec"] |= spec
        if "rbd" in spec:
            del made["spec"]["csi"]
        self.workloads.apply(made)
        self.undo(lambda: self.workloads.delete("PersistentVolume", self.name, wait=False))
        return self.claim(
            storage_class="",
            volume_name=self.name,
            access_mode=made["spec"]["accessModes"][0],
            volume_mode=made["spec"]["volumeMode"],
        )

    def image(
        self,
        name: str,
        *,
        formatted: bool = False,
        size: str = "8M",
        features: str = "layering",
        damage: Sequence[str] = (),
    ) -> str:
        """Create an image; it is removed once the scene's pods have released it.

        Args:
            name: in the lab's pool.
            formatted: whether it has an ext4.
            size: as rbd writes it.
            features: of an empty image.
            damage: what debugfs does to its ext4.
        """
        ceph, path = self.lab.ceph, f"{POOL}/{name}"
        if formatted or damage:
            ceph.create_formatted(path, size=size, damage=damage)
        else:
            ceph.create_image(path, size=size, features=features)
        self._images.append(path)
        return name

    def in_tree_volume(self, *, formatted: bool = False) -> str:
        """Create an image and the in-tree PV of it, named like the scene; return the image.

        As with CSI migration: a driver serves the volume under another handle.
        """
        ceph, image = self.lab.ceph, f"{POOL}/kubernetes-dynamic-pvc-{uuid.uuid4()}"
        (ceph.create_formatted if formatted else ceph.create_image)(image)
        self.undo(lambda: self.lab.ceph.rbd("rm", "--no-progress", image))
        pool, _, name = image.partition("/")
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": self.name,
                "annotations": {"pv.kubernetes.io/migrated-to": "rbd.csi.ceph.com"},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "64Mi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "rbd": {"monitors": [self.lab.ceph.monitor], "pool": pool, "image": name},
            },
        }
        self.workloads.apply(volume)
        self.undo(lambda: self.workloads.delete("PersistentVolume", self.name, wait=False))
        return image

    def secret(self, *, user: str, key: str) -> Json:
        """Create a secret for the driver; return the reference to it."""
        reference = {"name": f"{self.name}-secret", "namespace": "default"}
        data = {"stringData": {"userID": user, "userKey": key}}
        self.workloads.apply({"kind": "Secret", "metadata": reference, **data})
        self.undo(lambda: self.workloads.delete("Secret", reference["name"], wait=False))
        return reference

    def volume_source(self, volume: str) -> Json:
        """Return spec.csi of a PV."""
        found = self.workloads.find("PersistentVolume", volume)
        assert found is not None
        source: Json = found["spec"]["csi"]
        return source

    def attachment_of(self, volume: str) -> str:
        """Return the name of a volume's only VolumeAttachment."""
        (found,) = self.workloads.attachments(volume)
        return str(found["metadata"]["name"])

    def handle(self, volume: str) -> str:
        """Return the volume handle of a PV."""
        return str(self.volume_source(volume)["volumeHandle"])

    def image_of(self, volume: str) -> str:
        """Return the image of a PV as POOL/NAME."""
        attributes = self.volume_source(volume)["volumeAttributes"]
        return f"{attributes['pool']}/{attributes['imageName']}"

    def mount_of(self, pod_name: str, volume: str) -> str:
        """Return the path of the volume mount that kubelet makes for a pod."""
        uid = self.uid(pod_name)
        return f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"

    def wait_detached(self, volume: str, node: str, *, timeout_s: float = RETRIED_S) -> None:
        """Wait until no VolumeAttachment of a volume names the node."""
        wait_until(
            lambda: all(
                attachment["spec"]["nodeName"] != node
                for attachment in self.workloads.attachments(volume)
            ),
            timeout_s=timeout_s,
            what=f"{volume} to be detached from {node}",
        )

    def uid(self, pod_name: str) -> str:
        """Return the uid of a pod."""
        found = self.workloads.find("Pod", pod_name)
        assert found is not None
        return str(found["metadata"]["uid"])

    def undo(self, action: Callable[[], object]) -> None:
        """Register an action for the end of the scene; the last one runs first."""
        self._undo.append(action)

    # Breaking ------------------------------------------------------------------------------------

    def pin_by_cwd(self, node: str, path: str) -> int:
        """Start a process with its working directory in a private copy of a mount; return its pid.

        When kubelet unmounts and removes the mount point, the copy is detached. No mountinfo shows
        it any more, and the device stays busy (recorded).
        """
        return self._started(
            node,
            "/usr/bin/unshare -m --propagation private"
            f" sh -c 'cd {path} && exec sleep 100000' >/dev/null 2>&1 </dev/null & echo $!",
        )

    def hold_open(self, node: str, device: str) -> int:
        """Start a process that has a device node open, and return its pid."""
        return self._started(
            node, f"( exec 9<{device}; exec sleep 100000 >/dev/null 2>&1 </dev/null ) & echo $!"
        )

    def read_now_and_then(self, node: str, device: str) -> int:
        """Start a process that opens a device every second, reads a sector, and closes it.

        It reads past the page cache. It ends when the device is another one or is gone; then
        :meth:`reader_ended` returns the times of its last read and of its end. Returns its pid.
        """
        vm = self.lab.nodes[node]
        number = device.removeprefix("/dev/rbd")
        script = (
            f"exec >/dev/null 2>&1 </dev/null; f=/sys/block/rbd{number}/diskseq; read was <$f;"
            " read last _ </proc/uptime;"
            f" while read now <$f && [ $now = $was ]"
            f" && dd if={device} of=/dev/null bs=512 count=1 iflag=direct;"
            f" do read last _ </proc/uptime; sleep 1; done;"
            f" read end _ </proc/uptime; echo $last $end >/run/{self.name}-reader"
        )
        pid = int(vm.run(["/bin/bash", "-c", f"( {script} ) & echo $!"]).stdout)
        self.undo(lambda: self.kill(node, pid))
        return pid

    def reader_ended(self, node: str) -> tuple[float, float] | None:
        """Return the uptimes of such a reader's last read and of its end; None while it runs."""
        text = self.lab.nodes[node].run(f"cat /run/{self.name}-reader", check=False).stdout
        last, _, end = text.strip().partition(" ")
        return (float(last), float(end)) if end else None

    def pin_by_bind(self, node: str, path: str) -> int:
        """Bind a mount elsewhere in a new mount namespace; return the pid of its process."""
        keep = f"/run/{self.name}-keep"
        script = (
            f"mkdir -p {keep}; /usr/bin/unshare -m --propagation private sh -c"
            f" 'mount --bind {path} {keep} && exec sleep 100000'"
            " >/dev/null 2>&1 </dev/null & echo $!"
        )
        return self._started(node, script)

    def private_mount(self, node: str, device: str) -> int:
        """Mount a device in a new mount namespace; return the pid of its process."""
        script = (
            "mkdir -p /run/private; /usr/bin/unshare -m --propagation private sh -c"
            f" 'mount {device} /run/private && exec sleep 100000'"
            " >/dev/null 2>&1 </dev/null & echo $!"
        )
        return self._started(node, script)

    def hanging_map(self, node: str, image: str) -> int:
        """Start an `rbd map` of an image that waits for a monitor which does not answer."""
        vm = self.lab.nodes[node]
        unanswered = bracketed(self.lab.network.families[-1].nowhere)
        vm.put("/run/csi.key", self.lab.ceph.key_of("csi").encode(), 0o600)
        script = (
            f"rbd --id csi --keyfile /run/csi.key -m {unanswered} map -o noudev {image}"
            " >/dev/null 2>&1 </dev/null & echo $!"
        )
        pid = int(vm.run(["/bin/bash", "-c", script]).stdout)
        wait_until(
            lambda: "rbd" in vm.run(f"cat /proc/{pid}/comm", check=False).stdout,
            timeout_s=20,
            what=f"process {pid} on {node}",
        )
        self.undo(lambda: self.kill(node, pid))
        return pid

    def hold_file_open(self, node: str, path: str) -> int:
        """Start a process that has a file open for writing, and return its pid."""
        return self._started(
            node, f"( exec 9>{path}; exec sleep 100000 >/dev/null 2>&1 </dev/null ) & echo $!"
        )

    def _started(self, node: str, script: str) -> int:
        """Run a script that prints the pid of its background process; wait until that sleeps."""
        vm = self.lab.nodes[node]
        pid = int(vm.run(["/bin/bash", "-c", script]).stdout)
        wait_until(
            lambda: "sleep" in vm.run(f"cat /proc/{pid}/comm", check=False).stdout,
            timeout_s=20,
            what=f"process {pid} on {node}",
        )
        self.undo(lambda: self.kill(node, pid))
        return pid

    def map_by_hand(self, node: str, image: str, *flags: str, netns: str = "") -> str:
        """Map an image as an administrator would, and return the device.

        ``netns``: the network namespace of the node in which the client runs.
        """
        device = self.map_and_leave(node, image, *flags, netns=netns)
        self.undo(lambda: self.lab.nodes[node].run(["rbd", "unmap", "-o", "noudev", device]))
        return device

    def map_and_leave(self, node: str, image: str, *flags: str, netns: str = "") -> str:
        """Map an image that another program unmaps: its device name may be reused by then."""
        vm = self.lab.nodes[node]
        key = self.lab.ceph.key_of("csi")
        inside = f"nsenter --net=/run/netns/{netns} " if netns else ""
        return vm.run(
            f"{inside}rbd --id csi --keyfile /dev/stdin -m {self.lab.ceph.monitor} map -o noudev"
            f" {shlex.join(flags)} {image}",
            stdin=key.encode(),
        ).stdout.strip()

    def format_image(self, node: str, image: str) -> None:
        """Make an ext4 in an image."""
        vm = self.lab.nodes[node]
        device = self.map_by_hand(node, image)
        vm.run(["mkfs.ext4", "-q", device])
        self._undo.pop()
        vm.run(["rbd", "unmap", "-o", "noudev", device])

    def clean_mapping(self, node: str, holder: Json) -> None:
        """Run the commands of the answer: unmount the remaining mounts, and unmap."""
        vm = self.lab.nodes[node]
        for mount in holder["mounts"]:
            vm.run(["umount", mount["path"]], check=False)
        vm.run(["rbd", "unmap", "-o", "noudev", holder["device"]])

    def kill_nbd(self, node: str, handle: str) -> None:
        """Kill the rbd-nbd process with a volume's cookie."""
        vm = self.lab.nodes[node]
        script = (
            "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null"
            f" | grep -q -- '^rbd-nbd.*--cookie={handle}' && kill -KILL ${{p#/proc/}}; done; true"
        )
        vm.run(script)

    def fence(self, node: str, holder: Json) -> str:
        """Put the client of a krbd mapping on the blocklist; return its address.

        Wait until the kernel gives up the watch: it notices the loss with its next ping, after up
        to 5 s (osdkeepalive of libceph). If the entry is removed before that, the watch returns.
        """
        ceph, vm, address = self.lab.ceph, self.lab.nodes[node], str(holder["clientAddress"])
        device = str(holder["device"]).removeprefix("/dev/")
        line = f"rbd: {device}: failed to reregister watch: -108"
        # Another scene may have fenced a mapping of the same name.
        before = vm.run(["dmesg"]).stdout.count(line)
        ceph.ceph("osd", "blocklist", "add", address)
        self.undo(lambda: ceph.ceph("osd", "blocklist", "rm", address))
        wait_until(
            lambda: vm.run(["dmesg"]).stdout.count(line) > before,
            timeout_s=60,
            what=f"the kernel of {node} to lose the watch of {device}",
        )
        return address

    @contextlib.contextmanager
    def without_right(self, resource: str) -> Iterator[None]:
        """Remove the right to a resource from rbdagent's user in the API server."""
        rules = [
            rule | {"resources": [name for name in rule["resources"] if name != resource]}
            for rule in RBDAGENT_RULES
        ]
        try:
            self._grant([rule for rule in rules if rule["resources"]], resource, allowed=False)
            yield
        finally:
            self._grant(list(RBDAGENT_RULES), resource, allowed=True)

    def _grant(self, rules: list[Json], resource: str, *, allowed: bool) -> None:
        """Set the rules, and wait until the authorizer uses them."""
        api = self.lab.control_plane.api
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        api.patch(f"{roles}/{RBDAGENT_ROLE}", {"rules": rules})
        review: Json = {
            "spec": {
                "user": "lab:rbdagent",
                "resourceAttributes": {"verb": "list", "resource": resource},
            }
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        wait_until(
            lambda: api.create(path, review)["status"]["allowed"] is allowed,
            timeout_s=10,
            what=f"the right to list {resource} to be {allowed}",
        )

    @contextlib.contextmanager
    def librbd_client(self, image: str) -> Iterator[None]:
        """Keep an image open read-write by a program outside the cluster."""
        with librbd_client(self.lab, image, self.name):
            yield

    @contextlib.contextmanager
    def flashing_client(self, node: str, image: str) -> Iterator[None]:
        """Run a program on a node that opens an image for a moment, repeatedly."""
        key = self.lab.ceph.key_of("csi")
        with flashing_client(self.lab.nodes[node], image, self.name, key=key):
            yield

    def kill(self, node: str, pid: int) -> None:
        """Kill a process of the scene in a guest."""
        self.lab.nodes[node].run(f"kill -KILL {pid}", check=False)

    @contextlib.contextmanager
    def agent(self, node: str, *flags: str) -> Iterator[Service]:
        """Run an agent on a node during the block."""
        program, state = venv_python().parent / "rbdagent", f"/run/{self.name}-agent"
        service = self.lab.nodes[node].define_service(
            "rbdagent", [str(program), "agent", f"--state-dir={state}", *flags]
        )
        service.start()
        try:
            yield service
        finally:
            if service.vm.running and service.pid() is not None:
                service.stop()

    # Observing -----------------------------------------------------------------------------------

    def look(self, node: str, target: str, *flags: str) -> Report:
        """Run `who-holds TARGET -o json` on a node."""
        done = self.lab.rbdagent_warm(
            node, "who-holds", target, "-o", "json", *flags, timeout_s=_LOOK_S
        )
        try:
            return Report(json.loads(done.stdout), done.exit_code)
        except ValueError:
            raise LabError(
                f"who-holds {target} on {node}: exit {done.exit_code}\n{done.stdout}{done.stderr}"
            ) from None

    def first_sentence(self, node: str, target: str) -> tuple[str, int]:
        """Return the first sentence of `who-holds TARGET` on a node, and its exit code.

        Without the command of a process: an agent publishes only its program.
        """
        done = self.lab.rbdagent_warm(node, "who-holds", target, timeout_s=_LOOK_S)
        assert done.stdout, done.stderr
        # One line: the width of the terminal breaks it elsewhere.
        answer = re.sub(r'(process \d+ )\(("[^"]*"|[^)]*)\)', r"\1", " ".join(done.stdout.split()))
        return answer.partition(". ")[0], done.exit_code

    def assert_same_elsewhere(self, target: str, node: str, verdict: str) -> None:
        """Wait until the answer of another node begins as the one of the mapping's node.

        The agent of that node publishes what another node can know: its RBDMapping, and then its
        RBDNode, which leads to it. Until then, the API alone may give the same verdict.
        """
        other = {"worker-1": "worker-2", "worker-2": "worker-1"}[node]
        self.wait_verdict(other, target, verdict)

        def is_same() -> bool:
            here, there = self.first_sentence(node, target), self.first_sentence(other, target)
            if here != there:
                raise LabError(f"{node}: {here}, {other}: {there}")
            return True

        wait_until(is_same, timeout_s=60, what=f"{target} to have one answer", interval_s=3)

    def wait_verdict(
        self, node: str, target: str, verdict: str, *flags: str, timeout_s: float = 90
    ) -> Report:
        """Run `who-holds` again until the target has a verdict; return that report."""
        last: list[Report] = []

        def as_wanted() -> Report | None:
            last[:] = [self.look(node, target, *flags)]
            return last[0] if last[0].verdict == verdict else None

        try:
            return wait_until(
                as_wanted, timeout_s=timeout_s, what=f"{target} to be {verdict}", interval_s=3
            )
        except LabError as error:
            # The full answer is long, and CI prints only the beginning of a failure.
            answer = f"{last[0].summary}\n{last[0]}" if last else ""
            raise LabError(f"{error}\n{answer}") from None

    def diagnose(self, node: str | None, target: str) -> Json:
        """Run `diagnose TARGET -o json` on a node, or (None) as a user outside any node."""
        words = ("diagnose", target, "-o", "json")
        done = (
            self.lab.rbdagent_from_afar(*words)
            if node is None
            else self.lab.rbdagent_warm(node, *words, timeout_s=_LOOK_S)
        )
        try:
            data: Json = json.loads(done.stdout)
        except ValueError:
            raise LabError(
                f"diagnose {target} on {node}: exit {done.exit_code}\n{done.stdout}{done.stderr}"
            ) from None
        jsonschema.validate(data, schema(str(data["kind"])))
        return data

    def aged(self, node: str, target: str, *, minutes: int) -> Report:
        """Take a snapshot, and read it as if it were older: one snapshot has no history."""
        taken = self.lab.rbdagent_warm(node, "snapshot", target, timeout_s=_LOOK_S)
        snapshot = json.loads(taken.stdout)
        taken_at = dt.datetime.fromisoformat(snapshot["observedAt"])
        moved = (taken_at + dt.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = json.dumps(snapshot | {"observedAt": moved})
        done = self.lab.rbdagent_warm(
            node, "who-holds", target, "--from", "-", "-o", "json", stdin=text.encode()
        )
        return Report(json.loads(done.stdout), done.exit_code)

    # Acting --------------------------------------------------------------------------------------

    def unmap(self, node: str, target: str, *flags: str, under: Sequence[str] = ()) -> Json:
        """Run `unmap TARGET -o json` on a node with its own state directory; return its output.

        ``under``: a program that runs it with less than root's rights.
        """
        words = ["unmap", target, "-o", "json", f"--state-dir=/run/{self.name}-state", *flags]
        if under:
            command = [*under, str(venv_python().parent / "rbdagent"), *words]
            done = self.lab.nodes[node].run(command, timeout_s=_LOOK_S, check=False)
        else:
            done = self.lab.rbdagent_warm(node, *words, timeout_s=_LOOK_S)
        try:
            data: Json = json.loads(done.stdout)
        except ValueError:
            raise LabError(
                f"unmap {target} on {node}: exit {done.exit_code}\n{done.stdout}{done.stderr}"
            ) from None
        jsonschema.validate(data, schema(str(data["kind"])))
        assert (done.exit_code == _REFUSED) is (
            data["kind"] == "UnmapRefusal" or data.get("outcome") in {"refused", "busy"}
        ), done
        return data

    def refused(
        self, node: str, target: str, *flags: str, under: Sequence[str] = ()
    ) -> dict[str, str]:
        """Ask for a plan; return by code the facts of the conditions that time alone cannot meet.

        One snapshot has no history, so the condition that a grace period has passed is never met.
        """
        refusal = self.unmap(node, target, *flags, under=under)
        return _said(refusal, lambda condition: not condition["pending"])

    def all_refusals(self, node: str, target: str) -> dict[str, str]:
        """Ask for a plan with the default grace period; return all observed facts by code."""
        return _said(self.unmap(node, target), lambda _: True)

    def leak_mapping(self, node: str, volume: str, pod_name: str) -> str:
        """Delete the pod and make NodeUnstage leave its mapping behind; return the device.

        There is no attachment, staging mount or pod: an orphan of which kubelet has no record.
        """
        handle = self.handle(volume)
        self.lab.set_fault(node, "NodeUnstage.unmap", "skip", volume=handle)
        self.workloads.delete("Pod", pod_name)
        self.wait_detached(volume, node)
        self.lab.clear_fault(node, "NodeUnstage.unmap", volume=handle)
        device = str(self.wait_verdict(node, volume, "Orphaned").holder(node)["device"])
        vm = self.lab.nodes[node]
        self.undo(lambda: vm.run(["rbd", "unmap", "-o", "noudev", device], check=False))
        return device

    def keep_terminating(self, pod_name: str) -> None:
        """Delete a pod that a finalizer keeps until the end."""
        path = f"/api/v1/namespaces/default/pods/{pod_name}"
        api = self.lab.control_plane.api
        api.patch(path, {"metadata": {"finalizers": ["rbdagent.dev/kept"]}})
        self.undo(lambda: api.patch(path, {"metadata": {"finalizers": None}}))
        self.workloads.delete("Pod", pod_name, wait=False)

    def freeze(self, path: str) -> None:
        """Set the annotation that freezes a node, a PV or a namespace."""
        self._annotate(path, "true")
        self.undo(lambda: self._annotate(path, None))

    def thaw(self, path: str) -> None:
        """Remove the annotation again."""
        self._annotate(path, None)

    def _annotate(self, path: str, value: str | None) -> None:
        body = {"metadata": {"annotations": {"rbdagent.dev/freeze": value}}}
        self.lab.control_plane.api.patch(path, body)

    # Ending --------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Undo, delete pods and claims, and wait until the nodes have released the volumes."""
        for action in reversed(self._undo):
            with contextlib.suppress(LabError):
                action()
        for name in self._pods:
            self.workloads.delete("Pod", name, wait=False)
        for name in self._pods:
            with contextlib.suppress(LabError):
                self.workloads.wait_gone("Pod", name, timeout_s=RETRIED_S)
        for name in self._claims:
            self.workloads.delete("PersistentVolumeClaim", name, wait=False)
        for path in self._images:
            with contextlib.suppress(LabError):
                wait_until(
                    functools.partial(self.lab.ceph.rbd, "rm", "--no-progress", path),
                    timeout_s=_UNMAP_S,
                    what=f"{path} to have no client",
                    interval_s=1,
                )
