"""The fuzz targets: every parser of text from a tenant, a log, Ceph, the API or a user.

The samples are recorded (tests/fixtures), or invented if no recording has any. A parser may raise
the errors that its docstring lists below ``Raises:``.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import json
import re
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from rbdagent import config, errors, pages
from rbdagent.correlate.log_names import LogNames, Naming
from rbdagent.model import CsiSource, DeviceNumber
from rbdagent.parse import (
    address,
    brief,
    ceph_keys,
    command_line,
    csi_config,
    csi_image_name,
    documents,
    driver_image,
    excerpt,
    faults,
    foreign,
    handle,
    keyring,
    krbd,
    kubelet,
    kubernetes,
    labels,
    logs,
    manifest,
    monitors,
    mountinfo,
    network_namespace,
    node_networks,
    proc,
    quantity,
    rbd_nbd,
    rbd_objects,
    recognised,
    secrets,
    selector,
    shown,
    target,
    times,
    trash,
    volume,
)
from rbdagent.parse.kubelet import pod_uid_of_path
from rbdagent.report.snapshot import load_snapshot
from rbdagent.rules import ERROR_TEXTS
from tests.fuzz.inputs import Texts, Trees, small
from tests.lab.install import CHECKOUT
from tests.support import network_files
from tests.support.manifests import content, listed, pv, pvc, storage_class
from tests.support.rbd_nbd import SERVED

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    Read = Callable[[str], object]

_FIXTURES: Final = CHECKOUT / "tests" / "fixtures"
_WHERE: Final = "a fuzzed input"


@dataclass(frozen=True)
class Target:
    """A parser and the inputs that it is run on."""

    name: str
    reads: tuple[Callable[..., object], ...]
    """The functions of rbdagent that it runs."""
    read: Read
    inputs: Texts | Trees
    documented: tuple[type[Exception], ...]

    def draw(self, chance: random.Random) -> str:
        """Return an input."""
        return self.inputs.draw(chance)

    def play(self, text: str) -> None:
        """Run the parser on an input; a documented error is also a valid result."""
        with contextlib.suppress(*self.documented):
            self.read(text)


def documented(function: Callable[..., object]) -> tuple[type[Exception], ...]:
    """Return the errors that a docstring lists."""
    _, _, listed = (inspect.getdoc(function) or "").partition("\nRaises:\n")
    names = re.findall(r"(?m)^    (\w+): ", listed)
    return tuple(getattr(errors, name, None) or getattr(builtins, name) for name in names)


def _target(
    function: Callable[..., object],
    inputs: Texts | Trees,
    read: Read | None = None,
    *also: Callable[..., object],
    name: str = "",
) -> Target:
    return Target(
        name=name or f"{function.__module__.rpartition('.')[2]}.{function.__name__}",
        reads=(function, *also),
        read=read or function,
        inputs=inputs,
        documented=documented(function),
    )


# --------------------------------------------------------------------------------------------------
# Samples
# --------------------------------------------------------------------------------------------------


def _recorded(pattern: str) -> Iterator[str]:
    for path in sorted(_FIXTURES.glob(pattern)):
        yield path.read_text(errors="surrogateescape")


def _lines(pattern: str, most: int = 200) -> tuple[str, ...]:
    """Return a sample of the distinct lines of recordings."""
    lines = dict.fromkeys(line for text in _recorded(pattern) for line in text.splitlines())
    return tuple(lines)[:: max(len(lines) // most, 1)]


def _found(regex: str, pattern: str) -> tuple[str, ...]:
    texts = (found for text in _recorded(pattern) for found in re.findall(regex, text))
    return tuple(dict.fromkeys(texts))[:100]


def _items(kind: str) -> tuple[str, ...]:
    listed = json.loads((_FIXTURES / "kubernetes" / "12-pinned.json").read_text())[kind]
    for text in _recorded(f"recordings/*/kube.{_FILES.get(kind, kind)}.json"):
        listed += json.loads(text)
    return tuple(json.dumps(item) for item in listed)[:60]


_TRASH: Final = Texts(
    ("\x02\x01\x1d\x00\x00\x00\x00\x05\x00\x00\x00image\x01\x00\x00\x60" + "\x00" * 12,)
)
_IMAGE_NAMES: Final = Texts(
    tuple(
        f"{begin}a5aedea1-28da-40b4-92b8-33fd7de38647{end}"
        for begin, end in (
            ("csi-vol-", ""),
            ("csi-vol-", "-temp"),
            ("csi-snap-", ""),
            ("kubernetes-dynamic-pvc-", ""),
            ("team-", ""),
        )
    )
)
_SNAPSHOT_CONTENT: Final = json.dumps(
    {
        "metadata": {"name": "snapcontent-1"},
        "spec": {
            "driver": "rbd.csi.ceph.com",
            "source": {"snapshotHandle": "0001-0001-a-0000000000000001-u"},
            "volumeSnapshotRef": {"namespace": "default", "name": "one", "uid": "u"},
        },
        "status": {"snapshotHandle": "0001-0001-a-0000000000000001-u"},
    }
)
_MIGRATION: Final = json.dumps(
    {
        "metadata": {"namespace": "default", "name": "move", "uid": "m1"},
        "spec": {"vmiName": "vm1"},
        "status": {
            "phase": "Failed",
            "phaseTransitionTimestamps": [
                {"phase": "Failed", "phaseTransitionTimestamp": "2026-11-21T02:01:00Z"}
            ],
            "migrationState": {"endTimestamp": None, "failureReason": "the target is gone"},
        },
    }
)
_REPLICATION: Final = json.dumps(
    {
        "metadata": {
            "namespace": "default",
            "name": "data",
            "generation": 2,
            "labels": {"ramendr.openshift.io/owner-name": "drpc"},
        },
        "spec": {
            "replicationState": "primary",
            "dataSource": {"kind": "PersistentVolumeClaim", "name": "data"},
        },
        "status": {
            "state": "Unknown",
            "observedGeneration": 2,
            "conditions": [{"type": "Completed", "status": "False", "reason": "FailedToPromote"}],
        },
    }
)
_FILES: Final = {"persistentvolumes": "pv", "persistentvolumeclaims": "pvc"}

_ADDRESSES: Final = Texts(
    (
        *_found(r"watcher=(\S+)", "recordings/*/ceph"),
        *("[fd00::1]:0/513141202", "v2:10.77.0.1:3300/0", "any:[::ffff:1.2.3.4]:0/1"),
        "[v2:10.77.0.1:3300/0,v1:10.77.0.1:6789/0]",
        *("cidr:10.77.0.0:0/24", "cidr:[fd00::]:0/64", "client.4284", "client4284"),
    )
)
_IPS: Final = Texts(
    ("10.77.0.1 10.77.0.1", "fd00::1 FD00:0:0::1", "::ffff:1.2.3.4 ::ffff:102:304", "fe80::1%eth0")
)
_HANDLES: Final = Texts(
    (
        *_found(r"0001-000a-lab-ceph-1-[0-9a-f-]+", "recordings/*/kube.pv.json"),
        "mig_mons-0a1b2c3d4e5f60718293a4b5c6d7e8f9_image-a5aedea1-28da-40b4-92b8_6b3873",
        *("k8s/img", "pv/pvc-1", "pvc/shop/data", "pod/web-0", "/dev/rbd4p1", "/dev/rbd/k8s/img"),
    )
)
_KEYRINGS: Final = Texts(
    (
        "AQBPnnpgAAAAABAAcPb8S8gLKXhXJ1yJ5rwQ2A==",
        '[client.a]\n\tkey = AQBPnnpgAAAAABAAcPb8S8gLKXhXJ1yJ5rwQ2A==\n\tcaps mon = "allow r"\n',
        '; comment\n[client.a]\nkey = x ; y\n[client.b]\nkey = "AQ==" # z\n',
    )
)
_MONITOR_LISTS: Final = Texts(
    (
        "a=10.0.0.1:6789,b=10.0.0.2:6789,c=[fd00::1]:3300",
        '[{"clusterID":"rook-ceph","monitors":["10.96.0.21:6789"],"namespace":"rook-ceph"}]',
        '[{"clusterID":"rook-ceph","monitors":["[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]"]}]',
    )
)
_CSI_CONFIG: Final = json.dumps(
    {
        "metadata": {"namespace": "ceph-csi", "name": "ceph-csi-config"},
        "data": {
            "config.json": '[{"clusterID":"rook-ceph","monitors":["10.96.0.21:6789"]}]',
            "cluster-mapping.json": '[{"clusterIDMapping":{"a":"b"}}]',
        },
    }
)
_MANIFEST_OBJECTS: Final = (listed(pv(), pvc()), listed(content()), listed(storage_class()))
_MANIFESTS: Final = Texts(
    (
        *_MANIFEST_OBJECTS,
        *(yaml.safe_dump(json.loads(text)) for text in _MANIFEST_OBJECTS),
        "a: &a [x, y]\nb: [*a, *a]\n---\n<<: *a\nc: 2026-11-21T00:46:43Z\n",
    ),
    ("\n---\n", "\n  ", "- ", ": ", "&a ", "*a", "<<: ", "!!binary ", "!!set ", "? ", "|\n", "> "),
)
_SYSFS: Final = Texts(
    (
        *_found(r": (.*)~", "recordings/*/n1.rbd-sysfs"),
        "  188   0  6272  60   0   0   0   0   0   60   60   0   0   0   0   0   0",
    )
)
_OSDC: Final = Texts(
    (
        """\
