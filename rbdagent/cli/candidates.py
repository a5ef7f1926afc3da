"""What a shell offers for an argument when the user presses Tab: targets, codes and kinds.

A failure offers nothing: a message would break the line that the user types.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from click.shell_completion import CompletionItem

from rbdagent.errors import RbdagentError
from rbdagent.model import CsiSource, InTreeRbdSource, PersistentVolume, TargetKind, observed_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

    from rbdagent.model import NotObserved, PersistentVolumeClaim, Pod

    _Listed = tuple[PersistentVolume | PersistentVolumeClaim | Pod, ...] | NotObserved

_TIMEOUT_S: Final = 2.0
"""Time limit of a request: the user waits for the shell."""
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
"""The names of API objects. A snapshot may contain others, which a shell would interpret."""


def codes(
    _context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem[str]]:
    """Return the codes that begin as typed, with their names; if none does, names and topics."""
    from rbdagent.binding import TOPIC
    from rbdagent.catalog import CATALOG

    found = [
        CompletionItem(str(entry.code), help=entry.name)
        for entry in CATALOG.values()
        if entry.code.startswith(begin)
    ]
    known = (*(entry.name for entry in CATALOG.values()), TOPIC)
    names = [name for name in known if name.startswith(begin)]
    return found or [CompletionItem(name) for name in names]


def kinds(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Return the kinds of machine output that begin as typed."""
    from rbdagent.report.schema import KINDS

    return [kind for kind in KINDS if kind.startswith(begin)]


def targets(
    context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem[str]]:
    """Return the targets that begin as typed: of the snapshot of --from, else of Kubernetes.

    They have the form that was begun: ``NAME`` and ``pv/NAME`` of PersistentVolumes,
    ``pvc/NAMESPACE/NAME``, or ``pvc/NAME`` with --namespace, the same of pods, and ``NAME`` behind
    a type, as in kubectl.
    """
    asked = _asked_for(context, [*(context.params.get("target") or ()), begin])
    if asked is None:
        return []
    try:
        found = _objects(context, asked)
    except (RbdagentError, OSError, UnicodeDecodeError):
        return []
    items = [_item(candidate, asked) for candidate in found if candidate.is_plain]
    return [item for item in items if item.value.startswith(begin)]


class _Asked(NamedTuple):
    """The kind of a target that was begun, the namespace of its objects, and its form."""

    kind: TargetKind
    namespace: str | None
    """None for every namespace."""
    prefix: str
    """The type and a slash, if the target begins so."""


class _Candidate(NamedTuple):
    """An object that may be a target."""

    namespace: str
    name: str
    claim: str = ""
    """Of a PersistentVolume."""

    @property
    def is_plain(self) -> bool:
        """Return whether a shell interprets no character of the names."""
        return all(_NAME.fullmatch(name) for name in (self.namespace or "-", self.name))


def _asked_for(context: click.Context, typed: list[str]) -> _Asked | None:
    """Return what the last word asks for; None if no further word is expected."""
    from rbdagent.parse.target import KINDS

    namespace = context.params.get("namespace")
    word, slash, _ = typed[0].partition("/")
    kind = KINDS.get(word.lower())
    match typed:
        case [_] if slash and kind is not None:
            prefix = f"{word}/"
        case [_]:
            kind, prefix = TargetKind.PERSISTENT_VOLUME, ""
        case [_, _] if not slash and kind is not None:
            namespace, prefix = namespace or "default", ""
        case _:
            return None
    is_namespaced = kind is not TargetKind.PERSISTENT_VOLUME
    return _Asked(kind, namespace if is_namespaced else None, prefix)


def _item(found: _Candidate, asked: _Asked) -> CompletionItem[str]:
    namespace = f"{found.namespace}/" if found.namespace and asked.namespace is None else ""
    return CompletionItem(f"{asked.prefix}{namespace}{found.name}", help=found.claim or None)


def _objects(context: click.Context, asked: _Asked) -> list[_Candidate]:
    """Return the objects of a kind that exist, of RBD if they are PersistentVolumes.

    Raises:
        RbdagentError: the snapshot or Kubernetes cannot be read.
    """
    source = context.params.get("source")
    existing = _of_snapshot(source, asked.kind) if source else _of_cluster(context, asked)
    return [
        candidate
        for found in observed_of(existing)
        for candidate in _candidates(found)
        if asked.namespace in {None, candidate.namespace}
    ]


def _candidates(found: PersistentVolume | PersistentVolumeClaim | Pod) -> Iterator[_Candidate]:
    if not isinstance(found, PersistentVolume):
        yield _Candidate(found.ref.namespace, found.ref.name)
    elif isinstance(found.source, InTreeRbdSource) or (
        isinstance(found.source, CsiSource) and "rbd" in found.source.driver
    ):
        claim = found.claim
        yield _Candidate("", found.name, f"{claim.namespace}/{claim.name}" if claim else "")


def _of_snapshot(source: str, kind: TargetKind) -> _Listed:
    from rbdagent.cli.data_source import snapshot_in

    view = snapshot_in(source).kubernetes if Path(source).is_file() else None
    if view is None:
        return ()
    if kind is TargetKind.PERSISTENT_VOLUME:
        return view.persistent_volumes
    return view.claims if kind is TargetKind.CLAIM else view.pods


def _of_cluster(context: click.Context, asked: _Asked) -> _Listed:
    from rbdagent.cli.access import kube_access
    from rbdagent.collect.kube.client import Api
    from rbdagent.collect.kube.kubeconfig import credentials
    from rbdagent.collect.kube.requests import VOLUMES, listed, within
    from rbdagent.parse import kubernetes as read

    if context.params["no_kube"]:
        return ()
    api = Api(credentials(kube_access(context.params)), timeout_s=_TIMEOUT_S)
    if asked.kind is TargetKind.PERSISTENT_VOLUME:
        return listed(api, VOLUMES, read.persistent_volume)()
    if asked.kind is TargetKind.CLAIM:
        return listed(api, within(asked.namespace, "persistentvolumeclaims"), read.claim)()
    return listed(api, within(asked.namespace, "pods"), read.pod)()
