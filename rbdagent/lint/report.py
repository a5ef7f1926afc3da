"""The report about manifests: each problem, what would bind, and what was not observed.

The rules judge the cluster as it would be (`by_rules`). The checks beside them know what no rule
sees, because it happens between apply and the next state (`binding`, `handles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.codes import Code
from rbdagent.lint import binding, existing, handles, images
from rbdagent.lint.applied import applied, volume_of_claim
from rbdagent.lint.by_rules import findings_of_rules
from rbdagent.lint.context import LintContext, subject_of
from rbdagent.lint.gaps import gaps_of, unread_facts
from rbdagent.lint.pairs import clean_pairs
from rbdagent.model import WEIGHT
from rbdagent.model.lint import LintReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Snapshot
    from rbdagent.model.lint import Manifest, Manifests, Problem, Surroundings


def lint(snapshot: Snapshot, manifests: Manifests, around: Surroundings) -> LintReport:
    """Return what applying the manifests to a cluster would lead to.

    Args:
        snapshot: of the whole cluster, with Ceph's answer about the images of the manifests.
        manifests: of all files.
        around: what only the names in the manifests lead to.
    """
    context = LintContext(
        before=snapshot, after=applied(snapshot, manifests), around=around, manifests=manifests
    )
    places = {item.place: number for number, item in enumerate(manifests.items)}
    problems = tuple(
        sorted(
            (
                _with_doubt(one, manifests.items[places[one.place]], context)
                for one in _problems(context)
            ),
            key=lambda one: (WEIGHT[one.severity], places[one.place], one.code, one.field),
        )
    )
    gaps, pairs = gaps_of(context), clean_pairs(context, problems)
    return LintReport(
        manifests=manifests,
        problems=problems,
        bindings=tuple(
            (claim.ref, volume.name)
            for _, claim in context.claims()
            if (volume := volume_of_claim(claim, context.kube_after)) is not None
        ),
        not_observed=gaps.facts,
        unread=unread_facts(context),
        is_complete=gaps.is_complete,
        pairs=pairs.pairs,
        without_pair=pairs.without,
    )


def _problems(context: LintContext) -> Iterator[Problem]:
    for check in (*binding.CHECKS, *existing.CHECKS, *handles.CHECKS, *images.CHECKS):
        yield from check(context)
    yield from findings_of_rules(context)


_OF_NEW: Final = frozenset(
    {
        Code.BOUND_ALTHOUGH_DIFFERENT,
        Code.CLASS_OF_ANOTHER_DRIVER,
        Code.DELETE_POLICY_RESTORED,
        Code.IMAGE_DELETED_ON_APPLY,
        Code.IMAGE_OF_TWO_VOLUMES,
        Code.NO_NODE_FITS,
        Code.OPEN_TO_ANY_CLAIM,
        Code.PROVISIONED_MEANWHILE,
        Code.RELEASED_ON_APPLY,
    }
)
"""What is reported of an object that is new, or that changes."""


def _with_doubt(one: Problem, item: Manifest, context: LintContext) -> Problem:
    """Return a problem that states if it is unknown whether its object is new."""
    if one.code not in _OF_NEW or not context.is_unread(item):
        return one
    doubt = f"Whether {subject_of(item)} exists here as it is was not observed."
    return replace(one, statement=f"{one.statement} {doubt}")
