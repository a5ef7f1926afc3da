"""`Free` is never the verdict while any machine that is on may have the image mapped."""

from __future__ import annotations

import functools
import os
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from rbdagent.collect.ceph.image import watches_in
from rbdagent.collect.kube.list_reports import dated, node_report
from rbdagent.correlate import correlate
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    EntityAddress,
    ImagePresence,
    Mapping,
    MountKind,
    NbdState,
    Node,
    NotObserved,
    Pod,
    ProcessRef,
    PublishedMapping,
    PublishedNode,
    ServiceAddress,
    Snapshot,
    Verdict,
    VolumeAttachment,
    Watcher,
)
from rbdagent.parse.kubernetes import lease, rbd_node
from rbdagent.verdicts.holder_verdict import judge
from rbdagent.verdicts.volume_verdict import target_verdict
from tests.support.run_summary import PRINTED
from tests.support.snapshots import (
    COOKIE,
    FAILED,
    FSID,
    HANDLE,
    IMAGE_ID,
    IN_USE_NAME,
    LIBRBD_COOKIE,
    OBSERVED,
    POD_PATH,
    POD_UID,
    PV,
    REMOTE_ADDRESS,
    ROOT,
    SPEC,
    UNSEEN,
    attachment,
    cluster,
    container,
    image_view,
    mapping,
    mount,
    nbd_mapping,
    node,
    pod,
    pod_directory,
    staging,
    unmapped,
    volume,
    watcher,
)

if TYPE_CHECKING:
    from collections.abc import Callable

STATES: Final = int(os.environ.get("RBDAGENT_FUZZ_STATES", "100000"))
SEED: Final = int(os.environ.get("RBDAGENT_FUZZ_SEED", "1"))
"""The same states in each run of the tier; ``./dev fuzz`` draws another seed."""
FORMER_ID: Final = "101d5f0e0123"
"""The id of the image that was mapped, and renamed since then."""
A_MINUTE_AGO: Final = "2026-11-21T02:59:00Z"
AN_HOUR_AGO: Final = "2026-11-21T02:00:00Z"
IN_AN_HOUR: Final = "2026-11-21T04:00:00Z"


class Machine(Struct, frozen=True, kw_only=True):
    """One other machine in its real state, whatever the sources show of it."""

    name: str
    power: bool
    mapped: str
    """``no``, ``rw`` or ``ro``."""
    watch: bool
    librbd: bool
    """Its client is one of librbd (rbd-nbd, qemu), not krbd."""
    watched_in: tuple[bool, bool]
    """In which of the two reads of the watches its watch is: it may have begun or ended between
    them, and the image stays mapped."""
    checked_in: tuple[bool, bool]
    """In which of them another client there, such as ceph-csi's own check, watches."""
    blocklisted: bool
    lifted: bool
    """Its blocklist entry was removed: the client writes again, without a watch."""
    api: str
    """Its Node: ``Ready``, ``NotReady``, ``Unknown``, ``tainted`` or ``gone``."""
    agent: str
    """``fresh``, ``stale`` (its report is of another state), ``ahead`` (the same, and its clock is
    ahead: the time of its last report may just have come), ``blind`` (it sees no devices),
    ``unsure`` (it sees a device and not its image) or ``none``."""
    pod: str
    """A pod of the volume there: ``no``, ``Running``, ``Pending`` or ``Succeeded``."""
    attached: bool
    in_use: bool
    address_known: bool
    """Whether the address of its client leads to its Node."""
    renamed: bool
    """Its image was renamed, and another image has the name now: its watch is on the former one."""

    @property
    def holds(self) -> bool:
        """Return whether the machine is on and has the image mapped."""
        return self.power and self.mapped != "no"


def drawn(name: str, draw: random.Random) -> Machine:
    """Draw a machine; impossible states are left out."""
    power = draw.random() < 0.85
    mapped = draw.choice(("no", "no", "no", "rw", "rw", "ro"))
    lifted = mapped == "rw" and draw.random() < 0.3
    blocklisted = mapped != "no" and not lifted and draw.random() < 0.2
    renamed = mapped != "no" and draw.random() < 0.3
    takes_watch = mapped == "rw" and power and not (lifted or blocklisted or renamed)
    # An agent reports while its machine is on and reaches the API.
    agents = ("fresh", "fresh", "fresh", "fresh", "stale", "ahead", "blind", "unsure", "none")
    agent = draw.choice(agents if power else agents[4:])
    states = ("Ready", "Ready", "Ready", "NotReady", "Unknown", "tainted", "gone")
    watch = takes_watch and draw.random() < 0.7
    both, neither, one = (True, True), (False, False), ((True, False), (False, True))
    return Machine(
        name=name,
        power=power,
        mapped=mapped,
        watch=watch,
        librbd=draw.random() < 0.2,
        watched_in=draw.choice((both, both, both, *one)) if watch else neither,
        checked_in=draw.choice(one) if power and draw.random() < 0.1 else neither,
        blocklisted=blocklisted,
        lifted=lifted,
        api=draw.choice(states),
        agent=agent,
        pod=draw.choice(("no", "no", "no", "Running", "Pending", "Succeeded")),
        attached=draw.random() < 0.2,
        in_use=draw.random() < 0.2,
        address_known=draw.random() < 0.8,
        renamed=renamed,
    )


