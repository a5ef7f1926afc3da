"""A source that fails never ends the observation of the others, whatever it raises."""

# ruff: noqa: ANN401 - fakes of functions with any signature

from __future__ import annotations

import contextlib
import errno
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from rbdagent import collector as look
from rbdagent import preflight
from rbdagent.cli import run
from rbdagent.collect import ceph_process
from rbdagent.collect.ceph import connection as observe_cluster
from rbdagent.collect.ceph import images as observe_ceph
from rbdagent.collect.ceph.check import check_ceph
from rbdagent.collect.ceph.images import CephReader
from rbdagent.collect.failure import DEFECT, as_source_error
from rbdagent.collect.kube import connection, list_reports
from rbdagent.collect.kube import list_target as observe_kube
from rbdagent.collect.kube.connection import Connection
from rbdagent.collect.kube.kubeconfig import KubeAccess
from rbdagent.collect.node import contained, volume_logs
from rbdagent.collect.node import observer as observe_node
from rbdagent.collect.node.roots import NodeRoots
from rbdagent.errors import NotFoundError, ParseError, SourceError
from rbdagent.log import logged
from rbdagent.model import (
    CheckResult,
    CheckState,
    ImageIdentity,
    NotObserved,
    Snapshot,
    Source,
    SourceState,
)
from rbdagent.parse import labels
from tests.support.ceph_bindings import Completion, Ioctx, ceph, raising
from tests.support.ceph_queries import access, identity, image, views
from tests.support.snapshots import NOW, NOWHERE, OBSERVED, diagnosis_of, kube, node_view, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rbdagent.collect.node.contained import NodeAnswer

