"""The line on a terminal that shows which sources an answer still waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rbdagent.collect.parallel import Awaited

DELAY_S = 2.0
"""An answer that takes longer shows what it waits for."""
EVERY_S = 1.0
"""The line is rewritten this often."""
_ERASED = b"\r\033[K"


@contextlib.contextmanager
def shown_progress(total_s: float, *, once: bool) -> Iterator[Callable[[Awaited], None]]:
    """Show on stderr what the context waits for, from a delay after the list of it is known.

    The kernel's interval timer draws the line: it needs no thread, and a forked process does not
    inherit it (setitimer(2)). Python continues an interrupted wait (PEP 475).

    Args:
        total_s: the overall deadline.
        once: print one plain line, which stays, for a terminal that cannot erase.
    """
    begun = time.monotonic()
    awaited: Awaited = {}
    is_drawn = False

    def draw(*_: object) -> None:
        nonlocal is_drawn
        # The thread of a source may change the list now: the copy is atomic.
        line = progress_line(dict(awaited), time.monotonic() - begun, total_s)
        if not line or (once and is_drawn):
            return
        is_drawn = True
        # A terminal that is gone must not end the answer.
        with contextlib.suppress(OSError):
            _write(f"{line}\n".encode() if once else _ERASED + _fitted(line).encode())

    def show(sources: Awaited) -> None:
        nonlocal awaited
        awaited = sources
        signal.setitimer(signal.ITIMER_REAL, DELAY_S, EVERY_S)

    before = signal.signal(signal.SIGALRM, draw)
    try:
        yield show
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if is_drawn and not once:
            with contextlib.suppress(OSError):
                _write(_ERASED)


def progress_line(awaited: Awaited, elapsed_s: float, total_s: float) -> str:
    """Return what is awaited, for how long, and the time limit; "" if nothing is awaited.

    A source that needs several calls may take longer than one of them: up to the overall deadline.
    """
    if not awaited:
        return ""
    limit_s = max(awaited.values())
    if elapsed_s > limit_s:
        limit_s = total_s
    return shown(f"waiting for {' and '.join(awaited)}, {elapsed_s:.0f} s of {limit_s:g} s")


def _fitted(line: str) -> str:
    """Return a line that does not wrap: a wrapped line could not be erased."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return line[: columns - 1] if columns else line


def _write(text: bytes) -> None:
    """Write to stderr without its buffer, which the interrupted code may be using."""
    os.write(sys.stderr.fileno(), text)
