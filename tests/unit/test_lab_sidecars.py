"""The CSI sidecar controllers that run beside a real ceph-csi."""

from __future__ import annotations

import re

from tests.lab import csi_sidecars
from tests.lab.install import SIDECAR_MODULE, SIDECARS


def test_each_sidecar_is_a_tool_of_its_module() -> None:
    tools = re.findall(r"^\t\S+/cmd/(\S+)$", (SIDECAR_MODULE / "go.mod").read_text(), re.MULTILINE)
    assert sorted(tools) == sorted(SIDECARS)


def test_each_sidecar_has_the_flags_of_its_deployment() -> None:
    assert csi_sidecars.FLAGS.keys() == set(SIDECARS)
