"""RBD775 to RBD782: claims that were enlarged, and the step that is behind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rbdagent.commands import lines_of
from rbdagent.model import Recovery
from tests.support.claims import recorded_claim
from tests.support.rows import each_row
from tests.support.rule_rows.growth import (
    CHECKSUM,
    DENIED,
    GROWN,
    LARGE,
    LARGE_EXT4,
    LUKS_HEADER,
    MADE_BY_HAND,
    NOT_REPORTED,
    PANICKED,
    REFUSED,
    REPORTED,
    SMALL,
    UNREADABLE,
    file_system,
    node_fails,
    on_luks,
    resized,
    settled,
    static,
    static_volume,
    with_file_system,
)
from tests.support.rule_tables import not_reported_rows, problem_codes, reported_rows
from tests.support.snapshots import (
    HANDLE,
    PV,
    SPEC,
    STAGING_PATH,
    UNSEEN,
    claim,
    codes,
    found,
    luks,
    mapping,
    mount,
    remote_watcher,
    unmapped,
    watcher,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot

PATCH: Final = (
    f"kubectl patch pv {PV} --type merge -p "
    """'{"spec":{"capacity":{"storage":"128Mi"}}}'"""
)


def with_mapping(seen: Snapshot, **mapped: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Return a snapshot with one mapping of the image."""
    assert seen.node is not None
    return replace(seen, node=replace(seen.node, mappings=(mapping(**mapped),)))


def observed(seen: Snapshot) -> dict[str, Any]:
    """Return the objects of a snapshot about the claim."""
    kube = seen.kubernetes
    assert kube is not None
    names = ("claims", "persistent_volumes", "events")
    return {name: getattr(kube, name) for name in names}


