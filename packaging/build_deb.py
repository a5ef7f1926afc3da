"""Make a Debian package of a wheel: ``build_deb.py WHEEL --out DIRECTORY``.

What the program needs of PyPI, as requirements.txt locks it, goes below /usr/lib/rbdagent, where no
other program looks for it: Debian 12 has too old versions of most of it, and Debian's own packages
stay as they are. What PyPI does not have (Ceph's bindings) the package depends on. It fits the
Python that builds it, and is built with the standard library, pip and dpkg-deb alone;
docs/packages.md tells why so.
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
import zipfile
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from email.message import Message

CHECKOUT: Final = Path(__file__).resolve().parents[1]
LOCKED: Final = CHECKOUT / "requirements.txt"

DEPENDS: Final = ("python3-rados", "python3-rbd")
"""What the program needs beside Python and what PyPI has."""

LEFT_OUT: Final = {"kubernetes": "python3-kubernetes"}
"""Requirements that are not packed, and Debian's package of each, which is recommended.

40 MB for kubeconfigs that have a credential plugin run; nothing else imports it.
"""

MAINTAINER: Final = "The rbdagent authors <packages@rbdagent.dev>"

LAUNCHER: Final = """\
#!/usr/bin/python3 -I
import os.path
import sys

here = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(here), "lib", "rbdagent"))

from rbdagent.__main__ import main

main()
"""
"""Isolated: it runs as root, and nothing of the caller's environment or home is imported."""

COMPLETIONS: Final = {
    "bash": "usr/share/bash-completion/completions/rbdagent",
    "zsh": "usr/share/zsh/vendor-completions/_rbdagent",
    "fish": "usr/share/fish/vendor_completions.d/rbdagent.fish",
}

# Nothing is enabled or started at installation: an agent needs a kubeconfig and a key first.
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
    """One distribution of PyPI that went into the package."""

    name: str
    version: str
    sha256: str
    """Of the wheel that was installed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Build the package, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="rbdagent's own wheel")
    parser.add_argument("--out", type=Path, default=Path(), help="where the package is put")
    parser.add_argument(
        "--requirements",
        type=Path,
        default=LOCKED,
        help="with digests; by default what is locked for the sources. Those of an earlier package"
        " pack the same wheels again",
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
    """Lay out every file of the package; give the wheel's metadata."""
    library = tree / "usr/lib/rbdagent"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(library)
    (found,) = library.glob("rbdagent-*.dist-info/METADATA")
    metadata = message_from_string(found.read_text())
    packed = install(library, metadata, requirements)
    write(tree / "usr/bin/rbdagent", LAUNCHER, mode=0o755)
    for shell, path in COMPLETIONS.items():
        write(tree / path, told_by(tree, "completion", shell))
    # Where the file would be that freezes a node: without the directory nothing is unmapped.
    (tree / "etc/rbdagent").mkdir(parents=True)
    share = tree / "usr/share/rbdagent"
    write(share / "requirements.txt", locked(packed))
    write(share / "sbom.cdx.json", bill_of_materials(metadata, packed))
    units = CHECKOUT / "systemd"
    write(tree / "lib/systemd/system/rbdagent.service", (units / "rbdagent.service").read_text())
    for each in sorted(units.glob("*.conf")):
        write(share / "systemd" / each.name, each.read_text())
    document(tree / "usr/share/doc/rbdagent")
    return metadata


def install(library: Path, metadata: Message, requirements: Path) -> tuple[Packed, ...]:
    """Install what the wheel needs of PyPI, as wheels with a known digest; return what that was.

    Raises:
        subprocess.CalledProcessError: pip found another digest, or a need that has none.
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
    # dpkg keeps the record of what is installed.
    for name in ("RECORD", "INSTALLER", "REQUESTED"):
        for each in library.glob(f"*.dist-info/{name}"):
            each.unlink()
    packed = (
        Packed(
            name=each["metadata"]["name"],
            version=each["metadata"]["version"],
            sha256=each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in installed
    )
    return tuple(sorted(packed, key=lambda each: each.name.lower()))


def wanted_of(metadata: Message, requirements: str) -> str:
    """Return those of the locked requirements that go into the package.

    Args:
        metadata: of the wheel.
        requirements: as pip reads them, with digests.

    Raises:
        SystemExit: one that the wheel needs is not among them.
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


