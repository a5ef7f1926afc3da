"""No module imports from a test module: what tests share is in tests/support."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.support.cli_runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


def modules_imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports, or may import with ``from``."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [f"{node.module or ''}.{alias.name}" for alias in node.names]
        case _:
            return []


def imports_of_tests(name: str, source: str) -> Iterator[str]:
    """Yield file, line and module of each import from a test module."""
    for node in ast.walk(ast.parse(source)):
        for module in modules_imported(node):
            if any(part.startswith("test_") for part in module.split(".")):
                yield f"{name}:{getattr(node, 'lineno', 0)}: {module}"


def test_no_module_imports_from_a_test_module() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    names = [str(file.relative_to(ROOT)) for file in files]
    found = [imports_of_tests(name, (ROOT / name).read_text()) for name in names]
    assert [line for lines in found for line in lines] == []
    assert "tests/contract/test_test_imports.py" in names


@pytest.mark.parametrize(
    "source",
    [
        "import tests.unit.test_plan",
        "from tests.unit import test_plan",
        "from tests.unit.test_plan import LUKS",
        "if True:\n    from tests.unit.test_plan import LUKS as KEY",
        "from .test_plan import LUKS",
    ],
)
def test_import_from_a_test_module_is_recognised(source: str) -> None:
    (found,) = imports_of_tests("x.py", source)
    assert found.startswith(f"x.py:{source.count(chr(10)) + 1}: ")


def test_other_imports_are_accepted() -> None:
    source = "import pytest\nfrom tests.support.unmap_plans import LUKS\nfrom rbdagent import model"
    assert list(imports_of_tests("x.py", source)) == []
