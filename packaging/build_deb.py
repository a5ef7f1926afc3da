"""Build a Debian package of a wheel: ``build_deb.py WHEEL --out DIRECTORY``.

The program's requirements from PyPI, as requirements.txt locks them, go to /usr/lib/rbdagent, where
no other program imports them: most versions in Debian 12 are too old, and Debian's own packages
stay unchanged. For what PyPI does not have (Ceph's bindings) the package has dependencies. It fits
the Python that builds it. The build uses only the standard library, pip and dpkg-deb;
docs/packages.md has the reasons.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_string
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from email.message import Message

CHECKOUT: Final = Path(__file__).resolve().parents[1]
LOCKED: Final = CHECKOUT / "requirements.txt"
MAN_PAGE: Final = CHECKOUT / "packaging" / "man_page.py"

DEPENDS: Final = ("python3-rados", "python3-rbd")
"""Requirements that are neither Python nor on PyPI."""

LEFT_OUT: Final = {"kubernetes": "python3-kubernetes"}
"""Requirements that are not packed, and Debian's package of each, which is recommended.

It takes 77 MiB (docs/security.md), and only kubeconfigs with a credential plugin need it.
"""

LAUNCHER: Final = """\
#!/usr/bin/python3 -I
import os.path
import sys

here = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(here), "lib", "rbdagent"))

from rbdagent.__main__ import main

main()
"""
"""Isolated: it runs as root, and must not import from the caller's environment or home."""

COMPLETIONS: Final = {
    "bash": "usr/share/bash-completion/completions/rbdagent",
    "zsh": "usr/share/zsh/vendor-completions/_rbdagent",
    "fish": "usr/share/fish/vendor_completions.d/rbdagent.fish",
}

COPYRIGHT: Final = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: rbdagent
Upstream-Contact: {maintainer}
Source: {homepage}

Files: *
Copyright: 2026 The rbdagent authors
License: Apache-2.0
Comment: The packages from PyPI below /usr/lib/rbdagent have their own licences,
 which are in the directories NAME-VERSION.dist-info/licenses there.

License: Apache-2.0
 On Debian systems, the text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""

CHANGELOG: Final = """\
rbdagent ({version}) unstable; urgency=medium

  * The changes are in /usr/share/doc/rbdagent/CHANGELOG.md.gz.

 -- {maintainer}  {date}
"""
"""In the format that Debian requires (Debian Policy, section 4.4)."""

OVERRIDES: Final = """\
# The wheels from PyPI are packed as they are, with the digests of
# requirements.txt: not stripped, with their own libraries.
rbdagent: unstripped-binary-or-object
rbdagent: embedded-library
# Modules of PyPI whose first line names "python"; nothing runs them as programs.
rbdagent: unusual-interpreter
# There is no debhelper, whose snippets the check expects.
rbdagent: maintainer-script-calls-systemctl
"""
"""The errors and warnings of lintian that the package accepts, each with its reason."""