def told_by(tree: Path, *args: str) -> str:
    """Give what the packed program prints."""
    program = [sys.executable, "-IB", str(tree / "usr/bin/rbdagent")]
    return subprocess.run([*program, *args], check=True, capture_output=True, text=True).stdout


def locked(packed: Sequence[Packed]) -> str:
    """Give what was packed as requirements of pip, by which the same is packed again."""
    lines = (f"{each.name}=={each.version} --hash=sha256:{each.sha256}\n" for each in packed)
    return "".join(lines)


def bill_of_materials(metadata: Message, packed: Sequence[Packed]) -> str:
    """Give what was packed as CycloneDX 1.5."""
    components = [
        {
            "type": "library",
            "bom-ref": purl(each.name, each.version),
            "name": each.name,
            "version": each.version,
            "purl": purl(each.name, each.version),
            "hashes": [{"alg": "SHA-256", "content": each.sha256}],
        }
        for each in packed
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
    """Give a package URL (purl-spec, type pypi: lower case, dashes)."""
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def document(directory: Path) -> None:
    """Write what Debian wants of every package: its licence, and what has changed."""
    write(directory / "copyright", (CHECKOUT / "LICENSE").read_text())
    changes = gzip.compress((CHECKOUT / "CHANGELOG.md").read_bytes(), mtime=0)
    (directory / "changelog.gz").write_bytes(changes)


def control(tree: Path, metadata: Message) -> None:
    """Write what dpkg reads: name, version, dependencies, scripts, digests."""
    major, minor, _ = platform.python_version_tuple()
    # Compiled modules fit one minor version of Python.
    python = (f"python3 (>= {major}.{minor})", f"python3 (<< {major}.{int(minor) + 1}~)")
    files = [each for each in sorted(tree.rglob("*")) if each.is_file()]
    fields = {
        "Package": metadata["Name"],
        "Version": metadata["Version"],
        "Architecture": said(["dpkg", "--print-architecture"]),
        "Maintainer": MAINTAINER,
        "Installed-Size": str(sum(each.stat().st_size for each in files) // 1024),
        "Depends": ", ".join((*python, *DEPENDS)),
        "Recommends": ", ".join(LEFT_OUT.values()),
        "Section": "admin",
        "Priority": "optional",
        "Homepage": "https://rbdagent.dev",
        "Description": f"{metadata['Summary']}\n rbdagent tells who holds a Ceph RBD volume under"
        " Kubernetes, with evidence, and\n unmaps what nothing uses where it was switched on.",
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    digests = "".join(f"{md5(each)}  {each.relative_to(tree)}\n" for each in files)
    write(tree / "DEBIAN/control", text)
    write(tree / "DEBIAN/md5sums", digests)
    for name, script in SCRIPTS.items():
        write(tree / "DEBIAN" / name, script, mode=0o755)


def md5(path: Path) -> str:
    """Give the digest by which ``dpkg --verify`` finds a changed file."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def pack(tree: Path, out: Path, compression: str) -> Path:
    """Make the package; with SOURCE_DATE_EPOCH set the same tree gives the same bytes."""
    for each in (tree, *tree.rglob("*")):
        executable = each.is_dir() or os.access(each, os.X_OK)
        each.chmod(0o755 if executable else 0o644)
    build = ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", str(tree), str(out)]
    made = said(build)
    # dpkg-deb: building package 'rbdagent' in 'PATH'.
    return Path(made.rpartition(" in '")[2].removesuffix("'."))


def said(command: Sequence[str]) -> str:
    """Run a program and give what it said."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":
    sys.exit(main())
