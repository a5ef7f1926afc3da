"""Credential plugins of kubeconfigs: each runs once per snapshot, and is killed if it hangs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from rbdagent.collect.kube import plugin_child
from rbdagent.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MARGIN_S: Final = 0.5
"""Time to report which plugin hangs before the deadline of the snapshot."""


class Plugin(Struct, frozen=True, kw_only=True):
    """A user of a kubeconfig whose credentials come from a program or a provider."""

    files: tuple[Path, ...]
    context: str
    program: str
    """The exec plugin's command, or the auth provider's name."""

    def __str__(self) -> str:
        """Return the name for an error message."""
        own = f" ({self.program})" if self.program else ""
        return f"kubeconfig {self.files[0]}: the credential plugin of context {self.context!r}{own}"


class PluginCredentials(Struct, frozen=True, kw_only=True):
    """Holds a plugin's credentials: a token, or a certificate and its key, both PEM."""

    token: str | None = None
    cert: tuple[str, str] | None = None

    def __repr__(self) -> str:
        """Return no field: all of them are secret."""
        return "PluginCredentials()"


_one_at_a_time: Final = threading.Lock()
_cached: Final[dict[Plugin, tuple[float, PluginCredentials]]] = {}
"""The last credentials of each plugin, and its start: a snapshot opens several connections."""


def credentials_of_plugin(plugin: Plugin, *, answer_s: float) -> PluginCredentials:
    """Return the credentials of a plugin, which runs once per snapshot.

    Args:
        plugin: the user of a kubeconfig.
        answer_s: the time limit of the snapshot; a plugin that runs for longer is killed.

    Raises:
        SourceError: the plugin failed or hung, or the package that runs it is missing.
    """
    with _one_at_a_time:
        began = time.monotonic()
        known = _cached.get(plugin)
        if known is not None and began - known[0] < answer_s:
            return known[1]
        found = _run(plugin, answer_s - min(_MARGIN_S, answer_s / 4))
        _cached[plugin] = began, found
        return found


def _run(plugin: Plugin, limit_s: float) -> PluginCredentials:
    if importlib.util.find_spec("kubernetes") is None:
        raise SourceError(
            f"{plugin} cannot run: the Python package kubernetes, which runs it, is not installed",
            hint="apt install python3-kubernetes, or pip install kubernetes; a context with a "
            "token or a certificate does not need it",
        )
    failed = SourceError(
        f"{plugin} failed",
        hint="kubectl get --raw /version with the same context shows the plugin's output",
    )
    try:
        found = msgspec.json.decode(_output(plugin, limit_s), type=PluginCredentials)
    except (OSError, subprocess.CalledProcessError, ValueError, RecursionError) as error:
        raise failed from error
    if found.token is None and found.cert is None:
        raise failed
    return found


def _output(plugin: Plugin, limit_s: float) -> bytes:
    request = {
        "path": sys.path,
        "files": [str(path) for path in plugin.files],
        "context": plugin.context,
        "limit_s": limit_s,
    }
    child: Sequence[str] = (sys.executable, "-I", plugin_child.__file__)
    with subprocess.Popen(
        child,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(msgspec.json.encode(request), timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise SourceError(
                f"{plugin} did not answer within {limit_s:g} s, and was killed",
                hint="a longer --timeout may help; kubectl get --raw /version with the same "
                "context shows what it waits for",
            ) from None
        finally:
            # The process group exists until its leader is reaped.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, child)
    return output
