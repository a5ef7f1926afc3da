"""The prepared process answers as a new process would, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.agent.prepared import offer_answers
from rbdagent.log import logger
from rbdagent.prepared import protocol
from rbdagent.report.snapshot import load_snapshot
from tests.lab import processes
from tests.lab.install import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root is answered")
REPORTED: Final = CHECKOUT / "tests" / "fixtures" / "reported"
NAMES: Final = ("rook-8728", "kubernetes-107214", "ceph-csi-858", "rook-2517")
PROGRAM: Final = (sys.executable, "-m", "rbdagent")
SERVER: Final = (sys.executable, "-m", "rbdagent.prepared.server")
WITHIN_S: Final = 30
INTERRUPTED: Final = ("env", "--default-signal=INT")
"""Before a program: a background job of a shell, and so pytest, may ignore SIGINT."""
NOT_INTERRUPTED: Final = ("env", "--ignore-signal=INT")


def wait_until(probe: Callable[[], object], what: str) -> None:
    processes.wait_until(lambda: bool(probe()), timeout_s=WITHIN_S, what=what)


def snapshot(name: str) -> Path:
    return REPORTED / f"{name}.json"


def target(name: str) -> str:
    return load_snapshot(snapshot(name).read_text(), where=name).target.argument


class Prepared:
    """A prepared process with its own directory."""

    def __init__(
        self, state_dir: Path, idle_s: float = 60, started: Sequence[str] = INTERRUPTED
    ) -> None:
        self.state_dir = state_dir
        self.directory = state_dir / protocol.DIRECTORY
        self.directory.mkdir(mode=0o700, parents=True)
        lifeline, self.kept = os.pipe()
        self.process = subprocess.Popen(
            [*started, *SERVER, str(self.directory), f"{idle_s}", str(lifeline)],
            pass_fds=(lifeline,),
            cwd=CHECKOUT,
        )
        os.close(lifeline)
        wait_until(self.is_listening, "the prepared process listens")

    def is_listening(self) -> bool:
        return (self.directory / protocol.ANSWERS).exists()

    @property
    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def end(self) -> None:
        os.close(self.kept)
        self.process.wait(WITHIN_S)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Return the process for tests that only ask it."""
    started = Prepared(tmp_path_factory.mktemp("kept"), idle_s=600)
    yield started
    started.end()


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    started = Prepared(tmp_path)
    yield started
    started.process.kill()
    started.process.wait()


