"""The omap of an object, in bounded reads. Always read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.collect.ceph.connection import Cluster

    Handle = Any  # rados.Ioctx: the bindings carry no types

PAGE: Final = 1000
_MOST_PAGES: Final = 20


def omap_values(
    cluster: Cluster, context: Handle, name: str, keys: tuple[str, ...]
) -> dict[str, bytes] | None:
    """Return the values of some keys of an object; None if the object does not exist.

    Raises:
        Error: of the binding.
    """
    with cluster.rados.ReadOpCtx() as operation:
        values, _ = context.get_omap_vals_by_keys(operation, keys)
        try:
            context.operate_read_op(operation, name)
        except cluster.rados.ObjectNotFound:
            return None
        return {str(key): value for key, value in values}


def omap_entries(
    cluster: Cluster, context: Handle, name: str, prefix: str, *, most_pages: int = _MOST_PAGES
) -> Iterator[tuple[str, bytes]]:
    """Yield the keys with a prefix and their values, page by page; nothing without the object.

    Args:
        cluster: the connection.
        context: of the pool.
        name: of the object.
        prefix: of the keys, which must be UTF-8.
        most_pages: the number of pages of 1,000 keys after which the rest is left out.

    Raises:
        Error: of the binding.
    """
    last = ""
    for _ in range(most_pages):
        with cluster.rados.ReadOpCtx() as operation:
            entries, _ = context.get_omap_vals(operation, last, prefix, PAGE)
            try:
                context.operate_read_op(operation, name)
            except cluster.rados.ObjectNotFound:
                return
            page = [(str(key), value) for key, value in entries]
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1][0]
