"""Attempts of an unprivileged pod on this kernel do not change the answers about other volumes.

Each attempt runs on the real kernel as uid 65534 without capabilities (tests/lab/hostile.py).
``./dev bench hostile`` measures its cost.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import shlex
import socket
import subprocess
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.model import DeviceNumber
from tests.lab import hostile
from tests.lab.hostile import ATTEMPTS, TENANT, TENANT_PODS, VICTIM, Node, given_device
from tests.lab.network import free_port
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.lab.hostile import Attempt

_MOST_MIB: Final = 128
_HALF_SENT: Final = 900


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("hostile-node")
    for above in (directory, directory.parent):
        above.chmod(0o755)
    made = Node(directory)
    yield made
    made.stop()


def observed(node: Node) -> Any:  # noqa: ANN401 - a snapshot as JSON
    """Return what rbdagent observes of the node."""
    answer = node.run("snapshot")
    assert answer.exit_code == 0
    assert answer.peak_mib < _MOST_MIB
    return answer.json


def about_victim(snapshot: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """Return the parts of a snapshot about the victim, its pods and the host."""
    seen = snapshot["node"]
    mapping = seen["mappings"][VICTIM]
    assert DeviceNumber(**mapping["number"]) == node.numbers[VICTIM]
    return {
        "mapping": mapping,
        "openers": sorted({opener["process"]["pid"] for opener in mapping["openers"]}),
        "kubelet": {key: seen["kubelet"][key] for key in ("roots", "process")},
        "in flight": seen.get("inFlight", []),
        "bystanders": [
            process for process in seen["processes"] if process["podUid"] == hostile.BYSTANDERS_POD
        ],
    }


def differences(before: object, after: object) -> list[str]:
    """Return the lines that differ: pytest's comparison of two whole answers hides them."""
    old, new = (
        json.dumps(answer, indent=1, sort_keys=True).splitlines() for answer in (before, after)
    )
    return [*difflib.unified_diff(old, new, lineterm="")]


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_an_attempt_changes_nothing_about_another_volume(node: Node, attempt: Attempt) -> None:
    before = about_victim(observed(node), node)
    with node.trying(given_device(attempt, node.numbers[VICTIM])):
        during = about_victim(observed(node), node)
    assert not differences(before, during)
    assert not differences(before, about_victim(observed(node), node))
    assert before["openers"] == sorted(node.bystanders)
    assert before["kubelet"]["process"]["pid"] == node.kubelet


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_gaps_are_about_the_tenant_and_name_its_process(node: Node, attempt: Attempt) -> None:
    before = observed(node)["sources"]["node"].get("gaps", [])
    with node.trying(given_device(attempt, node.numbers[VICTIM])):
        gaps = observed(node)["sources"]["node"].get("gaps", [])
        pids = node.pids_of_tenant()
    for gap in gaps:
        assert gap in before or (
            TENANT_PODS in gap["reason"] and any(f"process {pid} " in gap["reason"] for pid in pids)
        )


def test_no_forged_volume_is_reported(node: Node) -> None:
    with node.trying(hostile.FORGED_VOLUME):
        assert "unbacked" not in observed(node)["node"]


def test_a_pods_process_with_a_lower_pid_is_not_kubelet(node: Node) -> None:
    """The host's kubelet restarts beside it."""
    with node.trying(hostile.KUBELET) as (pid,):
        node.restart_kubelet()
        seen = observed(node)["node"]["kubelet"]
    assert pid < seen["process"]["pid"] == node.kubelet
    assert seen["roots"] == [str(node.kubelet_root)]


@pytest.mark.parametrize("broken", hostile.LINE_BREAKS)
def test_a_mount_with_a_line_break_in_its_path_is_one_mount(node: Node, broken: str) -> None:
    attempt = given_device(hostile.FORGED_MOUNTS, node.numbers[VICTIM])
    with node.trying(attempt) as (pid,):
        mounts = observed(node)["node"]["mappings"][TENANT]["mounts"]
    own = [mount["path"] for mount in mounts if mount["namespace"]["process"]["pid"] == pid]
    assert any(path.endswith(f"/own{broken}volume") for path in own)


# --------------------------------------------------------------------------------------------------
# Printed output
# --------------------------------------------------------------------------------------------------

_PRINTED: Final = (
    ("who-holds", "/dev/rbd1"),
    ("who-holds", "/dev/rbd1", "-o", "json"),
    ("diagnose", "/dev/rbd1"),
    ("diagnose", "/dev/rbd1", "-o", "json"),
    ("list",),
    ("list", "-o", "wide"),
    ("list", "-o", "json"),
    ("snapshot",),
)
_PRINTING: Final = (hostile.HOSTILE_PATHS, hostile.TERMINAL, hostile.NO_TEXT)