class Here(Struct, frozen=True, kw_only=True):
    """What worker-1 has of the PV, although its image has another name today."""

    name: str
    """The name of the device's image in sysfs: ``former``, which the PV contains, or ``other``,
    as if its pool was renamed too. Empty if no device is mapped."""
    at: str
    """Where the device is mounted: a key of `PLACES`."""
    hidden_mounts: bool
    """Whether its mounts were not observed."""
    directory: bool
    """Whether kubelet has a directory of the PV for a pod."""
    staged: bool
    """Whether its staging path exists."""
    in_use: bool
    """Whether kubelet lists the PV in volumesInUse."""

    @property
    def holds(self) -> bool:
        """Return whether the device may be written through the PV, or kubelet may still use it."""
        return bool(self.name) or self.directory or self.staged or self.in_use


BLOCK: Final = f"{ROOT}/plugins/kubernetes.io/csi/volumeDevices"
PLACES: Final = {
    "nowhere": (),
    "staging": (mount(),),
    "pod": (mount(path=POD_PATH),),
    "container": (mount(path="/data", namespace=container()),),
    "block staging": (mount(path=f"{BLOCK}/staging/{PV}/{HANDLE}", kind=MountKind.DEVICE_BIND),),
    "block publish": (mount(path=f"{BLOCK}/publish/{PV}/{POD_UID}", kind=MountKind.DEVICE_BIND),),
    "block link": (mount(path=f"{BLOCK}/{PV}/dev/{POD_UID}", kind=MountKind.DEVICE_BIND),),
}


def drawn_here(draw: random.Random) -> Here:
    """Draw what is left on worker-1: mostly nothing."""
    if draw.random() < 0.7:
        name, at = "", "nowhere"
    else:
        name, at = draw.choice(("former", "former", "other")), draw.choice(tuple(PLACES))
    if name == "other" and at in ("nowhere", "container"):
        # Nothing connects such a device with the PV.
        name = "former"
    return Here(
        name=name,
        at=at,
        hidden_mounts=bool(name) and draw.random() < 0.2,
        directory=draw.random() < 0.1,
        staged=draw.random() < 0.1,
        in_use=draw.random() < 0.1,
    )


def mappings_here(here: Here) -> tuple[Mapping, ...]:
    if not here.name:
        return ()
    spec = SPEC if here.name == "former" else replace(SPEC, name="other")
    mounts = UNSEEN if here.hidden_mounts else PLACES[here.at]
    return (mapping(spec=spec, image_id=FORMER_ID, mounts=mounts),)


def directories_here(here: Here) -> dict[str, Any]:
    return {
        "staging": (staging(path_present=True),) if here.staged else (),
        "pod_volumes": (pod_directory(),) if here.directory else (),
    }


def address_of(machine: Machine) -> EntityAddress:
    number = int(machine.name.rpartition("-")[2])
    return EntityAddress(ip=f"10.77.0.{10 + number}", port=0, nonce=7000 + number)


def client_of(machine: Machine) -> int:
    return 4000 + int(machine.name.rpartition("-")[2])


def node_of(machine: Machine) -> tuple[Node, ...]:
    if machine.api == "gone":
        return ()
    return (
        node(
            machine.name,
            ready={"NotReady": False, "Unknown": None}.get(machine.api, True),
            out_of_service=machine.api == "tainted",
            internal_ips=(address_of(machine).ip,) if machine.address_known else (),
            volumes_in_use=(IN_USE_NAME,) if machine.in_use else (),
        ),
    )


EQUAL: Final = ((A_MINUTE_AGO, A_MINUTE_AGO),)
TIMES: Final = {
    "fresh": EQUAL,
    "blind": EQUAL,
    "unsure": EQUAL,
    "stale": ((AN_HOUR_AGO, AN_HOUR_AGO),),
    "ahead": (
        (A_MINUTE_AGO, AN_HOUR_AGO),
        (IN_AN_HOUR, AN_HOUR_AGO),
        (IN_AN_HOUR, A_MINUTE_AGO),
    ),
}
"""By the state of an agent: the time of its clock when it last reported, and that of the API."""