REQUESTS 3 homeless 0
376\tosd0\t1.fd7ca1ae\t1.6\t[0]/0\t[0]/0\te10\trbd_data.101f902470b8.000000000000000f\t0x400014\t1\tread
LINGER REQUESTS
18446462598732840961\tosd0\t1.b01a9549\t1.1\t[0]/0\t[0]/0\te10\trbd_header.101f38add426\t0x20\t0\tWC/0
BACKOFFS
""",
    )
)
"""From recording 29: an OSD that hangs."""
_FIB_TRIE: Final = Texts((network_files.FIB_TRIE,))
_IPV4_ROUTES: Final = Texts((network_files.ROUTE,))
_IPV6_ROUTES: Final = Texts((network_files.IPV6_ROUTE,))
_TCP: Final = Texts((network_files.TCP, network_files.TCP6))
_OSD_MAP: Final = Texts((network_files.OSDMAP,))
_PEERS: Final = Texts(("10.77.0.1:6789,[fd00::1]:3300", "[v2:10.77.0.1:3300/0,v1:10.77.0.1:6789]"))
_FILES_OF_KUBELET: Final = Trees(_found(r"(?m)^(\{.*\})$", "recordings/*/n1.json-files"))
_FRAMES: Final = tuple(
    f"2026-11-21T00:46:43.130828123Z stderr {tag} {line}"
    for line in _lines("logs/*.csi.log", 60)
    for tag in "FP"
)
_CRI: Final = Texts(_FRAMES)
_LOGS: Final = Texts(
    (
        *_lines("logs/*.kubelet.log", 60),
        *(f"Nov 21 00:46:43 n1 kubelet[211]: {line}" for line in _lines("logs/*.kubelet.log", 20)),
        *(f"1795394803.130828 n1 k3s[2]: {line}" for line in _lines("logs/*.kubelet.log", 20)),
        "2026-11-21T00:46:43.130828+00:00 n1 kubelet[211]: x",
    )
)
_KERNEL: Final = Texts(
    (
        *(f"<6>{line}" for line in _lines("logs/*.dmesg", 60)),
        *(f"6,1,2,-;{line}" for line in _lines("logs/*.dmesg", 20)),
        "<4>[ 1234.567890][  T123] rbd: rbd0: encountered watch error: -107",
    )
)
_NAMES: Final = Texts(
    (*_lines("logs/*", 60), 'for volume "data" of k8s/img: rbd0 dm-0 INFO: task kworker/0:1 hung'),
    ('volume \\"data', "Volume: ", "Req-ID: ", "data", "pvc-1", "k8s/img", "rbd", "dm-", ":1"),
)
_STAMPS: Final = Texts(
    ("1121 00:46:43.130395", "Nov 21 00:46:43", "0229 23:59:59.999999", "2026-11-21T00:46:43Z")
)
_MOUNTS: Final = Texts(_lines("recordings/*/n1.mountinfo-*"))
_STATS: Final = Texts(
    (
        "77 (a) b (c)) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 3 0 1234 0 0 0 4194304 4202496 7",
        "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 4 0 0 0 0 0 0",
        "cpu  1 2 3\nintr 4 5\nbtime 1795394803\nprocesses 9\n",
    ),
    ("btime ", ") Z ", " (", "\nbtime "),
)
_STATUSES: Final = Texts(
    (
        "Name:\tapp\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapPrm:\t000001ffffffffff\n",
        "Name:\tUid:\t0\t0\t0\t0\nUid:\t34\t34\t34\t34\nCapPrm:\t00000000a80425fb\n",
    ),
    ("\nUid:\t", "\nCapPrm:\t", "\t0"),
)
_CGROUPS: Final = Texts(
    (
        (
            "0::/kubepods.slice/kubepods-poda5aedea1_28da_40b4_92b8_6b3873d1a0c2.slice/"
            f"cri-containerd-{'0f' * 32}.scope"
        ),
        f"0::/kubepods/besteffort/poda5aedea1-28da-40b4-92b8-6b3873d1a0c2/{'a0' * 32}",
    ),
    ("pod", "a5aedea1", "0" * 32, "f" * 64),
)
_MAPS: Final = Texts(
    (
        "7f0000000000-7f0000001000 r--p 00000000 fc:00 12                         /data/a b",
        "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n55d0-55e0 r-xp 0 fc:10 7 /h fc:00 x",
    ),
    (" fc:00 ", " fc:", "fc:10", "\n"),
)
_COMMAND_LINES: Final = Texts(
    (
        "/usr/local/bin/k3s server\0",
        "rbd-nbd\0map\0k8s/x\0--device\0/dev/nbd0\0",
        "kubelet\0--root-dir=/data/kubelet\0--v=2",
        "/sbin/mkfs.ext4\0-F\0/dev/rbd0\0",
    ),
    ("--root-dir", "--root-dir=", "\0", "mkfs", "/", "map", "attach"),
)
_IMAGES: Final = Texts(
    ("quay.io/cephcsi/cephcsi:v3.12.1", "cephcsi:3.3.1-arm64", "x/cephcsi-rhel8@sha256:00"),
    ("cephcsi:v", ".", ":", "/", "-"),
)
_QUANTITIES: Final = Texts(("1Gi", "500M", "1e3", "0.5Ki", "-1", "64Mi", "1E", "100m", ".5G"))
_DEVICES: Final = Texts(("rbd0", "rbd0_rbd7_nbd1", "many", "rbd", ""), ("_", "rbd", "nbd"))
_SELECTORS: Final = Texts(
    ("app=shop", "app!=shop,tier", "!x", "app in (a, b),tier notin (c)", "a.b/c == d", "a in ()"),
    (" in (", " notin (", ", ", ",,", "((", "))"),
)
_DURATIONS: Final = Texts(("90s", "1m30s", "500ms", "1.5h", "10", "0.1", "2h3m4.5s6ms"))
_CONFIGS: Final = Texts(
    (
        'node-name = "n1"\nceph-timeout = 10\nno-kube = true\nkubelet-root = ["/a", "/b"]\n',
        'grace-period = "10m"\nmax-unmaps-per-hour = 6\nlisten = "127.0.0.1:9898"\n',
        '[[ceph]]\nname = "one"\nconf = "/etc/ceph/one.conf"\ntimeout = 2.5\n[[ceph]]\nid = "x"\n',
    ),
    ("[[ceph]]\n", "[", "a.b.c = ", '"""', "'''", "timeout = ", "name = ", "= 0x", "\\u0000"),
)
_PAGES: Final = Texts(
    ("# RBD101 A\n\nB.\n\n## Cause\n\nC\nD.\n\n## Evidence\n\nE.\n\n## Risk\n\nF.\n",),
    ("## Cause\n", "## ", "# ", "### Risk\n", f"{pages.MARKER}\n", "\r\n"),
)
_COMMANDS: Final = (
    *_found(r'"command": "(.*)"', "life/founding_*.json"),
    "rbd --id u --key AQBPnnpgAAAAABAAcPb8S8gLKXhXJ1yJ5rwQ2A== map k8s/x",
    "sh -c mysql -u root -p'two words' shop; echo x | cryptsetup open /dev/rbd0 x",
    "ssh h sh -c 'curl -u \"u:p\" https://u:p@h/x?token=y'",
    '{"password":"x","a":{"secrets":{"b":"c"}}} {\\"key\\":\\"x\\"}',
    "Authorization: Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.c2ln",
    "-----BEGIN RSA PRIVATE KEY----- x",
)
_SECRETS: Final = Texts(
    (*_COMMANDS, *_lines("logs/*.csi.log", 40)),
    (
        *("key=", 'key="', "key='", "secret: ", 'secret=\\"', "--token ", "--password=", "pass=["),
        *("mysql ", "curl ", "echo ", "htpasswd -b ", " -p", " -u ", " -c ", "'a b' ", "://a:b@"),
        *("eyJ", "AQB", "AKIA", "ghp_", "Bearer ", "PASSWORD '", "-----BEGIN ", "PRIVATE KEY"),
        *("'\\''", "'\"'\"'", "<<< ", "; ", " | ", "$(", "cookie: ", "x-auth-", "a=", "a: "),
    ),
)
_SNAPSHOTS: Final = Trees(
    tuple(json.dumps(small(json.loads(text))) for text in _recorded("life/*.json"))[::3]
)
_MESSAGES: Final = Texts(
    _found(r'"message": "((?:[^"\\]|\\.)*)"', "life/*.json"),
    (
        *("MountVolume.SetUp failed for volume ", "(combined from similar events): "),
        *("(exit status 13) occurred while running rbd", "rbd: map failed: (22)"),
        *("connecting failed: rados: ret=-", "failed to add secret 'client.", "' to kernel"),
        *("/dev/", " is in use.", "csinodes", 'nodes "', '" not found', " has 5 snapshots"),
        *("rbd image ", "code = ResourceExhausted desc = ", "desc = exit status 1"),
        *(" CSI driver is not installed on the node", "PVC ", " was not created for pod ", "a/b: "),
        *("found PV object ", "volume v has volumeMode ", 'StorageClass "rbd": '),
    ),
)
"""Messages of events."""
_PATHS: Final = Texts(
    (
        "/var/lib/kubelet/pods/da8f45d2-5379/volumes/kubernetes.io~csi/pvc-1/mount",
        "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/da8f45d2-5379",
        "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/da8f45d2-5379",
    ),
    ("/volumeDevices/", "/pods/", "/publish/", "/dev/", "/volumes/"),
)

