"""The node's own words beside what is said: of the right node, step and volume, and no verdict."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rbdagent.model import (
    BlocklistEntry,
    Heard,
    NodeWords,
    NotObserved,
    PluginSocket,
    Snapshot,
    TargetKind,
    Word,
)
from tests.unit.builders import (
    ADDRESS,
    DRIVER,
    HANDLE,
    NOW,
    PV,
    SPEC,
    attachment,
    codes,
    event,
    found,
    in_flight,
    mount,
    node,
    opener,
    pod,
    process,
    remote_watcher,
    target,
    unmapped,
    waiting_pod,
    world,
)

SINCE: Final = "2026-11-21T02:10:00Z"
SILENT: Final = Heard(since=SINCE)
HIDDEN: Final = NotObserved(reason="/var/log/pods is not there", cure="the chart: logs.enabled")


def word(text: str, *names: str, **overrides: Any) -> Word:  # noqa: ANN401 - any field of a word
    made = Word(at="2026-11-21T02:59:15Z", text=text, names=names or (PV, HANDLE))
    return replace(made, **overrides)


UNMAP: Final = word(
    "error unmapping volume: rbd: unmap failed: (16) Device or resource busy",
    call="NodeUnstageVolume",
    times=7,
)
UNMOUNT: Final = word(
    "UnmountDevice failed …: rpc error: code = Internal",
    call="UnmountDevice",
    retry_at="2026-11-21T03:00:14Z",
)
MOUNT: Final = word(f"MountVolume.MountDevice failed …: rbd image {SPEC} is still being used",
                    call="MountVolume.MountDevice")  # fmt: skip
WATCH: Final = word("rbd: rbd0: encountered watch error: -107", "rbd0")
OF_ANOTHER: Final = word("error unmapping another", "pvc-another", call="NodeUnstageVolume")


def told(
    seen: Snapshot,
    kubelet: Heard | NotObserved | Word = SILENT,
    plugin: Heard | NotObserved | Word = SILENT,
    kernel: Heard | NotObserved | Word = SILENT,
) -> Snapshot:
    """Give a look with the words of its node."""
    assert seen.node is not None
    heard = [
        replace(SILENT, words=(each,)) if isinstance(each, Word) else each
        for each in (kubelet, plugin, kernel)
    ]
    words = NodeWords(kubelet=heard[0], plugin=heard[1], kernel=heard[2])
    return replace(seen, node=replace(seen.node, words=words))


def said_of_words(seen: Snapshot, code: str) -> tuple[str, ...]:
    """Give what the words add to the evidence of a finding."""
    assert seen.node is not None
    silent = replace(seen, node=replace(seen.node, words=NotObserved(reason="not asked")))
    before = found(silent, code).evidence
    after = found(seen, code).evidence
    assert after[: len(before)] == before
    return after[len(before) :]


PINNED: Final = world(mapped={"openers": (opener(),)}, in_kube={"attachments": (attachment(),)})
STAGED_ONLY: Final = world(mapped={"mounts": (mount(),)})
STARTING: Final = world(in_kube={"pods": (waiting_pod(node="worker-1"),)})
BY_IMAGE: Final = target(given=str(SPEC), kind=TargetKind.IMAGE, name="", image=SPEC)
MULTI_ATTACH: Final = event(f'Multi-Attach error for volume "{PV}" Volume is already exclusively')
BEING_USED: Final = event(f"rbd image {SPEC} is still being used", reason="FailedMount")


NO_KEY: Final = event(
    f"MountVolume.MountDevice failed for volume \"{PV}\" : rbd: failed to add secret 'client.csi' "
    "to kernel\nrbd: map failed: (22) Invalid argument",
    reason="FailedMount",
)


# What is quoted -----------------------------------------------------------------------------------


def test_who_said_it_when_how_often_and_what_follows_stands_before_the_words() -> None:
    kubelet, plugin = said_of_words(told(PINNED, kubelet=UNMOUNT, plugin=UNMAP), "RBD102")
    assert kubelet == (
        'kubelet 45s ago, next try in 14s: "UnmountDevice failed …: rpc error: code = Internal"'
    )
    assert plugin == (
        'the CSI node plugin 45s ago (7 times), NodeUnstageVolume: "error unmapping volume: rbd: '
        'unmap failed: (16) Device or resource busy" (somebody has the device open)'
    )


def test_a_try_that_is_over_is_not_announced() -> None:
    (line, *_) = said_of_words(told(PINNED, kubelet=replace(UNMOUNT, retry_at=NOW)), "RBD102")
    assert "next try" not in line


def test_a_call_without_an_answer_is_told_as_such() -> None:
    call = word("GRPC call: NodeUnstageVolume", call="NodeUnstageVolume", unanswered=True,
                at="2026-11-21T02:40:00Z")  # fmt: skip
    assert said_of_words(told(PINNED, plugin=call), "RBD102")[0] == (
        "the CSI node plugin 20m ago: NodeUnstageVolume was called, and has no answer since"
    )


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("umount: /x: target is busy.", "somebody has a file on it open"),
        (f"an operation with the given Volume ID {HANDLE} already exists", "has not ended yet"),
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", "under way still"),
        (f"driver name {DRIVER} not found in the list of registered CSI drivers", "registered"),
        ("dial unix /x/csi.sock: connect: connection refused", "does not listen"),
    ],
)
def test_a_text_that_needs_it_is_explained(text: str, meaning: str) -> None:
    (line, *_) = said_of_words(told(PINNED, kubelet=word(text)), "RBD102")
    assert line.startswith(f'kubelet 45s ago: "{text}" (')
    assert meaning in line


def test_words_of_another_volume_are_not_quoted() -> None:
    """A snapshot without a target holds the words of every volume of the node."""
    lines = said_of_words(told(PINNED, plugin=OF_ANOTHER, kernel=word("x", "rbd1")), "RBD102")
    assert not any(OF_ANOTHER.text in each or '"x"' in each for each in lines)


# On what it is quoted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (PINNED, "RBD102"),
        (STAGED_ONLY, "RBD110"),
        (STARTING, "RBD120"),
        (
            world(
                mapped={"mounts": (mount(),)},
                of_kubelet={
                    "sockets": (PluginSocket(driver=DRIVER, path="/s", listening=False),)
                },
                in_kube={"attachments": (attachment(),)},
            ),
            "RBD201",
        ),
        (
            world(
                on_node={
                    "in_flight": (
                        in_flight("umount", f"umount /x/{HANDLE}",
                                  process=process(pid=9000, command="umount", state="D")),
                    )
                }
            ),
            "RBD203",
        ),
    ],
    ids=["pinned", "staging-left", "between-steps", "driver-down", "hangs"],
)  # fmt: skip
def test_what_fails_on_the_way_back_is_explained_by_words_of_the_way_back(
    seen: Snapshot, code: str
) -> None:
    """What is between two steps, or hangs in one, may be on either way."""
    lines = said_of_words(told(seen, kubelet=MOUNT, plugin=UNMAP, kernel=WATCH), code)
    assert any(UNMAP.text in each for each in lines)
    assert any(WATCH.text in each for each in lines)
    assert any(MOUNT.text in each for each in lines) == (code in {"RBD120", "RBD203"})


def waiting_here(name: str) -> Snapshot:
    """A pod on this node waits for what another node watches."""
    return unmapped(
        of_image={"watchers": (remote_watcher(),)},
        in_kube={
            "pods": (waiting_pod("web-1", name),),
            "events": (BEING_USED,),
            "attachments": (attachment(name),),
        },
    )


def test_what_a_pod_of_this_node_waits_for_is_explained_by_words_of_the_way_there() -> None:
    seen = told(waiting_here("worker-1"), kubelet=MOUNT, plugin=UNMAP)
    lines = said_of_words(seen, "RBD402")
    assert any(MOUNT.text in each for each in lines)
    assert not any(UNMAP.text in each for each in lines)


def test_what_a_pod_of_another_node_waits_for_this_node_does_not_know() -> None:
    assert said_of_words(told(waiting_here("worker-2"), kubelet=MOUNT), "RBD402") == ()


def multi_attach(**parts: Any) -> Snapshot:  # noqa: ANN401 - as world
    pods = (waiting_pod(), *parts.pop("pods", ()))
    in_kube = {"pods": pods, "events": (MULTI_ATTACH,), "attachments": (attachment(),)}
    return world(in_kube=in_kube, **parts)


def test_multi_attach_is_explained_by_the_holder_that_is_this_node() -> None:
    """It is in use by the API's word: that its step fails is no finding of its own."""
    seen = multi_attach(mapped={"mounts": (mount(),)}, pods=(pod(deleting_since=NOW), pod("web-3")))
    assert "RBD102" not in codes(seen)
    assert any(UNMAP.text in each for each in said_of_words(told(seen, plugin=UNMAP), "RBD401"))


