"""Which placement group and which OSD an image waits for, by what the monitors answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import command
from rbdagent.correlate.holders import cluster_with
from rbdagent.model import NotObserved, observed_of, stated
from rbdagent.parse.foreign import foreign, foreign_name
from rbdagent.parse.recognised import Recognised

if TYPE_CHECKING:
    from rbdagent.model import Command, HealthCheck, Placement, Statement
    from rbdagent.rules.context import RuleContext


class Waits(NamedTuple):
    """Holds what an image waits for: in words, as evidence, and what shows more."""

    text: Statement
    evidence: tuple[str, ...]
    commands: tuple[Command, ...]


def waiting_for(context: RuleContext) -> Waits | None:
    """Return which placement group and OSD did not answer about the image; None if unknown.

    The monitors state where the object is (``osd map``), and what is known of its group and OSDs
    (``health``). An OSD that has just stopped counts as up until the others have reported it, after
    20 s or more (osd_heartbeat_grace), and its group as active. The text then states no more than
    that this OSD did not answer.
    """
    view = context.volume.image_view
    if view is None or isinstance(view.placement, NotObserved):
        return None
    place = view.placement
    checks = _checks_of(context, view.fsid)
    inactive = _line_of_group(place, checks)
    down = _down(place, checks)
    if not place.acting:
        state = stated("which no OSD serves")
    elif inactive:
        state = stated("which serves no I/O")
    elif down:
        are = "is" if len(down) == 1 else "are"
        state = stated("and {osds} {} down", are, osds=_names(down))
    else:
        state = stated("whose primary is {osd}", osd=f"osd.{place.acting[0]}")
    return Waits(
        text=stated(
            "{object} is in PG {group}, {}",
            state,
            object=foreign_name(place.name),
            group=foreign_name(place.group),
        ),
        evidence=(
            f"PG {place.group}: acting {', '.join(_names(place.acting)) or 'none'}",
            *(f"ceph health: {foreign(line)}" for line in inactive),
            *(f"ceph health: osd.{number} is down" for number in down),
        ),
        # `ceph pg ID query` asks the primary, and waits for it.
        commands=tuple(command("ceph osd find", str(osd)) for osd in (down or place.acting)[:1]),
    )


def _checks_of(context: RuleContext, fsid: str) -> tuple[HealthCheck, ...]:
    cluster = cluster_with(fsid, context.snapshot)
    return () if cluster is None else observed_of(cluster.health)


def _line_of_group(place: Placement, checks: tuple[HealthCheck, ...]) -> tuple[str, ...]:
    """Return the line of the group in the detail of PG_AVAILABILITY, which lists at most 50."""
    start = f"pg {place.group} is "
    return tuple(
        text
        for check in checks
        if check.name == "PG_AVAILABILITY"
        for text in check.texts[1:]
        if text.startswith(start)
    )[:1]


def _down(place: Placement, checks: tuple[HealthCheck, ...]) -> tuple[int, ...]:
    """Return the OSDs of the group that are down; of a group without OSDs, all that are down.

    A replicated group whose only OSD is marked down has an empty acting set.
    """
    reported = tuple(
        int(names["osd"])
        for check in checks
        if check.name == "OSD_DOWN"
        for names in map(Recognised.OSD_IS_DOWN.named_in, check.texts[1:])
        if names is not None
    )
    if not place.acting:
        return reported[:_MOST_DOWN]
    return tuple(osd for osd in place.acting if osd in reported)


_MOST_DOWN: Final = 3


def _names(osds: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"osd.{number}" for number in osds)
