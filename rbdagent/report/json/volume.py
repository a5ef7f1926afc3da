"""A volume in an output: the argument that names it, its image, its claim and its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.report.json.output import Object

if TYPE_CHECKING:
    from rbdagent import model


class Image(Object, frozen=True, kw_only=True):
    """The identity of an image; unknown parts are null."""

    fsid: str | None
    pool: str
    rados_namespace: str
    name: str
    id: str | None


class Claim(Object, frozen=True, kw_only=True):
    """The name of a PersistentVolumeClaim."""

    namespace: str
    name: str


class Target(Object, frozen=True, kw_only=True):
    """The volume that the output is about, and the argument that names it."""

    argument: str
    persistent_volume: str | None
    claim: Claim | None


class Pod(Object, frozen=True, kw_only=True):
    """A pod that uses the volume, or waits for it."""

    namespace: str
    name: str
    phase: str


def target(volume: model.Volume) -> Target:
    """Return the volume that an output is about."""
    claim = volume.claim
    return Target(
        argument=volume.target.argument,
        persistent_volume=name_of_pv(volume),
        claim=Claim(namespace=claim.ref.namespace, name=claim.ref.name) if claim else None,
    )


def name_of_pv(volume: model.Volume) -> str | None:
    """Return the name of the volume's PersistentVolume; None if it has none, or it is unknown."""
    return volume.persistent_volume.name if volume.persistent_volume else None


def image(identity: model.ImageIdentity | None) -> Image | None:
    """Return the identity of an image; None if it is unknown."""
    if identity is None:
        return None
    return Image(
        fsid=identity.fsid,
        pool=identity.spec.pool,
        rados_namespace=identity.spec.namespace,
        name=identity.spec.name,
        id=identity.image_id,
    )


def pod(known: model.Pod) -> Pod:
    """Return the name and the phase of a pod."""
    return Pod(namespace=known.ref.namespace, name=known.ref.name, phase=known.phase)
