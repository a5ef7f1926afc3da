"""RBD605 to RBD608, RBD617 to RBD622, RBD628: volumes that no provisioner has created yet."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, filled, kubectl
from rbdagent.correlate.volume_names import node_named
from rbdagent.model import (
    Command,
    CsiSource,
    DriverPod,
    Finding,
    KubeEvent,
    Lease,
    LifecycleStep,
    NotObserved,
    PersistentVolumeClaim,
    Recovery,
    Severity,
    SourceState,
    Statement,
    StorageClass,
    Subject,
    Words,
    first_unobserved,
    observed_of,
    stated,
)
from rbdagent.parse.faults import first_meaning
from rbdagent.parse.foreign import foreign, foreign_name, quoted_names
from rbdagent.parse.handle import lease_names
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.ceph_health import blocking, is_pool_well
from rbdagent.rules.class_parameters import class_fields
from rbdagent.rules.context import LIST_CONTROLLERS, RuleContext, finding, message_of, quoted
from rbdagent.rules.controller_texts import PROVISIONING
from rbdagent.rules.driver_version import driver_version
from rbdagent.rules.driver_workloads import (
    controller_outage,
    names_no_controller,
    not_observed_lines,
    outage_finding,
)
from rbdagent.rules.entry import Entry
from rbdagent.rules.map_errors import being_flattened
from rbdagent.rules.pod_events import decisive_event, is_about_hanging_call
from rbdagent.rules.pv_controller import (
    BINDER,
    PROVISIONER,
    RETRY_S,
    SILENT,
    SYNC_S,
    annotate_claim,
    are_users_observed,
    binder,
    describe_claim,
    events_of_claim,
    is_over,
    is_recent,
    lapsed,
    lease_line,
    live_users,
    newest_events,
    since,
    weight,
)
from rbdagent.verdicts.timing import GRACE, age_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.rules.context import Rule

ENTRIES: Final = (
    Entry(
        Code.BEING_PROVISIONED,
        Severity.INFO,
        "The claim's volume is being provisioned.",
        remedy="Wait, then run the command again.",
        recovery=None,
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.PROVISIONER_REPORTS_NOTHING,
        Severity.ERROR,
        "The claim waits for its provisioner, which has reported nothing about it.",
        remedy="Read the log of the leading provisioner (container csi-provisioner). Restarting "
        "it does no harm: another one becomes the leader within 15 s.",
        recovery=Recovery(actor=PROVISIONER, condition="it runs under that name"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.PROVISIONING_FAILS,
        Severity.ERROR,
        "The provisioner fails to create the volume.",
        remedy="Fix what the event names. The provisioner retries automatically. Only a restart "
        "of the provisioner makes it retry at once.",
        recovery=Recovery(
            actor=PROVISIONER, condition="the cause in its event is fixed", within_s=RETRY_S
        ),
        step=LifecycleStep.PROVISION,
    ),
    # csi-provisioner 1.4: kubernetes-csi/external-provisioner#323. selfLink: kubernetes#80978; not
    # set by default since 1.20, never set since 1.24 (kubernetes/enhancements#1164).
    Entry(
        Code.PROVISIONER_TOO_OLD,
        Severity.ERROR,
        "The provisioner needs selfLink, which Kubernetes no longer sets.",
        remedy="Replace the provisioner: with csi-provisioner 1.4 or newer; for NFS with "
        "nfs-subdir-external-provisioner 4.0 or newer; for RBD with ceph-csi (rbd.csi.ceph.com) "
        "and a class that names it. The volumes of the old class stay as they are.",
        recovery=Recovery(note="no update of Kubernetes restores selfLink"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.PROVISIONER_MISSING,
        Severity.ERROR,
        "The cluster has no provisioner with the name that the storage class states.",
        remedy="Install the driver, or create the class again with the name of the installed "
        "driver.",
        recovery=Recovery(actor=PROVISIONER, condition="the driver is installed"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.PROVISIONER_DOWN,
        Severity.ERROR,
        "The provisioner is not running.",
        remedy="Get its pods running again (with ceph-csi: the Deployment "
        "csi-rbdplugin-provisioner).",
        recovery=Recovery(actor=PROVISIONER, condition="it runs"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.PROVISIONING_HANGS,
        Severity.ERROR,
        "The provisioner has started to create the volume, and its call to Ceph does not return.",
        remedy="Make sure that Ceph answers the plugin's pod. The call then ends, and no other "
        "action is needed.",
        recovery=Recovery(actor=PROVISIONER, condition="Ceph answers it", within_s=RETRY_S),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.SELECTOR_NOT_SUPPORTED,
        Severity.ERROR,
        "The claim selects its PV by labels, but its class provisions volumes. The two exclude "
        "each other.",
        remedy="Delete the claim, which has no volume yet, and create it again without a selector: "
        "in the object that makes it, if a controller does. Only a claim that is meant for an "
        "existing volume needs a PV of that class with those labels.",
        recovery=Recovery(
            actor=BINDER, condition="a PV of that class has the labels", within_s=SYNC_S
        ),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.MODE_NOT_PROVISIONED,
        Severity.ERROR,
        "The claim requests a file system that several nodes can write to, and RBD has none.",
        remedy="Delete the claim, which has no volume yet, and create it again with one of "
        "these: ReadWriteOnce; ReadWriteMany with volumeMode Block, if the program itself "
        "coordinates access to a shared block device; or a class of CephFS for shared files.",
        recovery=Recovery(note="a claim's access modes and volumeMode cannot be changed"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.SELECTED_NODE_STUCK,
        Severity.ERROR,
        "The volume must be provisioned for a node where this is not possible.",
        remedy="Remove the annotation: the scheduler then chooses a node again. A volume that is "
        "being provisioned for the old node may still be created. For RBD without topology, this "
        "does no harm.",
        recovery=Recovery(note="external-provisioner keeps the choice after every error"),
        step=LifecycleStep.PROVISION,
    ),
    Entry(
        Code.WAITS_FOR_POPULATOR,
        Severity.WARNING,
        "The claim has a data source that a populator reads, and no volume yet.",
        remedy="Look at that object and at the events and pods of its populator. The populator "
        "makes a second claim, fills it, and gives its PV to this one: leave both to it. Without a "
        "populator for the kind, no component ever creates the volume.",
        recovery=Recovery(actor="the populator", condition="it has filled the volume"),
        step=LifecycleStep.PROVISION,
    ),
)

BEGUN: Final = timedelta(minutes=3)
"""The provisioner of ceph-csi allows one call 150 s
(deploy/rbd/kubernetes/csi-rbdplugin-provisioner.yaml@52fcb7b). After that it reports a failure."""
_INFEASIBLE_S: Final = 300.0
"""--retry-interval-max of external-provisioner 6.3.0; measured after InvalidArgument."""
_NEEDS_SELF_LINK: Final = (
    r"(?:^|/)csi-provisioner:v?(?:0\.|1\.[0-2](?:\.|$)|1\.3\.[01]$)"
    r"|external_storage/|(?:^|/)(?:rbd|cephfs|nfs-client)-provisioner[:@]"
)
"""csi-provisioner up to 1.3.1, the last release before 1.4.0 (its client-go needs selfLink until
kubernetes-csi/external-provisioner#323), and every tag of kubernetes-incubator/external-storage."""
_WITHOUT_SELF_LINK: Final = (1, 20)
_OLD_RBD: Final = ("rbd-provisioner", "ceph.com/rbd")
"""An image, and the provisioner name that it uses by default."""
_BINDER: Final = "persistentvolume-controller"
_FAILED: Final = "ProvisioningFailed"
_IN_TREE: Final = "kubernetes.io/"
_HANDED: Final = "ExternalProvisioning"
_BEGAN: Final = "Provisioning"
_DONE: Final = "ProvisioningSucceeded"
_VERSION: Final = r"v?(\d+)\.(\d+)"


def server_version(context: RuleContext) -> tuple[int, int] | None:
    """Return the major and minor version of the API server."""
    kube = context.snapshot.kubernetes
    if kube is None or isinstance(kube.version, NotObserved):
        return None
    found = re.match(_VERSION, kube.version)
    return None if found is None else (int(found[1]), int(found[2]))


def explained(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass
) -> Iterator[Finding]:
    """Report RBD605 to RBD608, RBD617 to RBD622, RBD628: the progress of a claim's provisioner."""
    own = [event for event in events_of_claim(context, claim) if _is_from_provisioner(event, found)]
    failures = _failures_since_success(own)
    failed = decisive_event(failures, context, retry_s=RETRY_S)[0] if failures else None
    asked = _handed_over_at(context, claim, found)
    stuck = (
        _selected_node_stuck(context, claim, failed, found)
        if is_over(SILENT, asked, context)
        else None
    )
    if stuck is not None:
        yield stuck
    elif failed is not None and is_recent(failures[-1], context):
        yield _fails(context, claim, found, failed)
    elif claim.populated_from:
        yield _left_to_populator(context, claim, found, asked)
    elif _is_under_way(context, own, asked):
        yield _under_way(context, claim, found, own[-1].last_seen if own else asked)
    else:
        yield _unreported(context, claim, found, asked, own)


def _failures_since_success(own: list[KubeEvent]) -> list[KubeEvent]:
    """Return the failures that no success has followed, the oldest first."""
    found: list[KubeEvent] = []
    for event in own:
        if event.reason == _DONE:
            found.clear()
        elif event.reason == _FAILED:
            found.append(event)
    return found


def _under_way(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, begun: str | None
) -> Finding:
    return finding(
        Code.BEING_PROVISIONED,
        Subject.of_claim(claim.ref),
        stated(
            "{provisioner} has been creating the volume of claim {claim} for {age}.",
            provisioner=found.provisioner,
            claim=claim.ref,
            age=age_text(since(begun, context)),
        ),
        evidence=newest_events(context, claim),
    )


def _left_to_populator(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    found: StorageClass,
    asked: str | None,
) -> Finding:
    source = foreign_name(claim.populated_from)
    users = [
        (named, other)
        for other in events_of_claim(context, claim)
        if (named := Recognised.CLONE_SOURCE_IN_USE.named_in(other.message)) is not None
    ]
    because: Words = ""
    if users:
        because = stated(
            " CDI waits until pod {pod}, which uses its source, has ended.",
            pod=foreign_name(users[-1][0]["pod"]),
        )
    return finding(
        Code.WAITS_FOR_POPULATOR,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} has waited {age} for a populator, which fills it from {source}: "
            "{provisioner} creates no volume for it.{} Without a populator for this kind, no "
            "component creates one.",
            because,
            claim=claim.ref,
            age=age_text(since(asked, context)),
            source=source,
            provisioner=found.provisioner,
        ),
        evidence=(
            f"claim {claim.ref} has the data source {source}",
            *(quoted(other) for _, other in users[-1:]),
            *newest_events(context, claim),
        ),
        commands=_show_source(claim),
        severity=weight(context, asked, GRACE),
    )