@functools.cache
def read_report(written: str, stored: str) -> PublishedNode:
    """Return a report without mappings as it is read from the API."""

    def metadata(*path: str) -> dict[str, object]:
        fields: dict[str, object] = {}
        for key in reversed(path):
            fields = {key: fields}
        entry = {"time": stored, "fieldsV1": fields}
        return {"name": "n", "namespace": "rbdagent", "managedFields": [entry]}

    status = {"observedAt": written, "leaseNamespace": "rbdagent", "mapped": 0, "imageLabels": 0}
    summary = rbd_node({"metadata": metadata("f:status", "f:observedAt"), "status": status})
    renewal = {"renewTime": f"{written[:-1]}.000000Z"}
    renewed = lease({"metadata": metadata("f:spec", "f:renewTime"), "spec": renewal})
    return node_report("n", dated(summary, renewed, timedelta()), (), None)


def report_of(machine: Machine, draw: random.Random) -> tuple[PublishedNode, ...]:
    if machine.agent == "none":
        return ()
    report = replace(read_report(*draw.choice(TIMES[machine.agent])), name=machine.name)
    if machine.agent == "blind":
        return (replace(report, mappings=NotObserved(reason="no devices seen")),)
    is_true = machine.agent in ("fresh", "unsure")
    # No process serves it: its image is unknown, and no client has it.
    dead = PublishedMapping(device="/dev/nbd9", verdict=Verdict.DEAD)
    other = (dead,) if draw.random() < 0.2 else ()
    if not (machine.mapped != "no" if is_true else draw.random() < 0.5):
        return (replace(report, mappings=other),)
    verdicts = (Verdict.UNWATCHED, Verdict.DEAD) if machine.lifted else ()
    mapping = PublishedMapping(
        device="/dev/rbd3",
        verdict=draw.choice((*verdicts, Verdict.IN_USE)),
        fsid=FSID,
        spec=SPEC,
        image_id=FORMER_ID if machine.renamed else IMAGE_ID,
        client_id=client_of(machine),
        client_address=address_of(machine),
        read_only=machine.mapped == "ro",
        persistent_volume=draw.choice((PV, None)),
    )
    if machine.librbd:
        # rbd-nbd: neither the cluster nor the client is in sysfs.
        by_nbd = {"device": "/dev/nbd3", "fsid": None, "image_id": None, "client_id": None}
        mapping = replace(mapping, client_address=None, **by_nbd)
    if machine.agent == "unsure":
        unknown = {"spec": None, "image_id": None, "persistent_volume": None}
        mapping = replace(mapping, verdict=Verdict.UNDETERMINED, **unknown)
    return (replace(report, mappings=(mapping, *other)),)


def pod_of(machine: Machine) -> tuple[Pod, ...]:
    if machine.pod == "no":
        return ()
    return (pod(f"app-{machine.name}", machine.name, phase=machine.pod),)


def attachment_of(machine: Machine) -> tuple[VolumeAttachment, ...]:
    return (attachment(machine.name),) if machine.attached else ()


def watchers_of(machine: Machine, read: int) -> tuple[Watcher, ...]:
    """Return the watches of a machine's clients in the first or the second read."""
    own, address = client_of(machine), address_of(machine)
    cookie = LIBRBD_COOKIE if machine.librbd else COOKIE
    found = []
    if machine.watched_in[read]:
        found.append(Watcher(address=address, client=own, cookie=cookie))
    if machine.checked_in[read]:
        other = replace(address, nonce=address.nonce + 500)
        found.append(Watcher(address=other, client=own + 500, cookie=LIBRBD_COOKIE))
    return tuple(found)


def entry_of(machine: Machine) -> tuple[BlocklistEntry, ...]:
    if not machine.blocklisted:
        return ()
    address = address_of(machine)
    return (BlocklistEntry(network=address.ip, port=0, nonce=address.nonce, until=""),)


