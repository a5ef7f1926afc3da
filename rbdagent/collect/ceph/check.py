"""The check of a cluster: whether the caps of the user are sufficient for what rbdagent reads.

Connecting and querying the monitors needs no osd caps, so neither shows that they are missing: an
image of each pool is read.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from rbdagent.collect.ceph.connection import (
    Cluster,
    osd_error,
    reach_cure,
    read_blocklist,
    read_managers,
    read_monitors,
    read_pools,
    silence_cure,
)
from rbdagent.collect.ceph.open_image import BY_ID, DIRECTORY
from rbdagent.collect.failure import not_observed
from rbdagent.collect.parallel import all_of
from rbdagent.commands import command, line_of
from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    BlocklistEntry,
    CheckResult,
    CheckState,
    ClusterView,
    ImageIdentity,
    ImageSpec,
    NotObserved,
    Source,
    SourceState,
    observed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.collect.ceph.access import CephAccess

_MOST_POOLS: Final = 5
"""Maximum of pools that a line of check names."""
APPLICATIONS: Final = "osd pool application get"
"""Command of the monitors; without the name of a pool it answers for all."""


def check_ceph(
    access: CephAccess, *, note: Callable[[ClusterView], None] = lambda _: None
) -> tuple[CheckResult, ...]:
    """Check what rbdagent needs from one cluster; return one result per check.

    Args:
        access: how to query the cluster.
        note: called with the fsid and the monitors of a cluster that answers.
    """

    def line(
        sentence: str, failure: str, state: CheckState, detail: str = "", hint: str = ""
    ) -> CheckResult:
        return CheckResult(
            source="ceph", sentence=sentence, failure=failure, state=state, detail=detail, hint=hint
        )

    deadline = time.monotonic() + access.timeout_s + 1
    answers = (
        f"cluster {access.name} answers client.{access.client_id}",
        f"cluster {access.name} cannot be queried as client.{access.client_id}",
    )
    cluster = all_of([lambda: Cluster(access)], deadline)[0]
    if cluster is None:
        return (line(*answers, CheckState.FAILED, "no answer in time", reach_cure(access)),)
    if isinstance(cluster, BaseException):
        missing = not_observed(cluster, access.name)
        return (line(*answers, CheckState.FAILED, missing.reason, missing.hint),)
    results = [line(*answers, CheckState.OK, f"fsid {cluster.fsid}")]
    note(
        ClusterView(
            name=access.name,
            source=Source(state=SourceState.OBSERVED),
            fsid=cluster.fsid,
            monitors=cluster.monitor_or_gap("mon dump", read_monitors),
        )
    )
    blocked: list[BlocklistEntry | None] = []

    def read_own(values: tuple[object, ...]) -> None:
        blocked.append(cluster.entry_of_own(read_blocklist(values)))

    readers: tuple[tuple[str, str, Callable[[tuple[Any, ...]], object], CheckState], ...] = (
        ("the blocklist can be read", "osd blocklist ls", read_own, CheckState.FAILED),
        ("pools can be listed", "osd lspools", read_pools, CheckState.FAILED),
        ("the clients of the mgr can be listed", "mgr dump", read_managers, CheckState.WARNING),
    )
    for sentence, prefix, read, without in readers:
        found = cluster.monitor_or_gap(prefix, read)
        failure = sentence.replace(" can ", " cannot ")
        if isinstance(found, NotObserved):
            results.append(line(sentence, failure, without, found.reason, found.hint))
        else:
            results.append(line(sentence, failure, CheckState.OK))
    for entry in blocked:
        unlisted = "this node's client is not on the blocklist"
        listed = "this node's client is on the blocklist"
        error = None if entry is None else cluster.refused(access.name, entry)
        state = CheckState.OK if error is None else CheckState.FAILED
        hint = error.hint if error else ""
        results.append(line(unlisted, listed, state, str(error or ""), hint))
    state, detail, hint = _readable_images(cluster)
    results.append(line("images can be read", "images cannot be read", state, detail, hint))
    dumped = all_of([cluster.dump_watchers], deadline)[0]
    fast = isinstance(dumped, tuple)
    results.append(
        line(
            "all watches of an OSD can be read at once (faster for many images)",
            "",
            CheckState.OK if fast else CheckState.SKIPPED,
            "" if fast else "needs osd caps 'allow *', which rbdagent does not require",
        )
    )
    return tuple(results)


def _readable_images(cluster: Cluster) -> tuple[CheckState, str, str]:
    """Read an image of each pool; return state, detail and hint of a line of `check_ceph`.

    The check fails if no pool can be read: caps may be limited to some pools on purpose.
    """
    used = cluster.monitor_or_gap(APPLICATIONS, pools_with_images)
    pools = cluster.monitor_or_gap("osd lspools", read_pools)
    for missing in (used, pools):
        if isinstance(missing, NotObserved):
            return CheckState.WARNING, missing.reason, missing.hint
    wanted = observed_of(used)
    named = sorted((name, number) for number, name in observed_of(pools) if name in wanted)
    if not named:
        return CheckState.SKIPPED, "no pool has the application rbd", ""
    answers = all_of(
        [functools.partial(_read_first_image, cluster, number) for _, number in named],
        time.monotonic() + cluster.access.timeout_s + 1,
    )
    names = [name for name, _ in named]
    unread = [
        (name, answer) for name, answer in zip(names, answers, strict=True) if answer != "read"
    ]
    if not unread:
        return CheckState.OK, f"pools: {_few(names)}", ""
    error = _pool_error(cluster, *unread[0])
    others = f"; also not: {_few([name for name, _ in unread[1:]])}" if unread[1:] else ""
    state = CheckState.FAILED if len(unread) == len(named) else CheckState.WARNING
    return state, f"{error}{others}", error.hint


def _pool_error(cluster: Cluster, pool: str, answer: BaseException | str | None) -> SourceError:
    """Return why no image of a pool was read; the answer is None after the deadline."""
    subject = f"pool {pool}"
    if isinstance(answer, (cluster.rados.Error, cluster.rbd.Error)):
        return osd_error(cluster, subject, answer, line_of(command("rbd ls", pool)))
    if isinstance(answer, BaseException):
        missing = not_observed(answer, subject)
        return SourceError(missing.reason, hint=missing.hint)
    return SourceError(
        f"{subject}: no answer in time",
        hint=silence_cure(cluster),
    )


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_POOLS
    return ", ".join(names[:_MOST_POOLS]) + (f" and {rest} more" if rest > 0 else "")


def pools_with_images(values: tuple[object, ...]) -> tuple[str, ...]:
    """Return the names of the pools that have the application rbd.

    Raises:
        ParseError: the answer has another form.
    """
    try:
        (applications,) = msgspec.convert(values, tuple[dict[str, dict[str, object]]])
    except msgspec.ValidationError as error:
        raise ParseError(
            what="the applications",
            where=APPLICATIONS,
            text=str(error),
            expected="pools, each with its applications",
        ) from error
    return tuple(pool for pool, found in applications.items() if "rbd" in found)


def _read_first_image(cluster: Cluster, pool_id: int) -> Literal["read"]:
    """Read a pool's directory, and the watchers of the first image in it, as an observation does.

    An OSD checks the caps before it searches the object (PrimaryLogPG::do_op): a missing directory
    or image is no error. Images in RADOS namespaces are not read.

    Raises:
        Exception: an error of one of the two bindings.
    """
    pool = ImageIdentity(spec=ImageSpec(pool="", name=""), fsid=None, pool_id=pool_id)
    context = cluster.pool(pool)
    image_id = _first_id(cluster, context) if context is not None else None
    if image_id is not None:
        with (
            contextlib.suppress(cluster.rbd.ImageNotFound),
            cluster.rbd.Image(context, image_id=image_id, read_only=True) as image,
        ):
            list(image.watchers_list())
    return "read"


def _first_id(cluster: Cluster, context: Any) -> str | None:  # noqa: ANN401 - rados.Ioctx
    with cluster.rados.ReadOpCtx() as operation:
        keys, _ = context.get_omap_vals(operation, "", BY_ID, 1)
        try:
            context.operate_read_op(operation, DIRECTORY)
        except cluster.rados.ObjectNotFound:
            return None
        return next((str(key).removeprefix(BY_ID) for key, _ in keys), None)
