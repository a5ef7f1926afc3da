"""RBDNodes, Events and the record of acts contain only the pid and the program of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.model import ProcessRef, UnmapPolicy, UnmapRefusal
from rbdagent.report.public import public_text
from rbdagent.unmap.executor import Attempt, UnmapContext
from rbdagent.unmap.state_store import StateDir
from rbdagent.verdicts.evidence import opener_text, process_text
from tests.support.hostile_texts import is_clean
from tests.support.snapshots import opener, process, target
from tests.support.unmap_plans import GRACE_S, LAST_CYCLE, history, seen

if TYPE_CHECKING:
    from pathlib import Path


ARGUMENT: Final = "-pHUNTER2"
COMMAND: Final = f"/usr/bin/mysql (a) {ARGUMENT} (b)"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/usr/bin/mysql -pX", "mysql"),
        ("sleep 100000", "sleep"),
        ("postgres: writer process", "postgres:"),
        ("[jbd2/rbd0-8]", "[jbd2/rbd0-8]"),
        ("", ""),
    ],
)
def test_program_is_named_without_directory_and_arguments(command: str, program: str) -> None:
    assert ProcessRef(pid=1, command=command).program == program


def test_public_sentence_names_a_hostile_program_in_quotes() -> None:
    for name, public in (("app)", '"app)"'), ('a"b\\', '"a\\"b\\\\"'), ("app", "app")):
        found = process(command=f"/bin/{name} until then.) process 1 (", is_public=True)
        assert process_text(found) == f"process 4623 ({public})"


def test_public_sentence_lacks_only_the_command_line() -> None:
    found = opener(
        process=process(command=COMMAND, pod_uid="p-1", is_public=True), kind="fd", path="/data/x"
    )
    assert opener_text(found) == "process 4623 (mysql) of pod p-1 has an open file on it (/data/x)"


def test_process_without_a_program_has_no_name_in_public() -> None:
    for command in ("", " -p"):
        assert process_text(process(command=command, is_public=True)) == "process 4623 (no name)"


def test_public_sentence_has_only_the_ends_of_a_long_path() -> None:
    found = opener(path="/data/" + "x y" * 1000 + "/end", kind="fd")
    published = public_text(opener_text(found))
    assert len(published) < 400
    assert '("/data/x yx' in published
    assert published.endswith('yx y/end")')


@given(st.text(st.characters(categories=["L", "N", "P", "Zs", "Cc"]), max_size=30))
def test_no_argument_is_public(argument: str) -> None:
    found = process(command=f"/bin/app {argument}", is_public=True)
    public = public_text(f"{process_text(found)} has the device open")
    assert public == "process 4623 (app) has the device open"
    assert is_clean(public)


def test_record_of_acts_names_only_program_and_pid(tmp_path: Path) -> None:
    """`rbdagent unmap` writes the record, and the agent on the node publishes it."""
    look = seen(mapped={"openers": (opener(process=process(command=COMMAND, is_public=True)),)})
    state = StateDir(tmp_path)
    attempt = Attempt(
        target(),
        lambda _: look,
        lambda _: look,
        unmap_context=UnmapContext(
            by="root",
            policy=UnmapPolicy(may_unmap=True, grace_s=GRACE_S),
            freeze_file=tmp_path / "x",
            state=state,
        ),
        history=history(),
        clock=lambda: LAST_CYCLE,
    )  # fmt: skip
    refusal = attempt.decide()
    assert isinstance(refusal, UnmapRefusal)
    attempt.refuse(refusal)
    written = (tmp_path / "acts.json").read_text()
    assert ARGUMENT not in written
    assert "process 4623 (mysql) has its working directory on it" in written
