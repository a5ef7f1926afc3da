"""The kubectl plugin with the texts that it prints without a cluster: ``./dev plugin [DIRECTORY]``.

The file in git is the program. Behind it, this module appends the findings and the help of the
verbs, which git does not have: they are copies of what rbdagent prints. They are comments, because
the plugin is one file, and a shell does not parse them before the program exits.

It needs rbdagent and nothing of the tests or the lab: so it runs wherever rbdagent does.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from rbdagent.catalog import CATALOG, explanation
from rbdagent.cli import cli
from rbdagent.cli.pages import page_of
from rbdagent.report.text.explain import explanation_lines, list_line
from rbdagent.report.text.layout import Layout
from release.errors import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rbdagent.rules.entry import Entry

CHECKOUT: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = CHECKOUT / "plugin" / "kubectl-rbdagent"
COMPLETION: Final = CHECKOUT / "plugin" / "kubectl_complete-rbdagent"
MANIFEST: Final = CHECKOUT / "plugin" / "rbdagent.yaml"
"""For krew. It has no digest in git: the archive has texts that git does not have."""
NO_DIGEST: Final = "sha256: DIGEST"
ELSEWHERE: Final = frozenset({"agent", "mcp", "completion", "lint"})
"""Verbs for the local node only, or verbs that kubectl does not run: the pod has no local files."""
VERBS: Final = tuple(
    verb for verb in cli.list_commands(click.Context(cli)) if verb not in ELSEWHERE
)

_LICENCE: Final = CHECKOUT / "LICENSE"
_COLUMNS: Final = 80
_MARGIN: Final = 2
"""click leaves so many columns of a terminal empty."""
_UNIX: Final = 3
_HEAD: Final = (
    f"\n# {'-' * 98}\n"
    "# The findings and the help, for answers without a cluster: release/plugin.py wrote them.\n"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the plugin for a machine on which it is installed without krew."""
    parser = argparse.ArgumentParser(
        prog="./dev plugin", description="Write the kubectl plugin with all texts that it prints."
    )
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        type=Path,
        default=CHECKOUT / "dist" / "plugin",
        help="by default dist/plugin",
    )
    directory: Path = parser.parse_args(argv).directory
    write(directory)
    print(f"{directory} has the plugin: sudo install -m 755 {directory}/* /usr/local/bin/")
    return 0


def write(directory: Path) -> None:
    """Write the programs of the plugin into a directory, which is created if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in _programs().items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)


def write_archive(archive: Path) -> None:
    """Write the files that krew installs, each with its mode.

    The same commit gives the same archive, byte for byte: nothing is compressed, and the archive
    contains no time or owner of this machine.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as files:
        for name, text in _programs().items():
            files.writestr(_member(name, mode=0o755), text)
        files.writestr(_member(_LICENCE.name, mode=0o644), _LICENCE.read_text())


def manifest(digest: str) -> str:
    """Return krew's manifest with the SHA-256 of the archive.

    Raises:
        ReleaseError: the manifest in git has no place for the digest.
    """
    before, placeholder, after = MANIFEST.read_text().partition(NO_DIGEST)
    if not placeholder:
        raise ReleaseError(f"{MANIFEST} has no line {NO_DIGEST!r}: write it instead of a digest")
    return f"{before}sha256: {digest}{after}"


def whole() -> str:
    """Return the program, with the findings and the help behind it."""
    return PROGRAM.read_text() + _HEAD + _findings() + _help()


def _programs() -> dict[str, str]:
    """Return name and text of each program of the plugin."""
    return {PROGRAM.name: whole(), COMPLETION.name: COMPLETION.read_text()}


def _member(name: str, *, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = _UNIX
    entry.external_attr = mode << 16
    return entry


def _findings() -> str:
    r"""Return the findings: ``#= `` and the line of a list, then the explanation behind ``#: ``."""
    return "".join(
        f"#= {list_line(entry)}\n" + _behind("#:", _explanation(entry))
        for entry in CATALOG.values()
    )


def _explanation(entry: Entry) -> str:
    """Return an explanation, with commands as a user of the plugin types them."""
    text = explanation(entry, page_of(entry.code), ("kubectl", "rbdagent"))
    return explanation_lines(text, Layout(width=_COLUMNS))


def _help() -> str:
    """Return the help of each verb: ``#> `` and its name, then its lines behind ``#| ``."""
    return "".join(f"#> {verb}\n" + _behind("#|", _help_of(verb)) for verb in VERBS)


def _help_of(verb: str) -> str:
    """Return the help of a verb as a user of the plugin reads it."""
    program = click.Context(cli, info_name="kubectl rbdagent", **cli.context_settings)
    command = cast("click.Command", cli.get_command(program, verb))
    width = _COLUMNS - _MARGIN
    context = click.Context(command, parent=program, info_name=verb, terminal_width=width)
    return context.get_help()


def _behind(mark: str, text: str) -> str:
    """Return each line of a text behind a mark of a comment."""
    return "".join(f"{mark} {line}".rstrip() + "\n" for line in text.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
