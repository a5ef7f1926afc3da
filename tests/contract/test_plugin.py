"""The kubectl plugin in every shell that may run it, with a fake kubectl that answers from files.

tests/integration/test_plugin.py tests with a real API server which node the plugin finds, and what
it prints about refusals.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import threading
import unicodedata
import zipfile
from typing import TYPE_CHECKING, Final, NamedTuple

import click
import pytest
import yaml

from rbdagent import __version__
from rbdagent.catalog import CATALOG
from rbdagent.cli import cli
from rbdagent.cli.output import SEVERITIES
from rbdagent.parse.shown import in_json
from rbdagent.report.schema import KINDS
from release import plugin
from release.artefacts import ARCHIVE, MANIFEST, build_plugin
from release.errors import ReleaseError
from release.plugin import COMPLETION, ELSEWHERE, PROGRAM
from release.provenance import digest
from tests.documents.plugin import OF_KUBECTL, OF_THE_POD, as_generated, options_of
from tests.support.cli_runner import ask, process, read_terminal
from tests.support.programs import needing
from tests.support.whole_plugin import plugin_directory

if TYPE_CHECKING:
    from pathlib import Path

SHELLS: Final = ("dash", "busybox sh", "bash --posix")
VERBS: Final = tuple(cli.list_commands(click.Context(cli)))

KUBECTL: Final = """\
#!/bin/sh
# Writes down how it was called, and answers from the file that is named like the question.
cd "$(dirname "$0")" || exit 99
for word; do printf '%s\\036' "$word" >>calls; done
printf '\\035' >>calls
case " $* " in
  *' exec '*)
    case " $* " in *' -i -- '*) cat >stdin ;; esac
    cat exec
    [ ! -p then ] || cat then
    cat exec.err >&2
    exit "$(cat exec.code)"
    ;;
  *' get clusterrolebindings'*) question=accounts ;;
  *' get daemonsets.apps,pods '*) question=objects ;;
  *' get daemonsets.apps '*) question=daemonsets ;;
  *' get pods '*) question=pods ;;
  *' get rbdmappings'*) question=rbdmappings ;;
  *' get volumeattachments'*) question=volumeattachments ;;
  *' get pvc '*) question=pvc ;;
  *' get persistentvolumes '*) question=persistentvolumes ;;
  *' get node '*) question=node ;;
  *' config view '*) question=namespace ;;
  *' can-i list clusterrolebindings'*) question=can-i-accounts ;;
  *' can-i '*) question=can-i ;;
  *' whoami '*) question=whoami ;;
esac
[ -e "$question" ] || {
  echo "Error from server: no $question" >&2
  exit 1
}
cat "$question"
"""

_MAPPINGS: Final = "rbdmappings.rbdagent.dev"
AGENTS: Final = """\
rbdagent-a worker-1 Ready
rbdagent-b worker-2 Ready
rbdagent-c worker-3 NotReady
"""
DAEMON_SET: Final = "of uid-1 rbdagent rbdagent rbdagent\n"
"""As the template of the plugin prints it: uid, namespace, name, account."""


def _owned(pods: str, owner: str = "uid-1 rbdagent", account: str = "rbdagent") -> str:
    """Return lines of pods, as the template prints them, from their names, nodes and states."""
    lines = (line.split() for line in pods.splitlines())
    return "".join(f"by {owner} {name} {account} {node} {state}\n" for name, node, state in lines)


class Done(NamedTuple):
    """The exit code and the output of the plugin, and its calls of kubectl."""

    code: int
    stdout: str
    stderr: str
    calls: list[list[str]]

    @property
    def exec(self) -> list[str]:
        """Return the words of the only call that runs the verb."""
        (found,) = [call for call in self.calls if "exec" in call]
        return found

    @property
    def in_pod(self) -> list[str]:
        """Return the command that runs in the pod."""
        return self.exec[self.exec.index("--") + 1 :]


class Laptop:
    """A directory with a fake kubectl and its answers, and the plugin as it is installed."""

    def __init__(self, directory: Path, shell: str, plugin: Path | None = None) -> None:
        self._directory = directory
        self._shell = shell.split()
        self._plugin = plugin or plugin_directory() / PROGRAM.name
        self.path = f"{directory}:{self._plugin.parent}:/usr/bin:/bin"
        (directory / "kubectl").write_text(KUBECTL)
        (directory / "kubectl").chmod(0o755)
        self.answers(accounts="rbdagent rbdagent\nrbdagent rbdagent\n")
        self.objects(DAEMON_SET, _owned(AGENTS))
        self.verb_ends()

    def objects(self, daemonsets: str, pods: str) -> None:
        """Set the DaemonSets and pods with the agents' label, of every namespace."""
        self.answers(daemonsets=daemonsets, pods=pods, objects=daemonsets + pods)

    def answers(self, **questions: str) -> None:
        for question, answer in questions.items():
            (self._directory / question.replace("_", "-")).write_text(answer)

    def verb_ends(self, code: int = 0, *, stdout: str = "", stderr: str = "") -> None:
        self.answers(exec=stdout)
        (self._directory / "exec.err").write_text(stderr)
        (self._directory / "exec.code").write_text(str(code))

    def run(self, *args: str, stdin: str = "", **environment: str) -> Done:
        done = subprocess.run(
            [*self._shell, str(self._plugin), *args],
            env={"PATH": self.path, "HOME": str(self._directory)} | environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr, self._calls())

    def run_piped(self, typed: str) -> Done:
        """Run the plugin in a pipe of a shell; the exit code is that of the pipe."""
        done = subprocess.run(
            ["bash", "-c", f"{' '.join(self._shell)} {self._plugin} {typed}"],
            env={"PATH": self.path},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr, self._calls())

    def run_on_terminal(
        self, *args: str, redirect_stderr: bool = False, columns: int = 80
    ) -> tuple[str, Done]:
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen(
            [*self._shell, str(self._plugin), *args],
            env={"PATH": self.path, "NO_COLOR": "1"},
            stdin=follower,
            stdout=follower,
            stderr=subprocess.DEVNULL if redirect_stderr else follower,
        ) as running:
            os.close(follower)
            shown = read_terminal(leader)
        return shown, Done(running.returncode, "", "", self._calls())

    def run_in_parts(self, first: bytes, second: bytes, *, when: bytes) -> str:
        """Return what a terminal shows of a verb that prints two parts.

        Args:
            first: what the verb prints at once.
            second: what it prints afterwards.
            when: what the terminal must have shown before the second part is printed.
        """
        then = self._directory / "then"
        then.unlink(missing_ok=True)
        os.mkfifo(then)
        (self._directory / "exec").write_bytes(first)
        leader, follower = pty.openpty()
        with subprocess.Popen(
            [*self._shell, str(self._plugin), "version"],
            env={"PATH": self.path},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        ) as running:
            os.close(follower)
            watchdog = threading.Timer(60, os.killpg, (running.pid, signal.SIGKILL))
            watchdog.start()
            shown = b""
            while when not in shown:
                shown += os.read(leader, 65536)
            # The fake kubectl opens it when it has printed the first part.
            then.write_bytes(second)
            rest = read_terminal(leader)
            watchdog.cancel()
        return shown.decode() + rest

    def verb_prints(self, raw: bytes) -> None:
        self.verb_ends()
        (self._directory / "exec").write_bytes(raw)

    def uses(self, awk: str) -> None:
        """Set the awk of the machine."""
        found = shutil.which(awk)
        assert found is not None
        (self._directory / "awk").symlink_to(found)

    def remove(self, question: str) -> None:
        """Remove the answer to a question: kubectl then fails."""
        (self._directory / question).unlink()

    def stdin_of_verb(self) -> str:
        return (self._directory / "stdin").read_text()

    def _calls(self) -> list[list[str]]:
        written = self._directory / "calls"
        calls = written.read_text().split("\x1d")[:-1] if written.exists() else []
        written.unlink(missing_ok=True)
        return [call.split("\x1e")[:-1] for call in calls]


