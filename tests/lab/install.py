"""Install what the tests and the lab need, each part only once.

It runs on Debian's Python with the standard library alone, because it installs everything else. All
but the Debian packages is below one cache directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import lzma
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tests.lab import venvs
from tests.lab.errors import LabError
from tests.lab.install_node import node_tree
from tests.lab.kernels import kernel_of
from tests.lab.kubernetes import kubernetes_module
from tests.lab.parts import DEFAULT_KUBERNETES, USERLANDS, chosen_parts, image_base
from tests.lab.roots import PACKAGES as ROOT_PACKAGES
from tests.lab.roots import image_root, root_is_made, root_of
from tests.lab.uml import PACKAGES as UML_PACKAGES
from tests.lab.uml import uml_kernel, uml_kernel_is_made

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.lab.parts import Suite

CHECKOUT = venvs.CHECKOUT
GO_MODULE = CHECKOUT / "tests" / "lab" / "go"
HELM_MODULE = GO_MODULE / "chart"
SIDECAR_MODULE = GO_MODULE / "sidecars"

PYTHON_PACKAGES = (
    "ca-certificates",
    "python3-rados",  # the bindings of librados and librbd are not on PyPI
    "python3-rbd",
    "python3-venv",
)
TEST_PACKAGES = (
    "bash",  # with zsh and fish: the shells for which rbdagent has completion
    "busybox-static",  # a sh for the kubectl plugin
    "fish",
    "jq",  # runs the filters that docs/json.md shows
    "shellcheck",
    "systemd",  # systemd-analyze rates the units, and reads them as systemd does
    "zsh",
)
LAB_PACKAGES = (
    *ROOT_PACKAGES,  # the nodes run on this machine's own root if it has their Debian
    "busybox-static",  # the guests' initramfs, the pods' image
    "cpio",
    "debootstrap",
    "etcd-server",
    "openssl",
    "zstd",
)
NODE_PACKAGES = {"qemu": ("qemu-system-x86",), "uml": UML_PACKAGES}
LAB_TEST_PACKAGES = (
    *(name for names in NODE_PACKAGES.values() for name in names),
    "prometheus",  # with promtool: the tests run the alerts and the dashboard on the real one
)
RELEASE_PACKAGES = (
    "debootstrap",  # the file system of the image
    "git",
    "lintian",
)
BROWSER_PACKAGES = (
    "chromium-headless-shell",  # tests open the page in it; a quarter less on disk than chromium
    "fonts-inter",  # draws the pictures in docs/
    "fonts-jetbrains-mono",
)
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kubelet", "kubectl")
CSI_DRIVER = "csi-rbd-lab"
SIDECARS = ("csi-provisioner", "csi-attacher", "csi-resizer")
"""The controllers around a real ceph-csi; for the test driver the lab simulates them."""

_HELM = "helm.sh/helm/v4/cmd/helm"
# Debian 12's Go (1.19) is too old and cannot fetch a newer one; the module proxy serves whole
# toolchains as modules (https://go.dev/doc/toolchain).
_GO_VERSION = "1.26.8"
_GO_SHA256 = "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7"
_POLICY = Path("/usr/sbin/policy-rc.d")
_QUIET_S = 30.0
_OLDEST_PYTHON = (3, 11)
# On two idle cores.
_KUBERNETES_MINUTES = 5
_UML_MINUTES = 20
_ROOT_MINUTES = 4


def cache_dir() -> Path:
    """Return the directory for everything that is kept: RBDAGENT_CACHE or ~/.cache/rbdagent."""
    given = os.environ.get("RBDAGENT_CACHE")
    return Path(given).resolve() if given else Path.home() / ".cache" / "rbdagent"


def default_state_dir() -> Path:
    """Return where a lab keeps its state: RBDAGENT_LAB, else the directory ``lab`` of the cache."""
    given = os.environ.get("RBDAGENT_LAB")
    return Path(given).resolve() if given else cache_dir() / "lab"


def venv_python() -> Path:
    """Return the Python with all packages; it exists after :func:`install_python`."""
    return venvs.venv_place(cache_dir()) / "bin" / "python"


def bin_dir() -> Path:
    """Return the directory of the programs built for the lab, with the chosen Kubernetes."""
    version = chosen_parts().kubernetes
    return cache_dir() / ("bin" if version == DEFAULT_KUBERNETES else f"bin-{version}")


def given_cephcsi() -> Path | None:
    """Return the real ceph-csi that replaces the test driver: RBDAGENT_CEPHCSI."""
    given = os.environ.get("RBDAGENT_CEPHCSI")
    return Path(given).resolve() if given else None


def shared_cephcsi(checkout: Path = CHECKOUT) -> Path | None:
    """Unpack the packed ceph-csi next to the checkout; return None if there is none.

    ceph-csi is not on the Go proxy, and needs cgo: without that file the runs use the test driver.
    """
    packed = checkout.parent / "shared" / "cephcsi" / "cephcsi.xz"
    if not packed.exists():
        return None
    program = cache_dir() / "cephcsi"
    if not program.exists() or program.stat().st_mtime < packed.stat().st_mtime:
        new = program.with_suffix(".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(packed) as source, new.open("wb") as target:
            shutil.copyfileobj(source, target)
        new.chmod(0o755)
        new.replace(program)
    return program


class Narrator:
    """Prints the progress: one line per step, updated on a terminal, every 30 s elsewhere."""

    def __init__(self, stream: TextIO | None = None, *, moving: bool | None = None) -> None:
        self._stream = stream or sys.stderr
        self._moving = self._stream.isatty() if moving is None else moving

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Path]:
        """Announce ``title``, count its seconds, yield a log file whose end is printed on failure.

        Raises:
            LabError: the step failed; with its error, and the end of its log.
        """
        name = "-".join("".join(c if c.isalnum() else " " for c in title).lower().split()[:6])
        log = cache_dir() / "log" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        started = time.monotonic()
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(title, started, done), daemon=True)
        if not self._moving:
            self._print(f"{title} ...")
        ticker.start()
        outcome = "failed"
        try:
            yield log
            outcome = "done"
        except subprocess.CalledProcessError as error:
            command = " ".join(str(word) for word in error.cmd)
            raise LabError(f"{title}: {command}: exit {error.returncode}", log=log) from error
        except OSError as error:
            raise LabError(f"{title}: {error}", log=log) from error
        finally:
            done.set()
            ticker.join()
            elapsed = time.monotonic() - started
            self._print(f"{title}: {outcome}, {elapsed:.0f} s", over=self._moving)

    def _tick(self, title: str, started: float, done: threading.Event) -> None:
        while not done.wait(0.5 if self._moving else _QUIET_S):
            elapsed = time.monotonic() - started
            if self._moving:
                self._stream.write(f"\r\033[K  {title} ... {elapsed:.0f} s")
                self._stream.flush()
            else:
                self._print(f"{title} ... {elapsed:.0f} s")

    def _print(self, text: str, *, over: bool = False) -> None:
        self._stream.write(f"\r\033[K  {text}\n" if over else f"  {text}\n")
        self._stream.flush()


def run(argv: Sequence[str | Path], log: Path, **env: str) -> None:
    """Run a program with its output in ``log``.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    with log.open("ab") as stream:
        stream.write(f"$ {' '.join(str(word) for word in argv)}\n".encode())
        stream.flush()
        subprocess.run(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **env},
            check=True,
        )


