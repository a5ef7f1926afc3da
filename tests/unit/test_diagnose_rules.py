"""The findings: each code is reported in its state, and not in similar states."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.catalog import CATALOG, entry, explanation
from rbdagent.cli.pages import page_of
from rbdagent.commands import lines_of, sentence_of
from rbdagent.correlate import correlate
from rbdagent.errors import NotFoundError
from rbdagent.lifecycle.cluster_report import among_all
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.lint.entries import ENTRIES
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    DeviceNumber,
    ImageSpec,
    MountNamespace,
    NotObserved,
    ObjectRef,
    PublishedMapping,
    PublishedNode,
    Recovery,
    ServiceAddress,
    Severity,
    Snapshot,
    Source,
    Sources,
    SourceState,
    Verdict,
)
from rbdagent.parse.kubernetes import csi_source
from rbdagent.report.text.holders import answer
from rbdagent.report.text.layout import Layout
from rbdagent.rules.context import delete_pod
from rbdagent.unmap.preconditions import CONDITIONS
from tests.support.rows import each_row
from tests.support.rule_rows.diagnose import (
    BEING_USED,
    EXISTS,
    MULTI_ATTACH,
    NOT_REPORTED,
    OWN_ENTRY,
    REPORTED,
    waits,
)
from tests.support.rule_rows.families import FAMILIES
from tests.support.snapshots import (
    ADDRESS,
    BY_IMAGE,
    FSID,
    HANDLE,
    IMAGE_ID,
    IN_USE_NAME,
    JUST_NOW,
    LIBRBD_COOKIE,
    LONG_AGO,
    NEIGHBOUR,
    NOW,
    OBSERVED,
    OTHER_FSID,
    PLUGIN_DOWN,
    POD_PATH,
    POD_UID,
    PV,
    SPEC,
    STAGING_PATH,
    STRANGER_ADDRESS,
    UNBACKED,
    UNSEEN,
    attachment,
    cluster,
    codes,
    container,
    diagnosis_of,
    found,
    from_worker_2,
    in_flight,
    luks,
    mapping,
    mount,
    nbd_mapping,
    node,
    opener,
    pod,
    pod_directory,
    process,
    remote_watcher,
    snapshot,
    staging,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)


def _failed(reason: str, *, timed_out: bool = True) -> Source:
    return Source(state=SourceState.FAILED, reason=reason, hint="ceph -s", timed_out=timed_out)


def _without_ceph(reason: str, *, timed_out: bool = True) -> Snapshot:
    failed = _failed(reason, timed_out=timed_out)
    return world(ceph=None, sources=replace(snapshot().sources, ceph=failed))


SILENT_CLUSTER: Final = cluster(
    name="b", fsid=None, images=(), source=_failed("b: no answer in time")
)
NO_ANSWER: Final = NotObserved(
    reason=f"{SPEC}: no answer within 10 s", hint="ceph health detail", timed_out=True
)
REPORTED["RBD905"] = {
    "no monitor": _without_ceph("ceph: client.rbdagent: no monitor answered within 10 s"),
    "no cluster": _without_ceph("ceph: no answer in time"),
    "no answer of its process": _without_ceph("Ceph: no answer in time"),
    "its image": world(of_image={"watchers": NO_ANSWER, "presence": NO_ANSWER}),
    "its image while a pod runs": world(
        of_image={"watchers": NO_ANSWER, "presence": NO_ANSWER}, in_kube={"pods": (pod(),)}
    ),
    "one of two clusters, and the other is not its own": world(
        ceph=CephView(clusters=(cluster(fsid=OTHER_FSID, images=()), SILENT_CLUSTER))
    ),
}
ANSWERED: Final = {
    "refused": _without_ceph(
        "ceph: client.rbdagent was refused: its key is wrong", timed_out=False
    ),
    "skipped": world(ceph=None),
    "its image was refused": world(
        of_image={
            "watchers": NotObserved(reason=f"{SPEC}: client.rbdagent has no permission to read it")
        }
    ),
    "another cluster than its own": world(ceph=CephView(clusters=(cluster(), SILENT_CLUSTER))),
    "no image is known": world(
        ceph=None,
        on_node={"mappings": ()},
        kubernetes=None,
        sources=replace(snapshot().sources, ceph=_failed("Ceph: no answer in time")),
    ),
}


@each_row(
    ("code", "seen"),
    [
        pytest.param(code, seen, id=f"{code}: {name}")
        for code, table in REPORTED.items()
        for name, seen in table.items()
    ],
)
def test_state_is_reported_with_its_code(code: str, seen: Snapshot) -> None:
    finding = found(seen, code)
    assert finding.message
    assert finding.remedy
    assert "None" not in finding.message


@pytest.mark.parametrize("seen", ANSWERED.values(), ids=ANSWERED.keys())
def test_rbd905_is_not_reported_in_similar_states(seen: Snapshot) -> None:
    assert "RBD905" not in {finding.code for finding in diagnosis_of(seen).findings}


@pytest.mark.parametrize("seen", REPORTED["RBD905"].values(), ids=REPORTED["RBD905"].keys())
def test_text_shows_what_an_unresponsive_ceph_means(seen: Snapshot) -> None:
    """Assert a finding in the text: RBD902 and RBD904 appear as lines of the sources only."""
    diagnosis = diagnosis_of(seen)
    assert diagnosis.verdict is not Verdict.FREE
    shown = answer(diagnosis, seen, layout=Layout())
    assert "RBD905" in shown
    assert "do not treat the image as free" in " ".join(shown.split())


def test_unresponsive_ceph_is_reported_once_for_many_volumes() -> None:
    seen = REPORTED["RBD905"]["no monitor"]
    life = among_all(lifecycle_of(correlate(seen), seen), seen)
    assert "RBD905" not in {finding.code for finding in life.findings}


def test_every_code_of_the_catalogue_has_a_table() -> None:
    refusals = {code for code, _, _ in CONDITIONS}
    tables = (family.REPORTED for family in FAMILIES)
    # Those of manifests are in tests/unit/test_lint.py.
    of_manifests = {entry.code for entry in ENTRIES}
    assert refusals.union(*tables) == CATALOG.keys() - of_manifests


def test_dead_driver_comes_before_the_multi_attach_it_causes() -> None:
    seen = world(
        mapped={"mounts": (mount(),)},
        of_kubelet=PLUGIN_DOWN,
        in_kube={**waits(MULTI_ATTACH), "attachments": (attachment(),)},
    )
    assert [finding.code for finding in diagnosis_of(seen).findings][:2] == ["RBD201", "RBD401"]


def test_pin_in_a_mount_namespace_leads_to_its_process_and_mount() -> None:
    """Assert the recorded case (09b-pinned): a live file system, and the node needs no reboot."""
    own = MountNamespace(inode=4026532250, process=process(pid=4078))
    pinned = {
        "mounts": (mount(path="/run/pin mp", namespace=own),),
        "kernel_traces": ("/sys/fs/ext4/rbd0",),
    }
    assert lines_of(found(world(mapped=pinned), "RBD102").commands)[:2] == (
        "ps -o pid,user,lstart,args -p 4078  # on worker-1",
        "findmnt --task 4078 '/run/pin mp'  # on worker-1",
    )


def test_pin_in_a_container_of_another_pod_leads_to_that_pod() -> None:
    debug = ObjectRef(namespace="ops", name="debug", uid="debug-uid")
    seen = world(
        mapped={"mounts": (mount(path="/data", namespace=container("debug-uid")),)},
        in_kube={"pods": (pod("debug", ref=debug, claims=()),)},
    )
    assert lines_of(found(seen, "RBD102").commands)[:4] == (
        "ps -o pid,user,lstart,args -p 6790  # on worker-1",
        "findmnt --task 6790 /data  # on worker-1",
        "kubectl -n ops describe pod debug",
        "kubectl -n ops delete pod debug",
    )


FORMER_ENTRY: Final = BlocklistEntry(network=ADDRESS.ip, nonce=7, until="tomorrow")
SHARED_ENTRY: Final = {"blocklist": (OWN_ENTRY,)}
PUBLISHED: Final = PublishedMapping(
    device="/dev/rbd7", verdict=Verdict.DEAD, fsid=FSID, client_address=ADDRESS
)
BY_AGENT: Final = PublishedNode(name="worker-1", observed_at=NOW, mappings=(PUBLISHED,))
OF_ANOTHER: Final = replace(PUBLISHED, client_address=replace(ADDRESS, nonce=12))
SIBLING: Final = {"mappings": (mapping(client_address=replace(ADDRESS, nonce=5)), NEIGHBOUR)}


def used_on_worker_1(*published: PublishedNode) -> Snapshot:
    """Build a snapshot on worker-2: the node of the pod has lost its watch, and has an entry."""
    return from_worker_2(
        of_image={"watchers": ()},
        in_ceph=SHARED_ENTRY,
        in_kube={"pods": (pod(),), "published": published},
    )


@pytest.mark.parametrize(
    ("seen", "hit"),
    [
        (
            world(in_ceph=SHARED_ENTRY, on_node=SIBLING, of_image={"watchers": ()}),
            "matches its client of /dev/rbd1",
        ),
        (used_on_worker_1(BY_AGENT), "matches its client of /dev/rbd7"),
        (used_on_worker_1(replace(BY_AGENT, observed_at=LONG_AGO)), "its client of /dev/rbd7"),
        (used_on_worker_1(), "was not observed"),
        (used_on_worker_1(replace(BY_AGENT, mappings=UNSEEN)), "was not observed"),
        (
            used_on_worker_1(replace(BY_AGENT, mappings=(OF_ANOTHER,), observed_at=LONG_AGO)),
            "was not observed",
        ),
    ],
    ids=["sibling here", "published", "published long ago", "no agent", "blind agent", "old"],
)
def test_blocklist_entry_of_a_client_that_may_live_is_kept(seen: Snapshot, hit: str) -> None:
    """Assert the advice: its end makes the mappings writable without a watch (recording 30)."""
    finding = found(seen, "RBD306")
    assert hit in finding.message
    assert "do not remove its entry, and do not wait for it to expire" in finding.remedy
    assert finding.recovery == Recovery(note=finding.recovery.note if finding.recovery else "")


@pytest.mark.parametrize(
    "seen",
    [
        world(in_ceph={"blocklist": (FORMER_ENTRY,)}),
        used_on_worker_1(replace(BY_AGENT, mappings=(OF_ANOTHER,))),
    ],
    ids=["here", "published"],
)
def test_blocklist_entry_of_a_client_without_mappings_expires(seen: Snapshot) -> None:
    finding = found(seen, "RBD306")
    assert "a former client of it, which has nothing mapped" in finding.message
    assert finding.recovery is not None
    assert finding.recovery.actor == "Ceph"


MANY_BLOCKS: Final = volume(access_modes=("ReadWriteMany",), volume_mode="Block")
MANY_READERS: Final = volume(access_modes=("ReadOnlyMany",))
MANY_FILES: Final = volume(access_modes=("ReadWriteMany",))
BOTH_ATTACHED: Final = (attachment(), attachment("worker-2"))


def listed_on_worker_1(shared: Any, *attachments: Any) -> Snapshot:  # noqa: ANN401 - as the builders
    """Build a snapshot as `rbdagent list` takes it, which lists only the pods of its node."""
    return world(
        mapped={"read_only": shared is MANY_READERS},
        of_image={"watchers": (watcher(), remote_watcher())},
        in_kube={
            "persistent_volumes": (shared,),
            "pods": (pod(),),
            "pods_scope": "node/worker-1",
            "attachments": attachments,
        },
    )


@pytest.mark.parametrize(
    ("shared", "attachments", "severity"),
    [
        (MANY_BLOCKS, BOTH_ATTACHED, Severity.INFO),
        (MANY_READERS, BOTH_ATTACHED, Severity.INFO),
        (MANY_BLOCKS, BOTH_ATTACHED[:1], Severity.WARNING),
        (volume(), BOTH_ATTACHED, Severity.WARNING),
        (MANY_FILES, BOTH_ATTACHED, Severity.WARNING),
    ],
    ids=["RWX block", "ROX", "not attached there", "RWO", "RWX files"],
)
def test_remote_holder_is_a_warning_unless_the_mode_allows_it(
    shared: Any,  # noqa: ANN401 - as the builders
    attachments: tuple[Any, ...],
    severity: Severity,
) -> None:
    seen = listed_on_worker_1(shared, *attachments)
    assert found(seen, "RBD119").severity is severity


@pytest.mark.parametrize(
    ("shared", "second", "nodes"),
    [
        (MANY_BLOCKS, pod("b", "worker-2"), []),
        (MANY_READERS, pod("b", "worker-2"), []),
        (MANY_BLOCKS, pod("b", "worker-2", deleting_since=NOW), ["worker-2"]),
        (MANY_FILES, pod("x", "worker-2"), ["worker-2"]),
    ],
    ids=["RWX block", "ROX", "its pod ends", "RWX files"],
)
def test_node_that_shares_a_volume_has_no_detach_path(
    shared: Any,  # noqa: ANN401 - as the builders
    second: Any,  # noqa: ANN401 - as the builders
    nodes: list[str],
) -> None:
    seen = world(
        in_kube={
            "persistent_volumes": (shared,),
            "pods": (pod(), second),
            "attachments": BOTH_ATTACHED,
        }
    )
    assert [way.node for way in lifecycle_of(correlate(seen), seen).detach_paths] == nodes


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        pytest.param(code, seen, id=f"{code}: {name}")
        for code, table in NOT_REPORTED.items()
        for name, seen in table.items()
    ],
)
def test_similar_state_is_reported_without_the_code(code: str, seen: Snapshot) -> None:
    assert code not in codes(seen)


# --------------------------------------------------------------------------------------------------
# Messages, evidence and commands
# --------------------------------------------------------------------------------------------------


def test_founding_incident_names_device_pin_attachment_and_pod() -> None:
    seen = world(
        mapped={"openers": (opener(),), "kernel_traces": ("/sys/fs/ext4/rbd0",)},
        in_kube={**waits(MULTI_ATTACH), "attachments": (attachment(),)},
    )
    finding = found(seen, "RBD102")
    assert finding.message.startswith("/dev/rbd0 on worker-1 is kept open: process 4623")
    assert "at most 2m2s" in finding.message
    assert "default/web-1 on worker-2" in finding.message
    assert any("client.4393" in line for line in finding.evidence)
    assert any(attachment().name in line for line in finding.evidence)
    assert "worker-1" in found(seen, "RBD401").message
    assert (
        lines_of(diagnosis_of(seen).next_commands)[0]
        == "ps -o pid,user,lstart,args -p 4623  # on worker-1"
    )


def test_forgotten_orphan_is_unmapped_first() -> None:
    seen = world(in_kube=waits(BEING_USED))
    assert lines_of(diagnosis_of(seen).next_commands) == (
        f"rbdagent unmap pv/{PV}  # on worker-1",
        f"rbdagent unmap pv/{PV} --wait --yes  # on worker-1",
        f"rbdagent who-holds pv/{PV}",
    )
    # The remedy also states the manual steps, for a node without rbdagent.
    assert "then rbd unmap /dev/rbd0. The kernel refuses" in sentence_of(
        found(seen, "RBD101").remedy
    )


@pytest.mark.parametrize(
    "seen",
    [
        world(in_kube={"persistent_volumes": (), "claims": ()}, target=BY_IMAGE),
        world(on_node={"mappings": (mapping(), mapping(device="/dev/rbd1", device_id=1))}),
    ],
    ids=["no volume", "mapped twice"],
)
def test_orphan_without_a_unique_name_is_unmapped_by_device(seen: Snapshot) -> None:
    assert "rbdagent unmap /dev/rbd0  # on worker-1" in lines_of(found(seen, "RBD101").commands)


def test_orphan_in_volumes_in_use_is_not_called_forgotten() -> None:
    """Build ceph-csi#658: the VolumeAttachment was deleted by hand while NodeUnstage fails."""
    in_use = node(volumes_in_use=(IN_USE_NAME,))
    seen = world(of_kubelet={"staging": (staging(),)}, in_kube={"nodes": (in_use,)})
    message = found(seen, "RBD101").message
    assert "kubelet has not completed NodeUnstage" in message
    assert "no longer tracks" not in message


