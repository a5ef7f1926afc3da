"""``./dev docs``: write the generated pages and the quoted answers of the documents."""

from __future__ import annotations

from tests.documents import answers, runbooks

if __name__ == "__main__":
    runbooks.write()
    answers.write()
