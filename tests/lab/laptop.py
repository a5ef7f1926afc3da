"""The machine of a user: kubectl, helm, the plugin and a kubeconfig; perhaps a key to Ceph."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.lab.errors import LabError
from tests.lab.install import bin_dir
from tests.support.whole_plugin import plugin_directory

if TYPE_CHECKING:
    from pathlib import Path


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """Return stdout and stderr together, as a terminal shows them."""
        return self.stdout + self.stderr


# Other tests have processes on this machine that a laptop has not: tenants that attack a node. The
# shell is the first process, because that one ignores signals it has no handler for (kill(2)).
_APART: Final = (
    *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", '"$@"; exit $?', "laptop"),
)


class Laptop:
    """Runs commands as a user types them.

    Args:
        netns: the network namespace from which the API server is reached.
        kubeconfig: of the user.
        home: where commands run; below it kubectl and helm keep a cache of the API's groups.
        ceph_conf: leads `ceph` to a cluster, as its administrator.
    """

    def __init__(
        self, netns: str, kubeconfig: Path, home: Path, *, ceph_conf: Path | None = None
    ) -> None:
        self._netns = netns
        self._home = home
        self._environment = {
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{bin_dir()}:{plugin_directory()}:/usr/bin:/bin",
            **({} if ceph_conf is None else {"CEPH_CONF": str(ceph_conf)}),
        }

    def run(self, *command: str, stdin: str = "", timeout_s: float = 180) -> Done:
        """Run a command and return its exit code and output."""
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{self._netns}", "--", *_APART, *command],
            env=self._environment,
            cwd=self._home,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def done(self, *command: str, stdin: str = "", timeout_s: float = 180) -> str:
        """Run a command that must succeed, and return its stdout.

        Raises:
            LabError: it failed; the message has its exit code and all its output.
        """
        done = self.run(*command, stdin=stdin, timeout_s=timeout_s)
        if done.code != 0:
            raise LabError(f"{' '.join(command)}: exit {done.code}: {done.said.strip()}")
        return done.stdout
