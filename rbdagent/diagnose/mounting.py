"""RBD73x to RBD76x, RBD402, RBD308: what kubelet and the driver said, and what it means.

Texts read in Kubernetes 1.36 (pkg/volume, pkg/kubelet/volumemanager, mount-utils), ceph-csi of
October 2024 (internal/rbd, internal/util) and external-attacher 4.9; older ones where they differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import Template, command, filled, kubectl, template
from rbdagent.correlate.names import node_named
from rbdagent.diagnose.case import (
    Case,
    delete_pod,
    finding,
    pods_on,
    subject_of,
)
from rbdagent.diagnose.evidence import pod_names
from rbdagent.diagnose.target import (
    driver_of,
    is_read_only,
    is_writable,
    maps_by_nbd,
    volumes_of_use,
)
from rbdagent.diagnose.times import LONG, MOVING, age, is_young, seconds
from rbdagent.diagnose.waiting import (
    Word,
    evidence_of_word,
    has_waited,
    waiters,
    word_with,
    words,
)
from rbdagent.model import (
    DeviceKind,
    Finding,
    Heals,
    HolderKind,
    InTreeRbdSource,
    JudgedHolder,
    Locker,
    MountKind,
    Node,
    NotObserved,
    Severity,
    Verdict,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Saying(NamedTuple):
    """What is meant by a text."""

    pattern: str
    code: str | None
    """None: another rule says it, from more than the text."""
    means: str = ""
    """Goes on after "cannot start on NODE: "; groups of the pattern, and what `fields_of` has."""
    commands: tuple[Template, ...] = ()
    """In the same way; one whose fields are not all known is left out."""
    remedy: str = ""
    """Where it is another than the catalogue's."""
    heals: Heals | None = None
    """In the same way."""


def _field_of_volume(path: str) -> Template:
    return template("kubectl get pv", "{volume}", options=("-o", f"jsonpath={{{{.spec.{path}}}}}"))


def _config_maps(name: str) -> Template:
    listing = "kubectl get configmap -A -o yaml --field-selector"
    return template(listing, f"metadata.name={name}")


_NODE_PODS: Final = template("kubectl get pods -A -o wide --field-selector", "spec.nodeName={node}")
_CSI_NODE: Final = template("kubectl get csinode", "{node}", options=("-o", "yaml"))
_FS_TYPE: Final = _field_of_volume("csi.fsType")
_KERNEL_VERSION: Final = template(
    "kubectl get node", "{node}", options=("-o", "jsonpath={{.status.nodeInfo.kernelVersion}}")
)
_KERNEL_LOG: Final = template(
    "journalctl --dmesg --no-pager --lines=10 --grep=rbd:|libceph:", node="{node}"
)
"""Without case: the pattern has no capital (journalctl(1))."""
_MAP_OPTIONS: Final = _field_of_volume("csi.volumeAttributes.mapOptions")
_NODE_STAGE: Final = _field_of_volume("csi.nodeStageSecretRef")
_MONITORS: Final = template("ceph mon dump")
_IMAGE: Final = template("rbd info", "{image}")
_LOCKS: Final = template("rbd lock ls", "{image}")
_USERS: Final = template("ceph auth ls")
_KEY_REFUSED: Final = r"failed to add secret '(?P<user>client\.[\w.-]+)' to kernel"
"""Of rbd, where add_key(2) fails (build_map_buf, ceph src/krbd.cc)."""
_SHOW_ACCESS: Final = template("kubectl describe secret", "{name}", namespace="{namespace}")

MULTI_ATTACH: Final = r"Multi-Attach error|Waiting for detach for volume"
"""How the attach/detach controller begins its event; the second way since Kubernetes 1.37
(pkg/controller/volume/attachdetach/reconciler/reconciler.go, reportMultiAttachError)."""

