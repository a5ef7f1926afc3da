"""An output that is kept until it is known whether to print it, compressed."""

from __future__ import annotations

import codecs
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAST: Final = 1
"""The level of compression: a list of mappings shrinks to about a tenth at each level."""


class KeptOutput:
    """The texts of an output, compressed in memory: a pod may have no disk that it can write to."""

    def __init__(self) -> None:
        """Begin without any text."""
        self._compress = zlib.compressobj(_FAST)
        self._pieces: list[bytes] = []

    def add(self, text: str) -> None:
        """Append a text."""
        if piece := self._compress.compress(text.encode()):
            self._pieces.append(piece)

    def texts(self) -> Iterator[str]:
        """End the output, and yield it in pieces; call this once."""
        decompress, decoder = zlib.decompressobj(), codecs.getincrementaldecoder("utf-8")()
        for piece in (*self._pieces, self._compress.flush()):
            yield decoder.decode(decompress.decompress(piece))
