"""Check whether a process listens on a unix socket of the host.

``/proc/net/unix`` shows the name that the process passed to bind(2), in its own mount namespace:
``/csi/csi.sock`` for ceph-csi (deploy/csi-rbdplugin.yaml), ``/registration/…-reg.sock`` for the
node-driver-registrar (cmd/csi-node-driver-registrar, ``--plugin-registration-path``). It lists only
the sockets of one network namespace. So a name that is missing there proves nothing. connect(2)
uses the inode (net/unix/af_unix.c, unix_find_bsd) and works for every namespace: kubelet and the
livenessprobe sidecar do the same for each call. rbdagent closes the connection at once.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from typing import TYPE_CHECKING, Final

from rbdagent.collect.files import LISTS, failure, read_text
from rbdagent.model import NotObserved

if TYPE_CHECKING:
    from pathlib import Path

_ACCEPTS: Final = "00010000"
"""__SO_ACCEPTCON: the flag of a listening socket in /proc/net/unix."""


def listening_names(procfs: Path) -> frozenset[str]:
    """Read the names of the host's listening sockets; ``//`` in a name counts as ``/``."""
    text = read_text(procfs / "1" / "net" / "unix", LISTS)
    rows = (line.split(None, 7) for line in text.splitlines()[1:]) if isinstance(text, str) else ()
    return frozenset(
        re.sub("/+", "/", row[7]) for row in rows if len(row) > 7 and row[3] == _ACCEPTS
    )


def listens(path: str, *, suffix: str, names: frozenset[str]) -> bool | NotObserved | None:
    """Return whether a process listens on a socket; None if the file does not exist.

    Args:
        path: of the file, as visible to rbdagent.
        suffix: the end of its path on the host, without kubelet's root directory.
        names: the result of `listening_names`, used if connect(2) is not permitted.
    """
    state = _connects(path)
    if isinstance(state, NotObserved) and any(name.endswith(suffix) for name in names):
        return True
    return state


def _connects(path: str) -> bool | NotObserved | None:
    directory, name = os.path.split(path)
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return NotObserved(reason=f"{path} is not a socket")
        held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return failure(path, error)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as to:
            # A socket address has at most 107 bytes. A path below kubelet's root in /host may be
            # longer.
            to.connect(f"/proc/self/fd/{held}/{name}")
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return False
        # EAGAIN: the process listens, but its queue of unaccepted connections is full.
        return True if error.errno == errno.EAGAIN else failure(path, error)
    finally:
        os.close(held)
    return True
