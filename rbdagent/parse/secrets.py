"""Mask of the secrets in texts, because users pass on output and snapshots.

In doubt, a text is masked. The path of a key file is masked like the key: the name ``--keyfile``
does not show which of the two follows.

The cost grows with the length of a text, for any text: a pattern does not read the same part twice.
Only single characters are repeated possessively: Python before 3.11.5 matches possessive groups
wrongly (https://github.com/python/cpython/issues/106052).

Patterns that only some texts need are strings: re compiles them at their first use, and keeps them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rbdagent.parse.ceph_keys import MASK

if TYPE_CHECKING:
    from collections.abc import Sequence


def without_secrets(text: str, *, is_sentence: bool = False) -> str:
    """Return a text in which a mask replaces each probable secret.

    Args:
        text: may have several lines.
        is_sentence: a colon is punctuation: it ends the name of an object (``Secret a/b: secrets
            "b" not found``), unless the name and its value are in quotes, as in JSON.
    """
    # URLs come first: a password in a URL may contain the name of a secret.
    text = _without_named(_without_userinfo(text), is_sentence=is_sentence)
    for shape in _SHAPES:
        text = shape.sub(MASK, text)
    for announced in _ANNOUNCED:
        text = announced.sub(rf"\1{MASK}", text)
    return text


def _match(pattern: str, text: str, start: int) -> re.Match[str] | None:
    return re.compile(pattern).match(text, start)


def _end(pattern: str, text: str, start: int) -> int:
    """Return the end of a match that begins at ``start``; ``start`` if there is no match."""
    found = _match(pattern, text, start)
    return start if found is None else found.end()


# --------------------------------------------------------------------------------------------------
# Values after the name of a secret
# --------------------------------------------------------------------------------------------------


def _names(anywhere: str, at_end: str) -> str:
    """Return a pattern for words in names.

    A word of ``at_end`` matches only if no letter of the same case follows. Each alternative begins
    with a letter, so that re skips all other characters (four times as fast as with IGNORECASE).
    """
    forms = [
        form
        for words, lower, upper in ((anywhere, "", ""), (at_end, "(?![a-z])", "(?![A-Z])"))
        for word in words.split()
        for form in (word + lower, word.capitalize() + lower, word.upper() + upper)
    ]
    return "|".join(forms)


_STRONG: Final = (
    "key secret token passw passphrase passcode pwd credential authorization cookie",
    "pass cred creds pw psk",
)
_WEAK: Final = ("sess signature", "auth sig")
"""No value follows a colon and a blank: librados writes ``auth: unable to find a keyring``."""
_STRONG_NAME: Final = _names(*_STRONG)
_NAME: Final = re.compile(_names(*map(" ".join, zip(_STRONG, _WEAK, strict=True))))
_WEAK_WORDS: Final = frozenset(" ".join(_WEAK).split())
_REST_OF_NAME: Final = r"[\w.-]*+"
_HEADER: Final = r"(?i:authorization|cookie2?|auth-[\w-]*)"
"""The last part of the name of an HTTP header whose value has several words."""
_SIGN: Final = r"(?P<quote>\\*+[\"']?+)[ \t]*+(?P<sign>=>|:=|[=:])(?P<blank>\s*+)"
_AFTER_FLAG: Final = r"\\*+[\"']?+(?:,\s*+|\s++)(?!-)"
_OPENING: Final = r"[bBrRuU$]?\\*+[\"']"
_CLOSING: Final = {
    '"': r"(?<!\\)(?P<slashes>\\*+)\"(?P<goes_on>)",
    # A shell, and shlex.quote, write an apostrophe within apostrophes like this.
    "'": r"(?<!\\)(?P<slashes>\\*+)'(?P<goes_on>\\''|\"'\"'|)",
}
_UNQUOTED: Final = (
    r"(?:(?:Bearer|Basic|Digest|Negotiate|Token|[|>][+-]?)\s++)?"
    r"(?:[\w.-]++:\s++)*\S*+(?:(?<=;)\s++[\w.-]++=\S*+)*"
)
"""A word; an HTTP scheme or the sign of a YAML text block may come before it.

