"""The page of ``diagnose -o html``, as markup; tests/integration opens it in a browser."""

from __future__ import annotations

import itertools
import re
from html import unescape
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbdagent.catalog import CATALOG
from rbdagent.commands import lines_of
from rbdagent.model import CsiSource, Severity, StepState
from rbdagent.parse.shown import shown
from rbdagent.report.html.assets import ICONS, STYLE_SHEET
from rbdagent.report.html.chain import chain_of
from rbdagent.report.html.markup import Html, el, visible
from rbdagent.rules.entry import RUNBOOKS
from tests.contract.cli_runner import ORPHAN, ROOT, process
from tests.contract.pages import (
    PALETTE,
    PALETTES,
    SCENES,
    Read,
    contrast,
    drawn,
    in_use,
    life,
    named,
    rgb,
    stranger,
)
from tests.contract.recordings import recorded_snapshot
from tests.unit.builders import (
    DRIVER,
    HANDLE,
    UNSEEN,
    unmapped,
    volume,
    waiting_pod,
    watcher,
    world,
)

if TYPE_CHECKING:
    from rbdagent.model import Snapshot
    from rbdagent.report.html.chain import Link

RECORDED: Final = (
    ("01-fs-running", "c1", "n1"),
    ("12-pinned-by-cwd-invisible", "c12", "n1"),
    ("20-nbd-killed", "cn", "n2"),
    ("23-blocklisted", "cb1", "n1"),
    ("24-read-only-and-shared", "crox", "n1"),
    ("30-two-writers-after-blocklist-rm", "ch", "n1"),
)
_PIECES: Final = (
    *"<>&\"'`/=!;- \t\n\r\x00\x1b\x85\u202e\u2066é",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title></pre>",
    "<!--",
    "]]>",
    "&lt;&#60;&amp;",
    "javascript:",
)
_PIECE: Final = st.sampled_from(_PIECES) | st.characters(codec="utf-8")
NAMES: Final = st.lists(_PIECE, min_size=1).map("".join)
TEXTS: Final = st.lists(_PIECE | st.characters(categories=["Cs"]), min_size=1).map("".join)
"""Text from the kernel may not be UTF-8: Python then represents it with lone surrogates."""
DEVICE: Final = ("diagnose", "/dev/rbd0", "--from", str(ORPHAN))
OF_STATES: Final = {str(state).replace(" ", "-") for state in StepState}


@pytest.fixture(scope="module", params=[*SCENES, *(recording[0] for recording in RECORDED)])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    if request.param in SCENES:
        return SCENES[request.param]()
    name, claim, node = next(recording for recording in RECORDED if recording[0] == request.param)
    return recorded_snapshot(name, claim, node_name=node, root=tmp_path_factory.mktemp("node"))


def links_of(scene: Snapshot) -> list[Link]:
    chain = chain_of(life(scene), scene)
    stops = itertools.chain(chain.trunk, *(lane.boxes for lane in chain.lanes))
    return [chain.fork, *(stop.link for stop in stops if stop.link)]


# --------------------------------------------------------------------------------------------------
# Content
# --------------------------------------------------------------------------------------------------


def test_page_shows_findings_with_evidence_remedy_and_commands(scene: Snapshot) -> None:
    words = Read(drawn(scene)).words
    for finding in life(scene).findings:
        for said in (
            finding.code,
            finding.subject,
            finding.message,
            finding.remedy,
            str(finding.recovery or ""),
        ):
            assert said in words
        assert [
            said for said in (*finding.evidence, *lines_of(finding.commands)) if said not in words
        ] == []


def test_every_command_has_a_separate_block_for_copying(scene: Snapshot) -> None:
    page = drawn(scene)
    for command in (one for finding in life(scene).findings for one in lines_of(finding.commands)):
        assert el("pre", el("code", command)) in page


def test_page_shows_every_step_with_its_state_in_words(scene: Snapshot) -> None:
    found = life(scene)
    words = Read(drawn(scene)).words
    for stage in (*found.there, *(step for way in found.back for step in way.stages)):
        state = stage.state.upper() if stage.state is StepState.FAILED else stage.state
        assert f"{stage.step}{state}" in words
        assert stage.said in words


def test_root_cause_is_the_heading(scene: Snapshot) -> None:
    first = life(scene).first_failed
    (heading,) = re.findall(r"<h1>(.*?)</h1>", drawn(scene), re.DOTALL)
    if first is None:
        assert "waits" not in heading
    else:
        assert f"Root cause: {first.code}" in heading


def test_first_broken_link_is_marked_if_its_finding_has_a_step(
    scene: Snapshot,
) -> None:
    first = life(scene).first_failed
    marked = [link for link in links_of(scene) if link.is_first]
    belongs = first is not None and CATALOG[first.code].step is not None
    assert bool(marked) is belongs
    for link in marked:
        assert link.state is StepState.FAILED
    page = drawn(scene)
    assert page.count(' first">') == len(marked)
    assert page.count(' first"><svg class="icon"') == len(marked)


