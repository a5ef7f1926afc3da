"""The pages of ``diagnose -o html`` in a real browser: small and large screens, and print."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.browser import Browser, Tab, browser, opened
from tests.lab.many import many
from tests.support.sample_pages import (
    PALETTES,
    SCENES,
    cluster_page_of,
    contrast,
    page_of,
    rgb,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

View = tuple[str, int, bool]
"""Scene, width of the screen, whether the user prefers dark mode."""

CLUSTERS: Final = ("cluster", "cluster-unfolded")
"""The page of all that is stuck, and the same page with every volume unfolded."""
VIEWS: Final[list[View]] = list(
    itertools.product((*SCENES, *CLUSTERS), (360, 800, 1600), (False, True))
)
A4: Final = 703
"""Width between the margins in pixels."""
NOISE: Final = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")

# Elements that overflow the window or their box.
_OVERFLOWS: Final = """
[...document.querySelectorAll('body, body *:not(svg *)')].filter(element => {
  const place = element.getBoundingClientRect();
  const wide = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0;
  return place.left < -0.5 || place.right > document.documentElement.clientWidth + 0.5 ||
    (wide && getComputedStyle(element).display !== 'inline');
}).map(element =>
  `${element.tagName}.${element.className}: ${element.textContent.slice(0, 40)}`)
"""

# Every text with its colour and the nearest background behind it, each as [red, green, blue].
_COLOURS: Final = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = parts(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = {};
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), parent = walker.currentNode.parentElement;
    if (!text) continue;
    const pair = [parts(getComputedStyle(parent).color).slice(0, 3), ground(parent)];
    found[JSON.stringify(pair)] = text.slice(0, 40);
  }
  return found;
})()
"""

# Whether each part of the first failed link is visible: no other element covers its middle.
_MARKS: Final = """
[...document.querySelectorAll('.link.first')].map(link => {
  link.scrollIntoView({block: 'center', behavior: 'instant'});
  return ['.icon', '.state', 'a'].map(name => {
    const part = link.querySelector(name), place = part.getBoundingClientRect();
    const top = document.elementFromPoint(
      place.left + place.width / 2, place.top + place.height / 2);
    return place.width > 10 && place.height > 10 && part.contains(top);
  });
})
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pages")
    for name, scene in SCENES.items():
        (found / f"{name}.html").write_text(page_of(scene()))
    page = cluster_page_of(many(volumes=60, broken=24, seed=3).snapshot)
    unfolded = page.replace("<details ", "<details open ")
    for name, text in zip(CLUSTERS, (page, unfolded), strict=True):
        (found / f"{name}.html").write_text(text)
    return found


@pytest.fixture(scope="module")
def tab(request: pytest.FixtureRequest, running: Browser, folder: Path) -> Iterator[Tab]:
    name, width, dark = request.param
    with opened(running, folder / f"{name}.html", width=width, dark=dark) as shown:
        yield shown


@pytest.fixture(scope="module")
def printed(request: pytest.FixtureRequest, running: Browser, folder: Path) -> Iterator[Tab]:
    """Yield the page in print layout, printed from a dark screen."""
    with opened(running, folder / f"{request.param}.html", width=A4, dark=True) as shown:
        shown.like(dark=True, media="print")
        yield shown


def name_of(view: View) -> str:
    name, width, dark = view
    return f"{name}-{width}-{'dark' if dark else 'light'}"


FAILED: Final = {name for name, scene in SCENES.items() if ' first">' in page_of(scene())}
every_view = pytest.mark.parametrize("tab", VIEWS, ids=name_of, indirect=True)
failed_views = pytest.mark.parametrize(
    "tab", [view for view in VIEWS if view[0] in FAILED], ids=name_of, indirect=True
)
every_scene = pytest.mark.parametrize("printed", [*SCENES, *CLUSTERS], indirect=True)


def texts_without_contrast(shown: Tab) -> list[str]:
    """Return the texts with too little contrast to their background."""
    colours = {text: json.loads(pair) for pair, text in shown.value(_COLOURS).items()}
    assert colours
    return [text for text, (colour, ground) in colours.items() if contrast(colour, ground) < 4.5]


@every_view
def test_nothing_overflows_the_window_or_its_box(tab: Tab) -> None:
    assert tab.value(_OVERFLOWS) == []


@every_view
def test_every_text_has_enough_contrast(tab: Tab) -> None:
    assert texts_without_contrast(tab) == []


@every_view
def test_nothing_is_loaded_and_no_error_is_logged(tab: Tab) -> None:
    tab.value("document.readyState")  # all earlier events have arrived
    assert [event for kind in NOISE for event in tab.happened(kind)] == []
    (own,) = tab.happened("Network.requestWillBeSent")
    assert own["request"]["url"].startswith("file:///")


@failed_views
def test_first_failed_link_shows_icon_state_and_code(tab: Tab) -> None:
    marks = tab.value(_MARKS)
    assert marks
    assert marks == [[True, True, True]] * len(marks)


@every_view
def test_page_follows_the_preferred_colour_scheme(request: pytest.FixtureRequest, tab: Tab) -> None:
    _, _, dark = request.node.callspec.params["tab"]
    ground = tab.value("getComputedStyle(document.body).backgroundColor")
    assert [int(match) for match in re.findall(r"\d+", ground)] == rgb(PALETTES[dark]["page"])


@every_scene
def test_print_shows_everything_dark_on_white(printed: Tab) -> None:
    assert printed.value(_OVERFLOWS) == []
    assert texts_without_contrast(printed) == []


@every_scene
def test_page_prints_to_pdf(printed: Tab) -> None:
    pdf = printed.printed()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 1


@pytest.mark.parametrize("printed", CLUSTERS, indirect=True)
def test_print_unfolds_every_volume(printed: Tab) -> None:
    heights = "[...document.querySelectorAll('.content')].map(part => part.offsetHeight)"
    assert min(printed.value(heights)) > 100


def test_checks_find_faults_in_a_bad_page(running: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<p style='color:#777;background:#888'>faint</p><p style='width:2000px'>wide</p>"
        "<p>one</p><p>two</p><p>three</p><img src='missing.png'><script>missing()</script>"
        "<div class='link first'><b class='icon'>x</b><b class='state'>x</b><a>x</a></div>"
        "<div style='position:fixed;inset:0'></div>"
    )
    with opened(running, bad, width=360) as shown:
        assert texts_without_contrast(shown) == ["faint"]
        assert any("wide" in place for place in shown.value(_OVERFLOWS))
        assert shown.value(_MARKS) == [[False, False, False]]
        assert len(shown.happened("Network.requestWillBeSent")) == 2
        assert shown.happened("Runtime.exceptionThrown")
