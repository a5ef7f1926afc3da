"""RBD114, RBD128, RBD136, RBD137: several holders, and the virtual machines that use the volume.

A live migration has two pods of one machine on one disk for a while: KubeVirt hands the disk over,
and only one guest runs. Two machines on one disk are two guests, each with its own cache.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.commands import kubectl
from rbdagent.correlate.holders import runs
from rbdagent.correlate.machines import (
    MachinePod,
    filled_claim,
    launchers_of,
    machine_of,
    machine_pods,
)
from rbdagent.model import (
    CollectScope,
    LifecycleStep,
    NotObserved,
    Recovery,
    Severity,
    Subject,
    Verdict,
    joined,
    stated,
)
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.rules.context import Rule, finding, pods_of
from rbdagent.rules.entry import Entry
from rbdagent.rules.pod_events import is_ending_in_time
from rbdagent.verdicts.timing import LONG, age, age_text, is_young
from rbdagent.verdicts.volume_verdict import is_read_only, sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.correlate.machines import Machine
    from rbdagent.model import Command, Finding, MachineMigration, Pod, Statement
    from rbdagent.rules.context import RuleContext

ENTRIES: Final = (
    Entry(
        Code.VOLUME_SHARED,
        Severity.INFO,
        "Several nodes hold the volume, and its access mode allows that.",
        remedy="Nothing to do.",
        recovery=None,
    ),
    # kubevirt#11375: a second machine starts on a ReadWriteMany disk without a word.
    Entry(
        Code.TWO_MACHINES_ON_ONE_DISK,
        Severity.WARNING,
        "Several virtual machines use one disk, and it is no migration of one machine.",
        remedy="Stop one of the machines, and check the file system in the guest. If both guests "
        "run a cluster file system, nothing is wrong: both machines then mark the disk as "
        "shareable.",
        recovery=Recovery(note="no controller stops a machine for its disk"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.LIVE_MIGRATION,
        Severity.INFO,
        "A virtual machine is being migrated: two pods of it use the volume until it has moved.",
        remedy="Wait until the migration has ended. To cancel it, delete its "
        "VirtualMachineInstanceMigration, never a pod.",
        recovery=None,
    ),
    Entry(
        Code.MACHINE_POD_LEFT,
        Severity.WARNING,
        "Two pods of one virtual machine use the volume, and no migration of it is running.",
        remedy="Look where the machine runs: the node in the status of its VirtualMachineInstance "
        "is right, and the pod on the other node is left. KubeVirt's virt-controller ends it: read "
        "its log. Delete no pod before you know which of them is left.",
        recovery=Recovery(actor="KubeVirt's virt-controller", condition="it works again"),
        step=LifecycleStep.USE,
    ),
)


def shared(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD114 for several holders that the access mode allows, or why they are several."""
    of_machines = (*_several_machines(context), *_several_pods(context))
    yield from of_machines
    if of_machines or context.verdict is not Verdict.SHARED:
        return
    nodes = sorted(
        str(holder_verdict.holder.node) for holder_verdict in sharing(context.holder_verdicts)
    )
    volume = context.volume.persistent_volume
    modes = stated("{modes}", modes=volume.access_modes) if volume is not None else "unknown"
    yield finding(
        Code.VOLUME_SHARED,
        Subject.of_volume(context.name),
        stated(
            "{volume} is in use on {nodes}; its access mode ({}) allows that.",
            modes,
            volume=context.name,
            nodes=nodes,
        ),
        evidence=tuple(
            holder_verdict.reasons[0] for holder_verdict in sharing(context.holder_verdicts)
        ),
        pods=pods_of(sharing(context.holder_verdicts)),
    )


# --------------------------------------------------------------------------------------------------
# Virtual machines
# --------------------------------------------------------------------------------------------------


