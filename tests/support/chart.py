"""The chart as helm renders it without a cluster."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

Json = dict[str, Any]

CHART: Final = Path(__file__).parents[2] / "helm" / "rbdagent"
VARIANTS: Final = {
    path.name.removesuffix("-values.yaml"): path for path in sorted(CHART.glob("ci/*-values.yaml"))
}
"""The values files of ``ci/``, by name."""
RELEASE, NAMESPACE = "rbdagent", "agents"


class Rendered(NamedTuple):
    """The objects of a release."""

    objects: tuple[Json, ...]

    def of_kind(self, kind: str) -> dict[str, Json]:
        """Return the objects of a kind, by name."""
        return {found["metadata"]["name"]: found for found in self.objects if found["kind"] == kind}

    @property
    def daemon_set(self) -> Json:
        """The only DaemonSet."""
        (found,) = self.of_kind("DaemonSet").values()
        return found

    @property
    def pod(self) -> Json:
        """The spec of the agents' pods."""
        spec: Json = self.daemon_set["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Json:
        """The only container of the agents' pods."""
        (only,) = self.pod["containers"]
        found: Json = only
        return found


def helm_template(values: Json, *flags: str, release: str = RELEASE) -> str:
    """Return the manifest that helm renders without a cluster.

    Raises:
        ValueError: helm refuses the values; the text is its message.
    """
    done = subprocess.run(
        ["helm", "template", release, str(CHART), f"--namespace={NAMESPACE}", "--values=-", *flags],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


def render(values: Json | None = None, *flags: str, release: str = RELEASE) -> Rendered:
    """Return the objects that helm renders from values, see :func:`helm_template`."""
    return _rendered(json.dumps(values or {}), flags, release)


@functools.cache
def _rendered(values: str, flags: tuple[str, ...], release: str) -> Rendered:
    manifest = helm_template(json.loads(values), *flags, release=release)
    return Rendered(tuple(found for found in yaml.safe_load_all(manifest) if found))


def values_of(variant: str) -> Json:
    """Return the values of a file of ``ci/``."""
    values: Json = yaml.safe_load(VARIANTS[variant].read_text())
    return values
