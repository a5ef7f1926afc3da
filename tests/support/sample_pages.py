"""Sample pages: volumes that are healthy, broken, or only partly observed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

from rbdagent.correlate import correlate
from rbdagent.lifecycle import steps
from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.model import (
    EntityAddress,
    ObjectRef,
    OpenKind,
    ProcessRef,
    Target,
    TargetKind,
    Watcher,
)
from rbdagent.report.html.assets import STYLE_SHEET
from rbdagent.report.html.cluster import cluster_page
from rbdagent.report.html.page import page
from rbdagent.report.snapshot import load_snapshot
from tests.support import snapshots as made
from tests.support.cli_runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.model import Lifecycle, Snapshot

EXAMPLES: Final = sorted((ROOT / "examples").glob("*.json"))
_VOID_ELEMENTS: Final = {"meta"}
_LATER: Final = "2026-11-21T03:12:00Z"
_WITHOUT_TEXT: Final = {"style"}


def lifecycle_of(snapshot: Snapshot) -> Lifecycle:
    return steps.lifecycle_of(correlate(snapshot), snapshot)


def page_of(snapshot: Snapshot) -> str:
    return page(lifecycle_of(snapshot), snapshot)


def cluster_page_of(snapshot: Snapshot) -> str:
    """Return the page of all that is stuck, made twelve minutes after the snapshot."""
    return cluster_page(report_cluster(snapshot), snapshot, now=_LATER)


def in_use() -> Snapshot:
    """Return a snapshot in which a pod runs with its volume, and nothing is wrong."""
    return made.world(
        mapped={
            "mounts": (
                made.mount(),
                made.mount(path=made.POD_PATH),
                made.mount(path="/data", namespace=made.container()),
            ),
            "openers": (
                made.opener(
                    kind=OpenKind.DESCRIPTOR,
                    path="/data/x",
                    process=ProcessRef(pid=6790, command="/bin/app", pod_uid=made.POD_UID),
                ),
            ),
        },
        in_kube={"pods": (made.pod(),), "attachments": (made.attachment("worker-1"),)},
    )


def two_writers() -> Snapshot:
    """Return a snapshot in which two nodes have the image mapped read-write, and a third waits."""
    return made.world(
        of_image={"watchers": (made.watcher(), made.remote_watcher())},
        in_kube={
            "pods": (made.pod("web-0", "worker-2"), made.waiting_pod("web-1", "worker-3")),
            "attachments": (made.attachment("worker-2"),),
            "nodes": tuple(made.node(f"worker-{number}") for number in (1, 2, 3)),
        },
    )


def unknown_watcher(number: int = 1, cookie: int = made.COOKIE) -> Watcher:
    """Return a watcher whose address belongs to no known node."""
    address = EntityAddress(ip=f"2001:db8::{number}", nonce=4294967295)
    return Watcher(address=address, client=77 + number, cookie=cookie)


def unknown_watchers() -> Snapshot:
    """Return a snapshot in which clients that belong to no known node hold the image."""
    watchers = (made.watcher(), unknown_watcher(), unknown_watcher(2, made.LIBRBD_COOKIE))
    waiting = {"pods": (made.waiting_pod("web-1", "worker-2"),)}
    return made.world(of_image={"watchers": watchers}, in_kube=waiting)


def many_nodes() -> Snapshot:
    """Return a snapshot in which twelve nodes read the volume."""
    watchers = tuple(
        Watcher(
            address=EntityAddress(ip=f"10.77.0.{20 + number}", nonce=number),
            client=5000 + number,
            cookie=made.COOKIE,
        )
        for number in range(12)
    )
    nodes = tuple(
        made.node(f"worker-{20 + number}", internal_ips=(f"10.77.0.{20 + number}",))
        for number in range(12)
    )
    return made.unmapped(
        of_image={"watchers": watchers},
        in_kube={
            "persistent_volumes": (made.volume(access_modes=("ReadOnlyMany",)),),
            "claims": (made.claim(access_modes=("ReadOnlyMany",)),),
            "attachments": tuple(made.attachment(node.name) for node in nodes),
            "nodes": nodes,
            "pods": tuple(made.pod(f"reader-{node.name}", node.name) for node in nodes),
        },
    )


def without_api() -> Snapshot:
    """Return a snapshot in which Kubernetes could not be queried."""
    image = Target(argument=str(made.SPEC), kind=TargetKind.IMAGE, image=made.SPEC)
    return made.snapshot(kubernetes=None, target=image)


def unbound() -> Snapshot:
    """Return a snapshot in which a claim has no volume, and its pod has no node."""
    return made.unmapped(
        target=Target(argument="pvc/data", kind=TargetKind.CLAIM, name="data", namespace="default"),
        ceph=None,
        in_kube={
            "persistent_volumes": (),
            "claims": (made.claim(phase="Pending", volume_name=None),),
            "pods": (made.waiting_pod("web-1", None),),
        },
    )


def named(name: str) -> Snapshot:
    """Return a snapshot in which every object that can have a name has this name."""
    claim = ObjectRef(namespace=name, name=name, uid="claim-uid")
    ref = ObjectRef(namespace=name, name=name, uid=made.POD_UID)
    waiting = ObjectRef(namespace=name, name=f"{name}-2", uid="waiting-uid")
    process = ProcessRef(pid=392, command=name)
    return made.world(
        target=Target(argument=name, kind=TargetKind.PERSISTENT_VOLUME, name=name),
        mapped={
            "device": f"/dev/{name}",
            "openers": (made.opener(process=process), made.opener(kind="mapping", path=name)),
            "mounts": (made.mount(path=name, namespace=made.container(process=process)),),
        },
        on_node={"node_name": name},
        in_kube={
            "persistent_volumes": (made.volume(name=name, claim=claim),),
            "claims": (made.claim(ref=claim, volume_name=name, storage_class=name),),
            "pods": (
                made.pod(node=name, ref=ref, claims=(name,), deleting_since=made.LONG_AGO),
                made.waiting_pod(node=f"{name}-2", ref=waiting, claims=(name,)),
            ),
            "nodes": (made.node(name, internal_ips=("10.77.0.11",)), made.node(f"{name}-2")),
            "attachments": (made.attachment(name, persistent_volume=name),),
            "events": (made.event(name, subject=waiting),),
        },
    )


def mounts_not_observed() -> Snapshot:
    """Return a snapshot in which no mount and no opener of the device could be read."""
    return made.world(mapped={"mounts": made.UNSEEN, "openers": made.UNSEEN})


def longest_names() -> Snapshot:
    """Return a snapshot with names as long as the API allows, without a place to break the line."""
    return named("n" * 253)


def _example(stem: str) -> Callable[[], Snapshot]:
    path = next(example for example in EXAMPLES if example.stem == stem)
    return lambda: load_snapshot(path.read_text(), where=path.name)


SCENES: Final[dict[str, Callable[[], Snapshot]]] = {
    **{example.stem: _example(example.stem) for example in EXAMPLES},
    "in-use": in_use,
    "two-writers": two_writers,
    "unknown-watchers": unknown_watchers,
    "many-nodes": many_nodes,
    "without-api": without_api,
    "unbound": unbound,
    "free": made.unmapped,
    "pod-without-node": lambda: made.unmapped(in_kube={"pods": (made.waiting_pod("web-1", None),)}),
    "no-watcher": lambda: made.world(of_image={"watchers": ()}),
    "mounts-not-observed": mounts_not_observed,
    "longest-names": longest_names,
}


class ParsedPage(HTMLParser):
    """The elements and the text of a page. Every element must be closed, in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        """Element, name, value."""
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == [], "left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in _VOID_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag} {attrs}/> is outside of an SVG"
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not _WITHOUT_TEXT & set(self.open):
            self.text += data

    def values(self, name: str) -> list[str]:
        """Return the values of an attribute in all elements."""
        return [value for _, attribute, value in self.attributes if attribute == name]


# --------------------------------------------------------------------------------------------------
# Colours
# --------------------------------------------------------------------------------------------------


PALETTE: Final = re.compile(r":root\{(.*?)\}", re.DOTALL)
"""The custom properties of one colour scheme in the style sheet."""
PALETTES: Final = [
    dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6});", scheme))
    for scheme in PALETTE.findall(STYLE_SHEET)
]
"""The colours of the light scheme, and those of the dark scheme, by name."""


def rgb(colour: str) -> list[int]:
    """Parse ``#12ab90``."""
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def contrast(colour: Sequence[float], ground: Sequence[float]) -> float:
    """Return the contrast ratio of two colours: 1 to 21.

    Source: WCAG 2.2, section "contrast ratio" (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio).
    """
    dark, light = sorted((_luminance(colour), _luminance(ground)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Sequence[float]) -> float:
    parts = (channel / 255 for channel in colour)
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
