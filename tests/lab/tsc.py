"""The frequency of this machine's time stamp counter, which is also that of an emulated one.

An emulated processor reads the machine's own counter (QEMU ``cpu_get_host_ticks``). At its boot the
kernel measures the counter against an emulated timer, and takes that measure even if a second timer
disagrees (``PIT calibration deviates from HPET``). Where the machine has other work, the emulated
timer is late: 5 of 24 boots beside six busy programs measured 210 to 999 MHz instead of 2,596, and
their clock ran 3 to 12 times too fast. So the lab measures it, and passes it to the kernel
(``tsc_early_khz``, Linux 5.1).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# rdtsc; shl rdx, 32; or rax, rdx; ret
_READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
_MEASURE_S = 0.1
_AT_ONCE_NS = 50_000


@functools.cache
def tsc_khz() -> int:
    """Return the ticks of the counter per millisecond, measured once."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(_READ)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
    first, began = _at_once(read)
    time.sleep(_MEASURE_S)
    last, ended = _at_once(read)
    return round((last - first) * 1_000_000 / (ended - began))


def _at_once(read: Callable[[], int]) -> tuple[int, int]:
    """Return the counter and the time in nanoseconds, read without another program in between."""
    while True:
        before, ticks, after = time.monotonic_ns(), read(), time.monotonic_ns()
        if after - before < _AT_ONCE_NS:
            return ticks, after
