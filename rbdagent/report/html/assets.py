"""The style sheet and the icons of the page: data files of this package.

This module reads them once, when it is imported, as Python reads the modules beside them. Only
``diagnose -o html`` imports it, and no function of the page does I/O. So it is the one exception
to the import contract "the pure core does no I/O".
"""

from __future__ import annotations

from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rbdagent.report.html.markup import Html

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def _read(file: Traversable) -> Html:
    """Read a file of ASCII: HTML does not decode character references in a style sheet."""
    return Html(file.read_text(encoding="ascii"))


def _shapes(svg: str) -> Html:
    """Return the content of an SVG file, without the first and the last line: its root element."""
    return Html("".join(svg.splitlines()[1:-1]))


_PACKAGE: Final = files("rbdagent.report.html")

STYLE_SHEET: Final = _read(_PACKAGE / "page.css")
"""It begins with the palette: the colours of the light scheme, and those of the dark scheme.

Text of every colour appears on ``page``, ``card`` and ``code``. Text of ``bad``, ``wait`` and
``good`` also appears on its own card. A test checks for a contrast of 4.5:1.
"""

ICONS: Final = MappingProxyType(
    {
        file.name.removesuffix(".svg"): _shapes(_read(file))
        for file in (_PACKAGE / "icons").iterdir()
    }
)
"""The shapes of each icon, 24 by 24, by the name of the state: states differ without colour.

A viewer shows each file: its root element sets a colour that the style sheet sets for the page.
"""
