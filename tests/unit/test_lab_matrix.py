"""The table of versions is complete, and each cell without a run says why."""

from __future__ import annotations

import pytest

from tests.lab.matrix import (
    ARTEFACT_TABLE,
    E2E_TABLE,
    KEYS_TABLE,
    KUBERNETES,
    Cell,
    Result,
    cells,
    document,
)
from tests.lab.parts import DEFAULT_KUBERNETES, USERLANDS, chosen_parts


def _parts(cell: Cell) -> dict[str, str]:
    variables = {
        f"RBDAGENT_LAB_{flag.removeprefix('--').upper()}": part for flag, part in cell.parts.items()
    }
    parts = chosen_parts(variables)
    return {
        "debian": parts.debian.debian,
        "ceph": parts.ceph.ceph,
        "kernel": parts.kernel.kernel,
        "kubernetes": parts.kubernetes,
        "keys": parts.keys,
        "monitors": parts.monitors,
        "network": parts.network,
        "driver": "ceph-csi" if cell.cephcsi else "csi-rbd-lab",
    }


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("debian", {"12", "13", "forky"}),
        ("ceph", {"16.2", "18.2", "20.2"}),
        ("kernel", {"5.10", "6.1", "6.12", "7"}),
        ("kubernetes", {*KUBERNETES, DEFAULT_KUBERNETES}),
        ("keys", {"aes", "aes256k"}),
        ("monitors", {"both", "v1", "v2"}),
        ("network", {"ipv4", "ipv6", "dual"}),
        ("driver", {"ceph-csi", "csi-rbd-lab"}),
    ],
)
def test_every_value_of_an_axis_is_run_end_to_end(axis: str, values: set[str]) -> None:
    ends = [cell for cell in cells() if cell.table == E2E_TABLE and not cell.reason]
    assert {_parts(cell)[axis] for cell in ends} == values


def test_every_pair_of_ceph_client_and_server_is_run() -> None:
    pairs = {(cell.client.ceph, cell.parts["--ceph"]) for cell in cells() if cell.client}
    versions = [suite.ceph for suite in USERLANDS]
    assert pairs == {(client, server) for client in versions for server in versions}


def test_names_of_cells_are_unique() -> None:
    names = [cell.name for cell in cells()]
    assert len(set(names)) == len(names)


def test_a_cell_shows_its_result_or_why_it_has_none() -> None:
    first, second, *_, last = cells()
    result = Result(
        state="passed",
        ran="27 of 27 tests",
        commit="abc1234",
        day="2026-11-23",
        seconds=39,
        disk_mib=1200,
        versions={"Ceph": "16.2.15"},
    )
    text = document([first, second, last], {first.name: result})
    shown = "passed: 27 of 27 tests<br>Ceph 16.2.15<br>abc1234, 2026-11-23, 39 s, 1200 MiB"
    assert shown in text
    assert text.count("not tried: not run yet") == 2
    assert "not tried: librados before 20.2" in document(cells(), {})


def _passed(**recorded: str) -> Result:
    return Result(
        state="passed",
        ran="2 of 2 tests",
        commit="abc1234",
        day="2026-11-23",
        seconds=39,
        disk_mib=1200,
        versions={"Ceph": "20.2.4"},
        recorded=recorded,
    )


def test_a_key_that_is_refused_is_shown_with_the_words_the_remedy_and_the_result() -> None:
    cell = next(cell for cell in cells() if cell.table == KEYS_TABLE)
    result = _passed(then="mapped", typed="ceph auth x", rbd="exit 22\nmap | failed: (22)\n")
    text = document([cell], {cell.name: result})
    assert (
        "passed: 2 of 2 tests<br>rbd: `exit 22 / map \\| failed: (22)`<br>typed: `ceph auth x`"
        "<br>then: `mapped`<br>Ceph 20.2.4<br>"
    ) in text


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [({}, "| yes<br>Ceph 20.2.4<br>"), ({"said": "its key"}, "| no: `its key`<br>Ceph 20.2.4<br>")],
)
def test_an_artefact_reaches_a_cluster_unless_it_was_refused(
    recorded: dict[str, str], shown: str
) -> None:
    image = next(cell for cell in cells() if cell.table == ARTEFACT_TABLE and cell.same_as)
    assert shown in document([image], {image.same_as: _passed(**recorded)})


def test_what_shows_the_result_of_another_cell_names_one_that_is_run() -> None:
    run = {cell.name for cell in cells() if not (cell.reason or cell.same_as)}
    assert {cell.same_as for cell in cells() if cell.same_as} <= run
