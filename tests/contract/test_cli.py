"""The command line as its users and scripts see it."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click
import jsonschema
import pytest
import yaml

from rbdagent import __version__
from rbdagent.addresses import RUNBOOKS
from rbdagent.catalog import CATALOG
from rbdagent.cli import cli, run
from rbdagent.collect.kube.kubeconfig import KubeAccess, credentials
from rbdagent.errors import SourceError
from rbdagent.report.snapshot import dump_snapshot
from tests.support.cli_runner import (
    ORPHAN,
    VOLUME,
    Done,
    modules_of,
    node_snapshot,
    on_terminal,
    process,
    read_and_leave,
)
from tests.support.recordings import recorded_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


class Ask(Protocol):
    """Runs a command in this process."""

    def __call__(self, *args: str) -> Done: ...


_PV: Final[Json] = json.loads(ORPHAN.read_text())["kubernetes"]["persistentVolumes"][0]
VERBS: Final = tuple(cli.list_commands(click.Context(cli)))
HANDLE: Final = str(_PV["source"]["volumeHandle"])
IMAGE: Final = f"csi-vol-{HANDLE[-36:]}"
WHO: Final = ("who-holds", f"pv/{VOLUME}", "--from", str(ORPHAN))


_SETTINGS: Final = frozenset({"COLUMNS", "FORCE_COLOR", "KUBECONFIG", "NO_COLOR", "NODE_NAME"})
"""Variables without the prefix of rbdagent that change what it does."""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove all settings of the developer from the environment."""
    for name in os.environ:
        if name.startswith("RBDAGENT_") or name in _SETTINGS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def in_this_process(*args: str) -> Done:
        code = run(args)
        return Done(code, *capsys.readouterr())

    return in_this_process


@pytest.fixture(scope="session")
def node_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the snapshot file of a node with three mappings in use, for `list --from`."""
    snapshot = node_snapshot(
        "24-read-only-and-shared", "crox", root=tmp_path_factory.mktemp("node")
    )
    return written(tmp_path_factory.mktemp("snapshots"), dump_snapshot(snapshot))


def written(directory: Path, text: str) -> Path:
    path = directory / "file"
    path.write_text(text)
    return path


# --------------------------------------------------------------------------------------------------
# TARGET
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        (VOLUME,),
        (f"pv/{VOLUME}",),
        ("pvc/default/data",),
        ("pvc/data",),
        ("pvc/data", "-n", "default"),
        ("-n", "default", "pvc/data"),
        ("pod/default/app-2",),
        ("pod/app-2", "--namespace", "default"),
        ("pvc", "data"),
        ("pvc", "data", "-n", "default"),
        ("-n", "default", "PersistentVolumeClaim", "data"),
        ("po", "-n", "default", "app-2"),
        ("pv", VOLUME),
        (f"k8s/{IMAGE}",),
        (HANDLE,),
        ("/dev/rbd0",),
    ],
    ids=" ".join,
)
def test_every_form_of_a_target_leads_to_the_same_holders(
    ask: Ask, target: tuple[str, ...]
) -> None:
    report = ask("who-holds", *target, "--from", str(ORPHAN), "-o", "json").data
    assert report["holders"] == ask(*WHO, "-o", "json").data["holders"]
    assert [holder["device"] for holder in report["holders"]] == ["/dev/rbd0"]


@pytest.mark.parametrize("target", ["", " ", "pv/", "pvc/", "pvc//data", "pod/", "/dev/sda"])
def test_error_about_a_wrong_target_lists_all_forms(ask: Ask, target: str) -> None:
    done = ask("who-holds", target, "--from", str(ORPHAN))
    assert (done.code, done.stdout) == (2, "")
    for form in ("pv/NAME", "pvc/NAMESPACE/NAME", "pod/NAMESPACE/NAME",
                 "POOL[/NAMESPACE]/IMAGE", "a CSI volume handle", "/dev/rbdN"):  # fmt: skip
        assert form in done.stderr


@pytest.mark.parametrize(
    ("target", "form"),
    [
        ("pv/shop/data", "pv/data"),
        ("pvc/a/b/c", "pvc/NAMESPACE/NAME"),
        ("a/b/c/d", "POOL/NAMESPACE/IMAGE"),
    ],
)
def test_error_about_too_many_parts_shows_the_right_form(ask: Ask, target: str, form: str) -> None:
    done = ask("who-holds", target)
    assert (done.code, done.stdout) == (2, "")
    assert form in done.stderr


def test_a_namespace_flag_that_contradicts_the_target_is_refused(ask: Ask) -> None:
    done = ask("who-holds", "pvc/default/data", "-n", "shop")
    assert done.code == 2
    assert "default" in done.stderr
    assert "shop" in done.stderr


@pytest.mark.parametrize("verb", ["who-holds", "diagnose"])
@pytest.mark.parametrize("target", ["pv/pvc-0", "pvc/shop/data", "k8s/other", "/dev/rbd7"])
def test_error_names_the_target_of_the_snapshot(ask: Ask, verb: str, target: str) -> None:
    done = ask(verb, target, "--from", str(ORPHAN))
    assert (done.code, done.stdout) == (1, "")
    assert target in done.stderr
    assert f"rbdagent {verb} pv/{VOLUME} --from {ORPHAN}" in done.stderr


def test_who_holds_with_a_snapshot_of_a_node_suggests_list(ask: Ask, node_file: Path) -> None:
    done = ask("who-holds", "pv/x", "--from", str(node_file))
    assert (done.code, done.stdout) == (1, "")
    assert f"rbdagent list --from {node_file}" in done.stderr


def test_list_with_a_snapshot_of_a_volume_suggests_who_holds(ask: Ask) -> None:
    done = ask("list", "--from", str(ORPHAN))
    assert (done.code, done.stdout) == (1, "")
    assert f"rbdagent who-holds pv/{VOLUME} --from {ORPHAN}" in done.stderr
    assert f"{VOLUME}, not of every mapping of a node\n" in done.stderr
    assert "`rbdagent snapshot` writes what is needed here\n" in done.stderr


# --------------------------------------------------------------------------------------------------
# Output formats
# --------------------------------------------------------------------------------------------------


def test_the_table_is_aligned_under_its_head(ask: Ask) -> None:
    lines = ask(*WHO, "-o", "wide").stdout.splitlines()
    head, row = next(pair for pair in itertools.pairwise(lines) if "CONFIDENCE" in pair[0])
    for column, cell in (("NODE", "worker-1"), ("DEVICE", "/dev/rbd0"), ("VERDICT", "Orphaned")):
        assert row.index(cell) == head.index(column)


def test_output_ends_with_commands_and_then_sources(ask: Ask) -> None:
    *_, do_this, footer = ask(*WHO).stdout.split("\n\n")
    title, *commands = do_this.splitlines()
    assert title == "Do this"
    assert [line[:13] for line in commands] == ["  1. see     ", "  2. change  ", "  3. check   "]
    main, sources = footer.splitlines()
    assert main.startswith("RBD101 MappingOrphaned   details: -v   explain: rbdagent explain RBD")
    assert sources.startswith("node ok, ceph ok, kubernetes ok   observed 20")


def test_an_answer_with_nothing_to_do_ends_with_its_sources(ask: Ask, node_file: Path) -> None:
    last = ask("list", "--from", str(node_file)).stdout.split("\n\n")[-1]
    assert last.startswith("node ok")
    assert "ceph ok" in last
    assert "kubernetes ok" in last


@pytest.mark.usefixtures("config")
def test_wide_adds_columns_to_the_tables(ask: Ask, node_file: Path) -> None:
    command = ("list", "--from", str(node_file), "-o")
    head, wide = (ask(*command, form).stdout.splitlines()[2] for form in ("table", "wide"))
    assert wide.split()[: len(head.split())] == head.split()
    assert len(wide) > len(head)


@pytest.mark.parametrize("verb", ["who-holds", "diagnose"])
def test_verbose_and_wide_add_the_same_details(ask: Ask, verb: str) -> None:
    short = ask(verb, *WHO[1:]).stdout
    details = ask(verb, *WHO[1:], "-v").stdout
    assert ask(verb, *WHO[1:], "-o", "wide").stdout == details
    assert "VolumeAttachment" not in short
    for fact in ("10.77.0.11:0/", "Sources:", "Remedy:", "FailedMount"):
        assert fact in details


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_text_has_the_width_of_the_terminal(
    ask: Ask, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = ask(*WHO).stdout.splitlines()
    text = [line for line in lines if "rbdagent unmap" not in line and "who-holds" not in line]
    assert columns * 3 // 4 < max(map(len, text)) <= columns


def test_commands_are_those_of_the_place_where_they_are_read(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    done = ask(*WHO)
    assert f"1. see     kubectl rbdagent unmap pv/{VOLUME} --node worker-1\n" in done.stdout
    assert "explain: kubectl rbdagent explain RBD101\n" in done.stdout
    assert ask(*WHO, "-o", "json").data["next"][0]["command"].startswith("rbdagent unmap pv/")
    page = ask("diagnose", *WHO[1:], "-o", "html").stdout
    assert f"kubectl rbdagent unmap pv/{VOLUME} --node worker-1" in page


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("explain", "RBD999"), "  `{} explain` lists all codes\n"),
        (("list", "--from", "missing"), "  --from needs a file that `{} snapshot` wrote"),
        (("list", "--no-such-flag"), "Usage: {} list [OPTIONS]\nTry '{} list --help' for help.\n"),
        (("no-such-verb",), "Try '{} --help' for help.\n"),
        (
            ("who-holds", "pv/other", "--from", str(ORPHAN)),
            f"  {{}} who-holds pv/{VOLUME} --from {ORPHAN}\n",
        ),
    ],
    ids=["explain", "list", "usage", "verb", "who-holds"],
)
@pytest.mark.parametrize("program", ["rbdagent", "kubectl rbdagent"])
def test_hint_is_typed_where_the_error_is_read(
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    hint: str,
    program: str,
) -> None:
    monkeypatch.setenv("RBDAGENT_PROGRAM", program)
    done = ask(*words)
    assert done.code != 0
    assert hint.replace("{}", program) in done.stderr


def test_hint_about_a_snapshot_from_stdin_leaves_its_file_to_the_reader(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin passes the file that --from names to stdin of the agent's pod."""
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ORPHAN.read_bytes())))
    done = ask("who-holds", "pv/other", "--from", "-")
    assert f"  kubectl rbdagent who-holds pv/{VOLUME} --from FILE\n" in done.stderr


