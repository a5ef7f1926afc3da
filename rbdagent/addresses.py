"""The public addresses of the project; ``./dev docs`` copies them into files that are no Python."""

from __future__ import annotations

from typing import Final

SITE: Final = "https://rbdagent.dev"
REPOSITORY: Final = "https://github.com/rbdagent/rbdagent"
REGISTRY: Final = "registry.rbdagent.dev"
"""The registry of the image, as the chart names it by default."""
SECURITY: Final = "security@rbdagent.dev"
"""Takes reports of vulnerabilities."""
MAINTAINER: Final = "packages@rbdagent.dev"

DOCUMENTATION: Final = f"{SITE}/docs"
CHANGELOG: Final = f"{SITE}/changelog"
RELEASES: Final = f"{SITE}/releases"
"""The files of version X are below ``RELEASES/vX/``."""
SCHEMAS: Final = f"{SITE}/schemas/v1alpha1/"
RUNBOOKS: Final = f"{REPOSITORY}/blob/main/docs/runbooks/"
