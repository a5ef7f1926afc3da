"""Recorded states of the real controllers: `lint` foretells what `diagnose` then reported.

Each state was made with the controllers of Kubernetes 1.36 (tests/integration/states). The objects
of its target are taken out of the cluster, and given to `lint` as manifests.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    CsiSource,
    OtherSource,
    PersistentVolume,
    PersistentVolumeClaim,
    Snapshot,
    observed_of,
)
from rbdagent.model.lint import Surroundings
from rbdagent.report.snapshot import load_snapshot
from tests.support.cli_runner import ROOT
from tests.support.manifests import UNASKED, WHOLE, codes_of, linted

Json = dict[str, Any]

LIFE: Final = ROOT / "tests" / "fixtures" / "life"
STATES: Final = {
    "misbound_after_a_restore": ("RBD404", True),
    "lost_its_volume_name": ("RBD630", False),
    "lost_its_volume": ("RBD631", False),
    "claimed_twice": ("RBD632", False),
    "named_volume_missing": ("RBD609", False),
    "named_volume_taken": ("RBD624", False),
    "named_volume_too_small": ("RBD610", True),
    "class_missing": ("RBD601", False),
    "no_class": ("RBD602", False),
}
"""Each state with the code that `diagnose` reported, and whether the PV is in the files, too."""


def manifest_of_volume(volume: PersistentVolume) -> Json:
    source = volume.source
    assert isinstance(source, CsiSource | OtherSource)
    csi = (
        {
            "driver": source.driver,
            "volumeHandle": source.volume_handle,
            "volumeAttributes": dict(source.attributes),
        }
        if isinstance(source, CsiSource)
        else {"driver": source.kind, "volumeHandle": source.volume_handle or "x"}
    )
    claim = volume.claim
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume.name},
        "spec": {
            "accessModes": [*volume.access_modes],
            "capacity": {"storage": str(volume.capacity_bytes)},
            "claimRef": claim
            and {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "csi": csi,
            "persistentVolumeReclaimPolicy": volume.reclaim_policy,
            "storageClassName": volume.storage_class,
            "volumeMode": volume.volume_mode,
        },
    }


def manifest_of_claim(claim: PersistentVolumeClaim) -> Json:
    annotation = {"pv.kubernetes.io/bind-completed": "yes"} if claim.bind_completed else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim.ref.name, "namespace": claim.ref.namespace, "annotations": annotation,
        },
        "spec": {
            "accessModes": [*claim.access_modes],
            "resources": {"requests": {"storage": str(claim.requested_bytes)}},
            "storageClassName": claim.storage_class,
            "volumeName": claim.volume_name,
            "volumeMode": claim.volume_mode,
        },
    }  # fmt: skip


def taken_out(snapshot: Snapshot, *, with_volume: bool) -> tuple[Snapshot, list[Json]]:
    """Return a cluster without the claim of its target and that claim's PV, and their manifests."""
    kube, key = snapshot.kubernetes, (snapshot.target.namespace, snapshot.target.name)
    assert kube is not None
    claims, volumes = observed_of(kube.claims), observed_of(kube.persistent_volumes)
    claim = next(one for one in claims if (one.ref.namespace, one.ref.name) == key)
    out = [one for one in volumes if with_volume and one.name == claim.volume_name]
    rest = replace(
        kube,
        claims=tuple(one for one in claims if one != claim),
        persistent_volumes=tuple(one for one in volumes if one not in out),
    )
    manifests = [*map(manifest_of_volume, out), manifest_of_claim(claim)]
    return replace(snapshot, target=WHOLE, kubernetes=rest), manifests


@pytest.mark.parametrize("state", STATES)
def test_what_happened_is_foretold(state: str) -> None:
    code, with_volume = STATES[state]
    recorded = load_snapshot((LIFE / f"{state}.json").read_text(), where=state)
    into, manifests = taken_out(recorded, with_volume=with_volume)
    found = linted(*manifests, into=into, around=Surroundings(csi_config=UNASKED))
    assert code in codes_of(found)
    assert found.bindings == ()
