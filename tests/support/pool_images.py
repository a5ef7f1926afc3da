"""Builders of the images of a pool, and of what refers to them."""

# ruff: noqa: ANN401 - a builder takes any field of what it builds

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from rbdagent.correlate.image_references import Found, Observed, place_of
from rbdagent.model import (
    CsiSource,
    ImageSpec,
    InTreeRbdSource,
    NotObserved,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
)
from rbdagent.model.inventory import (
    ImageFacts,
    ImageReport,
    JournalEntry,
    JudgedImage,
    ListedImage,
    ListedPool,
    Listing,
    References,
    SnapshotContent,
)
from rbdagent.verdicts.image_verdict import judge_images
from tests.support.snapshots import DRIVER, FSID, NOW

UUID: Final = "a5aedea1-28da-40b4-92b8-33fd7de38647"
OTHER: Final = "bbbbbbbb-1111-2222-3333-bbbbbbbbbbbb"
CLAIM_UID: Final = "7d6d4e77-8106-4cb4-948f-997d0d5f6de1"
PV_KEY: Final = "csi.storage.k8s.io/pv/name"
CONTENT_KEY: Final = "csi.storage.k8s.io/volumesnapshotcontent/name"
CLUSTER_KEY: Final = "csi.ceph.com/cluster/name"


def handle(uuid: str = UUID, *, cluster_id: str = "lab-ceph-1", pool_id: int = 1) -> str:
    return f"0001-{len(cluster_id):04x}-{cluster_id}-{pool_id:016x}-{uuid}"


def volume(name: str = "pv-a", **attributes: Any) -> PersistentVolume:
    """Return a PV of ceph-csi; ``volume_handle`` and ``driver`` are no attributes."""
    source = CsiSource(
        driver=attributes.pop("driver", DRIVER),
        volume_handle=attributes.pop("volume_handle", handle()),
        attributes=tuple(sorted(attributes.items())),
    )
    return PersistentVolume(name=name, phase="Bound", source=source)


def in_tree(name: str = "pv-a", *, image: str, pool: str = "k8s") -> PersistentVolume:
    source = InTreeRbdSource(spec=ImageSpec(pool=pool, name=image))
    return PersistentVolume(name=name, phase="Bound", source=source)


def claim(uid: str = CLAIM_UID) -> PersistentVolumeClaim:
    ref = ObjectRef(namespace="shop", name="data", uid=uid)
    return PersistentVolumeClaim(ref=ref, phase="Pending")


def content(name: str = "snapcontent-1", **changes: Any) -> SnapshotContent:
    return replace(SnapshotContent(name=name, driver=DRIVER), **changes)


def references(**changes: Any) -> References:
    return replace(References(volumes=(), claims=(), inline=(), snapshots=()), **changes)


def listed(name: str = f"csi-vol-{UUID}", **changes: Any) -> ListedImage:
    spec = ImageSpec(
        pool=changes.pop("pool", "k8s"), namespace=changes.pop("namespace", ""), name=name
    )
    image = ListedImage(spec=spec, image_id="101", fsid=FSID, cluster="ceph", pool_id=1)
    return replace(image, **changes)


def facts(**changes: Any) -> ImageFacts:
    """Return the facts of an image that nothing uses."""
    unused = ImageFacts(
        size_bytes=1 << 30,
        created_at="2026-01-02T03:04:05Z",
        watchers=(),
        daemons=(),
        parent=None,
        snapshots=(),
        children=(),
        metadata=(),
        journal=None,
        mirrored=False,
    )
    return replace(unused, **changes)


def metadata(**values: str) -> tuple[tuple[str, str], ...]:
    keys = {"pv": PV_KEY, "content": CONTENT_KEY, "cluster": CLUSTER_KEY}
    return tuple(sorted((keys[name], value) for name, value in values.items()))


def entry(request: str = f"pvc-{CLAIM_UID}", *, snapshot: bool = False) -> JournalEntry:
    begin = "csi.snap." if snapshot else "csi.volume."
    return JournalEntry(object_name=f"{begin}{UUID}", request=request)


def listing(*images: ListedImage, **changes: Any) -> Listing:
    pools: dict[tuple[str, str], list[ListedImage]] = {}
    for image in images:
        pools.setdefault((image.spec.pool, image.spec.namespace), []).append(image)
    found = tuple(
        ListedPool(
            cluster="ceph",
            fsid=FSID,
            pool=pool,
            pool_id=theirs[0].pool_id,
            namespace=namespace,
            images=tuple(theirs),
        )
        for (pool, namespace), theirs in pools.items()
    )
    return replace(Listing(pools=found, clusters=("ceph",)), **changes)


def report(
    *images: tuple[ListedImage, ImageFacts | NotObserved | None],
    given: References | None = None,
    renamed: dict[ListedImage, Found] | None = None,
    **of_listing: Any,
) -> ImageReport:
    """Return the report about images with their facts."""
    observed = Observed(
        listing=listing(*(image for image, _ in images), **of_listing),
        references=references() if given is None else given,
        facts={place_of(image): found for image, found in images},
        renamed={place_of(image): found for image, found in (renamed or {}).items()},
    )
    return judge_images(observed, observed_at=NOW)


def judged(
    image: ListedImage | None = None,
    found: ImageFacts | NotObserved | None = None,
    given: References | None = None,
) -> JudgedImage:
    """Return the verdict on one image that is alone in its pool."""
    (one,) = report((image or listed(), facts() if found is None else found), given=given).images
    return one
