"""File systems of whole Debian suites, in which Ceph's daemons and the nodes' programs run.

debootstrap makes each once, below the cache. A program runs in a root by chroot, in a separate
mount namespace: when the program ends, however it ends, its mounts end too. Standard library only.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.apt import KEYRING, Apt, mirror, proxy
from tests.lab.commands import output
from tests.lab.once import is_made, made_once
from tests.lab.parts import own_suite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.parts import Suite

PACKAGES: Final = (
    "busybox-static",  # the nodes' first program
    "ca-certificates",
    "ceph-common",
    "ceph-mgr",
    "ceph-mon",
    "ceph-osd",
    "cryptsetup-bin",
    "e2fsprogs",
    "iproute2",
    "kmod",
    "procps",
    "python3-rados",
    "python3-rbd",
    "python3-venv",
    "rbd-mirror",
    "rbd-nbd",
    "systemd",
    "xfsprogs",
)
IMAGE_PACKAGES: Final = ("python3", "python3-rados", "python3-rbd")
"""What the .deb depends on: the content of the agent's image, except for the .deb itself."""
_ARCHIVES = "var/cache/apt/archives"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# debootstrap of an older Debian has no script of a newer suite's name; this one works for all.
_DEBOOTSTRAP_SCRIPT = "/usr/share/debootstrap/scripts/sid"
_DPKG_OPTIONS = "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n"
# The licences are a part of an image that is passed on.
_IMAGE_DPKG_OPTIONS = f"{_DPKG_OPTIONS}path-include=/usr/share/doc/*/copyright\n"
_NO_SERVICES = "#!/bin/sh\nexit 101\n"
# When this process is killed, the program ends too, with all its children and its mounts.
_MORTAL = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "-m", "--pid", "--fork", "--kill-child", "--mount-proc"),
)

# $1: the root; pairs of a shared path and its place in the root, up to --; then the program.
_MOUNT = """\
set -e
root=$1
shift
# unshare sets the propagation of /, which must be a mount: programs in the root enter others.
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root$(dirname "$2")"; : >>"$root$2"; fi
  mount --rbind "$1" "$root$2"
  shift 2
done
shift
"""
_EXPORT = f'{_MOUNT}exec "$@"'
# As _MOUNT, read-only but for the directory $2; with the devices that a kernel in user mode needs.
_CONTAIN = """\
set -e
root=$1
writable=$2
shift 2
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
  shift 2
done
shift
mount --bind "$writable" "$root$writable"
# In the machine's own root, it is below a directory that is read-only by now: so is the copy.
mount -o remount,bind,rw "$root$writable"
mount --bind /proc "$root/proc"
mount -o remount,bind,ro "$root/proc"
mount -t tmpfs -o mode=755 dev "$root/dev"
for name in null zero random urandom; do
  : >"$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -o remount,bind,ro "$root"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/dev/shm HOME=/ chroot "$root" "$@"
"""
_ENTER = f'{_MOUNT}exec chroot "$root" /usr/bin/env "$@"'
_KERNEL_TREES = tuple(map(Path, ("/proc", "/sys", "/dev")))


class Root:
    """One root; ``/`` is the machine's own root, in which commands run unchanged.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_own(self) -> bool:
        """Whether this is the machine's own root."""
        return self.path == Path("/")

    def command(
        self,
        argv: Sequence[str | Path],
        *,
        shared: Sequence[Path] = (),
        mounted: Mapping[Path, Path] | None = None,
    ) -> list[str]:
        """Return the command that runs ``argv`` in the root; its pid is the program's.

        The machine's /proc, /sys, /dev and directory of temporary files are there too.

        Args:
            argv: program and arguments.
            shared: files and directories of the machine that are seen at the same path.
            mounted: path in the root -> path of the machine that is seen there.
        """
        words = [str(word) for word in argv]
        if self.is_own:
            return words
        temporary = Path(tempfile.gettempdir())
        seen = {path: path for path in (*_KERNEL_TREES, temporary)}
        seen |= {path: path for path in shared if not path.is_relative_to(temporary)}
        seen |= mounted or {}
        return self._with_mounts(_ENTER, seen, [f"PATH={_PATH}", *words])

    def exported(self, argv: Sequence[str | Path], *, mounted: Mapping[Path, Path]) -> list[str]:
        """Return the command that runs ``argv`` outside, with a view of the root and its mounts.

        Args:
            argv: program and arguments; it finds the root at its path on this machine.
            mounted: path in the root -> directory of the machine that is seen there.
        """
        words = [str(word) for word in argv]
        return words if self.is_own else self._with_mounts(_EXPORT, mounted, words)

    def contained(
        self, argv: Sequence[str | Path], *, mounted: Mapping[Path, Path], writable: Path
    ) -> list[str]:
        """Return the command that runs ``argv`` in the root, where it can write to one directory.

        A kernel of User Mode Linux has all rights of its user on all files that it sees.

        Args:
            argv: program and arguments.
            mounted: path in the root -> directory of the machine that is seen there.
            writable: the directory, below one of those.
        """
        pairs = [str(path) for place, source in mounted.items() for path in (source, place)]
        unshare = ["unshare", "-m", "--propagation", "private", "sh", "-c", _CONTAIN, "mount"]
        words = [str(word) for word in argv]
        return [*unshare, str(self.path), str(writable), *pairs, "--", *words]

    def _with_mounts(
        self, script: str, mounted: Mapping[Path, Path], words: Sequence[str]
    ) -> list[str]:
        pairs = [str(path) for place, source in mounted.items() for path in (source, place)]
        unshare = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "mount"]
        return [*unshare, str(self.path), *pairs, "--", *words]

    def version_of(self, package: str) -> str:
        """Return the upstream version of an installed package."""
        database = self.path / "var" / "lib" / "dpkg"
        answer = output(
            "dpkg-query", f"--admindir={database}", "-W", "-f", "${Version}", package
        )  # fmt: skip
        return upstream_version(answer)