@pytest.fixture(params=needing(SHELLS))
def laptop(request: pytest.FixtureRequest, tmp_path: Path) -> Laptop:
    return Laptop(tmp_path, request.param)


@pytest.fixture
def dash(tmp_path: Path) -> Laptop:
    """Return a laptop with dash, for behaviour that is the same in every shell."""
    return Laptop(tmp_path, "dash")


@pytest.fixture(params=needing(SHELLS))
def without_texts(request: pytest.FixtureRequest, tmp_path: Path) -> Laptop:
    """Return a laptop with the program in git, which has no findings and no help of verbs."""
    return Laptop(tmp_path, request.param, PROGRAM)


# --------------------------------------------------------------------------------------------------
# Arguments, and where they go
# --------------------------------------------------------------------------------------------------

ODD: Final = ("it's", 'a "b"', "$(id)", "*", "`x`", "\\", "two\nlines", "ö", "")


def test_odd_words_reach_the_verb_as_they_were_typed(laptop: Laptop) -> None:
    done = laptop.run("explain", *ODD, f"--new={ODD[0]}")
    assert done.in_pod == ["rbdagent", "explain", *ODD, f"--new={ODD[0]}"]


@pytest.mark.parametrize(
    ("typed", "in_pod"),
    [
        ("who-holds pv-1 -o json", "who-holds pv-1 --output=json"),
        ("-ojson who-holds pv-1", "who-holds --output=json pv-1"),
        ("list -Aowide", "list -A --output=wide"),
        ("diagnose -A -lapp=db", "diagnose -A --selector=app=db"),
        ("diagnose -nshop", "diagnose --namespace=shop"),
        ("snapshot -A", "snapshot -A"),
        ("who-holds --fail-on warning pv-1", "who-holds --fail-on=warning pv-1"),
        ("who-holds -v pv-1", "who-holds --verbose pv-1"),
        ("who-holds pv-1 -v", "who-holds pv-1 --verbose"),
        ("who-holds -v6 --color never pv-1", "who-holds --color=never pv-1"),
        ("who-holds pvc/data -n shop", "who-holds pvc/data --namespace=shop"),
        ("who-holds -- pvc/data", "who-holds --namespace=mine -- pvc/data"),
        ("who-holds pvc data", "who-holds --namespace=mine pvc data"),
        ("who-holds pvc data -n shop", "who-holds pvc data --namespace=shop"),
        ("diagnose Pod app", "diagnose --namespace=mine Pod app"),
        ("who-holds pv pv-1", "who-holds pv pv-1"),
        ("who-holds pod/app", "who-holds --namespace=mine pod/app"),
        ("who-holds PVC/data", "who-holds --namespace=mine PVC/data"),
        ("who-holds pvc/shop/data", "who-holds pvc/shop/data"),
        ("check --node worker-1 --no-ceph", "check --no-ceph"),
        ("unmap --yes pv-1 --node worker-1", "unmap --yes pv-1"),
        ("--version", "version"),
    ],
)
def test_flags_reach_the_verb(dash: Laptop, typed: str, in_pod: str) -> None:
    dash.answers(namespace="mine")
    assert dash.run(*typed.split()).in_pod == ["rbdagent", *in_pod.split()]


def test_a_context_without_a_namespace_means_default(dash: Laptop) -> None:
    dash.answers(namespace="")
    assert "--namespace=default" in dash.run("who-holds", "pvc/data").in_pod


def test_connection_flags_go_to_every_call_of_kubectl(laptop: Laptop) -> None:
    laptop.answers(rbdmappings="", volumeattachments="")
    given = ("--context", "my lab", "--as=o'hara", "-v", "6", "--insecure-skip-tls-verify")
    done = laptop.run("who-holds", *given, "pv-1")
    assert done.in_pod == ["rbdagent", "who-holds", "pv-1"]
    assert len(done.calls) == 5
    passed = ("--context=my lab", "--as=o'hara", "--v=6", "--insecure-skip-tls-verify")
    for call in done.calls:
        places = [call.index(word) for word in passed]
        assert places == sorted(places)


