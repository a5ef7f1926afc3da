"""The image: what it installs is the .deb, so the two cannot drift."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from rbdagent import __version__
from tests.lab.matrix_cells import image_base

CHECKOUT: Final = Path(__file__).parents[2]
TEXT: Final = re.sub(r"\\\n", "", (CHECKOUT / "Containerfile").read_text())
LINES: Final = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
FINAL: Final = LINES[max(n for n, line in enumerate(LINES) if line.startswith("FROM")) :]


def test_the_last_stage_installs_the_deb_and_nothing_else() -> None:
    (run,) = [line for line in FINAL if line.startswith("RUN")]
    installs = re.findall(r"install ((?:--\S+ )*)(.+?) +&&", run)
    assert installs == [("--yes --no-install-recommends ", "/out/rbdagent_*.deb")]
    assert not [line for line in FINAL if line.startswith(("COPY", "ADD", "USER"))]


def test_both_stages_have_the_same_base() -> None:
    """Compiled modules fit one minor version of Python."""
    bases = [line.split()[1] for line in LINES if line.startswith("FROM")]
    assert bases == ["${BASE}", "${BASE}"]


def test_the_base_can_use_every_type_of_key_that_ceph_creates() -> None:
    """A cluster that is created with Ceph 20.2.4 allows keys of type aes256k alone."""
    assert set(image_base().keys) == {"aes", "aes256k"}


def test_what_is_copied_is_there() -> None:
    copied = [line.split()[1:-1] for line in LINES if line.startswith("COPY")]
    sources = {source for each in copied for source in each}
    assert sources
    assert not [each for each in sources if not (CHECKOUT / each).exists()]


def test_it_is_labelled_with_the_version_that_is_in_it() -> None:
    assert f"ARG VERSION={__version__}" in FINAL


def test_readme_installs_by_hand_what_the_deb_depends_on() -> None:
    tree = ast.parse((CHECKOUT / "packaging" / "build_deb.py").read_text())
    (depends,) = [
        ast.literal_eval(each.value)
        for each in tree.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and each.target.id == "DEPENDS"
        and each.value is not None
    ]
    assert f"apt install {' '.join(depends)} " in (CHECKOUT / "README.md").read_text()
