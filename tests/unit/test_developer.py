"""The counts of ./dev test, and its clear report of what did not run."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from tests.lab import developer
from tests.lab.developer import Outcome
from tests.lab.errors import LabError
from tests.lab.junit import count, recorded
from tests.lab.parts import chosen_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

JUNIT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"/>
<testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><error message="setup"/></testcase>
<testcase name="e"><skipped message="no Ceph"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name no parts: their versions are those of installed packages."""
    monkeypatch.setattr(developer, "parts_line", str)


def test_errors_count_as_failures_and_skipped_tests_as_neither(tmp_path: Path) -> None:
    junit = tmp_path / "unit.xml"
    junit.write_text(JUNIT)
    assert count(junit) == (2, 2, 1)


def test_properties_recorded_by_a_test_are_read_back(tmp_path: Path) -> None:
    junit = tmp_path / "integration.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase name="one"><properties>'
        '<property name="said" value="exit 22&#10;no" /></properties></testcase>'
        "</testsuite></testsuites>"
    )
    assert recorded(junit) == {"said": "exit 22\nno"}


def test_run_without_a_result_counts_nothing(tmp_path: Path) -> None:
    assert count(tmp_path / "none.xml") == (0, 0, 0)


@pytest.mark.parametrize(("in_ci", "state", "code"), [("", "not run", 0), ("true", "FAILED", 1)])
def test_tier_that_cannot_run_is_announced_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_ci: str,
    state: str,
    code: int,
) -> None:
    monkeypatch.setenv("CI", in_ci)
    outcome = developer._not_run("e2e", "no /dev/net/tun")
    assert outcome.state == state
    assert developer._conclude([outcome], seconds=0) == code
    assert "e2e is NOT RUN: no /dev/net/tun" in capsys.readouterr().err


def test_the_last_line_sums_all_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [
        Outcome(tier="lint", state="passed", seconds=1, ran="ruff", passed=4),
        Outcome(tier="unit", state="FAILED", seconds=2, ran="9 tests", passed=7, failed=2),
    ]
    assert developer._conclude(outcomes, seconds=3) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "11 passed, 2 failed"


def test_quick_needs_neither_packages_nor_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, Sequence[str]]] = []

    def pytest_of(tier: str, args: Sequence[str]) -> Outcome:
        ran.append((tier, args))
        return Outcome(tier=tier, state="passed", seconds=1, ran="9 tests", passed=9)

    lint = Outcome(tier="lint", state="passed", seconds=1, ran="ruff", passed=4)
    monkeypatch.setattr(developer, "install_quick", lambda _: None)
    monkeypatch.setattr(developer, "_lint", lambda _: lint)
    monkeypatch.setattr(developer, "_pytest", pytest_of)
    monkeypatch.setenv("RBDAGENT_FUZZ_STATES", "1")
    assert developer._test(["quick"]) == 0
    assert ran == [("quick", ())]
    command, _ = developer._command("quick", ran[0][1], name="")
    assert command[0].endswith("/venv-quick/bin/python")
    assert {"tests/unit", "tests/contract", "--quick", "--rows"} <= {*command}


def test_plugin_needs_neither_packages_nor_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str]) -> int:
        ran.append(command)
        return 0

    monkeypatch.setattr(developer, "install_quick", lambda _: None)
    monkeypatch.setattr(developer, "_run", run)
    assert developer._plugin(["out"]) == 0
    ((python, *words),) = ran
    assert python.endswith("/venv-quick/bin/python")
    assert words == ["-m", "release.plugin", "out"]


def test_quick_is_no_tier_among_others() -> None:
    with pytest.raises(LabError, match="no tier 'quick'"):
        developer._test(["unit", "quick"])


def test_site_does_not_replace_the_files_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(LabError, match="not empty"):
        developer._site([str(tmp_path)])


@pytest.mark.parametrize("place", [0, 1, 3])
def test_cephcsi_option_is_accepted_at_any_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: int
) -> None:
    program = tmp_path / "cephcsi"
    program.touch(mode=0o755)
    monkeypatch.setenv("RBDAGENT_CEPHCSI", "")
    args = ["-k", "founding", "-v"]
    args[place:place] = ["--cephcsi", str(program)]
    assert developer._use_cephcsi(args) == ["-k", "founding", "-v"]
    assert developer._environment()["RBDAGENT_CEPHCSI"] == str(program)


