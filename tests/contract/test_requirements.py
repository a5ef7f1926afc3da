"""What is installed of PyPI, and what pyproject.toml asks for."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]


def test_each_package_that_the_agent_depends_on_is_imported() -> None:
    """What nothing uses is code that runs as root on every node all the same."""
    of_module = packages_distributions()
    imported = {
        canonicalize_name(package)
        for module in imported_modules()
        for package in of_module.get(module, ())
    }
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert declared - imported == set()


def imported_modules() -> set[str]:
    """Return the top-level modules that rbdagent imports, anywhere in a file."""
    found = set()
    for path in (CHECKOUT / "rbdagent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                found.add(node.module.partition(".")[0])
    return found
