"""The keyring from systemd credentials: the default of a cluster without another keyring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from rbdagent.cli.options import observing

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
    """Return the keyring of each cluster for a command line."""
    found: list[Settings] = []

    @click.command
    @observing
    def verb(*, settings: Any) -> None:  # noqa: ANN401 - what observing gives
        found.append(settings())

    verb.main([*args], standalone_mode=False)
    return {cluster.name: cluster.keyring for cluster in found[0].clusters or ()}


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for name in ("ceph", "east", "west"):
        (tmp_path / f"{name}.keyring").touch()
    return tmp_path


def test_default_cluster_has_the_credential_of_its_name(lent: Path) -> None:
    assert keyrings() == {"ceph": lent / "ceph.keyring"}


def test_keyring_option_outranks_the_credential(lent: Path) -> None:
    assert keyrings("--ceph-keyring", "/etc/mine") == {"ceph": Path("/etc/mine")}
    assert lent.exists()


def test_a_table_may_name_the_file_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[[ceph]]\nname = "east"\nkeyfile = "/etc/east.key"\n')
    found: list[Settings] = []

    @click.command
    @observing
    def verb(*, settings: Any) -> None:  # noqa: ANN401 - what observing gives
        found.append(settings())

    verb.main([f"--config={file}"], standalone_mode=False)
    (cluster,) = found[0].clusters or ()
    assert (cluster.keyfile, cluster.keyring) == (Path("/etc/east.key"), None)


def test_each_of_several_clusters_has_its_own_keyring_or_none(lent: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TABLES)
    expected = {"east": lent / "east.keyring", "west": Path("/etc/west"), "north": None}
    assert keyrings("--config", str(file)) == expected


def test_keyring_is_left_to_librados_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert keyrings() == {"ceph": None}
