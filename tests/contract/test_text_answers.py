"""The text of who-holds and diagnose: the answer first, short, and complete with details.

The snapshots are recordings of real nodes, and the recorded states of the scenarios.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from rbdagent.catalog import CATALOG, explanation
from rbdagent.cli.pages import page_of
from rbdagent.commands import sentence_of
from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.model import Diagnosis, Snapshot, Source, SourceState, Verdict, stated
from rbdagent.parse.shown import shown
from rbdagent.report.snapshot import load_snapshot
from rbdagent.report.text.holders import answer
from rbdagent.report.text.layout import Layout, sentences
from rbdagent.report.text.lifecycle import headline, story
from rbdagent.rules import coverage_gaps, diagnose
from tests.support.cli_runner import ask
from tests.support.recordings import recorded_snapshot
from tests.support.rows import each_row
from tests.support.rule_tables import mounting
from tests.support.snapshots import JUST_NOW, waiting_pod

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT: Final = Path(__file__).parents[2]
_FILES: Final = {
    path.stem: path
    for path in (
        *sorted((_ROOT / "examples").glob("*.json")),
        *sorted((_ROOT / "tests" / "fixtures" / "life").glob("*.json")),
    )
}
_RECORDED: Final = (
    ("01-fs-running", "c1", "n1"),
    ("05-force-delete-kubelet-stopped", "c1", "n1"),
    ("06-after-6min-force-detach", "c1", "n1"),
    ("09b-pinned", "c1", "n1"),
    ("12-pinned-by-cwd-invisible", "c12", "n1"),
    ("13-after-kubelet-restart", "c12", "n1"),
    ("15-plugin-stopped", "c1", "n1"),
    ("18-staging-left-mounted", "c7", "n1"),
    ("20-nbd-killed", "cn", "n2"),
    ("21-enc-dm-held", "ce", "n1"),
    ("22-xfs-lazy", "cx", "n1"),
    ("23-blocklisted", "cb1", "n1"),
    ("24-read-only-and-shared", "cn", "n2"),
    ("24-read-only-and-shared", "crox", "n1"),
    ("25-rollback-failing", "cl", "n1"),
    ("25-after", "cl", "n1"),
    ("26-not-backed", "cz", "n1"),
    ("28-orphan-blocks-delete", "cq", "n2"),
    ("30-two-writers-after-blocklist-rm", "ch", "n1"),
    ("30-two-writers-after-blocklist-rm", "cm", "n1"),
    ("30-two-writers-after-blocklist-rm", "cn", "n2"),
)
NAMES: Final = (*_FILES, *(" ".join(row) for row in _RECORDED))

FOUNDING: Final = ("multi-attach", "true-orphan", "founding_pinned", "founding_orphan")
MOST_LINES: Final = 18
LONGER: Final = {
    # A gap, whose line wraps at 80 columns, with a second problem or a fourth command.
    "05-force-delete-kubelet-stopped c1 n1": 19,
    "06-after-6min-force-detach c1 n1": 20,
    "15-plugin-stopped c1 n1": 19,
    "23-blocklisted cb1 n1": 20,
    "25-rollback-failing cl n1": 21,
    "28-orphan-blocks-delete cq n2": 19,
    # Names of pods that fill a line, and two or more problems.
    "attachment_of_a_deleted_node": 20,
    "driver_gone_from_the_old_node": 19,
    "evicted_from_a_silent_node": 25,
    "kept_by_another_pod": 19,
    "replicas_with_one_claim": 20,
    "rolling_update": 20,
    "rolling_update_with_surge": 21,
    "runs_on_a_silent_node": 20,
    "unmount_fails": 19,
    "unmount_fails_before_the_pod_is_gone": 20,
    # The headline states why a node may have the client; the names of node and volume fill lines.
    "client_at_an_unknown_address": 22,
    "client_on_a_second_network": 22,
}
"""Answers about one holder that have more lines at 80 columns."""

_COMMAND: Final = re.compile(r"  \d+\. (?:see|change|check) |  -> ")
"""The beginning of a line to copy, which is never wrapped."""


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Snapshot]:
    @functools.cache
    def loaded(name: str) -> Snapshot:
        if name in _FILES:
            return load_snapshot(_FILES[name].read_text(), where=name)
        recording, claim, node = name.split()
        root = tmp_path_factory.mktemp("recording")
        return recorded_snapshot(recording, claim, node_name=node, root=root)

    return loaded


def who_holds(snapshot: Snapshot, layout: Layout) -> str:
    return answer(diagnosis_of(snapshot), snapshot, layout)


def diagnosed(snapshot: Snapshot, layout: Layout) -> str:
    return story(lifecycle_of(correlate(snapshot), snapshot), snapshot, layout)


def diagnosis_of(snapshot: Snapshot) -> Diagnosis:
    return diagnose(correlate(snapshot), snapshot)


def words_of(text: str) -> str:
    return " ".join(text.split())


VERBS: Final = (who_holds, diagnosed)
every_name = each_row("name", NAMES)
every_width = each_row("width", [80, 200])
every_verb = each_row("verb", VERBS)


@every_verb
@every_width
@every_name
def test_first_line_is_the_verdict_and_its_cause(
    load: Callable[[str], Snapshot], name: str, width: int, verb: Callable[..., str]
) -> None:
    first = verb(load(name), Layout(width=width)).partition("\n")[0]
    assert re.match(r"[A-Z ]+  \S", first)
    assert not re.search(r"  RBD\d", first)


@every_verb
@every_width
@every_name
def test_only_commands_are_wider_than_the_terminal(
    load: Callable[[str], Snapshot], name: str, width: int, verb: Callable[..., str]
) -> None:
    lines = verb(load(name), Layout(width=width)).splitlines()
    assert [line for line in lines if len(line) > width and not _COMMAND.match(line)] == []


@every_verb
@every_width
@every_name
def test_no_line_is_printed_twice(
    load: Callable[[str], Snapshot], name: str, width: int, verb: Callable[..., str]
) -> None:
    text = verb(load(name), Layout(width=width))
    # The last words of two wrapped texts may be equal.
    lines = [line for line in text.splitlines() if len(line.split()) > 2]
    assert len(set(lines)) == len(lines)


@every_width
@every_name
def test_answer_about_one_holder_fits_a_screen(
    load: Callable[[str], Snapshot], name: str, width: int
) -> None:
    snapshot = load(name)
    if len(diagnosis_of(snapshot).holders) == 1:
        most = LONGER.get(name, MOST_LINES) if width < 100 else MOST_LINES
        assert len(who_holds(snapshot, Layout(width=width)).splitlines()) <= most


def test_founding_incident_is_no_exception() -> None:
    assert not set(FOUNDING) & set(LONGER)


@every_verb
@every_name
def test_details_contain_every_fact(
    load: Callable[[str], Snapshot], name: str, verb: Callable[..., str]
) -> None:
    snapshot = load(name)
    details = words_of(verb(snapshot, Layout(width=100, details=True)))
    diagnosis = diagnosis_of(snapshot)
    for finding in diagnosis.findings:
        if finding.code in coverage_gaps.CODES:
            continue
        facts = [finding.code, *finding.evidence, finding.cause, finding.consequence]
        facts += [*sentences(sentence_of(finding.remedy)), str(finding.recovery or "")]
        facts = [shown(fact) for fact in facts]
        assert [fact for fact in facts if words_of(fact) not in details] == []
    gaps = [gap for _, source in snapshot.sources.named for gap in source.gaps]
    assert [gap for gap in gaps if words_of(gap.reason) not in details] == []


TOO_SMALL: Final = "image_too_small_for_its_file_system"
CAUSE: Final = "size 2048 of data subvolume is too small, minimum 4096 blocks"
"""In the middle of a long event: mkfs adds its usage."""


def test_details_quote_a_whole_event(load: Callable[[str], Snapshot]) -> None:
    assert CAUSE in words_of(diagnosed(load(TOO_SMALL), Layout(width=100, details=True)))


@pytest.mark.parametrize("form", ["json", "html"])
def test_other_outputs_quote_a_whole_event(form: str) -> None:
    file = _FILES[TOO_SMALL]
    pod = load_snapshot(file.read_text(), where=TOO_SMALL).target.argument
    assert CAUSE in ask("diagnose", pod, "--from", str(file), "-o", form).stdout


def test_answer_has_room_for_a_part_of_an_event(load: Callable[[str], Snapshot]) -> None:
    diagnosis = diagnosis_of(load(TOO_SMALL))
    (event,) = (text for text in diagnosis.findings[0].evidence if CAUSE in text)
    statement = stated("It cannot start: {event}.", event=event)
    long = replace(diagnosis.findings[0], statement=statement)
    text = answer(replace(diagnosis, findings=(long,)), load(TOO_SMALL), Layout())
    assert CAUSE in words_of(text)
    assert "Usage" in words_of(text)
    assert "inobtcount" not in text


def test_waiting_is_no_advice_for_a_step_that_fails(load: Callable[[str], Snapshot]) -> None:
    """An xfs option that mount refuses: kubelet's retries do not help."""
    text = words_of(who_holds(load("another_file_system"), Layout()))
    assert text.startswith("STAGED ")
    assert "Also RBD753 " in text
    assert "Wait, then" not in text
    assert "Recovery" not in text


