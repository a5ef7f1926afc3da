"""Files that a user names: any file may be named, and rbdagent may run as root."""

from __future__ import annotations

import json
import os
import re
import socket
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.cli import data_source, run
from rbdagent.collect.user_files import read_user_file
from rbdagent.parse import documents
from tests.support.cli_runner import ORPHAN, Done

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HIDDEN: Final = "h1dden-by-all-means"
NOTHING: Final = ("--no-ceph", "--no-kube", "--no-node")
SNAPSHOT: Final = ("who-holds", "pv/x", "--from")
CONFIG: Final = ("check", *NOTHING, "--config")
MANIFESTS: Final = ("lint", "--no-ceph", "--no-kube", "-f")
KUBECONFIG: Final = ("check", "--no-ceph", "--no-node", "--kubeconfig")
EVERY_FLAG: Final = pytest.mark.parametrize(
    "flag", [SNAPSHOT, CONFIG, KUBECONFIG, MANIFESTS], ids=lambda flag: flag[-1]
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("RBDAGENT_") or name == "KUBECONFIG":
            monkeypatch.delenv(name)


def asked(capsys: pytest.CaptureFixture[str], *args: str) -> Done:
    code = run(args)
    return Done(code, *capsys.readouterr())


def refusal(capsys: pytest.CaptureFixture[str], flag: tuple[str, ...], path: Path) -> str:
    """Return the output of a command that refuses a file, without its line breaks."""
    done = asked(capsys, *flag, str(path))
    said = " ".join(f"{done.stdout} {done.stderr}".split())
    assert done.code in {1, 2}
    assert f"{path}: " in said
    assert "defect" not in said
    assert "Traceback" not in said
    return said


# Content of a file --------------------------------------------------------------------------------

HEAD: Final = '{"apiVersion": "rbdagent.dev/v1alpha1", "kind": "Snapshot"'
CONTENTS: Final = {
    "a text": HIDDEN,
    "shadow": f"root:$6${HIDDEN}:19000:0:99999:7:::\n",
    "a keyring": f"[client.admin]\n\tkey = {HIDDEN}\n",
    "a private key": f"-----BEGIN PRIVATE KEY-----\n{HIDDEN}\n",
    "JSON": json.dumps({"password": HIDDEN}),
    "JSON with a kind": json.dumps({"kind": HIDDEN, "apiVersion": HIDDEN}),
    "JSON of a Secret": json.dumps({"kind": "Secret", "data": {"a": HIDDEN}}),
    "a list": json.dumps([HIDDEN]),
    "truncated JSON": f'{{"password": "{HIDDEN}',
    "not JSON any more": f'{{"password": "x"}} {HIDDEN}',
    "a snapshot of another version": f'{{"kind": "Snapshot", "apiVersion": "{HIDDEN}"}}',
    "a snapshot with another field": f'{HEAD}, "{HIDDEN}": 1}}',
    "a snapshot with another type": f'{HEAD}, "observedAt": ["{HIDDEN}"]}}',
    "a snapshot with another value": (
        f'{HEAD}, "observedAt": "x", "toolVersion": "x", '
        f'"target": {{"argument": "x", "kind": "{HIDDEN}"}}}}'
    ),
    "TOML": f'password = "{HIDDEN}"\n',
    "TOML with an odd key": f'"{HIDDEN} x" = 1\n',
    "TOML with a switch": f'no-ceph = "{HIDDEN}"\n',
    "TOML with a path": f'kubelet-root = {{a = "{HIDDEN}"}}\n',
    "TOML with a number": f'max-unmaps-per-hour = "{HIDDEN}"\n',
    "TOML with a text": f'ceph-id = ["{HIDDEN}"]\n',
    "TOML with a table": f'[[ceph]]\nname = ["{HIDDEN}"]\n',
    "TOML with a name twice": f'a = {{ "{HIDDEN}" = 1, "{HIDDEN}" = 2 }}\n',
    "YAML": f"password: {HIDDEN}\n",
    "YAML with a text for a list": f"contexts: {HIDDEN}\n",
    "YAML with a list for a text": f"current-context: [{HIDDEN}]\n",
    "YAML with a name that is none": f"contexts: [{{name: [{HIDDEN}]}}]\n",
    "broken YAML": f"a: {HIDDEN}: b: [\n",
    "no UTF-8": f"{HIDDEN}\udcff\udcfe",
}


@EVERY_FLAG
@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["", "debug"])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_no_error_quotes_a_file(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    flag: tuple[str, ...],
    debug: tuple[str, ...],
    content: str,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode(errors="surrogateescape"))
    done = asked(capsys, *flag, str(path), *debug)
    said = done.stdout + done.stderr
    assert done.code in {1, 2}
    assert str(path) in said
    assert HIDDEN not in said
    assert "defect" not in said


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[" * 100_000, "cannot read a snapshot: expected kind: Snapshot"),
        (HEAD + ', "node": ' + '{"a":' * 100_000, "cannot read a snapshot: expected JSON"),
        (HEAD + ', "observedAt": "\\ud800"}', "cannot read a snapshot: expected JSON"),
        (HEAD + ', "observedAt": ' + "9" * 5000 + "}", "cannot read the field $.observedAt of a"),
        (HEAD + ', "observedAt": NaN}', "cannot read a snapshot: expected JSON"),
    ],
    ids=["lists", "objects", "half a character", "a long number", "no number"],
)
def test_extreme_json_is_no_snapshot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, expected: str
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert expected in refusal(capsys, SNAPSHOT, path)


