"""Manifests that are to be applied, and what would go wrong: the types of ``lint``."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from rbdagent.model.common import Gap, NotObserved
from rbdagent.model.diagnosis import Sentence, Severity, Subject
from rbdagent.model.kubernetes import (
    KubeView,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

Json = dict[str, Any]


class Place(Struct, frozen=True, kw_only=True, order=True):
    """Where a manifest is; documents and items count from 1."""

    file: str
    document: int
    item: int | None = None
    """The position in a List; None if the manifest is a whole document."""

    def __str__(self) -> str:
        """Return the place in output: ``restore.yaml, document 2, item 3``."""
        item = "" if self.item is None else f", item {self.item}"
        return f"{self.file}, document {self.document}{item}"


class ContentManifest(Struct, frozen=True, kw_only=True):
    """A VolumeSnapshotContent."""

    name: str
    driver: str
    snapshot_handle: str | None = None
    """``spec.source.snapshotHandle``: of a snapshot that exists."""
    volume_handle: str | None = None
    """``spec.source.volumeHandle``: of the volume of which a snapshot is to be taken."""
    deletion_policy: str = ""


class SecretRef(Struct, frozen=True, kw_only=True, order=True):
    """A reference of a PV to a Secret."""

    field: str
    """``spec.csi.nodeStageSecretRef``."""
    namespace: str
    name: str


ManifestObject = PersistentVolume | PersistentVolumeClaim | StorageClass | ContentManifest


class Manifest(Struct, frozen=True, kw_only=True):
    """An object that is to be applied."""

    place: Place
    kind: str
    name: str
    namespace: str = ""
    """Of a claim."""
    data: Json
    """As in the file."""
    object: ManifestObject
    secrets: tuple[SecretRef, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()
    """``ownerReferences``, whether or not they are controllers: ``StatefulSet/db`` and its uid."""
    resource_version: bool = False
    """Whether it has one: the API server gives it to an object that it stores."""


class Manifests(Struct, frozen=True, kw_only=True):
    """The objects of all files, in their order."""

    items: tuple[Manifest, ...] = ()
    namespaces: frozenset[str] = frozenset()
    """Names of the Namespaces in the files."""
    secrets: frozenset[tuple[str, str]] = frozenset()
    """Namespaces and names of the Secrets in the files; their content is not kept."""
    drivers: frozenset[str] = frozenset()
    """Names of the CSIDrivers in the files."""
    required_namespace: str = ""
    """That of `-n`, if it was given: kubectl refuses objects of others. Empty without it."""
    others: tuple[tuple[str, int], ...] = ()
    """The kinds that ``lint`` does not examine, with the number of their objects."""


class PoolMapping(Struct, frozen=True, kw_only=True):
    """An entry of ceph-csi's ``cluster-mapping.json``; each pair works in both directions."""

    clusters: tuple[tuple[str, str], ...] = ()
    pools: tuple[tuple[str, str], ...] = ()
    """Ids of pools."""


class CsiConfig(Struct, frozen=True, kw_only=True):
    """What the ConfigMaps of ceph-csi in a cluster contain."""

    clusters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Each clusterID with its monitors."""
    namespaces: tuple[tuple[str, str], ...] = ()
    """Each clusterID with its ``radosNamespace`` of RBD; empty for the default namespace. A
    clusterID has several if the ConfigMaps, or the fields that two versions read, differ."""
    mappings: tuple[PoolMapping, ...] = ()
    places: tuple[str, ...] = ()
    """The ConfigMaps: ``rook-ceph/rook-ceph-csi-config``."""


class SourceCluster(Struct, frozen=True, kw_only=True):
    """The cluster from which the manifests came."""

    name: str
    """The context of the kubeconfig."""
    view: KubeView | NotObserved
    csi_config: CsiConfig | NotObserved


class Surroundings(Struct, frozen=True, kw_only=True):
    """What ``lint`` asks beside the snapshot: only the names in the manifests lead to it."""

    csi_config: CsiConfig | NotObserved
    namespaces: dict[str, bool | NotObserved] = {}
    """Whether each namespace of a claim exists."""
    secrets: dict[tuple[str, str], bool | NotObserved] = {}
    """Whether each Secret exists to which a PV refers."""
    stored: dict[tuple[str, str, str], Json | NotObserved | None] = {}
    """By kind, namespace and name: each object that exists here under the name of a manifest."""
    origin: SourceCluster | None = None
    """None if it was not named."""


class Problem(Struct, frozen=True, kw_only=True):
    """What would go wrong with one object."""

    code: str
    severity: Severity
    subject: Subject
    place: Place
    field: str
    """The field of the manifest that causes it: ``spec.claimRef.uid``."""
    statement: str
    """One sentence or more; the first one is the cause."""
    evidence: tuple[str, ...] = ()
    remedy: Sentence = ""


class CleanPair(Struct, frozen=True, kw_only=True):
    """A PV and a claim that bind to each other and to nothing else."""

    volume: Json
    claim: Json
    notes: tuple[str, ...] = ()
    """What was changed beyond leftovers, and what a change of the manifests does not solve."""


class LintReport(Struct, frozen=True, kw_only=True):
    """What applying the manifests would lead to."""

    manifests: Manifests
    problems: tuple[Problem, ...]
    """The worst first, then in the order of the files."""
    bindings: tuple[tuple[ObjectRef, str], ...]
    """The claims that would bind, each with its PV."""
    not_observed: tuple[Gap, ...]
    unread: tuple[Gap, ...]
    """What rbdagent never reads, each with the command that shows it."""
    is_complete: bool
    """Whether everything was observed, apart from what was left out on request."""
    pairs: tuple[CleanPair, ...]
    without_pair: tuple[str, ...] = ()
    """The PVs for which no claim is known."""