def test_hint_of_unmap_names_the_node_through_the_plugin(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices of one image: the plugin needs --node to find the node of /dev/rbdN."""
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    found = json.loads(ORPHAN.read_text())
    (held,) = found["node"]["mappings"]
    found["node"]["mappings"] = [held, held | {"deviceID": 1, "device": "/dev/rbd1"}]
    done = ask("unmap", f"pv/{VOLUME}", "--from", str(written(tmp_path, json.dumps(found))))
    assert done.code == 2
    assert "  name the device: kubectl rbdagent unmap DEVICE --node worker-1, where " in done.stderr


def test_name_prints_one_line_per_holder(ask: Ask) -> None:
    assert ask(*WHO, "-o", "name").stdout == "worker-1/rbd0\n"


def test_data_goes_to_stdout_and_nothing_to_stderr(ask: Ask) -> None:
    assert ask(*WHO, "-o", "json").stderr == ""


MACHINE: Final = (
    (WHO, "HolderReport"),
    (("check", "--no-node", "--no-ceph", "--no-kube"), "CheckReport"),
    (("explain", "RBD404"), "Explanation"),
    (("explain", "binding"), "StateMachine"),
    (("version",), "Version"),
)


@pytest.mark.parametrize(("command", "kind"), MACHINE, ids=lambda value: value[0])
def test_json_matches_the_schema_that_rbdagent_prints(
    ask: Ask, command: tuple[str, ...], kind: str
) -> None:
    answer = ask(*command, "-o", "json").data
    assert answer["kind"] == kind
    jsonschema.validate(answer, ask("schema", kind).data)


@pytest.mark.parametrize(("command", "_kind"), MACHINE, ids=lambda value: value[0])
def test_yaml_and_json_contain_the_same_data(
    ask: Ask, command: tuple[str, ...], _kind: str
) -> None:
    answer = ask(*command, "-o", "json").data
    assert yaml.safe_load(ask(*command, "-o", "yaml").stdout) == answer


def test_a_pipe_gets_no_escape_codes() -> None:
    assert "\033" not in process(*WHO).stdout


def test_colours_on_a_terminal_add_no_information() -> None:
    shown = on_terminal(*WHO)
    assert "\033[" in shown
    assert re.sub(r"\033\[\d+m", "", shown) == process(*WHO).stdout


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colours_gets_no_escape_codes(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert on_terminal(*WHO) == process(*WHO).stdout


@pytest.mark.parametrize(
    ("environment", "flags", "has_colours"),
    [
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"FORCE_COLOR": "1"}, ("--color", "never"), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({}, ("--color", "auto"), False),
    ],
)
def test_flag_decides_about_colours_before_the_environment(
    environment: dict[str, str],
    flags: tuple[str, ...],
    *,
    has_colours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\033[" in process(*WHO, *flags).stdout) is has_colours


# --------------------------------------------------------------------------------------------------
# Exit codes
# --------------------------------------------------------------------------------------------------


def orphaned(_root: Path) -> Json:
    """Return a snapshot with findings that are errors."""
    found: Json = json.loads(ORPHAN.read_text())
    return found


def unseen(root: Path) -> Json:
    """Return a snapshot without data of Kubernetes: warnings, and nothing is certain."""
    failed = {"state": "failed", "reason": "no route to host"}
    found = orphaned(root)
    return found | {
        "target": {"argument": "/dev/rbd0", "kind": "device", "name": "/dev/rbd0"},
        "kubernetes": None,
        "sources": found["sources"] | {"kubernetes": failed},
    }


def dead(root: Path) -> Json:
    """Return a snapshot with warnings that is certain: the process of an rbd-nbd has died."""
    return json_of("28-orphan-blocks-delete", "cn", "n2", root)


def healthy(root: Path) -> Json:
    """Return a snapshot of a volume in use in which everything was observed."""
    found = json_of("01-fs-running", "c1", "n1", root)
    found["sources"]["node"].pop("gaps", None)
    return found


def json_of(recording: str, claim: str, node: str, root: Path) -> Json:
    snapshot = recorded_snapshot(recording, claim, node_name=node, root=root)
    found: Json = json.loads(dump_snapshot(snapshot))
    return found


@pytest.mark.parametrize(
    ("look", "flags", "code"),
    [
        (healthy, (), 0),
        (healthy, ("--fail-on", "warning"), 0),
        (healthy, ("--fail-on", "info"), 3),
        (dead, (), 0),
        (dead, ("--fail-on", "warning"), 3),
        (dead, ("--fail-on", "info"), 3),
        (unseen, (), 1),
        (unseen, ("--fail-on", "warning"), 3),
        (orphaned, (), 3),
        (orphaned, ("--fail-on", "error"), 3),
        (orphaned, ("--fail-on", "warning"), 3),
    ],
)
def test_exit_code_follows_from_findings_and_completeness(
    ask: Ask,
    tmp_path: Path,
    look: Callable[[Path], Json],
    flags: tuple[str, ...],
    code: int,
) -> None:
    (tmp_path / "node").mkdir()
    found = look(tmp_path / "node")
    path = written(tmp_path, json.dumps(found))
    done = ask("who-holds", found["target"]["argument"], "--from", str(path), *flags)
    assert done.code == code, done.stdout


@pytest.mark.parametrize("verb", ["diagnose", "who-holds"])
def test_claim_that_waits_for_its_first_pod_is_a_complete_answer(ask: Ask, verb: str) -> None:
    life = Path(__file__).parents[1] / "fixtures" / "life"
    path = life / "first_pod_missing.json"
    assert ask(verb, "pvc/default/first-pod-missing", "--from", str(path)).code == 0


def test_exit_code_does_not_depend_on_the_format(ask: Ask) -> None:
    assert {ask(*WHO, "-o", form).code for form in ("table", "wide", "json", "yaml", "name")} == {3}


def test_the_process_ends_with_the_exit_code() -> None:
    assert process(*WHO).code == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ("who-holds",),
        ("who-holds", "pv/a", "pv/b"),
        ("who-holds", "pvc", "a", "b"),
        ("diagnose", "deployment", "a"),
        ("who-holds", "pv/a", "--bogus"),
        ("who-holds", "pv/a", "-o", "xml"),
        ("who-holds", "pv/a", "--fail-on", "fatal"),
        ("list", "--timeout", "soon"),
        ("list", "--timeout", "0s"),
        ("list", "-n"),
        ("completion", "powershell"),
        ("xyzzy",),
        ("--bogus",),
    ],
    ids=" ".join,
)
def test_a_wrong_call_exits_2_and_prints_no_data(ask: Ask, wrong: tuple[str, ...]) -> None:
    done = ask(*wrong)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr


def test_choices_of_a_missing_argument_are_words_of_one_line(ask: Ask) -> None:
    assert ask("completion").stderr.endswith(" Choose from: bash, zsh, fish\n")


def test_the_plugins_flag_for_a_node_is_named_as_such(ask: Ask) -> None:
    """--node-name, which looks similar, would give this machine the name of another node."""
    said = ask("list", "--node", "worker-1").stderr
    assert "kubectl rbdagent has --node" in said
    assert "--node-name" not in said


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        (("who-hold", "pv/a"), "who-holds"),
        (("verson",), "version"),
        (("lst",), "list"),
        (("list", "--namespac", "a"), "--namespace"),
        (("who-holds", "pv/a", "--kubconfig", "a"), "--kubeconfig"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_a_typo_in_a_verb_or_flag_gets_a_near_match(
    ask: Ask, typo: tuple[str, ...], meant: str
) -> None:
    done = ask(*typo)
    assert done.code == 2
    assert re.search(rf"(?<!\S)'?{meant}\b", done.stderr.splitlines()[-1])


# --------------------------------------------------------------------------------------------------
# list
# --------------------------------------------------------------------------------------------------


def test_list_prints_one_row_per_mapping(ask: Ask, node_file: Path) -> None:
    done = ask("list", "--from", str(node_file))
    summary, table, *_ = done.stdout.split("\n\n")
    head, *rows = table.splitlines()
    assert done.code == 0
    assert summary == "0 of 3 mappings on n1 need attention, as far as observed: 3 InUse."
    assert head.split()[:3] == ["DEVICE", "VERDICT", "CLAIM"]
    assert [row.split()[0] for row in rows] == ["/dev/rbd0", "/dev/rbd1", "/dev/rbd2"]
    assert "default/crox" in rows[2]


def test_list_as_json_is_valid_and_names_each_image(ask: Ask, node_file: Path) -> None:
    answer = ask("list", "--from", str(node_file), "-o", "json").data
    jsonschema.validate(answer, ask("schema", "MappingList").data)
    assert [item["image"]["name"] for item in answer["items"]][2:] == ["rox1"]
    assert {item["verdict"] for item in answer["items"]} == {"InUse"}


def test_list_as_yaml_and_json_contains_the_same_data(ask: Ask, node_file: Path) -> None:
    command = ("list", "--from", str(node_file), "-o")
    assert yaml.safe_load(ask(*command, "yaml").stdout) == ask(*command, "json").data


def test_list_as_names_prints_one_line_per_mapping(ask: Ask, node_file: Path) -> None:
    done = ask("list", "--from", str(node_file), "-o", "name")
    assert done.stdout == "".join(f"n1/rbd{number}\n" for number in range(3))


def test_list_of_a_namespace_omits_other_namespaces(
    ask: Ask, node_file: Path, tmp_path: Path
) -> None:
    snapshot = json.loads(node_file.read_text())
    kube = snapshot["kubernetes"]
    claims = [volume["claim"] for volume in kube["persistentVolumes"] if "claim" in volume]
    for claim in (*claims, *(item["ref"] for item in kube["claims"])):
        if claim["name"] == "crox":
            claim["namespace"] = "shop"
    path = written(tmp_path, json.dumps(snapshot))
    command = ("list", "--from", str(path), "-o", "name", "-n")
    assert ask(*command, "shop").stdout == "n1/rbd2\n"
    assert ask(*command, "default").stdout == "n1/rbd0\nn1/rbd1\n"
    assert ask(*command, "missing").stdout == ""


@pytest.mark.parametrize(
    ("selector", "devices"),
    [
        ("tier=db", "2"),
        ("tier!=db", "01"),
        ("tier", "2"),
        ("!tier", "01"),
        ("tier in (db, web),app=shop", "2"),
        ("tier notin (db)", "01"),
    ],
)
def test_list_with_a_selector_shows_volumes_of_matching_claims(
    ask: Ask, node_file: Path, tmp_path: Path, selector: str, devices: str
) -> None:
    snapshot = json.loads(node_file.read_text())
    for claim in snapshot["kubernetes"]["claims"]:
        if claim["ref"]["name"] == "crox":
            claim["labels"] = [["app", "shop"], ["tier", "db"]]
    path = written(tmp_path, json.dumps(snapshot))
    done = ask("list", "--from", str(path), "-o", "name", "-l", selector)
    assert done.stdout == "".join(f"n1/rbd{number}\n" for number in devices)


def test_list_reports_a_selector_that_matches_no_volume(ask: Ask, node_file: Path) -> None:
    done = ask("list", "--from", str(node_file), "-n", "default", "-l", "tier=db")
    assert "No volume of namespace default with -l tier=db is mapped on n1" in done.stdout


def test_malformed_selector_exits_2_and_shows_the_syntax(ask: Ask, node_file: Path) -> None:
    done = ask("list", "--from", str(node_file), "-l", "tier in db")
    assert (done.code, done.stdout) == (2, "")
    assert "'tier in db'" in done.stderr
    assert "KEY in (A,B)" in done.stderr


@pytest.mark.parametrize("more", [("--from", str(ORPHAN)), ("--no-kube",)])
def test_list_of_all_nodes_refuses_incompatible_flags(ask: Ask, more: tuple[str, ...]) -> None:
    done = ask("list", "-A", *more)
    assert (done.code, done.stdout) == (2, "")
    assert "list -A" in done.stderr


@pytest.mark.parametrize("target", ["pvc/a/b", "pod/a/b", "pv/a"])
def test_target_that_only_kubernetes_knows_is_not_looked_up_without_it(
    ask: Ask, target: str
) -> None:
    done = ask("who-holds", target, "--no-node", "--no-ceph", "--no-kube")
    said = " ".join(done.stdout.split())
    assert said.startswith(f"UNDETERMINED {target} was not looked up: Kubernetes was not queried.")
    assert f"1. see rbdagent who-holds {target} # without --no-kube" in said
    assert "not found" not in said


def test_a_reason_of_several_steps_is_printed_once(ask: Ask) -> None:
    answer = ask("diagnose", "pvc/a/b", "--no-node", "--no-ceph", "--no-kube").stdout
    assert "provision, bind, schedule, attach, stage, publish not observed: " in " ".join(
        answer.split()
    )


# --------------------------------------------------------------------------------------------------
# explain, schema, version, completion
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["RBD101", "rbd101", "MappingOrphaned"])
def test_explain_prints_cause_evidence_risk_and_remedy(ask: Ask, name: str) -> None:
    done = ask("explain", name)
    assert done.code == 0
    assert done.stdout.startswith("RBD101 MappingOrphaned")
    for part in ("Cause:", "Evidence:", "Risk:", "Remedy:"):
        assert f"\n{part}" in done.stdout


def test_piped_explanation_is_wrapped(ask: Ask) -> None:
    for code in ("RBD101", "RBD203", "RBD726"):
        assert max(map(len, ask("explain", code).stdout.splitlines())) <= 80


def test_explain_without_a_code_lists_all_codes(ask: Ask) -> None:
    done = ask("explain")
    assert done.code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(CATALOG)


def test_error_about_an_unknown_code_suggests_explain(ask: Ask) -> None:
    done = ask("explain", "RBD1O1")
    assert (done.code, done.stdout) == (1, "")
    assert "RBD1O1" in done.stderr
    assert "rbdagent explain" in done.stderr


def test_every_kind_that_schema_lists_has_a_valid_schema(ask: Ask) -> None:
    kinds = ask("schema").stdout.split()
    assert {"HolderReport", "MappingList", "Snapshot"} <= set(kinds)
    for kind in kinds:
        schema = ask("schema", kind).data
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["properties"]["kind"] == {"const": kind}


def test_schema_of_an_output_requires_every_field(ask: Ask) -> None:
    """A snapshot omits fields that have their default value; no other output omits a field."""
    for kind in ask("schema").stdout.split():
        schema = ask("schema", kind).data
        for part in (schema, *schema["$defs"].values()):
            if kind != "Snapshot" and "properties" in part:
                assert part["required"] == list(part["properties"]), (kind, part["title"])


def test_error_about_an_unknown_kind_lists_the_kinds(ask: Ask) -> None:
    done = ask("schema", "HolderRaport")
    assert (done.code, done.stdout) == (1, "")
    assert "HolderRaport" in done.stderr
    assert "HolderReport" in done.stderr


@pytest.mark.parametrize("args", [("version",), ("--version",)], ids=" ".join)
def test_the_version_is_one_line(ask: Ask, args: tuple[str, ...]) -> None:
    done = ask(*args)
    assert (done.code, done.stdout) == (0, f"rbdagent {__version__}\n")


def test_the_version_as_json_names_python_too(ask: Ask) -> None:
    answer = ask("version", "-o", "json").data
    assert answer["version"] == __version__
    assert answer["python"].startswith("3.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_rbdagent(ask: Ask, shell: str) -> None:
    done = ask("completion", shell)
    assert done.code == 0
    assert re.search(r"^ *#?(complete|compdef) .*\brbdagent\b", done.stdout, re.MULTILINE)


def test_the_script_for_bash_is_bash(ask: Ask) -> None:
    script = ask("completion", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_completion_returns_the_verb_to_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RBDAGENT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "rbdagent who")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert process() == Done(0, "plain,who-holds\n", "")


# --------------------------------------------------------------------------------------------------
# Help
# --------------------------------------------------------------------------------------------------

OBSERVING: Final = frozenset(
    {"--node-name", "--procfs", "--sysfs", "--host-root", "--kubelet-root", "--ceph-conf",
     "--ceph-id", "--ceph-keyring", "--ceph-timeout", "--kubeconfig", "--context",
     "--kube-timeout", "--no-ceph", "--no-kube", "--no-node", "--timeout", "--config"}
)  # fmt: skip
READING: Final = OBSERVING | {
    "-o", "--from", "--fail-on", "-w", "--watch", "-n", "-v", "--verbose", "--color"
}  # fmt: skip


def flags_of(done: Done) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*|(?<![\w-])-[A-Z]\b", done.stdout))


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_works_for_every_verb(ask: Ask, verb: str | None, flag: str) -> None:
    done = ask(*filter(None, (verb, flag)))
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: rbdagent {verb or ''}")
    assert {"-h", "--help"} <= flags_of(done)


def test_the_help_lists_every_verb(ask: Ask) -> None:
    said = ask("--help").stdout
    for verb in ("who-holds", "list", "drain-check", "check", "explain", "snapshot", "schema",
                 "version", "completion"):  # fmt: skip
        assert f"\n  {verb} " in said
    *_, verbs = said.partition("\nCommands:\n")
    assert "..." not in verbs


@pytest.mark.parametrize(
    ("verb", "flags"),
    [
        ("who-holds", READING),
        ("list", READING | {"-A"}),
        ("check", OBSERVING | {"-o"}),
        ("drain-check", OBSERVING | {"-o", "--from", "--after", "--before"}),
        ("images", OBSERVING | {"-o", "--unclaimed", "--all"}),
        ("snapshot", OBSERVING | {"-n"}),
        ("explain", {"-o"}),
        ("version", {"-o"}),
    ],
)
def test_the_help_of_a_verb_mentions_every_flag_of_the_contract(
    ask: Ask, verb: str, flags: set[str]
) -> None:
    assert not flags - flags_of(ask(verb, "--help"))


def test_help_of_who_holds_shows_every_form_of_a_target(ask: Ask) -> None:
    said = " ".join(ask("who-holds", "--help").stdout.split())
    for form in ("pv/NAME", "pvc/NAMESPACE/NAME", "pod/NAMESPACE/NAME",
                 "POOL[/NAMESPACE]/IMAGE", "CSI volume handle", "/dev/rbdN"):  # fmt: skip
        assert form in said


@pytest.mark.parametrize(
    "args",
    [("--help",), ("who-holds", "--help"), ("version",), ("explain",), ("explain", "RBD101")],
    ids=" ".join,
)
def test_commands_without_a_source_import_no_client_library(args: tuple[str, ...]) -> None:
    modules = modules_of(*args)
    assert "rbdagent.cli" in modules
    assert not modules & {"kubernetes", "rados", "rbd", "pycurl", "yaml"}


# --------------------------------------------------------------------------------------------------
# Bad snapshots
# --------------------------------------------------------------------------------------------------


def make_directory(path: Path) -> None:
    path.mkdir()


def make_file(content: str | bytes) -> Callable[[Path], None]:
    data = content.encode() if isinstance(content, str) else content

    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


HEAD: Final = '{"apiVersion": "rbdagent.dev/v1alpha1", "kind": "Snapshot"'


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda _: None, ("no such file", "snapshot"), id="missing"),
        pytest.param(make_directory, ("directory", "`rbdagent snapshot`"), id="directory"),
        pytest.param(make_file(""), ("expected JSON", "the file is empty"), id="empty"),
        pytest.param(make_file(ORPHAN.read_text()[:900]), ("ends too early",), id="truncated"),
        pytest.param(
            make_file(b"\x7fELF\x02\xd0\xff"),
            ("not a text file", "`rbdagent snapshot`"),
            id="binary",
        ),
        pytest.param(make_file("[1]"), ("expected kind: Snapshot",), id="a list"),
        pytest.param(
            make_file(HEAD.replace("alpha1", "") + "}"),
            ("expected apiVersion: rbdagent.dev/v1alpha1", "another version of rbdagent"),
            id="of another version",
        ),
        pytest.param(
            make_file(HEAD.replace("Snapshot", "HolderReport") + "}"),
            ("kind: HolderReport", "expected kind: Snapshot", "`rbdagent snapshot`"),
            id="of another kind",
        ),
        pytest.param(
            make_file(HEAD + ', "observedAt": 7}'),
            ("$.observedAt", "expected a text"),
            id="damaged",
        ),
    ],
)
@pytest.mark.parametrize("verb", [("who-holds", "pv/x"), ("list",)], ids=lambda verb: verb[0])
def test_error_about_a_bad_snapshot_names_the_expected_form(
    ask: Ask,
    tmp_path: Path,
    verb: tuple[str, ...],
    make: Callable[[Path], None],
    words: tuple[str, ...],
) -> None:
    path = tmp_path / "snapshot.json"
    make(path)
    done = ask(*verb, "--from", str(path))
    assert done.code in {1, 2}
    assert done.stdout == ""
    assert str(path) in done.stderr
    assert "defect" not in done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_output_of_snapshot_is_valid_and_can_be_listed(ask: Ask, tmp_path: Path) -> None:
    done = ask("snapshot", "--no-node", "--no-ceph", "--no-kube")
    assert (done.code, done.stderr) == (0, "")
    jsonschema.validate(done.data, ask("schema", "Snapshot").data)
    listed = ask("list", "--from", str(written(tmp_path, done.stdout)))
    assert "not queried, as requested" in listed.stdout


def test_snapshot_names_each_source_that_is_not_in_it(ask: Ask, tmp_path: Path) -> None:
    missing = str(tmp_path / "no-kubeconfig")
    only = ask("snapshot", "pvc/a/b", "--no-ceph", "--no-node", "--kubeconfig", missing)
    assert only.code == 1
    assert only.stderr.startswith("not in this file: kubernetes: ")
    assert ask("snapshot", "pvc/a/b", "--no-ceph", "--kubeconfig", missing).code == 0


def test_debug_shows_the_traceback(ask: Ask, tmp_path: Path) -> None:
    done = ask("who-holds", "pv/x", "--from", str(written(tmp_path, "{")), "--debug")
    assert "Traceback" in done.stderr


# --------------------------------------------------------------------------------------------------
# Configuration
# --------------------------------------------------------------------------------------------------

CHECK: Final = ("check", "-v", "--no-ceph", "--no-kube", "--no-node")


def setting(done: Done, flag: str) -> tuple[str, str]:
    """Return the value and the origin of a flag, as `check` prints them."""
    found = re.search(rf"^  ok +{flag} is (.*): (.*)$", done.stdout, re.MULTILINE)
    assert found is not None, done
    return found[1], found[2]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of a configuration file that sets the time limit to 7 s."""
    monkeypatch.setenv("COLUMNS", "300")
    return str(written(tmp_path, 'timeout = "7s"\nceph-id = "watcher"\n'))


def test_a_flag_outranks_environment_and_file(
    ask: Ask, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_TIMEOUT", "9s")
    done = ask(*CHECK, "--config", config, "--timeout", "3s")
    assert setting(done, "--timeout") == ("3s", "flag")


def test_the_environment_outranks_the_file(
    ask: Ask, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_TIMEOUT", "9s")
    done = ask(*CHECK, "--config", config)
    assert setting(done, "--timeout") == ("9s", "environment")
    assert setting(done, "--ceph-id") == ("watcher", config)


def test_the_file_outranks_the_default_and_is_named(ask: Ask, config: str) -> None:
    assert setting(ask(*CHECK, "--config", config), "--timeout") == ("7s", config)


def test_setting_that_is_not_set_has_its_default(ask: Ask) -> None:
    done = ask(*CHECK)
    assert setting(done, "--timeout") == ("30s", "default")
    assert setting(done, "--ceph-conf") == ("/etc/ceph/ceph.conf", "default")
    assert setting(done, "--ceph-id") == ("rbdagent", "default")
    assert setting(done, "--kube-timeout") == ("10s", "default")


def test_the_environment_may_name_the_file(
    ask: Ask, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_CONFIG", config)
    assert setting(ask(*CHECK), "--timeout") == ("7s", config)


def test_environment_may_exclude_a_source(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBDAGENT_NO_NODE", "true")
    done = ask("check", "-v", "--no-ceph", "--no-kube")
    assert setting(done, "--no-node") == ("on", "environment")


def test_environment_may_choose_the_output_format(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_OUTPUT", "name")
    assert ask(*WHO).stdout == "worker-1/rbd0\n"


def test_the_file_may_change_what_counts_as_a_failure(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    found = healthy(tmp_path / "node")
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps(found))
    file = written(tmp_path, 'fail-on = "info"\n')
    command = ("who-holds", found["target"]["argument"], "--from", str(snapshot))
    assert ask(*command, "--config", str(file)).code == 3
    assert ask(*command, "--config", str(file), "--fail-on", "error").code == 0


@pytest.mark.usefixtures("config")
def test_repeatable_flag_keeps_its_order_from_every_origin(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(written(tmp_path, 'kubelet-root = ["/k2", "/k1"]\n'))
    assert setting(ask(*CHECK, "--config", file), "--kubelet-root") == ("/k2 /k1", file)
    monkeypatch.setenv("RBDAGENT_KUBELET_ROOT", "/e2 /e1")
    assert setting(ask(*CHECK, "--config", file), "--kubelet-root") == ("/e2 /e1", "environment")
    flags = ("--kubelet-root", "/f2", "--kubelet-root", "/f1")
    assert setting(ask(*CHECK, "--config", file, *flags), "--kubelet-root") == ("/f2 /f1", "flag")


def test_check_prints_the_origin_of_every_flag(ask: Ask) -> None:
    done = ask(*CHECK)
    for flag in OBSERVING:
        assert setting(done, flag)[1] in {"default", "flag"}


def test_check_prints_a_line_for_each_excluded_source(ask: Ask) -> None:
    lines = ask(*CHECK).stdout.splitlines()
    for source in ("node", "ceph", "kubernetes"):
        assert "not checked: disabled by a flag" in lines[lines.index(source) + 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('timeot = "7s"', ("timeot", "did you mean timeout?")),
        ('[[ceph]]\nkeyrng = "a"', ("keyrng", "did you mean keyring?")),
        ("xyzzy = 1", ("xyzzy", "known keys:")),
        ('timeout = "7s', ("not TOML",)),
        ('ceph = "a"', ("[[ceph]]",)),
    ],
    ids=["unknown key", "unknown key of a cluster", "nothing near", "bad TOML", "no table"],
)
def test_a_wrong_configuration_exits_2_and_names_file_and_fault(
    ask: Ask, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    path = written(tmp_path, text)
    done = ask(*CHECK, "--config", str(path))
    assert (done.code, done.stdout) == (2, "")
    assert str(path) in done.stderr
    for word in words:
        assert word in done.stderr


def test_configuration_file_that_is_given_must_exist(ask: Ask, tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    done = ask(*CHECK, "--config", path)
    assert (done.code, done.stdout) == (2, "")
    assert f"{path}: no such file" in done.stderr


@pytest.mark.parametrize("origin", ["flag", "environment", "file"])
def test_error_about_a_bad_duration_shows_the_syntax(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    args: tuple[str, ...] = ()
    if origin == "flag":
        args = ("--timeout", "soon")
    elif origin == "environment":
        monkeypatch.setenv("RBDAGENT_TIMEOUT", "soon")
    else:
        args = ("--config", str(written(tmp_path, 'timeout = "soon"\n')))
    done = ask(*CHECK, *args)
    assert (done.code, done.stdout) == (2, "")
    for word in ("--timeout", "soon", "1m30s"):
        assert word in done.stderr


# --------------------------------------------------------------------------------------------------
# Closed pipes, incomplete observations, and secrets
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [0, 1])
@pytest.mark.parametrize(
    "args", [("explain",), ("schema", "Snapshot"), (*WHO, "-o", "json"), ("--help",)],
    ids=lambda args: args[0],
)  # fmt: skip
def test_closed_pipe_ends_the_command_without_an_error(args: tuple[str, ...], lines: int) -> None:
    assert read_and_leave(*args, lines=lines) == ""


def test_exit_code_with_a_closed_pipe_is_0() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rbdagent", "explain"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait() == 0


@pytest.mark.parametrize(
    ("redirection", "words"), [(">&-", ""), (">/dev/full", "No space left on device")]
)
def test_output_that_cannot_be_written_is_not_a_defect(redirection: str, words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m rbdagent version {redirection}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    assert words in done.stderr


def test_name_of_an_alert_leads_to_its_finding_and_to_the_runbooks(ask: Ask) -> None:
    said = ask("explain", "RBDMappingPinned").stderr
    assert "did you mean RBD102 MappingPinned" in said
    assert f"alerts have runbooks: {RUNBOOKS}README.md\n" in said
    assert "runbooks" not in ask("explain", "RBD999").stderr


def test_a_typo_of_a_code_or_a_kind_gets_near_matches(ask: Ask) -> None:
    assert "RBD101" in ask("explain", "RBD1O1").stderr
    assert "did you mean HolderReport?" in ask("schema", "HolderRaport").stderr


def test_explain_without_a_code_prints_valid_json(ask: Ask) -> None:
    found = ask("explain", "-o", "json").data
    jsonschema.validate(found, json.loads(ask("schema", "ExplanationList").stdout))
    assert {item["code"] for item in found["items"]} == set(CATALOG)


def test_list_reports_a_namespace_without_mappings(ask: Ask, node_file: Path) -> None:
    done = ask("list", "--from", str(node_file), "-n", "missing")
    assert "No volume of namespace missing is mapped on n1; 3 others are." in done.stdout


def test_list_of_a_namespace_fails_without_observed_claims(
    ask: Ask, node_file: Path, tmp_path: Path
) -> None:
    found = json.loads(node_file.read_text()) | {"kubernetes": None}
    done = ask("list", "--from", str(written(tmp_path, json.dumps(found))), "-n", "default")
    assert done.code == 1
    assert "cannot select the mappings of namespace default" in done.stderr
    assert "rbdagent list without -n and -l shows all; rbdagent check shows" in done.stderr


def test_hint_about_one_node_names_it_through_the_plugin(
    ask: Ask, node_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_PROGRAM", "kubectl rbdagent")
    found = json.loads(node_file.read_text()) | {"kubernetes": None}
    done = ask("list", "--from", str(written(tmp_path, json.dumps(found))), "-n", "default")
    assert "  kubectl rbdagent list --node n1 without -n and -l shows all; " in done.stderr
    assert "; kubectl rbdagent check --node n1 shows what is missing" in done.stderr


def test_list_marks_unobserved_volumes_as_not_observed(
    ask: Ask, node_file: Path, tmp_path: Path
) -> None:
    found = json.loads(node_file.read_text()) | {"kubernetes": None}
    done = ask("list", "--from", str(written(tmp_path, json.dumps(found))))
    assert "<none>" not in done.stdout.split("\n\n")[1]
    assert "<not observed>" in done.stdout


@pytest.mark.parametrize("flags", [("--no-node",), ("--procfs", "/none"), ("--sysfs", "/none")])
def test_list_of_an_unobserved_node_is_not_a_success(ask: Ask, flags: tuple[str, ...]) -> None:
    done = ask("list", "--no-ceph", "--no-kube", *flags)
    assert done.code == 1
    assert "The mappings of this node were not observed." in done.stdout


def test_check_of_a_directory_without_sysfs_claims_nothing_about_the_module(ask: Ask) -> None:
    done = ask("check", "-v", "--no-ceph", "--no-kube", "--sysfs", "/none")
    assert "RBD devices cannot be seen: /none: no sysfs is mounted there" in done.stdout
    assert "pass --sysfs with the path of the host's /sys" in done.stdout
    assert "module" not in done.stdout
    assert "no device was observed here" in " ".join(done.stdout.split())


TABLES: Final = '[[ceph]]\nname = "a"\nconf = "/none/a.conf"\n'


@pytest.mark.needs(module="rados")
@pytest.mark.usefixtures("config")
def test_a_file_may_name_clusters(ask: Ask, tmp_path: Path) -> None:
    file = str(written(tmp_path, TABLES))
    done = ask("check", "-v", "--no-node", "--no-kube", "--config", file)
    assert f"[[ceph]] names cluster a: {file}" in done.stdout
    assert "--ceph-conf" not in done.stdout.partition("\nconfiguration\n")[2]
    assert "/none/a.conf" in done.stdout


@pytest.mark.needs(module="rados")
@pytest.mark.usefixtures("config")
def test_flag_for_a_cluster_outranks_the_clusters_of_the_file(ask: Ask, tmp_path: Path) -> None:
    file = str(written(tmp_path, TABLES))
    flags = ("--config", file, "--ceph-conf", "/none/flag.conf")
    done = ask("check", "-v", "--no-node", "--no-kube", *flags)
    assert setting(done, "--ceph-conf") == ("/none/flag.conf", "flag")
    assert "cannot read /none/flag.conf" in done.stdout
    assert "a.conf" not in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('timeout = "soon"', ("--timeout", "{file}")),
        ('fail-on = "fatal"', ("--fail-on", "{file}")),
        ('no-ceph = "maybe"', ("no-ceph", "{file}", "true or false")),
        ("procfs = 5", ("procfs", "{file}", "string in quotes")),
        ("kubelet-root = 7", ("kubelet-root", "{file}", "list of paths")),
        ('kubelet-root = "kubelet"', ("--kubelet-root", "{file}", "not absolute")),
    ],
)
def test_a_bad_value_in_the_file_names_the_file(
    ask: Ask, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    file = str(written(tmp_path, text))
    done = ask("list", "--no-node", "--no-ceph", "--no-kube", "--config", file)
    assert done.code == 2
    for word in words:
        assert word.format(file=file) in done.stderr


def test_a_bad_value_of_the_environment_names_the_variable(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBDAGENT_TIMEOUT", "soon")
    done = ask(*CHECK)
    assert done.code == 2
    assert "RBDAGENT_TIMEOUT" in done.stderr


@pytest.mark.usefixtures("config")
def test_single_kubelet_root_may_be_a_string(ask: Ask, tmp_path: Path) -> None:
    file = str(written(tmp_path, 'kubelet-root = "/k"\n'))
    assert setting(ask(*CHECK, "--config", file), "--kubelet-root") == ("/k", file)


def test_check_prints_skipped_sources_in_the_usual_order(ask: Ask) -> None:
    done = ask("check", "--no-node", "--no-ceph", "--no-kube")
    sections = [line for line in done.stdout.splitlines() if line and " " not in line]
    assert sections == ["node", "ceph", "kubernetes"]


@pytest.mark.usefixtures("config")
def test_kubelet_root_is_normalized(ask: Ask) -> None:
    """The paths of mounts are compared with it: with a slash at its end, none would match."""
    assert setting(ask(*CHECK, "--kubelet-root", "//k//a/"), "--kubelet-root") == ("/k/a", "flag")


def test_relative_kubelet_root_is_a_usage_error(ask: Ask) -> None:
    done = ask(*CHECK, "--kubelet-root", "var/lib/kubelet")
    assert done.code == 2
    assert "'var/lib/kubelet' is not absolute: write the path on the host" in done.stderr


def test_check_ignores_an_output_format_that_it_lacks(ask: Ask, tmp_path: Path) -> None:
    file = str(written(tmp_path, 'output = "name"\n'))
    assert ask(*CHECK, "--config", file).code == 0


HIDDEN: Final = "h1dden-by-all-means"
KUBECONFIG: Final = f"""\
current-context: lab
contexts: [{{name: lab, context: {{cluster: lab, user: me}}}}]
clusters: [{{name: lab, cluster: {{server: "https://127.0.0.1:1"}}}}]
users: [{{name: me, user: {{token: {HIDDEN}}}}}]
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(KUBECONFIG, id="no server"),
        pytest.param(KUBECONFIG.replace("https:", "ftp:"), id="no such protocol"),
        pytest.param(KUBECONFIG.replace("current-context: lab", ""), id="no context"),
        pytest.param(KUBECONFIG.replace("name: lab, cluster", "name: x, cluster"), id="no cluster"),
        pytest.param(KUBECONFIG + "}", id="not YAML after the token"),
        pytest.param(KUBECONFIG.replace("}}]\n", "}]\n"), id="not YAML at the token"),
        pytest.param(KUBECONFIG.replace(HIDDEN, f'"{HIDDEN}'), id="an open quote"),
        pytest.param(
            KUBECONFIG.replace(HIDDEN, f'"{HIDDEN}\\n\\u20ac"'), id="a token of two lines"
        ),
        pytest.param(
            KUBECONFIG.replace("{token: ", "{token: [").replace("}}]\n", "]}}]\n"), id="l"
        ),
        pytest.param(
            KUBECONFIG.replace(f"{{token: {HIDDEN}}}", HIDDEN), id="a user that is a text"
        ),
        pytest.param(KUBECONFIG.replace("token:", "client-key-data:"), id="half a certificate"),
        pytest.param(
            KUBECONFIG.replace(
                f"token: {HIDDEN}",
                f"client-key-data: {HIDDEN}, client-certificate-data: {HIDDEN}",
            ),
            id="no certificate",
        ),
        pytest.param(HIDDEN, id="nothing but a token"),
        pytest.param(f"users: {HIDDEN}\ncontexts: {HIDDEN}\n", id="texts for lists"),
    ],
)
@pytest.mark.parametrize("verb", [("check",), ("who-holds", "pv/x")], ids=lambda verb: verb[0])
def test_no_error_about_a_kubeconfig_shows_its_token(
    tmp_path: Path, verb: tuple[str, ...], text: str
) -> None:
    assert HIDDEN in text
    path = written(tmp_path, text)
    done = process(*verb, "--no-ceph", "--no-node", "--kubeconfig", str(path), "--debug")
    assert done.code != 0
    assert HIDDEN not in done.stdout + done.stderr
    assert "defect" not in done.stderr, "a broken kubeconfig is a source that failed"


PLUGIN: Final = KUBECONFIG.replace(
    f"token: {HIDDEN}",
    "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, args: [],"
    " interactiveMode: Never}",
)


def test_a_credential_plugin_that_fails_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, PLUGIN)
    done = process("check", "--no-ceph", "--no-node", "--kubeconfig", str(path), columns=300)
    assert "the credential plugin of context 'lab' (/bin/false) failed" in done.stdout
    assert "ERROR" not in done.stderr


AUTH_PROVIDER: Final = KUBECONFIG.replace(f"token: {HIDDEN}", "auth-provider: {name: oidc}")


@pytest.mark.parametrize("text", [PLUGIN, AUTH_PROVIDER], ids=["exec", "auth-provider"])
def test_error_names_the_missing_package_for_credential_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The .deb does not contain this package."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    access = KubeAccess(kubeconfig=written(tmp_path, text), context=None, timeout_s=1.0)
    with pytest.raises(SourceError, match="kubernetes, which runs it, is not installed") as raised:
        credentials(access)
    assert "python3-kubernetes" in raised.value.hint


def test_printed_commands_keep_the_clusters_of_the_question(ask: Ask, tmp_path: Path) -> None:
    missing = str(tmp_path / "kubeconfig")
    done = ask("who-holds", "pvc/default/data", "--no-ceph", "--kubeconfig", missing)
    assert f"rbdagent check --kubeconfig {missing}" in done.stdout
    assert "rbdagent explain RBD415\n" in done.stdout
