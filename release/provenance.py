"""The checksums of a release, and the statement of what it was built from."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from rbdagent.addresses import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from release.checkout import Commit

CHECKSUMS: Final = "SHA256SUMS"
PROVENANCE: Final = "provenance.json"
UNSIGNED: Final = (
    "This statement is not signed: it records how the files were built, and proves nothing about"
    " their origin."
)


def digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a directory, by its name, sorted."""
    files = sorted(path for path in directory.iterdir() if path.name != CHECKSUMS)
    return {path.name: digest(path) for path in files}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(found: Mapping[str, str]) -> str:
    """Return the lines that ``sha256sum --check`` reads."""
    return "".join(f"{value}  {name}\n" for name, value in found.items())


def statement(
    subjects: Mapping[str, str], *, version: str, commit: Commit, lock: str
) -> dict[str, Any]:
    """Return an in-toto statement (v1) with the provenance of SLSA (v1), as JSON.

    Args:
        subjects: name of each file -> its SHA-256.
        version: of the release.
        commit: from which the files were built.
        lock: the SHA-256 of requirements.txt, which names each package from PyPI by its digest.
    """
    source = f"git+{REPOSITORY}@{commit.digest}"
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": value}} for name, value in subjects.items()
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/blob/main/CONTRIBUTING.md#release",
                "externalParameters": {
                    "version": version,
                    "command": f"./dev release {version}",
                    "source": source,
                },
                "internalParameters": {"SOURCE_DATE_EPOCH": commit.epoch},
                "resolvedDependencies": [
                    {"uri": source, "digest": {"gitCommit": commit.digest}},
                    {"name": "requirements.txt", "digest": {"sha256": lock}},
                ],
            },
            # SLSA provenance v1: a field of a vendor has the vendor's name as its prefix.
            "runDetails": {"builder": {"id": REPOSITORY}, "rbdagent_signature": UNSIGNED},
        },
    }


def write_provenance(directory: Path, *, version: str, commit: Commit, lock: Path) -> None:
    """Write the statement about all files of a release, and then the checksums."""
    made = statement(digests(directory), version=version, commit=commit, lock=digest(lock))
    (directory / PROVENANCE).write_text(json.dumps(made, indent=2) + "\n")
    (directory / CHECKSUMS).write_text(checksums(digests(directory)))
