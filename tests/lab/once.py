"""Expensive directories of the cache: each is made once, and visible only when complete."""

from __future__ import annotations

import fcntl
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_STAMP = "made-from"


def made_once(target: Path, key: str, make: Callable[[Path], None]) -> Path:
    """Return ``target``, made by ``make`` unless it was made from the same ``key`` before.

    One process makes it, the others wait. If that process is killed, ``target`` stays as it was,
    and the next process removes the unfinished work.

    Args:
        target: the directory.
        key: identifies what it is made from.
        make: fills an empty directory, which is renamed to ``target`` when it returns.
    """
    if is_made(target, key):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(target, key):
            new = target.with_name(f"{target.name}.new")
            _remove(new)
            new.mkdir()
            make(new)
            (new / _STAMP).write_text(key)
            _remove(target)
            new.rename(target)
    return target


def is_made(target: Path, key: str) -> bool:
    """Return whether ``target`` is complete and was made from ``key``."""
    stamp = target / _STAMP
    return stamp.exists() and stamp.read_text() == key


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