_META: Final = '"metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"d": "e"}}'
_WORKLOAD: Final = (
    f'{{{_META}, "spec": {{"replicas": 2, "strategy": {{"type": "RollingUpdate", '
    '"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}'
)
_BUDGET: Final = (
    f'{{{_META}, "spec": {{"selector": {{"matchLabels": {{"app": "db"}}}}, '
    '"unhealthyPodEvictionPolicy": "AlwaysAllow"}, "status": {"disruptionsAllowed": 0, '
    '"currentHealthy": 1, "desiredHealthy": 1}}'
)
_LEASE: Final = (
    f'{{{_META}, "spec": {{"holderIdentity": "x", "renewTime": "2026-11-21T00:46:43.000000Z", '
    '"leaseDurationSeconds": 15}}'
)
_CLASS: Final = (
    f'{{{_META}, "provisioner": "rbd.csi.ceph.com", "allowedTopologies": '
    '[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]}'
)
_NODE: Final = (
    '{"metadata": {"name": "n", "annotations": {"network.cilium.io/ipv4-cilium-host": "10.0.0.1", '
    '"k8s.ovn.org/host-cidrs": "[\\"10.77.0.12/24\\"]", '
    '"flannel.alpha.coreos.com/public-ip": "10.77.0.12"}}, "spec": {"podCIDRs": ["10.1.0.0/24"]}}'
)
_INTERFACES: Final = Texts(
    ('["10.77.0.12/24","fd00::7/64"]', '["10.77.0.12"]', "[]", "10.77.0.12/24"),
    ('"', "[", "]", ",", "/", "%", "::", "1e9", "null"),
)
_DRIVER_POD: Final = (
    f'{{{_META}, "spec": {{"nodeName": "n", "containers": [{{"image": "i", "args": '
    '["--drivername=rbd.csi.ceph.com"], "env": [{"name": "PROVISIONER_NAME", "value": "v"}]}]}, '
    '"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}'
)
_DRIVER_WORKLOAD: Final = (
    f'{{{_META}, "spec": {{"replicas": 2, "strategy": {{"type": "RollingUpdate"}}, "selector": '
    '{"matchLabels": {"app": "csi"}}, "template": {"spec": {"nodeSelector": {"csi": "yes"}, '
    '"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], "affinity": '
    '{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": '
    '[{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}, '
    '"containers": [{"name": "csi-rbdplugin", "image": "i", "args": '
    '["--drivername=rbd.csi.ceph.com", "--type=rbd"]}]}}}, "status": {"replicas": 1, '
    '"readyReplicas": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 1, "conditions": '
    '[{"type": "ReplicaFailure", "status": "True", "message": "no"}]}}'
)
_WORKLOAD_POD: Final = (
    f'{{{_META}, "spec": {{"affinity": {{"nodeAffinity": '
    '{"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": '
    '[{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}, "status": {"conditions": '
    '[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}], '
    '"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull"}}}]}}'
)
_RBD_NODE: Final = (
    '{"metadata": {"name": "a", "labels": {"image.rbdagent.dev/0123456789ab": "rbd0"}}, "status": '
    '{"observedAt": "2026-11-21T00:46:43Z", "bootID": "x", "mapped": 1, '
    '"leaseNamespace": "rbdagent", "imageLabels": 1}}'
)
_RBD_MAPPING: Final = (
    '{"device": "/dev/rbd0", "verdict": "InUse", "image": {"fsid": "f", "pool": "p", "name": "n", '
    '"id": "i"}, "clientID": 4284, "clientAddress": "10.77.0.11:0/513141202", "pods": ["a/b"], '
    '"reasons": ["x"], "findings": ["RBD101"]}'
)


