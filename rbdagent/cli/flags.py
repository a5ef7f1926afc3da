"""Flags that several verbs have, and the settings that they make."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from rbdagent import __version__
from rbdagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.act import Leave
    from rbdagent.config import Settings
    from rbdagent.model import Target


_F = TypeVar("_F", bound="Callable[..., Any]")

SEVERITIES: Final = ("info", "warning", "error", "critical")


class Duration(click.ParamType[float]):
    """Seconds, written as 30s, 1m30s or 500ms."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read one; click's hook."""
        from rbdagent.config import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError:
            self.fail(f"{value!r} is no duration: write 30s, 1m30s or 500ms", param, ctx)


def _from_file(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Load the configuration file before any other flag is read: its values are the defaults."""
    from rbdagent.config import DEFAULT_FILE, load_file

    data = load_file(Path(value or DEFAULT_FILE), must_exist=value is not None)
    ctx.default_map = {
        key.replace("-", "_"): content
        for key, content in data.items()
        if key != "ceph" and _concerns(ctx.command, key, content)
    }
    ctx.meta["ceph"] = data.get("ceph", [])
    ctx.meta["config"] = value or DEFAULT_FILE
    return value


def _concerns(command: click.Command, key: str, content: object) -> bool:
    """Tell whether a verb has such a flag and value: `output = "name"` is nothing to `check`."""
    for each in command.params:
        if each.name == key.replace("-", "_") and isinstance(each.type, click.Choice):
            return key != "output" or content in each.type.choices
    return True


def option(*names: str, **settings: Any) -> Callable[[_F], _F]:  # noqa: ANN401 - click's own
    """Give click.option with the variable that stands for the flag in the environment."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "RBDAGENT_" + long.removeprefix("--").replace("-", "_").upper()
    settings.setdefault("envvar", variable)
    return click.option(*names, **settings)


CONFIG = option(
    "--config",
    is_eager=True,
    callback=_from_file,
    metavar="FILE",
    help="Configuration file.  [default: /etc/rbdagent/config.toml]",
)

DEBUG = option("--debug", is_flag=True, help="Tracebacks, and how long each source took.")

OUTPUT: Final = option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Form of the answer.",
)

_LOOK: Final = (
    option("--node-name", help="This node's name in Kubernetes.  [default: NODE_NAME, hostname]"),
    option("--procfs", default="/proc", show_default=True, help="The host's /proc."),
    option("--sysfs", default="/sys", show_default=True, help="The host's /sys."),
    option("--host-root", default="/", show_default=True, help="The host's root directory."),
    option("--kubelet-root", multiple=True, help="kubelet's root directory.  [default: found]"),
    option("--ceph-conf", default="/etc/ceph/ceph.conf", show_default=True, help="ceph.conf."),
    option("--ceph-id", default="rbdagent", show_default=True, help="CephX user, no client."),
    option("--ceph-keyring", help="Keyring.  [default: lent by systemd, or found by librados]"),
    option("--ceph-timeout", type=Duration(), default="10s", show_default=True, help="A call."),
    option("--kubeconfig", help="kubeconfig.  [default: KUBECONFIG, in-cluster, ~/.kube/config]"),
    option("--context", help="Context of the kubeconfig."),
    option("--kube-timeout", type=Duration(), default="10s", show_default=True, help="A call."),
    option("--no-ceph", is_flag=True, help="Look away from Ceph."),
    option("--no-kube", is_flag=True, help="Look away from Kubernetes."),
    option("--no-node", is_flag=True, help="Look away from this node."),
    option("--timeout", type=Duration(), default="30s", show_default=True,
            help="For the whole answer: what came by then is the answer."),
)  # fmt: skip


def _with(options: Sequence[Callable[[Any], Any]], command: _F) -> _F:
    """Give a verb several flags; its help lists them in this order."""
    decorated: Any = command
    for each in reversed(options):
        decorated = each(decorated)
    return decorated  # type: ignore[no-any-return]


def observing(command: _F) -> _F:
    """Give a verb the flags of every verb that observes, and one ``settings`` for them."""

    @functools.wraps(command)
    def wrapped(*args: Any, **flags: Any) -> Any:  # noqa: ANN401 - click's own
        names = (
            "config", "node_name", "procfs", "sysfs", "host_root", "kubelet_root", "ceph_conf",
            "ceph_id", "ceph_keyring", "ceph_timeout", "kubeconfig", "context", "kube_timeout",
            "no_ceph", "no_kube", "no_node", "timeout",
        )  # fmt: skip
        given = {name: flags.pop(name) for name in names}
        flags.pop("debug")
        return command(*args, settings=lambda: settings_of(given), **flags)

    return _with((CONFIG, DEBUG, *_LOOK), wrapped)  # type: ignore[return-value]


OF_ONE_CLUSTER: Final = ("ceph_conf", "ceph_id", "ceph_keyring")