ERRORS: Final[tuple[tuple[Exception, str], ...]] = (
    (TypeError("expected int, got float"), "TypeError: expected int, got float"),
    (MemoryError(), "MemoryError"),
    (KeyError("addr"), "KeyError: 'addr'"),
    (OSError(5, "Input/output error", "/proc/7/fd"), "OSError: [Errno 5] Input/output error"),
    (RuntimeError("two\nlines\x1b[31m"), "RuntimeError: two lines [31m"),
    (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion"),
)
RAISED: Final = pytest.mark.parametrize(
    ("error", "reason"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS]
)
GONE: Final = Path("/none")
ACCESS: Final = KubeAccess(kubeconfig=None, context=None, timeout_s=1.0)


class InThisProcess:
    """Fake of the forked process: queries Ceph in this process."""

    def __init__(self) -> None:
        self._answer = ceph_process.answers((), (), {}, opens_images=True)

    def answer(
        self, question: Any, _deadline: float, *, meanwhile: Callable[[], None] = lambda: None
    ) -> Any:
        meanwhile()
        return self._answer(question)

    def finish(self) -> None:
        pass


class NodeInThisProcess:
    """Fake of the forked process: observes the node in this process."""

    def __init__(self) -> None:
        self._answer = contained._observing(
            NodeRoots(procfs=GONE, sysfs=GONE, host_root=GONE), "n"
        )()

    def ask(self, deadline: float) -> None:
        self._asked = deadline

    def receive(self, _deadline: float) -> Any:
        return self._answer(self._asked)

    def finish(self) -> None:
        pass

    def end(self) -> None:
        pass


class FakeLook:
    """Fake of the connections to Ceph."""

    def __init__(self, _clusters: Sequence[object], **_: object) -> None:
        pass

    def images(self, *_: object, **__: object) -> Any:
        return None, OBSERVED


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(observe_node, "observe_node", lambda *_, **__: (node_view(), OBSERVED))
    monkeypatch.setattr(observe_kube, "observe_kube", lambda *_, **__: (kube(), OBSERVED))
    monkeypatch.setattr(observe_ceph, "CephReader", FakeLook)
    return monkeypatch


def snapshot_of(asked: Any = None) -> Snapshot:
    settings = replace(NOWHERE, kube=ACCESS)
    process: Any = asked or InThisProcess()
    node: Any = NodeInThisProcess()
    workers = look.Workers(ceph=process, node=node)
    return look.collect_snapshot(target(), settings, now=lambda: NOW, workers=workers)


WAYS: Final = {
    "node": (observe_node, "observe_node"),
    "kubernetes": (observe_kube, "observe_kube"),
    "ceph": (FakeLook, "images"),
}


@RAISED
@pytest.mark.parametrize("source", WAYS)
def test_error_of_one_source_fails_that_source_only(
    healthy: pytest.MonkeyPatch, source: str, error: Exception, reason: str
) -> None:
    place, name = WAYS[source]
    healthy.setattr(place, name, raising(error))
    found = snapshot_of()
    states = dict(found.sources.named)
    failure = states.pop(source)
    assert failure.state is SourceState.FAILED
    assert reason in failure.reason
    assert failure.hint == DEFECT
    assert not any(state.state is SourceState.FAILED for state in states.values())
    assert any(
        finding.code in {"RBD901", "RBD902", "RBD903"} for finding in diagnosis_of(found).findings
    )


@RAISED
def test_connection_error_of_ceph_fails_ceph(
    healthy: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    healthy.setattr(FakeLook, "__init__", raising(error))
    assert reason in snapshot_of().sources.ceph.reason


class Broken:
    """Fake of a process whose answer cannot be read."""

    answer = staticmethod(raising(EOFError("pickle data was truncated")))

    def finish(self) -> None:
        pass


def test_unreadable_answer_of_the_ceph_process_fails_ceph(healthy: pytest.MonkeyPatch) -> None:
    assert "EOFError: pickle data was truncated" in snapshot_of(Broken()).sources.ceph.reason


def test_target_that_does_not_exist_is_still_refused(healthy: pytest.MonkeyPatch) -> None:
    healthy.setattr(observe_kube, "observe_kube", raising(NotFoundError("no such volume")))
    with pytest.raises(NotFoundError):
        snapshot_of()


@pytest.mark.parametrize("source", WAYS)
def test_interrupt_ends_the_program(healthy: pytest.MonkeyPatch, source: str) -> None:
    place, name = WAYS[source]
    healthy.setattr(place, name, raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        snapshot_of()


@pytest.mark.parametrize("clusters", [(), None])
def test_reports_of_agents_are_requested_once_with_ceph_or_without(
    healthy: pytest.MonkeyPatch, clusters: tuple[()] | None
) -> None:
    targets: list[str] = []

    def begin(seen: Snapshot, *_: object) -> look._Reports:
        targets.append(seen.target.name)
        return look._Reports()

    healthy.setattr(look, "_begin_reports", begin)
    settings = replace(NOWHERE, kube=ACCESS, clusters=clusters)
    ceph: Any = InThisProcess() if clusters is not None else None
    node: Any = NodeInThisProcess()
    workers = look.Workers(ceph=ceph, node=node)
    look.collect_snapshot(target(), settings, now=lambda: NOW, workers=workers)
    assert targets == [target().name]


# --------------------------------------------------------------------------------------------------
# Parts of a source
# --------------------------------------------------------------------------------------------------


@RAISED
def test_failed_cluster_does_not_hide_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, reason: str
) -> None:
    ceph(image("one"), connect={"broken": error}).install(monkeypatch)
    both = [access(tmp_path, client_id="broken", name="first"), access(tmp_path, name="second")]
    view, source = CephReader(both).images([identity("one")], deadline=time.monotonic() + 60)
    assert view is not None
    broken, sound = view.clusters
    assert broken.source.state is SourceState.FAILED
    assert broken.source.reason.startswith(f"first: {reason}")
    assert [len(sound.images), sound.blocklist] == [1, ()]
    assert [gap.fact for gap in source.gaps] == ["cluster first"]


@RAISED
def test_failed_image_does_not_hide_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, reason: str
) -> None:
    ceph(image("bad", error=error), image("good")).install(monkeypatch)
    view = _observed(tmp_path, [identity("bad"), identity("good")])
    bad, good = views(view)
    assert isinstance(bad.watchers, NotObserved)
    assert reason in bad.watchers.reason
    assert bad.presence == bad.watchers
    assert good.watchers == ()


@RAISED
@pytest.mark.parametrize("prefix", ["osd blocklist ls", "osd lspools", "mgr dump"])
def test_failed_monitor_query_does_not_hide_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: str, error: Exception, reason: str
) -> None:
    ceph(image("one"), answers={prefix: error}).install(monkeypatch)
    view = _observed(tmp_path, [identity("one")])
    (one,) = views(view)
    cluster = view.clusters[0]
    unseen = [
        fact
        for fact in (cluster.blocklist, cluster.pools, cluster.services)
        if isinstance(fact, NotObserved)
    ]
    assert one.watchers == ()
    assert [reason in fact.reason for fact in unseen] == [True]
    assert unseen[0].hint == DEFECT


