"""The line on a terminal that shows what an answer still waits for."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlparse

import pytest

from rbdagent.cli.output import now_utc
from rbdagent.cli.progress import count_line, progress_line, shown_count
from rbdagent.collect.kube.requests import RBD_MAPPINGS
from rbdagent.collector import Meanwhile, collect_snapshot
from rbdagent.config import Settings
from rbdagent.model import Target, TargetKind
from tests.support.cli_runner import ROOT, read_terminal
from tests.support.fake_api import VOLUME, FakeApi, access_to, answer
from tests.support.published import publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from rbdagent.collect.parallel import Awaited

_PV: Final = f"/api/v1/persistentvolumes/{VOLUME}"
_LINE: Final = r"waiting for the Kubernetes API, \d s of 10 s"
"""A pattern: on a busy machine, the first line may show the next second."""
_ERASED: Final = "\r\x1b[K"
_PROGRAM: Final = """\
import sys
from rbdagent.cli import progress, run
progress.DELAY_S, progress.EVERY_S = 0.01, 0.01
sys.exit(run(sys.argv[1:]))
"""
"""The program with a short delay."""


class HungApi(FakeApi):
    """An API server that does not answer a request for the PV until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.broken[_PV] = self._hang

    def _hang(self, handler: BaseHTTPRequestHandler) -> None:
        self.release.wait(60)
        answer(handler, *self.answer(_PV, {}))


@pytest.fixture
def api() -> Iterator[HungApi]:
    fake = HungApi()
    yield fake
    fake.release.set()
    fake.stop()


def command(directory: Path, *flags: str) -> list[str]:
    return program(directory, "who-holds", f"pv/{VOLUME}", "-o", "json", *flags)


def program(directory: Path, *words: str) -> list[str]:
    kubeconfig = f"--kubeconfig={directory / 'kubeconfig'}"
    return [sys.executable, "-c", _PROGRAM, *words, "--no-node", "--no-ceph", kubeconfig]


def read_until(terminal: int, pattern: str) -> str:
    """Return the text on a terminal up to a pattern."""
    text = ""
    while not re.search(pattern, text):
        text += os.read(terminal, 65536).decode()
    return text


def shown_while_waiting(
    api: HungApi, directory: Path, pattern: str, *flags: str, term: str = "xterm"
) -> tuple[str, str]:
    """Return what a terminal shows; the API server answers when it shows a pattern.

    Returns:
        The text on the terminal, which is stderr, and the text on stdout.
    """
    return shown_by(api, directory, command(directory, *flags), pattern, term=term)


def shown_by(
    api: HungApi, directory: Path, words: list[str], pattern: str, *,
    term: str = "xterm", stdout: int | IO[str] = subprocess.PIPE,
) -> tuple[str, str]:  # fmt: skip
    """Return what a terminal shows of a program, as :func:`shown_while_waiting` does."""
    access_to(api, directory)
    leader, follower = pty.openpty()
    environment = dict(os.environ) | {"TERM": term}
    with subprocess.Popen(
        words, stdout=stdout, stderr=follower, text=True, env=environment, cwd=ROOT,
    ) as running:  # fmt: skip
        os.close(follower)
        text = read_until(leader, pattern)
        api.release.set()
        printed, _ = running.communicate()
        return text + read_terminal(leader), printed


def test_line_is_rewritten_and_erased_when_the_answer_comes(api: HungApi, tmp_path: Path) -> None:
    twice = f"({_LINE}.*){{2}}"
    text, stdout = shown_while_waiting(api, tmp_path, twice)
    assert re.match(re.escape(_ERASED) + _LINE, text)
    assert text.endswith(_ERASED)
    assert "\n" not in text
    assert stdout.startswith("{")
    assert "waiting for" not in stdout


@pytest.mark.parametrize("case", [("dumb",), ("xterm", "--debug")], ids=["dumb", "debug"])
def test_plain_line_is_printed_once(api: HungApi, tmp_path: Path, case: tuple[str, ...]) -> None:
    term, *flags = case
    text, stdout = shown_while_waiting(api, tmp_path, "\n", *flags, term=term)
    assert re.match(f"{_LINE}\r\n", text)
    assert text.count("waiting for") == 1
    assert "\x1b" not in text
    assert stdout.startswith("{")


def test_nothing_is_shown_on_a_pipe(api: HungApi, tmp_path: Path) -> None:
    """The answer waits for the time limit of the request, which is longer than the delay."""
    access_to(api, tmp_path)
    done = subprocess.run(
        command(tmp_path, "--kube-timeout=300ms"), capture_output=True, text=True, check=False,
        cwd=ROOT,
    )  # fmt: skip
    assert "did not answer" in done.stdout or "no answer within 0.3 s" in done.stdout
    assert done.stderr == ""


