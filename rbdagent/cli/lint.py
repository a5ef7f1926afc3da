"""rbdagent lint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from msgspec.structs import replace

from rbdagent.cli.data_source import snapshot_of
from rbdagent.cli.options import COLOR, FILE, VERBOSE, observing, option
from rbdagent.cli.output import (
    FINDINGS,
    SEVERITIES,
    complain,
    data_text,
    is_serious,
    layout_of,
    print_text,
)
from rbdagent.errors import UsageError
from rbdagent.model import CollectScope, NotObserved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.collect.ceph_process import CephProcess
    from rbdagent.config import Settings
    from rbdagent.model import Snapshot
    from rbdagent.model.lint import LintReport, Manifests, SourceCluster, Surroundings

_WANTED: Final = "-f needs a file with manifests, as `kubectl get pv,pvc -o yaml` prints them, or -"
_DEFAULT: Final = "default"
_OF_CLUSTER: Final = CollectScope.EVERYTHING | (CollectScope.LIFECYCLE & ~CollectScope.LOGS)


@click.command("lint")
@click.option(
    "--filename", "-f", "files", multiple=True, required=True, type=FILE, metavar="FILE",
    help="YAML or JSON with the manifests; - is stdin; may be repeated.",
)  # fmt: skip
@click.option(
    "--namespace", "-n", metavar="NAME",
    help="As of `kubectl apply`: of claims whose manifest names no namespace, and kubectl refuses "
    "others. Without it: that of the context, else default.",
)  # fmt: skip
@click.option(
    "--from-context", "origin", metavar="CONTEXT",
    help="Also compare with the cluster that the manifests came from: its context.",
)  # fmt: skip
@click.option(
    "--print", "printing", is_flag=True,
    help="Print manifests that would bind, instead of the problems.",
)  # fmt: skip
@option(
    "--output", "-o", type=click.Choice(("table", "wide", "json", "yaml")), default="table",
    show_default=True, help="Output format.",
)  # fmt: skip
@option(
    "--from", "source", type=FILE, envvar="RBDAGENT_FROM", metavar="FILE",
    help="Read a snapshot file (snapshot -A) instead of observing; - is stdin.",
)  # fmt: skip
@option(
    "--fail-on", type=click.Choice(SEVERITIES), default="error", show_default=True,
    help="Exit with code 3 if a problem has at least this severity.",
)  # fmt: skip
@VERBOSE
@COLOR
@observing
def command(**asked: Any) -> int:  # noqa: ANN401 - see _Request
    """Show what would go wrong if PVs and claims were applied.

    Nothing is applied. FILE is what `kubectl get -o yaml` or Velero saved, or what you wrote:
    PersistentVolumes, PersistentVolumeClaims, StorageClasses and VolumeSnapshotContents; other
    kinds are counted. Each problem has its field. --print prints a PV and a claim that bind to each
    other, with the reclaim policy Retain.
    """
    how = _Request(**asked)
    if how.source == "-" and "-" in how.files:
        raise UsageError("-f - and --from - both read stdin: name a file for one of them")
    manifests = _read(how.files, how.namespace or _namespace_of_context(how))
    manifests = replace(manifests, required_namespace=how.namespace or "")
    snapshot, around = _observed(how, manifests)
    from rbdagent.lint.report import lint

    found = lint(snapshot, manifests, around)
    print_text(_printed(found, how) if how.printing else _rendered(found, snapshot, how))
    if is_serious((problem.severity for problem in found.problems), how.fail_on):
        return FINDINGS
    return int(not found.is_complete)


class _Request(NamedTuple):
    """Holds the flags."""

    files: tuple[str, ...]
    namespace: str | None
    origin: str | None
    printing: bool
    output: str
    source: str | None
    fail_on: str
    settings: Callable[[], Settings]


# --------------------------------------------------------------------------------------------------
# The files
# --------------------------------------------------------------------------------------------------


def _namespace_of_context(how: _Request) -> str:
    """Return the namespace in which kubectl puts an object that names none."""
    if how.source is not None:
        return _DEFAULT
    from rbdagent.collect.kube.kubeconfig import namespace_of
    from rbdagent.errors import SourceError

    access = how.settings().kube
    try:
        return (namespace_of(access) if access is not None else None) or _DEFAULT
    except SourceError:
        # The same error is the reason why Kubernetes is not observed.
        return _DEFAULT


def _read(files: Sequence[str], namespace: str) -> Manifests:
    from rbdagent.parse.manifest import joined_manifests, parse_manifests

    repeated = next((file for file in files if files.count(file) > 1), None)
    if repeated is not None:
        raise UsageError(f"-f {repeated} is given twice")
    return joined_manifests(
        parse_manifests(_text(file), file=_name(file), namespace=namespace) for file in files
    )


def _text(file: str) -> str:
    from rbdagent.collect.user_files import check_size, read_user_file
    from rbdagent.parse.documents import MOST_BYTES

    try:
        if file != "-":
            return read_user_file(Path(file), most=MOST_BYTES).decode()
        content = sys.stdin.buffer.read(MOST_BYTES + 1)
        check_size(len(content), most=MOST_BYTES)
        return content.decode()
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file", hint=_WANTED) from None
    except OSError as error:
        raise UsageError(
            f"{_name(file)}: cannot be read: {error.strerror}", hint=_WANTED
        ) from error
    except UnicodeDecodeError:
        # Drop the cause: it quotes a byte of the file, and --debug would print it.
        raise UsageError(f"{_name(file)}: not a text file", hint=_WANTED) from None


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


# --------------------------------------------------------------------------------------------------
# The clusters
# --------------------------------------------------------------------------------------------------


def _observed(how: _Request, manifests: Manifests) -> tuple[Snapshot, Surroundings]:
    """Return the cluster, with what the names in the manifests lead to."""
    from rbdagent.model import Target, TargetKind

    whole = Target(argument="-A", kind=TargetKind.NONE)
    if how.source is not None:
        snapshot = snapshot_of(whole, how.source, how.settings)
        why = NotObserved(reason=f"a snapshot does not contain it: {_name(how.source)}")
        around = _surroundings(None, manifests, why, snapshot)
        return snapshot, replace(around, origin=_origin(how, snapshot))
    settings = how.settings()
    # The process for Ceph starts before this process has threads.
    ceph = _begin_ceph(settings)
    try:
        of_kube = replace(settings, roots=None, clusters=None)
        snapshot = snapshot_of(whole, None, lambda: of_kube, also=_OF_CLUSTER)
        skipped = NotObserved(reason="not queried, as requested")
        around = _surroundings(settings, manifests, skipped, snapshot)
        around = replace(around, origin=_origin(how, snapshot))
        return _with_images(snapshot, manifests, settings, ceph), around
    finally:
        if ceph is not None:
            ceph.end()


def _begin_ceph(settings: Settings) -> CephProcess | None:
    if settings.clusters is None:
        return None
    from rbdagent.collect.ceph_process import connect

    return connect(settings.clusters, settings.monitor_lists)


def _with_images(
    snapshot: Snapshot, manifests: Manifests, settings: Settings, ceph: CephProcess | None
) -> Snapshot:
    """Return the snapshot with Ceph's answer about the images of the manifests."""
    from rbdagent.collector import with_ceph_about
    from rbdagent.correlate.image_identity import volume_image
    from rbdagent.model import PersistentVolume

    volumes = (item.object for item in manifests.items)
    images = (volume_image(one) for one in volumes if isinstance(one, PersistentVolume))
    wanted = tuple(dict.fromkeys(image for image in images if image is not None))
    return with_ceph_about(snapshot, wanted, settings, ceph)