def test_orphan_with_an_attachment_is_observed_again_first() -> None:
    seen = world(in_kube={"attachments": (attachment(),)})
    assert lines_of(diagnosis_of(seen).next_commands) == (
        f"rbdagent who-holds pv/{PV}",
        f"rbdagent unmap pv/{PV}  # on worker-1",
        f"rbdagent unmap pv/{PV} --wait --yes  # on worker-1",
    )


def test_staged_orphan_is_released_in_order() -> None:
    seen = world(mapped={"mounts": (mount(),), "holders": (luks(),)})
    assert lines_of(found(seen, "RBD110").commands)[1:] == (
        f"umount {STAGING_PATH}  # on worker-1",
        f"cryptsetup luksClose luks-rbd-{HANDLE}  # on worker-1",
        "rbd unmap /dev/rbd0  # on worker-1",
    )


def test_remaining_luks_mapping_is_closed_before_the_unmap() -> None:
    seen = world(mapped={"holders": (luks(),)})
    assert lines_of(found(seen, "RBD110").commands)[1:] == (
        f"cryptsetup luksClose luks-rbd-{HANDLE}  # on worker-1",
        "rbd unmap /dev/rbd0  # on worker-1",
    )
    assert "RBD101" not in {finding.code for finding in diagnosis_of(seen).findings}


