"""The verbs of ./dev. Standard library only: it runs before anything is installed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.commands import interruptible
from tests.lab.errors import LabError
from tests.lab.install import (
    CHECKOUT,
    Narrator,
    bin_dir,
    cache_dir,
    default_state_dir,
    given_cephcsi,
    install_browser,
    install_floors,
    install_helm,
    install_lab,
    install_lab_tests,
    install_python,
    install_quick,
    install_rbdagent,
    install_release,
    parts_line,
    shared_cephcsi,
    venv_python,
)
from tests.lab.junit import count
from tests.lab.parts import OPTIONS, SUITES, chosen_parts
from tests.lab.venvs import FLOORS, REQUIREMENTS, floors_place, quick_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

TIERS = ("lint", "unit", "contract", "floors", "integration", "e2e", "oldest", "newest")
LAB_TIERS = ("integration", "e2e", "oldest", "newest")
_OF_ONE_DEBIAN = {
    "oldest": ("12", ("tests/integration/test_observe_ceph.py",)),
    "newest": ("forky", ("tests/e2e/test_founding_incident.py",)),
}
"""Tiers that run a part of another tier on the Ceph, kernel and programs of one Debian."""
_FLOORS = "floors"
_OF_FLOORS = ("tests/contract", "tests/unit/test_log.py", "tests/unit/test_agent_loop.py")
"""The tests that use packages most, run with the oldest allowed version of each."""
_SOME_ROWS = ("--rows", "16")
"""Of `floors` among other tiers: a third of its tests, because a few tables have hundreds of rows.
``./dev floors`` runs every row.
"""
_QUICK = "quick"
_OF_QUICK = ("tests/unit", "tests/contract", "--quick", "--rows", "8")
"""210 s on two cores; with 16 rows it was 244 s."""
_BESIDE = (*_OF_ONE_DEBIAN, _FLOORS)
"""Tiers that run after those tests of e2e that must be alone, next to the other ones.

floors comes last: it needs processors, and the tests of e2e next to it wait most of the time.
"""
_NOT_OF_FLOORS = "tests/contract/test_requirements.py"
"""It compares lists with what is installed; what is installed here is another list."""
_FURTHER_ROOTS = {"integration": (SUITES[-1],)}
"""Suites for further roots that tests of a tier use: a Ceph with keys of type aes256k."""
_VM_TIERS = ("e2e", "newest")
_PROCESSORS = max(2, len(os.sched_getaffinity(0)))
_AT_ONCE = {
    "unit": _PROCESSORS,
    "contract": _PROCESSORS,
    _FLOORS: _PROCESSORS,
    _QUICK: _PROCESSORS,
    "integration": 2,
    "e2e": 4,
}
"""Tests that run at the same time; ``-n 0`` among a tier's arguments runs them one by one."""
_HANGS_AFTER_S = 1800
"""A test that takes this long waits for something that never comes: it fails and shows where. The
longest takes a fifth of it, and half of it on a slow machine beside other work. `soak` and `fuzz`
have no such limit."""
_LAB_MEMORY_GIB = 6
_SITE = CHECKOUT / "site"
_BROKEN = "--maxfail=6"
"""A lab that a test has broken fails all later ones, each after minutes of waiting."""
_FIRST_LAB = ("--lab", "first", "-n", "4", _BROKEN)
_SECOND_LAB = ("--lab", "second", "-n", "0", _BROKEN)
"""Tests of e2e in two labs side by side; in the second lab they run alone, one after the other.

Most of them wait for timers of Kubernetes and Ceph: with two at once in the first lab, half of the
processors' time is left.
"""
_ALONE = "e2e-alone"
_SECOND = "second-lab"
_PATIENCE = "3"
"""Two labs share the processors: an operation takes up to twice as long as in a single lab, and on
a slow machine longer: a pod of 15 containers needed more than six minutes to end.
"""
_NO_TESTS_COLLECTED = 5

