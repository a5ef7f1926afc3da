"""The page of ``diagnose -o html`` in a real browser: on a phone, on a wall, and on paper."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Final

import pytest

from rbdagent.report.style import PALETTE
from tests.contract.pages import SCENES, contrast, drawn, rgb
from tests.lab.browser import Browser, Tab, browser, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Look = tuple[str, int, bool]
"""Scene, width of the screen, whether its owner likes it dark."""

LOOKS: Final[list[Look]] = list(itertools.product(SCENES, (360, 800, 1600), (False, True)))
A4: Final = 703
"""Pixels between the margins."""
NOISE: Final = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")

# What sticks out of the window, or of the box that it stands in.
_STICKS_OUT: Final = """
[...document.querySelectorAll('body, body *:not(svg *)')].filter(each => {
  const place = each.getBoundingClientRect();
  const wide = each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0;
  return place.left < -0.5 || place.right > document.documentElement.clientWidth + 0.5 ||
    (wide && getComputedStyle(each).display !== 'inline');
}).map(each => `${each.tagName}.${each.className}: ${each.textContent.slice(0, 40)}`)
"""

# Every text with its colour and the nearest ground below it, as [red, green, blue] each.
_COLOURS: Final = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const ground = each => {
    for (; each; each = each.parentElement) {
      const colour = parts(getComputedStyle(each).backgroundColor);
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

# Whether what is at the middle of each first broken link's parts is that part: nothing covers it.
_MARKS: Final = """
[...document.querySelectorAll('.link.first')].map(link => {
  link.scrollIntoView({block: 'center', behavior: 'instant'});
  return ['.icon', '.state', 'a'].map(name => {
    const part = link.querySelector(name), place = part.getBoundingClientRect();
    const there = document.elementFromPoint(
      place.left + place.width / 2, place.top + place.height / 2);
    return place.width > 10 && place.height > 10 && part.contains(there);
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
        (found / f"{name}.html").write_text(drawn(scene()))
    return found


@pytest.fixture(scope="module")
def tab(request: pytest.FixtureRequest, running: Browser, folder: Path) -> Iterator[Tab]:
    name, width, dark = request.param
    with opened(running, folder / f"{name}.html", width=width, dark=dark) as shown:
        yield shown


@pytest.fixture(scope="module")
def printed(request: pytest.FixtureRequest, running: Browser, folder: Path) -> Iterator[Tab]:
    """As it goes to paper from a screen that is dark."""
    with opened(running, folder / f"{request.param}.html", width=A4, dark=True) as shown:
        shown.like(dark=True, media="print")
        yield shown


def said(look: Look) -> str:
    name, width, dark = look
    return f"{name}-{width}-{'dark' if dark else 'light'}"


BROKEN: Final = {name for name, scene in SCENES.items() if ' first">' in drawn(scene())}
every_look = pytest.mark.parametrize("tab", LOOKS, ids=said, indirect=True)
broken_looks = pytest.mark.parametrize(
    "tab", [each for each in LOOKS if each[0] in BROKEN], ids=said, indirect=True
)
every_scene = pytest.mark.parametrize("printed", SCENES, indirect=True)


def faint(shown: Tab) -> list[str]:
    """Give the texts that do not stand out from their ground."""
    colours = {text: json.loads(pair) for pair, text in shown.value(_COLOURS).items()}
    assert colours
    return [text for text, (one, other) in colours.items() if contrast(one, other) < 4.5]


@every_look
def test_nothing_sticks_out_of_the_window_or_of_its_box(tab: Tab) -> None:
    assert tab.value(_STICKS_OUT) == []


@every_look
def test_every_text_stands_out_from_its_ground(tab: Tab) -> None:
    assert faint(tab) == []


@every_look
def test_nothing_is_loaded_and_nothing_goes_wrong(tab: Tab) -> None:
    tab.value("document.readyState")  # what was told before it has come
    assert [each for kind in NOISE for each in tab.happened(kind)] == []
    (own,) = tab.happened("Network.requestWillBeSent")
    assert own["request"]["url"].startswith("file:///")


@broken_looks
def test_the_first_broken_link_is_seen_with_shape_word_and_code(tab: Tab) -> None:
    marks = tab.value(_MARKS)
    assert marks
    assert marks == [[True, True, True]] * len(marks)


@every_look
def test_it_is_as_light_or_dark_as_its_reader_likes(
    request: pytest.FixtureRequest, tab: Tab
) -> None:
    _, _, dark = request.node.callspec.params["tab"]
    ground = tab.value("getComputedStyle(document.body).backgroundColor")
    assert [int(each) for each in re.findall(r"\d+", ground)] == rgb(PALETTE["page"][dark])


@every_scene
def test_paper_has_all_of_it_in_dark_on_white(printed: Tab) -> None:
    assert printed.value(_STICKS_OUT) == []
    assert faint(printed) == []


@every_scene
def test_it_prints(printed: Tab) -> None:
    pdf = printed.printed()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 1


def test_what_these_tests_look_for_would_be_found(running: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<p style='color:#777;background:#888'>faint</p><p style='width:2000px'>wide</p>"
        "<p>one</p><p>two</p><p>three</p><img src='missing.png'><script>nobody()</script>"
        "<div class='link first'><b class='icon'>x</b><b class='state'>x</b><a>x</a></div>"
        "<div style='position:fixed;inset:0'></div>"
    )
    with opened(running, bad, width=360) as shown:
        assert faint(shown) == ["faint"]
        assert any("wide" in each for each in shown.value(_STICKS_OUT))
        assert shown.value(_MARKS) == [[False, False, False]]
        assert len(shown.happened("Network.requestWillBeSent")) == 2
        assert shown.happened("Runtime.exceptionThrown")