# --------------------------------------------------------------------------------------------------
# Parsers
# --------------------------------------------------------------------------------------------------


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _of_bytes(function: Callable[..., object], **fixed: Any) -> Read:  # noqa: ANN401 - keywords
    return lambda text: function(_raw(text), **fixed)


def _of_text(function: Callable[..., object], **fixed: Any) -> Read:  # noqa: ANN401 - keywords
    """Return a parser of text that is decoded as the observers do it, without surrogates."""
    return lambda text: function(_raw(text).decode(errors="replace"), **fixed)


def _of_object(read: Callable[..., object], *samples: str) -> Target:
    """Return the target for a parser of API objects, which never gets invalid JSON."""

    def play(text: str) -> object:
        try:
            data = msgspec.json.decode(_raw(text))
        except (ValueError, RecursionError):
            return None
        return kubernetes.parse_object(read, data, what="an object")

    return _target(
        kubernetes.parse_object,
        Trees(samples),
        play,
        read,
        name=f"kubernetes.{read.__name__.lstrip('_')}",
    )


def _interfaces(text: str) -> object:
    names = ("k8s.ovn.org/host-cidrs", "projectcalico.org/IPv4Address")
    return [node_networks.interface_ips({name: text}) for name in names]


def _workload(data: dict[str, Any]) -> object:
    return kubernetes.workload(data, kind="Deployment")


