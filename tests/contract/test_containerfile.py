"""The image: what it installs is the .deb, so the two cannot drift."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

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


BASES: Final = [line.split()[1] for line in LINES if line.startswith("FROM")]
DEFAULTS: Final = dict(
    line.removeprefix("ARG ").split("=", 1) for line in LINES if re.match(r"ARG \w+=", line)
)


def test_both_stages_have_the_same_base() -> None:
    """Compiled modules fit one minor version of Python."""
    assert len(BASES) == 2
    assert len(set(BASES)) == 1


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        pytest.param({}, True, id="nothing"),
        pytest.param({"BASE": "debian:forky-slim"}, True, id="a tag"),
        pytest.param({"DIGEST": "forky-slim"}, True, id="a tag for a digest"),
        pytest.param({"DIGEST": "sha256:0123"}, True, id="part of a digest"),
        pytest.param({"DIGEST": f"sha256:{'0a' * 32}"}, False, id="a digest"),
        pytest.param(
            {"BASE": "mirror.example:5000/debian", "DIGEST": f"sha256:{'0a' * 32}"},
            False,
            id="a digest in another registry",
        ),
    ],
)
def test_a_base_is_refused_that_is_not_named_by_its_digest(
    given: dict[str, str], *, refused: bool
) -> None:
    """What follows an @ is a digest, else it is no reference (distribution/reference, regexp.go).

    What buildah says to each: docs/packages.md.
    """
    values = DEFAULTS | given
    names = {re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], ""), it) for it in BASES}
    reference = re.compile(r"[a-z0-9.:/_-]+(@[a-z0-9]+:[0-9a-f]{32,})?")
    assert {reference.fullmatch(name) is None for name in names} == {refused}


def test_the_comment_finds_the_digest_of_the_suite_that_is_built_on() -> None:
    text = (CHECKOUT / "Containerfile").read_text()
    assert f"docker://{DEFAULTS['BASE']}:{DEFAULTS['SUITE']}-slim\n" in text


def test_it_takes_nothing_of_pypi_but_what_is_locked() -> None:
    """packaging/build_deb.py packs what requirements.txt has; the rest asks no index."""
    commands = [
        command
        for line in LINES
        if line.startswith("RUN")
        for command in line.removeprefix("RUN ").split("&&")
        if re.search(r"\b(pip|uv|pipx|build) ", command)
    ]
    (wheel,) = commands
    assert wheel.split()[:2] == ["pip", "wheel"]
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(wheel.split())
    assert [line for line in LINES if line.startswith("COPY") and " requirements.txt " in line]


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