def test_every_finding_that_breaks_a_step_is_on_a_link(scene: Snapshot) -> None:
    drawn_codes = {code for link in links_of(scene) for code in link.codes}
    broken = {
        finding.code
        for finding in life(scene).findings
        if finding.severity is not Severity.INFO and CATALOG[finding.code].step is not None
    }
    assert broken <= drawn_codes


def test_broken_link_has_a_word_and_a_distinct_shape() -> None:
    page = drawn(SCENES["true-orphan"]())
    (link,) = re.findall(r'<div class="link failed first">(.*?)</div>', page)
    assert ICONS["failed"] in link
    assert "FAILED" in link
    assert '<a href="#RBD101">RBD101</a>' in link
    assert len(set(ICONS.values())) == len(ICONS)
    assert ICONS.keys() >= OF_STATES


@pytest.mark.parametrize("name", ICONS)
def test_icon_file_is_a_complete_drawing_of_the_common_size(name: str) -> None:
    file = ROOT / "rbdagent" / "report" / "html" / "icons" / f"{name}.svg"
    drawing = Read(file.read_text())
    assert drawing.values("viewbox") == ["0 0 24 24"]
    assert drawing.tags == ["svg", *Read(el("svg", ICONS[name])).tags[1:]]


def test_fault_of_no_single_holder_is_marked_at_the_fork() -> None:
    scene = SCENES["two-writers"]()
    chain = chain_of(life(scene), scene)
    assert (chain.fork.codes, chain.fork.is_first) == (("RBD106",), True)


def test_healthy_holder_has_no_broken_link() -> None:
    scene = SCENES["two-writers"]()
    lanes = {lane.name: lane for lane in chain_of(life(scene), scene).lanes}
    broken = {
        name: [stop.link.step for stop in lane.boxes if stop.link and stop.link.codes]
        for name, lane in lanes.items()
    }
    assert broken == {"worker-1": ["unstage"], "worker-2": [], "worker-3": ["attach"]}


def test_page_draws_the_chain_from_pod_to_processes() -> None:
    scene = in_use()
    chain = chain_of(life(scene), scene)
    (lane,) = chain.lanes
    assert [stop.box.kind for stop in chain.trunk] == ["pod", "claim", "pv", "image"]
    kinds = ["watcher", "node", "device", "mounts", "processes"]
    assert [stop.box.kind for stop in lane.boxes] == kinds
    assert lane.boxes[-1].box.names == (
        "process 6790 (/bin/app) of pod default/web-0 has an open file on it (/data/x)",
    )


def test_unobserved_objects_are_marked_as_not_observed() -> None:
    page = drawn(SCENES["without-api"]())
    for kind in ("pod", "claim", "pv"):
        (box,) = re.findall(rf'<div class="box {kind} unseen">(.*?)</div>', page)
        assert "not observed" in box
        assert "connection refused" in box
    assert Read(page).words.count("kubernetes not observed (failed): connection refused") == 1


def test_unobserved_mounts_and_processes_are_not_shown_as_none() -> None:
    page = drawn(SCENES["unseen-parts"]())
    for kind in ("mounts", "processes"):
        (box,) = re.findall(rf'<div class="box {kind} unseen">(.*?)</div>', page)
        assert "permission denied" in box


def test_unobserved_holders_of_a_device_are_not_shown_as_none() -> None:
    page = drawn(world(mapped={"holders": UNSEEN}))
    (box,) = re.findall(r'<div class="box processes unseen">(.*?)</div>', page)
    assert "permission denied" in box


def test_unobserved_attachments_are_not_shown_as_none() -> None:
    parts = {"attachments": UNSEEN, "pods": (waiting_pod("web-1", "worker-2"),)}
    page = drawn(unmapped(in_kube=parts))
    (box,) = re.findall(r'<div class="box node there">(.*?)</div>', page)
    assert "attachment not observed" in box


def test_stranger_is_not_shown_as_the_node_of_a_pod() -> None:
    scene = world(of_image={"watchers": (watcher(), stranger())})
    (*_, lane) = chain_of(life(scene), scene).lanes
    assert lane.name == "an unknown machine"
    assert [stop.link.state for stop in lane.boxes if stop.link] == [None, None, None]


def test_page_contains_no_secret_of_a_volume() -> None:
    attributes = (("imageName", "x"), ("userKey", "AQBsecret=="))
    source = CsiSource(driver=DRIVER, volume_handle=HANDLE, attributes=attributes)
    page = drawn(world(in_kube={"persistent_volumes": (volume(source=source),)}))
    assert "AQBsecret" not in page


# --------------------------------------------------------------------------------------------------
# Markup
# --------------------------------------------------------------------------------------------------


def test_page_is_well_formed_and_ascii(scene: Snapshot) -> None:
    page = drawn(scene)
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert page.isascii()
    Read(page)


