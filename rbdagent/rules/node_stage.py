"""RBD73x to RBD76x, RBD402, RBD308: the errors that kubelet and the driver report.

parse/recognised.py has the texts and their sources, parse/faults.py the error numbers of Ceph's
calls.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import Template, command, filled, kubectl, template
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    DeviceKind,
    Finding,
    HolderKind,
    HolderVerdict,
    InTreeRbdSource,
    LockHolder,
    MountKind,
    Node,
    NotObserved,
    Recovery,
    Severity,
    Verdict,
    observed_of,
)
from rbdagent.parse.faults import FAULTS, Call, Fault, Kind, failure_in, first_meant
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import (
    RuleContext,
    delete_pod,
    finding,
    pods_on,
    subject_of,
)
from rbdagent.rules.pod_events import (
    PodEvent,
    evidence_of_word,
    has_waited,
    waiters,
    word_with,
    words,
)
from rbdagent.verdicts.evidence import pod_names
from rbdagent.verdicts.timing import LONG, MOVING, age, is_young, seconds
from rbdagent.verdicts.volume_verdict import (
    driver_of,
    is_read_only,
    is_writable,
    maps_by_nbd,
    volumes_of_use,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Saying(NamedTuple):
    """Holds the meaning of an error text."""

    kinds: tuple[Kind, ...]
    code: str | None
    """None: another rule reports it, based on more than the text."""
    means: str = ""
    """Follows "cannot start on NODE: "; may contain fields of the pattern and of `fields_of`."""
    commands: tuple[Template, ...] = ()
    """May contain the same fields; a command is omitted if one of its fields is unknown."""
    remedy: str = ""
    """Only if it differs from the catalogue's."""
    recovery: Recovery | None = None
    """Only if it differs from the catalogue's."""


def _field_of_volume(path: str) -> Template:
    return template("kubectl get pv", "{volume}", options=("-o", f"jsonpath={{{{.spec.{path}}}}}"))


def _config_maps(name: str) -> Template:
    listing = "kubectl get configmap -A -o yaml --field-selector"
    return template(listing, f"metadata.name={name}")


_CONFIG_MAPS: Final = (_config_maps("ceph-csi-config"), _config_maps("rook-ceph-csi-config"))
_NODE_PODS: Final = template("kubectl get pods -A -o wide --field-selector", "spec.nodeName={node}")
_CSI_NODE: Final = template("kubectl get csinode", "{node}", options=("-o", "yaml"))
_FS_TYPE: Final = _field_of_volume("csi.fsType")
_KERNEL_VERSION: Final = template(
    "kubectl get node", "{node}", options=("-o", "jsonpath={{.status.nodeInfo.kernelVersion}}")
)
_KERNEL_LOG: Final = template(
    "journalctl --dmesg --no-pager --lines=10 --grep=rbd:|libceph:", node="{node}"
)
"""The match ignores case, because the pattern has no capital letter (journalctl(1))."""
_MAP_OPTIONS: Final = _field_of_volume("csi.volumeAttributes.mapOptions")
_NODE_STAGE: Final = _field_of_volume("csi.nodeStageSecretRef")
_MONITORS: Final = template("ceph mon dump")
_IMAGE: Final = template("rbd info", "{image}")
_LOCKS: Final = template("rbd lock ls", "{image}")
_USERS: Final = template("ceph auth ls")
_SHOW_ACCESS: Final = template("kubectl describe secret", "{name}", namespace="{namespace}")


def _failed(fault: Fault, *calls: Call) -> tuple[Kind, ...]:
    """Return the calls that fail for a reason; without arguments, every call that can."""
    return tuple(
        (call, fault)
        for call, numbers in FAULTS.items()
        if fault in numbers.values() and (call in calls or not calls)
    )