def _show_source(claim: PersistentVolumeClaim) -> tuple[Command, ...]:
    """Return the commands that show the claim and the object from which it is filled."""
    kind, _, name = claim.populated_from.partition(" ")
    shown = kubectl("get -o yaml", kind.lower(), name, namespace=claim.ref.namespace)
    return (*((shown,) if name else ()), describe_claim(claim))


def _is_from_provisioner(event: KubeEvent, found: StorageClass) -> bool:
    """Return whether an event is from the provisioner.

    The PV controller itself reports for an in-tree provisioner.
    """
    if event.reason not in {_FAILED, _BEGAN, _DONE}:
        return False
    return event.reporter != _BINDER or found.provisioner.startswith(_IN_TREE)


def _handed_over_at(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass
) -> str | None:
    """Return when a claim was handed to its provisioner, as exactly as it is known.

    The PV controller records an event, and repeats it at every sync. Without this event: not
    before the claim and its class existed and, if the class waits for a pod, the newest such pod.
    """
    handed = [
        event for event in events_of_claim(context, claim) if event.reason in {_HANDED, _BEGAN}
    ]
    stamps = [event.first_seen or event.last_seen or "" for event in handed]
    if stamps:
        return min(stamps)
    created = [claim.created_at, found.created_at]
    if claim.selected_node is not None:
        created += [pod.created_at for pod in live_users(context, claim)]
    return max((stamp for stamp in created if stamp), default=None)