def install_rbdagent(narrator: Narrator) -> None:
    """Create the virtual environment: enough to run rbdagent."""
    with _one_at_a_time():
        _install_packages(narrator, PYTHON_PACKAGES)
        _install_venv(narrator)


def install_python(narrator: Narrator) -> None:
    """Install what lint and unit tests need."""
    with _one_at_a_time():
        _install_packages(narrator, (*PYTHON_PACKAGES, *TEST_PACKAGES))
        _install_venv(narrator)


def install_quick(narrator: Narrator) -> None:
    """Create the virtual environment with packages from PyPI alone: on any Linux, for any user."""
    if sys.version_info < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        raise LabError(f"rbdagent needs Python {oldest} or later; {sys.executable} is older")
    with _one_at_a_time():
        _install_venv(narrator, venvs.quick_place(cache_dir()), system_packages=False)


def install_floors(narrator: Narrator) -> None:
    """Create the virtual environment with the oldest allowed packages."""
    with _one_at_a_time():
        _install_venv(narrator, venvs.floors_place(cache_dir()), venvs.FLOORS)


def install_helm(narrator: Narrator) -> None:
    """Build the Helm that renders the chart in contract tests."""
    with _one_at_a_time():
        _install_helm(narrator)


def install_release(narrator: Narrator) -> None:
    """Install what builds and checks the files of a release: programs, and a root per Debian."""
    with _one_at_a_time():
        _install_packages(narrator, (*PYTHON_PACKAGES, *TEST_PACKAGES, *RELEASE_PACKAGES))
        _install_venv(narrator)
        _install_helm(narrator)
        _install_roots(narrator, USERLANDS)
        with narrator.step("root of the agent's image (once; 2 minutes on two cores)"):
            image_root(cache_dir(), image_base(), current=False)


