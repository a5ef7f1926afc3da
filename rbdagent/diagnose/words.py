"""The node's own words, put beside the findings that they explain.

What kubelet, the CSI node plugin and the kernel complain of is evidence, never a verdict: a rule
rests on state. Words are quoted where a step of this node fails, those of that step; in place of a
log that could not be read stands what would tell more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rbdagent.catalog import CATALOG
from rbdagent.correlate.identity import pods_of
from rbdagent.correlate.words import called
from rbdagent.diagnose.times import age, spoken
from rbdagent.model import Heard, LifeStep, NotObserved, Severity, observed_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.diagnose.case import Case
    from rbdagent.model import Finding, NodeWords, Word

_Logs = tuple[tuple[str, Heard | NotObserved], ...]
"""Who speaks, and what was heard of him."""

_BACK: Final = frozenset({LifeStep.UNPUBLISH, LifeStep.UNSTAGE})
_THERE: Final = frozenset({LifeStep.STAGE, LifeStep.PUBLISH})
_EITHER: Final = frozenset({"RBD120", "RBD203"})
"""What is between two steps, or hangs in one, may be on either way."""
_OF_THE_HOLDER: Final = frozenset({"RBD401"})
"""What a pod elsewhere waits for is this node's step."""
_LETS_GO: Final = re.compile(r"\b(?:Node)?Un(?:mount|map|stage|publish)")
"""``NodeUnstageVolume``, ``UnmountDevice``, ``UnmapVolume.TearDownVolume``."""

_MEANS: Final = (
    ("unmap failed: (16)", "somebody has the device open"),
    ("target is busy", "somebody has a file on it open"),
    ("operation with the given Volume ID", "an earlier call has not ended yet"),
    ("DeadlineExceeded", "the call took longer than kubelet waits, and may be under way still"),
    ("list of registered CSI drivers", "the node plugin has not registered with kubelet"),
    ("csi.sock: connect: ", "the node plugin does not listen"),
    ("watch error: -107", "Ceph has ended its watch"),
    (" -108", "its client is on Ceph's blocklist"),
    ("(108)", "the node's client is on Ceph's blocklist"),
    ("secret too big", "it does not know keys of type aes256k"),
    ("blocked for more than", "it waits for its disk, and cannot be killed"),
)
"""What a text tells to whoever knows it, where it does not say so itself."""


def with_words(findings: tuple[Finding, ...], words: NodeWords, case: Case) -> tuple[Finding, ...]:
    """Give findings with what the node said of their step as further evidence."""
    kubelet, kernel = _about(case, words)
    holds_on = any(_steps(each) & _BACK and _is_here(each, case) for each in findings)
    told = []
    for each in findings:
        lines: tuple[str, ...] = ()
        steps = _steps(each)
        if each.code in _OF_THE_HOLDER and not holds_on and _is_attached_here(case):
            lines = _said(_BACK, kubelet, kernel, case, is_trouble=True)
        elif steps and _is_here(each, case):
            is_trouble = each.severity is not Severity.INFO
            lines = _said(steps, kubelet, kernel, case, is_trouble=is_trouble)
        elif CATALOG[each.code].step is LifeStep.USE and _is_here(each, case):
            # What became of a device in use, only the kernel tells.
            lines = tuple(_quoted(kernel, _BACK | _THERE, case))
        told.append(replace(each, evidence=(*each.evidence, *lines)) if lines else each)
    return tuple(told)


def _steps(finding: Finding) -> frozenset[LifeStep]:
    """Give the steps whose words explain a finding."""
    if finding.code in _EITHER:
        return _BACK | _THERE
    step = CATALOG[finding.code].step
    return next((way for way in (_BACK, _THERE) if step in way), frozenset())


