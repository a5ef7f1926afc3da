"""The list of words that the project does not use."""

from __future__ import annotations

import pytest

from tests.wording.check import load, matches_in

RULES = load()
AVOIDED = (
    "Nobody holds it.",
    "whoever asks",
    "as told by kubelet",
    "by the word of the agent",
    "what the event says so",
    "It tells why.",
    "In the last look it was there.",
    "It looks away.",
    "By its books another node has it.",
    "Kubernetes has let go.",
    "It is taken down.",
    "The kubelet is at peace.",
    "kubelet retries by itself",
    "It waits for ever.",
    "It asks anew.",
    "The cure is a restart.",
    "It heals within two minutes.",
    "The entry stands for a client.",
    "The kubelet is silent.",
    "Delete the pod in good order.",
    "It goes by the age.",
    "The event says nothing.",
    "The PVs were not asked for.",
    "It only passed by.",
)
PLAIN = (
    "No client holds the image.",
    "kubelet retries automatically",
    "The controller will not attach the volume.",
    "Look at the node's log.",
    "according to the VolumeAttachment",
)


@pytest.mark.parametrize("text", AVOIDED)
def test_word_of_the_list_is_found(text: str) -> None:
    (match, *_) = matches_in("README.md", f"First line.\n{text}\n", RULES)
    assert match.line == 2
    assert match.instead


@pytest.mark.parametrize("text", PLAIN)
def test_plain_language_has_no_match(text: str) -> None:
    assert list(matches_in("README.md", text, RULES)) == []


def test_words_on_two_lines_are_found() -> None:
    (match,) = matches_in("RBD101.md", "Restart it\nby\nitself.\n", RULES)
    assert (match.line, match.instead) == (2, "automatically, or nothing")


def test_names_in_python_code_are_not_checked() -> None:
    source = '"""Return it."""\nnobody = 1  # nobody\nx = "nobody"\n'
    assert [match.line for match in matches_in("x.py", source, RULES)] == [2, 3]


def test_docstring_with_an_avoided_first_word_is_found() -> None:
    source = '"""Give it."""\n\n\ndef f() -> None:\n    """Tell whether it is."""\n'
    found = [match for match in matches_in("x.py", source, RULES) if match.text.startswith("Give")]
    assert [match.line for match in found] == [1]
    assert len(list(matches_in("x.py", source, RULES))) >= 2


def test_every_rule_has_an_example() -> None:
    unused = [
        rule.pattern.pattern
        for rule in RULES.words
        if not any(rule.pattern.search(text) for text in AVOIDED)
    ]
    assert unused == []
