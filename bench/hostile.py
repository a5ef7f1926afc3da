"""Measure what attempts of an unprivileged pod cost an observation of its node, in time and memory.

Each attempt of tests/lab/hostile.py runs on the real kernel of this machine. `snapshot` runs
without the attempt and beside it, in turn; each figure is the median of pairs. Only the ratio is
meaningful.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.lab.hostile import ATTEMPTS, VICTIM, Node, given_device

if TYPE_CHECKING:
    from tests.lab.hostile import Attempt

_RATIO: Final = 2.0
_MIB: Final = 128.0


def main() -> int:
    """Measure, print, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        node = Node(Path(directory))
        try:
            node.run("snapshot")
            kept = [_measured(node, attempt, pairs) for attempt in ATTEMPTS]
        finally:
            node.stop()
    return int(not all(kept))


def _measured(node: Node, attempt: Attempt, pairs: int) -> bool:
    ratios, peaks = [], []
    for _ in range(pairs):
        quiet = node.run("snapshot")
        with node.trying(given_device(attempt, node.numbers[VICTIM])):
            beside = node.run("snapshot")
        ratios.append(beside.took_s / quiet.took_s)
        peaks.append(beside.peak_mib)
    median, peak = statistics.median(ratios), max(peaks)
    print(
        f"beside {attempt.name}: {median:.2f} times as long"
        f" (from {min(ratios):.2f} to {max(ratios):.2f}; bound {_RATIO:g}),"
        f" {peak:.0f} MiB (bound {_MIB:g})",
        flush=True,
    )
    return median <= _RATIO and peak <= _MIB


if __name__ == "__main__":
    sys.exit(main())
