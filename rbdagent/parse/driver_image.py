"""The version of ceph-csi in the name of its image."""

from __future__ import annotations

import re
from typing import Final

_CEPHCSI: Final = re.compile(r"(?:^|/)cephcsi:v?(?P<version>\d{1,4}\.\d{1,4}\.\d{1,4})(?![\w.])")


def cephcsi_version(image: str) -> str:
    """Return the version that an image of ceph-csi names; "" for a digest, or another image."""
    found = _CEPHCSI.search(image)
    return "" if found is None else found["version"]