def _driver_workload(data: dict[str, Any]) -> object:
    return [kubernetes.driver_workload(data, kind=kind) for kind in ("Deployment", "DaemonSet")]


def _ways(text: str) -> object:
    routes = network_namespace.parse_fib_trie(text)
    return network_namespace.way_to(ip_address("10.77.0.1"), routes)


def _ways_of_six(text: str) -> object:
    routes = network_namespace.parse_ipv6_routes(text)
    return network_namespace.way_to(ip_address("fd00:77::1"), routes)


def _own_addresses(text: str) -> object:
    return network_namespace.local_addresses(text, text)


def _mapped(text: str) -> object:
    columns = proc.MapsColumns.of(
        frozenset({DeviceNumber(major=252, minor=0), DeviceNumber(major=252, minor=16)})
    )
    return list(proc.mapped_files((_raw(text),), columns, ()))


def _arguments(text: str) -> object:
    line = _raw(text)
    command_line.has_parsed_arguments(command_line.first_argument(line))
    command_line.parse_command_line(line, is_cut=True)
    arguments = command_line.parse_command_line(line, is_cut=False)
    command_line.is_worker(command_line.program_of(arguments[0]))
    command_line.flag_value(arguments, "--root-dir")
    return rbd_nbd.is_server(arguments)