def ceph_tables() -> list[dict[str, Any]]:
    """Give the file's clusters; a flag or a variable that names one cluster outranks them all."""
    context = click.get_current_context()
    named = {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    if any(context.get_parameter_source(name) in named for name in OF_ONE_CLUSTER):
        return []
    tables: list[dict[str, Any]] = context.meta.get("ceph") or []
    return tables


def settings_of(given: dict[str, Any]) -> Settings:
    """Make the settings of a look out of the flags' values."""
    from rbdagent.config import Settings
    from rbdagent.observe.cluster import CephAccess
    from rbdagent.observe.kubeconfig import KubeAccess
    from rbdagent.observe.node import NodeRoots

    def path(value: str | None) -> Path | None:
        return Path(value) if value else None

    conf = Path(given["ceph_conf"])
    tables = ceph_tables() or [{"name": conf.stem, "keyring": given["ceph_keyring"]}]
    names = [str(each.get("name", Path(str(each.get("conf", conf))).stem)) for each in tables]
    clusters = tuple(
        CephAccess(
            name=name,
            conf=Path(str(table.get("conf", conf))),
            client_id=str(table.get("id", given["ceph_id"])),
            keyring=path(table.get("keyring")) or _lent_keyring(name),
            timeout_s=Duration().convert(table.get("timeout", given["ceph_timeout"]), None, None),
        )
        for name, table in zip(names, tables, strict=True)
    )
    variables = ("KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    return Settings(
        node_name=given["node_name"] or os.environ.get("NODE_NAME") or os.uname().nodename,
        roots=None
        if given["no_node"]
        else NodeRoots(
            procfs=Path(given["procfs"]),
            sysfs=Path(given["sysfs"]),
            host_root=Path(given["host_root"]),
            kubelet_roots=tuple(given["kubelet_root"]),
        ),
        clusters=None if given["no_ceph"] else clusters,
        kube=None
        if given["no_kube"]
        else KubeAccess(
            kubeconfig=path(given["kubeconfig"]),
            context=given["context"],
            timeout_s=given["kube_timeout"],
            environment=tuple((name, os.environ[name]) for name in variables if name in os.environ),
        ),
        timeout_s=given["timeout"],
        version=__version__,
    )


def _lent_keyring(cluster: str) -> Path | None:
    """Give the keyring that systemd lends this service: ``LoadCredential=NAME.keyring:FILE``."""
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    lent = Path(directory, f"{cluster}.keyring") if directory else None
    return lent if lent is not None and lent.exists() else None


def acting(command: _F) -> _F:
    """Give a verb the flags that say what may be done to the node."""
    options = (
        option("--grace-period", type=Duration(), default="10m", show_default=True,
               help="For how long it must have been orphaned without a break."),
        option("--max-unmaps-per-hour", type=click.IntRange(min=0), default=6, show_default=True,
               help="On this node."),
        option("--unmap-staged", is_flag=True,
               help="Take a staging mount down that was left behind."),
        option("--state-dir", default="/var/lib/rbdagent", show_default=True,
               help="What the agent remembers, and what was done."),
        option("--freeze-file", default="/etc/rbdagent/freeze", show_default=True,
               help="Where it is there, nothing is unmapped."),
    )  # fmt: skip
    return _with(options, command)


def leave_of(allowed: dict[str, Any], *, by: str, may_unmap: bool) -> Leave:
    """Make the leave out of the values of those flags."""
    from rbdagent.act import Leave
    from rbdagent.model import Policy
    from rbdagent.state import StateDir

    return Leave(
        by=by,
        policy=Policy(
            may_unmap=may_unmap,
            grace_s=allowed["grace_period"],
            most_unmaps_an_hour=allowed["max_unmaps_per_hour"],
            may_unmount_staging=allowed["unmap_staged"],
        ),
        freeze_file=Path(allowed["freeze_file"]),
        state=StateDir(Path(allowed["state_dir"])),
    )


def all_namespaces(command: _F) -> _F:
    """Give a verb the flag that stands in place of a TARGET for all there is."""
    return click.option(
        "--all-namespaces", "-A", "every", is_flag=True, help="All there is, of every namespace."
    )(command)


def everything(*, every: bool, namespace: str | None, selector: str | None) -> Target:
    """Give the target that stands for all there is.

    Raises:
        UsageError: nothing says that all there is was meant, or it is said in two ways.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import FORMS

    if every and namespace is not None:
        raise UsageError(f"-A is every namespace, and -n says {namespace}")
    if not every and namespace is None and selector is None:
        raise UsageError(
            "a TARGET is missing; or -A, -n NAMESPACE or -l LABELS for all that is stuck",
            hint=f"a TARGET is {FORMS}",
        )
    given = "-A" if namespace is None else f"-n {namespace}"
    return Target(given=given, kind=TargetKind.NONE, namespace=namespace or "")


def reading(*also: str) -> Callable[[_F], _F]:
    """Give a verb the flags of every verb that gives an answer; ``also`` are forms it alone has."""
    forms = ("table", "wide", "json", "yaml", "name", *also)
    options = (
        option("--output", "-o", type=click.Choice(forms),
                default="table", show_default=True, help="Form of the answer."),
        option("--from", "source", envvar="RBDAGENT_FROM", metavar="FILE",
                help="Answer from a snapshot instead; - is stdin."),
        option("--fail-on", type=click.Choice(SEVERITIES), default="error", show_default=True,
                help="Exit 3 when a finding is at least so severe."),
        option("--watch", "-w", is_flag=True, help="Look again and again, print what changed."),
    )  # fmt: skip
    return functools.partial(_with, options)
