"""rbdagent bug-report."""

from __future__ import annotations

import errno
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rbdagent import __version__
from rbdagent.cli.check import flag_origins
from rbdagent.cli.data_source import snapshot_of
from rbdagent.cli.options import FILE, cluster_target, observing
from rbdagent.cli.output import complain, now_utc, print_text, progress
from rbdagent.commands import command as command_of
from rbdagent.commands import line_of
from rbdagent.errors import RbdagentError, UsageError
from rbdagent.model import CollectScope, NotObserved
from rbdagent.parse.shown import in_json, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.collect.kube.own_objects import Found, Log, Own
    from rbdagent.collect.parallel import Awaited
    from rbdagent.config import Settings
    from rbdagent.model import Snapshot
    from rbdagent.report.bug_report import Bundle, Part

_STDOUT: Final = "-"
_COLUMNS: Final = 100
_UNIT: Final = "rbdagent"
_A_DAY: Final = 86400
_MOST_OF_LOG: Final = 512 << 10
_JOURNAL_S: Final = 5.0
_MOST_OF_CONFIG: Final = 64 << 10
_TO_STDOUT: Final = "-o - writes it to stdout: redirect that to a file"


@click.command("bug-report")
@click.option(
    "--output",
    "-o",
    type=FILE,
    metavar="FILE",
    help="The file to write; - is stdout.  [default: rbdagent-bug-report-NODE-TIME.tar.gz]",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@observing
def command(*, output: str | None, overwrite: bool, settings: Callable[[], Settings]) -> int:
    """Write one archive with all that an issue needs.

    It contains a snapshot of the cluster, the output of check and of diagnose -A, the versions,
    rbdagent's own objects in Kubernetes, and the end of the agents' logs. Secrets in it are masked.
    Its file MANIFEST explains each file: read it, and what it lists, before you send the archive.
    A source that cannot be read is named there and on stderr.
    """
    chosen, at = settings(), now_utc()
    path = output or f"rbdagent-bug-report-{_file_name(chosen.node_name)}-{_compact(at)}.tar.gz"
    _check_destination(path, overwrite=overwrite)
    from rbdagent.report.bug_report import bundle

    made = bundle(
        tuple(_parts(chosen)), version=__version__, at=at, node=_file_name(chosen.node_name)
    )
    for reason in dict.fromkeys(reason for _, reason in made.missing):
        names = ", ".join(name for name, why in made.missing if why == reason)
        complain(f"not observed: {names}: {reason}")
    _write(path, made, overwrite=overwrite)
    return 0


def _file_name(node: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in node)


def _compact(at: str) -> str:
    return at.replace("-", "").replace(":", "")


# --------------------------------------------------------------------------------------------------
# The file
# --------------------------------------------------------------------------------------------------


def _check_destination(path: str, *, overwrite: bool) -> None:
    """Check what can be checked before the observation, which takes some seconds."""
    if path == _STDOUT:
        if sys.stdout.isatty():
            raise UsageError("-o - writes an archive, and stdout is a terminal: redirect it")
    elif os.path.lexists(path) and not overwrite:
        raise _exists(path)


def _exists(path: str) -> UsageError:
    return UsageError(f"{path}: exists already", hint="--overwrite replaces it")


def _write(path: str, made: Bundle, *, overwrite: bool) -> None:
    """Write the archive; only its owner may read it.

    Raises:
        UsageError: the file exists.
        RbdagentError: it cannot be written.
    """
    from rbdagent.report.bug_report import DIRECTORY, MANIFEST

    if path == _STDOUT:
        sys.stdout.buffer.write(made.archive)
        sys.stdout.buffer.flush()
        return
    new = os.O_TRUNC if overwrite else os.O_EXCL
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | new
        with open(os.open(path, flags, 0o600), "wb") as file:
            # The mode of a file that existed is not changed by open(2).
            os.fchmod(file.fileno(), 0o600)
            file.write(made.archive)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            Path(path).unlink(missing_ok=True)
        raise RbdagentError(
            f"{path}: cannot be written: {error.strerror}", hint=_TO_STDOUT
        ) from error
    reading = line_of(command_of("tar -xOzf", path, f"{DIRECTORY}/{MANIFEST}"))
    print_text(
        f"{shown(path)} has the bug report ({len(made.archive) >> 10} KiB). Before you send it, "
        f"read what it contains:\n  {reading}\n"
    )


# --------------------------------------------------------------------------------------------------
# The parts
# --------------------------------------------------------------------------------------------------


def _parts(settings: Settings) -> Iterator[Part]:
    """Yield the files in their order; a part that fails does not end the others."""
    from rbdagent.report.bug_report import Part

    snapshot = _snapshot(settings)
    replayed = _replayed(snapshot)
    checks = _checks(settings)
    own = _own(settings)
    yield Part(
        name="versions.json",
        what="Versions of rbdagent, Python, the kernel, the Ceph libraries and Kubernetes.",
        content=_json(_versions(snapshot)),
    )
    yield Part(
        name="check.txt",
        what="What `rbdagent check -v` prints on this node.",
        content=checks if isinstance(checks, NotObserved) else checks.encode(),
    )
    yield Part(
        name="snapshot.json",
        what="What `rbdagent snapshot -A` writes: --from of each verb reads it.",
        content=replayed if isinstance(replayed, NotObserved) else replayed[0],
        note="" if isinstance(snapshot, NotObserved) else _gaps(snapshot),
    )
    yield Part(
        name="diagnose.txt",
        what="What `rbdagent diagnose -A -v` prints from snapshot.json.",
        content=replayed if isinstance(replayed, NotObserved) else _diagnosis(replayed[1]),
    )
    yield Part(
        name="config.toml",
        what="The configuration file that this verb has read.",
        content=_configuration(),
    )
    yield from _objects(own)
    yield from _logs(own)
    yield _journal(settings)


def _failed(error: Exception, subject: str) -> NotObserved:
    from rbdagent.collect.failure import not_observed

    return not_observed(error, subject)


def _json(data: object) -> bytes:
    """Return indented JSON, with the escapes that the outputs of the verbs have."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(data), indent=1).decode()
    return f"{in_json(text)}\n".encode()


def _snapshot(settings: Settings) -> Snapshot | NotObserved:
    target = cluster_target(every=True, namespace=None, selector=None)
    also = CollectScope.LIFECYCLE | CollectScope.EVERYTHING | CollectScope.ALL_REPORTS
    try:
        return snapshot_of(target, None, lambda: settings, also=also)
    except Exception as error:  # noqa: BLE001 - see _parts
        return _failed(error, "the snapshot")


def _gaps(snapshot: Snapshot) -> str:
    """Return which sources failed, for the MANIFEST; stderr has them as well."""
    failed = snapshot.sources.failed
    for name, reason in failed.items():
        complain(f"not observed: snapshot.json: {name}: {reason}")
    return " ".join(f"Not observed: {name}: {shown(reason)}." for name, reason in failed.items())


def _replayed(snapshot: Snapshot | NotObserved) -> tuple[bytes, Snapshot] | NotObserved:
    """Return the redacted snapshot as a file, and as --from reads this file."""
    import msgspec

    from rbdagent.report.redacted import redacted_data
    from rbdagent.report.snapshot import dump_snapshot, load_snapshot

    if isinstance(snapshot, NotObserved):
        return snapshot
    try:
        text = _json(redacted_data(msgspec.json.decode(dump_snapshot(snapshot))))
        return text, load_snapshot(text.decode(), where="snapshot.json")
    except Exception as error:  # noqa: BLE001 - see _parts
        return _failed(error, "snapshot.json")


def _checks(settings: Settings) -> str | NotObserved:
    from rbdagent.preflight import check_all
    from rbdagent.report.text.check import check_lines
    from rbdagent.report.text.layout import Layout

    awaited: Awaited = {}
    try:
        with progress(settings.timeout_s) as show:
            show(awaited)
            results = (*flag_origins(), *check_all(settings, awaited))
        return check_lines(results, Layout(width=_COLUMNS, details=True))
    except Exception as error:  # noqa: BLE001 - see _parts
        return _failed(error, "check")


def _configuration() -> bytes | NotObserved:
    from rbdagent.collect.user_files import read_user_file
    from rbdagent.report.redacted import redacted_text

    path = str(click.get_current_context().meta.get("config", ""))
    try:
        text = read_user_file(Path(path), most=_MOST_OF_CONFIG).decode(errors="replace")
    except OSError as error:
        return NotObserved(reason=f"{path}: {error.strerror or error}")
    return redacted_text(text).encode()


def _diagnosis(snapshot: Snapshot) -> bytes | NotObserved:
    from rbdagent.lifecycle.cluster_report import report_cluster
    from rbdagent.report.text.cluster import affected_table
    from rbdagent.report.text.layout import Layout

    try:
        layout = Layout(width=_COLUMNS, details=True)
        return affected_table(report_cluster(snapshot), snapshot, layout).encode()
    except Exception as error:  # noqa: BLE001 - see _parts
        return _failed(error, "diagnose -A")


def _versions(snapshot: Snapshot | NotObserved) -> dict[str, Any]:
    """Return the versions; what could not be read is an object with the reason."""
    from rbdagent.collect.ceph.keys import installed_version

    kube = None if isinstance(snapshot, NotObserved) else snapshot.kubernetes
    found = (
        snapshot if isinstance(snapshot, NotObserved) else None if kube is None else kube.version
    )
    if found is None:
        found = NotObserved(reason="Kubernetes was not observed")
    return {
        "rbdagent": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cephLibraries": installed_version() or {"notObserved": "librados is not installed"},
        "kubernetes": {"notObserved": found.reason} if isinstance(found, NotObserved) else found,
    }


# --------------------------------------------------------------------------------------------------
# Kubernetes
# --------------------------------------------------------------------------------------------------


def _own(settings: Settings) -> Own:
    from rbdagent.collect.kube.own_objects import read_own, unread

    if settings.kube is None:
        return unread(NotObserved(reason="Kubernetes was not queried, as requested"))
    from rbdagent.collect.kube.connection import Connection

    try:
        return read_own(Connection(settings.kube).api(), settings.node_name)
    except Exception as error:  # noqa: BLE001 - see _parts
        return unread(_failed(error, "Kubernetes"))


def _objects(own: Own) -> Iterator[Part]:
    kinds = (
        ("daemonsets", "The DaemonSets of rbdagent.", own.daemon_sets),
        ("configmaps", "The ConfigMaps that its pods mount.", own.config_maps),
        ("pods", "The pods of its agents.", own.pods),
        ("rbdnodes", "What each agent published about its node.", own.rbd_nodes),
        ("rbdmappings", "What each agent published about its mappings.", own.rbd_mappings),
    )
    for name, what, found in kinds:
        yield _part_of(f"kubernetes/{name}.json", what, found)


def _part_of(name: str, what: str, found: Found) -> Part:
    from rbdagent.report.bug_report import Part
    from rbdagent.report.redacted import redacted_object

    if isinstance(found.items, NotObserved):
        return Part(name=name, what=what, content=found.items)
    items = [redacted_object(item) for item in found.items]
    note = f"Only the first {len(items)}: the limit of a file is reached." if found.is_cut else ""
    return Part(name=name, what=what, content=_json({"items": items}), note=note)


def _logs(own: Own) -> Iterator[Part]:
    from rbdagent.report.bug_report import Part

    what = "The end of the log of an agent"
    if isinstance(own.logs, NotObserved):
        yield Part(name="logs.txt", what=f"{what}.", content=own.logs)
    elif not own.logs:
        none = NotObserved(reason="the API lists no pod of an agent")
        yield Part(name="logs.txt", what=f"{what}.", content=none)
    else:
        for log in own.logs:
            yield _log(log, what)


def _log(log: Log, what: str) -> Part:
    from rbdagent.report.bug_report import Part
    from rbdagent.report.redacted import redacted_text

    run = ".previous" if log.is_previous else ""
    of_run = ", of its container's former run" if log.is_previous else ""
    content = log.content
    if not isinstance(content, NotObserved):
        content = redacted_text(content.decode(errors="replace")).encode()
    return Part(
        name=f"logs/{_file_name(log.pod)}{run}.txt",
        what=f"{what}: pod {log.pod} on {log.node or 'no node'}{of_run}.",
        content=content,
    )


def _journal(settings: Settings) -> Part:
    """Return what the agent of a host installation wrote to the journal."""
    from rbdagent.collect.node.log_sources import read_journal
    from rbdagent.report.bug_report import Part
    from rbdagent.report.redacted import redacted_text

    if settings.roots is None:
        found: bytes | NotObserved = NotObserved(reason="the node was not observed, as requested")
    else:
        found = read_journal(
            settings.roots.host_root, (_UNIT,), age_s=_A_DAY, most=_MOST_OF_LOG, within_s=_JOURNAL_S
        )
    if not isinstance(found, NotObserved):
        found = redacted_text(found.decode(errors="replace")).encode()
    return Part(
        name="logs/journal.txt",
        what=f"The last day of the unit {_UNIT} in this node's journal, at most "
        f"{_MOST_OF_LOG >> 10} KiB; empty if the agent runs in a pod.",
        content=found,
    )