SAYINGS: Final = (
    Saying((Recognised.MULTI_ATTACH,), None),
    Saying((Recognised.IN_USE,), None),
    Saying((Recognised.UNDER_WAY,), None),
    Saying((Recognised.DEADLINE,), None),
    Saying(_failed(Fault.BLOCKLISTED, Call.MAP, Call.RUN), None),
    Saying((Recognised.BEING_DETACHED,), None),
    Saying(
        (Recognised.ATTACHER_SILENT,),
        "RBD712",
        "external-attacher does not respond",
        (template("kubectl get deployments -A -o wide"),),
    ),
    Saying((Recognised.WAIT_FOR_ATTACH,), None),
    Saying((Recognised.ONE_POD_ONLY,), None),
    Saying((Recognised.NOT_THE_CLAIMS,), None),
    Saying((Recognised.NOT_OWNER,), None),
    Saying(
        (Recognised.CLAIM_OF_POD,),
        "RBD701",
        "its claim {claim} is not ready: {why}",
        (template("rbdagent diagnose", "pvc/{claim}"),),
    ),
    Saying(
        (Recognised.NODE_AFFINITY,),
        "RBD702",
        "the PV's node affinity does not allow {volume} on that node",
        (_field_of_volume("nodeAffinity"),
         template("kubectl get node", "{node}", options=("--show-labels",))),
    ),
    Saying(
        (Recognised.EXHAUSTED,),
        "RBD703",
        "the node accepts no more volumes of {driver}: {why}",
        (_CSI_NODE,),
    ),
    Saying(
        (Recognised.DRIVER_NOT_REGISTERED, Recognised.DRIVER_SILENT),
        "RBD731",
        "the CSI driver {driver} does not respond there",
        (_NODE_PODS, _CSI_NODE),
    ),
    Saying(
        (Recognised.SECRET_MISSING, Recognised.ATTACHERS_SECRET_MISSING),
        "RBD733",
        "the driver needs the secret {namespace}/{name}, but cannot read it",
        (_SHOW_ACCESS,),
    ),
    Saying(
        (Recognised.NO_CLUSTER,),
        "RBD734",
        "ceph-csi's configuration does not contain the cluster {cluster}",
        _CONFIG_MAPS,
    ),
    Saying(
        _failed(Fault.NO_CONFIGURATION),
        "RBD734",
        "the CSI driver has no monitors or no keyring for the volume's cluster",
        _CONFIG_MAPS,
        "Add the monitors of the volume's clusterID to ceph-csi's configuration, and check the "
        "secret with the user's key. Make sure that it is the right cluster: different clusters "
        "can have the same pool IDs and image names.",
    ),
    Saying(
        (Recognised.FLATTENING,),
        "RBD745",
        "Ceph's manager is flattening the image first",
        (template("ceph rbd task list"),),
    ),
    Saying(
        (Recognised.NOT_PRIMARY,),
        "RBD743",
        "the image is a non-primary mirror image",
        (template("rbd mirror image status", "{image}"),),
    ),
    Saying(
        (Recognised.NO_MODULE,),
        "RBD739",
        "its kernel has no rbd module",
        (template("modprobe rbd", node="{node}"),),
    ),
    Saying(
        (Recognised.NEEDS_RBD_NBD,),
        "RBD740",
        "the volume asks for the image feature {feature}, which ceph-csi maps only with rbd-nbd",
        (_field_of_volume("csi.volumeAttributes"), _IMAGE),
        "The attributes of a PV cannot be changed: set Retain and create the PV again, with "
        "mounter: rbd-nbd, or without the feature in imageFeatures. In the second case the image "
        "must not have the feature either. Correct the StorageClass in the same way.",
        Recovery(note="the attributes of a PV cannot be changed"),
    ),
    Saying(
        (Recognised.KRBD_LACKS_FEATURE, *_failed(Fault.FEATURES)),
        "RBD740",
        "its kernel does not support all features of the image",
        (_IMAGE, template("cat /sys/bus/rbd/supported_features", node="{node}"),
         template("rbd feature disable", "{image}", "{lacking}")),
    ),
    Saying(
        _failed(Fault.KEY_TYPE),
        "RBD747",
        "its kernel cannot use the key of {user} ({number}); kernels before 7.0 do not know keys "
        "of type aes256k",
        (_KERNEL_VERSION, _NODE_STAGE, _KERNEL_LOG, _MONITORS),
    ),
    Saying(
        # The kernel's keyring refuses: seccomp without add_key(2), or the user's key quota.
        (Recognised.KEY_NOT_ADDED,),
        "RBD744",
        "its kernel does not accept the key of {user} ({number})",
        (_KERNEL_LOG,),
        "Check the seccomp profile of the CSI node plugin, which must allow add_key(2), and "
        "`/proc/key-users` on that node. The driver has not contacted Ceph yet.",
    ),
    Saying(
        # From the librados of ceph-csi, which passes the key as keyfile (measured with 16.2, 18.2).
        _failed(Fault.UNUSABLE),
        "RBD747",
        "the CSI driver cannot read the key of its Ceph user: the key is of a type that the "
        "driver's librados does not support (aes256k), or is not a key; or the name of a monitor "
        "cannot be resolved",
        (_NODE_PODS, _NODE_STAGE, _MONITORS),
        "Update ceph-csi to 3.16.3, 3.17.1 or later, which support aes256k; or give the secret a "
        "new user whose key is of type aes (`ceph auth get-or-create client.USER-aes CAPS "
        "--key-type=aes`, if `ceph mon dump` lists aes in auth_allowed_ciphers; a user that "
        "exists keeps its key). See docs/install.md, Key types.",
    ),
    Saying(
        # Kernels support ms_mode since 00498b994113 (5.11).
        (Recognised.NO_ADDRESS,),
        "RBD748",
        "the monitors have no address for the ms_mode of the map",
        (_MONITORS, _MAP_OPTIONS, template("ceph config get client rbd_default_map_options"),
         _KERNEL_VERSION),
    ),
    Saying(
        (*_failed(Fault.TIMED_OUT), Recognised.TIMED_OUT),
        "RBD735",
        "the node does not reach Ceph's monitors",
        (_MONITORS, template("ceph health detail")),
    ),
    Saying(
        _failed(Fault.DENIED),
        "RBD736",
        "Ceph refuses the driver's user",
        (_USERS,),
    ),
    Saying(
        (Recognised.POOL_GONE,),
        "RBD737",
        "the image's pool does not exist in the Ceph cluster that the driver uses",
        (template("ceph fsid"), template("ceph osd pool ls")),
    ),
    Saying(
        (Recognised.IMAGE_GONE, *_failed(Fault.NO_IMAGE)),
        "RBD738",
        "the driver does not find the image",
        (_IMAGE, template("rbd trash ls --all --pool", "{pool}")),
    ),
    Saying(
        _failed(Fault.NOT_TAKEN),
        "RBD741",
        "its kernel rejects the map ({number}): an option that the kernel does not know, or a "
        "chain of parents that is too long or is being flattened",
        (_KERNEL_LOG, _MAP_OPTIONS, _IMAGE),
    ),
    Saying(
        (Recognised.MAP_FAILED,),
        "RBD744",
        "the image cannot be mapped",
        (_KERNEL_LOG,),
    ),
    Saying(
        (Recognised.ENCRYPTION_STATUS,),
        "RBD766",
        "the metadata of the image does not state that it is, or is to be, encrypted",
        (template("rbd image-meta list", "{image}"),),
    ),
    Saying(
        (Recognised.ENCRYPTION_FAILED,),
        "RBD746",
        "the passphrase of the encrypted volume is not available",
    ),
    Saying(
        (Recognised.DEVICE_IN_USE,),
        "RBD764",
        "something on that node already uses the device",
        (template("rbdagent who-holds", "pv/{volume}", node="{node}"),),
    ),
    Saying(
        (Recognised.E2FSCK_TOO_OLD,),
        "RBD765",
        "the e2fsck of its CSI driver is older than the file system, which is not damaged",
        (_NODE_PODS,),
    ),
    Saying(
        (Recognised.FSCK_FAILED,),
        "RBD752",
        "its file system has errors that fsck does not correct automatically",
        (template("rbd snap create", "{image}@before-fsck"),),
    ),
    Saying(
        (Recognised.UNFORMATTED,),
        "RBD754",
        "the image is empty and is to be mounted read-only",
    ),
    Saying(
        (Recognised.ANOTHER_FILE_SYSTEM,),
        "RBD753",
        "the image does not contain the requested file system ({fs_type})",
        (_FS_TYPE,),
        "Check what is on the image (`blkid` on a read-only mapping). The fsType of a PV cannot "
        "be changed: set Retain and create the PV again with the right one.",
        Recovery(note="a PV's fsType cannot be changed"),
    ),
    Saying(
        (Recognised.MOUNT_REFUSED,),
        "RBD753",
        "mount refuses a mount option, the type ({fs_type}), or the file system: its superblock, "
        "or a feature that is newer than that node's kernel",
        (_field_of_volume("mountOptions"), _FS_TYPE, _KERNEL_LOG),
    ),
    Saying(
        (Recognised.MANY_WRITERS,),
        "RBD756",
        "RBD does not support a file system on many nodes (ReadWriteMany)",
    ),
    Saying(
        (Recognised.WRONG_MODE,),
        "RBD757",
        "its volume {name} has volumeMode {mode}, but the pod names it in {list}",
    ),
    Saying(
        (Recognised.SELINUX,),
        "RBD759",
        "another pod there uses the volume with a different SELinux label",
        (_NODE_PODS,),
    ),
    Saying(
        (Recognised.SETTING_OWNERSHIP,),
        "RBD763",
        "kubelet is changing the group of the volume's files to the pod's fsGroup",
    ),
    Saying(
        (Recognised.OWNERSHIP_FAILED,),
        "RBD758",
        "kubelet cannot change the group of the volume's files to the pod's fsGroup",
    ),
    Saying(
        (Recognised.EXPANSION_FAILED,),
        "RBD761",
        "the file system cannot be expanded",
        (template("kubectl describe pvc", "{claim_name}", namespace="{claim_namespace}"), _IMAGE),
    ),
    Saying(
        (Recognised.NO_PLUGIN,),
        "RBD760",
        "its kubelet no longer has a plugin for this volume",
    ),
    Saying(
        (Recognised.FORMAT_FAILED,),
        "RBD751",
        "no file system can be made on the image",
    ),
)  # fmt: skip
"""In this order; the first that matches applies."""