def test_next_command_on_the_waiting_node_runs_on_the_holder() -> None:
    seen = from_worker_2(in_kube=waits(BEING_USED))
    assert (
        lines_of(diagnosis_of(seen).next_commands)[0] == f"ssh worker-1 rbdagent who-holds pv/{PV}"
    )
    assert "client.4393" in found(seen, "RBD402").message


def test_mapping_being_unmapped_is_not_called_unwatched() -> None:
    going = (in_flight("rbd", f"rbd unmap {SPEC} --device-type krbd"),)
    seen = world(on_node={"in_flight": going}, of_image={"watchers": ()})
    assert "RBD105" not in codes(seen)


def test_missing_watch_is_rechecked_unless_the_kernel_reports_it() -> None:
    by_ceph = world(of_image={"watchers": ()})
    by_kernel = world(mapped={"watch": False}, of_image={"watchers": ()})
    assert lines_of(diagnosis_of(by_ceph).next_commands)[0] == f"rbdagent who-holds pv/{PV}"
    assert lines_of(diagnosis_of(by_kernel).next_commands)[0] == "kubectl cordon worker-1"


def test_image_asked_by_name_leads_to_a_query_of_its_pv() -> None:
    seen = unmapped(in_kube={"pods_scope": "node/worker-1"}, target=BY_IMAGE)
    assert lines_of(diagnosis_of(seen).next_commands) == (f"rbdagent who-holds pv/{PV}",)


