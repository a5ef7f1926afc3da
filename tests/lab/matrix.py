"""``./dev matrix``: run the parts against each other, and write docs/compatibility.md.

Each cell is one run of pytest with other parts. What a run found is kept in docs/compatibility.json
with its commit and day, so that a part of the cells can be run again alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from tests.lab.commands import interruptible, output
from tests.lab.errors import LabError
from tests.lab.install import (
    CHECKOUT,
    Narrator,
    bin_dir,
    cache_dir,
    given_cephcsi,
    install_lab,
    shared_cephcsi,
    venv_python,
)
from tests.lab.junit import count, recorded
from tests.lab.kernels import kernel_of
from tests.lab.parts import DEFAULT_KUBERNETES, OPTIONS, SUITES, USERLANDS, Suite, chosen_parts
from tests.lab.roots import Root, made_root, root_of
from tests.lab.support_table import with_support_table
from tests.lab.venvs import inside, venv_of, venv_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.lab.parts import Parts

RECORD: Final = CHECKOUT / "docs" / "compatibility.json"
DOCUMENT: Final = CHECKOUT / "docs" / "compatibility.md"
README: Final = CHECKOUT / "README.md"

KUBERNETES: Final = ("v1.35.4", DEFAULT_KUBERNETES, "v1.37.2")
"""The newest patch of each of the three newest minors."""

_CEPH_TESTS = (
    "tests/integration/test_observe_ceph.py",
    "tests/integration/test_ceph_networks.py",
)
_VM_TESTS = ("tests/integration/test_lab_vm.py",)
_E2E_TESTS = ("tests/e2e/test_founding_incident.py",)
_LIBRADOS_KEY_TESTS = ("tests/integration/test_keys.py",)
_KERNEL_KEY_TESTS = (
    "tests/integration/test_lab_vm.py::test_a_key_of_type_aes256k_is_mapped_or_named",
    "tests/integration/test_lab_vm.py::test_a_user_that_the_remedy_of_rbd747_creates_can_map",
    "tests/integration/test_lab_vm.py::test_rbd_of_ceph_20_maps_by_msgr2_or_its_option_is_named",
)
_DEB_TESTS = ("tests/integration/test_packages.py::test_the_debs_program_asks_ceph",)
_VARIABLE = {option.flag: option.variable for option in OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: which tests, on which parts, and where its result is shown."""

    name: str
    table: str
    row: str
    column: str
    parts: Mapping[str, str]
    """Flag of ``./dev`` -> value."""
    tests: tuple[str, ...]
    client: Suite | None = None
    """pytest runs in the root of this suite, with its Python and bindings."""
    cephcsi: bool = False
    """A real ceph-csi is the driver."""
    reason: str = ""
    """Why the cell is not run; empty for one that is."""
    same_as: str = ""
    """Name of the cell whose result this one shows; it is not run itself."""

    def chosen_parts(self) -> Parts:
        """Return what the lab of this cell is made of."""
        return chosen_parts({_VARIABLE[flag]: value for flag, value in self.parts.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run of a cell found."""

    state: str
    """``passed`` or ``FAILED``."""
    ran: str
    commit: str
    day: str
    seconds: int
    disk_mib: int
    """Roots, kernels and environments that the cell needs; cells share them."""
    versions: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    """What the tests recorded, by the names of :data:`_TOLD`."""


CEPH_TABLE: Final = "Ceph: bindings and servers"
KERNEL_TABLE: Final = "Kernels"
KEYS_TABLE: Final = "Keys of type aes256k"
ARTEFACT_TABLE: Final = "Which Ceph clusters each artefact can reach"
E2E_TABLE: Final = "End to end"
INTRODUCTIONS: Final = {
    CEPH_TABLE: (
        "`tests/integration/test_observe_ceph.py` and `test_ceph_networks.py`: every question to"
        " Ceph, asked with the Python and the bindings of a Debian release (rows) of a cluster of"
        " another (columns), over messenger v1, msgr2 and IPv6."
    ),
    KERNEL_TABLE: (
        "`tests/integration/test_lab_vm.py`: a VM that maps an image; the watcher that Ceph reports"
        " is the client that sysfs reports."
    ),
    KEYS_TABLE: (
        "`tests/integration/test_keys.py` and, for kernels, `test_lab_vm.py`: a user with a key of"
        " the type that Ceph 20.2.4 creates by default. What is said to it, the remedy that"
        " rbdagent names, typed as it stands, and what came of it. `rbd` is that of Ceph 20.2,"
        " since an older one cannot read the key; with the key of the remedy, any rbd can map."
    ),
    ARTEFACT_TABLE: (
        "Whether rbdagent, as it was installed, gets its answers from a cluster. The `.deb` is"
        " built and run with the Python and the bindings of its Debian"
        " (`tests/integration/test_packages.py`). The image is the `.deb` on the base that"
        " `Containerfile` names. `pip install` takes the bindings of the distribution: the"
        " results are those of the tables above. Where it says no, a user whose key is of type"
        " aes is answered: [Key types](install.md#key-types)."
    ),
    E2E_TABLE: (
        "`tests/e2e/test_founding_incident.py`: Multi-Attach on two nodes, its cause, the unmap by"
        " an agent, and the next pod."
    ),
}
_REAL_DRIVER = "ceph-csi"
_OLD_CLIENT = (
    "librados before 20.2 cannot use keys of type aes256k (CVE-2025-30156);"
    f" what it says is below, in {KEYS_TABLE}"
)
_TOLD = ("rbd", "kernel", "said", "typed", "then", "rbd of Ceph 20.2")
"""What rbd, the kernel and rbdagent said of a key, the remedy as it was typed, and the results."""
_BASE = re.compile(r"^ARG BASE=\S+/debian:(\w+)-slim$", re.MULTILINE)


def cells() -> tuple[Cell, ...]:
    """Return every cell, in the order of the document."""
    return (
        *_ceph_cells(),
        *_kernel_cells(),
        *_key_cells(),
        *_artefact_cells(),
        *_e2e_cells(),
    )


def _servers() -> list[tuple[Suite, str]]:
    """Return each Ceph with each type of key that it knows."""
    return [(suite, keys) for suite in USERLANDS for keys in suite.keys]


def _server_text(server: Suite, keys: str) -> str:
    return f"Ceph {server.ceph}" if keys == "aes" else f"Ceph {server.ceph}, keys {keys}"


def _ceph_cells() -> list[Cell]:
    found = []
    for client in USERLANDS:
        for server, keys in _servers():
            reason = _OLD_CLIENT if keys not in client.keys else ""
            cell = Cell(
                name=f"ceph/{client.debian}/{server.ceph}/{keys}",
                table=CEPH_TABLE,
                row=f"Debian {client.debian} ({client.ceph})",
                column=_server_text(server, keys),
                parts={"--ceph": server.ceph, "--keys": keys},
                tests=_CEPH_TESTS,
                client=client,
                reason=reason,
            )
            found.append(cell)
    return found


def _kernel_cells() -> list[Cell]:
    return [
        Cell(
            name=f"kernel/{suite.kernel}",
            table=KERNEL_TABLE,
            row=f"kernel {suite.kernel}",
            column="Debian 13, Ceph 18.2",
            parts={"--debian": "13", "--kernel": suite.kernel},
            tests=_VM_TESTS,
        )
        for suite in SUITES
    ]


def _key_cells() -> list[Cell]:
    newest = USERLANDS[-1]
    column = _server_text(newest, "aes256k")
    of_librados = [
        Cell(
            name=f"keys/librados/{client.debian}",
            table=KEYS_TABLE,
            row=f"librados {client.ceph} (Debian {client.debian})",
            column=column,
            parts={"--ceph": newest.ceph, "--keys": "aes256k"},
            tests=_LIBRADOS_KEY_TESTS,
            client=client,
        )
        for client in USERLANDS
    ]
    of_kernels = [
        Cell(
            name=f"keys/kernel/{suite.kernel}",
            table=KEYS_TABLE,
            row=f"kernel {suite.kernel}",
            column=column,
            parts={"--debian": "13", "--ceph": newest.ceph, "--kernel": suite.kernel},
            tests=_KERNEL_KEY_TESTS,
        )
        for suite in SUITES
    ]
    return of_librados + of_kernels


def _artefact_cells() -> list[Cell]:
    return [cell for server, keys in _servers() for cell in _artefacts_with(server, keys)]


def _artefacts_with(server: Suite, keys: str) -> Iterator[Cell]:
    """Return each artefact with one kind of cluster."""
    column, parts = _server_text(server, keys), {"--ceph": server.ceph, "--keys": keys}
    base = image_base()
    yield Cell(
        name=f"image/{server.ceph}/{keys}",
        table=ARTEFACT_TABLE,
        row=f"image (Debian {base.debian})",
        column=column,
        parts=parts,
        tests=(),
        same_as=f"deb/{base.debian}/{server.ceph}/{keys}",
    )
    for client in USERLANDS:
        yield Cell(
            name=f"deb/{client.debian}/{server.ceph}/{keys}",
            table=ARTEFACT_TABLE,
            row=f"`.deb` on Debian {client.debian}",
            column=column,
            parts=parts,
            tests=_DEB_TESTS,
            client=client,
        )
    for client in USERLANDS:
        asked = f"ceph/{client.debian}/{server.ceph}/{keys}"
        yield Cell(
            name=f"pip/{client.debian}/{server.ceph}/{keys}",
            table=ARTEFACT_TABLE,
            row=f"`pip install` on Debian {client.debian}",
            column=column,
            parts=parts,
            tests=(),
            same_as=asked if keys in client.keys else f"keys/librados/{client.debian}",
        )


def image_base(containerfile: Path = CHECKOUT / "Containerfile") -> Suite:
    """Return the Debian suite that the agent's image is built on.

    Raises:
        LabError: its base is none of those that the lab knows.
    """
    found = _BASE.search(containerfile.read_text())
    suites = {suite.name: suite for suite in USERLANDS}
    if found is None or found[1] not in suites:
        raise LabError(f"{containerfile}: BASE is no slim image of {', '.join(suites)}")
    return suites[found[1]]


def _e2e_cells() -> list[Cell]:
    newest = USERLANDS[-1].debian
    rows: dict[str, dict[str, str]] = {
        f"Debian {suite.debian} with its Ceph and kernel": {"--debian": suite.debian}
        for suite in USERLANDS
    }
    rows |= {
        f"Kubernetes {version}": {"--debian": "13", "--kubernetes": version}
        for version in KUBERNETES
        if version != DEFAULT_KUBERNETES
    }
    rows["kernel 5.10"] = {"--debian": "13", "--kernel": "5.10"}
    rows["keys aes256k"] = {"--debian": newest, "--keys": "aes256k"}
    rows["monitors of messenger v1 alone"] = {"--debian": "13", "--monitors": "v1"}
    rows["monitors of msgr2 alone"] = {"--debian": "13", "--monitors": "v2"}
    rows["IPv6 alone"] = {"--debian": "13", "--network": "ipv6"}
    rows["dual stack with Ceph on IPv6"] = {"--debian": "13", "--network": "dual"}
    rows[_REAL_DRIVER] = {"--debian": "13"}
    return [
        Cell(
            name=f"e2e/{row.replace(' ', '-')}",
            table=E2E_TABLE,
            row=row,
            column=" ".join((*(word for pair in parts.items() for word in pair), *_driver(row))),
            parts=parts,
            tests=_E2E_TESTS,
            cephcsi=row == _REAL_DRIVER,
        )
        for row, parts in rows.items()
    ]


def _driver(row: str) -> tuple[str, ...]:
    """Return the words of ``./dev`` that choose a row's driver."""
    return ("--cephcsi", "PATH") if row == _REAL_DRIVER else ()


# Not played by any test yet: each line is a value of an axis, and why it has no cell.
NOT_TRIED: Final = (
    ("Ceph 14.2", "its bindings need a Python older than 3.11; end of life in 2021"),
    ("kernels of Enterprise Linux 9 (5.14) and Ubuntu 24.04 (6.8)", "not packaged by Debian"),
)


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
            _write_record({**read_record(), cell.name: result})
    DOCUMENT.write_text(document(cells(), read_record()))
    README.write_text(readme(README.read_text(), read_record()))
    print(f"{DOCUMENT.relative_to(CHECKOUT)} and the table of README.md are written")
    return 1 if failed else 0


def _listed(cell: Cell) -> str:
    why = f"shows {cell.same_as}" if cell.same_as else cell.reason
    return f"{cell.name:<48} {why}".rstrip()


def _is_chosen(cell: Cell, names: Sequence[str]) -> bool:
    return not names or any(cell.name.startswith(name) for name in names)


def read_record() -> dict[str, Result]:
    """Return the last result of each cell that was ever run."""
    if not RECORD.exists():
        return {}
    return {name: Result(**result) for name, result in json.loads(RECORD.read_text()).items()}


def _write_record(results: Mapping[str, Result]) -> None:
    known = {cell.name for cell in cells()}
    kept = {name: _record(result) for name, result in results.items() if name in known}
    RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _record(result: Result) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if value != {}}


# One cell -----------------------------------------------------------------------------------------


def _run(cell: Cell, cephcsi: Path | None) -> Result:
    """Run one cell; what it needs is made first and not counted."""
    os.environ |= {name: cell.parts.get(flag, "") for flag, name in _VARIABLE.items()}
    os.environ["RBDAGENT_CEPHCSI"] = str(cephcsi) if cell.cephcsi else ""
    narrator = Narrator()
    install_lab(narrator, SUITES[-1:])
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
    changed = output("git", "status", "--porcelain", "--", "rbdagent", "tests", cwd=CHECKOUT)
    return f"{commit}+" if changed.strip() else commit


def _disk_mib(directories: Sequence[Path]) -> int:
    if not directories:
        return 0
    lines = output("du", "-sm", *directories).splitlines()
    return sum(int(line.split()[0]) for line in lines)


# The document -------------------------------------------------------------------------------------


def readme(text: str, results: Mapping[str, Result]) -> str:
    """Return README with the table of what is proven."""
    ends = [cell for cell in cells() if cell.table == E2E_TABLE]
    passed = {name for name, result in results.items() if result.state == "passed"}
    return with_support_table(text, ends, passed)


def document(cells: Sequence[Cell], results: Mapping[str, Result]) -> str:
    """Return docs/compatibility.md."""
    lines = [
        "# Compatibility",
        "",
        "Written by `./dev matrix`. A cell is one run on real parts:",
        "what passed, the commit, the day, the time, and the disk space of its roots and kernels.",
    ]
    for table, introduction in INTRODUCTIONS.items():
        members = [cell for cell in cells if cell.table == table]
        lines += ["", f"## {table}", "", introduction, "", *_table(members, results)]
    lines += ["", "## Not tried", ""]
    lines += [f"- {what}: {why}." for what, why in NOT_TRIED]
    return "\n".join(lines) + "\n"


def _table(cells: Sequence[Cell], results: Mapping[str, Result]) -> list[str]:
    columns = list(dict.fromkeys(cell.column for cell in cells))
    by_place = {(cell.row, cell.column): cell for cell in cells}
    if len(columns) == len(cells):
        # Each row has parts of its own: one column of results.
        rows = [(f"{cell.row} (`{cell.column}`)", [cell]) for cell in cells]
        columns = ["result"]
    else:
        names = dict.fromkeys(cell.row for cell in cells)
        rows = [(row, [by_place[row, column] for column in columns]) for row in names]
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row, members in rows:
        texts = " | ".join(_text(cell, results.get(cell.same_as or cell.name)) for cell in members)
        lines.append(f"| {row} | {texts} |")
    return lines


def _text(cell: Cell, result: Result | None) -> str:
    if cell.reason:
        return f"not tried: {cell.reason}"
    if result is None:
        return "not tried: not run yet, `./dev matrix` runs it"
    versions = ", ".join(f"{what} {version}" for what, version in result.versions.items())
    place = f"{result.commit}, {result.day}, {result.seconds} s, {result.disk_mib} MiB"
    if cell.table == ARTEFACT_TABLE:
        return "<br>".join((_reach(result), versions, place))
    shown = _TOLD if cell.table == KEYS_TABLE else ()
    told = [
        f"{what}: {_inline(result.recorded[what])}" for what in shown if what in result.recorded
    ]
    return "<br>".join((f"{result.state}: {result.ran}", *told, versions, place))


def _reach(result: Result) -> str:
    """Return whether a client reached the cluster."""
    if result.state != "passed":
        return f"{result.state}: {result.ran}"
    said = result.recorded.get("said")
    return "yes" if said is None else f"no: {_inline(said)}"


def _inline(text: str) -> str:
    """Return a text as code within a cell of a table."""
    words = " / ".join(line.strip() for line in text.splitlines() if line.strip())
    return f"`{words.replace('|', chr(92) + '|')}`"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        print(f"./dev matrix: {error}", file=sys.stderr)
        sys.exit(1)
