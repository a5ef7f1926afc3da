"""``./dev docs``: write anew what stands in the documents as rbdagent says it."""

from __future__ import annotations

from tests.contract import answers, runbooks

if __name__ == "__main__":
    runbooks.write()
    answers.write()
