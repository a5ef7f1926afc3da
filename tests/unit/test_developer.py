"""./dev test counts what ran, and says loudly what did not."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.lab import developer
from tests.lab.developer import Outcome
from tests.lab.errors import LabError
from tests.lab.junit import count, recorded
from tests.lab.parts import chosen_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JUNIT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"/>
<testcase name="c"><failure message="no"/></testcase>
<testcase name="d"><error message="setup"/></testcase>
<testcase name="e"><skipped message="no Ceph"/></testcase>
</testsuite></testsuites>"""


def test_errors_count_as_failures_and_skipped_tests_as_neither(tmp_path: Path) -> None:
    junit = tmp_path / "unit.xml"
    junit.write_text(JUNIT)
    assert count(junit) == (2, 2, 1)


def test_what_a_test_recorded_is_read_back(tmp_path: Path) -> None:
    junit = tmp_path / "integration.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase name="one"><properties>'
        '<property name="said" value="exit 22&#10;no" /></properties></testcase>'
        "</testsuite></testsuites>"
    )
    assert recorded(junit) == {"said": "exit 22\nno"}


def test_a_run_that_left_no_result_counts_nothing(tmp_path: Path) -> None:
    assert count(tmp_path / "none.xml") == (0, 0, 0)


@pytest.mark.parametrize(("in_ci", "state", "code"), [("", "not run", 0), ("true", "FAILED", 1)])
def test_a_tier_that_cannot_run_is_announced_and_fails_in_ci(
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


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_real_ceph_csi_may_be_named_anywhere_among_a_verbs_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: int
) -> None:
    program = tmp_path / "cephcsi"
    program.touch(mode=0o755)
    monkeypatch.setenv("RBDAGENT_CEPHCSI", "")
    args = ["-k", "founding", "-v"]
    args[place:place] = ["--cephcsi", str(program)]
    assert developer._use_cephcsi(args) == ["-k", "founding", "-v"]
    assert developer._environment()["RBDAGENT_CEPHCSI"] == str(program)


def test_a_ceph_csi_that_is_no_program_is_refused(tmp_path: Path) -> None:
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
    def second_lab() -> Iterator[Callable[[], Outcome]]:
        yield lambda: record("e2e-alone")

    def pytest_of(tier: str, _args: object, *, name: str = "") -> Outcome:
        return record(name or tier)

    monkeypatch.delenv("RBDAGENT_CEPHCSI", raising=False)
    monkeypatch.delenv("RBDAGENT_TEST_LAB", raising=False)
    monkeypatch.setattr(developer, "shared_cephcsi", lambda: tmp_path)
    monkeypatch.setattr(developer, "install_lab", lambda _: None)
    monkeypatch.setattr(developer, "_memory_gib", lambda: 24.0)
    monkeypatch.setattr(developer, "_alone_in_second_lab", second_lab)
    monkeypatch.setattr(developer, "_pytest", pytest_of)
    return runs


def test_the_founding_incident_is_played_with_a_ceph_csi_beside_the_checkout(
    runs: list[tuple[str, str]], tmp_path: Path
) -> None:
    developer._outcomes(["e2e"], {"e2e": None}, ())
    assert runs == [("e2e", ""), ("e2e-cephcsi", str(tmp_path)), ("e2e-alone", "")]
    assert "RBDAGENT_CEPHCSI" not in developer._environment()


def test_without_a_ceph_csi_nothing_is_repeated(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(developer, "shared_cephcsi", lambda: None)
    developer._outcomes(["e2e"], {"e2e": None}, ())
    assert runs == [("e2e", ""), ("e2e-alone", "")]


def test_chosen_tests_are_played_once_in_one_lab(runs: list[tuple[str, str]]) -> None:
    developer._outcomes(["e2e"], {"e2e": None}, ("-k", "luks"))
    assert runs == [("e2e", "")]


def test_a_run_with_a_given_ceph_csi_is_not_repeated_with_another(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_CEPHCSI", "/given")
    developer._outcomes(["e2e"], {"e2e": None}, ())
    assert runs == [("e2e", "/given"), ("e2e-alone", "/given")]


def test_the_second_lab_begins_beside_the_first_tier_of_the_lab(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def second_lab() -> Iterator[Callable[[], Outcome]]:
        begun.append(tuple(name for name, _ in runs))
        yield lambda: Outcome(tier="e2e-alone", state="passed", seconds=1, ran="1 test", passed=1)

    monkeypatch.setattr(developer, "_alone_in_second_lab", second_lab)
    tiers = ("unit", "integration", "e2e")
    outcomes = developer._outcomes(tiers, dict.fromkeys(tiers), ())
    assert begun == [("unit",)]
    assert [outcome.tier for outcome in outcomes] == [*tiers, "e2e-cephcsi", "e2e-alone"]


@pytest.mark.parametrize(
    ("obstacle", "memory_gib"), [(None, 8.0), ("no /dev/net/tun", 24.0)], ids=["memory", "no lab"]
)
def test_where_two_labs_do_not_fit_there_is_no_second(
    runs: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    obstacle: str | None,
    memory_gib: float,
) -> None:
    monkeypatch.setattr(developer, "_memory_gib", lambda: memory_gib)
    developer._outcomes(["e2e"], {"e2e": obstacle}, ())
    assert "e2e-alone" not in [name for name, _ in runs]


def test_a_lab_that_is_kept_is_the_only_one(
    runs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_TEST_LAB", "kept")
    developer._outcomes(["e2e"], {"e2e": None}, ())
    assert "e2e-alone" not in [name for name, _ in runs]


def test_how_many_episodes_to_play_reaches_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_fuzz_plays_inputs_and_then_properties_with_one_seed(
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
def test_a_tier_of_one_debian_has_its_parts_whatever_was_chosen(
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


def test_nothing_of_the_users_own_clusters_reaches_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/root/production.yaml")
    monkeypatch.setenv("CEPH_CONF", "/etc/ceph/production.conf")
    environment = developer._environment()
    assert not {"KUBECONFIG", "CEPH_CONF"} & environment.keys()


@pytest.mark.parametrize(("codes", "written"), [((0, 0), 2), ((1,), 1)])
def test_lock_writes_what_is_handed_out_and_then_what_tests_run_with(
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
    assert files == ["requirements.txt", "requirements-dev.txt"][:written]
    assert all("--upgrade" in command for command in commands)