def _is_under_way(context: RuleContext, own: list[KubeEvent], asked: str | None) -> bool:
    if not is_over(SILENT, asked, context):
        return True
    return bool(own) and own[-1].reason == _BEGAN and not is_over(BEGUN, own[-1].last_seen, context)


# --------------------------------------------------------------------------------------------------
# Failures of the provisioner
# --------------------------------------------------------------------------------------------------


def _fails(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, event: KubeEvent
) -> Finding:
    return (
        _unsupported_request(context, claim, found, event)
        or _flattening(claim, found, event)
        or _hanging_call(context, claim, found, event)
        or _failed_call(context, claim, found, event)
    )


def _unsupported_request(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, event: KubeEvent
) -> Finding | None:
    """Return the finding for a claim that requests what no RBD provisioner can create."""
    error, young = _error_of(event), weight(context, claim.created_at)
    if Recognised.SELECTOR.is_in(error) and _is_restored_by_velero(claim):
        return finding(
            Code.SELECTOR_NOT_SUPPORTED,
            Subject.of_claim(claim.ref),
            stated(
                "Velero restores claim {claim} into another claim, and binds the result to this "
                "one: its selector keeps the driver away until then.",
                claim=claim.ref,
            ),
            evidence=(quoted(event), _counted(event), *_selector(claim)),
            remedy="Leave the claim as it is, and make no PV for it: it would be bound in place of "
            "the restored data. See the DataDownload of the restore in Velero's namespace. If it "
            "has failed, or there is none, repeat the restore with Velero.",
            commands=(describe_claim(claim),),
            recovery=Recovery(actor="Velero", condition="its DataDownload is complete"),
            severity=young or Severity.WARNING,
        )
    if Recognised.SELECTOR.is_in(error):
        return finding(
            Code.SELECTOR_NOT_SUPPORTED,
            Subject.of_claim(claim.ref),
            stated(
                "Claim {claim} selects its PV by labels, and {provisioner} creates no volume for "
                "such a claim.{}",
                _made_by(context, claim),
                claim=claim.ref,
                provisioner=found.provisioner,
            ),
            evidence=(quoted(event), _counted(event), *_selector(claim)),
            commands=(describe_claim(claim),),
            recovery=binder(context, f"a PV of storage class {found.name} has the labels"),
            severity=young,
        )
    if Recognised.MANY_WRITERS.is_in(error):
        modes = f"access modes {', '.join(claim.access_modes)}"
        return finding(
            Code.MODE_NOT_PROVISIONED,
            Subject.of_claim(claim.ref),
            stated(
                "Claim {claim} requests a file system that several nodes can write to. RBD has "
                "none.",
                claim=claim.ref,
            ),
            evidence=(quoted(event), modes, _counted(event)),
            commands=(describe_claim(claim),),
            severity=young,
        )
    return None


