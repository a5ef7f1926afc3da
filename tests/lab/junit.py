"""The results that pytest wrote. Standard library only."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def count(junit: Path) -> tuple[int, int, int]:
    """Return how many tests passed, failed (errors too) and were skipped."""
    if not junit.exists():
        return 0, 0, 0
    passed = failed = skipped = 0
    # pytest writes two testcases for one that fails and whose teardown fails too.
    tree = ET.parse(junit)  # noqa: S314  (pytest wrote it a moment ago)
    for case in tree.getroot().iter("testcase"):
        children = {child.tag for child in case}
        if children & {"failure", "error"}:
            failed += 1
        elif "skipped" in children:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def recorded(junit: Path) -> dict[str, str]:
    """Return the values of ``record_property``; of a name that several tests use, the last one."""
    if not junit.exists():
        return {}
    tree = ET.parse(junit)  # noqa: S314  (pytest wrote it a moment ago)
    found = tree.getroot().iter("property")
    return {item.get("name", ""): item.get("value", "") for item in found}
