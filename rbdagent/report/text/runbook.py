"""The output of ``who-holds --print-runbook``: plain commands that lead to the same answer.

They are for a holder whose node has no agent. Every command only reads. ``bench/who_holds.py``
measures who-holds against these steps.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rbdagent.commands import command, kubectl, line_of
from rbdagent.model import Command, InTreeRbdSource, TargetKind
from rbdagent.report.text.layout import BOLD, Layout, headed, with_escaped_texts, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rbdagent.model import ImageSpec, ObjectRef, Target, Volume

_LAPTOP: Final = "laptop"
_TOOLBOX: Final = "toolbox"
_CLAIM: Final = "CLAIM"
_VOLUME: Final = "PV"
_POOL: Final = "POOL"
_IMAGE: Final = "IMAGE"
_IMAGE_ID: Final = "IMAGE_ID"
_NODE: Final = "NODE"
_DEVICE: Final = "/dev/rbdN"
_ATTRIBUTES: Final = ".spec.csi.volumeAttributes"
_PLACES: Final = (
    "laptop: where kubectl reaches the cluster; toolbox: where rbd and rados reach Ceph, as in "
    "Rook's toolbox pod; the other steps need a root shell on the named node."
)


class Step(Struct, frozen=True, kw_only=True):
    """One command of the runbook."""

    where: str
    """``laptop``, ``toolbox``, or the name of a node."""
    command: Command
    shows: str
    """What the output shows, as a sentence without a full stop."""
    yields: tuple[str, ...] = ()
    """The placeholders of later steps whose values the output has."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The placeholders of the step."""
        words = frozenset(
            part
            for word in (self.where, *self.command.argv)
            for part in (word, *_PARTS.split(word))
        )
        return tuple(name for name in _PLACEHOLDERS if name in words)


_PLACEHOLDERS: Final = (_CLAIM, _VOLUME, _POOL, _IMAGE, _IMAGE_ID, _NODE, _DEVICE)
_PARTS: Final = re.compile(r"[=./]")
"""What separates a placeholder from the rest of its word."""


def runbook(volume: Volume, layout: Layout) -> str:
    """Return the commands for a volume; a name that is not known yet is a placeholder."""
    # Commands are not escaped: a name in them stays the name.
    return _text(volume.target.argument, steps_of(volume), layout)


@with_escaped_texts
def _text(target: str, steps: Sequence[Step], layout: Layout) -> str:
    title = f"Commands that show what holds {target} without an agent on its node; they only read."
    width = max(len(step.where) for step in steps)
    yielded: dict[str, int] = {}
    lines = []
    for number, step in enumerate(steps, start=1):
        head = f" {number:>2}. {step.where:<{width}}  "
        margin = " " * len(head)
        sources: dict[int, list[str]] = {}
        for name in step.needs:
            if name in yielded:
                sources.setdefault(yielded[name], []).append(name)
        known = [f"{' and '.join(names)} from step {source}" for source, names in sources.items()]
        # Never wrap a command: users copy it.
        lines.append(head + line_of(step.command))
        lines.append(wrapped(step.shows, layout, first=margin, rest=margin))
        if known:
            lines.append(wrapped(f"with {', '.join(known)}", layout, first=margin, rest=margin))
        yielded |= dict.fromkeys(step.yields, number)
    first = headed("RUNBOOK", BOLD, [title], layout)
    return "\n\n".join([first, "\n".join(lines), wrapped(_PLACES, layout)]) + "\n"


def steps_of(volume: Volume) -> tuple[Step, ...]:
    """Return the steps from the target to its pods."""
    claim = _claim_of(volume)
    spec = volume.image.spec if volume.image is not None else volume.target.image
    return (
        *_to_the_volume(volume, claim, spec),
        _volume_step(volume, spec),
        *_in_ceph(volume, spec),
        *_on_the_node(volume, claim),
    )


def _claim_of(volume: Volume) -> ObjectRef | None:
    if volume.claim is not None:
        return volume.claim.ref
    return volume.persistent_volume.claim if volume.persistent_volume is not None else None


def _volume_of(volume: Volume) -> str | None:
    """Return the name of the PV; None if it is not known."""
    if volume.persistent_volume is not None:
        return volume.persistent_volume.name
    if volume.claim is not None and volume.claim.volume_name:
        return volume.claim.volume_name
    is_named = volume.target.kind is TargetKind.PERSISTENT_VOLUME
    return volume.target.name if is_named else None


def _to_the_volume(
    volume: Volume, claim: ObjectRef | None, spec: ImageSpec | None
) -> Iterator[Step]:
    """Yield the steps from a target to the name of its PV."""
    target = volume.target
    if target.kind is TargetKind.DEVICE and spec is None:
        shows = f"on the node that has {target.name}: the pool and name of its image"
        yield _devices(_node_of(volume), shows, (_POOL, _IMAGE))
    if _volume_of(volume) is not None:
        return
    if target.kind in {TargetKind.POD, TargetKind.CLAIM}:
        yield from _to_the_claim(target, claim)
        return
    is_handle = target.kind is TargetKind.VOLUME_HANDLE
    column = "HANDLE:.spec.csi.volumeHandle" if is_handle else f"IMAGE:{_ATTRIBUTES}.imageName"
    beside = "the volume handle" if is_handle else "the name of the image"
    yield Step(
        where=_LAPTOP,
        command=kubectl("get pv", options=("-o", f"custom-columns=NAME:.metadata.name,{column}")),
        shows=f"the name of the PV is beside {beside}",
        yields=(_VOLUME,),
    )


