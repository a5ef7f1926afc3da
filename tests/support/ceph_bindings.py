"""Ceph's Python bindings without Ceph: as strict about the types of arguments as Cython 3.

Cython 3 enforces an annotation that names a built-in type: the value must have exactly this type,
and may be None only if the annotation is Optional. Cython 0.29, which built the bindings of Ceph
16, enforces none. The signatures are those that python3-rados and python3-rbd 18.2.7 and 20.2.4 of
Debian embed (``embedsignature``, src/pybind/rados/rados.pyx); rbd.pyx has no annotations.
"""

# ruff: noqa: ANN401, ARG002 - the bindings carry no types, and a stub has their parameters all

from __future__ import annotations

import errno
import functools
import inspect
import itertools
import json
import struct
import sys
import typing
import warnings
from types import ModuleType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    Answer = bytes | int | Exception
    """The output of a command, the code that it fails with, or the exception of the binding."""

_F = TypeVar("_F", bound="Callable[..., Any]")

FSID: Final = "7d112cea-dc64-4604-876a-0d7dcec17d1a"


def typed(function: _F) -> _F:
    """Wrap a function so that it refuses arguments as Cython 3 does."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        wanted = typing.get_type_hints(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            _check(name, value, wanted.get(name))
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _check(name: str, value: object, annotation: Any) -> None:
    if isinstance(annotation, UnionType):
        kinds = [kind for kind in annotation.__args__ if kind is not type(None)]
        if value is None or len(kinds) > 1:
            # Cython does not check a union of several types.
            return
        (annotation,) = kinds
    if annotation in {int, str, bytes, dict} and type(value) is not annotation:
        msg = (
            f"Argument '{name}' has incorrect type "
            f"(expected {annotation.__name__}, got {type(value).__name__})"
        )
        raise TypeError(msg)


class Error(Exception):
    """The form that ``rados.Error`` and ``rbd.Error`` share, although they are two classes."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno

    def __str__(self) -> str:
        return super().__str__() if self.errno is None else f"[errno {self.errno}] {self.args[0]}"


class RadosError(Error):
    pass


class ObjectNotFound(RadosError):  # noqa: N818 - the bindings' own name
    pass


class TimedOut(RadosError):  # noqa: N818 - the bindings' own name
    pass


class RbdError(Error):
    pass


class ImageNotFound(RbdError):  # noqa: N818 - the bindings' own name
    pass


class FakeImage(Struct, kw_only=True):
    """One image of the cluster."""

    image_id: str
    name: str | bytes
    """Bytes need not be UTF-8."""
    pool_id: int = 1
    watchers: tuple[tuple[str, int, int], ...] = ()
    """Address, client and cookie."""
    in_trash: bool = False
    error: Exception | None = None
    """The exception that opening it raises."""
    removed_after_open: Literal["", "deleted", "in the trash"] = ""
    """What happens to it between the first time that it is opened and the first read."""
    lockers: tuple[tuple[bytes, bytes, bytes], ...] = ()
    """Client, name and address."""
    metadata: dict[str, bytes] = {}
    snapshots: tuple[tuple[int, bytes], ...] = ()
    """Id and name."""
    trash_source: int = 0
    """Who moved it to the trash: 0 is a user."""
    trashed: tuple[int, int] = (0, 0)
    """Since when, and until when, it is in the trash, in seconds."""
    namespace: str = ""
    children: tuple[dict[str, Any], ...] | Exception = ()
    parent: dict[str, str] | None = None
    is_primary: bool | None = None
    """None if it is not mirrored."""
    features: int = 1


