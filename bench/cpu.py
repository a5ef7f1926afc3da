"""Read the processor time of processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the processor seconds of a process and of its ended children."""
    # The name of the command may contain spaces; utime, stime, cutime, cstime are fields 14 to 17.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS
