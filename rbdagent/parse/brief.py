"""What a short text shows of a long quotation: what failed, and what the program printed.

Findings quote complete events, with the output of programs (``rbdagent.parse.foreign``). In an
answer without details, in Events, RBDMappings and logs, there is room for some lines only.
"""

from __future__ import annotations

import re
from typing import Final

from rbdagent.parse.foreign import with_quotations
from rbdagent.parse.recognised import Recognised

_MOST: Final = 300
"""Characters of a quotation."""
_HEAD: Final = 100
"""Characters of what precedes the omitted part."""
_LONGEST_WORD: Final = 60
_LONG_WORD: Final = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")
"""Mostly a path below kubelet's directory, whose ends identify the volume."""
_CUT: Final = " … "
_PREFIXES: Final = (Recognised.COMBINED, Recognised.FAILED_FOR_VOLUME, Recognised.RPC_STATUS)
"""They precede the text in this order, and repeat what the sentence states."""
_OUTPUT: Final = re.compile(r"\b[Oo]utput:")
"""Before the output of mount, mkfs, rbd or resize2fs in messages of ceph-csi and mount-utils."""


def begun(text: str) -> str:
    """Return a text with a capital letter, as a sentence begins; its other letters stay."""
    return f"{text[:1].upper()}{text[1:]}"


def brief(sentence: str) -> str:
    """Return a sentence whose quotations have at most 300 characters, without usual prefixes."""
    return with_quotations(sentence, _brief)


def _brief(text: str) -> str:
    # Until nothing changes: several programs may each add a prefix, and what another node's agent
    # has shortened is shortened again here.
    while (short := _excerpt(_without_prefix(text))) != text:
        text = short
    return text


def _without_prefix(text: str) -> str:
    for prefix in _PREFIXES:
        text = prefix.left_out_of(text) or text
    return text


def _excerpt(text: str) -> str:
    """Cut what explains least of a long text: the middle of its longest words, then words."""
    if len(text) <= _MOST:
        return text
    text = _LONG_WORD.sub(_ends, text)
    if len(text) <= _MOST:
        return text
    output = _OUTPUT.search(text)
    if output is None:
        head = _first_words(text, _HEAD)
        return f"{head}{_CUT}{_last_words(text, _MOST - len(head + _CUT))}"
    # Programs print what is wrong first. mkfs adds its usage, so the end may explain nothing.
    head = _first_words(text[: output.start()].partition("\n")[0], _HEAD)
    begin = f"{head}{_CUT}" if len(head) < output.start() - 1 else text[: output.start()]
    rest = text[output.start() :]
    room = _MOST - len(begin)
    if len(rest) <= room:
        return begin + rest
    line, cut, _ = rest.partition("\n")
    if len(line) <= room - len(cut and " …"):
        return f"{begin}{_first_words(rest, room - 2)} …"
    # Of one long line, the end has the error number.
    first = _first_words(line, room // 2)
    return f"{begin}{first}{_CUT}{_last_words(line, room - len(first + _CUT))}"


def _ends(word: re.Match[str]) -> str:
    half = _LONGEST_WORD // 2
    return f"{word[0][: half - 1]}…{word[0][-half:]}"


def _first_words(text: str, most: int) -> str:
    """Return the first words of a text, or the first part of a longer word."""
    if len(text) <= most:
        return text.rstrip()
    kept = text[: most + 1]
    last = max((found.start() for found in re.finditer(r"\s", kept)), default=0)
    return kept[:last].rstrip() or text[:most]


def _last_words(text: str, most: int) -> str:
    kept = text[len(text) - most - 1 :]
    first = re.search(r"\s", kept)
    return (kept[first.end() :] if first is not None else "") or kept[1:]
