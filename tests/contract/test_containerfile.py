"""The container image: it installs the .deb, so the two cannot drift apart."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from rbdagent import __version__
from release.image import links
from tests.lab.parts import image_base

CHECKOUT: Final = Path(__file__).parents[2]
TEXT: Final = re.sub(r"\\\n", "", (CHECKOUT / "Containerfile").read_text())
LINES: Final = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
FINAL: Final = LINES[max(n for n, line in enumerate(LINES) if line.startswith("FROM")) :]


def test_the_last_stage_installs_the_deb_and_nothing_else() -> None:
    (run,) = [line for line in FINAL if line.startswith("RUN")]
    installs = re.findall(r"install ((?:--\S+ )*)(.+?) +&&", run)
    assert installs == [("--yes --no-install-recommends ", "/out/rbdagent_*.deb")]
    assert not [line for line in FINAL if line.startswith(("COPY", "ADD", "USER"))]


def test_gather_is_a_link_to_the_script_of_the_deb() -> None:
    """The release makes the same link, without a container engine."""
    (link,) = links((CHECKOUT / "Containerfile").read_text())
    assert link == ("/usr/share/rbdagent/gather", "/usr/bin/gather")


BASES: Final = [line.split()[1] for line in LINES if line.startswith("FROM")]
DEFAULTS: Final = dict(
    line.removeprefix("ARG ").split("=", 1) for line in LINES if re.match(r"ARG \w+=", line)
)


def test_both_stages_have_the_same_base() -> None:
    """Compiled modules work with one minor version of Python only."""
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
def test_base_without_a_digest_is_refused(given: dict[str, str], *, refused: bool) -> None:
    """Text after an @ must be a digest, else it is not a reference.

    Source: distribution/reference, regexp.go.

    docs/packages.md lists what buildah reports for each case.
    """
    values = DEFAULTS | given
    names = {re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], ""), it) for it in BASES}
    reference = re.compile(r"[a-z0-9.:/_-]+(@[a-z0-9]+:[0-9a-f]{32,})?")
    assert {reference.fullmatch(name) is None for name in names} == {refused}


def test_comment_names_the_image_of_the_default_suite() -> None:
    text = (CHECKOUT / "Containerfile").read_text()
    assert f"docker://{DEFAULTS['BASE']}:{DEFAULTS['SUITE']}-slim\n" in text


def test_image_contains_only_locked_packages_from_pypi() -> None:
    """packaging/build_deb.py packs the entries of requirements.txt; pip itself uses no index."""
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


def test_base_supports_every_key_type_that_ceph_creates() -> None:
    """A cluster that is created with Ceph 20.2.4 allows only keys of type aes256k."""
    assert set(image_base().keys) == {"aes", "aes256k"}


def test_copied_files_exist() -> None:
    copied = [line.split()[1:-1] for line in LINES if line.startswith("COPY")]
    sources = {source for paths in copied for source in paths}
    assert sources
    assert not [source for source in sources if not (CHECKOUT / source).exists()]


def test_everything_that_the_wheel_contains_is_copied() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    copied = {line for line in LINES if line.startswith("COPY")}
    assert {f"COPY {path} {path}" for path in included} <= copied


def test_version_argument_is_the_packaged_version() -> None:
    assert f"ARG VERSION={__version__}" in FINAL


def test_readme_installs_the_dependencies_of_the_deb() -> None:
    tree = ast.parse((CHECKOUT / "packaging" / "build_deb.py").read_text())
    (depends,) = [
        ast.literal_eval(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == "DEPENDS"
        and statement.value is not None
    ]
    assert f"apt install {' '.join(depends)} " in (CHECKOUT / "README.md").read_text()
