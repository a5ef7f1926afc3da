"""What must hold whatever was seen: the promises of the safety rules, as properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rbdagent.model import (
    BlockHolder,
    BlockHolderKind,
    BlocklistEntry,
    CephView,
    ImagePresence,
    Mapping,
    NotObserved,
    OpenHow,
    PluginSocket,
    ProcessRef,
    Snapshot,
    Verdict,
)
from tests.unit.builders import (
    ADDRESS,
    DRIVER,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    POD_PATH,
    POD_UID,
    UNSEEN,
    attachment,
    cluster,
    container,
    event,
    image_view,
    in_flight,
    kube,
    kubelet,
    mapping,
    mount,
    node,
    node_view,
    opener,
    pod,
    pod_directory,
    process,
    remote_watcher,
    said,
    snapshot,
    staging,
    volume,
    waiting_pod,
    watcher,
)

MOUNTS: Final = (
    mount(),
    mount(path=POD_PATH),
    mount(path="/mnt"),
    mount(path="/data", namespace=container()),
    mount(path="/data", namespace=container("stranger")),
)
OPENERS: Final = (
    opener(),
    opener(process=process(pid=9000), how=OpenHow.DESCRIPTOR, on_device=True),
    opener(process=process(pid=12, pod_uid=POD_UID)),
)
HOLDERS: Final = (
    BlockHolder(kind=BlockHolderKind.LOOP, name="loop0", of="rbd0"),
    BlockHolder(kind=BlockHolderKind.LUKS, name="dm-0", label="luks-rbd-x", of="rbd0"),
)
PODS: Final = (
    pod(),
    pod("done", phase="Succeeded"),
    pod("going", phase="Failed", deleting_since=JUST_NOW),
    waiting_pod("starting", "worker-1"),
    waiting_pod(),
    pod("remote", "worker-2"),
)
FLIGHTS: Final = (
    in_flight("mkfs.ext4", "mkfs.ext4 /dev/rbd0"),
    in_flight("rbd", "rbd unmap /dev/rbd0"),
)
ATTACHMENTS: Final = (
    attachment(),
    attachment(created_at=JUST_NOW),
    attachment(deleting_since=JUST_NOW),
    attachment("worker-2"),
)
WATCHERS: Final = (watcher(), remote_watcher(), remote_watcher(cookie=LIBRBD_COOKIE, client=7))
ENTRIES: Final = (
    BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),
    BlocklistEntry(network="10.77.0.0/16"),
)
UNKNOWN_DEVICE: Final = mapping(
    device="/dev/rbd7", device_id=7, spec=UNSEEN, image_id=None, client_id=1, fsid=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The parts of a snapshot that the properties vary."""

    parts: dict[str, Any]

    def but(self, **changes: Any) -> Scene:  # noqa: ANN401 - any part of any type
        """Give the scene with some parts changed."""
        return Scene(parts={**self.parts, **changes})

    def seen(self) -> Snapshot:
        """Build the snapshot."""
        part = self.parts
        device = mapping(
            **{
                name: part[name]
                for name in (
                    "mounts",
                    "openers",
                    "holders",
                    "kernel_traces",
                    "read_only",
                    "watch",
                    "hung_requests",
                )
            }
        )
        devices: tuple[Mapping, ...] | NotObserved = UNSEEN
        if part["mapped"] is not None:
            devices = (*((device,) if part["mapped"] else ()), *part["unknown"])
        listening = PluginSocket(driver=DRIVER, path="/s", listening=part["listening"])
        local = node_view(
            mappings=devices,
            in_flight=part["in_flight"],
            kubelet=kubelet(
                process=part["kubelet"],
                staging=part["staging"],
                pod_volumes=part["pod_volumes"],
                sockets=(listening,),
            ),
        )
        view = image_view(
            presence=part["presence"],
            image_id=None if part["presence"] is ImagePresence.GONE else "101d576e3eb2",
            watchers=part["watchers"],
            passing_watchers=part["passing"],
        )
        api = kube(
            persistent_volumes=part["volumes"],
            pods=part["pods"],
            attachments=part["attachments"],
            nodes=part["nodes"],
            events=part["events"],
            pods_scope=part["scope"],
        )
        clusters = (cluster(images=(view,), blocklist=part["blocklist"]),)
        return snapshot(
            node=local if part["node_seen"] else None,
            ceph=CephView(clusters=clusters) if part["ceph_seen"] else None,
            kubernetes=api if part["kube_seen"] else None,
        )


