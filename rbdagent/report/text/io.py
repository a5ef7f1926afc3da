"""The columns of ``list -o wide`` about the I/O of each device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.correlate.device_io import DeviceIo, IoRates, io_of

if TYPE_CHECKING:
    from collections.abc import Mapping as Dict

    from rbdagent.model import Mapping, NotObserved

    Rates = Dict[str, IoRates | NotObserved]

_UNSEEN: Final = "-"
"""In place of a number that was not observed: a narrow column, and never 0."""
_DONE: Final = ("READS", "READ-BYTES", "WRITES", "WRITTEN-BYTES", "IN-FLIGHT")
_RATES: Final = ("READS/S", "READ-BYTES/S", "WRITES/S", "WRITTEN-BYTES/S")
_LEAST_RATE: Final = 0.1
_STEP: Final = 1024
_NO_DECIMALS: Final = 100
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def io_head(rates: Rates | None) -> tuple[str, ...]:
    """Return the headings; those of the rates only if the answer is repeated."""
    return _DONE if rates is None else _DONE + _RATES


def io_cells(mapping: Mapping | None, rates: Rates | None) -> tuple[str, ...]:
    """Return the cells of one device.

    Args:
        mapping: the device; None if it is unknown.
        rates: the rates by device; None if the answer is not repeated.
    """
    done = None if mapping is None else io_of(mapping)
    if rates is None or mapping is None:
        return _done_cells(done) + (() if rates is None else _rate_cells(None))
    return _done_cells(done) + _rate_cells(rates.get(mapping.device))


def _done_cells(done: DeviceIo | NotObserved | None) -> tuple[str, ...]:
    if not isinstance(done, DeviceIo):
        return (_UNSEEN,) * len(_DONE)
    most = "" if done.is_since_mapping else "≤"
    return (
        f"{most}{done.reads}",
        f"{most}{_size(done.read_bytes)}",
        f"{most}{done.writes}",
        f"{most}{_size(done.written_bytes)}",
        str(done.in_flight),
    )


def _rate_cells(rates: IoRates | NotObserved | None) -> tuple[str, ...]:
    if not isinstance(rates, IoRates):
        return (_UNSEEN,) * len(_RATES)
    return (
        _rate(rates.reads),
        _size(rates.read_bytes),
        _rate(rates.writes),
        _size(rates.written_bytes),
    )


def _rate(number: float) -> str:
    """Return a rate with one decimal place; one that is not 0 never looks like 0."""
    return "<0.1" if 0 < number < _LEAST_RATE else f"{number:.1f}"


def _size(number: float) -> str:
    """Return bytes in the largest unit of which there is one, with two or three digits."""
    if 0 < number < 1:
        return "<1B"
    unit = 0
    while round(number, 1) >= _STEP and unit < len(_UNITS) - 1:
        number /= _STEP
        unit += 1
    text = f"{number:.0f}" if unit == 0 or number >= _NO_DECIMALS else f"{number:.1f}"
    return f"{text}{_UNITS[unit]}"