SAYINGS: Final = (
    Saying(MULTI_ATTACH, None),
    Saying(r"is still being used", None),
    Saying(r"an operation with the given Volume ID \S+ already exists", None),
    Saying(r"code = DeadlineExceeded", None),
    Saying(r"map failed: \(108\)|exit status 108", None),
    Saying(r"volume attachment is being deleted", None),
    Saying(
        r"timed out waiting for external-attacher",
        "RBD712",
        "the external attacher does not answer",
        (template("kubectl get deployments -A -o wide"),),
    ),
    Saying(r"WaitForAttach failed", None),
    Saying(r"ReadWriteOncePod access mode and is already in use", None),
    Saying(r"found PV object .* does not point to claim", None),
    Saying(r"pod is not owner", None),
    Saying(
        r"error processing PVC (?P<claim>[\w.-]+/[\w.-]+): (?P<why>.+)",
        "RBD701",
        "its claim {claim} is not ready: {why}",
        (template("rbdagent diagnose", "pvc/{claim}"),),
    ),
    Saying(
        r"NodeAffinity check failed",
        "RBD702",
        "{volume} may not be used on that node, by the PV's node affinity",
        (_field_of_volume("nodeAffinity"),
         template("kubectl get node", "{node}", options=("--show-labels",))),
    ),
    Saying(
        r"code = ResourceExhausted desc = (?P<why>.+)",
        "RBD703",
        "the node takes no further volume of {driver}: {why}",
        (_CSI_NODE,),
    ),
    Saying(
        r"driver name (?P<name>\S+) not found in the list of registered CSI drivers"
        r"|CSINode \S+ does not contain driver (?P<other>\S+)"
        r"|code = Unavailable desc = connection error"
        r"|dial unix \S+: connect: (?:connection refused|no such file or directory)",
        "RBD731",
        "the CSI driver {driver} does not answer there",
        (_NODE_PODS, _CSI_NODE),
    ),
    Saying(
        r"failed to find the secret (?P<name>[\w.-]+) in the namespace (?P<namespace>[\w.-]+)",
        "RBD733",
        "the driver needs the secret {namespace}/{name}, and cannot read it",
        (_SHOW_ACCESS,),
    ),
    Saying(
        r'failed to load secret "(?P<namespace>[\w.-]+)/(?P<name>[\w.-]+)"',
        "RBD733",
        "the driver needs the secret {namespace}/{name}, and cannot read it",
        (_SHOW_ACCESS,),
    ),
    Saying(
        r'missing configuration for cluster ID "(?P<cluster>[^"]*)"',
        "RBD734",
        "ceph-csi's configuration has no cluster {cluster}",
        (_config_maps("ceph-csi-config"), _config_maps("rook-ceph-csi-config")),
    ),
    Saying(
        r"flatten in progress",
        "RBD745",
        "Ceph's manager is flattening the image first",
        (template("ceph rbd task list"),),
    ),
    Saying(
        r"cannot map image \S+ it is not primary",
        "RBD743",
        "the image is a mirror's copy, not the primary",
        (template("rbd mirror image status", "{image}"),),
    ),
    Saying(
        r"failed to (?:blocklist|blacklist)",
        "RBD742",
        "the driver's user may not put the former owner of the lock on the blocklist",
    ),
    Saying(
        r"modprobe: (?:FATAL|ERROR)|failed to load rbd kernel module|Module rbd not found",
        "RBD739",
        "its kernel has no module rbd",
        (template("modprobe rbd", node="{node}"),),
    ),
    Saying(
        # ceph-csi reads the PV's imageFeatures here, and not the image (validateImageFeatures,
        # internal/rbd/rbd_util.go@52fcb7b).
        r"feature (?P<feature>[\w-]+) requires rbd-nbd for mounter",
        "RBD740",
        "the volume asks for the image feature {feature}, which ceph-csi leaves to rbd-nbd",
        (_field_of_volume("csi.volumeAttributes"), _IMAGE),
        "The attributes of a PV cannot be changed: set Retain and create the PV again, with "
        "mounter: rbd-nbd, or without the feature in imageFeatures. In the second case the image "
        "must not have the feature either. Correct the class in the same way.",
        Heals(note="the attributes of a PV cannot be changed"),
    ),
    Saying(
        r"image feature set mismatch|unsupported krbd Feature|map failed: \(6\)",
        "RBD740",
        "its kernel does not know all features of the image",
        (_IMAGE, template("cat /sys/bus/rbd/supported_features", node="{node}"),
         template("rbd feature disable", "{image}", "{lacking}")),
    ),
    Saying(
        # The kernel checks the length of a key (22) since ac431d597a9b ("libceph: define and
        # enforce CEPH_MAX_KEY_LEN"), which stable kernels have; before, its type alone (524). It
        # knows the type since b7cc142dbafe ("add support for CEPH_CRYPTO_AES256KRB5", 7.0).
        _KEY_REFUSED + r"[\s\S]*map failed: \((?P<number>22|524)\)",
        "RBD747",
        "its kernel cannot use the key of {user} ({number}); kernels before 7.0 do not know keys "
        "of type aes256k",
        (_KERNEL_VERSION, _NODE_STAGE, _KERNEL_LOG, _MONITORS),
    ),
    Saying(
        # Here the kernel's keyring refuses: seccomp without add_key(2), or the user's key quota.
        _KEY_REFUSED + r"[\s\S]*map failed: \((?P<number>\d+)\)",
        "RBD744",
        "its kernel does not take the key of {user} ({number})",
        (_KERNEL_LOG,),
        "Look at the seccomp profile of the CSI node plugin, which must allow add_key(2), and at "
        "`/proc/key-users` on that node. Ceph has not been asked yet.",
    ),
    Saying(
        # librados of ceph-csi, which passes the key as keyfile (measured with 16.2 and 18.2).
        r"connecting failed: rados: ret=-22,",
        "RBD747",
        "the CSI driver cannot read the key of its Ceph user: the key is of a type that the "
        "driver's librados does not know (aes256k), or is no key",
        (_NODE_PODS, _NODE_STAGE, _MONITORS),
        "Update ceph-csi to 3.16.3, 3.17.1 or later, which know aes256k; or give the secret a new "
        "user whose key is of type aes (`ceph auth get-or-create client.USER-aes CAPS "
        "--key-type=aes`, where `ceph mon dump` lists aes in auth_allowed_ciphers; a user that "
        "exists keeps its key). See docs/install.md, Key types.",
    ),
    Saying(
        # rbd itself, before it asks the kernel (build_map_buf, ceph src/krbd.cc,
        # https://tracker.ceph.com/issues/54128). Kernels know ms_mode since 00498b994113 (5.11).
        r"failed to get mon address \(possible ms_mode mismatch\)",
        "RBD748",
        "the monitors have no address for the ms_mode of the map",
        (_MONITORS, _MAP_OPTIONS, template("ceph config get client rbd_default_map_options"),
         _KERNEL_VERSION),
    ),
    Saying(
        r"rados: ret=-110|map failed: \(110\)|Connection timed out|exit status 110\).* running rbd",
        "RBD735",
        "it does not reach Ceph's monitors",
        (_MONITORS, template("ceph health detail")),
    ),
    Saying(
        # Where rbd does not get as far as the kernel, its exit status alone tells.
        r"rados: ret=-(?:1|13),|map failed: \((?:1|13)\)|exit status 13\).* running rbd",
        "RBD736",
        "Ceph refuses the driver's user",
        (_USERS,),
    ),
    Saying(
        r"pool not found|pool (?:ID)?\(\S+\) not found in Ceph cluster",
        "RBD737",
        "the image's pool is not in the Ceph cluster that was asked",
        (template("ceph fsid"), template("ceph osd pool ls")),
    ),
    Saying(
        r"image not found|map failed: \(2\)",
        "RBD738",
        "the driver does not find the image",
        (_IMAGE, template("rbd trash ls --all --pool", "{pool}")),
    ),
    Saying(
        r"map failed: \((?P<number>22|95)\)",
        "RBD741",
        "its kernel refuses the map ({number}): an option that it does not know, or a chain of "
        "parents that is too long or is being flattened",
        (_KERNEL_LOG, _MAP_OPTIONS, _IMAGE),
    ),
    Saying(
        r"rbd: map failed|map failed: \(\d+\)",
        "RBD744",
        "the image cannot be mapped",
        (_KERNEL_LOG,),
    ),
    Saying(
        r"unexpected encryption status",
        "RBD766",
        "the metadata of the image does not say that it is, or is to be, encrypted",
        (template("rbd image-meta list", "{image}"),),
    ),
    Saying(
        r"passphrase|encryption kms|encryption status|failed to encrypt volume|can not fetch DEK",
        "RBD746",
        "the passphrase of the encrypted volume cannot be had",
    ),
    Saying(
        # e2fsck and mke2fs say so of a device that is open exclusively: mount-utils has these words
        # in the text of "'fsck' found errors" and of "format of disk" (mount_linux.go).
        r"/dev/\S+ is in use\.|apparently in use by the system"
        r"|opened exclusively by another program|cannot open /dev/\S+: Device or resource busy",
        "RBD764",
        "something on that node has the device already",
        (template("rbdagent who-holds", "pv/{volume}", node="{node}"),),
    ),
    Saying(
        r"unsupported feature\(s\)|Get a newer version of e2fsck",
        "RBD765",
        "the e2fsck of its CSI driver is older than the file system, which is not damaged",
        (_NODE_PODS,),
    ),
    Saying(
        r"'fsck' found errors on device (?P<device>\S+) but could not correct",
        "RBD752",
        "its file system has errors that fsck leaves to a person",
        (template("rbd snap create", "{image}@before-fsck"),),
    ),
    Saying(
        r"cannot mount unformatted disk",
        "RBD754",
        "the image is empty, and is to be mounted read-only",
    ),
    Saying(
        # mount-utils (formatAndMountSensitive) has looked with blkid: this comes before mount's
        # own words, which are in the same text.
        r"it already contains|unknown data, probably partitions",
        "RBD753",
        "what is on the image is not the file system that is asked for ({fs_type})",
        (_FS_TYPE,),
        "See what is there (`blkid` on a read-only mapping). The fsType of a PV cannot be "
        "changed: set Retain and make the PV anew with the right one.",
        Heals(note="a PV's fsType cannot be changed"),
    ),
    Saying(
        # util-linux says so of whatever the kernel answers with EINVAL
        # (libmount/src/context_mount.c).
        r"wrong fs type, bad option",
        "RBD753",
        "mount refuses a mount option, the type ({fs_type}), or the file system itself: its "
        "superblock, or a feature that is newer than that node's kernel",
        (_field_of_volume("mountOptions"), _FS_TYPE, _KERNEL_LOG),
    ),
    Saying(
        r"RWX access mode request is only valid|multi node access modes are only supported",
        "RBD756",
        "RBD gives no file system to many nodes (ReadWriteMany)",
    ),
    Saying(
        r"volume (?P<name>\S+) has volumeMode (?P<mode>\w+), but is specified in (?P<list>\w+)",
        "RBD757",
        "its volume {name} has volumeMode {mode}, and the pod names it in {list}",
    ),
    Saying(
        r"conflicting SELinux labels|already mounted to a different pod with a different SELinux",
        "RBD759",
        "another pod has the volume there with another SELinux label",
        (_NODE_PODS,),
    ),
    Saying(
        r"Setting volume ownership for",
        "RBD763",
        "kubelet is giving the volume's files to the pod's group",
    ),
    Saying(
        r"applyFSGroup failed",
        "RBD758",
        "kubelet cannot give the volume's files to the pod's group",
    ),
    Saying(
        r"while expanding volume|NodeExpandVolume failed",
        "RBD761",
        "the file system cannot be grown",
        (template("kubectl describe pvc", "{claim_name}", namespace="{claim_namespace}"), _IMAGE),
    ),
    Saying(
        r"no volume plugin matched",
        "RBD760",
        "its kubelet has no plugin for this volume any more",
    ),
    Saying(
        r"format of disk|desc = exit status \d+\s*$",
        "RBD751",
        "no file system can be made on the image",
    ),
)  # fmt: skip
"""In this order; the first that fits is meant.

Whoever may write events may write anything into them: what goes into a command is a name, and no
more than that.
"""

