"""The steps of an unmap run in the host's namespaces, regardless of the caller's namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.install import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

_SHOW = """
import subprocess, sys
from pathlib import Path
from rbdagent.unmap.writer import NodePaths, _on_host
host = Path(sys.argv[1])
paths = NodePaths(host_root=host, sysfs=host / "sys", procfs=host / "proc")
command = _on_host(paths, "readlink", "/proc/self/ns/mnt", "/proc/self/ns/ipc")
subprocess.run(command, check=True)
"""


@pytest.mark.parametrize("of_its_own", [(), ("--mount",), ("--mount", "--ipc")])
def test_umount_and_cryptsetup_run_in_the_hosts_namespaces(
    tmp_path: Path, of_its_own: tuple[str, ...]
) -> None:
    """This test process is the host's process 1."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "1").symlink_to(f"/proc/{os.getpid()}")
    seen = subprocess.run(
        ["unshare", *of_its_own, sys.executable, "-c", _SHOW, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
    )
    hosts = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "ipc")]
    assert seen.stdout.split() == hosts
