"""``./dev docs``: write the generated pages, missing rows and quoted answers of the documents."""

from __future__ import annotations

from tests.documents import answers, runbooks, states

if __name__ == "__main__":
    runbooks.write()
    states.write()
    answers.write()