_DYNAMIC_RESTORE: Final = "velero.io/dynamic-pv-restore"
"""The key of the selector that Velero sets while it moves data into another claim
(pkg/restore/actions/csi/pvc_action.go)."""


def _is_restored_by_velero(claim: PersistentVolumeClaim) -> bool:
    return any(requirement.key == _DYNAMIC_RESTORE for requirement in claim.selector or ())


def _made_by(context: RuleContext, claim: PersistentVolumeClaim) -> Words:
    """Return which StatefulSet may have the template of a claim; empty if none is known."""
    sets = sorted(
        owner
        for pod in live_users(context, claim)
        for owner in pod.owners
        if owner.startswith("StatefulSet/")
    )
    if not sets:
        return ""
    workload = context.kube.workloads.get((claim.ref.namespace, sets[0]))
    above = () if workload is None else sorted(workload.owners)
    made = stated(", which {owner} makes,", owner=foreign_name(above[0])) if above else ""
    return stated(
        " A pod of {workload}{} uses it: if the claim is of its template, change it there.",
        made,
        workload=foreign_name(sets[0]),
    )


def _flattening(
    claim: PersistentVolumeClaim, found: StorageClass, event: KubeEvent
) -> Finding | None:
    """Return RBD745 if a source is flattened first, because it has too many parents."""
    if not Recognised.FLATTENING.is_in(_error_of(event)):
        return None
    named = Recognised.FLATTENED.named_in(_error_of(event))
    image = f" {foreign_name(named['image'])}" if named is not None else ""
    return being_flattened(
        Subject.of_claim(claim.ref),
        stated(
            "{provisioner} will create the volume of claim {claim} when Ceph's manager has "
            "flattened its source{}.",
            image,
            provisioner=found.provisioner,
            claim=claim.ref,
        ),
        (quoted(event), _counted(event)),
        PROVISIONER,
    )


def _hanging_call(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, event: KubeEvent
) -> Finding | None:
    """Return the finding for a CreateVolume call that does not return.

    The copy of a data source takes longer than other calls.
    """
    error, begun = _error_of(event), event.first_seen or claim.created_at
    if not is_about_hanging_call(error):
        return None
    if claim.has_data_source and not is_over(GRACE, begun, context):
        return _under_way(context, claim, found, begun)
    return finding(
        Code.PROVISIONING_HANGS,
        Subject.of_claim(claim.ref),
        stated(
            "{provisioner} has started to create the volume of claim {claim}. Its call does not "
            "return{}",
            _what_it_waits_for(context, found),
            provisioner=found.provisioner,
            claim=claim.ref,
        ),
        evidence=(quoted(event), _counted(event)),
        remedy=_mended_by(context, found),
        commands=(
            *_asks_ceph(context, found),
            *provisioner_log_commands(context, found.provisioner),
        ),
    )


_IS_FULL: Final = (
    "`ceph health detail` names a pool that is full or at its quota (POOL_FULL), or a PG that is "
    "inactive. "
)
_IS_NEW: Final = (
    "A pool that was never initialised has no object rbd_info (`rados stat`): run `rbd pool init`, "
    "and restart the provisioner's pod. The application rbd does not prove it: Rook enables it on "
    "its own. "
)
_IS_OUT_OF_REACH: Final = (
    "{} the provisioner's pod does not reach the monitors (3300, 6789) or the OSDs (6800 to 7568): "
    "test it from there. It has the network of pods, not that of its node."
)


def _asks_ceph(context: RuleContext, found: StorageClass) -> tuple[Command, ...]:
    """Return the commands that show more of Ceph; its health is known if it has nothing.

    `rbd pool init` and the first image write the object (RBD_INFO in src/librbd/image/
    ValidatePoolRequest.cc of Ceph). In rook#8749 the pool had the application, and not the object.
    """
    health = () if is_pool_well(context, found.pool, found.data_pool) else ("ceph health detail",)
    asked = tuple(command(begin) for begin in health)
    if not found.pool:
        return (*asked, command("ceph osd pool ls detail"))
    if _has_volume(context, found):
        return asked
    return (*asked, command("rados stat rbd_info", options=(f"--pool={found.pool}",)))