def test_cephcsi_that_is_not_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not a program"):
        developer._use_cephcsi(["--cephcsi", str(tmp_path)])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """Run e2e without a lab; return each run's name and the ceph-csi that it was given."""
    runs: list[tuple[str, str]] = []

    def record(name: str) -> Outcome:
        runs.append((name, developer._environment().get("RBDAGENT_CEPHCSI", "")))
        return Outcome(tier=name, state="passed", seconds=1, ran="1 test", passed=1)

    @contextlib.contextmanager
    def second_lab(tiers: Sequence[str]) -> Iterator[Callable[[], list[Outcome]]]:
        yield lambda: [record(name) for name in ("second lab", *tiers)]

    def pytest_of(tier: str, _args: object, *, name: str = "") -> Outcome:
        return record(name or tier)

    monkeypatch.delenv("RBDAGENT_CEPHCSI", raising=False)
    monkeypatch.delenv("RBDAGENT_TEST_LAB", raising=False)
    monkeypatch.setattr(developer, "shared_cephcsi", lambda: tmp_path)
    monkeypatch.setattr(developer, "install_lab", lambda _: None)
    monkeypatch.setattr(developer, "_memory_gib", lambda: 24.0)
    monkeypatch.setattr(developer, "_in_second_lab", second_lab)
    monkeypatch.setattr(developer, "_pytest", pytest_of)
    return runs


def second_lab(tmp_path: Path, *tiers: str) -> list[str]:
    """Run the tiers of a second lab, and return the tiers in its results."""
    results = tmp_path / "results.json"
    assert developer._second_lab([str(results), *tiers]) == 0
    return [outcome["tier"] for outcome in json.loads(results.read_text())]


def test_founding_incident_also_runs_with_the_shared_ceph_csi(
    runs: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert second_lab(tmp_path) == ["e2e-alone", "e2e-cephcsi"]
    assert runs == [("e2e-alone", ""), ("e2e-cephcsi", str(tmp_path))]
    assert "RBDAGENT_CEPHCSI" not in developer._environment()


def test_no_tier_is_repeated_without_a_ceph_csi(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(developer, "shared_cephcsi", lambda: None)
    assert second_lab(tmp_path, "newest") == ["e2e-alone", "newest"]
    assert runs == [("e2e-alone", ""), ("newest", "")]


def test_selected_tests_run_once_in_one_lab(runs: list[tuple[str, str]]) -> None:
    developer._outcomes(["e2e"], {"e2e": None}, ("-k", "luks"))
    assert runs == [("e2e", "")]


@pytest.mark.parametrize(
    ("args", "played"),
    [
        (("-k", "free"), "tests/unit"),
        (("tests/unit/test_log.py", "-x"), "tests/unit/test_log.py"),
        (("tests/unit/test_log.py::test_a",), "tests/unit/test_log.py::test_a"),
    ],
)
def test_a_path_replaces_the_whole_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], played: str
) -> None:
    monkeypatch.setattr(developer, "cache_dir", lambda: tmp_path)
    command, _ = developer._command("unit", args, name="")
    assert [word for word in command if word.startswith("tests/")] == [played]


def test_floors_are_tested_in_their_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(developer, "cache_dir", lambda: tmp_path)
    command, _ = developer._command("floors", (), name="")
    python = tmp_path / "venv-floors" / "bin" / "python"
    assert command[0] == str(python)
    assert "tests/contract" in command
    path = developer._environment(developer._python_of("floors"))["PATH"]
    assert path.startswith(f"{python.parent}:")


@pytest.mark.parametrize(
    ("tiers", "given"), [(("floors",), ()), (("contract", "floors"), ("--rows", "16"))]
)
def test_floors_beside_other_tiers_take_some_rows_of_each_table(
    monkeypatch: pytest.MonkeyPatch, tiers: tuple[str, ...], given: tuple[str, ...]
) -> None:
    played: dict[str, tuple[str, ...]] = {}

    def pytest_of(tier: str, args: tuple[str, ...]) -> Outcome:
        played[tier] = args
        return Outcome(tier=tier, state="passed", seconds=1, ran="1 test", passed=1)

    monkeypatch.setattr(developer, "_pytest", pytest_of)
    developer._outcomes(tiers, dict.fromkeys(tiers), ())
    assert played == {**dict.fromkeys(tiers, ()), "floors": given}


