"""A terminal as SVG: a command that is typed, then its output in the colours of its escapes.

The picture contains text, and no script and no font. Its dark frame is readable on light and dark
pages. Only a reader who has not switched animations off sees the typing; for all others, and after
the animation, the picture shows the command and the output.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT: Final = "$ "
_MARGIN: Final = 20
_BAR: Final = 32
"""Height of the bar with the three buttons."""
_LINE: Final = 20
_ADVANCE: Final = 8.5
"""Width of a character of 14 px, rounded up: 0.602 em in DejaVu Sans Mono, Liberation Mono and
Menlo, less in Consolas."""
_START_MS: Final = 600
_KEY_MS: Final = 35
_WAIT_MS: Final = 500
"""Between the last key and the output."""

_ESCAPE: Final = re.compile(r"\x1b\[(\d*)m")
_CLASSES: Final = {"1": "bold", "31": "red", "32": "green", "33": "yellow"}
_PLAIN: Final = "0"

_SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" \
viewBox="0 0 {width:g} {height}" role="img">
<title>{title}</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; \
fill: #e6edf3; white-space: pre }}
.frame, .cover rect {{ fill: #0d1117 }}
.frame {{ stroke: #30363d }}
.cover .cursor {{ fill: #e6edf3 }}
.bold {{ font-weight: 700 }}
.red {{ fill: #ff7b72 }}
.green {{ fill: #3fb950 }}
.yellow {{ fill: #e3b341 }}
.cover {{ opacity: 0 }}
@media (prefers-reduced-motion: no-preference) {{
.cover {{ animation: typing {typing}ms steps({keys}) {start}ms backwards }}
.output {{ animation: output 200ms {answered}ms backwards }}
}}
@keyframes typing {{
from {{ opacity: 1; transform: translateX(0) }}
to {{ opacity: 1; transform: translateX({typed:g}px) }}
}}
@keyframes output {{ from {{ opacity: 0 }} }}
</style>
<rect class="frame" x="0.5" y="0.5" width="{inner_width:g}" height="{inner_height}" rx="8"/>
<circle cx="20" cy="18" r="5" fill="#ff5f57"/>
<circle cx="38" cy="18" r="5" fill="#febc2e"/>
<circle cx="56" cy="18" r="5" fill="#28c840"/>
{command}
<svg x="{covered:g}" y="{cover_y}" width="{cover_width:g}" height="{line}"><g class="cover">\
<rect width="100%" height="100%"/><rect class="cursor" width="8" height="100%"/></g></svg>
<g class="output">
{output}
</g>
</svg>
"""


def terminal(command: str, output: str) -> str:
    """Return the SVG of a command at a prompt, and of its output.

    Args:
        command: what is typed, without escapes.
        output: its lines, with the escapes that rbdagent prints for colours.

    Raises:
        KeyError: the output has another escape.
    """
    lines = output.removesuffix("\n").split("\n")
    columns = max(len(_ESCAPE.sub("", line)) for line in (PROMPT + command, *lines))
    width = 2 * _MARGIN + columns * _ADVANCE
    height = _BAR + _MARGIN + (len(lines) + 2) * _LINE
    typed = len(command) * _ADVANCE
    covered = _MARGIN + len(PROMPT) * _ADVANCE
    typing = len(command) * _KEY_MS
    texts = [_text(row, content) for row, content in enumerate(_contents(lines), start=2)]
    return _SVG.format(
        width=width,
        height=height,
        inner_width=width - 1,
        inner_height=height - 1,
        title=html.escape(command),
        keys=len(command),
        start=_START_MS,
        typing=typing,
        answered=_START_MS + typing + _WAIT_MS,
        typed=typed,
        covered=covered,
        cover_y=_BAR + _LINE // 4,
        cover_width=width - covered - _MARGIN // 2,
        line=_LINE,
        command=_text(0, html.escape(PROMPT + command)),
        output="\n".join(text for text in texts if text),
    )


def _text(row: int, content: str) -> str:
    """Return the element of a row; empty if the row is empty."""
    y = _BAR + (row + 1) * _LINE
    return f'<text x="{_MARGIN}" y="{y}" xml:space="preserve">{content}</text>' if content else ""


def _contents(lines: list[str]) -> Iterator[str]:
    """Yield the content of each line's element: a span for each text that has a colour."""
    classes: tuple[str, ...] = ()
    for line in lines:
        spans = []
        for place, part in enumerate(_ESCAPE.split(line)):
            if place % 2:  # the pattern's group: the number of an escape
                classes = () if part == _PLAIN else (*classes, _CLASSES[part])
            elif part:
                spans.append(_span(part, classes))
        yield "".join(spans)


def _span(text: str, classes: tuple[str, ...]) -> str:
    escaped = html.escape(text, quote=False)
    return f'<tspan class="{" ".join(classes)}">{escaped}</tspan>' if classes else escaped
