"""Completion: what rbdagent offers, and the scripts in each shell that is installed.

The developer script installs bash, zsh and fish (``tests/lab/install.py``).
"""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.catalog import CATALOG
from rbdagent.report.schema import KINDS
from tests.lab.install import TEST_PACKAGES
from tests.support.cli_runner import ORPHAN, ROOT, VOLUME
from tests.support.fake_api import VOLUME as LISTED
from tests.support.fake_api import FakeApi, kubeconfig, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHELLS: Final = ("bash", "zsh", "fish")
INSTALLED: Final = tuple(shell for shell in SHELLS if shutil.which(shell))
FROM: Final = ("--from", str(ORPHAN))


def offered(*typed: str, **environment: str) -> list[str]:
    """Return what rbdagent offers for the last word; it prints nothing to stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "rbdagent"],
        env={
            **os.environ,
            "_RBDAGENT_COMPLETE": "bash_complete",
            "COMP_WORDS": shlex.join(("rbdagent", *typed)),
            "COMP_CWORD": str(len(typed)),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def plain(*words: str) -> list[str]:
    return [f"plain,{word}" for word in words]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("expl",), ("explain",)),
        (("explain", "RBD101"), ("RBD101",)),
        (("explain", "MappingO"), ("MappingOrphaned",)),
        (("explain", "RBD101", ""), ()),
        (("explain", "bi"), ("binding",)),
        (("schema", "Cluster"), ("ClusterReport",)),
        (("who-holds", *FROM, "pvc-0"), (VOLUME,)),
        (("who-holds", *FROM, "pv/"), (f"pv/{VOLUME}",)),
        (("diagnose", *FROM, "pvc/"), ("pvc/default/data",)),
        (("diagnose", *FROM, "PVC/default/d"), ("PVC/default/data",)),
        (("diagnose", *FROM, "-n", "default", "pvc/"), ("pvc/data",)),
        (("unmap", *FROM, "pvc", ""), ("data",)),
        (("unmap", *FROM, "pvc", "data", ""), ()),
        (("who-holds", *FROM, "pod", "app-"), ("app-2",)),
        (("who-holds", *FROM, "-n", "other", "pod", ""), ()),
    ],
    ids=" ".join,
)
def test_words_that_begin_as_typed_are_offered(
    typed: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert offered(*typed) == plain(*words)


def test_all_codes_and_kinds_are_offered() -> None:
    assert offered("explain", "") == plain(*CATALOG)
    assert offered("schema", "") == plain(*KINDS)


@pytest.mark.parametrize("flag", ["--from", "--config", "--kubeconfig", "--ceph-conf"])
def test_files_are_completed_by_the_shell(flag: str) -> None:
    assert offered("who-holds", flag, "ex") == ["file,ex"]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    """Yield an API server, which the kubeconfig ``kubeconfig`` in the directory names."""
    fake = FakeApi()
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig(fake.url)))
    yield fake
    fake.stop()


def test_targets_of_the_cluster_are_offered(api: FakeApi, tmp_path: Path) -> None:
    env = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    claim = next(
        item["spec"]["claimRef"]
        for item in api.lists["persistentvolumes"]
        if item["metadata"]["name"] == LISTED
    )
    name, namespace = claim["name"], claim["namespace"]
    assert offered("who-holds", LISTED[:-1], **env) == plain(LISTED)
    assert offered("who-holds", f"pvc/{namespace}/{name}", **env) == plain(
        f"pvc/{namespace}/{name}"
    )
    assert offered("who-holds", "-n", namespace, "pvc", name, **env) == plain(name)
    assert offered("who-holds", "--no-kube", "pv/", **env) == []


def test_cluster_that_does_not_answer_offers_nothing(api: FakeApi, tmp_path: Path) -> None:
    api.broken["/api/v1/persistentvolumes"] = refuse(403)
    assert offered("who-holds", "pv/", KUBECONFIG=str(tmp_path / "kubeconfig")) == []
    assert offered("who-holds", "pv/", KUBECONFIG=str(tmp_path / "none")) == []
    assert offered("who-holds", "--from", str(tmp_path / "none"), "pv/") == []


def test_name_that_a_shell_would_interpret_is_not_offered(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(ORPHAN.read_text().replace('"data"', '"$(id)"'))
    assert offered("who-holds", "--from", str(file), "pvc/") == []


# --------------------------------------------------------------------------------------------------
# In the shells
# --------------------------------------------------------------------------------------------------

START: Final = {
    "bash": (("bash", "--norc", "-i"), "source <(rbdagent completion bash)"),
    "zsh": (
        ("zsh", "-f", "-i"),
        "autoload -Uz compinit; compinit -u -D; source <(rbdagent completion zsh)",
    ),
    "fish": (("fish", "--no-config", "-i"), "rbdagent completion fish | source"),
}
"""How to start each shell without the user's files, and how to load the script."""

