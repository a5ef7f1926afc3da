"""RBD9xx: sources and facts that were not observed, one finding for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.codes import Code
from rbdagent.commands import command, kubectl
from rbdagent.correlate.holders import cluster_with
from rbdagent.correlate.index import ceph_index
from rbdagent.model import (
    CODES_OF_GAPS,
    Finding,
    NotObserved,
    Severity,
    Source,
    SourceState,
    Subject,
    Verb,
    Words,
    stated,
)
from rbdagent.parse.brief import begun
from rbdagent.rules.context import Rule, RuleContext, finding
from rbdagent.rules.entry import Entry
from rbdagent.rules.placement import waiting_for

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES: Final = (
    Entry(
        Code.NODE_NOT_OBSERVED,
        Severity.WARNING,
        "This node was not observed.",
        remedy=("Run as root on the node, or see `", Verb("check"), "`."),
        recovery=None,
    ),
    Entry(
        Code.CEPH_NOT_OBSERVED,
        Severity.WARNING,
        "Ceph could not be queried.",
        remedy=("See `", Verb("check"), "`."),
        recovery=None,
    ),
    Entry(
        Code.KUBERNETES_NOT_OBSERVED,
        Severity.WARNING,
        "The Kubernetes API could not be queried.",
        remedy=("See `", Verb("check"), "`."),
        recovery=None,
    ),
    Entry(
        Code.FACT_NOT_OBSERVED,
        Severity.WARNING,
        "A source was observed only in part.",
        remedy="Grant the permission or the cap that the finding names.",
        recovery=None,
    ),
    Entry(
        Code.CEPH_DID_NOT_ANSWER,
        Severity.WARNING,
        "Ceph did not answer in time about this volume's image.",
        remedy="`ceph -s` and `ceph health detail` show monitors, OSDs and placement groups that "
        "are down. Run rbdagent again when Ceph answers. Until then, do not detach by force and "
        "do not start the pod elsewhere.",
        recovery=None,
    ),
    Entry(
        Code.NOT_THIS_NODE,
        Severity.WARNING,
        "This machine is not the Node whose name rbdagent was given.",
        remedy="Pass --node-name with the name of this machine's Node. If the name is correct, "
        "wait until kubelet runs and reports: `kubectl get node NODE -o "
        "jsonpath={.status.nodeInfo.bootID}` prints the boot id of the Node.",
        recovery=None,
    ),
)

_BOOT_ID: Final = "jsonpath={.status.nodeInfo.bootID}"

CODES: Final = CODES_OF_GAPS
"""Codes of findings about the whole snapshot, whatever the target is."""

OF_ONE_VOLUME: Final = frozenset({Code.CEPH_DID_NOT_ANSWER})
"""Codes for the effect on one volume; with many volumes, the findings about the whole snapshot
report it once."""


def sources(context: RuleContext) -> Iterator[Finding]:
    """Report RBD901 to RBD903: a whole source was not observed; INFO if skipped on purpose."""
    states = context.snapshot.sources
    if context.snapshot.other_machine is None:
        yield from _source(Code.NODE_NOT_OBSERVED, "This node", states.node, "mappings here")
    yield from _source(Code.CEPH_NOT_OBSERVED, "Ceph", states.ceph, "holders on other nodes")
    yield from _source(
        Code.KUBERNETES_NOT_OBSERVED,
        "The Kubernetes API",
        states.kubernetes,
        "pods and attachments",
    )


def _source(code: Code, name: str, source: Source, hidden: str) -> Iterator[Finding]:
    if source.state is SourceState.OBSERVED:
        return
    skipped = source.state is SourceState.SKIPPED
    what = "was not queried" if skipped else "could not be queried"
    yield finding(
        code,
        Subject.of_source(name),
        stated(
            "{} {}: {} were not observed{}.", name, what, hidden, _in_parentheses(source.reason)
        ),
        evidence=(source.reason,) if source.reason else (),
        remedy=source.hint,
        severity=Severity.INFO if skipped else None,
        fact=hidden,
    )


def _in_parentheses(reason: str) -> Words:
    return stated(" ({reason})", reason=reason) if reason else ""


def other_machine(context: RuleContext) -> Iterator[Finding]:
    """Report RBD907: the machine is not its Node, so nothing on it was observed."""
    other = context.snapshot.other_machine
    if other is None:
        return
    show = kubectl("get node", other.is_node or other.node_name, options=("-o", _BOOT_ID))
    yield finding(
        Code.NOT_THIS_NODE,
        Subject.of_node(other.is_node or other.node_name),
        stated(
            "{reason}. Its mappings count as not observed.",
            reason=begun(other.reason),
        ),
        evidence=(
            f"/proc/sys/kernel/random/boot_id: {other.boot_id}",
            f"status.nodeInfo.bootID: {other.node_boot_id}",
        ),
        remedy=other.hint,
        commands=(show,),
        fact="mappings here",
    )


def clusters(context: RuleContext) -> Iterator[Finding]:
    """Report RBD902: one cluster of several was not observed."""
    for cluster in ceph_index(context.snapshot.ceph).clusters:
        if cluster.source.state is SourceState.OBSERVED:
            continue
        if context.snapshot.sources.ceph.state is not SourceState.OBSERVED and (
            cluster.source.reason == context.snapshot.sources.ceph.reason
        ):
            continue
        yield finding(
            Code.CEPH_NOT_OBSERVED,
            Subject.of_cluster(cluster.name),
            stated(
                "Ceph cluster {cluster} could not be queried: its watchers were not observed{}.",
                _in_parentheses(cluster.source.reason),
                cluster=cluster.name,
            ),
            evidence=(cluster.source.reason,) if cluster.source.reason else (),
            remedy=cluster.source.hint,
            fact=f"watchers in Ceph cluster {cluster.name}",
        )


def silence(context: RuleContext) -> Iterator[Finding]:
    """Report RBD905: the effect on this volume if Ceph did not answer in time."""
    image, late = context.volume.image, _late(context)
    if image is None or late is None:
        return
    waits = waiting_for(context)
    yield finding(
        Code.CEPH_DID_NOT_ANSWER,
        Subject.of_image(image.spec),
        stated(
            "Ceph did not answer about {image} in time ({}). Its holders on other nodes are "
            "unknown: do not treat the image as free. Its I/O may hang too.",
            stated("{reason}", reason=late.reason) if waits is None else waits.text,
            image=image.spec,
        ),
        evidence=(late.reason, *(() if waits is None else waits.evidence)),
        commands=(
            command("ceph -s"),
            command("ceph health detail"),
            *(() if waits is None else waits.commands),
        ),
    )


def _late(context: RuleContext) -> NotObserved | Source | None:
    """Return the first source or fact of the image's cluster for which no answer came in time."""
    source, view = context.snapshot.sources.ceph, context.volume.image_view
    if source.state is SourceState.FAILED:
        return source if source.timed_out else None
    if view is not None:
        facts = (view.watchers, view.presence)
        late = (fact for fact in facts if isinstance(fact, NotObserved))
        return next((fact for fact in late if fact.timed_out), None)
    fsid = None if context.volume.image is None else context.volume.image.fsid
    if cluster_with(fsid, context.snapshot) is not None:
        return None
    # Nothing is known about a cluster that failed, not even its fsid.
    unnamed = [view for view in ceph_index(context.snapshot.ceph).clusters if view.fsid is None]
    return next((view.source for view in unnamed if view.source.timed_out), None)


def gaps(context: RuleContext) -> Iterator[Finding]:
    """Report RBD904: a single fact is missing in a source that was observed."""
    states = context.snapshot.sources
    found = [
        (Subject.of_source(name), gap)
        for name, source in (
            ("node", states.node),
            ("Ceph", states.ceph),
            ("Kubernetes", states.kubernetes),
        )
        for gap in source.gaps
    ]
    found += [
        (Subject.of_cluster(cluster.name), gap)
        for cluster in ceph_index(context.snapshot.ceph).clusters
        for gap in cluster.source.gaps
        if gap not in states.ceph.gaps
    ]
    for subject, gap in found:
        yield finding(
            Code.FACT_NOT_OBSERVED,
            subject,
            stated("Not observed: {fact} ({reason}).", fact=gap.fact, reason=gap.reason),
            evidence=(gap.reason,),
            remedy=gap.hint,
            fact=gap.fact,
        )


RULES: Final = (
    Rule(700, silence),
    Rule(710, sources),
    Rule(740, other_machine),
    Rule(720, clusters),
    Rule(730, gaps),
)
