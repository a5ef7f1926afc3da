"""The table of versions is complete, and each cell without a run shows the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.matrix_cells import (
    ARTEFACT_TABLE,
    E2E_TABLE,
    KEYS_TABLE,
    KUBERNETES,
    cells,
)
from tests.lab.matrix_document import README, Result, document, read_record, readme
from tests.lab.parts import DEFAULT_KUBERNETES, USERLANDS
from tests.lab.support_table import AXES

_PASSED = Result(
    state="passed",
    ran="27 of 27 tests",
    commit="abc1234",
    day="2026-11-23",
    seconds=39,
    disk_mib=1200,
    versions={"Ceph": "16.2.15"},
)


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("Debian", {"12", "13", "forky"}),
        ("Ceph", {"16.2", "18.2", "20.2"}),
        ("Kernel", {"5.10", "6.1", "6.12", "7"}),
        ("Kubernetes", {*KUBERNETES, DEFAULT_KUBERNETES}),
        ("CephX keys", {"aes", "aes256k"}),
        ("Monitors", {"msgr2 and v1", "v1 alone", "msgr2 alone"}),
        ("Addresses", {"IPv4", "IPv6", "dual stack"}),
        ("CSI driver", {"ceph-csi", "the lab's"}),
    ],
)
def test_every_value_of_an_axis_is_run_end_to_end(axis: str, values: set[str]) -> None:
    ends = [cell for cell in cells() if cell.table == E2E_TABLE and not cell.reason]
    assert {AXES[axis](cell, cell.chosen_parts()) for cell in ends} == values


def test_readme_has_the_table_of_the_recorded_runs() -> None:
    text = README.read_text()
    assert readme(text, read_record()) == text


def test_value_is_proven_by_any_cell_that_passed() -> None:
    text = readme("<!-- written by ./dev matrix -->\n<!-- end -->", {"e2e/kernel-5.10": _PASSED})
    assert "| Kernel | 5.10 | 6.1, 6.12, 7 |" in text
    assert "| CSI driver | the lab's | ceph-csi |" in text


def test_every_pair_of_ceph_client_and_server_is_run() -> None:
    pairs = {(cell.client.ceph, cell.parts["--ceph"]) for cell in cells() if cell.client}
    versions = [suite.ceph for suite in USERLANDS]
    assert pairs == {(client, server) for client in versions for server in versions}


def test_names_of_cells_are_unique() -> None:
    names = [cell.name for cell in cells()]
    assert len(set(names)) == len(names)


def test_cell_shows_its_result_or_why_it_has_none() -> None:
    first, second, *_, last = cells()
    text = document([first, second, last], {first.name: _PASSED})
    shown = "passed: 27 of 27 tests<br>Ceph 16.2.15<br>abc1234, 2026-11-23, 39 s, 1200 MiB"
    assert shown in text
    assert text.count("not tried: not run yet") == 2
    assert "not tried: librados before 20.2" in document(cells(), {})


def _passed(**recorded: str) -> Result:
    return replace(_PASSED, recorded=recorded)


def test_refused_key_is_shown_with_error_remedy_and_result() -> None:
    cell = next(cell for cell in cells() if cell.table == KEYS_TABLE)
    result = _passed(then="mapped", typed="ceph auth x", rbd="exit 22\nmap | failed: (22)\n")
    text = document([cell], {cell.name: result})
    assert (
        "passed: 27 of 27 tests<br>rbd: `exit 22 / map \\| failed: (22)`<br>typed: `ceph auth x`"
        "<br>then: `mapped`<br>Ceph 16.2.15<br>"
    ) in text


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ({}, "| yes<br>Ceph 16.2.15<br>"),
        ({"said": "its key"}, "| no: `its key`<br>Ceph 16.2.15<br>"),
    ],
)
def test_artefact_reaches_a_cluster_unless_it_was_refused(
    recorded: dict[str, str], shown: str
) -> None:
    image = next(cell for cell in cells() if cell.table == ARTEFACT_TABLE and cell.same_as)
    assert shown in document([image], {image.same_as: _passed(**recorded)})


def test_cell_with_the_result_of_another_names_a_cell_that_runs() -> None:
    run = {cell.name for cell in cells() if not (cell.reason or cell.same_as)}
    assert {cell.same_as for cell in cells() if cell.same_as} <= run
