"""The report about manifests: each problem, what would bind, and what was not observed.

The rules judge the cluster as it would be (`by_rules`). The checks beside them know what no rule
sees, because it happens between apply and the next state (`binding`, `handles`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.lint import binding, handles
from rbdagent.lint.applied import applied, volume_of_claim
from rbdagent.lint.by_rules import findings_of_rules
from rbdagent.lint.context import LintContext
from rbdagent.lint.gaps import gaps_of, unread_facts
from rbdagent.lint.pairs import clean_pairs
from rbdagent.model import WEIGHT
from rbdagent.model.lint import LintReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Snapshot
    from rbdagent.model.lint import Manifests, Problem, Surroundings


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
            _problems(context),
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
    for check in (*binding.CHECKS, *handles.CHECKS):
        yield from check(context)
    yield from findings_of_rules(context)