def _has_volume(context: RuleContext, found: StorageClass) -> bool:
    """Return whether its provisioner has made a volume in the pool of a class before."""
    return bool(found.pool) and any(
        isinstance(volume.source, CsiSource)
        and volume.provisioner == volume.source.driver == found.provisioner
        and volume.source.attribute("pool") == found.pool
        and found.cluster_id in ("", volume.source.attribute("clusterID"))
        for volume in context.kube.volumes
    )


_MEND_CEPH: Final = (
    "Mend what Ceph reports (`ceph health detail`): the call then ends, and no other action is "
    "needed. A quota is changed with `ceph osd pool set-quota`."
)


def blocking_of_class(context: RuleContext, found: StorageClass) -> Words:
    """Return what keeps I/O to the pools of a class waiting; "" if nothing does."""
    return blocking(context, found.pool) or blocking(context, found.data_pool)


def _mended_by(context: RuleContext, found: StorageClass) -> str:
    if blocking_of_class(context, found):
        return _MEND_CEPH
    if not _does_ceph_answer(context):
        return ""
    full = "" if is_pool_well(context, found.pool, found.data_pool) else _IS_FULL
    new = "" if _has_volume(context, found) else _IS_NEW
    alone = "Otherwise" if full or new else "Most likely"
    return full + new + _IS_OUT_OF_REACH.format(alone)


def _what_it_waits_for(context: RuleContext, found: StorageClass) -> Statement:
    """Return what the call waits for; Ceph is not blamed if it has just answered rbdagent."""
    if reported := blocking_of_class(context, found):
        return stated(": {}.", reported)
    if not _does_ceph_answer(context):
        return stated(": it waits for Ceph.")
    full = "" if is_pool_well(context, found.pool, found.data_pool) else "the pool is full, "
    new = "" if _has_volume(context, found) else "the pool was never initialised, "
    causes = f"{full}{new}or " if full or new else "most likely "
    return stated(
        ", although Ceph's monitors answer rbdagent: {}the provisioner's pod does not reach the "
        "monitors or OSDs from its own network.",
        causes,
    )


def _does_ceph_answer(context: RuleContext) -> bool:
    """Return whether a cluster answered; whether it is that of the class is not known."""
    ceph = context.snapshot.ceph
    return ceph is not None and any(
        cluster.source.state is SourceState.OBSERVED for cluster in ceph.clusters
    )


def _failed_call(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, event: KubeEvent
) -> Finding:
    """Return the finding for an error of the provisioner, with its meaning if it is recognised."""
    error, young = _error_of(event), weight(context, claim.created_at)
    known = first_meaning(PROVISIONING, error)
    if known is not None:
        general, named = known
        of_class = class_fields(context, found)
        names = {
            **named,
            **of_class,
            "driver": found.provisioner,
            "version": driver_version(context, found.provisioner),
            "claim_namespace": claim.ref.namespace,
            "claim_name": claim.ref.name,
        }
        meant = general.decided(context, names)
        return finding(
            Code.PROVISIONING_FAILS,
            Subject.of_claim(claim.ref),
            stated(
                "{provisioner} cannot create the volume of claim {claim}: {}.{}",
                stated(meant.means, **(quoted_names(names) | of_class)),
                _no_snapshotter(context, found) if _is_about_snapshot(error) else "",
                provisioner=found.provisioner,
                claim=claim.ref,
            ),
            evidence=(quoted(event), _counted(event)),
            remedy=meant.remedy.format(**names),
            commands=filled((meant.command,) if meant.command else (), names),
            severity=young,
            recovery=_recovery(event, meant.recovery),
        )
    return finding(
        Code.PROVISIONING_FAILS,
        Subject.of_claim(claim.ref),
        stated(
            "{provisioner} cannot create the volume of claim {claim}: {error}{}",
            stated(". {}.", reported) if (reported := blocking_of_class(context, found)) else "",
            provisioner=found.provisioner,
            claim=claim.ref,
            error=foreign(Recognised.OF_DATA_SOURCE.left_out_of(error)),
        ),
        evidence=(quoted(event), _counted(event)),
        commands=(describe_claim(claim), *provisioner_log_commands(context, found.provisioner)),
        severity=young,
        recovery=_recovery(event),
    )


def _is_about_snapshot(error: str) -> bool:
    rows = (Recognised.SNAPSHOT_NOT_READY, Recognised.SNAPSHOT_NOT_BOUND)
    return any(row.is_in(error) for row in rows)