def ask(*arguments: str, state_dir: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a directory that its answer may depend on."""
    known = os.environ | {"RBDAGENT_STATE_DIR": str(state_dir), "COLUMNS": "80"} | environment
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=REPORTED,
        env=known,
        capture_output=True,
        check=False,
        timeout=WITHIN_S,
    )


def _reads_a_pipe(pid: int) -> bool:
    return "pipe_read" in Path(f"/proc/{pid}/wchan").read_text()


@contextlib.contextmanager
def waiting(
    prepared: Prepared, started: Sequence[str] = INTERRUPTED
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a command that waits for its standard input."""
    command = subprocess.Popen(
        [*started, *PROGRAM, "who-holds", "pvc/shop/data", "--from", "-"],
        env=os.environ | {"RBDAGENT_STATE_DIR": str(prepared.state_dir)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with command:
        try:
            wait_until(lambda: any(map(_reads_a_pipe, prepared.children)), "the child to wait")
            yield command
        finally:
            # Without it, the end of the block would wait for a command that a test left.
            command.kill()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("output", ["table", "json", "yaml", "wide"])
def test_answer_is_that_of_a_new_process(
    kept: Prepared, tmp_path: Path, name: str, output: str
) -> None:
    command = ("who-holds", target(name), "--from", f"{name}.json", "-o", output)
    environment = {"NO_COLOR": ""} if output == "table" else {"FORCE_COLOR": "1"}
    answers = [
        ask(*command, state_dir=place, **environment)
        for place in (kept.state_dir, tmp_path / "none")
    ]
    assert answers[0].returncode == answers[1].returncode
    assert answers[0].stdout == answers[1].stdout
    assert answers[0].stderr == answers[1].stderr
    assert kept.children == []


@pytest.mark.parametrize(
    "command",
    [
        ("who-holds", "--help"),
        ("who-holds", "pv/none", "--from", "no.json"),
        ("diagnose", "-A", "-o", "nothing"),
        ("explain", "RBD102"),
        ("list", "\udce9"),
    ],
)
def test_failure_is_that_of_a_new_process(
    kept: Prepared, tmp_path: Path, command: tuple[str, ...]
) -> None:
    here, cold = (ask(*command, state_dir=place) for place in (kept.state_dir, tmp_path / "none"))
    assert (here.returncode, here.stdout, here.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )
    assert kept.is_listening()


def test_verb_that_may_write_runs_in_its_own_process(prepared: Prepared, tmp_path: Path) -> None:
    # A process that cannot start shows who ran the command.
    prepared.process.send_signal(signal.SIGSTOP)
    assert ask("unmap", "--help", state_dir=tmp_path).returncode == 0
    prepared.process.send_signal(signal.SIGCONT)


def test_process_that_does_not_answer_delays_no_command(prepared: Prepared, tmp_path: Path) -> None:
    prepared.process.send_signal(signal.SIGSTOP)
    assert ask("explain", "RBD102", state_dir=tmp_path).returncode == 0
    prepared.process.send_signal(signal.SIGCONT)
    assert ask("explain", "RBD102", state_dir=tmp_path).returncode == 0


def test_closed_stream_runs_in_its_own_process(prepared: Prepared, tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {' '.join(PROGRAM)} explain RBD102 >&-"],
        env=os.environ | {"RBDAGENT_STATE_DIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0
    assert prepared.children == []


def test_interrupt_ends_the_command_as_in_a_new_process(prepared: Prepared) -> None:
    with waiting(prepared) as command:
        command.send_signal(signal.SIGINT)
        assert command.wait(WITHIN_S) == 130
    wait_until(lambda: not prepared.children, "the child has ended")


@pytest.mark.parametrize("started", [INTERRUPTED, NOT_INTERRUPTED])
def test_interrupt_before_the_command_runs_ends_it(tmp_path: Path, started: Sequence[str]) -> None:
    """The process reads it at once after the request, while its child begins."""
    prepared = Prepared(tmp_path, started=started)
    arguments = ["who-holds", "pvc/shop/data", "--from", "-"]
    request = protocol.Request(
        protocol.identity(), arguments, dict(os.environb), ["utf-8", "strict"] * 3
    )
    packed = request.packed()
    read, write = os.pipe()
    there = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(WITHIN_S)
        link.connect(str(prepared.directory / protocol.ANSWERS))
        link.sendall(protocol.MAGIC + len(packed).to_bytes(protocol.LENGTH, "little") + packed)
        assert link.recv(1) == protocol.TAKEN
        socket.send_fds(link, [protocol.GO], [read, write, write, there])
        link.sendall(protocol.INTERRUPT)
        assert link.recv(2) == protocol.EXITED + bytes([protocol.INTERRUPTED])
    for descriptor in (read, write, there):
        os.close(descriptor)
    prepared.end()


def test_interrupt_reaches_the_command_of_an_agent_that_ignores_it(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path, started=NOT_INTERRUPTED)
    with waiting(prepared) as command:
        command.send_signal(signal.SIGINT)
        assert command.wait(WITHIN_S) == 130
    prepared.end()


def test_command_that_ignores_interrupts_is_not_interrupted(prepared: Prepared) -> None:
    with waiting(prepared, started=NOT_INTERRUPTED) as command:
        command.send_signal(signal.SIGINT)
        _, error = command.communicate(b"no snapshot", timeout=WITHIN_S)
    assert b"stdin: cannot read a snapshot" in error
    assert command.returncode == 1


def test_second_interrupt_waits_for_no_child(prepared: Prepared) -> None:
    with waiting(prepared) as command:
        (child,) = prepared.children
        os.kill(child, signal.SIGSTOP)
        # A child that still runs would handle SIGINT first: its number is lower.
        wait_until(lambda: status_of(child, "State:").startswith("T"), "the child is stopped")
        command.send_signal(signal.SIGINT)
        wait_until(lambda: is_pending(child, signal.SIGINT), "the first one was passed on")
        command.send_signal(signal.SIGINT)
        assert command.wait(WITHIN_S) == 130
        assert command.stderr is not None
        assert command.stderr.read() == b""
    wait_until(lambda: not prepared.children, "the child has ended")


def is_pending(pid: int, number: signal.Signals) -> bool:
    """Return whether a stopped process has a signal that it has not handled."""
    return bool(int(status_of(pid, "ShdPnd:"), 16) & 1 << number - 1)


def status_of(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(field))
    return value


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_ends_with_its_command(prepared: Prepared, number: signal.Signals) -> None:
    with waiting(prepared) as command:
        command.send_signal(number)
        assert command.wait(WITHIN_S) == -number
    wait_until(lambda: not prepared.children, "the child has ended")
    assert prepared.process.poll() is None


def test_command_ends_with_its_child(prepared: Prepared) -> None:
    with waiting(prepared) as command:
        os.kill(prepared.children[0], signal.SIGKILL)
        assert command.wait(WITHIN_S) == -signal.SIGKILL


def test_command_and_child_end_with_the_process(prepared: Prepared) -> None:
    with waiting(prepared) as command:
        (child,) = (os.pidfd_open(pid) for pid in prepared.children)
        prepared.process.kill()
        assert command.wait(WITHIN_S) == 1
        assert command.stderr is not None
        error = command.stderr.read()
    assert b"run the command again" in error
    # A pidfd is readable when its process has ended.
    wait_until(lambda: has_ended(child), "the child has ended")
    os.close(child)


def has_ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def test_process_ends_with_the_agent(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    with waiting(prepared) as command:
        prepared.end()
        assert prepared.process.returncode == 0
        assert command.wait(WITHIN_S) == 1
    assert not prepared.is_listening()


def test_process_ends_without_questions(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path, idle_s=0.1)
    assert prepared.process.wait(WITHIN_S) == 0
    assert not prepared.is_listening()
    os.close(prepared.kept)


def test_other_user_is_not_answered(prepared: Prepared, tmp_path: Path) -> None:
    # Open the directory: only the check of the credentials is left.
    prepared.directory.chmod(0o755)
    (prepared.directory / protocol.ANSWERS).chmod(0o777)
    program = (
        f"import socket;s=socket.socket(socket.AF_UNIX);s.connect({protocol.ANSWERS!r});"
        "s.settimeout(9);s.send(b'rbdagent');print(s.recv(1))"
    )
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program],
        # It begins in the directory: the directories above are open to root only.
        cwd=prepared.directory,
        user=65534,
        capture_output=True,
        check=False,
    )
    is_closed = (b"ConnectionReset" in done.stderr, b"BrokenPipe" in done.stderr)
    assert done.stdout == b"b''\n" or any(is_closed)
    assert ask("explain", "RBD102", state_dir=tmp_path).returncode == 0


def test_other_version_and_other_namespace_run_in_their_own_process(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rbdagent.prepared import client

    monkeypatch.setenv("RBDAGENT_STATE_DIR", str(prepared.state_dir))
    own = protocol.identity()
    for part in range(len(own)):
        other = [*own[:part], b"other", *own[part + 1 :]]
        monkeypatch.setattr(protocol, "identity", lambda other=other: other)
        assert client.answered(["explain", "RBD102"]) is None
    monkeypatch.setattr(protocol, "identity", lambda: own)
    assert prepared.children == []


@pytest.mark.parametrize(
    "sent", [b"", b"rbdagent", b"x" * 100, b"rbdagent\xff\xff\xff\xff", b"rbdagent\x04\0\0\0abcd"]
)
def test_damaged_request_ends_nothing(prepared: Prepared, tmp_path: Path, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(prepared.directory / protocol.ANSWERS))
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        link.settimeout(WITHIN_S)
        with contextlib.suppress(ConnectionResetError):
            assert link.recv(1) == b""
    assert ask("explain", "RBD102", state_dir=tmp_path).returncode == 0


def test_agent_starts_the_process_at_the_first_question(tmp_path: Path) -> None:
    offer_answers(tmp_path, 0.5, logger())
    directory = tmp_path / protocol.DIRECTORY
    assert directory.stat().st_mode & 0o777 == 0o700
    first = ask("explain", "RBD102", state_dir=tmp_path)
    wait_until((directory / protocol.ANSWERS).exists, "the process listens")
    assert ask("explain", "RBD102", state_dir=tmp_path).stdout == first.stdout
    wait_until(lambda: not (directory / protocol.ANSWERS).exists(), "it ends")


def test_agent_without_a_writable_directory_offers_no_answers(tmp_path: Path) -> None:
    (tmp_path / protocol.DIRECTORY).touch()
    offer_answers(tmp_path, 1, logger())
    assert ask("explain", "RBD102", state_dir=tmp_path).returncode == 0
