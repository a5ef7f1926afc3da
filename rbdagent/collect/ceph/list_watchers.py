"""Watchers of an object in one operation, through the C++ interface of librados.

An image's watchers are the watchers of its header object. Neither librados' C interface nor the
Python bindings list them. librbd does, but opens the image first, which takes several operations
and a copy of Ceph's whole configuration. ``librados::IoCtx::list_watchers`` is public, and its
name contains the version of its binary interface (``v14_2_0``, ``__cxx11``): every program built
since Ceph 14.2 calls this symbol (src/include/rados/librados_fwd.hpp). If librados does not have
it, rbdagent opens the images.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import TYPE_CHECKING, Any, Final

from rbdagent.model import Watcher
from rbdagent.parse.address import parse_address

if TYPE_CHECKING:
    from pathlib import Path

_LIST_WATCHERS: Final = (
    "_ZN8librados7v14_2_05IoCtx13list_watchers"
    "ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    "PNS2_4listI11obj_watch_tSaISB_EEE"
)
_DELETE: Final = "_ZdlPv"
"""operator delete(void*), which frees the memory that librados allocated for its caller."""


class _String(ctypes.Structure):
    """std::string (libstdc++, __cxx11) as an argument; it may point to any bytes."""

    _fields_ = (("data", c_char_p), ("length", c_size_t), ("local", c_char * 16))


class _Watch(ctypes.Structure):
    """obj_watch_t (rados/rados_types.hpp)."""

    _fields_ = (
        ("address", c_char * 256),
        ("client", c_int64),
        ("cookie", c_uint64),
        ("timeout_s", c_uint32),
    )


class _Node(ctypes.Structure):
    """A node of std::list<obj_watch_t>."""

    _fields_ = (("next", c_void_p), ("previous", c_void_p), ("watch", _Watch))


class _List(ctypes.Structure):
    """std::list (libstdc++, __cxx11): a circular list that includes its head."""

    _fields_ = (("next", c_void_p), ("previous", c_void_p), ("length", c_size_t))


@functools.cache
def _library() -> tuple[Any, Any, Any] | None:
    """Return librados, its list_watchers and operator delete; None if one is missing."""
    try:
        rados = ctypes.CDLL("librados.so.2")
        listed, delete = rados[_LIST_WATCHERS], ctypes.CDLL("libstdc++.so.6")[_DELETE]
    except (OSError, AttributeError):
        return None
    listed.argtypes = [POINTER(c_void_p), POINTER(_String), POINTER(_List)]
    listed.restype = c_int
    delete.argtypes, delete.restype = [c_void_p], None
    rados.rados_ioctx_create2.argtypes = [c_void_p, c_int64, POINTER(c_void_p)]
    rados.rados_ioctx_set_namespace.argtypes = [c_void_p, c_char_p]
    rados.rados_ioctx_set_namespace.restype = None
    return rados, listed, delete


class Watches:
    """A connection that lists watches, open until the process ends; several threads may use it."""

    def __init__(self, conf: Path, client_id: str, settings: dict[str, str]) -> None:
        """Connect.

        Args:
            conf: the cluster's ceph.conf.
            client_id: ``rbdagent`` for ``client.rbdagent``.
            settings: options of Ceph that override its configuration file.

        Raises:
            OSError: refused, or no answer in time.
            NotImplementedError: this librados has no such interface.
        """
        library = _library()
        if library is None:
            raise NotImplementedError(f"this librados has no {_LIST_WATCHERS}")
        self._rados, self._list, self._delete = library
        self._pools: dict[tuple[int, str], c_void_p] = {}
        self._opening = threading.Lock()
        self._cluster = c_void_p()
        rados = self._rados
        _checked(rados.rados_create(byref(self._cluster), client_id.encode()))
        _checked(rados.rados_conf_read_file(self._cluster, os.fsencode(conf)))
        for name, value in settings.items():
            _checked(rados.rados_conf_set(self._cluster, name.encode(), value.encode()))
        _checked(rados.rados_connect(self._cluster))

    def of(self, pool_id: int, namespace: str, name: str) -> tuple[Watcher, ...]:
        """Return the watchers of an object.

        Raises:
            OSError: refused, the object does not exist, or no answer in time.
        """
        pool = self._pool(pool_id, namespace)
        object_name = name.encode()
        found = _List()
        # An empty list; a failed call leaves it empty.
        head = ctypes.addressof(found)
        found.next = found.previous = head
        code = self._list(byref(pool), byref(_String(object_name, len(object_name))), byref(found))
        watches, at = [], found.next
        while at != head:
            node = _Node.from_address(at)
            watches.append(_Watch.from_buffer_copy(node.watch))
            at, done = node.next, at
            self._delete(done)
        _checked(code)
        return tuple(_watcher(watch) for watch in watches)

    def _pool(self, pool_id: int, namespace: str) -> c_void_p:
        with self._opening:
            if (pool_id, namespace) not in self._pools:
                pool = c_void_p()
                _checked(self._rados.rados_ioctx_create2(self._cluster, pool_id, byref(pool)))
                self._rados.rados_ioctx_set_namespace(pool, namespace.encode())
                self._pools[pool_id, namespace] = pool
            return self._pools[pool_id, namespace]


def _watcher(watch: _Watch) -> Watcher:
    return Watcher(
        address=parse_address(watch.address.decode(errors="backslashreplace"), where="a watcher"),
        client=watch.client,
        cookie=watch.cookie,
    )


def _checked(code: int) -> None:
    if code < 0:
        raise OSError(-code, os.strerror(-code))