def _no_snapshotter(context: RuleContext, found: StorageClass) -> str:
    """Return that the driver's pods have no csi-snapshotter; "" if they have, or are unknown.

    Charts run it in the same pod, and leave it out by their options (snapshotPolicy of Rook).
    """
    pods = _pods_of(context, found.provisioner)
    if not pods or any("snapshotter" in image for pod in pods for image in pod.images):
        return ""
    return (
        " The pods of the driver's controller have no container csi-snapshotter, which makes "
        "snapshots: see the option for snapshots of what installed the driver."
    )


def _counted(event: KubeEvent) -> str:
    return f"{event.count} times, last at {event.last_seen}"


def _error_of(event: KubeEvent) -> str:
    text = Recognised.INFEASIBLE.left_out_of(message_of(event))
    found = Recognised.PROVISIONING_FAILED.search(text)
    return text if found is None else found["error"]


def _recovery(event: KubeEvent, recovery: Recovery | None = None) -> Recovery | None:
    """Return when the provisioner tries again: later after an error of the request itself."""
    if recovery is not None or not Recognised.INFEASIBLE.is_in(event.message):
        return recovery
    condition = "the cause in its event is fixed"
    return Recovery(actor=PROVISIONER, condition=condition, within_s=_INFEASIBLE_S)


def _selector(claim: PersistentVolumeClaim) -> tuple[str, ...]:
    asked = ", ".join(str(requirement) for requirement in claim.selector or ())
    return (f"selector {asked}",) if asked else ()


# --------------------------------------------------------------------------------------------------
# A selected node that cannot be used
# --------------------------------------------------------------------------------------------------


def _selected_node_stuck(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    failed: KubeEvent | None,
    found: StorageClass,
) -> Finding | None:
    """Report RBD622: the annotation stays if the node is removed, and also limits the scheduler."""
    if claim.selected_node is None:
        return None
    node = node_named(claim.selected_node, context.snapshot)
    lacks = _lacks_driver(context, claim.selected_node, found.provisioner)
    if node is None:
        why = stated("that node does not exist")
        recovery = Recovery(
            actor=f"{PROVISIONER} 5 and older",
            condition="it runs and retries",
            within_s=RETRY_S,
            note="version 6 removes the annotation only for drivers with topology",
        )
    elif lacks and failed is not None and _lacks_topology(failed):
        why = stated("{provisioner} is not registered on that node", provisioner=found.provisioner)
        once = f"{found.provisioner} registers on {claim.selected_node}"
        recovery = Recovery(actor=PROVISIONER, condition=once, within_s=RETRY_S)
    else:
        return None
    users = live_users(context, claim)
    waiting = (
        stated("; {pods} cannot run on another node", pods=[pod.ref for pod in users])
        if users
        else ""
    )
    alone = not users and are_users_observed(context, claim)
    return finding(
        Code.SELECTED_NODE_STUCK,
        Subject.of_claim(claim.ref),
        stated(
            "The volume of claim {claim} must be created for node {node}, and {}{}.",
            why,
            waiting,
            claim=claim.ref,
            node=claim.selected_node,
        ),
        evidence=(
            f"volume.kubernetes.io/selected-node: {claim.selected_node}",
            *(("no pod waits for the claim",) if alone else ()),
            *newest_events(context, claim),
        ),
        commands=(annotate_claim(claim, "volume.kubernetes.io/selected-node-"),),
        recovery=recovery,
    )


def _lacks_topology(event: KubeEvent) -> bool:
    texts = (Recognised.NO_TOPOLOGY, Recognised.NO_CSI_NODE)
    return any(text.is_in(event.message) for text in texts)


def _lacks_driver(context: RuleContext, node: str, driver: str) -> bool:
    csi_node = context.kube.csi_nodes.get(node)
    return csi_node is not None and driver not in csi_node.drivers


# --------------------------------------------------------------------------------------------------
# The provisioner reports nothing
# --------------------------------------------------------------------------------------------------


def reported_too_old(context: RuleContext, claim: PersistentVolumeClaim) -> Finding | None:
    """Return RBD608 if its error is in an event: usually it is in a log only."""
    event = next(
        (event for event in context.volume.events if Recognised.SELF_LINK.is_in(event.message)),
        None,
    )
    if event is None:
        return None
    return _too_old(claim, "a provisioner", (quoted(event),), ())


def _too_old(
    claim: PersistentVolumeClaim,
    provisioner: Words,
    evidence: tuple[str, ...],
    commands: tuple[Command, ...],
) -> Finding:
    return finding(
        Code.PROVISIONER_TOO_OLD,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} waits for {} that is too old for this cluster: it needs the claim's "
            "selfLink, which Kubernetes has not set since 1.20.",
            provisioner,
            claim=claim.ref,
        ),
        evidence=evidence,
        commands=(*commands, describe_claim(claim)),
    )


