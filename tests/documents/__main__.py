"""``./dev docs``: write the generated pages, missing rows, quoted answers and the plugin's text."""

from __future__ import annotations

from tests.documents import addresses, answers, plugin, runbooks, states

if __name__ == "__main__":
    addresses.write()
    runbooks.write()
    states.write()
    answers.write()
    plugin.write()