def install_browser(narrator: Narrator) -> None:
    """Install the browser that takes the pictures."""
    with _one_at_a_time():
        _install_packages(narrator, (*PYTHON_PACKAGES, *TEST_PACKAGES, *BROWSER_PACKAGES))
        _install_venv(narrator)


def install_lab(narrator: Narrator) -> None:
    """Install everything that the lab needs: packages, programs, the guests' trees."""
    with _one_at_a_time():
        packages = (*PYTHON_PACKAGES, *LAB_PACKAGES, *NODE_PACKAGES[chosen_parts().node])
        _install_packages(narrator, tuple(dict.fromkeys(packages)))
        _install_venv(narrator)
        _install_kubernetes(narrator)
        _install_csi_driver(narrator)
        if given_cephcsi() is not None:
            _install_sidecars(narrator)
        _install_parts(narrator)


def install_lab_tests(narrator: Narrator, further: Sequence[Suite] = ()) -> None:
    """Install the lab, and what only its tests need.

    Args:
        narrator: announces each step.
        further: suites whose roots are needed in addition to those of the chosen parts.
    """
    with _one_at_a_time():
        _install_packages(
            narrator, (*PYTHON_PACKAGES, *TEST_PACKAGES, *LAB_TEST_PACKAGES, *BROWSER_PACKAGES)
        )
        _install_venv(narrator)
        _install_helm(narrator)
        _install_roots(narrator, further)
    install_lab(narrator)


def lab_programs_installed() -> bool:
    """Return whether the one-time Go build has been done."""
    key = _kubernetes_key()
    return _stamp("kubernetes").exists() and _stamp("kubernetes").read_text() == key


def minutes_of_building() -> int:
    """Return about how long two idle cores build what the lab still lacks."""
    parts = chosen_parts()
    roots = {parts.ceph, parts.debian}
    missing = sum(not root_is_made(cache_dir(), suite) for suite in roots)
    minutes = _ROOT_MINUTES * missing
    if not lab_programs_installed():
        minutes += _KUBERNETES_MINUTES
    if parts.node == "uml" and not uml_kernel_is_made(cache_dir()):
        minutes += _UML_MINUTES
    return minutes


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_packages(narrator: Narrator, packages: Sequence[str]) -> None:
    missing = [package for package in packages if not _package_installed(package)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise LabError(
            f"these Debian packages are missing: {' '.join(missing)}; install them, or run as root"
        )
    with narrator.step(f"Debian packages: {' '.join(missing)}") as log, _no_services():
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        options = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
        run(["apt-get", *options, "update"], log, **quiet)
        run(
            ["apt-get", *options, "install", "-y", "--no-install-recommends", *missing],
            log,
            **quiet,
        )


def _package_installed(package: str) -> bool:
    answer = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout == "installed"


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Prevent the packages' services (etcd, ceph, ...) from starting, now and at the next boot.

    invoke-rc.d asks policy-rc.d before it starts a service; a machine's own policy stays in force.
    The packages enable services by links. Removing the links disables them; deb-systemd-helper sees
    that and does not enable them at an upgrade.
    """
    enabled = _enabled_units()
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text(
            "#!/bin/sh\n# Of rbdagent's ./dev while it installs packages\nexit 101\n"
        )
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink()
        for link in _enabled_units() - enabled:
            link.unlink()


def _enabled_units() -> set[Path]:
    return set(Path("/etc/systemd/system").glob("*.wants/*"))


def _install_venv(
    narrator: Narrator,
    venv: Path | None = None,
    requirements: Path = venvs.REQUIREMENTS,
    *,
    system_packages: bool = True,
) -> None:
    """Create a virtual environment on the system's Python, by default with its packages visible."""
    venv = venv or venvs.venv_place(cache_dir())
    python = venv / "bin" / "python"
    key = _digest(venvs.made_from(requirements), platform.python_version().encode())
    stamp = venv.with_suffix(".made-from")
    if stamp.exists() and stamp.read_text() == key and python.exists():
        return
    with narrator.step(f"{venv.name}: virtual environment, and rbdagent in it") as log:
        if not python.exists():
            visible = ["--system-site-packages"] if system_packages else []
            run(["/usr/bin/python3", "-m", "venv", *visible, venv], log)
        for command in venvs.install_commands(python, requirements):
            run(command, log)
        stamp.write_text(key)


def _install_kubernetes(narrator: Narrator) -> None:
    """Build the Kubernetes programs; those in KUBEBUILDER_ASSETS are used as they are."""
    key = _kubernetes_key()
    stamp = _stamp("kubernetes")
    if lab_programs_installed() and all((bin_dir() / name).exists() for name in KUBERNETES):
        return
    go = _go(narrator)
    bin_dir().mkdir(parents=True, exist_ok=True)
    given = _given_programs()
    wanted = [name for name in KUBERNETES if name not in given]
    for name, path in given.items():
        _replace(bin_dir() / name, path)
    version = chosen_parts().kubernetes
    with narrator.step(f"Kubernetes {version} from source ({_once(_KUBERNETES_MINUTES)})") as log:
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in wanted]
        _go_build(go, packages, log, module=kubernetes_module(cache_dir(), GO_MODULE, version))
        stamp.write_text(key)


