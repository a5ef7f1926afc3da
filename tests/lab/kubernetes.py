"""The Go module from which the Kubernetes programs of a lab are built, for any version.

Standard library only, like :mod:`tests.lab.install`, which calls this.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.lab.parts import DEFAULT_KUBERNETES

if TYPE_CHECKING:
    from pathlib import Path

_REPLACEMENT = re.compile(r"^\s*(k8s\.io/\S+) => k8s\.io/\S+ v0\.", re.MULTILINE)
_GO = re.compile(r"^go .*$", re.MULTILINE)


def kubernetes_module(cache: Path, module: Path, version: str) -> Path:
    """Return the directory of a Go module that builds Kubernetes of ``version``.

    Args:
        cache: the project's cache directory.
        module: the module of the checkout; it is for the default version.
        version: such as ``v1.35.2``.
    """
    if version == DEFAULT_KUBERNETES:
        return module
    directory = cache / "kubernetes" / version
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "go.mod").exists():
        (directory / "go.mod").write_text(go_mod(module.joinpath("go.mod").read_text(), version))
    return directory


def go_mod(default: str, version: str) -> str:
    """Return a go.mod that requires Kubernetes of ``version``, and its staging modules.

    Go adds the versions of all other dependencies that this Kubernetes requires.

    Args:
        default: go.mod for the default version; it names the staging modules.
        version: such as ``v1.35.2``.
    """
    staging = f"v0.{version.removeprefix('v1.')}"
    lines = [
        "module rbdagent.dev/lab",
        *_GO.findall(default),
        f"require k8s.io/kubernetes {version}",
    ]
    lines += [
        f"replace {name} => {name} {staging}" for name in sorted(set(_REPLACEMENT.findall(default)))
    ]
    return "\n".join(lines) + "\n"
