"""RBD308, RBD735 to RBD741, RBD743 to RBD745, RBD747, RBD748: why a node cannot map the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, filled, template
from rbdagent.correlate.blocklist import entry_text
from rbdagent.model import (
    Finding,
    LifecycleStep,
    NotObserved,
    Recovery,
    Severity,
    Statement,
    Subject,
    stated,
)
from rbdagent.parse.faults import Call, Fault, failure_in
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.beside import entry_of_host
from rbdagent.rules.context import Rule, RuleContext, finding, list_pods_on
from rbdagent.rules.controller_texts import OLD_CLIENT
from rbdagent.rules.driver_version import is_client_too_old
from rbdagent.rules.entry import Entry
from rbdagent.rules.error_texts import (
    CONFIG_MAPS,
    FIXED_ATTRIBUTES,
    IMAGE,
    KERNEL_LOG,
    KERNEL_VERSION,
    NODE_PODS,
    STAGE_SECRET,
    ErrorText,
    failed_calls,
    field_of_volume,
    fields_of,
    retried,
)
from rbdagent.rules.facts import (
    has_lock_by_hand,
    has_no_msgr2,
    is_being_flattened,
    is_locked,
    is_migrating,
    is_non_primary,
    is_only_non_primary,
    is_other_cluster,
    is_pool_gone,
    is_pool_there,
    is_present,
    is_released,
    kernel_says,
    needs_ms_mode,
)
from rbdagent.rules.networks import BY_NETWORKS, NO_ROUTE
from rbdagent.rules.pod_events import PodEvent, decisive_pod_event, pod_event_evidence
from rbdagent.verdicts.timing import RETRY_S

if TYPE_CHECKING:
    from collections.abc import Iterator


ENTRIES: Final = (
    Entry(
        Code.MAP_REFUSED_BY_BLOCKLIST,
        Severity.ERROR,
        "A map failed with 108: the node's shared Ceph client is blocklisted.",
        remedy="If the node has mappings, evict every pod with an RBD volume from it: the last "
        "unmap removes the client, and new maps work. An entry of the host or of a range hits new "
        "clients too: it is lifted by what made it (a NetworkFence, the out-of-service taint), and "
        "only when all former mappings of that node are gone.",
        recovery=Recovery(
            actor="kubelet", condition="the last mapping of that client is gone", within_s=RETRY_S
        ),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.NO_MONITOR_SESSION,
        Severity.ERROR,
        "The node's kernel gets no session with Ceph's monitors.",
        remedy="Read the kernel log on that node. Test the monitors' ports 3300 and 6789 from the "
        "network of the CSI plugin's pod there, and compare the addresses with `ceph mon dump`. A "
        "kernel that is too old needs an update, or the pod another node.",
        recovery=retried("the kernel gets a session"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.CEPH_REFUSES_USER,
        Severity.ERROR,
        "Ceph refuses the driver's user: its key is wrong, or its caps are not sufficient.",
        remedy="Compare `ceph auth get` of the user with the secret (it prints the key). The user "
        "needs mon 'profile rbd' and osd 'profile rbd' for the pool, and for the dataPool of the "
        "class. Change them with what made the user (Rook, for example).",
        recovery=retried("the key and the caps are right"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.POOL_MISSING,
        Severity.ERROR,
        "The pool of the image does not exist in the Ceph cluster that the driver uses.",
        remedy="Check that it is the right cluster (`ceph fsid`), and that the pool exists "
        "(`ceph osd pool ls`).",
        recovery=retried("the pool exists"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.IMAGE_NOT_FOUND,
        Severity.ERROR,
        "The driver does not find the image.",
        remedy="Check the trash (`rbd trash ls --all`) and restore the image from there. If it is "
        "not in the trash, check mirrors and backups.",
        recovery=Recovery(note="a deleted image does not come back"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.KERNEL_MODULE_MISSING,
        Severity.ERROR,
        "The node's kernel has no rbd module, or may not load it.",
        remedy="Install the package with the kernel's additional modules, or reboot into the "
        "kernel whose modules are installed. `modprobe rbd` on that node shows the result at once.",
        recovery=retried("the module is loaded"),
        step=LifecycleStep.STAGE,
    ),
    # deep-flatten: Linux 5.1, commit b9f6d447a6f6.
    Entry(
        Code.IMAGE_FEATURES_UNSUPPORTED,
        Severity.ERROR,
        "The image has features that the node's kernel does not know.",
        remedy="Disable the features of the image that the kernel lacks: journaling with every "
        "kernel, deep-flatten before 5.1. Do not disable a feature while any node has the image "
        "mapped: without fast-diff or object-map, every read and write of that mapping fails. rbd "
        "names them on its standard output, which ceph-csi drops; the kernel log shows them as a "
        "mask. Correct the imageFeatures of the StorageClass, or use the mounter rbd-nbd.",
        recovery=retried("the features are disabled"),
        step=LifecycleStep.STAGE,
    ),
    # ms_mode: Linux 5.11, commit 00498b994113. rbd of Ceph 20 always passes it: ceph#64635, in the
    # image of ceph-csi since ceph-csi#5856. The limit of 16 parents is RBD_MAX_PARENT_CHAIN_LEN in
    # drivers/block/rbd.c.
    Entry(
        Code.MAP_OPTIONS_REFUSED,
        Severity.ERROR,
        "The node's kernel rejects the map options, or the parents of the image.",
        remedy="Read the kernel log on that node: it names the option, or the parent chain (then "
        "wait for the flatten, or flatten the image). An option comes from mapOptions of the PV, "
        "from `ceph config get client rbd_default_map_options`, or from the ceph.conf of the "
        "driver's pod. Compare mapOptions with the kernel's "
        "version: ms_mode needs 5.11. If mapOptions do not contain ms_mode and the kernel is "
        "older, the node needs a newer kernel, or a ceph-csi with Ceph 19 or older (3.15): rbd of "
        "Ceph 20 passes ms_mode=legacy too.",
        recovery=retried("the kernel accepts the options"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.IMAGE_NOT_PRIMARY,
        Severity.ERROR,
        "The image is a non-primary mirror image: only the primary image can be mapped.",
        remedy="Demote the image on the other side, then promote it here (`rbd mirror image "
        "promote`, or replicationState: primary of a VolumeReplication of csi-addons). Use force "
        "only if the other side is lost: power it off or fence it before.",
        recovery=retried("the image is promoted here"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.MAP_FAILS,
        Severity.ERROR,
        "Mapping the image fails on the pod's node.",
        remedy="Read rbd's error in the event, and the kernel log on that node.",
        recovery=retried("the reported error is repaired"),
        step=LifecycleStep.STAGE,
    ),
    Entry(
        Code.IMAGE_BEING_FLATTENED,
        Severity.INFO,
        "The image is being flattened before it can be mapped or cloned.",
        remedy="Wait. `ceph rbd task list` shows the progress.",
        recovery=retried("Ceph's manager has flattened it"),
        step=LifecycleStep.STAGE,
    ),
    # aes256k: Linux 7.0, commit b7cc142dbafe; ceph-csi#6493.
    Entry(
        Code.CEPH_KEY_UNUSABLE,
        Severity.ERROR,
        "The node's kernel or the CSI driver cannot use the CephX key of the driver's user.",
        remedy="Give the StorageClass's node-stage secret a new user whose key is of type aes "
        "(`ceph auth get-or-create client.USER-aes CAPS --key-type=aes`, if `ceph mon dump` "
        "lists aes in auth_allowed_ciphers; a user that exists keeps its key), or run the pods on "
        "nodes with kernel 7.0 or later. See docs/install.md, Key types.",
        recovery=retried("the secret has a key that both can use"),
        step=LifecycleStep.STAGE,
    ),
    # The default of rbd before Ceph 20: ceph#64635; of the kernel: commit 00498b994113.
    Entry(
        Code.MONITOR_ADDRESS_MISSING,
        Severity.ERROR,
        "No monitor has an address for the ms_mode of the map.",
        remedy="Compare `ceph mon dump` with the map options. For new volumes set mapOptions of "
        "the StorageClass, for example `krbd:ms_mode=prefer-crc` (kernel 5.11 or later). The "
        "mapOptions of an existing PV cannot be changed: `ceph config set client "
        "rbd_default_map_options ms_mode=prefer-crc` applies to every map that names no ms_mode, "
        "on all nodes.",
        recovery=retried("the monitors have an address for the ms_mode"),
        step=LifecycleStep.STAGE,
    ),
)
_MAP_OPTIONS: Final = field_of_volume("csi.volumeAttributes.mapOptions")
_MONITORS: Final = template("ceph mon dump")
LOCKS: Final = template("rbd lock ls", "{image}")
USERS: Final = template("ceph auth get", "client.{user}")
_TASKS: Final = template("ceph rbd task list")
_OF_THE_KERNEL: Final = (Call.ADD_KEY, Call.MAP)
"""What the kernel does; all other calls are librados' and librbd's, in the plugin or in rbd."""
NOT_PRIMARY: Final = ErrorText(
    (),
    Code.IMAGE_NOT_PRIMARY,
    "the image is a non-primary mirror image",
    (template("rbd mirror image status", "{image}"),),
)
_DEFAULT_MAP_OPTIONS: Final = template("ceph config get client rbd_default_map_options")
_KERNEL_TOO_OLD: Final = ErrorText(
    (),
    Code.NO_MONITOR_SESSION,
    "Ceph's monitors refuse its kernel, which is too old: it lacks features that the cluster "
    "requires",
    (KERNEL_LOG, KERNEL_VERSION),
    "Run the pod on a node with a newer kernel, or update the kernel of that node. Do not change "
    "the tunables of CRUSH for it: that moves data of the whole cluster.",
    retried("its kernel has the features"),
)
_OTHER_CLUSTER: Final = ErrorText(
    (),
    Code.NO_MONITOR_SESSION,
    "another Ceph cluster answers at the addresses of the monitors",
    (KERNEL_LOG, _MONITORS),
    "Compare the addresses in the driver's configuration with `ceph mon dump` of the cluster that "
    "has the image.",
    retried("the cluster of the image answers there"),
)
_NOT_REACHED: Final = ErrorText(
    (),
    Code.NO_MONITOR_SESSION,
    "its kernel does not reach Ceph: its connections to the monitors or OSDs fail",
    (KERNEL_LOG, _MONITORS),
    "Test the addresses and ports that the kernel's lines name from that node: 3300 and 6789 of "
    "the monitors, 6800 and above of the OSDs. Compare them with `ceph mon dump`. A connection "
    "that is closed in the state V1_BANNER, V2_BANNER_PREFIX or CONNECTING was refused (nothing "
    "listens there, or a firewall rejects it), or no machine has the address: packets that are "
    "only dropped leave no such line.",
    retried("the node reaches Ceph"),
)
_FORMER_PROTOCOL: Final = ErrorText(
    (),
    Code.MONITOR_ADDRESS_MISSING,
    "its kernel uses the former protocol (v1), and the driver's configuration lists monitors at "
    "port 3300, where they accept msgr2 only",
    (KERNEL_LOG, _MONITORS, *CONFIG_MAPS, _DEFAULT_MAP_OPTIONS),
    "Either list the monitors with port 6789 in ceph-csi's ConfigMap, if `ceph mon dump` shows v1 "
    "addresses; or add ms_mode=prefer-crc to the option rbd_default_map_options of Ceph's clients "
    "(`ceph config set client`), and for new volumes to mapOptions of the StorageClass (kernel "
    "5.11 or later). The mapOptions of a PV cannot be changed.",
)
_NO_SESSION: Final = (
    BY_NETWORKS,
    (kernel_says(Recognised.FORMER_PROTOCOL_TO_MSGR2), _FORMER_PROTOCOL),
    (kernel_says(Recognised.CONNECT_REFUSED_HERE), NO_ROUTE),
    (kernel_says(Recognised.FEATURE_SET_MISMATCH), _KERNEL_TOO_OLD),
    (is_other_cluster, _OTHER_CLUSTER),
    (kernel_says(Recognised.CONNECTION_LOST), _NOT_REACHED),
)
"""What the kernel logs while a map waits for its session, whatever number it returns then."""
_TOO_MANY_PARENTS: Final = ErrorText(
    (),
    Code.MAP_OPTIONS_REFUSED,
    "the image is most likely a clone with more than 16 parents, which is the most that krbd "
    "follows",
    (IMAGE, KERNEL_LOG, _TASKS),
    "Flatten the image, or one of its parents: `ceph rbd task add flatten POOL/IMAGE`. This copies "
    "the data of the parents into it and changes none.",
    retried("the chain of parents is shorter"),
)
_UNKNOWN_OPTION: Final = ErrorText(
    (),
    Code.MAP_OPTIONS_REFUSED,
    "its kernel most likely does not know an option of the map: the kernel log names it",
    (
        KERNEL_LOG,
        _MAP_OPTIONS,
        template("ceph config get client rbd_default_map_options"),
        KERNEL_VERSION,
    ),
)


def mirrored_here(pod_event: PodEvent, context: RuleContext) -> Finding:
    """Return RBD743 for a pod that waits for an image to which only rbd-mirror writes."""
    return finding(
        Code.IMAGE_NOT_PRIMARY,
        Subject.of_pod(pod_event.event.subject),
        stated(
            "{pod} cannot start: the image of {volume} is not primary in this cluster, and "
            "rbd-mirror writes to it.",
            pod=pod_event.event.subject,
            volume=context.name,
        ),
        evidence=pod_event_evidence(pod_event, context),
        commands=filled(NOT_PRIMARY.commands, fields_of(pod_event.node, context, {})),
    )


def being_flattened(
    subject: Subject, message: Statement, evidence: tuple[str, ...], actor: str
) -> Finding:
    """Return RBD745 for an image that cannot be mapped or cloned before its flatten has ended.

    Args:
        subject: the object that waits.
        message: what waits for the flatten of which image.
        evidence: why that is known.
        actor: who retries then.
    """
    return finding(
        Code.IMAGE_BEING_FLATTENED,
        subject,
        message,
        evidence=evidence,
        commands=filled((_TASKS,), {}),
        recovery=Recovery(
            actor=actor, condition="Ceph's manager has flattened it", within_s=RETRY_S
        ),
    )


NO_POOL_NAMED: Final = ErrorText(
    (Recognised.NO_POOL_NAMED,),
    Code.POOL_MISSING,
    "the PV has staticVolume and no pool in its volumeAttributes",
    (field_of_volume("csi.volumeAttributes"), template("ceph osd pool ls")),
    "Set the PV to Retain and create it again with the pool that has the image: the attributes "
    "of a PV cannot be changed.",
    FIXED_ATTRIBUTES,
)
MAP_TEXTS: Final = (
    ErrorText(
        (Recognised.FLATTENING,),
        Code.IMAGE_BEING_FLATTENED,
        "Ceph's manager is flattening the image first",
        (_TASKS,),
    ),
    ErrorText(
        (Recognised.NOT_PRIMARY,),
        Code.IMAGE_NOT_PRIMARY,
        NOT_PRIMARY.means,
        NOT_PRIMARY.commands,
    ),
    ErrorText(
        (Recognised.MODULE_OF_OTHER_KERNEL,),
        Code.KERNEL_MODULE_MISSING,
        "the CSI node plugin's container cannot load the rbd module of its kernel",
        (template("modprobe rbd", node="{node}"),),
        "Load the module on the node itself: `modprobe rbd` there, and rbd in "
        "/etc/modules-load.d/, so that it is loaded after each boot.",
    ),
    ErrorText(
        (Recognised.NO_MODULE,),
        Code.KERNEL_MODULE_MISSING,
        "its kernel has no rbd module",
        (template("modprobe rbd", node="{node}"),),
    ),
    ErrorText(
        (Recognised.NO_NBD_MODULE,),
        Code.KERNEL_MODULE_MISSING,
        "its kernel has no nbd module, which the mounter rbd-nbd needs",
        (template("modprobe nbd", node="{node}"),),
        "Install the package with the kernel module nbd on that node and load it, or run the pods "
        "on nodes that have it.",
        retried("the module is loaded"),
    ),
    ErrorText(
        (Recognised.NEEDS_RBD_NBD,),
        Code.IMAGE_FEATURES_UNSUPPORTED,
        "the volume asks for the image feature {feature}, which ceph-csi maps only with rbd-nbd",
        (field_of_volume("csi.volumeAttributes"), IMAGE),
        "The attributes of a PV cannot be changed: set Retain and create the PV again, with "
        "mounter: rbd-nbd, or without the feature in imageFeatures. In the second case the image "
        "must not have the feature either. Correct the StorageClass in the same way.",
        FIXED_ATTRIBUTES,
    ),
    ErrorText(
        # parseMapOptions takes what is before the first colon for the mounter.
        (Recognised.UNKNOWN_MOUNTER,),
        Code.MAP_OPTIONS_REFUSED,
        "the mapOptions or unmapOptions of the PV begin with {mounter}, and ceph-csi knows the "
        "prefixes krbd and nbd only",
        (field_of_volume("csi.volumeAttributes"),),
        "Set the PV to Retain and create it again with the prefix `krbd:` (or `nbd:`) before the "
        "options: its attributes cannot be changed. A value that contains a colon needs the "
        "prefix. Correct the StorageClass in the same way.",
        FIXED_ATTRIBUTES,
    ),
    ErrorText(
        (Recognised.KRBD_LACKS_FEATURE, *failed_calls(Fault.FEATURES)),
        Code.IMAGE_FEATURES_UNSUPPORTED,
        "its kernel does not support all features of the image",
        (
            IMAGE,
            template("cat /sys/bus/rbd/supported_features", node="{node}"),
            template("rbd feature disable", "{image}", "{lacking}"),
        ),
        causes=(
            (is_only_non_primary, NOT_PRIMARY),
            (
                is_migrating,
                ErrorText(
                    (),
                    Code.IMAGE_FEATURES_UNSUPPORTED,
                    "the image is the target of a migration that is not committed, and no kernel "
                    "maps such an image",
                    (IMAGE,),
                    "Finish the migration: `rbd migration execute`, then `rbd migration commit`. "
                    "Do not map the image read-only meanwhile: the kernel would read zeros.",
                    retried("the migration is committed"),
                ),
            ),
        ),
    ),
    ErrorText(
        failed_calls(Fault.KEY_TYPE),
        Code.CEPH_KEY_UNUSABLE,
        "its kernel cannot use the key of {user} ({number}); kernels before 7.0 do not know keys "
        "of type aes256k",
        (KERNEL_VERSION, STAGE_SECRET, KERNEL_LOG, _MONITORS),
    ),
    ErrorText(
        # The kernel's keyring refuses: seccomp without add_key(2), or the user's key quota.
        (Recognised.KEY_NOT_ADDED,),
        Code.MAP_FAILS,
        "its kernel does not accept the key of {user} ({number})",
        (KERNEL_LOG,),
        "Check the seccomp profile of the CSI node plugin, which must allow add_key(2), and "
        "`/proc/key-users` on that node. The driver has not contacted Ceph yet.",
    ),
    ErrorText(
        # From the librados of ceph-csi, which passes the key as keyfile (measured with 16.2, 18.2).
        failed_calls(Fault.UNUSABLE),
        Code.CEPH_KEY_UNUSABLE,
        "the CSI driver cannot read the key of its Ceph user: the key is of a type that the "
        "driver's librados does not support (aes256k), or is not a key; or the name of a monitor "
        "cannot be resolved",
        (NODE_PODS, STAGE_SECRET, _MONITORS),
        "Update ceph-csi to 3.16.3, 3.17.1 or later, which support aes256k; or give the secret a "
        "new user whose key is of type aes (`ceph auth get-or-create client.USER-aes CAPS "
        "--key-type=aes`, if `ceph mon dump` lists aes in auth_allowed_ciphers; a user that "
        "exists keeps its key). See docs/install.md, Key types.",
    ),
    ErrorText(
        # Kernels support ms_mode since 00498b994113 (5.11).
        (Recognised.NO_ADDRESS,),
        Code.MONITOR_ADDRESS_MISSING,
        "the monitors have no address for the ms_mode of the map",
        (_MONITORS, _MAP_OPTIONS, _DEFAULT_MAP_OPTIONS, KERNEL_VERSION),
        causes=(
            (
                needs_ms_mode,
                ErrorText(
                    (),
                    Code.MONITOR_ADDRESS_MISSING,
                    "all monitors have port 3300 only (msgr2), and the PV has no ms_mode in its "
                    "mapOptions: the map uses the former protocol",
                    (_MONITORS, _DEFAULT_MAP_OPTIONS, KERNEL_VERSION),
                    "Add ms_mode=prefer-crc to the option rbd_default_map_options of Ceph's "
                    "clients, and keep what it has (`ceph config set client`): it applies to every "
                    "map that names no ms_mode, on all nodes (kernel 5.11 or later). For new "
                    "volumes set mapOptions of the StorageClass: `krbd:ms_mode=prefer-crc`. The "
                    "mapOptions of a PV cannot be changed.",
                ),
            ),
            (
                has_no_msgr2,
                ErrorText(
                    (),
                    Code.MONITOR_ADDRESS_MISSING,
                    "all monitors have port 6789 only (v1), and the mapOptions of the PV ask for "
                    "msgr2 with their ms_mode",
                    (_MONITORS, _MAP_OPTIONS),
                    "Let the monitors use msgr2 too (`ceph mon enable-msgr2`, port 3300), and list "
                    "them in ceph-csi's ConfigMap. For new volumes, ms_mode may be left out of "
                    "mapOptions of the StorageClass. The mapOptions of a PV cannot be changed.",
                ),
            ),
        ),
    ),
    ErrorText(
        failed_calls(Fault.TIMED_OUT, *_OF_THE_KERNEL),
        Code.NO_MONITOR_SESSION,
        "its kernel got no session with Ceph's monitors in time (110): they are not reached from "
        "there, or they refuse this kernel",
        (KERNEL_LOG, _MONITORS, template("ceph health detail")),
        causes=_NO_SESSION,
    ),
    ErrorText(
        (
            *failed_calls(Fault.TIMED_OUT, *(call for call in Call if call not in _OF_THE_KERNEL)),
            Recognised.TIMED_OUT,
        ),
        Code.NO_MONITOR_SESSION,
        "the CSI node plugin there got no answer from Ceph in time (110): its monitors or OSDs are "
        "not reached from the network of the plugin's pod, or do not answer",
        (_MONITORS, template("ceph health detail"), NODE_PODS),
        causes=(BY_NETWORKS, (is_other_cluster, _OTHER_CLUSTER)),
    ),
    ErrorText(
        failed_calls(Fault.DENIED, Call.CONNECT),
        Code.CEPH_REFUSES_USER,
        "Ceph refuses the driver's user",
        (USERS,),
        causes=(
            (
                is_client_too_old,
                ErrorText(
                    (),
                    Code.CEPH_REFUSES_USER,
                    "Ceph refuses the login of the driver: the client of its version of ceph-csi "
                    "is too old for monitors that forbid insecure global_id reclaim, or its user "
                    "or key is wrong",
                    (template("ceph config get mon auth_allow_insecure_global_id_reclaim"),),
                    "Compare `ceph auth get` of the user with the secret (it prints the key): if "
                    f"they are equal, update ceph-csi to 3.3.1 or newer. {OLD_CLIENT}",
                ),
            ),
        ),
    ),
    ErrorText(
        failed_calls(Fault.DENIED),
        Code.CEPH_REFUSES_USER,
        "Ceph refuses the driver's user",
        (USERS,),
    ),
    ErrorText(
        (Recognised.POOL_GONE,),
        Code.POOL_MISSING,
        "the image's pool does not exist in the Ceph cluster that the driver uses",
        (template("ceph fsid"), template("ceph osd pool ls")),
        causes=(
            (
                is_pool_there,
                ErrorText(
                    (),
                    Code.POOL_MISSING,
                    "the driver does not find the image's pool, and rbdagent finds it, with the "
                    "image: the driver asks another Ceph cluster",
                    (field_of_volume("csi.volumeAttributes"), *CONFIG_MAPS),
                    "Correct the monitors of the PV's clusterID in ceph-csi's ConfigMap. Leave the "
                    "PV and the pool as they are.",
                    retried("the clusterID leads to this cluster"),
                ),
            ),
            # The monitors count the ids up (OSDMonitor::prepare_new_pool, src/mon/OSDMonitor.cc).
            (
                is_pool_gone,
                ErrorText(
                    (),
                    Code.POOL_MISSING,
                    "the Ceph cluster has no pool with the id in the PV's handle: the pool was "
                    "deleted there, and the image with it, or the clusterID leads to another "
                    "cluster than that of the image",
                    (template("ceph osd pool ls detail"), *CONFIG_MAPS),
                    "Compare `ceph fsid` and the monitors of the cluster with those in ceph-csi's "
                    "ConfigMap: they decide. If this is the right cluster, restore the data from a "
                    "mirror or a backup into a new volume: a pool that is created again has "
                    "another id.",
                    Recovery(note="no pool gets the id of a deleted one"),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.IMAGE_GONE, *failed_calls(Fault.NO_IMAGE)),
        Code.IMAGE_NOT_FOUND,
        "the driver does not find the image",
        (IMAGE, template("rbd trash ls --all --pool", "{pool}")),
        causes=(
            (
                is_present,
                ErrorText(
                    (),
                    Code.IMAGE_NOT_FOUND,
                    "the driver does not find the image, and rbdagent finds {image}: the driver "
                    "looks in another cluster, pool or namespace, or the image was restored since",
                    (IMAGE, field_of_volume("csi.volumeAttributes"), *CONFIG_MAPS),
                    "The image is there: restore nothing. Compare the clusterID and the pool of "
                    "the PV with ceph-csi's configuration, and its monitors with this cluster. A "
                    "parent of the image that is in the trash (`rbd info`, `rbd trash ls --all`) "
                    "needs ceph-csi 3.4 or later.",
                    retried("the driver looks in the right cluster and pool"),
                ),
            ),
        ),
    ),
    ErrorText(
        failed_calls(Fault.NOT_TAKEN),
        Code.MAP_OPTIONS_REFUSED,
        "its kernel rejects the map ({number}): an option that the kernel does not know, or a "
        "chain of parents that is too long or is being flattened",
        (KERNEL_LOG, _MAP_OPTIONS, IMAGE),
        causes=(
            (
                is_being_flattened,
                ErrorText(
                    (),
                    Code.IMAGE_BEING_FLATTENED,
                    "Ceph's manager is flattening the image, and its kernel does not map it "
                    "meanwhile ({number})",
                    (_TASKS,),
                ),
            ),
            (kernel_says(Recognised.TOO_MANY_PARENTS), _TOO_MANY_PARENTS),
            (kernel_says(Recognised.UNKNOWN_MAP_OPTION), _UNKNOWN_OPTION),
        ),
    ),
    ErrorText(
        ((Call.MAP, Fault.BUSY),),
        Code.MAP_FAILS,
        "its kernel cannot take the lock of the image ({number})",
        (LOCKS, KERNEL_LOG),
        "See who has the lock (`rbd lock ls`), and the kernel log on that node: `locked by "
        "external mechanism` means a lock that was added by hand.",
        causes=(
            (
                has_lock_by_hand,
                ErrorText(
                    (),
                    Code.MAP_FAILS,
                    "the image was locked by hand (`rbd lock add`), and its kernel does not break "
                    "such a lock ({number})",
                    (LOCKS,),
                    "Find out who added the lock, and why. If it is not needed any more, show it "
                    "with `rbd lock ls` and remove exactly that lock in the same minute: with a "
                    "lock id that is not valid any more, `rbd lock rm` fails, and has put the "
                    "client of the lock on the blocklist before.",
                    retried("the lock is removed"),
                ),
            ),
        ),
    ),
    ErrorText(
        ((Call.MAP, Fault.READ_ONLY),),
        Code.MAP_FAILS,
        "the map is refused as read-only ({number}): either the owner of the exclusive lock keeps "
        "it, or /sys is read-only in the container of the CSI node plugin",
        (LOCKS, KERNEL_LOG),
        "The kernel log on that node decides: `peer will not release lock` is about the lock. "
        "Without a line of the kernel, the kernel was not asked: /sys is read-only there.",
        causes=(
            (is_non_primary, NOT_PRIMARY),
            (
                is_locked,
                ErrorText(
                    (),
                    Code.MAP_FAILS,
                    "the client that has the exclusive lock of the image does not release it "
                    "({number})",
                    (LOCKS,),
                    "That client mapped the image with the option exclusive, or a librbd client "
                    "holds it: see the findings about the holder, and end its use.",
                    retried("that client has released the image"),
                ),
            ),
            (
                is_released,
                ErrorText(
                    (),
                    Code.MAP_FAILS,
                    "/sys is most likely read-only in the container of the CSI node plugin, and "
                    "the kernel was not asked ({number}): no client holds the image now",
                    (NODE_PODS,),
                    "Run the node plugin privileged, with /sys of the host mounted read-write. In "
                    "minikube and kind with a container driver, /sys of the node itself is "
                    "read-only: use a driver with virtual machines, or remount it there. If the "
                    "next retry succeeds, another client had kept the lock until then.",
                    retried("the plugin can write to /sys"),
                ),
            ),
        ),
    ),
    ErrorText(
        (Recognised.MAP_FAILED,),
        Code.MAP_FAILS,
        "the image cannot be mapped",
        (KERNEL_LOG,),
        causes=_NO_SESSION,
    ),
)


def map_refused(context: RuleContext) -> Iterator[Finding]:
    """Report RBD308: every new map on a node fails while its shared client is blocklisted."""
    pod_event = decisive_pod_event(context, _is_blocklisted_map)
    if pod_event is None:
        return
    node = stated("{node}", node=pod_event.node) if pod_event.node else "its node"
    waits = stated("{pod} cannot start", pod=pod_event.event.subject)
    entry = entry_of_host(context, pod_event.node)
    if entry is not None:
        yield finding(
            Code.MAP_REFUSED_BY_BLOCKLIST,
            Subject.of_pod(pod_event.event.subject),
            stated(
                "{}: {node} is on Ceph's blocklist by {entry}, so every client there is refused, "
                "also a new one. Find out who fenced the node, and why.",
                waits,
                node=pod_event.node,
                entry=entry_text(entry),
            ),
            evidence=pod_event_evidence(pod_event, context),
            remedy=_LIFT_THE_FENCE,
            commands=(command("ceph osd blocklist ls"),),
            recovery=Recovery(actor="kubelet", condition="the entry is gone", within_s=RETRY_S),
        )
        return
    if _is_of_plugin(pod_event.text):
        yield finding(
            Code.MAP_REFUSED_BY_BLOCKLIST,
            Subject.of_pod(pod_event.event.subject),
            stated(
                "{}: the Ceph client of the CSI node plugin on {node} was blocklisted, and stays "
                "refused after the entry is gone.",
                waits,
                node=pod_event.node,
            ),
            evidence=pod_event_evidence(pod_event, context),
            remedy="Restart the pod of the node plugin on that node: it then connects as a new "
            "client. Mappings of the kernel have other clients, and continue.",
            commands=(
                command("ceph osd blocklist ls"),
                *(() if pod_event.node is None else (list_pods_on(pod_event.node),)),
            ),
            recovery=Recovery(
                actor="kubelet", condition="the plugin has a new client", within_s=RETRY_S
            ),
        )
        return
    yield finding(
        Code.MAP_REFUSED_BY_BLOCKLIST,
        Subject.of_pod(pod_event.event.subject),
        stated(
            "{}: the Ceph client of {} is blocklisted, and every new map there fails.{}",
            waits,
            node,
            _EVICT if _may_have_mappings(context, pod_event.node) else "",
        ),
        evidence=pod_event_evidence(pod_event, context),
    )


_EVICT: Final = " Evict all pods with RBD volumes from that node."
_LIFT_THE_FENCE: Final = (
    "An entry of a host or of a range was made on purpose: by a NetworkFence of csi-addons (Rook "
    "makes one for the out-of-service taint), or by hand. It is lifted by what made it, and only "
    "when all former mappings of the node are gone, by a reboot if in doubt: until then, it "
    "protects the data. An eviction does not help."
)


def _may_have_mappings(context: RuleContext, name: str | None) -> bool:
    node = context.snapshot.node
    if node is None or node.node_name != name or isinstance(node.mappings, NotObserved):
        return True
    return bool(node.mappings)


def _is_blocklisted_map(text: str) -> bool:
    failure = failure_in(text)
    return failure is not None and failure.kind in failed_calls(Fault.BLOCKLISTED)


def _is_of_plugin(text: str) -> bool:
    """Return whether the plugin's own client was refused, before the kernel maps anything."""
    failure = failure_in(text)
    return failure is not None and failure.kind not in failed_calls(
        Fault.BLOCKLISTED, Call.MAP, Call.RUN
    )


RULES: Final = (Rule(480, map_refused),)
