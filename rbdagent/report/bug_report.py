"""The archive of ``bug-report``: its files, its MANIFEST, and the bytes of the tar file.

The same parts give the same bytes: the order is that of the parts, and no time, user or group of
this machine is in the archive.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import textwrap
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from rbdagent.model import NotObserved
from rbdagent.parse.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DIRECTORY: Final = "rbdagent-bug-report"
MANIFEST: Final = "MANIFEST"
MOST_OF_PART: Final = 64 << 20
"""Maximum size of a file in bytes: a snapshot with 20,000 pods has half of it."""
MOST: Final = 256 << 20
"""Maximum size of all files together; a larger archive is no attachment."""
_WIDTH: Final = 80

_HEAD: Final = """\
A bug report of rbdagent {version}, taken at {at} on {node}.

Read it before you send it. What resembles a key, a token or a password is \
masked. What is not masked: names of namespaces, pods, claims, PVs, images, \
pools and nodes, addresses, labels, command lines of programs that map, mount, \
check or copy, events, and log lines. A secret without a name and without a \
known form is not recognised.

A file whose source failed contains the reason: "not observed: ...", or in \
JSON {{"notObserved": "..."}}.
"""


class Part(Struct, frozen=True, kw_only=True):
    """One file of the archive."""

    name: str
    """Below the directory of the archive: ``kubernetes/daemonsets.json``."""
    what: str
    """What the file has, for the MANIFEST: a sentence."""
    content: bytes | NotObserved
    note: str = ""
    """What is not in the file although it was observed, for the MANIFEST; empty if nothing."""


class Bundle(Struct, frozen=True, kw_only=True):
    """The archive, and what it does not contain."""

    archive: bytes
    missing: tuple[tuple[str, str], ...]
    """Name and reason of each file whose source was not observed."""


def bundle(parts: Sequence[Part], *, version: str, at: str, node: str) -> Bundle:
    """Return the archive of parts, with its MANIFEST as the first file.

    Args:
        parts: the files, in their order.
        version: of rbdagent.
        at: the time of the observation.
        node: the node on which it was taken.
    """
    kept = tuple(_bounded(parts))
    head = _HEAD.format(version=version, at=at, node=node)
    files = [
        (MANIFEST, manifest(kept, head).encode()),
        *((part.name, _file(part)) for part in kept),
    ]
    missing = tuple(
        (part.name, part.content.reason) for part in kept if isinstance(part.content, NotObserved)
    )
    return Bundle(archive=_archive(files), missing=missing)


def manifest(parts: Iterable[Part], head: str) -> str:
    """Return the MANIFEST: what each file is, how large it is, and what is missing in it."""
    paragraphs = [_wrapped(text) for text in head.split("\n\n")]
    for part in parts:
        size = len(_file(part))
        state = (
            f"Not observed: {_reason(part.content)}"
            if isinstance(part.content, NotObserved)
            else part.note
        )
        rows = [part.what, *([state] if state else [])]
        paragraphs.append(
            "\n".join((f"{part.name} ({size} bytes)", *(_wrapped(row, "  ") for row in rows)))
        )
    return "\n\n".join(paragraphs) + "\n"


def _wrapped(text: str, margin: str = "") -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _bounded(parts: Iterable[Part]) -> Iterable[Part]:
    """Yield the parts; one that is too large has the reason instead."""
    total = 0
    for part in parts:
        size = 0 if isinstance(part.content, NotObserved) else len(part.content)
        if size > MOST_OF_PART or total + size > MOST:
            limit = MOST_OF_PART if size > MOST_OF_PART else MOST
            reason = f"it has {size >> 20} MiB, and the limit is {limit >> 20} MiB"
            yield msgspec.structs.replace(part, content=NotObserved(reason=reason), note="")
        else:
            total += size
            yield part


def _file(part: Part) -> bytes:
    """Return the content of a file, or the reason why there is none, in the form of the file."""
    if not isinstance(part.content, NotObserved):
        return part.content
    reason = _reason(part.content)
    if part.name.endswith(".json"):
        return msgspec.json.format(msgspec.json.encode({"notObserved": reason}), indent=1) + b"\n"
    return f"not observed: {reason}\n".encode()


def _reason(missing: NotObserved) -> str:
    """Return why a source was not observed, and what would help."""
    parts = (missing.reason, missing.hint)
    return shown("; ".join(part for part in parts if part))


def _archive(files: Iterable[tuple[str, bytes]]) -> bytes:
    raw = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in files:
            member = tarfile.TarInfo(f"{DIRECTORY}/{name}")
            member.size, member.mode = len(content), 0o600
            tar.addfile(member, io.BytesIO(content))
    return raw.getvalue()
