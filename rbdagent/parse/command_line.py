"""Command lines of processes: the arguments, and which programs are of interest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rbdagent.parse.secrets import command_without_secrets, without_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

KUBELETS: Final = frozenset({"kubelet", "kubelite", "k3s", "rke2", "k0s"})
"""Programs that are kubelet or contain it."""
_WORKERS: Final = frozenset(
    {"rbd", "rbd-nbd", "mount", "umount", "blkid", "cryptsetup", "fsck", "e2fsck", "xfs_repair",
     "resize2fs", "xfs_growfs", "tune2fs", "dumpe2fs", "wipefs"}
)  # fmt: skip
_STORAGE: Final = frozenset(
    {"blockdev", "cephcsi", "dmsetup", "findmnt", "fstrim", "hdparm", "losetup", "lsblk",
     "lvchange", "lvm", "lvs", "multipath", "multipathd", "parted", "partprobe", "pvs", "pvscan",
     "sfdisk", "sgdisk", "udevadm", "vgchange", "vgs", "vgscan", "xfs_admin", "xfs_db",
     "xfs_freeze", "xfs_io"}
)  # fmt: skip
_FILES: Final = frozenset(
    {"cat", "chmod", "chown", "cp", "dd", "df", "du", "fio", "head", "less", "ls", "mv", "rm",
     "rsync", "sleep", "sync", "tail", "touch", "vi", "vim"}
)  # fmt: skip
"""Programs that hold a file system open and take no secret without a name."""
_MOST_CHARACTERS: Final = 200


def parse_command_line(line: bytes, *, is_cut: bool) -> tuple[str, ...]:
    """Return the arguments in ``/proc/PID/cmdline``, of which only the first part may be read.

    Part of a secret is not recognised as a secret: an incomplete argument is omitted.
    """
    whole = line.rpartition(b"\0")[0] or line if is_cut else line.rstrip(b"\0")
    return tuple(word.decode(errors="replace") for word in whole.split(b"\0"))


def first_argument(line: bytes) -> str:
    """Return the first argument in ``/proc/PID/cmdline``."""
    return line.partition(b"\0")[0].decode(errors="replace")


def base_name(path: str) -> str:
    """Return the name of a program without its directory."""
    return path.rpartition("/")[2]


def program_of(command: str) -> str:
    """Return the name of the program of a command, without directory and arguments.

    k3s and RKE2 put all of their arguments into the first one: ``/usr/local/bin/k3s server``.
    """
    return base_name(command.partition(" ")[0])


def is_worker(program: str) -> bool:
    """Return whether a program maps, unmaps, formats, checks, mounts or unlocks."""
    return program in _WORKERS or program.startswith(("mkfs", "mke2fs", "fsck"))


def has_parsed_arguments(argument: str) -> bool:
    """Return whether the arguments of a program are parsed, according to the first one."""
    program = program_of(argument)
    return program in KUBELETS or is_worker(program)


def shown_command(arguments: tuple[str, ...], *, is_cut: bool) -> str:
    """Return a command line for people, without secrets: of a long one only the beginning.

    The arguments are shown only of programs whose arguments explain why they hold a device, and
    that take no secret without a name before it (``mysql -p``, ``redis-cli AUTH``).
    """
    program, _, further = arguments[0].partition(" ")
    if not _has_shown_arguments(base_name(program)):
        text = without_secrets(program)
        return f"{text} …" if further or arguments[1:] or is_cut else text
    text = command_without_secrets(arguments)
    if len(text) <= _MOST_CHARACTERS and not is_cut:
        return text
    return f"{text[: _MOST_CHARACTERS - 2]} …"


def _has_shown_arguments(program: str) -> bool:
    return program in KUBELETS | _STORAGE | _FILES or is_worker(program)


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of ``--flag=VALUE`` or ``--flag VALUE``."""
    for word, following in zip(arguments, (*arguments[1:], ""), strict=True):
        if word == flag:
            return following or None
        if word.startswith(f"{flag}="):
            return word.partition("=")[2] or None
    return None
