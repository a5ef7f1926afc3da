"""Run all parsers on random inputs: ``python -m tests.fuzz INPUTS SEED``."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.fuzz.engine import MS_PER_KIB, Tally, play
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROUND: Final = 2000
"""Number of inputs that a process runs at a time."""


def main(inputs: int, seed: str) -> int:
    """Run inputs on all targets in turn, print the result, and return an exit code."""
    started = time.monotonic()
    tallies = {target.name: Tally(target.name) for target in TARGETS}
    with multiprocessing.get_context("fork").Pool(initializer=os.nice, initargs=(10,)) as pool:
        for tally in pool.imap_unordered(_play, _rounds(inputs, seed)):
            tallies[tally.target].add(tally)
    return report(list(tallies.values()), seed, time.monotonic() - started)


def _rounds(inputs: int, seed: str) -> Iterator[tuple[int, int, str]]:
    """Yield target, number of inputs and seed of each round; every target has the same share."""
    for number in range(len(TARGETS)):
        share = inputs * (number + 1) // len(TARGETS) - inputs * number // len(TARGETS)
        for begin in range(0, share, _ROUND):
            yield number, min(_ROUND, share - begin), f"{seed} {begin}"


def _play(given: tuple[int, int, str]) -> Tally:
    number, inputs, seed = given
    return play(TARGETS[number], inputs=inputs, seed=seed)


def report(tallies: list[Tally], seed: str, seconds: float) -> int:
    """Print the result, each failing input as a Python literal; return an exit code."""
    width = max(len(tally.target) for tally in tallies)
    print(f"{'':{width}}  {'inputs':>8}  slowest, ms per KiB (at most {MS_PER_KIB:g})")
    for tally in tallies:
        print(f"{tally.target:{width}}  {tally.inputs:8}  {tally.ms_per_kib:.3f}")
    failures = [failure for tally in tallies for failure in tally.failures]
    for failure in failures:
        print(f"FAILED {failure}")
    total = sum(tally.inputs for tally in tallies)
    slowest = max(tallies, key=lambda tally: tally.ms_per_kib)
    print(
        f"{total} inputs, {len(tallies)} parsers, seed {seed}, {seconds:.0f} s: "
        f"{len(failures)} failed; slowest {slowest.ms_per_kib:.3f} ms per KiB ({slowest.target})"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
