"""RBDNodes, Events and the record of acts contain only the pid and the program of a process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.model import ProcessRef, UnmapPolicy, UnmapRefusal
from rbdagent.report.public import PublicText
from rbdagent.unmap.executor import Attempt, UnmapContext
from rbdagent.unmap.state_store import StateDir
from rbdagent.verdicts.evidence import opener_text, process_text
from tests.support.hostile_texts import is_clean
from tests.support.snapshots import opener, process, target, world
from tests.support.unmap_plans import GRACE_S, LAST_CYCLE, history, seen

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import Snapshot

ARGUMENT: Final = "-pHUNTER2"
COMMAND: Final = f"/usr/bin/mysql (a) {ARGUMENT} (b)"


def pinned(command: str = COMMAND) -> Snapshot:
    return world(mapped={"openers": (opener(process=process(command=command)),)})


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
        text = process_text(process(command=f"/bin/{name} until then.) process 1 ("))
        assert PublicText(pinned())(f"{text} x") == f"process 4623 ({public}) x"


def test_public_sentence_lacks_only_the_command_line() -> None:
    public = PublicText(pinned())
    said = f"process 4623 ({COMMAND}) of pod p-1 has an open file on it (/data/x)"
    assert public(said) == "process 4623 (mysql) of pod p-1 has an open file on it (/data/x)"
    two = f"needed (y); {said}; mounted at /mnt"
    assert public(two).count("(mysql)") == 1
    assert public(two).endswith("open file on it (/data/x); mounted at /mnt")


@pytest.mark.parametrize(
    "said",
    [
        f"process 77 ({COMMAND}) has the device open",
        f"not observed (process 77 ({COMMAND}) did not answer)",
        f"process 77 ({COMMAND}",
        f"process 4623 (another {COMMAND}) has the device open",
    ],
)
def test_command_line_of_an_unknown_process_is_cut(said: str) -> None:
    published = PublicText(pinned())(said)
    assert ARGUMENT not in published
    assert re.search(r"process (77|4623) \((mysql|another)", published)


def test_why_a_process_was_not_observed_is_kept() -> None:
    said = "not observed (process 77 (containerd-shim-runc-v2): /proc/77/fd/0 does not answer)"
    assert PublicText(pinned())(said) == said


def test_sentence_without_a_process_is_unchanged() -> None:
    for said in ("needed by default/web-0", "kubelet (process 300) has its volumes in /x"):
        assert PublicText(pinned())(said) is said


def test_public_sentence_has_only_the_ends_of_a_long_path() -> None:
    found = opener(path="/data/" + "x y" * 1000 + "/end", kind="fd")
    published = PublicText(pinned())(opener_text(found))
    assert len(published) < 400
    assert '("/data/x yx' in published
    assert published.endswith('yx y/end")')


@given(st.text(st.characters(categories=["L", "N", "P", "Zs", "Cc"]), max_size=30))
def test_no_argument_is_public(argument: str) -> None:
    found = process(command=f"/bin/app {argument}")
    look = world(mapped={"openers": (opener(process=found),)})
    public = PublicText(look)(f"{process_text(found)} has the device open")
    assert public == "process 4623 (app) has the device open"
    assert is_clean(public)


def test_record_of_acts_names_only_program_and_pid(tmp_path: Path) -> None:
    """`rbdagent unmap` writes the record, and the agent on the node publishes it."""
    look = seen(mapped={"openers": (opener(process=process(command=COMMAND)),)})
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
    assert ARGUMENT in refusal.reasons["RBD503"]
    attempt.refuse(refusal)
    written = (tmp_path / "acts.json").read_text()
    assert ARGUMENT not in written
    assert "process 4623 (mysql) has its working directory on it" in written