@pytest.mark.parametrize("prefix", ["osd ls", "dump_watchers"])
@pytest.mark.parametrize("answer", [TypeError("x"), b"{}", b"[{}]", b"", b"["], ids=str)
def test_watchers_are_read_per_image_if_osd_queries_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: str, answer: Any
) -> None:
    names = [f"image-{number}" for number in range(9)]
    found = ceph(*(image(name) for name in names), answers={"dump_watchers": b"[]"})
    found.answers[prefix] = answer
    found.install(monkeypatch)
    view = _observed(tmp_path, [identity(name) for name in names])
    assert [seen.watchers for seen in views(view)] == [()] * 9


def test_watchers_of_many_images_are_read_without_librbd(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [f"image-{number}" for number in range(9)]
    ceph(*(image(name) for name in names), answers={"dump_watchers": b"[]"}).install(monkeypatch)
    monkeypatch.setattr(observe_cluster, "rbd_module", raising(AssertionError("librbd was loaded")))
    view = _observed(tmp_path, [identity(name) for name in names])
    assert [seen.watchers for seen in views(view)] == [()] * 9


def _with_one_read(
    monkeypatch: pytest.MonkeyPatch, first_read: Callable[[Any], None]
) -> list[ImageIdentity]:
    """Return nine images; the read of the first one's object rbd_id.NAME ends as given."""
    names = [f"image-{number}" for number in range(9)]
    ceph(*(image(name) for name in names), answers={"dump_watchers": b"[]"}).install(monkeypatch)
    real = Ioctx.aio_read

    def read(context: Ioctx, name: str, length: int, offset: int, oncomplete: Any) -> object:
        if name != "rbd_id.image-0":
            return real(context, name, length, offset, oncomplete)
        first_read(oncomplete)
        return None

    monkeypatch.setattr(Ioctx, "aio_read", read)
    return [identity(name) for name in names]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EACCES, "client.rbdagent has no permission to read it"),
        (errno.ETIMEDOUT, "no answer within 2.5 s"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_refused_read_of_an_image_concerns_only_this_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, reason: str
) -> None:
    images = _with_one_read(monkeypatch, lambda ended: ended(Completion(-code), None))
    first, *others = (seen.watchers for seen in views(_observed(tmp_path, images)))
    assert isinstance(first, NotObserved)
    assert reason in first.reason
    assert others == [()] * 8


def test_read_of_an_image_that_cannot_begin_concerns_only_this_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images = _with_one_read(monkeypatch, raising(ValueError("unexpected")))
    first, *others = (seen.watchers for seen in views(_observed(tmp_path, images)))
    assert isinstance(first, NotObserved)
    assert others == [()] * 8


def test_read_without_an_answer_concerns_only_this_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images = _with_one_read(monkeypatch, lambda _: None)
    look = CephReader([access(tmp_path)], opens_images=False)
    view, _ = look.images(images, deadline=time.monotonic() + 1)
    first, *others = (seen.watchers for seen in views(view))
    assert isinstance(first, NotObserved)
    assert "no answer" in first.reason
    assert others == [()] * 8


def _observed(tmp_path: Path, images: list[ImageIdentity]) -> Any:
    look = CephReader([access(tmp_path)], opens_images=False)
    view, source = look.images(images, deadline=time.monotonic() + 60)
    assert source.state is SourceState.OBSERVED
    return view


@RAISED
def test_published_reports_are_not_observed_after_an_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    for module in (list_reports, connection):
        monkeypatch.setattr(module, "credentials", raising(error))
    there = Connection(ACCESS)
    mappings = list_reports.mappings_with(there, labels.Lookup((), ("a=b",)))
    every = list_reports.reports_about(there, list_reports.FoundMappings(), frozenset(), None)
    named = list_reports.reports_of_nodes(ACCESS, ["worker-2"])
    for found in (mappings, every, named["worker-2"]):
        assert isinstance(found, NotObserved)
        assert reason in found.reason


@RAISED
def test_failed_log_is_not_observed(error: Exception, reason: str) -> None:
    found = volume_logs._answer(error)
    assert isinstance(found, NotObserved)
    assert reason.partition(": ")[2] in found.reason


# --------------------------------------------------------------------------------------------------
# check
# --------------------------------------------------------------------------------------------------