def _about(case: Case, words: NodeWords) -> tuple[_Logs, _Logs]:
    """Give what kubelet and the plugin said of this volume, and what the kernel said."""
    names = called(case.use)

    def of(heard: Heard | NotObserved, known: frozenset[str]) -> Heard | NotObserved:
        if isinstance(heard, NotObserved):
            return heard
        kept = tuple(each for each in heard.words if not known.isdisjoint(each.names))
        return replace(heard, words=kept)

    return (
        ("kubelet", of(words.kubelet, names.volume)),
        ("the CSI node plugin", of(words.plugin, names.volume)),
    ), (("the kernel", of(words.kernel, names.kernel)),)


def _is_here(finding: Finding, case: Case) -> bool:
    """Tell whether a finding is about the node that looked, by its subject.

    That is the volume, ``pod NAMESPACE/NAME``, ``node NODE`` or ``DEVICE on NODE``. A pod that the
    API does not know is one whose traces are on this node.
    """
    kind, _, name = finding.subject.partition(" ")
    if finding.subject == case.volume:
        pods = case.use.waiting_pods
        return any(each.holder.is_local for each in case.judged) or any(
            each.node_name == case.here for each in pods
        )
    if kind == "pod":
        nodes = {str(each.ref): each.node_name for each in pods_of(case.snapshot.kubernetes)}
        return nodes.get(name, case.here) == case.here
    return finding.subject == f"node {case.here}" or finding.subject.endswith(f" on {case.here}")


def _is_attached_here(case: Case) -> bool:
    return any(
        each.attached and each.node_name == case.here for each in observed_of(case.use.attachments)
    )


# --------------------------------------------------------------------------------------------------
# Sentences
# --------------------------------------------------------------------------------------------------


def _said(
    steps: frozenset[LifeStep], kubelet: _Logs, kernel: _Logs, case: Case, *, is_trouble: bool
) -> tuple[str, ...]:
    """Quote what was said of some steps; of trouble also say who was silent, or not heard."""
    lines = [*_quoted((*kubelet, *kernel), steps, case)]
    if is_trouble:
        lines += _silent(kubelet, steps, case)
        lines += _unseen((*kubelet, *kernel))
    return tuple(lines)


def _quoted(logs: _Logs, steps: frozenset[LifeStep], case: Case) -> Iterator[str]:
    for who, heard in logs:
        for each in () if isinstance(heard, NotObserved) else heard.words:
            if _tells_of(each, steps):
                yield _line(who, each, case.snapshot.observed_at)


def _tells_of(word: Word, steps: frozenset[LifeStep]) -> bool:
    """Tell whether a word is of one of the steps; one that does not say may be of any."""
    if not word.call:
        return True
    return not steps.isdisjoint(_BACK if _LETS_GO.search(word.call) else _THERE)


def _line(who: str, word: Word, now: str) -> str:
    said = f"{who} {spoken(age(word.at, now))} ago"
    if word.unanswered:
        return f"{said}: {word.call} was called, and has no answer since"
    if word.times > 1:
        said += f" ({word.times} times)"
    if word.call and word.call not in word.text:
        said += f", {word.call}"
    if word.retry_at is not None and word.retry_at > now:
        said += f", next try in {spoken(age(now, word.retry_at))}"
    means = next((f" ({meaning})" for text, meaning in _MEANS if text in word.text), "")
    return f'{said}: "{word.text}"{means}'


def _silent(logs: _Logs, steps: frozenset[LifeStep], case: Case) -> Iterator[str]:
    now = case.snapshot.observed_at
    silent = [
        f"{who} in the last {spoken(age(heard.since, now))}"
        for who, heard in logs
        if isinstance(heard, Heard) and not any(_tells_of(each, steps) for each in heard.words)
    ]
    if silent:
        yield f"of this step no complaint was logged by {', nor by '.join(silent)}"


def _unseen(logs: _Logs) -> Iterator[str]:
    """Say in one line what would tell more."""
    unseen = [(who, heard) for who, heard in logs if isinstance(heard, NotObserved)]
    if not unseen:
        return
    reasons = "; ".join(f"{who} ({heard.reason})" for who, heard in unseen)
    cures = "; ".join(dict.fromkeys(heard.cure for _, heard in unseen if heard.cure))
    yield f"not observed: the words of {reasons}{f'. To see them: {cures}' if cures else ''}"
