"""A fake of the process that is connected to Ceph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.snapshots import OBSERVED

if TYPE_CHECKING:
    from rbdagent.model import CephView


class FakeCephWorker:
    """Answers each query with the same view, or with none before the deadline."""

    def __init__(self, view: CephView | None) -> None:
        self.view = view
        self.asked: list[Any] = []

    def answer(self, question: Any, _deadline: float, **_: Any) -> Any:  # noqa: ANN401 - as asked
        images, _, _ = question
        self.asked.append(images)
        if self.view is None:
            raise TimeoutError
        return self.view, OBSERVED

    def finish(self) -> None:
        """Keep the process."""
