"""The public addresses of the project are in one module; every copy is equal to it."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from rbdagent import addresses
from tests.documents.addresses import COPIES, ROOT, Copy, as_generated

KNOWN: Final = tuple(value for name, value in vars(addresses).items() if name.isupper())
ADDRESS: Final = re.compile(
    r"https?://[\w.-]*rbdagent[\w./-]*"
    r"|https?://[\w.-]+/(?:[\w-]+/)?rbdagent[\w./-]*"
    r"|[\w.+-]+@rbdagent[\w.-]*"
    r"|\bregistry\.rbdagent[\w.-]*"
    r"|\b(?:ghcr|quay|docker)\.io/[\w./-]*rbdagent"
)
"""An address that belongs to the project: a page, a mailbox or a registry."""
THIS: Final = "tests/contract/test_addresses.py"


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: f"{copy.path} {copy.address}")
def test_copy_is_the_address_of_the_module(copy: Copy) -> None:
    """After a change of rbdagent/addresses.py, run ./dev docs."""
    text = (ROOT / copy.path).read_text()
    assert as_generated(copy, text) == text


@pytest.mark.needs("git")
def test_no_file_has_another_address() -> None:
    assert {
        f"{name}: {found}"
        for name in tracked_files()
        if name != THIS
        for found in ADDRESS.findall(text_of(name))
        if not found.startswith(KNOWN)
    } == set()


@pytest.mark.needs("git")
def test_only_copies_and_the_module_have_addresses() -> None:
    """A further file with an address is a further row of the table."""
    found = {name for name in tracked_files() if ADDRESS.search(text_of(name))}
    assert found - {copy.path for copy in COPIES} == {"rbdagent/addresses.py", THIS}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://github.com/fork/rbdagent/issues.", True),
        ("write to bugs@rbdagent.example", True),
        ("image ghcr.io/fork/rbdagent:1", True),
        ("apiVersion: rbdagent.dev/v1alpha1", False),
        ("registry.example.com/rbdagent/rbdagent:0.1.0", False),
    ],
)
def test_pattern_recognises_addresses_of_the_project(text: str, *, found: bool) -> None:
    assert bool(ADDRESS.search(text)) == found


def tracked_files() -> list[str]:
    """Return the files of the checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "--", ".", ":!tests/fixtures"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def text_of(name: str) -> str:
    """Return the text of a file; a picture has none."""
    return (ROOT / name).read_bytes().decode(errors="ignore")