BY_NOW: Final = " By now it is registered there: the next try gets it."
_MOST_NAMED: Final = 3
"""Pods, and nodes, of which the same is told."""
_JOURNAL: Final = "journaling"
"""Which the kernel still lacks, and a mirror by journal lives on."""
_PATTERNS: Final = tuple((re.compile(each.pattern), each) for each in SAYINGS)
_ATTACH: Final = "AttachVolume.Attach failed"
"""What follows is the VolumeAttachment's attachError, verbatim."""


def meant_by(text: str) -> tuple[Saying, dict[str, str]] | None:
    """Give what a text means, and what it names."""
    for pattern, saying in _PATTERNS:
        match = pattern.search(text)
        if match is not None:
            return saying, {name: found or "" for name, found in match.groupdict().items()}
    return None


def told(case: Case) -> Iterator[Finding]:
    """RBD701 to RBD703, RBD73x to RBD76x: what the newest word to a waiting pod means.

    Pods that were told the same are told of together.
    """
    by_code: dict[str, list[Word]] = {}
    by_objects = not isinstance(case.use.attachments, NotObserved)
    for word in words(case):
        code = _code_of(word)
        if code == "RBD701" and _is_own_and_not_bound(word, case):
            # The rules of binding say why.
            continue
        if code is not None and not (by_objects and _ATTACH in word.text):
            by_code.setdefault(code, []).append(word)
    for code, alike in by_code.items():
        if code == "RBD731" and any(_lacks_driver(each.node, case) for each in alike):
            continue
        if code == "RBD738" and _image_is_known_gone(case):
            continue
        if code == "RBD760" and not _may_be_in_tree(case):
            # It is another volume of the pod that has no plugin.
            continue
        yield _told(code, alike, case)


