"""The choices for Ceph, kernel, Debian and Kubernetes of a lab.

A Debian suite has a Ceph, a kernel and the programs of the nodes; this table is the only place that
lists them. Standard library only: the installer uses it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.addresses import NETWORKS
from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DEFAULT_KUBERNETES: Final = "v1.36.3"
"""The version that go.mod of tests/lab/go requires."""

_DEFAULT_DEBIAN = "13"
_CONTAINERFILE = Path(__file__).parents[2] / "Containerfile"
_IMAGE_SUITE = re.compile(r"^ARG SUITE=(\w+)$", re.MULTILINE)
_OS_RELEASE = Path("/etc/os-release")
_KUBERNETES_VERSION = re.compile(r"v1\.\d+\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A Debian suite, and the versions of its packages by which the lab chooses it."""

    name: str
    debian: str
    ceph: str
    kernel: str
    keys: tuple[str, ...] = ("aes",)
    """Types of key that this Ceph knows (CVE-2025-30156 brought the second)."""


SUITES: Final = (
    Suite(name="bullseye", debian="11", ceph="14.2", kernel="5.10"),
    Suite(name="bookworm", debian="12", ceph="16.2", kernel="6.1"),
    Suite(name="trixie", debian="13", ceph="18.2", kernel="6.12"),
    Suite(name="forky", debian="forky", ceph="20.2", kernel="7", keys=("aes", "aes256k")),
)
MONITORS: Final = {"both": ("v2", "v1"), "v1": ("v1",), "v2": ("v2",)}
"""Versions of the messenger that the monitors support, by the name of the choice."""

NODES: Final = ("uml", "qemu")
"""As programs with the kernel of User Mode Linux, or emulated with the kernel of a suite."""

USERLANDS: Final = tuple(suite for suite in SUITES if suite.debian != "11")
"""Suites whose Python runs rbdagent (3.11 and later)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one lab."""

    debian: Suite
    """Has the nodes' programs: rbd, the bindings, Python, containerd."""
    ceph: Suite
    """Has the daemons of Ceph, and the administrator's commands."""
    kernel: Suite
    """Has the nodes' kernel."""
    kubernetes: str
    """A version with the leading v, such as ``v1.36.3``."""
    keys: str
    """Type of the keys of Ceph's users."""
    monitors: str
    """One of :data:`MONITORS`."""
    network: str
    """One of :data:`~tests.lab.addresses.NETWORKS`."""
    node: str
    """How the nodes run: one of :data:`NODES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One choice: a flag of ``./dev``, and the environment variable that carries it."""

    flag: str
    variable: str
    metavar: str
    help: str


OPTIONS: Final = (
    Option(
        flag="--debian",
        variable="RBDAGENT_LAB_DEBIAN",
        metavar="|".join(suite.debian for suite in USERLANDS),
        help="the nodes' programs; also Ceph and kernel where these are not given; by default 13",
    ),
    Option(
        flag="--ceph",
        variable="RBDAGENT_LAB_CEPH",
        metavar="|".join(suite.ceph for suite in SUITES),
        help="the daemons of Ceph",
    ),
    Option(
        flag="--kernel",
        variable="RBDAGENT_LAB_KERNEL",
        metavar="|".join(suite.kernel for suite in SUITES),
        help="the nodes' kernel",
    ),
    Option(
        flag="--kubernetes",
        variable="RBDAGENT_LAB_KUBERNETES",
        metavar="v1.x.y",
        help=f"built from source; by default {DEFAULT_KUBERNETES}",
    ),
    Option(
        flag="--keys",
        variable="RBDAGENT_LAB_KEYS",
        metavar="aes|aes256k",
        help="type of the keys of Ceph's users; by default aes, which every client knows",
    ),
    Option(
        flag="--monitors",
        variable="RBDAGENT_LAB_MONITORS",
        metavar="|".join(MONITORS),
        help="versions of the messenger that the monitors speak; by default both",
    ),
    Option(
        flag="--network",
        variable="RBDAGENT_LAB_NETWORK",
        metavar="|".join(NETWORKS),
        help="addresses of the machines; by default ipv4; Ceph has an IPv6 address in the others",
    ),
    Option(
        flag="--node",
        variable="RBDAGENT_LAB_NODE",
        metavar="|".join(NODES),
        help="how the nodes run: as User Mode Linux (Linux 7.2), by default if no --debian and no "
        "--kernel is given, else emulated by QEMU with a distribution's kernel",
    ),
)


