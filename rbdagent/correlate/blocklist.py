"""Format an entry of the blocklist as text and as a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.commands import command, line_of

if TYPE_CHECKING:
    from rbdagent.model import BlocklistEntry


def entry_text(entry: BlocklistEntry) -> str:
    """Return the address that an entry blocks, in the form of its removal command, with the end."""
    until = f" until {entry.until}" if entry.until else ""
    if entry.is_range:
        return f"range {entry}{until}"
    return f"{entry}{' (every client of that host)' if entry.nonce == 0 else ''}{until}"


def removal_of(entry: BlocklistEntry) -> str:
    """Return the command that removes an entry; clients and ranges have different commands."""
    verb = "ceph osd blocklist range rm" if entry.is_range else "ceph osd blocklist rm"
    return line_of(command(verb, str(entry)))
