"""Ceph: an image's header, its watchers and lockers, the blocklist. Read-only, always.

An image that is opened read-only gets no watch and no lock from us: a watch of ours would make
ceph-csi refuse to stage. librados waits for ever by default, so every call has a time limit, and
what still hangs is left behind in a daemon thread and reported as not observed.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import math
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from rbdagent.errors import ParseError, SourceError
from rbdagent.model import (
    BlocklistEntry,
    CephView,
    CheckResult,
    CheckState,
    ClusterView,
    EntityAddress,
    Gap,
    ImageIdentity,
    ImagePresence,
    ImageSpec,
    ImageView,
    Locker,
    NotObserved,
    ServiceAddress,
    Source,
    SourceState,
    Watcher,
)
from rbdagent.observe.together import all_of
from rbdagent.parse.address import (
    parse_address,
    parse_address_vector,
    parse_blocklist_entry,
    parse_client,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Handle = Any  # rados.Ioctx or rbd.Image: the bindings carry no types

_T = TypeVar("_T")

CAPS: Final = "mon 'profile rbd-read-only' osd 'profile rbd-read-only'"
"""Enough to list watchers and the blocklist; mon ``profile rbd`` could blocklist others."""

_SECOND_LOOK_S: Final = 0.3
"""ceph-csi's own in-use check shows as a watcher for some 0.15 s (recorded)."""

_MANY_IMAGES: Final = 8
"""From here on one ``dump_watchers`` an OSD is cheaper than opening the images."""

_NEAR_NAMES: Final = 3
_MOST_NAMES: Final = 2000