BY_NOW: Final = " The driver is registered there now: the next retry will succeed."
_MOST_NAMED: Final = 3
"""How many pods, and how many nodes, one finding names."""
_JOURNAL: Final = "journaling"
"""The feature that no kernel supports, and that journal-based mirroring needs."""


def meant_by(text: str) -> tuple[Saying, dict[str, str]] | None:
    """Return the meaning of a text, and the names that the text contains."""
    return first_meant(SAYINGS, text)


def told(case: RuleContext) -> Iterator[Finding]:
    """Report what the newest event of a waiting pod means: RBD701 to RBD703, RBD73x to RBD76x.

    Pods with the same error share one finding.
    """
    by_code: dict[str, list[PodEvent]] = {}
    by_objects = not isinstance(case.use.attachments, NotObserved)
    for word in words(case):
        code = _code_of(word)
        if code == "RBD701" and _is_own_and_not_bound(word, case):
            # The rules of binding report the cause.
            continue
        if code is not None and not (by_objects and Recognised.ATTACH_FAILED.is_in(word.text)):
            by_code.setdefault(code, []).append(word)
    for code, alike in by_code.items():
        if code == "RBD731" and any(_lacks_driver(word.node, case) for word in alike):
            continue
        if code == "RBD738" and _image_is_known_gone(case):
            continue
        if code == "RBD760" and not _may_be_in_tree(case):
            # The volume without a plugin is another volume of the pod.
            continue
        yield _event_finding(code, alike, case)