def _install_helm(narrator: Narrator) -> None:
    """Build helm, which renders and installs the chart in tests."""
    key = _digest(*((HELM_MODULE / name).read_bytes() for name in ("go.mod", "go.sum")))
    stamp = _stamp("helm")
    if stamp.exists() and stamp.read_text() == key and (bin_dir() / "helm").exists():
        return
    go = _go(narrator)
    with narrator.step("Helm from source (once; 2 minutes on two cores)") as log:
        _go_build(go, [_HELM], log, module=HELM_MODULE)
        stamp.write_text(key)


def _install_sidecars(narrator: Narrator) -> None:
    """Build the controllers around a real ceph-csi: the tools of their module."""
    key = _digest(*((SIDECAR_MODULE / name).read_bytes() for name in ("go.mod", "go.sum")))
    stamp = _stamp("sidecars")
    built = all((bin_dir() / name).exists() for name in SIDECARS)
    if built and stamp.exists() and stamp.read_text() == key:
        return
    go = _go(narrator)
    with narrator.step("the CSI sidecars from source (once; 2 minutes on two cores)") as log:
        _go_build(go, ["tool"], log, module=SIDECAR_MODULE)
        stamp.write_text(key)


def _install_csi_driver(narrator: Narrator) -> None:
    # watchers.py is embedded in the driver.
    driver = GO_MODULE / CSI_DRIVER
    sources = sorted((*driver.rglob("*.go"), *driver.rglob("*.py")))
    if not sources:
        return
    module = [GO_MODULE / "go.mod", GO_MODULE / "go.sum"]
    key = _digest(*(path.read_bytes() for path in (*module, *sources)))
    stamp = _stamp("csi")
    if stamp.exists() and stamp.read_text() == key and (bin_dir() / CSI_DRIVER).exists():
        return
    go = _go(narrator)
    with narrator.step("the lab's CSI driver") as log:
        _go_build(go, [f"./{CSI_DRIVER}"], log)
        stamp.write_text(key)


def _install_parts(narrator: Narrator) -> None:
    """Create the roots of the chosen Ceph and Debian, and the files of the node VMs."""
    parts = chosen_parts()
    _install_roots(narrator, (parts.ceph, parts.debian))
    if parts.node == "uml":
        with narrator.step(f"the nodes' kernel of User Mode Linux ({_once(_UML_MINUTES)})"):
            uml_kernel(cache_dir())
    with narrator.step("the node VMs' kernel, containerd, runc, CNI plugins and Python packages"):
        node_tree(cache_dir(), parts)


def _install_roots(narrator: Narrator, suites: Sequence[Suite]) -> None:
    for suite in dict.fromkeys(suites):
        if not root_is_made(cache_dir(), suite):
            with narrator.step(f"root of Debian {suite.debian} ({_once(_ROOT_MINUTES)})"):
                root_of(cache_dir(), suite)


def parts_line() -> str:
    """Return the first line of a run: the parts of its lab, with full versions.

    Raises:
        LabError: a part is not installed yet.
    """
    parts = chosen_parts()
    ceph = root_of(cache_dir(), parts.ceph).version_of("ceph-mon")
    if parts.node == "uml":
        kernel = f"{uml_kernel(cache_dir()).release} (User Mode Linux)"
    else:
        kernel = kernel_of(cache_dir(), parts.kernel).release
    driver = "ceph-csi" if given_cephcsi() else CSI_DRIVER
    return (
        f"parts: Ceph {ceph} (keys {parts.keys}), kernel {kernel}, Kubernetes {parts.kubernetes},"
        f" Debian {parts.debian.debian}, driver {driver}, monitors {parts.monitors},"
        f" network {parts.network}"
    )