def _unreported(
    context: RuleContext,
    claim: PersistentVolumeClaim,
    found: StorageClass,
    asked: str | None,
    own: list[KubeEvent],
) -> Finding:
    """Report RBD606, RBD608, RBD617 to RBD619: signs that the provisioner runs, or not."""
    name = _provisioner_of(claim, found)
    pods, lease = _pods_of(context, name), _lease_of(context, name)
    old = _outdated(context, pods)
    if old is not None:
        pod, image = old
        evidence = (f"pod {pod.ref} runs {image}", *newest_events(context, claim))
        named = stated("provisioner {provisioner}", provisioner=name)
        return _too_old(claim, named, evidence, (_log_of(pod),))
    waited = age_text(since(asked, context))
    waits = stated(
        "Claim {claim} has waited {age} for {provisioner} to create its volume",
        claim=claim.ref,
        age=waited,
        provisioner=name,
    )
    seen = signs_of(context, name)
    down = _down(context, claim, name, asked)
    if down is not None:
        return down
    nowhere = _is_nowhere(context, name)
    if lease is None and not pods and _is_missing(context, name):
        return finding(
            Code.PROVISIONER_MISSING,
            Subject.of_claim(claim.ref),
            stated(
                "{}, and no provisioner in this cluster has that name.{}",
                waits,
                _similar_names(context, name),
            ),
            evidence=(
                f"storage class {found.name}: {name}",
                f"no CSIDriver {name}, no lease with that name, no pod that is known to serve it",
                *newest_events(context, claim),
            ),
            commands=(
                kubectl("get csidrivers"),
                kubectl("get storageclass", found.name, options=("-o", "yaml")),
            ),
        )
    if own and own[-1].reason == _BEGAN:
        begun = own[-1].first_seen or own[-1].last_seen
        if claim.has_data_source and not is_over(GRACE, begun, context):
            return _under_way(context, claim, found, begun)
        return _begun_long_ago(context, claim, found, name)
    ago = stated(" for {age}", age=age_text(since(own[-1].last_seen, context))) if own else ""
    silence = stated("{provisioner} has reported nothing{}", ago, provisioner=name)
    if nowhere:
        silence = stated(
            "{provisioner} has reported nothing{}: no lease, no pod and no Deployment of this "
            "cluster shows that it runs",
            ago,
            provisioner=name,
        )
    if not context.kube.coverage.events:
        silence = stated("What {provisioner} has reported was not observed", provisioner=name)
    differs = claim.provisioner not in (None, name)
    return finding(
        Code.PROVISIONER_REPORTS_NOTHING,
        Subject.of_claim(claim.ref),
        stated("{}. {}.", waits, silence),
        evidence=(
            *seen,
            *(("no Deployment of this cluster names it in an argument",) if nowhere else ()),
            *not_observed_lines(context, of_nodes=False),
            *((f"the claim was handed to {claim.provisioner}",) if differs else ()),
            *newest_events(context, claim),
        ),
        commands=(*provisioner_log_commands(context, name), describe_claim(claim)),
    )


def _is_nowhere(context: RuleContext, name: str) -> bool:
    """Return whether all objects that may show a provisioner were observed, and none does."""
    kube = context.snapshot.kubernetes
    if kube is None or first_unobserved((kube.leases, kube.driver_pods)) is not None:
        return False
    is_shown = _lease_of(context, name) is not None or _pods_of(context, name)
    return not is_shown and names_no_controller(context, name)


def _down(
    context: RuleContext, claim: PersistentVolumeClaim, name: str, asked: str | None
) -> Finding | None:
    """Return RBD618 if the provisioner does not run, with what its Deployment shows."""
    pods, lease = _pods_of(context, name), _lease_of(context, name)
    if any(pod.ready for pod in pods):
        # A lease can be left from before leader election was turned off, so a ready pod counts.
        return None
    waited = age_text(since(asked, context))
    evidence = (*signs_of(context, name), *newest_events(context, claim))
    outage = controller_outage(context, name, "provisioner", PROVISIONER)
    if outage is not None:
        then = stated("Claim {claim} has waited {age} for its volume.", claim=claim.ref, age=waited)
        return outage_finding(Code.PROVISIONER_DOWN, outage, then, evidence=evidence)
    if not pods and not lapsed(lease, context):
        return None
    return finding(
        Code.PROVISIONER_DOWN,
        Subject.of_claim(claim.ref),
        stated(
            "Claim {claim} has waited {age} for {provisioner} to create its volume, and "
            "{provisioner} does not run.",
            claim=claim.ref,
            age=waited,
            provisioner=name,
        ),
        evidence=(*evidence, *not_observed_lines(context, of_nodes=False)),
        commands=_log_commands(pods, lease),
    )


