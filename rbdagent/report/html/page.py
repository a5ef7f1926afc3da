"""The lifecycle of a volume as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.report.html.document import document, sources
from rbdagent.report.html.markup import el, joined
from rbdagent.report.html.volume import volume_sections
from rbdagent.report.text.lifecycle import headline

if TYPE_CHECKING:
    from rbdagent.model import Lifecycle, Snapshot


def page(lifecycle: Lifecycle, snapshot: Snapshot) -> str:
    """Return the output of ``diagnose TARGET -o html``."""
    target = lifecycle.diagnosis.use.target.argument
    return document(
        f"{target}: {headline(lifecycle)}",
        joined(
            (
                el("p", "rbdagent diagnose ", el("code", target)),
                el("p", f"observed {snapshot.observed_at}"),
            )
        ),
        joined((volume_sections(lifecycle, snapshot), sources(snapshot))),
        snapshot,
    )