_METADATA_KEYS: Final = (
    "csi.ceph.com/cluster/name",
    "csi.storage.k8s.io/pv/name",
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
)
# librbd's feature bits (src/include/rbd/features.h).
_FEATURES: Final = (
    "layering",
    "striping",
    "exclusive-lock",
    "object-map",
    "fast-diff",
    "deep-flatten",
    "journaling",
    "data-pool",
    "operations",
    "migrating",
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CephAccess:
    """How to reach one cluster."""

    name: str
    conf: Path
    client_id: str
    """``rbdagent`` of ``client.rbdagent``."""
    keyring: Path | None
    """None: librados looks where it always does."""
    timeout_s: float


def observe_ceph(
    clusters: Sequence[CephAccess],
    images: Sequence[ImageIdentity],
    *,
    deadline_s: float,
    known: frozenset[EntityAddress] = frozenset(),
) -> tuple[CephView | None, Source]:
    """Ask every cluster that may have the images, all of them at once.

    Args:
        clusters: those that were configured.
        images: an identity without fsid is sought in every cluster.
        deadline_s: seconds from now; what has not answered by then is not observed.
        known: addresses of clients whose mappings were seen. Any other watcher is looked at twice,
            a moment apart: somebody's short read-write open is no holder.

    Returns:
        The view and the state of the source: failed only where every cluster failed.
    """
    try:
        _bindings()
    except SourceError as error:
        return None, Source(state=SourceState.FAILED, reason=str(error), cure=error.cure)
    deadline = time.monotonic() + deadline_s
    calls = [
        lambda access=access: _observe_cluster(access, images, deadline, known)
        for access in clusters
    ]
    answers = all_of(calls, deadline)
    views = tuple(
        answer if isinstance(answer, ClusterView) else _failed(access, answer)
        for access, answer in zip(clusters, answers, strict=True)
    )
    return CephView(clusters=views), _source(views)


def _failed(access: CephAccess, error: BaseException | None) -> ClusterView:
    if error is None:
        reason, cure = f"{access.name}: no answer in time", _reach_cure(access)
    elif isinstance(error, SourceError):
        reason, cure = str(error), error.cure
    elif isinstance(error, ParseError):
        reason, cure = f"{access.name}: {error}", ""
    else:
        raise error
    source = Source(state=SourceState.FAILED, reason=reason, cure=cure)
    missing = NotObserved(reason=reason, cure=cure)
    return ClusterView(
        name=access.name, source=source, blocklist=missing, services=missing, pools=missing
    )


def _source(views: Sequence[ClusterView]) -> Source:
    failed = [each for each in views if each.source.state is SourceState.FAILED]
    if views and len(failed) == len(views):
        first = failed[0].source
        return replace(first, reason="; ".join(each.source.reason for each in failed))
    gaps = [
        Gap(fact=f"cluster {each.name}", reason=each.source.reason, cure=each.source.cure)
        for each in failed
    ]
    gaps += [gap for each in views if each not in failed for gap in each.source.gaps]
    return Source(state=SourceState.OBSERVED, gaps=tuple(gaps))


def _bindings() -> tuple[Any, Any]:
    try:
        import rados
        import rbd
    except ImportError as error:
        raise SourceError(
            f"Ceph's Python bindings are missing ({error.name or error})",
            cure="apt install python3-rados python3-rbd (dnf has the same names), and make the "
            "virtual environment with --system-site-packages",
        ) from error
    return rados, rbd


# --------------------------------------------------------------------------------------------------
# One cluster
# --------------------------------------------------------------------------------------------------


class _Cluster:
    """One connection."""

    def __init__(self, access: CephAccess) -> None:
        self.access = access
        self._rados, self._rbd = _bindings()
        # Whole seconds: librados 16.2 refuses fractions.
        limit = str(math.ceil(access.timeout_s))
        settings = {
            "admin_socket": "",
            "log_file": "",
            "log_to_stderr": "false",
            "err_to_stderr": "false",
            "client_mount_timeout": limit,
            "rados_mon_op_timeout": limit,
            "rados_osd_op_timeout": limit,
        }
        if access.keyring is not None:
            settings["keyring"] = str(access.keyring)
        self._check_files()
        try:
            self._handle = self._rados.Rados(
                conffile=str(access.conf), rados_id=access.client_id, conf=settings
            )
            self._handle.connect()
        except self._rados.Error as error:
            raise self._not_connected(error) from error
        self.fsid: str = self._handle.get_fsid()

    def _check_files(self) -> None:
        """Librados says "No such file" without a name: look first."""
        for path, flag in (
            (self.access.conf, "--ceph-conf"),
            (self.access.keyring, "--ceph-keyring"),
        ):
            if path is None:
                continue
            try:
                with path.open("rb"):
                    pass
            except OSError as error:
                raise SourceError(
                    f"{self.access.name}: cannot read {path}: {error.strerror}",
                    cure=f"pass {flag}, or use --no-ceph to look away on purpose",
                ) from error

    def _not_connected(self, error: Exception) -> SourceError:
        who = f"{self.access.name}: client.{self.access.client_id}"
        if abs(getattr(error, "errno", None) or 0) in {errno.EPERM, errno.EACCES}:
            return SourceError(
                f"{who} was refused: its key is wrong, or there is no such user",
                cure=f"ceph auth get-or-create client.{self.access.client_id} {CAPS}",
            )
        if isinstance(error, self._rados.ObjectNotFound):
            return SourceError(
                f"{who} has no keyring that librados could find",
                cure="pass --ceph-keyring, or write the key to "
                f"/etc/ceph/ceph.client.{self.access.client_id}.keyring",
            )
        if isinstance(error, self._rados.TimedOut):
            return SourceError(
                f"{who}: no monitor answered within {self.access.timeout_s:g} s",
                cure=_reach_cure(self.access),
            )
        return SourceError(f"{who}: cannot connect: {error}", cure=_reach_cure(self.access))

    def close(self) -> None:
        self._handle.shutdown()

    def monitor(self, prefix: str) -> Any:  # noqa: ANN401 - whatever the command answers
        """Ask the monitors; the answer is JSON, of some commands several values in a row.

        Raises:
            SourceError: refused, or no answer in time.
        """
        command = json.dumps({"prefix": prefix, "format": "json"})
        code, output, status = self._handle.mon_command(command, b"", timeout=self.access.timeout_s)
        if code != 0:
            raise SourceError(
                f"{self.access.name}: {prefix!r} failed: {status or _errno_text(code)}",
                cure=f"ceph auth caps client.{self.access.client_id} {CAPS}",
            )
        return json.JSONDecoder().raw_decode(output.decode())[0]

    def monitor_or_gap(
        self, prefix: str, read: Callable[[Any], _T], *, cure: str | None = None
    ) -> _T | NotObserved:
        """Ask the monitors; a refusal is not observed."""
        try:
            return read(self.monitor(prefix))
        except (SourceError, ParseError) as error:
            return NotObserved(reason=str(error), cure=error.hint if cure is None else cure)

    def pool(self, image: ImageIdentity) -> Any | None:  # noqa: ANN401 - rados.Ioctx
        """Open the image's pool and namespace; None where this cluster has no such pool."""
        try:
            if image.pool_id is not None:
                context = self._handle.open_ioctx2(image.pool_id)
                if image.spec.pool and context.get_pool_name() != image.spec.pool:
                    return None
            else:
                context = self._handle.open_ioctx(image.spec.pool)
        except self._rados.ObjectNotFound:
            return None
        context.set_namespace(image.spec.namespace)
        return context

    def dump_watchers(self) -> tuple[dict[str, Any], ...] | NotObserved:
        """Ask every OSD for all its watches in one call each; needs osd caps ``allow *``."""
        try:
            osds = cast("list[int]", self.monitor("osd ls"))
        except SourceError as error:
            return NotObserved(reason=str(error), cure=error.cure)
        command = json.dumps({"prefix": "dump_watchers", "format": "json"})
        found: list[dict[str, Any]] = []
        for osd in osds:
            code, output, status = self._handle.osd_command(
                osd, command, b"", timeout=self.access.timeout_s
            )
            if code != 0:
                return NotObserved(
                    reason=f"dump_watchers of osd.{osd}: {status or _errno_text(code)}",
                    cure="osd caps 'allow *' would allow it; single images are asked instead",
                )
            found += json.loads(output)
        return tuple(found)

    @property
    def rados(self) -> Any:  # noqa: ANN401 - the module
        return self._rados

    @property
    def rbd(self) -> Any:  # noqa: ANN401 - the module
        return self._rbd


def _errno_text(code: int) -> str:
    import os

    return os.strerror(abs(code))


def _reach_cure(access: CephAccess) -> str:
    return (
        f"ceph -c {access.conf} -n client.{access.client_id} --connect-timeout 5 fsid "
        "shows whether the monitors can be reached"
    )


def _observe_cluster(
    access: CephAccess,
    images: Sequence[ImageIdentity],
    deadline: float,
    known: frozenset[EntityAddress],
) -> ClusterView:
    cluster = _Cluster(access)
    ours = [each for each in images if each.fsid in (None, cluster.fsid)]
    dumped = cluster.dump_watchers() if len(ours) >= _MANY_IMAGES else None
    calls: list[Callable[[], object]] = [
        lambda: cluster.monitor_or_gap("osd blocklist ls", _blocklist),
        lambda: cluster.monitor_or_gap("osd lspools", _pools),
        lambda: cluster.monitor_or_gap("mgr dump", _managers, cure="mon caps 'allow r'"),
    ]
    if isinstance(dumped, tuple):
        calls += [
            lambda image=image: _image_of_dump(cluster, image, dumped)  # type: ignore[misc]
            for image in ours
        ]
    else:
        calls += [lambda image=image: _image(cluster, image, known) for image in ours]  # type: ignore[misc]
    answers = all_of(calls, deadline)
    blocklist, pools, services = (_value(each, access) for each in answers[:3])
    views = [
        _view_or_gap(image, answer, cluster)
        for image, answer in zip(ours, answers[3:], strict=True)
    ]
    there = tuple(each for each in views if each is not None)
    if all(each is not None for each in answers):
        cluster.close()
    view = ClusterView(
        name=access.name,
        source=Source(state=SourceState.OBSERVED),
        fsid=cluster.fsid,
        images=there,
        blocklist=cast("tuple[BlocklistEntry, ...] | NotObserved", blocklist),
        services=cast("tuple[ServiceAddress, ...] | NotObserved", services),
        pools=cast("tuple[tuple[int, str], ...] | NotObserved", pools),
    )
    return replace(view, source=replace(view.source, gaps=_gaps(view)))


def _value(answer: object, access: CephAccess) -> object:
    if answer is None:
        return NotObserved(reason=f"{access.name}: no answer in time", cure=_reach_cure(access))
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _gaps(view: ClusterView) -> tuple[Gap, ...]:
    gaps = []
    if isinstance(view.blocklist, NotObserved):
        gaps.append(
            Gap(fact="the blocklist", reason=view.blocklist.reason, cure=view.blocklist.cure)
        )
    gaps += [
        Gap(
            fact=f"watchers of {image.spec}",
            reason=image.watchers.reason,
            cure=image.watchers.cure,
        )
        for image in view.images
        if isinstance(image.watchers, NotObserved)
    ]
    return tuple(gaps)


def _blocklist(answer: object) -> tuple[BlocklistEntry, ...]:
    return tuple(
        parse_blocklist_entry(each["addr"], until=each.get("until", ""), where="osd blocklist ls")
        for each in cast("list[dict[str, str]]", answer)
    )


def _pools(answer: object) -> tuple[tuple[int, str], ...]:
    pools = cast("list[dict[str, Any]]", answer)
    return tuple((int(each["poolnum"]), str(each["poolname"])) for each in pools)


def _managers(answer: object) -> tuple[ServiceAddress, ...]:
    """Read the active mgr's clients: its rbd_support module watches images under way."""
    data = cast("dict[str, Any]", answer)
    name = str(data.get("active_name", ""))
    found = []
    for client in data.get("active_clients") or ():
        for each in client.get("addrvec") or ():
            address = parse_address(f"{each['addr']}/{each['nonce']}", where="mgr dump")
            found.append(ServiceAddress(kind="mgr", name=name, address=address))
    return tuple(found)


# --------------------------------------------------------------------------------------------------
# One image
# --------------------------------------------------------------------------------------------------


def _view_or_gap(image: ImageIdentity, answer: object, cluster: _Cluster) -> ImageView | None:
    """Give the view; one that hung or was refused is there, and says that it was not observed."""
    if isinstance(answer, ImageView):
        return answer
    if answer is None:
        missing = NotObserved(
            reason=f"{image.spec}: no answer in time",
            cure="ceph health detail shows placement groups and OSDs that are down",
        )
    elif isinstance(answer, _NoPoolError):
        return None
    elif isinstance(answer, SourceError):
        missing = NotObserved(reason=str(answer), cure=answer.cure)
    elif isinstance(answer, BaseException):
        raise answer
    return ImageView(
        spec=image.spec,
        fsid=cluster.fsid,
        presence=missing,
        image_id=image.image_id,
        pool_id=image.pool_id,
        watchers=missing,
        lockers=missing,
        metadata=missing,
        mirrored=missing,
    )


class _NoPoolError(SourceError):
    """The cluster has no pool of that name: it cannot have the image."""


def _image(cluster: _Cluster, image: ImageIdentity, known: frozenset[EntityAddress]) -> ImageView:
    context = cluster.pool(image)
    if context is None:
        raise _NoPoolError(f"{cluster.access.name}: no pool {image.spec.pool or image.pool_id}")
    try:
        opened, presence, spec = _open(cluster, context, image)
        if opened is None:
            return ImageView(
                spec=spec,
                fsid=cluster.fsid,
                presence=ImagePresence.GONE,
                image_id=image.image_id,
                pool_id=context.get_pool_id(),
            )
        with opened:
            return _facts(cluster, opened, context, spec, presence, known)
    except (cluster.rbd.Error, cluster.rados.Error) as error:
        raise _image_error(cluster, image.spec, error) from error


def _open(
    cluster: _Cluster,
    context: Handle,
    image: ImageIdentity,
) -> tuple[Any | None, ImagePresence, ImageSpec]:
    """Open by name, else by id: an image in the trash, or renamed, keeps its id."""
    rbd = cluster.rbd
    spec = replace(image.spec, pool=context.get_pool_name())
    for name in dict.fromkeys((spec.name, _journaled_name(cluster, context, spec.name))):
        if name is None:
            continue
        with contextlib.suppress(rbd.ImageNotFound):
            opened = rbd.Image(context, name, read_only=True)
            return opened, ImagePresence.PRESENT, replace(spec, name=name)
    if image.image_id is None:
        return None, ImagePresence.GONE, spec
    try:
        opened = rbd.Image(context, image_id=image.image_id, read_only=True)
    except rbd.ImageNotFound:
        return None, ImagePresence.GONE, spec
    try:
        rbd.RBD().trash_get(context, image.image_id)
    except rbd.ImageNotFound:
        return opened, ImagePresence.PRESENT, replace(spec, name=opened.get_name())
    return opened, ImagePresence.TRASH, spec


def _journaled_name(cluster: _Cluster, context: Handle, name: str) -> str | None:
    """Give the name that ceph-csi's journal has for a volume: its prefix is configurable.

    Object ``csi.volume.<uuid>``, omap key ``csi.imagename`` (ceph-csi, internal/journal).
    """
    uuid = _UUID.search(name)
    if uuid is None:
        return None
    try:
        with cluster.rados.ReadOpCtx() as operation:
            values, _ = context.get_omap_vals_by_keys(operation, ("csi.imagename",))
            context.operate_read_op(operation, f"csi.volume.{uuid[0]}")
            return next((value.decode() for _, value in values), None)
    except cluster.rados.Error:
        return None


def _facts(
    cluster: _Cluster,
    opened: Handle,
    context: Handle,
    spec: ImageSpec,
    presence: ImagePresence,
    known: frozenset[EntityAddress],
) -> ImageView:
    old = bool(opened.old_format())
    image_id = None if old else str(opened.id())
    watchers, passing = _watchers(opened, known)
    bits = int(opened.features())
    return ImageView(
        spec=spec,
        fsid=cluster.fsid,
        presence=presence,
        image_id=image_id,
        pool_id=context.get_pool_id(),
        format=1 if old else 2,
        header=f"{spec.name}.rbd" if old else f"rbd_header.{image_id}",
        size_bytes=int(opened.size()),
        features=tuple(name for bit, name in enumerate(_FEATURES) if bits & 1 << bit),
        watchers=watchers,
        passing_watchers=passing,
        lockers=_lockers(opened),
        metadata=_metadata(opened),
        mirrored=_mirrored(cluster, opened),
    )


def _watchers(
    opened: Handle,
    known: frozenset[EntityAddress],
) -> tuple[tuple[Watcher, ...], tuple[Watcher, ...]]:
    """Look once, and again where somebody unknown watches: who is there only once passes by."""
    first = _watchers_now(opened)
    if all(each.address in known for each in first):
        return first, ()
    time.sleep(_SECOND_LOOK_S)
    second = _watchers_now(opened)
    clients = {(each.address, each.client) for each in second}
    before = {(each.address, each.client) for each in first}
    staying = tuple(each for each in second if (each.address, each.client) in before)
    passing = [each for each in first if (each.address, each.client) not in clients]
    passing += [each for each in second if (each.address, each.client) not in before]
    return staying, tuple(passing)


def _watchers_now(opened: Handle) -> tuple[Watcher, ...]:
    found = (
        Watcher(
            address=parse_address(each["addr"], where="a watcher"),
            client=int(each["id"]),
            cookie=int(each["cookie"]),
        )
        for each in opened.watchers_list()
    )
    return tuple(sorted(found, key=lambda each: (each.client, each.cookie)))


def _lockers(opened: Handle) -> tuple[Locker, ...]:
    answer = opened.list_lockers()
    if not answer:
        return ()
    return tuple(
        Locker(
            client=parse_client(client, where="a locker"),
            address=parse_address(address, where="a locker"),
            lock_id=cookie,
            exclusive=bool(answer["exclusive"]),
        )
        for client, cookie, address in answer["lockers"]
    )


def _metadata(opened: Handle) -> tuple[tuple[str, str], ...]:
    """Ask for keys by name: metadata_list of 16.2 misaligns on empty values."""
    found = []
    for key in _METADATA_KEYS:
        with contextlib.suppress(KeyError):
            found.append((key, str(opened.metadata_get(key))))
    return tuple(found)


def _mirrored(cluster: _Cluster, opened: Handle) -> bool | NotObserved:
    try:
        state = opened.mirror_image_get_info()["state"]
    except cluster.rbd.Error as error:
        return NotObserved(reason=f"mirroring: {error}")
    return bool(state == cluster.rbd.RBD_MIRROR_IMAGE_ENABLED)


def _image_error(cluster: _Cluster, spec: ImageSpec, error: Exception) -> SourceError:
    who = f"client.{cluster.access.client_id}"
    number = abs(getattr(error, "errno", None) or 0)
    if number == errno.ETIMEDOUT:
        return SourceError(
            f"{spec}: no answer within {cluster.access.timeout_s:g} s",
            cure="ceph health detail shows placement groups and OSDs that are down",
        )
    if number in {errno.EPERM, errno.EACCES}:
        return SourceError(
            f"{spec}: {who} may not read it",
            cure=f"ceph auth caps {who} {CAPS}",
        )
    return SourceError(f"{spec}: {error}", cure=f"rbd info {spec} may tell more")


def _image_of_dump(
    cluster: _Cluster, image: ImageIdentity, dumped: tuple[dict[str, Any], ...]
) -> ImageView:
    """Give an image's watchers out of all watches; only ids are needed, nothing is opened."""
    if image.image_id is None or image.pool_id is None:
        return _image(cluster, image, frozenset())
    header = f"rbd_header.{image.image_id}"
    watchers = tuple(
        Watcher(
            address=_dumped_address(each["entity_addr_t"]),
            client=int(each["entity_name"]["num"]),
            cookie=int(each["cookie"]),
        )
        for each in dumped
        if each["object"] == header and each.get("namespace", "") == image.spec.namespace
    )
    if not watchers:
        # No watch says nothing about the image itself: it may be gone.
        return _image(cluster, image, frozenset())
    missing = NotObserved(reason="only watches were asked for")
    return ImageView(
        spec=image.spec,
        fsid=cluster.fsid,
        presence=ImagePresence.PRESENT,
        image_id=image.image_id,
        pool_id=image.pool_id,
        header=header,
        watchers=tuple(sorted(watchers, key=lambda each: (each.client, each.cookie))),
        lockers=missing,
        metadata=missing,
        mirrored=missing,
    )


def _dumped_address(data: dict[str, Any]) -> EntityAddress:
    return parse_address_vector(f"{data['addr']}/{data['nonce']}", where="dump_watchers")


# --------------------------------------------------------------------------------------------------
# Near matches and check
# --------------------------------------------------------------------------------------------------


def near_images(
    clusters: Sequence[CephAccess], spec: ImageSpec, *, deadline_s: float
) -> tuple[str, ...]:
    """Give names of images that come close to one that is not there."""

    def names(access: CephAccess) -> list[str]:
        cluster = _Cluster(access)
        context = cluster.pool(ImageIdentity(spec=spec, fsid=None))
        if context is None:
            pools = cluster.monitor_or_gap("osd lspools", _pools)
            known = () if isinstance(pools, NotObserved) else pools
            return [f"{pool}/{spec.name}" for _, pool in known]
        prefix = str(replace(spec, name="x"))[:-1]
        return [prefix + name for name in cluster.rbd.RBD().list(context)[:_MOST_NAMES]]

    calls = [lambda access=access: names(access) for access in clusters]
    answers = all_of(calls, time.monotonic() + deadline_s)
    found = [name for answer in answers if isinstance(answer, list) for name in answer]
    return tuple(difflib.get_close_matches(str(spec), found, n=_NEAR_NAMES, cutoff=0.5))


def check_ceph(access: CephAccess) -> tuple[CheckResult, ...]:
    """Try what rbdagent needs of one cluster: a line each."""

    def line(sentence: str, state: CheckState, detail: str = "", hint: str = "") -> CheckResult:
        return CheckResult(source="ceph", sentence=sentence, state=state, detail=detail, hint=hint)

    deadline = time.monotonic() + access.timeout_s + 1
    answers = f"cluster {access.name} answers client.{access.client_id}"
    cluster = all_of([lambda: _Cluster(access)], deadline)[0]
    if cluster is None:
        return (line(answers, CheckState.FAILED, "no answer in time", _reach_cure(access)),)
    if isinstance(cluster, SourceError):
        return (line(answers, CheckState.FAILED, str(cluster), cluster.cure),)
    if isinstance(cluster, BaseException):
        raise cluster
    results = [line(answers, CheckState.OK, f"fsid {cluster.fsid}")]
    for sentence, prefix, optional in (
        ("the blocklist can be read", "osd blocklist ls", False),
        ("pools can be listed", "osd lspools", False),
        ("the mgr's own clients are known", "mgr dump", True),
    ):
        try:
            cluster.monitor(prefix)
            results.append(line(sentence, CheckState.OK))
        except SourceError as error:
            state = CheckState.WARNING if optional else CheckState.FAILED
            hint = "mon caps 'allow r' beside the profile" if optional else error.cure
            results.append(line(sentence, state, str(error), hint))
    dumped = all_of([cluster.dump_watchers], deadline)[0]
    fast = isinstance(dumped, tuple)
    results.append(
        line(
            "all watches of an OSD can be read at once (faster where many images are asked)",
            CheckState.OK if fast else CheckState.SKIPPED,
            "" if fast else "needs osd caps 'allow *', which rbdagent does not ask for",
        )
    )
    return tuple(results)