def seen_from_worker_1(
    machines: tuple[Machine, ...],
    here: Here,
    draw: random.Random,
    second: str = "no",
    nbd: str = "no",
) -> Snapshot:
    """Return what worker-1 observes of itself and of the others.

    Args:
        machines: the others.
        here: the state of worker-1.
        draw: the source of chance.
        second: which cluster has the fsid of the first: ``no``, the ``same`` or a ``copy``.
        nbd: whether worker-1 has an nbd device of an image that it does not see: ``no``, ``dead``
            (no process serves it) or ``served``.
    """

    def every(part: str, found: list[tuple[object, ...]]) -> object:
        if draw.random() < 0.02:
            return replace(UNSEEN, reason=f"{part} refused")
        return tuple(item for items in found for item in items)

    reported = [report_of(machine, draw) for machine in machines]
    reads = [
        tuple(watcher for machine in machines for watcher in watchers_of(machine, read))
        for read in (0, 1)
    ]
    lasting, transient = watches_in(reads if any(reads) else reads[:1])
    own = node(volumes_in_use=(IN_USE_NAME,) if here.in_use else ())
    seen = unmapped(
        on_node={"mappings": (*mappings_here(here), *devices_here(nbd))},
        of_kubelet=directories_here(here),
        of_image={"watchers": every("watchers", [lasting]), "transient_watchers": transient},
        in_ceph={"blocklist": every("blocklist", [entry_of(machine) for machine in machines])},
        in_kube={
            "persistent_volumes": (
                volume(access_modes=(draw.choice(("ReadWriteOnce", "ReadOnlyMany")),)),
            ),
            "nodes": every("nodes", [(own,), *(node_of(machine) for machine in machines)]),
            "published": every("reports", list(reported)),
            "pods": every("pods", [pod_of(machine) for machine in machines]),
            "attachments": every("attachments", [attachment_of(machine) for machine in machines]),
            "nodes_complete": draw.random() > 0.02,
        },
    )
    return with_second_name(seen, second, draw)


def devices_here(here: str) -> tuple[Mapping, ...]:
    if here == "no":
        return ()
    process = ProcessRef(pid=700, command="rbd-nbd map img") if here == "served" else None
    state = NbdState(recorded_pid=700, backend="a cookie", process=process)
    return (nbd_mapping(spec=UNSEEN, nbd=state),)


MONITORS: Final = (ServiceAddress(kind="mon", name="a", address=EntityAddress(ip="10.77.0.1")),)
MONITORS_OF_COPY: Final = (
    ServiceAddress(kind="mon", name="a", address=EntityAddress(ip="10.99.0.1")),
)


def with_second_name(seen: Snapshot, second: str, draw: random.Random) -> Snapshot:
    """Add a second cluster with the fsid of the first: the cluster itself, or a copy of it.

    The copy has the image with its own watcher, without one, under its name with another id, or
    not at all; or it did not answer.
    """
    if second == "no":
        return seen
    assert seen.ceph is not None
    (first,) = seen.ceph.clusters
    first = replace(first, monitors=MONITORS)
    if second == "same":
        return replace(seen, ceph=CephView(clusters=(first, replace(first, name="second"))))
    copied = draw.choice(
        (
            image_view(watchers=(Watcher(address=REMOTE_ADDRESS, client=1, cookie=COOKIE),)),
            image_view(watchers=()),
            image_view(image_id="another", watchers=(watcher(),), metadata=()),
            image_view(presence=ImagePresence.GONE, watchers=()),
            image_view(presence=UNSEEN, watchers=UNSEEN, image_id=None),
        )
    )
    copy = cluster(
        name="copy",
        images=(copied,),
        monitors=draw.choice((MONITORS_OF_COPY, MONITORS_OF_COPY, UNSEEN, ())),
        source=draw.choice((OBSERVED, OBSERVED, FAILED)),
    )
    return replace(seen, ceph=CephView(clusters=(first, copy)))


def verdict_on(snapshot: Snapshot) -> Verdict:
    use = correlate(snapshot)
    judged = tuple(judge(holder, use, snapshot) for holder in use.holders)
    return target_verdict(use, judged, snapshot)


def can_be_seen(machine: Machine) -> bool:
    """Return whether any source shows that a machine exists.

    If its Node was deleted while it was on, only its watch shows it, or the report of its agent, of
    any age, until it is garbage collected.
    """
    return machine.api != "gone" or machine.watch or machine.agent != "none"


@pytest.mark.fuzz
def test_free_is_never_reported_while_a_machine_has_it_mapped(
    record_property: Callable[[str, object], None],
) -> None:
    record_property(PRINTED, f"seed {SEED}, {STATES} states")
    draw = random.Random(SEED)
    free = 0
    for _ in range(STATES):
        machines = tuple(drawn(f"worker-{number}", draw) for number in (2, 3)[: draw.randint(1, 2)])
        second = draw.choice(("no",) * 17 + ("same", "copy", "copy"))
        nbd = draw.choice(("no",) * 17 + ("dead", "dead", "served"))
        here = drawn_here(draw)
        if verdict_on(seen_from_worker_1(machines, here, draw, second, nbd)) is Verdict.FREE:
            free += 1
            assert nbd != "served"
            assert second != "copy"
            assert not here.holds
            holding = [machine for machine in machines if machine.holds and can_be_seen(machine)]
            assert not holding
    assert free > STATES // 1000, "too few of the states are free for this to prove anything"