def _image(text: str) -> object:
    first, _, rest = _raw(text).decode(errors="replace").partition("/")
    for attributes in ((), (("pool", rest),), (("staticVolume", "true"), ("imageName", first))):
        source = CsiSource(driver=first, volume_handle=first or rest, attributes=attributes)
        volume.is_rbd_driver(first, dict(attributes))
        volume.is_static(source)
        volume.image_of_source(source)
    return None


def _zone(text: str) -> object:
    found = logs.zone_of(text, 1_795_394_803.0)
    return None if found is None else found.epoch(text[::-1])


def _same_ip(text: str) -> object:
    one, _, other = text.partition(" ")
    return address.same_ip(one, other)


def _osdc(text: str) -> object:
    requests = krbd.parse_osdc(text)
    return requests.of_image(header="rbd_header.101f38add426", data_prefix="rbd_data.101f38add426")


_NAMING: Final = Naming.of(
    (
        LogNames(
            volume=frozenset({"data", "pvc-1", "k8s/img", "a-name.of-more-than-24-letters"}),
            kernel=frozenset({"rbd0", "dm-0", "kworker/0:1"}),
        ),
    )
)


def _named(text: str) -> object:
    return _NAMING.in_log(text), _NAMING.in_kernel(text)


def _meant(text: str) -> object:
    return faults.first_meaning(ERROR_TEXTS, text)


def _recognised(text: str) -> None:
    for row in recognised.Recognised:
        list(row.all_in(text))


def _selects(text: str) -> object:
    return selector.selects(selector.parse_selector(text), {"app": "shop", "tier": "1"})


def _quoted(text: str) -> object:
    """Quote a text, and read it back: nothing in it ends the quotation, or is taken for a name."""
    quoted = foreign.foreign(text)
    found = foreign.foreign_at(quoted, 0)
    assert found is not None
    assert found[1] == len(quoted)
    return foreign.name_at(f"{quoted})", 0)


def _as_name(text: str) -> object:
    """Put a text where a name is expected: nothing in it is taken for the end of the name."""
    name = foreign.quoted_names({"name": text})["name"]
    assert foreign.name_at(f"{name})", 0) in {None, (name, len(name))}
    return name


def _briefed(text: str) -> object:
    short = brief.brief(f"An event has {foreign.foreign(text)}.")
    assert not foreign.is_in_quotation(short)
    return short


def _bounded(text: str) -> object:
    """Put a quoted text into a sentence: the sentence ends behind it, whatever is in it."""
    sentence = f"An event has {foreign.foreign(text)}."
    assert foreign.end_of_sentence(f"{sentence} Next.") == len(sentence)
    assert not foreign.is_in_quotation(foreign.bounded(sentence, 60))
    return foreign.reported(text)


def _manifests(text: str) -> object:
    found = manifest.parse_manifests(text, file="f", namespace="default")
    return manifest.joined_manifests([found])


def _messages(text: str) -> object:
    return list(logs.messages(logs.join_cri(_raw(text).split(b"\n"))))


