"""Sizes for people."""

from __future__ import annotations


def size_text(size_bytes: int | None) -> str:
    """Return a size with its unit; empty if it is unknown."""
    if not size_bytes:
        return ""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):.4g} {unit}"
    return f"{size_bytes} bytes"