def chosen_parts(environment: Mapping[str, str] = os.environ) -> Parts:
    """Return the parts that the environment names, by default those of Debian 13.

    Raises:
        LabError: there is no such part; with those that exist.
    """
    given = {option.flag: environment.get(option.variable, "") for option in OPTIONS}
    own_kernel = bool(given["--debian"] or given["--kernel"])
    node = _one_of("--node", given["--node"] or ("qemu" if own_kernel else "uml"), NODES)
    if node == "uml" and given["--kernel"]:
        raise LabError("--kernel needs --node qemu: User Mode Linux has its own kernel")
    debian = _by("--debian", given["--debian"] or _DEFAULT_DEBIAN)
    ceph = _by("--ceph", given["--ceph"] or debian.ceph)
    return Parts(
        debian=debian,
        ceph=ceph,
        kernel=_by("--kernel", given["--kernel"] or debian.kernel),
        kubernetes=_kubernetes(given["--kubernetes"] or DEFAULT_KUBERNETES),
        keys=_keys(given["--keys"] or "aes", ceph),
        monitors=_one_of("--monitors", given["--monitors"] or "both", MONITORS),
        network=_one_of("--network", given["--network"] or "ipv4", NETWORKS),
        node=node,
    )


def suite_of_ceph(version: str) -> Suite:
    """Return the suite that has this Ceph, such as ``18.2``.

    Raises:
        LabError: no suite has it.
    """
    return _by("--ceph", version)


def own_suite(os_release: Path = _OS_RELEASE) -> Suite:
    """Return the suite of this machine.

    Raises:
        LabError: it is none of those that the lab knows.
    """
    lines = dict(line.partition("=")[::2] for line in os_release.read_text().splitlines())
    name = lines.get("VERSION_CODENAME", "").strip('"')
    for suite in SUITES:
        if suite.name == name:
            return suite
    found = lines.get("PRETTY_NAME", name).strip('"')
    raise LabError(f"the lab needs Debian 12 or 13, this is {found or 'another system'}")


def image_base(containerfile: Path = _CONTAINERFILE) -> Suite:
    """Return the Debian suite on which the agent's image is built.

    Raises:
        LabError: it is none of those that the lab knows.
    """
    found = _IMAGE_SUITE.search(containerfile.read_text())
    suites = {suite.name: suite for suite in USERLANDS}
    if found is None or found[1] not in suites:
        raise LabError(f"{containerfile}: SUITE is none of {', '.join(suites)}")
    return suites[found[1]]


def _by(flag: str, value: str) -> Suite:
    suites = USERLANDS if flag == "--debian" else SUITES
    by_value = {getattr(suite, flag.removeprefix("--")): suite for suite in suites}
    return by_value[_one_of(flag, value, by_value)]


def _one_of(flag: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        raise LabError(f"{flag} {value}: there is no such part; choose from {', '.join(known)}")
    return value


def _keys(value: str, ceph: Suite) -> str:
    if value not in ceph.keys:
        known = ", ".join(ceph.keys)
        raise LabError(f"--keys {value}: Ceph {ceph.ceph} knows keys of the type {known}")
    return value


def _kubernetes(version: str) -> str:
    if _KUBERNETES_VERSION.fullmatch(version) is None:
        raise LabError(f"--kubernetes {version}: a version such as {DEFAULT_KUBERNETES} is needed")
    return version
