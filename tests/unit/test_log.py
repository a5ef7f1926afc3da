"""The log: one line per event, whose fields show neither secrets nor characters that hide text."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest
import structlog

from rbdagent.collect.failure import LOGGER
from rbdagent.collect.parallel import all_of
from rbdagent.log import bind, bound, logged, logger
from tests.support.hostile_texts import CLEAR_SCREEN, FORGED_LINE, TURNED, is_clean

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS: Final = ("json", "logfmt", "console")
ILL: Final = f"sleep{FORGED_LINE}{CLEAR_SCREEN}{TURNED}\x7f"
SECRET: Final = "AQBTUdFgAAAAABAAZ7bA6FxYc1jLwHIq3m0fXw=="  # noqa: S105 - a key of no cluster
TOO_FEW: Final = "%s %s"


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that returns what a call writes to stderr."""

    def write(form: str, call: Callable[[], object], *, level: str = "info") -> str:
        with logged(level, form):
            call()
        return capsys.readouterr().err

    return write


@pytest.mark.parametrize("form", FORMS)
def test_entry_is_one_line_with_escapes(written: Callable[..., str], form: str) -> None:
    fields: dict[str, Any] = {"RBD503": ILL, "failed": [ILL], "by": {ILL.replace(" ", ""): ILL}}
    said = written(form, lambda: logger(node="n1").warning("refused", **fields))
    assert said.count("\n") == 1
    assert is_clean(said)
    assert r"\u202e" in said


def test_json_entry_parses_to_its_values(written: Callable[..., str]) -> None:
    said = written("json", lambda: logger(node="n1").warning("refused", RBD503=ILL, n=3, ok=None))
    entry = json.loads(said)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry.pop("timestamp"))
    values = {"RBD503": ILL, "n": 3, "ok": None, "node": "n1"}
    assert entry == {"level": "warning", "event": "refused", **values}


def test_logfmt_entry_quotes_its_values(written: Callable[..., str]) -> None:
    said = written("logfmt", lambda: logger().info("not published", error='a "b"', x="y", ok=True))
    assert said.partition(" ")[2] == (
        'level=info event="not published" error="a \\"b\\"" x=y ok=true\n'
    )


@pytest.mark.parametrize("form", FORMS)
def test_secret_is_masked_wherever_it_is(written: Callable[..., str], form: str) -> None:
    def log() -> None:
        texts = {"a": f"key = {SECRET}", "b": [f"--key={SECRET}"], "c": {"password": "hunter2"}}
        names: dict[str, Any] = dict.fromkeys(("token", "password"), "hunter2")
        logger().info(f"key = {SECRET}", **names, **texts)

    said = written(form, log)
    assert SECRET not in said
    assert "hunter2" not in said
    assert said.count("redacted") == 6


@pytest.mark.parametrize("form", FORMS)
def test_traceback_shows_no_local_variable(written: Callable[..., str], form: str) -> None:
    """The default of structlog shows the variables of each frame, as the last lines prove."""

    def connect(key: str) -> NoReturn:
        raise ConnectionError(len(key))

    def fail() -> None:
        try:
            connect(SECRET)
        except ConnectionError:
            logger().exception("no connection")

    said = written(form, fail)
    assert "ConnectionError" in said
    assert "connect" in said
    assert SECRET not in said
    try:
        connect(SECRET)
    except ConnectionError:
        event = {"exc_info": sys.exc_info()}
        assert SECRET in str(structlog.processors.dict_tracebacks(None, "error", event))


@pytest.mark.parametrize("form", FORMS)
def test_message_of_an_error_is_masked_and_escaped(written: Callable[..., str], form: str) -> None:
    def log() -> None:
        error = ValueError(f"key = {SECRET}{CLEAR_SCREEN}{TURNED}")
        logging.getLogger(LOGGER).debug("the node", exc_info=error)

    said = written(form, log, level="debug")
    assert is_clean(said)
    assert SECRET not in said
    assert "ValueError" in said


def test_message_of_an_error_cannot_look_like_an_event(written: Callable[..., str]) -> None:
    error = ValueError("\n2026-11-28T05:53:35.784377Z [info     ] unmap")
    said = written("console", lambda: logger().error("failed", exc_info=error))
    assert [line[0] for line in said.splitlines()[1:]] == [" "] * (said.count("\n") - 1)


def test_events_of_libraries_have_the_same_form(written: Callable[..., str]) -> None:
    def log() -> None:
        with bound(cycle="c1"):
            logging.getLogger("lib").warning("key = %s at %d %%", SECRET, 3)
            logging.getLogger("lib").info("not shown")

    entry = json.loads(written("json", log, level="warning"))
    del entry["timestamp"]
    masked = "key = <redacted> at 3 %"
    assert entry == {"level": "warning", "event": masked, "logger": "lib", "cycle": "c1"}


@pytest.mark.parametrize(
    ("level", "events"),
    [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")],
)
def test_level_selects_the_events(written: Callable[..., str], level: str, events: str) -> None:
    def log() -> None:
        log = logger()
        log.debug("d")
        log.info("i")
        log.warning("w")
        log.error("e")

    said = written("json", log, level=level)
    assert "".join(json.loads(line)["event"] for line in said.splitlines()) == events


def test_bound_fields_are_in_events_of_other_threads_too(written: Callable[..., str]) -> None:
    def log() -> None:
        with bound(cycle="c1", persistent_volume=None):
            bind(persistent_volume="pv-1")
            all_of([lambda: logger().info("observed")], deadline=time.monotonic() + 60)
        logger().info("later")

    first, second = map(json.loads, written("json", log).splitlines())
    assert (first["cycle"], first["persistent_volume"]) == ("c1", "pv-1")
    assert second.keys() == {"timestamp", "level", "event"}


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [Unprintable(), object(), {1: b"x"}, "\udce9", float("nan"), [{"a": (1, {2})}], 1 << 80],
    ids=["unprintable", "object", "dict", "surrogate", "nan", "nested", "large"],
)
def test_any_value_is_logged(written: Callable[..., str], form: str, value: object) -> None:
    said = written(form, lambda: logger().info("observed", value=value, after=1))
    assert "observed" in said
    assert "after" in said
    if form == "json":
        json.loads(said).items()
        said.encode("ascii")


@pytest.mark.parametrize("form", FORMS)
def test_event_that_cannot_be_written_is_replaced(written: Callable[..., str], form: str) -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)

    def log() -> None:
        logger().info("observed", value=cyclic, key=SECRET)
        logging.getLogger("lib").warning(TOO_FEW, SECRET)

    lines = written(form, log).splitlines()
    assert len(lines) == 2
    assert all("a log event was not written" in line for line in lines)
    assert all(SECRET not in line for line in lines)


class BrokenPipe(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_broken_pipe_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", BrokenPipe())
    with logged("info", "json"):
        logger().info("observed")
        logging.getLogger("lib").warning(TOO_FEW, 1)


def _fail() -> NoReturn:
    raise KeyError("pool")


def test_error_that_ends_a_thread_is_logged(written: Callable[..., str]) -> None:
    def fail() -> None:
        thread = threading.Thread(target=_fail)
        thread.start()
        thread.join()

    entry = json.loads(written("json", fail))
    assert entry["exception"][0]["exc_type"] == "KeyError"


def test_log_leaves_the_loggers_as_they_were() -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers), threading.excepthook
    with logged("debug", "json"), logged("info", "console"):
        assert len(root.handlers) == 1
    assert (root.level, root.handlers, threading.excepthook) == before
