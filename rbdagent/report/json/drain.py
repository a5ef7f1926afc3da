"""The output of ``drain-check``, and what the check after a drain reads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

from rbdagent import model
from rbdagent.commands import command, sentence_of
from rbdagent.errors import ParseError
from rbdagent.lifecycle.drain import next_commands
from rbdagent.model import ImageIdentity, ImageSpec, NotObserved, drain
from rbdagent.parse.address import parse_address
from rbdagent.report.json.findings import Command, Subject, commands, subject
from rbdagent.report.json.output import Code, Object, Output, Time
from rbdagent.report.json.sources import Gap, Sources, gaps, sources
from rbdagent.report.json.volume import Image, image

if TYPE_CHECKING:
    from rbdagent.model import Snapshot
    from rbdagent.model.drain import DrainCheck, EarlierCheck, MappedVolume


class DrainItem(Object, frozen=True, kw_only=True):
    """One thing that blocks a drain, survives it, or was left by it.

    The code is that of the finding that it is; null if no finding reports it.
    """

    step: drain.DrainStep
    code: Code | None
    subject: str
    about: Subject
    message: str
    evidence: tuple[str, ...]
    remedy: str
    commands: tuple[Command, ...]


class DrainMove(Object, frozen=True, kw_only=True):
    """A pod that no other replica replaces while its volume moves; replicas null: not observed."""

    namespace: str
    pod: str
    controller: str | None
    replicas: int | None
    persistent_volume: str


class DrainMapping(Object, frozen=True, kw_only=True):
    """A mapping of the node."""

    device: str
    verdict: model.Verdict
    image: Image | None
    client_id: int | None
    client_address: str | None
    persistent_volume: str | None


class Boot(Object, frozen=True, kw_only=True):
    """The boot of the node, and that of the check before; ``isNew`` is null if one is unknown."""

    id: str | None
    earlier_id: str | None
    is_new: bool | None


class DrainReport(Output, frozen=True, kw_only=True):
    """The output of ``drain-check``.

    ``mappings`` and ``moves`` are null if they were not observed. ``reportedAt`` is the time of the
    report of the node's agent, if the mappings are from it.
    """

    kind: Literal["DrainReport"] = "DrainReport"
    observed_at: Time
    node: str
    phase: Literal["before", "after"]
    state: drain.DrainState
    items: tuple[DrainItem, ...]
    moves: tuple[DrainMove, ...] | None
    mappings: tuple[DrainMapping, ...] | None
    boot: Boot
    reported_at: str | None
    not_observed: tuple[Gap, ...]
    next: tuple[Command, ...]
    sources: Sources


def drain_report(check: DrainCheck, snapshot: Snapshot) -> DrainReport:
    """Return the output of ``drain-check -o json``."""
    return DrainReport(
        observed_at=snapshot.observed_at,
        node=check.node,
        phase="after" if check.is_after else "before",
        state=check.state,
        items=tuple(_item(one) for one in check.items),
        moves=None
        if isinstance(check.moves, NotObserved)
        else tuple(_move(one) for one in check.moves),
        mappings=None
        if isinstance(check.mappings, NotObserved)
        else tuple(_mapping(one) for one in check.mappings),
        boot=Boot(id=check.boot_id, earlier_id=check.earlier_boot_id, is_new=check.is_new_boot),
        reported_at=check.reported_at,
        not_observed=gaps(check.unobserved),
        next=commands(next_commands(check)),
        sources=sources(snapshot),
    )


def _item(item: drain.DrainItem) -> DrainItem:
    return DrainItem(
        step=item.step,
        code=item.code or None,
        subject=str(item.subject),
        about=subject(item.subject),
        message=item.statement,
        evidence=item.evidence,
        remedy=sentence_of(item.remedy),
        commands=commands(item.commands),
    )


def _move(move: drain.DrainMove) -> DrainMove:
    return DrainMove(
        namespace=move.pod.namespace,
        pod=move.pod.name,
        controller=move.controller or None,
        replicas=move.replicas,
        persistent_volume=move.persistent_volume,
    )


def _mapping(mapping: MappedVolume) -> DrainMapping:
    return DrainMapping(
        device=mapping.device,
        verdict=mapping.verdict,
        image=image(mapping.image),
        client_id=mapping.client_id,
        client_address=str(mapping.client_address) if mapping.client_address else None,
        persistent_volume=mapping.persistent_volume,
    )


# --------------------------------------------------------------------------------------------------
# The file of the check before
# --------------------------------------------------------------------------------------------------


class _File(Struct, rename="camel"):
    """What is read of the file; other versions may have further fields."""

    kind: str
    node: str
    phase: str
    boot: _BootInFile
    mappings: tuple[_MappingInFile, ...] | None


class _BootInFile(Struct, rename="camel"):
    id: str | None


class _ImageInFile(Struct, rename="camel"):
    fsid: str | None
    pool: str
    rados_namespace: str
    name: str
    id: str | None


class _MappingInFile(Struct, rename={"client_id": "clientID", "client_address": "clientAddress"}):
    device: str
    verdict: model.Verdict
    image: _ImageInFile | None
    client_id: int | None
    client_address: str | None


_HINT: Final = (
    "write the file before the drain: `",
    command("rbdagent drain-check", "NODE", options=("-o", "json")),
    "`",
)


def load_earlier(content: bytes, *, node: str, where: str) -> EarlierCheck:
    """Parse the output of the check before a drain; errors do not quote the file.

    Args:
        content: of the file.
        node: the name of the node, which the file must have.
        where: the name of the file, for errors.

    Raises:
        ParseError: it is not such an output in JSON, it is of another node, or its mappings were
            not observed.
    """
    try:
        file = msgspec.json.decode(content, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _no_check(where, "the output of drain-check -o json") from None
    if file.kind != DrainReport.__name__:
        raise _no_check(where, f"kind: {DrainReport.__name__}")
    if file.node != node:
        raise _no_check(where, f"the check of {node}, and it is of another node")
    if file.phase != "before":
        raise _no_check(where, "a check before the drain, without --after")
    if file.mappings is None:
        raise _no_check(where, "a check that observed the mappings of the node")
    return drain.EarlierCheck(
        boot_id=file.boot.id, mappings=tuple(_earlier(one, where) for one in file.mappings)
    )


def _no_check(where: str, expected: str) -> ParseError:
    return ParseError(
        what="the check before the drain", where=where, text=None, expected=expected, hint=_HINT
    )


def _earlier(mapping: _MappingInFile, where: str) -> MappedVolume:
    found, address = mapping.image, mapping.client_address
    return drain.MappedVolume(
        device=mapping.device,
        verdict=mapping.verdict,
        image=None
        if found is None
        else ImageIdentity(
            spec=ImageSpec(pool=found.pool, namespace=found.rados_namespace, name=found.name),
            fsid=found.fsid,
            image_id=found.id,
        ),
        client_id=mapping.client_id,
        client_address=None if address is None else parse_address(address, where=where),
        persistent_volume=None,
    )
