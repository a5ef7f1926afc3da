"""Build the sdist, the wheel and the Debian package as a release does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from release.artefacts import build_deb
from tests.lab.install import CHECKOUT, cache_dir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.lab.parts import Suite

EPOCH: Final = 1_700_000_000


def said(command: Sequence[object], **environment: str) -> str:
    """Run a program with only this environment and PATH; return its stdout."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def built_deb(wheel: Path, out: Path, suite: Suite) -> Path:
    """Build the Debian package of a wheel with the Python of a Debian suite."""
    # The package is not compressed: Debian's xz would take ten seconds.
    return build_deb(cache_dir(), wheel, out, suite, epoch=EPOCH, compression="none")


def built(out: Path, *targets: str) -> Path:
    """Build the sdist or the wheel with hatchling, as pip does."""
    kinds = [word for target in targets for word in ("-t", target)]
    said([sys.executable, "-m", "hatchling", "build", "-d", out, *kinds])
    return out
