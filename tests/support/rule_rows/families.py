"""The modules that hold the rows of a family of rules."""

from __future__ import annotations

from typing import Final

from tests.support.rule_rows import (
    attach_detach,
    binding_races,
    diagnose,
    foreign_clusters,
    growth,
    node_stage,
    pv_controller,
    scheduling,
    termination,
)

FAMILIES: Final = (
    diagnose,
    attach_detach,
    pv_controller,
    foreign_clusters,
    termination,
    node_stage,
    scheduling,
    growth,
    binding_races,
)
"""Each has ``REPORTED``: by code and short description, the snapshots in which it is reported."""
