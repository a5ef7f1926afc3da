"""Recorded states of a volume, from clusters with real controllers, and the codes that each has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rbdagent.commands import lines_of
from rbdagent.correlate import correlate
from rbdagent.lifecycle import steps
from rbdagent.model import Command, Lifecycle, Severity
from rbdagent.report.snapshot import load_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "life"
CODES: Final[dict[str, frozenset[str]]] = {
    "attachment_of_a_deleted_node": frozenset({"RBD410", "RBD401", "RBD115"}),
    "no_class": frozenset({"RBD602"}),
    "claim_without_class": frozenset({"RBD615"}),
    "class_missing": frozenset({"RBD601"}),
    "class_of_a_removed_plugin": frozenset({"RBD616"}),
    "class_that_makes_none": frozenset({"RBD602"}),
    "nothing_fits": frozenset({"RBD602"}),
    "selector_with_a_provisioner": frozenset({"RBD620"}),
    "provisioner_silent": frozenset({"RBD617"}),
    "provisioner_too_old": frozenset({"RBD608"}),
    "provisioner_down": frozenset({"RBD618"}),
    "provisioner_says_nothing": frozenset({"RBD606"}),
    "pool_missing": frozenset({"RBD607"}),
    "files_for_many_writers": frozenset({"RBD621"}),
    "first_pod_missing": frozenset(),
    "first_pod_without_node": frozenset({"RBD604"}),
    "first_pod_past_the_scheduler": frozenset({"RBD623"}),
    "selected_node_gone": frozenset({"RBD622"}),
    "named_volume_missing": frozenset({"RBD609"}),
    "named_volume_taken": frozenset({"RBD624"}),
    "named_volume_too_small": frozenset({"RBD610"}),
    "kept_volume_does_not_fit": frozenset({"RBD625"}),
    "lost_its_volume_name": frozenset({"RBD630"}),
    "lost_its_volume": frozenset({"RBD631"}),
    "misbound_after_a_restore": frozenset({"RBD404"}),
    "claimed_twice": frozenset({"RBD632"}),
    "kept_for_nobody": frozenset(),
    "released_and_retained": frozenset(),
    "released_and_wanted_again": frozenset({"RBD624"}),
    "deleted_while_watched": frozenset({"RBD115", "RBD641"}),
    "deleted_by_nobody": frozenset({"RBD643"}),
    "reclaim_failed": frozenset({"RBD612"}),
    "claim_kept_by_a_pod": frozenset({"RBD613"}),
    "claim_kept_by_a_strange_finalizer": frozenset({"RBD652"}),
    "claim_is_being_cloned": frozenset({"RBD650"}),
    "volume_deleted_before_its_claim": frozenset({"RBD614"}),
    "pods_claim_missing": frozenset({"RBD701"}),
    "pods_claim_being_deleted": frozenset({"RBD613"}),
    "volume_tied_to_a_zone": frozenset({"RBD702"}),
    "volume_limit_reached": frozenset({"RBD703"}),
    "no_room_for_the_pod": frozenset(),
    "ephemeral_claims_name_taken": frozenset({"RBD705", "RBD602"}),
    "claim_was_there_before_its_statefulset": frozenset({"RBD601"}),
    "rolling_update": frozenset({"RBD111", "RBD401"}),
    "two_replicas": frozenset({"RBD719", "RBD401"}),
    "used_by_another_workload": frozenset({"RBD112", "RBD401"}),
    "one_pod_at_a_time": frozenset({"RBD704"}),
    "rolling_update_with_one_pod_at_a_time": frozenset({"RBD704"}),
    "attach_fails": frozenset({"RBD413"}),
    "attachers_secret_missing": frozenset({"RBD733"}),
    "attached_by_nobody": frozenset({"RBD712"}),
    "attach_not_begun": frozenset({"RBD711"}),
    "driver_not_on_the_node": frozenset({"RBD731"}),
    "driver_gone_from_the_old_node": frozenset({"RBD201", "RBD401", "RBD119"}),
    "two_volumes_one_handle": frozenset({"RBD411"}),
    "detach_fails": frozenset({"RBD409", "RBD717"}),
    "attachment_idle": frozenset({"RBD715", "RBD717"}),
    "attachment_of_a_deleted_volume": frozenset({"RBD716", "RBD119"}),
    "volume_kept_by_its_attachment": frozenset({"RBD651", "RBD119"}),
    "open_outside": frozenset({"RBD402", "RBD115"}),
    "client_on_a_second_network": frozenset({"RBD402", "RBD119"}),
    "client_at_an_unknown_address": frozenset({"RBD724", "RBD401", "RBD119"}),
    "open_outside_and_used_here": frozenset({"RBD115"}),
    "kubelet_does_not_begin": frozenset({"RBD718"}),
    "detach_held": frozenset({"RBD713"}),
    "attach_during_its_own_detach": frozenset({"RBD713"}),
    "node_plugin_without_account": frozenset({"RBD731"}),
    "node_plugin_kept_off_by_its_selector": frozenset({"RBD731"}),
    "node_plugin_kept_off_by_a_taint": frozenset({"RBD731"}),
    "node_plugin_refused_by_pod_security": frozenset({"RBD731"}),
    "attacher_without_account": frozenset({"RBD712"}),
    "attacher_scaled_to_none": frozenset({"RBD712"}),
    "provisioner_over_quota": frozenset({"RBD618"}),
    "runs_on_a_silent_node": frozenset({"RBD113"}),
    "pod_is_ending": frozenset(),
    "out_of_service_and_alive": frozenset({"RBD726"}),
    "unmount_fails": frozenset({"RBD724", "RBD401", "RBD119"}),
    "pod_held_by_a_finalizer": frozenset({"RBD654"}),
    "pod_does_not_end": frozenset({"RBD722", "RBD401"}),
    "unmount_fails_before_the_pod_is_gone": frozenset({"RBD724"}),
    "evicted_from_a_silent_node": frozenset({"RBD725", "RBD113", "RBD401"}),
    "released_though_claimed": frozenset({"RBD406"}),
    "bound_to_a_gone_claim": frozenset({"RBD636"}),
}
"""The codes at warning or above of each state of tests/integration/states."""
FIXED: Final = (
    "nothing_fits",
    "first_pod_past_the_scheduler",
    "selected_node_gone",
    "misbound_after_a_restore",
    "released_and_wanted_again",
    "deleted_by_nobody",
    "reclaim_failed",
    "rolling_update",
    "two_replicas",
    "rolling_update_with_one_pod_at_a_time",
    "attacher_scaled_to_none",
)
"""States that end when the commands of their first finding are run."""
RECOVERY: Final = (
    "attach_fails",
    "attachers_secret_missing",
    "detach_fails",
    "detach_held",
    "attach_during_its_own_detach",
    "runs_on_a_silent_node",
    "driver_gone_from_the_old_node",
    "unmount_fails",
    "pod_does_not_end",
    "evicted_from_a_silent_node",
)
"""States that end as their finding reports, once the problem that the remedy names is fixed."""
PROBABLE: Final = {
    "client_on_a_second_network": (
        "played-network is probable, because the annotation k8s.ovn.org/host-cidrs of Node "
        "played-network lists 10.77.0.91"
    ),
    "client_at_an_unknown_address": (
        "its node is probably played-unknown, because it has a VolumeAttachment of the volume and "
        "its kubelet lists the volume in volumesInUse, and no other client of the volume is known "
        "there"
    ),
}
"""States with a client whose address is no InternalIP of a Node, and what leads to its node.

