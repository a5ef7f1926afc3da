"""Take the pictures in docs/: a terminal, and the pages of a volume and a cluster in a browser."""

from __future__ import annotations

import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rbdagent.report.snapshot import load_snapshot
from tests.documents.picture import write as write_terminal
from tests.lab.browser import browser, opened
from tests.lab.install import CHECKOUT
from tests.lab.many import many
from tests.support.sample_pages import cluster_page_of, page_of

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE: Final = CHECKOUT / "examples" / "multi-attach.json"
_WIDTH: Final = 1280
_AS_FAR_AS: Final = {
    "diagnose": "document.querySelector('.finding').getBoundingClientRect().bottom + 8",
    "diagnose-all": "document.querySelectorAll('.volumes')[2].getBoundingClientRect().bottom + 8",
}
"""The end of each picture: the first finding of a volume, the third node of a cluster."""


def main() -> int:
    """Take the picture of the terminal, and both pictures of each page."""
    write_terminal()
    seen = load_snapshot(EXAMPLE.read_text(), where=EXAMPLE.name)
    pages = {
        "diagnose": page_of(seen),
        "diagnose-all": cluster_page_of(many(volumes=60, broken=24, seed=3).snapshot),
    }
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch)) as running:
        for name, text in pages.items():
            shown = Path(scratch) / f"{name}.html"
            shown.write_text(text)
            for dark in (False, True):
                picture = CHECKOUT / "docs" / f"{name}-{'dark' if dark else 'light'}.png"
                with opened(running, shown, width=_WIDTH, dark=dark) as tab:
                    height = round(tab.value(_AS_FAR_AS[name]))
                    picture.write_bytes(packed(tab.picture(height=height)))
                print(f"{picture.relative_to(CHECKOUT)}: {picture.stat().st_size // 1024} KiB")
    return 0


# --------------------------------------------------------------------------------------------------
# PNG (https://www.w3.org/TR/png-3/): a browser packs for speed
# --------------------------------------------------------------------------------------------------


def packed(png: bytes) -> bytes:
    """Return the same picture a quarter smaller: text on a plain ground packs best unfiltered."""
    chunks = list(_chunks(png))
    head = chunks[0][1]
    width, _, _, colours = struct.unpack(">IIBB", head[:10])
    pixel = {2: 3, 6: 4}[colours]
    data = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
    rows = b"".join(b"\0" + row for row in _rows(data, width * pixel, pixel))
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return png[:8] + b"".join(_chunk(name, data) for name, data in parts)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 8
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += 12 + length


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _rows(data: bytes, length: int, pixel: int) -> Iterator[bytes]:
    """Remove the filter of each row; the row's first byte names it."""
    above = bytes(length)
    for start in range(0, len(data), length + 1):
        row = bytearray(data[start + 1 : start + 1 + length])
        filtered = data[start]
        for place in range(length) if filtered else ():
            left, corner = (row[place - pixel], above[place - pixel]) if place >= pixel else (0, 0)
            row[place] = (row[place] + _foretold(filtered, left, above[place], corner)) & 0xFF
        above = bytes(row)
        yield above


def _foretold(filtered: int, left: int, up: int, corner: int) -> int:
    if filtered == 4:
        near = left + up - corner
        return min((left, up, corner), key=lambda value: abs(near - value))
    return (0, left, up, (left + up) // 2)[filtered]


if __name__ == "__main__":
    sys.exit(main())
