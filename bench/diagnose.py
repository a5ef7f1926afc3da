"""What `diagnose -A` costs in a large cluster, and that it grows with the cluster and no faster.

A synthetic look (tests/lab/many.py): 20,000 pods, 10,000 claims and PVs, 200 nodes, of which 500
volumes are broken in every way that the rules know; and a tenth, a third and three times of it.
Each size is judged in a process of its own, in turns. Processor time is of the process, so that
others on the machine count little; memory is the largest that was resident, less what Python and
rbdagent take before there is a cluster.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from rbdagent.diagnose.stuck import stuck_in
from tests.lab.many import Many, many

_VOLUMES: Final = 10_000
_BROKEN: Final = 500
_SHARES: Final = (0.1, 1 / 3, 1.0, 3.0)
_BOUND: Final = 12.0
"""Times as much for ten times the size."""
_MIB: Final = 1024
"""KiB."""


class _Cost(NamedTuple):
    """What one size took."""

    seconds: float
    cluster_mib: float
    """The look itself."""
    peak_mib: float
    """With all that is made of it."""


def main() -> int:
    """Measure, print the ratios, and exit 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inside", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:
        print(json.dumps(_measure(given.inside)))
        return 0
    rounds = [[_apart(share) for share in _SHARES] for _ in range(given.rounds)]
    return _tell(rounds)


def _apart(share: float) -> _Cost:
    command = [sys.executable, __file__, "--inside", str(share)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return _Cost(*json.loads(done.stdout))


def _measure(share: float) -> _Cost:
    # As the command line runs it.
    gc.disable()
    before = _peak_mib()
    made = many(volumes=round(_VOLUMES * share), broken=round(_BROKEN * share), seed=1)
    cluster = _peak_mib()
    started = time.process_time()
    found = stuck_in(made.snapshot)
    seconds = time.process_time() - started
    _check(made, {each.life.diagnosis.use.target.given for each in found.stuck})
    return _Cost(seconds, cluster - before, _peak_mib() - before)


def _check(made: Many, found: set[str]) -> None:
    """A measurement of a wrong answer is none."""
    assert found == made.broken.keys(), f"{found ^ made.broken.keys()}"


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB


# --------------------------------------------------------------------------------------------------
# Telling
# --------------------------------------------------------------------------------------------------


def _tell(rounds: list[list[_Cost]]) -> int:
    print(f"{'size':>6}{'pods':>8}{'claims':>8}{'broken':>8}{'cpu s':>8}{'a claim':>10}  memory")
    for number, share in enumerate(_SHARES):
        costs = [each[number] for each in rounds]
        claims = round(_VOLUMES * share)
        seconds = statistics.median(each.seconds for each in costs)
        cluster = statistics.median(each.cluster_mib for each in costs)
        peak = statistics.median(each.peak_mib for each in costs)
        print(
            f"{share:>6.2f}{2 * claims:>8}{claims:>8}{round(_BROKEN * share):>8}{seconds:>8.2f}"
            f"{1e6 * seconds / claims:>7.0f} us  {peak:.0f} MiB, the look itself {cluster:.0f}"
        )
    kept = [
        _tell_growth(rounds, small, large, what)
        for small, large in ((0, 2), (1, 2))
        for what in ("seconds", "peak_mib")
    ]
    return int(not all(kept))


def _tell_growth(rounds: list[list[_Cost]], small: int, large: int, what: str) -> bool:
    """Tell what so many times the size costs; the bound is of ten times."""
    times = _SHARES[large] / _SHARES[small]
    bound = _BOUND * times / 10
    ratios = sorted(
        float(getattr(each[large], what) / getattr(each[small], what)) for each in rounds
    )
    median = statistics.median(ratios)
    word = {"seconds": "processor time", "peak_mib": "memory"}[what]
    is_kept = median <= bound
    print(
        f"{'kept' if is_kept else 'MISSED'}: {times:.0f} times the size, {word}: {median:.1f} times"
        f" (from {ratios[0]:.1f} to {ratios[-1]:.1f}; bound {bound:.1f})"
    )
    return is_kept


if __name__ == "__main__":
    sys.exit(main())