def test_every_referenced_id_exists_once(scene: Snapshot) -> None:
    read = Read(drawn(scene))
    names = read.values("id")
    assert len(names) == len(set(names))
    assert set(read.values("aria-labelledby")) <= set(names)
    within = {href.removeprefix("#") for href in read.values("href") if href.startswith("#")}
    assert within <= set(names)


def test_page_loads_nothing_and_runs_nothing(scene: Snapshot) -> None:
    page = drawn(scene)
    read = Read(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(read.tags)
    assert not {"src", "srcset", "style", "background", "action"} & {
        name for _, name, _ in read.attributes
    }
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert "default-src 'none'" in "".join(read.values("content"))
    elsewhere = [href for href in read.values("href") if not href.startswith("#")]
    assert [href for href in elsewhere if not href.startswith(RUNBOOKS)] == []


def test_the_style_sheet_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|@font-face|http|</|javascript", STYLE_SHEET)


def test_page_has_title_landmarks_and_headings_in_order(scene: Snapshot) -> None:
    read = Read(drawn(scene))
    assert [read.tags.count(tag) for tag in ("title", "header", "main", "footer", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


_KNOWN: Final = {tag for scene in SCENES.values() for tag in Read(drawn(scene())).tags}


@settings(max_examples=150)
@given(NAMES)
def test_no_name_becomes_markup_and_every_name_is_readable(name: str) -> None:
    read = Read(drawn(named(name)))
    assert set(read.tags) <= _KNOWN
    assert not [
        attribute
        for _, attribute, _ in read.attributes
        if attribute.startswith("on") or attribute == "src"
    ]
    assert read.words.count(unescape(visible(name))) > 10


@settings(max_examples=300)
@given(TEXTS)
def test_text_is_unchanged_except_for_invisible_characters(text: str) -> None:
    read = Read(el("p", text, title=text))
    assert read.words == shown(text)
    assert read.words.isprintable()
    assert read.tags == ["p"]
    assert read.attributes == [("p", "title", shown(text))]


def test_part_of_markup_is_plain_text_again() -> None:
    assert el("p", el("b", "x")[:3]) == "<p>&lt;b&gt;</p>"
    assert el("p", "".join([Html("<b>"), Html("</b>")])) == "<p>&lt;b&gt;&lt;/b&gt;</p>"


# --------------------------------------------------------------------------------------------------
# Colours
# --------------------------------------------------------------------------------------------------


_TEXT: Final = ("text", "muted", "link", "good", "bad", "wait", "unseen")
_GROUNDS: Final = ("page", "card", "code")
_PAIRS: Final = (
    *itertools.product(_TEXT, _GROUNDS),
    *((tone, f"{tone}-card") for tone in ("good", "bad", "wait")),
    *itertools.product(("text", "link"), ("good-card", "bad-card", "wait-card")),
)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), _PAIRS)
def test_text_has_enough_contrast_to_its_background(text: str, ground: str, scheme: int) -> None:
    assert contrast(rgb(PALETTES[scheme][text]), rgb(PALETTES[scheme][ground])) >= 4.5


def test_both_schemes_define_the_same_colours() -> None:
    names = [re.findall(r"--([a-z-]+):", scheme) for scheme in PALETTE.findall(STYLE_SHEET)]
    assert names == [list(colours) for colours in PALETTES]
    assert names[0] == names[1]


def test_style_sheet_uses_only_colours_of_the_palette() -> None:
    rules = PALETTE.sub("", STYLE_SHEET)
    assert not re.search(r"#[0-9a-f]{3}|rgb|hsl", rules)
    used = set(re.findall(r"var\(--([a-z-]+)\)", rules + "".join(ICONS.values())))
    assert used - {"tone", "tint", "under"} <= PALETTES[0].keys()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_picture_of_the_page_in_the_readme_exists_and_is_small(scheme: str) -> None:
    picture = f"docs/diagnose-{scheme}.png"
    assert f'"{picture}"' in (ROOT / "README.md").read_text()
    assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")
    assert (ROOT / picture).stat().st_size < 300_000


# --------------------------------------------------------------------------------------------------
# The command line
# --------------------------------------------------------------------------------------------------


def test_diagnose_prints_the_page_and_exits_for_its_findings() -> None:
    done = process(*DEVICE, "-o", "html")
    assert done.code == 3
    assert "Root cause: RBD101" in Read(done.stdout).words


@pytest.mark.parametrize("verb", [("who-holds", "/dev/rbd0"), ("list",)], ids=" ".join)
def test_other_verbs_have_no_page(verb: tuple[str, ...]) -> None:
    done = process(*verb, "--from", str(ORPHAN), "-o", "html")
    assert (done.code, done.stdout) == (2, "")


def test_page_cannot_be_watched() -> None:
    done = process(*DEVICE, "-o", "html", "--watch")
    assert (done.code, done.stdout) == (2, "")
    assert "one page" in done.stderr
