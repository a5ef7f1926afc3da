"""Packages from PyPI: the locked lists, and the requirements of pyproject.toml.

After a change of pyproject.toml, run ./dev lock. The tests read files only: they use no index.
"""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from email.message import Message
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.lab.venvs import FLOORS, REQUIREMENTS, install_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
_ALL: Final = [
    *PROJECT["dependencies"],
    *(text for extra in ("dev", "mcp") for text in PROJECT["optional-dependencies"][extra]),
]
LOCKED: Final = {
    "requirements.txt": PROJECT["dependencies"],
    REQUIREMENTS.name: _ALL,
    FLOORS.name: _ALL,
}
"""Each list, and the requirements of pyproject.toml for it."""

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
MACHINES: Final = ("x86_64", "aarch64")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
DIGEST: Final = f"--hash=sha256:{'0a' * 32}"


def entries(text: str) -> Iterator[str]:
    """Yield the entries of a list as pip reads them, without comments."""
    for line in text.replace("\\\n", "").splitlines():
        if (entry := line.strip()) and not entry.startswith("#"):
            yield entry


def fault(entry: str) -> str:
    """Return why an entry does not name one version by its digests; empty if it does."""
    name, *digests = entry.split(" --hash=")
    try:
        requirement = Requirement(name)
    except InvalidRequirement:
        return "no requirement"
    if requirement.url is not None:
        return "from a URL"
    if not re.fullmatch(r"==[^,*]+", str(requirement.specifier)):
        return "no single version"
    if not digests or not all(_DIGEST.fullmatch(text.strip()) for text in digests):
        return "no digests"
    return ""


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (f"click==8.5.1 {DIGEST}", ""),
        (f"click==8.5.1 ; python_version < '3.13' {DIGEST} {DIGEST}", ""),
        ("click==8.5.1", "no digests"),
        (f"click==8.5.1 {DIGEST[:-1]}", "no digests"),
        (f"click==8.5.1 {DIGEST} --hash=md5:00", "no digests"),
        (f"click>=8.4 {DIGEST}", "no single version"),
        (f"click==8.* {DIGEST}", "no single version"),
        (f"click {DIGEST}", "no single version"),
        (f"click @ https://mirror.example/click.whl {DIGEST}", "from a URL"),
        ("--extra-index-url https://mirror.example/simple", "no requirement"),
        ("-e .", "no requirement"),
        ("-r more.txt", "no requirement"),
    ],
)
def test_entry_without_one_version_and_a_digest_is_refused(entry: str, why: str) -> None:
    assert fault(entry) == why


@pytest.mark.parametrize("name", LOCKED)
def test_each_locked_entry_names_one_version_by_digest(name: str) -> None:
    """There is no option and no address either: a list names no registry besides that of pip."""
    text = (CHECKOUT / name).read_text()
    found = list(entries(text))
    assert found
    assert {entry: why for entry in found if (why := fault(entry))} == {}
    assert "://" not in text


def locked(name: str, environment: dict[str, str]) -> dict[str, Requirement]:
    """Return what a list installs in an environment, by name."""
    found: dict[str, Requirement] = {}
    for entry in entries((CHECKOUT / name).read_text()):
        requirement = Requirement(entry.partition(" --hash=")[0])
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found[canonicalize_name(requirement.name)] = requirement
    return found


def version(requirement: Requirement) -> str:
    """Return the one version of a locked requirement."""
    return str(requirement.specifier).removeprefix("==")