# The installation enables and starts nothing: an agent first needs a kubeconfig and a key.
SCRIPTS: Final = {
    "postinst": """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  py3compile -p rbdagent /usr/lib/rbdagent
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload
    systemctl try-restart rbdagent.service
  fi
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --no-reload disable --now rbdagent.service
fi
py3clean -p rbdagent
""",
    "postrm": """\
#!/bin/sh
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/rbdagent /var/lib/private/rbdagent
fi
if [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload
fi
""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A distribution of PyPI that the package contains."""

    name: str
    version: str
    sha256: str
    """Digest of the installed wheel."""


def main(argv: Sequence[str] | None = None) -> int:
    """Build the package, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="rbdagent's own wheel")
    parser.add_argument("--out", type=Path, default=Path(), help="directory of the package")
    parser.add_argument(
        "--requirements",
        type=Path,
        default=LOCKED,
        help="with digests; by default the project's requirements.txt. With the file of an earlier"
        " package, the same wheels are packed again",
    )
    parser.add_argument("--compression", default="xz", help="as dpkg-deb -Z takes it")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="rbdagent-deb-") as scratch:
        tree = Path(scratch) / "tree"
        metadata = fill(tree, given.wheel, given.requirements)
        control(tree, metadata)
        given.out.mkdir(parents=True, exist_ok=True)
        print(pack(tree, given.out, given.compression))
    return 0


def fill(tree: Path, wheel: Path, requirements: Path) -> Message:
    """Write every file of the package, and return the wheel's metadata."""
    library = tree / "usr/lib/rbdagent"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(library)
    (found,) = library.glob("rbdagent-*.dist-info/METADATA")
    metadata = message_from_string(found.read_text())
    packed = install(library, metadata, requirements)
    write(tree / "usr/bin/rbdagent", LAUNCHER, mode=0o755)
    for shell, path in COMPLETIONS.items():
        write(tree / path, output_of_program(tree, "completion", shell))
    # The directory of the freeze file: without it nothing is unmapped.
    (tree / "etc/rbdagent").mkdir(parents=True)
    share = tree / "usr/share/rbdagent"
    write(share / "requirements.txt", locked(packed))
    write(share / "sbom.cdx.json", bill_of_materials(metadata, packed))
    units = CHECKOUT / "systemd"
    write(
        tree / "usr/lib/systemd/system/rbdagent.service", (units / "rbdagent.service").read_text()
    )
    for unit in sorted(units.glob("*.conf")):
        write(share / "systemd" / unit.name, unit.read_text())
    # The image has a link to it (Containerfile): a host needs no program with this name.
    write(share / "gather", (CHECKOUT / "packaging" / "gather").read_text(), mode=0o755)
    document(tree / "usr/share/doc/rbdagent", metadata)
    page = output_of([sys.executable, "-IB", str(MAN_PAGE), str(library)])
    compress(tree / "usr/share/man/man1/rbdagent.1.gz", f"{page}\n")
    write(tree / "usr/share/lintian/overrides/rbdagent", OVERRIDES)
    return metadata


def install(library: Path, metadata: Message, requirements: Path) -> tuple[Packed, ...]:
    """Install the wheel's requirements from PyPI as wheels with a known digest, and return them.

    Raises:
        subprocess.CalledProcessError: pip found another digest, or a requirement without one.
    """
    report, wanted = library / "report.json", library / "wanted.txt"
    wanted.write_text(wanted_of(metadata, requirements.read_text()))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--target", str(library), "--no-compile", "--only-binary=:all:"]
    hashed = ["--require-hashes", "-r", str(wanted)]
    subprocess.run([*pip, *options, "--report", str(report), *hashed], check=True)
    wanted.unlink()
    installed = json.loads(report.read_text())["install"]
    report.unlink()
    shutil.rmtree(library / "bin", ignore_errors=True)
    # dpkg records what is installed.
    for name in ("RECORD", "INSTALLER", "REQUESTED"):
        for record in library.glob(f"*.dist-info/{name}"):
            record.unlink()
    # Wheels mark some libraries as executable; Debian Policy 10.2 does not.
    for path in library.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    packed = (
        Packed(
            name=distribution["metadata"]["name"],
            version=distribution["metadata"]["version"],
            sha256=distribution["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for distribution in installed
    )
    return tuple(sorted(packed, key=lambda entry: entry.name.lower()))


def wanted_of(metadata: Message, requirements: str) -> str:
    """Return the locked requirements that the package contains.

    Args:
        metadata: of the wheel.
        requirements: in pip's format, with digests.

    Raises:
        SystemExit: a requirement of the wheel is not locked.
    """
    entries = {_name(line): line for line in requirements.replace("\\\n", "").splitlines()}
    needed = metadata.get_all("Requires-Dist", ())
    names = {_name(need) for need in needed if "extra ==" not in need} - set(LEFT_OUT)
    if missing := names - set(entries):
        raise SystemExit(f"not locked: {', '.join(sorted(missing))}; ./dev lock writes them")
    return "".join(f"{entries[name]}\n" for name in sorted(names))


def _name(requirement: str) -> str:
    """Return the normalised name in a requirement (PEP 503); empty for a comment."""
    name = re.match(r"[\w.-]*", requirement, re.ASCII)
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def output_of_program(tree: Path, *args: str) -> str:
    """Return the output of the packed program."""
    program = [sys.executable, "-IB", str(tree / "usr/bin/rbdagent")]
    return subprocess.run([*program, *args], check=True, capture_output=True, text=True).stdout


def locked(packed: Sequence[Packed]) -> str:
    """Return the packed distributions as pip requirements, which pack the same files again."""
    lines = (
        f"{distribution.name}=={distribution.version} --hash=sha256:{distribution.sha256}\n"
        for distribution in packed
    )
    return "".join(lines)


def bill_of_materials(metadata: Message, packed: Sequence[Packed]) -> str:
    """Return the packed distributions as a CycloneDX 1.5 bill of materials."""
    components = [
        {
            "type": "library",
            "bom-ref": purl(distribution.name, distribution.version),
            "name": distribution.name,
            "version": distribution.version,
            "purl": purl(distribution.name, distribution.version),
            "hashes": [{"alg": "SHA-256", "content": distribution.sha256}],
        }
        for distribution in packed
    ]
    name, version = metadata["Name"], metadata["Version"]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl(name, version),
                "name": name,
                "version": version,
                "purl": purl(name, version),
            }
        },
        "components": components,
    }
    return json.dumps(bill, indent=2) + "\n"


