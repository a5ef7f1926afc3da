"""An entry of the blocklist, in words and as a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import command, line_of

if TYPE_CHECKING:
    from rbdagent.model import BlocklistEntry


def entry_text(entry: BlocklistEntry) -> str:
    """Return what an entry blocks, as the command that removes it takes it, and until when."""
    until = f" until {entry.until}" if entry.until else ""
    if entry.is_range:
        return f"range {entry}{until}"
    return f"{entry}{' (every client of that host)' if entry.nonce == 0 else ''}{until}"


def removal_of(entry: BlocklistEntry) -> str:
    """Return the command that removes an entry: clients and ranges are removed by two commands."""
    verb = "ceph osd blocklist range rm" if entry.is_range else "ceph osd blocklist rm"
    return line_of(command(verb, str(entry)))