def _code_of(word: Word) -> str | None:
    found = meant_by(word.text)
    if found is not None:
        return found[0].code
    if _ATTACH in word.text:
        return "RBD413"
    # Where a volume is not named the words may be of any other volume of the pod.
    named = word.event.reason in {"FailedMount", "FailedMapVolume"} and "for volume" in word.text
    return "RBD762" if named else None


def _is_own_and_not_bound(word: Word, case: Case) -> bool:
    """Tell whether a word is of the claim that is asked about, and that lacks its volume."""
    found, claim = meant_by(word.text), case.use.claim
    if found is None or claim is None:
        return False
    return found[1].get("claim") == str(claim.ref) and claim.phase in {"Pending", "Lost"}


def _told(code: str, alike: list[Word], case: Case) -> Finding:
    word = alike[0]
    found = meant_by(word.text)
    templates = (_NODE_PODS,) if found is None else found[0].commands
    groups = {} if found is None else found[1]
    fields = fields_of(word.node, case, groups)
    means = _bare(word.text) if found is None else found[0].means.format_map(fields)
    nodes = tuple(dict.fromkeys(waiter.node for waiter in alike))
    looks = tuple(
        command
        for node in nodes[:_MOST_NAMED]
        for command in filled(templates, fields_of(node, case, groups))
    )
    without = code == "RBD731"
    is_back = without and all(_is_back(each, case) for each in alike)
    is_new = without and all(has_just_come(each.node, case) for each in alike)
    # RBD742 says what Ceph refuses; where Ceph was not asked, RBD736 alone is known.
    is_explained = code == "RBD736" and _is_for_lock(word, case)
    # What keeps the claim that this answer is about, is said of the claim itself.
    is_minor = is_back or is_new or is_explained or _is_own_claim(fields, case)
    heals = found[0].heals if found is not None else None
    return finding(
        code,
        f"pod {word.event.subject}",
        f"{_named_with_nodes(alike)}: {means}.{BY_NOW if is_back else ''}",
        evidence=evidence_of_word(word, case),
        remedy=found[0].remedy if found is not None else "",
        commands=looks,
        severity=Severity.INFO if is_minor else None,
        heals=Heals(by="kubelet", within_s=_BACK_OFF_S) if is_back else heals,
    )


