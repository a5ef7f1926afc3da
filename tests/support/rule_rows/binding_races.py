"""Rows of the rules on races of the PV controller, by code: reported, or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.support.rule_rows.pv_controller import (
    GI,
    LOCAL,
    OF_OLD,
    OURS_BY_NAME,
    WAITING,
    free,
    life,
    wanting,
)
from tests.support.rule_tables import BY_POD, NOTHING_ELSE, NotReported, Reported
from tests.support.snapshots import UNSEEN, volume, waiting_pod

if TYPE_CHECKING:
    from rbdagent.model import PersistentVolume, Snapshot


def waiting(*volumes: PersistentVolume, **in_kube: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return a snapshot of a claim that waits for its first pod."""
    asked = {"claims": (wanting(provisioner=None),), "storage_classes": (WAITING,), **in_kube}
    return life(*volumes, **asked)


def created_again(version: object) -> Snapshot:
    """Return a snapshot of a claim that was created again, on a version of Kubernetes."""
    return life(volume(phase="Released", claim=OF_OLD, reclaim_policy="Retain"), version=version)


REPORTED: Final[Reported] = {
    "RBD634": {
        "a free PV": (waiting(free()), NOTHING_ELSE),
        "two free PVs": (waiting(free(), free("pv-other")), NOTHING_ELSE),
        "asked by its pod": (
            waiting(
                free(),
                pods=(waiting_pod(node=None, unschedulable="0/2 nodes: Insufficient memory"),),
                target=BY_POD,
            ),
            {"RBD604"},
        ),
    },
    "RBD635": {"Kubernetes 1.22": (created_again("v1.22.9"), {"RBD606"})},
}

NOT_REPORTED: Final[NotReported] = {
    "RBD634": {
        "it is reserved": waiting(free(claim=OURS_BY_NAME), free("pv-other")),
        "it is too small": waiting(free(capacity_bytes=GI - 1)),
        "it belongs to another claim": waiting(free(claim=OF_OLD, phase="Released")),
        "the scheduler has chosen a node": waiting(
            free(), claims=(wanting(selected_node="worker-1"),)
        ),
        "its class does not wait": life(free()),
        "its class creates no volume": waiting(free(), storage_classes=(LOCAL,)),
        "the PVs were not observed": waiting(persistent_volumes=UNSEEN),
        "the classes were not observed": waiting(free(), storage_classes=UNSEEN),
    },
    "RBD635": {
        "Kubernetes 1.23": created_again("v1.23.0"),
        "the version was not observed": created_again(UNSEEN),
        "no older PV": life(version="v1.22.9"),
    },
}
