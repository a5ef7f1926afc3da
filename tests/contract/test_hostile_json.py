"""Hostile JSON from the API server or from Ceph: it leads to the documented error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from rbdagent.collect.ceph.connection import Cluster
from rbdagent.collect.kube.client import Api, StatusError, TooLargeError
from rbdagent.collect.kube.kubeconfig import Credentials
from rbdagent.errors import ParseError, SourceError
from rbdagent.parse.kubelet import parse_stash
from tests.support.ceph_bindings import ceph
from tests.support.ceph_queries import access
from tests.support.fake_api import FakeApi, answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

PATH: Final = "/api/v1/nodes"
NO_JSON: Final = {
    "nothing": b"",
    "not UTF-8": b'{"items": "\xff',
    "a byte between values": b"[\xff]",
    "nested deeply": b'{"items":' * 100_000,
    "a number without an end": b'{"items": ' + b"9" * 5000 + b"}",
    "a number too large": b'{"items": 1e999}',
    "no number": b'{"items": NaN}',
    "half a character": b'{"items": "\\ud800"}',
}
no_json = pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON.keys())


@pytest.fixture
def server() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.stop()


def api(server: FakeApi, body: bytes, status: int = 200) -> Api:
    """Return a client of a server that answers with a body."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, status, body)

    server.broken[PATH] = play
    return Api(Credentials(server=server.url), timeout_s=30)


@no_json
def test_an_answer_that_is_no_json_is_a_source_error(server: FakeApi, body: bytes) -> None:
    with pytest.raises(SourceError, match="the answer is not JSON"):
        api(server, body).ask(PATH).answer()


@no_json
def test_a_change_that_is_no_json_is_a_source_error(server: FakeApi, body: bytes) -> None:
    with pytest.raises(SourceError, match="the watch returned a line that is not a change"):
        api(server, body + b"\n").watch(PATH, lambda *_: None, timeoutSeconds=1)


@pytest.mark.parametrize("code", [b'"x"', b"[1]", b'{"a": 1}', b'"' + b"9" * 5000 + b'"'])
def test_watch_error_without_a_numeric_code_is_a_source_error(server: FakeApi, code: bytes) -> None:
    change = b'{"type": "ERROR", "object": {"code": ' + code + b"}}\n"
    with pytest.raises(SourceError, match="the watch returned a line that is not a change"):
        api(server, change).watch(PATH, lambda *_: None, timeoutSeconds=1)


@no_json
def test_a_refusal_that_is_no_json_is_a_status_error(server: FakeApi, body: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        api(server, body, status=403).ask(PATH).answer()
    assert caught.value.status == 403


# --------------------------------------------------------------------------------------------------
# Larger than the limit
# --------------------------------------------------------------------------------------------------

SMALL: Final = 1 << 16
LARGE_NAME: Final = "x" * (SMALL // 30)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit, so that a small answer is too large."""
    monkeypatch.setattr("rbdagent.collect.kube.client._LARGEST", SMALL)


@pytest.mark.usefixtures("small")
def test_an_answer_that_is_too_large_is_a_source_error(server: FakeApi) -> None:
    body = b'{"items": [' + b" " * SMALL
    with pytest.raises(TooLargeError, match="the answer is larger than"):
        api(server, body).ask(PATH).answer()


@pytest.mark.usefixtures("small")
def test_a_change_that_is_too_large_is_a_source_error(server: FakeApi) -> None:
    with pytest.raises(TooLargeError, match="the answer is larger than"):
        api(server, b" " * 2 * SMALL).watch(PATH, lambda *_: None, timeoutSeconds=1)


@pytest.mark.usefixtures("small")
def test_a_refusal_that_is_too_large_is_a_source_error(server: FakeApi) -> None:
    with pytest.raises(SourceError, match="the answer is larger than"):
        api(server, b" " * 2 * SMALL, status=403).ask(PATH).answer()


@pytest.mark.usefixtures("small")
def test_many_changes_may_exceed_the_limit_of_one_answer(server: FakeApi) -> None:
    change = b'{"type": "ADDED", "object": {"name": "' + b"x" * 1000 + b'"}}\n'
    told: list[str] = []
    api(server, change * 100).watch(PATH, lambda kind, _: told.append(kind), timeoutSeconds=1)
    assert told == ["ADDED"] * 100


@pytest.mark.usefixtures("small")
def test_large_objects_are_requested_in_smaller_pages(server: FakeApi) -> None:
    """500 pods of a tenant may have 1.5 MiB each; all of them are read nevertheless."""
    asked: list[int] = []

    def play(handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        limit, begin = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        asked.append(limit)
        more = "" if begin + limit >= 60 else str(begin + limit)
        items = [{"name": f"{number}{LARGE_NAME}"} for number in range(begin, begin + limit)]
        answer(handler, 200, {"items": items[: 60 - begin], "metadata": {"continue": more}})

    server.broken[PATH] = play
    found = Api(Credentials(server=server.url), timeout_s=30).list(PATH).items()
    assert len(found) == 60
    assert asked == [500, 100, 20, 20, 20]


@pytest.mark.usefixtures("small")
def test_one_object_that_is_too_large_is_a_source_error(server: FakeApi) -> None:
    with pytest.raises(TooLargeError):
        api(server, b" " * 2 * SMALL).list(PATH).items()


def test_message_of_a_refusal_is_truncated(server: FakeApi) -> None:
    body = b'{"message": "' + b"x" * 5000 + b'"}'
    with pytest.raises(StatusError) as caught:
        api(server, body, status=500).ask(PATH).answer()
    assert len(str(caught.value)) < 1100


@pytest.mark.parametrize("metadata", [b"[1]", b'"x"', b"1"])
def test_a_list_without_metadata_is_a_source_error(server: FakeApi, metadata: bytes) -> None:
    body = b'{"items": [], "metadata": ' + metadata + b"}"
    with pytest.raises(SourceError, match="the answer is not a list"):
        api(server, body).list(PATH).items()


@no_json
def test_monitor_answer_that_is_not_json_is_a_parse_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: bytes
) -> None:
    ceph(answers={"osd lspools": body or b"{"}).install(monkeypatch)
    with pytest.raises(ParseError, match=r"osd lspools: .* expected JSON"):
        Cluster(access(tmp_path)).monitor("osd lspools")


@no_json
def test_osd_answer_that_is_not_json_is_a_parse_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: bytes
) -> None:
    ceph(answers={"dump_watchers": body, "osd ls": b"[0]"}).install(monkeypatch)
    with pytest.raises(ParseError, match="dump_watchers: "):
        Cluster(access(tmp_path)).dump_watchers()


@no_json
def test_ceph_csi_metadata_that_is_not_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError, match=r"image-meta\.json"):
        parse_stash(body, where="here")
