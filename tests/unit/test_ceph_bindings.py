"""Loading Ceph's bindings, which may be missing, in several threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rbdagent.collect.ceph.connection import rados_module
from rbdagent.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

THREADS = 6
BROKEN = """\
import threading

# The other threads wait for this import when it fails.
threading.Event().wait(0.1)
raise ImportError(name="rados")
"""


def test_every_thread_finds_that_the_bindings_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rados.py").write_text(BROKEN)
    (tmp_path / "rbd.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rados", raising=False)

    def loaded(_: int) -> str:
        try:
            return str(rados_module())
        except SourceError as error:
            return str(error)

    with ThreadPoolExecutor(THREADS) as pool:
        found = set(pool.map(loaded, range(THREADS)))
    assert found == {"Ceph's Python bindings are missing (rados)"}
