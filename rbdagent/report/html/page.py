"""The lifecycle of a volume as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import PROGRAM
from rbdagent.report.html.document import document, sources
from rbdagent.report.html.markup import el, joined
from rbdagent.report.html.volume import volume_sections
from rbdagent.report.text.lifecycle import headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.model import Lifecycle, Snapshot


def page(lifecycle: Lifecycle, snapshot: Snapshot, program: Sequence[str] = PROGRAM) -> str:
    """Return the output of ``diagnose TARGET -o html``.

    Args:
        lifecycle: the lifecycle of the volume.
        snapshot: the snapshot that it was found in.
        program: the words that start rbdagent in the place of the reader.
    """
    target = lifecycle.diagnosis.volume.target.argument
    return document(
        f"{target}: {headline(lifecycle)}",
        joined(
            (
                el("p", "rbdagent diagnose ", el("code", target)),
                el("p", f"observed {snapshot.observed_at}"),
            )
        ),
        joined((volume_sections(lifecycle, snapshot, program), sources(snapshot))),
        snapshot,
    )
