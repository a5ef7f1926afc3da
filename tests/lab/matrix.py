"""``./dev matrix``: run the parts against each other, and write docs/compatibility.md.

Each cell is one run of pytest with other parts. docs/compatibility.json keeps the result of a run
with its commit and day, so that some of the cells can be run again alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from tests.lab.commands import interruptible, output
from tests.lab.errors import LabError
from tests.lab.install import (
    CHECKOUT,
    Narrator,
    bin_dir,
    cache_dir,
    given_cephcsi,
    install_lab_tests,
    shared_cephcsi,
    venv_python,
)
from tests.lab.junit import count, recorded
from tests.lab.kernels import kernel_of
from tests.lab.matrix_cells import VARIABLE, cells
from tests.lab.matrix_document import (
    DOCUMENT,
    README,
    Result,
    document,
    read_record,
    readme,
    write_record,
)
from tests.lab.parts import SUITES, chosen_parts
from tests.lab.roots import Root, made_root, root_of
from tests.lab.venvs import inside, venv_of, venv_place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.lab.matrix_cells import Cell


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cells that the arguments name, by default all, and write the document."""
    parser = argparse.ArgumentParser(prog="./dev matrix", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a cell, or how its name begins")
    parser.add_argument("--list", action="store_true", help="print the cells and run none")
    parser.add_argument("--write", action="store_true", help="write the document and run none")
    given = parser.parse_args(argv)
    chosen = [cell for cell in cells() if _is_chosen(cell, given.names)]
    if given.list:
        print("\n".join(_listed(cell) for cell in chosen))
        return 0
    failed = False
    cephcsi = given_cephcsi() or shared_cephcsi()
    for cell in () if given.write else chosen:
        if cell.cephcsi and cephcsi is None:
            print(f"{cell.name} is not run: --cephcsi PATH names the program that it needs")
        elif not (cell.reason or cell.same_as):
            result = _run(cell, cephcsi)
            failed |= result.state != "passed"
            # Another run may have written other cells meanwhile.
            write_record({**read_record(), cell.name: result})
    DOCUMENT.write_text(document(cells(), read_record()))
    README.write_text(readme(README.read_text(), read_record()))
    print(f"{DOCUMENT.relative_to(CHECKOUT)} and the table of README.md are written")
    return 1 if failed else 0


def _listed(cell: Cell) -> str:
    why = f"shows {cell.same_as}" if cell.same_as else cell.reason
    return f"{cell.name:<48} {why}".rstrip()


def _is_chosen(cell: Cell, names: Sequence[str]) -> bool:
    return not names or any(cell.name.startswith(name) for name in names)


def _run(cell: Cell, cephcsi: Path | None) -> Result:
    """Run one cell; its parts are made first, and that time is not counted."""
    os.environ |= {name: cell.parts.get(flag, "") for flag, name in VARIABLE.items()}
    # Each cell names the kernel of a distribution.
    os.environ["RBDAGENT_LAB_NODE"] = "qemu"
    os.environ["RBDAGENT_CEPHCSI"] = str(cephcsi) if cell.cephcsi else ""
    narrator = Narrator()
    install_lab_tests(narrator, SUITES[-1:])
    with narrator.step(f"roots for {cell.name} (once each; 4 minutes on two cores)"):
        needed = _made(cell)
    junit = cache_dir() / "junit" / f"{cell.name.replace('/', '-')}.xml"
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    command = _command(cell, junit)
    path = f"{venv_python().parent}:{bin_dir()}:{os.environ['PATH']}"
    started = time.monotonic()
    environment = {**os.environ, "PATH": path}
    with (
        narrator.step(f"matrix {cell.name}") as log,
        log.open("ab") as stream,
        interruptible(command, cwd=CHECKOUT, env=environment, output=stream) as child,
    ):
        code = child.wait()
    passed, wrong, skipped = count(junit)
    fine = code == 0 and passed > 0
    return Result(
        state="passed" if fine else "FAILED",
        ran=f"{passed} of {passed + wrong + skipped} tests",
        commit=_commit(),
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        seconds=round(time.monotonic() - started),
        disk_mib=_disk_mib(needed),
        versions=_versions(cell),
        recorded=recorded(junit),
    )


def _made(cell: Cell) -> list[Path]:
    """Make the roots that the cell needs beyond those of any lab, and return what it needs."""
    parts = chosen_parts()
    cache = cache_dir()
    suites = {parts.ceph.name: parts.ceph, parts.debian.name: parts.debian}
    if cell.client is not None:
        # In the client's root the machine's own suite is another one's.
        suites = {suite.name: suite for suite in (parts.ceph, cell.client)}
        for suite in suites.values():
            made_root(cache, suite)
        venv_of(cache, cell.client)
    directories = [
        cache / kind / name for kind in ("roots", "venvs", "runtimes") for name in suites
    ]
    directories.append(cache / "kernels" / parts.kernel.name)
    return [directory for directory in directories if directory.exists()]


def _command(cell: Cell, junit: Path) -> list[str]:
    pytest: list[str | Path] = [venv_python(), "-m", "pytest", "-q", "-n", "0"]
    pytest += [f"--junitxml={junit}", *cell.tests]
    if cell.client is None:
        return [str(word) for word in pytest]
    cache = cache_dir()
    root = Root(cache / "roots" / cell.client.name)
    place = venv_place(cache)
    at_checkout = ["env", "-C", CHECKOUT, f"PYTHONPATH={CHECKOUT}", *pytest]
    return inside(root, at_checkout, {cache: cache, place: venv_of(cache, cell.client)})


def _versions(cell: Cell) -> dict[str, str]:
    parts = chosen_parts()
    cache = cache_dir()
    if cell.client is None:
        ceph = root_of(cache, parts.ceph).version_of("ceph-mon")
        return {"Ceph": ceph, "kernel": kernel_of(cache, parts.kernel).release}
    return {
        "Ceph": made_root(cache, parts.ceph).version_of("ceph-mon"),
        "bindings": made_root(cache, cell.client).version_of("python3-rbd"),
    }


def _commit() -> str:
    """Return the commit of the checkout, with a plus where the product or its tests differ."""
    commit = output("git", "rev-parse", "--short", "HEAD", cwd=CHECKOUT).strip()
    product = ("rbdagent", "docs/runbooks")
    changed = output("git", "status", "--porcelain", "--", *product, "tests", cwd=CHECKOUT)
    return f"{commit}+" if changed.strip() else commit


def _disk_mib(directories: Sequence[Path]) -> int:
    if not directories:
        return 0
    lines = output("du", "-sm", *directories).splitlines()
    return sum(int(line.split()[0]) for line in lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        print(f"./dev matrix: {error}", file=sys.stderr)
        sys.exit(1)