def test_command_about_one_node_names_it() -> None:
    undetermined = world(mapped={"mounts": UNSEEN})
    assert lines_of(found(undetermined, "RBD119").commands) == ("rbdagent check  # on worker-1",)


def test_no_command_acts_on_an_nbd_device() -> None:
    watch = watcher(client=5000, cookie=LIBRBD_COOKIE)
    seen = world(on_node={"mappings": (nbd_mapping(),)}, of_image={"watchers": (watch,)})
    assert lines_of(found(seen, "RBD101").commands) == (f"rbdagent who-holds pv/{PV}",)


def test_every_device_of_a_blocklisted_client_is_named() -> None:
    seen = world(on_node={"mappings": (mapping(), NEIGHBOUR)}, in_ceph={"blocklist": (OWN_ENTRY,)})
    assert "/dev/rbd0, /dev/rbd1" in found(seen, "RBD103").message


GATEWAY: Final = volume(
    source=csi_source(
        {
            "driver": "nvmeof.csi.ceph.com",
            "volumeHandle": HANDLE,
            "volumeAttributes": {
                "clusterID": "lab",
                "pool": "k8s",
                "imageName": SPEC.name,
                "imageFeatures": "layering",
            },
        }
    )
)


def test_volume_of_an_nvmeof_gateway_is_named_and_not_judged() -> None:
    """Assert INFO: its attributes are those of the RBD driver (ceph-csi#6163)."""
    seen = unmapped(in_kube={"persistent_volumes": (GATEWAY,)})
    assert codes(seen) == {"RBD407"}
    finding = found(seen, "RBD407")
    assert finding.severity is Severity.INFO
    assert "the gateway holds its RBD image k8s/csi-vol-" in finding.message
    assert lines_of(finding.commands) == (f"rbd status {SPEC}",)


