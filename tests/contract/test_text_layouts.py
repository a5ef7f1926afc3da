"""The text of check, unmap, list and explain: the answer first, in the width of the terminal."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from rbdagent.catalog import CATALOG, explanation
from rbdagent.cli.pages import page_of
from rbdagent.correlate import correlate_node
from rbdagent.model import CheckResult, CheckState, Snapshot, UnmapPlan, UnmapRefusal
from rbdagent.preflight import check_all
from rbdagent.report.text.check import check_lines
from rbdagent.report.text.explain import explanation_lines, list_line, list_lines
from rbdagent.report.text.layout import Layout
from rbdagent.report.text.mappings import mapping_table
from rbdagent.report.text.unmap import unmap_plan, unmap_refusal
from rbdagent.rules import diagnose
from tests.support.cli_runner import on_terminal, process
from tests.support.rows import each_row
from tests.support.snapshots import FAILED, NOWHERE, POD_PATH, mount, opener, pod, world
from tests.support.unmap_plans import LEAVE, history, planned, seen

every_width = each_row("width", [60, 80, 200])
_COMMANDS: Final = ("  rbdagent ", "          -> ", "  -> ")
"""The beginnings of lines to copy, which are never wrapped."""


def too_wide(text: str, width: int) -> list[str]:
    lines = text.splitlines()
    return [line for line in lines if len(line) > width and not line.startswith(_COMMANDS)]


def repeated(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if len(line.split()) > 2]
    return {line for line in lines if lines.count(line) > 1}


# check --------------------------------------------------------------------------------------------

OK: Final = CheckResult(source="node", sentence="RBD devices can be seen", state=CheckState.OK)
NO_ROOT: Final = CheckResult(
    source="node",
    sentence="kubelet's directory exists",
    failure="kubelet's directory was not found",
    state=CheckState.WARNING,
    hint="pass --kubelet-root",
)
NO_CEPH: Final = CheckResult(
    source="ceph",
    sentence="cluster east answers client.rbdagent",
    failure="cluster east does not answer client.rbdagent",
    state=CheckState.FAILED,
    detail="no monitor of the cluster has answered within ten seconds, nor any other daemon of it",
    hint="ceph --connect-timeout 10 -n client.rbdagent --keyring /etc/ceph/a-long-name.keyring -s",
)
FLAG: Final = CheckResult(
    source="configuration", sentence="--timeout is 30s", state=CheckState.OK, detail="default"
)
RESULTS: Final = (FLAG, OK, NO_ROOT, NO_CEPH)


def test_check_begins_with_the_number_of_failures() -> None:
    text = check_lines(RESULTS, Layout(width=200))
    summary, node, ceph, details = text.rstrip("\n").split("\n\n")
    assert summary == ("FAILED  1 of 3 checks failed: answers will have gaps, and report them.")
    assert node.splitlines() == [
        "node",
        "  warning kubelet's directory was not found",
        "          -> pass --kubelet-root",
        "  1 ok",
    ]
    assert ceph.splitlines()[1].startswith("  FAILED  cluster east does not answer client.rbdagent")
    assert details == "details: -v"


def test_check_without_failures_is_ok() -> None:
    assert check_lines((OK,), Layout()).startswith("OK  All required checks passed.\n")
    assert check_lines((OK, NO_ROOT), Layout()).startswith(
        "OK  All required checks passed; 1 warning.\n"
    )


def test_details_of_check_have_every_check_and_flag() -> None:
    text = check_lines(RESULTS, Layout(width=200, details=True))
    assert "  ok      RBD devices can be seen\n" in text
    assert "  ok      --timeout is 30s: default\n" in text


@every_width
def test_check_has_the_width_of_the_terminal(width: int) -> None:
    text = check_lines(RESULTS, Layout(width=width))
    assert too_wide(text, width) == []
    assert repeated(text) == set()


def test_every_failed_check_states_its_failure() -> None:
    results = check_all(NOWHERE, {})
    problems = [
        result for result in results if result.state in {CheckState.FAILED, CheckState.WARNING}
    ]
    assert problems
    assert all(result.failure and result.failure != result.sentence for result in problems)


# unmap --------------------------------------------------------------------------------------------


def refusal(snapshot: Snapshot) -> UnmapRefusal:
    found = planned(snapshot, remembered=history(), policy=LEAVE)
    assert isinstance(found, UnmapRefusal)
    return found


HELD: Final = seen(mapped={"openers": (opener(),)})


@every_width
@pytest.mark.parametrize("details", [False, True])
def test_refusal_has_the_width_of_the_terminal(width: int, *, details: bool) -> None:
    text = unmap_refusal(refusal(HELD), Layout(width=width, details=details))
    assert too_wide(text, width) == []
    assert repeated(text) == set()


def test_refusal_begins_with_its_first_reason() -> None:
    found = refusal(HELD)
    first = next(condition for condition in found.conditions if not condition.met)
    text = unmap_refusal(found, Layout(width=300))
    assert text.startswith(f"Not unmapped: {first.observed[0]} ({first.code}).\n")
    assert text.count(first.observed[0]) == 1
    assert "Cannot be decided offline" not in text


def test_plan_begins_with_the_mapping() -> None:
    found = planned(seen(), remembered=history(), policy=LEAVE)
    assert isinstance(found, UnmapPlan)
    text = unmap_plan(found, Layout())
    assert text.startswith("May be unmapped: /dev/rbd0 on worker-1")
    assert "all met: RBD501, RBD502" in text
    assert too_wide(text, 80) == []


# list ---------------------------------------------------------------------------------------------


def listed(snapshot: Snapshot, layout: Layout) -> str:
    found = [diagnose(volume, snapshot) for volume in correlate_node(snapshot)]
    return mapping_table(found, snapshot, layout)


def test_list_begins_with_what_needs_attention() -> None:
    text = listed(seen(), Layout())
    assert text.startswith("1 of 1 mapping on worker-1 needs attention: 1 Orphaned.\n\nDEVICE ")
    assert "Next:\n  rbdagent diagnose pv/" in text


def test_command_about_a_device_names_its_node() -> None:
    without_volume = seen(in_kube={"persistent_volumes": ()})
    assert "Next:\n  rbdagent diagnose /dev/rbd0  # on worker-1\n" in listed(
        without_volume, Layout()
    )
    text = unmap_refusal(refusal(HELD), Layout(program=("kubectl", "rbdagent")))
    assert "  kubectl rbdagent who-holds /dev/rbd0 --node worker-1\n" in text


def test_commands_of_a_list_only_read() -> None:
    text = listed(seen(), Layout())
    assert "unmap" not in text.partition("Next:")[2]


def test_healthy_list_without_a_source_is_healthy_as_far_as_observed() -> None:
    snapshot = world(
        in_kube={"pods": (pod(),)}, mapped={"mounts": (mount(path=POD_PATH),), "openers": ()}
    )
    assert listed(snapshot, Layout()).startswith("0 of 1 mapping on worker-1 needs attention: ")
    partial = replace(snapshot, sources=replace(snapshot.sources, ceph=FAILED), ceph=None)
    assert ", as far as observed: " in listed(partial, Layout()).partition("\n\n")[0]


@every_width
def test_list_has_the_width_of_the_terminal(width: int) -> None:
    text = listed(seen(), Layout(width=width))
    assert too_wide(text, width) == []
    assert repeated(text) == set()


def test_problem_names_its_subject_once() -> None:
    words = " ".join(listed(seen(), Layout()).split())
    assert "RBD101 error /dev/rbd0 on worker-1 is mapped, and nothing there uses it." in words


def test_verdict_of_a_row_has_its_colour() -> None:
    plain, coloured = (listed(seen(), Layout(colour=colour)) for colour in (False, True))
    assert "\x1b[31mOrphaned\x1b[0m" in coloured
    assert "\x1b" not in plain


# explain ------------------------------------------------------------------------------------------


@every_width
@each_row("code", CATALOG)
def test_explanation_has_the_width_of_the_terminal(code: str, width: int) -> None:
    explained = explanation(CATALOG[code], page_of(code))
    text = explanation_lines(explained, Layout(width=width))
    assert too_wide(text, width) == []
    assert text.split() == explained.split()


@every_width
@each_row("code", CATALOG)
def test_list_of_codes_has_every_word_of_a_summary(code: str, width: int) -> None:
    lines = list_lines(CATALOG[code], Layout(width=width))
    assert too_wide(lines, width) == []
    assert lines.split() == list_line(CATALOG[code]).split()


def test_list_of_codes_is_wrapped_on_a_terminal() -> None:
    shown = on_terminal("explain")
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.split() == process("explain").stdout.split()


def test_explain_wraps_on_a_terminal_only() -> None:
    assert max(map(len, on_terminal("explain", "RBD102").splitlines())) <= 80
