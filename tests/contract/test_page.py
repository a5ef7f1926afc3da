"""The page of ``diagnose -o html``, as markup; tests/integration opens it in a browser."""

from __future__ import annotations

import itertools
import re
from html import unescape
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rbdagent.addresses import RUNBOOKS
from rbdagent.catalog import CATALOG
from rbdagent.commands import lines_of, sentence_of
from rbdagent.model import CsiSource, Severity, StepState
from rbdagent.parse.shown import shown
from rbdagent.report.html.assets import ICONS, STYLE_SHEET
from rbdagent.report.html.chain import chain_of
from rbdagent.report.html.markup import Html, el, visible
from tests.support.cli_runner import ORPHAN, ROOT, process
from tests.support.recordings import recorded_snapshot
from tests.support.rows import each_row
from tests.support.sample_pages import (
    PALETTE,
    PALETTES,
    SCENES,
    ParsedPage,
    contrast,
    in_use,
    lifecycle_of,
    named,
    page_of,
    rgb,
    unknown_watcher,
)
from tests.support.snapshots import (
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
_STATES: Final = {str(state).replace(" ", "-") for state in StepState}


@pytest.fixture(scope="module", params=[*SCENES, *(recording[0] for recording in RECORDED)])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    if request.param in SCENES:
        return SCENES[request.param]()
    name, claim, node = next(recording for recording in RECORDED if recording[0] == request.param)
    return recorded_snapshot(name, claim, node_name=node, root=tmp_path_factory.mktemp("node"))


def links_of(scene: Snapshot) -> list[Link]:
    chain = chain_of(lifecycle_of(scene), scene)
    linked_boxes = itertools.chain(chain.trunk, *(lane.boxes for lane in chain.lanes))
    return [chain.fork, *(linked_box.link for linked_box in linked_boxes if linked_box.link)]


# --------------------------------------------------------------------------------------------------
# Content
# --------------------------------------------------------------------------------------------------


def test_page_shows_all_fields_of_a_finding(scene: Snapshot) -> None:
    text = ParsedPage(page_of(scene)).text
    for finding in lifecycle_of(scene).findings:
        fields = (
            finding.code,
            str(finding.subject),
            finding.message,
            sentence_of(finding.remedy),
            str(finding.recovery or ""),
            *finding.evidence,
            *lines_of(finding.commands),
        )
        assert [field for field in fields if field not in text] == []


def test_every_command_has_a_separate_block_for_copying(scene: Snapshot) -> None:
    page = page_of(scene)
    for finding in lifecycle_of(scene).findings:
        for command in lines_of(finding.commands):
            assert el("pre", el("code", command)) in page


def test_page_shows_the_state_of_every_step(scene: Snapshot) -> None:
    life = lifecycle_of(scene)
    text = ParsedPage(page_of(scene)).text
    for stage in (
        *life.attach_path,
        *(stage for path in life.detach_paths for stage in path.stages),
    ):
        state = stage.state.upper() if stage.state is StepState.FAILED else stage.state
        assert f"{stage.step}{state}" in text
        assert stage.detail in text


def test_root_cause_is_the_heading(scene: Snapshot) -> None:
    first = lifecycle_of(scene).first_failed
    (heading,) = re.findall(r"<h1>(.*?)</h1>", page_of(scene), re.DOTALL)
    if first is None:
        assert "waits" not in heading
    else:
        assert f"Root cause: {first.code}" in heading


def test_first_failed_link_is_marked(scene: Snapshot) -> None:
    """Only a root cause whose finding has a step is on a link."""
    first = lifecycle_of(scene).first_failed
    marked = [link for link in links_of(scene) if link.is_first]
    has_step = first is not None and CATALOG[first.code].step is not None
    assert bool(marked) is has_step
    for link in marked:
        assert link.state is StepState.FAILED
    page = page_of(scene)
    assert page.count(' first">') == len(marked)
    assert page.count(' first"><svg class="icon"') == len(marked)


def test_every_finding_of_a_step_is_on_a_link(scene: Snapshot) -> None:
    link_codes = {code for link in links_of(scene) for code in link.codes}
    step_codes = {
        finding.code
        for finding in lifecycle_of(scene).findings
        if finding.severity is not Severity.INFO and CATALOG[finding.code].step is not None
    }
    assert step_codes <= link_codes


def test_failed_link_has_a_word_and_a_distinct_icon() -> None:
    page = page_of(SCENES["true-orphan"]())
    (link,) = re.findall(r'<div class="link failed first">(.*?)</div>', page)
    assert ICONS["failed"] in link
    assert "FAILED" in link
    assert '<a href="#RBD101">RBD101</a>' in link
    assert len(set(ICONS.values())) == len(ICONS)
    assert ICONS.keys() >= _STATES


@pytest.mark.parametrize("name", ICONS)
def test_icon_file_is_a_complete_drawing(name: str) -> None:
    file = ROOT / "rbdagent" / "report" / "html" / "icons" / f"{name}.svg"
    drawing = ParsedPage(file.read_text())
    assert drawing.values("viewbox") == ["0 0 24 24"]
    assert drawing.tags == ["svg", *ParsedPage(el("svg", ICONS[name])).tags[1:]]


def test_finding_of_no_single_holder_is_on_the_fork() -> None:
    scene = SCENES["two-writers"]()
    chain = chain_of(lifecycle_of(scene), scene)
    assert (chain.fork.codes, chain.fork.is_first) == (("RBD106",), True)


def test_healthy_holder_has_no_failed_link() -> None:
    scene = SCENES["two-writers"]()
    lanes = {lane.name: lane for lane in chain_of(lifecycle_of(scene), scene).lanes}
    failed = {
        name: [box.link.step for box in lane.boxes if box.link and box.link.codes]
        for name, lane in lanes.items()
    }
    assert failed == {"worker-1": ["unstage"], "worker-2": [], "worker-3": ["attach"]}


def test_chain_leads_from_the_pod_to_the_processes() -> None:
    scene = in_use()
    chain = chain_of(lifecycle_of(scene), scene)
    (lane,) = chain.lanes
    assert [linked_box.box.kind for linked_box in chain.trunk] == ["pod", "claim", "pv", "image"]
    kinds = ["watcher", "node", "device", "mounts", "processes"]
    assert [linked_box.box.kind for linked_box in lane.boxes] == kinds
    assert lane.boxes[-1].box.names == (
        'process 6790 ("/bin/app") of pod default/web-0 has an open file on it (/data/x)',
    )


def test_unobserved_objects_are_marked_as_not_observed() -> None:
    page = page_of(SCENES["without-api"]())
    for kind in ("pod", "claim", "pv"):
        (box,) = re.findall(rf'<div class="box {kind} unseen">(.*?)</div>', page)
        assert "not observed" in box
        assert "connection refused" in box
    assert ParsedPage(page).text.count("kubernetes not observed (failed): connection refused") == 1


def test_unobserved_mounts_and_processes_are_not_shown_as_none() -> None:
    page = page_of(SCENES["mounts-not-observed"]())
    for kind in ("mounts", "processes"):
        (box,) = re.findall(rf'<div class="box {kind} unseen">(.*?)</div>', page)
        assert "permission denied" in box


def test_unobserved_holders_of_a_device_are_not_shown_as_none() -> None:
    page = page_of(world(mapped={"holders": UNSEEN}))
    (box,) = re.findall(r'<div class="box processes unseen">(.*?)</div>', page)
    assert "permission denied" in box


def test_unobserved_attachments_are_not_shown_as_none() -> None:
    parts = {"attachments": UNSEEN, "pods": (waiting_pod("web-1", "worker-2"),)}
    page = page_of(unmapped(in_kube=parts))
    (box,) = re.findall(r'<div class="box node there">(.*?)</div>', page)
    assert "attachment not observed" in box


def test_unknown_watcher_is_not_shown_as_the_node_of_a_pod() -> None:
    scene = world(of_image={"watchers": (watcher(), unknown_watcher())})
    (*_, lane) = chain_of(lifecycle_of(scene), scene).lanes
    assert lane.name == "an unknown machine"
    assert [box.link.state for box in lane.boxes if box.link] == [None, None, None]


def test_page_contains_no_secret_of_a_volume() -> None:
    attributes = (("imageName", "x"), ("userKey", "AQBsecret=="))
    source = CsiSource(driver=DRIVER, volume_handle=HANDLE, attributes=attributes)
    page = page_of(world(in_kube={"persistent_volumes": (volume(source=source),)}))
    assert "AQBsecret" not in page


# --------------------------------------------------------------------------------------------------
# Markup
# --------------------------------------------------------------------------------------------------


def test_page_is_well_formed_and_ascii(scene: Snapshot) -> None:
    page = page_of(scene)
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert page.isascii()
    ParsedPage(page)


def test_every_referenced_id_exists_once(scene: Snapshot) -> None:
    page = ParsedPage(page_of(scene))
    names = page.values("id")
    assert len(names) == len(set(names))
    assert set(page.values("aria-labelledby")) <= set(names)
    within = {href.removeprefix("#") for href in page.values("href") if href.startswith("#")}
    assert within <= set(names)


def test_page_loads_nothing_and_runs_nothing(scene: Snapshot) -> None:
    page = ParsedPage(page_of(scene))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not {"src", "srcset", "style", "background", "action"} & {
        name for _, name, _ in page.attributes
    }
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'" in "".join(page.values("content"))
    elsewhere = [href for href in page.values("href") if not href.startswith("#")]
    assert [href for href in elsewhere if not href.startswith(RUNBOOKS)] == []


def test_style_sheet_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|@font-face|http|</|javascript", STYLE_SHEET)


def test_page_has_title_landmarks_and_headings_in_order(scene: Snapshot) -> None:
    page = ParsedPage(page_of(scene))
    assert [page.tags.count(tag) for tag in ("title", "header", "main", "footer", "h1")] == [1] * 5
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


_KNOWN: Final = {tag for scene in SCENES.values() for tag in ParsedPage(page_of(scene())).tags}


@settings(max_examples=150)
@given(NAMES)
def test_names_are_readable_and_never_markup(name: str) -> None:
    page = ParsedPage(page_of(named(name)))
    assert set(page.tags) <= _KNOWN
    assert not [
        attribute
        for _, attribute, _ in page.attributes
        if attribute.startswith("on") or attribute == "src"
    ]
    assert page.text.count(unescape(visible(name))) > 10


@settings(max_examples=300)
@given(TEXTS)
def test_only_invisible_characters_are_escaped(text: str) -> None:
    page = ParsedPage(el("p", text, title=text))
    assert page.text == shown(text)
    assert page.text.isprintable()
    assert page.tags == ["p"]
    assert page.attributes == [("p", "title", shown(text))]


def test_part_of_markup_is_plain_text() -> None:
    assert el("p", el("b", "x")[:3]) == "<p>&lt;b&gt;</p>"
    assert el("p", "".join([Html("<b>"), Html("</b>")])) == "<p>&lt;b&gt;&lt;/b&gt;</p>"


# --------------------------------------------------------------------------------------------------
# Colours
# --------------------------------------------------------------------------------------------------


_TEXT: Final = ("text", "muted", "link", "good", "bad", "wait", "unseen")
_GROUNDS: Final = ("page", "card", "code")
_PAIRS: Final = (
    *itertools.product(_TEXT, _GROUNDS),
    *((colour, f"{colour}-card") for colour in ("good", "bad", "wait")),
    *itertools.product(("text", "link"), ("good-card", "bad-card", "wait-card")),
)


@each_row("scheme", [0, 1], ids=["light", "dark"])
@each_row(("text", "ground"), _PAIRS)
def test_text_has_enough_contrast(text: str, ground: str, scheme: int) -> None:
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
def test_picture_in_the_readme_exists_and_is_small(scheme: str) -> None:
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
    assert "Root cause: RBD101" in ParsedPage(done.stdout).text


@pytest.mark.parametrize("verb", [("who-holds", "/dev/rbd0"), ("list",)], ids=" ".join)
def test_other_verbs_have_no_page(verb: tuple[str, ...]) -> None:
    done = process(*verb, "--from", str(ORPHAN), "-o", "html")
    assert (done.code, done.stdout) == (2, "")


def test_page_cannot_be_watched() -> None:
    done = process(*DEVICE, "-o", "html", "--watch")
    assert (done.code, done.stdout) == (2, "")
    assert "one page" in done.stderr
