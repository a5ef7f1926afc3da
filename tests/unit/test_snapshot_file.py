"""The file of a snapshot: types, bounds, and errors that name the field and quote nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.errors import ParseError
from rbdagent.model import (
    CsiSource,
    History,
    ImageSpec,
    NotObserved,
    PersistentVolume,
    UnmapRecord,
    observed_of,
)
from rbdagent.report.schema import schema
from rbdagent.report.snapshot import decode, dump_snapshot, encode, load_snapshot
from tests.support.cli_runner import ORPHAN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Snapshot

HIDDEN: Final = "h1dden"
IMITATION: Final = f"x` - at `$[0].{HIDDEN}"
"""A key that has the form of the end of a message."""
MAPPING: Final = ("node", "mappings", 0)
WATCHER: Final = ("ceph", "clusters", 0, "images", 0, "watchers", 0)


def orphan() -> Snapshot:
    return load_snapshot(ORPHAN.read_text(), where=ORPHAN.name)


def changed(place: Sequence[str | int], value: object) -> str:
    """Return the file of a snapshot with one other value."""
    data = json.loads(ORPHAN.read_text())
    inner: Any = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (
            ("target", "argument"),
            7,
            "$.target.argument of a snapshot: expected a text, and found a",
        ),
        (("target", "kind"), HIDDEN, "$.target.kind of a snapshot: expected a value that this"),
        (("target", "kind"), [HIDDEN], "$.target.kind of a snapshot: expected a text, and found a"),
        (("node",), [HIDDEN], "$.node of a snapshot: expected an object or nothing, and found a"),
        ((HIDDEN,), 1, "the field $ of a snapshot: expected only fields that this version knows"),
        ((IMITATION,), 1, "the field $ of a snapshot: expected only fields that"),
        ((*MAPPING, IMITATION), 1, "$.node.mappings[0] of a snapshot: expected only fields"),
        ((*MAPPING, "spec"), {"pool": "p"}, "$.node.mappings[0].spec.type of a snapshot: expected"),
        ((*MAPPING, "spec"), {"type": HIDDEN}, "$.node.mappings[0].spec.type of a snapshot: "),
        ((*MAPPING, "number"), {"minor": 1}, "number.major of a snapshot: expected a value, and"),
        ((*MAPPING, "number", "major"), 2**63, "major of a snapshot: expected a whole number <= "),
        ((*MAPPING, "number", "major"), 1.0, "expected a whole number, and found a number"),
        ((*MAPPING, "number", "major"), True, "expected a whole number, and found true or false"),
        ((*MAPPING, "mounts"), {"reason": 1}, "mounts.reason of a snapshot: expected a text"),
        ((*WATCHER, "cookie"), 2**64, "watchers[0] of a snapshot: expected a whole number of 64"),
        (("ceph", "clusters", 0, "pools"), [[1]], "pools[0] of a snapshot: expected a list of"),
        (("node", "uptimeS"), 10**400, "uptimeS of a snapshot: expected a value that this"),
        (("node", "uptimeS"), HIDDEN, "uptimeS of a snapshot: expected a number or nothing, and"),
    ],
)
def test_error_names_the_field_and_quotes_nothing(
    place: tuple[str | int, ...], value: object, words: str
) -> None:
    with pytest.raises(ParseError) as caught:
        load_snapshot(changed(place, value), where="file")
    assert words in str(caught.value)
    assert HIDDEN not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "rbdagent snapshot" in caught.value.hint


def test_cookie_of_a_watcher_has_64_bits_without_a_sign() -> None:
    snapshot = load_snapshot(changed((*WATCHER, "cookie"), 2**64 - 1), where="file")
    assert snapshot.ceph is not None
    (watcher,) = observed_of(snapshot.ceph.clusters[0].images[0].watchers)
    assert watcher.cookie == 2**64 - 1
    assert load_snapshot(dump_snapshot(snapshot), where="file") == snapshot


def test_integer_is_read_as_a_decimal_number_where_one_is_expected() -> None:
    snapshot = load_snapshot(changed(("node", "uptimeS"), 5), where="file")
    assert snapshot.node is not None
    assert type(snapshot.node.uptime_s) is float


def test_value_that_was_not_observed_has_its_reason_in_the_file() -> None:
    snapshot = orphan()
    assert snapshot.node is not None
    missing = NotObserved(reason="no permission", hint="run as root")
    (mapping,) = observed_of(snapshot.node.mappings)
    unseen = replace(mapping, spec=missing, holders=missing, read_only=missing)
    told = dump_snapshot(replace(snapshot, node=replace(snapshot.node, mappings=(unseen,))))
    written = json.loads(told)["node"]["mappings"][0]
    expected = {"type": "NotObserved", "reason": "no permission", "hint": "run as root"}
    assert [written[key] for key in ("spec", "holders", "readOnly")] == [expected] * 3
    assert dump_snapshot(load_snapshot(told, where="file")) == told


def test_field_with_several_types_has_the_name_of_its_type() -> None:
    volume = PersistentVolume(
        name="pvc-1", phase="Bound", source=CsiSource(driver="d", volume_handle="h")
    )
    written = encode(volume)
    assert written["source"] == {"type": "CsiSource", "driver": "d", "volumeHandle": "h"}
    assert decode(PersistentVolume, written, what="a volume", where="file", path="$") == volume


def test_keys_have_the_initialisms_of_kubernetes_and_no_defaults() -> None:
    written = encode(ImageSpec(pool="p", name="i"))
    assert written == {"type": "ImageSpec", "pool": "p", "name": "i"}
    assert {"clientID", "imageID", "poolID", "clientAddress", "sizeBytes"} <= {
        *json.loads(ORPHAN.read_text())["node"]["mappings"][0]
    }


@pytest.mark.parametrize("kind", [History, UnmapRecord])
def test_every_type_of_the_state_files_can_be_read(kind: type[History | UnmapRecord]) -> None:
    with pytest.raises(ParseError, match=r"History\.\w+ of the state: expected a value"):
        decode(kind, {}, what="the state", where="file", path="History")


def test_schema_of_a_snapshot_accepts_fields_of_later_versions() -> None:
    assert "additionalProperties" not in json.dumps(schema("Snapshot"))
