"""The command line: parse, look or load, judge, print. Thin on purpose."""

from __future__ import annotations

import functools
import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from rbdagent import __version__
from rbdagent.errors import NotFoundError, RbdagentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rbdagent.config import Settings
    from rbdagent.model import CheckResult, Diagnosis, Snapshot, Target

_F = TypeVar("_F", bound="Callable[..., Any]")

_FINDINGS: Final = 3
_SEVERITIES: Final = ("info", "warning", "error")
_WATCH_S: Final = 5.0
_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def run(arguments: Sequence[str]) -> int:  # noqa: PLR0911 - one line a way to end
    """Run one command and give its exit code; a user sees no traceback without ``--debug``.

    0 answered, nothing at or above --fail-on; 1 could not answer; 2 usage; 3 findings at or above
    --fail-on; 4 refused as unsafe.
    """
    debug = "--debug" in arguments or os.environ.get("RBDAGENT_DEBUG") not in {None, "", "0"}
    try:
        code = cli.main(args=list(arguments), prog_name="rbdagent", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        _tell_origin(error)
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):
        # click ends so on a broken pipe: whoever read has seen enough.
        return 0
    except OSError as error:
        click.echo(f"rbdagent: cannot write the answer: {error.strerror}", err=True)
        return 1
    except RbdagentError as error:
        _complain(error, debug=debug)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the outermost edge
        if debug:
            import traceback

            traceback.print_exc()
        click.echo(
            f"rbdagent: this is a defect of rbdagent: {type(error).__name__}: {error}\n"
            "  run it again with --debug and report what it prints",
            err=True,
        )
        return 1
    return code if isinstance(code, int) else 0