def test_what_another_finding_quotes_multi_attach_does_not_quote_again() -> None:
    seen = told(multi_attach(mapped={"openers": (opener(),)}), plugin=UNMAP)
    assert any(UNMAP.text in each for each in said_of_words(seen, "RBD102"))
    assert said_of_words(seen, "RBD401") == ()


def test_what_became_of_a_device_in_use_only_the_kernel_tells() -> None:
    dead = world(
        in_ceph={"blocklist": (BlocklistEntry(network=ADDRESS.ip, nonce=ADDRESS.nonce),)},
        of_image={"watchers": ()},
    )
    lines = said_of_words(told(dead, kubelet=UNMOUNT, plugin=UNMAP, kernel=WATCH), "RBD103")
    assert lines == (
        'the kernel 45s ago: "rbd: rbd0: encountered watch error: -107" (Ceph has ended its watch)',
    )


# Three states -------------------------------------------------------------------------------------


def test_silence_is_told_with_its_length() -> None:
    (line,) = said_of_words(told(PINNED), "RBD102")
    assert line == (
        "of this step no complaint was logged by kubelet in the last 50m, nor by the CSI node "
        "plugin in the last 50m"
    )


def test_what_nobody_could_read_is_told_in_one_line_with_what_would_tell_more() -> None:
    denied = NotObserved(reason="syslog(2): Operation not permitted", cure="CAP_SYSLOG")
    seen = told(PINNED, kubelet=UNMOUNT, plugin=HIDDEN, kernel=denied)
    _, line = said_of_words(seen, "RBD102")
    assert line == (
        "not observed: the words of the CSI node plugin (/var/log/pods is not there); the kernel "
        "(syslog(2): Operation not permitted). To see them: the chart: logs.enabled; CAP_SYSLOG"
    )


