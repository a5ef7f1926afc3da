"""Flags that several verbs share, and the settings that are built from them."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from rbdagent import __version__
from rbdagent.cli.access import kube_access, path_of
from rbdagent.cli.output import SEVERITIES
from rbdagent.errors import ParseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from rbdagent.collect.kube.kubeconfig import KubeAccess, MonitorList
    from rbdagent.config import Settings
    from rbdagent.model import Requirement, Target


_F = TypeVar("_F", bound="Callable[..., Any]")

FILE: Final = click.Path(readable=False)
"""A file, which shells complete; the source that reads it reports an error."""


class Duration(click.ParamType[float]):
    """Seconds, written as 30s, 1m30s or 500ms."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert the value of a flag to seconds; click calls this."""
        from rbdagent.config import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a duration: write 30s, 1m30s or 500ms", param, ctx)


def _from_file(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Load the configuration file before any other flag: its values become the flags' defaults."""
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
    """Return whether a value of the file is valid for a verb: `check` has no `output = "name"`."""
    for parameter in command.params:
        if parameter.name == key.replace("-", "_") and isinstance(parameter.type, click.Choice):
            return key != "output" or content in parameter.type.choices
    return True


def option(*names: str, **settings: Any) -> Callable[[_F], _F]:  # noqa: ANN401 - click's own
    """Return click.option with the environment variable that sets the flag."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "RBDAGENT_" + long.removeprefix("--").replace("-", "_").upper()
    settings.setdefault("envvar", variable)
    return click.option(*names, **settings)


class HostDirectory(click.ParamType[str]):
    """An absolute path on the host: the paths of mounts are compared with it."""

    name = "directory"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the path without repeated slashes and without one at its end."""
        path = str(value)
        if not path.startswith("/"):
            self.fail(f"{path!r} is not absolute: write the path on the host, such as "
                      "/var/lib/kubelet", param, ctx)  # fmt: skip
        return os.path.normpath(f"/{path.lstrip('/')}")


CONFIG = option(
    "--config",
    is_eager=True,
    type=FILE,
    callback=_from_file,
    metavar="FILE",
    help="Configuration file.  [default: /etc/rbdagent/config.toml]",
)

DEBUG = option("--debug", is_flag=True, help="Print tracebacks and the time of each source.")

LOG_FORMAT = option(
    "--log-format",
    type=click.Choice(["console", "json", "logfmt"]),
    help="Format of the log on stderr.  [default: console; of an agent without a terminal, json]",
)


def _in_context(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Store the value of a flag in the context: the verb itself does not receive it."""
    ctx.meta[str(param.name)] = value


LOG_LEVEL = option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    expose_value=False,
    callback=_in_context,
    help="The least severe events to log; debug has each cycle.",
)

OUTPUT: Final = option(
    "--output",
    "-o",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Output format.",
)


COLOR: Final = option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_in_context,
    help="Colours in text; auto: on a terminal.",
)


def _verbose(adds: str) -> Callable[[_F], _F]:
    return option(
        "--verbose",
        "-v",
        is_flag=True,
        expose_value=False,
        callback=_in_context,
        help=adds,
    )


VERBOSE: Final = _verbose("Add evidence, addresses, sources and further findings.")
VERBOSE_CHECK: Final = _verbose("Add what is fine, and the origin of each flag's value.")

_OBSERVING: Final = (
    option("--node-name",
            help="This node's name in Kubernetes; it selects no other node.  "
            "[default: NODE_NAME, hostname]"),
    option("--procfs", type=FILE, default="/proc", show_default=True, help="The host's /proc."),
    option("--sysfs", type=FILE, default="/sys", show_default=True, help="The host's /sys."),
    option("--host-root", type=FILE, default="/", show_default=True,
            help="The host's root directory."),
    option("--kubelet-root", multiple=True, type=HostDirectory(),
            help="kubelet's root directory; may be repeated.  [default: detected]"),
    option("--ceph-conf", type=FILE, default="/etc/ceph/ceph.conf", show_default=True,
            help="Ceph configuration file."),
    option("--ceph-id", default="rbdagent", show_default=True,
            help="CephX user, without the prefix client."),
    option("--ceph-keyring", type=FILE,
            help="Keyring file.  [default: the systemd credential, or found by librados]"),
    option("--ceph-timeout", type=Duration(), default="10s", show_default=True,
            help="Timeout of one call to Ceph."),
    option("--kubeconfig", type=FILE,
            help="kubeconfig file.  [default: KUBECONFIG, in-cluster, ~/.kube/config]"),
    option("--context", help="Context of the kubeconfig."),
    option("--kube-timeout", type=Duration(), default="10s", show_default=True,
            help="Timeout of one call to the Kubernetes API."),
    option("--no-ceph", is_flag=True, help="Do not query Ceph."),
    option("--no-kube", is_flag=True, help="Do not query Kubernetes."),
    option("--no-node", is_flag=True, help="Do not observe this node."),
    option("--timeout", type=Duration(), default="30s", show_default=True,
            help="Overall deadline; sources that have not answered are reported as not observed."),
)  # fmt: skip


def with_options(options: Sequence[Callable[[Any], Any]], command: _F) -> _F:
    """Add several flags to a verb; its help lists them in this order."""
    decorated: Any = command
    for add_option in reversed(options):
        decorated = add_option(decorated)
    return decorated  # type: ignore[no-any-return]


def observing(command: _F) -> _F:
    """Add the flags that every observing verb has; the verb receives them as ``settings``."""

    @functools.wraps(command)
    def wrapped(*args: Any, **flags: Any) -> Any:  # noqa: ANN401 - click's own
        names = (
            "config", "node_name", "procfs", "sysfs", "host_root", "kubelet_root", "ceph_conf",
            "ceph_id", "ceph_keyring", "ceph_timeout", "kubeconfig", "context", "kube_timeout",
            "no_ceph", "no_kube", "no_node", "timeout",
        )  # fmt: skip
        given = {name: flags.pop(name) for name in names}
        debug, log_format = flags.pop("debug"), flags.pop("log_format")
        flags["settings"] = lambda: settings_of(given)
        if not debug:
            return command(*args, **flags)
        from rbdagent.log import logged

        with logged("debug", log_format or "console"):
            return command(*args, **flags)

    return with_options((CONFIG, DEBUG, LOG_FORMAT, *_OBSERVING), wrapped)  # type: ignore[return-value]


OF_ONE_CLUSTER: Final = ("ceph_conf", "ceph_id", "ceph_keyring")


def ceph_tables() -> list[dict[str, Any]]:
    """Return the clusters of the configuration file; none if a flag or variable names a cluster."""
    context = click.get_current_context()
    named = {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    if any(context.get_parameter_source(name) in named for name in OF_ONE_CLUSTER):
        return []
    tables: list[dict[str, Any]] = context.meta.get("ceph") or []
    return tables


def settings_of(given: dict[str, Any]) -> Settings:
    """Return the settings of an observation from the values of the flags."""
    from rbdagent.collect.ceph.access import CephAccess
    from rbdagent.collect.node.roots import NodeRoots
    from rbdagent.config import Settings

    conf = Path(given["ceph_conf"])
    tables = ceph_tables() or [{"name": conf.stem, "keyring": given["ceph_keyring"]}]
    names = [str(table.get("name", Path(str(table.get("conf", conf))).stem)) for table in tables]
    clusters = tuple(
        CephAccess(
            name=name,
            conf=Path(str(table.get("conf", conf))),
            client_id=str(table.get("id", given["ceph_id"])),
            keyring=path_of(table.get("keyring")) or _credential_keyring(name),
            keyfile=path_of(table.get("keyfile")),
            timeout_s=Duration().convert(table.get("timeout", given["ceph_timeout"]), None, None),
        )
        for name, table in zip(names, tables, strict=True)
    )
    kube = None if given["no_kube"] else kube_access(given)
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
        kube=kube,
        timeout_s=given["timeout"],
        version=__version__,
        monitor_lists=tuple(
            _monitor_list(name, table, kube)
            for name, table in zip(names, tables, strict=True)
            if "monitors-from" in table
        ),
    )


def _monitor_list(cluster: str, table: dict[str, Any], access: KubeAccess | None) -> MonitorList:
    """Return where a ``[[ceph]]`` table has the list of the monitors of its cluster.

    Raises:
        UsageError: ``monitors-from`` does not name one ConfigMap.
    """
    from rbdagent.collect.kube.kubeconfig import MonitorList

    namespace, _, name = str(table["monitors-from"]).partition("/")
    if not (namespace and name) or "/" in name:
        raise UsageError(
            f"[[ceph]] {cluster}: monitors-from names no ConfigMap",
            hint='write monitors-from = "NAMESPACE/NAME"',
        )
    return MonitorList(
        cluster=cluster,
        namespace=namespace,
        config_map=name,
        key=str(table.get("monitors-key", "config.json")),
        cluster_id=str(table.get("cluster-id", "")),
        access=access,
    )


def claims_in_words(namespace: str | None, selector: str | None) -> list[str]:
    """Return how the flags -n and -l select claims, for a sentence."""
    words = [f"of namespace {namespace}"] if namespace is not None else []
    return [*words, f"with -l {selector}"] if selector else words


def label_requirements(selector: str | None) -> tuple[Requirement, ...]:
    """Return the requirements of the flag -l; none without the flag.

    Raises:
        UsageError: it is not a label selector.
    """
    from rbdagent.parse.selector import parse_selector

    try:
        return parse_selector(selector or "")
    except ParseError as error:
        raise UsageError(str(error)) from error


def _credential_keyring(cluster: str) -> Path | None:
    """Return the keyring of systemd's ``LoadCredential=NAME.keyring:FILE``, if it exists."""
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    keyring = Path(directory, f"{cluster}.keyring") if directory else None
    return keyring if keyring is not None and keyring.exists() else None


def target_argument(*, required: bool) -> Callable[[_F], _F]:
    """Add TARGET, as one word or as kubectl's ``TYPE NAME``; the verb receives one word."""

    def add(command: _F) -> _F:
        @functools.wraps(command)
        def wrapped(*args: Any, target: tuple[str, ...], **flags: Any) -> Any:  # noqa: ANN401 - click's own
            from rbdagent.parse.target import joined_target

            return command(*args, target=joined_target(target), **flags)

        shown = "TARGET" if required else "[TARGET]"
        argument = click.argument(
            "target", nargs=-1, required=required, metavar=shown, shell_complete=_targets
        )
        return argument(wrapped)  # type: ignore[return-value]

    return add


def _targets(
    context: click.Context, parameter: click.Parameter, begin: str
) -> list[CompletionItem[str]]:
    """Return the targets that a shell offers."""
    from rbdagent.cli.candidates import targets

    return targets(context, parameter, begin)


def all_namespaces(command: _F) -> _F:
    """Add the flag that selects all namespaces instead of a TARGET."""
    return click.option(
        "--all-namespaces", "-A", "every", is_flag=True, help="All namespaces; omit TARGET."
    )(command)


def cluster_target(*, every: bool, namespace: str | None, selector: str | None) -> Target:
    """Return the target of a namespace, or of the whole cluster.

    Raises:
        UsageError: no flag selects any, or ``-A`` and ``-n`` contradict each other.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import FORMS

    if every and namespace is not None:
        raise UsageError(f"-A means all namespaces: do not combine it with -n {namespace}")
    if not every and namespace is None and selector is None:
        raise UsageError(
            "a TARGET is missing; use -A, -n NAMESPACE or -l LABELS for everything that is stuck",
            hint=f"a TARGET is {FORMS}",
        )
    given = "-A" if namespace is None else f"-n {namespace}"
    return Target(argument=given, kind=TargetKind.NONE, namespace=namespace or "")


def reading(*also: str) -> Callable[[_F], _F]:
    """Add the flags that the reading verbs share; ``also`` are further output formats."""
    forms = ("table", "wide", "json", "yaml", "name", *also)
    options = (
        option("--output", "-o", type=click.Choice(forms),
                default="table", show_default=True, help="Output format."),
        option("--from", "source", type=FILE, envvar="RBDAGENT_FROM", metavar="FILE",
                help="Read a snapshot file instead of observing; - is stdin."),
        option("--fail-on", type=click.Choice(SEVERITIES), default="error", show_default=True,
                help="Exit with code 3 if a finding has at least this severity."),
        option("--watch", "-w", is_flag=True,
                help="Repeat, and print each answer that differs from the last one."),
        VERBOSE,
        COLOR,
    )  # fmt: skip
    return functools.partial(with_options, options)