They are asked on the node where a pod waits: nothing is mapped there.
"""
FROM_OUTSIDE: Final = PROBABLE | {
    "client_at_an_unknown_address": (
        "it may be on a node where no client of the volume is known: played-3 (its kubelet lists "
        "the volume in volumesInUse, and a pod there waits for it), played-unknown (it has a "
        "VolumeAttachment of the volume and its kubelet lists the volume in volumesInUse)"
    ),
}
"""The same, asked from outside: the node where the pod waits may have the client too."""
NOT_RUN: Final = {
    "founding_orphan": "its commands are run for held_by_an_orphan",
    "bound_to_a_gone_claim": "they keep the image, and the controller ends the state when it runs",
    "released_though_claimed": "today's PV controller ends it automatically, as soon as it runs",
}
"""States whose first finding has a command that changes something, which no test runs; and why."""
_CHANGES: Final = re.compile(
    r"(kubectl (-n \S+ )?(patch|annotate|label|delete|taint|scale)|rbd feature disable|"
    r"rbdagent unmap .*--yes)\b"
)
_OTHERWISE: Final = "# instead"


def ways(commands: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the commands of a remedy that change something, and the alternatives among them."""
    changes = [command for command in commands if _CHANGES.match(command)]
    other = [command for command in changes if _OTHERWISE in command]
    return [command for command in changes if command not in other], other