OTHER_UID: Final = "11111111-2222-4333-8444-555555555555"


def test_every_pod_of_a_blocklisted_client_is_to_be_deleted() -> None:
    other = pod("db-0", ref=ObjectRef(namespace="shop", name="db-0", uid=OTHER_UID))
    path = POD_PATH.replace(POD_UID, OTHER_UID)
    neighbour = replace(NEIGHBOUR, mounts=(mount(path=path),))
    seen = world(
        on_node={"mappings": (mapping(), neighbour)},
        in_ceph={"blocklist": (OWN_ENTRY,)},
        in_kube={"pods": (pod(), other)},
    )
    dead = found(seen, "RBD103")
    assert "I/O fails on all of them. This affects shop/db-0 as well" in dead.message
    assert "kubectl -n shop delete pod db-0" in lines_of(dead.commands)


TWO: Final = {"of_image": {"watchers": (watcher(), remote_watcher())}}
BOTH: Final = (pod(), pod("web-1", "worker-2"))
WRITERS: Final = {
    "Stop /dev/rbd0 on worker-1 first: there is no VolumeAttachment of the volume to its node.": {
        "attachments": (attachment("worker-2"),),
        "pods": BOTH,
    },
    "Stop client.4239": {"attachments": (attachment("worker-1"),), "pods": BOTH},
    "No observation shows which of them is right: stop all of them.": {
        "attachments": (attachment("worker-1"), attachment("worker-2")),
        "pods": BOTH,
    },
}