def test_waiting_is_the_advice_for_a_step_in_progress() -> None:
    snapshot = mounting(pods=(waiting_pod(placed_at=JUST_NOW),))
    text = words_of(answer(diagnosis_of(snapshot), snapshot, Layout()))
    assert "Wait, then run the command again." in text
    assert "Recovery kubelet and the CSI driver" in text


@every_verb
def test_details_keep_the_sentence_to_which_the_next_one_refers(
    load: Callable[[str], Snapshot], verb: Callable[..., str]
) -> None:
    details = words_of(verb(load("multi-attach"), Layout(details=True)))
    (pinned,) = (one for one in diagnosis_of(load("multi-attach")).findings if one.code == "RBD102")
    assert words_of(f"RBD102 error {pinned.subject} {pinned.message} -") in details
    assert words_of(f"Remedy: {sentence_of(pinned.remedy)}") in details


@every_verb
def test_details_omit_a_message_that_the_headline_has_in_full(
    load: Callable[[str], Snapshot], verb: Callable[..., str]
) -> None:
    details = words_of(verb(load("01-fs-running c1 n1"), Layout(details=True)))
    (used,) = (
        one for one in diagnosis_of(load("01-fs-running c1 n1")).findings if one.code == "RBD100"
    )
    assert details.count(words_of(used.message)) == 1


