"""The keyring that systemd lends a service: the default of a cluster that has no other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from rbdagent.cli.flags import observing

if TYPE_CHECKING:
    from rbdagent.config import Settings

TABLES = """
[[ceph]]
name = "east"
[[ceph]]
name = "west"
keyring = "/etc/west"
[[ceph]]
name = "north"
"""


def keyrings(*args: str) -> dict[str, Path | None]:
    """Give the keyring of each cluster that a command line leads to."""
    found: list[Settings] = []

    @click.command
    @observing
    def verb(*, settings: Any) -> None:  # noqa: ANN401 - what observing gives
        found.append(settings())

    verb.main([*args], standalone_mode=False)
    return {each.name: each.keyring for each in found[0].clusters or ()}


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for name in ("ceph", "east", "west"):
        (tmp_path / f"{name}.keyring").touch()
    return tmp_path


def test_the_one_cluster_has_the_key_of_its_name(lent: Path) -> None:
    assert keyrings() == {"ceph": lent / "ceph.keyring"}


def test_what_is_given_outranks_what_is_lent(lent: Path) -> None:
    assert keyrings("--ceph-keyring", "/etc/mine") == {"ceph": Path("/etc/mine")}
    assert lent.exists()


def test_of_several_clusters_each_has_its_own_or_none(lent: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TABLES)
    expected = {"east": lent / "east.keyring", "west": Path("/etc/west"), "north": None}
    assert keyrings("--config", str(file)) == expected


def test_where_systemd_lends_nothing_librados_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert keyrings() == {"ceph": None}