def test_plugin_knows_every_flag_that_has_a_value() -> None:
    """Otherwise the plugin would use the value as the TARGET."""
    ours = {"--kubeconfig", "--context"}
    values = {
        name
        for verb in VERBS
        if verb not in ELSEWHERE
        for option in options_of(verb)
        if not option.is_flag
        for name in option.opts
        if name.startswith("--")
    }
    assert _words("VERB_VALUES") == values - ours
    assert ours <= _words("KUBECTL_VALUES")


def test_plugin_offers_the_verbs_of_rbdagent() -> None:
    assert set(VERBS) - ELSEWHERE <= _words("VERBS")


def test_plugin_offers_the_kinds_of_rbdagent() -> None:
    assert _words("KINDS") == set(KINDS)


def test_plugin_knows_todays_commands() -> None:
    program = PROGRAM.read_text()
    assert program == as_generated(program), "./dev docs"


def test_every_short_flag_with_a_value_is_known_by_its_long_form(dash: Laptop) -> None:
    """Otherwise the plugin would use the value as the TARGET."""
    options = [option for verb in VERBS if verb not in ELSEWHERE for option in options_of(verb)]
    forms = {
        (short, next(name for name in option.opts if name.startswith("--")))
        for option in options
        if not option.is_flag
        for short in option.opts
        if not short.startswith("--")
    }
    assert {short for short, _ in forms} >= {"-l", "-n", "-o"}
    for short, long in forms:
        assert dash.run("version", short, "x").in_pod == ["rbdagent", "version", f"{long}=x"]


def _words(variable: str) -> set[str]:
    found = re.search(rf"^{variable}=(['\"])(.*?)\1", PROGRAM.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return set(found[2].replace("\\\n", "").split())


# --------------------------------------------------------------------------------------------------
# Answers
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_output_and_exit_code_pass_through_unchanged(laptop: Laptop, code: int) -> None:
    message = f"command terminated with exit code {code}\n" if code else ""
    laptop.verb_ends(code, stdout="a\\nb  \n\n\tc", stderr="rbdagent: \\ a warning  \n" + message)
    done = laptop.run("version")
    assert (done.code, done.stdout) == (code, "a\\nb  \n\n\tc")
    assert done.stderr == "rbdagent: \\ a warning  \n"


def test_killed_verb_is_reported_with_its_pod(dash: Laptop) -> None:
    dash.verb_ends(137, stderr="command terminated with exit code 137\n")
    done = dash.run("version")
    assert done.code == 137
    assert done.stderr.startswith(
        "kubectl rbdagent: the verb was killed in pod rbdagent/rbdagent-a"
    )


def test_verb_gets_no_terminal_and_no_stdin_without_a_terminal(laptop: Laptop) -> None:
    done = laptop.run("version", stdin="for another reader")
    assert done.exec[:3] == ["exec", "--namespace=rbdagent", "rbdagent-a"]
    assert not {"-i", "-t"} & set(done.exec)


def test_verb_gets_a_terminal_and_the_no_color_setting(laptop: Laptop) -> None:
    laptop.verb_ends(3, stdout="answer\n", stderr="command terminated with exit code 3\n")
    shown, done = laptop.run_on_terminal("version")
    assert (done.code, shown) == (3, "answer\n")
    words = done.exec[done.exec.index("-i") :]
    environment = ["NO_COLOR=1", "COLUMNS=80"]
    assert words == ["-i", "-t", "--", "env", *environment, "rbdagent", "version"]


def test_verb_gets_no_terminal_if_one_stream_is_redirected(dash: Laptop) -> None:
    """A terminal merges both streams into one."""
    _, done = dash.run_on_terminal("version", redirect_stderr=True)
    assert "-t" not in done.exec


@pytest.mark.parametrize("command", ["who-holds pv-1 --watch", "list -Aw", "unmap pv-1 --wait"])
def test_verb_that_would_run_on_in_the_pod_needs_a_terminal(dash: Laptop, command: str) -> None:
    done = dash.run(*command.split())
    assert (done.code, done.calls) == (2, [])
    assert "needs a terminal: without one it runs on in the pod" in done.stderr
    _, on_terminal = dash.run_on_terminal(*command.split(), "--node=worker-1")
    assert on_terminal.code == 0


def test_a_snapshot_is_streamed_into_the_pod(laptop: Laptop, tmp_path: Path) -> None:
    file = tmp_path / "it's a file"
    file.write_text("snapshot\n")
    done = laptop.run("list", "--from", str(file), "--node", "worker-9")
    assert done.in_pod == ["rbdagent", "list", "--from=-"]
    assert laptop.stdin_of_verb() == "snapshot\n"


def test_the_check_before_a_drain_is_streamed_into_the_pod_of_the_node(
    laptop: Laptop, tmp_path: Path
) -> None:
    file = tmp_path / "before.json"
    file.write_text("check\n")
    done = laptop.run("drain-check", "worker-2", "--after", "--before", str(file))
    assert done.in_pod == ["rbdagent", "drain-check", "--before=-", "worker-2", "--after"]
    assert "rbdagent-b" in done.exec
    assert laptop.stdin_of_verb() == "check\n"


def test_one_file_only_can_be_streamed(dash: Laptop) -> None:
    done = dash.run("drain-check", "worker-2", "--after", "--before=-", "--from=-")
    assert (done.code, done.calls) == (2, [])
    assert "cannot both read a file here" in done.stderr


def test_a_snapshot_may_come_on_stdin(laptop: Laptop) -> None:
    laptop.run("who-holds", "pv-1", "--from=-", stdin="snapshot\n")
    assert laptop.stdin_of_verb() == "snapshot\n"


# --------------------------------------------------------------------------------------------------
# Refusals
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("who-holds pv-1 --node", "--node needs a value"),
        ("who-holds pv-1 -o", "--output needs a value"),
        ("list --node=", "--node needs a value"),
        ("list --from=", "--from needs a value"),
        ("list --from /nowhere", "/nowhere: no such file"),
        ("list --from /", "/: cannot be read"),
        ("-o json", "the verb is missing"),
        ("agent", "kubectl does not start the agent: it is a DaemonSet"),
        ("mcp", "the agent's image does not contain the server of mcp"),
        ("completion", "kubectl rbdagent has no completion script: kubectl completes it"),
        ("unmap pv-1 --node-name worker-1", "--node-name is not for kubectl rbdagent"),
        ("who-hold pv-1", "there is no verb who-hold: did you mean who-holds?\n"),
        ("unmpa --help", "there is no verb unmpa: did you mean unmap?\n"),
        ("frobnicate -x", "there is no verb frobnicate\n"),
        ("help unmpa", "there is no verb unmpa: did you mean unmap?\n"),
        ("help agent", "kubectl does not start the agent: it is a DaemonSet"),
    ],
)
def test_wrong_call_is_refused_before_any_call_of_kubectl(
    dash: Laptop, typed: str, words: str
) -> None:
    done = dash.run(*typed.split())
    assert (done.code, done.stdout, done.calls) == (2, "", [])
    assert done.stderr.startswith(f"kubectl rbdagent: {words}")