class FakeCeph(Struct, kw_only=True):
    """A cluster with its contents, and the errors that it returns on request."""

    pools: dict[int, str | bytes]
    images: tuple[FakeImage, ...] = ()
    answers: dict[str, Answer]
    """From the prefix of a command to its answer; the monitors do not know any other command."""
    address: str = "10.77.0.11:0/2632773861"
    """The address of the client itself."""
    connect: dict[str, Exception] = {}
    """From a user to the exception that a connection as that user raises."""
    tasks: tuple[bytes, ...] | Exception | None = None
    """The queue of the mgr, oldest first; None if no task was ever added."""
    asked: list[str]
    objects: dict[str, dict[str, bytes] | Exception] = {}
    """From the name of an object to its omap, or to the exception that reading it raises."""
    namespaces: tuple[str, ...] | Exception = ()
    """The RADOS namespaces of each pool."""

    def answer(self, command: str) -> tuple[int, bytes, str]:
        prefix = json.loads(command)["prefix"]
        self.asked.append(prefix)
        found = self.answers.get(prefix, -errno.EINVAL)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            return found, b"", "command not known" if found == -errno.EINVAL else ""
        return 0, found, ""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Make ``import rados`` and ``import rbd`` find this cluster."""
        rados: Any = ModuleType("rados")
        rados.Rados = type("Rados", (Rados,), {"cluster": self})
        rados.ReadOpCtx, rados.Error = ReadOpCtx, RadosError
        rados.ObjectNotFound, rados.TimedOut = ObjectNotFound, TimedOut
        rbd: Any = ModuleType("rbd")
        rbd.Image, rbd.RBD = Image, RBD
        rbd.Error, rbd.ImageNotFound = RbdError, ImageNotFound
        rbd.RBD_MIRROR_IMAGE_DISABLED = 2
        monkeypatch.setitem(sys.modules, "rados", rados)
        monkeypatch.setitem(sys.modules, "rbd", rbd)
        # There is no librados either whose C++ symbol can be called.
        monkeypatch.setattr("rbdagent.collect.ceph.list_watchers._library", lambda: None)
        return self


def ceph(*images: FakeImage, **changes: Any) -> FakeCeph:
    """Return a healthy cluster: one pool, these images, an empty blocklist."""
    answers: dict[str, Answer] = {
        "osd blocklist ls": b"[][]",
        "osd lspools": b'[{"poolnum":1,"poolname":"k8s"}]\n',
        "osd ls": b"[0]\n",
        "osd pool application get": b'{"k8s":{"rbd":{}},".mgr":{"mgr":{}}}\n',
        "mgr dump": b'{"active_name":"x","active_clients":[]}\n',
        "mon dump": b'{"mons":[]}\n',
        "health": b'{"status":"HEALTH_OK","checks":{},"mutes":[]}\n',
        "dump_watchers": -errno.EACCES,
    }
    answers.update(changes.pop("answers", {}))
    return FakeCeph(pools={1: "k8s"}, images=images, answers=answers, asked=[], **changes)


def decode_cstr(name: str | bytes) -> str:
    """Decode a name strictly, as both bindings do."""
    return name if isinstance(name, str) else name.decode()


def cstr(name: str | bytes) -> bytes:
    """Encode a name as the bindings do; bytes stay as they are."""
    return name if isinstance(name, bytes) else name.encode()


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises the error for any arguments."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


class ReadOp:
    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.oid = ""
        self.found: list[tuple[str, bytes]] = []


class ReadOpCtx:
    def __enter__(self) -> ReadOp:
        return ReadOp()

    def __exit__(self, *_: object) -> None:
        pass


class Completion:
    def __init__(self, code: int) -> None:
        self.code = code

    def get_return_value(self) -> int:
        return self.code

    def call(
        self, oncomplete: Callable[[Completion, bytes | None], None], content: bytes | None
    ) -> Completion:
        oncomplete(self, content)
        return self


class Ioctx:
    def __init__(self, cluster: FakeCeph, pool_id: int) -> None:
        self.cluster = cluster
        self.pool_id = pool_id
        self.namespace = ""

    @property
    def images(self) -> tuple[FakeImage, ...]:
        return tuple(
            image
            for image in self.cluster.images
            if (image.pool_id, image.namespace) == (self.pool_id, self.namespace)
        )

    def get_pool_name(self) -> str:
        return decode_cstr(self.cluster.pools[self.pool_id])

    def get_pool_id(self) -> int:
        return self.pool_id

    @typed
    def set_namespace(self, nspace: str) -> None:
        self.namespace = nspace

    @typed
    def aio_read(
        self,
        object_name: str,
        length: int,
        offset: int,
        oncomplete: Any,
    ) -> Completion:
        for image in self.images:
            if cstr(object_name) == b"rbd_id." + cstr(image.name) and not image.in_trash:
                encoded = image.image_id.encode()
                content = len(encoded).to_bytes(4, "little") + encoded
                return Completion(len(content)).call(oncomplete, content[offset : offset + length])
        return Completion(-errno.ENOENT).call(oncomplete, None)

    def get_omap_vals_by_keys(
        self, read_op: ReadOp, keys: tuple[str, ...]
    ) -> tuple[Iterator[tuple[str, bytes]], int]:
        read_op.keys = keys
        return iter(read_op.found), 0

    @typed
    def get_omap_vals(
        self, read_op: ReadOp, start_after: str, filter_prefix: str, max_return: int
    ) -> Any:
        entries = (
            entry
            for entry in self._omap_of(read_op)
            if entry[0] > start_after and entry[0].startswith(filter_prefix)
        )
        return itertools.islice(entries, max_return), 0

    def _omap_of(self, read_op: ReadOp) -> Iterator[tuple[str, bytes]]:
        """Yield the omap of the object, which is known once the operation has run."""
        if read_op.oid == "rbd_task":
            tasks = self.cluster.tasks
            for number, task in enumerate(tasks if isinstance(tasks, tuple) else (), start=1):
                yield f"{number:016X}", task
            return
        for image in sorted(self.images, key=lambda image: image.image_id):
            name = cstr(image.name)
            if image.in_trash and read_op.oid == "rbd_trash":
                entry = struct.pack("<BBIBI", 2, 1, 0, image.trash_source, len(name)) + name
                since, until = image.trashed
                yield f"id_{image.image_id}", entry + struct.pack("<IIIIB", since, 0, until, 0, 0)
            if not image.in_trash and read_op.oid == "rbd_directory":
                yield f"id_{image.image_id}", struct.pack("<I", len(name)) + name

    @typed
    def operate_read_op(self, read_op: ReadOp, oid: str, flag: int = 0) -> None:
        read_op.oid = oid
        if oid == "rbd_task" and isinstance(self.cluster.tasks, Exception):
            raise self.cluster.tasks
        if oid == "rbd_task" and self.cluster.tasks is not None:
            return
        if oid == "rbd_directory" and oid not in self.cluster.objects and self.images:
            return
        trash = {f"id_{image.image_id}": b"" for image in self.images if image.in_trash}
        objects = self.cluster.objects | ({"rbd_trash": trash} if trash else {})
        found = objects.get(oid)
        if found is None:
            raise ObjectNotFound(f"Failed to operate read op for oid {oid}", errno=errno.ENOENT)
        if isinstance(found, Exception):
            raise found
        read_op.found += [(key, found[key]) for key in read_op.keys if key in found]


class Rados:
    cluster: ClassVar[FakeCeph]

    @typed
    def __init__(
        self,
        rados_id: str | None = None,
        name: str | None = None,
        clustername: str | None = None,
        conf_defaults: dict | None = None,  # type: ignore[type-arg]
        conffile: str | int | None = None,
        conf: dict | None = None,  # type: ignore[type-arg]
        flags: int = 0,
        context: object = None,
    ) -> None:
        self._user = rados_id or "admin"

    @typed
    def connect(self, timeout: int = 0) -> None:
        if self._user in self.cluster.connect:
            raise self.cluster.connect[self._user]

    def conf_get(self, option: str) -> str:
        return ""

    def get_fsid(self) -> str:
        return FSID

    def get_addrs(self) -> str:
        return self.cluster.address

    @typed
    def mon_command(
        self, cmd: str, inbuf: bytes, timeout: int = 0, target: str | int | None = None
    ) -> tuple[int, bytes, str]:
        return self.cluster.answer(cmd)

    @typed
    def osd_command(
        self, osdid: int, cmd: str, inbuf: bytes, timeout: int = 0
    ) -> tuple[int, bytes, str]:
        return self.cluster.answer(cmd)

    @typed
    def open_ioctx(self, ioctx_name: str) -> Ioctx:
        for number, pool in self.cluster.pools.items():
            if pool == ioctx_name:
                return Ioctx(self.cluster, number)
        raise ObjectNotFound(f"error opening pool {ioctx_name!r}", errno=errno.ENOENT)

    @typed
    def open_ioctx2(self, pool_id: int) -> Ioctx:
        if pool_id not in self.cluster.pools:
            raise ObjectNotFound(f"error opening pool id {pool_id}", errno=errno.ENOENT)
        return Ioctx(self.cluster, pool_id)


class Image:
    def __init__(
        self,
        ioctx: Ioctx,
        name: str | bytes | None = None,
        snapshot: object = None,
        read_only: bool = False,  # noqa: FBT001, FBT002 - the bindings' own
        image_id: str | None = None,
    ) -> None:
        for image in ioctx.images:
            is_named = name is not None and cstr(image.name) == cstr(name)
            if image.image_id == image_id or (is_named and not image.in_trash):
                if image.error is not None:
                    raise image.error
                self._image = image
                return
        raise ImageNotFound(f"error opening image {name or image_id!r}", errno=errno.ENOENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def id(self) -> str:
        return self._image.image_id

    def get_name(self) -> str:
        return decode_cstr(self._image.name)

    def old_format(self) -> bool:
        return False

    def features(self) -> int:
        return self._image.features

    def size(self) -> int:
        return 64 << 20

    def watchers_list(self) -> Iterator[dict[str, Any]]:
        if self._image.removed_after_open:
            self._image.in_trash = True
            if self._image.removed_after_open == "deleted":
                self._image.image_id = ""
            self._image.removed_after_open = ""
            raise ImageNotFound("RBD image not found (error listing watchers.)", errno=errno.ENOENT)
        for address, client, cookie in self._image.watchers:
            yield {"addr": address, "id": client, "cookie": cookie}

    def list_snaps(self) -> Iterator[dict[str, Any]]:
        for number, name in self._image.snapshots:
            yield {"id": number, "name": decode_cstr(name), "namespace": 0}

    def list_lockers(self) -> list[object] | dict[str, Any]:
        if not self._image.lockers:
            return []
        lockers = [tuple(map(decode_cstr, locker)) for locker in self._image.lockers]
        return {"tag": "", "exclusive": True, "lockers": lockers}

    def metadata_get(self, key: str) -> str:
        return decode_cstr(self._image.metadata[key])

    def metadata_list(self) -> Iterator[tuple[str, str]]:
        for key, value in self._image.metadata.items():
            yield key, decode_cstr(value)

    def mirror_image_get_info(self) -> dict[str, Any]:
        primary = self._image.is_primary
        return {"state": 2 if primary is None else 1, "primary": bool(primary)}

    def get_parent_image_spec(self) -> dict[str, Any]:
        if self._image.parent is not None:
            return self._image.parent
        raise ImageNotFound("error getting parent info", errno=errno.ENOENT)

    def list_children2(self) -> Iterator[dict[str, Any]]:
        if isinstance(self._image.children, Exception):
            raise self._image.children
        yield from self._image.children


class RBD:
    def namespace_list(self, ioctx: Ioctx) -> list[str]:
        if isinstance(ioctx.cluster.namespaces, Exception):
            raise ioctx.cluster.namespaces
        return [*ioctx.cluster.namespaces]

    def trash_get(self, ioctx: Ioctx, image_id: str) -> dict[str, Any]:
        # rbd.pyx of Ceph 18.2 calls datetime.utcfromtimestamp, which Python 3.12 deprecates.
        warnings.warn("datetime.utcfromtimestamp() is deprecated", DeprecationWarning, 2)
        for image in ioctx.images:
            if image.in_trash and image.image_id == image_id:
                return {"id": image_id, "name": image.name}
        raise ImageNotFound(f"error retrieving image {image_id}", errno=errno.ENOENT)

    def list(self, ioctx: Ioctx) -> Iterator[str]:
        return (image["name"] for image in self.list2(ioctx))

    def list2(self, ioctx: Ioctx) -> Iterator[dict[str, str]]:
        for image in ioctx.images:
            if not image.in_trash:
                yield {"name": decode_cstr(image.name), "id": image.image_id}