def _code_of(word: PodEvent) -> str | None:
    found = meant_by(word.text)
    if found is not None:
        return found[0].code
    if Recognised.ATTACH_FAILED.is_in(word.text):
        return "RBD413"
    # An event that names no volume may be about any other volume of the pod.
    is_mount = word.event.reason in {"FailedMount", "FailedMapVolume"}
    return "RBD762" if is_mount and Recognised.NAMES_A_VOLUME.is_in(word.text) else None


def _is_own_and_not_bound(word: PodEvent, case: RuleContext) -> bool:
    """Return whether an event is about the target's own claim, and that claim lacks its volume."""
    found, claim = meant_by(word.text), case.use.claim
    if found is None or claim is None:
        return False
    return found[1].get("claim") == str(claim.ref) and claim.phase in {"Pending", "Lost"}


def _event_finding(code: str, alike: list[PodEvent], case: RuleContext) -> Finding:
    word = alike[0]
    found = meant_by(word.text)
    templates = (_NODE_PODS,) if found is None else found[0].commands
    groups = {} if found is None else found[1]
    fields = fields_of(word.node, case, groups)
    means = _bare(word.text) if found is None else found[0].means.format_map(fields)
    nodes = tuple(dict.fromkeys(waiter.node for waiter in alike))
    commands = tuple(
        made
        for node in nodes[:_MOST_NAMED]
        for made in filled(templates, fields_of(node, case, groups))
    )
    without = code == "RBD731"
    is_back = without and all(_is_back(waiter, case) for waiter in alike)
    is_new = without and all(has_just_come(waiter.node, case) for waiter in alike)
    # RBD742 reports what Ceph refuses; if Ceph was not queried, only RBD736 is known.
    is_explained = code == "RBD736" and _is_for_lock(word, case)
    # The findings of the claim that is the target report what that claim waits for.
    is_minor = is_back or is_new or is_explained or _is_own_claim(fields, case)
    recovery = found[0].recovery if found is not None else None
    return finding(
        code,
        f"pod {word.event.subject}",
        f"{_named_with_nodes(alike)}: {means}.{BY_NOW if is_back else ''}",
        evidence=evidence_of_word(word, case),
        remedy=found[0].remedy if found is not None else "",
        commands=commands,
        severity=Severity.INFO if is_minor else None,
        recovery=Recovery(actor="kubelet", within_s=_BACK_OFF_S) if is_back else recovery,
    )