def _surroundings(
    settings: Settings | None, manifests: Manifests, otherwise: NotObserved, snapshot: Snapshot
) -> Surroundings:
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.collect.kube.list_lint import observe_surroundings, unobserved_surroundings

    if settings is None or settings.kube is None:
        return unobserved_surroundings(otherwise, manifests, snapshot.kubernetes)
    return observe_surroundings(Connection(settings.kube), manifests, snapshot.kubernetes)


def _origin(how: _Request, snapshot: Snapshot) -> SourceCluster | None:
    """Return the cluster that the manifests came from; None if it was not named.

    Raises:
        UsageError: it is the cluster itself, or Kubernetes is not queried.
    """
    if how.origin is None:
        return None
    from rbdagent.collect.kube.connection import Connection
    from rbdagent.collect.kube.list_lint import observe_origin

    access = how.settings().kube
    if access is None:
        raise UsageError("--from-context names a cluster to query: do not use --no-kube with it")
    found = observe_origin(Connection(replace(access, context=how.origin)), how.origin)
    here = None if snapshot.kubernetes is None else snapshot.kubernetes.server
    if not isinstance(found.view, NotObserved) and found.view.server == here:
        raise UsageError(
            f"--from-context {how.origin} is the cluster to which the manifests would be applied",
            hint="--context selects that one, --from-context the other one",
        )
    return found


# --------------------------------------------------------------------------------------------------
# The output
# --------------------------------------------------------------------------------------------------


def _rendered(found: LintReport, snapshot: Snapshot, how: _Request) -> str:
    if how.output in {"json", "yaml"}:
        from rbdagent.report.json.lint import lint_report

        return data_text(lint_report(found, snapshot), how.output)
    from rbdagent.report.text.lint import lint_text

    return lint_text(found, snapshot, layout_of(how.output), how.files)


def _printed(found: LintReport, how: _Request) -> str:
    """Return the clean pairs: documents of YAML, or a List of JSON."""
    from rbdagent.report.text.lint import manifests_of

    manifests = [*manifests_of(found)]
    left_out = [
        f"{name} is left out: no claim is known for it alone" for name in found.without_pair
    ]
    if how.output == "json":
        for line in (*(line for notes, _ in manifests for line in notes.splitlines()), *left_out):
            complain(f"rbdagent: {line}")
        items = [data for _, data in manifests]
        return data_text({"apiVersion": "v1", "kind": "List", "items": items}, "json")
    documents = [f"{_comments(notes)}{data_text(data, 'yaml')}" for notes, data in manifests]
    return "---\n".join([*documents, *map(_comments, left_out)])


def _comments(text: str) -> str:
    from rbdagent.parse.shown import shown

    return "".join(f"# {shown(line)}\n" for line in text.splitlines())