def _begun_long_ago(
    context: RuleContext, claim: PersistentVolumeClaim, found: StorageClass, name: str
) -> Finding:
    """Return the finding for a creation that was begun, without an error since."""
    return finding(
        Code.PROVISIONING_HANGS,
        Subject.of_claim(claim.ref),
        stated(
            "{provisioner} has started to create the volume of claim {claim}, and has reported "
            "nothing since: its call does not return{}",
            _what_it_waits_for(context, found),
            provisioner=name,
            claim=claim.ref,
        ),
        evidence=(*signs_of(context, name), *newest_events(context, claim)),
        remedy=_mended_by(context, found),
        commands=(*_asks_ceph(context, found), *provisioner_log_commands(context, name)),
    )


def _provisioner_of(claim: PersistentVolumeClaim, found: StorageClass) -> str:
    """Return the provisioner of a claim, also if a CSI driver has replaced an in-tree plugin."""
    if found.provisioner.startswith(_IN_TREE) and claim.provisioner is not None:
        return claim.provisioner
    return found.provisioner


def _pods_of(context: RuleContext, provisioner: str) -> tuple[DriverPod, ...]:
    kube = context.snapshot.kubernetes
    found = () if kube is None else observed_of(kube.driver_pods)
    lease = _lease_of(context, provisioner)
    leader = None if lease is None else (lease.namespace, lease.holder)
    return tuple(
        pod
        for pod in found
        if provisioner in _served(pod) or (pod.ref.namespace, pod.ref.name) == leader
    )


def _served(pod: DriverPod) -> tuple[str, ...]:
    if pod.serves:
        return pod.serves
    old_image, name = _OLD_RBD
    return (name,) if any(old_image in image for image in pod.images) else ()


def _lease_of(context: RuleContext, provisioner: str) -> Lease | None:
    """Return the newest lease of a provisioner."""
    names = lease_names(provisioner)
    kube = context.snapshot.kubernetes
    leases = () if kube is None else observed_of(kube.leases)
    found = [lease for lease in leases if lease.name in names]
    return max(found, key=lambda lease: (lease.renewed_at or "", lease.namespace), default=None)


def _outdated(context: RuleContext, pods: tuple[DriverPod, ...]) -> tuple[DriverPod, str] | None:
    version = server_version(context)
    if version is not None and version < _WITHOUT_SELF_LINK:
        return None
    return next(
        (
            (pod, image)
            for pod in pods
            for image in pod.images
            if re.search(_NEEDS_SELF_LINK, image)
        ),
        None,
    )


def _is_missing(context: RuleContext, provisioner: str) -> bool:
    """Return whether no object shows a provisioner, and all such objects were observed."""
    kube = context.snapshot.kubernetes
    if kube is None or provisioner.startswith(_IN_TREE):
        return False
    if first_unobserved((kube.leases, kube.drivers, kube.driver_pods)) is not None:
        return False
    return provisioner not in observed_of(kube.drivers)


def _similar_names(context: RuleContext, provisioner: str) -> Words:
    """Return a hint at similar names: Rook puts its operator's namespace before ceph-csi's."""
    kube = context.snapshot.kubernetes
    drivers = () if kube is None else observed_of(kube.drivers)
    like = sorted(
        driver for driver in drivers if driver.endswith(provisioner) or provisioner.endswith(driver)
    )
    if like:
        return stated(" {drivers} exists: should the class name it?", drivers=like)
    return ""


def _pod_lines(pods: tuple[DriverPod, ...]) -> tuple[str, ...]:
    return tuple(
        f"pod {pod.ref} is {pod.phase}{'' if pod.ready else ', not ready'}" for pod in pods
    )


def _log_commands(pods: tuple[DriverPod, ...], lease: Lease | None) -> tuple[Command, ...]:
    down = [pod for pod in pods if not pod.ready]
    found = [kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace) for pod in down[:2]]
    if lease is not None:
        found.append(kubectl("get pods", namespace=lease.namespace))
    return tuple(found)


def signs_of(context: RuleContext, provisioner: str) -> tuple[str, ...]:
    """Return the pods and the lease of a provisioner as lines of evidence."""
    lease = _lease_of(context, provisioner)
    pods = _pod_lines(_pods_of(context, provisioner))
    return (*pods, *((lease_line(lease, context),) if lease else ()))


def provisioner_log_commands(context: RuleContext, provisioner: str) -> tuple[Command, ...]:
    """Return the command that shows the log of the active provisioner, if it is known."""
    lease = _lease_of(context, provisioner)
    if lease is not None and lease.holder:
        options = ("-c", "csi-provisioner", "--tail=50")
        return (kubectl("logs", lease.holder, namespace=lease.namespace, options=options),)
    logs = [_log_of(pod) for pod in _pods_of(context, provisioner)[:1]]
    return tuple(logs) or (LIST_CONTROLLERS,)


def _log_of(pod: DriverPod) -> Command:
    options = ("--all-containers", "--tail=50")
    return kubectl("logs", pod.ref.name, namespace=pod.ref.namespace, options=options)


RULES: Final[tuple[Rule, ...]] = ()
"""None: the rules of pvc_pending call these functions, in the order of the controllers."""
