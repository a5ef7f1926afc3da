"""Errors of the lab; the message shows which part failed and where its log is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_LINES = 25


class LabError(Exception):
    """A part of the lab failed; ``str()`` names the part, and shows its log."""

    def __init__(self, message: str, *, log: Path | None = None) -> None:
        text = message if log is None else f"{message}\n{log_tail(log)}"
        super().__init__(text)
        self.log = log


def log_tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last ``lines`` lines of ``log`` below a line that names the file."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except OSError as error:
        return f"--- {log}: {error.strerror}"
    tail = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
    return f"--- the end of {log}:\n{tail or '    (empty)'}"
