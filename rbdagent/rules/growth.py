"""RBD775 to RBD779, RBD782: a claim or an image that was enlarged, and the step that is behind.

The sizes decide, in the order of the steps: claim, PV, image, device, file system. An error is in
an event of the claim (external-resizer) or of the pod alone (kubelet), which runs, and in a
condition of the claim (RecoverVolumeExpansionFailure, recordings in tests/fixtures/claims).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl
from rbdagent.correlate.holders import runs
from rbdagent.correlate.image_identity import are_watchers_observed
from rbdagent.correlate.pv_matching import size_text
from rbdagent.model import (
    CollectScope,
    CsiSource,
    Finding,
    LifecycleStep,
    Recovery,
    Severity,
    Subject,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.recognised import Recognised
from rbdagent.parse.volume import is_made_by_hand, is_static
from rbdagent.rules.context import (
    Rule,
    RuleContext,
    device_log,
    finding,
    message_of,
    quoted,
)
from rbdagent.rules.driver_workloads import controller_outage, not_observed_lines, outage_finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.facts import is_non_primary
from rbdagent.rules.growth_on_node import (
    ALLOW_GROWTH,
    GROWTH_DENIED,
    chains,
    ends_before,
    mebibytes,
    shows_growth,
    sizes_of,
)
from rbdagent.rules.pod_events import is_of_pod, knows_every_user
from rbdagent.rules.pv_controller import describe_claim, events_of_claim, newest_events, since
from rbdagent.verdicts.timing import RETRY_S, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import (
        ClaimCondition,
        Command,
        Holder,
        KubeEvent,
        PersistentVolume,
        PersistentVolumeClaim,
        Pod,
    )

_RESIZER: Final = "external-resizer"
_RETRIES_S: Final = 300.0
"""Longest interval between two retries of external-resizer 2.2.0 (--retry-interval-max)."""
_FAILED: Final = "VolumeResizeFailed"
_ENDED: Final = "VolumeResizeSuccessful"
_GROWN: Final = "FileSystemResizeSuccessful"
_BEGUN: Final = "ExternalExpanding"
_GROWS_NOW: Final = "NodeResizeInProgress"
_SYNCED: Final = timedelta(minutes=2)
"""kubelet grows a file system when it next syncs the pod: 50 s were measured (recording
31-grow-node-pending-pod-runs)."""
_ALIVE: Final = timedelta(minutes=15)
_UNANSWERED: Final = timedelta(minutes=1)
"""Without a resizer, nothing follows ExternalExpanding; a resizer follows within a second (measured
with external-resizer 2.2.0)."""

ENTRIES: Final = (
    Entry(
        Code.NO_RESIZER,
        Severity.WARNING,
        "The claim was enlarged, and no external-resizer acts on it.",
        remedy="Run csi-resizer beside the driver's controller (with ceph-csi: in the Deployment "
        "csi-rbdplugin-provisioner). It then finishes the growth. A growth cannot be cancelled: "
        "the API refuses the former size.",
        recovery=Recovery(actor=_RESIZER, condition="it runs for this driver"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.GROWTH_REFUSED,
        Severity.WARNING,
        "The claim was enlarged, and the driver does not enlarge the image.",
        remedy="Fix what the event names. A growth cannot be cancelled: the API refuses the former "
        "size, and accepts a request just above it.",
        recovery=Recovery(
            actor=_RESIZER, condition="the cause in the event is fixed", within_s=_RETRIES_S
        ),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.FILE_SYSTEM_NOT_GROWN,
        Severity.WARNING,
        "The image has grown, and the file system on the node has not.",
        remedy="Read the error of the tool in the event, and the kernel log on that node. It is "
        "no damage. Most of these errors end with an unmount: delete the pod, and "
        "kubelet checks and grows the file system at the next mount.",
        recovery=Recovery(
            actor="kubelet", condition="the tool can grow the file system", within_s=RETRY_S
        ),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.FILE_SYSTEM_GROWTH_WAITS,
        Severity.INFO,
        "The image has grown, and the file system grows when a pod uses it read-write.",
        remedy="Start a pod that uses the claim read-write. A pod that runs already does not have "
        "to restart: kubelet grows its file system within about a minute.",
        recovery=Recovery(actor="kubelet", condition="a pod uses the claim read-write"),
        step=LifecycleStep.USE,
    ),
    # rook#4062; recording 31-grow-device-larger-than-file-system.
    Entry(
        Code.IMAGE_LARGER_THAN_VOLUME,
        Severity.WARNING,
        "The image is larger than its PV and its claim: it was enlarged past Kubernetes.",
        remedy="Request the size of the image in the claim (in the object that makes the claim, if "
        "a controller does): the driver and kubelet then grow the rest. Never shrink the image: "
        "the end of the file system would be lost.",
        recovery=Recovery(note="no component compares the image with its PV"),
        step=LifecycleStep.USE,
    ),
    # MountVolume.NodeExpandVolume of kubelet refuses a read-only file system ("requested read-only
    # file system"), after NodeStageVolume of ceph-csi has grown it.
    Entry(
        Code.GROWTH_NOT_CONFIRMED,
        Severity.INFO,
        "Image and file system have grown, and only the status of the claim has not.",
        remedy="Nothing is missing for the pods. Start a pod that uses the claim read-write: "
        "kubelet then sets the status. Do not enlarge the claim again.",
        recovery=Recovery(actor="kubelet", condition="a pod uses the claim read-write"),
        step=LifecycleStep.USE,
    ),
)


def growth(context: RuleContext) -> Iterator[Finding]:
    """Report RBD775 to RBD779, RBD782: the first step of a growth that is behind."""
    claim, volume = context.volume.claim, context.volume.persistent_volume
    if claim is None or volume is None or claim.phase != "Bound":
        return
    asked, has = claim.requested_bytes, volume.capacity_bytes
    if not asked or not has:
        return
    if asked > has:
        yield from _behind_controller(context, claim, volume)
        return
    behind = list(_behind_node(context, claim))
    yield from behind or _image_ahead(context, claim, volume)


_ROUNDED: Final = 64 << 20
"""More than a driver rounds a size up by, and than the header of LUKS takes (16 MiB)."""


def _image_ahead(
    context: RuleContext, claim: PersistentVolumeClaim, volume: PersistentVolume
) -> Iterator[Finding]:
    """Report RBD779: an image that was enlarged past Kubernetes."""
    view, has = context.volume.image_view, volume.capacity_bytes or 0
    if view is None or view.size_bytes is None or volume.provisioner is None:
        # The capacity of a static PV is whatever its author wrote.
        return
    if view.primary is False or context.volume.other_volumes:
        # The primary cluster may have enlarged it, or the claim of another PV.
        return
    is_settled = claim.capacity_bytes in (None, has) and not claim.growth_conditions
    if not is_settled or claim.requested_bytes != has or view.size_bytes - has <= _ROUNDED:
        return
    yield finding(
        Code.IMAGE_LARGER_THAN_VOLUME,
        Subject.of_claim(claim.ref),
        stated(
            "The image of claim {claim} has {size}, and its PV and claim have {other_size}: it was "
            "enlarged past Kubernetes{} Request the size of the image in the claim: the rest then "
            "grows.",
            _beside_image(context, claim),
            claim=claim.ref,
            size=size_text(view.size_bytes),
            other_size=size_text(has),
        ),
        evidence=(
            f"image {view.spec} has {view.size_bytes} bytes, {volume.name} has {has}",
            *chains(context, claim),
        ),
        commands=(describe_claim(claim),),
    )


def _beside_image(context: RuleContext, claim: PersistentVolumeClaim) -> Words:
    """Return whether the file system has grown with its image, as far as that is known."""
    if claim.volume_mode == "Block":
        return "."
    found = sizes_of(context)
    if not found:
        return ", and its file system was most likely not."
    if not any(ends_before(size, size.device_bytes) for size in found):
        return "."
    return stated(
        ", and its file system was most likely not: it has room for {size}.",
        size=mebibytes(min(size.total_bytes for size in found)),
    )


def _behind_controller(
    context: RuleContext, claim: PersistentVolumeClaim, volume: PersistentVolume
) -> Iterator[Finding]:
    events = events_of_claim(context, claim)
    of_resizer = [event for event in events if event.reporter.startswith(_RESIZER)]
    failed = _failure_of_this_growth(events)
    sizes = (
        f"claim {claim.ref} requests {claim.requested_bytes} bytes, {volume.name} has "
        f"{volume.capacity_bytes}"
    )
    begun = next((event for event in reversed(events) if event.reason == _BEGUN), None)
    asked_at = claim.requested_at if begun is None else begun.first_seen or begun.last_seen
    condition = _condition(claim, "ControllerResizeError")
    if condition is not None and (condition.changed_at or "") < (asked_at or ""):
        # Of an earlier growth.
        condition = None
    if failed is not None:
        evidence = (sizes, quoted(failed))
        yield _refused(context, claim, volume, _error(failed), evidence, asked_at)
        return
    if condition is not None:
        # The event is kept for an hour.
        evidence = (sizes, _shown(claim, condition))
        yield _refused(context, claim, volume, _error_of(condition), evidence, asked_at)
        return
    if _is_alive(context, claim, of_resizer) or not context.kube.coverage.events:
        return
    waited = since(asked_at, context)
    if waited is None or waited < _UNANSWERED:
        return
    if begun is None and (asked_at or "") <= (claim.created_at or ""):
        # A claim may be bound to a smaller PV by name: it was never enlarged.
        return
    if is_made_by_hand(volume):
        yield _static(context, claim, volume, (sizes, *newest_events(context, claim)))
        return
    shown = (
        sizes,
        *((quoted(begun),) if begun is not None else ()),
        *(quoted(event) for event in of_resizer[-1:]),
        *(() if of_resizer else ("no event of external-resizer on the claim",)),
    )
    yield _no_resizer(context, claim, volume, age_text(waited), shown)


def _no_resizer(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    ago: str,
    evidence: tuple[str, ...],
) -> Finding:
    """Return RBD775, with what the Deployment of the driver shows."""
    driver = volume.source.driver if isinstance(volume.source, CsiSource) else ""
    outage = controller_outage(context, driver, "resizer", _RESIZER)
    if outage is not None:
        then = stated(
            "Claim {claim} was enlarged {age} ago, and does not grow.", claim=claim.ref, age=ago
        )
        return outage_finding(Code.NO_RESIZER, outage, then, evidence=evidence)
    return finding(
        Code.NO_RESIZER,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} was enlarged {age} ago, and no external-resizer for its driver acts on "
            "it.",
            claim=claim.ref,
            age=ago,
        ),
        evidence=(*evidence, *not_observed_lines(context, of_nodes=False)),
        commands=(kubectl("get deployments -A -o wide"), describe_claim(claim)),
    )


def _is_alive(
    context: RuleContext, claim: PersistentVolumeClaim, of_resizer: list[KubeEvent]
) -> bool:
    """Return whether external-resizer has done something about the claim recently.

    It sets the condition Resizing again with each retry, at least each five minutes.
    """
    resizing = _condition(claim, "Resizing")
    stamps = [event.last_seen for event in of_resizer]
    stamps += [resizing.changed_at] if resizing is not None else []
    ages = [since(stamp, context) for stamp in stamps]
    return any(passed is None or passed < _ALIVE for passed in ages)


def _refused(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    error: str,
    evidence: tuple[str, ...],
    asked_at: str | None,
) -> Finding:
    if is_made_by_hand(volume) or Recognised.HANDLE_OF_NO_JOURNAL.is_in(error):
        # Whatever the error is: ceph-csi up to 52fcb7b panics instead of a refusal, because it
        # destroys a volume that it has not (genVolFromVolIDWithMigration, internal/rbd/rbd_util.go;
        # external-resizer#316).
        return _static(context, claim, volume, evidence)
    missing = Recognised.CLASS_SECRET_MISSING.named_in(error)
    why, remedy, recovery = stated("{error}", error=foreign(error)), "", None
    commands: tuple[Command, ...] = (describe_claim(claim),)
    if Recognised.EXPAND_SECRET_EMPTY.is_in(error):
        why, remedy = stated("{volume} names no secret for it.", volume=volume.name), _NAME_IT
        recovery = Recovery(note="no component adds the secret to a PV")
    elif missing is not None:
        secret = f"{missing['namespace']}/{missing['name']}"
        why = stated(
            "the secret {secret} that {volume} names does not exist.",
            secret=foreign_name(secret),
            volume=volume.name,
        )
        remedy = _MAKE_IT
        show = kubectl("get secret", missing["name"], namespace=missing["namespace"])
        commands = (show, *commands)
    # The condition Resizing is no age: each retry of external-resizer sets it again.
    waited = since(asked_at, context)
    ago = "" if waited is None else stated(" {age} ago", age=age_text(waited))
    return finding(
        Code.GROWTH_REFUSED,
        Subject.of_claim(claim.ref),
        stated("Claim {claim} was enlarged{}, and the image is not: {}", ago, why, claim=claim.ref),
        evidence=evidence,
        remedy=remedy,
        commands=commands,
        recovery=recovery,
    )


_MAKE_IT: Final = (
    "Create a secret of that name with userID and userKey of a Ceph user with `profile rbd`: the "
    "PV's controllerExpandSecretRef cannot be changed."
)


# --------------------------------------------------------------------------------------------------
# A static volume
# --------------------------------------------------------------------------------------------------


def _static(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    evidence: tuple[str, ...],
) -> Finding:
    """Return RBD776 for a volume that an administrator has to grow, with the steps that are left.

    The steps are printed as commands only if each of them is known: the file system of each node
    that has the image mapped.
    """
    asked = claim.requested_bytes or 0
    view, behind = context.volume.image_view, stated("image")
    if view is not None and (view.size_bytes or 0) >= asked:
        behind = stated("PV {volume}", volume=volume.name)
    grown = _growth_on_nodes(context, claim)
    commands: tuple[Command, ...] = (describe_claim(claim),)
    if grown is not None:
        commands = (*_growth_of_image(context, asked), *grown, _growth_of_volume(volume, asked))
    return finding(
        Code.GROWTH_REFUSED,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} was enlarged, and the {} is not: {volume} is a static volume ({}), and "
            "ceph-csi grows only images that it has made.",
            behind,
            _sign_of_static(volume),
            claim=claim.ref,
            volume=volume.name,
        ),
        evidence=evidence,
        remedy=_BY_HAND,
        commands=commands,
        recovery=Recovery(note="ceph-csi never grows a static volume"),
    )


# docs/static-pvc.md of ceph-csi, "Resize RBD image"; resizeNodeStagePath in
# internal/rbd/nodeserver.go@52fcb7b grows device and file system.
_BY_HAND: Final = (
    "Grow the image with `rbd resize`, then the file system on each node that has it mounted "
    "(`resize2fs` of the device for ext4, `xfs_growfs` of the mount point for xfs), then "
    "spec.capacity of the PV. In place of the second step, all pods of the volume may end: "
    "ceph-csi grows the file system, and the LUKS device of an encrypted volume, when a pod next "
    "starts on a node that has not staged the volume. external-resizer may go on reporting the "
    "error."
)


def _sign_of_static(volume: PersistentVolume) -> Words:
    source = volume.source
    if not isinstance(source, CsiSource) or is_static(source):
        return "staticVolume in its volumeAttributes"
    return stated(
        "its handle {handle} is not of the form of ceph-csi",
        handle=foreign_name(source.volume_handle),
    )


_MIB: Final = 1 << 20


def _growth_of_image(context: RuleContext, asked: int) -> tuple[Command, ...]:
    """Return the command that grows the image; rbd refuses to shrink one without a flag."""
    view, image = context.volume.image_view, context.volume.image
    if image is None or (view is not None and (view.size_bytes or 0) >= asked):
        return ()
    return (command("rbd resize", str(image.spec), options=(f"--size={-(-asked // _MIB)}M",)),)


def _growth_of_volume(volume: PersistentVolume, asked: int) -> Command:
    patch = f'{{"spec":{{"capacity":{{"storage":"{size_text(asked)}"}}}}}}'
    return kubectl("patch pv", volume.name, options=("--type", "merge", "-p", patch))


def _growth_on_nodes(
    context: RuleContext, claim: PersistentVolumeClaim
) -> tuple[Command, ...] | None:
    """Return what grows the file system where the image is mapped; None if that is not known.

    On a node that stages the volume later, ceph-csi grows it.
    """
    is_observed = are_watchers_observed(context.volume.image_view) and knows_every_user(context)
    if not is_observed or is_non_primary(context, {}):
        return None
    if claim.volume_mode == "Block":
        return ()
    grown = [_growth_of_file_system(verdict.holder) for verdict in context.holder_verdicts]
    known = tuple(found for found in grown if found is not None)
    return known if len(known) == len(grown) else None


def _growth_of_file_system(holder: Holder) -> Command | None:
    """Return the command for a device whose mounts on its node were observed."""
    mapping = holder.mapping
    if mapping is None or mapping.holders or holder.other_image is not None:
        # Something is on the device, a LUKS device for example.
        return None
    for mount in observed_of(mapping.mounts):
        if mount.read_only or not mount.namespace.is_host:
            continue
        if mount.fs_type == "ext4":
            return command("resize2fs", mapping.device, node=holder.node)
        if mount.fs_type == "xfs":
            return command("xfs_growfs", mount.path, node=holder.node)
    return None


def _condition(claim: PersistentVolumeClaim, kind: str) -> ClaimCondition | None:
    found = (condition for condition in claim.growth_conditions if condition.type == kind)
    return next(found, None)


def _error_of(condition: ClaimCondition) -> str:
    found = Recognised.GROWTH_CONDITION.named_in(condition.message)
    return condition.message if found is None else found["error"]


def _shown(claim: PersistentVolumeClaim, condition: ClaimCondition) -> str:
    return f"claim {claim.ref}, condition {condition.type}: {foreign(condition.message)}"


_NAME_IT: Final = (
    "Add controllerExpandSecretRef to the PV (`kubectl edit pv`), and correct the class for new "
    "volumes: the PV was created before its class named a secret for the growth "
    "(csi.storage.k8s.io/controller-expand-secret-name and -namespace)."
)


def _failure_of_this_growth(events: tuple[KubeEvent, ...]) -> KubeEvent | None:
    """Return the newest failure of external-resizer, unless a later growth has begun."""
    for event in reversed(events):
        if event.reason in {_BEGUN, _ENDED}:
            return None
        if event.reason == _FAILED and event.reporter.startswith(_RESIZER):
            return event
    return None


def _error(event: KubeEvent) -> str:
    found = Recognised.RESIZE_FAILED.named_in(message_of(event))
    return message_of(event) if found is None else found["error"]


def _behind_node(context: RuleContext, claim: PersistentVolumeClaim) -> Iterator[Finding]:
    if claim.volume_mode == "Block":
        # Kubernetes grows nothing inside; only the status of the claim waits for a pod.
        if not context.volume.pods:
            yield from _behind_by_its_status(context, claim)
        return
    names = {(pod.ref.namespace, pod.ref.name): pod for pod in context.volume.pods}
    failed = [
        event
        for event in context.volume.events
        if event.kind == "Pod"
        and event.reason == _FAILED
        and Recognised.EXPANSION_FAILED.is_in(event.message)
        and _is_of(event, names.get((event.subject.namespace, event.subject.name)), context)
    ]
    if not failed or _has_grown_since(failed[-1], context):
        yield from _behind_by_its_status(context, claim)
        return
    event = failed[-1]
    pod = names[event.subject.namespace, event.subject.name]
    if pod in context.volume.waiting_pods:
        # RBD761 reports the event of a pod that cannot start.
        return
    text = Recognised.FAILED_FOR_VOLUME.left_out_of(message_of(event))
    yield _not_grown(context, claim, pod, text, quoted(event))


def _behind_by_its_status(context: RuleContext, claim: PersistentVolumeClaim) -> Iterator[Finding]:
    """Report what the status of a claim shows without an event."""
    has, pending = claim.capacity_bytes, _condition(claim, "FileSystemResizePending")
    if has is None or has >= (claim.requested_bytes or 0) or not knows_every_user(context):
        return
    running = [pod for pod in context.volume.pods if runs(pod)]
    if any(pod.deleting_since is not None for pod in running):
        return
    failed = _condition(claim, "NodeResizeError")
    if failed is not None and running:
        text = _error_of(failed)
        yield _not_grown(context, claim, running[0], text, _shown(claim, failed))
    elif pending is not None and claim.growth != _GROWS_NOW:
        yield from _pending(context, claim, pending, running)


def _pending(
    context: RuleContext, claim: PersistentVolumeClaim, pending: ClaimCondition, running: list[Pod]
) -> Iterator[Finding]:
    is_block = claim.volume_mode == "Block"
    what, does = ("its status", "sets that") if is_block else ("its file system", "grows it")
    waited = since(pending.changed_at, context)
    writing = [pod for pod in running if claim.ref.name not in pod.read_only_claims]
    if writing and (waited is None or waited < _SYNCED):
        return
    if running and shows_growth(context, claim):
        yield _not_confirmed(context, claim, (writing or running)[0], is_read_only=not writing)
        return
    if writing:
        why = stated(
            "the kubelet of {pod} has not grown it for {age}",
            pod=writing[0].placed,
            age=age_text(waited),
        )
    elif running:
        why = stated(
            "{pod} mounts it read-only, and kubelet grows it only for a pod that can write",
            pod=running[0].ref,
        )
    elif context.volume.waiting_pods:
        # kubelet grows the file system when the pod starts: another finding reports why it waits.
        return
    else:
        why = stated("no pod runs with it. kubelet {} when one starts", does)
    yield finding(
        Code.FILE_SYSTEM_GROWTH_WAITS,
        Subject.of_claim(claim.ref),
        stated(
            "The image of claim {claim} has grown, and {} has not: {}.", what, why, claim=claim.ref
        ),
        severity=Severity.WARNING if running else None,
        evidence=(_shown(claim, pending), *chains(context, claim)),
        commands=(describe_claim(claim),),
    )


def _not_confirmed(
    context: RuleContext, claim: PersistentVolumeClaim, pod: Pod, *, is_read_only: bool
) -> Finding:
    """Return RBD782: statfs(2) shows more room than the former size of the claim."""
    why = stated(
        "{pod} mounts it read-only, and kubelet confirms a growth only for a pod that can write"
        if is_read_only
        else "the kubelet of {pod} has not confirmed the growth",
        pod=pod.ref if is_read_only else pod.placed,
    )
    return finding(
        Code.GROWTH_NOT_CONFIRMED,
        Subject.of_claim(claim.ref),
        stated(
            "Image and file system of claim {claim} have grown, and only its status has not: {}.",
            why,
            claim=claim.ref,
        ),
        evidence=chains(context, claim),
        commands=(describe_claim(claim),),
    )


def _not_grown(
    context: RuleContext, claim: PersistentVolumeClaim, pod: Pod, text: str, evidence: str
) -> Finding:
    return finding(
        Code.FILE_SYSTEM_NOT_GROWN,
        Subject.of_pod(pod.ref),
        stated(
            "The image of claim {claim} has grown, and the file system under {pod} on {node} has "
            "not: {}",
            _meaning(text),
            claim=claim.ref,
            pod=pod.ref,
            node=pod.node_name,
        ),
        evidence=(evidence, *chains(context, claim)),
        remedy=ALLOW_GROWTH if Recognised.RESIZE_DENIED.is_in(text) else "",
        commands=_commands(context, pod.node_name, claim),
    )


def _is_of(event: KubeEvent, pod: Pod | None, context: RuleContext) -> bool:
    """Return whether an event is of this pod, not of an earlier one, and about this volume."""
    volume = context.volume.persistent_volume
    named = Recognised.OF_VOLUME.named_in(message_of(event))
    if pod is None or volume is None or named is None or named["name"] != volume.name:
        return False
    return is_of_pod(event, pod)


def _has_grown_since(event: KubeEvent, context: RuleContext) -> bool:
    """Return whether kubelet has reported a growth after an error."""
    done = [other for other in context.volume.events if other.reason == _GROWN]
    return any((other.last_seen or "") >= (event.last_seen or "") for other in done)


def _meaning(text: str) -> Words:
    for row, meaning in _MEANINGS.items():
        if row.is_in(text):
            return meaning
    return stated("{error}", error=foreign(text))


_MEANINGS: Final = {
    Recognised.CHECKSUM_BEHIND: "resize2fs reads a super block whose checksum the mounted kernel "
    "has not written yet. The data is not damaged: an older e2fsprogs does this at each second "
    "growth.",
    Recognised.RESIZE_DENIED: f"{GROWTH_DENIED}.",
    Recognised.RESIZE_IO_ERROR: "the device cannot be read, which is no damage of the file system: "
    "the client may be on the blocklist.",
}


def _commands(
    context: RuleContext, node: str | None, claim: PersistentVolumeClaim
) -> tuple[Command, ...]:
    devices = [
        holder_verdict.holder.mapping.kernel_name
        for holder_verdict in context.holder_verdicts
        if holder_verdict.holder.mapping is not None and holder_verdict.holder.node == node
    ]
    return (*(device_log(device, node) for device in devices[:1]), describe_claim(claim))


RULES: Final = (Rule(225, growth, CollectScope.DRIVER_WORKLOADS | CollectScope.FILE_SYSTEMS),)