TARGETS: Final = (
    *(
        _target(function, _ADDRESSES, _of_text(function, where=_WHERE))
        for function in (address.parse_address, address.parse_address_vector, address.parse_client)
    ),
    *(
        _target(function, _ADDRESSES, _of_text(function, until="", where=_WHERE))
        for function in (address.parse_blocklist_entry, address.parse_blocklist_range)
    ),
    _target(address.same_ip, _IPS, _same_ip, address.spelled),
    *(
        _target(function, _HANDLES, _of_text(function))
        for function in (
            handle.parse_volume_handle,
            handle.composed_handle,
            handle.parse_migrated_handle,
        )
    ),
    _target(handle.node_in_key, _HANDLES, _of_text(handle.node_in_key)),
    _target(handle.lease_names, _HANDLES, _of_text(handle.lease_names)),
    _target(target.parse_target, _HANDLES, _of_text(target.parse_target, namespace=None)),
    _target(target.joined_target, _HANDLES, lambda text: target.joined_target(text.split())),
    _target(volume.image_of_source, _HANDLES, _image, volume.is_rbd_driver, volume.is_static),
    _target(keyring.key_type, _KEYRINGS, _of_text(keyring.key_type)),
    _target(
        keyring.keyring_key_type,
        _KEYRINGS,
        _of_text(keyring.keyring_key_type, entity="client.a"),
    ),
    _target(
        trash.name_in_trash,
        _TRASH,
        lambda text: trash.name_in_trash(_raw(text)),
    ),
    _target(trash.trash_entry, _TRASH, lambda text: trash.trash_entry(_raw(text))),
    _target(
        rbd_objects.name_in_directory,
        Texts(("\x05\x00\x00\x00image",)),
        lambda text: rbd_objects.name_in_directory(_raw(text)),
    ),
    _target(
        rbd_objects.time_of,
        Texts(("\x01\x02\x03\x04\x00\x00\x00\x00",)),
        lambda text: rbd_objects.time_of(_raw(text)),
    ),
    *(
        _target(function, _IMAGE_NAMES, _of_text(function))
        for function in (
            csi_image_name.uuids_in,
            csi_image_name.journal_uuid,
            csi_image_name.has_name_of_ceph_csi,
            csi_image_name.has_name_of_in_tree,
            csi_image_name.is_temporary,
            csi_image_name.is_of_snapshot,
        )
    ),
    _target(
        monitors.parse_monitor_list,
        _MONITOR_LISTS,
        _of_text(monitors.parse_monitor_list, cluster_id="rook-ceph", where=_WHERE),
    ),
    _target(
        rbd_nbd.served_image,
        Texts(tuple(SERVED)),
        lambda text: rbd_nbd.served_image(
            ("rbd-nbd", *_raw(text).decode(errors="replace").split())
        ),
    ),
    _target(krbd.parse_snapshot, _SYSFS, _of_text(krbd.parse_snapshot)),
    _target(krbd.has_object_map, _SYSFS, _of_text(krbd.has_object_map)),
    _target(krbd.parse_user, _SYSFS, _of_text(krbd.parse_user)),
    _target(krbd.parse_number, _SYSFS, _of_text(krbd.parse_number, where=_WHERE)),
    _target(krbd.parse_io_counters, _SYSFS, _of_text(krbd.parse_io_counters, where=_WHERE)),
    _target(krbd.parse_io_bytes, _SYSFS, _of_text(krbd.parse_io_bytes, where=_WHERE)),
    _target(krbd.parse_osdc, _OSDC, _of_text(_osdc)),
    _target(network_namespace.parse_fib_trie, _FIB_TRIE, _of_text(_ways)),
    _target(network_namespace.local_addresses, _FIB_TRIE, _of_text(_own_addresses)),
    _target(
        network_namespace.parse_ipv4_interfaces,
        _IPV4_ROUTES,
        _of_text(network_namespace.parse_ipv4_interfaces),
    ),
    _target(network_namespace.parse_ipv6_routes, _IPV6_ROUTES, _of_text(_ways_of_six)),
    _target(network_namespace.parse_tcp, _TCP, _of_text(network_namespace.parse_tcp)),
    _target(
        network_namespace.parse_osd_addresses,
        _OSD_MAP,
        _of_text(network_namespace.parse_osd_addresses),
    ),
    _target(
        network_namespace.pinned_namespaces,
        Texts((network_files.MOUNTINFO,)),
        _of_text(network_namespace.pinned_namespaces),
    ),
    _target(network_namespace.peers_in, _PEERS, _of_text(network_namespace.peers_in)),
    _target(
        kubelet.parse_volume_data,
        _FILES_OF_KUBELET,
        _of_bytes(kubelet.parse_volume_data, where=_WHERE),
    ),
    _target(kubelet.parse_stash, _FILES_OF_KUBELET, _of_bytes(kubelet.parse_stash, where=_WHERE)),
    _of_object(kubernetes.persistent_volume, *_items("persistentvolumes")),
    _of_object(kubernetes.claim, *_items("persistentvolumeclaims")),
    _of_object(kubernetes.pod, *_items("pods")),
    _of_object(kubernetes.node, *_items("nodes"), _NODE),
    _target(node_networks.interface_ips, _INTERFACES, _of_text(_interfaces)),
    _of_object(kubernetes.csi_node, *_items("csinodes")),
    _of_object(kubernetes.attachment, *_items("volumeattachments")),
    _of_object(kubernetes.event, *_items("events")),
    _of_object(kubernetes.driver_pod, _DRIVER_POD),
    _of_object(kubernetes.lease, _LEASE),
    _of_object(kubernetes.storage_class, _CLASS),
    _of_object(_workload, _WORKLOAD),
    _of_object(_driver_workload, _DRIVER_WORKLOAD),
    _of_object(kubernetes.workload_pod, _WORKLOAD_POD),
    _of_object(kubernetes.disruption_budget, _BUDGET),
    _of_object(kubernetes.machine_migration, _MIGRATION),
    _of_object(kubernetes.volume_replication, _REPLICATION),
    _of_object(kubernetes.snapshot_content, _SNAPSHOT_CONTENT),
    _of_object(csi_config.parse_csi_config, _CSI_CONFIG),
    _target(documents.parse_documents, _MANIFESTS, _of_text(documents.parse_documents, file="f")),
    _target(
        manifest.parse_manifests,
        _MANIFESTS,
        _of_text(_manifests),
        manifest.joined_manifests,
    ),
    _target(
        manifest.parse_manifests,
        Trees(_MANIFEST_OBJECTS),
        _of_text(_manifests),
        name="manifest.parse_manifests of JSON",
    ),
    _of_object(kubernetes.rbd_node, _RBD_NODE),
    _of_object(kubernetes.rbd_mapping, _RBD_MAPPING),
    _of_object(kubernetes.object_name, _RBD_NODE),
    _of_object(kubernetes.version, '{"gitVersion": "v1.31.0"}'),
    _target(labels.devices_in, _DEVICES, _of_text(labels.devices_in)),
    _target(logs.parse_cri, _CRI, _of_bytes(logs.parse_cri)),
    _target(logs.messages, _CRI, _messages, logs.join_cri),
    _target(logs.parse_journal, _LOGS, _of_bytes(logs.parse_journal), logs.decoded),
    _target(logs.parse_syslog, _LOGS, _of_bytes(logs.parse_syslog)),
    _target(logs.parse_kmsg, _KERNEL, _of_text(logs.parse_kmsg)),
    _target(logs.parse_dmesg, _KERNEL, _of_text(logs.parse_dmesg)),
    _target(logs.zone_of, _STAMPS, _of_text(_zone)),
    _target(times.later_by, _STAMPS, _of_text(times.later_by, by=timedelta(seconds=90))),
    _target(
        times.seconds_of_http_date,
        Texts(("Sun, 06 Nov 1994 08:49:37 GMT",)),
        _of_text(times.seconds_of_http_date),
    ),
    _target(
        foreign.foreign,
        _SECRETS,
        _quoted,
        foreign.foreign_at,
    ),
    _target(foreign.foreign_name, _SECRETS, _as_name, foreign.name_at, foreign.quoted_names),
    _target(
        brief.brief,
        _SECRETS,
        _briefed,
        *(foreign.with_quotations, foreign.is_in_quotation),
    ),
    _target(foreign.bounded, _SECRETS, _bounded, foreign.end_of_sentence, foreign.reported),
    _of_object(kubernetes.version_of, _RBD_NODE),
    _of_object(kubernetes.revision_of, '{"metadata": {"uid": "u", "resourceVersion": "12345"}}'),
    _target(times.age, _STAMPS, _of_text(times.age, now="2026-11-21T00:46:43Z")),
    _target(
        mountinfo.parse_mount_line,
        _MOUNTS,
        _of_bytes(mountinfo.parse_mount_line, where=_WHERE),
        mountinfo.unescape,
    ),
    _target(mountinfo.limits_projects, _MOUNTS, _of_bytes(mountinfo.limits_projects)),
    _target(proc.parse_stat, _STATS, _of_bytes(proc.parse_stat)),
    _target(proc.parse_boot_time, _STATS, _of_bytes(proc.parse_boot_time)),
    _target(proc.parse_cgroup, _CGROUPS, _of_bytes(proc.parse_cgroup)),
    _target(proc.parse_uids, _STATUSES, _of_bytes(proc.parse_uids)),
    _target(proc.lacks_sys_admin, _STATUSES, _of_bytes(proc.lacks_sys_admin)),
    _target(proc.mapped_files, _MAPS, _mapped),
    _target(
        command_line.parse_command_line,
        _COMMAND_LINES,
        _arguments,
        *(command_line.first_argument, command_line.has_parsed_arguments),
        *(command_line.program_of, command_line.base_name, command_line.is_worker),
        *(command_line.flag_value, rbd_nbd.is_server),
    ),
    _target(
        command_line.shown_command,
        _SECRETS,
        lambda text: command_line.shown_command(tuple(text.split(" ")), is_cut=False),
    ),
    _target(driver_image.cephcsi_version, _IMAGES, _of_text(driver_image.cephcsi_version)),
    _target(quantity.parse_quantity, _QUANTITIES, _of_text(quantity.parse_quantity)),
    _target(selector.parse_selector, _SELECTORS, _of_text(_selects), selector.selects),
    *(
        _target(function, _SECRETS, _of_text(function))
        for function in (
            shown.shown,
            shown.shown_lines,
            shown.in_json,
            shown.as_unicode,
            shown.all_as_unicode,
        )
    ),
    _target(excerpt.printable, _LOGS, _of_text(excerpt.printable)),
    _target(excerpt.what_follows, _LOGS, _of_text(excerpt.what_follows, part=" ")),
    _target(excerpt.shortened, _LOGS, _of_text(excerpt.shortened)),
    _target(secrets.without_secrets, _SECRETS, _of_text(secrets.without_secrets)),
    _target(ceph_keys.without_keys, _SECRETS, _of_text(ceph_keys.without_keys)),
    _target(
        secrets.command_without_secrets,
        _SECRETS,
        lambda text: secrets.command_without_secrets(text.split(" ")),
    ),
    _target(pod_uid_of_path, _PATHS, _of_text(pod_uid_of_path)),
    _target(
        recognised.Recognised.search,
        _MESSAGES,
        _of_text(_recognised),
        name="recognised.Recognised",
    ),
    _target(faults.failure_in, _MESSAGES, _of_text(faults.failure_in)),
    _target(faults.rank_of, _MESSAGES, _of_text(faults.rank_of)),
    _target(faults.first_meaning, _MESSAGES, _of_text(_meant)),
    _target(Naming.in_log, _NAMES, _of_text(_named), Naming.in_kernel),
    _target(load_snapshot, _SNAPSHOTS, _of_text(load_snapshot, where=_WHERE)),
    _target(pages.parse_page, _PAGES, _of_text(pages.parse_page, where=_WHERE)),
    _target(config.parse_config, _CONFIGS, _of_text(config.parse_config, where=_WHERE)),
    _target(config.parse_duration, _DURATIONS, _of_text(config.parse_duration)),
)
