"""Texts of other programs that rbdagent recognises: one table, with the origin of each text.

A rule uses these patterns and states what a text means for a volume. An event may contain any text.
So a pattern matches a value that becomes part of a command only by the characters that are valid in
a name. Its time is linear in the length of the text: an unlimited repetition cannot run over
another position at which the pattern may begin (tests/unit/test_recognised.py).

A version is that of the source, of the installed program (``strings``), or of a recording in
tests/fixtures. The texts of Kubernetes and its sidecars are from the Go module cache. The texts of
rbd, the kernel, e2fsprogs, xfsprogs, util-linux and kmod are from the packages of Debian 11 to 14.
The texts of ceph-csi are from commit 52fcb7b (October 2024).
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum, unique
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterator


class Origin(Struct, frozen=True):
    """The program that writes a text, and the place in its source."""

    project: str
    version: str
    """One or more versions, a commit, or the recording that contains the text."""
    where: str
    """File, and function or constant."""


_CSI: Final = ("ceph-csi", "52fcb7b")
_CSI_OF_OLD: Final = ("ceph-csi", "v1.2.2, v2.1.2, v3.2.2")
_KUBE: Final = ("kubernetes", "1.36.3")
_MOUNT_UTILS: Final = ("mount-utils", "0.36.3")
_XFS_CHECK: Final = ("k8s.io/utils", "2020-01-16 to 2020-03-24, in ceph-csi v2.0.0 and v2.0.1")
_PROVISIONER: Final = ("external-provisioner", "6.3.0")
_PROVISIONER_OF_OLD: Final = ("external-provisioner", "1.6.1, 2.2.2, 3.6.0, 5.3.0")
_ATTACHER: Final = ("external-attacher", "4.12.0")
_GRPC: Final = ("grpc-go", "1.82.1")
_RBD: Final = ("ceph", "16.2.15, 18.2.7, 20.2.4")
_LINUX: Final = ("linux", "5.10, 6.1, 6.12, 7.2")
_E2FSPROGS: Final = ("e2fsprogs", "1.47.0, 1.47.2, 1.47.4")
_XFSPROGS: Final = ("xfsprogs", "6.1.0, 6.13.0, 7.2.0")
_UTIL_LINUX: Final = ("util-linux", "2.38.1, 2.41.5, 2.42.4")
_KMOD: Final = ("kmod", "30, 34.2")

_ATTACH_DETACH: Final = "pkg/controller/volume/attachdetach/reconciler/reconciler.go"
_GENERATOR: Final = "pkg/volume/util/operationexecutor/operation_generator.go"
_POPULATOR: Final = "pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go"
_QUOTA: Final = "apiserver/pkg/admission/plugin/resourcequota/controller.go"
_BINDING: Final = "pkg/scheduler/framework/plugins/volumebinding"
_STATUS: Final = Origin(*_GRPC, "internal/status/status.go, Error.Error")
_GO_CEPH: Final = Origin(
    "go-ceph", "as vendored by ceph-csi 52fcb7b", "internal/errutil/strerror.go, FormatErrorCode"
)
_STRERROR: Final = Origin(*_RBD, "src/common/errno.cc, cpp_strerror, and strerror of go-ceph")


@unique
class Rank(IntEnum):
    """How specific a text is about the cause; the most specific text of an attempt decides."""

    GENERAL = 0
    """It states that something waits, or was requested again."""
    SYMPTOM = 1
    """It states what failed, with a number or without: several causes lead to it."""
    SPECIFIC = 2
    """It names what is missing or wrong."""


_PART: Final = re.compile(
    r"[^\\[(|)*+?{.^$]+|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<flags>\(\?[aiLmsux]+\))"
    r"|(?P<open>\()|(?P<close>\))|(?P<choice>\|)|(?P<quantifier>[*+?]|\{\d*,?\d*\})|(?P<any>[.^$])|.",
    re.DOTALL,
)
"""One part of a regular expression; characters for themselves have no name."""


def _literals_of(pattern: str) -> tuple[str, ...]:
    """Return for each alternative of a pattern the longest text that its matches contain.

    The text is outside of groups, and of what may be left out or repeated; "" if there is none.
    """
    choices: list[list[str]] = [[""]]
    run, depth = "", 0
    for part in _PART.finditer(pattern):
        kind, text = part.lastgroup, part[0]
        if kind == "flags":
            return ("",)
        if depth == 0 and (kind is None or (kind == "escape" and not text[1].isalnum())):
            run += text if kind is None else text[1]
            continue
        # A quantifier is about the last character, if not about what ended the run before it.
        choices[-1].append(run[:-1] if kind == "quantifier" else run)
        run = ""
        depth += {"open": 1, "close": -1}.get(kind or "", 0)
        if kind == "choice" and depth == 0:
            choices.append([""])
    choices[-1].append(run)
    return tuple(max(found, key=len) for found in choices)


@unique
class Recognised(Enum):
    """A text: the finding that it leads to, its pattern, its rank, and its origins.

    The finding is None if a text only helps to parse other texts, or if output quotes the text
    together with its meaning. The rank is None if a text is no cause, but a part of other texts.
    """

    def __init__(
        self, code: Code | None, pattern: str, rank: Rank | None, *origins: Origin
    ) -> None:
        self.code = code
        self.pattern = pattern
        self.rank = rank
        self.origins = origins

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The pattern, compiled at its first use."""
        return re.compile(self.pattern)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Texts of which every match contains one: without them, no pattern is compiled."""
        return _literals_of(self.pattern)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in a text; None if there is no match."""
        if not any(literal in text for literal in self.literals):
            return None
        return self.expression.search(text)

    def is_in(self, text: str) -> bool:
        """Return whether a text contains this."""
        return self.search(text) is not None

    def named_in(self, text: str) -> dict[str, str] | None:
        """Return the named groups of the first match; None if there is no match."""
        match = self.search(text)
        if match is None:
            return None
        return {name: found or "" for name, found in match.groupdict().items()}

    def all_in(self, text: str) -> Iterator[re.Match[str]]:
        """Iterate over all matches in a text."""
        return self.expression.finditer(text)

    def left_out_of(self, text: str) -> str:
        """Return a text without the first match."""
        return self.expression.sub("", text, count=1)

    # The beginning of an event --------------------------------------------------------------------

    COMBINED = (
        None,
        r"\A\(combined from similar events\): ",
        None,
        Origin(
            "client-go",
            "0.36.3",
            "tools/record/events_cache.go, EventAggregatorByReasonMessageFunc",
        ),
    )
    OF_VOLUME = (
        # Later in a text, the same words may precede the name that a pod gives to a volume.
        None,
        r'\A[^:]* for volume "(?P<name>[^"]+)"',
        None,
        Origin(
            *_KUBE, "pkg/volume/util/operationexecutor/operation_executor.go, generateVolumeMsg"
        ),
    )
    NAMES_A_VOLUME = (
        None,
        r"for volume",
        None,
        Origin(
            *_KUBE, "pkg/volume/util/operationexecutor/operation_executor.go, generateVolumeMsg"
        ),
    )
    FAILED_FOR_VOLUME = (
        None,
        r'\A\S+ failed for volume "[^"]+" ?: ',
        None,
        Origin(
            *_KUBE, "pkg/volume/util/operationexecutor/operation_executor.go, generateVolumeMsg"
        ),
    )
    STEP = (
        # The call that failed: MountDevice and SetUpDevice stage, SetUp and MapPodDevice publish.
        None,
        r"\A\w{1,40}\.(?P<step>\w{1,40}) ",
        None,
        Origin(*_KUBE, f"{_GENERATOR}, the prefix of each error"),
    )
    RPC_STATUS = (
        # Each process that passes an error on may add one.
        None,
        r"\Arpc error: code = \w+ desc = ",
        None,
        _STATUS,
    )
    ATTACH_FAILED = (
        # The attachError of the VolumeAttachment follows verbatim.
        Code.ATTACH_FAILS,
        r"AttachVolume\.Attach failed",
        None,
        Origin(*_KUBE, f"{_GENERATOR}, GenerateAttachVolumeFunc"),
    )
    BEFORE_MOUNT = (
        # The only `Failed` event that SyncPod records before it waits for the volumes.
        None,
        r"\Aerror making pod data directories",
        None,
        Origin(*_KUBE, "pkg/kubelet/kubelet.go, Kubelet.SyncPod"),
    )
    PROVISIONING_FAILED = (
        # Since version 13 of the library (external-provisioner 6.2) only the error is written.
        None,
        # The error of a program or of Vault has lines; the last one may name the cause.
        r'failed to provision volume with StorageClass "[^"]*": (?P<error>[\s\S]*)',
        None,
        Origin(
            "sig-storage-lib-external-provisioner",
            "5, 6, 9, 11",
            "controller/controller.go, provisionClaimOperation",
        ),
    )

    INFEASIBLE = (
        # external-provisioner tries again after --retry-interval-max: 5 minutes by default.
        None,
        r"Volume provisioning failed with infeasible error\. Retries will be delayed\.\s",
        None,
        Origin("external-provisioner", "6.3.0", "recording provisioning-badparam"),
    )
    LEFT_TO_POPULATOR = (
        None,
        r"Assuming an external populator will provision the volume",
        None,
        Origin("external-provisioner", "6.3.0", "recording provisioning-xns"),
    )

    CLONE_SOURCE_IN_USE = (
        # CDI waits for the end of the pod before it copies the source (CDI#3719).
        None,
        r"\Apod (?P<pod>\S{1,510}) using PersistentVolumeClaim (?P<claim>\S{1,510})",
        None,
        Origin("containerized-data-importer", "main", "pkg/controller/clone/common.go"),
    )

    # ceph health detail ---------------------------------------------------------------------------

    POOL_IS_FULL = (
        None,
        r"\Apool '(?P<pool>[^']*)' is full",
        None,
        Origin("ceph", "18.2.7", "src/osd/OSDMap.cc, OSDMap::check_health"),
    )
    IO_PAUSED = (
        # norecover, noout and others do not stop I/O (measured, 18.2.7).
        None,
        r"\bpause(?:rd|wr)\b",
        None,
        Origin("ceph", "18.2.7", "src/osd/OSDMap.cc, OSDMap::check_health"),
    )
    GROUP_INACTIVE = (
        None,
        r"\Apg (?P<pool_id>\d{1,18})\.[0-9a-f]+ is (?:stuck )?\w",
        None,
        Origin("ceph", "18.2.7", "src/mon/PGMap.cc, PGMap::get_health_checks"),
    )
    SPLIT_BRAIN = (
        # "split-brain detected" with a journal, "split-brain" with snapshots.
        None,
        r"\Asplit-brain\b",
        None,
        Origin("ceph", "18.2.7", "src/tools/rbd_mirror/image_replayer, BootstrapRequest"),
    )
    LOCAL_IS_PRIMARY = (
        None,
        r"\Alocal image is primary\Z",
        None,
        Origin("ceph", "18.2.7", "src/tools/rbd_mirror/ImageReplayer.cc"),
    )
    OSD_IS_DOWN = (
        None,
        r"\Aosd\.(?P<osd>\d{1,9}) \(.*\) is down\Z",
        None,
        Origin("ceph", "18.2.7", "src/osd/OSDMap.cc, OSDMap::check_health"),
    )
    OSD_NAMED = (
        # Others have slow operations too: mon.a has, and no I/O waits for it.
        None,
        r"\bosd\.(?P<osd>\d{1,9})\b",
        None,
        Origin(*_RBD, "src/mgr/DaemonHealthMetricCollector.cc, SlowOps::_summarize"),
        Origin(*_RBD, "src/mon/PGMap.cc, PGMap::get_health_checks"),
    )

    # The scheduler --------------------------------------------------------------------------------

    CLAIM_NOT_READY = (
        Code.POD_CLAIM_NOT_READY,
        (
            r'persistentvolumeclaim "(?P<name>[\w.-]+)" (?P<why>not found|is being deleted'
            r"|bound to .+)"
        ),
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_BINDING}/volume_binding.go, VolumeBinding.podHasPVCs"),
    )
    CLAIMS_UNBOUND = (
        Code.POD_CLAIM_NOT_READY,
        r"unbound immediate PersistentVolumeClaims",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_BINDING}/volume_binding.go, VolumeBinding.PreFilter"),
    )
    NO_VOLUME = (
        Code.POD_CLAIM_NOT_READY,
        r"pvc\(s\) bound to non-existent pv\(s\)",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_BINDING}/binder.go, ErrReasonPVNotExist"),
    )
    AFFINITY = (
        Code.VOLUME_TIED_TO_OTHER_NODES,
        (
            r"didn't match PersistentVolume's node affinity|volume node affinity conflict"
            r"|had no available volume zone"
        ),
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_BINDING}/binder.go, ErrReasonNodeConflict"),
        Origin("kubernetes", "01aa0f3 (2021)", f"{_BINDING}/binder.go, ErrReasonNodeConflict"),
        Origin(
            *_KUBE, "pkg/scheduler/framework/plugins/volumezone/volume_zone.go, ErrReasonConflict"
        ),
    )
    LIMIT = (
        Code.VOLUME_LIMIT_REACHED,
        r"exceed max volume count",
        Rank.SPECIFIC,
        Origin(
            *_KUBE,
            "pkg/scheduler/framework/plugins/nodevolumelimits/csi.go, "
            "ErrReasonMaxVolumeCountExceeded",
        ),
    )
    NO_DRIVER = (
        Code.DRIVER_DOWN_WHERE_WANTED,
        r"(?<!\S)(?P<driver>\S++) CSI driver is not installed on the node",
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/scheduler/framework/plugins/nodevolumelimits/csi.go, CSILimits.Filter"),
    )
    NOT_OWNER = (
        Code.EPHEMERAL_CLAIM_NAME_TAKEN,
        r"PVC (?P<claim>[\w.-]+/[\w.-]+) was not created for pod \S+ \(pod is not owner\)",
        Rank.SPECIFIC,
        Origin("component-helpers", "0.36.3", "storage/ephemeral/ephemeral.go, VolumeIsForPod"),
    )
    OF_VOLUMES = (
        # Not the text of one program: each message about volumes contains one of these words.
        Code.NOT_SCHEDULED_FOR_OTHER_REASONS,
        r"(?i:volume|pvc|disk|(?<!ephemeral-)storage|not owner|CSI driver)",
        None,
        Origin(*_KUBE, "pkg/scheduler/framework/plugins, all that concern volumes"),
    )
    GATES = (
        Code.FIRST_POD_NOT_SCHEDULED,
        r"scheduling gates",
        Rank.SPECIFIC,
        Origin(
            *_KUBE,
            "pkg/scheduler/framework/plugins/schedulinggates/scheduling_gates.go, PreEnqueue",
        ),
        Origin(*_KUBE, "pkg/registry/core/pod/strategy.go, applySchedulingGatedCondition"),
    )

    # The attach/detach controller, the attacher, and kubelet --------------------------------------

    MULTI_ATTACH = (
        Code.MULTI_ATTACH,
        r"Multi-Attach error|Waiting for detach for volume",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_ATTACH_DETACH}, reportMultiAttachError"),
        Origin("kubernetes", "1.37.2", f"{_ATTACH_DETACH}, reportMultiAttachError"),
    )
    BEING_DETACHED = (
        # The objects show more about this and the next two texts, so the rules read the objects.
        None,
        r"volume attachment is being deleted",
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/volume/csi/csi_attacher.go, verifyAttachmentStatus"),
    )
    WAIT_FOR_ATTACH = (
        None,
        r"WaitForAttach failed",
        None,
        Origin(*_KUBE, f"{_GENERATOR}, GenerateMountVolumeFunc and GenerateMapVolumeFunc"),
    )
    NOT_THE_CLAIMS = (
        None,
        r"found PV object \S+ but its pv\.Spec\.ClaimRef\.UID \S* does not point to claim",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_POPULATOR}, getPVSpec"),
    )
    ATTACHER_SILENT = (
        Code.ATTACH_NOT_PICKED_UP,
        r"timed out waiting for external-attacher",
        Rank.SYMPTOM,
        Origin(*_KUBE, "pkg/volume/csi/csi_attacher.go, waitForVolumeAttachDetachStatusWithLister"),
    )
    VOLUME_GONE = (
        Code.DETACH_FAILS,
        r'persistentvolumes? "[^"]*" not found',
        Rank.SPECIFIC,
        Origin("apimachinery", "0.36.3", "pkg/api/errors/errors.go, NewNotFound"),
    )
    ONE_POD_ONLY = (
        Code.ONCE_POD_IN_USE,
        r"ReadWriteOncePod access mode and is already in use",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_GENERATOR}, GenerateMountVolumeFunc and GenerateMapVolumeFunc"),
    )
    CLAIM_OF_POD = (
        Code.POD_CLAIM_NOT_READY,
        r"error processing PVC (?P<claim>[\w.-]+/[\w.-]+): (?P<why>.+)",
        Rank.SYMPTOM,
        Origin(*_KUBE, f"{_POPULATOR}, createVolumeSpec"),
    )
    NODE_AFFINITY = (
        Code.VOLUME_TIED_TO_OTHER_NODES,
        r"NodeAffinity check failed",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_GENERATOR}, GenerateMountVolumeFunc and GenerateMapVolumeFunc"),
    )
    DRIVER_NOT_REGISTERED = (
        Code.DRIVER_DOWN_WHERE_WANTED,
        (
            r"driver name (?P<name>\S+) not found in the list of registered CSI drivers"
            r"|CSINode \S+ does not contain driver (?P<other>\S+)"
        ),
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/volume/csi/csi_client.go, newCsiDriverClient"),
        Origin(*_ATTACHER, "pkg/controller/csi_handler.go, getNodeID"),
    )
    DRIVER_SILENT = (
        Code.DRIVER_DOWN_WHERE_WANTED,
        (
            r"code = Unavailable desc = connection error"
            r"|dial unix \S+: connect: (?:connection refused|no such file or directory)"
        ),
        Rank.SPECIFIC,
        Origin(*_GRPC, "internal/transport/transport.go, ConnectionError.Error"),
        Origin("go", "1.26", "net/net.go, OpError.Error"),
    )
    VOLUMES_NOT_READY = (
        # kubelet adds it every two minutes to whatever else it reports. Before 1.28 the error was
        # "timed out waiting for the condition".
        None,
        (
            r"\AUnable to attach or mount volumes: unmounted volumes="
            r'|\AUnable to mount volumes for pod "[^"]{1,600}": timeout expired waiting for '
            r"volumes to attach"
        ),
        Rank.GENERAL,
        Origin(*_KUBE, "pkg/kubelet/volumemanager/volume_manager.go, WaitForAttachAndMount"),
        Origin("kubernetes", "1.16 and older (github)", "pkg/kubelet/kubelet.go, syncPod"),
    )
    DRIVER_ANSWERED = (
        # kubelet makes the other two itself, if nothing listens or no answer comes in time.
        None,
        r"rpc error: code = (?!Unavailable|DeadlineExceeded)\w",
        None,
        _STATUS,
    )
    SECRET_MISSING = (
        Code.SECRET_MISSING,
        r"failed to find the secret (?P<name>[\w.-]+) in the namespace (?P<namespace>[\w.-]+)",
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/volume/csi/csi_util.go, getCredentialsFromSecret"),
    )
    SECRET_WITHOUT_NAMESPACE = (
        # A PV of the in-tree plugin that was migrated to CSI (ceph-csi#4809).
        Code.SECRET_MISSING,
        r"SecretRef /(?P<name>[\w.-]{1,253}) failed: .{0,300}an empty namespace may not be set",
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/volume/csi/csi_attacher.go, MountDevice"),
        Origin("client-go", "0.36.3", "rest/request.go, Request.Namespace"),
    )
    ATTACHERS_SECRET_MISSING = (
        Code.SECRET_MISSING,
        r'failed to load secret "(?P<namespace>[\w.-]+)/(?P<name>[\w.-]+)"',
        Rank.SPECIFIC,
        Origin(*_ATTACHER, "pkg/controller/csi_handler.go, getCredentialsFromPV"),
    )
    WRONG_MODE = (
        Code.VOLUME_MODE_MISUSED,
        r"volume (?P<name>\S+) has volumeMode (?P<mode>\w+), but is specified in (?P<list>\w+)",
        Rank.SPECIFIC,
        Origin(*_KUBE, f"{_POPULATOR}, createVolumeSpec"),
    )
    SELINUX = (
        Code.SELINUX_CONFLICT,
        r"conflicting SELinux labels|already mounted to a different pod with a different SELinux",
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/kubelet/volumemanager/cache/desired_state_of_world.go, AddPodToVolume"),
        Origin(
            *_KUBE,
            "pkg/kubelet/volumemanager/cache/actual_state_of_world.go, seLinuxMountMismatchError",
        ),
    )
    SETTING_OWNERSHIP = (
        Code.OWNERSHIP_BEING_SET,
        r"Setting volume ownership for",
        Rank.SYMPTOM,
        Origin(*_KUBE, "pkg/volume/volume_linux.go, VolumeOwnership.monitorProgress"),
    )
    OWNERSHIP_FAILED = (
        Code.OWNERSHIP_NOT_SET,
        r"applyFSGroup failed",
        Rank.SYMPTOM,
        Origin(*_KUBE, "pkg/volume/csi/csi_mounter.go, csiMountMgr.SetUpAt"),
    )
    EXPANSION_FAILED = (
        Code.EXPAND_FAILS,
        r"while expanding volume|NodeExpandVolume failed",
        Rank.SYMPTOM,
        Origin(*_KUBE, f"{_GENERATOR}, GenerateMountVolumeFunc and doOnlineExpansion"),
    )
    NO_PROGRAM = (
        Code.MOUNT_FAILS,
        r'(?:exec: "(?P<program>[\w./-]{1,100})": )?executable file not found in \$PATH',
        Rank.SPECIFIC,
        Origin("go", "1.26", "os/exec, ErrNotFound"),
    )
    EXPAND_SECRET_EMPTY = (
        # ceph-csi gets no credentials if the PV names no controllerExpandSecretRef (rook#5379), if
        # the class names no secret, or if a deletion finds none: external-provisioner then only
        # logs it (handleSecretsForDeletion).
        None,
        r"provided secret is empty",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/credentials.go, newCredentialsFromSecret"),
    )
    RESIZE_FAILED = (
        None,
        r'\Aresize volume \S+(?: by resizer "[^"]*")? failed: (?P<error>.*)',
        None,
        Origin(
            "external-resizer", "2.2.0", "pkg/controller/expand_and_recover.go, callResizeOnPlugin"
        ),
    )
    GROWTH_CONDITION = (
        # The conditions ControllerResizeError and NodeResizeError of a claim.
        None,
        (
            r"\Afailed to expand pvc with (?:Expander\.NodeExpand failed to expand the volume : )?"
            r"(?P<error>[\s\S]*)"
        ),
        None,
        Origin(
            "external-resizer", "2.2.0", "pkg/controller/expand_and_recover.go, callResizeOnPlugin"
        ),
        Origin("kubernetes", "recording 31-grow-node-failed-pod-runs", "the claim's condition"),
    )
    READ_ONLY_GROWTH = (
        # A pod with readOnly starts without the growth; kubelet does not try again.
        None,
        r"NodeExpandVolume failed for volume \S+ requested read-only file system",
        Rank.GENERAL,
        Origin(*_KUBE, "pkg/volume/util/operationexecutor/node_expander.go, runPreCheck"),
    )
    CHECKSUM_BEHIND = (
        # kubernetes#114221, azuredisk-csi-driver#1631.
        None,
        r"Superblock checksum does not match superblock while trying to open",
        Rank.SPECIFIC,
        Origin(*_E2FSPROGS, "resize/main.c, and the error table of libext2fs"),
    )
    RESIZE_DENIED = (
        # EPERM of ext4_resize_begin() in fs/ext4/resize.c: CAP_SYS_RESOURCE is missing, or "There
        # are errors in the filesystem, so online resizing is not allowed".
        Code.EXPAND_FAILS,
        r"Permission denied to resize filesystem",
        Rank.SPECIFIC,
        Origin(*_E2FSPROGS, "resize/online.c, online_resize_fs"),
    )
    RESIZE_IO_ERROR = (
        None,
        r"Input/output error while trying to open /dev/",
        Rank.SPECIFIC,
        Origin(*_E2FSPROGS, "resize/main.c, main"),
    )
    NO_PLUGIN = (
        Code.IN_TREE_PLUGIN_GONE,
        r"no volume plugin matched",
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/volume/plugins.go, ErrNoPluginMatched"),
    )
    SELF_LINK = (
        Code.PROVISIONER_TOO_OLD,
        r"selfLink was empty",
        Rank.SPECIFIC,
        Origin("client-go", "before 0.20 (github)", "tools/reference/ref.go, ErrNoSelfLink"),
    )

    # mount-utils, and the tools that it runs ------------------------------------------------------

    DEVICE_IN_USE = (
        # The tools print this for a device that is opened exclusively. e2fsck then ends with 8,
        # which mount-utils does not report (findings/mount_utils_fsck_status.sh).
        Code.DEVICE_BUSY,
        (
            r"apparently in use by the system|cannot open /dev/\S+: Device or resource busy"
            r"|already mounted or mount point busy"
        ),
        Rank.SPECIFIC,
        Origin(*_E2FSPROGS, "misc/util.c, check_mount, for mke2fs"),
        Origin(*_XFSPROGS, "the strings of mkfs.xfs"),
        Origin(*_UTIL_LINUX, "libmount/src/context_mount.c, mnt_context_get_mount_excode, EBUSY"),
    )
    STRUCTURE_NEEDS_CLEANING = (
        Code.FILE_SYSTEM_DAMAGED,
        r"Structure needs cleaning",
        Rank.SPECIFIC,
        Origin("glibc", "2.41", "sysdeps/gnu/errlist.h, EUCLEAN"),
        Origin("linux", "6.12, 7.2", "fs/xfs/xfs_error.h, EFSCORRUPTED; fs/ext4/ext4.h"),
    )
    FSCK_FAILED = (
        Code.FILE_SYSTEM_DAMAGED,
        (
            r"'(?:fsck|xfs_repair)' found errors on device (?P<device>\S+) but could not correct"
            r"(?:[\s\S]{0,2000}?(?P<beyond>Error reading block \d|physical size of the device))?"
        ),
        Rank.SYMPTOM,
        Origin(*_MOUNT_UTILS, "mount_linux.go, checkAndRepairFilesystem"),
        Origin(*_XFS_CHECK, "mount_linux.go, checkAndRepairXfsFilesystem"),
    )
    XFS_LOG_NOT_REPLAYED = (
        # xfs_repair does not replay a log: the kernel does, at a mount. Kubernetes removed this
        # check because it refuses each file system whose node crashed (kubernetes/utils#141).
        Code.WRONG_FILE_SYSTEM,
        r"valuable metadata changes in a log which needs\s{1,20}to\s{1,20}be\s{1,20}replayed",
        Rank.SPECIFIC,
        Origin(*_XFSPROGS, "repair/phase2.c, zero_log"),
        Origin(*_XFS_CHECK, "mount_linux.go, checkAndRepairXfsFilesystem, runs xfs_repair"),
    )
    UNMOUNT_REPORTED = (
        # A line of kubelet's log, at each try.
        None,
        r"\bUn(?:mount|map)(?:Volume|Device)\b.{0,2000}?\bfailed\b",
        None,
        Origin(*_KUBE, "pkg/volume/util/operationexecutor/operation_generator.go"),
    )
    VOLUME_DATA_GONE = (
        # kubelet knows from this file what to unmount (kubernetes#116847).
        None,
        r"failed to open volume data file \[(?P<path>[^\]]{1,500})\]",
        None,
        Origin(*_KUBE, "pkg/volume/csi/csi_util.go, loadVolumeData"),
    )
    VOLUME_DATA_DAMAGED = (
        # After a power failure, the file may be empty: "EOF" (kubernetes#108217).
        None,
        r"failed to parse volume data file \[(?P<path>[^\]]{1,500})\]",
        None,
        Origin(*_KUBE, "pkg/volume/csi/csi_util.go, loadVolumeData"),
    )
    UNFORMATTED = (
        Code.EMPTY_IMAGE_READ_ONLY,
        r"cannot mount unformatted disk",
        Rank.SPECIFIC,
        Origin(*_MOUNT_UTILS, "mount_linux.go, formatAndMountSensitive"),
    )
    STAGED_READ_ONLY = (
        # ceph-csi changed the mode of each staging path, also of one that is read-only.
        Code.WRONG_FILE_SYSTEM,
        r"chmod /\S{1,300}?/globalmount/\S{1,250}: read-only file system",
        Rank.SPECIFIC,
        Origin(*_CSI_OF_OLD, "internal/rbd/nodeserver.go, stageTransaction (ceph-csi#952)"),
    )
    ANOTHER_FILE_SYSTEM = (
        # Kubernetes ran blkid: this precedes the message of mount in the same text. Since
        # Kubernetes checks before it mounts (2019), only the message of mount is in the text.
        Code.WRONG_FILE_SYSTEM,
        r"it already contains|unknown data, probably partitions",
        Rank.SPECIFIC,
        Origin(
            "kubernetes", "1.14 and older (github)", "pkg/util/mount/mount_linux.go, formatAndMount"
        ),
        Origin(*_MOUNT_UTILS, "mount_linux.go, getDiskFormat"),
    )
    MOUNT_REFUSED = (
        # util-linux prints this for every EINVAL that the kernel returns.
        Code.WRONG_FILE_SYSTEM,
        (
            r"wrong fs type, bad option"
            r"(?:, bad superblock on (?P<device>/dev/[\w./-]{0,255}[\w/-]))?"
        ),
        Rank.SYMPTOM,
        Origin(*_UTIL_LINUX, "libmount/src/context_mount.c, mnt_context_get_mount_excode"),
    )
    NOT_MOUNTED_READ_ONLY = (
        # EROFS of mount(2), or EACCES for a mount that is to be read-only.
        Code.WRONG_FILE_SYSTEM,
        r"cannot mount (?P<device>/dev/[\w./-]{0,255}[\w/-]) read-only",
        Rank.SYMPTOM,
        Origin(*_UTIL_LINUX, "libmount/src/context_mount.c, mnt_context_get_mount_excode"),
    )
    UNKNOWN_FILE_SYSTEM = (
        # ENODEV of mount(2). Without -t, libmount takes the type that libblkid finds on the device.
        Code.WRONG_FILE_SYSTEM,
        r"unknown filesystem type '(?P<type>[\w.-]{1,60})'",
        Rank.SPECIFIC,
        Origin(*_UTIL_LINUX, "libmount/src/context_mount.c, mnt_context_get_mount_excode"),
    )
    SUPER_BLOCK_UNREADABLE = (
        Code.DEVICE_UNREADABLE,
        r"can't read superblock on (?P<device>/dev/[\w./-]{0,255}[\w/-])",
        Rank.SPECIFIC,
        Origin(*_UTIL_LINUX, "libmount/src/context_mount.c, mnt_context_get_mount_excode"),
    )
    NOTHING_STAGED = (
        Code.NOTHING_STAGED,
        r"special device /\S{1,300}?/globalmount/\S{1,250} does not exist",
        Rank.SPECIFIC,
        Origin(*_UTIL_LINUX, "libmount/src/context_mount.c, mnt_context_get_mount_excode"),
        Origin("ceph-csi", "ceph-csi#2075", "the event of the pod"),
    )
    STAGING_PATH_FAILS = (
        # IsLikelyNotMountPoint returns the error of stat(2) on the staging path.
        Code.DEVICE_UNREADABLE,
        r"\bl?stat /\S{1,300}?/globalmount/\S{1,250}: input/output error",
        Rank.SPECIFIC,
        Origin(*_MOUNT_UTILS, "mount_linux.go, IsLikelyNotMountPoint"),
        Origin("ceph-csi", "ceph-csi#568", "the event of the pod"),
    )
    RESIZE_REFUSED = (
        # At the time of NodeStage, ceph-csi has mounted the file system.
        Code.EXPAND_FAILS,
        r"Device or resource busy while opening (?P<device>/dev/[\w./-]{0,255}[\w/-])",
        Rank.SPECIFIC,
        Origin(*_E2FSPROGS, "resize/main.c, main"),
        Origin("ceph-csi", "rook#16367", "the event of the pod"),
    )
    FORMAT_FAILED = (
        # The second text is from the mkfs that ceph-csi runs (recording 25-rollback-failing).
        Code.MKFS_FAILS,
        r"format of disk|desc = exit status (?P<status>\d{1,3})\s*$",
        Rank.SYMPTOM,
        Origin(*_MOUNT_UTILS, "mount_linux.go, formatAndMountSensitive"),
        Origin("ceph-csi", "recording 25-rollback-failing", "the event of the pod"),
    )

    # ceph-csi -------------------------------------------------------------------------------------

    IN_USE = (
        Code.STILL_BEING_USED,
        r"is still being used",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_attach.go, waitForrbdImage"),
        Origin(*_CSI, "internal/rbd/controllerserver.go, cleanupRBDImage"),
    )
    STILL_ATTACHED = (
        Code.DELETION_HELD,
        r"still attached to node",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, canDeleteVolume"),
    )
    UNDER_WAY = (
        Code.OPERATION_HANGS,
        r"an operation with the given Volume ID \S+ already exists",
        Rank.GENERAL,
        Origin(*_CSI, "internal/util/idlocker.go, VolumeOperationAlreadyExistsFmt"),
    )
    DEADLINE = (Code.OPERATION_HANGS, r"code = DeadlineExceeded", Rank.GENERAL, _STATUS)
    EXHAUSTED = (
        Code.VOLUME_LIMIT_REACHED,
        r"code = ResourceExhausted desc = (?P<why>.+)",
        Rank.SYMPTOM,
        _STATUS,
    )
    KUBELETS_DISK = (
        # The disk of the node: image-meta.json and vol_data.json are beside the staging path.
        Code.MOUNT_FAILS,
        (
            r"(?:failed to create dir|failed to save volume info data|failed to open volume data "
            r"file|failed to stash JSON image metadata|desc = (?:mkdir|open) /)[^\n]{0,900}?: "
            r"(?P<why>no space left on device|read-only file system)"
        ),
        Rank.SPECIFIC,
        Origin(*_KUBE, "pkg/volume/csi/csi_attacher.go, MountDevice; csi_mounter.go, SetUpAt"),
        Origin(*_KUBE, "pkg/volume/csi/csi_block.go, stageVolumeForBlock; csi_util.go"),
        Origin(*_CSI, "internal/rbd/rbd_util.go, stashRBDImageMetadata"),
        Origin(*_CSI, "internal/rbd/nodeserver.go, createStageMountPoint"),
    )
    CONFIGURATION_UNREADABLE = (
        Code.CLUSTER_NOT_CONFIGURED,
        (
            r"error fetching configuration for cluster ID \S{1,260}: "
            r"open (?P<path>/[^:\s]{1,250}): (?P<why>[^\n]{1,100})"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/csiconfig.go, readClusterInfo"),
    )
    CONFIGURATION_MALFORMED = (
        # The whole file follows.
        Code.CLUSTER_NOT_CONFIGURED,
        r"unmarshal failed \((?P<why>[^\n]{1,200}?)\), raw buffer response",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/csiconfig.go, readClusterInfo"),
        Origin(*_CSI, "internal/util/cluster_mapping.go, readClusterMappingInfo"),
    )
    NO_CLUSTER_ID = (
        # Of a PV with staticVolume: the attributes are written by hand.
        Code.CLUSTER_NOT_CONFIGURED,
        r"clusterID must be set",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/errors.go, ErrClusterIDNotSet; genVolFromVolumeOptions"),
    )
    NO_POOL_NAMED = (
        Code.POOL_MISSING,
        r"empty pool name or topologyConstrainedPools to provision volume",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, genVolFromVolumeOptions"),
    )
    UNKNOWN_MOUNTER = (
        # A value with a colon needs the prefix `krbd:` or `nbd:`.
        Code.MAP_OPTIONS_REFUSED,
        r'unknown mounter type: "(?P<mounter>[^"\n]{0,250})", please specify mounter type',
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_attach.go, parseMapOptions"),
    )
    NO_CLUSTER = (
        # Older versions print the cluster ID in parentheses.
        Code.CLUSTER_NOT_CONFIGURED,
        r'missing configuration for cluster ID [("]?(?P<cluster>[^\s")]*)',
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/csiconfig.go, readClusterInfo"),
        Origin(*_CSI_OF_OLD, "pkg/util and internal/util/csiconfig.go, readClusterInfo"),
    )
    NO_MONITORS = (
        # Rook writes the cluster before its first monitor runs (rook#15078).
        Code.CLUSTER_NOT_CONFIGURED,
        r"empty monitor list for cluster ID \((?P<cluster>[^\s)]{0,253})\)",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/csiconfig.go, Mons"),
    )
    NO_NETWORK_NAMESPACE = (
        # os.Stat repeats the path (ceph-csi#3113: a template that nothing filled in).
        Code.CLUSTER_NOT_CONFIGURED,
        r"failed to get stat for (?P<path>.{1,300}?) stat ",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/cephcmds.go, ExecuteCommandWithNSEnter"),
    )
    FLATTENING = (
        Code.IMAGE_BEING_FLATTENED,
        r"flatten in progress",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/errors.go, ErrFlattenInProgress"),
    )
    FLATTENED = (
        None,
        r"flatten is in progress for image (?P<image>[\w.-]{1,256})",
        None,
        Origin(*_CSI, "internal/rbd/rbd_util.go, rbdImage.flattenRbdImage"),
    )
    NOT_PRIMARY = (
        Code.IMAGE_NOT_PRIMARY,
        r"cannot map image \S+ it is not primary",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, rbdImage.isInUse"),
    )
    NEEDS_RBD_NBD = (
        # Here, ceph-csi reads the imageFeatures of the PV, not the features of the image.
        Code.IMAGE_FEATURES_UNSUPPORTED,
        r"feature (?P<feature>[\w-]+) requires rbd-nbd for mounter",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, validateImageFeatures"),
    )
    KRBD_LACKS_FEATURE = (
        Code.IMAGE_FEATURES_UNSUPPORTED,
        r"image feature set mismatch|unsupported krbd Feature",
        Rank.SPECIFIC,
        Origin(*_RBD, "src/tools/rbd/action/Kernel.cc"),
        Origin(*_CSI, "internal/rbd/nodeserver.go, populateRbdVol"),
    )
    POOL_GONE = (
        Code.POOL_MISSING,
        (
            r"(?:pool not found: )?pool "
            r"(?:ID ?\((?P<pool_id>\d{1,19})|\((?P<pool_name>[^\s)]{1,253}))\)"
            r" not found in Ceph cluster|pool not found"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/errors.go, ErrPoolNotFound"),
        Origin(*_CSI, "internal/util/cephcmds.go, GetPoolID and GetPoolName"),
        Origin(*_CSI_OF_OLD, "pkg/util and internal/util/cephcmds.go, GetPoolName"),
    )
    CREATION_FOUND_NOTHING = (
        # librbd answers ENOENT for a data pool or a RADOS namespace that does not exist
        # (ceph-csi#2781). For a clone, ceph-csi has opened the image of the source before
        # (genSnapFromSnapID, GenVolFromVolID).
        Code.PROVISIONING_FAILS,
        r"failed to create rbd (?:image|clone): RBD image not found",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, createImage and cloneRbdImageFromSnapshot"),
    )
    INVALID_FEATURE = (
        Code.PROVISIONING_FAILS,
        r"invalid feature\b(?: (?P<feature>[\w-]{1,60}))?|missing required parameter imageFeatures",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, validateImageFeatures"),
    )
    CREATION_REFUSED = (
        # librbd answers EINVAL for a pool of the data without overwrites, and for stripes that do
        # not fit the object size (librbd/image/CreateRequest.cc, ValidatePoolRequest.cc).
        Code.PROVISIONING_FAILS,
        r"failed to create rbd (?:image|clone): rbd: ret=-22\b",
        Rank.SYMPTOM,
        Origin(*_CSI, "internal/rbd/rbd_util.go, createImage and cloneRbdImageFromSnapshot"),
        _GO_CEPH,
    )
    CLASS_LACKS_PARAMETER = (
        Code.PROVISIONING_FAILS,
        (
            r"empty (?:(?P<cluster>cluster) ID|(?P<pool>pool) name)"
            r"(?: or topologyConstrainedPools)? to provision volume"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/controllerserver.go, validateVolumeReq"),
        Origin(*_CSI, "internal/rbd/rbd_util.go, genVolFromVolumeOptions"),
    )
    CLASS_PARAMETER_EMPTY = (
        Code.PROVISIONING_FAILS,
        (
            r"empty (?:(?P<pool>datapool) name|(?P<space>namespace) name"
            r"|volume name (?P<prefix>prefix)|(?P<features>imageFeatures)) "
            r"(?:to provision volume|parameter)"
        ),
        Rank.SPECIFIC,
        Origin(
            *_CSI, "internal/rbd/controllerserver.go, validateVolumeReq and parseVolCreateRequest"
        ),
    )
    FEATURE_NEEDS_ANOTHER = (
        Code.PROVISIONING_FAILS,
        r"feature (?P<feature>[\w-]{1,60}) requires (?P<needed>[\w-]{1,60}) to be set",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, validateImageFeatures"),
    )
    ENCRYPTION_PARAMETER = (
        # `encrypted` is parsed as a boolean of Go.
        Code.PROVISIONING_FAILS,
        (
            r'desc = strconv\.ParseBool: parsing "[^"\n]{0,80}": invalid syntax'
            r"|desc = invalid encryption type\b"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/encryption.go, ParseEncryptionOpts and initKMS"),
    )
    ENCRYPTION_OF_SOURCE_DIFFERS = (
        Code.PROVISIONING_FAILS,
        r"cannot create (?P<asked>(?:un)?encrypted) volume from (?P<has>(?:un)?encrypted) volume",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, isCompatibleEncryption"),
    )
    SOURCE_NOT_IN_JOURNAL = (
        # ENOENT of the source's omap. The number alone would be that of a pool.
        Code.PROVISIONING_FAILS,
        r"\bkey not found: (?:rados: ret=-2\b|no snap source in omap)",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/journal/omap.go, getOMapValues"),
        Origin(*_CSI, "internal/journal/voljournal.go, GetImageAttributes"),
    )
    NO_POOL_FOR_TOPOLOGY = (
        Code.PROVISIONING_FAILS,
        r"none of the (?:topology constrained|configured topology) pools\b",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/topology.go, FindPoolAndTopology and MatchPoolAndTopology"),
    )
    HANDLE_OF_NO_JOURNAL = (
        Code.DELETION_FAILS,
        r"error decoding volume ID \([^)]{0,200}\) \((?P<handle>[^)]{1,250})\)",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/rbd_util.go, genVolFromVolID"),
    )
    HANDLE_OF_ANOTHER_FORM = (
        # Without staticVolume "true", ceph-csi reads cluster, pool and image from the handle.
        Code.JOURNAL_ENTRY_MISSING,
        (
            r"(?:error generating volume \S{1,250}: invalid VolumeID: |desc = )"
            r"error decoding volume ID \([^)]{0,200}\) \((?P<handle>[^)]{1,250})\)"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/nodeserver.go, populateRbdVol; rbd_util.go, GenVolFromVolID"),
        Origin("ceph-csi", "ceph-csi#1802", "the event of the pod"),
    )
    DRIVER_PANICKED = (
        Code.MOUNT_FAILS,
        r"code = Internal desc = panic (?P<why>[^\n]{1,200})",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/csi-common/utils.go, panicHandler"),
    )
    NO_STAGE_SECRET = (
        # kubelet sends no secret for a PV without nodeStageSecretRef.
        Code.SECRET_MISSING,
        r"stage secrets cannot be nil or empty",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/validate.go, ValidateNodeStageVolumeRequest"),
        Origin(*_KUBE, "pkg/volume/csi/csi_attacher.go, MountDevice"),
    )
    SECRET_FIELD_MISSING = (
        Code.SECRET_MISSING,
        r"missing (?:ID|key) field '(?P<field>\w{1,60})' in secrets",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/credentials.go, newCredentialsFromSecret"),
    )
    VOLUME_IS_ENDING = (
        # RBD651 reports what holds the PV.
        None,
        r'PersistentVolume "[^"]{1,253}" is marked for deletion',
        None,
        Origin("external-attacher", "4.12.0", "pkg/controller/csi_handler.go"),
    )
    NO_STAGING_PATH = (
        Code.DRIVER_DOWN_WHERE_WANTED,
        (
            r"staging path (?P<root>/\S{1,250}?)/plugins/kubernetes\.io/csi/\S{1,250} does not "
            r"exist on"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/csi-common/utils.go; ceph-csi#4382"),
    )
    IMAGE_GONE = (
        Code.IMAGE_NOT_FOUND,
        r"image not found",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/errors.go, ErrImageNotFound"),
    )
    ENCRYPTION_STATUS = (
        Code.ENCRYPTION_UNFINISHED,
        r"unexpected encryption status",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/nodeserver.go, processEncryptedDevice"),
    )
    PASSPHRASE_NOT_IN_SECRET = (
        Code.ENCRYPTION_FAILS,
        (
            r"missing encryption passphrase in secrets"
            r'|missing "encryptionPassphrase" in storageclass secret'
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/kms/secretskms.go, newSecretsKMS and initSecretsMetadataKMS"),
    )
    TENANT_TOKEN_MISSING = (
        Code.PROVISIONING_FAILS,
        r"failed fetching token from (?P<namespace>[\w.-]{1,253})/(?P<name>[\w.-]{1,253}): ",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/kms/vault_tokens.go, initVaultTokensKMS"),
    )
    TENANT_ACCOUNT_MISSING = (
        Code.PROVISIONING_FAILS,
        r"failed to get ServiceAccount (?P<namespace>[\w.-]{1,253})/(?P<name>[\w.-]{1,253}): ",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/kms/vault_sa.go, getServiceAccount"),
    )
    PASSPHRASE_SECRET_GONE = (
        Code.ENCRYPTION_FAILS,
        r"failed to get Secret (?P<namespace>[\w.-]{1,253})/(?P<name>[\w.-]{1,253}): ",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/kms/secretskms.go, fetchEncryptionPassphrase"),
        Origin(*_CSI, "internal/kms/kmip.go, aws_metadata.go and others, getSecrets"),
    )
    VAULT_REFUSES = (
        Code.ENCRYPTION_FAILS,
        (
            r"Error making API request\.\s+URL: [^\n]{1,400}\s+Code: (?P<number>\d{3})\. Errors:"
            r"\s+\* (?P<why>[^\n]{1,200})"
        ),
        Rank.SPECIFIC,
        Origin("vault", "api 1.15", "api/response.go, ResponseError.Error"),
        Origin(*_CSI, "internal/kms/vault.go, connectVault"),
    )
    VAULT_UNREACHABLE = (
        # An answer of Vault is VAULT_REFUSES.
        Code.ENCRYPTION_FAILS,
        (
            r"failed connecting to Vault: (?:failed to get the authentication token: )?"
            r"(?P<why>[^\n]{1,300})"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/kms/vault.go, connectVault"),
        Origin("libopenstorage/secrets", "as vendored by ceph-csi 52fcb7b", "vault/vault.go, New"),
    )
    KEY_NOT_IN_VAULT = (
        Code.ENCRYPTION_FAILS,
        r"No Secret Data found for Secret ID",
        Rank.SPECIFIC,
        Origin(
            "libopenstorage/secrets",
            "as vendored by ceph-csi 52fcb7b",
            "secrets.go, ErrInvalidSecretId; vault/vault.go, GetSecret",
        ),
    )
    NO_KMS_ENTRY = (
        # NodeStage reads the ID of the KMS from the journal, and adds no prefix.
        Code.ENCRYPTION_FAILS,
        (
            r'could not get KMS configuration for "(?P<kms>[^"\n]{1,253})"'
            r" \(have (?P<have>\[[^\]\n]{0,400}\])"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/kms/kms.go, GetKMS"),
    )
    KEY_NOT_DECRYPTED = (
        Code.ENCRYPTION_FAILS,
        r"failed to (?:decrypt|unwrap the) DEK: (?P<why>[^\n]{1,200})",
        Rank.SPECIFIC,
        Origin(
            *_CSI, "internal/kms/secretskms.go, DecryptDEK; also aws_metadata.go, keyprotect.go"
        ),
    )
    PASSPHRASE_REFUSED = (
        # 2 is "no permission (bad passphrase)" (cryptsetup(8)). The passphrase is in no argument.
        Code.ENCRYPTION_FAILS,
        (
            r"\(exit status 2\) occurred while running cryptsetup args: \[luksOpen "
            r"(?P<device>/dev/[\w./-]{0,255})"
        ),
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/util/cryptsetup.go, LuksOpen and execCryptsetupCommand"),
    )
    ENCRYPTION_FAILED = (
        Code.ENCRYPTION_FAILS,
        (
            r"passphrase|encryption kms|encryption status|failed to encrypt volume"
            r"|can not fetch DEK|KMS provider|KMS configuration|failed to initialize Vault"
            r"|failed fetching token from|failed setting up token for"
        ),
        Rank.SYMPTOM,
        Origin(*_CSI, "internal/rbd/encryption.go, copyEncryptionConfig, initKMS, FetchDEK"),
        Origin(*_CSI, "internal/rbd/encryption.go, ensureEncryptionMetadataSet, encryptDevice"),
        Origin(*_CSI, "internal/kms/secretskms.go, newSecretsKMS"),
        Origin(*_CSI, "internal/kms/kms.go, GetKMS, getKMSConfiguration, getProvider, buildKMS"),
        Origin(*_CSI, "internal/kms/vault_tokens.go and vault_sa.go, the Initializers"),
    )
    MANY_WRITERS = (
        Code.SHARED_FILE_SYSTEM_REFUSED,
        r"RWX access mode request is only valid|multi node access modes are only supported",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/nodeserver.go, populateRbdVol"),
        Origin(*_CSI, "internal/rbd/controllerserver.go, parseVolCreateRequest"),
    )
    CLONE_LIMIT = (
        # The count includes snapshots and clones of the source (ceph-csi#4069).
        Code.PROVISIONING_FAILS,
        r"code = ResourceExhausted desc = rbd image (?P<image>\S+) has (?P<count>\d+) snapshots",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/controllerserver.go, flattenTemporaryClonedImages"),
    )

    NO_RBD_SUPPORT = (
        # The module itself answers that it is not ready; for a module that is off, the mgr answers.
        Code.PROVISIONING_FAILS,
        (
            r"rbd_support module is not (?:ready|running)|Module 'rbd_support' (?:is not enabled"
            r"|did not initialize in time|has experienced an error)"
        ),
        Rank.SPECIFIC,
        Origin(*_RBD, "src/pybind/mgr/rbd_support/module.py, with_latest_osdmap"),
        Origin(*_RBD, "the strings of ceph-mgr"),
    )
    MGR_REFUSED = (
        # rbd_support runs as the mgr's own user: the error is not about the user of ceph-csi.
        Code.DELETION_FAILS,
        r"\[errno 1\] RBD permission error \(error retrieving image from trash\)",
        Rank.SPECIFIC,
        Origin(*_RBD, "src/pybind/rbd/rbd.pyx, RBD.trash_get"),
        Origin("ceph-csi", "issues 4112, 4518", "the event VolumeFailedDelete"),
    )
    NO_VOLUME_IN_JOURNAL = (
        Code.JOURNAL_ENTRY_MISSING,
        r"code = NotFound desc = volume (?P<handle>[\w.-]{1,256}) not found",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/manager.go, rbdManager.GetVolumeByID"),
    )

    # external-provisioner -------------------------------------------------------------------------

    CLASS_SECRET_MISSING = (
        Code.PROVISIONING_FAILS,
        r"error getting secret (?P<name>\S+) in namespace (?P<namespace>\S+):",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getCredentials"),
    )
    CLASS_SECRET_HALF_NAMED = (
        Code.PROVISIONING_FAILS,
        r"failed to get name and namespace template from params",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getSecretReference"),
    )
    READ_ONLY_WITHOUT_SOURCE = (
        Code.PROVISIONING_FAILS,
        r"readOnly accessMode is supported only with content source",
        Rank.SPECIFIC,
        Origin(*_CSI, "internal/rbd/controllerserver.go, validateVolumeReq"),
    )
    NO_TOPOLOGY_FOUND = (
        Code.PROVISIONING_FAILS,
        r"no available topology found",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/topology.go, GenerateAccessibilityRequirements"),
    )
    OF_DATA_SOURCE = (
        # A prefix of the texts below: it takes the room of the words that matter.
        None,
        r"error getting handle for DataSource Type \S{1,253} by Name \S{1,253}: ",
        None,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, prepareProvision"),
    )
    MODE_OF_SOURCE_DIFFERS = (
        Code.PROVISIONING_FAILS,
        (
            r"requested volume \S{1,510} modifies the mode of the source volume"
            r"|source PVC and destination PVCs must have the same volume mode for cloning"
        ),
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getSnapshotSource and getPVCSource"),
    )
    SNAPSHOTS_NOT_SERVED = (
        Code.PROVISIONING_FAILS,
        (
            r"error getting snapshot (?P<snapshot>[\w.-]{1,253}) from api server: the server could "
            r"not find the requested resource"
        ),
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getSnapshotSource"),
    )
    SNAPSHOT_GONE = (
        Code.PROVISIONING_FAILS,
        r'volumesnapshots\.snapshot\.storage\.k8s\.io "(?P<snapshot>[\w.-]{1,253})" not found',
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "recording provisioning-snap"),
    )
    SNAPSHOT_NOT_BOUND = (
        Code.PROVISIONING_FAILS,
        r"snapshot (?P<snapshot>[\w.-]{1,253}) not bound",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getSnapshotSource"),
    )
    SNAPSHOT_NOT_READY = (
        Code.PROVISIONING_FAILS,
        r"snapshot (?P<snapshot>[\w.-]{1,253}) is not Ready",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getSnapshotSource"),
    )
    CLONE_SOURCE_GONE = (
        Code.PROVISIONING_FAILS,
        (
            r"error getting PVC (?P<source>[\w.-]{1,253}) \(namespace \S{1,80}\) from api server: "
            r"persistentvolumeclaim \S{1,260} not found"
        ),
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "recording provisioning-clone"),
    )
    CLONE_SOURCE_UNBOUND = (
        Code.PROVISIONING_FAILS,
        r"the PVC DataSource (?P<source>[\w.-]{1,253}) must have a status of Bound",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getPVCSource"),
    )
    CLONE_SOURCE_REFUSED = (
        # One text for six states of the source's PV; only the log has which.
        Code.PROVISIONING_FAILS,
        r"claim in dataSource not bound or invalid",
        Rank.SYMPTOM,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getPVCSource"),
    )
    SNAPSHOT_OF_ANOTHER_DRIVER = (
        Code.PROVISIONING_FAILS,
        (
            r"snapshotcontent (?P<content>[\w.-]{1,253}) for snapshot (?P<snapshot>[\w.-]{1,253}) "
            r"is not handled by CSI driver of StorageClass"
        ),
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, snapshotDifferentDriver"),
    )
    UNKNOWN_CLASS_KEY = (
        Code.PROVISIONING_FAILS,
        r'found unknown parameter key "(?P<key>[^"\n]{1,300})" with reserved namespace',
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, removePrefixedParameters"),
    )
    SOURCE_IS_LARGER = (
        Code.PROVISIONING_FAILS,
        (
            r"requested volume size (?P<asked>\d{1,20}) is less than the size (?P<least>\d{1,20}) "
            r"for the source snapshot (?P<source>[\w.-]{1,253})"
            r"|by Name (?P<clone>[\w.-]{1,253}): error, new PVC request must be greater than or "
            r"equal in size to the specified PVC data source, requested (?P<request>\d{1,20}) but "
            r"source is (?P<size>\d{1,20})"
            r"|(?:restore from snapshot|clone from volume) (?P<image>[\w./@-]{1,512}): volume size "
            r"(?P<wanted>\d{1,20}) is smaller than source volume size (?P<needed>\d{1,20})"
        ),
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, getSnapshotSource and getPVCSource"),
        Origin(*_CSI, "internal/rbd/rbd_util.go, isCompabitableClone"),
    )
    NO_TOPOLOGY = (
        Code.PROVISIONING_FAILS,
        r"no topology key found (?:on CSINode|for node) (?P<node>[a-z0-9][a-z0-9.-]*)",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/topology.go, GenerateAccessibilityRequirements"),
        Origin(*_PROVISIONER_OF_OLD, "pkg/controller/topology.go"),
    )
    NO_CSI_NODE = (
        Code.PROVISIONING_FAILS,
        (
            r"error getting CSINode|failed to get selected CSINode|"
            r'nodes "[^"]*" not found|csinodes?(?:\.storage\.k8s\.io)? "[^"]*" not found'
        ),
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/topology.go, topologyKeysLookup"),
        Origin(*_PROVISIONER_OF_OLD, "pkg/controller/topology.go, aggregateTopologies"),
        Origin("apimachinery", "0.36.3", "pkg/api/errors/errors.go, NewNotFound"),
    )
    SELECTOR = (
        Code.SELECTOR_NOT_SUPPORTED,
        r"claim Selector is not supported",
        Rank.SPECIFIC,
        Origin(*_PROVISIONER, "pkg/controller/controller.go, prepareProvision"),
    )

    # rbd, its library and the kernel, in the texts of ceph-csi; parse/faults.py reads the number --

    MODULE_OF_OTHER_KERNEL = (
        # The kmod of the driver's image cannot load this kernel's module (rook#1110).
        Code.KERNEL_MODULE_MISSING,
        r"could not insert 'rbd': Exec format error",
        Rank.SPECIFIC,
        Origin(*_KMOD, "the strings of modprobe and modinfo"),
    )
    NO_MODULE = (
        Code.KERNEL_MODULE_MISSING,
        (
            r"modprobe: (?:FATAL|ERROR)[^\n]{0,80}\brbd\b|failed to load rbd kernel module"
            r"|Module rbd not found"
        ),
        Rank.SPECIFIC,
        Origin(*_KMOD, "the strings of modprobe and modinfo"),
        Origin(*_RBD, "src/krbd.cc, map_image"),
    )
    NO_NBD_MODULE = (
        Code.KERNEL_MODULE_MISSING,
        r"modprobe: (?:FATAL|ERROR)[^\n]{0,80}\bnbd\b|failed to load nbd kernel module",
        Rank.SPECIFIC,
        Origin(*_KMOD, "the strings of modprobe"),
        Origin(*_RBD, "src/tools/rbd_nbd/rbd-nbd.cc, load_module"),
    )
    KEY_NOT_ADDED = (
        None,
        (
            r"failed to add secret '(?P<user>client\.[\w.-]{1,253})' to kernel"
            r"[\s\S]{0,400}?map failed: \((?P<number>\d{1,4})\)"
        ),
        Rank.SYMPTOM,
        Origin(*_RBD, "src/krbd.cc, build_map_buf"),
    )
    NO_ADDRESS = (
        # rbd prints this before it calls the kernel (https://tracker.ceph.com/issues/54128).
        Code.MONITOR_ADDRESS_MISSING,
        r"failed to get mon address \(possible ms_mode mismatch\)",
        Rank.SPECIFIC,
        Origin(*_RBD, "src/krbd.cc, build_map_buf"),
    )
    MAP_FAILED = (
        Code.MAP_FAILS,
        r"rbd: map failed",
        Rank.SYMPTOM,
        Origin(*_CSI, "internal/rbd/rbd_attach.go, createPath"),
        Origin(*_RBD, "src/tools/rbd/action/Kernel.cc"),
    )
    MAP_NUMBER = (
        None,
        r"map failed: \((?P<number>\d{1,4})\)",
        None,
        Origin(*_RBD, "src/tools/rbd/action/Kernel.cc"),
    )
    RBD_EXITED = (
        # nsenter runs rbd if a network namespace is configured for the cluster
        # (netNamespaceFilePath).
        None,
        r"\(exit status (?P<number>\d{1,3})\) occurred while running (?:rbd|nsenter)\b",
        None,
        Origin(*_CSI, "internal/util/cephcmds.go, ExecCommand and ExecuteCommandWithNSEnter"),
    )
    RBD_USER = (
        None,
        r"occurred while running (?:rbd|nsenter) args: \[[^\]]{0,400}?--id (?P<user>[\w.-]{1,100})",
        None,
        Origin(*_CSI, "internal/util/cephcmds.go, ExecCommand and ExecuteCommandWithNSEnter"),
    )
    CONNECT_NUMBER = (
        None,
        r"connecting failed: rados: ret=-(?P<number>\d{1,4})",
        None,
        Origin(*_CSI, "internal/util/conn_pool.go, ConnPool.Get"),
        _GO_CEPH,
    )
    IMAGE_NUMBER = (None, r"\brbd: ret=-(?P<number>\d{1,4})", None, _GO_CEPH)
    POOL_NUMBER = (None, r"\brados: ret=-(?P<number>\d{1,4})", None, _GO_CEPH)
    TIMED_OUT = (
        Code.NO_MONITOR_SESSION,
        r"(?:\(110\)|ret=-110,) Connection timed out",
        Rank.SYMPTOM,
        _STRERROR,
    )
    DENIED = (Code.PROVISIONING_FAILS, r"Permission denied", Rank.SYMPTOM, _STRERROR)

    # The logs of a node, quoted with their meaning ------------------------------------------------

    UNMAP_BUSY = (
        None,
        r"unmap failed: \(16\)",
        None,
        Origin(*_RBD, "src/tools/rbd/action/Kernel.cc"),
    )
    UMOUNT_BUSY = (
        None,
        r"target is busy",
        None,
        Origin(*_UTIL_LINUX, "libmount/src/context_umount.c, mnt_context_get_umount_excode"),
    )
    WATCH_ENDED = (
        None,
        r"watch error: -107",
        None,
        Origin(*_LINUX, "drivers/block/rbd.c, rbd_watch_errcb"),
        Origin("linux", "recording tests/fixtures/logs/blocklisted.dmesg", "drivers/block/rbd.c"),
    )
    KERNEL_BLOCKLISTED = (
        None,
        r" -108",
        None,
        Origin(*_LINUX, "drivers/block/rbd.c, rbd_reregister_watch, and further messages"),
        Origin("linux", "recording tests/fixtures/logs/blocklisted.dmesg", "drivers/block/rbd.c"),
    )
    MAP_BLOCKLISTED = (
        None,
        r"\(108\)",
        None,
        Origin(*_RBD, "src/tools/rbd/action/Kernel.cc"),
    )
    BLOCKLIST_REFUSED = (
        # Only the log of the kernel contains this; no event does.
        None,
        r"failed to blocklist \w+: -|(?:blocklist|blacklist) of \w+ failed: -",
        None,
        Origin(*_LINUX, "drivers/block/rbd.c, rbd_try_lock"),
        Origin("linux", "before 6.5 (the patch)", "drivers/block/rbd.c, rbd_try_lock"),
    )
    DUPLICATE_UUID = (
        None,
        r"XFS \(\S{1,64}\): Filesystem has duplicate UUID",
        None,
        Origin("linux", "6.12, 7.2", "fs/xfs/xfs_mount.c, xfs_uuid_mount"),
    )
    BAD_GEOMETRY = (
        # ext4 and XFS: the file system is larger than its device.
        None,
        (
            r"EXT4-fs \(\S{1,64}\): bad geometry: block count"
            r"|XFS \(\S{1,64}\): last sector read failed"
        ),
        None,
        Origin("linux", "6.12, 7.2", "fs/ext4/super.c; fs/xfs/xfs_mount.c, xfs_check_sizes"),
    )
    RECOVERY_NEEDS_WRITES = (
        # The journal of ext4, or the log of XFS, on a device that is mapped read-only.
        None,
        (
            r"EXT4-fs \(\S{1,64}\): write access unavailable, cannot proceed"
            r"|XFS \(\S{1,64}\): recovery required on read-only device"
        ),
        None,
        Origin("linux", "6.12", "fs/ext4/super.c, ext4_load_journal; fs/xfs/xfs_log.c"),
    )
    UNKNOWN_FEATURE = (
        None,
        (
            r"XFS \(\S{1,64}\): Superblock has unknown \S{1,20}(?: compatible)? features"
            r"|EXT4-fs \(\S{1,64}\): [Cc]ouldn't mount (?:RDWR )?because of unsupported optional"
        ),
        None,
        Origin(
            "linux",
            "5.10, 6.1, 6.18",
            "fs/xfs/libxfs/xfs_sb.c, xfs_validate_sb_common; fs/ext4/super.c, ext4_feature_set_ok",
        ),
    )
    FILE_SYSTEM_STOPPED = (
        # ext4 logs this in each version; its super block shows `ro` in 5.10 only.
        None,
        (
            r"EXT4-fs \(\S{1,64}\): Remounting filesystem read-only"
            r"|(?P<xfs>XFS) \(\S{1,64}\): Filesystem has been shut down"
        ),
        None,
        Origin(
            *_LINUX, "fs/ext4/super.c, ext4_handle_error; fs/xfs/xfs_fsops.c, xfs_do_force_shutdown"
        ),
    )
    WRITE_REFUSED = (
        # EROFS from an OSD or from the lock: the image is not primary, or a snapshot.
        None,
        r"\Arbd: rbd\d{1,6}: write at objno .{1,80} result -30",
        None,
        Origin(*_LINUX, "drivers/block/rbd.c, rbd_obj_handle_request and rbd_img_handle_request"),
    )
    SECRET_TOO_BIG = (
        # The kernel logs this for a key that it cannot use; the message names no volume.
        None,
        r"\Alibceph: secret too big",
        None,
        Origin("linux", "6.1, 6.12, 7.2", "net/ceph/crypto.c, ceph_crypto_key_decode"),
    )
    FEATURE_SET_MISMATCH = (
        # The monitors refuse a kernel that is too old (rook#3751); the map ends with 110.
        None,
        (
            r"\Alibceph: \S{1,20} \S{1,80} (?:feature set mismatch, my [0-9a-f]+ < server's "
            r"[0-9a-f]+, missing [0-9a-f]+|missing required protocol features)"
        ),
        None,
        Origin("linux", "6.12", "net/ceph/messenger_v1.c, process_connect"),
    )
    OTHER_CLUSTER_ANSWERS = (
        None,
        r"\Alibceph: bad fsid, had (?P<had>\S{1,40}) got \S{1,40}",
        None,
        Origin("linux", "6.12", "net/ceph/ceph_common.c, ceph_check_fsid"),
    )
    CONNECTION_LOST = (
        None,
        r"\Alibceph: (?P<peer>(?:mon|osd)\d{1,9}) \S{1,80} (?:socket closed|socket error|connect)",
        None,
        Origin("linux", "6.12", "net/ceph/messenger.c, con_fault"),
    )
    CONNECT_REFUSED_HERE = (
        # The node's own kernel refuses to send: 101 no route, 113 and 13 a route of type
        # unreachable or prohibit, 22 blackhole. `connect error` of the monitor or OSD follows.
        None,
        (
            r"\Alibceph: connect (?:\([12]\))?(?P<peer>[0-9a-f.:\[\]]{3,64}) error "
            r"-(?P<number>101|113|22|13)\b"
        ),
        None,
        Origin("linux", "5.10, 6.12", "net/ceph/messenger.c, ceph_tcp_connect"),
    )
    FORMER_PROTOCOL_TO_MSGR2 = (
        # The kernel sends the banner of v1 to the port of msgr2, whose monitor closes (rook#8464).
        None,
        (
            r"\Alibceph: mon\d{1,9} (?:\(1\))?(?P<peer>\S{1,64}:3300) socket closed "
            r"\(con state (?:V1_BANNER|CONNECTING)\)"
        ),
        None,
        Origin("linux", "5.4, 6.12", "net/ceph/messenger.c, con_sock_closed and con_fault"),
    )
    UNKNOWN_MAP_OPTION = (
        # libceph up to 5.5, rbd later.
        None,
        r"\A(?:libceph: bad option at|rbd: Unknown parameter) '(?P<option>[^']{0,200})'",
        None,
        Origin("linux", "5.4", "net/ceph/ceph_common.c, ceph_parse_options"),
        Origin("linux", "5.10", "drivers/block/rbd.c, rbd_parse_options"),
    )
    TOO_MANY_PARENTS = (
        # At level info: the text, not the level, selects it.
        None,
        r"\Arbd: .{0,200}parent chain is too long \(\d{1,9}\)",
        None,
        Origin("linux", "6.12", "drivers/block/rbd.c, rbd_dev_probe_parent"),
    )
    POOL_FULL_FOR_CLIENT = (
        None,
        r"\Alibceph: pool (?P<pool_id>\d{1,18}) is full or reached quota",
        None,
        Origin("linux", "6.12, 7.2", "net/ceph/osd_client.c, __submit_request"),
    )
    FILE_SYSTEM_CHANGED = (
        # ext4 limits the rate of the first over all devices (ext4_mount_msg_ratelimit).
        None,
        (
            r"EXT4-fs \(\S{1,64}\): (?:mounted|unmounting) filesystem"
            r"|XFS \(\S{1,64}\): (?:Mounting V\d|Unmounting) Filesystem"
        ),
        None,
        Origin("linux", "recording tests/fixtures/logs/pinned.dmesg", "fs/ext4/super.c"),
        Origin(*_LINUX, "fs/xfs/xfs_log.c, xfs_log_mount; fs/xfs/xfs_super.c, xfs_fs_put_super"),
    )
    TASK_HUNG = (
        None,
        r"blocked for more than",
        None,
        Origin("linux", "recording tests/fixtures/logs/hung.dmesg", "kernel/hung_task.c"),
    )

    # Why a controller cannot create its pods ------------------------------------------------------

    POD_WITHOUT_ACCOUNT = (
        None,
        (
            r"error looking up service account (?P<account>[\w.-]{1,253}/[\w.-]{1,253}): "
            r'serviceaccounts? "[^"]{1,253}" not found'
        ),
        None,
        Origin(*_KUBE, "plugin/pkg/admission/serviceaccount/admission.go, Validate"),
    )
    POD_OVER_QUOTA = (
        None,
        r"exceeded quota: (?P<quota>[\w.-]{1,253}), requested: ",
        None,
        Origin(*_KUBE, _QUOTA + ", CheckRequest"),
    )
    POD_OUTSIDE_QUOTA = (
        None,
        (
            r"insufficient quota to match these scopes|status unknown for quota: "
            r"|failed quota: "
        ),
        None,
        Origin(*_KUBE, _QUOTA + ", CheckRequest"),
    )
    POD_INSECURE = (
        None,
        r'violates PodSecurity "(?P<level>[\w.:-]{1,64})"',
        None,
        Origin("pod-security-admission", "0.36.3", "admission/admission.go, Admission.EvaluatePod"),
    )
    POD_WITHOUT_CONSTRAINT = (
        None,
        r"unable to validate against any security context constraint",
        None,
        Origin(
            "apiserver-library-go",
            "rook#11347 (the event)",
            "pkg/securitycontextconstraints/sccadmission/admission.go",
        ),
    )
    POD_WITHOUT_PRIORITY = (
        None,
        r"no PriorityClass with name (?P<priority>[\w.-]{1,253}) was found",
        None,
        Origin(*_KUBE, "plugin/pkg/admission/priority/admission.go, getPriority"),
    )
    WEBHOOK_FAILS = (
        None,
        r'failed calling webhook "(?P<webhook>[\w.-]{1,253})"',
        None,
        Origin("apiserver", "0.36.3", "pkg/util/webhook/error.go, ErrCallingWebhook.Error"),
    )
    WEBHOOK_REFUSES = (
        None,
        r'admission webhook "(?P<webhook>[\w.-]{1,253})" denied the request',
        None,
        Origin(
            "apiserver",
            "0.36.3",
            "pkg/admission/plugin/webhook/errors/statuserror.go, ToStatusErr",
        ),
    )
