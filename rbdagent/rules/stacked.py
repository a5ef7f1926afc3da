"""Block devices on a mapping that neither kubelet nor the CSI driver has put there.

LVM of a node activates each volume group that it finds, also one that a pod made on a raw block
volume (kubernetes#110163).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.commands import command, line_of
from rbdagent.model import BlockHolderKind, Statement, stated
from rbdagent.parse.foreign import foreign_name
from rbdagent.verdicts.evidence import block_holder_text, evidence_of, is_kubelets_loop

if TYPE_CHECKING:
    from rbdagent.model import BlockHolder, Command, Holder


def strange_devices(holder: Holder) -> tuple[BlockHolder, ...]:
    """Return the devices on a mapping without kubelet's loop device and the driver's LUKS."""
    return tuple(device for device in evidence_of(holder).stacked if not is_kubelets_loop(device))


def show_stacked(stacked: BlockHolder, holder: Holder) -> Command:
    """Return the command that shows a device."""
    match stacked.kind:
        case BlockHolderKind.LUKS | BlockHolderKind.DM:
            return command("dmsetup info", stacked.label or stacked.name, node=holder.node)
        case BlockHolderKind.LOOP:
            return command("losetup --list", f"/dev/{stacked.name}", node=holder.node)
        case BlockHolderKind.SWAP:
            return command("swapon --show", node=holder.node)
        case _:
            return command("lsblk", f"/dev/{stacked.of or stacked.name}", node=holder.node)


def kept_by(devices: tuple[BlockHolder, ...]) -> Statement:
    """Return what the devices are, and who has most likely made them, as sentences without end."""
    texts = stated("{devices:;}", devices=[*map(block_holder_text, devices)])
    if not _logical_volumes(devices):
        return texts
    return stated(
        "{}. Most likely LVM of the node has activated a volume group that is on the volume", texts
    )


def release(devices: tuple[BlockHolder, ...], node: str) -> str:
    """Return how to close the devices, as a remedy.

    LVM refuses to deactivate what is in use. One logical volume is named, not its group: a group of
    the node may have the same name.
    """
    volumes = _logical_volumes(devices)
    if not volumes:
        names = ", ".join(foreign_name(device.name) for device in devices)
        return f"End what uses {names} on {node}, and then close it there. {_NO_FORCE}"
    names = ", ".join(foreign_name(device.label) for device in volumes)
    deactivate = command("lvchange -an", *(f"/dev/mapper/{device.label}" for device in volumes))
    return (
        f"When nothing on {node} has {names} mounted or open, deactivate it: "
        f"{line_of(deactivate)}, which LVM refuses while it is in use. If its UUID (`dmsetup "
        "info`) does not begin with LVM-, another program made it, and has to close it. Then "
        "exclude RBD and loop devices from LVM on the node (global_filter in lvm.conf): it "
        f"activates them again otherwise. {_NO_FORCE}"
    )


_NO_FORCE: Final = "Use no force on a device."


def _logical_volumes(devices: tuple[BlockHolder, ...]) -> tuple[BlockHolder, ...]:
    """Return the devices of the device mapper that have a name and no other device on them."""
    below = {device.of for device in devices}
    return tuple(
        device
        for device in devices
        if device.kind is BlockHolderKind.DM and device.label and device.name not in below
    )