def _named_with_nodes(alike: list[PodEvent]) -> str:
    """Return the waiting pods with their nodes, or with one node if all wait there."""
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


def _is_own_claim(fields: dict[str, str], case: RuleContext) -> bool:
    claim = case.use.claim
    return claim is not None and fields.get("claim") == str(claim.ref)


def _bare(text: str) -> str:
    """Return the text without the prefix that all errors of kubelet have."""
    return Recognised.FAILED_FOR_VOLUME.left_out_of(text).strip().rstrip(".")


def fields_of(node: str | None, case: RuleContext, groups: dict[str, str]) -> dict[str, str]:
    """Return the values for the sentences and commands of `SAYINGS`; unknown ones are empty."""
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


def _lacking(case: RuleContext) -> str:
    """Return the feature of the image that krbd lacks and that can be disabled without harm."""
    view = case.use.image_view
    if view is None or view.mirrored is not False or _JOURNAL not in view.features:
        return ""
    return _JOURNAL


def _may_be_in_tree(case: RuleContext) -> bool:
    """Return whether the volume may use the in-tree RBD plugin; a volume in a pod has no PV."""
    volume = case.use.persistent_volume
    return volume is None or isinstance(volume.source, InTreeRbdSource)


def _image_is_known_gone(case: RuleContext) -> bool:
    """Return whether Ceph reports the image as gone: RBD301 or RBD302 has more details."""
    view = case.use.image_view
    return view is not None and view.presence in {"gone", "trash"}


# --------------------------------------------------------------------------------------------------
# The driver
# --------------------------------------------------------------------------------------------------


