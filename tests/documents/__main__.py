"""``./dev docs``: write the generated pages, missing rows, answers, and a part of the plugin."""

from __future__ import annotations

from tests.documents import (
    addresses,
    answers,
    binding,
    picture,
    plugin,
    problems,
    runbooks,
    states,
)

if __name__ == "__main__":
    addresses.write()
    runbooks.write()
    states.write()
    answers.write()
    problems.write()
    picture.write()
    binding.write()
    plugin.write()
