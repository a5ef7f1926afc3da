"""The kubectl plugin as it is installed: with the texts that a release appends to the program."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from release import plugin


@functools.cache
def plugin_directory() -> Path:
    """Return a directory with the whole plugin; it is removed when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="rbdagent-plugin-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    plugin.write(directory)
    return directory