def environment(python: str, machine: str = "x86_64") -> dict[str, str]:
    """Return the environment in which a marker is evaluated, for a Python on Linux."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "extra": "",
    }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKED)
def test_the_locked_versions_are_those_that_pyproject_allows(
    name: str, python: str, machine: str
) -> None:
    there = locked(name, environment(python, machine))
    unfit = {
        str(wanted)
        for wanted in map(Requirement, LOCKED[name])
        if (found := there.get(canonicalize_name(wanted.name))) is None
        or not wanted.specifier.contains(version(found), prereleases=True)
    }
    assert unfit == set(), "./dev lock"


@pytest.mark.parametrize("python", PYTHONS)
def test_tests_run_with_the_released_versions(python: str) -> None:
    handed_out, tested = (
        {name: version(found) for name, found in locked(file, environment(python)).items()}
        for file in ("requirements.txt", REQUIREMENTS.name)
    )
    assert handed_out.items() <= tested.items()


@pytest.mark.parametrize("python", PYTHONS)
def test_the_floors_are_the_oldest_versions_that_pyproject_allows(python: str) -> None:
    there = locked(FLOORS.name, environment(python))
    needed = map(Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["mcp"]])
    for wanted in needed:
        (oldest,) = [one.version for one in wanted.specifier if one.operator == ">="]
        found = version(there[canonicalize_name(wanted.name)])
        assert Version(found) == Version(oldest), f"{wanted}: ./dev lock"


@pytest.mark.parametrize("name", ["requirements.txt", REQUIREMENTS.name])
def test_requirements_of_locked_packages_are_locked(name: str) -> None:
    """The metadata of the installed packages lists the needs; pip refuses one without a digest."""
    there = locked(name, environment("3.11"))
    missing = {
        f"{package} needs {needed}"
        for package in there
        for needed in needs(package)
        if canonicalize_name(needed.name) not in there
    }
    assert missing == set()


def needs(name: str) -> Iterator[Requirement]:
    """Yield what a package needs without its extras; nothing if it is not installed."""
    try:
        found = requires(name) or ()
    except PackageNotFoundError:
        return
    for need in map(Requirement, found):
        if need.marker is None or need.marker.evaluate(environment("3.11")):
            yield need


def test_each_package_that_the_agent_depends_on_is_imported() -> None:
    """An unused package is still code that runs as root on every node."""
    of_module = packages_distributions()
    imported = {
        canonicalize_name(package)
        for module in imported_modules()
        for package in of_module.get(module, ())
    }
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert declared - imported == set()


def imported_modules() -> set[str]:
    """Return the top-level modules that rbdagent imports, anywhere in a file."""
    found = set()
    for path in (CHECKOUT / "rbdagent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def test_dev_installs_what_is_locked_and_nothing_else() -> None:
    """The build of a source distribution uses packages that pip installs without a digest."""
    of_pypi, of_checkout = install_commands(Path("python"))
    assert {"--require-hashes", "--only-binary=:all:", REQUIREMENTS} <= set(of_pypi)
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(of_checkout)


@pytest.fixture(scope="module")
def wanted_of() -> Callable[[Message, str], str]:
    """Return the function that selects the requirements of the .deb."""
    script = runpy.run_path(str(CHECKOUT / "packaging" / "build_deb.py"))
    found: Callable[[Message, str], str] = script["wanted_of"]
    return found


def metadata(*needed: str) -> Message:
    """Return a wheel's metadata."""
    message = Message()
    for requirement in needed:
        message["Requires-Dist"] = requirement
    return message


def test_deb_contains_the_locked_requirements_of_the_wheel(
    wanted_of: Callable[[Message, str], str],
) -> None:
    """Exceptions are the client library, which Debian has, and packages for developers."""
    lines = (
        f"# by ./dev lock\nclick==8.5.1 \\\n    {DIGEST}\n    # via rbdagent\n"
        f"kubernetes==36.0.3 {DIGEST}\nprometheus-client==0.26.0 {DIGEST}\n"
    )
    needed = metadata("click>=8.4", "kubernetes<37", "prometheus_client", "ruff; extra == 'dev'")
    assert [line.split() for line in wanted_of(needed, lines).splitlines()] == [
        ["click==8.5.1", DIGEST],
        ["prometheus-client==0.26.0", DIGEST],
    ]


def test_deb_is_not_built_with_an_unlocked_requirement(
    wanted_of: Callable[[Message, str], str],
) -> None:
    with pytest.raises(SystemExit, match="not locked: psutil"):
        wanted_of(metadata("psutil>=5.9"), f"click==8.5.1 {DIGEST}\n")