def _named_with_nodes(alike: list[Word]) -> str:
    """Name the pods that wait, and where: each with its node, unless all are on one."""
    nodes = {word.node for word in alike}
    named = [
        f"{word.event.subject} on {word.node}"
        if len(nodes) > 1 and word.node
        else str(word.event.subject)
        for word in alike
    ]
    left = len(named) - _MOST_NAMED
    pods = ", ".join(named[:_MOST_NAMED]) + (f" and {left} more" if left > 0 else "")
    node = alike[0].node if len(nodes) == 1 else None
    return f"{pods} cannot start{f' on {node}' if node else ''}"


def _is_own_claim(fields: dict[str, str], case: Case) -> bool:
    claim = case.use.claim
    return claim is not None and fields.get("claim") == str(claim.ref)


def _bare(text: str) -> str:
    """Leave out what every one of kubelet's errors begins with."""
    return re.sub(r'^\S+ failed for volume "[^"]+" ?: ', "", text).strip().rstrip(".")


def fields_of(node: str | None, case: Case, groups: dict[str, str]) -> dict[str, str]:
    """Give what the sentences and commands of `SAYINGS` are filled in with; unknown is empty."""
    use = case.use
    volume, claim = use.persistent_volume, use.claim
    driver = driver_of(use)
    fs_type = getattr(volume.source, "fs_type", None) if volume is not None else None
    spec = use.image.spec if use.image is not None and use.image.spec.pool else None
    return {
        "node": node or "",
        "volume": case.volume,
        "driver": driver if driver is not None else "of the volume",
        "fs_type": fs_type or "ext4",
        "image": str(spec or ""),
        "pool": spec.pool if spec is not None else "",
        "lacking": _lacking(case),
        "claim_namespace": claim.ref.namespace if claim is not None else "",
        "claim_name": claim.ref.name if claim is not None else "",
        **groups,
    }


