"""Error texts of events and VolumeAttachments: the meaning of a text, and a finding from it.

Each family has the texts of its codes; those of the steps on a node meet in node_stage.py
(`ERROR_TEXTS`). parse/recognised.py has the patterns and their sources, parse/faults.py the error
numbers of Ceph's calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.commands import Template, filled, kubectl, template
from rbdagent.model import (
    Command,
    Finding,
    NotObserved,
    Recovery,
    Severity,
    Statement,
    Subject,
    VolumeAttachment,
    Words,
    observed_of,
    stated,
)
from rbdagent.parse.faults import FAULTS, Call, Fault, Kind, first_meaning
from rbdagent.parse.foreign import foreign, quoted_names
from rbdagent.parse.recognised import Recognised
from rbdagent.rules.context import RuleContext, finding
from rbdagent.rules.pod_events import PodEvent, decisive_pod_events, pod_event_evidence
from rbdagent.verdicts.timing import RETRY_S
from rbdagent.verdicts.volume_verdict import driver_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.codes import Code

    Fact = Callable[[RuleContext, dict[str, str]], bool]


class ErrorText(NamedTuple):
    """Holds the meaning of an error text."""

    kinds: tuple[Kind, ...]
    code: Code | None
    """None: another rule reports it, based on more than the text."""
    means: str = ""
    """Follows "cannot start on NODE: "; may contain fields of the pattern and of `fields_of`."""
    commands: tuple[Template, ...] = ()
    """May contain the same fields; a command is omitted if one of its fields is unknown."""
    remedy: str = ""
    """Only if it differs from the catalogue's."""
    recovery: Recovery | None = None
    """Only if it differs from the catalogue's."""
    causes: tuple[tuple[Fact, ErrorText], ...] = ()
    """For a text with several causes: facts, and the cause that each of them decides. If no fact
    holds, the text has its own meaning, which names the facts that decide."""


OF_OTHER_RULES: Final = ErrorText(
    (
        Recognised.MULTI_ATTACH,
        Recognised.IN_USE,
        Recognised.UNDER_WAY,
        Recognised.DEADLINE,
        Recognised.VOLUMES_NOT_READY,
        *((call, Fault.BLOCKLISTED) for call in Call),
        Recognised.BEING_DETACHED,
        Recognised.ONE_POD_ONLY,
        Recognised.NOT_THE_CLAIMS,
        Recognised.NOT_OWNER,
    ),
    None,
)
"""Texts that no family reports for the text alone. They come before the texts of the families."""

FIXED_ATTRIBUTES: Final = Recovery(note="the attributes of a PV cannot be changed")


def retried(once: str) -> Recovery:
    """Return the recovery by kubelet's retries, which never end."""
    return Recovery(actor="kubelet", condition=once, within_s=RETRY_S)


def failed_calls(fault: Fault, *calls: Call) -> tuple[Kind, ...]:
    """Return the calls that fail for a reason; without arguments, every call that can."""
    return tuple(
        (call, fault)
        for call, numbers in FAULTS.items()
        if fault in numbers.values() and (call in calls or not calls)
    )


def field_of_volume(path: str) -> Template:
    """Return the command that shows one field of the PV's spec."""
    return template("kubectl get pv", "{volume}", options=("-o", f"jsonpath={{{{.spec.{path}}}}}"))


def _config_maps(name: str) -> Template:
    listing = "kubectl get configmap -A -o yaml --field-selector"
    return template(listing, f"metadata.name={name}")


NODE_PODS: Final = template("kubectl get pods -A -o wide --field-selector", "spec.nodeName={node}")
CSI_NODE: Final = template("kubectl get csinode", "{node}", options=("-o", "yaml"))
CONFIG_MAPS: Final = (_config_maps("ceph-csi-config"), _config_maps("rook-ceph-csi-config"))
KERNEL_VERSION: Final = template(
    "kubectl get node", "{node}", options=("-o", "jsonpath={{.status.nodeInfo.kernelVersion}}")
)
KERNEL_LOG: Final = template(
    "journalctl --dmesg --no-pager --lines=10 --grep=rbd:|libceph:", node="{node}"
)
"""The match ignores case, because the pattern has no capital letter (journalctl(1))."""
STAGE_SECRET: Final = field_of_volume("csi.nodeStageSecretRef")
IMAGE: Final = template("rbd info", "{image}")
_UNRECOGNISED: Final = ErrorText((), None, commands=(NODE_PODS,))
_MOST_NAMED: Final = 3
"""How many pods, and how many nodes, one finding names."""
_JOURNAL: Final = "journaling"
"""The feature that no kernel supports, and that journal-based mirroring needs."""


