"""Commands are data: a value from outside is one word, and never an option or another command."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.commands import (
    NOT_PRINTED,
    PROGRAM,
    command,
    filled,
    for_cluster,
    kubectl,
    line_of,
    lines_of,
    over_ssh,
    reached_as,
    sentence_of,
    template,
    text_of,
    with_note,
)
from rbdagent.model import Verb
from tests.support.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rbdagent.model import Command

PACKAGE = Path(__file__).parents[2] / "rbdagent"
HOSTILE = (
    "/x;touch${IFS}P;#",
    "/mnt/$(touch P)",
    "`touch P`",
    "a b",
    "it's",
    'write "so"',
    "two\nlines",
    "-rf",
    "--kubeconfig=/tmp/x",
    "$HOME",
    "\u202egnp.exe",
    "\x1b]0;title\x07",
    "\x9b31m",
    "back\\slash",
    "",
    "|tee P",
    "caf\udce9",
)
VALUES = st.sampled_from(HOSTILE) | st.text()


@given(st.lists(VALUES, max_size=3), VALUES)
def test_printed_command_parses_into_its_words(values: list[str], node: str) -> None:
    for made in (
        kubectl("describe pod", *values, namespace=node),
        command("findmnt", *values, node=node, note="only time is missing"),
    ):
        line = line_of(made)
        if line != NOT_PRINTED:
            assert tuple(shlex.split(line, comments=True)) == made.argv


@given(VALUES, VALUES)
def test_command_over_ssh_parses_into_its_words_on_the_node(node: str, path: str) -> None:
    inner = command("findmnt", path)
    made = over_ssh(node, inner)
    ends = 2 if node.startswith("-") else 1
    assert made.argv[:ends] == ("ssh", "--")[:ends]
    assert made.argv[ends] == node
    assert tuple(shlex.split(" ".join(made.argv[ends + 1 :]))) == inner.argv


@given(VALUES, VALUES)
def test_filled_template_parses_into_its_words(name: str, namespace: str) -> None:
    describe = template("kubectl describe secret", "{name}", namespace="{namespace}")
    for made in filled((describe,), {"name": name, "namespace": namespace}):
        text = text_of(made)
        assert text is None or tuple(shlex.split(text)) == made.argv


@pytest.mark.parametrize("value", [value for value in HOSTILE if not value.isprintable()])
def test_value_that_a_terminal_does_not_show_is_not_printed(value: str) -> None:
    made = command("findmnt", value)
    assert text_of(made) is None
    assert line_of(made) == NOT_PRINTED
    assert made.argv == ("findmnt", value)


def test_value_with_a_dash_ends_the_options() -> None:
    made = kubectl("get pv", "-x", options=("-o", "yaml"))
    assert made.argv == ("kubectl", "get", "pv", "-o", "yaml", "--", "-x")
    assert kubectl("get pv", "x", options=("-o", "yaml")).argv[-2:] == ("-o", "yaml")


def test_node_in_a_comment_is_quoted() -> None:
    assert line_of(command("findmnt", "/x", node="n;id")) == "findmnt /x  # on 'n;id'"


def test_place_and_note_follow_the_command() -> None:
    made = with_note(command("rbd unmap", "/dev/rbd0", node="worker-1"), "instead")
    assert line_of(made) == "rbd unmap /dev/rbd0  # on worker-1, instead"


def test_equal_commands_are_printed_once() -> None:
    assert lines_of((command("ceph -s"), command("ceph -s"))) == ("ceph -s",)


def test_template_whose_name_is_unknown_makes_no_command() -> None:
    assert filled((template("rbd info", "{image}"),), {"image": ""}) == ()


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        (kubectl("get pods -A"), False),
        (kubectl("describe pod", "web-0"), False),
        (kubectl("delete pod", "web-0"), True),
        (kubectl("patch pv", "pv"), True),
        (kubectl("getx"), True),
        (command("rbd lock ls", "k8s/a"), False),
        (command("rbd lock rm", "k8s/a"), True),
        (command("rbd unmap", "/dev/rbd0"), True),
        (command("ceph osd blocklist rm", "10.0.0.1:0/1"), True),
        (command("systemctl start kubelet"), True),
        (command("rbdagent unmap", "/dev/rbd0"), False),
        (command("rbdagent unmap", "/dev/rbd0", options=("--wait", "--yes")), True),
        (command("rbdagent who-holds", "/dev/rbd0"), False),
        (over_ssh("worker-1", command("rbdagent list")), False),
        (over_ssh("worker-1", command("systemctl reboot")), True),
    ],
)
def test_command_states_whether_it_changes_something(made: Command, *, changes: bool) -> None:
    assert made.changes is changes


# --------------------------------------------------------------------------------------------------
# No other module builds a command
# --------------------------------------------------------------------------------------------------

_PROGRAMS = (
    "kubectl|rbd|ceph|rbdagent|findmnt|umount|mount|dmsetup|cryptsetup|ssh|tar|jq|journalctl|dmesg|"
    "systemctl|crictl|nsenter|mknod|lsblk|losetup|ps|ls|cat|kill|blkid|fsck"
)
_WITH_VALUE = re.compile(rf"(?:^|[\s`(;:])(?:{_PROGRAMS}) (?:[^\0.,;:`]*)\0")
_OF_OTHER_SENSE = frozenset(
    {
        "rbdagent \0",  # the version, and the start of a literal command: a verb of rbdagent
        "rbdagent \0\n",
        "\0 runs Ceph \0: rbdagent supports Ceph \0 and later",
        "journalctl exited with \0: \0",
        "another rbdagent operates on \0",
        "its staging mount \0 is its only mount, and may be unmounted",
        "mount namespace of \0: \0",
        "at \0 in the mount namespace of \0",
        "mounted at \0 in the mount namespace of \0",
        "\0: the mount of \0 is not the only one there",
    }
)


def test_no_other_module_writes_a_command_with_a_value_as_text() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr)
        and _WITH_VALUE.search(text := _text(node))
        and text not in _OF_OTHER_SENSE
    ]
    assert found == []


def test_every_command_begins_with_a_literal() -> None:
    """Assert a constant or a name: a value in the first argument would be split at its spaces."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "cli" not in path.parts and path.name != "commands.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"command", "kubectl", "template"}
        and not isinstance(node.args[0], ast.Constant | ast.Name)
    ]
    assert found == []


