"""What processes take of the processor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Give the processor seconds of a process, those of its children that ended included."""
    # The command's name may have spaces; utime, stime, cutime and cstime are fields 14 to 17.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / _TICKS