def lines_in(commands: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return commands of the JSON output as lines to run."""
    return lines_of(msgspec.convert(given, Command) for given in commands)


CODES_ON_NODES: Final[dict[str, tuple[str, ...]]] = {
    "founding_pinned": ("RBD102", "RBD401"),
    "founding_orphan": ("RBD101", "RBD402"),
    "key_of_somebody_else": ("RBD736",),
    "features_that_krbd_lacks": ("RBD740",),
    "kernel_without_the_module": ("RBD739",),
    "monitors_out_of_reach": ("RBD735",),
    "cluster_that_is_not_configured": ("RBD734",),
    "image_missing": ("RBD738", "RBD119"),
    "secret_missing": ("RBD733",),
    "image_too_small_for_its_file_system": ("RBD751",),
    "file_system_damaged": ("RBD752",),
    "another_file_system": ("RBD753",),
    "empty_and_only_to_be_read": ("RBD754",),
    "files_for_many_nodes": ("RBD756",),
    "device_used_as_a_directory": ("RBD757",),
    "directory_used_as_a_device": ("RBD757",),
    "outside_of_its_affinity": ("RBD702",),
    "plugin_of_old": ("RBD760",),
    "driver_missing_on_its_node": ("RBD731",),
    "driver_that_nobody_installed": ("RBD732",),
    "restored_and_misbound": ("RBD404",),
    "turned_read_only": ("RBD755",),
    "held_by_a_stranger": ("RBD115", "RBD402"),
    "held_by_an_orphan": ("RBD101", "RBD402"),
    "rolling_update_with_surge": ("RBD111", "RBD401"),
    "replicas_with_one_claim": ("RBD719", "RBD401"),
    "second_pod_of_a_volume_for_one": ("RBD704",),
    "pod_of_somebody_else": ("RBD112", "RBD401"),
    "kept_by_another_pod": ("RBD102", "RBD401"),
    "pod_kept_by_a_finalizer": ("RBD654",),
    "process_that_cannot_be_killed": ("RBD722",),
    "stage_that_hangs": ("RBD203",),
    "plugin_that_does_not_run": ("RBD201",),
    "map_on_a_blocklisted_client": ("RBD308",),
    "lock_of_a_dead_client": ("RBD742",),
}
"""The codes at warning or above of states on real nodes (tests/e2e/node_states.py and others);
the code of the first finding comes first."""
FIXED_ON_NODES: Final = (
    "features_that_krbd_lacks",
    "restored_and_misbound",
    "turned_read_only",
    "held_by_an_orphan",
    "rolling_update_with_surge",
    "replicas_with_one_claim",
    "kept_by_another_pod",
)
"""States on real nodes that end when the commands of their first finding are run."""


def lifecycle_of(state: str) -> Lifecycle:
    """Return the lifecycle of the volume in a recorded state."""
    file = FIXTURES / f"{state}.json"
    snapshot = load_snapshot(file.read_text(), where=file.name)
    return steps.lifecycle_of(correlate(snapshot), snapshot)


def codes_of(state: str) -> list[str]:
    """Return the codes at warning or above of a recorded state, in order."""
    return [
        finding.code
        for finding in lifecycle_of(state).findings
        if finding.severity is not Severity.INFO
    ]
