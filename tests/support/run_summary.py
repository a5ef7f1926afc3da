"""The figures of tests that are printed at the end of a run."""

from __future__ import annotations

from typing import Final

PRINTED: Final = "printed"
"""Name of the property that a test records with ``record_property`` to have it printed."""