@pytest.mark.parametrize(("advice", "in_kube"), WRITERS.items(), ids=WRITERS.keys())
def test_writer_without_a_volume_attachment_is_stopped_first(
    advice: str, in_kube: dict[str, Any]
) -> None:
    conflict = found(world(in_kube=in_kube, **TWO), "RBD106")
    assert advice in conflict.message


def test_commands_of_a_conflict_stop_the_named_writers() -> None:
    one, other = (delete_pod(running) for running in BOTH)
    lone = {"attachments": (attachment("worker-2"),), "pods": BOTH}
    assert found(world(in_kube=lone, **TWO), "RBD106").commands == (one,)
    attachments = (attachment("worker-1"), attachment("worker-2"))
    both = found(world(in_kube={"attachments": attachments, "pods": BOTH}, **TWO), "RBD106")
    assert both.commands == (one, other)


WIDE_ENTRIES: Final = {
    "ceph osd blocklist rm 10.77.0.11:0/0": BlocklistEntry(network=ADDRESS.ip, until="tonight"),
    "ceph osd blocklist range rm 10.77.0.11/32": BlocklistEntry(
        network="10.77.0.11/32", until="tonight"
    ),
    "ceph osd blocklist range rm 10.77.0.9/24": BlocklistEntry(
        network="10.77.0.9/24", until="tonight"
    ),
}


@pytest.mark.parametrize(("command", "entry"), WIDE_ENTRIES.items(), ids=WIDE_ENTRIES.keys())
def test_removal_of_a_wide_entry_is_named_with_its_condition(
    command: str, entry: BlocklistEntry
) -> None:
    """Assert the condition: the entry also blocks a new client, so eviction is not enough."""
    dead = found(world(in_ceph={"blocklist": (entry,)}), "RBD103")
    condition = "Do not run this before the last mapping that the entry blocks is gone."
    assert f"`{command}` removes it. {condition}" in dead.message
    assert "The entry expires tonight." in dead.message
    assert any(f"{entry}" in line and "until tonight" in line for line in dead.evidence)


IN_SIX: Final = replace(ADDRESS, ip="fd00:1::11")
SIX: Final = {
    "range fd00:1::/64 until tonight": BlocklistEntry(network="fd00:1::/64", until="tonight"),
    "[fd00:1::11]:0/0 (every client of that host)": BlocklistEntry(network="fd00:1::11"),
    f"[fd00:1::11]:0/{ADDRESS.nonce}": BlocklistEntry(network="fd00:1::11", nonce=ADDRESS.nonce),
}