def purl(name: str, version: str) -> str:
    """Return a package URL (purl-spec, type pypi: lower case, dashes)."""
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def document(directory: Path, metadata: Message) -> None:
    """Write what Debian requires of every package: its licence and its change log."""
    facts = {
        "version": metadata["Version"],
        "maintainer": metadata["Author-email"],
        "homepage": homepage(metadata),
        "date": format_datetime(built_at()),
    }
    write(directory / "copyright", COPYRIGHT.format(**facts))
    compress(directory / "changelog.gz", CHANGELOG.format(**facts))
    compress(directory / "CHANGELOG.md.gz", (CHECKOUT / "CHANGELOG.md").read_text())


def built_at() -> datetime:
    """Return the time of SOURCE_DATE_EPOCH; without it, the current time."""
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), UTC)


def control(tree: Path, metadata: Message) -> None:
    """Write the files for dpkg: name, version, dependencies, scripts, digests."""
    major, minor, _ = platform.python_version_tuple()
    # Compiled modules fit one minor version of Python, and are linked with libc.
    python = (f"python3 (>= {major}.{minor})", f"python3 (<< {major}.{int(minor) + 1}~)", "libc6")
    files = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    fields = {
        "Package": metadata["Name"],
        "Version": metadata["Version"],
        "Architecture": output_of(["dpkg", "--print-architecture"]),
        "Maintainer": metadata["Author-email"],
        "Installed-Size": str(sum(path.stat().st_size for path in files) // 1024),
        "Depends": ", ".join((*python, *DEPENDS)),
        "Recommends": ", ".join(LEFT_OUT.values()),
        "Section": "admin",
        "Priority": "optional",
        "Homepage": homepage(metadata),
        "Description": f"{metadata['Summary']}\n rbdagent shows what holds a Ceph RBD volume under"
        " Kubernetes, with evidence. If\n enabled, it unmaps what nothing uses.",
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    digests = "".join(f"{md5(path)}  {path.relative_to(tree)}\n" for path in files)
    write(tree / "DEBIAN/control", text)
    write(tree / "DEBIAN/md5sums", digests)
    for name, script in SCRIPTS.items():
        write(tree / "DEBIAN" / name, script, mode=0o755)


def homepage(metadata: Message) -> str:
    """Return the address of the project, from the wheel's metadata."""
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL", ()))
    return urls["Homepage"]


def md5(path: Path) -> str:
    """Return the digest with which ``dpkg --verify`` detects a changed file."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def pack(tree: Path, out: Path, compression: str) -> Path:
    """Build the package; if SOURCE_DATE_EPOCH is set, the same tree gives the same bytes."""
    for path in (tree, *tree.rglob("*")):
        executable = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if executable else 0o644)
    build = ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", str(tree), str(out)]
    made = output_of(build)
    # dpkg-deb: building package 'rbdagent' in 'PATH'.
    return Path(made.rpartition(" in '")[2].removesuffix("'."))


def output_of(command: Sequence[str]) -> str:
    """Run a program and return its output."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def compress(path: Path, text: str) -> None:
    """Write a file as ``gzip -9n`` does: Debian Policy requires it of pages and change logs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":
    sys.exit(main())
