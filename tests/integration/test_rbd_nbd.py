"""Which image rbd-nbd itself takes from a command line.

``unmap`` parses its arguments as ``map`` does, prints which image is not mapped, and needs no
cluster: it compares the image with the devices of this machine.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from rbdagent.parse.rbd_nbd import served_image
from tests.lab.install import cache_dir
from tests.lab.parts import chosen_parts
from tests.lab.roots import root_of
from tests.support.rbd_nbd import COMMAND, REFUSED, SERVED, UNKNOWN_OPTIONS, WITHOUT_POOL

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import ImageSpec


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Return a configuration whose monitor does not answer."""
    made = tmp_path / "ceph.conf"
    made.write_text("[global]\nmon_host = 127.0.0.1:1\nclient_mount_timeout = 1\n")
    return made


def said(conf: Path, line: str) -> str:
    """Return what the program prints about an image: that it is not mapped, or refused."""
    words = line.replace(COMMAND, "unmap").split()
    root = root_of(cache_dir(), chosen_parts().ceph)
    done = subprocess.run(
        root.command(["rbd-nbd", "-c", str(conf), *words]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    lines = [said for said in done.stderr.splitlines() if said.startswith("rbd-nbd: ")]
    return lines[-1].removeprefix("rbd-nbd: ") if lines else ""


def printed(image: ImageSpec, line: str) -> set[str]:
    """Return the forms in which a version of the program prints an image."""
    snapshot = "@snap" if line.endswith("@snap") else ""
    # Measured with 16.2: a namespace lacks the slash after it, and has one before it.
    names = {str(image), f"{image.pool}//{image.namespace}{image.name}"}
    return {f"{name}{snapshot} is not mapped" for name in names}


@pytest.mark.parametrize("line", [*SERVED, *WITHOUT_POOL])
def test_program_takes_the_image_that_the_parser_takes(conf: Path, line: str) -> None:
    image = (SERVED | WITHOUT_POOL)[line]
    assert said(conf, line) in printed(image, line)
    served = served_image(("rbd-nbd", *line.replace(COMMAND, "map").split()))
    assert served == SERVED.get(line)


@pytest.mark.parametrize("line", [*REFUSED, *UNKNOWN_OPTIONS])
def test_program_refuses_the_line(conf: Path, line: str) -> None:
    assert "is not mapped" not in said(conf, line)