_TYPED_ON_A_NODE: Final = re.compile(
    r"(?<!kubectl )rbdagent (who-holds|diagnose|list|unmap|snapshot|check|explain)\b"
)


@every_verb
@every_name
def test_plugin_starts_every_verb_that_a_text_names(
    load: Callable[[str], Snapshot], name: str, verb: Callable[..., str]
) -> None:
    details = words_of(verb(load(name), Layout(details=True, program=("kubectl", "rbdagent"))))
    assert not _TYPED_ON_A_NODE.search(details)


@each_row("code", CATALOG)
def test_plugin_starts_every_verb_that_an_explanation_names(code: str) -> None:
    text = explanation(CATALOG[code], page_of(code), ("kubectl", "rbdagent"))
    assert not _TYPED_ON_A_NODE.search(text)


@every_name
def test_only_the_verdict_free_reads_as_free(load: Callable[[str], Snapshot], name: str) -> None:
    snapshot = load(name)
    is_free = diagnosis_of(snapshot).verdict is Verdict.FREE
    assert who_holds(snapshot, Layout()).startswith("FREE  ") is is_free


@every_name
def test_unobserved_source_is_named(load: Callable[[str], Snapshot], name: str) -> None:
    snapshot = load(name)
    text = words_of(who_holds(snapshot, Layout()))
    missing = [source for _, source in snapshot.sources.named if source.reason]
    missing_facts = [source.gaps[0].fact for _, source in snapshot.sources.named if source.gaps]
    assert [source for source in missing if words_of(source.reason)[:40] not in text] == []
    assert [fact for fact in missing_facts if words_of(fact) not in text] == []


