"""The copies of the project's addresses in files that do not import :mod:`rbdagent.addresses`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from rbdagent import addresses

ROOT: Final = Path(__file__).parents[2]


class Copy(NamedTuple):
    """One address in one file."""

    path: str
    pattern: str
    """Matches each line with the address; group 1 is what precedes the address, 2 what follows."""
    address: str


COPIES: Final = (
    Copy("Containerfile", r'(image\.url=")[^"]*(")', addresses.SITE),
    Copy("SECURITY.md", r"(a vulnerability to )\S+(, not)", addresses.SECURITY),
    Copy(
        ".github/ISSUE_TEMPLATE/config.yml",
        r"^(    url: )\S+(/blob/main/SECURITY\.md)$",
        addresses.REPOSITORY,
    ),
    Copy("docs/security.md", r"(Send a mail to )\S+( with)", addresses.SECURITY),
    Copy("helm/rbdagent/values.yaml", r"^(  registry: )\S+($)", addresses.REGISTRY),
    Copy("helm/rbdagent/files/alerts.yaml", r"(runbook_url: )\S+?(\w+\.md)$", addresses.RUNBOOKS),
    Copy("helm/rbdagent/files/dashboard.json", r'("url": ")\S+?(\w+\.md")', addresses.RUNBOOKS),
    Copy("mkdocs.yml", r"^(site_url: )\S+(/)$", addresses.DOCUMENTATION),
    Copy("mkdocs.yml", r"^(repo_url: )\S+($)", addresses.REPOSITORY),
    Copy("plugin/rbdagent.yaml", r"^(  homepage: )\S+($)", addresses.DOCUMENTATION),
    Copy("plugin/rbdagent.yaml", r"^( +uri: )\S+(/v\S+/\S+\.zip)$", addresses.RELEASES),
    Copy("pyproject.toml", r'(^authors = .*email = ")[^"]*(")', addresses.MAINTAINER),
    Copy("pyproject.toml", r'^(Changelog = ")[^"]*(")', addresses.CHANGELOG),
    Copy("pyproject.toml", r'^(Documentation = ")[^"]*(")', addresses.DOCUMENTATION),
    Copy("pyproject.toml", r'^(Homepage = ")[^"]*(")', addresses.SITE),
    Copy("pyproject.toml", r'^(Source = ")[^"]*(")', addresses.REPOSITORY),
    Copy("systemd/rbdagent.service", r"^(Documentation=)\S+($)", addresses.DOCUMENTATION),
    Copy(
        "tests/integration/alerts_test.yaml", r"(runbook_url: )\S+?(\w+\.md)$", addresses.RUNBOOKS
    ),
)


def as_generated(copy: Copy, text: str) -> str:
    """Return the text of a file with the current address."""
    made, count = re.subn(copy.pattern, rf"\g<1>{copy.address}\g<2>", text, flags=re.MULTILINE)
    assert count, f"{copy.path} has no line for {copy.address}"
    return made


def write() -> None:
    """Write the addresses into the files that have a copy."""
    for copy in COPIES:
        path = ROOT / copy.path
        path.write_text(as_generated(copy, path.read_text()))