def root_of(cache: Path, suite: Suite) -> Root:
    """Return the root of a suite, made on first use (4 minutes on two cores).

    Args:
        cache: the project's cache directory.
        suite: the machine's own needs none.

    Raises:
        LabError: it cannot be made.
    """
    return Root(Path("/")) if suite == own_suite() else made_root(cache, suite)


def made_root(cache: Path, suite: Suite) -> Root:
    """Return a root below the cache, also of the machine's own suite.

    Raises:
        LabError: it cannot be made.
    """

    def make(new: Path) -> None:
        _make(cache, suite, new, PACKAGES, _DPKG_OPTIONS)

    return Root(made_once(_directory(cache, suite), _key(PACKAGES, _DPKG_OPTIONS), make))


def image_root(cache: Path, suite: Suite, *, current: bool) -> Path:
    """Return a small root with what an image of the .deb needs, made on first use (2 minutes).

    Args:
        cache: the project's cache directory.
        suite: the suite of the packages.
        current: make it again if the archive of the suite has changed since. Without it, an
            existing root is returned.

    Raises:
        LabError: it cannot be made.
    """
    key = _key(IMAGE_PACKAGES, _IMAGE_DPKG_OPTIONS)
    place = cache / "image-roots" / f"{suite.name}-{key[:12]}"
    if place.exists() and not current:
        return place
    apt = Apt(cache, suite)
    apt.update()

    def make(new: Path) -> None:
        _make(cache, suite, new, IMAGE_PACKAGES, _IMAGE_DPKG_OPTIONS)

    return made_once(place, apt.index_digest(), make)


def root_is_made(cache: Path, suite: Suite) -> bool:
    """Return whether the root of a suite exists already."""
    return suite == own_suite() or is_made(_directory(cache, suite), _key(PACKAGES, _DPKG_OPTIONS))


def upstream_version(version: str) -> str:
    """Return ``18.2.7`` of ``18.2.7+ds-1``."""
    return version.rpartition(":")[2].partition("-")[0].partition("+")[0]


def _directory(cache: Path, suite: Suite) -> Path:
    return cache / "roots" / suite.name


def run_in(directory: Path, argv: Sequence[str], **environment: str) -> None:
    """Run a program that installs packages in a root.

    Raises:
        LabError: it failed.
    """
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    output(*_MORTAL, *Root(directory).command(argv), env={**quiet, **environment})


def _key(packages: Sequence[str], dpkg_options: str) -> str:
    return hashlib.sha256("\n".join((*packages, dpkg_options)).encode()).hexdigest()


def _make(
    cache: Path, suite: Suite, directory: Path, packages: Sequence[str], dpkg_options: str
) -> None:
    _debootstrap(suite, directory)
    policy = directory / "usr" / "sbin" / "policy-rc.d"
    policy.write_text(_NO_SERVICES)
    policy.chmod(0o755)
    (directory / "etc" / "dpkg" / "dpkg.cfg.d" / "rbdagent-lab").write_text(dpkg_options)
    apt = Apt(cache, suite, status=directory / "var" / "lib" / "dpkg" / "status")
    apt.update()
    apt.download_needed(packages, directory / _ARCHIVES)
    # apt on this machine fetches, as only that is configured for this network.
    install = (
        "apt-get install -q -y --no-install-recommends --no-download"
        f" /{_ARCHIVES}/*.deb && rm /{_ARCHIVES}/*.deb"
    )
    run_in(directory, ["sh", "-c", install])


def _debootstrap(suite: Suite, directory: Path) -> None:
    output(
        *_MORTAL, "debootstrap", "--variant=minbase", f"--keyring={KEYRING}",
        suite.name, directory, mirror(), _DEBOOTSTRAP_SCRIPT,
        env={"http_proxy": proxy()} if proxy() else {},
    )  # fmt: skip