def test_where_nothing_is_wrong_neither_silence_nor_blindness_is_told() -> None:
    assert said_of_words(told(STARTING, plugin=HIDDEN), "RBD120") == ()


def test_where_nobody_asked_nothing_is_said() -> None:
    assert not any("not observed: the words" in each for each in found(PINNED, "RBD102").evidence)


@pytest.mark.parametrize("heard", [SILENT, HIDDEN, UNMAP, MOUNT, WATCH])
def test_words_change_no_verdict(heard: Heard | NotObserved | Word) -> None:
    for seen in (PINNED, STAGED_ONLY, multi_attach(), waiting_here("worker-1"), world()):
        assert codes(told(seen, heard, heard, heard)) == codes(seen)


def test_a_node_that_was_looked_away_from_has_no_words() -> None:
    seen = world(node=None, in_kube={"nodes": (node(),)}, target=BY_IMAGE)
    assert codes(seen)


def test_kernel_line_of_a_refused_key_is_evidence_of_the_key_type() -> None:
    pods = (waiting_pod(node="worker-1"),)
    seen = unmapped(
        in_kube={"pods": pods, "attachments": (attachment(),), "events": (NO_KEY,)},
    )
    line = word("libceph: secret too big 32", "libceph: secret too big")
    said = said_of_words(told(seen, kernel=line), "RBD747")
    assert said[0] == (
        'the kernel 45s ago: "libceph: secret too big 32" (it does not know keys of type aes256k)'
    )