PROGRAM: Final = """\
#!/bin/sh
# Answers the shell's questions, and prints the words of any other command.
case ${_RBDAGENT_COMPLETE:-}$1 in
  *_complete*) %(python)s -m rbdagent "$@"; echo >%(completed)s ;;
  completion) exec %(python)s -m rbdagent "$@" ;;
  *) printf 'typed'; printf ' <%%s>' "$@"; echo ' end' ;;
esac
"""


def run_completed(directory: Path, shell: str, line: str) -> str:
    """Type a line with Tab in a shell on a terminal; return the words of the command that runs."""
    completed = directory / "completed"
    os.mkfifo(completed)
    program = directory / "rbdagent"
    program.write_text(PROGRAM % {"python": sys.executable, "completed": completed})
    program.chmod(0o755)
    command, load = START[shell]
    terminal, follower = pty.openpty()
    # Open for both, so that neither end waits for the other.
    answers = os.open(completed, os.O_RDWR | os.O_NONBLOCK)
    environment = {
        "HOME": str(directory),
        "PATH": f"{directory}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "RBDAGENT_FROM": str(ORPHAN),
        "TERM": "dumb",
    }
    # fish wants a controlling terminal.
    with subprocess.Popen(
        ("setsid", "--ctty", *command), stdin=follower, stdout=follower, stderr=follower,
        env=environment, cwd=ROOT,
    ) as running:  # fmt: skip
        os.close(follower)
        try:
            os.write(terminal, f"{load}; echo load''ed\n".encode())
            wait_for(terminal, "loaded")
            os.write(terminal, f"{line}\t".encode())
            # zsh inserts a tab instead of a completion while further input waits.
            wait_for(answers, "\n")
            os.write(terminal, b"\n")
            return wait_for(terminal, " end").rpartition("typed ")[2].partition(" end")[0]
        finally:
            running.kill()
            os.close(terminal)
            os.close(answers)


_LIMIT_S: Final = 60.0


def wait_for(file: int, words: str) -> str:
    """Return the text that a terminal or a pipe gives, up to some words."""
    deadline = time.monotonic() + _LIMIT_S
    shown = ""
    while words not in shown:
        left = deadline - time.monotonic()
        assert left > 0, shown
        if select.select([file], [], [], left)[0]:
            shown += os.read(file, 65536).decode(errors="replace")
    return shown


@pytest.mark.parametrize("shell", INSTALLED)
@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("rbdagent expl", "<explain>"),
        ("rbdagent explain MappingO", "<explain> <MappingOrphaned>"),
        ("rbdagent schema Clus", "<schema> <ClusterReport>"),
        ("rbdagent who-holds pvc/def", "<who-holds> <pvc/default/data>"),
        ("rbdagent who-holds pvc da", "<who-holds> <pvc> <data>"),
        ("rbdagent who-holds pvc-07", f"<who-holds> <{VOLUME}>"),
        ("rbdagent list --from examples/true-o", "<list> <--from> <examples/true-orphan.json>"),
    ],
)
def test_tab_completes_the_word(tmp_path: Path, shell: str, line: str, typed: str) -> None:
    assert run_completed(tmp_path, shell, line) == typed


def test_developer_script_installs_the_shells() -> None:
    assert set(SHELLS) <= set(TEST_PACKAGES)