@pytest.fixture
def paged(api: HungApi) -> HungApi:
    """Return an API server that holds the third page of RBDMappings back until it is released.

    The second page, with the mapping of the second node, ends the report of the first one.
    """
    api.page = 1
    mapped = {"device": "/dev/rbd0", "verdict": "InUse", "image": {"pool": "k8s", "name": "image"}}
    for name in ("n1", "n2", "n3"):
        publish(api, name, mapped, at=now_utc())

    def play(handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlparse(handler.path).query)
        if query.get("continue") == ["2"]:
            api.release.wait(60)
        answer(handler, *api.answer(RBD_MAPPINGS, query))

    api.broken[RBD_MAPPINGS] = play
    return api


_COUNT: Final = r"waiting for the Kubernetes API, \d+ s: 1 node read"


def test_list_counts_the_nodes_that_it_has_read(paged: HungApi, tmp_path: Path) -> None:
    words = program(tmp_path, "list", "-A")
    text, stdout = shown_by(paged, tmp_path, words, f"({_COUNT}.*){{2}}")
    assert text.startswith(_ERASED)
    assert text.endswith(_ERASED)
    assert "\n" not in text
    assert stdout.startswith("0 of 3 mappings need attention, on 3 nodes.\n")


def test_count_continues_while_a_file_is_written(paged: HungApi, tmp_path: Path) -> None:
    words, written = program(tmp_path, "list", "-A", "-o", "json"), tmp_path / "written"
    with written.open("w") as file:
        text, _ = shown_by(paged, tmp_path, words, _COUNT, stdout=file)
    assert text.endswith(_ERASED)
    assert [item["node"] for item in json.loads(written.read_text())["items"]] == [
        "n1", "n2", "n3",
    ]  # fmt: skip


def test_count_ends_before_the_output_reaches_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []
    monkeypatch.setattr("rbdagent.cli.progress._write", drawn.append)
    monkeypatch.setattr("rbdagent.cli.progress._fitted", lambda line: line)
    reader, writer = os.pipe()
    with open(reader), open(writer, "w") as pipe, shown_count(once=False) as counter:
        monkeypatch.setattr("sys.stdout", pipe)
        signal.raise_signal(signal.SIGALRM)
        counter.output_begins()
        timer = signal.getitimer(signal.ITIMER_REAL)
    monkeypatch.undo()
    line, erased = drawn
    assert line.endswith(b"0 nodes read")
    assert erased == _ERASED.encode()
    assert timer == (0.0, 0.0)


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (0, "waiting for the Kubernetes API, 4 s: 0 nodes read"),
        (1, "waiting for the Kubernetes API, 4 s: 1 node read"),
        (5000, "waiting for the Kubernetes API, 4 s: 5000 nodes read"),
    ],
)
def test_line_counts_nodes(nodes: int, line: str) -> None:
    assert count_line(nodes, 4.2) == line


def test_collector_lists_what_it_waits_for(api: HungApi, tmp_path: Path) -> None:
    found: list[Awaited] = []
    is_listed = threading.Event()
    while_asked: list[Awaited] = []

    def meanwhile(awaited: Awaited) -> None:
        found.append(awaited)
        is_listed.set()

    def observe_list(handler: BaseHTTPRequestHandler) -> None:
        is_listed.wait(60)
        while_asked.append(dict(found[0]))
        answer(handler, *api.answer(_PV, {}))

    api.broken[_PV] = observe_list
    settings = Settings(
        node_name="n1", roots=None, clusters=None, kube=access_to(api, tmp_path, timeout_s=5),
        timeout_s=30, version="0",
    )  # fmt: skip
    target = Target(argument=VOLUME, kind=TargetKind.PERSISTENT_VOLUME, name=VOLUME)
    collect_snapshot(target, settings, now=lambda: "", meanwhile=Meanwhile(show=meanwhile))
    assert all(awaited["the Kubernetes API"] == 5 for awaited in while_asked)
    assert found == [{}]


@pytest.mark.parametrize(
    ("awaited", "elapsed_s", "line"),
    [
        ({"Ceph": 10.0}, 4.2, "waiting for Ceph, 4 s of 10 s"),
        ({"Ceph": 10.0}, 11.0, "waiting for Ceph, 11 s of 30 s"),
        (
            {"this node": 30.0, "the Kubernetes API": 10.0},
            4.0,
            "waiting for this node and the Kubernetes API, 4 s of 30 s",
        ),
        ({"Ceph cluster \x1b[31m": 10.0}, 4.0, "waiting for Ceph cluster \\x1b[31m, 4 s of 10 s"),
        ({}, 4.0, ""),
    ],
)
def test_line_names_the_sources_and_the_time_limit(
    awaited: Awaited, elapsed_s: float, line: str
) -> None:
    assert progress_line(awaited, elapsed_s, 30.0) == line
