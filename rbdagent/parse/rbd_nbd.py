"""The command line of rbd-nbd: which image a process serves.

The program takes its own options and those of every Ceph client, before and after the two words
``map IMAGE`` (parse_args() in src/tools/rbd_nbd/rbd-nbd.cc of Ceph). Each option of Ceph's
configuration is an option of the program too, and nothing in the command line shows whether one of
them takes the next word as its value. But a process that serves a device has exactly two other
words: the program refuses more (``unknown args``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rbdagent.model import ImageSpec
from rbdagent.parse.command_line import base_name

if TYPE_CHECKING:
    from collections.abc import Sequence

NBD_SERVER: Final = "rbd-nbd"
"""The name of the program."""
_SERVING: Final = frozenset({"map", "attach"})
_WORDS: Final = 2
_DEFAULT_POOL: Final = "--rbd-default-pool"
_FLAGS: Final = frozenset(
    {"--exclusive", "--quiesce", "--read-only", "--try-netlink", "--show-cookie",
     "--pretty-format", "--foreground", "-d", "-f"}
)  # fmt: skip
"""The options without a value."""
_WITH_VALUE: Final = frozenset(
    {"--device", "--cookie", "--encryption-format", "--encryption-passphrase-file", "--io-timeout",
     "--timeout", "--max-part", "--nbds-max", "--quiesce-hook", "--reattach-timeout", "--snap-id",
     "--format", "--conf", "--id", "--user", "--name", "--cluster", "--setuser", "--setgroup",
     "--mon-host", "--keyring", "--keyfile", "--key", "--log-file", _DEFAULT_POOL,
     "-c", "-i", "-k", "-K", "-m", "-n"}
)  # fmt: skip
"""The options whose value is the next word, or follows ``=``."""
_SPEC: Final = re.compile(
    r"(?:(?P<pool>[^/@]+)/(?:(?P<namespace>[^/@]+)/)?)?(?P<name>[^@]+)(?:@(?P<snapshot>[^/@]+))?"
)
"""As parse_imgpath(): a name may contain slashes."""


class _Words(NamedTuple):
    certain: list[str]
    """The words that are no options and no values."""
    possible: list[tuple[int, str]]
    """The words that follow an unknown option, and their places among the others."""
    default_pool: str | None


def is_server(arguments: Sequence[str]) -> bool:
    """Return whether a process is rbd-nbd and serves a device: it does not unmap or list."""
    return (
        bool(arguments)
        and base_name(arguments[0]) == NBD_SERVER
        and not _SERVING.isdisjoint(arguments)
    )


def served_image(arguments: Sequence[str]) -> ImageSpec | None:
    """Return the image that an rbd-nbd process serves; None if its arguments do not show it.

    An image without a pool is in the pool that ``rbd_default_pool`` names, in the configuration
    file of the process or in its environment: then the pool is unknown, unless it is an argument.

    Args:
        arguments: of the process, the name of the program first.
    """
    words = _words(arguments[1:])
    found = _chosen(words)
    if found is None or found[0] not in _SERVING:
        return None
    spec = _SPEC.fullmatch(found[1])
    if spec is None:
        return None
    pool = spec["pool"] or words.default_pool
    if not pool:
        return None
    return ImageSpec(pool=pool, namespace=spec["namespace"] or "", name=spec["name"])


def _words(arguments: Sequence[str]) -> _Words:
    certain: list[str] = []
    possible: list[tuple[int, str]] = []
    default_pool: str | None = None
    rest = iter(arguments)
    for word in rest:
        option, is_joined, value = word.partition("=")
        option = f"--{option[2:].replace('_', '-')}" if option.startswith("--") else option
        if not _is_option(option):
            certain.append(word)
            continue
        takes_next = False if is_joined or option in _FLAGS else option in _WITH_VALUE or None
        following = None if takes_next is False else next(rest, None)
        if takes_next is None and following is not None:
            possible.append((len(certain) + len(possible), following))
        if option == _DEFAULT_POOL:
            default_pool = value or following
    return _Words(certain, possible, default_pool)


def _is_option(option: str) -> bool:
    """Return whether a word is an option; the program takes other short ones for the image."""
    if option.startswith("--"):
        return option != "--"
    return option in _FLAGS or option in _WITH_VALUE


def _chosen(words: _Words) -> list[str] | None:
    """Return the two words of the command; None if it is not certain which they are."""
    if len(words.certain) == _WORDS:
        return words.certain
    if len(words.certain) + len(words.possible) != _WORDS:
        return None
    both = list(words.certain)
    for place, word in words.possible:
        both.insert(place, word)
    return both
