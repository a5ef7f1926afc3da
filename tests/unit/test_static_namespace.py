"""The RADOS namespace of a static volume: ceph-csi's configuration alone decides it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.correlate.resolve import images_of
from rbdagent.model import (
    CsiImageMeta,
    CsiSource,
    ImagePresence,
    ObjectRef,
    PublishedMapping,
    PublishedNode,
    Verdict,
)
from rbdagent.parse.csi_config import parse_csi_config
from tests.support.snapshots import (
    DRIVER,
    NOW,
    PV,
    SPEC,
    attachment,
    codes,
    diagnosis_of,
    found,
    image_view,
    pod,
    staging,
    unmapped,
    volume,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import PersistentVolume, Snapshot

TENANT: Final = replace(SPEC, namespace="tenant")
GONE: Final = image_view(presence=ImagePresence.GONE, image_id=None, watchers=())
TRASH: Final = image_view(presence=ImagePresence.TRASH, watchers=())
OF_TENANT: Final = image_view(spec=TENANT)


def static(**attributes: str) -> PersistentVolume:
    """Return a static PV of the image, whose clusterID may have a RADOS namespace."""
    given = {"clusterID": "lab-ceph-1", "pool": SPEC.pool, "staticVolume": "true"} | attributes
    source = CsiSource(
        driver=DRIVER, volume_handle=SPEC.name, attributes=tuple(sorted(given.items()))
    )
    return volume(source=source)


def seen(*images: Any, **parts: Any) -> Snapshot:  # noqa: ANN401 - parts of a snapshot
    """Return a snapshot of a static PV that nothing here has mapped."""
    in_kube = {"persistent_volumes": (static(),), **parts.pop("in_kube", {})}
    return unmapped(in_ceph={"images": images}, in_kube=in_kube, **parts)


ABSENT: Final = {
    "not in the default namespace": seen(GONE),
    "an image of that name in the trash of the default namespace": seen(TRASH),
    "not in the namespace of the volumeAttributes, which ceph-csi does not read": seen(
        image_view(
            spec=replace(SPEC, namespace="a"),
            presence=ImagePresence.GONE,
            image_id=None,
            watchers=(),
        ),
        in_kube={"persistent_volumes": (static(radosNamespace="a"),)},
    ),
    "a pod runs with it": seen(GONE, in_kube={"pods": (pod(),)}),
    "a pod runs with it on another node": seen(
        GONE, in_kube={"pods": (pod(node_name="worker-2"),)}
    ),
    "attached, and no mapping here": seen(GONE, in_kube={"attachments": (attachment(),)}),
    "another image of that name in another namespace": seen(GONE, OF_TENANT),
}
_OF_ABSENCE: Final = frozenset({"RBD118", "RBD207", "RBD301", "RBD302"})


@pytest.mark.parametrize("state", ABSENT)
def test_image_that_need_not_be_in_the_default_namespace_is_not_called_absent(state: str) -> None:
    diagnosis = diagnosis_of(ABSENT[state])
    assert not _OF_ABSENCE & codes(ABSENT[state])
    assert diagnosis.verdict not in {Verdict.FREE, Verdict.STALE_ATTACHMENT}


def test_watch_of_a_pod_elsewhere_is_not_called_absent() -> None:
    provisioned = unmapped(in_kube={"pods": (pod(node_name="worker-2"),)})
    assert "RBD416" in codes(provisioned)
    assert "RBD416" not in codes(ABSENT["a pod runs with it on another node"])


def test_mapping_of_another_namespace_may_be_the_volume() -> None:
    state = world(
        mapped={"spec": TENANT, "mounts": ()},
        in_ceph={"images": (GONE,)},
        in_kube={"persistent_volumes": (static(),), "pods": (pod(),)},
    )
    assert not {"RBD207", "RBD301", "RBD416"} & codes(state)


def test_finding_says_which_fact_decides_and_how_to_see_it() -> None:
    finding = found(ABSENT["not in the default namespace"], "RBD119")
    assert "the radosNamespace of its clusterID lab-ceph-1 in ceph-csi's configuration" in (
        finding.message
    )
    assert any("metadata.name=ceph-csi-config" in given.argv for given in finding.commands)


def test_image_in_the_default_namespace_is_that_of_the_volume() -> None:
    state = seen(image_view(watchers=()))
    assert diagnosis_of(state).volume.image == diagnosis_of(unmapped()).volume.image


def test_provisioned_volume_that_is_gone_is_called_absent() -> None:
    state = unmapped(in_ceph={"images": (GONE,)})
    assert "RBD301" in codes(state)


def test_report_of_an_agent_shows_the_namespace() -> None:
    mapping = PublishedMapping(
        device="/dev/rbd0", verdict=Verdict.IN_USE, spec=TENANT, persistent_volume=PV
    )
    report = PublishedNode(name="worker-2", observed_at=NOW, mappings=(mapping,))
    state = seen(GONE, OF_TENANT, in_kube={"published": (report,)})
    image = diagnosis_of(state).volume.image
    assert image is not None
    assert image.spec == TENANT


def with_another_pv(cluster_id: str) -> Snapshot:
    """Return a provisioned PV of the image, and a static one that a pod uses on another node."""
    first = volume()
    assert isinstance(first.source, CsiSource)
    attributes = (*first.source.attributes, ("radosNamespace", "tenant"))
    other = replace(
        static(clusterID=cluster_id),
        name="pv-b",
        claim=ObjectRef(namespace="default", name="other", uid="other-uid"),
    )
    return seen(
        GONE,
        replace(OF_TENANT, watchers=()),
        of_kubelet={"staging": ()},
        in_kube={
            "persistent_volumes": (
                replace(first, source=replace(first.source, attributes=attributes)),
                other,
            ),
            "pods": (pod(node="worker-2", claims=("other",)),),
            "attachments": (attachment("worker-2", persistent_volume="pv-b", name="csi-b"),),
        },
    )


def test_static_pv_with_the_cluster_id_of_a_known_pv_is_in_its_namespace() -> None:
    diagnosis = diagnosis_of(with_another_pv("lab-ceph-1"))
    assert [one.name for one in diagnosis.volume.other_volumes] == ["pv-b"]
    assert diagnosis.verdict is Verdict.IN_USE


def test_image_is_not_free_while_a_static_pv_may_name_it() -> None:
    state = with_another_pv("lab-ceph-2")
    assert diagnosis_of(state).verdict is Verdict.UNDETERMINED
    assert "pv-b is a static volume with the name of the image" in found(state, "RBD119").message


def stash() -> dict[str, Any]:
    return {"staging": (staging(volume_handle=SPEC.name, stash=CsiImageMeta(spec=TENANT)),)}


def test_stash_of_ceph_csi_shows_the_namespace() -> None:
    state = seen(GONE, OF_TENANT, of_kubelet=stash())
    image = diagnosis_of(state).volume.image
    assert image is not None
    assert (image.spec, image.namespace_by) == (TENANT, None)
    (asked,) = images_of(state.target, state.node, state.kubernetes)
    assert asked.spec == TENANT


def test_image_that_is_gone_from_the_namespace_of_the_stash_is_absent() -> None:
    gone = image_view(spec=TENANT, presence=ImagePresence.GONE, image_id=None, watchers=())
    assert "RBD301" in codes(seen(gone, of_kubelet=stash()))


@pytest.mark.parametrize(
    ("cluster", "namespaces"),
    [
        ({"clusterID": "a"}, (("a", ""),)),
        ({"clusterID": "a", "rbd": {"radosNamespace": "t"}}, (("a", "t"),)),
        ({"clusterID": "a", "rbd": None}, (("a", ""),)),
        # Which of two fields counts depends on the version of ceph-csi.
        ({"clusterID": "a", "radosNamespace": "t"}, (("a", ""), ("a", "t"))),
        ({"clusterID": "a", "radosNamespace": "t", "rbd": {"radosNamespace": "t"}}, (("a", "t"),)),
    ],
)
def test_configuration_shows_the_namespace_of_a_cluster_id(
    cluster: dict[str, Any], namespaces: tuple[tuple[str, str], ...]
) -> None:
    data = {
        "metadata": {"name": "ceph-csi-config"},
        "data": {"config.json": json.dumps([cluster])},
    }
    assert parse_csi_config(data).namespaces == namespaces


@pytest.mark.parametrize("is_shown", [False, True])
def test_device_is_no_orphan_of_a_pv_whose_namespace_is_an_assumption(*, is_shown: bool) -> None:
    """Assert doubt: the image may be a copy that an administrator has mapped."""
    directory = staging(volume_handle=SPEC.name, stash=CsiImageMeta(spec=SPEC))
    state = world(
        of_kubelet={"staging": (directory,) if is_shown else ()},
        in_kube={"persistent_volumes": (static(),)},
    )
    expected = Verdict.ORPHANED if is_shown else Verdict.UNDETERMINED
    assert diagnosis_of(state).holders[0].verdict is expected
