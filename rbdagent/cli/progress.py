"""The line on a terminal that shows what an answer still waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
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


class _Line:
    """A line on stderr that the kernel's interval timer draws.

    The timer needs no thread, and a forked process does not inherit it (setitimer(2)). Python
    continues an interrupted wait (PEP 475).
    """

    def __init__(self, text: Callable[[float], str], *, once: bool) -> None:
        """Prepare a line that is not drawn yet.

        Args:
            text: returns the line from the seconds since the beginning; "" draws nothing.
            once: print one plain line, which stays, for a terminal that cannot erase.
        """
        self._text = text
        self._once = once
        self._begun = time.monotonic()
        self._is_drawn = False

    def start(self) -> None:
        """Draw the line from a delay on."""
        signal.setitimer(signal.ITIMER_REAL, DELAY_S, EVERY_S)

    def draw(self, *_: object) -> None:
        """Draw the line; the arguments are those of a signal handler."""
        line = self._text(time.monotonic() - self._begun)
        if not line or (self._once and self._is_drawn):
            return
        self._is_drawn = True
        # A terminal that is gone must not end the answer.
        with contextlib.suppress(OSError):
            _write(f"{line}\n".encode() if self._once else _ERASED + _fitted(line).encode())

    def end(self) -> None:
        """Stop the timer, and erase the line."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._is_drawn and not self._once:
            self._is_drawn = False
            with contextlib.suppress(OSError):
                _write(_ERASED)


@contextlib.contextmanager
def _line(text: Callable[[float], str], *, once: bool) -> Iterator[_Line]:
    """Yield a line that the end of the context erases."""
    line = _Line(text, once=once)
    before = signal.signal(signal.SIGALRM, line.draw)
    try:
        yield line
    finally:
        line.end()
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def shown_progress(total_s: float, *, once: bool) -> Iterator[Callable[[Awaited], None]]:
    """Show on stderr what the context waits for, from a delay after the list of it is known.

    Args:
        total_s: the overall deadline.
        once: print one plain line, which stays, for a terminal that cannot erase.
    """
    awaited: Awaited = {}

    def show(sources: Awaited) -> None:
        nonlocal awaited
        awaited = sources
        line.start()

    # The thread of a source may change the list now: the copy is atomic.
    with _line(
        lambda elapsed_s: progress_line(dict(awaited), elapsed_s, total_s), once=once
    ) as line:
        yield show


class Counter:
    """The number of nodes that were read so far, and the line that shows it."""

    def __init__(self) -> None:
        """Begin at zero, without a line."""
        self.nodes = 0
        self.line: _Line | None = None

    def output_begins(self) -> None:
        """End the line before a part of the output is printed, unless stdout is a file.

        A terminal shows the output itself, or the reader of a pipe, such as a pager, writes to it.
        """
        if self.line is not None and not stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
            self.line.end()


@contextlib.contextmanager
def shown_count(*, once: bool) -> Iterator[Counter]:
    """Show on stderr how many nodes the context has read.

    Args:
        once: as in :func:`shown_progress`.
    """
    counter = Counter()
    with _line(lambda elapsed_s: count_line(counter.nodes, elapsed_s), once=once) as line:
        counter.line = line
        line.start()
        yield counter


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


def count_line(nodes: int, elapsed_s: float) -> str:
    """Return how many nodes were read, and for how long."""
    read = "1 node" if nodes == 1 else f"{nodes} nodes"
    return f"waiting for the Kubernetes API, {elapsed_s:.0f} s: {read} read"


def _fitted(line: str) -> str:
    """Return a line that does not wrap: a wrapped line could not be erased."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return line[: columns - 1] if columns else line


def _write(text: bytes) -> None:
    """Write to stderr without its buffer, which the interrupted code may be using."""
    os.write(sys.stderr.fileno(), text)