def driver_wanted(case: RuleContext) -> Iterator[Finding]:
    """Report RBD731, RBD732: the node where a pod waits has no driver for its volume."""
    without = [pod for pod in waiters(case) if _lacks_driver(pod.node_name, case)]
    driver, pods = driver_of(case.use), pod_names(without)
    if not without or driver is None:
        return
    nodes = sorted({str(pod.node_name) for pod in without})
    if is_installed_nowhere(driver, case):
        known = _known_drivers(case)
        yield finding(
            "RBD732",
            f"pod {without[0].ref}",
            f"{pods} cannot start: {case.volume} requires the CSI driver {driver}, which is not "
            f"installed in this cluster. Installed drivers: {', '.join(known) or 'none'}.",
            evidence=(f"no CSIDriver {driver} exists, and no CSINode lists it",),
            commands=(kubectl("get csidriver"),),
        )
        return
    yield finding(
        "RBD731",
        f"pod {without[0].ref}",
        f"{pods} cannot start on {', '.join(nodes)}: the CSI driver {driver} is not registered "
        "there. Its node plugin is not running on that node, or did not reach kubelet.",
        evidence=tuple(f"CSINode {node} does not list {driver}" for node in nodes),
        commands=tuple(pods_on(node) for node in nodes),
    )


def _lacks_driver(node: str | None, case: RuleContext) -> bool:
    """Return whether a node lacks the volume's driver; false if the node is new."""
    kube, driver = case.snapshot.kubernetes, driver_of(case.use)
    if kube is None or driver is None:
        return False
    seen = [listed for listed in observed_of(kube.csi_nodes) if listed.node_name == node]
    if not seen or any(driver in listed.drivers for listed in seen):
        return False
    return not has_just_come(node, case)


def has_just_come(node: str | None, case: RuleContext) -> bool:
    """Return whether a node became Ready so recently that its drivers may still start."""
    found = node_named(node, case.snapshot)
    return isinstance(found, Node) and (
        is_young(found.ready_changed_at, case.snapshot.observed_at, MOVING) is True
    )


def is_registered_by_now(text: str, said: str | None, node: str | None, case: RuleContext) -> bool:
    """Return whether a driver that was missing a moment ago is registered now.

    False if it has been missing for longer. CSINode keeps its list while kubelet restarts: a driver
    is removed only when kubelet sees it unregister (pkg/volume/csi/nodeinfomanager).
    """
    kube, driver = case.snapshot.kubernetes, driver_of(case.use)
    if kube is None or driver is None or not Recognised.DRIVER_NOT_REGISTERED.is_in(text):
        return False
    if is_young(said, case.snapshot.observed_at, seconds(_BACK_OFF_S)) is not True:
        return False
    return any(
        listed.node_name == node and driver in listed.drivers
        for listed in observed_of(kube.csi_nodes)
    )


def _is_back(word: PodEvent, case: RuleContext) -> bool:
    """Return whether the driver is back since the event of a pod that has not waited for long."""
    if word.pod is None or has_waited(word.pod, case.snapshot, LONG):
        return False
    return is_registered_by_now(word.text, word.event.last_seen, word.node, case)


def _known_drivers(case: RuleContext) -> tuple[str, ...]:
    kube = case.snapshot.kubernetes
    return () if kube is None else tuple(sorted(observed_of(kube.drivers)))


def is_installed_nowhere(driver: str, case: RuleContext) -> bool:
    """Return whether no CSI driver of that name is installed in this cluster."""
    kube = case.snapshot.kubernetes
    if kube is None or isinstance(kube.drivers, NotObserved) or not kube.nodes_complete:
        return False
    registered = any(driver in listed.drivers for listed in observed_of(kube.csi_nodes))
    return driver not in kube.drivers and not registered


# --------------------------------------------------------------------------------------------------
# Still being used
# --------------------------------------------------------------------------------------------------

_IN_USE_WAIT_S: Final = 54.0
"""How long ceph-csi waits for a watch to end before it returns an error (measured)."""
_BACK_OFF_S: Final = 122.0


