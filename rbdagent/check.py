"""Can rbdagent do its work here? A line for each thing that an answer needs."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from rbdagent.model import CheckResult, CheckState, DeviceKind, NotObserved, SourceState
from rbdagent.observe.together import all_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rbdagent.config import Settings
    from rbdagent.observe.cluster import CephAccess


def check_all(settings: Settings) -> tuple[CheckResult, ...]:
    """Check the node, every Ceph cluster and Kubernetes, all at once."""
    calls: list[Callable[[], tuple[CheckResult, ...]]] = [functools.partial(_node, settings)]
    calls += [functools.partial(_ceph, access) for access in settings.clusters or ()]
    calls.append(functools.partial(_kube, settings))
    answers = all_of(calls, time.monotonic() + settings.timeout_s)
    results: list[CheckResult] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            results.append(
                CheckResult(
                    source="ceph or kubernetes",
                    sentence=f"every source answers within {settings.timeout_s:g} s",
                    state=CheckState.FAILED,
                    hint="a longer --timeout may help",
                )
            )
        else:
            results += answer
    if settings.clusters is None:
        results.append(_skipped("ceph"))
    return tuple(results)


def _skipped(source: str) -> CheckResult:
    return CheckResult(source=source, sentence="looked away on purpose", state=CheckState.SKIPPED)


def _ceph(access: CephAccess) -> tuple[CheckResult, ...]:
    from rbdagent.observe.ceph import check_ceph

    return check_ceph(access)


def _kube(settings: Settings) -> tuple[CheckResult, ...]:
    if settings.kube is None:
        return (_skipped("kubernetes"),)
    from rbdagent.observe.kube import check_kube

    return check_kube(settings.kube, settings.node_name)


def _node(settings: Settings) -> tuple[CheckResult, ...]:
    if settings.roots is None:
        return (_skipped("node"),)
    from rbdagent.observe.node import observe_node

    view, source = observe_node(settings.roots, node_name=settings.node_name)
    if view is None or source.state is not SourceState.OBSERVED:
        return (
            _line("the node can be observed", ok=False, detail=source.reason, hint=source.cure),
        )
    mappings = () if isinstance(view.mappings, NotObserved) else view.mappings
    results = [
        _line(
            "the rbd module is loaded",
            ok=view.module_loaded,
            detail="" if view.module_loaded else "no /sys/bus/rbd: krbd can have mapped nothing",
            optional=True,
        ),
        _line(
            "RBD devices can be seen",
            ok=not isinstance(view.mappings, NotObserved),
            detail=f"{len(mappings)} mapped",
        ),
    ]
    results += [
        _line(f"{gap.fact} can be seen", ok=False, detail=gap.reason, hint=gap.cure)
        for gap in source.gaps
    ]
    krbd = [each for each in mappings if each.kind is DeviceKind.KRBD]
    if krbd and not any(isinstance(each.watch, NotObserved) for each in krbd):
        results.append(_line("the kernel's own list of watches can be read (debugfs)", ok=True))
    kubelet = view.kubelet
    if not isinstance(kubelet, NotObserved):
        results.append(
            _line(
                "kubelet's directory is there",
                ok=bool(kubelet.roots),
                detail=", ".join(kubelet.roots),
                hint="pass --kubelet-root",
                optional=True,
            )
        )
    return tuple(results)


def _line(
    sentence: str, *, ok: bool, detail: str = "", hint: str = "", optional: bool = False
) -> CheckResult:
    bad = CheckState.WARNING if optional else CheckState.FAILED
    return CheckResult(
        source="node",
        sentence=sentence,
        state=CheckState.OK if ok else bad,
        detail=detail,
        hint="" if ok else hint,
    )