def _lacking(case: Case) -> str:
    """Name the feature of the image that no krbd knows, where it may be disabled without harm."""
    view = case.use.image_view
    if view is None or view.mirrored is not False or _JOURNAL not in view.features:
        return ""
    return _JOURNAL


def _may_be_in_tree(case: Case) -> bool:
    """Tell whether the volume is of Kubernetes' own RBD plugin; one in a pod has no PV."""
    volume = case.use.persistent_volume
    return volume is None or isinstance(volume.source, InTreeRbdSource)


def _image_is_known_gone(case: Case) -> bool:
    """Ceph itself has said so: RBD301 or RBD302 tells it better."""
    view = case.use.image_view
    return view is not None and view.presence in {"gone", "trash"}


# --------------------------------------------------------------------------------------------------
# The driver
# --------------------------------------------------------------------------------------------------


def driver_wanted(case: Case) -> Iterator[Finding]:
    """RBD731, RBD732: the node where a pod waits has no driver for its volume."""
    without = [each for each in waiters(case) if _lacks_driver(each.node_name, case)]
    driver, pods = driver_of(case.use), pod_names(without)
    if not without or driver is None:
        return
    nodes = sorted({str(each.node_name) for each in without})
    if is_installed_nowhere(driver, case):
        known = _known_drivers(case)
        yield finding(
            "RBD732",
            f"pod {without[0].ref}",
            f"{pods} cannot start: {case.volume} is of the CSI driver {driver}, and this cluster "
            f"has none of that name. It has: {', '.join(known) or 'none at all'}.",
            evidence=(f"no CSIDriver {driver}, and no CSINode lists it",),
            commands=(kubectl("get csidriver"),),
        )
        return
    yield finding(
        "RBD731",
        f"pod {without[0].ref}",
        f"{pods} cannot start on {', '.join(nodes)}: the CSI driver {driver} is not registered "
        "there. Its node plugin does not run on that node, or did not reach kubelet.",
        evidence=tuple(f"CSINode {each} does not list {driver}" for each in nodes),
        commands=tuple(pods_on(node) for node in nodes),
    )


def _lacks_driver(node: str | None, case: Case) -> bool:
    """Tell whether a node has no driver for the volume; one that has just come may yet get it."""
    kube, driver = case.snapshot.kubernetes, driver_of(case.use)
    if kube is None or driver is None:
        return False
    seen = [each for each in observed_of(kube.csi_nodes) if each.node_name == node]
    if not seen or any(driver in each.drivers for each in seen):
        return False
    return not has_just_come(node, case)


def has_just_come(node: str | None, case: Case) -> bool:
    """Tell whether a node became Ready so lately that its drivers may yet come up."""
    there = node_named(node, case.snapshot)
    return isinstance(there, Node) and (
        is_young(there.ready_changed_at, case.snapshot.observed_at, MOVING) is True
    )


def is_registered_by_now(text: str, said: str | None, node: str | None, case: Case) -> bool:
    """Tell whether a driver that was missed a moment ago is registered now: the next try gets it.

    Not if it is missed for longer. CSINode keeps what it lists while kubelet restarts, and drops a
    driver only when kubelet sees it go (pkg/volume/csi/nodeinfomanager).
    """
    kube, driver = case.snapshot.kubernetes, driver_of(case.use)
    if kube is None or driver is None or not _UNREGISTERED.search(text):
        return False
    if is_young(said, case.snapshot.observed_at, seconds(_BACK_OFF_S)) is not True:
        return False
    return any(
        each.node_name == node and driver in each.drivers for each in observed_of(kube.csi_nodes)
    )


_UNREGISTERED: Final = re.compile(
    r"not registered|not found in the list of registered CSI drivers|does not contain driver"
)


def _is_back(word: Word, case: Case) -> bool:
    """Tell whether the driver is back since a word to a pod that has not waited for long."""
    if word.pod is None or has_waited(word.pod, case.snapshot, LONG):
        return False
    return is_registered_by_now(word.text, word.event.last_seen, word.node, case)