@lru_cache(maxsize=256)
def meaning_of(text: str) -> tuple[ErrorText, dict[str, str]] | None:
    """Return the meaning of a text, and the names that the text contains; None if unrecognised.

    Several rules ask for the text of each event.
    """
    # The families import this module.
    from rbdagent.rules import ERROR_TEXTS

    return first_meaning(ERROR_TEXTS, text)


def decided(pod_event: PodEvent, context: RuleContext) -> tuple[ErrorText, dict[str, str]] | None:
    """Return the meaning of an event in a state: the cause that a fact decides, else its own."""
    meant = meaning_of(pod_event.text)
    if meant is None:
        return None
    general, names = meant
    known = {**names, "node": pod_event.node or ""}
    by_fact = (cause for holds, cause in general.causes if holds(context, known))
    return next(by_fact, general), names


def code_of(text: str) -> Code | None:
    """Return the code that a text leads to; None if it leads to none."""
    meant = meaning_of(text)
    return meant[0].code if meant is not None else None


# --------------------------------------------------------------------------------------------------
# Events of pods
# --------------------------------------------------------------------------------------------------


def events_by_code(own: tuple[ErrorText, ...], context: RuleContext) -> dict[Code, list[PodEvent]]:
    """Return the newest events of waiting pods with one of these texts, by its code.

    A failed attach is omitted if VolumeAttachments were observed: they have the same error.
    """
    found: dict[Code, list[PodEvent]] = {}
    has_objects = not isinstance(context.volume.attachments, NotObserved)
    for pod_event in decisive_pod_events(context):
        meant = meaning_of(pod_event.text)
        if meant is None or meant[0] not in own:
            continue
        cause = decided(pod_event, context)
        code = cause[0].code if cause is not None else None
        is_of_object = has_objects and Recognised.ATTACH_FAILED.is_in(pod_event.text)
        if code is not None and not is_of_object:
            found.setdefault(code, []).append(pod_event)
    return found


def unrecognised_events(context: RuleContext) -> list[PodEvent]:
    """Return the newest events of waiting pods whose text has no known meaning."""
    return [
        pod_event
        for pod_event in decisive_pod_events(context)
        if meaning_of(pod_event.text) is None
    ]


def event_finding(
    code: Code,
    pod_events: list[PodEvent],
    context: RuleContext,
    *,
    note: Words = "",
    severity: Severity | None = None,
    recovery: Recovery | None = None,
) -> Finding:
    """Return one finding for the pods whose events have the same code.

    Args:
        code: the code of their texts.
        pod_events: at least one; the first one is quoted, and its text is explained.
        context: the target.
        note: follows the message.
        severity: only if it differs from the catalogue's.
        recovery: only if it differs from that of the text.
    """
    pod_event = pod_events[0]
    text, groups = decided(pod_event, context) or (_UNRECOGNISED, {})
    means = (
        stated(text.means, **fields_of(pod_event.node, context, quoted_names(groups)))
        if text.means
        else stated("{error}", error=foreign(_bare(pod_event.text)))
    )
    nodes = tuple(dict.fromkeys(waiter.node for waiter in pod_events))
    return finding(
        code,
        Subject.of_pod(pod_event.event.subject),
        stated("{}: {}.{}", waiters_text(pod_events), means, note),
        evidence=pod_event_evidence(pod_event, context),
        remedy=text.remedy,
        commands=tuple(
            made
            for node in nodes[:_MOST_NAMED]
            for made in filled(
                text.commands, fields_of(node, context, user_in(pod_event.text) | groups)
            )
        ),
        severity=severity,
        recovery=recovery or text.recovery,
    )