def still_being_used(case: RuleContext) -> Iterator[Finding]:
    """Report RBD402: the watcher that ceph-csi found, and whether its watch ends automatically."""
    word = word_with(case, Recognised.IN_USE.is_in)
    if word is None:
        return
    watching = [
        judged for judged in case.judged if judged.holder.watcher and not judged.holder.transient
    ]
    continues = _has_no_watcher(case) or _is_adopted(watching, word.node, case)
    yield finding(
        "RBD402",
        f"pod {word.event.subject}",
        f"{word.event.subject} waits: ceph-csi will not stage {case.volume} while the image has "
        f"another watcher.{_other_watchers(watching)}{'' if continues else clear_first(case)}"
        f"{_how_long(watching, word.node, case)}",
        evidence=evidence_of_word(word, case)[: 1 + _is_old(word, case)],
        remedy="Wait for kubelet's next retry." if continues else _mirror_remedy(watching),
        severity=Severity.INFO if continues else None,
        recovery=Recovery(actor="kubelet", within_s=_IN_USE_WAIT_S + _BACK_OFF_S)
        if continues
        else None,
    )


def _is_old(word: PodEvent, case: RuleContext) -> bool:
    since = age(word.event.last_seen, case.snapshot.observed_at)
    return since is not None and since.total_seconds() > 2 * _BACK_OFF_S


def _other_watchers(watching: list[HolderVerdict]) -> str:
    if not watching:
        return ""
    named = ", ".join(subject_of(judged.holder) for judged in watching)
    return f" The {'watchers are' if len(watching) > 1 else 'watcher is'} {named}."


def _has_no_watcher(case: RuleContext) -> bool:
    """Return whether no client watches the image any more, so that the next retry succeeds."""
    view = case.use.image_view
    return view is not None and view.watchers == ()


def _is_adopted(watching: list[HolderVerdict], node: str | None, case: RuleContext) -> bool:
    """Return whether the waiting node itself has the image mapped, and no other client has.

    ceph-csi first lists the mappings of its node, by krbd or by rbd-nbd as the volume asks, and
    uses a device of the same image. It lists the watchers only if it finds no such device, so the
    watch of that node never blocks it (attachRBDImage, internal/rbd/rbd_attach.go@52fcb7b).
    """
    kind = DeviceKind.NBD if maps_by_nbd(case.use) else DeviceKind.KRBD
    return bool(watching) and all(
        holder.node == node is not None
        and holder.mapping is not None
        and holder.mapping.kind is kind
        and holder.mapping.snapshot is None
        for holder in (judged.holder for judged in watching)
    )


def _how_long(watching: list[HolderVerdict], node: str | None, case: RuleContext) -> str:
    """Return a sentence about whether the watch ends automatically; empty if that is unknown."""
    if _has_no_watcher(case):
        return " No client watches the image any more: the next retry will succeed."
    if _is_adopted(watching, node, case):
        return f" ceph-csi uses the device that {node} has mapped: the next retry will succeed."
    permanent = {Verdict.ORPHANED, Verdict.PINNED, Verdict.UNWATCHED}
    if any(judged.verdict in permanent for judged in watching):
        return " Nothing else makes that client release the image."
    if _only_mirrors(watching):
        return (
            " Only rbd-mirror watches the image: ceph-csi accepts one rbd-mirror daemon, and more "
            "only if its configuration states how many there are."
        )
    return ""


def _only_mirrors(watching: list[HolderVerdict]) -> bool:
    kinds = {judged.holder.kind for judged in watching}
    return kinds == {HolderKind.MIRROR}


def _mirror_remedy(watching: list[HolderVerdict]) -> str:
    if not _only_mirrors(watching):
        return ""
    return (
        "Set mirrorDaemonCount of this clusterID in ceph-csi's configuration to the number of "
        "rbd-mirror daemons."
    )


_AUTOMATIC: Final = "auto "
"""Prefix of locks that librbd and krbd take automatically (RBD_LOCK_COOKIE_PREFIX, rbd_types.h)."""