def _to_the_claim(target: Target, claim: ObjectRef | None) -> Iterator[Step]:
    """Yield the steps from a pod or a claim to the name of the PV."""
    name = target.name
    if claim is not None:
        name = claim.name
    elif target.kind is TargetKind.POD:
        name = _CLAIM
        yield Step(
            where=_LAPTOP,
            command=kubectl(
                "get pod", target.name, namespace=target.namespace, options=("-o", "yaml")
            ),
            shows="spec.volumes has the name of each claim",
            yields=(_CLAIM,),
        )
    yield Step(
        where=_LAPTOP,
        command=kubectl("get pvc", name, namespace=target.namespace),
        shows="the column VOLUME has the name of the PV",
        yields=(_VOLUME,),
    )


def _volume_step(volume: Volume, spec: ImageSpec | None) -> Step:
    persistent_volume = volume.persistent_volume
    shows = "spec.csi.volumeAttributes has the pool, the imageName, and a radosNamespace if any"
    if persistent_volume is not None and isinstance(persistent_volume.source, InTreeRbdSource):
        shows = "spec.rbd has the pool and the image"
    return Step(
        where=_LAPTOP,
        command=kubectl("get pv", _volume_of(volume) or _VOLUME, options=("-o", "json")),
        shows=shows,
        yields=() if spec is not None else (_POOL, _IMAGE),
    )


def _in_ceph(volume: Volume, spec: ImageSpec | None) -> Iterator[Step]:
    """Yield the steps from the image to the addresses of its clients."""
    header = _header_of(volume)
    pool = spec.pool if spec is not None else _POOL
    scope = ("--namespace", spec.namespace) if spec is not None and spec.namespace else ()
    yield Step(
        where=_TOOLBOX,
        command=command("rbd info", str(spec) if spec is not None else f"{_POOL}/{_IMAGE}"),
        shows="block_name_prefix is rbd_data. and the id of the image",
        yields=() if header else (_IMAGE_ID,),
    )
    yield Step(
        where=_TOOLBOX,
        command=command(
            "rados listwatchers",
            header or f"rbd_header.{_IMAGE_ID}",
            options=("-p", pool, *scope),
        ),
        shows="each line is a holder, with its address and client id; a read-only mapping has none",
    )


def _on_the_node(volume: Volume, claim: ObjectRef | None) -> Iterator[Step]:
    """Yield the steps from the address of a client to its node, device, mounts and pods."""
    node, device = _node_of(volume), _device_of(volume)
    yield Step(
        where=_LAPTOP,
        command=kubectl("get nodes", options=("-o", "wide")),
        shows="the holder runs on the node whose INTERNAL-IP is in its address",
        yields=(_NODE,) if node == _NODE else (),
    )
    yield _devices(
        node,
        "the holder's device has its client_addr and client_id; rbd-nbd devices are not listed",
        (_DEVICE,) if device == _DEVICE else (),
    )
    yield Step(
        where=node,
        command=command("lsblk", device, options=("-o", "NAME,TYPE,MOUNTPOINT")),
        shows="what is stacked on the device, and its mount on the host",
    )
    yield Step(
        where=_LAPTOP,
        command=kubectl(
            "get pods",
            namespace=claim.namespace if claim is not None else None,
            options=(
                *(() if claim is not None else ("-A",)),
                *("-o", "json", "--field-selector", f"spec.nodeName={node}"),
            ),
        ),
        shows="the pods of the node whose spec.volumes name the claim use the volume",
    )
    yield Step(
        where=_LAPTOP,
        command=kubectl("get volumeattachments"),
        shows="the row of the PV has the node that it is attached to",
    )


def _devices(node: str, shows: str, yields: tuple[str, ...]) -> Step:
    """Return the step that shows the krbd devices of a node.

    /sys/bus/rbd/devices has links to these directories, which grep -r does not follow
    (rbd_root_dev in drivers/block/rbd.c).
    """
    files = ("name", "pool", "client_addr", "client_id")
    return Step(
        where=node,
        command=command(
            "grep -r", ".", "/sys/devices/rbd", options=[f"--include={file}" for file in files]
        ),
        shows=shows,
        yields=yields,
    )


def _header_of(volume: Volume) -> str | None:
    """Return the name of the header object; None if Ceph and sysfs have not shown the id."""
    if volume.image_view is not None and volume.image_view.header:
        return volume.image_view.header
    image_id = volume.image.image_id if volume.image is not None else None
    return f"rbd_header.{image_id}" if image_id else None


def _device_of(volume: Volume) -> str:
    """Return the device of the only holder whose device is known, else a placeholder."""
    known = [holder.mapping or holder.published for holder in volume.holders]
    devices = {mapping.device for mapping in known if mapping is not None}
    return devices.pop() if len(devices) == 1 else _DEVICE


def _node_of(volume: Volume) -> str:
    """Return the only known node of a holder, else a placeholder."""
    nodes = {holder.node for holder in volume.holders if holder.node}
    return nodes.pop() if len(nodes) == 1 else _NODE
