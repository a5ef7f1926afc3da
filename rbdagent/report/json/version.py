"""The output of ``version``."""

from __future__ import annotations

from typing import Literal

from rbdagent.report.json.output import Output


class Version(Output, frozen=True, kw_only=True):
    """The output of ``version``: the versions of rbdagent and of Python."""

    kind: Literal["Version"] = "Version"
    version: str
    python: str