def _tell_origin(error: click.ClickException) -> None:
    """Say of a bad value in which file or variable it stands, where it was no flag."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return
    origin = error.ctx.get_parameter_source(error.param.name or "")
    hint = error.param.get_error_hint(error.ctx)
    if origin is not None and origin.name == "DEFAULT_MAP":
        error.param_hint = f"{hint} in {error.ctx.meta.get('config')}"
    elif origin is not None and origin.name == "ENVIRONMENT":
        error.param_hint = f"{hint} in the environment's {error.param.envvar}"


def _complain(error: RbdagentError, *, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exception(error)
    click.echo(f"rbdagent: {error}", err=True)
    near = error.near if isinstance(error, NotFoundError) else ()
    if near and not any(each in error.hint for each in near):
        click.echo(f"  did you mean {' or '.join(near)}?", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


# --------------------------------------------------------------------------------------------------
# Flags
# --------------------------------------------------------------------------------------------------


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
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


def _option(*names: str, **settings: Any) -> Callable[[_F], _F]:  # noqa: ANN401 - click's own
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "RBDAGENT_" + long.removeprefix("--").replace("-", "_").upper()
    settings.setdefault("envvar", variable)
    return click.option(*names, **settings)


_CONFIG = _option(
    "--config",
    is_eager=True,
    callback=_from_file,
    metavar="FILE",
    help="Configuration file.  [default: /etc/rbdagent/config.toml]",
)
_DEBUG = _option("--debug", is_flag=True, help="Tracebacks, and how long each source took.")

_LOOK: Final = (
    _option("--node-name", help="This node's name in Kubernetes.  [default: NODE_NAME, hostname]"),
    _option("--procfs", default="/proc", show_default=True, help="The host's /proc."),
    _option("--sysfs", default="/sys", show_default=True, help="The host's /sys."),
    _option("--host-root", default="/", show_default=True, help="The host's root directory."),
    _option("--kubelet-root", multiple=True, help="kubelet's root directory.  [default: found]"),
    _option("--ceph-conf", default="/etc/ceph/ceph.conf", show_default=True, help="ceph.conf."),
    _option("--ceph-id", default="rbdagent", show_default=True, help="CephX user, no client."),
    _option("--ceph-keyring", help="Keyring.  [default: found by librados]"),
    _option("--ceph-timeout", type=_Duration(), default="10s", show_default=True, help="A call."),
    _option("--kubeconfig", help="kubeconfig.  [default: KUBECONFIG, in-cluster, ~/.kube/config]"),
    _option("--context", help="Context of the kubeconfig."),
    _option("--kube-timeout", type=_Duration(), default="10s", show_default=True, help="A call."),
    _option("--no-ceph", is_flag=True, help="Look away from Ceph."),
    _option("--no-kube", is_flag=True, help="Look away from Kubernetes."),
    _option("--no-node", is_flag=True, help="Look away from this node."),
    _option("--timeout", type=_Duration(), default="30s", show_default=True,
            help="For the whole answer: what came by then is the answer."),
)  # fmt: skip


def _observing(command: _F) -> _F:
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
        return command(*args, settings=lambda: _settings(given), **flags)

    decorated: Any = wrapped
    for option in (*reversed(_LOOK), _DEBUG, _CONFIG):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_OF_ONE_CLUSTER: Final = ("ceph_conf", "ceph_id", "ceph_keyring")


def _ceph_tables() -> list[dict[str, Any]]:
    """Give the file's clusters; a flag or a variable that names one cluster outranks them all."""
    from click.core import ParameterSource

    context = click.get_current_context()
    named = {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    if any(context.get_parameter_source(name) in named for name in _OF_ONE_CLUSTER):
        return []
    tables: list[dict[str, Any]] = context.meta.get("ceph") or []
    return tables


def _settings(given: dict[str, Any]) -> Settings:
    from rbdagent.config import Settings
    from rbdagent.observe.cluster import CephAccess
    from rbdagent.observe.kubeconfig import KubeAccess
    from rbdagent.observe.node import NodeRoots

    def path(value: str | None) -> Path | None:
        return Path(value) if value else None

    conf = Path(given["ceph_conf"])
    tables = _ceph_tables() or [{"name": conf.stem, "keyring": given["ceph_keyring"]}]
    clusters = tuple(
        CephAccess(
            name=str(table.get("name", Path(str(table.get("conf", conf))).stem)),
            conf=Path(str(table.get("conf", conf))),
            client_id=str(table.get("id", given["ceph_id"])),
            keyring=path(table.get("keyring")),
            timeout_s=_Duration().convert(table.get("timeout", given["ceph_timeout"]), None, None),
        )
        for table in tables
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


def _reading(command: _F) -> _F:
    """Give a verb the flags of every verb that gives an answer."""
    options = (
        _option("--output", "-o", type=click.Choice(["table", "wide", "json", "yaml", "name"]),
                default="table", show_default=True, help="Form of the answer."),
        _option("--from", "source", envvar="RBDAGENT_FROM", metavar="FILE",
                help="Answer from a snapshot instead; - is stdin."),
        _option("--fail-on", type=click.Choice(_SEVERITIES), default="error", show_default=True,
                help="Exit 3 when a finding is at least so severe."),
        _option("--watch", "-w", is_flag=True, help="Look again and again, print what changed."),
    )  # fmt: skip
    decorated: Any = command
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


class _Group(click.Group):
    """Verbs in the order in which a user needs them; a typo gets near matches."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=2)
            if near:
                raise click.UsageError(
                    f"{error.message} Did you mean {' or '.join(near)}?", ctx
                ) from error
            raise


@click.group(cls=_Group, context_settings=_CONTEXT)
@click.version_option(__version__, "--version", message="rbdagent %(version)s")
def cli() -> None:
    """Who holds this Ceph RBD volume, should they, and what do I do now?"""


# --------------------------------------------------------------------------------------------------
# Verbs
# --------------------------------------------------------------------------------------------------


@cli.command("who-holds")
@click.argument("target", required=True)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@_reading
@_observing
def who_holds(
    *,
    target: str,
    namespace: str | None,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """Name every holder of the image behind TARGET, with verdict, evidence and the next command.

    TARGET is pv/NAME or NAME, pvc/NAMESPACE/NAME, pod/NAMESPACE/NAME, POOL[/NAMESPACE]/IMAGE, a CSI
    volume handle, or /dev/rbdN.
    """
    from rbdagent.parse.target import parse_target

    wanted = parse_target(target, namespace=namespace)

    def once() -> tuple[str, int]:
        from rbdagent.correlate import correlate
        from rbdagent.diagnose import diagnose

        snapshot = _snapshot(wanted, source, settings)
        diagnosis = diagnose(correlate(snapshot), snapshot)
        return _render_holders(diagnosis, snapshot, output), _exit_code((diagnosis,), fail_on)

    return _repeat(once, watch=watch and source is None)


@cli.command("list")
@click.option("--all-nodes", "-A", is_flag=True, help="Of all nodes, from what agents published.")
@click.option("--namespace", "-n", help="Only volumes whose claim is in this namespace.")
@_reading
@_observing
def list_mappings(
    *,
    all_nodes: bool,
    namespace: str | None,
    output: str,
    source: str | None,
    fail_on: str,
    watch: bool,
    settings: Callable[[], Settings],
) -> int:
    """List the mappings of this node, with verdicts."""
    if all_nodes:
        raise RbdagentError(
            "list -A reads what the agents of all nodes published, and no agent publishes yet",
            hint="run rbdagent list on each node; who-holds names holders on other nodes",
        )
    from rbdagent.model import Target, TargetKind

    def once() -> tuple[str, int]:
        from rbdagent.correlate import correlate_node
        from rbdagent.diagnose import diagnose

        snapshot = _snapshot(Target(given="", kind=TargetKind.NONE), source, settings)
        diagnoses = [diagnose(use, snapshot) for use in correlate_node(snapshot)]
        if namespace is not None:
            diagnoses = _of_namespace(diagnoses, snapshot, namespace)
        code = _exit_code(diagnoses, fail_on)
        if code == 0 and not _devices_seen(snapshot):
            code = 1
        return _render_mappings(diagnoses, snapshot, output, namespace), code

    return _repeat(once, watch=watch and source is None)


def _of_namespace(
    diagnoses: list[Diagnosis], snapshot: Snapshot, namespace: str
) -> list[Diagnosis]:
    """Keep what belongs to a namespace; whose claim nobody could look up belongs to any."""
    from rbdagent.model import NotObserved

    kube = snapshot.kubernetes
    unseen = "Kubernetes was not observed" if kube is None else ""
    for part in () if kube is None else (kube.persistent_volumes, kube.claims):
        unseen = part.reason if isinstance(part, NotObserved) else unseen
    if unseen:
        raise RbdagentError(
            f"which mappings are of namespace {namespace} cannot be told: {unseen}",
            hint="rbdagent list without --namespace shows them all; rbdagent check tells more",
        )
    return [
        each
        for each in diagnoses
        if each.use.claim is not None and each.use.claim.ref.namespace == namespace
    ]


def _devices_seen(snapshot: Snapshot) -> bool:
    from rbdagent.model import NotObserved

    return snapshot.node is not None and not isinstance(snapshot.node.mappings, NotObserved)


@cli.command()
@click.argument("target", required=False)
@click.option("--namespace", "-n", help="Namespace of pvc/NAME and pod/NAME.")
@_observing
def snapshot(*, target: str | None, namespace: str | None, settings: Callable[[], Settings]) -> int:
    """Print what was observed, redacted, as one file; --from FILE replays it.

    Without TARGET it holds every mapping of this node, for `list --from`.
    """
    from rbdagent.model import Target, TargetKind
    from rbdagent.parse.target import parse_target
    from rbdagent.report.snapshot import dump_snapshot

    wanted = (
        parse_target(target, namespace=namespace)
        if target
        else Target(given="", kind=TargetKind.NONE)
    )
    click.echo(dump_snapshot(_snapshot(wanted, None, settings)), nl=False)
    return 0


@cli.command()
@_option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table",
         show_default=True, help="Form of the answer.")  # fmt: skip
@_observing
def check(*, output: str, settings: Callable[[], Settings]) -> int:
    """Tell whether rbdagent can do its work here, and what is missing.

    Exits 1 when something fails that an answer needs; a warning costs only detail.
    """
    from rbdagent.check import check_all
    from rbdagent.model import CheckState
    from rbdagent.report.machine import check_report
    from rbdagent.report.text import check_lines

    results = (*_where_from(), *check_all(settings()))
    if output == "table":
        _print(check_lines(results, colour=_colour()))
    else:
        _print(_data(check_report(results), output))
    return int(any(each.state is CheckState.FAILED for each in results))


def _where_from() -> tuple[CheckResult, ...]:
    """Tell of every flag which value it has and where that came from."""
    from rbdagent.model import CheckResult, CheckState

    context = click.get_current_context()
    words = {
        "COMMANDLINE": "flag",
        "ENVIRONMENT": "environment",
        "DEFAULT_MAP": str(context.meta.get("config", "")),
        "DEFAULT": "default",
    }
    tables = _ceph_tables()
    results = [
        CheckResult(
            source="configuration",
            sentence=f"[[ceph]] names cluster {each.get('name') or each.get('conf')}",
            state=CheckState.OK,
            detail=str(context.meta.get("config", "")),
        )
        for each in tables
    ]
    for name, value in context.params.items():
        origin = context.get_parameter_source(name)
        if name in {"debug", "output"} or origin is None or (tables and name in _OF_ONE_CLUSTER):
            continue
        shown = f"{value:g}s" if isinstance(value, float) else value
        results.append(
            CheckResult(
                source="configuration",
                sentence=f"--{name.replace('_', '-')} is {_plain(shown)}",
                state=CheckState.OK,
                detail=words.get(origin.name, origin.name.lower()),
            )
        )
    return tuple(results)


def _plain(value: object) -> str:
    if value in {None, ()}:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@cli.command()
@click.argument("code", required=False)
@_option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table",
         show_default=True, help="Form of the answer.")  # fmt: skip
@_DEBUG
def explain(*, code: str | None, output: str, debug: bool) -> int:
    """Tell cause, evidence, risk and remedy of a finding; without CODE, list them all."""
    del debug
    from rbdagent.catalog import CATALOG, entry, explanation
    from rbdagent.report import machine

    if code is None and output != "table":
        _print(_data(machine.explanations(tuple(CATALOG.values())), output))
    elif code is None:
        for each in CATALOG.values():
            _print(f"{each.code}   {each.severity:<7}   {each.name:<28}   {each.summary}\n")
    elif output == "table":
        _print(explanation(code) + "\n")
    else:
        _print(_data(machine.explanation(entry(code)), output))
    return 0


@cli.command()
@click.argument("kind", required=False)
@_DEBUG
def schema(*, kind: str | None, debug: bool) -> int:
    """Print the JSON Schema of a machine output; without KIND, list the kinds."""
    del debug
    from rbdagent.report.schema import KINDS
    from rbdagent.report.schema import schema as schema_of

    if kind is None:
        _print("".join(f"{each}\n" for each in KINDS))
    else:
        _print(_data(schema_of(kind), "json"))
    return 0


@cli.command()
@_option("--output", "-o", type=click.Choice(["table", "json", "yaml"]), default="table",
         show_default=True, help="Form of the answer.")  # fmt: skip
@_DEBUG
def version(*, output: str, debug: bool) -> int:
    """Print the version."""
    del debug
    if output == "table":
        _print(f"rbdagent {__version__}\n")
        return 0
    import platform

    from rbdagent.report.machine import version_info

    _print(_data(version_info(__version__, platform.python_version()), output))
    return 0


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> int:
    """Print a completion script: source <(rbdagent completion bash)."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}")
    _print(found(cli, {}, "rbdagent", "_RBDAGENT_COMPLETE").source())
    return 0


# --------------------------------------------------------------------------------------------------
# Between them
# --------------------------------------------------------------------------------------------------


def _snapshot(target: Target, source: str | None, settings: Callable[[], Settings]) -> Snapshot:
    """Load a snapshot, or look."""
    if source is not None:
        return _loaded(target, source)
    from rbdagent.look import look

    started = time.monotonic()
    found = look(target, settings(), now=_now)
    if click.get_current_context().params.get("debug"):
        from rbdagent.log import debug_log

        debug_log().debug("looked", seconds=round(time.monotonic() - started, 3))
    return found


_WANTED: Final = "--from wants a file that `rbdagent snapshot` wrote"


def _loaded(target: Target, source: str) -> Snapshot:
    from rbdagent.model import TargetKind
    from rbdagent.report.snapshot import load_snapshot

    name = "stdin" if source == "-" else source
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except FileNotFoundError:
        raise UsageError(f"{source}: no such file", hint=_WANTED) from None
    except OSError as error:
        raise UsageError(f"{source}: cannot be read: {error.strerror}", hint=_WANTED) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: not a text file, so no snapshot", hint=_WANTED) from error
    found = load_snapshot(text, where=name)
    if (found.target.kind, found.target.name, found.target.namespace, found.target.image) == (
        target.kind,
        target.name,
        target.namespace,
        target.image,
    ):
        return found
    if TargetKind.NONE in {target.kind, found.target.kind}:
        is_list = found.target.kind is TargetKind.NONE
        held = "every mapping of a node" if is_list else found.target.given
        verb = "list" if is_list else f"who-holds {found.target.given}"
        raise NotFoundError(f"{name} was taken for {held}", hint=f"rbdagent {verb} --from {source}")
    return _retargeted(found, target, name, source)


def _retargeted(found: Snapshot, target: Target, name: str, source: str) -> Snapshot:
    """Ask a snapshot about another name of what it holds: its PV's claim, its pod, its image."""
    from msgspec.structs import replace

    from rbdagent.correlate import images_of

    asked = replace(found, target=target)
    held = set(images_of(found.target, found.node, found.kubernetes))
    wanted = set(images_of(target, found.node, found.kubernetes))
    if {each.spec for each in wanted} & {each.spec for each in held}:
        return asked
    raise NotFoundError(
        f"{name} holds nothing about {target.given}: it was taken for {found.target.given}",
        hint=f"rbdagent who-holds {found.target.given} --from {source}",
        near=(found.target.given,),
    )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _render_holders(diagnosis: Diagnosis, found: Snapshot, output: str) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.machine import holder_report

        return _data(holder_report(diagnosis, found), output)
    from rbdagent.report import text

    if output == "name":
        return text.names(diagnosis.holders)
    return text.answer(diagnosis, found, wide=output == "wide", colour=_colour())


def _render_mappings(
    diagnoses: Sequence[Diagnosis], found: Snapshot, output: str, namespace: str | None
) -> str:
    if output in {"json", "yaml"}:
        from rbdagent.report.machine import mapping_list

        return _data(mapping_list(diagnoses, found), output)
    from rbdagent.report import text

    if output == "name":
        local = [each for one in diagnoses for each in one.holders if each.holder.is_local]
        return text.names(local)
    return text.mapping_table(
        diagnoses, found, wide=output == "wide", colour=_colour(), namespace=namespace
    )


def _data(data: dict[str, Any], output: str) -> str:
    if output == "json":
        import msgspec

        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def _exit_code(diagnoses: Sequence[Diagnosis], fail_on: str) -> int:
    """Give 3 for findings, 1 for "undetermined": no script may read that as fine."""
    from rbdagent.model import Verdict

    least = _SEVERITIES.index(fail_on)
    serious = any(
        _SEVERITIES.index(str(finding.severity)) >= least
        for diagnosis in diagnoses
        for finding in diagnosis.findings
    )
    if serious:
        return _FINDINGS
    return int(any(each.verdict is Verdict.UNDETERMINED for each in diagnoses))


def _repeat(once: Callable[[], tuple[str, int]], *, watch: bool) -> int:
    """Answer once; with --watch again and again, printing an answer that differs from the last."""
    text, code = once()
    _print(text)
    if watch:
        gc.enable()
    while watch:
        time.sleep(_WATCH_S)
        again, code = once()
        if _timeless(again) != _timeless(text):
            _print(f"\n--- {_now()}\n{again}")
        text = again
    return code


def _timeless(text: str) -> str:
    """Give an answer without the moments in it, which differ at every look."""
    import re

    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "", text)


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print(text: str) -> None:
    click.echo(text, nl=False, color=_colour())
