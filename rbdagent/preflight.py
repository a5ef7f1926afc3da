"""Check whether rbdagent can work on this node: one result line for each requirement."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Final

from rbdagent.collect.failure import not_observed
from rbdagent.collect.parallel import Awaited, all_of, awaiting
from rbdagent.correlate.image_identity import are_mappings_observed
from rbdagent.correlate.views import copies_text, copies_with
from rbdagent.errors import SourceError
from rbdagent.model import (
    CephView,
    CheckResult,
    CheckState,
    DeviceKind,
    KubeletView,
    NotObserved,
    SourceState,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.node.contained import NodeAnswer
    from rbdagent.collect.node.roots import NodeRoots
    from rbdagent.config import Settings
    from rbdagent.model import ClusterView, Gap, NodeView


def check_all(settings: Settings, awaited: Awaited) -> tuple[CheckResult, ...]:
    """Check the node, every Ceph cluster and Kubernetes in parallel.

    Args:
        settings: the sources, their credentials, and the overall deadline.
        awaited: lists the sources that this call waits for, while it waits.
    """
    # The process that observes the node is a fork, and must start before this one has threads: a
    # lock of an import that a thread holds is never released in the fork.
    with _node_begun(settings) as node_answer:
        return _check_all(settings, awaited, node_answer)


def _node_begun(
    settings: Settings,
) -> contextlib.AbstractContextManager[Callable[[], NodeAnswer] | None]:
    if settings.roots is None:
        return contextlib.nullcontext()
    from rbdagent.collect.node.contained import node_begun

    deadline = time.monotonic() + settings.timeout_s
    return node_begun(settings.roots, settings.node_name, deadline)


def _check_all(
    settings: Settings, awaited: Awaited, node_answer: Callable[[], NodeAnswer] | None
) -> tuple[CheckResult, ...]:
    clusters: list[ClusterView] = []
    calls: list[tuple[str, str, Callable[[], tuple[CheckResult, ...]]]] = [
        ("node", "this node", functools.partial(_node, settings, node_answer)),
        *(
            (
                "ceph",
                f"Ceph cluster {access.name}",
                functools.partial(_ceph, settings, access, clusters.append),
            )
            for access in settings.clusters or ()
        ),
        ("kubernetes", "the Kubernetes API", functools.partial(_kube, settings)),
    ]
    if settings.clusters is None:
        calls.insert(1, ("ceph", "Ceph", lambda: (_skipped("ceph"),)))

    def checked(name: str, call: Callable[[], tuple[CheckResult, ...]]) -> tuple[CheckResult, ...]:
        with awaiting(awaited, name, settings.timeout_s):
            return call()

    answers = all_of(
        [functools.partial(checked, name, call) for _, name, call in calls],
        time.monotonic() + settings.timeout_s,
    )
    results: list[CheckResult] = []
    for (source, _, _), answer in zip(calls, answers, strict=True):
        if isinstance(answer, tuple):
            results += answer
        else:
            results.append(_unanswered(source, answer, settings))
    return (*results, *_copies(tuple(clusters)))


def _copies(clusters: tuple[ClusterView, ...]) -> Iterator[CheckResult]:
    """Yield a line for each fsid that several configured clusters have."""
    ceph = CephView(clusters=clusters)
    for fsid in sorted({cluster.fsid for cluster in clusters if cluster.fsid is not None}):
        copies = copies_with(fsid, ceph)
        if copies:
            yield CheckResult(
                source="ceph",
                sentence="no two configured clusters have one fsid",
                failure=copies_text(copies),
                state=CheckState.FAILED,
                detail=f"fsid {fsid}",
                hint="use a separate configuration for each: no source shows which of them a "
                "device or a PersistentVolume means",
            )


def _unanswered(source: str, error: BaseException | None, settings: Settings) -> CheckResult:
    """Return the line for a source if its check did not end, or failed unexpectedly."""
    failure = f"the check of {source} failed"
    if error is None:
        failure = f"{source} did not answer within {settings.timeout_s:g} s"
        error = SourceError("no answer in time", hint="a longer --timeout may help")
    missing = not_observed(error, "the check")
    return CheckResult(
        source=source,
        sentence=f"the source answers within {settings.timeout_s:g} s",
        failure=failure,
        state=CheckState.FAILED,
        detail=missing.reason,
        hint=missing.hint,
    )


def _skipped(source: str) -> CheckResult:
    return CheckResult(
        source=source, sentence="not checked: disabled by a flag", state=CheckState.SKIPPED
    )


def _ceph(
    settings: Settings, access: CephAccess, note: Callable[[ClusterView], None]
) -> tuple[CheckResult, ...]:
    from rbdagent.collect.ceph.check import check_ceph
    from rbdagent.collect.monitors import with_monitors

    (located,) = with_monitors((access,), settings.monitor_lists, {})
    return check_ceph(located, note=note)


def _kube(settings: Settings) -> tuple[CheckResult, ...]:
    if settings.kube is None:
        return (_skipped("kubernetes"),)
    from rbdagent.collect.kube.access_review import check_kube

    return check_kube(settings.kube, settings.node_name, _boot_id(settings.roots))


def _boot_id(roots: NodeRoots | None) -> str | NotObserved | None:
    """Return the boot id of this machine; None if the node is not observed on purpose."""
    from rbdagent.collect.node.observer import boot_id

    if roots is None:
        return None
    return boot_id(roots.procfs) or NotObserved(
        reason="the boot id of this machine could not be read",
        hint="mount the host's /proc, or pass --procfs with its path",
    )


def _node(settings: Settings, answer: Callable[[], NodeAnswer] | None) -> tuple[CheckResult, ...]:
    if settings.roots is None or answer is None:
        return (_skipped("node"),)
    view, source = answer()
    if view is None or source.state is not SourceState.OBSERVED:
        return (
            _line(
                "the node can be observed",
                "the node cannot be observed",
                ok=False,
                detail=source.reason,
                hint=source.hint,
            ),
        )
    words = _log_results(settings.roots, view, settings.timeout_s)
    return (*_devices(view), *_facts(view, source.gaps), _kubelet_root(view), *words)


def _devices(view: NodeView) -> list[CheckResult]:
    mappings = view.mappings
    if isinstance(mappings, NotObserved):
        # Whether the module is loaded was not observed either: both are read from sysfs.
        return [_seen("RBD devices", ok=False, detail=mappings.reason, hint=mappings.hint)]
    return [
        _line(
            "the rbd module is loaded",
            "the rbd module is not loaded",
            ok=view.module_loaded,
            detail="" if view.module_loaded else "no /sys/bus/rbd: krbd has no mapping",
            optional=True,
        ),
        _seen("RBD devices", ok=True, detail=f"{len(mappings)} mapped"),
    ]


_RIGHTS: Final = (
    ("mounts in other mount namespaces", "the host's /proc"),
    ("open files and working directories of other users' processes", "root and CAP_SYS_PTRACE"),
    ("device nodes", "the host's /dev"),
    ("kubelet's staging directories", "root or CAP_DAC_READ_SEARCH"),
    ("kubelet's pod directories", "root or CAP_DAC_READ_SEARCH"),
    ("the kernel's own list of watches and hung requests", "debugfs, root or CAP_DAC_READ_SEARCH"),
)
"""Facts, and the privileges that they need, as measured (docs/privileges.md, tests/e2e)."""

_NEEDS_KUBELET: Final = frozenset({_RIGHTS[3][0], _RIGHTS[4][0]})
_NEEDS_A_DEVICE: Final = frozenset(_RIGHTS[number][0] for number in (1, 2, 5))
_USER: Final = "the CephX user of a mapping"


def _facts(view: NodeView, gaps: tuple[Gap, ...]) -> Iterator[CheckResult]:
    """Yield a line for each fact that needs a privilege; every line names the privilege."""
    missing = {gap.fact: gap for gap in gaps}
    krbd = [mapping for mapping in observed_of(view.mappings) if mapping.kind is DeviceKind.KRBD]
    none = f"no device {'is mapped' if are_mappings_observed(view) else 'was observed'}"
    for fact, right in _RIGHTS:
        gap = missing.get(fact)
        if gap is not None:
            yield _seen(fact, ok=False, detail=gap.reason, hint=gap.hint)
        elif fact in _NEEDS_A_DEVICE and not krbd:
            yield _not_tried(fact, right, without=none)
        elif fact in _NEEDS_KUBELET and not _roots(view):
            yield _not_tried(fact, right, without="kubelet has no directory")
        else:
            yield _seen(fact, ok=True, detail=f"needs {right}")
    if krbd:
        seen = any(mapping.user for mapping in krbd)
        yield _seen(
            _USER,
            ok=seen,
            optional=True,
            detail="needs CAP_SYS_ADMIN",
            hint="no verdict needs it: this capability may be omitted",
        )
    else:
        yield _not_tried(_USER, "CAP_SYS_ADMIN", without=none)


def _seen(
    fact: str, *, ok: bool, detail: str, hint: str = "", optional: bool = False
) -> CheckResult:
    can, cannot = f"{fact} can be seen", f"{fact} cannot be seen"
    return _line(can, cannot, ok=ok, detail=detail, hint=hint, optional=optional)


def _not_tried(fact: str, right: str, *, without: str) -> CheckResult:
    return CheckResult(
        source="node",
        sentence=f"{fact} can be seen",
        state=CheckState.SKIPPED,
        detail=f"{without} here to check it with; needs {right}",
    )


def _roots(view: NodeView) -> tuple[str, ...]:
    return view.kubelet.roots if isinstance(view.kubelet, KubeletView) else ()


def _kubelet_root(view: NodeView) -> CheckResult:
    roots = _roots(view)
    return _line(
        "kubelet's directory exists",
        "kubelet's directory was not found",
        ok=bool(roots),
        detail=", ".join(roots),
        hint="if kubelet runs here, pass its directory with --kubelet-root",
        optional=True,
    )


def _log_results(roots: NodeRoots, view: NodeView, timeout_s: float) -> Iterator[CheckResult]:
    """Yield a line for each log that `diagnose` quotes."""
    from rbdagent.collect.node.volume_logs import begin_logs
    from rbdagent.correlate.log_names import LogNames

    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    wait = begin_logs(roots, view, (LogNames(),), now=now)
    words = wait(time.monotonic() + timeout_s)
    if isinstance(words, NotObserved):
        return
    for whose, found in (
        ("kubelet's", words.kubelet),
        ("the CSI node plugin's", words.plugin),
        ("the kernel's", words.kernel),
    ):
        unseen = found if isinstance(found, NotObserved) else None
        yield _line(
            f"{whose} log can be read",
            f"{whose} log cannot be read",
            ok=unseen is None,
            detail="diagnose quotes it" if unseen is None else unseen.reason,
            hint="" if unseen is None else unseen.hint,
            optional=True,
        )


def _line(
    sentence: str,
    failure: str,
    *,
    ok: bool,
    detail: str = "",
    hint: str = "",
    optional: bool = False,
) -> CheckResult:
    bad = CheckState.WARNING if optional else CheckState.FAILED
    return CheckResult(
        source="node",
        sentence=sentence,
        failure=failure,
        state=CheckState.OK if ok else bad,
        detail=detail,
        hint="" if ok else hint,
    )