@pytest.mark.parametrize(("words", "entry"), SIX.items(), ids=SIX.keys())
def test_reason_names_the_entry_that_blocks_an_ipv6_client(
    words: str, entry: BlocklistEntry
) -> None:
    seen = world(
        mapped={"client_address": IN_SIX},
        of_image={"watchers": (watcher(address=IN_SIX),)},
        in_ceph={"blocklist": (entry,)},
    )
    (holder,) = diagnosis_of(seen).holders
    assert holder.verdict is Verdict.DEAD
    assert holder.reasons == (f"its client is on the blocklist: {words}",)


def test_range_that_blocks_another_address_of_the_node_is_named() -> None:
    seen = world(
        in_kube={"nodes": (node(internal_ips=("10.66.0.1",)), node("worker-2"))},
        in_ceph={"blocklist": (BlocklistEntry(network="10.66.0.0/24"),)},
    )
    finding = found(seen, "RBD306")
    assert "range 10.66.0.0/24 matches every client on it" in finding.message
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("entry", [OWN_ENTRY, *WIDE_ENTRIES.values()])
def test_removal_of_a_blocklist_entry_is_never_a_command(entry: BlocklistEntry) -> None:
    seen = world(in_ceph={"blocklist": (entry,)}, in_kube={"pods": (pod(),)})
    commands = [
        line for finding in diagnosis_of(seen).findings for line in lines_of(finding.commands)
    ]
    assert not any("blocklist rm" in line or "range rm" in line for line in commands)


def test_fencing_names_the_client_and_daemons_at_its_address() -> None:
    seen = from_worker_2(
        in_kube={"nodes": (node(ready=None), node("worker-2"))},
        in_ceph={"monitors": (ServiceAddress(kind="mon", name="a", address=ADDRESS),)},
    )
    sentences = " ".join(found(seen, "RBD113").evidence)
    assert f"{ADDRESS.ip}:0/{ADDRESS.nonce}" in sentences
    assert "mon.a" in sentences


def test_missing_device_node_is_created_with_its_number() -> None:
    seen = world(mapped={"device_node_present": False, "number": DeviceNumber(major=252, minor=16)})
    assert lines_of(found(seen, "RBD204").commands)[0].startswith("mknod -m 600 /dev/rbd0 b 252 16")


def test_left_pod_directory_is_named_without_its_mount_point() -> None:
    """Assert the directory: kubelet itself removes an empty mount point (kubelet_volumes.go)."""
    left = found(world(of_kubelet={"pod_volumes": (pod_directory(),)}), "RBD205")
    assert left.evidence == (POD_PATH.removesuffix("/mount"),)


@pytest.mark.parametrize(
    ("changed_at", "severity"),
    [
        ("2026-11-21T02:59:30Z", Severity.INFO),
        ("2026-11-21T03:00:02Z", Severity.INFO),
        (JUST_NOW, Severity.WARNING),
        ("2026-11-21T03:02:00Z", Severity.WARNING),
        (None, Severity.WARNING),
    ],
    ids=[
        "half a minute ago",
        "after the snapshot began",
        "two minutes ago",
        "in the future",
        "not observed",
    ],
)
def test_pod_directory_that_changed_just_now_is_no_warning(
    changed_at: str | None, severity: Severity
) -> None:
    """Kubelet may be at work there: the directory and the pods are not read in one moment."""
    left = world(of_kubelet={"pod_volumes": (pod_directory(changed_at=changed_at),)})
    seen = found(left, "RBD205")
    assert seen.severity is severity
    assert ("kubelet may be at work" in seen.message) is (severity is Severity.INFO)


def test_data_on_the_node_disk_is_rescued_first() -> None:
    seen = unmapped(on_node={"unbacked": (UNBACKED,)}, in_kube={"pods": (pod(),)})
    rescue = lines_of(diagnosis_of(seen).next_commands)[0]
    assert rescue.startswith(
        f"tar --create --file=rescue.tar -C /proc/{UNBACKED.process.pid}/root ./"
    )
    assert rescue.endswith("# on worker-1")
    assert not any("delete pod" in line for line in lines_of(diagnosis_of(seen).next_commands))


