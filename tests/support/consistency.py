"""Compare the text of a finding with its recovery and with the objects that it is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.commands import sentence_of
from rbdagent.model import VolumeAttachment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Diagnosis, Finding

_ENDS_NEVER: Final = re.compile(
    r"kubelet no longer tracks|o component will remove|will not remove|cannot complete"
    r"|kubelet has forgotten|othing will clear|will not clear|cannot finish"
)
_ENDS_ITSELF: Final = re.compile(
    r"kubelet retries automatically|the next retry will succeed"
    r"|binds them at its next sync"
)
_OF_KUBELETS_MEMORY: Final = frozenset({"RBD101", "RBD102"})

_DELETES: Final = re.compile(
    r"\b(?:delete|discard)\s+(?:(?:all|the|this|that|a|an|old|other|both|its)\s+)*"
    r"(?:PV|claim|image|volume)s?\b"
    r"|\b(?:make|create)\s+(?:the|this|that)\s+(?:PV|claim)\s+again\b"
    r"|\b(?:be|get) rid of\b",
    re.IGNORECASE,
)
_KEEPS: Final = re.compile(
    r"\bRetain\b|which has no volume yet|which deletes no image|[Nn]ever delete|delete nothing"
)


def contradictions(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield each finding whose text contradicts its recovery."""
    known = {
        f"{judged.holder.mapping.device} on {judged.holder.node}"
        for judged in diagnosis.holders
        if judged.holder.mapping is not None
        and (
            isinstance(judged.holder.attachment, VolumeAttachment)
            or judged.holder.in_volumes_in_use is not False
        )
    }
    for finding in diagnosis.findings:
        by = finding.recovery.actor if finding.recovery is not None else ""
        if by and _ENDS_NEVER.search(finding.message):
            yield f"{finding.code}: {finding.message} Recovery: {finding.recovery}"
        if not by and finding.recovery is not None and _ENDS_ITSELF.search(finding.message):
            yield f"{finding.code}: {finding.message} Recovery: {finding.recovery}"
        if (
            by == "kubelet"
            and finding.code in _OF_KUBELETS_MEMORY
            and str(finding.subject) not in known
        ):
            yield f"{finding.code}: {finding.subject} is unknown to kubelet, and it is to end it"


def loses_data(remedy: str) -> bool:
    """Return whether a remedy deletes a PV, claim or image before it states how to keep data."""
    first = _DELETES.search(remedy)
    if first is None:
        return False
    end = remedy.find(".", first.end())
    return _KEEPS.search(remedy[: end if end >= 0 else len(remedy)]) is None


def advice_that_loses_data(findings: tuple[Finding, ...]) -> list[str]:
    """Return the findings whose remedy loses data."""
    return [
        f"{finding.code}: {remedy}"
        for finding in findings
        if loses_data(remedy := sentence_of(finding.remedy))
    ]
