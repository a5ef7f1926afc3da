#!/usr/bin/env python3
"""Build the archive that krew installs, and write its digest into the manifest beside this file.

The same files give the same archive, byte for byte: nothing is compressed, and the archive contains
no time or owner of this machine. Standard library only.
"""

import hashlib
import re
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "rbdagent.yaml"
PROGRAMS = (HERE / "kubectl-rbdagent", HERE / "kubectl_complete-rbdagent")
LICENCE = HERE.parent / "LICENSE"
_UNIX = 3


def main(argv: list[str]) -> int:
    """Write the archive to the path that is given, and the manifest in place."""
    if len(argv) != 1:
        sys.stderr.write(f"usage: {Path(sys.argv[0]).name} ARCHIVE.zip\n")
        return 2
    write_archive(Path(argv[0]))
    write_digest()
    return 0


def write_archive(archive: Path) -> None:
    """Write the plugin's files, each with its mode."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as files:
        for path, mode in (*((program, 0o755) for program in PROGRAMS), (LICENCE, 0o644)):
            entry = zipfile.ZipInfo(path.name)
            entry.create_system = _UNIX
            entry.external_attr = mode << 16
            files.writestr(entry, path.read_bytes())


def write_digest() -> None:
    """Write the digest of the archive into the manifest."""
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "archive"
        write_archive(archive)
        found = digest(archive)
    text = MANIFEST.read_text()
    MANIFEST.write_text(re.sub(r"(?m)^( +sha256: ).*$", rf"\g<1>{found}", text))


def digest(archive: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(archive.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
