"""The cells of ``./dev matrix``: which tests run on which parts, and where a result is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.lab.parts import (
    DEFAULT_KUBERNETES,
    OPTIONS,
    SUITES,
    USERLANDS,
    Suite,
    chosen_parts,
    image_base,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.lab.parts import Parts

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
    "tests/integration/test_lab_vm.py::test_an_aes256k_key_maps_or_is_reported",
    "tests/integration/test_lab_vm.py::test_the_user_of_rbd747s_remedy_can_map",
    "tests/integration/test_lab_vm.py::test_rbd_of_ceph_20_maps_or_its_option_is_reported",
)
_DEB_TESTS = ("tests/integration/test_packages.py::test_the_debs_program_queries_ceph",)
VARIABLE = {option.flag: option.variable for option in OPTIONS}


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
    """The driver is a real ceph-csi."""
    reason: str = ""
    """Why the cell is not run; empty for one that is."""
    same_as: str = ""
    """Name of the cell whose result this one shows; it is not run itself."""

    def chosen_parts(self) -> Parts:
        """Return the parts of this cell's lab."""
        given = {VARIABLE[flag]: value for flag, value in self.parts.items()}
        return chosen_parts({"RBDAGENT_LAB_NODE": "qemu"} | given)


CEPH_TABLE: Final = "Ceph: bindings and servers"
KERNEL_TABLE: Final = "Kernels"
KEYS_TABLE: Final = "Keys of type aes256k"
ARTEFACT_TABLE: Final = "Which Ceph clusters each artefact can reach"
E2E_TABLE: Final = "End to end"
_REAL_DRIVER = "ceph-csi"
_OLD_CLIENT = (
    "librados before 20.2 cannot use keys of type aes256k (CVE-2025-30156);"
    f" its error is below, in {KEYS_TABLE}"
)


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
    """Yield a cell for each artefact with one kind of cluster."""
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
    """Return the options of ``./dev`` that choose a row's driver."""
    return ("--cephcsi", "PATH") if row == _REAL_DRIVER else ()
