"""Build the sdist, the wheel and the Debian package as a release does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.install import CHECKOUT, cache_dir
from tests.lab.roots import root_of
from tests.lab.venvs import inside, venv_of, venv_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lab.parts import Suite

BUILD_DEB: Final = CHECKOUT / "packaging" / "build_deb.py"
EPOCH: Final = "1700000000"


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
    cache = cache_dir()
    python = venv_place(cache) / "bin" / "python"
    # The package is not compressed: Debian's xz would take ten seconds.
    build = (python, BUILD_DEB, wheel, "--out", out, "--compression", "none")
    venv = {venv_place(cache): venv_of(cache, suite)}
    pip = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME"))}
    command = inside(root_of(cache, suite), build, venv)
    return Path(said(command, SOURCE_DATE_EPOCH=EPOCH, **pip).strip())


def built(out: Path, *targets: str) -> Path:
    """Build the sdist or the wheel with hatchling, as pip does."""
    kinds = [word for target in targets for word in ("-t", target)]
    said([sys.executable, "-m", "hatchling", "build", "-d", out, *kinds])
    return out