def test_run_with_a_given_ceph_csi_is_not_repeated(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RBDAGENT_CEPHCSI", "/given")
    assert second_lab(tmp_path) == ["e2e-alone"]
    assert runs == [("e2e-alone", "/given")]


def test_second_lab_runs_other_debians_beside_the_first(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def in_second(tiers: Sequence[str]) -> Iterator[Callable[[], list[Outcome]]]:
        begun.append(tuple(name for name, _ in runs))
        names = ("e2e-alone", *tiers)
        yield lambda: [Outcome(tier=name, state="passed", seconds=1, ran="") for name in names]

    monkeypatch.setattr(developer, "_in_second_lab", in_second)
    tiers = ("unit", "integration", "e2e", "oldest", "newest")
    outcomes = developer._outcomes(tiers, dict.fromkeys(tiers), ())
    assert begun == [()]
    named = [outcome.tier for outcome in outcomes]
    assert named == ["unit", "integration", "e2e", "e2e-alone", "oldest", "newest"]


def test_second_lab_that_breaks_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(developer, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with developer._in_second_lab(()) as wait:
        (outcome,) = wait()
    assert (outcome.state, outcome.failed) == ("FAILED", 1)


@pytest.mark.parametrize(
    ("obstacle", "memory_gib"), [(None, 8.0), ("no /dev/net/tun", 24.0)], ids=["memory", "no lab"]
)
def test_no_second_lab_starts_if_two_do_not_fit(
    runs: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    obstacle: str | None,
    memory_gib: float,
) -> None:
    monkeypatch.setattr(developer, "_memory_gib", lambda: memory_gib)
    developer._outcomes(["e2e"], {"e2e": obstacle}, ())
    assert "second lab" not in [name for name, _ in runs]


def test_kept_lab_is_the_only_one(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_TEST_LAB", "kept")
    developer._outcomes(["e2e"], {"e2e": None}, ())
    assert "second lab" not in [name for name, _ in runs]


def test_number_of_episodes_reaches_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    def play(*_: object) -> int:
        played.append(developer._environment()["RBDAGENT_EPISODES"])
        return 0

    monkeypatch.setattr(developer, "_run_tiers", play)
    monkeypatch.setenv("RBDAGENT_EPISODES", "")
    monkeypatch.setenv("RBDAGENT_EPISODES_SEED", "")
    assert developer._soak(["7"]) == 0
    assert played == ["7"]


@pytest.mark.parametrize("failing", [0, 1])
def test_fuzz_runs_inputs_and_then_properties_with_one_seed(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    played: list[list[str]] = []

    def play(args: list[str]) -> int:
        played.append(args)
        return int(len(played) == failing)

    monkeypatch.setattr(developer, "install_python", lambda _: None)
    monkeypatch.setattr(developer, "_python", play)
    monkeypatch.setenv("RBDAGENT_FUZZ_STATES", "")
    monkeypatch.setenv("RBDAGENT_FUZZ_SEED", "")
    assert developer._fuzz(["10", "7"]) == failing
    assert played[0] == ["-m", "tests.fuzz", "10", "7"]
    assert "--hypothesis-seed=7" in played[1]
    environment = developer._environment()
    assert (environment["RBDAGENT_FUZZ_STATES"], environment["RBDAGENT_FUZZ_SEED"]) == ("5", "7")


@pytest.mark.parametrize(("tier", "debian"), [("oldest", "12"), ("newest", "forky")])
def test_tier_of_one_debian_has_its_parts_despite_other_choices(
    monkeypatch: pytest.MonkeyPatch, tier: str, debian: str
) -> None:
    monkeypatch.setenv("RBDAGENT_LAB_CEPH", "18.2")
    monkeypatch.setenv("RBDAGENT_LAB_DEBIAN", "13")
    with developer._debian_of(tier):
        parts = chosen_parts(developer._environment())
        assert (parts.debian, parts.ceph, parts.kernel) == (parts.debian,) * 3
        assert parts.debian.debian == debian
    environment = developer._environment()
    assert environment["RBDAGENT_LAB_CEPH"] == "18.2"
    assert environment["RBDAGENT_LAB_DEBIAN"] == "13"


def test_clusters_of_the_user_do_not_reach_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/root/production.yaml")
    monkeypatch.setenv("CEPH_CONF", "/etc/ceph/production.conf")
    environment = developer._environment()
    assert not {"KUBECONFIG", "CEPH_CONF"} & environment.keys()


@pytest.mark.parametrize(("codes", "written"), [((0, 0, 0), 3), ((0, 0, 1), 3), ((1,), 1)])
def test_lock_writes_runtime_test_and_oldest_requirements(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], written: int
) -> None:
    commands: list[list[str]] = []
    ends = iter(codes)

    def run(command: list[str]) -> int:
        commands.append(command)
        return next(ends)

    monkeypatch.setattr(developer, "install_python", lambda _: None)
    monkeypatch.setattr(developer, "_run", run)
    assert developer._lock(["--upgrade"]) == max(codes)
    files = [command[command.index("--output-file") + 1] for command in commands]
    lists = ["requirements.txt", "requirements-dev.txt", "requirements-floors.txt"]
    assert files == lists[:written]
    assert ["lowest-direct" in command for command in commands] == [False, False, True][:written]
    assert all("--upgrade" in command for command in commands)