ORPHAN: Final[dict[str, Any]] = {
    "mounts": (),
    "openers": (),
    "holders": (),
    "kernel_traces": (),
    "read_only": False,
    "watch": UNSEEN,
    "hung_requests": (),
    "mapped": True,
    "unknown": (),
    "listening": True,
    "in_flight": (),
    "kubelet": ProcessRef(pid=3, command="kubelet", started_at=LONG_AGO),
    "staging": (staging(),),
    "pod_volumes": (),
    "presence": ImagePresence.PRESENT,
    "watchers": (watcher(),),
    "passing": (),
    "blocklist": (),
    "volumes": (volume(),),
    "pods": (),
    "attachments": (),
    "nodes": (node(), node("worker-2")),
    "events": (),
    "scope": "cluster",
    "node_seen": True,
    "ceph_seen": True,
    "kube_seen": True,
}


def _few(*values: object) -> tuple[object, ...]:
    """Give each value alone, the first two together, and that nobody could look."""
    return (*((each,) for each in values), values[:2], UNSEEN)


OTHERWISE: Final[dict[str, tuple[Any, ...]]] = {
    "mounts": _few(*MOUNTS),
    "openers": _few(*OPENERS),
    "holders": _few(*HOLDERS),
    "kernel_traces": _few("/sys/fs/ext4/rbd0"),
    "read_only": (True, UNSEEN),
    "watch": (True, False),
    "hung_requests": (("write rbd_data.1",), UNSEEN),
    "mapped": (False, False, None),
    "unknown": ((UNKNOWN_DEVICE,),),
    "listening": (False, UNSEEN),
    "in_flight": _few(*FLIGHTS),
    "kubelet": (
        ProcessRef(pid=3, command="kubelet", started_at=JUST_NOW),
        ProcessRef(pid=3, command="kubelet"),
        None,
        UNSEEN,
    ),
    "staging": ((), UNSEEN),
    "pod_volumes": _few(pod_directory()),
    "presence": (ImagePresence.TRASH, ImagePresence.GONE, UNSEEN),
    "watchers": ((), (), *_few(*WATCHERS), WATCHERS[1:]),
    "passing": ((remote_watcher(client=7, cookie=LIBRBD_COOKIE),),),
    "blocklist": _few(*ENTRIES),
    "volumes": ((), UNSEEN),
    "pods": _few(*PODS),
    "attachments": _few(*ATTACHMENTS),
    "nodes": ((node(),), UNSEEN),
    "events": ((event("Stopping", reason="Killing"),), UNSEEN),
    "scope": ("node/worker-1", "namespace/default", "node/worker-2"),
    "node_seen": (False,),
    "ceph_seen": (False,),
    "kube_seen": (False,),
}

CHANGES: Final = [(name, value) for name, values in OTHERWISE.items() for value in values]

SCENES: Final = st.lists(st.sampled_from(CHANGES), max_size=5).map(
    # A few steps away from the orphan: the borders of the verdicts are there.
    lambda changes: Scene(parts={**ORPHAN, **dict(changes)})
)

# Hung requests are missing here: debugfs is extra evidence, heeded where it can be read (safety 7).
FAILURES: Final[dict[str, Any]] = {
    "mounts": UNSEEN,
    "openers": UNSEEN,
    "holders": UNSEEN,
    "kernel_traces": UNSEEN,
    "read_only": UNSEEN,
    "watch": UNSEEN,
    "in_flight": UNSEEN,
    "kubelet": UNSEEN,
    "staging": UNSEEN,
    "pod_volumes": UNSEEN,
    "presence": UNSEEN,
    "watchers": UNSEEN,
    "blocklist": UNSEEN,
    "pods": UNSEEN,
    "attachments": UNSEEN,
    "nodes": UNSEEN,
    "events": UNSEEN,
    "mapped": None,
    "node_seen": False,
    "ceph_seen": False,
    "kube_seen": False,
}

USE: Final[dict[str, tuple[Any, ...]]] = {
    "mounts": MOUNTS[1:],
    "openers": OPENERS,
    "holders": HOLDERS,
    "kernel_traces": ("/sys/fs/xfs/rbd0",),
    "in_flight": FLIGHTS,
    "pods": (pod(), waiting_pod("starting", "worker-1"), PODS[2]),
    "hung_requests": ("read rbd_data.2",),
}
"""Evidence of use. A staging mount is none: it explains what else would be a pin. Nor is the
directory of a pod that the API lacks: with nothing mounted there it is a leftover."""


def orphaned(seen: Snapshot) -> bool:
    """Tell whether anybody, or the target, is called orphaned."""
    answer = said(seen)
    return answer.verdict is Verdict.ORPHANED or any(
        each.verdict is Verdict.ORPHANED for each in answer.holders
    )


