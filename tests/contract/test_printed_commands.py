"""Every command that an answer prints reaches its program with the words of the answer.

tests/integration/test_printed_commands.py types them where they are read.
"""

from __future__ import annotations

import functools
import os
import pty
import shlex
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import click
import pytest

from rbdagent.cli import cli
from rbdagent.commands import NOT_PRINTED, PROGRAM
from tests.support.cli_runner import read_terminal
from tests.support.hostile_texts import texts_of, with_ill
from tests.support.printed_commands import (
    PLUGIN,
    built_snapshots,
    printed_commands,
    recorded_snapshots,
    saved_snapshots,
    shapes,
    words_in_bash,
)
from tests.support.whole_plugin import plugin_directory

if TYPE_CHECKING:
    from pathlib import Path

    from rbdagent.model import Command

HOSTILE: Final = (
    "' $(id) `id` ; id & id | id > x < x # ~ * ? {a,b} ! ",
    '" "$(id)" ${HOME} $HOME $((1)) \\',
    " --yes -- -x",
)
"""Characters that a shell interprets, and words that a program could read as options."""
KUBECTL: Final = """\
#!/bin/sh
# Has an agent on each node, and prints the words of an exec.
case " $* " in
  *' exec '*) while [ "$1" != -- ]; do shift; done; shift; printf '%s\\n' "$@" ;;
  *' get clusterrolebindings'*) echo 'rbdagent rbdagent' ;;
  *' --field-selector=spec.nodeName='*)
    node=${*##*spec.nodeName=}
    echo "by uid rbdagent agent rbdagent ${node%% *} Ready"
    ;;
  *' get daemonsets.apps'*)
    echo 'of uid rbdagent rbdagent rbdagent'
    printf 'by uid rbdagent agent rbdagent %s Ready\\n' worker-1 worker-2
    ;;
  *) exit 1 ;;
esac
"""

every_program = pytest.mark.parametrize("program", [PROGRAM, PLUGIN], ids=" ".join)


class Printed(NamedTuple):
    """Commands with their lines."""

    observed: dict[Command, str]
    """Printed about snapshots that contain their node, as those of an agent in a pod do."""
    others: dict[Command, str]


Printer = Callable[[tuple[str, ...]], Printed]


@pytest.fixture(scope="module")
def printed_as(tmp_path_factory: pytest.TempPathFactory) -> Printer:
    recorded = recorded_snapshots(tmp_path_factory.mktemp("recordings"))
    snapshots = [*recorded, *saved_snapshots(), *built_snapshots()]
    observed = [snapshot for snapshot in snapshots if snapshot.node is not None]
    others = [snapshot for snapshot in snapshots if snapshot.node is None]

    @functools.cache
    def printed(program: tuple[str, ...]) -> Printed:
        return Printed(printed_commands(observed, program), printed_commands(others, program))

    return printed


@every_program
def test_shell_reads_the_words_of_every_command(
    printed_as: Printer, program: tuple[str, ...]
) -> None:
    found = printed_as(program)
    printed = found.observed | found.others
    assert len(printed) > 1000
    assert NOT_PRINTED not in printed.values()
    words = [list(command.argv) for command in printed]
    assert words_in_bash(printed.values()) == words
    assert [shlex.split(line, comments=True) for line in printed.values()] == words


@every_program
@pytest.mark.parametrize("hostile", HOSTILE)
def test_shell_reads_hostile_names_as_they_are(hostile: str, program: tuple[str, ...]) -> None:
    saved = list(saved_snapshots())
    ill = [with_ill(snapshot, texts_of(snapshot), hostile) for snapshot in saved]
    printed = printed_commands(ill, program)
    named = [command for command in printed if any(hostile in word for word in command.argv)]
    assert len(named) > 100
    assert words_in_bash(printed.values()) == [list(command.argv) for command in printed]


def test_shell_of_a_node_reads_the_words_of_a_command_over_ssh(printed_as: Printer) -> None:
    """The program ssh joins its words with spaces, and the shell of the node splits them."""
    found = [command.argv for command in printed_as(PROGRAM).observed]
    given = [" ".join(words[2:]) for words in found if words[0] == "ssh"]
    assert given
    assert words_in_bash(given) == [shlex.split(line) for line in given]


def test_verb_accepts_every_command_of_rbdagent(printed_as: Printer) -> None:
    found = printed_as(PROGRAM)
    words = [command.argv for command in shapes((*found.observed, *found.others)).values()]
    verbs = {_parsed(argv[1:]) for argv in words if argv[:1] == PROGRAM}
    assert verbs == {"check", "diagnose", "explain", "unmap", "who-holds"}


def _parsed(argv: tuple[str, ...]) -> str:
    """Return the verb of a command line whose flags and values it accepts."""
    # click keeps the help option of a verb's first context, which needs the program's settings.
    whole = click.Context(cli, **cli.context_settings)
    name, verb, args = cli.resolve_command(whole, [*argv])
    assert name is not None
    assert verb is not None
    verb.make_context(name, args, parent=whole)
    return name


def test_plugin_runs_the_command_on_the_node_that_it_names(
    printed_as: Printer, tmp_path: Path
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    found = shapes(printed_as(PLUGIN).observed).values()
    of_plugin = [command.argv for command in found if command.argv[:2] == PLUGIN]
    assert len(of_plugin) > 10
    shown = [(argv, _shown_by_plugin(argv, tmp_path)) for argv in of_plugin]
    assert [(argv, text) for argv, text in shown if not _is_answer(argv, text)] == []


def _shown_by_plugin(argv: tuple[str, ...], directory: Path) -> str:
    """Return what a terminal shows: without one, the plugin refuses ``unmap --wait``."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [str(plugin_directory() / "kubectl-rbdagent"), *argv[2:]],
        env={"PATH": f"{directory}:/usr/bin:/bin"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    ):
        os.close(follower)
        return read_terminal(leader)


def _is_answer(argv: tuple[str, ...], shown: str) -> bool:
    """Return whether the verb received its words; the plugin itself answers ``explain``."""
    verb, *words = argv[2:]
    if verb == "explain":
        return shown.startswith(words[0])
    if "--node" in words:
        at = words.index("--node")
        del words[at : at + 2]
    return shown.splitlines() == [*PROGRAM, verb, *words]