def _known_drivers(case: Case) -> tuple[str, ...]:
    kube = case.snapshot.kubernetes
    return () if kube is None else tuple(sorted(observed_of(kube.drivers)))


def is_installed_nowhere(driver: str, case: Case) -> bool:
    """Tell whether no CSI driver of that name is in this cluster."""
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.drivers, NotObserved) or not kube.nodes_complete:
        return False
    registered = any(driver in each.drivers for each in observed_of(kube.csi_nodes))
    return driver not in kube.drivers and not registered


# --------------------------------------------------------------------------------------------------
# Still being used
# --------------------------------------------------------------------------------------------------

_IN_USE_WAIT_S: Final = 54.0
"""How long ceph-csi waits for a watcher to go before it gives up (measured)."""
_BACK_OFF_S: Final = 122.0


def still_being_used(case: Case) -> Iterator[Finding]:
    """RBD402: the watcher that ceph-csi met, and whether it goes by itself."""
    word = word_with(case, "is still being used")
    if word is None:
        return
    watching = [each for each in case.judged if each.holder.watcher and not each.holder.passing]
    goes_on = _goes_on(case) or _is_adopted(watching, word.node, case)
    yield finding(
        "RBD402",
        f"pod {word.event.subject}",
        f"{word.event.subject} waits: ceph-csi will not stage {case.volume} while the image has "
        f"another watcher.{_who(watching)}{'' if goes_on else clear_first(case)}"
        f"{_how_long(watching, word.node, case)}",
        evidence=evidence_of_word(word, case)[: 1 + _is_old(word, case)],
        remedy="Wait for kubelet's next try." if goes_on else _mirror_remedy(watching),
        severity=Severity.INFO if goes_on else None,
        heals=Heals(by="kubelet", within_s=_IN_USE_WAIT_S + _BACK_OFF_S) if goes_on else None,
    )


def _is_old(word: Word, case: Case) -> bool:
    since = age(word.event.last_seen, case.snapshot.observed_at)
    return since is not None and since.total_seconds() > 2 * _BACK_OFF_S


def _who(watching: list[JudgedHolder]) -> str:
    named = ", ".join(subject_of(each.holder) for each in watching)
    return f" That is {named}." if watching else ""


def _goes_on(case: Case) -> bool:
    """Tell whether nobody watches any more, so that the next try gets it."""
    view = case.use.image_view
    return view is not None and view.watchers == ()


def _is_adopted(watching: list[JudgedHolder], node: str | None, case: Case) -> bool:
    """Return whether the waiting node itself has the image mapped, and no other client has.

    ceph-csi first lists what its node has mapped, by krbd or by rbd-nbd as the volume asks, and
    uses a device of the same image. It lists the watchers only where it finds none, so that its
    own node's watch is never in its way (attachRBDImage, internal/rbd/rbd_attach.go@52fcb7b).
    """
    kind = DeviceKind.NBD if maps_by_nbd(case.use) else DeviceKind.KRBD
    return bool(watching) and all(
        holder.node == node is not None
        and holder.mapping is not None
        and holder.mapping.kind is kind
        and holder.mapping.snapshot is None
        for holder in (judged.holder for judged in watching)
    )


def _how_long(watching: list[JudgedHolder], node: str | None, case: Case) -> str:
    """Say whether the watcher goes by itself."""
    if _goes_on(case):
        return " Nobody watches it any more: the next try gets it."
    if _is_adopted(watching, node, case):
        return f" ceph-csi uses what {node} itself has mapped: the next try gets it."
    forever = {Verdict.ORPHANED, Verdict.PINNED, Verdict.UNWATCHED}
    if any(each.verdict in forever for each in watching):
        return " Nothing else makes that client release the image."
    if _only_mirrors(watching):
        return (
            " Only rbd-mirror watches: ceph-csi lets one of its daemons pass, and each further "
            "one only if its configuration says how many there are."
        )
    return ""


def _only_mirrors(watching: list[JudgedHolder]) -> bool:
    kinds = {each.holder.kind for each in watching}
    return kinds == {HolderKind.MIRROR}


def _mirror_remedy(watching: list[JudgedHolder]) -> str:
    if not _only_mirrors(watching):
        return ""
    return (
        "Set mirrorDaemonCount of this clusterID in ceph-csi's configuration to the number of "
        "rbd-mirror daemons."
    )