def _once(minutes: int) -> str:
    return f"once; {minutes} minutes on two cores"


def _kubernetes_key() -> str:
    given = os.environ.get("KUBEBUILDER_ASSETS", "")
    module = [(GO_MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    return _digest(*module, _link().encode(), given.encode())


def _link() -> str:
    version = f"k8s.io/component-base/version.gitVersion={chosen_parts().kubernetes}"
    return f"-s -w -X {version}"


def _given_programs() -> Mapping[str, Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    paths = {name: Path(assets).resolve() / name for name in KUBERNETES}
    return {name: path for name, path in paths.items() if path.exists()}


def _go_build(go: Path, packages: Sequence[str], log: Path, *, module: Path = GO_MODULE) -> None:
    """Build ``packages`` next to the programs in use, then move each into place atomically."""
    if not packages:
        return
    out = cache_dir() / "bin.new"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command: list[str | Path] = [go, "-C", module, "build", "-ldflags", _link(), "-o", f"{out}/"]
    env = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    if module.is_relative_to(cache_dir()):
        # A module for another version of Kubernetes names only that version.
        env["GOFLAGS"] += " -mod=mod"
    if go.is_relative_to(cache_dir()):
        # A downloaded Go needs its own caches; an installed Go already has some.
        env |= {"GOPATH": str(cache_dir() / "go"), "GOCACHE": str(cache_dir() / "go-build")}
        env["GOFLAGS"] += " -modcacherw"
    run([*command, *packages], log, **env)
    bin_dir().mkdir(parents=True, exist_ok=True)
    for program in out.iterdir():
        program.replace(bin_dir() / program.name)
    out.rmdir()


def _go(narrator: Narrator) -> Path:
    """Return a Go that is new enough: the one on PATH, else one from the module proxy."""
    found = shutil.which("go")
    if found is not None and _go_version(Path(found)) >= _go_needed():
        return Path(found)
    root = cache_dir() / f"go{_GO_VERSION}"
    if not (root / "bin" / "go").exists():
        with narrator.step(f"Go {_GO_VERSION}"):
            _fetch_go(root)
    return root / "bin" / "go"


def _go_version(go: Path) -> tuple[int, ...]:
    answer = subprocess.run(
        [str(go), "env", "GOVERSION"],
        capture_output=True,
        text=True,
        env={**os.environ, "GOTOOLCHAIN": "local"},
        check=False,
    )
    return _version(answer.stdout.strip().removeprefix("go").split(" ")[0])


def _go_needed() -> tuple[int, ...]:
    for line in (GO_MODULE / "go.mod").read_text().splitlines():
        if line.startswith("go "):
            return _version(line.removeprefix("go "))
    raise LabError(f"{GO_MODULE / 'go.mod'}: no line has the Go version that it needs")


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(map(str.isdigit, parts)) else (0,)


def _fetch_go(root: Path) -> None:
    module = f"golang.org/toolchain@v0.0.1-go{_GO_VERSION}.linux-amd64"
    name, _, version = module.partition("@")
    proxies = os.environ.get("GOPROXY", "").replace("|", ",").split(",")
    proxy = next((p for p in proxies if p.startswith("http")), "https://proxy.golang.org")
    archive = cache_dir() / "go.zip"
    with (
        urllib.request.urlopen(
            f"{proxy.rstrip('/')}/{name}/@v/{version}.zip", timeout=60
        ) as source,
        archive.open("wb") as target,
    ):
        shutil.copyfileobj(source, target)
    if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != _GO_SHA256:
        raise LabError(f"{module} from {proxy}: its SHA-256 is {found}, expected {_GO_SHA256}")
    new = root.with_name(f"{root.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    with zipfile.ZipFile(archive) as files:
        files.extractall(new)
    tree = new / module
    # Module archives carry no modes.
    for program in (*tree.glob("bin/*"), *tree.glob("pkg/tool/*/*")):
        program.chmod(0o755)
    shutil.rmtree(root, ignore_errors=True)
    tree.rename(root)
    shutil.rmtree(new)
    archive.unlink()


def _replace(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _stamp(name: str) -> Path:
    """Return the file that records the inputs from which ``name`` was made."""
    of_version = bin_dir().name.removeprefix("bin")
    return cache_dir() / f"{name}{of_version}.made-from"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