def lock_not_broken(case: RuleContext) -> Iterator[Finding]:
    """Report RBD742: the owner of the exclusive lock is gone, and the map that needs it fails.

    The kernel puts the owner on the blocklist before it breaks the lock (rbd_try_lock,
    drivers/block/rbd.c). A monitor refuses that with 13; only the kernel log names the reason.
    """
    word = next((word for word in words(case) if _is_for_lock(word, case)), None)
    if word is None:
        return
    (owner, *_) = _gone_owners(case)
    fields = fields_of(word.node, case, {})
    yield finding(
        "RBD742",
        f"pod {word.event.subject}",
        f"{_named_with_nodes([word])}: the exclusive lock of {fields['image']} belongs to "
        f"client.{owner.client}, which no longer watches the image, and Ceph refuses to put that "
        "client on the blocklist.",
        evidence=(
            *evidence_of_word(word, case),
            f"lock {owner.lock_id!r} of client.{owner.client} {owner.address}, which has no watch",
        ),
        commands=filled((_LOCKS, _USERS, _KERNEL_LOG), fields),
    )


def _is_for_lock(word: PodEvent, case: RuleContext) -> bool:
    failure = failure_in(word.text)
    if failure is None or (failure.call, failure.number) != (Call.MAP, errno.EACCES):
        return False
    return bool(_gone_owners(case))


def _gone_owners(case: RuleContext) -> tuple[LockHolder, ...]:
    """Return the owners of the exclusive lock that no longer watch the image."""
    view = case.use.image_view
    if view is None or isinstance(view.watchers, NotObserved):
        return ()
    watching = {watcher.client for watcher in (*view.watchers, *view.transient_watchers)}
    return tuple(
        locker
        for locker in observed_of(view.lockers)
        if locker.lock_id.startswith(_AUTOMATIC) and locker.client not in watching
    )


def map_refused(case: RuleContext) -> Iterator[Finding]:
    """Report RBD308: every new map on a node fails while its shared client is blocklisted."""
    word = word_with(case, _is_blocklisted_map)
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


def _is_blocklisted_map(text: str) -> bool:
    failure = failure_in(text)
    return failure is not None and failure.kind in _failed(Fault.BLOCKLISTED, Call.MAP, Call.RUN)


def clear_first(case: RuleContext) -> str:
    """Return the sentence that names the holder to clear first; empty without one."""
    blocking = case.those(Verdict.ORPHANED, Verdict.PINNED, Verdict.DEAD, Verdict.UNWATCHED)
    return f" Clear {subject_of(blocking[0].holder)} first." if blocking else ""


# --------------------------------------------------------------------------------------------------
# Read-only
# --------------------------------------------------------------------------------------------------


def turned_read_only(case: RuleContext) -> Iterator[Finding]:
    """Report RBD755: the superblock is read-only, but mapping and PV do not ask for that."""
    if is_read_only(case.use) or _asks_for_read_only(case):
        return
    for judged in case.judged:
        mapping, node = judged.holder.mapping, judged.holder.node
        if mapping is None or judged.verdict is Verdict.DEAD or is_writable(mapping) is not True:
            continue
        read_only = [
            mount
            for mount in observed_of(mapping.mounts)
            if mount.read_only and mount.kind is MountKind.FILE_SYSTEM
        ]
        if not read_only:
            continue
        pods = [pod for pod in case.use.pods if pod.node_name == node]
        yield finding(
            "RBD755",
            subject_of(judged.holder),
            f"The file system of {subject_of(judged.holder)} has become read-only: writes of "
            f"{pod_names(pods) or 'every process that uses it'} fail.",
            evidence=tuple(
                f"{mount.fs_type} at {mount.path} is read-only, {mapping.device} is not"
                for mount in read_only[:3]
            ),
            commands=(
                command(
                    "journalctl --dmesg --no-pager --lines=10",
                    options=(f"--grep={mapping.kernel_name}",),
                    node=node,
                ),
                command("ceph health detail"),
                *(delete_pod(pod) for pod in pods),
            ),
        )


def _asks_for_read_only(case: RuleContext) -> bool:
    # An entry may hold several options: mount-utils joins all entries with commas for `mount -o`.
    return any(
        "ro" in entry.split(",")
        for volume in volumes_of_use(case.use)
        for entry in volume.mount_options
    )
