"""No warning for a healthy or a recent state, and no cause that was not observed."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.model import ContainerState, ObjectRef, Snapshot
from tests.support.rows import each_row
from tests.support.rule_rows import (
    attach_detach,
    foreign_clusters,
    node_stage,
    scheduling,
    termination,
)
from tests.support.rule_tables import attached, listing, problem_codes
from tests.support.snapshots import (
    NOW,
    UNSEEN,
    claim,
    diagnosis_of,
    kube,
    mount,
    node,
    pod,
    remote_watcher,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

LATELY: Final = "2026-11-21T02:59:40Z"
SOON: Final = "2026-11-21T03:00:20Z"
RUNNING: Final = ContainerState(name="c", state="running")
ENDED: Final = ContainerState(name="c", state="terminated")
CREATING: Final = ContainerState(name="c", state="waiting", reason="ContainerCreating")
BOTH: Final = (listing("worker-1"), listing("worker-2"))
WATCHED_BY_BOTH: Final = {"watchers": (watcher(), remote_watcher())}


def modes(*access: str, volume_mode: str = "Filesystem") -> dict[str, Any]:
    """Return a PV and its claim with these access modes."""
    return {
        "persistent_volumes": (volume(access_modes=access, volume_mode=volume_mode),),
        "claims": (claim(access_modes=access, volume_mode=volume_mode, bind_completed=True),),
    }


RWO: Final = modes("ReadWriteOnce")
MOUNTED: Final = {"mounts": (mount(),)}
STARTING: Final = waiting_pod(placed_at=LATELY, created_at=LATELY, containers=(CREATING,))
ENDING: Final = pod(deleting_since=SOON, containers=(RUNNING,))

WELL: Final[dict[str, Snapshot]] = {
    "a pod runs": world(
        mapped=MOUNTED,
        in_kube={**RWO, "pods": (pod(),), "attachments": attached("worker-1"), "nodes": BOTH},
    ),
    "two pods on one node": world(
        mapped=MOUNTED,
        in_kube={
            **RWO,
            "pods": (pod(), pod("b", ref=ObjectRef(namespace="default", name="b", uid="b"))),
            "attachments": attached("worker-1"),
            "nodes": BOTH,
        },
    ),
    "read by many, and one more is starting": unmapped(
        in_kube={
            **modes("ReadOnlyMany"),
            "pods": (pod("a", "worker-2"), waiting_pod("b", "worker-1", placed_at=LATELY)),
            "attachments": attached("worker-1", "worker-2"),
            "nodes": BOTH,
        }
    ),
    "raw block for many, and one more is starting": world(
        of_image=WATCHED_BY_BOTH,
        in_kube={
            **modes("ReadWriteMany", volume_mode="Block"),
            "pods": (pod(), pod("b", "worker-2"), waiting_pod("c", "worker-3", placed_at=LATELY)),
            "attachments": (*attached("worker-1", "worker-2"),
                            *attached("worker-3", attached=False, created_at=LATELY)),
            "nodes": (*BOTH, node("worker-3")),
        },
    ),
    "raw block moves from node to node while both have it": world(
        of_image=WATCHED_BY_BOTH,
        in_kube={
            **modes("ReadWriteMany", volume_mode="Block"),
            "pods": (ENDING, pod("b", "worker-2")),
            "attachments": attached("worker-1", "worker-2"),
            "nodes": BOTH,
        },
    ),
    "a pod has just got its node": unmapped(
        in_kube={**RWO, "pods": (STARTING,), "nodes": (node(), node("worker-2"))}
    ),
    "it is being attached": unmapped(
        in_kube={
            **RWO,
            "pods": (STARTING,),
            "attachments": attached("worker-2", attached=False, created_at=LATELY),
        }
    ),
    "it is attached, and kubelet has not reported yet": unmapped(
        in_kube={
            **RWO,
            "pods": (STARTING,),
            "attachments": attached("worker-2", created_at=LATELY),
        }
    ),
    "mkfs of a large image takes its time": unmapped(
        in_kube={
            **RWO,
            "pods": (waiting_pod(containers=(CREATING,)),),
            "attachments": attached("worker-2"),
            "nodes": BOTH,
        }
    ),
    "a StatefulSet's pod moves: the old one is ending": world(
        mapped=MOUNTED,
        in_kube={
            **RWO,
            "pods": (replace(ENDING, owners=("StatefulSet/web",)),),
            "attachments": attached("worker-1"),
            "nodes": BOTH,
        },
    ),
    "a StatefulSet's pod moves: the new one waits for the last detach": unmapped(
        in_kube={
            **RWO,
            "pods": (replace(STARTING, owners=("StatefulSet/web",)),),
            "attachments": attached("worker-1", deleting_since=LATELY),
            "nodes": BOTH,
        }
    ),
    "Recreate: the old pod is ending, the new one waits": world(
        mapped=MOUNTED,
        in_kube={
            **RWO,
            "pods": (ENDING, waiting_pod(placed_at=LATELY)),
            "attachments": attached("worker-1"),
            "nodes": BOTH,
        },
    ),
    "a Job has ended, and its pod stays": unmapped(
        in_kube={**RWO, "pods": (pod(phase="Succeeded", containers=(ENDED,)),)}
    ),
    "a pod that failed stays beside the next one": world(
        mapped=MOUNTED,
        in_kube={
            **RWO,
            "pods": (pod(), pod("old", "worker-2", phase="Failed", containers=(ENDED,))),
            "attachments": attached("worker-1"),
            "nodes": BOTH,
        },
    ),
    "a claim without a pod": unmapped(in_kube=RWO),
    "a node has come back from its update": unmapped(
        in_kube={
            **RWO,
            "nodes": (node(ready_changed_at=NOW), node("worker-2", unschedulable=True)),
        }
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WELL)
def test_healthy_state_leads_to_no_warning(name: str) -> None:
    assert problem_codes(WELL[name]) == set()


FAMILIES: Final = (
    attach_detach,
    foreign_clusters,
    termination,
    node_stage,
    scheduling,
)
EVERY: Final = [
    pytest.param(seen, id=f"{code}: {name}")
    for family in FAMILIES
    for code, rows in family.REPORTED.items()
    for name, (seen, _) in rows.items()
]
KINDS: Final = (
    "persistent_volumes",
    "claims",
    "pods",
    "nodes",
    "csi_nodes",
    "attachments",
    "events",
    "workloads",
)


@each_row("seen", EVERY)
def test_missing_source_leads_to_no_further_cause(seen: Snapshot) -> None:
    view = seen.kubernetes or kube()
    less = [replace(seen, kubernetes=replace(view, **{kind: UNSEEN})) for kind in KINDS]
    less += [replace(seen, **{source: None}) for source in ("node", "ceph", "kubernetes")]
    known = {finding.code for finding in diagnosis_of(seen).findings}
    for partial in less:
        assert {code for code in problem_codes(partial) - known if code.startswith("RBD7")} == set()


DANGEROUS: Final = re.compile(
    r"finalizers?\"|--force|-o force|--grace-period|blocklist (range )?(add|rm)|umount -"
    r"|rbd lock rm|out-of-service|delete (volumeattachment|pv|pvc|node)|promote"
)
"""Commands that may lose data or leave orphans if they are run at the wrong time."""


@each_row("seen", EVERY)
def test_no_command_is_dangerous(seen: Snapshot) -> None:
    for finding in diagnosis_of(seen).findings:
        for command in lines_of(finding.commands):
            assert not DANGEROUS.search(command)
            assert "{" not in command.split("'")[0]
            assert "None" not in command


@each_row("seen", EVERY)
def test_each_problem_states_its_recovery(seen: Snapshot) -> None:
    for finding in diagnosis_of(seen).findings:
        if finding.severity != "info" and finding.code.startswith("RBD7"):
            assert finding.recovery is not None
