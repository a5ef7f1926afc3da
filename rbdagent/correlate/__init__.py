"""Joins: which mapping, watcher, pod and directory belong to which image. No judgement."""

from __future__ import annotations

from rbdagent.correlate.identity import images_of
from rbdagent.correlate.use import correlate, correlate_node

__all__ = ["correlate", "correlate_node", "images_of"]
