"""RBD133 to RBD135: the copies of a mirrored image, as the rbd-mirror daemons report them.

Ceph reports two primaries nowhere: the health of the pool is OK until one of them is demoted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command
from rbdagent.model import (
    LifecycleStep,
    MirrorState,
    Recovery,
    Severity,
    Subject,
    observed_of,
    stated,
)
from rbdagent.parse.foreign import foreign
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import Rule, finding
from rbdagent.rules.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Command, Finding, ImageView, MirrorSite
    from rbdagent.rules.context import RuleContext

ENTRIES: Final = (
    Entry(
        Code.MIRROR_SPLIT_BRAIN,
        Severity.ERROR,
        "The copies of the mirrored image have diverged: each has data that the other lacks.",
        remedy="Decide which side has the data to keep, and export the image of the other side "
        "first. Then demote that other side and request a resync there (`rbd mirror image "
        "resync`): it discards what only that side has.",
        recovery=Recovery(note="rbd-mirror copies nothing until one side is discarded"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.TWO_PRIMARIES,
        Severity.ERROR,
        "The mirrored image is primary in two clusters.",
        remedy="Run rbdagent again in two minutes: after a failover, the other side reports its "
        "old role for up to a minute. If it is the same then, stop the workload of one side. "
        "Compare the data of both sides before one is demoted and resynced.",
        recovery=Recovery(note="no component demotes one of them, and Ceph's health is OK"),
        step=LifecycleStep.USE,
    ),
    Entry(
        Code.MIRROR_NOT_COPIED,
        Severity.WARNING,
        "A copy of the mirrored image is not up to date: its rbd-mirror daemon reports an error, "
        "or does not run.",
        remedy="Look at the rbd-mirror daemon of that site and its log. Until it copies again, a "
        "failover loses what was written since.",
        recovery=Recovery(actor="rbd-mirror", condition="the daemon runs and the cause is mended"),
        step=LifecycleStep.USE,
    ),
)


def split_brain(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD133 if a site reports that the copies have diverged."""
    view = context.volume.image_view
    for site in _sites(view):
        if view is None or not _is_split(site):
            continue
        yield finding(
            Code.MIRROR_SPLIT_BRAIN,
            Subject.of_image(view.spec),
            stated(
                "The copies of {image} in the mirrored clusters have diverged, and rbd-mirror "
                "copies nothing. A resync discards one side: decide which one first.",
                image=view.spec,
            ),
            evidence=(_role(view), *map(_line, _sites(view))),
            commands=(_show(view),),
        )
        return


def two_primaries(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD134 if the image is primary here and a peer reports that it is primary there.

    The peer's report is as old as its last update: after a failover, it has the old role for up to
    43 s (measured with Ceph 18.2.7; tests/integration/test_mirrored.py has 20.2).
    """
    view = context.volume.image_view
    if view is None or view.primary is not True:
        return
    for site in _sites(view):
        if not site.is_local and site.is_up and Recognised.LOCAL_IS_PRIMARY.is_in(site.description):
            yield finding(
                Code.TWO_PRIMARIES,
                Subject.of_image(view.spec),
                stated(
                    "{image} is primary in this cluster, and the peer cluster reported at {time} "
                    "that it is primary there: if a failover is not just in progress, both sides "
                    "can be written, and their data differs.",
                    image=view.spec,
                    time=_updated(site),
                ),
                evidence=(_role(view), *map(_line, _sites(view))),
                commands=(_show(view),),
            )
            return


def not_copied(context: RuleContext) -> Iterator[Finding]:
    """Yield RBD135 for a site whose daemon reports an error, or does not run.

    The primary is no copy: its own daemon does not matter to it. Before the first report, librbd
    returns the state unknown (GetStatusRequest.cc in librbd/mirror of Ceph).
    """
    view = context.volume.image_view
    if view is None or any(map(_is_split, _sites(view))):
        return
    for site in _sites(view):
        is_primary = site.is_local and view.primary is True
        if is_primary or (site.is_up and site.state is not MirrorState.ERROR):
            continue
        if not site.is_up and site.state is MirrorState.UNKNOWN:
            continue
        where = "of this cluster" if site.is_local else "of a peer cluster"
        what = stated("does not run")
        if site.is_up:
            what = stated("reports {error}", error=foreign(site.description))
        yield finding(
            Code.MIRROR_NOT_COPIED,
            Subject.of_image(view.spec),
            stated(
                "The rbd-mirror daemon {} {}: the copy of {image} is as old as its last update.",
                where,
                what,
                image=view.spec,
            ),
            evidence=(_role(view), _line(site)),
            commands=(_show(view),),
        )


def _sites(view: ImageView | None) -> tuple[MirrorSite, ...]:
    return () if view is None else observed_of(view.mirror_sites)


def _is_split(site: MirrorSite) -> bool:
    is_said = Recognised.SPLIT_BRAIN.is_in(site.description)
    return site.is_up and site.state is MirrorState.ERROR and is_said


def _role(view: ImageView) -> str:
    role = {True: "primary", False: "not primary", None: "of unknown role"}[view.primary]
    return f"image {view.spec} is {role} in this cluster"


def _line(site: MirrorSite) -> str:
    where = "this cluster" if site.is_local else "peer cluster"
    state = f"{'up' if site.is_up else 'down'}+{site.state}"
    return f"{where}: {state}, {foreign(site.description)}, last update {_updated(site)}"


def _updated(site: MirrorSite) -> str:
    return site.last_update or "an unknown time"


def _show(view: ImageView) -> Command:
    return command("rbd mirror image status", str(view.spec))


RULES: Final = (Rule(232, split_brain), Rule(233, two_primaries), Rule(234, not_copied))