_EPILOG = """\
verbs:
  demo                   the founding incident on real parts, and rbdagent's answers
  test [TIER ...]        all tests, or those tiers: lint unit contract floors integration e2e
                         oldest newest
  test quick             lint, and unit and contract with at most 8 rows of each table of tests: on
                         any Linux with Python 3.11 or later, without root, and without the tests
                         whose programs are missing
  lint, unit, contract, floors, integration, e2e, oldest, newest [PYTEST ARGS]
                         one tier; further arguments go to pytest (./dev e2e -k founding).
                         floors is contract with the oldest allowed version of each package;
                         next to other tiers, it takes at most 16 rows of each table of tests,
                         oldest uses Ceph 16.2, newest runs the founding incident on Debian forky
  lab up|down|shell|status
                         the lab for manual use: up leaves it running until down
  bench [NAME] [ARGS]    the measurements below bench/
  fuzz [INPUTS] [SEED]   two million random inputs, or INPUTS, for all parsers, snapshots,
                         configuration and the masking of secrets: no undocumented error, at most
                         1 ms per KiB; then every property test with random examples, and plans of
                         unmaps against the oracle in half as many random states
  soak [EPISODES] [SEED] random lifecycles of volumes with agents on the real kernel: 500 or so many
  docs                   write docs/runbooks again, missing rows of docs/diagnose.md, the answers
                         that documents quote, docs/who-holds.svg, and what the kubectl plugin
                         knows of the commands
  plugin [DIR]           write the kubectl plugin with all texts that it prints, by default to
                         dist/plugin: on any Linux, without root
  site [DIR]             build the site of the documents with mkdocs, by default in site/; a link
                         that leads nowhere is an error; a given directory must be empty
  lock [UV ARGS]         write requirements.txt, requirements-dev.txt and requirements-floors.txt
                         from pyproject.toml; versions that fit are kept, --upgrade takes the newest
  matrix [NAME ...]      run each Ceph, kernel, Debian and Kubernetes, and write
                         docs/compatibility.md; --list names the cells
  pictures               take the pictures in docs/ again, with a headless browser
  release VERSION [DIR]  build and check all files of a version, by default in dist/VERSION; the
                         checkout must be equal to its commit, the directory empty
  clean                  stop the lab, remove everything that ./dev made except Debian packages

PARTS
  --cephcsi PATH
                         a real ceph-csi instead of the test driver (linked with librados and
                         librbd of the nodes' Debian)

Missing parts are installed first: Debian packages (as root), a virtual environment, the
Kubernetes programs from source (once). Everything but the packages is kept in $RBDAGENT_CACHE,
by default ~/.cache/rbdagent. KUBEBUILDER_ASSETS names a directory with Kubernetes programs to use
instead of building them. RBDAGENT_LAB_PATIENCE multiplies every wait of the lab, for a slow
machine: 1 by default, 2 with a second lab. With CI=true a tier that cannot run here is a failure.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one tier."""

    tier: str
    state: str
    """``passed``, ``FAILED`` or ``not run``."""
    seconds: float
    ran: str
    """What ran, or why nothing ran."""
    passed: int = 0
    failed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    verbs: dict[str, Callable[[list[str]], int]] = {
        "demo": _demo,
        "test": _test,
        "lab": _lab,
        "bench": _bench,
        "fuzz": _fuzz,
        "soak": _soak,
        "docs": _docs,
        "plugin": _plugin,
        "site": _site,
        "lock": _lock,
        "matrix": _matrix,
        "pictures": _pictures,
        "release": _release,
        "clean": _clean,
        # Internal: `test` starts this verb.
        _SECOND: _second_lab,
        **{tier: _one_tier(tier) for tier in TIERS},
    }
    parser = argparse.ArgumentParser(
        prog="./dev",
        usage="./dev VERB [ARGS]",
        description="Everything that developing rbdagent takes.",
        epilog=_EPILOG.replace("PARTS", _options_help()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=verbs, metavar="VERB", help="one of those below")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    # A terminated run unwinds as an interrupted one does: it stops what it started.
    signal.signal(signal.SIGTERM, _interrupt)
    # A background job of a shell ignores interrupts from its start, and its children would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return verbs[given.verb](_use_parts(_use_cephcsi(given.args)))
    except LabError as error:
        print(f"./dev {given.verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"./dev {given.verb}: interrupted", file=sys.stderr)
        return 130


def _use_cephcsi(args: list[str]) -> list[str]:
    """Remove ``--cephcsi PATH`` from a verb's arguments, at any place among them."""
    parser = argparse.ArgumentParser(prog="./dev", add_help=False, allow_abbrev=False)
    parser.add_argument("--cephcsi", type=Path)
    given, rest = parser.parse_known_args(args)
    if given.cephcsi is not None:
        if not os.access(given.cephcsi, os.X_OK) or given.cephcsi.is_dir():
            raise LabError(f"--cephcsi {given.cephcsi}: not a program")
        os.environ["RBDAGENT_CEPHCSI"] = str(given.cephcsi.resolve())
    return rest


def _use_parts(args: list[str]) -> list[str]:
    """Remove the choices of the lab's parts from a verb's arguments, at any place among them.

    Raises:
        LabError: there is no such part.
    """
    parser = argparse.ArgumentParser(prog="./dev", add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        parser.add_argument(option.flag, dest=option.variable)
    given, rest = parser.parse_known_args(args)
    chosen = {name: value for name, value in vars(given).items() if value is not None}
    if chosen:
        os.environ |= chosen
        chosen_parts()
    return rest


def _options_help() -> str:
    """Return the lines of the help that describe the options of :data:`OPTIONS`."""
    usage = {f"{option.flag} {option.metavar}": option.help for option in OPTIONS}
    lines = (f"  {words}\n{'':25}{meaning}" for words, meaning in usage.items())
    return "\n".join(("with demo, test, integration, e2e, bench, lab up:", *lines))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _demo(args: list[str]) -> int:
    install_rbdagent(Narrator())
    return _python(["-m", "tests.lab.demo", *args])


def _lab(args: list[str]) -> int:
    if args and args[0] in ("up", "shell"):
        install_lab(Narrator())
        print(parts_line(), flush=True)
    else:
        install_python(Narrator())
    return _python(["-m", "tests.lab", *args], keep_stdin=True)


def _bench(args: list[str]) -> int:
    install_lab_tests(Narrator())
    print(parts_line(), flush=True)
    name, rest = (args[0], args[1:]) if args else ("", [])
    scripts = sorted((CHECKOUT / "bench").glob(f"{name or '*'}.py"))
    if not scripts:
        names = ", ".join(path.stem for path in sorted((CHECKOUT / "bench").glob("*.py")))
        raise LabError(f"no measurement {name!r} below bench/; there are: {names or 'none yet'}")
    return max(_python([str(script), *rest]) for script in scripts)


def _fuzz(args: list[str]) -> int:
    install_python(Narrator())
    inputs, seed = _random_run("fuzz", args, often=2_000_000)
    found = _python(["-m", "tests.fuzz", inputs, seed])
    states = str(int(inputs) // 2)
    os.environ |= {"RBDAGENT_FUZZ_STATES": states, "RBDAGENT_FUZZ_SEED": seed}
    properties = _python(
        [
            *("-m", "pytest", "-q", "-m", "hypothesis or fuzz", f"--hypothesis-seed={seed}"),
            *("tests/unit", "tests/contract"),
        ]
    )
    return max(found, properties)


def _soak(args: list[str]) -> int:
    episodes, seed = _random_run("soak", args, often=500)
    os.environ |= {"RBDAGENT_EPISODES": episodes, "RBDAGENT_EPISODES_SEED": seed}
    # In this process and without capture, so that the test shows its progress.
    return _run_tiers(["e2e"], ["-k", "test_episodes", "-n", "0", "-s", "--timeout=0"])


def _random_run(verb: str, args: list[str], *, often: int) -> tuple[str, str]:
    """Return the number of rounds and the seed of random tests, and print how to repeat them."""
    given = (*args, *(str(often), str(time.time_ns() % 2**32))[len(args) :])[:2]
    if not all(word.isdecimal() for word in given):
        raise LabError(f"{verb} {' '.join(given)}: how often and the seed are numbers")
    print(f"./dev {verb} {' '.join(given)} repeats this run", flush=True)
    return given[0], given[1]


def _matrix(args: list[str]) -> int:
    install_python(Narrator())
    try:
        return _python(["-m", "tests.lab.matrix", *args])
    finally:
        _python(["-m", "tests.lab", "clean-up-killed"])


def _plugin(args: list[str]) -> int:
    """Write the plugin: it is for machines without Ceph, so packages from PyPI are enough."""
    install_quick(Narrator())
    return _run([str(_python_of(_QUICK)), "-m", "release.plugin", *args])


def _docs(args: list[str]) -> int:
    return _python_of_any_user(["-m", "tests.documents", *args])


def _site(args: list[str]) -> int:
    place = CHECKOUT / args[0] if args else _SITE
    # mkdocs removes what the directory has.
    if args and place.is_dir() and any(place.iterdir()):
        raise LabError(f"{place}: the directory is not empty")
    return _python_of_any_user(["-m", "mkdocs", "build", "--strict", "--site-dir", str(place)])


def _python_of_any_user(command: list[str]) -> int:
    """Run Python with the packages from PyPI; without root, nothing else is installed."""
    if os.geteuid():
        install_quick(Narrator())
        return _run([str(_python_of(_QUICK)), *command])
    install_python(Narrator())
    return _python(command)


def _lock(args: list[str]) -> int:
    install_python(Narrator())
    # Otherwise uv would keep a cache outside of the project's cache.
    uv = [str(venv_python().with_name("uv")), "pip", "compile", "--quiet", "--no-cache", *args]
    run_time = ["pyproject.toml", "--output-file", "requirements.txt"]
    dev = ["pyproject.toml", "--output-file", REQUIREMENTS.name, "--extra", "dev", "--extra", "mcp"]
    return (
        _run([*uv, *run_time])
        or _run([*uv, *dev, "--constraints", "requirements.txt"])
        or _lock_floors(uv)
    )


def _lock_floors(uv: list[str]) -> int:
    """Write the list of the oldest allowed versions; what only developers need is the newest."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    needed = (*project["dependencies"], *project["optional-dependencies"]["mcp"])
    oldest = {_package(text) for text in needed}
    entries = re.findall(r"^[^\s#]+==[^\\\n]+", REQUIREMENTS.read_text(), re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as newest:
        newest.write("\n".join(entry for entry in entries if _package(entry) not in oldest))
        newest.flush()
        return _run(
            [
                *(*uv, "pyproject.toml", "--output-file", FLOORS.name),
                *("--extra", "dev", "--extra", "mcp", "--constraints", newest.name),
                # Annotations would name the temporary file.
                *("--resolution", "lowest-direct", "--no-annotate"),
            ]
        )


def _package(requirement: str) -> str:
    """Return the name of a required package as registries compare it."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _pictures(args: list[str]) -> int:
    install_browser(Narrator())
    return _python(["-m", "tests.lab.pictures", *args])


def _release(args: list[str]) -> int:
    install_release(Narrator())
    return _python(["-m", "release", *args])


def _clean(_args: list[str]) -> int:
    if venv_python().exists():
        _each_lab("down")
    cache = cache_dir()
    print(f"removing {cache}")
    shutil.rmtree(cache, ignore_errors=True)
    for name in (".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache", _SITE.name):
        shutil.rmtree(CHECKOUT / name, ignore_errors=True)
    print("Debian packages that ./dev installed are still there; apt-get removes them.")
    return 0


def _one_tier(tier: str) -> Callable[[list[str]], int]:
    return lambda args: _run_tiers([tier], args)


def _test(args: list[str]) -> int:
    if args == ["quick"]:
        return _quick()
    if unknown := [tier for tier in args if tier not in TIERS]:
        raise LabError(f"no tier {unknown[0]!r}; there are: {' '.join(TIERS)}")
    return _run_tiers([tier for tier in TIERS if tier in args or not args], [])


def _quick() -> int:
    """Run what needs neither root nor a lab, on any Linux, with a part of the long tables."""
    install_quick(Narrator())
    started = time.monotonic()
    outcomes = [_lint(_python_of(_QUICK))]
    print(f"\n=== {_QUICK}", flush=True)
    os.environ.setdefault("RBDAGENT_FUZZ_STATES", "10000")
    outcomes.append(_pytest(_QUICK, ()))
    return _conclude(outcomes, seconds=time.monotonic() - started)


def _run_tiers(tiers: Sequence[str], pytest_args: Sequence[str]) -> int:
    narrator = Narrator()
    install_python(narrator)
    if "contract" in tiers or _FLOORS in tiers:
        install_helm(narrator)
    if _FLOORS in tiers:
        install_floors(narrator)
    obstacles = {tier: _why_not_run(tier) for tier in tiers}
    of_lab = [tier for tier in tiers if tier in LAB_TIERS and obstacles[tier] is None]
    for tier in of_lab:
        with _debian_of(tier):
            install_lab_tests(narrator, _FURTHER_ROOTS.get(tier, ()))
    if "integration" in of_lab:
        install_release(narrator)
    started = time.monotonic()
    try:
        outcomes = _outcomes(tiers, obstacles, pytest_args)
    finally:
        if of_lab:
            _each_lab("clean-up-killed")
    return _conclude(outcomes, seconds=time.monotonic() - started)


def _outcomes(
    tiers: Sequence[str], obstacles: Mapping[str, str | None], pytest_args: Sequence[str]
) -> list[Outcome]:
    """Run the tiers in turn, and next to those of the lab the tests that must be alone."""
    outcomes = []
    takes_two_labs = (
        "e2e" in tiers
        and obstacles["e2e"] is None
        and not pytest_args
        and os.environ.get("RBDAGENT_TEST_LAB") != "kept"
        and _memory_gib() >= 2 * _LAB_MEMORY_GIB
    )
    beside = [tier for tier in _BESIDE if tier in tiers and obstacles[tier] is None]
    with contextlib.ExitStack() as stack:
        # From the start: lint, unit and contract leave a third of two processors idle.
        second = stack.enter_context(_in_second_lab(beside)) if takes_two_labs else None
        for tier in tiers:
            if (obstacle := obstacles[tier]) is not None:
                outcomes.append(_not_run(tier, obstacle))
                continue
            if takes_two_labs and tier in beside:
                continue
            print(f"\n=== {tier}", flush=True)
            args = _FIRST_LAB if takes_two_labs and tier == "e2e" else pytest_args
            if tier == _FLOORS and len(tiers) > 1:
                args = _SOME_ROWS
            outcomes.append(_lint(venv_python()) if tier == "lint" else _of_parts(tier, args))
            if tier == "e2e" and not pytest_args and not takes_two_labs:
                outcomes += _founding_with_cephcsi()
        if second is not None:
            outcomes += second()
    return outcomes


def _of_parts(tier: str, args: Sequence[str]) -> Outcome:
    """Run tests of a tier on the parts that belong to it."""
    with _debian_of(tier):
        if tier in LAB_TIERS:
            print(parts_line(), flush=True)
        return _pytest(tier, args)


@contextlib.contextmanager
def _in_second_lab(tiers: Sequence[str]) -> Iterator[Callable[[], list[Outcome]]]:
    """Run the tests that must be alone in a second lab, next to other tiers: see `_second_lab`.

    They wait for timers of Kubernetes and Ceph most of the time: after the other tiers, one by one,
    they would leave a processor idle for half an hour.

    Yields:
        A function that waits for the end, and prints the output.
    """
    os.environ.setdefault("RBDAGENT_LAB_PATIENCE", _PATIENCE)
    directory = cache_dir() / "log"
    directory.mkdir(parents=True, exist_ok=True)
    log, results = directory / f"{_SECOND}.log", directory / f"{_SECOND}.json"
    command = [sys.executable, "-m", "tests.lab.developer", _SECOND, str(results), *tiers]
    environment = _environment() | {"RBDAGENT_LAB": str(_second_state_dir())}
    with (
        log.open("wb") as output,
        interruptible(command, cwd=CHECKOUT, env=environment, output=output) as child,
    ):

        def wait() -> list[Outcome]:
            code = child.wait()
            print("\n=== in a second lab, next to the others", flush=True)
            print(log.read_text(errors="replace"), flush=True)
            if code != 0:
                ran = f"it ended without results, exit code {code}"
                return [Outcome(tier=_SECOND, state="FAILED", seconds=0, ran=ran, failed=1)]
            return [Outcome(**outcome) for outcome in json.loads(results.read_text())]

        yield wait


def _second_lab(args: list[str]) -> int:
    """Run the tests of a second lab: those that must be alone, ceph-csi, other Debians, floors.

    Args:
        args: the file of the results, and the tiers of :data:`_BESIDE`.
    """
    results, *tiers = args
    print(f"{parts_line()}\n=== {_ALONE}", flush=True)
    outcomes = [_pytest("e2e", _SECOND_LAB, name=_ALONE), *_founding_with_cephcsi()]
    for tier in tiers:
        print(f"\n=== {tier}", flush=True)
        outcomes.append(_of_parts(tier, _SOME_ROWS if tier == _FLOORS else ()))
    Path(results).write_text(json.dumps([asdict(outcome) for outcome in outcomes]))
    return 0


def _each_lab(verb: str) -> None:
    """Run a verb of ``./dev lab`` for the first lab and for the second."""
    for state_dir in (default_state_dir(), _second_state_dir()):
        environment = _environment() | {"RBDAGENT_LAB": str(state_dir)}
        _run([str(venv_python()), "-m", "tests.lab", verb], environment=environment)


def _second_state_dir() -> Path:
    """Return where the lab of the tests that must be alone keeps its state."""
    return Path(f"{default_state_dir()}-alone")


@contextlib.contextmanager
def _debian_of(tier: str) -> Iterator[None]:
    """Use the parts that belong to a tier, instead of the chosen ones."""
    if tier not in _OF_ONE_DEBIAN:
        yield
        return
    chosen = {option.variable: os.environ.get(option.variable, "") for option in OPTIONS}
    debian, _ = _OF_ONE_DEBIAN[tier]
    os.environ |= dict.fromkeys(chosen, "") | {"RBDAGENT_LAB_DEBIAN": debian}
    try:
        yield
    finally:
        os.environ |= chosen


def _founding_with_cephcsi() -> list[Outcome]:
    """Run the founding incident with a real ceph-csi too, if one exists next to the checkout.

    Returns:
        An empty list in a run that has a ceph-csi: all of its scenarios have run with it.
    """
    program = shared_cephcsi() if given_cephcsi() is None else None
    if program is None:
        return []
    os.environ["RBDAGENT_CEPHCSI"] = str(program)
    chosen = os.environ.get("RBDAGENT_LAB_NODE", "")
    # In each run of all tests on the kernel of a distribution, too.
    os.environ["RBDAGENT_LAB_NODE"] = "qemu"
    try:
        # The sidecars around it are built only for it.
        install_lab(Narrator())
        print("\n=== e2e, the founding incident with a real ceph-csi", flush=True)
        return [_pytest("e2e", ["-k", "test_founding_incident"], name="e2e-cephcsi")]
    finally:
        os.environ["RBDAGENT_LAB_NODE"] = chosen
        del os.environ["RBDAGENT_CEPHCSI"]


def _why_not_run(tier: str) -> str | None:
    """Return why a tier cannot run on this machine; None when it can."""
    if tier not in LAB_TIERS:
        return None
    memory = _memory_gib()
    obstacles = {
        f"the lab needs Linux on x86_64, this is {platform.system()} {platform.machine()}": (
            platform.system() != "Linux" or platform.machine() != "x86_64"
        ),
        "the lab needs root (network namespaces, packages)": os.geteuid() != 0,
        "the lab needs network namespaces, and this machine refuses to make one": (
            subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode
            != 0
        ),
        "the lab needs /dev/net/tun for the node VMs' network": not Path("/dev/net/tun").exists(),
        f"two node VMs need {_LAB_MEMORY_GIB} GiB of memory, this machine has {memory:.1f}": (
            tier in _VM_TIERS and memory < _LAB_MEMORY_GIB
        ),
    }
    return next((why for why, true in obstacles.items() if true), None)


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _not_run(tier: str, why: str) -> Outcome:
    in_ci = os.environ.get("CI", "").lower() in ("true", "1")
    print(f"\n!!! {tier} is NOT RUN: {why}", file=sys.stderr, flush=True)
    return Outcome(
        tier=tier,
        state="FAILED" if in_ci else "not run",
        seconds=0.0,
        ran=f"nothing: {why}",
        failed=1 if in_ci else 0,
    )


def _lint(python: Path) -> Outcome:
    venv = python.parent
    # Name, command; each counts as one test.
    checks: Mapping[str, Sequence[str]] = {
        "ruff check": ("ruff", "check", "."),
        "ruff format": ("ruff", "format", "--check", "."),
        "mypy --strict": ("mypy", "--strict"),
        "lint-imports": ("lint-imports", "--no-cache"),
        "wording": ("python", "-m", "tests.wording"),
    }
    started = time.monotonic()
    failed = []
    with contextlib.ExitStack() as stack:
        # All at once: mypy takes one processor, and most of the time.
        running = {}
        for name, (program, *args) in checks.items():
            output = stack.enter_context(tempfile.TemporaryFile())
            command = [str(venv / program), *args]
            child = interruptible(command, cwd=CHECKOUT, env=_environment(python), output=output)
            running[name] = stack.enter_context(child), output
        for name, (check, output) in running.items():
            code = check.wait()
            output.seek(0)
            print(f"--- {name}\n{output.read().decode(errors='replace').rstrip()}", flush=True)
            if code != 0:
                failed.append(name)
    ran = ", ".join(checks)
    return Outcome(
        tier="lint",
        state="FAILED" if failed else "passed",
        seconds=time.monotonic() - started,
        ran=f"{ran}; failed: {', '.join(failed)}" if failed else ran,
        passed=len(checks) - len(failed),
        failed=len(failed),
    )


def _pytest(tier: str, args: Sequence[str], *, name: str = "") -> Outcome:
    """Run tests of a tier; ``name`` is set for a run in addition to that of all its tests."""
    command, junit = _command(tier, args, name=name)
    started = time.monotonic()
    code = _run(command, environment=_environment(_python_of(tier)))
    return _outcome(name or tier, junit, code, seconds=time.monotonic() - started)


def _command(tier: str, args: Sequence[str], *, name: str) -> tuple[list[str], Path]:
    """Return the command that runs tests of a tier, and the file that their results go to."""
    junit = cache_dir() / "junit" / f"{name or tier}.xml"
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    side_by_side = ["-n", str(_AT_ONCE[tier]), "--dist", "loadfile"] if tier in _AT_ONCE else []
    # A path among the arguments is in place of the whole tier: pytest would run both.
    tests = () if any(arg.startswith("tests/") for arg in args) else _tests(tier)
    pytest = [str(_python_of(tier)), "-m", "pytest", *tests, f"--junitxml={junit}"]
    return [*pytest, f"--timeout={_HANGS_AFTER_S}", *side_by_side, *args], junit


def _tests(tier: str) -> tuple[str, ...]:
    if tier == _FLOORS:
        return *_OF_FLOORS, f"--ignore={_NOT_OF_FLOORS}"
    if tier == _QUICK:
        return _OF_QUICK
    return _OF_ONE_DEBIAN[tier][1] if tier in _OF_ONE_DEBIAN else (f"tests/{tier}",)


def _python_of(tier: str) -> Path:
    """Return the Python of the virtual environment that a tier runs in."""
    places = {_FLOORS: floors_place(cache_dir()), _QUICK: quick_place(cache_dir())}
    return places[tier] / "bin" / "python" if tier in places else venv_python()


def _outcome(name: str, junit: Path, code: int, *, seconds: float) -> Outcome:
    """Return the result of a run of pytest."""
    if code == _NO_TESTS_COLLECTED:
        return _not_run(name, "pytest found no test")
    passed, failed, skipped = count(junit)
    if code != 0 and failed == 0:
        failed = 1  # pytest itself broke: a conftest, an interruption, a usage error
    if passed + failed == 0:
        return _not_run(name, f"all {skipped} tests were skipped")
    ran = f"{passed + failed} tests" + (f", {skipped} SKIPPED" if skipped else "")
    return Outcome(
        tier=name,
        state="FAILED" if failed else "passed",
        seconds=seconds,
        ran=ran,
        passed=passed,
        failed=failed,
    )


def _conclude(outcomes: Sequence[Outcome], *, seconds: float) -> int:
    print()
    for outcome in outcomes:
        print(_row(outcome.tier, outcome.state, outcome.seconds, outcome.ran))
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    if len(outcomes) > 1:
        print(_row("all", "FAILED" if failed else "passed", seconds, "side by side where possible"))
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def _row(name: str, state: str, seconds: float, ran: str) -> str:
    return f"{name:<12} {state:<8} {f'{seconds:.1f} s':>9}  {ran}"


def _python(args: Sequence[str], *, keep_stdin: bool = False) -> int:
    return _run([str(venv_python()), *args], keep_stdin=keep_stdin)


def _run(
    argv: Sequence[str],
    *,
    keep_stdin: bool = False,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a program on this terminal and return its exit code."""
    stdin = None if keep_stdin else subprocess.DEVNULL
    env = _environment() if environment is None else environment
    with interruptible(argv, cwd=CHECKOUT, env=env, stdin=stdin) as child:
        return child.wait()


def _environment(python: Path | None = None) -> dict[str, str]:
    """Return an environment that hides the user's own clusters from the tests.

    Args:
        python: of the virtual environment whose programs come first.
    """
    foreign = ("CEPH_", "KUBECONFIG", "RBDAGENT_", "PYTEST_", "NODE_NAME")
    ours = (
        "RBDAGENT_CACHE",
        "RBDAGENT_LAB",
        "RBDAGENT_CEPHCSI",
        "RBDAGENT_FUZZ_",
        "RBDAGENT_EPISODES",
        "RBDAGENT_HEALTHY_",
        "RBDAGENT_RECORD",
        "RBDAGENT_TEST_LAB",
    )
    env = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(ours) or not name.startswith(foreign)
    }
    path = env.get("PATH", "/usr/bin:/bin")
    env["PATH"] = f"{(python or venv_python()).parent}:{bin_dir()}:{path}:/usr/sbin:/sbin"
    env["LC_ALL"] = "C.UTF-8"
    env["PYTHONUNBUFFERED"] = "1"
    env["RBDAGENT_CACHE"] = str(cache_dir())
    return env


if __name__ == "__main__":
    sys.exit(main())