def test_numbers_of_a_snapshot_have_64_bits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    text = ORPHAN.read_text()
    assert re.search(r'"major": \d+', text)
    path.write_text(re.sub(r'"major": \d+', '"major": ' + "9" * 400, text, count=1))
    assert "major of a snapshot: expected a whole number" in refusal(capsys, SNAPSHOT, path)


@pytest.mark.parametrize("flag", [CONFIG, KUBECONFIG], ids=lambda flag: flag[-1])
@pytest.mark.parametrize(
    "content",
    [
        "a = " + "[" * 10_000,
        "a: " + "[" * 10_000,
        "a = 99999-99-99",
        "a: 2026-99-99",
        "a: !!int ''",
    ],
    ids=["nested TOML", "nested YAML", "no date", "no date of YAML", "no number of YAML"],
)
def test_extreme_values_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: tuple[str, ...], content: str
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert "not TOML" in refusal(capsys, flag, path) or flag is KUBECONFIG


@pytest.mark.parametrize(
    "line",
    [r'procfs = "/proc\u0000"', r'host-root = "\u001b[31m"', r'kubelet-root = ["a\n"]'],
)
def test_a_setting_has_no_control_characters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str
) -> None:
    path = tmp_path / "file"
    path.write_text(line)
    assert "expected a" in refusal(capsys, CONFIG, path)


@pytest.mark.parametrize("key", ["name", "conf", "id", "keyring", "timeout"])
def test_each_setting_of_a_cluster_has_a_type(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str
) -> None:
    path = tmp_path / "file"
    path.write_text(f"[[ceph]]\n{key} = [1]\n")
    assert f"ceph[0].{key}: expected a string" in refusal(capsys, CONFIG, path)


# What kind of file it is --------------------------------------------------------------------------


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@EVERY_FLAG
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "it is a FIFO, not a regular file"),
        (os.mkdir, "it is a directory, not a regular file"),
        (make_socket, "it is a socket, not a regular file"),
        (lambda path: os.symlink("/dev/zero", path), "it is a device, not a regular file"),
    ],
    ids=["FIFO", "directory", "socket", "device"],
)
def test_only_regular_files_are_opened(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    flag: tuple[str, ...],
    make: Callable[[Path], None],
    words: str,
) -> None:
    make(tmp_path / "file")
    assert words in refusal(capsys, flag, tmp_path / "file")


@EVERY_FLAG
def test_a_file_that_is_too_large_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: tuple[str, ...],
) -> None:
    monkeypatch.setattr(data_source, "_MOST", 8 << 20)
    monkeypatch.setattr(documents, "MOST_BYTES", 8 << 20)
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, (8 << 20) + 1)
    assert re.search(r"it is larger than \d+ KiB", refusal(capsys, flag, path))


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    assert read_user_file(path, most=3_000_000) == b"x" * 3_000_000
    with pytest.raises(OSError, match="larger than 2929 KiB"):
        read_user_file(path, most=2_999_999)
