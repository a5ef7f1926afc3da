"""Parser of the ConfigMaps that ceph-csi reads: clusters with their monitors, and mappings."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from rbdagent.errors import ParseError
from rbdagent.model.lint import CsiConfig, PoolMapping

Json = dict[str, Any]

CONFIG_MAPS: Final = ("ceph-csi-config", "rook-ceph-csi-config", "rook-ceph-csi-mapping-config")
"""Of ceph-csi's manifests, chart and operator, and of Rook, which has the mappings in its own."""
_CLUSTERS: Final = ("config.json", "csi-cluster-config-json")
_MAPPINGS: Final = ("cluster-mapping.json", "csi-mapping-config-json")


class _Rbd(Struct, frozen=True, rename={"namespace": "radosNamespace"}):
    namespace: str | None = None


class _Cluster(
    Struct, frozen=True, rename={"cluster_id": "clusterID", "namespace": "radosNamespace"}
):
    cluster_id: str = ""
    monitors: tuple[str, ...] | None = None
    rbd: _Rbd | None = None
    namespace: str | None = None
    """Where ceph-csi before the field ``rbd`` had it (commit fc5eadf10)."""


class _Mapping(Struct, frozen=True, rename="lower"):
    clusteridmapping: dict[str, str] | None = None
    rbdpoolidmapping: tuple[dict[str, str], ...] | None = None


def parse_csi_config(data: Json) -> CsiConfig:
    """Read a ConfigMap of ceph-csi; its other keys are left out.

    ``config.json`` is a list of clusters (readClusterInfo, internal/util/csiconfig.go@52fcb7b), and
    ``cluster-mapping.json`` a list of mappings (internal/util/cluster_mapping.go). Rook writes
    ClusterIDMapping: Go compares the names of fields without regard to case.

    Raises:
        ParseError: a key has no such list.
    """
    meta, values = data["metadata"], data.get("data") or {}
    place = f"{meta.get('namespace', '')}/{meta['name']}"
    clusters: list[_Cluster] = []
    mappings: list[_Mapping] = []
    for key, text in values.items():
        if key in _CLUSTERS:
            clusters += _read(tuple[_Cluster, ...], text, place, key)
        elif key in _MAPPINGS:
            mappings += _read(tuple[_Mapping, ...], _lower_keys(text), place, key)
    return CsiConfig(
        clusters=tuple((one.cluster_id, one.monitors or ()) for one in clusters),
        namespaces=tuple((one.cluster_id, name) for one in clusters for name in _namespaces(one)),
        mappings=tuple(
            PoolMapping(
                clusters=tuple((one.clusteridmapping or {}).items()),
                pools=tuple(pair for pools in one.rbdpoolidmapping or () for pair in pools.items()),
            )
            for one in mappings
        ),
        places=(place,),
    )


def _namespaces(cluster: _Cluster) -> tuple[str, ...]:
    """Return the RADOS namespaces that a cluster's RBD images have, by the version of ceph-csi."""
    name = "" if cluster.rbd is None else cluster.rbd.namespace or ""
    return tuple(dict.fromkeys((name, cluster.namespace or name)))


def _read(kind: Any, text: object, place: str, key: str) -> Any:  # noqa: ANN401 - msgspec's own
    """Return a list; empty for an empty text, as Rook writes it before it knows a cluster."""
    if not isinstance(text, str) or not text.strip():
        return ()
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError):
        raise ParseError(
            what=f"the key {key}",
            where=f"ConfigMap {place}",
            text=None,
            expected="a JSON list, as ceph-csi reads it",
        ) from None


def _lower_keys(text: object) -> object:
    """Return a list of JSON objects whose own keys are in lower case; other texts unchanged."""
    if not isinstance(text, str):
        return text
    try:
        listed = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return text
    lowered = [{key.lower(): value for key, value in one.items()} for one in listed]
    return msgspec.json.encode(lowered).decode()