@pytest.mark.parametrize("attempt", _PRINTING, ids=lambda attempt: attempt.name)
@pytest.mark.parametrize("verb", _PRINTED, ids=" ".join)
def test_no_output_has_a_terminal_control_character(
    node: Node, attempt: Attempt, verb: tuple[str, ...]
) -> None:
    with node.trying(attempt):
        text = node.run(*verb).text.decode()
    assert text
    obeyed = {character for character in text if unicodedata.category(character) in {"Cc", "Cf"}}
    assert obeyed <= {"\n"}


def commands_in(answer: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Yield each command of an answer."""
    if isinstance(answer, dict):
        if "argv" in answer:
            yield answer
        for value in answer.values():
            yield from commands_in(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from commands_in(value)


@pytest.fixture
def other_node(tmp_path: Path) -> Iterator[Node]:
    """Yield a separate node for a test that unmounts a volume."""
    for above in (tmp_path, tmp_path.parent):
        above.chmod(0o755)
    made = Node(tmp_path)
    yield made
    made.stop()


def test_a_printed_command_runs_nothing_from_a_tenant(other_node: Node, tmp_path: Path) -> None:
    """A process without a pod keeps an unmounted volume: a findmnt command would show where."""
    with other_node.trying(hostile.HOSTILE_PATHS, where="user.slice"):
        other_node.unmount(TENANT)
        seen = other_node.run("snapshot", "/dev/rbd1").json
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(seen | _API | {"sources": seen["sources"] | _API_SOURCE}))
    answer = other_node.run("who-holds", "/dev/rbd1", "-o", "json", "--from", str(file))
    commands = list(commands_in(answer.json))
    for path in hostile.HOSTILE_PATHS.paths:
        assert any(f"/opt{path}" in command["argv"] for command in commands)
    made = tmp_path / "run"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "touch").symlink_to("/usr/bin/touch")
    for command in commands:
        assert shlex.split(command["command"]) == command["argv"]
        subprocess.run(
            ["/bin/sh", "-c", command["command"]],
            cwd=made,
            env={"PATH": str(made / "bin")},
            check=False,
            capture_output=True,
        )
    assert [path.name for path in made.iterdir()] == ["bin"]


_API: Final = {"kubernetes": {"server": "https://127.0.0.1:6443", "persistentVolumes": []}}
_API_SOURCE: Final = {"kubernetes": {"state": "observed"}}


# --------------------------------------------------------------------------------------------------
# The agent
# --------------------------------------------------------------------------------------------------


def cycles_of(node: Node) -> int:
    """Return how many cycles the agent has done; each cycle logs a line for debugging."""
    lines = node.agent_log.read_text().splitlines()
    return sum(json.loads(line).get("event") == "cycle" for line in lines)


@contextlib.contextmanager
def half_sent(port: int) -> Iterator[None]:
    """Open very many requests and complete none."""
    with contextlib.ExitStack() as connections:
        for _ in range(_HALF_SENT):
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            connections.enter_context(connection)
            with contextlib.suppress(ConnectionError):
                connection.send(b"GET /metrics HTTP/1.1\r\nX-Unended: ")
        yield


def cost_of(pid: int) -> tuple[float, int]:
    """Return the peak memory in MiB and the thread count of a process and its children."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak, threads = (
        int(re.findall(rf"^{key}:\s+(\d+)", status, re.MULTILINE)[0])
        for key in ("VmHWM", "Threads")
    )
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    costs = [(peak / 1024, threads), *(cost_of(int(child)) for child in children)]
    return sum(cost for cost, _ in costs), sum(count for _, count in costs)


def test_an_agent_survives_all_attempts_at_once(node: Node, tmp_path: Path) -> None:
    port = free_port()
    agent = node.start_agent(
        *("--listen", f"127.0.0.1:{port}", "--resync", "1s", "--state-dir", str(tmp_path)),
        *("--freeze-file", str(tmp_path / "freeze"), "--log-level", "debug"),
    )
    wait_until(lambda: cycles_of(node) >= 2, timeout_s=60, what="the agent's second cycle")
    attempts = [given_device(attempt, node.numbers[VICTIM]) for attempt in ATTEMPTS]
    with node.trying(*attempts), half_sent(port):
        _, threads = cost_of(agent.pid)
    assert threads < 64
    with node.trying(*attempts):
        begun = cycles_of(node)
        wait_until(lambda: cycles_of(node) >= begun + 5, timeout_s=120, what="five more cycles")
        peak, threads = cost_of(agent.pid)
    assert peak < _MOST_MIB
    assert threads < 64
    assert agent.poll() is None