def test_skipped_source_is_not_a_warning() -> None:
    skipped = Source(state=SourceState.SKIPPED, reason="--no-ceph")
    seen = world(ceph=None, sources=Sources(node=OBSERVED, ceph=skipped, kubernetes=OBSERVED))
    assert found(seen, "RBD902").severity is Severity.INFO


def test_errors_come_first() -> None:
    weights = [
        finding.severity
        for finding in diagnosis_of(world(ceph=None, in_kube=waits(EXISTS))).findings
    ]
    assert weights == sorted(weights, key=("error", "warning", "info").index)


def test_claim_is_not_looked_up_without_the_permission_to_read_claims() -> None:
    reported = found(REPORTED["RBD415"]["claims may not be read"], "RBD415")
    assert reported.message.startswith(
        "pvc/default/data was not looked up: PersistentVolumeClaims were not observed. "
    )
    assert reported.evidence == ("PersistentVolumeClaims: permission denied",)
    assert lines_of(reported.commands) == ("rbdagent check  # on worker-1",)


# --------------------------------------------------------------------------------------------------
# The catalogue
# --------------------------------------------------------------------------------------------------


@each_row("code", CATALOG)
def test_every_code_is_explained_in_full(code: str) -> None:
    known, page = entry(code.lower()), page_of(code)
    remedy = sentence_of(known.remedy)
    text = explanation(known, page)
    for part in (known.name, known.summary, page.cause, page.evidence, page.risk, remedy):
        assert part
        assert part in text


def test_names_are_unique_and_lead_to_their_codes() -> None:
    assert len({known.name for known in CATALOG.values()}) == len(CATALOG)
    assert entry("mappingorphaned").code == "RBD101"


def test_an_unknown_code_gets_near_matches() -> None:
    with pytest.raises(NotFoundError) as error:
        entry("MappingOrphand")
    assert "RBD101 MappingOrphaned" in error.value.near


def test_image_id_of_a_renamed_image_identifies_it() -> None:
    renamed = mapping(spec=ImageSpec(pool="k8s", name="old-name"), image_id=IMAGE_ID)
    assert "RBD101" in codes(world(on_node={"mappings": (renamed,)}))


@pytest.mark.parametrize(
    ("node", "parts", "adopted"),
    [
        pytest.param("worker-1", {}, True, id="mapped on the waiting node"),
        pytest.param("worker-1", {"mapped": {"mounts": (mount(),)}}, True, id="and mounted there"),
        pytest.param("worker-2", {}, False, id="mapped on another node"),
        pytest.param(None, {}, False, id="the pod has no node"),
        pytest.param(
            "worker-1",
            {"of_image": {"watchers": (watcher(), watcher(address=STRANGER_ADDRESS, client=7))}},
            False,
            id="another client watches too",
        ),
        pytest.param(
            "worker-1",
            {"in_kube": {"persistent_volumes": (volume(source=replace(
                volume().source, attributes=(("mounter", "rbd-nbd"),)
            )),)}},
            False,
            id="mapped by krbd, and the target is the rbd-nbd device",
        ),
    ],
)  # fmt: skip
def test_mapping_on_the_waiting_node_is_used_by_the_next_retry(
    node: str | None, parts: dict[str, Any], *, adopted: bool
) -> None:
    """Assert reuse: attachRBDImage (ceph-csi) takes the node's own device and checks no watcher."""
    in_kube = {"pods": (waiting_pod(node_name=node),), "events": (BEING_USED,)}
    seen = world(**{**parts, "in_kube": in_kube | parts.get("in_kube", {})})
    finding = found(seen, "RBD402")
    assert (finding.severity is Severity.INFO) is adopted
    assert ("the next retry will succeed" in finding.message) is adopted
    assert (finding.remedy == "Wait for kubelet's next retry.") is adopted
    assert not (adopted and "Clear" in finding.message)


def test_client_of_no_known_node_may_be_that_of_a_running_pod() -> None:
    """A node may reach Ceph from an address that no Node lists, or Nodes were refused."""
    seen = unmapped(
        of_image={"watchers": (remote_watcher(),)},
        in_kube={"pods": (pod("x", "worker-2"),), "nodes": UNSEEN},
    )
    message = found(seen, "RBD416").message
    assert "no watch that is known to be from that node (client." in message