def _several_machines(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD128; RBD106 reports two writers of a volume for one node."""
    if context.verdict is Verdict.CONFLICT or is_read_only(context.volume):
        return
    running = [one for one in _live(context) if runs(one.pod) and _writes(one.pod, context)]
    machines = {one.machine.key: one for one in reversed(running)}
    if len(machines) < 2:
        return
    ordered = [machines[key] for key in sorted(machines)]
    yield finding(
        Code.TWO_MACHINES_ON_ONE_DISK,
        Subject.of_volume(context.name),
        stated(
            "{count} virtual machines use one disk: {machines}. Only the migration of one "
            "machine has two pods on its disk, and these are different machines: stop one of "
            "them, unless both mark the disk as shareable.",
            count=len(ordered),
            machines=[f"{_name(one.machine)} ({one.pod.placed})" for one in ordered],
        ),
        evidence=tuple(f"pod {one.pod.ref} is of {_name(one.machine)}" for one in ordered),
        commands=tuple(_show(one.machine) for one in ordered),
    )


def _writes(pod: Pod, context: RuleContext) -> bool:
    """Return whether a pod does not mount the volume as read-only: a CD-ROM may have many users."""
    claim = context.volume.claim
    return claim is None or claim.ref.name not in pod.read_only_claims


def _several_pods(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD136 or RBD137 for a machine with several virt-launchers on the volume."""
    for launchers in launchers_of(_live(context)).values():
        pods = sorted(launchers.values(), key=lambda one: (one.pod.created_at or "", one.launcher))
        if len(pods) < 2:
            continue
        if len({one.machine.uid for one in pods} - {""}) > 1:
            yield from _earlier_start(pods, context)
        else:
            yield _of_one_start(pods, context)


def _live(context: RuleContext) -> Iterator[MachinePod]:
    return machine_pods(context.volume.pods, context.kube)


def _earlier_start(pods: list[MachinePod], context: RuleContext) -> Iterator[Finding]:
    """Yield RBD137 for a pod of a start of the machine that is over, and that has not ended."""
    current = pods[-1]
    for old in pods[:-1]:
        if old.machine.uid == current.machine.uid or is_ending_in_time(old.pod, context):
            continue
        are_two = runs(old.pod) and runs(current.pod)
        yield finding(
            Code.MACHINE_POD_LEFT,
            Subject.of_pod(old.pod.ref),
            stated(
                "{old} is of an earlier start of virtual machine {machine} and has not ended, and "
                "{current} is of the present start.{}",
                " Both run: if each has a guest, two guests write to one disk." if are_two else "",
                old=old.pod.placed,
                machine=_name(current.machine),
                current=current.pod.placed,
            ),
            evidence=tuple(map(_line, pods)),
            commands=(_show(current.machine), _describe(old.pod)),
            severity=Severity.ERROR if are_two else None,
        )


def _of_one_start(pods: list[MachinePod], context: RuleContext) -> Finding:
    """Return what the migrations of the machine show about two pods of one start."""
    known = context.kube.migrations
    if isinstance(known, NotObserved):
        return _unknown_migration(pods, known)
    own = known.get(pods[0].machine.key, [])
    made = [(one, found) for one in pods if (found := _made_by(one, own)) is not None]
    for one, found in reversed(made):
        if not found.is_over:
            return _begun(pods, one, found, context)
    begun = [found for found in own if not found.is_over]
    if begun and not any(one.migration for one in pods):
        # Without the label on a pod, any migration that is running may have made it.
        return _begun(pods, pods[-1], max(begun, key=lambda one: one.since or ""), context)
    if not made:
        return _left(pods, _without_migration(pods), context)
    target, last = made[-1]
    # A migration has not ended before its target was created.
    ended_at = last.ended_at or target.pod.created_at
    if is_young(ended_at, context.snapshot.observed_at, LONG):
        return _migrating(pods, target, last)
    has_failed = last.phase == "Failed"
    over = stated("Its migration has {}.", "failed" if has_failed else "succeeded")
    if last.failure:
        over = stated("Its migration has failed: {failure}.", failure=foreign(last.failure))
    return _left(pods, over, context, last)


_LONGEST: Final = timedelta(hours=1)
"""How long a phase is believed. virt-controller waits 15 minutes for a target pod, and the
virt-launcher cancels a transfer without progress after 150 s, or after 150 s for each GiB
(defaultCatchAllPendingTimeoutSeconds in pkg/virt-controller/watch/migration/migration.go,
MigrationProgressTimeout in pkg/virt-config/virt-config.go, KubeVirt 1.9): a machine of more than
24 GiB may take longer. Nothing ends an object if they do not work."""


def _begun(
    pods: list[MachinePod], target: MachinePod, migration: MachineMigration, context: RuleContext
) -> Finding:
    """Return RBD136 for a migration whose phase is not final, as far as the phase is believed."""
    now = context.snapshot.observed_at
    cancelled = age(migration.deleting_since, now)
    if cancelled is not None and cancelled >= LONG:
        why = stated("its deletion was requested {age} ago", age=age_text(cancelled))
        return _unconfirmed(pods, target, migration, why)
    changed_at = max((migration.since or "", target.pod.created_at or ""))
    if is_young(changed_at or None, now, _LONGEST):
        return _migrating(pods, target, migration)
    why = stated("nothing has changed for {age}", age=age_text(age(changed_at or None, now)))
    return _unconfirmed(pods, target, migration, why)


def _unconfirmed(
    pods: list[MachinePod], target: MachinePod, migration: MachineMigration, why: Statement
) -> Finding:
    """Return RBD136 for a migration that may have been abandoned: its phase proves nothing."""
    source = next(one for one in reversed(pods) if one is not target)
    machine = source.machine
    return finding(
        Code.LIVE_MIGRATION,
        Subject.of_pod(target.pod.ref),
        stated(
            "Two pods of virtual machine {machine} use one disk, {source} and {target}, and "
            "VirtualMachineInstanceMigration {migration} is {phase}, but {}. Whether it still runs "
            "was not observed: status.migrationState of the VirtualMachineInstance decides.",
            why,
            machine=_name(machine),
            source=source.pod.placed,
            target=target.pod.placed,
            migration=migration.ref,
            phase=_phase(migration),
        ),
        evidence=(*map(_line, pods), _migration_line(migration)),
        remedy="Read status.migrationState of the VirtualMachineInstance. The migration runs if "
        "its uid is there as migrationUid, without an endTimestamp, and neither completed nor "
        "failed. Else, or if a node of the two is down, `virsh list` in the container compute of "
        "both virt-launchers shows which of them runs the guest: in a migration one is running, "
        "and the other paused. Then read the log of virt-controller. Delete no pod before you know "
        "which of them runs the guest.",
        commands=(_show_state(machine), _show_migrations(machine)),
        severity=Severity.WARNING,
        recovery=Recovery(
            actor="KubeVirt's virt-controller", condition="it works, and the migration has ended"
        ),
    )


def _phase(migration: MachineMigration) -> str:
    return foreign_name(migration.phase) if migration.phase else "not begun"


def _without_migration(pods: list[MachinePod]) -> Statement:
    """Return that no migration that exists has made one of the pods; one may have been deleted."""
    targets = [str(one.pod.ref) for one in pods if one.migration]
    if not targets:
        return stated("No VirtualMachineInstanceMigration has made either.")
    return stated("The migration that made {pod} does not exist any more.", pod=targets[-1])


def _made_by(one: MachinePod, migrations: list[MachineMigration]) -> MachineMigration | None:
    """Return the migration whose target a pod is."""
    return next(
        (found for found in migrations if one.migration and found.ref.uid == one.migration), None
    )


def _migrating(pods: list[MachinePod], target: MachinePod, migration: MachineMigration) -> Finding:
    """Return RBD136 for a migration whose phase is believed, or that has just ended."""
    source = next(one for one in reversed(pods) if one is not target)
    is_over = migration.is_over
    return finding(
        Code.LIVE_MIGRATION,
        Subject.of_pod(target.pod.ref),
        stated(
            "Virtual machine {machine} {} from {source} to {target}: "
            "VirtualMachineInstanceMigration {migration} is {phase}.{}",
            "was being migrated" if is_over else "is being migrated",
            " It has ended, and one of the two pods ends." if is_over else "",
            machine=_name(source.machine),
            source=source.pod.placed,
            target=target.pod.placed,
            migration=migration.ref,
            phase=_phase(migration),
        ),
        evidence=(*map(_line, pods), _migration_line(migration)),
        commands=(_show(source.machine), _show_migrations(source.machine)),
    )


def _unknown_migration(pods: list[MachinePod], missing: NotObserved) -> Finding:
    return finding(
        Code.LIVE_MIGRATION,
        Subject.of_pod(pods[-1].pod.ref),
        stated(
            "{count} pods of virtual machine {machine} use one disk, as in a live migration: "
            "{pods}. Whether a migration of it is running was not observed.",
            count=len(pods),
            machine=_name(pods[0].machine),
            pods=[one.pod.placed for one in pods],
        ),
        evidence=(
            *map(_line, pods),
            f"VirtualMachineInstanceMigrations not observed: {missing.reason}",
        ),
        commands=(_show(pods[0].machine), _show_migrations(pods[0].machine)),
    )


def _left(
    pods: list[MachinePod],
    state: Statement,
    context: RuleContext,
    migration: MachineMigration | None = None,
) -> Finding:
    """Return RBD137; INFO while one of the pods is being deleted, and not overdue."""
    is_ending = any(is_ending_in_time(one.pod, context) for one in pods)
    return finding(
        Code.MACHINE_POD_LEFT,
        Subject.of_pod(pods[-1].pod.ref),
        stated(
            "{count} pods of virtual machine {machine} use one disk, and no migration of it is "
            "running: {pods}. {}",
            state,
            count=len(pods),
            machine=_name(pods[0].machine),
            pods=[one.pod.placed for one in pods],
        ),
        evidence=(*map(_line, pods), *(() if migration is None else (_migration_line(migration),))),
        commands=(_show(pods[0].machine), _show_migrations(pods[0].machine)),
        severity=Severity.INFO if is_ending else None,
    )


def _name(machine: Machine) -> str:
    """Return a machine by namespace and name; any user who makes pods chooses that of an owner."""
    return foreign_name("/".join(machine.key))


def _line(one: MachinePod) -> str:
    made = f", made by migration {foreign_name(one.migration)}" if one.migration else ""
    start = f", uid {foreign_name(one.machine.uid)}" if one.machine.uid else ""
    return f"pod {one.pod.placed} is of VirtualMachineInstance {_name(one.machine)}{start}{made}"


def _migration_line(migration: MachineMigration) -> str:
    since = f" since {foreign_name(migration.since)}" if migration.since else ""
    deleted = migration.deleting_since
    deletion = f", deletion requested at {foreign_name(deleted)}" if deleted else ""
    ended = f", ended at {foreign_name(migration.ended_at)}" if migration.ended_at else ""
    phase = foreign_name(migration.phase) if migration.phase else "no phase"
    failure = f", {foreign(migration.failure)}" if migration.failure else ""
    state = f"{phase}{since if not migration.is_over else ''}{deletion}{ended}{failure}"
    return f"VirtualMachineInstanceMigration {migration.ref}: {state}"


def _show(machine: Machine) -> Command:
    return kubectl("get vmi", machine.name, namespace=machine.namespace, options=("-o", "wide"))


def _show_state(machine: Machine) -> Command:
    options = ("-o", "jsonpath={.status.migrationState}")
    return kubectl("get vmi", machine.name, namespace=machine.namespace, options=options)


def _show_migrations(machine: Machine) -> Command:
    return kubectl("get virtualmachineinstancemigrations", namespace=machine.namespace)


def _describe(pod: Pod) -> Command:
    return kubectl("describe pod", pod.ref.name, namespace=pod.ref.namespace)


# --------------------------------------------------------------------------------------------------
# Other findings about the pods of a machine
# --------------------------------------------------------------------------------------------------

_OWN: Final = frozenset({Code.TWO_MACHINES_ON_ONE_DISK, Code.LIVE_MIGRATION, Code.MACHINE_POD_LEFT})
_MOST_NAMED: Final = 3


def with_machines(findings: tuple[Finding, ...], context: RuleContext) -> tuple[Finding, ...]:
    """Return findings that name, beside each pod of a machine or of CDI, whose pod it is."""
    about = {str(pod.ref): one for pod in context.volume.pods for one in _of_owner(pod, context)}
    if not about:
        return findings
    stays = _not_migratable(context)
    owned = tuple(about.values())
    return tuple(_with_owners(item, owned, stays) for item in findings)


class _Owned(NamedTuple):
    """Holds a pod of a machine or of CDI, and what to state beside it."""

    pod: Pod
    sentence: Statement
    """Whose pod it is."""
    commands: tuple[Command, ...] = ()
    """Show the owner."""


def _not_migratable(context: RuleContext) -> tuple[str, ...]:
    """Return why KubeVirt does not migrate a machine with this claim live; empty if it may.

    As checkVolumesForMigration() in pkg/virt-handler/vm.go: DisksNotLiveMigratable.
    """
    claim = context.volume.claim
    if claim is None or "ReadWriteMany" in claim.access_modes:
        return ()
    modes = ", ".join(map(foreign_name, claim.access_modes))
    rule = "KubeVirt migrates a machine live only if all its claims are ReadWriteMany"
    return (f"claim {claim.ref} is {modes}: {rule}",)


def _with_owners(item: Finding, owned: tuple[_Owned, ...], stays: tuple[str, ...]) -> Finding:
    if item.code in _OWN:
        return item
    named = [one for one in owned if _is_named(one.pod, item)][:_MOST_NAMED]
    if not named:
        return item
    shown = [command for one in named for command in one.commands]
    return replace(
        item,
        statement=joined((item.statement, *(one.sentence for one in named))),
        evidence=(*item.evidence, *(stays if item.code == Code.IN_USE and shown else ())),
        commands=tuple(dict.fromkeys((*shown, *item.commands))),
    )


def _is_named(pod: Pod, item: Finding) -> bool:
    """Return whether a finding names a pod: in its statement, its evidence, or as one that waits.

    No text is searched: a tenant who makes pods chooses their names.
    """
    name = str(pod.ref)
    names = {*item.pods, *item.statement.values, *(str(one.ref) for one in item.waiting)}
    return not names.isdisjoint((name, pod.placed))


def _of_owner(pod: Pod, context: RuleContext) -> Iterator[_Owned]:
    """Yield whose pod it is."""
    machine = machine_of(pod, context.kube)
    claim = filled_claim(pod, context.kube)
    if machine is not None:
        what = "holds a volume that was added to" if machine.is_hotplugged else "runs"
        sentence = stated(
            "{pod} {} virtual machine {machine} (VirtualMachineInstance {instance}).",
            what,
            pod=pod.ref,
            machine=_name(machine),
            instance=foreign_name(machine.name),
        )
        yield _Owned(pod, sentence, (_show(machine),))
    elif claim is not None:
        sentence = stated("{pod} is of CDI, which fills claim {claim}.", pod=pod.ref, claim=claim)
        yield _Owned(pod, sentence)


RULES: Final = (Rule(640, shared, CollectScope.MIGRATIONS),)