@RAISED
@pytest.mark.parametrize("source", ["node", "ceph", "kubernetes"])
def test_check_shows_the_other_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, error: Exception, reason: str
) -> None:
    ceph().install(monkeypatch)
    for name in ("node", "kube"):
        line = CheckResult(source=name, sentence="it works", state=CheckState.OK)
        monkeypatch.setattr(preflight, f"_{name}", lambda *_, line=line: (line,))
    monkeypatch.setattr(preflight, f"_{source.replace('rnetes', '')}", raising(error))
    settings = replace(NOWHERE, clusters=(access(tmp_path),))
    lines = preflight.check_all(settings, {})
    bad = [line for line in lines if line.state is CheckState.FAILED]
    assert [line.source for line in bad] == [source]
    assert reason in bad[0].detail
    assert bad[0].hint == DEFECT
    assert len({line.source.replace("kube", "kubernetes") for line in lines} - {source}) >= 2


def test_check_starts_the_process_that_observes_the_node_before_any_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fork keeps the locks of imports that other threads hold, and would wait for them."""
    threads: list[str] = []

    @contextlib.contextmanager
    def begun(*_: object) -> Iterator[Callable[[], NodeAnswer]]:
        threads.append(threading.current_thread().name)
        yield lambda: (None, Source(state=SourceState.FAILED, reason="as given"))

    monkeypatch.setattr("rbdagent.collect.node.contained.node_begun", begun)
    roots = NodeRoots(procfs=tmp_path, sysfs=tmp_path, host_root=tmp_path)
    lines = preflight.check_all(replace(NOWHERE, roots=roots), {})
    assert threads == [threading.main_thread().name]
    assert "as given" in {line.detail for line in lines}


def test_check_of_a_cluster_continues_after_a_failed_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ceph(answers={"osd blocklist ls": b'[{"addr":"worker-1"}]'}).install(monkeypatch)
    lines = {line.sentence: line for line in check_ceph(access(tmp_path))}
    assert lines["the blocklist can be read"].state is CheckState.FAILED
    assert "worker-1" in lines["the blocklist can be read"].detail
    assert lines["pools can be listed"].state is CheckState.OK


# --------------------------------------------------------------------------------------------------
# The error
# --------------------------------------------------------------------------------------------------


def test_error_with_a_hint_is_kept() -> None:
    error = SourceError("no route to the monitors", hint="plug the cable in")
    assert as_source_error(error, "ceph") is error


def test_malformed_answer_is_not_called_a_defect() -> None:
    error = ParseError(what="a watcher", where="dump", text="x", expected="y")
    found = as_source_error(error, "k8s/one")
    assert str(found) == f"k8s/one: {error}"
    assert found.hint == ""
    assert str(as_source_error(error, "dump")) == str(error)


def failure() -> Exception:
    with pytest.raises(TypeError) as caught:
        raising(TypeError("expected int"))()
    return caught.value


def test_no_traceback_is_printed_without_debug(capsys: pytest.CaptureFixture[str]) -> None:
    as_source_error(failure(), "ceph")
    assert capsys.readouterr() == ("", "")


def test_traceback_is_printed_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    with logged("debug", "console"):
        as_source_error(failure(), "cluster ceph")
    shown = capsys.readouterr().err
    assert "cluster ceph" in shown.partition("Traceback")[0]
    assert "test_observe_failure.py" in shown
    assert shown.endswith("TypeError: expected int\n")


def test_debug_flag_affects_its_own_run_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> tuple[()]:
        as_source_error(failure(), "cluster ceph")
        return ()

    monkeypatch.setattr("rbdagent.preflight.check_all", fail)
    for flags, is_shown in ((["--debug"], True), ([], False)):
        run(["check", *flags])
        assert ("Traceback" in capsys.readouterr().err) is is_shown


MONITOR = (
    b'{"mons":[{"name":"a","public_addrs":{"addrvec":[{"addr":"10.77.0.1:3300","nonce":0}]}}]}'
)


@pytest.mark.parametrize(
    ("monitors", "failures"),
    [(MONITOR, []), (b'{"mons":[]}', ["east and west are two clusters with one fsid"])],
    ids=["one cluster that is configured twice", "a copy, or a cluster with unknown monitors"],
)
def test_two_clusters_with_one_fsid_are_an_error_of_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, monitors: bytes, failures: list[str]
) -> None:
    ceph(answers={"mon dump": monitors}).install(monkeypatch)
    both = (access(tmp_path, name="west"), access(tmp_path, name="east"))
    lines = preflight.check_all(replace(NOWHERE, clusters=both), {})
    failed = [line for line in lines if line.source == "ceph" and line.state is CheckState.FAILED]
    assert [line.failure for line in failed] == failures
