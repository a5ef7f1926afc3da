"""The verdict on an image of a pool: Unclaimed is the last one, and needs every deciding fact."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.correlate.image_references import Found, ImageReferences, facts_to_read
from rbdagent.model import (
    EntityAddress,
    ImageSpec,
    InTreeRbdSource,
    NotObserved,
    ObjectRef,
    OtherSource,
    PersistentVolume,
    ServiceAddress,
    Watcher,
)
from rbdagent.model.inventory import (
    ImageFacts,
    ImageVerdict,
    InlineVolume,
    JudgedImage,
    ListedImage,
    Origin,
    References,
    TrashEntry,
    TrashSource,
)
from tests.support.pool_images import (
    CLAIM_UID,
    OTHER,
    UUID,
    claim,
    content,
    entry,
    facts,
    handle,
    in_tree,
    judged,
    listed,
    listing,
    metadata,
    references,
    report,
    volume,
)

UNSEEN: Final = NotObserved(reason="client.rbdagent has no permission to read it")
ADDRESS: Final = EntityAddress(ip="10.77.0.12", nonce=7)
WATCHER: Final = Watcher(address=ADDRESS, client=4123, cookie=1)
MANAGER: Final = ServiceAddress(kind="mgr", name="x", address=ADDRESS)
SNAP: Final = f"csi-snap-{UUID}"
TEMPORARY: Final = f"csi-vol-{UUID}-temp"
IN_TREE: Final = f"kubernetes-dynamic-pvc-{OTHER}"
TRASH: Final = TrashEntry(
    name="x", source=TrashSource.USER, since="2026-01-01T00:00:00Z", until="2027-01-01T00:00:00Z"
)
STATIC: Final = {"pool": "k8s", "clusterID": "lab", "staticVolume": "true"}
BEING_MADE: Final = content(snapshot=ObjectRef(namespace="a", name="b", uid=OTHER))


class Case(NamedTuple):
    """An image, its facts, and the objects of Kubernetes."""

    image: ListedImage = listed()
    found: ImageFacts | NotObserved = facts()
    given: References = references()

    @property
    def judged(self) -> JudgedImage:
        return judged(self.image, self.found, self.given)


def of_volume(
    name: str = f"csi-vol-{UUID}",
    pv: PersistentVolume | None = None,
    **image: Any,  # noqa: ANN401
) -> Case:
    return Case(listed(name, **image), given=references(volumes=(pv or volume(),)))


def other_driver(**source: Any) -> PersistentVolume:  # noqa: ANN401
    return PersistentVolume(
        name="pv-a", phase="Bound", source=OtherSource(kind="block.example.org", **source)
    )


def inline(image: str) -> InlineVolume:
    source = InTreeRbdSource(spec=ImageSpec(pool="k8s", name=image))
    return InlineVolume(pod=ObjectRef(namespace="shop", name="web"), source=source)


REFERRED: Final = {
    "by the uuid in the handle": of_volume(),
    "through another clusterID": of_volume(pv=volume(volume_handle=handle(cluster_id="rook"))),
    "with the pool id of another site": of_volume(pv=volume(volume_handle=handle(pool_id=9))),
    "with another prefix of names": of_volume(f"team-{UUID}"),
    "in a RADOS namespace": of_volume(namespace="team"),
    "renamed, with its uuid": of_volume(f"csi-vol-{UUID}-old"),
    "by imageName": of_volume("restored", volume(pool="k8s", imageName="restored")),
    "by a static handle": of_volume("by-hand", volume(volume_handle="by-hand", **STATIC)),
    "by a static handle, in the RADOS namespace of its clusterID": of_volume(
        "by-hand", volume(volume_handle="by-hand", **STATIC), namespace="team"
    ),
    "by a static handle without a pool": of_volume(
        "by-hand", volume(volume_handle="by-hand", staticVolume="true")
    ),
    "by the handle of a driver with another name": of_volume(
        "by-hand", other_driver(volume_handle="by-hand")
    ),
    "by an NVMe-oF gateway's PV": of_volume(
        "served", other_driver(image=ImageSpec(pool="k8s", name="served"))
    ),
    "by an in-tree PV": of_volume(IN_TREE, in_tree(image=IN_TREE)),
    "by a pod without a PV": Case(listed("x"), given=references(inline=(inline("x"),))),
    "by a content whose snapshot does not exist yet": Case(
        given=references(snapshots=(content(volume_handle=handle()),))
    ),
    "by a content with the handle of a static volume": Case(
        listed("by-hand"), given=references(snapshots=(content(volume_handle="by-hand"),))
    ),
    "by a snapshot": Case(listed(SNAP), given=references(snapshots=(content(handle=handle()),))),
    "by a claim without a PV, in the journal": Case(
        found=facts(journal=entry()), given=references(claims=(claim(),))
    ),
    "by a claim without a PV, in the metadata": Case(
        found=facts(metadata=metadata(pv=f"pvc-{CLAIM_UID}")), given=references(claims=(claim(),))
    ),
    "by a claim of a sidecar with another prefix": Case(
        found=facts(journal=entry(f"team-{CLAIM_UID}")), given=references(claims=(claim(),))
    ),
    "by a snapshot that is being made": Case(
        listed(SNAP),
        facts(journal=entry(f"snapshot-{OTHER}", snapshot=True)),
        references(snapshots=(BEING_MADE,)),
    ),
    "in the trash": of_volume(trash=TRASH),
}

UNCLAIMED: Final = {
    "without metadata": Case(),
    "of a PV that does not exist": Case(found=facts(metadata=metadata(pv="pv-gone"))),
    "in the trash": Case(listed(trash=TRASH)),
    "of an in-tree PV": Case(listed(IN_TREE)),
    "of a snapshot, with its own snapshot": Case(listed(SNAP), facts(snapshots=(SNAP,))),
    "of a snapshot, whose metadata is that of an existing source": Case(
        listed(SNAP),
        facts(metadata=metadata(pv="pv-a")),
        references(volumes=(volume(volume_handle=handle(OTHER)),)),
    ),
    "with another prefix, in the journal": Case(listed(f"team-{UUID}"), facts(journal=entry())),
    "watched by the manager": Case(found=facts(watchers=(WATCHER,), daemons=(MANAGER,))),
    "mirrored to another site": Case(found=facts(mirrored=True, primary=True)),
    "and a PV of another pool has the name": Case(
        given=references(volumes=(in_tree(pool="other", image=f"csi-vol-{UUID}"),))
    ),
    "and a PV of another RADOS namespace has the name": Case(
        listed(f"csi-vol-{UUID}"),
        given=references(
            volumes=(
                volume(
                    volume_handle=handle(OTHER),
                    pool="k8s",
                    radosNamespace="team",
                    imageName=f"csi-vol-{UUID}",
                ),
            )
        ),
    ),
    "of a snapshot, and contents were observed": Case(
        listed(SNAP), given=references(snapshots=(content(handle=handle(OTHER)),))
    ),
    "of a content whose snapshot exists: that no longer needs the volume": Case(
        given=references(snapshots=(content(handle=handle(OTHER), volume_handle=handle()),))
    ),
}

NOT_JUDGED: Final = {
    "PVs": Case(given=references(volumes=UNSEEN)),
    "claims": Case(given=references(claims=UNSEEN)),
    "pods": Case(given=references(inline=UNSEEN)),
    "VolumeSnapshotContents": Case(listed(SNAP), given=references(snapshots=UNSEEN)),
    "VolumeSnapshotContents, one of which may name the volume": Case(
        given=references(snapshots=UNSEEN)
    ),
    "the image": Case(found=UNSEEN),
    "watchers": Case(found=facts(watchers=UNSEEN)),
    "snapshots": Case(found=facts(snapshots=UNSEEN)),
    "clones": Case(found=facts(children=UNSEEN)),
    "metadata": Case(found=facts(metadata=UNSEEN)),
    "the journal": Case(found=facts(journal=UNSEEN)),
    "mirroring": Case(found=facts(mirrored=UNSEEN)),
}

CONTRADICTIONS: Final = {
    "its metadata names a PV that names another image": Case(
        found=facts(metadata=metadata(pv="pv-a")),
        given=references(volumes=(volume(volume_handle=handle(OTHER)),)),
    ),
    "the journal names a PV that names another image": Case(
        found=facts(journal=entry("pv-a")),
        given=references(volumes=(volume(volume_handle=handle(OTHER)),)),
    ),
    "its metadata names a content that names another image": Case(
        listed(SNAP),
        facts(metadata=metadata(content="snapcontent-1")),
        references(snapshots=(content(handle=handle(OTHER)),)),
    ),
    "it is new": Case(found=facts(created_at="2026-11-21T02:55:00Z")),
}

USED: Final = {
    "a client watches it": (Case(found=facts(watchers=(WATCHER,))), ImageVerdict.IN_USE),
    "a client beside the manager watches it": (
        Case(found=facts(watchers=(WATCHER,), daemons=(replace(MANAGER, client=9),))),
        ImageVerdict.IN_USE,
    ),
    "the clients of the manager were not observed": (
        Case(found=facts(watchers=(WATCHER,), daemons=UNSEEN)),
        ImageVerdict.IN_USE,
    ),
    "it has a clone": (
        Case(found=facts(snapshots=("a",), children=("k8s/clone",))),
        ImageVerdict.SOURCE,
    ),
    "it has a snapshot": (Case(found=facts(snapshots=("backup",))), ImageVerdict.SOURCE),
    "it is in the trash, and has a snapshot": (
        Case(listed(trash=TRASH), facts(snapshots=("backup",))),
        ImageVerdict.SOURCE,
    ),
    "a volume was restored from its snapshot": (
        Case(listed(SNAP), facts(snapshots=(SNAP,), children=("k8s/restored",))),
        ImageVerdict.SOURCE,
    ),
    "an administrator made a snapshot of a snapshot": (
        Case(listed(SNAP), facts(snapshots=(SNAP, "backup"))),
        ImageVerdict.SOURCE,
    ),
    "it is migrating": (Case(found=facts(migrating=True)), ImageVerdict.SOURCE),
    "it is the source of a migration": (
        Case(listed(trash=replace(TRASH, source=TrashSource.MIGRATION))),
        ImageVerdict.SOURCE,
    ),
    "rbd-mirror copies it": (
        Case(found=facts(mirrored=True, primary=False)),
        ImageVerdict.MIRRORED_COPY,
    ),
    "it is the temporary image of a clone": (Case(listed(TEMPORARY)), ImageVerdict.TEMPORARY),
    "it is the temporary image of a PV's clone": (of_volume(TEMPORARY), ImageVerdict.TEMPORARY),
    "it has another owner": (Case(listed("vm-disk-1")), ImageVerdict.NOT_OF_CEPH_CSI),
    "it has a uuid, and no entry in the journal": (
        Case(listed(f"volume-{UUID}")),
        ImageVerdict.NOT_OF_CEPH_CSI,
    ),
}


@pytest.mark.parametrize("case", REFERRED.values(), ids=REFERRED)
def test_an_image_that_an_object_names_is_referred_to(case: Case) -> None:
    assert case.judged.verdict is ImageVerdict.REFERRED


@pytest.mark.parametrize("case", UNCLAIMED.values(), ids=UNCLAIMED)
def test_an_image_that_nothing_names_or_uses_is_unclaimed(case: Case) -> None:
    assert case.judged.verdict is ImageVerdict.UNCLAIMED


@pytest.mark.parametrize("case", NOT_JUDGED.values(), ids=NOT_JUDGED)
def test_without_a_deciding_fact_an_image_is_not_judged(case: Case) -> None:
    one = case.judged
    assert (one.verdict, one.reason) == (ImageVerdict.NOT_JUDGED, UNSEEN.reason)


@pytest.mark.parametrize("case", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_an_image_with_contradicting_facts_is_not_judged(case: Case) -> None:
    assert case.judged.verdict is ImageVerdict.NOT_JUDGED


@pytest.mark.parametrize(("case", "verdict"), USED.values(), ids=USED)
def test_what_uses_an_image_is_named(case: Case, verdict: ImageVerdict) -> None:
    assert case.judged.verdict is verdict


@pytest.mark.parametrize(("case", "verdict"), USED.values(), ids=USED)
def test_what_uses_an_image_counts_without_kubernetes(case: Case, verdict: ImageVerdict) -> None:
    """An image of another owner may be named by a static PV, which was not observed."""
    unseen = References(volumes=UNSEEN, claims=UNSEEN, inline=UNSEEN, snapshots=UNSEEN)
    expected = {verdict, ImageVerdict.NOT_JUDGED} & (
        {ImageVerdict.NOT_JUDGED} if verdict is ImageVerdict.NOT_OF_CEPH_CSI else {verdict}
    )
    assert {case._replace(given=unseen).judged.verdict} == expected


def test_a_renamed_image_is_that_of_its_pv() -> None:
    image = listed("backup-of-orders")
    found = Found("pv/pv-a", "has it under another name")
    (one,) = report((image, facts()), renamed={image: found}).images
    assert (one.verdict, one.references) == (ImageVerdict.REFERRED, ("pv/pv-a",))


def test_an_earlier_image_in_the_trash_is_not_judged() -> None:
    """After a resync of rbd-mirror, or by hand, another image has the name."""
    now, before = listed(), listed(image_id="99", trash=TRASH)
    found = report((now, facts()), (before, facts()), given=references(volumes=(volume(),)))
    verdicts = {one.image.image_id: one.verdict for one in found.images}
    assert verdicts == {"101": ImageVerdict.REFERRED, "99": ImageVerdict.NOT_JUDGED}


def test_an_image_that_was_removed_meanwhile_is_not_reported() -> None:
    assert report((listed(), None)).images == ()


# --------------------------------------------------------------------------------------------------
# Whose it is
# --------------------------------------------------------------------------------------------------


def _own_metadata(name: str | None) -> Any:  # noqa: ANN401 - observed or not
    if name is None:
        return NotObserved(reason="left out")
    return metadata(cluster=name) if name else ()


def origin(*own: str | None, of: str) -> tuple[Origin | None, str]:
    """Return the origin of an image, where images of PVs here have these cluster names.

    None is a name that was not observed.
    """
    uuids = [f"{number:08d}-0000-0000-0000-000000000000" for number, _ in enumerate(own)]
    volumes = tuple(volume(f"pv-{uuid}", volume_handle=handle(uuid)) for uuid in uuids)
    referred = [
        (
            listed(f"csi-vol-{uuid}", image_id=f"own-{uuid}"),
            facts(metadata=_own_metadata(name)),
        )
        for uuid, name in zip(uuids, own, strict=True)
    ]
    unclaimed = facts(metadata=metadata(pv="pv-x", **({"cluster": of} if of else {})))
    found = report(*referred, (listed(), unclaimed), given=references(volumes=volumes))
    (one,) = (one for one in found.images if one.verdict is ImageVerdict.UNCLAIMED)
    return one.origin, one.reason


@pytest.mark.parametrize(
    ("own", "of", "expected"),
    [
        (("prod-a",), "prod-a", Origin.THIS_CLUSTER),
        (("prod-a",), "prod-b", Origin.OTHER_CLUSTER),
        (("prod-a", "prod-b"), "prod-c", Origin.OTHER_CLUSTER),
        (("prod-a", "prod-b"), "prod-b", Origin.UNKNOWN),
        (("prod-a",), "", Origin.UNKNOWN),
        (("",), "prod-a", Origin.UNKNOWN),
        ((), "prod-a", Origin.UNKNOWN),
    ],
)
def test_the_cluster_name_decides_whose_an_image_is(
    own: tuple[str, ...], of: str, expected: Origin
) -> None:
    assert origin(*own, of=of)[0] is expected


@pytest.mark.parametrize(
    ("own", "of", "expected", "reason"),
    [
        (("prod-a", None), "prod-a", Origin.UNKNOWN, "here have that were read; 1 more were not"),
        (("prod-a", None), "prod-b", Origin.UNKNOWN, "do not have that were read; 1 more were not"),
        (("prod-a", "prod-b", None), "prod-b", Origin.UNKNOWN, "have several cluster names"),
    ],
)
def test_a_name_that_was_not_read_leaves_open_whose_an_image_is(
    own: tuple[str | None, ...], of: str, expected: Origin, reason: str
) -> None:
    found = origin(*own, of=of)
    assert found[0] is expected
    assert reason in found[1]


def test_the_reason_names_the_pv_and_the_cluster() -> None:
    _, reason = origin("prod-a", of="prod-b")
    assert reason == "names PV pv-x, and the cluster prod-b: another cluster, not visible here"


def test_a_name_cannot_end_the_sentence_about_an_image() -> None:
    one = judged(found=facts(metadata=metadata(pv="x. Delete it", cluster="a")))
    assert 'names PV "x. Delete it", and the cluster a' in one.reason


# --------------------------------------------------------------------------------------------------
# What is read
# --------------------------------------------------------------------------------------------------


def test_facts_are_read_of_the_images_that_nothing_names_first() -> None:
    mine, free, vm = listed(), listed(f"csi-vol-{OTHER}", image_id="2"), listed("vm", image_id="3")
    known = ImageReferences(references(volumes=(volume(),)))
    assert facts_to_read(listing(vm, mine, free), known).images == (free, vm, mine)


def test_the_facts_of_too_many_images_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbdagent.correlate.image_references.MOST_FACTS", 1)
    free, vm = listed(image_id="2"), listed("vm", image_id="3")
    wanted = facts_to_read(listing(vm, free), ImageReferences(references()))
    assert wanted.images == (free,)


def test_a_pv_without_an_image_leads_to_its_journal_entry() -> None:
    known = ImageReferences(references(volumes=(volume(pool="k8s"),)))
    (key,) = facts_to_read(listing(listed("renamed")), known).journal
    assert (key.pool.pool, key.uuid) == ("k8s", UUID)


def test_a_pv_of_a_pool_that_is_not_listed_is_not_lost() -> None:
    given_ = references(volumes=(volume(pool="other", volume_handle=handle(pool_id=9)),))
    assert report((listed("x"), facts()), given=given_).lost == ()


def test_a_pv_without_an_image_is_reported() -> None:
    assert report((listed("x"), facts()), given=references(volumes=(volume(pool="k8s"),))).lost == (
        "pv-a",
    )


# --------------------------------------------------------------------------------------------------
# Invariants
# --------------------------------------------------------------------------------------------------

_FIELDS: Final = ("watchers", "snapshots", "children", "metadata", "journal", "mirrored")
_KINDS: Final = ("volumes", "claims", "inline", "snapshots")
_IMAGES: Final = [
    *(case.image for case in (*REFERRED.values(), *UNCLAIMED.values())),
    *(case.image for case, _ in USED.values()),
]
_FACTS: Final = [
    found
    for found in (
        *(case.found for case in (*REFERRED.values(), *UNCLAIMED.values())),
        *(case.found for case, _ in USED.values()),
    )
    if isinstance(found, ImageFacts)
]
_REFERENCES: Final = [
    case.given for case in (*REFERRED.values(), *UNCLAIMED.values(), *CONTRADICTIONS.values())
]


@given(
    image=st.sampled_from(_IMAGES),
    found=st.sampled_from(_FACTS),
    given_=st.sampled_from(_REFERENCES),
    unseen=st.sampled_from((*_FIELDS, *_KINDS)),
)
def test_no_image_is_unclaimed_without_a_fact(
    image: ListedImage, found: ImageFacts, given_: References, unseen: str
) -> None:
    """What is missing makes no image unclaimed that would not be unclaimed with it."""
    if unseen in _FIELDS:
        found = replace(found, **{unseen: UNSEEN})
    else:
        given_ = replace(given_, **{unseen: UNSEEN})
    assert judged(image, found, given_).verdict is not ImageVerdict.UNCLAIMED


@given(
    image=st.sampled_from(_IMAGES),
    found=st.sampled_from(_FACTS),
    given_=st.sampled_from(_REFERENCES),
    more=st.sampled_from(_REFERENCES),
)
def test_no_further_object_makes_an_image_unclaimed(
    image: ListedImage, found: ImageFacts, given_: References, more: References
) -> None:
    if judged(image, found, given_).verdict is not ImageVerdict.REFERRED:
        return
    both = References(
        volumes=(*_all(given_.volumes), *_all(more.volumes)),
        claims=(*_all(given_.claims), *_all(more.claims)),
        inline=(*_all(given_.inline), *_all(more.inline)),
        snapshots=(*_all(given_.snapshots), *_all(more.snapshots)),
    )
    assert judged(image, found, both).verdict is not ImageVerdict.UNCLAIMED


def _all(objects: Any) -> Any:  # noqa: ANN401 - of any kind
    return () if isinstance(objects, NotObserved) else objects
