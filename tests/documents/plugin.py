"""The findings at the end of the kubectl plugin, for `explain` without a cluster.

They are comments: the plugin is one file, and a shell does not parse them before the program exits.
"""

from __future__ import annotations

import runpy
from typing import Final

from rbdagent.catalog import CATALOG, explanation
from tests.support.cli_runner import ROOT

PLUGIN: Final = ROOT / "plugin" / "kubectl-rbdagent"
_RELEASE: Final = ROOT / "plugin" / "release.py"
_HEAD: Final = "# The findings, for explain without a cluster: ./dev docs writes these lines.\n"


def as_generated(text: str) -> str:
    """Return the text of the plugin with the current findings."""
    program, head, _ = text.partition(_HEAD)
    assert head, "the plugin has no head of the findings"
    return program + head + _findings()


def _findings() -> str:
    r"""Return the findings: ``#= `` and the line of a list, then the explanation behind ``#: ``."""
    return "".join(
        f"#= {entry.code}   {entry.severity:<8}   {entry.name:<28}   {entry.summary}\n"
        + "".join(f"#: {line}".rstrip() + "\n" for line in _explanation(entry.code))
        for entry in CATALOG.values()
    )


def _explanation(code: str) -> list[str]:
    """Return the lines of an explanation, with commands as a user of the plugin types them."""
    return explanation(code, ("kubectl", "rbdagent")).split("\n")


def write() -> None:
    """Write the findings into the plugin, and the digest of its archive into the manifest."""
    PLUGIN.write_text(as_generated(PLUGIN.read_text()))
    release = runpy.run_path(str(_RELEASE))
    release["write_digest"]()