@pytest.mark.parametrize("typed", [(), ("--help",), ("-h",), ("help",), ("help", "--help")])
def test_help_is_printed_without_a_cluster(laptop: Laptop, typed: tuple[str, ...]) -> None:
    done = laptop.run(*typed)
    assert (done.code, done.stderr, done.calls) == (0, "", [])
    assert all(verb in done.stdout for verb in VERBS if verb not in ELSEWHERE)


# --------------------------------------------------------------------------------------------------
# explain
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [(), ("RBD101",), ("rbd726",), ("mappingOrphaned",)])
def test_explain_needs_no_cluster(
    laptop: Laptop, typed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    done = laptop.run("explain", *typed)
    assert (done.code, done.stderr, done.calls) == (0, "", [])
    assert done.stdout == process("explain", *typed).stdout


def test_explain_needs_no_kubectl(dash: Laptop, tmp_path: Path) -> None:
    (tmp_path / "kubectl").unlink()
    assert dash.run("explain", "RBD101").stdout.startswith("RBD101 MappingOrphaned")


@pytest.mark.parametrize("verb", [name for name in VERBS if name not in ELSEWHERE])
def test_help_of_a_verb_needs_no_cluster(
    dash: Laptop, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = dash.run(verb, "pv-1", "--node=worker-9", "--watch", "--help")
    assert (done.code, done.stderr, done.calls) == (0, "", [])
    *lines, _, own = done.stdout.splitlines()
    assert lines == _help_lines(verb, monkeypatch)
    assert lines[0].startswith(f"Usage: kubectl rbdagent {verb} ")
    assert own == "--node and the flags for access to the cluster: kubectl rbdagent --help"


@pytest.mark.parametrize("verb", [name for name in VERBS if name not in ELSEWHERE])
def test_help_and_a_verb_are_the_help_of_the_verb(dash: Laptop, verb: str) -> None:
    """As in kubectl."""
    asked, expected = dash.run("help", verb), dash.run(verb, "--help")
    assert (asked.code, asked.stdout, asked.calls) == (0, expected.stdout, [])


def test_help_is_the_same_in_every_shell(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = laptop.run("list", "-h").stdout.splitlines()
    assert shown[:-2] == _help_lines("list", monkeypatch)


def _help_lines(verb: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the help that the verb prints for a user of the plugin, at 80 columns."""
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    monkeypatch.setenv("COLUMNS", "80")
    return ask(verb, "--help").stdout.splitlines()


def test_every_finding_is_in_the_plugin(dash: Laptop) -> None:
    listed = dash.run("explain").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [*CATALOG]
    explained = {code: dash.run("explain", code).stdout for code in CATALOG}
    assert [code for code, text in explained.items() if not text.startswith(f"{code} ")] == []


@pytest.mark.parametrize(
    "typed",
    ["RBD1O1", "RBD101 -o json", "-o yaml", "RBD101 --node worker-2", "RBD 101"],
)
def test_agent_explains_what_the_plugin_cannot(dash: Laptop, typed: str) -> None:
    """It may have a newer code; it has the data formats, and near matches of a typing error."""
    assert dash.run("explain", *typed.split()).in_pod[:2] == ["rbdagent", "explain"]


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("RBD1O1", "RBD101 MappingOrphaned"),
        ("rbd10l", "RBD101 MappingOrphaned"),
        ("MappingOrphand", "RBD101 MappingOrphaned"),
        ("RBDMappingPined", "RBD102 MappingPinned"),
        ("foreignholder-", "RBD115 ForeignHolder"),
        ("RBD999", ""),
        ("Map", ""),
        ("a'b", ""),
    ],
)
def test_unknown_finding_is_reported_without_an_agent(
    laptop: Laptop, tmp_path: Path, typed: str, near: str
) -> None:
    (tmp_path / "objects").unlink()
    done = laptop.run("explain", typed)
    meant = f": did you mean {near}?" if near else ""
    own = f"  the plugin has no finding {typed}{meant} (kubectl rbdagent explain lists all)"
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == own


def test_unknown_finding_is_left_to_the_agent_that_answers(dash: Laptop) -> None:
    dash.verb_ends(1, stderr="rbdagent: there is no finding\ncommand terminated with exit code 1\n")
    done = dash.run("explain", "RBD1O1")
    assert (done.code, done.stderr) == (1, "rbdagent: there is no finding\n")


def test_reader_of_an_explanation_may_end_early(laptop: Laptop) -> None:
    done = laptop.run_piped("explain | head -n 1")
    assert (done.stdout.split()[0], done.stderr, done.calls) == (min(CATALOG), "", [])


# --------------------------------------------------------------------------------------------------
# The program in git, without the texts that the release appends
# --------------------------------------------------------------------------------------------------

NO_TEXTS: Final = (
    "  this copy of the plugin has no findings and no help of the verbs: run ./dev plugin in a "
    "checkout of rbdagent, and install what it writes"
)


def test_git_has_no_copy_of_the_texts() -> None:
    assert re.findall(r"^#[=:>|]", PROGRAM.read_text(), re.MULTILINE) == []


@pytest.mark.parametrize(
    ("typed", "in_pod"),
    [
        ("explain", "explain"),
        ("explain RBD101", "explain RBD101"),
        ("explain RBD999", "explain RBD999"),
        ("explain RBD101 --help", "explain --help"),
        ("help explain", "explain --help"),
        ("list -h", "list --help"),
        ("list -Aw --from /nowhere --help", "list --help"),
        ("who-holds pvc/data --help", "who-holds --help"),
        ("unmap pv-1 --yes --wait --help", "unmap --help"),
        ("help unmap", "unmap --help"),
        ("check --help --node worker-2", "check --help"),
    ],
)
def test_agent_prints_the_texts_that_the_plugin_has_not(
    without_texts: Laptop, typed: str, in_pod: str
) -> None:
    done = without_texts.run(*typed.split())
    assert (done.code, done.stderr) == (0, "")
    assert done.in_pod == ["rbdagent", *in_pod.split()]


@pytest.mark.parametrize("typed", ["explain", "explain RBD101", "explain RBD1O1", "list --help"])
def test_missing_texts_are_reported_without_an_agent(
    without_texts: Laptop, tmp_path: Path, typed: str
) -> None:
    without_texts.answers(accounts="")
    done = without_texts.run(*typed.split())
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith("kubectl rbdagent: no agent is installed")
    assert done.stderr.splitlines()[-1] == NO_TEXTS
    done = without_texts.run(*typed.split(), PATH=_path_without_kubectl(tmp_path, "awk"))
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith("kubectl rbdagent: kubectl is not on PATH")
    assert done.stderr.splitlines()[-1] == NO_TEXTS


def test_other_verbs_need_no_texts(without_texts: Laptop) -> None:
    without_texts.answers(rbdmappings="worker-2\trbd1-data\tpool/image\n")
    done = without_texts.run("who-holds", "rbd1-data", "-o", "json")
    assert "rbdagent-b" in done.exec
    assert done.in_pod == ["rbdagent", "who-holds", "rbd1-data", "--output=json"]
    without_texts.answers(accounts="")
    assert NO_TEXTS not in without_texts.run("who-holds", "rbd1-data").stderr
    assert without_texts.run("__complete", "wh").stdout == "who-holds\n:4\n"
    assert without_texts.run("__complete", "explain", "RBD").stdout == ":4\n"
    assert without_texts.run("--help").stdout.startswith("kubectl rbdagent runs rbdagent's verbs")


# --------------------------------------------------------------------------------------------------
# The choice of the agent
# --------------------------------------------------------------------------------------------------


def test_missing_kubectl_is_reported(laptop: Laptop, tmp_path: Path) -> None:
    done = laptop.run("version", PATH=_path_without_kubectl(tmp_path))
    assert done.code == 1
    assert done.stderr.startswith("kubectl rbdagent: kubectl is not on PATH\n")


def _path_without_kubectl(directory: Path, *programs: str) -> str:
    """Return a PATH with the shells and these programs."""
    path = directory / "programs"
    path.mkdir()
    for name in ("dash", "busybox", "bash", *programs):
        (path / name).symlink_to(f"/usr/bin/{name}")
    return str(path)


@pytest.mark.parametrize(
    ("agents", "typed", "code", "words"),
    [
        ("", "version", 1, "the DaemonSet rbdagent/rbdagent has no pod\n"),
        ("x w1 Pending\n", "version", 1, "rbdagent is installed, but none of its agents runs"),
        ("x - Pending\n", "list", 2, "list reports one node: name the node, --node NODE"),
        (AGENTS, "check", 2, "check reports one node: name the node, --node NODE"),
        (AGENTS, "snapshot", 2, "snapshot reports one node"),
        (AGENTS, "who-holds /dev/rbd0", 2, "/dev/rbd0 is a device of one node"),
        (AGENTS, "unmap rbd0p1", 2, "rbd0p1 is a device of one node"),
        (
            "x w1 Terminating\n",
            "list --node w1",
            1,
            "the agent on w1 does not run: pod rbdagent/x is",
        ),
    ],
)
def test_plugin_reports_why_no_agent_can_be_chosen(
    dash: Laptop, agents: str, typed: str, code: int, words: str
) -> None:
    dash.objects(DAEMON_SET, _owned(agents))
    done = dash.run(*typed.split())
    assert (done.code, done.stdout) == (code, "")
    assert done.stderr.startswith(f"kubectl rbdagent: {words}")
    assert not [call for call in done.calls if "exec" in call]


@pytest.mark.parametrize(
    ("typed", "pod"),
    [
        ("version", "rbdagent-a"),
        ("version --node worker-3", "rbdagent-c"),
        ("who-holds rbd1-data", "rbdagent-b"),
        ("unmap rbd1-data", "rbdagent-b"),
        ("who-holds pv rbd1-data", "rbdagent-b"),
        ("unmap PV rbd1-data", "rbdagent-b"),
        ("who-holds pool/space/image", "rbdagent-a"),
        ("drain-check worker-2", "rbdagent-b"),
        ("drain-check node/worker-2 --after", "rbdagent-b"),
        ("drain-check worker-3", "rbdagent-c"),
        ("drain-check worker-2 --node worker-1", "rbdagent-a"),
    ],
)
def test_the_pod_of_the_right_node_is_chosen(laptop: Laptop, typed: str, pod: str) -> None:
    laptop.answers(rbdmappings="worker-2\trbd1-data\tpool/image\nworker-3\t\tpool/space/image\n")
    done = laptop.run(*typed.split())
    assert pod in done.exec


@pytest.mark.parametrize(
    ("target", "selectors"),
    [
        ("pv/rbd1-data", ["rbdagent.dev/persistentvolume in (rbd1-data)"]),
        ("pool/space/image", ["rbdagent.dev/image in (image)"]),
        (
            "0001-0009-rook-ceph-0000000000000002-628c6546-0000-0000-0000-000000000001",
            ["rbdagent.dev/image in (csi-vol-628c6546-0000-0000-0000-000000000001)", None],
        ),
        (f"pv/{'a' * 64}", [None]),
        ("pool/_image", [None]),
    ],
)
def test_mappings_of_a_target_are_requested_by_label(
    laptop: Laptop, target: str, selectors: list[str | None]
) -> None:
    """A name that is no value of a label is searched among all; so is an image's other prefix."""
    laptop.answers(rbdmappings="")
    calls = [call for call in laptop.run("who-holds", target).calls if _MAPPINGS in call]
    given = [[word for word in call if word.startswith("--selector=")] for call in calls]
    assert given == [[] if one is None else [f"--selector={one}"] for one in selectors]


def test_another_agent_answers_about_a_node_without_one(dash: Laptop) -> None:
    done = dash.run("drain-check", "worker-9")
    assert "rbdagent-a" in done.exec
    assert "it only has what the agent there published" in done.stderr


def test_the_only_agent_need_not_be_named(laptop: Laptop) -> None:
    laptop.objects(DAEMON_SET, _owned("x w1 Ready\n"))
    assert "x" in laptop.run("list").exec


def test_an_agent_that_is_not_ready_answers_with_a_warning(dash: Laptop) -> None:
    done = dash.run("list", "--node", "worker-3")
    assert (done.code, "rbdagent-c" in done.exec) == (0, True)
    assert "the agent on worker-3 runs, but it is not Ready" in done.stderr


def test_a_refused_exec_names_the_command_that_grants_it(laptop: Laptop) -> None:
    laptop.verb_ends(1, stderr="Error from server (Forbidden): pods is forbidden\n")
    laptop.answers(can_i="no\n", whoami="ann")
    done = laptop.run("version")
    assert done.code == 1
    assert done.stderr == (
        "Error from server (Forbidden): pods is forbidden\n"
        "kubectl rbdagent: you may not run commands in the agents' pods\n"
        "  an administrator can grant it, to users who may be root on every node:\n"
        "    kubectl create rolebinding rbdagent-exec -n rbdagent --role=rbdagent-exec --user=ann\n"
        "  or run it directly on worker-1: rbdagent version\n"
    )


# --------------------------------------------------------------------------------------------------
# Objects that a tenant creates to look like the agents
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forged", "owner", "account"),
    [
        ("a DaemonSet of another namespace", "uid-2 aaa", "rbdagent"),
        ("the uid of the DaemonSet, in another namespace", "uid-1 aaa", "rbdagent"),
        ("the uid of no DaemonSet", "uid-3 rbdagent", "rbdagent"),
        ("another ServiceAccount", "uid-1 rbdagent", "default"),
    ],
)
@pytest.mark.parametrize("node", [(), ("--node", "worker-1")], ids=["any", "named"])
def test_a_pod_that_only_looks_like_an_agent_is_never_used(
    laptop: Laptop, forged: str, owner: str, account: str, node: tuple[str, ...]
) -> None:
    del forged
    look_alike = _owned("look-alike worker-1 Ready\n", owner, account)
    laptop.objects("of uid-2 aaa rbdagent rbdagent\n" + DAEMON_SET, look_alike + _owned(AGENTS))
    assert laptop.run("version", *node).exec[:3] == ["exec", "--namespace=rbdagent", "rbdagent-a"]


def test_a_daemonset_with_another_account_is_not_of_the_release(dash: Laptop) -> None:
    dash.objects("of uid-1 rbdagent rbdagent default\n", _owned(AGENTS, account="default"))
    done = dash.run("version")
    assert done.code == 1
    assert "there is no DaemonSet with a ServiceAccount of a ClusterRoleBinding" in done.stderr


def test_only_the_namespace_of_the_binding_is_searched(dash: Laptop) -> None:
    calls = dash.run("version").calls
    assert [call[call.index("get") + 1] for call in calls[:-1]] == [
        "clusterrolebindings.rbac.authorization.k8s.io",
        "daemonsets.apps,pods",
    ]
    assert "--namespace=rbdagent" in calls[1]


def test_without_a_binding_no_agent_is_installed(dash: Laptop) -> None:
    dash.answers(accounts="")
    done = dash.run("version")
    assert (done.code, len(done.calls)) == (1, 1)
    assert "no agent is installed: there is no ClusterRoleBinding labelled" in done.stderr


_TWO: Final = DAEMON_SET + "of uid-2 other second second\n"


def test_two_releases_are_an_error_that_names_them(laptop: Laptop) -> None:
    laptop.answers(accounts="rbdagent rbdagent\nother second\n")
    laptop.objects(_TWO, _owned(AGENTS))
    done = laptop.run("version")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == (
        "kubectl rbdagent: there is more than one DaemonSet of rbdagent: other/second, "
        "rbdagent/rbdagent\n"
        "  name the one whose agents you mean: --agent-namespace other/second\n"
    )


@pytest.mark.parametrize("given", ["rbdagent", "rbdagent/rbdagent"])
def test_the_namespace_chooses_the_release(laptop: Laptop, given: str) -> None:
    laptop.objects(DAEMON_SET + "of uid-2 rbdagent-2 second second\n", _owned(AGENTS))
    for done in (
        laptop.run("version", "--agent-namespace", given),
        laptop.run("version", RBDAGENT_AGENT_NAMESPACE=given),
    ):
        assert "rbdagent-a" in done.exec
        assert not [call for call in done.calls if "clusterrolebindings" in " ".join(call)]


def test_the_daemonset_chooses_between_releases_of_one_namespace(dash: Laptop) -> None:
    dash.objects(
        DAEMON_SET + "of uid-2 rbdagent second second\n",
        _owned(AGENTS) + _owned("second-a worker-1 Ready\n", "uid-2 rbdagent", "second"),
    )
    assert "is more than one" in dash.run("version", "--agent-namespace=rbdagent").stderr
    assert "second-a" in dash.run("version", "--agent-namespace=rbdagent/second").exec


def test_a_binding_that_may_not_be_listed_asks_for_the_namespace(laptop: Laptop) -> None:
    laptop.answers(can_i_accounts="no\n")
    laptop.remove("accounts")
    done = laptop.run("version")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr == (
        "Error from server: no accounts\n"
        "kubectl rbdagent: cannot list the ClusterRoleBindings, which name the namespace of the "
        "agents: permission denied\n"
        "  if you know the agents' namespace, name it: --agent-namespace NAMESPACE\n"
        "  or, for all calls: export RBDAGENT_AGENT_NAMESPACE=NAMESPACE\n"
    )


# --------------------------------------------------------------------------------------------------
# What a terminal obeys or does not show
# --------------------------------------------------------------------------------------------------

HOSTILE: Final = (
    "\033]52;c;cm0=\007 \033[2J\033[8mhidden \x7f \x9b31m \u202ereversed \u200b\ufeff over\rwritten"
    " \xad\u180e\ufff9tag\U000e0041"
)
ESCAPED: Final = (
    r"\u001b]52;c;cm0=\u0007 \u001b[2J\u001b[8mhidden \u007f \u009b31m \u202ereversed \u200b\ufeff "
    r"over\u000dwritten \u00ad\u180e\ufff9tag\udb40\udc41"
)
OWN: Final = "\033[31mIN USE\033[0m caf\u00e9 \u2014 \u65e5\u672c \U0001f600 \U00020000\ttab"
"""What rbdagent prints itself: colours, and names in any language."""


def test_output_of_a_pod_is_printed_with_escapes(laptop: Laptop) -> None:
    laptop.verb_ends(stdout=f"{OWN}\n{HOSTILE}\nend", stderr=f"{OWN} {HOSTILE}\n")
    done = laptop.run("version")
    assert (done.code, done.stdout) == (0, f"{OWN}\n{ESCAPED}\nend")
    assert done.stderr == f"{OWN} {ESCAPED}\n"


AWKS: Final = ("mawk", "busybox")
every_awk = pytest.mark.parametrize("awk", needing(AWKS))
INVISIBLE: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Categories of characters that a terminal obeys, or does not show."""


def is_escaped(character: str) -> bool:
    return character not in "\t\n" and unicodedata.category(character) in INVISIBLE


@every_awk
def test_every_invisible_character_is_escaped_and_others_are_not(dash: Laptop, awk: str) -> None:
    """The verbs escape these, and characters without a glyph, which harm no terminal."""
    every = [*map(chr, range(1, 0xD800)), *map(chr, range(0xE000, 0x110000))]
    known = [one for one in every if one.isprintable()][::97]
    chosen = [*filter(is_escaped, every), *known]
    dash.uses(awk)
    dash.verb_ends(stdout="".join(f"a{one}b\n" for one in chosen))
    shown = [in_json(one) if is_escaped(one) else one for one in chosen]
    assert dash.run("version").stdout == "".join(f"a{one}b\n" for one in shown)


@every_awk
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x9b2J \x9d0;x\x9c", r"\u009b2J \u009d0;x\u009c"),
        ("caf\u00e9\u4e9b".encode() + b"\x9b2J", "caf\u00e9\u4e9b\\u009b2J"),
        (b"\xc2\x1b[2J", r"\u00c2\u001b[2J"),
        (b"\xe2\x80x \xf3\xa0\x81", r"\u00e2\u0080x \u00f3\u00a0\u0081"),
        (b"\xc0\x9b \xe0\x82\x9b", r"\u00c0\u009b \u00e0\u0082\u009b"),
        (b"\xed\xa0\x9b \xf4\x90\x80\x9b", r"\u00ed\u00a0\u009b \u00f4\u0090\u0080\u009b"),
    ],
)
def test_bytes_that_are_no_part_of_utf_8_are_escaped(
    dash: Laptop, awk: str, raw: bytes, shown: str
) -> None:
    """Some terminals obey the byte 0x9b like ESC [."""
    dash.uses(awk)
    dash.verb_prints(raw)
    assert dash.run("version").stdout == shown


def test_bytes_that_are_no_part_of_utf_8_are_escaped_on_a_terminal(dash: Laptop) -> None:
    raw = b"\x9b2J \xf3\xa0\x81 caf\xc3\xa9 \xc2"
    escaped = "\\u009b2J \\u00f3\\u00a0\\u0081 caf\u00e9 \\u00c2"
    shown = {end: dash.run_in_parts(raw[:end], raw[end:], when=b"") for end in range(1, len(raw))}
    assert {end: text for end, text in shown.items() if text != escaped} == {}


def test_a_long_line_takes_no_time_that_grows_with_its_square(dash: Laptop) -> None:
    """It would take minutes; a watchdog ends the call after one."""
    dash.verb_ends(stdout="\u202e\u65e5" * 100_000)
    assert dash.run("version").stdout == "\\u202e\u65e5" * 100_000


def test_escapes_keep_the_data_of_json(dash: Laptop) -> None:
    dash.verb_ends(stdout=json.dumps({"name": "\u202e\x9b"}, ensure_ascii=False))
    assert json.loads(dash.run("version").stdout) == {"name": "\u202e\x9b"}


def test_a_file_gets_the_output_unchanged(laptop: Laptop, tmp_path: Path) -> None:
    laptop.verb_ends(stdout=f"{HOSTILE}\nend")
    laptop.run_piped(f"version >{tmp_path}/written")
    assert (tmp_path / "written").read_bytes().decode() == f"{HOSTILE}\nend"


def test_a_terminal_gets_escapes(laptop: Laptop) -> None:
    progress = "\r\033[Kwaiting for Ceph, 2 s\r\033[K"
    laptop.verb_ends(stdout=f"{progress}{OWN}\n{HOSTILE}\n")
    shown, done = laptop.run_on_terminal("version")
    assert (done.code, shown) == (0, f"{progress}{OWN}\n{ESCAPED}\n")


def test_a_terminal_gets_escapes_of_what_arrives_in_two_parts(dash: Laptop) -> None:
    raw = HOSTILE.encode()
    shown = {end: dash.run_in_parts(raw[:end], raw[end:], when=b"") for end in range(1, len(raw))}
    assert {end: text for end, text in shown.items() if text != ESCAPED} == {}


def test_a_line_of_progress_is_shown_while_the_verb_runs(laptop: Laptop) -> None:
    """The line has no end; the second part is written only when the terminal has shown it."""
    first = b"\r\033[Kwaiting for Ceph, 2 s"
    shown = laptop.run_in_parts(first, b"\r\033[KIN USE\n", when=first)
    assert shown == "\r\033[Kwaiting for Ceph, 2 s\r\033[KIN USE\n"


def test_the_verb_gets_the_width_of_the_terminal(laptop: Laptop) -> None:
    _, done = laptop.run_on_terminal("version", columns=123)
    assert done.in_pod == ["env", "NO_COLOR=1", "COLUMNS=123", "rbdagent", "version"]


def test_the_error_of_a_call_is_printed_with_escapes(dash: Laptop) -> None:
    done = dash.run("list", "--from", f"/nowhere{HOSTILE}")
    assert f"/nowhere{ESCAPED}: no such file\n" in done.stderr


def test_a_reader_that_ends_early_is_no_error(laptop: Laptop) -> None:
    laptop.verb_ends(stdout="line\n" * 100_000)
    done = laptop.run_piped("version | head -n 1")
    assert (done.stdout, done.stderr) == ("line\n", "")


# --------------------------------------------------------------------------------------------------
# Completion and release files
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("",), sorted(_words("VERBS"))),
        (("list", "-o", "j"), ["json"]),
        (("check", "--output", ""), ["json", "table", "yaml"]),
        (("schema", ""), sorted(KINDS)),
        (("list", "-A", "--on-node", ""), ["worker-1", "worker-2", "worker-3"]),
        (("list", "-A", "--verdict", "Or"), ["Orphaned"]),
        (("diagnose", "-o", ""), ["html", "json", "name", "table", "wide", "yaml"]),
        (("who-holds", "--fail-on", ""), sorted(SEVERITIES)),
        (("schema", "Mapping"), ["MappingList"]),
        (("explain", "RBD101"), ["RBD101\tMappingOrphaned"]),
        (("explain", "RBD101", ""), []),
        (("help", "who"), ["who-holds"]),
        (("who-holds", "pvc", "d"), ["data", "db"]),
        (("diagnose", "-n", "shop", "PVC", ""), ["data", "db"]),
        (("who-holds", "pvc", "data", ""), []),
        (("unmap", "pv", ""), ["pv-1\tshop/data"]),
        (("list", ""), []),
        (("drain-check", "worker-"), ["worker-1", "worker-2", "worker-3"]),
        (("version", "--output", "y"), ["yaml"]),
    ],
)
def test_completion_offers_possible_values(
    laptop: Laptop, typed: tuple[str, ...], offered: list[str]
) -> None:
    laptop.answers(pvc="data\ndb\n", persistentvolumes="rbd.csi.ceph.com\tpv-1\tshop/data\n")
    *lines, directive = laptop.run("__complete", *typed).stdout.splitlines()
    assert (sorted(lines), directive) == (offered, ":4")


def test_completion_leaves_files_to_the_shell(laptop: Laptop) -> None:
    assert laptop.run("__complete", "list", "--from", "").stdout == ":0\n"


@pytest.mark.parametrize("verb", [name for name in VERBS if name not in ELSEWHERE])
def test_every_flag_that_does_not_describe_the_pod_is_offered(dash: Laptop, verb: str) -> None:
    *offered, _ = dash.run("__complete", verb, "--").stdout.splitlines()
    known = {name for option in options_of(verb) for name in option.opts if name[1] == "-"}
    ours = {"--node", "--agent-namespace", "--context", "--kubeconfig", "--help"}
    assert set(offered) == known - OF_THE_POD | ours


def test_flags_that_are_not_offered_exist() -> None:
    options = [option for verb in VERBS if verb not in ELSEWHERE for option in options_of(verb)]
    assert {name for option in options for name in option.opts} >= OF_THE_POD | OF_KUBECTL


def test_kubectl_finds_the_completion_beside_the_plugin(dash: Laptop) -> None:
    done = subprocess.run(
        [COMPLETION.name, "che"], env={"PATH": dash.path}, capture_output=True, check=True
    )
    assert done.stdout == b"check\n:4\n"


@pytest.mark.needs("shellcheck")
@pytest.mark.parametrize("name", [PROGRAM.name, COMPLETION.name])
def test_shellcheck_finds_nothing(name: str) -> None:
    script = str(plugin_directory() / name)
    done = subprocess.run(
        ["shellcheck", "--shell=sh", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_krew_manifest_installs_the_files_of_the_archive(tmp_path: Path) -> None:
    build_plugin(tmp_path)
    manifest = yaml.safe_load((tmp_path / MANIFEST).read_text())
    (platform,) = manifest["spec"]["platforms"]
    with zipfile.ZipFile(tmp_path / ARCHIVE) as files:
        modes = {file.filename: file.external_attr >> 16 for file in files.infolist()}
        texts = {name: files.read(name).decode() for name in modes}
    assert modes.keys() == {file["from"] for file in platform["files"]}
    assert modes[platform["bin"]] == modes[COMPLETION.name] == 0o755
    assert texts[platform["bin"]] == plugin.whole()
    assert texts[COMPLETION.name] == COMPLETION.read_text()
    assert platform["sha256"] == digest(tmp_path / ARCHIVE)
    assert manifest["spec"]["version"] == f"v{__version__}"
    assert manifest["spec"]["version"] in platform["uri"]


def test_the_krew_manifest_in_git_has_no_digest() -> None:
    """The archive has texts that git does not have: a digest in git would be out of date."""
    (platform,) = yaml.safe_load(plugin.MANIFEST.read_text())["spec"]["platforms"]
    assert f"sha256: {platform['sha256']}" == plugin.NO_DIGEST


def test_a_manifest_without_a_place_for_the_digest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "MANIFEST", tmp_path / MANIFEST)
    (tmp_path / MANIFEST).write_text(f"sha256: {'0a' * 32}\n")
    with pytest.raises(ReleaseError, match="has no line 'sha256: DIGEST'"):
        plugin.manifest("0b" * 32)


def test_a_second_archive_has_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        plugin.write_archive(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_the_plugin_is_written_for_an_installation_without_krew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "a" / "plugin"
    for _ in range(2):
        assert plugin.main([str(directory)]) == 0
    assert {path.name for path in directory.iterdir()} == {PROGRAM.name, COMPLETION.name}
    assert all(os.access(path, os.X_OK) for path in directory.iterdir())
    assert (directory / PROGRAM.name).read_text() == plugin.whole()
    assert f"sudo install -m 755 {directory}/* /usr/local/bin/" in capsys.readouterr().out