def with_image(seen: Snapshot, **of_image: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    assert seen.ceph is not None
    (asked,) = seen.ceph.clusters
    images = (replace(asked.images[0], **of_image),)
    return replace(seen, ceph=replace(seen.ceph, clusters=(replace(asked, images=images),)))


@each_row(("code", "seen", "beside"), reported_rows(REPORTED))
def test_code_is_reported_and_only_the_expected_others(
    code: str, seen: Snapshot, beside: set[str]
) -> None:
    finding = found(seen, code)
    assert "None" not in finding.message
    assert problem_codes(seen) - {code} == beside


@each_row(("code", "seen"), not_reported_rows(NOT_REPORTED))
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


STEPS: Final = {
    "ext4": (
        static_volume(),
        (f"rbd resize {SPEC} --size=128M", "resize2fs /dev/rbd0  # on worker-1", PATCH),
    ),
    "xfs": (
        with_mapping(static_volume(), mounts=(mount(fs_type="xfs"),)),
        (f"rbd resize {SPEC} --size=128M", f"xfs_growfs {STAGING_PATH}  # on worker-1", PATCH),
    ),
    "a raw block volume": (
        static_volume(claims=(claim(requested_bytes=LARGE, volume_mode="Block"),)),
        (f"rbd resize {SPEC} --size=128M", PATCH),
    ),
    "the image has grown": (
        with_image(static_volume(), size_bytes=LARGE),
        ("resize2fs /dev/rbd0  # on worker-1", PATCH),
    ),
    "nothing maps it": (
        unmapped(in_kube={**observed(static_volume()), "pods": ()}),
        (f"rbd resize {SPEC} --size=128M", PATCH),
    ),
}
"""The commands of a static volume, if each step is known."""


@each_row("name", STEPS)
def test_static_volume_is_grown_in_the_steps_that_are_left(name: str) -> None:
    seen, steps = STEPS[name]
    assert lines_of(found(seen, "RBD776").commands) == steps


UNKNOWN: Final = {
    "another node has it": with_image(static_volume(), watchers=(watcher(), remote_watcher())),
    "a LUKS device is on it": with_mapping(static_volume(), mounts=(mount(),), holders=(luks(),)),
    "the file system is read-only": with_mapping(static_volume(), mounts=(mount(read_only=True),)),
    "its mounts were not observed": with_mapping(static_volume(), mounts=UNSEEN),
    "its watchers were not observed": with_image(static_volume(), watchers=UNSEEN),
    "its pods were not observed": static_volume(pods=UNSEEN),
    "the other side of a mirror": with_image(static_volume(), mirrored=True, primary=False),
}


@each_row("name", UNKNOWN)
def test_no_step_is_printed_if_one_of_them_is_not_known(name: str) -> None:
    finding = found(UNKNOWN[name], "RBD776")
    assert [given for given in finding.commands if given.changes] == []
    assert str(finding.remedy).startswith("Grow the image with `rbd resize`, then the file system")


@each_row(
    ("handle", "attributes", "sign"),
    [
        ("my-image", {}, "its handle my-image is not of the form of ceph-csi"),
        ("my-image", {"staticVolume": "true"}, "staticVolume in its volumeAttributes"),
        (HANDLE, {"staticVolume": "true"}, "staticVolume in its volumeAttributes"),
    ],
)
def test_static_volume_is_known_by_its_attribute_or_handle(
    handle: str, attributes: dict[str, str], sign: str
) -> None:
    volumes = (static(handle, **attributes),)
    finding = found(static_volume(persistent_volumes=volumes), "RBD776")
    assert f"is a static volume ({sign}), and ceph-csi grows only" in finding.message
    assert finding.recovery == Recovery(note="ceph-csi never grows a static volume")


@each_row("text", [PANICKED, MADE_BY_HAND, REFUSED])
def test_error_of_a_static_volume_does_not_matter(text: str) -> None:
    assert "is a static volume" in found(static_volume(text), "RBD776").message


def test_image_that_has_grown_is_not_behind() -> None:
    finding = found(STEPS["the image has grown"][0], "RBD776")
    assert f"was enlarged, and the PV {PV} is not:" in finding.message


def test_migrated_volume_is_not_static() -> None:
    handle = f"mig_mons-{'0' * 32}_image-x_6b3873"
    volumes = (static(handle, migration="true", staticVolume="true"),)
    assert "static" not in found(static_volume(persistent_volumes=volumes), "RBD776").message


@each_row(
    ("text", "words"),
    [
        (CHECKSUM, "The data is not damaged"),
        (DENIED, "the file system has recorded an error, or the container of the CSI node plugin"),
        (UNREADABLE, "may be on the blocklist"),
        ("out of luck", "out of luck"),
    ],
)
def test_error_of_the_tool_is_translated_or_quoted(text: str, words: str) -> None:
    assert words in found(node_fails(text), "RBD777").message


def test_growth_that_is_denied_names_the_fact_that_decides() -> None:
    """ext4_resize_begin() in fs/ext4/resize.c returns EPERM for both, and logs the error alone."""
    denied = found(node_fails(DENIED), "RBD777")
    assert "only for the first cause it has the line `There are errors in the" in denied.message
    assert isinstance(denied.remedy, str)
    assert "grep CapEff" in denied.remedy
    assert found(node_fails(CHECKSUM), "RBD777").remedy != denied.remedy


def test_chain_has_each_size_from_the_claim_to_the_file_system() -> None:
    seen = settled(**on_luks(LARGE - LUKS_HEADER), file_system=file_system(device="dm-0"))
    (line,) = found(seen, "RBD780").evidence
    assert line.startswith("sizes: claim 128Mi, PV 128Mi, image 128Mi, /dev/rbd0 128Mi, dm-0 112Mi")
    assert line.endswith(f", ext4 at {STAGING_PATH} 54Mi")


GROWTHS: Final = {
    "ext4": (settled(file_system=file_system()), "resize2fs /dev/rbd0  # on worker-1"),
    "ext4 on LUKS": (
        settled(**on_luks(LARGE - LUKS_HEADER), file_system=file_system(device="dm-0")),
        "resize2fs /dev/dm-0  # on worker-1",
    ),
    "xfs": (
        settled(
            mounts=(mount(fs_type="xfs"),), file_system=file_system((40 << 20, 9), fs_type="xfs")
        ),
        f"xfs_growfs {STAGING_PATH}  # on worker-1",
    ),
}


@each_row("name", GROWTHS)
def test_file_system_that_is_behind_is_grown_where_it_is_mounted(name: str) -> None:
    seen, line = GROWTHS[name]
    assert line in lines_of(found(seen, "RBD780").commands)


@each_row(
    ("name", "words", "line"),
    [
        ("ext4", "`dumpe2fs -h` decides", "dumpe2fs -h /dev/rbd0  # on worker-1"),
        ("ext4 on LUKS", "`dumpe2fs -h` decides", "dumpe2fs -h /dev/dm-0  # on worker-1"),
        ("xfs", "`xfs_info` decides", f"xfs_info {STAGING_PATH}  # on worker-1"),
    ],
)
def test_size_of_a_file_system_is_no_certain_fact(name: str, words: str, line: str) -> None:
    """Unusual options of mkfs take more than the estimate: only the super block is exact."""
    behind = found(GROWTHS[name][0], "RBD780")
    assert "it was most likely not grown" in behind.message
    assert words in behind.message
    assert lines_of(behind.commands)[0] == line
    assert not behind.commands[0].changes


def test_file_system_that_is_read_only_is_not_to_be_grown() -> None:
    seen = settled(mounts=(mount(read_only=True),), file_system=file_system())
    assert not [given for given in found(seen, "RBD780").commands if given.changes]


@each_row(
    ("mapped", "why"),
    [
        ({"watch": False}, "its client has lost its watch"),
        ({"watch": False, "read_only": True}, "a mapping that is read-only has no watch"),
        ({"watch": True}, "its kernel has not taken the new size over"),
    ],
)
def test_device_that_is_behind_has_its_cause(mapped: dict[str, Any], why: str) -> None:
    message = found(settled(size_bytes=SMALL, **mapped), "RBD781").message
    assert why in message
    assert "has 128Mi, and /dev/rbd0 on worker-1 has 64Mi" in message


def test_image_that_was_enlarged_by_hand_has_the_size_of_its_file_system() -> None:
    seen = with_file_system(resized(GROWN), file_system(LARGE_EXT4, GROWN))
    assert (
        "its file system was most likely not: it has room for 114Mi."
        in found(seen, "RBD779").message
    )


def test_growth_that_fails_has_the_age_of_its_request() -> None:
    for name in ("grow-controller-failed", "grow-controller-no-secret", "grow-controller-timeout"):
        message = found(recorded_claim(name, at="2026-11-28T08:00:00Z"), "RBD776").message
        assert re.search(r"was enlarged [34]h ago, and the image is not: ", message), message


def test_node_that_lost_its_watch_is_left_to_its_own_finding() -> None:
    seen = settled(size_bytes=SMALL, watch=False)
    assert not [given for given in found(seen, "RBD781").commands if given.changes]