Further names before the word (``token: secret: …``) and further cookies after it are included.
"""
_LINE: Final = r"[^\n]*+"


def _without_named(text: str, *, is_sentence: bool) -> str:
    """Mask each value that follows the name of a secret."""
    kept: list[str] = []
    copied = at = 0
    while (name := _NAME.search(text, at)) is not None:
        at = _end(_REST_OF_NAME, text, name.end())
        is_header = re.fullmatch(_HEADER, text[name.start() : at]) is not None
        value = _start_of_value(text, name, at, is_header=is_header)
        is_free = is_sentence and not is_header
        if is_free and value is not None and _is_punctuation(text, at, value):
            continue
        if value is not None:
            at = _end_of_value(text, value, is_line=is_header and ":" in text[at:value])
            if at > value:
                kept += (text[copied:value], MASK)
                copied = at
    return "".join((*kept, text[copied:]))


def _start_of_value(text: str, name: re.Match[str], end: int, *, is_header: bool) -> int | None:
    """Return where the value of a name begins; None if no value follows the name."""
    sign = _match(_SIGN, text, end)
    if sign is not None:
        may_be_prose = sign["sign"] == ":" and sign["blank"] and not sign["quote"]
        is_prose = may_be_prose and not is_header and _is_weak(text, name, end)
        return None if is_prose else sign.end()
    blank = _match(_AFTER_FLAG, text, end)
    return blank.end() if blank is not None and _is_flag(text, name.start()) else None


def _is_punctuation(text: str, end: int, value: int) -> bool:
    """Return whether the colon behind a name is that of a sentence, not of JSON."""
    sign = _match(_SIGN, text, end)
    if sign is None or sign["sign"] != ":":
        return False
    return not sign["quote"] or _match(_OPENING, text, value) is None


def _is_weak(text: str, name: re.Match[str], end: int) -> bool:
    if name[0].lower() not in _WEAK_WORDS:
        return False
    return re.compile(_STRONG_NAME).search(text, name.end(), end) is None


def _is_flag(text: str, at: int) -> bool:
    """Return whether a dash precedes a name; each name is read backwards only once."""
    while at and (text[at - 1].isalnum() or text[at - 1] in "_.-"):
        at -= 1
    return text.startswith("-", at)


def _end_of_value(text: str, start: int, *, is_line: bool) -> int:
    if text.startswith(MASK, start):
        return start + len(MASK)
    if (opening := _match(_OPENING, text, start)) is not None:
        return _end_of_quoted(text, opening)
    if text.startswith(("{", "["), start):
        return len(text)
    return _end(_LINE if is_line else _UNQUOTED, text, start)


def _end_of_quoted(text: str, opening: re.Match[str]) -> int:
    r"""Return the end of a quoted text; the end of the whole text if no quote closes it.

    JSON within JSON has a backslash before each quote, and three one level deeper: each level
    doubles the number of backslashes before an inner quote and adds one.
    """
    level = opening[0].count("\\")
    closing = re.compile(_CLOSING[opening[0][-1]])
    at = opening.end()
    while (found := closing.search(text, at)) is not None:
        at = found.end()
        further = len(found["slashes"]) - level
        is_closed = further < 0 or further % (2 * level + 2) == 0
        if is_closed and not found["goes_on"]:
            return at
    return len(text)


# --------------------------------------------------------------------------------------------------
# Texts in the form of a secret
# --------------------------------------------------------------------------------------------------

_SHAPES: Final = (
    # CephX keys, and other base64 of at least 22 letters with padding.
    re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{22,}+={1,2}"),
    # A CephX key without its end: it begins with a type below 256, and a time (see _KEYS).
    re.compile(r"(?<![A-Za-z0-9+/])A[Qg][A-D][A-Za-z0-9+/]{19,}+"),
    # JSON as base64: tokens of Kubernetes (RFC 7519), and credentials of registries.
    re.compile(r"\beyJ[\w.-]{8,}+"),
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY.*", re.DOTALL),
    # Prefixes that issuers put before their tokens, so that a leaked token is found.
    re.compile(
        r"\b(?:"
        r"gh[opsur]_|github_pat_|gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent)-"  # GitHub, GitLab
        r"|xox[a-z]-|xapp-|sk-|[prs]k_(?:live|test)_|whsec_"  # Slack, OpenAI, Stripe
        r"|(?:AKIA|ASIA|ABIA|ACCA)(?=[A-Z2-7])|AIza|ya29\.|GOCSPX-"  # AWS, Google
        r"|npm_|pypi-|rubygems_|dckr_(?:pat|oat)_|shp(?:at|ca|pa|ss)_"  # registries, Shopify
        r"|hv[sbr]\.|SG\.|do[op]_v1_|ATATT|figd_|lin_api_|hf_|glsa_"
        r"|AGE-SECRET-KEY-|NRAK-|sntry[su]_|tskey-"
        r")[\w.+/=-]{12,}+"
    ),
)
_ANNOUNCED: Final = (
    re.compile(r"((?:Bearer|bearer|Basic) )\S++"),
    # ALTER USER x PASSWORD '…', CREATE USER x IDENTIFIED BY '…'
    re.compile(
        r"((?:PASSWORD|password|IDENTIFIED BY|identified by) )'(?:[^'\\]++|\\.?|'')*'?", re.DOTALL
    ),
)
_USERINFO: Final = r"(?P<first>[^\s\"/@]*+)(?P<rest>[^\s\"]*)@"


def _without_userinfo(text: str) -> str:
    """Mask ``USER:PASSWORD`` or a token before the host of each URL."""
    before, *urls = text.split("://")
    return "://".join((before, *map(_host_and_path, urls)))


def _host_and_path(url: str) -> str:
    """Mask the userinfo in the part after ``://``; a password may contain an unescaped slash.

    ``docker://HOST/NAME@sha256:…`` is the digest of an image.
    """
    found = re.match(_USERINFO, url)
    if found is None or (found["rest"].startswith("/") and ":" not in found["first"]):
        return url
    return f"{MASK}@{url[found.end() :]}"


# --------------------------------------------------------------------------------------------------
# Commands
# --------------------------------------------------------------------------------------------------

_FLAG: Final = r"--?+[A-Za-z][\w.-]*+"
_UNTIL_SIGN: Final = r"[^\s=:\"']*+(?P<sign>[=:])"
_UNTIL_BLANK: Final = r"[^\s\"']*+"


def command_without_secrets(arguments: Sequence[str]) -> str:
    """Return a command line without the secrets that have a name, or the form of a secret.

    Args:
        arguments: the words of the command, the program first. A secret may have blanks.
    """
    shown: list[str] = []
    is_secret = False
    for word in map(_without_userinfo, arguments):
        if is_secret and not word.startswith("-"):
            shown.append(MASK)
            is_secret = False
            continue
        end = _end_of_name(word)
        shown.append(word[:end] + MASK if 0 < end < len(word) else word)
        is_secret = not end and bool(re.fullmatch(_FLAG, word) and _NAME.search(word))
    return without_secrets(" ".join(shown))


def _end_of_name(word: str) -> int:
    """Return where a secret begins in ``NAME=…=VALUE`` or ``NAME:VALUE``; 0 if there is none."""
    name = _NAME.search(word)
    if name is None:
        return 0
    blank = _end(_UNTIL_BLANK, word, 0)
    while name is not None and name.start() < blank:
        sign = _match(_UNTIL_SIGN, word, name.end())
        if sign is None:
            return 0
        if sign["sign"] == "=" or not _is_weak(word, name, sign.end()):
            return sign.end()
        name = _NAME.search(word, sign.end())
    return 0
