"""Builds what is handed out, as a release does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.lab.install import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BUILD_DEB: Final = CHECKOUT / "packaging" / "build_deb.py"
EPOCH: Final = "1700000000"


def said(command: Sequence[object], **environment: str) -> str:
    """Run a program with nothing but this environment and PATH; give what it said."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def built(out: Path, *targets: str) -> Path:
    """Build sdist or wheel as pip does, by the same hatchling."""
    kinds = [word for target in targets for word in ("-t", target)]
    said([sys.executable, "-m", "hatchling", "build", "-d", out, *kinds])
    return out