_VERB = re.compile(r"\brbdagent (who-holds|diagnose|list|unmap|snapshot|check|explain|schema)\b")


def test_no_error_has_a_command_of_rbdagent_as_text_in_its_hint() -> None:
    """Assert that it is data: through the plugin, other words start rbdagent."""
    found = [
        f"{path.relative_to(PACKAGE)}:{text.lineno}: {text.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in _texts_in_hints(ast.parse(path.read_text()))
        if isinstance(text.value, str) and _VERB.search(text.value)
    ]
    assert found == []


def _texts_in_hints(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the literals in the hints of errors, except the words that begin a command."""
    for error in ast.walk(tree):
        if not isinstance(error, ast.Call) or not ast.unparse(error.func).endswith("Error"):
            continue
        hints = [given.value for given in error.keywords if given.arg == "hint"]
        literals = {
            id(inner): inner
            for hint in hints
            for inner in ast.walk(hint)
            if isinstance(inner, ast.Constant)
        }
        for call in (inner for hint in hints for inner in ast.walk(hint)):
            if isinstance(call, ast.Call) and "command" in ast.unparse(call.func):
                literals.pop(id(call.args[0]), None)
        yield from literals.values()


def _text(node: ast.JoinedStr) -> str:
    """Return the text of an f-string, with NUL in place of each value."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
    )


def test_sentence_names_a_verb_with_the_words_that_start_it() -> None:
    given = ("run `", Verb("unmap"), "` there")
    assert sentence_of(given) == "run `rbdagent unmap` there"
    assert sentence_of(given, ("kubectl", "rbdagent")) == "run `kubectl rbdagent unmap` there"


def test_sentence_has_its_commands_as_they_are_typed() -> None:
    given = (command("rbdagent check", node="n1"), " shows it; ", kubectl("get rbdnodes"), " too")
    assert sentence_of(given) == "rbdagent check shows it; kubectl get rbdnodes too"
    assert sentence_of(given, ("kubectl", "rbdagent")) == (
        "kubectl rbdagent check --node n1 shows it; kubectl get rbdnodes too"
    )
    assert sentence_of((command("rbdagent diagnose", "a\nb"), " x")) == f"{NOT_PRINTED} x"


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (command("rbdagent who-holds", "pv/a"), "kubectl rbdagent who-holds pv/a"),
        (
            command("rbdagent unmap", "pv/a", options=("--yes",), node="n1"),
            "kubectl rbdagent unmap pv/a --yes --node n1",
        ),
        (
            over_ssh("n1", command("rbdagent who-holds", "pv/a")),
            "kubectl rbdagent who-holds pv/a --node n1",
        ),
        (
            over_ssh("-n1", command("rbdagent who-holds", "-a b", options=("-v",))),
            "kubectl rbdagent who-holds -v --node -n1 -- '-a b'",
        ),
        (over_ssh("n1", command("systemctl reboot")), "ssh n1 systemctl reboot"),
        (command("ps -p", "1", node="n1"), "ps -p 1  # on n1"),
    ],
)
def test_command_of_rbdagent_is_typed_through_the_plugin(given: Command, typed: str) -> None:
    assert line_of(reached_as(("kubectl", "rbdagent"), given)) == typed
    assert reached_as(PROGRAM, given) is given


@each_row(
    ("given", "typed"),
    [
        (kubectl("get pv", "a"), "kubectl --context prod get pv a"),
        (command("rbdagent who-holds", "a"), "rbdagent who-holds a --context prod"),
        (command("rbdagent who-holds", "-a"), "rbdagent who-holds --context prod -- -a"),
        (command("rbdagent explain", "RBD100"), "rbdagent explain RBD100"),
        (command("rbd status", "k8s/a"), "rbd --conf /c status k8s/a"),
        (command("ps -p", "1"), "ps -p 1"),
        (over_ssh("n1", command("rbdagent check")), "ssh n1 rbdagent check"),
    ],
)
def test_command_asks_the_cluster_that_the_reader_chose(given: Command, typed: str) -> None:
    """Printed without the context of the question, a command would change another cluster."""
    context = ("--context", "prod")
    flags = {"kubectl": context, "rbdagent": context, "rbd": ("--conf", "/c")}
    assert line_of(for_cluster(given, flags)) == typed
