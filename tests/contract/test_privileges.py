"""Each right of the chart's roles has a row in docs/privileges.md, and no other one has.

Each right to read also has a verb that names it if it is missing (tests/support/rights.py).
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.support.chart import render
from tests.support.cli_runner import ROOT
from tests.support.rights import ELSEWHERE, NAMED, rights_in

pytestmark = pytest.mark.needs("helm")

_RIGHT: Final = re.compile(r"`(get|list|watch|create|patch|delete) ([a-z]+)`")
_UNMAP: Final = {
    "mode": "unmap",
    "ceph": {
        "clusters": [
            {"name": "c", "config": "[global]", "keyringSecret": {"name": "rbdagent-keyring"}}
        ]
    },
}
_OF_OTHERS: Final = frozenset({"rbdagent-exec", "rbdagent-view"})
"""The roles of users who run verbs in an agent's pod, or who only read what agents publish."""


def granted() -> set[str]:
    """Return the rights of an agent in mode unmap, and of a user of the command line."""
    given = render(_UNMAP)
    return {
        f"{verb} {resource}"
        for role in (*given.of_kind("ClusterRole").values(), *given.of_kind("Role").values())
        if role["metadata"]["name"] not in _OF_OTHERS
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def documented() -> list[str]:
    """Return the rights in the first column of the table."""
    text = (ROOT / "docs" / "privileges.md").read_text()
    _, _, table = text.partition("| right | without it |")
    rows = (line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    return [" ".join(found) for row in rows for found in _RIGHT.findall(row)]


def test_each_right_of_the_roles_has_one_row() -> None:
    assert sorted(documented()) == sorted(granted())


def test_each_right_to_read_has_a_verb_that_names_it() -> None:
    roles = render(_UNMAP).of_kind("ClusterRole")
    rules = (
        rule for name, role in roles.items() if name not in _OF_OTHERS for rule in role["rules"]
    )
    assert {*rights_in(rules)} == NAMED.keys() | ELSEWHERE