def waiters_text(pod_events: list[PodEvent]) -> Statement:
    """Return that these pods cannot start, with their nodes, or with the node of all of them."""
    nodes = {pod_event.node for pod_event in pod_events}
    named = [
        f"{pod_event.event.subject} on {pod_event.node}"
        if len(nodes) > 1 and pod_event.node
        else str(pod_event.event.subject)
        for pod_event in pod_events
    ]
    left = len(named) - _MOST_NAMED
    more = stated(" and {count} more", count=left) if left > 0 else ""
    node = pod_events[0].node if len(nodes) == 1 else None
    where = stated(" on {node}", node=node) if node else ""
    return stated("{pods}{} cannot start{}", more, where, pods=named[:_MOST_NAMED])


def _bare(text: str) -> str:
    """Return the text without the prefix that all errors of kubelet have."""
    return Recognised.FAILED_FOR_VOLUME.left_out_of(text).strip().rstrip(".")


# --------------------------------------------------------------------------------------------------
# VolumeAttachments
# --------------------------------------------------------------------------------------------------


def failed_attachments(context: RuleContext) -> tuple[VolumeAttachment, ...]:
    """Return the VolumeAttachments of the volume whose attach fails."""
    return tuple(
        attachment
        for attachment in observed_of(context.volume.attachments)
        if attachment.attach_error and not attachment.attached and not attachment.deleting_since
    )


def attach_errors(
    own: tuple[ErrorText, ...], context: RuleContext
) -> Iterator[tuple[Code, VolumeAttachment]]:
    """Yield each VolumeAttachment whose attachError is one of these texts, with its code."""
    for attachment in failed_attachments(context):
        meant = meaning_of(attachment.attach_error)
        if meant is not None and meant[0] in own and meant[0].code is not None:
            yield meant[0].code, attachment


def attach_finding(
    code: Code,
    attachment: VolumeAttachment,
    context: RuleContext,
    *,
    note: Words = "",
    severity: Severity | None = None,
    recovery: Recovery | None = None,
) -> Finding:
    """Return the finding for an attachError; without a known meaning, it quotes the error."""
    error = attachment.attach_error
    meant = meaning_of(error)
    means = stated("{error}", error=foreign(error))
    commands: tuple[Command, ...] = ()
    remedy = ""
    if meant is not None and meant[0].code is not None:
        fields = fields_of(attachment.node_name, context, meant[1])
        quoted = fields | quoted_names(meant[1])
        means = stated(meant[0].means, **quoted)
        commands = filled(meant[0].commands, fields)
        remedy = meant[0].remedy
    return finding(
        code,
        Subject.of_attachment(attachment.name),
        stated(
            "{volume} cannot be attached to {node}: {}.{}",
            means,
            note,
            volume=context.name,
            node=attachment.node_name,
        ),
        evidence=(foreign(error),),
        remedy=remedy,
        commands=(*commands, describe_attachment(attachment)),
        severity=severity,
        recovery=recovery,
    )


def describe_attachment(attachment: VolumeAttachment) -> Command:
    """Return the command that shows a VolumeAttachment with its events."""
    return kubectl("describe volumeattachment", attachment.name)


# --------------------------------------------------------------------------------------------------
# Fields of sentences and commands
# --------------------------------------------------------------------------------------------------


def fields_of(node: str | None, context: RuleContext, groups: dict[str, str]) -> dict[str, str]:
    """Return the values for the sentences and commands of a text; unknown ones are empty."""
    volume = context.volume
    persistent_volume, claim = volume.persistent_volume, volume.claim
    driver = driver_of(volume)
    fs_type = (
        getattr(persistent_volume.source, "fs_type", None)
        if persistent_volume is not None
        else None
    )
    spec = volume.image.spec if volume.image is not None and volume.image.spec.pool else None
    return {
        "node": node or "",
        "volume": context.name,
        "driver": driver if driver is not None else "of the volume",
        "fs_type": fs_type or "ext4",
        "image": str(spec or ""),
        "pool": spec.pool if spec is not None else "",
        "lacking": _lacking(context),
        "claim_namespace": claim.ref.namespace if claim is not None else "",
        "claim_name": claim.ref.name if claim is not None else "",
        "user": "",
        **groups,
    }


def user_in(text: str) -> dict[str, str]:
    """Return the Ceph user of the rbd command that a text quotes, as ``user``."""
    return Recognised.RBD_USER.named_in(text) or {}


def _lacking(context: RuleContext) -> str:
    """Return the feature of the image that krbd lacks and that can be disabled without harm."""
    view = context.volume.image_view
    if view is None or view.mirrored is not False or _JOURNAL not in view.features:
        return ""
    return _JOURNAL
