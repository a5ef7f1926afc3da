"""Names, paths and labels that a tenant may choose: no printed command runs any part of them."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

import pytest

from rbdagent.commands import NOT_PRINTED, line_of, text_of
from rbdagent.correlate import correlate
from rbdagent.lifecycle.steps import lifecycle_of
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from tests.support.rows import each_row
from tests.support.rule_rows import diagnose
from tests.support.rule_rows.families import FAMILIES
from tests.support.snapshots import DRIVER, HANDLE, POD_UID, PV, SPEC

if TYPE_CHECKING:
    from rbdagent.model import Command, Snapshot

HOSTILE: Final = (
    ";touch${IFS}P;#",
    "$(touch P)",
    "`touch P`",
    " -rf /",
    "'",
    '"',
    "\n  kubectl delete pv --all",
    "\u202egnp",
    "\x1b]0;x\x07",
    "|sh",
    "&",
    "\\",
)
NAMES: Final = (
    "web-0",
    "web-1",
    "default",
    "data",
    "worker-1",
    "worker-2",
    PV,
    SPEC.name,
    SPEC.pool,
    HANDLE,
    DRIVER,
    POD_UID,
)
"""The names of pods, namespaces, claims, nodes, volumes, images and drivers in the rule tables."""


def rows() -> list[Any]:
    """Return one snapshot for each code: that of the first row of its table."""
    found: dict[str, Snapshot] = {}
    for family in FAMILIES:
        for code, table in family.REPORTED.items():
            row = next(iter(table.values()))
            found[code] = row[0] if isinstance(row, tuple) else row
    return [pytest.param(seen, id=code) for code, seen in found.items()]


def poisoned(seen: Snapshot, name: str, hostile: str, *, leading: bool) -> Snapshot:
    """Return a snapshot in which each occurrence of a name is a hostile name."""
    other = f"-{hostile}{name}" if leading else f"{name}{hostile}"

    def replaced(value: Any) -> Any:  # noqa: ANN401 - any JSON
        match value:
            case str():
                return value.replace(name, other)
            case list():
                return [replaced(part) for part in value]
            case dict():
                return {key: replaced(part) for key, part in value.items()}
            case _:
                return value

    return load_snapshot(json.dumps(replaced(json.loads(dump_snapshot(seen)))), where="memory")


def commands_of(seen: Snapshot) -> list[Command]:
    life = lifecycle_of(correlate(seen), seen)
    return [given for finding in life.findings for given in finding.commands]


@each_row("seen", rows())
def test_command_with_a_hostile_name_stays_one_command(seen: Snapshot) -> None:
    for number, name in enumerate(NAMES):
        hostile = HOSTILE[number % len(HOSTILE)]
        for leading in (False, True):
            for given in commands_of(poisoned(seen, name, hostile, leading=leading)):
                line = line_of(given)
                assert line == NOT_PRINTED or tuple(shlex.split(line, comments=True)) == given.argv
                assert "\n" not in line


@pytest.mark.parametrize("hostile", HOSTILE)
def test_commands_for_a_hostile_pod_run_only_known_programs(hostile: str) -> None:
    """Assert that each printed command begins with a program of the known list."""
    table = diagnose.REPORTED["RBD102"]
    for seen in table.values():
        for name in NAMES:
            for given in commands_of(poisoned(seen, name, hostile, leading=False)):
                assert given.argv[0] in {
                    "ps",
                    "findmnt",
                    "kubectl",
                    "rbdagent",
                    "dmsetup",
                    "ssh",
                    "losetup",
                    "lsblk",
                    "swapon",
                    "crictl",
                }
                text = text_of(given)
                assert text is None or shlex.split(text)[0] == given.argv[0]
