"""Measure the cost of `diagnose -A` in a large cluster: it must not grow faster than the cluster.

The snapshot is synthetic (tests/lab/many.py): 20,000 pods, 10,000 claims and PVs, 200 nodes; 500
volumes are broken in every way that the rules know. Other sizes are a tenth, three tenths and three
times of it. Each size is a file. A separate process reads it, diagnoses it and writes JSON; the
sizes take turns. Processor time is that of this process, so that others on the machine count
little. Memory is the peak of Python's allocator in a run that is not timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from rbdagent.cli.output import data_text
from rbdagent.lifecycle.cluster_report import report_cluster
from rbdagent.report.json.lifecycle import cluster_report
from rbdagent.report.snapshot import dump_snapshot, load_snapshot
from tests.lab.many import many

_VOLUMES: Final = 10_000
_BROKEN: Final = 500
_SHARES: Final = (0.1, 0.3, 1.0, 3.0)
_BOUND: Final = 12.0
"""Largest ratio of the cost for ten times the size."""
_MIB: Final = 1 << 20


class _Cost(NamedTuple):
    """Processor seconds for one size."""

    reading_s: float
    judging_s: float
    writing_s: float

    @property
    def seconds(self) -> float:
        """Sum of all three."""
        return self.reading_s + self.judging_s + self.writing_s


def main() -> int:
    """Measure, print the ratios, and return 1 if one misses the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--weigh", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make is not None:
        _make(given.make, given.directory)
        return 0
    if given.weigh is not None:
        print(_weigh(given.weigh, given.directory))
        return 0
    if given.measure is not None:
        print(json.dumps(_measure(given.measure, given.directory)))
        return 0
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        for share in _SHARES:
            _apart(directory, "--make", share)
        memory = [float(_apart(directory, "--weigh", share)) for share in _SHARES]
        rounds = [
            [_Cost(*json.loads(_apart(directory, "--measure", share))) for share in _SHARES]
            for _ in range(given.rounds)
        ]
    return _tell(rounds, memory)


def _apart(directory: Path, what: str, share: float) -> str:
    command = [sys.executable, __file__, f"--directory={directory}", what, str(share)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _make(share: float, directory: Path) -> None:
    made = many(volumes=round(_VOLUMES * share), broken=round(_BROKEN * share), seed=1)
    _file(share, directory).write_text(dump_snapshot(made.snapshot))
    _file(share, directory).with_suffix(".broken").write_text(json.dumps([*made.broken]))


def _file(share: float, directory: Path) -> Path:
    return directory / f"{share}.json"


def _weigh(share: float, directory: Path) -> float:
    gc.disable()
    tracemalloc.start()
    _answer(_file(share, directory))
    return tracemalloc.get_traced_memory()[1] / _MIB


def _measure(share: float, directory: Path) -> _Cost:
    # The command line also runs without the garbage collector.
    gc.disable()
    cost, found = _answer(_file(share, directory))
    broken = set(json.loads(_file(share, directory).with_suffix(".broken").read_text()))
    # The measurement is valid only if the result is correct.
    assert found == broken, f"{found ^ broken}"
    return cost


def _answer(path: Path) -> tuple[_Cost, set[str]]:
    """Do what `diagnose -A --from PATH -o json` does; return its cost and the reported targets."""
    started = time.process_time()
    snapshot = load_snapshot(path.read_text(), where=path.name)
    read = time.process_time()
    found = report_cluster(snapshot)
    judged = time.process_time()
    data_text(cluster_report(found, snapshot), "json")
    written = time.process_time()
    cost = _Cost(read - started, judged - read, written - judged)
    return cost, {affected.life.diagnosis.volume.target.argument for affected in found.stuck}


# --------------------------------------------------------------------------------------------------
# Output
# --------------------------------------------------------------------------------------------------


def _tell(rounds: list[list[_Cost]], memory: list[float]) -> int:
    best = [min(costs, key=lambda cost: cost.seconds) for costs in zip(*rounds, strict=True)]
    print("   pods  claims  broken   read  judge  write  cpu s, a claim, memory")
    for share, cost, mib in zip(_SHARES, best, memory, strict=True):
        claims = round(_VOLUMES * share)
        print(
            f"{2 * claims:>7}{claims:>8}{round(_BROKEN * share):>8}{cost.reading_s:>7.2f}"
            f"{cost.judging_s:>7.2f}{cost.writing_s:>7.2f}  {cost.seconds:.2f} s, "
            f"{1e6 * cost.seconds / claims:.0f} us, {mib:.0f} MiB"
        )
    ratios = [_tell_growth(rounds, best, memory, small, large) for small, large in ((0, 2), (1, 3))]
    print(f"bound: both ratios at most {_BOUND:.0f}")
    return int(max(ratios) > _BOUND)


def _tell_growth(
    rounds: list[list[_Cost]], best: list[_Cost], memory: list[float], small: int, large: int
) -> float:
    """Print the cost of ten times the size, by the best rounds; return the larger ratio."""
    pairs = sorted(costs[large].seconds / costs[small].seconds for costs in rounds)
    times, weight = best[large].seconds / best[small].seconds, memory[large] / memory[small]
    print(
        f"ten times the size, to {2 * _VOLUMES * _SHARES[large]:.0f} pods: {times:.1f} times the "
        f"processor time (pairs: {pairs[0]:.1f} to {pairs[-1]:.1f}), {weight:.1f} times the memory"
    )
    return max(times, weight)


if __name__ == "__main__":
    sys.exit(main())