def test_step_that_waits_is_not_in_progress(load: Callable[[str], Snapshot]) -> None:
    """A Released PV with the policy Retain is never bound again."""
    text = diagnosed(load("released_and_retained"), Layout())
    assert text.startswith("INFO  released-and-retained is Released: its claim")
    assert "No client holds" in text or "No holder of" in text


def test_step_that_waits_is_no_proof_where_a_source_was_not_read(
    load: Callable[[str], Snapshot],
) -> None:
    seen = load("kept_for_nobody")
    failed = Source(state=SourceState.FAILED, reason="no monitor answered")
    without = replace(seen, ceph=None, sources=replace(seen.sources, ceph=failed))
    life, missing = (lifecycle_of(correlate(each), each) for each in (seen, without))
    text = headline(replace(life, diagnosis=replace(life.diagnosis, findings=missing.gaps)))
    assert text.startswith("Nothing that was observed is broken; bind is pending. Ceph could not")


@pytest.mark.parametrize(
    ("name", "holder"),
    [
        ("founding_pinned", "Holder worker-1 /dev/rbd0 client.4150 certain"),
        ("evicted_from_a_silent_node", "Holder played-cut client.4165 probable"),
        ("held_by_a_stranger", "Holder node unknown client.4995 pod <not observed>"),
    ],
)
def test_holder_is_named_as_far_as_it_is_known(
    load: Callable[[str], Snapshot], name: str, holder: str
) -> None:
    assert holder in words_of(who_holds(load(name), Layout()))


FIRST_LINES: Final = {
    "founding_pinned": """\
PINNED  /dev/rbd0 on worker-1 is kept open: process 517 ("sleep 100000") has its working directory on it.
        default/founding-incident-12456d-worker-2 on worker-2 has waited 63s for the volume (RBD401).
""",  # noqa: E501 - as printed
    "founding_orphan": """\
ORPHANED  /dev/rbd0 on worker-1 is mapped, and nothing there uses it.
          default/founding-incident-12456d-worker-2 on worker-2 has waited 81s for the volume (RBD402).
""",  # noqa: E501 - as printed
    "05-force-delete-kubelet-stopped c1 n1": """\
IN USE  A container still runs on /dev/rbd0 on n1, and its pod (69142cb1-72fa-4d9d-80de-df431d3ea6f7) is no longer in the API: it was force-deleted.
        Stop its containers first. Never unmap the device under them.
""",  # noqa: E501 - as printed
    "23-blocklisted cb1 n1": """\
DEAD  The Ceph client of /dev/rbd0 on n1 is blocklisted: writes there fail (-108), and every new map on n1 fails too.
      The same client serves /dev/rbd0, /dev/rbd1: I/O fails on all of them. This affects default/pb2 as well. The entry expires 2026-11-21T02:26:53.479663+0000. Do not remove the entry while these
""",  # noqa: E501 - as printed
    "multi-attach": """\
PINNED  /dev/rbd0 on worker-1 is kept open: process 392 ("sleep 100000") has its working directory on it.
        default/app-2 on worker-2 has waited 27s for the volume (RBD401).
""",  # noqa: E501 - as printed
    "first_pod_missing": """\
UNDETERMINED  Claim default/first-pod-missing has no volume yet.

""",
    "01-fs-running c1 n1": """\
IN USE  /dev/rbd0 on n1: used by pod default/p1 on n1.

""",
}


@pytest.mark.parametrize(("name", "lines"), FIRST_LINES.items(), ids=FIRST_LINES)
def test_two_lines_answer_the_question(
    load: Callable[[str], Snapshot], name: str, lines: str
) -> None:
    assert who_holds(load(name), Layout(width=200)).startswith(lines)
