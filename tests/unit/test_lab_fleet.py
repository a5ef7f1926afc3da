"""What the benchmark of agents publishes is what an agent publishes."""

from __future__ import annotations

import msgspec

from rbdagent.parse.labels import image_keys_in
from rbdagent.report.rbdmapping import MOST_BYTES, rbdmapping_objects
from tests.lab.fleet import another, changed, for_node, published_of_node


def test_each_node_has_its_own_images() -> None:
    published = published_of_node(2)
    one, other = for_node(published, 1), for_node(published, 2)
    first, second = one.rbd_node(""), other.rbd_node("")
    assert (first["status"]["mapped"], first["status"]["imageLabels"]) == (2, 6)
    images, others = (image_keys_in(body["metadata"]["labels"]) for body in (first, second))
    assert len(images) == 6
    assert images.isdisjoint(others)


def test_mapping_is_published_whole_and_in_a_kibibyte() -> None:
    (status, _) = for_node(published_of_node(2), 1).mappings
    (body,) = rbdmapping_objects([status], "node-00001", observed_at="").values()
    assert {*status} <= {*body["status"]}
    assert len(msgspec.json.encode(body)) <= MOST_BYTES


def test_played_changes_are_written() -> None:
    (status, _) = for_node(published_of_node(2), 1).mappings
    assert changed(status, 1)["verdict"] != status["verdict"]
    assert changed(status, 1) != changed(status, 2)
    assert another(status, 1)["image"]["name"] != status["image"]["name"]
