"""Files that a process has mapped into memory, parsed from the fields of its maps file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.model import NotObserved
from tests.support.node_files import Tree

if TYPE_CHECKING:
    from pathlib import Path

LINE: Final = "7f0000000000-7f0000001000 r--p 00000000 {} 12                         {}\n"


@pytest.mark.parametrize(
    ("lines", "paths"),
    [
        pytest.param([("fc:00", "/data/db")], ["/data/db"], id="a file on it"),
        pytest.param([("fc:10", "/data/db")], [], id="a file on another one"),
        pytest.param([("08:01", "/home/h fc:00 x")], [], id="a name that reads like it"),
        pytest.param([("08:01", "/h\rfc:00 r--p 0 fc:00 1 x")], [], id="a carriage return"),
        pytest.param(
            [("08:01", "/h fc:00 x"), ("fc:00", "/data/a b")], ["/data/a b"], id="both, a space"
        ),
        pytest.param([("fc:00", "/a"), ("fc:00", "/b")], ["/a"], id="one line of a device counts"),
        pytest.param([("fc:00", "")], [""], id="no name"),
    ],
)
def test_maps_are_parsed_by_field(
    tmp_path: Path, lines: list[tuple[str, str]], paths: list[str]
) -> None:
    tree = Tree(tmp_path)
    tree.device(0)
    tree.process(7, "/app")
    tree.write("proc/7/maps", "".join(LINE.format(*line) for line in lines))
    (mapping,) = tree.mappings()
    assert not isinstance(mapping.openers, NotObserved)
    assert [opener.path for opener in mapping.openers] == paths