_MAP_NOT_PERMITTED: Final = "map failed: (13)"
_AUTOMATIC: Final = "auto "
"""Of locks that librbd and krbd take by themselves (RBD_LOCK_COOKIE_PREFIX, rbd_types.h)."""


def lock_not_broken(case: Case) -> Iterator[Finding]:
    """RBD742: the owner of the exclusive lock is gone, and the map that needs it is refused.

    The kernel puts the owner on the blocklist before it breaks the lock (rbd_try_lock,
    drivers/block/rbd.c). A monitor refuses that with 13, and the kernel's log alone says of what.
    """
    word = next((one for one in words(case) if _is_for_lock(one, case)), None)
    if word is None:
        return
    (owner, *_) = _gone_owners(case)
    fields = fields_of(word.node, case, {})
    yield finding(
        "RBD742",
        f"pod {word.event.subject}",
        f"{_named_with_nodes([word])}: the exclusive lock of {fields['image']} belongs to "
        f"client.{owner.client}, which has no watch any more, and Ceph refuses to put that "
        "client on the blocklist.",
        evidence=(
            *evidence_of_word(word, case),
            f"lock {owner.lock_id!r} of client.{owner.client} {owner.address}: no watch of it",
        ),
        commands=filled((_LOCKS, _USERS, _KERNEL_LOG), fields),
    )


def _is_for_lock(word: Word, case: Case) -> bool:
    return _MAP_NOT_PERMITTED in word.text and bool(_gone_owners(case))


def _gone_owners(case: Case) -> tuple[Locker, ...]:
    """Return the owners of the exclusive lock that do not watch the image any more."""
    view = case.use.image_view
    if view is None or isinstance(view.watchers, NotObserved):
        return ()
    watching = {one.client for one in (*view.watchers, *view.passing_watchers)}
    return tuple(
        one
        for one in observed_of(view.lockers)
        if one.lock_id.startswith(_AUTOMATIC) and one.client not in watching
    )


def map_refused(case: Case) -> Iterator[Finding]:
    """RBD308: every new map on a node fails while its shared client is blocklisted."""
    word = word_with(case, "map failed: (108)", "exit status 108")
    if word is None:
        return
    place = f"Ceph client of {word.node}" if word.node else "Ceph client of its node"
    yield finding(
        "RBD308",
        f"pod {word.event.subject}",
        f"{word.event.subject} cannot start: the {place} is blocklisted, and every new map there "
        "fails. Evict all pods with RBD volumes from that node.",
        evidence=evidence_of_word(word, case),
    )


def clear_first(case: Case) -> str:
    """Point to the holder that everything waits for."""
    blocking = case.those(Verdict.ORPHANED, Verdict.PINNED, Verdict.DEAD, Verdict.UNWATCHED)
    return f" Clear {subject_of(blocking[0].holder)} first." if blocking else ""


# --------------------------------------------------------------------------------------------------
# Read-only
# --------------------------------------------------------------------------------------------------


def turned_read_only(case: Case) -> Iterator[Finding]:
    """RBD755: the super block is read-only, and nobody asked for that."""
    if is_read_only(case.use) or _asks_for_read_only(case):
        return
    for each in case.judged:
        mapping = each.holder.mapping
        if mapping is None or each.verdict is Verdict.DEAD or is_writable(mapping) is not True:
            continue
        turned = [
            one
            for one in observed_of(mapping.mounts)
            if one.read_only and one.kind is MountKind.FILE_SYSTEM
        ]
        if not turned:
            continue
        pods = [one for one in case.use.pods if one.node_name == each.holder.node]
        yield finding(
            "RBD755",
            subject_of(each.holder),
            f"The file system of {subject_of(each.holder)} has turned read-only: writes of "
            f"{pod_names(pods) or 'whoever uses it'} fail.",
            evidence=tuple(
                f"{one.fs_type} at {one.path} is read-only, {mapping.device} is not"
                for one in turned[:3]
            ),
            commands=(
                command(
                    "journalctl --dmesg --no-pager --lines=10",
                    options=(f"--grep={mapping.kernel_name}",),
                    node=each.holder.node,
                ),
                command("ceph health detail"),
                *(delete_pod(one) for one in pods),
            ),
        )


def _asks_for_read_only(case: Case) -> bool:
    # An entry may hold several: mount-utils joins them all by commas for `mount -o` as they are.
    return any(
        "ro" in entry.split(",")
        for each in volumes_of_use(case.use)
        for entry in each.mount_options
    )