def _reversed(seen: Snapshot) -> Snapshot:
    """Turn every tuple of the snapshot around."""

    def turn(value: Any) -> Any:  # noqa: ANN401 - every type of the model
        if isinstance(value, tuple):
            return tuple(turn(each) for each in reversed(value))
        if hasattr(value, "__struct_fields__"):
            return replace(
                value, **{name: turn(getattr(value, name)) for name in value.__struct_fields__}
            )
        return value

    turned: Snapshot = turn(seen)
    return turned


MANY: Final = settings(max_examples=400, deadline=None)


@MANY
@given(scene=SCENES, what=st.sampled_from(sorted(FAILURES)))
def test_a_source_that_fails_never_makes_anything_orphaned(scene: Scene, what: str) -> None:
    if not orphaned(scene.seen()):
        assert not orphaned(scene.but(**{what: FAILURES[what]}).seen())


@MANY
@given(scene=SCENES, what=st.sampled_from(sorted(USE)), data=st.data())
def test_more_evidence_of_use_never_makes_anything_orphaned(
    scene: Scene, what: str, data: st.DataObject
) -> None:
    before_it = scene.seen()
    if orphaned(before_it) or not said(before_it).holders:
        # With no holder the target led nowhere yet: a directory may be what names the volume.
        return
    more = data.draw(st.sampled_from(USE[what]))
    before = scene.parts[what]
    if what == "kernel_traces" and scene.parts["mounts"]:
        # A mounted file system leaves its traces: seeing them as well is no further use of it.
        return
    # What was not observed becomes observed as well: that may not tip it either.
    with_more = (more,) if isinstance(before, NotObserved) else (*before, more)
    assert not orphaned(scene.but(**{what: with_more}).seen())


@MANY
@given(scene=SCENES)
def test_the_order_of_what_was_seen_changes_nothing(scene: Scene) -> None:
    seen = scene.seen()
    one, other = said(seen), said(_reversed(seen))
    assert one.verdict is other.verdict
    assert [(each.holder.node, each.verdict) for each in one.holders] == [
        (each.holder.node, each.verdict) for each in other.holders
    ]
    assert {(each.code, each.severity) for each in one.findings} == {
        (each.code, each.severity) for each in other.findings
    }


@MANY
@given(scene=SCENES)
def test_nobody_is_said_only_where_everybody_was_asked(scene: Scene) -> None:
    seen = scene.seen()
    answer = said(seen)
    nobody = any(each.code == "RBD118" for each in answer.findings)
    assert nobody == (answer.verdict is Verdict.FREE)
    if not nobody:
        return
    part = scene.parts
    assert part["node_seen"]
    assert part["ceph_seen"]
    assert part["kube_seen"]
    assert part["mapped"] is False
    assert not part["unknown"]
    for name in ("watchers", "pods", "attachments", "volumes", "presence"):
        assert not isinstance(part[name], NotObserved)
    assert not part["watchers"]


@MANY
@given(scene=SCENES)
def test_an_orphan_was_looked_at_from_every_side(scene: Scene) -> None:
    seen = scene.seen()
    part = scene.parts
    for each in said(seen).holders:
        if each.verdict is not Verdict.ORPHANED:
            continue
        assert each.holder.mapping is not None, "nobody can call a remote holder orphaned"
        for name in (
            "mounts",
            "openers",
            "holders",
            "kernel_traces",
            "in_flight",
            "staging",
            "pod_volumes",
            "pods",
            "attachments",
            "blocklist",
            "volumes",
            "presence",
        ):
            assert not isinstance(part[name], NotObserved), name
        assert part["node_seen"]
        assert part["ceph_seen"]
        assert part["kube_seen"]
        assert not part["openers"]
        assert not part["in_flight"]
        assert not part["blocklist"]


UNMAPPING: Final = ("rbd unmap", "umount", "cryptsetup", "echo")


@MANY
@given(scene=SCENES)
def test_unmapping_is_advised_for_orphans_alone(scene: Scene) -> None:
    answer = said(scene.seen())
    for each in answer.findings:
        if any(command.startswith(UNMAPPING) for command in each.commands):
            assert each.code in ("RBD101", "RBD110")
            assert any(one.verdict is Verdict.ORPHANED for one in answer.holders)


@MANY
@given(scene=SCENES)
def test_every_holder_has_a_reason_and_no_sentence_is_empty(scene: Scene) -> None:
    answer = said(scene.seen())
    assert all(each.because and all(each.because) for each in answer.holders)
    for each in answer.findings:
        assert each.message
        assert each.remedy
        assert "None" not in each.message.split()
